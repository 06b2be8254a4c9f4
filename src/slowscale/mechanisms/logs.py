"""The log transformation (Corollary log_transform)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import special

from slowscale.core.families import LogFamily
from slowscale.core.formulas import log1p_ratio
from slowscale.core.parameters import Array
from slowscale.mechanisms.additive import AdditiveMechanism
from slowscale.mechanisms.power_sums import upper_exponential_sums
from slowscale.mechanisms.transformation import TransformationMechanism
from slowscale.policy import LogPolicy
from slowscale.sampling.samplers import Lift, Number


@dataclass(frozen=True, kw_only=True)
class Log(LogFamily, TransformationMechanism):
    """The log transformation (Corollary log_transform): the error grows in proportion to the sum.

    `noise` is "gaussian" or "laplace", or additive noise of scale 1; sigma is its scale. With Laplace noise, the mean
    estimate exists for sigma < 1, and has a variance for sigma < 1/2. The estimator is "mean" where it exists and has a
    variance, and otherwise "median".

    >>> m = Log(sigma=1)
    >>> [round(end) for end in m.prediction_interval(1000)]
    [85, 4309]
    """

    kind = "log"
    words = "The sum is transformed by a logarithm, noise is added, and the result is transformed back."
    compared: ClassVar[Mapping[str, Mapping[str, Any]]] = {"log": {}}
    _free = ("sigma", "a")

    noise: str | AdditiveMechanism = "gaussian"
    estimator: str | None = None

    def _check(self) -> None:
        self._check_noise()

    @property
    def _no_mean(self) -> str | None:
        if self._is_laplace and self.sigma >= 1:
            return "with Laplace noise of scale 1 or more, the logarithm has no such estimator"
        return super()._no_mean

    @property
    def _no_variance(self) -> bool:
        return self._is_laplace and self.sigma >= 0.5

    @property
    def _variance_rises(self) -> bool:
        return not self._no_variance

    def _gaussian_policy(self, sigma: float) -> LogPolicy:
        return LogPolicy(sigma=sigma, a=self.a)

    def _transform(self, q: Array) -> Array:
        return math.log(self.a) + self._height(q)

    def _height(self, q: Array) -> Array:
        return log1p_ratio(q, self.a)

    def _median_error(self, q: Array, shift: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.asarray((q + self.a) * np.expm1(shift))

    def _exact_transform(self, q: Number, lift: Lift) -> Number:
        return (q + self.a).log()

    def _slopes(self, v: Array) -> tuple[Array, Array]:
        grown = np.exp(v)
        return grown, grown

    def _exact_slopes(self, v: Number, lift: Lift) -> tuple[Number, Number]:
        grown = v.exp()
        return grown, grown

    @property
    def _floor_slope(self) -> float:  # type: ignore[override]
        return self.a

    def _exact_gaussian_estimate(self, v: Number, lift: Lift) -> Number:
        return (v - lift(self.sigma) * self.sigma * 0.5).exp() - self.a

    def _exact_inverse(self, v: Number, lift: Lift) -> Number:
        return v.exp().max(lift(self.a)) - self.a

    def _gaussian_estimate(self, v: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(v - self.sigma * self.sigma / 2) - self.a)

    def _std(self, q: Array) -> Array:
        if self._by_operator and not self._no_variance:
            # The mean of (2b² + b⁴)·e^(2v) above ln a, where v is Laplace around ln(q + a), and of b²a² below.
            b, depth = self.sigma, self._height(q)
            grown = 1 / (1 - 2 * b) - np.expm1(-(2 + 1 / b) * depth) / (1 + 2 * b)
            fallen = (self.a / (q + self.a)) ** 2 * np.exp(-depth / b)
            return np.asarray((q + self.a) * b * np.sqrt((1 + b * b / 2) * grown + fallen / 2))
        if self.estimator == "median" or not self._is_gaussian:
            return super()._std(q)
        square = np.float64(self.sigma) ** 2
        with np.errstate(over="ignore"):
            return np.asarray((q + self.a) * np.exp(square / 2) * np.sqrt(-np.expm1(-square)))

    def _summed_cumulants(self, v: Array, groups: Any, counts: Array, miss: Array) -> tuple[Array, Array] | None:
        # The error is (q + a)·(Y − 1) with a lognormal variable Y of mean 1.
        if self.estimator == "median":
            return None
        if self._is_laplace:
            return super()._summed_cumulants(v, groups, counts, miss)
        with np.errstate(over="ignore", invalid="ignore"):
            second, fourth = upper_exponential_sums(v, groups, counts, (2, 4), self.sigma, miss)
            grown = np.expm1(np.float64(self.sigma) ** 2)
            w = grown + 1
            # w⁴ + 2w³ + 3w² − 6 = (w − 1)·(w³ + 3w² + 6w + 6)
            return grown * second, grown**3 * (w**3 + 3 * w**2 + 6 * w + 6) * fourth

    def _moments(self, q: Array) -> tuple[Array, Array]:
        if self.estimator == "mean" or self.sigma < 1 or not self._is_gaussian:
            return super()._moments(q)
        # Moments of a lognormal variable truncated at 0, as in the Black-Scholes formula, divided by `growth`.
        square, start = np.float64(self.sigma) ** 2, self._height(q) / self.sigma
        share = self.a / (q + self.a)
        below, first, second = (special.ndtr(start + i * self.sigma) for i in range(3))
        mean = np.exp(-square / 2) * first - share * np.exp(-square) * below
        moment = second - 2 * share * np.exp(-1.5 * square) * first + share**2 * np.exp(-2 * square) * below
        growth = (q + self.a) * np.exp(square)
        return growth * mean - q, growth * np.sqrt(moment - mean**2)

    def _variance_estimate(self, v: Array) -> Array:
        if self.estimator == "median" or self._is_laplace:
            return super()._variance_estimate(v)
        with np.errstate(over="ignore"):
            square = np.float64(self.sigma) ** 2
            return np.asarray(-np.expm1(-square) * np.exp(2 * v - square))
