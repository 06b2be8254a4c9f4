"""Record policies: sums of one-column policies."""

import json
from datetime import date

import numpy as np
import pandas as pd
import pytest
from helpers.bitsources import Recorded
from helpers.errors import refused

import slowscale as ss
from slowscale.accounting import Account, Charge, RecordPolicy
from slowscale.accounting.record import Parallel, folded, plain_label
from slowscale.policy import ConstantPolicy, RankPolicy

P = ss.RecordPolicy(
    (("emp", ss.Gaussian(sigma=10).policy), ("pay", ss.Root(k=4, sigma=2).policy), (None, ConstantPolicy(0.125)))
)


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
    assert P.bounded(record, other, same_cell=True) == pytest.approx(0.005)
    assert filtered.bounded(record, other, same_cell=True) == pytest.approx(2.205 + 0.5 + 0.125)
    for policy, times in ((P + filtered, 2), (filtered + P, 2), (P | filtered, 1), (filtered | P, 1)):
        assert policy.filtered
        assert policy.bounded(record, other, same_cell=True) == pytest.approx(times * 2.83)
        assert ss.RecordPolicy.from_dict(json.loads(json.dumps(policy.to_dict()))) == policy
    assert not (P + P).filtered
    assert not (P | P).filtered
    around = ss.RecordPolicy((), (P | P).parallel, filtered=True)
    assert around.bounded(record, other, same_cell=True) == pytest.approx(2.83)
    assert filtered != P
    assert filtered.to_dict() == [*P.to_dict(), {"filtered": True}]
    account = Account()
    account.charge(Charge(P))
    assert not account.spent.filtered
    account.charge(Charge(filtered, by="state", labels=("IA",), kind="text"))
    assert account.spent.filtered
    assert account.spent.bounded(record, other, same_cell=True) == pytest.approx(2 * 2.83)


@pytest.mark.parametrize("same_cell", [False, True])
def test_different_labels_of_a_partition_are_different_cells(same_cell):
    """The record leaves one part and enters another: its losses there add up, whatever else is stated."""
    pay = ss.RecordPolicy((("emp", ss.Gaussian(sigma=2).policy),))
    firms = pd.DataFrame({"industry": ["Retail", "Services"], "emp": [10, 12]})
    keys = ss.Keys.cross({"industry": ["Retail", "Services"]})
    session = ss.Session(firms, bits=Recorded(1))
    release = session.sum({"emp": ss.Gaussian(sigma=2)}, keys=keys, partition="industry")
    session.sum({"emp": ss.Gaussian(sigma=1)}, keys=keys.filter(industry="Services"), partition="industry")
    tables = ss.Request({"cells": ss.Sums({"emp": ss.Gaussian(sigma=2)}, keys)}, partition="industry")
    spent = ss.Session(firms, bits=Recorded(1))
    spent.release(tables)
    retail, services = {"emp": 10, "industry": "Retail"}, {"emp": 12, "industry": "Services"}
    for total in (session.spent, session.spent + pay):
        more = 0 if total == session.spent else pay(retail) + pay(services)
        assert total.bounded(retail, services, same_cell) == pytest.approx(12.5 + 18 + 72 + more)
        assert total.bounded(services, retail, same_cell) == pytest.approx(12.5 + 18 + 72 + more)
    assert spent.spent.bounded(retail, services, same_cell) == pytest.approx(12.5 + 18)
    # Within one part the label decides, too: only that part's releases count.
    moved = {**retail, "emp": 12}
    assert session.spent.bounded(retail, moved, same_cell=True) == pytest.approx(0.5)
    assert session.spent.bounded(services, {**services, "emp": 10}, same_cell=True) == pytest.approx(0.5 + 2)
    assert session.spent.bounded({"emp": 10}, {"emp": 12}, same_cell=True) == pytest.approx(0.5 + 2)
    assert session.spent.bounded({"emp": 10}, moved, same_cell=True) == pytest.approx(0.5)
    assert session.spent.bounded(retail, {**moved, "industry": "Farms"}, same_cell) == pytest.approx(12.5)
    assert release.policy.bounded({"emp": 10}, {"emp": 12}) == pytest.approx(12.5 + 18)  # the safe default


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
    ("make", "subject", "code"),
    [
        (lambda: P({"emp": 1}), "record", "missing"),
        (lambda: P(3), "record", "type"),
        (lambda: P({"emp": "x", "pay": 1}), "emp", "type"),
        (lambda: ss.RecordPolicy((("emp", 3),)), "terms", "type"),
        (lambda: ss.RecordPolicy(((None, ss.Gaussian(sigma=1).policy),)), "a term without a column", "type"),
        (
            lambda: ss.RecordPolicy(
                (("a", ss.Gaussian(sigma=1).policy), ("b", ss.GeneralizedGaussian(sigma=1, p=1).pure_policy))
            ),
            "terms",
            "value",
        ),
        (lambda: ss.RecordPolicy((), filtered=1), "filtered", "type"),
        (lambda: ss.RecordPolicy.from_dict([{"filtered": "no"}]), "filtered", "type"),
        (lambda: ss.RecordPolicy.from_dict([{}]), "description", "value"),
        (lambda: ss.RecordPolicy.from_dict(3), "description", "value"),
    ],
)
def test_mistakes_raise_clear_errors(make, subject, code):
    with refused(ss.SlowscaleError, subject, code=code):
        make()


def test_the_labels_of_a_ledger_are_text_whole_numbers_and_booleans():
    labels = [plain_label(label) for label in ("IA", 5, np.int64(5), True, np.bool_(False), date(2020, 1, 1), 2.5)]
    assert labels == ["IA", 5, 5, True, False, "2020-01-01", "2.5"]
    assert list(map(type, labels)) == [str, int, int, bool, bool, str, str]


def test_a_column_has_the_largest_of_its_parallel_parts():
    gaussian, root = ss.Gaussian(sigma=10).policy, ss.Root(k=2, sigma=1).policy
    first, second = ss.RecordPolicy((("x", gaussian),)), ss.RecordPolicy((("x", root), ("y", gaussian)))
    alone = ss.RecordPolicy((), (Parallel("state", (("IA", first),)),))
    assert alone.column("x") == gaussian
    both = ss.RecordPolicy((("x", gaussian),), (first | second).parallel)
    for size in (1, 30, 1000):
        assert both.column("x")(size) == pytest.approx(gaussian(size) + max(gaussian(size), root(size)))
        assert both.column("y")(size) == gaussian(size)


def test_the_parts_of_a_union_are_numbered():
    """A ledger stores these labels."""
    assert (P | P).parallel == (Parallel("", ((0, P), (1, P))),)


def test_an_entity_loses_by_its_number_of_records():
    """Removing n records shifts a count by n: n² times the loss of one record in PRzCDP, n times in PRDP."""
    counted = ss.RecordPolicy(((None, ConstantPolicy(0.5)),))
    pure = ss.RecordPolicy(((None, ConstantPolicy(0.5, "PRDP")),))
    for count in (0, 1, 2, 3, 10):
        assert counted.entity([{"count": count}]) == 0.5 * count**2
        assert pure.entity([{"count": count}]) == 0.5 * count
    assert counted.entity([{"count": 3}, {"count": 1}]) == 0.5 * 9 + 0.5
    assert P.entity([{"emp": -20, "pay": 16, "count": 2}]) == pytest.approx(2 + 0.5 + 4 * 0.125)
    for count in (-1, -3, True, 2.0, "2", None):
        with refused(ss.ParameterError, 'the "count" of `cells`', code="value"):
            counted.entity([{"count": count}])


def test_an_entity_loses_the_largest_of_parallel_parts_in_each_cell():
    first, second = (ss.RecordPolicy((("x", ss.Gaussian(sigma=sigma).policy),)) for sigma in (10, 5))
    policy = ss.RecordPolicy((("x", ss.Gaussian(sigma=1).policy),), (first | second).parallel)
    assert policy.entity([{"x": 10}, {"x": 20}]) == pytest.approx((50 + 2) + (200 + 8))


@pytest.mark.parametrize("cells", [{"emp": 1}, [3], [{"emp": 1, "pay": 1, "count": 1}, "text"], {}])
def test_cells_are_mappings(cells):
    with refused(ss.ParameterTypeError, "cells", code="type"):
        P.entity(cells)


def test_nested_parallel_releases_count_in_the_total():
    """A charge may itself consist of releases about disjoint records, about all records or about some."""
    first, second = (ss.RecordPolicy((("x", ss.Gaussian(sigma=sigma).policy),)) for sigma in (10, 5))
    account = Account()
    account.charge(Charge(first | second))
    assert account.spent({"x": 10}) == pytest.approx(2)
    account.charge(Charge(first | second, by="state", labels=("IA",), kind="text"))
    assert account.spent({"x": 10}) == pytest.approx(4)
    assert account.spent({"x": 10, "state": "TX"}) == pytest.approx(2)
    account.charge(Charge(first))
    assert account.spent({"x": 10, "state": "TX"}) == pytest.approx(2.5)


def test_each_record_of_a_table_has_the_largest_of_its_own_parallel_losses():
    first, second = (
        ss.RecordPolicy((("x", policy),)) for policy in (ss.Gaussian(sigma=10).policy, ss.Root(k=2, sigma=1).policy)
    )
    sizes = np.array([1.0, 50.0, 200.0, 1000.0])  # Δ²/200 and Δ/2 are equal at 100
    np.testing.assert_allclose((first | second)({"x": sizes}), [0.5, 25, 200, 5000])


def test_the_values_of_a_table_belong_to_the_same_records():
    with refused(ss.ParameterError, "record", code="mismatch"):
        P({"emp": [1, 2], "pay": [1, 2, 3]})
    assert P({"emp": [0, 20], "pay": 16}) == pytest.approx([0.625, 2.625])


@pytest.mark.parametrize(("record", "given"), [({"emp": 1, "n": 2}, "emp, n"), ({}, "none")])
def test_a_missing_column_is_named(record, given):
    with refused(ss.ParameterError, "record", code="missing") as caught:
        P(record)
    assert caught.value.given == f"values for {given}"


def test_a_column_that_is_not_released_is_refused():
    policy = ss.RecordPolicy((("emp", ss.Gaussian(sigma=1).policy),))
    with refused(ss.ParameterError, "name", code="unknown-column"):
        policy.column("typo")
    assert policy.column("emp")(2) == 2
    assert policy.column(None)(0) == 0
    parts = policy | ss.RecordPolicy((("pay", ss.Gaussian(sigma=1).policy),))
    assert parts.column("pay")(2) == 2
    with refused(ss.ParameterError, "name", code="unknown-column") as caught:
        parts.column("typo")
    assert "emp, pay" in caught.value.remedy


def test_a_notebook_shows_it():
    assert ss.RecordPolicy((("a<b", ss.Gaussian(sigma=1).policy),))._repr_html_() == "<pre>a&lt;b² / (2·1²)</pre>"


def test_sizes_of_your_own():
    account = Account()
    account.charge(Charge(ss.RecordPolicy((("emp", ss.Gaussian(sigma=1).policy),))))
    for sizes in ({"largest": 5}, {"largest": {"emp": 5}}, [5], np.array([5.0]), "5"):
        assert "12.5 at 5" in account.spent.describe(sizes)
        assert "These sizes follow from the policies" not in account.spent.describe(sizes)
    assert "These sizes follow from the policies" in account.spent.describe()
    with refused(ss.ParameterError, "sizes", code="largest"):
        account.spent.describe({"median": 5})


def test_an_entity_shifts_a_rank_by_all_its_records_at_once():
    """Quantiles have one noise for all cells, so that two records of an entity cost four times the loss of one."""
    policy = RecordPolicy(((None, RankPolicy(0.01)),))
    assert policy.entity([{"count": 1}, {"count": 1}]) == pytest.approx(0.04)
    pure = RecordPolicy(((None, RankPolicy(0.01, "PRDP")),))
    assert pure.entity([{"count": 1}, {"count": 2}]) == pytest.approx(0.03)
    both = policy + RecordPolicy(((None, ConstantPolicy(0.1)),))
    assert both.entity([{"count": 1}, {"count": 2}]) == pytest.approx(0.01 * 9 + 0.1 * (1 + 4))
