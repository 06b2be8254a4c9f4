"""Time and memory of releases with many cells, compared with a plain GROUP BY of DuckDB that is written to Parquet.

Two columns of as many records as cells, in crossed public keys of text and whole numbers. Targets:

- At most 1.5 GB at all sizes.
- From 10⁷ cells on, the time per cell is flat within 30 %.
- At 10⁷ cells, at most 5 times the plain GROUP BY.

Sizes can be given, such as `bench_cells.py 1e6 1e8`. The time for 10⁹ cells is extrapolated from the largest one.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

SIZES = (10**6, 10**7, 3 * 10**7)
RECORDS = """
COPY (SELECT lpad((random() * {side})::INT::VARCHAR, 6, '0') AS county, (random() * {side})::INT AS naics,
             exp(random() * 10)::BIGINT AS emp, exp(random() * 12)::BIGINT AS payann
      FROM range({cells})) TO '{path}'
"""
CHILD = """
import json, resource, sys, time
kind, side, path, out = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
if kind == "release":
    import slowscale as ss
    start = time.perf_counter()
    keys = ss.Keys.cross({"county": [f"{i:06}" for i in range(side)], "naics": range(side)})
    sums = ss.Sums({"emp": ss.ArsinhNormal(scale=5, shape=1.1), "payann": ss.ExponentialPolylog(d=0.24)}, keys=keys)
    ss.Session(path).release(sums, to=out)
else:
    import duckdb
    start = time.perf_counter()
    query = f"SELECT county, naics, sum(emp) AS emp, sum(payann) AS payann FROM '{path}' GROUP BY county, naics"
    duckdb.execute(f"COPY ({query}) TO '{out}.parquet'")
seconds = time.perf_counter() - start
print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""


def measured(kind: str, side: int, path: Path, out: Path) -> tuple[float, float, float]:
    """Return the seconds, the peak memory and the peak of temporary files, in MB, of a process."""
    command = [sys.executable, "-c", CHILD, kind, str(side), str(path), str(out)]
    disk = 0
    with tempfile.TemporaryDirectory() as place:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": place})
        while child.poll() is None:
            disk = max(disk, size_of(Path(place)))
            time.sleep(0.1)
        printed, _ = child.communicate()
    seconds, memory = json.loads(printed.splitlines()[-1])
    return seconds, memory, disk / 2**20


def size_of(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def main(folder: Path, sizes: list[int]) -> None:
    import duckdb

    per_cell: dict[int, float] = {}
    print("cells: seconds, ns per cell, peak MB, MB of temporary files, MB written; plain GROUP BY to Parquet: seconds")
    for size in sizes:
        side, path = round(size**0.5), folder / f"{size}.parquet"
        cells = side * side
        duckdb.connect().execute(RECORDS.format(side=side, cells=cells, path=path))
        plain, *_ = measured("plain", side, path, folder / f"plain{size}")
        seconds, memory, disk = measured("release", side, path, folder / f"out{size}")
        per_cell[cells] = seconds / cells
        verdict = "ok" if memory <= 1500 else "OVER 1500 MB"
        if 0.9e7 < cells < 1.1e7:
            verdict += ", ok" if seconds <= 5 * plain else ", OVER 5 times"
        print(
            f"  {cells:>11,}: {seconds:7.1f} s {seconds / cells * 1e9:7.0f} ns {memory:6.0f} MB {disk:6.0f} MB "
            f"{size_of(folder / f'out{size}') / 2**20:6.0f} MB; {plain:6.1f} s, {seconds / plain:4.1f} x  {verdict}",
            flush=True,
        )
        for used in (path, folder / f"plain{size}.parquet", folder / f"out{size}" / "table.parquet"):
            used.unlink()
    large = [found for cells, found in per_cell.items() if cells > 0.9e7]
    if len(large) > 1:
        spread = max(large) / min(large) - 1
        print(f"  time per cell from 10⁷ on: within {spread:.0%}  {'ok' if spread <= 0.3 else 'OVER 30 %'}")
    if large:
        print(f"  extrapolated from the largest size: 10⁹ cells in {large[-1] * 1e9 / 3600:.1f} hours")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place), [int(float(size)) for size in sys.argv[1:]] or list(SIZES))
