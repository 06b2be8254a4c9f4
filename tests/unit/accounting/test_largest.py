"""Largest values: caps are proven up to them, raising one proves all caps again, and the ledger keeps them."""

import json
import math
import threading
from fractions import Fraction

import numpy as np
import pytest
from helpers.errors import refused
from hypothesis import given
from hypothesis import strategies as st

import slowscale as ss
from slowscale.accounting import Account, Charge, DeferredLedger
from slowscale.accounting.bands import Use
from slowscale.accounting.caps import GRID, Total, check
from slowscale.accounting.entries import describe_entry, read_entry
from slowscale.accounting.largest import check_largest, exact, proven_to, value_of
from slowscale.accounting.sizes import default_sizes
from slowscale.policy import ConstantPolicy

TEN, ROOT = ss.Gaussian(sigma=10).policy, ss.Root(k=4, sigma=1).policy


def charge(policy=TEN, column="x", **options):
    return Charge(ss.RecordPolicy(((column, policy),)), **options)


CROSSING = 10_000 ** (1 / 3)  # r²/200 exceeds r^(1/2)/2 above it


@pytest.fixture
def path(tmp_path):
    return tmp_path / "census.ledger"


# Values


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, 1e31, 1e-31, 10**400])
def test_a_largest_value_is_a_size(value):
    with refused(ss.ParameterError, "largest['x']", code="value"):
        check_largest({"x": value})


@pytest.mark.parametrize("wrong", [3, {"x": "3"}, {"x": True}, {3: 3}, {"x": None}])
def test_a_largest_value_is_a_number_by_column(wrong):
    with pytest.raises(ss.ParameterTypeError):
        check_largest(wrong)


@pytest.mark.parametrize(("wrong", "code"), [({"*": 3}, "reserved"), ({"emp": 3, " EMP": 3}, "duplicate")])
def test_each_column_has_one_largest_value(wrong, code):
    with refused(ss.ParameterError, "largest", code=code):
        check_largest(wrong)


@given(st.one_of(st.integers(1, 10**30), st.floats(1e-30, 1e30), st.decimals("0.01", 10**6, places=2).map(float)))
def test_caps_are_proven_up_to_the_least_float_that_is_not_below_the_value(value):
    (kept,) = check_largest({"x": value}).values()
    assert type(kept) is type(value)
    assert kept == value
    size = proven_to(kept)
    assert Fraction(size) >= exact(kept) > Fraction(math.nextafter(size, 0))
    assert json.loads(json.dumps(kept)) == kept  # as in a ledger


def test_a_float_stands_for_its_decimal():
    assert exact(0.29) == Fraction(29, 100)
    assert exact(2**62 + 1) == 2**62 + 1
    assert proven_to(None) == math.inf
    assert value_of({"EMP ": 3}, "emp") == 3
    assert value_of({"emp": 3}, None) is value_of({}, "emp") is None


# Caps


def test_a_cap_that_is_exceeded_only_above_the_largest_value_allows_the_charge():
    below = Account({"x": ROOT}, largest={"x": CROSSING * 0.99})
    below.charge(charge(largest={"X": 1}))
    for largest in ({}, {"x": CROSSING * 1.01}):
        with refused(ss.CapError, "the cap on 'x'") as caught:
            Account({"x": ROOT}, largest=largest).charge(charge(largest=largest))
        ((low, high),) = caught.value.ranges
        assert low == pytest.approx(CROSSING, rel=1e-3)
        assert high == (proven_to(largest["x"]) if largest else math.inf)
        assert low <= caught.value.influence <= high


@given(
    st.floats(0.1, 100).map(lambda sigma: ss.Gaussian(sigma=sigma).policy),
    st.floats(0.1, 100).map(lambda sigma: ss.Root(k=4, sigma=sigma).policy),
    st.floats(-3, 9).map(lambda power: 10.0**power),
)
def test_the_check_agrees_with_the_losses_up_to_the_largest_value(spent, cap, largest):
    sizes = np.append(GRID[largest > GRID], [largest, *np.geomspace(largest / 1e6, largest, 999)])
    excess = np.max(spent(sizes) / np.maximum(cap(sizes), 1e-300))
    if excess <= 1 - 1e-6:
        check("x", Total.zero() + spent, cap, largest)
    elif excess > 1 + 2e-9:
        with refused(ss.CapError, "the cap on 'x'") as caught:
            check("x", Total.zero() + spent, cap, largest)
        assert caught.value.influence <= largest


def test_the_largest_value_itself_is_covered_and_no_size_above_it():
    at, spent = 50.0, Total.zero() + TEN
    check("x", spent, ConstantPolicy(float(TEN(at))), at)
    with refused(ss.CapError):
        check("x", spent, ConstantPolicy(float(TEN(at))), at * (1 + 1e-8))
    with refused(ss.CapError):
        check("x", spent, ConstantPolicy(float(TEN(at)) * (1 - 1e-8)), at)


@pytest.mark.parametrize("largest", [{}, {"x": 2 * CROSSING}])
def test_a_charge_must_refuse_larger_values(largest):
    """A charge that was read under a larger value, or under none, may have records that the caps do not cover."""
    account = Account({"x": ROOT}, largest={"x": CROSSING / 2})
    for refuse in (account.check, account.charge):
        with refused(ss.ParameterError, "the largest value of 'x'", code="mismatch"):
            refuse(charge(largest=largest))
    account.charge(charge(column="y"))  # has no largest value
    account.charge(charge(largest={"x": CROSSING / 2}))


def test_band_caps_end_at_the_largest_value_too():
    """The sizes of records end there; the values within the band may be larger."""
    uses = (Use("x", decided_by=()),)
    loss = float(charge(uses=uses).band_policy(1.1)({"x": 1000}))
    assert loss == pytest.approx(float(TEN(100)))
    caps = {"x": ConstantPolicy(loss)}
    Account(band_caps=caps, largest={"x": 1000}).charge(charge(largest={"x": 1000}, uses=uses))
    for largest in ({"x": 1001}, {}):
        with refused(ss.CapError, "the cap on 'x'"):
            Account(band_caps=caps, largest=largest).charge(charge(largest=largest, uses=uses))


def test_what_still_fits_is_searched_up_to_the_largest_value():
    account = Account({"x": ROOT}, largest={"x": 0.99 * CROSSING})
    fits = account.fits(charge(largest={"x": 1}), "x")
    assert fits(TEN)
    assert not fits(2 * TEN)
    assert not Account({"x": ROOT}).fits(charge(), "x")(TEN)


# Changes


def test_raising_it_proves_all_caps_again(path):
    with ss.Ledger(path, {"*": ROOT}, largest={"x": CROSSING / 2}) as ledger:
        ledger.charge(charge(largest={"x": CROSSING / 2}))
        before = ledger.head
        for value in (2 * CROSSING, None):
            with refused(ss.CapError, "the cap on '*'") as caught:
                ledger.set_largest("X", value, "a new plant")
            assert "Make the release less precise" not in str(caught.value)
        assert (ledger.head, ledger.largest) == (before, {"x": CROSSING / 2})
        ledger.set_largest("X", 0.9 * CROSSING, "a new plant")
        assert ledger.largest == {"x": 0.9 * CROSSING}
        ledger.set_cap("x", 100 * ROOT, "a new plant")
        ledger.set_largest("x", 2 * CROSSING, "a new plant")
        ledger.set_largest("x", 3, "it closed")
        ledger.set_largest("y", 10**15 + 1, "a new column")
        ledger.set_cap("x", TEN, "any size")
        ledger.set_largest("x", None, "not known any more")
        assert ledger.largest == {"y": 10**15 + 1}
        assert ledger.verify() == []
    assert ss.Ledger(path).largest == {"y": 10**15 + 1}
    assert ss.Ledger(path).account.largest == {"y": 10**15 + 1}


def test_a_cap_that_is_exceeded_already_does_not_prevent_a_larger_value(path):
    with ss.Ledger(path, {"x": ROOT, "y": ROOT}, largest={"x": 1, "y": 1}) as ledger:
        ledger.charge(charge(largest={"x": 1}))
        ledger.set_cap("x", 0, "closed")
        ledger.set_largest("y", 1000, "no releases of it")
        ledger.set_largest("x", 1000, "the cap is exceeded anyway")
        with refused(ss.CapError, "the cap on 'x'"):
            ledger.charge(charge(largest={"x": 1}))


def test_what_is_spent_is_stated_up_to_the_largest_value_that_was_ever_allowed(path):
    with ss.Ledger(path, largest={"x": 31_000}) as ledger:
        ledger.charge(charge(largest={"x": 31_000}))
        assert ledger.spent.largest == {"x": 31_000}
        assert "at 31,000 (largest allowed)" in str(ledger.spent)
        ledger.set_largest("x", 100, "a smaller region")
        ledger.charge(charge(largest={"x": 100}))
        assert ledger.spent.largest == {"x": 31_000}
        ledger.set_largest("x", 50_000, "both")
        assert ledger.spent.largest == {"x": 50_000}
        ledger.set_largest("x", None, "not known")
        assert ledger.spent.largest == {}
        assert "the largest may be larger" in str(ledger.spent)
        ledger.charge(charge())
        ledger.set_largest("x", 100, "known again")
        assert ledger.spent.largest == {}  # one release allowed any size


def test_the_ledger_says_what_was_set(path):
    with ss.Ledger(path, largest={"x": 4e10}) as ledger:
        ledger.set_largest("x", 5, "smaller")
        ledger.set_largest("x", None, "unknown")
        ledger.set_largest("x", 7, "known\nCap on y: 3")
        entries = list(map(describe_entry, ledger.history()))
        words = ledger.describe()
    assert entries[0] == "the ledger was created, without caps, and with the largest values x 40,000,000,000"
    assert entries[1:3] == [
        "the largest value of x was set to 5: smaller",
        "the largest value of x was removed: unknown",
    ]
    assert "Largest value of x: 7. Caps hold for sizes up to it" in words.split("\n")
    assert "Cap on y: 3" not in words.split("\n")  # a reason cannot look like a line of its own


@pytest.mark.parametrize(
    ("given_", "subject"), [((3, 5, "why"), "column"), (("x", 0, "why"), "value['x']"), (("x", 5, " "), "reason")]
)
def test_a_change_is_checked(path, given_, subject):
    with ss.Ledger(path) as ledger, refused(ss.SlowscaleError, subject):
        ledger.set_largest(*given_)
    with refused(ss.LedgerError, code="damaged"):
        read_entry(json.dumps({"kind": "largest", "time": "", "column": "x", "value": -1, "reason": ""}))


def test_an_existing_ledger_takes_its_own_values_only(path):
    ss.Ledger(path, largest={"x": 5}).set_largest("x", 6, "why")
    for given_ in ({"X": 5}, {"x": 6.0}, None):
        assert ss.Ledger(path, largest=given_).largest == {"x": 6}
    for given_ in ({"x": 7}, {}, {"x": 6, "y": 1}):
        with refused(ss.ParameterError, "largest", code="mismatch"):
            ss.Ledger(path, largest=given_)


def test_a_deferred_ledger_keeps_them_until_it_is_created(path):
    deferred = DeferredLedger(path, {"x": ROOT}, largest={"x": CROSSING / 2})
    assert deferred.largest == {"x": CROSSING / 2}
    deferred.check(charge(largest={"x": 1}))
    assert not path.exists()
    deferred.charge(charge(largest={"x": 1}))
    assert ss.Ledger(path).largest == deferred.largest == {"x": CROSSING / 2}


def test_a_change_that_cannot_be_written_changes_nothing(path, monkeypatch):
    ledger = ss.Ledger(path, largest={"x": 5})
    connection = ledger._file.connection()

    class Full:
        def __getattr__(self, name):
            return getattr(connection, name)

        def execute(self, statement, *values):
            if statement == "COMMIT":
                raise OSError("disk full")
            return connection.execute(statement, *values)

    monkeypatch.setattr(ledger._file._local, "connection", Full())
    with refused(ss.LedgerError, code="unwritable"):
        ledger.set_largest("x", 6, "why")
    monkeypatch.undo()
    assert ledger._file.state.account.largest == {"x": 5}
    assert ledger.largest == {"x": 5}


def test_racing_charges_and_larger_values_never_exceed_a_cap(path):
    """Whichever comes first, the total stays within the cap up to the largest value then in force."""
    steps = [CROSSING * 0.2 * i for i in range(1, 9)]
    ss.Ledger(path, {"x": ROOT}, largest={"x": steps[0]}).close()
    failed = []

    def charges():
        ledger = ss.Ledger(path)
        for _ in range(12):
            try:
                ledger.charge(charge(largest=ledger.largest))
            except (ss.CapError, ss.ParameterError):
                pass
            except BaseException as error:
                failed.append(error)
        ledger.close()

    def changes():
        ledger = ss.Ledger(path)
        for step in [*steps, *steps[::-1], *steps]:
            try:
                ledger.set_largest("x", step, "a race")
            except ss.CapError:
                pass
            except BaseException as error:
                failed.append(error)
        ledger.close()

    threads = [threading.Thread(target=one) for one in (charges, changes, charges)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    total, largest, spent = 0, steps[0], ss.Ledger(path).history()
    for entry in spent:
        if entry["kind"] == "charge":
            total += 1
            assert entry["facts"]["largest"]["x"] <= largest
        elif entry["kind"] == "largest":
            largest = entry["value"]
        sizes = np.geomspace(1e-3, largest, 999)
        assert (total * TEN(sizes) <= ROOT(sizes) * (1 + 1e-8)).all()
    assert total


def test_no_record_ever_loses_more_than_its_cap():
    """Random charges and changes: a record is in the releases whose largest value it does not exceed."""
    generator, sizes = np.random.default_rng(7), np.geomspace(0.1, 1e6, 200)
    refusals = changes = 0
    for _ in range(100):
        account = Account({"x": ROOT}, largest={"x": float(10 ** generator.uniform(0, 5))})
        own, every = np.zeros_like(sizes), np.zeros_like(sizes)
        for _ in range(8):
            try:
                if generator.random() < 0.5:
                    value = None if generator.random() < 0.1 else float(10 ** generator.uniform(0, 5))
                    account.set_largest("x", value, checked=True)
                    changes += 1
                else:
                    policy = ss.Gaussian(sigma=10 ** generator.uniform(0.5, 4)).policy
                    account.charge(charge(policy, largest=account.largest))
                    own += np.where(sizes <= account.largest.get("x", math.inf), policy(sizes), 0)
                    every += policy(sizes)
            except ss.CapError:
                refusals += 1
            allowed = ROOT(sizes) * (1 + 1e-8)
            assert (own <= allowed).all()
            assert (every <= allowed)[sizes <= account.largest.get("x", math.inf)].all()
    assert min(refusals, changes) > 100


# Sizes


def test_default_sizes_end_at_the_largest_value():
    sizes = default_sizes([(TEN, 1.0)], {"x": 40_000.0})
    assert [size.value("x") for size in sizes] == [1, 10, 100, 1000, 10_000, 40_000]
    assert sizes[-1].name == "largest allowed"
    assert sizes[-1].is_largest
    assert [size.value("x") for size in default_sizes([(TEN, 1.0)], {"x": 10_000.0})] == [1, 10, 100, 1000, 10_000]
    assert [size.value("x") for size in default_sizes([(TEN, 1.0)], {"x": 0.5})] == [0.5]
    assert default_sizes([(TEN, 1.0)], {"x": None}) == default_sizes([(TEN, 1.0)])


def test_a_column_has_no_size_above_its_largest_value():
    both = default_sizes([(TEN, 1.0), (TEN, 1.0)], {"x": 150.0, "y": 40_000.0, "count": 7.0})
    assert [size.value("x") for size in both] == [1, 10, 100, None, None, 150]
    assert [size.value("y") for size in both] == [1, 10, 100, 1000, 10_000, 40_000]
    assert [size.value("count") for size in both] == [1, 1, 1, 1, 1, 7]
    some = default_sizes([(TEN, 1.0), (TEN, 1.0)], {"x": 150.0, "y": None})
    assert [size.value("x") for size in some] == [1, 10, 100, None, 150]
    assert [size.value("y") for size in some] == [1, 10, 100, 1000, None]
