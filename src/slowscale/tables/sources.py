"""Sources: whatever holds the records becomes one Ibis table, on the engine where the data already is.

Files and frames are read by DuckDB in this process; an Ibis table or a Spark DataFrame stays where it is.
"""

import glob
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import ibis
import ibis.expr.types as ir
import pyarrow as pa

from slowscale.errors import EngineError, ParameterError, ParameterTypeError

ALLOWED = (
    "a Parquet or CSV path, a pandas, polars or pyarrow table, an Ibis table, a Spark DataFrame, "
    'or a database address such as "postgresql://host/database#table"'
)
PARQUET = (".parquet", ".pq")
CSV = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz", ".csv.zst", ".tsv.zst")

_names = itertools.count()


def open_table(data: Any, types: Mapping[str, str] | None = None, argument: str = "data") -> ir.Table:
    """Return any kind of data as an Ibis table.

    Parameters
    ----------
    data
        The records.
    types
        For CSV files: the types of columns that are not to be guessed, such as {"county": "string"}.
    argument
        What errors call the data.
    """
    if isinstance(data, str | os.PathLike):
        text = os.fspath(data)
        if isinstance(text, bytes):
            text = os.fsdecode(text)
        if "://" in text:
            _only_for_csv(types)
            return _open_address(text, argument)
        return _open_files([text], types, argument)
    if isinstance(data, list | tuple) and data and all(isinstance(item, str | os.PathLike) for item in data):
        return _open_files([os.fspath(item) for item in data], types, argument)
    _only_for_csv(types)
    if isinstance(data, ir.Table):
        return data
    if type(data).__module__.startswith("pyspark.sql"):
        return _open_spark(data)
    frame = as_arrow(data, argument)
    if frame is None:
        raise ParameterTypeError(f"{argument} must be {ALLOWED}, got {type(data).__name__}")
    connection = ibis.duckdb.connect()
    name = f"frame_{next(_names)}"
    with engine_errors(f"{argument} could not be read"):
        connection.con.register(name, frame)
        return connection.table(name)


def as_arrow(data: Any, argument: str) -> pa.Table | None:
    """Return a frame in memory as an Arrow table, or None if it is none."""
    module = type(data).__module__.split(".")[0]
    names = list(getattr(data, "columns", [])) if module == "pandas" else []
    if len(set(names)) < len(names):
        raise ParameterError(f"{argument} has several columns of one name")
    try:
        if isinstance(data, pa.Table):
            table = data
        elif isinstance(data, pa.RecordBatch):
            table = pa.Table.from_batches([data])
        elif module == "pandas" and hasattr(data, "columns"):
            table = pa.Table.from_pandas(data, preserve_index=False)
        elif module == "polars" and hasattr(data, "collect_schema"):
            table = (data.collect() if hasattr(data, "collect") else data).to_arrow()
        else:
            return None
    except (pa.ArrowException, TypeError) as error:
        raise ParameterTypeError(f"{argument} has a column of mixed types: {_first_line(error)}") from error
    if len(set(table.column_names)) < table.num_columns:
        raise ParameterError(f"{argument} has several columns of one name")
    return table.replace_schema_metadata(None)


def engine_of(table: ir.Table) -> str:
    """Return the name of the engine that holds a table: "duckdb", "postgres", "pyspark"…"""
    try:
        return str(table.get_backend().name)
    except ibis.common.exceptions.IbisError as error:
        raise ParameterError("data must be an Ibis table of one connected engine: this one has none, or several") from (
            error
        )


def _only_for_csv(types: Mapping[str, str] | None) -> None:
    if types:
        raise ParameterError("types must be given for CSV files only: other data has types of its own")


def _open_files(paths: Sequence[str], types: Mapping[str, str] | None, argument: str) -> ir.Table:
    files = [file for path in paths for file in _matching(path, argument)]
    kinds = {_kind(file, argument) for file in files}
    if len(kinds) > 1:
        raise ParameterError(f"{argument} must be all Parquet or all CSV, got both")
    connection = ibis.duckdb.connect()
    # Records are read once; keeping the file in memory would let the peak grow with it.
    connection.raw_sql("SET enable_external_file_cache = false")
    connection.raw_sql("SET preserve_insertion_order = false")
    with engine_errors(f"{argument} could not be read ({', '.join(paths)})"):
        if kinds == {"parquet"}:
            _only_for_csv(types)
            return connection.read_parquet(files)
        # All rows are looked at to tell the types: a code such as 01001 in the last one keeps the column text.
        chosen = {name: _dtype(name, dtype) for name, dtype in (types or {}).items()}
        guessed = connection.read_csv(files, sample_size=-1)
        unknown = set(chosen) - set(guessed.columns)
        if unknown:
            raise ParameterError(f"types names columns that the file has not: {', '.join(sorted(unknown))}")
        return connection.read_csv(files, sample_size=-1, types=chosen) if chosen else guessed


def _dtype(name: str, dtype: str) -> str:
    try:
        return str(ibis.dtype(dtype))
    except Exception:
        raise ParameterError(
            f'types[{name!r}] must be a type such as "string", "int64" or "float64", got {dtype!r}'
        ) from None


def _matching(path: str, argument: str) -> list[str]:
    if os.path.isfile(path):
        return [path]
    if os.path.isdir(path):
        raise ParameterError(f"{argument} is a folder: name its files, for instance {os.path.join(path, '*.parquet')}")
    found = sorted(file for file in glob.glob(path, recursive=True) if os.path.isfile(file))
    if not found:
        raise ParameterError(f"{argument}: no file matches {path}")
    return found


def _kind(path: str, argument: str) -> str:
    lowered = path.lower()
    if lowered.endswith(PARQUET):
        return "parquet"
    if lowered.endswith(CSV):
        return "csv"
    raise ParameterError(f"{argument} must be a file ending in {', '.join(PARQUET + CSV[:4])}, got {path}")


def _open_address(address: str, argument: str) -> ir.Table:
    place, _, name = address.partition("#")
    if not name:
        raise ParameterError(f"{argument} must name the table after the address, as in {_without_secret(place)}#table")
    database, _, table = name.rpartition(".")
    with engine_errors(f"{argument} could not be reached ({_without_secret(place)})"):
        connection = ibis.connect(place)
    with engine_errors(f"{argument}: there is no table {name} in {_without_secret(place)}"):
        return connection.table(table, database=database or None)


def _without_secret(address: str) -> str:
    scheme, mark, rest = address.partition("://")
    user, at, host = rest.rpartition("@")
    return f"{scheme}{mark}{user.partition(':')[0]}{at}{host}".partition("?")[0]


def _open_spark(frame: Any) -> ir.Table:
    if not hasattr(frame, "createOrReplaceTempView"):
        raise ParameterTypeError(f"data must be {ALLOWED}, got {type(frame).__name__}")
    with engine_errors("the Spark DataFrame could not be read"):
        connection = ibis.pyspark.connect(frame.sparkSession)
        name = f"slowscale_{os.getpid()}_{next(_names)}"
        frame.createOrReplaceTempView(name)
        return connection.table(name)


@contextmanager
def engine_errors(what: str, quote: bool = True) -> Iterator[None]:
    """Turn what an engine raises into an `EngineError`.

    Its own words are quoted only where no record has been read yet: later they may name a confidential value, and
    are left to `__cause__`.
    """
    try:
        yield
    except (ParameterError, ParameterTypeError, KeyboardInterrupt, MemoryError):
        raise
    except Exception as error:
        why = _first_line(error) if quote else f"{type(error).__name__}; the engine's own words may quote records"
        raise EngineError(f"{what}: {why}") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
