"""The tight PRzCDP loss of a noise at every influence: a certified curve, read from above.

The loss is bounded at the nodes of a grid of influences (`divergence.tight_losses`). It does not decrease with the
influence, so the bound at a node holds for everything below it: the curve between two nodes is the straight line, on
logarithmic axes, from the bound at the next node to the bound at the one after that. The curve is therefore above the
tight loss by about one step of the grid. Two facts save most of the nodes:

- √P* is subadditive (group privacy), so P*(Δ) <= ⌈Δ/x⌉²·P*(x). From a very small x, this is within the precision as
  long as the loss grows with the square of the influence.
- The curve ends where another bound, such as the closed form of the paper, is within the precision. Beyond its end it
  is infinite: it is to be combined with that other bound.

Influences are in units of the scale of the noise.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from slowscale.core.parameters import Array, lazy
from slowscale.noise.divergence import TightLoss, far_end, tight_losses
from slowscale.noise.symmetric import SymmetricNoise

FIRST_INFLUENCE, LAST_INFLUENCE = 1e-9, 1e15
LARGEST_INFLUENCE = 1e300  # larger ones, which may be infinite by overflow, are read as this
# The influence from which the loss is extrapolated by group privacy, as a share of FIRST_INFLUENCE.
SEED_SHARE = 1e-4
# Which shares of the precision go to the step of the grid, to merging its lines, and to the bounds at the nodes.
STEP_SHARE, MERGE_SHARE, BOUND_SHARE = 0.65, 0.2, 0.05
# From this loss on, the other bound is compared: it may also be close where the loss is small, and then leave again.
COMPARED_LOSS = 20.0
# Steps of the grid in ln(size): no longer and no shorter than these.
LONGEST_STEP, SHORTEST_STEP = 0.4, 5e-4
# Neighbouring nodes are computed together as long as their losses differ by at most this share.
TOGETHER = 0.1
# The decimals of the knots, so that files are short and exact. Losses are rounded up.
DECIMALS = 5
MOST_KNOTS = 2000


@dataclass(frozen=True, eq=False)
class TightCurve:
    """A curve above the tight loss, linear between knots on logarithmic axes.

    Attributes
    ----------
    log_sizes, log_losses
        The knots: natural logarithms of influences and of losses.
    precision
        By which share the curve may lie above the tight loss.
    bounds
        The bounds at the nodes from which the curve was made.
    """

    log_sizes: Array
    log_losses: Array
    precision: float
    bounds: tuple[TightLoss, ...] = ()

    @classmethod
    def of(cls, knots: Sequence[Sequence[float]], precision: float) -> Self:
        """Return the curve with these knots: pairs of natural logarithms."""
        log_sizes, log_losses = np.array(knots, float).T
        return cls(log_sizes, log_losses, precision)

    @property
    def knots(self) -> tuple[tuple[float, float], ...]:
        """The knots as pairs of plain numbers."""
        return tuple(zip(self.log_sizes.tolist(), self.log_losses.tolist(), strict=True))

    @lazy
    def _lookup(self) -> tuple[float, npt.NDArray[np.intp], Array, Array, Array]:
        """The inverse width of bins with at most one knot each, the line at the start of each bin, and all lines.

        A line is given by its end, its slope and its intercept.
        """
        width = float(np.diff(self.log_sizes).min())
        starts = np.arange(self.log_sizes[0], self.log_sizes[-1], width)
        lines = np.searchsorted(self.log_sizes, starts, "right") - 1
        slopes = np.diff(self.log_losses) / np.diff(self.log_sizes)
        ends = np.append(self.log_sizes[1:-1], np.inf)
        return 1 / width, lines, ends, slopes, self.log_losses[:-1] - slopes * self.log_sizes[:-1]

    def __call__(self, influence: Array) -> Array:
        """Return the curve at influences > 0; below its first knot the loss there, beyond its last knot infinity."""
        inverse, lines, ends, slopes, intercepts = self._lookup
        first, last = self.log_sizes[[0, -1]]
        logs = np.log(np.clip(influence, math.exp(first), LARGEST_INFLUENCE))
        line = lines.take(((logs - first) * inverse).astype(np.intp), mode="clip")
        line += logs > ends.take(line)
        out = slopes.take(line)
        out *= logs
        out += intercepts.take(line)
        return np.where(logs > last, np.inf, np.exp(out, out=out))

    def lies_above(self, bounds: Sequence[TightLoss]) -> bool:
        """Return whether the curve does not fall, and lies above the tight loss wherever bounds prove it.

        From one bound to the next, the loss is at most the next bound, or (Δ/x + 1)² times the bound at the smallest
        influence x, by group privacy.
        """
        if not all(np.isfinite(knots).all() for knots in (self.log_sizes, self.log_losses)):
            return False
        if not ((np.diff(self.log_sizes) > 0).all() and (np.diff(self.log_losses) >= 0).all()):
            return False
        seed, *rest = sorted(bounds, key=lambda bound: bound.influence)
        first, last = math.exp(self.log_sizes[0]), math.exp(self.log_sizes[-1])
        at = np.array([bound.influence for bound in rest])
        if not (seed.influence < first and at[0] <= first * (1 + 1e-9) and at[-1] >= last * (1 - 1e-9)):
            return False
        upper = _least_later(np.array([bound.upper for bound in rest]))
        starts = np.clip(at[:-1], first, last)
        unproven = np.flatnonzero((self(starts) < upper[1:] * (1 - 1e-9)) & (starts < last * (1 - 1e-9)))
        return all(self._follows_from(seed, float(starts[i]), upper[i + 1]) for i in unproven)

    def _follows_from(self, seed: TightLoss, start: float, bound: float) -> bool:
        """Return whether group privacy proves the curve from an influence on, up to where it reaches a bound."""
        log_start = math.log(start)
        log_end = max(log_start, float(np.interp(math.log(bound), self.log_losses, self.log_sizes)))
        knots = self.log_sizes[(self.log_sizes > log_start) & (self.log_sizes < log_end)]
        at = np.exp(np.concatenate([[log_start], knots, [log_end]]))
        # On these axes (Δ/x + 1)² is convex, so a line that lies above it at both ends lies above it between them.
        proved = (at / seed.influence + 1) ** 2 * seed.upper
        return bool((self(at * (1 - 1e-12)) >= proved * (1 - 1e-9)).all())


def build_curve(
    noise: SymmetricNoise,
    other: Callable[[Array], Array],
    precision: float = 0.01,
    progress: Callable[[float], None] | None = None,
) -> TightCurve:
    """Return the tight curve of a noise of scale 1.

    Parameters
    ----------
    noise
        The noise.
    other
        Another bound on the loss, with which the curve will be combined: it ends where that one is as good.
    precision
        By which share the curve may lie above the tight loss.
    progress
        Called with the share of the work that is done.
    """
    step, bounds = STEP_SHARE * precision, _Bounds(noise, BOUND_SHARE * precision)
    logs, upper, slope = _by_group_privacy(bounds, precision)
    first, last = float(logs[0]), math.log(1.002 * LAST_INFLUENCE)  # so that rounding does not cut off the end
    size, ended = 1, False
    while logs[-2:][0] < last and not ended:  # the last node is only the bound for the one before
        width = min(max(step / max(slope, 1e-3), SHORTEST_STEP), LONGEST_STEP)
        more = _rounded_up(logs[-1] + width * np.arange(1.0, size + 1))
        more = more[: np.searchsorted(more, last) + 2]
        found = bounds(more)
        closed = other(np.exp(more))
        as_good = np.flatnonzero((closed > COMPARED_LOSS) & (closed <= found * (1 + precision / 2)))
        ended = as_good.size > 0
        count = as_good[0] + 1 if ended else more.size
        logs, upper = np.append(logs, more[:count]), np.append(upper, found[:count])
        if more.size > 1:
            half = more.size // 2
            slope = math.log(found[-1] / found[half - 1]) / (more[-1] - more[half - 1])
        size = min(2 * size, max(int(TOGETHER / step), 2))
        if progress is not None:
            progress(min((float(logs[-1]) - first) / (last - first), 1.0))
    kept = _thinned(upper, step)
    sizes, losses = merged(logs[kept][:-1], _corners(upper[kept])[:-1], MERGE_SHARE * precision)
    return TightCurve(sizes, _rounded_up(losses), precision, tuple(bounds.seen))


def prove(noise: SymmetricNoise, curve: TightCurve, shortest: float = 0.1) -> tuple[TightLoss, ...]:
    """Return bounds that prove that a curve lies above the tight loss of a noise of scale 1, or none.

    From each influence on, the next one is about the largest at which the bound is at most the curve before. The search
    ends where these steps are shorter than this share of those from which a curve is made.
    """
    step, bounds = STEP_SHARE * curve.precision, _Bounds(noise, BOUND_SHARE * curve.precision)
    at, end = float(_by_group_privacy(bounds, curve.precision)[0][-1]), float(curve.log_sizes[-1])
    room = step
    while at < end and room > shortest * step:
        level = np.log(curve(np.exp(np.array([at]))))
        levels = level + room * np.arange(1, 1 + max(int(TOGETHER / step), 1))
        nodes = np.unique(np.interp(levels, curve.log_losses, curve.log_sizes))
        before = curve(np.exp(np.append(at, nodes[:-1])))
        seen = len(bounds.seen)
        proved = np.append(bounds(nodes) <= before, False)
        count = int(proved.argmin())
        del bounds.seen[seen + count :]
        at = float(nodes[count - 1]) if count else at
        room *= 1.1 if count == nodes.size else 0.8
    return tuple(bounds.seen) if at >= end and curve.lies_above(bounds.seen) else ()


class _Bounds:
    """Upper bounds on the losses at some influences, which are given by their logarithms, and all that were found."""

    def __init__(self, noise: SymmetricNoise, precision: float) -> None:
        self.noise, self.precision, self.last = noise, precision, far_end(noise)
        self.seen: list[TightLoss] = []

    def __call__(self, logs: Array) -> Array:
        found = tight_losses(self.noise, np.exp(logs), self.precision, self.last)
        self.seen += found
        return np.array([bound.upper for bound in found])


def _rounded_up(values: Array) -> Array:
    return np.asarray(np.ceil(values * 10.0**DECIMALS) / 10.0**DECIMALS)


def _by_group_privacy(bounds: _Bounds, precision: float) -> tuple[Array, Array, float]:
    """Return the nodes where the loss grows with the square of the influence, or else the first node.

    The second array has the bounds there; the number is the slope from which further steps follow.
    """
    step, seed = STEP_SHARE * precision / 2, FIRST_INFLUENCE * SEED_SHARE
    first, last = math.log(FIRST_INFLUENCE), math.log(LAST_INFLUENCE)
    logs = _rounded_up(np.arange(first, last, step) - 10.0**-DECIMALS)
    at_seed, at_first = (float(bounds(np.array([log]))[0]) for log in (math.log(seed), logs[0]))
    quadratic = np.ceil(np.exp(logs) / seed) ** 2 * at_seed
    close = 1 + 2 * BOUND_SHARE * precision + 4 * SEED_SHARE
    if quadratic[0] > at_first * close:
        later = logs[0] + TOGETHER
        return logs[:1], np.array([at_first]), math.log(bounds(np.array([later]))[0] / at_first) / TOGETHER
    low, high = 0, logs.size  # the last node that is close, and the first that is not, by bisection
    while high - low > 1:
        middle = (low + high) // 2
        near = quadratic[middle] <= bounds(logs[[middle]])[0] * close
        low, high = (middle, high) if near else (low, middle)
    return logs[:high], quadratic[:high], 2.0


def _thinned(upper: Array, step: float) -> list[int]:
    """Return the places of as few bounds as give steps of at most `step`, where the nodes are closer than needed."""
    logs, kept = np.log(_least_later(upper)), [0]
    for place in range(1, logs.size):
        if place == logs.size - 1 or logs[place + 1] > logs[kept[-1]] + step:
            kept.append(place)
    return kept


def _corners(upper: Array) -> Array:
    """Return for each node a bound on the log of the loss up to the next node."""
    least = _least_later(upper)
    return np.asarray(np.log(np.append(least[1:], least[-1])))


def _least_later(upper: Array) -> Array:
    """Return the smallest of each bound and those after it: the loss does not decrease, so they hold before, too."""
    return np.minimum.accumulate(upper[::-1])[::-1]


def merged(logs: Array, corners: Array, room: float) -> tuple[Array, Array]:
    """Return few knots whose straight lines lie above the corners, by at most `room`, and do not fall."""
    sizes, losses = [float(logs[0])], [float(corners[0]) + room / 2]
    at = 0
    while at < logs.size - 1:
        start, height = logs[at], losses[-1]
        ahead = slice(at + 1, min(at + 4000, logs.size))
        runs = logs[ahead] - start
        least = np.maximum.accumulate((corners[ahead] - height) / runs)
        most = np.minimum.accumulate((corners[ahead] + room - height) / runs)
        good = np.flatnonzero(most >= np.maximum(least, 0.0))
        reach = int(good[-1]) if good.size else 0
        slope = max((least[reach] + most[reach]) / 2, least[reach], 0.0)
        losses.append(float(height + slope * runs[reach]))
        sizes.append(float(logs[at + 1 + reach]))
        at += 1 + reach
    return np.array(sizes), np.array(losses)
