"""Arithmetic, comparisons, casts and functions with one meaning on every engine.

Integers have 64 bits, and an overflow is an error. Numbers without an exact common type are computed as floats. Text is
cast only if all engines read its spelling in the same way; other text becomes NULL, so that one invalid record cannot
stop a release. An operation that engines define differently is refused, with an error that says what to write instead.
"""

import operator
import re
import string
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.operations as ops
import ibis.expr.types as ir

from slowscale.data.conversion import MOST_DIGITS
from slowscale.data.dialects import Dialect, RefusedError, escaped, forced_cast

PARSED_DIGITS = 38  # the most digits before the point, and the most after it
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
UNITS = ("year", "quarter", "month", "week", "day")
_LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_YEAR = "(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
_DAY_31 = "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
_DAY_30 = "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
_DAY_28 = "02-(?:0[1-9]|1[0-9]|2[0-8])"
DATE_PATTERN = f"(?:{_YEAR}-(?:{_DAY_31}|{_DAY_30}|{_DAY_28})|{_LEAP_YEAR}-02-29)"
TIME_PATTERN = r"(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,6})?)?"
TIMESTAMP_PATTERN = f"{DATE_PATTERN}(?:[ T]{TIME_PATTERN})?"
# The directives of strptime and strftime: the part of a time, its pattern, and its meaning for the documentation.
DIRECTIVES = {
    "%Y": ("year", "[0-9]{4}", "year, 4 digits"),
    "%y": ("year", "[0-9]{2}", "year, 2 digits: 69 to 99 are 1969 to 1999, 00 to 68 are 2000 to 2068"),
    "%m": ("month", "[0-9]{1,2}", "month, 1 or 2 digits"),
    "%b": ("month", "[A-Za-z]{3}", "month, the first three letters of its English name"),
    "%d": ("day", "[0-9]{1,2}", "day, 1 or 2 digits"),
    "%H": ("hour", "[0-9]{1,2}", "hour from 0 to 23, 1 or 2 digits"),
    "%M": ("minute", "[0-9]{1,2}", "minute, 1 or 2 digits"),
    "%S": ("second", "[0-9]{1,2}", "second, 1 or 2 digits"),
}
_DEFAULTS = {"month": "01", "day": "01", "hour": "00", "minute": "00", "second": "00"}


def iso_literal(text: str) -> date | datetime | None:
    """Return the date or timestamp in a text, or None if it is not strict ISO."""
    if re.fullmatch(DATE_PATTERN, text):
        return date.fromisoformat(text)
    return datetime.fromisoformat(text) if re.fullmatch(TIMESTAMP_PATTERN, text) else None


def null_unless(condition: ir.Value, value: ir.Value) -> ir.Value:
    """Return a value if a condition is true, else NULL."""
    return ibis.ifelse(condition, value, ibis.null(value.type()))


def upper(text: ir.Value) -> ir.Value:
    """Turn the letters a to z into capitals. Other letters are kept, because engines change them differently."""
    return text.translate(string.ascii_lowercase, string.ascii_uppercase)


def lower(text: ir.Value) -> ir.Value:
    """Turn the letters A to Z into lower case. Other letters are kept."""
    return text.translate(string.ascii_uppercase, string.ascii_lowercase)


def ascii_lower(text: str) -> str:
    """Return a Python text as `lower` returns a column."""
    return text.translate(str.maketrans(string.ascii_uppercase, string.ascii_lowercase))


def floor(number: ir.Value) -> ir.Value:
    """Return the largest integer that is at most a float; NULL if it does not fit in 64 bits."""
    return _within_64_bits(number).floor()


def ceil(number: ir.Value) -> ir.Value:
    """Return the smallest integer that is at least a float; NULL if it does not fit in 64 bits."""
    return _within_64_bits(number).ceil()


def nearest(number: ir.Value) -> ir.Value:
    """Return the nearest integer, halves away from zero; NULL if it does not fit in 64 bits."""
    size = _within_64_bits(number).abs()
    whole = size.floor()
    # This difference is exact, while size + 0.5 may be rounded.
    rounded = ibis.ifelse(size - whole.cast("float64") >= 0.5, whole + 1, whole)
    return ibis.ifelse(number < 0, -rounded, rounded)


def _within_64_bits(number: ir.Value) -> ir.Value:
    limit = ibis.literal(float(2**63), "float64")
    return null_unless((number > -limit) & (number < limit), number)


def read_integer(dialect: Dialect, text: ir.Value, dtype: dt.DataType) -> ir.Value:
    """Read an integer: an optional sign and digits."""
    number = _trimmed_if_matching(dialect, text, f"[+-]?[0-9]{{1,{PARSED_DIGITS}}}").cast("decimal(38, 0)")
    low, high = (ibis.literal(int(bound), "int64") for bound in (dtype.bounds.lower, dtype.bounds.upper))
    return null_unless((number >= low) & (number <= high), number).cast(dtype)


def read_float(dialect: Dialect, text: ir.Value) -> ir.Value:
    """Read a float: digits, with an optional sign, fraction and exponent of at most two digits."""
    spelled = rf"[+-]?[0-9]{{1,{PARSED_DIGITS}}}(?:\.[0-9]{{1,{PARSED_DIGITS}}})?(?:[eE][+-]?[0-9]{{1,2}})?"
    return _trimmed_if_matching(dialect, text, spelled).cast("float64")


def read_decimal(dialect: Dialect, text: ir.Value, dtype: dt.Decimal) -> ir.Value:
    """Read a decimal: digits, with an optional sign and fraction; halves are rounded away from zero."""
    whole = dtype.precision - dtype.scale
    spelled = _trimmed_if_matching(dialect, text, rf"[+-]?[0-9]{{1,{PARSED_DIGITS}}}(?:\.[0-9]{{1,{PARSED_DIGITS}}})?")
    fits = f"[+-]?0*[0-9]{{1,{whole}}}" if whole else "[+-]?0+"
    spelled = null_unless(dialect.matches_all(spelled, rf"{fits}(?:\..*)?"), spelled)
    # One more digit, because rounding may carry.
    number = spelled.cast(dt.Decimal(dtype.precision + 1, dtype.scale))
    return null_unless(number.abs() < ibis.literal(10**whole, dt.Decimal(whole + 1, 0)), number).cast(dtype)


def read_time(dialect: Dialect, text: ir.Value, dtype: str) -> ir.Value:
    """Read a date or timestamp in ISO spelling."""
    spelled = DATE_PATTERN if dtype == "date" else TIMESTAMP_PATTERN
    return _trimmed_if_matching(dialect, text, spelled).cast(dtype)


def _trimmed_if_matching(dialect: Dialect, text: ir.Value, spelled: str) -> ir.Value:
    """Return a text without surrounding spaces if a pattern matches the whole of it, else NULL."""
    trimmed = dialect.trim(text, " ", "BOTH")
    return null_unless(dialect.matches_all(trimmed, spelled), trimmed)


def parse_format(text: str) -> list[str]:
    """Split a format into directives and single characters."""
    tokens = re.findall(r"(?s)%.?|[^%]", text)
    unknown = [token for token in tokens if token[0] == "%" and token != "%%" and token not in DIRECTIVES]
    if unknown:
        allowed = ", ".join([*DIRECTIVES, "%%"])
        raise RefusedError("format", f"has the format {text!r} with {unknown[0]!r}", f"allowed are {allowed}")
    return ["%" if token == "%%" else token for token in tokens]


def strptime(dialect: Dialect, text: ir.Value, tokens: list[str]) -> ir.Value:
    """Read a timestamp in a given format; NULL if the text does not have the format or the time does not exist."""
    pattern, plain = "", ""
    groups: dict[str, tuple[str, int]] = {}
    for index, token in enumerate(tokens):
        if token not in DIRECTIVES:
            pattern, plain = pattern + escaped(token), plain + escaped(token)
            continue
        part, spelled, _ = DIRECTIVES[token]
        neighbours = tokens[max(index - 1, 0) : index] + tokens[index + 1 : index + 2]
        if any(other in DIRECTIVES or other.isdigit() for other in neighbours):
            spelled = spelled.replace("{1,2}", "{2}")  # otherwise the end of the first number would be ambiguous
        groups[part] = (token, len(groups) + 1)
        pattern, plain = f"{pattern}({spelled})", plain + spelled
    whole = _trimmed_if_matching(dialect, text, plain)
    parts = {part: ibis.literal(default) for part, default in _DEFAULTS.items()}
    for part, (token, group) in groups.items():
        parts[part] = _iso_part(dialect.replace_groups(whole, pattern, group), token)
    day = parts["year"].concat("-", parts["month"], "-", parts["day"])
    return read_time(dialect, day.concat(" ", parts["hour"], ":", parts["minute"], ":", parts["second"]), "timestamp")


def _iso_part(text: ir.Value, token: str) -> ir.Value:
    """Return a part of a time in ISO format."""
    if token == "%Y":
        return text
    if token == "%y":
        return ibis.ifelse(text.cast("int64") < 69, ibis.literal("20"), ibis.literal("19")).concat(text)
    if token == "%b":
        names = [(lower(text) == name.lower(), f"{month:02}") for month, name in enumerate(MONTHS, 1)]
        return ibis.cases(*names, else_=ibis.null("string"))
    return ibis.literal("0").concat(text).right(2)


def strftime(dialect: Dialect, when: ir.Value, tokens: list[str]) -> ir.Value:
    """Write a date or timestamp in a given format; NULL for years outside 1 to 9999."""
    text = ibis.literal("").concat(*(_formatted_part(dialect, when, token) for token in tokens))
    return null_unless(dialect.part(when, "year").between(1, 9999), text)


def _formatted_part(dialect: Dialect, when: ir.Value, token: str) -> Any:
    if token not in DIRECTIVES:
        return ibis.literal(token)
    part = DIRECTIVES[token][0]
    if when.type().is_date() and part in ("hour", "minute", "second"):
        return ibis.literal("00")
    number = dialect.part(when, part)
    if token == "%b":
        return ibis.cases(*((number == month, name) for month, name in enumerate(MONTHS, 1)), else_=ibis.null("string"))
    return ibis.literal("0000").concat(number.cast("string")).right(4 if token == "%Y" else 2)


def quarter(dialect: Dialect, when: ir.Value) -> ir.Value:
    """Return the quarter of a date, 1 to 4."""
    month = dialect.part(when, "month")
    return ibis.cases((month <= 3, 1), (month <= 6, 2), (month <= 9, 3), (month <= 12, 4), else_=ibis.null("int32"))


def date_trunc(dialect: Dialect, when: ir.Value, unit: str) -> ir.Value:
    """Return the first day of the year, quarter, month or week (from Monday) of a time, as a date."""
    if unit in ("day", "week"):
        day = when.cast("date")
        return forced_cast(day.truncate("W"), "date") if unit == "week" else day
    first, year = ibis.literal(1, "int32"), dialect.part(when, "year")
    if unit == "year":
        return ibis.date(year, first, first)
    month = dialect.part(when, "month") if unit == "month" else quarter(dialect, when) * 3 - 2
    return ibis.date(year, month.cast("int32"), first)


COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
VALUE_KINDS = {"text", "number", "boolean", "date", "timestamp"}
COMMON_INTEGERS = "use smallint, integer or bigint"
ALLOWED_CASTS = "docs/sql.md lists the casts that are allowed"
ROUNDINGS = {"round": nearest, "floor": floor, "ceil": ceil}


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
    found = iso_literal(text)
    if found is None or (isinstance(found, datetime) and not stamped):
        wanted, example = ("timestamp", "'2022-01-31 12:00:00'") if stamped else ("date", "'2022-01-31'")
        raise RefusedError(
            "clock",
            f"uses {text!r} as a {wanted}, which may depend on the clock or on the engine",
            f"write an ISO literal such as {example}",
        )
    return ibis.literal(found, "timestamp" if stamped else "date")


def decimal_literal(number: Decimal) -> ir.Value:
    """Return a decimal literal whose type has exactly its digits; without a type, engines would round it."""
    whole, scale = len(str(abs(int(number)))), max(0, -int(number.as_tuple().exponent))
    if whole + scale > MOST_DIGITS:
        raise RefusedError(
            "digits", f"has the number {number}, which has more than {MOST_DIGITS} digits", "write a shorter one"
        )
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
        quotes = "write text in single quotes, as in '01003', or " if {"text", "number"} == kinds else ""
        problem = f"mixes values of type {' and '.join(sorted(kinds))}"
        raise RefusedError("mixed-types", problem, f"{quotes}cast them to one type")
    if not kinds <= VALUE_KINDS:
        raise RefusedError(
            "unsupported",
            f"uses values of type {', '.join(kinds)}, which not every engine has",
            "cast them to another type",
        )
    if kinds != {"number"}:
        return list(values)
    values = to_floats_if_any(values)
    return _side_by_side(values) if compared else to_one_number_type(values)


def _as_time(value: ir.Value, stamped: bool) -> ir.Value:
    literal = value.op()
    if not isinstance(literal, ops.Literal):
        raise RefusedError("text-as-time", "uses text as a date or timestamp", "convert it with try_cast or strptime")
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
        raise RefusedError(
            "text-order", "takes the largest or smallest of texts, which engines order differently", "use case and <"
        )
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
            "not-integers",
            f"uses // or % on {left.type()} and {right.type()}, but they need integers",
            "use floor(x / y) for others",
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
    return null_unless(number >= 0, number).sqrt()


def cast(value: ir.Value, to: dt.DataType) -> ir.Value:
    """Cast a value to a type, or raise if engines disagree about the cast."""
    was, kind = value.type(), kind_of(value)
    if was == to or (kind == "text" and to.is_string()):
        return value
    if to.is_integer() and not is_common_integer(to):
        raise RefusedError("integer-type", f"casts to {to}, which not every engine has", COMMON_INTEGERS)
    if kind == "null":
        return ibis.null(to)
    if kind == "text":
        raise RefusedError("cast", f"casts text to {to}, which engines do differently", "use try_cast")
    if kind in ("date", "timestamp"):
        return _cast_time(value, to)
    if kind == "boolean" and to.is_integer():
        return ibis.cases((value, 1), (~value, 0), else_=ibis.null("int8")).cast(to)
    if is_integer(value):
        return _cast_integer(value, to)
    if kind == "number" and to.is_float64():
        return as_float(value)
    if kind == "number" and to.is_integer():
        raise RefusedError(
            "cast", f"casts {was} to {to}, which engines round differently", "use round(x), floor(x) or ceil(x)"
        )
    raise RefusedError("cast", f"casts {was} to {to}, which differs by engine", ALLOWED_CASTS)


def _cast_time(value: ir.Value, to: dt.DataType) -> ir.Value:
    if to.is_date():
        return value.cast("date")
    if to.is_timestamp() and to.timezone is None:
        return value.cast("timestamp")
    raise RefusedError("cast", f"casts {value.type()} to {to}, which engines do differently", "use strftime")


def _cast_integer(value: ir.Value, to: dt.DataType) -> ir.Value:
    if to.is_integer() or to.is_float64() or to.is_string():
        return value.cast(to)  # an integer that does not fit in fewer bits is an error
    if to.is_boolean():
        return value != 0
    sized = to.is_decimal() and to.scale is not None and to.precision <= MOST_DIGITS
    if sized and to.precision - to.scale >= 19:
        return value.cast(to)
    raise RefusedError("cast", f"casts {value.type()} to {to}, which differs by engine", ALLOWED_CASTS)
