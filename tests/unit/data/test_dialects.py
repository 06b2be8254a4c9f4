"""The SQL of the operations that PostgreSQL and Spark spell differently; the integration tests run it there."""

from types import SimpleNamespace

import ibis
import pytest
from helpers.errors import refused

from slowscale.core.errors import ParameterError
from slowscale.data import values
from slowscale.data.dialects import DIALECTS, check_spark, compile_pattern, is_null

SPARK = ibis.pyspark  # loads the options that Ibis reads when it writes floats for Spark; no Spark is started
T = ibis.table(
    {
        "s": "string",
        "i": "int64",
        "j": "int64",
        "k": "int32",
        "d": "date",
        "ts": "timestamp",
        "z": "timestamp('UTC')",
        "x": "float64",
        "h": "float32",
    },
    name="t",
)


def sql(name, make):
    """Return an expression as an engine would get it, without the names of the table and the quotes of columns."""
    written = ibis.to_sql(T.select(v=make(DIALECTS[name])), dialect=name)
    text = " ".join(written.replace('"', "").replace("`", "").replace("t0.", "").split())
    return text.removeprefix("SELECT ").removesuffix(" AS v FROM t AS t0")


PATTERN = compile_pattern("a+$")
OPERATIONS = {
    "trim": lambda d: d.trim(T.s, "ab", "BOTH"),
    "ltrim": lambda d: d.trim(T.s, "ab", "LEADING"),
    "rtrim": lambda d: d.trim(T.s, "ab", "TRAILING"),
    "matches": lambda d: d.matches(T.s, "a"),
    "matches_all": lambda d: d.matches_all(T.s, "a|b"),
    "group": lambda d: d.replace_groups(T.s, "(a)(b)", 2),
    "first": lambda d: d.regexp_replace(T.s, PATTERN, "$1\\", every=False),
    "every": lambda d: d.regexp_replace(T.s, PATTERN, "$1\\", every=True),
    "like": lambda d: d.like(T.s, "a\\b%"),
    "part": lambda d: d.split_part(T.s, ",", 2),
    "lpad": lambda d: d.pad(T.s, 3, "x", left=True),
    "rpad": lambda d: d.pad(T.s, 3, "x", left=False),
    "less": lambda d: d.compare_text(T.s, "b", "<"),
    "at most": lambda d: d.compare_text(T.s, "b", "<="),
    "greater": lambda d: d.compare_text(T.s, "b", ">"),
    "at least": lambda d: d.compare_text(T.s, "b", ">="),
    "divide": lambda d: d.divide(T.i, T.j),
    "zone": lambda d: d.without_zone(T.z),
    "second": lambda d: d.part(T.ts, "second"),
    "week": lambda d: values.date_trunc(d, T.d, "week"),
}
WRITTEN = {
    "postgres": {
        "trim": "TRIM('ab' FROM s)",
        "ltrim": "TRIM(LEADING 'ab' FROM s)",
        "rtrim": "TRIM(TRAILING 'ab' FROM s)",
        "matches": "TEXTREGEXEQ(s, 'a')",
        "matches_all": r"TEXTREGEXEQ(s, '\A(?:a|b)\Z')",
        "group": r"REGEXP_REPLACE(s, '\A(a)(b)\Z', '\2', 'g')",
        "first": r"REGEXP_REPLACE(s, 'a+\Z', '$1\\')",
        "every": r"REGEXP_REPLACE(s, 'a+\Z', '$1\\', 'g')",
        "like": r"s LIKE 'a\\b%'",  # a backslash in a pattern is an escape
        "part": "SPLIT_PART(s, ',', 2)",
        "lpad": "LPAD(s, 3, 'x')",
        "rpad": "RPAD(s, 3, 'x')",
        "less": "TEXT_PATTERN_LT(s, 'b')",
        "at most": "TEXT_PATTERN_LE(s, 'b')",
        "greater": "TEXT_PATTERN_GT(s, 'b')",
        "at least": "TEXT_PATTERN_GE(s, 'b')",
        "divide": "INT8DIV(i, NULLIF(j, 0))",
        "zone": "TIMEZONE('UTC', z)",
        "second": "CAST(FLOOR(EXTRACT('second' FROM ts)) AS INT)",
        "week": "CAST(DATE_TRUNC('WEEK', d) AS DATE)",
    },
    "pyspark": {  # backslashes are doubled once more, because Spark has escapes in literals
        "trim": "TRIM('ab' FROM s)",
        "ltrim": "TRIM(LEADING 'ab' FROM s)",
        "rtrim": "TRIM(TRAILING 'ab' FROM s)",
        "matches": "s RLIKE 'a'",
        "matches_all": r"s RLIKE '\\A(?:a|b)\\z'",
        "group": r"REGEXP_REPLACE(s, '\\A(a)(b)\\z', '$2')",
        "first": r"REGEXP_REPLACE(s, '\\A([\\s\\S]*?)a+\\z([\\s\\S]*)\\z', '$1\\$1\\\\$2')",
        "every": r"REGEXP_REPLACE(s, 'a+\\z', '\\$1\\\\')",
        "like": r"s LIKE 'a\\\\b%'",
        "part": "SPLIT_PART(s, ',', 2)",
        "lpad": "LPAD(s, 3, 'x')",
        "rpad": "RPAD(s, 3, 'x')",
        "less": "s < 'b'",
        "at most": "s <= 'b'",
        "greater": "s > 'b'",
        "at least": "s >= 'b'",
        "divide": "( i DIV NULLIF(j, 0) )",
        "zone": "CAST(z AS TIMESTAMP)",
        "second": "SECOND(ts)",
        "week": "CAST(DATE_TRUNC('week', d) AS DATE)",
    },
}


@pytest.mark.parametrize(("engine", "name"), [(engine, name) for engine in WRITTEN for name in OPERATIONS])
def test_how_an_operation_is_written(engine, name):
    assert sql(engine, OPERATIONS[name]) == WRITTEN[engine][name]


@pytest.mark.parametrize("engine", ["postgres", "pyspark"])
def test_a_remainder_never_overflows_and_is_null_for_a_divisor_of_0(engine):
    """The smallest integer modulo -1 overflows on some engines; the remainder is that of 1."""
    case = "IF(j = -1, 1, j)" if engine == "pyspark" else "CASE WHEN j = -1 THEN 1 ELSE j END"
    assert sql(engine, lambda d: d.modulo(T.i, T.j)) == f"i % NULLIF({case}, 0)"


@pytest.mark.parametrize("engine", ["postgres", "pyspark"])
@pytest.mark.parametrize("name", ["x", "h"])
def test_only_null_is_missing(engine, name):
    """Ibis writes ISNAN beside IS NULL for Spark, which would count NaN as missing on that engine only."""
    assert "ISNAN" in sql("pyspark", lambda d: T[name].isnull())
    assert sql(engine, lambda d: is_null(T[name])) == f"( {name} = {name} ) IS NULL"
    derived, written = T[name] + T.i, f"{name} + i"
    assert sql(engine, lambda d: is_null(derived)) == f"( ( {written} ) = ( {written} ) ) IS NULL"
    assert sql(engine, lambda d: is_null(T.i)) == "i IS NULL"


@pytest.mark.parametrize(
    ("ansi", "zone", "words"),
    [
        ("true", "UTC", None),
        ("TRUE", "utc", None),
        ("false", "UTC", "spark.sql.ansi.enabled=false"),
        ("true", "Europe/Zurich", "spark.sql.session.timeZone=Europe/Zurich"),
    ],
)
def test_spark_sessions_with_settings_that_change_results_are_refused(ansi, zone, words):
    settings = {"spark.sql.ansi.enabled": ansi, "spark.sql.session.timeZone": zone}
    backend = SimpleNamespace(_session=SimpleNamespace(conf=settings))
    table = SimpleNamespace(get_backend=lambda: backend)
    for check in (lambda: check_spark(backend), lambda: DIALECTS["pyspark"].prepare(table)):
        if words is None:
            check()
        else:
            with refused(ParameterError, "the Spark session", code="setting") as caught:
                check()
            assert f"has {words}, but must have" in caught.value.problem
