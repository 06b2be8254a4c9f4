"""SQL text has its meaning on DuckDB, which runs in this process.

The integration tests compare the same expressions on every engine. Here each expression is bound and run by itself.
"""

import pytest
from helpers import engines
from helpers.expressions import BY_RULE, OVERFLOWS, RECORDS, SAME_AS_DUCKDB, duckdb_values, fetched

from slowscale.data.sources import open_table


@pytest.fixture(scope="module")
def records():
    return open_table(engines.load("duckdb", RECORDS))


@pytest.mark.parametrize("sql", SAME_AS_DUCKDB)
def test_sql_means_what_it_means_in_duckdb(records, sql):
    assert fetched(records, [sql]) == [duckdb_values(sql)]


@pytest.mark.parametrize(("sql", "columns", "rule"), BY_RULE, ids=lambda value: value if isinstance(value, str) else "")
def test_sql_follows_a_rule(records, sql, columns, rule):
    names = [columns] if columns in RECORDS.column_names else columns
    data = zip(*(RECORDS[name].to_pylist() for name in names), strict=True)
    assert fetched(records, [sql]) == [[rule(*values) for values in data]]


@pytest.mark.parametrize("sql", OVERFLOWS)
def test_integer_overflows_are_errors(records, sql):
    with pytest.raises(Exception, match=r"(?i)out of range|overflow"):
        fetched(records, [sql])


def test_integers_of_32_bits_are_added_with_64(records):
    values = RECORDS["k"].to_pylist()
    assert fetched(records, ["k + k"]) == [[None if value is None else 2 * value for value in values]]
