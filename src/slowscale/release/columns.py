"""The columns of a release or request, each with the loss of a record through it and with its standard error.

They hold public facts only: mechanisms, policies and units. Reports and the command compute here the loss of a record
of a given size, through one column and through all of them, by the best guarantee that holds.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from slowscale.accounting import Explanation, Loss, RecordPolicy, explain
from slowscale.accounting.bands import Band, Use
from slowscale.accounting.charge import read_mechanism
from slowscale.accounting.largest import Value, value_of
from slowscale.accounting.record import ANY, folded
from slowscale.accounting.sizes import COUNT, NUMBERS_OF_RECORDS, RecordSize, check_count, default_sizes, default_span
from slowscale.core.errors import ParameterError, ParameterTypeError
from slowscale.core.numbers import format_number
from slowscale.core.parameters import as_number
from slowscale.core.typing import ArrayLike, Scalar
from slowscale.data import rowwise
from slowscale.mechanisms import Mechanism
from slowscale.mechanisms.calibration import ACCOUNTING, charged_policy, closed_form
from slowscale.policy import PURE, ConstantPolicy, Policy
from slowscale.policy.bounded import BAND
from slowscale.release.facts import Facts
from slowscale.release.quantiles import Ranks
from slowscale.release.request import Drawn, Quantiles, Sums

if TYPE_CHECKING:
    from slowscale.release.release import Release

EXAMPLE_SUMS = 5  # the largest number of true sums for which errors are shown
SUM_TO_RECORD = 100.0  # the largest such sum, relative to the largest record


@dataclass(frozen=True)
class ColumnPolicy:
    """One released column.

    Attributes
    ----------
    name
        The column; "count" for the number of records.
    policy
        The PRzCDP loss of a record through the column, by its size.
    pure
        The PRDP loss, or None if there is no such guarantee.
    mechanism
        The mechanism, or None if it uses a user function that was not supplied.
    unit
        The grid of the results.
    single
        Whether every record counts as 1, so that all records lose the same.
    on_grid
        Whether the true sums are known to be multiples of the unit. None if nothing is published yet: errors are then
        those of the ideal output, before rounding.
    closed
        The closed form of the policy, if a smaller one is charged (tight accounting). None otherwise.
    use
        How the values of a record enter the column. None if it is not known.
    largest
        The largest size of a record or, if entities are protected, of a total in a cell. None if there is no bound.
    """

    name: str
    policy: Policy
    pure: Policy | None
    mechanism: Mechanism | None
    unit: Fraction
    single: bool
    on_grid: bool | None
    closed: Policy | None = None
    use: Use | None = None
    largest: float | None = None

    @property
    def counts_records(self) -> bool:
        """Whether the size of an entity in this column is its number of records, and not an amount."""
        return self.name == COUNT and not self.single

    def errors(self, sums: Scalar | ArrayLike) -> Any:
        """Return the standard errors for true sums, rounding included, or None if the mechanism is not known."""
        if self.mechanism is None:
            return None
        with np.errstate(all="ignore"):
            if self.on_grid is None:
                return self.mechanism.std(sums)
            return self.mechanism._error_at(sums, self.unit, self.on_grid)

    def loss(self, value: float) -> Loss:
        """Return the loss of a record of this size."""
        with np.errstate(all="ignore"):
            rho, pure = float(self.policy(value)), None if self.pure is None else float(self.pure(value))
        return Loss.of(rho, pure, self.policy, self.mechanism, 1.0 if self.single else value)

    def at(self, size: RecordSize) -> Loss | None:
        """Return the loss of an example record, or None if it has no value in this column."""
        value = 0.0 if self.single else size.value(self.name)
        return None if value is None else self.loss(value)

    def between(self, size: RecordSize, band: Band) -> Loss | None:
        """Return the loss between the value of an example record and others within a band, if it can be stated."""
        value = 0.0 if self.single else size.value(self.name)
        if value is None or self.use is None:
            return None
        term = None if self.single else self.name, self.policy
        with np.errstate(all="ignore"):
            return Loss.between(term, self.pure, self.mechanism, self.use, value, band)

    def gain(self, value: float) -> float:
        """Return how many times smaller the charged loss of a record of this size is than its closed form."""
        with np.errstate(all="ignore"):
            loss, closed = float(self.policy(value)), math.nan if self.closed is None else float(self.closed(value))
        return closed / loss if 0 < loss < closed < math.inf else 1.0


def record_policy(policies: Mapping[str, Policy], single: str | None, filtered: bool) -> RecordPolicy:
    """Return the total loss of a record through columns with these policies.

    In the column `single` every record counts as 1, whatever its values are, so that all records lose the same.
    """
    terms = [
        (None, ConstantPolicy(policy(1), policy.notion)) if name == single else (name, policy)
        for name, policy in policies.items()
    ]
    return RecordPolicy(tuple(terms), filtered=filtered)


def column_policies(
    policy: RecordPolicy,
    mechanisms: Mapping[str, Mechanism | None],
    units: Mapping[str, Any],
    on_grid: Mapping[str, bool | None] | None = None,
    accounting: str = ACCOUNTING,
    uses: Mapping[str, Use] | None = None,
    largest: Mapping[str, Value] | None = None,
) -> tuple[ColumnPolicy, ...]:
    """Return the columns of a release with this policy, one for each mechanism."""
    found = []
    for name, mechanism in mechanisms.items():
        single = name not in policy.columns
        pure = None if mechanism is None else mechanism.pure_policy
        closed = closed_form(mechanism, accounting)
        if single:  # every record counts as 1
            pure = None if pure is None else ConstantPolicy(float(pure(1)), PURE)
            closed = None if closed is None else ConstantPolicy(float(closed(1)))
        zcdp = policy.column(None if single else name)
        known = single if on_grid is None else on_grid.get(name, single)
        unit, use = Fraction(units.get(name, 1)), None if uses is None else uses[name]
        most = None if single or (value := value_of(largest or {}, name)) is None else float(value)
        found.append(ColumnPolicy(name, zcdp, pure, mechanism, unit, single, known, closed, use, most))
    return tuple(found)


def single_column(table: Sums, protect: str | None) -> str | None:
    """Return the column in which every record counts as 1, or None: an entity may have several records in a cell."""
    return None if protect is not None else table.counted


def requested_policy(table: Drawn, accounting: str, protect: str | None, filtered: bool) -> RecordPolicy:
    """Return the loss of a record by a drawn table, as PRzCDP.

    Parameters
    ----------
    table
        The table.
    accounting
        Which policy of each mechanism is charged.
    protect
        The column that identifies entities, or None if single records are protected.
    filtered
        Whether records are filtered, so that a change of value may move one in or out.
    """
    if isinstance(table, Quantiles):
        return Ranks(table).policy(filtered)
    found = {name: charged_policy(mechanism, accounting) for name, mechanism in table.mechanisms.items()}
    return record_policy(found, single_column(table, protect), filtered)


def requested_columns(
    name: str,
    table: Drawn,
    accounting: str,
    protect: str | None,
    filtered: bool,
    hidden: bool = False,
    largest: Mapping[str, Value] | None = None,
) -> tuple[ColumnPolicy, ...]:
    """Return the columns of a drawn table; quantiles count as one column with the name of the table.

    `hidden` says that the data may be a view whose filter is not known.
    """
    policy = requested_policy(table, accounting, protect, filtered)
    if isinstance(table, Quantiles):
        use = Use(folded(table.column), (ANY,) if table.column in (table.derive or {}) else ())
        return (_quantiles_column(name, policy, Ranks(table).pure_policy(filtered), use),)
    uses = {column: _requested_use(table, column, protect is not None) for column in table.mechanisms}
    if hidden:
        uses = {column: replace(use, decided_by=(ANY,)) for column, use in uses.items()}
    return column_policies(policy, table.mechanisms, table.units, accounting=accounting, uses=uses, largest=largest)


def _requested_use(table: Sums, column: str, entity: bool) -> Use:
    """Return how values enter a column of a request that is not bound to records, by the names in its expressions."""
    derived: dict[str, set[str]] = {}
    for name, expression in (table.derive or {}).items():
        used = rowwise.named_columns(expression)
        derived[folded(name)] = used.union(*(derived[one] for one in used & derived.keys()))
    decided = {folded(name) for name in (() if table.keys is None else table.keys.columns)}
    decided |= set() if table.where is None else rowwise.named_columns(table.where)
    decided = decided.union(*(derived[one] for one in decided & derived.keys()))
    reads = derived.get(folded(column), set())
    name = "" if column == table.counted else folded(column)
    return Use(name, tuple(sorted(reads)), not reads, tuple(sorted(decided)), entity=entity)


def _quantiles_column(name: str, policy: RecordPolicy, pure: RecordPolicy, use: Use) -> ColumnPolicy:
    return ColumnPolicy(
        name, policy.column(None), pure.column(None), None, Fraction(1), single=True, on_grid=None, use=use
    )


def released_columns(policy: RecordPolicy, facts: Facts, table: str | None = None) -> tuple[ColumnPolicy, ...]:
    """Return the columns of a table, or of all drawn tables, that the facts of a release describe."""
    columns = facts.columns if table is None else facts.tables[table].columns
    mechanisms = {name: read_mechanism(column.mechanism) for name, column in columns.items()}
    units = {name: column.unit for name, column in columns.items()}
    on_grid = {name: column.on_grid for name, column in columns.items()}
    uses = column_uses(facts, table)
    return column_policies(policy, mechanisms, units, on_grid, facts.accounting, uses, facts.largest)


def column_uses(facts: Facts, table: str | None = None) -> dict[str, Use]:
    """Return how values enter each column of a table, or of all drawn tables, by the facts of a release."""
    tables = facts.drawn if table is None else (table,)
    return {
        name: Use.of(facts.tables[one].to_dict(), name, facts.protect is not None)
        for one in tables
        for name in facts.tables[one].columns
    }


def table_policies(release: "Release") -> dict[str, RecordPolicy]:
    """Return the loss of a record by each drawn table of a release, also by one that is in another file."""
    facts = release.facts
    if len(facts.drawn) == 1:
        return {facts.drawn[0]: release.policy}
    found = {}
    for name in facts.drawn:
        described = facts.tables[name].policy
        if name in release.sums:
            found[name] = release.sums[name].policy
        elif described is not None:
            found[name] = RecordPolicy.from_dict(described)
    return found


def table_columns(release: "Release") -> dict[str, tuple[ColumnPolicy, ...]]:
    """Return the columns of each drawn table of a release; quantiles count as one column with the table's name."""
    found, facts = {}, release.facts
    for name, policy in table_policies(release).items():
        found[name] = released_columns(policy, facts, name)
        if facts.tables[name].quantiles is not None:
            pure = RecordPolicy.from_dict(facts.tables[name].pure_policy or facts.pure_policy or ())
            use = Use.of(facts.tables[name].to_dict(), None, facts.protect is not None)
            found[name] = (_quantiles_column(name, policy, pure, use),)
    return found


def drawn_columns(release: "Release") -> tuple[ColumnPolicy, ...]:
    """Return the columns of all drawn tables of a release."""
    return tuple(column for columns in table_columns(release).values() for column in columns)


def shown_sizes(columns: Sequence[ColumnPolicy], sizes: Sequence[RecordSize]) -> tuple[RecordSize, ...]:
    """Return the given sizes or, if there are none, sizes that follow from the policies and units of the columns."""
    if sizes:
        return tuple(sizes)
    if all(column.single for column in columns):
        return (RecordSize("every record", everywhere=1.0, named=False),)
    if all(column.counts_records for column in columns):
        return NUMBERS_OF_RECORDS
    bounds = {column.name: column.largest for column in columns if not column.single}
    return default_sizes(_policies_by_size(columns), bounds)


def on_one_axis(columns: Sequence[ColumnPolicy]) -> tuple[ColumnPolicy, ...]:
    """Return the columns that one axis of sizes can show: those with amounts or, if there are none, all of them.

    An entity has an amount and a number of records, which an amount does not determine.
    """
    return tuple(column for column in columns if not column.counts_records) or tuple(columns)


def explain_columns(columns: Sequence[ColumnPolicy], size: RecordSize, times: float = BAND) -> Explanation | None:
    """Return the loss of an example record through all columns and its meaning, or None if a value is missing.

    The values of all these columns may change within a band with the factor `times`.
    """
    found = [loss for column in columns if (loss := column.at(size)) is not None]
    uses = [column.use for column in columns if column.use is not None]
    band = Band.of(times, uses)
    values = [column.between(size, band) for column in columns]
    return replace(explain(found, values), band=times) if len(found) == len(columns) else None


def explain_record(
    columns: Sequence[ColumnPolicy], record: Mapping[str, float], times: float = BAND, name: str = "record"
) -> Explanation:
    """Return what a record with these values loses through all columns, and what that means; `name` is for errors."""
    sized = [column for column in columns if not column.single]
    if not isinstance(record, Mapping):
        example = f'{{"{sized[0].name if sized else COUNT}": 12}}'
        raise ParameterTypeError(name, allowed=f"a mapping such as {example}", given=record)
    check_count(record, name)
    for column in sized:
        value = record.get(column.name)
        if value is None:
            remedy = f"give a value of each of {', '.join(dict.fromkeys(one.name for one in sized))}"
            raise ParameterError(name, f"has no value of {column.name}", code="missing", remedy=remedy)
        if column.largest is not None and abs(value) > column.largest:
            most = f"at most {format_number(column.largest)}: the release refuses larger values"
            raise ParameterError(f"{name} {column.name}", allowed=most, given=value)
    values = tuple((one, abs(as_number(f"{name}, {one}", number, "a number"))) for one, number in record.items())
    explained = explain_columns(columns, RecordSize("the record", values), times)
    assert explained is not None
    if not math.isfinite(explained.loss):
        problem, remedy = "is too large to compute", "give smaller values"
        raise ParameterError("the loss at these values", problem, code="too-large", remedy=remedy)
    return explained


def size_span(columns: Sequence[ColumnPolicy], sizes: Sequence[RecordSize]) -> tuple[float, float]:
    """Return the range of sizes of a policy chart: from a size with a small loss to the largest given size."""
    columns = on_one_axis(columns)
    low, high = (10.0**power for power in default_span(_policies_by_size(columns)))
    stated = [value for size in sizes for column in columns if (value := size.value(column.name)) and not column.single]
    most = max((column.largest or math.inf for column in columns if not column.single), default=math.inf)
    low, high = (min(low, *stated), max(stated)) if stated else (low, min(high, most))
    # The axis starts at a power of ten, and ends at the largest value or at a power of ten.
    low, end = 10.0 ** math.floor(math.log10(low) + 1e-9), 10.0 ** math.ceil(math.log10(high) - 1e-9)
    end = max(end, 1000 * low)
    return (min(low, most / 1000), most) if high <= most < end else (low, end)


def _policies_by_size(columns: Sequence[ColumnPolicy]) -> list[tuple[Policy, float | None]]:
    return [(column.policy, float(column.unit)) for column in on_one_axis(columns) if not column.single]


def sum_powers(column: ColumnPolicy, sizes: Sequence[RecordSize]) -> tuple[int, int]:
    """Return the smallest and largest power of ten of the true sums for which errors are shown.

    They range from about the unit or the noise, whichever is larger, to well above the largest record.
    """
    unit = float(column.unit)
    with np.errstate(all="ignore"):
        noise = math.nan if column.mechanism is None else float(column.mechanism.std(0.0))
    start = max(unit, noise / 10) if math.isfinite(noise) else unit
    largest = max((value for size in sizes if (value := size.value(column.name))), default=unit)
    if column.name == COUNT:
        largest = 1e4  # of a number of records
    low = math.floor(math.log10(start) + 1e-9)
    return low, max(math.ceil(math.log10(SUM_TO_RECORD * largest) - 1e-9), low + 4)


def example_sums(column: ColumnPolicy, sizes: Sequence[RecordSize]) -> list[float]:
    """Return a few true sums for which the error of a column is shown."""
    low, high = sum_powers(column, sizes)
    step = math.ceil((high - low) / (EXAMPLE_SUMS - 1))
    return [10.0**power for power in range(low, high + 1, step)]
