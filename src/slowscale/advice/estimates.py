"""Quick estimates of a noise with scale 1: its quantiles, its standard deviation, and tight losses.

The advisor compares hundreds of shapes, so it needs about a millisecond for each. The integrals are those of
`noise/divergence.py`, computed by the trapezoidal rule on a fixed number of points. They are typically 0.1 % low, and
they prove nothing: what the advisor states in the end is computed again with certified bounds.
"""

import math

import numpy as np

from slowscale.core.parameters import Array
from slowscale.noise import GaussianNoise, SymmetricNoise
from slowscale.noise.tight_curve import FIRST_INFLUENCE, LAST_INFLUENCE

STEP = 0.125
LOG_NOISE_SIZES = np.arange(
    -20.0, 110.0, STEP
)  # the logarithms of the sizes of noise at which the density is evaluated
NOISE_SIZES = np.exp(LOG_NOISE_SIZES)
# What lies beyond the last of them must have less than this share of the integral: e^(−12).
NEGLIGIBLE_LOG = 12.0
FAR_LOG_TAIL = -36.0  # the noise beyond the quantile with this log-tail is left out of divergences
POINTS_PER_SIDE, ORDERS = 96, 24  # of the integrals for divergences: the points on each side of 0, and the orders α
FRACTIONS = np.linspace(0, 1, POINTS_PER_SIDE)
WEIGHTS = np.concatenate([[0.5], np.ones(POINTS_PER_SIDE - 2), [0.5]]) / (POINTS_PER_SIDE - 1)
FIRST_TRIED_ORDER, LAST_TRIED_ORDER = 1e-3, 64.0  # of α − 1; where all losses are small, larger orders matter too


class UnitNoise:
    """Estimates for a noise with scale 1."""

    def __init__(self, noise: SymmetricNoise) -> None:
        self._noise = noise
        with np.errstate(over="ignore", invalid="ignore"):
            logs = LOG_NOISE_SIZES - noise._drop(NOISE_SIZES)
        logs = np.where(np.isnan(logs), -np.inf, logs)
        peak = float(logs.max())
        self._reliable = float(logs[-1]) < peak - NEGLIGIBLE_LOG
        weights = np.exp(logs - peak) * STEP
        mass = float(weights.sum())
        self._log_mass = peak + math.log(mass)
        tails = np.cumsum(weights[::-1])[::-1] - weights / 2
        self._log_tails = np.log(np.maximum(tails, 1e-300) / mass)
        self.std = math.inf
        squares = logs + 2 * LOG_NOISE_SIZES
        top = float(squares.max())
        if float(squares[-1]) < top - NEGLIGIBLE_LOG:
            log = (top + math.log(float(np.exp(squares - top).sum()) * STEP) - self._log_mass) / 2
            self.std = math.exp(log) if log < 700 else math.inf

    @property
    def usable(self) -> bool:
        """Whether the noise has a standard deviation, and is not so large that the estimates would be wrong."""
        return self._reliable and math.isfinite(self.std)

    def half_width(self, level: float) -> float:
        """Return the half-width of the interval around 0 that contains the noise with a probability."""
        return self._quantile(math.log1p(-level))

    def _quantile(self, log_tail: float) -> float:
        return math.exp(float(np.interp(-log_tail, -self._log_tails, LOG_NOISE_SIZES)))

    def losses(self, influences: Array) -> Array:
        """Return the tight PRzCDP losses at several influences."""
        if isinstance(self._noise, GaussianNoise):
            return influences**2 / 2
        found = np.empty_like(influences)
        inside = (influences >= FIRST_INFLUENCE) & (influences <= LAST_INFLUENCE)
        pure = self._noise._pure_loss(influences[~inside])
        found[~inside] = np.tanh(pure / 2) * pure  # as tight policies have it there
        if inside.any():
            found[inside] = self._divergences(influences[inside, None])
        return found

    def _divergences(self, x: Array) -> Array:
        """Return the largest d_α/α over the orders, for a column of influences."""
        noise = self._noise
        start = 1e-3 * np.minimum(self.half_width(0.5), x)

        def geometric(end: Array) -> Array:
            return np.asarray(start * np.exp(FRACTIONS * np.log(end / start)))

        def masses(t: Array) -> Array:
            found = t * WEIGHTS * np.log(t[:, -1:] / t[:, :1])
            found[:, 0] += t[:, 0]  # the cell from 0 to the first point
            return np.asarray(found)

        outer, inner = geometric(np.maximum(self._quantile(FAR_LOG_TAIL), 10 * x)), geometric(x / 2)
        shift = np.broadcast_to(x, outer.shape)
        loss = np.concatenate([noise._drop_rise(outer, shift), noise._drop_rise(inner, x - 2 * inner)], axis=1)
        loss = np.maximum(loss, 1e-300)
        density = -noise._drop(np.concatenate([outer + x, x - inner], axis=1)) - self._log_mass - math.log(2)
        base = density + np.log(np.concatenate([masses(outer), masses(inner)], axis=1))
        last = np.maximum(LAST_TRIED_ORDER, LAST_TRIED_ORDER / loss.max(axis=1))
        orders = np.geomspace(np.full_like(last, FIRST_TRIED_ORDER), last, ORDERS)
        order = orders[:, :, None]
        with np.errstate(divide="ignore", over="ignore"):
            logs = (1 + order) * loss + np.log(np.expm1(-(1 + order) * loss) * np.expm1(-order * loss)) + base
        top = logs.max(axis=-1)
        total = top + np.log(np.exp(logs - top[..., None]).sum(axis=-1))
        found: Array = (np.logaddexp(0.0, total) / (orders * (orders + 1))).max(axis=0)
        return found
