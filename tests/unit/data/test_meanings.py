"""A column has one meaning in a ledger: another expression, or a stored column of the same name, is refused."""

import json
import sqlite3
from contextlib import closing

import ibis
import pandas as pd
import pytest
from helpers.bitsources import Recorded
from ibis import _

import slowscale as ss
from slowscale.accounting import Account, Charge
from slowscale.data.rowwise import LONGEST, computed_columns, meanings, sql_form
from slowscale.plan import check_plan, read_plan, run_plan, run_quantiles
from slowscale.release.request import Quantiles

FARMS = pd.DataFrame({"state": ["IA", "TX"], "payann": [4_000, 9_000], "emp": [4, 9], "my size": [1, 2]})
NOISE = ss.Gaussian(sigma=1000)
ANOTHER = "column 'pay' must be the same in all releases"


@pytest.fixture(params=["ledger", "memory"])
def releasing(request, tmp_path):
    """Return a function that makes a release of the column pay: all are charged to one account."""
    path = tmp_path / "farms.ledger"
    kept = Account()

    def release(derive=None, data=FARMS, **options):
        if request.param == "ledger":
            session = ss.Session(data, path, bits=Recorded(1))
        else:
            session = ss.Session._charging(kept, data, bits=Recorded(1))
        session.sum({"pay": NOISE}, derive=derive, **options)
        return session

    return release


def test_another_expression_of_the_same_name_is_refused(releasing):
    """The total would add up losses of different amounts: 0.25 is said, and 125,000 is true."""
    releasing({"pay": "payann / 1000"})
    for other in ("payann * 1000", "payann", "payann / 1000.0", "emp / 1000", "(payann) / 1000"):
        with pytest.raises(ss.ParameterError, match=ANOTHER):
            releasing({"pay": other})
    with pytest.raises(ss.ParameterError, match=r"derived as payann / 1000, and here it is stored in the data"):
        releasing(data=FARMS.assign(pay=[1, 2]))
    assert releasing({"pay": "payann / 1000"}).spent.releases == 2


def test_a_stored_column_is_not_replaced_by_a_derived_one(releasing):
    releasing(data=FARMS.assign(pay=[1, 2]))
    with pytest.raises(ss.ParameterError, match=r"it was stored in the data, and here it is derived as payann / 1000"):
        releasing({"pay": "payann / 1000"})
    table = ibis.memtable(FARMS.assign(pay=[1, 2]))
    with pytest.raises(ss.ParameterError, match=ANOTHER):
        releasing(data=table.mutate(pay=table.pay * 1000))
    releasing(data=table.filter(_.emp > 0).order_by("emp"))


def test_spellings_of_one_expression_are_the_same(releasing):
    """Case, blanks, line breaks, comments and plain quotes make no difference, nor do filters and other columns."""
    releasing({"pay": "payann / 1000"})
    for same in ("PAYANN/1000", " Payann\n/ 1000", "payann /* in dollars */ / 1000", '"payann" / 1000 -- thousands'):
        releasing({"pay": same}, where="emp > 3")
        releasing({"year": "emp + 1", "pay": same})
    with pytest.raises(ss.ParameterError, match=ANOTHER):
        releasing({"pay": "payann * 1000"}, where="emp > 3")


def test_derived_columns_may_use_each_other(releasing):
    """What counts is how a column is computed from stored ones, by whatever steps."""
    releasing({"k": "payann / 1000", "pay": "k * 2"})
    releasing({"thousands": "payann / 1000", "pay": "thousands * 2"})
    releasing({"K": "PAYANN / 1000", "pay": '"K" * 2'})
    releasing({"pay": "(payann / 1000) * 2"})
    for other in ({"k": "payann * 1000", "pay": "k * 2"}, {"pay": "payann / 1000 * 2"}, {"k": "emp", "pay": "k * 2"}):
        with pytest.raises(ss.ParameterError, match=ANOTHER):
            releasing(other)


def test_columns_that_an_ibis_table_computes_have_a_meaning(releasing):
    table = ibis.memtable(FARMS)
    releasing(data=table.mutate(pay=table.payann / 1000))
    releasing(data=table.mutate(k=table.payann / 1000).rename(pay="k").filter(_.emp > 0))
    with pytest.raises(ss.ParameterError, match=ANOTHER):
        releasing({"pay": "payann / 1000"})
    for other in (table.mutate(pay=table.payann * 1000), table.rename(pay="payann"), FARMS.assign(pay=1)):
        with pytest.raises(ss.ParameterError, match=ANOTHER):
            releasing(data=other)


@pytest.mark.filterwarnings("ignore::slowscale.CapWarning")
def test_quantiles_and_sets_count(tmp_path):
    path = tmp_path / "farms.ledger"
    session = ss.Session(FARMS, path, bits=Recorded(1))
    session.quantiles("pay", [0.5], loss=0.1, derive={"pay": "payann / 1000"})
    other = {"pay": "payann * 1000"}
    tables = ss.Request({"cells": ss.Sums({"pay": NOISE}, derive=other), "count": ss.Sums(count=NOISE)})
    for release in (
        lambda: session.quantiles("pay", [0.5], loss=0.1, derive=other),
        lambda: session.release(tables),
        lambda: session.preview(tables),
        lambda: session.preview(ss.Sums({"pay": NOISE}, derive=other)),
        lambda: session.mean({"pay": NOISE}, count=NOISE, derive=other),
    ):
        with pytest.raises(ss.ParameterError, match=ANOTHER):
            release()
    same = ss.Request({"cells": ss.Sums({"pay": NOISE}, derive={"pay": "payann/1000"})})
    session.release(same)
    assert session.spent.releases == 2
    assert [entry["kind"] for entry in session.ledger.history()] == ["created", "charge", "charge"]


def test_a_protected_column_has_a_meaning():
    """Entities that are computed in another way are other entities."""
    table = ibis.memtable(FARMS.assign(firm=[11, 12]))
    kept = Account()
    ss.Session._charging(kept, table, protect="firm", bits=Recorded(1)).sum({"payann": NOISE})
    with pytest.raises(ss.ParameterError, match="column 'firm' must be the same in all releases"):
        ss.Session._charging(kept, table.mutate(firm=table.emp), protect="firm").sum({"payann": NOISE})


PLAN = """
[data]
path = "farms.csv"
types = {{ payann = "int64", emp = "int64" }}
derive = {{ pay = "{0}" }}
[tables.t.sums.pay]
mechanism = "gaussian"
sigma = 1000
[ledger]
path = "farms.ledger"
[output]
folder = "{1}"
"""


@pytest.mark.filterwarnings("ignore::slowscale.CapWarning")
def test_plans_and_python_share_the_meaning(tmp_path):
    FARMS.to_csv(tmp_path / "farms.csv", index=False)

    def plan(expression, name="one"):
        (tmp_path / "plan.toml").write_text(PLAN.format(expression, name))
        return read_plan(tmp_path / "plan.toml")

    run_plan(plan("payann / 1000"))
    check_plan(plan("PAYANN/1000", "two"))
    run_plan(plan("PAYANN/1000", "two"))
    ss.Session(FARMS, tmp_path / "farms.ledger", bits=Recorded(1)).sum({"pay": NOISE}, derive={"pay": "payann / 1000"})
    other = plan("payann * 1000", "three")
    for use in (check_plan, run_plan, lambda given: run_quantiles(given, Quantiles("pay", [0.5], loss=0.1), 0.95)):
        with pytest.raises(ss.ParameterError, match=ANOTHER):
            use(other)
    assert ss.Ledger(tmp_path / "farms.ledger").spent.releases == 3


def test_the_ledger_keeps_the_expression(tmp_path):
    path = tmp_path / "farms.ledger"
    ss.Session(FARMS, path, bits=Recorded(1)).sum(
        {"pay": NOISE, "emp": NOISE}, derive={"k": "payann/1000", "pay": "k * 2", "unused": "emp"}
    )
    with closing(sqlite3.connect(path)) as file:
        *_rest, (text,) = file.execute("SELECT payload FROM entries ORDER BY id")
    assert json.loads(text)["derived"] == {"pay": "( payann / 1000 ) * 2"}
    assert ss.Ledger(path).verify() == []


def test_a_charge_that_was_not_written_fixes_no_meaning():
    account = Account()
    policy = ss.RecordPolicy((("pay", NOISE.policy),))
    account.charge(Charge(policy, derived={"pay": "a"}))
    account.forget()
    account.charge(Charge(policy, derived={" PAY": "b"}))
    with pytest.raises(ss.ParameterError, match=r"'pay' must be the same .* derived as b, and here it is derived as a"):
        account.check(Charge(policy, derived={"pay": "a"}))
    with pytest.raises(ss.ParameterTypeError, match="derived must be a mapping of columns to text"):
        Charge(policy, derived={"pay": None})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("'A' || x", "'a' || x"),
        ("a - -b", "a --b"),
        ("a -- b\n + c", "a -- b + c"),
        ("'it''s'", "'it' 's'"),
        ('"true"', "true"),
        ("x > 1", "x >= 1"),
        ("$$A$$", "$$a$$"),
    ],
)
def test_different_expressions_have_different_normal_forms(one, other):
    assert sql_form(one, {}) != sql_form(other, {})


def test_normal_forms():
    assert sql_form("CASE when \"Emp\" IS  NOT null THEN 'A b' END", {}) == "case when emp is not null then 'A b' end"
    assert sql_form('"my size" + "Emp"', {"emp": "a * 2"}) == '"my size" + ( a * 2 )'
    table = ibis.memtable(FARMS)
    assert computed_columns(table) == {}
    assert computed_columns(table.rename({"its size": "my size"})) == {"its size": '"my size"'}
    # The records themselves are never part of it.
    joined = table.join(ibis.memtable(FARMS[["state", "emp"]].rename(columns={"emp": "more"})), "state")
    assert not any("4000" in form for form in computed_columns(joined.mutate(pay=_.payann * _.more)).values())


def test_a_long_normal_form_is_replaced_by_its_hash():
    """Twenty steps that double: written out, they would have a million terms."""
    steps = {"a0": "emp + emp"} | {f"a{n}": f"a{n - 1} + a{n - 1}" for n in range(1, 21)}
    found = meanings(steps, {})
    assert max(map(len, found.values())) <= LONGEST
    assert "sha256:" in found["a20"]
    assert meanings(steps | {"a0": "emp + 1"}, {})["a20"] != found["a20"]
    table = ibis.memtable(FARMS)
    value = table.emp
    for _step in range(9):
        value = value + value
    assert len(computed_columns(table.mutate(pay=value))["pay"]) <= LONGEST
