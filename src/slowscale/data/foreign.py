"""Data frames, and files of Excel, Stata, SPSS and SAS, read into Arrow.

The type of a column is the one that the frame or the file declares; it is never inferred from the records. A list of
Python values must have one type. Excel files declare no types, so their cells are read as text, like those of a CSV
file.

The reader of Excel files puts every cell at the place that the cell states. If two rows state the same place, one
record replaces another, and a single cell far away makes the reader allocate all cells before it. Therefore rows and
cells must be in order, and the rectangle that holds them must not be too large.
"""

import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, NamedTuple
from xml.parsers import expat

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet

from slowscale.core.data_errors import Name
from slowscale.core.errors import DataError, EngineError, ParameterError, ParameterTypeError, Shown, install_hint
from slowscale.data.connections import quoted
from slowscale.data.conversion import check_names, value_text

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
                raise DataError("misplaced-row", argument=Name(argument), row=sheet.row, file=Name(path)) from None
            if sheet.cells > MOST_SHEET_CELLS:
                raise DataError(
                    "sheet-size",
                    argument=Name(argument),
                    file=Name(path),
                    row=sheet.rows or 0,
                    width=sheet.columns,
                    most=MOST_SHEET_CELLS,
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


EXCEL = (".xlsx", ".xlsm")
STATISTICS = {
    ".dta": "read_dta",
    ".sav": "read_sav",
    ".zsav": "read_sav",
    ".sas7bdat": "read_sas7bdat",
    ".xpt": "read_xport",
}
FOREIGN_ENDINGS = (*EXCEL, *STATISTICS)
# A date is stored as a number with a format. For each reader: the date from which the numbers count and, for each
# pattern of a format without its width, the seconds per unit. Numbers with other formats (months, times of day…) stay
# numbers.
SECOND, DAY = 1.0, 86_400.0
SAS_DATES = (
    r"(DATE|MONYY|JULIAN|[BE]8601DA|(WEEK|WORD)DAT[EX]|(YYMMDD|MMDDYY|DDMMYY)[BCDNPS]?)",
    r"(DATETIME|[BE]8601DT|DATEAMPM|MDYAMPM)",
)
FORMATS: dict[str, tuple[date, tuple[tuple[str, float, pa.DataType], ...]]] = {
    "read_dta": (
        date(1960, 1, 1),
        # %tC includes leap seconds, so it stays a number.
        ((r"%-?t?d.*", DAY, pa.date32()), (r"%-?tc.*", SECOND / 1000, pa.timestamp("us"))),
    ),
    "read_sav": (
        date(1582, 10, 14),
        ((r"[AEJS]?DATE", SECOND, pa.date32()), (r"DATETIME|YMDHMS", SECOND, pa.timestamp("us"))),
    ),
    "read_sas7bdat": (
        date(1960, 1, 1),
        ((SAS_DATES[0], DAY, pa.date32()), (SAS_DATES[1], SECOND, pa.timestamp("us"))),
    ),
}
FORMATS["read_xport"] = FORMATS["read_sas7bdat"]
STORED_AS = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "float": pa.float32(),
    "double": pa.float64(),
}
# The types of columns that are given as lists of Python values. The scale of a Decimal would depend on the records.
PYTHON_TYPES = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    date: pa.date32(),
    datetime: pa.timestamp("us"),
}
WIDE_INTEGERS = ("HUGEINT", "UHUGEINT")
FIRST_ORDINAL, LAST_ORDINAL, UNIX = date.min.toordinal(), date.max.toordinal(), date(1970, 1, 1).toordinal()


@dataclass(frozen=True)
class Declared:
    """What a file declares about a column: its type and, for dates, the seconds per unit and the date of 0."""

    dtype: pa.DataType
    seconds: float = 0.0
    since: date = date(1970, 1, 1)


def is_foreign(path: str) -> bool:
    """Return whether this module reads a file, by its name."""
    return path.lower().endswith(FOREIGN_ENDINGS)


def read_foreign(path: str, argument: str) -> tuple[pa.Table, bool]:
    """Return a file as an Arrow table, and whether its columns are text, so that types must be declared."""
    lowered = path.lower()
    with foreign_errors(path, argument):
        if lowered.endswith(EXCEL):
            return _read_excel(path, argument), True
        return _read_statistics(
            path, next(reader for end, reader in STATISTICS.items() if lowered.endswith(end))
        ), False


@contextmanager
def foreign_errors(path: str, argument: str) -> Iterator[None]:
    """Turn the errors of the packages that read these files into an `EngineError`."""
    try:
        yield
    except ImportError as error:
        raise EngineError(
            argument, f"could not be read ({path}): {error}", code="not-installed", remedy=install_hint("files")
        ) from error
    except (ParameterError, DataError, MemoryError):
        raise
    except Exception as error:
        raise EngineError(
            argument,
            f"could not be read ({path}): {type(error).__name__}",
            code="unreadable",
            remedy="save the file again in its program",
        ) from error


def excel_header(path: str, argument: str) -> list[str]:
    """Return the names of the columns of an Excel file. Only its first row is read."""
    return _excel_rows(path, argument, 1)[0]


def _excel_rows(path: str, argument: str, most: int | None = None) -> tuple[list[str], list[list[Any]]]:
    """Return the names of the columns, and the rows below them, of the first `most` rows."""
    import python_calamine

    check_cells(path, argument)
    book = python_calamine.CalamineWorkbook.from_path(path)
    if len(book.sheet_names) > 1:
        # If a sheet were chosen by its position, moving sheets would change what is published.
        raise ParameterError(
            argument,
            allowed="an Excel file with one sheet",
            given=Shown(f"{path} with {len(book.sheet_names)}"),
            remedy="keep only the sheet with the records",
        )
    # The first row must not depend on the records.
    rows = book.get_sheet_by_index(0).to_python(skip_empty_area=False, nrows=most)
    names = [str(name).strip() for name in rows[0]] if rows else []
    while names and not names[-1]:
        names.pop()  # the width of a sheet is that of its widest row
    if not names or not all(names) or len({name.casefold() for name in names}) < len(names):
        raise ParameterError(
            f"{argument}: the first row of {path}",
            "must have a different name for every column",
            code="header",
            remedy="correct it",
        )
    return names, rows[1:]


def _read_excel(path: str, argument: str) -> pa.Table:
    names, rows = _excel_rows(path, argument)
    for number, row in enumerate(rows, 2):
        if any(cell != "" for cell in row[len(names) :]):
            raise DataError("too-many-cells", argument=Name(argument), row=number, file=Name(path))
    columns = list(zip(*rows, strict=True))[: len(names)] if rows else [()] * len(names)
    texts = [pa.array(map(value_text, column), pa.string()) for column in columns]
    return pa.table(dict(zip(names, texts, strict=True)))


def _read_statistics(path: str, reader: str) -> pa.Table:
    import pyreadstat

    read: Callable[..., Any] = getattr(pyreadstat, reader)
    columns, meta = read(path, output_format="dict", disable_datetime_conversion=True)
    return pa.table({name: _array(columns[name], declared) for name, declared in declared_types(reader, meta).items()})


def declared_types(reader: str, meta: Any) -> dict[str, Declared]:
    """Return what a file declares about its columns."""
    return {name: _declared(reader, name, meta) for name in meta.column_names}


def _declared(reader: str, name: str, meta: Any) -> Declared:
    stored = STORED_AS.get(meta.readstat_variable_types.get(name, ""), pa.string())
    written = str(meta.original_variable_types.get(name) or "")
    form = written if reader == "read_dta" else written.upper().rstrip("0123456789.")
    since, formats = FORMATS[reader]
    for pattern, seconds, dtype in formats:
        if not pa.types.is_string(stored) and re.fullmatch(pattern, form):
            return Declared(dtype, seconds, since)
    return Declared(stored)


def _array(values: Any, declared: Declared) -> pa.Array:
    dtype = declared.dtype
    if pa.types.is_string(dtype):
        return pa.array([None if item is None or item == "" else str(item) for item in values], dtype)
    numbers = np.array(values, dtype=float)  # None becomes NaN, the missing number of these programs
    missing = np.isnan(numbers)
    if pa.types.is_floating(dtype):
        return pa.array(numbers, dtype, mask=missing)
    if declared.seconds:
        # An impossible date counts as missing, so that one record does not make the others unreadable.
        with np.errstate(all="ignore"):
            moments = numbers * declared.seconds
            days = np.floor(moments / DAY) + declared.since.toordinal()
        missing |= ~((days >= FIRST_ORDINAL) & (days <= LAST_ORDINAL))
        offset = declared.since.toordinal() - UNIX
        days_since_1970 = np.where(missing, 0, days - UNIX).astype(np.int32)
        microseconds = np.rint(np.where(missing, 0, moments) * 1e6).astype(np.int64) + offset * 86_400_000_000
        whole = days_since_1970 if pa.types.is_date(dtype) else microseconds
        return pa.array(whole, pa.int32() if pa.types.is_date(dtype) else pa.int64(), mask=missing).cast(dtype)
    return pa.array(np.where(missing, 0, numbers).astype(np.int64), pa.int64(), mask=missing).cast(dtype)


class Frame(NamedTuple):
    """A data frame as an Arrow table, with the columns of which something is left out.

    Attributes
    ----------
    table
        The columns that Arrow can represent.
    unusable
        The other columns, with their types.
    not_text
        The columns of text in which some value has no text, and is NULL.
    """

    table: pa.Table
    unusable: Mapping[str, str] = {}
    not_text: frozenset[str] = frozenset()


def as_arrow(data: Any, argument: str) -> Frame | None:
    """Return a frame, a DuckDB relation or a mapping of columns as an Arrow table; None for other data."""
    module = type(data).__module__.split(".")[0]
    if isinstance(data, pa.Table | pa.RecordBatch):
        table = data if isinstance(data, pa.Table) else pa.Table.from_batches([data])
        try:
            table.validate(full=True)
        except pa.ArrowInvalid:  # its message may quote a record
            raise DataError("invalid", argument=Name(argument)) from None
        read = Frame(table)
    elif isinstance(data, duckdb.DuckDBPyRelation):
        read = _from_relation(data, argument)
    elif isinstance(data, Mapping):
        read = _from_columns(data, argument)
    elif module == "pandas" and hasattr(data, "columns"):
        read = _from_pandas(data, argument)
    elif module == "polars" and hasattr(data, "collect_schema"):
        read = _from_polars(data, argument)
    else:
        return None
    check_names(read.table.column_names, argument)
    return read._replace(table=read.table.replace_schema_metadata(None))


def _from_relation(data: duckdb.DuckDBPyRelation, argument: str) -> Frame:
    """Return the rows of a DuckDB relation. Integers of 128 bits become decimals: Arrow would make them floats."""
    columns = [
        f"CAST({quoted(name)} AS DECIMAL(38, 0)) AS {quoted(name)}" if str(dtype) in WIDE_INTEGERS else quoted(name)
        for name, dtype in zip(data.columns, data.types, strict=True)
    ]
    try:
        return Frame(data.project(", ".join(columns)).to_arrow_table())
    except duckdb.Error:  # its message may quote a record
        raise DataError("query", argument=Name(argument)) from None


def _from_columns(data: Mapping[Any, Any], argument: str) -> Frame:
    """Return a mapping of columns. All values of a list must have the same Python type, which is that of the column."""
    arrays: dict[str, pa.Array] = {}
    unusable: dict[str, str] = {}
    for name, values in data.items():
        if not isinstance(name, str):
            raise ParameterTypeError(argument, "must have text as the names of its columns", code="column-names")
        if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
            raise ParameterTypeError(
                f"{argument}[{name!r}]", allowed="a list or an array of values", given=type(values)
            )
        if isinstance(values, pa.Array | pa.ChunkedArray):
            arrays[name] = values
            continue
        if str(getattr(values, "dtype", "object")).lower() != "object":  # pandas and polars
            try:
                arrays[name] = pa.array(values, from_pandas=True)
            except Exception:  # its message may quote a record
                unusable[name] = str(values.dtype)
            continue
        items = list(values)
        kinds = {type(item) for item in items} - {type(None)}
        if len(kinds) > 1:
            raise DataError("mixed-types", argument=Name(argument), column=Name(name))
        kind = kinds.pop() if kinds else type(None)
        if kind not in PYTHON_TYPES:
            unusable[name] = kind.__name__
            continue
        try:
            arrays[name] = pa.array(items, PYTHON_TYPES[kind])
        except (pa.ArrowException, OverflowError, ValueError):  # its message may quote a record
            raise DataError("python-values", argument=Name(argument), column=Name(name)) from None
    if len({len(array) for array in arrays.values()}) > 1:
        raise ParameterError(argument, "must have columns of the same length", code="mismatch", remedy="complete them")
    return Frame(pa.table(arrays), unusable)


def _from_pandas(data: Any, argument: str) -> Frame:
    names = list(data.columns)
    if not all(isinstance(name, str) for name in names):
        raise ParameterTypeError(
            argument, "must have text as the names of its columns", code="column-names", remedy="rename them"
        )
    if len(set(names)) < len(names):
        raise ParameterError(
            argument, "must have columns of different names, but some are equal", code="duplicate", remedy="rename them"
        )
    arrays: dict[str, pa.Array] = {}
    unusable: dict[str, str] = {}
    not_text: set[str] = set()
    for name in names:
        column = data[name]
        try:
            if column.dtype == object:
                # Arrow would infer the type of such a column from its records, so every value is read as text.
                arrays[name] = pa.array(map(value_text, column), pa.string())
            else:
                arrays[name] = pa.array(column, from_pandas=True)
        except Exception:  # its message may quote a record
            if not _holds_text(column.dtype):
                unusable[name] = str(column.dtype)
                continue
            # One value must not decide whether the column exists, so each value is read alone.
            arrays[name], complete = _texts(column)
            if not complete:
                not_text.add(name)
    return Frame(pa.table(arrays), unusable, frozenset(not_text))


def _texts(column: Any) -> tuple[pa.Array, bool]:
    """Return the values of a pandas column as text, NULL where a value has none, and whether every value has one."""
    texts: list[str | None] = []
    complete = True
    for value in column:
        try:
            # Of these columns, only those of objects take empty text for a missing value.
            text = value if isinstance(value, str) and column.dtype != object else value_text(value)
            if text is not None:
                text.encode()  # raises for an isolated surrogate such as "\ud800"
        except Exception:  # str() runs code of the value's class
            text, complete = None, False
        texts.append(text)
    return pa.array(texts, pa.string()), complete


def _holds_text(dtype: Any) -> bool:
    """Whether a dtype of pandas is read as text: objects, text, or categories of them."""
    categories = getattr(dtype, "categories", None)
    return (dtype if categories is None else categories.dtype).name in ("object", "string", "str")


def _from_polars(data: Any, argument: str) -> Frame:
    frame = data
    if hasattr(data, "collect"):
        try:
            data.collect_schema()
        except Exception as error:
            raise ParameterTypeError(
                argument,
                "cannot be read: the query of the polars LazyFrame is not valid, for example because a column "
                "does not exist",
                code="query",
                remedy="correct it",
            ) from error
        try:
            frame = data.collect()
        except Exception:  # its message may quote a record
            raise DataError("collect", argument=Name(argument)) from None
    arrays, unusable = {}, {}
    for name in frame.columns:
        try:
            arrays[name] = frame.get_column(name).to_arrow()
        except Exception:
            unusable[name] = str(frame.schema[name])
    return Frame(pa.table(arrays), unusable)
