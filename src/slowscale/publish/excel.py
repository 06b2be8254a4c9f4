"""Excel files: one sheet for each table, and one with notes."""

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from decimal import Context, Decimal
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa

from slowscale.core.errors import EngineError, ParameterError, install_hint
from slowscale.publish.profiles import PublishedColumn, PublishedTable
from slowscale.publish.publication import NOT_PRIVATE_NOTE, Publication

EXCEL_ROWS, EXCEL_COLUMNS = 1_048_576, 16_384
ROWS_ABOVE = 10  # enough for the title and the heading
EXCEL_TEXT = 32_767  # the most characters of a cell
LONGEST_ADDITION = " " * 1000  # room for what is added to the title and the description of a column
EXCEL_DIGITS = 15  # Excel keeps no further digits of a number
EVERY_DIGIT = Context(prec=400)  # no digit is rounded away
SHEET_NAME_LENGTH = 31
NOTES_SHEET = "Notes"
WIDEST_CELL, NARROWEST_CELL = 40, 9  # columns, in characters
SAMPLED_ROWS = 1000  # for the width of a column
HEADING_LINES = 3  # in the heading
LINE_HEIGHT = 15  # in points
ROW_LINES = 27  # in a row of a sheet, which has at most 409 points
NOTE_LETTERS = 125  # in characters, of the cells with notes
SHADE = "#E8EEF4"
NOT_IN_EXCEL = "publish as .csv or .parquet"
TEXT_NUMBERS = (
    f"Excel keeps {EXCEL_DIGITS} digits of a number. Longer numbers are written as text, so that no digit is lost; "
    "formulas do not see them as numbers."
)
LEFT_OUT = (
    "Transformed sums are left out, because Excel cannot hold all their digits. The Parquet and CSV files have them."
)


def excel_tools() -> Any:
    """Return the module xlsxwriter, or raise an error that says how to install it."""
    try:
        import xlsxwriter
    except ImportError:
        remedy = install_hint("excel")
        raise EngineError("an Excel file", "needs XlsxWriter", code="not-installed", remedy=remedy) from None
    return xlsxwriter


def check_rows(what: str, rows: int) -> None:
    """Raise unless a table with so many rows fits in an Excel sheet."""
    if rows > EXCEL_ROWS - ROWS_ABOVE:
        words = f"has {rows:,} rows, but an Excel sheet has room for {EXCEL_ROWS - ROWS_ABOVE:,} below the heading"
        raise ParameterError(what, words, code="too-large", remedy=NOT_IN_EXCEL)


def check_cell_texts(what: str, texts: Iterable[str | None]) -> None:
    """Raise unless each text fits in a cell of an Excel sheet."""
    if any(_length(text or "") > EXCEL_TEXT for text in texts):
        words = f"has a text that is too long for an Excel cell, which holds {EXCEL_TEXT:,} characters"
        raise ParameterError(what, words, code="too-long", remedy=f"shorten it, or {NOT_IN_EXCEL}")


def check_publication_texts(publication: Publication) -> None:
    """Raise unless the texts of a publication fit in cells of an Excel file. Notes may be longer."""
    check_cell_texts("title", [f"{publication.title}{LONGEST_ADDITION}"])
    for name in ("source", "period", "contact"):
        check_cell_texts(name, [getattr(publication, name)])
    for field in ("keys", "tables"):
        check_cell_texts(field, getattr(publication, field).values())
    check_cell_texts("flags", publication.flags)
    for name in publication.columns:
        label = publication.label(name)
        check_cell_texts(f"columns[{name!r}]", [f"{label}{LONGEST_ADDITION}", f"{label.description}{LONGEST_ADDITION}"])


def _length(text: str) -> int:
    """Return the length of a text as Excel counts it: in UTF-16 code units."""
    return len(text) + sum(letter > "\uffff" for letter in text)


def check_excel(publication: Publication, tables: Sequence[PublishedTable]) -> None:
    """Raise unless tables fit in an Excel file."""
    excel_tools()
    check_publication_texts(publication)
    for table in tables:
        check_rows(f"the table {table.name!r}", len(table))
        if len(_shown(table)) > EXCEL_COLUMNS:
            words = f"has {len(_shown(table)):,} columns, but an Excel sheet has {EXCEL_COLUMNS:,}"
            raise ParameterError(f"the table {table.name!r}", words, code="too-large", remedy=NOT_IN_EXCEL)
        for column in _shown(table):
            texts = column.values.unique().to_pylist() if pa.types.is_string(column.values.type) else []
            check_cell_texts(f"the column {column.name!r}", texts)
    sheet_names([table.name for table in tables])


def sheet_names(names: Sequence[str]) -> list[str]:
    """Return names of sheets for tables: short enough, without forbidden characters, and all different.

    >>> sheet_names(["cells", "Cells", "by state/sector"])
    ['cells', 'Cells 2', 'by state sector']
    >>> sheet_names(["a name of thirty characters xx'xx"])
    ['a name of thirty characters xx']
    """
    found: list[str] = []
    for name in names:
        plain = _cut(re.sub(r"[\[\]:*?/\\\x00-\x1f]+", " ", name).strip("' "), SHEET_NAME_LENGTH) or "Table"
        number, free = 1, plain
        while free.lower() in {NOTES_SHEET.lower(), "history", *(other.lower() for other in found)}:
            number += 1
            free = f"{_cut(plain, SHEET_NAME_LENGTH - len(str(number)) - 1)} {number}"
        found.append(free)
    return found


def _cut(text: str, length: int) -> str:
    """Return the start of a text that is short enough, without an apostrophe or a space at its end."""
    while _length(text) > length:
        text = text[:-1]
    return text.rstrip("' ")


def write_excel(
    path: Path, publication: Publication, tables: Sequence[PublishedTable], notes: Mapping[str, list[str]]
) -> None:
    """Write an Excel file with one sheet per table, and one with notes: paragraphs, by heading."""
    options = {"strings_to_formulas": False, "strings_to_urls": False, "strings_to_numbers": False}
    with excel_tools().Workbook(str(path), {**options, "in_memory": False}) as book:
        book.set_properties(
            {
                "title": publication.title,
                "company": publication.source or "",
                "comments": "; ".join([tables[0].release.whole.id, *(table.release.name for table in tables)]),
            }
        )
        looks = cache(lambda **properties: book.add_format({"valign": "vcenter", **properties}))
        long = False
        for name, table in zip(sheet_names([table.name for table in tables]), tables, strict=True):
            long |= _write_table(book.add_worksheet(name), looks, publication, table)
        _write_notes(book.add_worksheet(NOTES_SHEET), looks, publication, tables, notes, long)


def _shown(table: PublishedTable) -> list[PublishedColumn]:
    return [column for column in table.columns if column.role != "transformed"]


def _write_table(sheet: Any, looks: Callable[..., Any], publication: Publication, table: PublishedTable) -> bool:
    """Write a table with its title, and return whether numbers were written as text."""
    columns = _shown(table)
    sheet.hide_gridlines(2)
    sheet.set_row(0, 1.5 * LINE_HEIGHT)
    sheet.write_string(0, 0, table.title, looks(bold=True, font_size=14))
    about = [] if table.title.startswith(publication.title) else [publication.title]
    about += [
        f"{name}: {text}" for name, text in (("Source", publication.source), ("Period", publication.period)) if text
    ]
    about += [f"Every number contains random noise. See the sheet {NOTES_SHEET!r}."]
    for i, text in enumerate(about, 1):
        sheet.write_string(i, 0, text, looks(font_color="#404040"))
    top = len(about) + 2
    if not table.release.whole.private:
        sheet.write_string(top - 1, 0, NOT_PRIVATE_NOTE, looks(bold=True, font_color="#B00000"))
    # The titles of estimates, with their units of measure, stand above all columns that belong to them.
    style, first = looks(bold=True, bg_color=SHADE, align="center", left=1, left_color="#FFFFFF"), 0
    for of, group in groupby(columns, lambda column: column.of if column.short else None):
        parts = list(group)
        last = first + len(parts) - 1
        if of is not None and last > first:
            sheet.merge_range(top, first, top, last, "", style)
        for place in range(first, last + 1 if of is None else first + 1):
            sheet.write_string(top, place, "" if of is None else parts[0].heading, style)
        first = last + 1
    top += 1
    shade = {"bold": True, "text_wrap": True, "bottom": 2, "bg_color": SHADE, "valign": "bottom"}
    sheet.set_row(top, LINE_HEIGHT * HEADING_LINES)
    long = False
    for place, column in enumerate(columns):
        align = {"align": "right"} if _is_numeric(column) else {"align": "left", "indent": int(column.role == "flag")}
        sheet.write_string(top, place, column.short or column.heading, looks(**shade, **align))
        values = column.values.to_pylist()
        cell_format = looks(**_cell_format(column, values))
        long |= _write_column(sheet, top + 1, place, values, cell_format, looks(num_format="@", align="right"))
        sheet.set_column(place, place, _width(column, values))
        if column.role == "flag" and values:
            quoted = '"' + publication.flags[-1].replace('"', '""') + '"'
            weak = {"type": "cell", "criteria": "equal to", "value": quoted, "format": looks(bg_color="#F4D9C6")}
            sheet.conditional_format(top + 1, place, top + len(values), place, weak)
    if len(table):
        cells = excel_tools().utility.xl_range(top + 1, 0, top + len(table), len(columns) - 1)
        sheet.ignore_errors({"number_stored_as_text": cells})
    sheet.autofilter(top, 0, top + max(len(table), 1), len(columns) - 1)
    sheet.freeze_panes(top + 1, sum(column.role in ("key", "name") for column in columns))
    sheet.set_landscape()
    sheet.fit_to_pages(1, 0)
    sheet.repeat_rows(top - 1, top)
    return long


def _is_numeric(column: PublishedColumn) -> bool:
    return column.role not in ("key", "name", "flag")


def _write_column(sheet: Any, first: int, place: int, values: list[Any], cell_format: Any, as_text: Any) -> bool:
    """Write values below each other, and return whether a number was written as text."""
    long = False
    for i, value in enumerate(values, first):
        if value is None or (isinstance(value, float) and not math.isfinite(value)):
            continue
        if isinstance(value, bool):
            sheet.write_boolean(i, place, value, cell_format)
        elif isinstance(value, str):
            sheet.write_string(i, place, value, cell_format)
        elif isinstance(value, date):
            if value.year < 1900:
                sheet.write_string(i, place, value.isoformat(), as_text)
            else:
                sheet.write_datetime(i, place, value, cell_format)
        elif _digits(value) > EXCEL_DIGITS:
            sheet.write_string(i, place, str(value), as_text)
            long = True
        else:
            sheet.write_number(i, place, value, cell_format)
    return long


def _digits(value: int | float | Decimal) -> int:
    """Return the number of significant digits of a number, or a few more if it is short."""
    text = repr(value) if isinstance(value, float) else str(abs(int(value)))
    if len(text) <= EXCEL_DIGITS:  # the usual case, and the quick one
        return len(text)
    return len(Decimal(text).normalize(EVERY_DIGIT).as_tuple().digits)


def _cell_format(column: PublishedColumn, values: list[Any]) -> dict[str, Any]:
    """Return the format of the cells of a column."""
    example = next((value for value in values if value is not None), None)
    if not _is_numeric(column):
        if isinstance(example, date):
            return {"num_format": "yyyy-mm-dd", "align": "left"}
        indent = {"indent": 1} if column.role == "flag" else {}
        return {"num_format": "0" if isinstance(example, int) else "@", "align": "left", **indent}
    return {"num_format": "#,##0" + ("." + "0" * places if (places := _decimals(column, values)) else "")}


def _decimals(column: PublishedColumn, values: list[Any]) -> int:
    """Return how many decimals of a column are shown."""
    if column.step is not None:
        return next((n for n in range(7) if (column.step * 10**n).denominator == 1), 6)
    sizes = sorted(abs(value) for value in values if isinstance(value, float) and value and math.isfinite(value))
    if not sizes:
        return 0
    return max(0, min(6, 3 - math.floor(math.log10(sizes[len(sizes) // 2]))))


def _width(column: PublishedColumn, values: list[Any]) -> float:
    """Return the width of a column, in characters."""
    words, numeric = column.short or column.heading, _is_numeric(column)
    heading = max(math.ceil(len(words) / (HEADING_LINES - 1)), *map(len, words.split()), 0)
    places = _decimals(column, values) if numeric else 0
    texts = (f"{value:,.{places}f}" if numeric else str(value) for value in values[:SAMPLED_ROWS] if value is not None)
    return min(WIDEST_CELL, max(NARROWEST_CELL, heading + 3, 2 + max(map(len, texts), default=0)))


def _lines(text: str, width: int) -> int:
    """Return about how many lines a text has in a cell of this width, in characters."""
    return sum(max(1, math.ceil(len(line) / width)) for line in text.split("\n"))


def note_pieces(text: str) -> list[str]:
    """Return the pieces of a note, each short enough for the highest row of a sheet, cut at spaces where possible."""
    found = []
    while _lines(text, NOTE_LETTERS) > ROW_LINES:
        end = bisect_right(range(len(text)), ROW_LINES, key=lambda n: _lines(text[:n], NOTE_LETTERS)) - 1
        space = max(text.rfind(" ", 0, end), text.rfind("\n", 0, end)) + 1
        cut = space if space > end // 2 else end
        found.append(text[:cut])
        text = text[cut:]
    return [*found, text]


def _write_notes(
    sheet: Any,
    looks: Callable[..., Any],
    publication: Publication,
    tables: Sequence[PublishedTable],
    notes: Mapping[str, list[str]],
    long: bool,
) -> None:
    """Write the sheet with notes, and the list of columns."""
    sheet.hide_gridlines(2)
    for place, width in enumerate((28, 34, 18, 70)):
        sheet.set_column(place, place, width)
    sheet.write_string(0, 0, publication.title, looks(bold=True, font_size=14))
    left_out = any(len(_shown(table)) < len(table.columns) for table in tables)
    reading = [*notes["How to read the numbers"], *[TEXT_NUMBERS] * long, *[LEFT_OUT] * left_out]
    row = 2
    for heading, paragraphs in {**notes, "How to read the numbers": reading}.items():
        sheet.write_string(row, 0, heading, looks(bold=True, text_wrap=True, valign="top"))
        for text in paragraphs:
            for piece in note_pieces(text):
                sheet.merge_range(row, 1, row, 3, "", looks(text_wrap=True, valign="top"))
                sheet.write_string(row, 1, piece, looks(text_wrap=True, valign="top"))
                sheet.set_row(row, LINE_HEIGHT * _lines(piece, NOTE_LETTERS))
                row += 1
    for name, table in zip(sheet_names([table.name for table in tables]), tables, strict=True):
        row += 1
        of = f" of the sheet {name!r}" if len(tables) > 1 else ""
        sheet.write_string(row, 0, f"Columns{of}", looks(bold=True))
        row += 1
        for place, text in enumerate(("Name in files", "Title", "Unit of measure", "Description")):
            sheet.write_string(row, place, text, looks(bold=True, bottom=1, bg_color=SHADE))
        for column in _shown(table):
            row += 1
            for place, cell in enumerate((column.name, column.title, column.unit or "", column.description)):
                sheet.write_string(row, place, cell, looks(text_wrap=True, valign="top"))
            lines = max(_lines(column.description, 70), _lines(column.title, 34), _lines(column.name, 28))
            sheet.set_row(row, LINE_HEIGHT * min(lines, ROW_LINES))
        row += 1
    sheet.set_landscape()
    sheet.fit_to_pages(1, 0)
