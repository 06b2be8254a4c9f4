"""The generalized Gaussian distribution with 0 < p <= 1 (Corollary genGaussMech; p = 1 is Laplace).

G = (|Z|/σ)^p has a Gamma(1/p) distribution, so every quantity is an incomplete gamma function of G.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from slowscale.core.families import PowerFamily
from slowscale.core.parameters import Array, lazy
from slowscale.noise.log_concave import LogConcaveDensity
from slowscale.noise.symmetric import SymmetricNoise

# Below this, scipy's incomplete gamma function is close to underflow; above it, it is accurate.
SMALLEST_TAIL = 1e-280


@dataclass(frozen=True)
class GeneralizedGaussianNoise(PowerFamily, SymmetricNoise):
    """Density p/(2σΓ(1/p))·exp(−(|z|/σ)^p).

    >>> noise = GeneralizedGaussianNoise(sigma=1, p=0.5)
    >>> round(noise.var(), 9), round(noise.isf(0.025), 6)
    (120.0, 22.504251)
    """

    def _drop(self, z: Array) -> Array:
        return (z / self.sigma) ** self.p

    def _drop_rise(self, z: Array, t: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            near = self._drop(z) * np.expm1(self.p * np.log1p(t / z))
        return np.where(t < 1e10 * z, near, self._drop(z + t) - self._drop(z))

    def _bends(self, z: Array) -> tuple[Array, Array]:
        if self.p == 1:
            return np.zeros_like(z), np.zeros_like(z)
        with np.errstate(divide="ignore", over="ignore"):
            second = self.p * (1 - self.p) * (z / self.sigma) ** (self.p - 2) / self.sigma**2
            return second, second * (2 - self.p) / z

    @property
    def _log_peak(self) -> float:
        return math.log(self.p / 2) - math.log(self.sigma) - math.lgamma(1 / self.p)

    @lazy
    def gamma_density(self) -> LogConcaveDensity:
        """The density of G = (|Z|/σ)^p, up to a constant."""
        shape = 1 / self.p
        return LogConcaveDensity(
            rise=lambda x, t: (shape - 1) * np.log1p(t / x) - t,
            slope=lambda x: (shape - 1) / x - 1,
            curvature=lambda x: (shape - 1) / x**2,
            mode=shape - 1,
        )

    def _from_gamma(self, g: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.asarray(self.sigma * g ** (1 / self.p))

    def _tail(self, z: Array) -> Array:
        return np.asarray(special.gammaincc(1 / self.p, self._drop(z)))

    def _log_tail(self, z: Array) -> Array:
        tail = self._tail(z)
        far = tail < SMALLEST_TAIL
        out = np.log(np.where(far, 1.0, tail))
        if far.any():
            shape = 1 / self.p
            peak, integral = self.gamma_density.log_integral(self._drop(z[far]), np.inf)
            out[far] = (shape - 1) * np.log(peak) - peak + integral - math.lgamma(shape)
        return out

    def _tail_inverse(self, tail: Array) -> Array:
        return self._from_gamma(special.gammainccinv(1 / self.p, tail))

    def _center(self, z: Array) -> Array:
        return np.asarray(special.gammainc(1 / self.p, self._drop(z)))

    def _center_inverse(self, center: Array) -> Array:
        return self._from_gamma(special.gammaincinv(1 / self.p, center))

    def _log_moment(self, order: int) -> float:
        return math.lgamma((order + 1) / self.p) - math.lgamma(1 / self.p)
