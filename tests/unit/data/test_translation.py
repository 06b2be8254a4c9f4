"""SQL text: constants, positions and times that every engine reads in the same way, and what is refused."""

from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from helpers.errors import refused

from slowscale.core.errors import ParameterError
from slowscale.data.rowwise import bind
from slowscale.data.sources import open_table

LARGE = 10**36
UNCLOSED = "a quote or a comment is not closed; a quote inside a text is written twice, as in 'farmer''s'"


@pytest.fixture(scope="module")
def table():
    return open_table(
        pa.table(
            {
                "s": ["abc", ""],
                "i": [5, -(2**63)],
                "d": pa.array([Decimal(LARGE + 1), Decimal(LARGE)], pa.decimal128(38, 0)),
                "at": [datetime(2020, 2, 29, 12), datetime(2020, 2, 29)],
                "zone": pa.array([1582977600, 0], pa.timestamp("s", "America/New_York")),
                "month": [datetime(2020, month, 1) for month in (6, 12)],
                "x": [0.5, -2.5],
                "cents": pa.array([None, Decimal("1.25")], pa.decimal128(5, 2)),
                "mills": pa.array([Decimal("0.125"), Decimal("-2000000.001")], pa.decimal128(10, 3)),
            }
        )
    )


def found(table, expression):
    return table.select(x=bind(table, expression, "derive")).to_pyarrow()["x"].to_pylist()


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f"d in ({LARGE}.0)", [False, True]),
        (f"d between {LARGE}.0 and {LARGE}.0", [False, True]),
        ("i = -9223372036854775808", [False, True]),
        ("case i when 5 then 'five' when 6 then 'six' else 'other' end", ["five", "other"]),
        ("zone = '2020-02-29 12:00:00'", [True, False]),
        ("cast(at as date)", [date(2020, 2, 29)] * 2),
        ("cast(cast(at as date) as timestamp)", [datetime(2020, 2, 29)] * 2),
        ("greatest(x, 0.0) + least(x, 1.0) * 10", [5.5, -25.0]),
        ("right(s, 0)", ["", ""]),
        ("x > -1.5", [True, False]),
        ("x = -25e-1", [False, True]),
        ("cast(5 as double) + cast(s = 'abc' as integer)", [6.0, 5.0]),
        ("coalesce(null, i)", [5, -(2**63)]),
        ("length(lpad(s, 10000, 'x'))", [10000, 10000]),
        ("quarter(month)", [2, 4]),
        ("abs(null) is null", [True, True]),
        ("substr(s, 1, 0)", ["", ""]),
        ("substr(s, 2)", ["bc", ""]),
    ],
    ids=str,
)
def test_values(table, expression, expected):
    assert found(table, expression) == expected


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ("try_cast(s as decimal(38, 2))", "digits"),
        ("lpad(s, 10001, 'x')", "too-long"),
        ("my_function(s, '%Y')", "syntax"),
        ("try_strptime(s)", "syntax"),
        ("try_strptime(s, '%Y', '%m')", "syntax"),
        ("i between null and 5", "null"),
        ("nullif(i, null)", "null"),
        ("substr(s, 1.5)", "position"),
        ("substr(s, 1, '1')", "position"),
        ("substr(s, 1, -1)", "position"),
        ("left(s, -1)", "position"),
        ("right(s, -1)", "position"),
        ("lpad(s, -1, 'x')", "position"),
        ("split_part(s, ',', 0)", "position"),
        ("strptime(s, '%Y %y')", "format-parts"),
        ("strptime(s, '%m')", "format-parts"),
    ],
    ids=str,
)
def test_refusals(table, expression, code):
    with refused(ParameterError, "derive", code=code):
        bind(table, expression, "derive")


@pytest.mark.parametrize("expression", ["zone", "at", "timestamp '2020-01-01 00:00:00'"])
def test_times_have_no_zone(table, expression):
    assert bind(table, expression, "derive").type().timezone is None


@pytest.mark.parametrize(
    ("sql", "dtype"),
    [("abs(null)", "int64"), ("upper(null)", "string"), ("strftime(null, '%Y')", "string"), ("year(null)", "int32")],
)
def test_null_is_of_every_kind(table, sql, dtype):
    assert str(bind(table, sql, "derive").type()) == dtype


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("if(i > 0, mills, cents)", ["0.125", "1.250"]),
        ("case when i < 0 then cents else mills end", ["0.125", "1.250"]),
        ("greatest(cents, mills)", ["0.125", "1.250"]),
        ("if(i < 0, cents, mills)", ["0.125", "1.250"]),
        ("coalesce(cents, mills)", ["0.125", "1.250"]),
        ("least(cents, mills)", ["0.125", "-2000000.001"]),
    ],
    ids=str,
)
def test_one_of_several_decimals_keeps_all_its_digits(table, expression, expected):
    assert str(bind(table, expression, "derive").type()) == "decimal(10, 3)"
    assert found(table, expression) == [Decimal(number) for number in expected]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("case i when 5 then i else cents end", ["5", "1.25"]),
        ("if(i < 0, cents, i)", ["5", "1.25"]),
        ("coalesce(cents, i)", ["5", "1.25"]),
        ("greatest(cents, i)", ["5", "1.25"]),
        ("least(cents, i)", ["5", str(-(2**63))]),
    ],
    ids=str,
)
def test_an_integer_or_a_decimal_has_room_for_every_integer(table, expression, expected):
    """Ibis would give the result the type of the decimal, which has three digits before the point."""
    assert str(bind(table, expression, "derive").type()) == "decimal(21, 2)"
    assert found(table, expression) == [Decimal(number) for number in expected]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("whole = parts", [False, True]),
        ("whole between parts and parts", [False, True]),
        ("whole in (parts)", [False, True]),
        ("case whole when parts then 1 else 2 end", [2, 1]),
        ("nullif(whole, parts) is null", [False, True]),
    ],
    ids=str,
)
def test_decimals_are_compared_exactly_although_no_type_holds_all_of_them(expression, expected):
    """A decimal of 38 digits with 3 of them after the point has fewer before it; as floats, these would be equal."""
    large = 10**30
    columns = {
        "whole": pa.array([Decimal(large + 1), Decimal(large)], pa.decimal128(38, 0)),
        "parts": pa.array([Decimal(large)] * 2, pa.decimal128(38, 3)),
    }
    assert found(open_table(pa.table(columns)), expression) == expected


def test_constants_are_exact_beside_exact_numbers_only(table):
    """Alone or beside floats they are floats, whatever their number of digits; a decimal has at most 38."""
    many = "0." + "1" * 40
    for sql in ("1.25 + 2.5", f"{many} + 1.5", f"x + {many}", "x + 1.25"):
        assert str(bind(table, sql, "derive").type()) == "float64"
    assert found(table, f"x < {many}") == [False, True]
    assert found(table, "i + 0.001") == [Decimal("5.001"), Decimal(-(2**63)) + Decimal("0.001")]
    with refused(ParameterError, "derive", code="digits"):
        bind(table, f"cents < {many}", "derive")


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("i +", "it is incomplete: something is missing near '+' (line 1, column 3)"),
        ("i >", "it is incomplete: something is missing near '>' (line 1, column 3)"),
        ("i > 3 and", "it is incomplete: something is missing near 'and' (line 1, column 9)"),
        ("(i\n> 3", "it is incomplete: ')' is missing after '3' (line 2, column 3)"),
        ("i > 3)", "')' cannot stand there (line 1, column 6)"),
        ("s = 'a", UNCLOSED),
        ("s = 'farmer's'", UNCLOSED),
        ('"s = 3', UNCLOSED),
        ("i > 3 /* why", UNCLOSED),
        ("", "it is empty"),
        ("case when i > 3 then 1", "Expected END after CASE (line 1, column 22)"),
    ],
)
def test_the_error_of_the_parser_is_one_plain_line(table, sql, problem):
    with refused(ParameterError, "where", code="syntax") as caught:
        bind(table, sql, "where")
    assert str(caught.value) == f"where must be a SQL expression, got {sql!r}; {problem}"


@pytest.mark.parametrize("how", ["floor", "ceil", "round"])
def test_a_float_that_does_not_fit_in_64_bits_has_no_integer(how):
    numbers = open_table(pa.table({"x": [2.0**63, -(2.0**63), 2.0**63 - 1024, 1024 - 2.0**63, 0.5]}))
    whole = {"floor": 0, "ceil": 1, "round": 1}[how]
    assert found(numbers, f"{how}(x)") == [None, None, 2**63 - 1024, 1024 - 2**63, whole]


def test_every_month_is_in_its_quarter():
    months = open_table(pa.table({"d": [date(2021, month, 15) for month in range(1, 13)]}))
    assert found(months, "quarter(d)") == [1] * 3 + [2] * 3 + [3] * 3 + [4] * 3
    first = [date(2021, month, 1) for month in (1, 4, 7, 10) for _ in range(3)]
    assert found(months, "date_trunc('quarter', d)") == first
    names = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    assert found(months, "strftime(d, '%b %m')") == [f"{name} {month:02}" for month, name in enumerate(names, 1)]


def test_only_years_of_four_digits_are_written():
    days = pa.array([-719162, -719163, 2932896, 2932897], pa.int32()).cast(pa.date32())  # the years 1, 0, 9999, 10000
    table = open_table(pa.table({"d": days}))
    assert found(table, "strftime(d, '%Y-%m-%d')") == ["0001-01-01", None, "9999-12-31", None]


def test_numbers_side_by_side_need_all_their_digits():
    """Otherwise 1022020 could be the 1st of February or the 10th of a month 2."""
    texts = open_table(pa.table({"s": ["01022020", "1022020", "10022020"]}))
    assert found(texts, "strptime(s, '%d%m%Y')") == [datetime(2020, 2, 1), None, datetime(2020, 2, 10)]
    pairs = open_table(pa.table({"s": ["0102/2020", "012/2020", "102/2020"]}))
    assert found(pairs, "strptime(s, '%d%m/%Y')") == [datetime(2020, 2, 1), None, None]


def test_integers_of_64_bits_in_sql_text(table):
    assert found(table, "-9223372036854775808")[0] == -(2**63)
    assert found(table, "9223372036854775807")[0] == 2**63 - 1
    for number in ("-9223372036854775809", "9223372036854775808"):
        with refused(ParameterError, "derive", code="out-of-range"):
            bind(table, number, "derive")
