"""The error that rounding to the unit adds to additive noise.

The published number is ⌊(q + Z)/u + ½⌋·u for a unit u. If the noise is wide, rounding adds u²/12 to the variance and no
bias. Otherwise both depend on where q lies between two grid points, which is confidential. The published error is then
the largest over all places between two grid points, unless q is known to be on the grid.
"""

import math
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import special

from slowscale.core.parameters import Array
from slowscale.noise import SymmetricNoise

# Noise counts as wide if it lies within half a unit of 0 with at most this probability.
WIDE_NOISE = 1e-4
# Places between two grid points at which the error is evaluated: evenly spaced, and ever closer to halfway.
PLACES = np.concatenate([np.linspace(0, 0.5, 33), 0.5 - 2.0 ** -np.arange(7, 41)])
# The most cells of one unit that are summed, and the Gauss-Legendre nodes in each.
MOST_CELLS, NODES_PER_CELL = 2000, 8


class RoundingError(NamedTuple):
    """The largest bias and the largest root mean square error of published values, rounding included."""

    bias: float
    rmse: float


def rounded_error(noise: SymmetricNoise, unit: Fraction, place: Array) -> tuple[Array, Array]:
    """Return the bias and the standard deviation of published values, for sums at places between grid points.

    With X = ⌊t + Z/u + ½⌋ and S(x) = P(Z > x): E X = Σ_j S(u(j+½−t)) − S(u(j+½+t)), and
    E X² = Σ_j (2j+1)(S(u(j+½−t)) + S(u(j+½+t))). The second is computed as Var(Z)/u² = ∫ 4x·S(ux) dx plus the
    difference in every cell from j to j+1, which vanishes quickly. A place is the distance from the nearest grid point
    in units, from −½ to ½.
    """
    u, std = float(unit), noise.std()
    wide = np.full_like(place, math.hypot(std, u / math.sqrt(12)))
    if 1 - 2 * noise.sf(u / 2) <= WIDE_NOISE:
        return np.zeros_like(place), wide
    j = np.arange(math.ceil(min(noise.isf(1e-20) / u, MOST_CELLS)) + 2)
    t = place[:, None]
    with np.errstate(over="ignore", under="ignore"):
        above, below = noise.sf(u * (j + 0.5 - t)), noise.sf(u * (j + 0.5 + t))
        mean = (above - below).sum(axis=1) + 2 * place * noise.sf(u * j.size)
        bias = u * (mean - place)
        square = ((2 * j + 1) * (above + below)).sum(axis=1)
        if j.size >= MOST_CELLS:  # beyond the last cell, the tail of the noise itself is used
            if not std < 1e6 * u:
                return bias, wide
            square = (std / u) ** 2 + (square - _second_moment(noise, u, j.size))
        return bias, u * np.sqrt(np.maximum(square - mean**2, 0.0))


def _second_moment(noise: SymmetricNoise, u: float, cells: int) -> float:
    """Return ∫ 4x·P(Z > ux) dx from 0 to `cells`. The first cell is split finely, for noise narrower than a unit."""
    ends = np.concatenate([[0.0], 2.0 ** np.arange(-40, 0), np.arange(1.0, cells + 1)])
    widths = np.diff(ends)
    nodes, weights = special.roots_legendre(NODES_PER_CELL)
    x = ends[:-1, None] + widths[:, None] * (nodes + 1) / 2
    return float(widths @ (4 * x * noise.sf(u * x)) @ (weights / 2))


@lru_cache(maxsize=1024)
def largest_error(noise: SymmetricNoise, unit: Fraction, on_grid: bool) -> RoundingError:
    """Return the largest error over all sums, or over sums on the grid if all are known to be on it.

    Parameters
    ----------
    noise
        The noise.
    unit
        The unit that results are rounded to.
    on_grid
        Whether the true sums are known to be whole numbers of units.
    """
    if on_grid:
        bias, std = rounded_error(noise, unit, PLACES[:1])
        return RoundingError(0.0, float(std[0]))
    places = np.sort(PLACES)
    for _ in range(3):  # refine around the largest error
        bias, std = rounded_error(noise, unit, places)
        peaks = [int(np.argmax(found)) for found in (np.abs(bias), np.hypot(bias, std))]
        near = [np.linspace(places[max(i - 1, 0)], places[min(i + 1, places.size - 1)], 17) for i in peaks]
        places = np.unique(np.concatenate([places[peaks], *near]))
    bias, std = rounded_error(noise, unit, places)
    return RoundingError(float(np.abs(bias).max()), float(np.hypot(bias, std).max()))
