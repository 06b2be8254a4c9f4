"""Whatever holds the records becomes one table; what cannot be read is told in a line."""

import gzip

import ibis
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

import slowscale as ss
from slowscale.tables.sources import open_table

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
        (pd.DataFrame({"a": [1, "x"]}), "data has a column of mixed types"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "several columns of one name"),
        ("postgresql://nobody@127.0.0.1:1/none", r"must name the table after the address, as in postgresql://nobody@"),
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
    with pytest.raises(ss.ParameterError, match="types must be given for CSV files only"):
        ss.Session(pd.DataFrame({"a": [1]}), types={"a": "string"})
    with pytest.raises(ss.ParameterError, match="all Parquet or all CSV"):
        ss.Session([tmp_path / "ok.csv", tmp_path / "broken.parquet"])
