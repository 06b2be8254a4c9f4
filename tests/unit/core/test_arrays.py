"""Rows are found again by their labels as a dictionary would find them, and arrays go to Arrow and back unchanged."""

import subprocess
import sys

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given

from slowscale.core.arrays import first_rows, from_list, key_positions, to_arrow, to_numpy

LABELS = st.tuples(st.sampled_from(["a", "b", "é", "", "aa"]), st.integers(-3, 3), st.booleans())


def columns(rows, chunks=1):
    parts = np.array_split(np.arange(len(rows)), chunks)
    types = (pa.string(), pa.int64(), pa.bool_())
    return [
        pa.chunked_array([pa.array([rows[i][j] for i in part], dtype) for part in parts], dtype)
        for j, dtype in enumerate(types)
    ]


@given(st.lists(LABELS, max_size=30), st.lists(LABELS, min_size=1, max_size=30, unique=True), st.integers(1, 3))
def test_places_are_those_of_a_dictionary(rows, keys, chunks):
    wanted = {key: place for place, key in enumerate(keys)}
    assert key_positions(columns(rows, chunks), columns(keys)).tolist() == [wanted.get(row, -1) for row in rows]


def test_missing_labels_are_no_key():
    rows = [pa.chunked_array([["a", None, "b"]]), pa.chunked_array([[1, 1, None]])]
    assert key_positions(rows, [pa.chunked_array([["b", "a"]]), pa.chunked_array([[1, 1]])]).tolist() == [1, -1, -1]


def test_codes_of_many_columns_do_not_overflow():
    size = 3000
    keys = [pa.chunked_array([np.arange(size)]) for _ in range(8)]  # 3000⁸ is far beyond 64 bits
    assert (key_positions(keys, keys) == np.arange(size)).all()
    assert (first_rows(keys) == np.arange(size)).all()


@given(st.lists(LABELS, min_size=1, max_size=30))
def test_first_rows_are_in_order(rows):
    assert first_rows(columns(rows, 2)).tolist() == [i for i, row in enumerate(rows) if row not in rows[:i]]


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float64, np.bool_])
def test_arrays_go_there_and_back(dtype):
    values = np.arange(7).astype(dtype)[::2]
    assert to_arrow(values).to_pylist() == values.tolist()
    if dtype != np.bool_:
        table = pa.chunked_array([to_arrow(values), to_arrow(values).slice(1, 2), to_arrow(values).slice(0, 0)])
        assert to_numpy(table).tolist() == [*values.tolist(), *values.tolist()[1:3]]


@pytest.mark.parametrize("values", [["a", "é"], [1, -2], [True, False], [2**62, 0], [], [1.5], ["a", None]])
def test_lists(values):
    assert from_list(values).equals(pa.array(values))


def test_a_release_does_not_wake_pandas(tmp_path):
    """Nor scipy.optimize, which it does not need: a small job should start at once."""
    pa.parquet.write_table(pa.table({"k": ["a", "b"], "x": [1, 2]}), tmp_path / "a.parquet")
    code = f"""
import sys, slowscale as ss
keys = ss.Keys.cross({{"k": ["a", "b"]}})
ss.Session({str(tmp_path / "a.parquet")!r}).sum({{"x": ss.Gaussian(sigma=1)}}, keys=keys)
print([name for name in ("pandas", "polars", "scipy.optimize", "scipy.integrate", "altair") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
