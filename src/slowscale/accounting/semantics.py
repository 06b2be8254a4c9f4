"""What a loss means: conversions of PRzCDP and PRDP losses to statements about an attacker.

Every function takes a loss, which for a record is the policy at its size; so each statement is about records of that
size. Sources: Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy" (2020), Proposition 12 and
Corollary 13, for (ε, δ); Bun and Steinke, "Concentrated Differential Privacy" (2016), for the tail of the privacy loss.
"""

import math
from collections.abc import Callable

from slowscale.errors import ParameterError
from slowscale.parameters import as_number


def epsilon(rho: float, delta: float) -> float:
    """Return the least ε such that ρ-zCDP implies (ε, δ)-DP by the optimal Rényi conversion.

    Minimises over α > 1: α·ρ + (ln(1/δ) + (α − 1)·ln(1 − 1/α) − ln α) / (α − 1).

    >>> round(epsilon(0.1, 1e-6), 3)
    2.142
    """
    loss, probability = _loss("rho", rho), _probability("delta", delta)
    if loss == 0:
        return 0.0

    def bound(log_order: float) -> float:
        beyond = math.exp(log_order)  # α − 1
        order = 1 + beyond
        return order * loss + (-math.log(probability) - math.log1p(beyond)) / beyond - math.log1p(1 / beyond)

    return max(0.0, _least(bound))


def delta(rho: float, epsilon: float) -> float:
    """Return the least δ such that ρ-zCDP implies (ε, δ)-DP, by the same conversion.

    Minimises over α > 1: exp((α − 1)(αρ − ε)) / (α − 1) · (1 − 1/α)^α.
    """
    loss, most = _loss("rho", rho), _loss("epsilon", epsilon)
    if loss == 0:
        return 0.0

    def bound(log_order: float) -> float:
        beyond = math.exp(log_order)
        order = 1 + beyond
        return beyond * (order * loss - most) - math.log(beyond) - order * math.log1p(1 / beyond)

    return max(math.exp(min(0.0, _least(bound))), math.ulp(0.0))


def odds_factor(rho: float, delta: float) -> float:
    """Return by how much, as a logarithm, a release may shift an attacker's odds, except with probability δ.

    Under ρ-zCDP the privacy loss exceeds ρ + 2·sqrt(ρ·ln(1/δ)) with probability at most δ.
    """
    loss, probability = _loss("rho", rho), _probability("delta", delta)
    return loss + 2 * math.sqrt(loss * -math.log(probability))


def posterior(prior: float, epsilon: float) -> float:
    """Return the most that an attacker can come to believe, from a prior: π·e^ε / (1 − π + π·e^ε).

    Exact for a PRDP loss ε; for PRzCDP use `odds_factor(rho, delta)` as ε: it then holds except with probability δ.

    >>> round(posterior(0.5, 1), 3)
    0.731
    """
    start, most = _probability("prior", prior), _loss("epsilon", epsilon)
    odds = math.log1p(-start) - math.log(start) - most  # against it, as a logarithm
    return 1 / (1 + math.exp(min(odds, 700.0)))


def _least(bound: Callable[[float], float]) -> float:
    """Return the least value over the orders α, given as ln(α − 1); any order gives a valid bound."""
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
