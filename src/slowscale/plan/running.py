"""A plan is carried out: checked, charged, released and written."""

import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from slowscale.core.errors import PlanError, UnitWarning
from slowscale.plan.charging import open_account, open_ready, open_session, record_refusal
from slowscale.plan.checking import check_columns
from slowscale.plan.models import Plan
from slowscale.plan.outputs import check_outputs, signing_key
from slowscale.plan.query import check_column_names, plan_request
from slowscale.plan.writing import Output, Written, reader_outputs, table_files, table_outputs
from slowscale.release.request import ONLY

if TYPE_CHECKING:
    from slowscale.release import Release
    from slowscale.release.inspection import Inspection
    from slowscale.release.quantiles import ReleasedQuantiles
    from slowscale.release.request import Quantiles


def run_plan(plan: Plan, overwrite: bool = False, confidential: Path | None = None) -> "tuple[Release, list[Path]]":
    """Make the release that a plan describes and write its files; return the release and the files.

    If a file cannot be written after the charge, all others are, and an `IncompleteError` says what is missing.

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
    key = signing_key(plan)  # read before anything is charged, and kept
    # The ledger is opened before the data, so that data which cannot be read is recorded there as an attempt.
    accountant = open_ready(plan)
    with record_refusal(plan, accountant), warnings.catch_warnings():
        warnings.simplefilter("ignore", UnitWarning)  # the release below warns
        check_columns(plan, accountant.account)
    session = open_session(plan, accountant)
    request = plan_request(plan, session)
    publication = None if plan.publication is None else plan.publication.build()
    found = session.release(request)
    written = Written()
    for output in table_outputs(plan, found.tables):
        written.attempt(output, overwrite)
    for output in reader_outputs(plan, found, lambda: None if session.ledger is None else session.spent, publication):
        written.attempt(output, overwrite)
    if confidential is not None:
        written.attempt(Output((confidential,), partial(found.confidential_report, confidential, session)), overwrite)
    written.sign(plan, key, overwrite)
    files = table_files(plan)
    written.raise_problems(plan, [name for name in plan.drawn if not set(files[name]) & set(written.files)])
    return found, written.files


def run_quantiles(plan: Plan, asked: "Quantiles", level: float) -> "ReleasedQuantiles":
    """Release quantiles of a column of a plan's data: of the records that the plan uses, charged to its ledger."""
    from slowscale.release.request import Request

    session = open_session(plan, open_ready(plan))
    check_column_names(plan, session)  # the first charge makes the ledger, and fixes its caps
    data = plan.data
    table = replace(asked, where=data.where, derive=data.derive or None, nulls=plan.options.nulls)
    found: ReleasedQuantiles = session.release(Request({"quantiles": table}, level=level))["quantiles"]
    return found


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
    return inspect_tables(plan, duplicates)[ONLY]


def inspect_tables(plan: Plan, duplicates: bool = True) -> "dict[str, Inspection]":
    """Look at the records of a plan: one inspection for each drawn table by name. CONFIDENTIAL; see `inspect_plan`."""
    session = open_session(plan, open_account(plan).copy())
    found = session.inspect(plan_request(plan, session), duplicates=duplicates)
    return found if isinstance(found, dict) else {next(iter(plan.drawn)): found}


def describe_matches(plan: Plan) -> str:
    """Return whether records match the keys of each drawn table, with near misses. CONFIDENTIAL: for the screen only.

    What was found must not reach an exception, an exit code, a file or the ledger: before a charge, even that the
    look failed may tell something about the records. So an error becomes text, too.
    """
    from slowscale.plan.wording import in_plan_words

    try:
        found = inspect_tables(plan, duplicates=False)
    except Exception as error:
        return f"CONFIDENTIAL: the records could not be looked at: {in_plan_words(str(error))}"
    texts = []
    for name, one in found.items():
        words = replace(one, refusals=tuple(map(in_plan_words, one.refusals))).matches()
        texts.append(f"Table {name}:\n{words}" if plan.is_set else words)
    return "\n\n".join(texts)
