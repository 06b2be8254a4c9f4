"""A release made again: the query of a release that was read from a file, and whether it fits these records.

The facts of a release name its columns, mechanisms, units, filter and keys, but hold nothing of the records. So it can
be found out that a release does not fit a table, and never that it was made from this table.
"""

import json
from typing import Any

from slowscale.accounting import Ledger
from slowscale.errors import ParameterError, ParameterTypeError
from slowscale.facts import ABSENT, ColumnFacts, Facts
from slowscale.mechanisms.calibration import CLOSED
from slowscale.publishing import BoundQuery, column_facts
from slowscale.query import Query
from slowscale.release import Release
from slowscale.tables.keys import Keys

ANOTHER = "release cannot be repeated on these records"
# Facts of a release that are added, or may be, after it is charged.
LATER_FACTS = ("ledger", "ratios")
# What the facts of a column say about the records, in words. Files of earlier versions do not say all of it.
COLUMN_DIFFERENCES = {
    "kind": "is a {0} in the release, and a {1} here",
    "unit": "has the unit {0} in the release, and {1} here",
    "nulls": 'was released with nulls="{0}", and other columns were not',
    "negatives": 'was released with negatives="{0}", and its mechanism or the other columns imply "{1}"',
    "at_least": "has true sums of at least {0} in the release, and of at least {1} here",
}


def query_of(release: Release, dataset: str | None, protect: str | None) -> Query:
    """Return the query that a release came from, made from its public facts.

    Parameters
    ----------
    release
        The release, which may have been read from a file.
    dataset, protect
        The name of the data set and the column of protected entities, which must be those of the release.
    """
    facts = release.facts
    if facts.rollup:
        raise ParameterError(
            f"release must be one that was drawn, but this one is a roll-up of release {facts.rollup.of}; use that one"
        )
    for argument, here, there in (("dataset", dataset, facts.dataset or None), ("protect", protect, facts.protect)):
        if here != there:
            raise ParameterError(
                f"release must be one of these records: it has {argument}={there!r}, and this session has "
                f"{argument}={here!r}; open the session with the same {argument}"
            )
    if facts.not_sql:
        raise ParameterError(
            f"{ANOTHER}: it has an Ibis expression ({', '.join(facts.not_sql)}), of which the file holds only the "
            "name; use SQL text for releases that are to be read back"
        )
    unknown = [name for name in facts.columns if name not in release.mechanisms]
    if unknown:
        raise ParameterError(
            f"release has a mechanism with a function that is not known ({', '.join(unknown)}); read it with "
            "ss.read_release(path, functions=…)"
        )
    sums = {name: column for name, column in facts.columns.items() if not column.is_count}
    counts = [name for name, column in facts.columns.items() if column.is_count]
    nulls, negatives = (
        "zero" if any(getattr(column, argument) == "zero" for column in sums.values()) else "error"
        for argument in ("nulls", "negatives")
    )
    try:
        return Query(
            {name: release.mechanisms[name] for name in sums},
            keys=None if facts.cells is None else Keys(release.table.select(list(facts.cells.columns))),
            count=release.mechanisms[counts[0]] if counts else None,
            unit={name: column.grid for name, column in sums.items()},
            where=facts.where,
            derive=dict(facts.derived) or None,
            partition=None if facts.partition is None else facts.partition.by,
            nulls=nulls,
            negatives=negatives,
        )
    except ParameterError as error:
        raise ParameterError(f"{ANOTHER}: {error}") from None


def check_repeated(release: Release, query: BoundQuery, ledger: Ledger | None) -> None:
    """Raise unless a query that is bound to the records of a session is that of the release, as far as it is known.

    Parameters
    ----------
    release
        The release, which may have been read from a file.
    query
        Its query, made from its facts and bound to the records.
    ledger
        The ledger of the session. If the release was charged to a ledger, it must be this one.
    """
    try:
        problem = _problem(release, query) or _ledger_problem(release.facts, ledger)
    except ParameterTypeError as error:  # a column does not hold numbers
        problem = str(error)
    if problem is not None:
        raise ParameterError(f"{ANOTHER}: {problem}")


def _problem(release: Release, query: BoundQuery) -> str | None:
    """Return what does not fit the records or contradicts itself, or None."""
    facts, expressions, part = release.facts, query.expressions, query.part
    if release.policy.filtered != query.filtered:
        there, here = (
            "leave out" if filtered else "have all" for filtered in (release.policy.filtered, query.filtered)
        )
        return (
            f"by its policy, the records of the release {there} rows of the stored table, and those of this session "
            f"{here}; open the session on the table of the release"
        )
    if (expressions.where, expressions.derived) != (facts.where, dict(facts.derived)):
        return "it has another filter or other derived columns than the release with the same identifier"
    cells = (None, {}) if facts.cells is None else (facts.cells.count, dict(facts.cells.columns))
    keys = (None, {}) if query.keys is None else (len(query.keys), dict(query.keys.kinds))
    labels = ((), None) if facts.partition is None else (tuple(facts.partition.labels), facts.partition.by)
    if cells != keys or labels != (part.labels, part.by):
        return "its table does not have the keys that its facts describe; use the files as they were released"
    for name, column in facts.columns.items():
        if name not in query.mechanisms:
            return f"column {name!r} is not one of the release with the same identifier"
        found = _column_problem(column, query, name)
        if found is not None:
            return f"column {name!r} {found}"
    # Tables of tight policies may differ a little between versions, and the release keeps those it was charged with.
    changed = facts.accounting == CLOSED and release.policy != query.policy
    if changed or release.policy.columns != query.policy.columns:
        return "its policy is not that of its mechanisms; use the files as they were released"
    return None


def _column_problem(column: ColumnFacts, query: BoundQuery, name: str) -> str | None:
    here = column_facts(query, name)
    for fact, words in COLUMN_DIFFERENCES.items():
        pair = getattr(column, fact), getattr(here, fact)
        if ABSENT not in pair and pair[0] != pair[1]:
            return words.format(*pair)
    if column.on_grid is not ABSENT and column.on_grid != here.on_grid:
        are, were = ("are" if yes else "need not be" for yes in (here.on_grid, column.on_grid))
        return (
            f"has another type than in the release: here it is {query.table[name].type()}, whose sums {are} multiples "
            f"of the unit {column.unit}, and in the release they {were}; open the session with the types= of the "
            "release"
        )
    return None


def _ledger_problem(facts: Facts, ledger: Ledger | None) -> str | None:
    """Return why the release cannot be one that the ledger has, or None if it can or if there is no ledger."""
    if ledger is None or not facts.ledger:
        return None
    charged = [entry["facts"] for entry in ledger.history() if entry["kind"] == "charge"]
    written = next((found for found in charged if found.get("id") == facts.id), None)
    if written is None:
        return (
            "it was charged to another ledger than that of this session; open the session with the ledger of the "
            "release, or without one"
        )
    there, here = _plain(Facts.from_dict(written)), _plain(facts)
    changed = [name for name in there if name not in LATER_FACTS and there[name] != here.get(name)]
    if changed:
        return f"its facts are not those in the ledger ({', '.join(changed)}); use the files as they were released"
    return None


def _plain(facts: Facts) -> dict[str, Any]:
    """Return facts as they are read from a file."""
    found: dict[str, Any] = json.loads(json.dumps(facts.to_dict()))
    return found
