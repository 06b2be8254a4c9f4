"""The search for crossovers: the record sizes at which the losses of two policies change their order.

A crossover is a zero of the relative difference of two policies. Policies without jumps are compared on a grid of
record sizes, which is refined around every change of sign and around every dip towards 0. A policy that grows in steps
lies between two functions without jumps. Where these functions do not settle the order, the policy is compared on both
sides of each of its jumps.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from slowscale.parameters import Array
from slowscale.policy import Policy

Signs = npt.NDArray[np.int8]
# How finely the record sizes are searched: points per factor of ten.
POINTS_PER_DECADE = 100
# Losses whose relative difference is smaller than this count as equal.
EQUAL_LOSSES = 1e-12
# How many jumps are compared one by one, for each pair of policies.
MOST_JUMPS = 100_000
# From this many steps on, a jump changes the loss by a relative amount below EQUAL_LOSSES.
MOST_STEPS = 2.0**41
# Without record sizes to start from, the search covers the sizes whose losses lie between these two.
SEARCHED_LOSSES = (1e-4, 100.0)
# The sizes that are searched when none are given explicitly lie between these two.
SEARCH_LIMITS = (1e-300, 1e300)
LARGEST_FLOAT, SMALLEST_FLOAT = np.finfo(float).max, np.finfo(float).smallest_subnormal
# Where the order is compared between two breakpoints. Round fractions could hit a point where two policies touch.
INNER_FRACTIONS = np.array([0.09549, 0.27639, 0.49238, 0.72361, 0.90451])


@dataclass(frozen=True)
class PairCrossovers:
    """What the search found for a pair of policies.

    Attributes
    ----------
    places, losses
        The record sizes of the crossovers, and the losses there.
    signs
        The sign of the difference (first policy minus second) before each crossover.
    edges
        The record sizes at which stretches of equal losses begin or end.
    end
        The record size up to which all crossovers were found.
    """

    places: Array
    losses: Array
    signs: Signs
    edges: Array
    end: float


def default_span(sizes: Array, policies: Iterable[Policy]) -> tuple[float, float]:
    """Return the smallest and the largest record size to search when no span is given explicitly."""
    if sizes.size:
        low, high = max(float(sizes.min()) / 100, SEARCH_LIMITS[0]), min(float(sizes.max()) * 100, SEARCH_LIMITS[1])
        return (low, high) if low < high else SEARCH_LIMITS  # all sizes lie beyond the limits
    exponents = np.arange(-300, 301)
    starts, ends = [], []
    for policy in policies:
        with np.errstate(invalid="ignore"):
            losses = np.nan_to_num(policy(10.0**exponents), nan=0.0, posinf=math.inf)
        # A policy that grows in steps may exceed the lower loss at every size; it starts to rise later.
        above = (losses > SEARCHED_LOSSES[0]) & (losses > 1.01 * losses[0])
        starts.append(int(exponents[np.argmax(above)]) - 1 if above.any() else 0)
        beyond = losses >= SEARCHED_LOSSES[1]
        ends.append(int(exponents[np.argmax(beyond)]) if beyond.any() else int(exponents[-1]))
    start = min(starts)
    return 10.0**start, 10.0 ** max(*ends, start + 1)


def find_crossovers(p: Policy, q: Policy, low: float, high: float) -> PairCrossovers:
    """Find all crossovers of two policies at record sizes from `low` to `high`, both included."""
    difference = _difference(p, q)
    # The grid reaches one step beyond each end, to show whether the order changes exactly there.
    step = 10 ** (1 / POINTS_PER_DECADE)
    start, stop = max(low / step, SMALLEST_FLOAT), min(high * step, LARGEST_FLOAT)
    steps = max(2, math.ceil(POINTS_PER_DECADE * (math.log10(high) - math.log10(low))) + 1)
    inner = np.exp(np.linspace(math.log(low), math.log(high), steps)[1:-1])
    grid = np.unique(np.concatenate([[start, low], inner[(inner > low) & (inner < high)], [high, stop]]))
    end = high
    if p.step is not None or q.step is not None:
        jumps, end = _possible_jumps(p, q, grid, high)
        if end < high:  # otherwise a jump beyond the end shows whether the order changes exactly there
            grid, jumps = grid[grid < end], jumps[jumps <= end]
        eps = np.finfo(float).eps
        grid = np.unique(np.concatenate([grid, jumps * (1 - 4 * eps), jumps * (1 + 4 * eps)]))
    else:
        grid = _refined(difference, grid)
    places, signs = _sign_changes(difference, grid)
    inside = (places >= low * (1 - EQUAL_LOSSES)) & (places <= end * (1 + EQUAL_LOSSES))
    places, signs = np.clip(places[inside], low, end), signs[inside]
    return PairCrossovers(places, np.maximum(*difference.values(places)), signs, _equal_edges(difference, grid), end)


def least_losses(policies: Mapping[str, Policy], breakpoints: Array) -> list[tuple[float, float, str]]:
    """Return the fewest stretches (start, end, name) such that the named policy has the least loss throughout each."""
    names, starts, stops = list(policies), breakpoints[:-1], breakpoints[1:]
    least = np.ones((len(names), starts.size), bool)
    for part in INNER_FRACTIONS:
        x = np.clip(starts ** (1 - part) * stops**part, starts, stops)
        for (i, one), (j, two) in combinations(enumerate(names), 2):
            signs = _difference(policies[one], policies[two]).signs(x)
            least[i] &= signs <= 0
            least[j] &= signs >= 0
    # For each policy, the first later breakpoint at which it no longer has the least loss. Of several policies with
    # equal losses, the one that stays least for longest is named.
    places = np.where(least, starts.size, np.arange(starts.size))
    until = np.minimum.accumulate(places[:, ::-1], axis=1)[:, ::-1]
    stretches: list[tuple[float, float, str]] = []
    at = 0
    while at < starts.size:
        which = int(np.argmax(until[:, at]))
        after = max(int(until[which, at]), at + 1)
        stretches.append((float(starts[at]), float(stops[after - 1]), names[which]))
        at = after
    return stretches


@dataclass(frozen=True)
class _Difference:
    """Two functions of the record size, and by how much the first exceeds the second.

    `rounding_error` is the relative rounding error of both together, beyond a few units in the last place.
    """

    one: Callable[[Array], Array]
    two: Callable[[Array], Array]
    rounding_error: Callable[[Array], Array]

    def values(self, x: Array) -> tuple[Array, Array]:
        with np.errstate(all="ignore"):
            return self.one(x), self.two(x)

    def relative(self, x: Array) -> Array:
        """Return (p − q)/max(p, q): 0 where both are 0 or too large for a float, ±1 where only one is."""
        p, q = self.values(x)
        with np.errstate(all="ignore"):
            most = np.maximum(p, q)
            excess = np.where(most < math.inf, (p - q) / most, np.sign(p - q))
        return np.where(np.isnan(excess), 0.0, excess)

    def signs(self, x: Array) -> Signs:
        """Return −1, 0 or 1 per size; 0 means that the difference may be due to rounding alone."""
        p, q = self.values(x)
        with np.errstate(all="ignore"):
            allowed = EQUAL_LOSSES + self.rounding_error(x) + 8 * SMALLEST_FLOAT / np.maximum(p, q)
        excess = self.relative(x)
        return np.where(np.abs(excess) > allowed, np.sign(excess), 0).astype(np.int8)


def _difference(p: Policy, q: Policy) -> _Difference:
    return _Difference(p, q, lambda x: p._rounding_error(x) + q._rounding_error(x))


def _refined(difference: _Difference, grid: Array) -> Array:
    """Return the grid with more points where the sign changes, or where the difference dips towards 0."""
    inside = np.arange(1, 32) / 32
    for _ in range(2):
        signs = difference.signs(grid)
        changes = np.asarray(signs[:-1] * signs[1:] < 0)
        dips = _dips(difference.relative(grid), signs)
        cells = changes | dips[:-1] | dips[1:]
        # The cells beside a change are refined as well, because the difference can pass through 0 three times.
        cells[1:] |= changes[:-1]
        cells[:-1] |= changes[1:]
        left, width = grid[:-1][cells], np.diff(grid)[cells]
        grid = np.unique(np.concatenate([grid, (left[:, None] + width[:, None] * inside).ravel()]))
    signs = difference.signs(grid)
    lows = np.flatnonzero(_dips(difference.relative(grid), signs))
    if not lows.size:
        return grid
    left, right = np.maximum(lows - 1, 0), np.minimum(lows + 1, grid.size - 1)
    side = np.where(signs[lows] != 0, signs[lows], np.where(signs[left] != 0, signs[left], signs[right]))
    return np.unique(np.append(grid, _minimum(difference, side, grid[left], grid[right])))


def _dips(excess: Array, signs: Signs) -> npt.NDArray[np.bool_]:
    """Return whether each point is a local minimum of |difference| that is near enough to 0 to hide a zero."""
    size = np.abs(excess)
    before, after = np.append(math.inf, size[:-1]), np.append(size[1:], math.inf)
    lowest = (size <= before) & (size <= after)
    moved = np.abs(np.diff(excess))
    most = np.maximum(np.append(0.0, moved), np.append(moved, 0.0))
    # A difference that varies by rounding alone has many local minima, but none of them is close to 0.
    dips = lowest & (signs != 0) & (size <= 8 * most)
    zero = signs == 0
    alone = np.append(False, ~zero[:-1]) | np.append(~zero[1:], False)
    return np.asarray(dips | (zero & alone))


def _minimum(difference: _Difference, side: Signs, left: Array, right: Array) -> Array:
    """Return where side·difference is least between `left` and `right`, by golden-section search."""
    ratio = (math.sqrt(5) - 1) / 2
    one, two = right - ratio * (right - left), left + ratio * (right - left)
    at_one, at_two = side * difference.relative(one), side * difference.relative(two)
    for _ in range(40):
        lower = at_one < at_two
        left, right = np.where(lower, left, one), np.where(lower, two, right)
        one, two = right - ratio * (right - left), left + ratio * (right - left)
        at_one, at_two = side * difference.relative(one), side * difference.relative(two)
    return np.where(at_one < at_two, one, two)


def _sign_changes(difference: _Difference, grid: Array) -> tuple[Array, Signs]:
    """Return where the sign of the difference changes, and the sign before each change."""
    signs = difference.signs(grid)
    decided = np.flatnonzero(signs)
    turn = signs[decided[:-1]] != signs[decided[1:]]
    first, last = decided[:-1][turn], decided[1:][turn]
    before = signs[first]
    if not first.size:
        return np.empty(0), before
    # Between `left` and `right` the sign is uncertain. If the losses are equal there, the change is at the end of it.
    left = _bisect(lambda x: difference.signs(x) == before, grid[first], grid[last])[0]
    last_equal, right = _bisect(lambda x: difference.signs(x) != -before, left, grid[last])
    quarters = [np.abs(difference.relative(left + part * (right - left))) for part in (0.25, 0.5, 0.75)]
    equal = (right > left * (1 + 1e-9)) & (np.max(quarters, axis=0) < EQUAL_LOSSES / 50)
    places = _bisect(lambda x: np.sign(difference.relative(x)) != -before, left, right)[0]
    return np.where(equal, last_equal, places), before


def _equal_edges(difference: _Difference, grid: Array) -> Array:
    """Return where stretches on which both functions are equal begin and end."""
    zero = difference.signs(grid) == 0
    start = np.flatnonzero(~zero[:-2] & zero[1:-1] & zero[2:])
    stop = np.flatnonzero(zero[:-2] & zero[1:-1] & ~zero[2:]) + 1
    begins = _bisect(lambda x: difference.signs(x) != 0, grid[start], grid[start + 1])[1]
    ends = _bisect(lambda x: difference.signs(x) == 0, grid[stop], grid[stop + 1])[0]
    return np.concatenate([begins, ends])


def _bisect(holds: Callable[[Array], Any], low: Array, high: Array) -> tuple[Array, Array]:
    """Return neighbouring floats such that the condition holds at the first only, given that it holds at `low` only."""
    for _ in range(64):
        middle = low + (high - low) / 2
        if ((middle <= low) | (middle >= high)).all():
            break
        held = holds(middle)
        low, high = np.where(held, middle, low), np.where(held, high, middle)
    return low, high


def _possible_jumps(p: Policy, q: Policy, grid: Array, high: float) -> tuple[Array, float]:
    """Return the jumps at which the policies may cross, and the size up to which the list is complete."""
    (p_low, p_high), (q_low, q_high) = p._smooth_bounds(), q._smooth_bounds()
    rounding_error = _difference(p, q).rounding_error
    # Where the first bound is not negative, p >= q; where the second is not negative, q >= p.
    bounds = _Difference(p_low, q_high, rounding_error), _Difference(q_low, p_high, rounding_error)
    ends = np.array([grid[0], grid[-1]])
    for bound in bounds:
        finer = _refined(bound, grid)
        ends = np.union1d(ends, np.concatenate([_sign_changes(bound, finer)[0], _equal_edges(bound, finer)]))
    middles = np.sqrt(ends[:-1]) * np.sqrt(ends[1:])
    unsettled = (bounds[0].signs(middles) < 0) & (bounds[1].signs(middles) < 0)
    stretches = [*zip(ends[:-1][unsettled], ends[1:][unsettled], strict=True), *((turn, turn) for turn in ends[1:-1])]
    found, end = [np.empty(0)], high
    for step in {policy.step for policy in (p, q) if policy.step is not None}:
        for start, stop in sorted(stretches):
            first = max(1.0, math.floor(start / step) - 2)
            last = min(math.ceil(stop / step) + 2.0, MOST_STEPS)
            if last - first > MOST_JUMPS:
                last = first + MOST_JUMPS
                end = min(end, last * step)
            found.append(step * np.arange(first, last + 1))
    jumps = np.unique(np.concatenate(found))
    return jumps[(jumps > grid[0]) & (jumps < grid[-1])], end
