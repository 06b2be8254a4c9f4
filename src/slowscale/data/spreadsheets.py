"""The cells of an Excel file, checked before it is read.

The reader puts every cell at the place that the cell states. If two rows state the same place, one record replaces
another; and a single cell far away makes the reader allocate all cells before it. Therefore rows and cells must be in
order, and the rectangle that holds them must not be too large.
"""

import re
import zipfile
from xml.parsers import expat

from slowscale.core.errors import DataError

# The most cells of the rectangle of a sheet, about 3 GB in memory.
MOST_SHEET_CELLS = 50_000_000
BYTES_AT_ONCE = 1 << 20


def check_cells(path: str, argument: str) -> None:
    """Raise unless every sheet of an Excel file has its cells in order, each at one place, and is not too large."""
    with zipfile.ZipFile(path) as parts:
        for part in parts.infolist():
            sheet = _Sheet()
            try:
                with parts.open(part) as stream:
                    while chunk := stream.read(BYTES_AT_ONCE):
                        sheet.parser.Parse(chunk)
                    sheet.parser.Parse(b"", True)
            except _NotASheetError:
                continue
            except expat.ExpatError:
                if sheet.rows is None:  # a picture, or another part that is not XML
                    continue
                raise
            except _MisplacedError:
                raise DataError(
                    f"{argument}: row {sheet.row} of {path} is in the file twice, or its cells are not in order, "
                    "so that one record would replace another",
                    remedy="save the file again in its program",
                ) from None
            if sheet.cells > MOST_SHEET_CELLS:
                raise DataError(
                    f"{argument}: the cells of {path} reach row {sheet.rows:,} and column {sheet.columns:,}, more "
                    f"than {MOST_SHEET_CELLS:,} cells",
                    remedy="delete cells that do not belong to the records, or save the records as CSV or Parquet",
                )


class _NotASheetError(Exception):
    """A part of the file is not a sheet."""


class _MisplacedError(Exception):
    """A row or cell is not after the one before it."""


class _Sheet:
    """The places of the cells of a sheet, as its XML is parsed."""

    def __init__(self) -> None:
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self._start
        self.row = self.column = self.columns = 0
        self.rows: int | None = None  # None until the part is known to be a sheet
        self._digits = ""
        self._known: dict[str, int] = {}  # columns by their letters

    @property
    def cells(self) -> int:
        """The number of cells of the rectangle from the first cell to the last ones that hold something."""
        return (self.rows or 0) * self.columns

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if ":" in name:
            name = name.rpartition(":")[2]
        if self.rows is None:
            if name != "worksheet":
                raise _NotASheetError
            self.rows = 0
        elif name == "c":
            self._place(attributes.get("r"))
        elif name == "v" or name == "is":  # the cell holds something
            self.rows = self.row
            if self.column > self.columns:
                self.columns = self.column
        elif name == "row":
            before, self.row, self.column = self.row, _whole(attributes.get("r"), self.row + 1), 0
            self._digits = str(self.row)
            if self.row <= before:
                raise _MisplacedError

    def _place(self, stated: str | None) -> None:
        """Take the place of a cell, such as B2; without one, it is right of the cell before it."""
        if stated is None:
            self.column += 1
            return
        letters = stated.removesuffix(self._digits)
        column = self._known.get(letters)
        if column is None:
            column = self._known[letters] = _column(letters)
        if column <= self.column:
            raise _MisplacedError
        self.column = column


def _whole(text: str | None, default: int) -> int:
    if text is None:
        return default
    if not re.fullmatch("[1-9][0-9]{0,6}", text):
        raise _MisplacedError
    return int(text)


def _column(letters: str) -> int:
    if not re.fullmatch("[A-Z]{1,3}", letters):
        raise _MisplacedError
    number = 0
    for letter in letters:
        number = 26 * number + ord(letter) - ord("A") + 1
    return number
