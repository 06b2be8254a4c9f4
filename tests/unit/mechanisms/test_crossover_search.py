"""The parts of the search for crossovers: spans, ends, jumps, and what lies between two points of a grid."""

import math

import numpy as np
import pytest

import slowscale as ss
from slowscale.mechanisms import crossovers
from slowscale.mechanisms.crossovers import (
    _bisect,
    _Difference,
    _equal_edges,
    _minimum,
    _refined,
    _sign_changes,
    default_span,
    find_crossovers,
    least_losses,
)

NO_SIZES = np.empty(0)


def difference_of(excess):
    """A difference whose relative size is about `excess`."""
    return _Difference(lambda x: 1 + excess(x), np.ones_like, np.zeros_like)


def places(one, two, low, high):
    return find_crossovers(one.policy, two.policy, low, high).places.tolist()


def levels(*pairs):
    """A policy whose loss is constant from each size on."""
    sizes, losses = zip(*pairs, strict=True)
    return lambda x: np.array([0.0, *losses])[np.searchsorted(sizes, x * 1.001)]


@pytest.mark.parametrize(
    ("policy", "span"),
    [
        (ss.Gaussian(1e-298).policy, (1e-300, 1e-296)),  # rises beyond 1e-4 at the second size of all
        (ss.Gaussian(1e-299).policy, (1e-300, 1e-297)),
        (ss.Gaussian(1e302).policy, (1, 1e300)),  # stays below 1e-4
        (ss.UnitSplitting(1e6, 1).policy, (1e6, 1e7)),  # beyond 100 from the smallest size on
        (levels((1e-8, 1e-4), (1e3, 200)), (1e2, 1e3)),  # 1e-4 itself is not beyond
        (levels((1e-8, 2e-4), (1e3, 200)), (1e-9, 1e3)),
        (levels((1e-8, 1), (1e3, 100), (1e5, 200)), (1e-9, 1e3)),  # 100 itself is the end
        (levels((1e-8, 1), (1e3, 99.5), (1e5, 100.5)), (1e-9, 1e5)),
        (levels((0, 1), (1e-3, 1.01), (1e3, 200)), (1e2, 1e3)),  # rises by more than 1 % later
        (levels((0, 1), (1e-3, 1.5), (1e3, 200)), (1e-4, 1e3)),
        (levels((0, 1), (1e-299, 1.5), (1e3, 200)), (1e-300, 1e3)),
        (lambda x: np.where(x < 1e-250, np.nan, x), (1e-4, 1e2)),  # unknown losses do not count
    ],
)
def test_the_span_without_sizes_is_where_the_losses_rise(policy, span):
    assert default_span(NO_SIZES, [policy]) == pytest.approx(span, rel=1e-12, abs=0)


@pytest.mark.parametrize("size", [1e302, 1e305, 1e-305])
def test_sizes_beyond_the_limits_are_searched_between_them(size):
    assert default_span(np.array([size]), []) == (1e-300, 1e300)


@pytest.mark.parametrize(("low", "high"), [(1.01, 100), (1.001, 100), (0.01, 0.99), (0.01, 0.999)])
def test_a_crossover_just_beyond_an_end_is_not_listed(low, high):
    assert places(ss.Gaussian(1), ss.Root(2, 1), low, high) == []
    assert places(ss.Gaussian(5), ss.UnitSplitting(10, 10), 5 * low, min(5 * high, 9)) == []


def test_where_equal_losses_end_just_beyond_the_span_the_best_ends_with_the_span():
    straight = ss.Gaussian(1)
    bent = ss.Transformation(
        lambda x: np.minimum(x, 0.5 * np.asarray(x) + 5), lambda y: np.maximum(y, 2 * np.asarray(y) - 10), 1, 0
    )
    found = ss.compare({"straight": straight, "bent": bent}, within=(0.01, 9.9))
    assert [(start, end) for start, end, _ in found.best] == [(0.01, 9.9)]


def test_a_crossover_between_jumps_is_found_up_to_both_ends():
    # 1/2 up to 10, and x²/50.
    one, two = ss.UnitSplitting(10, 10), ss.Gaussian(5)
    for low, high in [(1, 5), (5, 9), (1, 5.02), (4.98, 9)]:
        assert places(one, two, low, high) == pytest.approx([5], rel=1e-12)


@pytest.mark.parametrize("swapped", [False, True])
def test_every_jump_that_is_a_crossover_is_found_up_to_both_ends(swapped):
    # ⌈x⌉ exceeds x/s from each whole k up to s·(k + 1), while k/s < k + 1.
    s = 0.98431
    one, two = (ss.Gaussian(s), ss.UnitSplitting(1, 1)) if swapped else (ss.UnitSplitting(1, 1), ss.Gaussian(s))
    jumps = [float(k) for k in range(1, 63)]
    expected = np.sort([s, *jumps, *(s * (k + 1) for k in jumps)])
    assert places(one, two, 0.1, 500) == pytest.approx(expected, rel=1e-12)
    ends = [1.0, s * 2, 2.0, 30.0, s * 31, s * 51, 50.0, 51.0, 62.0, s * 63]
    for low in ends:
        for high in (end for end in ends if end > low):
            inside = expected[(expected >= low * (1 - 1e-13)) & (expected <= high * (1 + 1e-13))]
            assert places(one, two, low, high) == pytest.approx(inside, rel=1e-12)


@pytest.mark.parametrize("names", [("split", "Gaussian"), ("Gaussian", "split")])
def test_the_least_loss_changes_at_every_jump_that_is_a_crossover(names):
    both = {"split": ss.UnitSplitting(1, 1), "Gaussian": ss.Gaussian(0.98431)}
    best = ss.compare({name: both[name] for name in names}, within=(0.5, 62.5)).best
    assert [name for *_, name in best] == ["Gaussian", "split"] * 63
    assert [start for start, *_ in best][2::2] == pytest.approx(np.arange(1, 63), rel=1e-12)


def test_the_jumps_of_two_policies_are_all_compared():
    # ⌈x⌉ and 1.01·⌈x/1.01⌉ change their order at every whole k and at every 1.01·k.
    expected = np.sort([scale * k for k in range(1, 41) for scale in (1, 1.01)])
    one, two = ss.UnitSplitting(1, 1), ss.UnitSplitting(1.01, 1)
    found = find_crossovers(one.policy, two.policy, 1, 40.4)
    assert found.places == pytest.approx(expected, rel=1e-12)
    assert found.signs.tolist() == [-1, 1] * 40
    assert found.end == 40.4


@pytest.mark.parametrize("piece", [1, 2, 0.5])
@pytest.mark.parametrize("low", [0.5, 0.51, 0.52, 0.53, 0.54])
def test_an_early_end_is_named_and_everything_up_to_it_is_found(piece, low, monkeypatch):
    monkeypatch.setattr(crossovers, "MOST_JUMPS", 50)
    one, two = ss.UnitSplitting(piece, piece), ss.UnitSplitting(1.01 * piece, piece)
    found = find_crossovers(one.policy, two.policy, low * piece, 1e4 * piece)
    assert found.end == 51 * piece
    expected = np.sort([scale * k for k in range(1, 52) for scale in (1, 1.01) if scale * k <= 51])
    assert found.places / piece == pytest.approx(expected, rel=1e-12)


def test_where_the_bounds_of_a_step_policy_settle_the_order_jumps_are_not_counted():
    split, gaussian = ss.UnitSplitting(1, 1), ss.Gaussian(1)
    for one, two in ((split, gaussian), (gaussian, split)):
        found = find_crossovers(one.policy, two.policy, 1, 1e9)
        assert found.end == 1e9
        assert not found.places.size


def test_a_stretch_without_a_least_policy_is_named_once():
    # The policies cross at 1, between two breakpoints.
    policies = {"Gaussian": ss.Gaussian(1).policy, "root": ss.Root(2, 1).policy}
    found = least_losses(policies, np.array([0.01, 0.1, 10, 100]))
    assert [(start, end) for start, end, _ in found] == [(0.01, 0.1), (0.1, 10), (10, 100)]
    assert (found[0][2], found[2][2]) == ("Gaussian", "root")


@pytest.mark.parametrize("change", [1.6, 2.6, 3.6, 4.6, 5.6])
def test_the_cells_beside_a_change_of_sign_are_refined_too(change):
    grid = np.arange(1.0, 7.0)
    refined = _refined(difference_of(lambda x: np.where(x < change, 0.5, -0.5)), grid)
    fine = set(np.floor(refined[:-1][np.diff(refined) < 0.1]))
    assert fine == {
        cell for cell in (math.floor(change) - 1, math.floor(change), math.floor(change) + 1) if 1 <= cell <= 5
    }


@pytest.mark.parametrize("place", [1.0, 2.0, 5.0, 6.0])
def test_both_cells_beside_a_touching_point_are_refined(place):
    grid = np.arange(1.0, 7.0)
    refined = _refined(difference_of(lambda x: (x - place) ** 2 / 99), grid)
    fine = set(np.floor(refined[:-1][np.diff(refined) < 0.1]))
    assert fine == {cell for cell in (place - 1, place) if 1 <= cell <= 5}


@pytest.mark.parametrize("place", [1.0001, 5.9999])
def test_the_least_difference_in_the_first_and_last_cell_is_found(place):
    refined = _refined(difference_of(lambda x: (x - place) ** 2), np.arange(1.0, 7.0))
    assert np.abs(refined - place).min() < 1e-6


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("gap", [1e-4, -1e-4])
def test_two_crossovers_of_which_one_is_on_the_grid_are_seen(sign, gap):
    difference = difference_of(lambda x: sign * (x - 3) * (x - 3 - gap))
    refined = _refined(difference, np.arange(1.0, 7.0))
    assert (difference.signs(refined) == -sign).any()


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("side", [1, -1])
def test_a_change_next_to_a_stretch_of_equal_losses_is_seen(sign, side):
    # Equal on one side of 3.5; on the other side the difference turns its sign after 4e-4.
    def excess(x):
        beyond = side * (x - 3.5)
        return np.where(beyond > 0, sign * beyond * (beyond - 4e-4), 0)

    difference = difference_of(excess)
    refined = _refined(difference, np.arange(1.0, 6.5, 0.5))
    assert (difference.signs(refined) == -sign).any()


def test_the_least_difference_is_sought_between_the_two_sizes_only():
    difference = difference_of(lambda x: np.minimum((x - 2.1) ** 2, (x - 5) ** 2 - 0.9))
    found = _minimum(difference, np.ones(1, np.int8), np.array([2.0]), np.array([3.0]))
    assert found == pytest.approx([2.1], abs=1e-6)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("noise", [-2e-15, 0, 2e-15])
def test_after_equal_losses_the_change_is_at_their_end_whatever_the_rounding(sign, noise):
    def excess(x):
        return sign * np.where(x < 2, (2 - x) / 9, np.where(x > 2.4, (2.4 - x) / 9, noise))

    found, before = _sign_changes(difference_of(excess), np.linspace(1.03, 5.03, 9))
    assert found == pytest.approx([2.4], rel=1e-9)
    assert before.tolist() == [sign]


def test_a_slow_change_is_placed_where_the_sign_changes():
    # Within 1e-4 of 2.5 the losses differ by less than what counts; they are equal at 2.5 only.
    found, _ = _sign_changes(difference_of(lambda x: (x - 2.5) ** 3), np.linspace(1.03, 5.03, 9))
    assert found == pytest.approx([2.5], abs=2e-5)


@pytest.mark.parametrize(("begin", "end"), [(1.5, 4.97), (2.0, 4.95), (1.06, 3.0)])
def test_equal_losses_that_begin_or_end_in_the_outer_cells(begin, end):
    difference = difference_of(lambda x: np.maximum(begin - x, 0) + np.maximum(x - end, 0))
    assert _equal_edges(difference, np.linspace(1.0, 5.0, 41)) == pytest.approx([begin, end], abs=1e-9)


def test_bisection_ends_with_neighbouring_floats():
    turns = np.array([1.3, np.nextafter(2.0, 0.0), 0.3051, 1e-300 * math.pi])
    low, high = np.array([1.0, 1.0, 0.3, 1e-300]), np.array([2.0, 2.0, 0.31, 1e-299])
    last, first = _bisect(lambda x: x <= turns, low, high)
    assert last.tolist() == turns.tolist()
    assert first.tolist() == np.nextafter(turns, math.inf).tolist()
