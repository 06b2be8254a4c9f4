"""A plan is carried out: checked, charged, released and written."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from slowscale.errors import PlanError, UnitWarning
from slowscale.plan.charging import open_account, open_ready, open_session, record_refusal
from slowscale.plan.checking import check_columns
from slowscale.plan.models import Plan
from slowscale.plan.outputs import check_outputs, signing_key
from slowscale.plan.query import check_column_names, session_query

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from slowscale.publication import Publication
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
    from slowscale.release import ReleaseSet

    check_outputs(plan, overwrite, confidential)
    key = signing_key(plan)  # read before anything is charged, and kept
    # The ledger is opened before the data, so that data which cannot be read is recorded there as an attempt.
    accountant = open_ready(plan)
    with record_refusal(plan, accountant), warnings.catch_warnings():
        warnings.simplefilter("ignore", UnitWarning)  # the release below warns
        check_columns(plan, accountant.account)
    session = open_session(plan, accountant)
    query = session_query(plan, session)
    publication = None if plan.publication is None else plan.publication.build()
    found = session.release(query)
    if isinstance(found, ReleaseSet):
        files = _write_set(plan, session, found, overwrite, confidential, publication)
    else:
        files = _write_outputs(plan, session, found, overwrite, confidential, publication)
    return found, files + _sign_outputs(plan, key, overwrite)


def run_quantiles(plan: Plan, query: "QuantilesQuery", level: float) -> "PrivateQuantiles":
    """Release quantiles of a column of a plan's data: of the records that the plan uses, charged to its ledger."""
    session = open_session(plan, open_ready(plan))
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
    session = open_session(plan, open_account(plan).copy())
    found = session.inspect(session_query(plan, session), duplicates=duplicates)
    return found if isinstance(found, dict) else {"": found}


def _write_outputs(
    plan: Plan,
    session: "Session",
    release: "Release",
    overwrite: bool,
    confidential: Path | None,
    publication: "Publication | None",
) -> list[Path]:
    """Write the files of a release, the table first: it cannot be drawn again."""
    output, files = plan.output, []
    if output.parquet is not None:
        files.append(release.to_parquet(output.parquet, overwrite=overwrite))
    if output.csv is not None:
        files.append(release.to_csv(output.csv, overwrite=overwrite))
    if plan.publication is not None and publication is not None:
        from slowscale.publication import publish

        for profile, file in plan.publication.files:
            files += publish(release, file, publication, profile=profile, overwrite=overwrite)
    if output.report is not None:
        spent = session.spent if session.ledger is not None else None
        sizes = plan.sizes or None
        files.append(release.report(output.report, spent, overwrite=overwrite, sizes=sizes, publication=publication))
    if confidential is not None:
        files.append(release.confidential_report(confidential, session, overwrite=overwrite))
    return files


def _write_set(
    plan: Plan,
    session: "Session",
    found: "ReleaseSet",
    overwrite: bool,
    confidential: Path | None,
    publication: "Publication | None",
) -> list[Path]:
    """Write the files of all tables and the report: all of them, or none. Then the files for readers.

    If the report cannot be made, the tables are written, because they cannot be drawn again.
    """
    from slowscale.files import Writers, made_folder, write_files
    from slowscale.report import set_report_text

    assert plan.output.folder is not None
    made_folder(plan.output.folder)
    writers: Writers = found.files(plan.table_files, overwrite)
    written = [path for some in plan.table_files.values() for path in some]
    report = None if plan.output.report is None else Path(plan.output.report)
    try:
        if report is not None:
            spent = session.spent if session.ledger is not None else None
            text = set_report_text(found, spent, plan.sizes or None, publication)
            writers[report] = lambda file: file.write_text(text, encoding="utf-8")
            written.append(report)
    finally:
        write_files(writers, overwrite=overwrite)
    written += _publish(plan, found, overwrite, publication)
    if confidential is not None:
        written.append(found.confidential_report(confidential, session, overwrite=overwrite))
    return written


def _publish(
    plan: Plan, found: "Release | ReleaseSet", overwrite: bool, publication: "Publication | None"
) -> list[Path]:
    """Write the files for readers, if the plan has a publication."""
    if plan.publication is None or publication is None:
        return []
    from slowscale.publication import publish

    files = []
    for profile, file in plan.publication.files:
        files += publish(found, file, publication, profile=profile, overwrite=overwrite)
    return files


def _sign_outputs(plan: Plan, key: "Ed25519PrivateKey | None", overwrite: bool) -> list[Path]:
    """Sign the files of a release, if the plan names a key, and return the signature files."""
    if key is None:
        return []
    from slowscale.signatures import sign

    return [sign(paths, key, signature=signature, overwrite=overwrite) for signature, paths in plan.signatures.items()]
