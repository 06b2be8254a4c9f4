"""Checks of a session and of its queries: each raises an error that says what to do, or warns."""

import difflib
import sys
import warnings
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from slowscale.accounting import Accountant
from slowscale.accounting.account import check_caps
from slowscale.accounting.record import ANY, COUNT, folded
from slowscale.core.errors import CapWarning, ConfidentialWarning, DataError, ParameterError
from slowscale.data.conversion import Source
from slowscale.data.records import EngineTable, Records
from slowscale.data.types import delimiter_hint, listed_columns
from slowscale.policy import Policy
from slowscale.release.request import Request, Sums


def check_column_names(table: EngineTable) -> None:
    """Raise if two columns have names that a ledger or an engine takes for the same."""
    for one, other in pairwise(sorted(table.columns, key=folded)):
        if folded(one) == folded(other):
            raise ParameterError(
                "data",
                f"has the columns {one!r} and {other!r}, which the ledger and some engines take for one",
                remedy="rename one of them",
            )


def check_protect(protect: str | None, table: EngineTable) -> None:
    """Raise unless the argument `protect` is a column or None."""
    if protect is not None and protect not in table.columns:
        raise ParameterError(
            f"protect: there is no column {protect!r}",
            remedy=f"the columns are {', '.join(table.columns)}",
            path=("data", "protect"),
        )


def check_caps_name_columns(caps: Mapping[str, Policy] | None, table: EngineTable) -> None:
    """Raise if a cap is on something other than a column, "count" or "*"."""
    known = {"*", COUNT, *map(folded, table.columns)}
    for name in check_caps(caps):
        if folded(name) not in known:
            raise ParameterError(
                "caps",
                f"names {name!r}, which is not a column",
                remedy=(
                    f"the columns are {', '.join(table.columns)}. Correct the name. In Python, give the cap on a "
                    "derived column to the ledger, and the ledger to the session"
                ),
                path=("ledger", "caps", name),
            )


def check_column(argument: str, name: str, table: EngineTable, source: Source) -> None:
    """Raise unless the table has a column that an argument names; suggest a column with a similar name."""
    if name in table.columns:
        return
    if name in source.unusable:
        raise ParameterError(
            f"{argument}: column {name!r}",
            f"has the type {source.unusable[name]}, which cannot be computed with",
            remedy="convert it before to text, a date, or numbers of at most 38 digits",
        )
    near = [] if delimiter_hint(table.columns) else difflib.get_close_matches(name, table.columns, n=1)
    suggestion = f"did you mean {near[0]!r}?" if near else listed_columns(table.columns)
    raise ParameterError(f"{argument}: there", f"is no column {name!r}", remedy=f"{suggestion}")


def check_partition(request: Request, records: Records) -> None:
    """Raise unless a partition is a key column that is stored in the data.

    A derived column may be computed differently in each release, so that one record could be in several parts.
    """
    name = request.partition
    derived = any(name in (table.derive or {}) for table in request.drawn.values())
    if name is not None and (derived or not records.is_stored(name)):
        raise ParameterError(
            "partition",
            allowed=f"a column of the data as it is stored, but {name!r} may be derived",
            remedy="name a stored key column, or leave out the partition, and the losses of the releases add up",
        )


def check_derived_columns(sums: Sums, records: Records, accountant: Accountant) -> None:
    """Raise if a derived or renamed column would evade the caps, by a new name or by the name of a stored column."""
    caps, derived = accountant.caps, sums.derive or {}
    if not caps:
        return
    capped, stored = {folded(name) for name in caps}, records.stored_names
    for name in sums.columns:
        if name not in derived and records.is_stored(name):
            continue
        # Renaming a stored column frees its name for a derived one, but its cap is not for that.
        if folded(name) not in capped or folded(name) in stored:
            raise ParameterError(
                f"column {name!r}",
                "is derived or renamed and has no cap: under a new name it could evade the caps of the columns "
                "that it is made from. Give it a cap, for an existing ledger by Ledger.set_cap",
                remedy="its name must differ from every stored column",
                path=("sums", name),
            )


def check_readable(
    columns: Iterable[str], records: Records, derive: Mapping[str, str] | None, where: str | None
) -> None:
    """Raise if a query reads a column with values that are not text, or not of the column's declared type."""
    unreadable, not_text = records.source.unreadable, records.source.not_text
    if not unreadable and not not_text:
        return
    used = {*columns, *records.used_columns(derive or {}, where)}
    for name in sorted(not_text & used):
        raise DataError(
            f"column {name!r}",
            "has values that cannot be read as text, such as half of a surrogate pair",
            remedy="correct them",
        )
    for name, dtype in unreadable.items():
        if name in used:
            raise DataError(
                f"column {name!r}",
                f"has values that are not {dtype}, its declared type",
                remedy="correct them, or declare the column as string and derive a column from it",
            )


def warn_if_empty(rows: Any, where: object, level: int) -> None:
    """Warn the caller of the session, at a stack level, if no record has any of the keys.

    A filter may leave none on purpose.

    The release was charged already. Where warnings are errors, it must not be lost, nor an exit code depend on the
    records: the warning is then printed.
    """
    if where is not None or rows.any():
        return
    words = (
        "no record has any of the keys: what is released is noise on zeros. Do the labels of the keys look "
        "like those of the data? (confidential: do not publish this warning)"
    )
    try:
        warnings.warn(words, ConfidentialWarning, stacklevel=level + 1)
    except ConfidentialWarning:
        print(f"{ConfidentialWarning.__name__}: {words}", file=sys.stderr)


def warn_if_ranks_are_not_capped(caps: Mapping[str, Policy], durable: bool, level: int) -> None:
    """Warn if no cap limits the loss by ranks, which is charged like that of a count.

    This is not an error: the loss is stated by the caller and charged, as that of a count without a cap is. An account
    that lasts as long as the session, and has no caps, promises nothing that a warning could be about.

    Parameters
    ----------
    caps
        The caps of the account.
    durable
        Whether the account is kept in a ledger.
    level
        The stack level of the session's caller, seen from the session.
    """
    if any(folded(name) in (folded(COUNT), folded(ANY)) for name in caps) or not (caps or durable):
        return
    if caps:
        missing = f"no cap limits counts (there are caps on {', '.join(caps)})"
        missed, remedy = "the caps do not bound what it costs", f'give a cap on "{COUNT}"'
    else:
        missing, missed = "the ledger has no caps", "nothing bounds in advance what it and choices by it cost"
        remedy = f'give caps on "{COUNT}" and "{ANY}" before the first release'
    warnings.warn(
        f"quantiles are charged like a count, and {missing}. This release is charged, but {missed}, so fix the "
        f"quantiles and losses that you will ask for before you see any. For a new ledger, {remedy}",
        CapWarning,
        stacklevel=level + 1,
    )
