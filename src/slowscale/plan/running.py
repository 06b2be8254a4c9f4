"""A plan is carried out: checked, charged, released and written."""

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from slowscale.errors import EngineError, PlanError, SlowscaleError, UnitWarning
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
    steps = _Steps()
    if isinstance(found, ReleaseSet):
        _write_set(steps, plan, session, found, overwrite, confidential, publication)
    else:
        _write_outputs(steps, plan, session, found, overwrite, confidential, publication)
    _sign_outputs(steps, plan, key, overwrite)
    steps.raise_problems()
    return found, steps.files


class _Steps:
    """The files of a release are written one after the other. One that fails does not stop the others.

    The release was charged and cannot be drawn again, so everything that can be written is written, and signed.
    """

    def __init__(self) -> None:
        self.files: list[Path] = []
        self.problems: list[Exception] = []

    def attempt(self, write: Callable[[], Path | list[Path]]) -> None:
        """Write files, and keep their paths or the error."""
        try:
            made = write()
        except Exception as error:
            self.problems.append(error)
        else:
            self.files += made if isinstance(made, list) else [made]

    def raise_problems(self) -> None:
        """Raise what failed; the error says which files were written."""
        if not self.problems:
            return
        first = self.problems[0]
        if not all(isinstance(one, SlowscaleError) for one in self.problems):
            raise first
        written = ", ".join(map(str, self.files)) or "no files"
        words = "; ".join(map(str, self.problems))
        raise EngineError(
            f"{words}. The release was made and charged, and these files were written: {written}"
        ) from first


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
    steps: _Steps,
    plan: Plan,
    session: "Session",
    release: "Release",
    overwrite: bool,
    confidential: Path | None,
    publication: "Publication | None",
) -> None:
    """Write the files of a release, the table first: it cannot be drawn again."""
    output = plan.output
    if (parquet := output.parquet) is not None:
        steps.attempt(lambda: release.to_parquet(parquet, overwrite=overwrite))
    if (csv := output.csv) is not None:
        steps.attempt(lambda: release.to_csv(csv, overwrite=overwrite))
    _publish(steps, plan, release, overwrite, publication)
    if (report := output.report) is not None:
        spent = session.spent if session.ledger is not None else None
        sizes = plan.sizes or None
        steps.attempt(lambda: release.report(report, spent, overwrite=overwrite, sizes=sizes, publication=publication))
    if confidential is not None:
        steps.attempt(lambda: release.confidential_report(confidential, session, overwrite=overwrite))


def _write_set(
    steps: _Steps,
    plan: Plan,
    session: "Session",
    found: "ReleaseSet",
    overwrite: bool,
    confidential: Path | None,
    publication: "Publication | None",
) -> None:
    """Write the files of all tables and the report: all of them, or none. Then the files for readers.

    If the report cannot be made, the tables are written, because they cannot be drawn again.
    """
    from slowscale.files import Writers, made_folder, write_files
    from slowscale.report import set_report_text

    folder, report = plan.output.folder, plan.output.report
    assert folder is not None
    texts: dict[Path, str] = {}

    def make_report() -> list[Path]:
        if report is not None:
            spent = session.spent if session.ledger is not None else None
            texts[Path(report)] = set_report_text(found, spent, plan.sizes or None, publication)
        return []

    def write_tables() -> list[Path]:
        made_folder(folder)
        writers: Writers = found.files(plan.table_files, overwrite)
        for path, text in texts.items():
            writers[path] = lambda file, text=text: file.write_text(text, encoding="utf-8")  # type: ignore[misc]
        write_files(writers, overwrite=overwrite)
        return [*(path for some in plan.table_files.values() for path in some), *texts]

    steps.attempt(make_report)
    steps.attempt(write_tables)
    _publish(steps, plan, found, overwrite, publication)
    if confidential is not None:
        steps.attempt(lambda: found.confidential_report(confidential, session, overwrite=overwrite))


def _publish(
    steps: _Steps,
    plan: Plan,
    found: "Release | ReleaseSet",
    overwrite: bool,
    publication: "Publication | None",
) -> None:
    """Write the files for readers, if the plan has a publication."""
    if plan.publication is None or publication is None:
        return
    from slowscale.publication import publish

    for profile, file in plan.publication.files:
        steps.attempt(partial(publish, found, file, publication, profile=profile, overwrite=overwrite))


def _sign_outputs(steps: _Steps, plan: Plan, key: "Ed25519PrivateKey | None", overwrite: bool) -> None:
    """Sign the files that were written, if the plan names a key."""
    if key is None:
        return
    from slowscale.signatures import sign

    written = set(steps.files)
    for signature, paths in plan.signatures.items():
        if made := [path for path in paths if Path(path) in written]:
            steps.attempt(partial(sign, made, key, signature=signature, overwrite=overwrite))
