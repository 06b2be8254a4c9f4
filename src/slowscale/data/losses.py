"""The distribution of the losses of the records: CONFIDENTIAL, for the curator only.

The engine evaluates the policy as an expression and counts the losses in narrow classes, in one scan. Quantiles and
shares are read from these counts, so they carry an error of at most the width of a class, 0.1 % of the loss.
Losses below 10⁻³⁰⁰ are one class, and so are those above 10³⁰⁰.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.types as ir
import numpy as np
import pyarrow as pa

from slowscale.accounting import RecordPolicy
from slowscale.core.arrays import to_numpy
from slowscale.core.errors import DataError, ParameterError
from slowscale.core.markup import html_text
from slowscale.data import rowwise
from slowscale.data.connections import engine_errors
from slowscale.data.conversion import listed_columns
from slowscale.data.dialects import forced_cast
from slowscale.data.engines import engine_of, fetch, restricted_to_keys, with_place_in_keys
from slowscale.data.keys import Keys
from slowscale.data.sums import Column, Run, counted
from slowscale.noise.arsinh_normal import approximation
from slowscale.policy import Policy
from slowscale.policy.tree import (
    Absolute,
    Arsinh,
    Call,
    Difference,
    Formula,
    HalfSquare,
    KthRoot,
    LaplaceShift,
    LargestRise,
    Logarithm,
    Max,
    Min,
    Number,
    Pieces,
    Power,
    Product,
    Quotient,
    RoundedUp,
    Shift,
    Sum,
    Symbol,
    Tabulated,
    Tanh,
    Times,
    contains,
    formula_value,
)

FOR_THE_CURATOR = "CONFIDENTIAL: for the curator only, never to be published"
PROBABILITIES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)
RANKS = (1, 10, 100, 1_000, 10_000)
# The losses at which the empirical CDF is evaluated: four per factor of ten.
THRESHOLDS = tuple(float(f"{10 ** (step / 4):.3g}") for step in range(-16, 25))
# How many classes of losses there are per factor of e: each is 0.1 % wide.
CLASSES_PER_E = 1000
# Losses outside these are counted in the first and in the last class. The numbers of the classes fit in 32 bits.
SMALLEST, LARGEST = 1e-300, 1e300


@dataclass(frozen=True, repr=False)
class Losses:
    """The distribution of the PRzCDP losses over the records of a release. CONFIDENTIAL.

    Attributes
    ----------
    records
        The number of records, or of entities if those are protected.
    quantiles
        The quantiles of the losses, by share of the records, within 0.1 % (for losses from 10⁻³⁰⁰ to 10³⁰⁰).
    cdf
        The share of the records whose loss is at most a value, by that value. The value is meant within 0.1 %.
    largest
        The largest loss, the 10th largest, and so on, by rank; the largest exactly, the others within 0.1 %.
    protects
        The column that identifies an entity, or None if single records are protected.
    """

    records: int
    quantiles: dict[float, float]
    cdf: dict[float, float]
    largest: dict[int, float]
    protects: str | None = None

    def __repr__(self) -> str:
        things = "records" if self.protects is None else f"different values of {self.protects}"
        lines = [FOR_THE_CURATOR, f"losses of {self.records:,} {things}"]
        lines += [f"  {share:>8.1%} of them lose at most {loss:.4g}" for share, loss in self.quantiles.items()]
        for rank, loss in self.largest.items():
            lines.append(f"  the {'largest' if rank == 1 else f'{rank:,}th largest'} loss is {loss:.4g}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return html_text(repr(self))


def record_losses(
    table: ir.Table,
    policy: RecordPolicy,
    columns: Mapping[str, Column],
    keys: Keys | None,
    protect: str | None = None,
    run: Run | None = None,
) -> Losses:
    """Return the distribution of the losses of the records with public keys, or of their entities."""
    if protect is None:
        kept = table if keys is None else restricted_to_keys(table, keys.table, keys.kinds)
        return _counted_losses(kept.select(loss=_loss(policy, _values(kept, policy, columns))), None, run)
    cells = _entity_losses(table, policy, columns, keys, protect)
    return _counted_losses(_by_owner(cells), protect, run)


class TableOfSet(NamedTuple):
    """A drawn table of a set, as far as the losses of records depend on it.

    `derive` and `where` are those of its query, `table` has the derived columns and is filtered.
    """

    table: ir.Table
    policy: RecordPolicy
    columns: Mapping[str, Column]
    keys: Keys | None
    derive: Mapping[str, Any] | None
    where: Any


def set_losses(
    records: ir.Table, tables: Sequence[TableOfSet], protect: str | None = None, run: Run | None = None
) -> Losses:
    """Return the distribution of the losses by a set of tables: of each record or entity, over all drawn tables."""
    if protect is None:
        return _counted_losses(_summed_losses(records, tables), None, run)
    # An entity may be in different cells of each table. The tables have independent noise, so the losses add.
    cells = [_entity_losses(one.table, one.policy, one.columns, one.keys, protect) for one in tables]
    return _counted_losses(_by_owner(ibis.union(*cells)), protect, run)


def _summed_losses(records: ir.Table, tables: Sequence[TableOfSet]) -> ir.Table:
    """Return the losses of the records that are in at least one table, added up over the tables."""
    derived: dict[str, Any] = {}
    for one in tables:
        derived |= {name: made for name, made in (one.derive or {}).items() if name not in derived}
    wide = rowwise.derive(records, derived or None)
    engine = engine_of(wide)
    found: dict[str, ir.Value] = {}
    for i, one in enumerate(tables):
        kept = ibis.literal(True) if one.where is None else rowwise.bind(wide, one.where, "where").fill_null(False)
        found[f"kept{i}"] = kept
        found[f"loss{i}"] = kept.ifelse(_loss(one.policy, _values(wide, one.policy, one.columns)), _float(0.0))
        for k, (name, kind) in enumerate({} if one.keys is None else one.keys.kinds.items()):
            found[f"label{i}_{k}"] = engine.label(wide[name], kind)
    joined = wide.select(**found)
    for i, one in enumerate(tables):
        if one.keys is None:
            continue
        labels = {
            f"key{i}_{k}": engine.key(one.keys.table[name], kind)
            for k, (name, kind) in enumerate(one.keys.kinds.items())
        }
        wanted = ibis.memtable(pa.table({**labels, f"public{i}": np.ones(len(one.keys), np.int64)}))
        same = [joined[f"label{i}_{k}"] == wanted[f"key{i}_{k}"] for k in range(len(labels))]
        joined = joined.left_join(wanted, same)
    inside = [
        joined[f"kept{i}"] if one.keys is None else joined[f"kept{i}"] & joined[f"public{i}"].notnull()
        for i, one in enumerate(tables)
    ]
    losses = [within.ifelse(joined[f"loss{i}"], _float(0.0)) for i, within in enumerate(inside)]
    total = joined.select(loss=sum(losses[1:], losses[0]), inside=ibis.or_(*inside))
    return total.filter(total.inside).select("loss")


def _values(table: ir.Table, policy: RecordPolicy, columns: Mapping[str, Column]) -> dict[str, ir.Value]:
    """Return the values that are counted for the records of a table, by column."""
    return {
        name: counted(table, columns[name]).value.cast("float64")  # a float is truncated to the grain of its sum
        for name in policy.columns
        if name in columns
    }


def _entity_losses(
    table: ir.Table, policy: RecordPolicy, columns: Mapping[str, Column], keys: Keys | None, protect: str
) -> ir.Table:
    """Return the loss of each entity in each cell that it is in.

    Removing an entity shifts each cell by its total there. Cells have independent noise, so the losses add. Records
    without an entity are left out: they do not belong together, and a release refuses them.
    """
    table = table.filter(table[protect].notnull())
    if keys is not None:
        table = restricted_to_keys(table, keys.table, keys.kinds)
    values = _values(table, policy, columns)
    cell = [table[name] for name in [protect, *(keys.columns if keys is not None else ())]]
    totals = table.aggregate(
        by=[label.name(f"by{i}") for i, label in enumerate(cell)],
        records=table.count(),
        **{f"total{i}": value.sum() for i, value in enumerate(values.values())},
    )
    shifts = {name: totals[f"total{i}"] for i, name in enumerate(values)}
    shifts |= {name: totals.records.cast("float64") for name in policy.columns if name not in columns}
    return totals.select(owner=totals.by0, loss=_loss(policy, shifts))


def _by_owner(cells: ir.Table) -> ir.Table:
    """Return the losses of entities, from those in the cells that they are in."""
    return cells.group_by("owner").aggregate(loss=cells.loss.sum()).select("loss")


def _counted_losses(losses: ir.Table, protect: str | None, run: Run | None) -> Losses:
    """Return the distribution of losses, which the engine counts in classes."""
    with engine_errors("the engine", "could not compute the losses", quote=False):
        counts = _Counts.of((run or fetch)(_in_classes(losses)))
    return _distribution(counts, protect)


def losses_of_records(
    table: ir.Table,
    policy: RecordPolicy,
    columns: Mapping[str, Column],
    keys: Keys | None,
    further: Mapping[str, ir.Value],
) -> ir.Table:
    """Return the query for the loss of every record, its class, and further values; NULL outside the keys."""
    values = _values(table, policy, columns)
    rows = table.select(**further, loss=_loss(policy, values))
    if keys is not None:
        rows = with_place_in_keys(table, keys.table, keys.kinds, {**further, "loss": _loss(policy, values)})
        rows = rows.select(*further, loss=ibis.cases((rows.inside, rows.loss)))
    return rows.select(*further, place=_class(rows.loss, dt.int32), loss=rows.loss)


def distribution(found: pa.Table) -> Losses:
    """Return the distribution of the losses that the query of `losses_of_records` returns."""
    return _distribution(_Counts.of_records(found), None)


def _distribution(counts: "_Counts", protect: str | None) -> Losses:
    if not counts.records:
        raise DataError("no-records")
    ranks = [rank for rank in RANKS if rank <= counts.records]
    return Losses(
        counts.records,
        {share: counts.quantile(share) for share in PROBABILITIES},
        {at: counts.share_at_most(at) for at in THRESHOLDS},
        {rank: counts.ordered(counts.records - rank) for rank in ranks},
        protect,
    )


def _in_classes(losses: ir.Table) -> ir.Table:
    """Return the query that counts losses in narrow classes, with the smallest and the largest loss of each class."""
    classed = losses.select(place=_class(losses.loss, dt.int64), loss=losses.loss)
    return classed.group_by("place").aggregate(
        records=classed.loss.count(), least=classed.loss.min(), most=classed.loss.max()
    )


def _class(loss: ir.Value, dtype: dt.DataType) -> ir.Value:
    """Return the number of the class of a loss; the first class for a loss that is not known."""
    # Comparisons are faster than least() and greatest().
    inside = ibis.cases((loss > LARGEST, _float(LARGEST)), (loss > SMALLEST, loss), else_=_float(SMALLEST))
    return (inside.ln() * float(CLASSES_PER_E)).floor().cast(dtype)


def _float(number: float) -> ir.Value:
    return ibis.literal(number, "float64")


@dataclass(frozen=True)
class _Counts:
    """Losses counted in classes, in ascending order. Confidential.

    Within a class, losses are taken to be evenly spaced from its smallest to its largest one.
    """

    counts: Any
    least: Any
    most: Any

    @staticmethod
    def of(found: pa.Table) -> "_Counts":
        found = found.filter(found["most"].is_valid())  # a loss is not known where a value cannot be counted
        order = np.argsort(to_numpy(found["place"]))
        return _Counts(*(to_numpy(found[name])[order] for name in ("records", "least", "most")))

    @staticmethod
    def of_records(found: pa.Table) -> "_Counts":
        """Count losses that were not yet counted by the engine."""
        if found["loss"].null_count:
            found = found.filter(found["loss"].is_valid())
        if not found.num_rows:
            return _Counts(*(np.zeros(0, dtype) for dtype in (np.int64, float, float)))
        place, loss = to_numpy(found["place"]).astype(np.intp), to_numpy(found["loss"])
        place -= place.min()
        counts = np.bincount(place)
        least, most = np.full(len(counts), np.inf), np.full(len(counts), -np.inf)
        np.minimum.at(least, place, loss)
        np.maximum.at(most, place, loss)
        some = counts > 0
        return _Counts(counts[some], least[some], most[some])

    @property
    def records(self) -> int:
        return int(self.counts.sum())

    def ordered(self, place: int) -> float:
        """Return the loss at a place, counted from 0, in ascending order."""
        ends = np.cumsum(self.counts)
        here = int(np.searchsorted(ends, place, side="right"))
        count, least, most = int(self.counts[here]), float(self.least[here]), float(self.most[here])
        if count == 1 or least == most or math.isinf(most):
            return most
        return least + (most - least) * (place - int(ends[here]) + count) / (count - 1)

    def quantile(self, share: float) -> float:
        """Return a quantile, interpolated between two neighbouring losses as numpy does."""
        place = share * (self.records - 1)
        low, rest = int(place), place - int(place)
        first = self.ordered(low)
        return first if rest == 0 else first + rest * (self.ordered(low + 1) - first)

    def share_at_most(self, at: float) -> float:
        """Return the share of the losses that are at most a value."""
        found = int(self.counts[self.most <= at].sum())
        for here in np.flatnonzero((self.least <= at) & (at < self.most)):
            least, most, others = float(self.least[here]), float(self.most[here]), int(self.counts[here]) - 1
            found += min(1 + int((at - least) / (most - least) * others), others)
        return found / self.records


def loss_expression(policy: RecordPolicy, table: ir.Table) -> ir.Value:
    """Return the losses of the records of a table, as an expression that its engine evaluates."""
    missing = [name for name in policy.columns if name not in table.columns]
    if missing:
        raise ParameterError(
            "table",
            f"must have the columns {', '.join(missing)}",
            code="unknown-column",
            remedy=listed_columns(table.columns),
        )
    return _loss(policy, {name: table[name].cast("float64") for name in policy.columns})


def _loss(policy: RecordPolicy, values: Mapping[str, ir.Value]) -> ir.Value:
    """Return the losses of records with these values."""
    loss = ibis.literal(0.0)
    for name, term in policy.terms:
        loss = loss + expression(term, values[name].abs() if name is not None else None)
    for parallel in policy.parallel:
        loss = loss + ibis.greatest(*(_loss(part, values) for _, part in parallel.parts))
    return forced_cast(loss, dt.float64)  # on some engines literals are decimals


def expression(policy: Policy, influence: Any) -> ir.Value:
    """Return a policy at an influence as an expression that the engine evaluates."""
    formula = policy.formula()
    if contains(formula, Call):
        raise ParameterError(
            "the engine",
            "cannot evaluate a policy with a user-given function",
            code="unsupported",
            remedy="call the policy on the values in Python",
        )
    return _engine_expression(formula, influence)


def _engine_expression(formula: Formula, x: Any) -> ir.Value:
    """Return a formula as an expression in the influence x."""

    def of(part: Formula) -> ir.Value:
        return _engine_expression(part, x)

    if not contains(formula, Symbol):  # evaluated in Python, so that all engines use the same number
        return ibis.literal(float(formula_value(formula)))
    match formula:
        case Symbol():
            return x
        case Shift(base, by):
            return of(base) + by
        case Difference(Logarithm(Shift(base, by)), Logarithm(Number(start))) if by == start:
            return (of(base) / start + 1.0).ln()  # the same, without cancellation
        case Difference(left, right):
            return of(left) - of(right)
        case Product(left, right):
            return of(left) * of(right)
        case Quotient(top, bottom):
            return of(top) / bottom
        case Power(base, exponent):
            return of(base) * of(base) if exponent == 2 else of(base) ** exponent  # a product is faster
        case KthRoot(base, k):
            return of(base) if k == 1 else of(base) ** (1 / k)
        case Logarithm(base):
            return of(base).ln()
        case Arsinh(base):
            return (of(base) + _hypotenuse(of(base))).ln()
        case Absolute(base):
            return of(base).abs()
        case RoundedUp(base, step):
            return (of(base) / step).ceil().cast("float64") * step
        case HalfSquare(rise, sigma):
            ratio = of(rise) / sigma  # squared last, because the square of either may overflow
            return ratio * ratio / 2.0
        case LaplaceShift(base):
            shift = of(base)
            # Up to a shift of 0.01, four terms of the series have all digits of a float that cancellation leaves.
            series = shift * shift * (0.5 - shift * (1 / 6 - shift * (1 / 24 - shift * (1 / 120))))
            whole = shift + engine_of(shift).vanishing_exponential(shift) - 1.0
            return (shift <= 0.01).ifelse(series, whole)
        case LargestRise(base, scale, shape):
            return _largest_rise(of(base) / scale, shape)
        case Tanh(pure):
            loss = of(pure)
            small = engine_of(loss).vanishing_exponential(loss)
            return loss * (1.0 - small) / (1.0 + small)
        case Times(count, loss):
            return of(loss) * float(count)
        case Sum(terms):
            return sum(map(of, terms), ibis.literal(0.0))
        case Pieces(variable, ends, parts):
            at, value = of(variable), of(parts[-1])
            for end, part in zip(ends[::-1], parts[-2::-1], strict=True):
                value = (at <= end).ifelse(of(part), value)
            return value
        case Max(terms):
            return ibis.greatest(*map(of, terms))
        case Min(terms):
            return ibis.least(*map(of, terms))
        case Tabulated(base, log_sizes, log_losses):
            return _interpolated(of(base), log_sizes, log_losses)
    raise TypeError(f"formula must be a node of slowscale.policy.tree, got {formula!r}")


def _interpolated(size: Any, log_sizes: Sequence[float], log_losses: Sequence[float]) -> ir.Value:
    """Return the loss that a table gives at a size: exp of a straight line in ln(size), looked up in the table."""
    first, last = math.exp(log_sizes[0]), math.exp(log_sizes[-1])
    slopes = [rise / run for rise, run in zip(np.diff(log_losses), np.diff(log_sizes), strict=True)]
    intercepts = [high - slope * at for high, slope, at in zip(log_losses[:-1], slopes, log_sizes[:-1], strict=True)]
    ends = [math.exp(at) for at in log_sizes[1:-1]]
    at = ibis.greatest(size, ibis.literal(first)).ln()  # the logarithm of 0 is an error on some engines
    inside = (at * _looked_up(size, ends, slopes) + _looked_up(size, ends, intercepts)).exp()
    return ibis.cases((size <= 0.0, ibis.literal(0.0)), (size > last, ibis.literal(math.inf)), else_=inside)


def _looked_up(size: Any, ends: Sequence[float], values: Sequence[float]) -> ir.Value:
    """Return the first value up to the first end, the second up to the second end, …, and the last beyond all ends.

    The search is in groups of √n, because a single list of cases would be slow.
    """
    group = math.isqrt(len(values) - 1) + 1
    if len(values) <= 3:
        group = len(values)
    parts = [
        _cases(size, ends[start : start + group - 1], values[start : start + group])
        for start in range(0, len(values), group)
    ]
    return _cases(size, ends[group - 1 :: group], parts)


def _cases(size: Any, ends: Sequence[float], values: Sequence[Any]) -> Any:
    *branches, last = (value if isinstance(value, ir.Value) else ibis.literal(float(value)) for value in values)
    if not branches:
        return last
    return ibis.cases(*((size <= end, value) for end, value in zip(ends, branches, strict=True)), else_=last)


def _largest_rise(x: ir.Value, shape: float) -> ir.Value:
    """Return a closed form that is never below the policy of the arsinh-normal, and at most 0.1 % above it."""
    known, curve = approximation(shape), 1 / (shape * shape)
    # Each branch also gets values that it can evaluate, because some engines evaluate all branches.
    middle = ibis.least(ibis.greatest(x, ibis.literal(known.near)), ibis.literal(known.far))
    large = ibis.greatest(x, ibis.literal(known.far))
    growth = middle / 2.0 + _hypotenuse(middle / 2.0)
    low = ((growth.ln() + math.log(2) + known.offset / growth) * curve + 1.0) / (growth * (curve + 1.0))
    high = low + middle
    y, top = (low + _hypotenuse(low)).ln(), (high + _hypotenuse(high)).ln()
    rise = (top - y) * (top + y) * (curve / 2) + (_hypotenuse(high) / _hypotenuse(low)).ln()
    tail = (large.ln() + math.log(2)) ** 2.0 * (curve / 2) + large.ln()
    return ibis.cases((x <= known.near, x * known.steepest), (x > known.far, tail), else_=rise) * known.factor


def _hypotenuse(x: ir.Value) -> ir.Value:
    return (x * x + 1.0).sqrt()
