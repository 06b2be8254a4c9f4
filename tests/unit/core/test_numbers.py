"""What is said about a published number is so: standard errors, intervals, ratios, digits."""

import itertools
import math
import pickle
import re
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from helpers.bitsources import Recorded
from helpers.errors import refused
from hypothesis import given
from hypothesis import strategies as st

import slowscale as ss
from slowscale.core.numbers import error_figure, percent, published, rounded, rounded_figure
from slowscale.mechanisms.additive import rounded_error
from slowscale.mechanisms.exact_sums import Exact, Sums
from slowscale.mechanisms.grid import directed, outward, values
from slowscale.release import box

MANY = 20_000
PLAIN = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
# A share of MANY draws is off by more than this once in 10⁹ times.
OFF = 6.2 / 2 / math.sqrt(MANY)


def draw(m, q, unit=1, seed=1, **options):
    return m._release(np.full(MANY, q, object), unit, options.get("level", 0.95), Recorded(seed))


class TestStandardErrors:
    @pytest.mark.parametrize(
        "m",
        [
            ss.Root(k=2, sigma=5),
            ss.Root(k=4, sigma=0.5),
            ss.Log(sigma=2),
            ss.Log(sigma=0.5),
            ss.Root(k=3, sigma=1, a=2),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("q", [0, 3, 1000])
    def test_of_transformations_are_too_large_as_often_as_too_small(self, m, q):
        noisy = draw(m, q)
        assert (noisy.se >= m.std(0)).all()
        assert np.mean(noisy.se >= m.std(q)) > 0.5 - OFF
        if q > 100:  # where rounding does not count
            assert np.mean(noisy.se >= m.std(q, unit=1)) < 0.5 + OFF + 0.01

    @pytest.mark.parametrize(
        "m", [ss.Root(k=2, sigma=5), ss.Log(sigma=2), ss.Root(k=4, sigma=1, estimator="median")], ids=str
    )
    def test_are_those_of_a_sum_within_the_interval(self, m):
        noisy = m.release(np.repeat([0, 5, 100, 10**6], 200), bits=Recorded(2))
        low, high = (np.hypot(m.std(np.asarray(end, float)), 0.5) for end in (noisy.low, noisy.high))
        assert (noisy.se >= low * (1 - 1e-9)).all()
        assert (noisy.se <= high * (1 + 1e-9)).all()

    def test_no_cell_takes_all_the_weight(self):
        """Of a mean with weights 1/se² over empty and small cells, no cell makes up more than a few hundredths."""
        noisy = ss.Root(k=2, sigma=5).release(np.repeat([0, 1, 10], 100), bits=Recorded(3))
        weights = noisy.se**-2
        assert weights.max() / weights.sum() < 0.02

    @pytest.mark.parametrize(
        "m",
        [ss.Root(k=50, sigma=1e-4), ss.Root(k=50, sigma=1e-4, estimator="median"), ss.Root(k=120, sigma=1e-3)],
        ids=str,
    )
    def test_are_numbers_for_large_roots(self, m):
        for q in (0, 1, 10**6):
            noisy = m.release(q)
            assert math.isfinite(noisy.se)
            assert not math.isnan(m.variance_estimate(noisy.transformed))

    @pytest.mark.parametrize("sigma", [1e-9, 0.01, 0.1, 0.3, 1, 20])
    def test_of_additive_noise_hold_for_the_worst_sum(self, sigma):
        m = ss.Gaussian(sigma=sigma)
        worst = max(math.hypot(m.bias(q, unit=1), m.std(q, unit=1)) for q in np.linspace(0, 1, 41))
        assert m.release(0.3).se == pytest.approx(worst, rel=1e-3)
        assert m.release(0.3).se >= worst * (1 - 1e-12)
        # What is known to be on the grid has no such error.
        assert m.release(7).se == pytest.approx(m.std(7, unit=1))

    def test_are_half_a_unit_where_the_noise_is_finer(self):
        with pytest.warns(ss.UnitWarning, match=r"unit 100 is coarser than the noise of Gaussian\(sigma=0.001\)"):
            noisy = ss.Gaussian(sigma=0.001).release(np.array([50.0]), unit=100)
        assert noisy.se[0] == pytest.approx(50)

    def test_unbiased_variances_are_right_on_average(self):
        keys = ss.Keys.from_frame({"g": list(range(4000))})
        records = pd.DataFrame({"g": range(4000), "x": [100] * 4000})
        release = ss.Session(records, bits=Recorded(4)).sum({"x": ss.Root(k=2, sigma=2)}, keys=keys)
        found = release.unbiased_variance("x")
        assert found.min() < 0 or found.std() > 0
        true = ss.Root(k=2, sigma=2).variance(100, unit=1)
        assert abs(found.mean() - true) < 6 * found.std() / math.sqrt(found.size)
        # The twin: 5 % more would be seen.
        assert abs(found.mean() - 1.05 * true) > 6 * found.std() / math.sqrt(found.size)

    def test_a_biased_estimate_has_no_unbiased_variance(self):
        session = ss.Session(pd.DataFrame({"x": [100]}), bits=Recorded(4))
        made = session.sum(
            {"x": ss.Root(k=2, sigma=2, estimator="median")}, count=ss.Gaussian(sigma=1), nonnegative=True
        )
        for column in ("x", "count"):
            with refused(ss.ParameterError, code="biased"):
                made.unbiased_variance(column)


class TestIntervals:
    @pytest.mark.parametrize("power", [16, 17, 20, 25, 40])
    @pytest.mark.parametrize(
        "m",
        [ss.Gaussian(sigma=1), ss.GeneralizedGaussian(sigma=1, p=0.5), ss.Root(k=1, sigma=1), ss.Root(k=2, sigma=0.01)],
        ids=str,
    )
    def test_hold_at_any_size(self, m, power):
        noisy = m._release(np.full(400, 10**power + 1, object), 1, 0.95, Recorded(5))
        low, high = noisy.low, noisy.high
        assert all(isinstance(int(end), int) for end in low)
        assert np.mean([a <= 10**power + 1 <= b for a, b in zip(low, high, strict=True)]) > 0.88  # 1e-9
        assert all(a < b for a, b in zip(low, high, strict=True))
        if not m._error_grows:  # and no wider than for a small sum
            small = m._release(np.full(400, 1, object), 1, 0.95, Recorded(5))
            assert high[0] - low[0] == small.high[0] - small.low[0]

    def test_are_exact_integers(self):
        noisy = ss.Gaussian(sigma=1).release(10**30)
        assert (noisy.units - noisy.low, noisy.high - noisy.units) == (2, 2)
        assert isinstance(noisy.low, int)

    @pytest.mark.parametrize("unit", ["0.01", "0.001", "1/3"])
    def test_lie_on_the_grid(self, unit):
        noisy = ss.Gaussian(sigma=2).release(np.array([1.5, 1e6, 1e12]), unit)
        for ends in (noisy.low, noisy.high):
            nearest = np.array([float(round(Fraction(end) / Fraction(unit)) * Fraction(unit)) for end in ends])
            assert (ends == nearest).all()

    @given(st.floats(-1e300, 1e300), st.floats(1e-300, 1e300), st.sampled_from([-1, 1]))
    def test_outward_is_outward(self, q, half, side):
        end = float(outward(np.array([q]), half, side)[0])
        exact = Fraction(q) + side * Fraction(half)
        if math.isfinite(end):
            assert side * (Fraction(end) - exact) >= 0
            assert side * (Fraction(math.nextafter(end, -side * math.inf)) - exact) <= 0

    @given(st.integers(-(10**40), 10**40), st.sampled_from([Fraction(1, 100), Fraction(7, 3), Fraction(1000)]))
    def test_directed_floats(self, n, unit):
        assert Fraction(directed(n * unit, -1)) <= n * unit <= Fraction(directed(n * unit, 1))
        low, high = (values(np.array([n], object), unit, side)[0] for side in (-1, 1))
        if abs(n) >= 10**15:
            assert Fraction(low) <= n * unit <= Fraction(high)
        else:
            assert low == high == (n * unit.numerator if unit.denominator == 1 else float(n * unit))

    def test_of_a_negative_sum_stay_where_they_are(self):
        """Results are raised to 0 on request; the interval still tells what is known of the sum."""
        session = ss.Session(pd.DataFrame({"x": [-1000]}), bits=Recorded(6))
        row = session.sum({"x": ss.Gaussian(sigma=3)}, nonnegative=True).table.to_pylist()[0]
        assert row["x"] == 0
        assert row["x_low"] <= -1000 <= row["x_high"] < 0

    def test_facts_tell_why_an_estimate_can_lie_outside(self):
        session = ss.Session(pd.DataFrame({"x": [0]}), bits=Recorded(7))
        release = session.sum({"x": ss.Root(k=2, sigma=5)}, count=ss.Gaussian(sigma=3))
        facts = release.facts.columns
        assert (facts["x"].at_least, facts["count"].at_least) == (0, 0)
        assert release.table["x_low"].to_pylist()[0] >= 0
        assert "median estimate" in facts["x"].se
        assert "same for every sum" in facts["count"].se

    @pytest.mark.parametrize(
        "m",
        [ss.Gaussian(sigma=3), ss.GeneralizedGaussian(sigma=1, p=0.5), ss.Root(k=2, sigma=2), ss.Log(sigma=0.5)],
        ids=str,
    )
    @pytest.mark.parametrize("ending", ["csv", "parquet"])
    def test_at_other_levels_are_those_of_a_release_at_that_level(self, m, ending, tmp_path):
        records = pd.DataFrame({"g": [0, 1, 2], "x": [0, 40, 10**9]})
        keys = ss.Keys.from_frame({"g": [0, 1, 2]})
        wide, usual = (ss.Session(records, bits=Recorded(8)).sum({"x": m}, keys=keys, level=at) for at in (0.99, 0.9))
        back = ss.read_release(getattr(usual, f"to_{ending}")(tmp_path / f"x.{ending}"))
        for release in (usual, back):
            low, high = release.interval("x", 0.99)
            assert low == pytest.approx(wide.table["x_low"].to_pylist(), rel=1e-9, abs=1)
            assert high == pytest.approx(wide.table["x_high"].to_pylist(), rel=1e-9, abs=1)
            assert (low <= wide.table["x_low"].to_pylist()).all()
            assert (release.interval("x", 0.5)[0] == release.table["x_low"].to_pylist()).all()
        with pytest.raises(ss.ParameterError, match="column must be one of x"):
            usual.interval("y")

    def test_beyond_floats_are_rounded_outwards_too(self):
        """Intervals at other levels, and ratios, of sums that floats cannot tell apart."""
        truth = [10**17 + 5 + i for i in range(200)]
        keys = ss.Keys.from_frame({"g": list(range(200))})
        session = ss.Session(pd.DataFrame({"g": range(200), "x": truth}), bits=Recorded(16))
        made = session.sum({"x": ss.Gaussian(sigma=1)}, keys=keys, count=ss.Gaussian(sigma=0.05))
        for level in (0.5, 0.95, 0.99):
            low, high = made.interval("x", level)
            held = [Fraction(a) <= q <= Fraction(b) for a, q, b in zip(low, truth, high, strict=True)]
            assert np.mean(held) > 0.88
        frame = made.ratio("x", "count").to_pandas()
        held = [
            Fraction(a) <= q <= Fraction(b)
            for a, q, b in zip(frame["x_per_count_low"], truth, frame["x_per_count_high"], strict=True)
        ]
        assert np.mean(held) > 0.88

    @pytest.mark.parametrize("size", [40, 10**17 + 5, 10**25 + 7], ids=["int64", "beyond 2^53", "beyond 2^63"])
    @pytest.mark.parametrize("unit", ["1", "10", "0.01"])
    @pytest.mark.parametrize("m", [ss.Gaussian(sigma=30), ss.Root(k=2, sigma=3)], ids=str)
    def test_are_the_numbers_of_the_table(self, size, unit, m, tmp_path):
        """At every level, intervals have the type and the digits of a table that is released at that level."""
        records = pa.table({"g": ["a", "b"], "x": pa.array([size, 3 * size], pa.decimal128(38, 0))})
        keys, levels = ss.Keys.from_frame({"g": ["a", "b"]}), (0.9, 0.99)
        usual, wide = (
            ss.Session(records, bits=Recorded(8)).sum({"x": m}, keys=keys, level=level, unit=unit) for level in levels
        )
        # A release at the higher level knows more digits than one that was read, and than the floats of another one.
        knows_less = isinstance(m, ss.Root) or (unit == "0.01" and size > 2**53)
        for made, other in ((usual, wide), (usual.rollup(), wide.rollup())):
            back = ss.read_release(made.to_parquet(tmp_path / "x.parquet", overwrite=True))
            for release, level in itertools.product((made, back), (0.5, 0.9, 0.99)):
                ends = release.interval("x", level)
                low, high = box(ends, ends)
                assert ((low < 1) & (high > 1)).all()
                if math.inf in ends[1].tolist():
                    assert release is back  # a file does not hold the cells of a roll-up
                    assert knows_less
                    continue
                for end, found in zip(("low", "high"), ends, strict=True):
                    expected = (made if level < 0.99 else other).table[f"x_{end}"].to_pylist()
                    assert {type(one) for one in found.tolist()} == {type(one) for one in expected}
                    if level < 0.99 or not knows_less:
                        assert found.tolist() == expected
                    else:
                        side = -1 if end == "low" else 1
                        assert all(side * (one - two) >= 0 for one, two in zip(found.tolist(), expected, strict=True))

    def test_without_end_are_infinite(self):
        session = ss.Session(pd.DataFrame({"x": [5]}), bits=Recorded(17))
        made = session.mean({"x": ss.Log(sigma=2000.0)}, count=ss.Gaussian(sigma=1))
        assert made.interval("x", 0.99)[1][0] == math.inf
        assert (
            session.mean({"x": ss.Gaussian(sigma=1)}, count=ss.Gaussian(sigma=1), level=1 - 1.2e-16).table.num_rows == 1
        )
        wide = ss.ExponentialPolylog(d=1.001, p=1)
        assert wide.prediction_interval(0, 0.95, 1) == wide.prediction_interval(0, 0.95) == (-math.inf, math.inf)

    def test_a_mean_that_cannot_be_worked_out_costs_nothing(self, monkeypatch):
        session = ss.Session(pd.DataFrame({"x": [5]}), bits=Recorded(17))
        monkeypatch.setattr(ss.ReleasedSums, "ratio", lambda *given: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            session.mean({"x": ss.Gaussian(sigma=1)}, count=ss.Gaussian(sigma=1))
        assert session.spent.releases == 0


class TestPredictions:
    @pytest.mark.parametrize(
        "m",
        [ss.Gaussian(sigma=0.5), ss.Gaussian(sigma=3), ss.GeneralizedGaussian(sigma=1, p=0.5), ss.Root(k=2, sigma=1)],
        ids=str,
    )
    @pytest.mark.parametrize(("q", "unit"), [(49, 1), (49, 100), (7.25, "0.5"), (0, 10)])
    def test_are_about_what_is_published(self, m, q, unit):
        low, high = m.prediction_interval(q, 0.95, unit)
        noisy = m._release(np.full(MANY, q), unit, 0.95, Recorded(9))
        held = np.mean((noisy.value >= low) & (noisy.value <= high))
        assert held > 0.95 - OFF
        assert held == pytest.approx(m.coverage(q, 0.95, unit), abs=OFF)
        spread = noisy.value.std()
        assert m.std(q, unit) == pytest.approx(spread, rel=0.05, abs=0.02 * float(Fraction(unit)))
        assert m.variance(q, unit) == pytest.approx(m.std(q, unit) ** 2)

    @pytest.mark.parametrize(
        "m",
        [ss.Root(k=2, sigma=0.5, estimator="median"), ss.Log(sigma=0.3, estimator="median"), ss.Gaussian(sigma=2)],
        ids=str,
    )
    @pytest.mark.parametrize(("q", "unit"), [(13, 10), (140, 100), (5, 1)])
    def test_bias_of_rounding(self, m, q, unit):
        noisy = m._release(np.full(MANY, q), unit, 0.95, Recorded(15))
        error = noisy.value - float(q)
        assert abs(error.mean() - m.bias(q, unit)) < 6 * error.std() / math.sqrt(MANY) + 2e-4 * unit
        assert m.bias(q) == pytest.approx(m.bias(q, "0.001"), abs=1e-3)

    def test_a_median_estimate_is_rounded_to_nearest(self):
        with pytest.warns(ss.UnitWarning, match="rounding biases results by up to 50"):
            noisy = ss.Root(k=2, sigma=0.05, estimator="median").release(140.0, unit=100)
        assert noisy.value == 100
        assert ss.Root(k=2, sigma=0.05, estimator="median").bias(140, unit=100) == pytest.approx(-40)
        assert ss.Root(k=2, sigma=0.05).bias(140, unit=100) == pytest.approx(0, abs=1e-9)

    def test_the_ideal_ones_are_another_matter(self):
        """Gaussian(0.5) with a unit of 1 stays within the ideal interval in 68 % of cases only."""
        m = ss.Gaussian(sigma=0.5)
        low, high = m.prediction_interval(3.0)
        noisy = m._release(np.full(MANY, 3), 1, 0.95, Recorded(10))
        assert np.mean((noisy.value >= low) & (noisy.value <= high)) < 0.7
        assert m.coverage(3.0) == pytest.approx(0.95)
        assert m.coverage(3, unit=1) > 0.99

    def test_large_sums_do_not_lose_their_noise(self):
        low, high = ss.Gaussian(sigma=1).prediction_interval(10**20, unit=1)
        assert (low, high) == (10**20 - 2, 10**20 + 2)
        low, high = ss.Gaussian(sigma=1).prediction_interval(1e17)
        assert low < 1e17 < high
        low, high = ss.Root(k=1, sigma=1).prediction_interval(1e25)
        assert low < 1e25 < high

    @pytest.mark.parametrize("sigma", [1e-3, 0.05, 0.2, 0.45, 2])
    def test_error_of_rounding_is_that_of_the_discrete_distribution(self, sigma):
        n = np.arange(-40, 41)
        noise = ss.Gaussian(sigma=sigma).noise
        for place in (0.0, 0.1, 0.3, 0.5):
            share = noise.cdf(n + 0.5 - place) - noise.cdf(n - 0.5 - place)
            mean = n @ share
            bias, std = (found[0] for found in rounded_error(noise, Fraction(1), np.array([place])))
            assert bias == pytest.approx(mean - place, abs=1e-12)
            assert std == pytest.approx(math.sqrt(n**2 @ share - mean**2), abs=1e-6)

    @pytest.mark.parametrize(("sigma", "true"), [(0.05, 3.904e-12), (0.06, 8.866e-09), (0.07, 9.561e-07)])
    def test_tiny_errors_keep_their_digits(self, sigma, true):
        """Against Σ(2j+1)·2S(j+½), worked out to 30 digits."""
        assert ss.Gaussian(sigma=sigma).std(0, unit=1) == pytest.approx(true, rel=1e-3)
        assert ss.Gaussian(sigma=sigma).release(3).se == pytest.approx(true, rel=1e-3)

    @pytest.mark.parametrize("sigma", [0.02, 0.1, 0.2, 0.4])
    def test_largest_bias_is_the_largest(self, sigma):
        m = ss.Gaussian(sigma=sigma)
        dense = np.abs(m.bias(np.linspace(0, 0.5, 4001), unit=1)).max()
        assert m._rounding_bias(Fraction(1), False) == pytest.approx(dense, rel=2e-4)

    def test_large_sums_have_no_bias_from_floats(self):
        assert ss.Root(k=2, sigma=1e-3).bias(1e25) == ss.Root(k=2, sigma=1e-6).bias(10**17 + 8, 1) == 0
        assert ss.Root(k=2, sigma=1).coverage(1e40, 0.95, 1) >= 0.95
        low, high = ss.Gaussian(sigma=5.1).prediction_interval(10**17 + 8)
        assert (Fraction(low) <= 10**17 + 8 - 9, Fraction(high) >= 10**17 + 8 + 9) == (True, True)

    def test_bias_of_rounding_where_only_the_middle_is_narrow(self):
        """A log's median estimate has a narrow middle and a far tail: against a sum over many noise values."""
        m, n = ss.Log(sigma=3, estimator="median"), np.linspace(-9, 9, 1_000_001)
        weights = np.exp(-(n**2) / 2) / np.exp(-(n**2) / 2).sum()
        ideal = np.maximum(np.exp(np.log(11) + 3 * n) - 1, 0)
        published = np.floor(ideal / 4000 + 0.5) * 4000
        assert m.bias(10, unit=4000) == pytest.approx(weights @ published - 10, rel=0.01)

    def test_error_of_rounding_with_heavy_tails(self):
        """Both ways to work it out agree where the noise is wide enough."""
        for noise in (
            ss.GeneralizedGaussian(sigma=1, p=0.5).noise,
            ss.ExponentialPolylog(d=0.4).noise,
            ss.Gaussian(sigma=1).noise,
        ):
            unit = Fraction(noise.isf(0.25) / 29)
            bias, std = rounded_error(noise, unit, np.array([0.0, 0.25, 0.5]))
            assert np.abs(bias).max() < 1e-3 * float(unit)
            assert std == pytest.approx(np.hypot(noise.std(), float(unit) / math.sqrt(12)), rel=1e-5)


class TestRatios:
    @given(*[st.floats(-100, 100).map(lambda x: round(x, 9)) for _ in range(4)])
    def test_a_box_holds_every_ratio(self, a, b, c, d):
        x, y = sorted((a, b)), sorted((c, d))
        low, high = (end[0] for end in box(*[tuple(np.array([end]) for end in ends) for ends in (x, y)]))
        for top in np.linspace(*x, 7):
            for bottom in np.linspace(*y, 8):
                if bottom != 0 and math.isfinite(top / bottom):
                    assert low <= top / bottom * (1 + 1e-12) or low <= top / bottom * (1 - 1e-12)
                    assert high >= top / bottom * (1 - 1e-12) or high >= top / bottom * (1 + 1e-12)

    def test_means_of_few_records(self):
        """The default interval holds at its level, ends, and has the ratio in it; others are asked for by name."""
        groups = 3000
        keys = ss.Keys.from_frame({"g": list(range(groups))})
        records = pd.DataFrame({"g": range(groups), "x": [50] * groups})
        release = ss.Session(records, bits=Recorded(11)).mean(
            {"x": ss.Log(sigma=0.5)}, keys=keys, count=ss.Root(k=2, sigma=1)
        )
        frame = release.to_pandas()
        assert np.mean((frame["x_mean_low"] <= 50) & (frame["x_mean_high"] >= 50)) > 0.93  # 1e-6
        assert np.isfinite(frame["x_mean_high"]).mean() > 0.98
        known = frame.dropna()
        assert ((known["x_mean_low"] <= known["x_mean"]) & (known["x_mean"] <= known["x_mean_high"])).all()
        assert release.facts.tables["table"].ratios["x_mean"].to_dict() == {
            "numerator": "x", "denominator": "count", "level": 0.95, "interval": "box", "approximate": False,
        }  # fmt: skip
        assert (
            release.ratio("x", "count", "r", interval="fieller").facts.tables["table"].ratios["r"].approximate is True
        )

    def test_without_the_mechanism_there_is_no_box(self, tmp_path):
        session = ss.Session(pd.DataFrame({"x": [5]}), bits=Recorded(12))
        made = session.sum({"x": ss.Transformation(np.log1p, np.expm1, 0.5, 0)}, count=ss.Gaussian(sigma=1))
        assert made.ratio("x", "count").table["x_per_count_low"].to_pylist()[0] >= 0
        with refused(ss.EngineError, code="user-function"):
            ss.read_release(made.to_parquet(tmp_path / "x.parquet"))
        known = {"count": made.mechanisms["count"]}
        read = replace(made, tables={"table": replace(made["table"], mechanisms=known)})
        with pytest.raises(ss.ParameterError, match="the mechanism of 'x' has a user function"):
            read.ratio("x", "count")
        assert read.ratio("x", "count", interval="delta").facts.tables["table"].ratios["x_per_count"].approximate


class TestDigits:
    def test_tables_have_no_digits_that_mean_nothing(self, tmp_path):
        records = pd.DataFrame({"g": ["a", "b"], "x": [1_000_000, 3], "y": [10.5, 1e6]})
        session = ss.Session(records, bits=Recorded(13))
        keys = ss.Keys.from_frame({"g": ["a", "b"]})
        made = session.mean(
            {"x": ss.Gaussian(sigma=75), "y": ss.Root(k=2, sigma=1)},
            keys=keys,
            count=ss.Gaussian(sigma=1),
            unit={"y": "0.01"},
        )
        lines = made.to_csv(tmp_path / "x.csv").read_text().splitlines()
        for name, *cells in zip(*(line.split(",") for line in lines), strict=True):
            for cell in cells if not name.strip('"').endswith("transformed") else ():
                assert len(re.sub(r"\D", "", cell)) <= 9, (name, cell)

    @pytest.mark.parametrize("unit", [None, Fraction(1, 3), Fraction(1, 10**7)])
    @pytest.mark.parametrize("x", [1005.33333, 8.65243e-10, 2.2944712e-10, 12345.1234567, 1.2345678e19, -3.3333e-7])
    def test_ends_are_shown_rounded_outwards(self, x, unit):
        for side in (-1, 1):
            text = (published(x, unit, side) if unit else rounded_figure(x, side)).replace("\u00a0×\u00a010", "e")
            digits, _, power = text.replace(",", "").replace("−", "-").partition("e")
            shown = Fraction(digits) * Fraction(10) ** int(power.translate(PLAIN) or 0)
            assert side * (shown - Fraction(x)) >= -1e-12 * abs(x)
            assert abs(shown - Fraction(x)) <= 1e-4 * abs(x)

    def test_a_level_near_1_is_not_called_1(self):
        assert percent(1 - 1e-8) == "99.999999 %"
        assert "100" not in percent(1 - 1e-15)

    @given(st.floats(1e-12, 1e12), st.sampled_from([3, 4, 6]))
    def test_rounding_to_digits(self, x, digits):
        nearest, low, high = (float(rounded(x, digits, side)) for side in (0, -1, 1))
        step = 10.0 ** (math.floor(math.log10(x)) - digits + 1)
        assert nearest == float(f"{x:.{digits - 1}e}") or abs(nearest - x) == pytest.approx(step / 2)
        assert low <= x * (1 + 1e-12)
        assert high >= x * (1 - 1e-12)
        assert high - low <= step * (1 + 1e-6)
        assert float(rounded(-x, digits, 1)) == -low


class TestWhatIsShown:
    def test_releases_compare(self):
        one, two = (ss.Root(k=2, sigma=1).release([5, 6], bits=Recorded(seed)) for seed in (1, 2))
        assert one == ss.Root(k=2, sigma=1).release([5, 6], bits=Recorded(1))
        assert one != two
        assert one != 5
        assert pickle.loads(pickle.dumps(one)) == one

    def test_true_sums_are_not_shown(self):
        exact = Exact(np.array([123456]), Fraction(1))
        for thing in (exact, Sums.of(exact, Fraction(1)), Sums.of(Decimal("123456.5"), Fraction(1))):
            assert "123456" not in f"{thing!r} {thing} {[thing]}"

    def test_a_coarse_unit_is_warned_of_before_anything_is_charged(self):
        session = ss.Session(pd.DataFrame({"x": [1.5]}), bits=Recorded(14))
        with pytest.warns(ss.UnitWarning, match="column 'x': unit 10 is coarser than the noise"):
            release = session.sum({"x": ss.Gaussian(sigma=1)}, unit=10)
        assert release.facts.columns["x"].rounding_bias == pytest.approx(2.85, abs=0.01)
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("error", ss.UnitWarning)
            with pytest.raises(ss.UnitWarning):
                session.sum({"x": ss.Gaussian(sigma=1)}, unit=10)
            assert session.spent.releases == 1
            session.count(mechanism=ss.Gaussian(sigma=0.1))  # counts are on the grid: no bias
            session.sum({"x": ss.Gaussian(sigma=5)}, unit=1)

    def test_a_loss_does_not_vanish_by_underflow(self):
        with pytest.raises(ss.ParameterError, match="threshold must be between"):
            ss.UnitSplitting(threshold=1e-200, sigma=1)


@given(st.floats(1e-3, 1e11))
def test_errors_are_hardly_understated(error):
    stated = float(error_figure(error).replace(",", ""))
    assert (1 - 5.01e-4) * error <= stated <= 1.0101 * error
    assert len(str(int(stated)).rstrip("0")) <= 4
