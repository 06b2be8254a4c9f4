"""Conversions of a loss: from PRzCDP to (ε, δ)-differential privacy, and from PRDP to posterior probabilities.

Source: Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy" (2020), Proposition 12 and
Corollary 13.
"""

import math
from collections.abc import Callable

from slowscale.core.errors import ParameterError
from slowscale.core.parameters import as_number


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


def posterior(prior: float, epsilon: float) -> float:
    """Return the largest posterior probability that an attacker can reach from a prior: π·e^ε / (1 − π + π·e^ε).

    It holds for a PRDP loss ε, whatever is published.

    >>> round(posterior(0.5, 1), 3)
    0.731
    """
    start, most = _probability("prior", prior), _loss("epsilon", epsilon)
    odds = math.log1p(-start) - math.log(start) - most  # the log odds against it
    return 1 / (1 + math.exp(min(odds, 700.0)))


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
        raise ParameterError(name, allowed="a finite number >= 0", given=value)
    return number


def _probability(name: str, value: float) -> float:
    number = as_number(name, value, "a number between 0 and 1")
    if not 0 < number < 1:
        raise ParameterError(name, allowed="between 0 and 1, both excluded", given=value)
    return number
