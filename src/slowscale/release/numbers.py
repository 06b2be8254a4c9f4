"""Published numbers: whole numbers of units as columns of a table and back, and ratios of published columns.

Ratios are computed from published numbers only. The box holds at its level. Fieller's interval and the delta method
treat the noise as normal, so they are approximate.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy import special

from slowscale.core.arrays import to_arrow, to_numpy
from slowscale.core.errors import ParameterError
from slowscale.core.numbers import STANDARD_ERROR_DIGITS, rounded
from slowscale.core.parameters import Array, level_quantile
from slowscale.mechanisms.base import Noisy
from slowscale.mechanisms.grid import EXACT, compact, directed, floats, largest, values

NumberColumn = pa.Array | pa.ChunkedArray
# Floats of at least this many units may stand for several numbers of units.
AMBIGUOUS_UNITS = 2**51
INTERVALS = ("box", "exact", "fieller", "delta")
MEAN_INTERVALS = ("box", "fieller", "delta")
RATIO_DIGITS = 6  # significant digits of a published ratio and of the ends of its interval
RATIO_SUFFIXES = ("", "_se", "_low", "_high")  # of the columns that publish a ratio


def number_column(units: Any, unit: Fraction, side: int) -> pa.Array:
    """Return multiples of a unit as a column: integers, decimals beyond 64 bits, or floats rounded down or up."""
    numbers = values(units, unit, side)
    if numbers.dtype != object:
        return to_arrow(numbers)
    if largest(numbers) < 10**38:
        return pa.array(numbers, pa.decimal128(38, 0))
    return to_arrow(floats(units, unit, side))


def whole_units(column: pa.ChunkedArray, unit: Fraction) -> Any:
    """Return the numbers of units that a published column of estimates holds.

    Floats stand for the nearest number of units. Those of at least `AMBIGUOUS_UNITS` may stand for several.
    """
    if pa.types.is_integer(column.type):
        numbers = to_numpy(column)
        return numbers if unit == 1 else numbers // unit.numerator
    if pa.types.is_decimal(column.type):
        return compact(np.array([int(number) // unit.numerator for number in column.to_pylist()], object))
    numbers = to_numpy(column)
    scaled = numbers / float(unit)
    if (np.abs(scaled) < AMBIGUOUS_UNITS).all():
        return np.rint(scaled).astype(np.int64)
    return compact(np.array([round(Fraction(number) / unit) for number in numbers.tolist()], object))


def group_sums(units: Any, groups: Any, count: int) -> Any:
    """Return exact sums of whole numbers by group: int64 if all of them fit, otherwise Python integers."""
    if units.dtype == object:
        totals = np.zeros(count, object)
        np.add.at(totals, groups, units)
        return compact(totals)
    if largest(units) * max(units.size, 1) < 2**63:
        sums = np.zeros(count, np.int64)
        np.add.at(sums, groups, units)
        return sums
    # The upper and the lower halves of the bits are added separately, so that nothing wraps around.
    upper, lower = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.add.at(upper, groups, units >> 32)
    np.add.at(lower, groups, units & 0xFFFFFFFF)
    return compact(upper.astype(object) * 2**32 + lower.astype(object))


def as_floats(column: Any, side: int = 0) -> Array:
    """Return a column of numbers as floats, rounded to nearest or, with a side of −1 or 1, down or up."""
    nearest: Array = to_numpy(column.cast(pa.float64(), safe=False))
    sure = not (side or pa.types.is_decimal(column.type))  # Arrow does not round large decimals to nearest
    if sure or pa.types.is_floating(column.type) or (np.abs(nearest) < EXACT).all():
        return nearest
    return np.array([directed(Fraction(number), side) for number in column.to_pylist()])


def published_columns(noisy: Noisy, nonnegative: bool, at_least: int | None) -> dict[str, Any]:
    """Return the columns that are published for one summed column, by their suffixes.

    The interval is raised to the lower bound on the true sum. The estimate is raised to 0 only if the request asks for
    that, because it biases the estimate.
    """
    units = [noisy.units, *noisy.ends]
    for i, raised in enumerate((nonnegative, at_least is not None, at_least is not None)):
        if raised:
            units[i] = np.maximum(units[i], 0)
    estimate, low, high = (number_column(some, noisy.unit, side) for some, side in zip(units, (0, -1, 1), strict=True))
    error = rounded(noisy.se, STANDARD_ERROR_DIGITS)
    if noisy.transformed is not None:  # rounding must not lower it below the error of an empty cell
        error = np.where(error < noisy.mechanism.std(0), rounded(noisy.se, STANDARD_ERROR_DIGITS, 1), error)
    columns = {"": estimate, "_se": to_arrow(error), "_low": low, "_high": high}
    if noisy.transformed is not None:
        columns["_transformed"] = to_arrow(noisy.transformed)
    return columns


@dataclass(frozen=True)
class Estimates:
    """The published numbers of a column, with their standard errors."""

    value: Array
    se: Array


@dataclass(frozen=True)
class Ratios:
    """Ratios, with their standard errors and the ends of their intervals. A ratio exists where `exists` is true."""

    value: Array
    se: Array
    low: Array
    high: Array
    exists: npt.NDArray[np.bool_]

    def columns(self) -> list[Array]:
        """Return the columns to publish, in the order of `RATIO_SUFFIXES`; without a ratio, NaN and the whole line."""
        return [
            rounded(np.where(self.exists, self.value, np.nan), RATIO_DIGITS),
            rounded(np.where(self.exists, self.se, np.nan), STANDARD_ERROR_DIGITS),
            rounded(np.where(self.exists, self.low, -math.inf), RATIO_DIGITS, -1),
            rounded(np.where(self.exists, self.high, math.inf), RATIO_DIGITS, 1),
        ]


def check_interval(interval: object, argument: str = "interval", allowed: tuple[str, ...] = INTERVALS) -> None:
    """Raise unless an argument names a kind of interval for ratios."""
    if interval not in allowed:
        raise ParameterError(argument, allowed=allowed, given=interval)


def box_level(level: float) -> float:
    """Return the level that the intervals of both columns must have so that their box has this level."""
    return min((1 + level) / 2, math.nextafter(1, 0))


def box_ratios(x: Estimates, y: Estimates, x_ends: tuple[Array, Array], y_ends: tuple[Array, Array]) -> Ratios:
    """Return the ratios x / y, both clipped to the ends of their intervals, with the box of these intervals."""
    y_low, y_high = y_ends
    low, high = box(x_ends, y_ends)
    with np.errstate(all="ignore"):
        numerator = np.clip(x.value, *x_ends)
        denominator = np.where(y_low <= y_high, np.clip(y.value, y_low, y_high), 0.0)
        value, se = _divide(Estimates(numerator, x.se), Estimates(denominator, y.se))
    return Ratios(value, se, low, high, denominator != 0)


def exact_ratios(x: Estimates, y: Estimates, ends: tuple[Any, Any], nonnegative: bool) -> Ratios:
    """Return the ratios x / y with given intervals, clipped to them; if `nonnegative`, both are raised to 0 before.

    Where y is 0, the ratio is NaN.
    """
    low, high = (np.asarray(end, float) for end in ends)
    if nonnegative:
        x, y = (Estimates(np.maximum(one.value, 0.0), one.se) for one in (x, y))
    with np.errstate(all="ignore"):
        value, se = (np.where(y.value == 0, np.nan, found) for found in _divide(x, y))
        value = np.clip(value, low, high)
    return Ratios(value, se, low, high, np.full(low.size, True))


def normal_ratios(x: Estimates, y: Estimates, level: float, interval: str) -> Ratios:
    """Return the ratios x / y with an approximate interval, "fieller" or "delta"."""
    z = -float(special.ndtri(level_quantile(level)))
    with np.errstate(all="ignore"):
        value, se = _divide(x, y)
        if interval == "fieller":
            low, high = fieller(x.value, x.se, y.value, y.se, z)
        else:
            low, high = value - z * se, value + z * se
    return Ratios(value, se, low, high, y.value != 0)


def _divide(x: Estimates, y: Estimates) -> tuple[Array, Array]:
    """Return the ratios x / y and their standard errors by the delta method."""
    value = x.value / y.value
    by_denominator = np.where(np.isinf(y.se), math.inf, x.value * y.se / y.value**2)  # also where x is 0
    return value, np.hypot(x.se / y.value, by_denominator)


def box(
    x: tuple[npt.ArrayLike, npt.ArrayLike], y: tuple[npt.ArrayLike, npt.ArrayLike]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the smallest and largest ratio of a number in one interval to a nonzero number in another.

    The result is the whole line where the second interval reaches to both sides of 0, or is empty.

    Parameters
    ----------
    x, y
        The lower and upper ends of the intervals of the numerators and of the denominators.
    """
    (x0, x1), (y0, y1) = (tuple(map(_outward, ends, (-1, 1))) for ends in (x, y))
    flipped = y1 <= 0  # the ratio of two numbers is the ratio of their negatives
    x_low, x_high = np.where(flipped, -x1, x0), np.where(flipped, -x0, x1)
    y_low, y_high = np.where(flipped, -y1, y0) + 0.0, np.where(flipped, -y0, y1)  # adding 0.0 turns −0.0 into 0.0
    with np.errstate(all="ignore"):
        low = np.where(x_low >= 0, x_low / y_high, x_low / y_low)
        high = np.where(x_high > 0, x_high / y_low, x_high / y_high)
    endless = (y_low < 0) | (y_high <= 0) | (y_low > y_high) | np.isnan(low) | np.isnan(high)
    return np.where(endless, -math.inf, low), np.where(endless, math.inf, high)


def _outward(ends: npt.ArrayLike, side: int) -> Array:
    """Return the ends of intervals as floats, rounded down (side −1) or up (side 1)."""
    given = np.asarray(ends)
    if given.dtype.kind == "f" or (given.dtype.kind == "i" and largest(given) < EXACT):
        return given.astype(float)
    return np.array([directed(Fraction(end), side) for end in given.flat]).reshape(given.shape)


def fieller(x: Array, x_se: Array, y: Array, y_se: Array, z: float) -> tuple[Array, Array]:
    """Return the ends of Fieller's interval: all θ with (x − θy)² <= z²(x_se² + θ²y_se²).

    Where y is not clearly different from 0 this set is not an interval, and the whole line is returned.
    """
    a, b = y**2 - (z * y_se) ** 2, x * y
    root = z * np.sqrt(np.maximum((y * x_se) ** 2 + (x * y_se) ** 2 - (z * x_se * y_se) ** 2, 0))
    bounded = a > 0
    return np.where(bounded, (b - root) / a, -math.inf), np.where(bounded, (b + root) / a, math.inf)
