"""Pages: templates in which everything is escaped, rendered to one HTML file that loads nothing."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from slowscale.core.files import check_output_path, write_files
from slowscale.core.numbers import format_number, percent
from slowscale.publish.charts import tools


@dataclass(frozen=True)
class Cell:
    """A cell of a table: text, with code after it, a smaller line below it, or a link to a part of the page."""

    text: str
    code: str = ""
    small: str = ""
    anchor: str = ""


# A row of a table; a row with a single number has it for all columns.
Row = Sequence[str | Cell]


def listed(parts: Sequence[str], last: str = "and") -> str:
    """Return the parts as a list in a sentence: "a, b and c"."""
    return f"{', '.join(parts[:-1])} {last} {parts[-1]}" if len(parts) > 1 else "".join(parts)


def upper(text: str) -> str:
    """Return the text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


TEMPLATES = Environment(
    loader=PackageLoader(__package__),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    extensions=["jinja2.ext.do"],
)
TEMPLATES.filters |= {"format_number": format_number, "percent": percent, "listed": listed, "upper": upper}


def render(template: str, **values: object) -> str:
    """Return a page; its tables and figures are numbered in order, and its sections are listed at the top."""
    counters = {"next_table": count(1).__next__, "next_figure": count(1).__next__}
    return TEMPLATES.get_template(template).render(contents=[], **counters, **values)


def write_page(
    path: str | os.PathLike[str], make: Callable[[], str], *, overwrite: bool, confidential: bool = False
) -> Path:
    """Write the page that `make` returns, after checking that the file can be written and that charts can be drawn."""
    target = check_output_path(path, ".html", overwrite)
    tools()
    text = make()
    files = {target: lambda file: file.write_text(text, encoding="utf-8")}
    return write_files(files, overwrite=overwrite, confidential=confidential)
