"""Sessions: what users ask for, and every mistake told before anything is drawn."""

import json
import math
import re
import sqlite3
import subprocess
import sys
import traceback
import warnings
from contextlib import closing
from dataclasses import FrozenInstanceError
from decimal import Decimal
from fractions import Fraction

import ibis
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from helpers.bitsources import Recorded
from helpers.errors import refused

import slowscale as ss
from slowscale.data.conversion import Source
from slowscale.data.rowwise import Records

RECORDS = pd.DataFrame(
    {
        "state": ["IA", "IA", "TX", None, "ZZ"],
        "size": [1, 2, 1, 1, 3],
        "cattle": [120, 4_000, 31_000, 5, 6],
        "weight": [0.5, 1.25, 2.0, 3.0, 4.0],
        "change": [1, -2, 3, -4, 5],
        "gap": pd.array([1, None, 3, 4, 5], "Int64"),
        "name": ["a", "b", "c", "d", "e"],
    }
)
KEYS = ss.Keys.cross({"state": ["TX", "NV", "IA"]})
ELSEWHERE = ss.Keys.cross({"state": ["ia", "tx"]})  # keys that no record has
TINY = ss.Gaussian(sigma=1e-9)  # so little noise that the exact sum is seen


class Forbidden:
    """Bits that nobody may ask for."""

    private = True

    def key(self):
        raise AssertionError("noise was drawn")


def _root(x):
    return x**0.5


def _square(x):
    return x * x


@pytest.fixture
def session():
    return ss.Session(RECORDS, bits=Recorded(1))


def test_every_key_is_there_in_its_order_and_other_records_are_left_out(session):
    release = session.sum({"cattle": TINY, "weight": TINY}, keys=KEYS, unit={"weight": "0.25"})
    assert release.table.select(["state", "cattle", "weight"]).to_pydict() == {
        "state": ["TX", "NV", "IA"],
        "cattle": [31_000, 0, 4_120],
        "weight": [2.0, 0.0, 1.75],
    }


def test_by_orders_the_columns(session):
    keys = ss.Keys.cross({"state": ["IA"], "size": [1, 2]})
    release = session.sum({"cattle": TINY}, keys=keys.project("size", "state"))
    assert release.table.column_names[:2] == ["size", "state"]
    assert release.table["cattle"].to_pylist() == [120, 4_000]


def test_totals_have_all_records(session):
    release = session.sum({"cattle": TINY}, count=TINY)
    assert release.table.select(["cattle", "count"]).to_pylist() == [{"cattle": 35_131, "count": 5}]
    assert release.facts.tables["table"].keys is None
    assert "Release of totals" in repr(release)


def test_counts(session):
    release = session.count(keys=KEYS, mechanism=ss.Gaussian(sigma=2))
    assert release.policy({}) == pytest.approx(1 / 8)
    assert release.pure_policy is None
    laplace = session.count(keys=KEYS, mechanism=ss.GeneralizedGaussian(sigma=3, p=1))
    assert laplace.pure_policy({}) == pytest.approx(1 / 3)
    assert session.count(mechanism=TINY, where="state = 'IA'").table["count"].to_pylist() == [2]


def test_means(session):
    release = session.mean({"cattle": TINY, "weight": TINY}, keys=KEYS, count=TINY, unit={"weight": "0.01"})
    frame = release.to_pandas().set_index("state")
    assert frame.loc["IA", "cattle_mean"] == 2060
    assert frame.loc["IA", "weight_mean"] == pytest.approx(0.875, abs=0.01)
    assert math.isnan(frame.loc["NV", "cattle_mean"])
    assert release.facts.tables["table"].ratios["cattle_mean"].approximate is False
    assert frame.loc["NV", "cattle_mean_low"] == -math.inf
    assert session.losses(release).records == 3


def test_filters_and_derived_columns(session):
    release = session.sum({"heavy": TINY}, derive={"heavy": "weight * cattle"}, where="cattle < 10000", unit="0.5")
    assert release.table["heavy"].to_pylist() == [60 + 5000 + 15 + 24]
    assert release.facts.tables["table"].where == "cattle < 10000"
    assert release.facts.tables["table"].derived == {"heavy": "weight * cattle"}


def test_a_coarse_unit_rounds_the_sum_not_the_records():
    session = ss.Session(pd.DataFrame({"pay": [400] * 1_000, "hours": [0.5] * 1_000}), bits=Recorded(1))
    release = session.sum({"pay": TINY, "hours": TINY}, unit={"pay": 1_000})
    assert release.table.select(["pay", "hours"]).to_pylist() == [{"pay": 400_000, "hours": 500}]


def test_results_below_zero_are_raised_on_request(session):
    plain, raised = (
        session.sum({"change": ss.Gaussian(sigma=100)}, keys=KEYS, nonnegative=wish).to_pandas()
        for wish in (False, True)
    )
    assert (plain["change_low"] < 0).all()
    assert (raised["change"] >= 0).all()
    # The true sum may be below 0, so the interval stays where it is.
    assert (raised["change_high"] - raised["change_low"] == plain["change_high"] - plain["change_low"]).all()
    assert (raised["change_low"] < 0).all()
    release = session.sum({"change": TINY}, nonnegative=True)
    assert "biased" in repr(release)
    assert release.facts.columns["change"].estimator.startswith("biased")


def test_intervals_follow_the_level(session):
    wide, narrow = (session.sum({"cattle": ss.Gaussian(sigma=5)}, level=level).to_pandas() for level in (0.99, 0.5))
    assert (wide["cattle_high"] - wide["cattle_low"]).iloc[0] == 2 * 13  # |Z| < 5·2.576 = 12.9
    assert (narrow["cattle_high"] - narrow["cattle_low"]).iloc[0] == 2 * 3  # |Z| < 5·0.674 = 3.4


def test_cells_have_independent_noise():
    keys = ss.Keys.cross({"k": list(range(2_000))})
    frame = ss.Session(pd.DataFrame({"k": [0], "x": [0], "y": [0]})).sum(
        {"x": ss.Gaussian(sigma=1_000), "y": ss.Gaussian(sigma=1_000)}, keys=keys
    )
    x, y = (frame.table[name].to_numpy() / 1_000 for name in "xy")
    for product in (x * y, x[1:] * x[:-1], y[1:] * x[:-1]):
        assert abs(product.mean()) < 5 / math.sqrt(product.size)


def test_sums_beyond_64_bits():
    big = pa.table({"x": pa.array([2**63 - 1] * 5)})
    release = ss.Session(big, bits=Recorded(1)).sum({"x": TINY})
    assert [int(value) for value in release.table["x"].to_pylist()] == [5 * (2**63 - 1)]
    assert str(release.table["x"].type) == "decimal128(38, 0)"


def test_policy_of_a_release(session):
    release = session.sum({"cattle": ss.Root(k=4, sigma=0.5), "weight": ss.ExponentialPolylog(d=1)}, keys=KEYS)
    record = {"cattle": 31_000, "weight": 2}
    assert release.policy(record) == ss.Root(k=4, sigma=0.5).policy(31_000) + ss.ExponentialPolylog(d=1).tight_policy(2)
    assert release.pure_policy is None
    pure = session.sum({"weight": ss.ExponentialPolylog(d=1)}, keys=KEYS).pure_policy
    assert pure(record) == ss.ExponentialPolylog(d=1).pure_policy(2)


def test_a_lambda_is_released_but_cannot_be_read_back(session, tmp_path):
    mechanism = ss.Transformation(lambda x: x**0.5, lambda y: y**2, sigma=1, a=0, estimator="median")
    release = session.sum({"cattle": mechanism}, keys=KEYS)
    assert release.facts.policy is None
    assert release.policy({"cattle": 100}) == pytest.approx(50)
    with refused(ss.ParameterError, "the engine", code="unsupported"):
        session.losses(release)
    with refused(ss.EngineError, code="user-function"):
        ss.read_release(release.to_parquet(tmp_path / "out.parquet"))


def test_confidential_facts_stay_inside(session):
    """Nothing but the released table tells the records: not the facts, the texts or the session's own words."""
    release = session.sum({"cattle": ss.Gaussian(sigma=1e6)}, keys=KEYS, where="cattle > 4")
    for text in (repr(release), str(release.facts), repr(session), repr(KEYS)):
        for secret in ("31000", "31_000", "31,000", "4120", "35131"):
            assert secret not in text


def test_secret_bits_by_default():
    release = ss.Session(RECORDS).sum({"cattle": ss.Gaussian(sigma=1)})
    assert release.facts.private is True
    assert "NOT PRIVATE" not in repr(release)


MISTAKES = [
    ({"columns": {"none": TINY}}, "column 'none'", "unknown-column"),
    ({"columns": {"name": TINY}}, "column 'name'", "not-numbers"),
    ({"columns": {}}, "columns", "empty"),
    ({"columns": ["cattle"]}, "columns", "type"),
    ({"columns": {"cattle": 3}}, "columns['cattle']", "type"),
    ({"columns": {"cattle": ss.Gaussian}}, "columns['cattle']", "type"),
    ({"columns": {3: TINY}}, "columns", "name"),
    (
        {"columns": {"size": TINY}, "keys": ss.Keys.cross({"size": [1]})},
        "column 'size'",
        "conflict",
    ),
    ({"by": "state"}, "by", "unknown-name"),
    ({"where": "cattle = null"}, "where", "null"),
    ({"derive": {"Cattle": "1"}}, "derive['Cattle']", "exists"),
    ({"keys": ["TX"]}, "keys", "type"),
    ({"keys": ss.Keys.cross({"county": ["x"]})}, "column 'county'", "unknown-column"),
    ({"keys": ss.Keys.cross({"state": [1]})}, "by: column 'state'", "mismatch"),
    ({"keys": ss.Keys.cross({"size": ["1"]})}, "by: column 'size'", "mismatch"),
    (
        {"keys": ss.Keys.cross({"weight": [1]})},
        "by: column 'weight'",
        "label-type",
    ),
    ({"level": 95}, "level", "value"),
    ({"unit": 0.01}, "unit", "precision"),
    ({"unit": "cents"}, "unit", "value"),
    ({"unit": -1}, "unit", "value"),
    ({"unit": {"none": 1}}, "unit", "unknown-column"),
    (
        {"columns": {"weight": TINY}, "unit": "1e-280"},
        None,
        "value",
    ),
    (
        {"columns": {"weight": TINY}, "unit": "1e-30"},
        None,
        None,
    ),
    (
        {"columns": {"gap": TINY}},
        None,
        None,
    ),
    (
        {"columns": {"change": ss.Root(k=2, sigma=1)}},
        None,
        None,
    ),
    ({"nulls": "drop"}, "nulls", "value"),
    ({"negatives": 0}, "negatives", "value"),
    ({"nonnegative": "yes"}, "nonnegative", "type"),
    ({"count": 3}, "count", "type"),
    (
        {"columns": {"cattle": TINY, "cattle_se": TINY}, "derive": {"cattle_se": "size"}},
        "column 'cattle_se'",
        "duplicate",
    ),
    (
        {"columns": {"count": TINY}, "derive": {"count": "size"}, "count": TINY},
        "column 'count'",
        "reserved",
    ),
    (
        {"where": "sum(cattle) > 3"},
        "where",
        "many-rows",
    ),
    ({"where": "cattle"}, "where", "type"),
    ({"derive": {"cattle": "1"}}, "derive['cattle']", "exists"),
]


@pytest.mark.parametrize(("options", "subject", "code"), MISTAKES, ids=lambda value: str(value)[:40])
def test_mistakes_are_told_before_anything_is_drawn(options, subject, code):
    session = ss.Session(RECORDS, bits=Forbidden())
    with refused(ss.SlowscaleError, subject, code=code):
        session.sum(**{"columns": {"cattle": TINY}, **options})


def test_a_huge_value_is_told():
    session = ss.Session(pd.DataFrame({"x": [1.0, 1e300]}), bits=Forbidden())
    with refused(ss.DataError):
        session.sum({"x": TINY})


def test_means_are_checked_before_anything_is_drawn():
    data = RECORDS.assign(cattle_mean=1)
    session = ss.Session(data, bits=Forbidden())
    for options, subject, code in [
        ({"means": "exact"}, "means", "value"),
        ({"columns": {"cattle": TINY, "cattle_mean": TINY}}, "column 'cattle_mean'", "duplicate"),
        ({"keys": ss.Keys.cross({"cattle_mean": [1]})}, "column 'cattle_mean'", "duplicate"),
        ({"count": 3}, "count", "type"),
        ({"columns": 3}, "columns", "type"),
    ]:
        with refused(ss.SlowscaleError, subject, code=code):
            session.mean(**{"columns": {"cattle": TINY}, "count": TINY, **options})


@pytest.mark.parametrize("level", [Fraction(9, 10), Decimal("0.9"), np.float32(0.9)])
def test_every_number_is_a_level(session, level, tmp_path):
    release = session.sum({"cattle": TINY, "size": TINY}, level=level).ratio("cattle", "size", level=level)
    assert ss.read_release(release.to_parquet(tmp_path / "out.parquet")).facts.columns["cattle"].level == float(level)


def test_a_function_as_estimator_can_be_saved_but_not_read_back(session, tmp_path):
    mechanism = ss.Transformation(_root, _square, sigma=1, a=0, estimator=_square)
    release = session.sum({"cattle": mechanism}, keys=KEYS)
    assert release.facts.columns["cattle"].estimator == "a user-given function"
    assert "policy" not in json.loads(json.dumps(release.facts.to_dict()))
    for write, name in ((release.to_parquet, "out.parquet"), (release.to_csv, "out.csv")):
        with refused(ss.EngineError, code="user-function"):
            ss.read_release(write(tmp_path / name))


def test_the_type_tells_no_more_than_the_result():
    """A noisy sum below 2⁶³ is an int64, also where the true sum is above."""
    session = ss.Session(pa.table({"x": pa.array([2**63 - 1, 1_000])}), bits=Recorded(1))
    for _ in range(40):
        column = session.sum({"x": ss.Gaussian(sigma=1e6)}).table["x"]
        assert (str(column.type) == "int64") == (int(column[0].as_py()) < 2**63)


def test_labels_beyond_64_bits_are_left_out():
    table = pa.table({"k": pa.array([1, 2**64 - 1], pa.uint64()), "x": [1, 10]})
    release = ss.Session(table, bits=Recorded(1)).sum({"x": TINY}, keys=ss.Keys.cross({"k": [1, -1]}))
    assert release.table["x"].to_pylist() == [1, 0]


def test_decimals_are_not_mixed_with_floats():
    """A sum of a decimal and a float is a float, and is counted record by record: no order of rows changes it."""
    for order in ([1e12, 0.25, -1e12], [1e12, -1e12, 0.25], [0.25, 1e12, -1e12]):
        table = pa.table({"dec": pa.array([Decimal("0.01")] * 3, pa.decimal128(10, 2)), "f": order})
        release = ss.Session(table, bits=Recorded(1)).sum({"v": TINY}, derive={"v": "dec + f"}, unit="0.01")
        assert release.table["v"].to_pylist() == [0.28]


def test_errors_by_size(session):
    release = session.sum({"cattle": ss.Gaussian(sigma=1e-9)}, keys=KEYS, count=TINY)
    found = session.errors(release)["table"]
    cattle = [(size.low, size.high, size.cells) for size in found if size.column == "cattle"]
    assert cattle == [(0, 0, 1), (1000, 10_000, 1), (10_000, 100_000, 1)]
    assert all(size.median_error == 0 for size in found)
    with refused(ss.ParameterError, "release", code="value"):
        session.errors(None)


def test_losses_of_another_session(session):
    release = ss.Session(RECORDS).sum({"cattle": TINY})
    assert session.losses(release) == session.losses(session.sum({"cattle": TINY}))
    for wrong in (None, 5, {}):
        with refused(ss.ParameterError, "release", code="value"):
            session.losses(wrong)
    other = ss.Session(RECORDS, dataset="farms").sum({"cattle": TINY})
    with refused(ss.ParameterError, "dataset", code="mismatch"):
        session.losses(other)
    missing = ss.Session(RECORDS.rename(columns={"cattle": "cows"})).sum({"cows": TINY})
    with refused(ss.ParameterError, "release", code="unknown-column"):
        session.losses(missing)
    made = session.sum({"cattle": TINY, "size": TINY})
    assert session.losses(made.ratio("cattle", "size")).records == 5
    with refused(ss.ParameterTypeError, "bits", code="type"):
        ss.Session(RECORDS, bits=5)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_losses_of_a_release_that_is_read_back(tmp_path, ending):
    """The query is made again from the facts: keys, filter, derived columns, units, treatments and accounting."""
    session = ss.Session(RECORDS, bits=Recorded(1))
    made = session.sum(
        {"cattle": ss.Root(k=4, sigma=2), "double": ss.ExponentialPolylog(d=0.3)},
        keys=KEYS,
        count=ss.Gaussian(sigma=2),
        where="cattle < 30000",
        derive={"double": "2 * cattle"},
        unit={"double": "0.5"},
        nulls="zero",
        negatives="zero",
    )
    getattr(made, f"to_{ending}")(tmp_path / f"r.{ending}")
    read = ss.read_release(tmp_path / f"r.{ending}")
    later = ss.Session(RECORDS)
    assert later.losses(read) == session.losses(made)
    assert later.errors(read) == session.errors(made)
    assert later.ledger is None
    with refused(ss.ParameterError, "protect", code="mismatch"):
        ss.Session(RECORDS, protect="state").losses(read)


def test_keys_that_no_record_has_are_told_to_the_curator(session):
    with pytest.warns(ss.ConfidentialWarning, match="no record has any of the keys"):
        session.sum({"cattle": TINY}, keys=ss.Keys.cross({"state": ["ia", "tx"]}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.sum({"cattle": TINY}, keys=KEYS, where="cattle < 0")


def test_warnings_point_to_the_line_of_the_user(session):
    calls = [
        lambda: session.sum({"weight": ss.Gaussian(sigma=0.001)}, keys=ELSEWHERE, unit=100),
        lambda: session.release(ss.Sums({"weight": ss.Gaussian(sigma=0.001)}, keys=ELSEWHERE, unit=100)),
    ]
    for call in calls:
        with pytest.warns((ss.UnitWarning, ss.ConfidentialWarning)) as caught:
            call()
        assert [one.category for one in caught] == [ss.UnitWarning, ss.ConfidentialWarning]
        assert [(one.filename, one.lineno) for one in caught] == [(__file__, call.__code__.co_firstlineno)] * 2
        assert str(caught[0].message).startswith("column 'weight': unit 100 is coarser than the noise")


def test_bits_need_keys_and_a_word_on_secrecy():
    class OnlyKeys:
        def key(self):
            return bytes(32)

    class OnlyPrivate:
        private = True

    for bits in (OnlyKeys(), OnlyPrivate()):
        with refused(ss.ParameterTypeError, "bits", code="type"):
            ss.Session(RECORDS, bits=bits)


# --- facts -----------------------------------------------------------------------------------------------------------


def test_every_release_has_an_identifier_of_64_bits(session):
    ids = {session.count(mechanism=ss.Gaussian(sigma=1)).facts.id for _ in range(3)}
    assert len(ids) == 3
    assert all(re.fullmatch("[0-9a-f]{16}", one) for one in ids)


def test_facts_have_the_pure_policy_of_the_columns_that_have_one(session):
    laplace, gaussian = ss.GeneralizedGaussian(sigma=3, p=1), ss.Gaussian(sigma=3)
    for columns, names in [
        ({"cattle": laplace}, None),  # the pure policy says it
        ({"cattle": gaussian}, None),
        ({"cattle": gaussian, "size": gaussian}, None),
        ({"cattle": gaussian, "size": laplace}, ["size"]),
        ({"cattle": laplace, "size": laplace}, ["cattle", "size"]),
    ]:
        facts = session.sum(columns).facts
        found = facts.pure_columns
        assert (found and [term["column"] for term in found]) == names
        assert (facts.pure_policy is not None) == all(m is laplace for m in columns.values())


def test_facts_name_the_part_of_the_records(session):
    part = session.sum({"cattle": TINY}, keys=KEYS, partition="state").facts.partition
    assert part.to_dict() == {"by": "state", "labels": ["TX", "NV", "IA"]}
    assert session.sum({"cattle": TINY}, keys=KEYS).facts.partition is None
    both = ss.Keys.cross({"state": ["IA"], "size": [1, 2]})
    assert session.sum({"cattle": TINY}, keys=both, partition="size").facts.partition.labels == (1, 2)
    assert session.spent.releases == 3


def test_facts_say_who_is_protected():
    for protect, words in ((None, "one record (one row of the table)"), ("name", "one name: whether its records")):
        release = ss.Session(RECORDS, protect=protect, bits=Recorded(1)).sum({"cattle": TINY})
        assert release.facts.protects.startswith(words)
        assert "combines rows" not in release.facts.protects


def test_a_table_that_combines_or_filters_rows_is_known_to():
    """A change of a value may move a record in or out of such a table, which costs more than the change itself."""
    table = ibis.memtable(RECORDS[["state", "cattle"]])
    plain, filtered = Source(table), Source(table.filter(table.cattle > 5))
    combined = Source(table.group_by("state").agg(cattle=table.cattle.sum()))
    for source, combines, filters in [
        (plain, False, False),
        (filtered, False, True),
        (combined, True, True),
        (Source(table, view=True), True, True),
        (Source(table, filtered=True), False, True),
    ]:
        records = Records.of(source, None)
        assert (records.combines_rows, records.filtered) == (combines, filters)
        assert ("combines rows" in records.protected) == combines
        assert records.is_stored("cattle") == (not combines)
        with pytest.raises(FrozenInstanceError):
            records.filtered = False


@pytest.mark.parametrize("where", [None, "cattle > 5"])
@pytest.mark.parametrize("table_filters", [False, True])
def test_a_policy_knows_that_records_are_filtered_by_the_query_or_by_the_table(where, table_filters):
    """A change of value may then move a record in or out, and it loses what a removed record loses."""
    table = ibis.memtable(RECORDS[["state", "cattle"]])
    session = ss.Session(table.filter(table.cattle > 5) if table_filters else table, bits=Recorded(1))
    policy = session.sum({"cattle": ss.Gaussian(sigma=10)}, where=where).policy
    assert policy.filtered == (table_filters or where is not None)


# --- the order of reading and charging -----------------------------------------------------------------------------


def _must_not_be_read(*arguments):
    raise AssertionError("the records were read")


def test_records_are_read_only_if_the_charge_can_be_written(tmp_path, monkeypatch):
    """Otherwise an error that depends on the records could be seen again and again, and never be recorded."""
    monkeypatch.setattr("slowscale.accounting.storage.LOCK_TIMEOUT", 0.1)
    path = tmp_path / "l"
    session = ss.Session(RECORDS, path, bits=Forbidden())
    monkeypatch.setattr("slowscale.release.bound.exact_sums", _must_not_be_read)
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM entries").fetchall()
        with refused(ss.LedgerError, code="busy"):
            session.sum({"cattle": TINY})


@pytest.mark.parametrize("kind", [ss.DataError, ss.EngineError])
def test_errors_that_can_depend_on_the_records_are_recorded(tmp_path, monkeypatch, kind):
    def fail(*arguments):
        raise kind("no-records")

    session = ss.Session(RECORDS, tmp_path / "l", bits=Forbidden())
    monkeypatch.setattr("slowscale.release.bound.exact_sums", fail)
    with pytest.raises(kind):
        session.sum({"cattle": TINY})
    monkeypatch.setattr("slowscale.release.session.open_source", fail)
    with pytest.raises(kind):
        ss.Session(RECORDS, tmp_path / "l")
    entries = ss.Ledger(tmp_path / "l").history()
    assert [entry["kind"] for entry in entries] == ["created", "attempt", "attempt"]
    assert [entry["error"]["type"] for entry in entries[1:]] == [kind.__name__] * 2


def test_an_overflow_in_the_engine_is_recorded(tmp_path):
    session = ss.Session(pa.table({"x": [2**63 - 1]}), tmp_path / "l", bits=Forbidden())
    with pytest.raises(ss.EngineError):
        session.sum({"more": TINY}, derive={"more": "x + 1"})
    assert [entry["kind"] for entry in session.ledger.history()] == ["created", "attempt"]


def test_records_are_opened_only_if_the_ledger_is_of_their_data_set(tmp_path, monkeypatch):
    ledger = ss.Ledger(tmp_path / "l", dataset="cbp-2024")
    monkeypatch.setattr("slowscale.release.session.open_source", _must_not_be_read)
    for dataset, code in ((None, "missing"), ("cbp-2023", "mismatch")):
        with refused(ss.LedgerError, code=code):
            ss.Session(RECORDS, ledger, dataset=dataset)
    assert [entry["kind"] for entry in ledger.history()] == ["created"]


def test_values_that_are_not_of_their_declared_type_are_an_error_and_recorded(tmp_path):
    """They would count as missing otherwise, and a filter would leave them out without a word."""
    (tmp_path / "farms.csv").write_text("n,x\n1,1\nX,2\n")
    session = ss.Session(tmp_path / "farms.csv", tmp_path / "l", types={"n": "int64", "x": "int64"}, bits=Forbidden())
    with refused(ss.DataError, "column 'n'"):
        session.sum({"x": TINY}, where="n > 0")
    assert [entry["kind"] for entry in session.ledger.history()] == ["created", "attempt"]


# --- checks before anything is drawn -------------------------------------------------------------------------------


def test_columns_that_a_ledger_takes_for_one_are_refused():
    with refused(ss.ParameterError, "data", code="duplicate"):
        ss.Session(pd.DataFrame({"a": [1], "pay ": [1], "z": [1], "Pay": [2]}))


def test_caps_are_on_columns():
    cap = ss.Gaussian(sigma=1).policy
    with refused(ss.ParameterError, "caps", code="unknown-column"):
        ss.Session(RECORDS, caps={"cattle": cap, "cows": cap})
    assert ss.Session(RECORDS, caps={"Cattle": cap, "*": cap, "count": cap}).spent.releases == 0


def test_a_similar_name_is_proposed(session):
    with refused(ss.ParameterError, "column 'catle'", code="unknown-column"):
        session.sum({"catle": TINY})


DERIVED = "is derived or renamed and has no cap"


@pytest.mark.parametrize(
    ("rename", "columns", "derive", "evading"),
    [
        ({}, ["cattle"], {}, None),
        ({}, ["size"], {"more": "cattle * 2"}, None),
        ({}, ["more"], {"more": "cattle * 2"}, "more"),
        ({}, ["cattle", "more"], {"more": "cattle * 2"}, "more"),  # each column is checked
        ({}, ["own"], {"own": "cattle * 2"}, None),  # it has a cap of its own
        ({"cows": "cattle"}, ["cows"], {}, "cows"),
        ({"cows": "cattle"}, ["size"], {}, None),
        ({"own": "cattle"}, ["own"], {}, None),
        ({"cattle": "size", "cows": "cattle"}, ["cattle"], {}, "cattle"),  # the cap is that of another column
        ({"cows": "cattle"}, ["cattle"], {"cattle": "cows * 1000"}, "cattle"),
    ],
)
def test_a_derived_or_renamed_column_does_not_evade_the_caps(rename, columns, derive, evading, tmp_path):
    table = ibis.memtable(RECORDS[["state", "size", "cattle"]]).rename(rename)
    cap = ss.Gaussian(sigma=100).policy
    ledger = ss.Ledger(tmp_path / "l", {"cattle": cap, "own": cap, "*": cap})
    session = ss.Session(table, ledger, bits=Recorded(1))
    query = ss.Sums(dict.fromkeys(columns, ss.Gaussian(sigma=100)), derive=derive)
    if evading is None:
        session.release(query)
        return
    with refused(ss.ParameterError, f"column '{evading}'", code="no-cap"):
        session.release(query)
    assert [entry["kind"] for entry in ledger.history()] == ["created"]


def test_a_partition_is_a_stored_column():
    """Otherwise a record could be in several parts, and its losses would add."""
    table = ibis.memtable(RECORDS[["state", "size", "cattle"]])
    keys = ss.Keys.cross({"part": [1, 2]})
    for data, derive in (
        (table, {"part": "size"}),
        (table.rename(part="size"), None),
        (table.mutate(part=table["size"] % 2), None),
    ):
        session = ss.Session(data, bits=Forbidden())
        with refused(ss.ParameterError, "partition", code="derived"):
            session.sum({"cattle": TINY}, keys=keys, derive=derive, partition="part")
    with refused(ss.ParameterError, "partition", code="unknown-column"):
        ss.Session(table, bits=Forbidden()).sum({"cattle": TINY}, keys=KEYS, partition="size")
    with refused(ss.ParameterError, "partition", code="unknown-column"):
        ss.Session(table, bits=Forbidden()).sum({"cattle": TINY}, partition="size")


def test_the_import_is_light():
    heavy = ("ibis", "duckdb", "pyarrow", "altair", "pyspark", "rich")
    code = f"import sys, slowscale; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    for name in ss.__all__:
        assert getattr(ss, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        ss.nothing  # noqa: B018
    assert "Session" in dir(ss)


def test_rest_of_a_grain_is_exact():
    """Values of 2⁻¹⁶ of a unit add up without loss."""
    values = np.full(65_536, 2.0**-16)
    release = ss.Session(pd.DataFrame({"x": values}), bits=Recorded(1)).sum({"x": TINY})
    assert release.table["x"].to_pylist() == [1]


def test_a_traceback_shows_no_message_of_the_engine_that_may_quote_a_record():
    with pytest.raises(ss.EngineError) as caught:
        ss.Session({"x": [2**62]}).sum({"z": TINY}, derive={"z": "x * x"})
    assert "Overflow" not in "".join(traceback.format_exception(caught.value))
    assert str(2**62) not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("mechanism", [ss.Log(sigma=20), ss.Gaussian(sigma=1e300)])
def test_a_preview_of_huge_noise_says_that_its_error_is_infinite(mechanism):
    assert "∞" in str(ss.Session({"x": [1, 2]}).preview(ss.Sums({"x": mechanism})))
