"""Open cells: the counts of a plain SQL query, before the noise and after it, and that no reader sees them."""

import json
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.bitsources import Recorded
from helpers.dominance import LABELS, plain_count, records
from helpers.errors import refused
from scipy import stats

import slowscale as ss
from slowscale.data.contributors import largest_contributors
from slowscale.data.sums import Column

KEYS = ss.Keys.cross({"cell": LABELS})
KINDS = ["skewed", "ties", "signed", "entities"]
RULES = [
    ss.Dominance(),
    ss.Dominance(p=0.3, n=1, k=0.6, probability=0.2),
    ss.Dominance(p=0.05, n=3, k=0.95, probability=0.9),
]
# Noises with a distribution function that scipy knows.
NOISES = [(ss.Gaussian(sigma=8), stats.norm(scale=8)), (ss.Laplace(sigma=3), stats.laplace(scale=3))]


def opened(kind, noise, rules, where=None):
    options = {"nulls": "zero"} | ({} if where is None else {"where": where})
    session = ss.Session(records(kind), protect="firm" if kind == "entities" else None)
    found = session.inspect(ss.Sums({"x": noise}, KEYS, **options), duplicates=False, dominance=rules)
    return found.open_cells


def expected(cells, law, rules):
    """Return the numbers of open cells and their shares of the total, for both rules."""
    whole = cells.total.sum()
    found = []
    for rest, close, before in (
        (cells.beyond_two, rules.p * cells["first"], cells.open_p),
        (cells.beyond_n, (1 - rules.k) * cells.total, cells.open_nk),
    ):
        after = law.cdf(close - rest) - law.cdf(-close - rest) > rules.probability
        informed = 2 * law.cdf(close) - 1 > rules.probability
        found.append([(int(some.sum()), cells.total[some].sum() / whole) for some in (before, after, informed)])
    return found


@pytest.mark.parametrize("rules", RULES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_open_cells_are_those_of_a_plain_count(kind, rules):
    noise, law = NOISES[rules.n % 2]
    cells = plain_count(records(kind), LABELS, rules, "firm" if kind == "entities" else None)
    found = opened(kind, noise, rules)
    assert [one.cells for one in found] == [len(cells)] * 2
    assert 0 < len(cells) < len(LABELS)
    counts = [
        [(part.cells, pytest.approx(part.share)) for part in (one.before, one.after, one.informed)] for one in found
    ]
    assert counts == expected(cells, law, rules)
    assert found[0].before.cells > 0
    # A cell with one contributor is open by both rules.
    (single,) = cells[cells.cell == LABELS[36]].itertuples()
    assert (single.total, single.first, single.open_p, single.open_nk) == (7, 7, True, True)
    # A twin: another share finds other cells.
    other = expected(plain_count(records(kind), LABELS, ss.Dominance(p=0.9, n=1)), law, ss.Dominance(p=0.9, n=1))
    assert counts != other


def test_a_filter_and_a_derived_column():
    rules = ss.Dominance()
    query = ss.Sums({"y": ss.Gaussian(sigma=8)}, KEYS, derive={"y": "2 * x"}, where="firm <> 'firm 1'")
    found = ss.Session(records("skewed")).inspect(query, dominance=rules).open_cells
    cells = plain_count(records("skewed"), LABELS, rules, where="firm <> 'firm 1'")
    cells[["total", "first", "beyond_two", "beyond_n"]] *= 2
    expects = expected(cells, stats.norm(scale=8), rules)
    assert [[part.cells for part in (one.before, one.after, one.informed)] for one in found] == [
        [count for count, _ in one] for one in expects
    ]


def test_one_cell_by_hand():
    """100, 40 and 9: the second misses the first by 9 < 10; both have 140 of 149, more than 85 %."""
    table = pa.table({"x": [100, 40, 9]})
    session = ss.Session(table)

    def parts(noise, **rules):
        p, nk = session.inspect(ss.Sums({"x": noise}), dominance=ss.Dominance(**rules)).open_cells
        return [[part.cells for part in (one.before, one.after, one.informed)] for one in (p, nk)]

    tiny, wide = ss.Gaussian(sigma=0.01), ss.Gaussian(sigma=1e6)
    assert parts(tiny) == [[1, 1, 1], [1, 1, 1]]
    assert parts(wide) == [[1, 0, 0], [1, 0, 0]]
    assert parts(tiny, p=0.09) == [[0, 0, 1], [1, 1, 1]]  # 9 is not less than 9
    assert parts(tiny, n=1, k=100 / 149 + 1e-9) == [[1, 1, 1], [0, 0, 1]]
    assert parts(tiny, n=1, k=100 / 149 - 1e-9) == [[1, 1, 1], [1, 1, 1]]
    # The second misses by 9 ± noise, and is within 10 with probability P(−19 < Z < 1).
    p = stats.norm(scale=5).cdf(1) - stats.norm(scale=5).cdf(-19)
    for limit, is_open in ((p - 1e-6, 1), (p + 1e-6, 0)):
        assert parts(ss.Gaussian(sigma=5), probability=limit)[0] == [1, is_open, 1]


def test_zeros_and_no_records_are_no_cells():
    for values in ([0, 0], []):
        session = ss.Session(pa.table({"x": pa.array(values, pa.int64())}))
        for one in session.inspect(ss.Sums({"x": ss.Gaussian(sigma=1)})).open_cells:
            assert (one.cells, *one.before, *one.after, *one.informed) == (0, 0, 0, 0, 0, 0, 0)
    counted = ss.Session(records("ties")).inspect(ss.Sums({}, KEYS, count=ss.Gaussian(sigma=1)))
    assert counted.open_cells == ()


def test_values_that_cannot_be_counted_are_left_out(tmp_path):
    table = pa.table({"x": [math.nan, math.inf, 1e300, 100.0, 1.0, -math.inf]})
    pq.write_table(table, tmp_path / "r.parquet")
    for data in (table, tmp_path / "r.parquet"):
        session = ss.Session(data)
        (one,) = largest_contributors(session.table, [Column("x", Fraction(1))], None, None, 3)
        assert one.largest.tolist() == [[100.0, 1.0, 0.0]]
        assert one.totals.tolist() == [101.0]
        assert "100" not in repr(one)


TRANSFORMED = [
    ss.Log(sigma=0.1, a=10),
    ss.Log(sigma=0.2, a=10, noise="laplace"),
    ss.Log(sigma=0.3, estimator="median"),
    ss.Root(k=4, sigma=0.5),
    ss.Root(k=2, sigma=1, a=3, noise="laplace"),
    ss.Root(k=2.5, sigma=1, noise=ss.ArsinhNormal(scale=1, shape=1)),
    ss.Arsinh(s=10, sigma=0.2, noise="laplace"),
    ss.Transformation(np.sqrt, np.square, 1.0, 0.0),
]


@pytest.mark.parametrize("mechanism", [ss.ExponentialPolylog(d=0.3), *TRANSFORMED[:-1]], ids=str)
def test_probabilities_are_those_of_draws(mechanism):
    """20,000 draws for each of four sums and ranges: a share is off by more than 5.2 standard errors with probability
    2e-7, and 32 are compared; the twin's range is 10 % narrower."""
    sums = np.array([3.0, 40.0, 500.0, 10_000.0])
    spread = np.array([float(np.ptp(mechanism.prediction_interval(q, 0.8))) for q in sums])
    low, high = -0.3 * spread, 0.2 * spread
    found = mechanism._probability_within(sums, low, high)
    drawn = mechanism.release(np.repeat(sums, 20_000).astype(np.int64), unit="0.000001", bits=Recorded(3))
    errors = np.asarray(drawn.value, float).reshape(4, -1) - sums[:, None]
    shares = np.mean((errors > low[:, None]) & (errors < high[:, None]), axis=1)
    tolerance = 5.2 * np.sqrt(found * (1 - found) / 20_000) + 1e-4
    assert (np.abs(shares - found) <= tolerance).all()
    narrower = np.mean((errors > 0.9 * low[:, None]) & (errors < 0.9 * high[:, None]), axis=1)
    assert (np.abs(narrower - found) > tolerance).any()


@pytest.mark.parametrize("mechanism", TRANSFORMED, ids=str)
def test_probabilities_by_two_ways(mechanism):
    """The closed form of median estimates, or a root search, and 40,000 points of equal probability of the noise."""
    rng = np.random.default_rng(4)
    sums = np.concatenate([[1.0, 2.0], np.exp(rng.uniform(1, 12, 30))])
    low = -sums * rng.uniform(0, 2, sums.size)  # some ends are below 0, and some ranges do not contain the sum
    high = low + sums * rng.uniform(0, 3, sums.size)
    noise = mechanism._noise.isf((np.arange(40_000) + 0.5) / 40_000)
    with np.errstate(all="ignore"):
        errors = [mechanism._error(np.full_like(noise, q), noise) for q in sums]
    shares = [np.mean((one > a) & (one < b)) for one, a, b in zip(errors, low, high, strict=True)]
    np.testing.assert_allclose(mechanism._probability_within(sums, low, high), shares, rtol=0, atol=1e-4)


def test_transformations_use_the_noise_of_the_true_sum():
    """A logarithm with a spread of 20 % closes what additive noise of the same median error leaves open."""
    table = pa.table({"cell": ["c00"] * 3 + ["c01"] * 2, "x": [1_000_000, 90_000, 5_000, 2_000, 1_500]})
    log, rules = ss.Log(sigma=0.2, a=100), ss.Dominance()
    for mechanism, after in ((log, 0), (ss.Gaussian(sigma=500), 1)):
        p, _ = ss.Session(table).inspect(ss.Sums({"x": mechanism}, KEYS), dominance=rules).open_cells
        assert (p.cells, p.before.cells, p.after.cells) == (2, 2, after)
    close, rest = 100_000, 5_000
    within = log._probability_within(*(np.array([float(one)]) for one in (1_095_000, -close - rest, close - rest)))
    for limit, after in ((within[0] - 1e-9, 1), (within[0] + 1e-9, 0)):
        rules = ss.Dominance(probability=float(limit))
        p, _ = ss.Session(table).inspect(ss.Sums({"x": log}, KEYS), dominance=rules).open_cells
        assert p.after.cells == after
    # With negative values, contributions are absolute, and the noise is that of the true sum, which is small here.
    mixed = pa.table({"x": [1_000, -990, 5]})
    arsinh = ss.Arsinh(s=10, sigma=0.5)
    p, _ = ss.Session(mixed).inspect(ss.Sums({"x": arsinh}), dominance=ss.Dominance()).open_cells
    assert (p.before.cells, p.informed.cells) == (1, 1)
    assert arsinh._probability_within(np.array([1995.0]), np.array([-100.0]), np.array([100.0]))[0] < 0.5


def test_rules_are_checked():
    for name, value in (("p", 0), ("p", 1), ("n", 0), ("n", 1.5), ("n", 11), ("k", 1), ("probability", 1)):
        with refused(ss.ParameterError, name):
            ss.Dominance(**{name: value})
    session, query = ss.Session(records("ties")), ss.Sums({"x": ss.Gaussian(sigma=1)}, KEYS, nulls="zero")
    with refused(ss.ParameterTypeError, "dominance"):
        session.inspect(query, dominance=True)
    with refused(ss.ParameterTypeError, "dominance"):
        session.dominance(session.release(query), None)
    assert "the largest contributor has more than 85 %" in ss.Dominance(n=1).describe()


def test_only_confidential_reports_show_open_cells(tmp_path):
    session = ss.Session(records("entities"), protect="firm")
    query = ss.Sums({"x": ss.Gaussian(sigma=8)}, KEYS)
    found = session.inspect(query)
    release = session.release(query)
    assert list(session.dominance(release).values()) == [found.open_cells]
    assert (
        json.loads(json.dumps(found.to_dict()))["open_cells"][0]["before"]["cells"] == found.open_cells[0].before.cells
    )
    assert "10 % rule" in repr(found)
    assert repr(found.open_cells[0]).startswith("CONFIDENTIAL OpenCells(")
    skipped = session.inspect(query, dominance=None)
    assert (skipped.dominance, skipped.open_cells) == (None, ())
    assert "rule" not in repr(skipped)
    words = "knows the largest one to within 10 %"
    for written in (found.report(tmp_path / "look.html"), release.confidential_report(tmp_path / "c.html", session)):
        text = written.read_text(encoding="utf-8")
        assert words in text
        assert "(2, 85 %)-dominance" in text
    assert words not in skipped.report(tmp_path / "skipped.html").read_text(encoding="utf-8")
    release.to_csv(tmp_path / "t.csv")
    public = [release.report(tmp_path / "public.html"), *tmp_path.glob("t.*")]
    for path in public:
        text = path.read_text(encoding="utf-8")
        assert not any(word in text.lower() for word in ("dominance", "open cells", "10 % rule", "contributor")), path
    assert "dominance" not in json.dumps(release.facts.to_dict())
