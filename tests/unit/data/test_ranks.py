"""Ranks are exact at the ends of every type: the other engines are in tests/integration/test_conformance.py."""

from fractions import Fraction

import ibis
import pyarrow as pa
import pytest
from helpers.errors import refused

from slowscale.core.errors import DataError
from slowscale.data.sources import open_source, open_table
from slowscale.data.sums import Column, records_below

SIZES = [Fraction(size) for size in ("1/10", 3, 128, 2**63, 2**64 - 1, 2**64, 10**38 - 1, 10**38, 10**39)]
# By type: a value, its size, and the number 3.
LIMITS = {
    "ubigint": (2**64 - 1, 3),
    "bigint": (-(2**63), 3),
    "tinyint": (-128, 3),
    "real": (0.1, 3),
    "hugeint": (-(10**38) + 1, 3),
    "decimal(38, 0)": (10**38 - 1, 3),
    "decimal(38, 37)": ("-9.9", 3),
}


@pytest.mark.parametrize("dtype", LIMITS)
def test_the_ends_of_every_type(dtype):
    connection = ibis.duckdb.connect()
    connection.con.execute(f"CREATE TABLE t (x {dtype})")
    for value in LIMITS[dtype]:
        connection.con.execute(f"INSERT INTO t VALUES ('{value}'::{dtype})")
    below, rows = records_below(connection.table("t"), Column("x", Fraction(1)), SIZES)
    expected = [abs(Fraction(value)) for value in LIMITS[dtype]]
    assert below == [sum(value < size for value in expected) for size in SIZES]
    assert rows == 2


def test_numbers_in_text(tmp_path):
    """The size is compared with all twelve digits after the point, and -0.5 is as large as 0.5."""
    texts = ["-0.5", ".5", "7", "+7.000000000001", "-7.000000000002", "999999999999999999.9", "0"]
    (tmp_path / "a.csv").write_text("x\n" + "\n".join(texts) + "\n")
    source = open_source(tmp_path / "a.csv")
    sizes = [Fraction(size) for size in ("0.5", "0.500000000001", 7, "7.000000000001", "7.0000000000011", 10**18)]
    below, rows = records_below(source.table, Column("x", Fraction(1), text=True), sizes)
    assert below == [sum(abs(Fraction(text)) < size for text in texts) for size in sizes] == [1, 3, 3, 4, 5, 7]
    assert rows == 7


def test_no_records():
    table = open_table(pa.table({"x": pa.array([], pa.int64())}))
    assert records_below(table, Column("x", Fraction(1)), SIZES) == ([0] * len(SIZES), 0)


@pytest.mark.parametrize(("odd", "code"), [(float("nan"), "nan"), (float("inf"), "infinite"), (None, "nulls")])
def test_values_without_a_size(odd, code):
    table = open_table(pa.table({"x": pa.array([1.0, odd], from_pandas=False)}))
    with refused(DataError, "column 'x'", code=code):
        records_below(table, Column("x", Fraction(1)), SIZES)
