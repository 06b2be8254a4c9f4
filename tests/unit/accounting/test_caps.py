"""Caps: a charge is refused exactly if it exceeds a cap at some size, for policies of all shapes."""

import copy
import math
import pickle

import numpy as np
import pytest
from helpers.strategies import plain_policies
from hypothesis import given, settings
from hypothesis import strategies as st

import slowscale as ss
from slowscale.accounting.caps import GRID, TOLERANCE, Total, check, check_at, coefficients, describe_change
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
def test_the_verdict_agrees_with_many_sample_points(spent_policies, cap_policies):
    """A total that is accepted is below the cap at 30,000 sizes; one that is refused is above it at the named size."""
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
        assert here == pytest.approx(refusal.spent)
        assert refusal.spent > refusal.cap


@given(plain_policies)
def test_coefficients_reproduce_the_policy(policy):
    sizes = np.geomspace(1e-3, 1e9, 50)
    parts = sum(times * shape(sizes) for shape, times in coefficients(policy).items())
    np.testing.assert_allclose(parts, policy(sizes), rtol=1e-12)


def test_an_error_names_the_sizes_that_exceed_the_cap():
    """A root (k = 2) exceeds a Gaussian cap below a size, and a Gaussian exceeds a root cap above a size."""
    gaussian, root = RootPolicy(1, 100.0), RootPolicy(2, 1.0)  # Δ²/20,000 and Δ/2: equal at 10,000
    above = refused(total(gaussian), root)
    assert (above.low, above.high) == (pytest.approx(10_000, rel=1e-3), math.inf)
    assert "the cap on 'x' would be exceeded, for records above 10,000: a record of size 20,000" in str(above)
    below = refused(total(root), gaussian)
    assert (below.low, below.high) == (0, pytest.approx(10_000, rel=1e-3))
    assert "would be exceeded, for records below about 10,000: a record of size 100 would lose 50 in all" in str(below)
    small = refused(total(root), RootPolicy(1, 0.5))  # Δ/2 and 2Δ²: equal at 0.25
    assert "would be exceeded, for small records, below about 0.25: a record of size 0.1 would" in str(small)
    every = refused(total(root, root), root)
    assert (every.low, every.high) == (0, math.inf)
    assert "would be exceeded, for records of every size: a record of size 2 would lose 2 in all" in str(every)


@given(st.lists(plain_policies, min_size=1, max_size=2), st.lists(plain_policies, min_size=1, max_size=2))
@settings(max_examples=100)
def test_the_numbers_of_a_refusal_are_consistent(spent_policies, cap_policies):
    spent, cap = total(*spent_policies), SumPolicy(tuple(cap_policies))
    refusal = refused(spent, cap)
    if refusal is None or refusal.close:
        return
    assert refusal.cap == cap(refusal.influence)
    assert refusal.spent == pytest.approx(sum(policy(refusal.influence) for policy in spent_policies))
    assert refusal.spent > refusal.cap
    assert refusal.low <= refusal.influence <= refusal.high


@pytest.mark.parametrize("policy", [RootPolicy(1, 75.0), RootPolicy(4, 0.3), LogPolicy(0.5), ConstantPolicy(0.01)])
def test_the_example_size_is_a_familiar_one(policy):
    """If the cap is exceeded at every size, the example is one where the cap is near 1, not the smallest size."""
    refusal = refused(total(*[policy] * 3), 2 * policy)
    assert refusal.sizes == "for records of every size"
    assert 1e-4 <= refusal.influence <= 1e4
    assert float(f"{refusal.influence:.1g}") == pytest.approx(refusal.influence)


def test_sizes_at_both_ends_are_not_called_every_size():
    spent = total(ConstantPolicy(0.5), RootPolicy(1, 100.0))
    refusal = refused(spent, RootPolicy(2, 1.0))  # below 1, and above 10,000
    assert refusal.sizes == "for records below about 1 and above 10,000"


def test_a_refusal_survives_copy_and_pickle():
    refusal = refused(total(*[RootPolicy(1, 10.0)] * 3), RootPolicy(1, 10.0))
    refusal = refusal.with_facts(before=0.5, made=2, fits="Gaussian(sigma=20) would still fit")
    for again in (pickle.loads(pickle.dumps(refusal)), copy.copy(refusal), copy.deepcopy(refusal)):
        assert type(again) is ss.CapError
        assert str(again) == str(refusal)
        assert vars(again) == vars(refusal)
        assert again.args == refusal.args


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (RootPolicy(1, 10.0), 3 * RootPolicy(1, 10.0), "The new cap is nowhere lower than the old one"),
        (3 * RootPolicy(1, 10.0), RootPolicy(1, 10.0), "The new cap is LOWER than the old one, and nowhere higher"),
        (RootPolicy(1, 10.0), RootPolicy(1, 10.0), "The new cap is the same as the old one"),
        (
            RootPolicy(1, 100.0),
            RootPolicy(2, 1.0),
            "The new cap is LOWER than the old one for records above 10,000, and higher for records below about 10,000",
        ),
    ],
)
def test_a_change_of_cap_is_described(old, new, words):
    assert describe_change("x", old, new) == words


def test_a_narrow_excess_is_found():
    """A step of unit splitting exceeds a cap only for sizes just above 1000."""
    steps = UnitSplittingPolicy(1000.0, 1000.0)  # ½⌈Δ/1000⌉²
    cap = SumPolicy((ConstantPolicy(0.5), RootPolicy(1, 820.0)))
    sizes = np.geomspace(1, 1e5, 200_000)
    exceeded = sizes[steps(sizes) > cap(sizes)]
    assert exceeded.size
    with pytest.raises(ss.CapError) as caught:
        check("x", total(steps), cap)
    assert caught.value.low == pytest.approx(exceeded[0], rel=1e-3)
    assert steps(caught.value.influence) > cap(caught.value.influence)


def test_an_excess_between_two_neighbouring_points_of_the_grid_is_found():
    """The steps of the total and of the cap are both between two points of the grid, so no point shows the excess."""
    size = float(GRID[np.searchsorted(GRID, 1000.0)])
    early, late = 1.05 * size, 1.10 * size
    steps = UnitSplittingPolicy(early, early)  # ½⌈Δ/early⌉²
    cap = SumPolicy((UnitSplittingPolicy(late, late), RootPolicy(1, size)))  # ½⌈Δ/late⌉² + ½(Δ/size)²
    spent = total(steps)
    assert (spent.losses <= cap(GRID)).all()
    between = math.sqrt(early * late)
    assert steps(between) > 1.5 * cap(between)
    refusal = refused(spent, cap)
    assert refusal is not None
    assert not refusal.close
    assert early < refusal.influence <= late
    assert refusal.spent > refusal.cap


def test_the_smallest_size_is_named_where_steps_differ():
    """Steps of 5 against steps of 5.0000001 are refused, at a size that exceeds the cap."""
    steps, cap = UnitSplittingPolicy(5.0, 10.0), UnitSplittingPolicy(5.0000001, 10.0 * 5.0000001 / 5)
    with pytest.raises(ss.CapError) as caught:
        check("x", total(steps), cap)
    assert steps(caught.value.influence) > cap(caught.value.influence)


def test_one_percent_below_is_accepted_and_one_percent_above_is_refused():
    spent = total(ss.ExponentialPolylog(0.3).policy, LogPolicy(0.5))
    close = SumPolicy((ss.ExponentialPolylog(0.303).policy, LogPolicy(0.5 / math.sqrt(1.01))))
    check("x", spent, close)
    with pytest.raises(ss.CapError):
        check(
            "x",
            total(ss.ExponentialPolylog(0.303).policy, LogPolicy(0.5)),
            SumPolicy((ss.ExponentialPolylog(0.3).policy, LogPolicy(0.5))),
        )


def test_rounding_does_not_exceed_a_cap():
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
