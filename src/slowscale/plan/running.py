"""A plan is carried out: checked, charged, released and written."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from slowscale.accounting import Accountant
from slowscale.errors import PlanError, UnitWarning
from slowscale.plan.charging import open_account, open_accountant, record_refusal
from slowscale.plan.checking import check_columns
from slowscale.plan.models import Plan
from slowscale.plan.outputs import check_outputs, table_files
from slowscale.plan.query import check_column_names, plan_keys, plan_query, plan_tables

if TYPE_CHECKING:
    from slowscale.quantiles import PrivateQuantiles, QuantilesQuery
    from slowscale.release import Release, ReleaseSet
    from slowscale.session import Inspection, Session


def run_plan(
    plan: Plan, overwrite: bool = False, confidential: Path | None = None
) -> "tuple[Release | ReleaseSet, list[Path]]":
    """Make the release that a plan describes and write its files; return the release and the files.

    Parameters
    ----------
    plan
        The plan.
    overwrite
        Whether existing outputs may be replaced.
    confidential
        Where to write the confidential report, if it is wanted.
    """
    check_outputs(plan, overwrite, confidential)
    # The ledger is opened before the data, so that data which cannot be read is recorded there as an attempt.
    accountant = open_accountant(plan)
    with record_refusal(plan, accountant), warnings.catch_warnings():
        warnings.simplefilter("ignore", UnitWarning)  # the release below warns
        check_columns(plan, accountant.account)
    session = _open_session(plan, accountant)
    if plan.is_set:
        tables = plan_tables(plan, session)
        check_column_names(plan, session)
        found = session.release(tables)
        return found, _write_set(plan, session, found, overwrite, confidential)
    keys = plan_keys(plan, session)
    check_column_names(plan, session)
    release = session.release(plan_query(plan, keys))
    return release, _write_outputs(plan, session, release, overwrite, confidential)


def run_quantiles(plan: Plan, query: "QuantilesQuery", level: float) -> "PrivateQuantiles":
    """Release quantiles of a column of a plan's data: of the records that the plan uses, charged to its ledger."""
    session = _open_session(plan, open_accountant(plan))
    check_column_names(plan, session)  # the first charge makes the ledger, and fixes its caps
    data = plan.data
    return session.quantiles(
        query.column,
        query.at,
        loss=query.loss,
        grid=query.grid,
        level=level,
        where=data.where,
        derive=data.derive or None,
        nulls=plan.options.nulls,
    )


def _open_session(plan: Plan, accountant: Accountant) -> "Session":
    """Return a session on the data of a plan that charges an accountant."""
    from slowscale.session import Session

    data = plan.data
    return Session(
        data.location,
        accountant,
        dataset=data.name,
        accounting=plan.accounting,
        protect=data.protect,
        **data.reading_options,
    )


def inspect_plan(plan: Plan, duplicates: bool = True) -> "Inspection":
    """Look at the records of a plan for one table; see `Session.inspect`. CONFIDENTIAL: for the curator only.

    The account is a copy, so that neither the look nor an error that depends on the records reaches the ledger.

    Parameters
    ----------
    plan
        The plan.
    duplicates
        Whether to count exact copies of records.
    """
    if plan.is_set:
        raise PlanError(f"the plan describes the tables {', '.join(plan.drawn)}; look at them with inspect_tables")
    return inspect_tables(plan, duplicates)[""]


def inspect_tables(plan: Plan, duplicates: bool = True) -> "dict[str, Inspection]":
    """Look at the records of a plan: one inspection for each drawn table by name. CONFIDENTIAL; see `inspect_plan`.

    The inspection of a plan for one table has the name "".
    """
    from slowscale.session import Session

    account, data = open_account(plan).copy(), plan.data
    session = Session(data.location, account, accounting=plan.accounting, protect=data.protect, **data.reading_options)
    if plan.is_set:
        tables = plan_tables(plan, session)
        check_column_names(plan, session)
        return session.inspect(tables, duplicates=duplicates)
    keys = plan_keys(plan, session)
    check_column_names(plan, session)
    return {"": session.inspect(plan_query(plan, keys), duplicates=duplicates)}


def _write_outputs(
    plan: Plan, session: "Session", release: "Release", overwrite: bool, confidential: Path | None
) -> list[Path]:
    """Write the files of a release, the table first: it cannot be drawn again."""
    output, files = plan.output, []
    if output.parquet is not None:
        files.append(release.to_parquet(output.parquet, overwrite=overwrite))
    if output.csv is not None:
        files.append(release.to_csv(output.csv, overwrite=overwrite))
    if output.report is not None:
        spent = session.spent if session.ledger is not None else None
        files.append(release.report(output.report, spent, overwrite=overwrite, sizes=plan.sizes or None))
    if confidential is not None:
        files.append(release.confidential_report(confidential, session, overwrite=overwrite))
    return files


def _write_set(
    plan: Plan, session: "Session", found: "ReleaseSet", overwrite: bool, confidential: Path | None
) -> list[Path]:
    """Write the files of all tables and the report: all of them, or none.

    If the report cannot be made, the tables are written, because they cannot be drawn again.
    """
    from slowscale.files import Writers, made_folder, write_files
    from slowscale.report import set_report_text

    assert plan.output.folder is not None
    made_folder(plan.output.folder)
    paths = table_files(plan)
    writers: Writers = found.files(paths, overwrite)
    written = [path for some in paths.values() for path in some]
    report = None if plan.output.report is None else Path(plan.output.report)
    try:
        if report is not None:
            spent = session.spent if session.ledger is not None else None
            text = set_report_text(found, spent, plan.sizes or None)
            writers[report] = lambda file: file.write_text(text, encoding="utf-8")
            written.append(report)
    finally:
        write_files(writers, overwrite=overwrite)
    if confidential is not None:
        written.append(found.confidential_report(confidential, session, overwrite=overwrite))
    return written
