"""What a loss means: conversions of PRzCDP and PRDP losses to statements about an attacker.

Every function takes a loss. The loss of a record is the policy at its size, so each statement is about records of that
size. If a loss is known both as PRzCDP and as PRDP, functions that take a `Loss` use whichever gives the better bound.

Sources: Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy" (2020), Proposition 12 and
Corollary 13, for (ε, δ); Bun and Steinke, "Concentrated Differential Privacy" (2016), for the tail of the privacy loss.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from slowscale.core.errors import ParameterError
from slowscale.core.parameters import as_number
from slowscale.policy import PURE, ZCDP

DELTA, DELTA_WRITTEN = 1e-6, "10⁻⁶"  # δ of the (ε, δ) that people are told
RARELY = 0.01  # the probability with which the certainty that people are told may be exceeded
MARK = "\u00a0†"
ALWAYS = "without exception, by the pure guarantee (PRDP)"


def epsilon(rho: float, delta: float) -> float:
    """Return the smallest ε such that ρ-zCDP implies (ε, δ)-DP by the optimal Rényi conversion.

    Minimises over α > 1: α·ρ + (ln(1/δ) + (α − 1)·ln(1 − 1/α) − ln α) / (α − 1).

    >>> round(epsilon(0.1, 1e-6), 3)
    2.142
    """
    loss, probability = _loss("rho", rho), _probability("delta", delta)
    if loss == 0:
        return 0.0

    def bound(log_order: float) -> float:
        order_minus_1 = math.exp(log_order)  # α − 1
        order = 1 + order_minus_1
        return (
            order * loss
            + (-math.log(probability) - math.log1p(order_minus_1)) / order_minus_1
            - math.log1p(1 / order_minus_1)
        )

    return max(0.0, _minimum_over_orders(bound))


def delta(rho: float, epsilon: float) -> float:
    """Return the smallest δ such that ρ-zCDP implies (ε, δ)-DP by the same conversion.

    Minimises over α > 1: exp((α − 1)(αρ − ε)) / (α − 1) · (1 − 1/α)^α.
    """
    loss, most = _loss("rho", rho), _loss("epsilon", epsilon)
    if loss == 0:
        return 0.0

    def bound(log_order: float) -> float:
        order_minus_1 = math.exp(log_order)
        order = 1 + order_minus_1
        return order_minus_1 * (order * loss - most) - math.log(order_minus_1) - order * math.log1p(1 / order_minus_1)

    return max(math.exp(min(0.0, _minimum_over_orders(bound))), math.ulp(0.0))


def odds_factor(rho: float, delta: float) -> float:
    """Return the largest shift of an attacker's log odds by a release, except with probability δ.

    Under ρ-zCDP the privacy loss exceeds ρ + 2·sqrt(ρ·ln(1/δ)) with probability at most δ.
    """
    loss, probability = _loss("rho", rho), _probability("delta", delta)
    return loss + 2 * math.sqrt(loss * -math.log(probability))


def posterior(prior: float, epsilon: float) -> float:
    """Return the largest posterior probability that an attacker can reach from a prior: π·e^ε / (1 − π + π·e^ε).

    It holds always for a PRDP loss ε. For PRzCDP, pass `odds_factor(rho, delta)` as ε: it then holds except with
    probability δ.

    >>> round(posterior(0.5, 1), 3)
    0.731
    """
    start, most = _probability("prior", prior), _loss("epsilon", epsilon)
    odds = math.log1p(-start) - math.log(start) - most  # the log odds against it
    return 1 / (1 + math.exp(min(odds, 700.0)))


@dataclass(frozen=True)
class Loss:
    """What a record loses through one column or release: as PRzCDP (ρ) and, with a pure guarantee, as PRDP (ε)."""

    rho: float
    pure: float | None = None


@dataclass(frozen=True)
class Bound:
    """A bound on an attacker, by the best of the guarantees that hold.

    Attributes
    ----------
    value
        The bound on ε, on the shift of the log odds, or on the certainty.
    exception
        The probability with which the bound may fail: 0 if only pure guarantees (PRDP) were used.
    guarantee
        The guarantees that were used: "PRDP", "PRzCDP" or, for several columns, "PRDP and PRzCDP".
    """

    value: float
    exception: float
    guarantee: str


def best_epsilon(losses: Sequence[Loss], delta: float) -> Bound:
    """Return the smallest ε of (ε, δ)-DP that several losses imply together; δ = 0 if all are counted as pure.

    >>> best_epsilon([Loss(0.75, 1.3)], 1e-6)
    Bound(value=1.3, exception=0.0, guarantee='PRDP')
    """
    return _best(losses, epsilon, delta)


def best_odds_factor(losses: Sequence[Loss], delta: float) -> Bound:
    """Return the largest shift of an attacker's log odds by several losses together."""
    return _best(losses, odds_factor, delta)


def certainty(losses: Sequence[Loss], prior: float = 0.5, delta: float = RARELY) -> Bound:
    """Return the highest certainty that an attacker can reach from a prior, by several losses together.

    It holds except with probability `delta`, and always if the pure guarantees alone give the best bound.

    >>> bound = certainty([Loss(0.75, 1.3)])
    >>> round(bound.value, 3), bound.exception
    (0.786, 0.0)
    """
    shift = best_odds_factor(losses, delta)
    reached = posterior(prior, shift.value) if math.isfinite(shift.value) else 1.0
    return Bound(reached, shift.exception, shift.guarantee)


@dataclass(frozen=True)
class Explanation:
    """What the losses of a record mean together. Get one from `explain`.

    Attributes
    ----------
    losses
        The losses, which add up: one for each column, or for each part of what was released so far.
    """

    losses: tuple[Loss, ...]

    @property
    def loss(self) -> float:
        """The total loss, as PRzCDP (ρ)."""
        return sum(loss.rho for loss in self.losses)

    @cached_property
    def epsilon(self) -> Bound:
        """The least ε of (ε, δ)-differential privacy, with δ = 10⁻⁶ or, by pure guarantees alone, δ = 0."""
        return best_epsilon(self.losses, DELTA)

    @cached_property
    def certainty(self) -> Bound:
        """The highest certainty that an attacker can reach from a prior of 1/2."""
        return certainty(self.losses)


def explain(losses: Sequence[Loss]) -> Explanation:
    """Return what several losses of a record mean together.

    The command, accounts and reports all explain losses by this function, so that they agree.

    >>> explained = explain([Loss(0.75, 1.3)])
    >>> explained.loss, explained.epsilon.value, round(explained.certainty.value, 3)
    (0.75, 1.3, 0.786)
    """
    return Explanation(tuple(losses))


class Exceptions:
    """When several bounds may fail. Where only some of them hold without exception, those are marked."""

    def __init__(self, bounds: Sequence[Bound]) -> None:
        always = [bound.exception == 0 for bound in bounds]
        self.all, self.any = bool(always) and all(always), any(always)
        self.rarely = except_in(max((bound.exception for bound in bounds), default=RARELY))

    def mark(self, bound: Bound) -> str:
        """Return the mark of a bound, or ""."""
        return MARK if bound.exception == 0 and not self.all else ""

    def choose(self, usual: str, always: str, mixed: str) -> str:
        """Return the text for bounds of which none, all, or some hold without exception."""
        return always if self.all else mixed if self.any else usual

    def __str__(self) -> str:
        return self.choose(self.rarely, ALWAYS, f"{self.rarely}; {MARK.strip()} {ALWAYS}")


def except_in(probability: float) -> str:
    """Return in words that a statement holds except with a probability."""
    return f"except in {probability * 100:g} % of cases"


def bounds_in_words(bounds: Sequence[Bound], write: Callable[[float], str]) -> tuple[list[str], str]:
    """Return bounds as text, with a mark on those that hold without exception, and a remark about exceptions."""
    exceptions = Exceptions(bounds)
    return [f"{write(bound.value)}{exceptions.mark(bound)}" for bound in bounds], str(exceptions)


def highest_certainty(entity: str | None, by: str) -> str:
    """Return what a certainty is, in words.

    Parameters
    ----------
    entity
        The column whose entities are protected, or None where single records are.
    by
        What the attacker sees, such as "by this release".
    """
    thing = "record" if entity is None else entity
    cells = "" if entity is None else f", if the {thing} is in one cell only"
    about = f"about whether the {thing} is in the data"
    return f"highest certainty, starting from 50 %, that an attacker can reach {by} {about}{cells}"


def _best(losses: Sequence[Loss], convert: Callable[[float, float], float], delta: float) -> Bound:
    """Return the smallest of the bounds that count some losses as pure and convert the sum of the others from zCDP.

    Privacy losses add, so every such bound holds. A conversion is concave in ρ, so the best set of losses to count as
    pure consists of those with the smallest ε/ρ: it is a prefix of the losses sorted by this ratio.
    """
    pures = sorted(
        ((one.pure, one.rho) for one in losses if one.pure is not None and math.isfinite(one.pure)),
        key=lambda pair: (pair[0] / pair[1] if pair[1] else math.inf, pair),
    )
    rest = [one.rho for one in losses if one.pure is None or not math.isfinite(one.pure)]
    bounds = []
    for taken in range(len(pures), -1, -1):  # of two equal bounds, `min` keeps the first: the one with fewer exceptions
        pure = math.fsum(epsilon for epsilon, _ in pures[:taken])
        # fsum rounds once, so that the order of the terms cannot make the bound smaller.
        rho = _sum_or_infinity([*rest, *(rho for _, rho in pures[taken:])])
        if taken and rho == 0:
            bounds.append(Bound(pure, 0.0, PURE))
        else:
            value = pure + convert(rho, delta) if math.isfinite(rho) else math.inf
            bounds.append(Bound(value, delta, f"{PURE} and {ZCDP}" if taken else ZCDP))
    return min(bounds, key=lambda bound: bound.value)


def _sum_or_infinity(numbers: Sequence[float]) -> float:
    try:
        return math.fsum(numbers)
    except OverflowError:
        return math.inf


def _minimum_over_orders(bound: Callable[[float], float]) -> float:
    """Return the minimum over the orders α, which are given as ln(α − 1). Every order gives a valid bound."""
    from scipy import optimize

    points = [step / 4 for step in range(-160, 241)]
    best = min(points, key=bound)
    found = optimize.minimize_scalar(
        bound, bounds=(best - 0.25, best + 0.25), method="bounded", options={"xatol": 1e-9}
    )
    return min(float(found.fun), bound(best))


def _loss(name: str, value: float) -> float:
    number = as_number(name, value, "a number >= 0")
    if not number >= 0 or not math.isfinite(number):
        raise ParameterError(f"{name} must be a finite number >= 0, got {value}")
    return number


def _probability(name: str, value: float) -> float:
    number = as_number(name, value, "a number between 0 and 1")
    if not 0 < number < 1:
        raise ParameterError(f"{name} must be between 0 and 1, both excluded, got {value}")
    return number
