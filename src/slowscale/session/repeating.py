"""A release made again: the query of a release that was read from a file, and whether it fits these records.

The facts of a release name its columns, mechanisms, units, filter and keys, but hold nothing of the records. So it can
be found out that a release does not fit a table, and never that it was made from this table.
"""

import json
from typing import Any

import numpy as np

from slowscale.accounting import Ledger, RecordPolicy
from slowscale.errors import ParameterError, ParameterTypeError
from slowscale.facts import ABSENT, ColumnFacts, Facts
from slowscale.mechanisms.charged import charged_policy, check_accounting
from slowscale.policy import Policy
from slowscale.policy.tree import Tabulated, contains
from slowscale.publishing import BoundQuery, column_facts
from slowscale.query import Query
from slowscale.release import Release
from slowscale.tables.keys import Keys

ANOTHER = "release cannot be repeated on these records"
# By which share the curves of tight policies may differ between versions, and the sizes at which they are compared.
PRECISION, COMPARED_SIZES = 0.01, np.logspace(-30, 30, 121)
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
    try:
        check_accounting(facts.accounting)
    except ParameterError as error:
        raise ParameterError(f"{ANOTHER}: {error}") from None
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
    if not _same_policy(release.policy, query):
        return "its policy is not that of its mechanisms; use the files as they were released"
    return None


def _same_policy(there: RecordPolicy, query: BoundQuery) -> bool:
    """Return whether the policy of a release is the one that its mechanisms have here.

    A tight policy that is read from a curve may differ a little between versions, by as much as its stated precision.
    The release keeps the one that it was charged with. All other policies must be equal.
    """
    here = query.policy
    if (there.columns, there.filtered, there.parallel) != (here.columns, here.filtered, here.parallel):
        return False
    if len(there.terms) != len(here.terms):
        return False
    # The terms are in the order of the mechanisms; that of a count is only a number.
    charged = [charged_policy(mechanism, query.accounting) for mechanism in query.mechanisms.values()]
    return all(
        column == name and (policy == known or _nearly_equal(policy, known, whole))
        for (column, policy), (name, known), whole in zip(there.terms, here.terms, charged, strict=True)
    )


def _nearly_equal(there: Policy, here: Policy, whole: Policy) -> bool:
    """Return whether two policies that are read from curves differ by no more than the precision of curves."""
    if type(there) is not type(here) or there.upper != here.upper or not contains(whole.formula(), Tabulated):
        return False
    with np.errstate(all="ignore"):
        return bool(np.allclose(there(COMPARED_SIZES), here(COMPARED_SIZES), rtol=PRECISION, atol=0))


def _column_problem(column: ColumnFacts, query: BoundQuery, name: str) -> str | None:
    here = column_facts(query, name)
    for fact, words in COLUMN_DIFFERENCES.items():
        pair = getattr(column, fact), getattr(here, fact)
        if ABSENT not in pair and pair[0] != pair[1]:
            return words.format(*pair)
    if column.on_grid is not ABSENT and column.on_grid != here.on_grid:
        if column.is_count:
            return "is a count, which is always a multiple of its unit, but its facts say otherwise"
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
