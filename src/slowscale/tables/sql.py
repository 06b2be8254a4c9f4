"""SQL text for filters and derived columns, turned into Ibis so that every engine reads it in the same way.

Only what looks at one row has a rule here, and a rule says which parts of the syntax it understands: anything else is
refused, never guessed. Where engines disagree (rounding, casts from floats, quotients) a text has one meaning, or none.
"""

import re
from collections.abc import Callable
from typing import Any

import ibis
import ibis.expr.types as ir
import sqlglot
import sqlglot.expressions as sg

from slowscale.errors import ParameterError

MANY_ROWS = {
    "a subquery": (sg.Select, sg.Subquery, sg.Exists, sg.SetOperation),
    "a window function": (sg.Window,),
    "an aggregate": (sg.AggFunc,),
}
UNFIXED = (sg.Rand, sg.Randn, sg.Uuid, sg.CurrentTimestamp, sg.CurrentDate)
ISO_TIME = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?)?")


class RefusedError(Exception):
    """Why an expression is not taken; `kind` says which of the row-by-row rules it breaks, if any."""

    def __init__(self, words: str, kind: str | None = None) -> None:
        super().__init__(words)
        self.kind = kind


def parse(table: ir.Table, text: str, argument: str) -> ir.Value:
    """Return a SQL expression (DuckDB's dialect) on the table's columns as an Ibis one."""
    try:
        tree = sqlglot.parse_one(text, read="duckdb")
    except sqlglot.errors.SqlglotError as error:
        raise ParameterError(f"{argument} is no SQL expression ({text!r}): {str(error).splitlines()[0]}") from None
    return _Translator(table).value(tree)


class _Translator:
    def __init__(self, table: ir.Table) -> None:
        self.table = table

    def value(self, node: Any) -> Any:
        rule, understood = _RULES.get(type(node), (None, frozenset()))
        if rule is None:
            for words, kinds in MANY_ROWS.items():
                if isinstance(node, kinds):
                    raise RefusedError(words, "many rows")
            if isinstance(node, UNFIXED):
                raise RefusedError("", "unfixed")
        elif {name for name, part in node.args.items() if part not in (None, False, [], "")} <= understood:
            return rule(self, node)
        if isinstance(node, sg.In) and node.args.get("query") is not None:
            raise RefusedError("a subquery", "many rows")
        raise RefusedError(
            f"uses {node.sql(dialect='duckdb')!r}, which SQL text may not here; an Ibis expression may know it"
        )

    def known(self, node: Any) -> Any:
        """Return a value that is compared: NULL is no value, and equals nothing."""
        if isinstance(node, sg.Null):
            raise RefusedError("compares with NULL, which is never true: use IS NULL")
        return self.value(node)

    def column(self, node: sg.Column) -> Any:
        name = node.name
        if node.table:
            raise RefusedError(f"must name columns only, got {node.sql()!r}")
        if name in self.table.columns:
            return self.table[name]
        matches = [column for column in self.table.columns if column.lower() == name.lower()]
        if len(matches) == 1 and not node.this.quoted:
            return self.table[matches[0]]
        raise RefusedError(f"names {name!r}, but there is no such column; there are {', '.join(self.table.columns)}")

    def literal(self, node: sg.Literal) -> Any:
        if node.is_string:
            return ibis.literal(node.this)
        return ibis.literal(int(node.this)) if node.is_int else ibis.literal(float(node.this))

    def case(self, node: sg.Case) -> Any:
        subject = node.args.get("this")
        branches = []
        for branch in node.args["ifs"]:
            condition = self.known(branch.this)
            if subject is not None:
                condition = self.value(subject) == condition
            branches.append((condition, self.value(branch.args["true"])))
        otherwise = node.args.get("default")
        return ibis.cases(*branches, else_=None if otherwise is None else self.value(otherwise))

    def within(self, node: sg.In) -> Any:
        return self.value(node.this).isin([self.known(item) for item in node.expressions])

    def cast(self, node: sg.Cast) -> Any:
        from ibis.backends.sql.datatypes import DuckDBType

        value, to = self.value(node.this), DuckDBType.to_ibis(node.to)
        was = value.type()
        if (was.is_floating() or was.is_decimal()) and not to.is_floating():
            raise RefusedError(f"casts {was} to {to}, which engines round differently: use floor(x) or ceil(x)")
        if (
            was.is_string()
            and to.is_temporal()
            and not (isinstance(node.this, sg.Literal) and ISO_TIME.fullmatch(node.this.this))
        ):
            raise RefusedError(f"casts text to {to}, which may be the clock: give a date such as '2022-01-31'")
        return value.cast(to)

    def substring(self, node: sg.Substring) -> Any:
        start, length = _positive(node.args["start"], 1), node.args.get("length")
        text = self.value(node.this)
        return text.substr(start - 1) if length is None else text.substr(start - 1, _positive(length, 0))

    def is_(self, node: sg.Is) -> Any:
        subject, other = self.value(node.this), node.expression
        if isinstance(other, sg.Null):
            return subject.isnull()
        if not isinstance(other, sg.Boolean) or not subject.type().is_boolean():
            raise RefusedError(
                f"uses {node.sql(dialect='duckdb')!r}: IS takes NULL, or TRUE and FALSE for truth values"
            )
        return subject.fill_null(not other.this) == ibis.literal(bool(other.this))

    def like(self, node: Any) -> Any:
        text, pattern = self.value(node.this), self.known(node.expression)
        matches = text.like(pattern) if isinstance(node, sg.Like) else text.ilike(pattern)
        return ~matches if node.args.get("negate") else matches

    def round(self, node: sg.Round) -> Any:
        value = self.value(node.this)
        if value.type().is_integer():
            return value
        rounded = (value.cast("float64").abs() + 0.5).floor()  # halves away from zero, on every engine
        return ibis.ifelse(value < 0, -rounded, rounded)


def _positive(node: Any, least: int) -> int:
    if not isinstance(node, sg.Literal) or node.is_string or not node.is_int or int(node.this) < least:
        raise RefusedError(f"uses the position or length {node.sql()!r}: give a whole number >= {least}")
    return int(node.this)


def _two(function: Callable[[Any, Any], Any]) -> Callable[[_Translator, Any], Any]:
    return lambda to, node: function(to.value(node.this), to.value(node.expression))


def _compared(function: Callable[[Any, Any], Any]) -> Callable[[_Translator, Any], Any]:
    return lambda to, node: function(to.known(node.this), to.known(node.expression))


def _one(function: Callable[[Any], Any]) -> Callable[[_Translator, Any], Any]:
    return lambda to, node: function(to.value(node.this))


def _all(function: Callable[..., Any]) -> Callable[[_Translator, Any], Any]:
    return lambda to, node: function(*map(to.value, [node.this, *node.expressions]))


def _float(x: Any) -> Any:
    return x.cast("float64")


_BOTH = frozenset({"this", "expression"})
_MORE = frozenset({"this", "expressions"})
_THIS = frozenset({"this"})
_RULES: dict[Any, tuple[Callable[[_Translator, Any], Any], frozenset[str]]] = {
    sg.Column: (_Translator.column, frozenset({"this", "table"})),
    sg.Literal: (_Translator.literal, frozenset({"this", "is_string"})),
    sg.Null: (lambda to, node: ibis.null(), frozenset()),
    sg.Boolean: (lambda to, node: ibis.literal(bool(node.this)), _THIS),
    sg.Paren: (_one(lambda x: x), _THIS),
    sg.And: (_two(lambda x, y: x & y), _BOTH),
    sg.Or: (_two(lambda x, y: x | y), _BOTH),
    sg.Not: (_one(lambda x: ~x), _THIS),
    sg.EQ: (_compared(lambda x, y: x == y), _BOTH),
    sg.NEQ: (_compared(lambda x, y: x != y), _BOTH),
    sg.GT: (_compared(lambda x, y: x > y), _BOTH),
    sg.GTE: (_compared(lambda x, y: x >= y), _BOTH),
    sg.LT: (_compared(lambda x, y: x < y), _BOTH),
    sg.LTE: (_compared(lambda x, y: x <= y), _BOTH),
    sg.Add: (_two(lambda x, y: x + y), _BOTH),
    sg.Sub: (_two(lambda x, y: x - y), _BOTH),
    sg.Mul: (_two(lambda x, y: x * y), _BOTH),
    sg.Div: (_two(lambda x, y: _float(x) / _float(y)), _BOTH),  # some engines cut whole numbers' quotients
    sg.Mod: (_two(lambda x, y: x % y), _BOTH),
    sg.Neg: (_one(lambda x: -x), _THIS),
    sg.Between: (
        lambda to, node: to.value(node.this).between(to.known(node.args["low"]), to.known(node.args["high"])),
        frozenset({"this", "low", "high"}),
    ),
    sg.In: (_Translator.within, _MORE),
    sg.Is: (_Translator.is_, _BOTH),
    sg.Like: (_Translator.like, _BOTH | {"negate"}),
    sg.ILike: (_Translator.like, _BOTH | {"negate"}),
    sg.Case: (_Translator.case, frozenset({"this", "ifs", "default"})),
    sg.If: (
        lambda to, node: ibis.ifelse(to.value(node.this), to.value(node.args["true"]), to.value(node.args["false"])),
        frozenset({"this", "true", "false"}),
    ),
    sg.Cast: (_Translator.cast, frozenset({"this", "to"})),
    sg.Coalesce: (_all(ibis.coalesce), _MORE),
    sg.Nullif: (_two(lambda x, y: x.nullif(y)), _BOTH),
    sg.Greatest: (_all(ibis.greatest), _MORE | {"ignore_nulls"}),
    sg.Least: (_all(ibis.least), _MORE | {"ignore_nulls"}),
    sg.Abs: (_one(lambda x: x.abs()), _THIS),
    sg.Round: (_Translator.round, _THIS),
    sg.Floor: (_one(lambda x: _float(x).floor()), _THIS),
    sg.Ceil: (_one(lambda x: _float(x).ceil()), _THIS),
    sg.Sqrt: (_one(lambda x: _float(x).sqrt()), _THIS),
    sg.Ln: (_one(lambda x: _float(x).ln()), _THIS),
    sg.Exp: (_one(lambda x: _float(x).exp()), _THIS),
    sg.Upper: (_one(lambda x: x.upper()), _THIS),
    sg.Lower: (_one(lambda x: x.lower()), _THIS),
    sg.Length: (_one(lambda x: x.length()), _THIS),
    sg.Substring: (_Translator.substring, frozenset({"this", "start", "length"})),
    sg.Left: (lambda to, node: to.value(node.this).left(_positive(node.expression, 0)), _BOTH),
    sg.Right: (lambda to, node: to.value(node.this).right(_positive(node.expression, 0)), _BOTH),
    sg.Concat: (
        lambda to, node: ibis.literal("").concat(*(to.value(part).fill_null("") for part in node.expressions)),
        frozenset({"expressions", "safe", "coalesce"}),
    ),
    sg.DPipe: (_two(lambda x, y: x.concat(y)), _BOTH | {"safe"}),
    sg.StartsWith: (_two(lambda x, y: x.startswith(y)), _BOTH),
    sg.Year: (_one(lambda x: x.year()), _THIS),
    sg.Month: (_one(lambda x: x.month()), _THIS),
}
