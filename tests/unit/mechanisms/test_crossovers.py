"""Every crossover is found, none is made up: against a scan that shares nothing with the search."""

import math
from itertools import combinations, pairwise

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar

import slowscale as ss
from slowscale.mechanisms.crossovers import _Difference, _equal_edges, _minimum, _refined

SPANS = [(1e-3, 1e6), (1, 1e4), (0.01, 100), (0.5, 2), (3e-7, 7e11)]


def scan(one, two, low, high):
    """Sizes with the sign of the difference of two policies: dense, and on both sides of every jump."""
    x = [np.exp(np.linspace(math.log(low), math.log(high), 12_007))]
    for m in (one, two):
        if isinstance(m, ss.UnitSplitting):
            jumps = m.threshold * np.arange(math.ceil(low / m.threshold), min(high / m.threshold, 1e6))
            x += [jumps * (1 - 1e-13), jumps * (1 + 1e-13)]
    x = np.unique(np.concatenate(x))
    x = np.unique(np.clip(x, low, high))
    p, q = one.policy(x), two.policy(x)
    clear = np.abs(p - q) > 1e-11 * np.maximum(p, q)
    return x[clear], np.sign(p - q)[clear]


def scanned_crossovers(one, two, low, high):
    """Where the scan sees the order change, each refined by bisection on the logarithms: (size, sign before)."""
    x, sign = scan(one, two, low * 0.9999, high * 1.0001)  # the ends themselves belong to the span

    def excess(at):
        return math.log(one.policy(at)) - math.log(two.policy(at))

    turns = np.flatnonzero(sign[:-1] != sign[1:])
    places = []
    for i in turns:
        between = np.linspace(x[i], x[i + 1], 9)[1:-1]
        if np.abs(one.policy(between) / two.policy(between) - 1).max() < 1e-14:  # equal for a while: the end counts
            places.append((x[i + 1], sign[i]))
        else:
            places.append((brentq(excess, x[i], x[i + 1], xtol=1e-300, rtol=1e-14), sign[i]))
    return [(at, sign) for at, sign in places if low * (1 - 1e-12) <= at <= high * (1 + 1e-12)]


def check_pair(one, two, low, high):
    """Compare what `compare` finds for two mechanisms with the scan."""
    found = ss.compare({"one": one, "two": two}, within=(low, high))
    assert found.searched == (low, high)
    expected = scanned_crossovers(one, two, low, high)
    assert [c.influence for c in found.crossovers] == pytest.approx([x for x, _ in expected], rel=1e-9)
    names = {-1: ("one", "two"), 1: ("two", "one")}
    assert [(c.below, c.above) for c in found.crossovers] == [names[int(sign)] for _, sign in expected]
    for c in found.crossovers:
        near = [max(m.policy(c.influence * (1 + d)) for m in (one, two)) for d in (-1e-9, 1e-9)]
        assert near[0] * (1 - 1e-7) <= c.loss <= near[1] * (1 + 1e-7)
    check_best(found, {"one": one, "two": two}, scan(one, two, low, high)[0])
    return found


def check_best(found, mechanisms, x):
    """The named mechanism is the least one, everywhere but within rounding of the ends of its stretch."""
    assert found.best[0][0] == found.searched[0]
    assert found.best[-1][1] == found.searched[1]
    assert all(one[1] == two[0] and one[2] != two[2] for one, two in pairwise(found.best))
    least = np.min([m.policy(x) for m in mechanisms.values()], axis=0)
    for start, end, name in found.best:
        inside = (x > start * (1 + 1e-9)) & (x < end * (1 - 1e-9))
        assert (mechanisms[name].policy(x[inside]) <= least[inside] * (1 + 1e-11)).all()


def mechanism(draw, is_round):
    """One mechanism of any kind, with parameters that are round or not."""

    def number(low, high, *choices):
        return float(draw.choice(choices)) if is_round else math.exp(draw.uniform(math.log(low), math.log(high)))

    kind = draw.integers(6)
    if kind == 0:
        return ss.Gaussian(number(0.05, 500, 0.1, 0.5, 1, 2, 10, 100))
    if kind == 1:
        return ss.GeneralizedGaussian(number(0.05, 500, 0.5, 1, 2, 10, 100), number(0.1, 1, 0.25, 0.5, 1))
    if kind == 2:
        p = number(1.2, 4, 2, 3)
        a = math.exp(p - 1) * (1 + number(1e-3, 100, 1, 9)) if draw.integers(2) else None
        return ss.ExponentialPolylog(number(0.1, 10, 0.5, 1, 2), number(0.1, 100, 1, 10), a, p)
    if kind == 3:
        a = number(0.01, 1000, 1, 10, 100) if draw.integers(2) else 0
        return ss.Root(int(draw.integers(1, 6)), number(0.05, 50, 0.1, 0.5, 1, 2, 10), a)
    if kind == 4:
        return ss.Log(number(0.02, 5, 0.1, 0.5, 1, 2), number(0.01, 1000, 1, 10, 100))
    return ss.UnitSplitting(number(1, 1000, 1, 2, 10, 100), number(0.5, 500, 1, 2, 10, 100))


def span(draw, *mechanisms):
    low, high = SPANS[draw.integers(len(SPANS))]
    for m in mechanisms:
        if isinstance(m, ss.UnitSplitting):  # the scan looks at every jump
            low, high = min(low, m.threshold / 2), min(high, 2000 * m.threshold)
    return low, high


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("is_round", [True, False])
def test_pairs(seed, is_round):
    draw = np.random.default_rng([seed, is_round])
    for _ in range(20):
        one, two = mechanism(draw, is_round), mechanism(draw, is_round)
        check_pair(one, two, *span(draw, one, two))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("is_round", [True, False])
def test_the_best_of_several(seed, is_round):
    draw = np.random.default_rng([99, seed, is_round])
    for _ in range(5):
        several = {str(i): mechanism(draw, is_round) for i in range(4)}
        low, high = span(draw, *several.values())
        found = ss.compare(several, within=(low, high))
        x = np.concatenate([scan(one, two, low, high)[0] for one, two in combinations(several.values(), 2)])
        check_best(found, several, x)


@pytest.mark.parametrize("exponent", [-200, -12, -3, 0, 3, 5, 12, 200])
def test_a_crossover_on_a_power_of_ten(exponent):
    # x²/(2·s²) and x/(2·s) are equal at s.
    s = 10.0**exponent
    gaussian, root = ss.Gaussian(s), ss.Root(2, math.sqrt(s))
    for within in [(s / 1000, s * 1000), (s, s * 100), (s / 100, s), (s / 3, s * 1e5)]:
        found = ss.compare({"Gaussian": gaussian, "root": root}, within=within)
        (crossing,) = found.crossovers
        assert crossing.influence == pytest.approx(s, rel=1e-13)
        assert (crossing.below, crossing.above) == ("Gaussian", "root")
        best = [("Gaussian", within[0], s), ("root", s, within[1])]
        expected = [(start, end, name) for name, start, end in best if start < end]
        assert [name for *_, name in found.best] == [name for *_, name in expected]


def test_order_of_the_mechanisms_does_not_matter():
    found = ss.compare({"root": ss.Root(2, 1), "Gaussian": ss.Gaussian(1)}, within=(0.001, 1000))
    (crossing,) = found.crossovers
    assert crossing[:2] == pytest.approx((1, 0.5), rel=1e-14)
    assert crossing[2:] == ("Gaussian", "root")
    assert found.best == ((0.001, crossing.influence, "Gaussian"), (crossing.influence, 1000.0, "root"))


def near_tangent(depth, a):
    """A fourth root and a log whose ratio dips to 1 − depth."""
    log = ss.Log(1, a)

    def ratio(t):
        return math.log(ss.Root(4, 1).policy(math.exp(t)) / log.policy(math.exp(t)))

    t = minimize_scalar(ratio, bounds=(math.log(a) - 3, math.log(a) + 8), method="bounded", options={"xatol": 1e-10})
    return ss.Root(4, math.sqrt(math.exp(t.fun) / (1 - depth))), log, math.exp(t.x)


@pytest.mark.parametrize("a", [0.1, 1, 7, 1000])
@pytest.mark.parametrize("depth", [1e-3, 1e-5, 1e-7, 1e-9])
def test_two_crossovers_in_one_cell(depth, a):
    root, log, at = near_tangent(depth, a)
    for within in [(at / 1e4, at * 1e4), (at / 1.5, at * 1.001e5), (at / (1 + 20 * math.sqrt(depth)), at * 100)]:
        found = ss.compare({"root": root, "log": log}, within=within)
        first, second = found.crossovers
        assert first.influence < at < second.influence
        assert (first.above, second.above) == ("root", "log")
        for c in found.crossovers:
            assert root.policy(c.influence) == pytest.approx(log.policy(c.influence), rel=1e-14)
        assert [name for *_, name in found.best] == ["log", "root", "log"]


@pytest.mark.parametrize("depth", [-1e-3, -1e-7, -1e-10, 0])
def test_policies_that_only_touch_do_not_cross(depth):
    root, log, at = near_tangent(depth, 1)
    found = ss.compare({"root": root, "log": log}, within=(at / 1e4, at * 1e4))
    assert not found.crossovers
    assert found.best == ((at / 1e4, at * 1e4, "log"),)


def lines(*pieces):
    """A transformation by the least of several lines (slope, height), as a mechanism."""
    return ss.Transformation(
        lambda x: np.min([slope * np.asarray(x) + height for slope, height in pieces], axis=0),
        lambda y: np.max([(np.asarray(y) - height) / slope for slope, height in pieces], axis=0),
        1,
        0,
    )


def test_policies_that_are_equal_for_a_while():
    # Equal from 1 to 10; one loses more before and less after.
    one, two = lines((4, 0), (1, 1), (0.5, 6)), lines((2, 0), (1, 1))
    found = ss.compare({"one": one, "two": two}, within=(0.01, 1000))
    (crossing,) = found.crossovers
    assert crossing.influence == pytest.approx(10, rel=1e-9)
    assert (crossing.below, crossing.above) == ("two", "one")
    assert [name for *_, name in found.best] == ["two", "one"]
    # Equal up to 10 only: no crossover, and the one that loses less later is named throughout.
    straight, bent = ss.Gaussian(1), lines((1, 0), (0.5, 5))
    for pair in ({"straight": straight, "bent": bent}, {"bent": bent, "straight": straight}):
        found = ss.compare(pair, within=(0.01, 1000))
        assert not found.crossovers
        assert found.best == ((0.01, 1000.0, "bent"),)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (ss.Gaussian(3), ss.Gaussian(3 * (1 + 1e-14))),
        (ss.Gaussian(3), ss.Root(1, 3)),
        (ss.Gaussian(0.7), ss.Transformation(lambda x: x, lambda y: y, 0.7, 0)),
        (ss.Log(0.7, 1000), ss.Transformation(np.log, np.exp, 0.7, 1000)),
        (ss.Log(0.1, 3), ss.Transformation(np.log, np.exp, 0.1, 3)),
        (ss.Root(2, 1, 5), ss.Transformation(np.sqrt, np.square, 1, 5)),
        (ss.Root(3, 1, 5), ss.Transformation(np.cbrt, lambda y: y**3, 1, 5)),
    ],
)
def test_rounding_makes_no_crossovers(one, two):
    found = ss.compare({"one": one, "two": two}, within=(1e-12, 1e14))
    assert not found.crossovers
    assert len(found.best) == 1


def test_unit_splitting_that_touches_does_not_cross():
    for names in (("split", "Gaussian"), ("Gaussian", "split")):
        both = {"split": ss.UnitSplitting(0.1, 3), "Gaussian": ss.Gaussian(3)}
        found = ss.compare({name: both[name] for name in names}, within=(0.1, 40))
        assert not found.crossovers
        assert found.best == ((0.1, 40.0, "Gaussian"),)
        assert found.complete


@pytest.mark.parametrize("threshold", [1e-6, 1e-9, 1e-13])
def test_far_jumps_are_found(threshold):
    split, log = ss.UnitSplitting(threshold, 1), ss.Log(0.1)
    found = ss.compare({"split": split, "log": log}, within=(1e-3, 1e9))
    (smooth,) = ss.compare([ss.Gaussian(1), log], within=(1e-3, 1e9)).crossovers
    assert found.complete
    assert [c.above for c in found.crossovers] == ["log", "split"] * (len(found.crossovers) // 2) + ["log"]
    for c in found.crossovers:
        assert abs(c.influence - smooth.influence) <= 4 * threshold + 1e-11 * smooth.influence
    # Piece by piece around the crossing, where the loss of a piece is exact enough to tell.
    if threshold >= 1e-9:
        low, high = (smooth.influence + side * 20 * threshold for side in (-1, 1))
        x = np.linspace(low, high, 400_001)
        signs = np.sign(split.policy(x) - log.policy(x))
        assert np.count_nonzero(np.diff(signs[signs != 0])) == len(found.crossovers)


def test_too_many_crossovers_end_the_search():
    found = ss.compare({"one": ss.UnitSplitting(1, 1), "two": ss.UnitSplitting(1.5, 1)}, within=(1, 1e9))
    assert not found.complete
    assert 1e4 < found.searched[1] < 1e9
    assert found.crossovers[-1].influence <= found.searched[1] == found.best[-1][1]
    assert "too many to list: pass within=(low, high)" in str(found)


@pytest.mark.parametrize(
    ("one", "two", "crossings"),
    [
        (ss.Gaussian(1), ss.Root(2, 1), 1),
        (ss.Gaussian(1), ss.Gaussian(2), 0),
        (ss.Gaussian(1e-100), ss.Log(1e-100), 0),
        (ss.Gaussian(1e160), ss.Gaussian(2e160), 0),
        (ss.UnitSplitting(1, 1), ss.Log(1), 0),
        (ss.UnitSplitting(1, 2), ss.Log(0.5), 4),
        (ss.UnitSplitting(1e-140, 1), ss.Gaussian(1), 0),
        (ss.UnitSplitting(1e140, 1), ss.Gaussian(1), 0),
        (ss.GeneralizedGaussian(1, 0.5), ss.Root(4, 1), 1),
    ],
)
def test_losses_too_small_or_too_large_for_a_float(one, two, crossings):
    found = ss.compare({"one": one, "two": two}, within=(1e-320, 1e308))
    assert len(found.crossovers) == crossings
    assert found.searched == (1e-320, 1e308)
    for c in found.crossovers:
        assert 1e-6 < c.influence < 1e6


def difference_of(one):
    """A function of the size against the constant 1."""
    return _Difference(one, np.ones_like, np.zeros_like)


def test_the_least_difference_is_found_between_two_sizes():
    places = np.array([1.3, 2.345, 4.9])
    difference = difference_of(lambda x: 1 + (x - places) ** 2)
    found = _minimum(difference, np.ones(3, np.int8), np.ones(3), np.full(3, 5.0))
    assert found == pytest.approx(places, abs=1e-6)
    turned = difference_of(lambda x: 1 - (x - places) ** 2 / 99)
    assert _minimum(turned, -np.ones(3, np.int8), np.ones(3), np.full(3, 5.0)) == pytest.approx(places, abs=1e-6)


@pytest.mark.parametrize("place", [2.345, 2.71, 3.9])
def test_the_grid_is_refined_where_two_losses_cross_or_touch(place):
    coarse = np.arange(1.0, 7.0)
    crossed = _refined(difference_of(lambda x: 1 + (x - place) / 9), coarse)
    after = np.searchsorted(crossed, place)
    assert crossed[after] - crossed[after - 1] <= 1 / 32**2 * (1 + 1e-9)
    assert set(coarse) <= set(crossed)
    touched = _refined(difference_of(lambda x: 1 + (x - place) ** 2 / 99), coarse)
    assert np.abs(touched - place).min() < 1e-6


def test_stretches_of_equal_losses_begin_and_end_where_they_do():
    grid = np.linspace(1.05, 5.05, 41)
    equal = difference_of(lambda x: 1 + np.maximum(2 - x, 0) + np.maximum(x - 3, 0))
    assert _equal_edges(equal, grid) == pytest.approx([2, 3], abs=1e-9)
    assert _equal_edges(difference_of(lambda x: 1 + x), grid).size == 0


def test_differences_too_small_for_a_float_are_no_differences():
    tiny = _Difference(lambda x: 0 * x + 5e-324, lambda x: 0 * x + 1e-323, np.zeros_like)
    assert tiny.signs(np.ones(3)).tolist() == [0, 0, 0]
    clear = _Difference(lambda x: 0 * x + 1e-300, lambda x: 0 * x + 2e-300, np.zeros_like)
    assert clear.signs(np.ones(2)).tolist() == [-1, -1]
    infinite = difference_of(lambda x: x)
    assert infinite.relative(np.array([math.inf, 1.0, 0.5])).tolist() == [1, 0, -0.5]
