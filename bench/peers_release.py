"""Print the seconds that another library takes for the same release, as JSON. Runs in the environment `.venv-peers`.

Both libraries need bounds to which values are clamped. Neither returns intervals that account for the clamping.
"""

import json
import os
import sys
import tempfile
import time
from typing import Any

COLUMNS = ("emp", "payqtr1", "payann")
BOUNDS = (0, 10_000)


def opendp(path: str, keys: Any) -> float:
    """Return the time of three sums by explicit keys, on polars."""
    import opendp.prelude as dp
    import polars as pl

    dp.enable_features("contrib")
    start = time.perf_counter()
    context = dp.Context.compositor(
        data=pl.scan_parquet(path),
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(rho=1.0),
        split_evenly_over=1,
        margins=[dp.polars.Margin(by=["county", "naics3"], max_length=1_000_000)],
    )
    sums = [getattr(pl.col(name).fill_null(0), "dp").sum(BOUNDS) for name in COLUMNS]  # noqa: B009 - OpenDP adds it
    released = context.query().group_by("county", "naics3").agg(sums).with_keys(keys).release().collect()
    assert released.height == keys.height, released.height
    return time.perf_counter() - start


def tumult(path: str, keys: Any) -> float:
    """Return the time of three sums by explicit keys, on a Spark session that is already running."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession
    from tmlt.analytics import AddOneRow, KeySet, QueryBuilder, RhoZCDPBudget, Session

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.driver.memory", "4g")
    # Tumult writes tables to Spark's warehouse and does not remove them.
    builder = builder.config("spark.sql.warehouse.dir", tempfile.mkdtemp(prefix="slowscale-tumult-"))
    spark = builder.config("spark.log.level", "ERROR").getOrCreate()
    frame = spark.read.parquet(path)
    frame.count()
    start = time.perf_counter()
    keyset = KeySet.from_dataframe(spark.createDataFrame(keys.to_pandas()))
    session = Session.from_dataframe(RhoZCDPBudget(1), "records", frame, protected_change=AddOneRow())
    for name in COLUMNS:
        query = QueryBuilder("records").groupby(keyset).sum(name, *BOUNDS)
        assert session.evaluate(query, RhoZCDPBudget(1 / len(COLUMNS))).toPandas().shape[0] == keys.height
    return time.perf_counter() - start


def main() -> None:
    import polars as pl

    peer, path, key_path = sys.argv[1:]
    keys = pl.read_parquet(key_path)
    json.dump({"opendp": opendp, "tumult": tumult}[peer](path, keys), sys.stdout)


if __name__ == "__main__":
    main()
