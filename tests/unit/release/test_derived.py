"""Growth, shares and differences of published sums: against independent quadrature, and what cannot be compared."""

import math
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, datetime
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from helpers.bitsources import Recorded
from helpers.errors import refused
from helpers.releases import release_of, with_table
from scipy import optimize, stats

import slowscale as ss
from slowscale.mechanisms.ratio_intervals import NoisySum, _hull_of, half_widths

FAMILIES = {
    "gaussian": ss.Gaussian(sigma=30),
    "laplace": ss.Laplace(sigma=25),
    "generalized": ss.GeneralizedGaussian(sigma=4, p=0.5),
    "polylog": ss.ExponentialPolylog.calibrate(std=100),
    "arsinh": ss.ArsinhNormal(scale=12, shape=1.3),
}
CELLS = ("01003", "01005", "01007")


def published(mechanism, values, unit=1, float_data=False, key="cell", labels=None, seed=1, **options):
    """Return a release of one column that has published these values."""
    labels = list(CELLS[: len(values)] if labels is None else labels)
    frame = pd.DataFrame({key: labels, "x": np.full(len(labels), 0.5 if float_data else 1)})
    session = ss.Session(frame, bits=Recorded(seed))
    release = session.sum({"x": mechanism}, keys=ss.Keys.from_frame({key: labels}), unit=unit, **options)
    column = pa.array(values, release.table["x"].type)
    at = release.table.column_names.index("x")
    return with_table(release, release.table.set_column(at, "x", column))


def ends(derived, row=0):
    """Return the value and the ends of the interval in a row."""
    name = f"x_{derived.kind}"
    return tuple(derived.table[f"{name}{ending}"].to_pylist()[row] for ending in ("", "_low", "_high"))


# Quadrature that shares nothing with the library but the distribution of one noise.


def inside(one, other, first, second, x):
    """Return P(|first·Z₁ + second·Z₂| <= x) by Gauss-Legendre quadrature over Z₂, in panels around 0."""
    if first == 0:
        first, second, one, other = second, first, other, one
    edges = np.sinh(np.linspace(0, np.arcsinh(other.isf(1e-13) / other._scale), 90)) * other._scale
    nodes, weights = np.polynomial.legendre.leggauss(10)
    width = np.diff(edges)
    z = (edges[:-1, None] + width[:, None] * (nodes + 1) / 2).ravel()
    mass = (other.pdf(z).reshape(-1, nodes.size) * weights * width[:, None] / 2).ravel()
    return 2 * float(mass @ (one.cdf((x - second * z) / first) - one.cdf((-x - second * z) / first)))


def accepts(one, other, first, second, distance, level):
    """Whether a test at this level does not reject an estimate at a distance from 0."""
    return distance <= 0 or inside(one, other, first, second, distance) <= level


def interval_of(accepted, value, far):
    """Return the ends of the set that a test accepts, which has `value`, by bisection."""
    found = []
    for end in (value - far, value + far):
        good, bad = value, end
        assert accepted(good)
        assert not accepted(bad)
        for _ in range(26):
            middle = (good + bad) / 2
            good, bad = (middle, bad) if accepted(middle) else (good, middle)
        found.append(good)
    return found


def assert_holds_tightly(found, exact):
    """The interval holds the exact one, and is at most 1 % wider on each side of it."""
    width = exact[1] - exact[0]
    assert found[0] <= exact[0] + 1e-6 * width
    assert found[1] >= exact[1] - 1e-6 * width
    assert found[0] >= exact[0] - 0.01 * width
    assert found[1] <= exact[1] + 0.01 * width


CASES = [
    ("gaussian", "gaussian", 1000, 900, 0.95, 1),
    ("laplace", "laplace", 500, 2000, 0.95, 1),
    ("generalized", "generalized", 4000, 3000, 0.99, 1),
    ("polylog", "polylog", 3000, 3100, 0.95, 1),
    ("polylog", "polylog", 40, 1500, 0.9, 10),
    ("arsinh", "arsinh", 700, 650, 0.95, 1),
    ("gaussian", "polylog", 800, 1200, 0.8, 1),
    ("arsinh", "laplace", 1000, 5000, 0.99, 10),
    ("polylog", "gaussian", -800, 400, 0.95, 1),
]


@pytest.mark.parametrize(("later", "earlier", "a", "b", "level", "unit"), CASES)
def test_growth_against_quadrature(later, earlier, a, b, level, unit):
    m, n = FAMILIES[later], FAMILIES[earlier]

    def accepted(g):
        slack = (1 + abs(g)) * unit / 2
        return accepts(m.noise, n.noise, 1.0, abs(g), abs(a - g * b) - slack, level)

    found = published(m, [a], unit).growth(published(n, [b], unit, seed=2), level=level)
    value, low, high = ends(found)
    assert found.intervals == {"x": "exact"}
    assert value == pytest.approx(a / b - 1, rel=1e-5)
    assert_holds_tightly((low + 1, high + 1), interval_of(accepted, a / b, 3.0))


@pytest.mark.parametrize(
    ("family", "cell", "other", "level", "unit"),
    [
        ("gaussian", 500, 1500, 0.95, 1),
        ("laplace", 20, 4000, 0.95, 1),
        ("generalized", 900, 1100, 0.9, 10),
        ("polylog", 2500, 500, 0.95, 1),
        ("arsinh", 800, 10, 0.99, 1),
        ("polylog", -100, 4000, 0.95, 1),
    ],
)
def test_shares_against_quadrature(family, cell, other, level, unit):
    """The total contains the cell: the noise of the test is (1 − θ)·Z_c − θ·Z_o."""
    noise = FAMILIES[family].noise
    total = cell + other

    def accepted(share):
        slack = (abs(1 - share) + abs(share)) * unit / 2
        return accepts(noise, noise, abs(1 - share), abs(share), abs(cell - share * total) - slack, level)

    found = published(FAMILIES[family], [cell, other], unit).share(level=level)
    assert found.intervals == {"x": "exact"}
    assert ends(found)[0] == pytest.approx(cell / total, rel=1e-5)
    assert_holds_tightly(ends(found)[1:], interval_of(accepted, cell / total, 2.0))
    _, low, high = ends(found, 1)
    assert (1 - high, 1 - low) == pytest.approx(ends(found)[1:], abs=0.01 * (high - low))


def test_shares_of_many_cells_against_the_normal_law():
    values = [700, 300, 400, 200, 900]
    release = published(ss.Gaussian(sigma=30), values, float_data=True, labels=range(5))
    z = stats.norm.isf((1 - 0.9505) / 2)  # 1 % of the error probability is for rounding, which is bounded anyway

    def accepted(share):
        deviation = 30 * math.hypot(1 - share, 2 * share)
        return abs(700 - share * 2500) <= z * deviation + (1 - share) / 2 + 2 * share

    exact = interval_of(accepted, 0.28, 0.5)
    assert_holds_tightly(ends(release.share())[1:], exact)


@pytest.mark.parametrize(
    ("later", "earlier", "level", "unit"),
    [
        ("gaussian", "gaussian", 0.95, 1),
        ("polylog", "polylog", 0.95, 1),
        ("laplace", "generalized", 0.9, 1),
        ("arsinh", "polylog", 0.99, 10),
    ],
)
def test_differences_against_quadrature(later, earlier, level, unit):
    m, n = FAMILIES[later], FAMILIES[earlier]
    start = m.noise.isf((1 - level) / 2)
    half = optimize.brentq(lambda x: inside(m.noise, n.noise, 1.0, 1.0, x) - level, start / 2, 20 * start, xtol=1e-6)
    for float_data in (False, True):  # integers in whole units are on the grid if the unit is 1
        one, other = (published(m, [900], unit, float_data), published(n, [400], unit, float_data, seed=2))
        value, low, high = ends(one.difference(other, level=level))
        assert value == 500
        assert value - low == high - value
        rounding = 0 if unit == 1 and not float_data else unit
        assert half + rounding - unit <= high - value <= half * 1.001 + rounding + unit
        assert high % unit == 0


def test_differences_of_whole_numbers_against_the_rounded_noise():
    """Both true sums are whole numbers: only the distribution of the rounded noises counts."""
    k = np.arange(-60, 61)
    noise = ss.Gaussian(sigma=1).noise
    one = noise.cdf(k + 0.5) - noise.cdf(k - 0.5)
    both = np.convolve(one, one)
    middle = both.size // 2
    masses = both[middle - 20 : middle + 21]
    probability = [masses[20 - q : 20 + q + 1].sum() for q in range(20)]
    least = next(q for q, some in enumerate(probability) if some >= 0.95)
    a, b = (published(ss.Gaussian(sigma=1), [7], seed=seed) for seed in (1, 2))
    assert ends(a.difference(b)) == (0, -least, least)


def test_the_hull_against_every_ratio():
    """The ends enclose every g at which |x − g·y| <= h(g), for estimates of both signs and for 0."""
    noise = NoisySum(FAMILIES["polylog"], Fraction(1), 1)
    widths = half_widths(noise, noise, 0.95)
    g = np.geomspace(1e-3, 1e3, 600)
    while widths.refine(g):
        pass
    h = np.array([widths._width(1.0, some) for some in g])
    rng = np.random.default_rng(1)
    x, y = rng.choice([-2000.0, -50.0, 0.0, 10.0, 130.0, 140.0, 3000.0], (2, 200))
    low, high = _hull_of(x[:, None], x[:, None], y[:, None], y[:, None], widths)
    accepted = np.abs(x[:, None] - g * y[:, None]) <= h
    assert accepted.any(axis=1).sum() > 50
    for row in np.flatnonzero(accepted.any(axis=1)):
        assert low[row] <= g[accepted[row]].min()
        assert high[row] >= g[accepted[row]].max()


def test_an_interval_does_not_depend_on_others():
    """The table of half-widths gets entries where they are needed: they must not change other intervals."""
    m, n = ss.Laplace(sigma=3.1), ss.ArsinhNormal(scale=2.9, shape=1.1)
    values = [30, 50, 90, 400, 5000]
    later, earlier = published(m, values, labels=range(5)), published(n, values[::-1], labels=range(5), seed=2)
    whole = later.growth(earlier).table.to_pylist()
    for row, labels in enumerate(range(5)):
        half_widths.cache_clear()
        one = published(m, values[row : row + 1], labels=[labels])
        other = published(n, values[::-1][row : row + 1], labels=[labels], seed=2)
        assert one.growth(other).table.to_pylist() == [whole[row]]


def test_threads_share_half_widths():
    """A thread that adds entries does not change the table under another one."""
    m, n = ss.Laplace(sigma=3.7), ss.ArsinhNormal(scale=2.3, shape=1.4)
    tables = [
        [published(one, (values * 7919 % 10**6 + 1).tolist(), labels=range(40), seed=i) for one in (m, n)]
        for i in range(6)
        for values in [np.arange(1, 41) * (i + 1) ** 3]
    ]

    def grown(pair):
        return pair[0].growth(pair[1]).table

    alone = [grown(pair) for pair in tables]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(8):
            half_widths.cache_clear()
            with ThreadPoolExecutor(6) as threads:
                assert all(one.equals(other) for one, other in zip(threads.map(grown, tables), alone, strict=True))
    finally:
        sys.setswitchinterval(before)


def test_half_widths_rise_slower_than_their_ratio():
    for shared in (False, True):
        noise = NoisySum(FAMILIES["arsinh"], Fraction(1), 1)
        widths = half_widths(noise, NoisySum(FAMILIES["laplace"], Fraction(10), 7), 0.95, shared)
        ends = np.geomspace(widths.at[0], widths.at[-1], 2000)
        while widths.refine(ends):
            pass
        rises, gaps = np.diff(np.log(widths.width)), np.diff(np.log(widths.at))
        assert (rises >= 0).all()
        assert (rises <= gaps * (1 + 1e-6)).all()
        assert (rises * (gaps - rises) <= 0.005 * gaps + 1e-12).all()


# Signs, zeros and infinite ends.


@pytest.mark.parametrize("family", FAMILIES)
def test_growth_has_no_end_where_the_earlier_sum_may_be_0(family):
    m = FAMILIES[family]
    half = m.noise.isf(0.025)
    clear, within = math.ceil(1.01 * half + 1), math.floor(0.99 * half)
    later = published(m, [2000, 2000, 0])
    low, high = ends(later.growth(published(m, [clear, within, within], seed=2)), 0)[1:]
    assert math.isfinite(low)
    assert math.isfinite(high)
    assert ends(later.growth(published(m, [clear, within, within], seed=2)), 1)[1:] == (-math.inf, math.inf)
    assert ends(later.growth(published(m, [clear, within, 0], seed=2)), 2) == (None, -math.inf, math.inf)


def test_noise_whose_quantiles_no_float_holds():
    """The 95 % quantile is 20^1000: every interval is the whole line."""
    m = ss.ExponentialPolylog(sigma=1, d=1.001, p=1)
    one, other = (published(m, [400, 7, 0], seed=seed) for seed in (1, 2))
    for found in (one.difference(other), one.growth(other), one.share()):
        assert ends(found)[1:] == (-math.inf, math.inf)


def test_sums_that_cannot_be_negative_have_no_negative_ratios():
    """Counts are at least 0, so growth is at least −1 and a share is between 0 and 1."""
    values = {"later": [50, 3, -4], "earlier": [-6, 40, 0]}
    count, zeros = {}, [0, 0, 0]
    for seed, (name, numbers) in enumerate(values.items()):
        frame = pd.DataFrame({"cell": CELLS})
        made = ss.Session(frame, bits=Recorded(seed)).count(ss.Keys.from_frame(frame), mechanism=ss.Gaussian(sigma=3))
        at = made.table.column_names.index("count")
        count[name] = with_table(made, made.table.set_column(at, "count", pa.array(numbers)))
    table = count["later"].growth(count["earlier"]).table
    low, high = table["count_growth_low"].to_pylist(), table["count_growth_high"].to_pylist()
    assert table["count_growth"].to_pylist() == [None, pytest.approx(3 / 40 - 1), None]
    assert low[0] > 5
    assert low[1:] == [-1, -1]
    assert high[0] == high[2] == math.inf
    assert high[1] < -0.6
    shares = count["later"].share().table
    assert [min(shares[f"count_share{end}"].to_pylist()) >= 0 for end in ("", "_low", "_high")] == [True] * 3
    assert max(shares["count_share_high"].to_pylist()) <= 1
    assert shares["count_share"].to_pylist()[2] == 0
    for release in count.values():
        everything = with_table(release, release.table.set_column(1, "count", pa.array(zeros)))
        assert everything.share().table["count_share"].to_pylist() == [None] * 3
        assert everything.share().table["count_share_high"].to_pylist() == [1.0] * 3


def test_sums_of_both_signs_have_shares_outside_0_and_1():
    shares = published(ss.Gaussian(sigma=30), [-500, 2000, 500]).share().table
    assert shares["x_share"].to_pylist() == [-0.25, 1.0, 0.25]
    low, high = (shares[f"x_share_{end}"].to_numpy() for end in ("low", "high"))
    assert (low < [-0.25, 1, 0.25]).all()
    assert (high > [-0.25, 1, 0.25]).all()
    assert (high - low < 0.2).all()


def test_a_share_of_a_total_that_may_be_0_has_no_ends():
    shares = published(ss.Gaussian(sigma=30), [500, -490]).share()
    assert ends(shares)[1:] == (-math.inf, math.inf)


# Transformations: boxes.


def test_transformations_get_a_box():
    m = ss.Root(k=4, sigma=1)
    frame = pd.DataFrame({"cell": [*CELLS], "x": [4000, 9000, 100]})
    keys = ss.Keys.from_frame({"cell": CELLS})
    one, other = (ss.Session(frame, bits=Recorded(seed)).sum({"x": m}, keys=keys) for seed in (1, 2))
    (x_low, x_high), (y_low, y_high) = (release.interval("x", 0.975) for release in (one, other))
    table = one.difference(other).table
    assert one.difference(other).intervals == {"x": "box"}
    assert table["x_difference_low"].to_pylist() == (x_low - y_high).tolist()
    assert table["x_difference_high"].to_pylist() == (x_high - y_low).tolist()
    logs = [ss.Session(frame, bits=Recorded(seed)).sum({"x": ss.Log(sigma=0.5)}, keys=keys) for seed in (1, 2)]
    (x_low, x_high), (y_low, y_high) = (release.interval("x", 0.975) for release in logs)
    growth = logs[0].growth(logs[1])
    assert growth.intervals == {"x": "box"}
    assert growth.table["x_growth_high"].to_numpy() == pytest.approx(x_high / np.maximum(y_low, 1) - 1, rel=1e-5)
    assert growth.table["x_growth_low"].to_numpy() == pytest.approx(x_low / y_high - 1, rel=1e-5)
    (x_low, x_high), share = one.interval("x", 0.975), one.share()
    low, high = one.rollup().interval("x", 0.975)
    assert share.intervals == {"x": "box"}
    assert share.table["x_share_low"].to_numpy() == pytest.approx(x_low / high, rel=1e-5)
    assert share.table["x_share_high"].to_numpy() == pytest.approx(np.minimum(x_high / low, 1), rel=1e-5)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_growth_of_roots_comes_from_the_roots(noise):
    """The ratio of the roots has known noise: |ṽ' − r·ṽ| <= h(r), and growth is r⁴ − 1."""
    one, other = ss.Root(k=4, sigma=1, noise=noise), ss.Root(k=4, sigma=0.5, noise=noise)
    frame = pd.DataFrame({"cell": [*CELLS], "x": [4000, 90_000, 1]})
    keys = ss.Keys.from_frame({"cell": CELLS})
    later, earlier = (
        ss.Session(frame, bits=Recorded(seed)).sum({"x": m}, keys=keys) for seed, m in enumerate([one, other], 5)
    )
    found = later.growth(earlier)
    assert found.intervals == {"x": "exact"}
    a, b = (release.table["x_transformed"].to_numpy() for release in (later, earlier))
    for row in (0, 1):

        def accepted(r, row=row):
            return accepts(one.added.noise, other.added.noise, 1.0, r, abs(a[row] - r * b[row]), 0.95)

        low, high = ((1 + end) ** 0.25 for end in ends(found, row)[1:])
        assert_holds_tightly((low, high), interval_of(accepted, a[row] / b[row], 0.9 * a[row] / b[row]))
    assert ends(found, 2)[1:] == (-1, math.inf)
    values, *intervals = (found.table[f"x_growth{end}"].to_numpy() for end in ("", "_low", "_high"))
    assert (values[:2] == np.clip(values, *intervals)[:2]).all()
    # The box is wider, and is used for other roots and roll-ups.
    box = later.rollup("cell").growth(earlier.rollup("cell"))
    assert box.intervals == {"x": "box"}
    assert (ends(box)[2] - ends(box)[1]) > 1.3 * (ends(found)[2] - ends(found)[1])
    third = ss.Session(frame, bits=Recorded(3)).sum({"x": ss.Root(k=3, sigma=1)}, keys=keys)
    assert later.growth(third).intervals == {"x": "box"}


def test_estimates_that_were_raised_to_0_have_boxes():
    m = ss.Gaussian(sigma=30)
    clipped, plain = published(m, [500], nonnegative=True), published(m, [400], seed=2)
    assert clipped.growth(plain).intervals == {"x": "box"}
    assert clipped.difference(plain).intervals == {"x": "box"}
    with refused(ss.ParameterError, code="clipped"):
        clipped.share()


# Which rows and tables are compared.


def with_sums(frame, mechanism, keys, seed=0, **options):
    return ss.Session(frame, bits=Recorded(seed)).sum({"x": mechanism}, keys=ss.Keys.from_frame(keys), **options)


@pytest.fixture(scope="module")
def panel():
    """Cells by town and year, with 3 towns and 2 years."""
    labels = [(town, year) for town in CELLS for year in (2023, 2024)]
    keys = pd.DataFrame(labels, columns=["town", "year"])
    return with_sums(keys.assign(x=[500, 600, 700, 800, 900, 1000]), ss.Gaussian(sigma=5), keys)


def test_rows_of_one_table_are_compared_by_a_label(panel):
    table = panel.growth({"year": 2023}).to_pandas()
    assert table["town"].tolist() == list(CELLS)
    assert table["year"].tolist() == [2024] * 3
    x = panel.to_pandas().set_index(["town", "year"])["x"].unstack()
    assert table["x_growth"].to_numpy() == pytest.approx((x[2024] / x[2023] - 1).to_numpy(), rel=1e-4)
    against = panel.difference({"town": "01003", "year": 2023}).to_pandas()
    assert len(against) == 5
    assert panel.growth({"year": 2023}).notes == panel.growth({"town": "01003", "year": 2023}).notes == ()
    assert against["x_difference"].tolist() == (panel.to_pandas()["x"] - x.loc["01003", 2023]).tolist()[1:]


def test_a_note_counts_rows_without_a_partner():
    keys = pd.DataFrame([("a", 2023), ("a", 2024), ("b", 2024), ("c", 2023), ("d", 2023)], columns=["town", "year"])
    found = with_sums(keys.assign(x=500), ss.Gaussian(sigma=5), keys).difference({"year": 2023})
    assert found.table["town"].to_pylist() == ["a"]
    assert found.notes == ("rows left out: 3 without a partner",)


@pytest.mark.parametrize("label", [2023.0, np.int64(2023), np.float64(2023)])
def test_labels_of_another_type_are_the_same_labels(panel, label):
    assert panel.growth({"year": label}).table.equals(panel.growth({"year": 2023}).table)


@pytest.mark.parametrize("label", [2023.9, math.nan, 2**70, True, "2023", None, pd.NA, pd.NaT, [2023]])
def test_labels_that_are_not_exactly_labels_are_refused(panel, label):
    with refused(ss.ParameterError, "earlier", code="value"):
        panel.growth({"year": label})


def test_dates_are_labels_at_midnight_only():
    days = [date(2023, 1, 1), date(2024, 1, 1)]
    keys = pa.table({"day": days})
    found = ss.Session(keys.append_column("x", pa.array([500, 600])), bits=Recorded(1)).sum(
        {"x": ss.Gaussian(sigma=5)}, keys=ss.Keys.from_frame(keys)
    )
    expected = found.growth({"day": days[0]}).table
    for day in (datetime(2023, 1, 1), pd.Timestamp("2023-01-01")):
        assert found.growth({"day": day}).table.equals(expected)
    with refused(ss.ParameterError, "earlier", code="value"):
        found.growth({"day": datetime(2023, 1, 1, 5)})


def test_rows_are_matched_by_their_keys():
    m = ss.Gaussian(sigma=5)
    later = published(m, [500, 600, 700], labels=["b", "d", "a"])
    earlier = published(m, [70, 50, 10], labels=["a", "b", "c"], seed=2)
    found = later.difference(earlier)
    assert found.table["cell"].to_pylist() == ["b", "a"]
    assert found.table["x_difference"].to_pylist() == [450, 630]
    assert found.notes == ("rows left out: 1 in the later table only, 1 in the earlier table only",)


def test_notes_say_what_differs():
    frame = pd.DataFrame({"cell": [*CELLS], "x": [4, 9, 1]})
    m, keys = ss.Gaussian(sigma=5), {"cell": CELLS}
    one = with_sums(frame, m, keys, derive={"y": "x + 1"}, where="x > 0")
    other = with_sums(frame, m, keys, seed=1)
    assert one.growth(other).notes == ("the sums are of different records: the filters are x > 0 and none",)
    doubled, plain = (
        ss.Session(frame, bits=Recorded(i)).sum({"y": m, **more}, keys=ss.Keys.from_frame(keys), derive={"y": text})
        for i, (text, more) in enumerate([("2 * x", {}), ("x", {"x": m})])
    )
    assert doubled.growth(plain).notes == (
        "x: in one of the tables only",
        "y is computed by another expression in each table",
    )
    signed, root = frame.assign(x=[4, -9, 1]), ss.Root(k=2, sigma=1)
    kept, raised = with_sums(signed, m, keys), with_sums(signed, root, keys, seed=1, negatives="zero")
    expected = "x counts negative values as 0 in one of the tables only"
    for found in (raised.growth(kept), kept.difference(raised), raised.share(kept)):
        assert found.notes[0] == expected
    assert expected not in kept.growth(with_sums(frame, root, keys, seed=2)).notes


@pytest.mark.parametrize(
    ("later", "earlier", "noted"),
    [
        ("2024", "2025", True),
        ("2024-Q4", "2025-Q1", True),
        ("2025", "2024", False),
        ("2024", "2024", True),
        ("Q1 2025", "Q4 2024", False),
        (None, "2025", False),
    ],
)
def test_a_note_says_that_the_later_period_is_not_after_the_earlier_one(later, earlier, noted):
    frame, sums = pd.DataFrame({"x": [400, 500]}), ss.Sums({"x": ss.Gaussian(sigma=5)})
    one, other = (
        ss.Session(frame, bits=Recorded(seed)).release(ss.Request({"t": sums}, period=period))["t"]
        for seed, period in enumerate([later, earlier])
    )
    for found in (one.growth(other), one.difference(other)):
        assert len(found.notes) == noted
        assert all(later in note and earlier in note for note in found.notes)


def test_a_note_says_what_a_box_is():
    one, other = (published(ss.Gaussian(sigma=5), [400], seed=seed, nonnegative=True) for seed in (1, 2))
    [note] = one.growth(other, level=0.9).notes
    assert note.startswith("x: a box is")
    assert note.endswith("95 %")


def test_the_noise_of_one_table_is_not_compared_with_itself(panel):
    states = panel.rollup("year")
    for other in (panel, panel["table"], states):
        with refused(ss.ParameterError, "earlier", code="same-release"):
            panel.growth(other)
    with refused(ss.ParameterError, "earlier", code="same-release"):
        states.difference(states)
    again = release_of(panel, {"one": panel["table"], "two": panel["table"]})
    with refused(ss.ParameterError, "the release", code="too-many"):
        panel.growth(again)


def test_drawn_tables_of_one_release_have_independent_noise():
    frame = pd.DataFrame({"cell": [*CELLS] * 2, "year": [1] * 3 + [2] * 3, "x": [400, 500, 600] * 2})
    m = ss.Gaussian(sigma=5)
    keys = ss.Keys.from_frame({"cell": CELLS})
    tables = {f"year{year}": ss.Sums({"x": m}, keys=keys, where=f"year = {year}") for year in (1, 2)}
    release = ss.Session(frame, bits=Recorded(3)).release(ss.Request(tables))
    found = release["year2"].growth(release["year1"])
    assert found.intervals == {"x": "exact"}
    assert "the filters are year = 2 and year = 1" in found.notes[0]


def test_shares_know_what_a_total_contains(panel):
    """A total rolled up from the same cells shares their noise; a drawn one does not."""
    within, total = panel.share("year"), panel.rollup("year")
    given = panel.share(total)
    for name in within.table.column_names:
        assert within.table[name].to_pylist() == given.table[name].to_pylist()
    x = panel.to_pandas()
    assert within.table["x_share"].to_numpy() == pytest.approx(
        (x["x"] / x.groupby("year")["x"].transform("sum")).to_numpy(), rel=1e-5
    )
    towns = panel.rollup("town")
    assert len(towns.share()) == 3
    assert towns.share().table["x_share"].to_pylist() == towns.share(panel.rollup()).table["x_share"].to_pylist()
    # A share within itself is 1.
    assert panel.share(["town", "year"]).table["x_share_low"].to_pylist() == [1.0] * 6
    drawn = with_sums(
        pd.DataFrame({"year": [2023, 2024], "x": [2100, 2400]}), ss.Gaussian(sigma=5), {"year": [2023, 2024]}
    )
    independent = panel.share(drawn)
    widths = [
        table.table["x_share_high"].to_numpy() - table.table["x_share_low"].to_numpy() for table in (independent, given)
    ]
    assert (abs(widths[0] / widths[1] - 1) > 0.01).all()
    with refused(ss.ParameterError, "of", code="same-release"):
        panel.share(panel)
    with refused(ss.ParameterError, "of", code="value"):
        total.share(towns)


def test_shares_within_levels(panel):
    hierarchy = ss.Hierarchy.digits("town", {"state": 2})
    found = panel.share(["state", "year"], hierarchy=hierarchy)
    assert found.table["x_share"].to_pylist() == panel.share("year").table["x_share"].to_pylist()


@pytest.mark.parametrize("in_files", [False, True])
def test_totals_with_other_borders_do_not_contain_the_cells(panel, tmp_path, in_files):
    """Old and new regions have the same name, labels and numbers of cells: only the mapping of the towns differs."""
    old, new = ({"region": dict(zip(CELLS, regions, strict=True))} for regions in ("AAB", "BAA"))
    hierarchies = [ss.Hierarchy("town", levels) for levels in (old, new, {"region": {"99999": "A", **old["region"]}})]
    totals = [panel.rollup("region", hierarchy=one) for one in hierarchies]
    cells = [panel.rollup(["region", "year"], hierarchy=one) for one in hierarchies]
    if in_files:
        totals, cells = (
            [ss.read_release(one.to_csv(tmp_path / f"{name}{i}.csv")) for i, one in enumerate(some)]
            for name, some in (("totals", totals), ("cells", cells))
        )
    for i, j in ((0, 1), (1, 0)):
        with refused(ss.ParameterError, "of", code="mismatch"):
            cells[i].share(totals[j])
        assert cells[i].share(totals[i]).table.equals(cells[i].share("region").table)
        assert len(cells[i].share(panel.rollup("year"))) == 4
    assert cells[0].share(totals[2]).table.equals(cells[0].share(totals[0]).table)


def test_totals_by_another_key_column_do_not_contain_the_cells():
    """The levels have the same name and the same mapping, but of the homes and of the places of work."""
    keys = pd.DataFrame({"home": ["a", "a", "b", "b"], "work": ["a", "b", "a", "b"]})
    cells = with_sums(keys.assign(x=100), ss.Gaussian(sigma=5), keys)
    home, work = (ss.Hierarchy(key, {"region": {"a": 1, "b": 2}}) for key in keys)
    with refused(ss.ParameterError, "of", code="mismatch"):
        cells.rollup(["region", "work"], hierarchy=home).share(cells.rollup("region", hierarchy=work))


@pytest.mark.parametrize(
    ("call", "subject", "code"),
    [
        (lambda a, b: a.growth(b, columns="y"), "columns", "value"),
        (lambda a, b: a.growth(b, columns=[]), "columns", "missing"),
        (lambda a, b: a.growth(b, level=1), "level", "value"),
        (lambda a, b: a.growth({}), "earlier", "empty"),
        (lambda a, b: a.growth({"town": "x"}), "earlier", "unknown-column"),
        (lambda a, b: a.growth({"cell": "x"}), "earlier", "value"),
        (lambda a, b: a.growth({"cell": 3}), "earlier", "value"),
        (lambda a, b: a.growth(published(FAMILIES["laplace"], [1], key="town")), "earlier", "value"),
        (lambda a, b: a.growth(published(FAMILIES["laplace"], [1], labels=[3])), "earlier", "type"),
        (lambda a, b: a.growth(published(FAMILIES["laplace"], [1], labels=["z"])), "earlier", "empty"),
        (lambda a, b: a.share("town"), "by", "unknown-column"),
        (lambda a, b: a.share(b, hierarchy=ss.Hierarchy), "hierarchy", "conflict"),
        (lambda a, b: a.ratio("x", "count", interval="exact"), "denominator", "value"),
    ],
)
def test_mistakes(call, subject, code):
    a, b = (published(FAMILIES["laplace"], [100, 200], seed=seed) for seed in (1, 2))
    with refused(ss.ParameterError, subject, code=code):
        call(a, b)


@pytest.mark.parametrize("name", ["gaussian", "laplace"])
def test_the_highest_and_the_lowest_levels(name):
    """At the highest level below 1 intervals exist, and below 0.5 they are about those at 0.5, without delay."""
    a, b = (published(FAMILIES[name], [1000, 2000, 3000], seed=seed) for seed in (1, 2))
    for call in (lambda **o: a.growth(b, **o), lambda **o: a.difference(b, **o), a.share):
        highest, wide, middle, *lowest = (
            ends(call(level=level)) for level in (math.nextafter(1, 0), 1 - 1e-9, 0.5, 0.1, 0.01, 1e-5, 1e-300)
        )
        assert highest[1] <= wide[1] < middle[1]
        assert middle[2] < wide[2] <= highest[2]
        for _, low, high in lowest:
            assert middle[1] <= low < high <= middle[2]
            assert high - low > 0.95 * (middle[2] - middle[1])


def test_a_frame_is_not_a_release():
    a = published(FAMILIES["laplace"], [100, 200])
    with refused(ss.ParameterTypeError, "earlier"):
        a.growth(a.to_pandas())


def test_an_exact_ratio_of_columns():
    """The ratio of two columns of a table is a special case of growth."""
    frame = pd.DataFrame({"cell": [*CELLS], "x": [4000, 9000, 100], "y": [400, 500, 600]})
    m, keys = FAMILIES["laplace"], ss.Keys.from_frame({"cell": CELLS})
    release = ss.Session(frame, bits=Recorded(1)).sum(
        {"x": m, "y": m, "z": ss.Root(k=2, sigma=1)}, keys=keys, derive={"z": "x"}
    )
    table = release.ratio("x", "y", "r", interval="exact").table
    x, y = (published(m, release.table[name].to_pylist(), seed=i) for i, name in enumerate("xy"))
    growth = x.growth(y).table
    for end in ("_low", "_high"):
        assert table[f"r{end}"].to_numpy() == pytest.approx(growth[f"x_growth{end}"].to_numpy() + 1, rel=1e-4)
    assert not release.ratio("x", "y", "r", interval="exact").facts.tables["table"].ratios["r"].approximate
    with refused(ss.ParameterError, "interval", code="unsupported"):
        release.ratio("x", "z", interval="exact")


# What a derived table is.


def test_a_derived_table_is_a_table(tmp_path):
    m = ss.Gaussian(sigma=5)
    found = published(m, [500, 600], labels=["=1+1", "a"]).growth(
        published(m, [400, 500], labels=["=1+1", "a"], seed=2)
    )
    frame = found.to_pandas()
    assert frame.columns.tolist() == ["cell", "x_growth", "x_growth_low", "x_growth_high"]
    assert frame.attrs["slowscale"] == found.facts
    assert pa.table(found).schema.metadata
    assert found.to_polars().shape == (2, 4)
    assert len(found) == 2
    assert repr(found).startswith("NOT PRIVATE")
    assert "x_growth: interval exact" in repr(found)
    assert found._repr_html_().startswith("<table>")
    path = found.to_csv(tmp_path / "growth.csv")
    assert path.read_text() == found.csv_text()
    assert '"\'=1+1"' in found.csv_text()
    with refused(ss.ParameterError, code="exists"):
        found.to_csv(path)


def test_files_give_the_same_numbers(panel, tmp_path):
    read = ss.read_release(panel.to_csv(tmp_path / "panel.csv"))
    assert read.growth({"year": 2023}).table.equals(panel.growth({"year": 2023}).table)
    rolled = ss.read_release(panel.rollup("year").to_parquet(tmp_path / "years.parquet"))
    assert rolled.share().table.equals(panel.rollup("year").share().table)


def test_decimal_units_are_compared_exactly():
    m = ss.Gaussian(sigma=5)
    one = published(m, [0.3, 10.07], unit="0.01", float_data=True)
    other = published(m, [0.1, 9], unit="0.1", float_data=True, seed=2)
    found = one.difference(other).table
    assert found["x_difference"].to_pylist() == [0.2, 1.07]
    whole = published(m, [3, 10], unit=1, seed=3)
    assert one.difference(whole).table["x_difference"].to_pylist() == [-2.7, 0.07]


def test_a_user_function_has_no_interval():
    table = published(FAMILIES["laplace"], [100])["table"]
    unknown = replace(table, mechanisms={})
    with refused(ss.ParameterError, code="user-function"):
        unknown.growth(published(FAMILIES["laplace"], [100], seed=2))


@pytest.mark.parametrize("family", [ss.Gaussian(sigma=100), ss.Log(sigma=0.1, a=10)])
def test_the_share_of_a_cell_that_is_alone_in_its_total_is_exactly_1(family):
    firms = pd.DataFrame({"state": ["a", "a", "b"], "town": ["x", "y", "z"], "pay": [1_000, 2_000, 3_000]})
    released = ss.Session(firms).sum({"pay": family}, ss.Keys.from_frame(firms[["state", "town"]]))
    for shares in (released.share("state"), released.share(released.rollup("state"))):
        found = shares.to_pandas().set_index("town")
        assert list(found.loc["z", ["pay_share", "pay_share_low", "pay_share_high"]]) == [1, 1, 1]
        assert found.loc["x", "pay_share_low"] < found.loc["x", "pay_share_high"]
