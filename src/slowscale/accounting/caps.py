"""Caps: a charge is refused if the total would exceed a policy fixed beforehand, at any record size.

A cap chosen beforehand, with a ledger that refuses what would exceed it, is a privacy filter: mechanisms may then be
chosen adaptively, in view of earlier releases, and the total is still the cap.

The check is a proof, not a sample of points. Totals of one shape (all Gaussians, all fourth roots…) are compared by
their coefficients. What remains is compared on a grid of record sizes: both sides never decrease, so if the total at
the right end of an interval is at most the cap at its left end, the interval is proven; else it is halved. Sizes from
10⁻⁶⁰ to 10¹⁰⁰ are covered, and 0: no record that can be summed has another.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from slowscale.errors import CapError
from slowscale.parameters import Array
from slowscale.policy import ConstantPolicy, LogPolicy, Policy, RootPolicy, SumPolicy, TimesPolicy, UnitSplittingPolicy

# A total may exceed a cap by this share: parameters are floats, so that 250 charges of 0.1 are not quite 25.
TOLERANCE = 1e-9
SMALLEST, LARGEST, PER_OCTAVE = 1e-60, 1e100, 4
GRID = np.concatenate([[0.0], np.geomspace(SMALLEST, LARGEST, int(math.log2(LARGEST / SMALLEST) * PER_OCTAVE) + 1)])
# The most intervals that are looked at before a charge is refused as too close to the cap to tell.
MOST = 1 << 20


@dataclass(frozen=True)
class Total:
    """What has been spent through one column: coefficients by shape, and the losses on the grid."""

    shapes: dict[Policy, float]
    losses: Array

    @staticmethod
    def zero() -> "Total":
        """Return nothing spent."""
        return Total({}, np.zeros_like(GRID))

    def __add__(self, policy: Policy) -> "Total":
        return self.plus([policy])

    def plus(self, policies: Iterable[Policy]) -> "Total":
        """Return the total with further policies."""
        more: dict[Policy, float] = {}
        for policy in policies:
            for shape, times in coefficients(policy).items():
                more[shape] = more.get(shape, 0.0) + times
        return self.joined(Total(more, _value(more, GRID)))

    def joined(self, other: "Total") -> "Total":
        """Return the sum of two totals."""
        shapes = dict(self.shapes)
        for shape, times in other.shapes.items():
            shapes[shape] = shapes.get(shape, 0.0) + times
        return Total(shapes, self.losses + other.losses)


def coefficients(policy: Policy) -> dict[Policy, float]:
    """Return a policy as a sum of shapes with coefficients, so that policies of one shape can be compared."""
    if isinstance(policy, SumPolicy):
        found: dict[Policy, float] = {}
        for term in policy.terms:
            for shape, times in coefficients(term).items():
                found[shape] = found.get(shape, 0.0) + times
        return found
    if isinstance(policy, TimesPolicy):
        return {shape: times * policy.count for shape, times in coefficients(policy.policy).items()}
    if isinstance(policy, ConstantPolicy):
        return {replace(policy, loss=1.0): policy.loss}
    if isinstance(policy, RootPolicy | LogPolicy):
        return {replace(policy, sigma=1.0): policy.sigma**-2}
    if isinstance(policy, UnitSplittingPolicy):
        return {replace(policy, sigma=policy.threshold): 2 * policy.rho}
    return {policy: 1.0}


def check(column: str, spent: Total, cap: Policy) -> None:
    """Raise a `CapError` unless what is spent is at most the cap at every record size."""
    allowed = cap(GRID) * (1 + TOLERANCE)
    if (spent.losses[:2] <= allowed[:2]).all() and (spent.losses[2:] <= allowed[1:-1]).all():
        return  # proven on the grid as it is
    left, right = _residuals(spent, cap)
    if not left:
        return
    _prove(column, left, right, spent, cap)


def check_at(column: str, spent: float, cap: Policy, influence: float) -> None:
    """Raise a `CapError` unless a loss is at most the cap at one record size."""
    allowed = cap(influence)
    if spent > allowed * (1 + TOLERANCE):
        raise CapError(column, influence, spent, allowed)


def _residuals(spent: Total, cap: Policy) -> tuple[dict[Policy, float], dict[Policy, float]]:
    """Return what is left on both sides once equal shapes are taken away."""
    left, right = {}, {}
    allowed = {shape: times * (1 + TOLERANCE) for shape, times in coefficients(cap).items()}
    for shape in {**spent.shapes, **allowed}:
        rest = spent.shapes.get(shape, 0.0) - allowed.get(shape, 0.0)
        if rest > 0:
            left[shape] = rest
        elif rest < 0:
            right[shape] = -rest
    return left, right


def _value(side: dict[Policy, float], at: Array) -> Array:
    total = np.zeros_like(at)
    for shape, times in side.items():
        total += times * shape(at)
    return total


def _prove(column: str, left: dict[Policy, float], right: dict[Policy, float], spent: Total, cap: Policy) -> None:
    points = GRID
    lows, highs = _value(left, points), _value(right, points)
    _refuse_where(column, points, lows > highs, left, right, spent, cap)
    starts, ends = points[1:-1], points[2:]
    at_ends, at_starts = lows[2:], highs[1:-1]
    looked = 0
    while True:
        open_ = ~(at_ends <= at_starts)
        starts, ends = starts[open_], ends[open_]
        if not starts.size:
            return
        looked += starts.size
        middles = np.sqrt(starts) * np.sqrt(ends)
        if looked > MOST or not ((middles > starts) & (middles < ends)).all():
            size = float(starts[0])
            raise CapError(column, size, _spent(spent, size), cap(size), close=True)
        low, high = _value(left, middles), _value(right, middles)
        _refuse_where(column, middles, low > high, left, right, spent, cap)
        at_starts_old, at_ends_old = _value(right, starts), _value(left, ends)
        starts, ends = np.concatenate([starts, middles]), np.concatenate([middles, ends])
        at_ends, at_starts = np.concatenate([low, at_ends_old]), np.concatenate([at_starts_old, high])


def _refuse_where(
    column: str,
    points: Array,
    exceeded: Any,
    left: dict[Policy, float],
    right: dict[Policy, float],
    spent: Total,
    cap: Policy,
) -> None:
    """Raise where the cap is exceeded, naming the smallest record size at which it is."""
    if not exceeded.any():
        return
    worst = float(np.sort(points[exceeded])[0])
    below = GRID[worst > GRID]
    fine = float(below[-1]) if below.size else worst
    for _ in range(60):
        middle = math.sqrt(fine * worst) if fine > 0 else worst / 2
        if not fine < middle < worst:
            break
        at = np.array([middle])
        if _value(left, at)[0] > _value(right, at)[0]:
            worst = middle
        else:
            fine = middle
        if worst - fine <= 1e-9 * worst or worst < SMALLEST:
            break
    if 0 < worst <= SMALLEST:  # from the smallest sizes on: a size that people know says more
        raise CapError(column, worst, _spent(spent, 1.0), cap(1.0), smallest=True)
    raise CapError(column, worst, _spent(spent, worst), cap(worst))


def _spent(spent: Total, size: float) -> float:
    return float(_value(spent.shapes, np.array([size]))[0])
