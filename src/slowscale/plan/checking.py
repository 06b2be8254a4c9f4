"""A plan is checked once, without its records; the release takes over the open ledger, the cells and the key.

The request is tried on a table that has the columns of the data and no records. If the check passes, only the data can
make the release fail.
"""

import os
import warnings
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slowscale.accounting import Account, Accountant, DeferredLedger
from slowscale.accounting.record import folded
from slowscale.core.data_errors import Name
from slowscale.core.errors import (
    CapError,
    CapWarning,
    ConfidentialWarning,
    DataError,
    LedgerError,
    ParameterError,
    PlanError,
    SlowscaleError,
    UnitWarning,
    located,
)
from slowscale.core.typing import Label
from slowscale.plan.outputs import (
    check_not_data,
    check_outputs,
    existing_error,
    files_of,
    signing_key,
    sums_tables,
    table_files,
)
from slowscale.plan.parts import CsvPlan, DataPlan, HierarchyPlan, KeysPlan
from slowscale.plan.reading import at_its_place
from slowscale.plan.schema import Plan, RollupPlan, SumsPlan

if TYPE_CHECKING:
    from slowscale.data.hierarchies import Hierarchy
    from slowscale.data.keys import Keys
    from slowscale.publish import Publication
    from slowscale.publish.minisign import SecretKey
    from slowscale.release.preview import Preview
    from slowscale.release.request import Request
    from slowscale.release.session import Session
    from slowscale.sampling import BitSource

# By the kind of a column's labels: the type to declare for them in a file of keys, and a label of that kind.
LABEL_TYPES = {"text": "string", "whole numbers": "int64", "booleans": "boolean", "dates": "date"}
DECLARE_PUBLIC = ", or declare that they are public with from_data = true"
STAND_INS: dict[str, Label] = {"text": "", "whole numbers": 0, "booleans": False, "dates": date(2000, 1, 1)}
PLAN_REMEDY = "raise the cap in [ledger] of the plan: the ledger does not exist yet, so its caps can still be changed"


@dataclass(frozen=True)
class Cells:
    """The public cells of a plan, read for the columns of its data.

    Attributes
    ----------
    keys
        The cells of each table of sums; None for totals over all records.
    hierarchies
        The hierarchies.
    unread
        The tables whose cells are in the records, which were not read: they have one cell instead.
    """

    keys: "Mapping[str, Keys | None]"
    hierarchies: "tuple[Hierarchy, ...]"
    unread: frozenset[str]

    def request(self, plan: Plan) -> "Request":
        """Return the request of a plan with these cells, without roll-ups of cells that were not read."""
        from slowscale.release.request import Request

        tables = {}
        for name, table in plan.tables.items():
            with located("tables", name):
                tables[name] = table.build(plan.data, self.keys.get(name))  # type: ignore[arg-type]
        found = Request(tables, self.hierarchies, **plan.request_options)
        kept = [name for name in found if name in found.drawn or found.source(name) not in self.unread]
        if len(kept) == len(found):
            return found
        return Request({name: tables[name] for name in kept}, self.hierarchies, **plan.request_options)


@dataclass(frozen=True)
class Checked:
    """A plan that was checked without its records, and everything that was opened for it.

    Attributes
    ----------
    plan, overwrite, confidential
        The plan, whether existing outputs may be replaced, and where the confidential report goes, if it is wanted.
    accountant
        The account or ledger that the release will be charged to.
    cells
        The public cells.
    preview
        The cost and the accuracy of each table whose cells are known.
    publication, key
        The publication with its code lists, and the key that signs.
    existing
        The outputs that exist already.
    refusal
        The error with which a release would be refused: a cap that would be exceeded, or an output that exists.
    notes
        What to look at before the release. They follow from the plan and the public keys, not from the records.
    """

    plan: Plan
    overwrite: bool
    confidential: Path | None
    accountant: Accountant
    cells: Cells
    preview: "Preview"
    publication: "Publication | None"
    key: "SecretKey | None"
    existing: tuple[Path, ...]
    refusal: SlowscaleError | None
    notes: tuple[str, ...] = ()

    @property
    def caps_checked(self) -> bool:
        """Whether the caps could be checked: not if the labels of a partition are taken from the data."""
        return not (self.cells.unread and self.plan.release.partition is not None)

    def raise_refusal(self) -> None:
        """Raise the error with which a release would be refused, if there is one, with its place in the plan."""
        if self.refusal is not None:
            with at_its_place(self.plan):
                raise self.refusal

    @property
    def refused(self) -> str | None:
        """The words of the refusal, with its place in the plan; None if a release would not be refused."""
        try:
            self.raise_refusal()
        except SlowscaleError as error:
            return str(error)
        return None

    def record_refusal(self) -> None:
        """Record in the ledger, if it exists, that a cap refused the release."""
        if isinstance(self.refusal, CapError):
            data = self.plan.data
            facts = {
                "policy": self.preview.policy.to_dict(),
                "accounting": self.preview.accounting,
                "protect": data.protect,
                "where": data.where,
                "derived": data.derive,
            }
            self.accountant.attempt(facts, self.refusal)


def check_plan(plan: Plan, overwrite: bool = False, confidential: Path | None = None) -> Checked:
    """Check everything that a release needs except the data: outputs, key, ledger, columns, SQL, cells and caps.

    Mistakes are raised. A cap or an existing output, which only time or an option can change, is returned.

    Parameters
    ----------
    plan
        The plan.
    overwrite
        Whether existing outputs may be replaced.
    confidential
        Where to write the confidential report, if it is wanted.
    """
    from slowscale.release.preview import preview_of

    check_has_tables(plan)
    with at_its_place(plan):
        existing = check_outputs(plan, True, confidential)
        key = signing_key(plan)
        accountant = open_accountant(plan)
        _check_replaced(plan, existing, accountant)
        with at_its_place(plan, "data"), _outlined(plan, accountant.account) as session:
            cells = read_cells(plan, session)
            # The request is carried out on the empty table, with a copy of the account.
            bound, spent, refusal = session._bind(cells.request(plan)), session.spent, None
            try:
                session._carry_out(bound)
            except CapError as error:
                refusal = error
            preview = preview_of(bound, refusal, spent)
        publication = check_publication(plan, cells)
    obstacle = existing_error(existing[0]) if existing and not overwrite else None
    return Checked(
        plan,
        overwrite,
        confidential,
        accountant,
        cells,
        preview,
        publication,
        key,
        tuple(existing),
        refusal or obstacle,
        tuple(_notes(plan, cells)),
    )


def _check_replaced(plan: Plan, existing: Iterable[Path], accountant: Accountant) -> None:
    """Raise if an existing output is a release of this data set whose charge is not in the ledger of the plan.

    The ledger was lost then, or another one took its place, and the losses of earlier releases would not be counted.
    """
    from slowscale.release.release import read_file_facts

    tables = {path for paths in table_files(plan).values() for path in paths}
    if not isinstance(accountant, DeferredLedger):
        return
    for path in (one for one in existing if one in tables):
        try:
            facts = read_file_facts(path)
        except SlowscaleError:
            continue  # no release: --overwrite may replace it
        if facts.ledger is None or facts.dataset != plan.data.name:
            continue
        if accountant.ledger is None or accountant.ledger.verify(facts.ledger):
            raise LedgerError(
                path,
                f"was charged to a ledger (entry {facts.ledger.entry}) that is not the one of this plan, or was "
                "changed, so its losses would not be counted",
                code="not-charged",
                path=("ledger", "path"),
                remedy="put that ledger back, or choose another folder for the outputs",
            )


def _notes(plan: Plan, cells: Cells) -> Iterator[str]:
    """Yield what to look at before a release: a ledger that will be new, and keys whose zeros a program may drop."""
    from slowscale.data.foreign import EXCEL
    from slowscale.data.textfiles import is_text_file
    from slowscale.release.request import zero_led

    if plan.ledger is not None and not os.path.lexists(plan.ledger.path):
        yield (
            f"The ledger {plan.ledger.path} does not exist: the release creates it. If this data set has a ledger "
            "already, put it there first."
        )
    files = () if plan.data.database is not None else files_of(plan.data.paths)
    if any(is_text_file(file) or file.lower().endswith(EXCEL) for file in files):
        columns = [one for name, keys in cells.keys.items() if name not in cells.unread for one in zero_led(keys)]
        for name in dict.fromkeys(columns):
            yield (
                f"Some keys of {name} start with 0, and spreadsheet programs drop such zeros: check that the data kept "
                "them (`slowscale inspect`)."
            )


def check_has_tables(plan: Plan) -> None:
    """Raise if a plan has no tables, so that there is nothing to publish."""
    if not plan.tables:
        raise PlanError(
            plan.file or "the plan",
            "has no tables, so there is nothing to publish: add a table such as [tables.cells], with keys, sums or a "
            "count; only `slowscale quantiles` takes a plan without tables",
            code="empty",
        )


def open_accountant(plan: Plan, ready: bool = True) -> Account | DeferredLedger:
    """Return the account or ledger to charge. With `ready`, raise if it is of another data set or cannot be written.

    A ledger is created only when the release is charged, because its caps are fixed from then on.
    """
    if plan.ledger is None:
        return Account(remedy=PLAN_REMEDY, largest=plan.data.largest)
    with located("ledger", "caps"):
        accountant = DeferredLedger(
            plan.ledger.path,
            plan.caps or None,
            dataset=plan.data.name,
            remedy=PLAN_REMEDY,
            band_caps=plan.band_caps or None,
            band=plan.ledger.band,
            largest=plan.data.largest or None,
        )
    if ready:
        accountant.check_dataset(plan.data.name)
        accountant.ready()
    return accountant


def open_session(
    plan: Plan, accountant: Accountant, source: Mapping[str, Any] | None = None, bits: "BitSource | None" = None
) -> "Session":
    """Return a session on the data of a plan that charges an accountant.

    Parameters
    ----------
    plan, accountant
        The plan, and the account or ledger to charge.
    source
        Another table than the data of the plan, as arguments of `Session`.
    bits
        A source of bits other than the secret one.
    """
    from slowscale.data import rowwise
    from slowscale.release.session import Session, check_names

    data = plan.data
    session = Session._charging(
        accountant,
        **({"data": data.location, **data.reading_options} if source is None else source),
        dataset=data.name,
        accounting=plan.release.accounting,
        protect=data.protect,
        bits=bits,
    )
    with located("data", "derive"):
        columns = rowwise.derive(session.table, data.derive or None)
    # A cap with a misspelled name would protect nothing, and could not be corrected once the ledger exists.
    check_names(plan.caps, columns)
    check_names(plan.band_caps, columns, "band_caps")
    check_names(data.largest, columns, "largest")
    return session


@contextmanager
def open_columns(plan: Plan, accountant: Accountant) -> "Iterator[Session]":
    """Open a session that charges an accountant, for sums that are computed elsewhere: no record is read.

    Of files, only the columns are read. A database table is opened, which reads only its columns, too.
    """
    from slowscale.data.sources import outline

    if plan.data.database is not None:
        yield open_session(plan, accountant)
        return
    with outline(plan.data.location, **plan.data.reading_options) as empty_table:
        yield open_session(plan, accountant, empty_table)


def read_known_cells(plan: Plan, session: "Session") -> Cells:
    """Read the public cells of a plan whose records are not read, or raise if some are in the records."""
    cells = read_cells(plan, session)
    for name in cells.unread:
        raise ParameterError(
            "from_data",
            "cannot be used with sums that are computed elsewhere, because the records are not read",
            code="conflict",
            remedy="list the public cells in a file, or cross their labels",
            path=("tables", name, "keys", "from_data"),
        )
    return cells


@contextmanager
def _outlined(plan: Plan, account: Account) -> "Iterator[Session]":
    """Open a session on a table that has the columns of the data and no records, with a copy of the account."""
    from slowscale.data.sources import outline
    from slowscale.sampling import KnownBits

    with outline(plan.data.location, **plan.data.reading_options) as empty_table, warnings.catch_warnings():
        _check_headers(plan.data)
        for category in (ConfidentialWarning, UnitWarning, CapWarning):  # the release itself warns
            warnings.simplefilter("ignore", category)
        yield open_session(plan, account, empty_table, KnownBits())


def _check_headers(data: DataPlan) -> None:
    """Raise if the header of a CSV file is longer than one line."""
    from slowscale.data import textfiles
    from slowscale.data.sources import matching_files

    form = textfiles.CsvFormat.of(data.reading_options["csv"])
    if form.header is not None or not form.quote:
        return
    for path in data.paths:
        for file in filter(textfiles.is_text_file, matching_files(path, "data")):
            with textfiles.opened(file) as stream:
                header = textfiles.first_line_of(stream, form, file, "data")
            if header.count(form.quote) % 2:
                raise DataError("header-quote", argument=Name("data"), file=Name(file))


def read_cells(plan: Plan, session: "Session", records: bool = False) -> Cells:
    """Read the public cells of a plan, for the columns of a session.

    Parameters
    ----------
    plan, session
        The plan, and a session on its data.
    records
        Whether cells that are in the records are read. Otherwise one cell takes their place.
    """
    from slowscale.data import rowwise
    from slowscale.data.keys import label_kind

    derived = rowwise.derive(session.table, plan.data.derive or None)
    found = {name: label_kind(derived[name].type()) for name in derived.columns}
    kinds = {name: kind for name, kind in found.items() if kind is not None}
    keys: dict[str, Keys | None] = {}
    unread = []
    for name, table in plan.tables.items():
        if not isinstance(table, SumsPlan) or table.keys is None:
            continue
        with located("tables", name, "keys"):
            if table.keys.from_data and not records:
                unread.append(name)
            keys[name] = _read_keys(plan, table, table.keys, session, kinds, records)
    hierarchies = []
    for i, part in enumerate(plan.hierarchies):
        with located("hierarchies", i):
            if part.file is not None:
                check_not_data(plan, part.file)
            hierarchies.append(read_hierarchy(part, kinds))
    return Cells(keys, tuple(hierarchies), frozenset(unread))


def _read_keys(
    plan: Plan, table: SumsPlan, keys: KeysPlan, session: "Session", kinds: Mapping[str, str], records: bool
) -> "Keys | None":
    """Return the cells of a table; one cell with labels of the right types in place of cells in the records."""
    from slowscale.data.keys import Keys

    if keys.from_data:
        assert keys.by is not None
        if records:
            return Keys.from_data(session, keys.by, derive=plan.data.derive or None, declared_public=True)
        return Keys.from_frame({name: [STAND_INS[kinds.get(name, "text")]] for name in keys.by})
    if keys.file is None:
        return keys.stand_in()
    check_not_data(plan, keys.file, DECLARE_PUBLIC)
    confidential = [*table.sums, *([] if plan.data.protect is None else [plan.data.protect])]
    return read_public_cells(keys.file, keys.by, kinds, confidential, keys.types, keys.csv)


def read_public_cells(
    file: str,
    by: Sequence[str] | None,
    kinds: Mapping[str, str],
    confidential: Iterable[str],
    declared: Mapping[str, str] | None = None,
    csv: CsvPlan | None = None,
) -> "Keys":
    """Read the public cells from a file, or raise if it has columns of records, as a copy of the data has.

    Parameters
    ----------
    file, by
        The file, and the key columns.
    kinds
        The kinds of labels of the data, by column.
    confidential
        The columns that are summed, and the one that identifies protected entities.
    declared, csv
        The declared types, and the format of the file.
    """
    from slowscale.data.keys import Keys
    from slowscale.data.sources import open_source

    types, settings = _file_types(file, dict(declared or {}), csv, kinds)
    columns = open_source(file, types, settings, "keys").table.columns
    secret = {folded(name) for name in confidential} - {folded(name) for name in by or ()}
    for name in columns:
        if folded(name) in secret:
            raise ParameterError(
                file,
                f"has the column {name!r}, so it may be a copy of the records. Which labels occur in the data may "
                "reveal records",
                code="not-public",
                remedy=f"use a public list of labels without that column{DECLARE_PUBLIC}",
            )
    try:
        return Keys.from_file(file, by, types, settings)
    except ParameterError as error:
        others = [name for name in columns if by and name not in by]
        if error.code == "duplicate" and others:
            error.remedy = (
                f"group by {', '.join(columns)}, all columns of {file}, or name a file with one row per "
                f"{', '.join(by or ())}"
            )
        raise


def read_hierarchy(part: HierarchyPlan, kinds: Mapping[str, str]) -> "Hierarchy":
    """Return a hierarchy that a plan describes; its file is read now, with labels of these kinds by column."""
    from slowscale.data.hierarchies import Hierarchy

    if part.file is None or part.levels is None:
        return part.stand_in()
    types, csv = _file_types(part.file, part.types, part.csv, kinds)
    return Hierarchy.from_file(part.column, part.file, part.levels, types, csv)


def _file_types(
    file: str, declared: dict[str, str], csv: CsvPlan | None, kinds: Mapping[str, str]
) -> tuple[dict[str, str] | None, dict[str, Any] | None]:
    """Return the types and the CSV settings to read a file of keys or of a hierarchy with.

    A CSV or Excel file holds text; its columns get the types of the same columns of the data. Those are declared types
    or text, so the published types never depend on the records.
    """
    from slowscale.data.sources import open_source

    settings = None if csv is None else csv.settings
    source = open_source(file, csv=settings, argument="keys")
    if not source.text_numbers:
        return declared or None, settings
    types = {name: LABEL_TYPES[kinds[name]] for name in source.table.columns if name in kinds}
    return {**types, **declared} or None, settings


def check_publication(plan: Plan, cells: Cells) -> "Publication | None":
    """Return the publication with its code lists, or raise if the tables cannot be published like this.

    The names of columns are compared here, after the columns of the data: a misspelled sum is reported as such.
    """
    part = plan.publication
    if part is None:
        return None
    request = cells.request(plan)
    columns = [column for table in plan.drawn.values() for column in getattr(table, "mechanisms", ())]
    keys = [key for name in request for key in request.by(name)]
    keys += [key for table in plan.tables.values() if isinstance(table, RollupPlan) for key in table.by]
    keys += [level for one in cells.hierarchies for level in one.levels]
    part.check_names(list(dict.fromkeys(columns)), list(dict.fromkeys(keys)), sums_tables(plan))
    with located("publication"):
        for file in part.code_files:
            check_not_data(plan, file)
        publication = part.build(plan.release.period)
        check_labels(publication, request, part.excel, cells.unread)
    return publication


def check_labels(publication: "Publication", request: "Request", excel: bool, unknown: Container[str]) -> None:
    """Raise unless the labels of the cells can be published, before anything is charged.

    Parameters
    ----------
    publication, request
        The publication, and the tables.
    excel
        Whether Excel files are written, whose cells hold no long texts.
    unknown
        The drawn tables whose cells are not known yet.
    """
    from slowscale.publish.excel import check_cell_texts, check_publication_texts, check_rows
    from slowscale.publish.profiles import check_codes
    from slowscale.release.request import Sums

    if excel:
        check_publication_texts(publication)
    known = {level: one for one in request.hierarchies for level in one.levels}
    for name in request:
        source = request.source(name)
        drawn = request.drawn[source]
        if not isinstance(drawn, Sums) or drawn.keys is None or source in unknown:
            continue
        for key in request.by(name):
            if key not in publication.codes and not excel:
                continue
            level = None if key in drawn.keys.columns else known[key]
            cells = drawn.keys.table
            column = cells[key] if level is None else level.label_column(key, cells[level.column])
            labels = column.unique().to_pylist()
            check_codes(publication, key, labels)
            if excel:
                check_cell_texts(f"the column {key!r}", [label for label in labels if isinstance(label, str)])
                if key in publication.codes:
                    check_cell_texts(f"codes[{key!r}]", [publication.key_name(key, label) for label in labels])
        if excel and name in request.drawn:
            check_rows(f"table {name!r}", len(drawn.keys))
