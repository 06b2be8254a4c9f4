"""SQL text means the same on every engine: the same as in DuckDB, or as in a Python function."""

import math
import random
import re
from datetime import date
from functools import cache

import ibis
import pyarrow as pa
import pytest
from helpers import engines
from helpers.errors import refused
from helpers.expressions import BY_RULE, OVERFLOWS, RECORDS, SAME_AS_DUCKDB, duckdb_values, fetched

from slowscale.core.errors import ParameterError
from slowscale.data.dialects import compile_pattern
from slowscale.data.rowwise import bind
from slowscale.data.sources import open_table


def pytest_generate_tests(metafunc):
    if "engine" in metafunc.fixturenames:
        # Errors reach a client of Spark Connect in another way.
        further = [engines.CONNECT] if metafunc.function is test_integer_overflows_are_errors else []
        metafunc.parametrize("engine", [*engines.EACH, *further], scope="module")


@cache
def loaded(engine):
    return open_table(engines.load(engine, RECORDS))


@pytest.fixture
def records(engine):
    return loaded(engine)


@cache
def all_values(engine):
    """Return the values of all expressions, many per query: on Spark a query takes longer to start than to run."""
    wanted = list(dict.fromkeys([*SAME_AS_DUCKDB, *(sql for sql, _names, _rule in BY_RULE)]))
    values = {}
    for batch in (wanted[start : start + 25] for start in range(0, len(wanted), 25)):
        try:
            values |= zip(batch, fetched(loaded(engine), batch), strict=True)
        except Exception:  # find the expression that fails
            values |= {sql: _alone(loaded(engine), sql) for sql in batch}
    return values


@pytest.fixture
def found(engine):
    return all_values(engine)


def _alone(records, expression):
    try:
        return fetched(records, [expression])[0]
    except Exception as error:
        return error


@pytest.mark.parametrize("sql", SAME_AS_DUCKDB)
def test_dialect(found, sql):
    assert found[sql] == duckdb_values(sql)


@pytest.mark.parametrize(("sql", "columns", "rule"), BY_RULE, ids=lambda value: value if isinstance(value, str) else "")
def test_by_rule(found, sql, columns, rule):
    names = [columns] if columns in RECORDS.column_names else columns
    data = zip(*(RECORDS[name].to_pylist() for name in names), strict=True)
    assert found[sql] == [rule(*values) for values in data]


@pytest.mark.parametrize("sql", OVERFLOWS)
def test_integer_overflows_are_errors(records, sql):
    with pytest.raises(Exception, match=r"(?i)out of range|overflow"):
        fetched(records, [sql])


def test_integers_of_32_bits_are_added_with_64(records):
    values = RECORDS["k"].to_pylist()
    assert fetched(records, ["k + k"]) == [[None if value is None else 2 * value for value in values]]


def random_pattern(generator):
    """Return a pattern of the common subset over few characters, so that it often matches in several ways."""
    atoms = ["a", "b", "[ab]", "[^a]", ".", r"\w", r"\s", "é", "[b-c]", r"\."]
    repeats = ["", "", "", "*", "+", "?", "{2}", "{1,2}", "{0,2}", "{2,}"]
    middle = "".join(generator.choice(atoms) + generator.choice(repeats) for _ in range(generator.randint(1, 4)))
    return generator.choice(["", "", "^"]) + middle + generator.choice(["", "", "$"])


def test_random_patterns(engine):
    """A backtracking search and a search for the longest match agree on every allowed pattern."""
    generator = random.Random(7)
    texts = ["".join(generator.choices("aabbcé. \n😀", k=generator.randint(0, 9))) for _ in range(300)]
    records = open_table(engines.load(engine, pa.table({"id": range(len(texts)), "s": texts})))
    patterns = []
    while len(patterns) < 60:
        pattern = random_pattern(generator)
        if not compile_pattern(pattern).matches_empty:
            patterns.append(pattern)
    for batch in (patterns[:30], patterns[30:]):
        first = fetched(records, [f"regexp_replace(s, '{pattern}', '<$0>')" for pattern in batch])
        every = fetched(records, [f"regexp_replace(s, '{pattern}', '<$0>', 'g')" for pattern in batch])
        matches = fetched(records, [f"regexp_matches(s, '{pattern}')" for pattern in batch])
        for index, pattern in enumerate(batch):
            plain = re.compile(re.sub(r"\$$", r"\\Z", pattern), re.ASCII)
            assert first[index] == [plain.sub("<$0>", text, count=1) for text in texts], pattern
            assert every[index] == [plain.sub("<$0>", text) for text in texts], pattern
            assert matches[index] == [plain.search(text) is not None for text in texts], pattern


def test_floats_that_are_not_numbers(engine):
    values = [math.inf, -math.inf, math.nan, 1.0]
    columns = {"id": range(4), "x": values, "h": pa.array(values, pa.float32()), "most": [math.inf] * 4}
    records = open_table(engines.load(engine, pa.table(columns)))
    found = fetched(records, ["floor(x)", "round(x)", "ceil(x)", "x > 5", "greatest(x, 2)", "sqrt(x) > 5", "x / 0"])
    nulls = ["x is null", "not x is not null", "x + 1 is null", "h is null", "not h is not null"]
    nulls += ["case when x is null then true else false end", "coalesce(x, -1.5) = -1.5"]
    assert fetched(records, nulls) == [[False] * 4] * len(nulls)
    assert found[:3] == [[None, None, None, 1]] * 3
    assert found[3] == [True, False, True, False]
    assert repr(found[4]) == repr([math.inf, 2.0, math.nan, 2.0])
    assert found[5:] == [[True, None, True, False], [None] * 4]
    # NaN equals itself and is larger than infinity. A computed NaN is NaN, too.
    same, larger, *computed = fetched(records, ["x = x", "x > most", "x * 0 is null", "x - x is null"])
    assert same == [True, True, True, True]
    assert larger == [False, False, True, False]
    assert computed == [[False] * 4] * 2


def test_text_is_ordered_by_code_point_independently_of_the_collation():
    """The test server orders by code point in every collation, so the query is checked instead."""
    records = loaded("postgres")
    for expression in ("s < 'a'", "s between 'a' and 'b'"):
        assert "TEXT_PATTERN_L" in str(ibis.to_sql(records.select(x=bind(records, expression, "derive"))))


def test_times_with_a_zone_are_read_in_utc():
    connection = engines.load("postgres", pa.table({"x": [1]})).get_backend()
    connection.raw_sql(
        "SET TIME ZONE 'Asia/Tokyo'; CREATE TABLE zoned (id int, at timestamptz); "
        "INSERT INTO zoned VALUES (0, '2020-01-01 00:30:00+01')"
    ).close()
    records = connection.table("zoned")
    expressions = ["year(at)", "at < '2020-01-01'", "date_trunc('week', at)"]
    assert fetched(records, expressions) == [[2019], [True], [date(2019, 12, 30)]]
    connection.raw_sql("RESET TIME ZONE").close()


@pytest.mark.xdist_group("pyspark")
@pytest.mark.parametrize(
    ("name", "value"), [("spark.sql.ansi.enabled", "false"), ("spark.sql.session.timeZone", "Asia/Tokyo")]
)
def test_spark_sessions_with_other_semantics_are_refused(name, value):
    records = open_table(engines.load("pyspark", pa.table({"x": [1]})))
    settings = engines.spark_session().conf
    before = settings.get(name)
    settings.set(name, value)
    try:
        with refused(ParameterError, "the Spark session", code="setting"):
            bind(records, "x + 1", "derive")
    finally:
        settings.set(name, before)
