"""Ibis expressions with one meaning on every engine.

Ibis compiles some operations to functions that engines define differently: integer division, rounding, greatest, LIKE,
the order of text. `RULES` lists every operation that a filter or a derived column may use, with its replacement. An
operation without a rule is refused; most of those can be written as SQL text (docs/sql.md).
"""

import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import ibis
import ibis.expr.operations as ops
import ibis.expr.types as ir

from slowscale.tables import functions, values
from slowscale.tables.dialects import Dialect, is_null
from slowscale.tables.values import RefusedError

USE_SQL_TEXT = "write it as SQL text, which has one meaning on every engine (docs/sql.md)"


def portable(value: ir.Value, dialect: Dialect) -> ir.Value:
    """Return an expression that has the same result on every engine, or raise `RefusedError`."""

    def replace(node: Any, changed: Any) -> Any:
        rule = RULES.get(type(node))
        if rule is None:
            raise RefusedError(f"uses {type(node).__name__}, whose result may depend on the engine: {USE_SQL_TEXT}")
        parts = changed or dict(zip(node.__argnames__, node.__args__, strict=True))
        if rule is _unchanged:
            return node.__recreate__(parts)
        return rule(dialect, **{name: _expression(part) for name, part in parts.items()}).op()

    return value.op().replace(replace, filter=ops.Value).to_expr()


def _expression(part: Any) -> Any:
    if isinstance(part, tuple):
        return [_expression(item) for item in part]
    return part.to_expr() if isinstance(part, ops.Value) else part


def _unchanged(dialect: Dialect, **parts: Any) -> Any:
    """Mark operations that are the same on every engine."""


def _constant(value: Any, what: str) -> Any:
    """Return the value of an expression that must be a literal; `what` names its role in the error."""
    if value is None or not isinstance(value.op(), ops.Literal):
        raise RefusedError(f"has {what} that is not a constant: {USE_SQL_TEXT}")
    return value.op().value


def _field(dialect: Dialect, rel: Any, name: str) -> Any:
    value = rel.to_expr()[name]
    zoned = value.type().is_timestamp() and value.type().timezone is not None
    return dialect.without_zone(value) if zoned else value


def _literal(dialect: Dialect, value: Any, dtype: Any) -> Any:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return ibis.literal(value.astimezone(UTC).replace(tzinfo=None), "timestamp")
    if isinstance(value, Decimal) and value.is_finite():
        return values.decimal_literal(value)
    usual = value is None or isinstance(value, bool | str | date | datetime)
    whole = isinstance(value, int) and -(2**63) <= value < 2**63
    if not (usual or whole or (isinstance(value, float) and math.isfinite(value))) or (value and "\0" in str(value)):
        raise RefusedError(f"has the constant {value!r:.40}, which not every engine can represent: use another one")
    return ibis.literal(value, dtype)


def _compare(sign: str) -> Callable[..., Any]:
    def rule(dialect: Dialect, left: Any, right: Any) -> Any:
        left, right = values.to_common_type(dialect, [left, right], compared=True)
        return values.compare(dialect, left, right, sign)

    return rule


def _between(dialect: Dialect, arg: Any, lower_bound: Any, upper_bound: Any) -> Any:
    value, low, high = values.to_common_type(dialect, [arg, lower_bound, upper_bound], compared=True)
    return values.compare(dialect, value, low, ">=") & values.compare(dialect, value, high, "<=")


def _in(dialect: Dialect, value: Any, options: list[Any]) -> Any:
    value, *others = values.to_common_type(dialect, [value, *options], compared=True)
    return value.isin(others)


def _cases(dialect: Dialect, cases: list[Any], results: list[Any], default: Any) -> Any:
    *found, last = values.to_common_type(dialect, [*results, default], compared=False)
    return ibis.cases(*zip(cases, found, strict=True), else_=last)


def _simple_case(dialect: Dialect, base: Any, cases: list[Any], results: list[Any], default: Any) -> Any:
    pairs = [values.to_common_type(dialect, [base, case], compared=True) for case in cases]
    return _cases(dialect, [left == right for left, right in pairs], results, default)


def _nullif(dialect: Dialect, arg: Any, null_if_expr: Any) -> Any:
    value, other = values.to_common_type(dialect, [arg, null_if_expr], compared=True)
    return value.nullif(other)


def _extreme(largest: bool) -> Callable[..., Any]:
    return lambda dialect, arg: values.extreme(dialect, values.to_common_type(dialect, arg, compared=False), largest)


def _add(minus: bool) -> Callable[..., Any]:
    return lambda dialect, left, right: values.add(dialect, left, right, minus)


def _round(dialect: Dialect, arg: Any, digits: Any) -> Any:
    if digits is not None and _constant(digits, "a number of digits") != 0:
        raise RefusedError("rounds to digits after the point, which engines do differently: round to whole numbers")
    return values.rounded(arg, "round")


def _cast(dialect: Dialect, arg: Any, to: Any) -> Any:
    if isinstance(arg.op(), ops.Literal) and arg.type().is_string() and (to.is_date() or to.is_timestamp()):
        return values.time_literal(arg.op().value, to.is_timestamp())
    return values.cast(dialect, arg, to)


def _substring(dialect: Dialect, arg: Any, start: Any, length: Any) -> Any:
    first = _constant(start, "a position")
    count = None if length is None else _constant(length, "a length")
    if first < 0 or (count is not None and count < 0):
        raise RefusedError("has a negative position or length, which engines interpret differently: give numbers >= 0")
    return arg.substr(first) if count is None else arg.substr(first, count)


def _right(dialect: Dialect, arg: Any, nchars: Any) -> Any:
    count = _constant(nchars, "a length")
    if count < 0:
        raise RefusedError("has a negative length, which engines interpret differently: give a number >= 0")
    return arg.right(count)


def _replace(dialect: Dialect, arg: Any, pattern: Any, replacement: Any) -> Any:
    if not _constant(pattern, "a text to replace"):
        raise RefusedError("replaces an empty text, which engines do differently: give at least one character")
    _constant(replacement, "a replacement")
    return arg.replace(pattern, replacement)


def _starts_with(dialect: Dialect, arg: Any, start: Any) -> Any:
    text = _constant(start, "a start")
    return arg.left(len(text)) == text


def _like(dialect: Dialect, arg: Any, pattern: Any, escape: Any) -> Any:
    if escape is not None:
        raise RefusedError(f"has LIKE with an escape: {USE_SQL_TEXT}")
    return dialect.like(arg, _constant(pattern, "a pattern"))


def _ilike(dialect: Dialect, arg: Any, pattern: Any, escape: Any) -> Any:
    lowered = ibis.literal(functions.ascii_lower(_constant(pattern, "a pattern")))
    return _like(dialect, functions.lower(arg), lowered, escape)


def _part(name: str) -> Callable[..., Any]:
    return lambda dialect, arg: dialect.part(arg, name)


RULES: dict[Any, Callable[..., Any]] = {
    ops.Field: _field,
    ops.Literal: _literal,
    ops.Alias: _unchanged,
    ops.And: _unchanged,
    ops.Or: _unchanged,
    ops.Not: _unchanged,
    ops.Xor: _unchanged,
    ops.IsNull: lambda dialect, arg: is_null(arg),
    ops.NotNull: lambda dialect, arg: ~is_null(arg),
    ops.StringLength: _unchanged,
    ops.StringConcat: _unchanged,
    ops.Equals: _compare("="),
    ops.NotEquals: _compare("<>"),
    ops.Less: _compare("<"),
    ops.LessEqual: _compare("<="),
    ops.Greater: _compare(">"),
    ops.GreaterEqual: _compare(">="),
    ops.Between: _between,
    ops.InValues: _in,
    ops.IfElse: lambda dialect, bool_expr, true_expr, false_null_expr: _cases(
        dialect, [bool_expr], [true_expr], false_null_expr
    ),
    ops.SearchedCase: _cases,
    ops.SimpleCase: _simple_case,
    ops.Coalesce: lambda dialect, arg: ibis.coalesce(*values.to_common_type(dialect, arg, compared=False)),
    ops.NullIf: _nullif,
    ops.Greatest: _extreme(largest=True),
    ops.Least: _extreme(largest=False),
    ops.Add: _add(minus=False),
    ops.Subtract: _add(minus=True),
    ops.Multiply: lambda dialect, left, right: values.multiply(dialect, left, right),
    ops.Divide: lambda dialect, left, right: values.divide(left, right),
    ops.Modulus: lambda dialect, left, right: values.remainder(dialect, left, right),
    ops.Negate: lambda dialect, arg: values.negative(dialect, arg),
    ops.Abs: lambda dialect, arg: values.absolute(dialect, arg),
    ops.Floor: lambda dialect, arg: values.rounded(arg, "floor"),
    ops.Ceil: lambda dialect, arg: values.rounded(arg, "ceil"),
    ops.Round: _round,
    ops.Sqrt: lambda dialect, arg: values.root(arg),
    ops.Cast: _cast,
    ops.Substring: _substring,
    ops.StrRight: _right,
    ops.StringReplace: _replace,
    ops.Uppercase: lambda dialect, arg: functions.upper(arg),
    ops.Lowercase: lambda dialect, arg: functions.lower(arg),
    ops.StartsWith: _starts_with,
    ops.StringSQLLike: _like,
    ops.StringSQLILike: _ilike,
    ops.ExtractYear: _part("year"),
    ops.ExtractMonth: _part("month"),
    ops.ExtractDay: _part("day"),
    ops.ExtractQuarter: lambda dialect, arg: functions.quarter(dialect, arg),
    ops.Date: lambda dialect, arg: dialect.to_date(arg),
}
