"""Text for people: HTML for notebooks, in which everything is escaped; lines and a progress bar for terminals."""

import sys
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
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


def is_unicode(text: str) -> bool:
    """Return whether text can be written: paths and answers may hold bytes that are not, as isolated surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def terminal_json(text: str) -> str:
    """Return JSON without such characters: they are written as JSON writes them, so its meaning is the same."""

    def escaped(letter: str) -> str:
        units = letter.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))

    return _with_escapes(text, "\n", escaped)


def _with_escapes(text: str, keep: str, escaped: Callable[[str], str]) -> str:
    shown = (letter.isprintable() or letter in keep or unicodedata.category(letter) == "Zs" for letter in text)
    return "".join(letter if is_shown else escaped(letter) for letter, is_shown in zip(text, shown, strict=True))


# How signs are written in encodings that lack them, such as the usual ones of Windows.
PLAIN = {
    "−": "-", "–": "-", "—": "-", "±": "+/-", "×": "x", "·": "*", "√": "sqrt ", "∞": "inf", "½": "1/2",
    "∫": "integral ", "≤": "<=", "≥": ">=", "≠": "!=", "…": "...", "→": "->", "′": "'", "″": "''", "‖": "||", "─": "-",
    "│": "|", "├": "|", "└": "|", "⌈": "ceil(", "⌉": ")", "⌊": "floor(", "⌋": ")", "\N{NO-BREAK SPACE}": " ",
}  # fmt: skip
PLAIN_LETTERS = "slowscale.plain"  # the name of the error handler


def plain_letters(error: UnicodeError) -> tuple[str, int]:
    """Return what is written for letters that an encoding lacks: plain words for signs, escapes for all others.

    >>> import codecs
    >>> codecs.register_error("slowscale.plain", plain_letters)
    >>> "±2·σ² ≤ 北".encode("ascii", "slowscale.plain")
    b'+/-2*sigma^2 <= \\\\u5317'
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_plain, error.object[error.start : error.end])), error.end


def _plain(letter: str) -> str:
    alphabet, _, name = unicodedata.name(letter, "").partition(" LETTER ")
    kind, _, code = unicodedata.decomposition(letter).partition("> ")
    if letter in PLAIN:
        return PLAIN[letter]
    if kind in ("<super", "<sub"):
        return ("^" if kind == "<super" else "_") + chr(int(code, 16)).replace("−", "-")
    if alphabet.startswith("GREEK ") and " " not in name:
        return name.capitalize() if alphabet == "GREEK CAPITAL" else name.lower()
    return letter.encode("ascii", "backslashreplace").decode()


def aligned(rows: Sequence[Sequence[str]], width: int | None = None) -> list[str]:
    """Return a table as lines of text: the first column is aligned at its left, the others at their right.

    Columns that do not fit within a `width` follow below, with the first column again.

    >>> aligned([["", "loss"], ["10", "0.5"]])
    ['      loss', '  10   0.5']
    >>> aligned([["", "loss", "ε"], ["10", "0.5", "3"]], width=12)
    ['      loss', '  10   0.5', '      ε', '  10  3']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    taken = [sum(widths[: end + 1]) + 2 * (end + 1) for end in range(len(widths))]
    if width is not None and taken[-1] > width:
        end = max(2, sum(one <= width for one in taken))
        if end < len(widths):
            return [
                *aligned([row[:end] for row in rows], width),
                *aligned([[row[0], *row[end:]] for row in rows], width),
            ]
    return ["  " + "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]


LONG_WORK = 0.7  # seconds after which work counts as long


@contextmanager
def progress_bar(label: str, share: Callable[[], float | None]) -> Iterator[None]:
    """Show a bar on a terminal while the block runs, if it takes longer than `LONG_WORK`.

    Parameters
    ----------
    label
        The description beside the bar.
    share
        Returns the share that is done, from 0 to 1, or None if it is not known.
    """
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(label, share, done), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _watch(label: str, share: Callable[[], float | None], done: threading.Event) -> None:
    if done.wait(LONG_WORK):
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    left = TimeRemainingColumn(compact=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("left"), left)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        while not done.wait(0.1):
            known = share()
            if known is not None:
                bar.update(task, total=1.0, completed=known)
