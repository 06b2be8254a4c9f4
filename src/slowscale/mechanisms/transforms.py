"""The transformations: roots (Corollary kth_root_transform), the logarithm (Corollary log_transform), arsinh for
sums of any sign, and user-given functions (Theorem transform).

For sums of cells, the cumulants of the error are bounded from noisy transformed values, by power sums of the true ones.

Let the noisy values be v = μ + σN with independent standard normal N, and let g be convex and change by at most the
Euclidean distance of its arguments. The noises with g(v) <= g(μ) − σz form a convex set at a distance of at least z
from 0. Such a set lies in a half-space at that distance, so its probability is at most Φ(−z). Hence g(μ) <= g(v) + σz
with probability Φ(z): one deviation for all cells together. It is used for g(v) = ‖max(v, 0)‖_p with p >= 2, and for
g(v) = ln(Σ exp(p·v))/p.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
from scipy import special

from slowscale.core.errors import ParameterError, ParameterTypeError, Shown
from slowscale.core.families import ArsinhFamily, LogFamily, RootFamily
from slowscale.core.formulas import check_concave, log1p_ratio, probes, root, root_rise
from slowscale.core.parameters import Array, apply, lazy, real
from slowscale.mechanisms.additive import AdditiveMechanism
from slowscale.mechanisms.appell import Appell, appell, exact_coefficients, has_moment, polynomial
from slowscale.mechanisms.drawing import fine_step
from slowscale.mechanisms.quadrature import interpolated
from slowscale.mechanisms.transformation import ROUNDOFF, TransformationMechanism
from slowscale.noise import GaussianNoise, SymmetricNoise
from slowscale.noise.from_policy import FromPolicyNoise
from slowscale.policy import ArsinhPolicy, Function, LogPolicy, RootPolicy, TransformationPolicy
from slowscale.sampling.balls import Ball, exact_power, exact_root
from slowscale.sampling.samplers import Lift, Number

# What the floating-point evaluation of a power sum may lose, relative to it.
POWER_SUM_ERROR = 1e-11


def upper_power_sums(
    v: Array, groups: Any, counts: Array, halves: Sequence[int], sigma: float, miss: Array
) -> dict[int, Array]:
    """Return bounds on Σ μ^(2m) over the cells of each group, for each m in `halves` and nonnegative μ.

    All bounds of a group hold together with probability 1 − miss. Published values were rounded to a fine grid.
    """
    reach = -special.ndtri(miss / max(len(halves), 1)) * sigma
    above = np.maximum(v, 0.0)
    found = {}
    with np.errstate(over="ignore", invalid="ignore"):
        for m in halves:
            norm = np.bincount(groups, above ** (2 * m), counts.size) ** (0.5 / m) * (1 + POWER_SUM_ERROR)
            found[m] = (norm + counts ** (0.5 / m) * fine_step(sigma) + reach) ** (2 * m)
    return found


def upper_exponential_sums(
    v: Array, groups: Any, counts: Array, orders: Sequence[int], sigma: float, miss: Array
) -> list[Array]:
    """Return bounds on Σ exp(p·μ) over the cells of each group, for each p >= 2 in `orders`; see `upper_power_sums`."""
    reach = -special.ndtri(miss / len(orders)) * sigma + fine_step(sigma)
    top = np.full(counts.size, -math.inf)
    np.maximum.at(top, groups, v)
    with np.errstate(over="ignore", invalid="ignore"):
        return [
            np.bincount(groups, np.exp(p * (v - top[groups])), counts.size)
            * np.exp(p * (top + reach + POWER_SUM_ERROR * (1 + np.abs(top))))
            for p in orders
        ]


@cache
def root_cumulants(k: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the variance and the fourth cumulant of He_k(μ + N) as polynomials in μ².

    He_k(μ + N) − μ^k is Σ C(k, j)·μ^(k−j)·He_j(N) over j >= 1. The coefficients are not negative, because joint
    cumulants of Hermite polynomials of normal variables count diagrams.
    """
    error = {k - j: {j: math.comb(k, j)} for j in range(1, k + 1)}  # powers of μ, in Hermite polynomials of N
    square: dict[int, dict[int, int]] = {}
    for (p, x), (q, y) in ((one, two) for one in error.items() for two in error.items()):
        place = square.setdefault(p + q, {})
        for (a, c), (b, d) in ((one, two) for one in x.items() for two in y.items()):
            for r in range(min(a, b) + 1):  # the product of two Hermite polynomials
                factor = math.comb(a, r) * math.comb(b, r) * math.factorial(r)
                place[a + b - 2 * r] = place.get(a + b - 2 * r, 0) + c * d * factor
    variance = [square.get(2 * m, {}).get(0, 0) for m in range(k)]
    fourth = [0] * (2 * k - 1)
    for (p, x), (q, y) in ((one, two) for one in square.items() for two in square.items()):
        if (p + q) % 2 == 0:
            fourth[(p + q) // 2] += sum(c * y[a] * math.factorial(a) for a, c in x.items() if a in y)
    for i, one in enumerate(variance):
        for j, two in enumerate(variance):
            fourth[i + j] -= 3 * one * two
    while len(fourth) > 1 and not fourth[-1]:
        fourth.pop()
    return tuple(variance), tuple(fourth)


# The largest k for which sums of cells have intervals from moments, and the largest one with Appell polynomials.
LARGEST_K = 12
# An estimate is far off if it is moved by this many times the upper end of a 95 % interval for an empty cell.
FAR_OFF = 10.0
# In scales of the noise: where the slope of its log-density is taken for that of the tail.
TAIL_DISTANCE = 1e200
# In scales of the noise: how far the first piece reaches on which a standard deviation is interpolated.
FIRST_PIECE = 4.0


@dataclass(frozen=True, kw_only=True)
class NamedTransformation(TransformationMechanism):
    """A transformation of the package: its standard deviation is a smooth function of the sum."""

    noise: str | AdditiveMechanism = "gaussian"
    estimator: str | None = None

    def _check(self) -> None:
        super()._check()
        self._check_noise()

    def _std(self, q: Array) -> Array:
        if self.estimator == "median" and not self._has_moment(2):
            return np.full_like(q, math.inf)
        # Its features are as wide as the noise, or as their distance from the edge: pieces double in width from there.
        start = self._floor if math.isfinite(self._floor) else 0.0
        distance = (self._transform(q) - start) / self.sigma
        pieces = np.copysign(np.floor(np.log2(1 + np.abs(distance) / FIRST_PIECE)), distance)
        return interpolated(super()._std, q, pieces)


class ExponentialTransformation(NamedTransformation):
    """A transformation whose inverse grows like an exponential function."""

    @property
    def _no_mean(self) -> str | None:
        if self._is_laplace and self.sigma >= 1:
            return f"with Laplace noise of scale 1 or more, {self.kind} has no such estimator"
        return super()._no_mean

    @property
    def _no_variance(self) -> bool:
        return self._is_laplace and self.sigma >= 0.5

    def _has_moment(self, order: int) -> bool:
        """Whether E exp(order·Z) is finite: whether the log-density falls by more than `order` per unit, far out."""
        noise = self._noise
        if isinstance(noise, GaussianNoise):
            return True
        far = np.array([TAIL_DISTANCE])
        return float(noise._standard()._drop_rise(far, far)[0]) / TAIL_DISTANCE / noise._scale > order


@dataclass(frozen=True, kw_only=True)
class Root(NamedTransformation, RootFamily):
    """The kth root transformation (Corollary kth_root_transform): k = 1 identity, 2 square root, 4 fourth root.

    `noise` is "gaussian" or "laplace", or additive noise of scale 1; sigma is its scale. Laplace noise has a
    mean-unbiased estimator for every k > 1, and Gaussian noise for whole k. Other noise with a moment of order k has
    one for whole k up to 12: the Appell polynomial of the noise (`mechanisms/appell.py`). The estimator is "mean" where
    it exists, has a variance and does not come from rare huge results, and otherwise "median".

    >>> m = Root(k=2, sigma=1, a=1)
    >>> [round(end) for end in m.prediction_interval(1000)]
    [879, 1127]
    >>> round(Root(k=2.5, sigma=1, noise="laplace").std(1000), 1)
    226.2
    """

    kind = "root"
    words = "The {total} is transformed by a root, noise is added, and the result is transformed back."
    compared: ClassVar[Mapping[str, Mapping[str, Any]]] = {"fourth root": {"k": 4}}
    _free = ("sigma", "a")

    @property
    def _no_mean(self) -> str | None:
        if self._is_laplace:
            return None
        if not isinstance(self.k, int):
            noise = "Gaussian" if self._is_gaussian else "this"
            return f"with {noise} noise, only roots with a whole k have such an estimator"
        if self._is_gaussian:
            return None
        if self.k > LARGEST_K:
            return f"with other noise than Gaussian and Laplace, k must be at most {LARGEST_K}"
        if self._standard_noise._exact_moments(0) is None:
            return "the moments of this noise are not known exactly"
        if not has_moment(self._standard_noise, self.k):
            return f"E|Z|^{self.k} must be finite, and not too large for a float"
        return None

    @lazy
    def _standard_noise(self) -> SymmetricNoise:
        """The noise in units of `_unit`; where other scales would be rounded, the noise itself."""
        noise = self._noise
        return noise if isinstance(noise, FromPolicyNoise) else noise._standard()

    @property
    def _unit(self) -> float:
        return 1.0 if isinstance(self._noise, FromPolicyNoise) else self._noise.sigma

    @property
    def _by_polynomial(self) -> bool:
        """Whether the estimate is the Appell polynomial of noise that is neither Gaussian nor Laplace."""
        return self.estimator == "mean" and not (self._is_gaussian or self._is_laplace)

    @property
    def _mean_is_rare(self) -> bool:
        """Whether the mean estimate of an empty cell is usually far outside of an interval for the sum.

        Noise with heavy tails has moments that come from rare huge values, and subtracts them from all estimates.
        """
        if self._is_gaussian or self._is_laplace or self._no_mean is not None:
            return False
        noise = self._standard_noise
        usual = np.array([0.0, noise.isf(0.25)])
        moved = np.abs(polynomial(self._appell.estimate, self._order, usual, 1.0) - usual**self._order)
        return bool(moved.max() > FAR_OFF * noise.isf(0.025) ** self._order)

    @property
    def _appell(self) -> Appell:
        return appell(self._standard_noise, self._order)

    @property
    def _order(self) -> int:
        """k, where the formulas need a whole number."""
        assert isinstance(self.k, int)
        return self.k

    @property
    def _no_variance(self) -> bool:
        if self._is_gaussian:
            return False
        if self._is_laplace:
            return self.a == 0 and 1 < self.k <= 1.5
        return isinstance(self.k, int) and not has_moment(self._standard_noise, 2 * self.k)

    def _has_moment(self, order: int) -> bool:
        return order * self.k < self._noise._tail_power - 1

    @property
    def _variance_rises(self) -> bool:
        if self._by_polynomial:
            return not self._no_variance and bool((self._appell.variance >= 0).all())
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

    def _exact_analytic_estimate(self, v: Number, lift: Lift) -> Number:
        if self._is_gaussian:
            return self._hermite(v, lift(1.0)) - self.a
        coefficients = exact_coefficients(self._standard_noise, self._order, v)
        return polynomial(coefficients, self._order, v, lift(self._unit)) - self.a

    def _exact_inverse(self, v: Number, lift: Lift) -> Number:
        return exact_power(v.max(exact_root(lift(self.a), self.k, lift)), self.k, lift) - self.a

    def _analytic_estimate(self, v: Array) -> Array:
        if self._is_gaussian:
            return np.asarray(self._hermite(v, np.ones_like(v)) - self.a)
        with np.errstate(over="ignore"):
            return np.asarray(polynomial(self._appell.estimate, self._order, v, self._unit) - self.a)

    def _hermite(self, v: Any, one: Any) -> Any:
        """σ^k·He_k(v/σ), by the recurrence of the Hermite polynomials scaled by σ."""
        before, now = one, v
        for n in range(1, self._order):
            before, now = now, v * now - before * self.sigma * self.sigma * float(n)
        return now

    def _turns(self, v: Array) -> Array:
        if self.estimator == "median" or self._is_laplace or self.k == 1:
            return super()._turns(v)
        if self._is_gaussian:
            zeros = self.sigma * special.roots_hermitenorm(self.k - 1)[0]  # He_k' = k·He_(k−1)
        else:
            zeros = self._unit * self._appell.turns
        return np.broadcast_to(zeros, (v.size, zeros.size))

    def _laplace_std(self, q: Array) -> Array:
        """Return the standard deviation for Laplace noise and whole k: a sum without cancellation.

        E[v^m; v >= v0] is the sum over j of C(m, j)·j!·b^j·μ^(m−j)·(1 ± P(j + 1, s))/2, with s = (μ − v0)/b, the
        regularized incomplete gamma function P, and + for even j.
        """
        k, b, v, depth = self._order, self.sigma, self._transform(q), self._height(q) / self.sigma
        total = np.exp(-depth) / 2 * (b * self._floor_slope) ** 2
        for m, factor in ((2 * k - 2, 2 * (b * k) ** 2), (2 * k - 4, (b * b * k * (k - 1)) ** 2)):
            for j in range(m + 1) if factor else ():
                share = 1 + special.gammainc(j + 1, depth) if j % 2 == 0 else special.gammaincc(j + 1, depth)
                total += factor * math.perm(m, j) * b**j * v ** (m - j) * share / 2
        return np.sqrt(total)

    def _std(self, q: Array) -> Array:
        if self._by_operator and isinstance(self.k, int) and self.k <= LARGEST_K:
            return self._laplace_std(q)
        if self._by_polynomial:
            return self._polynomial_std(q)
        if not self._is_gaussian or self.estimator == "median":
            return super()._std(q)
        v = self._transform(q)
        scale = np.maximum(v, self.sigma)
        i = np.arange(self.k)
        noise, value = np.log(self.sigma / scale)[:, None], (v / scale)[:, None]
        terms = self._log_coefficients() + 2 * (self.k - 1 - i) * noise + special.xlogy(2 * i, value)
        return np.asarray(self.sigma * scale ** (self.k - 1) * np.sqrt(np.exp(terms).sum(axis=1)))

    def _polynomial_std(self, q: Array) -> Array:
        if self._no_variance:
            return np.full_like(q, math.inf)
        k, scale = self._order, self._unit
        v = self._transform(q)
        unit = np.maximum(v, scale)  # so that no single term overflows
        terms = polynomial(self._appell.variance, 2 * k - 2, v / unit, scale / unit)
        return np.asarray(scale * unit ** (k - 1) * np.sqrt(terms))

    def _summed_cumulants(self, v: Array, groups: Any, counts: Array, miss: Array) -> tuple[Array, Array] | None:
        if self.estimator == "median":
            return None
        if not self._is_gaussian:
            return super()._summed_cumulants(v, groups, counts, miss)
        if self.k > LARGEST_K:
            return None
        second, fourth = root_cumulants(self._order)
        powers = range(1, max(len(second), len(fourth)))
        above = upper_power_sums(v, groups, counts, powers, self.sigma, miss)
        square = self.sigma**2
        with np.errstate(over="ignore"):
            found = [
                sum(
                    float(c) * square ** (of * self._order // 2 - m) * (above[m] if m else counts)
                    for m, c in enumerate(coefficients)
                    if c
                )
                for of, coefficients in ((2, second), (4, fourth))
            ]
        return np.asarray(found[0] + 0.0 * counts), np.asarray(found[1] + 0.0 * counts)

    def _variance_estimate(self, v: Array) -> Array:
        if self.estimator == "median" or self._is_laplace:
            return super()._variance_estimate(v)
        if self._by_polynomial:
            if self._no_variance:
                return np.full_like(v, math.inf)
            scale, unit = self._unit, np.maximum(np.abs(v), self._unit)
            terms = polynomial(self._appell.variance_estimate, 2 * self._order - 2, v / unit, scale / unit)
            return np.asarray((scale * unit ** (self._order - 1)) ** 2 * terms)
        # Σ C(k, i)²·(k − i)!·σ^(2k)·He_2i(v/σ), in units of max(|v|, σ), so that no single term overflows.
        k, unit = self._order, np.maximum(np.abs(v), self.sigma)
        v, square = v / unit, (self.sigma / unit) ** 2
        coefficients = np.exp(self._log_coefficients())
        total = coefficients[0] * square**k
        before, now = np.ones_like(v), v
        for n in range(1, 2 * k - 1):
            before, now = now, v * now - n * square * before
            if n % 2:
                i = (n + 1) // 2
                total += coefficients[i] * square ** (k - i) * now
        return np.asarray(total * unit ** (2 * k))

    def _log_coefficients(self) -> Array:
        """ln of C(k, i)²·(k − i)! for i < k."""
        k, i = self._order, np.arange(self._order)
        if k <= 50:  # exact whole numbers, rounded once
            return np.array([math.log(math.comb(k, j) ** 2 * math.factorial(k - j)) for j in range(k)])
        return np.asarray(2 * (special.gammaln(k + 1) - special.gammaln(i + 1)) - special.gammaln(k - i + 1))


@dataclass(frozen=True, kw_only=True)
class Log(ExponentialTransformation, LogFamily):
    """The log transformation (Corollary log_transform): the error grows in proportion to the sum.

    `noise` is "gaussian" or "laplace", or additive noise of scale 1; sigma is its scale. With Laplace noise, the mean
    estimate exists for sigma < 1, and has a variance for sigma < 1/2. The estimator is "mean" where it exists and has a
    variance, and otherwise "median".

    >>> m = Log(sigma=1)
    >>> [round(end) for end in m.prediction_interval(1000)]
    [85, 4309]
    """

    kind = "log"
    words = "The {total} is transformed by a logarithm, noise is added, and the result is transformed back."
    compared: ClassVar[Mapping[str, Mapping[str, Any]]] = {"log": {}}
    _free = ("sigma", "a")

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
    def _floor_slope(self) -> float:
        return self.a

    def _exact_analytic_estimate(self, v: Number, lift: Lift) -> Number:
        return (v - lift(self.sigma) * self.sigma * 0.5).exp() - self.a

    def _exact_inverse(self, v: Number, lift: Lift) -> Number:
        return v.exp().max(lift(self.a)) - self.a

    def _analytic_estimate(self, v: Array) -> Array:
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


@dataclass(frozen=True, kw_only=True)
class Arsinh(ExponentialTransformation, ArsinhFamily):
    """arsinh(q/s) plus noise, for sums of any sign: the error is about s·σ for small sums, and relative for large ones.

    `noise` is "gaussian" or "laplace", or additive noise of scale 1; sigma is its scale. With Laplace noise, the mean
    estimate exists for sigma < 1, and has a variance for sigma < 1/2.

    >>> m = Arsinh(s=1000, sigma=0.1, noise="laplace")
    >>> [round(m.std(q)) for q in (-1e6, 0, 1e6)]
    [144698, 143, 144698]
    """

    kind = "arsinh"
    words = "The {total} is transformed by arsinh, noise is added, and the result is transformed back."
    _free = ("sigma", "s")
    _needs_nonnegative = False
    a = 0.0

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

    def _analytic_estimate(self, v: Array) -> Array:
        return self._shrinkage * self._invert(v)

    _mean_estimate = _analytic_estimate

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
            return np.bincount(groups, largest, counts.size).astype(float), np.full(counts.size, math.inf)

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

    def _exact_analytic_estimate(self, v: Number, lift: Lift) -> Number:
        b = lift(self.sigma)
        shrinkage = lift(1.0) - b * b if self._is_laplace else (-(b * b) * 0.5).exp()
        return v.sinh() * lift(self.s) * shrinkage

    def _exact_estimate(self, v: Number, lift: Lift) -> Number:
        return self._exact_inverse(v, lift) if self.estimator == "median" else self._exact_analytic_estimate(v, lift)

    def _exact_inverse(self, v: Number, lift: Lift) -> Number:
        return v.sinh() * lift(self.s)


@dataclass(frozen=True)
class Transformation(TransformationMechanism):
    """Any concave, strictly increasing f on [a, ∞) with its inverse (Theorem transform).

    When the mechanism is created, it is checked numerically that f is increasing and concave, that `inverse` is its
    inverse, and that `slope` and `bend` are the first and the second derivative of the inverse, if they are given. The
    estimator is "median" (Theorem mdnUnbiasTransform), or "mean" for Laplace noise and an inverse with these
    derivatives, or a function of the noisy transformed value.

    >>> import numpy as np
    >>> m = Transformation(np.arcsinh, np.sinh, sigma=0.5, a=0)
    >>> round(m.policy(1000), 2)
    115.55
    >>> derivatives = {"slope": np.cosh, "bend": np.sinh}
    >>> m = Transformation(np.arcsinh, np.sinh, sigma=0.1, a=0, noise="laplace", estimator="mean", **derivatives)
    >>> round(m.std(0), 4)
    0.1233
    """

    kind = "transformation"
    words = "The {total} is transformed by a function, noise is added, and the result is transformed back."
    _free = ("sigma", "a")

    @classmethod
    def _range(cls, name: str, fixed: dict[str, Any]) -> tuple[float, float]:
        low, high = super()._range(name, fixed)
        return max(low, 0.0), high  # offsets below 0 are allowed, but calibration does not search them

    f: Callable[[Any], Any]
    inverse: Callable[[Any], Any]
    sigma: float = real(above=0, typical=(0.01, 100))
    a: float = real(typical=(0, 100))
    estimator: str | Function = "median"
    noise: str | AdditiveMechanism = "gaussian"
    slope: Callable[[Any], Any] | None = None
    bend: Callable[[Any], Any] | None = None

    def _check(self) -> None:
        for name in ("f", "inverse", "slope", "bend"):
            given = getattr(self, name)
            if not callable(given) and not (given is None and name in ("slope", "bend")):
                raise ParameterTypeError(name, allowed="a function", given=given)
        if not callable(self.estimator) and self.estimator not in ("mean", "median"):
            raise ParameterError("estimator", allowed='"mean", "median" or a function', given=self.estimator)
        self._check_noise(functions=True)
        check_concave(self.f, self.a)
        _check_inverse(self.f, self.inverse, self.a, self.sigma, isinstance(self.estimator, str))
        if self.slope is not None and self.bend is not None:
            _check_derivatives(self.inverse, self.slope, self.bend, self._floor, self.sigma)

    @property
    def _no_mean(self) -> str | None:
        if not self._is_laplace:
            return "only Laplace noise has such an estimator for a user-given function"
        missing = self.slope is None or self.bend is None
        return "it needs slope and bend, the derivatives of the inverse" if missing else None

    def _gaussian_policy(self, sigma: float) -> TransformationPolicy:
        return TransformationPolicy(self.f, sigma, self.a)

    def _slopes(self, v: Array) -> tuple[Array, Array]:
        assert self.slope is not None
        assert self.bend is not None
        return apply(self.slope, v), apply(self.bend, v)

    def _exact_slopes(self, v: Number, lift: Lift) -> tuple[Number, Number]:
        assert self.slope is not None
        assert self.bend is not None
        return self._in_arb("slope", self.slope, v), self._in_arb("bend", self.bend, v)

    def _transform(self, q: Array) -> Array:
        return apply(self.f, q + self.a)

    def _height(self, q: Array) -> Array:
        return self._transform(q) - self._floor

    def _median_error(self, q: Array, shift: Array) -> Array:
        return apply(self.inverse, self._transform(q) + shift) - self.a - q

    def _exact_transform(self, q: Number, lift: Lift) -> Number:
        return self._in_arb("f", self.f, q + self.a)

    def _exact_estimate(self, v: Number, lift: Lift) -> Number:
        if not isinstance(self.estimator, str):
            return self._in_arb("estimator", self.estimator, v)
        return super()._exact_estimate(v, lift)

    def _exact_analytic_estimate(self, v: Number, lift: Lift) -> Number:
        raise AssertionError("refused when the mechanism was made")

    def _exact_inverse(self, v: Number, lift: Lift) -> Number:
        least = self._in_arb("f", self.f, lift(self.a))
        return self._in_arb("inverse", self.inverse, v.max(least)) - self.a

    def _in_arb(self, name: str, function: Function, x: Number) -> Number:
        """Apply a user-given function to an Arb ball; for float balls return NaN, so that Arb decides."""
        if isinstance(x, Ball):
            return Ball(np.full(np.shape(x.mid), np.nan))
        cause: Exception | None = None
        try:
            result = function(x)
        except Exception as error:
            result = cause = error  # its text may hold the sum, so that only its type is shown
        if type(result) is not type(x):
            raise ParameterTypeError(
                name,
                "must work on flint.arb numbers, because a release is exact: floats would weaken the privacy guarantee",
                code="not-exact",
                given=type(result),
                remedy="numpy's sqrt, log, exp, log1p, expm1 and square and plain arithmetic do; otherwise use the "
                "methods of flint.arb",
            ) from cause
        return result

    def _analytic_estimate(self, v: Array) -> Array:
        raise AssertionError("refused when the mechanism was made")

    def _turns(self, v: Array) -> Array:
        if self.estimator == "median":
            return super()._turns(v)
        found = [_turning_points(self._estimate, float(middle), self._span) for middle in v]
        width = max(map(len, found))
        return np.array([points + [math.inf] * (width - len(points)) for points in found]).reshape(v.size, width)


def _turning_points(function: Callable[[Array], Array], middle: float, half: float) -> list[float]:
    """Return the turning points of a function on middle ± half, found on a fine grid and then refined."""
    from scipy.optimize import minimize_scalar

    x = middle + half * np.linspace(-1, 1, 4001)
    rises = np.sign(np.diff(function(x)))
    turns = np.flatnonzero(rises[:-1] * rises[1:] < 0)
    return [
        float(
            minimize_scalar(
                lambda t, sign=rises[i + 1]: sign * float(function(np.array([t]))[0]),
                bounds=(x[i], x[i + 2]),
                method="bounded",
                options={"xatol": 1e-9 * half},
            ).x
        )
        for i in turns
    ]


def _check_derivatives(
    inverse: Callable[[Any], Any], slope: Callable[[Any], Any], bend: Callable[[Any], Any], start: float, sigma: float
) -> None:
    """Raise unless `slope` and `bend` are derivatives of the inverse from `start` on, whose slope has no jumps."""
    nodes, weights = np.polynomial.legendre.leggauss(20)
    ends = start + sigma * np.linspace(0.0, 8.0, 65)
    middle, half = (ends[1:] + ends[:-1]) / 2, np.diff(ends) / 2
    at = middle[:, None] + half[:, None] * nodes
    for name, function, derivative in (("slope", inverse, slope), ("bend", slope, bend)):
        risen = np.diff(apply(function, ends))
        added = half * (apply(derivative, at.ravel()).reshape(at.shape) @ weights)
        wrong = ~(
            np.abs(risen - added) <= 1e-6 * (np.abs(risen) + np.abs(added)) + 1e-12 * np.abs(apply(function, ends[1:]))
        )
        wrong[0] = False  # the slope may be infinite at the start
        if wrong.any():
            of = "inverse" if name == "slope" else "slope"
            raise ParameterError(
                name,
                f"must be the derivative of `{of}`, which must not jump",
                code="mismatch",
                given=Shown(
                    f"between {ends[:-1][wrong][0]:g} and {ends[1:][wrong][0]:g}, {of} rises by {risen[wrong][0]:g}, "
                    f"and the integral of {name} is {added[wrong][0]:g}"
                ),
            )


def _check_inverse(
    f: Callable[[Any], Any], inverse: Callable[[Any], Any], a: float, sigma: float, beyond: bool
) -> None:
    """Raise unless `inverse` is the inverse of f on [a, ∞) and, if `beyond`, rises above all values of f as well."""
    x = probes(a)
    y, back = apply(f, x), apply(inverse, apply(f, x))
    with np.errstate(all="ignore"):
        slope = np.diff(y) / np.diff(x)
        rounding = 8 * np.finfo(float).eps * np.abs(y) / np.append(slope, slope[-1])
    wrong = ~(np.abs(back - x) <= 1e-6 * (np.abs(x) + np.abs(a)) + rounding + 1e-9)
    if wrong.any():
        given = Shown(f"inverse(f({x[wrong][0]:g})) = {back[wrong][0]:g}")
        raise ParameterError("inverse", allowed="the inverse of `f`", given=given)
    above = apply(inverse, y[-1] + sigma * np.array([0.0, 1.0, 5.0, 20.0]))
    if beyond and not (np.diff(np.minimum(above, 1e308)) >= 0).all():
        raise ParameterError(
            "f",
            "must grow without bound for a median estimator: each transformed value must be that of a sum",
            code="bounded",
            given=Shown(f"inverse({y[-1] + sigma:g}) = {above[1]:g}"),
            remedy="pass a function as `estimator` instead",
        )
