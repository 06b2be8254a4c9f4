"""A ledger keeps the curves that it was charged by: reading it computes none, and no later version changes a charge."""

import math

import numpy as np
import pytest
from helpers.errors import refused

import slowscale as ss
from slowscale.accounting import Charge
from slowscale.noise import stored_curves
from slowscale.policy import Policy, tight

MECHANISM = ss.GeneralizedGaussian(sigma=25, p=0.5)
NOW = MECHANISM.tight_policy


def earlier(share=0.003):
    """The policy as an earlier version might have computed it: a little higher or lower."""
    description = NOW.to_dict()
    knots = np.array(description["knots"])
    knots[:, 1] += math.log1p(share)
    return Policy.from_dict(description | {"knots": knots.tolist()})


def charge(policy):
    return Charge(ss.RecordPolicy((("emp", policy),)))


@pytest.fixture
def forbid_curves(monkeypatch):
    """Return a function after which reading, finding or computing a curve fails."""

    def fail(*given):
        raise AssertionError("a curve was computed")

    def forbid():
        monkeypatch.setattr(tight, "tight_curve", fail)
        monkeypatch.setattr(stored_curves, "tight_curve", fail)
        monkeypatch.setattr(stored_curves, "build_curve", fail)

    return forbid


@pytest.fixture
def path(tmp_path):
    """A ledger with a tight cap, a charge by the curve of an earlier version and two by that of this one."""
    path = tmp_path / "census.ledger"
    with ss.Ledger(path, {"emp": 4 * NOW, "*": NOW + MECHANISM.policy}) as ledger:
        for policy in (earlier(), NOW, NOW):
            ledger.charge(charge(policy))
        with pytest.raises(ss.CapError):
            ledger.charge(charge(2 * NOW))
    return path


def test_opening_a_ledger_computes_no_curve(path, forbid_curves):
    sizes = np.geomspace(1e-3, 1e9, 50)
    expected = earlier()(sizes) + 2 * NOW(sizes)
    forbid_curves()
    with ss.Ledger(path) as ledger:
        spent = ledger.spent
        assert spent.releases == 3
        assert [spent({"emp": size}) for size in sizes] == pytest.approx(expected, rel=1e-14)
        assert "3 releases so far" in ledger.describe()
        assert ledger.verify() == []
        assert [entry["kind"] for entry in ledger.history()] == ["created", "charge", "charge", "charge"]
        knots = [entry["facts"]["policy"][0]["policy"]["knots"] for entry in ledger.history()[1:]]
        assert knots[1] == knots[2] != knots[0]
        assert ledger.caps["emp"](100.0) > 0
    with pytest.raises(AssertionError, match="a curve was computed"):  # the twin: this policy has no knots yet
        MECHANISM.tight_policy(100.0)


def test_charges_by_other_curves_are_added_not_merged(path):
    with ss.Ledger(path) as ledger:
        column = ledger.spent.column("emp")
        assert sorted(column.shapes().values()) == [1.0, 2.0]
        assert dict(column.shapes()) == {earlier(): 1.0, NOW: 2.0}
        assert column(100.0) == earlier()(100.0) + 2 * NOW(100.0) != 3 * NOW(100.0)


@pytest.mark.parametrize(("count", "share", "fits"), [(2, 0.0, True), (2, 0.003, False), (3, 0.003, True)])
def test_a_cap_is_compared_with_what_was_charged(tmp_path, count, share, fits):
    """A cap of two charges has no room for one by this curve and one by a higher curve; a cap of three has."""
    with ss.Ledger(tmp_path / "census.ledger", {"emp": count * NOW}) as ledger:
        ledger.charge(charge(NOW))
        if fits:
            ledger.charge(charge(earlier(share)))
        else:
            with pytest.raises(ss.CapError):
                ledger.charge(charge(earlier(share)))


def test_caps_are_recognised_by_their_parameters(tmp_path, forbid_curves):
    """The caps of a plan have no knots. Those of the ledger, with which it was created, stay in force."""
    path = tmp_path / "census.ledger"
    with ss.Ledger(path, {"emp": 3 * earlier()}):
        pass
    cap = 3 * earlier()
    forbid_curves()
    with ss.Ledger(path, {"emp": 3 * MECHANISM.tight_policy}) as ledger:
        assert ledger.caps == {"emp": cap}
    for other in (2 * MECHANISM.tight_policy, 3 * ss.GeneralizedGaussian(sigma=26, p=0.5).tight_policy):
        with refused(ss.ParameterError, "caps", code="mismatch"):
            ss.Ledger(path, {"emp": other})
