"""The total consists of pieces with independent noise: columns with their mechanisms, or whole releases."""

import json
from dataclasses import FrozenInstanceError

import pandas as pd
import pytest
from helpers.bitsources import Recorded
from helpers.errors import refused

import slowscale as ss
from slowscale.accounting import Account, Charge, Loss, explain
from slowscale.accounting.sizes import read_sizes

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


def losses(*charges):
    """Return what the record loses by each piece of the charges."""
    (pieces,) = spent(*charges).pieces
    return [piece.loss(RECORD, times) for piece, times in pieces]


@pytest.mark.parametrize("durable", [False, True])
def test_the_total_is_that_of_all_noises_together(tmp_path, durable):
    path = tmp_path / "census.ledger" if durable else None
    session = ss.Session(RECORDS, path, bits=Recorded(1))
    session.sum({"x": NOISE, "y": PURE})
    session.sum({"x": OTHER, "y": PURE})
    session.sum({"x": NOISE})
    found, exact = session.spent.explain(SIZE), ss.attacker([NOISE, PURE, OTHER, PURE, NOISE], [20, 200, 20, 200, 20])
    assert found.detected == pytest.approx(exact.power(0.05), rel=1e-3)
    assert (found.pure, found.bound) == (None, False)
    assert {(loss.mechanism, loss.times) for loss in found.losses} == {(NOISE, 2), (PURE, 2), (OTHER, 1)}
    assert found.loss == pytest.approx(session.spent(RECORD))
    words = session.spent.describe([SIZE])
    assert found.texts["guessed"] in words
    assert explain([Loss(session.spent(RECORD))]).texts["guessed"] not in words
    if durable:
        assert ss.Ledger(path).spent == session.spent


def test_the_report_on_a_ledger_states_the_same(tmp_path):
    session = ss.Session(RECORDS, tmp_path / "census.ledger", bits=Recorded(1))
    session.sum({"x": NOISE, "y": PURE})
    release = session.sum({"x": NOISE, "y": PURE})
    release.report(tmp_path / "a.html", session.spent, sizes=[{"name": "largest", **RECORD}])
    table = (tmp_path / "a.html").read_text().split("<caption>Table 5.")[1].partition("</table>")[0]
    for text in session.spent.explain(SIZE).texts.values():
        assert text in table or text == "none"


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
    both = OTHER.pure_policy(20) + PURE.pure_policy(200)
    assert losses(plain, old, plain) == [
        Loss(pytest.approx(2 * plain.policy(RECORD)), times=2),
        Loss(pytest.approx(old.policy(RECORD)), pytest.approx(both)),
    ]
    assert spent(old).explain(SIZE) == explain([Loss(old.policy(RECORD), both)])


def test_each_column_with_a_pure_guarantee_is_a_piece():
    assert losses(mixed(), mixed()) == [
        Loss(2 * NOISE.policy(20), times=2),
        Loss(2 * PURE.policy(200), 2 * PURE.pure_policy(200), times=2),
    ]


def test_releases_about_parts_have_pieces_for_each_combination():
    parts = [mixed(by="state", labels=(label,), kind="text") for label in ("IA", "TX")]
    once, twice = mixed(), spent(*parts, parts[0], mixed())
    assert sorted([piece[1] for piece in some] for some in twice.pieces) == [[2, 2], [3, 3]]
    assert twice.explain(SIZE).loss == pytest.approx(3 * once.policy(RECORD)) == pytest.approx(twice(RECORD))
    nested = Charge(mixed().policy | mixed().policy)
    assert spent(nested).explain(SIZE) == explain([Loss(mixed().policy(RECORD))])


def test_a_piece_cannot_be_changed():
    first, rest = mixed().pieces
    assert first.loss(RECORD) == Loss(NOISE.policy(20))
    assert rest.loss(RECORD) == Loss(PURE.policy(200), PURE.pure_policy(200))
    with pytest.raises(FrozenInstanceError):
        first.policy = rest.policy


def test_charges_keep_their_pure_columns():
    charge = mixed(protects="firm")
    assert Charge.from_facts(json.loads(json.dumps(charge.written))) == charge
    without = {name: fact for name, fact in charge.written.items() if name != "pure_columns"}
    assert Charge.from_facts(without).pure_columns is None
    renamed = spent(
        mixed(), mixed(policy=policy(X=NOISE.policy, Y=PURE.policy), pure_columns=policy(Y=PURE.pure_policy))
    )
    assert [times for _, times in renamed.pieces[0]] == [2, 2]


def test_pure_columns_cover_what_they_name():
    twice = ss.RecordPolicy((("y", PURE.policy), ("y", NOISE.policy)))
    wrong = [
        {"pure_columns": policy(z=PURE.pure_policy)},
        {"pure_columns": policy(y=PURE.policy)},
        {"policy": twice},
        {"pure_columns": policy(y=PURE.pure_policy) | policy(y=PURE.pure_policy)},
    ]
    for changes in wrong:
        with refused(ss.ParameterError, "pure_columns", code="mismatch"):
            mixed(**changes)
    with refused(ss.ParameterError, "columns 'y' and 'Y'", code="duplicate"):
        mixed(policy=policy(y=PURE.policy, Y=NOISE.policy))
