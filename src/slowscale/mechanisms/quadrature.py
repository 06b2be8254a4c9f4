"""Integrals over the Gaussian noise of a transformation mechanism, for estimators that have no closed form."""

import math
from collections.abc import Callable

import numpy as np
from scipy import special

from slowscale.parameters import Array

# How many standard deviations of the noise are followed on each side: exp(−60²/2) is below any float.
FARTHEST = 60.0


def error_moments(error: Callable[[Array, Array], Array], q: Array, kink: Array) -> tuple[Array, Array]:
    """Return mean and standard deviation of error(q, N), N standard normal, where the error may have a kink."""
    from scipy.integrate import tanhsinh

    middle = np.clip(kink, -FARTHEST, FARTHEST)
    unit = np.maximum(np.abs(error(q, np.ones_like(q))), np.abs(error(q, -np.ones_like(q))))
    unit = np.where(unit > 0, unit, 1.0)

    def weighted(n: Array, q: Array, unit: Array, power: int) -> Array:
        with np.errstate(all="ignore"):
            value = (error(q, n) / unit) ** power * np.exp(-(n**2) / 2) / math.sqrt(2 * math.pi)
        return np.where(np.isnan(value), np.inf, value)

    def integral(power: int) -> Array:
        total = np.zeros_like(q)
        for low, high in ((np.full_like(q, -FARTHEST), middle), (middle, np.full_like(q, FARTHEST))):
            with np.errstate(all="ignore"):
                part = tanhsinh(
                    lambda n, q, unit: weighted(n, q, unit, power), low, high, args=(q, unit), rtol=1e-12, atol=1e-15
                )
            total += part.integral
        return total

    first, second = integral(1), integral(2)
    spread = np.where(np.isfinite(second), np.sqrt(np.maximum(second - first**2, 0)), np.inf)
    return unit * first, unit * spread


def exact_coverage(
    estimate: Callable[[Array], Array], turns: Array, v: Array, sigma: float, low: Array, high: Array
) -> Array:
    """P(low <= estimate(v + σN) <= high), for an estimator that is monotone between its turning points.

    On each stretch between turning points the estimates within [low, high] come from one interval of the noise; its
    ends are found by root search, and the normal probabilities of the intervals add up.
    """
    from scipy.optimize import elementwise

    total = np.zeros_like(v)
    ends = np.clip(turns, (v - 40 * sigma)[:, None], (v + 40 * sigma)[:, None])
    ends = np.concatenate([(v - 40 * sigma)[:, None], ends, (v + 40 * sigma)[:, None]], axis=1)

    def solve(left: Array, right: Array, wanted: Array) -> Array:
        """Return where the estimate passes `wanted` on a stretch, or the end nearer to it."""
        at_left, at_right = estimate(left), estimate(right)
        out = np.where(np.abs(wanted - at_left) <= np.abs(wanted - at_right), left, right)
        crosses = (at_left - wanted) * (at_right - wanted) < 0
        if crosses.any():
            found = elementwise.find_root(
                lambda x, wanted: estimate(x) - wanted, (left[crosses], right[crosses]), args=(wanted[crosses],)
            )
            out[crosses] = found.x
        return out

    for i in range(ends.shape[1] - 1):
        left, right = ends[:, i], ends[:, i + 1]
        first, last = solve(left, right, low), solve(left, right, high)
        total += np.abs(special.ndtr((last - v) / sigma) - special.ndtr((first - v) / sigma))
    return total
