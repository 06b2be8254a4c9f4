"""The log-density of Z = s·sinh(τN), N standard normal, and the largest rise of its negative over a distance.

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

For τ → ∞ the maximum is at z* = exp(−arsinh(Δ/2)), and P(Δ) = arsinh(Δ/2). Other shapes differ little from this, so
arsinh(Δ/2) is the coordinate of the table below, and z*·exp(arsinh(Δ/2)) is what it holds.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from slowscale.parameters import Array

# The table of best places: its step in the coordinate arsinh(Δ/2), and its end, beyond which z* is negligible.
TABLE_STEP, TABLE_END = 1 / 256, 20.0
# More than the relative rounding error of a rise.
RISE_ERROR = 1e-13
# How far the place of the largest rise may be from its computed place, relatively; the table is checked to this.
PLACE_ERROR = 1e-9


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
    """Return the z* at which ψ rises most over each distance x > 0, by bisection on a log scale."""
    top = steepest_point(shape)
    # ψ'' is largest at 0, so ψ'(z*) <= ψ''(0)·z*; and ψ'(z*) = ψ'(z* + x) >= ψ'(top + x), because ψ' falls there.
    low = np.log(slope(top + x, shape) / (1 + 1 / (shape * shape)))
    high = np.full_like(x, math.log(top))
    for _ in range(60):
        middle = (low + high) / 2
        z = np.exp(middle)
        rises = slope(z + x, shape) > slope(z, shape)
        low, high = np.where(rises, middle, low), np.where(rises, high, middle)
    return np.exp((low + high) / 2)


class _Places(NamedTuple):
    """z*·exp(v) at equally spaced coordinates v, and bounds on z* between each coordinate and the next."""

    scaled: Array
    lowest: Array
    highest: Array


@lru_cache(maxsize=64)
def _places(shape: float) -> _Places:
    v = TABLE_STEP * np.arange(round(TABLE_END / TABLE_STEP) + 2)
    x = 2 * np.sinh(v[1:])
    place = _best_place(x, shape)
    low, high = place * (1 - PLACE_ERROR), place * (1 + PLACE_ERROR)
    # The rise is concave around z*, so z* lies between a point where it still rises and one where it falls.
    if not ((slope(low + x, shape) > slope(low, shape)) & (slope(high + x, shape) < slope(high, shape))).all():
        raise ArithmeticError("the largest rise could not be located: please report this, with the shape")
    top = steepest_point(shape)
    scaled = np.concatenate([[top], place]) * np.exp(v)
    return _Places(scaled, low, np.concatenate([[top], high[:-1]]))


def largest_rise(x: Array, scale: float, shape: float) -> Array:
    """Return P(x/scale), at most 1e-8 of its value too large, and never too small.

    The rise is concave in z around z*. So its tangent at a point z0 near z*, at the end of an interval around z0 that
    contains z*, is an upper bound. z* decreases with the distance, so its values at the ends of a cell of the table are
    such an interval.
    """
    with np.errstate(over="ignore"):
        distance = x / scale
    far = distance > math.exp(TABLE_END)
    if far.all():
        return _far_rise(x, scale, shape)
    if far.any():
        found = np.empty_like(x)
        found[far] = _far_rise(x[far], scale, shape)
        found[~far] = _near_rise(distance[~far], shape)
        return found
    return _near_rise(distance, shape)


def _far_rise(x: Array, scale: float, shape: float) -> Array:
    # There ψ'(Δ) and z* are below 1e-6, so ψ(z* + Δ) − ψ(z*) exceeds ψ(Δ) by less than 1e-14 of it.
    return drop(arsinh_ratio(x, scale), shape) * (1 + 2 * RISE_ERROR)


def _near_rise(x: Array, shape: float) -> Array:
    places, top = _places(shape), steepest_point(shape)
    half = x / 2
    growth = half + np.sqrt(1 + half * half)  # exp(arsinh(x/2))
    position = np.log(growth) / TABLE_STEP
    cell = position.astype(np.intp)
    part = position - cell
    left, right = places.scaled.take(cell), places.scaled.take(cell + 1)
    low = np.maximum(places.lowest.take(cell), (top - 1e-11) - x)  # `top` is slightly too large
    high = np.maximum(places.highest.take(cell), low)
    z = np.clip((left + part * (right - left)) / growth, low, high)
    tilt = slope(z + x, shape) - slope(z, shape)
    bound = rise(z, x, shape) + np.where(tilt > 0, tilt * (high - z), tilt * (low - z))
    bound *= 1 + RISE_ERROR
    return np.minimum(bound, steepest(shape) * x, out=bound)


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

    Up to `near`, it is the steepest slope times x. Beyond `far`, it is ψ(x) with ψ(x) = κ·ln(2x)²/2 + ln x. Between
    them it is factor·(ψ(z + x) − ψ(z)) at z = (κ·(v + ln 2 + b·e^−v) + 1)/((κ + 1)·e^v) with v = arsinh(x/2): this z
    has the right limits for x → 0 and x → ∞, and is within 7 % of z* between them.
    """

    near: float
    far: float
    steepest: float
    b: float
    factor: float


@lru_cache(maxsize=64)
def approximation(shape: float) -> Approximation:
    """Return the constants of the closed form for engines."""
    near, far = 1e-3, 1e8
    curve = 1 / (shape * shape)
    b = ((curve + 1) * steepest_point(shape) - 1) / curve - math.log(2)
    x = 2 * np.sinh(np.linspace(math.asinh(near / 2), math.asinh(far / 2), 20_000))
    v = np.arcsinh(x / 2)
    z = (curve * (v + math.log(2) + b * np.exp(-v)) + 1) / ((curve + 1) * np.exp(v))
    excess = float((largest_rise(x, 1.0, shape) / rise(z, x, shape)).max()) - 1
    # The excess is smooth in v, and 1 % more covers what lies between two points.
    return Approximation(near, far, steepest(shape), b, 1 + 1.01 * excess + 1e-9)
