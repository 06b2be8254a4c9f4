"""A plan is carried out: checked, charged, released and written; or finished, if files of its release are missing."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slowscale.accounting import Ledger, Spent
from slowscale.accounting.charge import total_of
from slowscale.core.errors import (
    CapError,
    EngineError,
    LedgerError,
    ParameterError,
    SignatureError,
    SlowscaleError,
    located,
)
from slowscale.plan.checking import (
    Checked,
    check_has_tables,
    check_plan,
    check_publication,
    open_accountant,
    open_columns,
    open_session,
    read_cells,
    read_hierarchy,
    read_known_cells,
)
from slowscale.plan.outputs import (
    Output,
    Written,
    existing_error,
    output_of,
    outputs_of,
    reader_outputs,
    signing_key,
    sums_tables,
    table_files,
    table_outputs,
    units_of,
)
from slowscale.plan.reading import at_its_place
from slowscale.plan.schema import Plan
from slowscale.release.facts import Facts
from slowscale.release.stored import Target, locked_folder

if TYPE_CHECKING:
    from slowscale.publish.minisign import PublicKey
    from slowscale.release.dominance import Dominance
    from slowscale.release.inspection import Inspection
    from slowscale.release.quantiles import ReleasedQuantiles
    from slowscale.release.release import Release
    from slowscale.release.request import Drawn, Quantiles
    from slowscale.release.supplied import SumsSql, SuppliedSums
    from slowscale.release.table import ReleasedTable


MANY = 1 << 21  # cells: a release with more is drawn and written batch by batch


def run_plan(plan: Plan, overwrite: bool = False, confidential: Path | None = None) -> "tuple[Release, list[Path]]":
    """Check a plan, make the release that it describes and write its files; see `run_checked`."""
    return run_checked(check_plan(plan, overwrite, confidential))


def plan_sql(plan: Plan, dialect: str | None = None) -> "SumsSql":
    """Return the SQL that computes the exact sums of a plan elsewhere. No record is read, and nothing is charged.

    Parameters
    ----------
    plan
        The plan.
    dialect
        The dialect of the SQL; by default that of the plan's data.
    """
    check_has_tables(plan)
    account = open_accountant(plan, ready=False).account
    with at_its_place(plan), ExitStack() as stack:
        with at_its_place(plan, "data"):
            session = stack.enter_context(open_columns(plan, account))
            request = read_known_cells(plan, session).request(plan)
        return session.sums_sql(request, dialect)


def run_checked(checked: Checked, sums: "SuppliedSums | None" = None) -> "tuple[Release, list[Path]]":
    """Make the release of a plan that was checked, and write its files; return the release and the files.

    With `sums`, which were computed elsewhere, no record is read.

    A refusal by a cap is recorded in the ledger. If a file cannot be written after the charge, all others are, and an
    `IncompleteError` lists the missing ones.
    """
    if checked.refusal is not None:
        checked.record_refusal()
        checked.raise_refusal()
    plan, overwrite = checked.plan, checked.overwrite
    folder = Path(output_of(plan).folder)
    with at_its_place(plan), _locked(plan):
        if not overwrite:  # another release may have written them since the check
            for _, path in outputs_of(plan, checked.confidential):
                if os.path.lexists(path):
                    raise existing_error(path)
        # The ledger is open before the data, so that data which cannot be read is recorded there as an attempt.
        # An error about supplied sums names their file; every other error without a place is about the data.
        with at_its_place(plan, *([] if sums else ["data"])), ExitStack() as stack:
            if sums is None:
                session, cells = open_session(plan, checked.accountant), checked.cells
            else:
                session = stack.enter_context(open_columns(plan, checked.accountant))
                cells = read_known_cells(plan, session)
            if cells.unread:
                cells = read_cells(plan, session, records=True)
                check_publication(plan, cells)  # with the labels that are known only now
            request, formats = cells.request(plan), output_of(plan).formats
            large = request.cells > MANY and "parquet" in formats
            if large:
                target = Target(folder, "csv" in formats, overwrite, units_of(plan))
                release = session._carry_out(session._bind(request, sums), target)
            else:
                release = session.release(request, sums=sums)
        written = Written(plan, [path for paths in table_files(plan).values() for path in paths] if large else [])
        outputs = [] if large else [*table_outputs(plan, release.tables)]
        spent = lambda: session.spent if session.ledger else None  # noqa: E731
        outputs += reader_outputs(plan, release, spent, checked.publication)
        if (report := checked.confidential) is not None:
            outputs.append(Output((report,), partial(release.confidential_report, report, session)))
        for output in outputs:
            written.attempt(output, overwrite)
        written.sign(checked.key, overwrite)
    files = table_files(plan)
    written.raise_problems([name for name in plan.drawn if not set(files[name]) & set(written.files)])
    return release, written.files


@contextmanager
def _locked(plan: Plan) -> Iterator[None]:
    """Hold the lock of the folder of the tables."""
    with ExitStack() as stack:
        with located("output", "folder"):
            stack.enter_context(locked_folder(Path(output_of(plan).folder), plan.tables))
        yield


def run_quantiles(plan: Plan, table: "Quantiles", level: float) -> "ReleasedQuantiles":
    """Release quantiles of the records that a plan uses, with its derived columns, charged to its ledger."""
    from slowscale.release.request import Request

    with at_its_place(plan, "data"):
        session = open_session(plan, open_accountant(plan))
    asked = replace(table, where=table.where or plan.data.where, derive=plan.data.derive or None)
    request = Request({"quantiles": asked}, level=level, period=plan.release.period)
    try:
        found: ReleasedQuantiles = session.release(request)["quantiles"]
    except (CapError, LedgerError):  # the query is not in the plan, but the ledger is
        with at_its_place(plan):
            raise
    return found


def inspect_plan(plan: Plan, duplicates: bool = True, dominance: "Dominance | None" = None) -> "dict[str, Inspection]":
    """Inspect the records of a plan: one inspection for each drawn table of sums. CONFIDENTIAL: for the curator only.

    The account is a copy, so that neither the inspection nor an error that depends on the records reaches the ledger.

    Parameters
    ----------
    plan
        The plan.
    duplicates
        Whether to count exact copies of records.
    dominance
        The rules by which open cells are counted, or None to leave them out.
    """
    check_has_tables(plan)
    with at_its_place(plan, "data"):
        session = open_session(plan, open_accountant(plan, ready=False).account)
        request = read_cells(plan, session, records=True).request(plan)
        found = session.inspect(request, duplicates=duplicates, dominance=dominance)
    return found if isinstance(found, dict) else {next(name for name in sums_tables(plan) if name in plan.drawn): found}


def describe_matches(plan: Plan) -> str:
    """Return whether records match the keys of each drawn table, with near misses. CONFIDENTIAL: for the screen only.

    The findings must not reach an exception, an exit code, a file or the ledger: before a charge, even that the
    inspection failed may reveal something about the records. So an error becomes text, too.
    """
    try:
        found = inspect_plan(plan, duplicates=False)
    except Exception as error:
        return f"CONFIDENTIAL: the records could not be inspected: {error}"
    return "\n\n".join(f"Table {name}:\n{one.matches()}" for name, one in found.items())


# Finishing: missing files of a release that was charged are made from the drawn tables that are on disk. Nothing below
# reads records, draws noise or charges the ledger. A drawn table that is not on disk is lost.


def finish_plan(plan: Plan, overwrite: bool = False) -> "tuple[Release, list[Path]]":
    """Write the missing files of a release that was made by this plan; return the release and the files.

    If a drawn table is lost, or a file cannot be written, an `IncompleteError` follows once all others are written.

    Parameters
    ----------
    plan
        The plan.
    overwrite
        Whether to write all files again, except one of each drawn table, from which the others are made. If the drawn
        tables on disk are of several releases, the newest one is finished, and only older ones are replaced.
    """
    from slowscale.accounting.record import read_policies
    from slowscale.release.release import Release

    check_has_tables(plan)
    sources = _newest(plan, _drawn_files(plan))
    with at_its_place(plan), _locked(plan):
        key = signing_key(plan)
        drawn = {name: _read(plan, name, path) for name, path in sources.items()}
        facts = next(iter(drawn.values())).whole
        spent = _spent(plan, facts)
        tables = _with_derived(plan, drawn)
        outputs = list(table_outputs(plan, tables))
        lost = [name for name in plan.drawn if name not in drawn]
        found: Release | None = None
        if not lost:
            policies = read_policies({"policy": facts.policy, "pure_policy": facts.pure_policy})
            found = Release.of(tables, facts.with_(table=None), *policies)
            publication = None if plan.publication is None else plan.publication.build(plan.release.period)
            outputs += reader_outputs(plan, found, lambda: spent, publication)
        kept = [one for one in outputs if one.files[0] in sources.values()]
        if not overwrite:
            kept += [one for one in outputs if one not in kept and _is_kept(plan, one, facts.id)]
        if key is not None:
            _verify_sources(list(sources.values()), key.public, overwrite)
        written = Written(plan)
        for output in outputs:
            if output not in kept:
                written.attempt(output, True)  # existing files are made again from the same tables
        written.sign(key, True, [file for output in kept for file in output.files])
    written.raise_problems(lost)
    assert found is not None
    return found, written.files


def _drawn_files(plan: Plan) -> dict[str, dict[Path, Facts]]:
    """Return the files of each drawn table that are on disk, with the facts in them; raise if there is none.

    A damaged file is left out if another file of the same table can be read.
    """
    from slowscale.release.release import read_file_facts

    files = {name: paths for name, paths in table_files(plan).items() if name in plan.drawn}
    found: dict[str, dict[Path, Facts]] = {name: {} for name in files}
    for name, paths in files.items():
        problem: SlowscaleError | None = None
        for path in filter(os.path.lexists, paths):
            try:
                found[name][path] = read_file_facts(path)
            except SlowscaleError as error:
                problem = problem or error
        if problem is not None and not found[name]:
            raise problem
    if not any(found.values()):
        places = ", ".join(str(path) for paths in files.values() for path in paths)
        raise ParameterError(
            "--finish",
            f"makes files from the drawn tables that are on disk, but there is none at {places}. A drawn table that is "
            "missing is lost: another release, without --finish, is another charge",
            code="missing",
        )
    return found


def _newest(plan: Plan, files: Mapping[str, Mapping[Path, Facts]]) -> dict[str, Path]:
    """Return a file of each drawn table of the newest release on disk: an older one must never replace it."""
    paths = {path: facts for found in files.values() for path, facts in found.items()}
    by_id = {facts.id: (path, facts) for path, facts in paths.items()}
    ranks: dict[str, tuple[int, str]] = {}
    for one, (path, facts) in by_id.items():
        if plan.ledger is not None and len(by_id) > 1:
            try:
                _spent(plan, facts)
            except LedgerError as error:
                problem = f"is of another release than other drawn tables, and {error}"
                raise LedgerError(path, problem, code="not-charged") from None
        ranks[one] = (facts.ledger.entry if plan.ledger is not None and facts.ledger else 0, facts.created)
    newest = max(ranks, key=lambda one: ranks[one])
    if list(ranks.values()).count(ranks[newest]) > 1:
        raise EngineError(
            f"the drawn tables {', '.join(map(str, paths))}",
            "are of several releases, and they do not tell which one is the newest",
            code="mismatch",
            remedy="keep those of one release only",
        )
    found = {}
    for name, candidates in files.items():
        of_newest = [path for path, facts in candidates.items() if facts.id == newest]
        if of_newest:
            found[name] = next((path for path in of_newest if _is_readable(path)), of_newest[0])
    return found


def _is_readable(path: Path) -> bool:
    from slowscale.release.release import read_release

    try:
        read_release(path)
    except SlowscaleError:
        return False
    return True


def _read(plan: Plan, name: str, path: Path) -> "ReleasedTable":
    """Return a drawn table that is on disk, or raise unless this plan made it."""
    from slowscale.release.release import read_release
    from slowscale.release.repeating import requested_table

    table: Any = next(iter(read_release(path).tables.values()))
    facts, whole = table.facts, table.whole
    here = {
        "protect": whole.protect,
        "name of the data set": whole.dataset,
        "period": whole.period,
        "accounting": whole.accounting,
        "filter": facts.where,
        "tables": (table.name, tuple(whole.tables)),
    }
    there = {
        "protect": plan.data.protect,
        "name of the data set": plan.data.name,
        "period": plan.release.period,
        "accounting": plan.release.accounting,
        "filter": plan.data.where,
        "tables": (name, tuple(plan.tables)),
    }
    different = [what for what in here if here[what] != there[what]]
    if facts.drawn and not different:
        made, planned = _described(requested_table(table)), _described(plan.drawn[name])
        if name in plan.unknown_keys:  # the file names the key columns
            planned |= {"keys": made.get("keys")}
        different = [what for what in planned if made.get(what) != planned[what]]
    if not facts.drawn or different:
        raise ParameterError(
            path,
            f"was not made by this plan: the {', '.join(different) or 'table'} differ",
            code="mismatch",
            remedy="finish a release with the plan that made it",
        )
    found: ReleasedTable = table
    return found


def _described(table: "Drawn") -> dict[str, Any]:
    """Return the properties by which a drawn table is recognized, by their names in errors."""
    from slowscale.release.request import Sums

    if isinstance(table, Sums):
        return {"mechanisms": table.mechanisms, "keys": table.by}
    return {"quantiles": (table.column, table.at, table.loss, table.grid)}


def _spent(plan: Plan, facts: Facts) -> Spent | None:
    """Return the total loss by all releases up to this one, or None without a ledger; raise if it is not there.

    The ledger is only read.
    """
    if plan.ledger is None:
        return None
    path = Path(plan.ledger.path)
    if not path.exists() or not facts.ledger:
        raise LedgerError(
            f"the release {facts.id}",
            f"is not in the ledger {path}",
            code="not-charged",
            remedy="finish it with the ledger that it was charged to",
        )
    with Ledger(path) as ledger:
        if problems := ledger.verify(facts.ledger.to_dict()):
            raise LedgerError(
                f"the release {facts.id}",
                f"was not charged to the ledger {path}, or the ledger was changed: {problems[0]}",
                code="not-charged",
            )
        history = ledger.history()[: facts.ledger.entry]
        charges = [entry for entry in history if entry["kind"] == "charge"]
        return total_of(ledger.account.charges[: len(charges)])


def _verify_sources(sources: Sequence[Path], public: "PublicKey", overwrite: bool) -> None:
    """Raise unless the drawn tables match their signatures, if there are any: the new files are signed with them.

    Other signed files of their folders must match too, unless all of them are made again.
    """
    from slowscale.publish.signing import SIGNATURE, verify

    facts = [path.with_name(f"{path.name}.json") for path in sources if path.suffix == ".csv"]
    for path in [*sources, *facts]:
        if not path.with_name(SIGNATURE).exists():
            continue
        try:
            verify(path, public)
        except SignatureError as error:
            if not overwrite or error.file in (None, path.name):
                raise


def _with_derived(plan: Plan, drawn: "Mapping[str, ReleasedTable]") -> "dict[str, ReleasedTable]":
    """Return the drawn tables, and all tables that can be derived from them, as they were released."""
    from slowscale.release.rollup import roll_up
    from slowscale.release.table import ReleasedSums

    whole = next(iter(drawn.values())).whole
    if any(table.whole.id != whole.id for table in drawn.values()):
        raise EngineError(
            "the drawn tables on disk",
            "are of several releases",
            code="mismatch",
            remedy="keep those of one release only",
        )
    kinds = {key: kind for one in whole.tables.values() if one.keys for key, kind in one.keys.columns.items()}
    hierarchies = [read_hierarchy(part, kinds) for part in plan.hierarchies]
    found: dict[str, ReleasedTable] = {}
    for name, facts in whole.tables.items():
        if name in drawn:
            found[name] = drawn[name]
        elif facts.rollup is not None and facts.rollup.of in drawn:
            source = drawn[facts.rollup.of]
            assert isinstance(source, ReleasedSums)
            used = [one for one in hierarchies if set(one.levels) & set(facts.by)]
            rolled = roll_up(source, facts.by, used or None, name)
            if len(rolled) != facts.rows:
                raise ParameterError(
                    f"the table {name!r}",
                    f"had {facts.rows:,} rows when it was released, and has {len(rolled):,} now",
                    code="changed",
                    remedy="use the hierarchies of the release",
                )
            found[name] = rolled.with_facts(rolled.facts.with_(of=facts.of))
    return found


def _is_kept(plan: Plan, output: Output, release: str) -> bool:
    """Return whether all files of an output are there; raise if one is damaged, or not shown to be of this release.

    Files of which one is missing are made again, unless the facts of the table are there and are of another release.
    """
    from slowscale.publish.writing import published_releases
    from slowscale.release.release import read_file_facts

    first, complete = output.files[0], all(map(os.path.lexists, output.files))
    tables = {path: name for name, paths in table_files(plan).items() for path in paths}
    report, damaged = output_of(plan).report, False
    if not any(map(os.path.lexists, output.files)):
        return False
    if first in tables:
        try:
            facts = read_file_facts(first)
        except SlowscaleError:
            of_this, damaged = not complete, complete
        else:
            of_this = (facts.id, facts.table) == (release, tables[first])
            damaged = of_this and complete and not _is_readable(first)
    elif not complete:
        of_this = True
    elif report is not None and first == Path(report):
        of_this = release in first.read_text(encoding="utf-8", errors="replace")
    else:
        of_this = published_releases(output.files) == [(release, name) for name in sums_tables(plan)]
    remedy = "pass --overwrite to write it again"
    if damaged:
        raise ParameterError(first, "is damaged, or no table of a release", code="unreadable", remedy=remedy)
    if not of_this:
        raise ParameterError(first, "is of another release", code="mismatch", remedy=remedy)
    return complete
