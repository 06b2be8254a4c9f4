"""Ratios of two published columns, with their standard errors and intervals.

They are computed from published numbers only. The box holds at its level. Fieller's interval and the delta method
treat the noise as normal, so they are approximate.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from slowscale.core.errors import ParameterError
from slowscale.core.numbers import STANDARD_ERROR_DIGITS, rounded
from slowscale.core.parameters import Array, level_quantile
from slowscale.mechanisms.grid import EXACT, directed, largest

INTERVALS = ("box", "fieller", "delta")
RATIO_DIGITS = 6  # significant digits of a published ratio and of the ends of its interval
RATIO_SUFFIXES = ("", "_se", "_low", "_high")  # of the columns that publish a ratio


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


def check_interval(interval: object, argument: str = "interval") -> None:
    """Raise unless an argument names a kind of interval for ratios."""
    if interval not in INTERVALS:
        raise ParameterError(argument, allowed=f"one of {', '.join(INTERVALS)}", given=interval)


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
