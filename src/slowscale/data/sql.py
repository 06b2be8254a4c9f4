"""SQL text for filters and derived columns, turned into Ibis so that it means the same on every engine.

The text is in DuckDB's dialect. Each method of `_Translator` translates one kind of syntax: an expression on a single
row. Its rule lists the parts of the syntax that it understands and its usage, and its docstring says what it means;
docs/sql.md is generated from both. Anything without a rule is refused. Where engines disagree (casts of text, rounding,
integer division, dates), `values` and the dialect of the engine give the translation one meaning.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.types as ir
import sqlglot
import sqlglot.expressions as sg

from slowscale.core.errors import ParameterError
from slowscale.data import values
from slowscale.data.conversion import MOST_DIGITS, listed_columns
from slowscale.data.dialects import (
    DIALECTS,
    Dialect,
    Pattern,
    RefusedError,
    compile_pattern,
    is_null,
    many_rows,
    nondeterministic,
)
from slowscale.data.engines import engine_of
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
_REMARK_OVERFLOW = "An integer overflow is an error on every engine."


@dataclass(frozen=True)
class Rule:
    """How one kind of syntax is translated.

    Attributes
    ----------
    translate
        Returns the Ibis value of a node, given the translator.
    parts
        The parts of the node that `translate` uses; a node with any other part is refused.
    section, usage, meaning
        The section of the documentation, an example and its meaning: the docstring of `translate`, unless it has
        several rules. Empty if another rule documents them.
    """

    translate: "Callable[[_Translator, Any], Any]"
    parts: frozenset[str]
    section: str
    usage: str
    meaning: str


_RULES: dict[Any, Rule] = {}


def _rule(section: str, *kinds: Any, parts: str, usage: str = "", meaning: str = "") -> Callable[[Any], Any]:
    """Register a method as the translation of some kinds of nodes; of several rules, the lowest comes first."""

    def register(translate: Any) -> Any:
        words = meaning or " ".join((translate.__doc__ or "").split())
        _RULES.update(dict.fromkeys(kinds, Rule(translate, frozenset(parts.split()), section, usage, words)))
        return translate

    return register


_constant_rule = partial(_rule, "Columns and constants")
_condition = partial(_rule, "Conditions")
_number_rule = partial(_rule, "Numbers")
_text_rule = partial(_rule, "Text")
_time_rule = partial(_rule, "Dates and times")
_cast_rule = partial(_rule, "Casts")


def _shown(node: Any) -> str:
    return repr(node.sql(dialect="duckdb"))


def _unknown_syntax(node: Any) -> RefusedError:
    return RefusedError("syntax", f"uses {_shown(node)}, which is not allowed in SQL text", "docs/sql.md lists what is")


class _Translator:
    """Translates the nodes of parsed SQL text into Ibis values on the columns of a table."""

    def __init__(self, table: ir.Table, dialect: Dialect) -> None:
        self.table = table
        self.dialect = dialect

    def value(self, node: Any) -> Any:
        """Return the value of any node, or raise `RefusedError` if its syntax is not allowed."""
        rule = _RULES.get(type(node))
        if rule is None:
            for words, kinds in MANY_ROWS.items():
                if isinstance(node, kinds):
                    raise many_rows(words)
            if isinstance(node, NONDETERMINISTIC_NODES):
                raise nondeterministic()
        elif {name for name, part in node.args.items() if part not in (None, False, [], "")} <= rule.parts:
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

    def chosen(self, conditions: list[Any], results: list[Any], otherwise: Any) -> Any:
        """Return the result of the first condition that is true, or else the default."""
        *found, last = self.to_common_type([*results, sg.Null() if otherwise is None else otherwise], compared=False)
        return ibis.cases(*zip(conditions, found, strict=True), else_=last)

    def pattern(self, node: Any) -> Pattern:
        """Return a regular expression of the common subset."""
        return compile_pattern(self.literal_text(node, "pattern"))

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

    def date_part(self, unit: str, node: Any) -> Any:
        """Return the year, quarter, month or day of a date."""
        if unit == "quarter":
            return values.quarter(self.dialect, self.time(node))
        if unit not in ("year", "month", "day"):
            raise RefusedError("unit", f"extracts {unit!r}", "allowed are year, quarter, month and day")
        return self.dialect.part(self.time(node), unit)

    # Columns and constants.

    @_constant_rule(sg.Column, parts="this table", usage='county, "County"')
    def column(self, node: sg.Column) -> Any:
        """A column. Without quotes, case does not matter. A timestamp with a time zone is read in UTC."""
        name = node.name
        if node.table:
            raise RefusedError("qualified", f"names {node.sql()!r}", "write the name of the column without a table")
        matches = [column for column in self.table.columns if column.lower() == name.lower()]
        if name not in self.table.columns:
            if len(matches) != 1 or node.this.quoted:
                raise RefusedError(
                    "unknown-column",
                    f"names {name!r}, which is not a column",
                    ("text is in single quotes, and " if node.this.quoted else "")
                    + listed_columns(self.table.columns, name),
                )
            name = matches[0]
        value = self.table[name]
        if value.type().is_timestamp() and value.type().timezone is not None:
            return self.dialect.without_zone(value)
        return value

    @_constant_rule(sg.Literal, parts="this is_string", usage="5, 1.25, 2.5e3, 'text'")
    def literal(self, node: sg.Literal) -> Any:
        """Integers of 64 bits, other numbers, and text. 1.25 is an exact decimal beside integers and decimals, and
        otherwise a float.
        """
        if node.is_string:
            if "\0" in node.this:
                raise RefusedError(
                    "nul", "has a text with a NUL character, which not every engine can hold", "remove it"
                )
            return ibis.literal(node.this)
        return _number(node.this, negative=False)

    @_constant_rule(sg.Boolean, parts="this", usage="true, false")
    def boolean(self, node: Any) -> Any:
        """Booleans."""
        return ibis.literal(bool(node.this))

    @_constant_rule(sg.Null, parts="", usage="null")
    def null(self, node: Any) -> Any:
        """A missing value."""
        return ibis.null()

    @_constant_rule(sg.Paren, parts="this", usage="(x)")
    def paren(self, node: Any) -> Any:
        """Parentheses."""
        return self.value(node.this)

    # Conditions.

    @_condition(*COMPARISON_SIGNS, parts="this expression", usage="x = y, <>, <, <=, >, >=")
    def compare(self, node: Any) -> Any:
        """Compares values of one kind. Text is ordered by code point. Beside a date or timestamp, text must be an ISO
        literal such as '2022-01-31' or '2022-01-31 12:00:00'.
        """
        left, right = self.to_common_type([node.this, node.expression], compared=True)
        return values.compare(self.dialect, left, right, COMPARISON_SIGNS[type(node)])

    @_condition(sg.Between, parts="this low high", usage="x between low and high")
    def between(self, node: sg.Between) -> Any:
        """Whether low <= x and x <= high."""
        value, low, high = self.to_common_type([node.this, node.args["low"], node.args["high"]], compared=True)
        return values.compare(self.dialect, value, low, ">=") & values.compare(self.dialect, value, high, "<=")

    @_condition(sg.In, parts="this expressions", usage="x in (a, b, …)")
    def within(self, node: sg.In) -> Any:
        """Whether x equals one of the values."""
        value, *items = self.to_common_type([node.this, *node.expressions], compared=True)
        return value.isin(items)

    @_condition(sg.Is, parts="this expression", usage="x is null, x is true")
    def is_(self, node: sg.Is) -> Any:
        """True or false, never NULL; also `is false` and `is not`."""
        subject, other = self.value(node.this), node.expression
        if isinstance(other, sg.Null):
            return is_null(subject)
        if not isinstance(other, sg.Boolean) or not subject.type().is_boolean():
            raise RefusedError(
                "is", f"uses {_shown(node)}", "IS must be followed by NULL or, for booleans, by TRUE or FALSE"
            )
        return subject.fill_null(not other.this) == ibis.literal(bool(other.this))

    @_condition(sg.And, parts="this expression", usage="a and b, a or b, not a")
    def and_(self, node: Any) -> Any:
        """Logic with NULL as a third value, as usual in SQL."""
        return self.of_kind(node.this, "boolean") & self.of_kind(node.expression, "boolean")

    @_condition(sg.Or, parts="this expression")
    def or_(self, node: Any) -> Any:
        return self.of_kind(node.this, "boolean") | self.of_kind(node.expression, "boolean")

    @_condition(sg.Not, parts="this")
    def not_(self, node: Any) -> Any:
        return ~self.of_kind(node.this, "boolean")

    @_condition(sg.Case, parts="this ifs default", usage="case when a then x else y end")
    def case(self, node: sg.Case) -> Any:
        """The value of the first condition that is true; also `case x when 1 then …`."""
        subject, otherwise = node.args.get("this"), node.args.get("default")
        conditions = []
        for branch in node.args["ifs"]:
            if subject is None:
                conditions.append(self.of_kind(branch.this, "boolean"))
            else:
                value, other = self.to_common_type([subject, branch.this], compared=True)
                conditions.append(value == other)
        return self.chosen(conditions, [branch.args["true"] for branch in node.args["ifs"]], otherwise)

    @_condition(sg.If, parts="this true false", usage="if(a, x, y)")
    def if_(self, node: sg.If) -> Any:
        """x if the condition is true, else y."""
        return self.chosen([self.of_kind(node.this, "boolean")], [node.args["true"]], node.args.get("false"))

    @_condition(sg.Coalesce, parts="this expressions", usage="coalesce(x, y, …)")
    def coalesce(self, node: sg.Coalesce) -> Any:
        """The first value that is not NULL."""
        return ibis.coalesce(*self.to_common_type([node.this, *node.expressions], compared=False))

    @_condition(sg.Nullif, parts="this expression", usage="nullif(x, y)")
    def nullif(self, node: sg.Nullif) -> Any:
        """NULL if x equals y, else x."""
        value, other = self.to_common_type([node.this, node.expression], compared=True)
        return value.nullif(other)

    @_condition(sg.Greatest, sg.Least, parts="this expressions ignore_nulls", usage="greatest(x, y, …), least(x, y, …)")
    def extreme(self, node: Any) -> Any:
        """The largest and smallest number or date. NULLs are ignored."""
        found = self.to_common_type([node.this, *node.expressions], compared=False)
        return values.extreme(found, largest=isinstance(node, sg.Greatest))

    # Numbers.

    @_number_rule(
        sg.Mod,
        parts="this expression",
        usage="x % y, mod(x, y)",
        meaning="The remainder of integers, with the sign of x: -7 % 2 is -1. Division by zero is NULL.",
    )
    @_number_rule(
        sg.IntDiv,
        parts="this expression",
        usage="x // y",
        meaning="The quotient of integers, truncated towards zero: -7 // 2 is -3. Division by zero is NULL.",
    )
    @_number_rule(
        sg.Div,
        parts="this expression",
        usage="x / y",
        meaning="The quotient as a float, also of integers. Division by zero is NULL.",
    )
    @_number_rule(
        sg.Mul,
        parts="this expression",
        usage="x * y",
        meaning=f"Exact for integers; other numbers are multiplied as floats. {_REMARK_OVERFLOW}",
    )
    @_number_rule(
        sg.Add,
        sg.Sub,
        parts="this expression",
        usage="x + y, x - y",
        meaning=f"Exact for integers, and for decimals of up to 37 digits. {_REMARK_OVERFLOW}",
    )
    def arithmetic(self, node: Any) -> Any:
        left, right = self.numbers(node)
        if isinstance(node, sg.Add | sg.Sub):
            return values.add(left, right, minus=isinstance(node, sg.Sub))
        if isinstance(node, sg.IntDiv | sg.Mod):
            return (values.quotient if isinstance(node, sg.IntDiv) else values.remainder)(self.dialect, left, right)
        return (values.multiply if isinstance(node, sg.Mul) else values.divide)(left, right)

    @_number_rule(sg.Neg, parts="this", usage="-x, abs(x)")
    def negative(self, node: sg.Neg) -> Any:
        """Minus x, and x without its sign. An integer overflow is an error on every engine."""
        if isinstance(node.this, sg.Literal) and not node.this.is_string:
            return _number(node.this.this, negative=True)
        return values.negative(self.of_kind(node.this, "number"))

    @_number_rule(sg.Abs, parts="this")
    def absolute(self, node: sg.Abs) -> Any:
        return values.absolute(self.of_kind(node.this, "number"))

    @_number_rule(sg.Round, sg.Floor, sg.Ceil, parts="this", usage="round(x), floor(x), ceil(x)")
    def rounded(self, node: Any) -> Any:
        """An integer: the nearest (halves away from zero), the next below, the next above. NULL beyond 64 bits."""
        return values.rounded(self.of_kind(node.this, "number"), _ROUNDINGS[type(node)])

    @_number_rule(sg.Sqrt, parts="this", usage="sqrt(x)")
    def root(self, node: sg.Sqrt) -> Any:
        """The square root as a float; NULL for a negative number."""
        return values.root(self.of_kind(node.this, "number"))

    # Text.

    @_text_rule(sg.Trim, parts="this expression position", usage="trim(s), ltrim(s), rtrim(s)")
    def trim(self, node: sg.Trim) -> Any:
        """Removes blanks (U+0020 only) at both ends, at the left, at the right. `trim(s, 'xy')` removes the characters
        x and y instead.
        """
        characters = node.args.get("expression")
        chosen = " " if characters is None else self.literal_text(characters, "set of characters")
        return self.dialect.trim(self.text(node.this), chosen, node.args.get("position") or "BOTH")

    @_text_rule(sg.Replace, parts="this expression replacement", usage="replace(s, 'old', 'new')")
    def replace(self, node: sg.Replace) -> Any:
        """Replaces every occurrence of a text."""
        old = self.literal_text(node.expression, "text to replace")
        new = self.literal_text(node.args["replacement"], "replacement", empty=True)
        return self.text(node.this).replace(old, new)

    @_text_rule(
        sg.RegexpReplace,
        parts="this expression replacement modifiers single_replace",
        usage="regexp_replace(s, 'pattern', 'new' [, 'g'])",
    )
    def regexp_replace(self, node: sg.RegexpReplace) -> Any:
        """Replaces the first match of a pattern, or with 'g' every match. See below for patterns."""
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

    @_text_rule(sg.RegexpLike, parts="this expression", usage="regexp_matches(s, 'pattern')")
    def regexp_matches(self, node: sg.RegexpLike) -> Any:
        """Whether a pattern is found in the text. Here | may separate alternatives."""
        return self.dialect.matches(self.text(node.this), self.pattern(node.expression).spelled(self.dialect.name))

    @_text_rule(sg.Like, sg.ILike, parts="this expression negate", usage="s like 'pattern', s ilike 'pattern'")
    def like(self, node: Any) -> Any:
        """% stands for any characters, _ for one; a backslash stands for itself. `ilike` takes A to Z and a to z as
        equal, and no other letters.
        """
        text, pattern = self.text(node.this), self.literal_text(node.expression, "pattern", empty=True)
        if isinstance(node, sg.ILike):
            text, pattern = values.lower(text), values.ascii_lower(pattern)
        matches = self.dialect.like(text, pattern)
        return ~matches if node.args.get("negate") else matches

    @_text_rule(sg.StartsWith, parts="this expression", usage="starts_with(s, 'start')")
    def starts_with(self, node: sg.StartsWith) -> Any:
        """Whether the text begins with another."""
        start = self.literal_text(node.expression, "start", empty=True)
        return self.text(node.this).left(len(start)) == start

    @_text_rule(sg.Upper, parts="this", usage="upper(s), lower(s)")
    def upper(self, node: Any) -> Any:
        """Changes the letters a to z to A to Z, or back. Other letters stay: engines change them differently."""
        return values.upper(self.text(node.this))

    @_text_rule(sg.Lower, parts="this")
    def lower(self, node: Any) -> Any:
        return values.lower(self.text(node.this))

    @_text_rule(sg.Length, parts="this", usage="length(s)")
    def length(self, node: Any) -> Any:
        """The number of code points."""
        return self.text(node.this).length()

    @_text_rule(sg.Substring, parts="this start length", usage="substr(s, start [, length])")
    def substring(self, node: sg.Substring) -> Any:
        """Code points from a position, counted from 1. Both numbers are constants."""
        start, length = constant_length(node.args.get("start"), 1), node.args.get("length")
        text = self.text(node.this)
        return text.substr(start - 1) if length is None else text.substr(start - 1, constant_length(length, 0))

    @_text_rule(sg.Left, parts="this expression", usage="left(s, n), right(s, n)")
    def left(self, node: Any) -> Any:
        """The first and last n code points; n is a constant."""
        return self.text(node.this).left(constant_length(node.expression, 0))

    @_text_rule(sg.Right, parts="this expression")
    def right(self, node: Any) -> Any:
        return self.text(node.this).right(constant_length(node.expression, 0))

    @_text_rule(sg.SplitPart, parts="this delimiter part_index", usage="split_part(s, 'separator', n)")
    def split_part(self, node: sg.SplitPart) -> Any:
        """The nth part, counted from 1; an empty text if there are fewer."""
        separator = self.literal_text(node.args["delimiter"], "separator")
        return self.dialect.split_part(self.text(node.this), separator, constant_length(node.args["part_index"], 1))

    @_text_rule(sg.Pad, parts="this expression fill_pattern is_left", usage="lpad(s, n, 'fill'), rpad(s, n, 'fill')")
    def pad(self, node: sg.Pad) -> Any:
        """Pads the text to n code points at the left or right. Longer text is truncated to its first n."""
        length, fill = constant_length(node.expression, 0), self.literal_text(node.args.get("fill_pattern"), "fill")
        if length > LONGEST_PADDING:
            raise RefusedError("too-long", f"pads to {length} characters", f"the most is {LONGEST_PADDING}")
        return self.dialect.pad(self.text(node.this), length, fill, bool(node.args.get("is_left")))

    @_text_rule(sg.DPipe, parts="this expression safe", usage="s || t")
    def dpipe(self, node: Any) -> Any:
        """Joins two texts; NULL if one is NULL."""
        return self.text(node.this).concat(self.text(node.expression))

    @_text_rule(sg.Concat, parts="expressions safe coalesce", usage="concat(s, t, …)")
    def concat(self, node: sg.Concat) -> Any:
        """Joins texts; NULL counts as empty."""
        return ibis.literal("").concat(*(self.text(part).fill_null("") for part in node.expressions))

    # Dates and times.

    @_time_rule(sg.Year, sg.Quarter, sg.Month, sg.Day, parts="this", usage="year(d), quarter(d), month(d), day(d)")
    def calendar_part(self, node: Any) -> Any:
        """Parts of a date or timestamp; also `extract(year from d)`."""
        return self.date_part(node.key, node.this)

    @_time_rule(sg.Extract, parts="this expression")
    def extract(self, node: Any) -> Any:
        return self.date_part(str(node.this.name).lower(), node.expression)

    @_time_rule(sg.TimestampTrunc, parts="this unit", usage="date_trunc('month', d)")
    def date_trunc(self, node: sg.TimestampTrunc) -> Any:
        """The first day of the year, quarter, month or week (from Monday), or the day itself. Always a date."""
        unit = str(node.args["unit"].name).lower()
        if unit not in values.UNITS:
            raise RefusedError("unit", f"truncates to {unit!r}", f"allowed are {', '.join(values.UNITS)}")
        return values.date_trunc(self.dialect, self.time(node.this), unit)

    @_time_rule(sg.StrToTime, parts="this format", usage="strptime(s, '%d/%m/%Y')")
    def strtotime(self, node: Any) -> Any:
        """Reads a timestamp from text in a format; also `try_strptime`. Text in another format becomes NULL, whereas
        DuckDB's own strptime fails. Surrounding spaces are ignored. See below for formats.
        """
        return self.strptime(node.this, node.args["format"])

    @_time_rule(sg.Anonymous, parts="this expressions")
    def anonymous(self, node: sg.Anonymous) -> Any:
        if str(node.this).lower() != "try_strptime" or len(node.expressions) != 2:
            raise _unknown_syntax(node)
        return self.strptime(*node.expressions)

    @_time_rule(sg.TimeToStr, parts="this format", usage="strftime(d, '%Y-%m')")
    def strftime(self, node: sg.TimeToStr) -> Any:
        """Writes a date or timestamp as text, with numbers padded by zeros."""
        return values.strftime(self.dialect, self.time(node.this), self.format(node.args["format"]))

    # Casts.

    @_cast_rule(sg.Cast, parts="this to", usage="cast(x as type), x::type")
    def cast(self, node: sg.Cast) -> Any:
        """From integers to bigint, integer and smallint (a value that does not fit is an error), double, decimal(p, s)
        with 19 digits or more before the point, varchar and boolean; from decimals to double; from booleans to
        integers; between dates and timestamps; and from ISO literals, as in date '2022-01-31'.
        """
        value, to = self.value(node.this), _dtype(node.to)
        if isinstance(node.this, sg.Literal) and node.this.is_string and (to.is_date() or to.is_timestamp()):
            return values.time_literal(node.this.this, to.is_timestamp())
        return values.cast(value, to)

    @_cast_rule(sg.TryCast, parts="this to safe", usage="try_cast(s as type)")
    def try_cast(self, node: sg.TryCast) -> Any:
        """Reads text as an integer, double, decimal(p, s), date or timestamp; NULL if it is spelled otherwise or does
        not fit. See below for the spelling.
        """
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


def reference() -> Iterator[tuple[str, str, str]]:
    """Yield the section, the usage and the meaning of all syntax that SQL text may use."""
    for rule in dict.fromkeys(_RULES.values()):
        if rule.usage:
            yield rule.section, rule.usage, rule.meaning


def parse(table: ir.Table, text: str, argument: str) -> ir.Value:
    """Return a SQL expression on the columns of a table as an Ibis expression."""
    try:
        tree = sqlglot.parse_one(text, read="duckdb")
    except sqlglot.errors.SqlglotError as error:
        raise ParameterError(
            argument, code="syntax", allowed="a SQL expression", given=text, remedy=_problem(error)
        ) from None
    dialect = DIALECTS[engine_of(table).name]
    dialect.prepare(table)
    return _Translator(table, dialect).value(tree)


def _problem(error: sqlglot.errors.SqlglotError) -> str:
    """Return what the parser found, in words that do not name its classes."""
    if isinstance(error, sqlglot.errors.TokenError):
        return "a quote or a comment is not closed; a quote inside a text is written twice, as in 'farmer''s'"
    found = getattr(error, "errors", None)
    if not found:
        return "it is empty"
    what, near = str(found[0]["description"]), found[0]["highlight"]
    place = f"line {found[0]['line']}, column {found[0]['col']}"
    if what.startswith("Required keyword"):
        return f"it is incomplete: something is missing near {near!r} ({place})"
    if what in ("Expecting )", "Expected ]"):
        return f"it is incomplete: {what[-1]!r} is missing after {near!r} ({place})"
    if "Unexpected token" in what:
        return f"{near!r} cannot stand there ({place})"
    return f"{what} ({place})"
