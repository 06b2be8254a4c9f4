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
from slowscale.mechanisms.transformation import TransformationMechanism, check_estimator
from slowscale.policy import Policy, RootPolicy
from slowscale.sampling.balls import exact_root
from slowscale.sampling.samplers import Lift, Number

# The largest k for which sums of cells have intervals from moments.
LARGEST_K = 12


@dataclass(frozen=True, kw_only=True)
class Root(RootFamily, TransformationMechanism):
    """The kth root transformation (Corollary kth_root_transform): k = 1 identity, 2 square root, 4 fourth root.

    >>> m = Root(k=2, sigma=1, a=1)
    >>> [round(end) for end in m.prediction_interval(1000)]
    [879, 1127]
    """

    kind = "root"
    words = "The {total} is transformed by a root, Gaussian noise is added, and the result is transformed back."
    compared: ClassVar[Mapping[str, Mapping[str, Any]]] = {"fourth root": {"k": 4}}
    _free = ("sigma", "a")

    estimator: str = "mean"

    def _check(self) -> None:
        check_estimator(self.estimator)

    @property
    def policy(self) -> Policy:
        """((Δ + a)^(1/k) − a^(1/k))²/(2σ²)."""
        return RootPolicy(k=self.k, sigma=self.sigma, a=self.a)

    def _transform(self, q: Array) -> Array:
        return root(q + self.a, self.k)

    def _height(self, q: Array) -> Array:
        return root_rise(q, self.a, self.k)

    def _median_error(self, q: Array, shift: Array) -> Array:
        v = self._transform(q)
        with np.errstate(divide="ignore", invalid="ignore"):
            error = (q + self.a) * np.expm1(self.k * np.log1p(shift / v))
        return np.where(v == 0, shift**self.k, error)

    def _exact_transform(self, q: Number, lift: Lift) -> Number:
        return exact_root(q + self.a, self.k)

    def _exact_estimate(self, v: Number, lift: Lift) -> Number:
        if self.estimator == "median":
            return self._exact_inverse(v, lift)
        return self._hermite(v, lift(1.0)) - self.a

    def _exact_inverse(self, v: Number, lift: Lift) -> Number:
        return v.max(exact_root(lift(self.a), self.k)) ** self.k - self.a

    def _mean_estimate(self, v: Array) -> Array:
        return np.asarray(self._hermite(v, np.ones_like(v)) - self.a)

    def _hermite(self, v: Any, one: Any) -> Any:
        """σ^k·He_k(v/σ), by the recurrence of the Hermite polynomials scaled by σ."""
        before, now = one, v
        for n in range(1, self.k):
            before, now = now, v * now - before * self.sigma * self.sigma * float(n)
        return now

    def _turns(self, v: Array) -> Array:
        if self.estimator == "median" or self.k == 1:
            return super()._turns(v)
        zeros = self.sigma * special.roots_hermitenorm(self.k - 1)[0]  # He_k' = k·He_(k−1)
        return np.broadcast_to(zeros, (v.size, zeros.size))

    def _std(self, q: Array) -> Array:
        if self.estimator == "median":
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
        if self.estimator == "median":
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
