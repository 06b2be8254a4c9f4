"""The facts of a release: typed inside, a mapping to readers, and readable from files of earlier versions."""

import json
import pickle
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from helpers.bitsources import Recorded

import slowscale as ss
from slowscale.facts import ABSENT, ColumnFacts, Facts, KeysFacts, LedgerHead

EARLIER = Path(__file__).parents[1] / "reference" / "earlier"


@pytest.fixture(scope="module")
def release():
    session = ss.Session(pd.DataFrame({"g": ["a"], "x": [5]}), bits=Recorded(1))
    keys = ss.Keys.from_frame({"g": ["a", "b"]})
    return session.mean({"x": ss.Root(2, 1)}, keys=keys, count=ss.Gaussian(1), where="x > 0", partition="g")


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
    assert facts.ledger is ABSENT
    assert "ledger" not in facts
    assert facts.columns["count"].nulls is ABSENT
    assert not facts.ratios["x_mean"].approximate
    assert replace(facts, ledger=LedgerHead(3, "ab"))["ledger"] == {"entry": 3, "hash": "ab"}


def test_they_look_like_what_is_written(release):
    assert release.facts["columns"]["x"]["unit"] == "1"
    assert dict(release.facts) == {**release.facts} == release.facts.to_dict()
    assert release.facts != {}
    with pytest.raises(KeyError):
        release.facts["nothing"]


def test_those_of_earlier_versions_are_read():
    facts = Facts.from_dict(json.loads((EARLIER / "release.csv.json").read_text(encoding="utf-8")))
    assert facts.columns
    for column in facts.columns.values():
        assert column.on_grid is ABSENT
        assert column.surely_on_grid is column.is_count


def test_what_is_no_mapping_is_refused():
    with pytest.raises(ss.ParameterError, match="facts must be a mapping"):
        Facts.from_dict([])
