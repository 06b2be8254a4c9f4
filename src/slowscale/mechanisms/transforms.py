"""The transformations: roots (Corollary kth_root_transform), the logarithm (Corollary log_transform), and user-given
functions (Theorem transform).

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
from slowscale.core.families import LogFamily, RootFamily
from slowscale.core.formulas import check_concave, log1p_ratio, probes, root, root_rise
from slowscale.core.parameters import Array, apply, real
from slowscale.mechanisms.drawing import fine_step
from slowscale.mechanisms.transformation import NOISE_SPAN, TransformationMechanism, check_estimator
from slowscale.policy import Function, LogPolicy, Policy, RootPolicy, TransformationPolicy
from slowscale.sampling.balls import Ball, exact_root
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


@dataclass(frozen=True, kw_only=True)
class Log(LogFamily, TransformationMechanism):
    """The log transformation (Corollary log_transform): the error grows in proportion to the sum.

    >>> m = Log(sigma=1)
    >>> [round(end) for end in m.prediction_interval(1000)]
    [85, 4309]
    """

    kind = "log"
    words = "The {total} is transformed by a logarithm, Gaussian noise is added, and the result is transformed back."
    compared: ClassVar[Mapping[str, Mapping[str, Any]]] = {"log": {}}
    _free = ("sigma", "a")

    estimator: str = "mean"

    def _check(self) -> None:
        check_estimator(self.estimator)

    @property
    def policy(self) -> Policy:
        """(ln(Δ + a) − ln a)²/(2σ²)."""
        return LogPolicy(sigma=self.sigma, a=self.a)

    def _transform(self, q: Array) -> Array:
        return math.log(self.a) + self._height(q)

    def _height(self, q: Array) -> Array:
        return log1p_ratio(q, self.a)

    def _median_error(self, q: Array, shift: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.asarray((q + self.a) * np.expm1(shift))

    def _exact_transform(self, q: Number, lift: Lift) -> Number:
        return (q + self.a).log()

    def _exact_estimate(self, v: Number, lift: Lift) -> Number:
        if self.estimator == "median":
            return self._exact_inverse(v, lift)
        return (v - lift(self.sigma) * self.sigma * 0.5).exp() - self.a

    def _exact_inverse(self, v: Number, lift: Lift) -> Number:
        return v.exp().max(lift(self.a)) - self.a

    def _mean_estimate(self, v: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(v - self.sigma * self.sigma / 2) - self.a)

    def _std(self, q: Array) -> Array:
        if self.estimator == "median":
            return super()._std(q)
        square = np.float64(self.sigma) ** 2
        with np.errstate(over="ignore"):
            return np.asarray((q + self.a) * np.exp(square / 2) * np.sqrt(-np.expm1(-square)))

    def _summed_cumulants(self, v: Array, groups: Any, counts: Array, miss: Array) -> tuple[Array, Array] | None:
        # The error is (q + a)·(Y − 1) with a lognormal variable Y of mean 1.
        if self.estimator == "median":
            return None
        with np.errstate(over="ignore", invalid="ignore"):
            second, fourth = upper_exponential_sums(v, groups, counts, (2, 4), self.sigma, miss)
            grown = np.expm1(np.float64(self.sigma) ** 2)
            w = grown + 1
            # w⁴ + 2w³ + 3w² − 6 = (w − 1)·(w³ + 3w² + 6w + 6)
            return grown * second, grown**3 * (w**3 + 3 * w**2 + 6 * w + 6) * fourth

    def _moments(self, q: Array) -> tuple[Array, Array]:
        if self.estimator == "mean" or self.sigma < 1:
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
        if self.estimator == "median":
            return super()._variance_estimate(v)
        with np.errstate(over="ignore"):
            square = np.float64(self.sigma) ** 2
            return np.asarray(-np.expm1(-square) * np.exp(2 * v - square))


@dataclass(frozen=True)
class Transformation(TransformationMechanism):
    """Any concave, strictly increasing f on [a, ∞) with its inverse (Theorem transform).

    When the mechanism is created, it is checked numerically that f is increasing and concave and that `inverse` is its
    inverse. The estimator is "median" (Theorem mdnUnbiasTransform) or a function of the noisy transformed value.

    >>> import numpy as np
    >>> m = Transformation(np.arcsinh, np.sinh, sigma=0.5, a=0)
    >>> round(m.policy(1000), 2)
    115.55
    """

    kind = "transformation"
    words = "The {total} is transformed by a function, Gaussian noise is added, and the result is transformed back."
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

    def _check(self) -> None:
        for name in ("f", "inverse"):
            if not callable(getattr(self, name)):
                raise ParameterTypeError(name, allowed="a function", given=getattr(self, name))
        if not callable(self.estimator) and not (isinstance(self.estimator, str) and self.estimator == "median"):
            raise ParameterError("estimator", allowed='"median" or a function', given=self.estimator)
        check_concave(self.f, self.a)
        _check_inverse(self.f, self.inverse, self.a, self.sigma, self.estimator == "median")

    @property
    def policy(self) -> Policy:
        """(f(Δ + a) − f(a))²/(2σ²)."""
        return TransformationPolicy(self.f, self.sigma, self.a)

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
        return self._exact_inverse(v, lift)

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

    def _mean_estimate(self, v: Array) -> Array:
        raise ParameterError("estimator", allowed='"median" or a function')

    def _turns(self, v: Array) -> Array:
        if self.estimator == "median":
            return super()._turns(v)
        found = [_turning_points(self._estimate, float(middle), NOISE_SPAN * self.sigma) for middle in v]
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
