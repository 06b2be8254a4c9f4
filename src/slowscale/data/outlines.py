"""Outlines: the columns of the data without its records, for checking a query before any record is read."""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import ibis
import pyarrow as pa
import pyarrow.parquet

from slowscale.core.errors import EngineError, ParameterError, install_hint
from slowscale.data import foreign, sources, textfiles
from slowscale.data.engines import engine_errors
from slowscale.data.textfiles import CsvFormat
from slowscale.data.types import arrow_types

Given = dict[str, Any]


@contextmanager
def outline(
    data: str | Sequence[str], types: Mapping[str, str] | None = None, csv: Mapping[str, Any] | None = None
) -> Iterator[Given]:
    """Yield the arguments of a session on a table with the columns of the data and no records.

    Only the header or the schema is read.

    Parameters
    ----------
    data
        The paths of files, or the address of a database table.
    types, csv
        As in `ss.Session`.
    """
    paths = [data] if isinstance(data, str) else list(data)
    if len(paths) == 1 and "://" in paths[0]:
        table = sources.open_table(paths[0], types, csv)
        yield {"data": table.filter(ibis.literal(False))}
        return
    files, kind = sources.files_of_one_kind(paths, csv is not None, "data")
    if kind == "CSV":
        form = CsvFormat.of(csv)
        with engine_errors("data could not be read"):
            names = _common_header(files, form)
        with _empty_file() as place:
            yield {"data": place, "types": types, "csv": {**(csv or {}), "encoding": "utf-8", "header": names}}
    elif kind == "Parquet":
        yield {"data": _parquet_outline(paths, files), "types": types}
    elif files[0].lower().endswith(foreign.EXCEL):
        # Its cells are text, like those of a CSV file.
        with foreign.foreign_errors(files[0], "data"):
            header = foreign.excel_header(files[0], "data")
        with _empty_file() as place:
            yield {"data": place, "types": types, "csv": {"header": header}}
    else:
        yield {"data": _statistics_outline(files[0]), "types": types}


@contextmanager
def _empty_file() -> Iterator[str]:
    """Yield the path of a temporary CSV file without lines."""
    with tempfile.TemporaryDirectory(prefix="slowscale-") as folder:
        place = os.path.join(folder, "header.csv")
        with open(place, "xb"):
            pass
        yield place


def _common_header(files: Sequence[str], form: CsvFormat) -> tuple[str, ...]:
    names = textfiles.header_of(files[0], form, "data")
    for file in files[1:]:
        if textfiles.header_of(file, form, "data") != names:
            raise ParameterError(
                f"data: {files[0]} and {file}", "have different headers", remedy="give files with the same columns"
            )
    return names


def _parquet_outline(paths: Sequence[str], files: Sequence[str]) -> pa.Table:
    with engine_errors(f"data could not be read ({', '.join(paths)})"):
        # Read by DuckDB, as in a release: for some types, such as enums, DuckDB and Arrow disagree.
        connection, reading, stored = sources.parquet_relation(paths, files, "data")
        found = connection.con.execute(f"SELECT * FROM {reading} LIMIT 0").to_arrow_table()
        schema = pa.parquet.read_schema(files[0])
        for name, known in arrow_types(schema).items():
            dtype = stored[name].dtype
            if dtype is None:  # a release leaves the column out, and so does a session on the outline
                given = schema.field(name).type if known.dtype is None else pa.null()
            elif dtype.is_uuid():
                given = pa.uuid()  # DuckDB returns text
            else:
                continue
            found = found.set_column(found.column_names.index(name), name, pa.array([], given))
        return found


def _statistics_outline(file: str) -> pa.Table:
    reader = next(reader for ending, reader in foreign.STATISTICS.items() if file.lower().endswith(ending))
    try:
        import pyreadstat
    except ImportError as error:
        raise EngineError(f"data could not be read ({file}): {error}", remedy=f"{install_hint('files')}") from error
    with engine_errors(f"data could not be read ({file})", quote=False):
        _, meta = getattr(pyreadstat, reader)(file, metadataonly=True)
        declared = foreign.declared_types(reader, meta)
        return pa.schema({name: column.dtype for name, column in declared.items()}).empty_table()
