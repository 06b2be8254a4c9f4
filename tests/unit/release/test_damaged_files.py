"""Damaged files: whatever stands in the facts of a release or in the entries of a ledger, the error is a clean one."""

import copy
import json
import random
import sqlite3
import warnings
from contextlib import closing, suppress

import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pydantic
import pytest
from helpers.bitsources import Recorded
from helpers.errors import refused

import slowscale as ss
from slowscale.accounting.entries import describe_entry
from slowscale.accounting.storage import FIRST_HASH, link_hash
from slowscale.release.facts import METADATA, Facts

FIRMS = pd.DataFrame({"state": ["IA", "TX", "TX"], "county": ["1", "2", "3"], "emp": [4, 9, 20], "pay": [4.5, 9, 1]})
KEYS = ss.Keys.cross({"state": ["IA", "TX"], "county": ["1", "2", "3"]})
WRONG = [
    None,
    True,
    -1,
    0,
    3,
    1.5,
    float("nan"),
    10**400,
    "",
    "text",
    "\x1b[2J",
    [],
    [1],
    ["x"],
    {},
    {"x": 1},
    [[]],
    [{}],
]


def places(tree, path=()):
    """Return the paths of all values in a tree of JSON."""
    found = [path] if path else []
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return found + [place for name, value in items for place in places(value, (*path, name))]


def damaged(tree, chance):
    """Return a copy of a tree in which one value is replaced, removed, renamed or exchanged for another one."""
    tree = copy.deepcopy(tree)
    *above, last = chance.choice(places(tree))
    parent = tree
    for name in above:
        parent = parent[name]
    kind = chance.randrange(4)
    if kind == 0:
        del parent[last]
    elif kind == 1 and isinstance(parent, dict):
        parent[f"{last}x"] = parent.pop(last)
    elif kind == 2:
        other = tree
        for name in chance.choice(places(tree)):
            other = other[name]
        parent[last] = copy.deepcopy(other)
    else:
        parent[last] = chance.choice(WRONG)
    return tree


@pytest.fixture(scope="module")
def releases():
    """Return releases whose facts have all kinds of entries."""
    session = ss.Session(FIRMS, bits=Recorded(1))
    cells = session.mean(
        {"emp": ss.Root(k=2, sigma=1), "pay": ss.Gaussian(sigma=3)},
        keys=KEYS, count=ss.Gaussian(sigma=1), unit={"pay": "0.5"},
        derive={"k": "emp * 2"}, where="emp > 1", partition="state",
    )  # fmt: skip
    tables = session.release(
        ss.Request({"cells": ss.Sums({"emp": ss.Gaussian(sigma=2)}, keys=KEYS), "total": ss.Rollup("cells")})
    )
    quantiles = session.release({"sizes": ss.Quantiles("emp", [0.5], loss=0.1, where="emp > 1")})
    return [cells, cells.rollup("state"), tables["total"], quantiles]


def use(path):
    """Read a release and use it as readers do. Each use may be refused by itself, but never by another error."""
    release = ss.read_release(path)
    repr(release), release._repr_html_(), json.dumps(release.facts.to_dict())
    (table,) = release.tables.values()
    if isinstance(table, ss.ReleasedQuantiles):
        dict(table), table.pure_loss, table.to_dict()
        return
    for column in table.facts.columns:
        for ask in (release.interval, release.unbiased_variance):
            with suppress(ss.SlowscaleError):
                ask(column)
    with suppress(ss.SlowscaleError):
        release.rollup()
    with suppress(ss.SlowscaleError):
        release.ratio("emp", "count", "r")


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_damaged_facts_raise_clean_errors(releases, tmp_path, kind):
    chance = random.Random(27)
    path = tmp_path / f"table.{kind}"
    outcomes = {"read": 0, "refused": 0}
    for release in releases:
        facts = tmp_path / "table.csv.json"
        getattr(release, f"to_{kind}")(path, overwrite=True)
        table = pa.parquet.read_table(path) if kind == "parquet" else None
        tree = json.loads(table.schema.metadata[METADATA] if kind == "parquet" else facts.read_text())
        for _ in range(120):
            changed = damaged(tree, chance)
            if kind == "parquet":
                pa.parquet.write_table(table.replace_schema_metadata({METADATA: json.dumps(changed)}), path)
            else:
                facts.write_text(json.dumps(changed))
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    use(path)
                outcomes["read"] += 1
            except ss.SlowscaleError:
                outcomes["refused"] += 1
            except Exception as error:
                raise AssertionError(f"{type(error).__name__}: {error}, for {difference(tree, changed)}") from error
    assert min(outcomes.values()) > 50, outcomes


def difference(tree, changed):
    """Return the first place in which two trees differ."""
    for place in places(tree):
        one, other = tree, changed
        for name in place:
            one = one[name]
            try:
                other = other[name]
            except (KeyError, IndexError, TypeError):
                return place, one, "missing"
        if not isinstance(one, dict | list) and one != other:
            return place, one, other
        if type(one) is not type(other):
            return place, type(one), other
    return None


def test_facts_that_lost_an_entry_say_which(releases, tmp_path):
    """A damaged file was a KeyError."""
    path = releases[0].to_csv(tmp_path / "table.csv")
    facts = tmp_path / "table.csv.json"
    tree = json.loads(facts.read_text())

    def in_table(**change):
        return {"tables": {"table": {**tree["tables"]["table"], **change}}}

    table = tree["tables"]["table"]
    keys = {"columns": {"region": "text"}, "count": 1, "assumption": "", "from_data": False}
    for change, place in (
        ({"private": "false"}, ("private",)),
        (in_table(keys=keys), ("missing", "region")),
        (in_table(columns={**table["columns"], "lost": table["columns"]["emp"]}), ("missing", "lost")),
        (
            in_table(columns={"emp": {**table["columns"]["emp"], "level": "high"}}),
            ("tables", "table", "columns", "emp", "level"),
        ),
        ({"types": {**tree["types"], "emp": "string"}}, ("type", "emp")),
        ({"policy": []}, ("policy",)),
        ({"policy": [*tree["policy"], tree["policy"][0]]}, ("policy",)),
    ):
        facts.write_text(json.dumps({**tree, **change}))
        with refused(ss.EngineError, str(path), code="damaged", path=place):
            ss.read_release(path)


@pytest.mark.parametrize("change", [{"rates": []}, {"rates": [0]}, {"rates": [-1]}, {"grid": [5]}, {"at": [0.1, 0.5]}])
def test_facts_of_quantiles_fit_together(releases, change):
    """Their error of rank is computed from these numbers: a division by zero, or of nothing, was possible."""
    facts = releases[3].facts.to_dict()
    facts["tables"]["sizes"]["quantiles"] |= change
    with refused(ss.ParameterError, "tables.sizes.quantiles:", code="damaged"):
        Facts.from_dict(facts)


@pytest.mark.parametrize(
    "change", [{"unit": "1e400"}, {"unit": "1e-400"}, {"level": 2.0}, {"level": -1.0}, {"level": 0.0}, {"at_least": -5}]
)
def test_facts_of_columns_are_possible(releases, change):
    """Intervals at other levels, growth and shares are computed from them."""
    facts = releases[0].facts.to_dict()
    table = next(iter(facts["tables"].values()))
    next(iter(table["columns"].values())).update(change)
    with refused(ss.ParameterError, code="damaged") as caught:
        Facts.from_dict(facts)
    assert next(iter(change)) in caught.value.path


def rewritten(path, entries):
    """Write entries into a ledger with a valid chain of hashes."""
    before = FIRST_HASH
    with closing(sqlite3.connect(path, isolation_level=None)) as file, file:
        file.execute("BEGIN")  # or each entry would be written to the disk by itself
        file.execute("DELETE FROM entries")
        for number, payload in enumerate(entries, 1):
            before = link_hash(before, number, payload)
            file.execute("INSERT INTO entries VALUES (?, ?, ?)", (number, payload, before))
        file.execute("UPDATE head SET id = ?, hash = ?", (len(entries), before))


def test_damaged_entries_raise_clean_errors(tmp_path):
    """The chain of hashes is valid, so that the entries themselves are read."""
    chance = random.Random(27)
    path = tmp_path / "firms.ledger"
    ledger = ss.Ledger(
        path,
        {"emp": ss.Gaussian(sigma=0.1).policy, "*": ss.Gaussian(sigma=0.1).policy, "k": ss.Root(k=2, sigma=0.1).policy},
    )
    session = ss.Session(FIRMS, ledger, bits=Recorded(1))
    session.sum(
        {"emp": ss.Gaussian(sigma=2), "k": ss.Root(k=2, sigma=3)}, keys=KEYS, derive={"k": "emp * 2"}, partition="state"
    )
    session.quantiles("emp", [0.5], loss=0.01)
    session.release(
        ss.Request({"cells": ss.Sums({"emp": ss.Gaussian(sigma=2)}, keys=KEYS), "total": ss.Rollup("cells")})
    )
    ledger.set_cap("emp", ss.Gaussian(sigma=0.2).policy, "more")
    ledger.attempt({"policy": None}, ss.DataError("no-records"))
    ledger.close()
    with closing(sqlite3.connect(path)) as file:
        entries = [text for (text,) in file.execute("SELECT payload FROM entries ORDER BY id")]
    opened = 0
    for _ in range(300):
        number = chance.randrange(len(entries))
        changed = damaged(json.loads(entries[number]), chance)
        rewritten(path, [*entries[:number], json.dumps(changed), *entries[number + 1 :]])
        try:
            with ss.Ledger(path) as again:
                again.verify()
                list(map(describe_entry, again.history()))
                again.describe()
                opened += 1
        except ss.SlowscaleError:
            pass
        except Exception as error:
            words = difference(json.loads(entries[number]), changed)
            raise AssertionError(f"{type(error).__name__}: {error}, for {words}") from error
    assert 50 < opened < 290


def test_a_column_has_one_cap(tmp_path):
    """Entries that were forged, with a valid hash chain: two caps on a column, a cap that is none, a new beginning."""
    path, cap = tmp_path / "firms.ledger", ss.Gaussian(sigma=1).policy.to_dict()
    first = {"kind": "created", "time": "", "caps": {"emp": cap}, "band_caps": {}, "band": 1.1, "largest": {}}
    changed = {"kind": "cap", "time": "", "column": "EMP", "cap": cap, "reason": "more", "band": False}
    pure = {**changed, "cap": ss.GeneralizedGaussian(sigma=1, p=1).pure_policy.to_dict()}
    for entries, kind, subject, code in (
        ([{**first, "caps": {"emp": cap, " EMP": cap}}], ss.LedgerError, "the ledger", "damaged"),
        ([first, pure], ss.LedgerError, "the ledger", "damaged"),
        ([first, {**changed, "column": 3}], ss.LedgerError, "the ledger", "damaged"),
        ([first, {**first, "caps": {}}], ss.LedgerError, "the ledger", "damaged"),
        ([changed], ss.LedgerError, "the ledger", "damaged"),
        ([{**first, "band": 0.5}], ss.LedgerError, "the ledger", "damaged"),
        ([first, {**changed, "band": 1}], ss.LedgerError, "the ledger", "damaged"),
    ):
        ss.Ledger(path).close()
        rewritten(path, list(map(json.dumps, entries)))
        with refused(kind, subject, code=code):
            ss.Ledger(path).describe()
        path.unlink()
    ss.Ledger(path).close()
    rewritten(path, list(map(json.dumps, [first, changed])))
    assert list(ss.Ledger(path).caps) == ["emp"]
    rewritten(path, list(map(json.dumps, [first, {**first, "caps": {}}])))
    assert "entry 2 cannot be read" in ss.Ledger(path).verify()[0]


@pytest.mark.parametrize("private", ["no", "false", 1, None, "yes", [True]])
def test_only_true_is_private(private):
    """Text such as "no" counts as true in Python: such bits and facts are marked NOT PRIVATE."""

    class Bits(Recorded):
        pass

    Bits.private = private
    session = ss.Session(FIRMS, bits=Bits(1))
    release = session.sum({"emp": ss.Gaussian(sigma=1)})
    assert release.facts.private is False
    assert repr(release).startswith("NOT PRIVATE")
    assert "NOT PRIVATE" in repr(session.quantiles("emp", [0.5], loss=0.1))
    for mechanism in (ss.Gaussian(sigma=1), ss.Root(k=2, sigma=1)):
        noisy = mechanism.release(5, bits=Bits(1))
        assert noisy.private is False
        assert "NOT PRIVATE" in repr(noisy)
    with pytest.raises(pydantic.ValidationError, match=r"private\n.*valid boolean"):
        release.facts.with_(private=private)
    with refused(ss.ParameterError, "private:", code="damaged"):
        Facts.from_dict({**release.facts.to_dict(), "private": private})
