"""Text for people, in which everything is escaped: HTML for notebooks, and lines for terminals."""

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from html import escape


def html_table(title: str, heads: Sequence[object], rows: Iterable[Sequence[object]], note: str = "") -> str:
    """Return a table with a title above it and a note below."""
    top = "".join(f"<th>{escape(str(head))}</th>" for head in heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    below = f"<p>{escape(note)}</p>" if note else ""
    return f"<table><caption>{escape(title)}</caption><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>{below}"


def html_text(text: str) -> str:
    """Return text in a fixed-width font, with its line breaks."""
    return f"<pre>{escape(text)}</pre>"


def terminal_text(text: str, keep: str = "\n") -> str:
    """Return text without characters that control a terminal or reorder a line: they are written as escapes.

    Names, labels and reasons come from files, and could otherwise rewrite what a terminal shows.

    >>> print(terminal_text(chr(27) + "[2J"))
    \\x1b[2J
    """
    return _with_escapes(text, keep, lambda letter: letter.encode("unicode_escape").decode())


def terminal_json(text: str) -> str:
    """Return JSON without such characters: they are written as JSON writes them, so its meaning is the same."""

    def escaped(letter: str) -> str:
        units = letter.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))

    return _with_escapes(text, "\n", escaped)


def _with_escapes(text: str, keep: str, escaped: Callable[[str], str]) -> str:
    shown = (letter.isprintable() or letter in keep or unicodedata.category(letter) == "Zs" for letter in text)
    return "".join(letter if is_shown else escaped(letter) for letter, is_shown in zip(text, shown, strict=True))


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table as lines of text: the first column is aligned at its left, the others at their right.

    >>> aligned([["", "loss"], ["10", "0.5"]])
    ['      loss', '  10   0.5']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]
