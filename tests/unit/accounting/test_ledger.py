"""The ledger: durable, chained, capped, and never overwritten."""

import copy
import json
import os
import pickle
import random
import re
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import FrozenInstanceError, fields, replace
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.bitsources import Recorded
from helpers.errors import refused

import slowscale as ss
from slowscale import policy as policies
from slowscale.accounting import Account, Charge, Loss, Spent, account, explain, storage
from slowscale.accounting.bands import Use
from slowscale.accounting.charge import Piece
from slowscale.accounting.sizes import read_sizes
from slowscale.accounting.storage import link_hash
from slowscale.core.data_errors import Name
from slowscale.core.numbers import format_number
from slowscale.policy import ConstantPolicy

RECORDS = pd.DataFrame({"state": ["IA", "IA", "TX"], "firm": ["a", "b", "a"], "x": [10, 20, 300], "y": [1, 2, 3]})
KEYS = ss.Keys.cross({"state": ["IA", "TX"]})
POLICY = ss.RecordPolicy((("x", ss.Gaussian(sigma=10).policy),))
PURE = ss.RecordPolicy((("x", ss.GeneralizedGaussian(sigma=1, p=1).pure_policy),))
COUNTED = ss.RecordPolicy(((None, ConstantPolicy(0.5)),))
FACTS = {"policy": POLICY.to_dict(), "pure_policy": None, "id": "0"}


def asked(facts=FACTS, *part):
    """Return a charge of these facts, about the records with some labels of a column or about all."""
    return Charge.from_facts(facts, **dict(zip(("by", "labels", "kind"), part, strict=False)))


class Forbidden:
    """A source of bits that must not be asked for any."""

    private = True

    def key(self):
        raise AssertionError("noise was drawn")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "census.ledger"


def raw(path):
    return closing(sqlite3.connect(path, isolation_level=None))


def test_attempts_are_recorded_and_cost_nothing(path):
    ledger = ss.Ledger(path, {"x": ss.Gaussian(sigma=10).policy})
    assert "attempt" not in ledger.describe()
    facts = {"columns": {"x": {}}, "where": "x > 5", "policy": None}
    first = ledger.attempt(facts, ss.DataError("nulls", column=Name("x")))
    assert first == ledger.head == {"entry": 2, "hash": first["hash"]}
    assert ledger.describe().endswith("\n1 attempt was refused or failed; see the history.")
    ledger.charge(asked())
    with pytest.raises(ss.CapError) as caught:
        ledger.charge(asked())
    ledger.attempt(asked(FACTS, "state", ("IA",), "text"), caught.value)
    assert ledger.describe().endswith("\n2 attempts were refused or failed; see the history.")
    again = ss.Ledger(path)
    assert again.verify(first) == []
    assert again.spent({"x": 10}) == 0.5
    assert again.spent.releases == 1
    entries = again.history()
    assert [entry["kind"] for entry in entries] == ["created", "attempt", "charge", "attempt"]
    assert entries[1]["facts"] == facts
    assert entries[1]["error"] == {"type": "DataError", "message": str(ss.DataError("nulls", column=Name("x")))}
    assert (entries[3]["by"], entries[3]["labels"], entries[3]["label_kind"]) == ("state", ["IA"], "text")
    assert entries[3]["error"] == {"type": "CapError", "message": str(caught.value)}
    with raw(path) as file:
        file.execute("UPDATE entries SET payload = replace(payload, 'missing', 'present') WHERE id = 2")
    assert ss.Ledger(path).verify() == ["entry 2 was changed, or an entry before it"]


def test_check_raises_what_charge_would_raise(path):
    ledger = ss.Ledger(path, {"x": ss.Gaussian(sigma=10).policy, "*": 9 * ss.Gaussian(sigma=10).policy})
    other = ss.RecordPolicy((("y", ss.Gaussian(sigma=10).policy),))
    free = {**FACTS, "policy": other.to_dict()}
    ledger.check(asked())
    ss.Ledger(path).charge(asked())  # the charge of another process counts, too
    ledger.charge(asked(free, "state", ("IA",), "text"))
    mistakes = [
        (lambda: asked(), "the cap on 'x'", "cap"),
        (lambda: asked(free, "state", (1,), "whole numbers"), "partition 'state'", "mismatch"),
        (lambda: asked({**free, "protect": "firm"}), "protect", "mismatch"),
        (lambda: asked(free, "state", (), "text"), "labels", "labels"),
        (lambda: asked({**free, "o": object()}), "facts", "type"),
        (lambda: asked({**free, "policy": None}), "facts", "not-written"),
        (lambda: Charge(other, facts={**free, "policy": None}), "facts", "not-written"),
        (lambda: Charge(POLICY, facts=free), "facts['policy']", "mismatch"),
        (lambda: Charge(other, facts={}), "facts", "not-written"),
        (lambda: asked(None), "facts", "type"),
        (lambda: free, "charge", "type"),
        (lambda: Charge(other, protects="firm", facts=free), "facts['protect']", "mismatch"),
    ]
    before = path.read_bytes()
    for charge, subject, code in mistakes:
        with refused(ss.SlowscaleError, subject, code=code) as checked:
            ledger.check(charge())
        with pytest.raises(type(checked.value)) as charged:
            ledger.charge(charge())
        assert str(charged.value) == str(checked.value)
    ledger.check(Charge(other, by="state", labels=("IA",), kind="text", facts=free))
    assert path.read_bytes() == before
    assert len(ledger.history()) == 3


def test_what_is_spent_is_a_value():
    """Equality, hash, repr and copies include the number of releases, what is protected and the pure guarantee."""
    names = {"RecordPolicy": ss.RecordPolicy, "Spent": Spent, "Piece": Piece, "Use": Use}
    pure = ss.GeneralizedGaussian(sigma=1, p=1)
    policy = ss.RecordPolicy((("x", pure.policy),))
    kept = []
    for charges in ([Charge(policy, PURE)], [Charge(policy)], [Charge(policy, PURE, protects="firm")]):
        account, again = Account(), Account()
        for one in charges:
            account.charge(one)
            again.charge(one)
        spent = account.spent
        assert spent == again.spent
        assert hash(spent) == hash(again.spent)
        assert pickle.loads(pickle.dumps(spent)) == copy.deepcopy(spent) == replace(spent) == spent
        assert eval(repr(spent), vars(policies) | names) == spent
        kept.append(spent)
    assert len(set(kept)) == 3
    assert [field.name for field in fields(Spent)][4:7] == ["releases", "protects", "pure_policy"]
    assert replace(kept[0], filtered=True).releases == 1
    with pytest.raises(FrozenInstanceError):
        kept[0].releases = 2


def test_a_ledger_closes_at_the_end_of_a_block(path):
    with ss.Ledger(path) as ledger:
        ledger.charge(asked())
        connection = ledger._file.connection()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")
    assert ledger.spent.releases == 1  # the connection is opened again
    with pytest.raises(ZeroDivisionError), ledger:
        1 / 0  # noqa: B018
    assert ledger._file.connection() is not connection
    ledger.close()
    ledger.close()  # closing twice does no harm


def test_releases_are_charged_and_remembered(path):
    session = ss.Session(RECORDS, path, bits=Recorded(1))
    first = session.sum({"x": ss.Gaussian(sigma=10), "y": ss.ExponentialPolylog(d=1)}, keys=KEYS, where="x > 1")
    session.count(mechanism=ss.Gaussian(sigma=2))
    record = {"x": 20, "y": 2}
    total = ss.Gaussian(sigma=10).policy(20) + ss.ExponentialPolylog(d=1).tight_policy(2) + 1 / 8
    assert session.spent(record) == pytest.approx(total)
    again = ss.Ledger(path)
    assert again.spent(record) == pytest.approx(total)
    assert again.verify() == []
    assert again.verify(first.facts.ledger) == []
    kinds = [entry["kind"] for entry in again.history()]
    assert kinds == ["created", "charge", "charge"]
    kept = again.history()[1]["facts"]
    table = kept["tables"]["table"]
    assert table["where"] == "x > 1"
    assert table["columns"]["x"]["mechanism"] == {"type": "Gaussian", "sigma": 10.0}
    assert table["keys"]["assumption"] == KEYS.assumption
    assert kept["slowscale"] == ss.__version__
    assert kept["id"] == first.facts.id


def test_without_a_ledger_the_session_keeps_account():
    session = ss.Session(RECORDS, caps={"x": 2 * ss.Gaussian(sigma=10).policy}, bits=Recorded(1))
    assert "No release has been charged to this account yet" in str(session.spent)
    session.sum({"x": ss.Gaussian(sigma=10)})
    session.sum({"x": ss.Gaussian(sigma=10)})
    assert session.spent({"x": 10}) == pytest.approx(1)
    with pytest.raises(ss.CapError):
        session.sum({"x": ss.Gaussian(sigma=10)})
    assert session.spent({"x": 10}) == pytest.approx(1)


def test_pure_totals_last_as_long_as_every_release_has_one():
    session = ss.Session(RECORDS, bits=Recorded(1))
    session.sum({"x": ss.GeneralizedGaussian(sigma=10, p=0.5)})
    assert session.spent.pure_policy({"x": 40}) == pytest.approx(2)
    session.sum({"x": ss.Gaussian(sigma=10)})
    assert session.spent.pure_policy is None


def test_a_cap_refuses_and_nothing_is_drawn(path):
    caps = {"x": ss.Gaussian(sigma=10).policy, "*": ss.Root(k=2, sigma=1).policy}
    ss.Session(RECORDS, path, caps, bits=Recorded(1)).sum({"x": ss.Gaussian(sigma=10), "y": ss.Root(k=2, sigma=1)})
    session = ss.Session(RECORDS, path, bits=Forbidden())
    with refused(ss.CapError, "the cap on 'x'", code="cap"):
        session.sum({"x": ss.Gaussian(sigma=1000)})
    with refused(ss.CapError, "the cap on '*'", code="cap"):
        session.sum({"y": ss.Root(k=2, sigma=1000)})
    assert [entry["kind"] for entry in session.ledger.history()] == ["created", "charge", "attempt", "attempt"]
    assert session.ledger.verify() == []


def test_an_exhausted_cap_is_reported_before_the_records_are_read(path):
    """Otherwise the choice between DataError and CapError would reveal, at no cost, whether a record is negative."""
    records = RECORDS.assign(z=[1, -2, 3])
    session = ss.Session(records, path, {"z": ss.Root(k=2, sigma=1).policy}, bits=Recorded(1))
    with refused(ss.DataError):
        session.sum({"z": ss.Root(k=2, sigma=1)})
    session.sum({"z": ss.Root(k=2, sigma=1)}, negatives="zero")
    with pytest.raises(ss.CapError):
        session.sum({"z": ss.Root(k=2, sigma=1)})
    attempts = [entry["error"]["type"] for entry in session.ledger.history() if entry["kind"] == "attempt"]
    assert attempts == ["DataError", "CapError"]


def spelled(column, **facts):
    """Return the facts of a charge to a column with a given spelling of its name."""
    return {**FACTS, **facts, "policy": ss.RecordPolicy(((column, ss.Gaussian(sigma=10).policy),)).to_dict()}


@pytest.mark.parametrize("name", ["emp", " EMP", "Emp  "])
def test_another_spelling_shares_the_cap(path, name):
    ledger = ss.Ledger(path, {name: 2 * ss.Gaussian(sigma=10).policy, "*": 9 * ss.Gaussian(sigma=10).policy})
    ledger.charge(asked(spelled("emp")))
    ledger.charge(asked(spelled(" EMP ")))
    for other in ("emp", "EMP", "eMp ", "\ufeffemp", "e\u200bmp", "\uff45mp"):
        for refuse in (ledger.check, ledger.charge, ss.Ledger(path).charge):
            with refused(ss.CapError, f"the cap on {name!r}"):
                refuse(asked(spelled(other)))
    ledger.set_cap("EMP", 3 * ss.Gaussian(sigma=10).policy, "a third year")
    assert set(ledger.caps) == {name, "*"}
    ledger.charge(asked(spelled("emp")))
    assert ledger.spent({name: 10}) == ss.Ledger(path).spent({name: 10}) == pytest.approx(1.5)
    assert (
        ss.Ledger(path, {" eMP": 3 * ss.Gaussian(sigma=10).policy, "*": 9 * ss.Gaussian(sigma=10).policy}).caps
        == ledger.caps
    )


def test_reports_use_the_first_spelling(path):
    ledger = ss.Ledger(path)
    ledger.charge(asked(spelled("Payroll")))
    ledger.charge(asked(spelled("PAYROLL ")))
    for opened in (ledger, ss.Ledger(path)):
        assert opened.spent.columns == ("Payroll",)
        assert "  Payroll: 0.01 at 1" in opened.describe()
        assert opened.spent({"Payroll": 10}) == pytest.approx(1)
    with refused(ss.ParameterError, "caps", code="duplicate"):
        ss.Ledger(path.with_name("new"), {"emp": ss.Gaussian(sigma=1).policy, " EMP": ss.Gaussian(sigma=1).policy})
    assert not path.with_name("new").exists()


def test_partitions_and_entities_are_matched_by_folded_names(path):
    ledger = ss.Ledger(path, {"x": 2 * ss.Gaussian(sigma=10).policy})
    for by in ("state", " STATE"):
        ledger.charge(asked(spelled("x", protect="Firm "), by, ("IA",), "text"))
    assert ledger.spent({"x": 10, "state": "IA"}) == pytest.approx(1)
    with pytest.raises(ss.CapError):
        ledger.charge(asked(spelled("x", protect="firm"), "State", ("IA",), "text"))
    ledger.charge(asked(spelled("x", protect="firm"), "State", ("TX",), "text"))
    with refused(ss.ParameterError, "partition 'state'", code="mismatch"):
        ledger.charge(asked(spelled("x", protect="firm"), "STATE", (1,), "whole numbers"))
    with refused(ss.ParameterError, "protect", code="mismatch"):
        ledger.charge(asked(spelled("x")))
    assert ledger.spent.protects == "Firm "


def test_counts_have_a_cap_at_one(path):
    session = ss.Session(RECORDS, path, {"count": ss.Gaussian(sigma=1).policy}, bits=Recorded(1))
    for _ in range(4):
        session.count(mechanism=ss.Gaussian(sigma=2))
    with refused(ss.CapError, "the cap on 'count'", code="cap"):
        session.count(mechanism=ss.Gaussian(sigma=2))


@pytest.mark.parametrize("name", ["count", " Count", "COUNT\u200b", "*", " *", "\uff0a"])
def test_a_column_cannot_take_a_reserved_name(path, name):
    ledger = ss.Ledger(path, {"*": 9 * ss.Gaussian(sigma=10).policy, "count": 9 * ss.Gaussian(sigma=10).policy})
    for refuse in (ledger.check, ledger.charge):
        with refused(ss.ParameterError, f"column {name!r}", code="reserved"):
            refuse(asked(spelled(name)))
    if name != "count":
        with refused(ss.ParameterError, code="reserved"):
            ledger.charge(asked(spelled(name, protect="firm")))
    assert ledger.head["entry"] == 1


def test_counts_of_entities_have_the_cap_of_counts(path):
    ledger = ss.Ledger(path, {"*": 9 * ss.Gaussian(sigma=10).policy, "count": ss.Gaussian(sigma=10).policy})
    ledger.charge(asked(spelled("count", protect="firm")))
    with refused(ss.CapError, "the cap on 'count'", code="cap"):
        ledger.charge(asked(spelled("count", protect="firm")))
    ledger.charge(asked(spelled("x", protect="firm")))


def test_the_cap_of_all_columns_holds_by_any_spelling(path):
    ledger = ss.Ledger(path, {" * ": ss.Gaussian(sigma=10).policy})
    assert "Cap on any other column" in ledger.describe()
    ledger.charge(asked(spelled("x")))
    with refused(ss.CapError, "the cap on ' * '", code="cap"):
        ledger.charge(asked(spelled("x")))


def test_parts_cost_their_maximum_and_each_has_its_own_room(path):
    session = ss.Session(RECORDS, path, {"x": 2 * ss.Gaussian(sigma=10).policy}, bits=Recorded(1))
    for state in ("IA", "TX"):
        for _ in range(2):
            session.sum({"x": ss.Gaussian(sigma=10)}, keys=KEYS.filter(state=state), partition="state")
        with pytest.raises(ss.CapError):
            session.sum({"x": ss.Gaussian(sigma=10)}, keys=KEYS.filter(state=state), partition="state")
    assert session.spent({"x": 10}) == session.spent({"x": 10, "state": "TX"}) == pytest.approx(1)
    assert session.spent({"x": 10, "state": "NV"}) == 0
    session.sum({"x": ss.Gaussian(sigma=10)}, keys=ss.Keys.cross({"state": ["NV"]}), partition="state", where="x > 0")
    with pytest.raises(ss.CapError):
        session.sum({"x": ss.Gaussian(sigma=10)}, keys=KEYS)
    assert ss.Ledger(path).spent({"x": 10}) == pytest.approx(1)


def test_a_partition_must_be_a_column_of_the_data():
    session = ss.Session(RECORDS)
    with refused(ss.ParameterError, "partition"):
        session.sum({"x": ss.Gaussian(sigma=1)}, keys=KEYS, partition="y")
    with refused(ss.ParameterError, "partition"):
        session.sum(
            {"x": ss.Gaussian(sigma=1)}, keys=ss.Keys.cross({"part": [1]}), derive={"part": "y"}, partition="part"
        )


def test_entities(path):
    session = ss.Session(RECORDS, path, protect="firm", bits=Recorded(1))
    release = session.sum({"x": ss.Root(k=2, sigma=1)}, keys=KEYS, count=ss.Gaussian(sigma=2))
    assert release.facts.protects.startswith("one firm: whether its records are there")
    cells = [{"x": 10, "count": 1}, {"x": 300, "count": 1}]
    assert release.policy.entity(cells) == pytest.approx(5 + 150 + 2 / 8)
    losses = session.losses(release)
    assert losses.records == 2
    assert losses.largest[1] == pytest.approx(155.25)
    with refused(ss.ParameterError, "protect", code="mismatch"):
        ss.Session(RECORDS, path, bits=Recorded(1)).sum({"x": ss.Gaussian(sigma=1)})
    with refused(ss.DataError):
        ss.Session(RECORDS.assign(firm=["a", None, "b"]), protect="firm").sum({"x": ss.Gaussian(sigma=1)})
    with refused(ss.ParameterError):
        ss.Session(RECORDS, protect="none")


def test_a_ledger_knows_its_data_set(path):
    ledger = ss.Ledger(path, {"x": ss.Gaussian(sigma=10).policy}, dataset=" cbp-2024 ")
    assert ledger.dataset == ss.Ledger(path).dataset == ss.Ledger(path, dataset="cbp-2024").dataset == "cbp-2024"
    assert pickle.loads(pickle.dumps(ledger)).dataset == "cbp-2024"
    assert ledger.history()[0]["dataset"] == "cbp-2024"
    assert ledger.describe().startswith("Data set: cbp-2024.\n")
    assert ledger.verify() == []
    with refused(ss.LedgerError, code="mismatch"):
        ss.Ledger(path, dataset="CBP-2024")


@pytest.mark.parametrize(("dataset", "code"), [("", "value"), (" ", "value"), (3, "type")])
def test_a_data_set_has_a_name(path, dataset, code):
    for make in (lambda: ss.Ledger(path, dataset=dataset), lambda: ss.Session(RECORDS, path, dataset=dataset)):
        with refused(ss.SlowscaleError, "dataset", code=code):
            make()
    assert not path.exists()


@pytest.mark.parametrize("by_path", [True, False])
@pytest.mark.parametrize(("dataset", "code"), [("cbp-2023", "mismatch"), (None, "missing")])
def test_records_of_another_data_set_are_not_read(path, tmp_path, by_path, dataset, code):
    ss.Session(RECORDS, path, dataset="cbp-2024")
    ledger = path if by_path else ss.Ledger(path)
    with refused(ss.LedgerError, f"ledger {path}", code=code):
        ss.Session(tmp_path / "no such file.csv", ledger, dataset=dataset)
    assert len(ss.Ledger(path).history()) == 1
    release = ss.Session(RECORDS, ledger, dataset="cbp-2024 ", bits=Recorded(1)).sum({"x": ss.Gaussian(sigma=10)})
    assert release.facts.dataset == "cbp-2024"
    assert ss.Ledger(path).history()[-1]["facts"]["dataset"] == "cbp-2024"


def test_a_ledger_without_a_name_accepts_any_session(path):
    ss.Ledger(path)
    for dataset in (None, "cbp-2024", "cbp-2023"):
        release = ss.Session(RECORDS, path, dataset=dataset, bits=Recorded(1)).sum({"x": ss.Gaussian(sigma=10)})
        assert release.facts.dataset == dataset
    assert ss.Ledger(path, dataset="cbp-2022").dataset is None
    assert "Data set" not in ss.Ledger(path).describe()


def test_raising_a_cap_stays_visible(path):
    ledger = ss.Ledger(path, {"x": ss.Gaussian(sigma=10).policy})
    ledger.charge(asked())
    with pytest.raises(ss.CapError):
        ledger.charge(asked())
    ledger.set_cap("x", 2 * ss.Gaussian(sigma=10).policy, "a second year")
    ledger.charge(asked())
    assert "The cap on x was changed on" in ledger.describe()
    assert "from Δ² / (2·10²) to 2·(Δ² / (2·10²)): a second year" in ledger.describe()
    assert ss.Ledger(path).caps == {"x": 2 * ss.Gaussian(sigma=10).policy}
    for name in ("", " ", "\u200b"):
        with refused(ss.ParameterError, "the names of caps", code="value"):
            ledger.set_cap(name, ss.Gaussian(sigma=1).policy, "no column")
    with refused(ss.ParameterError, "reason", code="value"):
        ledger.set_cap("x", ss.Gaussian(sigma=1).policy, " ")
    with refused(ss.ParameterError, "caps['y']", code="value", path=("y",)):
        ledger.set_cap("y", ss.GeneralizedGaussian(sigma=1, p=1).pure_policy, "why not")


TEN = ss.Gaussian(sigma=10).policy


@pytest.mark.parametrize("caps", [None, {"y": TEN}, {"*": 9 * TEN}])
def test_a_cap_is_added_for_a_further_column(path, caps):
    """The cap counts what was charged before it, in every process and after the file is opened again."""
    ledger, other = ss.Ledger(path, caps), ss.Ledger(path)
    other.charge(asked())
    ledger.set_cap(" X", 2 * TEN, "a new column")
    assert ledger.caps == ss.Ledger(path).caps == {**(caps or {}), "x": 2 * TEN}  # spelled as it was charged
    last = ledger.history()[-1]
    assert (last["kind"], last["column"], last["reason"]) == ("cap", "x", "a new column")
    assert last["time"]
    assert "The cap on x was added on" in ledger.describe()
    other.charge(asked())
    for one in (ledger, other, ss.Ledger(path)):
        with refused(ss.CapError, "the cap on 'x'", path=("ledger", "caps", "x")) as error:
            one.charge(asked(spelled("X ")))
        assert (error.value.made, error.value.spent) == (2, pytest.approx(1.5 * error.value.cap / 1))
    assert ledger.verify() == []
    assert ss.Ledger(path, caps).caps == ss.Ledger(path, {**(caps or {}), "X": 2 * TEN}).caps


def test_a_cap_on_all_other_columns_is_added(path):
    ledger = ss.Ledger(path, {"x": 9 * TEN})
    ledger.charge(asked(spelled("y")))
    ledger.charge(Charge(COUNTED))
    ledger.set_cap("*", TEN, "an upper bound for the rest")
    with refused(ss.CapError, "the cap on '*'", path=("ledger", "caps", "*")):
        ledger.check(asked(spelled("y")))
    ledger.set_cap("y", 2 * TEN, "a second release")  # takes the place of the cap on "*"
    ledger.charge(asked(spelled("y")))
    ledger.charge(asked(spelled("x")))
    with refused(ss.CapError, "the cap on '*'"):
        ledger.check(Charge(COUNTED))  # counts have no separate cap yet
    ledger.set_cap("count", ConstantPolicy(1.0), "two counts")
    ledger.charge(Charge(COUNTED))
    with refused(ss.CapError, "the cap on 'count'"):
        ledger.check(Charge(COUNTED))


def test_an_added_cap_may_be_exceeded_already(path):
    """As for a cap that is lowered: earlier charges stay, and further ones are refused."""
    ledger = ss.Ledger(path, {"y": TEN})
    for _ in range(3):
        ledger.charge(asked())
    ledger.set_cap("x", 2 * TEN, "too late")
    assert "Cap on x: 2·(Δ² / (2·10²)). The total already exceeds it for records of every size" in ledger.describe()
    with refused(ss.CapError, "the cap on 'x'") as error:
        ledger.check(asked())
    assert (error.value.made, "more than it allows" in str(error.value)) == (3, True)
    assert ledger.account.above_caps()["x"].spent == pytest.approx(1.5 * ledger.account.above_caps()["x"].cap)


def test_a_cap_that_could_not_be_written_is_not_added(path, monkeypatch):
    ledger = ss.Ledger(path)
    ledger.charge(asked())
    with raw(path) as file:
        file.execute("BEGIN IMMEDIATE")
        monkeypatch.setattr("slowscale.accounting.storage.LOCK_TIMEOUT", 0.1)
        ledger.close()
        with refused(ss.LedgerError, code="busy"):
            ledger.set_cap("x", TEN, "more")
    assert ledger.caps == {}
    ledger.charge(asked())


def test_a_lowered_cap_is_described(path):
    ledger = ss.Ledger(path, {"x": 2 * ss.Gaussian(sigma=10).policy, "*": 2 * ss.Gaussian(sigma=10).policy})
    for column in ("x", "x", "y", "y"):
        ledger.charge(asked(spelled(column)))
    assert ledger.describe().count("a record never loses more than") == 2
    ledger.set_cap("*", ss.Gaussian(sigma=10).policy, "a mistake")
    described = ledger.describe()
    assert "Cap on any other column: Δ² / (2·10²). The total already exceeds it for" in described
    assert "Cap on x: a record never loses more than 2·(Δ² / (2·10²))" in described


def test_the_caps_of_entities_are_described(path):
    ledger = ss.Ledger(path, {"x": ss.Gaussian(sigma=10).policy})
    ledger.charge(asked(spelled("x", protect="firm")))
    assert "Cap on x: a firm, in one cell, never loses more than" in ledger.describe()


def test_what_could_not_be_written_is_not_in_force(path):
    """SQLite refuses an entry, as on a full disk. Charges, caps and the head are then as they were before."""
    ledger = ss.Ledger(path, {"x": 2 * ss.Gaussian(sigma=10).policy, "y": ss.Gaussian(sigma=10).policy})
    ledger.charge(asked(spelled("y")))
    ledger.charge(asked())
    head, spent, caps = ledger.head, ledger.spent, ledger.caps
    connection = ledger._file.connection()  # a temporary trigger is not in the file
    connection.execute("CREATE TEMP TRIGGER t BEFORE INSERT ON entries BEGIN SELECT RAISE(ABORT, 'disk is full'); END")
    for write in (
        lambda: ledger.charge(asked()),
        lambda: ledger.set_cap("x", 9 * ss.Gaussian(sigma=10).policy, "more"),
        lambda: ledger.attempt({"policy": None}, ss.DataError("no-records")),
    ):
        with refused(ss.LedgerError, code="unwritable"):
            write()
        assert (ledger.head, ledger.spent, ledger.caps) == (head, spent, caps)
    connection.execute("DROP TRIGGER t")
    ledger.charge(asked())
    for column in ("x", "y"):
        with pytest.raises(ss.CapError):
            ledger.charge(asked(spelled(column)))
    assert ledger.verify(head) == []
    assert [entry["kind"] for entry in ledger.history()] == ["created", "charge", "charge", "charge"]


def test_a_ledger_that_is_moved_or_replaced_takes_no_more_charges(path):
    session = ss.Session(RECORDS, path, bits=Recorded(1))
    session.sum({"x": ss.Gaussian(sigma=1)})
    backup = path.read_bytes()
    path.unlink()
    with refused(ss.LedgerError, code="moved"):
        session.sum({"x": ss.Gaussian(sigma=1)})
    for left in path.parent.glob("census.ledger-*"):
        left.unlink()
    (path.parent / "census.ledger-wal").write_bytes(b"left")
    with refused(ss.LedgerError, code="exists"):
        ss.Ledger(path)
    (path.parent / "census.ledger-wal").unlink()
    path.write_bytes(backup)
    assert len(ss.Ledger(path).history()) == 2


def test_derived_columns_cannot_slip_by_the_caps(path):
    session = ss.Session(RECORDS, caps={"x": ss.Gaussian(sigma=10).policy}, bits=Recorded(1))
    with refused(ss.ParameterError, "column 'z'"):
        session.sum({"z": ss.Gaussian(sigma=1)}, derive={"z": "x"})
    ledger = ss.Ledger(path, {"z": ss.Gaussian(sigma=1).policy, "*": ss.Gaussian(sigma=1).policy})
    capped = ss.Session(RECORDS, ledger, bits=Recorded(1))
    capped.sum({"z": ss.Gaussian(sigma=1)}, derive={"z": "x"})
    with refused(ss.CapError, "the cap on 'z'", code="cap"):
        capped.sum({"z": ss.Gaussian(sigma=1)}, derive={"z": "x"})
    with refused(ss.ParameterError, "caps"):
        ss.Session(RECORDS, path.with_name("new"), {"xx": ss.Gaussian(sigma=1).policy})
    assert not path.with_name("new").exists()


def test_the_labels_of_a_partition_keep_their_type(path):
    records = RECORDS.assign(n=[1, 2, 2])
    ledger = ss.Ledger(path)
    one = {"keys": ss.Keys.cross({"n": [1]}), "partition": "n"}
    ss.Session(records, ledger, bits=Recorded(1)).sum({"x": ss.Gaussian(sigma=10)}, **one)
    text = records.assign(n=["1", "2", "2"])
    with refused(ss.ParameterError, "partition 'n'", code="mismatch"):
        ss.Session(text, ledger).sum({"x": ss.Gaussian(sigma=10)}, keys=ss.Keys.cross({"n": ["1"]}), partition="n")
    assert ledger.spent({"x": 10, "n": 1}) == ledger.spent({"x": 10, "n": "1"}) == ledger.spent({"x": 10}) == 0.5
    assert ledger.spent({"x": 10, "n": 2}) == 0
    session = ss.Session(records.assign(d=[date(2020, 1, 1)] * 3), types={"d": "date"}, bits=Recorded(1))
    session.sum({"x": ss.Gaussian(sigma=10)}, keys=ss.Keys.cross({"d": [date(2020, 1, 1)]}), partition="d")
    assert session.spent({"x": 10, "d": date(2020, 1, 1)}) == 0.5
    view = ss.Session(session.table.mutate(part=session.table.x % 2))
    with refused(ss.ParameterError, "partition"):
        view.sum({"x": ss.Gaussian(sigma=10)}, keys=ss.Keys.cross({"part": [1]}), partition="part")


def test_a_mechanism_that_cannot_draw_costs_nothing(path):
    """Noise that is too large, and a function without exact arithmetic, raise before the charge."""
    session = ss.Session(RECORDS, path)
    with refused(ss.ParameterError, "the noise"):
        session.sum({"x": ss.GeneralizedGaussian(sigma=1, p=1e-4)})
    with pytest.raises(ss.SlowscaleError):
        session.sum({"x": ss.Transformation(np.cbrt, _square, sigma=1, a=0, estimator="median")})
    assert len(session.ledger.history()) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: ss.UnitSplitting(threshold=1e-170, sigma=1e-3),
        lambda: ss.Gaussian(sigma=1e-170),
        lambda: ss.UnitSplitting(threshold=1e200, sigma=1),
    ],
)
def test_extreme_parameters_are_not_free(make):
    session = ss.Session(RECORDS, caps={"x": ss.Gaussian(sigma=1e6).policy})
    with pytest.raises((ss.ParameterError, ss.CapError)):
        session.sum({"x": make()})


def test_a_relative_path_stays_where_it_was(path, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    ledger = ss.Ledger("census.ledger")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    ledger.charge(asked())
    assert len(ss.Ledger(path).history()) == 2
    assert os.listdir(tmp_path / "other") == []


def test_an_interrupt_leaves_no_transaction_open(path):
    ledger = filled(path, 1)
    ledger._file.connection().execute("BEGIN IMMEDIATE")  # as left by an interrupt
    ledger.charge(asked())
    assert ledger.verify() == []


def test_verify_beside_a_writer(path):
    ledger = ss.Ledger(path)
    stop = threading.Event()

    def write():
        while not stop.is_set():
            ledger.charge(asked())

    writer = threading.Thread(target=write)
    writer.start()
    reader = ss.Ledger(path)
    found = [reader.verify() for _ in range(60)]
    stop.set()
    writer.join()
    assert found == [[]] * 60


def test_threads_without_a_ledger():
    account = Account({"x": 10 * ss.Gaussian(sigma=10).policy})
    done = []

    def work():
        for _ in range(10):
            try:
                account.charge(Charge(POLICY))
                done.append(1)
            except ss.CapError:
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(done) == len(account.charges) == 10


def test_many_parts_of_two_partitions_are_quick():
    account = Account({"x": 1000 * ss.Gaussian(sigma=10).policy})
    for by in ("county", "naics"):
        account.charge(Charge(POLICY, by=by, labels=tuple(range(1, 1001)), kind="whole numbers"))
    account.charge(Charge(POLICY))
    assert account.spent({"x": 10}) == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("make", "subject", "code"),
    [
        (lambda ledger: ledger.charge(asked(None)), "facts", "type"),
        (lambda ledger: ledger.charge(asked({})), "facts", "not-written"),
        (lambda ledger: ledger.charge(asked({**FACTS, "o": object()})), "facts", "type"),
        (lambda ledger: ledger.charge(asked({**FACTS, "policy": []})), "policy", "empty"),
        (lambda ledger: ledger.charge(asked(FACTS, "state", ())), "labels", "labels"),
        (lambda ledger: ledger.charge(asked(FACTS, "state", ([1],))), "labels", "labels"),
        (lambda ledger: ledger.charge(asked({**FACTS, "policy": PURE.to_dict()})), "policy", "value"),
        (lambda ledger: ledger.attempt([], ValueError()), "asked", "type"),
        (lambda ledger: ledger.attempt({}, "no"), "error", "type"),
        (lambda ledger: ledger.attempt({"o": object()}, ValueError()), "facts", "type"),
        (lambda ledger: ledger.set_cap(["x"], ss.Gaussian(sigma=1).policy, "why"), "column", "type"),
        (lambda ledger: ledger.verify(3), "head", "type"),
        (lambda ledger: ledger.verify({"x": 1}), "head", "type"),
        (lambda ledger: ss.Ledger("x\0y"), None, "unwritable"),
        (lambda ledger: ss.Ledger("a" * 300), None, None),
        (lambda ledger: ss.RecordPolicy((1,)), "terms", "type"),
        (lambda ledger: ss.RecordPolicy(None), "terms", "type"),
        (lambda ledger: POLICY.entity({"x": 1}), "cells", "type"),
        (lambda ledger: POLICY.entity([{"y": 1}]), "record", "missing"),
        (
            lambda ledger: POLICY.bounded({"x": [1, 2]}, {"x": [1, 2]}, same_cell=True),
            "the values of `record` and `other`",
            "type",
        ),
        (lambda ledger: COUNTED.entity([{}]), 'the "count" of `cells`', "value"),
        (lambda ledger: COUNTED.entity([{"count": -3}]), 'the "count" of `cells`', "value"),
    ],
)
def test_mistakes_raise_clear_errors(path, make, subject, code):
    ledger = ss.Ledger(path)
    with refused(ss.SlowscaleError, subject, code=code):
        make(ledger)
    assert len(ledger.history()) == 1


def test_a_ledger_can_be_handed_to_another_process(path):
    ledger = pickle.loads(pickle.dumps(filled(path)))
    assert len(ledger.history()) == 7


def test_caps_that_cannot_be_read_back_make_no_file(path):
    cap = ss.Transformation(_root, _square, sigma=1, a=0, estimator="median").policy
    with refused(ss.ParameterError):
        ss.Ledger(path, {"x": cap})
    assert not path.exists()


def test_after_a_raised_cap_only_known_caps_are_taken(path):
    first = {"x": ss.Gaussian(sigma=10).policy, "y": ss.Gaussian(sigma=10).policy}
    ss.Ledger(path, first).set_cap("x", ss.Gaussian(sigma=5).policy, "more")
    assert ss.Ledger(path, first).caps == ss.Ledger(path, {**first, "x": ss.Gaussian(sigma=5).policy}).caps
    with refused(ss.ParameterError, "caps", code="mismatch"):
        ss.Ledger(path, {"y": ss.Gaussian(sigma=1e9).policy})


def test_values_keep_their_signs():
    assert POLICY.bounded({"x": -100}, {"x": 100}, same_cell=True) == pytest.approx(200)
    texas = ss.RecordPolicy((("x", ss.Gaussian(sigma=10).policy),))
    iowa = ss.RecordPolicy((("y", ss.Gaussian(sigma=10).policy),))
    assert (texas | iowa).bounded({"x": 100, "y": 0}, {"x": 0, "y": 100}, same_cell=False) == pytest.approx(100)


def test_several_releases_have_cells_of_their_own():
    session = ss.Session(RECORDS, protect="firm", bits=Recorded(1))
    session.sum({"x": ss.Gaussian(sigma=1)})
    assert session.spent.entity([{"x": 10}]) == pytest.approx(50)
    session.sum({"x": ss.Gaussian(sigma=1)}, keys=KEYS)
    with refused(ss.ParameterError, "cells", code="value"):
        session.spent.entity([{"x": 10}])
    assert "The total loss of a firm depends on its total in a cell" in str(session.spent)


def test_descriptions(path):
    session = ss.Session(RECORDS, path, {"*": ss.Gaussian(sigma=1).policy}, bits=Recorded(1))
    session.sum({"x": ss.ExponentialPolylog(d=1)}, count=ss.GeneralizedGaussian(sigma=2, p=1))
    text = session.ledger.describe()
    for words in ("1 release so far", "on its size", "at 10,000", "being counted", "starting from 50 %", "PRDP"):
        assert words in text
    assert "Cap on any other column" in text
    assert str(session.spent) in text
    for size in (1, 10_000):
        found = session.spent.explain(read_sizes([size])[0])
        assert not found.bound
        assert re.search(rf"{size:,} +{' +'.join(map(re.escape, found.texts.values()))}\n", text)
    assert "All columns together" in text


@pytest.mark.parametrize("sizes", [(), read_sizes({"median": 10, "largest": 1000})])
def test_counts_cost_every_record_the_same(sizes):
    account = Account()
    account.charge(Charge(ss.RecordPolicy(((None, ConstantPolicy(0.02)),))))
    first, *rest = account.spent.describe(sizes).split("\n")
    assert first == "1 release so far."
    assert rest[:3] == [
        "Every record may have lost the same.",
        "  being counted: 0.02 for every record",
        "All columns together:",
    ]
    texts = explain([Loss(0.02)], [None]).texts.values()
    assert rest[4].split() == f"every record {' '.join(texts)} (bound from the loss)".split()
    assert len(rest) == 7


def test_a_description_mentions_a_pure_total_only_if_there_is_one():
    laplace = ss.GeneralizedGaussian(sigma=10, p=1)
    account = Account()
    account.charge(Charge(*(ss.RecordPolicy((("x", one),)) for one in (laplace.policy, laplace.pure_policy))))
    assert str(account.spent).endswith("\nThere is also a pure guarantee (PRDP): x / 10")
    account.charge(Charge(POLICY))
    assert "There is also a pure guarantee" not in str(account.spent)


def test_descriptions_use_the_sizes_where_losses_grow():
    """A column in dollars is described at sizes in dollars, not at 1 to 1,000,000; stated sizes have their names."""
    session = ss.Session(RECORDS, bits=Recorded(1))
    session.sum({"x": ss.Gaussian(sigma=1e9)}, count=ss.Gaussian(sigma=10))
    text = str(session.spent)
    assert f"x: {format_number(0.005)} at 10⁸, {format_number(0.5)} at 10⁹, 50 at 10¹⁰, 5,000 at 10¹¹" in text
    assert re.search(r"All columns together:\n.*\n  10⁸ +0\.01 +none ", text)
    assert "not from the records: the largest may be larger" in text
    stated = session.spent.describe(read_sizes({"median": 5e7, "largest": {"x": 4e10}}))
    assert "800 at 40,000,000,000 (largest)" in stated
    assert re.search(r"\n  largest +801 +none +100 % +100 % ", stated)
    assert "not from the records" not in stated
    partly = session.spent.describe(read_sizes({"largest": {"y": 4e10}}))
    assert "x: no size is stated" in partly
    assert "totals over the columns are not shown" in partly


def test_other_files_are_never_overwritten(path):
    for content, code in ((b"", "empty"), (b"just some notes", "damaged"), (os.urandom(5000), "damaged")):
        path.write_bytes(content)
        with refused(ss.LedgerError, code=code):
            ss.Ledger(path)
        assert path.read_bytes() == content
    path.unlink()
    with raw(path) as other:
        other.execute("CREATE TABLE theirs (a)")
    before = path.read_bytes()
    with refused(ss.LedgerError, code="foreign"):
        ss.Session(RECORDS, path)
    assert path.read_bytes() == before


def test_a_newer_ledger_is_refused(path):
    ss.Ledger(path)
    with raw(path) as file:
        file.execute("PRAGMA user_version = 99")
    with refused(ss.LedgerError, code="newer"):
        ss.Ledger(path)


def test_paths_that_cannot_be_a_ledger(tmp_path, path):
    with refused(ss.LedgerError, code="unwritable"):
        ss.Ledger(tmp_path / "no" / "such.ledger")
    with refused(ss.LedgerError, code="not-a-file"):
        ss.Ledger(tmp_path)
    with refused(ss.ParameterTypeError, "ledger", code="type"):
        ss.Session(RECORDS, 5)
    ss.Ledger(path)
    if os.geteuid():
        path.chmod(0o444)
        with refused(ss.LedgerError, code="unwritable"):
            ss.Ledger(path)


def test_caps_are_fixed_when_the_ledger_is_created(path):
    caps = {"x": ss.Gaussian(sigma=10).policy}
    ss.Ledger(path, caps)
    assert ss.Ledger(path, caps).caps == ss.Ledger(path).caps == caps
    with refused(ss.ParameterError, "caps", code="mismatch"):
        ss.Ledger(path, {"x": ss.Gaussian(sigma=5).policy})
    for wrong, subject, code in [
        (3, "caps", "type"),
        ({"x": "3"}, "caps['x']", "type"),
        ({"x": -3}, "loss", "value"),
        ({3: ss.Gaussian(sigma=1).policy}, "the names of caps", "type"),
        ({"x": ss.GeneralizedGaussian(sigma=1, p=1).pure_policy}, "caps['x']", "value"),
    ]:
        with refused(ss.SlowscaleError, subject, code=code):
            ss.Ledger(path.with_name("new.ledger"), wrong)
    assert not path.with_name("new.ledger").exists()
    with refused(ss.ParameterError, "caps"):
        ss.Session(RECORDS, ss.Ledger(path), caps)


def test_user_given_functions(path):
    mechanism = ss.Transformation(_root, _square, sigma=1, a=0, estimator="median")
    session = ss.Session(RECORDS, bits=Recorded(1))
    session.sum({"x": mechanism})
    assert session.spent({"x": 100}) == pytest.approx(50)
    with refused(ss.ParameterError, "facts", code="not-written"):
        ss.Session(RECORDS, ss.Ledger(path), bits=Forbidden()).sum({"x": mechanism})
    with refused(ss.ParameterError):
        ss.Ledger(path).charge(Charge(ss.RecordPolicy((("x", mechanism.policy),))))
    assert len(ss.Ledger(path).history()) == 1


def _root(x):
    return x**0.5


def _square(x):
    return x * x


def filled(path, count=6):
    ledger = ss.Ledger(path, {"x": 100 * ss.Gaussian(sigma=10).policy})
    for i in range(count):
        ledger.charge(asked({**FACTS, "id": str(i), "note": f"release {i}"}))
    return ledger


def test_tampering_with_rows_is_detected(tmp_path):
    """500 mutations: a changed byte, a deleted row, two rows swapped, a cut-off end, a copied row."""
    generator = random.Random(5)
    filled(tmp_path / "original")
    original = (tmp_path / "original").read_bytes()  # everything is in one file, even while it is open
    path = tmp_path / "copy"
    for _ in range(500):
        for leftover in tmp_path.glob("copy*"):
            leftover.unlink()
        path.write_bytes(original)
        with raw(path) as file:
            rows = file.execute("SELECT id, payload, hash FROM entries").fetchall()
            number, payload, digest = generator.choice(rows)
            kind = generator.choice(["payload", "payload", "payload", "hash", "delete", "swap", "cut", "head", "copy"])
            if kind in ("payload", "hash"):
                text = payload if kind == "payload" else digest
                at = generator.randrange(len(text))
                letter = generator.choice([c for c in 'abc019{}", ' if c != text[at]])
                changed = text[:at] + letter + text[at + 1 :]
                file.execute(f"UPDATE entries SET {kind} = ? WHERE id = ?", (changed, number))
            elif kind == "delete":
                file.execute("DELETE FROM entries WHERE id = ?", (number,))
            elif kind == "swap":
                other = generator.choice([row for row in rows if row[0] != number])
                for target, source in ((number, other), (other[0], (number, payload, digest))):
                    file.execute("UPDATE entries SET payload = ?, hash = ? WHERE id = ?", (*source[1:], target))
            elif kind == "cut":
                file.execute("DELETE FROM entries WHERE id >= ?", (max(number, 2),))
            elif kind == "head":
                file.execute("UPDATE head SET id = ?", (generator.choice([0, 1, 3, 99]),))
            else:
                file.execute("INSERT INTO entries VALUES (?, ?, ?)", (len(rows) + 1, payload, digest))
        ledger = ss.Ledger(path)
        assert ledger.verify(), kind
        with pytest.raises(ss.LedgerError):
            ledger.charge(asked())


def test_any_changed_byte_of_a_stored_charge_is_detected(tmp_path):
    """Bytes of the file itself, where the charges are stored: detected on opening or by verify."""
    filled(tmp_path / "original").close()
    with raw(tmp_path / "original") as file:
        file.execute("VACUUM")  # no stale copies of rows
        rows = file.execute("SELECT payload, hash FROM entries").fetchall()
    original = bytearray((tmp_path / "original").read_bytes())
    generator = random.Random(6)
    texts = [text.encode() for row in rows for text in row]
    places = [original.index(text) + at for text in texts for at in range(len(text))]
    path = tmp_path / "copy"
    for at in generator.sample(places, 150):
        for leftover in tmp_path.glob("copy*"):
            leftover.unlink()
        changed = bytearray(original)
        changed[at] ^= generator.randrange(1, 128)
        path.write_bytes(changed)
        try:
            found = ss.Ledger(path).verify()
        except ss.LedgerError as error:
            found = [str(error)]
        assert found, at


def test_removed_entries_are_detected_by_a_published_head(path):
    """Removing the newest entries and rewriting the head is detected by any release with a later head."""
    ledger = filled(path)
    head = ledger.head
    with raw(path) as file:
        file.execute("DELETE FROM entries WHERE id > 3")
        file.execute("UPDATE head SET id = 3, hash = (SELECT hash FROM entries WHERE id = 3)")
    assert ss.Ledger(path).verify() == []
    (problem,) = ss.Ledger(path).verify(head)
    assert problem == "entry 7 does not have the hash that was given: entries were removed or changed"
    with refused(ss.LedgerError, code="changed"):
        ledger.charge(asked())


def test_a_ledger_that_was_emptied_is_detected_by_a_published_head(path):
    ledger = filled(path)
    head = ledger.head
    with raw(path) as file:
        file.execute("DELETE FROM entries")
    with refused(ss.LedgerError, code="changed"):
        ledger.charge(asked())
    with raw(path) as file:
        file.execute("UPDATE head SET id = 0, hash = ?", ("0" * 64,))
    (problem,) = ss.Ledger(path).verify(head)
    assert problem == "entry 7 does not have the hash that was given: entries were removed or changed"
    with refused(ss.ParameterError, "caps", code="mismatch"):
        ss.Ledger(path, {"x": 100 * ss.Gaussian(sigma=10).policy})


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE entries SET hash = 'x' WHERE id = 7",  # the newest entry that was read
        "UPDATE entries SET id = 8 WHERE id = 7",
        "UPDATE head SET id = 8",
        "UPDATE head SET hash = 'x'",
        "DELETE FROM head",
        "INSERT INTO entries SELECT 8, payload, hash FROM entries WHERE id = 7",  # the number fits, the hash does not
        "INSERT INTO entries SELECT 9, payload, hash FROM entries WHERE id = 7",
    ],
)
def test_a_change_of_an_open_ledger_is_detected(path, change):
    ledger = filled(path)
    with raw(path) as file:
        file.execute(change)
    for use in (lambda: ledger.charge(asked()), ledger.ready, lambda: ledger.spent):
        with refused(ss.LedgerError, code="removed" if " head" in change else "changed"):
            use()
    assert ledger.verify()
    assert ss.Ledger(path).verify()


def test_a_skipped_number_is_detected_although_its_hash_is_right(path):
    """The hash of an entry covers its number, so whoever skips one can compute it; the gap still shows."""
    ledger = filled(path)
    with raw(path) as file:
        ((payload,),) = file.execute("SELECT payload FROM entries WHERE id = 7").fetchall()
        digest = link_hash(ledger.head["hash"], 9, payload)
        file.execute("INSERT INTO entries VALUES (9, ?, ?)", (payload, digest))
        file.execute("UPDATE head SET id = 9, hash = ?", (digest,))
    with refused(ss.LedgerError, code="changed"):
        ledger.charge(asked())
    assert ledger.verify() == ["entry 8 is missing"]
    with refused(ss.LedgerError, code="changed"):
        ss.Ledger(path).charge(asked())


def test_an_added_entry_with_a_wrong_hash_is_detected_although_the_head_fits(path):
    ledger = filled(path)
    with raw(path) as file:
        file.execute("INSERT INTO entries SELECT 8, payload, 'x' FROM entries WHERE id = 7")
        file.execute("UPDATE head SET id = 8, hash = 'x'")
    for opened in (ledger, ss.Ledger(path)):
        with refused(ss.LedgerError, code="changed"):
            opened.charge(asked())
        assert opened.verify() == ["entry 8 was changed, or an entry before it"]


UNDO_CHARGES = """CREATE TRIGGER undo AFTER UPDATE ON head WHEN new.id > 1 BEGIN
    DELETE FROM entries WHERE id > 1;
    UPDATE head SET id = 1, hash = (SELECT hash FROM entries);
END"""
FOREIGN_SCHEMAS = {
    "a trigger that undoes charges": UNDO_CHARGES,
    "a trigger on entries": "CREATE TRIGGER t AFTER INSERT ON entries BEGIN DELETE FROM entries WHERE id = new.id; END",
    "a further table": "CREATE TABLE notes (text TEXT)",
    "a view": "CREATE VIEW v AS SELECT * FROM entries",
    "an index": "CREATE INDEX i ON entries (hash)",
    "a further column": "ALTER TABLE head ADD COLUMN note TEXT",
    "a view in place of a table": """ALTER TABLE entries RENAME TO hidden;
        CREATE VIEW entries AS SELECT id, payload, hash FROM hidden;
        CREATE TRIGGER t INSTEAD OF INSERT ON entries BEGIN SELECT 1; END""",
    "a table with other rules": """ALTER TABLE entries RENAME TO old;
        CREATE TABLE entries (id INTEGER PRIMARY KEY ON CONFLICT IGNORE, payload TEXT NOT NULL, hash TEXT NOT NULL);
        INSERT INTO entries SELECT * FROM old; DROP TABLE old""",
}


@pytest.mark.parametrize("statements", FOREIGN_SCHEMAS.values(), ids=FOREIGN_SCHEMAS)
@pytest.mark.parametrize("opened", [False, True], ids=["before", "while open"])
def test_a_ledger_with_another_schema_is_refused(path, statements, opened):
    """A trigger could undo each charge right after it was made: the file may hold the two known tables only."""
    ledger = ss.Ledger(path, {"x": ss.Gaussian(sigma=10).policy})
    if not opened:
        ledger.close()
    with raw(path) as file:
        file.executescript(statements)
    ledger = ledger if opened else ss.Ledger(path)
    assert any("tables, triggers, views or indexes" in problem for problem in ledger.verify())
    for use in (ledger.ready, lambda: ledger.charge(asked()), lambda: ledger.spent, ledger.history):
        with refused(ss.LedgerError, code="schema"):
            use()
    with refused(ss.LedgerError, code="schema"):
        ss.Session(RECORDS, path, bits=Forbidden()).sum({"x": ss.Gaussian(sigma=10)})


def test_a_charge_is_read_back_before_noise_is_drawn(path, monkeypatch):
    """Whatever undoes a charge at its commit is noticed, although the schema was not checked."""
    session = ss.Session(RECORDS, path, {"x": ss.Gaussian(sigma=10).policy}, bits=Forbidden())
    with raw(path) as file:
        file.executescript(UNDO_CHARGES)
    monkeypatch.setattr(storage.LedgerFile, "_check_schema", lambda self, connection: None)
    with refused(ss.LedgerError, code="changed"):
        session.sum({"x": ss.Gaussian(sigma=10)})
    with refused(ss.LedgerError, code="changed"):
        session.ledger.ready()


def test_a_newest_entry_with_another_text_is_noticed(path):
    """The hash beside the text stays: the text itself is compared, too."""
    ledger = ss.Ledger(path)
    ledger.charge(asked())
    with raw(path) as file:
        file.execute("UPDATE entries SET payload = replace(payload, '10.0', '99.0') WHERE id = 2")
    with refused(ss.LedgerError, code="changed"):
        ledger.charge(asked())


def test_the_schema_of_a_ledger_runs_no_functions(path):
    assert ss.Ledger(path)._file.connection().execute("PRAGMA trusted_schema").fetchone() == (0,)


def test_problems_that_sqlite_finds_are_reported(path):
    ledger = filled(path, 1)
    with raw(path) as file:
        file.execute("PRAGMA ignore_check_constraints = ON")
        file.execute("UPDATE head SET one = 2")
    assert ledger.verify() == ["SQLite: CHECK constraint failed in head"]


def test_threads(path):
    ledger = ss.Ledger(path, {"x": 30 * ss.Gaussian(sigma=10).policy})
    done = []

    def work():
        for _ in range(10):
            try:
                ledger.charge(asked())
                done.append(1)
            except ss.CapError:
                done.append(0)

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(done), sum(done)) == (50, 30)
    assert ss.Ledger(path).verify() == []


def test_checks_beside_charges_miss_none(path, monkeypatch):
    """While one thread adds up charges, no other may add entries to the account: the total would miss them."""
    ledger, other = ss.Ledger(path, {"x": 12 * ss.Gaussian(sigma=10).policy}), ss.Ledger(path)
    add_up = account._add_charges
    monkeypatch.setattr(account, "_add_charges", lambda *given: (time.sleep(0.005), add_up(*given))[1])
    stop = threading.Event()

    def ask():
        while not stop.is_set():
            ledger.check(asked())

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(11):
        other.charge(asked())  # the first ledger must read this from the file
        time.sleep(0.02)
    stop.set()
    for thread in threads:
        thread.join()
    ledger.charge(asked())
    with pytest.raises(ss.CapError):
        ledger.charge(asked())


def test_a_writer_waits_while_someone_reads(path, monkeypatch):
    """A read transaction of another program delays a charge, and nothing is written partially."""
    ledger = filled(path)
    with raw(path) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM entries").fetchall()
        writer = threading.Thread(target=ledger.charge, args=(asked(),))
        writer.start()
        writer.join(0.3)
        assert writer.is_alive()
        assert len(reader.execute("SELECT id FROM entries").fetchall()) == 7
        reader.execute("ROLLBACK")
        writer.join()
        assert len(ledger.history()) == 8
        monkeypatch.setattr("slowscale.accounting.storage.LOCK_TIMEOUT", 0.1)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM entries").fetchall()
        impatient = ss.Ledger(path)
        with refused(ss.LedgerError, code="busy"):
            impatient.charge(asked())
        assert len(impatient.history()) == 8


@pytest.mark.parametrize("begin", ["BEGIN", "BEGIN IMMEDIATE"])
def test_a_ledger_that_stays_locked_is_not_ready(path, monkeypatch, begin):
    """It is not ready while another program reads or writes."""
    monkeypatch.setattr("slowscale.accounting.storage.LOCK_TIMEOUT", 0.1)
    ledger = filled(path)
    before, head = path.read_bytes(), ledger.head
    ledger.ready()
    with raw(path) as other:
        other.execute(begin)
        other.execute("SELECT * FROM entries").fetchall()
        with refused(ss.LedgerError, code="busy"):
            ledger.ready()
        other.execute("ROLLBACK")
        ledger.ready()
        other.execute("BEGIN EXCLUSIVE")  # ready keeps no lock
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]
    assert ledger.head == head
    ledger.charge(asked())
    assert ledger.verify(head) == []


def test_a_ledger_that_was_changed_is_not_ready(path):
    ledger = filled(path)
    with raw(path) as file:
        file.execute("UPDATE head SET hash = 'x'")
    with refused(ss.LedgerError, code="removed"):
        ledger.ready()
    path.unlink()
    with refused(ss.LedgerError, code="moved"):
        ledger.ready()


def test_every_commit_is_flushed_to_the_disk_with_its_folder(path):
    """Otherwise a power loss could undo a charge whose noise is published: synchronous = EXTRA, in SQLite's words."""
    for ledger in (ss.Ledger(path), ss.Ledger(path)):  # a new one, and one that exists
        assert ledger._file.connection().execute("PRAGMA synchronous").fetchone() == (3,)


def test_a_ledger_that_is_moved_during_a_charge_raises_before_noise_is_drawn(path):
    """The charge is in the moved file, but the next session would create a new one without it."""
    ledger = ss.Ledger(path)

    def move(statement):
        if statement == "COMMIT":  # at the first write, SQLite itself would notice
            path.rename(path.with_name("elsewhere.ledger"))

    ledger._file.connection().set_trace_callback(move)
    with refused(ss.LedgerError, code="moved"):
        ledger.charge(asked())


def test_a_file_that_is_not_a_ledger_is_refused(path):
    path.write_text("state,cattle\nIA,120\n")
    with refused(ss.LedgerError, f"ledger {str(path)!r}", code="damaged"):
        ss.Ledger(path)
    with refused(ss.LedgerError, f"ledger {str(path)!r}", code="damaged"):
        ss.Session(RECORDS, path)
    assert path.read_text() == "state,cattle\nIA,120\n"


def test_a_hard_link_is_refused(path):
    """Under a second name SQLite would not find the journal that a crashed writer left under the first name."""
    ledger = filled(path, 1)
    other = path.with_name("same.ledger")
    os.link(path, other)
    for name in (path, other):
        with refused(ss.LedgerError, f"ledger {name}", code="second-name"):
            ss.Ledger(name)
    with refused(ss.LedgerError, code="second-name"):
        ledger.charge(asked())
    other.unlink()
    ledger.charge(asked())
    assert len(ss.Ledger(path).history()) == 3


def test_a_symbolic_link_is_the_same_ledger(path, tmp_path):
    ledger = filled(path, 1)
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link.ledger"
    link.symlink_to(path)
    other = ss.Ledger(link)
    other.charge(asked())
    ledger.charge(asked())
    assert other.head == ledger.head == {"entry": 4, "hash": ledger.head["hash"]}
    assert os.listdir(link.parent) == ["link.ledger"]


def test_mount_points_are_read(path, tmp_path, monkeypatch):
    """A file that is a mount point is refused, also through a symbolic link; the integration tests mount a real one."""
    spaced = tmp_path / "my census.ledger"
    filled(spaced, 1)
    (tmp_path / "link").symlink_to(spaced)
    mounts = tmp_path / "mountinfo"
    mounted = str(spaced).replace(" ", "\\040")
    mounts.write_text(f"22 1 8:1 / / rw - ext4 /dev/sda rw\n23 22 8:1 /x {mounted} rw - ext4 /dev/sda rw\n")
    monkeypatch.setattr("slowscale.accounting.storage.MOUNTS", mounts)
    for name in (spaced, tmp_path / "link"):
        with refused(ss.LedgerError, code="mounted"):
            ss.Ledger(name)
    ss.Ledger(path)
    monkeypatch.setattr("slowscale.accounting.storage.MOUNTS", tmp_path / "none")  # a system without that list
    ss.Ledger(spaced)


def test_a_creation_that_was_stopped_is_finished(path):
    """The process was killed after it linked the ledger to its path and before it removed the temporary name."""
    filled(path, 1).close()
    unfinished, stranger = path.with_name(".census.ledger.0123456789ab"), path.with_name(".census.ledger.ba9876543210")
    os.link(path, unfinished)
    stranger.write_text("another file")
    assert len(ss.Ledger(path).history()) == 2
    assert not unfinished.exists()
    assert stranger.exists()


def test_a_ledger_is_for_its_owner_and_group(path):
    ss.Ledger(path)
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o660 & ~mask


SPILLING = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE head SET id = 99")
for i in range(200):
    connection.execute("INSERT INTO entries VALUES (?, ?, '')", (1000 + i, "x" * 4000))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_journal_left_by_a_killed_process_is_rolled_back(path):
    ledger = filled(path)
    ledger.close()
    before = path.read_bytes()
    subprocess.run([sys.executable, "-c", SPILLING, str(path)])
    journal = path.with_name("census.ledger-journal")
    assert journal.stat().st_size > 0
    assert path.read_bytes() != before  # half of the transaction is in the file
    again = ss.Ledger(path)
    assert not journal.exists()
    assert again.verify(ledger.head) == []
    again.charge(asked())
    assert len(ledger.history()) == 8


def test_a_journal_without_a_ledger_is_refused(path, monkeypatch):
    """The journal of a removed ledger is refused; the journal of a ledger that was just created is not."""
    journal = path.with_name("census.ledger-journal")
    journal.write_bytes(b"left")
    with refused(ss.LedgerError, code="exists"):
        ss.Ledger(path)
    journal.unlink()
    ss.Ledger(path)
    answers = iter([False])  # as if another process created the ledger just after this check
    exists = os.path.lexists
    monkeypatch.setattr(os.path, "lexists", lambda name: next(answers, None) is not False and exists(name))
    journal.touch()
    assert len(ss.Ledger(path).history()) == 1


def test_a_ledger_in_write_ahead_mode_is_refused(path):
    ledger = filled(path, 2)
    ledger.close()
    with raw(path) as file:
        file.execute("PRAGMA journal_mode = WAL")
    with refused(ss.LedgerError, code="write-ahead"):
        ss.Ledger(path)
    assert "write-ahead mode" in ledger.verify()[0]
    with refused(ss.LedgerError, code="write-ahead"):
        ledger.charge(asked())
    with raw(path) as file:
        file.execute("PRAGMA journal_mode = DELETE")
    assert len(ss.Ledger(path).history()) == 3
    assert ledger.verify() == []


def test_another_programs_database_is_not_changed(path):
    with raw(path) as other:
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("CREATE TABLE theirs (a)")
    before = path.read_bytes()
    with refused(ss.LedgerError, code="foreign"):
        ss.Ledger(path)
    assert path.read_bytes() == before


def test_payloads_are_plain_json(path):
    filled(path, 1)
    with raw(path) as file:
        payloads = [json.loads(text) for (text,) in file.execute("SELECT payload FROM entries")]
    assert [payload["kind"] for payload in payloads] == ["created", "charge"]
    assert Path(path).stat().st_size < 100_000


def test_caps_that_the_ledger_does_not_have(tmp_path):
    one, other = ss.Gaussian(sigma=1).policy, ss.Gaussian(sigma=2).policy
    ss.Ledger(tmp_path / "none")
    with refused(ss.ParameterError, "caps", code="mismatch", path=("x",)):
        ss.Ledger(tmp_path / "none", {"x": one})
    ss.Ledger(tmp_path / "some", {"x": one})
    with refused(ss.ParameterError, "caps", code="mismatch", path=("y",)):
        ss.Ledger(tmp_path / "some", {"x": one, "y": one})
    with refused(ss.ParameterError, "caps", code="mismatch", path=()):
        ss.Ledger(tmp_path / "some", {"X": other})


def test_a_derived_column_gets_its_cap_with_the_ledger(tmp_path):
    records = pd.DataFrame({"cattle": [1, 2]})
    caps = {"cattle": ss.Gaussian(sigma=1).policy, "x": ss.Gaussian(sigma=1).policy}
    with refused(ss.ParameterError, "caps"):
        ss.Session(records, caps=caps)
    session = ss.Session(records, ss.Ledger(tmp_path / "l", caps))
    assert len(session.sum({"x": ss.Gaussian(sigma=1)}, derive={"x": "cattle * 2"})) == 1
