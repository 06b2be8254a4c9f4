"""Policies of the transformation mechanisms (Theorem transform): roots, logarithms and user-given functions."""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from slowscale.core.errors import ParameterError, ParameterTypeError
from slowscale.core.families import LogFamily, RootFamily
from slowscale.core.formulas import check_concave, log1p_ratio, log_gap, root, root_gap, root_rise
from slowscale.core.parameters import Array, apply, check_range, real
from slowscale.policy.base import Policy
from slowscale.policy.tree import (
    INFLUENCE,
    Call,
    Difference,
    Formula,
    HalfSquare,
    KthRoot,
    Logarithm,
    Number,
    Product,
    shift,
)


class TransformingPolicy(Policy):
    """(f(Δ + a) − f(a))²/(2σ²), the policy of Theorem transform and of Corollary BndPrivTransMechGlobSum."""

    sigma: float
    a: float

    @abstractmethod
    def _rise(self, x: Array) -> Array:
        """Return f(x + a) − f(a) for x >= 0."""

    @abstractmethod
    def _gap(self, low: Array, gap: Array) -> Array:
        """Return f(low + gap) − f(low)."""

    @abstractmethod
    def _transformed(self, x: Formula) -> Formula:
        """Return f(x) as a tree."""

    def _half_square(self, x: Array) -> Array:
        return np.asarray((x / self.sigma) ** 2 / 2)

    def _loss(self, influence: Array) -> Array:
        return self._half_square(self._rise(influence))

    def _between(self, low: Array, gap: Array) -> Array:
        check_range("value (also the changed one)", low, 0)
        return self._half_square(self._gap(low + self.a, gap))

    def formula(self, x: Formula = INFLUENCE) -> Formula:
        """Return P(x) as a tree."""
        rise = Difference(self._transformed(shift(x, self.a)), self._transformed(Number(self.a)))
        return HalfSquare(rise, self.sigma)

    def _between_formula(self, value: Formula, other: Formula, distance: Formula) -> Formula:
        ends = (self._transformed(shift(end, self.a)) for end in (value, other))
        return HalfSquare(Difference(*ends), self.sigma)

    def _loose(self, value: Array, low: Array, gap: Array, times: float | None) -> Array:
        """Return the starred bounds of Table metric-mechSummaryNew, which leave out the offset a of a root."""
        if times is not None and times < 0:
            raise ParameterError("times", allowed=">= 0 under a transformation mechanism", given=times)
        check_range("value (also the changed one)", low, 0)
        return self._without_offset()._loss(gap) if times is None else self._loose_times(value, times)

    def _loose_formula(self, value: Formula, other: Formula, distance: Formula, times: float | None) -> Formula:
        if times is None:
            return self._without_offset().formula(distance)
        return self._loose_times_formula(value, other, times)

    def _without_offset(self) -> "TransformingPolicy":
        """Return the policy whose value at the distance bounds the loss between r and r + add."""
        return self

    def _loose_times(self, value: Array, times: float) -> Array:
        """Return the bound of Table metric-mechSummaryNew on the loss between r and times·r."""
        return self._between(value * min(times, 1.0), value * abs(times - 1))

    def _loose_times_formula(self, value: Formula, other: Formula, times: float) -> Formula:
        return self._between_formula(value, other, other)

    def _unit_shape(self: Self) -> dict[Policy, float]:
        """Return the shape whose scale is 1, and its coefficient."""
        with np.errstate(over="ignore"):
            return {replace(self, sigma=1.0): float(np.float64(self.sigma) ** -2)}  # type: ignore[type-var]


@dataclass(frozen=True)
class RootPolicy(RootFamily, TransformingPolicy):
    """((Δ + a)^(1/k) − a^(1/k))²/(2σ²): the kth root transformation; k = 1 is the Gaussian mechanism's Δ²/(2σ²)."""

    kind = "root"

    def _rise(self, x: Array) -> Array:
        return root_rise(x, self.a, self.k)

    def _gap(self, low: Array, gap: Array) -> Array:
        return root_gap(low, gap, self.k)

    def _transformed(self, x: Formula) -> Formula:
        return KthRoot(x, self.k)

    def formula(self, x: Formula = INFLUENCE) -> Formula:
        """Return P(x) as a tree."""
        # For k = 1 the offset cancels, and without an offset the second root is 0.
        return HalfSquare(KthRoot(x, self.k), self.sigma) if self.k == 1 or self.a == 0 else super().formula(x)

    def shapes(self) -> dict[Policy, float]:
        """Return the shape whose scale is 1, and its coefficient."""
        return self._unit_shape()

    def _between(self, low: Array, gap: Array) -> Array:
        return self._half_square(gap) if self.k == 1 else super()._between(low, gap)

    def _between_formula(self, value: Formula, other: Formula, distance: Formula) -> Formula:
        return self.formula(distance) if self.k == 1 else super()._between_formula(value, other, distance)

    def _loose(self, value: Array, low: Array, gap: Array, times: float | None) -> Array:
        additive = self.k == 1 and self.a == 0
        return self._between(low, gap) if additive else super()._loose(value, low, gap, times)

    def _without_offset(self) -> TransformingPolicy:
        return RootPolicy(k=self.k, sigma=self.sigma)

    def _loose_times(self, value: Array, times: float) -> Array:
        return self._half_square((1 - times ** (1 / self.k)) * root(value, self.k))

    def _loose_times_formula(self, value: Formula, other: Formula, times: float) -> Formula:
        factor = Difference(Number(1), KthRoot(Number(times), self.k))
        return HalfSquare(Product(factor, KthRoot(value, self.k)), self.sigma)

    def _group_anywhere(self, values: Array) -> float:
        # For k >= 2 and no offset, P is concave with P(0) = 0, so the records lose most in different cells.
        return float(self._loss(values).sum()) if self.k >= 2 and self.a == 0 else super()._group_anywhere(values)


@dataclass(frozen=True)
class LogPolicy(LogFamily, TransformingPolicy):
    """(ln(Δ + a) − ln a)²/(2σ²): the log transformation."""

    kind = "log"

    def _rise(self, x: Array) -> Array:
        return log1p_ratio(x, self.a)

    def _gap(self, low: Array, gap: Array) -> Array:
        return log_gap(low, gap)

    def _transformed(self, x: Formula) -> Formula:
        return Logarithm(x)

    def formula(self, x: Formula = INFLUENCE) -> Formula:
        """Return P(x) as a tree."""
        return HalfSquare(Logarithm(shift(x, 1)), self.sigma) if self.a == 1 else super().formula(x)

    def shapes(self) -> dict[Policy, float]:
        """Return the shape whose scale is 1, and its coefficient."""
        return self._unit_shape()

    def _loose_times(self, value: Array, times: float) -> Array:
        rise = math.inf if times == 0 else math.log(times)
        return np.where(value == 0, 0.0, self._half_square(np.full_like(value, rise)))

    def _loose_times_formula(self, value: Formula, other: Formula, times: float) -> Formula:
        return HalfSquare(Logarithm(Number(times)), self.sigma)


@dataclass(frozen=True)
class TransformationPolicy(TransformingPolicy):
    """(f(Δ + a) − f(a))²/(2σ²) for a user-given concave, strictly increasing f."""

    kind = "transformation"

    f: Callable[[Any], Any]
    sigma: float = real(above=0, typical=(0.01, 100))
    a: float = real(typical=(0, 100), default=0.0)

    def _check(self) -> None:
        if not callable(self.f):
            raise ParameterTypeError("f", allowed="a function", given=self.f)
        check_concave(self.f, self.a)

    def _rounding_error(self, influence: Array) -> Array:
        # Subtracting f(a) cancels the leading digits of the loss of small records.
        eps = np.finfo(float).eps
        start, end = apply(self.f, np.array([self.a])), apply(self.f, influence + self.a)
        cancelled = 8 * eps * (np.abs(end) + np.abs(start)) / np.abs(end - start)
        return np.asarray(2 * (cancelled + eps * (influence + abs(self.a)) / influence))

    def _rise(self, x: Array) -> Array:
        return apply(self.f, x + self.a) - apply(self.f, np.array([self.a]))

    def _gap(self, low: Array, gap: Array) -> Array:
        return apply(self.f, low + gap) - apply(self.f, low)

    def _transformed(self, x: Formula) -> Formula:
        return Call(self.f, x)
