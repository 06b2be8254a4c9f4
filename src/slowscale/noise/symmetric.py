"""The base class of all noise distributions: a density proportional to exp(f(|z|)), symmetric about 0.

A family implements the distribution of |Z| for z >= 0. This class derives the methods of scipy.stats from it, with
full relative accuracy in both tails and around the median.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from inspect import isabstract
from typing import Any, ClassVar, overload

import numpy as np

from slowscale.core.errors import ParameterError
from slowscale.core.parameters import Array, Declared, as_number, check_entries, evaluate, level_quantile
from slowscale.core.typing import ArrayLike, Scalar

LOG_HALF = math.log(0.5)


class SymmetricNoise(Declared, ABC):
    """A distribution with density exp(f(|z|)) up to a constant, f decreasing; σ is its scale."""

    sigma: float

    # All families by name, so that descriptions of noise can be read.
    FAMILIES: ClassVar[dict[str, type["SymmetricNoise"]]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        SymmetricNoise.FAMILIES[cls.__name__] = cls

    @property
    def words(self) -> str:
        """The name of the noise in formulas."""
        return type(self).__name__.removesuffix("Noise")

    @staticmethod
    def from_dict(description: Mapping[str, Any]) -> "SymmetricNoise":
        """Return the noise that `to_dict` described."""
        families = {name: family for name, family in SymmetricNoise.FAMILIES.items() if not isabstract(family)}
        family = families.get(str(description.get("noise")))
        if family is None:
            raise ParameterError("noise", allowed=tuple(sorted(families)), given=description.get("noise"))
        given = {name: value for name, value in description.items() if name != "noise"}
        names = [f.name for f in fields(family)]  # type: ignore[arg-type]
        check_entries(family.__name__, given, names)
        return family(**{name: _from_plain(value) for name, value in given.items()})

    @abstractmethod
    def _drop(self, z: Array) -> Array:
        """Return f(0) − f(z), by how much the log-density falls from 0 to z."""

    def _drop_rise(self, z: Array, t: Array) -> Array:
        """Return drop(z + t) − drop(z) for z, t >= 0. Families whose digits would cancel override it."""
        return self._drop(z + t) - self._drop(z)

    def _bends(self, z: Array) -> tuple[Array, Array]:
        """Return bounds on the second and the third derivative of `_drop` at every point from z on, between kinks.

        The bounds are on absolute values, and do not increase with z. They are infinite if nothing is known.
        """
        unknown = np.full_like(z, math.inf)
        return unknown, unknown

    @property
    def _kinks(self) -> tuple[float, ...]:
        """The points z > 0 at which the derivative of `_drop` jumps."""
        return ()

    @property
    def _concave_from(self) -> float:
        """The point from which on `_drop` is concave: 0 for the noises of the paper, infinite for the Gaussian."""
        return 0.0

    def _pure_loss(self, influence: Array) -> Array:
        """Return the supremum of ln p(z)/p(z + Δ) over all z, or more: at z = 0 if `_drop` is concave."""
        return self._drop(influence)

    @property
    def _scale(self) -> float:
        """A typical size of the noise, and the unit of computations without a closed form (`_standard`)."""
        return self.sigma

    def _standard(self) -> "SymmetricNoise":
        """Return the same noise in units of `_scale`."""
        return replace(self, sigma=1.0)  # type: ignore[type-var]

    def to_dict(self) -> dict[str, Any]:
        """Return the type and the parameters as values that JSON can represent."""
        values = {f.name: _to_plain(getattr(self, f.name)) for f in fields(self)}  # type: ignore[arg-type]
        return {"noise": type(self).__name__, **values}

    @property
    @abstractmethod
    def _log_peak(self) -> float:
        """The log-density at 0."""

    @abstractmethod
    def _log_tail(self, z: Array) -> Array:
        """Return ln P(|Z| > z)."""

    @abstractmethod
    def _tail_inverse(self, tail: Array) -> Array:
        """Return the z with P(|Z| > z) = tail, for 0 <= tail <= 1/2."""

    @abstractmethod
    def _center(self, z: Array) -> Array:
        """Return P(|Z| <= z), accurate also where it is small."""

    @abstractmethod
    def _center_inverse(self, center: Array) -> Array:
        """Return the z with P(|Z| <= z) = center, for 0 <= center <= 1/2."""

    @property
    def _tail_power(self) -> float:
        """The power of 1/|z| with which the density falls; infinite if it falls faster than every power.

        The moment of an order exists if it is larger than the order plus 1.
        """
        return math.inf

    @abstractmethod
    def _log_moment(self, order: int) -> float:
        """Return ln E|Z/σ|^order, infinite if the moment is."""

    def _exact_moments(self, count: int) -> list[Any] | None:
        """Return E Z^(2m) for m < count as balls of the working precision of Arb; None if no bounds are known."""
        return None

    def _tail(self, z: Array) -> Array:
        return np.exp(self._log_tail(z))

    @overload
    def logpdf(self, z: Scalar) -> float: ...

    @overload
    def logpdf(self, z: ArrayLike) -> Array: ...

    def logpdf(self, z: Scalar | ArrayLike) -> float | Array:
        """Return the log of the density at z."""
        return self._at(z, lambda z: self._log_peak - self._drop(np.abs(z)), -math.inf, -math.inf)

    @overload
    def pdf(self, z: Scalar) -> float: ...

    @overload
    def pdf(self, z: ArrayLike) -> Array: ...

    def pdf(self, z: Scalar | ArrayLike) -> float | Array:
        """Return the density at z."""
        return self._at(z, lambda z: np.exp(self._log_peak - self._drop(np.abs(z))), 0.0, 0.0)

    @overload
    def cdf(self, z: Scalar) -> float: ...

    @overload
    def cdf(self, z: ArrayLike) -> Array: ...

    def cdf(self, z: Scalar | ArrayLike) -> float | Array:
        """Return P(Z <= z)."""
        return self._at(z, lambda z: self._sf(-z), 0.0, 1.0)

    @overload
    def sf(self, z: Scalar) -> float: ...

    @overload
    def sf(self, z: ArrayLike) -> Array: ...

    def sf(self, z: Scalar | ArrayLike) -> float | Array:
        """Return P(Z > z), as accurate in the right tail as `cdf` is in the left one."""
        return self._at(z, self._sf, 1.0, 0.0)

    @overload
    def logcdf(self, z: Scalar) -> float: ...

    @overload
    def logcdf(self, z: ArrayLike) -> Array: ...

    def logcdf(self, z: Scalar | ArrayLike) -> float | Array:
        """Return ln P(Z <= z), also where `cdf` itself would underflow."""
        return self._at(z, lambda z: self._logsf(-z), -math.inf, 0.0)

    @overload
    def logsf(self, z: Scalar) -> float: ...

    @overload
    def logsf(self, z: ArrayLike) -> Array: ...

    def logsf(self, z: Scalar | ArrayLike) -> float | Array:
        """Return ln P(Z > z), also where `sf` itself would underflow."""
        return self._at(z, self._logsf, 0.0, -math.inf)

    @overload
    def ppf(self, q: Scalar) -> float: ...

    @overload
    def ppf(self, q: ArrayLike) -> Array: ...

    def ppf(self, q: Scalar | ArrayLike) -> float | Array:
        """Return the quantile: the z with P(Z <= z) = q, for 0 <= q <= 1."""
        return evaluate("q", q, lambda q: -self._isf(q))

    @overload
    def isf(self, q: Scalar) -> float: ...

    @overload
    def isf(self, q: ArrayLike) -> Array: ...

    def isf(self, q: Scalar | ArrayLike) -> float | Array:
        """Return the z with P(Z > z) = q, for 0 <= q <= 1, accurate for q down to 1e-300."""
        return evaluate("q", q, self._isf)

    def moment(self, order: int) -> float:
        """Return E Z^order for an integer order >= 0; infinite moments are inf, undefined odd moments are nan."""
        absolute = self.absolute_moment(order)
        return absolute if order % 2 == 0 else 0.0 if self._tail_power > order + 1 else math.nan

    def mean(self) -> float:
        """Return E Z: 0, or nan if it does not exist."""
        return self.moment(1)

    def absolute_moment(self, order: int) -> float:
        """Return E |Z|^order for an integer order >= 0."""
        number = as_number("order", order, "a whole number >= 0")
        if not number.is_integer() or number < 0:
            raise ParameterError("order", allowed="a whole number >= 0", given=order)
        order = int(number)
        log = self._log_moment(order) + order * math.log(self.sigma) if order else 0.0
        return math.exp(log) if log < 709.78 else math.inf

    def var(self) -> float:
        """Return the variance, which may be infinite."""
        return self.std() * self.std()

    def std(self) -> float:
        """Return the standard deviation, which may be infinite."""
        log = self._log_moment(2) / 2
        if log < 700:
            return self.sigma * math.exp(log)
        log += math.log(self.sigma)
        return math.exp(log) if log < 709.78 else math.inf

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the interval around 0 that contains the noise with probability `level`."""
        half = self.isf(level_quantile(level))
        return -half, half

    def _at(self, z: object, formula: Callable[[Array], Array], at_minus: float, at_plus: float) -> float | Array:
        """Apply a formula to any z except NaN, given its values at −∞ and ∞."""

        def anywhere(z: Array) -> Array:
            ends = np.where(z > 0, at_plus, at_minus)
            finite = np.isfinite(z)
            return formula(z) if finite.all() else np.where(finite, formula(np.where(finite, z, 0.0)), ends)

        return evaluate("z", z, anywhere, finite=False)

    def _sf(self, z: Array) -> Array:
        out = np.empty_like(z)
        right = z > 0
        out[right] = self._tail(z[right]) / 2
        out[~right] = 0.5 + self._center(-z[~right]) / 2
        return out

    def _logsf(self, z: Array) -> Array:
        out = np.empty_like(z)
        right = z > 0
        out[right] = LOG_HALF + self._log_tail(z[right])
        out[~right] = np.log1p(-self._tail(-z[~right]) / 2)
        return out

    def _isf(self, q: Array) -> Array:
        if q.size and not (q.min() >= 0 and q.max() <= 1):
            wrong = q[(q < 0) | (q > 1)][0]
            raise ParameterError("q", allowed="a probability between 0 and 1", given=wrong)
        upper = np.minimum(q, 1 - q)  # by symmetry only the right half is inverted
        z = np.empty_like(q)
        far = upper < 0.25
        z[far] = self._tail_inverse(2 * upper[far])
        z[~far] = self._center_inverse(2 * (0.5 - upper[~far]))
        return np.where(q <= 0.5, z, -z)


def _to_plain(value: Any) -> Any:
    if isinstance(value, SymmetricNoise):
        return value.to_dict()
    return [_to_plain(item) for item in value] if isinstance(value, tuple) else value


def _from_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return SymmetricNoise.from_dict(value)
    return tuple(_from_plain(item) for item in value) if isinstance(value, list) else value
