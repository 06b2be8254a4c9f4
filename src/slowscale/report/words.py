"""Formulas and policies in words."""

from collections.abc import Sequence

import numpy as np

from slowscale.figures import figure
from slowscale.policy import Policy
from slowscale.policy.tree import Symbol
from slowscale.report.mathml import equation
from slowscale.report.page import Html

MISSING = "a report needs altair and vl-convert-python: pip install 'slowscale[plots]'"
BIAS_OF_ESTIMATOR = {
    "mean": "None: on average over the noise, the result is the true one.",
    "median": "None in the median: the result is as likely too high as too low.",
    "biased: clipped at 0": "Upwards: results below 0 are published as 0.",
}


def listed(parts: Sequence[str], last: str = "and") -> str:
    """Return parts as an enumeration: "a, b and c"."""
    return f"{', '.join(parts[:-1])} {last} {parts[-1]}" if len(parts) > 1 else "".join(parts)


def upper(text: str) -> str:
    """Return text with its first letter as a capital."""
    return text[:1].upper() + text[1:]


def mathml(policy: Policy, column: str | None) -> Html:
    """Return a policy as a formula in MathML, with the column's name for the influence."""
    variable = Symbol(column or "")
    return Html(equation(policy.formula(variable), variable if column is not None else None))


def growth(policy: Policy, low: float, high: float) -> str:
    """Say how the loss grows between two sizes; every number in the words is computed from the policy itself."""
    last = max(high / 10, low)
    starts = np.geomspace(low, last, 25)
    with np.errstate(all="ignore"):
        before, after = np.asarray(policy(starts)), np.asarray(policy(10 * starts))
        factors = after / before
    if np.isinf(before).any():
        said = "The loss is more than a number can hold."
    elif (before == before[0]).all() and (after == before[0]).all():
        said = f"Every record from size {figure(low)} to {figure(10 * last)} loses the same."
    elif np.isfinite(factors).all() and factors.max() <= 1.004 * factors.min():
        said = f"Ten times the size means {figure(factors[0])} times the loss, at every size shown."
    else:
        known = [(starts[i], factors[i]) for i in (0, -1) if np.isfinite(factors[i])]
        parts = [f"from size {figure(start)} to {figure(10 * start)} {_grows(factor)}" for start, factor in known]
        said = f"{upper('; '.join(dict.fromkeys(parts)))}." if parts else ""
    if policy.step is not None:
        said = f"Records up to {figure(policy.step)} lose the same, and larger ones in steps. {said}"
    return said.strip()


def _grows(factor: float) -> str:
    written = figure(factor)
    return "the loss stays the same" if written == "1" else f"the loss grows {written}-fold"
