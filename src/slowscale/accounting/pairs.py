"""Pairs of distributions that an attacker must tell apart: what is published with a record, and without it.

The privacy loss L is the log of the ratio of the two densities. Every pair here is symmetric: exchanging the two
distributions gives the same pair, so the losses t >= 0 describe it completely (docs/attackers.md).

Additive noise with and without a shift, both in units of the noise's scale: the exact distribution of the loss.

Without the record the output is Z, with it Z + Δ. The loss L(z) = ln p(z)/p(z − Δ) is antisymmetric about Δ/2. Right of
0 it falls to 0 at Δ/2, because the density falls on both sides of its peak. Left of 0 it is drop(|z| + Δ) − drop(|z|),
which falls with |z| where the drop is concave, and has one peak if the drop is convex in a core and concave outside.
So {L > t} is one interval around this peak for every t >= 0, and its probabilities are differences of the distribution
function.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import special

from slowscale.core.parameters import Array, lazy
from slowscale.noise import SymmetricNoise

# The relative accuracy of the distribution functions in `noise/`, to which their tests hold them.
DISTRIBUTION_ACCURACY = 1e-10
# Thresholds are searched in a table of so many parts. The part that is found is divided further, so many times.
TABLE_PARTS, BRACKET_PARTS, BRACKET_ROUNDS = 1024, 64, 3


@dataclass(frozen=True)
class Masses:
    """The probabilities at thresholds t >= 0 of the loss L; the first distribution is the more likely one where L > 0.

    Attributes
    ----------
    first
        P(L > t) under the first distribution.
    log_second
        ln P(L > t) under the second one.
    delta
        The first minus exp(t) times the second: δ of (t, δ)-differential privacy.
    error
        A bound on the error of `delta`, if the distribution functions have the accuracy that they are tested for.
    """

    first: Array
    log_second: Array
    delta: Array
    error: Array


class Pair(ABC):
    """Two distributions of a published value that differ by one record."""

    @property
    @abstractmethod
    def most(self) -> float:
        """The largest possible loss, which may be infinite."""

    @abstractmethod
    def masses(self, t: Array) -> Masses:
        """Return the probabilities of losses above each t >= 0."""

    def power(self, false_alarms: Array) -> Array:
        """Return the power of the best test with each rate of false alarms (Neyman and Pearson).

        The power at s is the minimum over t of exp(t)·s + δ(t). Every t gives an upper bound, so that a threshold that
        is wrong in its last digits, or that falls on a plateau of the loss, does no harm. For s above the point where
        the two errors are equal, the same formula is used with the two distributions exchanged.
        """
        at_zero = self.masses(np.zeros(1))
        left = false_alarms <= math.exp(at_zero.log_second[0])
        power = np.empty_like(false_alarms)
        with np.errstate(all="ignore"):
            power[left] = self._power_by_first(false_alarms[left])
            power[~left] = 1 - self._missed(false_alarms[~left])
        return np.clip(power, false_alarms, 1.0)

    def _power_by_first(self, s: Array) -> Array:
        logs = np.log(s)
        ends = np.array(self._bracket(lambda masses: masses.log_second, logs))
        bounds = np.exp(ends + logs) + self.masses(ends).delta
        return np.where(s > 0, bounds.min(axis=0), 0.0)

    def _missed(self, s: Array) -> Array:
        ends = np.array(self._bracket(lambda masses: masses.first, 1 - s))
        return np.asarray(np.maximum((np.exp(-ends) * (1 - s - self.masses(ends).delta)).max(axis=0), 0.0))

    def delta(self, epsilon: Array) -> Array:
        """Return δ at each ε >= 0."""
        return self.masses(epsilon).delta

    def epsilon(self, delta: Array) -> Array:
        """Return the smallest ε >= 0 whose δ is at most each given one."""
        low, high = self._bracket(lambda masses: masses.delta, np.nextafter(delta, 2))  # where δ is constant, its start
        above, below = self.masses(np.array([low, high])).delta
        with np.errstate(all="ignore"):
            # δ is convex in exp(ε), so the chord lies above it. The bracket is so narrow that this changes no digit.
            share = np.clip((above - delta) / (above - below), 0, 1)
            found = low + np.log1p(share * np.expm1(high - low))
        found = np.where(above <= delta, low, np.minimum(found, high))
        return np.where((delta > 0) | (self.most == 0), found, self.most)

    def average(self, log_odds: float) -> float:
        """Return the average posterior of the true hypothesis, from prior log odds.

        It is E g(L) with g(u) = 1/(1 + exp(−log_odds − u)), integrated by parts so that only P(L > u) is needed.
        """
        end = min(self.most, 60.0 + abs(log_odds))
        if end == 0:
            return float(special.expit(log_odds))
        edges = np.linspace(0, end, 129)
        x, weights = np.polynomial.legendre.leggauss(8)
        width = end / 256
        u = (edges[:-1, None] + width * (1 + x)).ravel()
        masses = self.masses(u)
        rise = special.expit(log_odds + u) * special.expit(-log_odds - u) * masses.first
        fall = special.expit(log_odds - u) * special.expit(u - log_odds) * np.exp(masses.log_second)
        return float(special.expit(log_odds) + width * np.tile(weights, 128) @ (rise - fall))

    def range(self, probability: float) -> float:
        """Return an end of the losses that matter: larger ones have at most this probability."""
        grid, masses = self._table
        return float(grid[min(int(np.count_nonzero(masses.first > probability)), grid.size - 1)])

    @lazy
    def _table(self) -> tuple[Array, Masses]:
        """Thresholds from 0 to the largest loss, or to one with δ = 0 in floats, and the probabilities there."""
        end = self.most if math.isfinite(self.most) else 1.0
        while math.isinf(self.most) and end < 1e300 and self.masses(np.array([end])).delta[0] > 0:
            end *= 8
        grid = np.linspace(0, end, TABLE_PARTS + 1)
        return grid, self.masses(grid)

    def _bracket(self, what: Callable[[Masses], Array], target: Array) -> tuple[Array, Array]:
        """Return for each target two near thresholds between which something that falls with t takes that value."""
        grid, masses = self._table
        index = np.clip((what(masses) >= target[:, None]).sum(axis=1) - 1, 0, TABLE_PARTS - 1)
        low, high = grid[index], grid[index + 1]
        steps, rows = np.linspace(0, 1, BRACKET_PARTS + 1), np.arange(target.size)
        for _ in [None] * BRACKET_ROUNDS:
            inner = low[:, None] + (high - low)[:, None] * steps
            inner[:, -1] = high
            # the number of thresholds, without the last one, at which it is not yet below the target
            above = what(self.masses(inner[:, :-1])) >= target[:, None]
            index = np.clip(above.sum(axis=1) - 1, 0, BRACKET_PARTS - 1)
            low, high = inner[rows, index], inner[rows, index + 1]
        return low, high


@dataclass(frozen=True)
class GaussianPair(Pair):
    """Two normal distributions whose means are `distance` standard deviations apart (Gaussian differential privacy)."""

    distance: float

    @property
    def most(self) -> float:
        """Infinite, unless the distributions are the same."""
        return math.inf if self.distance > 0 else 0.0

    def power(self, false_alarms: Array) -> Array:
        """Return Φ(Φ⁻¹(s) + μ) for each rate s of false alarms."""
        if self.distance == 0 or math.isinf(self.distance):
            return np.where(false_alarms > 0, 1.0, 0.0) if self.distance else false_alarms
        power = special.ndtr(special.ndtri(false_alarms) + self.distance)
        return np.asarray(np.clip(power, false_alarms, 1.0))

    def masses(self, t: Array) -> Masses:
        """Return the probabilities of losses above each t >= 0."""
        mu = self.distance
        if mu == 0 or math.isinf(mu):
            same = np.zeros_like(t) if mu == 0 else np.ones_like(t)
            return Masses(same, np.full_like(t, -math.inf), same, np.zeros_like(t))
        with np.errstate(all="ignore"):
            start = np.minimum(t / mu, 1e200) - mu / 2  # in standard deviations from the mean of the first one
            first, log_second = special.ndtr(-start), special.log_ndtr(-(start + mu))
            plain = first - np.exp(t + log_second)
            # Both terms are the density at `start` times a Mills ratio; the difference of these is an integral.
            near = np.clip(start, -2.0, 100.0)
            density = np.exp(-(near**2) / 2) / math.sqrt(2 * math.pi)
            delta = np.where(start < -1, plain, density * _mills_fall(near, mu))
            delta = np.where(start > 100, 0.0, delta)
        return Masses(first, log_second, np.clip(delta, 0, 1), 2 * DISTRIBUTION_ACCURACY * first)


@dataclass(frozen=True)
class ResponsePair(Pair):
    """Randomised response, which dominates every pair with this PRDP loss (Kairouz, Oh and Viswanath 2015)."""

    loss: float

    @property
    def most(self) -> float:
        """The PRDP loss."""
        return self.loss

    def masses(self, t: Array) -> Masses:
        """Return the probabilities of losses above each t >= 0: the loss is `loss` or its negative."""
        below, yes = t < self.loss, float(special.expit(self.loss))
        first = np.where(below, yes, 0.0)
        log_second = np.where(below, special.log_expit(-self.loss), -math.inf)
        delta = -first * np.expm1(np.minimum(t - self.loss, 0.0))
        return Masses(first, log_second, delta, DISTRIBUTION_ACCURACY * delta)


def _mills_fall(u: Array, width: float) -> Array:
    """Return R(u) − R(u + width) for the Mills ratio R(u) = Φ(−u)/φ(u), whose derivative is u·R(u) − 1."""
    if width > 1:
        return _mills(u) - _mills(u + width)
    x, weights = np.polynomial.legendre.leggauss(12)
    at = u[..., None] + width * (1 + x) / 2
    return np.asarray((1 - at * _mills(at)) @ weights * (width / 2))


def _mills(u: Array) -> Array:
    return np.asarray(math.sqrt(math.pi / 2) * special.erfcx(u / math.sqrt(2)))


NEAREST, FARTHEST = 1e-305, 1e305  # in scales: the distances from 0 between which the ends of an interval are searched
LOGIT_SPAN = 700.0  # the same for the place between 0 and Δ/2, as log odds
STEPS_OF_TABLE = 2048  # of a table in which ends are looked up before they are refined
NARROW_RISE = 1.0  # where the log-density falls by less, the density is integrated directly


@dataclass(frozen=True)
class ShiftedPair(Pair):
    """The noise Z of scale 1, and Z + shift."""

    noise: SymmetricNoise
    shift: float

    @lazy
    def most(self) -> float:
        """The largest loss: at the peak of the density, or where a smooth density bends."""
        return float(self._left(np.array([self._peak]))[0]) if self._peak < math.inf else math.inf

    @lazy
    def _peak(self) -> float:
        """The distance left of 0 at which the loss is largest."""
        high = self.noise._concave_from
        if high == 0 or math.isinf(high):
            return high
        low = 0.0
        for _ in range(10):
            grid = np.linspace(low, high, 65)
            best = int(np.argmax(self._left(grid)))
            low, high = grid[max(best - 1, 0)], grid[min(best + 1, 64)]
        return float(grid[best])

    def _left(self, distance: Array) -> Array:
        """Return the loss at a distance left of 0."""
        with np.errstate(all="ignore"):
            loss = self.noise._drop_rise(distance, np.full_like(distance, self.shift))
        return np.where(np.isnan(loss), 0.0, loss)  # far out, where floats overflow, the two densities are alike

    def _place(self, logit: Array) -> tuple[Array, Array]:
        """Return a place z between 0 and Δ/2 and Δ − 2z, each with all its digits, from a coordinate."""
        return self.shift / 2 * special.expit(logit), self.shift * special.expit(-logit)

    def _right(self, logit: Array) -> Array:
        """Return the loss at a place between 0 and Δ/2."""
        with np.errstate(all="ignore"):
            return self.noise._drop_rise(*self._place(logit))

    def masses(self, t: Array) -> Masses:
        """Return the probabilities of losses above each t >= 0."""
        with np.errstate(all="ignore"):
            return self._masses(t)

    def _masses(self, t: Array) -> Masses:
        shape, t = t.shape, t.ravel()
        far = self._far_end(t)
        near, to_shift = self._near_end(t)  # the right end b, below 0 near a smooth peak, and Δ − b
        inside = near >= 0
        place, beyond = np.maximum(near, 0.0), np.maximum(-near, 0.0)
        center_far, center_near = self._center(far), self._center(place)
        left = self._between(beyond, far - beyond)
        first = np.where(inside, (center_far + center_near) / 2, np.exp(left[0]))
        second = self._between(to_shift, far + near)
        # δ = P(b − Δ < Z < b) − P(a < Z < a + Δ) − (exp(t) − 1)·(second): no digits cancel for small Δ.
        hit = np.where(inside, (center_near + self._center(to_shift)) / 2, np.exp(self._between(beyond, self.shift)[0]))
        lost = self._between(far, self.shift)
        log_weight = t + np.log(-np.expm1(-t))
        delta = hit - np.exp(lost[0]) - np.exp(log_weight + second[0])
        error = DISTRIBUTION_ACCURACY * (hit + np.exp(lost[1]) + np.exp(log_weight + second[1]))
        none = t >= self.most
        return Masses(
            np.where(none, 0.0, first).reshape(shape),
            np.where(none, -math.inf, np.minimum(second[0], 0.0)).reshape(shape),
            np.where(none, 0.0, np.clip(delta, 0, 1)).reshape(shape),
            np.where(none, 0.0, error).reshape(shape),
        )

    def _far_end(self, t: Array) -> Array:
        """Return the distance of the left end of {L > t} from 0; infinite if the loss is larger everywhere."""
        if math.isinf(self._peak):
            return np.full_like(t, math.inf)
        found = self._outside.solve(t)
        return np.where((t <= 0) | (self._outside.values[-1] > t), math.inf, np.exp(found))

    def _near_end(self, t: Array) -> tuple[Array, Array]:
        """Return the right end b of {L > t}, and Δ − b."""
        place, gap = self._place(np.where(t <= 0, math.inf, self._between_means.solve(t)))
        to_shift = (self.shift + gap) / 2
        past = t > self._left(np.zeros(1))[0]  # then the right end is between the peak and 0
        if self._peak == 0 or not past.any():
            return place, to_shift
        left = np.exp(self._inside.solve(-t))
        return np.where(past, -left, place), np.where(past, self.shift + left, to_shift)

    @lazy
    def _outside(self) -> "Falling":
        """The loss beyond its peak, by the log of the distance from 0."""
        return Falling.of(lambda x: self._left(np.exp(x)), math.log(max(self._peak, NEAREST)), math.log(FARTHEST))

    @lazy
    def _inside(self) -> "Falling":
        """Minus the loss between 0 and its peak, by the log of the distance from 0."""
        return Falling.of(lambda x: -self._left(np.exp(x)), math.log(NEAREST), math.log(min(self._peak, FARTHEST)))

    @lazy
    def _between_means(self) -> "Falling":
        """The loss between 0 and Δ/2, by the log odds of the place."""
        return Falling.of(self._right, -LOGIT_SPAN, LOGIT_SPAN)

    def _center(self, z: Array) -> Array:
        """Return P(|Z| <= z)."""
        finite = np.isfinite(z)
        return np.where(finite, self.noise._center(np.where(finite, z, 0.0)), 1.0)

    def _between(self, low: Array, width: Array | float) -> tuple[Array, Array]:
        """Return ln P(low < Z < low + width) for low >= 0, and the ln of the largest number it was computed from."""
        low, width = np.broadcast_arrays(low, width)
        unknown = ~np.isfinite(low)
        low = np.where(unknown, 1.0, low)
        high = low + np.maximum(width, 0.0)
        above, after = self.noise.logsf(low), self.noise.logsf(high)
        mass, scale = above + np.log(-np.expm1(after - above)), above
        inner = self._center(high)
        small = inner < 0.5  # near 0 the distances from the median have more digits than the tails
        mass = np.where(small, np.log((inner - self._center(low)) / 2), mass)
        scale = np.where(small, np.log(inner / 2), scale)
        narrow = (width < low) & (self.noise._drop_rise(low, np.where(width < low, width, 0.0)) < NARROW_RISE)
        if narrow.any():
            mass[narrow] = scale[narrow] = self._narrow(low[narrow], high[narrow], width[narrow])
        mass, scale = np.where(width > 0, mass, -math.inf), np.where(width > 0, scale, -math.inf)
        return np.where(unknown, -math.inf, mass), np.where(unknown, -math.inf, scale)

    def _narrow(self, low: Array, high: Array, width: Array) -> Array:
        """Return ln P(low < Z < high) by Gauss-Legendre quadrature between the kinks of the density."""
        x, weights = np.polynomial.legendre.leggauss(12)
        total = np.zeros_like(low)
        edges = [0.0, *self.noise._kinks, math.inf]
        for start, end in pairwise(edges):
            left = np.maximum(start - low, 0.0)
            part = np.maximum(np.minimum(end - low, width) - left, 0.0)
            at = left[:, None] + part[:, None] * (1 + x) / 2
            rise = self.noise._drop_rise(np.broadcast_to(low[:, None], at.shape), at)
            total += np.exp(-rise) @ weights / 2 * part
        return np.asarray(self.noise._log_peak - self.noise._drop(low) + np.log(total))


@dataclass(frozen=True)
class Falling:
    """A function that does not rise, with a table of its values in which solutions are looked up first."""

    function: Callable[[Array], Array]
    at: Array
    values: Array

    @staticmethod
    def of(function: Callable[[Array], Array], low: float, high: float) -> "Falling":
        """Return the function with a table of its values between two points."""
        at = np.linspace(low, high, STEPS_OF_TABLE + 1)
        return Falling(function, at, function(at))

    def solve(self, value: Array) -> Array:
        """Return where the function has each value, or the end that is nearest to it."""
        index = np.clip(np.searchsorted(-self.values, -value), 1, STEPS_OF_TABLE)
        return solve(lambda x: self.function(x) - value, self.at[index - 1], self.at[index])


def solve(function: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """Return a zero of a decreasing function between `low` and `high`, or the end that is nearest to one.

    Chandrupatla's method on arrays: inverse quadratic interpolation where it is safe, otherwise bisection.
    """
    a, b, fa, fb = high, low, function(high), function(low)
    c, fc, t = a, fa, np.full_like(a, 0.5)
    outside = np.where(fb <= 0, low, np.where(fa >= 0, high, math.nan))
    found = np.where(np.abs(fa) < np.abs(fb), a, b)
    for _ in range(200):
        x = a + t * (b - a)
        fx = function(x)
        same = np.sign(fx) == np.sign(fa)
        c, fc = np.where(same, a, b), np.where(same, fa, fb)
        b, fb = np.where(same, b, a), np.where(same, fb, fa)
        a, fa = x, fx
        found, least = np.where(np.abs(fa) < np.abs(fb), a, b), np.minimum(np.abs(fa), np.abs(fb))
        tolerance = (4e-16 * np.abs(found) + 1e-300) / np.abs(b - a)
        if ((tolerance > 0.5) | (least == 0) | ~np.isnan(outside) | (b == a)).all():
            break
        xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb)
        safe = (phi**2 < xi) & ((1 - phi) ** 2 < 1 - xi)
        step = fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
        t = np.where(safe & np.isfinite(step), step, 0.5)
        t = np.clip(t, np.minimum(tolerance, 0.5), 1 - np.minimum(tolerance, 0.5))
    return np.where(np.isnan(outside), found, outside)
