"""Crossovers: the record sizes at which the losses of two policies change their order.

The policies are compared on a grid of record sizes, and on both sides of the jumps of policies that grow in steps. Each
change of order between two points of the grid is located by bisection.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from slowscale.core.parameters import Array
from slowscale.policy import Policy

# The grid has this many points per factor of ten: two crossovers of the same pair within 0.5 % may be missed.
POINTS_PER_DECADE = 500
# Losses whose relative difference is smaller than this count as equal.
EQUAL_LOSSES = 1e-12
# Sizes whose relative difference is smaller than this count as one place.
SAME_PLACE = 1e-6
# How many jumps of a policy are compared, from the smallest size on.
MOST_JUMPS = 10_000
# Without record sizes to start from, the search goes from the first loss to the larger of two sizes: the size at which
# all policies reach the second loss, and the size at which one of them reaches the third.
SEARCHED_LOSSES = 1e-4, 100.0, 1e6
# The sizes that are searched when none are given explicitly lie between these two.
SEARCH_LIMITS = (1e-300, 1e300)
LARGEST_FLOAT, SMALLEST_FLOAT = np.finfo(float).max, np.finfo(float).smallest_subnormal


class Crossover(NamedTuple):
    """A record size at which the order of two mechanisms changes.

    Smaller records lose less under the mechanism `below`, larger ones under the mechanism `above`.
    """

    influence: float
    loss: float
    below: str
    above: str


def default_span(sizes: Array, policies: Iterable[Policy]) -> tuple[float, float]:
    """Return the smallest and the largest record size to search when no span is given explicitly."""
    if sizes.size:
        low, high = max(float(sizes.min()) / 100, SEARCH_LIMITS[0]), min(float(sizes.max()) * 100, SEARCH_LIMITS[1])
        return (low, high) if low < high else SEARCH_LIMITS  # all sizes lie beyond the limits
    exponents = np.arange(-300, 301)
    starts: list[int] = []
    far: list[int] = []
    farther: list[int] = []
    for policy in policies:
        with np.errstate(invalid="ignore"):
            losses = np.nan_to_num(policy(10.0**exponents), nan=0.0, posinf=math.inf)
        # A policy that grows in steps may exceed the lower loss at every size; it starts to rise later.
        above = (losses > SEARCHED_LOSSES[0]) & (losses > 1.01 * losses[0])
        starts.append(int(exponents[np.argmax(above)]) - 1 if above.any() else 0)
        for ends, loss in ((far, SEARCHED_LOSSES[1]), (farther, SEARCHED_LOSSES[2])):
            ends.append(int(exponents[np.argmax(losses >= loss)]) if losses[-1] >= loss else int(exponents[-1]))
    start = min(starts)
    return 10.0**start, 10.0 ** max(*far, min(farther), start + 1)


def find_crossovers(policies: Mapping[str, Policy], low: float, high: float) -> tuple[list[Crossover], bool]:
    """Return the crossovers of all pairs of policies from `low` to `high`, and whether all jumps were compared."""
    steps = {policy.step for policy in policies.values() if policy.step is not None}
    complete = all(high / step - low / step <= MOST_JUMPS for step in steps)
    # The grid reaches one step beyond each end, to show whether the order changes exactly there.
    grid = _grid(low, high, steps, beyond=True)
    found = []
    for one, two in combinations(policies, 2):
        difference = _Difference(policies[one], policies[two])
        signs = difference.signs(grid)
        decided = np.flatnonzero(signs)
        turn = signs[decided[:-1]] != signs[decided[1:]]
        first, last = decided[:-1][turn], decided[1:][turn]
        places = difference.crossing(grid[first], grid[last], signs[first])
        inside = (places >= low * (1 - EQUAL_LOSSES)) & (places <= high * (1 + EQUAL_LOSSES))
        for x, sign in zip(np.clip(places[inside], low, high).tolist(), signs[first][inside], strict=True):
            loss = max(float(policies[one](x)), float(policies[two](x)))
            found.append(Crossover(x, loss, *((one, two) if sign < 0 else (two, one))))
    return sorted(found), complete


def least_losses(
    policies: Mapping[str, Policy], low: float, high: float, crossovers: Iterable[Crossover]
) -> list[tuple[float, float, str]]:
    """Return the fewest stretches (start, end, name) such that the named policy has the least loss throughout each."""
    names = list(policies)
    grid = _grid(low, high, {policy.step for policy in policies.values() if policy.step is not None})
    turns = np.array(sorted({c.influence for c in crossovers}))

    def is_least(which: int, x: Array) -> Any:
        others = [policies[name] for name in names if name != names[which]]
        return np.all([np.ones(x.shape), *(_Difference(policies[names[which]], q).signs(x) <= 0 for q in others)], 0)

    least = np.array([is_least(i, grid) for i in range(len(names))])
    # For each policy, the first later point at which it does not have the least loss. Of several policies with equal
    # losses, the one that stays least for longest is named.
    places = np.where(least, grid.size, np.arange(grid.size))
    until = np.minimum.accumulate(places[:, ::-1], axis=1)[:, ::-1]
    stretches: list[tuple[float, float, str]] = []
    at, start = 0, low
    while at < grid.size:
        which = int(np.argmax(until[:, at]))
        after = max(int(until[which, at]), at + 1)
        end = high
        if after < grid.size:
            ends = grid[after - 1 : after], grid[after : after + 1]
            end = float(_bisect(lambda x, which=which: is_least(which, x), *ends)[0][0])  # type: ignore[misc]
            near = turns[np.abs(turns / end - 1) < SAME_PLACE]  # a crossover is located more precisely
            end = float(near[0]) if near.size else end
        if end > start:
            stretches.append((start, end, names[which]))
        at, start = after, end
    return stretches


def _grid(low: float, high: float, steps: Iterable[float], beyond: bool = False) -> Array:
    """Return the sizes at which policies are compared: evenly on a logarithmic scale, and on both sides of jumps."""
    points = max(3, math.ceil(POINTS_PER_DECADE * (math.log10(high) - math.log10(low))) + 1)
    inner = np.exp(np.linspace(math.log(low), math.log(high), points)[1:-1])
    parts = [np.array([low, high]), inner[(inner > low) & (inner < high)]]
    ends = low, high
    if beyond:
        step = 10 ** (1 / POINTS_PER_DECADE)
        ends = max(low / step, SMALLEST_FLOAT), min(high * step, LARGEST_FLOAT)
        parts.append(np.array(ends))
    for step in steps:
        first = max(1.0, float(np.floor(ends[0] / step)))
        jumps = step * np.arange(first, min(first + MOST_JUMPS, float(np.ceil(ends[1] / step))) + 1)
        near = 4 * np.finfo(float).eps
        parts += [side[(side > ends[0]) & (side < ends[1])] for side in (jumps * (1 - near), jumps * (1 + near))]
    return np.unique(np.concatenate(parts))


class _Difference(NamedTuple):
    """By how much the first of two policies exceeds the second."""

    one: Policy
    two: Policy

    def relative(self, x: Array) -> tuple[Array, Array]:
        """Return (p − q)/max(p, q), which is 0 where both are 0 or infinite, and max(p, q)."""
        with np.errstate(all="ignore"):
            p, q = self.one(x), self.two(x)
            most = np.maximum(p, q)
            return np.nan_to_num(np.where(most < math.inf, (p - q) / most, np.sign(p - q))), most

    def signs(self, x: Array) -> Any:
        """Return −1, 0 or 1 for each size; 0 means that the difference may be due to rounding alone."""
        excess, most = self.relative(x)
        with np.errstate(all="ignore"):
            rounding = self.one._rounding_error(x) + self.two._rounding_error(x) + 8 * SMALLEST_FLOAT / most
        return np.where(np.abs(excess) > EQUAL_LOSSES + rounding, np.sign(excess), 0)

    def crossing(self, low: Array, high: Array, before: Array) -> Array:
        """Return where the order changes, given that the sign is `before` at `low` and the opposite at `high`."""
        left = _bisect(lambda x: self.signs(x) == before, low, high)[0]
        right = _bisect(lambda x: self.signs(x) != -before, left, high)[0]
        exact = _bisect(lambda x: np.sign(self.relative(x)[0]) != -before, left, right)[0]
        # If the losses are equal over a stretch in between, the order changes at its end.
        return np.where(right > left * (1 + SAME_PLACE), right, exact)


def _bisect(holds: Callable[[Array], Any], low: Array, high: Array) -> tuple[Array, Array]:
    """Return neighbouring floats such that the condition holds at the first only, given that it holds at `low` only."""
    for _ in range(64):
        middle = low + (high - low) / 2
        if ((middle <= low) | (middle >= high)).all():
            break
        held = holds(middle)
        low, high = np.where(held, middle, low), np.where(held, high, middle)
    return low, high
