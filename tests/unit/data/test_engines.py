"""Engines: labels that only identical labels equal, results of the expected types, and errors that quote no records."""

import os
import signal
import threading
import time
from datetime import date
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace

import ibis
import ibis.expr.datatypes as dt
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from helpers import engines
from helpers.errors import refused
from ibis import _

import slowscale as ss
from slowscale import Keys
from slowscale.data import connections, selftest, sources
from slowscale.data import engines as engines_module
from slowscale.data import keys as keys_module
from slowscale.data.connections import answered, engine_errors, first_line, private_duckdb
from slowscale.data.dialects import call
from slowscale.data.engines import (
    BOOLEAN,
    DATE,
    ENGINES,
    PRIVATE,
    SPARK_CONNECT,
    TEXT,
    WHOLE,
    Engine,
    _same_family,
    engine_of,
    engine_of_connection,
    fetch,
    restricted_to_keys,
)
from slowscale.data.sources import open_table
from slowscale.data.sums import Column, exact_sums

LABELS = {
    TEXT: (pa.array(["a", "A", "Ä", "A\u0308", "a ", "", "\\x41", None]), ["A", "", "\\x41", "Ä", "none"]),
    WHOLE: (pa.array([1, -7, 2**63 - 1, 2**53, 2**53 + 1, None], pa.int64()), [2**53 + 1, 2**63 - 1, 1, 5]),
    BOOLEAN: (pa.array([True, False, None]), [False, True]),
    DATE: (pa.array([date(2020, 2, 29), date(1, 1, 1), date(9999, 12, 31), None]), [date(9999, 12, 31), date(1, 1, 1)]),
}


def opened(engine, columns):
    data = pa.table(columns)
    return open_table(data if engine == "private" else engines.load(engine, data))


def records_by_key(table, labels):
    """Return the number of records of each label of the column k."""
    return exact_sums(table, [Column("x", Fraction(1))], Keys.cross({"k": labels})).rows.tolist()


@pytest.mark.parametrize("engine", ["private", "duckdb"])
@pytest.mark.parametrize("kind", LABELS)
def test_a_record_is_in_the_cell_of_its_own_label_only(engine, kind):
    column, wanted = LABELS[kind]
    table = opened(engine, {"k": column, "x": pa.array([1] * len(column))})
    expected = [column.to_pylist().count(label) for label in wanted]
    assert records_by_key(table, wanted) == expected
    kept = restricted_to_keys(table, Keys.cross({"k": wanted}).table, {"k": kind})
    assert fetch(kept.count().as_table()).columns[0].to_pylist() == [sum(expected)]
    assert list(Keys.from_data(table, "k", declared_public=True)) == sorted(
        (label,) for label in column.to_pylist() if label is not None
    )


@pytest.mark.parametrize("engine", ["private", "duckdb"])
def test_unsigned_labels_of_more_than_63_bits_are_in_no_cell(engine):
    labels = [2**64 - 1, 2**63, 2**63 - 1, 2**63 - 2, 2**62, 5]
    table = opened(engine, {"k": pa.array(labels, pa.uint64()), "x": [1] * 6})
    assert records_by_key(table, [-(2**63), -1, 2**63 - 1, 2**63 - 2, 2**62, 5]) == [0, 0, 1, 1, 1, 1]


def test_dates_beyond_the_calendar_are_in_no_cell():
    connection = ibis.duckdb.connect()
    connection.raw_sql(
        "CREATE TABLE t AS SELECT 1 AS x, unnest(['infinity', '0001-01-01 (BC)', '2020-01-01']::DATE[]) k"
    )
    table = connection.table("t")
    assert records_by_key(table, [date(2020, 1, 1)]) == [1]
    assert list(Keys.from_data(table, "k", declared_public=True)) == [(date(2020, 1, 1),)]


def test_text_that_is_not_utf8_is_not_a_label():
    labels = pa.chunked_array([["ä".encode(), b"\xff", None]], pa.binary())
    assert Engine().key_label(labels, TEXT).to_pylist() == ["ä", None, None]


def test_a_decimal_without_a_scale():
    table = opened("duckdb", {"x": pa.array([Decimal("1.234"), Decimal("-0.001")], pa.decimal128(9, 3))})
    found = exact_sums(table.mutate(x=_.x.cast("decimal")), [Column("x", Fraction(1))], None).sums["x"]
    assert int(found.counts[0]) * found.grain == Fraction(1233, 1000)
    value = ibis.table({"x": "decimal"}, name="t").x
    assert Engine().truncated_decimal(value, 12).type() == dt.Decimal(38, 12)


def test_the_properties_of_the_engines():
    """They decide how numbers are split and checked; a wrong one would let a sum overflow or a check be left out."""
    names = ("wide_sums", "strict_casts", "hashes_rows")
    yes, no = True, False
    assert {name: tuple(getattr(engine, name) for name in names) for name, engine in ENGINES.items()} == {
        "duckdb": (yes, yes, yes),
        "postgres": (yes, yes, no),  # the sum of bigint is numeric
        "pyspark": (no, no, no),
    }
    private = engine_of(opened("private", {"x": [1]}))
    assert [getattr(private, name) for name in names] == [yes] * 3


def test_the_private_duckdb_loads_no_extensions_by_itself():
    """An extension could come from the network, and could add functions that the checks do not know."""
    connection = private_duckdb()
    for action in ("autoinstall", "autoload"):
        query = f"SELECT current_setting('{action}_known_extensions')"
        assert connection.con.execute(query).fetchone() == (False,)


def test_every_connection_has_its_engine():
    assert engine_of(opened("private", {"x": [1]})) is PRIVATE
    assert engine_of(opened("duckdb", {"x": [1]})) is ENGINES["duckdb"]
    with refused(ss.ParameterError, "data", code="value"):
        engine_of(ibis.table({"x": "int64"}, name="t"))


@pytest.fixture
def connection():
    """A DuckDB with a stored table, and views of it, of a file's rows and of a frame."""
    connection = ibis.duckdb.connect()
    connection.raw_sql("CREATE TABLE stored AS SELECT 1 AS k, 1.5 AS x, 2.5::DOUBLE AS y")
    connection.raw_sql("CREATE TABLE other AS SELECT 1 AS k")
    connection.raw_sql("CREATE VIEW shown AS SELECT * FROM stored WHERE k > 0")
    connection.raw_sql("CREATE SCHEMA s")
    connection.raw_sql("CREATE VIEW s.other AS SELECT * FROM stored")
    connection.con.register("frame", pa.table({"k": [1]}))
    return connection


def test_statistics_are_used_of_stored_tables_only(connection):
    """The statistics of a file leave out NaN; a view may read a file."""
    safe = ENGINES["duckdb"].statistics_are_safe
    stored, other, shown = (connection.table(name) for name in ("stored", "other", "shown"))
    assert safe(connection, stored.filter(_.y > 1))
    assert not safe(connection, shown)
    assert not safe(connection, connection.table("frame"))
    assert not safe(connection, stored.join(shown, "k"))
    assert not safe(connection, other), "a view has the same name"
    assert not safe(connection, ibis.memtable({"k": [1]}))
    connection.raw_sql("DROP VIEW s.other")
    assert safe(connection, stored.join(other, "k"))


@pytest.mark.parametrize(
    ("query", "safe"),
    [
        (lambda t: t, True),
        (lambda t: t.filter(t.k > 1), True),
        (lambda t: t.select("k", z=t.y), True),
        (lambda t: t.mutate(z=t.k + 1), True),
        (lambda t: t.aggregate(z=(t.y > 1).sum()), True),
        (lambda t: t.filter(t.y > 1), False),
        (lambda t: t.filter(t.k > 1, (t.k < 5) & ((t.k == 2) | ~(t.y > 1))), False),
        (lambda t: t.mutate(z=t.y > 1), False),
        (lambda t: t.mutate(z=ibis.ifelse(t.k > 1, 1, t.y.cast("int64"))).filter(_.k > 1), False),
        (lambda t: t.filter(t.y > 1).select("k").filter(_.k > 1), False),
    ],
)
def test_statistics_are_not_used_where_a_filter_or_a_column_computes_with_floats(query, safe):
    table = ibis.table({"k": "int64", "y": "float64"}, name="t")
    assert PRIVATE.statistics_are_safe(None, query(table)) is safe


@pytest.mark.parametrize(("name", "seen"), [("stored", {"join_order"}), ("shown", None)])
def test_the_setting_of_the_optimizers_is_restored(connection, name, seen):
    connection.raw_sql("SET disabled_optimizers = 'join_order'")
    query = connection.table(name).select(setting=call("current_setting", "string", "disabled_optimizers"))
    (setting,) = fetch(query)["setting"].to_pylist()
    assert set(setting.split(",")) == (seen or {"statistics_propagation", "filter_pushdown"})
    assert connection.raw_sql("SELECT current_setting('disabled_optimizers')").fetchone() == ("join_order",)


def test_views(connection, tmp_path):
    path = tmp_path / "t.parquet"
    pa.parquet.write_table(pa.table({"k": [1]}), path)
    is_view = ENGINES["duckdb"].is_view
    assert not is_view(connection, connection.table("stored").op())
    assert is_view(connection, connection.table("shown").op())
    assert not is_view(connection, connection.table("other", database="main").op())
    assert is_view(connection, connection.table("other", database="s").op())
    # a view of a whole file or frame has its rows
    assert not is_view(connection, connection.table("frame").op())
    assert not is_view(connection, connection.read_parquet(path, table_name="file").op())
    assert Engine().is_view(connection, connection.table("shown").op()) is False


@pytest.mark.parametrize(
    ("query", "view"),
    [
        ("SELECT * FROM read_parquet('{}')", False),
        ("FROM parquet_scan(['{}'], filename = (1 = 0))", False),
        ("SELECT * FROM read_parquet('{}') WHERE k > 1", True),
        ("SELECT * FROM read_parquet('{}') JOIN (SELECT 1 AS k) USING (k)", True),
        ("SELECT * FROM read_parquet('{}') x JOIN stored ON (x.k = stored.k)", True),
        ("SELECT * FROM read_parquet('{}') LIMIT 1", True),
        ("SELECT DISTINCT * FROM read_parquet('{}')", True),
        ("SELECT * FROM read_parquet('{}') UNION ALL (SELECT k FROM stored)", True),
        ("SELECT k FROM read_parquet('{}') WHERE 'AS SELECT * FROM read_parquet();' <> (k::TEXT)", True),
        ("SELECT * FROM query('SELECT count(*) AS k FROM stored')", True),
        ("SELECT * FROM range(5)", True),
        ("SELECT * FROM stored", True),
    ],
)
@pytest.mark.parametrize("name", ["v", '"a ""view"" (x)"', "s.v"])
def test_only_a_view_of_all_rows_of_a_file_is_not_a_view(connection, tmp_path, name, query, view):
    """A view that joins or filters must be reported, whatever its text ends with."""
    path = tmp_path / "it''s (1).parquet"
    pa.parquet.write_table(pa.table({"k": [1]}), str(path).replace("''", "'"))
    connection.raw_sql(f"CREATE VIEW {name} AS {query.format(path)}")
    plain = {"v": ("v", "main"), "s.v": ("v", "s")}.get(name, ('a "view" (x)', "main"))
    assert ENGINES["duckdb"].is_view(connection, connection.table(plain[0], database=plain[1]).op()) is view


@pytest.mark.parametrize(
    ("query", "view"),
    [
        ("SELECT * FROM frame", False),
        ("SELECT * FROM frame WHERE k > 0", True),
        ("SELECT frame.* FROM frame JOIN stored USING (k)", True),
        ("SELECT sum(k) AS k FROM frame", True),
        ("SELECT k + 1 AS k FROM frame", True),
        ("SELECT * FROM frame UNION ALL SELECT * FROM frame", True),
        ("SELECT k FROM stored", True),
    ],
)
@pytest.mark.parametrize("registered", [True, False])
def test_a_view_of_a_relation_is_a_view_unless_it_is_a_whole_frame(connection, query, view, registered):
    """DuckDB keeps no text of these views."""
    relation = connection.con.sql(query)
    if registered:
        connection.con.register("made", relation)
    else:
        relation.create_view("made")
    assert ENGINES["duckdb"].is_view(connection, connection.table("made").op()) is view


@pytest.mark.parametrize(
    "frame", [pd.DataFrame, pl.DataFrame, pl.LazyFrame, pa.table], ids=["pandas", "polars", "lazy", "arrow"]
)
def test_a_registered_frame_is_not_a_view(connection, frame):
    connection.con.register("a frame", frame({"k": [1, 2], "x": ["a", "b"]}))
    assert ENGINES["duckdb"].is_view(connection, connection.table("a frame").op()) is False


def test_a_session_of_spark_connect_proves_its_server_and_a_classic_one_need_not(monkeypatch):
    checked, proven = [], []
    monkeypatch.setattr(engines_module, "check_spark", checked.append)
    monkeypatch.setattr(selftest, "proof", proven.append)
    for module, engine in (("pyspark.sql.session", "pyspark"), ("pyspark.sql.connect.session", "connect")):
        session = type("SparkSession", (), {"__module__": module})()
        backend = SimpleNamespace(name="pyspark", _session=session)
        assert engine_of_connection(backend) is {"pyspark": ENGINES["pyspark"], "connect": SPARK_CONNECT}[engine]
        engine_of_connection(backend).check(backend)
    assert checked[1:] == proven == [backend]


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(connections, "PATIENCE", 0.3)
    monkeypatch.setattr(connections, "HEARTBEAT", 0.01)


def test_a_server_that_still_answers_may_take_its_time(impatient):
    beats = []
    found = answered(lambda: time.sleep(0.6) or 7, lambda: beats.append(1), "the server")
    assert found == 7
    assert len(beats) > 5


@pytest.mark.parametrize("alive", [lambda: time.sleep(5), lambda: 1 / 0])
def test_a_server_that_answers_nothing_is_lost(impatient, alive):
    start = time.monotonic()
    with refused(ss.EngineError, "the server", code="unreachable"):
        answered(lambda: time.sleep(5), alive, "the server")
    assert time.monotonic() - start < 3


def test_an_error_of_a_server_is_raised(impatient):
    with pytest.raises(ZeroDivisionError):
        answered(lambda: 1 / 0, lambda: None, "the server")


def test_ctrl_c_stops_the_query_on_a_server(monkeypatch):
    class Session:
        tags, stopped = [], threading.Event()

        def addTag(self, tag):  # noqa: N802
            self.tags.append(tag)

        def interruptTag(self, tag):  # noqa: N802
            assert self.tags == [tag]
            self.stopped.set()

    def interrupted(ask, alive, title):
        ask()
        raise KeyboardInterrupt

    Session.__module__ = "pyspark.sql.connect.session"
    monkeypatch.setattr(connections, "answered", interrupted)
    with pytest.raises(KeyboardInterrupt):
        connections.ask_spark(Session(), lambda: None)
    assert Session.stopped.wait(5)


FAMILIES = [
    [pa.int8(), pa.int64(), pa.uint32(), pa.decimal128(38, 0), pa.decimal256(50, 0)],
    [pa.binary(), pa.large_binary(), pa.binary_view()],
    [pa.string(), pa.large_string(), pa.string_view()],
    [pa.float32(), pa.float64()],
    [pa.bool_()],
    [pa.date32()],
    [pa.timestamp("us")],
]


def test_types_of_the_same_kind_of_values():
    for i, family in enumerate(FAMILIES):
        for j, other in enumerate(FAMILIES):
            for got in family:
                for expected in other:
                    assert _same_family(got, expected) is (i == j), (got, expected)


def test_a_result_of_another_type_is_an_error(monkeypatch):
    table = opened("private", {"k": ["a"], "x": [1]})
    narrow = pa.table({"x": pa.array([1], pa.int8()), "k": pa.array(["a"], pa.large_string())})
    monkeypatch.setattr(type(PRIVATE), "run", lambda self, backend, query: narrow)
    assert fetch(table).equals(pa.table({"k": ["a"], "x": [1]}))
    wrong = pa.table({"k": ["a"], "x": [1.0]})
    monkeypatch.setattr(type(PRIVATE), "run", lambda self, backend, query: wrong)
    with refused(ss.EngineError, "DuckDB", code="internal"):
        fetch(table)


def test_errors_of_an_engine_are_quoted_only_before_records_are_read():
    error = RuntimeError("  a value\nmore of it ")
    with (
        refused(ss.EngineError, "the query", code="engine") as quoted,
        engine_errors("the query", "failed"),
    ):
        raise error
    assert quoted.value.__cause__ is error
    assert str(quoted.value) == "the query failed: a value"
    with pytest.raises(ss.EngineError) as silent, engine_errors("the query", "failed", quote=False):
        raise error
    assert str(silent.value) == (
        "the query failed: RuntimeError; the message of the engine is not shown, because it may quote records"
    )
    for ours in (ss.ParameterError("p"), ss.DataError("no-records"), KeyboardInterrupt(), MemoryError()):
        with pytest.raises(type(ours)) as same, engine_errors("the query", "failed", quote=False):
            raise ours
        assert same.value is ours
    with refused(ss.EngineError, "x", code="not-installed") as missing, engine_errors("x"):
        raise ImportError("no psycopg")
    assert "pip install '.[postgres,spark]'" in missing.value.remedy


def test_a_missing_driver_names_its_extra(monkeypatch):
    def connect(address, schema):
        raise ImportError("Failed to import the postgres backend")

    monkeypatch.setitem(sources.CONNECT, "postgresql", connect)
    with refused(ss.EngineError, "data", code="not-installed"):
        ss.Session("postgresql://host/database#table")


def test_the_first_line_of_an_error():
    assert first_line(ValueError("one\ntwo")) == "one"
    assert first_line(ValueError("\n one ")) == "one"
    assert first_line(ValueError(" ")) == "ValueError"


def test_keys_taken_from_the_data_quote_no_records(monkeypatch):
    def fail(query):
        raise RuntimeError("a confidential label")

    monkeypatch.setattr(keys_module, "fetch", fail)
    with refused(ss.EngineError, "the keys", code="engine") as caught:
        Keys.from_data(pa.table({"k": ["a"]}), "k", declared_public=True)
    assert "confidential" not in str(caught.value)


@pytest.mark.parametrize("quote", [True, False])
def test_ctrl_c_in_a_query_is_an_interrupt(connection, quote):
    """DuckDB raises a RuntimeError then, which must not be reported as an error of the engine."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore the signal
    # If another thread runs the query while this one waits, DuckDB may notice the signal only at the end of the query.
    connection.con.execute("SET threads = 1")
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt), engine_errors("the query failed", quote=quote):
            connection.con.sql("SELECT sum(a.range * b.range) FROM range(3_000_000) a, range(3_000) b").to_arrow_table()
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)


def test_other_errors_are_no_interrupts():
    with refused(ss.EngineError, "the query", code="engine"), engine_errors("the query"):
        raise RuntimeError("disk")
