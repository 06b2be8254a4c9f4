"""Records to count open cells in, and a plain SQL count of them that shares no code with the package."""

import duckdb
import numpy as np
import pyarrow as pa

LABELS = [f"c{i:02}" for i in range(40)]


def records(kind, seed=1):
    """Return one of four tables, with labels outside the keys, missing labels, and cells of zero and one records."""
    rng = np.random.default_rng(seed)
    n = {"skewed": 400, "ties": 240, "signed": 400, "entities": 500}[kind]
    # Some cells are large, and many have a few records.
    cell = np.minimum(rng.geometric(0.1, n) - 1, 35)
    labels = [None if i % 41 == 7 else "outside" if i % 37 == 5 else LABELS[at] for i, at in enumerate(cell)]
    if kind == "skewed":
        values = pa.array(np.exp(rng.normal(3, 2.5, n)))
    elif kind == "ties":  # whole numbers with many ties and zeros, and missing ones
        found = rng.choice([0, 0, 1, 1, 2, 10, 10, 100], n).tolist()
        values = pa.array([None if i % 23 == 4 else one for i, one in enumerate(found)], pa.int64())
    elif kind == "signed":
        values = pa.array((rng.choice([-1, 1], n, p=[0.3, 0.7]) * np.exp(rng.normal(2, 2, n))).round(2))
    else:
        values = pa.array(np.exp(rng.normal(2, 2, n)).astype(int) - 1, pa.int64())
    owners = [f"firm {i}" for i in rng.zipf(1.5, n) % 60]
    # One cell has one record, one has only zeros, and two have no record.
    few = pa.table(
        {"cell": LABELS[36:38] + LABELS[37:38], "firm": ["a", "b", "c"], "x": pa.array([7, 0, 0], values.type)}
    )
    return pa.concat_tables([pa.table({"cell": labels, "firm": owners, "x": values}), few])


COUNT = """
WITH of_units AS ({units}),
ranked AS (
    SELECT cell, abs(x) AS size,
           row_number() OVER (PARTITION BY cell ORDER BY abs(x) DESC) AS place,
           sum(abs(x)) OVER (PARTITION BY cell) AS total
    FROM of_units WHERE cell IN (SELECT unnest($labels))
),
cells AS (
    SELECT cell, any_value(total) AS total, coalesce(max(size) FILTER (WHERE place = 1), 0) AS first,
           coalesce(sum(size) FILTER (WHERE place > 2), 0) AS beyond_two,
           coalesce(sum(size) FILTER (WHERE place > $n), 0) AS beyond_n
    FROM ranked GROUP BY cell HAVING max(size) > 0
)
SELECT cell, total, first, beyond_two, beyond_n,
       beyond_two < $p * first AS open_p, beyond_n < (1 - $k) * total AS open_nk
FROM cells ORDER BY cell
"""


def plain_count(table, labels, rules, protect=None, where="true"):
    """Return the cells with their open flags, by a window over the sorted records; all of a cell's other values are
    added up, instead of subtracted from the total."""
    units = f"SELECT cell, CAST(x AS DOUBLE) AS x FROM records WHERE x IS NOT NULL AND {where}"
    if protect is not None:
        units = f"SELECT cell, CAST(sum(x) AS DOUBLE) AS x FROM records WHERE {where} GROUP BY cell, {protect}"
    connection = duckdb.connect()
    connection.register("records", table)
    asked = {"labels": list(labels), "p": rules.p, "n": rules.n, "k": rules.k}
    return connection.execute(COUNT.format(units=units), asked).to_arrow_table().to_pandas()
