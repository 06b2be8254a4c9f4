"""The facts of a release: typed inside, a mapping to readers, and read back from files."""

import json
import pickle
from dataclasses import replace

import pandas as pd
import pytest
from helpers.bitsources import Recorded

import slowscale as ss
from slowscale.release.facts import ColumnFacts, Facts, KeysFacts, LedgerHead


@pytest.fixture(scope="module")
def release():
    session = ss.Session(pd.DataFrame({"g": ["a"], "x": [5]}), bits=Recorded(1))
    keys = ss.Keys.from_frame({"g": ["a", "b"]})
    return session.mean(
        {"x": ss.Root(k=2, sigma=1)}, keys=keys, count=ss.Gaussian(sigma=1), where="x > 0", partition="g"
    )


def test_they_come_back_from_json(release):
    written = json.loads(json.dumps(release.facts.to_dict()))
    assert Facts.from_dict(written) == release.facts == written
    assert Facts.from_dict(written).to_dict() == written
    assert pickle.loads(pickle.dumps(release.facts)) == release.facts


def test_they_are_typed(release):
    facts = release.facts
    assert isinstance(facts.columns["x"], ColumnFacts)
    assert isinstance(facts.cells, KeysFacts)
    assert (facts.cells.from_data, facts.partition.by, facts.where) == (False, "g", "x > 0")
    assert facts.ledger is None
    assert "ledger" not in facts
    assert facts.columns["count"].nulls is None
    assert "nulls" not in facts.columns["count"]
    assert not facts.ratios["x_mean"].approximate
    assert replace(facts, ledger=LedgerHead(3, "ab"))["ledger"] == {"entry": 3, "hash": "ab"}


def test_they_look_like_what_is_written(release):
    assert release.facts.columns["x"].unit == "1"
    assert dict(release.facts) == {**release.facts} == release.facts.to_dict()
    assert release.facts != {}
    with pytest.raises(KeyError):
        release.facts.nothing


def test_what_is_no_mapping_is_refused():
    with pytest.raises(ss.ParameterError, match="facts must be a mapping"):
        Facts.from_dict([])


def test_unknown_entries_survive_reading_and_writing(release, tmp_path):
    release.to_csv(tmp_path / "one.csv")
    facts = json.loads((tmp_path / "one.csv.json").read_text(encoding="utf-8"))
    facts["note"], facts["keys"]["vintage"], facts["unknown"] = "x", {"year": 2022}, [1]
    for part in ("columns", "ratios"):
        for one in facts[part].values():
            one["note"] = part
    facts["partition"]["note"] = "y"
    facts["ledger"] = {"entry": 1, "hash": "ab", "place": "archive"}
    (tmp_path / "one.csv.json").write_text(json.dumps(facts), encoding="utf-8")
    read = ss.read_release(tmp_path / "one.csv")
    assert read.facts.note == read.facts.unknown["note"] == "x"
    read.to_csv(tmp_path / "two.csv")
    assert json.loads((tmp_path / "two.csv.json").read_text(encoding="utf-8")) == facts
    read.to_parquet(tmp_path / "two.parquet")
    assert ss.read_release(tmp_path / "two.parquet").facts == read.facts
    assert pickle.loads(pickle.dumps(read.facts)) == read.facts


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (("keys",), "facts must have the entry 'keys'"),
        (("columns",), "facts must have the entry 'columns'"),
        (("private",), "facts must have the entry 'private'"),
        (("id",), "facts must have the entry 'id'"),
        (("accounting",), "facts must have the entry 'accounting'"),
        (("keys", "assumption"), "keys must have the entry 'assumption'"),
        (("keys", "from_data"), "keys must have the entry 'from_data'"),
        (("columns", "x", "unit"), r"columns\['x'\] must have the entry 'unit'"),
        (("columns", "x", "on_grid"), r"columns\['x'\] must have the entry 'on_grid'"),
        (("columns", "x", "at_least"), r"columns\['x'\] must have the entry 'at_least'"),
        (("ratios", "x_mean", "level"), r"ratios\['x_mean'\] must have the entry 'level'"),
        (("partition", "labels"), "partition must have the entry 'labels'"),
        (("ledger", "hash"), "ledger must have the entry 'hash'"),
    ],
)
def test_damaged_files_are_refused(release, tmp_path, path, words):
    release.to_csv(tmp_path / "r.csv")
    facts = json.loads((tmp_path / "r.csv.json").read_text(encoding="utf-8"))
    facts["ledger"] = {"entry": 1, "hash": "ab"}
    part = facts
    for name in path[:-1]:
        part = part[name]
    del part[path[-1]]
    (tmp_path / "r.csv.json").write_text(json.dumps(facts), encoding="utf-8")
    with pytest.raises(ss.SlowscaleError, match=rf"r.csv is damaged: {words}"):
        ss.read_release(tmp_path / "r.csv")


def test_a_part_that_is_no_mapping_is_refused(release):
    for name in ("keys", "columns", "ratios", "ledger", "partition"):
        with pytest.raises(ss.ParameterError, match=f"must have a mapping.* as '{name}', got int"):
            Facts.from_dict(release.facts | {name: 5})


def test_they_can_be_copied_and_joined_like_a_dictionary(release):
    facts = release.facts
    assert facts.copy() == facts | {} == {} | facts == facts.to_dict()
    assert (facts | {"id": "a"})["id"] == "a"
    assert ({"id": "a"} | facts)["id"] == facts.id
    assert type(facts.copy()) is type(facts | {}) is dict
