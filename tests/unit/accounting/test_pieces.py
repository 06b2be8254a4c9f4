"""The total counts some columns and releases as pure and the rest as PRzCDP, whichever gives the best bound."""

import json
import math
from dataclasses import FrozenInstanceError
from itertools import product

import pandas as pd
import pytest
from helpers.bitsources import Recorded

import slowscale as ss
from slowscale.accounting import Account, Charge, Loss, certainty, odds_factor, posterior
from slowscale.accounting.sizes import read_sizes
from slowscale.accounting.spent import total_losses
from slowscale.core.numbers import share

RECORDS = pd.DataFrame({"state": ["IA", "TX"], "x": [10, 20], "y": [1, 2]})
NOISE = ss.Gaussian(sigma=50)
PURE = ss.GeneralizedGaussian(sigma=300, p=1)
OTHER = ss.GeneralizedGaussian(sigma=30, p=0.5)
RECORD = {"x": 20, "y": 200}
SIZE = read_sizes([{"name": "largest", **RECORD}], ["x", "y"])[0]


def policy(**columns):
    return ss.RecordPolicy(tuple(columns.items()))


def mixed(**changes):
    """Return the charge of a release of x, which is not pure, and y, which is."""
    given = {"policy": policy(x=NOISE.policy, y=PURE.policy), "pure_columns": policy(y=PURE.pure_policy)}
    return Charge(**given | changes)


def spent(*charges):
    account = Account()
    for charge in charges:
        account.charge(charge)
    return account.spent


def best(losses):
    """Return the smallest certainty over all ways to count some losses as pure, by trying all of them."""
    found = []
    for taken in product((False, True), repeat=len(losses)):
        if all(loss.pure is not None for loss, pure in zip(losses, taken, strict=True) if pure):
            sure = sum(loss.pure for loss, pure in zip(losses, taken, strict=True) if pure)
            rho = sum(loss.rho for loss, pure in zip(losses, taken, strict=True) if not pure)
            found.append(posterior(0.5, sure + (odds_factor(rho, 0.01) if rho else 0)))
    return min(found)


@pytest.mark.parametrize("durable", [False, True])
def test_a_column_that_is_not_pure_does_not_affect_the_others(tmp_path, durable):
    path = tmp_path / "census.ledger" if durable else None
    session = ss.Session(RECORDS, path, bits=Recorded(1))
    session.sum({"x": NOISE, "y": PURE})
    session.sum({"x": OTHER, "y": PURE})
    session.sum({"x": NOISE})
    found = total_losses(session.spent, SIZE)
    x, y = (NOISE.policy(20), None), (PURE.policy(200), PURE.pure_policy(200))
    each = [Loss(*x), Loss(*y), Loss(OTHER.policy(20), OTHER.pure_policy(20)), Loss(*y), Loss(*x)]
    assert certainty(found).value == pytest.approx(best(each), rel=1e-12)
    assert certainty(found).guarantee == "PRDP and PRzCDP"
    whole = certainty([Loss(session.spent(RECORD))])
    assert certainty(found).value < whole.value - 0.01
    assert sum(loss.rho for loss in found) == pytest.approx(session.spent(RECORD))
    words = session.spent.describe([SIZE])
    assert share(certainty(found).value) in words
    assert share(whole.value) not in words
    if durable:
        assert ss.Ledger(path).spent == session.spent


def test_the_report_on_a_ledger_uses_the_same_bound(tmp_path):
    session = ss.Session(RECORDS, tmp_path / "census.ledger", bits=Recorded(1))
    session.sum({"x": NOISE, "y": PURE})
    release = session.sum({"x": NOISE, "y": PURE})
    release.report(tmp_path / "a.html", session.spent, sizes=[{"name": "largest", **RECORD}])
    table = (tmp_path / "a.html").read_text().split("<caption>Table 4.")[1].partition("</table>")[0]
    assert share(certainty(total_losses(session.spent, SIZE)).value) in table
    assert share(certainty([Loss(session.spent(RECORD))]).value) not in table


def test_the_facts_name_the_pure_columns():
    session = ss.Session(RECORDS, bits=Recorded(1))
    assert session.sum({"x": NOISE, "y": PURE}).facts.pure_columns == tuple(policy(y=PURE.pure_policy).to_dict())
    count = session.sum({"x": NOISE}, count=PURE, where="y > 0").facts.pure_columns
    assert ss.RecordPolicy.from_dict(count)({}) == PURE.pure_policy(1)
    for columns in ({"x": NOISE}, {"y": PURE}, {"x": NOISE, "y": NOISE}):
        facts = session.sum(columns).facts
        assert facts.pure_columns is None
        assert "pure_columns" not in facts.to_dict()


def test_charges_without_pure_columns_are_converted_as_a_whole():
    """It is then not known whether the columns have independent noise."""
    old = Charge(policy(x=OTHER.policy, y=PURE.policy), policy(x=OTHER.pure_policy, y=PURE.pure_policy))
    plain = Charge(policy(x=NOISE.policy, y=PURE.policy))
    found = total_losses(spent(plain, old, plain), SIZE)
    both = OTHER.pure_policy(20) + PURE.pure_policy(200)
    assert found == [
        Loss(pytest.approx(old.policy(RECORD)), pytest.approx(both)),
        Loss(pytest.approx(2 * plain.policy(RECORD))),
    ]
    assert spent(plain, plain).pieces == ()
    assert total_losses(spent(plain, plain), SIZE) == [Loss(pytest.approx(2 * plain.policy(RECORD)))]
    assert total_losses(spent(old), SIZE) == [Loss(old.policy(RECORD), both)]


def test_parallel_releases_are_converted_as_a_whole():
    part = mixed(by="state", labels=("IA",), kind="text")
    found = spent(part, mixed())
    assert found.pieces == ()
    assert total_losses(found, SIZE) == [Loss(pytest.approx(2 * mixed().policy(RECORD)))]
    nested = Charge(mixed().policy | mixed().policy)
    assert spent(nested, mixed()).pieces == ()


def test_too_many_pieces_are_converted_as_a_whole(monkeypatch):
    monkeypatch.setattr("slowscale.accounting.composition.MOST_PIECES", 3)
    noises = [ss.ExponentialPolylog(d=sigma) for sigma in (1, 2, 3, 4)]
    charges = [Charge(policy(y=noise.policy), policy(y=noise.pure_policy)) for noise in noises]
    assert len(spent(*charges[:3], mixed(pure_columns=None)).pieces) == 4
    assert spent(*charges).pieces == ()
    assert [piece.times for piece in spent(*charges[:1] * 5, mixed(pure_columns=None)).pieces] == [5, 1]


def test_pieces_never_claim_more_than_the_best_choice_over_all_terms():
    charges = [
        mixed(),
        mixed(policy=policy(x=OTHER.policy, y=PURE.policy), pure_columns=policy(x=OTHER.pure_policy)),
        Charge(policy(x=OTHER.policy), policy(x=OTHER.pure_policy)),
        mixed(),
    ]
    for x, y in product((0, 1, 30, 1e4), repeat=2):
        size = read_sizes([{"name": "largest", "x": x, "y": y}], ["x", "y"])[0]
        x_pure, y_pure = OTHER.pure_policy(x), PURE.pure_policy(y)
        rho = {"noise": NOISE.policy(x), "other": OTHER.policy(x), "y": PURE.policy(y)}
        each = [Loss(rho["noise"]), Loss(rho["y"], y_pure)] * 2
        each += [Loss(rho["other"], x_pure), Loss(rho["y"]), Loss(rho["other"], x_pure)]
        found = certainty(total_losses(spent(*charges), size)).value
        assert found >= best(each) * (1 - 1e-12)
        assert math.isclose(found, best(each), rel_tol=1e-9)


def test_a_piece_cannot_be_changed():
    first, rest = spent(mixed()).pieces
    assert first.loss(RECORD) == Loss(PURE.policy(200), PURE.pure_policy(200))
    assert rest.loss(RECORD) == Loss(NOISE.policy(20))
    with pytest.raises(FrozenInstanceError):
        first.times = 0


def test_charges_keep_their_pure_columns():
    charge = mixed(protects="firm")
    assert Charge.from_facts(json.loads(json.dumps(charge.written))) == charge
    without = {name: fact for name, fact in charge.written.items() if name != "pure_columns"}
    assert Charge.from_facts(without).pure_columns is None
    renamed = spent(
        mixed(), mixed(policy=policy(X=NOISE.policy, Y=PURE.policy), pure_columns=policy(Y=PURE.pure_policy))
    )
    assert [piece.times for piece in renamed.pieces] == [2, 1]


def test_pure_columns_cover_what_they_name():
    twice = ss.RecordPolicy((("y", PURE.policy), ("y", NOISE.policy)))
    wrong = [
        {"pure_columns": policy(z=PURE.pure_policy)},
        {"pure_columns": policy(y=PURE.policy)},
        {"policy": twice},
        {"pure_columns": policy(y=PURE.pure_policy) | policy(y=PURE.pure_policy)},
    ]
    for changes in wrong:
        with pytest.raises(ss.ParameterError, match="pure_columns must have PRDP policies only"):
            mixed(**changes)
    with pytest.raises(ss.ParameterError, match="names that the ledger takes for one"):
        mixed(policy=policy(y=PURE.policy, Y=NOISE.policy))
