"""The parts of a plan that name a mechanism: sums, counts and the caps of [ledger].

Their fields are derived from the registry, so a plan can name every mechanism whose parameters are numbers or tables of
pairs of numbers.
"""

from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, PrivateAttr, create_model, field_validator, model_validator

from slowscale.core.errors import ParameterError
from slowscale.core.parameters import Domain, domains, tables
from slowscale.mechanisms import REGISTRY, Mechanism
from slowscale.mechanisms.base import ESTIMATORS
from slowscale.mechanisms.calibration import ACCOUNTING, ACCOUNTINGS, CLOSED, LEVEL, TIGHT
from slowscale.mechanisms.charged import charged_policy
from slowscale.mechanisms.transformation import NOISES
from slowscale.plan.inputs import Finite, NotNegative, NumberPairs, PlanPart, Positive, as_mistakes, given_words
from slowscale.policy import ConstantPolicy, Policy

# The mechanisms that a plan can name: all whose parameters are numbers or pairs of numbers, apart from the estimator.
MECHANISMS: dict[str, type[Mechanism]] = {
    kind: cls
    for kind, cls in REGISTRY.items()
    if {field.name for field in fields(cls)} <= {*domains(cls), *tables(cls), "estimator", "noise"}  # type: ignore[arg-type]
}
NUMBER_PARAMETERS = tuple(dict.fromkeys(name for cls in MECHANISMS.values() for name in domains(cls)))
# The name in plans of each parameter that is a table of pairs, with its description.
TABLE_PARAMETERS = {table.name: table.doc for cls in MECHANISMS.values() for table in tables(cls).values()}
PARAMETERS = (*NUMBER_PARAMETERS, *TABLE_PARAMETERS, "noise", "estimator")
WHOLE_PARAMETERS = {name for cls in MECHANISMS.values() for name, domain in domains(cls).items() if domain.integer}
LARGEST_INTEGER = 1000  # the limit for parameters that are whole numbers, such as the k of a k-th root


# As descriptions of fields name them: the mechanisms that have an estimator, and those whose error depends on the sum.
WITH_ESTIMATOR = " and ".join(kind for kind, cls in MECHANISMS.items() if hasattr(cls, "estimator"))
WITH_GROWING_ERROR = " and ".join(kind for kind, cls in MECHANISMS.items() if cls._error_grows)


def _number_fields() -> dict[str, Any]:
    """Return a pydantic field for each number that is a parameter of some mechanism."""
    return {
        name: _number_field({kind: domains(cls)[name] for kind, cls in MECHANISMS.items() if name in domains(cls)})
        for name in NUMBER_PARAMETERS
    }


def _number_field(owners: dict[str, Domain]) -> tuple[Any, Any]:
    """Return the type and the field of a parameter, from its domain in each mechanism that has it.

    The field accepts whatever one of the mechanisms may accept; the mechanism itself then checks its own domain.
    """
    docs = dict.fromkeys(domain.doc for domain in owners.values())
    kinds = {doc: ", ".join(kind for kind in owners if owners[kind].doc == doc) for doc in docs}
    description = " ".join(docs if len(docs) == 1 else (f"For {kinds[doc]}: {doc}" for doc in docs))
    if any(domain.integer for domain in owners.values()):
        low = min(domain.low for domain in owners.values())
        return int | None, Field(None, ge=low, le=LARGEST_INTEGER, description=description)
    positive = all(domain.low > 0 or (domain.low == 0 and domain.low_open) for domain in owners.values())
    return (Positive if positive else Finite) | None, Field(None, description=description)


def constructor_arguments(kind: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return parameters by the names that the mechanism's class has for them, given those that plans have.

    Raise if the mechanism has no such parameter, or if a table is missing, which cannot be solved for.
    """
    cls = MECHANISMS[kind]
    renamed = {parameter: table.name for parameter, table in tables(cls).items()}
    known = {renamed.get(field.name, field.name): field.name for field in fields(cls)}  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            raise ParameterError(f"mechanism {kind}", f"has no parameter {name}", remedy=f"it has {', '.join(known)}")
    for table in tables(cls).values():
        if table.name not in given:
            raise ParameterError(kind, f"needs {table.name}. {table.doc}")
    return {known[name]: value for name, value in given.items()}


if TYPE_CHECKING:

    class _Parameters(PlanPart):
        mechanism: str

else:
    _Parameters = create_model(
        "_Parameters",
        __base__=PlanPart,
        mechanism=(Literal[tuple(MECHANISMS)], Field(description="The mechanism that adds the noise.")),
        **_number_fields(),
        **{name: (NumberPairs | None, Field(None, description=doc)) for name, doc in TABLE_PARAMETERS.items()},
        noise=(
            Literal[tuple(NOISES)] | None,
            Field(None, description=f"For {WITH_ESTIMATOR}: the noise that is added to the transformed sum."),
        ),
        estimator=(
            Literal[ESTIMATORS] | None,
            Field(
                None,
                description=f"For {WITH_ESTIMATOR}: whether results are unbiased in the mean or in the median.",
            ),
        ),
    )


class MechanismPlan(_Parameters):
    """A mechanism, given by its parameters or by a target (std, interval or loss) that one parameter is solved for."""

    std: Positive | None = Field(
        None, description=f"Target: the standard deviation of the result; for {WITH_GROWING_ERROR}, at the sum `at`."
    )
    interval: Positive | None = Field(
        None,
        description="Target: the half-width of the interval around the true sum that contains the result with "
        f"probability `level`; for {WITH_GROWING_ERROR}, half the length of that interval at the sum `at`.",
    )
    level: float | None = Field(
        None, gt=0, lt=1, description=f"With `interval`: the probability. If it is not given, it is {LEVEL}."
    )
    loss: Positive | None = Field(None, description="Target: the PRzCDP loss of a record of size `at`.")
    accounting: Literal[ACCOUNTINGS] | None = Field(  # type: ignore[valid-type]
        None,
        description=f'With `loss`: "{TIGHT}", which is the default, for the loss by the tight policy, or "{CLOSED}" '
        "for the loss by the closed form of the policy, which needs more noise.",
    )
    at: NotNegative | None = Field(
        None,
        description="The sum that `std` or `interval` is for, or the record size that `loss` is for. With `std` or "
        "`interval`, it is also the scale sigma of exponential-polylog, unless that is given.",
    )

    _mechanism: Mechanism | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _build_mechanism(self) -> "MechanismPlan":
        with as_mistakes():
            if self.level is not None and self.interval is None:
                raise ParameterError("level", "is used only with interval", remedy="give interval, or remove level")
            self._check_accounting()
            targets = [name for name in ("std", "interval", "loss") if getattr(self, name) is not None]
            if len(targets) > 1:
                raise ParameterError(f"give one target, std, interval or loss, not {' and '.join(targets)}")
            self._mechanism = self._solved() if targets else self._stated()
        return self

    def build(self) -> Mechanism:
        """Return the mechanism. It was built, and thereby checked, when the plan was read."""
        assert self._mechanism is not None
        return self._mechanism

    @property
    def scale_words(self) -> str | None:
        """The scale of the noise and where it comes from, in words, if it need not be given."""
        targets = [name for name in ("std", "interval", "loss") if getattr(self, name) is not None]
        return self.build()._scale_words(self._given_parameters(), targets[0] if targets else None, self.at)

    def _check_accounting(self) -> None:
        """Raise if the plan names an accounting that would have no effect."""
        if self.accounting is not None and self.loss is None:
            raise ParameterError("accounting", "is used only with loss", remedy="give loss, or remove accounting")

    def _stated(self) -> Mechanism:
        """Return the mechanism with the parameters that the plan states."""
        cls, given = MECHANISMS[self.mechanism], self._given_parameters()
        if self.at is not None:
            raise ParameterError(
                "at", "is used only with std, interval or loss", remedy="give one of them, or remove at"
            )
        needed = [field.name for field in fields(cls) if field.default is MISSING]  # type: ignore[arg-type]
        missing = [name for name in needed if name not in given]
        if missing:
            raise ParameterError(
                self.mechanism, f"needs {', '.join(missing)}, or std, interval or loss to solve for one"
            )
        return cls(**given)

    def _solved(self) -> Mechanism:
        """Return the mechanism that meets the target."""
        cls, given = MECHANISMS[self.mechanism], self._given_parameters()
        return cls.calibrate(
            std=self.std,
            interval=self.interval,
            level=LEVEL if self.level is None else self.level,
            loss=self.loss,
            at=self.at,
            accounting=ACCOUNTING if self.accounting is None or self.loss is None else self.accounting,
            **given,
        )

    def _given_parameters(self) -> dict[str, Any]:
        """Return the parameters that the plan gives, or raise if the mechanism does not have one of them."""
        given = {name: getattr(self, name) for name in PARAMETERS if getattr(self, name) is not None}
        given |= {name: [tuple(pair) for pair in given[name]] for name in TABLE_PARAMETERS if name in given}
        return constructor_arguments(self.mechanism, given)


class SumPlan(MechanismPlan):
    """The mechanism that the sums of a column are published with, and their unit."""

    unit: int | str = Field(
        1, description='The unit that results are rounded to: a whole number such as 1, or text such as "0.01".'
    )

    @field_validator("unit", mode="before")
    @classmethod
    def _check_form(cls, unit: Any) -> Any:
        # One check for both types: pydantic would report a mistake once for each type that the field may have.
        if isinstance(unit, bool) or not isinstance(unit, int | str):
            write = f'; write unit = "{unit}"' if isinstance(unit, float) else ""
            got = "" if write else f", got {given_words(unit)}"
            raise ValueError(f'must be a whole number such as 1, or text such as "0.01"{got}{write}')
        return unit


class CapPlan(MechanismPlan):
    """The largest total loss of a record through a column: that of `times` releases by a mechanism, and `plus`."""

    times: int = Field(1, ge=1, le=10**9, description="The number of such releases that the cap has room for.")
    plus: NotNegative = Field(0.0, description="A loss to add to the cap, the same for records of every size.")
    accounting: Literal[ACCOUNTINGS] = Field(  # type: ignore[valid-type]
        ACCOUNTING,
        description=f'"{TIGHT}" or "{CLOSED}": whether the cap, and `loss` if it is given, is the tight policy of the '
        "mechanism or the closed form of its policy.",
    )

    def _check_accounting(self) -> None:
        """A cap is one of the two policies, so the field has an effect with every target and with none."""

    def cap(self) -> Policy:
        """Return the cap, as a policy."""
        cap = self.times * charged_policy(self.build(), self.accounting)
        return cap + ConstantPolicy(self.plus) if self.plus else cap
