"""Accounts, ledgers and deferred ledgers have the same methods; entries are values."""

import json
import pickle
import sqlite3
from contextlib import closing
from dataclasses import FrozenInstanceError, fields

import pandas as pd
import pytest
from helpers.bitsources import Recorded
from helpers.errors import refused

import slowscale as ss
from slowscale.accounting import Account, Charge, DeferredLedger, Loss, Spent
from slowscale.accounting.entries import Attempted, CapSet, Charged, Created, cap_changes, read_entry, serialized
from slowscale.accounting.explanation import explain
from slowscale.core.data_errors import Name

TEN = ss.Gaussian(sigma=10)
CHARGE = Charge(ss.RecordPolicy((("x", TEN.policy),)))
CAPS = {"x": 2 * TEN.policy, "*": TEN.policy}
RECORDS = pd.DataFrame({"state": ["IA", "TX"], "x": [10, 20], "y": [1, 2]})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "census.ledger"


@pytest.fixture(params=["account", "ledger", "deferred"])
def accountant(request, path):
    made = {"account": Account, "ledger": lambda caps: ss.Ledger(path, caps)}
    return made.get(request.param, lambda caps: DeferredLedger(path, caps))(CAPS)


def payloads(path):
    with closing(sqlite3.connect(path)) as file:
        return [text for (text,) in file.execute("SELECT payload FROM entries ORDER BY id")]


def test_every_accountant_takes_the_same_calls(accountant):
    assert dict(accountant.caps) == CAPS
    assert accountant.spent.releases == 0
    for _ in range(2):
        accountant.check(CHARGE)
        accountant.ready()
        accountant.charge(CHARGE)
    for refuse in (accountant.check, accountant.charge, accountant.account.charge):
        with refused(ss.CapError, "the cap on 'x'", code="cap"):
            refuse(CHARGE)
    accountant.attempt(CHARGE, ss.DataError("nulls", column=Name("x")))
    accountant.attempt({"policy": None}, ss.DataError("nulls", column=Name("x")))
    accountant.check_dataset("farms")
    copied = accountant.account
    copied.charge(Charge(ss.RecordPolicy((("y", TEN.policy),))))
    assert accountant.spent.releases == 2
    assert accountant.spent({"x": 10}) == 1


def test_every_accountant_serves_a_session(accountant):
    session = ss.Session._charging(accountant, RECORDS, bits=Recorded(1))
    first = session.sum({"x": TEN})
    session.sum({"x": TEN}, keys=ss.Keys.cross({"state": ["IA", "TX"]}), partition="state")
    with refused(ss.CapError, "the cap on 'x'", code="cap") as caught:
        session.sum({"x": TEN})
    assert "would still fit" in str(caught.value) or caught.value.full
    assert session.spent == accountant.spent
    assert session.spent.releases == 2
    if isinstance(accountant, Account):
        assert session.ledger is None
        assert first.facts.ledger is None
    else:
        assert first.facts.ledger.entry == 2
        assert [entry["kind"] for entry in session.ledger.history()] == ["created", "charge", "charge", "attempt"]
        facts = {name: fact for name, fact in first.facts.to_dict().items() if name != "ledger"}
        assert session.ledger.history()[1]["facts"] == json.loads(json.dumps(facts))


def test_a_session_takes_a_path_or_a_ledger_and_no_copy_of_its_account(path):
    """What is charged to a copy never reaches the ledger: a cap for one release would allow any number."""
    ledger = ss.Ledger(path, {"x": TEN.policy})
    for other in (ledger.account, Account(), DeferredLedger(path), 5, b"census.ledger", [path]):
        with refused(ss.ParameterTypeError, "ledger", code="type"):
            ss.Session(RECORDS, other, bits=Recorded(1))
        with refused(ss.ParameterTypeError, "ledger", code="type"):
            ss.Session(RECORDS, ledger=other, caps=CAPS)
    with refused(ss.ParameterError, "caps"):
        ss.Session(RECORDS, ledger, CAPS)
    for given in (str(path), path, ledger):
        before = ledger.spent.releases
        ss.Session(RECORDS, given, bits=Recorded(1)).sum({"x": ss.Gaussian(sigma=30)})
        assert ledger.spent.releases == before + 1


def test_a_deferred_ledger_is_created_by_its_first_charge(path):
    deferred = DeferredLedger(path, CAPS, dataset=" farms ", remedy="raise the cap in the plan")
    session = ss.Session._charging(deferred, RECORDS.assign(y=[1.0, None]), dataset="farms", bits=Recorded(1))
    with refused(ss.DataError):
        session.sum({"y": TEN})
    with refused(ss.CapError, "the cap on 'x'", code="cap") as caught:
        session.sum({"x": ss.Gaussian(sigma=1)})
    assert caught.value.remedy == "raise the cap in the plan"
    assert deferred.attempt(CHARGE, ss.DataError("no-records")) is None
    assert not path.exists()
    assert session.ledger is None
    session.sum({"x": TEN})
    assert session.ledger.dataset == "farms"
    with refused(ss.CapError, "the cap on 'x'", code="cap") as caught:
        session.sum({"x": ss.Gaussian(sigma=1)})
    assert caught.value.remedy is None
    with refused(ss.DataError):
        session.sum({"y": TEN})
    assert [entry["kind"] for entry in session.ledger.history()] == ["created", "charge", "attempt", "attempt"]
    assert DeferredLedger(path, dataset="farms").spent == session.spent
    with refused(ss.LedgerError, code="missing"):
        DeferredLedger(path)
    with refused(ss.ParameterError, "caps", code="mismatch"):
        DeferredLedger(path, {"x": TEN.policy}, dataset="farms")


def test_a_deferred_ledger_that_another_process_creates_in_the_meantime(path):
    same, other = DeferredLedger(path, CAPS), DeferredLedger(path, {"x": TEN.policy})
    ss.Ledger(path, CAPS).charge(CHARGE)
    other.attempt(CHARGE, ss.CapError(column="x", influence=10, spent=1, cap=0.5))
    with refused(ss.ParameterError, "caps", code="mismatch"):
        other.charge(CHARGE)
    same.charge(CHARGE)
    with pytest.raises(ss.CapError):
        same.charge(CHARGE)
    assert [entry["kind"] for entry in same.ledger.history()] == ["created", "charge", "attempt", "charge"]


@pytest.mark.parametrize(
    "entry",
    [
        Created(caps=CAPS),
        Created(caps={}, dataset="farms"),
        CapSet(column="x", cap=3 * TEN.policy, reason="a third year"),
        Charged(charge=CHARGE),
        Charged(charge=Charge(CHARGE.policy, by="state", labels=("IA", 5), kind="text", protects="firm")),
        Attempted(asked={"policy": None}, error="DataError", message="column 'x' has missing values"),
    ],
)
def test_entries_are_values(entry):
    again = serialized(entry)
    assert again == entry == type(entry).from_dict(entry.to_dict())
    assert again.to_dict() == entry.to_dict()
    assert read_entry(again.text) == pickle.loads(pickle.dumps(entry)) == entry
    assert again.text == json.dumps(entry.to_dict(), sort_keys=True)
    with pytest.raises(FrozenInstanceError):
        entry.time = "now"


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (Created, {"caps": CAPS}),
        (CapSet, {"column": "x", "cap": TEN.policy, "reason": "why"}),
        (Charged, {"charge": CHARGE}),
        (Attempted, {"asked": {}, "error": "DataError", "message": "no"}),
    ],
)
def test_the_content_of_an_entry_is_given_by_name(kind, content):
    kind(**content)
    with pytest.raises(TypeError):
        kind(*content.values())
    with pytest.raises(TypeError):
        kind("2024-01-01", **content)


def test_texts_and_facts_are_not_shown():
    """The facts of a release and the text of an entry would make errors and logs unreadable."""
    charge = Charge(CHARGE.policy, facts={"policy": CHARGE.policy.to_dict(), "note": "long"})
    assert "long" not in repr(charge)
    assert charge == CHARGE
    assert "label_kind" not in repr(serialized(Charged(charge=CHARGE)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Charge(CHARGE.policy),
        lambda: CHARGE.policy + CHARGE.policy,
        lambda: (CHARGE.policy | CHARGE.policy).parallel[0],
        lambda: explain([Loss(1.0)]).losses[0],
        lambda: explain([Loss(1.0)]),
        lambda: Spent(()),
    ],
    ids=["Charge", "RecordPolicy", "Parallel", "Loss", "Explanation", "Spent"],
)
def test_values_cannot_be_changed(request, make):
    """They are shared: between accounts and their copies, and with whoever asked for them."""
    value = make()
    assert type(value).__name__ in request.node.name
    with pytest.raises(FrozenInstanceError):
        setattr(value, fields(value)[0].name, None)


def test_nothing_spent_is_zero_releases():
    assert Spent(()).releases == 0
    assert str(Spent(())) == "No release has been charged to this account yet."


def test_a_data_set_is_given_by_name(path):
    for make in (ss.Ledger, DeferredLedger):
        with pytest.raises(TypeError):
            make(path, CAPS, None, "farms")
    assert not path.exists()
    assert ss.Ledger(path=path, caps=CAPS).caps == DeferredLedger(path=path, caps=CAPS).caps


def test_an_attempt_at_a_charge_keeps_what_was_asked():
    partly = Charge(CHARGE.policy, by="state", labels=("IA",), kind="text", facts={"policy": None, "id": "7"})
    found = serialized(Attempted(asked=partly, error="CapError", message="no")).to_dict()
    assert found["facts"] == {"policy": None, "id": "7"}
    assert (found["by"], found["labels"], found["label_kind"]) == ("state", ["IA"], "text")


def test_the_history_is_what_is_in_the_file(path):
    with ss.Ledger(path, {"x": 9 * TEN.policy}) as ledger:
        ledger.charge(CHARGE)
        before = payloads(path)
        history = ledger.history()
        history[0]["caps"] = history[-1]["kind"] = None
        assert ledger.history() == list(map(json.loads, before))
        ledger.attempt({"policy": None}, ss.DataError("no-records"))
        assert ledger.verify() == []
    assert payloads(path)[:-1] == before


def test_the_file_format_is_fixed(path):
    """Other versions read a ledger, too, so the names and the order of its parts are fixed."""
    facts = {"policy": CHARGE.policy.to_dict(), "largest": {"x": 40}}
    with ss.Ledger(path, {"x": 9 * TEN.policy}, dataset="farms", largest={"x": 40}) as ledger:
        ledger.charge(Charge(CHARGE.policy, by="state", labels=("IA",), kind="text", facts=facts))
        ledger.set_cap("x", 10 * TEN.policy, "a tenth year")
        ledger.attempt({"where": "x > 5"}, ss.DataError("no-records"))
        ledger.set_largest("x", 0.5, "by law")
    created, charged, raised, attempted, lowered = (json.loads(text) for text in payloads(path))
    assert all(text == json.dumps(json.loads(text), sort_keys=True) for text in payloads(path))
    times = [entry.pop("time") for entry in (created, charged, raised, attempted, lowered)]
    assert times == sorted(times)
    caps = {"caps": {"x": (9 * TEN.policy).to_dict()}, "band_caps": {}, "band": 1.1, "largest": {"x": 40}}
    assert created == {"kind": "created", **caps, "dataset": "farms"}
    part = {"by": "state", "labels": ["IA"], "label_kind": "text"}
    assert charged == {"kind": "charge", "facts": facts, **part}
    assert lowered == {"kind": "largest", "column": "x", "value": 0.5, "reason": "by law"}
    cap = {"column": "x", "cap": (10 * TEN.policy).to_dict(), "reason": "a tenth year", "band": False}
    assert raised == {"kind": "cap", **cap}
    empty = {"by": None, "labels": [], "label_kind": None}
    error = {"type": "DataError", "message": str(ss.DataError("no-records"))}
    assert attempted == {"kind": "attempt", "facts": {"where": "x > 5"}, **empty, "error": error}


def test_cap_changes_include_the_previous_cap():
    raised = [CapSet(column="x", cap=times * TEN.policy, reason="why") for times in (3, 4)]
    found = list(cap_changes([Created(caps=CAPS), raised[0], Charged(charge=CHARGE), raised[1]]))
    assert found == [(raised[0], CAPS["x"]), (raised[1], raised[0].cap)]
