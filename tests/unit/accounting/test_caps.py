"""Caps: refused exactly when exceeded somewhere, whatever the shapes."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import plain_policies

import slowscale as ss
from slowscale.accounting.caps import GRID, TOLERANCE, Total, check, check_at, coefficients
from slowscale.policy import ConstantPolicy, LogPolicy, RootPolicy, SumPolicy, UnitSplittingPolicy


def total(*policies):
    spent = Total.zero()
    for policy in policies:
        spent = spent + policy
    return spent


def refused(spent, cap):
    try:
        check("x", spent, cap)
    except ss.CapError as error:
        return error
    return None


@given(plain_policies, st.integers(1, 50))
@settings(max_examples=60)
def test_a_cap_of_n_charges_has_room_for_n(policy, count):
    spent = total(*[policy] * count)
    check("x", spent, count * policy)
    if policy(1e6) > 0:
        with pytest.raises(ss.CapError):
            check("x", spent + policy, count * policy)


@given(st.lists(plain_policies, min_size=1, max_size=3), st.lists(plain_policies, min_size=1, max_size=3))
@settings(max_examples=150)
def test_the_verdict_is_that_of_many_points(spent_policies, cap_policies):
    """What is let through is below the cap at 30,000 sizes; what is refused is above it at the size that is named."""
    spent, cap = total(*spent_policies), SumPolicy(tuple(cap_policies))
    sizes = np.concatenate([[0.0], np.geomspace(1e-12, 1e30, 30_000)])
    losses = sum(policy(sizes) for policy in spent_policies)
    refusal = refused(spent, cap)
    if refusal is None:
        assert (losses <= cap(sizes) * (1 + 2 * TOLERANCE)).all()
    elif "too close" in str(refusal):
        assert refusal.spent >= 0.9 * refusal.cap
    else:
        here = sum(policy(refusal.influence) for policy in spent_policies)
        assert here > cap(refusal.influence) * (1 + TOLERANCE) * (1 - 1e-12)
        assert refusal.influence < 1e-50 or here == pytest.approx(refusal.spent)
        assert refusal.spent > refusal.cap


@given(plain_policies)
def test_coefficients_are_the_policy(policy):
    sizes = np.geomspace(1e-3, 1e9, 50)
    parts = sum(times * shape(sizes) for shape, times in coefficients(policy).items())
    np.testing.assert_allclose(parts, policy(sizes), rtol=1e-12)


def test_the_smallest_size_is_named():
    """Root k=2 overtakes a Gaussian cap below a size, and a Gaussian overtakes a root cap above one."""
    gaussian, root = RootPolicy(1, 100.0), RootPolicy(2, 1.0)  # Δ²/20,000 and Δ/2: equal at 10,000
    with pytest.raises(ss.CapError) as caught:
        check("pay", total(gaussian), root)
    assert caught.value.influence == pytest.approx(10_000, rel=1e-6)
    assert "the cap on 'pay' would be exceeded, first for a record of size 10000" in str(caught.value)
    with pytest.raises(ss.CapError) as caught:
        check("pay", total(root), gaussian)
    assert caught.value.influence < 1e-50
    assert "would be exceeded, for records smaller than about 1" in str(caught.value)
    assert caught.value.spent > caught.value.cap
    with pytest.raises(ss.CapError, match=r"for records of any size: one of size [\d.]+ would have lost"):
        check("pay", total(RootPolicy(2, 1.0), RootPolicy(2, 1.0)), RootPolicy(2, 1.0))


def test_a_narrow_excess_is_found():
    """A step of unit splitting pokes through a cap for sizes just above 1000 only."""
    steps = UnitSplittingPolicy(1000.0, 1000.0)  # ½⌈Δ/1000⌉²
    cap = SumPolicy((ConstantPolicy(0.5), RootPolicy(1, 820.0)))
    sizes = np.geomspace(1, 1e5, 200_000)
    exceeded = sizes[steps(sizes) > cap(sizes)]
    assert exceeded.size
    with pytest.raises(ss.CapError) as caught:
        check("x", total(steps), cap)
    assert caught.value.influence == pytest.approx(exceeded[0], rel=1e-3)


def test_the_smallest_size_is_named_where_steps_differ():
    """Steps of 5 against steps of 5.0000001: refused, at a size where it is so."""
    steps, cap = UnitSplittingPolicy(5.0, 10.0), UnitSplittingPolicy(5.0000001, 10.0 * 5.0000001 / 5)
    with pytest.raises(ss.CapError) as caught:
        check("x", total(steps), cap)
    assert steps(caught.value.influence) > cap(caught.value.influence)


def test_one_percent_below_is_shown_and_one_percent_above_is_not():
    spent = total(ss.ExponentialPolylog(0.3).policy, LogPolicy(0.5))
    close = SumPolicy((ss.ExponentialPolylog(0.303).policy, LogPolicy(0.5 / math.sqrt(1.01))))
    check("x", spent, close)
    with pytest.raises(ss.CapError):
        check(
            "x",
            total(ss.ExponentialPolylog(0.303).policy, LogPolicy(0.5)),
            SumPolicy((ss.ExponentialPolylog(0.3).policy, LogPolicy(0.5))),
        )


def test_rounding_is_no_excess():
    check("x", total(*[ConstantPolicy(0.1)] * 250), ConstantPolicy(25.0))
    check("x", total(*[RootPolicy(1, 7.3)] * 250), RootPolicy(1, 7.3 / math.sqrt(250)))


def test_counts_are_compared_at_one():
    check_at("count", 0.5, RootPolicy(1, 1.0), 1.0)
    with pytest.raises(ss.CapError, match="the cap on 'count' would be exceeded"):
        check_at("count", 0.51, RootPolicy(1, 1.0), 1.0)


def test_the_grid_covers_every_size():
    assert GRID[0] == 0
    assert GRID[1] <= 1e-60
    assert GRID[-1] >= 0.99e100
    assert (np.diff(GRID) > 0).all()
