"""Transformation mechanisms: g(f(q + a) + N(0, σ²)) for a sum q >= 0 (Algorithm transform, Theorem transform).

f is concave and strictly increasing. The estimator g transforms back: it is unbiased in the mean (Theorem
meanUnbiasTransform), or unbiased in the median with the least risk (Theorem mdnUnbiasTransform). The error grows with
q, so the standard error and the interval of an estimate are computed from the noisy transformed value, not from q.
"""

import math
from abc import abstractmethod
from contextlib import suppress
from fractions import Fraction
from functools import cache
from typing import Any, overload

import numpy as np
from scipy import special

from slowscale.core.errors import ParameterError, ParameterTypeError, Shown
from slowscale.core.parameters import Array, apply, evaluate, level_quantile
from slowscale.core.typing import ArrayLike, NumberArray, Scalar, UnitLike
from slowscale.mechanisms.base import ESTIMATORS, Mechanism, Noisy
from slowscale.mechanisms.drawing import draw_transformed, fine_step
from slowscale.mechanisms.exact_sums import Sums
from slowscale.mechanisms.grid import as_unit, ceilings, compact, elementwise, floats, floors, shaped, values
from slowscale.mechanisms.quadrature import error_moments, exact_coverage
from slowscale.sampling import BitSource
from slowscale.sampling.exact import exact_bounds, upper_logarithm
from slowscale.sampling.samplers import Lift, Number

# How many standard deviations of the noise are considered: beyond them lie less than 1e-30 of all draws.
NOISE_SPAN = 12.0
# The noise counts as wide if the middle half of the outputs spans at least this many units.
WIDE_SPREAD = 20.0
# Bounds on the relative rounding error of floating-point formulas, for a sum and for a transformed value. Interval
# ends are moved outwards by them.
ROUNDOFF, MARGIN = 2.0**-50, 2.0**-46
# Transformed values of at least this many standard deviations of the noise are inverted in Arb: floats are too coarse.
INVERTED_IN_ARB = 2.0**30
# Noise beyond this many standard deviations has a probability of less than 1e-340.
FARTHEST_NOISE = 40.0
# The most digits of an estimate in units. More could be computed, but Python writes no more than 4300.
MOST_ESTIMATE_DIGITS = 4000


class TransformationMechanism(Mechanism):
    """g(f(q + a) + N(0, σ²)): the noise is added to the transformed sum."""

    _error_grows = True

    sigma: float
    a: float
    estimator: Any

    @property
    def pure_policy(self) -> None:
        """None: Gaussian noise has no pure guarantee."""

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
    def _mean_estimate(self, v: Array) -> Array:
        """Return the mean-unbiased estimate from the noisy transformed value."""

    def _turns(self, v: Array) -> Array:
        """Return the points between which the estimator is monotone, in ascending order; one row per v."""
        points = [self._floor] if self.estimator == "median" else []
        return np.broadcast_to(np.array(points, float), (v.size, len(points)))

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
        return evaluate("q", q, self._transform, low=0)

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
            return evaluate("q", q, np.zeros_like, low=0)
        return evaluate("q", q, lambda q: self._moments(q)[0] + self._rounding(q, unit)[0], low=0)

    @overload
    def variance(self, q: Scalar, unit: UnitLike | None = None) -> float: ...

    @overload
    def variance(self, q: ArrayLike, unit: UnitLike | None = None) -> Array: ...

    def variance(self, q: Scalar | ArrayLike, unit: UnitLike | None = None) -> float | Array:
        """Return the variance when the sum is q: of the ideal output, or with a `unit`, as published."""
        return evaluate("q", q, lambda q: self._published_std(q, unit) ** 2, low=0)

    @overload
    def std(self, q: Scalar, unit: UnitLike | None = None) -> float: ...

    @overload
    def std(self, q: ArrayLike, unit: UnitLike | None = None) -> Array: ...

    def std(self, q: Scalar | ArrayLike, unit: UnitLike | None = None) -> float | Array:
        """Return the standard deviation when the sum is q: of the ideal output, or with a `unit`, as published."""
        return evaluate("q", q, lambda q: self._published_std(q, unit), low=0)

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
        half = 0.6745 * self.sigma  # half of the noise lies within ± this
        spread = self._error(q, np.full_like(q, half)) - self._error(q, np.full_like(q, -half))
        for row in np.flatnonzero(spread < WIDE_SPREAD * u):
            bias[row], variance[row] = self._narrow_rounding(q[row], u)
        return bias, variance

    def _narrow_rounding(self, q: float, u: float) -> tuple[float, float]:
        """Return the bias and the variance that rounding adds, by summing over a fine grid of the noise."""
        noise, weights = _normal_grid()
        with np.errstate(over="ignore", invalid="ignore"):
            error = self._error(np.array([q]), self.sigma * noise) / u
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
        return error_moments(lambda q, n: self._error(q, self.sigma * n), q, -self._height(q) / self.sigma)

    def _std(self, q: Array) -> Array:
        return self._moments(q)[1]

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
        return None

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
        return self._std(np.maximum(self._estimate(v), 0)) ** 2

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
        half = -special.ndtri(level_quantile(level)) * self.sigma
        step = None if unit is None else as_unit(unit)
        ends = (
            evaluate("q", q, lambda q: self._predicted(q, half, step)[0], low=0),
            evaluate("q", q, lambda q: self._predicted(q, half, step)[1], low=0),
        )
        if step is None:
            return ends
        low, high = (elementwise(floors, end) for end in ends)
        return values(low, step, -1), values(high, step, 1)

    def _predicted(self, q: Array, half: float, unit: Fraction | None) -> tuple[Array, Array]:
        """Return the ends of a prediction interval, in units if `unit` is given."""
        low, high = self._extremes(self._transform(q), half)
        slack = ROUNDOFF * q
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
    def _exact_estimate(self, v: Number, lift: Lift) -> Number:
        """g(v), in balls."""

    @abstractmethod
    def _exact_inverse(self, v: Number, lift: Lift) -> Number:
        """f⁻¹(max(v, f(a))) − a, in balls: the median estimate."""

    def release(
        self, q: Scalar | ArrayLike, unit: UnitLike = 1, level: float = 0.95, bits: BitSource | None = None
    ) -> Noisy:
        """Return g(f(q + a) + N(0, σ²)), rounded exactly to a multiple of `unit`; see `Mechanism.release`.

        A mean estimate is rounded up or down at random, so that it stays unbiased. A median estimate is rounded to
        nearest.
        """
        return self._warn_of_unit(self._release(q, unit, level, bits))

    def _release(self, q: Any, unit: Any, level: float, bits: BitSource | None) -> Noisy:
        level_quantile(level)
        sums = Sums.of(q, as_unit(unit))
        if (sums.whole < 0).any():
            allowed = f">= 0 for {type(self).__name__}"
            raise ParameterError("q", allowed=allowed, code="negatives", given=Shown("a negative sum"))
        self._check_publishable(sums)
        units, fine, private = draw_transformed(
            self._exact_transform, self._exact_estimate, self.sigma, self._rounds_at_random, sums, bits
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
        row = int(np.argmax(sums.whole))

        def transformed(lift: Lift) -> Number:
            return self._exact_transform(sums.value_of(row, lift), lift) + lift(self.sigma) * FARTHEST_NOISE

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

        return evaluate("q", q, error, low=0, finite=False)

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
            low, high = (self._invert(v + side * half) * (1 + side * MARGIN) / float(unit) for side in (-1, 1))
        return floors(np.clip(low, 0, np.finfo(float).max)), ceilings(high)  # an endless interval has a start

    def _half_width(self, level: float) -> float:
        """Return the half-width of an interval around the published transformed value."""
        half: float = -special.ndtri(level_quantile(level)) * self.sigma * (1 + 1e-14)
        return half + fine_step(self.sigma) / 2

    def _with_exact_ends(self, low: Any, high: Any, noisy: Noisy) -> tuple[Any, Any]:
        """Return the ends, with those for which floats are too coarse replaced by exact ones."""
        assert noisy._fine is not None
        step, half = Fraction(fine_step(self.sigma)), Fraction(self._half_width(noisy.level))
        low, high = low.astype(object), high.astype(object)
        with suppress(ParameterError, ParameterTypeError):  # a user-given function may accept floats only
            for row in np.flatnonzero(np.abs(np.ravel(noisy.transformed)) >= INVERTED_IN_ARB * self.sigma):
                middle = int(noisy._fine[row]) * step
                low[row] = max(self._exact_bounds(middle - half, noisy.unit)[0], 0)
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
        half = -special.ndtri(tail) * self.sigma
        if unit is not None:
            step = as_unit(unit)
            return evaluate("q", q, lambda q: self._published_coverage(q, half, step), low=0)

        def covered(q: Array) -> Array:
            v = self._transform(q)
            low, high = self._extremes(v, half)
            turns, far = self._turns(v), NOISE_SPAN * self.sigma
            below = _with_ends(turns, v - (far + half) / 2, (far - half) / 2)
            above = _with_ends(turns, v + (far + half) / 2, (far - half) / 2)
            outside = [exact_coverage(self._estimate, ends, v, self.sigma, low, high) for ends in (below, above)]
            return 1 - 2 * tail + outside[0] + outside[1]

        return evaluate("q", q, covered, low=0)

    def _published_coverage(self, q: Array, half: float, unit: Fraction) -> Array:
        """Return P(low <= published <= high). Estimates slightly beyond an end are rounded to it."""
        u, v = float(unit), self._transform(q)
        low, high = (u * end for end in self._predicted(q, half, unit))
        ends = _with_ends(self._turns(v), v, NOISE_SPAN * self.sigma)
        if self._rounds_at_random:  # an estimate s units beyond an end is rounded to it with probability 1 − s
            nodes, weights = special.roots_legendre(32)
            beyond, weights = (nodes + 1) / 2, weights / 2
        else:
            beyond, weights = np.array([0.5]), np.ones(1)
        found = [exact_coverage(self._estimate, ends, v, self.sigma, low - s * u, high + s * u) for s in beyond]
        # Misses that are due to floating-point rounding alone are not counted.
        return np.asarray(np.maximum(weights @ np.array(found), 1 - 2 * special.ndtr(-half / self.sigma)))


@cache
def _normal_grid() -> tuple[Array, Array]:
    """Return evenly spaced values of a standard normal variable, with their weights."""
    n = np.linspace(-9, 9, 1 << 15)
    weights = np.exp(-(n**2) / 2)
    return n, weights / weights.sum()


def _with_ends(points: Array, middle: Array, half: float) -> Array:
    """Return the points clipped to middle ± half, with these two ends added."""
    low, high = (middle - half)[:, None], (middle + half)[:, None]
    return np.concatenate([low, np.clip(points, low, high), high], axis=1)


def check_estimator(estimator: Any) -> None:
    """Raise unless an estimator is one of the named ones."""
    if not isinstance(estimator, str) or estimator not in ESTIMATORS:
        raise ParameterError("estimator", allowed='"mean" or "median"', given=estimator)
