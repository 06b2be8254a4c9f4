"""What is published explains itself: each column, and how often its errors are large."""

import json
from fractions import Fraction
from itertools import pairwise

import numpy as np
import openpyxl
import pandas as pd
import pyarrow.parquet
import pytest
from helpers.bitsources import Recorded
from scipy import integrate, stats

import slowscale as ss
from slowscale.release.describing import (
    WIDE_INTERVAL,
    cell_error,
    column_errors,
    describe_columns,
    error_sentences,
    large_sum,
    rare_errors_dominate,
)

FINE = Fraction(1, 10**9)  # rounding makes no difference
POINTS = 2_000_000  # of the noise
TOLERANCE = 3e-6  # of a probability

ADDITIVE = {
    "Gaussian": (ss.Gaussian(sigma=5), lambda e: 2 * stats.norm.sf(e / 5)),
    "Laplace": (ss.GeneralizedGaussian(sigma=7, p=1), lambda e: np.exp(-e / 7)),
    "polylog": (ss.ExponentialPolylog(d=0.5, sigma=10), None),
    "arsinh-normal": (ss.ArsinhNormal(scale=30, shape=1.2), lambda e: 2 * stats.norm.sf(np.arcsinh(e / 30) / 1.2)),
}
TRANSFORMED = [
    ss.Log(sigma=0.0355, a=270, noise="laplace"),
    ss.Root(k=4, sigma=0.5),
    ss.Root(k=1.3, sigma=2204.33, a=8623.73, noise="laplace"),
    ss.Log(sigma=0.3, a=100, estimator="median"),
    ss.Arsinh(sigma=0.2, s=50),
]


def tail(noise, error):
    """P(|Z| > error), by integrals of the density over doubling distances."""
    ends = error * 2.0 ** np.arange(120)
    parts = [integrate.quad(noise.pdf, low, high)[0] for low, high in pairwise(ends)]
    return 2 * sum(parts)


def beyond(mechanism, at, error):
    """P(|estimate − at| > error), from equally probable values of the noise."""
    shares = (np.arange(POINTS // 2) + 0.5) / POINTS
    noise = mechanism.added.noise.isf(shares)
    v = mechanism.transform(at)
    found = mechanism.estimate(np.concatenate([v - noise, v + noise]))
    return np.mean(np.abs(found - at) > error)


@pytest.mark.parametrize("name", ADDITIVE)
def test_one_additive_error_in_1000_is_larger(name):
    mechanism, exact = ADDITIVE[name]
    found = cell_error(mechanism, FINE, True)
    probability = exact or (lambda error: tail(mechanism.noise, error))
    assert probability(found.rare) == pytest.approx(1e-3, rel=1e-6)
    assert probability(found.usual) == pytest.approx(0.05, rel=1e-6)
    for wrong in (0.98, 1.02):
        assert probability(wrong * found.rare) != pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize("mechanism", TRANSFORMED, ids=lambda one: f"{one.kind} {one.estimator} {one.noise}")
@pytest.mark.parametrize("at", [0.0, 1e4, 1e7])
def test_one_error_of_a_transformation_in_1000_is_larger(mechanism, at):
    found = cell_error(mechanism, FINE, False, at)
    assert beyond(mechanism, at, found.rare) == pytest.approx(1e-3, abs=TOLERANCE)
    assert beyond(mechanism, at, found.usual) <= 0.05 + TOLERANCE
    assert beyond(mechanism, at, 0.98 * found.rare) > 1e-3 + 3 * TOLERANCE
    assert beyond(mechanism, at, 1.02 * found.rare) < 1e-3 - 3 * TOLERANCE


@pytest.mark.parametrize("unit", [1, 3])
def test_rounding_is_included(unit):
    """Published errors are multiples of the unit: the stated one is the least that is exceeded rarely enough."""
    found = cell_error(ss.Gaussian(sigma=4), Fraction(unit), True)
    steps = round(found.rare / unit)
    assert 2 * stats.norm.sf((steps + 0.5) * unit / 4) <= 1e-3 < 2 * stats.norm.sf((steps - 0.5) * unit / 4)
    log = ss.Log(sigma=0.3, a=100, estimator="median")
    ideal, rounded = cell_error(log, FINE, True), cell_error(log, Fraction(unit), True)
    assert ideal.rare - 1e-6 <= rounded.rare <= ideal.rare + unit
    assert rounded.rare % unit == 0


def test_where_a_standard_error_exceeds_the_interval():
    """It is said of noise whose rare errors are that large, and of no other."""
    heavy = ss.ExponentialPolylog(d=0.05)
    assert heavy.std() > heavy.prediction_interval(0)[1]
    assert "Rare large errors" in " ".join(error_sentences([cell_error(heavy, FINE, True)]))
    for light in (ss.Gaussian(sigma=4), ss.GeneralizedGaussian(sigma=1, p=1), *TRANSFORMED):
        for errors in ([cell_error(light, FINE, True)], [cell_error(light, FINE, True, at) for at in (0.0, 1e5)]):
            assert "Rare large errors" not in " ".join(error_sentences(errors))


def test_what_cannot_be_computed_is_not_stated():
    assert cell_error(ss.Log(sigma=100, a=1, estimator="median"), Fraction(1), True, 1e300) is None


@pytest.fixture(scope="module")
def release():
    frame = pd.DataFrame({"state": ["IA", "TX"] * 50, "emp": range(100), "pay": range(0, 100_000, 1000)})
    session = ss.Session(frame, bits=Recorded(2))
    mechanisms = {"emp": ss.Gaussian(sigma=5), "pay": ss.Log(sigma=0.05, a=1000)}
    keys = ss.Keys.cross({"state": ["IA", "TX"]})
    return session.sum(mechanisms, keys=keys, count=ss.Gaussian(sigma=2)).ratio("pay", "emp")


def test_every_column_is_described(release):
    units = {"pay": "thousand USD"}
    found = describe_columns(release["table"].facts, release.table, units)
    assert set(release.table.column_names) <= found.keys()
    for end in ("", "_se", "_low", "_high"):
        assert found[f"pay{end}"].unit == "thousand USD"
        assert "in thousand USD" in found[f"pay{end}"].text
        assert found[f"emp{end}"].unit is None
    assert "true sum lies between the two ends in 95 % of cells" in found["pay_low"].text
    assert "true number lies" in found["count_high"].text
    assert "true ratio lies" in found["pay_per_emp_low"].text
    assert found["pay_transformed"].unit is None
    assert "at most 1 in 1,000 is off by more than 16" in found["emp"].text
    assert "emp_transformed" not in found


def test_errors_of_results_that_were_raised_to_0():
    """A true sum far below 0 is published as 0: the noise alone does not bound that error."""
    made = ss.Session(pd.DataFrame({"x": [-500]}), bits=Recorded(1)).sum(
        {"x": ss.Gaussian(sigma=3)}, count=ss.Gaussian(sigma=3), nonnegative=True
    )
    assert made.table["x"].to_pylist() == [0]
    texts = {name: one.text for name, one in describe_columns(made["table"].facts).items()}
    words = "The errors stated are for true sums not below 0."
    assert words in texts["x"]
    assert words not in texts["count"]


def test_errors_of_a_large_sum_are_relative_and_public(release):
    """The large sum is a power of ten that was published, not one of the records."""
    numbers = release.table
    assert large_sum("pay", numbers) == 1e6
    small, large = column_errors("pay", release["table"].facts.columns["pay"], numbers)
    assert (small.at, large.at) == (0, 1e6)
    assert large.text(large.usual).endswith(" %")
    assert not small.text(small.usual).endswith(" %")
    assert len(column_errors("emp", release["table"].facts.columns["emp"], numbers)) == 1


def test_files_say_what_their_columns_are(release, tmp_path):
    path = release.to_csv(tmp_path / "t.csv", measured_in={"pay": "thousand USD"})
    described = json.loads((tmp_path / "t.csv.json").read_text(encoding="utf-8"))["descriptions"]
    assert list(described) == release.table.column_names
    assert described["pay_low"]["unit"] == "thousand USD"
    assert "unit" not in described["emp"]
    read = ss.read_release(path)
    assert read.facts.to_dict() == release.facts.to_dict()
    path = release.to_parquet(tmp_path / "t.parquet", measured_in={"pay": "thousand USD"})
    field = pyarrow.parquet.read_schema(path).field("pay_low")
    written = {name.decode(): text.decode() for name, text in field.metadata.items()}
    assert written.items() >= described["pay_low"].items()
    read = ss.read_release(path)
    assert read.table.equals(release.table, check_metadata=True)


def test_files_for_readers_say_the_same(release, tmp_path):
    publication = ss.Publication("Pay", columns={"pay": ss.ColumnLabel("Payroll", "thousand USD")})
    facts, units, titles = release["table"].facts, {"pay": "thousand USD"}, {"pay": "Payroll"}
    low = describe_columns(facts, release.table, units, titles)["pay_low"].text
    small = next(error_sentences(column_errors("pay", facts.columns["pay"], release.table)))
    for profile in ("basic", "research"):
        release.publish(tmp_path / f"{profile}.csv", publication, profile=profile)
        package = json.loads((tmp_path / f"{profile}.datapackage.json").read_text(encoding="utf-8"))
        fields = {field["name"]: field for field in package["resources"][0]["schema"]["fields"]}
        assert low in fields["pay_low"]["description"]
        assert fields["pay_low"]["unit"] == "thousand USD"
        assert small in fields["pay"]["description"]
        assert small in package["description"]
        path, *_ = release.publish(tmp_path / f"{profile}.xlsx", publication, profile=profile)
        notes = [cell.value or "" for row in openpyxl.load_workbook(path)["Notes"].iter_rows() for cell in row]
        assert any(low in text for text in notes)
        assert any(text.startswith("How wrong Payroll can be") and small in text for text in notes)
    page = release.report(tmp_path / "r.html", publication=publication).read_text(encoding="utf-8")
    assert low in page
    assert "At most 1 in 1,000 is off by more than" in page


def test_quantiles_and_sums_of_cells(release, tmp_path):
    rolled = release.rollup()
    path = rolled.to_csv(tmp_path / "total.csv")
    described = json.loads((tmp_path / "total.csv.json").read_text(encoding="utf-8"))["descriptions"]
    assert list(described) == rolled.table.column_names
    assert "added up from published cells" in described["emp"]["description"]
    assert "1 in 1,000" not in described["emp"]["description"]
    assert ss.read_release(path).facts.to_dict() == rolled.facts.to_dict()
    session = ss.Session(pd.DataFrame({"pay": range(100)}), bits=Recorded(3))
    quantiles = session.release(ss.Quantiles("pay", grid=[1, 10, 100], loss=1))
    path = quantiles.to_csv(tmp_path / "q.csv", measured_in={"pay": "USD"})
    described = json.loads((tmp_path / "q.csv.json").read_text(encoding="utf-8"))["descriptions"]
    assert list(described) == ["quantile", "at", "size"]
    assert described["size"]["unit"] == "USD"
    assert ss.read_release(path).facts.to_dict() == quantiles.facts.to_dict()


@pytest.mark.parametrize(("mechanism", "wide"), [(ss.Log(sigma=0.1, a=10), True), (ss.Gaussian(sigma=3), False)])
def test_intervals_of_sums_of_cells_are_explained_where_they_follow_from_bounds(mechanism, wide):
    records = pd.DataFrame({"place": ["a", "b"] * 20, "pay": range(40)})
    keys = ss.Keys.cross({"place": [*"abcdefgh"]})
    release = ss.Session(records, bits=Recorded(3)).sum({"pay": mechanism}, keys=keys)
    for one, expected in ((release, False), (release.rollup(), wide)):
        found = describe_columns(next(iter(one.sums.values())).facts)
        for end in ("low", "high"):
            assert (WIDE_INTERVAL in found[f"pay_{end}"].text) == expected
        assert not any(WIDE_INTERVAL in found[name].text for name in ("pay", "pay_se"))


@pytest.mark.parametrize("at", [0.0, 100.0])
def test_rounding_to_a_coarse_unit_is_not_called_a_rare_error(at):
    found = cell_error(ss.Root(k=2, sigma=0.01), Fraction(1), True, at)
    assert not rare_errors_dominate([found])
