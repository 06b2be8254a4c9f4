"""Filters and derived columns use one record at a time; anything else is refused."""

from datetime import date, datetime

import ibis
import pyarrow as pa
import pytest
from ibis import _

from slowscale import ParameterError, ParameterTypeError
from slowscale.data.rowwise import bind, check_source, derive, described, keep, plain_columns, used_columns
from slowscale.data.sources import open_table

ROWS = pa.table(
    {
        "county": ["01001", "48001", None, "01%3"],
        "emp": pa.array([5, -7, 20, None], pa.int64()),
        "Pay": [1.5, 2.25, -4.0, 0.0],
        "open": [True, False, None, True],
        "day": [date(2020, 2, 29), date(1, 1, 1), None, date(2021, 1, 1)],
        "at": pa.array([datetime(2020, 2, 29, 1, 2, 3), None, datetime(1, 1, 1), datetime(2021, 1, 1)]),
    }
)


@pytest.fixture
def table():
    return open_table(ROWS)


@pytest.mark.parametrize(
    "sql",
    [
        "emp > 3 and pay / emp < 2.5e3",
        "emp > 3 or not open",
        "substr(county, 1, 2) in ('01', '02')",
        "county not in ('01001')",
        "case when emp > 5 then 'large' when emp < 0 then 'odd' else 'small' end",
        "case emp when 5 then 1 end",
        "coalesce(emp, 0) * 2 - 1",
        "county like '01%' or county is null",
        "county ilike '0100_'",
        "county not like '01%'",
        "county not ilike '48%'",
        "emp not in (5, 20)",
        "emp not between 1 and 5",
        "emp is not null",
        "open is true",
        "open is not false",
        "-emp",
        "abs(emp) + emp",
        "emp % 4",
        "emp between 1 and 5",
        "not (emp = 5)",
        "emp <> 5",
        "round(pay)",
        "round(emp)",
        "floor(pay) + ceil(pay)",
        "county || 'x'",
        "concat(county, 'a', 'b')",
        "upper(lower(county))",
        "length(county)",
        "left(county, 2)",
        "right(county, 2)",
        "cast(emp as double)",
        "emp::varchar",
        "greatest(emp, 3)",
        "least(emp, 3)",
        "nullif(emp, 5)",
        "if(emp > 1, 2, 3)",
        "sqrt(abs(pay))",
        "starts_with(county, '01')",
        '"Pay" * 2',
        "emp > 3 and open or pay < 0",
        "2 + 3 * emp",
        "(2 + 3) * emp",
        "null",
        "true",
    ],
)
def test_sql_means_what_duckdb_means(table, sql):
    """The translated expression has the same result as the text itself in DuckDB."""
    connection = table.get_backend().con
    truth = connection.sql(f"SELECT {sql} AS x FROM {table.get_name()}").to_arrow_table()["x"].to_pylist()
    assert table.select(x=bind(table, sql, "derive")).to_pyarrow()["x"].to_pylist() == truth


MANY = "must use one record at a time"
NONDETERMINISTIC = "must be the same each time"


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("sum(emp) > 3", f"{MANY}, got an aggregate: it would let one record change what another contributes"),
        ("count(*) > 3", MANY),
        ("emp > avg(emp)", MANY),
        ("emp > (select max(emp) from records)", f"{MANY}, got a subquery"),
        ("emp in (select 1)", f"{MANY}, got a subquery"),
        ("exists (select 1)", f"{MANY}, got a subquery"),
        ("row_number() over (order by emp) > 2", f"{MANY}, got a window function"),
        ("lag(emp) over () > 2", MANY),
        ("sum(emp) over (partition by county) > 2", MANY),
        ("random() < 0.5", NONDETERMINISTIC),
        ("gen_random_uuid() is null", NONDETERMINISTIC),
        ("current_timestamp is null", NONDETERMINISTIC),
        ("now() is null", "which is not allowed in SQL text"),
        ("unnest([1, 2])", "which is not allowed in SQL text"),
        ("nextval('s')", "which is not allowed in SQL text"),
        ("my_function(emp)", "which is not allowed in SQL text; docs/sql.md lists what is"),
        ("rowid > 3", "not a column"),
        ("records.emp > 3", "write the name of the column without a table"),
        ("1; drop table records", "which is not allowed in SQL text"),
        ("emp = null", "compares with NULL, which is never true: use IS NULL"),
        ("emp in (1, null)", "compares with NULL"),
        ("case emp when null then true end", "compares with NULL"),
        ("emp between symmetric 10 and 0", "which is not allowed in SQL text"),
        ("emp in emp", "which is not allowed in SQL text"),
        ("round(pay, 1) > 1", "which is not allowed in SQL text"),
        ("county like 'x' escape 'y'", "which is not allowed in SQL text"),
        ("substr(county, 0, 2) = '0'", "position or length '0'"),
        ("substr(county, emp) = '0'", "position or length 'emp'"),
        ("left(county, -1) = '0'", "position or length '-1'"),
        ("cast(pay as int) > 1", "casts float64 to int32, which engines round differently"),
        ("cast('now' as timestamp) is null", "which may depend on the clock"),
        ("day < 'now'", "uses 'now' as a date, which may depend on the clock"),
        ("at < 'now'", "write an ISO literal such as '2022-01-31 12:00:00'"),
        ("at between 'epoch' and 'infinity'", "uses 'epoch' as a timestamp"),
        ("day in ('2020-01-01', 'today')", "uses 'today' as a date"),
        ("case day when 'now' then true end", "uses 'now'"),
        ("coalesce(day, 'now') = day", "uses 'now'"),
        ("greatest(day, 'now') = day", "uses 'now'"),
        ("nullif(day, 'now') = day", "uses 'now'"),
        ("day = '2020-1-1'", "uses '2020-1-1'"),
        ("day < county", "uses text as a date or timestamp: convert it with try_cast or strptime"),
        ("day < 5", "mixes values of type date and number: cast them to one type"),
        ("emp = '5'", "mixes values of type number and text"),
        ("open = 1", "mixes values of type boolean and number"),
        ("county > 5", "mixes values of type number and text"),
        ("coalesce(emp, 'x') = 'x'", "mixes values of type number and text"),
        ("county and open", "uses 'county', which is string, where a boolean is needed"),
        ("ln(pay) > 1", "which is not allowed in SQL text"),
        ("exp(pay) > 1", "which is not allowed in SQL text"),
        ("hash(county) > 1", "which is not allowed in SQL text"),
        ("typeof(county) = 'x'", "which is not allowed in SQL text"),
        ("pay % 2 > 1", "uses // or % on float64 and float64, but they need integers"),
        ("pay // 2 > 1", "they need integers: use floor"),
        ("emp > 9223372036854775808", "which does not fit in 64 bits"),
        ("greatest(county, 'a') = 'a'", "which engines order differently"),
        ("upper(emp) = 'A'", "uses 'emp', which is int64, where a text is needed"),
        ("year(county) = 1", "which is string, where a date or timestamp is needed"),
        ("cast(county as int) = 1", "casts text to int32, which engines do differently: use try_cast"),
        ("cast(day as varchar) = '1'", "use strftime"),
        ("cast(open as varchar) = '1'", "which differs by engine"),
        ("cast(pay as varchar) = '1'", "which differs by engine"),
        ("cast(pay as float) = 1", "which differs by engine"),
        ("cast(emp as decimal(10, 2)) = 1", "which differs by engine"),
        ("cast(at as time) is null", "engines do differently"),
        ("try_cast(county as boolean)", "has try_cast to boolean: allowed are"),
        ("try_cast(emp as int) = 1", "uses 'emp', which is int64, where a text is needed"),
        ("try_cast(county as decimal(38, 2)) = 1", "give a decimal fewer than 38 digits"),
        ("try_cast(county as timestamptz) is null", "has try_cast to timestamp"),
        ("trim(county, emp) = '1'", "has 'emp' as the set of characters: write a text in quotes"),
        ("trim(county, '') = '1'", "as the set of characters"),
        ("replace(county, '', 'x') = '1'", "as the text to replace"),
        ("replace(county, county, 'x') = '1'", "as the text to replace"),
        ("county like county", "as the pattern: write a text in quotes"),
        ("starts_with(county, county)", "as the start"),
        ("split_part(county, '', 1) = '1'", "as the separator"),
        ("split_part(county, ',', 0) = '1'", "position or length '0'"),
        ("split_part(county, ',', -1) = '1'", "position or length '-1'"),
        ("lpad(county, 5) = '1'", "has no text as the fill"),
        ("lpad(county, 5, '') = '1'", "as the fill"),
        ("lpad(county, 99999, 'x') = '1'", "the most is 10000"),
        ("regexp_replace(county, county, '') = '1'", "as the pattern"),
        ("regexp_replace(county, 'a', '\\\\1') = '1'", "has a backslash in the replacement"),
        ("regexp_replace(county, 'a', 'b', 'i') = '1'", "only 'g' is allowed"),
        (
            "regexp_replace(county, 'a|b', '') = '1'",
            "it must not contain | and must match at least one character".replace("|", r"\|"),
        ),
        ("regexp_replace(county, 'a*', '') = '1'", "match at least one character"),
        ("regexp_matches(county, 'a', 'i')", "which is not allowed in SQL text"),
        ("strptime(county, county) is null", "as the format"),
        ("strptime(county, '%A %Y') is null", "with '%A': allowed are %Y, %y, %m"),
        ("strptime(county, '%d/%m') is null", "it must have a year, and each part at most once"),
        ("strptime(county, '%Y %y') is null", "it must have a year, and each part at most once"),
        ("strptime(county, '%Y%') is null", "with '%': allowed are"),
        ("strftime(day, '%Z') = 'x'", "with '%Z'"),
        ("strftime(county, '%Y') = 'x'", "where a date or timestamp is needed"),
        ("date_trunc('hour', at) is null", "truncates to 'hour': allowed are year, quarter, month, week, day"),
        ("extract(hour from at) = 1", "extracts 'hour': allowed are year, quarter, month and day"),
        ("emp is true", "IS must be followed by NULL|uses IS"),
        ("emp +", "must be a SQL expression, got"),
        ("", "must be a SQL expression, got"),
        ("nocol > 1", "names 'nocol', which is not a column; the columns are county, emp, Pay, open, day, at"),
        ('"pay" > 1', "names 'pay', which is not a column"),
        ("county + 1 > emp", "uses 'county', which is string, where a number is needed"),
    ],
)
def test_expressions_that_are_refused(table, expression, message):
    with pytest.raises(ParameterError, match=message):
        keep(table, expression)
    with pytest.raises(ParameterError, match=message):
        derive(table, {"new": expression})


@pytest.mark.parametrize("expression", [_.emp > 3, ibis.memtable({"emp": [1]}).emp > 3, lambda t: t.emp > 3, 3, None])
def test_only_text_is_an_expression(table, expression):
    words = r"must be SQL text such as \"emp > 0\", got \w+; to use Ibis expressions, prepare the table first"
    with pytest.raises(ParameterTypeError, match=rf"^derive\['new'\] {words}, with table\.mutate"):
        derive(table, {"new": expression})
    if expression is not None:
        with pytest.raises(ParameterTypeError, match=rf"^where {words}"):
            keep(table, expression)


def test_derived_columns_may_use_the_ones_before(table):
    derived = derive(table, {"twice": "emp * 2", "more": "twice + 1"})
    assert derived.to_pyarrow()["more"].to_pylist() == [11, -13, 41, None]


def test_descriptions():
    assert described("emp > 3", {"z": "EMP"}, {}) == ("emp > 3", {"z": "EMP"}, {"z": "emp"})
    assert described(None, None, {"y": "x"}) == (None, {}, {"y": "x"})


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda t: keep(t, "emp + 1"), ParameterTypeError, "where must be a boolean for each record, got int64"),
        (lambda t: derive(t, ["emp"]), ParameterTypeError, "derive must be a mapping"),
        (lambda t: derive(t, {3: "emp"}), ParameterTypeError, "non-empty texts as names of the new columns, got 3"),
        (lambda t: derive(t, {"emp": "emp + 1"}), ParameterError, "there is a column 'emp' already"),
        (lambda t: derive(t, {"EMP": "emp + 1"}), ParameterError, "there is a column 'emp' already"),
        (lambda t: derive(t, {" emp": "emp + 1"}), ParameterError, "there is a column 'emp' already"),
        (
            lambda t: derive(t, {"new ": "emp + 1"}),
            ParameterError,
            "'new ' has surrounding blanks; choose another name",
        ),
    ],
)
def test_mistakes_raise_clear_errors(table, make, error, message):
    with pytest.raises(error, match=message):
        make(table)


@pytest.mark.parametrize(
    ("name", "error"),
    [("", ParameterTypeError), (3, ParameterTypeError), (None, ParameterTypeError), ("emp", ParameterError),
     ("Emp ", ParameterError), (" new", ParameterError)],
)  # fmt: skip
def test_names_that_a_new_column_must_not_have(name, error):
    with pytest.raises(error, match=r"names of the new columns|choose another name"):
        derive(ibis.table({"emp": "int64"}, name="t"), {name: "emp"})


@pytest.mark.parametrize(
    ("expression", "used"),
    [
        ("emp > 3 and lower(county) = 'x'", {"emp", "county"}),
        ("true", set()),
        ("case when open then 1 end", {"open"}),
    ],
)
def test_used_columns(table, expression, used):
    assert used_columns(table, expression) == used


@pytest.fixture
def source():
    connection = ibis.duckdb.connect()
    connection.con.register("records", ROWS.append_column("tags", pa.array([["a"], [], None, ["b", "c"]])))
    return connection.table("records")


@pytest.mark.parametrize(
    "make",
    [
        lambda t: t,
        lambda t: t.filter(t.emp > 1).select("county", "emp").rename(workers="emp"),
        lambda t: t.mutate(twice=t.emp * 2, log=t.Pay.abs().log10(), state=t.county.re_extract("(..)", 1)),
        lambda t: t.mutate(year=t.day.year(), week=t.at.truncate("W"), n=t.county.try_cast("int64")),
        lambda t: t.drop_null().fill_null({"emp": 0}).order_by("emp").drop("Pay").view(),
        lambda t: t.alias("renamed"),
        lambda t: t.filter(t.day < "2020-01-01", t.at > ibis.timestamp("2020-01-01 00:00:00")),
        lambda t: ibis.memtable({"x": [1, 2]}),
        lambda t: t.mutate(first=t.tags[0]),
    ],
)
def test_tables_of_records(source, make):
    assert check_source(make(source)) is False


@pytest.mark.parametrize(
    "make",
    [
        lambda t: t.group_by("county").agg(emp=t.emp.sum()),
        lambda t: t.distinct(),
        lambda t: t.union(t),
        lambda t: t.intersect(t),
        lambda t: t.difference(t),
        lambda t: t.join(t.view(), "county"),
        lambda t: t.cross_join(t.view()),
        lambda t: t.semi_join(t.view(), "county"),
        lambda t: t.mutate(total=t.emp.sum().over(ibis.window(group_by="county"))),
        lambda t: t.mutate(rank=ibis.row_number().over(order_by="emp")),
        lambda t: t.filter(t.emp == t.emp.max()),
        lambda t: t.filter(t.emp.isin(t.view().emp)),
        lambda t: t.order_by("emp").limit(2),
        lambda t: t.unnest("tags"),
        lambda t: t.select(tag=t.tags.unnest()),
    ],
)
def test_tables_that_combine_rows_are_reported(source, make):
    assert check_source(make(source)) is True


@ibis.udf.scalar.python
def tripled(x: int) -> int:
    return 3 * x


@ibis.udf.scalar.builtin
def nextval(name: str) -> int: ...


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ibis calls a deprecated function of DuckDB
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda t: t.sql("SELECT sum(emp) AS emp FROM records"), "the result of a SQL query, which cannot be checked"),
        (lambda t: t.get_backend().sql("SELECT random() AS x"), "the result of a SQL query, which cannot be checked"),
        (lambda t: t.alias("a").sql("SELECT * FROM a, a AS b").filter(_.emp > 1), "the result of a SQL query"),
        (lambda t: t.limit(3), NONDETERMINISTIC),
        (lambda t: t.filter(t.emp > 1).head(), NONDETERMINISTIC),
        (lambda t: t.sample(0.5), NONDETERMINISTIC),
        (lambda t: t.mutate(x=ibis.random()), NONDETERMINISTIC),
        (lambda t: t.filter(t.at < ibis.now()), NONDETERMINISTIC),
        (lambda t: t.filter(t.at < "now"), NONDETERMINISTIC),
        (lambda t: t.filter(t.day.isin(["2020-01-01", "today"])), NONDETERMINISTIC),
        (lambda t: t.filter(t.day.cases(("now", True), else_=False)), NONDETERMINISTIC),
        (lambda t: t.mutate(x=ibis.literal("now").cast("timestamp")), NONDETERMINISTIC),
        (lambda t: t.mutate(x=ibis.uuid()), NONDETERMINISTIC),
        (lambda t: t.filter(t.emp > ibis.param("int64")), "data uses ScalarParameter, which is not known"),
        (lambda t: t.mutate(x=t.county.cast("date")), NONDETERMINISTIC),
        (lambda t: t.mutate(x=t.rowid()), NONDETERMINISTIC),
        (lambda t: t.mutate(x=tripled(t.emp)), NONDETERMINISTIC),
        (lambda t: t.mutate(x=nextval("s")), NONDETERMINISTIC),
        (lambda t: t.distinct(on="county"), NONDETERMINISTIC),
        (lambda t: t.group_by("county").agg(x=t.emp.first()), NONDETERMINISTIC),
        (lambda t: t.mutate(x=t.county.hash()), "data uses Hash, which is not known to use one record at a time"),
        (lambda t: ibis.range(5).unnest().name("x").as_table(), "data uses DummyTable|data uses IntegerRange"),
    ],
)
def test_tables_that_are_refused(source, make, message):
    with pytest.raises(ParameterError, match=message):
        check_source(make(source))


def test_tables_with_this_packages_functions_are_accepted(source):
    assert check_source(derive(source, {"x": "lpad(county, 5, '0')"})) is False


@pytest.mark.parametrize(
    ("make", "columns"),
    [
        (lambda t: t.select("county", "emp"), {"county": "county", "emp": "emp"}),
        (lambda t: t.select(workers="emp"), {"workers": "emp"}),
        (
            lambda t: t.select("county", "emp").rename(workers="emp").filter(_.workers > 1),
            {"county": "county", "workers": "emp"},
        ),
        (lambda t: t.select("emp").mutate(twice=_.emp * 2), {"emp": "emp"}),
        (lambda t: t.select("emp").mutate(emp=_.emp * 2), {}),
        (lambda t: t.select("emp", "Pay").mutate(emp=_.Pay), {"emp": "Pay", "Pay": "Pay"}),
        (lambda t: t.select("emp", "Pay").drop("Pay").order_by("emp").drop_null(), {"emp": "emp"}),
        (lambda t: t.select("emp", "Pay").fill_null({"emp": 0}), {"Pay": "Pay"}),
        (lambda t: t.select("emp", "Pay").fill_null(0), {}),
        (lambda t: t.select("emp").view(), {"emp": "emp"}),
        (lambda t: t.select("emp").alias("other"), {"emp": "emp"}),
        (lambda t: t.group_by("county").agg(emp=_.emp.sum()), {}),
        (lambda t: t.join(t.view(), "county").select("county"), {}),
        (lambda t: t.union(t), {}),
        (lambda t: ibis.memtable({"x": [1]}), {"x": "x"}),
    ],
)
def test_plain_columns(source, make, columns):
    assert plain_columns(make(source)) == columns


def test_cached_columns_are_not_plain(source):
    cached = source.mutate(state=source.county.substr(0, 2)).cache()
    assert plain_columns(cached) == {}
    assert plain_columns(cached.select("state").rename(x="state")) == {}
