"""Functions of SQL text that are built from operations which every engine has.

Text is converted by the same rule on every engine: its spelling is checked first, and only text that all engines read
in the same way is cast. Any other text becomes NULL, so that one invalid record cannot stop a release.
"""

import re
import string
from datetime import date, datetime
from typing import Any

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.types as ir

from slowscale.data.dialects import Dialect, forced_cast
from slowscale.data.regex import escaped

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
    """Return a text without surrounding blanks if a pattern matches the whole of it, else NULL."""
    trimmed = dialect.trim(text, " ", "BOTH")
    return null_unless(dialect.matches_all(trimmed, spelled), trimmed)


def parse_format(text: str) -> list[str]:
    """Split a format into directives and single characters; raise `ValueError` for an unknown directive."""
    tokens = re.findall(r"(?s)%.?|[^%]", text)
    unknown = next((token for token in tokens if token[0] == "%" and token != "%%" and token not in DIRECTIVES), None)
    if unknown is not None:
        raise ValueError(unknown)
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
