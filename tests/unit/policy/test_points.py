"""Tables of points: the curve through them, what is refused, and why it is subadditive."""

import math
from fractions import Fraction

import numpy as np
import pytest
from helpers.errors import refused
from helpers.strategies import drawn_curves, log_uniform, points
from hypothesis import given, settings
from hypothesis import strategies as st

import slowscale as ss
from slowscale.policy import PointsPolicy

TABLE = [(10, 0.1), (1000, 2), (1e6, 8)]


@given(table=points())
def test_the_curve_passes_through_the_points(table):
    policy = PointsPolicy(table)
    for size, loss in policy.points:
        assert policy(size) == pytest.approx(loss, rel=1e-14)
    assert policy(0) == 0
    assert policy(policy.points[0][0] / 2) == pytest.approx(policy.points[0][1] / 2, rel=1e-15)


def test_lines_are_straight_on_logarithmic_axes():
    policy = PointsPolicy(TABLE)
    assert policy(100) == pytest.approx(math.sqrt(0.1 * 2))
    assert policy(math.sqrt(1000 * 1e6)) == pytest.approx(math.sqrt(2 * 8))
    assert policy(1e9) == pytest.approx(32)  # the last line continues: a factor of 4 per factor of 1000


@settings(max_examples=200)
@given(policy=drawn_curves(PointsPolicy), one=log_uniform(1e-6, 1e9), two=log_uniform(1e-6, 1e9))
def test_the_curve_is_subadditive_and_increases(policy, one, two):
    scale = policy.curve[0][0]
    x, y = one * scale, two * scale
    assert policy(x + y) <= (policy(x) + policy(y)) * (1 + 1e-13)
    assert policy(x * 1.000001) > policy(x)


@given(policy=drawn_curves(PointsPolicy), factor=log_uniform(1e-3, 1e3), ratio=log_uniform(1e-6, 1e6))
def test_sigma_multiplies_the_sizes(policy, factor, ratio):
    size = policy.curve[0][0] * ratio
    stretched = PointsPolicy(policy.points, sigma=policy.sigma * factor)
    # If two points are near each other, the exponent depends on how their sizes are rounded.
    assert stretched(size * factor) == pytest.approx(policy(size), rel=1e-10)


def test_points_in_any_form():
    policy = PointsPolicy(TABLE)
    assert policy == PointsPolicy(np.array(TABLE)) == PointsPolicy([(0, 0), *TABLE]) == PointsPolicy(iter(TABLE))
    assert ss.Policy.from_dict(policy.to_dict()) == policy
    assert policy.to_dict()["points"] == [[10.0, 0.1], [1000.0, 2.0], [1e6, 8.0]]


@given(size=st.floats(0.1, 1e6), loss=st.floats(0.01, 10), factor=st.floats(1.001, 1e6))
def test_a_loss_that_is_proportional_but_for_rounding_is_allowed(size, loss, factor):
    """It is lowered where it would break the rule, so that the curve is subadditive, not only nearly so."""
    (_, before), (further, after) = PointsPolicy([(size, loss), (size * factor, loss * factor)]).points
    assert Fraction(after) * Fraction(size) <= Fraction(before) * Fraction(further)
    assert after == pytest.approx(loss * factor, rel=1e-12)


@pytest.mark.parametrize(
    ("table", "subject", "code"),
    [
        ([(10, 1), (10, 2)], "points", "not-increasing"),
        ([(10, 1), (20, 1)], "points", "not-increasing"),
        (
            [(10, 1), (20, 2.1), (30, 2.2)],
            "points",
            "not-concave",
        ),
        ([], "points", "empty"),
        ([(0, 0)], "points", "empty"),
        ([(-1, 1)], "points", "out-of-range"),
        ([(1, math.nan)], "points", "out-of-range"),
        ([(1, 2, 3)], "points", "type"),
        ([5], "points", "type"),
        (5, "points", "type"),
        ([("a", 1)], "the size of a point", "type"),
    ],
)
def test_bad_tables_are_refused(table, subject, code):
    with refused(ss.SlowscaleError, subject, code=code):
        PointsPolicy(table)


def test_sizes_must_stay_floats_when_stretched():
    with refused(ss.ParameterError, "points", code="out-of-range"):
        PointsPolicy([(1e99, 1)], sigma=1e9)
