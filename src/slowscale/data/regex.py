"""Regular expressions that mean the same on every engine.

RE2 (DuckDB), Java (Spark) and PostgreSQL disagree on groups, alternatives, lazy repeats, `.`, `$`, `\\d` and
`\\w`. The patterns here are sequences of single characters or classes, each with an optional greedy repeat. For these,
the longest match, which PostgreSQL returns, is the same as the first match of a backtracking search, which the others
return. Abbreviations are expanded (`\\d` to `[0-9]`) before the pattern is passed to an engine.
"""

import re
from dataclasses import dataclass

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


class PatternError(ValueError):
    """Raised for a pattern that is not in the common subset; the message completes "the pattern …, which"."""


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
    """Parse a pattern, or raise `PatternError`."""
    if "\0" in text:
        raise PatternError("has a NUL character")
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
    spelled, fewest = _repeat(repeat)
    if text[repeat.end() : repeat.end() + 1] in ("*", "+", "?", "{"):
        raise PatternError(f"has {text[repeat.end()]!r} after a repeat")
    return atom + spelled, fewest, repeat.end()


def _repeat(found: re.Match[str]) -> tuple[str, int]:
    if found[1] is None:
        return found[0], int(found[0] == "+")
    low = int(found[1])
    high = low if found[2] is None else int(found[3]) if found[3] else None
    if max(low, high or 0) > MOST_REPEATS or (high is not None and high < max(low, 1)):
        raise PatternError(f"has the repeat {found[0]!r}; the bounds must be in order and at most {MOST_REPEATS}")
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
        raise PatternError(f"has {char!r}, which must be written \\{char} to stand for itself")
    return escaped(char), at + 1


def _escape(text: str, at: int) -> tuple[str, int]:
    """Return the characters that an escape stands for, as members of a class, and the position of its end."""
    char = text[at + 1 : at + 2]
    if char in _SHORT:
        return _SHORT[char], at + 2
    if char in _CONTROL:
        return _CONTROL[char], at + 2
    if not char or char.isalnum() or not char.isascii():
        raise PatternError(f"has {text[at : at + 2]!r}, which does not mean the same on every engine")
    return escaped(char), at + 2


def _class(text: str, at: int) -> tuple[str, int]:
    members: list[str] = []
    negated = text[at : at + 1] == "^"
    at += negated
    while True:
        char = text[at : at + 1]
        if not char:
            raise PatternError("has a [ without a closing ]")
        if char == "]":
            break
        if char in "[-&~" and not (char == "-" and (not members or text[at + 1 : at + 2] == "]")):
            raise PatternError(f"has {char!r} in a class, which must be written \\{char} to stand for itself")
        if char == "\\":
            member, at = _escape(text, at)
        else:
            member, at = escaped(char), at + 1
        if text[at : at + 1] == "-" and text[at + 1 : at + 2] not in ("]", ""):
            last = text[at + 1]
            if not (char.isalnum() and last.isalnum() and char.isascii() and last.isascii() and char <= last):
                raise PatternError("has a range that is not between two ASCII letters or digits in order")
            member, at = f"{char}-{last}", at + 2
        members.append(member)
    if not members:
        raise PatternError("has an empty class")
    return f"[{'^' if negated else ''}{''.join(members)}]", at + 1
