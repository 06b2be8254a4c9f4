"""Sources: whatever holds the records becomes one Ibis table, on the engine where the data already is.

Files and frames are read by DuckDB in this process; an Ibis table or a Spark DataFrame stays where it is.
"""

import glob
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import ibis
import ibis.expr.types as ir
import pyarrow as pa
import pyarrow.parquet
from ibis.backends.sql import SQLBackend

from slowscale.errors import EngineError, ParameterError, ParameterTypeError

ALLOWED = (
    "a Parquet or CSV path, a pandas, polars or pyarrow table, an Ibis table, a Spark DataFrame, "
    'or a database address such as "postgresql://host/database#table"'
)
PARQUET = (".parquet", ".pq")
CSV = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz", ".csv.zst", ".tsv.zst")

REMOTE = ("http", "https", "s3", "gs", "gcs", "az", "abfs", "hf", "ftp")

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
    if types is not None and not isinstance(types, Mapping):
        raise ParameterTypeError(f'types must be a mapping such as {{"county": "string"}}, got {types!r:.60}')
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
    except Exception as error:  # its words may quote a record
        raise ParameterTypeError(f"{argument} cannot be read: {_culprit(data)}") from error
    if len({name.casefold() for name in table.column_names}) < table.num_columns:
        raise ParameterError(f"{argument} has several columns of one name, or of names that differ in case only")
    return table.replace_schema_metadata(None)


def _culprit(frame: Any) -> str:
    """Say which column of a pandas frame has no type that Arrow knows."""
    for name in frame.columns if type(frame).__module__.startswith("pandas") else []:
        try:
            pa.array(frame[name], from_pandas=True)
        except Exception:
            return f"column {name!r} has values of mixed types, or too large"
    return "the frame itself raises an error"


def engine_of(table: ir.Table) -> str:
    """Return the name of the engine that holds a table: "duckdb", "postgres", "pyspark"…"""
    try:
        backend = table.get_backend()
        if not isinstance(backend, SQLBackend):
            raise ParameterError(f"data must be on an engine that takes SQL, such as DuckDB; {backend.name} does not")
        return str(backend.name)
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
        escaped = [glob.escape(file) for file in files]
        if kinds == {"parquet"}:
            _only_for_csv(types)
            _check_schemas(files)
            return connection.read_parquet(escaped, hive_partitioning=False)
        # All rows are looked at to tell the types: a code such as 01001 in the last one keeps the column text.
        chosen = {name: _dtype(name, dtype) for name, dtype in (types or {}).items()}
        guessed = connection.read_csv(escaped, sample_size=-1, hive_partitioning=False)
        unknown = set(chosen) - set(guessed.columns)
        if unknown:
            raise ParameterError(f"types names columns that the file has not: {', '.join(sorted(unknown))}")
        if not chosen:
            return guessed
        return connection.read_csv(escaped, sample_size=-1, hive_partitioning=False, types=chosen)


def _check_schemas(files: Sequence[str]) -> None:
    """Raise where Parquet files differ in their columns: the first file's types would be forced on the others."""
    first = pa.parquet.read_schema(files[0]).remove_metadata()
    for file in files[1:]:
        if not pa.parquet.read_schema(file).remove_metadata().equals(first):
            raise ParameterError(f"{files[0]} and {file} have different columns, or different types of them")


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
    place, _, name = address.rpartition("#")
    scheme, _, path = place.partition("://")
    if address.partition("://")[0] in REMOTE:
        raise ParameterError(f"{argument} must be a local file: give an Ibis table to read from a web or cloud address")
    if not re.fullmatch(r"[\w.]+", name):
        raise ParameterError(
            f'{argument} must name the table after the address, as in "postgresql://host/database#table"'
        )
    if scheme in ("duckdb", "sqlite") and not os.path.exists(path):
        raise ParameterError(f"{argument}: there is no file {path}")
    database, _, table = name.rpartition(".")
    secret = path.rpartition("@")[0].partition(":")[2]
    shown = place.replace(f":{secret}@", "@") if secret else place
    try:
        connection = ibis.connect(place)
    except Exception as error:
        words = _first_line(error).replace(place, shown)
        words = words.replace(secret, "***") if secret else words
        raise EngineError(f"{argument} could not be reached ({shown}): {words}") from error
    with engine_errors(f"{argument}: there is no table {name} in {shown}"):
        return connection.table(table, database=database or None)


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
    except ImportError as error:
        raise EngineError(
            f"{what}: {_first_line(error)}; pip install 'slowscale[postgres]' or 'slowscale[spark]'"
        ) from error
    except Exception as error:
        if type(error).__name__ == "InterruptException":  # DuckDB's word for Ctrl-C
            raise KeyboardInterrupt from error
        why = _first_line(error) if quote else f"{type(error).__name__}; the engine's own words may quote records"
        raise EngineError(f"{what}: {why}") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
