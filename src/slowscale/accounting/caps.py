"""Caps: a charge is refused if the total would exceed a policy that was fixed beforehand, at any record size.

A cap that is chosen beforehand and enforced by a ledger is a privacy filter: mechanisms may be chosen adaptively, in
view of earlier releases, and the total loss is still bounded by the cap.

The check is a proof, not a sample of points. Policies of the same shape (all Gaussians, all fourth roots…) are compared
by their coefficients. The rest is compared on a grid of record sizes. Both sides are non-decreasing, so an interval is
proven if the total at its right end is at most the cap at its left end; otherwise it is halved. The check covers 0 and
sizes from 10⁻⁶⁰ to 10¹⁰⁰, which includes every record that can be summed, or sizes up to the column's largest value.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from slowscale.core.errors import CapError, ParameterError
from slowscale.core.parameters import Array
from slowscale.policy import Policy

# A total may exceed a cap by this share, because floats are rounded: 250 charges of 0.1 do not add up to exactly 25.
TOLERANCE = 1e-9
GRID_START, GRID_END, PER_OCTAVE = 1e-60, 1e100, 4
GRID_POINTS = int(math.log2(GRID_END / GRID_START) * PER_OCTAVE) + 1
GRID = np.concatenate([[0.0], np.geomspace(GRID_START, GRID_END, GRID_POINTS)])
HORIZON = 1e30  # sizes above it, and below its inverse, are checked but not mentioned in errors
# The most evaluations of a policy before a charge is refused as too close to the cap to decide.
MOST_EVALUATIONS = 1 << 22


Shapes = dict[Policy, float]  # a sum of policies, each with its coefficient


@dataclass(frozen=True)
class Total:
    """What has been spent through one column: the coefficient of each shape, and the losses on the grid."""

    shapes: Shapes
    losses: Array

    @staticmethod
    def zero() -> "Total":
        """Return the empty total."""
        return Total({}, np.zeros_like(GRID))

    def __add__(self, policy: Policy) -> "Total":
        return self.plus([policy])

    def plus(self, policies: Iterable[Policy]) -> "Total":
        """Return the total with further policies added."""
        more: Shapes = {}
        finite = True
        with np.errstate(all="ignore"):
            for policy in policies:
                for shape, times in policy.shapes().items():
                    finite &= math.isfinite(times) and (times != 0 or policy(1.0) == 0)
                    more[shape] = more.get(shape, 0.0) + times
            losses = _loss_at(more, GRID)
        if not finite or np.isnan(losses).any():
            raise ParameterError(
                "the policy",
                "has parameters that are too extreme for the account: its losses are not finite numbers",
                code="out-of-range",
                remedy="choose parameters nearer to 1",
            )
        return self.joined(Total(more, losses))

    @staticmethod
    def largest(totals: "list[Total]") -> "Total":
        """Return a total that is at least as large as each of several totals."""
        shapes: Shapes = {}
        for total in totals:
            for shape, times in total.shapes.items():
                shapes[shape] = max(shapes.get(shape, 0.0), times)
        return Total(shapes, np.max([total.losses for total in totals], axis=0))

    def joined(self, other: "Total") -> "Total":
        """Return the sum of two totals."""
        shapes = dict(self.shapes)
        for shape, times in other.shapes.items():
            shapes[shape] = shapes.get(shape, 0.0) + times
        return Total(shapes, self.losses + other.losses)


def check(column: str, spent: Total, cap: Policy, largest: float = math.inf) -> None:
    """Raise a `CapError` unless the total is at most the cap at every record size up to the largest."""
    with np.errstate(over="ignore"):  # a loss beyond the largest float is infinite
        grid, losses = GRID, spent.losses
        if largest < GRID_END:
            inside = largest > GRID
            grid = np.append(GRID[inside], largest)
            losses = np.append(losses[inside], _loss_at(spent.shapes, grid[-1:]))
        allowed = cap(grid) * (1 + TOLERANCE)
        if (losses[:2] <= allowed[:2]).all() and (losses[2:] <= allowed[1:-1]).all():
            return  # proven on the grid without halving
        left, right = _residuals(spent, cap)
        covered = _covered(left, right)
        if not left or not covered[0]:
            return
        try:
            _prove(column, left, right, spent, cap, grid)
        except CapError as refusal:
            if not refusal.close or covered == (left, right):
                raise
            try:
                _prove(column, *covered, spent, cap, grid)
            except CapError:
                raise refusal from None


def check_at(column: str, spent: float, cap: Policy, influence: float) -> None:
    """Raise a `CapError` unless a loss is at most the cap at one record size."""
    allowed = cap(influence)
    if spent > allowed * (1 + TOLERANCE):
        at = (influence, influence)
        raise CapError(column=column, influence=influence, spent=spent, cap=allowed, ranges=(at,))


def _residuals(spent: Total, cap: Policy) -> tuple[Shapes, Shapes]:
    """Return what remains on both sides when the shapes that they share are subtracted."""
    left, right = {}, {}
    allowed = {shape: times * (1 + TOLERANCE) for shape, times in cap.shapes().items()}
    for shape in {**spent.shapes, **allowed}:
        rest = spent.shapes.get(shape, 0.0) - allowed.get(shape, 0.0)
        if rest > 0:
            left[shape] = rest
        elif rest < 0:
            right[shape] = -rest
    return left, right


def _covered(left: Shapes, right: Shapes) -> tuple[Shapes, Shapes]:
    """Return both sides without the policies on the left that the right covers by their upper bounds.

    The remaining sides prove as much: a policy that is nowhere larger than its bound may be replaced by the bound, and
    the bound subtracted on both sides. A tight policy may equal its closed form at some sizes, such as very large ones,
    and there no values could show that a cap of closed form is not exceeded.
    """
    left, right = dict(left), dict(right)
    for shape, times in list(left.items()):
        if shape.upper is None:
            continue
        bound = shape.upper.shapes()
        part = min([times, *(right.get(one, 0.0) / each for one, each in bound.items() if each > 0)])
        if part <= 0:
            continue
        left[shape] = times - part
        for one, each in bound.items():
            right[one] = max(right.get(one, 0.0) - part * each, 0.0)
    return {shape: rest for shape, rest in left.items() if rest > 0}, right


def _loss_at(side: Shapes, at: Array) -> Array:
    total = np.zeros_like(at)
    for shape, times in side.items():
        total += times * shape._rising_loss(at)
    return total


def _prove(column: str, left: Shapes, right: Shapes, spent: Total, cap: Policy, grid: Array) -> None:
    """Halve intervals until each is proven. If the cap is exceeded, find the smallest size where it is, and raise."""
    lows, highs = _loss_at(left, grid), _loss_at(right, grid)
    worst = float(np.min(grid[lows > highs], initial=math.inf))
    starts, ends, at_starts, at_ends = grid[1:-1], grid[2:], highs[1:-1], lows[2:]
    evaluations_left = MOST_EVALUATIONS // (len(left) + len(right))
    while True:
        unproven = ~(at_ends <= at_starts) & (starts < worst)
        starts, ends, at_starts, at_ends = starts[unproven], ends[unproven], at_starts[unproven], at_ends[unproven]
        evaluations_left -= starts.size
        middles = np.sqrt(starts) * np.sqrt(ends)
        if not starts.size or evaluations_left < 0 or not (ends > starts * (1 + 1e-9)).any():
            break
        low, high = _loss_at(left, middles), _loss_at(right, middles)
        worst = float(np.min(middles[low > high], initial=worst))
        starts, ends = np.concatenate([starts, middles]), np.concatenate([middles, ends])
        at_starts, at_ends = np.concatenate([at_starts, high]), np.concatenate([low, at_ends])
    if math.isinf(worst):
        if not starts.size:
            return
        size, ranges = float(starts.min()), [(0.0, math.inf)]
    else:
        ranges = _ranges(left, right, lows > highs, worst, grid)
        examples = [_example(left, right, *ends, cap) for ends in ranges]
        size = min(examples, key=lambda size: float(_distance(cap, size)))
    loss = float(_loss_at(spent.shapes, np.array([size]))[0])
    raise CapError(
        column=column, influence=size, spent=loss, cap=cap(size), ranges=tuple(ranges), close=math.isinf(worst)
    )


def _ranges(left: Shapes, right: Shapes, exceeded: Any, worst: float, grid: Array) -> list[tuple[float, float]]:
    """Return the ranges of sizes in which a cap is exceeded, from the grid points and the smallest size where it is."""

    def edge(inside: float, outside: float) -> float:
        while abs(math.log(outside / inside)) > 1e-4:
            middle = math.sqrt(inside) * math.sqrt(outside)
            inside, outside = (middle, outside) if _exceeds(left, right, middle) else (inside, middle)
        return inside

    places = np.flatnonzero(exceeded[1:]) + 1
    found = []
    if not places.size or worst < grid[places[0] - 1]:  # between two points of the grid, or at 0 only
        found.append((worst, worst))
    for run in np.split(places, np.flatnonzero(np.diff(places) > 1) + 1) if places.size else ():
        low, high = float(grid[run[0]]), float(grid[run[-1]])
        low = low if run[0] == 1 else edge(low, float(grid[run[0] - 1]))
        high = high if run[-1] == grid.size - 1 else edge(high, float(grid[run[-1] + 1]))
        # No real record is beyond the horizon, so a range that reaches it is reported as unbounded.
        found.append((0.0 if low < 1 / HORIZON else low, math.inf if high > HORIZON else high))
    return found


def _distance(cap: Policy, size: Any) -> Any:
    """Return |ln cap| at some sizes: how far the cap is from 1. It is infinite beyond the horizon."""
    with np.errstate(all="ignore"):
        caps = cap(size)
        relevant = (caps > 0) & np.isfinite(caps) & (size >= 1 / HORIZON) & (size <= HORIZON)
        return np.where(relevant, np.abs(np.log(caps)), math.inf)


def _example(left: Shapes, right: Shapes, low: float, high: float, cap: Policy) -> float:
    """Return an example from a range of sizes that exceed a cap: if possible a round one at which the cap is near 1."""
    first, last = max(low, 1 / HORIZON), min(high, HORIZON)
    sizes = GRID[np.logical_and(first <= GRID, last >= GRID)]
    if low == high or not sizes.size:
        return low if low > 0 else high
    far = _distance(cap, sizes)
    nearest = sizes[far <= far.min() + 1e-9]
    size = float(nearest[np.abs(np.log(nearest)).argmin()])  # where the cap is constant, take the size nearest to 1
    # At the ends of the range the excess would be too small to show in rounded numbers.
    start = size
    size = max(size, 2 * low) if 2 * low <= high else size
    size = min(size, high / 2) if high / 2 >= low else size
    for candidate in (float(f"{size:.0e}"), float(f"{size:.1e}"), size):
        if low <= candidate <= high and _exceeds(left, right, candidate):
            return candidate
    return start  # a point of the grid in the range


def _exceeds(left: Shapes, right: Shapes, size: float) -> bool:
    at = np.array([size])
    return bool((_loss_at(left, at) > _loss_at(right, at))[0])


def describe_change(column: str, old: Policy, new: Policy, largest: float = math.inf) -> str:
    """Return as text where a new cap is above the old one, and where it is below, for sizes up to the largest."""

    def excess(policy: Policy, other: Policy) -> CapError | None:
        """Return where a policy is above another one, or None."""
        try:
            check(column, Total.zero() + policy, other, largest)
        except CapError as error:
            return error
        return None

    lower, higher = excess(old, new), excess(new, old)
    if lower is None and higher is None:
        return "The new cap is the same as the old one"
    if lower is None:
        return "The new cap is nowhere lower than the old one"
    if higher is None:
        return "The new cap is LOWER than the old one, and nowhere higher"
    return f"The new cap is LOWER than the old one {lower.sizes}, and higher {higher.sizes}"
