"""A release made again: the request of a release that was read from a file, and whether it fits these records.

The facts of a release name its columns, mechanisms, units, filters and keys, but hold nothing of the records. So these
checks can find that a release does not fit a table, but never prove that it was made from this table.
"""

import json
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from slowscale.accounting import Ledger, RecordPolicy
from slowscale.core.errors import ParameterError, ParameterTypeError, SlowscaleError
from slowscale.data.keys import Keys
from slowscale.mechanisms.calibration import charged_policy, check_accounting
from slowscale.policy import Policy, TightPolicy
from slowscale.policy.tree import Tabulated, contains
from slowscale.release.bound import BoundQuantiles, BoundRequest, BoundSums
from slowscale.release.facts import ColumnFacts, Facts, QuantilesFacts
from slowscale.release.quantiles import ReleasedQuantiles
from slowscale.release.release import Release
from slowscale.release.request import Quantiles, Request, Sums
from slowscale.release.table import ReleasedSums

# By which share the curves of tight policies may differ between versions, and the sizes at which they are compared.
PRECISION, COMPARED_SIZES = 0.01, np.logspace(-30, 30, 121)
AS_RELEASED = "use the files as they were released"
OTHER_POLICY = ParameterError("its policy", "is not that of its mechanisms", code="policy", remedy=AS_RELEASED)
OTHER_KEYS = ParameterError(
    "its table", "does not have the keys that its facts describe", code="keys", remedy=AS_RELEASED
)
# The facts of a column that depend on the records, in words.
COLUMN_DIFFERENCES = {
    "kind": "is a {0} in the release, and a {1} here",
    "unit": "has the unit {0} in the release, and {1} here",
    "nulls": 'was released with nulls="{0}", and other columns were not',
    "negatives": 'was released with negatives="{0}", and its mechanism or the other columns imply "{1}"',
    "at_least": "has true sums of at least {0} in the release, and of at least {1} here",
}


def not_repeatable(problem: SlowscaleError) -> ParameterError:
    """Return the error that a release does not fit the records of a session, with the code and path of the problem."""
    words = f"cannot be repeated on these records: {problem}"
    return ParameterError("release", words, code=problem.code, path=problem.path)


def check_complete(release: Release) -> None:
    """Raise unless a release has all of its drawn tables: a file or a roll-up of it may have some of them only."""
    missing = [name for name in release.facts.drawn if name not in release]
    if missing:
        raise ParameterError(
            "release",
            f"must have all drawn tables, but {', '.join(missing)} is not in it",
            code="missing",
            remedy="read the folder with all of them, or use the release that a roll-up was made from",
        )


def request_of(release: Release, dataset: str | None, protect: str | None) -> Request:
    """Return the request for the drawn tables that a release came from, made from its public facts.

    Parameters
    ----------
    release
        The release with all drawn tables, which may have been read from a file.
    dataset, protect
        The name of the data set and the column of protected entities, which must be those of the release.
    """
    facts = release.facts
    for argument, here, there in (("dataset", dataset, facts.dataset), ("protect", protect, facts.protect)):
        if here != there:
            raise ParameterError(
                argument,
                f"of the release is {there!r}, and that of this session is {here!r}",
                code="mismatch",
                remedy=f"open the session with the same {argument}",
            )
    try:
        check_accounting(facts.accounting)
        tables = {name: requested_table(release[name]) for name in facts.drawn}
        partition = None if facts.partition is None else facts.partition.by
        levels = [column.level for column in facts.columns.values()]  # all columns and quantiles have the same level
        levels += [table.quantiles.level for table in facts.tables.values() if table.quantiles is not None]
        return Request(tables, level=levels[0], partition=partition, period=facts.period)
    except (ParameterError, ParameterTypeError) as error:
        raise not_repeatable(error) from None


def requested_table(table: ReleasedSums | ReleasedQuantiles) -> Sums | Quantiles:
    """Return the request for a drawn table, made from its public facts."""
    facts = table.facts
    derive = dict(facts.derived) or None
    if isinstance(table, ReleasedQuantiles):
        about = table.about
        return Quantiles(
            about.column,
            about.at,
            loss=about.loss,
            grid=about.grid,
            where=facts.where,
            derive=derive,
            nulls=about.nulls,
        )
    unknown = [name for name in facts.columns if name not in table.mechanisms]
    if unknown:
        raise ParameterError(
            f"the mechanism of {', '.join(unknown)}", "has a user function, which is not in files", code="user-function"
        )
    sums = {name: column for name, column in facts.columns.items() if not column.is_count}
    counts = [name for name, column in facts.columns.items() if column.is_count]
    nulls, negatives = (
        "zero" if any(getattr(column, argument) == "zero" for column in sums.values()) else "error"
        for argument in ("nulls", "negatives")
    )
    return Sums(
        {name: table.mechanisms[name] for name in sums},
        None if facts.keys is None else Keys._of(table.table.select(list(facts.by))),
        count=table.mechanisms[counts[0]] if counts else None,
        unit={name: column.grid for name, column in sums.items()},
        where=facts.where,
        derive=derive,
        nulls=nulls,
        negatives=negatives,
    )


def check_repeated(release: Release, bound: BoundRequest, ledger: Ledger | None) -> None:
    """Raise unless a bound request is that of the release, as far as its facts tell.

    Parameters
    ----------
    release
        The release, which may have been read from a file.
    bound
        Its request, made from its facts and bound to the records.
    ledger
        The ledger of the session. If the release was charged to a ledger, it must be this one.
    """
    problem: SlowscaleError | None
    try:
        problem = _problem(release, bound) or _ledger_problem(release.facts, ledger)
    except ParameterTypeError as error:  # a column does not hold numbers
        problem = error
    if problem is not None:
        raise not_repeatable(problem)


def _problem(release: Release, bound: BoundRequest) -> ParameterError | None:
    """Return why a release does not fit the records or contradicts itself, or None."""
    facts, part = release.facts, bound.part
    if release.policy.filtered != bound.policy.filtered:
        there, here = (
            "leave out" if filtered else "have all" for filtered in (release.policy.filtered, bound.policy.filtered)
        )
        return ParameterError(
            "its records",
            f"{there} rows of the stored table, by its policy, and those of this session {here}",
            code="filter",
            remedy="open the session on the table of the release",
        )
    labels = ((), None) if facts.partition is None else (tuple(facts.partition.labels), facts.partition.by)
    if labels != (part.labels, part.by):
        return OTHER_KEYS
    if tuple(bound.tables) != facts.drawn:
        return ParameterError("its tables", "are not those of the release with the same identifier", code="tables")
    for name, table in bound.tables.items():
        if problem := _table_problem(release, name, table):
            return problem
    if len(bound.tables) > 1:
        total = reduce(add, [release[name].policy for name in bound.tables])
        if (release.policy.terms, release.policy.parallel) != (total.terms, total.parallel):
            return ParameterError("its policy", "is not that of its tables", code="policy", remedy=AS_RELEASED)
    return None


def _table_problem(release: Release, name: str, table: BoundSums | BoundQuantiles) -> ParameterError | None:
    """Return why a table does not fit the records or contradicts itself, or None."""
    facts, expressions = release.facts.tables[name], table.expressions
    if (expressions.where, expressions.derived) != (facts.where, dict(facts.derived)):
        words = "are not those of the release with the same identifier"
        return ParameterError("its filter and derived columns", words, code="expression")
    if isinstance(table, BoundQuantiles):
        if not _same_quantiles(facts.quantiles, table.facts().quantiles):
            return ParameterError("its quantiles", "are not those that were requested", code="quantiles")
        return None if release[name].policy == table.policy else OTHER_POLICY
    cells = (None, {}) if facts.keys is None else (facts.keys.count, dict(facts.keys.columns))
    keys = (None, {}) if table.keys is None else (len(table.keys), dict(table.keys.kinds))
    if cells != keys:
        return OTHER_KEYS
    for column, described in facts.columns.items():
        if column not in table.mechanisms:
            words = "is not one of the release with the same identifier"
            return ParameterError(f"column {column!r}", words, code="unknown-column")
        found = _column_problem(described, table, column)
        if found is not None:
            return found
    return None if _same_policy(release[name].policy, table) else OTHER_POLICY


def _same_quantiles(there: QuantilesFacts | None, here: QuantilesFacts | None) -> bool:
    """Return whether quantiles have the same facts, rates to nearly all digits: they follow from rounded shares."""
    if there is None or here is None or len(there.rates) != len(here.rates):
        return False
    return there.with_(rates=here.rates) == here and np.allclose(there.rates, here.rates, rtol=1e-12, atol=0)


def _same_policy(there: RecordPolicy, query: BoundSums) -> bool:
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
    if isinstance(here, TightPolicy):
        return here.is_near(there)
    if type(there) is not type(here) or there.upper != here.upper or not contains(whole.formula(), Tabulated):
        return False
    with np.errstate(all="ignore"):
        return bool(np.allclose(there(COMPARED_SIZES), here(COMPARED_SIZES), rtol=PRECISION, atol=0))


def _column_problem(column: ColumnFacts, query: BoundSums, name: str) -> ParameterError | None:
    """Return why the facts of a column do not fit the records, or None."""
    here, place = query.column_facts(name), ("columns", name)
    for fact, words in COLUMN_DIFFERENCES.items():
        pair = getattr(column, fact), getattr(here, fact)
        if pair[0] != pair[1]:
            return ParameterError(f"column {name!r}", words.format(*pair), code="changed", path=(*place, fact))
    if column.on_grid == here.on_grid:
        return None
    if column.is_count:
        words, remedy = "is a count, which is always a multiple of its unit, but its facts say otherwise", AS_RELEASED
    else:
        are, were = ("are" if yes else "need not be" for yes in (here.on_grid, column.on_grid))
        words = (
            f"has another type than in the release: here it is {query.table[name].type()}, whose sums {are} multiples "
            f"of the unit {column.unit}, and in the release they {were}"
        )
        remedy = "open the session with the `types` of the release"
    return ParameterError(f"column {name!r}", words, code="changed", path=(*place, "on_grid"), remedy=remedy)


def _ledger_problem(facts: Facts, ledger: Ledger | None) -> ParameterError | None:
    """Return why the release cannot be one that the ledger has, or None if it can or if there is no ledger."""
    if ledger is None or not facts.ledger:
        return None
    charges = [entry["facts"] for entry in ledger.history() if entry["kind"] == "charge"]
    there = next((charged for charged in charges if charged.get("id") == facts.id), None)
    if there is None:
        return ParameterError(
            "it",
            "was charged to another ledger than that of this session",
            code="ledger",
            remedy="open the session with the ledger of the release, or without one",
        )
    known, here = _comparable(there), _comparable(json.loads(json.dumps(facts.to_dict())))
    changed = [name for name in known if known[name] != here.get(name)]
    if not changed:
        return None
    words = f"are not those in the ledger ({', '.join(changed)})"
    return ParameterError("its facts", words, code="changed", path=(changed[0],), remedy=AS_RELEASED)


def _comparable(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts that must be equal in a file and in a ledger: not those that are added after the charge."""
    tables = {
        name: {fact: value for fact, value in table.items() if fact != "ratios"}
        for name, table in facts["tables"].items()
        if "rollup" not in table
    }
    return {name: value for name, value in facts.items() if name not in ("ledger", "table")} | {"tables": tables}
