"""Noises that the package lacks, and brute force over a fine grid: to test what is said about every symmetric noise."""

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from slowscale.core.parameters import real
from slowscale.noise import SymmetricNoise


@dataclass(frozen=True)
class Smooth(SymmetricNoise):
    """σ·sinh(τN) with N standard normal: the log-density is concave in a core and convex outside."""

    sigma: float = real(above=0, typical=(0.1, 10))
    tau: float = real(above=0, typical=(0.1, 3))

    def _drop(self, z):
        x = z / self.sigma
        return np.arcsinh(x) ** 2 / (2 * self.tau**2) + np.log(np.hypot(1, x))

    @property
    def _concave_from(self):
        z = self.sigma * np.sinh(np.linspace(0, 10, 100_001))
        return float(z[np.argmax(np.gradient(self._drop(z), z))])

    @property
    def _log_peak(self):
        return -math.log(self.tau * self.sigma * math.sqrt(2 * math.pi))

    def _log_tail(self, z):
        return math.log(2) + special.log_ndtr(-np.arcsinh(z / self.sigma) / self.tau)

    def _tail_inverse(self, tail):
        return self.sigma * np.sinh(-self.tau * special.ndtri(tail / 2))

    def _center(self, z):
        return special.erf(np.arcsinh(z / self.sigma) / self.tau / math.sqrt(2))

    def _center_inverse(self, center):
        return self.sigma * np.sinh(self.tau * math.sqrt(2) * special.erfinv(center))

    def _log_moment(self, order):
        raise NotImplementedError


@dataclass(frozen=True)
class Bent(SymmetricNoise):
    """A log-density that falls with slope 1/σ up to `kink` and with slope 1/(4σ) from there on: two plateaus of L."""

    sigma: float = real(above=0, typical=(0.1, 10))
    kink: float = real(above=0, typical=(0.1, 10))

    def _drop(self, z):
        return np.minimum(z, self.kink) / self.sigma + np.maximum(z - self.kink, 0) / (4 * self.sigma)

    def _drop_rise(self, z, t):
        before = np.minimum(t, np.maximum(self.kink - z, 0))
        return (before + (t - before) / 4) / self.sigma

    @property
    def _kinks(self):
        return (self.kink,)

    @property
    def _half(self):
        """The integral of exp(−drop) over z > 0: before the kink, and after it."""
        left = math.exp(-self.kink / self.sigma)
        return self.sigma * (1 - left), 4 * self.sigma * left

    @property
    def _log_peak(self):
        return -math.log(2 * sum(self._half))

    def _tail(self, z):
        before = self.sigma * (np.exp(-z / self.sigma) - math.exp(-self.kink / self.sigma)) + self._half[1]
        after = self._half[1] * np.exp(-(z - self.kink) / (4 * self.sigma))
        return np.where(z < self.kink, before, after) / sum(self._half)

    def _log_tail(self, z):
        return np.log(self._tail(z))

    def _center(self, z):
        near = -self.sigma * np.expm1(-z / self.sigma) / sum(self._half)
        return np.where(z < self.kink, near, 1 - self._tail(z))

    def _tail_inverse(self, tail):
        raise NotImplementedError

    def _center_inverse(self, center):
        raise NotImplementedError

    def _log_moment(self, order):
        raise NotImplementedError


def cells(noise, shift, count=40_000):
    """Return the probabilities of many small cells without and with the shift."""
    far = noise.isf(1e-13) if not isinstance(noise, Bent) else 200 * noise.sigma
    side = np.concatenate([[0], np.geomspace(1e-9 * far, far, count // 4)])
    edges = np.unique(np.concatenate([-side, side, shift - side, shift + side, np.linspace(0, shift, count // 10)]))
    tails = noise.sf(edges), noise.sf(edges - shift)
    heads = noise.cdf(edges), noise.cdf(edges - shift)
    found = []
    for tail, head in zip(tails, heads, strict=True):
        found.append(np.where(head[1:] < 0.5, np.diff(head), -np.diff(tail)))
    return found


def brute_power(noise, shift, rates):
    """Return the power of the best test on the cells: those that are most likely with the shift are taken first."""
    without, shifted = cells(noise, shift)
    with np.errstate(all="ignore"):
        order = np.argsort(-shifted / without)
    alarms, power = (np.concatenate([[0], np.cumsum(mass[order])]) for mass in (without, shifted))
    return np.interp(rates, alarms, power)


def brute_delta(noise, shift, epsilons):
    """Return δ on the cells."""
    without, shifted = cells(noise, shift)
    return np.array([np.maximum(without - math.exp(e) * shifted, 0).sum() for e in epsilons])
