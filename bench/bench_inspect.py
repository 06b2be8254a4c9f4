"""Time of a look at the records, and of the losses of a release, compared with the release itself; and time of the
count of open cells, compared with plain sums.

Targets: on 5 million Parquet rows in 10⁵ groups with three columns, `session.inspect` takes at most four times the time
of the release. The open cells of one column in 10³ groups take at most twice the time of DuckDB's own float sums. For
three columns in 10⁵ groups, where DuckDB's aggregate of the two largest values takes 3.5 times as long as the sums, the
ratio is shown without a target.
"""

import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import duckdb
from bench_release import COLUMNS, KEYS, MECHANISMS, simulate
from measure import report, seconds

import slowscale as ss

QUERY = ss.Sums(MECHANISMS, KEYS)
COUNTIES = [f"{i:05}" for i in range(1000)]


def released(path: Path) -> object:
    return ss.Session(path).release(QUERY)


def inspected(path: Path) -> object:
    return ss.Session(path).inspect(QUERY)


def summed(path: Path, columns: tuple[str, ...], by: str) -> object:
    """Sum floats by group, without this library."""
    sums = ", ".join(f"sum(CAST({name} AS DOUBLE))" for name in columns)
    return duckdb.connect().sql(f"SELECT {by}, {sums} FROM '{path}' GROUP BY {by}").to_arrow_table()


def main(folder: Path, rows: int, rounds: int) -> None:
    for dtype, words in (("BIGINT", "whole numbers"), ("DOUBLE", "floats")):
        path = folder / f"{dtype}.parquet"
        simulate(path, rows, dtype)
        session = ss.Session(path)
        made = session.release(QUERY)
        session.inspect(QUERY)
        candidates: dict[str, Callable[[], object]] = {
            "release": partial(released, path),
            "inspect": partial(inspected, path),
            "losses": partial(session.losses, made),
        }
        title = f"{rows:,} rows of {words}, 10⁵ groups, 3 columns, from Parquet"
        report(title, seconds(candidates, rounds=rounds), "release", target=4)
        counties = session.release(ss.Sums({"payann": MECHANISMS["payann"]}, ss.Keys.cross({"county": COUNTIES})))
        for release, columns, by, where, target in (
            (counties, ("payann",), "county", "10³ groups, 1 column", 2),
            (made, COLUMNS, "county, naics3", "10⁵ groups, 3 columns", None),
        ):
            candidates = {
                "float sums": partial(summed, path, columns, by),
                "open cells": partial(session.dominance, release),
            }
            report(f"{rows:,} rows of {words}, {where}", seconds(candidates, rounds=rounds), "float sums", target)


if __name__ == "__main__":
    quick = "--quick" in sys.argv
    with tempfile.TemporaryDirectory() as place:
        main(Path(place), 5_000_000, 3 if quick else 7)
