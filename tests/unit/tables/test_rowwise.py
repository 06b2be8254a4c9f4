"""Filters and derived columns look at one record at a time, in SQL or Ibis; anything else is refused."""

import ibis
import pyarrow as pa
import pytest
from ibis import _

from slowscale import ParameterError, ParameterTypeError
from slowscale.tables.rowwise import bind, derive, keep, words
from slowscale.tables.sources import open_table

ROWS = pa.table(
    {
        "county": ["01001", "48001", None, "01%3"],
        "emp": pa.array([5, -7, 20, None], pa.int64()),
        "Pay": [1.5, 2.25, -4.0, 0.0],
        "open": [True, False, None, True],
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
    """The translated expression gives what DuckDB itself gives for the same text."""
    connection = table.get_backend().con
    truth = connection.sql(f"SELECT {sql} AS x FROM {table.get_name()}").to_arrow_table()["x"].to_pylist()
    assert table.select(x=bind(table, sql, "derive")).to_pyarrow()["x"].to_pylist() == truth


MANY = "must look at one record at a time"
UNFIXED = "must be the same each time"


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
        ("random() < 0.5", UNFIXED),
        ("gen_random_uuid() is null", UNFIXED),
        ("current_timestamp is null", UNFIXED),
        ("now() is null", "which is not allowed in SQL text"),
        ("unnest([1, 2])", "which is not allowed in SQL text"),
        ("nextval('s')", "which is not allowed in SQL text"),
        ("my_function(emp)", "which is not allowed in SQL text; docs/sql.md lists what is"),
        ("rowid > 3", "not a column"),
        ("records.emp > 3", "must name columns only"),
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
        ("cast('now' as timestamp) is null", "which may be the clock"),
        (lambda t: ibis.literal("now").cast("timestamp").isnull(), UNFIXED),
        (lambda t: t.county.cast("date").isnull(), UNFIXED),
        (lambda t: t.emp > ibis.param("int64"), "an Ibis parameter without a value"),
        ([_.emp > 1, _.emp > 2], "must be one expression"),
        ("emp is true", "IS takes NULL|uses IS"),
        ("emp +", "not a SQL expression"),
        ("", "not a SQL expression"),
        ("nocol > 1", "names 'nocol', which is not a column; there are county, emp, Pay, open"),
        ('"pay" > 1', "names 'pay', which is not a column"),
        ("county + 1 > emp", "uses 'county' where a number belongs, but it is string"),
        (lambda t: t.emp.sum() > 1, MANY),
        (_.emp > _.emp.mean(), MANY),
        (_.emp.lag() > 1, MANY),
        (_.emp.rank() > 1, MANY),
        (_.emp.cummax() > 1, MANY),
        (_.emp.first() > 1, MANY),
        (lambda t: ibis.row_number() > 2, MANY),
        (lambda t: t.emp.isin(t.view().emp), MANY),
        (lambda t: t.emp > t.view().emp.max().as_scalar(), MANY),
        (lambda t: t.count() > 3, MANY),
        (lambda t: ibis.random() < 0.5, UNFIXED),
        (lambda t: ibis.uuid().isnull(), UNFIXED),
        (lambda t: ibis.now().year() > 3, UNFIXED),
        (lambda t: ibis.array([t.emp]).unnest() > 3, "Unnest, which is not known to look at one record"),
        (_.nope > 1, "no expression on the table's columns"),
        (lambda t: undefined > 1, "no expression on the table's columns"),  # noqa: F821
    ],
)
def test_what_looks_further_is_refused(table, expression, message):
    with pytest.raises(ParameterError, match=message):
        keep(table, expression)
    with pytest.raises(ParameterError, match=message):
        derive(table, {"new": expression})


def test_user_defined_functions_are_refused(table):
    @ibis.udf.scalar.python
    def twice(x: int) -> int:
        return 2 * x

    with pytest.raises(ParameterError, match=UNFIXED):
        keep(table, lambda t: twice(t.emp) > 3)


def test_another_table_is_refused(table):
    other = open_table(pa.table({"emp": [1, 2, 3, 4]}))
    with pytest.raises(ParameterError):
        keep(table, other.emp > 3)


def test_ibis_expressions_of_the_table_itself(table):
    assert keep(table, table.emp > 3).to_pyarrow().num_rows == 2
    assert keep(table, _.emp > 3).to_pyarrow().num_rows == 2
    assert keep(table, lambda t: t.emp.notnull()).to_pyarrow().num_rows == 3
    derived = derive(table, {"state": _.county.substr(0, 2), "twice": "emp * 2", "more": "twice + 1"})
    assert derived.to_pyarrow()["more"].to_pylist() == [11, -13, 41, None]
    # An expression of the table before it got its new columns.
    assert keep(derived, table.emp > 3).to_pyarrow().num_rows == 2


def test_words(table):
    assert words(table, "emp > 3") == "emp > 3"
    assert words(table, _.emp > 3) == words(table, lambda t: t.emp > 3) == "Greater(emp, 3)"


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda t: keep(t, "emp + 1"), ParameterTypeError, "where must be true or false for each record, got int64"),
        (lambda t: derive(t, ["emp"]), ParameterTypeError, "derive must be a mapping"),
        (lambda t: derive(t, {3: "emp"}), ParameterTypeError, "name its columns by text, got 3"),
        (lambda t: derive(t, {"emp": "emp + 1"}), ParameterError, "there is a column 'emp' already"),
        (lambda t: derive(t, {"EMP": "emp + 1"}), ParameterError, "there is a column 'emp' already"),
        (lambda t: derive(t, {"new": None}), ParameterError, "must be one expression"),
    ],
)
def test_mistakes_are_told(table, make, error, message):
    with pytest.raises(error, match=message):
        make(table)
