"""Records with one of each fault that a look at them finds, and a query on them."""

import pyarrow as pa

import slowscale as ss

STATES = ["TEXAS", "IOWA", "NEVADA", "OHIO"]
KEYS = ss.Keys.cross({"state": STATES})
# One row is a copy; TEXSA and "iowa " are near misses; FRANCE is outside; one label is missing; NEVADA has no record.
TABLE = pa.table(
    {
        "state": ["TEXAS", "TEXAS", "IOWA", "TEXSA", "TEXSA", "iowa ", "FRANCE", None, "OHIO", "OHIO"],
        "x": pa.array([100, 100, 50, 30, 10, 60, 150, 500, None, -1000], pa.int64()),
        "y": pa.array([1.5, 1.5, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0], pa.float64()),
    }
)
QUERY = ss.Sums(
    {"x": ss.Gaussian(sigma=75), "y": ss.ExponentialPolylog(d=0.3)}, keys=KEYS, count=ss.Gaussian(sigma=2), nulls="zero"
)
