"""A plan is tried on the columns of its data before any record is read.

What passes here, the release itself refuses only because of what the records hold.
"""

import warnings

from slowscale.accounting import Account
from slowscale.errors import ConfidentialWarning, DataError
from slowscale.plan.inputs import DataPlan
from slowscale.plan.models import Plan
from slowscale.plan.query import check_column_names, plan_keys, plan_query, stand_in_keys


def check_columns(plan: Plan, account: Account) -> bool:
    """Try the release on a table that has the columns of the data and no records, with a copy of the account.

    Return False if that is not possible: the columns of an Excel file cannot be read without its records.
    """
    from slowscale.publishing import KnownBits
    from slowscale.session import Session
    from slowscale.tables.outlines import outline

    with outline(plan.data.location, **plan.data.reading_options) as empty_table, warnings.catch_warnings():
        if empty_table is None:
            return False
        _check_headers(plan.data)
        warnings.simplefilter("ignore", ConfidentialWarning)  # it would say that no record has any of the keys
        session = Session(
            **empty_table,
            ledger=account.copy(),
            accounting=plan.accounting,
            protect=plan.data.protect,
            bits=KnownBits(),
        )
        from_data = plan.keys is not None and plan.keys.public_in_data
        keys = stand_in_keys(plan, session) if from_data else plan_keys(plan, session)
        check_column_names(plan, session)
        session.release(plan_query(plan, keys))
    return True


def _check_headers(data: DataPlan) -> None:
    """Raise if the header of a CSV file is longer than one line."""
    from slowscale.tables import textfiles
    from slowscale.tables.sources import matching_files

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
