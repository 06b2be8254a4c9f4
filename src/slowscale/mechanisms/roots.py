"""Root transformations: identity, square root, fourth root and any other root (Corollary kth_root_transform)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import special

from slowscale.core.families import RootFamily
from slowscale.core.formulas import root, root_rise
from slowscale.core.parameters import Array
from slowscale.mechanisms.power_sums import root_cumulants, upper_power_sums
from slowscale.mechanisms.additive import AdditiveMechanism
from slowscale.mechanisms.transformation import TransformationMechanism
from slowscale.policy import RootPolicy
from slowscale.sampling.balls import exact_power, exact_root
from slowscale.sampling.samplers import Lift, Number

# The largest k for which sums of cells have intervals from moments.
LARGEST_K = 12


@dataclass(frozen=True, kw_only=True)
class Root(RootFamily, TransformationMechanism):
    """The kth root transformation (Corollary kth_root_transform): k = 1 identity, 2 square root, 4 fourth root.

    `noise` is "gaussian" or "laplace", or additive noise of scale 1; sigma is its scale. Laplace noise has a
    mean-unbiased estimator for every k > 1, Gaussian noise for whole k. The estimator is "mean" where it exists and has
    a variance, and otherwise "median".

    >>> m = Root(k=2, sigma=1, a=1)
    >>> [round(end) for end in m.prediction_interval(1000)]
    [879, 1127]
    >>> round(Root(k=2.5, sigma=1, noise="laplace").std(1000), 1)
    224.8
    """

    kind = "root"
    words = "The sum is transformed by a root, noise is added, and the result is transformed back."
    compared: ClassVar[Mapping[str, Mapping[str, Any]]] = {"fourth root": {"k": 4}}
    _free = ("sigma", "a")

    noise: str | AdditiveMechanism = "gaussian"
    estimator: str | None = None

    def _check(self) -> None:
        super()._check()
        self._check_noise()

    @property
    def _no_mean(self) -> str | None:
        if self._is_gaussian and not isinstance(self.k, int):
            return "with Gaussian noise, only roots with a whole k have such an estimator"
        return super()._no_mean

    @property
    def _no_variance(self) -> bool:
        return self._is_laplace and self.a == 0 and 1 < self.k <= 1.5

    @property
    def _variance_rises(self) -> bool:
        return self.k == 1 or self.k >= 2

    def _gaussian_policy(self, sigma: float) -> RootPolicy:
        return RootPolicy(k=self.k, sigma=sigma, a=self.a)

    def _transform(self, q: Array) -> Array:
        return root(q + self.a, self.k)

    def _height(self, q: Array) -> Array:
        return root_rise(q, self.a, self.k)

    def _median_error(self, q: Array, shift: Array) -> Array:
        v = self._transform(q)
        with np.errstate(divide="ignore", invalid="ignore"):
            error = (q + self.a) * np.expm1(self.k * np.log1p(shift / v))
        return np.where(v == 0, shift**self.k, error)

    def _slopes(self, v: Array) -> tuple[Array, Array]:
        k = self.k
        # 0 to the power 0 is 1: the second derivative of a square is constant.
        return k * v ** (k - 1.0), k * (k - 1) * v ** (k - 2.0) if k != 1 else np.zeros_like(v)

    def _exact_slopes(self, v: Number, lift: Lift) -> tuple[Number, Number]:
        k = self.k
        if k == 1:
            return lift(1.0), lift(0.0)
        bend = exact_power(v, k - 2, lift) * lift(k) * lift(k - 1)
        return exact_power(v, k - 1, lift) * lift(k), bend

    @property
    def _laplace_turns(self) -> list[float]:
        return [self.sigma * math.sqrt((self.k - 1) * (self.k - 2))] if self.k > 2 else []

    def _exact_transform(self, q: Number, lift: Lift) -> Number:
        return exact_root(q + self.a, self.k, lift)

    def _exact_gaussian_estimate(self, v: Number, lift: Lift) -> Number:
        return self._hermite(v, lift(1.0)) - self.a

    def _exact_inverse(self, v: Number, lift: Lift) -> Number:
        return exact_power(v.max(exact_root(lift(self.a), self.k, lift)), self.k, lift) - self.a

    def _gaussian_estimate(self, v: Array) -> Array:
        return np.asarray(self._hermite(v, np.ones_like(v)) - self.a)

    def _hermite(self, v: Any, one: Any) -> Any:
        """σ^k·He_k(v/σ), by the recurrence of the Hermite polynomials scaled by σ."""
        before, now = one, v
        for n in range(1, self.k):
            before, now = now, v * now - before * self.sigma * self.sigma * float(n)
        return now

    def _turns(self, v: Array) -> Array:
        if self.estimator == "median" or self._is_laplace or self.k == 1:
            return super()._turns(v)
        zeros = self.sigma * special.roots_hermitenorm(self.k - 1)[0]  # He_k' = k·He_(k−1)
        return np.broadcast_to(zeros, (v.size, zeros.size))

    def _laplace_std(self, q: Array) -> Array:
        """Return the standard deviation for Laplace noise and whole k: a sum without cancellation.

        E[v^m; v >= v0] is the sum over j of C(m, j)·j!·b^j·μ^(m−j)·(1 ± P(j + 1, s))/2, with s = (μ − v0)/b, the
        regularized incomplete gamma function P, and + for even j.
        """
        k, b, v, depth = self.k, self.sigma, self._transform(q), self._height(q) / self.sigma
        total = np.exp(-depth) / 2 * (b * self._floor_slope) ** 2
        for m, factor in ((2 * k - 2, 2 * (b * k) ** 2), (2 * k - 4, (b * b * k * (k - 1)) ** 2)):
            for j in range(m + 1) if factor else ():
                share = 1 + special.gammainc(j + 1, depth) if j % 2 == 0 else special.gammaincc(j + 1, depth)
                total += factor * math.perm(m, j) * b**j * v ** (m - j) * share / 2
        return np.sqrt(total)

    def _std(self, q: Array) -> Array:
        if self._by_operator and isinstance(self.k, int) and self.k <= LARGEST_K:
            return self._laplace_std(q)
        if not self._is_gaussian or self.estimator == "median":
            return super()._std(q)
        v = self._transform(q)
        scale = np.maximum(v, self.sigma)
        i = np.arange(self.k)
        noise, value = np.log(self.sigma / scale)[:, None], (v / scale)[:, None]
        terms = self._log_coefficients() + 2 * (self.k - 1 - i) * noise + special.xlogy(2 * i, value)
        return np.asarray(self.sigma * scale ** (self.k - 1) * np.sqrt(np.exp(terms).sum(axis=1)))

    def _summed_cumulants(self, v: Array, groups: Any, counts: Array, miss: Array) -> tuple[Array, Array] | None:
        if self.estimator == "median":
            return None
        if self._is_laplace:
            return super()._summed_cumulants(v, groups, counts, miss)
        if self.k > LARGEST_K:
            return None
        second, fourth = root_cumulants(self.k)
        powers = range(1, max(len(second), len(fourth)))
        above = upper_power_sums(v, groups, counts, powers, self.sigma, miss)
        square = self.sigma**2
        with np.errstate(over="ignore"):
            found = [
                sum(
                    float(c) * square ** (of * self.k // 2 - m) * (above[m] if m else counts)
                    for m, c in enumerate(coefficients)
                    if c
                )
                for of, coefficients in ((2, second), (4, fourth))
            ]
        return np.asarray(found[0] + 0.0 * counts), np.asarray(found[1] + 0.0 * counts)

    def _variance_estimate(self, v: Array) -> Array:
        if self.estimator == "median" or self._is_laplace:
            return super()._variance_estimate(v)
        # Σ C(k, i)²·(k − i)!·σ^(2k)·He_2i(v/σ), in units of max(|v|, σ), so that no single term overflows.
        unit = np.maximum(np.abs(v), self.sigma)
        v, square = v / unit, (self.sigma / unit) ** 2
        coefficients = np.exp(self._log_coefficients())
        total = coefficients[0] * square**self.k
        before, now = np.ones_like(v), v
        for n in range(1, 2 * self.k - 1):
            before, now = now, v * now - n * square * before
            if n % 2:
                i = (n + 1) // 2
                total += coefficients[i] * square ** (self.k - i) * now
        return np.asarray(total * unit ** (2 * self.k))

    def _log_coefficients(self) -> Array:
        """ln of C(k, i)²·(k − i)! for i < k."""
        k, i = self.k, np.arange(self.k)
        if k <= 50:  # exact whole numbers, rounded once
            return np.array([math.log(math.comb(k, j) ** 2 * math.factorial(k - j)) for j in range(k)])
        return np.asarray(2 * (special.gammaln(k + 1) - special.gammaln(i + 1)) - special.gammaln(k - i + 1))
