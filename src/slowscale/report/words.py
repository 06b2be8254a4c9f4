"""Formulas and policies in words."""

import re
from collections.abc import Sequence
from functools import singledispatch
from html import escape

from slowscale.errors import EngineError
from slowscale.figures import figure
from slowscale.policy import (
    ConstantPolicy,
    LogPolicy,
    Policy,
    PolylogPolicy,
    PowerPolicy,
    RootPolicy,
    TanhPolicy,
    UnitSplittingPolicy,
    number,
)
from slowscale.report.page import Html

MISSING = "a report needs altair, vl-convert-python and latex2mathml: pip install 'slowscale[plots]'"
INFLUENCE = r"\Delta(r)"
PLACE = r"\text{@}"  # where the column's name goes, once the formula is MathML
ESTIMATORS = {
    "mean": "None: on average over the noise, the result is the true one.",
    "median": "None in the median: the result is as likely too high as too low.",
    "biased: clipped at 0": "Upwards: results below 0 are published as 0.",
}
MECHANISMS = {
    "Gaussian": "Gaussian noise is added to the sum.",
    "GeneralizedGaussian": "Generalized Gaussian noise is added to the sum.",
    "ExponentialPolylog": "Exponential polylogarithmic noise is added to the sum.",
    "UnitSplitting": "Gaussian noise is added to the sum, and large records are accounted for piece by piece.",
    "Root": "A root of the sum is taken, Gaussian noise is added, and the root is undone.",
    "Log": "The logarithm of the sum is taken, Gaussian noise is added, and the logarithm is undone.",
    "Transformation": "The sum is transformed by a function, Gaussian noise is added, and the function is undone.",
}


def listed(parts: Sequence[str], last: str = "and") -> str:
    """Return parts as an enumeration: "a, b and c"."""
    return f"{', '.join(parts[:-1])} {last} {parts[-1]}" if len(parts) > 1 else "".join(parts)


def upper(text: str) -> str:
    """Return text with its first letter as a capital."""
    return text[:1].upper() + text[1:]


def mathml(policy: Policy, column: str | None) -> Html:
    """Return a policy as a formula in MathML, with the column's name for the influence."""
    try:
        from latex2mathml.converter import convert
    except ImportError:
        raise EngineError(MISSING) from None
    start = "P = " if column is None else f"P({PLACE}) = "
    formula = re.sub(r"(\d)e\+?(-?)0*(\d+)", r"\1 \\times 10^{\2\3}", policy.latex())
    formula = re.sub(r"[\d.]+ \\times 10\^\{-?\d+\}", r"(\g<0>)", formula)
    name = column or ""
    written = f"<mi>{escape(name)}</mi>" if not re.search(r"\W", name) else f"<mtext>[{escape(name)}]</mtext>"
    drawn = convert(start + formula.replace(INFLUENCE, PLACE))
    drawn = drawn.replace(' display="inline"', ' displaystyle="true"', 1)
    return Html(drawn.replace("<mtext>@</mtext>", written))


@singledispatch
def growth(policy: Policy) -> str:
    """Say how a policy grows with the size of a record."""
    return "The loss grows with the size of the record as the formula says."


@growth.register
def _constant(policy: ConstantPolicy) -> str:
    return "The loss is the same for every record."


@growth.register
def _root(policy: RootPolicy) -> str:
    if policy.k == 1:
        return "The loss grows with the square of the record: ten times the size, a hundred times the loss."
    if policy.k == 2:
        return "The loss of a large record grows in proportion to its size."
    times = 10 ** (2 / policy.k)
    return f"The loss of a large record grows like a root: ten times the size, only {times:.2g} times the loss."


@growth.register
def _log(policy: LogPolicy) -> str:
    return "The loss grows with the square of the record's logarithm: much more slowly than the record."


@growth.register
def _power(policy: PowerPolicy) -> str:
    if policy.p == 1:
        return "The loss of a large record grows in proportion to its size."
    return f"The loss of a large record grows slowly: ten times the size, only {10**policy.p:.2g} times the loss."


@growth.register
def _polylog(policy: PolylogPolicy) -> str:
    power = "" if policy.p == 1 else " squared" if policy.p == 2 else f" to the power {number(policy.p)}"
    return f"The loss grows like the record's logarithm{power}: much more slowly than the record."


@growth.register
def _tanh(policy: TanhPolicy) -> str:
    return growth(policy.pure)


@growth.register
def _unit_splitting(policy: UnitSplittingPolicy) -> str:
    return (
        f"Records up to {figure(policy.threshold)} lose the same; beyond, the loss grows in steps, with the square of "
        "the size."
    )
