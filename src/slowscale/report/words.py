"""Policies as formulas and in words."""

from collections.abc import Sequence

import numpy as np

from slowscale.figures import figure
from slowscale.policy import Policy
from slowscale.policy.tree import Symbol
from slowscale.report.mathml import equation
from slowscale.report.page import Html

MISSING = "a report or chart needs altair and vl-convert-python: pip install 'slowscale[plots]'"
NOT_PRIVATE = "NOT PRIVATE: the noise was drawn from test bits that are not secret. Do not publish this table."
BIAS_OF_ESTIMATOR = {
    "mean": "None: the result equals the true value on average over the noise.",
    "median": "None in the median: the result is as likely too high as too low.",
    "biased: clipped at 0": "Upwards: results below 0 are published as 0.",
}


def listed(parts: Sequence[str], last: str = "and") -> str:
    """Return the parts as a list in a sentence: "a, b and c"."""
    return f"{', '.join(parts[:-1])} {last} {parts[-1]}" if len(parts) > 1 else "".join(parts)


def upper(text: str) -> str:
    """Return the text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def mathml(policy: Policy, column: str | None) -> Html:
    """Return a policy as a formula in MathML, with the column's name for the influence."""
    variable = Symbol(column or "")
    return Html(equation(policy.formula(variable), variable if column is not None else None))


def growth(policy: Policy, low: float, high: float) -> str:
    """Return a sentence on how the loss grows between two sizes, with numbers computed from the policy itself."""
    last = max(high / 10, low)
    starts = np.geomspace(low, last, 25)
    with np.errstate(all="ignore"):
        before, after = np.asarray(policy(starts)), np.asarray(policy(10 * starts))
        factors = after / before
    if np.isinf(before).any():
        text = "The loss is too large for a number."
    elif (before == before[0]).all() and (after == before[0]).all():
        text = f"The loss is the same for every record from size {figure(low)} to {figure(10 * last)}."
    elif np.isfinite(factors).all() and factors.max() <= 1.004 * factors.min():
        text = f"Ten times the size means {figure(factors[0])} times the loss, at every size shown."
    else:
        known = [(starts[i], factors[i]) for i in (0, -1) if np.isfinite(factors[i])]
        parts = [f"from size {figure(start)} to {figure(10 * start)} {_grows(factor)}" for start, factor in known]
        text = f"{upper('; '.join(dict.fromkeys(parts)))}." if parts else ""
    if policy.step is not None:
        text = f"The loss is the same for records up to size {figure(policy.step)}, and then grows in steps. {text}"
    return text.strip()


def _grows(factor: float) -> str:
    written = figure(factor)
    return "the loss stays the same" if written == "1" else f"the loss grows {written}-fold"
