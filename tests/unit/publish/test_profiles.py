"""The two profiles: research has the numbers as released; basic is computed from them, and from nothing else."""

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from helpers.errors import refused
from helpers.releases import with_table

import slowscale as ss
from slowscale.publish import publish
from slowscale.publish.profiles import cv_tenths, published_tables, reliability


def table_of(release, publication, profile):
    (table,) = published_tables(release.sums, publication, profile)
    return table


def basic(release, **options):
    (table,) = published_tables(release.sums, ss.Publication("T", **options), "basic")
    return table.arrow().to_pydict()


def test_research_has_all_numbers_as_released(release, publication):
    table = table_of(release, publication, "research")
    found = table.arrow()
    assert found.column_names[:4] == ["state", "state_name", "year", "emp"]
    assert found.drop_columns(["state_name"]).select(release.table.column_names).equals(release.table)
    assert found["state_name"].to_pylist() == ["Alabama"] * 2 + ["=Alaska"] * 2 + ["@Arizona"] * 2
    roles = {column.name: column.role for column in table.columns}
    assert (roles["pay_transformed"], roles["pay_per_emp_se"], roles["year"]) == ("transformed", "se", "key")


def test_columns_carry_their_labels(release, publication):
    schema = table_of(release, publication, "basic").arrow().schema
    labels = {field.name: {k.decode(): v.decode() for k, v in field.metadata.items()} for field in schema}
    assert labels["pay"]["title"] == "Annual payroll"
    assert labels["pay"]["unit"] == "thousand USD"
    words = labels["pay"]["description"]
    assert words.startswith("Before taxes. Annual payroll: the sum in the cell, in thousand USD, with random noise.")
    assert words.endswith("Rounded to a multiple of 1,000, which adds up to 500 to the error.")
    assert "Negative estimates are shown as 0" in labels["emp"]["description"]
    assert "the true sum lies between the two ends in 95 % of cells" in labels["pay_low"]["description"]
    assert labels["pay_cv"]["unit"] == "%"
    assert "unit" not in labels["state"]


def test_basic_has_no_standard_errors_and_rounded_numbers(release, publication):
    found = table_of(release, publication, "basic").arrow()
    suffixes = ("", "_low", "_high", "_cv", "_flag")
    names = [f"{name}{suffix}" for name in ("emp", "pay", "count", "pay_per_emp") for suffix in suffixes]
    assert found.column_names == ["state", "state_name", "year", *names]
    for name, step in (("emp", 10), ("pay", 1000)):
        for low, shown, high in zip(
            *(found[name + suffix].to_pylist() for suffix in ("_low", "", "_high")), strict=True
        ):
            assert low % step == shown % step == high % step == 0
        lows, highs = (release.table[name + end].to_pylist() for end in ("_low", "_high"))
        least = 0 if name == "emp" else -math.inf  # of emp, negative numbers are shown as 0
        assert all(a <= max(b, least) for a, b in zip(found[f"{name}_low"].to_pylist(), lows, strict=True))
        assert all(a >= b for a, b in zip(found[f"{name}_high"].to_pylist(), highs, strict=True))
    assert found["count"].equals(release.table["count"])  # it has no step
    ratios = [value for value in found["pay_per_emp"].to_pylist() if value is not None]
    assert all(float(f"{value:.1f}") == value for value in ratios)


def test_coefficients_of_variation_are_rounded_up(with_numbers):
    """Against exact fractions. A limit that is met exactly is not exceeded."""
    estimates = [1000, -1000, 1000, 1000, 1000, 0]
    errors = [165.0, 165.0, 165.1, 333.0, 333.1, 5.0]
    found = basic(with_numbers(estimates, errors), negatives="keep")
    assert found["emp_cv"] == [16.5, 16.5, 16.6, 33.3, 33.4, None]
    flags = ["reliable", "reliable", "use with caution", "use with caution", "unreliable", "unreliable"]
    assert found["emp_flag"] == flags


def test_coefficients_of_variation_against_fractions():
    generator = np.random.default_rng(0)
    errors = np.array([float(f"{error:.3e}") for error in generator.lognormal(5, 3, 3000)])
    estimates = generator.integers(-(10**9), 10**9, 3000).astype(float)
    found = cv_tenths(estimates, errors)
    for tenths, error, estimate in zip(found, errors, estimates, strict=True):
        assert tenths == math.ceil(1000 * Fraction(repr(float(error))) / abs(Fraction(float(estimate))))


def test_flags_follow_from_the_coefficients_that_are_shown():
    publication = ss.Publication("T", cv_limits=(5, 10, 15, 25, 35), flags=list("ABCDEF"))
    tenths = np.array([0, 50, 51, 100, 250, 251, 350, 351, np.inf])
    assert "".join(reliability(tenths, publication)) == "AABBDEEFF"
    assert list(reliability(tenths[:2], ss.Publication("T", cv_limits=(), flags=["any"]))) == ["any", "any"]


@pytest.mark.parametrize(
    ("rule", "shown", "cv", "flag", "low"),
    [
        ("keep", [-40, 40], [12.5, 12.5], ["reliable", "reliable"], [-50, 30]),
        ("flag", [-40, 40], [12.5, 12.5], ["negative", "reliable"], [-50, 30]),
        ("zero", [0, 40], [None, 12.5], ["unreliable", "reliable"], [0, 30]),
    ],
)
def test_negative_estimates(with_numbers, rule, shown, cv, flag, low):
    found = basic(with_numbers([-40, 40], [5.0, 5.0], [-50, 30], [-30, 50]), negatives={"emp": rule})
    assert found["emp"] == shown
    assert (found["emp_cv"], found["emp_flag"], found["emp_low"]) == (cv, flag, low)
    assert found["emp_high"] == ([0, 50] if rule == "zero" else [-30, 50])


def test_numbers_that_are_missing_or_endless(release):
    nothing = pa.array([None] * release.table.num_rows, pa.float64())
    table = release.table.set_column(release.table.column_names.index("pay_per_emp"), "pay_per_emp", nothing)
    ends = pa.array([math.inf] * release.table.num_rows)
    table = table.set_column(table.column_names.index("pay_per_emp_high"), "pay_per_emp_high", ends)
    errors = pa.array([math.inf] * release.table.num_rows)
    table = table.set_column(table.column_names.index("emp_se"), "emp_se", errors)
    found = basic(with_table(release, table), rounding={"pay_per_emp": 1})
    for suffix in ("", "_high", "_cv", "_flag"):
        assert set(found[f"pay_per_emp{suffix}"]) == {None}
    assert set(found["emp_cv"]) == {None}
    assert set(found["emp_flag"]) <= {"unreliable", "negative"}


def test_numbers_beyond_64_bits(with_numbers):
    large = 10**25 + 5
    found = basic(with_numbers([large, -large], [1.0, 1.0]), rounding={"emp": 10}, negatives="zero")
    assert found["emp"] == [10**25, 0]


def test_new_names_are_free(release):
    table = release.table.rename_columns(
        [{"year": "state_name", "count_se": "emp_cv"}.get(n, n) for n in release.table.column_names]
    )
    table = table.append_column("count_se", release.table["count_se"])
    keys = release.facts.tables["table"].keys.with_(columns={"state": "text", "state_name": "whole numbers"})
    changed = with_table(release, table, keys=keys)
    codes = {"state": dict.fromkeys(["01", "02", "04"], "x")}
    (made,) = published_tables(changed.sums, ss.Publication("T", codes=codes), "basic")
    names = [column.name for column in made.columns]
    assert names[:3] == ["state", "state_name_", "state_name"]
    assert len(set(names)) == len(names)
    assert "emp_cv_" in names
    assert made.columns[-1].role == "other"  # a column that no estimate owns is kept


def test_names_of_labels_of_any_kind(release):
    publication = ss.Publication("T", codes={"year": {"2023": "before", "2024": "after"}})
    found = table_of(release, publication, "basic").arrow().to_pydict()
    assert found["year_name"] == ["before", "after"] * 3


@pytest.mark.parametrize(
    ("options", "subject", "code"),
    [
        ({"codes": {"state": {"01": "Alabama"}}}, "codes['state']", "missing"),
        ({"columns": {"emo": "Employees"}}, "columns: 'emo'", "unknown-column"),
        ({"rounding": {"emo": 1}}, "rounding: 'emo'", "unknown-column"),
        ({"negatives": {"emo": "zero"}}, "negatives: 'emo'", "unknown-column"),
        ({"columns": {"emp": "Pay", "pay": "Pay"}}, "the columns 'emp' and 'pay'", "duplicate"),
    ],
)
def test_what_is_refused(release, options, subject, code):
    with refused(ss.ParameterError, subject, code=code):
        basic(release, **options)


def test_arguments_are_checked(release, tmp_path):
    publication = ss.Publication("T")
    with refused(ss.ParameterError, "profile", code="value"):
        release.publish(tmp_path / "t.csv", publication, profile="simple")
    with refused(ss.ParameterTypeError, "publication", code="type"):
        release.publish(tmp_path / "t.csv", {"title": "T"})
    with refused(ss.ParameterError, "release", code="empty"):
        published_tables({}, publication, "basic")
    with refused(ss.ParameterTypeError, "release", code="type"):
        publish({"a": release}, tmp_path / "t.csv", publication)


def test_a_column_that_is_called_like_a_transformed_sum():
    records = pa.table({"emp": [1, 2], "emp_transformed": [3, 4]})
    made = ss.Session(records).sum({"emp": ss.Gaussian(sigma=1), "emp_transformed": ss.Gaussian(sigma=1)})
    found = table_of(made, ss.Publication("T"), "research")
    assert [column.name for column in found.columns] == made.table.column_names
    assert {column.role for column in found.columns} == {"estimate", "se", "low", "high"}
