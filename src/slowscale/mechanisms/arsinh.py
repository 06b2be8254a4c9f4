"""The arsinh transformation, for sums of any sign such as profits."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from slowscale.core.families import ArsinhFamily
from slowscale.core.parameters import Array
from slowscale.mechanisms.additive import AdditiveMechanism
from slowscale.mechanisms.drawing import fine_step
from slowscale.mechanisms.transformation import ROUNDOFF, TransformationMechanism
from slowscale.policy import ArsinhPolicy
from slowscale.sampling.samplers import Lift, Number


@dataclass(frozen=True, kw_only=True)
class Arsinh(ArsinhFamily, TransformationMechanism):
    """arsinh(q/s) plus noise, for sums of any sign: the error is about s·σ for small sums, and relative for large ones.

    `noise` is "gaussian" or "laplace", or additive noise of scale 1; sigma is its scale. With Laplace noise, the mean
    estimate exists for sigma < 1, and has a variance for sigma < 1/2.

    >>> m = Arsinh(s=1000, sigma=0.1, noise="laplace")
    >>> [round(m.std(q)) for q in (-1e6, 0, 1e6)]
    [145074, 144, 145074]
    """

    kind = "arsinh"
    words = "The sum is transformed by arsinh, noise is added, and the result is transformed back."
    _free = ("sigma", "s")
    _needs_nonnegative = False
    a = 0.0

    noise: str | AdditiveMechanism = "gaussian"
    estimator: str | None = None

    def _check(self) -> None:
        self._check_noise()

    @property
    def _no_mean(self) -> str | None:
        if self._is_laplace and self.sigma >= 1:
            return "with Laplace noise of scale 1 or more, arsinh has no such estimator"
        return super()._no_mean

    @property
    def _no_variance(self) -> bool:
        return self._is_laplace and self.sigma >= 0.5

    def _gaussian_policy(self, sigma: float) -> ArsinhPolicy:
        return ArsinhPolicy(s=self.s, sigma=sigma)

    @property
    def _floor(self) -> float:
        return -math.inf

    def _transform(self, q: Array) -> Array:
        return np.arcsinh(q / self.s)

    def _height(self, q: Array) -> Array:
        return np.full_like(q, math.inf)

    def _median_error(self, q: Array, shift: Array) -> Array:
        return self.s * np.sinh(self._transform(q) + shift) - q

    def _invert(self, v: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.asarray(self.s * np.sinh(v))

    @property
    def _shrinkage(self) -> float:
        """1/E e^Z: the mean of sinh(v) is E e^Z times the sinh of the transformed sum."""
        return 1 - self.sigma**2 if self._is_laplace else math.exp(-(self.sigma**2) / 2)

    def _gaussian_estimate(self, v: Array) -> Array:
        return self._shrinkage * self._invert(v)

    _mean_estimate = _gaussian_estimate

    def _slopes(self, v: Array) -> tuple[Array, Array]:
        return self.s * np.cosh(v), self.s * np.sinh(v)

    def _exact_slopes(self, v: Number, lift: Lift) -> tuple[Number, Number]:
        bend = self._exact_inverse(v, lift)
        return (bend * bend + lift(self.s) * lift(self.s)).sqrt(), bend

    def _turns(self, v: Array) -> Array:
        return np.empty((v.size, 0))  # the estimator is monotone

    def _std(self, q: Array) -> Array:
        if self.estimator == "median":
            return super()._std(q)
        with np.errstate(over="ignore"):
            return np.asarray(np.hypot(math.sqrt(self._spread[0]) * self.s, math.sqrt(self._spread[1]) * q))

    @property
    def _spread(self) -> tuple[float, float]:
        """The variance is s² times the first number plus q² times the second one."""
        square = self.sigma**2
        if not self._is_laplace:
            return math.sinh(square), math.expm1(square)
        if self._no_variance:
            return math.inf, math.inf
        return 2 * square * (1 - square) ** 2 / (1 - 4 * square), (2 * square + square**2) / (1 - 4 * square)

    def _summed_cumulants(self, v: Array, groups: Any, counts: Array, miss: Array) -> tuple[Array, Array] | None:
        if self.estimator == "median" or self._no_variance:
            return None
        # All true sums of a group are at most this large, in either direction, with probability 1 − miss.
        with np.errstate(over="ignore"):
            reach = self._noise.isf(miss / counts / 2)[groups] + fine_step(self.sigma)
            largest = self._std(self._invert(np.abs(v) + reach)) ** 2 * (1 + ROUNDOFF)
            return np.bincount(groups, largest, counts.size), np.full(counts.size, math.inf)

    def _variance_estimate(self, v: Array) -> Array:
        if self.estimator == "median":
            return super()._variance_estimate(v)
        empty, grown = self._spread
        # sinh(v)² of the true transformed sum has the unbiased estimate (cosh(2v)/E e^(2Z) − 1)/2.
        square = self.sigma**2
        shrinkage = 1 - 4 * square if self._is_laplace else math.exp(-2 * square)
        with np.errstate(over="ignore"):
            return np.asarray(self.s**2 * (empty + grown * (shrinkage * np.cosh(2 * v) - 1) / 2))

    def _exact_transform(self, q: Number, lift: Lift) -> Number:
        return (q / lift(self.s)).asinh()

    def _exact_gaussian_estimate(self, v: Number, lift: Lift) -> Number:
        b = lift(self.sigma)
        shrinkage = lift(1.0) - b * b if self._is_laplace else (-(b * b) * 0.5).exp()
        return v.sinh() * lift(self.s) * shrinkage

    def _exact_estimate(self, v: Number, lift: Lift) -> Number:
        return self._exact_inverse(v, lift) if self.estimator == "median" else self._exact_gaussian_estimate(v, lift)

    def _exact_inverse(self, v: Number, lift: Lift) -> Number:
        return v.sinh() * lift(self.s)
