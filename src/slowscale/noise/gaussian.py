"""The Gaussian distribution (Definition gaussian_mech)."""

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from slowscale.core.families import Scale
from slowscale.core.parameters import Array
from slowscale.noise.symmetric import SymmetricNoise

SQRT2 = math.sqrt(2)


@dataclass(frozen=True)
class GaussianNoise(Scale, SymmetricNoise):
    """Density proportional to exp(−z²/(2σ²)).

    >>> round(GaussianNoise(sigma=2).isf(0.025), 4)
    3.9199
    """

    def _drop(self, z: Array) -> Array:
        return (z / self.sigma) ** 2 / 2

    def _drop_rise(self, z: Array, t: Array) -> Array:
        return t / self.sigma * ((z / self.sigma) + (t / self.sigma) / 2)

    @property
    def _concave_from(self) -> float:
        return math.inf

    @property
    def _log_peak(self) -> float:
        return -math.log(self.sigma) - 0.5 * math.log(2 * math.pi)

    def _log_tail(self, z: Array) -> Array:
        return np.asarray(math.log(2) + special.log_ndtr(-z / self.sigma))

    def _tail(self, z: Array) -> Array:
        return np.asarray(special.erfc(z / self.sigma / SQRT2))

    def _tail_inverse(self, tail: Array) -> Array:
        return np.asarray(-self.sigma * special.ndtri(tail / 2))

    def _center(self, z: Array) -> Array:
        return np.asarray(special.erf(z / self.sigma / SQRT2))

    def _center_inverse(self, center: Array) -> Array:
        return np.asarray(self.sigma * SQRT2 * special.erfinv(center))

    def _log_moment(self, order: int) -> float:
        if order % 2 == 0:  # 1·3·5·…·(order − 1)
            return sum(math.log(j) for j in range(1, order, 2))
        return order / 2 * math.log(2) + math.lgamma((order + 1) / 2) - 0.5 * math.log(math.pi)
