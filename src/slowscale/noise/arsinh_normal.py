"""The arsinh-normal distribution: Z = s·sinh(τN) with N standard normal, smooth around 0, with log-normal tails.

It is not in the paper. Bun and Steinke (2019) use it for smooth sensitivity. Every quantity is one of N, at
arsinh(z/s)/τ; the moments other than the first two are integrals of a log-concave density. The functions below are
about its log-density and the largest rise of its negative over a distance, which is the pure policy.

All lengths are in units of the scale s. Up to a constant, the log-density at z is −ψ(z) with ψ(z) = κy²/2 + ln cosh y,
y = arsinh z and κ = 1/τ². Its slope is ψ'(z) = (κy + tanh y)/cosh y, and ψ''(z) = n(y)/cosh² y with
n(y) = κ(1 − y·tanh y) + 2/cosh² y − 1. Both terms of n fall with y > 0, so n changes its sign once, at some y between
arcosh √2 and 1.2. Hence ψ' rises from 0 to a peak, at `steepest_point`, and falls to 0 beyond it.

The pure policy is P(Δ) = sup over all real z of ψ(z + Δ) − ψ(z), the largest rise over the distance Δ (ψ is even).

- For z <= −Δ/2 the rise is at most 0, and for −Δ <= z <= 0 its derivative ψ'(z + Δ) − ψ'(z) is >= 0. So z >= 0.
- Left of peak − Δ the derivative is positive, and right of the peak it is negative. Between them ψ'(z + Δ) falls and
  ψ'(z) rises, so that the rise is concave in z and has one maximum, at z* with ψ'(z*) = ψ'(z* + Δ).
- P'(Δ) = ψ'(z*): the level at which the part of ψ' above it has the length Δ. It falls with Δ, from the peak of ψ'.
  So P is increasing and concave, P(Δ) <= ψ'(peak)·Δ, and z* decreases with Δ.

For τ → ∞ the maximum is at z* = exp(−arsinh(Δ/2)), and P(Δ) = arsinh(Δ/2), which is therefore the coordinate of the
table below.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from slowscale.core.errors import SlowscaleError
from slowscale.core.families import ArsinhNormalFamily
from slowscale.core.parameters import Array
from slowscale.noise.log_concave import LogConcaveDensity
from slowscale.noise.symmetric import SymmetricNoise

# The table of tangents to P: its step in the coordinate arsinh(Δ/2), and its end, beyond which z* is negligible.
TABLE_STEP, TABLE_END = 1 / 1024, 20.0
# More than the relative error of a tangent, which is due to rounding.
RISE_ERROR = 1e-12
# How far the place of the largest rise may be from its computed place, relatively; the table is checked to this.
PLACE_ERROR = 1e-10


def arsinh_ratio(x: Array, scale: float) -> Array:
    """Return arsinh(x/scale) for x >= 0, also where the ratio exceeds the largest float."""
    with np.errstate(over="ignore"):
        ratio = x / scale
    if ratio.size and ratio.max() == math.inf:
        safe = np.where(np.isinf(ratio), x, 1.0)
        return np.where(np.isinf(ratio), np.log(safe) - math.log(scale) + math.log(2), np.arcsinh(ratio))
    return np.asarray(np.arcsinh(ratio))


def drop(y: Array, shape: float) -> Array:
    """Return ψ(sinh y) for y >= 0."""
    near = np.minimum(y, 1.0)
    log_cosh = np.where(y < 1, np.log1p(2 * np.sinh(near / 2) ** 2), y + (np.log1p(np.exp(-2 * y)) - math.log(2)))
    return np.asarray((y / shape) ** 2 / 2 + log_cosh)


def rise(z: Array, t: Array, shape: float) -> Array:
    """Return ψ(z + t) − ψ(z) for z, t >= 0 with a finite sum, to nearly all digits.

    With w = z + t: arsinh w − arsinh z = arsinh(w√(1 + z²) − z√(1 + w²)), where the difference is written as
    t·(1 + z/w)/(√(1 + z²) + (z/w)√(1 + w²)).
    """
    w = z + t
    low, high = np.hypot(1.0, z), np.hypot(1.0, w)
    share = z / np.where(w > 0, w, 1.0)
    climb = np.arcsinh(t * ((1 + share) / (low + share * high)))
    near = t <= low
    grown = np.log1p(np.where(near, t, 0.0) / low * ((w + z) / low)) / 2
    log_ratio = grown if near.all() else np.where(near, grown, np.log(high / low))
    return np.asarray(climb * (climb + 2 * np.arcsinh(z)) / (2 * shape * shape) + log_ratio)


def slope(z: Array, shape: float) -> Array:
    """Return ψ'(z) for z >= 0."""
    root = np.hypot(1.0, z)
    return np.asarray((np.arcsinh(z) / (shape * shape) + z / root) / root)


@lru_cache(maxsize=1024)
def steepest_point(shape: float) -> float:
    """Return where ψ' has its peak, slightly too large: beyond it ψ is concave."""
    low, high = math.acosh(math.sqrt(2)), 1.2
    for _ in range(60):
        y = (low + high) / 2
        falls = (1 - y * math.tanh(y)) / (shape * shape) + 2 / math.cosh(y) ** 2 - 1 < 0
        low, high = (low, y) if falls else (y, high)
    # n(y) is −1 or steeper there, and is computed to about 1e-15 of its terms: the error of y is below 1e-14.
    return math.sinh(high) * (1 + 1e-12)


@lru_cache(maxsize=1024)
def steepest(shape: float) -> float:
    """Return the largest ψ', rounded up."""
    return float(slope(np.array([steepest_point(shape)]), shape)[0]) * (1 + RISE_ERROR)


def _best_place(x: Array, shape: float) -> Array:
    """Return the z* at which ψ rises most over each distance x > 0, by Newton's method from the closed form."""
    top = steepest_point(shape)
    low, z = np.maximum(top - x, 0.0), _near_place(x, shape)
    for _ in range(8):
        here, there = _slope_and_bend(z, shape), _slope_and_bend(z + x, shape)
        z = np.clip(z - (here[0] - there[0]) / (here[1] - there[1]), np.maximum(low, z / 8), top)
    return z


def _slope_and_bend(z: Array, shape: float) -> tuple[Array, Array]:
    """Return ψ'(z) and ψ''(z)."""
    curve, root, y = 1 / (shape * shape), np.hypot(1.0, z), np.arcsinh(z)
    tanh = z / root
    return (curve * y + tanh) / root, (curve * (1 - y * tanh) + 1 - 2 * tanh * tanh) / root / root


def _near_place(x: Array, shape: float) -> Array:
    """Return (κ·(v + ln 2 + b·e^−v) + 1)/((κ + 1)·e^v) with v = arsinh(x/2), which is within 7 % of z*.

    It has the right limits: b is such that it is the steepest point for x = 0, and for x → ∞ it is ψ'(x)/ψ''(0).
    """
    curve, v = 1 / (shape * shape), np.arcsinh(x / 2)
    return np.asarray((curve * (v + math.log(2) + _offset(shape) * np.exp(-v)) + 1) / ((curve + 1) * np.exp(v)))


def _offset(shape: float) -> float:
    curve = 1 / (shape * shape)
    return ((curve + 1) * steepest_point(shape) - 1) / curve - math.log(2)


class _Tangents(NamedTuple):
    """Lines above P, intercept + slope·Δ, which touch it at equally spaced coordinates arsinh(Δ/2)."""

    intercepts: Array
    slopes: Array


@lru_cache(maxsize=64)
def _tangents(shape: float) -> _Tangents:
    x = 2 * np.sinh(TABLE_STEP * np.arange(1, round(TABLE_END / TABLE_STEP) + 3))
    place = _best_place(x, shape)
    low, high = place * (1 - PLACE_ERROR), place * (1 + PLACE_ERROR)
    # The rise is concave around z*, so z* lies between a point where it still rises and one where it falls. Its error
    # changes a rise by its square, and a tangent, which is used for a step of the table only, by 1e-13 of its height.
    if not ((slope(low + x, shape) > slope(low, shape)) & (slope(high + x, shape) < slope(high, shape))).all():
        problem = f"for shape {shape!r} could not be located"
        raise SlowscaleError("the largest rise", problem, code="internal", remedy="please report this")
    slopes = slope(place, shape)
    intercepts = np.maximum(rise(place, x, shape) - slopes * x, 0.0)
    lines = _Tangents(np.append(0.0, intercepts), np.append(steepest(shape), slopes))
    return _Tangents(*(part * (1 + RISE_ERROR) for part in lines))


def largest_rise(x: Array, scale: float, shape: float) -> Array:
    """Return P(x/scale), at most 2e-7 of its value too large, and never too small.

    P is concave, so each of its tangents lies above it. The lower one of two neighbours increases continuously.
    """
    with np.errstate(over="ignore"):
        distance = x / scale
    far = distance > math.exp(TABLE_END)
    if not far.any():
        return _near_rise(distance, shape)
    found = np.empty_like(x)
    # There ψ'(Δ) and z* are below 1e-6, so ψ(z* + Δ) − ψ(z*) exceeds ψ(Δ) by less than 1e-14 of it.
    found[far] = drop(arsinh_ratio(x[far], scale), shape) * (1 + 2 * RISE_ERROR)
    found[~far] = _near_rise(distance[~far], shape)
    return found


def _near_rise(x: Array, shape: float) -> Array:
    intercepts, slopes = _tangents(shape)
    position = x / 2
    position += np.sqrt(1 + position * position)
    np.log(position, out=position)  # arsinh(x/2); which tangents are used matters little, so its rounding does not
    position /= TABLE_STEP
    cell = position.astype(np.intp)
    left = slopes.take(cell)
    left *= x
    left += intercepts.take(cell)
    cell += 1
    right = slopes.take(cell)
    right *= x
    right += intercepts.take(cell)
    return np.minimum(left, right, out=left)


def searched_rise(x: Array, shape: float) -> Array:
    """Return P(x) as plainly as possible: by bisection for z*, and by the difference of two values of ψ."""
    low, high = np.zeros_like(x), np.full_like(x, steepest_point(shape))
    for _ in range(60):
        z = (low + high) / 2
        rises = slope(z + x, shape) > slope(z, shape)
        low, high = np.where(rises, z, low), np.where(rises, high, z)
    return drop(np.arcsinh(low + x), shape) - drop(np.arcsinh(low), shape)


class Approximation(NamedTuple):
    """A closed form that is not below P and little above it, for engines.

    It is `factor` times the following. Up to `near`, the steepest slope times x. Beyond `far`, κ·ln(2x)²/2 + ln x, that
    is, ψ(x). Between them ψ(z + x) − ψ(z) at z = (κ·(v + ln 2 + offset·e^−v) + 1)/((κ + 1)·e^v) with v = arsinh(x/2).
    """

    near: float
    far: float
    steepest: float
    offset: float
    factor: float


@lru_cache(maxsize=64)
def approximation(shape: float) -> Approximation:
    """Return the constants of the closed form for engines."""
    near, far = 1e-3, 1e8
    x = 2 * np.sinh(np.linspace(math.asinh(near / 2), math.asinh(far / 2), 20_000))
    excess = float((largest_rise(x, 1.0, shape) / rise(_near_place(x, shape), x, shape)).max()) - 1
    # The excess is smooth in v, and 1 % more covers what lies between two points.
    return Approximation(near, far, steepest(shape), _offset(shape), 1 + 1.01 * excess + 1e-9)


SQRT2 = math.sqrt(2)


@dataclass(frozen=True)
class ArsinhNormalNoise(ArsinhNormalFamily, SymmetricNoise):  # type: ignore[override] # sigma is read only
    """Density proportional to exp(−arsinh(z/s)²/(2τ²))/√(1 + z²/s²).

    >>> noise = ArsinhNormalNoise(scale=4.95, shape=1.6)
    >>> round(noise.std(), 1), round(noise.isf(0.025), 1), round(noise.isf(0.25), 2)
    (45.1, 56.8, 6.44)
    """

    def _normal(self, z: Array) -> Array:
        """Return arsinh(z/s)/τ, which is standard normal for z = Z."""
        return arsinh_ratio(z, self.scale) / self.shape

    def _from_normal(self, x: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.asarray(self.scale * np.sinh(self.shape * x))

    def _drop(self, z: Array) -> Array:
        return drop(arsinh_ratio(z, self.scale), self.shape)

    def _drop_rise(self, z: Array, t: Array) -> Array:
        with np.errstate(over="ignore"):
            low, step = z / self.scale, t / self.scale
            finite = np.isfinite(low + step)
        if finite.all():
            return rise(low, step, self.shape)
        near = rise(np.where(finite, low, 0.0), np.where(finite, step, 0.0), self.shape)
        return np.where(finite, near, self._drop(z + t) - self._drop(z))

    def _bends(self, z: Array) -> tuple[Array, Array]:
        """Return bounds on the second and the third derivative of `_drop` at every point from z on.

        With T = tanh y, κ = 1/τ² and lengths in units of s, the derivatives are (κ(1 − yT) + 1 − 2T²)/cosh² y and
        (−κ(3T + y/cosh² y − 2yT²) + 8T³ − 6T)/cosh³ y. Here |1 − yT| <= max(1, y − 1) and |1 − 2T²| <= 1. The bracket
        in the third one is at most 1.75 (near y = 0.73) and at least T(3 − 2yT) >= −max(0, 2y − 3), and 8T³ − 6T is
        twice a Chebyshev polynomial, so at most 2. The bounds fall with y, because (y − 1)/cosh² y and (2y − 3)/cosh³ y
        do where they exceed the constants, for y >= 2.
        """
        y = arsinh_ratio(z, self.scale)
        curve, root = 1 / self.shape**2, np.exp(-drop(y, math.inf))  # 1/cosh y
        second = (curve * np.maximum(1.0, y - 1) + 1) * root**2 / self.scale / self.scale
        third = (curve * np.maximum(1.75, 2 * y - 3) + 2) * root**3 / self.scale / self.scale / self.scale
        return second * (1 + 1e-12), third * (1 + 1e-12)

    def _pure_loss(self, influence: Array) -> Array:
        return largest_rise(influence, self.scale, self.shape)

    def _standard(self) -> "ArsinhNormalNoise":
        return replace(self, scale=1.0)

    @property
    def _concave_from(self) -> float:
        return self.scale * steepest_point(self.shape)

    @property
    def _log_peak(self) -> float:
        return -math.log(self.scale) - math.log(self.shape) - 0.5 * math.log(2 * math.pi)

    def _log_tail(self, z: Array) -> Array:
        return np.asarray(math.log(2) + special.log_ndtr(-self._normal(z)))

    def _tail(self, z: Array) -> Array:
        return np.asarray(special.erfc(self._normal(z) / SQRT2))

    def _tail_inverse(self, tail: Array) -> Array:
        return self._from_normal(-special.ndtri(tail / 2))

    def _center(self, z: Array) -> Array:
        return np.asarray(special.erf(self._normal(z) / SQRT2))

    def _center_inverse(self, center: Array) -> Array:
        return self._from_normal(SQRT2 * special.erfinv(center))

    def _log_moment(self, order: int) -> float:
        if order == 1:
            return self.shape**2 / 2 + math.log(math.erf(self.shape / SQRT2))
        if order == 2:
            return math.log(math.expm1(2 * self.shape**2) / 2)
        # The binomial series of sinh^order cancels for small shapes; sinh(y)^order·exp(−y²/(2τ²)) is log-concave.
        density = _moment_density(order, self.shape)
        peak, integral = density.log_integral(np.zeros(1), np.inf)
        at_peak = order * _log_sinh(peak) - (peak / self.shape) ** 2 / 2
        return float(at_peak[0] + integral[0]) + 0.5 * math.log(2 / math.pi) - math.log(self.shape)

    def _exact_moments(self, count: int) -> list[Any]:
        """Return s^2m·E sinh(τN)^2m, the sum of (−1)^j·C(2m, j)·exp(2τ²(m − j)²)/4^m over j."""
        from flint import arb

        square, length = arb(self.shape) ** 2 * 2, arb(self.scale)
        grown = [(square * (m * m)).exp() for m in range(count)]
        return [
            sum((-1) ** j * math.comb(2 * m, j) * grown[abs(m - j)] for j in range(2 * m + 1)) * (length / 2) ** (2 * m)
            for m in range(count)
        ]


def _log_sinh(y: Array) -> Array:
    with np.errstate(divide="ignore"):
        return np.asarray(y - math.log(2) + np.log(-np.expm1(-2 * y)))


def _moment_density(order: int, shape: float) -> LogConcaveDensity:
    """The density sinh(y)^order·exp(−y²/(2·shape²)), y > 0."""
    square = shape * shape

    def rise(y: Array, t: Array) -> Array:
        # sinh(y + t)/sinh(y) = e^t·(1 − e^(−2y − 2t))/(1 − e^(−2y))
        with np.errstate(divide="ignore"):
            shrunk = np.log(np.expm1(-2 * (y + t)) / np.expm1(-2 * y))
        return np.asarray(order * (t + shrunk) - t * (t + 2 * y) / (2 * square))

    def slope(y: Array) -> Array:
        return np.asarray(order / np.tanh(y) - y / square)

    # At the mode y·tanh y = order·shape², which increases with y.
    low, high = 0.0, order * square + math.sqrt(order) * shape + 1.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if middle * math.tanh(middle) < order * square else (low, middle)
    return LogConcaveDensity(rise, slope, lambda y: order / np.sinh(np.minimum(y, 300.0)) ** 2 + 1 / square, high)
