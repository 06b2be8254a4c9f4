"""A release that was read back is repeated only on records that fit all its facts."""

import json
from dataclasses import replace
from fractions import Fraction

import ibis
import pyarrow as pa
import pytest
from helpers.bitsources import Recorded
from helpers.errors import refused

import slowscale as ss
from slowscale.release.facts import Facts

RECORDS = pa.table({"k": ["a", "a", "b"], "x": [1, 20, 300], "y": [1.5, 2.5, 3.5], "keep": [True, True, False]})
KEYS = ss.Keys.cross({"k": ["a", "b"]})
LAPLACE = ss.GeneralizedGaussian(sigma=2, p=1)
_ = ibis._


def read_back(tmp_path, change=lambda facts: None, data=RECORDS, ledger=None, accounting="closed", **given):
    """Release sums by key, change the facts in the file, and return the release as it is read."""
    given = {"columns": {"x": ss.Gaussian(sigma=5), "y": ss.Gaussian(sigma=2)}, "keys": KEYS, **given}
    ss.Session(data, ledger, accounting=accounting, bits=Recorded(1)).sum(**given).to_csv(tmp_path / "r.csv")
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
    ("columns", "code", "place"),
    [
        ({"x": pa.array([1.0, 20, 300])}, "changed", ("columns", "x", "on_grid")),
        ({"y": pa.array([1, 2, 3])}, "changed", ("columns", "y", "on_grid")),
        ({"x": pa.array(["1", "20", "300"])}, "not-numbers", None),
        ({"x": pa.array([True, False, True])}, "not-numbers", None),
        ({"x": None}, "unknown-column", ("tables", "table", "sums", "x")),
        ({"k": None}, "unknown-column", ("tables", "table", "keys")),
        ({"k": pa.array([1, 2, 3])}, None, ("tables", "table", "keys")),
    ],
)
def test_records_with_other_columns(tmp_path, columns, code, place):
    read, data = read_back(tmp_path), RECORDS
    for name, values in columns.items():
        data = data.drop_columns([name])
        data = data if values is None else data.append_column(name, values)
    for ask in (ss.Session(data).losses, ss.Session(data).errors):
        with refused(ss.ParameterError, "release", code=code, path=place):
            ask(read)


def test_a_table_that_leaves_out_rows(tmp_path):
    table = ibis.memtable(RECORDS)
    with refused(ss.ParameterError, "release", code="filter"):
        ss.Session(table.filter(table.keep)).losses(read_back(tmp_path))
    (tmp_path / "second").mkdir()
    with refused(ss.ParameterError, "release", code="filter"):
        ss.Session(RECORDS).losses(read_back(tmp_path / "second", data=table.filter(table.keep)))


def change(*path):
    """Return a change of one fact of a release: the last argument is the new value."""

    def changed(facts):
        for name in path[:-2]:
            facts = facts[name]
        facts[path[-2]] = path[-1]

    return changed


def change_table(*path):
    """Return a change of one fact of its table."""
    return change("tables", "table", *path)


@pytest.mark.parametrize(
    ("changed", "place", "code"),
    [
        (change_table("columns", "x", "mechanism", "sigma", 50.0), (), "policy"),
        (change_table("keys", "count", 3), (), "keys"),
        (change_table("keys", "columns", {"k": "whole numbers"}), (), "keys"),
        (change("partition", {"by": "k", "labels": ["a"]}), (), "keys"),
        (change_table("columns", "x", "nulls", "zero"), ("columns", "y", "nulls"), "changed"),
        (change_table("columns", "x", "negatives", "zero"), ("columns", "x", "negatives"), "changed"),
        (change_table("columns", "x", "at_least", 0), ("columns", "x", "at_least"), "changed"),
        (change_table("columns", "x", "unit", "3"), ("columns", "x", "on_grid"), "changed"),
        (
            change_table("columns", "count", "on_grid", False),
            ("columns", "count", "on_grid"),
            "changed",
        ),
        (change("accounting", "loose"), (), "value"),
        (change("accounting", "tight"), (), "policy"),
        (change("policy", 3, {"filtered": False}), (), "value"),
        (change_table("where", "nope > 1"), ("tables", "table", "where"), "unknown-column"),
        (change_table("derived", {"z": "sum(x)"}), ("tables", "table", "derive"), "many-rows"),
    ],
)
def test_changed_facts(tmp_path, changed, place, code):
    given = {
        "columns": {"x": ss.Gaussian(sigma=5), "y": ss.GeneralizedGaussian(p=0.5, sigma=2)},
        "count": ss.Gaussian(sigma=2),
    }
    with refused(ss.ParameterError, path=place, code=code):
        ss.Session(RECORDS).losses(read_back(tmp_path, changed, where="x < 1000", **given))


QUANTILES = ("tables", "sizes", "quantiles")


@pytest.mark.parametrize(
    ("changed", "place", "code"),
    [
        (lambda facts: None, None, None),
        (change(*QUANTILES, "rates", [0.1, 0.1]), (), "quantiles"),
        (change(*QUANTILES, "loss", 0.2), (), "quantiles"),
        (change("policy", 0, "policy", "loss", 0.01), (), "policy"),
    ],
)
@pytest.mark.parametrize("at", [(0.1, 0.5), (Fraction(1, 3), Fraction(2, 3))])
def test_changed_facts_of_quantiles(tmp_path, changed, place, code, at):
    """The shares are written as floats: rates that follow from the exact ones may differ in the last digit."""
    session = ss.Session(RECORDS, bits=Recorded(1))
    sizes = ss.Quantiles("x", at, loss=0.1)
    session.release(ss.Request({"sizes": sizes}, level=0.9)).to_csv(tmp_path / "sizes.csv")
    beside = tmp_path / "sizes.csv.json"
    facts = json.loads(beside.read_text())
    changed(facts)
    beside.write_text(json.dumps(facts))
    read = ss.read_release(tmp_path / "sizes.csv")
    if code is None:
        assert ss.Session(RECORDS).errors(read) == {}
        assert ss.Session(RECORDS).losses(read).largest[1] == pytest.approx(0.1)
    else:
        with refused(ss.ParameterError, path=place, code=code):
            ss.Session(RECORDS).errors(read)


@pytest.mark.parametrize("unit", ["1x", "0", "1/0", "-1", "", None, 1])
def test_a_changed_unit(tmp_path, unit):
    with refused(ss.EngineError, code="damaged", path=("tables", "table", "columns", "x", "unit")):
        read_back(tmp_path, change_table("columns", "x", "unit", unit))


TIGHT = {"x": ss.Gaussian(sigma=5), "y": ss.GeneralizedGaussian(p=0.5, sigma=2)}


@pytest.mark.parametrize(
    "changed",
    [
        change("policy", 0, "policy", "sigma", 5000.0),  # a Gaussian has no curve, so its policy must be equal
        change("policy", 0, "policy", "sigma", 5.01),
        change("policy", 1, "policy", {"kind": "root", "k": 1, "sigma": 5000.0, "a": 0.0}),
        change("policy", 2, "policy", "loss", 0.0),  # the count
        change("policy", 2, "policy", "loss", 0.124),
        change_table("columns", "y", "mechanism", "sigma", 20.0),
        change_table("columns", "y", "mechanism", "sigma", 2.001),
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
    with refused(ss.ParameterError, "release", code="policy"):
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
        with refused(ss.ParameterError, "release", code="policy"):
            ss.Session(RECORDS).losses(read)


def with_facts(release, **changes):
    """Return a release with other facts, and the same numbers."""
    facts = Facts.from_dict({**release.facts.to_dict(), **changes})
    tables = {name: replace(table, whole=facts) for name, table in release.tables.items()}
    return replace(release, tables=tables, facts=facts)


def test_another_release_under_the_same_identifier(tmp_path):
    session = ss.Session(RECORDS, bits=Recorded(1))
    made = session.sum({"x": ss.Gaussian(sigma=5)}, keys=KEYS, where="x < 100")
    made.to_csv(tmp_path / "r.csv")
    for new, code in (
        ({"where": "x < 1000"}, "expression"),
        ({"derived": {"x": "y"}}, "expression"),
        ({"columns": {"y": made.facts.columns["x"].to_dict()}}, "unknown-column"),
    ):
        table = {**made.facts.tables["table"].to_dict(), **new}
        with refused(ss.ParameterError, "release", code=code):
            session.losses(with_facts(made, tables={"table": table}))
    assert session.losses(ss.read_release(tmp_path / "r.csv")) == session.losses(made)


def test_the_ledger_of_a_release(tmp_path):
    one, other = tmp_path / "one.ledger", tmp_path / "other.ledger"
    read = read_back(tmp_path, ledger=one)
    expected = ss.Session(RECORDS).losses(read)  # a session without a ledger cannot know
    assert ss.Session(RECORDS, one).losses(read.ratio("x", "y")) == expected
    with refused(ss.ParameterError, "release", code="ledger"):
        ss.Session(RECORDS, other).losses(read)
    assert ss.Session(RECORDS, other).losses(ss.Session(RECORDS).sum({"x": ss.Gaussian(sigma=5)})).records == 3
    with refused(ss.ParameterError, "release", code="changed", path=("created",)):
        ss.Session(RECORDS, one).losses(with_facts(read, created="yesterday"))


def test_the_tables_of_a_release_have_one_entry_in_the_ledger(tmp_path):
    session = ss.Session(RECORDS, tmp_path / "one.ledger", bits=Recorded(1))
    cells = ss.Sums({"x": ss.Gaussian(sigma=5)}, keys=KEYS, count=ss.Gaussian(sigma=1), means="box")
    made = session.release(ss.Request({"cells": cells, "total": ss.Rollup("cells"), "y": ss.Sums({"y": LAPLACE})}))
    made.to_parquet(tmp_path / "set")
    again = ss.Session(RECORDS, tmp_path / "one.ledger")
    for asked, found in ((session, made), (again, ss.read_release(tmp_path / "set"))):
        assert asked.losses(found).records == 3
        assert asked.losses(found) == session.losses(made)
        errors = asked.errors(found)
        assert set(errors) == {"cells", "y"} == set(found.drawn)
        assert all(errors.values())
        report = found.confidential_report(tmp_path / "losses.html", asked, overwrite=True)
        assert "Losses of the records" in report.read_text(encoding="utf-8")
    with refused(ss.ParameterError, "release", code="ledger"):
        ss.Session(RECORDS, tmp_path / "other.ledger").losses(made)
    tables = {name: table.to_dict() for name, table in made.facts.tables.items()}
    for change in (
        {"created": "yesterday"},
        {"formula": "0"},
        {"tables": tables | {"cells": {**tables["cells"], "formula": "0"}}},
    ):
        with refused(ss.ParameterError, "release", code="changed", path=(next(iter(change)),)):
            again.losses(with_facts(made, **change))


def test_a_part_of_a_release_cannot_be_repeated(tmp_path):
    """What a record loses is the sum over all drawn tables, so that all of them must be there."""
    session = ss.Session(RECORDS, bits=Recorded(1))
    cells = ss.Sums({"x": ss.Gaussian(sigma=5)}, keys=KEYS)
    made = session.release(ss.Request({"cells": cells, "total": ss.Rollup("cells"), "y": ss.Sums({"y": LAPLACE})}))
    folder = made.to_parquet(tmp_path / "set")
    rolled = session.sum({"x": ss.Gaussian(sigma=5)}, keys=KEYS).rollup()
    for part, missing in [
        (ss.read_release(folder / "cells.parquet"), "y"),
        (ss.read_release(folder / "total.parquet"), "cells, y"),
        (rolled, "table"),
    ]:
        for asked in (session, ss.Session(RECORDS)):
            for ask in (asked.losses, asked.errors):
                with refused(ss.ParameterError, "release", code="missing") as caught:
                    ask(part)
                assert missing in str(caught.value)


def test_a_tight_release_keeps_its_policy(tmp_path):
    session = ss.Session(RECORDS, accounting="tight", bits=Recorded(1))
    made = session.sum({"x": ss.ArsinhNormal(scale=2, shape=1)}, keys=KEYS)
    read = ss.read_release(made.to_parquet(tmp_path / "r.parquet"))
    assert ss.Session(RECORDS).losses(read) == session.losses(made)
    assert read.policy.terms[0][1] == ss.ArsinhNormal(scale=2, shape=1).tight_policy
