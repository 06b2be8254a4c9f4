"""Intervals for ratios, shares and differences of sums with additive noise: a test with known noise is inverted.

The ratio of the true sums A and B is g if A − g·B = 0. From estimates with independent noises Z₁ and Z₂, the left side
is estimated with the noise Z₁ − g·Z₂, whose distribution is known for each g. All g at which the estimate lies within
the half-width h(g) of 0 are a confidence set; this module returns the smallest interval with all of them. It has no end
where B may be 0.

A cell has the share g/(1 + g) of a total that contains it if g is the ratio of the cell to the rest, which has other
noises. If sums may be negative, shares below 0 and above 1 are tested too: for c and the rest o, the test of the share
−τ has the noise (1 + τ)·Z_c + τ·Z_o.

h is tabulated. It does not fall, and h(g)/g does not rise, because symmetric unimodal noise gets less peaked when more
of it is added. Between two entries h is therefore at most that of the upper one, and at most that of the lower one
times the ratio of both g. The entries are so close that this adds at most `WIDTH_SLACK` to a half-width.
"""

import math
import threading
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from slowscale.core.parameters import Array
from slowscale.mechanisms.additive import AdditiveMechanism
from slowscale.mechanisms.sum_intervals import ROUNDING_SHARE, rounding_bound
from slowscale.noise.sums import Noises, mixed_half_width

# The share of a half-width that interpolation may add.
WIDTH_SLACK = 0.005
# Ratios are tabulated within this factor of the ratio of both noises, at first so many.
RATIO_REACH, FIRST_RATIOS = math.log(1e4), 5
# A margin for floating-point errors.
RATIO_MARGIN = 1e-9
RATIOS_AT_ONCE = 128  # so that the arrays stay in the cache


@dataclass(frozen=True)
class NoisySum:
    """A sum of published cells: the mechanism and the unit of each cell, and the number of cells."""

    mechanism: AdditiveMechanism
    unit: Fraction
    count: int

    def noises(self, factor: float = 1.0) -> Noises:
        """Return the noises of the cells, each multiplied by a factor."""
        return Noises(self.mechanism.noise, self.count, factor)

    def rounding(self, miss: float) -> float:
        """Return a bound on the sum of the rounding errors, which fails with probability `miss` at most."""
        return float(self.unit) * rounding_bound(self.mechanism, self.unit, self.count, miss) if self.count else 0.0


class HalfWidths:
    """A table of the half-widths h(g) of the noise Z₁ − g·Z₂ at increasing g > 0, rounding included.

    If `shared`, the noise is (1 + g)·Z₁ + g·Z₂. The table gets entries where intervals end, until they are close enough
    there. An interval ends in the same place whichever other entries there are: what decides is the largest of the
    steps, each half of another, whose entries are close enough.

    Threads share a table: who reads it or adds entries holds its lock.
    """

    def __init__(self, first: NoisySum, second: NoisySum, level: float, shared: bool) -> None:
        self.lock = threading.Lock()
        self.shared = shared
        self.terms = first, second
        self.level, miss = _without_rounding(first, second, level)
        self.roundings = first.rounding(miss), second.rounding(miss)
        # Where both noises matter alike; in the limit of large g the noise is g times that of the second argument.
        middle = self._width(1.0, 0.0) / self._width(1.0 if shared else 0.0, 1.0)
        if 0 < middle < math.inf:
            places = math.log(middle) + RATIO_REACH * np.linspace(-1, 1, FIRST_RATIOS)
            self.places = [(x, self._at(x)) for x in places.tolist()]
        else:
            self.places = [(0.0, math.inf)]
        self._tabulate()

    def _width(self, one: float, other: float) -> float:
        first, second = self.terms
        noise = mixed_half_width([first.noises(one), second.noises(other)], self.level)
        return (noise + one * self.roundings[0] + other * self.roundings[1]) * (1 + RATIO_MARGIN)

    def _at(self, x: float) -> float:
        g = math.exp(x)
        return self._width(1 + g if self.shared else 1.0, g)

    def _tabulate(self) -> None:
        self.at: Array = np.exp([x for x, _ in self.places])
        # What falls does so by rounding.
        self.width: Array = np.maximum.accumulate([width for _, width in self.places])

    def refine(self, ends: Array) -> bool:
        """Add entries between which these ends lie, where the others are not close enough; return if any was added."""
        cells = np.unique(np.searchsorted(self.at, ends[np.isfinite(ends)]))
        added = []
        for i in cells[(cells > 0) & (cells < self.at.size)].tolist():
            (x, low), (y, high) = self.places[i - 1], self.places[i]
            rise = math.log(high / low) if math.isfinite(high) else math.nan  # between 0 and y − x
            if rise * (y - x - rise) > WIDTH_SLACK * (y - x):
                added.append(((x + y) / 2, self._at((x + y) / 2)))
        self.places = sorted([*self.places, *added])
        self._tabulate()
        return bool(added)


@lru_cache(maxsize=1024)
def half_widths(first: NoisySum, second: NoisySum, level: float, shared: bool = False) -> HalfWidths:
    """Return the table of half-widths for the noise of two sums."""
    return HalfWidths(first, second, level, shared)


def _without_rounding(first: NoisySum, second: NoisySum, level: float) -> tuple[float, float]:
    """Return the level for the noise alone, and the probability with which a bound on the rounding may fail."""
    spent = (1 - level) * ROUNDING_SHARE if max(first.count, second.count) > 1 else 0.0
    return min(level + spent, math.nextafter(1, 0)), spent / 2


def difference_steps(first: NoisySum, second: NoisySum, level: float, on_grid: bool, grid: Fraction) -> int | float:
    """Return the half-width of an interval for the difference of two sums, in steps of a grid.

    Parameters
    ----------
    first, second
        The errors of the estimates, which are independent.
    level
        The level of the interval.
    on_grid
        Whether the true sums are known to be whole numbers of units.
    grid
        The step: both units are multiples of it.
    """
    terms = [first.noises(), second.noises()]
    if on_grid and first.unit == second.unit == grid:
        steps = mixed_half_width(terms, level, float(grid))
        return int(steps) if math.isfinite(steps) else math.inf
    level, miss = _without_rounding(first, second, level)
    half = mixed_half_width(terms, level)
    if not math.isfinite(half):
        return math.inf
    width = Fraction((half + first.rounding(miss) + second.rounding(miss)) * (1 + RATIO_MARGIN)) / grid
    return math.floor(width) if on_grid else math.ceil(width)


def ratio_interval(
    x: tuple[Array, Array], y: tuple[Array, Array], first: NoisySum, second: NoisySum, level: float, nonnegative: bool
) -> tuple[Array, Array]:
    """Return the ends of intervals for the ratios of true sums.

    Parameters
    ----------
    x, y
        Bounds on the published estimates of the numerators and of the denominators: the floats next to them.
    first, second
        The errors of the estimates, which are independent.
    level
        The level of the intervals.
    nonnegative
        Whether both true sums are at least 0. Estimates are raised to 0 then, which only adds ratios to the set.
    """
    widths = half_widths(first, second, level)
    if nonnegative:
        return _hull(_raised(x), _raised(y), widths)
    above, below = _hull(x, y, widths), _hull(_negative(x), y, widths)
    return _union(above, _negative(below))


def share_interval(
    x: tuple[Array, Array],
    rest: tuple[Array, Array],
    first: NoisySum,
    others: NoisySum,
    level: float,
    nonnegative: bool,
) -> tuple[Array, Array]:
    """Return the ends of intervals for the shares of cells in totals that contain them.

    Parameters
    ----------
    x, rest
        Bounds on the estimates of the cells, and of the totals of all other cells.
    first, others
        The errors of these estimates, which are independent.
    level, nonnegative
        As in `ratio_interval`.
    """
    widths = half_widths(first, others, level)
    if nonnegative:
        x, rest = _raised(x), _raised(rest)
    low, high = _hull(x, rest, widths)
    inside = _share(low), _share(high)
    if nonnegative:
        return inside
    total = np.nextafter(x[0] + rest[0], -math.inf), np.nextafter(x[1] + rest[1], math.inf)
    below = _hull(_negative(x), total, half_widths(first, others, level, shared=True))
    above = _hull(_negative(rest), total, half_widths(others, first, level, shared=True))
    return _union(_union(inside, _negative(below)), (1 + above[0], 1 + above[1]))


def _share(g: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return np.where(np.isinf(g), 1.0, g / (1 + g))


def _raised(ends: tuple[Array, Array]) -> tuple[Array, Array]:
    return np.maximum(ends[0], 0.0), np.maximum(ends[1], 0.0)


def _negative(ends: tuple[Array, Array]) -> tuple[Array, Array]:
    return -ends[1], -ends[0]


def _union(one: tuple[Any, Any], other: tuple[Any, Any]) -> tuple[Array, Array]:
    """Return the smallest interval with both, of which one may be empty (NaN)."""
    return np.fmin(one[0], other[0]), np.fmax(one[1], other[1])


def _hull(x: tuple[Array, Array], y: tuple[Array, Array], widths: HalfWidths) -> tuple[Array, Array]:
    """Return the least and the largest g >= 0 with |x − g·y| <= h(g) for bounds on x and y; NaN if there is none."""
    low, high = np.empty(x[0].size), np.empty(x[0].size)
    pending = True
    with widths.lock:
        while pending:
            _fill(low, high, x, y, widths)
            pending = widths.refine(np.concatenate([low, high]))
    return low, high


def _fill(low: Array, high: Array, x: tuple[Array, Array], y: tuple[Array, Array], widths: HalfWidths) -> None:
    """Set the ends of the hulls from the present table."""
    for start in range(0, low.size, RATIOS_AT_ONCE):
        rows = slice(start, start + RATIOS_AT_ONCE)
        ends = (end[rows, None] for end in (*x, *y))
        low[rows], high[rows] = _hull_of(next(ends), next(ends), next(ends), next(ends), widths)


def _hull_of(x_low: Array, x_high: Array, y_low: Array, y_high: Array, widths: HalfWidths) -> tuple[Array, Array]:
    # Between two entries of the table, h(g) is at most `most`, and at most slope·g.
    left, right = np.append(0.0, widths.at), np.append(widths.at, math.inf)
    most, slope = np.append(widths.width, math.inf), np.append(math.inf, widths.width / widths.at)
    low, high = np.broadcast_to(left, (x_low.size, left.size)), np.broadcast_to(right, (x_low.size, left.size))
    # Each condition is a·g <= b.
    for a, b in (
        (y_low, x_high + most),  # g·y − x <= most
        (y_low - slope, x_high),  # g·y − x <= slope·g
        (-y_high, most - x_low),  # x − g·y <= most
        (-y_high - slope, -x_low),  # x − g·y <= slope·g
    ):
        with np.errstate(all="ignore"):
            bound = b / a
        high = np.where(a > 0, np.minimum(high, bound * (1 + RATIO_MARGIN)), high)
        low = np.where(a < 0, np.maximum(low, bound * (1 - RATIO_MARGIN)), low)
        high = np.where((a == 0) & (b < 0), -math.inf, high)
    some = low <= high
    least = np.where(some, low, math.inf).min(axis=1)
    most_of_all = np.where(some, high, -math.inf).max(axis=1)
    empty = ~some.any(axis=1)
    return np.where(empty, math.nan, least), np.where(empty, math.nan, most_of_all)
