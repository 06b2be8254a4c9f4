"""Queries: a value that says what to publish, priced before it is carried out."""

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, replace

import ibis
import pandas as pd
import pytest
from helpers.bitsources import Recorded

import slowscale as ss
from slowscale.release import session as session_module

RECORDS = pd.DataFrame({"g": ["a", "a", "b"], "x": [3, 40, 500]})
KEYS = ss.Keys.from_frame({"g": ["a", "b"]})
QUERY = ss.Sums({"x": ss.Root(k=2, sigma=1)}, keys=KEYS, count=ss.Gaussian(sigma=2), where="x > 0")


def test_a_query_is_a_value():
    assert ss.Sums({"x": ss.Root(k=2, sigma=1)}, "g", KEYS) == ss.Sums({"x": ss.Root(k=2, sigma=1)}, "g", KEYS)
    assert replace(QUERY, level=0.9) != QUERY == replace(QUERY, level=0.95)
    assert list(QUERY.mechanisms) == ["x", "count"]
    with pytest.raises(FrozenInstanceError):
        QUERY.level = 0.5


def test_only_the_columns_and_the_keys_are_given_by_place():
    """So that a mechanism of the count, or a flag, is never taken for something else."""
    with pytest.raises(TypeError, match="positional argument"):
        ss.Sums({"x": ss.Root(k=2, sigma=1)}, "g", KEYS, ss.Gaussian(sigma=2))
    query = ss.Sums({"x": ss.Root(k=2, sigma=1)}, "g", KEYS)
    assert (query.count, query.unit, query.level, query.means, query.partition) == (None, 1, 0.95, None, None)
    assert (query.where, query.derive, query.nulls, query.negatives) == (None, None, "error", "error")
    assert query.nonnegative is False


def test_the_methods_of_a_session_have_the_defaults_of_a_query():
    asked = inspect.signature(ss.Query).parameters
    for method, by_place in (
        ("sum", ["columns", "by", "keys"]),
        ("mean", ["columns", "by", "keys"]),
        ("count", ["by", "keys"]),
    ):
        given = dict(inspect.signature(getattr(ss.Session, method)).parameters)
        given.pop("self")
        assert [name for name, one in given.items() if one.kind is one.POSITIONAL_OR_KEYWORD] == by_place
        assert all(one.kind is one.KEYWORD_ONLY for name, one in given.items() if name not in by_place)
        optional = {name for name, one in given.items() if one.default is not one.empty} - {"interval"}
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
        with pytest.raises(ss.ParameterError, match=f"column 'x{suffix}' would be in the release twice"):
            ss.Sums(columns, keys=given)


def test_what_was_previewed_is_released():
    columns, derive, unit, by = {"y": ss.Gaussian(sigma=1)}, {"y": "x + 1"}, {"y": 5}, ["g"]
    query = ss.Sums(columns, by, KEYS, derive=derive, unit=unit)
    session = ss.Session(RECORDS, bits=Recorded(1))
    session.preview(query)
    columns["y"], derive["y"], unit["y"] = ss.Gaussian(sigma=0.001), "x * 1000", 1
    columns["x"] = ss.Gaussian(sigma=0.001)
    by.append("h")
    assert query == ss.Sums({"y": ss.Gaussian(sigma=1)}, ("g",), KEYS, derive={"y": "x + 1"}, unit={"y": 5})
    facts = session.release(query).facts
    assert (facts.derived, facts.columns["y"].unit) == ({"y": "x + 1"}, "5")
    assert facts.columns["y"].described.startswith("Gaussian(sigma=1")


@pytest.mark.parametrize("name", ["columns", "derive", "unit", "mechanisms", "units"])
def test_its_parts_cannot_be_changed(name):
    query = ss.Sums({"y": ss.Gaussian(sigma=1)}, derive={"y": "x + 1"}, unit={"y": 5})
    part = getattr(query, name)
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
        with pytest.raises(TypeError, match="a query cannot be changed; make a new one"):
            change()
    for copied in (pickle.loads(pickle.dumps(query)), copy.deepcopy(query), replace(query)):
        assert copied == query
        assert getattr(copied, name) == part


def test_queries_are_compared():
    for change in ({"where": "x > 1"}, {"where": None}, {"derive": {"y": "x"}}, {"keys": None}, {"unit": {"x": 2}}):
        assert replace(QUERY, **change) == replace(QUERY, **change) != QUERY
    assert replace(QUERY) == QUERY
    assert QUERY != "a query"
    with pytest.raises(TypeError, match="unhashable type: 'Query'"):
        hash(QUERY)


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
    by_query = one.release(QUERY)
    by_method = two.sum({"x": ss.Root(k=2, sigma=1)}, keys=KEYS, count=ss.Gaussian(sigma=2), where="x > 0")
    assert by_query.table.equals(by_method.table)
    means = replace(QUERY, means="box", where=None)
    by_query = ss.Session(RECORDS, bits=Recorded(2)).release(means)
    by_method = ss.Session(RECORDS, bits=Recorded(2)).mean(
        {"x": ss.Root(k=2, sigma=1)}, keys=KEYS, count=ss.Gaussian(sigma=2)
    )
    assert by_query.table.equals(by_method.table)


def test_a_preview_touches_no_record_and_charges_nothing(tmp_path, monkeypatch):
    ledger = ss.Ledger(tmp_path / "l", {"x": ss.Root(k=2, sigma=1).policy, "count": ss.Gaussian(sigma=1).policy})
    session = ss.Session(RECORDS, ledger, bits=Recorded(1))
    monkeypatch.setattr(session_module, "exact_sums", lambda *given: pytest.fail("the records were read"))
    preview = session.preview(QUERY)
    assert preview.policy({"x": 3}) == ss.Root(k=2, sigma=1).policy(3) + ss.Gaussian(sigma=2).policy(1)
    assert preview.pure_policy is None
    assert preview.refusal is None
    assert preview.spent.releases == 0
    assert [column.name for column in preview.columns] == ["x", "count"]
    lines = str(preview).splitlines()
    assert len(lines) == 4  # the policy, the two columns and the caps
    assert lines[1].startswith("  x: Root(k=2, sigma=1, a=0, estimator=mean); standard error 2.5 for a sum of 1, ")
    assert lines[2].startswith("  count: Gaussian(sigma=2); standard error 2")
    assert lines[3] == "No cap is in the way."
    refused = session.preview(replace(QUERY, columns={"x": ss.Root(k=2, sigma=0.5)}))
    assert isinstance(refused.refusal, ss.CapError)
    with pytest.raises(FrozenInstanceError):
        refused.refusal = None
    assert "Refused: the cap on 'x' would be exceeded" in str(refused)
    assert len(ledger.history()) == 1  # made, and nothing else


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ss.Sums(), "columns must be a mapping .*, or count must be given"),
        (lambda: ss.Sums({"x": 5}), "needs a mechanism"),
        (lambda: ss.Sums({"count": ss.Gaussian(sigma=1)}), "is reserved for the number of records"),
        (lambda: ss.Sums({"x": ss.Gaussian(sigma=1)}, level=2), "level must be"),
        (lambda: ss.Sums({"x": ss.Gaussian(sigma=1)}, unit={"y": 1}), "unit names 'y'"),
        (lambda: ss.Sums({"x": ss.Gaussian(sigma=1)}, "g"), "keys must be given with by"),
        (lambda: ss.Sums({"x": ss.Gaussian(sigma=1)}, means="box"), "count must be given"),
        (
            lambda: ss.Sums({"x": ss.Gaussian(sigma=1)}, count=ss.Gaussian(sigma=1), means="x"),
            "means must be one of box",
        ),
        (
            lambda: ss.Session(RECORDS).mean({"x": ss.Gaussian(sigma=1)}, count=ss.Gaussian(sigma=1), interval="x"),
            "^interval must",
        ),
        (lambda: ss.Sums({"g": ss.Gaussian(sigma=1)}, keys=KEYS), "is a key column"),
        (lambda: ss.Session(RECORDS).release({"x": ss.Gaussian(sigma=1)}), "query must be an ss.Query"),
        (lambda: ss.Session(RECORDS).preview(ss.Sums({"y": ss.Gaussian(sigma=1)})), "there is no column 'y'"),
    ],
)
def test_mistakes(make, words):
    with pytest.raises(ss.SlowscaleError, match=words):
        make()


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
