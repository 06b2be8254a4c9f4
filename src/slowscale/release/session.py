"""The session: it reads the records, charges the ledger, and then draws the noise."""

import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from slowscale.accounting import Account, Accountant, Charge, DeferredLedger, Ledger, Spent
from slowscale.accounting.account import check_caps
from slowscale.accounting.largest import Value, check_largest
from slowscale.accounting.ledger import dataset_name
from slowscale.accounting.record import ANY, COUNT, folded
from slowscale.accounting.refusals import explained
from slowscale.core.errors import (
    CapError,
    CapWarning,
    ConfidentialWarning,
    DataError,
    EngineError,
    LedgerError,
    ParameterError,
    ParameterTypeError,
    UnitWarning,
)
from slowscale.core.parameters import check_flag
from slowscale.core.typing import DataLike, Scalar
from slowscale.data.conversion import AS_TEXT, listed_columns
from slowscale.data.engines import engine_of
from slowscale.data.keys import Keys
from slowscale.data.rowwise import EngineTable, Records
from slowscale.data.sources import open_source
from slowscale.mechanisms import Mechanism
from slowscale.mechanisms.calibration import ACCOUNTING, check_accounting
from slowscale.policy import Policy
from slowscale.release.bound import BoundRequest, BoundSums, bind, check_readable, close
from slowscale.release.buckets import ReleaseKey
from slowscale.release.dominance import USUAL_RULES, Dominance, OpenCells, check_dominance, open_cells
from slowscale.release.facts import LedgerHead
from slowscale.release.quantiles import ReleasedQuantiles
from slowscale.release.release import Release
from slowscale.release.repeating import check_complete, check_repeated, not_repeatable, request_of
from slowscale.release.request import (
    ONLY,
    Quantiles,
    Request,
    Sums,
    SumsOptions,
    Table,
    TableOptions,
    as_request,
    checked_options,
    zero_led,
)
from slowscale.release.stored import Target, locked_folder
from slowscale.release.supplied import SumsSql, SuppliedSums, check_supplied, described_sql
from slowscale.sampling import SECRET, BitSource, are_secret

if TYPE_CHECKING:
    from slowscale.data.losses import Losses
    from slowscale.release.inspection import Inspection, SizeClass
    from slowscale.release.preview import Preview

# How a user can change a cap that is not a ledger's.
CHANGE_CAPS = "open the session with a higher cap, Session(data, caps=…)"


class _Charged(NamedTuple):
    """An accountant that a session charges as it is, in place of a ledger."""

    accountant: Accountant


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
    largest
        The largest values, by column, for a new ledger, or for the session if there is none: {"payann": 4e10}. They are
        public knowledge. Caps and losses are then for sizes up to there, and a release refuses larger values.
    dataset
        The name of the data set, such as "cbp", without a period: releases have one. A new ledger keeps the name. A
        ledger with a name refuses records of a data set with another name or without one. Surrounding whitespace is
        ignored.
    accounting
        Which policy of a mechanism m a release is charged: "tight" for `m.tight_policy`, the smallest policy that is
        known, or "closed" for the formula `m.policy`, which is never smaller. The noise is the same. With "tight", the
        first release with a new shape of noise takes longer, because a table is computed.
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
        A source of keys for tests, such as `slowscale.sampling.KnownBits(1)`. A release drawn under a key that is not
        secret says NOT PRIVATE.

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
      cattle: Root(k=4, sigma=0.5, a=0, noise=gaussian, estimator=mean), unit 1
      A record may lose (PRzCDP), added up:
        cattle^(1/2) / (2·0.5²)
      Charged to no ledger: losses of repeated releases are not added up.
    >>> round(release.policy({"cattle": 31_000}), 1)
    352.1
    """

    def __init__(
        self,
        data: DataLike,
        ledger: str | os.PathLike[str] | Ledger | None = None,
        caps: Mapping[str, Policy | float] | None = None,
        *,
        largest: Mapping[str, Value] | None = None,
        dataset: str | None = None,
        accounting: str = ACCOUNTING,
        protect: str | None = None,
        types: Mapping[str, str] | None = None,
        csv: Mapping[str, Any] | None = None,
        bits: BitSource | None = None,
    ) -> None:
        self.dataset = dataset_name(dataset)
        self._accountant = _accountant(ledger, caps, largest, self.dataset)
        if bits is not None and not (hasattr(bits, "key") and hasattr(bits, "private")):
            raise ParameterTypeError("bits", allowed="a source of bits", given=bits)
        self.accounting = check_accounting(accounting)
        # The data set is checked first, so that records of the wrong one are never opened.
        self._accountant.check_dataset(self.dataset)
        with self._recording_failures({"policy": None}):
            source = open_source(data, types, csv)
        self.table: EngineTable = source.table
        self.engine = engine_of(self.table).title
        for one, other in pairwise(sorted(self.table.columns, key=folded)):
            if folded(one) == folded(other):
                raise ParameterError(
                    "data",
                    f"has the columns {one!r} and {other!r}, which the ledger and some engines take for one",
                    code="duplicate",
                    remedy="rename one of them",
                )
        self._records = Records.of(source, protect)
        if protect is not None and protect not in self.table.columns:
            raise ParameterError(
                "protect",
                "must be a column of the data",
                code="unknown-column",
                path=("data", "protect"),
                given=protect,
                remedy=f"the columns are {', '.join(self.table.columns)}",
            )
        self.protect = protect
        self._bits = bits
        # The bound request and the exact sums of each release of this session, by identifier. CONFIDENTIAL.
        self._known: dict[str, tuple[BoundRequest, dict[str, Any]]] = {}
        check_names(caps, self.table)
        check_names(largest, self.table, "largest")
        # A new ledger is written only now: the records could be opened, and its caps name columns.
        if isinstance(self._accountant, DeferredLedger) and not isinstance(ledger, _Charged):
            self._accountant = self._accountant.make()

    @classmethod
    def _charging(cls, accountant: Accountant, data: DataLike, **options: Any) -> "Session":
        """Return a session that charges an accountant: for plans, whose ledger is created by the first charge.

        The options are those of a session, without `ledger`, `caps` and `largest`.
        """
        return cls(data, _Charged(accountant), **options)  # type: ignore[arg-type]

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
        keys: Keys | None = None,
        *,
        count: Mechanism | None = None,
        means: str | None = None,
        level: float = 0.95,
        partition: str | None = None,
        **options: Unpack[SumsOptions],
    ) -> Release:
        """Release the sums of columns, by public key or in total: one table, `ss.Sums(columns, keys, …)`.

        Parameters
        ----------
        columns, keys, count, means, options
            As for `ss.Sums`. The options are `unit`, `where`, `derive`, `nulls`, `negatives` and `nonnegative`.
        level, partition
            As for `ss.Request`.
        """
        table = Sums(columns, keys, count=count, means=means, **checked_options(Sums, options))
        return self.release(Request({ONLY: table}, level=level, partition=partition))

    def count(
        self,
        keys: Keys | None = None,
        *,
        mechanism: Mechanism,
        level: float = 0.95,
        partition: str | None = None,
        **options: Unpack[SumsOptions],
    ) -> Release:
        """Release the number of records, by public key or in total.

        Every record counts as 1, so its loss is the mechanism's policy at 1, whatever its values are.

        Parameters
        ----------
        keys, level, partition, options
            As for `sum`.
        mechanism
            The mechanism for the number of records.
        """
        if not isinstance(mechanism, Mechanism):
            raise ParameterTypeError("mechanism", allowed="one such as ss.Gaussian(sigma=10)", given=mechanism)
        return self.sum({}, keys, count=mechanism, level=level, partition=partition, **options)

    def mean(
        self,
        columns: Mapping[str, Mechanism],
        keys: Keys | None = None,
        *,
        count: Mechanism,
        means: str = "box",
        level: float = 0.95,
        partition: str | None = None,
        **options: Unpack[SumsOptions],
    ) -> Release:
        """Release sums and counts, and the means as their ratios `x_mean`.

        Parameters
        ----------
        columns, keys, count, level, partition, options
            As for `sum`.
        means
            The kind of interval for the means: see `ReleasedSums.ratio`.
        """
        return self.sum(columns, keys, count=count, means=means, level=level, partition=partition, **options)

    def quantiles(
        self,
        column: str,
        at: Sequence[Scalar] = (0.1, 0.5, 0.9),
        *,
        loss: float,
        grid: Sequence[Scalar] | None = None,
        level: float = 0.95,
        **options: Unpack[TableOptions],
    ) -> ReleasedQuantiles:
        """Release quantiles of the sizes of the records, such as the median size, on a public grid of sizes.

        The size of a record is its absolute value. A record moves ranks by one whatever its size, so every record loses
        the same, and little. The quantiles may be published, and choices that depend on them are safe if caps that
        were fixed before limit all charges. Caps treat quantiles as a count. If there are caps, but none for "count"
        or "*", or a ledger without caps, an `ss.CapWarning` says so.

        If entities are protected, the size of an entity is the absolute value of its total, and every entity loses the
        same.

        Parameters
        ----------
        column, at, loss, grid, options
            As for `ss.Quantiles`. The options are `where`, `derive` and `nulls`.
        level
            The probability with which `rank_error` holds.

        Notes
        -----
        Each quantile is drawn by the exponential mechanism, exactly; `slowscale.release.quantiles` proves the loss.
        Sizes of the grid between two neighbouring values of the records have the same rank. Which of them is drawn is
        arbitrary, so with few different values a quantile may be far from all of them. `ss.advise` takes at most 8.

        Examples
        --------
        >>> import slowscale as ss
        >>> session = ss.Session(ss.datasets.establishments(2_000))
        >>> found = session.quantiles("emp", [0.5, 0.9], loss=0.1)
        >>> list(found), found["p50"] in found.about.grid
        (['p50', 'p90'], True)
        """
        table = Quantiles(column, at, loss=loss, grid=grid, **checked_options(Quantiles, options))
        found: ReleasedQuantiles = self.release(Request({"quantiles": table}, level=level))["quantiles"]
        return found

    def release(
        self,
        request: Request | Table | Mapping[str, Table],
        to: str | os.PathLike[str] | None = None,
        *,
        csv: bool = False,
        overwrite: bool = False,
        sums: SuppliedSums | None = None,
    ) -> Release:
        """Carry out a request: charge the ledger, then draw the noise and return the public result.

        A request is charged as a whole: all of its tables are released, or none.

        Parameters
        ----------
        request
            What to release.
        to
            A folder to write the tables to, for a release of any size: the sums are kept outside of Python, and noise
            is drawn and written batch by batch. The files are those of `Release.to_parquet`, and the tables of the
            returned release are read when they are asked for. The noise is the same as without a folder. Roll-ups are
            computed in memory.
        csv
            With a folder, whether to write CSV files, too.
        overwrite
            With a folder, whether to replace existing files.
        sums
            The exact sums, if they were computed elsewhere by the SQL of `sums_sql`. No record is read.
        """
        bound = self._bind(request, sums)
        if to is None:
            return self._carry_out(bound)
        with locked_folder(to, bound.request) as folder:
            return self._carry_out(bound, Target.of(folder, csv, overwrite, bound.request))

    def _carry_out(self, bound: BoundRequest, target: Target | None = None) -> Release:
        """Carry out a bound request; with a target, write the tables there."""
        if target is not None and bound.facts.policy is None:
            raise ParameterError(
                "to",
                "cannot be given for a user function, which is not in files",
                code="user-function",
                remedy="register the mechanism (CONTRIBUTING.md)",
            )
        for warning in bound.warnings:
            warnings.warn(warning, UnitWarning, stacklevel=_caller())
        if bound.rank_loss is not None:
            _warn_if_ranks_are_not_capped(self._accountant)
        read: dict[str, Any] = {}
        try:
            with self._recording_failures(bound.charge):
                # Caps are checked before the records are read: once a cap is used up, no error depends on the records.
                with self._explained(bound):
                    self._accountant.check(bound.charge)
                    self._accountant.ready()  # records are read only if the charge can be written
                read = bound.read(stored=target is not None)
                # Charged before noise is drawn: from here on, a crash wastes budget but leaks nothing.
                with self._explained(bound):
                    charged = self._accountant.charge(bound.charge)
            key, head = ReleaseKey(self._bits or SECRET), None if charged is None else LedgerHead(**charged)
            if target is not None:
                release = bound.written(read, key, head, target)
            else:
                release = bound.released(bound.draw(read, key), head)
                self._known[release.facts.id] = bound, read
            for name, table in bound.request.drawn.items():
                # The warning comes after the charge, so that a request for it is not free.
                if isinstance(table, Sums) and table.where is None and read[name].empty:
                    warn_if_empty()
        finally:
            close(read)
        return release

    def sums_sql(self, request: Request | Table | Mapping[str, Table], dialect: str | None = None) -> SumsSql:
        """Return the SQL that computes the exact sums of a request elsewhere, for `ss.SuppliedSums`. No record is read.

        Parameters
        ----------
        request
            The request, without quantiles.
        dialect
            The dialect of the SQL: "duckdb", "postgres" or "pyspark"; by default that of the engine of the data.
        """
        return described_sql(self._bind(request), dialect or engine_of(self.table).name)

    def preview(self, request: Request | Table | Mapping[str, Table]) -> "Preview":
        """Return the cost and the accuracy of a request. No record is read, nothing is charged."""
        from slowscale.release.preview import preview_of

        bound = self._bind(request)
        refusal = None
        try:
            with self._explained(bound):
                self._accountant.check(bound.charge)
        except CapError as error:
            refusal = error
        return preview_of(bound, refusal, self.spent)

    def inspect(
        self,
        request: Request | Table | Mapping[str, Table],
        *,
        duplicates: bool = True,
        dominance: Dominance | None = USUAL_RULES,
    ) -> "Inspection | dict[str, Inspection]":
        """Check the data before a release: values that are missing, outside the keys or duplicates, the losses of the
        records, the errors to expect, and cells whose total tells a value. CONFIDENTIAL: for the curator only.

        Nothing is drawn, charged or written to the ledger. Choices that you make after this check depend on the
        records, and the guarantee does not cover them, unless they were fixed or public before.

        Parameters
        ----------
        request
            The request to check. If several tables of sums are drawn, there is one inspection for each, by name, with
            the losses by this table alone.
        duplicates
            Whether to count exact copies of records, which reads all columns. They are counted once.
        dominance
            The rules by which cells count as open, `ss.Dominance(p=0.1, n=2, k=0.85, probability=0.5)` by default, or
            None to leave them out, which saves a scan.

        Examples
        --------
        >>> import pandas as pd, slowscale as ss
        >>> farms = pd.DataFrame({"state": ["IOWA", "IOWA", "TEXAS", "TEXSA"], "cattle": [120, 120, 31_000, 900]})
        >>> sums = ss.Sums({"cattle": ss.Gaussian(sigma=75)}, keys=ss.Keys.cross({"state": ["IOWA", "TEXAS"]}))
        >>> found = ss.Session(farms).inspect(sums)
        >>> found.records, found.duplicates, found.outside
        (4, 1, 1)
        >>> found.near_misses[0].label, found.near_misses[0].key
        ('TEXSA', 'TEXAS')
        """
        from slowscale.release.inspection import inspected

        check_flag("duplicates", duplicates)
        if dominance is not None:
            check_dominance(dominance)
        bound = self._bind(request)
        found: dict[str, Inspection] = {}
        for name, table in bound.tables.items():
            if not isinstance(table, BoundSums):
                continue
            refusals: tuple[str, ...] = ()
            try:
                check_readable(table.used, self._records, table.sums.derive, table.sums.where)
            except DataError as error:
                refusals = (str(error),)
            stored = list(self.table.columns) if duplicates and not found else None
            found[name] = inspected(table, stored, self.protect, dominance, refusals)
        if not found:
            raise ParameterError("request", "has quantiles only, and no table of sums to inspect", code="unsupported")
        return found if len(found) != 1 else next(iter(found.values()))

    def losses(self, release: Release) -> "Losses":
        """Return the distribution of the losses of the records by a release. CONFIDENTIAL: for the curator only.

        It is computed in the engine, to which the policy is passed as an expression. No record leaves the engine. The
        release may be one of this session, or one that `ss.read_release` read: it must be one of these records. A
        record's losses by the drawn tables are added up.

        The facts of such a release must fit: the data set, the protected entities, the columns, keys and their types,
        the filter, the policy and, if both have one, the ledger. Whether these are the same records is not known,
        because a release holds nothing of them.
        """
        from slowscale.data.losses import record_losses, set_losses

        bound = self._bound(release)
        tables = list(bound.tables.values())
        if len(tables) == 1 and isinstance(one := tables[0], BoundSums):
            return record_losses(one.table, release.policy, one.columns, one.keys, self.protect)
        return set_losses(self.table, [table.lossy for table in tables], self.protect)

    def errors(self, release: Release) -> "dict[str, tuple[SizeClass, ...]]":
        """Return the errors of each drawn table of sums, by size of the true sums. CONFIDENTIAL: for the curator only.

        For a release that was read from a file, the records are summed again. It must be one of these records.
        """
        from slowscale.release.inspection import errors_by_size

        return {name: errors_by_size(table, sums, release[name]) for name, table, sums in self._sums(release)}

    def dominance(self, release: Release, rules: Dominance = USUAL_RULES) -> dict[str, tuple[OpenCells, ...]]:
        """Return the open cells of each drawn table of sums, before and after the noise. CONFIDENTIAL: for the curator
        only.

        For a release that was read from a file, the records are summed again. It must be one of these records.

        Parameters
        ----------
        release
            The release, whose noise is meant: not the published values, but their distribution.
        rules
            The rules by which cells count as open.
        """
        check_dominance(rules)
        return {
            name: open_cells(table, {column: one.floats() for column, one in sums.sums.items()}, self.protect, rules)
            for name, table, sums in self._sums(release)
        }

    def _sums(self, release: Release) -> Iterator[tuple[str, BoundSums, Any]]:
        """Yield each drawn table of sums with its exact sums, which are computed again if they are not known."""
        bound = self._bound(release)
        _, read = self._known.get(release.facts.id, (bound, None))
        read = bound.read() if read is None else read
        for name, table in bound.tables.items():
            if isinstance(table, BoundSums):
                yield name, table, read[name]

    def _bound(self, release: Release) -> BoundRequest:
        """Return the bound request of a release that this session made, or that was read from a file."""
        if not isinstance(release, Release):
            raise ParameterError(
                "release", allowed="one that this session made, or one read with ss.read_release", given=type(release)
            )
        check_complete(release)
        if release.facts.id in self._known:
            bound = self._known[release.facts.id][0]
        else:
            request = request_of(release, self.dataset, self.protect)
            try:
                bound = bind(request, self._records, Account(), accounting=release.facts.accounting)
            except (ParameterError, ParameterTypeError) as error:
                raise not_repeatable(error) from None
        check_repeated(release, bound, self.ledger)
        return bound

    def _bind(self, request: Any, sums: SuppliedSums | None = None) -> BoundRequest:
        """Return a request bound to the records, or to supplied sums; all tables have been drawn from zeros."""
        asked = as_request(request)
        self._check_zeros(asked)
        bound = bind(
            asked,
            self._records,
            self._accountant,
            accounting=self.accounting,
            dataset=self.dataset,
            private=are_secret(self._bits),
        )
        return bound if sums is None else check_supplied(sums).attached(bound)

    def _check_zeros(self, request: Request) -> None:
        """Raise if public labels start with a zero, and the column was declared as text but holds whole numbers."""
        for name, table in request.drawn.items():
            lost = [one for one in zero_led(getattr(table, "keys", None)) if one in self._records.source.written_out]
            if lost:
                raise ParameterError(
                    f"types[{lost[0]!r}]",
                    "is string, but the column holds whole numbers, which have lost the zeros that some keys start "
                    "with: 01003 is 1003",
                    code="leading-zeros",
                    path=("tables", name, "keys"),
                    remedy=AS_TEXT,
                )

    def _explained(self, bound: BoundRequest) -> AbstractContextManager[None]:
        """Add a suggestion that would still fit to a refusal by a cap."""
        return explained(self._accountant, bound.charge, bound.mechanisms, self.accounting, bound.rank_loss)

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


def _caller() -> int:
    """Return the stack level of the first caller outside this module, for warnings."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame, level = frame.f_back, level + 1
    return level


def _accountant(
    ledger: str | os.PathLike[str] | Ledger | _Charged | None,
    caps: Mapping[str, Policy | float] | None,
    largest: Mapping[str, Value] | None,
    dataset: str | None,
) -> Accountant:
    """Return the accountant that a session charges."""
    if isinstance(ledger, _Charged):
        return ledger.accountant
    if ledger is None:
        return Account(check_caps(caps), CHANGE_CAPS, largest=check_largest(largest))
    if isinstance(ledger, str | os.PathLike):
        return DeferredLedger(ledger, caps, dataset=dataset, largest=largest)
    if not isinstance(ledger, Ledger):
        # An account is a copy: charges to it would not reach the ledger.
        raise ParameterTypeError(
            "ledger",
            allowed="the path of a file, an ss.Ledger or None",
            given=type(ledger),
            remedy="to charge a ledger, give the ledger itself",
        )
    for name, given in {"caps": caps, "largest": largest}.items():
        if given is not None:
            raise ParameterError(
                name,
                "cannot be given with a ledger that exists",
                code="conflict",
                remedy=f"give it when the ledger is made: ss.Ledger(path, {name}=…)",
            )
    return ledger


def check_names(declared: Mapping[str, Any] | None, table: EngineTable, argument: str = "caps") -> None:
    """Raise if caps or largest values are declared for something other than a column, "count" or "*"."""
    known = {ANY, COUNT, *map(folded, table.columns)}
    for name in declared or {}:
        if folded(name) not in known:
            raise ParameterError(
                argument,
                f"{'names' if argument == 'largest' else 'has a cap on'} {name!r}, which is not a column",
                code="unknown-column",
                remedy="correct the name (in Python, declare a derived column to the ledger, and give the ledger to "
                f"the session); {listed_columns(table.columns, name)}",
                path=("data" if argument == "largest" else "ledger", argument, name),
            )


def warn_if_empty() -> None:
    """Warn the caller of the session that no record has any of the keys.

    The release was charged already. Where warnings are errors, it must not be lost, nor an exit code depend on the
    records: the warning is then printed.
    """
    words = (
        "no record has any of the keys: the release has noise on zeros, and it was charged. Compare the labels of "
        "the keys with those of the data, by `slowscale inspect` or session.inspect, before you release again "
        "(confidential: do not publish this warning)"
    )
    try:
        warnings.warn(words, ConfidentialWarning, stacklevel=_caller())
    except ConfidentialWarning:
        print(f"{ConfidentialWarning.__name__}: {words}", file=sys.stderr)


def _warn_if_ranks_are_not_capped(accountant: Accountant) -> None:
    """Warn if no cap limits the loss by ranks, which is charged like that of a count.

    This is not an error: the loss is stated by the caller and charged, as that of a count without a cap is. An account
    that lasts as long as the session, and has no caps, promises nothing that a warning could be about.
    """
    caps, durable = accountant.account.caps, not isinstance(accountant, Account)
    if any(folded(name) in (COUNT, ANY) for name in caps) or not (caps or durable):
        return
    if caps:
        missing = f"no cap limits counts (there are caps on {', '.join(caps)})"
        missed, remedy = "the caps do not bound its cost", f'give a cap on "{COUNT}"'
    else:
        known = "no caps on presence" if accountant.band_caps else "no caps"
        missing, missed = f"the ledger has {known}", "nothing bounds in advance the cost of it and of choices by it"
        remedy = f'give caps on "{COUNT}" and "{ANY}" before the first release'
    warnings.warn(
        f"quantiles are charged like a count, and {missing}. This release is charged, but {missed}, so fix the "
        f"quantiles and losses that you will ask for before you see any. For a new ledger, {remedy}",
        CapWarning,
        stacklevel=_caller(),
    )
