"""Mean-unbiased estimates of powers: the Appell polynomials of the noise.

For noise Z with finite moments up to the order k there is one polynomial A_k with E A_k(x + Z) = x^k for all x: the sum
of C(k, j)·c_j·v^(k−j), where the c_j are the coefficients of t^j/j! in 1/E e^(tZ). They follow from the moments:
Σ C(n, j)·m_j·c_(n−j) over j <= n is 0 for n > 0. For Gaussian noise A_k is the Hermite polynomial.

The variance of A_k(x + Z) is E A_k(x + Z)² − x^(2k), a polynomial in x² of degree k − 1, and its only unbiased estimate
that is a polynomial is A_k² − A_2k. The noise is symmetric, so each of them has even powers only, or odd ones only.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from slowscale.core.parameters import Array
from slowscale.noise import SymmetricNoise
from slowscale.sampling.balls import ROUNDING, UNDERFLOW, Ball
from slowscale.sampling.exact import at_precision
from slowscale.sampling.samplers import Number

# The least precision in bits of exact coefficients, how much more their moments have, and the largest moment in use.
BITS, SPARE_BITS, LARGEST_LOG = 256, 128, 600.0


class Appell(NamedTuple):
    """A_k and what follows from it, in floats. Coefficients are by falling powers, in steps of two.

    Attributes
    ----------
    estimate
        The coefficients of A_k, from v^k on.
    variance
        Those of the variance of A_k(x + Z), from x^(2k − 2) on; empty if it is infinite or too large for a float.
    variance_estimate
        Those of the unbiased estimate of this variance, in the same powers.
    turns
        Points between which A_k is monotone, in ascending order.
    """

    estimate: Array
    variance: Array
    variance_estimate: Array
    turns: Array


def has_moment(noise: SymmetricNoise, order: int) -> bool:
    """Whether the absolute moment of an order exists, and no power of it that is needed is too large for a float."""
    return noise._log_moment(order) + order * math.log(noise.sigma) < LARGEST_LOG


@lru_cache(maxsize=256)
def appell(noise: SymmetricNoise, k: int) -> Appell:
    """Return A_k for a noise with the moment of order k whose moments are known exactly."""
    return at_precision(BITS, lambda: _appell(noise, k))


def _appell(noise: SymmetricNoise, k: int) -> Appell:
    moments = _moments(noise, k + 1 if has_moment(noise, 2 * k) else k // 2 + 1, BITS)
    c = _inverse(moments)
    found = _estimate(c, k)
    variance, unbiased = [], []
    if len(c) > k:
        last = len(found) - 1
        square = [sum(found[i] * found[n - i] for i in range(max(0, n - last), min(n, last) + 1)) for n in range(k + 1)]
        for n in range(1, k + 1):
            means = (square[n - i] * math.comb(2 * (k - n + i), 2 * i) * moments[i] for i in range(n + 1))
            variance.append(float(sum(means)))
            unbiased.append(float(square[n] - math.comb(2 * k, 2 * n) * c[n]))
    slope = np.array([float(one) for one in _estimate(c, k - 1)])
    roots = np.abs(np.sqrt(np.roots(slope).astype(complex)).real).tolist()  # the derivative is k·A_(k−1)
    # To split the estimate at a complex root, where it does not turn, changes nothing.
    turns = sorted({*roots, *(-one for one in roots), *([] if k % 2 else [0.0])})
    return Appell(np.array([float(one) for one in found]), np.array(variance), np.array(unbiased), np.array(turns))


def _moments(noise: SymmetricNoise, count: int, bits: int) -> list[Any]:
    """Return E Z^(2m) for m < count, with more than a number of bits."""
    from flint import ctx

    with ctx.workprec(bits + SPARE_BITS):
        found = noise._exact_moments(count)
    assert found is not None
    return found


def _inverse(moments: Sequence[Any]) -> list[Any]:
    """Return c_0, c_2, c_4, … from the moments of orders 0, 2, 4, …"""
    c = [moments[0]]
    for n in range(1, len(moments)):
        c.append(-sum(math.comb(2 * n, 2 * i) * moments[i] * c[n - i] for i in range(1, n + 1)))
    return c


def _estimate(c: Sequence[Any], k: int) -> list[Any]:
    return [math.comb(k, 2 * n) * c[n] for n in range(k // 2 + 1)]


@lru_cache(maxsize=64)
def _exact_coefficients(noise: SymmetricNoise, k: int, bits: int) -> list[Any]:
    from flint import ctx

    with ctx.workprec(bits):
        return _estimate(_inverse(_moments(noise, k // 2 + 1, bits)), k)


@lru_cache(maxsize=256)
def _ball_coefficients(noise: SymmetricNoise, k: int) -> list[Ball]:
    from flint import arb

    def as_ball(one: Any) -> Ball:
        middle = float(one)
        return Ball(middle, float((one - arb(middle)).abs_upper()) * (1 + ROUNDING) + UNDERFLOW)

    return at_precision(BITS, lambda: [as_ball(one) for one in _exact_coefficients(noise, k, BITS)])


def exact_coefficients(noise: SymmetricNoise, k: int, like: Number) -> Sequence[Number]:
    """Return the coefficients of A_k, as float balls or as Arb numbers of the working precision or more."""
    if isinstance(like, Ball):
        return _ball_coefficients(noise, k)
    from flint import ctx

    return _exact_coefficients(noise, k, max(ctx.prec, BITS))


def polynomial(coefficients: Sequence[Any] | Array, k: int, v: Any, scale: Any) -> Any:
    """Return the polynomial of degree k with coefficients for v^k, scale²·v^(k−2), scale⁴·v^(k−4), …"""
    square, scaled, total, factor = v * v, scale * scale, coefficients[0], 1.0
    for one in coefficients[1:]:
        factor = factor * scaled
        total = total * square + one * factor
    return total * v if k % 2 else total
