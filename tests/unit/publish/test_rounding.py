"""Rounding to a public step is exact: numpy's way against exact fractions."""

import math
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slowscale.mechanisms.grid import directed
from slowscale.publish.profiles import round_to

STEPS = st.sampled_from([Fraction(1), Fraction(10), Fraction(7), Fraction(1000), Fraction(1, 2), Fraction(3, 2)])
WHOLE = st.one_of(st.integers(-100, 100), st.integers(-(2**62), 2**62))


def exact(number, step, side):
    """Return the rounded number by the definition: the nearest multiple, the even one of two."""
    low = (number // step) * step
    high = low if low == number else low + step
    if side:
        return low if side < 0 else high
    if number - low == high - number:
        return low if (low / step) % 2 == 0 else high
    return low if number - low < high - number else high


@given(st.lists(WHOLE, min_size=1), STEPS, st.sampled_from([-1, 0, 1]))
def test_whole_numbers(numbers, step, side):
    expected = [exact(Fraction(number), step, side) for number in numbers]
    found = round_to(pa.array(numbers, pa.int64()), step, side)
    if pa.types.is_floating(found.type):  # large results are rounded to floats, outwards
        expected = [directed(one, side if abs(one) >= 10**15 else 0) for one in expected]
    assert found.to_pylist() == expected


@given(st.lists(st.integers(-(10**30), 10**30), min_size=1), st.sampled_from([-1, 0, 1]))
def test_numbers_beyond_64_bits(numbers, side):
    found = round_to(pa.array(numbers, pa.decimal128(38, 0)), Fraction(1000), side)
    assert found.to_pylist() == [exact(Fraction(number), Fraction(1000), side) for number in numbers]


@given(
    st.lists(st.integers(-(10**12), 10**12), min_size=1),
    st.integers(0, 6),
    STEPS | st.just(Fraction(1, 10)),
    st.sampled_from([-1, 0, 1]),
)
def test_floats_are_decimal_numbers(digits, places, step, side):
    decimals = [Fraction(number, 10**places) for number in digits]
    found = round_to(pa.chunked_array([[float(one) for one in decimals]]), step, side).to_pylist()
    assert [float(one) for one in found] == [float(exact(one, step, side)) for one in decimals]


@pytest.mark.parametrize(("number", "rounded"), [(0.15, 0.2), (0.25, 0.2), (0.35, 0.4), (-0.15, -0.2), (2.675, 2.7)])
def test_halves_go_to_the_even_multiple(number, rounded):
    assert round_to(pa.array([number]), Fraction(1, 10)).to_pylist() == [rounded]


def test_halves_of_whole_numbers():
    found = round_to(pa.array([-150, -50, 50, 150, 250, 251]), Fraction(100))
    assert found.to_pylist() == [-200, 0, 0, 200, 200, 300]
    assert found.type == pa.int64()


def test_ends_are_rounded_outwards_and_floats_on_the_grid_stay():
    numbers = pa.array([0.1, 0.2, 0.3, 0.7, 1.1])
    assert round_to(numbers, Fraction(1, 10), -1).to_pylist() == round_to(numbers, Fraction(1, 10), 1).to_pylist()
    assert round_to(pa.array([149, 151, -149]), Fraction(100), -1).to_pylist() == [100, 100, -200]
    assert round_to(pa.array([149, 151, -149]), Fraction(100), 1).to_pylist() == [200, 200, -100]


def test_missing_numbers_stay_missing():
    assert round_to(pa.array([1, None, 16]), Fraction(10)).to_pylist() == [0, None, 20]
    floats = pa.array([1.0, None, math.inf, -math.inf, math.nan])
    assert round_to(floats, Fraction(10)).to_pylist() == [0, None, None, None, None]


def test_results_beyond_64_bits():
    step = Fraction(2**63)
    assert round_to(pa.array([2**62 + 1], pa.int64()), step).to_pylist() == [2**63]
    assert round_to(pa.array([2**63 - 1], pa.int64()), Fraction(10), 1).to_pylist() == [2**63 + 2]
