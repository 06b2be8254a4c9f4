"""Time and memory of whole releases, compared with an inexact GROUP BY of the same engine and with other libraries.

Targets:

- Three columns of 10⁷ Parquet rows in 10⁵ groups, with noise and intervals, take at most twice the time of DuckDB's own
  float sums.
- 10⁸ rows need less than 4 GB, and at most 1.25 times the memory of 10⁷ rows.
- At 10⁶ rows and 10⁵ public groups, a release is at least 10 times faster than OpenDP on polars and 50 times faster
  than Tumult Analytics on a running Spark.

The option `--quick` omits the other libraries and the 10⁸ rows.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb
import pyarrow.parquet
from measure import report, seconds

import slowscale as ss

PEERS = Path(__file__).parents[1] / ".venv-peers" / "bin" / "python"
COLUMNS = ("emp", "payqtr1", "payann")
MECHANISMS = {
    name: ss.ExponentialPolylog.calibrate(std=std) for name, std in zip(COLUMNS, (1.41, 17.7, 75), strict=True)
}
KEYS = ss.Keys.cross({"county": [f"{i:05}" for i in range(1000)], "naics3": [f"{i:03}" for i in range(100)]})
RECORDS = """
COPY (
    SELECT lpad(CAST(CAST(floor(random() * 1000) AS INT) AS VARCHAR), 5, '0') AS county,
           lpad(CAST(CAST(floor(random() * 100) AS INT) AS VARCHAR), 3, '0') AS naics3,
           {columns}
    FROM range({rows})
) TO '{path}'
"""
NORMAL = "sqrt(-2 * ln(1 - random())) * cos(2 * pi() * random())"
PEAK = """
import resource, sys, slowscale as ss
keys = ss.Keys.cross({"county": [f"{i:05}" for i in range(1000)], "naics3": [f"{i:03}" for i in range(100)]})
session = ss.Session(sys.argv[1])
release = session.sum({name: ss.Gaussian(sigma=75) for name in ("emp", "payqtr1", "payann")}, keys=keys)
assert len(release.table) == 100_000
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def simulate(path: Path, rows: int, dtype: str) -> None:
    """Write skewed records, as whole numbers or as floats with a fractional part."""
    values = [f"CAST(exp(2 * {NORMAL} + {m}) AS {dtype}) AS {name}" for name, m in zip(COLUMNS, (1, 3, 5), strict=True)]
    duckdb.connect().execute(RECORDS.format(columns=", ".join(values), rows=rows, path=path))


def plain(path: Path) -> object:
    """Sum floats by group, without this library."""
    sums = ", ".join(f"sum(CAST({name} AS DOUBLE)) AS {name}" for name in COLUMNS)
    query = f"SELECT county, naics3, {sums} FROM '{path}' GROUP BY county, naics3"
    return duckdb.connect().sql(query).to_arrow_table()


def released(path: Path) -> object:
    return ss.Session(path).sum(MECHANISMS, keys=KEYS)


def peak(path: Path) -> float:
    """Return the peak memory, in MB, of a process that makes one release."""
    done = subprocess.run([sys.executable, "-c", PEAK, str(path)], capture_output=True, text=True, check=True)
    return float(done.stdout)


def peer(name: str, *paths: Path) -> float:
    arguments = [str(PEERS), str(Path(__file__).with_name("peers_release.py")), name, *map(str, paths)]
    return float(json.loads(subprocess.run(arguments, capture_output=True, text=True, check=True).stdout))


def main(folder: Path, quick: bool) -> None:
    for dtype, words in (("BIGINT", "whole numbers"), ("DOUBLE", "floats")):
        path = folder / f"{dtype}.parquet"
        simulate(path, 10**7, dtype)
        released(path)
        candidates = {"DuckDB float sums": lambda path=path: plain(path), "release": lambda path=path: released(path)}
        title = f"10⁷ rows of {words}, 10⁵ groups, 3 columns, from Parquet"
        report(title, seconds(candidates, rounds=9), "DuckDB float sums", target=2)
    if quick:
        return
    many = folder / "many"
    many.mkdir()
    for i in range(10):
        (many / f"{i}.parquet").symlink_to(folder / "BIGINT.parquet")
    small, large = peak(folder / "BIGINT.parquet"), peak(many / "*.parquet")
    verdict = "ok" if large < 4000 and large < 1.25 * small else "OVER 4000 MB, or 1.25 times that of 10⁷"
    print(f"peak memory: {small:,.0f} MB for 10⁷ rows, {large:,.0f} MB for 10⁸ rows  {verdict}\n")

    records, keys = folder / "records.parquet", folder / "keys.parquet"
    simulate(records, 10**6, "BIGINT")
    pyarrow.parquet.write_table(KEYS.table, keys)
    times = seconds({"release": lambda: released(records)}, rounds=5)
    times |= {"OpenDP on polars": peer("opendp", records, keys)}
    times |= {"Tumult on Spark": peer("tumult", records, keys)}
    report("10⁶ rows, 10⁵ public groups, 3 columns", times, "release")
    for name, least in (("OpenDP on polars", 10), ("Tumult on Spark", 50)):
        ratio = times[name] / times["release"]
        print(f"  {ratio:,.0f} times faster than {name}  {'ok' if ratio >= least else f'UNDER {least}'}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place), "--quick" in sys.argv)
