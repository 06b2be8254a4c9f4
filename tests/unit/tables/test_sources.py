"""Whatever holds the records becomes one table; what cannot be read is told in a line."""

import gzip
import threading

import ibis
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

import slowscale as ss
from slowscale.tables.sources import engine_errors, open_table

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
    for i in range(3):
        pa.parquet.write_table(pa.table(ROWS).slice(i, 1), tmp_path / f"part{i}.parquet")
    for path in ("all.csv", "tabs.tsv", "small.csv.gz", "part*.parquet", "**/part*.parquet"):
        assert rows(str(tmp_path / path)) == TRUTH, path
    assert rows([tmp_path / f"part{i}.parquet" for i in range(3)]) == TRUTH


def test_codes_in_a_csv_keep_their_zeros_wherever_they_come(tmp_path):
    (tmp_path / "1.csv").write_text("county,emp\n" + "".join(f"{10_000 + i},1\n" for i in range(50_000)))
    (tmp_path / "2.csv").write_text("county,emp\n01001,2\n")
    (tmp_path / "both.csv").write_text((tmp_path / "1.csv").read_text() + "01001,2\n")
    for path in ("both.csv", "[12].csv"):
        table = open_table(tmp_path / path)
        assert table.county.type().is_string(), path
        assert table.filter(table.county == "01001").to_pyarrow()["emp"].to_pylist() == [2]
    assert open_table(tmp_path / "1.csv").county.type().is_integer()
    assert open_table(tmp_path / "1.csv", {"county": "string"}).county.type().is_string()


def test_files_are_those_that_are_named(tmp_path):
    """Neither a bracket in a name nor a folder such as state=TX changes what is read."""
    (tmp_path / "d[1].csv").write_text("emp\n100\n")
    (tmp_path / "d1.csv").write_text("emp\n7\n")
    assert open_table(tmp_path / "d[1].csv").to_pyarrow()["emp"].to_pylist() == [100]
    folder = tmp_path / "county=XX"
    folder.mkdir()
    pa.parquet.write_table(pa.table(ROWS), folder / "a.parquet")
    pd.DataFrame(ROWS).to_csv(folder / "a.csv", index=False)
    assert rows(folder / "a.parquet") == rows(folder / "a.csv") == TRUTH


def test_parquet_files_of_different_types_are_not_mixed(tmp_path):
    pa.parquet.write_table(pa.table({"emp": [1]}), tmp_path / "1.parquet")
    pa.parquet.write_table(pa.table({"emp": [1.5]}), tmp_path / "2.parquet")
    with pytest.raises(ss.ParameterError, match="have different columns, or different types of them"):
        ss.Session(tmp_path / "*.parquet")


def test_tables_that_are_not_the_same_each_time_are_refused():
    table = ibis.memtable({"a": [1, 2, 3]})
    with pytest.raises(ss.ParameterError, match="must be the same each time"):
        ss.Session(table.sample(0.5))
    with pytest.raises(ss.ParameterError, match="must be the same each time"):
        ss.Session(table.mutate(b=ibis.random()))
    release = ss.Session(table.mutate(b=table.a / table.a.sum())).sum({"a": ss.Gaussian(1)})
    assert "a query that combines rows" in release.facts["protects"]
    assert "combines" not in ss.Session(table.mutate(b=table.a + 1)).sum({"b": ss.Gaussian(1)}).facts["protects"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("nothing.parquet", r"data: no file matches nothing\.parquet"),
        ("nothing/*.csv", "no file matches"),
        (".", "data is a folder: name its files"),
        ("README.md", r"data must be a file ending in \.parquet, .*got README\.md"),
        (["README.md"], "must be a file ending in"),
        (3, "data must be a Parquet or CSV path, .* got int"),
        (None, "got NoneType"),
        ([], "got list"),
        ({"a": [1]}, "got dict"),
        (ibis.table({"a": "int64"}, name="t"), "an Ibis table of one connected engine"),
        (pd.DataFrame({"b": [1, 2], "a": [1, "secret"]}), "data cannot be read: column 'a' has values of mixed types"),
        (pd.DataFrame({"a": [2**70]}), "column 'a' has values of mixed types, or too large"),
        (pa.table({"emp": [1], "EMP": [2]}), "names that differ in case only"),
        (pl.LazyFrame({"a": [1]}).select("b"), "the frame itself raises an error"),
        ("https://example.org/a.csv", "must be a local file"),
        ("duckdb://nothing.db#t", r"data: there is no file nothing\.db"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "several columns of one name"),
        ("postgresql://nobody@127.0.0.1:1/none", "must name the table after the address, as in"),
        ("postgresql://nobody:sec#secret@127.0.0.1:1/none", "must name the table after the address, as in"),
        ("nosuch://nobody:secret@host/db#t", r"data could not be reached \(nosuch://nobody@host/db\)"),
        ("postgresql://nobody:secret@127.0.0.1:1/none#t", r"data could not be reached \(postgresql://nobody@127"),
        ("nosuch://host#t", "data could not be reached"),
    ],
)
def test_mistakes_are_told(data, words, request, monkeypatch):
    monkeypatch.chdir(request.config.rootpath)
    with pytest.raises(ss.SlowscaleError, match=words) as caught:
        ss.Session(data)
    assert "secret" not in str(caught.value)


def test_broken_files_are_told(tmp_path):
    (tmp_path / "broken.parquet").write_text("this is no parquet file")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "ok.csv").write_text("a\n1\n")
    with pytest.raises(ss.EngineError, match=r"data could not be read \(.*broken\.parquet"):
        ss.Session(tmp_path / "broken.parquet")
    with pytest.raises(ss.SlowscaleError):
        ss.Session(tmp_path / "empty.csv").sum({"a": ss.Gaussian(1)})
    with pytest.raises(ss.ParameterError, match="types names columns that the file has not: b"):
        ss.Session(tmp_path / "ok.csv", types={"b": "string"})
    with pytest.raises(ss.ParameterError, match=r"types\['a'\] must be a type such as"):
        ss.Session(tmp_path / "ok.csv", types={"a": "words"})
    with pytest.raises(ss.ParameterTypeError, match="types must be a mapping"):
        ss.Session(tmp_path / "ok.csv", types="string")
    with pytest.raises(ss.ParameterError, match="types must be given for CSV files only"):
        ss.Session(pd.DataFrame({"a": [1]}), types={"a": "string"})
    with pytest.raises(ss.ParameterError, match="all Parquet or all CSV"):
        ss.Session([tmp_path / "ok.csv", tmp_path / "broken.parquet"])


def test_an_interrupted_query_is_an_interrupt():
    """DuckDB turns Ctrl-C into an error of its own; here it stays what it was."""
    connection = ibis.duckdb.connect()
    timer = threading.Timer(0.5, connection.con.interrupt)
    timer.start()
    with pytest.raises(KeyboardInterrupt), engine_errors("summing"):
        connection.raw_sql("SELECT sum(a.range * b.range) FROM range(10000000) a, range(1000000) b").fetchall()
    timer.join()
