"""Several releases together: numerical distributions of the total privacy loss, with certified bounds.

The losses of independent releases add up. Each loss is moved to a grid, and the distributions are convolved directly:
all terms are >= 0, so that a sum of n products has a relative error of at most n + 1 roundings.

- Upper bound: the curve δ(ε) is replaced by its chords in exp(ε) between the grid points. As δ is convex in exp(ε), the
  chords lie above it, and a larger curve stays larger under composition (Zhu, Dong and Wang 2022; Doroshenko, Ghazi,
  Kamath, Kumar and Manurangsi 2022 call this "connecting the dots"). A loss above the grid counts as an infinite
  loss, and so does a bound on all errors of the distribution functions.
- Lower bound: every loss is rounded down to the grid.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from slowscale.accounting.pairs import DISTRIBUTION_ACCURACY, GaussianPair, Pair
from slowscale.core.parameters import Array

LOSS_POINTS = 4000  # on the positive side of the losses of all releases together
NEGLIGIBLE = 1e-14  # a probability that may be moved to an infinite loss, or left out of a lower bound
ROUNDING = 2.0**-52  # twice the unit roundoff, which covers terms of higher order
RATES_AT_ONCE = 256  # rates of false alarms that are computed at a time


@dataclass(frozen=True)
class Atoms:
    """A distribution of losses on a grid: `masses[i]` at (start + i)·step, and `infinite` at infinity."""

    step: float
    start: int
    masses: Array
    infinite: float  # in a lower bound, minus a bound on all errors of probabilities


def compose(pairs: Sequence[Pair], upper: bool) -> "Pair | LossCurve":
    """Return the pair of several independent releases: exactly if possible, otherwise as a bound from one side."""
    pairs = [one for one in pairs if one.most > 0]
    gaussian = math.hypot(*(one.distance for one in pairs if isinstance(one, GaussianPair)))
    others = [one for one in pairs if not isinstance(one, GaussianPair)]
    parts: list[Pair] = others if others and gaussian == 0 else [*others, GaussianPair(gaussian)]
    if len(parts) == 1:
        return parts[0]
    most = math.fsum(one.most for one in parts)
    if any(isinstance(one, GaussianPair) and math.isinf(one.distance) for one in parts):
        return GaussianPair(math.inf)
    ranges = [one.range(DISTRIBUTION_ACCURACY) for one in parts]
    # The range of a total of many independent losses grows like a root of their number.
    step = min(math.fsum(ranges), 4 * math.hypot(*ranges)) / LOSS_POINTS
    total: Atoms | None = None
    for one, end in zip(parts, ranges, strict=True):
        atoms = _rounded_up(one, step, end) if upper else _rounded_down(one, step, end)
        total = atoms if total is None else _convolved(total, atoms, upper)
    assert total is not None
    return LossCurve.of(total, most)


def _nodes(pair: Pair, step: float, end: float) -> Array:
    """Return the grid points from 0 to the first one at or above `end`."""
    return np.asarray(step * np.arange(math.ceil(end / step * (1 + 1e-12)) + 1), float)


def _rounded_up(pair: Pair, step: float, end: float) -> Atoms:
    masses = pair.masses(_nodes(pair, step, end))
    delta = masses.delta
    falls = np.append(np.maximum(delta[:-1] - delta[1:], 0.0), 0.0)
    shrink = math.exp(-step)
    # the probabilities of step, 2·step, …: by how much the slope in exp(ε) changes there
    above = np.maximum(falls[:-1] - shrink * falls[1:], 0.0) / -math.expm1(-step)
    below = above * np.exp(-step * np.arange(1, above.size + 1))  # of −step, −2·step, …, by symmetry
    infinite = float(delta[-1] + masses.error.max() + NEGLIGIBLE)
    middle = max(1 - math.fsum(above) - math.fsum(below) - float(delta[-1]), 0.0) + NEGLIGIBLE
    return Atoms(step, -above.size, np.concatenate([below[::-1], [middle], above]), infinite)


def _rounded_down(pair: Pair, step: float, end: float) -> Atoms:
    masses = pair.masses(_nodes(pair, step, end))
    second = np.exp(masses.log_second)
    # A loss between k·step and (k + 1)·step counts as k·step, one between their negatives as −(k + 1)·step.
    above = np.append(np.maximum(masses.first[:-1] - masses.first[1:], 0.0), masses.first[-1])
    below = np.maximum(second[:-1] - second[1:], 0.0)
    # Errors of the distribution functions change the probability of every half-line by this at most.
    return Atoms(step, -below.size, np.concatenate([below[::-1], above]), -4 * DISTRIBUTION_ACCURACY)


def _convolved(one: Atoms, two: Atoms, upper: bool) -> Atoms:
    masses = np.convolve(one.masses, two.masses)
    terms = min(one.masses.size, two.masses.size) + 1
    masses *= 1 + terms * ROUNDING if upper else 1 - terms * ROUNDING
    more = max(math.fsum(one.masses), math.fsum(two.masses), 1.0)
    infinite = (one.infinite + two.infinite) * more + one.infinite * two.infinite * upper
    start = one.start + two.start
    # Negligible tails are cut off: they count as infinite or as the least loss kept, or not at all in a lower bound.
    from_top, from_bottom = np.cumsum(masses[::-1])[::-1], np.cumsum(masses)
    kept = np.flatnonzero((from_top > NEGLIGIBLE) & (from_bottom > NEGLIGIBLE))
    if not kept.size:  # nothing but negligible tails, if the loss is infinite for all practical purposes
        rest = infinite + float(masses.sum()) * (1 + terms * ROUNDING)
        return Atoms(one.step, start, np.zeros(1), rest if upper else infinite - 2 * NEGLIGIBLE)
    low, high = int(kept[0]), int(kept[-1]) + 1
    cut = masses[low:high].copy()
    if upper:
        infinite += float(masses[high:].sum())
        cut[0] += float(masses[:low].sum())
    return Atoms(one.step, start + low, cut, infinite * (1 + terms * ROUNDING) if upper else infinite - 2 * NEGLIGIBLE)


@dataclass(frozen=True)
class LossCurve:
    """The curves of a distribution of losses on a grid, with the methods of a pair.

    Attributes
    ----------
    most
        The largest possible loss.
    atoms
        The distribution.
    deltas
        δ at ε = 0, step, 2·step, ….
    falls
        By how much δ falls from each of these points to the next.
    """

    most: float
    atoms: Atoms
    deltas: Array
    falls: Array

    @staticmethod
    def of(atoms: Atoms, most: float) -> "LossCurve":
        """Return the curve of a distribution."""
        positive = atoms.masses[max(1 - atoms.start, 0) :]  # at step, 2·step, …
        if atoms.start > 1:
            positive = np.concatenate([np.zeros(atoms.start - 1), positive])
        shrink, sums, running = math.exp(-atoms.step), [0.0], 0.0
        for mass in positive[::-1].tolist():
            running = mass + shrink * running
            sums.append(running)
        falls = -math.expm1(-atoms.step) * np.array(sums[::-1])
        deltas = np.cumsum(falls[::-1])[::-1] + atoms.infinite
        return LossCurve(most, atoms, np.clip(deltas, 0.0, 1.0), falls)

    def delta(self, epsilon: Array) -> Array:
        """Return δ at each ε >= 0: the chord between two grid points."""
        step = self.atoms.step
        place = np.minimum(np.floor(epsilon / step), self.deltas.size - 1)
        index = place.astype(int)
        past = np.clip(epsilon - place * step, 0, step)
        # the share of the growth of exp(ε) between two points, (exp(past) − 1)/(exp(step) − 1)
        share = np.exp(past - step) * np.expm1(-past) / math.expm1(-step)
        found = self.deltas[index] - share * self.falls[index]
        return np.where(epsilon >= self.most, 0.0, np.maximum(found, max(self.atoms.infinite, 0.0)))

    def epsilon(self, delta: Array) -> Array:
        """Return the smallest ε >= 0 whose δ is at most each given one."""
        index = np.clip(np.searchsorted(-self.deltas, -delta) - 1, 0, self.deltas.size - 1)
        with np.errstate(all="ignore"):
            share = np.clip((self.deltas[index] - delta) / self.falls[index], 0.0, 1.0)
            more = np.log(share + (1 - share) * math.exp(-self.atoms.step))
        found = (index + 1) * self.atoms.step + more
        found = np.where(self.deltas[0] <= delta, 0.0, found)
        return np.where(np.isfinite(found) & (delta >= self.deltas[-1]), np.minimum(found, self.most), self.most)

    def power(self, false_alarms: Array) -> Array:
        """Return the power at each rate s of false alarms: the minimum over ε of exp(ε)·s + δ(ε)."""
        grid = self.atoms.step * np.arange(self.deltas.size)
        power = np.empty_like(false_alarms)
        with np.errstate(all="ignore"):
            for start in range(0, false_alarms.size, RATES_AT_ONCE):
                s = false_alarms[start : start + RATES_AT_ONCE, None]
                present = (np.exp(grid + np.log(s)) + self.deltas).min(axis=1)
                missed = (np.exp(-grid) * (1 - s - self.deltas)).max(axis=1)
                power[start : start + RATES_AT_ONCE] = np.minimum(present, 1 - np.maximum(missed, 0))
            pure = np.exp(self.most + np.log(false_alarms))
        power = np.where(false_alarms > 0, np.minimum(power, pure), 0.0)
        return np.clip(power, false_alarms, 1.0)

    def average(self, log_odds: float) -> float:
        """Return the average posterior of the true hypothesis, from prior log odds."""
        grid = self.atoms.step * (self.atoms.start + np.arange(self.atoms.masses.size))
        found = self.atoms.masses @ special.expit(log_odds + grid) + self.atoms.infinite
        return float(np.clip(found, 0.0, 1.0))
