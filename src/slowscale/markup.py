"""HTML for notebooks: tables and text, in which everything is escaped."""

from collections.abc import Iterable, Sequence
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
