"""Exact sums: which records are counted, and which are refused, before noise is drawn."""

import dataclasses
import math
from decimal import Decimal
from fractions import Fraction

import ibis
import ibis.expr.datatypes as dt
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from helpers import engines
from helpers.errors import refused

import slowscale as ss
from slowscale import Keys
from slowscale.data import sums
from slowscale.data.engines import ENGINES, PostgreSQL, PrivateDuckDB, engine_of, fetch
from slowscale.data.sources import open_table
from slowscale.data.sums import (
    GRAIN_BITS,
    Column,
    Counted,
    Sum,
    _join_limbs,
    _unit_exponent,
    as_integers,
    counted,
    exact_sums,
    narrowed,
)


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
    with refused(ss.DataError, "column 'x'", code="negatives"):
        summed(*NEGATIVE[name], negatives="error")


@pytest.mark.parametrize("name", NEGATIVE)
def test_a_negative_record_counts_as_zero_or_as_itself_on_request(name):
    values, dtype = NEGATIVE[name]
    numbers = [Fraction(value) for value in values]
    assert summed(values, dtype, negatives="zero") == sum(max(number, 0) for number in numbers)
    # a float is truncated towards zero to a whole number of grains
    expected = sum(math.trunc(n * 2**30) / Fraction(2**30) if pa.types.is_floating(dtype) else n for n in numbers)
    assert summed(values, dtype) == expected


@pytest.mark.parametrize("mechanism", [ss.Root(k=2, sigma=1), ss.Root(k=4, sigma=0.5, a=10), ss.Log(sigma=1)], ids=str)
@pytest.mark.parametrize("record", [-1, -1.0, -0.25, Decimal("-1.00")], ids=repr)
def test_no_negative_record_reaches_a_transformation(mechanism, record):
    """It is refused even if the offset, or the other records, would hide it."""
    session = ss.Session(pa.table({"x": [type(record)(100), record]}))
    with refused(ss.DataError, "column 'x'", code="negatives"):
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


WIDTHS = ("private", "narrow")  # sums of more than 64 bits, and of 64 bits


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    monkeypatch.setitem(ENGINES, "narrow", engines.Narrow())


def opened(engine, columns):
    """Return a table on an engine; "private" is the DuckDB that files and frames are read into."""
    data = pa.table(columns)
    if engine == "narrow":
        return open_table(engines.load_narrow(data))
    return open_table(data if engine == "private" else engines.load(engine, data))


def fractions(found):
    """Return sums by key as fractions."""
    counts = [Fraction(int(count)) for count in found.counts]
    if found.rest is not None:
        assert all(0 <= rest < found.parts for rest in found.rest.tolist())
        counts = [count + Fraction(int(rest), found.parts) for count, rest in zip(counts, found.rest, strict=True)]
    return [count * found.grain for count in counts]


def by_record(engine, values, dtype, run=fetch, unit=1, **options):
    """Return what each record contributes: the sum of a key of its own."""
    table = opened(engine, {"k": pa.array(range(len(values)), pa.int64()), "x": pa.array(values, dtype)})
    column = Column("x", Fraction(unit), text=pa.types.is_string(dtype), **options)
    return exact_sums(table, [column], Keys.cross({"k": list(range(len(values)))}), run).sums["x"]


def in_grains(value, power):
    """Return a float truncated towards zero to a whole number of grains."""
    grain = Fraction(power) / 2**30
    return math.trunc(Fraction(value) / grain) * grain


# Times the power of two: below a grain, halves of grains, around the limits of 32- and 64-bit limbs, and the largest.
FLOATS = [
    0.0, -0.0, 2.0**-31, 2.0**-30, -1.5 * 2.0**-30, 1 / 3, -1 / 3, 1.0, -2.5, 255.99999999999997, 1e6 + 0.1,
    -(2.0**22) - 2.0**-30, 2.0**31 - 2.0**-20, 2.0**32 + 0.75, -(2.0**33) + 2.0**-19,
]  # fmt: skip
LARGE = [2.0**33, -(2.0**33) - 0.5, 2.0**40 + 1 / 3, -(2.0**54) - 4, 2.0**55 - 4, 4.0 - 2.0**55]


@pytest.mark.parametrize("values", [FLOATS, FLOATS + LARGE], ids=["fit in 64 bits", "need more bits"])
@pytest.mark.parametrize(
    ("unit", "power"), [(1, 1), (8, 8), (3, 2), (Fraction(1, 100), Fraction(1, 128)), (1000, 512)], ids=str
)
@pytest.mark.parametrize("engine", WIDTHS)
def test_a_float_counts_as_whole_grains_of_the_power_of_two_below_the_unit(engine, unit, power, values):
    scaled = [value * float(power) for value in values]
    found = by_record(engine, scaled, pa.float64(), unit=unit)
    expected = [in_grains(value, power) for value in scaled]
    assert fractions(found) == expected
    assert (found.grain, found.parts) == (power, 2**30)
    assert found.floats().tolist() == pytest.approx([float(number) for number in expected], rel=1e-15, abs=0)
    total = exact_sums(opened(engine, {"x": pa.array(scaled)}), [Column("x", Fraction(unit))], None).sums["x"]
    assert fractions(total) == [sum(expected)]


@pytest.mark.parametrize("engine", WIDTHS)
def test_integers_of_every_size_are_summed_exactly(engine):
    values = [2**63 - 1, -(2**63), 2**32, 2**32 - 1, -(2**32) - 1, 2**31, 5, -1, 0, -(2**62)]
    found = by_record(engine, values, pa.int64())
    assert fractions(found) == values
    assert (found.grain, found.rest, found.parts) == (1, None, 1)
    assert found.floats().tolist() == [float(value) for value in values]
    for several in ([2**63 - 1] * 3, [-(2**63)] * 5, [-3, 1]):
        table = opened(engine, {"x": pa.array(several, pa.int64())})
        assert fractions(exact_sums(table, [Column("x", Fraction(1))], None).sums["x"]) == [sum(several)]


@pytest.mark.parametrize("engine", ["private", "duckdb"])
@pytest.mark.parametrize(("digits", "scale"), [(9, 2), (18, 0), (38, 6), (38, 0), (38, 38)])
def test_decimals_are_summed_exactly_in_their_last_digit(engine, digits, scale):
    values = [Decimal(number).scaleb(-scale) for number in (1, -1, 10**digits // 9, -(10**digits // 7), 0)]
    found = by_record(engine, values, pa.decimal128(digits, scale))
    assert (found.grain, found.rest) == (Fraction(1, 10**scale), None)
    assert fractions(found) == [Fraction(value) for value in values]


NUMBER_TEXTS = [
    "1.5", "-0.25", "+3", " 7 ", "\t8\t", ".5", "-.5", "1.", "007", "-0", "1.500000000000000000000",
    "123456789012345678.123456789012", "-999999999999999999.999999999999", "0.000000000001",
]  # fmt: skip


def test_numbers_in_texts_are_exact_decimals():
    expected = [Fraction(Decimal(text.strip())) for text in NUMBER_TEXTS]
    found = by_record("private", NUMBER_TEXTS, pa.string())
    assert fractions(found) == expected
    assert (found.grain, found.rest) == (Fraction(1, 10**12), None)
    positive = [max(number, 0) for number in expected]
    assert fractions(by_record("private", NUMBER_TEXTS, pa.string(), negatives="zero")) == positive


@pytest.mark.parametrize(
    "text",
    ["abc", "1e5", "--1", "1,5", "0x10", "1 2", "-", ".", "1.1234567890123", "1234567890123456789", "NaN", "inf"],
)
@pytest.mark.parametrize("nulls", ["error", "zero"])
def test_other_texts_are_refused(text, nulls):
    words = (
        "column 'x' has values that are not numbers (choose a column of numbers); correct these records, or leave them "
        "out with a filter (where)"
    )
    with pytest.raises(ss.DataError) as caught:
        by_record("private", ["5", text], pa.string(), nulls=nulls)
    assert str(caught.value) == words


MISSING = {
    "int64": ([0, None, 5], pa.int64()),
    "float": ([0.0, None, 5.0], pa.float64()),
    "decimal": ([Decimal(0), None, Decimal(5)], pa.decimal128(9, 2)),
    "text": (["0", None, "5"], pa.string()),
    "blank text": (["0", " ", "5"], pa.string()),
}


def places(name):
    return ["private"] if "text" in name else WIDTHS


@pytest.mark.parametrize("negatives", [None, "error", "zero"])
@pytest.mark.parametrize(("name", "engine"), [(name, engine) for name in MISSING for engine in places(name)])
def test_missing_values_are_refused_or_count_as_zero(name, engine, negatives):
    """A zero among the records is neither missing nor negative, and the message does not say so."""
    assert fractions(by_record(engine, *MISSING[name], nulls="zero", negatives=negatives)) == [0, 0, 5]
    with pytest.raises(ss.DataError) as caught:
        by_record(engine, *MISSING[name], negatives=negatives)
    assert str(caught.value) == (
        "column 'x' has missing values (choose nulls = \"zero\" for the table to count them as 0); correct "
        "these records, or leave them out with a filter (where)"
    )


@pytest.mark.parametrize("engine", WIDTHS)
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("unit", [1, 8, Fraction(1, 8)], ids=str)
def test_a_float_of_more_than_55_bits_is_too_large(engine, sign, unit):
    most = 2.0**55 * float(unit)
    with pytest.raises(ss.DataError) as caught:
        by_record(engine, [1.0, sign * most], pa.float64(), unit=unit)
    assert str(caught.value) == (
        f"column 'x' has values that are too large to be counted in units of {unit} (give a larger unit); correct "
        "these records, or leave them out with a filter (where)"
    )
    below = sign * math.nextafter(most, 0)
    assert fractions(by_record(engine, [1.0, below], pa.float64(), unit=unit)) == [1, Fraction(below)]


@pytest.mark.parametrize("engine", WIDTHS)
@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([math.inf], "infinite values"),
        ([-math.inf], "infinite values"),
        ([math.nan], "values that are NaN"),
        ([math.inf, math.nan], "values that are NaN, and has infinite values"),
        ([1.7976931348623157e308], "values that are too large to be counted in units of 1 (give a larger unit)"),
    ],
)
@pytest.mark.parametrize("nulls", ["error", "zero"])
def test_the_reason_why_floats_cannot_be_counted(engine, values, words, nulls):
    with pytest.raises(ss.DataError) as caught:
        by_record(engine, [0.0, 1.0, *values], pa.float64(), nulls=nulls)
    assert (
        str(caught.value) == f"column 'x' has {words}; correct these records, or leave them out with a filter (where)"
    )


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e300])
@pytest.mark.parametrize("engine", ["private", "duckdb"])
def test_a_float_that_cannot_be_counted_does_not_matter_outside_of_the_keys(engine, value):
    table = opened(engine, {"k": ["a", "b", "a", None], "x": [1.25, value, -(2.0**40), value]})
    found = exact_sums(table, [Column("x", Fraction(1))], Keys.cross({"k": ["a", "c"]}))
    assert fractions(found.sums["x"]) == [Fraction(5, 4) - 2**40, 0]
    assert found.rows.tolist() == [2, 0]


@pytest.mark.parametrize("value", [10**38, -(10**38), 2**127 - 1])
def test_an_integer_of_more_than_38_digits_is_too_large(value):
    connection = ibis.duckdb.connect()
    connection.raw_sql("CREATE TABLE t (x HUGEINT)")
    largest = 10**38 - 1
    connection.raw_sql(f"INSERT INTO t VALUES ({largest}), (-1), ({-largest})")
    column = Column("x", Fraction(1))
    assert fractions(exact_sums(connection.table("t"), [column], None).sums["x"]) == [-1]
    connection.raw_sql(f"INSERT INTO t VALUES ({value})")
    with refused(ss.DataError, "column 'x'", code="digits"):
        exact_sums(connection.table("t"), [column], None)


@pytest.mark.parametrize("engine", WIDTHS)
def test_every_record_must_have_a_protected_entity(engine):
    table = opened(engine, {"k": ["a", "a", "b"], "firm": ["x", "y", None], "x": [1, 2, 4]})
    columns = [Column("x", Fraction(1))]
    found = exact_sums(table, columns, Keys.cross({"k": ["a"]}), protect="firm")
    assert found.rows.tolist() == [2]
    assert fractions(found.sums["x"]) == [3]
    for keys in (Keys.cross({"k": ["a", "b"]}), None):
        with refused(ss.DataError, "column 'firm'", code="no-entity"):
            exact_sums(table, columns, keys, protect="firm")
    assert fractions(exact_sums(table, columns, None).sums["x"]) == [7]


@pytest.mark.parametrize("engine", WIDTHS)
def test_records_without_a_label_in_every_key_column_are_left_out(engine):
    table = opened(engine, {"k": ["a", None, "a", "b"], "n": [1, 1, None, 2], "x": [1, 2, 4, 8]})
    found = exact_sums(table, [Column("x", Fraction(1))], Keys.cross({"n": [2, 1], "k": ["a", "b"]}))
    assert found.rows.tolist() == [0, 1, 1, 0]
    assert fractions(found.sums["x"]) == [0, 8, 1, 0]


@pytest.mark.parametrize(
    ("dtype", "error", "words"),
    [
        (pa.float64(), ss.ParameterTypeError, "by: column 'k' must hold text, whole numbers, booleans or dates, got "
         """float64; if it holds whole numbers, derive the column code as 'cast(round("k") as bigint)', and use code """
         "as the key column"),
        (pa.timestamp("us"), ss.ParameterTypeError, "by: column 'k' must hold text, whole numbers, booleans or dates, "
         """got timestamp(6); derive the column day as 'cast("k" as date)', and use day as the key column"""),
        (pa.int64(), ss.ParameterTypeError, "by: column 'k' holds whole numbers, but the keys hold text; "),
    ],
)  # fmt: skip
def test_keys_of_another_type_than_the_column(dtype, error, words):
    table = opened("private", {"k": pa.array([None], dtype), "x": [1]})
    with pytest.raises(error) as caught:
        exact_sums(table, [Column("x", Fraction(1))], Keys.cross({"k": ["a"]}))
    assert str(caught.value).startswith(words)


def test_keys_of_a_column_that_is_not_there():
    with refused(ss.ParameterError, "by", code="unknown-column"):
        exact_sums(opened("private", {"n": [1], "x": [1]}), [Column("x", Fraction(1))], Keys.cross({"k": ["a"]}))


@pytest.mark.parametrize(
    ("values", "dtype", "hint"),
    [
        ([True], pa.bool_(), "boolean; choose another column"),
        (["1"], pa.string(), "string; declare its type in types, or convert it in derive"),
    ],
)  # fmt: skip
def test_columns_without_numbers_are_refused(values, dtype, hint):
    with pytest.raises(ss.ParameterTypeError) as caught:
        exact_sums(opened("private", {"x": pa.array(values, dtype)}), [Column("x", Fraction(1))], None)
    assert str(caught.value) == f"column 'x' must hold numbers to be summed, got {hint}"


@pytest.mark.parametrize("engine", WIDTHS)
@pytest.mark.parametrize("dtype", [pa.int64(), pa.float64()], ids=str)
def test_no_records_give_zero(engine, dtype):
    table = opened(engine, {"k": pa.array([], pa.string()), "x": pa.array([], dtype)})
    for keys, size in ((None, 1), (Keys.cross({"k": ["a", "b"]}), 2)):
        found = exact_sums(table, [Column("x", Fraction(1))], keys)
        assert found.rows.tolist() == [0] * size
        assert fractions(found.sums["x"]) == [0] * size


@pytest.mark.parametrize("engine", WIDTHS)
@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([3, -5], pa.int64()),
        ([2**63 - 1, -5], pa.int64()),
        ([0.75, -(2.0**32) - 0.75], pa.float64()),
        ([2.0**54, -0.75], pa.float64()),
    ],
)
def test_groups_that_belong_to_one_key_are_added_up(engine, values, dtype):
    def run(query):
        found = fetch(query)
        return pa.concat_tables([found, found])

    found = by_record(engine, values, dtype, run)
    assert fractions(found) == [2 * Fraction(value) for value in values]
    fit = all(-(2**63) <= count < 2**63 for count in found.counts.tolist())
    assert found.counts.dtype == (np.int64 if fit else object)


def with_sums(totals):
    """Run a query, but return other totals in the place of the sums of the first column."""

    def run(query):
        found = fetch(query)
        column = pa.array([None if total is None else Decimal(total) for total in totals], pa.decimal128(38, 0))
        labels = found["by0"].to_pylist()
        return found.set_column(found.column_names.index("sum0_0"), "sum0_0", column.take(pa.array(labels)))

    return run


@pytest.mark.parametrize("power", [62, 63, 64, 65, 91, 92, 93, 94, 120])
@pytest.mark.parametrize("count", [1, 5])
def test_sums_of_floats_of_every_size_are_exact(power, count):
    """In grains; a sum of many records may need more than 64 bits, and than 128 with several groups of one key."""
    totals = [sign * 2**power + more for sign in (1, -1) for more in (-1, 0, 1, 2**30 - 1, 12345)]

    def run(query):
        return pa.concat_tables([with_sums(totals)(query)] * count)

    found = by_record("private", [1.0] * len(totals), pa.float64(), run)
    assert fractions(found) == [Fraction(count * total, 2**30) for total in totals]
    alone = [fractions(by_record("private", [1.0], pa.float64(), with_sums([total]))) for total in totals[:2]]
    assert alone == [[Fraction(total, 2**30)] for total in totals[:2]]


def test_the_grain_of_a_float_and_the_parts_of_asum_of_limb():
    assert counted(opened("private", {"x": [0.5]}), Column("x", Fraction(1))).grain == Fraction(1, 2**30)
    whole = Sum(np.array([3, -4]), Fraction(1, 4))
    assert (whole.parts, whole.floats().tolist()) == (1, [0.75, -1.0])
    parts = Sum(np.array([3, -4]), Fraction(2), np.array([1, 3]), 4)
    assert parts.floats().tolist() == [6.5, -6.5]


def test_a_sum_of_64_bit_integers_has_room_for_38_digits():
    """That is enough for 2**63 records; one digit less would not be."""
    table = opened("private", {"x": [1]})
    assert sums.sum_of_limb(engine_of(table), table.x).type() == dt.Decimal(38, 0)
    assert 10**37 < 2**63 * 2**63 < 10**38


def test_a_sum_that_the_engine_could_not_represent_is_refused():
    with refused(ss.DataError, "the sum of column 'x'", code="precision"):
        by_record("private", [1, 2], pa.int64(), with_sums([1, None]))


@pytest.mark.parametrize(
    ("engine", "dtype", "tries"),
    [("private", pa.int64(), 1), ("private", pa.float64(), 2), ("narrow", pa.int64(), 1), ("narrow", pa.float64(), 1)],
)
def test_a_failed_query_is_tried_again_only_if_a_float_may_be_the_reason(engine, dtype, tries):
    queries = []

    def run(query):
        queries.append(query)
        raise RuntimeError("a confidential value")

    with pytest.raises(ss.EngineError) as caught:
        by_record(engine, [1, 2], dtype, run)
    assert len(queries) == tries
    assert str(caught.value).startswith("the engine could not sum the table: RuntimeError")
    assert "confidential value" not in str(caught.value)


def test_a_failed_check_does_not_quote_records():
    def run(query):
        if "valid0" in query.columns:
            return fetch(query)
        raise RuntimeError("a confidential value")

    with pytest.raises(ss.EngineError) as caught:
        by_record("private", [1, None], pa.int64(), run)
    assert str(caught.value).startswith("the engine could not check the table: RuntimeError")
    assert "confidential value" not in str(caught.value)


def test_sums_neither_show_themselves_nor_change():
    table, column = opened("private", {"x": [123]}), Column("x", Fraction(1))
    found = exact_sums(table, [column], None)
    assert repr(found) == repr(found.sums["x"]) == "<exact sums: confidential>"
    for part, name in (
        (column, "unit"),
        (found, "rows"),
        (found.sums["x"], "counts"),
        (counted(table, column), "grain"),
    ):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(part, name, None)


def test_a_float_that_cannot_be_counted_has_no_value():
    values = [math.nan, math.inf, -math.inf, 2.0**55, -(2.0**55), 1.5]
    assert values_of("private", values, pa.float64()) == [None] * 5 + [1.5]


@pytest.mark.parametrize(
    "unit",
    [1, 2, 3, 4, 7, 1000, Fraction(1, 2), Fraction(1, 3), Fraction(1, 100), Fraction(255, 256), Fraction(2**70 + 1, 3),
     Fraction(3, 2**70 + 1), Fraction(2) ** 899, Fraction(2) ** -899],
    ids=str,
)  # fmt: skip
def test_the_power_of_two_of_a_unit(unit):
    exponent = _unit_exponent(Column("x", Fraction(unit)))
    assert Fraction(2) ** exponent <= unit < Fraction(2) ** (exponent + 1)


@pytest.mark.parametrize("exponent", [900, -900, 2000, -2000])
def test_a_unit_of_extreme_size_is_refused_for_floats(exponent):
    with refused(ss.ParameterError, "unit of the float column 'x'", code="value"):
        _unit_exponent(Column("x", Fraction(2) ** exponent))


@pytest.mark.parametrize(
    "numbers",
    [[0, 1, -1], [200, -200], [2**63 - 1, -(2**63)], [2**63], [-(2**63) - 1], [2**63, 2], [2**64 - 2], [2**64],
     [10**38 - 1, 1 - 10**38], []],
    ids=str,
)  # fmt: skip
def test_integers_have_64_bits_where_all_fit(numbers):
    fit = all(-(2**63) <= number < 2**63 for number in numbers)
    column = pa.chunked_array([pa.array([Decimal(number) for number in numbers], pa.decimal128(38, 0))])
    columns = [column, *([pa.chunked_array([pa.array(numbers, pa.int64())])] if fit else [])]
    for found in (*map(as_integers, columns), narrowed(np.array(numbers, object))):
        assert [int(number) for number in found] == numbers
        assert found.dtype == (np.int64 if fit else object)


def test_integers_of_every_type_of_column():
    for dtype in (pa.int8(), pa.int64(), pa.uint8(), pa.decimal128(5, 0), pa.decimal256(50, 0)):
        chunks = pa.chunked_array([pa.array([7, None], dtype), pa.array([], dtype), pa.array([100, 3], dtype)])
        assert as_integers(chunks).tolist() == [7, 0, 100, 3]
        assert as_integers(chunks.slice(2, 1)).tolist() == [100]
        assert as_integers(chunks.slice(3, 1)).tolist() == [3]
        assert as_integers(pa.chunked_array([], dtype)).tolist() == []
    scaled = pa.chunked_array([pa.array([Decimal("-1.25")], pa.decimal128(9, 2))])
    assert as_integers(scaled).tolist() == [-125]
    large = pa.chunked_array([pa.array([Decimal(10**38 - 1)], pa.decimal256(50, 0))])
    assert as_integers(large).tolist() == [10**38 - 1]


def values_of(engine, values, dtype, **options):
    """Return the value that is counted for each record, as losses are computed of it."""
    table = opened(engine, {"x": pa.array(values, dtype)})
    value = counted(table, Column("x", Fraction(1), text=pa.types.is_string(dtype), **options)).value
    return table.select(v=value).to_pyarrow()["v"].to_pylist()


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([-2, -1, 0, 1, 3, None], pa.int64()),
        ([-2.0, -0.5, 0.0, 0.5, 3.0, None], pa.float64()),
        (["-2", "-0.5", "0", "0.5", "3", ""], pa.string()),
    ],
    ids=["int64", "float", "text"],
)
def test_losses_use_the_value_that_is_summed(values, dtype):
    *numbers, _ = [float(value or 0) for value in values]
    positive = [max(number, 0) for number in numbers]
    assert values_of("private", values, dtype) == [*numbers, None]
    assert values_of("private", values, dtype, nulls="zero") == [*numbers, 0]
    assert values_of("private", values, dtype, negatives="zero") == [*positive, None]
    assert values_of("private", values, dtype, nulls="zero", negatives="zero") == [*positive, 0]


@pytest.mark.parametrize("engine", WIDTHS)
@pytest.mark.parametrize("null_if_uncountable", [True, False])
@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([2**63 - 1, -(2**63), 2**32 - 1, 5, -1], pa.int64()),
        ([Decimal("1.25"), Decimal("-9999999.99")], pa.decimal128(9, 2)),
        ([0.75, -1.5, 2.0**32 + 0.5, -(2.0**33) + 0.25], pa.float64()),
        ([2.0**55 - 4, 4 - 2.0**55, 2.0**54 + 4, 1.25], pa.float64()),
    ],
    ids=["int64", "decimal", "float", "large float"],
)
def test_limbs_times_their_weights_are_the_value_in_grains(engine, null_if_uncountable, values, dtype):
    """On an engine whose sums have 64 bits, two billion limbs of 32 bits do not overflow."""
    wide = engine == "private"
    if (pa.types.is_decimal(dtype) and not wide) or (not null_if_uncountable and (not wide or values[0] > 2**54)):
        return  # the engine has no decimals, or does not count them so
    table = opened(engine, {"x": pa.array(values, dtype)})
    found = counted(table, Column("x", Fraction(1)), null_if_uncountable)
    limbs = [table.select(v=limb).to_pyarrow()["v"].to_pylist() for limb, _ in found.limbs]
    scale = Fraction(1) if pa.types.is_decimal(dtype) else found.grain  # a limb of decimals has the decimal's point
    weights = [weight for _, weight in found.limbs]
    for value, *parts in zip(values, *limbs, strict=True):
        total = sum(Fraction(part) * weight for part, weight in zip(parts, weights, strict=True))
        assert total * scale == Fraction(value)
        assert wide or max(map(abs, parts)) <= 2**32


def test_a_nan_is_found_although_the_statistics_of_a_parquet_file_leave_it_out(tmp_path):
    """By the statistics of the file, all values are between 1 and 2, so that DuckDB may leave out comparisons."""
    path = tmp_path / "t.parquet"
    pa.parquet.write_table(pa.table({"k": [1, 2, 3], "x": [1.0, math.nan, 2.0]}), path)
    with refused(ss.DataError, "column 'x'", code="nan"):
        exact_sums(open_table(path), [Column("x", Fraction(1))], None)
    found = exact_sums(open_table(path), [Column("x", Fraction(1))], Keys.cross({"k": [1, 3]}))
    assert fractions(found.sums["x"]) == [1, 2]


def test_floats_that_could_underflow_become_zero_and_no_others(monkeypatch):
    """On PostgreSQL, where the underflow of a product is an error. DuckDB understands the same expression."""
    monkeypatch.setattr(PrivateDuckDB, "without_underflow", PostgreSQL.without_underflow)
    grain = 2.0**-30
    values = [grain, -grain, math.nextafter(grain, 0), -math.nextafter(grain, 0), 5e-324, 0.75, -3.0]
    assert values_of("private", values, pa.float64()) == [grain, -grain, 0.0, 0.0, 0.0, 0.75, -3.0]
    assert fractions(by_record("private", values, pa.float64())) == [in_grains(value, 1) for value in values]


@pytest.mark.parametrize(
    ("dtype", "digits", "number"),
    [
        ("decimal", 12, "CAST(TRUNC({}, 12) AS DECIMAL(38, 12))"),
        ("decimal(10, 3)", 3, "CAST({} AS DECIMAL(38, 3))"),
    ],
)
def test_decimals_of_postgresql(monkeypatch, dtype, digits, number):
    """A decimal without a scale is truncated after 12 digits; at most 18 of its digits may be before the point."""
    monkeypatch.setattr(sums, "engine_of", lambda table: PostgreSQL())
    table = ibis.table({"x": dtype}, name="t")
    found = counted(table, Column("x", Fraction(1)))
    assert found.grain == Fraction(1, 10**digits)
    ((limb, weight),) = found.limbs
    assert weight == 1
    assert limb.type() == dt.Decimal(38, digits)
    written = "".join(ibis.to_sql(table.select(v=limb), dialect="postgres").split())
    most = 10 ** (38 - (20 if dtype == "decimal" else digits))
    case = f"""CASE WHEN ABS(CAST("t0"."x" AS DECIMAL)) < CAST('{most}' AS DECIMAL) THEN "t0"."x" ELSE NULL END"""
    assert written == f"""SELECT {number.format(case)} AS "v" FROM "t" AS "t0\"""".replace(" ", "")


def test_several_groups_of_one_key_do_not_overflow():
    """The parts of a sum of floats are 64-bit numbers, and so is the carry between them."""
    grains = [(count << GRAIN_BITS) + 2**GRAIN_BITS - 1 for count in (2**62 - 1, 2**62 - 1, 1)] * 2
    limb = pa.chunked_array([pa.array([Decimal(number) for number in grains], pa.decimal128(38))])
    number = Counted(None, [], Fraction(1), exact=False, valid=None)
    for at, size in (([0, 0, 0, 1, 1, 1], 2), ([0, 0, 0, 0, 0, 0], 1), ([0, 1, 2, 3, 4, 5], 6)):
        found = _join_limbs([(limb, 1)], np.array(at), size, number)
        expected = [sum(g for g, key in zip(grains, at, strict=True) if key == k) for k in range(size)]
        assert [(int(c) << GRAIN_BITS) + int(r) for c, r in zip(found.counts, found.rest, strict=True)] == expected
