"""The mechanisms of the experiments, calibrated to the data's medians, beside the parameters that the paper prints."""

import math
from dataclasses import dataclass

import slowscale as ss
from slowscale.mechanisms import same_error
from slowscale.study.attributes import Attribute

ADDITIVE = ("Gaussian", "generalized Gaussian 1/2", "exponential polylog 2")
TRANSFORMATION = ("Gaussian", "fourth root", "log")  # the identity transformation is the Gaussian mechanism
KINDS = {"additive": ADDITIVE, "transformation": TRANSFORMATION}
NAMES = tuple(dict.fromkeys([*ADDITIVE, *TRANSFORMATION]))
# The parameter that the paper solves for, and its printed values (Table experiment-params).
FREE = dict(zip(NAMES, ("sigma", "sigma", "d", "sigma", "sigma"), strict=True))
PRINTED_PARAMETERS = {
    "Cattle": (7212, 658, 0.113, 1.67, 0.637),
    "EMP": (1.41, 0.129, 0.595, 0.198, 0.448),
    "PAYQTR1": (17.7, 1.61, 0.337, 0.372, 0.616),
    "PAYANN": (75, 6.84, 0.231, 0.534, 0.632),
}


def experiment_mechanisms(attribute: Attribute) -> dict[str, ss.Mechanism]:
    """Return the mechanisms by name: a standard deviation of √½ medians, for a sum equal to the median.

    The polylog has the scale 1, as in the paper, whatever the median is.
    """
    found = same_error(std=math.sqrt(0.5) * attribute.median, at=attribute.median, sigma=1.0)
    return {name: found[name] for name in NAMES}


@dataclass(frozen=True)
class Parameter:
    """A parameter that was solved for, beside the printed one."""

    attribute: str
    mechanism: str
    name: str
    found: float
    printed: float
    target_std: float
    printed_std: float

    @property
    def agrees(self) -> bool:
        """Whether the printed value is the found one, rounded."""
        digits = f"{self.printed:g}"
        places = len(digits.partition(".")[2])
        return abs(self.printed - self.found) <= 0.5 * 10.0**-places * (1 + 1e-9)


def parameter_table(attribute: Attribute, mechanisms: dict[str, ss.Mechanism]) -> list[Parameter]:
    """Return the parameters of an attribute of the paper, found and printed; none for other attributes."""
    rows = []
    if attribute.source == "given":
        return []
    for name, printed in zip(NAMES, PRINTED_PARAMETERS[attribute.name], strict=True):
        mechanism, free = mechanisms[name], FREE[name]
        as_printed = ss.Mechanism.from_dict({**mechanism.to_dict(), free: printed})
        rows.append(
            Parameter(
                attribute.name,
                name,
                free,
                float(getattr(mechanism, free)),
                printed,
                mechanism.std(attribute.median),
                as_printed.std(attribute.median),
            )
        )
    return rows
