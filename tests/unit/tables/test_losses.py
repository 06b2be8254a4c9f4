"""Policies as expressions for an engine have the same values as the policies."""

import ibis
import numpy as np
import pandas as pd
import pytest
from helpers.bitsources import Recorded

import slowscale as ss
from slowscale.policy import (
    POLICY_KINDS,
    ConstantPolicy,
    LogPolicy,
    MaxPolicy,
    PolylogPolicy,
    PowerPolicy,
    RootPolicy,
    SumPolicy,
    TanhPolicy,
    TimesPolicy,
    TransformationPolicy,
    UnitSplittingPolicy,
)
from slowscale.tables.losses import expression

SIZES = np.concatenate([[0.0], np.geomspace(0.01, 1e12, 29)])
POLICIES = [
    ConstantPolicy(0.5),
    RootPolicy(1, 75, 3),
    RootPolicy(2, 5),
    RootPolicy(3, 1e-120),
    RootPolicy(4, 2, 1e-3),
    LogPolicy(0.5),
    LogPolicy(2, 1e-3),
    PowerPolicy(6.84, 0.5),
    PowerPolicy(1e3, 1),
    PolylogPolicy(0.2),
    PolylogPolicy(4, 5, 3, 1),
    PolylogPolicy(4, 1e-3, None, 2.5),
    UnitSplittingPolicy(10, 50),
    UnitSplittingPolicy(1e-3, 1e9),
    TanhPolicy(PowerPolicy(2, 1)),
    SumPolicy((RootPolicy(1, 75), ConstantPolicy(1))),
    MaxPolicy((RootPolicy(1, 75), TimesPolicy(3, LogPolicy(1)))),
    MaxPolicy((ConstantPolicy(1), ConstantPolicy(2))),
]


def losses(policy):
    """Return the losses that DuckDB computes."""
    table = ibis.memtable({"size": SIZES.tolist()})
    found = ibis.duckdb.connect().to_pyarrow(table.select(loss=expression(policy, table.size).cast("float64")))
    return found["loss"].to_numpy()


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_the_engine_has_the_values_of_the_policy(policy):
    np.testing.assert_allclose(losses(policy), policy(SIZES), rtol=1e-9)


def test_the_policies_are_of_every_kind():
    assert {policy.kind for policy in POLICIES} | {"times", "transformation"} == set(POLICY_KINDS)


def test_constants_are_numbers_of_any_size():
    """On some engines literals are decimals, whose products overflow, so constants are evaluated in Python."""
    policy = TimesPolicy(10**6, TimesPolicy(10**6, TimesPolicy(10**6, ConstantPolicy(0.123456789))))
    np.testing.assert_allclose(losses(policy), policy(SIZES), rtol=1e-12)


@pytest.mark.parametrize("wrap", [lambda p: p, lambda p: 2 * (p + ConstantPolicy(1))])
def test_functions_of_the_user_are_refused(wrap):
    with pytest.raises(ss.ParameterError, match="the engine cannot evaluate a policy with a user-given function"):
        losses(wrap(TransformationPolicy(np.sqrt, 1)))


def test_entities_are_counted_in_words():
    records = pd.DataFrame({"firm": ["a", "a", "b"], "x": [1, 2, 3]})
    session = ss.Session(records, protect="firm", bits=Recorded(1))
    assert "losses of 2 different values of firm" in repr(session.losses(session.sum({"x": ss.Gaussian(1)})))
