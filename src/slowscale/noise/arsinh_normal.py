"""The arsinh-normal distribution: Z = s·sinh(τN) with N standard normal, smooth around 0, with log-normal tails.

It is not in the paper. Bun and Steinke (2019) use it for smooth sensitivity. Every quantity is one of N, at
arsinh(z/s)/τ; the moments other than the first two are integrals of a log-concave density.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from slowscale.core.families import ArsinhNormalFamily
from slowscale.core.parameters import Array
from slowscale.noise import arsinh
from slowscale.noise.log_concave import LogConcaveDensity
from slowscale.noise.symmetric import SymmetricNoise

SQRT2 = math.sqrt(2)


@dataclass(frozen=True)
class ArsinhNormalNoise(ArsinhNormalFamily, SymmetricNoise):  # type: ignore[override] # sigma is read only
    """Density proportional to exp(−arsinh(z/s)²/(2τ²))/√(1 + z²/s²).

    >>> noise = ArsinhNormalNoise(scale=4.95, shape=1.6)
    >>> round(noise.std(), 1), round(noise.isf(0.025), 1), round(noise.isf(0.25), 2)
    (45.1, 56.8, 6.44)
    """

    def _normal(self, z: Array) -> Array:
        """Return arsinh(z/s)/τ, which is standard normal for z = Z."""
        return arsinh.arsinh_ratio(z, self.scale) / self.shape

    def _from_normal(self, x: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.asarray(self.scale * np.sinh(self.shape * x))

    def _drop(self, z: Array) -> Array:
        return arsinh.drop(arsinh.arsinh_ratio(z, self.scale), self.shape)

    def _drop_rise(self, z: Array, t: Array) -> Array:
        with np.errstate(over="ignore"):
            low, step = z / self.scale, t / self.scale
            finite = np.isfinite(low + step)
        if finite.all():
            return arsinh.rise(low, step, self.shape)
        near = arsinh.rise(np.where(finite, low, 0.0), np.where(finite, step, 0.0), self.shape)
        return np.where(finite, near, self._drop(z + t) - self._drop(z))

    def _bends(self, z: Array) -> tuple[Array, Array]:
        """Return bounds on the second and the third derivative of `_drop` at every point from z on.

        With T = tanh y, κ = 1/τ² and lengths in units of s, the derivatives are (κ(1 − yT) + 1 − 2T²)/cosh² y and
        (−κ(3T + y/cosh² y − 2yT²) + 8T³ − 6T)/cosh³ y. Here |1 − yT| <= max(1, y − 1) and |1 − 2T²| <= 1. The bracket
        in the third one is at most 1.75 (near y = 0.73) and at least T(3 − 2yT) >= −max(0, 2y − 3), and 8T³ − 6T is
        twice a Chebyshev polynomial, so at most 2. The bounds fall with y, because (y − 1)/cosh² y and (2y − 3)/cosh³ y
        do where they exceed the constants, for y >= 2.
        """
        y = arsinh.arsinh_ratio(z, self.scale)
        curve, root = 1 / self.shape**2, np.exp(-arsinh.drop(y, math.inf))  # 1/cosh y
        second = (curve * np.maximum(1.0, y - 1) + 1) * root**2 / self.scale / self.scale
        third = (curve * np.maximum(1.75, 2 * y - 3) + 2) * root**3 / self.scale / self.scale / self.scale
        return second * (1 + 1e-12), third * (1 + 1e-12)

    def _pure_loss(self, influence: Array) -> Array:
        return arsinh.largest_rise(influence, self.scale, self.shape)

    def _standard(self) -> "ArsinhNormalNoise":
        return replace(self, scale=1.0)

    @property
    def _concave_from(self) -> float:
        return self.scale * arsinh.steepest_point(self.shape)

    @property
    def _log_peak(self) -> float:
        return -math.log(self.scale) - math.log(self.shape) - 0.5 * math.log(2 * math.pi)

    def _log_tail(self, z: Array) -> Array:
        return np.asarray(math.log(2) + special.log_ndtr(-self._normal(z)))

    def _tail(self, z: Array) -> Array:
        return np.asarray(special.erfc(self._normal(z) / SQRT2))

    def _tail_inverse(self, tail: Array) -> Array:
        return self._from_normal(-special.ndtri(tail / 2))

    def _center(self, z: Array) -> Array:
        return np.asarray(special.erf(self._normal(z) / SQRT2))

    def _center_inverse(self, center: Array) -> Array:
        return self._from_normal(SQRT2 * special.erfinv(center))

    def _log_moment(self, order: int) -> float:
        if order == 1:
            return self.shape**2 / 2 + math.log(math.erf(self.shape / SQRT2))
        if order == 2:
            return math.log(math.expm1(2 * self.shape**2) / 2)
        # The binomial series of sinh^order cancels for small shapes; sinh(y)^order·exp(−y²/(2τ²)) is log-concave.
        density = _moment_density(order, self.shape)
        peak, integral = density.log_integral(np.zeros(1), np.inf)
        at_peak = order * _log_sinh(peak) - (peak / self.shape) ** 2 / 2
        return float(at_peak[0] + integral[0]) + 0.5 * math.log(2 / math.pi) - math.log(self.shape)


def _log_sinh(y: Array) -> Array:
    with np.errstate(divide="ignore"):
        return np.asarray(y - math.log(2) + np.log(-np.expm1(-2 * y)))


def _moment_density(order: int, shape: float) -> LogConcaveDensity:
    """The density sinh(y)^order·exp(−y²/(2·shape²)), y > 0."""
    square = shape * shape

    def rise(y: Array, t: Array) -> Array:
        # sinh(y + t)/sinh(y) = e^t·(1 − e^(−2y − 2t))/(1 − e^(−2y))
        with np.errstate(divide="ignore"):
            shrunk = np.log(np.expm1(-2 * (y + t)) / np.expm1(-2 * y))
        return np.asarray(order * (t + shrunk) - t * (t + 2 * y) / (2 * square))

    def slope(y: Array) -> Array:
        return np.asarray(order / np.tanh(y) - y / square)

    # At the mode y·tanh y = order·shape², which increases with y.
    low, high = 0.0, order * square + math.sqrt(order) * shape + 1.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if middle * math.tanh(middle) < order * square else (low, middle)
    return LogConcaveDensity(rise, slope, lambda y: order / np.sinh(np.minimum(y, 300.0)) ** 2 + 1 / square, high)
