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
from slowscale.figures import rounded
from slowscale.mechanisms.grid import add, as_unit, directed, elementwise, floats, largest, shaped, values
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


@dataclass(frozen=True, repr=False, eq=False)
class Exact:
    """Exact sums given as whole numbers of a grain: what a release takes where numbers would be slow or rounded.

    With `rest` they are (counts + rest/parts)·grain, where 0 <= rest < parts.
    """

    counts: Integers
    grain: Fraction
    rest: Integers | None = None
    parts: int = 1

    def __repr__(self) -> str:
        return "<exact sums: confidential>"


@dataclass(frozen=True, repr=False, eq=False)
class Sums:
    """Exact sums as whole numbers of units and what is left of a unit, from 0 to 1."""

    unit: Fraction
    whole: Integers
    rest: Ball | None  # None: all are whole numbers of units
    exact_rest: Callable[[int], Fraction]
    shape: tuple[int, ...]
    on_grid: bool = False  # by their type, whatever the values: all are whole numbers of units

    def __repr__(self) -> str:
        return "<exact sums: confidential>"

    @staticmethod
    def of(q: Any, unit: Fraction) -> "Sums":
        """Take apart a number or an array: integers, floats (as their exact binary value), Decimals, Fractions."""
        grain = Fraction(1)
        if isinstance(q, Exact):
            if q.rest is not None:
                return Sums._with_rest(q, unit)
            q, grain = q.counts, q.grain
        ratio = grain / unit
        on_grid = ratio.denominator == 1 and _is_whole(q)
        if isinstance(q, np.ma.MaskedArray) and np.ma.is_masked(q):
            raise ParameterTypeError("q must not hold masked values")
        array = np.asarray(q, dtype=object if _is_exact(q) else None)  # never a subclass with rules of its own
        flat = array.ravel()
        if flat.dtype.kind not in "iufO" or flat.dtype.itemsize > 8:
            raise ParameterTypeError(f"q must be numbers of at most 64 bits, or Python numbers, got {flat.dtype}")
        if flat.dtype.kind == "f" and not np.isfinite(flat).all():
            raise ParameterError(f"q must be finite, got {flat[~np.isfinite(flat)][0]}")
        if flat.dtype.kind in "iu" and max((largest(flat) + 1) * ratio.numerator, ratio.denominator) < 2**62:
            whole, over = np.divmod(flat.astype(np.int64) * ratio.numerator, ratio.denominator)
            rest = over / ratio.denominator
            ball = Ball(rest, ROUNDING * rest) if over.any() else None
            exact = lambda row: Fraction(int(over[row]), ratio.denominator)  # noqa: E731
            return Sums(unit, whole, ball, exact, array.shape, on_grid)
        if unit == 1 and flat.dtype.kind == "f" and largest(flat) < 2**52:
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
        return Sums(unit, whole_array, ball, lambda row: parts[row][1], array.shape, on_grid)

    @staticmethod
    def _with_rest(q: Exact, unit: Fraction) -> "Sums":
        """Take apart sums that come as whole grains and parts of a grain."""
        assert q.rest is not None
        ratio = q.grain / unit
        parts = ratio.denominator * q.parts
        if (ratio.numerator + ratio.denominator) * q.parts >= 2**62:
            return Sums.of(Exact(q.counts.astype(object) * q.parts + q.rest.astype(object), q.grain / q.parts), unit)
        small = q.counts.dtype != object and largest(q.counts) * ratio.numerator < 2**62
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


def _is_whole(q: Any) -> bool:
    """Whether q is, or holds, nothing but whole numbers by type."""
    if isinstance(q, np.ndarray):
        return q.dtype.kind in "iu" or (q.dtype == object and all(isinstance(item, int) for item in q.flat))
    if isinstance(q, list | tuple):
        return all(map(_is_whole, q))
    return isinstance(q, int | np.integer)


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


@dataclass(frozen=True, eq=False)
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
    level
        The level of the interval from `low` to `high`.
    private
        Whether the noise came from secret bits. If not, this is a test result and must not be published.
    on_grid
        Whether the true sums are whole numbers of units by their type, such as counts with a unit of 1.
    """

    mechanism: "Mechanism"
    units: Any
    unit: Fraction
    transformed: Any
    level: float
    private: bool
    on_grid: bool = False
    _fine: Integers | None = None  # the transformed values as whole numbers of their grid's step

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Noisy):
            return NotImplemented
        known = [(n.mechanism, n.unit, n.level, n.private, n.on_grid, n.single) for n in (self, other)]
        arrays = [(self.units, other.units), (self.transformed, other.transformed)]
        return known[0] == known[1] and all(np.array_equal(one, two) for one, two in arrays)

    __hash__ = None  # type: ignore[assignment]

    @lazy
    def value(self) -> Any:
        """units × unit: integers when the unit is one, else floats."""
        return values(self.units, self.unit)

    @property
    def single(self) -> bool:
        """Whether this is one sum, not an array."""
        return not isinstance(self.units, np.ndarray)

    @lazy
    def floats(self) -> Any:
        """units × unit as floats, infinite where a float cannot hold it."""
        return elementwise(lambda units: floats(units, self.unit), self.units)

    @lazy
    def se(self) -> Any:
        """The standard error, rounding included.

        Additive noise has one for all sums. For a transformation it is the standard deviation at the median estimate of
        the sum: as likely too large as too small, and never below that of an empty cell.
        """
        return self.mechanism._standard_error(self)

    @lazy
    def ends(self) -> tuple[Any, Any]:
        """The ends of the interval in whole numbers of units, floats where one is infinite."""
        return self.mechanism._confidence_interval(self)

    @lazy
    def low(self) -> Any:
        """The lower end of an interval that holds the true sum with probability `level` or more.

        Both ends lie on the grid, rounded outwards: integers when the unit is one, else floats.
        """
        return values(self.ends[0], self.unit, -1)

    @lazy
    def high(self) -> Any:
        """The upper end of that interval."""
        return values(self.ends[1], self.unit, 1)

    def __repr__(self) -> str:
        warning = "" if self.private else "NOT PRIVATE (drawn from test bits): "
        return f"<{warning}{self.value} ± {rounded(self.se, 4)} by {self.mechanism}>"


def release_additive(mechanism: "AdditiveMechanism", q: Any, unit: Any, level: float, bits: BitSource | None) -> Noisy:
    """Draw q + Z, rounded to nearest."""
    sums = Sums.of(q, as_unit(unit))
    source = bits if bits is not None else SECRET
    (noise,) = draw(AdditiveTask(mechanism, sums), sums.whole.size, source)
    units = shaped(add(sums.whole, noise), sums.shape)
    return Noisy(mechanism, units, sums.unit, None, level, source.private, sums.on_grid)


def release_transformed(
    mechanism: "TransformationMechanism", q: Any, unit: Any, level: float, bits: BitSource | None
) -> Noisy:
    """Draw g(f(q + a) + σN), rounded at random for a mean estimator and to nearest for a median one."""
    sums = Sums.of(q, as_unit(unit))
    if (sums.whole < 0).any():
        raise ParameterError(f"q must be >= 0 for {type(mechanism).__name__}, got a negative sum")
    source = bits if bits is not None else SECRET
    step = fine_step(mechanism.sigma)
    if step < 1e-290:
        raise ParameterError(f"sigma must be larger than 1e-280 to release anything, got {mechanism.sigma:g}")
    units, fine = draw(TransformationTask(mechanism, sums, step), sums.whole.size, source)
    transformed = shaped(fine.astype(np.float64) * step, sums.shape)
    return Noisy(
        mechanism, shaped(units, sums.shape), sums.unit, transformed, level, source.private, sums.on_grid, fine
    )


def fine_step(sigma: float) -> float:
    """Return the step of the grid that the noisy transformed value is published on: a power of two."""
    return float(2.0 ** (math.frexp(sigma)[1] - 1) * FINENESS)


def _floats(whole: Integers) -> Any:
    return whole.astype(np.float64) if whole.dtype != object else np.array([directed(n, 0) for n in whole], float)
