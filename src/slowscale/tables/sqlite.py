"""Python functions that SQLite calls for operations that it lacks or that other engines define differently.

SQLite turns integer overflows into floats, stores dates as text, and has neither regular expressions nor padding. A
value of the wrong type gives NULL, so that one invalid record does not stop the query.
"""

import re
from collections.abc import Callable
from datetime import date, datetime
from functools import cache
from typing import Any

PREFIX = "slowscale_"


def register(connection: Any) -> None:
    """Register the functions with a sqlite3 connection, only once, because a function in use cannot be replaced."""
    known = "SELECT count(*) FROM pragma_function_list WHERE name = ?"
    if connection.execute(known, [PREFIX + next(reversed(FUNCTIONS))]).fetchone()[0]:
        return
    for name, (function, arguments) in FUNCTIONS.items():
        connection.create_function(PREFIX + name, arguments, function, deterministic=True)


def _null_unless_typed(*types: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function return NULL if an argument is missing or not of its type."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        def checked(*arguments: Any) -> Any:
            if all(isinstance(value, kind) for value, kind in zip(arguments, types, strict=True)):
                return function(*arguments)
            return None

        return checked

    return decorate


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@_null_unless_typed(str, str)
def _matches(text: str, pattern: str) -> bool:
    return _compiled(pattern).search(text) is not None


@_null_unless_typed(str, str, str, int)
def _regexp_replace(text: str, pattern: str, replacement: str, count: int) -> str:
    """Replace matches (all if the count is 0) by a text, in which \\1 is a group and \\\\ a backslash."""
    return _compiled(pattern).sub(replacement, text, count=count)


@_null_unless_typed(str, str, int)
def _split_part(text: str, separator: str, index: int) -> str:
    parts = text.split(separator)
    return parts[index - 1] if index <= len(parts) else ""


@_null_unless_typed(str, int, str)
def _lpad(text: str, length: int, fill: str) -> str:
    missing = length - len(text)
    return text[:length] if missing <= 0 else (fill * missing)[:missing] + text


@_null_unless_typed(str, int, str)
def _rpad(text: str, length: int, fill: str) -> str:
    missing = length - len(text)
    return text[:length] if missing <= 0 else text + (fill * missing)[:missing]


def _check_64_bits(number: int) -> int:
    if not -(2**63) <= number < 2**63:
        raise ArithmeticError("integer overflow")
    return number


@_null_unless_typed(int, int)
def _divide(left: int, right: int) -> int | None:
    if right == 0:
        return None
    quotient = abs(left) // abs(right)
    return _check_64_bits(quotient if (left < 0) == (right < 0) else -quotient)


@_null_unless_typed(int, int)
def _modulo(left: int, right: int) -> int | None:
    if right == 0:
        return None
    return abs(left) % abs(right) * (-1 if left < 0 else 1)


@_null_unless_typed(int, int, int)
def _in_range(number: int, low: int, high: int) -> int:
    if not low <= number <= high:
        raise ArithmeticError("integer overflow")
    return number


@_null_unless_typed(str)
def _integer(text: str) -> int | None:
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


@_null_unless_typed(str)
def _timestamp(text: str) -> str | None:
    when = _parse_time(text)
    return None if when is None else when.isoformat(" ")


def _part(name: str) -> Callable[[Any], int | None]:
    def extract(text: Any) -> int | None:
        when = _parse_time(text)
        return None if when is None else int(getattr(when, name))

    return extract


def _parse_time(text: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None


def _date(text: Any) -> str | None:
    when = _parse_time(text)
    return None if when is None else when.date().isoformat()


def _week(text: Any) -> str | None:
    when = _parse_time(text)
    return None if when is None else date.fromordinal(when.toordinal() - when.weekday()).isoformat()


@_null_unless_typed(int, int, int)
def _make_date(year: int, month: int, day: int) -> str:
    return date(year, month, day).isoformat()


FUNCTIONS: dict[str, tuple[Callable[..., Any], int]] = {
    "matches": (_matches, 2),
    "regexp_replace": (_regexp_replace, 4),
    "split_part": (_split_part, 3),
    "lpad": (_lpad, 3),
    "rpad": (_rpad, 3),
    "add": (_null_unless_typed(int, int)(lambda left, right: _check_64_bits(left + right)), 2),
    "subtract": (_null_unless_typed(int, int)(lambda left, right: _check_64_bits(left - right)), 2),
    "multiply": (_null_unless_typed(int, int)(lambda left, right: _check_64_bits(left * right)), 2),
    "abs": (_null_unless_typed(int)(lambda number: _check_64_bits(abs(number))), 1),
    "divide": (_divide, 2),
    "modulo": (_modulo, 2),
    "in_range": (_in_range, 3),
    "integer": (_integer, 1),
    "float": (_null_unless_typed(str)(float), 1),
    "date": (_date, 1),
    "week": (_week, 1),
    "make_date": (_make_date, 3),
    "timestamp": (_timestamp, 1),
    **{name: (_part(name), 1) for name in ("year", "month", "day", "hour", "minute", "second")},
}
