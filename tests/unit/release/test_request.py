"""Requests: values that say what to publish, checked and priced before they are carried out."""

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, fields, replace
from typing import get_args

import ibis
import pandas as pd
import pytest
from helpers.bitsources import Recorded
from helpers.errors import refused

import slowscale as ss
from slowscale.release import bound as bound_module
from slowscale.release.request import as_request

RECORDS = pd.DataFrame({"g": ["a", "a", "b"], "x": [3, 40, 500]})
KEYS = ss.Keys.from_frame({"g": ["a", "b"]})
SUMS = ss.Sums({"x": ss.Root(k=2, sigma=1)}, keys=KEYS, count=ss.Gaussian(sigma=2), where="x > 0")


def test_a_table_of_sums_is_a_value():
    assert ss.Sums({"x": ss.Root(k=2, sigma=1)}, KEYS) == ss.Sums({"x": ss.Root(k=2, sigma=1)}, KEYS)
    assert replace(SUMS, unit=2) != SUMS == replace(SUMS, unit=1)
    assert list(SUMS.mechanisms) == ["x", "count"]
    assert (SUMS.by, replace(SUMS, keys=None).by) == (("g",), ())
    with pytest.raises(FrozenInstanceError):
        SUMS.where = "x > 5"


def test_only_the_columns_and_the_keys_are_given_by_place():
    """So that a mechanism of the count, or a flag, is never taken for something else."""
    with pytest.raises(TypeError, match="positional argument"):
        ss.Sums({"x": ss.Root(k=2, sigma=1)}, KEYS, ss.Gaussian(sigma=2))
    table = ss.Sums({"x": ss.Root(k=2, sigma=1)}, KEYS)
    assert (table.count, table.unit, table.means) == (None, 1, None)
    assert (table.where, table.derive, table.nulls, table.negatives) == (None, None, "error", "error")
    assert table.nonnegative is False
    with pytest.raises(TypeError, match="positional argument"):
        ss.Request({"t": table}, (), 0.9)
    request = ss.Request({"t": table})
    assert (request.hierarchies, request.level, request.partition) == ((), 0.95, None)
    with pytest.raises(TypeError, match="positional argument"):
        ss.Quantiles("x", [0.5], 0.1)
    quantiles = ss.Quantiles("x", loss=0.1)
    assert tuple(map(float, quantiles.at)) == (0.1, 0.5, 0.9)
    assert tuple(map(float, quantiles.grid)) == ss.size_grid()
    assert (quantiles.where, quantiles.derive, quantiles.nulls) == (None, None, "error")


def test_the_methods_of_a_session_have_the_options_and_the_defaults_of_a_request():
    for method, table, by_place, apart in (
        ("sum", ss.Sums, ["columns", "keys"], set()),
        ("mean", ss.Sums, ["columns", "keys"], {"means"}),  # it has a default of its own
        ("count", ss.Sums, ["keys"], {"columns", "count", "means"}),  # all that it publishes is the count
        ("quantiles", ss.Quantiles, ["column", "at"], set()),
    ):
        given = dict(inspect.signature(getattr(ss.Session, method)).parameters)
        given.pop("self")
        (options,) = get_args(given.pop("options").annotation)
        assert [name for name, one in given.items() if one.kind is one.POSITIONAL_OR_KEYWORD] == by_place
        assert all(one.kind is one.KEYWORD_ONLY for name, one in given.items() if name not in by_place)
        assert {one.name for one in fields(table)} - apart <= {*given, *options.__annotations__}
        assert set(options.__annotations__) <= {one.name for one in fields(table) if one.kw_only}
        asked = {**inspect.signature(ss.Request).parameters, **inspect.signature(table).parameters}
        optional = {name for name, one in given.items() if one.default is not one.empty} - apart
        assert {name: given[name].default for name in optional} == {name: asked[name].default for name in optional}
    made = inspect.signature(ss.Session).parameters
    by_place = [name for name, one in made.items() if one.kind is not one.KEYWORD_ONLY]
    assert by_place == ["data", "ledger", "caps"]
    assert repr(ss.Session(data=RECORDS)).startswith("<Session on ")


@pytest.mark.parametrize("suffix", ["_se", "_low", "_high", "_transformed"])
@pytest.mark.parametrize("m", [ss.Gaussian(sigma=1), ss.Root(k=2, sigma=1)], ids=str)
def test_no_column_is_in_a_release_twice(m, suffix):
    keys = ss.Keys.from_frame({f"x{suffix}": ["a"]})
    if suffix == "_transformed" and m == ss.Gaussian(sigma=1):  # only transformations have such a column
        assert ss.Sums({"x": m}, keys=keys).keys is keys
        assert list(ss.Sums({f"x{suffix}": m, "x": m}).mechanisms) == ["x_transformed", "x"]
        return
    for columns, given in (({"x": m, f"x{suffix}": m}, None), ({f"x{suffix}": m, "x": m}, None), ({"x": m}, keys)):
        with refused(ss.ParameterError, f"column 'x{suffix}'", code="duplicate"):
            ss.Sums(columns, keys=given)


def test_what_was_previewed_is_released():
    columns, derive, unit, by = {"y": ss.Gaussian(sigma=1)}, {"y": "x + 1"}, {"y": 5}, []
    table, total = ss.Sums(columns, KEYS, derive=derive, unit=unit), ss.Rollup("cells", by)
    tables = {"cells": table, "total": total}
    request = ss.Request(tables)
    session = ss.Session(RECORDS, bits=Recorded(1))
    session.preview(request)
    columns["y"], derive["y"], unit["y"] = ss.Gaussian(sigma=0.001), "x * 1000", 1
    columns["x"] = ss.Gaussian(sigma=0.001)
    by.append("g")
    tables["more"] = ss.Sums(columns)
    assert table == ss.Sums({"y": ss.Gaussian(sigma=1)}, KEYS, derive={"y": "x + 1"}, unit={"y": 5})
    assert request == ss.Request({"cells": table, "total": ss.Rollup("cells")})
    facts = session.release(request).facts
    assert list(facts.tables) == ["cells", "total"]
    assert (facts.derived, facts.columns["y"].unit) == ({"y": "x + 1"}, "5")
    assert facts.columns["y"].described.startswith("Gaussian(sigma=1")


@pytest.mark.parametrize("name", ["columns", "derive", "unit", "mechanisms", "units"])
def test_its_parts_cannot_be_changed(name):
    table = ss.Sums({"y": ss.Gaussian(sigma=1)}, derive={"y": "x + 1"}, unit={"y": 5})
    part = getattr(table, name)
    for change in (
        lambda: part.__setitem__("y", 2),
        lambda: part.__delitem__("y"),
        lambda: part.__ior__({}),
        lambda: part.update(y=2),
        lambda: part.setdefault("z", 2),
        lambda: part.pop("y"),
        part.popitem,
        part.clear,
    ):
        with pytest.raises(TypeError, match="a request cannot be changed; make a new one"):
            change()
    for copied in (pickle.loads(pickle.dumps(table)), copy.deepcopy(table), replace(table)):
        assert copied == table
        assert getattr(copied, name) == part


def test_tables_are_compared():
    for change in ({"where": "x > 1"}, {"where": None}, {"derive": {"y": "x"}}, {"keys": None}, {"unit": {"x": 2}}):
        assert replace(SUMS, **change) == replace(SUMS, **change) != SUMS
    assert replace(SUMS) == SUMS
    assert SUMS != "a table"
    with pytest.raises(TypeError, match="unhashable type: 'Sums'"):
        hash(SUMS)
    with pytest.raises(TypeError, match="unhashable type: 'Request'"):
        hash(ss.Request({"t": SUMS}))


@pytest.mark.parametrize("expression", [ibis._.x > 0, ibis.table({"x": "int64"}, name="t").x > 0, lambda t: t.x > 0])
def test_expressions_are_sql_text(expression):
    words = r"must be SQL text .*; to use Ibis expressions, prepare the table first, with table\.mutate"
    with pytest.raises(ss.ParameterTypeError, match=rf"^where {words}"):
        ss.Sums({"x": ss.Gaussian(sigma=1)}, where=expression)
    with pytest.raises(ss.ParameterTypeError, match=rf"^derive\['y'\] {words}"):
        ss.Sums({"y": ss.Gaussian(sigma=1)}, derive={"y": expression})
    session = ss.Session(RECORDS, bits=Recorded(1))
    for ask in (
        lambda: session.sum({"x": ss.Gaussian(sigma=1)}, where=expression),
        lambda: session.quantiles("x", [0.5], loss=0.1, where=expression),
        lambda: ss.Keys.from_data(session, "y", derive={"y": expression}, declared_public=True),
    ):
        with pytest.raises(ss.ParameterTypeError, match=words):
            ask()


def test_it_is_released_like_the_methods_do():
    one, two = (ss.Session(RECORDS, bits=Recorded(1)) for _ in range(2))
    by_request = one.release(SUMS)
    by_method = two.sum({"x": ss.Root(k=2, sigma=1)}, keys=KEYS, count=ss.Gaussian(sigma=2), where="x > 0")
    assert by_request.table.equals(by_method.table)
    means = replace(SUMS, means="box", where=None)
    by_request = ss.Session(RECORDS, bits=Recorded(2)).release(means)
    by_method = ss.Session(RECORDS, bits=Recorded(2)).mean(
        {"x": ss.Root(k=2, sigma=1)}, keys=KEYS, count=ss.Gaussian(sigma=2)
    )
    assert by_request.table.equals(by_method.table)


def test_a_preview_touches_no_record_and_charges_nothing(tmp_path, monkeypatch):
    ledger = ss.Ledger(tmp_path / "l", {"x": ss.Root(k=2, sigma=1).policy, "count": ss.Gaussian(sigma=1).policy})
    session = ss.Session(RECORDS, ledger, bits=Recorded(1))
    for name in ("exact_sums", "records_below"):
        monkeypatch.setattr(bound_module, name, lambda *given: pytest.fail("the records were read"))
    preview = session.preview(SUMS)
    assert preview.policy({"x": 3}) == ss.Root(k=2, sigma=1).policy(3) + ss.Gaussian(sigma=2).policy(1)
    assert preview.pure_policy is None
    assert preview.refusal is None
    assert preview.spent.releases == 0
    assert [column.name for column in preview.columns] == ["x", "count"]
    lines = str(preview).splitlines()
    assert len(lines) == 9  # the policy, four lines of losses, the table, its two columns and the caps
    assert lines[0] == "Loss per record (PRzCDP): x / (2·1²) + 0.125"
    assert lines[4].startswith("  its value, 10 % more or less ")
    assert lines[5] == "table: 2 rows by g, drawn"
    assert lines[6].startswith("  x: standard error 2.5 for a sum of 1, ")
    assert lines[7] == "  count: standard error 2.02, 95 % interval ± 4"
    assert lines[8] == "Within all caps."
    refused = session.preview(replace(SUMS, columns={"x": ss.Root(k=2, sigma=0.5)}))
    assert isinstance(refused.refusal, ss.CapError)
    with pytest.raises(FrozenInstanceError):
        refused.refusal = None
    assert "Refused: the cap on 'x' would be exceeded" in str(refused)
    assert len(ledger.history()) == 1  # made, and nothing else


@pytest.mark.parametrize(
    ("make", "subject", "code"),
    [
        (lambda: ss.Sums(), "columns", "empty"),
        (lambda: ss.Sums({"x": 5}), "columns['x']", "type"),
        (lambda: ss.Sums({"count": ss.Gaussian(sigma=1)}), "column 'count'", "reserved"),
        (lambda: ss.Request({"t": ss.Sums({"x": ss.Gaussian(sigma=1)})}, level=2), "level", "value"),
        (lambda: ss.Session(RECORDS).sum({"x": ss.Gaussian(sigma=1)}, level=2), "level", "value"),
        (lambda: ss.Sums({"x": ss.Gaussian(sigma=1)}, unit={"y": 1}), "unit", "unknown-column"),
        (lambda: ss.Sums({"x": ss.Gaussian(sigma=1)}, "g"), "keys", "type"),
        (
            lambda: ss.Session(RECORDS).sum({"x": ss.Gaussian(sigma=1)}, by="g"),
            "by",
            "unknown-name",
        ),
        (lambda: ss.Session(RECORDS).sum({"x": ss.Gaussian(sigma=1)}, wher="x > 1"), "wher", "unknown-name"),
        (lambda: ss.Sums({"x": ss.Gaussian(sigma=1)}, means="box"), "count", "missing"),
        (
            lambda: ss.Sums({"x": ss.Gaussian(sigma=1)}, count=ss.Gaussian(sigma=1), means="x"),
            "means",
            "value",
        ),
        (
            lambda: ss.Session(RECORDS).mean({"x": ss.Gaussian(sigma=1)}, count=ss.Gaussian(sigma=1), means="x"),
            "means",
            "value",
        ),
        (lambda: ss.Sums({"g": ss.Gaussian(sigma=1)}, keys=KEYS), "column 'g'", "conflict"),
        (lambda: ss.Session(RECORDS).release({"x": ss.Gaussian(sigma=1)}), "request", "type"),
        (lambda: ss.Session(RECORDS).preview(ss.Sums({"y": ss.Gaussian(sigma=1)})), "column 'y'", "unknown-column"),
    ],
)
def test_mistakes(make, subject, code):
    with refused(ss.SlowscaleError, subject, code=code):
        make()


@pytest.mark.parametrize(("name", "meaning"), [("Count", "the number of records"), ("*", "the cap of every other")])
def test_reserved_names_and_their_meaning(name, meaning):
    with pytest.raises(ss.ParameterError, match=f"reserved for {meaning}"):
        ss.Sums({name: ss.Gaussian(sigma=1)})


def test_a_plan_builds_each_mechanism_once(tmp_path, monkeypatch):
    made = []
    real = ss.Mechanism.calibrate.__func__
    monkeypatch.setattr(
        ss.Mechanism, "calibrate", classmethod(lambda cls, **given: made.append(cls) or real(cls, **given))
    )
    (tmp_path / "d.csv").write_text("x\n5\n")
    (tmp_path / "plan.toml").write_text(
        '[data]\npath = "d.csv"\n[tables.t.sums.x]\nmechanism = "gaussian"\nstd = 5\n[output]\nfolder = "o"\n'
    )
    plan = ss.read_plan(tmp_path / "plan.toml")
    from slowscale.plan import run_plan

    run_plan(plan)
    assert len(made) == 1


# Several tables

CROSSED = ss.Keys.cross({"state": ["IA", "NV", "TX"], "kind": ["farm", "mine", "shop"]})
STATES, KINDS = ss.Keys.cross({"state": ["IA", "NV", "TX"]}), ss.Keys.cross({"kind": ["farm", "shop"]})
LAPLACE, POLYLOG = ss.GeneralizedGaussian(sigma=5, p=1), ss.ExponentialPolylog(d=0.3)
REGIONS = ss.Hierarchy("state", {"region": {"IA": "middle", "NV": "west", "TX": "south"}, "half": {
    "middle": "east", "south": "east", "west": "west"}})  # fmt: skip
CELLS = ss.Sums({"emp": POLYLOG}, keys=CROSSED)


def several():
    return ss.Request(
        {
            "cells": CELLS,
            "states": ss.Rollup("cells", by=["state"]),
            "kinds": ss.Sums({"emp": LAPLACE}, keys=KINDS, count=ss.Gaussian(sigma=2)),
            "regions": ss.Rollup("states", by=["region"]),
            "nation": ss.Rollup("regions"),
        },
        [REGIONS],
    )


def test_a_request_is_a_value():
    made = several()
    assert made == several()
    assert made != ss.Request({"cells": CELLS})
    assert replace(made, level=0.9) != made == replace(made, level=0.95)
    for copied in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made), replace(made)):
        assert copied == made
    with pytest.raises(FrozenInstanceError):
        made.tables = {}
    with pytest.raises(TypeError):
        made.tables["cells"] = CELLS
    assert list(made) == ["cells", "states", "kinds", "regions", "nation"]
    assert len(made) == 5
    assert {name: made.source(name) for name in made.rollups} == dict.fromkeys(("states", "regions", "nation"), "cells")
    assert list(made.drawn) == ["cells", "kinds"]
    assert [name for name in made if made.used_hierarchies(name) == (REGIONS,)] == ["regions"]
    assert made.used_hierarchies("states") == ()
    assert ss.Rollup("cells", "state") == ss.Rollup("cells", ["state"])


@pytest.mark.parametrize(
    ("tables", "subject", "code"),
    [
        ({}, "tables", "type"),
        ([CELLS], "tables", "type"),
        ({"a b": CELLS}, "tables", "name"),
        ({"../x": CELLS}, "tables", "name"),
        ({"-x": CELLS}, "tables", "name"),
        ({"": CELLS}, "tables", "name"),
        ({"x": CELLS, "X": CELLS}, "tables", "duplicate"),
        ({"x": "cells"}, "table 'x'", "type"),
        ({"c": CELLS, "x": {"emp": POLYLOG}}, "table 'x'", "type"),
        ({"x": ss.Rollup("x")}, "tables", "empty"),
        ({"c": CELLS, "x": ss.Rollup("y"), "y": ss.Rollup("x")}, "tables", "cycle"),
        ({"c": CELLS, "x": ss.Rollup("z")}, "table 'x'", "unknown-name"),
        ({"c": CELLS, "x": ss.Rollup("c", "county")}, "table 'x'", "unknown-column"),
        ({"c": CELLS, "x": ss.Rollup("c", "kind"), "y": ss.Rollup("x", "state")}, "table 'y'", "unknown-column"),
        ({"c": CELLS, "x": ss.Rollup("c", "half"), "y": ss.Rollup("x", "region")}, "table 'y'", "unknown-column"),
        ({"c": CELLS, "x": ss.Rollup("c", ["kind", "state"])}, "table 'x'", "duplicate"),
        ({"c": CELLS, "x": ss.Rollup("c"), "y": ss.Rollup("x")}, "table 'y'", "duplicate"),
        ({"c": ss.Sums({"emp": POLYLOG}), "x": ss.Rollup("c")}, "table 'x'", "no-cells"),
        ({"q": ss.Quantiles("emp", loss=1), "x": ss.Rollup("q")}, "table 'x'", "no-cells"),
    ],
)
def test_wrong_tables(tables, subject, code):
    with refused((ss.ParameterError, ss.ParameterTypeError), subject, code=code):
        ss.Request(tables, [REGIONS])


def test_wrong_hierarchies():
    for wrong in ("county", [REGIONS, REGIONS], [REGIONS, "x"], [REGIONS, ss.Hierarchy.digits("region", {"first": 1})]):
        with refused(ss.SlowscaleError, "hierarchies", path=("hierarchies",)):
            ss.Request({"cells": CELLS}, wrong)


@pytest.mark.parametrize("given", [{"of": ""}, {"of": 3}, {"of": "x", "by": 3}, {"of": "x", "by": ["a", "a"]}])
def test_wrong_rollups(given):
    with pytest.raises((ss.ParameterError, ss.ParameterTypeError)):
        ss.Rollup(**given)


def test_levels_by_digits_nest_by_their_length():
    codes = ss.Sums({"emp": POLYLOG}, keys=ss.Keys.cross({"naics": ["1111", "1121", "2211"]}))
    digits = ss.Hierarchy.digits("naics", {"sector": 2, "subsector": 3})
    made = {"c": codes, "sub": ss.Rollup("c", "subsector"), "sec": ss.Rollup("sub", "sector")}
    assert ss.Request(made, digits).source("sec") == "c"
    with refused(ss.ParameterError, "table 'sub'", code="unknown-column"):
        ss.Request({"c": codes, "sec": ss.Rollup("c", "sector"), "sub": ss.Rollup("sec", "subsector")}, digits)


def test_drawn_tables_are_about_the_same_records_and_columns():
    by_state = ss.Request({"a": CELLS, "b": ss.Sums({"pay": POLYLOG}, keys=STATES)}, partition="state")
    assert by_state.labels == {"IA", "NV", "TX"}
    assert ss.Request({"a": CELLS}).labels == frozenset()
    for other, code in (
        (ss.Sums({"emp": POLYLOG}, keys=KINDS), "unknown-column"),
        (ss.Sums({"emp": POLYLOG}), "unknown-column"),
        (ss.Quantiles("emp", loss=1), "unknown-column"),
        (ss.Sums({"emp": POLYLOG}, keys=ss.Keys.cross({"state": ["IA"]})), "mismatch"),
    ):
        for tables in ({"a": CELLS, "b": other}, {"b": other, "a": CELLS}):
            with refused(ss.ParameterError, "partition", code=code):
                ss.Request(tables, partition="state")
    half, double = ({"size": text} for text in ("emp / 2", "emp * 2"))
    first = ss.Sums({"size": POLYLOG}, keys=CROSSED, derive=half)
    ss.Request({"a": first, "b": ss.Sums({"size": LAPLACE}, keys=STATES, derive=half)})
    for other in (double, None):
        for table in (
            ss.Sums({"size": LAPLACE}, keys=STATES, derive=other),
            ss.Quantiles("size", loss=1, derive=other),
        ):
            with refused(ss.ParameterError, "column 'size'", code="mismatch"):
                ss.Request({"a": first, "b": table})


def test_a_table_or_a_mapping_of_tables_is_a_request():
    session = ss.Session(RECORDS, bits=Recorded(1))
    assert list(session.release(SUMS)) == ["table"]
    found = session.release({"cells": SUMS, "total": ss.Rollup("cells")})
    assert list(found) == ["cells", "total"]
    request = ss.Request({"cells": SUMS})
    assert as_request(request) is request
    assert as_request({"cells": SUMS}) == request == as_request(as_request(request))
    for wrong in (None, {}, [SUMS], "cells", {"cells": "x"}):
        with refused(ss.ParameterTypeError, "request", code="type"):
            as_request(wrong)
    with refused(ss.ParameterTypeError, "table 'other'", code="type"):
        as_request({"cells": SUMS, "other": 5})
