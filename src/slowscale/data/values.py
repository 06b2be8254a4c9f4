"""Arithmetic, comparisons and casts with one meaning on every engine.

Integers have 64 bits, and an overflow is an error. Numbers without an exact common type are computed as floats. An
operation that engines define differently is refused, with an error that says what to write instead.
"""

import operator
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.operations as ops
import ibis.expr.types as ir

from slowscale.data import functions
from slowscale.data.dialects import Dialect
from slowscale.data.types import MOST_DIGITS

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
VALUE_KINDS = {"text", "number", "boolean", "date", "timestamp"}
ROUNDINGS = {"round": functions.nearest, "floor": functions.floor, "ceil": functions.ceil}


class RefusedError(Exception):
    """Raised for an expression that is not allowed; `kind` is the row-by-row rule that it breaks, if any."""

    def __init__(self, words: str, kind: str | None = None) -> None:
        super().__init__(words)
        self.kind = kind


def kind_of(value: ir.Value) -> str:
    """Return the kind of a value: one of `KINDS`, "null", or the name of another type."""
    dtype = value.type()
    if dtype.is_numeric() and not dtype.is_boolean():
        return "number"
    kinds = {"null": "null", "boolean": "boolean", "string": "text", "date": "date", "timestamp": "timestamp"}
    return next((kind for name, kind in kinds.items() if getattr(dtype, f"is_{name}")()), str(dtype))


def is_integer(*values: ir.Value) -> bool:
    """Return whether all values are integers."""
    return all(value.type().is_integer() for value in values)


def is_common_integer(dtype: dt.DataType) -> bool:
    """Return whether every engine has an integer type; PostgreSQL has none of 8 bits and none that is unsigned."""
    return bool(dtype.is_int16() or dtype.is_int32() or dtype.is_int64())


def as_float(value: ir.Value) -> ir.Value:
    """Return a number as a 64-bit float."""
    return value.cast("float64")


def as_integer(value: ir.Value) -> ir.Value:
    """Return an integer as a 64-bit integer."""
    return value.cast("int64")


# Literals.
def time_literal(text: str, stamped: bool) -> ir.Value:
    """Return ISO text as a date or timestamp. Other text is refused: for PostgreSQL 'now' is the clock."""
    found = functions.iso_literal(text)
    if found is None or (isinstance(found, datetime) and not stamped):
        wanted, example = ("timestamp", "'2022-01-31 12:00:00'") if stamped else ("date", "'2022-01-31'")
        raise RefusedError(
            f"uses {text!r} as a {wanted}, which may depend on the clock or on the engine: write an ISO literal such "
            f"as {example}"
        )
    return ibis.literal(found, "timestamp" if stamped else "date")


def decimal_literal(number: Decimal) -> ir.Value:
    """Return a decimal literal whose type has exactly its digits; without a type, engines would round it."""
    whole, scale = len(str(abs(int(number)))), max(0, -int(number.as_tuple().exponent))
    if whole + scale > MOST_DIGITS:
        raise RefusedError(f"has the number {number}, which has more than {MOST_DIGITS} digits: write a shorter one")
    return ibis.literal(number, dt.Decimal(whole + scale, scale))


# Values of one type.
def to_common_type(values: Sequence[ir.Value], compared: bool) -> list[ir.Value]:
    """Return values as values of one type, because they are `compared` or because one of them is chosen."""
    kinds = {kind_of(value) for value in values} - {"null"}
    times = kinds & {"date", "timestamp"}
    if times and "text" in kinds:
        values = [_as_time(value, "timestamp" in times) if kind_of(value) == "text" else value for value in values]
        kinds.discard("text")
    if len(times) == 2:
        values = [value.cast("timestamp") if kind_of(value) == "date" else value for value in values]
        kinds.discard("date")
    if len(kinds) > 1:
        raise RefusedError(f"mixes values of type {' and '.join(sorted(kinds))}: cast them to one type")
    if not kinds <= VALUE_KINDS:
        raise RefusedError(
            f"uses values of type {', '.join(kinds)}, which not every engine has: cast them to another type"
        )
    if kinds != {"number"}:
        return list(values)
    values = to_floats_if_any(values)
    return _side_by_side(values) if compared else to_one_number_type(values)


def _as_time(value: ir.Value, stamped: bool) -> ir.Value:
    literal = value.op()
    if not isinstance(literal, ops.Literal):
        raise RefusedError("uses text as a date or timestamp: convert it with try_cast or strptime")
    return time_literal(literal.value, stamped)


def to_floats_if_any(values: Sequence[ir.Value]) -> list[ir.Value]:
    """Return numbers as floats if one of them is a float."""
    if any(value.type().is_floating() for value in values):
        return [as_float(value) for value in values]
    return list(values)


def to_one_number_type(values: Sequence[ir.Value]) -> list[ir.Value]:
    """Return numbers in a type that holds all of them; Ibis would use the type of the first decimal."""
    types = {value.type() for value in values if kind_of(value) == "number"}
    if len(types) == 1 or not any(dtype.is_decimal() for dtype in types):
        return list(values)
    size = _common_size(types)
    return [value.cast("float64" if size is None else dt.Decimal(*size)) for value in values]


def _side_by_side(values: Sequence[ir.Value]) -> list[ir.Value]:
    """Return numbers that Ibis takes side by side; it refuses decimals of which neither type holds the other."""
    types = {value.type() for value in values if kind_of(value) == "number"}
    accepted = all(left.castable(right) or right.castable(left) for left in types for right in types)
    if accepted or _common_size(types) is None:
        return list(values)
    return to_one_number_type(values)


def _common_size(types: Any) -> tuple[int, int] | None:
    """Return the precision and scale of a decimal that holds values of all these types, or None if there is none."""
    sizes = [(19, 0) if dtype.is_integer() else (dtype.precision, dtype.scale) for dtype in types]
    if any(precision is None or scale is None for precision, scale in sizes):
        return None
    most = max(scale for _, scale in sizes)
    digits = max(precision - scale for precision, scale in sizes) + most
    return (digits, most) if digits <= MOST_DIGITS else None


def compare(dialect: Dialect, left: ir.Value, right: ir.Value, sign: str) -> ir.Value:
    """Compare two values of one kind; text by code point."""
    if kind_of(left) == "text" and sign not in ("=", "<>"):
        return dialect.compare_text(left, right, sign)
    return COMPARISONS[sign](left, right)


def extreme(values: Sequence[ir.Value], largest: bool) -> ir.Value:
    """Return the largest or smallest of numbers or dates, ignoring NULLs."""
    if any(kind_of(value) in ("text", "boolean") for value in values):
        raise RefusedError("takes the largest or smallest of texts, which engines order differently: use case and <")
    return ibis.greatest(*values) if largest else ibis.least(*values)


# Arithmetic.
def add(left: ir.Value, right: ir.Value, minus: bool = False) -> ir.Value:
    """Add or subtract: exactly for integers, and for decimals if every engine can represent the result."""
    if is_integer(left, right):
        left, right = as_integer(left), as_integer(right)
        return left - right if minus else left + right
    size = None
    if any(value.type().is_decimal() for value in (left, right)) and not any(
        value.type().is_floating() for value in (left, right)
    ):
        size = _common_size([left.type(), right.type()])
    if size is None or size[0] == MOST_DIGITS:
        left, right = as_float(left), as_float(right)
        return left - right if minus else left + right
    left, right = _side_by_side([left, right])
    return (left - right if minus else left + right).cast(dt.Decimal(size[0] + 1, size[1]))


def multiply(left: ir.Value, right: ir.Value) -> ir.Value:
    """Multiply: exactly for integers, else as floats."""
    if is_integer(left, right):
        return as_integer(left) * as_integer(right)
    return as_float(left) * as_float(right)


def divide(left: ir.Value, right: ir.Value) -> ir.Value:
    """Divide as floats; the result is NULL if the divisor is 0."""
    return as_float(left) / as_float(right).nullif(ibis.literal(0.0))


def quotient(dialect: Dialect, left: ir.Value, right: ir.Value) -> ir.Value:
    """Divide integers, truncated towards zero."""
    _check_integers(left, right)
    return dialect.divide(as_integer(left), as_integer(right))


def remainder(dialect: Dialect, left: ir.Value, right: ir.Value) -> ir.Value:
    """Return the remainder of integers, with the sign of the dividend."""
    _check_integers(left, right)
    return dialect.modulo(as_integer(left), as_integer(right))


def _check_integers(left: ir.Value, right: ir.Value) -> None:
    if not is_integer(left, right):
        raise RefusedError(
            f"uses // or % on {left.type()} and {right.type()}, but they need integers: use floor(x / y) for others"
        )


def negative(number: ir.Value) -> ir.Value:
    """Return minus a number."""
    if is_integer(number):
        return ibis.literal(0, "int64") - as_integer(number)
    return -number


def absolute(number: ir.Value) -> ir.Value:
    """Return a number without its sign."""
    return (as_integer(number) if is_integer(number) else number).abs()


def rounded(number: ir.Value, how: str) -> ir.Value:
    """Return a number rounded to an integer by one of `ROUNDINGS`."""
    return number if is_integer(number) else ROUNDINGS[how](as_float(number))


def root(number: ir.Value) -> ir.Value:
    """Return the square root; NULL for a negative number."""
    number = as_float(number)
    return functions.null_unless(number >= 0, number).sqrt()


def cast(value: ir.Value, to: dt.DataType) -> ir.Value:
    """Cast a value to a type, or raise if engines disagree about the cast."""
    was, kind = value.type(), kind_of(value)
    if was == to or (kind == "text" and to.is_string()):
        return value
    if to.is_integer() and not is_common_integer(to):
        raise RefusedError(f"casts to {to}, which not every engine has: use smallint, integer or bigint")
    if kind == "null":
        return ibis.null(to)
    if kind == "text":
        raise RefusedError(f"casts text to {to}, which engines do differently: use try_cast")
    if kind in ("date", "timestamp"):
        return _cast_time(value, to)
    if kind == "boolean" and to.is_integer():
        return ibis.cases((value, 1), (~value, 0), else_=ibis.null("int8")).cast(to)
    if is_integer(value):
        return _cast_integer(value, to)
    if kind == "number" and to.is_float64():
        return as_float(value)
    if kind == "number" and to.is_integer():
        raise RefusedError(f"casts {was} to {to}, which engines round differently: use round(x), floor(x) or ceil(x)")
    raise RefusedError(f"casts {was} to {to}, which differs by engine: docs/sql.md lists the casts that are allowed")


def _cast_time(value: ir.Value, to: dt.DataType) -> ir.Value:
    if to.is_date():
        return value.cast("date")
    if to.is_timestamp() and to.timezone is None:
        return value.cast("timestamp")
    raise RefusedError(f"casts {value.type()} to {to}, which engines do differently: use strftime")


def _cast_integer(value: ir.Value, to: dt.DataType) -> ir.Value:
    if to.is_integer() or to.is_float64() or to.is_string():
        return value.cast(to)  # an integer that does not fit in fewer bits is an error
    if to.is_boolean():
        return value != 0
    sized = to.is_decimal() and to.scale is not None and to.precision <= MOST_DIGITS
    if sized and to.precision - to.scale >= 19:
        return value.cast(to)
    raise RefusedError(
        f"casts {value.type()} to {to}, which differs by engine: docs/sql.md lists the casts that are allowed"
    )
