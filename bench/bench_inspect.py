"""Time of a look at the records, and of the losses of a release, compared with the release itself; and of the search for
the largest contributors, compared with plain sums.

Targets: on 5 million Parquet rows in 10⁵ groups with three columns, `session.inspect` takes at most four times the time
of the release, and the open cells take at most twice the time of DuckDB's own float sums.
"""

import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench_release import KEYS, MECHANISMS, plain, simulate
from measure import report, seconds

import slowscale as ss

QUERY = ss.Sums(MECHANISMS, KEYS)


def released(path: Path) -> object:
    return ss.Session(path).release(QUERY)


def inspected(path: Path) -> object:
    return ss.Session(path).inspect(QUERY)


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
        candidates = {"float sums": partial(plain, path), "open cells": partial(session.dominance, made)}
        report(title, seconds(candidates, rounds=rounds), "float sums", target=2)


if __name__ == "__main__":
    quick = "--quick" in sys.argv
    with tempfile.TemporaryDirectory() as place:
        main(Path(place), 5_000_000, 3 if quick else 7)
