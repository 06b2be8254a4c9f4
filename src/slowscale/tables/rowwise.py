"""Filters and derived columns, row by row only.

A policy speaks of what one record contributes to a sum. A filter or a derived column that looks at other rows (an
aggregate, a window, a subquery, a join) would let one record change what another contributes, and a random one would
make the contribution no function of the record: the policy would no longer hold. So expressions are made of operations
known to look at their own row only, and anything else is refused.
"""

from collections.abc import Callable, Mapping
from typing import Any

import ibis
import ibis.expr.operations as ops
import ibis.expr.types as ir
import sqlglot
import sqlglot.expressions as sg

from slowscale.errors import ParameterError, ParameterTypeError

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
IMPURE = "a function that is not fixed by the record, such as a random number, the clock or a user-defined function"


def derive(table: ir.Table, columns: Mapping[str, Any] | None, argument: str = "derive") -> ir.Table:
    """Add columns computed row by row, each from the ones before it."""
    if columns is None:
        return table
    if not isinstance(columns, Mapping):
        raise ParameterTypeError(f"{argument} must be a mapping of new columns to expressions, got {columns!r:.60}")
    for name, expression in columns.items():
        if not isinstance(name, str) or not name:
            raise ParameterTypeError(f"{argument} must name its columns by text, got {name!r}")
        if name in table.columns:
            raise ParameterError(f"{argument}: there is a column {name!r} already; choose another name")
        table = table.mutate(**{name: bind(table, expression, f"{argument}[{name!r}]")})
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
        (value,) = (_from_sql(table, expression, argument),) if isinstance(expression, str) else table.bind(expression)
    except ParameterError:
        raise
    except Exception as error:
        words = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ParameterError(f"{argument} is no expression on the table's columns: {words}") from error
    _check(value, table, argument)
    return value


def _check(value: ir.Value, table: ir.Table, argument: str) -> None:
    """Raise unless every operation looks at its own row of this table only."""
    source = table.op()
    for node in _nodes(value.op(), source):
        what = next((words for kind, words in MANY_ROWS.items() if isinstance(node, kind)), None)
        if what is not None:
            raise ParameterError(f"{argument} must look at one record at a time, got {what}: {REASON}")
        if isinstance(node, ops.Impure):
            raise ParameterError(f"{argument} must be the same each time it is computed, got {IMPURE}")
        if isinstance(node, ops.Field | ops.Alias):
            continue
        if isinstance(node, ops.Value) and type(node).__module__ not in ROOMS:
            raise ParameterError(
                f"{argument} uses {type(node).__name__}, which is not known to look at one record at a time: {REASON}"
            )


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


def _from_sql(table: ir.Table, text: str, argument: str) -> ir.Value:
    """Turn a SQL expression into an Ibis one, so that every engine reads it in the same way."""
    try:
        tree = sqlglot.parse_one(text, read="duckdb")
    except sqlglot.errors.SqlglotError as error:
        raise ParameterError(f"{argument} is no SQL expression ({text!r}): {str(error).splitlines()[0]}") from None
    return _Translator(table, argument).value(tree)


class _Translator:
    """Turns SQL that looks at one row into Ibis; what it has no rule for is refused."""

    def __init__(self, table: ir.Table, argument: str) -> None:
        self.table, self.argument = table, argument

    def value(self, node: Any) -> Any:
        for kind, rule in _RULES.items():
            if type(node) is kind:
                return rule(self, node)
        kinds = {
            (sg.Select, sg.Subquery, sg.Exists, sg.SetOperation): "a subquery",
            (sg.Window,): "a window function",
            (sg.AggFunc,): "an aggregate",
        }
        for kind, what in kinds.items():
            if isinstance(node, kind):
                raise ParameterError(f"{self.argument} must look at one record at a time, got {what}: {REASON}")
        if isinstance(node, sg.Rand | sg.Randn | sg.Uuid | sg.CurrentTimestamp | sg.CurrentDate):
            raise ParameterError(f"{self.argument} must be the same each time it is computed, got {IMPURE}")
        raise ParameterError(
            f"{self.argument} uses {node.sql(dialect='duckdb')!r}, which SQL text may not here; "
            "an Ibis expression may know it"
        )

    def column(self, node: sg.Column) -> Any:
        name = node.name
        if node.table:
            raise ParameterError(f"{self.argument} must name columns only, got {node.sql()!r}")
        matches = [column for column in self.table.columns if column.lower() == name.lower()]
        if name in self.table.columns:
            return self.table[name]
        if len(matches) == 1 and not node.this.quoted:
            return self.table[matches[0]]
        raise ParameterError(f"{self.argument}: there is no column {name!r}; there are {', '.join(self.table.columns)}")

    def literal(self, node: sg.Literal) -> Any:
        if node.is_string:
            return ibis.literal(node.this)
        return ibis.literal(int(node.this)) if node.is_int else ibis.literal(float(node.this))

    def case(self, node: sg.Case) -> Any:
        subject = node.args.get("this")
        branches = []
        for branch in node.args["ifs"]:
            condition = self.value(branch.this)
            if subject is not None:
                condition = self.value(subject) == condition
            branches.append((condition, self.value(branch.args["true"])))
        otherwise = node.args.get("default")
        return ibis.cases(*branches, else_=None if otherwise is None else self.value(otherwise))

    def within(self, node: sg.In) -> Any:
        if node.args.get("query") is not None or node.args.get("unnest") is not None:
            raise ParameterError(f"{self.argument} must look at one record at a time, got a subquery: {REASON}")
        return self.value(node.this).isin([self.value(item) for item in node.expressions])

    def cast(self, node: sg.Cast) -> Any:
        from ibis.backends.sql.datatypes import DuckDBType

        return self.value(node.this).cast(DuckDBType.to_ibis(node.to))

    def substring(self, node: sg.Substring) -> Any:
        start, length = node.args["start"], node.args.get("length")
        return self.value(node.this).substr(self.value(start) - 1, None if length is None else self.value(length))

    def is_(self, node: sg.Is) -> Any:
        subject, other = self.value(node.this), node.expression
        if isinstance(other, sg.Null):
            return subject.isnull()
        return subject.fill_null(not other.this) == ibis.literal(bool(other.this))


def _two(function: Callable[[Any, Any], Any]) -> Callable[[_Translator, Any], Any]:
    return lambda to, node: function(to.value(node.this), to.value(node.expression))


def _one(function: Callable[[Any], Any]) -> Callable[[_Translator, Any], Any]:
    return lambda to, node: function(to.value(node.this))


_RULES: dict[Any, Callable[[_Translator, Any], Any]] = {
    sg.Column: _Translator.column,
    sg.Literal: _Translator.literal,
    sg.Null: lambda to, node: ibis.null(),
    sg.Boolean: lambda to, node: ibis.literal(bool(node.this)),
    sg.Paren: _one(lambda x: x),
    sg.And: _two(lambda x, y: x & y),
    sg.Or: _two(lambda x, y: x | y),
    sg.Not: _one(lambda x: ~x),
    sg.EQ: _two(lambda x, y: x == y),
    sg.NEQ: _two(lambda x, y: x != y),
    sg.GT: _two(lambda x, y: x > y),
    sg.GTE: _two(lambda x, y: x >= y),
    sg.LT: _two(lambda x, y: x < y),
    sg.LTE: _two(lambda x, y: x <= y),
    sg.Add: _two(lambda x, y: x + y),
    sg.Sub: _two(lambda x, y: x - y),
    sg.Mul: _two(lambda x, y: x * y),
    sg.Div: _two(lambda x, y: x.cast("float64") / y.cast("float64")),  # some engines cut whole numbers' quotients
    sg.IntDiv: _two(lambda x, y: x // y),
    sg.Mod: _two(lambda x, y: x % y),
    sg.Neg: _one(lambda x: -x),
    sg.Between: lambda to, node: to.value(node.this).between(to.value(node.args["low"]), to.value(node.args["high"])),
    sg.In: _Translator.within,
    sg.Is: _Translator.is_,
    sg.Like: _two(lambda x, y: x.like(y)),
    sg.ILike: _two(lambda x, y: x.ilike(y)),
    sg.Case: _Translator.case,
    sg.If: lambda to, node: ibis.ifelse(to.value(node.this), to.value(node.args["true"]), to.value(node.args["false"])),
    sg.Cast: _Translator.cast,
    sg.Coalesce: lambda to, node: ibis.coalesce(*map(to.value, [node.this, *node.expressions])),
    sg.Nullif: _two(lambda x, y: x.nullif(y)),
    sg.Greatest: lambda to, node: ibis.greatest(*map(to.value, [node.this, *node.expressions])),
    sg.Least: lambda to, node: ibis.least(*map(to.value, [node.this, *node.expressions])),
    sg.Abs: _one(lambda x: x.abs()),
    sg.Round: lambda to, node: to.value(node.this).round(
        to.value(node.args["decimals"]) if node.args.get("decimals") is not None else 0
    ),
    sg.Floor: _one(lambda x: x.floor()),
    sg.Ceil: _one(lambda x: x.ceil()),
    sg.Sqrt: _one(lambda x: x.sqrt()),
    sg.Ln: _one(lambda x: x.ln()),
    sg.Exp: _one(lambda x: x.exp()),
    sg.Upper: _one(lambda x: x.upper()),
    sg.Lower: _one(lambda x: x.lower()),
    sg.Trim: _one(lambda x: x.strip()),
    sg.Length: _one(lambda x: x.length()),
    sg.Substring: _Translator.substring,
    sg.Left: _two(lambda x, y: x.left(y)),
    sg.Right: _two(lambda x, y: x.right(y)),
    sg.Concat: lambda to, node: ibis.literal("").concat(*(to.value(part).fill_null("") for part in node.expressions)),
    sg.DPipe: _two(lambda x, y: x.concat(y)),
    sg.StartsWith: _two(lambda x, y: x.startswith(y)),
    sg.Year: _one(lambda x: x.year()),
    sg.Month: _one(lambda x: x.month()),
}
