"""Accounts in memory: what is counted, in which part, and what a refusal says."""

import math

import pytest
from helpers.errors import refused

import slowscale as ss
from slowscale.accounting import Account, Charge, account
from slowscale.policy import ConstantPolicy, LogPolicy, RootPolicy, SumPolicy

GAUSSIAN, ROOT, LOG = (
    RootPolicy(k=1, sigma=10.0),
    RootPolicy(k=2, sigma=1.0),
    LogPolicy(sigma=1.0),
)  # Δ²/200, Δ/2, and ln(1 + Δ)²/2 <= Δ/2


def charge(policy=GAUSSIAN, column="x", state=None, **rest):
    """Return a charge to a column, about all records or about those of a state."""
    part = {} if state is None else {"by": "state", "labels": (state,), "kind": "text"}
    return Charge(ss.RecordPolicy(((column, policy),)), **part, **rest)


def cap_error(account, asked):
    with pytest.raises(ss.CapError) as caught:
        account.charge(asked)
    with pytest.raises(ss.CapError) as checked:
        account.check(asked)
    assert str(checked.value) == str(caught.value)
    return caught.value


def test_charges_by_other_processes_count_between_own_charges():
    """`record` adds what another process charged; totals that were added up before must not leave it out."""
    account = Account({"x": 4 * GAUSSIAN})
    account.charge(charge())
    account.record(charge())
    account.record(charge())
    account.charge(charge())
    assert cap_error(account, charge()).made == 4


def test_a_charge_that_was_not_written_is_forgotten():
    account = Account({"x": 3 * GAUSSIAN, "y": GAUSSIAN})
    charges = [charge(), charge(), charge(column="y")]
    for one in charges:
        account.charge(one)
    account.forget()
    assert account.charges == charges[:2]
    account.charge(charges[2])
    account.charge(charge())
    assert cap_error(account, charge()).column == "x"
    assert cap_error(account, charge(column="y")).column == "y"


def test_an_account_without_caps_takes_everything():
    account = Account()
    for _ in range(3):
        account.charge(charge())
        assert account.fits(charge(), "x")(1000 * GAUSSIAN)
    assert account.spent({"x": 10}) == pytest.approx(1.5)
    assert account.above_caps() == {}


def test_a_copy_has_the_charges_and_goes_its_own_way():
    first = Account({"x": 3 * GAUSSIAN}, remedy="ask the board")
    first.charge(charge())
    second = first.copy()
    assert second.spent == first.spent
    assert second.spent.releases == 1
    assert (second.caps, second.remedy) == (first.caps, "ask the board")
    second.charge(charge())
    second.charge(charge())
    assert cap_error(second, charge()).made == 3
    assert first.spent.releases == 1
    first.charge(charge())
    first.charge(charge())
    cap_error(first, charge())


def test_an_account_keeps_no_facts():
    """The facts of a release can be large, and are spelled as given; the ledger keeps them."""
    account = Account()
    facts = {"policy": charge().policy.to_dict(), "note": "long"}
    account.charge(Charge.from_facts(facts))
    account.charge(charge())
    assert [one.facts for one in account.charges] == [None, None]


def test_each_part_has_its_own_room_for_policies_of_all_shapes():
    """The parts of one partition have different records, so what one of them spent is not taken from the other."""
    account = Account({"x": SumPolicy((GAUSSIAN, ROOT))})
    account.charge(charge(GAUSSIAN, state="IA"))
    account.charge(charge(ROOT, state="IA"))
    account.charge(charge(LOG, state="TX"))
    assert cap_error(account, charge(LOG, state="IA")).column == "x"
    # Whether a record of all states is in Iowa or in Texas is not known: the largest of both counts.
    cap_error(account, charge(GAUSSIAN))
    account.charge(charge(GAUSSIAN, state="TX"))
    account.charge(charge(ROOT, state="NV"))


def test_another_partition_counts_with_its_largest_parts():
    account = Account({"x": SumPolicy((GAUSSIAN, ROOT))})
    by_size = {"by": "size", "kind": "whole numbers"}
    account.charge(Charge(charge(GAUSSIAN).policy, labels=(1,), **by_size))
    account.charge(Charge(charge(LOG).policy, labels=(2,), **by_size))
    # A record of Iowa may be of size 1 or 2: G + L + R exceeds the cap G + R.
    cap_error(account, charge(ROOT, state="IA"))


def test_a_refusal_names_all_columns_whose_caps_are_exceeded():
    account = Account({"*": GAUSSIAN})
    terms = tuple((column, 2 * GAUSSIAN) for column in ("a", "b", "c"))
    error = cap_error(account, Charge(ss.RecordPolicy(terms)))
    assert (error.column, error.also, error.cap_name) == ("a", ("b", "c"), "*")


@pytest.mark.parametrize("sigma", [0.0013 + 0.00017 * step for step in range(40)])
def test_nothing_was_lost_before_the_first_charge(sigma):
    """The total and the loss of one charge are computed in two ways; their rounding is not reported as a loss."""
    account = Account({"x": GAUSSIAN})
    error = cap_error(account, charge(SumPolicy((RootPolicy(k=1, sigma=sigma), LogPolicy(sigma=sigma)))))
    assert error.spent > 1e6 * error.cap
    assert error.before == 0
    assert error.made is None


def test_a_small_loss_before_is_reported():
    account = Account({"x": GAUSSIAN})
    account.charge(charge(RootPolicy(k=1, sigma=1e5)))  # 10⁻⁸ of the cap
    error = cap_error(account, charge(GAUSSIAN))
    assert error.before == pytest.approx(1e-8 * error.cap, rel=1e-6)


def test_an_infinite_loss_is_refused_and_nothing_is_known_of_before():
    account = Account({"x": RootPolicy(k=1, sigma=1e6)})
    account.charge(charge(RootPolicy(k=1, sigma=1e7)))
    error = cap_error(account, charge(RootPolicy(k=1, sigma=1e-150)))
    assert error.spent == math.inf
    assert (error.before, error.made) == (None, None)


def test_only_equal_charges_are_counted():
    """Two charges with 4 times the loss are not 8 charges like this one."""
    account = Account({"x": 8 * GAUSSIAN})
    account.charge(charge(RootPolicy(k=1, sigma=5.0)))
    account.charge(charge(RootPolicy(k=1, sigma=5.0)))
    assert cap_error(account, charge()).made is None
    same = Account({"x": 8 * GAUSSIAN})
    for _ in range(8):
        same.charge(charge())
    same.charge(charge(column="y"))
    assert cap_error(same, charge()).made == 8


def test_counts_are_refused_like_columns():
    counted = Charge(ss.RecordPolicy(((None, ConstantPolicy(0.125)),)))
    account = Account({"count": RootPolicy(k=1, sigma=2.0), "*": GAUSSIAN})  # ⅛ for one record
    account.charge(counted)
    error = cap_error(account, counted)
    assert (error.column, error.cap_name, error.influence) == ("count", "count", 1)
    assert (error.before, error.spent, error.cap, error.made) == (0.125, 0.25, 0.125, 1)


def test_caps_that_were_lowered_are_found():
    account = Account({"x": 4 * GAUSSIAN, "count": ROOT, "*": 4 * GAUSSIAN})
    account.charge(charge(2 * GAUSSIAN))
    account.charge(charge(2 * GAUSSIAN, state="IA"))
    account.charge(charge(2 * GAUSSIAN, column="y", state="TX"))
    account.charge(Charge(ss.RecordPolicy(((None, ConstantPolicy(0.5)),))))
    assert account.above_caps() == {}
    account.caps = {"x": 3 * GAUSSIAN, "count": ROOT, "*": 2 * GAUSSIAN}
    found = account.above_caps()
    assert set(found) == {"x"}
    assert (found["x"].column, found["x"].spent / found["x"].cap) == ("x", pytest.approx(4 / 3))
    account.caps = {"x": 4 * GAUSSIAN, "count": RootPolicy(k=2, sigma=2.0), "*": GAUSSIAN}
    found = account.above_caps()
    assert set(found) == {"*", "count"}
    assert (found["*"].column, found["count"].column) == ("y", "count")
    account.caps = {}
    assert account.above_caps() == {}


def test_caps_that_were_lowered_are_found_for_entities():
    account = Account({"x": 2 * GAUSSIAN})
    account.charge(charge(2 * GAUSSIAN, protects="firm"))
    account.caps = {"x": GAUSSIAN}
    assert account.above_caps()["x"].protects == "firm"


def test_a_part_above_its_cap_is_found_beside_others():
    """All labels of a partition are looked at, not only those of its first or last charge."""
    for high in ("IA", "NV", "TX"):
        account = Account({"x": 4 * GAUSSIAN})
        for state in ("IA", "NV", "TX"):
            account.charge(charge(4 * GAUSSIAN if state == high else GAUSSIAN, state=state))
        account.caps = {"x": 2 * GAUSSIAN}
        assert set(account.above_caps()) == {"x"}


def test_up_to_a_number_of_parts_each_is_compared_with_the_cap(monkeypatch):
    """A total above both parts would not fit."""
    accounts = Account({"x": SumPolicy((GAUSSIAN, 2 * ROOT))})
    accounts.charge(charge(GAUSSIAN, state="IA"))
    accounts.charge(charge(ROOT, state="IA"))
    accounts.charge(charge(LOG, state="TX"))
    both = Charge(charge().policy, by="state", labels=("IA", "TX"), kind="text")
    for most in (3, 2):
        monkeypatch.setattr(account, "MOST_TOTALS", most)
        fits = accounts.fits(both, "x")
        assert fits(ROOT)
        assert not fits(SumPolicy((ROOT, LOG)))
    monkeypatch.setattr(account, "MOST_TOTALS", 1)
    with refused(ss.ParameterError, "column 'x'", code="too-many"):
        accounts.fits(both, "x")


def test_a_total_above_many_parts_is_not_too_small(monkeypatch):
    accounts = Account({"x": SumPolicy((GAUSSIAN, ROOT))})
    accounts.charge(charge(RootPolicy(k=1, sigma=20.0), state="IA"))  # ¼ of the Gaussian
    accounts.charge(charge(RootPolicy(k=1, sigma=11.0), state="TX"))  # 0.83 of it
    accounts.charge(charge(RootPolicy(k=1, sigma=30.0), state="NV"))
    every = Charge(charge().policy, by="state", labels=("IA", "TX", "NV"), kind="text")
    for most in (3, 2):
        monkeypatch.setattr(account, "MOST_TOTALS", most)
        fits = accounts.fits(every, "x")
        assert fits(RootPolicy(k=1, sigma=25.0))  # 0.16
        assert not fits(RootPolicy(k=1, sigma=20.0))


def test_too_many_policies_for_a_search_are_reported(monkeypatch):
    monkeypatch.setattr(account, "MOST_TOTALS", 2)
    accounts = Account({"x": 9 * SumPolicy((GAUSSIAN, ROOT))})
    accounts.charge(charge(GAUSSIAN))
    accounts.charge(charge(ROOT))
    assert accounts.fits(charge(), "x")(LOG)
    accounts.charge(charge(LOG))
    with refused(ss.ParameterError, "column 'x'", code="too-many"):
        accounts.fits(charge(), "x")


def test_what_fits_can_be_charged():
    """`fits` and `charge` agree, also for counts, other spellings and policies that are too extreme to add."""
    accounts = Account({" X": 2 * GAUSSIAN, "count": ROOT})
    accounts.charge(charge())
    fits = accounts.fits(charge(), "x ")
    assert fits(GAUSSIAN)
    assert not fits(RootPolicy(k=1, sigma=9.99))
    assert not fits(RootPolicy(k=1, sigma=1e-170))
    counted = Charge(ss.RecordPolicy(((None, ConstantPolicy(0.1)), ("x", GAUSSIAN))))
    assert accounts.fits(counted, None)(ConstantPolicy(0.5))
    assert not accounts.fits(counted, None)(ConstantPolicy(0.51))
