"""Formulas of policies as trees of small nodes: each formula is defined once and can be written in several ways.

`writing` writes a tree as text and LaTeX, `report.mathml` as MathML, and `tables.losses` as an expression for an
engine; `formula_value` evaluates it operation by operation. The losses that are charged come from the code of the
policies, which avoids the cancellation of such an evaluation; tests compare the two.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, reduce
from typing import Any, overload

import numpy as np

from slowscale.core.formulas import laplace_loss
from slowscale.noise.arsinh_normal import searched_rise


class Formula:
    """A formula: one of the nodes below."""


@dataclass(frozen=True)
class Number(Formula):
    """A number, such as a parameter."""

    value: float


@dataclass(frozen=True)
class Symbol(Formula):
    """A variable, with its LaTeX name if that differs."""

    name: str
    latex: str | None = None


@dataclass(frozen=True)
class Shift(Formula):
    """base + by, where `by` may be negative."""

    base: Formula
    by: float


@dataclass(frozen=True)
class Difference(Formula):
    """left − right."""

    left: Formula
    right: Formula


@dataclass(frozen=True)
class Product(Formula):
    """left·right."""

    left: Formula
    right: Formula


@dataclass(frozen=True)
class Quotient(Formula):
    """top / bottom."""

    top: Formula
    bottom: float


@dataclass(frozen=True)
class Power(Formula):
    """base^exponent."""

    base: Formula
    exponent: float


@dataclass(frozen=True)
class KthRoot(Formula):
    """The kth root; k = 1 is the base itself."""

    base: Formula
    k: float


@dataclass(frozen=True)
class Logarithm(Formula):
    """The natural logarithm; `tall` if the argument may contain a fraction, so that its brackets must grow."""

    base: Formula
    tall: bool = False


@dataclass(frozen=True)
class Arsinh(Formula):
    """The inverse hyperbolic sine."""

    base: Formula


@dataclass(frozen=True)
class Absolute(Formula):
    """|base|."""

    base: Formula


@dataclass(frozen=True)
class RoundedUp(Formula):
    """step·⌈base / step⌉: the next multiple of a step."""

    base: Formula
    step: float


@dataclass(frozen=True)
class Call(Formula):
    """f(base) for a user-given function."""

    function: Callable[[Any], Any]
    base: Formula


@dataclass(frozen=True)
class HalfSquare(Formula):
    """rise² / (2σ²): the loss of a change by `rise` under Gaussian noise of scale σ."""

    rise: Formula
    sigma: float


@dataclass(frozen=True)
class LaplaceShift(Formula):
    """x + e^(−x) − 1: the loss of a change by x = `base`, in scales of Laplace noise."""

    base: Formula


@dataclass(frozen=True)
class LargestRise(Formula):
    """The largest ψ(z + base) − ψ(z) over all z, with ψ(z) = arsinh(z/scale)²/(2·shape²) + ln(1 + (z/scale)²)/2."""

    base: Formula
    scale: float
    shape: float


@dataclass(frozen=True)
class Tanh(Formula):
    """tanh(ε/2)·ε, where ε is the pure loss."""

    pure: Formula


@dataclass(frozen=True)
class Times(Formula):
    """The same loss `count` times."""

    count: int
    loss: Formula


@dataclass(frozen=True)
class Sum(Formula):
    """Losses that add."""

    terms: tuple[Formula, ...]


@dataclass(frozen=True)
class Pieces(Formula):
    """The first part up to the first end of the variable, the next part up to the next end; the last part beyond."""

    variable: Formula
    ends: tuple[float, ...]
    parts: tuple[Formula, ...]


@dataclass(frozen=True)
class Max(Formula):
    """The largest of several losses."""

    terms: tuple[Formula, ...]


@dataclass(frozen=True)
class Min(Formula):
    """The smallest of several bounds on the same loss."""

    terms: tuple[Formula, ...]


class LazyNumbers(Sequence[float]):
    """Numbers that a function computes when one of them is first read.

    >>> lazy = LazyNumbers(lambda: (1.0, 2.0))
    >>> lazy[1], len(lazy), lazy == (1.0, 2.0)
    (2.0, 2, True)
    """

    def __init__(self, compute: Callable[[], Sequence[float]]) -> None:
        self._compute = compute

    @cached_property
    def _numbers(self) -> tuple[float, ...]:
        return tuple(map(float, self._compute()))

    @overload
    def __getitem__(self, place: int) -> float: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[float, ...]: ...

    def __getitem__(self, place: int | slice) -> float | tuple[float, ...]:
        return self._numbers[place]

    def __len__(self) -> int:
        return len(self._numbers)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self._numbers, dtype)

    def __eq__(self, other: object) -> bool:
        return self is other or self._numbers == (other._numbers if isinstance(other, LazyNumbers) else other)

    def __hash__(self) -> int:
        return hash(self._numbers)


@dataclass(frozen=True)
class Tabulated(Formula):
    """A loss that is read from a table: ln(loss) is interpolated linearly between knots in ln(base).

    It is 0 where the base is 0. Below the first knot it is the loss at the first knot, and above the last one it is
    infinite, so it is combined with another bound by `Min`.

    Attributes
    ----------
    base
        The size that the table is read at.
    log_sizes, log_losses
        The knots: logarithms of sizes, which increase, and of the losses at these sizes. If they take long to compute,
        they are `LazyNumbers`, because a formula that is only written for people does not need them.
    name
        What the table is, for people, such as the family and the shape of the noise.
    """

    base: Formula
    log_sizes: Sequence[float]
    log_losses: Sequence[float]
    name: str

    def __repr__(self) -> str:
        return f"Tabulated({self.base!r}, …, {self.name!r})"


@dataclass(frozen=True)
class Disjoint(Max):
    """The largest loss by one of several releases about disjoint records, which the column `by` separates, if given."""

    by: str = ""


INFLUENCE = Symbol("Δ", r"\Delta(r)")


def shift(base: Formula, by: float) -> Formula:
    """Return base + by, or the base itself if `by` is 0."""
    return Shift(base, by) if by else base


def raised(base: Formula, exponent: float) -> Formula:
    """Return base^exponent, or the base itself if the exponent is 1."""
    return base if exponent == 1 else Power(base, exponent)


def per_piece(step: float, sigma: float) -> float:
    """Return step²/(2σ²): the loss of one step, which is multiplied by the square of the number of steps."""
    return (step / sigma) ** 2 / 2


def contains(formula: Formula, node: type[Formula]) -> bool:
    """Return whether a formula contains a node of a type, at any depth."""
    return isinstance(formula, node) or any(contains(part, node) for part in _parts(formula))


def _parts(formula: Formula) -> Iterator[Formula]:
    if isinstance(formula, Tabulated):  # its other fields are long tuples of numbers
        yield formula.base
        return
    for field in fields(formula):  # type: ignore[arg-type]
        value = getattr(formula, field.name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Formula):
                yield part


def formula_value(formula: Formula, values: Mapping[str, Any] | None = None) -> Any:
    """Evaluate a formula operation by operation, given the values of its symbols as floats or arrays."""

    def of(part: Formula) -> Any:
        return formula_value(part, values)

    match formula:
        case Number(value):
            return value
        case Symbol(name):
            return (values or {})[name]
        case Shift(base, by):
            return of(base) + by
        case Difference(left, right):
            return of(left) - of(right)
        case Product(left, right):
            return of(left) * of(right)
        case Quotient(top, bottom):
            return of(top) / bottom
        case Power(base, exponent):
            return of(base) ** exponent
        case KthRoot(base, k):
            return of(base) ** (1 / k)
        case Logarithm(base):
            return np.log(of(base))
        case Arsinh(base):
            return np.arcsinh(of(base))
        case Absolute(base):
            return abs(of(base))
        case RoundedUp(base, step):
            return np.ceil(of(base) / step) * step
        case Call(function, base):
            return function(of(base))
        case HalfSquare(rise, sigma):
            return (of(rise) / sigma) ** 2 / 2
        case LaplaceShift(base):
            return laplace_loss(np.asarray(of(base)))[()]
        case LargestRise(base, scale, shape):
            return searched_rise(np.asarray(of(base) / scale), shape)[()]
        case Tanh(pure):
            return np.tanh(of(pure) / 2) * of(pure)
        case Times(count, loss):
            return count * of(loss)
        case Sum(terms):
            return sum(map(of, terms))
        case Pieces(variable, ends, parts):
            x, value = of(variable), of(parts[-1])
            for end, part in zip(ends[::-1], parts[-2::-1], strict=True):
                value = np.where(x <= end, of(part), value)
            return value
        case Max(terms):
            return reduce(np.maximum, map(of, terms))
        case Min(terms):
            return reduce(np.minimum, map(of, terms))
        case Tabulated(base, log_sizes, log_losses):
            return _table_value(of(base), log_sizes, log_losses)
    raise TypeError(f"formula must be a node of slowscale.policy.tree, got {formula!r}")


def _table_value(size: Any, log_sizes: Sequence[float], log_losses: Sequence[float]) -> Any:
    """Return the loss at a size, or at an array of sizes, from the knots of a table."""
    with np.errstate(divide="ignore"):
        at = np.log(size)
    losses = np.exp(np.interp(at, log_sizes, log_losses, right=np.inf))
    return np.where(np.asarray(size) == 0, 0.0, losses)[()]
