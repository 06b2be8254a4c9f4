"""Certified Rényi divergences between a noise and its shift: the tight PRzCDP loss at one influence Δ.

With L(z) = ln p(z)/p(z − Δ), the reflection z → Δ − z swaps the two densities, so that for every order α > 1

    A(α) = exp((α − 1)·d_α) − 1 = ∫ over z < Δ/2 of p(z − Δ)·g(L) dz,  g(L) = (e^(αL) − 1)·(1 − e^(−(α − 1)L)).

No term is negative, so nothing cancels. The integral is split into cells. On each cell straight lines bound L and
ln p from above, by bounds on second derivatives, and a tangent bounds ln g, which is concave in L. The integrand is
therefore at most the exponential of a straight line, which has an integral in closed form. Chords in place of tangents
give a lower bound. The gap between the two falls with the square of the width of the cells.

The tight loss is the supremum of d_α/α over all α > 1. Two facts bound it between neighbouring orders α:

- ψ(α) = (α − 1)·d_α is convex and ψ(1) = 0, so it is at most its chord, and ψ(α)/(α − 1) does not decrease. Beyond the
  last order its slope is at most the largest L, and so is ψ(α)/(α − 1).
- A(α)/(α(α − 1)) does not decrease, because sinh(x)/x does not, and ψ <= A. This is the better bound where A is small.

Neighbouring influences are computed together: bounds hold on any cells, so cells and orders are chosen only once, for
the largest influence. Where an order matters little, the bound at the largest influence serves the others, too, because
A does not decrease with the influence.

All numbers are 64-bit floats. Each step adds a bound on its rounding, which is named where it is added. The bounds rest
on what a noise promises and tests check: `_drop` and `_drop_rise` have a relative error of at most EXPONENT_ROUNDING,
ln p(0) is wrong by at most NORMALISING_ERROR, and a log tail by at most TAIL_ERROR.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np
import numpy.typing as npt

from slowscale.core.errors import SlowscaleError
from slowscale.core.parameters import Array, lazy
from slowscale.noise.symmetric import SymmetricNoise

Flags = npt.NDArray[np.bool_]

# A bound on the relative rounding error of an exponent: 64 units in the last place of its largest term.
EXPONENT_ROUNDING = 2.0**-46
# A bound on the relative rounding error of each term of a sum: 4 units in the last place.
TERM_ROUNDING = 2.0**-50
# A bound on the error of the log of the density's normalising constant.
NORMALISING_ERROR = 1e-12
# A bound on the error of the log of a tail, ten times the accuracy of distribution functions.
TAIL_ERROR = 1e-9
# Kinks are kept away from the ends of cells by four times this share of their size: far more than rounding moves them.
KINK_SLACK = 2.0**-40
# The noise beyond the quantile with this tail is bounded as a whole.
FAR_TAIL = 1e-16
# The ratio of neighbouring ends of the cells before these are split.
COARSE_RATIO = 1.4
# The smallest α − 1. The supremum over smaller orders is at most this share above the value there.
FIRST_ORDER = 2.0**-12
# Orders are first searched with this precision, on the coarse cells.
COARSE_PRECISION = 0.05
# Orders whose value is at least this share of the largest one are computed on the fine cells.
MATTERING_SHARE = 0.9
MOST_PARTS = 400
MOST_ROUNDS = 60


@dataclass(frozen=True)
class TightLoss:
    """Bounds on the tight PRzCDP loss at one influence, and what they were computed from.

    Attributes
    ----------
    influence, upper, lower
        The influence, and the bounds on the loss.
    order
        The order α with the largest d_α/α that was found.
    cells, orders
        The number of cells of the integrals, and of orders.
    """

    influence: float
    upper: float
    lower: float
    order: float
    cells: int
    orders: int


@dataclass(frozen=True)
class _Cells:
    """Cells on one side of 0, in t = |z|, with straight lines given by their values at both ends (the first axis).

    The last axis is that of the cells. With several influences, the axis before is that of the influences.
    """

    t: Array  # the ends, from 0
    width: Array
    upper: Array  # a line above L
    lower: Array  # a line below L
    density: Array  # a line above ln p(z − Δ)
    density_gap: Array  # how far that line may lie above it

    @classmethod
    def of(cls, t: Array, loss: Array, bend: Array, falls: Flags, density: Array, lift: Array, bow: Array) -> Self:
        """Return cells from the values of L and ln p(z − Δ) at their ends.

        `bend` bounds |L''|, and `bow` the second derivative of ln p(z − Δ), on each cell. `falls` says where L is known
        to fall with t. `lift` is what must be added to the chord of ln p(z − Δ): nothing where it is convex.
        """
        width = t[..., 1:] - t[..., :-1]
        ends, densities = (np.stack([value[..., :-1], value[..., 1:]]) for value in (loss, density))
        curved = bend * width * width / 8
        # Where L falls, it lies between its values at the two ends.
        flat = falls & ~(2 * curved < ends[0] - ends[1])
        upper = np.where(flat, ends[0], ends + curved) * (1 + EXPONENT_ROUNDING)
        lower = np.where(flat, ends[1], np.maximum(ends - curved, 0.0)) * (1 - EXPONENT_ROUNDING)
        gap = lift + np.fmin(bow * width * width / 8, np.abs(densities[0] - densities[1]))
        return cls(t, width, upper, lower, densities + lift, gap)

    @lazy
    def _log_width(self) -> Array:
        return np.log(self.width)

    @lazy
    def _fixed(self) -> Array:
        """The size of the terms of an exponent that do not depend on L."""
        return np.asarray(np.abs(self.density).max(axis=0) + np.abs(self._log_width))

    def log_upper(self, order: Array) -> Array:
        """Return ln of an upper bound on the integral over each cell, for a column of orders α − 1."""
        middle = (self.upper[0] + self.upper[1]) / 2
        value, slope = _log_g(middle, order)
        half = slope * ((self.upper[0] - self.upper[1]) / 2)
        value = value + self._rounding((1.0 + order) * middle + np.abs(half) + np.abs(value))
        return self._log_integral(value + half + self.density[0], value - half + self.density[1])

    def log_lower(self, order: Array) -> Array:
        """Return ln of a lower bound on the integral over each cell, for a column of orders α − 1."""
        with np.errstate(divide="ignore", invalid="ignore"):
            values = [_log_g(loss, order)[0] for loss in self.lower]
            size = (1.0 + order) * self.lower.max(axis=0) + np.abs(values).max(axis=0)
            below = self.density_gap + self._rounding(size)
            left, right = (value + density - below for value, density in zip(values, self.density, strict=True))
            parts = self._log_integral(left, right)
        return np.where(np.isfinite(parts), parts, -np.inf)

    def _rounding(self, size: Array) -> Array:
        """Return a bound on the error of an exponent, from the size of its terms that depend on L."""
        return np.asarray(EXPONENT_ROUNDING * (size + self._fixed) + NORMALISING_ERROR)

    def _log_integral(self, left: Array, right: Array) -> Array:
        """Return ln of the integral of the exponential of a straight line with these values at the ends of a cell."""
        fall = np.abs(left - right)
        level = fall == 0
        fall[level] = 1.0
        shape = np.log(-np.expm1(-fall) / fall)
        shape[level] = 0.0
        return np.asarray(np.maximum(left, right) + self._log_width + shape)

    def split(self, parts: npt.NDArray[np.intp]) -> Array:
        """Return ends that split each cell into a number of parts, in a geometric sequence; the first cell stays."""
        ends, parts = self.t[1:], parts[1:]
        first = np.cumsum(parts) - parts
        within = (np.arange(parts.sum()) - np.repeat(first, parts)) / np.repeat(parts, parts)
        ratios = np.log(ends[1:] / ends[:-1])
        inner = np.repeat(ends[:-1], parts) * np.exp(within * np.repeat(ratios, parts))
        inner[first] = ends[:-1]  # without rounding: the ends around a kink must stay
        return np.concatenate([[0.0], inner, ends[-1:]])


def _log_g(loss: Array, order: Array) -> tuple[Array, Array]:
    """Return ln g(L) and its derivative, for L > 0 and a column of orders α − 1."""
    alpha = 1.0 + order
    one, two = -np.expm1(-alpha * loss), -np.expm1(-order * loss)
    value = alpha * loss + np.log(one) + np.log(two)
    return value, alpha / one + order / two - order


class _Integrals:
    """Bounds on A(α) for one noise, and for one influence or an array of them, on the same cells or nearly so."""

    def __init__(self, noise: SymmetricNoise, influence: float, last: float) -> None:
        """Choose coarse cells for one influence."""
        first, half = _first_end(noise, influence), influence / 2
        # Beyond both ends p(z − Δ) falls as fast as p(z), so that the tail can be bounded as a whole.
        outer, inner = _geometric(first, max(last, influence)), _geometric(min(first, half / 4), half)
        self._place(noise, np.asarray(influence), [np.append(0.0, outer), np.append(0.0, inner)])

    def _place(self, noise: SymmetricNoise, influence: Array, ends: Sequence[Array]) -> None:
        """Compute the cells with these ends, to which those around kinks are added; the last end of z > 0 is Δ/2."""
        self._noise, self._influence, self._column = noise, influence, influence[..., None]
        outer, inner = ends
        inner = inner * (self._column / (2 * inner[-1]))
        inner[..., -1] = influence / 2
        self._cells = [self._outer(self._with_kinks(outer)), self._inner(self._with_kinks(inner))]
        end = self._cells[0].t[..., -1:]
        self._tail_loss = noise._drop_rise(end, self._column) * (1 + EXPONENT_ROUNDING)
        tail = noise._log_tail((end + self._column).ravel()).reshape(self._column.shape)
        self._log_tail = tail - math.log(2) + TAIL_ERROR
        self.largest = np.maximum(*(cells.upper.max(axis=(0, -1)) for cells in self._cells))

    @property
    def count(self) -> int:
        """The number of cells of each influence."""
        return sum(cells.width.shape[-1] for cells in self._cells)

    def _with_kinks(self, ends: Array) -> Array:
        """Return ends to which two ends around each kink of L and of ln p(z − Δ) are added.

        Rounding moves such a kink, which may be κ − Δ, by less than the distance to these ends. So each kink lies in a
        narrow cell, where only the values at its ends are used; all other cells have none.
        """
        ends = np.broadcast_to(ends, (*self._influence.shape, ends.shape[-1]))
        if not self._noise._kinks:
            return ends
        kinks = np.outer(self._noise._kinks, [1 - 4 * KINK_SLACK, 1 + 4 * KINK_SLACK]).ravel()
        rows = []
        for influence, row in zip(self._influence.ravel(), ends.reshape(-1, ends.shape[-1]), strict=True):
            places = np.concatenate([kinks, kinks - influence, influence - kinks])
            rows.append(np.union1d(row, places[(places > row[1]) & (places < row[-1])]))
        # Some have fewer kinks inside; their widest cell is split instead, so that all have as many cells.
        most = max(row.size for row in rows)
        widest = [int(np.diff(row).argmax()) for row in rows]
        extra = [
            np.linspace(row[i], row[i + 1], most - row.size + 2)[1:-1] for row, i in zip(rows, widest, strict=True)
        ]
        rows = [np.insert(row, i + 1, more) for row, i, more in zip(rows, widest, extra, strict=True)]
        return np.array(rows).reshape(*self._influence.shape, most)

    def _between_kinks(self, low: Array, high: Array, bound: Array) -> Array:
        """Return a bound on a derivative where no kink is in the interval from `low` to `high`, else infinity."""
        kinks = np.array(self._noise._kinks)
        after = np.searchsorted(kinks, high * (1 + KINK_SLACK), "right")
        return np.where(after > np.searchsorted(kinks, low * (1 - KINK_SLACK), "left"), np.inf, bound)

    def _outer(self, t: Array) -> _Cells:
        """Return the cells of z = −t < 0."""
        noise, influence = self._noise, self._column
        near, far = t[..., :-1], t[..., :-1] + influence
        (second, third), (second_far, _) = noise._bends(near), noise._bends(far)
        with np.errstate(over="ignore"):
            bow = self._between_kinks(far, t[..., 1:] + influence, second_far)
            # Either bound on L'': the two terms by themselves, or Δ times the third derivative between them.
            bend = np.fmin(
                self._between_kinks(near, t[..., 1:], second) + bow,
                self._between_kinks(near, t[..., 1:] + influence, influence * third),
            )
        rise = noise._drop_rise(t, np.broadcast_to(influence, t.shape))
        return self._with_density(t, rise, bend, near >= noise._concave_from, t + influence, far, second_far, bow)

    def _inner(self, t: Array) -> _Cells:
        """Return the cells of 0 < z = t < Δ/2, on which L always falls."""
        noise, influence = self._noise, self._column
        far = influence - t[..., 1:]
        (second, _), (second_far, _) = noise._bends(t[..., :-1]), noise._bends(far)
        bow = self._between_kinks(far, influence - t[..., :-1], second_far)
        bend = self._between_kinks(t[..., :-1], t[..., 1:], second) + bow
        rise = noise._drop_rise(t, influence - 2 * t)
        return self._with_density(t, rise, bend, np.ones_like(far, bool), influence - t, far, second_far, bow)

    def _with_density(
        self, t: Array, rise: Array, bend: Array, falls: Flags, places: Array, far: Array, second: Array, bow: Array
    ) -> _Cells:
        """Return cells with ends t, and |z − Δ| = `places` there; `far` is the smaller |z − Δ| of each cell."""
        noise, width = self._noise, t[..., 1:] - t[..., :-1]
        lift = np.where(far >= noise._concave_from, 0.0, second * width * width / 8)
        return _Cells.of(t, rise, bend, falls, noise._log_peak - noise._drop(places), lift, bow)

    def split(self, orders: Array, precision: float, influences: Array) -> "_Integrals":
        """Return integrals for several influences, none above this one, on cells that are split.

        The gap between the bounds on A is about `precision` at some orders α − 1.
        """
        column = orders[:, None]
        whole = self.log_upper(orders)[:, None]
        roots = []
        for cells in self._cells:
            upper = cells.log_upper(column)
            open_ = -np.expm1(np.minimum(cells.log_lower(column) - upper, 0.0))
            roots.append(np.cbrt((np.exp(upper - whole) * open_).max(axis=0)))
        # The gap of n parts is 1/n² of that of the cell, so n ∝ gap^(1/3) needs the fewest cells.
        scale = math.sqrt(sum(float(root.sum()) for root in roots) / precision)
        fine = object.__new__(_Integrals)
        parts = [np.clip(np.ceil(root * scale).astype(np.intp), 1, MOST_PARTS) for root in roots]
        fine._place(
            self._noise, influences, [cells.split(part) for cells, part in zip(self._cells, parts, strict=True)]
        )
        return fine

    def log_upper(self, orders: Array) -> Array:
        """Return ln of upper bounds on A at orders α − 1 (the first axis)."""
        column = orders.reshape(-1, *[1] * self._column.ndim)
        beyond = _log_g(self._tail_loss, column)[0]
        beyond = beyond + EXPONENT_ROUNDING * ((1 + column) * self._tail_loss + np.abs(beyond)) + self._log_tail
        logs, rounding = _log_sum([*(cells.log_upper(column) for cells in self._cells), beyond])
        return logs + rounding

    def log_lower(self, orders: Array) -> Array:
        """Return ln of lower bounds on A at orders α − 1 (the first axis)."""
        column = orders.reshape(-1, *[1] * self._column.ndim)
        logs, rounding = _log_sum([cells.log_lower(column) for cells in self._cells])
        return logs - rounding


def _log_sum(parts: Sequence[Array]) -> tuple[Array, Array]:
    """Return ln of the sum of the exponentials along the last axis, and a bound on its rounding error.

    The largest of the n terms is 1. Each term exp(−x) is wrong by at most x·exp(−x) < 1/2 and a few units in the last
    place of 1; the sum, in whatever order, adds n − 1 roundings.
    """
    terms = np.concatenate(parts, axis=-1)
    top = np.maximum(terms.max(axis=-1), -1e300)
    terms -= top[..., None]
    with np.errstate(divide="ignore"):
        logs = top + np.log(np.exp(terms, out=terms).sum(axis=-1))
    return logs, TERM_ROUNDING * (terms.shape[-1] + 1 + np.abs(top))


def _first_end(noise: SymmetricNoise, influence: float) -> float:
    """Return a t so near to 0 that the cell from 0 to t matters little, although L is only known to be at most L(0)."""
    t = influence * 10.0 ** -np.arange(0.0, 290.0, 0.5)
    t = t[t > 1e-280]
    # The tolerance decides between a power and its root in the same way whatever the units are.
    near = noise._drop(t) <= 1e-5 * (1 + 1e-9) * min(1.0, float(noise._drop(np.array([influence]))[0]))
    return float(t[near.argmax()] if near.any() else t[-1]) * 1e-3


def _geometric(first: float, last: float) -> Array:
    low, high = math.log(first), math.log(last)
    count = math.ceil((high - low) / math.log(COARSE_RATIO))
    return np.append(np.exp(np.linspace(low, high, count + 1)[:-1]), last)


@dataclass
class _Orders:
    """Upper bounds on A at some orders α − 1 (the first axis), and what follows from them for the orders between.

    Further axes are those of the influences.
    """

    log_upper: Callable[[Array], Array]
    largest: float | Array  # a bound on L
    orders: Array
    logs: Array

    @classmethod
    def of(cls, integrals: _Integrals, orders: Array) -> Self:
        return cls(integrals.log_upper, integrals.largest, orders, integrals.log_upper(orders))

    def _rows(self, values: Array) -> Array:
        """Return one value per order as a column."""
        return values.reshape(-1, *[1] * (self.logs.ndim - 1))

    def _row(self, value: float | Array) -> Array:
        """Return one value, or one per influence, as a row."""
        return np.broadcast_to(value, (1, *self.logs.shape[1:]))

    @property
    def psi(self) -> Array:
        """Upper bounds on ψ at the orders: ψ(α)/(α − 1) is at most its later values, and at most the largest L."""
        orders = self._rows(self.orders)
        slopes = np.logaddexp(0.0, self.logs) / orders * (1 + EXPONENT_ROUNDING)
        return orders * np.minimum.accumulate(np.concatenate([slopes, self._row(self.largest)])[::-1])[:0:-1]

    @property
    def values(self) -> Array:
        """ψ(α)/(α(α − 1)) at the orders."""
        return self.psi / self._rows(self.orders * (self.orders + 1))

    def suprema(self) -> tuple[Array, Array]:
        """Return bounds on the supremum below the first order, between neighbouring ones and beyond the last.

        The second array says where each chord has its supremum.
        """
        x, ends = self._rows(np.append(0.0, self.orders)), self._rows(np.append(self.orders, np.inf))
        psi = np.concatenate([self._row(0.0), self.psi])
        slopes = np.concatenate([np.diff(psi, axis=0) / np.diff(x, axis=0), self._row(self.largest)])
        # A chord is slope·(x − root), x = α − 1. Divided by x(x + 1), it is largest at root + √(root² + root), and flat
        # there, so that rounding of this place does not matter. As ψ/x does not decrease, no root is below 0 but by
        # rounding, and no digits cancel in a chord that starts from ψ.
        root = np.maximum(x - psi / slopes, 0.0)
        at = np.clip(root + np.sqrt(root * root + root), x, ends)
        with np.errstate(invalid="ignore"):
            chords = (psi + slopes * (at - x)) / (at * (at + 1))
        chords[0], at[0] = slopes[0], self.orders[0]
        with np.errstate(over="ignore"):
            rises = np.exp(self.logs) / self._rows(self.orders * (self.orders + 1))
        return np.fmin(chords, np.concatenate([rises, self._row(np.inf)])) * (1 + EXPONENT_ROUNDING), at

    def close(self, precision: float) -> None:
        """Add orders until the supremum over all orders is close to the largest value at one of them."""
        for _ in range(MOST_ROUNDS):
            suprema, at = self.suprema()
            excess = (suprema / self.values.max(axis=0)).reshape(len(suprema), -1)
            worst = excess.argmax(axis=1)[:, None]  # the influence that needs a further order the most
            wide = excess.max(axis=1) > 1 + precision
            wide[0] &= self.orders[0] > FIRST_ORDER
            if not wide.any():
                return
            low, high = np.append(0.0, self.orders)[wide], np.append(self.orders, 64 * self.orders[-1])[wide]
            room = 0.2 * (high - low)
            wanted = np.take_along_axis(at.reshape(excess.shape), worst, axis=1)[wide, 0]
            more = np.clip(wanted, low + room, high - room)
            more[low == 0] = FIRST_ORDER
            self.logs = np.concatenate([self.logs, self.log_upper(more)])
            self.orders, places = np.unique(np.concatenate([self.orders, more]), return_index=True)
            self.logs = self.logs[places]


@lru_cache(maxsize=256)
def far_end(noise: SymmetricNoise) -> float:
    """Return the t beyond which the noise is bounded as a whole; `_drop` is concave there."""
    return max(float(noise.isf(FAR_TAIL / 2)), 2 * noise._concave_from)


def tight_loss(
    noise: SymmetricNoise, influence: float, precision: float = 2e-4, last: float | None = None
) -> TightLoss:
    """Return certified bounds on the tight PRzCDP loss: the supremum of d_α/α over all orders α > 1.

    Parameters
    ----------
    noise
        The noise; its log-density falls on both sides of 0, and from some point on it is convex.
    influence
        By how much the noise is shifted, in (0, ∞).
    precision
        About half the relative gap between the bounds.
    last
        The result of `far_end`, if it is known.
    """
    return tight_losses(noise, np.array([influence]), precision, last)[0]


def tight_losses(
    noise: SymmetricNoise, influences: Array, precision: float, last: float | None = None
) -> list[TightLoss]:
    """Return certified bounds on the tight losses at neighbouring influences, in increasing order."""
    last = far_end(noise) if last is None else last
    coarse = _Integrals(noise, float(influences[-1]), last)
    most = max(64.0, 64 / float(coarse.largest))
    orders = _Orders.of(coarse, np.append(FIRST_ORDER, np.geomspace(0.25, most, 3 + math.ceil(math.log(most) / 2))))
    orders.close(COARSE_PRECISION)
    # The loss grows about with the square of the influence at most, so that these matter for the smallest one, too.
    share = MATTERING_SHARE * float(influences[0] / influences[-1]) ** 2
    matter = orders.values > share * orders.values.max()
    fine = coarse.split(orders.orders[matter], precision, influences)
    # Elsewhere, the coarse bounds at the largest influence are good enough.
    logs = np.repeat(orders.logs[:, None], influences.size, axis=1)
    logs[matter] = fine.log_upper(orders.orders[matter])
    orders = _Orders(fine.log_upper, fine.largest, orders.orders, logs)
    orders.close(precision)
    best = orders.orders[orders.values.argmax(axis=0)]
    found, places = np.unique(best, return_inverse=True)
    logs = fine.log_lower(found)[places, np.arange(influences.size)]
    lower = np.logaddexp(0.0, logs) / (best * (best + 1)) * (1 - EXPONENT_ROUNDING)
    upper = orders.suprema()[0].max(axis=0)
    if not (lower <= upper).all():  # it could be NaN
        subject, remedy = f"the bounds on the tight loss of {noise}", "please report this"
        raise SlowscaleError(subject, "could not be computed", code="internal", remedy=remedy)
    return [
        TightLoss(float(at), float(high), float(low), float(alpha), fine.count, orders.orders.size)
        for at, high, low, alpha in zip(influences, upper, lower, 1 + best, strict=True)
    ]
