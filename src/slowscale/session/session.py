"""The session itself: it reads the records, charges the ledger, and then draws the noise."""

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, overload

from slowscale.accounting import Account, Accountant, Charge, DeferredLedger, Ledger, Spent
from slowscale.accounting.account import check_caps
from slowscale.accounting.ledger import dataset_name
from slowscale.errors import (
    CapError,
    DataError,
    EngineError,
    LedgerError,
    ParameterError,
    ParameterTypeError,
    UnitWarning,
)
from slowscale.facts import Facts, LedgerHead
from slowscale.mechanisms import Mechanism
from slowscale.mechanisms.calibration import CLOSED
from slowscale.mechanisms.charged import check_accounting
from slowscale.parameters import check_flag
from slowscale.policy import Policy
from slowscale.publishing import BoundQuery, SizeClass, draw, dry_run, errors_by_size
from slowscale.quantiles import PrivateQuantiles, QuantilesQuery
from slowscale.query import Query
from slowscale.refusals import explained, explained_quantiles
from slowscale.release import Release, ReleaseSet
from slowscale.release.ratios import check_interval
from slowscale.sampling import BitSource
from slowscale.session.binding import bind, charge_for, release_facts
from slowscale.session.checks import (
    check_caps_name_columns,
    check_column_names,
    check_protect,
    check_readable,
    warn_if_empty,
    warn_if_ranks_are_not_capped,
)
from slowscale.session.inspection import Inspection, inspected
from slowscale.session.preview import Preview, SetPreview, bound_columns, set_preview
from slowscale.session.ranking import bind_quantiles
from slowscale.session.records import Records
from slowscale.session.repeating import ANOTHER, check_repeated, query_of
from slowscale.session.sets import BoundSet, bound_set
from slowscale.table_set import TableSet
from slowscale.tables import progress
from slowscale.tables.engines import engine_of
from slowscale.tables.keys import Keys
from slowscale.tables.losses import Losses, TableOfSet, record_losses, set_losses
from slowscale.tables.ranks import records_below
from slowscale.tables.rowwise import Expression
from slowscale.tables.sources import open_source
from slowscale.tables.sums import exact_sums
from slowscale.typing import DataLike, Scalar, UnitLike

# How a user can change a cap that is not a ledger's.
CHANGE_CAPS = "open the session with a higher cap, Session(data, caps=…)"


class Session:
    """Releases from one table of records.

    Parameters
    ----------
    data
        The records: a path of Parquet, CSV, Excel, Stata, SPSS or SAS files (globs and folders of Parquet too), a
        pandas, polars or pyarrow table, an Ibis table, a Spark DataFrame, or a database address such as
        "postgresql://host/database#table". A record is a row, or a line of a CSV file.
    ledger
        The ledger file, or an `ss.Ledger`. Every release is charged to it before noise is drawn. Without a ledger the
        account lasts as long as the session.
    caps
        The largest total loss that a record may have, by column, for a new ledger: {"payann": policy, "*": policy}.
    dataset
        The name of the data set, such as "cbp-2024". A new ledger keeps it. A ledger with a name refuses records of a
        data set with another name or without one. Blanks around the name are ignored.
    accounting
        Which policy of a mechanism m a release is charged: "closed" for the formula `m.policy`, or "tight" for
        `m.tight_policy`, the smallest policy that is known. The tight policy is never larger, and the noise is the
        same. The first release with a new shape of noise takes longer, because a table is computed.
    protect
        A column that tells which records belong to one entity, such as a firm. Entities are then protected instead of
        single records: the policy applies to the entity's total in a cell, and the losses add over cells.
    types
        For files and frames: declared types such as {"emp": "int64", "opened": "date"}. Nothing is guessed: a column of
        a CSV or Excel file without a declared type is text, which is read as exact decimals if it is summed.
        `ss.guess_types(path)` proposes types.
    csv
        The format of CSV files, if it differs from commas, double quotes, a header, UTF-8 and ISO dates:
        {"delimiter": ";", "encoding": "latin-1", "dates": "%d/%m/%Y", "decimal": ","}.
    bits
        A source of bits for tests. A release drawn from bits that are not secret says NOT PRIVATE.

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
        data: DataLike,
        ledger: str | os.PathLike[str] | Accountant | None = None,
        caps: Mapping[str, Policy] | None = None,
        *,
        dataset: str | None = None,
        accounting: str = CLOSED,
        protect: str | None = None,
        types: Mapping[str, str] | None = None,
        csv: Mapping[str, Any] | None = None,
        bits: BitSource | None = None,
    ) -> None:
        if bits is not None and not (hasattr(bits, "words") and hasattr(bits, "private")):
            raise ParameterTypeError(f"bits must be a source of bits, got {bits!r:.60}")
        self.dataset = dataset_name(dataset)
        self.accounting = check_accounting(accounting)
        self._accountant = _accountant(ledger, caps, self.dataset)
        # Checked first, so that records of the wrong data set are never opened.
        self._accountant.check_dataset(self.dataset)
        with self._recording_failures({"policy": None}):
            source = open_source(data, types, csv)
        self.table = source.table
        self.engine = engine_of(self.table).title
        check_column_names(self.table)
        self._records = Records.of(source, protect)
        check_protect(protect, self.table)
        self.protect = protect
        check_caps_name_columns(caps, self.table)
        # A new ledger is written only now: the records could be opened, and its caps name columns.
        if isinstance(self._accountant, DeferredLedger) and self._accountant is not ledger:
            self._accountant = self._accountant.make()
        self._bits = bits
        self._queries: dict[str, BoundQuery] = {}
        self._errors: dict[str, tuple[SizeClass, ...]] = {}
        self._sets: dict[str, TableSet] = {}

    def __repr__(self) -> str:
        return f"<Session on {self.engine} with the columns {', '.join(self.table.columns)}>"

    @property
    def spent(self) -> Spent:
        """The total loss of a record by everything released so far: call it on a record, or print it."""
        return self._accountant.spent

    @property
    def ledger(self) -> Ledger | None:
        """The ledger that releases are charged to, or None if there is none."""
        found = self._accountant
        return found.ledger if isinstance(found, DeferredLedger) else found if isinstance(found, Ledger) else None

    def sum(
        self,
        columns: Mapping[str, Mechanism],
        by: str | Sequence[str] | None = None,
        keys: Keys | None = None,
        *,
        unit: UnitLike | Mapping[str, UnitLike] = 1,
        level: float = 0.95,
        count: Mechanism | None = None,
        where: Expression | None = None,
        derive: Mapping[str, Expression] | None = None,
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
            The columns to group by. The default is the columns of `keys`.
        keys
            The public keys. Without `keys` and `by`, the total over all records is released.
        unit
            The grid that results are rounded to: an int, a Decimal or text such as "0.01"; or a mapping of columns to
            their units.
        level
            The level of the intervals.
        count
            A mechanism for the number of records, which is released as a further column "count".
        where
            A condition that records must meet: an Ibis expression, or SQL text such as "emp > 0". It is evaluated row
            by row.
        derive
            New columns, as Ibis expressions or SQL text, evaluated row by row: {"pay_k": "payann / 1000"}.
        nulls
            "error", or "zero" to count missing values as 0.
        negatives
            For transformation mechanisms, which need sums >= 0: "error", or "zero" to count negative values as 0.
        nonnegative
            Whether to raise negative results to 0. This biases them upwards, and the release says so.
        partition
            A key column that splits the records into disjoint parts, such as "state": a release for Texas and one for
            Iowa then cost a record the larger of the two losses, not their sum.
        """
        return self._release(
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
        where: Expression | None = None,
        derive: Mapping[str, Expression] | None = None,
        nonnegative: bool = False,
        partition: str | None = None,
    ) -> Release:
        """Release the number of records, by public key or in total; see `sum` for the arguments.

        Every record counts as 1, so its loss is the mechanism's policy at 1, whatever its values are.
        """
        if not isinstance(mechanism, Mechanism):
            raise ParameterTypeError(f"mechanism must be one such as ss.Gaussian(sigma), got {mechanism!r:.60}")
        return self._release(
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
        unit: UnitLike | Mapping[str, UnitLike] = 1,
        level: float = 0.95,
        interval: str = "box",
        where: Expression | None = None,
        derive: Mapping[str, Expression] | None = None,
        nulls: str = "error",
        negatives: str = "error",
        nonnegative: bool = False,
        partition: str | None = None,
    ) -> Release:
        """Release sums and counts, and the means as their ratios `x_mean`.

        See `sum` for the arguments, and `Release.ratio` for the kinds of intervals.
        """
        check_interval(interval)
        return self._release(
            Query(
                columns, by, keys, count=count, unit=unit, level=level, means=interval, where=where, derive=derive,
                nulls=nulls, negatives=negatives, nonnegative=nonnegative, partition=partition,
            )
        )  # fmt: skip

    def quantiles(
        self,
        column: str,
        at: Sequence[Scalar] = (0.1, 0.5, 0.9),
        *,
        loss: Scalar,
        grid: Sequence[Scalar] | None = None,
        level: float = 0.95,
        where: Expression | None = None,
        derive: Mapping[str, Expression] | None = None,
        nulls: str = "error",
    ) -> PrivateQuantiles:
        """Release quantiles of the sizes of the records, such as the median size, on a public grid of sizes.

        The size of a record is its absolute value. A record moves ranks by one whatever its size, so every record loses
        the same, and little. What is returned may be published, and choices that depend on it are safe if caps that
        were fixed before limit all that is charged. Caps treat it as a count. If there are caps, but none for "count"
        or "*", or a ledger without caps, an `ss.CapWarning` says so.

        Parameters
        ----------
        column
            The column.
        at
            The share of smaller records that each quantile aims at, increasing: 0.5 for the median.
        loss
            The total PRzCDP loss of a record by all the quantiles together. It is split evenly among them.
        grid
            Public sizes, increasing, of which each quantile is one. The default is `ss.size_grid()`: 20 sizes per
            factor of ten, from 1 to 10¹².
        level
            The probability with which `rank_error` holds.
        where, derive, nulls
            As for `sum`.

        Notes
        -----
        Each quantile is drawn by the exponential mechanism, exactly; `slowscale.quantiles` has the proof of the loss.
        Sizes of the grid between two neighbouring values of the records have the same rank. Which of them is drawn is
        arbitrary, so with few different values a quantile may be far from all of them. `ss.advise` takes at most 8.
        If entities with several records are protected, an entity may move a rank by more than one: this is refused.

        Examples
        --------
        >>> import slowscale as ss
        >>> session = ss.Session(ss.datasets.establishments(2_000))
        >>> found = session.quantiles("emp", [0.5, 0.9], loss=0.1)
        >>> list(found), found["p50"] in found.grid
        (['p50', 'p90'], True)
        """
        query = QuantilesQuery.of(column, at, loss, grid)
        query.rank_error(level)  # raises if the level is wrong
        warn_if_ranks_are_not_capped(self._accountant.account.caps, not isinstance(self._accountant, Account))
        private = self._bits is None or self._bits.private
        bound = bind_quantiles(query, self._records, where, derive, nulls, self.dataset, private)
        facts = bound.facts
        with self._recording_failures(bound.charge):
            with explained_quantiles(self._accountant, query.loss):
                self._accountant.check(bound.charge)
                self._accountant.ready()
            check_readable([column], self._records, derive, where)
            below, rows = records_below(
                bound.table, bound.column, query.grid, lambda asked: progress.run(asked, "Ranking the records")
            )
            # Charged before anything is drawn, as every release.
            with explained_quantiles(self._accountant, query.loss):
                head = self._accountant.charge(bound.charge)
            if head is not None:
                facts = replace(facts, ledger=LedgerHead(**head))
        return PrivateQuantiles.of(query, query.draw(below, rows, self._bits), level, facts)

    @overload
    def release(self, query: Query) -> Release: ...

    @overload
    def release(self, query: TableSet) -> ReleaseSet: ...

    def release(self, query: Query | TableSet) -> Release | ReleaseSet:
        """Carry out a query: charge the ledger, then draw the noise and return what may be published.

        A set of tables is charged as a whole: all of its tables are released, or none.
        """
        return self._release_set(query) if isinstance(query, TableSet) else self._release(query)

    @overload
    def preview(self, query: Query) -> Preview: ...

    @overload
    def preview(self, query: TableSet) -> SetPreview: ...

    def preview(self, query: Query | TableSet) -> Preview | SetPreview:
        """Return the cost and the accuracy of a query or of a set of tables. No record is read, nothing is charged."""
        if isinstance(query, TableSet):
            found = self._bind_set(query)
            refusal = self._refusal(found.charge(self.protect), found.mechanisms)
            return set_preview(found, refusal, self.spent, self.accounting)
        bound, facts = self._bind(query)
        refusal = self._refusal(charge_for(bound, self._records, facts), bound.mechanisms)
        warned, columns = tuple(bound.unit_warnings), bound_columns(bound)
        return Preview(bound.policy, bound.pure_policy, columns, warned, refusal, self.spent, self.accounting)

    def _refusal(self, charge: Charge, mechanisms: Mapping[str, Mechanism]) -> CapError | None:
        """Return the error with which a charge would be refused now, or None."""
        try:
            with self._explained(charge, mechanisms):
                self._accountant.check(charge)
        except CapError as error:
            return error
        return None

    @overload
    def inspect(self, query: Query, *, duplicates: bool = True) -> Inspection: ...

    @overload
    def inspect(self, query: TableSet, *, duplicates: bool = True) -> dict[str, Inspection]: ...

    def inspect(self, query: Query | TableSet, *, duplicates: bool = True) -> Inspection | dict[str, Inspection]:
        """Look at the records before a release: what is missing, outside the keys or twice, what records would lose,
        and which errors to expect. CONFIDENTIAL: for the curator only.

        Nothing is drawn, charged or written to the ledger. What you choose after this look depends on the records, and
        the guarantee does not cover that choice, unless it was fixed or public before.

        Parameters
        ----------
        query
            What would be released. For a set of tables there is one inspection for each drawn table, whose losses are
            those by this table alone.
        duplicates
            Whether to count exact copies of records, which reads all columns. For a set they are counted once.

        Examples
        --------
        >>> import pandas as pd, slowscale as ss
        >>> farms = pd.DataFrame({"state": ["IOWA", "IOWA", "TEXAS", "TEXSA"], "cattle": [120, 120, 31_000, 900]})
        >>> query = ss.Query({"cattle": ss.Gaussian(75)}, keys=ss.Keys.cross({"state": ["IOWA", "TEXAS"]}))
        >>> found = ss.Session(farms).inspect(query)
        >>> found.records, found.duplicates, found.outside
        (4, 1, 1)
        >>> found.near_misses[0].label, found.near_misses[0].key
        ('TEXSA', 'TEXAS')
        """
        check_flag("duplicates", duplicates)
        if isinstance(query, TableSet):
            self._bind_set(query)  # raises if a table could not be derived
            first = next(iter(query.drawn))
            return {
                name: self.inspect(one, duplicates=duplicates and name == first) for name, one in query.drawn.items()
            }
        bound, _ = self._bind(query)
        refusals: tuple[str, ...] = ()
        try:
            check_readable(query.columns, self._records, query.derive, query.where)
        except DataError as error:
            refusals = (str(error),)
        stored = list(self.table.columns) if duplicates else None
        return inspected(bound, stored, self.protect, refusals)

    def losses(self, release: Release | ReleaseSet) -> Losses:
        """Return the distribution of the losses of the records in a release. CONFIDENTIAL: for the curator only.

        It is computed in the engine, to which the policy is passed as an expression. No record leaves the engine. The
        release may be one of this session, or one that `ss.read_release` read: it must be one of these records. For a
        set of tables, a record's losses by the drawn tables are added up.

        What the facts of such a release say must fit: the data set, the protected entities, the columns, keys and their
        types, the filter, the policy and, if both have one, the ledger. Whether these are the same records is not
        known, because a release holds nothing of them.
        """
        if isinstance(release, ReleaseSet):
            return set_losses(self.table, [self._table_of_set(release, name) for name in release.drawn], self.protect)
        query = self._query_of(release)
        return record_losses(query.table, release.policy, query.columns, query.keys, self.protect)

    def _table_of_set(self, release: ReleaseSet, name: str) -> TableOfSet:
        """Return a drawn table of a set as far as losses depend on it."""
        bound = self._query_of(release[name])
        known = self._sets.get(release.facts.id)
        query = known.drawn[name] if known is not None else query_of(release[name], self.dataset, self.protect)
        return TableOfSet(bound.table, bound.policy, bound.columns, bound.keys, query.derive, query.where)

    def errors(self, release: Release) -> tuple[SizeClass, ...]:
        """Return the errors of a release, by size of the true sums. CONFIDENTIAL: for the curator only.

        For a release that was read from a file, the records are summed again. It must be one of these records.
        """
        query = self._query_of(release)
        if release.facts.id not in self._errors:
            sums = exact_sums(query.table, list(query.columns.values()), query.keys, protect=self.protect)
            self._errors[release.facts.id] = errors_by_size(query, sums, release)
        return self._errors[release.facts.id]

    def _query_of(self, release: Release) -> BoundQuery:
        """Return the query of a release that this session made, or that was read from a file."""
        if not isinstance(release, Release):
            raise ParameterError("release must be one that this session made, or one read with ss.read_release")
        known = self._queries.get(release.facts.id)
        if known is None:
            query = query_of(release, self.dataset, self.protect)
            try:
                known = bind(query, self._records, Account(), release.facts.accounting)
            except (ParameterError, ParameterTypeError) as error:
                raise ParameterError(f"{ANOTHER}: {error}") from None
        check_repeated(release, known, self.ledger)
        self._queries[release.facts.id] = known
        return known

    def _bind(self, query: Query) -> tuple[BoundQuery, Facts]:
        """Return the query bound to the table, with the facts of its release, after a dry run."""
        bound = bind(query, self._records, self._accountant, self.accounting)
        private = self._bits is None or self._bits.private
        facts = release_facts(bound, self._records, self.dataset, private)
        bound.with_means(dry_run(bound, facts))
        return bound, facts

    def _bind_set(self, table_set: TableSet) -> BoundSet:
        """Return a set of tables bound to the table of the session, after a dry run of all its tables."""
        return bound_set(table_set, {name: self._bind(query) for name, query in table_set.drawn.items()})

    def _release(self, query: Query) -> Release:
        bound, facts = self._bind(query)
        for warning in bound.unit_warnings:
            warnings.warn(warning, UnitWarning, stacklevel=3)
        charge = charge_for(bound, self._records, facts)
        drawn, _ = self._draw({"": query}, {"": bound}, {"": facts}, charge, bound.mechanisms)
        return drawn[""]

    def _release_set(self, table_set: TableSet) -> ReleaseSet:
        bound = self._bind_set(table_set)
        for warning in bound.unit_warnings:
            warnings.warn(warning, UnitWarning, stacklevel=3)
        charge = bound.charge(self.protect)
        drawn, head = self._draw(table_set.drawn, bound.queries, bound.facts, charge, bound.mechanisms)
        self._sets[bound.id] = table_set
        return bound.release_set(drawn, head)

    def _draw(
        self,
        queries: Mapping[str, Query],
        bound: Mapping[str, BoundQuery],
        facts: Mapping[str, Facts],
        charge: Charge,
        mechanisms: Mapping[str, Mechanism],
    ) -> tuple[dict[str, Release], LedgerHead | None]:
        """Charge all queries at once, draw their noise, and return the releases with the ledger entry.

        Whatever depends on the records and can fail is done for all queries before the charge.
        """
        head = None
        with self._recording_failures(charge):
            # Caps are checked before the records are read: once a cap is used up, no error depends on the records.
            with self._explained(charge, mechanisms):
                self._accountant.check(charge)
                self._accountant.ready()  # records are read only if the charge can be written
            for query in queries.values():
                check_readable(query.columns, self._records, query.derive, query.where)
            sums = {
                name: exact_sums(
                    query.table,
                    list(query.columns.values()),
                    query.keys,
                    lambda asked: progress.run(asked, "Summing the records"),
                    self.protect,
                )
                for name, query in bound.items()
            }
            # Charged before noise is drawn: from here on, a crash wastes budget but leaks nothing.
            with self._explained(charge, mechanisms):
                charged = self._accountant.charge(charge)
            if charged is not None:
                head = LedgerHead(**charged)
        releases = {}
        for name, one in bound.items():
            found = facts[name] if head is None else replace(facts[name], ledger=head)
            releases[name] = one.with_means(draw(one, sums[name], found, self._bits))
        for name, release in releases.items():
            # The warning comes after the charge, so that a query for it is not free.
            warn_if_empty(sums[name].rows, queries[name].where)
            self._errors[release.facts.id] = errors_by_size(bound[name], sums[name], release)
            self._queries[release.facts.id] = bound[name]
        return releases, head

    def _explained(self, charge: Charge, mechanisms: Mapping[str, Mechanism]) -> AbstractContextManager[None]:
        """Add to a refusal what would still fit."""
        return explained(self._accountant, charge, mechanisms, self.accounting)

    @contextmanager
    def _recording_failures(self, asked: Charge | Mapping[str, Any]) -> Iterator[None]:
        """Record in the ledger that a release was refused or failed, because such an error can depend on the records.

        If it cannot be recorded, raise the ledger's error instead of the one that depends on the records.
        """
        try:
            yield
        except (CapError, DataError, EngineError) as error:
            try:
                self._accountant.attempt(asked, error)
            except LedgerError as unwritten:
                raise unwritten from None
            raise


def _accountant(
    ledger: str | os.PathLike[str] | Accountant | None, caps: Mapping[str, Policy] | None, dataset: str | None
) -> Accountant:
    """Return the accountant that a session charges."""
    if isinstance(ledger, Accountant):
        if caps is not None:
            raise ParameterError("caps must be given when the ledger is made: ss.Ledger(path, caps)")
        return ledger
    if ledger is None:
        return Account(check_caps(caps), CHANGE_CAPS)
    return DeferredLedger(ledger, caps, dataset=dataset)
