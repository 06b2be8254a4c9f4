"""Filters and derived columns, row by row only.

A policy speaks of what one record contributes to a sum. A filter or a derived column that looks at other rows (an
aggregate, a window, a subquery, a join) would let one record change what another contributes, and a random one would
make the contribution no function of the record: the policy would no longer hold. So expressions are made of operations
known to look at their own row only, and anything else is refused.
"""

from collections.abc import Mapping
from typing import Any

import ibis.expr.operations as ops
import ibis.expr.types as ir

from slowscale.errors import ParameterError, ParameterTypeError
from slowscale.tables import functions, sql

REASON = "it would let one record change what another contributes, and the policy would no longer hold"
# Where Ibis keeps the operations on single values.
ROOMS = {
    f"ibis.expr.operations.{room}" for room in ("generic", "logical", "numeric", "strings", "temporal", "histograms")
}
MANY_ROWS = {
    ops.Reduction: "an aggregate",
    ops.Analytic: "a window function",
    ops.WindowFunction: "a window function",
    ops.Subquery: "a subquery",
    ops.RowID: "a row number",
    ops.Relation: "another table",
}
UNFIXED = "a function that is not fixed by the record, such as a random number, the clock or a user-defined function"
# Arithmetic on decimals that stays exact, and keeps the number of digits that Ibis says it has.
EXACT = (
    ops.Field, ops.Literal, ops.Cast, ops.Alias, ops.Add, ops.Subtract, ops.Negate, ops.Abs, ops.Coalesce, ops.Greatest,
    ops.Least, ops.NullIf, ops.IfElse, ops.SearchedCase, ops.SimpleCase,
)  # fmt: skip


def derive(table: ir.Table, columns: Mapping[str, Any] | None, argument: str = "derive") -> ir.Table:
    """Add columns computed row by row, each from the ones before it."""
    if columns is None:
        return table
    if not isinstance(columns, Mapping):
        raise ParameterTypeError(f"{argument} must be a mapping of new columns to expressions, got {columns!r:.60}")
    for name, expression in columns.items():
        if not isinstance(name, str) or not name:
            raise ParameterTypeError(f"{argument} must name its columns by text, got {name!r}")
        # Some engines take names that differ in case only for one.
        taken = next((column for column in table.columns if column.casefold() == name.casefold()), None)
        if taken is not None:
            raise ParameterError(f"{argument}: there is a column {taken!r} already; choose another name")
        value = bind(table, expression, f"{argument}[{name!r}]")
        if value.type().is_decimal() and not _exact(value, table):
            value = value.cast("float64")  # what engines really have there
        table = table.mutate(**{name: value})
    return table


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
    return expression if isinstance(expression, str) else str(bind(table, expression, "expression").get_name())


def bind(table: ir.Table, expression: Any, argument: str) -> ir.Value:
    """Return an Ibis expression, a function of the table or SQL text as a checked expression on the table."""
    try:
        bound = [sql.parse(table, expression, argument)] if isinstance(expression, str) else table.bind(expression)
    except ParameterError:
        raise
    except sql.RefusedError as refusal:
        raise ParameterError(_refusal(argument, str(refusal), refusal.kind)) from None
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ParameterError(f"{argument} is no expression on the table's columns: {reason}") from error
    if len(bound) != 1:
        raise ParameterError(f"{argument} must be one expression on the table's columns, got {len(bound)}")
    if not isinstance(expression, str):
        _check(bound[0], table, argument)
    return bound[0]


def check_source(table: ir.Table) -> bool:
    """Return whether a table is itself a query that combines rows; raise if it is not the same each time."""
    nodes = _nodes(table.op(), None)
    for node in nodes:
        if isinstance(node, ops.Impure | ops.Sample):
            raise ParameterError(_refusal("data", "", "unfixed"))
    many = (ops.Reduction, ops.Analytic, ops.WindowFunction, ops.Subquery, ops.JoinChain, ops.Set, ops.Aggregate)
    return any(isinstance(node, (*many, ops.Limit, ops.Distinct)) for node in nodes)


def _refusal(argument: str, what: str, kind: str | None) -> str:
    if kind == "many rows":
        return f"{argument} must look at one record at a time, got {what}: {REASON}"
    if kind == "unfixed":
        return f"{argument} must be the same each time it is computed, got {UNFIXED}"
    return f"{argument} {what}"


def _check(value: ir.Value, table: ir.Table, argument: str) -> None:
    """Raise unless every operation looks at its own row of this table only."""
    for node in _nodes(value.op(), table.op()):
        what = next((words for kind, words in MANY_ROWS.items() if isinstance(node, kind)), None)
        if what is not None:
            raise ParameterError(_refusal(argument, what, "many rows"))
        if isinstance(node, ops.Impure) or _reads_the_clock(node):
            raise ParameterError(_refusal(argument, "", "unfixed"))
        if isinstance(node, ops.Field | ops.Alias):
            continue
        if isinstance(node, ops.ScalarParameter):
            raise ParameterError(f"{argument} must be complete: it has an Ibis parameter without a value")
        if isinstance(node, ops.Value) and type(node).__module__ not in ROOMS:
            raise ParameterError(
                f"{argument} uses {type(node).__name__}, which is not known to look at one record at a time: {REASON}"
            )


def _reads_the_clock(node: Any) -> bool:
    """Whether a text such as 'now' is cast to a time, as some engines understand it."""
    if not isinstance(node, ops.Cast | ops.TryCast) or not (node.arg.dtype.is_string() and node.to.is_temporal()):
        return False
    return not (isinstance(node.arg, ops.Literal) and functions.iso_literal(str(node.arg.value)))


def _exact(value: ir.Value, table: ir.Table) -> bool:
    numbers = [
        node for node in _nodes(value.op(), table.op()) if isinstance(node, ops.Value) and node.dtype.is_numeric()
    ]
    return all(isinstance(node, EXACT) and not node.dtype.is_floating() for node in numbers)


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
