"""Sessions: the one place where tables and mechanisms meet.

A session is opened on a table of records. Each release is one scan of it: exact sums by public key, noise on each, and
a table that may be published.
"""

import json
import math
import os
import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import ibis.expr.operations as ops
import ibis.expr.types as ir
import numpy as np
import pyarrow as pa

from slowscale.accounting import Account, Accountant, Charge, DeferredLedger, Ledger, RecordPolicy, Spent
from slowscale.accounting.account import check_caps
from slowscale.accounting.ledger import dataset_name
from slowscale.accounting.record import COUNT, folded, plain_label
from slowscale.arrays import to_arrow
from slowscale.errors import (
    CapError,
    ConfidentialWarning,
    DataError,
    EngineError,
    LedgerError,
    ParameterError,
    ParameterTypeError,
    UnitWarning,
)
from slowscale.figures import rounded
from slowscale.mechanisms import Mechanism, TransformationMechanism
from slowscale.mechanisms.exact_sums import Exact
from slowscale.mechanisms.grid import as_unit, floats, largest, values
from slowscale.mechanisms.noisy import Noisy
from slowscale.parameters import check_flag, level_quantile
from slowscale.policy import ConstantPolicy, Policy
from slowscale.refusals import explained
from slowscale.release import ERROR_DIGITS, FORMAT, Release, check_interval
from slowscale.sampling import BitSource
from slowscale.tables import progress, rowwise
from slowscale.tables.engines import engine_of
from slowscale.tables.keys import Keys
from slowscale.tables.losses import Losses, record_losses
from slowscale.tables.sources import open_source
from slowscale.tables.sums import Column, ExactSums, Sum, check_labels, counted, exact_sums

PROTECTS = "one record (one row of the table): whether it is there, and what it holds"
ENTITIES = (
    "one {0}: whether its records are there, and what they hold. In the policy a column stands for the total of one "
    "{0} in a cell, and the losses add over cells"
)
COMBINES = "; the table is itself a query that combines rows, and a record is a row of its result"
SUFFIXES = ("", "_se", "_low", "_high", "_transformed")
TREATMENTS = ("error", "zero")
# What the published standard error is, by whether the error grows with the sum.
STANDARD_ERRORS = {
    False: "the root mean square error, rounding included; the same for every sum",
    True: "the standard deviation at the median estimate of the sum, rounding included: as likely too large as too "
    "small, and never below that of an empty cell",
}

# How a cap can be changed that is not a ledger's.
REMEDY = "open the session with a higher cap, Session(data, caps=…)"


@dataclass(frozen=True)
class Query:
    """What is asked of a table: checked, and nothing drawn yet."""

    table: ir.Table
    keys: Keys | None
    columns: dict[str, Column]
    mechanisms: dict[str, Mechanism]
    units: dict[str, Fraction]
    count: str | None
    level: float
    nonnegative: bool
    where: str | None
    derived: dict[str, str]
    entities: bool
    filtered: bool

    @property
    def policy(self) -> RecordPolicy:
        """What a record may lose by it, as PRzCDP."""
        terms = tuple(self._term(name, m.policy) for name, m in self.mechanisms.items())
        return RecordPolicy(terms, filtered=self.filtered)

    @property
    def pure_policy(self) -> RecordPolicy | None:
        """The same as PRDP, or None where a mechanism has no such guarantee."""
        found = self.pure_columns
        return found if found is not None and len(found.terms) == len(self.mechanisms) else None

    @property
    def pure_columns(self) -> RecordPolicy | None:
        """What a record may lose through the columns with such a guarantee, or None where no column has one."""
        found = {name: mechanism.pure_policy for name, mechanism in self.mechanisms.items()}
        terms = tuple(self._term(name, policy) for name, policy in found.items() if policy is not None)
        return RecordPolicy(terms, filtered=self.filtered) if terms else None

    def on_grid(self, name: str) -> bool:
        """Whether the true sums of a column are whole numbers of its unit, by the column's type."""
        if name == self.count:
            return True
        number = counted(self.table, self.columns[name])
        return number.exact and (number.grain / self.units[name]).denominator == 1

    def at_least(self, name: str) -> int | None:
        """Return the least that a true sum of a column can be, where that is known."""
        return 0 if name == self.count or isinstance(self.mechanisms[name], TransformationMechanism) else None

    @property
    def unit_warnings(self) -> list[str]:
        """What to say about units that are coarser than the noise."""
        found = [
            (name, mechanism._unit_warning(self.units[name], self.on_grid(name)))
            for name, mechanism in self.mechanisms.items()
        ]
        return [f"column {name!r}: {warning}" for name, warning in found if warning is not None]

    def _term(self, name: str, policy: Policy) -> tuple[str | None, Policy]:
        # Every record counts as 1, whatever its values; an entity counts as many as it has in the cell.
        single = name == self.count and not self.entities
        return (None, ConstantPolicy(policy(1), policy.notion)) if single else (name, policy)


class SizeClass(NamedTuple):
    """How wrong the released sums of one column are whose true size is from `low` to below `high`. CONFIDENTIAL."""

    column: str
    low: float
    high: float
    cells: int
    median_error: float
    median_relative_error: float


class Session:
    """Releases from one table of records.

    Parameters
    ----------
    data
        The records: a path of Parquet, CSV, Excel, Stata, SPSS or SAS files (globs and folders of Parquet too), a
        pandas, polars or pyarrow table, an Ibis table, a Spark DataFrame, or a database address such as
        "postgresql://host/database#table". A record is a row, or a line of a CSV file.
    ledger
        The file, or `ss.Ledger`, that every release is charged to before it is drawn. Without one the account is kept
        for this session only.
    caps
        The most that a record may lose, by column, when the ledger is made: {"payann": policy, "*": policy}.
    dataset
        The name of the data set, such as "cbp-2024". A ledger that is made by this session keeps it; one that has a
        name accepts no records of another name, nor of none. Blanks around the name do not count.
    protect
        A column that tells which records belong to one entity, such as a firm: then entities are protected, and the
        policy is that of an entity's total in a cell, added over cells.
    types
        For files and frames: declared types such as {"emp": "int64", "opened": "date"}. Nothing is guessed: a column of
        a CSV or Excel file without a type is text as it is written, and is read as exact decimals where it is summed.
        `ss.guess_types(path)` proposes types.
    csv
        How CSV files are written, where they differ from commas, double quotes, a header, UTF-8 and ISO dates:
        {"delimiter": ";", "encoding": "latin-1", "dates": "%d/%m/%Y", "decimal": ","}.
    bits
        A source of bits for tests. What is drawn from one that is not secret says NOT PRIVATE.

    Examples
    --------
    >>> import pandas as pd, slowscale as ss
    >>> farms = pd.DataFrame({"state": ["IA", "IA", "TX"], "cattle": [120, 4_000, 31_000]})
    >>> session = ss.Session(farms)
    >>> release = session.sum({"cattle": ss.Root(k=4, sigma=0.5)}, keys=ss.Keys.cross({"state": ["IA", "NV", "TX"]}))
    >>> release.table.column_names
    ['state', 'cattle', 'cattle_se', 'cattle_low', 'cattle_high', 'cattle_transformed']
    >>> print(release)
    Release of 3 groups by state
      cattle: Root(k=4, sigma=0.5, a=0, estimator=mean), unit 1
      A record may lose (PRzCDP), added up:
        cattle^(1/2) / (2·0.5²)
    >>> round(release.policy({"cattle": 31_000}), 1)
    352.1
    """

    def __init__(
        self,
        data: Any,
        ledger: str | os.PathLike[str] | Accountant | None = None,
        caps: Mapping[str, Policy] | None = None,
        *,
        dataset: str | None = None,
        protect: str | None = None,
        types: Mapping[str, str] | None = None,
        csv: Mapping[str, Any] | None = None,
        bits: BitSource | None = None,
    ) -> None:
        if bits is not None and not (hasattr(bits, "words") and hasattr(bits, "private")):
            raise ParameterTypeError(f"bits must be a source of bits, got {bits!r:.60}")
        self.dataset = dataset_name(dataset)
        if isinstance(ledger, Accountant):
            if caps is not None:
                raise ParameterError("caps must be given when the ledger is made: ss.Ledger(path, caps)")
            self._accountant = ledger
        elif ledger is None:
            self._accountant = Account(check_caps(caps), REMEDY)
        else:
            # It is made once the records could be opened: then the caps are known to name columns.
            self._accountant = DeferredLedger(ledger, caps, dataset=self.dataset)
        # Before the records are opened: those of another data set are not looked at.
        self._accountant.check_dataset(self.dataset)
        with self._attempt({"policy": None}):
            self._source = open_source(data, types, csv)
        self.table = self._source.table
        self.engine = engine_of(self.table).title
        self._check_names()
        self._combines = rowwise.check_source(self.table) or self._source.view
        # What a view does is not known: it may filter.
        self._filtered = self._source.filtered or self._combines or rowwise.filters(self.table)
        if protect is not None and protect not in self.table.columns:
            raise ParameterError(f"protect: there is no column {protect!r}; there are {', '.join(self.table.columns)}")
        self.protect = protect
        known = {"*", COUNT, *map(folded, self.table.columns)}
        for name in check_caps(caps):
            if folded(name) not in known:
                raise ParameterError(
                    f"caps names {name!r}, which is not a column; there are {', '.join(self.table.columns)}"
                )
        if isinstance(self._accountant, DeferredLedger) and self._accountant is not ledger:
            self._accountant = self._accountant.make()
        self._bits = bits
        self._queries: dict[str, Query] = {}
        self._errors: dict[str, tuple[SizeClass, ...]] = {}

    def __repr__(self) -> str:
        return f"<Session on {self.engine} with the columns {', '.join(self.table.columns)}>"

    @property
    def spent(self) -> Spent:
        """What a record may have lost by everything released so far: call it on a record, or print it."""
        return self._accountant.spent

    @property
    def ledger(self) -> Ledger | None:
        """The ledger that releases are charged to, or None where there is none."""
        found = self._accountant
        return found.ledger if isinstance(found, DeferredLedger) else found if isinstance(found, Ledger) else None

    def _no_column(self, argument: str, name: str, table: ir.Table) -> ParameterError:
        if name in self._source.unusable:
            return ParameterError(
                f"{argument}: column {name!r} has the type {self._source.unusable[name]}, which cannot be computed "
                "with; convert it before, or declare its type with types="
            )
        return ParameterError(f"{argument}: there is no column {name!r}; there are {', '.join(table.columns)}")

    def _check_names(self) -> None:
        for one, other in pairwise(sorted(self.table.columns, key=folded)):
            if folded(one) == folded(other):
                raise ParameterError(
                    f"data has the columns {one!r} and {other!r}, which the ledger and some engines take for one; "
                    "rename one of them"
                )

    def sum(
        self,
        columns: Mapping[str, Mechanism],
        by: str | Sequence[str] | None = None,
        keys: Keys | None = None,
        *,
        unit: Any = 1,
        level: float = 0.95,
        count: Mechanism | None = None,
        where: Any = None,
        derive: Mapping[str, Any] | None = None,
        nulls: str = "error",
        negatives: str = "error",
        nonnegative: bool = False,
        partition: str | None = None,
    ) -> Release:
        """Release the sums of columns, by public key or in total.

        Parameters
        ----------
        columns
            The columns to sum, each with its mechanism.
        by
            The columns to group by; those of `keys`, when not given.
        keys
            The public keys. Without them (and without `by`) the total over all records is released.
        unit
            The grid that results are rounded to: an int, a Decimal or text such as "0.01"; or a mapping of columns to
            their units.
        level
            The level of the intervals.
        count
            A mechanism to release the number of records with, as a further column "count".
        where
            A condition that records must meet: an Ibis expression, or SQL text such as "emp > 0". Row by row only.
        derive
            New columns, as Ibis expressions or SQL text, row by row only: {"pay_k": "payann / 1000"}.
        nulls
            "error", or "zero" to count missing values as 0.
        negatives
            For transformation mechanisms, which need sums >= 0: "error", or "zero" to count negative values as 0.
        nonnegative
            Whether to raise negative results to 0. That biases them upwards; the release says so.
        partition
            A key column by which releases are about different records, such as "state": a release for Texas and one for
            Iowa cost a record the larger of the two, not their sum.
        """
        mechanisms = _mechanisms(columns)
        _check_summed(mechanisms)
        if count is not None:
            mechanisms[COUNT] = _mechanism("count", count)
        name = "count" if count is not None else None
        return self._release(
            mechanisms, name, by, keys, unit, level, where, derive, nulls, negatives, nonnegative, partition
        )

    def count(
        self,
        by: str | Sequence[str] | None = None,
        keys: Keys | None = None,
        *,
        mechanism: Mechanism,
        level: float = 0.95,
        where: Any = None,
        derive: Mapping[str, Any] | None = None,
        nonnegative: bool = False,
        partition: str | None = None,
    ) -> Release:
        """Release the number of records, by public key or in total; see `sum` for the arguments.

        Every record counts as 1, so it loses the mechanism's policy at 1, whatever its values.
        """
        mechanisms = {"count": _mechanism("mechanism", mechanism)}
        return self._release(
            mechanisms, "count", by, keys, 1, level, where, derive, "error", "error", nonnegative, partition
        )

    def mean(
        self,
        columns: Mapping[str, Mechanism],
        by: str | Sequence[str] | None = None,
        keys: Keys | None = None,
        *,
        count: Mechanism,
        unit: Any = 1,
        level: float = 0.95,
        interval: str = "box",
        where: Any = None,
        derive: Mapping[str, Any] | None = None,
        nulls: str = "error",
        negatives: str = "error",
        nonnegative: bool = False,
        partition: str | None = None,
    ) -> Release:
        """Release sums and counts, and the means as their ratios `x_mean`.

        See `sum` for the arguments and `Release.ratio` for the intervals, which hold at their level unless an
        approximate one is asked for.
        """
        check_interval(interval)
        mechanisms = _mechanisms(columns)
        _check_summed(mechanisms)
        labels = _keys(by, keys)
        taken = {*(labels.columns if labels is not None else ()), *mechanisms, "count"}
        for name in mechanisms:
            if any(f"{name}_mean{suffix}" in taken for suffix in SUFFIXES):
                raise ParameterError(f"column '{name}_mean' would be in the release twice: derive it by another name")

        def with_means(release: Release) -> Release:
            for name in mechanisms:
                release = release.ratio(name, "count", f"{name}_mean", level, interval)
            return release

        both = {**mechanisms, COUNT: _mechanism("count", count)}
        return self._release(
            both, COUNT, by, keys, unit, level, where, derive, nulls, negatives, nonnegative, partition, with_means
        )

    def losses(self, release: Release) -> Losses:
        """Return how the losses of the records in a release are distributed. CONFIDENTIAL: for the curator only.

        It is computed in the engine, where the policy is pushed down as an expression; no record leaves it.
        """
        query = self._queries.get(release.facts["id"]) if isinstance(release, Release) else None
        if query is None:
            raise ParameterError("release must be one that this session made")
        return record_losses(query.table, query.policy, query.columns, query.keys, self.protect)

    def errors(self, release: Release) -> "tuple[SizeClass, ...]":
        """Return how wrong a release is, by size of the true sums. CONFIDENTIAL: for the curator only."""
        if not isinstance(release, Release) or release.facts["id"] not in self._errors:
            raise ParameterError("release must be one that this session made")
        return self._errors[release.facts["id"]]

    def _release(
        self,
        mechanisms: dict[str, Mechanism],
        count: str | None,
        by: str | Sequence[str] | None,
        keys: Keys | None,
        unit: Any,
        level: float,
        where: Any,
        derive: Mapping[str, Any] | None,
        nulls: str,
        negatives: str,
        nonnegative: bool,
        partition: str | None,
        finish: Callable[[Release], Release] = lambda release: release,
    ) -> Release:
        level_quantile(level)
        level = float(level)
        check_flag("nonnegative", nonnegative)
        for argument, given in (("nulls", nulls), ("negatives", negatives)):
            if given not in TREATMENTS:
                raise ParameterError(f'{argument} must be "error" or "zero", got {given!r}')
        units = _units(unit, mechanisms, count)
        derived = rowwise.derive(self.table, derive)
        table = rowwise.keep(derived, where)
        keys = _keys(by, keys)
        if keys is not None:
            for name in keys.columns:
                if name not in table.columns:
                    raise self._no_column("by", name, table)
            check_labels(table, keys)
        columns = {}
        for name, mechanism in mechanisms.items():
            if name == count:
                continue
            if name not in table.columns:
                raise self._no_column("columns", name, table)
            treated = negatives if isinstance(mechanism, TransformationMechanism) else None
            columns[name] = Column(name, units[name], nulls, treated, self._source.text_numbers)
        _check_names(mechanisms, keys)
        texts = {name: rowwise.words(derived, expression) for name, expression in (derive or {}).items()}
        query = Query(
            table=table,
            keys=keys,
            columns=columns,
            mechanisms=mechanisms,
            units=units,
            count=count,
            level=level,
            nonnegative=nonnegative,
            where=None if where is None else rowwise.words(derived, where),
            derived=texts,
            entities=self.protect is not None,
            filtered=where is not None or self._filtered,
        )
        labels = self._part(partition, keys, texts)
        kind = keys.kinds[partition] if keys is not None and partition is not None else None
        self._check_derived(columns, texts)
        facts = self._facts(query, partition, labels)
        finish(dry_run(query, facts))
        for warning in query.unit_warnings:
            warnings.warn(warning, UnitWarning, stacklevel=3)
        part = (partition, labels, kind)
        charge = Charge(query.policy, query.pure_policy, *part, self.protect, facts, query.pure_columns)
        with self._attempt(charge):
            # The caps come before the records: once a cap is used up, not even an error tells anything about them.
            with explained(self._accountant, charge, mechanisms):
                self._accountant.check(charge)
                self._accountant.ready()  # what could not be recorded is not looked at
            self._check_readable(query, where, derive)
            sums = exact_sums(
                table,
                list(columns.values()),
                keys,
                lambda asked: progress.run(asked, "Summing the records"),
                self.protect,
            )
            # Charged before released: from here on a crash wastes budget, and leaks nothing.
            with explained(self._accountant, charge, mechanisms):
                head = self._accountant.charge(charge)
            if head is not None:
                facts["ledger"] = head
        release = finish(draw(query, sums, facts, self._bits))
        if not sums.rows.any():  # told after the charge, so that the warning is not a question that costs nothing
            self._warn_if_empty(where)
        self._errors[release.facts["id"]] = errors_by_size(query, sums, release)
        self._queries[release.facts["id"]] = query
        return release

    @contextmanager
    def _attempt(self, asked: Charge | Mapping[str, Any]) -> Iterator[None]:
        """Write to the ledger that a release was refused or failed: such an error tells something about the records.

        Where it cannot be written, that is the error, and not what was found out about the records.
        """
        try:
            yield
        except (CapError, DataError, EngineError) as error:
            try:
                self._accountant.attempt(asked, error)
            except LedgerError as unwritten:
                raise unwritten from None
            raise

    def _check_readable(self, query: Query, where: Any, derive: Mapping[str, Any] | None) -> None:
        """Raise where a column is computed with that has values which are not of its declared type."""
        if not self._source.unreadable:
            return
        used = set(query.columns)
        table = self.table
        for name, expression in (derive or {}).items():
            used |= rowwise.used_columns(table, expression)
            table = rowwise.derive(table, {name: expression})
        if where is not None:
            used |= rowwise.used_columns(table, where)
        for name, dtype in self._source.unreadable.items():
            if name in used:
                raise DataError(
                    f"column {name!r} has values that are not {dtype}, its declared type; correct them, or declare the "
                    "column as string and convert it with derive="
                )

    def _facts(self, query: Query, partition: str | None, labels: tuple[Any, ...]) -> dict[str, Any]:
        """Return what will be public about a release, and can be written down."""
        from slowscale import __version__

        policy, pure = query.policy, query.pure_policy
        protects = PROTECTS if self.protect is None else ENTITIES.format(self.protect)
        keys = query.keys
        described = (
            {"columns": keys.kinds, "count": len(keys), "assumption": keys.assumption} if keys is not None else None
        )
        facts = {
            "format": FORMAT,
            "id": secrets.token_hex(8),
            "slowscale": __version__,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "private": self._bits is None or self._bits.private,
            "dataset": self.dataset,
            "protect": self.protect,
            "protects": protects + COMBINES * self._combines,
            "notion": "PRzCDP",
            "formula": str(policy),
            "policy": _writable(policy),
            "pure_policy": None if pure is None else _writable(pure),
            "keys": described,
            "partition": None if partition is None else {"by": partition, "labels": list(labels)},
            "where": query.where,
            "derived": query.derived,
            "columns": {name: _column_facts(query, name) for name in query.mechanisms},
            "ratios": {},
        }
        if query.pure_columns is not None and len(query.mechanisms) > 1:  # else it is the pure policy
            facts["pure_columns"] = _writable(query.pure_columns)
        json.dumps(facts)  # what could not be written must not be drawn
        return facts

    def _part(self, partition: Any, keys: Keys | None, derived: Mapping[str, str]) -> tuple[Any, ...]:
        """Return the labels of the column that tells which records a release is about."""
        if partition is None:
            return ()
        if keys is None or partition not in keys.columns:
            raise ParameterError(f"partition must be a key column, got {partition!r}")
        if partition in derived or not self._is_stored(partition):
            raise ParameterError(
                f"partition must be a column of the data as it is stored: {partition!r} may be derived"
            )
        return tuple(plain_label(label) for (label,) in keys.project(partition))

    def _is_stored(self, name: str) -> bool:
        """Whether a column is one of the stored table, under the name it has there."""
        if self._combines:
            return False
        if self._source.stored is not None:
            return name in self._source.stored
        return folded(rowwise.plain_columns(self.table).get(name, "")) == folded(name)

    def _check_derived(self, columns: Mapping[str, Column], derived: Mapping[str, str]) -> None:
        """Raise where a computed or renamed column would evade the caps: under a new name, or under a stored one's."""
        caps = self._accountant.caps
        capped = {folded(name) for name in caps}
        stored = {folded(name) for table in self.table.op().find(ops.PhysicalTable) for name in table.schema.names}
        for name in columns if caps else ():
            if name not in derived and self._is_stored(name):
                continue
            if folded(name) not in capped or (name not in derived and folded(name) in stored):
                raise ParameterError(
                    f"column {name!r} is derived or renamed and has no cap of its own: under a new name it could evade "
                    "the caps of what it is made from. Give it one when the ledger is made, ss.Ledger(path, caps), by "
                    "a name that no stored column has"
                )

    def _warn_if_empty(self, where: Any) -> None:
        if where is None:
            warnings.warn(
                "no record has any of the keys: what is released is noise on zeros. Do the labels of the keys look "
                "like those of the data? (confidential: do not publish this warning)",
                ConfidentialWarning,
                stacklevel=4,
            )


def _exact(total: Sum) -> Exact:
    return Exact(total.counts, total.grain, total.rest, total.parts)


class KnownBits:
    """Bits that are not secret, to try a mechanism out on an empty sum."""

    private = False

    def words(self, count: int) -> Any:
        """Return so many words."""
        return np.random.default_rng(count).integers(0, 2**64, count, dtype=np.uint64)


def draw(query: Query, sums: ExactSums, facts: dict[str, Any], bits: BitSource | None) -> Release:
    """Draw the noise and set up the table: from here on everything is public."""
    columns: dict[str, Any] = {}
    if query.keys is not None:
        columns = {name: query.keys.table[name] for name in query.keys.columns}
    for name, mechanism in query.mechanisms.items():
        exact = Exact(sums.rows, Fraction(1)) if name == query.count else _exact(sums.sums[name])
        noisy = mechanism._release(exact, query.units[name], query.level, bits)
        published = _published(noisy, query.nonnegative, query.at_least(name))
        columns |= {f"{name}{suffix}": values for suffix, values in published.items()}
    return Release(pa.table(columns), facts, query.policy, query.pure_policy, dict(query.mechanisms))


def dry_run(query: Query, facts: dict[str, Any]) -> Release:
    """Release sums of 0 with known bits, so that what cannot be drawn fails before anything is charged."""
    zero = np.zeros(1, np.int64)
    sums = ExactSums(zero, {name: Sum(zero, Fraction(1)) for name in query.columns})
    return draw(replace(query, keys=None), sums, facts, KnownBits())


def errors_by_size(query: Query, sums: ExactSums, release: Release) -> tuple[SizeClass, ...]:
    """Return the errors of a release by powers of ten of the true sums; cells without records apart."""
    classes = []
    for name in query.mechanisms:
        truth = sums.rows.astype(float) if name == query.count else sums.sums[name].floats()
        with np.errstate(all="ignore"):
            error = np.abs(release._floats(name) - truth)
            place = np.where(truth == 0, -np.inf, np.floor(np.log10(np.abs(truth))))
            for power in np.unique(place):
                here = place == power
                low, high = (0.0, 0.0) if np.isinf(power) else (10.0**power, 10.0 ** (power + 1))
                relative = math.nan if np.isinf(power) else float(np.median(error[here] / np.abs(truth[here])))
                classes.append(SizeClass(name, low, high, int(here.sum()), float(np.median(error[here])), relative))
    return tuple(classes)


def _published(noisy: Noisy, nonnegative: bool, at_least: int | None) -> dict[str, Any]:
    """Return the columns that are published of a release.

    The interval is raised to what the true sum is known to be at least. An estimate is raised to 0 only where that was
    asked for, as it is biased then.
    """
    units = [noisy.units, *noisy.ends]
    for i, raised in enumerate((nonnegative, at_least is not None, at_least is not None)):
        if raised:
            units[i] = np.maximum(units[i], 0)
    estimate, low, high = (_numbers(some, noisy.unit, side) for some, side in zip(units, (0, -1, 1), strict=True))
    error = rounded(noisy.se, ERROR_DIGITS)
    if noisy.transformed is not None:  # rounding must not bring it below that of an empty cell
        error = np.where(error < noisy.mechanism.std(0), rounded(noisy.se, ERROR_DIGITS, 1), error)
    columns = {"": estimate, "_se": to_arrow(error), "_low": low, "_high": high}
    if noisy.transformed is not None:
        columns["_transformed"] = to_arrow(noisy.transformed)
    return columns


def _numbers(units: Any, unit: Fraction, side: int) -> pa.Array:
    """Return whole numbers of units as a column: integers, decimals beyond 64 bits, or floats rounded to a side."""
    numbers = values(units, unit, side)
    if numbers.dtype != object:
        return to_arrow(numbers)
    if largest(numbers) < 10**38:
        return pa.array(numbers, pa.decimal128(38, 0))
    return to_arrow(floats(units, unit, side))


def _column_facts(query: Query, name: str) -> dict[str, Any]:
    mechanism = query.mechanisms[name]
    facts = {
        "kind": "count" if name == query.count else "sum",
        "mechanism": _writable(mechanism),
        "described": str(mechanism),
        "unit": str(query.units[name]),
        "level": query.level,
        "nonnegative": query.nonnegative,
        "estimator": "biased: clipped at 0" if query.nonnegative else _estimator(mechanism),
        "se": STANDARD_ERRORS[mechanism._error_grows],
        "at_least": query.at_least(name),
        "on_grid": query.on_grid(name),
        "rounding_bias": mechanism._rounding_bias(query.units[name], query.on_grid(name)),
    }
    if name == query.count:
        return facts
    return {**facts, "nulls": query.columns[name].nulls, "negatives": query.columns[name].negatives or "kept"}


def _estimator(mechanism: Mechanism) -> str:
    estimator = getattr(mechanism, "estimator", "mean")
    return estimator if isinstance(estimator, str) else "a function of the curator's"


def _writable(thing: Mechanism | RecordPolicy) -> Any:
    """Return the description of a mechanism or policy, or None where it has a function without a name."""
    try:
        return thing.to_dict()
    except ParameterError:
        return None


def _mechanism(name: str, mechanism: Any) -> Mechanism:
    if not isinstance(mechanism, Mechanism):
        raise ParameterTypeError(f"{name} needs a mechanism such as ss.Gaussian(sigma), got {mechanism!r:.60}")
    return mechanism


def _mechanisms(columns: Any) -> dict[str, Mechanism]:
    if not isinstance(columns, Mapping) or not columns:
        raise ParameterTypeError(f"columns must be a mapping of columns to mechanisms, got {columns!r:.60}")
    for name in columns:
        if not isinstance(name, str) or not name:
            raise ParameterTypeError(f"columns must be named by text, got {name!r}")
    return {name: _mechanism(f"columns[{name!r}]", mechanism) for name, mechanism in columns.items()}


def _check_summed(mechanisms: Mapping[str, Mechanism]) -> None:
    """Raise where a column to sum has a reserved name."""
    for column in mechanisms:
        if folded(column) in (COUNT, "*"):
            meaning = "the number of records" if folded(column) == COUNT else "the cap of every other column"
            raise ParameterError(f"columns: {column!r} is what {meaning} is called; derive it by another name")


def _units(unit: Any, mechanisms: Mapping[str, Mechanism], count: str | None) -> dict[str, Fraction]:
    if not isinstance(unit, Mapping):
        unit = {name: unit for name in mechanisms if name != count}
    for name in unit:
        if name not in mechanisms or name == count:
            raise ParameterError(f"unit names {name!r}, which is not summed; summed are {', '.join(mechanisms)}")
    return {name: as_unit(unit.get(name, 1)) for name in mechanisms}


def _keys(by: Any, keys: Any) -> Keys | None:
    names = [by] if isinstance(by, str) else None if by is None else by
    if names is not None and not (isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)):
        raise ParameterTypeError(f"by must be a column or a list of columns, got {by!r:.60}")
    if keys is None:
        if names:
            raise ParameterError(
                "keys must be given with by: group labels found in the data may give records away. Use "
                "ss.Keys.from_frame, .cross or .from_file, or say that they are public with ss.Keys.public_in(data, by)"
            )
        return None
    if not isinstance(keys, Keys):
        raise ParameterTypeError(
            f"keys must be ss.Keys, for instance ss.Keys.from_frame(keys); got {type(keys).__name__}"
        )
    if names is None:
        return keys
    if sorted(names) != sorted(keys.columns):
        raise ParameterError(f"by must name the columns of keys ({', '.join(keys.columns)}), got {', '.join(names)}")
    return Keys(keys.table.select(names), keys.assumption)


def _check_names(mechanisms: Mapping[str, Mechanism], keys: Keys | None) -> None:
    """Raise where two columns of the release would have one name."""
    taken: dict[str, str] = {} if keys is None else dict.fromkeys(keys.columns, "a key column")
    for name, mechanism in mechanisms.items():
        if name in taken:
            raise ParameterError(f"column {name!r} is {taken[name]}, so it cannot be summed too")
        for suffix in SUFFIXES if isinstance(mechanism, TransformationMechanism) else SUFFIXES[:-1]:
            if name + suffix in taken or (suffix and name + suffix in mechanisms):
                raise ParameterError(
                    f"column {name + suffix!r} would be in the release twice: derive it by another name"
                )
            taken[name + suffix] = f"the {suffix.strip('_') or 'estimate'} of {name}"
