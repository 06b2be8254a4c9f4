"""Record policies: sums of one-column policies."""

import json

import numpy as np
import pytest

import slowscale as ss
from slowscale.accounting import Account, Charge
from slowscale.accounting.record import folded, read_policies
from slowscale.policy import ConstantPolicy

P = ss.RecordPolicy((("emp", ss.Gaussian(10).policy), ("pay", ss.Root(4, 2).policy), (None, ConstantPolicy(0.125))))


def test_losses_add():
    assert P({"emp": 20, "pay": 16}) == pytest.approx(2 + 4 / 8 + 0.125)
    both = P({"emp": np.array([0, -20]), "pay": np.array([16, 16]), "other": None})
    np.testing.assert_allclose(both, [0.625, 2.625])
    assert (P + P)({"emp": 20, "pay": 16}) == pytest.approx(2 * 2.625)
    assert P.columns == ("emp", "pay")
    assert ss.RecordPolicy(())({}) == 0


def test_descriptions_round_trip():
    assert ss.RecordPolicy.from_dict(json.loads(json.dumps(P.to_dict()))) == P
    assert str(P) == "emp² / (2·10²) + pay^(1/2) / (2·2²) + 0.125"


def test_a_filter_is_remembered():
    """Sums, parallel parts and descriptions keep it; a description without the entry means no filter."""
    filtered = ss.RecordPolicy(P.terms, filtered=True)
    record, other = {"emp": 20, "pay": 16}, {"emp": 21, "pay": 16}
    assert P.bounded(record, other) == pytest.approx(0.005)
    assert filtered.bounded(record, other) == pytest.approx(2.205 + 0.5 + 0.125)
    for policy, times in ((P + filtered, 2), (filtered + P, 2), (P | filtered, 1), (filtered | P, 1)):
        assert policy.filtered
        assert policy.bounded(record, other) == pytest.approx(times * 2.83)
        assert ss.RecordPolicy.from_dict(json.loads(json.dumps(policy.to_dict()))) == policy
    assert not (P + P).filtered
    assert not (P | P).filtered
    around = ss.RecordPolicy((), (P | P).parallel, filtered=True)
    assert around.bounded(record, other) == pytest.approx(2.83)
    assert filtered != P
    assert filtered.to_dict() == [*P.to_dict(), {"filtered": True}]
    account = Account()
    account.charge(Charge(P))
    assert not account.spent.filtered
    account.charge(Charge(filtered, None, "state", ("IA",), "text"))
    assert account.spent.filtered
    assert account.spent.bounded(record, other) == pytest.approx(2 * 2.83)


@pytest.mark.parametrize("where", [None, "emp > 1"])
def test_the_facts_of_a_release_include_its_filter(where):
    """Earlier versions wrote the filter only there."""
    pure = ss.RecordPolicy((("emp", ss.GeneralizedGaussian(1, 1).pure_policy),))
    marked = where is not None
    for mark in (False, marked):
        facts = {"where": where, "policy": ss.RecordPolicy(P.terms, filtered=mark).to_dict()}
        expected = ss.RecordPolicy(P.terms, filtered=marked)
        assert read_policies({**facts, "pure_policy": None}) == (expected, None)
        assert read_policies({**facts, "pure_policy": ss.RecordPolicy(pure.terms, filtered=mark).to_dict()}) == (
            expected,
            ss.RecordPolicy(pure.terms, filtered=marked),
        )


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("emp", " EMP\t"),
        ("emp", "\ufeffemp"),  # a byte order mark
        ("emp", "e\u200bm\u200dp\u00ad"),  # zero-width blanks and joiners, a soft hyphen
        ("emp", "emp\ufe0f\u034f"),  # a variation selector, a grapheme joiner
        ("emp", "\u200b emp \u200b"),  # blanks that an invisible character hides from strip
        ("emp", "\uff25\uff2d\uff30"),  # full-width letters
        ("pay ann", "pay\u00a0ann"),  # a no-break space
        ("gr\u00f6\u00dfe", "GRO\u0308SSE"),
        ("\u00f6", "o\u200d\u0308"),  # the joiner separates the letter from its accent
        ("\u0390", "\u0399\u0308\u0301"),  # case folding decomposes the letter
    ],
)
def test_names_that_differ_only_in_form_are_equal(name, other):
    assert folded(name) == folded(other)
    assert folded(folded(other)) == folded(other)


def test_other_names_stay_different():
    names = ["emp", "emp1", "e mp", "\u0435mp", "o", "\u00f6", "count", "*"]
    assert len(set(map(folded, names))) == len(names)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: P({"emp": 1}), "record must have a value for pay"),
        (lambda: P(3), "record must be a mapping"),
        (lambda: P({"emp": "x", "pay": 1}), "emp must be numbers"),
        (lambda: ss.RecordPolicy((("emp", 3),)), "pairs of a column and a policy"),
        (lambda: ss.RecordPolicy(((None, ss.Gaussian(1).policy),)), "must be constant"),
        (
            lambda: ss.RecordPolicy((("a", ss.Gaussian(1).policy), ("b", ss.GeneralizedGaussian(1, 1).pure_policy))),
            "PRDP",
        ),
        (lambda: ss.RecordPolicy((), filtered=1), "filtered must be True or False"),
        (lambda: ss.RecordPolicy.from_dict([{"filtered": "no"}]), "filtered must be True or False"),
        (lambda: ss.RecordPolicy.from_dict([{}]), "must be one that RecordPolicy.to_dict returned"),
        (lambda: ss.RecordPolicy.from_dict(3), "must be one that RecordPolicy.to_dict returned"),
    ],
)
def test_mistakes_raise_clear_errors(make, words):
    with pytest.raises(ss.SlowscaleError, match=words):
        make()


def test_a_column_that_is_not_released_is_refused():
    policy = ss.RecordPolicy((("emp", ss.Gaussian(1).policy),))
    with pytest.raises(ss.ParameterError, match="got 'typo'; the columns are emp"):
        policy.column("typo")
    assert policy.column("emp")(2) == 2
    assert policy.column(None)(0) == 0
    parts = policy | ss.RecordPolicy((("pay", ss.Gaussian(1).policy),))
    assert parts.column("pay")(2) == 2
    with pytest.raises(ss.ParameterError, match="the columns are emp, pay"):
        parts.column("typo")


def test_a_notebook_shows_it():
    assert ss.RecordPolicy((("a<b", ss.Gaussian(1).policy),))._repr_html_() == "<pre>a&lt;b² / (2·1²)</pre>"


def test_sizes_of_your_own():
    account = Account()
    account.charge(Charge(ss.RecordPolicy((("emp", ss.Gaussian(1).policy),))))
    for sizes in ({"largest": 5}, {"largest": {"emp": 5}}, [5], np.array([5.0]), "5"):
        assert "12.5 at 5" in account.spent.describe(sizes)
        assert "These sizes follow from the policies" not in account.spent.describe(sizes)
    assert "These sizes follow from the policies" in account.spent.describe()
    with pytest.raises(ss.ParameterError, match="sizes must have exactly one size whose name contains"):
        account.spent.describe({"median": 5})
