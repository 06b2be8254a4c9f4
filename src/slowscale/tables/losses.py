"""How the losses of the records are distributed: CONFIDENTIAL, for the curator only.

The policy is pushed down to the engine as an expression, so no record leaves it: what comes back are quantiles and
shares.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.types as ir
import numpy as np

from slowscale.accounting import RecordPolicy
from slowscale.errors import DataError, ParameterError
from slowscale.markup import html_text
from slowscale.policy import (
    ConstantPolicy,
    LogPolicy,
    MaxPolicy,
    Policy,
    PolylogPolicy,
    PowerPolicy,
    RootPolicy,
    SumPolicy,
    TanhPolicy,
    TimesPolicy,
    UnitSplittingPolicy,
)
from slowscale.tables.dialects import forced
from slowscale.tables.engines import among, engine_errors, engine_of, fetch
from slowscale.tables.keys import Keys
from slowscale.tables.sums import Column, counted

PROBABILITIES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)
RANKS = (1, 10, 100, 1_000, 10_000)
# The losses at which the empirical CDF is taken: four to a factor of ten.
THRESHOLDS = tuple(float(f"{10 ** (step / 4):.3g}") for step in range(-16, 25))


@dataclass(frozen=True, repr=False)
class Losses:
    """How PRzCDP losses are distributed over the records of a release. CONFIDENTIAL.

    Attributes
    ----------
    records
        How many records there are, or entities where those are protected.
    quantiles
        The loss that a share of the records does not exceed, by share.
    cdf
        The share of the records that lose no more than a loss, by loss.
    largest
        The loss of the record that loses most, tenth most, and so on.
    """

    records: int
    quantiles: dict[float, float]
    cdf: dict[float, float]
    largest: dict[int, float]
    protects: str | None = None

    def __repr__(self) -> str:
        things = "records" if self.protects is None else f"different {self.protects}"
        lines = ["CONFIDENTIAL: for the curator only, never to be published", f"losses of {self.records:,} {things}"]
        lines += [f"  {share:>8.1%} of them lose at most {loss:.4g}" for share, loss in self.quantiles.items()]
        lines += [f"  the {_ordinal(rank)} loss is {loss:.4g}" for rank, loss in self.largest.items()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return html_text(repr(self))


def _ordinal(rank: int) -> str:
    return "largest" if rank == 1 else f"{rank:,}th largest"


def record_losses(
    table: ir.Table,
    policy: RecordPolicy,
    columns: Mapping[str, Column],
    keys: Keys | None,
    protect: str | None = None,
) -> Losses:
    """Return how the losses of the records with public keys are distributed, or of the entities they belong to."""
    if keys is not None:
        table = among(table, keys.table, keys.kinds)
    values = {name: _value(table, columns[name]) for name in policy.columns if name in columns}
    if protect is None:
        losses = table.select(loss=_loss(policy, values))
    else:
        # An entity shifts each cell by its total there; cells have independent noise, so the losses add.
        cell = [table[name] for name in [protect, *(keys.columns if keys is not None else ())]]
        totals = table.aggregate(
            by=[label.name(f"by{i}") for i, label in enumerate(cell)],
            records=table.count(),
            **{f"total{i}": value.sum() for i, value in enumerate(values.values())},
        )
        shifts = {name: totals[f"total{i}"] for i, name in enumerate(values)}
        shifts |= {name: totals.records.cast("float64") for name in policy.columns if name not in columns}
        cells = totals.select(owner=totals.by0, loss=_loss(policy, shifts))
        losses = cells.group_by("owner").aggregate(loss=cells.loss.sum()).select("loss")
    with engine_errors("the engine could not work out the losses", quote=False):
        facts = {f"below{i}": (losses.loss <= at).sum() for i, at in enumerate(THRESHOLDS)}
        shares: dict[str, Any] = fetch(losses.aggregate(records=losses.count(), **facts)).to_pylist()[0]
        records = shares["records"]
        if not records:
            raise DataError("no record is in the release, so none loses anything")
        ranks = [rank for rank in RANKS if rank <= records]
        places = [*PROBABILITIES, *(1 - (rank - 1) / max(records - 1, 1) for rank in ranks)]
        found = _quantiles(losses, places)
    return Losses(
        records,
        dict(zip(PROBABILITIES, found, strict=False)),
        {at: shares[f"below{i}"] / records for i, at in enumerate(THRESHOLDS)},
        dict(zip(ranks, found[len(PROBABILITIES) :], strict=True)),
        protect,
    )


def _quantiles(losses: ir.Table, places: Sequence[float]) -> list[float]:
    if not engine_of(losses).has_quantiles:  # it runs in this process, so the losses stay in its memory
        return [float(loss) for loss in np.quantile(fetch(losses)["loss"].to_numpy(), places)]
    asked = {f"at{i}": losses.loss.quantile(place) for i, place in enumerate(places)}
    return list(fetch(losses.aggregate(**asked)).to_pylist()[0].values())


def loss_expression(policy: RecordPolicy, table: ir.Table) -> ir.Value:
    """Return what the records of a table may lose, as an expression that its engine evaluates."""
    missing = [name for name in policy.columns if name not in table.columns]
    if missing:
        raise ParameterError(f"table must have the columns {', '.join(missing)}")
    return _loss(policy, {name: table[name].cast("float64") for name in policy.columns})


def _loss(policy: RecordPolicy, values: Mapping[str, ir.Value]) -> ir.Value:
    """Return what records of these values lose."""
    loss = ibis.literal(0.0)
    for name, term in policy.terms:
        loss = loss + expression(term, values[name].abs() if name is not None else None)
    for parallel in policy.parallel:
        loss = loss + ibis.greatest(*(_loss(part, values) for _, part in parallel.parts))
    return forced(loss, dt.float64)  # engines take some literals for decimals


def _value(table: ir.Table, column: Column) -> ir.Value:
    """Return the value that a record counts as; a float counts as a little less."""
    return counted(table, column).value.cast("float64")


@singledispatch
def expression(policy: Policy, influence: Any) -> ir.Value:
    """Return a policy at an influence as an expression that the engine evaluates."""
    raise ParameterError(f"the engine cannot evaluate a {policy.kind} policy: it has a function of yours")


@expression.register
def _constant(policy: ConstantPolicy, x: Any) -> ir.Value:
    return ibis.literal(policy.loss)


@expression.register
def _root(policy: RootPolicy, x: Any) -> ir.Value:
    power = 1 / policy.k
    return _half_square(x if power == 1 else (x + policy.a) ** power - policy.a**power, policy.sigma)


@expression.register
def _log(policy: LogPolicy, x: Any) -> ir.Value:
    return _half_square((x / policy.a + 1.0).ln(), policy.sigma)


def _half_square(rise: Any, sigma: float) -> ir.Value:
    ratio = rise / sigma
    return ratio * ratio / 2.0


@expression.register
def _power(policy: PowerPolicy, x: Any) -> ir.Value:
    return (x / policy.sigma) ** policy.p


@expression.register
def _polylog(policy: PolylogPolicy, x: Any) -> ir.Value:
    return ((x / policy.sigma + policy.a).ln() ** policy.p - math.log(policy.a) ** policy.p) * policy.d


@expression.register
def _unit_splitting(policy: UnitSplittingPolicy, x: Any) -> ir.Value:
    pieces = (x / policy.threshold).ceil().cast("float64")
    return _half_square(pieces * policy.threshold, policy.sigma)


@expression.register
def _tanh(policy: TanhPolicy, x: Any) -> ir.Value:
    pure = expression(policy.pure, x)
    # Beyond 40 the factor is 1, and some engines refuse an exponential that small.
    small = (-ibis.least(pure, ibis.literal(40.0))).exp()
    return pure * (1.0 - small) / (1.0 + small)


@expression.register
def _sum(policy: SumPolicy, x: Any) -> ir.Value:
    return sum((expression(term, x) for term in policy.terms), ibis.literal(0.0))


@expression.register
def _times(policy: TimesPolicy, x: Any) -> ir.Value:
    return expression(policy.policy, x) * float(policy.count)


@expression.register
def _max(policy: MaxPolicy, x: Any) -> ir.Value:
    return ibis.greatest(*(expression(term, x) for term in policy.terms))
