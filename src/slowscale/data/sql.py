"""SQL text for filters and derived columns, turned into Ibis so that it means the same on every engine.

The text is in DuckDB's dialect. This module lists the syntax that is allowed: expressions on a single row. Each rule
says how its syntax is translated (see `translation`), which parts of it are understood, how it is used and what it
means. Anything without a rule is refused. docs/sql.md is generated from the rules.
"""

from collections.abc import Iterator
from typing import Any

import ibis
import ibis.expr.types as ir
import sqlglot
import sqlglot.expressions as sg

from slowscale.core.errors import ParameterError
from slowscale.data import values
from slowscale.data.dialects import DIALECTS
from slowscale.data.engines import engine_of
from slowscale.data.translation import COMPARISON_SIGNS, Rule, Translator, constant_length

_BOTH = {"this", "expression"}
_MORE = {"this", "expressions"}
_THIS = {"this"}
_REMARK_OVERFLOW = "An integer overflow is an error on every engine."
_SECTIONS: dict[str, dict[Any, Rule]] = {
    "Columns and constants": {
        sg.Column: Rule(
            Translator.column,
            {"this", "table"},
            'county, "County"',
            "A column. Without quotes, case does not matter. A timestamp with a time zone is read in UTC.",
        ),
        sg.Literal: Rule(
            Translator.literal,
            {"this", "is_string"},
            "5, 1.25, 2.5e3, 'text'",
            "Integers of 64 bits, other numbers, and text. 1.25 is an exact decimal beside integers and decimals, and "
            "otherwise a float.",
        ),
        sg.Boolean: Rule(lambda to, node: ibis.literal(bool(node.this)), _THIS, "true, false", "Booleans."),
        sg.Null: Rule(lambda to, node: ibis.null(), set(), "null", "A missing value."),
        sg.Paren: Rule(lambda to, node: to.value(node.this), _THIS, "(x)", "Parentheses."),
    },
    "Conditions": {
        **{
            kind: Rule(
                Translator.compare,
                _BOTH,
                "x = y, <>, <, <=, >, >=" if kind is sg.EQ else "",
                "Compares values of one kind. Text is ordered by code point. Beside a date or timestamp, text must be "
                "an ISO literal such as '2022-01-31' or '2022-01-31 12:00:00'.",
            )
            for kind in COMPARISON_SIGNS
        },
        sg.Between: Rule(
            Translator.between, {"this", "low", "high"}, "x between low and high", "Whether low <= x and x <= high."
        ),
        sg.In: Rule(Translator.within, _MORE, "x in (a, b, …)", "Whether x equals one of the values."),
        sg.Is: Rule(
            Translator.is_, _BOTH, "x is null, x is true", "True or false, never NULL; also `is false` and `is not`."
        ),
        sg.And: Rule(
            lambda to, node: to.of_kind(node.this, "boolean") & to.of_kind(node.expression, "boolean"),
            _BOTH,
            "a and b, a or b, not a",
            "Logic with NULL as a third value, as usual in SQL.",
        ),
        sg.Or: Rule(lambda to, node: to.of_kind(node.this, "boolean") | to.of_kind(node.expression, "boolean"), _BOTH),
        sg.Not: Rule(lambda to, node: ~to.of_kind(node.this, "boolean"), _THIS),
        sg.Case: Rule(
            Translator.case,
            {"this", "ifs", "default"},
            "case when a then x else y end",
            "The value of the first condition that is true; also `case x when 1 then …`.",
        ),
        sg.If: Rule(Translator.if_, {"this", "true", "false"}, "if(a, x, y)", "x if the condition is true, else y."),
        sg.Coalesce: Rule(Translator.coalesce, _MORE, "coalesce(x, y, …)", "The first value that is not NULL."),
        sg.Nullif: Rule(Translator.nullif, _BOTH, "nullif(x, y)", "NULL if x equals y, else x."),
        sg.Greatest: Rule(
            Translator.extreme,
            _MORE | {"ignore_nulls"},
            "greatest(x, y, …), least(x, y, …)",
            "The largest and smallest number or date. NULLs are ignored.",
        ),
        sg.Least: Rule(Translator.extreme, _MORE | {"ignore_nulls"}),
    },
    "Numbers": {
        sg.Add: Rule(
            Translator.arithmetic,
            _BOTH,
            "x + y, x - y",
            f"Exact for integers, and for decimals of up to 37 digits. {_REMARK_OVERFLOW}",
        ),
        sg.Sub: Rule(Translator.arithmetic, _BOTH),
        sg.Mul: Rule(
            Translator.arithmetic,
            _BOTH,
            "x * y",
            f"Exact for integers; other numbers are multiplied as floats. {_REMARK_OVERFLOW}",
        ),
        sg.Div: Rule(
            Translator.arithmetic,
            _BOTH,
            "x / y",
            "The quotient as a float, also of integers. Division by zero is NULL.",
        ),
        sg.IntDiv: Rule(
            Translator.arithmetic,
            _BOTH,
            "x // y",
            "The quotient of integers, truncated towards zero: -7 // 2 is -3. Division by zero is NULL.",
        ),
        sg.Mod: Rule(
            Translator.arithmetic,
            _BOTH,
            "x % y, mod(x, y)",
            "The remainder of integers, with the sign of x: -7 % 2 is -1. Division by zero is NULL.",
        ),
        sg.Neg: Rule(Translator.negative, _THIS, "-x, abs(x)", f"Minus x, and x without its sign. {_REMARK_OVERFLOW}"),
        sg.Abs: Rule(Translator.absolute, _THIS),
        sg.Round: Rule(
            Translator.rounded,
            _THIS,
            "round(x), floor(x), ceil(x)",
            "An integer: the nearest (halves away from zero), the next below, the next above. NULL beyond 64 bits.",
        ),
        sg.Floor: Rule(Translator.rounded, _THIS),
        sg.Ceil: Rule(Translator.rounded, _THIS),
        sg.Sqrt: Rule(Translator.root, _THIS, "sqrt(x)", "The square root as a float; NULL for a negative number."),
    },
    "Text": {
        sg.Trim: Rule(
            Translator.trim,
            {"this", "expression", "position"},
            "trim(s), ltrim(s), rtrim(s)",
            "Removes blanks (U+0020 only) at both ends, at the left, at the right. `trim(s, 'xy')` removes the "
            "characters x and y instead.",
        ),
        sg.Replace: Rule(
            Translator.replace,
            _BOTH | {"replacement"},
            "replace(s, 'old', 'new')",
            "Replaces every occurrence of a text.",
        ),
        sg.RegexpReplace: Rule(
            Translator.regexp_replace,
            _BOTH | {"replacement", "modifiers", "single_replace"},
            "regexp_replace(s, 'pattern', 'new' [, 'g'])",
            "Replaces the first match of a pattern, or with 'g' every match. See below for patterns.",
        ),
        sg.RegexpLike: Rule(
            Translator.regexp_matches,
            _BOTH,
            "regexp_matches(s, 'pattern')",
            "Whether a pattern is found in the text. Here | may separate alternatives.",
        ),
        sg.Like: Rule(
            Translator.like,
            _BOTH | {"negate"},
            "s like 'pattern', s ilike 'pattern'",
            "% stands for any characters, _ for one; a backslash stands for itself. `ilike` takes A to Z and a to z as "
            "equal, and no other letters.",
        ),
        sg.ILike: Rule(Translator.like, _BOTH | {"negate"}),
        sg.StartsWith: Rule(
            Translator.starts_with, _BOTH, "starts_with(s, 'start')", "Whether the text begins with another."
        ),
        sg.Upper: Rule(
            lambda to, node: values.upper(to.text(node.this)),
            _THIS,
            "upper(s), lower(s)",
            "Changes the letters a to z to A to Z, or back. Other letters stay: engines change them differently.",
        ),
        sg.Lower: Rule(lambda to, node: values.lower(to.text(node.this)), _THIS),
        sg.Length: Rule(lambda to, node: to.text(node.this).length(), _THIS, "length(s)", "The number of code points."),
        sg.Substring: Rule(
            Translator.substring,
            {"this", "start", "length"},
            "substr(s, start [, length])",
            "Code points from a position, counted from 1. Both numbers are constants.",
        ),
        sg.Left: Rule(
            lambda to, node: to.text(node.this).left(constant_length(node.expression, 0)),
            _BOTH,
            "left(s, n), right(s, n)",
            "The first and last n code points; n is a constant.",
        ),
        sg.Right: Rule(lambda to, node: to.text(node.this).right(constant_length(node.expression, 0)), _BOTH),
        sg.SplitPart: Rule(
            Translator.split_part,
            {"this", "delimiter", "part_index"},
            "split_part(s, 'separator', n)",
            "The nth part, counted from 1; an empty text if there are fewer.",
        ),
        sg.Pad: Rule(
            Translator.pad,
            {"this", "expression", "fill_pattern", "is_left"},
            "lpad(s, n, 'fill'), rpad(s, n, 'fill')",
            "Pads the text to n code points at the left or right. Longer text is truncated to its first n.",
        ),
        sg.DPipe: Rule(
            lambda to, node: to.text(node.this).concat(to.text(node.expression)),
            _BOTH | {"safe"},
            "s || t",
            "Joins two texts; NULL if one is NULL.",
        ),
        sg.Concat: Rule(
            Translator.concat,
            {"expressions", "safe", "coalesce"},
            "concat(s, t, …)",
            "Joins texts; NULL counts as empty.",
        ),
    },
    "Dates and times": {
        sg.Year: Rule(
            lambda to, node: to.date_part("year", node.this),
            _THIS,
            "year(d), quarter(d), month(d), day(d)",
            "Parts of a date or timestamp; also `extract(year from d)`.",
        ),
        sg.Quarter: Rule(lambda to, node: to.date_part("quarter", node.this), _THIS),
        sg.Month: Rule(lambda to, node: to.date_part("month", node.this), _THIS),
        sg.Day: Rule(lambda to, node: to.date_part("day", node.this), _THIS),
        sg.Extract: Rule(lambda to, node: to.date_part(str(node.this.name).lower(), node.expression), _BOTH),
        sg.TimestampTrunc: Rule(
            Translator.date_trunc,
            {"this", "unit"},
            "date_trunc('month', d)",
            "The first day of the year, quarter, month or week (from Monday), or the day itself. Always a date.",
        ),
        sg.StrToTime: Rule(
            lambda to, node: to.strptime(node.this, node.args["format"]),
            {"this", "format"},
            "strptime(s, '%d/%m/%Y')",
            "Reads a timestamp from text in a format; also `try_strptime`. Text in another format becomes NULL, "
            "whereas DuckDB's own strptime fails. Blanks around the text are ignored. See below for formats.",
        ),
        sg.Anonymous: Rule(Translator.anonymous, _MORE),
        sg.TimeToStr: Rule(
            Translator.strftime,
            {"this", "format"},
            "strftime(d, '%Y-%m')",
            "Writes a date or timestamp as text, with numbers padded by zeros.",
        ),
    },
    "Casts": {
        sg.Cast: Rule(
            Translator.cast,
            {"this", "to"},
            "cast(x as type), x::type",
            "From integers to bigint, integer and smallint (a value that does not fit is an error), double, "
            "decimal(p, s) with 19 digits or more before the point, varchar and boolean; from decimals to double; from "
            "booleans to integers; between dates and timestamps; and from ISO literals, as in date '2022-01-31'.",
        ),
        sg.TryCast: Rule(
            Translator.try_cast,
            {"this", "to", "safe"},
            "try_cast(s as type)",
            "Reads text as an integer, double, decimal(p, s), date or timestamp; NULL if it is spelled otherwise or "
            "does not fit. See below for the spelling.",
        ),
    },
}
_RULES: dict[Any, Rule] = {kind: rule for rules in _SECTIONS.values() for kind, rule in rules.items()}


def reference() -> Iterator[tuple[str, str, str]]:
    """Yield the section, the usage and the meaning of all syntax that SQL text may use."""
    for section, rules in _SECTIONS.items():
        for rule in rules.values():
            if rule.usage:
                yield section, rule.usage, rule.meaning


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
    return Translator(table, dialect, _RULES).value(tree)


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
