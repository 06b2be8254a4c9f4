"""Caps on values within a band: own totals against them, what moves with a value, and refusals in both currencies."""

import math

import numpy as np
import pyarrow as pa
import pytest
from helpers.errors import refused

import slowscale as ss
from slowscale.accounting.account import Account
from slowscale.accounting.bands import Band, Use
from slowscale.accounting.charge import Charge
from slowscale.accounting.explanation import Loss, explain
from slowscale.core.errors import ParameterError
from slowscale.policy import ConstantPolicy
from slowscale.policy.bounded import BandPolicy

SIZES = np.geomspace(1e-4, 1e12, 97)
STATES = ss.Keys.cross({"state": ["a", "b"]})
LOG = ss.Log(sigma=0.05, a=1000, noise="laplace")
TABLE = pa.table(
    {
        "state": ["a", "b", "a"],
        "emp": [1, 20, 300],
        "payann": [10.5, 200.25, 3e6],
        "firm": ["x", "y", "x"],
    }
)

# Each kind of mechanism with an independent computation of the loss between r and times·r.
KINDS = {
    "gaussian": (lambda s: ss.Gaussian(sigma=s), lambda s, r, t: ((t - 1) * r / s) ** 2 / 2),
    "laplace": (lambda s: ss.Laplace(sigma=s), lambda s, r, t: kullback((t - 1) * r / s)),
    "root": (
        lambda s: ss.Root(k=4, sigma=s / 100, a=5),
        lambda s, r, t: (((t * r + 5) ** 0.25 - (r + 5) ** 0.25) / (s / 100)) ** 2 / 2,
    ),
    "log": (
        lambda s: ss.Log(sigma=s / 1000, a=40, noise="laplace"),
        lambda s, r, t: kullback(np.log((t * r + 40) / (r + 40)) / (s / 1000)),
    ),
}


def kullback(x):
    return x + np.expm1(-x)


def charge_of(mechanisms, label=None):
    policy = ss.RecordPolicy(tuple((name, m.tight_policy) for name, m in mechanisms.items()))
    part = {} if label is None else {"by": "state", "labels": (label,), "kind": "text"}
    return Charge(policy, uses=tuple(Use(name, decided_by=()) for name in mechanisms), **part)


def sequence_exceeds(seed, caps, account_of=lambda caps, times: Account(band_caps=caps, band=times)):
    """Charge at random until three charges are refused; return whether an own total is above a cap at any size."""
    generator = np.random.default_rng(seed)
    times = float(generator.choice([1.05, 1.1, 1.5]))
    account = account_of(caps, times)
    own = {}  # by label (None: all records) and column
    refusals = 0
    while refusals < 3 and len(account.charges) < 15:
        columns = ["x", "y"] if generator.random() < 0.4 else ["x"]
        kind = {name: str(generator.choice(list(KINDS))) for name in columns}
        scale = {name: float(10 ** generator.uniform(0.5, 3.5)) for name in columns}
        label = generator.choice([None, "a", "b"])
        made = charge_of({name: KINDS[kind[name]][0](scale[name]) for name in columns}, label)
        try:
            account.charge(made)
        except ss.CapError:
            refusals += 1
            continue
        for name in columns:
            own.setdefault((label, name), []).append(KINDS[kind[name]][1](scale[name], SIZES, times))
    worst = 0.0
    for name, cap in caps.items():
        for label in ("a", "b"):
            total = sum(sum(own.get((one, name), [])) for one in (None, label)) + np.zeros_like(SIZES)
            allowed = cap(SIZES) if callable(cap) else np.full_like(SIZES, cap)
            worst = max(worst, float((total / allowed).max()))
    return worst > 1 + 1e-6


@pytest.mark.parametrize("block", range(6))
def test_own_totals_are_never_above_a_band_cap(block):
    """50 random sequences of charges each, in two columns and two parts."""
    cap = ss.Root(k=6, sigma=0.2).policy + ConstantPolicy(0.3)
    for seed in range(50):
        assert not sequence_exceeds(1000 * block + seed, {"x": ConstantPolicy(2.0), "y": cap})


def test_a_cap_that_is_not_applied_is_caught():
    """The twin: the same sequences exceed the caps if the account has caps ten times as high."""
    caps = {"x": ConstantPolicy(2.0), "y": ConstantPolicy(1.0)}

    def lax(caps, times):
        return Account(band_caps={name: ConstantPolicy(10 * cap.loss) for name, cap in caps.items()}, band=times)

    assert any(sequence_exceeds(seed, caps, lax) for seed in range(10))


def test_both_currencies_refuse(tmp_path):
    path = tmp_path / "x.ledger"
    with ss.Ledger(path, {"payann": ss.Gaussian(sigma=1e-2).policy}, band_caps={"payann": 2}) as ledger:
        session = ss.Session(TABLE, ledger)
        session.sum({"payann": LOG}, keys=STATES)
        with refused(ss.CapError, path=("ledger", "band_caps", "payann")) as caught:
            session.sum({"payann": LOG}, keys=STATES)
        error = caught.value
        assert error.band == 1.1
        assert error.cap == 2
        assert "10 % more or less" in str(error)
        assert "would still fit" in str(error)
        parameter = float(error.fits.split("sigma=")[1].split(",")[0])
        session.sum({"payann": ss.Log(sigma=parameter, a=1000, noise="laplace")}, keys=STATES)
        assert ledger.spent.band_policy()({"payann": 1e12}) <= 2 * (1 + 1e-9)
        with refused(ss.CapError, path=("ledger", "caps", "payann")):
            session.sum({"payann": ss.Log(sigma=1e-7, a=1000)}, keys=STATES)
        assert ledger.band_caps == {"payann": ConstantPolicy(2.0)}
        assert "Band cap on payann: values 10 % more or less" in ledger.describe()
        ledger.set_cap("payann", 5, "a board decided", band=True)
        assert "band cap on payann was changed" in ledger.describe()
        session.sum({"payann": LOG}, keys=STATES)
        assert ledger.verify() == []
    with ss.Ledger(path) as again:
        assert again.band_caps == {"payann": ConstantPolicy(5.0)}
        assert again.caps == {"payann": ss.Gaussian(sigma=1e-2).policy}
    with refused(ParameterError, "band", code="mismatch"):
        ss.Ledger(path, band=1.2)
    with refused(ParameterError, "band_caps", code="mismatch"):
        ss.Ledger(path, band_caps={"payann": 3})


def test_lowering_a_band_cap_is_reported(tmp_path):
    with ss.Ledger(tmp_path / "x.ledger", band_caps={"payann": 2}) as ledger:
        ss.Session(TABLE, ledger).sum({"payann": LOG}, keys=STATES)
        ledger.set_cap("payann", 0.5, "stricter", band=True)
        assert "already exceeds it" in ledger.describe()
        assert ledger.account.above_caps(band=True)["payann"].cap == 0.5
        with pytest.raises(ss.CapError):
            ss.Session(TABLE, ledger).sum({"payann": ss.Log(sigma=0.4, a=1e6, noise="laplace")}, keys=STATES)


def facts_of(release):
    return next(iter(release.facts.tables.values()))


@pytest.mark.parametrize(
    ("asked", "decided_by", "moves"),
    [
        ({}, ("state",), False),
        ({"where": "emp > 3"}, ("emp", "state"), False),
        ({"where": "payann > 3"}, ("payann", "state"), True),
        ({"where": "half > 3", "derive": {"half": "payann / 2"}}, ("payann", "state"), True),
        (
            {"derive": {"class": "CASE WHEN payann > 100 THEN 'large' ELSE 'small' END"}, "by": "class"},
            ("payann",),
            True,
        ),
    ],
)
def test_a_value_that_decides_the_cell_or_the_filter_may_move_the_record(asked, decided_by, moves):
    by = asked.pop("by", None)
    keys = STATES if by is None else ss.Keys.cross({by: ["small", "large"]})
    release = ss.Session(TABLE).sum({"payann": LOG}, keys=keys, **asked)
    assert facts_of(release).decided_by == decided_by
    expected = 2 * LOG.policy(1.1 * 500) if moves else LOG.band_policy(times=1.1)(500)
    assert release.band_policy()({"payann": 500}) == pytest.approx(expected, rel=1e-6)


def test_a_filter_on_another_summed_column_moves_the_record():
    """All values of the record may change within the band, so that it may leave by its number of employees."""
    release = ss.Session(TABLE).sum({"payann": LOG, "emp": LOG}, keys=STATES, where="emp > 3")
    expected = 2 * (LOG.policy(1.1 * 500) + LOG.policy(1.1 * 20))
    assert release.band_policy()({"payann": 500, "emp": 20}) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("expression", "proportional"),
    [
        ("payann * 2", True),
        ("payann / 4", True),
        ("-payann", True),
        ("0.5 * payann", True),
        ("payann + 1", False),
        ("abs(payann)", False),
        ("round(payann)", False),
        ("payann * payann", False),
        ("payann * emp", False),
        ("CASE WHEN payann > 3 THEN payann ELSE 0 END", False),
    ],
)
def test_a_derived_column_has_a_band_only_if_it_is_a_multiple(expression, proportional):
    session = ss.Session(TABLE)
    mechanism = ss.Gaussian(sigma=100)
    release = session.sum({"payann": mechanism, "d": mechanism}, keys=STATES, derive={"d": expression})
    assert facts_of(release).columns["d"].proportional is proportional
    if proportional:
        both = release.band_policy()({"payann": 500, "d": 250})
        assert both == pytest.approx(mechanism.policy(50) + mechanism.policy(25), rel=1e-6)
        return
    with refused(ParameterError, code="no-band"):
        release.band_policy()
    # If the column that it is computed from is not released, the band is one of the derived values.
    alone = session.sum({"d": mechanism}, keys=STATES, derive={"d": expression})
    assert alone.band_policy()({"d": 250}) == pytest.approx(mechanism.policy(25), rel=1e-6)


def test_a_derived_column_needs_a_band_cap(tmp_path):
    ledger = ss.Ledger(tmp_path / "x.ledger", band_caps={"payann": 2})
    with refused(ParameterError, code="no-cap"):
        ss.Session(TABLE, ledger).sum({"half": LOG}, keys=STATES, derive={"half": "payann / 2"})


def test_totals_of_entities_and_counts():
    session = ss.Session(TABLE, protect="firm")
    release = session.sum({"payann": LOG}, keys=STATES, count=ss.Gaussian(sigma=3))
    band = release.band_policy()
    assert band.columns == ("payann",)  # the number of records does not change
    assert band({"payann": 500}) == pytest.approx(LOG.band_policy(times=1.1)(500), rel=1e-6)
    with refused(ParameterError, code="no-band"):  # its records could scatter over many cells
        session.sum({"payann": LOG}, keys=STATES, where="payann > 3").band_policy()


def test_quantiles_have_their_own_rule():
    request = ss.Request(
        {
            "cells": ss.Sums({"payann": LOG}, keys=STATES),
            "sizes": ss.Quantiles("payann", at=[0.5], grid=[1, 10, 100, 1000], loss=0.1),
        }
    )
    release = ss.Session(TABLE).release(request)
    expected = LOG.band_policy(times=1.1)(500) + 4 * 0.1
    assert release.band_policy()({"payann": 500}) == pytest.approx(expected, rel=1e-6)


def test_bands_add_up_over_releases_and_parts(tmp_path):
    with ss.Ledger(tmp_path / "x.ledger") as ledger:
        session = ss.Session(TABLE, ledger)
        for state in ("a", "b", "b"):
            keys = ss.Keys.cross({"state": [state]})
            session.sum({"payann": LOG}, keys=keys, partition="state")
        session.sum({"payann": LOG}, keys=STATES)
        one = LOG.band_policy(times=1.2)(500)
        spent = ledger.spent.band_policy(1.2)
        assert spent({"payann": 500}) == pytest.approx(3 * one, rel=1e-6)
        assert spent({"payann": 500, "state": "a"}) == pytest.approx(2 * one, rel=1e-6)
        with refused(ParameterError, code="mismatch"):
            spent + ledger.spent


def test_a_charge_without_facts_is_counted_as_one_that_moves():
    account = Account(band_caps={"x": ConstantPolicy(1.0)})
    gaussian = ss.Gaussian(sigma=100).policy
    with pytest.raises(ss.CapError):
        account.charge(Charge(ss.RecordPolicy((("x", gaussian),))))
    assert Use("x").within(("x", gaussian), Band.of(1.1, [], ["x"])).moves
    assert account.charges == []


def test_a_later_column_makes_earlier_filters_count(tmp_path):
    """With a cap on all columns, a release that was filtered by a column counts as moving once that is summed."""
    with ss.Ledger(tmp_path / "x.ledger", band_caps={"*": 1.5}) as ledger:
        session = ss.Session(TABLE, ledger)
        session.sum({"payann": LOG}, keys=STATES, where="emp > 3")
        with pytest.raises(ss.CapError):
            session.sum({"emp": LOG}, keys=STATES)


def test_how_closely_a_value_is_known():
    for m, q in ((ss.Gaussian(sigma=10), 50.0), (LOG, 1e6), (ss.Root(k=4, sigma=0.1), 1e6)):
        half = m._half_width_at(q, 0.95)
        covered = m.release(np.full(20_000, q), unit="0.001", level=0.95)
        length = np.median(covered.high - covered.low) / 2
        assert half == pytest.approx(float(length), rel=0.03)
    assert math.isfinite(half)


def test_a_cap_of_as_many_releases_has_room_for_them(tmp_path):
    """Also for floats, which are truncated to grains: a small record may change by a grain more than its band."""
    with ss.Ledger(tmp_path / "x.ledger", band_caps={"payann": 3 * LOG.band_policy(times=1.1)}) as ledger:
        session = ss.Session(TABLE, ledger)
        for _ in range(3):
            session.sum({"payann": LOG}, keys=STATES)
        with pytest.raises(ss.CapError):
            session.sum({"payann": LOG}, keys=STATES)


FRAME = pa.table({"payann": [50, 100, 105, 400], "emp": [1, 2, 3, 4], "firm": ["x", "y", "x", "z"]})
TEN = ss.Gaussian(sigma=10)


def both(value, times=1.1):
    """Return twice the loss of presence of the larger value: the record leaves one cell and enters another."""
    return 2 * TEN.policy(times * value)


def test_a_derived_column_that_decides_its_own_filter_moves_the_record():
    session = ss.Session(FRAME)
    quarter = session.sum({"quarter": TEN}, derive={"quarter": "payann / 4"}, where="quarter >= 25")
    assert quarter.band_policy()({"quarter": 25}) == pytest.approx(both(25), rel=1e-6)
    other = session.sum({"x": TEN}, derive={"x": "payann - 1000"}, where="payann >= 100")
    assert other.band_policy()({"x": 100}) == pytest.approx(both(100), rel=1e-6)
    with refused(ParameterError, code="no-band"):
        session.sum({"a": TEN, "b": TEN}, derive={"a": "payann / 4", "b": "a * a"}).band_policy()
    with refused(ParameterError, code="no-band"):
        firms = ss.Session(FRAME, protect="firm")
        firms.sum({"quarter": TEN}, derive={"quarter": "payann / 4"}, where="quarter >= 25").band_policy()


def test_a_renamed_column_is_followed_to_the_stored_one():
    ibis = pytest.importorskip("ibis")
    renamed = ibis.memtable(FRAME.to_pandas()).rename(pay="payann")
    release = ss.Session(renamed).sum({"pay": TEN}, where="pay >= 100")
    assert release.band_policy()({"pay": 100}) == pytest.approx(both(100), rel=1e-6)


def test_releases_of_derived_and_stored_columns_are_seen_together(tmp_path):
    with ss.Ledger(tmp_path / "x.ledger") as ledger:
        session = ss.Session(FRAME, ledger)
        session.sum({"quarter": TEN}, derive={"quarter": "payann / 4"})
        session.count(mechanism=TEN, where="payann >= 100")
        expected = TEN.policy(0.1 * 25) + 2 * TEN.policy(1)
        assert session.spent.band_policy()({"quarter": 25}) == pytest.approx(expected, rel=1e-6)


def test_a_refusal_or_a_check_does_not_change_what_is_refused_later(tmp_path):
    classes = ss.Keys.cross({"size": ["big", "small"]})
    derive = {"size": "CASE WHEN payann >= 100 THEN 'big' ELSE 'small' END"}
    log = ss.Log(sigma=0.5, a=500)
    with ss.Ledger(tmp_path / "x.ledger", band_caps={"*": 2}) as ledger:
        session = ss.Session(FRAME, ledger)
        session.sum({"emp": ss.Log(sigma=0.5, a=1)}, keys=classes, derive=derive)
        for _ in range(3):
            with refused(ss.CapError):
                session.sum({"payann": log})
        assert ledger.spent.releases == 1


@pytest.mark.filterwarnings("ignore::slowscale.CapWarning")
def test_other_numbers_that_tell_a_capped_value_need_a_band_cap(tmp_path):
    cells = ss.Keys.cross({"emp": list(range(1, 5))})
    with ss.Ledger(tmp_path / "x.ledger", band_caps={"emp": 0.1}) as ledger:
        session = ss.Session(FRAME, ledger)
        for ask in (
            lambda: session.count(mechanism=ss.Gaussian(sigma=0.01), keys=cells),
            lambda: session.sum({"payann": ss.Gaussian(sigma=0.01)}, keys=cells),
            lambda: session.quantiles("emp", at=[0.5], grid=[1, 2, 3], loss=0.1),
        ):
            with refused(ParameterError, code="no-cap"):
                ask()
        session.sum({"payann": ss.Gaussian(sigma=0.01)})  # it does not depend on the number of employees
        assert ledger.spent.releases == 1


def test_a_ranked_column_is_among_the_values_that_change():
    request = ss.Request(
        {
            "sizes": ss.Quantiles("payann", at=[0.5], grid=[1, 10, 100, 1000], loss=0.01),
            "cells": ss.Sums({"emp": TEN}, where="payann >= 100"),
        }
    )
    release = ss.Session(FRAME).release(request)
    assert release.band_policy()({"emp": 10}) == pytest.approx(4 * 0.01 + both(10), rel=1e-6)


def test_a_label_that_may_change_does_not_tell_the_part():
    session = ss.Session(FRAME)
    session.sum({"payann": TEN}, keys=ss.Keys.cross({"emp": [1]}), partition="emp")
    session.sum({"payann": ss.Gaussian(sigma=1)}, keys=ss.Keys.cross({"emp": [2]}), partition="emp")
    session.sum({"emp": ss.Gaussian(sigma=1)})
    band = session.spent.band_policy(2.0)
    assert min(band({"payann": 100, "emp": label}) for label in (1, 2)) > 50 + 20_000


def test_unknown_uses_state_no_more_than_is_known():
    root = ss.Transformation(np.sqrt, np.square, sigma=1, a=0, estimator="median")
    session = ss.Session(FRAME)
    release = session.sum({"payann": TEN, "x": root}, derive={"x": "payann + 7"})
    for source in (release, session.spent):
        with refused(ParameterError, code="no-band"):
            source.band_policy()
    alone = session.sum({"payann": root})
    assert alone.band_policy()({"payann": 100}) == pytest.approx(root.band_policy(times=1.1)(100))
    charge = Charge(ss.RecordPolicy((("x", TEN.policy), ("y", TEN.policy))), derived={"y": "x - 1"})
    with refused(ParameterError, code="no-band"):
        charge.band_policy()


def test_a_band_with_a_grain_is_capped_at_its_largest_loss():
    """With a grain, a small record may lose more than a larger one."""
    policy = ss.Log(sigma=0.5, a=1e-3).policy
    band = BandPolicy(policy, 2.0, grain=1.0)
    sizes = np.geomspace(1e-3, 1e3, 2001)
    losses = band(sizes)
    assert (np.diff(losses) < 0).any()
    assert (band._rising_loss(sizes) >= np.maximum.accumulate(losses)).all()


def test_the_factor_of_a_ledger_is_that_of_its_totals(tmp_path):
    with ss.Ledger(tmp_path / "x.ledger", band=2.0) as ledger:
        session = ss.Session(FRAME, ledger)
        release = session.sum({"payann": TEN})
        assert release.band_policy()({"payann": 100}) == session.spent.band_policy()({"payann": 100}) == 50
        assert "100 % larger or smaller" in session.spent.describe()
        described = release.band_policy().to_dict()
        assert ss.RecordPolicy.from_dict(described) == release.band_policy()


@pytest.mark.parametrize("size", [0.4, 0.95, 1.0, 1.05, 3.0])
def test_the_guess_beside_a_band_covers_truncated_values(size):
    """Values are truncated to whole grains of 1: 0.95 and 1.0 are as far apart as 0 and 1."""
    root = ss.Root(k=4, sigma=0.2)
    use, band = Use("x", decided_by=(), grain=1.0), Band.of(1.1, [], ["x"])
    stated = explain([Loss.between(("x", root.policy), None, root, use, size, band)]).guessed
    others = size * np.geomspace(1 / 1.1, 1.1, 201)
    truth = max(
        ss.attacker(root, values=(math.floor(size), math.floor(other))).posterior(0.5).correct for other in others
    )
    assert stated >= truth - 1e-12


def test_the_uses_of_earlier_charges_are_kept_apart_once_and_forgotten_with_their_charge():
    account = Account(band_caps={"*": ConstantPolicy(1e9)})
    plain, derived = (
        Charge(ss.RecordPolicy((("x", LOG.policy),)), uses=(Use("x", reads, proportional, ("g",)),))
        for reads, proportional in (((), True), (("y",), False))
    )
    account.charge(plain)
    alone = account._currencies()
    for _ in range(20):
        account.charge(plain)
    assert account._currencies() == alone
    assert len(account._uses) == 1  # so that a later charge takes as long as the first one
    with_derived = account._currencies(derived)
    account.record(derived)
    assert account._currencies() == account.copy()._currencies() == with_derived != alone
    account.forget()
    assert account._currencies() == alone
