"""Filters and derived columns use one record at a time; anything else is refused."""

from datetime import date, datetime

import ibis
import pyarrow as pa
import pytest
from helpers.errors import refused
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


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ("sum(emp) > 3", "many-rows"),
        ("count(*) > 3", "many-rows"),
        ("emp > avg(emp)", "many-rows"),
        ("emp > (select max(emp) from records)", "many-rows"),
        ("emp in (select 1)", "many-rows"),
        ("exists (select 1)", "many-rows"),
        ("row_number() over (order by emp) > 2", "many-rows"),
        ("lag(emp) over () > 2", "many-rows"),
        ("sum(emp) over (partition by county) > 2", "many-rows"),
        ("random() < 0.5", "nondeterministic"),
        ("gen_random_uuid() is null", "nondeterministic"),
        ("current_timestamp is null", "nondeterministic"),
        ("now() is null", "syntax"),
        ("unnest([1, 2])", "syntax"),
        ("nextval('s')", "syntax"),
        ("my_function(emp)", "syntax"),
        ("rowid > 3", "unknown-column"),
        ("records.emp > 3", "qualified"),
        ("1; drop table records", "syntax"),
        ("emp = null", "null"),
        ("emp in (1, null)", "null"),
        ("case emp when null then true end", "null"),
        ("emp between symmetric 10 and 0", "syntax"),
        ("emp in emp", "syntax"),
        ("round(pay, 1) > 1", "syntax"),
        ("county like 'x' escape 'y'", "syntax"),
        ("substr(county, 0, 2) = '0'", "position"),
        ("substr(county, emp) = '0'", "position"),
        ("left(county, -1) = '0'", "position"),
        ("cast(pay as int) > 1", "cast"),
        ("cast('now' as timestamp) is null", "clock"),
        ("day < 'now'", "clock"),
        ("at < 'now'", "clock"),
        ("at between 'epoch' and 'infinity'", "clock"),
        ("day in ('2020-01-01', 'today')", "clock"),
        ("case day when 'now' then true end", "clock"),
        ("coalesce(day, 'now') = day", "clock"),
        ("greatest(day, 'now') = day", "clock"),
        ("nullif(day, 'now') = day", "clock"),
        ("day = '2020-1-1'", "clock"),
        ("day < county", "text-as-time"),
        ("day < 5", "mixed-types"),
        ("emp = '5'", "mixed-types"),
        ("open = 1", "mixed-types"),
        ("county > 5", "mixed-types"),
        ("coalesce(emp, 'x') = 'x'", "mixed-types"),
        ("county and open", "wrong-type"),
        ("ln(pay) > 1", "syntax"),
        ("exp(pay) > 1", "syntax"),
        ("hash(county) > 1", "syntax"),
        ("typeof(county) = 'x'", "syntax"),
        ("pay % 2 > 1", "not-integers"),
        ("pay // 2 > 1", "not-integers"),
        ("emp > 9223372036854775808", "out-of-range"),
        ("greatest(county, 'a') = 'a'", "text-order"),
        ("upper(emp) = 'A'", "wrong-type"),
        ("year(county) = 1", "wrong-type"),
        ("cast(county as int) = 1", "cast"),
        ("cast(day as varchar) = '1'", "cast"),
        ("cast(open as varchar) = '1'", "cast"),
        ("cast(pay as varchar) = '1'", "cast"),
        ("cast(pay as float) = 1", "cast"),
        ("cast(emp as decimal(10, 2)) = 1", "cast"),
        ("cast(at as time) is null", "cast"),
        ("try_cast(county as boolean)", "cast"),
        ("try_cast(emp as int) = 1", "wrong-type"),
        ("try_cast(county as decimal(38, 2)) = 1", "digits"),
        ("try_cast(county as timestamptz) is null", "cast"),
        ("trim(county, emp) = '1'", "constant"),
        ("trim(county, '') = '1'", "constant"),
        ("replace(county, '', 'x') = '1'", "constant"),
        ("replace(county, county, 'x') = '1'", "constant"),
        ("county like county", "constant"),
        ("starts_with(county, county)", "constant"),
        ("split_part(county, '', 1) = '1'", "constant"),
        ("split_part(county, ',', 0) = '1'", "position"),
        ("split_part(county, ',', -1) = '1'", "position"),
        ("lpad(county, 5) = '1'", "constant"),
        ("lpad(county, 5, '') = '1'", "constant"),
        ("lpad(county, 99999, 'x') = '1'", "too-long"),
        ("regexp_replace(county, county, '') = '1'", "constant"),
        ("regexp_replace(county, 'a', '\\\\1') = '1'", "backslash"),
        ("regexp_replace(county, 'a', 'b', 'i') = '1'", "flag"),
        (
            "regexp_replace(county, 'a|b', '') = '1'",
            "pattern-matches",
        ),
        ("regexp_replace(county, 'a*', '') = '1'", "pattern-matches"),
        ("regexp_matches(county, 'a', 'i')", "syntax"),
        ("strptime(county, county) is null", "constant"),
        ("strptime(county, '%A %Y') is null", "format"),
        ("strptime(county, '%d/%m') is null", "format-parts"),
        ("strptime(county, '%Y %y') is null", "format-parts"),
        ("strptime(county, '%Y%') is null", "format"),
        ("strftime(day, '%Z') = 'x'", "format"),
        ("strftime(county, '%Y') = 'x'", "wrong-type"),
        ("date_trunc('hour', at) is null", "unit"),
        ("extract(hour from at) = 1", "unit"),
        ("emp is true", "is"),
        ("emp +", "syntax"),
        ("", "syntax"),
        ("nocol > 1", "unknown-column"),
        ('"pay" > 1', "unknown-column"),
        ("county + 1 > emp", "wrong-type"),
    ],
)
def test_expressions_that_are_refused(table, expression, code):
    with refused(ParameterError, "where", code=code):
        keep(table, expression)
    with refused(ParameterError, "derive['new']", code=code):
        derive(table, {"new": expression})


@pytest.mark.parametrize("expression", [_.emp > 3, ibis.memtable({"emp": [1]}).emp > 3, lambda t: t.emp > 3, 3, None])
def test_only_text_is_an_expression(table, expression):
    with refused(ParameterTypeError, "derive['new']", code="type"):
        derive(table, {"new": expression})
    if expression is not None:
        with refused(ParameterTypeError, "where", code="type"):
            keep(table, expression)


def test_derived_columns_may_use_the_ones_before(table):
    derived = derive(table, {"twice": "emp * 2", "more": "twice + 1"})
    assert derived.to_pyarrow()["more"].to_pylist() == [11, -13, 41, None]


def test_descriptions():
    assert described("emp > 3", {"z": "EMP"}, {}) == ("emp > 3", {"z": "EMP"}, {"z": "emp"})
    assert described(None, None, {"y": "x"}) == (None, {}, {"y": "x"})


@pytest.mark.parametrize(
    ("make", "error", "code"),
    [
        (lambda t: keep(t, "emp + 1"), ParameterTypeError, "type"),
        (lambda t: derive(t, ["emp"]), ParameterTypeError, "type"),
        (lambda t: derive(t, {3: "emp"}), ParameterTypeError, "column-names"),
        (lambda t: derive(t, {"emp": "emp + 1"}), ParameterError, "exists"),
        (lambda t: derive(t, {"EMP": "emp + 1"}), ParameterError, "exists"),
        (lambda t: derive(t, {" emp": "emp + 1"}), ParameterError, "exists"),
        (
            lambda t: derive(t, {"new ": "emp + 1"}),
            ParameterError,
            "blanks",
        ),
    ],
)
def test_mistakes_raise_clear_errors(table, make, error, code):
    with refused(error, code=code):
        make(table)


@pytest.mark.parametrize(
    ("name", "error"),
    [("", ParameterTypeError), (3, ParameterTypeError), (None, ParameterTypeError), ("emp", ParameterError),
     ("Emp ", ParameterError), (" new", ParameterError)],
)  # fmt: skip
def test_names_that_a_new_column_must_not_have(name, error):
    with pytest.raises(error) as caught:
        derive(ibis.table({"emp": "int64"}, name="t"), {name: "emp"})
    assert caught.value.code in ("column-names", "exists", "blanks")


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
    ("make", "code"),
    [
        (lambda t: t.sql("SELECT sum(emp) AS emp FROM records"), "value"),
        (lambda t: t.get_backend().sql("SELECT random() AS x"), "value"),
        (lambda t: t.alias("a").sql("SELECT * FROM a, a AS b").filter(_.emp > 1), "value"),
        (lambda t: t.limit(3), "nondeterministic"),
        (lambda t: t.filter(t.emp > 1).head(), "nondeterministic"),
        (lambda t: t.sample(0.5), "nondeterministic"),
        (lambda t: t.mutate(x=ibis.random()), "nondeterministic"),
        (lambda t: t.filter(t.at < ibis.now()), "nondeterministic"),
        (lambda t: t.filter(t.at < "now"), "nondeterministic"),
        (lambda t: t.filter(t.day.isin(["2020-01-01", "today"])), "nondeterministic"),
        (lambda t: t.filter(t.day.cases(("now", True), else_=False)), "nondeterministic"),
        (lambda t: t.mutate(x=ibis.literal("now").cast("timestamp")), "nondeterministic"),
        (lambda t: t.mutate(x=ibis.uuid()), "nondeterministic"),
        (lambda t: t.filter(t.emp > ibis.param("int64")), "unsupported"),
        (lambda t: t.mutate(x=t.county.cast("date")), "nondeterministic"),
        (lambda t: t.mutate(x=t.rowid()), "nondeterministic"),
        (lambda t: t.mutate(x=tripled(t.emp)), "nondeterministic"),
        (lambda t: t.mutate(x=nextval("s")), "nondeterministic"),
        (lambda t: t.distinct(on="county"), "nondeterministic"),
        (lambda t: t.group_by("county").agg(x=t.emp.first()), "nondeterministic"),
        (lambda t: t.mutate(x=t.county.hash()), "unsupported"),
        (lambda t: ibis.range(5).unnest().name("x").as_table(), "unsupported"),
    ],
)
def test_tables_that_are_refused(source, make, code):
    with refused(ParameterError, "data", code=code):
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
