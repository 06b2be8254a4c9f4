"""Every crossover is found, none is made up: against a scan that shares nothing with the search."""

import math
from functools import partial
from itertools import combinations, pairwise

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar

import slowscale as ss
from slowscale.mechanisms import comparison
from slowscale.mechanisms.comparison import _bisect, default_span

compare = partial(ss.compare, accounting="closed")  # the scan knows the jumps of unit splitting
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
    found = compare({"one": one, "two": two}, within=(low, high))
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
        return ss.Gaussian(sigma=number(0.05, 500, 0.1, 0.5, 1, 2, 10, 100))
    if kind == 1:
        return ss.GeneralizedGaussian(sigma=number(0.05, 500, 0.5, 1, 2, 10, 100), p=number(0.1, 1, 0.25, 0.5, 1))
    if kind == 2:
        p = number(1.2, 4, 2, 3)
        a = math.exp(p - 1) * (1 + number(1e-3, 100, 1, 9)) if draw.integers(2) else None
        return ss.ExponentialPolylog(d=number(0.1, 10, 0.5, 1, 2), sigma=number(0.1, 100, 1, 10), a=a, p=p)
    if kind == 3:
        a = number(0.01, 1000, 1, 10, 100) if draw.integers(2) else 0
        return ss.Root(k=int(draw.integers(1, 6)), sigma=number(0.05, 50, 0.1, 0.5, 1, 2, 10), a=a)
    if kind == 4:
        return ss.Log(sigma=number(0.02, 5, 0.1, 0.5, 1, 2), a=number(0.01, 1000, 1, 10, 100))
    return ss.UnitSplitting(threshold=number(1, 1000, 1, 2, 10, 100), sigma=number(0.5, 500, 1, 2, 10, 100))


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
        found = compare(several, within=(low, high))
        x = np.concatenate([scan(one, two, low, high)[0] for one, two in combinations(several.values(), 2)])
        check_best(found, several, x)


@pytest.mark.parametrize("exponent", [-200, -12, -3, 0, 3, 5, 12, 200])
def test_a_crossover_on_a_power_of_ten(exponent):
    # x²/(2·s²) and x/(2·s) are equal at s.
    s = 10.0**exponent
    gaussian, root = ss.Gaussian(sigma=s), ss.Root(k=2, sigma=math.sqrt(s))
    for within in [(s / 1000, s * 1000), (s, s * 100), (s / 100, s), (s / 3, s * 1e5)]:
        found = compare({"Gaussian": gaussian, "root": root}, within=within)
        (crossing,) = found.crossovers
        assert crossing.influence == pytest.approx(s, rel=1e-13)
        assert (crossing.below, crossing.above) == ("Gaussian", "root")
        best = [("Gaussian", within[0], s), ("root", s, within[1])]
        expected = [(start, end, name) for name, start, end in best if start < end]
        assert [name for *_, name in found.best] == [name for *_, name in expected]


def test_order_of_the_mechanisms_does_not_matter():
    found = compare({"root": ss.Root(k=2, sigma=1), "Gaussian": ss.Gaussian(sigma=1)}, within=(0.001, 1000))
    (crossing,) = found.crossovers
    assert crossing[:2] == pytest.approx((1, 0.5), rel=1e-14)
    assert crossing[2:] == ("Gaussian", "root")
    assert found.best == ((0.001, crossing.influence, "Gaussian"), (crossing.influence, 1000.0, "root"))


def near_tangent(depth, a):
    """A fourth root and a log whose ratio dips to 1 − depth."""
    log = ss.Log(sigma=1, a=a)

    def ratio(t):
        return math.log(ss.Root(k=4, sigma=1).policy(math.exp(t)) / log.policy(math.exp(t)))

    t = minimize_scalar(ratio, bounds=(math.log(a) - 3, math.log(a) + 8), method="bounded", options={"xatol": 1e-10})
    return ss.Root(k=4, sigma=math.sqrt(math.exp(t.fun) / (1 - depth))), log, math.exp(t.x)


@pytest.mark.parametrize("a", [0.1, 1, 7, 1000])
@pytest.mark.parametrize("depth", [1e-3, 1e-4])
def test_two_crossovers_that_are_near_each_other(depth, a):
    root, log, at = near_tangent(depth, a)
    for within in [(at / 1e4, at * 1e4), (at / 1.5, at * 1.001e5), (at / (1 + 20 * math.sqrt(depth)), at * 100)]:
        found = compare({"root": root, "log": log}, within=within)
        first, second = found.crossovers
        assert first.influence < at < second.influence
        assert (first.above, second.above) == ("root", "log")
        for c in found.crossovers:
            assert root.policy(c.influence) == pytest.approx(log.policy(c.influence), rel=1e-14)
        assert [name for *_, name in found.best] == ["log", "root", "log"]


@pytest.mark.parametrize("depth", [-1e-3, -1e-7, -1e-10, 0])
def test_policies_that_only_touch_do_not_cross(depth):
    root, log, at = near_tangent(depth, 1)
    found = compare({"root": root, "log": log}, within=(at / 1e4, at * 1e4))
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
    found = compare({"one": one, "two": two}, within=(0.01, 1000))
    (crossing,) = found.crossovers
    assert crossing.influence == pytest.approx(10, rel=1e-9)
    assert (crossing.below, crossing.above) == ("two", "one")
    assert [name for *_, name in found.best] == ["two", "one"]
    # Equal up to 10 only: no crossover, and the one that loses less later is named throughout.
    straight, bent = ss.Gaussian(sigma=1), lines((1, 0), (0.5, 5))
    for pair in ({"straight": straight, "bent": bent}, {"bent": bent, "straight": straight}):
        found = compare(pair, within=(0.01, 1000))
        assert not found.crossovers
        assert found.best == ((0.01, 1000.0, "bent"),)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (ss.Gaussian(sigma=3), ss.Gaussian(sigma=3 * (1 + 1e-14))),
        (ss.Gaussian(sigma=3), ss.Root(k=1, sigma=3)),
        (ss.Gaussian(sigma=0.7), ss.Transformation(lambda x: x, lambda y: y, 0.7, 0)),
        (ss.Log(sigma=0.7, a=1000), ss.Transformation(np.log, np.exp, 0.7, 1000)),
        (ss.Log(sigma=0.1, a=3), ss.Transformation(np.log, np.exp, 0.1, 3)),
        (ss.Root(k=2, sigma=1, a=5), ss.Transformation(np.sqrt, np.square, 1, 5)),
        (ss.Root(k=3, sigma=1, a=5), ss.Transformation(np.cbrt, lambda y: y**3, 1, 5)),
    ],
)
def test_rounding_makes_no_crossovers(one, two):
    found = compare({"one": one, "two": two}, within=(1e-12, 1e14))
    assert not found.crossovers
    assert len(found.best) == 1


def test_unit_splitting_that_touches_does_not_cross():
    for names in (("split", "Gaussian"), ("Gaussian", "split")):
        both = {"split": ss.UnitSplitting(threshold=0.1, sigma=3), "Gaussian": ss.Gaussian(sigma=3)}
        found = compare({name: both[name] for name in names}, within=(0.1, 40))
        assert not found.crossovers
        assert found.best == ((0.1, 40.0, "Gaussian"),)
        assert found.complete


@pytest.mark.parametrize(
    ("one", "two", "crossings"),
    [
        (ss.Gaussian(sigma=1), ss.Root(k=2, sigma=1), 1),
        (ss.Gaussian(sigma=1), ss.Gaussian(sigma=2), 0),
        (ss.Gaussian(sigma=1e-100), ss.Log(sigma=1e-100), 0),
        (ss.Gaussian(sigma=1e160), ss.Gaussian(sigma=2e160), 0),
        (ss.UnitSplitting(threshold=1, sigma=1), ss.Log(sigma=1), 0),
        (ss.UnitSplitting(threshold=1, sigma=2), ss.Log(sigma=0.5), 4),
        (ss.UnitSplitting(threshold=1e-140, sigma=1), ss.Gaussian(sigma=1), 0),
        (ss.UnitSplitting(threshold=1e140, sigma=1), ss.Gaussian(sigma=1), 0),
        (ss.GeneralizedGaussian(sigma=1, p=0.5), ss.Root(k=4, sigma=1), 1),
    ],
)
def test_losses_too_small_or_too_large_for_a_float(one, two, crossings):
    found = compare({"one": one, "two": two}, within=(1e-320, 1e308))
    assert len(found.crossovers) == crossings
    assert found.searched == (1e-320, 1e308)
    for c in found.crossovers:
        assert 1e-6 < c.influence < 1e6


def test_the_first_jumps_are_compared_and_the_result_says_whether_all_were(monkeypatch):
    monkeypatch.setattr(comparison, "MOST_JUMPS", 50)
    # ⌈x⌉ and 1.01·⌈x/1.01⌉ change their order at every whole k and at every 1.01·k.
    both = {"one": ss.UnitSplitting(threshold=1, sigma=1), "two": ss.UnitSplitting(threshold=1.01, sigma=1)}
    expected = np.sort([scale * k for k in range(1, 41) for scale in (1, 1.01)])
    found = compare(both, within=(1, 40.4))
    assert [c.influence for c in found.crossovers] == pytest.approx(expected, rel=1e-12)
    assert [c.below for c in found.crossovers] == ["one", "two"] * 40
    assert found.complete
    longer = compare(both, within=(1, 60))
    assert not longer.complete
    assert [c.influence for c in longer.crossovers][:80] == pytest.approx(expected, rel=1e-12)
    assert "Not all jumps of unit splitting were compared" in str(longer)


def levels(*pairs):
    """A policy whose loss is constant from each size on."""
    sizes, losses = zip(*pairs, strict=True)
    return lambda x: np.array([0.0, *losses])[np.searchsorted(sizes, x * 1.001)]


@pytest.mark.parametrize(
    ("policies", "span"),
    [
        ([ss.Gaussian(sigma=1e-298).policy], (1e-300, 1e-294)),  # rises beyond 1e-4 at the second size of all
        ([ss.Gaussian(sigma=1e302).policy], (1, 1e300)),  # stays below 1e-4
        ([ss.UnitSplitting(threshold=1e6, sigma=1).policy], (1e6, 1e7)),  # beyond 1e6 from the smallest size on
        ([levels((1e-8, 1e-4), (1e3, 2e6))], (1e2, 1e3)),  # 1e-4 itself is not beyond
        ([levels((1e-8, 2e-4), (1e3, 2e6))], (1e-9, 1e3)),
        ([levels((1e-8, 1), (1e3, 1e6), (1e5, 2e6))], (1e-9, 1e3)),  # 1e6 itself is the end
        ([levels((0, 1), (1e-3, 1.01), (1e3, 2e6))], (1e2, 1e3)),  # rises by more than 1 % later
        ([levels((0, 1), (1e-3, 1.5), (1e3, 2e6))], (1e-4, 1e3)),
        ([levels((1, 1), (1e3, 2e6)), levels((1, 1), (1e5, 100), (1e9, 2e6))], (0.1, 1e5)),  # 1e6 by one, 100 by all
        ([levels((1, 1), (1e4, 2e6)), levels((1, 1), (10, 100), (1e9, 2e6))], (0.1, 1e4)),
        ([lambda x: np.where(x < 1e-250, np.nan, x)], (1e-4, 1e6)),  # unknown losses do not count
    ],
)
def test_the_span_without_sizes_is_where_the_losses_rise(policies, span):
    assert default_span(np.empty(0), policies) == pytest.approx(span, rel=1e-12, abs=0)


@pytest.mark.parametrize("size", [1e302, 1e305, 1e-305])
def test_sizes_beyond_the_limits_are_searched_between_them(size):
    low, high = default_span(np.array([size]), [ss.Gaussian(sigma=1).policy])
    assert (low, high) == ((1e-300, 1e4) if size < 1 else (0.01, 1e300))


@pytest.mark.parametrize("accounting", ["closed", "tight"])
@pytest.mark.parametrize("influences", [(), [10], {"median": 100, "large": 5000}, [1e-3, 1e3], [1e12]])
@pytest.mark.parametrize(
    ("mechanisms", "places"),
    [  # as calibrated to the stated standard deviation, and with the rounded parameters that the paper prints
        (
            {
                "square": ss.Root.calibrate(k=2, std=1000, at=10_000),
                "fourth": ss.Root.calibrate(k=4, std=1000, at=10_000),
                "log": ss.Log.calibrate(std=1000, at=10_000),
            },
            (3.98590e-4, 160_498.49, 1_648_212.21),
        ),
        (
            {"square": ss.Root(k=2, sigma=5), "fourth": ss.Root(k=4, sigma=0.2), "log": ss.Log(sigma=0.1)},
            (4.0016e-4, 390_625, 463_584.378),
        ),
    ],
)
def test_the_first_example_of_appendix_a_needs_no_span(mechanisms, places, influences, accounting):
    """Both crossovers are found whatever sizes are given; without sizes, so is the one near 0 (errata E04 and E20)."""
    found = ss.compare(mechanisms, influences, accounting=accounting)
    near_zero = found.searched[0] < places[0]
    assert [name for *_, name in found.best] == ["log", "square", "fourth", "log"][not near_zero :]
    assert [end for _, end, _ in found.best[:-1]] == pytest.approx(places[not near_zero :], rel=1e-5)
    assert near_zero == (not influences or 1e-3 in influences)
    turns = {(c.below, c.above): c.influence for c in found.crossovers}
    assert turns["square", "fourth"] == pytest.approx(places[1], rel=1e-8)
    assert turns["fourth", "log"] == pytest.approx(places[2], rel=1e-8)


@pytest.mark.parametrize("influences", [(), [10], [1e9]])
def test_the_second_example_of_appendix_a_needs_no_span(influences):
    laplace, half = (ss.GeneralizedGaussian.calibrate(std=1000, p=p) for p in (1, 0.5))
    found = compare(
        {"laplace": laplace, "half": half, "polylog": ss.ExponentialPolylog.calibrate(std=1000)}, influences
    )
    assert [name for *_, name in found.best] == ["laplace", "half", "polylog"]
    assert [end for _, end, _ in found.best[:-1]] == pytest.approx([5477.2256, 17_184.29], rel=1e-6)


@pytest.mark.parametrize(("low", "high"), [(1.01, 100), (1.001, 100), (0.01, 0.99), (0.01, 0.999)])
def test_a_crossover_just_beyond_an_end_is_not_listed(low, high):
    assert not compare([ss.Gaussian(sigma=1), ss.Root(k=2, sigma=1)], within=(low, high)).crossovers
    stepped = [ss.Gaussian(sigma=5), ss.UnitSplitting(threshold=10, sigma=10)]
    assert not compare(stepped, within=(5 * low, min(5 * high, 9))).crossovers


def test_where_equal_losses_end_just_beyond_the_span_the_best_ends_with_the_span():
    found = compare({"straight": ss.Gaussian(sigma=1), "bent": lines((1, 0), (0.5, 5))}, within=(0.01, 9.9))
    assert [(start, end) for start, end, _ in found.best] == [(0.01, 9.9)]


@pytest.mark.parametrize("swapped", [False, True])
def test_every_jump_that_is_a_crossover_is_found_up_to_both_ends(swapped):
    # ⌈x⌉ exceeds x/s from each whole k up to s·(k + 1), while k/s < k + 1.
    s = 0.98431
    one, two = (
        (ss.Gaussian(sigma=s), ss.UnitSplitting(threshold=1, sigma=1))
        if swapped
        else (ss.UnitSplitting(threshold=1, sigma=1), ss.Gaussian(sigma=s))
    )
    jumps = [float(k) for k in range(1, 63)]
    expected = np.sort([s, *jumps, *(s * (k + 1) for k in jumps)])
    places = [c.influence for c in compare([one, two], within=(0.1, 500)).crossovers]
    assert places == pytest.approx(expected, rel=1e-11)
    for low, high in [(1.0, 30.0), (s * 2, s * 31), (2.0, 62.0), (50.0, s * 63)]:
        inside = expected[(expected >= low * (1 - 1e-13)) & (expected <= high * (1 + 1e-13))]
        places = [c.influence for c in compare([one, two], within=(low, high)).crossovers]
        assert places == pytest.approx(inside, rel=1e-11)


@pytest.mark.parametrize("names", [("split", "Gaussian"), ("Gaussian", "split")])
def test_the_least_loss_changes_at_every_jump_that_is_a_crossover(names):
    both = {"split": ss.UnitSplitting(threshold=1, sigma=1), "Gaussian": ss.Gaussian(sigma=0.98431)}
    best = compare({name: both[name] for name in names}, within=(0.5, 62.5)).best
    assert [name for *_, name in best] == ["Gaussian", "split"] * 63
    assert [start for start, *_ in best][2::2] == pytest.approx(np.arange(1, 63), rel=1e-12)


def test_bisection_ends_with_neighbouring_floats():
    turns = np.array([1.3, np.nextafter(2.0, 0.0), 0.3051, 1e-300 * math.pi])
    low, high = np.array([1.0, 1.0, 0.3, 1e-300]), np.array([2.0, 2.0, 0.31, 1e-299])
    last, first = _bisect(lambda x: x <= turns, low, high)
    assert last.tolist() == turns.tolist()
    assert first.tolist() == np.nextafter(turns, math.inf).tolist()
