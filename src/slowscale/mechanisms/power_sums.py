"""Upper bounds on power sums of true transformed values, from noisy ones, and cumulants of root estimates.

Let the noisy values be v = μ + σN with independent standard normal N, and let g be convex and change by at most the
Euclidean distance of its arguments. The noises with g(v) <= g(μ) − σz form a convex set at a distance of at least z
from 0. Such a set lies in a half-space at that distance, so its probability is at most Φ(−z). Hence g(μ) <= g(v) + σz
with probability Φ(z): one deviation for all cells together. It is used for g(v) = ‖max(v, 0)‖_p with p >= 2, and for
g(v) = ln(Σ exp(p·v))/p.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from scipy import special

from slowscale.core.parameters import Array
from slowscale.mechanisms.drawing import fine_step

# What the floating-point evaluation of a power sum may lose, relative to it.
POWER_SUM_ERROR = 1e-11


def upper_power_sums(
    v: Array, groups: Any, counts: Array, halves: Sequence[int], sigma: float, miss: Array
) -> dict[int, Array]:
    """Return bounds on Σ μ^(2m) over the cells of each group, for each m in `halves` and nonnegative μ.

    All bounds of a group hold together with probability 1 − miss. Published values were rounded to a fine grid.
    """
    reach = -special.ndtri(miss / max(len(halves), 1)) * sigma
    above = np.maximum(v, 0.0)
    found = {}
    with np.errstate(over="ignore", invalid="ignore"):
        for m in halves:
            norm = np.bincount(groups, above ** (2 * m), counts.size) ** (0.5 / m) * (1 + POWER_SUM_ERROR)
            found[m] = (norm + counts ** (0.5 / m) * fine_step(sigma) + reach) ** (2 * m)
    return found


def upper_exponential_sums(
    v: Array, groups: Any, counts: Array, orders: Sequence[int], sigma: float, miss: Array
) -> list[Array]:
    """Return bounds on Σ exp(p·μ) over the cells of each group, for each p >= 2 in `orders`; see `upper_power_sums`."""
    reach = -special.ndtri(miss / len(orders)) * sigma + fine_step(sigma)
    top = np.full(counts.size, -math.inf)
    np.maximum.at(top, groups, v)
    with np.errstate(over="ignore", invalid="ignore"):
        return [
            np.bincount(groups, np.exp(p * (v - top[groups])), counts.size)
            * np.exp(p * (top + reach + POWER_SUM_ERROR * (1 + np.abs(top))))
            for p in orders
        ]


@cache
def root_cumulants(k: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the variance and the fourth cumulant of He_k(μ + N) as polynomials in μ².

    He_k(μ + N) − μ^k is Σ C(k, j)·μ^(k−j)·He_j(N) over j >= 1. The coefficients are not negative, because joint
    cumulants of Hermite polynomials of normal variables count diagrams.
    """
    error = {k - j: {j: math.comb(k, j)} for j in range(1, k + 1)}  # powers of μ, in Hermite polynomials of N
    square: dict[int, dict[int, int]] = {}
    for (p, x), (q, y) in ((one, two) for one in error.items() for two in error.items()):
        place = square.setdefault(p + q, {})
        for (a, c), (b, d) in ((one, two) for one in x.items() for two in y.items()):
            for r in range(min(a, b) + 1):  # the product of two Hermite polynomials
                factor = math.comb(a, r) * math.comb(b, r) * math.factorial(r)
                place[a + b - 2 * r] = place.get(a + b - 2 * r, 0) + c * d * factor
    variance = [square.get(2 * m, {}).get(0, 0) for m in range(k)]
    fourth = [0] * (2 * k - 1)
    for (p, x), (q, y) in ((one, two) for one in square.items() for two in square.items()):
        if (p + q) % 2 == 0:
            fourth[(p + q) // 2] += sum(c * y[a] * math.factorial(a) for a, c in x.items() if a in y)
    for i, one in enumerate(variance):
        for j, two in enumerate(variance):
            fourth[i + j] -= 3 * one * two
    while len(fourth) > 1 and not fourth[-1]:
        fourth.pop()
    return tuple(variance), tuple(fourth)
