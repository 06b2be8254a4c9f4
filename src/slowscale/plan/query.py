"""The query that a plan describes: the public cells, and what is published for each of them."""

from datetime import date
from typing import TYPE_CHECKING, Any

from slowscale.accounting.record import COUNT, folded
from slowscale.errors import ParameterError
from slowscale.plan.models import Plan
from slowscale.plan.publication import check_cells, check_tables
from slowscale.plan.tables import HierarchyPlan
from slowscale.typing import Label

if TYPE_CHECKING:
    from slowscale.hierarchies import Hierarchy
    from slowscale.query import Query
    from slowscale.session import Session
    from slowscale.table_set import TableSet
    from slowscale.tables.keys import Keys

# By the kind of a column's labels: the type to declare for them in a key file, and a label of that kind.
LABEL_TYPES = {"text": "string", "whole numbers": "int64", "booleans": "boolean", "dates": "date"}
STAND_INS: dict[str, Label] = {"text": "", "whole numbers": 0, "booleans": False, "dates": date(2000, 1, 1)}


def _plan_query(plan: Plan, keys: "Keys | None") -> "Query":
    """Return the query that the plan describes, for these public cells."""
    from slowscale.query import Query

    options = plan.options
    return Query(
        {part.column: part.build() for part in plan.sums},
        plan.keys.by if plan.keys is not None else None,
        keys,
        count=None if plan.count is None else plan.count.build(),
        unit={part.column: part.unit for part in plan.sums},
        level=options.level,
        where=plan.data.where,
        derive=plan.data.derive or None,
        nulls=options.nulls,
        negatives=options.negatives,
        nonnegative=options.nonnegative,
        partition=plan.keys.partition if plan.keys is not None else None,
    )


def session_query(plan: Plan, session: "Session", stand_in: bool = False) -> "Query | TableSet":
    """Return the query or the set of tables of a plan, for the columns of a session, or raise if they do not fit.

    With `stand_in`, one cell stands in for cells that would be taken from the records.
    """
    if plan.is_set:
        tables = _plan_tables(plan, session, stand_in)
        check_column_names(plan, session)
        unread = {name for name, single in plan.drawn.items() if stand_in and takes_keys_from_data(single)}
        check_tables(plan.publication, tables, unread)
        return tables
    unknown = stand_in and takes_keys_from_data(plan)
    keys = _stand_in_keys(plan, session) if unknown else plan_keys(plan, session)
    check_column_names(plan, session)
    if not unknown:
        check_cells(plan.publication, keys)
    return _plan_query(plan, keys)


def takes_keys_from_data(plan: Plan) -> bool:
    """Return whether the public cells are those that occur in the data."""
    return plan.keys is not None and plan.keys.public_in_data


def _plan_tables(plan: Plan, session: "Session", stand_in: bool) -> "TableSet":
    """Return the set of tables that a plan with [[table]] describes.

    Parameters
    ----------
    plan, session
        The plan, and a session on its data.
    stand_in
        Whether cells that would be taken from the records are replaced by one cell, so that no record is read. Tables
        that are derived from such a table are then left out.
    """
    from slowscale.table_set import Derived, TableSet

    unread = {name for name, single in plan.drawn.items() if stand_in and single.keys and single.keys.public_in_data}
    tables: dict[str, Query | Derived] = {}
    for part in plan.table:
        if part.of is not None:
            tables[part.name] = Derived(part.of, part.by or ())
            continue
        single = plan.drawn[part.name]
        keys = _stand_in_keys(single, session) if part.name in unread else plan_keys(single, session)
        tables[part.name] = _plan_query(single, keys)
    found = TableSet(tables, [_hierarchy(part, plan, session) for part in plan.hierarchy])
    if not unread:
        return found
    kept = {name: table for name, table in tables.items() if name in found.drawn or found.source(name) not in unread}
    return TableSet(kept, found.hierarchies)


def _hierarchy(part: HierarchyPlan, plan: Plan, session: "Session") -> "Hierarchy":
    """Return a hierarchy that a plan describes; its file is read now."""
    from slowscale.hierarchies import Hierarchy

    if part.digits is not None:
        return Hierarchy.digits(part.column, part.digits)
    assert part.file is not None
    assert part.levels is not None
    csv = None if part.csv is None else part.csv.settings
    types = _file_types(part.file, part.types, csv, _with_derived(plan, session))
    return Hierarchy.from_file(part.column, part.file, part.levels, types, csv)


def plan_keys(plan: Plan, session: "Session") -> "Keys | None":
    """Return the public cells; None for totals over all records."""
    from slowscale.tables.keys import Keys

    keys = plan.keys
    if keys is None:
        return None
    if keys.cross is not None:
        return Keys.cross(keys.cross)
    if keys.file is None:
        assert keys.by is not None
        return Keys.public_in(session, keys.by, derive=plan.data.derive or None)
    csv = None if keys.csv is None else keys.csv.settings
    return Keys.from_file(
        keys.file, keys.by, _file_types(keys.file, keys.types, csv, _with_derived(plan, session)), csv
    )


def _stand_in_keys(plan: Plan, session: "Session") -> "Keys":
    """Return one cell with labels of the right types, in place of cells that would be taken from the records."""
    from slowscale.tables.keys import Keys, label_kind

    assert plan.keys is not None
    assert plan.keys.by is not None
    table = _with_derived(plan, session)
    kinds = {name: label_kind(table[name].type()) for name in plan.keys.by if name in table.columns}
    return Keys.from_frame({name: [STAND_INS[kinds.get(name) or "text"]] for name in plan.keys.by})


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


def _with_derived(plan: Plan, session: "Session") -> Any:
    """Return the table of the session with the derived columns of the plan."""
    from slowscale.tables import rowwise

    return rowwise.derive(session.table, plan.data.derive or None)


def _file_types(file: str, declared: dict[str, str], csv: dict[str, Any] | None, table: Any) -> dict[str, str] | None:
    """Return the types to read a file of keys or of a hierarchy with.

    A CSV or Excel file holds text; its columns get the types of the same columns of the data. Those are declared types
    or text, so the published types never depend on the records.
    """
    from slowscale.tables.keys import label_kind
    from slowscale.tables.sources import open_source

    source = open_source(file, csv=csv, argument="keys")
    if not source.text_numbers:
        return declared or None
    kinds = {name: label_kind(table[name].type()) for name in source.table.columns if name in table.columns}
    types = {name: LABEL_TYPES[kind] for name, kind in kinds.items() if kind is not None}
    return {**types, **declared} or None
