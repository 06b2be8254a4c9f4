"""The laws of composition, against Rényi divergences of the composed mechanisms computed by brute force.

A small table is released several times, with and without a record (or all records of an entity). Cells and columns have
independent noise, so the divergence of everything published is the sum of the divergences of its cells. Divided by its
order it may never exceed what the account says.
"""

from collections import defaultdict

import numpy as np
import pytest
from helpers.divergence import ORDERS, gaussian_divergence, shifted_divergence
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import slowscale as ss
from slowscale.accounting import Account, Charge, RecordPolicy
from slowscale.mechanisms import AdditiveMechanism
from slowscale.policy import ConstantPolicy

mechanisms = st.sampled_from(
    [
        ss.Gaussian(sigma=7.0),
        ss.GeneralizedGaussian(sigma=2.0, p=0.5),
        ss.GeneralizedGaussian(sigma=9.0, p=1.0),
        ss.ExponentialPolylog(d=0.6),
        ss.Root(k=2, sigma=0.8),
        ss.Root(k=4, sigma=0.5, a=3.0),
        ss.Log(sigma=0.7),
    ]
)
records = st.lists(
    st.fixed_dictionaries(
        {
            "state": st.sampled_from(["IA", "TX"]),
            "size": st.sampled_from([1, 2]),
            "firm": st.sampled_from("ab"),
            "x": st.integers(0, 60),
            "y": st.integers(0, 9),
        }
    ),
    min_size=1,
    max_size=7,
)


def sums(table, by, column):
    found = defaultdict(int)
    for record in table:
        found[tuple(record[name] for name in by)] += 1 if column == "count" else record[column]
    return found


def divergence(mechanism, one, other, order):
    """Return the Rényi divergence of what a mechanism publishes of two sums."""
    if one == other:
        return 0.0
    if isinstance(mechanism, AdditiveMechanism):
        return shifted_divergence(mechanism.noise, float(abs(one - other)), order)
    heights = mechanism.transform(np.array([one, other], float)) / mechanism.sigma
    return gaussian_divergence(float(abs(heights[0] - heights[1])), order)


def published(releases, table, without, order):
    """Return the divergence between the publications of a table and of the same table with fewer records."""
    total = 0.0
    for by, column, mechanism, wanted in releases:
        first, second = (
            sums([record for record in rows if wanted is None or record["state"] == wanted], by, column)
            for rows in (table, without)
        )
        total += sum(divergence(mechanism, first[key], second[key], order) for key in {*first, *second})
    return total


def charge(by, column, mechanism, wanted, entities=False):
    policy = mechanism.policy
    term = (None, ConstantPolicy(policy(1))) if column == "count" and not entities else (column, policy)
    part = {} if wanted is None else {"by": "state", "labels": (wanted,)}
    kind = None if wanted is None else "text"
    return Charge(RecordPolicy((term,)), kind=kind, protects="firm" if entities else None, **part)


bys = st.sampled_from([(), ("state",), ("state", "size")])
releases = st.lists(
    st.tuples(bys, st.sampled_from(["x", "y", "count"]), mechanisms, st.sampled_from([None, None, "IA", "TX"])),
    min_size=1,
    max_size=4,
)


@given(records, releases)
@settings(max_examples=60)
def test_records(table, asked):
    """Losses add in sequential composition; for releases about different states the larger one counts."""
    account = Account()
    for release in asked:
        account.charge(charge(*release))
    spent = account.spent
    for i, record in enumerate(table):
        without = table[:i] + table[i + 1 :]
        known, unknown = spent(record), spent({name: record[name] for name in ("x", "y")})
        assert known <= unknown * (1 + 1e-12)
        for order in ORDERS[::2]:
            assert published(asked, table, without, order) <= order * known * (1 + 1e-6) + 1e-9


@given(records, releases, st.sampled_from("ab"))
@settings(max_examples=60)
def test_entities(table, asked, firm):
    """The loss of an entity is the policy of its total in each cell, summed over cells."""
    assume(any(record["firm"] == firm for record in table))
    without = [record for record in table if record["firm"] != firm]
    lost = 0.0
    for by, column, mechanism, wanted in asked:
        mine = [record for record in table if record["firm"] == firm and wanted in (None, record["state"])]
        cells = defaultdict(lambda: {"x": 0, "y": 0, "count": 0})
        for record in mine:
            cell = cells[tuple(record[name] for name in by)]
            cell["count"] += 1
            for name in "xy":
                cell[name] += record[name]
        policy = charge(by, column, mechanism, None, entities=True).policy
        lost += policy.entity(list(cells.values()))
        # The group policy of the records with their cells is never above it.
        if column != "count" and mine:
            grouped = mechanism.policy.group(
                [record[column] for record in mine], cells=[tuple(record[name] for name in by) for record in mine]
            )
            assert grouped <= policy.entity(list(cells.values())) * (1 + 1e-9)
    for order in ORDERS[::2]:
        assert published(asked, table, without, order) <= order * lost * (1 + 1e-6) + 1e-9


@given(records, releases, st.integers(0, 60), st.integers(0, 9), st.sampled_from(["IA", "TX"]))
@settings(max_examples=60)
def test_values(table, asked, x, y, state):
    """Bounded neighbours: a record changes its values, and perhaps its cell."""
    asked = [(by, column, mechanism, None) for by, column, mechanism, _ in asked]
    policy = RecordPolicy(())
    for release in asked:
        policy = policy + charge(*release).policy
    changed = {**table[0], "x": x, "y": y}
    moved = {**changed, "state": state}
    for other, same in ((changed, True), (moved, moved["state"] == table[0]["state"])):
        lost = policy.bounded(table[0], other, same_cell=same)
        for order in ORDERS[::2]:
            assert published(asked, table, [other, *table[1:]], order) <= order * lost * (1 + 1e-6) + 1e-9


@given(records, releases, st.integers(0, 60), st.integers(0, 9), st.integers(0, 60))
@settings(max_examples=60)
def test_values_under_a_filter(table, asked, x, y, least):
    """Bounded neighbours if only records with a large x are released: a record may enter or leave the release."""
    asked = [(by, column, mechanism, None) for by, column, mechanism, _ in asked]
    policy = RecordPolicy((), filtered=True)
    for release in asked:
        policy = policy + charge(*release).policy
    changed = {**table[0], "x": x, "y": y}
    before, after = ([record for record in rows if record["x"] > least] for rows in (table, [changed, *table[1:]]))
    lost = policy.bounded(table[0], changed, same_cell=True)
    for order in ORDERS[::2]:
        assert published(asked, before, after, order) <= order * lost * (1 + 1e-6) + 1e-9


def test_a_policy_that_ignores_the_filter_is_detected():
    """With the filter x > 10, a change from 5 to 15 adds the record: the loss is that of 15, plus that of a count."""
    record, changed = ({"state": "IA", "size": 1, "firm": "a", "x": x, "y": 1} for x in (5, 15))
    asked = [((), "x", ss.Gaussian(sigma=1.5), None), ((), "count", ss.Gaussian(sigma=1.0), None)]
    ignorant = RecordPolicy(tuple(term for release in asked for term in charge(*release).policy.terms))
    policy = RecordPolicy(ignorant.terms, filtered=True)
    for values in ((record, changed), (changed, record)):
        assert policy.bounded(*values, same_cell=True) == pytest.approx(50.5)
    assert published(asked, [], [changed], 3.0) == pytest.approx(3.0 * 50.5)
    assert published(asked, [], [changed], 3.0) > 3.0 * ignorant.bounded(record, changed, same_cell=True)


def test_a_policy_that_is_too_small_is_detected():
    """The same comparison detects a policy that is 2 % too small."""
    table = [{"state": "IA", "size": 1, "firm": "a", "x": 40, "y": 1}]
    asked = [(("state",), "x", ss.Gaussian(sigma=7.0), None), (("state",), "y", ss.Root(k=2, sigma=0.8), None)]
    account = Account()
    for release in asked:
        account.charge(charge(*release))
    lost = account.spent(table[0])
    assert published(asked, table, [], 3.0) > 3.0 * lost * 0.98
    assert published(asked, table, [], 3.0) <= 3.0 * lost * (1 + 1e-9)


@given(st.lists(mechanisms, min_size=1, max_size=4), st.integers(0, 50))
def test_addition_and_maximum_of_policies(several, size):
    parts = [RecordPolicy((("x", mechanism.policy),)) for mechanism in several]
    added = sum(parts[1:], parts[0])
    either = parts[0]
    for part in parts[1:]:
        either = either | part
    losses = [mechanism.policy(size) for mechanism in several]
    assert added({"x": size}) == pytest.approx(sum(losses))
    assert either({"x": size}) == pytest.approx(max(losses))
    assert added.column("x")(size) == pytest.approx(sum(losses))
    assert either.column("x")(size) == pytest.approx(max(losses))
    for policy in (added, either):
        assert RecordPolicy.from_dict(policy.to_dict()) == policy
