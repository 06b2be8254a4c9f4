"""The facts of a release: typed, immutable, and read back from files."""

import json
import pickle

import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pydantic
import pytest
from helpers.bitsources import Recorded
from helpers.errors import refused

import slowscale as ss
from slowscale.release.facts import (
    PUBLICATION,
    ColumnFacts,
    Facts,
    KeysFacts,
    LedgerHead,
    QuantilesFacts,
    TableFacts,
    escape_formulas,
    escaped_names,
    read_parquet,
)


@pytest.fixture(scope="module")
def release():
    session = ss.Session(pd.DataFrame({"g": ["a"], "x": [5]}), bits=Recorded(1))
    keys = ss.Keys.from_frame({"g": ["a", "b"]})
    return session.mean(
        {"x": ss.Root(k=2, sigma=1)}, keys=keys, count=ss.Gaussian(sigma=1), where="x > 0", partition="g"
    )


def test_they_come_back_from_json(release):
    written = json.loads(json.dumps(release.facts.to_dict()))
    assert Facts.from_dict(written) == release.facts
    assert Facts.from_dict(written).to_dict() == written == release.facts.to_dict()
    assert pickle.loads(pickle.dumps(release.facts)) == release.facts


def test_they_are_typed(release):
    facts, table = release.facts, release.facts.tables["table"]
    assert isinstance(table, TableFacts)
    assert isinstance(table.columns["x"], ColumnFacts)
    assert isinstance(table.keys, KeysFacts)
    assert (table.keys.from_data, facts.partition.by, table.where) == (False, "g", "x > 0")
    assert (table.by, table.drawn, facts.drawn) == (("g",), True, ("table",))
    assert facts.columns == table.columns
    assert facts.ledger is None
    assert "ledger" not in facts.to_dict()
    assert table.columns["count"].nulls is None
    assert "nulls" not in table.columns["count"].to_dict()
    assert not table.ratios["x_mean"].approximate
    charged = facts.with_(ledger=LedgerHead(entry=3, hash="ab"))
    assert charged.to_dict()["ledger"] == {"entry": 3, "hash": "ab"}
    assert facts.columns["x"].unit == "1"
    assert not hasattr(facts, "nothing")


def test_they_cannot_be_changed(release):
    written = release.facts.to_dict()
    for one, name in (
        (release.facts, "private"),
        (release.facts.tables["table"], "rows"),
        (release.facts.columns["x"], "unit"),
    ):
        with pytest.raises(pydantic.ValidationError, match="frozen"):
            setattr(one, name, getattr(one, name))
    copied = release.facts.to_dict()
    copied["tables"]["table"]["columns"].clear()
    assert release.facts.to_dict() == written


def test_a_copy_with_other_values_is_checked(release):
    assert release.facts.with_(dataset="d").dataset == "d"
    assert release.facts.with_() == release.facts
    for wrong in ({"private": "no"}, {"private": 1}, {"id": None}, {"tables": {"table": {}}}):
        with pytest.raises(pydantic.ValidationError):
            release.facts.with_(**wrong)


@pytest.mark.parametrize("given", [[], None, "facts", 5])
def test_what_is_not_a_mapping_is_refused(given):
    with refused(ss.ParameterError, "facts:", code="damaged"):
        Facts.from_dict(given)


def test_unknown_entries_survive_reading_and_writing(release, tmp_path):
    release.to_csv(tmp_path / "one.csv")
    facts = json.loads((tmp_path / "one.csv.json").read_text(encoding="utf-8"))
    table = facts["tables"]["table"]
    facts["note"], table["note"], table["keys"]["vintage"], facts["unknown"] = "x", "z", {"year": 2022}, [1]
    for part in ("columns", "ratios"):
        for one in table[part].values():
            one["note"] = part
    facts["partition"]["note"] = "y"
    facts["ledger"] = {"entry": 1, "hash": "ab", "place": "archive"}
    (tmp_path / "one.csv.json").write_text(json.dumps(facts), encoding="utf-8")
    read = ss.read_release(tmp_path / "one.csv")
    assert read.facts.note == "x"
    assert read.facts.tables["table"].note == "z"
    read.to_csv(tmp_path / "two.csv")
    assert json.loads((tmp_path / "two.csv.json").read_text(encoding="utf-8")) == facts
    read.to_parquet(tmp_path / "two.parquet")
    assert ss.read_release(tmp_path / "two.parquet").facts == read.facts
    assert pickle.loads(pickle.dumps(read.facts)) == read.facts


TABLE = ("tables", "table")


@pytest.mark.parametrize(
    ("path", "place", "code"),
    [
        ((*TABLE, "keys"), ("extra", "g"), "damaged"),
        ((*TABLE, "columns"), ("extra", "x"), "damaged"),
        ((*TABLE, "ratios"), ("extra", "x_mean"), "damaged"),
        ((*TABLE, "rows"), ("tables", "table", "rows"), "damaged"),
        (("tables",), ("tables",), "damaged"),
        (("table",), ("table",), "damaged"),
        (("private",), ("private",), "damaged"),
        (("id",), ("id",), "damaged"),
        (("accounting",), ("accounting",), "damaged"),
        ((*TABLE, "keys", "assumption"), ("tables", "table", "keys", "assumption"), "damaged"),
        ((*TABLE, "keys", "from_data"), ("tables", "table", "keys", "from_data"), "damaged"),
        ((*TABLE, "columns", "x", "unit"), ("tables", "table", "columns", "x", "unit"), "damaged"),
        ((*TABLE, "columns", "x", "on_grid"), ("tables", "table", "columns", "x", "on_grid"), "damaged"),
        ((*TABLE, "ratios", "x_mean", "level"), ("tables", "table", "ratios", "x_mean", "level"), "damaged"),
        (("partition", "labels"), ("partition", "labels"), "damaged"),
        (("ledger", "hash"), ("ledger", "hash"), "damaged"),
    ],
)
def test_damaged_files_are_refused(release, tmp_path, path, place, code):
    release.to_csv(tmp_path / "r.csv")
    facts = json.loads((tmp_path / "r.csv.json").read_text(encoding="utf-8"))
    facts["ledger"] = {"entry": 1, "hash": "ab"}
    part = facts
    for name in path[:-1]:
        part = part[name]
    del part[path[-1]]
    (tmp_path / "r.csv.json").write_text(json.dumps(facts), encoding="utf-8")
    with refused(ss.EngineError, path=place, code=code):
        ss.read_release(tmp_path / "r.csv")


def test_a_part_that_is_not_a_mapping_is_refused(release):
    whole = release.facts.to_dict()
    for name in ("ledger", "partition", "tables"):
        with refused(ss.ParameterError, code="damaged", path=(name,)):
            Facts.from_dict({**whole, name: 5})
    for name in ("keys", "columns", "ratios", "quantiles", "rollup"):
        table = {**whole["tables"]["table"], name: 5}
        with refused(ss.ParameterError, code="damaged", path=(*TABLE, name)):
            Facts.from_dict({**whole, "tables": {"table": table}})


@pytest.mark.parametrize("unit", ["0", "-1/2", "1/0", "one"])
def test_a_unit_is_a_number_above_0(release, unit):
    with pytest.raises(pydantic.ValidationError, match="must be a number > 0"):
        release.facts.columns["x"].with_(unit=unit)


@pytest.mark.parametrize(
    "changes",
    [{"at": (), "rates": ()}, {"rates": (1.0,)}, {"rates": (1.0, 0.0)}, {"rates": (1.0, -2.0)}, {"grid": (1,)}],
    ids=str,
)
def test_each_quantile_has_a_rate_and_sizes_to_choose_from(changes):
    good = {"column": "x", "at": (0.5, 0.9), "grid": (1, 2), "rates": (1.0, 0.5), "loss": 1.0, "level": 0.95}
    QuantilesFacts(**good, nulls="error")
    with pytest.raises(pydantic.ValidationError, match="a rate > 0 for each quantile"):
        QuantilesFacts(**{**good, **changes}, nulls="error")


def test_an_error_says_what_is_wrong_and_where(release):
    whole = release.facts.to_dict()
    del whole["tables"]["table"]["rows"]
    with pytest.raises(ss.ParameterError) as caught:
        Facts.from_dict(whole)
    assert str(caught.value) == "tables.table.rows: field required"


def test_text_that_a_spreadsheet_would_run_is_escaped():
    table = pa.table({"n": [1, 2, 3, 4], "g": ["=1+1", "-5", "'a", "a"], "h": ["'b", "b", "c", "+1e3"]})
    escaped, columns = escape_formulas(table)
    assert columns == ["g"]
    assert escaped["g"].to_pylist() == ["'=1+1", "-5", "''a", "a"]
    assert escaped["h"].equals(table["h"])
    assert escaped_names(["=n", "-5", "'a", "a"]) == ["'=n", "-5", "''a", "a"]
    assert escaped_names(["-5", "'a", "a"]) == ["-5", "'a", "a"]


def test_names_that_a_spreadsheet_would_run_come_back(release, tmp_path):
    made = ss.Session({"=x": [5], "'y": [1]}, bits=Recorded(1)).sum(
        {"=x": ss.Gaussian(sigma=1), "'y": ss.Gaussian(sigma=1)}
    )
    made.to_csv(tmp_path / "one.csv")
    assert (tmp_path / "one.csv").read_text(encoding="utf-8").startswith('"\'=x","\'=x_se",')
    assert json.loads((tmp_path / "one.csv.json").read_text(encoding="utf-8"))["escaped_names"] is True
    read = ss.read_release(tmp_path / "one.csv")
    assert read.table.equals(made.table)
    release.to_csv(tmp_path / "two.csv")
    assert "escaped_names" not in json.loads((tmp_path / "two.csv.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("published", [True, False])
def test_names_beside_labels_are_left_out_of_a_published_file(release, tmp_path, published):
    """A publication marks them, and says so in the schema. Without that, a column is a column of the release."""
    (table,) = release.tables.values()
    names = pa.field("g_name", pa.string(), metadata={b"role": b"name"})
    metadata = table.to_arrow().schema.metadata | ({PUBLICATION: b"{}"} if published else {})
    named = table.table.append_column(names, [["A", "B"]]).replace_schema_metadata(metadata)
    pa.parquet.write_table(named, tmp_path / "r.parquet")
    read, facts = read_parquet(tmp_path / "r.parquet")
    assert read.column_names == [*table.table.column_names, *([] if published else ["g_name"])]
    assert read.select(table.table.column_names).equals(table.table)
    assert Facts.from_dict(facts) == table.file_facts
