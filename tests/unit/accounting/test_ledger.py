"""The ledger: durable, chained, capped, and never overwritten."""

import json
import os
import random
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest
from bitsources import Recorded

import slowscale as ss

RECORDS = pd.DataFrame({"state": ["IA", "IA", "TX"], "firm": ["a", "b", "a"], "x": [10, 20, 300], "y": [1, 2, 3]})
KEYS = ss.Keys.cross({"state": ["IA", "TX"]})
POLICY = ss.RecordPolicy((("x", ss.Gaussian(10).policy),))
FACTS = {"policy": POLICY.to_dict(), "pure_policy": None, "id": "0"}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "census.ledger"


def raw(path):
    return closing(sqlite3.connect(path, isolation_level=None))


def test_releases_are_charged_and_remembered(path):
    session = ss.Session(RECORDS, path, bits=Recorded(1))
    first = session.sum({"x": ss.Gaussian(10), "y": ss.ExponentialPolylog(1)}, keys=KEYS, where="x > 1")
    session.count(mechanism=ss.Gaussian(2))
    record = {"x": 20, "y": 2}
    total = ss.Gaussian(10).policy(20) + ss.ExponentialPolylog(1).policy(2) + 1 / 8
    assert session.spent(record) == pytest.approx(total)
    again = ss.Ledger(path)
    assert again.spent(record) == pytest.approx(total)
    assert again.verify() == []
    assert again.verify(first.facts["ledger"]) == []
    kinds = [entry["kind"] for entry in again.history()]
    assert kinds == ["created", "charge", "charge"]
    kept = again.history()[1]["facts"]
    assert kept["where"] == "x > 1"
    assert kept["columns"]["x"]["mechanism"] == {"type": "Gaussian", "sigma": 10.0}
    assert kept["keys"]["assumption"] == KEYS.assumption
    assert kept["slowscale"] == ss.__version__
    assert kept["id"] == first.facts["id"]


def test_without_a_ledger_the_session_keeps_account():
    session = ss.Session(RECORDS, caps={"x": 2 * ss.Gaussian(10).policy}, bits=Recorded(1))
    assert "Nothing has been released yet" in str(session.spent)
    session.sum({"x": ss.Gaussian(10)})
    session.sum({"x": ss.Gaussian(10)})
    assert session.spent({"x": 10}) == pytest.approx(1)
    with pytest.raises(ss.CapError):
        session.sum({"x": ss.Gaussian(10)})
    assert session.spent({"x": 10}) == pytest.approx(1)


def test_pure_totals_last_as_long_as_every_release_has_one():
    session = ss.Session(RECORDS, bits=Recorded(1))
    session.sum({"x": ss.GeneralizedGaussian(10, 0.5)})
    assert session.spent.pure_policy({"x": 40}) == pytest.approx(2)
    session.sum({"x": ss.Gaussian(10)})
    assert session.spent.pure_policy is None


def test_a_cap_refuses_and_nothing_is_drawn(path):
    class Forbidden:
        private = True

        def words(self, count):
            raise AssertionError("noise was drawn")

    caps = {"x": ss.Gaussian(10).policy, "*": ss.Root(2, 1).policy}
    ss.Session(RECORDS, path, caps, bits=Recorded(1)).sum({"x": ss.Gaussian(10), "y": ss.Root(2, 1)})
    session = ss.Session(RECORDS, path, bits=Forbidden())
    with pytest.raises(ss.CapError, match="the cap on 'x' would be exceeded"):
        session.sum({"x": ss.Gaussian(1000)})
    with pytest.raises(ss.CapError, match="the cap on 'y' would be exceeded"):
        session.sum({"y": ss.Root(2, 1000)})
    assert len(session.ledger.history()) == 2
    assert session.ledger.verify() == []


def test_counts_have_a_cap_at_one(path):
    session = ss.Session(RECORDS, path, {"count": ss.Gaussian(1).policy}, bits=Recorded(1))
    for _ in range(4):
        session.count(mechanism=ss.Gaussian(2))
    with pytest.raises(ss.CapError, match="the cap on 'count'"):
        session.count(mechanism=ss.Gaussian(2))


def test_parts_cost_the_larger_and_have_room_each(path):
    session = ss.Session(RECORDS, path, {"x": 2 * ss.Gaussian(10).policy}, bits=Recorded(1))
    for state in ("IA", "TX"):
        for _ in range(2):
            session.sum({"x": ss.Gaussian(10)}, keys=KEYS.filter(state=state), partition="state")
        with pytest.raises(ss.CapError):
            session.sum({"x": ss.Gaussian(10)}, keys=KEYS.filter(state=state), partition="state")
    assert session.spent({"x": 10}) == session.spent({"x": 10, "state": "TX"}) == pytest.approx(1)
    assert session.spent({"x": 10, "state": "NV"}) == 0
    session.sum({"x": ss.Gaussian(10)}, keys=ss.Keys.cross({"state": ["NV"]}), partition="state", where="x > 0")
    with pytest.raises(ss.CapError):
        session.sum({"x": ss.Gaussian(10)}, keys=KEYS)
    assert ss.Ledger(path).spent({"x": 10}) == pytest.approx(1)


def test_a_partition_must_be_a_column_of_the_data():
    session = ss.Session(RECORDS)
    with pytest.raises(ss.ParameterError, match="partition must be a key column, got 'y'"):
        session.sum({"x": ss.Gaussian(1)}, keys=KEYS, partition="y")
    with pytest.raises(ss.ParameterError, match="may be derived otherwise"):
        session.sum({"x": ss.Gaussian(1)}, keys=ss.Keys.cross({"part": [1]}), derive={"part": "y"}, partition="part")


def test_entities(path):
    session = ss.Session(RECORDS, path, protect="firm", bits=Recorded(1))
    release = session.sum({"x": ss.Root(2, 1)}, keys=KEYS, count=ss.Gaussian(2))
    assert release.facts["protects"].startswith("one firm: whether its records are there")
    cells = [{"x": 10, "count": 1}, {"x": 300, "count": 1}]
    assert release.policy.entity(cells) == pytest.approx(5 + 150 + 2 / 8)
    losses = session.losses(release)
    assert losses.records == 2
    assert losses.largest[1] == pytest.approx(155.25)
    with pytest.raises(ss.ParameterError, match="protect must stay what it was: earlier releases protect firm"):
        ss.Session(RECORDS, path, bits=Recorded(1)).sum({"x": ss.Gaussian(1)})
    with pytest.raises(ss.DataError, match="column 'firm', which is to be protected, has missing values"):
        ss.Session(RECORDS.assign(firm=["a", None, "b"]), protect="firm").sum({"x": ss.Gaussian(1)})
    with pytest.raises(ss.ParameterError, match="protect: there is no column 'none'"):
        ss.Session(RECORDS, protect="none")


def test_raising_a_cap_stays_visible(path):
    ledger = ss.Ledger(path, {"x": ss.Gaussian(10).policy})
    ledger.charge(FACTS)
    with pytest.raises(ss.CapError):
        ledger.charge(FACTS)
    ledger.raise_cap("x", 2 * ss.Gaussian(10).policy, "a second year")
    ledger.charge(FACTS)
    assert "The cap on x was raised on" in ledger.describe()
    assert "a second year" in ledger.describe()
    assert ss.Ledger(path).caps == {"x": 2 * ss.Gaussian(10).policy}
    with pytest.raises(ss.ParameterError, match="reason must say in words"):
        ledger.raise_cap("x", ss.Gaussian(1).policy, " ")
    with pytest.raises(ss.ParameterError, match="one that has a cap"):
        ledger.raise_cap("y", ss.Gaussian(1).policy, "why not")


def test_words(path):
    session = ss.Session(RECORDS, path, {"*": ss.Gaussian(1).policy}, bits=Recorded(1))
    session.sum({"x": ss.ExponentialPolylog(1)}, count=ss.GeneralizedGaussian(2, 1))
    text = session.ledger.describe()
    for words in ("1 release so far", "depends on its size", "at 10,000", "being counted", "as likely as not", "PRDP"):
        assert words in text
    assert "Cap on any other column" in text
    assert str(session.spent) in text


def test_other_files_are_never_overwritten(path):
    for content in (b"", b"just some notes", os.urandom(5000)):
        path.write_bytes(content)
        with pytest.raises(ss.LedgerError, match=r"census\.ledger"):
            ss.Ledger(path)
        assert path.read_bytes() == content
    path.unlink()
    with raw(path) as other:
        other.execute("CREATE TABLE theirs (a)")
    before = path.read_bytes()
    with pytest.raises(ss.LedgerError, match="another program's database"):
        ss.Session(RECORDS, path)
    assert path.read_bytes() == before


def test_a_newer_ledger_is_told(path):
    ss.Ledger(path)
    with raw(path) as file:
        file.execute("PRAGMA user_version = 99")
    with pytest.raises(ss.LedgerError, match="has version 99, this slowscale knows 1: update it"):
        ss.Ledger(path)


def test_places_where_no_ledger_can_be(tmp_path, path):
    with pytest.raises(ss.LedgerError, match="could not be made"):
        ss.Ledger(tmp_path / "no" / "such.ledger")
    with pytest.raises(ss.LedgerError, match="is no file"):
        ss.Ledger(tmp_path)
    with pytest.raises(ss.ParameterTypeError, match="ledger must be a path, got int"):
        ss.Session(RECORDS, 5)
    ss.Ledger(path)
    if os.geteuid():
        path.chmod(0o444)
        with pytest.raises(ss.LedgerError, match="is read-only"):
            ss.Ledger(path)


def test_caps_are_fixed_when_the_ledger_is_made(path):
    caps = {"x": ss.Gaussian(10).policy}
    ss.Ledger(path, caps)
    assert ss.Ledger(path, caps).caps == ss.Ledger(path).caps == caps
    with pytest.raises(ss.ParameterError, match="caps differ from those that"):
        ss.Ledger(path, {"x": ss.Gaussian(5).policy})
    for wrong, words in [
        (3, "caps must be a mapping"),
        ({"x": 3}, r"caps\['x'\] must be a policy"),
        ({3: ss.Gaussian(1).policy}, "named by a column"),
        ({"x": ss.GeneralizedGaussian(1, 1).pure_policy}, "to_zcdp"),
    ]:
        with pytest.raises(ss.SlowscaleError, match=words):
            ss.Ledger(path.with_name("new.ledger"), wrong)
    assert not path.with_name("new.ledger").exists()
    with pytest.raises(ss.ParameterError, match="caps must be given when the ledger is made"):
        ss.Session(RECORDS, ss.Ledger(path), caps)


def test_functions_of_ones_own(path):
    mechanism = ss.Transformation(_root, _square, sigma=1, a=0, estimator="median")
    functions = {f"{_root.__module__}._root": _root}
    session = ss.Session(RECORDS, ss.Ledger(path, functions=functions), bits=Recorded(1))
    session.sum({"x": mechanism})
    assert ss.Ledger(path, functions=functions).spent({"x": 100}) == pytest.approx(50)
    unnamed = ss.Transformation(lambda x: x**0.5, _square, sigma=1, a=0, estimator="median")
    with pytest.raises(ss.ParameterError, match="a nested function or lambda cannot be written to a ledger"):
        session.sum({"x": unnamed})


def _root(x):
    return x**0.5


def _square(x):
    return x * x


def filled(path, count=6):
    ledger = ss.Ledger(path, {"x": 100 * ss.Gaussian(10).policy})
    for i in range(count):
        ledger.charge({**FACTS, "id": str(i), "note": f"release {i}"})
    return ledger


def test_tampering_with_rows_is_seen(tmp_path):
    """500 mutations: a changed byte, a deleted row, two rows swapped, a cut-off end, a copied row."""
    generator = random.Random(5)
    filled(tmp_path / "original")
    original = (tmp_path / "original").read_bytes()  # all is in the one file, even while it is open
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
            ledger.charge(FACTS)


def test_any_changed_byte_of_a_stored_charge_is_seen(tmp_path):
    """Bytes of the file itself, where the charges are: seen on opening or by verify."""
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


def test_a_cut_off_end_is_seen_by_what_was_published(path):
    """Someone who cuts the end off and mends the head is found out by any release that carries a later head."""
    ledger = filled(path)
    head = ledger.head
    with raw(path) as file:
        file.execute("DELETE FROM entries WHERE id > 3")
        file.execute("UPDATE head SET id = 3, hash = (SELECT hash FROM entries WHERE id = 3)")
    assert ss.Ledger(path).verify() == []
    assert ss.Ledger(path).verify(head) == ["entry 7 is not the one it was: entries were cut off or changed"]
    with pytest.raises(ss.LedgerError, match="was changed from outside"):
        ledger.charge(FACTS)


def test_threads(path):
    ledger = ss.Ledger(path, {"x": 30 * ss.Gaussian(10).policy})
    done = []

    def work():
        for _ in range(10):
            try:
                ledger.charge(FACTS)
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


def test_reading_never_locks_writers(path):
    ledger = filled(path)
    with raw(path) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM entries").fetchall()
        ledger.charge(FACTS)
        assert len(reader.execute("SELECT id FROM entries").fetchall()) == 7
        reader.execute("ROLLBACK")
    assert len(ledger.history()) == 8


def test_payloads_are_plain_json(path):
    filled(path, 1)
    with raw(path) as file:
        payloads = [json.loads(text) for (text,) in file.execute("SELECT payload FROM entries")]
    assert [payload["kind"] for payload in payloads] == ["created", "charge"]
    assert Path(path).stat().st_size < 100_000
