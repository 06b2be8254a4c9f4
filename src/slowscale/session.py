"""Sessions: the one place where tables and mechanisms meet.

A session is opened on a table of records. Each release is one scan of it: exact sums by public key, noise on each, and
a table that may be published.
"""

import difflib
import json
import os
import secrets
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import ibis.expr.operations as ops
import ibis.expr.types as ir

from slowscale.accounting import Account, Accountant, Charge, DeferredLedger, Ledger, RecordPolicy, Spent
from slowscale.accounting.account import check_caps
from slowscale.accounting.ledger import dataset_name
from slowscale.accounting.record import COUNT, folded, plain_label
from slowscale.columns import ColumnPolicy, column_policies, example_sums
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
from slowscale.facts import Facts, KeysFacts, LedgerHead, PartitionFacts
from slowscale.figures import figure
from slowscale.mechanisms import Mechanism, TransformationMechanism
from slowscale.policy import Policy
from slowscale.publishing import Prepared, SizeClass, column_facts, draw, dry_run, errors_by_size, writable
from slowscale.query import Query
from slowscale.refusals import explained
from slowscale.release import Release
from slowscale.sampling import BitSource
from slowscale.tables import progress, rowwise
from slowscale.tables.engines import engine_of
from slowscale.tables.keys import Keys
from slowscale.tables.losses import Losses, record_losses
from slowscale.tables.sources import open_source
from slowscale.tables.sums import Column, check_labels, exact_sums

PROTECTS = "one record (one row of the table): whether it is there, and what it holds"
ENTITIES = (
    "one {0}: whether its records are there, and what they hold. In the policy a column stands for the total of one "
    "{0} in a cell, and the losses add over cells"
)
COMBINES = "; the table is itself a query that combines rows, and a record is a row of its result"
# Which records a release is about: a column, its labels and what those are; None, () and None for all records.
Part = tuple[str | None, tuple[Any, ...], str | None]
# How a cap can be changed that is not a ledger's.
REMEDY = "open the session with a higher cap, Session(data, caps=…)"


@dataclass(frozen=True)
class Preview:
    """What a query would cost, and how exact it would be: public facts only.

    Attributes
    ----------
    policy, pure_policy
        What a record may lose by it, as PRzCDP and (or None) as PRDP.
    columns
        Each column with its policies, its unit and its errors (`column.errors(sums)`).
    warnings
        What `release` would warn of.
    refusal
        The `CapError` that `release` would raise now, or None.
    spent
        What a record may have lost before.
    """

    policy: RecordPolicy
    pure_policy: RecordPolicy | None
    columns: tuple[ColumnPolicy, ...]
    warnings: tuple[str, ...]
    refusal: CapError | None
    spent: Spent

    def __str__(self) -> str:
        lines = [f"A record may lose ({self.policy.notion}): {self.policy}"]
        for column in self.columns:
            told = [f"{figure(column.errors(at))} for a sum of {figure(at)}" for at in example_sums(column, ())]
            lines.append(f"  {column.name}: {column.mechanism}; standard error {', '.join(told)}")
        lines += self.warnings
        return "\n".join([*lines, "No cap is in the way." if self.refusal is None else f"Refused: {self.refusal}"])


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
        self._queries: dict[str, Prepared] = {}
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
        near = difflib.get_close_matches(name, table.columns, n=1)
        suggestion = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(table.columns)}"
        return ParameterError(f"{argument}: there is no column {name!r}; {suggestion}")

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
        return self._run(
            Query(
                columns, by, keys, count=count, unit=unit, level=level, where=where, derive=derive, nulls=nulls,
                negatives=negatives, nonnegative=nonnegative, partition=partition,
            )
        )  # fmt: skip

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
        if not isinstance(mechanism, Mechanism):
            raise ParameterTypeError(f"mechanism must be one such as ss.Gaussian(sigma), got {mechanism!r:.60}")
        return self._run(
            Query(
                {}, by, keys, count=mechanism, level=level, where=where, derive=derive, nonnegative=nonnegative,
                partition=partition,
            )
        )  # fmt: skip

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
        return self._run(
            Query(
                columns, by, keys, count=count, unit=unit, level=level, means=interval, where=where, derive=derive,
                nulls=nulls, negatives=negatives, nonnegative=nonnegative, partition=partition,
            )
        )  # fmt: skip

    def release(self, query: Query) -> Release:
        """Carry out a query: charge the ledger, then draw and return what may be published."""
        return self._run(query)

    def preview(self, query: Query) -> "Preview":
        """Return what a query would cost and how exact it would be. No record is read, and nothing is charged."""
        prepared, part = self._prepare(query)
        facts = self._facts(prepared, *part[:2])
        prepared.finish(dry_run(prepared, facts))
        refusal = None
        charge = self._charged(prepared, facts, part)
        try:
            with explained(self._accountant, charge, prepared.mechanisms):
                self._accountant.check(charge)
        except CapError as error:
            refusal = error
        columns = column_policies(
            prepared.policy,
            prepared.mechanisms,
            prepared.units,
            {name: prepared.on_grid(name) for name in prepared.mechanisms},
        )
        return Preview(
            prepared.policy, prepared.pure_policy, columns, tuple(prepared.unit_warnings), refusal, self.spent
        )

    def losses(self, release: Release) -> Losses:
        """Return how the losses of the records in a release are distributed. CONFIDENTIAL: for the curator only.

        It is computed in the engine, where the policy is pushed down as an expression; no record leaves it.
        """
        query = self._queries.get(release.facts.id) if isinstance(release, Release) else None
        if query is None:
            raise ParameterError("release must be one that this session made")
        return record_losses(query.table, query.policy, query.columns, query.keys, self.protect)

    def errors(self, release: Release) -> "tuple[SizeClass, ...]":
        """Return how wrong a release is, by size of the true sums. CONFIDENTIAL: for the curator only."""
        if not isinstance(release, Release) or release.facts.id not in self._errors:
            raise ParameterError("release must be one that this session made")
        return self._errors[release.facts.id]

    def _prepare(self, query: Query) -> tuple[Prepared, Part]:
        """Return a query bound to the table, and which records it is about; or raise what is wrong with it."""
        if not isinstance(query, Query):
            raise ParameterTypeError(f"query must be an ss.Query, got {type(query).__name__}")
        derived = rowwise.derive(self.table, query.derive)
        table = rowwise.keep(derived, query.where)
        keys = query.keys
        if keys is not None:
            for name in keys.columns:
                if name not in table.columns:
                    raise self._no_column("by", name, table)
            check_labels(table, keys)
        columns = {}
        for name, mechanism in query.columns.items():
            if name not in table.columns:
                raise self._no_column("columns", name, table)
            treated = query.negatives if isinstance(mechanism, TransformationMechanism) else None
            columns[name] = Column(name, query.units[name], query.nulls, treated, self._source.text_numbers)
        texts = {name: rowwise.words(derived, expression) for name, expression in (query.derive or {}).items()}
        prepared = Prepared(
            table=table,
            keys=keys,
            columns=columns,
            mechanisms=query.mechanisms,
            units=query.units,
            count=query.counted,
            level=query.level,
            nonnegative=query.nonnegative,
            where=None if query.where is None else rowwise.words(derived, query.where),
            derived=texts,
            entities=self.protect is not None,
            filtered=query.where is not None or self._filtered,
            means=query.means,
        )
        partition = query.partition
        labels = self._part(partition, keys, texts)
        kind = keys.kinds[partition] if keys is not None and partition is not None else None
        self._check_derived(columns, texts)
        return prepared, (partition, labels, kind)

    def _run(self, query: Query) -> Release:
        prepared, part = self._prepare(query)
        facts = self._facts(prepared, *part[:2])
        prepared.finish(dry_run(prepared, facts))
        for warning in prepared.unit_warnings:
            warnings.warn(warning, UnitWarning, stacklevel=3)
        charge = self._charged(prepared, facts, part)
        with self._attempt(charge):
            # The caps come before the records: once a cap is used up, not even an error tells anything about them.
            with explained(self._accountant, charge, prepared.mechanisms):
                self._accountant.check(charge)
                self._accountant.ready()  # what could not be recorded is not looked at
            self._check_readable(prepared, query.where, query.derive)
            sums = exact_sums(
                prepared.table,
                list(prepared.columns.values()),
                prepared.keys,
                lambda asked: progress.run(asked, "Summing the records"),
                self.protect,
            )
            # Charged before released: from here on a crash wastes budget, and leaks nothing.
            with explained(self._accountant, charge, prepared.mechanisms):
                head = self._accountant.charge(charge)
            if head is not None:
                facts = replace(facts, ledger=LedgerHead(**head))
        release = prepared.finish(draw(prepared, sums, facts, self._bits))
        if not sums.rows.any():  # told after the charge, so that the warning is not a question that costs nothing
            self._warn_if_empty(query.where)
        self._errors[release.facts.id] = errors_by_size(prepared, sums, release)
        self._queries[release.facts.id] = prepared
        return release

    def _charged(self, query: Prepared, facts: Facts, part: Part) -> Charge:
        """Return what a release costs, with all that is written down about it."""
        return Charge(query.policy, query.pure_policy, *part, self.protect, facts.to_dict(), query.pure_columns)

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

    def _check_readable(self, query: Prepared, where: Any, derive: Mapping[str, Any] | None) -> None:
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

    def _facts(self, query: Prepared, partition: str | None, labels: tuple[Any, ...]) -> Facts:
        """Return what will be public about a release, and can be written down."""
        from slowscale import __version__

        policy, pure, keys = query.policy, query.pure_policy, query.keys
        protects = PROTECTS if self.protect is None else ENTITIES.format(self.protect)
        facts = Facts(
            id=secrets.token_hex(8),
            slowscale=__version__,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            private=self._bits is None or self._bits.private,
            dataset=self.dataset,
            protect=self.protect,
            protects=protects + COMBINES * self._combines,
            notion="PRzCDP",
            formula=str(policy),
            policy=writable(policy),
            pure_policy=None if pure is None else writable(pure),
            cells=None if keys is None else KeysFacts(keys.kinds, len(keys), keys.assumption, keys.from_data),
            partition=None if partition is None else PartitionFacts(partition, labels),
            where=query.where,
            derived=query.derived,
            columns={name: column_facts(query, name) for name in query.mechanisms},
        )
        if query.pure_columns is not None and len(query.mechanisms) > 1:  # else it is the pure policy
            facts = replace(facts, pure_columns=writable(query.pure_columns))
        json.dumps(facts.to_dict())  # what could not be written must not be drawn
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
