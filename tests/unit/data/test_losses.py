"""Policies as expressions for an engine have the same values as the policies, and so have the losses of records."""

import dataclasses
import math
from fractions import Fraction

import ibis
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from helpers import engines
from helpers.bitsources import Recorded
from helpers.errors import refused
from helpers.tight import StandIn

import slowscale as ss
from slowscale.accounting.record import Parallel
from slowscale.data import losses as losses_module
from slowscale.data.engines import fetch
from slowscale.data.losses import expression, loss_expression, record_losses
from slowscale.data.sources import open_table
from slowscale.data.sums import Column
from slowscale.noise.arsinh_normal import approximation
from slowscale.policy import (
    POLICY_KINDS,
    ArsinhNormalPolicy,
    ArsinhPolicy,
    ComposedPolicy,
    ConstantPolicy,
    LaplacePolicy,
    LogPolicy,
    MaxPolicy,
    PointsPolicy,
    PolylogPolicy,
    PowerPolicy,
    RankPolicy,
    RootPolicy,
    SumPolicy,
    TanhPolicy,
    TimesPolicy,
    TransformationPolicy,
    UnitSplittingPolicy,
)
from slowscale.policy.tree import formula_value

SIZES = np.concatenate([[0.0], np.geomspace(0.01, 1e12, 29)])
POLICIES = [
    ConstantPolicy(0.5),
    RankPolicy(0.25),
    RootPolicy(k=1, sigma=75, a=3),
    RootPolicy(k=2, sigma=5),
    RootPolicy(k=3, sigma=1e-120),
    RootPolicy(k=4, sigma=2, a=1e-3),
    LogPolicy(sigma=0.5),
    LogPolicy(sigma=2, a=1e-3),
    LaplacePolicy(sigma=2),
    LaplacePolicy(sigma=1e6),
    ArsinhPolicy(s=50, sigma=2),
    ComposedPolicy(LaplacePolicy(sigma=0.1), LogPolicy(sigma=1, a=5)),
    ComposedPolicy(PowerPolicy(sigma=1, p=0.5), ArsinhPolicy(s=50, sigma=1)),
    PowerPolicy(sigma=6.84, p=0.5),
    PowerPolicy(sigma=1e3, p=1),
    PolylogPolicy(d=0.2),
    PolylogPolicy(d=4, sigma=5, a=3, p=1),
    PolylogPolicy(d=4, sigma=1e-3, a=None, p=2.5),
    ArsinhNormalPolicy(scale=4.95, shape=1.6),
    PointsPolicy([(10, 0.5)]),
    PointsPolicy([(10, 0.1), (1000, 2), (1e6, 8)], sigma=0.3),
    UnitSplittingPolicy(threshold=10, sigma=50),
    UnitSplittingPolicy(threshold=1e-3, sigma=1e9),
    TanhPolicy(PowerPolicy(sigma=2, p=1)),
    SumPolicy((RootPolicy(k=1, sigma=75), ConstantPolicy(1))),
    MaxPolicy((RootPolicy(k=1, sigma=75), TimesPolicy(3, LogPolicy(sigma=1)))),
    MaxPolicy((ConstantPolicy(1), ConstantPolicy(2))),
]


def losses(policy):
    """Return the losses that DuckDB computes."""
    table = ibis.memtable({"size": SIZES.tolist()})
    found = ibis.duckdb.connect().to_pyarrow(table.select(loss=expression(policy, table.size).cast("float64")))
    return found["loss"].to_numpy()


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_the_engine_has_the_values_of_the_policy(policy):
    # The engine's closed form for the arsinh-normal is slightly too large.
    within = approximation(policy.shape).factor - 1 + 1e-12 if isinstance(policy, ArsinhNormalPolicy) else 1e-9
    np.testing.assert_allclose(losses(policy), policy(SIZES), rtol=within)


@pytest.mark.parametrize("shape", [0.1, 0.5, 1.6, 6])
@pytest.mark.parametrize("scale", [1e-9, 4.95, 1e30])
def test_the_closed_form_of_the_arsinh_normal_is_never_too_small(shape, scale):
    policy = ArsinhNormalPolicy(scale=scale, shape=shape)
    ratio = losses(policy)[1:] / policy(SIZES[1:]) - 1
    assert 0 <= ratio.min() <= ratio.max() < 7e-4


def test_the_policies_are_of_every_kind():
    known = {policy.kind for policy in POLICIES} | {"times", "transformation"}
    # Tables are tested below; no engine computes losses between values.
    assert known | {"tight", "band"} == set(POLICY_KINDS)


@pytest.mark.parametrize("engine", ["private", "duckdb"])
def test_tables_of_losses_are_read_by_the_engine(engine):
    """A table of 500 knots, at 0, between the knots, at every tenth knot, and beyond both ends."""
    policy = StandIn(PowerPolicy(sigma=50, p=0.5).to_zcdp(), 50.0, 500)
    table = policy.formula().terms[0]
    sizes = np.concatenate([[0.0, 1e300], np.geomspace(1e-9, 1e15, 300), 50 * np.exp(table.log_sizes[::10])])
    records = opened(engine, i=np.arange(sizes.size), x=sizes)
    both = {"loss": policy.formula(), "table": table}
    columns = {name: losses_module._engine_expression(formula, records.x) for name, formula in both.items()}
    found = fetch(records.select(i=records.i, **columns)).sort_by("i")
    np.testing.assert_allclose(found["loss"].to_numpy(), policy(sizes), rtol=1e-9)
    np.testing.assert_allclose(found["table"].to_numpy(), formula_value(table, {"Δ": sizes}), rtol=1e-12)


def test_constants_are_numbers_of_any_size():
    """On some engines literals are decimals, whose products overflow, so constants are evaluated in Python."""
    policy = TimesPolicy(10**6, TimesPolicy(10**6, TimesPolicy(10**6, ConstantPolicy(0.123456789))))
    np.testing.assert_allclose(losses(policy), policy(SIZES), rtol=1e-12)


@pytest.mark.parametrize("wrap", [lambda p: p, lambda p: 2 * (p + ConstantPolicy(1))])
def test_functions_of_the_user_are_refused(wrap):
    with refused(ss.ParameterError, "the engine", code="unsupported"):
        losses(wrap(TransformationPolicy(np.sqrt, 1)))


def test_entities_are_counted_in_words():
    records = pd.DataFrame({"firm": ["a", "a", "b"], "x": [1, 2, 3]})
    session = ss.Session(records, protect="firm", bits=Recorded(1))
    assert "losses of 2 different values of firm" in repr(session.losses(session.sum({"x": ss.Gaussian(sigma=1)})))


LINEAR = ss.RecordPolicy((("x", PowerPolicy(sigma=1, p=1)),))


def opened(engine, **columns):
    """Return a table on an engine; "private" is the DuckDB that files and frames are read into."""
    data = pa.table(columns)
    return open_table(data if engine == "private" else engines.load(engine, data))


def of_records(engine, values, policy=LINEAR):
    """Return the distribution of the losses of records with these values."""
    table = opened(engine, x=pa.array(values, pa.int64()))
    return record_losses(table, policy, {"x": Column("x", Fraction(1))}, None)


@pytest.mark.parametrize("engine", ["private", "duckdb"])
@pytest.mark.parametrize("count", [1, 2, 9, 10, 11, 150, 1000, 10_000])
def test_the_distribution_of_the_losses(engine, count):
    """Compared with the policy at every value: quantiles, shares at the thresholds, and the largest by rank."""
    values = [(-1) ** k * (k * 37 % count) for k in range(count)]
    found = of_records(engine, values)
    expected = np.sort(LINEAR({"x": np.abs(values)}))
    assert found.records == count
    assert list(found.quantiles) == [0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999]
    assert list(found.quantiles.values()) == pytest.approx(np.quantile(expected, list(found.quantiles)), rel=1e-9)
    assert list(found.largest) == [rank for rank in (1, 10, 100, 1000, 10_000) if rank <= count]
    assert list(found.largest.values()) == pytest.approx([expected[-rank] for rank in found.largest], rel=1e-9)
    assert found.cdf == {at: np.mean(expected <= at) for at in found.cdf}


@pytest.mark.parametrize("engine", ["private", "duckdb"])
def test_a_loss_equal_to_a_threshold_is_at_most_the_threshold(engine):
    found = of_records(engine, [3, 4], ss.RecordPolicy(((None, ConstantPolicy(1.0)),)))
    assert found.cdf == {at: float(at >= 1) for at in found.cdf}


def test_the_shares_are_given_at_four_losses_per_factor_of_ten():
    found = of_records("private", [1])
    assert list(found.cdf) == pytest.approx(np.geomspace(1e-4, 1e6, 41), rel=5e-3)
    assert {1e-4, 0.1, 1.0, 1.78, 10.0, 1e6} <= set(found.cdf)
    assert repr(found).startswith("CONFIDENTIAL: for the curator only, never to be published\nlosses of 1 records\n")
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.records = 2


def test_only_counts_by_class_leave_the_engine(monkeypatch):
    """One query, with one row for each class of losses that is 0.1 % wide, however many records there are."""
    rows = []

    def fetch(query):
        found = real(query)
        rows.append((found.num_rows, found.column_names))
        return found

    real = losses_module.fetch
    monkeypatch.setattr(losses_module, "fetch", fetch)
    of_records("private", list(range(100_000, 101_000)))
    assert rows == [(rows[0][0], ["place", "records", "least", "most"])]
    assert rows[0][0] in (10, 11, 12)


@pytest.mark.parametrize("seed", [1, 2])
def test_losses_in_classes_are_within_a_thousandth(seed):
    """Quantiles, ranks and shares against numpy, for losses over many powers of ten; a class twice as wide fails."""
    values = np.exp(np.random.default_rng(seed).normal(3, 3, 20_000))
    table = opened("private", loss=values)
    counts = losses_module._Counts.of(fetch(losses_module._in_classes(table)))
    ordered = np.sort(values)
    assert counts.records == values.size
    for share in losses_module.PROBABILITIES:
        assert counts.quantile(share) == pytest.approx(np.quantile(values, share), rel=1e-3)
    for place in (0, 1, 777, 12_345, 19_998, 19_999):
        assert counts.ordered(place) == pytest.approx(ordered[place], rel=1e-3)
    assert (counts.ordered(0), counts.ordered(19_999)) == (ordered[0], ordered[-1])
    for at in losses_module.THRESHOLDS:
        low, high = (np.mean(values <= at * factor) for factor in (1 - 1e-3, 1 + 1e-3))
        assert low <= counts.share_at_most(at) <= high
    assert max(most / least for least, most in zip(counts.least, counts.most, strict=True)) < 1.00101


def test_losses_of_zero_without_bound_and_unknown():
    """Losses of 0 and infinite losses have a class, and a loss that is not known is not counted."""
    table = opened("private", loss=pa.array([0.0, 0.0, 1.0, math.inf, None], pa.float64()))
    counts = losses_module._Counts.of(fetch(losses_module._in_classes(table)))
    assert counts.records == 4
    assert [counts.ordered(place) for place in range(4)] == [0.0, 0.0, 1.0, math.inf]
    assert counts.share_at_most(0.5) == 0.5


def test_a_failure_does_not_quote_records(monkeypatch):
    def fetch(query):
        raise RuntimeError("a confidential value")

    monkeypatch.setattr(losses_module, "fetch", fetch)
    with pytest.raises(ss.EngineError) as caught:
        of_records("private", [1])
    assert str(caught.value).startswith("the engine could not compute the losses: RuntimeError")
    assert "confidential value" not in str(caught.value)


def test_losses_of_no_records_are_an_error():
    with refused(ss.DataError, "no record", code="no-records"):
        of_records("private", [])


def test_the_ranks_in_words():
    shown = repr(of_records("private", list(range(1, 1001))))
    assert "  the largest loss is " in shown
    for rank in ("10th", "100th", "1,000th"):
        assert f"  the {rank} largest loss is " in shown
    assert shown.count(" largest loss is ") == 4


@pytest.mark.parametrize("engine", ["private", "duckdb"])
def test_losses_of_entities_add_up_over_the_cells(engine):
    """Removing a firm changes each cell by its total there, and the count of records by its number of records."""
    table = opened(engine, firm=["a", "a", "a", "b", "c", "c"], k=[1, 1, 2, 1, 1, 3], x=[1, 2, 4, -8, 16, 32])
    policy = ss.RecordPolicy(
        (("x", RootPolicy(k=1, sigma=5)), ("n", RootPolicy(k=2, sigma=0.3)), (None, ConstantPolicy(0.25)))
    )
    found = record_losses(table, policy, {"x": Column("x", Fraction(1))}, ss.Keys.cross({"k": [1, 2]}), "firm")
    cells = {"a": [(3, 2), (4, 1)], "b": [(8, 1)], "c": [(16, 1)]}  # k = 3 is not among the keys
    expected = sorted(sum(policy({"x": x, "n": n}) for x, n in cell) for cell in cells.values())
    assert (found.records, found.protects) == (3, "firm")
    assert found.largest == {1: pytest.approx(expected[-1], rel=1e-12)}
    assert found.quantiles[0.5] == pytest.approx(expected[1], rel=1e-12)
    assert found.quantiles[0.01] == pytest.approx(np.quantile(expected, 0.01), rel=1e-12)


def test_losses_of_releases_in_parallel_are_the_largest_of_the_parts():
    first = ss.RecordPolicy((("x", RootPolicy(k=1, sigma=20)),))
    second = ss.RecordPolicy((("y", RootPolicy(k=2, sigma=4)), (None, ConstantPolicy(0.5))))
    policy = ss.RecordPolicy(
        (("x", RootPolicy(k=1, sigma=50)), (None, ConstantPolicy(0.25))),
        (Parallel("state", (("IA", first), ("TX", second))),),
    )
    values = {"x": [0, 1, -50, 3], "y": [0, 70, 2, -3]}
    table = opened("private", **values)
    found = table.select(loss=loss_expression(policy, table)).to_pyarrow()["loss"].to_pylist()
    assert found == pytest.approx(policy({name: np.array(column) for name, column in values.items()}), rel=1e-12)


def test_a_table_without_a_column_of_the_policy_is_refused():
    with refused(ss.ParameterError, "table", code="unknown-column"):
        loss_expression(LINEAR, opened("private", y=[1], z=[2]))


def test_the_difference_of_logarithms_is_computed_without_cancellation():
    """ln(x + a) - ln(a) would be wrong by the rounding of ln(a), which is 16 times that of a number near 1."""
    a, sizes = 1e6, np.arange(1.0, 200.0)
    table = ibis.memtable({"size": sizes.tolist()})
    loss = ibis.duckdb.connect().to_pyarrow(table.select(loss=expression(LogPolicy(sigma=1.0, a=a), table.size)))[
        "loss"
    ]
    rises = [math.sqrt(2 * value) for value in loss.to_pylist()]
    assert max(abs(rise - math.log1p(size / a)) for rise, size in zip(rises, sizes, strict=True)) < 2**-51
