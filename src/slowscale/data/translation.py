"""The translation of parsed SQL text into Ibis, with one meaning on every engine.

`Translator` has one method for each kind of syntax that needs more than an operation of Ibis. The syntax that is
allowed is listed in `sql`. Where engines disagree (casts of text, rounding, integer division, dates), `values`,
`functions` and the dialect of the engine give the translation one meaning.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.types as ir
import sqlglot.expressions as sg

from slowscale.data import values
from slowscale.data.conversion import MOST_DIGITS, listed_columns
from slowscale.data.dialects import (
    Dialect,
    Pattern,
    RefusedError,
    compile_pattern,
    is_null,
    many_rows,
    nondeterministic,
)
from slowscale.data.values import kind_of

MANY_ROWS = {
    "a subquery": (sg.Select, sg.Subquery, sg.Exists, sg.SetOperation),
    "a window function": (sg.Window,),
    "an aggregate": (sg.AggFunc,),
}
NONDETERMINISTIC_NODES = (sg.Rand, sg.Randn, sg.Uuid, sg.CurrentTimestamp, sg.CurrentDate)
LONGEST_PADDING = 10_000
COMPARISON_SIGNS = {sg.EQ: "=", sg.NEQ: "<>", sg.LT: "<", sg.LTE: "<=", sg.GT: ">", sg.GTE: ">="}
_ROUNDINGS = {sg.Round: "round", sg.Floor: "floor", sg.Ceil: "ceil"}


@dataclass(frozen=True)
class Rule:
    """How one kind of syntax is translated.

    Attributes
    ----------
    translate
        Returns the Ibis value of a node, given the translator.
    understood
        The parts of the node that `translate` uses; a node with any other part is refused.
    usage, meaning
        An example and its meaning, for the documentation; empty if another rule documents them.
    """

    translate: "Callable[[Translator, Any], Any]"
    understood: frozenset[str] | set[str]
    usage: str = ""
    meaning: str = ""


def _shown(node: Any) -> str:
    return repr(node.sql(dialect="duckdb"))


def _unknown_syntax(node: Any) -> RefusedError:
    return RefusedError("syntax", f"uses {_shown(node)}, which is not allowed in SQL text", "docs/sql.md lists what is")


class Translator:
    """Translates the nodes of parsed SQL text into Ibis values on the columns of a table.

    Parameters
    ----------
    table
        The table whose columns the text may use.
    dialect
        The dialect of the engine that holds the table.
    rules
        The syntax that is allowed, by the class of its node.
    """

    def __init__(self, table: ir.Table, dialect: Dialect, rules: Mapping[Any, Rule]) -> None:
        self.table = table
        self.dialect = dialect
        self.rules = rules

    # Any expression.
    def value(self, node: Any) -> Any:
        """Return the value of any node, or raise `RefusedError` if its syntax is not allowed."""
        rule = self.rules.get(type(node))
        if rule is None:
            for words, kinds in MANY_ROWS.items():
                if isinstance(node, kinds):
                    raise many_rows(words)
            if isinstance(node, NONDETERMINISTIC_NODES):
                raise nondeterministic()
        elif {name for name, part in node.args.items() if part not in (None, False, [], "")} <= rule.understood:
            return rule.translate(self, node)
        if isinstance(node, sg.In) and node.args.get("query") is not None:
            raise many_rows("a subquery")
        raise _unknown_syntax(node)

    def of_kind(self, node: Any, *allowed: str) -> Any:
        """Return the value of a node that must be of one of the given kinds; NULL is of every kind."""
        value = self.value(node)
        kind = kind_of(value)
        if kind == "null":
            return ibis.null({"text": "string", "number": "int64"}.get(allowed[0], allowed[0]))
        if kind not in allowed:
            raise RefusedError(
                "wrong-type",
                f"uses {_shown(node)}, which is {value.type()}, where a {' or '.join(allowed)} is needed",
                "cast it",
            )
        return value

    def text(self, node: Any) -> Any:
        """Return the value of a node that must be text."""
        return self.of_kind(node, "text")

    def time(self, node: Any) -> Any:
        """Return the value of a node that must be a date or a timestamp."""
        return self.of_kind(node, "date", "timestamp")

    def literal_text(self, node: Any, what: str, empty: bool = False) -> str:
        """Return the text of a node that must be a text in quotes; `what` names its role in the error."""
        if not isinstance(node, sg.Literal) or not node.is_string or not (node.this or empty) or "\0" in node.this:
            raise RefusedError(
                "constant", f"has {_shown(node) if node else 'no text'} as the {what}", "write a text in quotes"
            )
        return str(node.this)

    def to_common_type(self, nodes: Sequence[Any], compared: bool) -> list[Any]:
        """Return values as values of one type, because they are compared or one of them is chosen."""
        if compared and any(isinstance(node, sg.Null) for node in nodes):
            raise RefusedError("null", "compares with NULL, which is never true", "use IS NULL")
        found = _exact_constants(nodes, [self.value(node) for node in nodes])
        return values.to_common_type(found, compared)

    def numbers(self, node: Any) -> list[Any]:
        """Return the two operands of arithmetic."""
        nodes = [node.this, node.expression]
        return values.to_floats_if_any(_exact_constants(nodes, [self.of_kind(part, "number") for part in nodes]))

    # Names and constants.
    def column(self, node: sg.Column) -> Any:
        """Return a column; without quotes, its name is matched without case."""
        name = node.name
        if node.table:
            raise RefusedError("qualified", f"names {node.sql()!r}", "write the name of the column without a table")
        matches = [column for column in self.table.columns if column.lower() == name.lower()]
        if name not in self.table.columns:
            if len(matches) != 1 or node.this.quoted:
                raise RefusedError(
                    "unknown-column", f"names {name!r}, which is not a column", listed_columns(self.table.columns)
                )
            name = matches[0]
        value = self.table[name]
        if value.type().is_timestamp() and value.type().timezone is not None:
            return self.dialect.without_zone(value)
        return value

    def literal(self, node: sg.Literal) -> Any:
        """Return a text or number literal."""
        if node.is_string:
            if "\0" in node.this:
                raise RefusedError(
                    "nul", "has a text with a NUL character, which not every engine can hold", "remove it"
                )
            return ibis.literal(node.this)
        return _number(node.this, negative=False)

    # Logic.
    def compare(self, node: Any) -> Any:
        """Compare two values."""
        left, right = self.to_common_type([node.this, node.expression], compared=True)
        return values.compare(self.dialect, left, right, COMPARISON_SIGNS[type(node)])

    def between(self, node: sg.Between) -> Any:
        """Return whether a value is in a closed range."""
        value, low, high = self.to_common_type([node.this, node.args["low"], node.args["high"]], compared=True)
        return values.compare(self.dialect, value, low, ">=") & values.compare(self.dialect, value, high, "<=")

    def within(self, node: sg.In) -> Any:
        """Return whether a value is among others."""
        value, *items = self.to_common_type([node.this, *node.expressions], compared=True)
        return value.isin(items)

    def is_(self, node: sg.Is) -> Any:
        """Compare with NULL, TRUE or FALSE; the result is never NULL."""
        subject, other = self.value(node.this), node.expression
        if isinstance(other, sg.Null):
            return is_null(subject)
        if not isinstance(other, sg.Boolean) or not subject.type().is_boolean():
            raise RefusedError(
                "is", f"uses {_shown(node)}", "IS must be followed by NULL or, for booleans, by TRUE or FALSE"
            )
        return subject.fill_null(not other.this) == ibis.literal(bool(other.this))

    def case(self, node: sg.Case) -> Any:
        """Return the value of a CASE expression."""
        subject, otherwise = node.args.get("this"), node.args.get("default")
        conditions = []
        for branch in node.args["ifs"]:
            if subject is None:
                conditions.append(self.of_kind(branch.this, "boolean"))
            else:
                value, other = self.to_common_type([subject, branch.this], compared=True)
                conditions.append(value == other)
        return self.chosen(conditions, [branch.args["true"] for branch in node.args["ifs"]], otherwise)

    def if_(self, node: sg.If) -> Any:
        """Return one of two values, depending on a condition."""
        return self.chosen([self.of_kind(node.this, "boolean")], [node.args["true"]], node.args.get("false"))

    def chosen(self, conditions: list[Any], results: list[Any], otherwise: Any) -> Any:
        """Return the result of the first condition that is true, or else the default."""
        *found, last = self.to_common_type([*results, sg.Null() if otherwise is None else otherwise], compared=False)
        return ibis.cases(*zip(conditions, found, strict=True), else_=last)

    def coalesce(self, node: sg.Coalesce) -> Any:
        """Return the first value that is not NULL."""
        return ibis.coalesce(*self.to_common_type([node.this, *node.expressions], compared=False))

    def nullif(self, node: sg.Nullif) -> Any:
        """Return NULL if two values are equal, else the first."""
        value, other = self.to_common_type([node.this, node.expression], compared=True)
        return value.nullif(other)

    def extreme(self, node: Any) -> Any:
        """Return the largest or smallest of several values."""
        found = self.to_common_type([node.this, *node.expressions], compared=False)
        return values.extreme(found, largest=isinstance(node, sg.Greatest))

    # Numbers.
    def arithmetic(self, node: Any) -> Any:
        """Return the result of +, -, *, /, // or %."""
        left, right = self.numbers(node)
        if isinstance(node, sg.Add | sg.Sub):
            return values.add(left, right, minus=isinstance(node, sg.Sub))
        if isinstance(node, sg.IntDiv | sg.Mod):
            return (values.quotient if isinstance(node, sg.IntDiv) else values.remainder)(self.dialect, left, right)
        return (values.multiply if isinstance(node, sg.Mul) else values.divide)(left, right)

    def negative(self, node: sg.Neg) -> Any:
        """Return minus a number."""
        if isinstance(node.this, sg.Literal) and not node.this.is_string:
            return _number(node.this.this, negative=True)
        return values.negative(self.of_kind(node.this, "number"))

    def absolute(self, node: sg.Abs) -> Any:
        """Return a number without its sign."""
        return values.absolute(self.of_kind(node.this, "number"))

    def rounded(self, node: Any) -> Any:
        """Return a number rounded to an integer."""
        return values.rounded(self.of_kind(node.this, "number"), _ROUNDINGS[type(node)])

    def root(self, node: sg.Sqrt) -> Any:
        """Return the square root of a number."""
        return values.root(self.of_kind(node.this, "number"))

    # Text.
    def trim(self, node: sg.Trim) -> Any:
        """Remove characters from the ends of a text."""
        characters = node.args.get("expression")
        chosen = " " if characters is None else self.literal_text(characters, "set of characters")
        return self.dialect.trim(self.text(node.this), chosen, node.args.get("position") or "BOTH")

    def replace(self, node: sg.Replace) -> Any:
        """Replace every occurrence of a text."""
        old = self.literal_text(node.expression, "text to replace")
        new = self.literal_text(node.args["replacement"], "replacement", empty=True)
        return self.text(node.this).replace(old, new)

    def pattern(self, node: Any) -> Pattern:
        """Return a regular expression of the common subset."""
        return compile_pattern(self.literal_text(node, "pattern"))

    def regexp_replace(self, node: sg.RegexpReplace) -> Any:
        """Replace the first match of a pattern, or every match."""
        pattern = self.pattern(node.expression)
        if len(pattern.branches) > 1 or pattern.matches_empty:
            raise RefusedError(
                "pattern-matches",
                f"has the pattern {node.expression.this!r}, for which engines find different "
                "matches: it must not contain | and must match at least one character",
                "replace one alternative after the other",
            )
        flag = node.args.get("modifiers")
        if flag is not None and self.literal_text(flag, "flag") != "g":
            raise RefusedError(
                "flag", f"has the flag {_shown(flag)}", "only 'g' is allowed, which replaces every match"
            )
        new = self.literal_text(node.args["replacement"], "replacement", empty=True)
        if "\\" in new:
            raise RefusedError(
                "backslash",
                "has a backslash in the replacement, where references to groups are not allowed",
                "remove the backslash",
            )
        return self.dialect.regexp_replace(self.text(node.this), pattern, new, every=flag is not None)

    def regexp_matches(self, node: sg.RegexpLike) -> Any:
        """Return whether a pattern is found in a text."""
        return self.dialect.matches(self.text(node.this), self.pattern(node.expression).spelled(self.dialect.name))

    def like(self, node: Any) -> Any:
        """Compare a text with a LIKE or ILIKE pattern."""
        text, pattern = self.text(node.this), self.literal_text(node.expression, "pattern", empty=True)
        if isinstance(node, sg.ILike):
            text, pattern = values.lower(text), values.ascii_lower(pattern)
        matches = self.dialect.like(text, pattern)
        return ~matches if node.args.get("negate") else matches

    def starts_with(self, node: sg.StartsWith) -> Any:
        """Return whether a text starts with another."""
        start = self.literal_text(node.expression, "start", empty=True)
        return self.text(node.this).left(len(start)) == start

    def substring(self, node: sg.Substring) -> Any:
        """Return a part of a text, by position and length."""
        start, length = constant_length(node.args.get("start"), 1), node.args.get("length")
        text = self.text(node.this)
        return text.substr(start - 1) if length is None else text.substr(start - 1, constant_length(length, 0))

    def split_part(self, node: sg.SplitPart) -> Any:
        """Return one of the parts that a separator divides a text into."""
        separator = self.literal_text(node.args["delimiter"], "separator")
        return self.dialect.split_part(self.text(node.this), separator, constant_length(node.args["part_index"], 1))

    def pad(self, node: sg.Pad) -> Any:
        """Pad a text to a length."""
        length, fill = constant_length(node.expression, 0), self.literal_text(node.args.get("fill_pattern"), "fill")
        if length > LONGEST_PADDING:
            raise RefusedError("too-long", f"pads to {length} characters", f"the most is {LONGEST_PADDING}")
        return self.dialect.pad(self.text(node.this), length, fill, bool(node.args.get("is_left")))

    def concat(self, node: sg.Concat) -> Any:
        """Join texts; NULL counts as an empty text."""
        return ibis.literal("").concat(*(self.text(part).fill_null("") for part in node.expressions))

    # Dates and times.
    def format(self, node: Any) -> list[str]:
        """Return the parts of a format for strptime or strftime."""
        return values.parse_format(self.literal_text(node, "format"))

    def strptime(self, text: Any, layout: Any) -> Any:
        """Read a timestamp from a text in a given format."""
        tokens = self.format(layout)
        parts = [values.DIRECTIVES[token][0] for token in tokens if token in values.DIRECTIVES]
        if "year" not in parts or len(set(parts)) < len(parts):
            raise RefusedError(
                "format-parts", f"has the format {_shown(layout)}", "it must have a year, and each part at most once"
            )
        return values.strptime(self.dialect, self.text(text), tokens)

    def anonymous(self, node: sg.Anonymous) -> Any:
        """Translate `try_strptime`, the only allowed function that the parser does not know."""
        if str(node.this).lower() != "try_strptime" or len(node.expressions) != 2:
            raise _unknown_syntax(node)
        return self.strptime(*node.expressions)

    def strftime(self, node: sg.TimeToStr) -> Any:
        """Write a date or timestamp as text in a given format."""
        return values.strftime(self.dialect, self.time(node.this), self.format(node.args["format"]))

    def date_trunc(self, node: sg.TimestampTrunc) -> Any:
        """Return the first day of the period that a date is in."""
        unit = str(node.args["unit"].name).lower()
        if unit not in values.UNITS:
            raise RefusedError("unit", f"truncates to {unit!r}", f"allowed are {', '.join(values.UNITS)}")
        return values.date_trunc(self.dialect, self.time(node.this), unit)

    def date_part(self, unit: str, node: Any) -> Any:
        """Return the year, quarter, month or day of a date."""
        if unit == "quarter":
            return values.quarter(self.dialect, self.time(node))
        if unit not in ("year", "month", "day"):
            raise RefusedError("unit", f"extracts {unit!r}", "allowed are year, quarter, month and day")
        return self.dialect.part(self.time(node), unit)

    # Casts.
    def cast(self, node: sg.Cast) -> Any:
        """Cast a value to another type."""
        value, to = self.value(node.this), _dtype(node.to)
        if isinstance(node.this, sg.Literal) and node.this.is_string and (to.is_date() or to.is_timestamp()):
            return values.time_literal(node.this.this, to.is_timestamp())
        return values.cast(value, to)

    def try_cast(self, node: sg.TryCast) -> Any:
        """Read text as a value of another type; NULL if it is not spelled as one."""
        text, to, dialect = self.text(node.this), _dtype(node.to), self.dialect
        if to.is_integer():
            if not values.is_common_integer(to):
                raise RefusedError(
                    "integer-type", f"has try_cast to {to}, which not every engine has", values.COMMON_INTEGERS
                )
            return values.read_integer(dialect, text, to)
        if to.is_float64():
            return values.read_float(dialect, text)
        if to.is_date() or (to.is_timestamp() and to.timezone is None):
            return values.read_time(dialect, text, "date" if to.is_date() else "timestamp")
        if not to.is_decimal():
            raise RefusedError(
                "cast", f"has try_cast to {to}", "allowed are integers, double, decimal(p, s), date and timestamp"
            )
        if to.precision is None or not to.precision < MOST_DIGITS:
            raise RefusedError("digits", f"has try_cast to {to}", f"give a decimal fewer than {MOST_DIGITS} digits")
        return values.read_decimal(dialect, text, to)


def _dtype(node: Any) -> dt.DataType:
    from ibis.backends.sql.datatypes import DuckDBType

    return DuckDBType.to_ibis(node)


def _number(text: str, negative: bool) -> Any:
    """Return a number literal: a 64-bit integer, or a float."""
    if not text.isdigit():
        return ibis.literal(-float(text) if negative else float(text), "float64")
    number = -int(text) if negative else int(text)
    if not -(2**63) <= number < 2**63:
        raise RefusedError(
            "out-of-range",
            f"has the integer {number}, which does not fit in 64 bits",
            f"write it as a float, such as {number}.0",
        )
    return ibis.literal(number, "int64")


def _constant(node: Any) -> Decimal | None:
    """Return the exact value of a constant such as 1.25 or -1.25, or None for other nodes."""
    negative = isinstance(node, sg.Neg)
    literal = node.this if negative else node
    if not isinstance(literal, sg.Literal) or literal.is_string or "e" in literal.this.lower():
        return None
    return -Decimal(literal.this) if negative else Decimal(literal.this)


def _exact_constants(nodes: Sequence[Any], found: Sequence[Any]) -> list[Any]:
    """Turn constants such as 1.25 into decimals beside integers and decimals; beside floats they stay floats."""
    constants = [_constant(node) for node in nodes]
    others = [value.type() for value, constant in zip(found, constants, strict=True) if constant is None]
    if any(dtype.is_floating() for dtype in others) or not any(dtype.is_numeric() for dtype in others):
        return list(found)
    decimals = any(dtype.is_decimal() for dtype in others)
    return [
        values.decimal_literal(constant) if constant is not None and (decimals or value.type().is_floating()) else value
        for value, constant in zip(found, constants, strict=True)
    ]


def constant_length(node: Any, least: int) -> int:
    """Return a position or length, which must be a constant."""
    if not isinstance(node, sg.Literal) or node.is_string or not node.is_int or int(node.this) < least:
        shown = "nothing" if node is None else node.sql()
        raise RefusedError("position", f"uses the position or length {shown!r}", f"give a whole number >= {least}")
    return int(node.this)
