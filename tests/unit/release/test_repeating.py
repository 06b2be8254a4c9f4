"""A release that was read back is repeated only on records that fit all its facts."""

import json
from dataclasses import replace

import ibis
import pyarrow as pa
import pytest
from helpers.bitsources import Recorded

import slowscale as ss
from slowscale.release.facts import Facts

RECORDS = pa.table({"k": ["a", "a", "b"], "x": [1, 20, 300], "y": [1.5, 2.5, 3.5], "keep": [True, True, False]})
KEYS = ss.Keys.cross({"k": ["a", "b"]})
LAPLACE = ss.GeneralizedGaussian(sigma=2, p=1)
_ = ibis._


def read_back(tmp_path, change=lambda facts: None, data=RECORDS, ledger=None, **given):
    """Release sums by key, change the facts in the file, and return the release as it is read."""
    given = {"columns": {"x": ss.Gaussian(sigma=5), "y": ss.Gaussian(sigma=2)}, "keys": KEYS, **given}
    ss.Session(data, ledger, bits=Recorded(1)).sum(**given).to_csv(tmp_path / "r.csv")
    beside = tmp_path / "r.csv.json"
    facts = json.loads(beside.read_text())
    change(facts)
    beside.write_text(json.dumps(facts))
    return ss.read_release(tmp_path / "r.csv")


def test_fitting_records(tmp_path):
    read = read_back(
        tmp_path, where="x < 100", derive={"z": "x * 2"}, columns={"z": ss.Root(k=4, sigma=1)}, nulls="zero"
    )
    assert ss.Session(RECORDS).losses(read).records == 2
    more = RECORDS.append_column("other", pa.array([1, 2, 3]))  # cannot be known to be other records
    assert ss.Session(pa.concat_tables([more, more])).losses(read).records == 4


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"x": pa.array([1.0, 20, 300])}, "column 'x' has another type .* here it is float64, whose sums need not be"),
        ({"y": pa.array([1, 2, 3])}, "column 'y' has another type .* here it is int64, whose sums are multiples of"),
        ({"x": pa.array(["1", "20", "300"])}, "column 'x' must hold numbers"),
        ({"x": pa.array([True, False, True])}, "column 'x' must hold numbers"),
        ({"x": None}, "there is no column 'x'"),
        ({"k": None}, "by: there is no column 'k'"),
        ({"k": pa.array([1, 2, 3])}, "'k'"),
    ],
)
def test_records_with_other_columns(tmp_path, columns, words):
    read, data = read_back(tmp_path), RECORDS
    for name, values in columns.items():
        data = data.drop_columns([name])
        data = data if values is None else data.append_column(name, values)
    for ask in (ss.Session(data).losses, ss.Session(data).errors):
        with pytest.raises(ss.ParameterError, match=f"cannot be repeated on these records: .*{words}"):
            ask(read)


def test_a_table_that_leaves_out_rows(tmp_path):
    table = ibis.memtable(RECORDS)
    with pytest.raises(ss.ParameterError, match=r"the release have all rows .* and those of this session leave out"):
        ss.Session(table.filter(table.keep)).losses(read_back(tmp_path))
    (tmp_path / "second").mkdir()
    with pytest.raises(ss.ParameterError, match=r"the release leave out rows .* and those of this session have all"):
        ss.Session(RECORDS).losses(read_back(tmp_path / "second", data=table.filter(table.keep)))


def change(*path):
    """Return a change of one fact: the last argument is the new value."""

    def changed(facts):
        for name in path[:-2]:
            facts = facts[name]
        facts[path[-2]] = path[-1]

    return changed


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (change("columns", "x", "mechanism", "sigma", 50.0), "its policy is not that of its mechanisms"),
        (change("keys", "count", 3), "does not have the keys that its facts describe"),
        (change("keys", "columns", {"k": "whole numbers"}), "does not have the keys"),
        (change("partition", {"by": "k", "labels": ["a"]}), "does not have the keys"),
        (change("columns", "x", "nulls", "zero"), "column 'y' was released with nulls=\"error\""),
        (change("columns", "x", "negatives", "zero"), "column 'x' was released with negatives=\"zero\""),
        (change("columns", "x", "at_least", 0), "column 'x' has true sums of at least 0"),
        (change("columns", "x", "unit", "3"), "column 'x' has another type"),
        (change("columns", "count", "on_grid", False), "column 'count' is a count, which is always a multiple of its"),
        (change("accounting", "loose"), "accounting must be \"closed\".*got 'loose'"),
        (change("accounting", "tight"), "its policy is not that of its mechanisms"),
        (change("policy", 3, {"filtered": False}), '"filtered" must be true where it is written, got False'),
        (change("where", "nope > 1"), "nope"),
        (change("derived", {"z": "sum(x)"}), "one record at a time"),
    ],
)
def test_changed_facts(tmp_path, changed, words):
    given = {
        "columns": {"x": ss.Gaussian(sigma=5), "y": ss.GeneralizedGaussian(p=0.5, sigma=2)},
        "count": ss.Gaussian(sigma=2),
    }
    with pytest.raises(ss.ParameterError, match=words):
        ss.Session(RECORDS).losses(read_back(tmp_path, changed, where="x < 1000", **given))


@pytest.mark.parametrize("unit", ["1x", "0", "1/0", "-1", "", None, 1])
def test_a_changed_unit(tmp_path, unit):
    with pytest.raises(
        ss.EngineError, match=r"is damaged: columns\['x'\] must have (a number > 0 as unit|text as .unit.)"
    ):
        read_back(tmp_path, change("columns", "x", "unit", unit))


TIGHT = {"x": ss.Gaussian(sigma=5), "y": ss.GeneralizedGaussian(p=0.5, sigma=2)}


@pytest.mark.parametrize(
    "changed",
    [
        change("policy", 0, "policy", "sigma", 5000.0),  # a Gaussian has no curve, so its policy must be equal
        change("policy", 0, "policy", "sigma", 5.01),
        change("policy", 1, "policy", {"kind": "root", "k": 1, "sigma": 5000.0, "a": 0.0}),
        change("policy", 2, "policy", "loss", 0.0),  # the count
        change("policy", 2, "policy", "loss", 0.124),
        change("columns", "y", "mechanism", "sigma", 20.0),
        change("columns", "y", "mechanism", "sigma", 2.001),
        change("accounting", "closed"),
    ],
)
def test_changed_facts_with_tight_accounting(tmp_path, changed):
    session = ss.Session(RECORDS, bits=Recorded(1), accounting="tight")
    release = session.sum(TIGHT, keys=KEYS, count=ss.Gaussian(sigma=2))
    release.to_csv(tmp_path / "r.csv")
    assert ss.Session(RECORDS).losses(ss.read_release(tmp_path / "r.csv")) == session.losses(release)
    beside = tmp_path / "r.csv.json"
    facts = json.loads(beside.read_text())
    changed(facts)
    beside.write_text(json.dumps(facts))
    with pytest.raises(ss.ParameterError, match="its policy is not that of its mechanisms"):
        ss.Session(RECORDS).losses(ss.read_release(tmp_path / "r.csv"))


@pytest.mark.parametrize(("factor", "accepted"), [(1.004, True), (0.996, True), (1.03, False), (0.9, False)])
def test_curves_of_other_versions_may_differ_within_their_precision(tmp_path, factor, accepted):
    """A count by a curve is a number in the file, which another version may have computed a little differently."""
    session = ss.Session(RECORDS, bits=Recorded(1), accounting="tight")
    release = session.sum({"x": ss.Gaussian(sigma=5)}, keys=KEYS, count=ss.GeneralizedGaussian(p=0.5, sigma=2))
    release.to_csv(tmp_path / "r.csv")
    beside = tmp_path / "r.csv.json"
    facts = json.loads(beside.read_text())
    facts["policy"][1]["policy"]["loss"] *= factor
    beside.write_text(json.dumps(facts))
    read = ss.read_release(tmp_path / "r.csv")
    if accepted:
        assert ss.Session(RECORDS).losses(read).records == 3
    else:
        with pytest.raises(ss.ParameterError, match="its policy is not that of its mechanisms"):
            ss.Session(RECORDS).losses(read)


def test_another_release_under_the_same_identifier(tmp_path):
    session = ss.Session(RECORDS, bits=Recorded(1))
    made = session.sum({"x": ss.Gaussian(sigma=5)}, keys=KEYS, where="x < 100")
    made.to_csv(tmp_path / "r.csv")
    for new, words in (
        ({"where": "x < 1000"}, "another filter"),
        ({"derived": {"x": "y"}}, "other derived columns"),
        ({"columns": {"y": made.facts.to_dict()["columns"]["x"]}}, "column 'y' is not one of the release"),
    ):
        facts = Facts.from_dict({**made.facts.to_dict(), **new})
        other = ss.Release(made.table, facts, made.policy, made.pure_policy, made.mechanisms)
        with pytest.raises(ss.ParameterError, match=words):
            session.losses(other)
    assert session.losses(ss.read_release(tmp_path / "r.csv")) == session.losses(made)


def test_the_ledger_of_a_release(tmp_path):
    one, other = tmp_path / "one.ledger", tmp_path / "other.ledger"
    read = read_back(tmp_path, ledger=one)
    expected = ss.Session(RECORDS).losses(read)  # a session without a ledger cannot know
    assert ss.Session(RECORDS, one).losses(read.ratio("x", "y")) == expected
    with pytest.raises(ss.ParameterError, match="was charged to another ledger than that of this session"):
        ss.Session(RECORDS, other).losses(read)
    assert ss.Session(RECORDS, other).losses(ss.Session(RECORDS).sum({"x": ss.Gaussian(sigma=5)})).records == 3
    facts = Facts.from_dict({**read.facts.to_dict(), "created": "yesterday"})
    forged = ss.Release(read.table, facts, read.policy, read.pure_policy, read.mechanisms)
    with pytest.raises(ss.ParameterError, match=r"its facts are not those in the ledger \(created\)"):
        ss.Session(RECORDS, one).losses(forged)


def test_the_tables_of_a_set_have_one_entry_in_the_ledger(tmp_path):
    session = ss.Session(RECORDS, tmp_path / "one.ledger", bits=Recorded(1))
    query = ss.Sums({"x": ss.Gaussian(sigma=5)}, keys=KEYS, count=ss.Gaussian(sigma=1), means="box")
    made = session.release(ss.Request({"cells": query, "total": ss.Rollup("cells"), "y": ss.Sums({"y": LAPLACE})}))
    made.to_parquet(tmp_path / "set")
    again = ss.Session(RECORDS, tmp_path / "one.ledger")
    for asked, found in ((session, made), (again, ss.read_release(tmp_path / "set"))):
        assert asked.losses(found).records == 3
        for name in found.drawn:
            assert asked.losses(found[name]).records == 3
            assert asked.errors(found[name])
        report = found.confidential_report(tmp_path / "losses.html", asked, overwrite=True)
        assert "Losses of the records" in report.read_text(encoding="utf-8")
    with pytest.raises(ss.ParameterError, match="was charged to another ledger than that of this session"):
        ss.Session(RECORDS, tmp_path / "other.ledger").losses(made)
    cells = made["cells"]
    for change in ({"created": "yesterday"}, {"table_set": replace(cells.facts.table_set, formula="0")}):
        forged = replace(cells, facts=replace(cells.facts, **change))
        with pytest.raises(ss.ParameterError, match=rf"its facts are not those in the ledger \({next(iter(change))}\)"):
            again.losses(forged)


def test_a_tight_release_keeps_its_policy(tmp_path):
    session = ss.Session(RECORDS, accounting="tight", bits=Recorded(1))
    made = session.sum({"x": ss.ArsinhNormal(scale=2, shape=1)}, keys=KEYS)
    read = ss.read_release(made.to_parquet(tmp_path / "r.parquet"))
    assert ss.Session(RECORDS).losses(read) == session.losses(made)
    assert read.policy.terms[0][1] == ss.ArsinhNormal(scale=2, shape=1).tight_policy
