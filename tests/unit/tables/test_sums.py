"""Exact sums: which records are counted, and which are refused, before noise is drawn."""

import math
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
import pytest

import slowscale as ss
from slowscale.tables.sources import open_table
from slowscale.tables.sums import Column, exact_sums


def summed(values, dtype, **options):
    """Return the exact sum of a column in units of 1, as a fraction."""
    table = open_table(pa.table({"x": pa.array(values, dtype)}))
    column = Column("x", Fraction(1), text=pa.types.is_string(dtype), **options)
    found = exact_sums(table, [column], None).sums["x"]
    rest = Fraction(0) if found.rest is None else Fraction(int(found.rest[0]), found.parts)
    return (int(found.counts[0]) + rest) * found.grain


# The sum is not negative because of the other records, so the negative record must be found among the records.
NEGATIVE = {
    "int64": ([5, -1], pa.int64()),
    "int8": ([100, -1], pa.int8()),
    "int64, smallest": ([2**63 - 1, 2**63 - 1, -(2**63)], pa.int64()),
    "float": ([5.0, -1.0], pa.float64()),
    "float between -1 and 0": ([5.0, -0.5], pa.float64()),
    "float next to 0": ([5.0, -5e-324], pa.float64()),
    "single": ([5.0, -1.0], pa.float32()),
    "decimal": ([Decimal("5.00"), Decimal("-1.00")], pa.decimal128(9, 2)),
    "decimal next to 0": ([Decimal("5.00"), Decimal("-0.01")], pa.decimal128(9, 2)),
    "text": (["5", "-1"], pa.string()),
    "text next to 0": (["5", "-0.000000000001"], pa.string()),
}


@pytest.mark.parametrize("name", NEGATIVE)
def test_a_negative_record_is_an_error_by_default(name):
    with pytest.raises(
        ss.DataError, match="column 'x' has negative values, which a transformation mechanism does not allow"
    ):
        summed(*NEGATIVE[name], negatives="error")


@pytest.mark.parametrize("name", NEGATIVE)
def test_a_negative_record_counts_as_zero_or_as_itself_on_request(name):
    values, dtype = NEGATIVE[name]
    numbers = [Fraction(value) for value in values]
    assert summed(values, dtype, negatives="zero") == sum(max(number, 0) for number in numbers)
    # a float is truncated towards zero to a whole number of grains
    expected = sum(math.trunc(n * 2**30) / Fraction(2**30) if pa.types.is_floating(dtype) else n for n in numbers)
    assert summed(values, dtype) == expected


@pytest.mark.parametrize("mechanism", [ss.Root(2, 1), ss.Root(4, 0.5, a=10), ss.Log(1)], ids=str)
@pytest.mark.parametrize("record", [-1, -1.0, -0.25, Decimal("-1.00")], ids=repr)
def test_no_negative_record_reaches_a_transformation(mechanism, record):
    """It is refused even if the offset, or the other records, would hide it."""
    session = ss.Session(pa.table({"x": [type(record)(100), record]}))
    with pytest.raises(ss.DataError, match="column 'x' has negative values"):
        session.sum({"x": mechanism})


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([5, 0], pa.int64()),
        ([5.0, 0.0], pa.float64()),
        ([5.0, -0.0], pa.float64()),
        ([Decimal("5.00"), Decimal("0.00")], pa.decimal128(9, 2)),
        (["5", "-0.00"], pa.string()),
    ],
)
def test_zero_is_not_negative(values, dtype):
    assert summed(values, dtype, negatives="error") == 5
