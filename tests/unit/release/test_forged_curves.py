"""A release that is read back keeps the curve of its policy, and is repeated only if its mechanism has that curve."""

import json
import math

import numpy as np
import pyarrow as pa
import pytest
from helpers.bitsources import Recorded
from helpers.errors import refused

import slowscale as ss
from slowscale.noise import stored_curves
from slowscale.policy import tight

RECORDS = pa.table({"k": ["a", "a", "b"], "x": [1, 20, 300]})
KEYS = ss.Keys.cross({"k": ["a", "b"]})
MECHANISM = ss.GeneralizedGaussian(sigma=2, p=0.5)


@pytest.fixture
def path(tmp_path):
    session = ss.Session(RECORDS, bits=Recorded(1), accounting="tight")
    session.sum({"x": MECHANISM}, keys=KEYS).to_csv(tmp_path / "r.csv")
    return tmp_path / "r.csv"


def change_knots(found, change):
    """Change all knots in the facts of a release."""
    if isinstance(found, dict):
        if found.get("kind") == "tight":
            found["knots"] = change(found["knots"])
        found = list(found.values())
    for value in found if isinstance(found, list) else []:
        change_knots(value, change)


def forge(path, change):
    beside = path.with_name("r.csv.json")
    facts = json.loads(beside.read_text())
    before = json.dumps(facts)
    change_knots(facts, change)
    assert json.dumps(facts) != before
    beside.write_text(json.dumps(facts))
    return ss.read_release(path)


def moved(share, places=slice(None)):
    def change(knots):
        array = np.array(knots)
        array[places, 1] += math.log1p(share)
        return array.tolist()

    return change


@pytest.mark.parametrize(
    ("change", "accepted"),
    [
        (moved(0.004), True),
        (moved(-0.004), True),
        (moved(0.03), False),
        (moved(-0.03), False),
        (moved(-0.5), False),
        (moved(-0.03, 20), False),
        (lambda knots: [[size, min(loss, -5.0)] for size, loss in knots], False),
        (lambda knots: [knots[0], [knots[-1][0], knots[0][1]]], False),
    ],
)
def test_changed_knots(path, change, accepted):
    """The curves of other versions may differ by their precision, and no more anywhere."""
    read = forge(path, change)
    session = ss.Session(RECORDS)
    if accepted:
        assert session.losses(read).records == 3
        return
    for ask in (session.losses, session.errors):
        with refused(ss.ParameterError, "release", code="policy"):
            ask(read)


def test_reading_a_release_computes_no_curve(path, monkeypatch):
    policy = ss.RecordPolicy((("x", MECHANISM.tight_policy),))
    loss = policy({"x": 20})

    def fail(*given):
        raise AssertionError("a curve was computed")

    for module, name in ((tight, "tight_curve"), (stored_curves, "tight_curve"), (stored_curves, "build_curve")):
        monkeypatch.setattr(module, name, fail)
    read = ss.read_release(path)
    assert read.policy({"x": 20}) == loss
    assert read.facts.policy[0]["policy"]["knots"]
    assert read.facts.accounting == "tight"
    with pytest.raises(AssertionError, match="a curve was computed"):  # the twin
        policy.terms[0][1].parameters()(20.0)


@pytest.mark.parametrize("knots", [None, [[0, 1]], [[0.0, 1.0], [-1.0, 2.0]], [["a", 1.0], [1.0, 2.0]], 7])
def test_malformed_knots(path, knots):
    if knots is None:  # without knots, the policy is the one that this version computes
        assert forge(path, lambda _: None).policy({"x": 20}) == MECHANISM.tight_policy(20)
        return
    with refused(ss.ParameterError, "knots", code="value"):
        forge(path, lambda _: knots)
