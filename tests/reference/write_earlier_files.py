"""Write the files in earlier/: a ledger and a release as an earlier version wrote them, which must stay readable.

They were written once, by commit 615c229, whose ledgers used SQLite's write-ahead log:
PYTHONPATH=<src of that commit> python tests/reference/write_earlier_files.py tests/reference/earlier
"""

import sys
from pathlib import Path

import pyarrow as pa

import slowscale as ss

RECORDS = pa.table({"state": ["IA", "IA", "TX"], "emp": [10, 20, 300], "pay": [1, 2, 3]})
KEYS = ss.Keys.cross({"state": ["IA", "TX"]})


def root(x):
    return x**0.5


def square(x):
    return x * x


root.__module__ = square.__module__ = "reference"


def main(folder):
    folder.mkdir()
    caps = {"emp": 20 * ss.Gaussian(10).policy, "count": ss.Gaussian(1).policy}
    ledger = ss.Ledger(folder / "census.ledger", caps, functions={"reference.root": root})
    session = ss.Session(RECORDS, ledger)
    release = session.sum({"emp": ss.Gaussian(10), "pay": ss.ExponentialPolylog(1)}, keys=KEYS, where="emp > 1")
    release.to_parquet(folder / "release.parquet")
    release.to_csv(folder / "release.csv")
    session.count(mechanism=ss.Gaussian(2))
    session.sum({"emp": ss.Gaussian(20)}, keys=KEYS.filter(state="TX"), partition="state")
    session.sum({"pay": ss.Transformation(root, square, sigma=1, a=0, estimator="median")})
    ledger.raise_cap("emp", 30 * ss.Gaussian(10).policy, "a second year")
    ledger.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
