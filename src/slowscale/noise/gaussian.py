"""The Gaussian distribution (Definition gaussian_mech), and the generalized Gaussian (Corollary genGaussMech).

For the generalized one with 0 < p <= 1, G = (|Z|/σ)^p has a Gamma(1/p) distribution, so every quantity is an incomplete
gamma function of G. With p = 1 it is the Laplace distribution.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from slowscale.core.families import PowerFamily, Scale
from slowscale.core.parameters import Array, lazy
from slowscale.noise.log_concave import LogConcaveDensity
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

    def _exact_moments(self, count: int) -> list[Any]:
        from flint import arb

        return [arb(math.prod(range(1, 2 * m, 2))) * arb(self.sigma) ** (2 * m) for m in range(count)]


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
        if self.p == 1:  # SciPy's function takes 100 times as long
            with np.errstate(divide="ignore"):
                return np.asarray(self.sigma * np.abs(np.log(tail)))
        return self._from_gamma(special.gammainccinv(1 / self.p, tail))

    def _center(self, z: Array) -> Array:
        return np.asarray(special.gammainc(1 / self.p, self._drop(z)))

    def _center_inverse(self, center: Array) -> Array:
        if self.p == 1:
            return np.asarray(-self.sigma * np.log1p(-center))
        return self._from_gamma(special.gammaincinv(1 / self.p, center))

    def _log_moment(self, order: int) -> float:
        return math.lgamma((order + 1) / self.p) - math.lgamma(1 / self.p)

    def _exact_moments(self, count: int) -> list[Any]:
        from flint import arb

        whole, p, sigma = (1 / arb(self.p)).gamma(), arb(self.p), arb(self.sigma)
        return [((2 * m + 1) / p).gamma() / whole * sigma ** (2 * m) for m in range(count)]
