"""The tight PRzCDP loss of a noise at every influence: a certified curve, read from above.

The loss is bounded at the nodes of a geometric grid of influences (`divergence.tight_loss`). It does not decrease with
the influence, so the bound at a node holds for everything below it: the curve between two nodes is the straight line,
on logarithmic axes, from the bound at the next node to the bound at the one after that. The curve is therefore above
the tight loss by about one step of the grid. Two facts save most of the nodes:

- √P* is subadditive (group privacy), so P*(Δ) <= ⌈Δ/x⌉²·P*(x). From a very small x, this is within the precision as
  long as the loss grows with the square of the influence.
- The curve ends where another bound, such as the closed form of the paper, is within the precision. Beyond its end it
  is infinite: it is to be combined with that other bound.

Influences are in units of the scale of the noise.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from slowscale.core.parameters import Array, lazy
from slowscale.noise.divergence import TightLoss, far_end, tight_loss
from slowscale.noise.symmetric import SymmetricNoise

FIRST_INFLUENCE, LAST_INFLUENCE = 1e-9, 1e15
LARGEST_INFLUENCE = 1e300  # larger ones, which may be infinite by overflow, are read as this
# The influence from which the loss is extrapolated by group privacy, as a share of FIRST_INFLUENCE.
SEED_SHARE = 1e-4
# Which shares of the precision go to the step of the grid, to merging its lines, and to the bounds at the nodes.
STEP_SHARE, MERGE_SHARE, BOUND_SHARE = 0.65, 0.2, 0.05
# From this loss on, the other bound is compared: it may also be close where the loss is small, and then leave again.
COMPARED_LOSS = 20.0
MOST_NODES_SKIPPED = 256
NODES_PER_STEP = 4  # nodes are this much closer than a step, so that a step can be chosen between them


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

    @lazy
    def _lookup(self) -> tuple[float, float, Array, Array]:
        """The first log influence, the inverse width of a bin, and the line on each bin: intercept and slope."""
        width = _node_width(self.precision)
        nodes = np.rint((self.log_sizes - self.log_sizes[0]) / width).astype(int)
        slopes = np.diff(self.log_losses) / np.diff(self.log_sizes)
        intercepts = self.log_losses[:-1] - slopes * self.log_sizes[:-1]
        # One more bin on each side takes what rounding puts there.
        lengths = np.diff(nodes)
        lengths[0] += 1
        lengths[-1] += 1
        return float(self.log_sizes[0]), 1 / width, np.repeat(intercepts, lengths), np.repeat(slopes, lengths)

    def __call__(self, influence: Array) -> Array:
        """Return the curve at influences > 0; below its first knot the loss there, beyond its last knot infinity."""
        first, inverse, intercepts, slopes = self._lookup
        logs = np.log(np.clip(influence, math.exp(first), LARGEST_INFLUENCE))
        bins = ((logs - first) * inverse).astype(np.intp)
        bins += 1
        inside = np.minimum(bins, intercepts.size - 1)
        out = slopes.take(inside)
        out *= logs
        out += intercepts.take(inside)
        np.exp(out, out=out)
        if bins.size and bins.max() >= intercepts.size - 1:
            out[logs > self.log_sizes[-1]] = np.inf
        return out

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
        upper = np.array([bound.upper for bound in rest])
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


def _node_width(precision: float) -> float:
    return STEP_SHARE * precision / NODES_PER_STEP


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
    width = _node_width(precision)
    count = math.ceil(math.log(LAST_INFLUENCE / FIRST_INFLUENCE) / width)
    logs = math.log(FIRST_INFLUENCE) + width * np.arange(count + 1.0)
    upper = np.full(count + 1, np.inf)  # bounds on the loss at the nodes
    seen: list[TightLoss] = []
    last = far_end(noise)

    def bound(influence: float) -> float:
        seen.append(tight_loss(noise, influence, BOUND_SHARE * precision, last))
        return seen[-1].upper

    node = _by_group_privacy(bound, logs, upper, precision)
    # The first slope is the largest possible one. The bounds by group privacy are looser, so they do not give a slope.
    slope, before = 2.0, -1
    while node <= count:
        upper[node] = bound(math.exp(logs[node]))
        if before >= 0:
            slope = math.log(upper[node] / upper[before]) / (logs[node] - logs[before])
        if progress is not None:
            progress(node / count)
        closed = float(other(np.exp(logs[[node]]))[0])
        if node == count or (closed > COMPARED_LOSS and closed <= upper[node] * (1 + precision / 2)):
            break
        step = int(STEP_SHARE * precision / (max(slope, 1e-3) * width))
        before, node = node, min(node + min(max(step, 1), MOST_NODES_SKIPPED), count)
    known = np.flatnonzero(np.isfinite(upper))
    knots = merged(logs[known], _corners(upper[known]), MERGE_SHARE * precision)
    return TightCurve(*knots, precision, tuple(seen))


def _by_group_privacy(bound: Callable[[float], float], logs: Array, upper: Array, precision: float) -> int:
    """Fill in the nodes where the loss grows with the square of the influence; return the first other node."""
    seed = FIRST_INFLUENCE * SEED_SHARE
    at_seed = bound(seed)
    quadratic = np.ceil(np.exp(logs) / seed) ** 2 * at_seed
    close = 1 + 2 * BOUND_SHARE * precision + 4 * SEED_SHARE
    low, high = 0, logs.size  # the last node that is close, and the first that is not, by bisection
    if quadratic[0] > bound(FIRST_INFLUENCE) * close:
        return 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if quadratic[middle] <= bound(math.exp(logs[middle])) * close else (low, middle)
    upper[:high] = quadratic[:high]
    return high


def _corners(upper: Array) -> Array:
    """Return for each node a bound on the log of the loss up to the next node."""
    least = np.minimum.accumulate(upper[::-1])[::-1]  # the loss does not decrease, so later bounds hold here too
    return np.asarray(np.log(np.append(least[1:], least[-1])))


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
