"""Files of other programs: Excel, Stata, SPSS and SAS, read into Arrow.

The type of a column is the one that the file declares; it is never inferred from the records. Excel files declare no
types, so their cells are read as text, like those of a CSV file.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa

from slowscale.core.errors import DataError, EngineError, ParameterError, install_hint
from slowscale.data.conversion import value_text
from slowscale.data.spreadsheets import check_cells

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
            f"{argument} could not be read ({path}): {error}", remedy=f"{install_hint('files')}"
        ) from error
    except (ParameterError, DataError, MemoryError):
        raise
    except Exception as error:
        raise EngineError(
            f"{argument} could not be read ({path}): {type(error).__name__}",
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
            allowed=f"an Excel file with one sheet, but {path} has {len(book.sheet_names)}",
            remedy="keep only the sheet with the records",
        )
    # The first row must not depend on the records.
    rows = book.get_sheet_by_index(0).to_python(skip_empty_area=False, nrows=most)
    names = [str(name).strip() for name in rows[0]] if rows else []
    while names and not names[-1]:
        names.pop()  # the width of a sheet is that of its widest row
    if not names or not all(names) or len({name.casefold() for name in names}) < len(names):
        raise ParameterError(
            f"{argument}: the first row of {path} must have a different name for every column", remedy="correct it"
        )
    return names, rows[1:]


def _read_excel(path: str, argument: str) -> pa.Table:
    names, rows = _excel_rows(path, argument)
    for number, row in enumerate(rows, 2):
        if any(cell != "" for cell in row[len(names) :]):
            raise DataError(
                f"{argument}: row {number} of {path} has more cells than the header", remedy="correct the row"
            )
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
