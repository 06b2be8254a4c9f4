"""Time of releases by data source: Spark against its own groupBy, CSV against Parquet, and a small cold job.

Targets:

- Three columns of 10⁷ Parquet rows in 10⁵ groups on Spark take at most 1.7 times as long as a `groupBy` with float
  sums.
- A second query on a CSV file of 300,000 rows takes at most 3 times as long as on Parquet.
- A cold job (a new process, from import to result, 10⁵ rows, 10³ groups) takes at most 2.5 times as long as
  `import ibis` and the plain query on DuckDB.
"""

import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import duckdb
from bench_release import COLUMNS, KEYS, MECHANISMS, simulate
from measure import report, seconds

import slowscale as ss

COLD = """
import slowscale as ss
keys = ss.Keys.cross({"k": list(range(1000))})
assert len(ss.Session(r"PATH").sum({"x": ss.Gaussian(sigma=5)}, keys=keys).table) == 1000
"""
COLD_PLAIN = """
import ibis, duckdb
assert duckdb.connect().sql(r"SELECT k, sum(x) FROM 'PATH' GROUP BY k").to_arrow_table().num_rows == 1000
"""


def on_spark(path: Path) -> None:
    from pyspark.sql import SparkSession, functions

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.driver.memory", "4g").config("spark.log.level", "ERROR")
        spark = builder.config("spark.sql.shuffle.partitions", "4").getOrCreate()
    frame = spark.read.parquet(str(path))
    session = ss.Session(frame)
    floats = [functions.sum(functions.col(name).cast("double")).alias(name) for name in COLUMNS]
    candidates = {
        "Spark float sums": lambda: frame.groupBy("county", "naics3").agg(*floats).toArrow(),
        "release": lambda: session.sum(MECHANISMS, keys=KEYS),
    }
    report(
        "10⁷ rows of whole numbers, 10⁵ groups, 3 columns, on Spark",
        seconds(candidates, rounds=7),
        "Spark float sums",
        1.7,
    )
    spark.stop()


def from_csv(folder: Path) -> None:
    parquet, text = folder / "small.parquet", folder / "small.csv"
    simulate(parquet, 300_000, "BIGINT")
    duckdb.connect().execute(f"COPY (FROM '{parquet}') TO '{text}' (HEADER)")
    sessions = {
        "Parquet": ss.Session(parquet),
        "CSV, types declared": ss.Session(text, types=dict.fromkeys(COLUMNS, "int64")),
        "CSV, columns as written": ss.Session(text),
    }
    keys = KEYS.filter(lambda county, naics3: naics3 < "010")
    candidates = {name: lambda one=one: one.sum(MECHANISMS, keys=keys) for name, one in sessions.items()}
    report("A second query on 300,000 rows, 10⁴ groups, 3 columns", seconds(candidates, rounds=15), "Parquet", 3)


def cold(folder: Path) -> None:
    path = folder / "cold.parquet"
    duckdb.connect().execute(
        f"COPY (SELECT range % 1000 AS k, CAST(random() * 1000 AS BIGINT) AS x FROM range(100000)) TO '{path}'"
    )
    candidates = {
        name: lambda code=code: subprocess.run([sys.executable, "-c", code.replace("PATH", str(path))], check=True)
        for name, code in (("import ibis, plain DuckDB", COLD_PLAIN), ("import slowscale, release", COLD))
    }
    report("A cold job: 10⁵ rows, 10³ groups", seconds(candidates, rounds=15), "import ibis, plain DuckDB", 2.5)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        cold(Path(place))
        from_csv(Path(place))
        simulate(Path(place) / "BIGINT.parquet", 10**7, "BIGINT")
        on_spark(Path(place) / "BIGINT.parquet")
