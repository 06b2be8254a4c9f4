"""The operations that engines spell or define differently, with one meaning on every engine.

`DIALECTS` has one object per supported engine, whose methods take and return Ibis values. `Dialect` implements what
most engines have in common, and a subclass overrides what its engine does differently.

Regular expressions have a common subset: RE2 (DuckDB), Java (Spark) and PostgreSQL disagree on groups, alternatives,
lazy repeats, `.`, `$`, `\\d` and `\\w`. A `Pattern` is a sequence of single characters or classes, each with an
optional greedy repeat. For these, the longest match (PostgreSQL) is the first match of a backtracking search (the
others). Abbreviations are expanded (`\\d` to `[0-9]`) before the pattern is passed to an engine.
"""

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.operations as ops
import ibis.expr.types as ir

from slowscale.core.errors import NOT_GIVEN, ParameterError, Shown
from slowscale.data.connections import ask_spark, engine_errors

SYNTAX = (
    "characters, classes such as [a-z], ., \\d, \\s, \\w, \\t and \\n, each with one of the repeats *, +, ?, {m}, {m,} "
    "and {m,n}, and ^ and $ at the ends"
)
MOST_REPEATS = 255  # PostgreSQL's limit
# The anchor for the end of a text on each engine; $ would also match before a final line break.
END = {"duckdb": r"\z", "pyspark": r"\z", "postgres": r"\Z"}
_SHORT = {"d": "0-9", "w": "A-Za-z0-9_", "s": " \t\n\f\r"}
_CONTROL = {"t": "\t", "n": "\n"}
_SPECIAL = set("\\^$.|?*+()[]{}")
_REPEAT = re.compile(r"\*|\+|\?|\{(\d{1,3})(,(\d{1,3})?)?\}")


class RefusedError(ParameterError):
    """An expression that is not allowed; `rowwise.bind` adds the argument that has it."""

    def __init__(self, code: str, problem: str, remedy: str, given: object = NOT_GIVEN) -> None:
        super().__init__("", problem, code=code, given=given, remedy=remedy)

    def about(self, argument: str) -> ParameterError:
        """Return the error about an argument."""
        given = NOT_GIVEN if self.given is None else Shown(self.given)
        return ParameterError(argument, self.problem, code=self.code, given=given, remedy=self.remedy)


def many_rows(found: str) -> RefusedError:
    """Return the refusal of an expression that uses other rows."""
    remedy = "the policy would not hold otherwise: compute it beforehand, and store it as a column"
    return RefusedError("many-rows", "must use one record at a time", remedy, Shown(found))


def nondeterministic() -> RefusedError:
    """Return the refusal of an expression whose result may differ when it is computed again."""
    found = "a random number, the clock, a user-defined function or another one that the record does not determine"
    remedy = "store its result as a column first"
    return RefusedError("nondeterministic", "must be the same each time it is computed", remedy, Shown(found))


def _refused_pattern(text: str, why: str) -> RefusedError:
    return RefusedError("pattern", f"has the pattern {text!r}, which {why}", f"allowed are {SYNTAX}")


@dataclass(frozen=True)
class Pattern:
    """A pattern of the common subset: alternatives, each a sequence of expanded pieces."""

    branches: tuple[tuple[str, ...], ...]
    matches_empty: bool

    def spelled(self, engine: str) -> str:
        """Return the pattern in the spelling of an engine."""
        ends = {"^": r"\A", "$": END[engine]}
        return "|".join("".join(ends.get(piece, piece) for piece in branch) for branch in self.branches)


def compile_pattern(text: str) -> Pattern:
    """Parse a pattern, or raise `RefusedError`."""
    if "\0" in text:
        raise _refused_pattern(text, "has a NUL character")
    branches: list[tuple[str, ...]] = []
    pieces: list[str] = []
    shortest: list[int] = []
    least = at = 0
    while at < len(text):
        char, following = text[at], text[at + 1 : at + 2]
        if char == "|":
            branches.append(tuple(pieces))
            shortest.append(least)
            pieces, least, at = [], 0, at + 1
        elif (char == "^" and not pieces) or (char == "$" and following in ("", "|")):
            pieces.append(char)
            at += 1
        else:
            piece, fewest, at = _piece(text, at)
            pieces.append(piece)
            least += fewest
    return Pattern((*branches, tuple(pieces)), matches_empty=min([*shortest, least]) == 0)


def escaped(text: str) -> str:
    """Return the pattern that matches a text itself, on every engine."""
    return "".join(
        f"\\{char}" if char.isascii() and not (char.isalnum() or char in "_ \t\n") else char for char in text
    )


def _piece(text: str, at: int) -> tuple[str, int, int]:
    """Return an atom with its repeat, the fewest characters that it matches, and the position of its end."""
    atom, at = _atom(text, at)
    repeat = _REPEAT.match(text, at)
    if repeat is None:
        return atom, 1, at
    spelled, fewest = _repeat(text, repeat)
    if text[repeat.end() : repeat.end() + 1] in ("*", "+", "?", "{"):
        raise _refused_pattern(text, f"has {text[repeat.end()]!r} after a repeat")
    return atom + spelled, fewest, repeat.end()


def _repeat(text: str, found: re.Match[str]) -> tuple[str, int]:
    if found[1] is None:
        return found[0], int(found[0] == "+")
    low = int(found[1])
    high = low if found[2] is None else int(found[3]) if found[3] else None
    if max(low, high or 0) > MOST_REPEATS or (high is not None and high < max(low, 1)):
        raise _refused_pattern(
            text, f"has the repeat {found[0]!r}; the bounds must be in order and at most {MOST_REPEATS}"
        )
    return found[0], low


def _atom(text: str, at: int) -> tuple[str, int]:
    char = text[at]
    if char == ".":
        return r"[^\n]", at + 1
    if char == "[":
        return _class(text, at + 1)
    if char == "\\":
        members, at = _escape(text, at)
        return (f"[{members}]" if len(members) > 2 else members), at
    if char in _SPECIAL:
        raise _refused_pattern(text, f"has {char!r}, which must be written \\{char} to stand for itself")
    return escaped(char), at + 1


def _escape(text: str, at: int) -> tuple[str, int]:
    """Return the characters that an escape stands for, as members of a class, and the position of its end."""
    char = text[at + 1 : at + 2]
    if char in _SHORT:
        return _SHORT[char], at + 2
    if char in _CONTROL:
        return _CONTROL[char], at + 2
    if not char or char.isalnum() or not char.isascii():
        raise _refused_pattern(text, f"has {text[at : at + 2]!r}, which does not mean the same on every engine")
    return escaped(char), at + 2


def _class(text: str, at: int) -> tuple[str, int]:
    members: list[str] = []
    negated = text[at : at + 1] == "^"
    at += negated
    while True:
        char = text[at : at + 1]
        if not char:
            raise _refused_pattern(text, "has a [ without a closing ]")
        if char == "]":
            break
        if char in "[-&~" and not (char == "-" and (not members or text[at + 1 : at + 2] == "]")):
            raise _refused_pattern(text, f"has {char!r} in a class, which must be written \\{char} to stand for itself")
        if char == "\\":
            member, at = _escape(text, at)
        else:
            member, at = escaped(char), at + 1
        if text[at : at + 1] == "-" and text[at + 1 : at + 2] not in ("]", ""):
            last = text[at + 1]
            if not (char.isalnum() and last.isalnum() and char.isascii() and last.isascii() and char <= last):
                raise _refused_pattern(text, "has a range that is not between two ASCII letters or digits in order")
            member, at = f"{char}-{last}", at + 2
        members.append(member)
    if not members:
        raise _refused_pattern(text, "has an empty class")
    return f"[{'^' if negated else ''}{''.join(members)}]", at + 1


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

    def prepare(self, table: ir.Table) -> None:
        """Raise if the settings of the table's connection would change the meaning of expressions."""

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
    def divide(self, left: ir.Value, right: ir.Value) -> ir.Value:
        """Return the quotient truncated towards zero; NULL if the divisor is 0."""
        return call("divide", "int64", left, right.nullif(ibis.literal(0, "int64")))

    def modulo(self, left: ir.Value, right: ir.Value) -> ir.Value:
        """Return the remainder of `divide`, with the sign of the dividend."""
        # On some engines the smallest integer modulo -1 overflows. The remainder is 0 for both -1 and 1.
        right = ibis.ifelse(right == -1, ibis.literal(1, "int64"), right)
        return call("mod", "int64", left, right.nullif(ibis.literal(0, "int64")))

    # Dates and times, without a time zone.
    def without_zone(self, when: ir.Value) -> ir.Value:
        """Return a timestamp with a time zone as a timestamp without one, in UTC."""
        return call("timezone", "timestamp", "UTC", when)

    def part(self, when: ir.Value, name: str) -> ir.Value:
        """Return the year, month, day, hour, minute or second as an integer."""
        return getattr(when, name)()


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
    session, needed_settings = backend._session, {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}
    with engine_errors("the settings of the Spark session"):
        settings = ask_spark(session, lambda: {name: session.conf.get(name) for name in needed_settings})
    for name, needed in needed_settings.items():
        if str(settings[name]).lower() != needed.lower():
            raise ParameterError(
                "the Spark session",
                f"has {name}={settings[name]}, but must have {needed}, or expressions mean something else",
                code="setting",
                remedy=f'call spark.conf.set("{name}", "{needed}")',
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


DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (_DuckDB(), _Postgres(), _Spark())}
