"""The operations that engines spell or define differently, with one meaning on every engine.

`DIALECTS` has one object per supported engine, whose methods take and return Ibis values. `Dialect` implements what
most engines have in common, and a subclass overrides what its engine does differently.
"""

from functools import cache
from typing import Any

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.operations as ops
import ibis.expr.types as ir

from slowscale.errors import ParameterError
from slowscale.tables import sqlite
from slowscale.tables.regex import END, Pattern

PARTS = ("year", "month", "day", "hour", "minute", "second")
_SIGNATURES = (lambda: None, lambda a: None, lambda a, b: None, lambda a, b, c: None, lambda a, b, c, d: None)


@cache
def _builtin(name: str, types: tuple[str, ...], returns: str) -> Any:
    return ibis.udf.scalar.builtin(_SIGNATURES[len(types)], name=name, signature=(types, returns))


def call(name: str, returns: str, *arguments: Any) -> ir.Value:
    """Call a function of the engine by its name."""
    values = [value if isinstance(value, ir.Value) else ibis.literal(value) for value in arguments]
    return _builtin(name, tuple(str(value.type()) for value in values), returns)(*values)


def forced_cast(value: ir.Value, dtype: str) -> ir.Value:
    """Cast a value on the engine, even if Ibis assumes that it has the type already."""
    return ops.Cast(value, dt.dtype(dtype)).to_expr()


def is_null(value: ir.Value) -> ir.Value:
    """Return whether a value is NULL; Ibis alone would count NaN, too, on Spark."""
    return (value == value).isnull() if value.type().is_floating() else value.isnull()


class Dialect:
    """The operations as DuckDB, PostgreSQL and Spark have them in common."""

    name: str
    # In the replacement of a regular expression: the special characters, and the reference to a group.
    special, group = "\\", "\\{}"
    # Whether a backslash in a LIKE pattern is an escape, so that it must be doubled.
    like_escapes = False
    has_decimals = True

    def prepare(self, table: ir.Table) -> None:
        """Prepare the table's connection, or raise if its settings would change the meaning of expressions."""

    # Text.
    def trim(self, text: ir.Value, characters: str, side: str) -> ir.Value:
        """Remove characters of a set from the "BOTH", "LEADING" or "TRAILING" side."""
        return call({"BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}[side], "string", text, characters)

    def matches(self, text: ir.Value, pattern: str) -> ir.Value:
        """Return whether a pattern in the spelling of this engine is found in a text."""
        return text.re_search(pattern)

    def matches_all(self, text: ir.Value, pattern: str) -> ir.Value:
        """Return whether a pattern matches a whole text."""
        return self.matches(text, rf"\A(?:{pattern}){END[self.name]}")

    def replace_groups(self, text: ir.Value, pattern: str, group: int) -> ir.Value:
        """Return the text that one group of a pattern matched, for texts that match as a whole."""
        return text.re_replace(rf"\A{pattern}{END[self.name]}", self.group.format(group))

    def regexp_replace(self, text: ir.Value, pattern: Pattern, replacement: str, every: bool) -> ir.Value:
        """Replace the first match of a pattern, or every match, by a literal text."""
        literal = self.quoted(replacement)
        if every:
            return text.re_replace(pattern.spelled(self.name), literal)
        return call("regexp_replace", "string", text, pattern.spelled(self.name), literal)

    def quoted(self, replacement: str) -> str:
        """Return a replacement in which the special characters are escaped."""
        for char in self.special:
            replacement = replacement.replace(char, f"\\{char}")
        return replacement

    def like(self, text: ir.Value, pattern: str) -> ir.Value:
        """Compare with a pattern of % and _, in which a backslash is an ordinary character."""
        return text.like(pattern.replace("\\", "\\\\") if self.like_escapes else pattern)

    def split_part(self, text: ir.Value, separator: str, index: int) -> ir.Value:
        """Return the part of a text at an index, counted from 1, or an empty text if there are fewer parts."""
        return call("split_part", "string", text, separator, ibis.literal(index, "int32"))

    def pad(self, text: ir.Value, length: int, fill: str, left: bool) -> ir.Value:
        """Pad a text to a length, or truncate it to that length."""
        return call("lpad" if left else "rpad", "string", text, ibis.literal(length, "int32"), fill)

    def compare_text(self, left: ir.Value, right: ir.Value, sign: str) -> ir.Value:
        """Compare texts by code point, independently of the collation; the sign is one of < <= > >=."""
        return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[sign]

    # Numbers.
    def add(self, left: ir.Value, right: ir.Value) -> ir.Value:
        """Add 64-bit integers. An overflow is an error, here and in the methods below."""
        return left + right

    def subtract(self, left: ir.Value, right: ir.Value) -> ir.Value:
        """Subtract 64-bit integers."""
        return left - right

    def multiply(self, left: ir.Value, right: ir.Value) -> ir.Value:
        """Multiply 64-bit integers."""
        return left * right

    def absolute(self, number: ir.Value) -> ir.Value:
        """Return the absolute value of a 64-bit integer."""
        return number.abs()

    def divide(self, left: ir.Value, right: ir.Value) -> ir.Value:
        """Return the quotient truncated towards zero; NULL if the divisor is 0."""
        return call("divide", "int64", left, right.nullif(ibis.literal(0, "int64")))

    def modulo(self, left: ir.Value, right: ir.Value) -> ir.Value:
        """Return the remainder of `divide`, with the sign of the dividend."""
        # On some engines the smallest integer modulo -1 overflows. The remainder is 0 for both -1 and 1.
        right = ibis.ifelse(right == -1, ibis.literal(1, "int64"), right)
        return call("mod", "int64", left, right.nullif(ibis.literal(0, "int64")))

    def narrow(self, number: ir.Value, dtype: dt.DataType) -> ir.Value:
        """Cast an integer to a type of fewer bits; a value that does not fit is an error."""
        return number.cast(dtype)

    def greatest(self, values: list[ir.Value]) -> ir.Value:
        """Return the largest value, ignoring NULLs."""
        return ibis.greatest(*values)

    def least(self, values: list[ir.Value]) -> ir.Value:
        """Return the smallest value, ignoring NULLs."""
        return ibis.least(*values)

    def text_to_integer(self, text: ir.Value) -> ir.Value:
        """Cast text that is a sign and at most 38 digits."""
        return text.cast("decimal(38, 0)")

    def text_to_float(self, text: ir.Value) -> ir.Value:
        """Cast text that is known to be a number."""
        return text.cast("float64")

    # Dates and times, without a time zone.
    def without_zone(self, when: ir.Value) -> ir.Value:
        """Return a timestamp with a time zone as a timestamp without one, in UTC."""
        return call("timezone", "timestamp", "UTC", when)

    def text_to_time(self, text: ir.Value, dtype: str) -> ir.Value:
        """Cast text that is known to be valid ISO to a date or timestamp."""
        return text.cast(dtype)

    def to_date(self, when: ir.Value) -> ir.Value:
        """Return the day of a timestamp."""
        return when.cast("date")

    def to_timestamp(self, when: ir.Value) -> ir.Value:
        """Return a date as a timestamp at midnight."""
        return when.cast("timestamp")

    def part(self, when: ir.Value, name: str) -> ir.Value:
        """Return one of `PARTS` as an integer."""
        return getattr(when, name)()

    def make_date(self, year: ir.Value, month: ir.Value, day: ir.Value) -> ir.Value:
        """Return a date from its parts."""
        return ibis.date(year, month, day)

    def week(self, when: ir.Value) -> ir.Value:
        """Return the Monday of a date's week."""
        return forced_cast(when.truncate("W"), "date")


class _DuckDB(Dialect):
    name = "duckdb"


class _Postgres(Dialect):
    name = "postgres"
    like_escapes = True

    def matches(self, text: ir.Value, pattern: str) -> ir.Value:
        return call(
            "textregexeq", "boolean", text, pattern
        )  # the function behind ~; regexp_like exists since version 15 only

    def divide(self, left: ir.Value, right: ir.Value) -> ir.Value:
        return call("int8div", "int64", left, right.nullif(ibis.literal(0, "int64")))

    def compare_text(self, left: ir.Value, right: ir.Value, sign: str) -> ir.Value:
        name = {"<": "text_pattern_lt", "<=": "text_pattern_le", ">": "text_pattern_gt", ">=": "text_pattern_ge"}[sign]
        return call(name, "boolean", left, right)


def check_spark(backend: Any) -> None:
    """Raise if a Spark session has settings that change the meaning of expressions.

    Without ANSI mode, overflows wrap around. Ibis sets the time zone to UTC when it connects.
    """
    settings = backend._session.conf
    for name, needed in {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}.items():
        if str(settings.get(name)).lower() != needed.lower():
            raise ParameterError(
                f"the Spark session has {name}={settings.get(name)}, but expressions mean the same as on other engines "
                f'only with {needed}; call spark.conf.set("{name}", "{needed}")'
            )


class _Spark(Dialect):
    name = "pyspark"
    special, group = "\\$", "${}"
    like_escapes = True

    def prepare(self, table: ir.Table) -> None:
        check_spark(table.get_backend())

    def trim(self, text: ir.Value, characters: str, side: str) -> ir.Value:
        if side == "BOTH":
            return super().trim(text, characters, side)
        # In Spark, the set of characters is the first argument.
        return call({"LEADING": "ltrim", "TRAILING": "rtrim"}[side], "string", ibis.literal(characters), text)

    def regexp_replace(self, text: ir.Value, pattern: Pattern, replacement: str, every: bool) -> ir.Value:
        spelled, literal = pattern.spelled(self.name), self.quoted(replacement)
        if every:
            return text.re_replace(spelled, literal)
        # Spark replaces every match, so match the whole text with the first match inside it.
        return text.re_replace(rf"\A([\s\S]*?){spelled}([\s\S]*)\z", f"$1{literal}$2")

    def divide(self, left: ir.Value, right: ir.Value) -> ir.Value:
        return call("div", "int64", left, right.nullif(ibis.literal(0, "int64")))

    def without_zone(self, when: ir.Value) -> ir.Value:
        return forced_cast(when, "timestamp")  # Ibis sets the session's time zone to UTC

    def part(self, when: ir.Value, name: str) -> ir.Value:
        return call(name, "int32", when)  # Ibis gives the seconds as a decimal


class _SQLite(Dialect):
    name = "sqlite"
    has_decimals = False

    def prepare(self, table: ir.Table) -> None:
        sqlite.register(table.get_backend().con)

    def _call_own(self, name: str, returns: str, *arguments: Any) -> ir.Value:
        return call(sqlite.PREFIX + name, returns, *arguments)

    def matches(self, text: ir.Value, pattern: str) -> ir.Value:
        return self._call_own("matches", "boolean", text, pattern)

    def replace_groups(self, text: ir.Value, pattern: str, group: int) -> ir.Value:
        return self._call_own("regexp_replace", "string", text, rf"\A{pattern}\Z", self.group.format(group), 0)

    def regexp_replace(self, text: ir.Value, pattern: Pattern, replacement: str, every: bool) -> ir.Value:
        spelled = pattern.spelled(self.name)
        return self._call_own("regexp_replace", "string", text, spelled, self.quoted(replacement), int(not every))

    def split_part(self, text: ir.Value, separator: str, index: int) -> ir.Value:
        return self._call_own("split_part", "string", text, separator, index)

    def pad(self, text: ir.Value, length: int, fill: str, left: bool) -> ir.Value:
        return self._call_own("lpad" if left else "rpad", "string", text, length, fill)

    def add(self, left: ir.Value, right: ir.Value) -> ir.Value:
        return self._call_own("add", "int64", left, right)

    def subtract(self, left: ir.Value, right: ir.Value) -> ir.Value:
        return self._call_own("subtract", "int64", left, right)

    def multiply(self, left: ir.Value, right: ir.Value) -> ir.Value:
        return self._call_own("multiply", "int64", left, right)

    def absolute(self, number: ir.Value) -> ir.Value:
        return self._call_own("abs", "int64", number)

    def divide(self, left: ir.Value, right: ir.Value) -> ir.Value:
        return self._call_own("divide", "int64", left, right)

    def modulo(self, left: ir.Value, right: ir.Value) -> ir.Value:
        return self._call_own("modulo", "int64", left, right)

    def narrow(self, number: ir.Value, dtype: dt.DataType) -> ir.Value:
        low, high = (ibis.literal(int(bound), "int64") for bound in (dtype.bounds.lower, dtype.bounds.upper))
        return self._call_own("in_range", str(dtype), number, low, high)

    def greatest(self, values: list[ir.Value]) -> ir.Value:
        return ibis.greatest(*_nulls_replaced(values))

    def least(self, values: list[ir.Value]) -> ir.Value:
        return ibis.least(*_nulls_replaced(values))

    def text_to_integer(self, text: ir.Value) -> ir.Value:
        return self._call_own("integer", "int64", text)

    def text_to_float(self, text: ir.Value) -> ir.Value:
        return self._call_own("float", "float64", text)

    def without_zone(self, when: ir.Value) -> ir.Value:
        return when  # stored as text in UTC

    def text_to_time(self, text: ir.Value, dtype: str) -> ir.Value:
        return self._call_own(dtype, dtype, text)

    def to_date(self, when: ir.Value) -> ir.Value:
        return self._call_own("date", "date", when)

    def to_timestamp(self, when: ir.Value) -> ir.Value:
        return self._call_own("timestamp", "timestamp", when)

    def part(self, when: ir.Value, name: str) -> ir.Value:
        return self._call_own(name, "int32", when)

    def make_date(self, year: ir.Value, month: ir.Value, day: ir.Value) -> ir.Value:
        return self._call_own("make_date", "date", year, month, day)

    def week(self, when: ir.Value) -> ir.Value:
        return self._call_own("week", "date", when)


def _nulls_replaced(values: list[ir.Value]) -> list[ir.Value]:
    """Replace each NULL by another of the values, so that greatest and least ignore it."""
    return [ibis.coalesce(value, *values) for value in values]


DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (_DuckDB(), _Postgres(), _Spark(), _SQLite())}
