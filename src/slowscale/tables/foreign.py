"""Files of other programs: Excel, Stata, SPSS and SAS, read into Arrow.

The type of a column is the one that the file declares, never one that is told from the records. Excel declares none:
its cells are taken as text, as in a CSV file.
"""

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from typing import Any

import pyarrow as pa

from slowscale.errors import EngineError, ParameterError

EXCEL = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
STATISTICS = {
    ".dta": "read_dta",
    ".sav": "read_sav",
    ".zsav": "read_sav",
    ".sas7bdat": "read_sas7bdat",
    ".xpt": "read_xport",
}
ENDINGS = (*EXCEL, *STATISTICS)
# The formats of dates and of times in Stata, SPSS and SAS, as pyreadstat turns them into Python's.
MOMENTS = ("%TC", "DATETIME", "YMDHMS", "E8601DT", "DATEAMPM", "MDYAMPM")
DAYS = (
    "%TD", "%D", "DATE", "ADATE", "EDATE", "JDATE", "SDATE", "MMDDYY", "DDMMYY", "YYMMDD", "E8601DA", "B8601DA",
    "WEEKDATE", "WEEKDATX", "WORDDATE", "WORDDATX", "YYMON", "MONYY", "JULIAN",
)  # fmt: skip
STORED = {"int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(), "float": pa.float32(), "double": pa.float64()}


def is_foreign(path: str) -> bool:
    """Whether a file is one that this module reads, by its name."""
    return path.lower().endswith(ENDINGS)


def read_foreign(path: str, argument: str) -> tuple[pa.Table, bool]:
    """Return a file as an Arrow table, and whether its columns are text whose types must be declared."""
    lowered = path.lower()
    try:
        if lowered.endswith(EXCEL):
            return _read_excel(path, argument), True
        return _read_statistics(
            path, next(reader for end, reader in STATISTICS.items() if lowered.endswith(end))
        ), False
    except ImportError as error:
        raise EngineError(f"{argument} could not be read ({path}): {error}; pip install 'slowscale[files]'") from error
    except (ParameterError, MemoryError):
        raise
    except Exception as error:
        raise EngineError(f"{argument} could not be read ({path}): {type(error).__name__}") from error


def _read_excel(path: str, argument: str) -> pa.Table:
    import python_calamine

    book = python_calamine.CalamineWorkbook.from_path(path)
    if len(book.sheet_names) > 1:
        # Choosing a sheet by its place would change what is published when sheets are moved.
        raise ParameterError(
            f"{argument}: {path} has {len(book.sheet_names)} sheets; keep the one with the records only"
        )
    rows = book.get_sheet_by_index(0).to_python(skip_empty_area=True)
    names = [str(name).strip() for name in rows[0]] if rows else []
    if not names or not all(names) or len({name.casefold() for name in names}) < len(names):
        raise ParameterError(f"{argument}: the first row of {path} must name every column, each by another name")
    columns = zip(*rows[1:], strict=True) if len(rows) > 1 else [()] * len(names)
    texts = [pa.array(map(_cell_text, column), pa.string()) for column in columns]
    return pa.table(dict(zip(names, texts, strict=True)))


def _cell_text(cell: Any) -> str | None:
    """Return what a cell holds as text: whole numbers without a point, dates and times in ISO's way."""
    if cell is None or cell == "":
        return None
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() and abs(cell) < 2**63 else repr(cell)
    if isinstance(cell, datetime):
        return cell.date().isoformat() if cell.time() == time() else cell.isoformat(" ")
    if isinstance(cell, date | time):
        return cell.isoformat()
    return str(cell.total_seconds()) if isinstance(cell, timedelta) else str(cell)


def _read_statistics(path: str, reader: str) -> pa.Table:
    import pyreadstat

    read: Callable[..., Any] = getattr(pyreadstat, reader)
    columns, meta = read(path, output_format="dict")
    return pa.table({name: _array(columns[name], _stored(name, meta)) for name in meta.column_names})


def _stored(name: str, meta: Any) -> pa.DataType:
    """Return the type that a file declares for a column; dates are numbers with a date's format."""
    written = str(meta.original_variable_types.get(name) or "").upper()
    if written.startswith(MOMENTS):
        return pa.timestamp("us")
    if written.startswith(DAYS):
        return pa.date32()
    return STORED.get(meta.readstat_variable_types.get(name, ""), pa.string())


def _array(values: Any, stored: pa.DataType) -> pa.Array:
    items = [None if item is None or item != item or item == "" else item for item in values]
    if pa.types.is_integer(stored):
        items = [None if item is None else int(item) for item in items]
    elif pa.types.is_string(stored):
        items = [None if item is None else str(item) for item in items]
    return pa.array(items, stored)
