"""SQL text and Ibis expressions mean the same on the engines that run in this process, DuckDB and SQLite.

The integration tests compare the same expressions on every engine. Here each expression is bound and run by itself.
"""

from functools import cache

import pytest
from helpers import engines
from helpers.expressions import BY_RULE, IBIS, OVERFLOWS, RECORDS, SAME_AS_DUCKDB, fetched, is_refused, truth

from slowscale.errors import ParameterError
from slowscale.tables.rowwise import bind
from slowscale.tables.sources import open_table

ENGINES = ("duckdb", "sqlite")


@cache
def records(engine):
    return open_table(engines.load(engine, RECORDS))


def check(engine, expression, sql, expected):
    if is_refused(engine, sql):
        with pytest.raises(ParameterError, match="which SQLite stores as"):
            bind(records(engine), expression, "derive")
    else:
        assert fetched(records(engine), [expression]) == [expected()]


@pytest.mark.parametrize("sql", SAME_AS_DUCKDB)
@pytest.mark.parametrize("engine", ENGINES)
def test_sql_means_what_it_means_in_duckdb(engine, sql):
    check(engine, sql, sql, lambda: truth(engine, sql))


@pytest.mark.parametrize(("sql", "columns", "rule"), BY_RULE, ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize("engine", ENGINES)
def test_sql_follows_a_rule(engine, sql, columns, rule):
    names = [columns] if columns in RECORDS.column_names else columns
    data = zip(*(RECORDS[name].to_pylist() for name in names), strict=True)
    check(engine, sql, sql, lambda: [rule(*values) for values in data])


@pytest.mark.parametrize(("expression", "sql"), IBIS, ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize("engine", ENGINES)
def test_ibis_means_what_sql_means(engine, expression, sql):
    check(engine, expression, sql, lambda: truth(engine, sql))


@pytest.mark.parametrize("sql", OVERFLOWS)
@pytest.mark.parametrize("engine", ENGINES)
def test_integer_overflows_are_errors(engine, sql):
    with pytest.raises(Exception, match=r"(?i)out of range|overflow|user-defined function raised"):
        fetched(records(engine), [sql])


@pytest.mark.parametrize("engine", ENGINES)
def test_integers_of_32_bits_are_added_with_64(engine):
    values = RECORDS["k"].to_pylist()
    assert fetched(records(engine), ["k + k"]) == [[None if value is None else 2 * value for value in values]]
