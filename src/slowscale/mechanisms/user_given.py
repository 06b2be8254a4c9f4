"""Transformations by user-given functions (Theorem transform)."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from slowscale.core.errors import ParameterError, ParameterTypeError
from slowscale.core.formulas import check_concave, probes
from slowscale.core.parameters import Array, apply, real
from slowscale.mechanisms.additive import AdditiveMechanism
from slowscale.mechanisms.transformation import TransformationMechanism
from slowscale.policy import Function, TransformationPolicy
from slowscale.sampling.balls import Ball
from slowscale.sampling.samplers import Lift, Number


@dataclass(frozen=True)
class Transformation(TransformationMechanism):
    """Any concave, strictly increasing f on [a, ∞) with its inverse (Theorem transform).

    When the mechanism is created, it is checked numerically that f is increasing and concave, that `inverse` is its
    inverse, and that `slope` and `bend` are the first and the second derivative of the inverse, if they are given. The
    estimator is "median" (Theorem mdnUnbiasTransform), or "mean" for Laplace noise and an inverse with these derivatives,
    or a function of the noisy transformed value.

    >>> import numpy as np
    >>> m = Transformation(np.arcsinh, np.sinh, sigma=0.5, a=0)
    >>> round(m.policy(1000), 2)
    115.55
    >>> m = Transformation(np.arcsinh, np.sinh, sigma=0.1, a=0, noise="laplace", slope=np.cosh, bend=np.sinh, estimator="mean")
    >>> round(m.std(0), 4)
    0.1017
    """

    kind = "transformation"
    words = "The sum is transformed by a function, noise is added, and the result is transformed back."
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
        assert self.slope is not None and self.bend is not None
        return apply(self.slope, v), apply(self.bend, v)

    def _exact_slopes(self, v: Number, lift: Lift) -> tuple[Number, Number]:
        assert self.slope is not None and self.bend is not None
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

    def _exact_gaussian_estimate(self, v: Number, lift: Lift) -> Number:
        raise AssertionError("refused when the mechanism was made")

    def _exact_inverse(self, v: Number, lift: Lift) -> Number:
        least = self._in_arb("f", self.f, lift(self.a))
        return self._in_arb("inverse", self.inverse, v.max(least)) - self.a

    def _in_arb(self, name: str, function: Function, x: Number) -> Number:
        """Apply a user-given function to an Arb ball; for float balls return NaN, so that Arb decides."""
        if isinstance(x, Ball):
            return Ball(np.full(np.shape(x.mid), np.nan))
        try:
            result = function(x)
        except Exception as error:
            raise ParameterTypeError(f"{name} {_ARB_NEEDED} It raised: {error}") from error
        if type(result) is not type(x):
            raise ParameterTypeError(f"{name} {_ARB_NEEDED} It returned a {type(result).__name__}")
        return result

    def _gaussian_estimate(self, v: Array) -> Array:
        raise AssertionError("refused when the mechanism was made")

    def _turns(self, v: Array) -> Array:
        if self.estimator == "median":
            return super()._turns(v)
        found = [_turning_points(self._estimate, float(middle), self._span) for middle in v]
        width = max(map(len, found))
        return np.array([points + [math.inf] * (width - len(points)) for points in found]).reshape(v.size, width)


_ARB_NEEDED = (
    "must work on flint.arb numbers, because a release is exact: floats would weaken the privacy guarantee. "
    "numpy's sqrt, log, exp, log1p, expm1 and square and plain arithmetic do; otherwise use the methods of flint.arb."
)


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
                f"must be the derivative of {of}, which must not jump, but between {ends[:-1][wrong][0]:g} and "
                f"{ends[1:][wrong][0]:g} {of} rises by {risen[wrong][0]:g}, and the integral of {name} is {added[wrong][0]:g}",
                code="mismatch",
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
        raise ParameterError(
            "inverse", allowed=f"the inverse of f, but inverse(f({x[wrong][0]:g})) = {back[wrong][0]:g}"
        )
    above = apply(inverse, y[-1] + sigma * np.array([0.0, 1.0, 5.0, 20.0]))
    if beyond and not (np.diff(np.minimum(above, 1e308)) >= 0).all():
        raise ParameterError(
            "f",
            f"must grow without bound for a median estimator, but inverse({y[-1] + sigma:g}) = {above[1]:g}: no "
            "sum has that transformed value. Pass a function as the estimator instead",
        )
