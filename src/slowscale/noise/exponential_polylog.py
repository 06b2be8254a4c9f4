"""The exponential polylogarithmic distribution, for every p >= 1 (Corollary expolyMech, Appendix ExpPloyLog).

In the coordinate y = ln(|Z|/(σa) + 1) the density is exp(y − d·[(y + ln a)^p − (ln a)^p]) up to a constant, which is
log-concave. The paper's Fox-Wright functions are integrals of it. They are computed here as integrals, in log space,
because the series loses all digits in the tails. p = 1 and p = 2 have closed forms (Table Foxdenscases).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from slowscale.core.families import PolylogFamily
from slowscale.core.formulas import log1p_ratio, polylog_rise, power_rise
from slowscale.core.parameters import Array, lazy
from slowscale.noise.log_concave import LogConcaveDensity, solve
from slowscale.noise.symmetric import SymmetricNoise

# Bounds on derivatives are not smaller than this, so that underflow does not make them 0.
SMALLEST_BEND = 1e-300
# A mode of the coordinate above this counts as far out: the noise is then typically larger than exp(1000).
FAR_OUT = 1000.0


@dataclass(frozen=True)
class ExponentialPolylogNoise(PolylogFamily, SymmetricNoise):
    """Density proportional to exp(−d·ln(|z|/σ + a)^p).

    >>> noise = ExponentialPolylogNoise(d=1)
    >>> round(noise.isf(0.025), 3)
    5.418
    >>> ExponentialPolylogNoise(d=3, p=1).var()
    inf
    """

    def _drop(self, z: Array) -> Array:
        return self.d * polylog_rise(z, self.sigma, self.a, self.p)

    def _drop_rise(self, z: Array, t: Array) -> Array:
        start = self.sigma * self.a
        return self.d * power_rise(np.log1p(t / (z + start)), math.log(self.a) + self._coordinate(z), self.p)

    def _bends(self, z: Array) -> tuple[Array, Array]:
        # With u = z/σ + a and y = ln u, the derivatives are d·p·y^(p−1)/u, … Every term below falls with u, because
        # y >= ln a >= p − 1; the bounds add the absolute values of the terms.
        u, p = z / self.sigma + self.a, self.p
        y = math.log(self.a) + self._coordinate(z)
        if p == 1:
            second, third = np.ones_like(u), np.full_like(u, 2.0)
        else:
            second = y ** (p - 2) * ((p - 1) + y)
            third = abs((p - 1) * (p - 2)) * y ** (p - 3) + 3 * (p - 1) * y ** (p - 2) + 2 * y ** (p - 1)
        length = u * self.sigma
        second, third = self.d * p * second / length / length, self.d * p * third / length / length / length
        return second + SMALLEST_BEND, third + SMALLEST_BEND

    @property
    def _log_peak(self) -> float:
        return -math.log(2) - math.log(self.sigma) - math.log(self.a) - self._log_mass

    def _coordinate(self, z: Array) -> Array:
        return log1p_ratio(z, self.sigma * self.a)

    def _from_coordinate(self, y: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.asarray(self.sigma * self.a * np.expm1(y))

    @lazy
    def coordinate_density(self) -> LogConcaveDensity:
        """The density of y = ln(|Z|/(σa) + 1), up to a constant."""
        return _density(1, self.d, self.p, math.log(self.a))

    def _log_upper_integral(self, y: Array) -> Array:
        """Return the log of ∫ from y to ∞ of the density in the coordinate, scaled to be 1 at its mode."""
        if self.p == 1:
            return -(self.d - 1) * y - math.log(self.d - 1)
        if self.p == 2:
            root = math.sqrt(self.d)
            x = root * (math.log(self.a) + y) - 0.5 / root  # the density is exp(−x²)
            scale = 0.5 * math.log(math.pi) - math.log(2 * root)
            if self.coordinate_density.mode > 0:
                return np.asarray(scale + math.log(2) + special.log_ndtr(-x * math.sqrt(2)))
            return np.asarray(scale + np.log(special.erfcx(x)) + self.coordinate_density.rise(np.zeros_like(y), y))
        return self._log_between(y, np.inf)

    def _log_between(self, low: Array, high: Array | float) -> Array:
        peak, integral = self.coordinate_density.log_integral(low, high)
        mode = np.full_like(peak, self.coordinate_density.mode)
        return self.coordinate_density.rise(mode, peak - mode) + integral

    @lazy
    def _log_whole(self) -> float:
        return float(self._log_upper_integral(np.zeros(1))[0])

    @lazy
    def _log_mass(self) -> float:
        """The log of the integral of the density over y >= 0, scaled to be 1 at y = 0."""
        return self._log_whole + float(
            self.coordinate_density.rise(np.zeros(1), np.array([self.coordinate_density.mode]))[0]
        )

    def _log_tail_at(self, y: Array) -> Array:
        return self._log_upper_integral(y) - self._log_whole

    def _log_tail(self, z: Array) -> Array:
        return self._log_tail_at(self._coordinate(z))

    def _log_center_at(self, y: Array) -> Array:
        return self._log_between(np.zeros_like(y), y) - self._log_whole

    def _center(self, z: Array) -> Array:
        log_tail = self._log_tail(z)
        center = -np.expm1(log_tail)
        if self.p != 1:  # where the tail is nearly 1, 1 − tail loses its digits
            near = center < 0.5
            center[near] = np.exp(self._log_center_at(self._coordinate(z[near])))
        return np.asarray(center)

    def _tail_inverse(self, tail: Array) -> Array:
        y = np.full_like(tail, np.inf)
        inside = tail > 0
        y[inside] = self._tail_inverse_at(np.log(tail[inside]))
        return self._from_coordinate(y)

    def _tail_inverse_at(self, log_tail: Array) -> Array:
        if self.p == 1:
            return -log_tail / (self.d - 1)
        # The log tail is concave in y, so its tangent at the mode bounds the solution; the slope there is −1/width.
        mode = np.array([self.coordinate_density.mode])
        width = np.exp(self._log_upper_integral(mode))
        high = (mode + np.fmax(0, self._log_tail_at(mode) - log_tail) * width) * (1 + 1e-12)
        return solve(self._log_tail_at, log_tail, np.zeros_like(log_tail), high)

    def _center_inverse(self, center: Array) -> Array:
        if self.p == 1:
            return self._from_coordinate(-np.log1p(-center) / (self.d - 1))
        y = np.zeros_like(center)
        inside = center > 0
        # The density in z decreases, so the center is at most its tangent at 0; and z is at most the median of |Z|.
        low = np.logaddexp(0, np.log(center[inside]) + self._log_mass) * (1 - 1e-12)
        high = np.full_like(low, self._tail_inverse_at(np.log([0.5]))[0] * (1 + 1e-12))
        y[inside] = solve(self._log_center_at, np.log(center[inside]), low, high)
        return self._from_coordinate(y)

    @property
    def _tail_power(self) -> float:
        return self.d if self.p == 1 else math.inf

    def _log_moment(self, order: int) -> float:
        scale = order * math.log(self.a)
        if self.p == 1:
            if self.d <= order + 1:
                return math.inf
            return scale + sum(math.log(j) - math.log(self.d - 1 - j) for j in range(1, order + 1))
        if math.log((order + 1) / (self.d * self.p)) / (self.p - 1) > 200:
            return math.inf  # it is finite, but larger than exp(exp(100))
        density = _tilted(_density(order + 1, self.d, self.p, math.log(self.a)), order)
        peak, integral = density.log_integral(np.zeros(1), np.inf)
        at_peak = order * _log_expm1(peak) + self.coordinate_density.rise(np.zeros(1), peak)
        return float(scale + at_peak[0] + integral[0] - self._log_mass)

    def _exact_moments(self, count: int) -> list[Any]:
        from flint import arb

        if self.p == 1:
            rising = [math.prod([j / (arb(self.d) - (1 + j)) for j in range(1, 2 * m + 1)]) for m in range(count)]
            return [found * (arb(self.sigma) * arb(self.a)) ** (2 * m) for m, found in enumerate(rising)]
        found = [_exact_integral(2 * m, self.d, self.p, self.a) for m in range(count)]
        return [one / found[0] * arb(self.sigma) ** (2 * m) for m, one in enumerate(found)]


def _exact_integral(order: int, d: float, p: float, a: float) -> Any:
    """Return ∫ (e^u − a)^order·exp(u − d·u^p) du from ln a to ∞, as a ball.

    The integrand is at most exp(−h) with h = d·u^p − (order + 1)·u, which is convex: beyond a point where h rises, the
    integral is at most exp(−h)/h'.
    """
    from flint import acb, arb, ctx

    c, start = order + 1, math.log(a)
    mode = max(start, (c / (d * p)) ** (1 / (p - 1)))
    end, width = mode, 1.0
    while d * end**p - c * end - (d * mode**p - c * mode) < (ctx.prec + 30) * math.log(2):
        end, width = end + width, 2 * width

    def integrand(u: Any, analytic: bool) -> Any:
        return (u.exp() - arb(a)) ** order * (u - u.pow(acb(p), analytic=analytic) * arb(d)).exp()

    last = arb(end)
    slope = arb(d) * arb(p) * last ** (arb(p) - 1) - c
    beyond = (c * last - arb(d) * last ** arb(p)).exp() / slope
    inside = acb.integral(integrand, acb(arb(a).log()), acb(last))
    return inside.real + beyond * arb(0.5, 0.5)


def _density(c: float, d: float, p: float, start: float) -> LogConcaveDensity:
    """The density exp(c·y − d·[(y + start)^p − start^p]), y >= 0.

    If its mode is far out, the two terms nearly cancel around the mode. Then the rise is the sum of a linear part, with
    the slope computed relative to the mode, where it is 0, and of the excess of the power over its tangent.
    """
    top = 0.0 if p == 1 else (c / (d * p)) ** (1 / (p - 1))
    mode = max(0.0, top - start)

    def slope(y: Array) -> Array:
        if top < FAR_OUT:
            return c - d * p * (start + y) ** (p - 1)
        near = np.clip((y - mode) / top, -0.5, 0.5)
        log_ratio = np.where(np.abs(near) < 0.5, np.log1p(near), np.log((start + y) / top))
        return np.asarray(-c * np.expm1((p - 1) * log_ratio))

    def rise(y: Array, t: Array) -> Array:
        base = start + y
        if top < FAR_OUT:
            return c * t - d * power_rise(t, base, p)
        return np.asarray(slope(y) * t - d * base**p * _power_excess(t / base, p))

    return LogConcaveDensity(rise, slope, lambda y: d * p * (p - 1) * (start + y) ** (p - 2), mode)


def _power_excess(x: Array, p: float) -> Array:
    """(1 + x)^p − 1 − p·x."""
    small = np.clip(x, -0.1, 0.1)
    series = np.zeros_like(x)
    for j in range(17, 1, -1):
        series = series * small + special.binom(p, j)
    with np.errstate(invalid="ignore", divide="ignore"):
        exact = (1 + x) * np.expm1((p - 1) * np.log1p(x)) - (p - 1) * x
    return np.where(np.abs(x) < 0.1, series * small**2, exact)


def _log_expm1(y: Array) -> Array:
    with np.errstate(divide="ignore"):
        return np.asarray(y + np.log(-np.expm1(-y)))


def _tilted(density: LogConcaveDensity, order: int) -> LogConcaveDensity:
    """The density times (1 − e^−y)^order; with c = order + 1 its mass is the absolute moment of that order."""
    from scipy.optimize import brentq

    def log_factor(y: Array) -> Array:
        with np.errstate(divide="ignore"):
            return np.asarray(order * np.log(-np.expm1(-y)))

    def slope(y: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.asarray(order / np.expm1(y) + density.slope(y))

    def curvature(y: Array) -> Array:
        with np.errstate(over="ignore", divide="ignore"):
            return np.asarray((0.5 * order**0.5 / np.sinh(y / 2)) ** 2 + density.curvature(y))

    mode = density.mode
    if mode < 50:  # for a larger mode, the factor equals 1 to the last digit
        low, high = max(mode * (1 - 1e-9), 1e-300), max(1.0, 2 * mode)
        while slope(np.array(high)) > 0:
            high *= 2
        mode = math.exp(brentq(lambda log_y: float(slope(np.exp(log_y))), math.log(low), math.log(high), xtol=1e-12))
    return LogConcaveDensity(
        rise=lambda y, t: log_factor(y + t) - log_factor(y) + density.rise(y, t),
        slope=slope,
        curvature=curvature,
        mode=mode,
    )
