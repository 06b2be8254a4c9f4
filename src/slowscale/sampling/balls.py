"""Ball arithmetic on float64 arrays, with the operations of Arb balls (python-flint's `arb`).

A ball is a midpoint and a radius: the true real number is at most the radius away from the midpoint. Every operation
adds a bound on its own rounding error to the radius. A formula written with these operations runs on arrays of balls
(tier 1, fast) and, unchanged, on `arb` at any precision (tier 2, for decisions that are too close for tier 1).

The radius is itself computed in floats. Its own rounding is covered by adding twice the error bound of each operation,
and by `Ball.inflated` before a decision. The errors of numpy's log, exp, sinh, arcsinh, cos and sqrt are at most 4
units in the last place; 8 units are added.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from slowscale.core.parameters import Array

ROUNDING = 2.0**-52  # twice the largest relative rounding error of one operation
FUNCTION = 8 * 2.0**-52  # the relative error bound of an elementary function
UNDERFLOW = 1e-300  # a bound on the absolute error of underflow


class Ball:
    """An array of real numbers, each known to within a radius."""

    __slots__ = ("mid", "rad")
    __array_ufunc__ = None  # so that numpy leaves mixed operations to this class

    def __init__(self, mid: Any, rad: Any = 0.0) -> None:
        self.mid: Any = mid
        self.rad: Any = rad

    @staticmethod
    def of(value: Any) -> "Ball":
        """Return an exact number or array as a ball."""
        return value if isinstance(value, Ball) else Ball(value)

    def __getitem__(self, index: Any) -> "Ball":
        rad = self.rad[index] if np.ndim(self.rad) else self.rad
        return Ball(self.mid[index], rad)

    def __neg__(self) -> "Ball":
        return Ball(-self.mid, self.rad)

    def __add__(self, other: Any) -> "Ball":
        other = Ball.of(other)
        mid = self.mid + other.mid
        rad = np.abs(mid)
        rad *= ROUNDING
        rad += self.rad + other.rad
        return Ball(mid, rad)

    __radd__ = __add__

    def __sub__(self, other: Any) -> "Ball":
        negative: Ball = -Ball.of(other)
        return self + negative

    def __rsub__(self, other: Any) -> "Ball":
        return (-self).__add__(other)

    def __mul__(self, other: Any) -> "Ball":
        if isinstance(other, float) and math.frexp(other)[0] in (-0.5, 0.5):
            return Ball(self.mid * other, self.rad * abs(other) + UNDERFLOW)  # multiplying by a power of two is exact
        other = Ball.of(other)
        mid = self.mid * other.mid
        rad = np.abs(mid)
        rad *= ROUNDING
        rad += np.abs(other.mid) * self.rad + UNDERFLOW
        if isinstance(other.rad, np.ndarray) or other.rad != 0:
            rad += (np.abs(self.mid) + self.rad) * other.rad
        return Ball(mid, rad)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> "Ball":
        return self * Ball.of(other).inverse()

    def __rtruediv__(self, other: Any) -> "Ball":
        return Ball.of(other) * self.inverse()

    def inverse(self) -> "Ball":
        """1/x."""
        mid = 1.0 / self.mid
        size = np.abs(mid)
        # |1/x − 1/m| <= r/(|m|·(|m| − r))
        rad = size * (self.rad / np.maximum(np.abs(self.mid) - self.rad, 0.0)) + (ROUNDING * size + UNDERFLOW)
        return Ball(mid, rad)

    def __pow__(self, power: int) -> "Ball":
        """x^power for a whole power >= 1, by squaring."""
        half = self ** (power // 2) if power > 1 else None
        if half is None:
            return self
        return half * half * self if power % 2 else half * half

    def sqrt(self) -> "Ball":
        """√x, for x >= 0."""
        mid = np.sqrt(self.mid)
        rad = self.rad / np.abs(mid)  # |√x − √m| = |x − m|/(√x + √m); √(−0) is −0
        rad += FUNCTION * mid
        return Ball(mid, rad)

    def root(self, k: int) -> "Ball":
        """x^(1/k), for x >= 0."""
        if k == 1:
            return self
        if k % 2 == 0:
            power = self.sqrt()
        else:
            power = (self.log() * (1.0 / k)).exp()
            # 1/k is itself rounded
            power = Ball(power.mid, power.rad + (2 * ROUNDING / k) * np.abs(power.mid * np.log(self.mid)))
        zero = (self.mid == 0) & (self.rad == 0)
        exact = Ball(np.where(zero, 0.0, power.mid), np.where(zero, 0.0, power.rad))
        return exact.root(k // 2) if k % 2 == 0 else exact

    def max(self, other: "Ball") -> "Ball":
        """Return the larger of two numbers."""
        return Ball(np.maximum(self.mid, other.mid), np.maximum(self.rad, other.rad))

    def min(self, other: "Ball") -> "Ball":
        """Return the smaller of two numbers."""
        return Ball(np.minimum(self.mid, other.mid), np.maximum(self.rad, other.rad))

    def log(self) -> "Ball":
        """ln x, for x > 0."""
        mid = np.log(self.mid)
        rad = np.abs(mid)
        rad *= FUNCTION
        rad += self.rad / np.maximum(self.mid - self.rad, 0.0)
        return Ball(mid, rad)

    def exp(self) -> "Ball":
        """e^x; e^r − 1 <= r/(1 − r)."""
        mid = np.exp(self.mid)
        return Ball(mid, mid * (self.rad / np.maximum(1.0 - self.rad, 0.0) + FUNCTION) + UNDERFLOW)

    def log1p(self) -> "Ball":
        """ln(1 + x), for x > −1."""
        mid = np.log1p(self.mid)
        return Ball(mid, self.rad / np.maximum(1.0 + self.mid - self.rad, 0.0) * (1 + 1e-9) + FUNCTION * np.abs(mid))

    def expm1(self) -> "Ball":
        """e^x − 1."""
        mid = np.expm1(self.mid)
        grown = (np.abs(mid) + 1.0) * (self.rad / np.maximum(1.0 - self.rad, 0.0))
        return Ball(mid, grown * (1 + 1e-9) + (FUNCTION * np.abs(mid) + UNDERFLOW))

    def sinh(self) -> "Ball":
        """(e^x − e^−x)/2; |sinh(m + r) − sinh(m)| <= (|sinh m| + 1)·r·e^r, and e^r <= 1/(1 − r)."""
        mid = np.sinh(self.mid)
        size = np.abs(mid)
        grown = (size + 1.0) * (self.rad / np.maximum(1.0 - self.rad, 0.0))
        return Ball(mid, grown * (1 + 1e-9) + (FUNCTION * size + UNDERFLOW))

    def asinh(self) -> "Ball":
        """arsinh x; its slope is at most 1/√(1 + x²) at the point of the ball that is nearest to 0."""
        mid = np.arcsinh(self.mid)
        nearest = np.maximum(np.abs(self.mid) - self.rad, 0.0)
        return Ball(mid, self.rad / np.hypot(1.0, nearest) * (1 + 1e-9) + FUNCTION * np.abs(mid))

    def cos_pi(self) -> "Ball":
        """cos(πx), for |x| <= 4."""
        return Ball(np.cos(np.pi * self.mid), (np.pi * 1.01) * self.rad + 40 * ROUNDING)

    def inflated(self) -> Array:
        """Return the radius, enlarged by a bound on its own rounding error."""
        radius = np.abs(self.mid)
        radius *= 4 * ROUNDING
        radius += self.rad * (1 + 1e-9) + UNDERFLOW
        return np.asarray(radius)


def lift_ball(value: int | float | Fraction) -> Ball:
    """Return an exact number as a ball, with a radius > 0 if it is not a float."""
    try:
        mid = float(value)
    except OverflowError:
        return Ball(math.inf, math.inf)  # never certain
    return Ball(mid) if mid == value else Ball(mid, ROUNDING * abs(mid) + UNDERFLOW)


def at_least(word: Any, probability: float) -> Any:
    """Return whether a uniform with these first 64 bits is at least a probability, which is a multiple of 2^-53."""
    threshold = int(probability * 2**53) << 11
    if isinstance(word, int):
        return int(word >= threshold)
    return (word >= np.uint64(threshold)).astype(np.intp) if threshold < 2**64 else np.zeros(word.shape, np.intp)


def choose(index: Any, options: list[Any]) -> Any:
    """Return options[index]; for an array of indices, an array of balls."""
    if np.ndim(index) == 0:
        return options[int(index)]
    balls = [Ball.of(option) for option in options]
    mids, rads = np.array([[ball.mid, ball.rad] for ball in balls], float).T
    return Ball(mids.take(index), rads.take(index) if rads.any() else 0.0)


def either(condition: Any, one: Any, other: Any) -> Any:
    """Return `one` where the condition holds and `other` elsewhere; both may be balls."""
    if np.ndim(condition) == 0:
        return one if condition else other
    one, other = Ball.of(one), Ball.of(other)
    return Ball(np.where(condition, one.mid, other.mid), np.where(condition, one.rad, other.rad))


def exact_root(x: Any, k: float, lift: Callable[[Any], Any]) -> Any:
    """x^(1/k) for x >= 0, of float balls or of an Arb number; the root of an exact 0 is exactly 0."""
    if k == 1:
        return x
    if isinstance(x, Ball) and isinstance(k, int):
        return x.root(k)
    return _unless_zero(x, lambda: (x.log() / lift(k)).exp())


def exact_power(x: Any, power: float, lift: Callable[[Any], Any]) -> Any:
    """x^power for x >= 0, of float balls or of an Arb number; an exact 0 to a power > 0 is exactly 0."""
    if power == 0:
        return lift(1.0)
    if isinstance(power, int) and power > 0:
        return x**power
    return _unless_zero(x, lambda: (x.log() * lift(power)).exp()) if power > 0 else (x.log() * lift(power)).exp()


def _unless_zero(x: Any, formula: Callable[[], Any]) -> Any:
    """Return a formula of x, or an exact 0 where x is one."""
    if not isinstance(x, Ball):
        return x if x.is_zero() else formula()
    zero = (x.mid == 0) & (x.rad == 0)
    found = formula()
    return Ball(np.where(zero, 0.0, found.mid), np.where(zero, 0.0, found.rad))


def if_positive(x: Any, one: Any, other: Any) -> Any:
    """Return `one` where x >= 0 and `other` where x < 0; NaN where the ball of x does not decide: use more bits."""
    if not isinstance(x, Ball):
        return one if x >= 0 else other if x < 0 else x * math.nan
    one, other, radius = Ball.of(one), Ball.of(other), x.inflated()
    mid, rad = (np.where(x.mid >= radius, left, right) for left, right in ((one.mid, other.mid), (one.rad, other.rad)))
    return Ball(np.where(np.abs(x.mid) >= radius, mid, np.nan), rad)


def uniform_balls(words: Any) -> Ball:
    """Return the uniform reals whose first 64 bits are these words."""
    mid = words.astype(np.float64)
    mid += 0.5
    mid *= 2.0**-64
    # Near 0 the true radius is smaller than this; tier 2 can draw as many bits as it needs there.
    return Ball(mid, ROUNDING)
