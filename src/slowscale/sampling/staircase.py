"""An exact sampler of the density exp(−P(x)), x > 0, for a policy P that increases: rejection under a staircase.

The staircase has steps on which P grows by at most 1/8, so that a constant on each step lies above the density, and
hardly wastes candidates. Beyond the last step it is a power of x. This needs nothing of P but that it increases, and
that its elasticity x·P'(x) increases between kinks, as that of powers and polylogarithms does. Beyond the last step
there may still be kinks: a curve through points bends downwards there, so that it is the least of its powers.
"""

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from slowscale.core.errors import ParameterError, SlowscaleError
from slowscale.core.families import PointsFamily, PolylogFamily, PowerFamily
from slowscale.core.parameters import Array, lazy
from slowscale.sampling.balls import Ball, lift_ball
from slowscale.sampling.samplers import Lift, Number, Sampler, exact_polylog_rise

Term = PowerFamily | PolylogFamily | PointsFamily
SHARES = 2**53  # the probabilities of the steps are multiples of 1/SHARES
RISE = 0.125  # of P, on one step
TALLEST = (8.0, 64.0, 512.0, 4096.0)  # up to which P there are steps: as few as possible
NEGLIGIBLE_TAIL = 0.005  # the share of the proposals beyond the steps that need not be smaller
SLACK = 1e-7  # by how much the log of the staircase lies above the log of the density, at least


@dataclass(frozen=True)
class Staircase:
    """Steps between edges, and a tail (x/last edge)^-power beyond the last one, above the density exp(−P).

    The proposal picks step j with probability shares[j]/SHARES, so that the first 64 bits of a uniform decide the
    choice exactly; the rest of that uniform places the candidate on the step. The last share is the tail's. `height` is
    the log of a constant that raises the proposal density above exp(−P), by at least SLACK everywhere.
    """

    edges: tuple[float, ...]
    power: float
    shares: tuple[int, ...]
    height: float
    acceptance: float


def build_staircase(
    drop: Callable[[Array], Array], elasticity: Callable[[Array], Array], kinks: tuple[float, ...], log_mass: float
) -> Staircase:
    """Return a staircase above exp(−drop), for a `drop` that increases from 0 and has these kinks.

    `elasticity` is x·drop'(x), with the derivative from the right; it must increase between kinks. `log_mass` is the
    log of the integral of exp(−drop). Only the acceptance rate depends on it.
    """
    for tallest in TALLEST:
        edges = _edges(drop, np.array(kinks), tallest)
        steps = np.exp(-drop(edges[:-1])) * np.diff(edges)
        # The least elasticity from an edge on: at the edge itself, or at a later kink.
        powers = np.minimum.accumulate(elasticity(edges)[::-1])[::-1] * (1 - 1e-9)
        with np.errstate(divide="ignore", invalid="ignore"):
            tails = np.where(powers > 1.01, np.exp(-drop(edges)) * edges / (powers - 1), math.inf)
        before = np.concatenate([[0.0], np.cumsum(steps)])
        if (tails <= NEGLIGIBLE_TAIL * before).any():
            break
    whole = before + tails
    if not math.isfinite(whole.min()):
        remedy = "let the loss grow faster"
        raise ParameterError("the noise of this policy", "is too large to be released", code="too-large", remedy=remedy)
    last = max(int(np.argmax(whole <= 1.01 * whole.min())), 1)
    masses = np.append(steps[:last], tails[last])
    shares = _shares(masses)
    height = float(np.max(np.log(masses) - np.log(np.array(shares, float) / SHARES))) + 2 * SLACK
    acceptance = min(math.exp(log_mass - math.log(masses.sum())), 0.999)
    return Staircase(tuple(edges[: last + 1].tolist()), float(powers[last]), shares, height, acceptance)


def _edges(drop: Callable[[Array], Array], kinks: Array, tallest: float) -> Array:
    """Return 0, the kinks, and the sizes at which P reaches the multiples of RISE."""
    levels = np.arange(RISE, tallest, RISE)
    low, high = np.full(levels.shape, -700.0), np.full(levels.shape, 650.0)
    with np.errstate(over="ignore"):
        for _ in range(60):
            middle = (low + high) / 2
            short = drop(np.exp(middle)) < levels
            low, high = np.where(short, middle, low), np.where(short, high, middle)
    found = np.exp(high[high < 649])
    return np.unique(np.concatenate([[0.0], kinks, found]))


def _shares(masses: Array) -> tuple[int, ...]:
    """Return shares proportional to the masses, rounded up; the largest gives what the rounding took."""
    parts = [math.ceil(mass) for mass in (masses / masses.sum() * SHARES).tolist()]
    parts[parts.index(max(parts))] += SHARES - sum(parts)
    if not all(part > 0 for part in parts):
        remedy = "please report this, with the policy"
        raise SlowscaleError("no sampler can be built for this policy", code="internal", remedy=remedy)
    return tuple(parts)


@dataclass(frozen=True)
class StaircaseSampler(Sampler):
    """A variable x > 0 with density proportional to exp(−P(x)), for P = Σ count·term."""

    terms: tuple[tuple[int, Term], ...]
    staircase: Staircase
    uniforms = 2

    @property
    def acceptance(self) -> float:  # type: ignore[override]
        """The approximate share of candidates that are accepted."""
        return self.staircase.acceptance

    @lazy
    def _starts(self) -> list[int]:
        """The shares before each step."""
        return [0, *np.cumsum(np.array(self.staircase.shares, dtype=object)).tolist()[:-1]]

    @lazy
    def _thresholds(self) -> list[int]:
        """The first 64 bits of a uniform from which on a step is chosen, for each but the first."""
        return [start << 11 for start in self._starts[1:]]

    def _step(self, j: int, lift: Lift) -> tuple[Number, Number, Number]:
        """Return for a step: 1/probability, the width (0 for the tail), and the log of the envelope where it starts."""
        s = self.staircase
        tail = j == len(s.edges) - 1
        probability = lift(s.shares[j] / SHARES)
        scale = lift(s.edges[j]) / (lift(s.power) - 1.0) if tail else lift(s.edges[j + 1]) - lift(s.edges[j])
        top = lift(s.height) + (probability / scale).log()
        return lift(1.0) / probability, lift(0.0) if tail else scale, top

    def _powers(self, j: int, lift: Lift) -> list[tuple[Number, Number]]:
        """Return on a step, for each term that is a power, its exponent and the log of its coefficient."""
        return [_power(count, term, self.staircase.edges[j], lift) for count, term in self.terms if _is_power(term)]

    def _further_powers(self, lift: Lift) -> list[list[tuple[Number, Number]]]:
        """Return for each term that is a power all powers that it follows beyond the last edge, one after the other."""
        last = self.staircase.edges[-1]
        return [
            [_power(count, term, at, lift) for at in (last, *(end for end in _ends(term) if end > last))]
            for count, term in self.terms
            if _is_power(term)
        ]

    @lazy
    def _tables(self) -> tuple[list[Ball], list[list[Ball]]]:
        """The numbers of all steps as arrays: what `_step` returns, and what `_powers` returns for each term."""
        with np.errstate(all="ignore"):
            places = range(len(self.staircase.edges))
            steps = [self._step(j, lift_ball) for j in places]
            powers = [self._powers(j, lift_ball) for j in places]
        terms = range(len(powers[0]))
        return (
            [_stacked([step[i] for step in steps]) for i in range(3)],
            [[_stacked([power[k][i] for power in powers]) for i in (0, 1)] for k in terms],
        )

    def attempt(self, uniforms: list[Number], words: list[Any], lift: Lift) -> tuple[Number, list[Number]]:
        """Return a candidate, whose second uniform must place it below exp(−P)."""
        u, v = uniforms
        if np.ndim(words[0]) == 0:
            return self._attempt_one(u, v, int(words[0]), lift)
        step = np.searchsorted(np.array(self._thresholds, np.uint64), words[0], side="right")
        (inverse, width, top), powers = self._tables
        starts = np.array(self._starts, float) / SHARES
        within = (u - starts[step]) * inverse[step]
        x = within * width[step] + np.array(self.staircase.edges)[step]
        envelope = Ball(top.mid[step], top.rad[step])
        far = np.flatnonzero(step == len(self.staircase.edges) - 1)
        if far.size:
            beyond, fall = self._in_tail(within[far], lift)
            x.mid[far], x.rad[far] = beyond.mid, beyond.rad
            envelope = envelope + Ball(*_scattered(fall, far, step.size))
        loss = self._loss(x, [[(exponent[step], coefficient[step])] for exponent, coefficient in powers], lift)
        if far.size:
            beyond = self._loss(x[far], self._further_powers(lift), lift)
            loss.mid[far], loss.rad[far] = beyond.mid, beyond.rad
        return x, [-loss - envelope - v.log()]

    def _attempt_one(self, u: Number, v: Number, word: int, lift: Lift) -> tuple[Number, list[Number]]:
        j = bisect_right(self._thresholds, word)
        inverse, width, top = self._step(j, lift)
        within = (u - lift(self._starts[j] / SHARES)) * inverse
        if j < len(self.staircase.edges) - 1:
            x = within * width + lift(self.staircase.edges[j])
            powers = [[power] for power in self._powers(j, lift)]
        else:
            x, fall = self._in_tail(within, lift)
            top = top + fall
            powers = self._further_powers(lift)
        return x, [-self._loss(x, powers, lift) - top - v.log()]

    def _in_tail(self, within: Number, lift: Lift) -> tuple[Number, Number]:
        """Return a candidate beyond the last edge, and the log of how far the envelope has fallen there."""
        further = -within.log() / (lift(self.staircase.power) - 1.0)  # ln(x/edge)
        return further.exp() * lift(self.staircase.edges[-1]), further * -lift(self.staircase.power)

    def _loss(self, x: Number, powers: list[list[tuple[Number, Number]]], lift: Lift) -> Number:
        """Return P(x), given for each term that is a power the exponents and coefficients of which it is the least."""
        log, parts = x.log(), []
        for one in powers:
            lines = [log * exponent + coefficient for exponent, coefficient in one]
            parts.append(reduce(lambda low, high: low.min(high), lines).exp())
        for count, term in self.terms:
            if isinstance(term, PolylogFamily):
                y = (x / (lift(term.sigma) * term.a)).log1p()
                parts.append(exact_polylog_rise(y, term.a, term.p, lift) * (lift(term.d) * float(count)))
        loss = parts[0]
        for part in parts[1:]:
            loss = loss + part
        return loss


def _ends(term: Term) -> tuple[float, ...]:
    """The sizes at which a term changes from one power to the next."""
    return term.ends if isinstance(term, PointsFamily) else ()


def _is_power(term: Term) -> bool:
    return not isinstance(term, PolylogFamily)


def _power(count: int, term: Any, at: float, lift: Lift) -> tuple[Number, Number]:
    """Return the exponent γ and the log c of the coefficient of a term from a size on: the term is exp(γ·ln x + c)."""
    if isinstance(term, PowerFamily):
        exponent = lift(term.p)
        return exponent, lift(count).log() - exponent * lift(term.sigma).log()
    k = bisect_right(term.ends, at)  # the piece; the first is proportional to x, and passes through the first point
    (size, loss), exponent = term.curve[max(k - 1, 0)], lift(1.0)
    if k:
        further, more = term.curve[k]
        exponent = (lift(more) / lift(loss)).log() / (lift(further) / lift(size)).log()
    return exponent, (lift(loss) * float(count)).log() - exponent * lift(size).log()


def _stacked(balls: list[Ball]) -> Ball:
    return Ball(np.array([float(ball.mid) for ball in balls]), np.array([float(ball.rad) for ball in balls]))


def _scattered(ball: Ball, at: Any, size: int) -> tuple[Array, Array]:
    """Return midpoints and radii that are 0 except at some places."""
    mid, rad = np.zeros(size), np.zeros(size)
    mid[at], rad[at] = ball.mid, ball.rad
    return mid, rad
