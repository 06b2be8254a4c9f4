"""SQL text for filters and derived columns, turned into Ibis so that every engine reads it in the same way.

The text is in DuckDB's dialect. Only what looks at one row has a rule here, and a rule says which parts of the syntax
it understands: anything else is refused, never guessed. Where engines disagree (text that is cast, rounding, integer
division, dates) a rule has one meaning on all of them. Each rule says how it is used and what it means; docs/sql.md is
made of that.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.types as ir
import sqlglot
import sqlglot.expressions as sg

from slowscale.errors import ParameterError
from slowscale.tables import functions, regex, values
from slowscale.tables.dialects import DIALECTS, Dialect
from slowscale.tables.engines import engine_of
from slowscale.tables.values import RefusedError, kind_of

MANY_ROWS = {
    "a subquery": (sg.Select, sg.Subquery, sg.Exists, sg.SetOperation),
    "a window function": (sg.Window,),
    "an aggregate": (sg.AggFunc,),
}
NONDETERMINISTIC = (sg.Rand, sg.Randn, sg.Uuid, sg.CurrentTimestamp, sg.CurrentDate)
LONGEST_PADDING = 10_000
_COMPARISONS = {sg.EQ: "=", sg.NEQ: "<>", sg.LT: "<", sg.LTE: "<=", sg.GT: ">", sg.GTE: ">="}
_ROUNDINGS = {sg.Round: "round", sg.Floor: "floor", sg.Ceil: "ceil"}


def parse(table: ir.Table, text: str, argument: str) -> ir.Value:
    """Return a SQL expression (DuckDB's dialect) on the table's columns as an Ibis one."""
    try:
        tree = sqlglot.parse_one(text, read="duckdb")
    except sqlglot.errors.SqlglotError as error:
        raise ParameterError(f"{argument} is not a SQL expression ({text!r}): {str(error).splitlines()[0]}") from None
    return _Translator(table, prepared(table)).value(tree)


def prepared(table: ir.Table) -> Dialect:
    """Return the dialect of the engine that holds a table, and make its connection ready."""
    dialect = DIALECTS[engine_of(table).name]
    dialect.prepare(table)
    return dialect


def _shown(node: Any) -> str:
    return repr(node.sql(dialect="duckdb"))


class _Translator:
    def __init__(self, table: ir.Table, dialect: Dialect) -> None:
        self.table = table
        self.dialect = dialect

    # Any expression.
    def value(self, node: Any) -> Any:
        rule = _RULES.get(type(node))
        if rule is None:
            for words, kinds in MANY_ROWS.items():
                if isinstance(node, kinds):
                    raise RefusedError(words, "many rows")
            if isinstance(node, NONDETERMINISTIC):
                raise RefusedError("", "nondeterministic")
        elif {name for name, part in node.args.items() if part not in (None, False, [], "")} <= rule.understood:
            return rule.translate(self, node)
        if isinstance(node, sg.In) and node.args.get("query") is not None:
            raise RefusedError("a subquery", "many rows")
        raise RefusedError(f"uses {_shown(node)}, which is not allowed in SQL text; docs/sql.md lists what is")

    def of_kind(self, node: Any, *allowed: str) -> Any:
        """Return a value of one of the given kinds; NULL is of any."""
        value = self.value(node)
        kind = kind_of(value)
        if kind == "null":
            return ibis.null({"text": "string", "number": "int64"}.get(allowed[0], allowed[0]))
        if kind not in allowed:
            raise RefusedError(f"uses {_shown(node)} where a {' or '.join(allowed)} belongs, but it is {value.type()}")
        return value

    def text(self, node: Any) -> Any:
        return self.of_kind(node, "text")

    def time(self, node: Any) -> Any:
        return self.of_kind(node, "date", "timestamp")

    def literal_text(self, node: Any, what: str, empty: bool = False) -> str:
        if not isinstance(node, sg.Literal) or not node.is_string or not (node.this or empty) or "\0" in node.this:
            raise RefusedError(f"has {_shown(node) if node else 'no text'} as the {what}: write a text in quotes")
        return str(node.this)

    def to_common_type(self, nodes: Sequence[Any], compared: bool) -> list[Any]:
        """Return values that are compared, or of which one is chosen, as values of one type."""
        if compared and any(isinstance(node, sg.Null) for node in nodes):
            raise RefusedError("compares with NULL, which is never true: use IS NULL")
        found = _exact_constants(nodes, [self.value(node) for node in nodes])
        return values.to_common_type(self.dialect, found, compared)

    def numbers(self, node: Any) -> list[Any]:
        """Return the two operands of arithmetic."""
        nodes = [node.this, node.expression]
        return values.to_floats_if_any(_exact_constants(nodes, [self.of_kind(part, "number") for part in nodes]))

    # Names and constants.
    def column(self, node: sg.Column) -> Any:
        name = node.name
        if node.table:
            raise RefusedError(f"must name columns only, got {node.sql()!r}")
        matches = [column for column in self.table.columns if column.lower() == name.lower()]
        if name not in self.table.columns:
            if len(matches) != 1 or node.this.quoted:
                raise RefusedError(f"names {name!r}, which is not a column; there are {', '.join(self.table.columns)}")
            name = matches[0]
        value = self.table[name]
        if value.type().is_timestamp() and value.type().timezone is not None:
            return self.dialect.without_zone(value)
        return value

    def literal(self, node: sg.Literal) -> Any:
        if node.is_string:
            if "\0" in node.this:
                raise RefusedError("has a NUL character, which not every engine can hold")
            return ibis.literal(node.this)
        return _number(node.this, negative=False)

    # Logic.
    def compare(self, node: Any) -> Any:
        left, right = self.to_common_type([node.this, node.expression], compared=True)
        return values.compare(self.dialect, left, right, _COMPARISONS[type(node)])

    def between(self, node: sg.Between) -> Any:
        value, low, high = self.to_common_type([node.this, node.args["low"], node.args["high"]], compared=True)
        return values.compare(self.dialect, value, low, ">=") & values.compare(self.dialect, value, high, "<=")

    def within(self, node: sg.In) -> Any:
        value, *items = self.to_common_type([node.this, *node.expressions], compared=True)
        return value.isin(items)

    def is_(self, node: sg.Is) -> Any:
        subject, other = self.value(node.this), node.expression
        if isinstance(other, sg.Null):
            return subject.isnull()
        if not isinstance(other, sg.Boolean) or not subject.type().is_boolean():
            raise RefusedError(f"uses {_shown(node)}: IS takes NULL, or TRUE and FALSE for booleans")
        return subject.fill_null(not other.this) == ibis.literal(bool(other.this))

    def case(self, node: sg.Case) -> Any:
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
        return self.chosen([self.of_kind(node.this, "boolean")], [node.args["true"]], node.args.get("false"))

    def chosen(self, conditions: list[Any], results: list[Any], otherwise: Any) -> Any:
        *found, last = self.to_common_type([*results, sg.Null() if otherwise is None else otherwise], compared=False)
        return ibis.cases(*zip(conditions, found, strict=True), else_=last)

    def coalesce(self, node: sg.Coalesce) -> Any:
        return ibis.coalesce(*self.to_common_type([node.this, *node.expressions], compared=False))

    def nullif(self, node: sg.Nullif) -> Any:
        value, other = self.to_common_type([node.this, node.expression], compared=True)
        return value.nullif(other)

    def extreme(self, node: Any) -> Any:
        found = self.to_common_type([node.this, *node.expressions], compared=False)
        return values.extreme(self.dialect, found, largest=isinstance(node, sg.Greatest))

    # Numbers.
    def arithmetic(self, node: Any) -> Any:
        left, right = self.numbers(node)
        if isinstance(node, sg.Div):
            return values.divide(left, right)
        if isinstance(node, sg.Add | sg.Sub):
            return values.add(self.dialect, left, right, minus=isinstance(node, sg.Sub))
        functions = {sg.Mul: values.multiply, sg.IntDiv: values.quotient, sg.Mod: values.remainder}
        return functions[type(node)](self.dialect, left, right)

    def negative(self, node: sg.Neg) -> Any:
        if isinstance(node.this, sg.Literal) and not node.this.is_string:
            return _number(node.this.this, negative=True)
        return values.negative(self.dialect, self.of_kind(node.this, "number"))

    def absolute(self, node: sg.Abs) -> Any:
        return values.absolute(self.dialect, self.of_kind(node.this, "number"))

    def rounded(self, node: Any) -> Any:
        return values.rounded(self.of_kind(node.this, "number"), _ROUNDINGS[type(node)])

    def root(self, node: sg.Sqrt) -> Any:
        return values.root(self.of_kind(node.this, "number"))

    # Text.
    def trim(self, node: sg.Trim) -> Any:
        characters = node.args.get("expression")
        chosen = " " if characters is None else self.literal_text(characters, "set of characters")
        return self.dialect.trim(self.text(node.this), chosen, node.args.get("position") or "BOTH")

    def replace(self, node: sg.Replace) -> Any:
        old = self.literal_text(node.expression, "text to replace")
        new = self.literal_text(node.args["replacement"], "replacement", empty=True)
        return self.text(node.this).replace(old, new)

    def pattern(self, node: Any) -> regex.Pattern:
        text = self.literal_text(node, "pattern")
        try:
            return regex.compile_pattern(text)
        except regex.PatternError as error:
            raise RefusedError(f"has the pattern {text!r}, which {error}; allowed are {regex.SYNTAX}") from None

    def regexp_replace(self, node: sg.RegexpReplace) -> Any:
        pattern = self.pattern(node.expression)
        if len(pattern.branches) > 1 or pattern.matches_empty:
            raise RefusedError(
                f"has the pattern {node.expression.this!r}, in which engines find different matches: it must have no | "
                "and match at least one character; replace one alternative after the other"
            )
        flag = node.args.get("modifiers")
        if flag is not None and self.literal_text(flag, "flag") != "g":
            raise RefusedError(f"has the flag {_shown(flag)}: only 'g' is allowed, which replaces every match")
        new = self.literal_text(node.args["replacement"], "replacement", empty=True)
        if "\\" in new:
            raise RefusedError("has a backslash in the replacement: groups cannot be referred to")
        return self.dialect.regexp_replace(self.text(node.this), pattern, new, every=flag is not None)

    def regexp_matches(self, node: sg.RegexpLike) -> Any:
        return self.dialect.matches(self.text(node.this), self.pattern(node.expression).spelled(self.dialect.name))

    def like(self, node: Any) -> Any:
        text, pattern = self.text(node.this), self.literal_text(node.expression, "pattern", empty=True)
        if isinstance(node, sg.ILike):
            text, pattern = functions.lower(text), functions.ascii_lower(pattern)
        matches = self.dialect.like(text, pattern)
        return ~matches if node.args.get("negate") else matches

    def starts_with(self, node: sg.StartsWith) -> Any:
        start = self.literal_text(node.expression, "start", empty=True)
        return self.text(node.this).left(len(start)) == start

    def substring(self, node: sg.Substring) -> Any:
        start, length = _positive(node.args.get("start"), 1), node.args.get("length")
        text = self.text(node.this)
        return text.substr(start - 1) if length is None else text.substr(start - 1, _positive(length, 0))

    def split_part(self, node: sg.SplitPart) -> Any:
        separator = self.literal_text(node.args["delimiter"], "separator")
        return self.dialect.split_part(self.text(node.this), separator, _positive(node.args["part_index"], 1))

    def pad(self, node: sg.Pad) -> Any:
        length, fill = _positive(node.expression, 0), self.literal_text(node.args.get("fill_pattern"), "fill")
        if length > LONGEST_PADDING:
            raise RefusedError(f"pads to {length} characters: give at most {LONGEST_PADDING}")
        return self.dialect.pad(self.text(node.this), length, fill, bool(node.args.get("is_left")))

    def concat(self, node: sg.Concat) -> Any:
        return ibis.literal("").concat(*(self.text(part).fill_null("") for part in node.expressions))

    # Dates and times.
    def format(self, node: Any) -> list[str]:
        text = self.literal_text(node, "format")
        try:
            return functions.parse_format(text)
        except ValueError as error:
            allowed = ", ".join([*functions.DIRECTIVES, "%%"])
            raise RefusedError(f"has the format {text!r} with {str(error)!r}: allowed are {allowed}") from None

    def strptime(self, text: Any, layout: Any) -> Any:
        tokens = self.format(layout)
        parts = [functions.DIRECTIVES[token][0] for token in tokens if token in functions.DIRECTIVES]
        if "year" not in parts or len(set(parts)) < len(parts):
            raise RefusedError(f"has the format {_shown(layout)}: it must have the year, and each part only once")
        return functions.strptime(self.dialect, self.text(text), tokens)

    def anonymous(self, node: sg.Anonymous) -> Any:
        if str(node.this).lower() != "try_strptime" or len(node.expressions) != 2:
            raise RefusedError(f"uses {_shown(node)}, which is not allowed in SQL text; docs/sql.md lists what is")
        return self.strptime(*node.expressions)

    def strftime(self, node: sg.TimeToStr) -> Any:
        return functions.strftime(self.dialect, self.time(node.this), self.format(node.args["format"]))

    def date_trunc(self, node: sg.TimestampTrunc) -> Any:
        unit = str(node.args["unit"].name).lower()
        if unit not in functions.UNITS:
            raise RefusedError(f"truncates to {unit!r}: allowed are {', '.join(functions.UNITS)}")
        return functions.date_trunc(self.dialect, self.time(node.this), unit)

    def date_part(self, unit: str, node: Any) -> Any:
        if unit == "quarter":
            return functions.quarter(self.dialect, self.time(node))
        if unit not in ("year", "month", "day"):
            raise RefusedError(f"extracts {unit!r}: allowed are year, quarter, month and day")
        return self.dialect.part(self.time(node), unit)

    # Casts.
    def cast(self, node: sg.Cast) -> Any:
        value, to = self.value(node.this), _dtype(node.to)
        if isinstance(node.this, sg.Literal) and node.this.is_string and (to.is_date() or to.is_timestamp()):
            return values.time_literal(node.this.this, to.is_timestamp())
        return values.cast(self.dialect, value, to)

    def try_cast(self, node: sg.TryCast) -> Any:
        text, to, dialect = self.text(node.this), _dtype(node.to), self.dialect
        if to.is_integer():
            return functions.read_integer(dialect, text, to)
        if to.is_float64():
            return functions.read_float(dialect, text)
        if to.is_date() or (to.is_timestamp() and to.timezone is None):
            return functions.read_time(dialect, text, "date" if to.is_date() else "timestamp")
        if not to.is_decimal():
            raise RefusedError(f"has try_cast to {to}: allowed are integers, double, decimal(p, s), date and timestamp")
        if not dialect.has_decimals:
            raise RefusedError("has try_cast to a decimal, which SQLite keeps as a float: use try_cast(x as double)")
        if to.precision is None or not to.precision < values.MOST_DIGITS:
            raise RefusedError(f"has try_cast to {to}: give a decimal fewer than {values.MOST_DIGITS} digits")
        return functions.read_decimal(dialect, text, to)


def _dtype(node: Any) -> dt.DataType:
    from ibis.backends.sql.datatypes import DuckDBType

    return DuckDBType.to_ibis(node)


def _number(text: str, negative: bool) -> Any:
    """Return a number literal: an integer of 64 bits, or a float."""
    if not text.isdigit():
        return ibis.literal(-float(text) if negative else float(text), "float64")
    number = -int(text) if negative else int(text)
    if not -(2**63) <= number < 2**63:
        raise RefusedError(f"has the integer {number}, which does not fit 64 bits")
    return ibis.literal(number, "int64")


def _constant(node: Any) -> Decimal | None:
    """Return the exact number that a constant such as 1.25 or -1.25 writes, or None if the node is something else."""
    negative = isinstance(node, sg.Neg)
    literal = node.this if negative else node
    if not isinstance(literal, sg.Literal) or literal.is_string or "e" in literal.this.lower():
        return None
    return -Decimal(literal.this) if negative else Decimal(literal.this)


def _exact_constants(nodes: Sequence[Any], found: Sequence[Any]) -> list[Any]:
    """Make constants such as 1.25 decimals beside integers and decimals, and leave them floats beside floats."""
    constants = [_constant(node) for node in nodes]
    others = [value.type() for value, constant in zip(found, constants, strict=True) if constant is None]
    if any(dtype.is_floating() for dtype in others) or not any(dtype.is_numeric() for dtype in others):
        return list(found)
    decimals = any(dtype.is_decimal() for dtype in others)
    return [
        values.decimal_literal(constant) if constant is not None and (decimals or value.type().is_floating()) else value
        for value, constant in zip(found, constants, strict=True)
    ]


def _positive(node: Any, least: int) -> int:
    if not isinstance(node, sg.Literal) or node.is_string or not node.is_int or int(node.this) < least:
        shown = "nothing" if node is None else node.sql()
        raise RefusedError(f"uses the position or length {shown!r}: give a whole number >= {least}")
    return int(node.this)


@dataclass(frozen=True)
class _Rule:
    """How a piece of syntax is translated, which parts of it are understood, and what the documentation says."""

    translate: Callable[[_Translator, Any], Any]
    understood: frozenset[str] | set[str]
    usage: str = ""
    meaning: str = ""


_BOTH = {"this", "expression"}
_MORE = {"this", "expressions"}
_THIS = {"this"}
_T = _Translator
_REMARK_OVERFLOW = "An integer overflow is an error on every engine."
_SECTIONS: dict[str, dict[Any, _Rule]] = {
    "Columns and constants": {
        sg.Column: _Rule(
            _T.column,
            {"this", "table"},
            'county, "County"',
            "A column. Without quotes, case does not matter. A timestamp with a time zone is read in UTC.",
        ),
        sg.Literal: _Rule(
            _T.literal,
            {"this", "is_string"},
            "5, 1.25, 2.5e3, 'text'",
            "Integers of 64 bits, other numbers, and text. 1.25 is an exact decimal beside integers and decimals, and "
            "otherwise a float.",
        ),
        sg.Boolean: _Rule(lambda to, node: ibis.literal(bool(node.this)), _THIS, "true, false", "Booleans."),
        sg.Null: _Rule(lambda to, node: ibis.null(), set(), "null", "A missing value."),
        sg.Paren: _Rule(lambda to, node: to.value(node.this), _THIS, "(x)", "Parentheses."),
    },
    "Conditions": {
        **{
            kind: _Rule(
                _T.compare,
                _BOTH,
                "x = y, <>, <, <=, >, >=" if kind is sg.EQ else "",
                "Compares values of one kind. Text is ordered by code point. Beside a date or timestamp, text must be "
                "an ISO literal such as '2022-01-31' or '2022-01-31 12:00:00'.",
            )
            for kind in _COMPARISONS
        },
        sg.Between: _Rule(
            _T.between, {"this", "low", "high"}, "x between low and high", "Whether low <= x and x <= high."
        ),
        sg.In: _Rule(_T.within, _MORE, "x in (a, b, …)", "Whether x equals one of the values."),
        sg.Is: _Rule(_T.is_, _BOTH, "x is null, x is true", "True or false, never NULL; also `is false` and `is not`."),
        sg.And: _Rule(
            lambda to, node: to.of_kind(node.this, "boolean") & to.of_kind(node.expression, "boolean"),
            _BOTH,
            "a and b, a or b, not a",
            "Logic with NULL as a third value, as usual in SQL.",
        ),
        sg.Or: _Rule(lambda to, node: to.of_kind(node.this, "boolean") | to.of_kind(node.expression, "boolean"), _BOTH),
        sg.Not: _Rule(lambda to, node: ~to.of_kind(node.this, "boolean"), _THIS),
        sg.Case: _Rule(
            _T.case,
            {"this", "ifs", "default"},
            "case when a then x else y end",
            "The value of the first condition that is true; also `case x when 1 then …`.",
        ),
        sg.If: _Rule(_T.if_, {"this", "true", "false"}, "if(a, x, y)", "x if the condition is true, else y."),
        sg.Coalesce: _Rule(_T.coalesce, _MORE, "coalesce(x, y, …)", "The first value that is not NULL."),
        sg.Nullif: _Rule(_T.nullif, _BOTH, "nullif(x, y)", "NULL if x equals y, else x."),
        sg.Greatest: _Rule(
            _T.extreme,
            _MORE | {"ignore_nulls"},
            "greatest(x, y, …), least(x, y, …)",
            "The largest and smallest number or date. NULLs are ignored.",
        ),
        sg.Least: _Rule(_T.extreme, _MORE | {"ignore_nulls"}),
    },
    "Numbers": {
        sg.Add: _Rule(
            _T.arithmetic,
            _BOTH,
            "x + y, x - y",
            f"Exact for integers, and for decimals of up to 37 digits. {_REMARK_OVERFLOW}",
        ),
        sg.Sub: _Rule(_T.arithmetic, _BOTH),
        sg.Mul: _Rule(
            _T.arithmetic, _BOTH, "x * y", f"Exact for integers; else a product of floats. {_REMARK_OVERFLOW}"
        ),
        sg.Div: _Rule(_T.arithmetic, _BOTH, "x / y", "The quotient as a float, also of integers. By zero it is NULL."),
        sg.IntDiv: _Rule(
            _T.arithmetic,
            _BOTH,
            "x // y",
            "The quotient of integers, cut towards zero: -7 // 2 is -3. By zero it is NULL.",
        ),
        sg.Mod: _Rule(
            _T.arithmetic,
            _BOTH,
            "x % y, mod(x, y)",
            "The remainder of integers, with the sign of x: -7 % 2 is -1. By zero it is NULL.",
        ),
        sg.Neg: _Rule(_T.negative, _THIS, "-x, abs(x)", f"Minus x, and x without its sign. {_REMARK_OVERFLOW}"),
        sg.Abs: _Rule(_T.absolute, _THIS),
        sg.Round: _Rule(
            _T.rounded,
            _THIS,
            "round(x), floor(x), ceil(x)",
            "An integer: the nearest (halves away from zero), the next below, the next above. NULL beyond 64 bits.",
        ),
        sg.Floor: _Rule(_T.rounded, _THIS),
        sg.Ceil: _Rule(_T.rounded, _THIS),
        sg.Sqrt: _Rule(_T.root, _THIS, "sqrt(x)", "The square root as a float. Of a negative number it is NULL."),
    },
    "Text": {
        sg.Trim: _Rule(
            _T.trim,
            {"this", "expression", "position"},
            "trim(s), ltrim(s), rtrim(s)",
            "Removes blanks (U+0020 only) at both ends, at the left, at the right. `trim(s, 'xy')` removes the "
            "characters x and y instead.",
        ),
        sg.Replace: _Rule(
            _T.replace,
            _BOTH | {"replacement"},
            "replace(s, 'old', 'new')",
            "Replaces every occurrence of a text.",
        ),
        sg.RegexpReplace: _Rule(
            _T.regexp_replace,
            _BOTH | {"replacement", "modifiers", "single_replace"},
            "regexp_replace(s, 'pattern', 'new' [, 'g'])",
            "Replaces the first match of a pattern, or with 'g' every match. See below for patterns.",
        ),
        sg.RegexpLike: _Rule(
            _T.regexp_matches,
            _BOTH,
            "regexp_matches(s, 'pattern')",
            "Whether a pattern is found in the text. Here | may separate alternatives.",
        ),
        sg.Like: _Rule(
            _T.like,
            _BOTH | {"negate"},
            "s like 'pattern', s ilike 'pattern'",
            "% stands for any characters, _ for one; a backslash stands for itself. `ilike` takes A to Z and a to z as "
            "equal, and no other letters.",
        ),
        sg.ILike: _Rule(_T.like, _BOTH | {"negate"}),
        sg.StartsWith: _Rule(_T.starts_with, _BOTH, "starts_with(s, 'start')", "Whether the text begins with another."),
        sg.Upper: _Rule(
            lambda to, node: functions.upper(to.text(node.this)),
            _THIS,
            "upper(s), lower(s)",
            "Changes the letters a to z to A to Z, or back. Other letters stay: engines change them differently.",
        ),
        sg.Lower: _Rule(lambda to, node: functions.lower(to.text(node.this)), _THIS),
        sg.Length: _Rule(
            lambda to, node: to.text(node.this).length(), _THIS, "length(s)", "The number of code points."
        ),
        sg.Substring: _Rule(
            _T.substring,
            {"this", "start", "length"},
            "substr(s, start [, length])",
            "Code points from a position, counted from 1. Both numbers are constants.",
        ),
        sg.Left: _Rule(
            lambda to, node: to.text(node.this).left(_positive(node.expression, 0)),
            _BOTH,
            "left(s, n), right(s, n)",
            "The first and last n code points; n is a constant.",
        ),
        sg.Right: _Rule(lambda to, node: to.text(node.this).right(_positive(node.expression, 0)), _BOTH),
        sg.SplitPart: _Rule(
            _T.split_part,
            {"this", "delimiter", "part_index"},
            "split_part(s, 'separator', n)",
            "The nth part, counted from 1; an empty text if there are fewer.",
        ),
        sg.Pad: _Rule(
            _T.pad,
            {"this", "expression", "fill_pattern", "is_left"},
            "lpad(s, n, 'fill'), rpad(s, n, 'fill')",
            "Fills the text up to n code points at the left or right. Longer text is cut to its first n.",
        ),
        sg.DPipe: _Rule(
            lambda to, node: to.text(node.this).concat(to.text(node.expression)),
            _BOTH | {"safe"},
            "s || t",
            "Joins two texts; NULL if one is NULL.",
        ),
        sg.Concat: _Rule(
            _T.concat, {"expressions", "safe", "coalesce"}, "concat(s, t, …)", "Joins texts; NULL counts as empty."
        ),
    },
    "Dates and times": {
        sg.Year: _Rule(
            lambda to, node: to.date_part("year", node.this),
            _THIS,
            "year(d), quarter(d), month(d), day(d)",
            "Parts of a date or timestamp; also `extract(year from d)`.",
        ),
        sg.Quarter: _Rule(lambda to, node: to.date_part("quarter", node.this), _THIS),
        sg.Month: _Rule(lambda to, node: to.date_part("month", node.this), _THIS),
        sg.Day: _Rule(lambda to, node: to.date_part("day", node.this), _THIS),
        sg.Extract: _Rule(lambda to, node: to.date_part(str(node.this.name).lower(), node.expression), _BOTH),
        sg.TimestampTrunc: _Rule(
            _T.date_trunc,
            {"this", "unit"},
            "date_trunc('month', d)",
            "The first day of the year, quarter, month or week (from Monday), or the day itself. Always a date.",
        ),
        sg.StrToTime: _Rule(
            lambda to, node: to.strptime(node.this, node.args["format"]),
            {"this", "format"},
            "strptime(s, '%d/%m/%Y')",
            "Reads a timestamp from text in a format; also `try_strptime`. What is not of the format is NULL, where "
            "DuckDB's own strptime would fail. Blanks around the text are ignored. See below for formats.",
        ),
        sg.Anonymous: _Rule(_T.anonymous, _MORE),
        sg.TimeToStr: _Rule(
            _T.strftime,
            {"this", "format"},
            "strftime(d, '%Y-%m')",
            "Writes a date or timestamp as text, with numbers padded by zeros.",
        ),
    },
    "Casts": {
        sg.Cast: _Rule(
            _T.cast,
            {"this", "to"},
            "cast(x as type), x::type",
            "From integers to bigint, smaller integers (what does not fit is an error), double, decimal(p, s) with 19 "
            "digits or more before the point, varchar and boolean; from decimals to double; from booleans to integers; "
            "between dates and timestamps; and from ISO literals, as in date '2022-01-31'.",
        ),
        sg.TryCast: _Rule(
            _T.try_cast,
            {"this", "to", "safe"},
            "try_cast(s as type)",
            "Reads text as an integer, double, decimal(p, s), date or timestamp; NULL if it is spelled otherwise or "
            "does not fit. See below for the spelling.",
        ),
    },
}
_RULES: dict[Any, _Rule] = {kind: rule for rules in _SECTIONS.values() for kind, rule in rules.items()}


def reference() -> Iterator[tuple[str, str, str]]:
    """Yield the section, the usage and the meaning of everything that SQL text may use."""
    for section, rules in _SECTIONS.items():
        for rule in rules.values():
            if rule.usage:
                yield section, rule.usage, rule.meaning
