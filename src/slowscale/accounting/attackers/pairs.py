"""Pairs of distributions that an attacker must tell apart: what is published with a record, and without it.

The privacy loss L is the log of the ratio of the two densities. Every pair here is symmetric: exchanging the two
distributions gives the same pair, so the losses t >= 0 describe it completely (docs/attackers.md).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special

from slowscale.core.parameters import Array, lazy

# The relative accuracy of the distribution functions in `noise/`, to which their tests hold them.
DISTRIBUTION_ACCURACY = 1e-10
# Thresholds are searched in a table of so many parts. The part that is found is divided further, so many times.
TABLE_PARTS, BRACKET_PARTS, BRACKET_ROUNDS = 1024, 64, 3


@dataclass(frozen=True)
class Masses:
    """What is known at thresholds t >= 0 of the loss L; the first distribution is the more likely one where L > 0.

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
        """Thresholds from 0 to the largest loss, or to one with δ = 0 in floats, and what is known there."""
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
