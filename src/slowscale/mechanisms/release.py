"""Releases: the one place where a mechanism draws noise.

What is released is the ideal output of the mechanism, correctly rounded to a public grid of `unit`s: additive noise and
median estimates to the nearest grid point, mean estimates up or down at random so that no bias comes in. The sum goes
in exactly, inside the rounding.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from slowscale.errors import ParameterError, ParameterTypeError
from slowscale.parameters import as_number, lazy
from slowscale.sampling import SECRET, BitSource
from slowscale.sampling.balls import ROUNDING, SMALLEST, Ball
from slowscale.sampling.exact import Integers, Task, draw
from slowscale.sampling.samplers import Lift, Normal, Number, Sampler

if TYPE_CHECKING:
    from slowscale.mechanisms.additive import AdditiveMechanism
    from slowscale.mechanisms.base import Mechanism
    from slowscale.mechanisms.transformation import TransformationMechanism

# The noisy transformed value is published on a grid of about this share of its noise.
FINENESS = 2.0**-16
NORMAL = Normal()


def as_unit(unit: Any) -> Fraction:
    """Return the grid step as an exact number."""
    allowed = 'a number > 0: an int, a Decimal, a Fraction or text such as "0.01"'
    if isinstance(unit, str):
        try:
            value = Fraction(unit)
        except (ValueError, ZeroDivisionError):
            raise ParameterError(f"unit must be {allowed}, got {unit!r}") from None
    else:
        number = as_number("unit", unit, allowed)
        if not math.isfinite(number):
            raise ParameterError(f"unit must be {allowed}, got {unit}")
        value = Fraction(unit if isinstance(unit, int | Decimal | Fraction) else number)
        if isinstance(unit, float | np.floating) and value.denominator > 2**20:
            raise ParameterError(f'unit must be exact: give "{unit}" or Decimal("{unit}") instead of the float {unit}')
    if not Fraction(1, 10**300) < value < 10**300:
        raise ParameterError(f"unit must be {allowed}, got {unit}")
    return value


@dataclass(frozen=True)
class Exact:
    """Exact sums given as whole numbers of a grain: what a release takes where numbers would be slow or rounded.

    With `rest` they are (counts + rest/parts)·grain, where 0 <= rest < parts.
    """

    counts: Integers
    grain: Fraction
    rest: Integers | None = None
    parts: int = 1


@dataclass(frozen=True)
class Sums:
    """Exact sums as whole numbers of units and what is left of a unit, from 0 to 1."""

    unit: Fraction
    whole: Integers
    rest: Ball | None  # None: all are whole numbers of units
    exact_rest: Callable[[int], Fraction]
    shape: tuple[int, ...]

    @staticmethod
    def of(q: Any, unit: Fraction) -> "Sums":
        """Take apart a number or an array: integers, floats (as their exact binary value), Decimals, Fractions."""
        grain = Fraction(1)
        if isinstance(q, Exact):
            if q.rest is not None:
                return Sums._with_rest(q, unit)
            q, grain = q.counts, q.grain
        ratio = grain / unit
        if isinstance(q, np.ma.MaskedArray) and np.ma.is_masked(q):
            raise ParameterTypeError("q must not hold masked values")
        array = np.asarray(q, dtype=object if _is_exact(q) else None)  # never a subclass with rules of its own
        flat = array.ravel()
        if flat.dtype.kind not in "iufO" or flat.dtype.itemsize > 8:
            raise ParameterTypeError(f"q must be numbers of at most 64 bits, or Python numbers, got {flat.dtype}")
        if flat.dtype.kind == "f" and not np.isfinite(flat).all():
            raise ParameterError(f"q must be finite, got {flat[~np.isfinite(flat)][0]}")
        if flat.dtype.kind in "iu" and max((_largest(flat) + 1) * ratio.numerator, ratio.denominator) < 2**62:
            whole, over = np.divmod(flat.astype(np.int64) * ratio.numerator, ratio.denominator)
            rest = over / ratio.denominator
            ball = Ball(rest, ROUNDING * rest) if over.any() else None
            return Sums(unit, whole, ball, lambda row: Fraction(int(over[row]), ratio.denominator), array.shape)
        if unit == 1 and flat.dtype.kind == "f" and _largest(flat) < 2**52:
            wide = flat.astype(np.float64)
            floor = np.floor(wide)
            rest = wide - floor
            ball = Ball(rest, ROUNDING * rest) if rest.any() else None
            exact = lambda row: Fraction(float(wide[row])) - int(floor[row])  # noqa: E731
            return Sums(unit, floor.astype(np.int64), ball, exact, array.shape)
        parts = [divmod(_exact(item) * ratio, 1) for item in flat]
        wholes = [int(whole) for whole, _ in parts]
        fits = all(-(2**63) <= whole < 2**63 for whole in wholes)
        whole_array = np.array(wholes, np.int64 if fits else object)
        ball = None
        if any(rest for _, rest in parts):
            mids = np.array([float(rest) for _, rest in parts])
            ball = Ball(mids, ROUNDING * mids + SMALLEST * np.array([rest != 0 for _, rest in parts]))
        return Sums(unit, whole_array, ball, lambda row: parts[row][1], array.shape)

    @staticmethod
    def _with_rest(q: Exact, unit: Fraction) -> "Sums":
        """Take apart sums that come as whole grains and parts of a grain."""
        assert q.rest is not None
        ratio = q.grain / unit
        parts = ratio.denominator * q.parts
        if (ratio.numerator + ratio.denominator) * q.parts >= 2**62:
            return Sums.of(Exact(q.counts.astype(object) * q.parts + q.rest.astype(object), q.grain / q.parts), unit)
        small = q.counts.dtype != object and _largest(q.counts) * ratio.numerator < 2**62
        counts = (q.counts if small else q.counts.astype(object)) * ratio.numerator
        over = (counts % ratio.denominator).astype(np.int64) * q.parts + q.rest * ratio.numerator
        whole, over = counts // ratio.denominator + over // parts, over % parts
        rest = over / parts
        ball = Ball(rest, 2 * ROUNDING * rest) if over.any() else None
        return Sums(unit, whole, ball, lambda row: Fraction(int(over[row]), parts), q.counts.shape)

    def rest_of(self, rows: Any, lift: Lift) -> Number:
        """Return what is left of a unit."""
        assert self.rest is not None
        return lift(self.exact_rest(rows)) if isinstance(rows, int) else self.rest[rows]

    def value_of(self, rows: Any, lift: Lift) -> Number:
        """Return the sums themselves."""
        if isinstance(rows, int):
            return lift((int(self.whole[rows]) + self.exact_rest(rows)) * self.unit)
        mid = _floats(self.whole[rows])
        ball = Ball(mid, np.where(np.abs(mid) < 2**53, 0.0, ROUNDING * np.abs(mid)))
        if self.rest is not None:
            ball = ball + self.rest[rows]
        if self.unit != 1:
            scaled = ball * lift(self.unit)
            ball = Ball(scaled.mid, np.where(ball.mid == 0, ball.rad, scaled.rad))  # an empty sum stays exactly 0
        return ball


def _largest(array: Any) -> int:
    return max(abs(int(array.max())), abs(int(array.min()))) if array.size else 0


def _is_exact(q: Any) -> bool:
    """Whether q is, or holds, numbers that numpy would round."""
    if isinstance(q, list | tuple):
        return any(_is_exact(item) for item in q)
    return isinstance(q, Decimal | Fraction) or (isinstance(q, int) and not isinstance(q, bool))


def _exact(item: Any) -> Fraction:
    if not isinstance(item, int | Fraction) or isinstance(item, bool):  # these may be larger than any float
        number = as_number("q", item, "a finite number")
        if not math.isfinite(number):
            raise ParameterError(f"q must be finite, got {item}")
    return Fraction(item.item() if isinstance(item, np.generic) else item)


@dataclass(frozen=True)
class AdditiveTask(Task):
    """⌊(q + Z)/unit + ½⌋, less the whole units of q."""

    outputs = 1

    mechanism: "AdditiveMechanism"
    sums: Sums

    @property
    def extra(self) -> int:
        """None: it rounds to nearest."""
        return 0

    @property
    def sampler(self) -> Sampler:
        """The sampler of the noise."""
        return self.mechanism._sampler

    def finish(self, variate: Number, extra: list[Number], rows: Any, lift: Lift) -> list[Number]:
        """Return what is to be floored."""
        shifted = 0.5 if self.sums.rest is None else self.sums.rest_of(rows, lift) + 0.5
        return [variate * lift(self._scale) + shifted]

    @lazy
    def _scale(self) -> Fraction:
        return Fraction(self.mechanism.sigma) / self.sums.unit


@dataclass(frozen=True)
class TransformationTask(Task):
    """The estimate and the noisy transformed value, each on its grid; a third uniform rounds a mean at random."""

    outputs = 2

    mechanism: "TransformationMechanism"
    sums: Sums
    step: float

    @property
    def sampler(self) -> Sampler:
        """The sampler of the noise."""
        return NORMAL

    @property
    def extra(self) -> int:
        """One uniform to round at random, none to round to nearest."""
        return int(self.mechanism._rounds_at_random)

    def finish(self, variate: Number, extra: list[Number], rows: Any, lift: Lift) -> list[Number]:
        """Return what is to be floored."""
        m = self.mechanism
        transformed = m._exact_transform(self.sums.value_of(rows, lift), lift) + variate * m.sigma
        estimate = m._exact_estimate(transformed, lift) * lift(1 / self.sums.unit)
        return [estimate + (extra[0] if extra else 0.5), transformed * lift(1 / Fraction(self.step)) + 0.5]


@dataclass(frozen=True)
class Noisy:
    """A released sum, or an array of them, with what a reader needs to judge it.

    Attributes
    ----------
    units
        The exact result: whole numbers of `unit` (int64 where they fit, else Python integers).
    unit
        The public grid step.
    transformed
        The noisy transformed value of a transformation mechanism, on its own fine grid; else None.
    private
        Whether the noise came from secret bits. If not, this is a test result and must not be published.
    """

    mechanism: "Mechanism"
    units: Any
    unit: Fraction
    transformed: Any
    level: float
    private: bool

    @lazy
    def value(self) -> Any:
        """units × unit: integers when the unit is one, else floats."""
        if self.unit.denominator == 1:
            size = max(1, 0 if self.single else _largest(self.units)) * self.unit.numerator
            fits = self.single or size < 2**63
            return (self.units if fits else self.units.astype(object)) * self.unit.numerator
        return self.floats

    @property
    def single(self) -> bool:
        """Whether this is one sum, not an array."""
        return not isinstance(self.units, np.ndarray)

    @lazy
    def floats(self) -> Any:
        """units × unit as floats, infinite where a float cannot hold it."""
        if self.single:
            return _as_float(self.units * self.unit)
        if self.units.dtype == object or self.unit.numerator > 1:
            return np.array([_as_float(int(n) * self.unit) for n in self.units.flat], float).reshape(self.units.shape)
        return self.units / self.unit.denominator

    @lazy
    def se(self) -> Any:
        """The standard error, rounding included; for a transformation estimated from the released value."""
        return self.mechanism._standard_error(self)

    @lazy
    def _interval(self) -> tuple[Any, Any]:
        return self.mechanism._confidence_interval(self)

    @property
    def low(self) -> Any:
        """The lower end of an interval that holds the true sum with probability `level` or a little more."""
        return self._interval[0]

    @property
    def high(self) -> Any:
        """The upper end of that interval."""
        return self._interval[1]

    def __repr__(self) -> str:
        warning = "" if self.private else "NOT PRIVATE (drawn from test bits): "
        return f"<{warning}{self.value} ± {self.se} by {self.mechanism}>"


def release_additive(mechanism: "AdditiveMechanism", q: Any, unit: Any, level: float, bits: BitSource | None) -> Noisy:
    """Draw q + Z, rounded to nearest."""
    sums = Sums.of(q, as_unit(unit))
    source = bits if bits is not None else SECRET
    (noise,) = draw(AdditiveTask(mechanism, sums), sums.whole.size, source)
    return Noisy(mechanism, _shaped(_add(sums.whole, noise), sums.shape), sums.unit, None, level, source.private)


def release_transformed(
    mechanism: "TransformationMechanism", q: Any, unit: Any, level: float, bits: BitSource | None
) -> Noisy:
    """Draw g(f(q + a) + σN), rounded at random for a mean estimator and to nearest for a median one."""
    sums = Sums.of(q, as_unit(unit))
    if (sums.whole < 0).any():
        raise ParameterError(f"q must be >= 0 for {type(mechanism).__name__}, got a negative sum")
    source = bits if bits is not None else SECRET
    step = 2.0 ** (math.frexp(mechanism.sigma)[1] - 1) * FINENESS
    if step < 1e-290:
        raise ParameterError(f"sigma must be larger than 1e-280 to release anything, got {mechanism.sigma:g}")
    units, transformed = draw(TransformationTask(mechanism, sums, step), sums.whole.size, source)
    fine = transformed.astype(np.float64) * step
    noisy = _shaped(fine, sums.shape)
    return Noisy(mechanism, _shaped(units, sums.shape), sums.unit, noisy, level, source.private)


def _floats(whole: Integers) -> Any:
    return whole.astype(np.float64) if whole.dtype != object else np.array([_as_float(n) for n in whole], float)


def _as_float(value: Fraction | int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _add(whole: Integers, more: Integers) -> Integers:
    """Add whole numbers without wrap-around."""
    if whole.dtype != object and more.dtype != object:
        total: Integers = whole + more
        if not (((whole ^ total) & (more ^ total)) < 0).any():
            return total
    summed: Integers = whole.astype(object) + more.astype(object)
    # The type tells no more than the result does.
    fits = all(-(2**63) <= number < 2**63 for number in summed)
    return summed.astype(np.int64) if fits else summed


def _shaped(values: Any, shape: tuple[int, ...]) -> Any:
    return values.reshape(shape) if shape else values[0].item() if hasattr(values[0], "item") else values[0]
