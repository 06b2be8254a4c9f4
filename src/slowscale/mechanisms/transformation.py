"""Transformation mechanisms: g(f(q + a) + Z) for a sum q >= 0 and any noise Z (Algorithm transform).

f is concave and strictly increasing. The estimator g transforms back: it is unbiased in the mean, or unbiased in the
median with the least risk (Theorem mdnUnbiasTransform). The error grows with q, so the standard error and the interval
of an estimate are computed from the noisy transformed value, not from q.

Gaussian noise has a mean-unbiased estimator for roots and logarithms (Theorem meanUnbiasTransform). Laplace noise of
scale b has one for every smooth f: its density is Green's function of 1 − b²·d²/dv². With h = f⁻¹,

    g(v) = h(v) − b²·h''(v) − a for v >= f(a), and −b·h'(f(a)) below,

which has the least variance of all unbiased functions of the noisy transformed value, and its variance has the unbiased
estimate 2b²·h'(v)² + b⁴·h''(v)² for v >= f(a), and b²·h'(f(a))² below: the same operator, applied to (h − a)².

Other noise has one for roots with a whole k, as far as its moments exist (`appell.py`).
"""

import math
from abc import abstractmethod
from contextlib import suppress
from dataclasses import fields, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, overload

import numpy as np
from scipy import special

from slowscale.core.errors import ParameterError, ParameterTypeError, Shown
from slowscale.core.parameters import Array, apply, evaluate, lazy, level_quantile
from slowscale.core.typing import ArrayLike, NumberArray, Scalar, UnitLike
from slowscale.mechanisms.additive import AdditiveMechanism
from slowscale.mechanisms.base import ESTIMATORS, Mechanism, Noisy
from slowscale.mechanisms.drawing import draw_transformed, fine_step
from slowscale.mechanisms.exact_sums import Sums
from slowscale.mechanisms.families import Gaussian, Laplace, UnitSplitting
from slowscale.mechanisms.grid import as_unit, ceilings, compact, elementwise, floats, floors, shaped, values
from slowscale.mechanisms.quadrature import error_moments, exact_coverage, tail_moments
from slowscale.noise import GaussianNoise, SymmetricNoise
from slowscale.policy import Certificate, ComposedPolicy, Policy, TransformingPolicy
from slowscale.sampling import Bits, BitSource
from slowscale.sampling.balls import if_positive
from slowscale.sampling.exact import exact_bounds, upper_logarithm
from slowscale.sampling.samplers import Lift, Number

# Beyond the noise that is considered lies less than this share of all draws.
BEYOND_SPAN = 1e-30
# The noise counts as wide if the middle half of the outputs spans at least this many units.
WIDE_SPREAD = 20.0
# Bounds on the relative rounding error of floating-point formulas, for a sum and for a transformed value. Interval
# ends are moved outwards by them.
ROUNDOFF, MARGIN = 2.0**-50, 2.0**-46
# Transformed values of at least this many standard deviations of the noise are inverted in Arb: floats are too coarse.
INVERTED_IN_ARB = 2.0**30
# Larger noise than that with this probability is drawn in no release.
FARTHEST_TAIL = 1e-300
# The most digits of an estimate in units. More could be computed, but Python writes no more than 4300.
MOST_ESTIMATE_DIGITS = 4000


# The noises that are known by name.
NOISES: dict[str, type[AdditiveMechanism]] = {"gaussian": Gaussian, "laplace": Laplace}


def is_noise(cls: type) -> bool:
    """Whether the noise of a class of mechanisms can be added to transformed sums."""
    return issubclass(cls, AdditiveMechanism) and not issubclass(cls, UnitSplitting)


def scale_name(cls: Any) -> str:
    """Return the name of the parameter that is the scale of the noise."""
    return "scale" if "scale" in {f.name for f in fields(cls)} else "sigma"


class TransformationMechanism(Mechanism):
    """g(f(q + a) + Z): the noise is added to the transformed sum."""

    _error_grows = True
    _needs_nonnegative = True

    sigma: float
    a: float
    noise: Any
    estimator: Any

    @lazy
    def added(self) -> AdditiveMechanism:
        """The noise, as the mechanism that adds it to the transformed sum."""
        if isinstance(self.noise, str):
            return NOISES[self.noise](sigma=self.sigma)
        scaled: AdditiveMechanism = replace(self.noise, **{scale_name(type(self.noise)): self.sigma})
        return scaled

    @property
    def _noise(self) -> SymmetricNoise:
        """The distribution of the noise."""
        return self.added.noise

    @property
    def _is_gaussian(self) -> bool:
        return isinstance(self.added, Gaussian)

    @property
    def _is_laplace(self) -> bool:
        return isinstance(self.added, Laplace)

    @property
    def _by_operator(self) -> bool:
        """Whether the mean estimate is the one of Laplace noise."""
        return self._is_laplace and self.estimator == "mean"

    @abstractmethod
    def _gaussian_policy(self, sigma: float) -> TransformingPolicy:
        """Return the policy of this transformation with Gaussian noise of scale σ."""

    @property
    def policy(self) -> Policy:
        """The policy of the noise at f(Δ + a) − f(a); for Gaussian noise (f(Δ + a) − f(a))²/(2σ²)."""
        if self._is_gaussian:
            return self._gaussian_policy(self.sigma)
        return ComposedPolicy(self.added.policy, self._gaussian_policy(1.0))

    @property
    def pure_policy(self) -> Policy | None:
        """The PRDP policy of the noise at f(Δ + a) − f(a), or None if the noise has none, as Gaussian noise."""
        pure = self.added.pure_policy
        return None if pure is None else ComposedPolicy(pure, self._gaussian_policy(1.0))

    @property
    def tight_policy(self) -> Policy:
        """The tight policy of the noise at f(Δ + a) − f(a)."""
        return self.policy if self._is_gaussian else ComposedPolicy(self.added.tight_policy, self._gaussian_policy(1.0))

    def tight_loss(self, influence: float) -> float:
        """Return the tight loss of one record size, with more digits than `tight_policy` has."""
        policy = self.tight_policy
        return policy.value(influence) if isinstance(policy, ComposedPolicy) else policy(influence)

    def tight_certificate(self) -> Certificate:
        """Return what proves the tight policy of the noise."""
        return self.added.tight_certificate()

    def _check_noise(self, functions: bool = False) -> None:
        """Raise unless the noise is known and has the estimator; choose the estimator if none was given."""
        known = is_noise(type(self.noise))
        if isinstance(self.noise, str) and self.noise in NOISES:
            known = True
        elif known and self.noise.sigma != 1:
            raise ParameterError("noise", allowed="of scale 1, because sigma is the scale", given=self.noise)
        if not known:
            raise ParameterError(
                "noise",
                allowed=f"{' or '.join(map(repr, NOISES))}, or additive noise of scale 1 such as ss.ArsinhNormal(…)",
                given=self.noise,
            )
        if self.estimator is None:
            unfit = self._no_mean is not None or self._no_variance or self._mean_is_rare
            self._set("estimator", "median" if unfit else "mean")
        if not (functions and callable(self.estimator)):
            check_estimator(self.estimator)
        if self.estimator == "mean" and (why := self._no_mean) is not None:
            raise ParameterError("estimator", f'must not be "mean": {why}', remedy='use "median"', code="no-mean")

    @property
    def _no_mean(self) -> str | None:
        """Why there is no mean-unbiased estimator for this transformation and noise; None if there is one."""
        return (
            None if self._is_gaussian or self._is_laplace else "only Gaussian and Laplace noise have such an estimator"
        )

    @property
    def _no_variance(self) -> bool:
        """Whether the mean-unbiased estimator has no variance."""
        return False

    @property
    def _mean_is_rare(self) -> bool:
        """Whether the mean of the mean-unbiased estimator comes from rare huge results."""
        return False

    @property
    def _missing_moments(self) -> str:
        if not self._has_moment(1):
            return "no mean and no variance"
        unknown = self.estimator == "mean" and self._no_variance
        return "no variance" if unknown or not self._has_moment(2) else ""

    def _has_moment(self, order: int) -> bool:
        """Whether the median estimate has a moment of this order; True if it is not known."""
        return True

    @abstractmethod
    def _slopes(self, v: Array) -> tuple[Array, Array]:
        """Return h'(v) and h''(v) of the inverse h = f⁻¹, for v >= f(a)."""

    @abstractmethod
    def _exact_slopes(self, v: Number, lift: Lift) -> tuple[Number, Number]:
        """h'(v) and h''(v), in balls."""

    @abstractmethod
    def _transform(self, q: Array) -> Array:
        """f(q + a)."""

    @abstractmethod
    def _height(self, q: Array) -> Array:
        """f(q + a) − f(a), without cancellation where f is known."""

    @abstractmethod
    def _median_error(self, q: Array, shift: Array) -> Array:
        """f⁻¹(f(q + a) + shift) − a − q, without cancellation where f is known, for f(q + a) + shift >= f(a)."""

    @abstractmethod
    def _analytic_estimate(self, v: Array) -> Array:
        """Return the mean-unbiased estimate of noise other than Laplace: a formula that holds for all v."""

    def _mean_estimate(self, v: Array) -> Array:
        """Return the mean-unbiased estimate from the noisy transformed value."""
        if not self._is_laplace:
            return self._analytic_estimate(v)
        inside = np.maximum(v, self._floor)
        with np.errstate(all="ignore"):
            above = self._invert(inside) - self.sigma * self.sigma * self._slopes(inside)[1]
        return np.where(v >= self._floor, above, -self.sigma * self._floor_slope)

    @lazy
    def _floor_slope(self) -> float:
        """h'(f(a)) = 1/f'(a)."""
        with np.errstate(all="ignore"):
            return float(self._slopes(np.array([self._floor]))[0][0])

    def _turns(self, v: Array) -> Array:
        """Return the points between which the estimator is monotone, in ascending order; one row per v."""
        points = [self._floor] if self.estimator == "median" else []
        if self._by_operator:  # the estimate jumps at f(a)
            floor = self._floor
            points = [np.nextafter(floor, -math.inf), floor, *(turn for turn in self._laplace_turns if turn > floor)]
        return np.broadcast_to(np.array(points, float), (v.size, len(points)))

    @property
    def _laplace_turns(self) -> list[float]:
        """The points at which h − b²·h'' turns."""
        return []

    @property
    def _least(self) -> float:
        """The least sum that is allowed."""
        return 0.0 if self._needs_nonnegative else -math.inf

    @property
    def _floor(self) -> float:
        """f(a), the least transformed value of a sum."""
        return float(self._transform(np.zeros(1))[0])

    @overload
    def transform(self, q: Scalar) -> float: ...

    @overload
    def transform(self, q: ArrayLike) -> Array: ...

    def transform(self, q: Scalar | ArrayLike) -> float | Array:
        """Return f(q + a), the transformed sum to which the noise is added."""
        return evaluate("q", q, self._transform, low=self._least)

    @overload
    def estimate(self, transformed: Scalar) -> float: ...

    @overload
    def estimate(self, transformed: ArrayLike) -> Array: ...

    def estimate(self, transformed: Scalar | ArrayLike) -> float | Array:
        """Return g(transformed), the estimate of the sum from the noisy transformed value."""
        return evaluate("transformed", transformed, self._estimate)

    def _estimate(self, v: Array) -> Array:
        if self.estimator == "mean":
            return self._mean_estimate(v)
        if self.estimator == "median":
            return self._invert(v)
        return apply(self.estimator, v)

    def _error(self, q: Array, shift: Array) -> Array:
        """g(f(q + a) + shift) − q."""
        if self.estimator == "median":
            inside = shift >= -self._height(q)
            return np.where(inside, self._median_error(q, np.where(inside, shift, 0)), -q)
        return self._estimate(self._transform(q) + shift) - q

    @overload
    def bias(self, q: Scalar, unit: UnitLike | None = None) -> float: ...

    @overload
    def bias(self, q: ArrayLike, unit: UnitLike | None = None) -> Array: ...

    def bias(self, q: Scalar | ArrayLike, unit: UnitLike | None = None) -> float | Array:
        """Return E[output] − q: 0 for a mean-unbiased estimator, also with a `unit`, as it is rounded at random."""
        if self.estimator == "mean":
            return evaluate("q", q, np.zeros_like, low=self._least)
        return evaluate("q", q, lambda q: self._moments(q)[0] + self._rounding(q, unit)[0], low=self._least)

    @overload
    def variance(self, q: Scalar, unit: UnitLike | None = None) -> float: ...

    @overload
    def variance(self, q: ArrayLike, unit: UnitLike | None = None) -> Array: ...

    def variance(self, q: Scalar | ArrayLike, unit: UnitLike | None = None) -> float | Array:
        """Return the variance when the sum is q: of the ideal output, or with a `unit`, as published."""
        return evaluate("q", q, lambda q: self._published_std(q, unit) ** 2, low=self._least)

    @overload
    def std(self, q: Scalar, unit: UnitLike | None = None) -> float: ...

    @overload
    def std(self, q: ArrayLike, unit: UnitLike | None = None) -> Array: ...

    def std(self, q: Scalar | ArrayLike, unit: UnitLike | None = None) -> float | Array:
        """Return the standard deviation when the sum is q: of the ideal output, or with a `unit`, as published."""
        return evaluate("q", q, lambda q: self._published_std(q, unit), low=self._least)

    def _published_std(self, q: Array, unit: Any) -> Array:
        ideal = self._std(q)
        if unit is None:
            return ideal
        more = self._rounding(q, unit)[1]  # rounding to nearest can also reduce the variance
        return np.where(more >= 0, np.hypot(ideal, np.sqrt(np.abs(more))), np.sqrt(np.maximum(ideal**2 + more, 0.0)))

    def _rounding(self, q: Array, unit: Any) -> tuple[Array, Array]:
        """Return the bias and the variance that rounding to a unit adds."""
        if unit is None:
            return np.zeros_like(q), np.zeros_like(q)
        u = float(as_unit(unit))
        # Where the noise is wide, the fractional part of the result in units is uniform. Rounding then adds a variance
        # of u²/6 if it is random, and of u²/12 if it is to nearest.
        bias, variance = np.zeros_like(q), np.full_like(q, u * u / (6 if self._rounds_at_random else 12))
        half = self._noise.isf(0.25)  # half of the noise lies within ± this
        spread = self._error(q, np.full_like(q, half)) - self._error(q, np.full_like(q, -half))
        for row in np.flatnonzero(spread < WIDE_SPREAD * u):
            bias[row], variance[row] = self._narrow_rounding(q[row], u)
        return bias, variance

    def _narrow_rounding(self, q: float, u: float) -> tuple[float, float]:
        """Return the bias and the variance that rounding adds, by summing over a fine grid of the noise."""
        noise, weights = _noise_grid(self._noise)
        with np.errstate(over="ignore", invalid="ignore"):
            error = self._error(np.array([q]), noise) / u
            part = error + q / u
            part -= np.floor(part)
            known = np.isfinite(part)
            error, part, weights = error[known], part[known], weights[known]
            if self._rounds_at_random:  # E[part·(1 − part)] is the variance that rounding adds
                return 0.0, u * u * float(weights @ (part * (1 - part)))
            moved = np.floor(part + 0.5) - part
            # Var(X + R) − Var(X) = 2·Cov(X, R) + Var(R), with X the ideal error and R the rounding error.
            mean = float(weights @ moved)
            more = float(weights @ (moved * (moved + 2 * (error - weights @ error))))
        return u * mean, u * u * (more - mean**2)

    def _moments(self, q: Array) -> tuple[Array, Array]:
        """Return the bias and the standard deviation, by quadrature over the noise."""
        if self._is_gaussian:
            return error_moments(lambda q, n: self._error(q, self.sigma * n), q, -self._height(q) / self.sigma)
        mean, square = tail_moments(self._error, q, self._noise, -self._height(q))
        with np.errstate(invalid="ignore"):
            variance = np.where(np.isfinite(mean), np.maximum(square - mean**2, 0.0), math.inf)
        return mean, np.where(self._has_moment(2), np.sqrt(variance), math.inf)

    def _std(self, q: Array) -> Array:
        if not self._by_operator:
            return self._moments(q)[1]
        if self._no_variance:
            return np.full_like(q, math.inf)
        # The variance is the mean of its unbiased estimate, which is not negative: no digits cancel.
        v = self._transform(q)
        return np.sqrt(tail_moments(lambda v, z: self._laplace_variance(v + z), v, self._noise, self._floor - v)[0])

    def _laplace_variance(self, v: Array) -> Array:
        """2b²·h'(v)² + b⁴·h''(v)² for v >= f(a), and b²·h'(f(a))² below."""
        b = self.sigma
        with np.errstate(all="ignore"):
            slope, bend = self._slopes(np.maximum(v, self._floor))
            return np.where(
                v >= self._floor, 2 * (b * slope) ** 2 + (b * b * bend) ** 2, np.square(b * self._floor_slope)
            )

    def _summed_cumulants(self, v: Array, groups: Any, counts: Array, miss: Array) -> tuple[Array, Array] | None:
        """Return upper bounds on the sums of the variances and of the fourth cumulants of the ideal outputs of cells.

        Both bounds of a group hold with probability 1 − miss. None if no such bounds are known, or if the outputs are
        biased.

        Parameters
        ----------
        v
            The published transformed values of the cells.
        groups, counts
            The group of each cell, and the number of cells in each group.
        miss
            The probability that a bound of a group may fail.
        """
        if not (self.estimator == "mean" and self._variance_rises):
            return None
        # All true sums of a group are below these with probability 1 − miss, and the variance rises with the sum.
        with np.errstate(over="ignore", invalid="ignore"):
            reach = self._noise.isf(miss / counts)[groups] + fine_step(self.sigma)
            largest = self._std(self._invert(v + reach)) ** 2 * (1 + ROUNDOFF)
            return np.bincount(groups, largest, counts.size).astype(float), np.full(counts.size, math.inf)

    @property
    def _variance_rises(self) -> bool:
        """Whether the variance of the mean estimate is known to rise with the sum."""
        return False

    @overload
    def variance_estimate(self, transformed: Scalar) -> float: ...

    @overload
    def variance_estimate(self, transformed: ArrayLike) -> Array: ...

    def variance_estimate(self, transformed: Scalar | ArrayLike) -> float | Array:
        """Return an estimate of the variance from the noisy transformed value.

        For mean-unbiased estimators it is unbiased and has a closed form; it may be negative. For others it is the
        variance at the estimated sum.
        """
        return evaluate("transformed", transformed, self._variance_estimate)

    def _variance_estimate(self, v: Array) -> Array:
        return (
            self._laplace_variance(v)
            if self._by_operator
            else self._std(np.maximum(self._estimate(v), self._least)) ** 2
        )

    @overload
    def prediction_interval(
        self, q: Scalar, level: float = 0.95, unit: UnitLike | None = None
    ) -> tuple[float, float]: ...

    @overload
    def prediction_interval(
        self, q: ArrayLike, level: float = 0.95, unit: UnitLike | None = None
    ) -> tuple[NumberArray, NumberArray]: ...

    def prediction_interval(
        self, q: Scalar | ArrayLike, level: float = 0.95, unit: UnitLike | None = None
    ) -> tuple[float | NumberArray, float | NumberArray]:
        """Return the least and largest estimate over the central `level` of the noise (Theorem transformation_bounds).

        If the estimator is monotone, the ideal output lies between them with probability `level`. For roots the
        probability can be higher; see `coverage`. With a `unit`, the interval is one for the published value, and its
        ends are whole numbers of units. Ends are rounded outwards.
        """
        half = self._noise.isf(level_quantile(level))
        step = None if unit is None else as_unit(unit)
        ends = (
            evaluate("q", q, lambda q: self._predicted(q, half, step)[0], low=self._least),
            evaluate("q", q, lambda q: self._predicted(q, half, step)[1], low=self._least),
        )
        if step is None:
            return ends
        low, high = (elementwise(floors, end) for end in ends)
        return values(low, step, -1), values(high, step, 1)

    def _predicted(self, q: Array, half: float, unit: Fraction | None) -> tuple[Array, Array]:
        """Return the ends of a prediction interval, in units if `unit` is given."""
        low, high = self._extremes(self._transform(q), half)
        slack = ROUNDOFF * np.abs(q)
        low, high = low - slack - ROUNDOFF * np.abs(low), high + slack + ROUNDOFF * np.abs(high)
        if unit is None:
            return low, high
        low, high = low / float(unit), high / float(unit)
        return (np.floor(low), np.ceil(high)) if self._rounds_at_random else (np.floor(low + 0.5), np.floor(high + 0.5))

    def _extremes(self, v: Array, half: float) -> tuple[Array, Array]:
        points = _with_ends(self._turns(v), v, half)
        estimates = self._estimate(points.ravel()).reshape(points.shape)
        return estimates.min(axis=1), estimates.max(axis=1)

    @property
    def _rounds_at_random(self) -> bool:
        return not (isinstance(self.estimator, str) and self.estimator == "median")

    @abstractmethod
    def _exact_transform(self, q: Number, lift: Lift) -> Number:
        """f(q + a), in balls."""

    @abstractmethod
    def _exact_analytic_estimate(self, v: Number, lift: Lift) -> Number:
        """Return the mean-unbiased estimate of noise other than Laplace, in balls."""

    def _exact_estimate(self, v: Number, lift: Lift) -> Number:
        """g(v), in balls."""
        if self.estimator == "median":
            return self._exact_inverse(v, lift)
        if not self._is_laplace:
            return self._exact_analytic_estimate(v, lift)
        floor, b = self._exact_transform(lift(0), lift), lift(self.sigma)
        above = self._exact_inverse(v, lift) - self._exact_slopes(v.max(floor), lift)[1] * b * b
        below = -self._exact_floor_slope(lift) * b
        return if_positive(v - floor, above, below)

    def _exact_floor_slope(self, lift: Lift) -> Number:
        """h'(f(a)), in balls."""
        return self._exact_slopes(self._exact_transform(lift(0), lift), lift)[0]

    @abstractmethod
    def _exact_inverse(self, v: Number, lift: Lift) -> Number:
        """f⁻¹(max(v, f(a))) − a, in balls: the median estimate."""

    def release(
        self, q: Scalar | ArrayLike, unit: UnitLike = 1, level: float = 0.95, bits: BitSource | None = None
    ) -> Noisy:
        """Return g(f(q + a) + Z), rounded exactly to a multiple of `unit`; see `Mechanism.release`.

        A mean estimate is rounded up or down at random, so that it stays unbiased. A median estimate is rounded to
        nearest.
        """
        return self._warn_of_unit(self._release(q, unit, level, bits))

    def _release(self, q: Any, unit: Any, level: float, bits: BitSource | Bits | None) -> Noisy:
        level_quantile(level)
        sums = Sums.of(q, as_unit(unit))
        if self._needs_nonnegative and (sums.whole < 0).any():
            allowed = f">= 0 for {type(self).__name__}"
            raise ParameterError("q", allowed=allowed, code="negatives", given=Shown("a negative sum"))
        self._check_publishable(sums)
        units, fine, private = draw_transformed(
            self.added._sampler,
            self._exact_transform,
            self._exact_estimate,
            self.sigma,
            self._rounds_at_random,
            sums,
            bits,
        )
        step = fine_step(self.sigma)
        transformed = floats(fine, Fraction(step)) if fine.dtype == object else fine * step
        shape = sums.shape
        return Noisy(
            self, shaped(units, shape), sums.unit, shaped(transformed, shape), level, private, sums.on_grid, fine
        )

    def _check_publishable(self, sums: Sums) -> None:
        """Raise, before any noise is drawn, if a result could not be represented.

        The transformed value is published as a float, and the estimate is an integer whose digits are all computed.
        """
        if not sums.whole.size:
            return
        row = int(np.argmax(np.abs(sums.whole)))

        def transformed(lift: Lift) -> Number:
            return self._exact_transform(sums.value_of(row, lift), lift) + lift(self._noise.isf(FARTHEST_TAIL))

        def estimate(lift: Lift) -> Number:
            return self._exact_estimate(transformed(lift), lift) * lift(1 / sums.unit)

        if not upper_logarithm(transformed) < math.log(np.finfo(float).max):
            raise ParameterError(
                "q",
                f"is too large: {self} transforms the largest sum, with the noise, to more than 1e308",
                code="too-large",
                remedy="use another mechanism, or measure the sums in a larger unit",
            )
        if not upper_logarithm(estimate) < MOST_ESTIMATE_DIGITS * math.log(10):
            raise ParameterError(
                "q",
                f"is too large: the estimate of the largest sum by {self} may have more than "
                f"{MOST_ESTIMATE_DIGITS:,} digits",
                code="too-many-digits",
                remedy="use another mechanism, or less noise",
            )

    def _standard_error(self, noisy: Noisy) -> Any:
        """Return the standard deviation at the median estimate of the sum, including the most that rounding can add.

        The median estimate is as likely above the sum as below it, so the standard error is as likely too large as too
        small.
        """
        median = evaluate("transformed", noisy.transformed, self._invert)
        return self._error_at(median, noisy.unit, noisy.on_grid)

    def _error_at(self, q: Any, unit: Fraction, on_grid: bool) -> Any:
        empty, half_unit = self._std(np.zeros(1))[0], float(unit) / 2

        def error(q: Array) -> Array:
            known = np.isfinite(q)
            std = np.where(known, self._std(np.where(known, q, 0.0)), np.inf)
            return np.asarray(np.hypot(np.maximum(std, empty), half_unit))

        return evaluate("q", q, error, low=self._least, finite=False)

    def _variance_from(self, transformed: Any, unit: Fraction, on_grid: bool) -> Any:
        if self.estimator != "mean":
            raise ParameterError(
                "estimator", allowed='"mean" for an unbiased estimate of the variance', given=self.estimator
            )
        u = float(unit)

        def variance(v: Array) -> Array:
            part = self._estimate(v) / u
            part -= np.floor(part)
            return self._variance_estimate(v) + u * u * part * (1 - part)  # the variance of rounding at random

        return evaluate("transformed", transformed, variance)

    def _half_width_at(self, q: float, level: float) -> float:
        half = self._noise.isf(level_quantile(level))
        place = q if self._needs_nonnegative else 0.0  # the rest of a sum of any sign may cancel the value
        with np.errstate(over="ignore"):
            low, high = self._invert(self._transform(np.array([place])) + np.array([-half, half]))
        return float(high - low) / 2

    def _rounding_bias(self, unit: Fraction, on_grid: bool) -> float:
        return 0.0 if self._rounds_at_random or on_grid else float(unit) / 2

    def _unit_warning(self, unit: Fraction, on_grid: bool) -> str | None:
        bias = self._rounding_bias(unit, on_grid)
        if not bias or self.std(float(unit)) > bias:
            return None
        return self._coarse_unit_text(unit, bias)

    def _confidence_interval(self, noisy: Noisy) -> tuple[Any, Any]:
        flat = np.ravel(noisy.transformed)
        low, high = self._ends(flat, noisy.level, noisy.unit)
        too_coarse = noisy._fine is not None and (np.abs(flat) >= INVERTED_IN_ARB * self.sigma).any()
        if too_coarse and low.dtype.kind != "f" and high.dtype.kind != "f":
            low, high = self._with_exact_ends(low, high, noisy)
        shape = np.shape(noisy.transformed)
        return shaped(low, shape), shaped(high, shape)

    def _ends(self, v: Array, level: float, unit: Fraction) -> tuple[Any, Any]:
        """Return the ends of an interval for the sum in units, rounded outwards.

        Before rounding, the noisy transformed value lies within z·σ of f(q + a) with the probability of the level.
        Rounding it to its grid moved it by at most half a step, and converting it to a float by half of the last bit.
        """
        half = self._half_width(level) + MARGIN * np.abs(v)
        with np.errstate(over="ignore"):
            low, high = (self._invert(v + side * half) / float(unit) for side in (-1, 1))
            low, high = low * (1 - np.copysign(MARGIN, low)), high * (1 + np.copysign(MARGIN, high))
        last = np.finfo(float).max
        return floors(np.clip(low, max(self._least, -last), last)), ceilings(high)  # an endless interval has a start

    def _half_width(self, level: float) -> float:
        """Return the half-width of an interval around the published transformed value."""
        half: float = self._noise.isf(level_quantile(level)) * (1 + 1e-14)
        return half + fine_step(self.sigma) / 2

    def _with_exact_ends(self, low: Any, high: Any, noisy: Noisy) -> tuple[Any, Any]:
        """Return the ends, with those for which floats are too coarse replaced by exact ones."""
        assert noisy._fine is not None
        step, half = Fraction(fine_step(self.sigma)), Fraction(self._half_width(noisy.level))
        low, high = low.astype(object), high.astype(object)
        with suppress(ParameterError, ParameterTypeError):  # a user-given function may accept floats only
            for row in np.flatnonzero(np.abs(np.ravel(noisy.transformed)) >= INVERTED_IN_ARB * self.sigma):
                middle = int(noisy._fine[row]) * step
                low[row] = max(self._exact_bounds(middle - half, noisy.unit)[0], self._least)
                high[row] = self._exact_bounds(middle + half, noisy.unit)[1]
        return compact(low), compact(high)

    def _exact_bounds(self, v: Fraction, unit: Fraction) -> tuple[int, int]:
        """Return whole numbers of units below and above the sum whose transformed value is v."""
        return exact_bounds(lambda lift: self._exact_inverse(lift(v), lift), unit)

    def _invert(self, v: Array) -> Array:
        """Return the sum q >= 0 whose transformed value is nearest to v."""
        # This is the error of the median estimate for a sum of 0, whose transformed value is f(a).
        return self._median_error(np.zeros_like(v), np.maximum(v - self._floor, 0))

    @overload
    def coverage(self, q: Scalar, level: float = 0.95, unit: UnitLike | None = None) -> float: ...

    @overload
    def coverage(self, q: ArrayLike, level: float = 0.95, unit: UnitLike | None = None) -> Array: ...

    def coverage(self, q: Scalar | ArrayLike, level: float = 0.95, unit: UnitLike | None = None) -> float | Array:
        """Return the exact probability that the output lies in `prediction_interval(q, level, unit)`."""
        tail = level_quantile(level)
        half = self._noise.isf(tail)
        if unit is not None:
            step = as_unit(unit)
            return evaluate("q", q, lambda q: self._published_coverage(q, half, step), low=self._least)

        def covered(q: Array) -> Array:
            v = self._transform(q)
            low, high = self._extremes(v, half)
            turns, far = self._turns(v), self._span
            below = _with_ends(turns, v - (far + half) / 2, (far - half) / 2)
            above = _with_ends(turns, v + (far + half) / 2, (far - half) / 2)
            outside = [exact_coverage(self._estimate, ends, v, self._noise, low, high) for ends in (below, above)]
            return 1 - 2 * tail + outside[0] + outside[1]

        return evaluate("q", q, covered, low=self._least)

    def _probability_within(self, q: Array, low: Array, high: Array) -> Array:
        if self.estimator != "median":
            v = self._transform(q)
            ends = _with_ends(self._turns(v), v, self._span)
            return exact_coverage(self._estimate, ends, v, self._noise, q + low, q + high)

        def below(end: Array) -> Array:
            """P(output < end): that the noisy transformed value is below f(end + a)."""
            inside = end > self._least
            shift = self._height(np.where(inside, end, 0.0)) - self._height(q)
            return np.where(inside, self._noise.cdf(shift), 0.0)

        return below(q + high) - below(q + low)

    def _error_within(self, q: float, level: float) -> float:
        """Return e such that the error of the estimate is at most e, in absolute value, with probability `level`.

        The ends of a prediction interval are at least as far away, and much farther where the estimator is not monotone
        or can only err far in one direction.
        """
        from scipy.optimize import brentq

        low, high = self.prediction_interval(q, level)
        most, sums = max(q - low, high - q), np.array([q])

        def missing(error: float) -> float:
            return level - float(self._probability_within(sums, np.array([-error]), np.array([error]))[0])

        if not 0 < most < math.inf or missing(most) >= 0:
            return most
        if missing(0.0) <= 0:
            return 0.0
        return float(brentq(missing, 0.0, most, xtol=1e-9 * most, rtol=1e-9))

    @property
    def _span(self) -> float:
        """The size of the noise that is considered."""
        return self._noise.isf(BEYOND_SPAN)

    def _published_coverage(self, q: Array, half: float, unit: Fraction) -> Array:
        """Return P(low <= published <= high). Estimates slightly beyond an end are rounded to it."""
        u, v = float(unit), self._transform(q)
        low, high = (u * end for end in self._predicted(q, half, unit))
        ends = _with_ends(self._turns(v), v, self._span)
        if self._rounds_at_random:  # an estimate s units beyond an end is rounded to it with probability 1 − s
            nodes, weights = special.roots_legendre(32)
            beyond, weights = (nodes + 1) / 2, weights / 2
        else:
            beyond, weights = np.array([0.5]), np.ones(1)
        found = [exact_coverage(self._estimate, ends, v, self._noise, low - s * u, high + s * u) for s in beyond]
        # Misses that are due to floating-point rounding alone are not counted.
        return np.asarray(np.maximum(weights @ np.array(found), 1 - 2 * self._noise.sf(half)))


@lru_cache(maxsize=16)
def _noise_grid(noise: SymmetricNoise) -> tuple[Array, Array]:
    """Return values of the noise with their weights, dense enough for periodic functions of it."""
    if isinstance(noise, GaussianNoise):
        n = np.linspace(-9, 9, 1 << 15)
        weights = np.exp(-(n**2) / 2)
        return noise.sigma * n, weights / weights.sum()
    tail = (np.arange(1 << 14) + 0.5) / (1 << 15)
    half = noise.isf(tail)
    return np.concatenate([-half, half[::-1]]), np.full(1 << 15, 2.0**-15)


def _with_ends(points: Array, middle: Array, half: float) -> Array:
    """Return the points clipped to middle ± half, with these two ends added."""
    low, high = (middle - half)[:, None], (middle + half)[:, None]
    return np.concatenate([low, np.clip(points, low, high), high], axis=1)


def check_estimator(estimator: Any) -> None:
    """Raise unless an estimator is one of the named ones."""
    if not isinstance(estimator, str) or estimator not in ESTIMATORS:
        raise ParameterError("estimator", allowed='"mean" or "median"', given=estimator)
