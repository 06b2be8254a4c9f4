"""Intervals for sums of true sums, from published cells that are added up.

The noises of the cells are independent. Additive noise has a known distribution, and so has its sum (`noise/sums.py`).
The error of a transformation grows with the true sums, which are not known. For few cells, the intervals of the cells
are added. For more cells, the cumulants of the error are bounded from the published cells (`power_sums.py`), and
Chebyshev's inequality is used with the second and the fourth moment.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from slowscale.core.parameters import Array
from slowscale.mechanisms.additive import BIAS_WARNED_OF, AdditiveMechanism
from slowscale.mechanisms.transformation import TransformationMechanism
from slowscale.noise.sums import sum_half_widths

# Up to this many cells, the intervals of the cells of a transformation are added.
FEW_CELLS = 5
# The share of the error probability that is spent on bounding the true sums of the cells, or on rounding.
SUMS_SHARE, ROUNDING_SHARE = 0.1, 0.01

ADDITIVE_RULE = "the distribution of the sum of the independent noises, computed numerically and rounded outwards"
ROUNDED_RULE = f"{ADDITIVE_RULE}, with a bound on the sum of the rounding errors"
BOX_RULE = "the sum of the intervals of the cells, each at the level to the power 1/n for n cells"
MOMENT_RULE = (
    f"up to {FEW_CELLS} cells: {BOX_RULE}; more cells: Chebyshev's inequality for the second or the fourth moment "
    "of the error, with an upper confidence bound on it"
)


def sum_rule(mechanism: Any, on_grid: bool) -> str:
    """Return in words how the intervals for sums of cells are computed."""
    if isinstance(mechanism, AdditiveMechanism):
        return ADDITIVE_RULE if on_grid else ROUNDED_RULE
    return MOMENT_RULE if uses_moments(mechanism) else BOX_RULE


def sum_bias_warned_of(bias: float, error: float) -> bool:
    """Whether a sum of cells is biased by rounding so much that its readers should know it."""
    return bias > BIAS_WARNED_OF * error


def uses_moments(mechanism: TransformationMechanism) -> bool:
    """Whether intervals for sums of many cells come from moments."""
    one = np.ones(1)
    return mechanism._summed_cumulants(one, np.zeros(1, np.int64), one, one / 2) is not None


def sum_half_steps(mechanism: AdditiveMechanism, unit: Fraction, level: float, on_grid: bool, counts: Array) -> Any:
    """Return half-widths in units of intervals for sums of n cells with additive noise, for each n.

    For one cell it is that of its published interval. Whole numbers are Python integers; infinite ones are floats.
    """
    numbers = np.unique(counts)
    known: dict[int, Any] = {}
    if 1 in numbers:
        steps = mechanism._half_steps(unit, level, on_grid)
        known[1] = math.inf if steps is None else steps
    several = [int(n) for n in numbers if n > 1]
    if several and on_grid:
        found = sum_half_widths(mechanism.noise, several, level, float(unit))
        known |= {n: int(half) if math.isfinite(half) else half for n, half in found.items()}
    elif several:
        spent = (1 - level) * ROUNDING_SHARE
        found = sum_half_widths(mechanism.noise, several, level + spent)
        for n, half in found.items():
            rounding = rounding_bound(mechanism, unit, n, spent)
            known[n] = math.ceil(Fraction(half) / unit + Fraction(rounding)) if math.isfinite(half) else half
    return np.array([known[int(n)] for n in counts.tolist()], object)


def rounding_bound(mechanism: AdditiveMechanism, unit: Fraction, count: int, miss: float) -> float:
    """Return a bound in units on the sum of the rounding errors of cells, which fails with probability `miss` at most.

    For a single cell it never fails.
    """
    if count == 1:
        return 0.5
    by_chance = count * _rounding_bias(mechanism, unit) + math.sqrt(count * math.log(2 / miss) / 2)
    return min(count / 2, by_chance)


def _rounding_bias(mechanism: AdditiveMechanism, unit: Fraction) -> float:
    """Return a bound on the bias in units that rounding adds, wherever the true sum lies.

    Where the noise is wide, the reported bias is 0. The rounding error has an integral over its period that varies by
    1/8, so its mean is at most 1/16 of the total variation of the density, which is twice its peak.
    """
    reported = mechanism._rounding_bias(unit, False) / float(unit)
    return reported if reported > 0 else min(0.5, float(unit) * math.exp(mechanism.noise._log_peak) / 8)


def sum_ends(
    mechanism: TransformationMechanism,
    transformed: Array,
    units: Any,
    groups: Any,
    counts: Array,
    level: float,
    unit: Fraction,
    add: Callable[[Any, Any, int], Any],
) -> tuple[Any, Any]:
    """Return the ends in units of intervals for sums of cells that are released by a transformation.

    Parameters
    ----------
    mechanism
        The mechanism of the cells.
    transformed
        The published transformed values of the cells.
    units
        The sum of the estimates of each group, in units.
    groups, counts
        The group of each cell, and the number of cells of each group.
    level, unit
        The level of the intervals, and the unit.
    add
        A function that adds whole numbers by group.
    """
    low, high = np.zeros(counts.size, object), np.zeros(counts.size, object)
    few = counts <= FEW_CELLS if uses_moments(mechanism) else np.full(counts.size, True)
    for n in np.unique(counts[few]).tolist():
        inside = np.flatnonzero((counts[groups] == n) & few[groups])
        ends = mechanism._ends(transformed[inside], min(level ** (1 / n), math.nextafter(1, 0)), unit)
        of = np.flatnonzero((counts == n) & few)
        for out, end in zip((low, high), ends, strict=True):
            out[of] = _added(end, groups[inside], counts.size, add)[of]
    if not few.all():
        half = _moment_half_widths(mechanism, transformed, groups, counts, level, unit)
        for row in np.flatnonzero(~few).tolist():
            far = math.ceil(half[row]) if math.isfinite(half[row]) else math.inf
            low[row], high[row] = int(units[row]) - far, int(units[row]) + far
    return _plain(low), _plain(high)


def _added(end: Any, groups: Any, size: int, add: Callable[[Any, Any, int], Any]) -> Any:
    if end.dtype.kind == "f":
        return np.bincount(groups, end, size).astype(object)
    return add(end, groups, size).astype(object)


def _plain(ends: Any) -> Any:
    """Return Python numbers as int64 or Python integers, or as floats if one is infinite."""
    if any(isinstance(end, float) for end in ends):
        return ends.astype(float)
    fits = all(-(2**63) <= end < 2**63 for end in ends)
    return ends.astype(np.int64) if fits else ends


def _moment_half_widths(
    mechanism: TransformationMechanism, transformed: Array, groups: Any, counts: Array, level: float, unit: Fraction
) -> Array:
    """Return half-widths in units from bounds on the second and the fourth moment of the error of each sum.

    Where the bounds hold, both inequalities hold with the moments themselves, so the smaller half-width may be taken.
    """
    miss = 1 - level
    known = mechanism._summed_cumulants(transformed, groups, counts, np.full(counts.size, miss * SUMS_SHARE))
    assert known is not None
    left, u = miss * (1 - SUMS_SHARE), float(unit)
    with np.errstate(over="ignore", invalid="ignore"):
        second, fourth = known[0] / u**2, known[1] / u**4
        # A result is rounded up or down at random: with the mean 0, a variance of at most 1/4 and a fourth moment of at
        # most 1/12. By Minkowski's inequality, the roots of the fourth moments of both sums of errors add.
        of_second = np.sqrt((second + counts / 4) / left)
        rounding = (counts / 12 + 3 * (counts / 4) ** 2) ** 0.25
        of_fourth = ((fourth + 3 * second**2) ** 0.25 + rounding) / left**0.25
    found = np.fmin(of_second, of_fourth) * (1 + 1e-9)
    return np.where(np.isnan(found), math.inf, found)


def sum_square_error(one: float, bias: float, n: Any) -> Any:
    """Return an upper bound on the mean square error of a sum of n cells with independent errors.

    With the bias b_i and the mean square error e_i² of each cell, it is Σ e_i² + Σ b_i·b_j over i ≠ j. This is at most
    n·e² + n(n − 1)·b² for the largest e² (`one`) and the largest b (`bias`), and n·e² if there is no bias.
    """
    return n * one + n * (n - 1) * bias**2


def sum_variances(mechanism: Any, transformed: Any, groups: Any, counts: Array, unit: Fraction, on_grid: bool) -> Array:
    """Return estimates of the mean square errors of sums of cells, rounding included.

    For additive noise they are upper bounds, or exact if rounding adds no bias. For a transformation they are sums of
    unbiased estimates of the variances, and never below the variance of as many empty cells.
    """
    one = mechanism._variance_from(transformed, unit, on_grid)
    if isinstance(mechanism, AdditiveMechanism):
        return np.asarray(sum_square_error(float(one), mechanism._rounding_bias(unit, on_grid), counts.astype(float)))
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(np.maximum(np.bincount(groups, one, counts.size), counts * mechanism.std(0) ** 2))
