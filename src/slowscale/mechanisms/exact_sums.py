"""Exact sums: the input of a release, split into whole numbers of units and rests of less than a unit."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from slowscale.core.errors import ParameterError, ParameterTypeError
from slowscale.core.parameters import as_number
from slowscale.mechanisms.grid import directed, largest
from slowscale.sampling.balls import ROUNDING, UNDERFLOW, Ball
from slowscale.sampling.exact import Integers
from slowscale.sampling.samplers import Lift, Number


@dataclass(frozen=True, repr=False, eq=False)
class Exact:
    """Exact sums given as whole numbers of a grain: an input that `release` reads fast and without rounding.

    With a `rest`, the sums are (counts + rest/parts)·grain, where 0 <= rest < parts.
    """

    counts: Integers
    grain: Fraction
    rest: Integers | None = None
    parts: int = 1

    def __repr__(self) -> str:
        return "<exact sums: confidential>"


@dataclass(frozen=True, repr=False, eq=False)
class Sums:
    """Exact sums, as whole units plus a fraction of a unit in [0, 1)."""

    unit: Fraction
    whole: Integers
    rest: Ball | None  # None: all are whole numbers of units
    exact_rest: Callable[[int], Fraction]
    shape: tuple[int, ...]
    on_grid: bool = False  # True if their type alone implies that all are whole numbers of units

    def __repr__(self) -> str:
        return "<exact sums: confidential>"

    @staticmethod
    def of(q: Any, unit: Fraction) -> "Sums":
        """Split a number or an array into whole units and rests.

        Integers, floats (as their exact binary value), Decimals and Fractions are accepted.
        """
        grain = Fraction(1)
        if isinstance(q, Exact):
            if q.rest is not None:
                return Sums._with_rest(q, unit)
            q, grain = q.counts, q.grain
        ratio = grain / unit
        on_grid = ratio.denominator == 1 and _is_whole(q)
        array = _checked_array(q)
        flat = array.ravel()
        if flat.dtype.kind in "iu" and max((largest(flat) + 1) * ratio.numerator, ratio.denominator) < 2**62:
            return Sums._of_integers(flat, ratio, unit, array.shape, on_grid)
        if unit == 1 and flat.dtype.kind == "f" and largest(flat) < 2**52:
            return Sums._of_floats(flat, array.shape)
        parts = [divmod(_exact(item) * ratio, 1) for item in flat]
        wholes = [int(whole) for whole, _ in parts]
        fits = all(-(2**63) <= whole < 2**63 for whole in wholes)
        whole_array = np.array(wholes, np.int64 if fits else object)
        ball = None
        if any(rest for _, rest in parts):
            mids = np.array([float(rest) for _, rest in parts])
            ball = Ball(mids, ROUNDING * mids + UNDERFLOW * np.array([rest != 0 for _, rest in parts]))
        return Sums(unit, whole_array, ball, lambda row: parts[row][1], array.shape, on_grid)

    @staticmethod
    def _of_integers(flat: Any, ratio: Fraction, unit: Fraction, shape: tuple[int, ...], on_grid: bool) -> "Sums":
        """Split integers of `ratio` units each, all small enough for 64-bit arithmetic."""
        whole, over = np.divmod(flat.astype(np.int64) * ratio.numerator, ratio.denominator)
        rest = over / ratio.denominator  # beyond 2⁵³, both are rounded before they are divided
        ball = Ball(rest, 2 * ROUNDING * rest) if over.any() else None
        return Sums(unit, whole, ball, lambda row: Fraction(int(over[row]), ratio.denominator), shape, on_grid)

    @staticmethod
    def _of_floats(flat: Any, shape: tuple[int, ...]) -> "Sums":
        """Split floats below 2⁵² into whole numbers of the unit 1 and rests; both are exact."""
        wide = flat.astype(np.float64)
        floor = np.floor(wide)
        rest = wide - floor
        ball = Ball(rest, ROUNDING * rest) if rest.any() else None
        exact = lambda row: Fraction(float(wide[row])) - int(floor[row])  # noqa: E731
        return Sums(Fraction(1), floor.astype(np.int64), ball, exact, shape)

    @staticmethod
    def _with_rest(q: Exact, unit: Fraction) -> "Sums":
        """Split sums that are given as whole grains and parts of a grain."""
        assert q.rest is not None
        ratio = q.grain / unit
        parts = ratio.denominator * q.parts
        if (ratio.numerator + ratio.denominator) * q.parts >= 2**62:
            return Sums.of(Exact(q.counts.astype(object) * q.parts + q.rest.astype(object), q.grain / q.parts), unit)
        small = q.counts.dtype != object and largest(q.counts) * ratio.numerator < 2**62
        counts = (q.counts if small else q.counts.astype(object)) * ratio.numerator
        over = (counts % ratio.denominator).astype(np.int64) * q.parts + q.rest * ratio.numerator
        whole, over = counts // ratio.denominator + over // parts, over % parts
        rest = over / parts
        ball = Ball(rest, 2 * ROUNDING * rest) if over.any() else None
        return Sums(unit, whole, ball, lambda row: Fraction(int(over[row]), parts), q.counts.shape)

    def rest_of(self, rows: Any, lift: Lift) -> Number:
        """Return the rests of a unit, as a fraction of it."""
        assert self.rest is not None
        return lift(self.exact_rest(rows)) if isinstance(rows, int) else self.rest[rows]

    def value_of(self, rows: Any, lift: Lift) -> Number:
        """Return the sums themselves."""
        if isinstance(rows, int):
            return lift((int(self.whole[rows]) + self.exact_rest(rows)) * self.unit)
        mid = _floats(self.whole[rows])
        ball = Ball(mid, np.where(np.abs(mid) < 2**53, 0.0, ROUNDING * np.abs(mid)))
        if self.rest is not None:
            ball = ball + self.rest[rows]
        if self.unit != 1:
            scaled = ball * lift(self.unit)
            empty = (ball.mid == 0) & (ball.rad == 0)
            ball = Ball(scaled.mid, np.where(empty, 0.0, scaled.rad))  # an empty sum stays exactly 0
        return ball


def _checked_array(q: Any) -> Any:
    """Return q as a plain array, or raise unless it holds finite numbers."""
    if isinstance(q, np.ma.MaskedArray) and np.ma.is_masked(q):
        raise ParameterTypeError("q", "must not hold masked values", code="nulls")
    array = np.asarray(q, dtype=object if _is_exact(q) else None)  # never a subclass with other arithmetic
    if array.dtype.kind not in "iufO" or array.dtype.itemsize > 8:
        raise ParameterTypeError("q", allowed="numbers of at most 64 bits, or Python numbers", given=array.dtype)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ParameterError("q", allowed="finite", given=array[~np.isfinite(array)][0])
    return array


def _is_whole(q: Any) -> bool:
    """Return whether the type of q alone implies that it holds whole numbers only."""
    if isinstance(q, np.ndarray):
        return q.dtype.kind in "iu" or (q.dtype == object and all(isinstance(item, int) for item in q.flat))
    if isinstance(q, list | tuple):
        return all(map(_is_whole, q))
    return isinstance(q, int | np.integer)


def _is_exact(q: Any) -> bool:
    """Return whether q is, or holds, numbers that numpy would round."""
    if isinstance(q, list | tuple):
        return any(_is_exact(item) for item in q)
    return isinstance(q, Decimal | Fraction) or (isinstance(q, int) and not isinstance(q, bool))


def _exact(item: Any) -> Fraction:
    """Return a finite number as a fraction."""
    if not isinstance(item, int | Fraction) or isinstance(item, bool):  # integers and fractions may exceed any float
        number = as_number("q", item, "a finite number")
        if not math.isfinite(number):
            raise ParameterError("q", allowed="finite", given=item)
    return Fraction(item.item() if isinstance(item, np.generic) else item)


def _floats(whole: Integers) -> Any:
    return whole.astype(np.float64) if whole.dtype != object else np.array([directed(n, 0) for n in whole], float)
