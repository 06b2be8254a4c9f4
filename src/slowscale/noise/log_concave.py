"""Integrals of log-concave densities, in log space. They replace the paper's Fox-Wright functions.

Every noise of the paper is a monotone function of a variable with a log-concave density exp(h). Such a density has
one peak and falls at least exponentially on both sides. A fixed Gauss-Legendre rule on each side, truncated where the
density is negligible, therefore gives all digits. The nodes are denser at both ends of a side, where h may be singular.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import special

from slowscale.core.errors import SlowscaleError
from slowscale.core.parameters import Array

# The density is negligible where h is this far below its peak: exp(−40) is less than half a unit in the last place.
NEGLIGIBLE_DROP = 40.0
NODES_PER_SIDE = 80


@dataclass(frozen=True)
class LogConcaveDensity:
    """A density exp(h(x)), given by the differences of h, its first two derivatives and its mode.

    `rise(x, t)` is h(x + t) − h(x), `slope(x)` is h'(x), and `curvature(x)` is −h''(x), which need not be accurate.
    """

    rise: Callable[[Array, Array], Array]
    slope: Callable[[Array], Array]
    curvature: Callable[[Array], Array]
    mode: float

    def log_integral(self, low: Array, high: Array | float) -> tuple[Array, Array]:
        """Return the peak m of exp(h) on [low, high] and ln ∫ exp(h(x) − h(m)) dx over it."""
        low, high = np.broadcast_arrays(np.asarray(low, float), np.asarray(high, float))
        peak = np.clip(self.mode, low, high)
        right = self._side(peak, high - peak, +1.0)
        left = self._side(peak, peak - low, -1.0)
        with np.errstate(divide="ignore"):
            return peak, np.log(right + left)

    def _side(self, peak: Array, room: Array, sign: float) -> Array:
        """Return ∫ exp(h(peak + sign·t) − h(peak)) dt for t from 0 to `room`."""
        out = np.zeros(peak.shape)
        open_ = room > 0
        if open_.any():
            start = peak[open_]
            width = self._width(start, room[open_], sign)
            nodes, weights = _rule()
            t = width[:, None] * nodes
            out[open_] = width * (np.exp(self.rise(start[:, None], sign * t)) @ weights)
        return out

    def _width(self, peak: Array, room: Array, sign: float) -> Array:
        """Return the distance from the peak at which the density becomes negligible, at most `room`."""
        with np.errstate(divide="ignore"):
            guess = np.fmin(1 / np.abs(self.slope(peak)), 1 / np.sqrt(self.curvature(peak)))
        width = np.minimum(np.maximum(guess, 1e-300), room)
        enough = np.zeros(peak.shape, bool)
        while not enough.all():
            enough = (width >= room) | ~(self.rise(peak, sign * width) > -NEGLIGIBLE_DROP)
            width = np.where(enough, width, np.minimum(2 * width, room))
        short = np.zeros(peak.shape)
        for _ in range(6):  # bisect, because a side that is too wide would waste nodes
            middle = (short + width) / 2
            within = self.rise(peak, sign * middle) > -NEGLIGIBLE_DROP
            short, width = np.where(within, middle, short), np.where(within, width, middle)
        return width


@cache
def _rule() -> tuple[Array, Array]:
    """Return nodes and weights of Gauss-Legendre quadrature on [0, 1] after t = s³(10 − 15s + 6s²)."""
    x, w = special.roots_legendre(NODES_PER_SIDE)
    s = (x + 1) / 2
    return s**3 * (10 - 15 * s + 6 * s**2), w / 2 * 30 * (s * (1 - s)) ** 2


def solve(function: Callable[[Array], Array], target: Array, low: Array, high: Array) -> Array:
    """Return the y in [low, high] with function(y) = target, for a monotone function."""
    if not target.size:
        return target
    from scipy.optimize import elementwise

    found = elementwise.find_root(
        lambda y, wanted: function(y) - wanted,
        (low, high),
        args=(target,),
        tolerances={"xatol": 0.0, "xrtol": 4e-16, "fatol": 0.0, "frtol": 0.0},
    )
    if not np.isfinite(found.x).all():
        remedy = "please report this, with the parameters of the noise"
        raise SlowscaleError("a quantile", "could not be computed", code="internal", remedy=remedy)
    return np.asarray(found.x)
