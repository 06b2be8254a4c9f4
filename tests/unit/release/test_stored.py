"""Releases that are written batch by batch are those that are made in memory, bit for bit, and whole or not at all."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from helpers.bitsources import Recorded
from helpers.errors import refused

import slowscale as ss
from slowscale.core import files
from slowscale.core.locks import locked
from slowscale.data import cells
from slowscale.data.connections import engine_errors
from slowscale.plan import finish_plan, read_plan, run_plan, running
from slowscale.release import bound, stored
from slowscale.release.buckets import BUCKET

rng = np.random.default_rng(8)
COUNTIES, SECTORS = [f"{i:05}" for i in range(90)], list(range(100))
FRAME = pd.DataFrame(
    {
        "county": rng.choice([*COUNTIES, "elsewhere", None], 20_000),
        "sector": rng.integers(0, 110, 20_000),
        "open": rng.random(20_000) < 0.5,
        "firm": rng.integers(0, 300, 20_000),
        "emp": np.ceil(rng.lognormal(2, 2, 20_000)).astype(int),
        "pay": np.round(rng.lognormal(5, 2, 20_000), 2),
        "profit": rng.normal(0, 1e4, 20_000).astype(int),
    }
)
KEYS = ss.Keys.cross({"county": COUNTIES, "sector": SECTORS})  # 9,000 cells: three buckets
GAUSS, ROOT, SLOW = ss.Gaussian(sigma=3), ss.Root(k=4, sigma=0.5), ss.ExponentialPolylog(d=0.24)
REGIONS = ss.Hierarchy("county", {"region": {county: county[:4] for county in COUNTIES}})
CELLS = ss.Sums({"emp": SLOW, "pay": ROOT}, keys=KEYS, count=GAUSS, means="box")
REQUESTS = {
    "one table": CELLS,
    "totals": ss.Sums({"emp": SLOW}),
    "signs": ss.Sums({"profit": ss.Arsinh(s=100, sigma=0.1)}, keys=KEYS.project("county")),
    "rows of keys": ss.Sums({"emp": SLOW}, keys=KEYS.filter(lambda county, sector: sector % 7 == 1)),
    "three factors": ss.Sums({"emp": SLOW}, keys=KEYS * ss.Keys.cross({"open": [True, False]})),
    "derived": ss.Sums({"half": SLOW}, keys=KEYS, derive={"half": "pay / 2"}, where="emp > 3", unit="0.01"),
    "clipped": ss.Sums({"emp": SLOW}, keys=KEYS, nonnegative=True),
    "set": ss.Request(
        {
            "cells": CELLS,
            "states": ss.Rollup("cells", by=["region"]),
            "own": ss.Sums({"emp": SLOW}, keys=KEYS.project("sector")),
            "sizes": ss.Quantiles("emp", [0.5, 0.9], loss=0.1),
        },
        hierarchies=[REGIONS],
    ),
}


def session(seed=5, **options):
    return ss.Session(FRAME, bits=Recorded(seed), **options)


def tables(release):
    return {name: release[name].table for name in release}


@pytest.mark.parametrize("protect", [None, "firm"])
@pytest.mark.parametrize("name", REQUESTS)
def test_a_folder_has_the_release_that_memory_has(name, protect, tmp_path):
    whole = session(protect=protect).release(REQUESTS[name])
    made = session(protect=protect).release(REQUESTS[name], to=tmp_path / "out", csv=True)
    assert tables(made) == tables(whole)
    changing = {"id": "", "created": ""}
    assert made.facts.with_(**changing) == whole.facts.with_(**changing)
    assert made.policy == whole.policy
    for kind in ("parquet", "csv"):
        read = {table: ss.read_release(tmp_path / "out" / f"{table}.{kind}") for table in made}
        assert {table: one.table for table, one in read.items()} == tables(whole)
    assert ss.read_release(tmp_path / "out").facts == made.facts
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".parquet", ".csv", ".json"}


@pytest.mark.parametrize("buckets", [1, 2, 16, 4096])
def test_the_bytes_do_not_depend_on_how_many_buckets_are_drawn_together(buckets, tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "ROW_GROUP", 5_000)  # no multiple of a bucket
    found = {}
    for drawn in (3, buckets):
        monkeypatch.setattr(bound, "BATCH", drawn * BUCKET)
        monkeypatch.setattr("slowscale.release.bound.secrets.token_hex", lambda size: "0" * 16)
        monkeypatch.setattr("slowscale.release.bound.datetime", Noon)
        session().release(CELLS, to=tmp_path / str(drawn), csv=True)
        found[drawn] = [path.read_bytes() for path in sorted((tmp_path / str(drawn)).iterdir())]
    assert found[3] == found[buckets]
    assert pyarrow.parquet.read_metadata(tmp_path / "3" / "table.parquet").num_row_groups == 2


class Noon:
    @staticmethod
    def now(zone):
        return pd.Timestamp("2024-01-01T12:00", tz=zone)


@pytest.mark.parametrize("kind", ["parquet", "duckdb", "csv"])
def test_all_sources_give_the_same_release(kind, tmp_path):
    import duckdb

    plain = FRAME[["county", "sector", "emp"]]
    sums = ss.Sums({"emp": SLOW}, keys=KEYS)
    expected = ss.Session(plain, bits=Recorded(3)).release(sums).table
    path, types = tmp_path / f"data.{kind}", None
    if kind == "parquet":
        plain.to_parquet(path)
    elif kind == "csv":
        plain.to_csv(path, index=False)
        types = {"emp": "int64", "sector": "int64"}
    else:
        with duckdb.connect(path) as connection:
            connection.register("plain", plain)
            connection.execute("CREATE TABLE t AS SELECT * FROM plain")
        path = f"duckdb://{path}#t"
    made = ss.Session(path, types=types, bits=Recorded(3)).release(sums, to=tmp_path / "out")
    assert made.table == expected


# What goes wrong


BAD = {
    "missing": (FRAME.assign(emp=FRAME["emp"].where(FRAME["emp"] > 3)), {}, "nulls"),
    "not a number": (FRAME.assign(emp=FRAME["emp"].where(FRAME["emp"] > 3, np.inf)), {}, "infinite"),
    "an entity": (FRAME.assign(firm=FRAME["firm"].where(FRAME["firm"] > 3)), {"protect": "firm"}, "no-entity"),
    "a large value": (FRAME, {"largest": {"emp": 5}}, "above-largest"),
}


@pytest.mark.parametrize("name", BAD)
def test_data_that_cannot_be_summed_costs_nothing_and_leaves_nothing(name, tmp_path):
    data, options, code = BAD[name]
    with refused(ss.DataError, code=code):
        ss.Session(data, **options).release(ss.Sums({"emp": SLOW}, keys=KEYS))
    one = ss.Session(data, tmp_path / "l.ledger", **options)
    with refused(ss.DataError, code=code):
        one.release(ss.Sums({"emp": SLOW}, keys=KEYS), to=tmp_path / "out")
    assert [entry["kind"] for entry in one.ledger.history()][-1] == "attempt"
    assert not (tmp_path / "out").exists()
    backend = one.table.get_backend()
    assert not backend.con.execute("SELECT table_name FROM duckdb_tables() WHERE table_name LIKE 'cells%'").fetchall()


def test_existing_files_are_kept_and_nothing_is_charged(tmp_path):
    one = session(ledger=tmp_path / "l.ledger")
    one.release(CELLS, to=tmp_path / "out")
    spent = one.spent({"emp": 10, "pay": 10})
    with refused(ss.ParameterError, code="exists"):
        one.release(CELLS, to=tmp_path / "out")
    with locked(tmp_path / "out" / stored.FOLDER_LOCK), refused(ss.ParameterError, code="busy"):
        one.release(CELLS, to=tmp_path / "out", overwrite=True)
    assert one.spent({"emp": 10, "pay": 10}) == spent
    again = one.release(CELLS, to=tmp_path / "out", overwrite=True)
    assert ss.read_release(tmp_path / "out").facts == again.facts


def test_paths_that_cannot_be_written_to_cost_nothing(tmp_path):
    one, small = session(), ss.Sums({"emp": SLOW})
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "table.parquet").symlink_to(tmp_path / "nothing")
    with refused(ss.ParameterError, code="exists"):
        one.release(small, to=tmp_path / "out")
    with refused(ss.ParameterError, code="unwritable"):  # its temporary file has a longer name
        one.release({"x" * 245: small}, to=tmp_path / "long")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for path in (tmp_path / "link", tmp_path / ("x" * 300), f"{tmp_path}/x\0y", tmp_path / "no" / "folder"):
        with pytest.raises(ss.ParameterError):
            one.release(small, to=path)
    assert one.spent({"emp": 5}) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"out", "link"}


def test_a_session_in_several_threads(tmp_path):
    """They share a connection, whose open queries end with the next query."""
    cells = 150_000
    frame = pa.table({"place": np.arange(cells), "x": np.full(cells, 1000)})
    sums = ss.Sums({"x": ss.Gaussian(sigma=1)}, keys=ss.Keys.cross({"place": range(cells)}))
    one = ss.Session(frame)

    def release(number):
        return one.release(sums, to=tmp_path / str(number)).table["x"].to_numpy()

    with ThreadPoolExecutor(3) as pool:
        for found in pool.map(release, range(3)):
            assert np.abs(found - 1000).max() < 20


def test_a_session_has_its_memory_afterwards(tmp_path, monkeypatch):
    """DuckDB states its limit rounded, and must not do so again with each release; and it must obey the limit."""
    monkeypatch.setattr("slowscale.data.connections.SMALL_DATA", 0)
    monkeypatch.setattr("slowscale.data.cells.MEMORY", "30MB")
    one = session()
    con, found = one.table.get_backend().con, []
    for number in range(3):
        one.release(CELLS, to=tmp_path / str(number))
        found += con.execute("SELECT current_setting('memory_limit')").fetchone()
    assert len(set(found)) == 1
    con.execute("CREATE TABLE t AS SELECT range AS a, hash(range) AS b FROM range(5000000) ORDER BY b")
    (used,) = con.execute("SELECT sum(memory_usage_bytes) FROM duckdb_memory()").fetchone()
    assert used > 6e7


def test_an_interrupt_in_words_of_duckdb_is_one():
    with pytest.raises(KeyboardInterrupt), engine_errors("the engine"):
        raise RuntimeError("Query interrupted")


def test_an_interrupt_while_the_sums_are_removed_leaves_none(tmp_path, monkeypatch):
    one, remove, interrupted = session(), cells.StoredCells._remove, []

    def remove_once_interrupted(self):
        if not interrupted:
            interrupted.append(True)
            raise RuntimeError("Query interrupted")
        remove(self)

    monkeypatch.setattr(cells.StoredCells, "_remove", remove_once_interrupted)
    with pytest.raises(KeyboardInterrupt):
        one.release(CELLS, to=tmp_path / "out")
    left = one.table.get_backend().con.execute("SELECT table_name FROM duckdb_tables() WHERE table_name LIKE 'cells%'")
    assert not left.fetchall()


def test_a_full_disk_loses_a_charged_release_and_says_so(tmp_path, monkeypatch):
    one = session(ledger=tmp_path / "l.ledger")
    written = stored.write_files

    def full(*given, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", lambda file: full() if one.spent({"emp": 1, "pay": 1}) else None)
    with pytest.raises(ss.IncompleteError, match="No space left") as caught:
        one.release(CELLS, to=tmp_path / "out")
    monkeypatch.undo()
    assert written is stored.write_files
    assert caught.value.lost == ("table",)
    assert one.spent({"emp": 1, "pay": 1}) > 0
    assert not (tmp_path / "out").exists()


CHILD = """
import sys
sys.path[:0] = {paths!r}
import slowscale as ss
from unit.release.test_stored import CELLS, FRAME
ss.Session(FRAME, {ledger!r}).release(CELLS, to={out!r}, csv=True, overwrite=True)
"""


def test_a_killed_release_leaves_nothing_that_looks_like_one(tmp_path):
    """Killed at random moments: never a file without a charge; and the next release removes what is left."""
    ledger, out = tmp_path / "l.ledger", tmp_path / "out"
    tests = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    paths = [tests, os.path.join(os.path.dirname(tests), "src")]
    script = CHILD.format(paths=paths, ledger=str(ledger), out=str(out))
    moments = np.random.default_rng(3).uniform(0.8, 4, 6)
    for moment in moments:
        child = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)
        time.sleep(moment)
        child.send_signal(signal.SIGKILL)
        child.wait()
        charged = (
            [e["facts"]["id"] for e in ss.Ledger(ledger).history() if e["kind"] == "charge"] if ledger.exists() else []
        )
        if (out / "table.parquet").exists():
            assert ss.read_release(out / "table.parquet").facts.id in charged
    made = session(ledger=ledger).release(CELLS, to=out, csv=True, overwrite=True)
    assert {path.name for path in out.iterdir()} == {"table.parquet", "table.csv", "table.csv.json"}
    assert ss.read_release(out).facts == made.facts


def test_a_user_function_is_refused_before_the_charge(tmp_path):
    one = session()
    mechanism = ss.Transformation(lambda x: x**0.5, lambda v: v**2, sigma=1, a=0)
    with refused(ss.ParameterError, "to", code="user-function"):
        one.release(ss.Sums({"emp": mechanism}, keys=KEYS), to=tmp_path / "out")
    assert one.spent({"emp": 5}) == 0


def test_numbers_that_need_more_digits_widen_their_column(tmp_path, monkeypatch):
    """The first batch fits in 64 bits, a later one needs 38 digits, and the last one more than that."""
    monkeypatch.setattr(bound, "BATCH", BUCKET)
    monkeypatch.setattr(stored, "ROW_GROUP", BUCKET)
    keys = ss.Keys.from_frame({"place": list(range(3 * BUCKET))})
    sizes = {0: 1, BUCKET: 4 * 10**18, 2 * BUCKET: 4 * 10**18}
    rows = [(place, size) for place, size in sizes.items() for _ in range(1 if place == 0 else 30)]
    frame = pa.table({"place": [place for place, _ in rows], "x": pa.array([size for _, size in rows], pa.int64())})
    sums = ss.Sums({"x": ss.Gaussian(sigma=2)}, keys=keys)
    whole = ss.Session(frame, bits=Recorded(2)).release(sums)
    made = ss.Session(frame, bits=Recorded(2)).release(sums, to=tmp_path / "out", csv=True)
    assert made.table == whole.table
    assert made.table.schema.field("x").type == pa.decimal128(38, 0)
    assert ss.read_release(tmp_path / "out" / "table.csv").table == whole.table


def test_sums_that_need_more_memory_get_it(tmp_path, monkeypatch):
    """DuckDB cannot do all of its work on disk: 1 MB is too little, and the query is repeated with its usual share."""
    monkeypatch.setattr("slowscale.data.connections.SMALL_DATA", 0)
    monkeypatch.setattr("slowscale.data.cells.MEMORY", "1MB")
    monkeypatch.setattr("slowscale.data.keys.MANY", 10)
    pyarrow.parquet.write_table(KEYS.table, tmp_path / "keys.parquet")
    for keys in (KEYS, ss.Keys.from_file(tmp_path / "keys.parquet")):
        sums = ss.Sums({"emp": SLOW}, keys=keys)
        one = session()
        assert one.release(sums, to=tmp_path / str(len(keys.factors))).table == session().release(sums).table
        (limit,) = one.table.get_backend().con.execute("SELECT current_setting('memory_limit')").fetchone()
        assert "GiB" in limit


def test_a_column_becomes_floats_rounded_outwards():
    column = pa.chunked_array([pa.array([10**17 + 1, -(10**17) - 1])])
    for side in (0, -1, 1):
        found = stored._widened(column, side, pa.float64()).to_pylist()
        for one, exact in zip(found, column.to_pylist(), strict=True):
            assert (Fraction(one) - exact) * side >= 0
            assert abs(Fraction(one) - exact) <= 16


def test_estimates_that_become_floats_are_the_nearest_ones_whatever_their_name(tmp_path, monkeypatch):
    monkeypatch.setattr(bound, "BATCH", BUCKET)
    monkeypatch.setattr(stored, "ROW_GROUP", BUCKET)
    values = pa.array([Decimal("9" * 38), Decimal(5), Decimal(6)], pa.decimal128(38, 0))
    frame = pa.table({"place": [1, 2, BUCKET + 1], "x_low": values, "y": values})
    noise = ss.Gaussian(sigma=1e37)
    sums = ss.Sums({"x_low": noise, "y": noise}, keys=ss.Keys.cross({"place": range(2 * BUCKET)}))
    for seed in range(10):  # of which some give a sum that has more than 38 digits
        whole = ss.Session(frame, bits=Recorded(seed)).release(sums).table
        made = ss.Session(frame, bits=Recorded(seed)).release(sums, to=tmp_path / "out", overwrite=True).table
        assert made == whole
        if {whole["x_low"].type, whole["y"].type} == {pa.float64()}:
            return
    raise AssertionError("no sum needed floats")


def test_files_that_were_removed_or_changed_say_so(tmp_path):
    one = session()
    made = one.release(REQUESTS["set"], to=tmp_path / "out")
    path = tmp_path / "out" / "cells.parquet"
    content = path.read_bytes()

    def broken():
        for read in (lambda: made["cells"].table, lambda: made["cells"].head(2), lambda: made["cells"].interval("emp")):
            with refused(ss.EngineError, code="changed"):
                read()

    path.unlink()
    broken()
    path.write_bytes(content[:-100])
    broken()
    (tmp_path / "out" / "own.parquet").rename(path)
    broken()
    one.release(REQUESTS["set"], to=tmp_path / "out", overwrite=True)  # other numbers than the facts of the first
    broken()
    path.write_bytes(content)
    assert made["cells"].table.num_rows == 9_000


def test_numbers_in_files_are_read_when_they_are_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr("slowscale.release.release.ROW_GROUP", 100)
    made = session().release(REQUESTS["set"], to=tmp_path / "out")
    read = ss.read_release(tmp_path / "out")

    def unread(*given, **options):
        raise AssertionError("the numbers were read")

    with monkeypatch.context() as patch:
        patch.setattr(stored.StoredTable, "read", unread)
        for release in (made, read):
            assert len(release["cells"]) == 9_000
            assert release["cells"].head(3).num_rows == 3
            assert release.policy({"emp": 5, "pay": 100}) > 0
            assert "groups by county" in repr(release["cells"])
            assert release["cells"]._repr_html_()
            release.explain({"emp": 5, "pay": 100})
            release.report(tmp_path / f"{release is made}.html")
    assert read["cells"].table.equals(made["cells"].table)
    assert read["cells"].rollup("sector").table.num_rows == 100


def test_large_products_of_keys_take_no_memory():
    huge = ss.Keys.cross({name: range(10_000) for name in "abc"})
    assert len(huge) == 10**12
    assert huge.slice(10**12 - 1, 5).to_pylist() == [{"a": 9999, "b": 9999, "c": 9999}]
    assert huge.slice(123_456_789_012, 1).to_pylist() == [{"a": 1234, "b": 5678, "c": 9012}]
    assert huge.project("b").table.num_rows == 10_000
    small = ss.Keys.cross({"a": ["x", "y"], "b": [1, 2, 3], "c": [True, False]})
    assert pa.concat_tables([small.slice(start, 5) for start in (0, 5, 10)]).to_pylist() == small.table.to_pylist()
    assert small.project("c", "a").table.to_pylist() == [
        {"c": True, "a": "x"}, {"c": False, "a": "x"}, {"c": True, "a": "y"}, {"c": False, "a": "y"},
    ]  # fmt: skip


PLAN = """
[data]
path = "firms.parquet"
protect = "firm"

[ledger]
path = "firms.ledger"

[tables.cells]
keys = { file = "cells.csv", by = ["county"] }

[tables.cells.sums.emp]
mechanism = "exponential-polylog"
d = 0.24

[tables.all]
rollup = "cells"

[publication]
title = "Firms"
columns = { emp = { title = "Employees", unit = "persons" } }

[report]
sizes = [{ name = "largest firm", emp = 40_000 }]

[output]
folder = "published"
report = "published/report.html"
"""


def test_a_plan_with_many_cells_is_carried_out_batch_by_batch(tmp_path, monkeypatch):
    FRAME.to_parquet(tmp_path / "firms.parquet")
    pd.DataFrame({"county": COUNTIES}).to_csv(tmp_path / "cells.csv", index=False)
    (tmp_path / "plan.toml").write_text(PLAN)
    plan, targets, real = read_plan(tmp_path / "plan.toml"), [], ss.Session._carry_out
    monkeypatch.setattr(
        ss.Session, "_carry_out", lambda self, bound, target=None: targets.append(target) or real(self, bound, target)
    )
    small, files_of_small = run_plan(plan)
    monkeypatch.setattr(running, "MANY", 50)
    large, files_of_large = run_plan(plan, overwrite=True)
    assert targets[:-1] == [None] * (len(targets) - 1)
    assert targets[-1].units == {"emp": "persons"}
    assert set(files_of_small) == set(files_of_large)
    assert large["cells"].facts == small["cells"].facts
    unit = pyarrow.parquet.read_schema(tmp_path / "published" / "cells.parquet").field("emp").metadata
    assert b"persons" in b"".join(unit.values())
    assert ss.read_release(tmp_path / "published").facts.id == large.facts.id
    assert large.facts.id in (tmp_path / "published" / "report.html").read_text()
    (tmp_path / "published" / "all.csv").unlink()
    finish_plan(plan)
    assert ss.read_release(tmp_path / "published" / "all.csv").facts.id == large.facts.id
