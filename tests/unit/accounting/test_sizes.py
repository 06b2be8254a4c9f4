"""Sizes of records: read in every form, the largest is obligatory, and none is guessed from records."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from helpers.errors import refused

import slowscale as ss
from slowscale.accounting.sizes import RecordSize, default_sizes, read_sizes
from slowscale.policy import ConstantPolicy
from slowscale.release.columns import column_policies, example_sums, explain_columns, shown_sizes, size_span, sum_powers

FIRMS = {"median firm": {"emp": 12, "pay": 400_000}, "the Largest": {"emp": 150_000, "pay": 4e10}}


def test_all_forms_are_the_same():
    columns = ("emp", "pay")
    named = read_sizes(FIRMS, columns)
    assert named == read_sizes([{"name": name, **values} for name, values in FIRMS.items()], columns)
    assert named == read_sizes(named, columns)
    assert [size.value("pay") for size in named] == [400_000, 4e10]
    assert [size.is_largest for size in named] == [False, True]
    plain = read_sizes({"median": 12, "largest": 4e10}, columns)
    assert plain == read_sizes("median=12, largest=4e10") == read_sizes([
        {"name": "median", "size": 12}, {"name": "largest", "size": 4e10},
    ])  # fmt: skip
    assert [plain[1].value(name) for name in columns] == [4e10, 4e10]
    numbers = read_sizes("100,1e6", columns)
    assert (
        numbers == read_sizes([100, 1e6]) == read_sizes((100, np.int64(1_000_000))) == read_sizes(np.array([100, 1e6]))
    )
    assert [(size.name, size.named) for size in numbers] == [("100", False), ("1,000,000", False)]
    assert read_sizes(None) == ()


def test_words():
    median, largest = read_sizes(FIRMS)
    assert median.describe("emp") == "12 (median firm)"
    assert largest.describe("pay") == "40,000,000,000 (the Largest)"
    assert largest.describe("other") == "not stated (the Largest)"
    assert largest.value(" PAY ") == 4e10  # as a ledger may spell it
    assert read_sizes([5])[0].describe("emp") == "5"


@pytest.mark.parametrize(
    ("sizes", "subject", "code"),
    [
        ({"median": 1, "big": 2}, "sizes", "largest"),
        ({"largest": 1, "LARGEST firm": 2}, "sizes", "largest"),
        ({"enlargest": 1}, "sizes", "largest"),
        ({"median": 13, "largest": 12}, "sizes: 'largest'", "not-largest"),
        ({"a": {"emp": 1, "pay": 9}, "largest": {"emp": 2, "pay": 8}}, "sizes: 'largest'", "not-largest"),
        ({"a": 10, "largest": {"emp": 12, "pay": 8}}, "sizes: 'largest'", "not-largest"),
        ({"largest": -1}, "sizes: 'largest'", "value"),
        ({"largest": float("nan")}, "sizes: 'largest'", "value"),
        ({"largest": float("inf")}, "sizes: 'largest'", "value"),
        ({"largest": True}, "sizes: 'largest'", "type"),
        ({"largest": "12"}, "sizes: 'largest'", "type"),
        ({"largest": {}}, "sizes: 'largest'", "missing"),
        ({"largest": {"emp": 1}}, "sizes: 'largest'", "missing"),
        ({"largest": {"emp": 1, "payy": 1}}, "sizes: 'largest'", "missing"),
        ({"largest": {"emp": 1, "pay": 1, "x": 1}}, "sizes: 'largest'", "unknown-column"),
        ({"largest": {"emp": 1, "pay": 1, "count": 1}}, "sizes: 'largest'", "unknown-column"),
        ({"": 1}, "sizes: a name", "value"),
        ({"largest" * 10: 1}, "sizes: a name", "value"),
        ({1: 1}, "sizes", "type"),
        ({"largest": {1: 1}}, "sizes: 'largest': a column", "type"),
        ({"Largest": 1, "largest ": 1}, "sizes", "duplicate"),
        ({}, "sizes", "value"),
        (list(range(9)), "sizes", "value"),
        ([1, {"name": "largest", "size": 2}], "sizes", "mixed"),
        ([{"emp": 3}], "sizes", "missing"),
        ([{"name": "largest", "size": 3, "emp": 3}], "sizes: 'largest'", "conflict"),
        (7, "sizes", "type"),
        ("12,big", "sizes", "value"),
        ("median=12,4", "sizes", "mixed"),
        ("largest=x", "sizes", "value"),
    ],
)
def test_mistakes(sizes, subject, code):
    with refused(ss.SlowscaleError, subject, code=code):
        read_sizes(sizes, ("emp", "pay"), ())


def test_the_larger_size_is_named():
    with refused(ss.ParameterError, "sizes: 'largest'", code="not-largest") as caught:
        read_sizes({"a": 10, "largest": {"emp": 12, "pay": 8}}, ("emp", "pay"), ())
    assert "'a' is larger in pay: 10, not 8" in str(caught.value)


def test_further_columns_of_a_ledger():
    sizes = {"largest": {"emp": 1, "pay": 2, "earlier": 3}}
    assert read_sizes(sizes, ("emp", "pay"), ("earlier",))[0].value("earlier") == 3
    assert read_sizes(sizes, ("emp", "pay"), None)[0].value("earlier") == 3


def columns(mechanisms, unit=1, count=None):
    terms = tuple((name, m.policy) for name, m in mechanisms.items())
    return column_policies(ss.RecordPolicy(terms), mechanisms, dict.fromkeys(mechanisms, unit))


@pytest.mark.parametrize(
    ("mechanism", "unit", "names"),
    [
        (ss.Gaussian(sigma=75), 1, ["10", "100", "1,000", "10,000"]),
        (ss.Gaussian(sigma=1e9), 1, ["10⁸", "10⁹", "10¹⁰", "10¹¹"]),
        (ss.Gaussian(sigma=1e9), "1e12", ["10¹²", "10¹³", "10¹⁴", "10¹⁵"]),
        (ss.Gaussian(sigma=0.001), "0.01", ["0.01", "0.1", "1", "10"]),
        (ss.Root(k=4, sigma=20), 1, ["10", "1,000", "100,000", "10⁷", "10⁹", "10¹¹"]),
        (ss.ExponentialPolylog(d=0.01), 1, ["10", "10,000", "10⁷", "10¹⁰", "10¹³", "10¹⁶"]),
        (ss.Gaussian(sigma=1e-170), 1, ["1", "10", "100", "1,000"]),
        (ss.Gaussian(sigma=1e200), 1, ["10¹²", "10¹³", "10¹⁴", "10¹⁵"]),
    ],
)
def test_sizes_that_follow_from_public_facts(mechanism, unit, names):
    found = shown_sizes(columns({"x": mechanism}, unit), ())
    assert [size.name for size in found] == names
    assert not any(size.named for size in found)


def test_sizes_reach_where_every_column_loses_much():
    """The loss of the column that grows most slowly is large at the last size, and that of no column at the first."""
    mechanisms = {"emp": ss.Gaussian(sigma=20), "pay": ss.GeneralizedGaussian(sigma=1e7, p=0.5)}
    found = shown_sizes(columns(mechanisms), ())
    assert len(found) <= 7
    assert all(m.policy(found[0].everywhere) <= 0.01 for m in mechanisms.values())
    assert all(m.policy(found[-1].everywhere) >= 50 for m in mechanisms.values())


def test_a_count_has_no_sizes():
    (column,) = column_policies(
        ss.RecordPolicy(((None, ss.policy.ConstantPolicy(0.5)),)), {"count": ss.GeneralizedGaussian(sigma=2, p=1)}, {}
    )
    assert column.single
    assert column.loss(17).pure == 0.5  # every record counts as 1
    assert column.unit == 1
    assert column.at(RecordSize("largest", (("pay", 5.0),))) == column.loss(1)
    assert shown_sizes([column], ()) == (RecordSize("every record", everywhere=1.0, named=False),)
    assert sum_powers(column, ()) == (0, 6)  # up to a million records


def test_spans_cover_the_stated_sizes():
    (column,) = columns({"pay": ss.Root(k=4, sigma=25)})
    sizes = read_sizes({"small": 3, "largest": 4e10})
    low, high = size_span([column], sizes)
    assert low <= 3
    assert high >= 4e10
    told = example_sums(column, sizes)
    assert len(told) <= 5
    assert told[-1] >= 10 * 4e10


def test_a_size_without_a_value_has_no_loss():
    emp, pay = columns({"emp": ss.Gaussian(sigma=20), "pay": ss.Root(k=4, sigma=25)})
    size = RecordSize("largest", (("emp", 40.0),))
    assert emp.at(size).rho == ss.Gaussian(sigma=20).policy(40)
    assert pay.at(size) is None
    assert explain_columns([emp, pay], size) is None
    assert explain_columns([emp], size).losses == (emp.at(size),)
    assert size.record(["emp", "pay"]) is None
    assert size.loss(ss.RecordPolicy((("pay", pay.policy),))) is None
    assert size.loss(ss.RecordPolicy((("emp", emp.policy),))) == emp.at(size).rho


def test_a_column_is_a_value():
    (column,) = columns({"x": ss.Gaussian(sigma=75)})
    with pytest.raises(FrozenInstanceError):
        column.unit = 2
    assert {column: 1}[columns({"x": ss.Gaussian(sigma=75)})[0]] == 1


def test_errors_of_a_column_depend_on_the_grid():
    m = ss.Gaussian(sigma=3)
    policy = ss.RecordPolicy((("x", m.policy),))

    def error(on_grid):
        (column,) = column_policies(policy, {"x": m}, {"x": 10}, {"x": on_grid})
        return column.errors(20)

    assert error(None) == m.std(20) == 3  # nothing is rounded yet
    assert error(True) == pytest.approx(m.std(20, unit=10))
    assert error(False) > error(True)  # a sum between two multiples of the unit is rounded further
    (unknown,) = column_policies(policy, {"x": None}, {"x": 10})
    assert unknown.errors(20) is None


@pytest.mark.parametrize(
    ("sizes", "span"),
    [
        ((), (10, 10_000)),  # losses from 0.01 to 50, see the default sizes
        ([30, 50], (10, 10_000)),  # three powers of ten at least
        ([3, 5], (1, 1_000)),
        ([1, 10**6], (1, 10**6)),
        ([1, 10**6 + 1], (1, 10**7)),
        ([0, 50], (10, 10_000)),  # a logarithmic axis has no 0
    ],
)
def test_a_chart_of_sizes_spans_whole_powers_of_ten(sizes, span):
    (column,) = columns({"pay": ss.Gaussian(sigma=75)})
    (count,) = column_policies(ss.RecordPolicy(((None, ConstantPolicy(0.5)),)), {"count": ss.Gaussian(sigma=1)}, {})
    for shown in ([column], [column, count]):
        assert size_span(shown, read_sizes(sizes) if sizes else ()) == span


@pytest.mark.parametrize(
    ("mechanism", "unit", "largest", "powers", "sums"),
    [
        (ss.Gaussian(sigma=75), 1, 1_000, (0, 5), [1, 100, 10_000]),
        (ss.Gaussian(sigma=75), 1, 1_005, (0, 6), [1, 100, 10_000, 10**6]),
        (ss.Gaussian(sigma=75), 1, None, (0, 4), [1, 10, 100, 1_000, 10_000]),
        (ss.Gaussian(sigma=95), 1, None, (0, 4), [1, 10, 100, 1_000, 10_000]),
        (ss.Gaussian(sigma=100), 1, None, (1, 5), [10, 100, 1_000, 10_000, 10**5]),
        (ss.Gaussian(sigma=75), 100, None, (2, 6), [100, 1_000, 10_000, 10**5, 10**6]),
        (
            ss.Root(k=2, sigma=8.388),
            1,
            None,
            (0, 4),
            [1, 10, 100, 1_000, 10_000],
        ),  # the error is 99.5 at 0, and 100.9 at 1
    ],
)
def test_example_sums_range_from_the_noise_to_many_large_records(mechanism, unit, largest, powers, sums):
    (column,) = columns({"pay": mechanism}, unit)
    sizes = () if largest is None else read_sizes({"largest": largest})
    assert sum_powers(column, sizes) == powers
    assert example_sums(column, sizes) == sums


def test_records_without_a_unit():
    assert default_sizes([(ss.Gaussian(sigma=75).policy, None)])[0] == RecordSize("10", everywhere=10.0, named=False)
    assert default_sizes([(ss.Gaussian(sigma=1e-5).policy, None)])[-1].everywhere <= 1
