"""The tight policy of additive noise: the smallest PRzCDP policy that it has, certified from above.

The paper bounds the PRzCDP loss of additive noise through its pure loss P, by tanh(P/2)·P. The best possible policy is
the supremum over α > 1 of d_α/α, where d_α is the Rényi divergence between the noise and its shift by Δ. It has no
closed form. `slowscale.noise` computes certified upper bounds on it; this policy reads them from a curve. A description
of the policy has the knots of the curve, so that a policy that was charged stays the same in later versions.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from slowscale.core.errors import ParameterError, ParameterTypeError, Shown
from slowscale.core.parameters import Array, lazy, real
from slowscale.noise.divergence import FAR_TAIL, TightLoss, far_end, tight_loss
from slowscale.noise.stored_curves import closed_bound, tight_curve
from slowscale.noise.symmetric import SymmetricNoise
from slowscale.noise.tight_curve import (
    FIRST_INFLUENCE,
    LAST_INFLUENCE,
    MOST_KNOTS,
    SHORTEST_STEP,
    TightCurve,
    merged,
    prove,
)
from slowscale.policy.base import ZCDP, Policy
from slowscale.policy.tree import INFLUENCE, Formula, LargestRise, LazyNumbers, Min, Quotient, Tabulated, contains
from slowscale.policy.writing import number

# At how many sizes the closed form is compared with what follows from the noise.
PROBED = 500
# How many sizes are compared to find where the curve is below the closed form.
COMPARED = 20_000
# The range of tables for engines, in scales of the noise, if a policy has no short formula. Beyond the curve they may
# lie above it by one step in ln(size) and by a margin.
TABLE_RANGE, WIDE_STEP, WIDE_MARGIN = (1e-30, 1e60), 2e-3, 1e-3
# A tail that reaches beyond this many scales cannot be integrated in floats; the closed form is used instead.
LONGEST_TAIL = 1e200
# Knots that are read must be in these ranges. That of the sizes is a little wider than that of computed knots.
KNOT_SIZES, LARGEST_LOGARITHM = (math.log(FIRST_INFLUENCE) - 1, math.log(LAST_INFLUENCE) + 1), 700.0


@dataclass(frozen=True)
class TightPolicy(Policy):
    """The tight PRzCDP policy of additive noise, at most the closed form.

    Parameters
    ----------
    noise
        The noise.
    closed
        Its PRzCDP policy in closed form, which is used where the curve is not better.
    precision
        By which share the policy may lie above the smallest possible one.
    knots
        The curve: pairs of natural logarithms of a size, in units of the noise's scale, and of the loss there; no pairs
        if the policy is the closed form. None: the curve that this version computes, when it is first needed.
    """

    kind = "tight"

    noise: SymmetricNoise
    closed: Policy
    precision: float = real(at_least=0.002, at_most=0.2, typical=(0.01, 0.1), default=0.01)
    knots: tuple[tuple[float, float], ...] | None = field(default=None, hash=False)

    def _check(self) -> None:
        if self.knots is not None:
            self._set("knots", _checked_knots(self.knots))
        if not isinstance(self.noise, SymmetricNoise):
            raise ParameterTypeError("noise", allowed="a noise distribution", given=self.noise)
        if not isinstance(self.closed, Policy) or self.closed.notion != ZCDP:
            raise ParameterTypeError("closed", allowed="a PRzCDP policy", given=self.closed)
        with np.errstate(over="ignore", under="ignore"):
            probes = self.noise._scale * np.geomspace(FIRST_INFLUENCE, LAST_INFLUENCE, PROBED)
            probes = probes[(probes > 0) & np.isfinite(probes)]
            losses, expected = self.closed._loss(probes), closed_bound(self.noise, probes)
        if not np.allclose(losses, expected, rtol=1e-6, atol=1e-300):
            raise ParameterError("closed", allowed="the closed form of this noise", given=self.closed)

    def __eq__(self, other: object) -> bool:
        """Whether noise, closed form, precision and knots are equal. Knots that one of the two lacks are computed."""
        if not isinstance(other, TightPolicy):
            return NotImplemented
        mine, its = ((one.noise, one.closed, one.precision) for one in (self, other))
        return mine == its and (self.knots == other.knots or self._all_knots == other._all_knots)

    @property
    def _all_knots(self) -> tuple[tuple[float, float], ...]:
        """The knots, which are computed if they were not given."""
        if self.knots is not None:
            return self.knots
        return () if self._curve is None else self._curve.knots

    def to_dict(self) -> dict[str, Any]:
        """Return a description with all knots, from which the policy is read without computing a curve."""
        return {**super().to_dict(), "knots": [list(knot) for knot in self._all_knots]}

    def parameters(self) -> Policy:
        """Return the policy without its knots."""
        return replace(self, knots=None)

    def is_near(self, other: Policy) -> bool:
        """Return whether another tight policy of this noise differs nowhere by more than the precision of this one.

        Between knots of either one, both curves are straight lines on logarithmic axes, so that they differ most at a
        knot. Further sizes are compared where only one of the two has a curve.
        """
        if not isinstance(other, TightPolicy) or (self.noise, self.closed) != (other.noise, other.closed):
            return False
        curves = [curve for curve in (self._curve, other._curve) if curve is not None]
        logs = np.concatenate([np.linspace(*KNOT_SIZES, COMPARED), *(curve.log_sizes for curve in curves)])
        # Just below and above each place, because a curve ends at its last knot.
        sizes = np.exp(np.concatenate([logs - 1e-9, logs + 1e-9])) * self.noise._scale
        ratios = np.abs(np.log(self._loss(sizes) / other._loss(sizes)))
        return bool((ratios <= math.log1p(self.precision)).all())

    @property
    def upper(self) -> Policy:
        """The closed form, which is nowhere smaller."""
        return self.closed

    @lazy
    def _has_curve(self) -> bool:
        """Whether floats can represent the tails of the noise, or knots were given."""
        return far_end(self.noise._standard()) < LONGEST_TAIL if self.knots is None else bool(self.knots)

    @lazy
    def _curve(self) -> TightCurve | None:
        """The curve in units of the noise's scale, or None if there is none."""
        if not self._has_curve:
            return None
        if self.knots is not None:
            return TightCurve.of(self.knots, self.precision)
        return tight_curve(self.noise._standard(), self.precision)

    def _knots(self) -> TightCurve:
        assert self._curve is not None
        return self._curve

    @lazy
    def _better(self) -> tuple[float, float]:
        """The influences between which the curve is known to be below the closed form: the longest such range."""
        curve = self._knots()
        sizes = np.exp(np.linspace(curve.log_sizes[0], curve.log_sizes[-1], COMPARED)) * self.noise._scale
        sizes[-1] *= 1 - 1e-9  # at the end itself, rounding may lead beyond the curve
        # Both rise, so the curve is below between two points if its right end is below the closed form at the left one.
        worse = np.flatnonzero(curve(sizes[1:] / self.noise._scale) > self.closed._loss(sizes[:-1]))
        ends = np.concatenate([[-1], worse, [sizes.size - 1]])
        longest = int(np.diff(ends).argmax())
        return float(sizes[ends[longest] + 1]), float(sizes[ends[longest + 1]])

    def _loss(self, influence: Array) -> Array:
        if self._curve is None:
            return self.closed._loss(influence)
        losses = self._curve(influence / self.noise._scale)
        low, high = self._better
        rest = ~((influence > low) & (influence < high))
        if rest.any():
            losses[rest] = np.minimum(losses[rest], self.closed._loss(influence[rest]))
        return losses

    def formula(self, x: Formula = INFLUENCE) -> Formula:
        """Return P(x) as a tree."""
        closed = self.closed.formula(x)
        if not self._has_curve:
            return closed
        name = f"{self.noise.words}, certified within {number(100 * self.precision)} %"
        ratio = x if self.noise._scale == 1 else Quotient(x, self.noise._scale)
        if contains(closed, LargestRise):  # as an expression of an engine, this would be very long
            return Tabulated(ratio, *self._lazily(self._wide_knots), name)
        table = Tabulated(ratio, *self._lazily(lambda: (self._knots().log_sizes, self._knots().log_losses)), name)
        return Min((table, closed))

    def _lazily(self, knots: Callable[[], tuple[Array, Array]]) -> tuple[LazyNumbers, LazyNumbers]:
        return LazyNumbers(lambda: knots()[0].tolist()), LazyNumbers(lambda: knots()[1].tolist())

    def _wide_knots(self) -> tuple[Array, Array]:
        """Return knots of the whole policy: of the curve, and few further ones where the closed form is smaller."""
        curve, scale = self._knots(), self.noise._scale
        low, high = (math.log(end / scale) for end in self._better)
        inside = curve.log_sizes[(curve.log_sizes > low) & (curve.log_sizes < high)]
        middle = np.concatenate([[low], inside, [high]])
        known = np.log(self._loss(np.exp(middle) * scale))
        # Below the curve, the closed form grows with the square of the size, up to the loss at the first knot.
        closed = self.closed._loss(np.array([TABLE_RANGE[0], math.exp(low)]) * scale)
        below = np.array([math.log(TABLE_RANGE[0]), low + (known[0] - math.log(closed[1])) / 2])
        small = np.array([math.log(closed[0]), known[0]])
        above, large = self._raised(high + 1e-9, math.log(TABLE_RANGE[1]))
        return np.concatenate([below, middle, above]), np.maximum.accumulate(np.concatenate([small, known, large]))

    def _raised(self, start: float, end: float) -> tuple[Array, Array]:
        """Return few knots above the policy between two sizes, which are given by their logarithms."""
        logs = np.linspace(start, end, math.ceil((end - start) / WIDE_STEP) + 1)
        losses = np.log(self._loss(np.exp(logs) * self.noise._scale))
        return merged(logs, np.append(losses[1:], losses[-1]), WIDE_MARGIN)

    def _group_anywhere(self, values: Array) -> float:
        return min(super()._group_anywhere(values), self.closed._group_anywhere(values))

    def _group_in_cell(self, values: Array) -> float:
        return min(super()._group_in_cell(values), self.closed._group_in_cell(values))

    def value(self, influence: float) -> float:
        """Return the loss of one record size, computed for it alone, with a tenth of the curve's error or less."""
        if influence == 0:
            return 0.0
        closed = self.closed(influence)
        ratio = influence / self.noise._scale
        if not (self._has_curve and FIRST_INFLUENCE <= ratio <= LAST_INFLUENCE):
            return closed
        standard = self.noise._standard()
        return min(tight_loss(standard, ratio, last=far_end(standard)).upper, closed)

    def certificate(self) -> "Certificate":
        """Return what proves the policy: the bounds, the orders and the influences they were computed at."""
        if self._curve is None:
            raise ParameterError(
                "the noise",
                f"exceeds {LONGEST_TAIL:g} times its scale with probability {FAR_TAIL:g}, too far for a curve",
                code="unsupported",
                remedy="use the closed form, which is the policy and needs no certificate",
            )
        return Certificate(self.noise, self._curve)


def _checked_knots(knots: Any) -> tuple[tuple[float, float], ...]:
    """Return knots as a tuple of pairs of floats, or raise."""
    many = isinstance(knots, tuple | list)
    good = many and len(knots) != 1 and len(knots) <= MOST_KNOTS and all(map(_is_knot, knots))
    if good and knots:
        sizes, losses = np.array(knots, float).T
        apart = (np.diff(sizes) >= SHORTEST_STEP / 2).all() and (np.diff(losses) >= 0).all()
        good = apart and sizes[0] >= KNOT_SIZES[0] and sizes[-1] <= KNOT_SIZES[1]
    if not good:
        raise ParameterError(
            "knots",
            allowed=(
                f"none, or 2 to {MOST_KNOTS:,} pairs of the logarithms of a size and of the loss there, in increasing "
                "order"
            ),
            given=Shown(f"{len(knots):,} others" if many else type(knots).__name__),
            remedy="use the description as to_dict returned it",
        )
    return tuple((float(size), float(loss)) for size, loss in knots)


def _is_knot(knot: Any) -> bool:
    """Whether a value is a pair of numbers, which are logarithms of floats."""
    pair = isinstance(knot, tuple | list) and len(knot) == 2
    return pair and all(type(number) in (int, float) and abs(number) <= LARGEST_LOGARITHM for number in knot)


@dataclass(frozen=True)
class Certificate:
    """The proof of a tight policy: certified bounds at many influences, and the curve above them."""

    noise: SymmetricNoise
    curve: TightCurve

    def verify(self) -> bool:
        """Prove the curve anew from its knots: compute bounds at many influences. This takes about a second."""
        return bool(prove(self.noise._standard(), self.curve))

    @lazy
    def _bounds(self) -> tuple[TightLoss, ...]:
        """The bounds from which the curve was made or, if it was read from a file without them, a new proof."""
        bounds = self.curve.bounds or prove(self.noise._standard(), self.curve)
        if not bounds:
            problem = "has no proof that it lies above the tight loss"
            raise ParameterError("the curve", problem, code="unproven", remedy="do not rely on the policy")
        return bounds

    def table(self) -> list[dict[str, Any]]:
        """Return one row per influence: the bounds on the loss, the best order, and the size of the grids."""
        scale = self.noise._scale
        return [
            {
                "influence": bound.influence * scale,
                "upper": bound.upper,
                "lower": bound.lower,
                "order": bound.order,
                "cells": bound.cells,
                "orders": bound.orders,
            }
            for bound in sorted(self._bounds, key=lambda bound: bound.influence)
        ]

    def __str__(self) -> str:
        rows = self.table()
        wide = max(row["upper"] / row["lower"] - 1 for row in rows)
        lines = [
            f"Tight policy of {self.noise}",
            f"{len(rows):,} influences from {rows[0]['influence']:.4g} to {rows[-1]['influence']:.4g}",
            f"{self.curve.log_sizes.size} knots of the curve, at most {self.curve.precision:.2%} above the tight loss",
            f"upper and lower bounds are at most {wide:.2%} apart; arithmetic: 64-bit floats, errors bounded",
            f"{'influence':>12} {'lower bound':>14} {'upper bound':>14} {'order α':>12} {'cells':>7} {'orders':>7}",
        ]
        for row in rows[:: max(1, len(rows) // 20)]:
            lines.append(
                f"{row['influence']:>12.5g} {row['lower']:>14.8g} {row['upper']:>14.8g} {row['order']:>12.6g} "
                f"{row['cells']:>7} {row['orders']:>7}"
            )
        return "\n".join(lines)
