"""The grid: whole numbers of units that never wrap around, and the values that they stand for."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from helpers.errors import refused

import slowscale as ss
from slowscale.mechanisms.grid import (
    add,
    as_unit,
    ceilings,
    compact,
    directed,
    elementwise,
    floats,
    floors,
    largest,
    shaped,
    shift,
    values,
)

EDGES = [0, 1, -1, 127, -127, 2**62, -(2**62), 2**63 - 1, -(2**63), 6148914691236517205, -6148914691236517206]
BEYOND = [2**63, -(2**63) - 1, 2**64, -(2**64), 10**30]


def kind_of(numbers):
    return np.int64 if all(-(2**63) <= n < 2**63 for n in numbers) else object


@pytest.mark.parametrize("kinds", list(itertools.product([np.int64, object], repeat=2)))
def test_sums_of_whole_numbers_are_exact_and_as_narrow_as_the_result(kinds):
    for one, two in itertools.product(EDGES, repeat=2):
        total = add(np.array([one, 0], kinds[0]), np.array([two, 0], kinds[1]))
        assert total.tolist() == [one + two, 0]
        assert total.dtype == kind_of([one + two])


def test_compact_numbers_are_64_bits_wide_if_all_fit():
    for number in EDGES + BEYOND:
        made = compact(np.array([number, 5], object))
        assert made.tolist() == [number, 5]
        assert made.dtype == kind_of([number])


def test_shifted_numbers_are_exact():
    for units, by in itertools.product(EDGES, EDGES + BEYOND):
        assert shift(units, by) == units + by
        moved = shift(np.array([units, 0]), by)
        assert moved.tolist() == [units + by, by]
        assert moved.dtype == kind_of([units + by, by])


def test_floats_are_rounded_to_whole_numbers_of_any_size():
    for x in (0.0, 0.5, -0.5, 130.2, -130.2, 2.0**52 + 0.5, 2.0**61, -(2.0**61), 2.0**62, 2.0**63, -(2.0**63), 1e300):
        for function, expected in ((floors, math.floor(x)), (ceilings, math.ceil(x))):
            found = function(np.array([[x, 1.0]]))
            assert found.tolist() == [[expected, 1]]
            assert found.dtype == (np.int64 if abs(x) < 2.0**62 else object)
    assert floors(np.array([math.inf, 1.5])).tolist() == [math.inf, 1.0]


def test_values_of_units_that_are_integers_do_not_wrap_around():
    for n, unit in ((2**62, 2), (-(2**62), 2), (2**62, 3), (1, 2**62), (0, 2**62), (5, 10**20), (2**31, 2**31), (7, 3)):
        found = values(np.array([n, -1]), Fraction(unit))
        assert found.tolist() == [n * unit, -unit]
        assert found.dtype == (np.int64 if max(abs(n), 1) * unit < 2**63 else object)
        assert values(n, Fraction(unit)) == n * unit


def test_values_beside_an_infinite_one_are_scaled_too():
    for function in (values, floats):
        assert function(np.array([math.inf, 4.0, -math.inf]), Fraction(1, 4)).tolist() == [math.inf, 1.0, -math.inf]
        assert function(np.array([math.inf, 4.0]), Fraction(3)).tolist() == [math.inf, 12.0]


@pytest.mark.parametrize("unit", [Fraction(1, 100), Fraction(7, 3), Fraction(2**40 + 1, 3), Fraction(5, 2**54 + 1)])
def test_values_of_other_units_are_the_nearest_floats(unit):
    generator = np.random.default_rng(3)
    for power in (4, 20, 40, 49):
        n = generator.integers(-(2**power), 2**power, 200)
        for kind in (np.int64, object):
            found = values(n.astype(kind), unit)
            assert found.dtype == np.float64
            assert found.tolist() == [float(int(k) * unit) for k in n]
            assert floats(n.astype(kind), unit).tolist() == found.tolist()
        assert [values(int(k), unit) for k in n[:5]] == found[:5].tolist()


def test_ends_are_rounded_outwards_from_10_to_the_15_on():
    """Below, the nearest float prints as a decimal on the grid."""
    unit = Fraction(1, 3)
    for n in (10**15, 10**15 + 4, -(10**15)):
        low, high = (values(n, unit, side) for side in (-1, 1))
        assert Fraction(low) < n * unit < Fraction(high)
    for n in (10**15 - 2, 9**15, 4 * 10**14 - 2, 2 - 10**15):
        assert values(n, unit, -1) == values(n, unit, 1) == float(n * unit)
    big = np.array([2**62 + 1])
    assert [Fraction(values(big, unit, side)[0]) - (2**62 + 1) * unit > 0 for side in (-1, 1)] == [False, True]


def test_numbers_beyond_floats_are_infinite_or_the_largest_float():
    most, huge = np.finfo(float).max, 10**400
    assert [directed(huge, side) for side in (-1, 0, 1)] == [most, math.inf, math.inf]
    assert [directed(-huge, side) for side in (-1, 0, 1)] == [-math.inf, -math.inf, -most]
    assert [directed(Fraction(1, 3), side) for side in (-1, 0)] == [1 / 3, 1 / 3]
    assert directed(Fraction(1, 3), 1) == math.nextafter(1 / 3, 1)
    assert [directed(5, side) for side in (-1, 0, 1)] == [5.0, 5.0, 5.0]


def test_largest_absolute_value():
    assert largest(np.array([], np.int64)) == 0
    assert largest(np.array([3, -7])) == 7
    assert largest(np.array([-(2**63), 5])) == 2**63
    assert largest(np.array([10**30, -1], object)) == 10**30


def test_functions_of_arrays_take_single_numbers():
    assert elementwise(lambda x: x + 1, np.array([1, 2])).tolist() == [2, 3]
    one = elementwise(lambda x: x / 2, 5)
    assert (one, type(one)) == (2.5, float)
    assert elementwise(lambda x: x.astype(object) * 2, 2**62) == 2**63


def test_a_flat_array_is_returned_in_its_shape():
    assert shaped(np.arange(6), (2, 3)).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert type(shaped(np.arange(1), ())) is int
    assert shaped(np.array([10**30], object), ()) == 10**30


def test_units_have_limits():
    for unit in ("1.1e-300", "9.9e299", 0.5, 2.0**-20, np.float32(0.25)):
        assert as_unit(unit) == Fraction(unit if isinstance(unit, str) else float(unit))
    for unit in ("1e-300", "1e300", "1/0"):
        with refused(ss.ParameterError, "unit", code="value"):
            as_unit(unit)
    with refused(ss.ParameterError, "unit", code="precision"):
        as_unit(2.0**-21)
