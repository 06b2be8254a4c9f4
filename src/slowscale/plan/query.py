"""The request that a plan describes: the public cells, and what is published for each of them."""

from collections.abc import Mapping
from datetime import date
from typing import TYPE_CHECKING, Any

from slowscale.accounting.record import COUNT, folded
from slowscale.core.errors import ParameterError
from slowscale.core.typing import Label
from slowscale.plan.models import Plan
from slowscale.plan.outputs import check_keys_are_not_data
from slowscale.plan.publication import check_tables
from slowscale.plan.tables import HierarchyPlan

if TYPE_CHECKING:
    from slowscale.data.hierarchies import Hierarchy
    from slowscale.data.keys import Keys
    from slowscale.release.request import Request, Sums, Table
    from slowscale.release.session import Session

# By the kind of a column's labels: the type to declare for them in a key file, and a label of that kind.
LABEL_TYPES = {"text": "string", "whole numbers": "int64", "booleans": "boolean", "dates": "date"}
STAND_INS: dict[str, Label] = {"text": "", "whole numbers": 0, "booleans": False, "dates": date(2000, 1, 1)}


def plan_request(plan: Plan, session: "Session", stand_in: bool = False) -> "Request":
    """Return the request of a plan, for the columns of a session, or raise if they do not fit.

    Parameters
    ----------
    plan, session
        The plan, and a session on its data.
    stand_in
        Whether cells that would be taken from the records are replaced by one cell, so that no record is read. Tables
        that are derived from such a table are then left out.
    """
    from slowscale.release.request import Request, Rollup

    unread = {name for name, single in plan.drawn.items() if stand_in and takes_keys_from_data(single)}
    tables: dict[str, Table] = {
        name: _sums(single, _stand_in_keys(single, session) if name in unread else plan_keys(single, session))
        for name, single in plan.drawn.items()
    }
    if plan.is_set:
        rollups = {part.name: Rollup(part.of, part.by or ()) for part in plan.table if part.of is not None}
        tables = {part.name: {**tables, **rollups}[part.name] for part in plan.table}
    kinds = _label_kinds(plan, session)
    hierarchies = [hierarchy_of(part, kinds) for part in plan.hierarchy]
    first = next(iter(plan.drawn.values())).keys
    partition = None if first is None else first.partition
    found = Request(tables, hierarchies, level=plan.options.level, partition=partition)
    if unread:
        kept = {
            name: table for name, table in tables.items() if name in found.drawn or found.source(name) not in unread
        }
        found = Request(kept, hierarchies, level=plan.options.level, partition=partition)
    check_column_names(plan, session)
    check_tables(plan.publication, found, unread)
    return found


def _sums(plan: Plan, keys: "Keys | None") -> "Sums":
    """Return the drawn table that a plan for one table describes, for these public cells."""
    from slowscale.release.request import Sums

    options = plan.options
    by = tuple(plan.keys.by or ()) if plan.keys is not None else ()
    if keys is not None and by and by != keys.columns:
        keys = keys.project(*by)
    return Sums(
        {part.column: part.build() for part in plan.sums},
        keys,
        count=None if plan.count is None else plan.count.build(),
        unit={part.column: part.unit for part in plan.sums},
        where=plan.data.where,
        derive=plan.data.derive or None,
        nulls=options.nulls,
        negatives=options.negatives,
        nonnegative=options.nonnegative,
    )


def takes_keys_from_data(plan: Plan) -> bool:
    """Return whether the public cells are those that occur in the data."""
    return plan.keys is not None and plan.keys.public_in_data


def hierarchy_of(part: HierarchyPlan, kinds: Mapping[str, str]) -> "Hierarchy":
    """Return a hierarchy that a plan describes; its file is read now, with labels of these kinds by column."""
    from slowscale.data.hierarchies import Hierarchy

    if part.digits is not None:
        return Hierarchy.digits(part.column, part.digits)
    assert part.file is not None
    assert part.levels is not None
    csv = None if part.csv is None else part.csv.settings
    types = _file_types(part.file, part.types, csv, kinds)
    return Hierarchy.from_file(part.column, part.file, part.levels, types, csv)


def plan_keys(plan: Plan, session: "Session") -> "Keys | None":
    """Return the public cells; None for totals over all records."""
    from slowscale.data.keys import Keys

    keys = plan.keys
    if keys is None:
        return None
    if keys.cross is not None:
        return Keys.cross(keys.cross)
    if keys.file is None:
        assert keys.by is not None
        return Keys.public_in(session, keys.by, derive=plan.data.derive or None)
    check_keys_are_not_data(plan)
    csv = None if keys.csv is None else keys.csv.settings
    return Keys.from_file(keys.file, keys.by, _file_types(keys.file, keys.types, csv, _label_kinds(plan, session)), csv)


def _stand_in_keys(plan: Plan, session: "Session") -> "Keys":
    """Return one cell with labels of the right types, in place of cells that would be taken from the records."""
    from slowscale.data.keys import Keys

    assert plan.keys is not None
    assert plan.keys.by is not None
    kinds = _label_kinds(plan, session)
    return Keys.from_frame({name: [STAND_INS[kinds.get(name, "text")]] for name in plan.keys.by})


def check_column_names(plan: Plan, session: "Session") -> None:
    """Raise if [[sums]] or [ledger.caps] names a column that the data does not have.

    A cap with a misspelled name would protect nothing, and could not be corrected once the ledger exists.
    """
    columns = [*session.table.columns, *plan.data.derive]
    for name in plan.summed:
        if name not in columns:
            raise ParameterError(f"sums: {name!r} is not a column; the columns are {', '.join(columns)}")
    known = {"*", COUNT, *map(folded, columns)}
    for name in plan.caps:
        if folded(name) not in known:
            raise ParameterError(f"ledger.caps: {name!r} is not a column; the columns are {', '.join(columns)}")


def _label_kinds(plan: Plan, session: "Session") -> dict[str, str]:
    """Return the kinds of the labels in the columns of the session and in the derived columns of the plan."""
    from slowscale.data import rowwise
    from slowscale.data.keys import label_kind

    table = rowwise.derive(session.table, plan.data.derive or None)
    kinds = {name: label_kind(table[name].type()) for name in table.columns}
    return {name: kind for name, kind in kinds.items() if kind is not None}


def _file_types(
    file: str, declared: dict[str, str], csv: dict[str, Any] | None, kinds: Mapping[str, str]
) -> dict[str, str] | None:
    """Return the types to read a file of keys or of a hierarchy with.

    A CSV or Excel file holds text; its columns get the types of the same columns of the data. Those are declared types
    or text, so the published types never depend on the records.
    """
    from slowscale.data.sources import open_source

    source = open_source(file, csv=csv, argument="keys")
    if not source.text_numbers:
        return declared or None
    types = {name: LABEL_TYPES[kinds[name]] for name in source.table.columns if name in kinds}
    return {**types, **declared} or None
