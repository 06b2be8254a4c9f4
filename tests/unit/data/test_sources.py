"""Data in any supported form becomes one table; data that cannot be read raises a one-line error."""

import gc
import gzip
import os
import stat
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from decimal import Decimal
from pathlib import Path

import duckdb
import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from helpers.bitsources import Recorded
from helpers.errors import refused

import slowscale as ss
from slowscale.data import connections, sources
from slowscale.data.connections import engine_errors
from slowscale.data.engines import ENGINES, PrivateDuckDB, engine_of
from slowscale.data.sources import open_source, open_table, outline

TINY = ss.Gaussian(sigma=1e-9)  # so little noise that the result shows the exact sum
ROWS = {"county": ["01001", "48001", "01003"], "emp": [1, 2, 3]}


def rows(data, **options):
    return sorted(open_table(data, **options).to_pyarrow().to_pylist(), key=lambda row: row["emp"])


TRUTH = [{"county": county, "emp": emp} for county, emp in zip(*ROWS.values(), strict=True)]


@pytest.mark.parametrize(
    "data",
    [
        pd.DataFrame(ROWS),
        pd.DataFrame({"county": pd.Categorical(ROWS["county"]), "emp": ROWS["emp"]}, index=[3, 3, 3]),
        pl.DataFrame(ROWS),
        pl.LazyFrame(ROWS),
        pa.table(ROWS),
        pa.table({"county": pa.array(ROWS["county"]).dictionary_encode(), "emp": ROWS["emp"]}),
        pa.RecordBatch.from_pydict(ROWS),
        ibis.memtable(ROWS),
    ],
    ids=lambda data: f"{type(data).__module__.split('.')[0]}-{type(data).__name__}",
)
def test_frames(data):
    assert rows(data) == TRUTH


def test_files(tmp_path):
    pd.DataFrame(ROWS).to_csv(tmp_path / "all.csv", index=False)
    pd.DataFrame(ROWS).to_csv(tmp_path / "tabs.tsv", index=False, sep="\t")
    with gzip.open(tmp_path / "small.csv.gz", "wt") as file:
        file.write((tmp_path / "all.csv").read_text())
    with pa.output_stream(tmp_path / "small.csv.zst", compression="zstd") as file:
        file.write((tmp_path / "all.csv").read_bytes())
    (tmp_path / "parts").mkdir()
    for i in range(3):
        pa.parquet.write_table(pa.table(ROWS).slice(i, 1), tmp_path / "parts" / f"part{i}.parquet")
    for path in ("all.csv", "tabs.tsv", "small.csv.gz", "small.csv.zst"):
        assert rows(str(tmp_path / path), types={"emp": "int64"}) == TRUTH, path
    for path in ("parts/part*.parquet", "**/part*.parquet", "parts"):
        assert rows(str(tmp_path / path)) == TRUTH, path
    assert rows([tmp_path / "parts" / f"part{i}.parquet" for i in range(3)]) == TRUTH


def test_only_the_named_files_are_read(tmp_path):
    """Neither brackets in a name nor a folder such as state=TX change what is read."""
    (tmp_path / "d[1].csv").write_text("emp\n100\n")
    (tmp_path / "d1.csv").write_text("emp\n7\n")
    assert open_table(tmp_path / "d[1].csv").to_pyarrow()["emp"].to_pylist() == ["100"]
    folder = tmp_path / "county=XX"
    folder.mkdir()
    pa.parquet.write_table(pa.table(ROWS), folder / "a.parquet")
    pd.DataFrame(ROWS).to_csv(folder / "a.csv", index=False)
    assert rows(folder / "a.parquet") == rows(folder / "a.csv", types={"emp": "int64"}) == TRUTH


def test_a_partitioned_folder_has_its_levels_as_columns(tmp_path):
    for state, emp in (("01", 1), ("TX", 2)):
        folder = tmp_path / "run=7" / "table" / f"state={state}"
        folder.mkdir(parents=True)
        pa.parquet.write_table(pa.table({"emp": [emp]}), folder / "a.parquet")
    data = tmp_path / "run=7" / "table"
    assert rows(data) == [{"emp": 1, "state": "01"}, {"emp": 2, "state": "TX"}]
    (data / "state=TX" / "a.parquet").rename(data / "a.parquet")
    with refused(ss.ParameterError, "data", code="mismatch"):
        ss.Session(data)


def test_declared_types_hold_for_frames(tmp_path):
    """A missing label turns a pandas column of integers into floats; a declared type restores integers."""
    frame = pd.DataFrame({"k": [1, None, 2.5], "code": [7, 8, 9]})
    source = open_source(frame, {"k": "int64", "code": "string"})
    assert source.table.to_pyarrow().to_pydict() == {"k": [1, None, None], "code": ["7", "8", "9"]}
    assert source.unreadable == {"k": "int64"}
    objects = pd.DataFrame({"x": pd.Series(["1.50", 2, None, "abc"], dtype=object)})
    source = open_source(objects, {"x": "decimal(10, 2)"})
    assert source.table.to_pyarrow()["x"].to_pylist() == [Decimal("1.50"), Decimal("2.00"), None, None]
    assert source.unreadable == {"x": "decimal(10, 2)"}


def test_a_column_of_an_unsupported_type_is_left_out():
    tables = [
        pd.DataFrame({"emp": [1, 2], "odd": [1, "x"]}).assign(odd=lambda f: [complex(1), complex(2)]),
        pl.DataFrame({"emp": [1, 2], "odd": pl.Series([object(), object()], dtype=pl.Object)}),
        pa.table({"emp": [1, 2], "odd": pa.array([(1, 2, 3)] * 2, pa.month_day_nano_interval())}).append_column(
            "worse", pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])])
        ),
    ]
    for table in tables:
        session = ss.Session(table)
        assert session.sum({"emp": ss.Gaussian(sigma=1)}).table.num_rows == 1
    with refused(ss.ParameterError, "column 'odd'", code="unsupported"):
        ss.Session(tables[0]).sum({"odd": ss.Gaussian(sigma=1)})


class NoText:
    """A value whose text cannot be made."""

    def __str__(self):
        raise RuntimeError("confidential")


@pytest.mark.parametrize("odd", ["\ud800", NoText()], ids=["surrogate", "error"])
def test_a_value_without_text_costs_only_itself(odd, tmp_path):
    """The column keeps its other values. A release that reads the value fails, and the ledger records the attempt."""
    amounts = pd.Series(["7", "8", odd], dtype=object)
    frame = pd.DataFrame({"k": pd.Series(["TX", "TX", odd], dtype=object), "x": amounts, "emp": [1, 2, 4]})
    ledger = ss.Ledger(tmp_path / "a.ledger")
    session = ss.Session(frame, ledger, types={"x": "int64"}, bits=Recorded(1))
    texas = ss.Keys.cross({"k": ["TX", "IA"]})
    assert session.sum({"emp": TINY}).table["emp"].to_pylist() == [7]
    assert session.sum({"emp": TINY}, keys=texas).table["emp"].to_pylist() == [3, 0]
    for failing in (
        lambda: session.sum({"x": TINY}),
        lambda: session.sum({"emp": TINY}, where="k <> 'IA'"),
        lambda: session.sum({"y": TINY}, derive={"y": "x + 1"}),
    ):
        with refused(ss.DataError, code="not-text") as caught:
            failing()
        assert "confidential" not in str(caught.value)
    kinds = [entry["kind"] for entry in ledger.history()]
    assert kinds == ["created", "charge", "charge", "attempt", "attempt", "attempt"]


def test_a_value_without_text_in_a_column_of_text():
    values = ["TX", "", "\ud800"]
    categories = pd.Categorical.from_codes([0, 1, 2], pd.Index(values, dtype=object))
    source = open_source(pd.DataFrame({"text": pd.Series(values, dtype="string[python]"), "categories": categories}))
    for name in ("text", "categories"):
        assert source.table.to_pyarrow()[name].to_pylist() == ["TX", "", None]
    assert source.not_text == {"text", "categories"}
    assert not source.unusable


def test_a_polars_query_that_fails_on_a_record_is_an_error_of_the_data(tmp_path):
    ledger = ss.Ledger(tmp_path / "a.ledger")
    lazy = pl.LazyFrame({"x": ["1", "confidential"]}).select(pl.col("x").cast(pl.Int64))
    with refused(ss.DataError, "data", code="collect") as caught:
        ss.Session(lazy, ledger)
    assert "confidential" not in str(caught.value)
    assert [entry["kind"] for entry in ledger.history()] == ["created", "attempt"]


def test_columns_after_one_of_an_unsupported_type_are_kept():
    frame = pd.DataFrame({"odd": [complex(1)], "emp": [1], "odder": [complex(1)], "last": [2]})
    source = open_source(frame)
    assert source.table.to_pyarrow().to_pydict() == {"emp": [1], "last": [2]}
    assert source.unusable == {"odd": "complex128", "odder": "complex128"}
    half = pa.array([1.5], pa.float16())
    source = open_source(
        pa.table({"odd": half, "emp": [1], "odder": half, "large": pa.array([1], pa.decimal256(50, 2))})
    )
    assert source.table.to_pyarrow().to_pydict() == {"emp": [1]}
    assert source.unusable == {"odd": "halffloat", "odder": "halffloat", "large": "decimal256(50, 2)"}


def test_missing_numbers_of_pandas_are_missing():
    frame = pd.DataFrame({"x": [1.5, float("nan")], "y": pd.array([1, None], "Int64")})
    assert open_table(frame).to_pyarrow().to_pydict() == {"x": [1.5, None], "y": [1, None]}


def test_categories_of_several_types_are_text():
    """Arrow has no type for them, but every value has a text."""
    source = open_source(pd.DataFrame({"k": pd.Categorical([1, "TX", None, 2.5])}))
    assert source.table.to_pyarrow()["k"].to_pylist() == ["1", "TX", None, "2.5"]
    assert source.not_text == frozenset()


def test_empty_text_among_objects_is_missing_whatever_the_other_values_are():
    for odd in ("IA", "\ud800"):
        source = open_source(pd.DataFrame({"k": pd.Series(["TX", "", odd], dtype=object)}))
        assert source.table.to_pyarrow()["k"].to_pylist()[:2] == ["TX", None]


def test_two_stars_match_folders_of_any_depth(tmp_path):
    for i, folder in enumerate((tmp_path, tmp_path / "a", tmp_path / "a" / "b")):
        folder.mkdir(exist_ok=True)
        pa.parquet.write_table(pa.table(ROWS).slice(i, 1), folder / f"part{i}.parquet")
    assert rows(tmp_path / "**" / "part*.parquet") == TRUTH


def test_a_partitioned_folder_of_one_file(tmp_path):
    (tmp_path / "state=TX").mkdir()
    pa.parquet.write_table(pa.table({"emp": [2]}), tmp_path / "state=TX" / "a.parquet")
    assert rows(tmp_path) == [{"emp": 2, "state": "TX"}]


def test_parquet_files_of_different_types_are_not_mixed(tmp_path):
    pa.parquet.write_table(pa.table({"emp": [1]}), tmp_path / "1.parquet")
    pa.parquet.write_table(pa.table({"emp": [1.5]}), tmp_path / "2.parquet")
    with pytest.raises(ss.ParameterError) as caught:
        ss.Session(tmp_path / "*.parquet")
    first, second = tmp_path / "1.parquet", tmp_path / "2.parquet"
    assert f"{first} and {second} must have the same columns, of the same types, but differ" in str(caught.value)
    pa.parquet.write_table(pa.table({"emp": [2]}), tmp_path / "3.parquet")
    with refused(ss.ParameterError, code="mismatch"):
        ss.Session(tmp_path / "*.parquet")


def test_tables_that_are_not_the_same_each_time_are_refused():
    table = ibis.memtable({"a": [1, 2, 3]})
    with refused(ss.ParameterError, "data", code="nondeterministic"):
        ss.Session(table.sample(0.5))
    with refused(ss.ParameterError, "data", code="nondeterministic"):
        ss.Session(table.mutate(b=ibis.random()))
    release = ss.Session(table.mutate(b=table.a / table.a.sum())).sum({"a": ss.Gaussian(sigma=1)})
    assert "a query that combines rows" in release.facts.protects
    assert "combines" not in ss.Session(table.mutate(b=table.a + 1)).sum({"b": ss.Gaussian(sigma=1)}).facts.protects


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ("nothing.parquet", "missing"),
        ("nothing/*.csv", "missing"),
        ("docs", "missing"),
        ("README.md", "value"),
        (["README.md"], "value"),
        (3, "type"),
        (None, "type"),
        (pd.Series([1]), "type"),
        (pl.Series([1]), "type"),
        ([], "type"),
        ({"a": "b"}, "type"),
        ({}, "unsupported"),
        (ibis.table({"a": "int64"}, name="t"), "value"),
        (pd.DataFrame({"a": [complex(1)]}), "unsupported"),
        (
            ["postgresql://u:secret@h/db#t", "postgresql://u:secret@h/db#u"],
            "value",
        ),
        ("postgresql://127.0.0.1:1/db?password=p@secret#t", "unreachable"),
        ("postgresql:/u:secret@127.0.0.1:1/db#t", "value"),
        ("host=127.0.0.1 password=secret#t", "value"),
        ("postgresql://u:secret#t", "unreachable"),
        ("postgresql://me@127.0.0.1:secret/db#t", "unreachable"),
        ("postgresql://127.0.0.1:1/db;password=secret#t", "unreachable"),
        (pa.table({"a": pa.array([b"\xff"]).view(pa.string())}), "invalid"),
        (pd.DataFrame({1: [2]}), "column-names"),
        (pa.table({"emp": [1], "EMP": [2]}), "duplicate"),
        (pl.LazyFrame({"a": [1]}).select("b"), "query"),
        ("https://example.org/a.csv", "value"),
        ("duckdb://nothing.db#t", "missing"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "duplicate"),
        ("postgresql://nobody@127.0.0.1:1/none", "value"),
        (
            "postgresql://nobody:sec#secret@127.0.0.1:1/none",
            "value",
        ),
        ("nosuch://nobody:secret@host/db#t", "value"),
        ("postgresql://nobody:se#cret#secret@127.0.0.1:1/none#t", "unreachable"),
        ("postgresql://127.0.0.1:1/none?user=me&password=secret#t", "unreachable"),
        ("postgresql://127.0.0.1:1/none?passwort=secret#t", "unreachable"),
        ("duckdb://md:?motherduck_token=secret#t", "missing"),
        ("postgresql://nobody:secret@127.0.0.1:1/none#t", "unreachable"),
    ],
)
def test_mistakes_raise_clear_errors(data, code, request, monkeypatch):
    monkeypatch.chdir(request.config.rootpath)
    with refused(ss.SlowscaleError, code=code) as caught:
        ss.Session(data)
    assert "secret" not in str(caught.value)


def test_broken_files_raise_clear_errors(tmp_path):
    (tmp_path / "broken.parquet").write_text("this is no parquet file")
    (tmp_path / "broken.xlsx").write_text("this is no workbook")
    (tmp_path / "broken.dta").write_text("this is no Stata file")
    (tmp_path / "ok.csv").write_text("a\n1\n")
    for name in ("broken.parquet", "broken.xlsx", "broken.dta"):
        with refused(ss.EngineError, "data", code="engine" if name == "broken.parquet" else "unreadable"):
            ss.Session(tmp_path / name)
    with refused(ss.ParameterError, "types", code="unknown-column"):
        ss.Session(tmp_path / "ok.csv", types={"b": "string"})
    with refused(ss.ParameterError, "types['a']", code="value"):
        ss.Session(tmp_path / "ok.csv", types={"a": "words"})
    with refused(ss.ParameterTypeError, "types", code="type"):
        ss.Session(tmp_path / "ok.csv", types="string")
    with refused(ss.ParameterError, "types", code="conflict"):
        ss.Session(ibis.memtable({"a": [1]}), types={"a": "string"})
    with refused(ss.ParameterError, "csv", code="conflict"):
        ss.Session(pd.DataFrame({"a": [1]}), csv={"delimiter": ";"})
    with refused(ss.ParameterError, "data", code="value"):
        ss.Session([tmp_path / "ok.csv", tmp_path / "broken.parquet"])


def test_duckdb_files_are_opened_read_only_and_without_their_macros(tmp_path):
    path = tmp_path / "a.duckdb"
    with duckdb.connect(str(path)) as file:
        file.execute("CREATE TABLE t AS SELECT 'TX' AS k, -45 AS emp")
        file.execute("CREATE MACRO abs(x) AS x * 10")
        file.execute("CREATE VIEW v AS SELECT k, sum(emp) AS emp FROM t GROUP BY k")
        file.execute("CREATE SCHEMA other; CREATE TABLE other.u AS SELECT 3 AS emp")
    before = path.read_bytes()
    session = ss.Session(f"duckdb://{path}#t", bits=Recorded(1))
    release = session.sum({"size": TINY}, derive={"size": "abs(emp)"})
    assert release.table["size"].to_pylist() == [45]
    assert "combines" not in release.facts.protects
    assert "combines rows" in ss.Session(f"duckdb://{path}#v").sum({"emp": TINY}).facts.protects
    assert ss.Session(f"duckdb://{path}#other.u", bits=Recorded(1)).sum({"emp": TINY}).table["emp"].to_pylist() == [3]
    del session
    assert path.read_bytes() == before
    own = ibis.duckdb.connect(path, read_only=True)
    with refused(ss.ParameterError, "data", code="macros"):
        ss.Session(own.table("t"))
    own.disconnect()


@pytest.mark.parametrize("kind", ["", "TEMP"])
def test_macros_that_replace_built_in_functions_are_refused(kind):
    own = ibis.duckdb.connect()
    own.raw_sql(f"CREATE TABLE t AS SELECT -45 AS emp; CREATE {kind} MACRO mine(x) AS x * 10")
    ss.Session(own.table("t")).sum({"emp": TINY})
    own.raw_sql(f"CREATE {kind} MACRO abs(x) AS x * 10")
    with refused(ss.ParameterError, "data", code="macros"):
        ss.Session(own.table("t")).sum({"emp": TINY})
    own.disconnect()


@pytest.mark.parametrize("scheme", ["sqlite", "SQLite"])
def test_a_sqlite_file_is_refused_by_name(tmp_path, scheme):
    path = tmp_path / "a.sqlite"
    path.touch()
    with refused(ss.ParameterError, "data", code="unsupported"):
        ss.Session(f"{scheme}://{path}#t")


def test_a_duckdb_file_is_read_only_and_serves_several_threads(tmp_path):
    path = tmp_path / "a.duckdb"
    with duckdb.connect(str(path)) as file:
        file.execute("CREATE TABLE t AS SELECT 2 AS emp")
    session = ss.Session(f"duckdb://{path}#main.t", bits=Recorded(1))
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(session.sum, {"emp": TINY}).result().table["emp"].to_pylist() == [2]
    with pytest.raises(duckdb.Error, match="read-only"):
        session.table.get_backend().con.execute("DELETE FROM data.main.t")
    with refused(ss.EngineError, code="unreadable"):
        ss.Session(f"duckdb://{path}#other.t")


def test_labels_of_a_duckdb_file_are_compared_by_their_bytes(tmp_path):
    """The columns of a file may have collations, so the file is not read as the private DuckDB is."""
    path = tmp_path / "a.duckdb"
    with duckdb.connect(str(path)) as file:
        file.execute("CREATE TABLE t (k VARCHAR COLLATE NOCASE, emp BIGINT)")
        file.execute("INSERT INTO t VALUES ('tx', 1), ('TX', 2)")
    session = ss.Session(f"duckdb://{path}#t", bits=Recorded(1))
    assert not isinstance(engine_of(session.table), PrivateDuckDB)
    assert session.sum({"emp": TINY}, keys=ss.Keys.cross({"k": ["TX", "tx"]})).table["emp"].to_pylist() == [2, 1]


def test_a_failed_check_of_a_database_quotes_nothing(tmp_path, monkeypatch):
    path = tmp_path / "a.duckdb"
    with duckdb.connect(str(path)) as file:
        file.execute("CREATE TABLE t AS SELECT 2 AS emp")

    def check(backend):
        raise RuntimeError("a confidential value")

    monkeypatch.setattr(ENGINES["duckdb"], "check", check)
    with refused(ss.EngineError, "data", code="engine") as caught:
        ss.Session(f"duckdb://{path}#t")
    assert "confidential" not in str(caught.value)


def test_an_address_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        sources.Address.of("postgres://db.org/census").place = "elsewhere"


def test_other_engines_are_refused_by_name():
    polars = ibis.polars.connect({"t": pl.DataFrame({"a": [1]})})
    with refused(ss.ParameterError, "data", code="unsupported"):
        ss.Session(polars.table("t"))


@pytest.mark.parametrize(
    ("address", "options"),
    [
        ("postgres://db.org/census", {"database": "census", "host": "db.org"}),
        ("postgres://db.org:6543/census", {"database": "census", "host": "db.org", "port": 6543}),
        (
            "postgres://ann:p%40ss@db.org/a%20b",
            {"database": "a b", "host": "db.org", "user": "ann", "password": "p@ss"},
        ),
        ("postgres:///census", {"database": "census"}),
        ("postgres://db.org", {"database": None, "host": "db.org"}),
        ("postgres://db.org/census?sslmode=require", {"database": "census", "host": "db.org", "sslmode": "require"}),
        ("postgres://ann:p?ss@db.org/a", {"database": "a", "host": "db.org", "user": "ann", "password": "p?ss"}),
        ("postgres://ann:p?a=b@db.org/c", {"database": "c", "host": "db.org", "user": "ann", "password": "p?a=b"}),
        (
            "postgres://db.org/c?user=ann&password=p@ss",
            {"database": "c", "host": "db.org", "user": "ann", "password": "p@ss"},
        ),
    ],
)
def test_the_parts_of_a_postgresql_address(monkeypatch, address, options):
    monkeypatch.setattr(ibis.postgres, "connect", lambda **given: given)
    assert sources._connect_postgres(sources.Address.of(address), "public") == (options, "public")
    assert sources._connect_postgres(sources.Address.of(address), "")[1] is None


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgres://ann:12?a=b@db.org/c", "postgres://ann@db.org/c"),
        ("postgres://db.org?password=p@ss", "postgres://…"),
        ("postgres://db.org/c?password=p@ss", "postgres://db.org/c"),
    ],
)
def test_an_address_is_shown_without_its_password(address, shown):
    assert str(sources.Address.of(address)) == shown


def test_the_outline_of_files_with_different_headers_is_refused(tmp_path):
    for name, header in (("a.csv", "x,y"), ("b.csv", "y,x"), ("c.csv", "x,z")):
        (tmp_path / name).write_text(f"{header}\n1,2\n")
    first, second, third = (str(tmp_path / name) for name in ("a.csv", "b.csv", "c.csv"))
    with outline([first, second]) as given:
        assert open_table(given["data"], csv=given["csv"]).to_pyarrow().to_pydict() == {"x": [], "y": []}
    with pytest.raises(ss.ParameterError) as caught, outline([first, second, third]):
        pass
    assert f"data: {first} and {third} have different headers" in str(caught.value)


SPILLING = "SELECT current_setting('temp_directory'), current_setting('temp_file_encryption')"


def test_nothing_is_written_to_disk_in_clear(monkeypatch):
    """Small data is not written at all; large data is encrypted, or the query fails with the remedy."""
    assert ss.Session(pa.table({"a": [1]})).table.get_backend().con.execute(SPILLING).fetchone() == ("", False)
    monkeypatch.setattr(connections, "_load_cipher", lambda connection: False)
    connection = connections.private_duckdb(size=connections.SMALL_DATA + 1)
    assert connection.con.execute(SPILLING).fetchone() == ("", False)
    connection.con.execute("SET memory_limit = '60MB'")
    with refused(ss.EngineError, code="memory") as caught, engine_errors("the engine"):
        connection.con.execute("CREATE TABLE t AS SELECT hash(range)::varchar AS x FROM range(4000000)")
    assert "[spill]" in str(caught.value)


def test_data_on_disk_is_encrypted():
    connection = connections.private_duckdb(size=connections.SMALL_DATA + 1)
    connection.con.execute("SET memory_limit = '60MB'")
    connection.con.execute("CREATE TABLE t AS SELECT 'Zyzzogeton' || hash(range) AS x FROM range(4000000)")
    written = b"".join(path.read_bytes() for path in Path(connection.folder).rglob("*") if path.is_file())
    assert len(written) > 2**20
    assert b"Zyzzogeton" not in written


def test_temporary_files_are_private_and_are_removed():
    session = ss.Session(pa.table({"a": np.zeros(connections.SMALL_DATA // 8 + 1)}))
    connection = session.table.get_backend()
    folder = connection.con.execute("SELECT current_setting('temp_directory')").fetchone()[0]
    assert connection.con.execute(SPILLING).fetchone() == (folder, True)
    assert folder.startswith(tempfile.gettempdir())
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    settings = ("autoinstall_known_extensions", "autoload_known_extensions")
    assert not any(connection.con.execute(f"SELECT current_setting('{name}')").fetchone()[0] for name in settings)
    del session, connection
    gc.collect()
    assert not os.path.exists(folder)


def test_temporary_files_are_removed_by_the_process_that_made_them(tmp_path):
    """A forked child shares the folder with its parent, which may still need it."""
    folder = tmp_path / "spilled"
    folder.mkdir()
    (folder / "records").touch()
    connections._remove(str(folder), os.getpid() + 1)
    assert (folder / "records").exists()
    connections._remove(str(folder), os.getpid())
    assert not folder.exists()
    connections._remove(str(folder), os.getpid())  # removed already, which is no error


def test_the_private_duckdb_is_marked():
    assert connections.private_duckdb().is_private is True
    assert isinstance(engine_of(open_table(pa.table({"x": [1]}))), PrivateDuckDB)


def test_an_interrupted_query_is_an_interrupt():
    """DuckDB turns Ctrl-C into its own error, which is turned back into a KeyboardInterrupt."""
    connection = ibis.duckdb.connect()
    timer = threading.Timer(0.5, connection.con.interrupt)
    timer.start()
    with pytest.raises(KeyboardInterrupt), engine_errors("summing"):
        connection.raw_sql("SELECT sum(a.range * b.range) FROM range(10000000) a, range(1000000) b").fetchall()
    timer.join()


def total(data, **options):
    return (
        ss.Session(data, **options).sum({"emp": TINY}, ss.Keys.cross({"state": ["TX", "IA"]})).table["emp"].to_pylist()
    )


@pytest.mark.parametrize(
    "data",
    [
        {"state": ["TX", "IA", "TX"], "emp": [1, 2, 3]},
        {"state": ("TX", "IA", "TX"), "emp": np.array([1, 2, 3], np.int8)},
        {"state": np.array(["TX", "IA", "TX"], object), "emp": pa.array([1, 2, 3])},
        {"state": pl.Series(["TX", "IA", "TX"]), "emp": pd.Series([1.0, 2, 3])},
        {"state": ["TX", "IA", "TX"], "emp": [1, 2, 3], "other": [Decimal(1), None, None], "none": [None] * 3},
        duckdb.sql("SELECT * FROM (VALUES ('TX', 1), ('IA', 2), ('TX', 3)) AS t(state, emp)"),
        duckdb.sql("SELECT * FROM (VALUES ('TX', 1::HUGEINT), ('IA', 2), ('TX', 3)) AS t(state, emp)"),
    ],
    ids=["lists", "numpy", "objects", "series", "others", "relation", "hugeint"],
)
def test_columns_and_relations_are_records(data):
    assert total(data) == [4, 2]


def test_integers_of_a_relation_are_exact():
    large = duckdb.sql(f"SELECT 'TX' AS state, {2**53 + 1}::HUGEINT * {10**9} AS emp")
    assert total(large) == [(2**53 + 1) * 10**9, 0]


@pytest.mark.parametrize(
    ("data", "kind", "code"),
    [
        ({"emp": [1, "x"]}, ss.DataError, "mixed-types"),
        ({"emp": [1, 2.5]}, ss.DataError, "mixed-types"),
        ({"emp": [2**63]}, ss.DataError, "python-values"),
        ({"emp": ["\ud800"]}, ss.DataError, "python-values"),
        ({"emp": [1], "pay": [1, 2]}, ss.ParameterError, "mismatch"),
        ({"emp": 5}, ss.ParameterTypeError, "type"),
        ({5: [1]}, ss.ParameterTypeError, "column-names"),
        ({"emp": [None]}, ss.ParameterError, "unsupported"),
        (duckdb.sql("SELECT cast('secret' || random() AS INTEGER) AS emp"), ss.DataError, "query"),
    ],
)
def test_columns_that_are_refused(data, kind, code):
    with refused(kind, code=code) as caught:
        ss.Session(data)
    assert "secret" not in str(caught.value)


def test_files_are_read_by_the_names_of_their_columns(tmp_path):
    (tmp_path / "a.csv").write_text("state,emp\nTX,1\n")
    (tmp_path / "b.csv").write_text("emp,state\n2,IA\n")
    assert total([tmp_path / "a.csv", tmp_path / "b.csv"], types={"emp": "int64"}) == [1, 2]
    pa.parquet.write_table(pa.table({"state": ["TX"], "emp": [1]}), tmp_path / "a.parquet")
    pa.parquet.write_table(pa.table({"emp": [2], "state": ["IA"]}), tmp_path / "b.parquet")
    assert total([tmp_path / "a.parquet", tmp_path / "b.parquet"]) == [1, 2]


def test_another_delimiter_is_named(tmp_path):
    (tmp_path / "a.csv").write_text("state;emp\nTX;1\n")
    with refused(ss.ParameterError, code="delimiter") as caught:
        ss.Session(tmp_path / "a.csv")
    assert 'csv={"delimiter": ";"}' in caught.value.remedy
    assert total(tmp_path / "a.csv", csv={"delimiter": ";"}) == [1, 0]
    assert ss.Session(tmp_path / "a.csv", csv={"delimiter": ","}).table.columns == ("state;emp",)
