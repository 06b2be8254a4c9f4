"""Filters and derived columns, row by row only; and what is known of the table that they are on.

A policy speaks of what one record contributes to a sum. A filter or a derived column that looks at other rows (an
aggregate, a window, a subquery, a join) would let one record change what another contributes, and a random one would
make the contribution no function of the record: the policy would no longer hold. So expressions and tables are made of
operations known to look at their own row only, and anything else is refused, or reported where a table is a query.
"""

from collections.abc import Callable, Mapping
from typing import Any

import ibis.expr.operations as ops
import ibis.expr.types as ir
from ibis.common.deferred import Deferred
from ibis.common.exceptions import IbisError

from slowscale.errors import ParameterError, ParameterTypeError
from slowscale.tables import functions, sql
from slowscale.tables.portable import RULES, portable
from slowscale.tables.values import RefusedError

# A filter or a derived column: SQL text, or an Ibis expression or function of the table.
Expression = str | ir.Value | Deferred | Callable[[ir.Table], ir.Value]
REASON = "it would let one record change what another contributes, and the policy would no longer hold"
MANY_ROWS = {
    ops.Reduction: "an aggregate",
    ops.Analytic: "a window function",
    ops.WindowFunction: "a window function",
    ops.Subquery: "a subquery",
    ops.Unnest: "a function that makes several rows of one",
    ops.Relation: "another table",
}
UNFIXED = "a function that is not fixed by the record, such as a random number, the clock or a user-defined function"

UNFIXED_OPERATIONS = (
    ops.Impure, ops.RowID, ops.Sample, ops.Arbitrary, ops.ElementWiseVectorizedUDF, ops.ReductionVectorizedUDF,
    ops.AnalyticVectorizedUDF,
)  # fmt: skip

# Tables of records: the tables that are stored, and what gives one row of each record that is kept.
STORED = (ops.DatabaseTable, ops.InMemoryTable)
KEEPS_ROWS = (
    *STORED, ops.Project, ops.Filter, ops.Sort, ops.DropColumns, ops.DropNull, ops.FillNull, ops.SelfReference,
    ops.AliasedRelation,
)  # fmt: skip
# Tables of something else: a row depends on several records, or a record gives several rows.
COMBINES_ROWS = (
    ops.Aggregate, ops.Distinct, ops.JoinChain, ops.JoinLink, ops.JoinReference, ops.Limit, ops.Set,
    ops.TableUnnest, ops.Unnest, ops.Reduction, ops.Analytic, ops.WindowFunction, ops.WindowBoundary, ops.Subquery,
)  # fmt: skip
# Operations on one row whose result is fixed, though it differs by engine.
ONE_ROW = (
    *RULES, ops.SortKey, ops.TryCast, ops.FloorDivide, ops.Power, ops.Exp, ops.Ln, ops.Log, ops.Log2, ops.Log10,
    ops.Sign, ops.Clip, ops.IsNan, ops.IsInf, ops.IdenticalTo, ops.BitwiseAnd, ops.BitwiseOr, ops.BitwiseXor,
    ops.BitwiseNot, ops.BitwiseLeftShift, ops.BitwiseRightShift, ops.Bucket, ops.Strip, ops.LStrip, ops.RStrip,
    ops.Capitalize, ops.Reverse, ops.Repeat, ops.LPad, ops.RPad, ops.StringSlice, ops.StringFind, ops.StringContains,
    ops.EndsWith, ops.StringJoin, ops.StringSplit, ops.StringAscii, ops.Translate, ops.FindInSet, ops.RegexSearch,
    ops.RegexReplace, ops.RegexExtract, ops.ArrayIndex, ops.ArrayLength, ops.StructField, ops.Strftime,
    ops.StringToDate, ops.StringToTimestamp, ops.DateTruncate, ops.TimestampTruncate, ops.DateFromYMD,
    ops.TimestampFromYMDHMS, ops.TimestampFromUNIX, ops.DateAdd, ops.DateSub, ops.DateDiff, ops.TimestampAdd,
    ops.TimestampSub, ops.TimestampDiff, ops.DateDelta, ops.TimestampDelta, ops.IntervalFromInteger, ops.Time,
    ops.DayOfWeekIndex, ops.DayOfWeekName, ops.ExtractDayOfYear, ops.ExtractWeekOfYear, ops.ExtractIsoYear,
    ops.ExtractHour, ops.ExtractMinute, ops.ExtractSecond, ops.ExtractMicrosecond, ops.ExtractMillisecond,
    ops.ExtractEpochSeconds,
)  # fmt: skip
# What Ibis calls the tables that keep the result of a query.
CACHED = "ibis_cached_"
_NOT_AN_EXPRESSION = "is not an expression on the table's columns"


def derive(table: ir.Table, columns: Mapping[str, Any] | None, argument: str = "derive") -> ir.Table:
    """Add columns computed row by row, each from the ones before it."""
    if columns is None:
        return table
    if not isinstance(columns, Mapping):
        raise ParameterTypeError(f"{argument} must be a mapping of new columns to expressions, got {columns!r:.60}")
    for name, expression in columns.items():
        if not isinstance(name, str) or not name:
            raise ParameterTypeError(f"{argument} must name its columns by text, got {name!r}")
        # Some engines take names that differ in case only, or in the blanks around them, for one.
        taken = next((column for column in table.columns if _plain_name(column) == _plain_name(name)), None)
        if taken is not None or name != name.strip():
            problem = f"there is a column {taken!r} already" if taken is not None else f"{name!r} has blanks around it"
            raise ParameterError(f"{argument}: {problem}; choose another name")
        table = table.mutate(**{name: bind(table, expression, f"{argument}[{name!r}]")})
    return table


def _plain_name(name: str) -> str:
    return name.casefold().strip()


def keep(table: ir.Table, condition: Any, argument: str = "where") -> ir.Table:
    """Keep the rows that meet a condition."""
    if condition is None:
        return table
    bound = bind(table, condition, argument)
    if not isinstance(bound, ir.BooleanValue):
        raise ParameterTypeError(f"{argument} must be true or false for each record, got {bound.type()}")
    return table.filter(bound)


def words(table: ir.Table, expression: Any) -> str:
    """Return an expression as text: the SQL that was given, or how Ibis names it."""
    return expression if isinstance(expression, str) else str(_bound(table, expression, "expression").get_name())


def used_columns(table: ir.Table, expression: Any) -> set[str]:
    """Return the table's columns that an expression reads."""
    nodes = _nodes(bind(table, expression, "expression").op(), table.op())
    return {node.name for node in nodes if isinstance(node, ops.Field) and node.rel == table.op()}


def bind(table: ir.Table, expression: Any, argument: str) -> ir.Value:
    """Return an Ibis expression, a function of the table or SQL text as a checked expression on the table."""
    try:
        if isinstance(expression, str):
            return sql.parse(table, expression, argument)
        value = _bound(table, expression, argument)
        _check(value, table, argument)
        return portable(value, sql.prepared(table))
    except RefusedError as refusal:
        raise ParameterError(_refusal(argument, str(refusal), refusal.kind)) from None
    except IbisError as error:
        raise ParameterError(f"{argument} {_NOT_AN_EXPRESSION}: {_first_line(error)}") from error


def _bound(table: ir.Table, expression: Any, argument: str) -> ir.Value:
    try:
        bound = table.bind(expression)
    except Exception as error:
        raise ParameterError(f"{argument} {_NOT_AN_EXPRESSION}: {_first_line(error)}") from error
    if len(bound) != 1:
        raise ParameterError(f"{argument} must be one expression on the table's columns, got {len(bound)}")
    return bound[0]


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _check(value: ir.Value, table: ir.Table, argument: str) -> None:
    """Raise where an operation looks beyond its own row of this table, or is not fixed by the row."""
    for node in _nodes(value.op(), table.op()):
        what = next((words for kind, words in MANY_ROWS.items() if isinstance(node, kind)), None)
        if what is not None:
            raise ParameterError(_refusal(argument, what, "many rows"))
        if _is_unfixed(node):
            raise ParameterError(_refusal(argument, "", "unfixed"))
        if isinstance(node, ops.ScalarParameter):
            raise ParameterError(f"{argument} must be complete: it has an Ibis parameter without a value")


def check_source(table: ir.Table) -> bool:
    """Return whether a table is itself a query that combines rows; raise if that cannot be known, or is not fixed."""
    nodes = _nodes(table.op(), None)
    for node in nodes:
        if isinstance(node, ops.SQLQueryResult | ops.SQLStringView):
            raise ParameterError(
                "data must be a table whose rows are known to be records, got the result of SQL text, which cannot be "
                "checked; use Ibis expressions, or store the result as a table first"
            )
        if _is_unfixed(node) and not _is_ours(node):
            raise ParameterError(_refusal("data", "", "unfixed"))
        if not isinstance(node, (*KEEPS_ROWS, *COMBINES_ROWS, *ONE_ROW)) and not _is_ours(node):
            raise ParameterError(
                f"data uses {type(node).__name__}, which is not known to look at one record at a time; leave it out, "
                "or store the result as a table first"
            )
    return any(isinstance(node, COMBINES_ROWS) for node in nodes)


def _is_unfixed(node: Any) -> bool:
    """Whether an operation may give another result when it is computed again."""
    if isinstance(node, ops.Limit):
        return not isinstance(node.parent, ops.Sort)
    if isinstance(node, ops.First | ops.Last):
        return not node.order_by
    return isinstance(node, UNFIXED_OPERATIONS) or _reads_the_clock(node)


def _is_ours(node: Any) -> bool:
    """Whether a function was put in by this package, which calls functions of the engine by their names."""
    return isinstance(node, ops.ScalarUDF) and str(node.__func__.__module__).startswith("slowscale.")


def _reads_the_clock(node: Any) -> bool:
    """Whether text that is not a strict ISO literal becomes a time: PostgreSQL reads the clock from 'now'."""
    if isinstance(node, ops.Cast | ops.TryCast):
        return bool(node.to.is_temporal()) and node.arg.dtype.is_string() and not _is_iso(node.arg)
    if not isinstance(node, ops.Value):
        return False
    parts = [part for part in node.__children__ if isinstance(part, ops.Value)]
    if not any(part.dtype.is_date() or part.dtype.is_timestamp() for part in parts):
        return False
    compares = isinstance(node, ops.Comparison | ops.Between | ops.InValues | ops.SimpleCase)
    return compares and any(part.dtype.is_string() and not _is_iso(part) for part in parts)


def _is_iso(node: Any) -> bool:
    return isinstance(node, ops.Literal) and functions.iso_literal(str(node.value)) is not None


def filters(table: ir.Table) -> bool:
    """Return whether a table leaves rows of a stored one out, so that a change of value may move one in or out."""
    return bool(table.op().find((ops.Filter, ops.DropNull)))


def plain_columns(table: ir.Table) -> dict[str, str]:
    """Return the columns that are, unchanged, those of one stored table, with their names there.

    Computed columns are missing, and so are all columns of a query that combines rows or that Ibis has cached.
    """
    return _plain(table.op())


def _plain(node: Any) -> dict[str, str]:
    if isinstance(node, STORED):
        return {} if CACHED in node.name else {name: name for name in node.schema.names}
    if not isinstance(node, KEEPS_ROWS):
        return {}
    below = _plain(node.parent)
    if isinstance(node, ops.Project):
        fields = {name: value.arg if isinstance(value, ops.Alias) else value for name, value in node.values.items()}
        return {
            name: below[value.name]
            for name, value in fields.items()
            if isinstance(value, ops.Field) and value.name in below
        }
    if isinstance(node, ops.DropColumns):
        return {name: stored for name, stored in below.items() if name not in node.columns_to_drop}
    if isinstance(node, ops.FillNull):
        filled = node.replacements.keys() if isinstance(node.replacements, Mapping) else below.keys()
        return {name: stored for name, stored in below.items() if name not in filled}
    return below


def _refusal(argument: str, what: str, kind: str | None) -> str:
    if kind == "many rows":
        return f"{argument} must look at one record at a time, got {what}: {REASON}"
    if kind == "unfixed":
        return f"{argument} must be the same each time it is computed, got {UNFIXED}"
    return f"{argument} {what}"


def _nodes(root: Any, source: Any) -> list[Any]:
    """Return the operations of an expression, down to the table it is on."""
    found: list[Any] = []
    todo, seen = [root], set()
    while todo:
        node = todo.pop()
        if node in seen or node == source:
            continue
        seen.add(node)
        found.append(node)
        todo.extend(node.__children__)
    return found
