"""Declared types: each value becomes a value of the type by a rule of its own, or is missing and reported."""

import dataclasses
import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from helpers.errors import refused

import slowscale as ss
from slowscale.data.connections import private_duckdb
from slowscale.data.conversion import INTEGERS, Source, check_types, converted, value_text
from slowscale.data.sources import open_source


@pytest.fixture(scope="module")
def connection():
    return private_duckdb()


def relation(sql_type, values):
    """Return the SQL of a relation with one column x."""
    rows = ", ".join(f"(CAST({value} AS {sql_type}))" for value in values)
    return f"(SELECT * FROM (VALUES {rows}) AS t(x))"


DAY, NOON = datetime(2020, 2, 29), datetime(2020, 2, 29, 12)
CONVERSIONS = [
    ("BOOLEAN", ["true", "false", "NULL"], "string", ["true", "false", None]),
    ("DATE", ["'2020-02-29'"], "string", ["2020-02-29"]),
    *((name, ["7", "NULL"], "string", ["7", None]) for name in INTEGERS),
    *((name, ["7", "100"], "int8", [7, 100]) for name in INTEGERS),
    *((name, ["7", "NULL"], "float64", [7.0, None]) for name in INTEGERS),
    *((name, ["7", "NULL"], "decimal(9, 2)", [Decimal("7.00"), None]) for name in INTEGERS),
    ("BIGINT", ["7"], "decimal(9, 0)", [Decimal(7)]),
    ("DOUBLE", ["1", "-3", "NULL", "1e15"], "int64", [1, -3, None, 10**15]),
    ("FLOAT", ["1", "-3", "NULL"], "int32", [1, -3, None]),
    ("DECIMAL(5, 2)", ["1", "-3.00", "NULL"], "int32", [1, -3, None]),
    ("DOUBLE", ["0.5", "1e300", "NULL"], "float64", [0.5, 1e300, None]),
    ("DOUBLE", ["0.5", "-3.25"], "float32", [0.5, -3.25]),
    ("FLOAT", ["0.5", "-3.25"], "float64", [0.5, -3.25]),
    ("DECIMAL(5, 2)", ["1.25"], "float64", [1.25]),
    ("DECIMAL(5, 2)", ["1.25", "-9.99"], "decimal(5, 2)", [Decimal("1.25"), Decimal("-9.99")]),
    ("DECIMAL(5, 2)", ["1.25"], "decimal(10, 2)", [Decimal("1.25")]),
    ("DECIMAL(5, 2)", ["1.25"], "decimal(10, 3)", [Decimal("1.250")]),
    ("DECIMAL(5, 0)", ["125"], "decimal(10, 0)", [Decimal(125)]),
    ("TIMESTAMP", ["'2020-02-29'", "NULL"], "date", [date(2020, 2, 29), None]),
    ("TIMESTAMP", ["'2020-02-29'", "'2020-02-29 12:00'"], "timestamp", [DAY, NOON]),
    ("DATE", ["'2020-02-29'"], "date", [date(2020, 2, 29)]),
    ("BOOLEAN", ["true", "NULL"], "boolean", [True, None]),
    ("VARCHAR", ["'a'", "' '"], "string", ["a", " "]),
    ("VARCHAR", ["' 7 '", "'+7.00'", "'-0'", "' '", "NULL"], "int64", [7, 7, 0, None, None]),
]


@pytest.mark.parametrize(("sql_type", "values", "declared", "expected"), CONVERSIONS)
def test_values_of_one_type_become_values_of_another(connection, sql_type, values, declared, expected):
    types = check_types({"x": declared})
    source = converted(connection, relation(sql_type, values), types, "data")
    assert str(source.table.schema()["x"]).replace("timestamp(6)", "timestamp") == declared
    assert source.table.to_pyarrow()["x"].to_pylist() == expected
    assert (source.unreadable, source.unusable) == ({}, {})


@pytest.mark.parametrize(
    ("sql_type", "value", "declared"),
    [
        ("DOUBLE", "2.5", "int64"),
        ("DOUBLE", "1e30", "int64"),
        ("DOUBLE", "'nan'", "int64"),
        ("DOUBLE", "'-inf'", "int64"),
        ("FLOAT", "0.5", "int8"),
        ("DECIMAL(5, 2)", "2.01", "int64"),
        ("BIGINT", "128", "int8"),
        ("BIGINT", "-1", "uint8"),
        ("BIGINT", "100", "decimal(3, 1)"),
        ("DECIMAL(5, 2)", "100", "decimal(4, 2)"),
        ("DOUBLE", "1e300", "float32"),
        ("TIMESTAMP", "'2020-02-29 00:00:01'", "date"),
        ("VARCHAR", "'7.5'", "int64"),
        ("VARCHAR", "'x'", "boolean"),
    ],
)
def test_a_value_that_is_not_of_the_type_is_missing_and_its_column_is_reported(connection, sql_type, value, declared):
    types = check_types({"x": declared})
    source = converted(connection, relation(sql_type, [value, "NULL"]), types, "data")
    assert source.table.to_pyarrow()["x"].to_pylist() == [None, None]
    assert source.unreadable == {"x": str(types["x"])}


def test_only_the_columns_with_unreadable_values_are_reported(connection):
    rows = "(SELECT '1' AS a, 'x' AS b, '3' AS c, 'z' AS d, 'e' AS e)"
    types = check_types({"d": "float64", "a": "int64", "b": "int64", "c": "date", "e": "string"})
    source = converted(connection, rows, types, "data")
    assert source.unreadable == {"b": "int64", "c": "date", "d": "float64"}
    assert source.table.to_pyarrow().to_pylist() == [{"a": 1, "b": None, "c": None, "d": None, "e": "e"}]


@pytest.mark.parametrize(
    ("sql_type", "value", "declared"),
    [
        ("DOUBLE", "1", "string"),
        ("DOUBLE", "1", "decimal(9, 2)"),
        ("FLOAT", "1", "boolean"),
        ("DECIMAL(5, 2)", "1", "string"),
        ("DECIMAL(5, 2)", "1", "decimal(9, 1)"),
        ("DECIMAL(5, 2)", "1", "boolean"),
        ("DECIMAL(5, 2)", "1", "date"),
        ("BIGINT", "1", "boolean"),
        ("BIGINT", "1", "date"),
        ("BOOLEAN", "true", "int64"),
        ("BOOLEAN", "true", "float64"),
        ("BOOLEAN", "true", "decimal(9, 0)"),
        ("DATE", "'2020-01-01'", "int64"),
        ("DATE", "'2020-01-01'", "timestamp"),
        ("TIMESTAMP", "'2020-01-01'", "string"),
        ("TIMESTAMP", "'2020-01-01'", "int64"),
    ],
)
def test_conversions_that_would_not_be_exact_are_refused(connection, sql_type, value, declared):
    with refused(ss.ParameterError, "types['x']", code="cast"):
        converted(connection, relation(sql_type, [value]), check_types({"x": declared}), "data")


@pytest.mark.parametrize("store", [False, True])
def test_records_are_stored_on_request_only(connection, store):
    options = {"store": True} if store else {}
    name = converted(connection, relation("BIGINT", [1]), {}, "data", **options).table.get_name()
    query = f"SELECT table_type FROM information_schema.tables WHERE table_name = '{name}'"
    assert connection.con.execute(query).fetchone() == ("BASE TABLE" if store else "VIEW",)


def test_a_failed_reading_does_not_quote_records(connection):
    rows = "(SELECT CAST(x AS INTEGER) AS x FROM (VALUES ('confidential')) AS t(x))"
    with pytest.raises(ss.EngineError) as caught:
        converted(connection, rows, {}, "data", store=True)
    assert str(caught.value).startswith("data could not be read")
    assert "confidential" not in str(caught.value)


def test_what_is_known_of_a_source():
    source = open_source(pa.table({"x": [1]}))
    assert not any((Source(source.table).text_numbers, Source(source.table).view, Source(source.table).filtered))
    assert (source.text_numbers, source.view, source.filtered) == (False, False, False)
    with pytest.raises(dataclasses.FrozenInstanceError):
        source.filtered = True


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((missing, None) for missing in (None, pd.NA, pd.NaT, math.nan, np.float32("nan"), np.datetime64("NaT"), "")),
        (np.timedelta64("NaT", "ns"), None),
        (True, "true"),
        (np.bool_(False), "false"),
        (3.0, "3"),
        (0.5, "0.5"),
        (np.int8(-3), "-3"),
        (np.float64(2.0), "2"),
        (Decimal("1E+3"), "1000"),
        (Decimal("1.50"), "1.50"),
        (datetime(2020, 2, 29), "2020-02-29"),
        (datetime(2020, 2, 29, 12, 30), "2020-02-29 12:30:00"),
        (datetime(2020, 2, 29, tzinfo=UTC), "2020-02-29 00:00:00+00:00"),
        (pd.Timestamp("2020-02-29"), "2020-02-29"),
        (np.datetime64("2020-02-29"), "2020-02-29"),
        (np.datetime64("2020-02-29T12:30:00", "ns"), "2020-02-29T12:30:00.000000000"),
        (date(2020, 2, 29), "2020-02-29"),
        (time(12, 30), "12:30:00"),
        (timedelta(minutes=1), "60.0 s"),
        ("a b", "a b"),
    ],
    ids=repr,
)
def test_the_text_of_a_value(value, text):
    assert value_text(value) == text
