"""Tight accounting with the certified policies themselves: charged, capped, kept in a ledger, evaluated by engines."""

import numpy as np
import pandas as pd
import pytest
from helpers.bitsources import Recorded
from helpers.errors import refused

import slowscale as ss
from slowscale.policy import TightPolicy

FIRMS = pd.DataFrame({"state": ["IA", "TX"] * 100, "emp": [i**3 % 5003 for i in range(200)]})
KEYS = ss.Keys.cross({"state": ["IA", "TX"]})
NOISE = ss.GeneralizedGaussian(sigma=25, p=0.5)


@pytest.fixture(autouse=True)
def coarse_curves(monkeypatch):
    """Curves within 20 % take less time to compute than those within 1 %."""
    made = property(lambda m: TightPolicy(m.noise, m.policy, 0.2))
    monkeypatch.setattr(ss.GeneralizedGaussian, "tight_policy", made)


def test_a_ledger_with_tight_caps(tmp_path):
    """The charges, and a cap of two of them, are read back from the file as the same policies."""
    path = tmp_path / "census.ledger"
    tight = NOISE.tight_policy
    assert isinstance(tight, TightPolicy)
    session = ss.Session(FIRMS, path, {"emp": 2 * tight}, accounting="tight", bits=Recorded(1))
    for _ in range(2):
        release = session.sum({"emp": NOISE}, keys=KEYS)
    assert release.policy == ss.RecordPolicy((("emp", tight),))
    with refused(ss.CapError, "the cap on 'emp'", code="cap"):
        session.sum({"emp": NOISE}, keys=KEYS)
    with ss.Ledger(path) as ledger:
        assert ledger.caps == {"emp": 2 * tight}
        assert ledger.spent.terms == (("emp", tight),) * 2
        assert ledger.verify() == []
        assert ledger.spent({"emp": 12}) == 2 * tight(12) < 2 * NOISE.policy(12)
    losses = session.losses(release)
    truth = np.sort(release.policy(FIRMS))
    np.testing.assert_allclose(list(losses.quantiles.values()), np.quantile(truth, list(losses.quantiles)), rtol=1e-9)


def test_a_cap_of_closed_form_has_room_for_tight_charges():
    """Beyond the curve the policy is the closed form, so that no values could show that it is not exceeded."""
    session = ss.Session(FIRMS, caps={"emp": 2 * NOISE.policy}, accounting="tight", bits=Recorded(1))
    for _ in range(2):
        session.sum({"emp": NOISE}, keys=KEYS)
    with pytest.raises(ss.CapError):
        session.sum({"emp": NOISE}, keys=KEYS)
    closed = ss.Session(FIRMS, caps={"emp": NOISE.tight_policy}, accounting="closed")
    assert closed.preview(ss.Sums({"emp": NOISE})).refusal is not None


def test_combinations_of_tight_policies_are_read_back():
    for tight in (NOISE.tight_policy, ss.ArsinhNormal(scale=4.95, shape=1.6).policy):
        for policy in (3 * tight, tight + NOISE.policy, tight | 2 * tight):
            assert ss.Policy.from_dict(policy.to_dict()) == policy


def test_unit_splitting_is_charged_as_one_gaussian():
    """The pieces of a record are summed again: its tight policy has no steps, and the report compares the two."""
    splitting = ss.UnitSplitting(threshold=10, sigma=50)
    session = ss.Session(FIRMS, accounting="tight", bits=Recorded(1))
    release = session.sum({"emp": splitting}, keys=KEYS)
    assert release.policy({"emp": 12}) == pytest.approx(12**2 / (2 * 50**2))
    assert session.preview(ss.Sums({"emp": splitting})).columns[0].gain(12) == pytest.approx((20 / 12) ** 2)
