"""The functions that SQLite calls: their results, the bounds of their numbers, and NULL for values of other types."""

import contextlib
import sqlite3

import pytest

from slowscale.tables import sqlite

MOST, LEAST = 2**63 - 1, -(2**63)
CALLS = [
    (("matches", "abc", "b"), 1),
    (("matches", "abc", "x"), 0),
    (("regexp_replace", "aXbX", "X", "-", 0), "a-b-"),
    (("regexp_replace", "aXbX", "X", "-", 1), "a-bX"),
    (("split_part", "a,b", ",", 2), "b"),
    (("split_part", "a,b", ",", 3), ""),
    (("lpad", "ab", 5, "xy"), "xyxab"),
    (("rpad", "ab", 5, "xy"), "abxyx"),
    *(((name, "abc", length, "x"), "abc"[:length]) for name in ("lpad", "rpad") for length in (0, 2, 3)),
    (("add", MOST - 1, 1), MOST),
    (("subtract", LEAST + 1, 1), LEAST),
    (("multiply", 2**31, 2**31), 2**62),
    (("abs", -5), 5),
    (("divide", 7, 2), 3),
    (("divide", -7, 2), -3),
    (("divide", 7, -2), -3),
    (("divide", -7, -2), 3),
    (("divide", 0, -2), 0),
    (("divide", MOST, 1), MOST),
    (("divide", 5, 0), None),
    (("modulo", 7, 2), 1),
    (("modulo", -7, 2), -1),
    (("modulo", 7, -2), 1),
    (("modulo", MOST, 2**62), 2**62 - 1),
    (("modulo", -MOST, 2**62), 1 - 2**62),
    (("modulo", LEAST, -1), 0),
    (("modulo", 5, 0), None),
    *((("in_range", number, -5, 5), number) for number in (-5, 0, 5)),
    (("integer", "-007"), -7),
    (("integer", str(MOST)), MOST),
    (("integer", str(LEAST)), LEAST),
    (("integer", str(MOST + 1)), None),
    (("integer", str(LEAST - 1)), None),
    (("float", "2.5e1"), 25.0),
    (("date", "2020-02-29 01:02:03"), "2020-02-29"),
    (("week", "2020-03-01"), "2020-02-24"),
    (("week", "2020-03-02"), "2020-03-02"),
    (("make_date", 2020, 2, 9), "2020-02-09"),
    (("timestamp", "2020-02-29"), "2020-02-29 00:00:00"),
    *(
        ((name, "2020-02-29 03:04:05"), part)
        for name, part in {"year": 2020, "month": 2, "day": 29, "hour": 3, "minute": 4, "second": 5}.items()
    ),
    *(((name, "no time"), None) for name in ("timestamp", "date", "week", "year", "second")),
]  # fmt: skip
OVERFLOWS = [
    ("add", MOST, 1),
    ("subtract", LEAST, 1),
    ("multiply", 2**32, 2**31),
    ("abs", LEAST),
    ("divide", LEAST, -1),
    ("in_range", -6, -5, 5),
    ("in_range", 6, -5, 5),
]


@pytest.fixture(scope="module")
def connection():
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        sqlite.register(connection)
        yield connection


def called(connection, name, *arguments):
    """Return the result of a function, and the type that SQLite gives it."""
    call = f"{sqlite.PREFIX}{name}({', '.join('?' * len(arguments))})"
    return connection.execute(f"SELECT v, typeof(v) FROM (SELECT {call} AS v)", arguments).fetchone()


def test_results(connection):
    """An integer must stay one: as floats, integers of more than 53 bits would change."""
    types = {int: "integer", float: "real", str: "text", type(None): "null"}
    for call, expected in CALLS:
        assert called(connection, *call) == (expected, types[type(expected)]), call
    assert {name for (name, *_), _ in CALLS} == set(sqlite.FUNCTIONS)


@pytest.mark.parametrize("call", OVERFLOWS, ids=str)
def test_a_result_of_more_bits_is_an_error(connection, call):
    with pytest.raises(sqlite3.OperationalError, match="user-defined function raised exception"):
        called(connection, *call)


@pytest.mark.parametrize("odd", [None, b"1", 1.5], ids=str)
def test_an_argument_of_another_type_gives_null(connection, odd):
    """So that one invalid record does not stop the query."""
    for name, *arguments in (call for call, _ in CALLS):
        for place in range(len(arguments)):
            changed = [*arguments[:place], odd, *arguments[place + 1 :]]
            assert called(connection, name, *changed) == (None, "null"), (name, changed)


def test_functions_are_registered_once(connection):
    """A function in use cannot be replaced."""
    cursor = connection.execute(f"SELECT {sqlite.PREFIX}abs(v) FROM (SELECT 1 AS v UNION ALL SELECT 2)")
    assert cursor.fetchone() == (1,)
    sqlite.register(connection)
    assert cursor.fetchone() == (2,)
