"""Protecting values: the loss of a record whose presence is known (Appendix "Protecting Values").

Bounded neighbours differ in one record's value. For a sum the loss between two values of a record is exact: the
transformed sums differ most when the record is alone (Lemma BndSensTransSum), and additive noise sees the difference
of the values only (Lemma BndSensGlobalSum). A band is all values within a factor of a record's value.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any, overload

import numpy as np

from slowscale.core.errors import ParameterError, ParameterTypeError
from slowscale.core.parameters import (
    Array,
    as_array,
    as_number,
    check_entries,
    check_flag,
    check_range,
    evaluate,
    lazy,
    real,
)
from slowscale.core.typing import ArrayLike, Scalar
from slowscale.policy import Policy
from slowscale.policy.combination import DelegatingPolicy
from slowscale.policy.tree import (
    INFLUENCE,
    Absolute,
    Difference,
    Formula,
    Max,
    Number,
    Product,
    Quotient,
    Shift,
    Symbol,
)
from slowscale.policy.writing import latex, text

BAND = 1.1  # the factor of the band that is stated if no other one is asked for: 10 % more or less
LARGEST_BAND = 1000.0


@dataclass(frozen=True)
class BoundedPolicy:
    """The loss between a record's value r and another value it might have.

    With `add` the other value is r + add; without, both are given: `policy(r, other)`. `loose=True` gives the simpler
    upper bounds of Table metric-mechSummaryNew instead of the exact loss.

    >>> from slowscale.policy import RootPolicy
    >>> P = BoundedPolicy(RootPolicy(k=2, sigma=0.5, a=1), add=10)
    >>> round(P(100), 4), round(BoundedPolicy(RootPolicy(k=2, sigma=0.5, a=1), add=10, loose=True)(100), 4)
    (0.472, 20.0)
    >>> print(P)
    ((r + 1)^(1/2) − (r + 10 + 1)^(1/2))² / (2·0.5²)
    """

    policy: Policy
    add: float | None = None
    loose: bool = False

    def __post_init__(self) -> None:
        """Check the change, if one is given."""
        if not isinstance(self.policy, Policy):
            raise ParameterTypeError(
                "policy", allowed="a Policy such as ss.Gaussian(sigma=10).policy", given=self.policy
            )
        if self.add is not None:
            change = as_number("add", self.add)
            if not math.isfinite(change):
                raise ParameterError("add", allowed="a finite number", given=self.add)
            object.__setattr__(self, "add", change)
        check_flag("loose", self.loose)
        if self.loose and self.add is None:
            raise ParameterError("loose", "needs `add`", code="missing", remedy="give both, or neither")

    @property
    def notion(self) -> str:
        """The privacy notion the values are in, for bounded neighbours."""
        return f"bounded {self.policy.notion}"

    @overload
    def __call__(self, value: Scalar, other: Scalar | None = None) -> float: ...

    @overload
    def __call__(self, value: ArrayLike, other: Scalar | ArrayLike | None = None) -> Array: ...

    @overload
    def __call__(self, value: Scalar, other: ArrayLike) -> Array: ...

    def __call__(self, value: Scalar | ArrayLike, other: Scalar | ArrayLike | None = None) -> float | Array:
        """Return the loss between a record of this value and one of the other value."""
        if self.add is not None:
            if other is not None:
                raise ParameterTypeError("other", "is determined by `add`", code="conflict", remedy="remove it")
            return evaluate("value", value, self._changed)
        if other is None:
            remedy = "give the value that the record might have instead"
            raise ParameterTypeError("other", "is missing", code="missing", remedy=remedy)
        first, second = np.broadcast_arrays(as_array("value", value), as_array("other", other))
        check_range("value", first)
        check_range("other", second)
        gap = np.broadcast_to(np.abs(_difference(value, other)), first.shape)
        with np.errstate(over="ignore", under="ignore"):
            losses = self.policy._between(np.atleast_1d(np.minimum(first, second)), np.atleast_1d(gap))
        return losses if first.ndim else float(losses[0])

    def _changed(self, value: Array) -> Array:
        assert self.add is not None
        low, gap = value + min(self.add, 0.0), np.full_like(value, abs(self.add))  # not their rounded difference
        return self.policy._loose(value, low, gap, None) if self.loose else self.policy._between(low, gap)

    def __str__(self) -> str:
        return text(self.formula())

    def _repr_latex_(self) -> str:
        return f"${latex(self.formula())}$"

    def formula(self) -> Formula:
        """Return the loss between the values r and r', or r and its change, as a tree."""
        value = Symbol("r")
        ends: tuple[Formula, Formula, Formula]  # the value, the other one, and their distance
        if self.add is not None:
            ends = value, Shift(value, self.add), Number(abs(self.add))
        else:
            other = Symbol("r'")
            ends = value, other, Absolute(Difference(value, other))
        if self.loose and self.policy._band_rises:
            return self.policy._loose_formula(ends[0], ends[1], ends[2], None)
        return self.policy._between_formula(*ends)

    def to_dict(self) -> dict[str, Any]:
        """Return a description that `BoundedPolicy.from_dict` turns back into an equal policy."""
        return {"policy": self.policy.to_dict(), "add": self.add, "loose": self.loose}

    @staticmethod
    def from_dict(description: Mapping[str, Any]) -> "BoundedPolicy":
        """Return the bounded policy that `to_dict` described."""
        if not isinstance(description, Mapping):
            raise ParameterError("description", allowed="a mapping", given=description)
        check_entries("BoundedPolicy", description, [f.name for f in fields(BoundedPolicy)])
        return BoundedPolicy(**{**description, "policy": Policy.from_dict(description["policy"])})


def _difference(value: Any, other: Any) -> Array:
    """Return value − other, exactly for whole numbers, Decimals and Fractions however large."""
    first, second = np.asarray(value), np.asarray(other)
    if first.dtype.kind == second.dtype.kind == "f":
        return np.asarray(first - second, float)
    exact = np.frompyfunc(lambda a, b: float(Fraction(a) - Fraction(b)), 2, 1)
    return np.asarray(exact(first.astype(object), second.astype(object)), float)


def check_band(times: Any, argument: str = "band") -> float:
    """Return the factor of a band, or raise."""
    number = as_number(argument, times, "a number above 1, such as 1.1")
    if not 1 < number <= LARGEST_BAND:
        raise ParameterError(argument, allowed=f"above 1, such as 1.1, and at most {LARGEST_BAND:g}", given=times)
    return number


@dataclass(frozen=True)
class BandPolicy(DelegatingPolicy):
    """The largest loss between a record's value r and any value within a factor: from r/times to times·r.

    The loss between two values grows with their distance, so that it is largest at an end of the band. A count does not
    change with a value. Quantiles charge a change of value by their own rule (`RankPolicy`).

    Attributes
    ----------
    policy
        The policy of the mechanism: PRzCDP or PRDP.
    times
        The factor, such as 1.1 for 10 %.
    moves
        Whether the value decides the cell of the record, or whether the record is in the release. Then a change may
        take the record from one cell to another, in which it weighs up to times·r: 2·P(times·r).
    grain
        The whole numbers of grains that records are summed in may differ by this much more than the values.
    loose
        Whether the loss is the simpler upper bound of Table metric-mechSummaryNew.

    >>> from slowscale.policy import LogPolicy
    >>> P = BandPolicy(LogPolicy(sigma=0.5), 1.1)
    >>> round(P(100), 5), round(BandPolicy(LogPolicy(sigma=0.5), 1.1, loose=True)(100), 5)
    (0.01783, 0.01817)
    """

    kind = "band"

    policy: Policy
    times: float = real(above=1, typical=(1.01, 3))
    moves: bool = False
    grain: float = real(at_least=0, typical=(0, 1), default=0.0)
    loose: bool = False

    def _check(self) -> None:
        if not isinstance(self.policy, Policy) or isinstance(self.policy, BandPolicy):
            raise ParameterTypeError("policy", allowed="the policy of a mechanism", given=self.policy)
        check_flag("moves", self.moves)
        check_flag("loose", self.loose)

    @property
    def upper(self) -> Policy | None:
        """The band of the simpler form of the policy."""
        return None if self.policy.upper is None else replace(self, policy=self.policy.upper)

    def _loss(self, influence: Array) -> Array:
        if self.constant and not (self.moves or self.by_rank):
            return np.zeros_like(influence)
        if self.by_rank:
            return self.policy._between(influence, influence)
        if self.moves:
            return 2 * self.policy._loss(self.times * influence)
        if self.loose and self.policy._band_rises:
            return self.policy._loose(influence, influence, (self.times - 1) * influence, self.times)
        return self._within(influence, influence)

    def _within(self, low: Array, high: Array) -> Array:
        """Return a bound on the losses of records from `low` to `high`; the loss itself if both are the same."""
        up, down = self.times - 1, 1 - 1 / self.times
        with np.errstate(over="ignore"):
            ends = [(low, up * high), (low / self.times, down * high)]
            if self.grain:
                ends = [(np.maximum(start - self.grain, 0.0), gap + self.grain * (gap > 0)) for start, gap in ends]
            return np.asarray(np.maximum(*(self.policy._between(start, gap) for start, gap in ends)))

    @lazy
    def _largest_so_far(self) -> tuple[Array, Array]:
        """Return sizes, and a bound on the losses of all records up to each of them."""
        sizes = np.geomspace(1e-60, 1e100, 8505)  # 16 per octave
        bounds = self._within(np.concatenate([[0.0], sizes[:-1]]), sizes)
        return sizes, np.maximum.accumulate(bounds)

    def _rising_loss(self, influence: Array) -> Array:
        if self.moves or self.constant or (self.policy._band_rises and not self.grain):
            return self._loss(influence)
        sizes, bounds = self._largest_so_far
        at = np.minimum(np.searchsorted(sizes, influence), sizes.size - 1)
        return np.where(influence == 0, self._loss(influence), np.maximum(bounds[at], self._loss(influence)))

    def formula(self, x: Formula = INFLUENCE) -> Formula:
        """Return the loss of a record of size x as a tree; a grain is left out."""
        if self.constant and not (self.moves or self.by_rank):
            return Number(0)
        if self.moves:
            return Product(Number(2), self.policy.formula(Product(Number(self.times), x)))
        up = x, Product(Number(self.times), x), Product(Number(self.times - 1), x)
        if self.loose and self.policy._band_rises:
            return self.policy._loose_formula(up[0], up[1], up[2], self.times)
        if self.by_rank or self.policy._band_rises:
            return self.policy._between_formula(*up)
        down = x, Quotient(x, self.times), Product(Number(1 - 1 / self.times), x)
        return Max((self.policy._between_formula(*up), self.policy._between_formula(*down)))

    def shapes(self) -> dict[Policy, float]:
        """Return the bands of the shapes of the policy, with their coefficients."""
        if self.loose:
            return {self: 1.0}
        return {replace(self, policy=shape): times for shape, times in self.policy.shapes().items()}
