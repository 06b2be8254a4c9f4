"""The printed SQL, run on every engine: its result, fed back from a Parquet file, gives the numbers of the records."""

from datetime import date, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import engines

import slowscale as ss
from slowscale.sampling import KnownBits

NAMES = [one for one in engines.EACH if one.values[0] != "connect"]
ROWS = 3_000
DAYS = [date(2024, 1, 1) + timedelta(days=day) for day in range(3)]
KEYS = {
    "text": ss.Keys.cross({"state": ["a", "ä", "A ", "absent"]}),
    "whole": ss.Keys.cross({"zone": [0, 1, 2, 9]}),
    "flag": ss.Keys.cross({"flag": [True, False]}),
    "day": ss.Keys.cross({"day": DAYS}),
    "crossed": ss.Keys.cross({"state": ["a", "ä"], "flag": [True, False], "day": DAYS[:2]}),
    "total": None,
}
NOISE = ss.Gaussian(sigma=3)
TABLES = {
    **{
        f"by-{name}": (ss.Sums({"emp": NOISE, "pay": NOISE}, count=NOISE, keys=keys), {}) for name, keys in KEYS.items()
    },
    "floats": (ss.Sums({"x": NOISE, "single": NOISE}, keys=KEYS["text"], unit="0.01"), {}),
    "roots": (ss.Sums({"emp": ss.Root(k=2, sigma=1)}, keys=KEYS["text"], negatives="zero"), {}),
    "huge": (ss.Sums({"huge": NOISE, "wide": NOISE}, keys=KEYS["text"]), {}),
    "missing": (ss.Sums({"gap": NOISE, "hole": NOISE}, keys=KEYS["text"], nulls="zero"), {}),
    "filtered": (
        ss.Sums(
            {"double": NOISE, "emp": NOISE},
            keys=ss.Keys.cross({"initial": ["a", "ä"]}),
            where="emp > 3 and state like 'a%' and day < date '2024-01-03'",
            derive={"double": "2 * x", "initial": "substr(state, 1, 1)"},
        ),
        {},
    ),
    "entities": (ss.Sums({"emp": NOISE, "x": NOISE}, count=NOISE, keys=KEYS["text"]), {"protect": "firm"}),
    "largest": (
        ss.Sums({"emp": NOISE, "x": NOISE, "pay": NOISE}, count=NOISE, keys=KEYS["text"]),
        {"protect": "firm", "largest": {"emp": 1e6, "x": 1e9, "pay": 1e15, "count": 500}},
    ),
    "largest-records": (
        ss.Sums({"emp": NOISE, "x": NOISE, "pay": NOISE}, keys=KEYS["text"]),
        {"largest": {"emp": 1e6, "x": 1e9, "pay": 1e15}},
    ),
}


def pytest_generate_tests(metafunc):
    if "engine" in metafunc.fixturenames:
        metafunc.parametrize("engine", NAMES, scope="module")


@pytest.fixture(scope="module")
def records():
    generator = np.random.default_rng(5)
    states = generator.choice(["a", "ä", "A ", "not a key"], ROWS).tolist()
    missing = generator.random(ROWS) < 0.1
    cents = generator.integers(-(10**11), 10**13, ROWS)
    return pa.table(
        {
            "state": pa.array([None if i % 97 == 0 else state for i, state in enumerate(states)]),
            "zone": pa.array(generator.integers(0, 4, ROWS), pa.int32()),
            "flag": pa.array(generator.random(ROWS) < 0.5),
            "day": pa.array([DAYS[i] for i in generator.integers(0, 3, ROWS)]),
            "firm": pa.array([f"firm {i}" for i in generator.integers(0, 50, ROWS)]),
            "emp": pa.array(np.exp(generator.normal(3, 2, ROWS)).astype(np.int64)),
            "pay": pa.array([Decimal(int(one)).scaleb(-2) for one in cents], pa.decimal128(18, 2)),
            "wide": pa.array([Decimal(int(one) ** 2).scaleb(-6) for one in cents], pa.decimal128(38, 6)),
            "huge": pa.array(generator.integers(2**61, 2**63 - 1, ROWS) * generator.choice([-1, 1, 1], ROWS)),
            "x": pa.array(generator.normal(0, 1e4, ROWS)),
            "single": pa.array(generator.normal(0, 1e3, ROWS).astype(np.float32)),
            "gap": pa.array(generator.integers(0, 100, ROWS), mask=missing),
            "hole": pa.array(generator.normal(0, 100, ROWS), mask=missing),
        }
    )


@pytest.fixture(scope="module")
def run(engine, records):
    """Return the function that runs SQL about `records` on an engine, and writes the result to a Parquet file."""
    loaded = engines.load(engine, records)
    if engine == "pyspark":
        loaded.createOrReplaceTempView("records")
        loaded.sparkSession.conf.set("spark.sql.ansi.enabled", "true")
        loaded.sparkSession.conf.set("spark.sql.session.timeZone", "UTC")

    def write(sql, path):
        if engine == "duckdb":
            loaded.get_backend().con.sql(sql).write_parquet(str(path))
        elif engine == "postgres":
            with loaded.get_backend().con.cursor() as cursor:
                cursor.execute(sql.replace('"records"', f'"{loaded.get_name()}"'))
                names = [column.name for column in cursor.description]
                rows = cursor.fetchall()
            pq.write_table(pa.table(dict(zip(names, map(pa.array, zip(*rows, strict=True)), strict=True))), path)
        else:
            loaded.sparkSession.sql(sql.rstrip(";")).write.parquet(str(path))

    return write


@pytest.mark.parametrize("name", TABLES)
def test_the_numbers_are_those_of_the_records(engine, run, records, name, tmp_path):
    sums, options = TABLES[name]
    direct = ss.Session(records, bits=KnownBits(7), **options).release(sums)
    printed = ss.Session(records.slice(0, 0), **options).sums_sql(sums, engine)
    run(printed.tables["table"], tmp_path / "sums.parquet")
    supplied = ss.SuppliedSums(tmp_path / "sums.parquet", printed.manifest)
    for folder in (None, tmp_path / "folder"):  # written batch by batch, too
        outlined = ss.Session(records.slice(0, 0), bits=KnownBits(7), **options)
        released = outlined.release(sums, folder, sums=supplied)
        assert released.table.equals(direct.table)
        assert released.facts.supplied["table"].dialect == engine
