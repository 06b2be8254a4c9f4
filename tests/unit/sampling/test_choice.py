"""Draws from a finite distribution have the probabilities that mpmath computes, at any distance of the weights."""

from fractions import Fraction

import mpmath
import numpy as np
from helpers.bitsources import Crafted, Recorded, Stuck
from helpers.errors import refused
from scipy import stats

from slowscale.core.errors import SlowscaleError
from slowscale.sampling.exact import Choice

FALSE_ALARM = 1e-7
COSTS = [Fraction(n, 7) for n in (9, 4, 4, 0, 2, 11, 30, 3)]


def probabilities(costs):
    with mpmath.workdps(40):
        weights = [mpmath.exp(-mpmath.mpf(cost.numerator) / cost.denominator) for cost in costs]
        return np.array([float(weight / sum(weights)) for weight in weights])


def p_value(counts, costs):
    expected = probabilities(costs) * counts.sum()
    return stats.chisquare(counts, expected).pvalue


def test_the_distribution_by_chi_square():
    choice, bits = Choice(COSTS), Recorded(5).bits()
    counts = np.bincount([choice.draw(bits, row) for row in range(60_000)], minlength=len(COSTS))
    assert p_value(counts, COSTS) > FALSE_ALARM
    for factor in (Fraction(9, 10), Fraction(11, 10)):  # the twins: a rate that is 10 % off
        assert p_value(counts, [cost * factor for cost in COSTS]) < FALSE_ALARM


def test_a_common_cost_changes_nothing():
    far = Choice([cost + 10**12 for cost in COSTS])
    near = Choice(COSTS)
    bits = Recorded(1).bits()
    assert [far.draw(bits, row) for row in range(50)] == [near.draw(bits, row) for row in range(50)]


def test_no_weight_underflows():
    """Weights below the smallest float are still drawn in their proportion, if nothing larger is left."""
    costs = [Fraction(0), Fraction(2000), Fraction(10**9)]
    assert Choice(costs).draw(Recorded(0).bits()) == 0
    # The uniform is 1 − 2^-n: beyond the first weight only when exp(−2000) ≈ 2^-2885 exceeds 2^-n.
    ones = [2**64 - 1]
    assert Choice(costs).draw(Crafted(ones * 45 + [0] * 50)) == 0
    assert Choice(costs).draw(Crafted(ones * 46 + [0] * 50)) == 1


def test_a_uniform_at_the_border_needs_more_bits():
    """With two equal weights the border is 1/2: the next word tells on which side the uniform is."""
    for more, place in ((0, 1), (1, 1), (2**64 - 1, 1)):
        assert Choice([Fraction(3), Fraction(3)]).draw(Crafted([2**63, more])) == place
    below = Crafted([2**63 - 1, 2**64 - 1, 2**64 - 1, 0])
    assert Choice([Fraction(3), Fraction(3)]).draw(below, 7) == 0
    assert below.asked == [(7, 0, 0, part) for part in range(4)]  # 256 bits, as all but the last are ones


def test_a_source_that_stays_at_the_border_is_refused():
    with refused(SlowscaleError, "the source of random bits", code="not-random"):
        Choice([Fraction(1)] * 3).draw(Stuck(0x5555555555555555))  # 1/3, to any number of bits


def test_one_candidate():
    assert Choice([Fraction(5)]).draw(Recorded(1).bits()) == 0
