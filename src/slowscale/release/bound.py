"""Bound requests: a request on the records of a session, checked, with its facts and its charge, and how it is drawn.

Each kind of drawn table has a class with the same methods: its policies and facts, what is read of the records, and the
table that is drawn from it. A request adds up their policies and derives the roll-ups.
"""

import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from slowscale.accounting import Accountant, Charge, RecordPolicy
from slowscale.accounting.record import folded, plain_label
from slowscale.core.arrays import to_arrow
from slowscale.core.errors import ParameterError, located
from slowscale.core.numbers import STANDARD_ERROR_DIGITS, rounded
from slowscale.core.parameters import lazy
from slowscale.data import progress, rowwise
from slowscale.data.keys import Keys
from slowscale.data.losses import TableOfSet
from slowscale.data.ranks import check_comparable, records_below
from slowscale.data.records import EngineTable, Records
from slowscale.data.rowwise import Described
from slowscale.data.sums import Column, ExactSums, Sum, check_labels, counted, exact_sums
from slowscale.mechanisms import Mechanism, TransformationMechanism
from slowscale.mechanisms.calibration import CLOSED
from slowscale.mechanisms.exact_sums import Exact
from slowscale.mechanisms.noisy import Noisy
from slowscale.release.checks import check_column, check_derived_columns, check_partition, check_readable
from slowscale.release.columns import record_policy
from slowscale.release.facts import (
    NO_MEAN,
    NO_VARIANCE,
    ColumnFacts,
    Facts,
    KeysFacts,
    LedgerHead,
    PartitionFacts,
    TableFacts,
)
from slowscale.release.numbers import number_column
from slowscale.release.policies import requested_policy, single_column
from slowscale.release.quantiles import Ranks, ReleasedQuantiles
from slowscale.release.release import Release
from slowscale.release.request import Quantiles, Request, Sums
from slowscale.release.rollup import biased_sums, roll_up
from slowscale.release.table import ReleasedSums, ReleasedTable
from slowscale.sampling import BitSource, KnownBits

# What the published standard error is, by whether the error depends on the sum.
STANDARD_ERRORS = {
    False: "the root mean square error, rounding included; the same for every sum",
    True: "the standard deviation at the median estimate of the sum, rounding included: as likely too large as too "
    "small, and never below that of an empty cell",
}


class Part(NamedTuple):
    """The records that a release is about: those with some labels of a column, or all of them if the column is None.

    `kind` says what the labels are: text, whole numbers, booleans or dates.
    """

    by: str | None = None
    labels: tuple[Any, ...] = ()
    kind: str | None = None


ALL_RECORDS = Part()


@dataclass(frozen=True)
class BoundSums:
    """Sums that are bound to a table and checked. Nothing has been drawn yet.

    Attributes
    ----------
    sums, records
        What was requested, and the records.
    table
        The table with the derived columns, filtered.
    columns
        How each column is summed.
    expressions
        The filter and the derived columns, as text for the facts.
    level, accounting
        The level of the intervals, and which policy of each mechanism is charged.
    """

    sums: Sums
    records: Records
    table: EngineTable
    columns: dict[str, Column]
    expressions: Described
    level: float
    accounting: str

    @staticmethod
    def of(sums: Sums, records: Records, level: float, accounting: str) -> "BoundSums":
        """Return sums bound to the records, or raise an error that says what is wrong with them."""
        table = _prepared(sums, records)
        source = records.source
        if sums.keys is not None:
            with located("keys"):
                for name in sums.keys.columns:
                    check_column("keys", name, table, source)
                check_labels(table, sums.keys)
        columns = {}
        for name, mechanism in sums.columns.items():
            with located("sums", name):
                check_column("columns", name, table, source)
            negatives = sums.negatives if isinstance(mechanism, TransformationMechanism) else None
            columns[name] = Column(name, sums.units[name], sums.nulls, negatives, source.text_numbers)
        expressions = rowwise.described(sums.where, sums.derive, records.computed)
        return BoundSums(sums, records, table, columns, expressions, level, accounting)

    @property
    def keys(self) -> Keys | None:
        """The public keys, or None for totals."""
        return self.sums.keys

    @property
    def mechanisms(self) -> Mapping[str, Mechanism]:
        """The mechanism of each column, including that of the number of records."""
        return self.sums.mechanisms

    @property
    def filtered(self) -> bool:
        """Whether records are filtered, so that a change of value may move one in or out."""
        return self.sums.where is not None or self.records.filtered

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
        transformed = isinstance(self.mechanisms[name], TransformationMechanism)
        return 0 if name == self.sums.counted or transformed else None

    @property
    def warnings(self) -> list[str]:
        """A warning for each column whose unit is coarser than its noise."""
        found = [
            (name, mechanism._unit_warning(self.sums.units[name], self.on_grid(name)))
            for name, mechanism in self.mechanisms.items()
        ]
        return [f"column {name!r}: {warning}" for name, warning in found if warning is not None]

    def facts(self) -> TableFacts:
        """Return the facts that will be public about the table."""
        keys = self.keys
        return TableFacts(
            rows=1 if keys is None else len(keys),
            **_described_policies(self.policy, self.pure_policy),
            keys=None
            if keys is None
            else KeysFacts(columns=dict(keys.kinds), count=len(keys), assumption=keys.assumption, from_data=keys.taken),
            where=self.expressions.where,
            derived=self.expressions.derived,
            columns={name: self.column_facts(name) for name in self.mechanisms},
        )

    def column_facts(self, name: str) -> ColumnFacts:
        """Return the public facts of a released column."""
        mechanism, counts, sums = self.mechanisms[name], name == self.sums.counted, self.sums
        return ColumnFacts(
            kind="count" if counts else "sum",
            mechanism=description(mechanism),
            described=str(mechanism),
            unit=str(sums.units[name]),
            level=self.level,
            nonnegative=sums.nonnegative,
            estimator="biased: clipped at 0" if sums.nonnegative else _estimator(mechanism),
            se=NO_VARIANCE if mechanism._missing_moments else STANDARD_ERRORS[mechanism._error_grows],
            at_least=self.at_least(name),
            on_grid=self.on_grid(name),
            rounding_bias=mechanism._rounding_bias(sums.units[name], self.on_grid(name)),
            nulls=None if counts else self.columns[name].nulls,
            negatives=None if counts else self.columns[name].negatives or "kept",
        )

    @property
    def lossy(self) -> TableOfSet:
        """The table as far as the losses of records depend on it."""
        return TableOfSet(self.table, self.policy, self.columns, self.keys, self.sums.derive, self.sums.where)

    def read(self) -> ExactSums:
        """Return the exact sums by key. CONFIDENTIAL."""
        columns = list(self.columns.values())
        run = partial(progress.run, label="Summing the records")
        return exact_sums(self.table, columns, self.keys, run, self.records.protect)

    def draw(self, name: str, sums: ExactSums, whole: Facts, bits: BitSource | None) -> ReleasedSums:
        """Draw the noise and build the table. Everything in the result is public."""
        columns: dict[str, Any] = {}
        if self.keys is not None:
            columns = {key: self.keys.table[key] for key in self.keys.columns}
        for column, mechanism in self.mechanisms.items():
            exact = Exact(sums.rows, Fraction(1)) if column == self.sums.counted else _exact(sums.sums[column])
            noisy = mechanism._release(exact, self.sums.units[column], self.level, bits)
            made = _published_columns(noisy, self.sums.nonnegative, self.at_least(column))
            columns |= {f"{column}{suffix}": values for suffix, values in made.items()}
        table = pa.table(columns)
        drawn = ReleasedSums(name, table, whole, self.policy, self.pure_policy, dict(self.mechanisms))
        for column in self.columns if self.sums.means is not None else ():
            drawn = drawn.ratio(column, "count", f"{column}_mean", self.level, self.sums.means or "")
        return drawn

    def outline(self, name: str, whole: Facts) -> ReleasedSums:
        """Return a table of the right form for all keys: each row has numbers that are drawn from a zero.

        What cannot be drawn, or whose loss cannot be computed, fails here, before anything is charged. Tables of tight
        policies are computed now, if they are not known yet.
        """
        if self.accounting != CLOSED:
            self.policy(dict.fromkeys(self.policy.columns, 1.0))
        zero = np.zeros(1, np.int64)
        sums = ExactSums(zero, {column: Sum(zero, Fraction(1)) for column in self.columns})
        drawn = replace(self, sums=replace(self.sums, keys=None)).draw(name, sums, whole, KnownBits())
        if self.keys is None:
            return drawn
        numbers = drawn.table.take(to_arrow(np.zeros(len(self.keys), np.int64)))
        columns = {key: self.keys.table[key] for key in self.keys.columns}
        table = pa.table(columns | {column: numbers[column] for column in numbers.column_names})
        return replace(drawn, table=table)


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
        """Return quantiles bound to the records, or raise an error that says what is wrong with them."""
        if records.protect is not None:
            raise ParameterError(
                f"quantiles protect single records, but here each {records.protect} is protected, which may have "
                "several records: it could move a rank by more than one. Take the quantiles from a table with one row "
                f"per {records.protect}, and protect its records"
            )
        table = _prepared(quantiles, records)
        with located("quantiles"):
            check_column("column", quantiles.column, table, records.source)
            text = records.source.text_numbers
            column = Column(quantiles.column, Fraction(1), quantiles.nulls, None, text, use="ranked")
            check_comparable(table, column)
        expressions = rowwise.described(quantiles.where, quantiles.derive, records.computed)
        return BoundQuantiles(Ranks(quantiles), records, table, column, expressions, level)

    @property
    def mechanisms(self) -> Mapping[str, Mechanism]:
        """The mechanism of each column: none is summed."""
        return {}

    @property
    def used(self) -> tuple[str, ...]:
        """The columns that are read as numbers."""
        return (self.column.name,)

    @property
    def warnings(self) -> list[str]:
        """No warnings: nothing is rounded to a unit."""
        return []

    @property
    def _filtered(self) -> bool:
        return self.ranks.table.where is not None or self.records.filtered

    @property
    def policy(self) -> RecordPolicy:
        """What every record loses, as PRzCDP."""
        return self.ranks.policy(self._filtered)

    @property
    def pure_policy(self) -> RecordPolicy:
        """What every record loses, as PRDP."""
        return self.ranks.pure_policy(self._filtered)

    @property
    def pure_columns(self) -> RecordPolicy:
        """The same as the pure policy: all of it is pure."""
        return self.pure_policy

    def facts(self) -> TableFacts:
        """Return the facts that will be public about the table."""
        return TableFacts(
            rows=len(self.ranks.table.at),
            **_described_policies(self.policy, self.pure_policy),
            where=self.expressions.where,
            derived=self.expressions.derived,
            quantiles=self.ranks.facts(self.level),
        )

    @property
    def lossy(self) -> TableOfSet:
        """The table as far as the losses of records depend on it: each of its records loses the same."""
        return TableOfSet(self.table, self.policy, {}, None, self.ranks.table.derive, self.ranks.table.where)

    def read(self) -> tuple[list[int], int]:
        """Return how many records are smaller than each size of the grid, and how many there are. CONFIDENTIAL."""
        run = partial(progress.run, label="Ranking the records")
        return records_below(self.table, self.column, self.ranks.table.sizes, run)

    def draw(self, name: str, read: tuple[list[int], int], whole: Facts, bits: BitSource | None) -> ReleasedQuantiles:
        """Draw the quantiles. Everything in the result is public."""
        return ReleasedQuantiles(name, self.ranks.draw(*read, bits), whole, self.policy, self.pure_policy)

    def outline(self, name: str, whole: Facts) -> ReleasedQuantiles:
        """Return quantiles of no records: they show that quantiles can be drawn."""
        return self.draw(name, ([0] * len(self.ranks.table.sizes), 0), whole, KnownBits())


BoundTable = BoundSums | BoundQuantiles


def _prepared(table: Sums | Quantiles, records: Records) -> EngineTable:
    """Return the records with the derived columns of a table, filtered."""
    with located("derive"):
        derived = rowwise.derive(records.table, table.derive)
    with located("where"):
        return rowwise.keep(derived, table.where)


@dataclass(frozen=True)
class BoundRequest:
    """A request that is bound to the records of a session and checked. Nothing has been drawn yet.

    Attributes
    ----------
    request, records
        What was requested, and the records.
    tables
        The drawn tables.
    part
        The records that the request is about.
    facts
        What will be public about the release, without its ledger entry.
    outlines
        All tables as they would be released, with numbers that are drawn from zeros: they show that all of them can be
        released, how many rows they have, and how many cells each row of a roll-up is the sum of.
    """

    request: Request
    records: Records
    tables: Mapping[str, BoundTable]
    part: Part
    facts: Facts
    outlines: Mapping[str, ReleasedTable]

    @lazy
    def policy(self) -> RecordPolicy:
        """The loss of a record, as PRzCDP: that by the drawn tables, added up (Lemma PRzCDP-seq)."""
        return _added(table.policy for table in self.tables.values())

    @lazy
    def pure_policy(self) -> RecordPolicy | None:
        """The loss of a record as PRDP, or None if a mechanism has no such guarantee."""
        return _pure_policy(self.tables)

    @property
    def mechanisms(self) -> Mapping[str, Mechanism]:
        """The mechanisms of the columns that are in one drawn table only: what would still fit can be said of these."""
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
        """What the release costs, with everything that a ledger records about it."""
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
            pure_columns=_pure_columns(self.tables, self.policy),
            tables=len(self.tables),
            derived=derived,
        )

    def read(self) -> dict[str, Any]:
        """Read what is needed of the records for every drawn table, one scan each. CONFIDENTIAL."""
        for table in self.tables.values():
            check_readable(table.used, self.records, table.expressions.derived, table.expressions.where)
        return {name: table.read() for name, table in self.tables.items()}

    def draw(self, read: Mapping[str, Any], head: LedgerHead | None, bits: BitSource | None) -> Release:
        """Draw the noise of all tables, then derive the roll-ups. Everything in the result is public."""
        facts = self.facts.with_(ledger=head)
        drawn = {name: table.draw(name, read[name], facts, bits) for name, table in self.tables.items()}
        return Release.of(_with_rollups(self.request, drawn), facts, self.policy, self.pure_policy)


def bind(
    request: Request,
    records: Records,
    accountant: Accountant,
    *,
    accounting: str,
    dataset: str | None = None,
    private: bool = True,
) -> BoundRequest:
    """Return a request bound to the records, or raise an error that says what is wrong with it. No record is read.

    Parameters
    ----------
    request, records
        The request and the records.
    accountant
        What will be charged: a derived column needs a cap of its own if there are caps.
    accounting, dataset, private
        Which policy of each mechanism is charged, the name of the data set, and whether the bits are secret.
    """
    from slowscale import __version__

    tables: dict[str, BoundTable] = {}
    for name, table in request.drawn.items():
        with located("tables", name):
            if isinstance(table, Quantiles):
                tables[name] = BoundQuantiles.of(table, records, request.level)
            else:
                tables[name] = BoundSums.of(table, records, request.level, accounting)
                check_derived_columns(table, records, accountant)
    with located("partition"):
        part = _part(request, records)
    policy, pure = _added(table.policy for table in tables.values()), _pure_policy(tables)
    pure_columns = _pure_columns(tables, policy) if len(policy.terms) > 1 else None
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
        pure_columns=None if pure_columns is None else description(pure_columns),
        partition=None if part.by is None else PartitionFacts(by=part.by, labels=part.labels),
        tables={name: table.facts() for name, table in tables.items()},
    )
    if len(tables) == 1:  # its policy is that of the release
        facts = facts.with_(
            tables={name: one.with_(policy=None, pure_policy=None) for name, one in facts.tables.items()}
        )
    outlines = {name: table.outline(name, facts) for name, table in tables.items()}
    whole = _with_rollups(request, outlines)
    facts = facts.with_(tables={name: table.facts for name, table in whole.items()})
    json.dumps(facts.to_dict())  # facts that cannot be written must fail before anything is charged
    return BoundRequest(request, records, tables, part, facts, whole)


def _part(request: Request, records: Records) -> Part:
    """Return which records a request is about."""
    check_partition(request, records)
    first = next(iter(request.drawn.values()))
    if request.partition is None or not isinstance(first, Sums) or first.keys is None:
        return ALL_RECORDS
    labels = tuple(plain_label(label) for (label,) in first.keys.project(request.partition))
    return Part(request.partition, labels, first.keys.kinds[request.partition])


def _added(policies: Iterable[RecordPolicy]) -> RecordPolicy:
    """Return the sum of policies, by sequential composition."""
    total, *others = policies
    for policy in others:
        total = total + policy
    return total


def _pure_policy(tables: Mapping[str, BoundTable]) -> RecordPolicy | None:
    found = [table.pure_policy for table in tables.values()]
    known = [policy for policy in found if policy is not None]
    return _added(known) if len(known) == len(found) else None


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
                f"table {name!r}", f"cannot be derived from its cells: {error}", path=("tables", name)
            ) from None
        found[name] = rolled.with_facts(rolled.facts.with_(of=request.rollups[name].of))
    return found


def _exact(total: Sum) -> Exact:
    return Exact(total.counts, total.grain, total.rest, total.parts)


def _published_columns(noisy: Noisy, nonnegative: bool, at_least: int | None) -> dict[str, Any]:
    """Return the columns that are published for one summed column, by their suffixes.

    The interval is raised to the lower bound on the true sum. The estimate is raised to 0 only if the request asks for
    that, because it biases the estimate.
    """
    units = [noisy.units, *noisy.ends]
    for i, raised in enumerate((nonnegative, at_least is not None, at_least is not None)):
        if raised:
            units[i] = np.maximum(units[i], 0)
    estimate, low, high = (number_column(some, noisy.unit, side) for some, side in zip(units, (0, -1, 1), strict=True))
    error = rounded(noisy.se, STANDARD_ERROR_DIGITS)
    if noisy.transformed is not None:  # rounding must not lower it below the error of an empty cell
        error = np.where(error < noisy.mechanism.std(0), rounded(noisy.se, STANDARD_ERROR_DIGITS, 1), error)
    columns = {"": estimate, "_se": to_arrow(error), "_low": low, "_high": high}
    if noisy.transformed is not None:
        columns["_transformed"] = to_arrow(noisy.transformed)
    return columns


def _estimator(mechanism: Mechanism) -> str:
    estimator = getattr(mechanism, "estimator", NO_MEAN if "mean" in mechanism._missing_moments else "mean")
    return estimator if isinstance(estimator, str) else "a user-given function"


def description(thing: Mechanism | RecordPolicy) -> Any:
    """Return the description of a mechanism or policy, or None if it has a user-given function."""
    try:
        found = thing.to_dict()
    except ParameterError:
        return None
    return tuple(found) if isinstance(found, list) else found
