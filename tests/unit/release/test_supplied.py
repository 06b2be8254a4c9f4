"""Sums that the curator supplies: each check of a file, of its manifest and of the request refuses what it is for."""

import json
from datetime import date
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.errors import refused

import slowscale as ss
from slowscale.core.errors import DataError, ParameterError, ParameterTypeError
from slowscale.data.supplied import SQL_DIALECTS
from slowscale.sampling import KnownBits

NOISE = ss.Gaussian(sigma=3)
RECORDS = pa.table(
    {
        "state": ["a", "a", "b", "elsewhere", None],
        "zone": pa.array([1, 2, 1, 1, 1], pa.int32()),
        "emp": pa.array([5, 7, 100, 3, 4]),
        "x": [0.1, -2.5, 1e12, 3.0, 4.0],
        "firm": ["f", "f", "g", "g", "g"],
    }
)
SUMS = ss.Sums(
    {"emp": ss.Root(k=2, sigma=1), "x": NOISE},
    count=NOISE,
    keys=ss.Keys.cross({"state": ["a", "b", "c"], "zone": [1, 2]}),
)


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def session(ledger=None, records=RECORDS, **options):
    return ss.Session(records.slice(0, 0), ledger, bits=KnownBits(1), **options)


def result_of(printed, records=RECORDS):
    """Run the SQL on DuckDB; return its result as an Arrow table."""
    connection = duckdb.connect()
    connection.register("records", records)
    return connection.sql(printed.tables["table"]).to_arrow_table()


def supplied(sums=SUMS, change=lambda table: table, records=RECORDS, groups=None, **options):
    """Return the session, and the sums of the records as supplied sums, after a change."""
    opened = session(records=records, **options)
    printed = opened.sums_sql(sums, "duckdb")
    pq.write_table(change(result_of(printed, records)), "sums.parquet")
    manifest = json.loads(json.dumps(printed.manifest))
    manifest["tables"]["table"]["groups"] = groups
    return ss.SuppliedSums("sums.parquet", manifest)


def with_column(name, values):
    """Return the change that replaces a column."""

    def change(table):
        place = table.column_names.index(name)
        old = table[name]
        new = values(old) if callable(values) else values
        return table.set_column(place, name, new)

    return change


def first(value, dtype=None):
    """Return the change of a column whose first value becomes another one."""
    return lambda old: pa.array([value, *old.to_pylist()[1:]], dtype or old.type)


def swapped(one, other):
    """Return the change that exchanges the values of two columns."""

    def change(table):
        names = {one: other, other: one}
        return table.select([names.get(name, name) for name in table.column_names]).rename_columns(table.column_names)

    return change


@pytest.mark.parametrize("groups", [None, 4])
def test_sums_of_the_records_are_taken(groups):
    direct = ss.Session(RECORDS, bits=KnownBits(1)).release(SUMS)
    found = session().release(SUMS, sums=supplied(groups=groups))
    assert found.table.equals(direct.table)
    assert "curator's word" in repr(found)
    assert "curator's word" not in repr(direct)
    facts, plain = found.facts.to_dict(), direct.facts.to_dict()
    assert facts.pop("supplied")["table"]["dialect"] == "duckdb"
    for one in (facts, plain):
        del one["id"], one["created"]
    assert facts == plain


def test_text_labels_decimal_counts_and_parts_of_files_are_taken():
    def as_others_write_it(table):
        table = with_column("by0", as_text)(table)
        for name in table.column_names[2:]:
            table = with_column(name, lambda old: old.cast(pa.decimal128(38, 0)))(table)
        return table

    direct = ss.Session(RECORDS, bits=KnownBits(1)).release(SUMS)
    given = supplied(change=as_others_write_it)
    assert session().release(SUMS, sums=given).table.equals(direct.table)
    whole = pq.read_table("sums.parquet")
    part = Path("parts")
    part.mkdir()
    for i in range(len(whole)):
        pq.write_table(whole.slice(i, 1), part / f"{i}.parquet")
    assert session().release(SUMS, sums=ss.SuppliedSums(part, given.manifest)).table.equals(direct.table)


def as_text(old):
    return pa.array([label.decode() for label in old.to_pylist()])


def test_labels_as_text_are_their_bytes():
    labels = ["A", "\\x41", "ä", ""]  # a cast of the second one to bytes would make it the first
    records = pa.table({"state": labels, "emp": [1, 20, 300, 4000]})
    sums = ss.Sums({"emp": NOISE}, keys=ss.Keys.cross({"state": labels}))
    direct = ss.Session(records, bits=KnownBits(1)).release(sums)
    given = supplied(sums, with_column("by0", as_text), records)
    assert session(records=records).release(sums, sums=given).table.equals(direct.table)


TAMPERED = {
    "a column is missing": (lambda table: table.drop_columns(["valid1"]), "supplied-columns"),
    "a column too many": (lambda table: table.append_column("more", table["rows"]), "supplied-columns"),
    "another order": (lambda table: table.select([*table.column_names[1:], "by0"]), "supplied-columns"),
    "labels as numbers": (with_column("by0", pa.array([1, 2, 3, 4])), "supplied-type"),
    "numbers as text": (with_column("by1", pa.array(["1", "2", "1", "1"])), "supplied-type"),
    "sums as floats": (with_column("sum0_0", pa.array([5.0, 7.0, float("nan"), 3.0])), "supplied-type"),
    "cents for whole numbers": (with_column("sum0_0", lambda old: old.cast(pa.decimal128(20, 2))), "supplied-type"),
    "counts as fractions": (with_column("rows", lambda old: old.cast(pa.decimal128(20, 1))), "supplied-type"),
    "too many digits": (with_column("rows", first(Decimal(10**30), pa.decimal128(38, 0))), "supplied-digits"),
    "a missing label": (with_column("by0", first(None)), "supplied-label"),
    "a group twice": (lambda table: pa.concat_tables([table, table.slice(0, 1)]), "supplied-twice"),
    "no records": (with_column("rows", first(0)), "supplied-count"),
    "no number of records": (with_column("rows", first(None)), "supplied-count"),
    "a negative count": (with_column("rows", first(-1)), "supplied-count"),
    "a negative valid count": (with_column("valid0", first(-1)), "supplied-count"),
    "no valid count": (with_column("valid1", first(None)), "supplied-count"),
    "more valid than there are": (with_column("valid0", first(2)), "supplied-count"),
    "less valid than there are": (with_column("valid0", first(0)), "supplied-uncountable"),
    "a negative sum of what is not negative": (with_column("sum0_0", first(-5)), "supplied-sum"),
    "a missing sum": (with_column("sum0_0", first(None)), "precision"),
    "the parts of a float exchanged": (swapped("sum1_0", "sum1_1"), "supplied-sum"),
    "an integer as a float": (swapped("sum0_0", "sum1_1"), "supplied-sum"),
    "sums for counts": (swapped("valid0", "sum0_0"), "supplied-count"),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_file_that_no_records_have_is_refused_and_recorded(name):
    change, code = TAMPERED[name]
    given = supplied(change=change)
    opened = session("x.ledger", dataset="farms")
    with refused(DataError, code=code):
        opened.release(SUMS, sums=given)
    with ss.Ledger("x.ledger") as ledger:
        assert [entry["kind"] for entry in ledger.history()] == ["created", "attempt"]
        assert not ledger.account.charges


def test_what_is_no_parquet_file_is_refused():
    given = supplied()
    Path("sums.parquet").write_bytes(b"PAR1 but not really")
    opened = session("x.ledger", dataset="farms")
    with refused(ss.EngineError, "sums"):
        opened.release(SUMS, sums=given)
    assert [entry["kind"] for entry in opened.ledger.history()] == ["created", "attempt"]
    Path("sums.csv").write_text("by0\n")
    with refused(ParameterError, "sums"):
        opened.release(SUMS, sums=ss.SuppliedSums("sums.csv", given.manifest))


def test_another_number_of_groups_is_refused():
    for groups, code in ((3, "supplied-groups"), (5, "supplied-groups")):
        with refused(DataError, code=code):
            session().release(SUMS, sums=supplied(groups=groups))
    for groups in (-1, 4.0, True, "4"):
        with refused(ParameterError, "groups"):
            session().release(SUMS, sums=supplied(groups=groups))


def test_a_dropped_group_is_only_seen_by_the_number_of_groups():
    cut = {"change": lambda table: table.slice(1)}
    session().release(SUMS, sums=supplied(**cut))
    with refused(DataError, code="supplied-groups"):
        session().release(SUMS, sums=supplied(**cut, groups=4))


def test_a_total_has_one_row():
    sums = ss.Sums({"emp": NOISE}, count=NOISE)
    direct = ss.Session(RECORDS, bits=KnownBits(1)).release(sums)
    assert session().release(sums, sums=supplied(sums)).table.equals(direct.table)
    for change in (lambda table: table.slice(1), lambda table: pa.concat_tables([table, table])):
        with refused(DataError, code="supplied-total"):
            session().release(sums, sums=supplied(sums, change))
    nothing = RECORDS.slice(0, 0)
    for options in ({}, {"protect": "firm", "largest": {"emp": 10}}):
        given = supplied(sums, records=nothing, **options)
        with pytest.warns(ss.ConfidentialWarning):
            empty = ss.Session(nothing, bits=KnownBits(1), **options).release(sums)
        with pytest.warns(ss.ConfidentialWarning):
            assert session(**options).release(sums, sums=given).table.equals(empty.table)


def test_entities_and_largest_values_are_checked():
    options = {"protect": "firm", "largest": {"emp": 100, "count": 10}}
    direct = ss.Session(RECORDS, bits=KnownBits(1), **options).release(SUMS)
    assert session(**options).release(SUMS, sums=supplied(**options)).table.equals(direct.table)
    for name, value, code in (
        ("owned", 0, "no-entity"),
        ("larger0", 1, "above-largest"),
        ("larger", 1, "above-largest"),
        ("larger0", 2, "supplied-count"),
        ("larger0", None, "supplied-count"),
    ):
        with refused(DataError, code=code):
            session(**options).release(SUMS, sums=supplied(change=with_column(name, first(value)), **options))
    low = {**options, "largest": {"emp": 99, "count": 10}}
    with refused(DataError, code="above-largest"):
        session(**low).release(SUMS, sums=supplied(**low))


def test_other_groups_may_have_what_keys_may_not():
    records = pa.concat_tables([RECORDS, RECORDS.slice(0, 1)])
    records = records.set_column(3, "x", pa.array([0.1, -2.5, 1e12, float("nan"), 4.0, 0.0]))
    direct = ss.Session(records, bits=KnownBits(1)).release(SUMS)
    assert session().release(SUMS, sums=supplied(records=records)).table.equals(direct.table)
    for bad in (float("nan"), float("inf"), 1e300, None):
        broken = records.set_column(3, "x", pa.array([bad, -2.5, 1e12, 3.0, 4.0, 0.0]))
        with refused(DataError, code="supplied-uncountable"):
            session().release(SUMS, sums=supplied(records=broken))


def test_labels_that_no_key_can_be_are_left_out():
    """A date of DuckDB can be beyond those of keys, and an unsigned number beyond 64 bits with a sign."""
    schema = pa.schema({"day": pa.date32(), "big": pa.uint64(), "emp": pa.int64()})
    keys = ss.Keys.cross({"day": [date(2024, 1, 1)], "big": [1]})
    sums = ss.Sums({"emp": NOISE}, keys=keys)
    opened = ss.Session(schema.empty_table(), bits=KnownBits(1))
    printed = opened.sums_sql(sums)
    connection = duckdb.connect()
    connection.execute("CREATE TABLE records (day DATE, big UBIGINT, emp BIGINT)")
    connection.execute(
        "INSERT INTO records VALUES ('2024-01-01', 1, 10), ('12000-01-01', 1, 20), "
        "('2024-01-01', 18446744073709551615, 30)"
    )
    found = connection.sql(printed.tables["table"])
    found.write_parquet("sums.parquet")
    assert len(found) == 1
    opened.release(sums, sums=ss.SuppliedSums("sums.parquet", printed.manifest))


def test_the_manifest_belongs_to_the_request():
    given, opened = supplied(), session("x.ledger", dataset="farms")
    others = [
        ss.Sums({"emp": ss.Root(k=2, sigma=1), "x": NOISE}, count=NOISE, keys=SUMS.keys, where="emp < 50"),
        ss.Sums({"emp": ss.Root(k=2, sigma=1), "x": NOISE}, count=NOISE, keys=SUMS.keys, unit={"x": 4}),
        ss.Sums({"emp": ss.Root(k=2, sigma=1), "x": NOISE}, keys=ss.Keys.cross({"zone": [1], "state": ["a"]})),
        ss.Sums({"emp": NOISE, "x": NOISE}, count=NOISE, keys=SUMS.keys, nulls="zero"),
    ]
    for other in others:
        with refused(ParameterError, "manifest", code="mismatch"):
            opened.release(other, sums=given)
    for damaged in ({}, {**given.manifest, "format": 2}, [], {"format": 1}, {"format": 1, "tables": [1]}):
        with refused(ParameterError, "manifest", code="damaged"):
            opened.release(SUMS, sums=ss.SuppliedSums("sums.parquet", damaged))
    with refused(ParameterError, "dialect"):
        opened.release(SUMS, sums=ss.SuppliedSums("sums.parquet", {**given.manifest, "dialect": "mysql"}))
    with refused(ParameterError, code="mismatch"):
        opened.release(SUMS, sums=ss.SuppliedSums("sums.parquet", {**given.manifest, "dialect": "postgres"}))
    with refused(ParameterError, code="missing"):
        opened.release(SUMS, sums=ss.SuppliedSums("absent.parquet", given.manifest))
    with refused(ParameterError, code="unreadable"):
        opened.release(SUMS, sums=ss.SuppliedSums("sums.parquet", "absent.json"))
    with refused(ParameterTypeError, "sums"):
        opened.release(SUMS, sums="sums.parquet")
    assert not opened.ledger.account.charges


def test_several_tables_need_a_file_each():
    request = ss.Request({"states": SUMS, "all": ss.Sums({"emp": NOISE})})
    opened = session()
    printed = opened.sums_sql(request, "duckdb")
    connection = duckdb.connect()
    connection.register("records", RECORDS)
    files = {}
    for name, text in printed.tables.items():
        files[name] = f"{name}.parquet"
        connection.sql(text).write_parquet(files[name])
    direct = ss.Session(RECORDS, bits=KnownBits(1)).release(request)
    found = opened.release(request, sums=ss.SuppliedSums(files, printed.manifest))
    assert all(found[name].table.equals(direct[name].table) for name in request)
    for wrong in ("states.parquet", {"states": "states.parquet"}, {**files, "more": "states.parquet"}):
        with refused(ParameterError, "files"):
            opened.release(request, sums=ss.SuppliedSums(wrong, printed.manifest))


def test_what_cannot_be_supplied_is_refused():
    with refused(ParameterError, code="unsupported", path=("tables", "table")):
        session().sums_sql(ss.Quantiles("emp", loss=0.1))
    with refused(ParameterError, "dialect"):
        session().sums_sql(SUMS, "mysql")


def test_text_with_numbers_is_read_by_duckdb_only(tmp_path):
    (tmp_path / "r.csv").write_text("state,pay\na,1.25\na, -3.5\nb,\n")
    (tmp_path / "header.csv").write_text("state,pay\n")
    sums = ss.Sums({"pay": NOISE}, keys=ss.Keys.cross({"state": ["a", "b"]}), nulls="zero", unit="0.01")
    direct = ss.Session("r.csv", bits=KnownBits(1)).release(sums)
    opened = ss.Session("header.csv", bits=KnownBits(1))
    printed = opened.sums_sql(sums)
    connection = duckdb.connect()
    connection.execute("CREATE TABLE records AS FROM read_csv('r.csv', all_varchar = true)")
    connection.sql(printed.tables["table"]).write_parquet("sums.parquet")
    found = opened.release(sums, sums=ss.SuppliedSums("sums.parquet", printed.manifest))
    assert found.table.equals(direct.table)
    for dialect in set(SQL_DIALECTS) - {"duckdb"}:
        with refused(ParameterError, "text with numbers", code="unsupported"):
            opened.sums_sql(sums, dialect)


def test_a_name_cannot_leave_the_comment():
    records = pa.table({"a\nDROP TABLE x; --": ["a"], "emp": [1]})
    sums = ss.Sums({"emp": NOISE}, keys=ss.Keys.cross({"a\nDROP TABLE x; --": ["a"]}))
    text = session(records=records).sums_sql(sums).tables["table"]
    comment = [line for line in text.split("SELECT")[0].splitlines() if line]
    assert all(line.startswith("--") for line in comment)


def test_the_sql_names_a_table_of_a_database(tmp_path):
    with duckdb.connect(str(tmp_path / "farms.duckdb")) as connection:
        connection.execute("CREATE TABLE farms (state VARCHAR, emp BIGINT)")
    opened = ss.Session(f"duckdb://{tmp_path}/farms.duckdb#farms")
    text = opened.sums_sql(ss.Sums({"emp": NOISE}, keys=ss.Keys.cross({"state": ["a"]}))).tables["table"]
    assert '"farms"' in text
    assert '"records"' not in text


def test_the_sql_is_the_same_each_time():
    printed = [session().sums_sql(SUMS, dialect) for dialect in SQL_DIALECTS for _ in range(2)]
    assert printed[0::2] == printed[1::2]
    assert len({one.manifest["tables"]["table"]["sql_sha256"] for one in printed}) == len(SQL_DIALECTS)
    assert str(printed[0]) == printed[0].tables["table"]
