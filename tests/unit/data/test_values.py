"""Arithmetic, comparisons and casts: the types and values of the results, and what is refused."""

import math
from datetime import date, datetime
from decimal import Decimal

import ibis
import ibis.expr.datatypes as dt
import pyarrow as pa
import pytest
from helpers import engines
from helpers.errors import refused

from slowscale.core.errors import ParameterError
from slowscale.data import values
from slowscale.data.dialects import DIALECTS
from slowscale.data.rowwise import bind
from slowscale.data.sources import open_table

POSTGRES = DIALECTS["postgres"]
TYPES = {
    "i": "int64", "small": "int32", "f": "float64", "d5": "decimal(5, 2)", "d10": "decimal(10, 3)",
    "d37": "decimal(37, 2)", "d38": "decimal(38, 2)", "loose": "decimal", "t": "string", "day": "date",
    "at": "timestamp", "b": "boolean",
}  # fmt: skip
T = ibis.table(TYPES, name="t")
NULL = ibis.null()


def decimals(text):
    return [None if word == "-" else Decimal(word) for word in text.split()]


@pytest.fixture(scope="module")
def table():
    return open_table(
        pa.table(
            {
                "i": pa.array([5, -7, 0, None], pa.int64()),
                "f": [0.5, -2.5, 4.0, None],
                "g": [2.0, 0.0, -0.5, 1.0],
                "d5": pa.array(decimals("1.25 -999.99 0 -"), pa.decimal128(5, 2)),
                "d10": pa.array(decimals("0.125 9999999.999 -1 1"), pa.decimal128(10, 3)),
                "b": [True, False, None, True],
                "day": [date(2020, 2, 29), None, date(1, 1, 1), date(9999, 12, 31)],
                "at": [datetime(2020, 2, 29, 12), None, datetime(1, 1, 1), datetime(9999, 12, 31)],
            }
        )
    )


def found(table, value):
    """Return the values of an expression."""
    return table.select(x=value).to_pyarrow()["x"].to_pylist()


def types_of(numbers):
    return [str(number.type()) for number in numbers]


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["d5", "d5"], "decimal(5, 2)"),
        (["d5", "d10"], "decimal(10, 3)"),
        (["d10", "d5"], "decimal(10, 3)"),
        (["i", "d5"], "decimal(21, 2)"),
        (["small", "d10"], "decimal(22, 3)"),
        (["d5", "i", "d10"], "decimal(22, 3)"),
        (["i", "d38"], "decimal(38, 2)"),
        (["d37", "d38"], "decimal(38, 2)"),
        (["d38", "d10"], "float64"),
        (["loose", "d5"], "float64"),
        (["f", "d5"], "float64"),
        (["f", "i"], "float64"),
    ],
)
def test_numbers_of_which_one_is_chosen_have_one_type_that_holds_them_all(names, chosen):
    numbers = [T[name] for name in names]
    assert types_of(values.to_common_type(numbers, compared=False)) == [chosen] * len(names)
    if "f" not in names:  # engines compare other numbers exactly
        assert types_of(values.to_common_type(numbers, compared=True)) == types_of(numbers)


@pytest.mark.parametrize(("precision", "scale"), [(None, 2), (9, None), (None, None)])
def test_a_decimal_of_unknown_size_is_chosen_as_a_float(precision, scale):
    loose = ibis.table({"x": dt.Decimal(precision, scale)}, name="u").x
    assert types_of(values.to_one_number_type([loose, T.d5])) == ["float64"] * 2


def test_integers_and_missing_values_keep_their_types():
    assert types_of(values.to_common_type([T.small, T.i], compared=False)) == ["int32", "int64"]
    assert types_of(values.to_common_type([T.d5, NULL], compared=False)) == ["decimal(5, 2)", "null"]
    assert types_of(values.to_common_type([NULL, T.d5, T.i], compared=False))[1:] == ["decimal(21, 2)"] * 2
    assert types_of(values.to_common_type([NULL, T.t], compared=False)) == ["null", "string"]


def test_times_of_one_type():
    assert types_of(values.to_common_type([T.day, T.at], compared=True)) == ["timestamp"] * 2
    both = values.to_common_type([T.at, ibis.literal("2020-02-29"), T.day], compared=True)
    assert types_of(both) == ["timestamp"] * 3
    assert types_of(values.to_common_type([T.day, ibis.literal("2020-02-29")], compared=True)) == ["date"] * 2
    assert values.to_common_type([T.at, T.day], compared=True)[0].equals(T.at)
    with refused(values.RefusedError, "", code="text-as-time"):
        values.to_common_type([T.day, T.t], compared=True)


@pytest.mark.parametrize("kinds", [("t", "i"), ("b", "i"), ("day", "f"), ("b", "t")])
def test_values_of_different_kinds_are_not_mixed(kinds):
    with refused(values.RefusedError, "", code="mixed-types"):
        values.to_common_type([T[name] for name in kinds], compared=True)


def test_values_of_other_types_are_refused():
    for dtype in ("time", "array<int64>", "uuid"):
        other = ibis.table({"x": dtype}, name="u").x
        with refused(values.RefusedError, "", code="unsupported"):
            values.to_common_type([other, other], compared=True)


def test_date_and_timestamp_literals():
    midnight = values.time_literal("2020-02-29", stamped=True)
    assert (str(midnight.type()), midnight.op().value) == ("timestamp", datetime(2020, 2, 29))
    noon = values.time_literal("2020-02-29 12:00", stamped=True)
    assert (str(noon.type()), noon.op().value) == ("timestamp", datetime(2020, 2, 29, 12))
    day = values.time_literal("2020-02-29", stamped=False)
    assert (str(day.type()), day.op().value) == ("date", date(2020, 2, 29))
    for text, stamped in (("2020-02-29 12:00", False), ("now", True), ("2020-02-30", False), ("", True)):
        with refused(values.RefusedError, "", code="clock"):
            values.time_literal(text, stamped)


@pytest.mark.parametrize(
    ("text", "precision", "scale"),
    [("1.25", 3, 2), ("-1.25", 3, 2), ("100", 3, 0), ("0.001", 4, 3), ("1E+3", 4, 0), ("12345678.9", 9, 1),
     ("9" * 38, 38, 0), ("9" * 30 + "." + "9" * 8, 38, 8)],
)  # fmt: skip
def test_the_type_of_a_decimal_literal_has_its_digits(text, precision, scale):
    number = values.decimal_literal(Decimal(text))
    assert number.type() == dt.Decimal(precision, scale, nullable=number.type().nullable)
    assert number.op().value == Decimal(text)


@pytest.mark.parametrize("text", ["9" * 39, "9" * 30 + "." + "9" * 9, "0." + "1" * 38])
def test_a_decimal_literal_of_more_than_38_digits_is_refused(text):
    with refused(values.RefusedError, "", code="digits"):
        values.decimal_literal(Decimal(text))


@pytest.mark.parametrize("minus", [False, True])
@pytest.mark.parametrize(
    ("left", "right", "dtype"),
    [
        ("i", "small", "int64"),
        ("d5", "d5", "decimal(6, 2)"),
        ("d5", "d10", "decimal(11, 3)"),
        ("i", "d5", "decimal(22, 2)"),
        ("d37", "d5", "decimal(38, 2)"),
        ("d38", "d5", "float64"),
        ("d38", "d10", "float64"),
        ("loose", "d5", "float64"),
        ("f", "d5", "float64"),
        ("f", "i", "float64"),
    ],
)
def test_the_type_of_a_sum_holds_every_result(left, right, dtype, minus):
    for first, second in ((left, right), (right, left)):
        assert str(values.add(T[first], T[second], minus).type()) == dtype


def test_decimals_of_which_neither_type_holds_the_other(table):
    """Ibis refuses them side by side, such as 1.25 and 0.001, until they have a common type."""
    fine = ibis.table({"x": "decimal(4, 3)"}, name="u").x
    for numbers in ([T.d5, fine], [fine, T.i, T.d5]):
        whole = 21 if len(numbers) == 3 else 5
        size = f"decimal({whole + 1}, 3)"
        assert types_of(values.to_common_type(numbers, compared=True)) == [size] * len(numbers)
    both = [fine, T.d38]  # no decimal holds both, and floats would not be exact
    assert types_of(values.to_common_type(both, compared=True)) == types_of(both)
    for minus in (False, True):
        assert str(values.add(T.d5, fine, minus).type()) == "decimal(7, 3)"
    assert found(table, bind(table, "d5 + 0.001", "derive")) == decimals("1.251 -999.989 0.001 -")
    assert found(table, bind(table, "0.001 - d5", "derive")) == decimals("-1.249 999.991 0.001 -")
    assert found(table, bind(table, "d5 > 0.001", "where")) == [True, False, False, None]
    assert found(table, bind(table, "d5 between 1.249 and 1.251", "where")) == [True, False, False, None]
    assert found(table, bind(table, "case d5 when 1.250 then 1 else 2 end", "derive")) == [1, 2, 2, 2]


def test_sums_and_differences(table):
    t = table
    assert found(t, values.add(t.d5, t.d10)) == decimals("1.375 9999000.009 -1.000 -")
    assert found(t, values.add(t.d5, t.d10, minus=True)) == decimals("1.125 -10000999.989 1.000 -")
    assert found(t, values.add(t.i, t.d5, minus=True)) == decimals("3.75 992.99 0.00 -")
    assert found(t, values.add(t.i, t.i, minus=True)) == [0, 0, 0, None]
    assert found(t, values.add(t.i, t.i)) == [10, -14, 0, None]
    assert found(t, values.add(t.f, t.i)) == [5.5, -9.5, 4.0, None]
    assert found(t, values.add(t.f, t.i, minus=True)) == [-4.5, 4.5, 4.0, None]


def test_other_arithmetic(table):
    t = table
    assert found(t, values.multiply(t.f, t.g)) == [1.0, 0.0, -2.0, None]
    assert found(t, values.divide(t.f, t.g)) == [0.25, None, -8.0, None]
    assert found(t, values.divide(t.i, t.f)) == [10.0, 2.8, 0.0, None]
    assert found(t, values.negative(t.i)) == [-5, 7, 0, None]
    assert found(t, values.negative(t.f)) == [-0.5, 2.5, -4.0, None]
    assert found(t, values.negative(t.d5)) == decimals("-1.25 999.99 0.00 -")
    assert found(t, values.root(t.f)) == [math.sqrt(0.5), None, 2.0, None]
    assert found(t, values.root(t.g)) == [math.sqrt(2), 0.0, None, 1.0]
    assert str(values.negative(T.small).type()) == "int64"


def test_only_the_order_of_texts_is_left_to_the_dialect():
    def sql(left, right, sign):
        return ibis.to_sql(T.select(x=values.compare(POSTGRES, left, right, sign)), dialect="postgres")

    assert "TEXT_PATTERN_LT" in sql(T.t, T.t, "<").upper()
    for left, right, sign in ((T.t, T.t, "="), (T.t, T.t, "<>"), (T.i, T.f, "<"), (T.day, T.day, ">=")):
        assert "TEXT_PATTERN" not in sql(left, right, sign).upper()


def test_casts(table):
    t = table
    assert found(t, values.cast(t.d5, dt.float64)) == [1.25, -999.99, 0.0, None]
    assert found(t, values.cast(t.i, dt.boolean)) == [True, True, False, None]
    assert found(t, values.cast(t.i.sign(), dt.boolean)) == [True, True, False, None]
    assert found(t, values.cast(t.b, dt.int64)) == [1, 0, None, 1]
    assert found(t, values.cast(t.i, dt.Decimal(21, 2))) == decimals("5.00 -7.00 0.00 -")
    assert found(t, values.cast(t.day, dt.timestamp))[0] == datetime(2020, 2, 29)
    assert found(t, values.cast(t.at, dt.date)) == found(t, t.day)
    for column in (t.b, t.d5, t.day, t.i):
        assert values.cast(column, column.type()).equals(column)
    assert str(values.cast(NULL, dt.float64).type()) == "float64"


@pytest.mark.parametrize(
    ("name", "to"),
    [
        ("b", "float64"), ("b", "string"), ("day", "float64"), ("day", "string"), ("at", dt.Timestamp("UTC")),
        ("day", dt.Timestamp("UTC")), ("t", "float64"), ("t", "date"), ("f", "int64"), ("d5", "int64"),
        ("d5", "decimal(9, 1)"), ("f", "string"), ("f", "boolean"), ("i", "date"), ("i", "decimal(18, 0)"),
        ("i", "decimal(20, 2)"), ("i", "decimal(18, 9)"), ("i", "decimal"), ("i", "float32"),
    ],
    ids=str,
)  # fmt: skip
def test_casts_that_are_refused(name, to):
    with refused(values.RefusedError, "", code="cast"):
        values.cast(T[name], dt.dtype(to))


@pytest.mark.parametrize("to", ["decimal(19, 0)", "decimal(21, 2)", "decimal(38, 19)"])
def test_a_cast_of_integers_to_decimals_needs_19_digits_before_the_point(to):
    assert str(values.cast(T.small, dt.dtype(to)).type()) == to


@pytest.mark.parametrize("to", ["tinyint", "utinyint", "usmallint", "uinteger", "ubigint"])
def test_integers_that_not_every_engine_has_are_refused(to):
    """PostgreSQL would keep 200 in a cast to tinyint, because its smallest integer has 16 bits."""
    records = open_table(engines.load("duckdb", pa.table({"i": [200, -1], "s": ["200", "-1"], "b": [True, False]})))
    for sql in (f"cast(i as {to})", f"cast(b as {to})", f"cast(null as {to})", f"try_cast(s as {to})"):
        with refused(ParameterError, "derive", code="integer-type"):
            bind(records, sql, "derive")
    for kept in ("smallint", "integer", "bigint"):
        assert found(records, bind(records, f"cast(i as {kept})", "derive")) == [200, -1]
        assert found(records, bind(records, f"try_cast(s as {kept})", "derive")) == [200, -1]
