"""Tight accounting: charges, caps, refusals, reports and ledgers use the tight policies; closed accounting does not."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from helpers import tight
from helpers.bitsources import Recorded
from helpers.errors import refused
from helpers.tight import StandIn
from hypothesis import given, settings
from hypothesis import strategies as st

import slowscale as ss
from slowscale.accounting import Charge
from slowscale.accounting.caps import Total
from slowscale.accounting.caps import check as check_cap
from slowscale.accounting.explanation import at_most
from slowscale.cli.ledgers import explain, history, set_cap
from slowscale.cli.plans import check
from slowscale.mechanisms.calibration import ACCOUNTINGS, charged_policy, check_accounting
from slowscale.plan import read_plan, run_plan
from slowscale.policy import ConstantPolicy
from slowscale.release.columns import released_columns

FIRMS = pd.DataFrame(
    {
        "state": ["IA", "IA", "TX", "TX", "NV"] * 40,
        "firm": [f"f{i % 7}" for i in range(200)],
        "emp": [(i * 37) % 101 + (i % 9) ** 4 for i in range(200)],
        "pay": [(i * 91) % 103 for i in range(200)],
    }
)
KEYS = ss.Keys.cross({"state": ["IA", "NV", "TX"]})
LONG, POLYLOG, NORMAL = ss.GeneralizedGaussian(sigma=40, p=0.5), ss.ExponentialPolylog(d=0.3), ss.Gaussian(sigma=50)
SIZES = np.array([0.0, 1e-9, 0.5, 1, 12, 400, 1e6, 1e13])


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    return tight.install(monkeypatch)


def session(accounting="tight", **options):
    return ss.Session(FIRMS, accounting=accounting, bits=Recorded(3), **options)


def test_the_stand_in_is_a_smaller_policy():
    for m in (LONG, POLYLOG):
        assert (m.tight_policy(SIZES) <= m.policy(SIZES)).all()
        assert m.tight_policy(m.sigma) == pytest.approx(m.policy(m.sigma) / 2, rel=1e-3)
    assert charged_policy(LONG, "tight") == LONG.tight_policy != LONG.policy == charged_policy(LONG, "closed")
    assert charged_policy(NORMAL, "tight") == NORMAL.policy


@pytest.mark.parametrize("wrong", ["Tight", "", None, True, ["tight"], "rényi"])
def test_other_accountings_are_refused(wrong):
    with refused(ss.ParameterError, "accounting", code="value"):
        session(wrong)
    assert [check_accounting(name) for name in ACCOUNTINGS] == ["closed", "tight"]


def test_every_charge_uses_the_policy_of_the_accounting():
    for accounting in (None, "closed", "tight"):
        opened = ss.Session(FIRMS, bits=Recorded(1)) if accounting is None else session(accounting)
        query = ss.Sums({"emp": LONG, "pay": POLYLOG}, keys=KEYS, count=ss.GeneralizedGaussian(sigma=3, p=1))
        charged = [charged_policy(m, accounting or "tight") for m in (LONG, POLYLOG, query.count)]
        wanted = ss.RecordPolicy((("emp", charged[0]), ("pay", charged[1]), (None, ConstantPolicy(charged[2](1)))))
        preview = opened.preview(query)
        release = opened.release(query)
        assert preview.policy == release.policy == wanted
        assert preview.accounting == release.facts.accounting == opened.accounting == (accounting or "tight")
        assert opened.spent.terms == wanted.terms
        assert release.facts.policy == tuple(wanted.to_dict())
        assert release.facts.formula == str(wanted)
        assert release.pure_policy == session("closed").release(query).pure_policy
        means = opened.mean({"emp": LONG}, keys=KEYS, count=query.count)
        assert means.policy.column(None) == wanted.column(None)
        assert opened.count(keys=KEYS, mechanism=query.count).policy.terms == wanted.terms[2:]
        for text in (str(release), str(preview)):
            assert ("closed-form accounting" in text) == (accounting == "closed")
            assert "tight accounting" not in text
        closed = [column.closed for column in released_columns(release.policy, release.facts)]
        if accounting != "closed":
            assert closed == [LONG.policy, POLYLOG.policy, ConstantPolicy(query.count.policy(1))]
        else:
            assert closed == [None, None, None]


def test_noise_and_errors_do_not_depend_on_the_accounting():
    made = [session(name).sum({"emp": LONG}, keys=KEYS) for name in ACCOUNTINGS]
    assert made[0].table == made[1].table


def test_entities_and_parts_are_charged_tight():
    firms = session(protect="firm").sum({"emp": LONG}, keys=KEYS, count=POLYLOG)
    assert dict(firms.policy.terms) == {"emp": LONG.tight_policy, "count": POLYLOG.tight_policy}
    assert firms.policy.entity([{"emp": 120, "count": 3}]) == LONG.tight_policy(120) + POLYLOG.tight_policy(3)
    opened = session()
    for state, m in (("IA", LONG), ("TX", ss.GeneralizedGaussian(sigma=20, p=0.5))):
        opened.sum({"emp": m}, keys=ss.Keys.cross({"state": [state]}), partition="state")
    assert opened.spent({"emp": 30}) == ss.GeneralizedGaussian(sigma=20, p=0.5).tight_policy(30)
    assert opened.spent({"emp": 30, "state": "IA"}) == LONG.tight_policy(30)


# --- caps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ledger", [True, False])
def test_caps_are_compared_with_what_is_charged(tmp_path, ledger):
    """A cap of one closed form has room for one charge of either kind, and a tight cap for one tight charge.

    The tight policy equals the closed form for the smallest and the largest records, so a second charge does not fit.
    """
    caps = {"emp": LONG.policy, "pay": LONG.tight_policy}
    for accounting, room in (("closed", {"emp": 1, "pay": 0}), ("tight", {"emp": 1, "pay": 1})):
        for column, most in room.items():
            path = tmp_path / f"{accounting}-{column}" if ledger else None
            opened = session(accounting, ledger=path, caps=caps)
            for _ in range(most):
                assert opened.preview(ss.Sums({column: LONG})).refusal is None
                opened.sum({column: LONG})
            assert isinstance(opened.preview(ss.Sums({column: LONG})).refusal, ss.CapError)
            with pytest.raises(ss.CapError):
                opened.sum({column: LONG})
            assert opened.spent.releases == most


COUNTS = st.tuples(*[st.integers(0, 3)] * 3)


@settings(max_examples=60)
@given(spent=COUNTS.filter(any), cap=COUNTS.filter(any))
def test_the_verdict_on_sums_of_tight_and_closed_policies(spent, cap):
    """Counts of T, its closed form C and a Gaussian: wherever a sample exceeds the cap, the proof must fail.

    T equals C at both ends. So a total is under a cap if C and T together are no more than in the cap, and C no more.
    """
    policies = [StandIn(LONG.policy, 40.0), LONG.policy, NORMAL.policy]
    total, allowed = (sum((n * p for n, p in zip(counts, policies, strict=True) if n), 0) for counts in (spent, cap))
    sizes = np.concatenate([[0.0], np.geomspace(1e-12, 1e20, 400)])
    exceeded = (total(sizes) > allowed(sizes) * (1 + 1e-8)).any()
    try:
        check_cap("x", Total.zero() + total, allowed)
        assert not exceeded
    except ss.CapError:
        covered = spent[1] <= cap[1] and spent[0] + spent[1] <= cap[0] + cap[1] and spent[2] <= cap[2]
        assert not covered


def test_counts_under_a_cap():
    caps = {"count": ConstantPolicy(LONG.tight_policy(1) * 2.01)}
    opened = session(caps=caps)
    opened.count(mechanism=LONG)
    opened.count(mechanism=LONG)
    with refused(ss.CapError, "the cap on 'count'", code="cap"):
        opened.count(mechanism=LONG)


@pytest.mark.parametrize("column", ["emp", "count"])
def test_what_would_still_fit_is_found_by_tight_policies(column):
    """The advice fits, a little less noise does not, and under closed accounting more noise is needed."""
    caps = {column: 3 * LONG.tight_policy}

    def release(opened, m):
        return opened.count(mechanism=m) if column == "count" else opened.sum({column: m})

    found = {}
    for accounting in ACCOUNTINGS:
        opened = session(accounting, caps=caps)
        with pytest.raises(ss.CapError) as error:
            release(opened, ss.GeneralizedGaussian(sigma=2, p=0.5))
        sigma = float(re.search(r"sigma=([\d.]+)", error.value.fits)[1])
        with pytest.raises(ss.CapError):
            release(opened, ss.GeneralizedGaussian(sigma=sigma * 0.98, p=0.5))
        release(opened, ss.GeneralizedGaussian(sigma=sigma, p=0.5))
        found[accounting] = sigma
    assert found["tight"] < found["closed"]


def test_a_refusal_computes_no_tables_of_other_shapes(stand_in):
    """A search over the decay d would compute one table per step: it uses closed forms, which are never smaller."""
    opened = session(caps={"emp": ss.ExponentialPolylog(d=0.2).policy})
    with pytest.raises(ss.CapError) as error:
        opened.sum({"emp": POLYLOG})
    assert {shape.d for shape in tight.shapes_evaluated()} == {0.3}
    assert error.value.fits is not None
    d = float(re.search(r"\bd=([\d.]+)", error.value.fits)[1])
    assert d <= 0.2
    opened.sum({"emp": ss.ExponentialPolylog(d=d)})


def test_an_incomplete_search_claims_nothing():
    """Where only closed forms were tried, the advice must not say that no such mechanism fits."""
    for accounting, full in (("closed", True), ("tight", False)):
        opened = session(accounting, caps={"emp": ConstantPolicy(1.0)})
        with pytest.raises(ss.CapError) as error:
            opened.sum({"emp": ss.ExponentialPolylog(d=2)})
        assert (error.value.full, error.value.fits is not None) == (full, full)


# --- ledgers ---------------------------------------------------------------------------------------------------------


def test_the_history_names_the_accounting(tmp_path, capsys, stand_in):
    path = tmp_path / "census.ledger"
    session("closed", ledger=path, caps={"emp": LONG.policy}).sum({"emp": LONG}, keys=KEYS)
    opened = session("tight", ledger=path)
    with pytest.raises(ss.CapError):
        opened.sum({"emp": LONG}, keys=KEYS)
    opened.count(mechanism=NORMAL)
    with ss.Ledger(path) as ledger:
        ledger.charge(Charge(ss.RecordPolicy(((None, ConstantPolicy(0.1)),))))
    history(path)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition("; ")[2] for line in lines if " release " in line and "refused" not in line] == [
        "closed-form accounting", "tight accounting", ""
    ]  # fmt: skip
    history(path, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert [entry.get("accounting", "-") for entry in found] == ["-", "closed", "tight", "tight", None]


def test_one_ledger_holds_charges_of_both_accountings(tmp_path, stand_in):
    path = tmp_path / "census.ledger"
    heads = []
    for accounting in ("closed", "tight", "tight"):
        heads.append(session(accounting, ledger=path).sum({"emp": LONG}, keys=KEYS).facts.ledger)
    stand_in.evaluated.clear()
    with ss.Ledger(path) as ledger:
        assert ledger.verify() == []
        assert all(ledger.verify(head) == [] for head in heads)
        charges = [entry["facts"] for entry in ledger.history() if entry["kind"] == "charge"]
        assert ledger.spent.terms == (("emp", LONG.policy), *[("emp", LONG.tight_policy)] * 2)
        assert not stand_in.evaluated, "reading a ledger without caps must not compute tables"
        assert ledger.spent({"emp": 12}) == pytest.approx(LONG.policy(12) + 2 * LONG.tight_policy(12))
        assert "All columns together" in ledger.describe()
    assert [facts["accounting"] for facts in charges] == ["closed", "tight", "tight"]
    for facts in charges:  # an entry has all that is needed to compute its policy again
        m = ss.Mechanism.from_dict(facts["tables"]["table"]["columns"]["emp"]["mechanism"])
        (term,) = facts["policy"]
        assert term == {"column": "emp", "policy": charged_policy(m, facts["accounting"]).to_dict()}


def test_a_release_that_is_read_keeps_its_accounting(tmp_path, stand_in):
    release = session().sum({"emp": LONG}, keys=KEYS)
    assert stand_in.evaluated, "a loss that cannot be computed must not be charged"
    stand_in.evaluated.clear()
    read = ss.read_release(release.to_parquet(tmp_path / "t.parquet"))
    assert "tight(emp / 40; stand-in)" in str(read)
    assert not stand_in.evaluated, "reading and printing a release must not compute tables"
    assert read.facts.accounting == "tight"
    assert read.policy == release.policy


# --- losses, comparison ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protect", [None, "firm"])
def test_losses_are_those_that_are_charged(protect):
    opened = session(protect=protect)
    release = opened.sum({"emp": LONG, "pay": NORMAL}, keys=KEYS)
    if protect is None:
        truth = np.sort(release.policy(FIRMS))
    else:
        cells = FIRMS.groupby(["firm", "state"])[["emp", "pay"]].sum()
        truth = np.sort(pd.Series(release.policy(cells), index=cells.index).groupby(level=0).sum())
    found = opened.losses(release)
    np.testing.assert_allclose(list(found.quantiles.values()), np.quantile(truth, list(found.quantiles)), rtol=2e-3)
    assert found.largest[1] == pytest.approx(truth[-1])


# --- plans and commands ----------------------------------------------------------------------------------------------

CLOSED = '[release]\naccounting = "closed"'
PLAN = """
[data]
path = "firms.parquet"

[tables.cells.keys]
by = ["state"]
cross = { state = ["IA", "NV", "TX"] }

[ledger]
path = "firms.ledger"

[ledger.caps.emp]
mechanism = "generalized-gaussian"
sigma = 40
p = 0.5
times = 2
accounting = "tight"

[ledger.caps."*"]
mechanism = "gaussian"
sigma = 1

[tables.cells.sums.emp]
mechanism = "generalized-gaussian"
sigma = 40
p = 0.5

[tables.cells.count]
mechanism = "generalized-gaussian"
sigma = 3
p = 1

[release]
accounting = "tight"

[report]
sizes = [{ name = "median firm", emp = 12 }, { name = "largest firm", emp = 90_000 }]

[output]
folder = "out"
report = "out.html"
"""


@pytest.fixture
def plan(tmp_path):
    FIRMS.to_parquet(tmp_path / "firms.parquet")
    path = tmp_path / "plan.toml"
    path.write_text(PLAN, encoding="utf-8")
    return path


def test_plans_charge_by_their_accounting(plan, tmp_path, capsys, stand_in):
    read = read_plan(plan)
    assert not stand_in.evaluated, "reading a plan must not compute tables"
    assert read.policy.column("emp") == LONG.tight_policy
    assert read.caps["emp"] == 2 * LONG.tight_policy
    check(plan)
    shown = capsys.readouterr().out
    assert f"{LONG.policy(12):.3g} at 12 (median firm)" in shown.partition("by the closed form it would be: ")[2]
    assert "Accounting" not in shown
    check(plan, as_json=True)
    assert json.loads(capsys.readouterr().out)["accounting"] == "tight"
    release, _ = run_plan(read)
    assert release.policy == read.policy
    assert release.facts.accounting == "tight"
    run_plan(read, overwrite=True)
    with refused(ss.CapError, "the cap on 'emp'", code="cap"):
        run_plan(read, overwrite=True)
    with ss.Ledger(tmp_path / "firms.ledger") as ledger:
        entries = ledger.history()
        assert ledger.verify() == []
    assert {entry["facts"]["accounting"] for entry in entries[1:]} == {"tight"}
    assert entries[-1]["kind"] == "attempt"
    for source in (plan, tmp_path / "out" / "cells.parquet"):
        explain(source, ["emp=12"])
        assert f"loses {LONG.tight_policy(12):.3g} through emp (closed form: " in capsys.readouterr().out
        explain(source, ["emp=12"], as_json=True)
        found = json.loads(capsys.readouterr().out)
        assert (found["accounting"], found["columns"]["emp"]) == ("tight", LONG.tight_policy(12))


def test_plans_are_tight_by_default_and_state_closed_forms(plan, capsys):
    plan.write_text(PLAN.replace('[release]\naccounting = "tight"', ""), encoding="utf-8")
    assert read_plan(plan).policy.column("emp") == LONG.tight_policy
    explain(plan, ["emp=12"])
    assert "closed form: " in capsys.readouterr().out
    plan.write_text(PLAN.replace('accounting = "tight"', 'accounting = "closed"'), encoding="utf-8")
    assert read_plan(plan).policy.column("emp") == LONG.policy
    explain(plan, ["emp=12"])
    assert "closed form" not in capsys.readouterr().out
    check(plan)
    assert "Accounting: closed-form. The formulas of the policies are charged" in capsys.readouterr().out
    plan.write_text(PLAN.replace('accounting = "tight"', 'accounting = "tigth"'), encoding="utf-8")
    with refused(ss.SlowscaleError, code="plan"):
        read_plan(plan)


def test_a_cap_can_be_raised_to_a_tight_policy(capsys, tmp_path):
    with ss.Ledger(tmp_path / "l", {"emp": LONG.policy}) as ledger:
        cap = {"mechanism": "generalized-gaussian", "param": ["sigma=40", "p=0.5"], "reason": "test", "yes": True}
        set_cap(tmp_path / "l", "emp", **cap, times=3)
        assert ledger.caps == {"emp": 3 * LONG.tight_policy}
        set_cap(tmp_path / "l", "emp", **cap, times=3, accounting="closed")
        assert ledger.caps == {"emp": 3 * LONG.policy}
        assert "nowhere lower" in capsys.readouterr().out
        assert ledger.verify() == []


# --- reports ---------------------------------------------------------------------------------------------------------


def page(accounting, path, **mechanisms):
    opened = session(accounting)
    release = opened.sum(mechanisms, keys=KEYS, count=ss.GeneralizedGaussian(sigma=3, p=1))
    sizes = {"median firm": dict.fromkeys(mechanisms, 12), "largest firm": dict.fromkeys(mechanisms, 9e4)}
    text = release.report(path, opened.spent, overwrite=True, sizes=sizes).read_text(encoding="utf-8")
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", text.partition("<body")[2]))


def test_the_report_shows_both_policies_and_the_gain(tmp_path):
    text = page("tight", tmp_path / "r.html", emp=LONG, pay=NORMAL)
    gains = [f"{LONG.policy(size) / LONG.tight_policy(size):.3g} times as large at size" for size in (12, 9e4)]
    sentence = f"By the closed form of the policy the loss would be {gains[0]} 12 (median firm) and {gains[1]} 90,000"
    assert text.count(sentence) == 1
    assert text.count("PRzCDP loss by the closed form") == 2  # of emp and the count; the Gaussian has only one policy
    assert "emp, closed form" in text
    assert "count, closed form" in text
    assert "pay, closed form" not in text
    assert f"By the closed form of the policy it would be {1.9:.2g}" in text
    assert "Accounting is tight: each policy is the smallest one that is known for its noise" in text
    assert "Closed-form accounting" not in text
    assert f"{at_most(LONG.tight_policy(12))} at size 12 (median firm)" in text
    data = text.partition("Data of this chart")[2]
    assert f"12 {LONG.tight_policy(12):.3g} {LONG.policy(12):.3g}" in data


def test_a_closed_report_states_its_accounting(tmp_path):
    text = page("closed", tmp_path / "r.html", emp=LONG, pay=NORMAL)
    assert text.count("Accounting Closed-form accounting: the losses are those of the closed forms") == 1
    assert not re.search(r"By the closed form|[Tt]ight", text)
    assert f"{at_most(LONG.policy(12))} at size 12 (median firm)" in text


def test_a_policy_that_is_tight_already_is_shown_once(tmp_path):
    release = session().sum({"emp": NORMAL}, keys=KEYS)
    text = release.report(tmp_path / "r.html").read_text(encoding="utf-8")
    assert "closed form" not in text


def test_a_loss_that_cannot_be_computed_is_not_charged(monkeypatch):
    def fail(policy, influence):
        raise RuntimeError("no table")

    opened = session()
    monkeypatch.setattr(StandIn, "_loss", fail)
    with pytest.raises(RuntimeError, match="no table"):
        opened.sum({"emp": LONG})
    assert opened.spent.releases == 0
    assert session("closed").sum({"emp": LONG}).policy == ss.RecordPolicy((("emp", LONG.policy),))


def test_a_target_by_the_tight_policy_needs_tight_accounting(plan):
    """Otherwise the loss that is charged would be larger than the target."""
    target = "loss = 1\nat = 100\n"
    tight = PLAN.replace("sigma = 40\np = 0.5\n\n[tables.cells.count]", f"p = 0.5\n{target}\n[tables.cells.count]")
    closed = tight.replace('[release]\naccounting = "tight"', CLOSED)
    for stated in ("", "accounting = 'tight'\n"):
        plan.write_text(closed.replace(target, target + stated), encoding="utf-8")
        with refused(ss.PlanError, code="plan"):
            read_plan(plan)
    plan.write_text(closed.replace(target, target + "accounting = 'closed'\n"), encoding="utf-8")
    assert read_plan(plan).columns["cells"][0].policy(100) == pytest.approx(1)
    plan.write_text(tight, encoding="utf-8")
    assert read_plan(plan).columns["cells"][0].policy(100) <= 1
