"""Roll-ups: exact sums of published cells, their intervals and facts, and what is refused."""

import itertools
import math
import pickle
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from helpers.bitsources import Recorded
from helpers.errors import refused
from helpers.releases import with_table
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

import slowscale as ss
from slowscale.mechanisms.sum_intervals import sum_ends, sum_half_steps, sum_variances
from slowscale.mechanisms.transforms import root_cumulants
from slowscale.noise.sums import sum_half_widths
from slowscale.release.facts import NO_VARIANCE, Facts
from slowscale.release.numbers import group_sums, number_column, whole_units
from slowscale.release.rollup import SUM_ERRORS, _ends, _units, _widened

COUNTIES = ["01001", "01003", "02013", "02016", "02020"]
INDUSTRIES = [111, 112, 221, 335, 445, 999]
STATES = ss.Hierarchy("county", {"state": {county: county[:2] for county in COUNTIES}})
KEYS = ss.Keys.cross({"county": COUNTIES, "naics": INDUSTRIES})
ADDITIVE = {
    "gaussian": ss.Gaussian(sigma=12),
    "splitting": ss.UnitSplitting(threshold=10, sigma=12),
    "laplace": ss.GeneralizedGaussian(sigma=9, p=1),
    "generalized": ss.GeneralizedGaussian(sigma=2, p=0.5),
    "polylog": ss.ExponentialPolylog(d=0.3),
    "arsinh": ss.ArsinhNormal(scale=5, shape=1.5),
    "points": ss.FromPolicy([(100, 0.5), (1e4, 5), (1e6, 12)]),
}


@pytest.fixture(scope="module")
def records():
    generator = np.random.default_rng(3)
    size = 3000
    return pd.DataFrame(
        {
            "county": generator.choice(COUNTIES, size),
            "naics": generator.choice(INDUSTRIES, size),
            "emp": generator.integers(1, 100, size),
            "pay": generator.lognormal(3, 1, size),
            "size": generator.integers(1, 100, size),
        }
    )


@pytest.fixture(scope="module")
def release(records):
    session = ss.Session(records, bits=Recorded(1))
    mechanisms = {
        "emp": ss.ExponentialPolylog(d=0.3),
        "pay": ss.ArsinhNormal(scale=5, shape=1.5),
        "size": ss.Root(k=4, sigma=0.5),
    }
    made = session.sum(mechanisms, keys=KEYS, unit={"pay": "0.01"}, count=ss.Gaussian(sigma=3))
    return made.ratio("pay", "emp")


def described(release):
    """The facts of the one table of a release."""
    (table,) = release.tables.values()
    return table.facts


def exact(release, column):
    """The cells of a column as fractions, by their labels."""
    table = release.table
    unit = release.facts.columns[column].grid
    values = [round(Fraction(x) / unit) * unit for x in table[column].to_pylist()]
    labels = zip(*(table[key].to_pylist() for key in described(release).by), strict=True)
    return dict(zip(labels, values, strict=True))


def test_columns(release):
    rolled = release.rollup(["state", "naics"], hierarchy=STATES)
    names = [name + end for name in ("emp", "pay", "size", "count") for end in ("", "_se", "_low", "_high")]
    ratio = ["pay_per_emp", "pay_per_emp_se", "pay_per_emp_low", "pay_per_emp_high"]
    assert rolled.table.column_names == ["state", "naics", *names, "cells", *ratio]
    assert rolled.table["naics"].type == pa.int64()
    assert rolled.table["state"].to_pylist() == [state for state in ("01", "02") for _ in INDUSTRIES]
    assert rolled.table["cells"].to_pylist() == [2] * 6 + [3] * 6
    assert described(rolled).keys.columns == {"state": "text", "naics": "whole numbers"}
    assert described(rolled).keys.count == 12


@pytest.mark.parametrize("column", ["emp", "pay", "size", "count"])
def test_sums_are_exact(release, column):
    cells = exact(release, column)
    for row in release.rollup("naics").table.to_pylist():
        wanted = sum(value for key, value in cells.items() if key[1] == row["naics"])
        assert Fraction(str(row[column])) == wanted


@pytest.mark.parametrize("column", ["emp", "pay", "size", "count"])
def test_totals_of_margins_are_the_total(release, column):
    unit = release.facts.columns[column].grid
    total = whole_units(release.rollup().table[column], unit)[0]
    for margin in (release.rollup("county"), release.rollup("naics"), release.rollup("state", hierarchy=STATES)):
        assert whole_units(margin.table[column], unit).sum() == total


def test_facts(release):
    rolled = release.rollup("state", hierarchy=STATES)
    facts = described(rolled).rollup
    assert (list(rolled), facts.of, described(rolled).of) == (["table_by_state"], "table", "table")
    assert rolled.facts.id == release.facts.id
    assert rolled.facts.tables["table"] == release.facts.tables["table"]
    assert rolled.facts.drawn == ("table",)
    assert (facts.over, facts.levels, facts.number, facts.complete) == (
        ("county", "naics"),
        {"state": "county"},
        "cells",
        True,
    )
    assert list(facts.groupings) == ["state"]
    damaged = rolled.facts.to_dict()
    damaged["tables"]["table_by_state"]["rollup"]["groupings"] = {}
    with refused(ss.ParameterError, code="damaged"):
        Facts.from_dict(damaged)
    assert "Chebyshev" in facts.rules["size"]
    assert "rounding errors" in facts.rules["pay"]
    assert "rounding errors" not in facts.rules["emp"]
    assert (rolled.policy, rolled.pure_policy, rolled.mechanisms) == (
        release.policy,
        release.pure_policy,
        release.mechanisms,
    )
    assert "records in other cells are not in them" in repr(rolled)
    assert "not all combinations" not in repr(rolled)


def test_incomplete_keys_are_stated(records):
    keys = KEYS.filter(lambda county, naics: not (county == "01001" and naics == 111))
    release = ss.Session(records, bits=Recorded(1)).sum({"emp": ss.Gaussian(sigma=3)}, keys=keys)
    rolled = release.rollup("county")
    assert described(rolled).rollup.complete is False
    assert rolled.table["cells"].to_pylist() == [5, 6, 6, 6, 6]
    assert "not all combinations of their labels are cells" in repr(rolled)


def test_the_total_has_one_row(release):
    rolled = release.rollup()
    assert list(rolled) == ["table_total"]
    assert (rolled.table.num_rows, described(rolled).rows) == (1, 1)
    assert (described(rolled).keys, described(rolled).rollup.over) == (None, ("county", "naics"))
    assert rolled.table["cells"].to_pylist() == [30]
    assert "Release of totals" in repr(rolled)
    assert "totals" in rolled._repr_html_()


def test_all_keys_kept_changes_only_transformations(release):
    rolled = release.rollup(["county", "naics"])
    for name in ("emp", "pay", "count"):
        for end in ("", "_se", "_low", "_high"):
            assert rolled.table[name + end].equals(release.table[name + end])
    for end in ("", "_low", "_high"):
        assert rolled.table["size" + end].equals(release.table["size" + end])


def test_a_taken_name(records):
    session = ss.Session(records.rename(columns={"naics": "cells"}), bits=Recorded(1))
    release = session.sum({"emp": ss.Gaussian(sigma=3)}, keys=ss.Keys.cross({"county": COUNTIES, "cells": INDUSTRIES}))
    rolled = release.rollup("county")
    assert described(rolled).rollup.number == "cells_added"
    assert rolled.table["cells_added"].to_pylist() == [6] * 5


def test_a_rollup_takes_no_name_of_another_table(records):
    """The facts of the other table, which may be a drawn one, stay those of the release."""
    cells, other = (ss.Sums({"emp": ss.Gaussian(sigma=3)}, keys=keys) for keys in (KEYS, KEYS.project("county")))
    release = ss.Session(records, bits=Recorded(1)).release({"cells": cells, "cells_by_county": other})
    rolled = release["cells"].rollup("county")
    assert rolled.name == "cells_by_county_added"
    assert rolled.whole.drawn == ("cells", "cells_by_county")
    assert rolled.whole.tables["cells_by_county"] == release.facts.tables["cells_by_county"]
    assert rolled.facts.rollup.of == "cells"


def test_standard_errors(release):
    rolled = release.rollup("county")
    one = release.unbiased_variance("emp")[0]
    assert rolled.table["emp_se"].to_pylist() == pytest.approx([math.sqrt(6 * one)] * 5, rel=1e-3)
    assert rolled.unbiased_variance("emp") == pytest.approx([6 * one] * 5)
    sums = pd.Series(release.unbiased_variance("size")).groupby(release.table["county"].to_pylist()).sum()
    least = 6 * release.mechanisms["size"].std(0) ** 2
    wanted = np.sqrt(np.maximum(sums, least)).to_numpy()
    assert rolled.table["size_se"].to_pylist() == pytest.approx(wanted.tolist(), rel=1e-3)
    assert (np.array(rolled.table["size_se"].to_pylist()) >= wanted * (1 - 1e-12)).all()  # rounded up


def test_the_meaning_of_standard_errors(release):
    columns = described(release.rollup("county")).columns
    assert {name: column.se for name, column in columns.items()} == {
        "emp": SUM_ERRORS[False],
        "pay": SUM_ERRORS[False],
        "count": SUM_ERRORS[False],
        "size": SUM_ERRORS[True],
    }
    with pytest.warns(ss.ScaleWarning):
        heavy = ss.ExponentialPolylog(d=2.5, p=1)
    made = ss.Session({"x": [1]}, accounting="closed", bits=Recorded(1)).sum({"x": heavy})
    assert described(made.rollup()).columns["x"].se == NO_VARIANCE


def test_intervals_are_raised_to_0_where_sums_cannot_be_negative(release):
    """Cells far below 0: a count cannot be negative, and a sum with additive noise can."""
    table = release.table
    for name in ("emp", "count"):
        table = table.set_column(
            table.column_names.index(name), name, pa.array(np.full(table.num_rows, -100, np.int64))
        )
    rolled = with_table(release, table, ratios={}).rollup("county").table
    assert rolled["count"].to_pylist() == [-600] * 5
    assert rolled["count_low"].to_pylist() == rolled["count_high"].to_pylist() == [0] * 5
    half = sum_half_widths(release.mechanisms["emp"].noise, [6], 0.95, 1.0)[6]
    assert rolled["emp_low"].to_pylist() == [-600 - half] * 5
    assert rolled["emp_high"].to_pylist() == [-600 + half] * 5


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_everything_comes_back(release, tmp_path, ending):
    rolled = release.rollup("state", hierarchy=STATES)
    back = ss.read_release(getattr(rolled, f"to_{ending}")(tmp_path / f"out.{ending}"))
    assert back.table.equals(rolled.table)
    assert back.facts == rolled.facts
    assert described(back).rollup.over == ("county", "naics")
    for column in ("emp", "pay", "count"):
        for level in (0.5, 0.95, 0.99):
            for one, two in zip(back.interval(column, level), rolled.interval(column, level), strict=True):
                assert one == pytest.approx(two, rel=1e-12)
    low, high = back.interval("size", 0.99)
    narrow, wide = rolled.interval("size", 0.99)
    assert (low <= narrow).all()
    assert (high >= wide).all()
    assert np.isfinite(high).all()


def test_intervals_at_other_levels(release):
    rolled = release.rollup("naics")
    for column in ("emp", "pay", "size", "count"):
        ends = [rolled.interval(column, level) for level in (0.8, 0.95, 0.99, 0.999)]
        assert (ends[0][0] == ends[1][0]).all()
        for (low, high), (lower, higher) in itertools.pairwise(ends[1:]):
            assert (lower <= low).all()
            assert (higher > high).all()
    emp = release.mechanisms["emp"]
    low, high = rolled.interval("emp", 0.99)
    half = sum_half_widths(emp.noise, [5], 0.99, 1.0)[5]
    assert (high - low).tolist() == [2 * half] * 6


def test_intervals_of_transformed_cells_from_a_file(release, records, tmp_path):
    """From 95 % to 99 %, Chebyshev's half-width grows by the root of (0.05 − s)/(0.01 − s) = 9, where s is 0.005."""
    signed = ss.Session(records, bits=Recorded(1)).sum({"size": ss.Arsinh(s=3, sigma=1)}, keys=KEYS)
    for cells in (release, signed):
        back = ss.read_release(cells.rollup("county").to_csv(tmp_path / "out.csv", overwrite=True))
        centre, before = (np.array(back.table[name].to_pylist()) for name in ("size", "size_high"))
        low, high = back.interval("size", 0.99)
        half = 3 * (before - centre + 1)
        assert (np.abs(high - centre - half) <= 1).all()
        assert (low == (np.maximum(2 * centre - high, 0) if cells is release else 2 * centre - high)).all()
    assert (low < 0).any()  # sums of both signs


def test_a_level_that_a_file_does_not_support(release, tmp_path):
    back = ss.read_release(release.rollup("naics").to_csv(tmp_path / "out.csv"))
    assert np.isinf(back.interval("size", 0.99)[1]).all()  # five cells each: the sum of their intervals
    assert (back.interval("size", 0.99)[0] == 0).all()


def test_ratios_are_computed_again(release):
    rolled = release.rollup("county")
    again = rolled.ratio("pay", "emp", "again")
    for end in ("", "_se", "_low", "_high"):
        assert again.table["again" + end].equals(rolled.table["pay_per_emp" + end])
    assert described(rolled).ratios["pay_per_emp"].level == 0.95


def test_a_rollup_can_be_pickled_and_shown(release):
    rolled = release.rollup("naics")
    assert pickle.loads(pickle.dumps(rolled)).table.equals(rolled.table)
    assert "naics" in rolled._repr_html_()


def test_what_is_refused(release, records):
    with refused(ss.ParameterError, "by", code="unknown-column") as caught:
        release.rollup("state")
    assert caught.value.remedy.startswith("choose from county, naics. For a level")
    with refused(ss.ParameterError, "by", code="unknown-column"):
        release.rollup("region", hierarchy=STATES)
    with refused(ss.ParameterError, "by", code="duplicate"):
        release.rollup(["naics", "naics"])
    with refused(ss.ParameterTypeError, "by", code="type"):
        release.rollup(3)
    with refused(ss.ParameterTypeError, "hierarchy", code="type"):
        release.rollup("state", hierarchy={"state": {}})
    with refused(ss.ParameterError, "hierarchy", code="unknown-column"):
        release.rollup("state", hierarchy=ss.Hierarchy("town", {"state": {"a": "b"}}))
    with refused(ss.ParameterError, "hierarchy", code="duplicate"):
        release.rollup("naics", hierarchy=ss.Hierarchy("county", {"naics": {"01001": "01"}}))
    with refused(ss.ParameterError, "hierarchy", code="duplicate"):
        release.rollup("emp_low", hierarchy=ss.Hierarchy("county", {"emp_low": {"01001": "01"}}))
    with pytest.raises(ss.ParameterError, match="has no state for 3 of 5 labels, such as '02013'"):
        release.rollup("state", hierarchy=ss.Hierarchy("county", {"state": {"01001": "01", "01003": "01"}}))
    with refused(ss.ParameterError, "table 'table_by_county'", code="unsupported"):
        release.rollup("county").rollup()
    with refused(ss.ParameterError, "column 'size'", code="unsupported"):
        release.rollup("county").unbiased_variance("size")
    session = ss.Session(records, bits=Recorded(1))
    with refused(ss.ParameterError, code="clipped"):
        session.sum({"emp": ss.Gaussian(sigma=3)}, keys=KEYS, nonnegative=True).rollup()
    with refused(ss.ParameterError, code="biased"):
        session.sum({"emp": ss.Root(k=2, sigma=1, estimator="median")}, keys=KEYS).rollup()
    with refused(ss.ParameterError, "release", code="missing"):
        release.rollup("county").confidential_report("report.html", session)


def test_a_root_without_known_moments(records):
    """A root beyond those with bounds on the moments: the intervals of the cells are added, however many there are."""
    release = ss.Session(records, bits=Recorded(1)).sum({"size": ss.Root(k=13, sigma=0.01)}, keys=KEYS)
    rolled = release.rollup()
    assert described(rolled).rollup.rules["size"].startswith("the sum of the intervals")
    assert rolled.table["size_low"].to_pylist()[0] <= records["size"].sum() <= rolled.table["size_high"].to_pylist()[0]


def test_the_report_says_what_was_added(records, tmp_path):
    release = ss.Session(records, bits=Recorded(1)).sum({"size": ss.Root(k=4, sigma=0.5)}, keys=KEYS)
    text = release.rollup("county").report(tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Sums of the published cells of table, added over naics" in text
    assert "Chebyshev" in text
    assert "standard deviation at the median estimate" not in text


def test_a_release_without_keys(records):
    release = ss.Session(records, bits=Recorded(1)).sum({"emp": ss.Gaussian(sigma=3)})
    rolled = release.rollup()
    assert rolled.table.drop_columns("cells").equals(release.table)
    assert described(rolled).rollup.complete is None
    with refused(ss.ParameterError, "by", code="unknown-column") as caught:
        release.rollup("county")
    assert "none: the table has no keys" in caught.value.remedy


@pytest.mark.parametrize("name", ADDITIVE)
@pytest.mark.parametrize("unit", ["1/100", "1", "40"])
@pytest.mark.parametrize("on_grid", [True, False])
def test_one_cell_keeps_its_interval(name, unit, on_grid):
    mechanism = ADDITIVE[name]
    one, two, ten = sum_half_steps(mechanism, Fraction(unit), 0.95, on_grid, np.array([1, 2, 10]))
    assert one == mechanism._half_steps(Fraction(unit), 0.95, on_grid)
    assert one <= two <= ten
    assert all(isinstance(steps, int) for steps in (one, two, ten))


def test_rounding_errors_of_sums_off_the_grid():
    """The worst case: noise much narrower than a unit, and sums halfway between grid points, all rounded up."""
    steps = sum_half_steps(ss.Gaussian(sigma=1e-3), Fraction(1), 0.95, False, np.array([100]))[0]
    assert 50 <= steps <= 51
    wide = sum_half_steps(ss.Gaussian(sigma=1e3), Fraction(1), 0.95, False, np.array([100]))[0]
    assert 19_600 < wide < 19_750


@pytest.mark.parametrize("sigma", [0.2, 0.5, 3.0])
def test_the_bias_of_rounding_is_bounded(sigma):
    """E round(t + Z) − t for the worst t, against the bound by the peak of the density, in units."""
    noise = ss.Gaussian(sigma=sigma).noise
    t, k = np.linspace(0, 1, 101)[:, None], np.arange(-40, 42)
    mean = (k * (noise.cdf(k + 0.5 - t) - noise.cdf(k - 0.5 - t))).sum(axis=1)
    assert np.abs(mean - t[:, 0]).max() <= math.exp(noise._log_peak) / 8 + 1e-12


def errors_of_rounding(sigma, places):
    """Return the bias and the variance of round(t + Z) for places t in units: brute force over all results."""
    noise = ss.Gaussian(sigma=sigma).noise
    t, k = places[:, None], np.arange(-40, 42)
    chance = noise.cdf(k + 0.5 - t) - noise.cdf(k - 0.5 - t)
    mean = (k * chance).sum(axis=1)
    return mean - places, (k**2 * chance).sum(axis=1) - mean**2


@pytest.mark.parametrize("sigma", [0.05, 0.3, 0.5, 2.0])
def test_standard_errors_include_the_bias_of_rounding(sigma):
    """The largest mean square error over places of the cells, all in the same place or in different ones."""
    n, unit = np.array([1, 7, 1000]), Fraction(1)
    bias, variance = errors_of_rounding(sigma, np.linspace(0, 0.5, 4001))
    worst = (n[:, None] * variance + (n[:, None] * bias) ** 2).max(axis=1)
    found = sum_variances(ss.Gaussian(sigma=sigma), None, None, n, unit, False)
    assert np.all(found >= worst * (1 - 1e-6))
    assert np.all(found <= worst * 1.2)
    some = np.random.default_rng(1).integers(0, 4001, (200, 7))
    assert np.all(variance[some].sum(axis=1) + bias[some].sum(axis=1) ** 2 <= found[1] * (1 + 1e-9))
    on_grid = sum_variances(ss.Gaussian(sigma=sigma), None, None, n, unit, True)
    assert on_grid == pytest.approx(n * variance[0], rel=1e-6)
    # Without the bias of the sum, the error would be far too small: this test can fail.
    assert sigma > 0.3 or n[2] * found[0] < worst[2] / 5


def test_sums_of_coarse_cells_are_reported_as_biased(tmp_path):
    labels = [f"{i:03}" for i in range(400)]
    records = pd.DataFrame({"k": labels, "v": 0.25, "whole": 3})
    session = ss.Session(records, bits=Recorded(2))
    with pytest.warns(ss.UnitWarning):
        cells = session.sum(
            {"v": ss.Gaussian(sigma=0.1), "whole": ss.Gaussian(sigma=0.1)}, keys=ss.Keys.cross({"k": labels})
        )
    with pytest.warns(ss.UnitWarning, match="column 'v' .* biases the sums of its cells by up to") as caught:
        rolled = cells.rollup()
    assert len(caught) == 1
    assert "biases the sums" in described(rolled).rollup.rules["v"]
    assert list(described(rolled).rollup.biases) == ["v"]
    assert "bias" not in described(rolled).rollup.rules["whole"]
    assert described(rolled).columns["v"].rounding_bias == 400 * cells.facts.columns["v"].rounding_bias > 30
    assert described(rolled).columns["whole"].rounding_bias == 0
    error = abs(rolled.table["v"][0].as_py() - 100)
    assert rolled.table["v_se"][0].as_py() * 2 > error > 4 * math.sqrt(400 * cells.unbiased_variance("v")[0])
    assert rolled.table["v_low"][0].as_py() <= 100 <= rolled.table["v_high"][0].as_py()
    assert rolled.unbiased_variance("v")[0] == pytest.approx(rolled.table["v_se"][0].as_py() ** 2, rel=1e-2)
    sums = ss.Sums({"v": ss.Gaussian(sigma=0.1)}, keys=ss.Keys.cross({"k": labels}))
    tables = ss.Request({"cells": sums, "all": ss.Rollup("cells")})
    preview = session.preview(tables)
    errors = preview.tables[1].errors(preview.tables[1].columns[0])
    assert errors == pytest.approx([rolled.table["v_se"][0].as_py()] * 3, rel=1e-2)
    assert any(words.startswith("table 'all': the unit of column 'v'") for words in preview.warnings)


@given(
    cells=st.lists(st.integers(-(2**70), 2**70), min_size=1, max_size=30),
    data=st.data(),
)
def test_group_sums_are_exact(cells, data):
    small = data.draw(st.booleans())
    values = [cell % 2**63 for cell in cells] if small else cells
    groups = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(values), max_size=len(values))))
    units = np.array(values, np.int64 if small else object)
    found = group_sums(units, groups, 4)
    assert found.tolist() == [sum(v for v, g in zip(values, groups, strict=True) if g == i) for i in range(4)]


@given(st.lists(st.integers(-(2**50), 2**50), min_size=1, max_size=20), st.sampled_from(["1", "7", "1/100", "1/3"]))
def test_units_come_back_from_columns(units, unit):
    column = pa.chunked_array([number_column(np.array(units, np.int64), Fraction(unit), 0)])
    assert whole_units(column, Fraction(unit)).tolist() == units


def test_huge_units_come_back_from_decimals():
    units = np.array([2**90, -(2**80), 5], object)
    column = pa.chunked_array([number_column(units, Fraction(3), 0)])
    assert pa.types.is_decimal(column.type)
    assert whole_units(column, Fraction(3)).tolist() == units.tolist()


def test_cells_beyond_64_bits_are_added_exactly():
    frame = pd.DataFrame({"key": ["a", "b", "c"], "x": [2**62, 2**62, 2**62]})
    release = ss.Session(frame, bits=Recorded(1)).sum(
        {"x": ss.Gaussian(sigma=10)}, keys=ss.Keys.cross({"key": list("abc")})
    )
    rolled = release.rollup()
    assert int(rolled.table["x"].to_pylist()[0]) == sum(release.table["x"].to_pylist())
    assert int(rolled.table["x_high"].to_pylist()[0]) - int(rolled.table["x"].to_pylist()[0]) == 34
    assert pa.types.is_decimal(rolled.table["x"].type)


def test_coarse_floats_widen_the_interval(release):
    """Cells of 2⁶⁰ with a unit of 0.01 are published as floats that are 128 apart or more."""
    table = release.table.set_column(
        release.table.column_names.index("pay"), "pay", pa.array(np.full(release.table.num_rows, 2.0**60))
    )
    cells = with_table(release, table, ratios={})
    rolled = cells.rollup("county").table.to_pylist()[0]
    assert rolled["pay"] == 6 * 2.0**60
    assert rolled["pay_low"] <= 6 * (2.0**60 - 128) < 6 * (2.0**60 + 128) <= rolled["pay_high"]


def test_a_coarse_estimate_is_the_nearest_float(release):
    """2⁶¹ + 128 lies between floats that are 512 apart: the ends lie outside of it."""
    cells = np.array([2.0**60, 2.0**60, 128.0, 0, 0, 0] * 5)
    table = release.table.set_column(release.table.column_names.index("pay"), "pay", pa.array(cells))
    rolled = with_table(release, table, ratios={}).rollup("county").table.to_pylist()[0]
    assert rolled["pay"] == 2.0**61
    half = Fraction(sum_half_steps(release.mechanisms["pay"], Fraction(1, 100), 0.95, False, np.array([6]))[0], 100)
    slack = Fraction(2 * (100 * 2**60 // 2**51 + 1), 100)
    low, high = (2**61 + 128 + side * (half + slack) for side in (-1, 1))
    assert Fraction(rolled["pay_low"]) <= low < Fraction(math.nextafter(rolled["pay_low"], math.inf))
    assert Fraction(math.nextafter(rolled["pay_high"], 0)) < high <= Fraction(rolled["pay_high"])


def test_the_slack_of_coarse_floats():
    """At least half the distance of floats around each cell, in units; none where floats tell all units apart."""
    cells, groups, ends = np.array([2**51 - 1, 2**51, -(2**60), 5]), np.array([0, 1, 2, 2]), np.zeros(3, np.int64)
    low, high = _widened(cells, groups, ends, ends, pa.float64())
    assert (-low).tolist() == high.tolist() == [0, 2, 2**9 + 1]
    assert _widened(cells[1:2], groups[:1], ends[:1], ends[:1], pa.float64())[1].tolist() == [2]
    assert _widened(cells, groups, ends, ends, pa.int64()) == (ends, ends)
    endless = np.array([-math.inf, 0, 0])
    assert _widened(cells, groups, endless, -endless, pa.float64())[0] is endless


def test_ends_that_are_infinite():
    low, high = _ends(np.array([5, 7]), np.array([math.inf, 2], object))
    assert (low.tolist(), high.tolist()) == ([-math.inf, 5], [math.inf, 9])
    assert _units(pa.chunked_array([[1.5, math.inf]]), Fraction(1, 2)).tolist() == [3, math.inf]
    assert _units(pa.chunked_array([[1.5, 4.0]]), Fraction(1, 2)).tolist() == [3, 8]


@pytest.mark.parametrize("k", range(1, 9))
@pytest.mark.parametrize("mu", [0.0, 0.7, 3.0])
def test_cumulants_of_root_estimates(k, mu):
    """The polynomials, from products of Hermite polynomials, against quadrature."""
    nodes, weights = special.roots_hermitenorm(60)
    weights = weights / weights.sum()
    error = special.eval_hermitenorm(k, mu + nodes) - mu**k
    variance = weights @ error**2
    second, fourth = (sum(c * mu ** (2 * m) for m, c in enumerate(of)) for of in root_cumulants(k))
    assert second == pytest.approx(variance)
    assert fourth == pytest.approx(weights @ error**4 - 3 * variance**2, rel=1e-9, abs=1e-8 * variance**2)
    assert min(root_cumulants(k)[1]) >= 0
    assert second == pytest.approx(ss.Root(k=k, sigma=1).variance(mu**k))


@pytest.mark.parametrize(
    "mechanism", [ss.Root(k=2, sigma=1.5), ss.Root(k=4, sigma=1.0, a=2.0), ss.Log(sigma=0.4, a=1.0)], ids=str
)
def test_bounds_on_cumulants_hold(mechanism):
    """2,000 groups of 20 cells: a bound fails at most as often as it may (false alarms: 1e-6), and is not absurd."""
    size, cells, miss = 2000, 20, 0.2
    q = np.random.default_rng(5).lognormal(3, 2, cells)
    noise = np.random.default_rng(6).standard_normal((size, cells))
    v = mechanism._transform(q) + mechanism.sigma * noise
    groups, counts = np.repeat(np.arange(size), cells), np.full(size, cells)
    second, fourth = mechanism._summed_cumulants(v.ravel(), groups, counts, np.full(size, miss))
    true = mechanism.variance(q).sum()
    nodes, weights = special.roots_hermitenorm(80)
    weights = weights / weights.sum()
    errors = mechanism._estimate((mechanism._transform(q)[:, None] + mechanism.sigma * nodes).ravel())
    errors = errors.reshape(cells, -1) - q[:, None]
    true_fourth = (errors**4 @ weights - 3 * (errors**2 @ weights) ** 2).sum()
    failed = ((second < true) | (fourth < true_fourth)).sum()
    assert failed <= stats.binom.isf(1e-6, size, miss)
    assert np.median(second) < 12 * true


@pytest.mark.parametrize(
    "mechanism",
    [ss.Root(k=1, sigma=2.0), ss.Root(k=2, sigma=1.0), ss.Root(k=4, sigma=1.0), ss.Log(sigma=0.3, a=1.0)],
    ids=str,
)
@pytest.mark.parametrize("cells", [1, 2, 5, 6, 40])
def test_coverage_of_sums_of_transformed_cells(mechanism, cells):
    """Of 400 groups, each with small and large cells, at least 95 % hold (false alarms: 1e-6)."""
    size = 400
    q = np.tile(np.rint(np.geomspace(1, 1e5, cells)) if cells > 1 else np.array([50.0]), size)
    q[::7] = 0
    noisy = mechanism._release(q.astype(np.int64), 1, 0.95, Recorded(cells))
    groups, counts = np.repeat(np.arange(size), cells), np.full(size, cells)
    units = group_sums(noisy.units, groups, size)
    low, high = sum_ends(mechanism, noisy.transformed, units, groups, counts, 0.95, Fraction(1), group_sums)
    true = np.bincount(groups, q)
    missed = size - ((low <= true) & (true <= high)).sum()
    assert missed <= stats.binom.isf(1e-6, size, 0.05)


def test_narrow_intervals_of_transformed_cells_are_seen():
    """The twin: intervals at 60 % do not pass for 95 %."""
    noisy = ss.Root(k=2, sigma=1.0)._release(np.full(400, 10_000), 1, 0.6, Recorded(1))
    groups = np.arange(400)
    low, high = sum_ends(
        ss.Root(k=2, sigma=1.0), noisy.transformed, noisy.units, groups, np.ones(400, int), 0.6, Fraction(1), group_sums
    )
    missed = 400 - ((low <= 10_000) & (high >= 10_000)).sum()
    assert missed > stats.binom.isf(1e-6, 400, 0.05)


@pytest.mark.parametrize("name", ["polylog", "arsinh", "points"])
def test_coverage_of_sums_with_additive_noise(name):
    """20,000 sums of three cells hold at 95 %, within 4.9 deviations (false alarms: 1e-6)."""
    mechanism, size = ADDITIVE[name], 20_000
    noisy = mechanism._release(np.zeros(3 * size, np.int64), 1, 0.95, Recorded(7))
    total = np.abs(noisy.units.astype(float).reshape(size, 3).sum(axis=1))
    steps = sum_half_steps(mechanism, Fraction(1), 0.95, True, np.array([3]))[0]
    spread = 4.9 * math.sqrt(0.05 * 0.95 / size)
    assert 0.95 - spread <= (total <= steps).mean() <= 0.95 + spread + 0.003
    assert (total <= 0.8 * steps).mean() < 0.95 - spread  # the twin
