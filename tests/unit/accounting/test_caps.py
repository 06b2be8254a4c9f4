"""Caps: a charge is refused exactly if it exceeds a cap at some size, for policies of all shapes."""

import copy
import math
import pickle
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from helpers.errors import refused as expected
from helpers.strategies import plain_policies
from hypothesis import given, settings
from hypothesis import strategies as st

import slowscale as ss
from slowscale.accounting.caps import GRID, TOLERANCE, Total, check, check_at, describe_change
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
    parts = sum(times * shape(sizes) for shape, times in policy.shapes().items())
    np.testing.assert_allclose(parts, policy(sizes), rtol=1e-12)


def test_an_error_names_the_sizes_that_exceed_the_cap():
    """A root (k = 2) exceeds a Gaussian cap below a size, and a Gaussian exceeds a root cap above a size."""
    gaussian, root = RootPolicy(k=1, sigma=100.0), RootPolicy(k=2, sigma=1.0)  # Δ²/20,000 and Δ/2: equal at 10,000
    above = refused(total(gaussian), root)
    assert above.ranges == ((pytest.approx(10_000, rel=1e-3), math.inf),)
    assert "the cap on 'x' would be exceeded, for records above 10,000: a record of size 20,000" in str(above)
    below = refused(total(root), gaussian)
    assert below.ranges == ((0, pytest.approx(10_000, rel=1e-3)),)
    assert "would be exceeded, for records below about 10,000: a record of size 100 would lose a total of 50" in str(
        below
    )
    small = refused(total(root), RootPolicy(k=1, sigma=0.5))  # Δ/2 and 2Δ²: equal at 0.25
    assert "would be exceeded, for small records, below about 0.25: a record of size 0.1 would" in str(small)
    every = refused(total(root, root), root)
    assert every.ranges == ((0, math.inf),)
    assert "would be exceeded, for records of every size: a record of size 2 would lose a total of 2" in str(every)


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
    assert any(low <= refusal.influence <= high for low, high in refusal.ranges)


@pytest.mark.parametrize(
    "policy", [RootPolicy(k=1, sigma=75.0), RootPolicy(k=4, sigma=0.3), LogPolicy(sigma=0.5), ConstantPolicy(0.01)]
)
def test_the_example_size_is_a_familiar_one(policy):
    """If the cap is exceeded at every size, the example is one where the cap is near 1, not the smallest size."""
    refusal = refused(total(*[policy] * 3), 2 * policy)
    assert refusal.sizes == "for records of every size"
    assert 1e-4 <= refusal.influence <= 1e4
    assert float(f"{refusal.influence:.1g}") == pytest.approx(refusal.influence)


def test_sizes_at_both_ends_are_not_called_every_size():
    spent = total(ConstantPolicy(0.5), RootPolicy(k=1, sigma=100.0))
    refusal = refused(spent, RootPolicy(k=2, sigma=1.0))  # below 1, and above 10,000
    assert refusal.sizes == "for records below about 1 and above 10,000"


def test_a_refusal_survives_copy_and_pickle():
    refusal = refused(total(*[RootPolicy(k=1, sigma=10.0)] * 3), RootPolicy(k=1, sigma=10.0))
    refusal = replace(refusal, before=0.5, made=2, fits="Gaussian(sigma=20) would still fit")
    for again in (pickle.loads(pickle.dumps(refusal)), copy.copy(refusal), copy.deepcopy(refusal)):
        assert type(again) is ss.CapError
        assert str(again) == str(refusal)
        assert vars(again) == vars(refusal)
        assert again.args == refusal.args


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (RootPolicy(k=1, sigma=10.0), 3 * RootPolicy(k=1, sigma=10.0), "The new cap is nowhere lower than the old one"),
        (
            3 * RootPolicy(k=1, sigma=10.0),
            RootPolicy(k=1, sigma=10.0),
            "The new cap is LOWER than the old one, and nowhere higher",
        ),
        (RootPolicy(k=1, sigma=10.0), RootPolicy(k=1, sigma=10.0), "The new cap is the same as the old one"),
        (
            RootPolicy(k=1, sigma=100.0),
            RootPolicy(k=2, sigma=1.0),
            "The new cap is LOWER than the old one for records above 10,000, and higher for records below about 10,000",
        ),
    ],
)
def test_a_change_of_cap_is_described(old, new, words):
    assert describe_change("x", old, new) == words


def test_a_narrow_excess_is_found():
    """A step of unit splitting exceeds a cap only for sizes just above 1000."""
    steps = UnitSplittingPolicy(threshold=1000.0, sigma=1000.0)  # ½⌈Δ/1000⌉²
    cap = SumPolicy((ConstantPolicy(0.5), RootPolicy(k=1, sigma=820.0)))
    sizes = np.geomspace(1, 1e5, 200_000)
    exceeded = sizes[steps(sizes) > cap(sizes)]
    assert exceeded.size
    with pytest.raises(ss.CapError) as caught:
        check("x", total(steps), cap)
    assert caught.value.ranges[0][0] == pytest.approx(exceeded[0], rel=1e-3)
    assert steps(caught.value.influence) > cap(caught.value.influence)


@pytest.mark.parametrize("sigma", [1.0, 2.0])
def test_an_excess_between_two_neighbouring_points_of_the_grid_is_found(sigma):
    """The steps of the total and of the cap are both between two points of the grid, so no point shows the excess."""
    size = float(GRID[np.searchsorted(GRID, 1000.0)])
    early, late = 1.05 * size, 1.10 * size
    steps = UnitSplittingPolicy(threshold=early, sigma=sigma * early)  # ½⌈Δ/early⌉² / sigma²
    cap = SumPolicy((UnitSplittingPolicy(threshold=late, sigma=sigma * late), RootPolicy(k=1, sigma=sigma * size)))
    spent = total(steps)
    assert (spent.losses <= cap(GRID)).all()
    between = math.sqrt(early * late)
    assert steps(between) > 1.5 * cap(between)
    refusal = refused(spent, cap)
    assert refusal is not None
    assert not refusal.close
    assert early < refusal.influence <= late
    assert refusal.spent > refusal.cap
    assert refusal.ranges == ((refusal.influence, refusal.influence),)


def test_an_excess_at_zero_alone_is_found():
    """Unit splitting costs nothing at 0, and the same for all other small records; a constant loss exceeds it at 0."""
    cap = UnitSplittingPolicy(threshold=1000.0, sigma=1000.0)  # 0 at 0, then ½, then more
    refusal = refused(total(ConstantPolicy(0.5)), cap)
    assert refusal is not None
    assert (refusal.influence, refusal.spent, refusal.cap) == (0, 0.5, 0)
    assert refusal.ranges == ((0, 0),)


def test_a_cap_of_zero_allows_no_loss():
    nothing = ConstantPolicy(0.0)
    check("x", total(nothing, nothing), nothing)
    check_at("count", 0.0, nothing, 1.0)
    refusal = refused(total(RootPolicy(k=1, sigma=1.0)), nothing)
    assert (refusal.influence, refusal.spent, refusal.cap) == (1, 0.5, 0)
    assert refusal.sizes == "for records of every size"
    with pytest.raises(ss.CapError):
        check_at("count", 5e-324, nothing, 1.0)


@pytest.mark.parametrize(
    "policy", [LogPolicy(sigma=5e162, a=1e-300), RootPolicy(k=1, sigma=1e-170), RootPolicy(k=4, sigma=1e-170)]
)
def test_a_policy_whose_coefficient_cannot_be_represented_is_refused(policy):
    """1/sigma² is 0 or infinite as a float. If it was taken as 0, the charge would be free."""
    (times,) = policy.shapes().values()
    assert times in (0, math.inf)
    with np.errstate(over="ignore"):
        assert policy(1.0) > 0
    for spent in (Total.zero(), total(RootPolicy(k=1, sigma=1.0))):
        with expected(ss.ParameterError, "the policy", code="out-of-range"):
            spent.plus([policy])


def crossing(at):
    """Return a Gaussian and a root policy, Δ²/(2·at) and Δ/2, of which the Gaussian is larger above a size."""
    return RootPolicy(k=1, sigma=math.sqrt(at)), RootPolicy(k=2, sigma=1.0)


@pytest.mark.parametrize("at", [1.1e-60, 1e-40, 0.5e-30, 1.5e-30, 1.9e-30, 1e20, 1e40, 0.9e100])
def test_ends_of_ranges_beyond_the_horizon_are_not_reported(at):
    """No real record is below 10⁻³⁰ or above 10³⁰. The check covers such sizes, and an error does not mention them."""
    gaussian, root = crossing(at)
    above, below = refused(total(gaussian), root), refused(total(root), gaussian)
    (low, end), (start, high) = above.ranges[0], below.ranges[0]
    assert end == math.inf
    assert low == (pytest.approx(at, rel=2e-4, abs=0) if at >= 1e-30 else 0)
    assert start == 0
    assert high == (pytest.approx(at, rel=2e-4, abs=0) if at <= 1e30 else math.inf)
    for refusal in (above, below):
        assert any(first <= refusal.influence <= last for first, last in refusal.ranges)
        assert refusal.influence > 0
        assert refusal.spent > refusal.cap
    # A round example is inside the horizon, or near it; otherwise the example is the end of the range.
    assert below.influence == float(f"{below.influence:.1e}") or at < 1e-30
    assert below.influence == high or at >= 1e-30
    assert above.influence == low or at <= 1e30


@pytest.mark.parametrize(("end", "example"), [(1e-40, 20_000), (2.8e-30, 1e-30)])
def test_an_example_is_taken_from_inside_the_horizon_if_possible(end, example):
    """The cap is near 1 in a range of small sizes, and 10³³ or more in a range above 10,000, which is also exceeded."""
    slope = 0.5 / end
    spent = total(ConstantPolicy(1.5), RootPolicy(k=1, sigma=math.sqrt(1e4 / (2 * slope))))  # 1.5 + slope·Δ²/10,000
    refusal = refused(
        spent, SumPolicy((ConstantPolicy(1.0), RootPolicy(k=2, sigma=math.sqrt(1 / (2 * slope)))))
    )  # 1 + slope·Δ
    assert [high for _, high in refusal.ranges] == [pytest.approx(end, rel=2e-4, abs=0), math.inf]
    assert refusal.ranges[1][0] == pytest.approx(1e4, rel=2e-4)
    assert refusal.influence == example


def between(low, high, near):
    """Return a total that exceeds a cap exactly between two sizes, and that cap, which is 1 at the size `near`."""
    weight = 1 / (low * high + near**2)  # the excess is -(Δ - low)(Δ - high) times this weight
    spent = RootPolicy(k=2, sigma=1 / math.sqrt(2 * (low + high) * weight))
    cap = SumPolicy((ConstantPolicy(low * high * weight), RootPolicy(k=1, sigma=math.sqrt(0.5 / weight))))
    return total(spent), cap


@pytest.mark.parametrize(
    ("low", "high", "near", "example"),
    [
        (10, 100, 0.1, 20),  # the cap is nearest to 1 at the lower end: stay a factor of 2 away from it
        (10, 100, 30, 30),
        (10, 100, 1e4, 50),  # at the upper end
        (10, 35, 0.1, 20),
        (10, 25, 0.1, 12),  # too narrow for a factor of 2 from both ends: from the upper one
        (10, 25, 1e4, 12),
        (10, 15, 0.1, 11),  # too narrow for either: a round number near the end
        (10, 15, 1e4, 13),
        (1e6, 1e9, 3e7, 3e7),
    ],
)
def test_the_example_is_round_and_away_from_the_ends_of_the_range(low, high, near, example):
    refusal = refused(*between(low, high, near))
    assert refusal.ranges == ((pytest.approx(low, rel=2e-4), pytest.approx(high, rel=2e-4)),)
    assert refusal.influence == example
    assert refusal.spent > refusal.cap


def steps_at(early, late, times=1.0):
    """Return steps of `times`·n² at multiples of `early` and, as a cap, at multiples of `late`."""
    early_steps, late_steps = (
        UnitSplittingPolicy(threshold=step, sigma=step / math.sqrt(2 * times)) for step in (early, late)
    )
    return total(early_steps), late_steps


def test_every_range_is_reported_where_steps_differ():
    """Steps of 47 exceed steps of 51 in the ranges n·47 to n·51; one point of the grid lies between two of them."""
    size = float(GRID[np.searchsorted(GRID, 100.0)])
    early, late = 0.47 * size, 0.51 * size
    refusal = refused(*steps_at(early, late))
    expected = [(times * early, times * late) for times in (1, 2, 3)]
    assert [pytest.approx(one, rel=2e-4) for one in expected] == list(refusal.ranges[:3])
    assert refusal.ranges[0][0] <= refusal.influence <= refusal.ranges[0][1]  # where the cap is 1


def test_the_example_is_in_the_range_that_is_reported():
    """In the range 141 to 153 the nearest round size would be 100, which exceeds the cap too, in another range."""
    size = float(GRID[np.searchsorted(GRID, 141.0)])
    assert 141 < size < 153
    refusal = refused(*steps_at(47.0, 51.0, times=1 / 9))  # the cap is 1 from 102 to 153
    assert (pytest.approx(141, rel=2e-4), pytest.approx(153, rel=2e-4)) in refusal.ranges
    assert refusal.influence == 150


def test_a_point_of_the_grid_at_the_end_of_a_range_belongs_to_it():
    """The only point of the grid in the range is its end. A round size beside it is the example."""
    size = float(GRID[np.searchsorted(GRID, 72.0)])
    assert 72.8 < size < 73
    refusal = refused(*steps_at(size * (1 - 1e-5), 1.01 * size))
    assert (refusal.ranges[0][0], refusal.influence) == (size, 73)
    size = float(GRID[np.searchsorted(GRID, 61.0)])
    assert 61 < size < 61.5
    refusal = refused(*steps_at(0.99 * size, size * (1 + 1e-5)))
    assert (refusal.ranges[0][1], refusal.influence) == (size, 61)


def test_the_smallest_size_is_named_where_steps_differ():
    """Steps of 5 against steps of 5.0000001 are refused, at a size that exceeds the cap."""
    steps, cap = (
        UnitSplittingPolicy(threshold=5.0, sigma=10.0),
        UnitSplittingPolicy(threshold=5.0000001, sigma=10.0 * 5.0000001 / 5),
    )
    with pytest.raises(ss.CapError) as caught:
        check("x", total(steps), cap)
    assert steps(caught.value.influence) > cap(caught.value.influence)


def test_one_percent_below_is_accepted_and_one_percent_above_is_refused():
    spent = total(ss.ExponentialPolylog(d=0.3).policy, LogPolicy(sigma=0.5))
    close = SumPolicy((ss.ExponentialPolylog(d=0.303).policy, LogPolicy(sigma=0.5 / math.sqrt(1.01))))
    check("x", spent, close)
    with pytest.raises(ss.CapError):
        check(
            "x",
            total(ss.ExponentialPolylog(d=0.303).policy, LogPolicy(sigma=0.5)),
            SumPolicy((ss.ExponentialPolylog(d=0.3).policy, LogPolicy(sigma=0.5))),
        )


def test_a_total_that_takes_too_long_to_compare_is_refused(monkeypatch):
    """It is below the cap at every size, but a proof that is not completed is none."""
    spent, cap = (
        total(RootPolicy(k=2, sigma=1.0)),
        SumPolicy((ConstantPolicy(0.13), RootPolicy(k=1, sigma=1.0))),
    )  # Δ/2, 0.13 + Δ²/2
    check("x", spent, cap)
    monkeypatch.setattr("slowscale.accounting.caps.MOST_EVALUATIONS", 10)
    refusal = refused(spent, cap)
    assert refusal.close
    assert 0.1 < refusal.influence < 1  # the total comes nearest to the cap at ½
    assert refusal.spent == refusal.influence / 2 < refusal.cap
    assert "the total of 'x' is too close to its cap to tell whether it is exceeded" in str(refusal)


def test_rounding_does_not_exceed_a_cap():
    check("x", total(*[ConstantPolicy(0.1)] * 250), ConstantPolicy(25.0))
    check("x", total(*[RootPolicy(k=1, sigma=7.3)] * 250), RootPolicy(k=1, sigma=7.3 / math.sqrt(250)))


def test_counts_are_compared_at_one():
    check_at("count", 0.5, RootPolicy(k=1, sigma=1.0), 1.0)
    with expected(ss.CapError, "the cap on 'count'"):
        check_at("count", 0.51, RootPolicy(k=1, sigma=1.0), 1.0)


def test_a_total_is_a_value():
    """Copies of an account share their totals."""
    spent = total(RootPolicy(k=1, sigma=1.0))
    with pytest.raises(FrozenInstanceError):
        spent.losses = None


def test_the_grid_covers_every_size():
    assert GRID[0] == 0
    assert GRID[1] <= 1e-60
    assert GRID[-1] >= 0.99e100
    assert (np.diff(GRID) > 0).all()
