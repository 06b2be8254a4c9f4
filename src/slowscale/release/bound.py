"""Bound requests: a request on the records of a session, checked, with its facts and its charge, and how it is drawn.

Each kind of drawn table has a class with the same methods: `read` scans the records, `draw` is a function of the exact
sums or ranks and a source of bits, and `released` describes the drawn numbers. A request adds up the policies of its
drawn tables and derives the roll-ups.
"""

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from slowscale.accounting import Accountant, Charge, RecordPolicy
from slowscale.accounting.largest import Value, exact, value_of
from slowscale.accounting.record import COUNT, folded, plain_label
from slowscale.core.arrays import to_arrow
from slowscale.core.data_errors import Name
from slowscale.core.errors import DataError, ParameterError, located, similar
from slowscale.core.files import Writers
from slowscale.core.parameters import lazy
from slowscale.data import engines, rowwise
from slowscale.data.cells import SUMMING, StoredCells, stored_cells
from slowscale.data.conversion import Source, listed_columns
from slowscale.data.keys import Keys
from slowscale.data.losses import TableOfSet
from slowscale.data.rowwise import Described, EngineTable, Records
from slowscale.data.sums import (
    Column,
    ExactSums,
    Sum,
    check_comparable,
    check_labels,
    counted,
    exact_sums,
    records_below,
)
from slowscale.data.supplied import SuppliedQuery, unconnected
from slowscale.mechanisms import Mechanism
from slowscale.mechanisms.calibration import CLOSED
from slowscale.mechanisms.exact_sums import Exact
from slowscale.release.buckets import BUCKET, ReleaseKey, TableBits
from slowscale.release.columns import record_policy, requested_policy, single_column
from slowscale.release.facts import (
    NO_MEAN,
    NO_VARIANCE,
    ColumnFacts,
    Facts,
    KeysFacts,
    LedgerHead,
    PartitionFacts,
    SelfTestFacts,
    TableFacts,
)
from slowscale.release.numbers import published_columns
from slowscale.release.quantiles import Ranks, ReleasedQuantiles
from slowscale.release.release import Release
from slowscale.release.request import Quantiles, Request, Sums
from slowscale.release.rollup import biased_sums, roll_up
from slowscale.release.stored import StoredTable, Target
from slowscale.release.supplied import Supplied
from slowscale.release.table import ReleasedSums, ReleasedTable
from slowscale.sampling import BitSource, KnownBits

# The meaning of the published standard error, by whether the error depends on the sum.
STANDARD_ERRORS = {
    False: "the root mean square error, rounding included; the same for every sum",
    True: "the standard deviation at the median estimate of the sum, rounding included: as likely too large as too "
    "small, and never below that of an empty cell",
}


BATCH = 64 * BUCKET  # the cells that are drawn together, if they are written to a file


class Part(NamedTuple):
    """The records that a release is about: those with some labels of a column, or all of them if the column is None.

    `kind` is the kind of the labels: text, whole numbers, booleans or dates.
    """

    by: str | None = None
    labels: tuple[Any, ...] = ()
    kind: str | None = None


@dataclass(frozen=True)
class BoundSums:
    """Sums that are bound to a table and checked. Nothing has been drawn yet.

    Attributes
    ----------
    sums, records
        The requested table, and the records.
    table
        The table with the derived columns, filtered.
    columns
        How each column is summed.
    expressions
        The filter and the derived columns, as text for the facts.
    level, accounting
        The level of the intervals, and which policy of each mechanism is charged.
    most_records
        The largest number of records of an entity in a cell, or None if there is no bound.
    supplied
        The file with the sums, if the curator supplies them; the records are then not read.
    """

    sums: Sums
    records: Records
    table: EngineTable
    columns: dict[str, Column]
    expressions: Described
    level: float
    accounting: str
    most_records: Fraction | None = None
    supplied: Supplied | None = None

    @staticmethod
    def of(
        sums: Sums, records: Records, level: float, accounting: str, largest: Mapping[str, Value] | None = None
    ) -> "BoundSums":
        """Return sums bound to the records, or raise an error."""
        table, source = _prepared(sums, records), records.source
        if sums.keys is not None:
            with located("keys"):
                for name in sums.keys.columns:
                    _check_column(name, table, source)
                check_labels(table, sums.keys)
        columns = {}
        for name, mechanism in sums.columns.items():
            with located("sums", name):
                _check_column(name, table, source)
            negatives = sums.negatives if mechanism._needs_nonnegative else None
            most = _exact_largest(largest, name)
            columns[name] = Column(name, sums.units[name], sums.nulls, negatives, source.text_numbers, largest=most)
        expressions = rowwise.described(sums.where, sums.derive, records.computed)
        counts = sums.counted is not None and records.protect is not None
        most_records = _exact_largest(largest, COUNT) if counts else None
        return BoundSums(sums, records, table, columns, expressions, level, accounting, most_records)

    @property
    def keys(self) -> Keys | None:
        """The public keys, or None for totals."""
        return self.sums.keys

    @property
    def labels(self) -> pa.Table | None:
        """The labels of all cells, or None for totals."""
        return None if self.keys is None else self.keys.table

    @property
    def mechanisms(self) -> Mapping[str, Mechanism]:
        """The mechanism of each column, including that of the number of records."""
        return self.sums.mechanisms

    @property
    def filtered(self) -> bool:
        """Whether records are filtered, so that a change of value may move one in or out."""
        return self.sums.where is not None or self.records.filtered

    @property
    def bounded(self) -> bool:
        """Whether larger records than the largest values are refused."""
        return self.most_records is not None or any(column.largest is not None for column in self.columns.values())

    @property
    def used(self) -> tuple[str, ...]:
        """The columns that are read as numbers."""
        return tuple(self.columns)

    @lazy
    def policy(self) -> RecordPolicy:
        """The loss of a record by the table, as PRzCDP."""
        return requested_policy(self.sums, self.accounting, self.records.protect, self.filtered)

    @property
    def pure_policy(self) -> RecordPolicy | None:
        """The loss of a record by the table as PRDP, or None if a mechanism has no such guarantee."""
        found = self.pure_columns
        return found if found is not None and len(found.terms) == len(self.mechanisms) else None

    @property
    def pure_columns(self) -> RecordPolicy | None:
        """The PRDP loss of a record through the columns that have such a guarantee, or None if no column has it."""
        found = {name: pure for name, m in self.mechanisms.items() if (pure := m.pure_policy) is not None}
        return record_policy(found, single_column(self.sums, self.records.protect), self.filtered) if found else None

    @lazy
    def _grids(self) -> dict[str, bool]:
        found = {}
        for name, column in self.columns.items():
            number = counted(self.table, column)
            found[name] = number.exact and (number.grain / self.sums.units[name]).denominator == 1
        return found

    def on_grid(self, name: str) -> bool:
        """Whether the type of a column implies that its true sums are multiples of its unit."""
        return name == self.sums.counted or self._grids[name]

    def at_least(self, name: str) -> int | None:
        """Return the lower bound on the true sums of a column, or None if none is known."""
        return 0 if name == self.sums.counted or self.mechanisms[name]._needs_nonnegative else None

    @property
    def warnings(self) -> list[str]:
        """A warning for each column whose unit is coarser than its noise."""
        found = [
            (name, mechanism._unit_warning(self.sums.units[name], self.on_grid(name)))
            for name, mechanism in self.mechanisms.items()
        ]
        return [f"column {name!r}: {warning}" for name, warning in found if warning is not None]

    @lazy
    def decided_by(self) -> tuple[str, ...]:
        """The stored columns that decide the cell of a record and whether it is in the table; "*": unknown ones."""
        protect = () if self.records.protect is None else (self.records.protect,)
        return rowwise.deciding(self.table, self.records, (*(() if self.keys is None else self.keys.columns), *protect))

    def facts(self) -> TableFacts:
        """Return the public facts of the table."""
        keys = self.keys
        return TableFacts(
            rows=1 if keys is None else len(keys),
            **_described_policies(self.policy, self.pure_policy),
            keys=None
            if keys is None
            else KeysFacts(columns=dict(keys.kinds), count=len(keys), assumption=keys.assumption, from_data=keys.taken),
            where=self.expressions.where,
            derived=self.expressions.derived,
            decided_by=self.decided_by,
            columns={name: self.column_facts(name) for name in self.mechanisms},
        )

    def column_facts(self, name: str) -> ColumnFacts:
        """Return the public facts of a released column."""
        mechanism, counts, sums = self.mechanisms[name], name == self.sums.counted, self.sums
        estimator = getattr(mechanism, "estimator", NO_MEAN if "mean" in mechanism._missing_moments else "mean")
        if sums.nonnegative:
            estimator = "biased: clipped at 0"
        return ColumnFacts(
            kind="count" if counts else "sum",
            mechanism=description(mechanism),
            described=str(mechanism),
            unit=str(sums.units[name]),
            level=self.level,
            nonnegative=sums.nonnegative,
            estimator=estimator if isinstance(estimator, str) else "a user-given function",
            se=NO_VARIANCE if mechanism._missing_moments else STANDARD_ERRORS[mechanism._error_grows],
            at_least=self.at_least(name),
            on_grid=self.on_grid(name),
            rounding_bias=mechanism._rounding_bias(sums.units[name], self.on_grid(name)),
            nulls=None if counts else self.columns[name].nulls,
            negatives=None if counts else self.columns[name].negatives or "kept",
            **({} if counts else self._value_facts(name)),
        )

    def _value_facts(self, name: str) -> dict[str, Any]:
        """Return how the values of a record enter a column, for its facts."""
        number = counted(self.table, self.columns[name])
        grain = None if number.exact else float(number.grain)
        if self.records.is_stored(name):
            return {"grain": grain}
        return {**rowwise.dependence(self.table, name, self.records), "grain": grain}

    @property
    def lossy(self) -> TableOfSet:
        """The table as far as the losses of records depend on it."""
        return TableOfSet(self.table, self.policy, self.columns, self.keys, self.sums.derive, self.sums.where)

    def read(self) -> ExactSums:
        """Return the exact sums by key. CONFIDENTIAL."""
        if self.supplied is not None:
            with closing(self.store()) as cells:
                return next(cells.batches(cells.cells))
        columns, run = list(self.columns.values()), partial(engines.run, label=SUMMING)
        return exact_sums(self.table, columns, self.keys, run, self.records.protect, self.most_records)

    def store(self) -> StoredCells:
        """Return the exact sums by key, which are kept outside of Python. CONFIDENTIAL."""
        if self.supplied is not None:
            return self.supplied.query.cells(self.supplied.file, self.supplied.groups)
        columns = list(self.columns.values())
        return stored_cells(self.table, columns, self.keys, self.records.protect, self.most_records)

    def elsewhere(self, dialect: Any) -> SuppliedQuery:
        """Return the query of the sums for a table that is not connected."""
        source = replace(self.records.source, table=unconnected(self.records.table, dialect))
        table = _prepared(self.sums, replace(self.records, source=source))
        columns = list(self.columns.values())
        return SuppliedQuery.of(table, columns, self.keys, self.records.protect, self.most_records)

    def batches(self, name: str, cells: StoredCells, key: ReleaseKey, whole: Facts) -> Iterator[pa.Table]:
        """Draw the published table batch by batch, from stored sums. Everything in the result is public."""
        bits = TableBits.of(key, name, whole.tables[name], None)
        for number, sums in enumerate(cells.batches(BATCH)):
            labels = None if self.keys is None else self.keys.slice(number * BATCH, BATCH)
            drawn = self.draw(sums, replace(bits, labels=labels, first=number * BATCH // BUCKET))
            yield self._described(name, _labelled(labels, drawn), whole).table

    def draw(self, sums: ExactSums, bits: TableBits | BitSource) -> pa.Table:
        """Add noise to the exact sums of some cells, and return their numbers. Everything in the result is public."""
        columns: dict[str, Any] = {}
        for name, mechanism in self.mechanisms.items():
            if name == self.sums.counted:
                exact = Exact(sums.rows, Fraction(1))
            else:
                total = sums.sums[name]
                exact = Exact(total.counts, total.grain, total.rest, total.parts)
            drawn = bits.column(name, exact) if isinstance(bits, TableBits) else bits
            noisy = mechanism._release(exact, self.sums.units[name], self.level, drawn)
            made = published_columns(noisy, self.sums.nonnegative, self.at_least(name))
            columns |= {f"{name}{suffix}": values for suffix, values in made.items()}
        return pa.table(columns)

    def released(self, name: str, numbers: pa.Table, whole: Facts) -> ReleasedSums:
        """Return the published table with the drawn numbers of all cells."""
        return self._described(name, _labelled(self.labels, numbers), whole)

    def _described(self, name: str, table: pa.Table, whole: Facts) -> ReleasedSums:
        drawn = ReleasedSums(name, table, whole, self.policy, self.pure_policy, dict(self.mechanisms))
        for column in self.columns if self.sums.means is not None else ():
            drawn = drawn.ratio(column, "count", f"{column}_mean", self.level, self.sums.means or "")
        return drawn

    def outline(self, name: str, whole: Facts, complete: bool) -> ReleasedSums:
        """Return a table of the right form, with numbers that are drawn from a zero: for all keys if it is `complete`.

        If a draw or a loss cannot be computed, it fails here, before anything is charged. Tables of tight policies are
        computed now, if they are not known yet.
        """
        if self.accounting != CLOSED:
            self.policy(dict.fromkeys(self.policy.columns, 1.0))
        zero = np.zeros(1, np.int64)
        sums = ExactSums(zero, {column: Sum(zero, Fraction(1)) for column in self.columns})
        one = self._described(name, self.draw(sums, KnownBits()), whole)
        if self.keys is None or not complete:
            return one
        rows = one.table.take(to_arrow(np.zeros(len(self.keys), np.int64)))
        return replace(one, numbers=_labelled(self.labels, rows))


@dataclass(frozen=True)
class BoundQuantiles:
    """Quantiles that are bound to a table and checked. Nothing has been drawn yet; see `BoundSums`."""

    ranks: Ranks
    records: Records
    table: EngineTable
    column: Column
    expressions: Described
    level: float

    @staticmethod
    def of(quantiles: Quantiles, records: Records, level: float) -> "BoundQuantiles":
        """Return quantiles bound to the records, or raise an error."""
        table = _prepared(quantiles, records)
        # The totals of entities are counted in grains of the unit: the lowest size, so that all sizes can be compared.
        unit = Fraction(1) if records.protect is None else quantiles.sizes[0]
        with located("quantiles"):
            _check_column(quantiles.column, table, records.source)
            text = records.source.text_numbers
            column = Column(quantiles.column, unit, quantiles.nulls, None, text, use="ranked")
            check_comparable(table, column)
        expressions = rowwise.described(quantiles.where, quantiles.derive, records.computed)
        return BoundQuantiles(Ranks(quantiles), records, table, column, expressions, level)

    mechanisms: ClassVar[Mapping[str, Mechanism]] = {}  # nothing is summed or rounded to a unit
    warnings: ClassVar[Sequence[str]] = ()

    @property
    def used(self) -> tuple[str, ...]:
        """The columns that are read as numbers."""
        return (self.column.name,)

    @property
    def filtered(self) -> bool:
        """Whether records are filtered, so that a change of value may move one in or out."""
        return self.ranks.table.where is not None or self.records.filtered

    @property
    def policy(self) -> RecordPolicy:
        """The loss of every record or entity, as PRzCDP."""
        return self.ranks.policy(self.filtered)

    @property
    def pure_policy(self) -> RecordPolicy:
        """The loss of every record or entity, as PRDP."""
        return self.ranks.pure_policy(self.filtered)

    pure_columns = pure_policy

    def facts(self) -> TableFacts:
        """Return the public facts of the table."""
        return TableFacts(
            rows=len(self.ranks.table.at),
            **_described_policies(self.policy, self.pure_policy),
            where=self.expressions.where,
            derived=self.expressions.derived,
            decided_by=rowwise.deciding(self.table, self.records),
            quantiles=self.ranks.facts(self.level, self.records.protect).with_(reads=self._reads),
        )

    @property
    def _reads(self) -> tuple[str, ...] | None:
        """The stored columns that the ranked column is computed from, or None if it is stored."""
        name = self.column.name
        stored = self.records.is_stored(name)
        return None if stored else rowwise.dependence(self.table, name, self.records)["reads"]

    @property
    def lossy(self) -> TableOfSet:
        """The table as far as the losses of records depend on it: each of its records loses the same."""
        return TableOfSet(self.table, self.policy, {}, None, self.ranks.table.derive, self.ranks.table.where)

    def read(self) -> tuple[list[int], int]:
        """Return how many records or entities are smaller than each size, and how many there are. CONFIDENTIAL."""
        run = partial(engines.run, label="Ranking the records")
        return records_below(self.table, self.column, self.ranks.table.sizes, run, self.records.protect)

    labels = None

    def draw(self, read: tuple[list[int], int], bits: TableBits | BitSource) -> pa.Table:
        """Draw the quantiles from the ranks. Everything in the result is public."""
        below, rows = read
        counts = Exact(np.array([*below, rows], object), Fraction(1))
        return self.ranks.draw(below, rows, bits.quantiles(counts) if isinstance(bits, TableBits) else bits)

    def released(self, name: str, numbers: pa.Table, whole: Facts) -> ReleasedQuantiles:
        """Return the published table with the drawn quantiles."""
        return ReleasedQuantiles(name, numbers, whole, self.policy, self.pure_policy)

    def outline(self, name: str, whole: Facts, complete: bool) -> ReleasedQuantiles:
        """Return quantiles of no records, which shows that quantiles can be drawn."""
        return self.released(name, self.draw(([0] * len(self.ranks.table.sizes), 0), KnownBits()), whole)


BoundTable = BoundSums | BoundQuantiles


def close(read: Mapping[str, Any]) -> None:
    """Remove sums that are kept outside of Python."""
    with ExitStack() as stack:  # the others also if one cannot be removed
        for one in read.values():
            if isinstance(one, StoredCells):
                stack.callback(one.close)


def _one_batch(table: pa.Table) -> Iterator[pa.Table]:
    yield table


def _labelled(labels: pa.Table | None, numbers: pa.Table) -> pa.Table:
    """Return numbers with the labels of their rows."""
    tables = [numbers] if labels is None else [labels, numbers]
    return pa.table({name: table[name] for table in tables for name in table.column_names})


def _exact_largest(largest: Mapping[str, Value] | None, column: str) -> Fraction | None:
    """Return the largest value of a column as an exact number, or None."""
    value = value_of(largest or {}, column)
    return None if value is None else exact(value)


def _prepared(table: Sums | Quantiles, records: Records) -> EngineTable:
    """Return the records with the derived columns of a table, filtered."""
    with located("derive"):
        derived = rowwise.derive(records.table, table.derive)
    with located("where"):
        return rowwise.keep(derived, table.where)


def _check_column(name: str, table: EngineTable, source: Source) -> None:
    """Raise unless the table has a column; suggest a column with a similar name."""
    if name in table.columns:
        return
    if name in source.unusable:
        raise ParameterError(
            f"column {name!r}",
            f"has the type {source.unusable[name]}, which cannot be computed with",
            code="unsupported",
            remedy="convert it before to text, a date, or numbers of at most 38 digits",
        )
    near = similar(name, table.columns)
    suggestion = f"did you mean {near!r}?" if near else listed_columns(table.columns)
    raise ParameterError(f"column {name!r}", "is not in the data", code="unknown-column", remedy=suggestion)


def _check_derived_columns(sums: Sums, records: Records, accountant: Accountant) -> None:
    """Raise if a derived or renamed column would evade the caps, by a new name or by the name of a stored column."""
    derived, stored = sums.derive or {}, records.stored_names
    for caps, name in product((accountant.caps, accountant.band_caps), sums.columns):
        if not caps or (name not in derived and records.is_stored(name)):
            continue
        # Renaming a stored column frees its name for a derived one, but its cap is not for that.
        if folded(name) not in map(folded, caps) or folded(name) in stored:
            raise ParameterError(
                f"column {name!r}",
                "is derived or renamed and has no cap: under a new name it could evade the caps of the columns "
                "that it is made from",
                code="no-cap",
                remedy="give it a name that no stored column has, and a cap when the ledger is created",
                path=("sums", name),
            )


def check_readable(
    columns: Iterable[str], records: Records, derive: Mapping[str, str] | None, where: str | None
) -> None:
    """Raise if a table reads a column with values that are not text, or not of the column's declared type."""
    unreadable, not_text = records.source.unreadable, records.source.not_text
    if not unreadable and not not_text:
        return
    used = {*columns, *records.used_columns(derive or {}, where)}
    for name in sorted(not_text & used):
        raise DataError("not-text", column=Name(name))
    for name, dtype in unreadable.items():
        if name in used:
            raise DataError("declared-type", column=Name(name), dtype=Name(dtype))


@dataclass(frozen=True)
class BoundRequest:
    """A request that is bound to the records of a session and checked. Nothing has been drawn yet.

    Attributes
    ----------
    request, records
        The request, and the records.
    tables
        The drawn tables.
    part
        The records that the request is about.
    policy, pure_policy, pure_columns
        The loss of a record, as PRzCDP: that by the drawn tables, added up (Lemma PRzCDP-seq); as PRDP, or None if a
        mechanism has no such guarantee; and its PRDP loss through the columns that have such a guarantee in all drawn
        tables, or None.
    facts
        The public facts of the release, without its ledger entry.
    outlines
        All tables as they would be released, with numbers that are drawn from zeros: they show that all of them can be
        released, and how many cells each row of a roll-up is the sum of. A table without others has one row.
    """

    request: Request
    records: Records
    tables: Mapping[str, BoundTable]
    part: Part
    policy: RecordPolicy
    pure_policy: RecordPolicy | None
    pure_columns: RecordPolicy | None
    facts: Facts
    outlines: Mapping[str, ReleasedTable]

    @property
    def mechanisms(self) -> Mapping[str, Mechanism]:
        """The mechanisms of the columns in one drawn table only, which can be searched for one that still fits."""
        names = [name for table in self.tables.values() for name in table.mechanisms]
        return {
            name: mechanism
            for table in self.tables.values()
            for name, mechanism in table.mechanisms.items()
            if names.count(name) == 1
        }

    @property
    def rank_loss(self) -> float | None:
        """The loss by quantiles, if a table of quantiles is drawn."""
        found = [table.ranks.table.loss for table in self.tables.values() if isinstance(table, BoundQuantiles)]
        return float(sum(found)) if found else None

    @property
    def warnings(self) -> list[str]:
        """A warning for each column of a table whose numbers are biased because its unit is coarse."""
        found = {name: table.warnings for name, table in self.tables.items()}
        for name, outline in self.outlines.items():
            if isinstance(outline, ReleasedSums) and outline.facts.rollup:
                found[name] = biased_sums(outline)
        one = len(self.request) == 1
        return [words if one else f"table {name!r}: {words}" for name in self.request for words in found[name]]

    @lazy
    def charge(self) -> Charge:
        """The cost of the release, with everything that a ledger records about it."""
        derived: dict[str, str] = {}
        for table in self.tables.values():  # a column is the same in all of them
            meanings = table.expressions.meanings
            names = {name: folded(name) for name in (*table.used, self.records.protect) if name is not None}
            derived |= {name: meanings[key] for name, key in names.items() if key in meanings}
        by, labels, kind = self.part
        return Charge(
            self.policy,
            self.pure_policy,
            by=by,
            labels=labels,
            kind=kind,
            protects=self.records.protect,
            facts=self.facts.to_dict(),
            pure_columns=self.pure_columns,
            tables=len(self.tables),
            derived=derived,
            uses=self.facts.uses,
        )

    def read(self, stored: bool = False) -> dict[str, Any]:
        """Return the exact sums or ranks of every drawn table, by one scan each. CONFIDENTIAL.

        If they are `stored`, the sums are kept outside of Python, and can be read batch by batch.
        """
        for table in self.tables.values():
            check_readable(table.used, self.records, table.expressions.derived, table.expressions.where)
        found: dict[str, Any] = {}
        try:
            for name, table in self.tables.items():
                found[name] = table.store() if stored and isinstance(table, BoundSums) else table.read()
        except BaseException:
            close(found)
            raise
        return found

    def draw(self, read: Mapping[str, Any], key: ReleaseKey) -> dict[str, pa.Table]:
        """Draw the noise of all drawn tables, and return their numbers. Everything in the result is public."""
        return {
            name: table.draw(read[name], TableBits.of(key, name, self.facts.tables[name], table.labels))
            for name, table in self.tables.items()
        }

    def released(self, numbers: Mapping[str, pa.Table], head: LedgerHead | None) -> Release:
        """Return the release with drawn numbers and the roll-ups of them, charged as an entry of a ledger."""
        facts = self.facts.with_(ledger=head)
        drawn = {name: table.released(name, numbers[name], facts) for name, table in self.tables.items()}
        return Release.of(_with_rollups(self.request, drawn), facts, self.policy, self.pure_policy)

    def written(self, read: Mapping[str, Any], key: ReleaseKey, head: LedgerHead | None, target: Target) -> Release:
        """Draw all tables batch by batch, write them to a folder, and return the release that is there."""
        facts: Facts = self.facts.with_(ledger=head)
        drawn: dict[str, ReleasedTable] = {}
        files: Writers = {}
        for name, table in self.tables.items():
            if isinstance(table, BoundQuantiles):
                bits = TableBits.of(key, name, facts.tables[name], None)
                drawn[name] = table.released(name, table.draw(read[name], bits), facts)
            else:
                parts = partial(table.batches, name, read[name], key, facts)
                files |= target.writers(facts.with_(table=name), parts)
                numbers = StoredTable(target.files(name)[0], facts.tables[name].rows, facts.id, name)
                losses = table.policy, table.pure_policy
                drawn[name] = ReleasedSums(name, numbers, facts, *losses, dict(table.mechanisms))
        target.write(files, lost=tuple(drawn))
        made = Release.of(_with_rollups(self.request, drawn), facts, self.policy, self.pure_policy)
        files = {}
        for one in made.tables.values():
            if not isinstance(one.numbers, StoredTable):
                files |= target.writers(one.file_facts, partial(_one_batch, one.numbers))
        target.write(files)
        return made


def bind(
    request: Request,
    records: Records,
    accountant: Accountant,
    *,
    accounting: str,
    dataset: str | None = None,
    private: bool = True,
) -> BoundRequest:
    """Return a request bound to the records, or raise an error. No record is read.

    Numbers of all tables are drawn from zeros, so that a request that cannot be drawn fails here.

    Parameters
    ----------
    request, records
        The request and the records.
    accountant
        The account to charge: if it has caps, a derived column needs one. Values above its largest ones are refused.
    accounting, dataset, private
        Which policy of each mechanism is charged, the name of the data set, and whether the bits are secret.
    """
    from slowscale import __version__

    tables: dict[str, BoundTable] = {}
    largest = accountant.largest  # another process may change it
    for name, table in request.drawn.items():
        with located("tables", name):
            if isinstance(table, Quantiles):
                tables[name] = BoundQuantiles.of(table, records, request.level)
            else:
                tables[name] = BoundSums.of(table, records, request.level, accounting, largest)
                _check_derived_columns(table, records, accountant)
    with located("partition"):
        part = _part(request, records)
    policy = _added(table.policy for table in tables.values())
    known = [found for table in tables.values() if (found := table.pure_policy) is not None]
    pure = _added(known) if len(known) == len(tables) else None
    pure_columns = _pure_columns(tables, policy)
    proof = engines.proof(records.table)
    facts = Facts(
        id=secrets.token_hex(8),
        slowscale=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        private=private,
        dataset=dataset,
        period=request.period,
        protect=records.protect,
        protects=records.protected,
        notion=policy.notion,
        accounting=accounting,
        **_described_policies(policy, pure),
        pure_columns=None if pure_columns is None or len(policy.terms) < 2 else description(pure_columns),
        partition=None if part.by is None else PartitionFacts(by=part.by, labels=part.labels),
        tables={name: table.facts() for name, table in tables.items()},
        selftest=None if proof is None else SelfTestFacts(**asdict(proof)),
        band=accountant.band,
        largest={name: value for name in policy.columns if (value := value_of(largest, name)) is not None} or None,
    )
    if len(tables) == 1:  # its policy is that of the release
        facts = facts.with_(
            tables={name: one.with_(policy=None, pure_policy=None) for name, one in facts.tables.items()}
        )
    several = len(request) > 1  # one may be, or could be, a roll-up of another
    outlines = {name: table.outline(name, facts, several) for name, table in tables.items()}
    whole = _with_rollups(request, outlines)
    facts = facts.with_(tables={name: table.facts for name, table in whole.items()})
    json.dumps(facts.to_dict())  # facts that cannot be written must fail before anything is charged
    return BoundRequest(request, records, tables, part, policy, pure, pure_columns, facts, whole)


def _part(request: Request, records: Records) -> Part:
    """Return which records a request is about. Raise unless its partition is a key column that is stored in the data.

    A derived column may be computed differently in each release, so that one record could be in several parts.
    """
    name, first = request.partition, next(iter(request.drawn.values()))
    derived = any(name in (table.derive or {}) for table in request.drawn.values())
    if name is not None and (derived or not records.is_stored(name)):
        raise ParameterError(
            "partition",
            allowed="a column that is stored in the data",
            given=name,
            code="derived",
            remedy="name a stored key column, or leave out the partition, and the losses of the releases add up",
        )
    if name is None or not isinstance(first, Sums) or first.keys is None:
        return Part()
    return Part(name, tuple(plain_label(label) for (label,) in first.keys.project(name)), first.keys.kinds[name])


def _added(policies: Iterable[RecordPolicy]) -> RecordPolicy:
    """Return the sum of policies, by sequential composition."""
    total, *others = policies
    for policy in others:
        total = total + policy
    return total


def _pure_columns(tables: Mapping[str, BoundTable], policy: RecordPolicy) -> RecordPolicy | None:
    """Return the PRDP loss through the columns that have such a guarantee in all drawn tables, or None."""
    known = [found for table in tables.values() if (found := table.pure_columns) is not None]
    if not known:
        return None
    added = _added(known)
    wanted, pure = ([name for name, _ in one.terms] for one in (policy, added))
    terms = tuple(term for term in added.terms if pure.count(term[0]) == wanted.count(term[0]))
    return replace(added, terms=terms) if terms else None


def _described_policies(policy: RecordPolicy, pure: RecordPolicy | None) -> dict[str, Any]:
    return {
        "formula": str(policy),
        "policy": description(policy),
        "pure_policy": None if pure is None else description(pure),
    }


def _with_rollups(request: Request, drawn: Mapping[str, ReleasedTable]) -> dict[str, ReleasedTable]:
    """Return all tables of a request in its order, from the drawn ones."""
    found: dict[str, ReleasedTable] = {}
    for name in request:
        if name in drawn:
            found[name] = drawn[name]
            continue
        levels, source = request.used_hierarchies(name), drawn[request.source(name)]
        assert isinstance(source, ReleasedSums)
        try:
            rolled = roll_up(source, request.by(name), levels or None, name)
        except ParameterError as error:
            raise ParameterError(
                f"table {name!r}", f"cannot be derived from its cells: {error}", code=error.code, path=("tables", name)
            ) from None
        found[name] = rolled.with_facts(rolled.facts.with_(of=request.rollups[name].of))
    return found


def description(thing: Mechanism | RecordPolicy) -> Any:
    """Return the description of a mechanism or policy, or None if it has a user function."""
    try:
        found = thing.to_dict()
    except ParameterError:
        return None
    return tuple(found) if isinstance(found, list) else found
