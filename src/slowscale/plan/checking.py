"""A plan is tried on the columns of its data before any record is read.

What passes here, the release itself refuses only because of what the records hold.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slowscale.accounting import Account
from slowscale.core.errors import CapError, ConfidentialWarning, DataError, ParameterError, SlowscaleError
from slowscale.plan.charging import check_charge, open_ready, open_session
from slowscale.plan.inputs import DataPlan
from slowscale.plan.models import Plan
from slowscale.plan.outputs import check_outputs, existing_outputs, signing_key
from slowscale.plan.query import plan_request, takes_keys_from_data

if TYPE_CHECKING:
    from slowscale.release.preview import Preview
    from slowscale.release.session import Session


@dataclass(frozen=True)
class Checked:
    """What is known of a plan without its records.

    Attributes
    ----------
    account
        What was released before.
    refusal
        The error with which a release would be refused: a cap that would be exceeded, or an output that exists.
    caps_checked, columns_checked
        Whether the caps and the columns could be checked without the records. Caps cannot if the release is about the
        parts of a partition whose labels are taken from the data.
    existing
        The outputs that exist already.
    preview
        For several tables: the cost and the accuracy of each. None for one table, and if it could not be computed.
    """

    account: Account
    refusal: SlowscaleError | None
    caps_checked: bool
    columns_checked: bool
    existing: tuple[str, ...]
    preview: "Preview | None" = None


def check_plan(plan: Plan, overwrite: bool = False) -> Checked:
    """Check everything that a release needs short of the records themselves, in the words of `run_plan`.

    Mistakes are raised. What only time or an option can change, a cap or an existing output, is returned.

    Parameters
    ----------
    plan
        The plan.
    overwrite
        Whether existing outputs may be replaced.
    """
    check_outputs(plan, overwrite=True)
    signing_key(plan)
    account = open_ready(plan).account
    refusal: SlowscaleError | None = None
    caps_checked = columns_checked = True
    try:
        check_outputs(plan, overwrite)
    except ParameterError as error:  # an output exists: everything else was checked above
        refusal = error
    preview = preview_plan(plan, account) if plan.is_set else None
    try:
        caps_checked = check_charge(plan, account)
        columns_checked = check_columns(plan, account)
        caps_checked |= not any(
            map(takes_keys_from_data, plan.drawn.values())
        )  # labels from a file were read, and charged, by the trial above
    except CapError as error:
        refusal = error  # it is reported first, because no option changes it
    return Checked(account, refusal, caps_checked, columns_checked, tuple(existing_outputs(plan)), preview)


def check_columns(plan: Plan, account: Account) -> bool:
    """Try the release on a table that has the columns of the data and no records, with a copy of the account."""
    with _outlined(plan, account) as session:
        session.release(plan_request(plan, session, stand_in=True))
    return True


def preview_plan(plan: Plan, account: Account) -> "Preview":
    """Return the cost and the accuracy of each table of a plan. No record is read.

    Cells that are public in the data are replaced by one cell, and tables that are derived from them are left out.
    """
    with _outlined(plan, account) as session:
        return session.preview(plan_request(plan, session, stand_in=True))


@contextmanager
def _outlined(plan: Plan, account: Account) -> "Iterator[Session]":
    """Open a session on a table that has the columns of the data and no records, with a copy of the account."""
    from slowscale.data.outlines import outline
    from slowscale.sampling import KnownBits

    with outline(plan.data.location, **plan.data.reading_options) as empty_table, warnings.catch_warnings():
        _check_headers(plan.data)
        warnings.simplefilter("ignore", ConfidentialWarning)  # it would say that no record has any of the keys
        yield open_session(plan, account.copy(), empty_table, KnownBits())


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
                raise DataError(
                    f"data: line 1 of {file} has a quote that is not closed in that line; write the header in one "
                    "line, and use column names without line breaks"
                )
