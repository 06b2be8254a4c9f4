"""Exact sums: whole units and rests of every kind of number, with nothing lost on the way to the noise."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from helpers.errors import refused

import slowscale as ss
from slowscale.mechanisms.exact_sums import Exact, Sums
from slowscale.sampling.balls import Ball, lift_ball
from slowscale.sampling.exact import lift_arb

UNITS = [*map(Fraction, ("1", "2", "999999999999999999", "1/100", "7/3", "1/3", "1e-30"))]
GIVEN = {
    "zeros and ones": np.array([0, 1, 0]),
    "zeros": np.zeros(3, np.int64),
    "small integers": np.array([0, 1, -1, 7, 249, -250, 2**52 + 1, 2**53 - 1]),
    "unsigned integers": np.array([0, 5, 2**64 - 1], np.uint64),
    "large integers": np.array([0, 2**62 - 1, 2**62, 2**63 - 1, -(2**63), 2**53 + 1, -(2**53) - 1, 2**60 + 1]),
    "large integers that fit": np.array([0, 2**61 - 2, 2**61 + 3, -(2**61) - 1, 2**53 + 1, 2**58 + 12345]),
    "Python integers": [0, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**30 + 1],
    "small floats": np.array([0.0, 0.1, -0.1, 5.75, 99.5, 120.25, -3.3]),
    "large floats": np.array([0.0, 2.0**51 + 0.5, 2.0**52, 2.0**52 + 1, -(2.0**52) - 1, 2.0**53 + 2, 1e250]),
    "tiny floats": np.array([0.0, 5e-324, -5e-324, 1e-300, -1e-300]),
    "narrow floats": np.array([0.1, 7.7], np.float32),
    "decimals": [Decimal(0), Decimal("12.345"), Decimal("-0.01"), Decimal(10) ** 25 + Decimal("0.5")],
    "fractions": [Fraction(0), Fraction(1, 3), Fraction(-22, 7), Fraction(1, 10**400), Fraction(10**20 + 1, 3)],
    "an integer beside a float": [2**53 + 1, 0.5],
}


def exactly(q):
    return [Fraction(item.item() if isinstance(item, np.generic) else item) for item in q]


def inside(value, ball, row):
    """Whether a ball holds an exact number; it may be infinite, but not NaN."""
    mid, rad = float(ball.mid[row]), float(np.broadcast_to(ball.rad, ball.mid.shape)[row])
    return rad == np.inf or abs(Fraction(mid) - value) <= Fraction(rad)


def check(sums, true, unit):
    """All that is read from sums against the exact numbers."""
    assert sums.unit == unit
    rows = np.arange(len(true))
    for row, value in enumerate(true):
        rest = sums.exact_rest(row)
        assert 0 <= rest < 1
        assert (int(sums.whole[row]) + rest) * sums.unit == value
        number = sums.value_of(row, lift_arb)
        assert abs(number - lift_arb(value)).upper() <= abs(lift_arb(value)).upper() * 2.0**-45
    fits = all(-(2**63) <= int(whole) < 2**63 for whole in sums.whole)
    assert fits or sums.whole.dtype == object
    rests = [sums.exact_rest(row) for row in range(len(true))]
    assert (sums.rest is None) == (not any(rests))
    if sums.rest is not None:
        for row, rest in enumerate(rests):
            assert inside(rest, sums.rest, row)
            assert sums.rest.rad[row] <= 1.001 * 2.0**-51 * float(rest) + 1e-300
            assert rest or sums.rest.rad[row] == 0
        assert sums.rest_of(rows[:1], lift_ball).mid[0] == sums.rest.mid[0]
    with np.errstate(all="ignore"):
        ball = sums.value_of(rows, lift_ball)
    for row, value in enumerate(true):
        assert inside(value, ball, row)
        rad = float(np.broadcast_to(ball.rad, ball.mid.shape)[row])
        blur = abs(float(value)) + (float(sums.unit) if sums.rest is not None else 0)
        assert rad <= 2.0**-47 * blur + 2e-300 * max(1, float(sums.unit))
        if value == 0 or (sums.unit == 1 and sums.rest is None and abs(value) < 2**53):
            assert (ball.mid[row], rad) == (value, 0)  # a number that a float can hold is not blurred


@pytest.mark.parametrize("unit", UNITS, ids=str)
@pytest.mark.parametrize("name", GIVEN)
def test_every_number_is_split_exactly(name, unit):
    check(Sums.of(GIVEN[name], unit), exactly(GIVEN[name]), unit)


@pytest.mark.parametrize("unit", UNITS, ids=str)
@pytest.mark.parametrize("grain", [Fraction(1), Fraction(1, 100), Fraction(10**9, 7), Fraction(2**40)], ids=str)
@pytest.mark.parametrize("counts", [[0, 3, -3, 1234567], [0, 2**61, -(2**60) - 1], [0, 10**25, -1]], ids=str)
@pytest.mark.parametrize("parts", [None, 3, 2**20, 10**18])
def test_sums_that_are_given_in_grains_are_split_exactly(counts, grain, parts, unit):
    fits = max(map(abs, counts)) < 2**63
    array = np.array(counts, np.int64 if fits else object)
    if parts is None:
        return check(Sums.of(Exact(array, grain), unit), [n * grain for n in counts], unit)
    rest = np.array([[0, 1, parts - 1, parts // 2][i % 4] for i in range(len(counts))])
    true = [(n + Fraction(int(r), parts)) * grain for n, r in zip(counts, rest, strict=True)]
    check(Sums.of(Exact(array, grain, rest, parts), unit), true, unit)


def test_products_close_to_64_bits_do_not_wrap_around():
    """Grains and parts whose products are just below and beyond what 64 bits hold."""
    for power in range(15, 34):
        grain, parts = Fraction(2**power + 1, 3**19), 2 ** (62 - power) - 1
        counts = np.array([1, 2**power - 1, 2 ** (62 - power), 2 ** (63 - power) - 1, -(2 ** (62 - power)) - 7])
        rest = np.array([0, parts - 1, parts // 2, 1, parts - 2])
        true = [(int(n) + Fraction(int(r), parts)) * grain for n, r in zip(counts, rest, strict=True)]
        for unit in (Fraction(1), grain, Fraction(1, 3**18)):
            check(Sums.of(Exact(counts, grain, rest, parts), unit), true, unit)
            check(Sums.of(Exact(counts, grain), unit), [int(n) * grain for n in counts], unit)


def test_rests_of_denominators_beyond_floats_lie_in_their_balls():
    """Numerator, denominator and quotient are each rounded."""
    generator = np.random.default_rng(5)
    for _ in range(200):
        unit = Fraction(int(generator.integers(2**60, 2**61)))
        counts = generator.integers(0, 2**60, 50)
        sums = Sums.of(counts, unit)
        assert all(inside(sums.exact_rest(row), sums.rest, row) for row in range(50))
        parts = unit.numerator
        sums = Sums.of(Exact(counts, Fraction(1), counts % parts, parts), Fraction(1))
        assert all(inside(sums.exact_rest(row), sums.rest, row) for row in range(50))


def test_a_rest_too_small_for_a_float_counts_in_a_huge_unit():
    """A rest of 1e-490 units of 1e290 is a sum of 1e-200."""
    sums = Sums.of([Fraction(1, 10**200), Fraction(0)], Fraction(10**290))
    ball = sums.value_of(np.arange(2), lift_ball)
    assert inside(Fraction(1, 10**200), ball, 0)
    assert (ball.mid[1], ball.rad[1]) == (0, 0)


@pytest.mark.parametrize(
    ("largest", "kind"),
    [(2**63 - 1, np.int64), (2**63, object), (-(2**63), np.int64), (-(2**63) - 1, object), (500, np.int64)],
)
def test_whole_units_are_64_bits_wide_if_all_fit(largest, kind):
    assert Sums.of([Fraction(largest) + Fraction(1, 3), 0], Fraction(1)).whole.dtype == kind


def test_whole_units_of_small_counts_are_64_bits_wide():
    for counts in ([5, -500], [2**40, 1]):
        exact = Exact(np.array(counts), Fraction(7), np.array([1, 0]), 3)
        assert Sums.of(exact, Fraction(2)).whole.dtype == np.int64


def test_only_types_that_imply_whole_units_count_as_on_the_grid():
    integers = [
        5,
        np.int32(5),
        [5, 6],
        ([5], [6]),
        np.array([5]),
        np.array([5], np.uint8),
        np.array([5, 10**30], object),
    ]
    for q in integers:
        assert Sums.of(q, Fraction(1)).on_grid
        assert Sums.of(q, Fraction(1, 100)).on_grid
        assert not Sums.of(q, Fraction(5)).on_grid  # even if all of them happen to be multiples of 5
    others = [5.0, Decimal(5), Fraction(5), [5, 5.0], np.array([5.0]), np.array([5, Fraction(5)], object)]
    for q in others:
        assert not Sums.of(q, Fraction(1)).on_grid
    assert Sums.of(Exact(np.array([5]), Fraction(1, 100)), Fraction(1, 100)).on_grid
    assert not Sums.of(Exact(np.array([5]), Fraction(1, 100)), Fraction(1, 10)).on_grid
    assert not Sums.of(Exact(np.array([5]), Fraction(1), np.array([0]), 2), Fraction(1)).on_grid


def test_numbers_beyond_floats_are_never_certain_in_floats():
    """Their balls are infinite, so that Arb decides."""
    for huge in (10**400, -(10**400)):
        sums = Sums.of([huge, 5], Fraction(1))
        ball = sums.value_of(np.arange(2), lift_ball)
        assert isinstance(ball, Ball)
        assert abs(ball.mid[0]) == ball.rad[0] == np.inf
        assert (ball.mid[1], ball.rad[1]) == (5, 0)
    noisy = ss.Root(k=2, sigma=1e-3).release(np.array([10**400] * 6, object))
    assert all(abs(int(n) - 10**400) < 10**200 for n in noisy.units)


def test_the_first_number_that_is_not_finite_is_named():
    with refused(ss.ParameterError, "q", code="value"):
        Sums.of(np.array([1.0, np.inf, np.nan]), Fraction(1))
    with refused(ss.ParameterError, "q", code="value"):
        Sums.of([Decimal("NaN"), Decimal("Infinity")], Fraction(1))
