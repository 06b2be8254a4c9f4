"""Keys from large files: kept in DuckDB, checked there, and the same as those in memory."""

import pickle
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from helpers.bitsources import Recorded
from helpers.errors import refused

import slowscale as ss
from slowscale.data import keys as keys_module
from slowscale.data.stored_keys import StoredKeys

ROWS = 5_000
LABELS = pa.table(
    {
        "county": [f"{i % 500:05}é" for i in range(ROWS)],
        "sector": np.arange(ROWS) // 500,
        "open": [i % 3 == 0 for i in range(ROWS)],
        "day": [date(2020, 1, 1 + i % 28) for i in range(ROWS)],
    }
)


@pytest.fixture
def large(monkeypatch, tmp_path):
    """Return a function that reads a table from a file as large keys."""
    monkeypatch.setattr(keys_module, "MANY", 10)

    def read(table, **options):
        pyarrow.parquet.write_table(table, tmp_path / "keys.parquet")
        return ss.Keys.from_file(tmp_path / "keys.parquet", **options)

    return read


def test_they_equal_keys_in_memory(large):
    stored, plain = large(LABELS), ss.Keys.from_frame(LABELS)
    assert isinstance(stored.factors[0], StoredKeys)
    assert stored == plain
    assert (stored.columns, stored.kinds, len(stored), repr(stored)) == (
        plain.columns, plain.kinds, len(plain), repr(plain),
    )  # fmt: skip
    assert stored.slice(4_990, 100).to_pylist() == plain.slice(4_990, 100).to_pylist()
    assert stored.project("day", "open") == plain.project("day", "open")
    years = ss.Keys.cross({"year": [2020, 2021]})
    for one, other in ((stored * years, plain * years), (years * stored, years * plain)):
        assert one == other
        assert one.slice(123, 77).to_pylist() == other.table.slice(123, 77).to_pylist()


@pytest.mark.parametrize("protect", [None, "firm"])
@pytest.mark.parametrize("crossed", [False, True])
def test_releases_are_the_same(large, tmp_path, protect, crossed):
    rng = np.random.default_rng(2)
    places = rng.integers(0, ROWS, 20_000)
    frame = LABELS.take(pa.array(places)).append_column("x", pa.array(rng.integers(0, 1000, 20_000)))
    frame = frame.append_column("year", pa.array(2020 + places % 3)).append_column("firm", pa.array(places % 50))
    stored, plain = large(LABELS), ss.Keys.from_frame(LABELS)
    if crossed:
        stored, plain = (keys * ss.Keys.cross({"year": [2020, 2022]}) for keys in (stored, plain))
    made, whole = (
        ss.Session(frame, protect=protect, bits=Recorded(1)).release(
            ss.Sums({"x": ss.Gaussian(sigma=3)}, keys=keys), to=folder
        )
        for keys, folder in ((stored, tmp_path / "out"), (plain, None))
    )
    assert made.table == whole.table


def test_a_stream_outlives_other_queries(large):
    """Sums of other threads read ranges of the keys; a stream that ended early would lose the rest of the cells."""
    many = 300_000
    factor = large(pa.table({"x": np.arange(many)})).factors[0]
    reader = factor.reader(as_bytes=False)
    assert factor.slice(5, 1)["x"].to_pylist() == [5]
    assert reader.read_all()["label0"].to_pylist() == list(range(many))


def test_a_column_may_have_the_name_of_row_numbers(large):
    labels = pa.table({"rowid": list(range(50))[::-1], "place": list(range(50)), "label0": [str(i) for i in range(50)]})
    keys = large(labels)
    assert isinstance(keys.factors[0], StoredKeys)
    assert keys.slice(0, 50).equals(labels)
    frame = labels.append_column("x", pa.array([1000 * i for i in range(50)]))
    made = ss.Session(frame, bits=Recorded(1)).release(ss.Sums({"x": ss.Gaussian(sigma=1)}, keys=keys))
    assert np.abs(made.table["x"].to_numpy() - 1000 * np.arange(50)).max() < 20
    assert keys.factors[0].reader(as_bytes=False).read_all()["place"].to_pylist() == list(range(50))


def test_pickled_keys_are_in_memory(large):
    years = ss.Keys.cross({"year": [2020, 2021]})
    read = pickle.loads(pickle.dumps(large(LABELS) * years))
    assert read == ss.Keys.from_frame(LABELS) * years


def test_mistakes(large, tmp_path):
    twice = pa.concat_tables([LABELS, LABELS.slice(7, 1)])
    with refused(ss.ParameterError, "keys", code="duplicate") as caught:
        large(twice)
    assert "é" not in str(caught.value)
    missing = pa.table({"a": pa.array([None, *map(str, range(50))])})
    with refused(ss.ParameterError, "keys a", code="nulls"):
        large(missing)
    with refused(ss.ParameterTypeError, "keys x", code="type"):
        large(pa.table({"x": np.arange(50) / 2}))
    for rows, name in ((3, "keys x"), (50, "keys")):
        path = tmp_path / "large.parquet"
        pyarrow.parquet.write_table(pa.table({"x": pa.array([2**63 + i for i in range(rows)], pa.uint64())}), path)
        with refused((ss.EngineError, ss.ParameterError), name) as caught:
            ss.Keys.from_file(path)
        assert str(2**63)[:-2] not in str(caught.value)
    assert len(large(LABELS, columns=["county", "sector"])) == ROWS


def test_keys_of_a_database_are_sorted(tmp_path):
    import duckdb

    with duckdb.connect(tmp_path / "d.duckdb") as connection:
        connection.execute("CREATE TABLE t AS SELECT * FROM (VALUES ('b', 2), ('a', 2), ('a', 1)) v(x, y)")
    keys = ss.Keys.from_file(f"duckdb://{tmp_path}/d.duckdb#t")
    assert sorted(keys) == [("a", 1), ("a", 2), ("b", 2)]
