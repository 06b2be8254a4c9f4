"""Faults that once let one record change more than its own cell: each is reproduced and must not come back."""

import math
import sqlite3
import threading
from datetime import date, datetime
from fractions import Fraction

import ibis
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from helpers import engines
from helpers.bitsources import Recorded
from helpers.errors import refused

import slowscale as ss
from slowscale.data.sources import open_source, open_table
from slowscale.data.sums import Column, exact_sums

TINY = ss.Gaussian(sigma=1e-9)  # so little noise that the result shows the exact sum


def sums(data, keys, column="x", **options):
    return ss.Session(data, bits=Recorded(1)).sum({column: TINY}, keys=keys, **options).table[column].to_pylist()


@pytest.mark.xdist_group("pyspark")
def test_spark_labels_that_floats_cannot_represent_stay_different():
    """In pandas, a NULL label turned bigints into floats, which merged two cells."""
    labels = [480290001001234567, 480290001001234568]
    rows = [(labels[0], 10_000), (labels[1], 70)]
    keys = ss.Keys.cross({"block": labels})
    for hostile in ([], [(None, 1)]):
        columns = list(zip(*rows, *hostile, strict=True)) if not hostile else list(zip(*(rows + hostile), strict=True))
        table = pa.table({"block": pa.array(columns[0], pa.int64()), "x": pa.array(columns[1], pa.int64())})
        assert sums(engines.load("pyspark", table), keys) == [10_000, 70]
    # A NULL value outside the keys changed a sum beyond 2⁵³ by 1.
    table = pa.table({"block": pa.array([*labels, 5], pa.int64()), "x": pa.array([2**53 + 1, 1, None], pa.int64())})
    assert sums(engines.load("pyspark", table), keys) == [2**53 + 1, 1]


@pytest.mark.xdist_group("pyspark")
def test_spark_labels_are_compared_independently_of_the_collation():
    frame = engines.load("pyspark", pa.table({"state": ["tx"] + ["TX"] * 1000, "x": [1] * 1001}))
    frame = frame.selectExpr("state COLLATE UTF8_LCASE AS state", "x")
    assert sums(frame, ss.Keys.cross({"state": ["TX", "tx"]}), "x") == [1000, 1]


@pytest.mark.xdist_group("pyspark")
def test_spark_that_wraps_around_is_refused():
    frame = engines.load("pyspark", pa.table({"x": [1]}))
    spark = frame.sparkSession
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        with refused(ss.ParameterError, "the Spark session", code="setting"):
            ss.Session(frame)
    finally:
        spark.conf.set("spark.sql.ansi.enabled", "true")
    with refused(ss.EngineError, "the engine", code="engine"):
        ss.Session(engines.load("pyspark", pa.table({"x": [2**62]}))).sum({"y": TINY}, derive={"y": "x * 4"})


@pytest.mark.xdist_group("pyspark")
def test_spark_frames_that_combine_rows_are_reported():
    frame = engines.load("pyspark", pa.table({"k": ["a", "a"], "x": [1, 2]}))
    plain = ss.Session(frame.filter("x > 0").withColumn("y", frame.x + 1)).sum({"y": TINY})
    assert "combines" not in plain.facts.protects
    for combined in (
        frame.groupBy("k").sum("x").withColumnRenamed("sum(x)", "x"),
        frame.crossJoin(frame.selectExpr("x AS z")),
        frame.selectExpr("k", "x", "sum(x) OVER () AS s"),
        frame.distinct(),
        frame.limit(1),
        frame.filter("x > (SELECT 0)"),
    ):
        assert "combines rows" in ss.Session(combined).sum({"x": TINY}).facts.protects
    with refused(ss.ParameterError, "data", code="nondeterministic"):
        ss.Session(frame.selectExpr("x", "rand() AS r"))
    with refused(ss.ParameterError, "data", code="nondeterministic"):
        ss.Session(frame.sample(0.5))


@pytest.mark.xdist_group("pyspark")
def test_a_spark_column_of_an_unsupported_type_is_left_out():
    frame = engines.load("pyspark", pa.table({"x": [1, 2]})).selectExpr("x", "parse_json('{}') AS odd")
    session = ss.Session(frame, bits=Recorded(1))
    assert session.sum({"x": TINY}).table["x"].to_pylist() == [3]
    with pytest.raises(ss.ParameterError, match="column 'odd' has the type variant, which cannot be computed with"):
        session.sum({"odd": TINY})


@pytest.mark.parametrize("order", [("tx", "TX"), ("TX", "tx")])
def test_duckdb_labels_are_compared_independently_of_the_collation(order):
    connection = ibis.duckdb.connect()
    connection.con.execute("CREATE TABLE t (state VARCHAR COLLATE NOCASE, x INT)")
    for label, records in zip(order, (1, 1000), strict=True):
        connection.con.execute(f"INSERT INTO t SELECT '{label}', 1 FROM range({records})")
    assert sums(connection.table("t"), ss.Keys.cross({"state": [*order, "Tx"]})) == [1, 1000, 0]
    assert list(ss.Keys.from_data(connection.table("t"), "state", declared_public=True)) == [("TX",), ("tx",)]


@pytest.mark.xdist_group("postgres")
def test_postgres_dates_and_numbers_that_python_does_not_have():
    connection = engines.load("postgres", pa.table({"x": [1]})).get_backend()
    connection.raw_sql(
        "CREATE TABLE odd (day date, x numeric, y numeric); "
        "INSERT INTO odd VALUES ('2020-01-01', 1.5, 0.0000000000019), ('infinity', 1, 1), ('-infinity', 1, 1), "
        "('4713-01-01 BC', 1, 1), ('2020-01-01', 2, 0)"
    ).close()
    keys = ss.Keys.cross({"day": [date(2020, 1, 1)]})
    assert sums(connection.table("odd"), keys, unit="0.5") == [3.5]
    # A numeric without a scale is truncated to 12 digits after the point, never rounded up.
    made = ss.Session(connection.table("odd"), bits=Recorded(1)).sum(
        {"y": ss.Gaussian(sigma=1e-20)}, keys=keys, unit="0.000000000001"
    )
    assert made.table["y"].to_pylist() == [1e-12]
    connection.raw_sql("INSERT INTO odd VALUES ('2020-01-01', 'NaN', 0)").close()
    with refused(ss.DataError, "column 'x'", code="digits"):
        sums(connection.table("odd"), keys)


def test_floats_are_truncated_towards_zero():
    """Rounding to the nearest grain doubled the influence of a small record."""
    session = ss.Session(pa.table({"x": np.full(1_000_000, 0.00763)}), bits=Recorded(1))
    assert session.sum({"x": TINY}, unit=1000).table["x"].to_pylist() == [8000]
    for value in (0.00763, 1 - 2**-53, 0.1, -0.1, 5e-324, 123456.789):
        for unit in (Fraction(1), Fraction(1000), Fraction(1, 100), Fraction(1, 3), Fraction(7)):
            total = exact_sums(open_table(pa.table({"x": [value]})), [Column("x", unit)], None).sums["x"]
            exact = (int(total.counts[0]) + Fraction(int(total.rest[0]), total.parts)) * total.grain
            assert 0 <= abs(Fraction(value)) - abs(exact) < total.grain / total.parts
            assert total.grain / total.parts <= unit / 2**30


def test_whole_numbers_that_come_as_floats_are_counted_exactly():
    for large, units in ((2.0**54, (1, 7)), (2.0**46, (1, 7, "0.01"))):
        session = ss.Session(pa.table({"x": [large, 3.0, -1.0, large + 4]}), bits=Recorded(1))
        for unit in units:
            made = session.sum({"x": ss.Gaussian(sigma=1e-20)}, unit=unit).table["x"][0].as_py()
            assert float(made) == pytest.approx(2 * large + 6, rel=0, abs=4 if unit == 7 else 0)


def test_one_session_in_several_threads():
    """Two threads on one DuckDB connection hung the whole process."""
    generator = np.random.default_rng(1)
    frame = pd.DataFrame({"k": generator.integers(0, 5, 200_000), "x": generator.integers(0, 9, 200_000)})
    session = ss.Session(frame, bits=Recorded(1))
    keys = ss.Keys.cross({"k": list(range(5))})
    wanted = frame.groupby("k")["x"].sum().tolist()
    found, failed = [], []

    def work():
        try:
            for _ in range(6):
                release = session.sum({"x": TINY}, keys=keys, where="x >= 0")
                found.append(release.table["x"].to_pylist())
                session.losses(release)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not any(thread.is_alive() for thread in threads)
    assert not failed
    assert found == [wanted] * 24


def test_a_new_name_shares_the_allowance(tmp_path):
    connection = ibis.duckdb.connect()
    connection.con.register("t", pa.table({"state": ["IA", "TX"], "pay": [1, 2]}))
    table = connection.table("t")
    caps = {"pay": ss.Gaussian(sigma=10).policy, "*": ss.Gaussian(sigma=10).policy}
    ledger = ss.Ledger(tmp_path / "a.ledger", caps)
    ss.Session(table, ledger, bits=Recorded(1)).sum({"pay": ss.Gaussian(sigma=10)})
    for other in (table.rename(wages="pay"), table.mutate(wages=table.pay), table.mutate(wages=table.pay).cache()):
        with pytest.raises(ss.ParameterError, match="column 'wages' is derived or renamed and has no cap"):
            ss.Session(other, ledger).sum({"wages": ss.Gaussian(sigma=10)})
    for spelling in ("PAY", " pay", "Pay "):
        with pytest.raises(ss.SlowscaleError):
            ss.Session(table.rename({spelling: "pay"}), ledger).sum({spelling: ss.Gaussian(sigma=10)})
    assert ledger.spent({"pay": 10}) == pytest.approx(0.5)


def test_a_computed_partition_is_refused_also_where_ibis_has_cached_it():
    connection = ibis.duckdb.connect()
    connection.con.register("t", pa.table({"pay": [1, 2, 3, 4]}))
    table = connection.table("t")
    for label in ("a", "b"):
        computed = table.mutate(state=ibis.literal(label))
        for data in (computed, computed.cache()):
            with refused(ss.ParameterError, "partition"):
                ss.Session(data).sum({"pay": TINY}, keys=ss.Keys.cross({"state": [label]}), partition="state")


def test_a_filter_moves_records_in_and_out():
    """With a filter, the bounded loss between two values was 0 although the record entered the table."""
    session = ss.Session(pa.table({"emp": [5], "pay": [100]}), bits=Recorded(1))
    release = session.sum({"pay": ss.Gaussian(sigma=10)}, count=ss.Gaussian(sigma=1), where="emp > 10")
    record, other = {"emp": 5, "pay": 100}, {"emp": 15, "pay": 100}
    assert release.policy.bounded(record, other, same_cell=True) == pytest.approx(50.5)
    whole = session.sum({"pay": ss.Gaussian(sigma=10)}, count=ss.Gaussian(sigma=1))
    assert whole.policy.bounded(record, other, same_cell=True) == 0


def test_an_unreadable_file_is_an_attempt_that_the_ledger_keeps(tmp_path):
    (tmp_path / "a.csv").write_text('emp\n1\n"2\n')
    ledger = ss.Ledger(tmp_path / "a.ledger")
    for given in (ledger, tmp_path / "a.ledger"):
        with refused(ss.DataError, code="open-quote"):
            ss.Session(tmp_path / "a.csv", given)
    with pytest.raises(ss.DataError):
        ss.Session(tmp_path / "a.csv", tmp_path / "none.ledger")
    assert not (tmp_path / "none.ledger").exists()
    assert [entry["kind"] for entry in ledger.history()] == ["created", "attempt", "attempt"]


@pytest.mark.parametrize(
    ("header", "odd", "line", "last", "types"),
    [
        ("label,x,note", 'T","', "TX,1000,", 'CA,7,", see above"', None),
        ("label,note,a,b,x", 'a","b', "TX,n,1,1,1000", '",",5,6,",x",7', {"x": "int64"}),
    ],
)
def test_quotes_within_fields_do_not_join_lines(tmp_path, header, odd, line, last, types):
    """An even number of quotes is not enough: a quote within a field is literal, and the next one opens a field."""
    path, keys = tmp_path / "a.csv", ss.Keys.cross({"label": ["TX"]})
    path.write_text("\n".join([header, *[line] * 20, last, ""]))
    assert ss.Session(path, types=types, bits=Recorded(1)).sum({"x": TINY}, keys=keys).table["x"].to_pylist() == [
        20_000
    ]
    path.write_text("\n".join([header, odd, *[line] * 20, last, ""]))
    with pytest.raises(ss.DataError) as caught:
        ss.Session(path, types=types)
    assert caught.value.code in ("inner-quote", "field-count")


@pytest.mark.parametrize("odd", ["unknown", 7, 1.5, None, pd.NA, date(2021, 1, 1), object()])
@pytest.mark.parametrize("day", [date(2020, 1, 1), datetime(2020, 1, 1), pd.Timestamp(2020, 1, 1), "2020-01-01"])
def test_an_object_of_pandas_does_not_change_how_others_are_read(day, odd):
    keys = ss.Keys.cross({"day": [date(2020, 1, 1)]})
    for values in ([day] * 20, [*[day] * 20, odd]):
        frame = pd.DataFrame({"day": pd.Series(values, dtype=object), "x": [1000] * len(values)})
        session = ss.Session(frame, types={"day": "date"}, bits=Recorded(1))
        assert session.sum({"x": TINY}, keys=keys).table["x"].to_pylist() == [20_000]


@pytest.mark.parametrize("odd", ["TX", 7, None, pd.NA, 1.5])
def test_an_object_without_a_type_is_its_text(odd):
    frame = pd.DataFrame({"k": pd.Series([1, 2, 2, odd], dtype=object), "x": [1, 10, 100, 1000]})
    made = ss.Session(frame, bits=Recorded(1)).sum({"x": TINY}, keys=ss.Keys.cross({"k": ["1", "2"]}))
    assert made.table["x"].to_pylist() == [1, 110]


def test_statistics_of_a_parquet_file_decide_nothing(tmp_path):
    """The statistics ignore NaN, so another record decided whether a record with NaN passed a filter."""
    path = tmp_path / "a.parquet"
    found = []
    for values in ([1.0, math.nan], [1.0, math.nan, 500.0]):
        pa.parquet.write_table(pa.table({"x": [1, 10, 100][: len(values)], "f": values}), path)
        table = ibis.duckdb.connect().read_parquet(path)
        view = table.get_backend().create_view("v", table.filter(table.f <= 10).select("x"))
        keys = ss.Keys.cross({"b": [0, 1]})
        buckets = sums(table.mutate(b=table.f.bucket([0, 5, 1000])), keys)
        totals = [
            ss.Session(data, bits=Recorded(1)).sum({"x": TINY}, **options).table["x"][0].as_py()
            for data, options in (
                (view, {}),
                (path, {"where": "f <= 10"}),
                (path, {"where": "f > 10 or x < 0"}),
                (table.filter(table.f <= 10), {}),
                (path, {"where": "y = 1", "derive": {"y": "case when f <= 10 then 1 else 0 end"}}),
            )
        ]
        found.append((buckets, totals))
    assert found[0][0] in ([1, 0], [1, 10])
    assert np.subtract(found[1][0], found[0][0]).tolist() == [0, 100]
    assert np.subtract(found[1][1], found[0][1]).tolist() == [0, 0, 100, 0, 0]


@pytest.mark.xdist_group("postgres")
def test_postgres_nan_decimals_outside_the_keys_are_ignored():
    connection = engines.load("postgres", pa.table({"x": [1]})).get_backend()
    connection.raw_sql(
        "CREATE TABLE nan (k text, x numeric(10, 2), y numeric, z float8); INSERT INTO nan VALUES "
        "('TX', 5, 7, 5e-324), ('ZZ', 'NaN', 1e50, 'NaN')"
    ).close()
    keys = ss.Keys.cross({"k": ["TX"]})
    assert [sums(connection.table("nan"), keys, column) for column in "xyz"] == [[5], [7], [0]]
    for column in "xy":
        with refused(ss.DataError, f"column '{column}'", code="digits"):
            sums(connection.table("nan"), ss.Keys.cross({"k": ["ZZ"]}), column)


@pytest.mark.xdist_group("postgres")
def test_postgres_columns_of_other_types_are_left_out():
    """A numeric with more than 38 digits after the point was a ValueError of Ibis, after the charge."""
    connection = engines.load("postgres", pa.table({"x": [1]})).get_backend()
    connection.raw_sql(
        "CREATE TYPE mood AS ENUM ('sad'); CREATE TABLE wide (x numeric(38, 2), y numeric(50, 45), z numeric(39, 0), "
        "span interval, many integer[], kind mood, id uuid); "
        "INSERT INTO wide (x, y, z) VALUES (99999999999999999999999999999999999.25, 1, 1)"
    ).close()
    table = connection.table("wide")
    assert open_source(table).table.columns == ("x", "kind", "id")
    assert sums(table, None, "x", unit="0.25") == [99999999999999999999999999999999999.25]
    for column in "yz":
        with pytest.raises(
            ss.ParameterError, match=rf"column '{column}' has the type decimal\((50, 45|39, 0)\), which"
        ):
            sums(table, None, column)


@pytest.mark.xdist_group("pyspark")
def test_spark_columns_of_other_types_are_left_out():
    spark = engines.spark_session()
    frame = spark.sql("SELECT 'TX' AS k, 1 AS x, INTERVAL '1' DAY AS span, array(1) AS many, NULL AS nothing")
    frame.createOrReplaceTempView("odd")
    for data in (frame, ibis.pyspark.connect(spark).table("odd")):
        source = open_source(data)
        assert source.table.columns == ("k", "x")
        assert set(source.unusable) == {"span", "many", "nothing"}


def test_a_cap_belongs_to_the_stored_column(tmp_path):
    """A computed column with the name of a stored one, a view and a reserved name have no allowance, either."""
    connection = ibis.duckdb.connect()
    connection.con.execute("CREATE TABLE t AS SELECT 'TX' AS state, 400 AS emp, 7 AS payann")
    connection.con.execute("CREATE VIEW v AS SELECT 'IA' AS state, emp * 1000 AS emp FROM t")
    table = connection.table("t")
    ledger = ss.Ledger(tmp_path / "a.ledger", {"emp": ss.Gaussian(sigma=1000).policy, "*": ss.Gaussian(sigma=1).policy})
    for data in (table.mutate(emp=table.emp * 1000), table.mutate(emp=table.payann), connection.table("v")):
        with pytest.raises(ss.ParameterError, match="is derived or renamed and has no cap"):
            ss.Session(data, ledger).sum({"emp": ss.Gaussian(sigma=1000)})
    for name in ("*", "Count", " count"):
        with pytest.raises(ss.ParameterError, match=r"derive a column with another name|blanks around"):
            ss.Session(table, ledger).sum({name: ss.Gaussian(sigma=1)}, derive={name: "emp"})
    with refused(ss.ParameterError, "partition"):
        ss.Session(connection.table("v")).sum({"emp": TINY}, keys=ss.Keys.cross({"state": ["IA"]}), partition="state")
    assert [entry["kind"] for entry in ledger.history()] == ["created"]


@pytest.mark.xdist_group("pyspark")
def test_a_spark_column_is_stored_only_where_it_is_read(tmp_path):
    frame = engines.load("pyspark", pa.table({"state": ["TX"], "emp": [4]}))
    caps = {"emp": ss.Gaussian(sigma=10).policy, "*": ss.Gaussian(sigma=10).policy}
    keys = ss.Keys.cross({"state": ["A"]})
    session = ss.Session(frame.filter("emp > 0"), caps=caps, bits=Recorded(1))
    session.sum({"emp": ss.Gaussian(sigma=10)}, keys=ss.Keys.cross({"state": ["TX"]}), partition="state")
    with pytest.raises(ss.ParameterError, match="partition must be a column"):
        ss.Session(frame.selectExpr("'A' AS state", "emp"), caps=caps).sum({"emp": TINY}, keys=keys, partition="state")
    for changed in (frame.withColumnRenamed("emp", "e"), frame.selectExpr("emp * 1000 AS e")):
        with pytest.raises(ss.ParameterError, match="has no cap"):
            ss.Session(changed, caps={"*": ss.Gaussian(sigma=10).policy}).sum({"e": ss.Gaussian(sigma=10)})
    with pytest.raises(ss.ParameterError, match="has no cap"):
        ss.Session(frame.selectExpr("emp * 1000 AS emp"), caps=caps).sum({"emp": ss.Gaussian(sigma=10)})


def test_filters_before_the_session_move_records_too():
    connection = ibis.duckdb.connect()
    connection.con.execute("CREATE TABLE t AS SELECT 50 AS emp; CREATE VIEW v AS SELECT emp FROM t WHERE emp > 10")
    table = connection.table("t")
    for data in (table.filter(table.emp > 10), table.drop_null(), connection.table("v")):
        release = ss.Session(data, bits=Recorded(1)).count(mechanism=ss.Gaussian(sigma=0.1))
        assert release.policy.bounded({"emp": 5}, {"emp": 15}, same_cell=True) == pytest.approx(50)
    assert ss.Session(table, bits=Recorded(1)).count(mechanism=TINY).policy.bounded({}, {}, same_cell=True) == 0


def test_no_records_are_read_while_the_ledger_cannot_be_written(tmp_path, monkeypatch):
    """With a locked ledger, a DataError revealed facts about the records repeatedly and was not recorded."""
    monkeypatch.setattr("slowscale.accounting.storage.LOCK_TIMEOUT", 0.2)
    errors = []
    for values in ([1, 2], [1, -2]):
        path = tmp_path / f"{values[1]}.ledger"
        session = ss.Session(pa.table({"x": values}), path)
        reader = sqlite3.connect(path)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM entries").fetchall()
        with pytest.raises(ss.LedgerError) as caught:
            session.sum({"x": ss.Root(k=2, sigma=1)})
        errors.append(str(caught.value).replace(str(path), ""))
        assert caught.value.__cause__ is None or "negative" not in str(caught.value.__cause__)
        reader.close()
    assert errors[0] == errors[1]


def test_an_empty_cell_is_reported_after_the_charge(tmp_path, capsys):
    """A warning that was turned into an error revealed a fact about the records at no cost, or lost the release."""
    session = ss.Session(pa.table({"k": ["a"], "x": [1]}), tmp_path / "a.ledger")
    release = session.sum({"x": ss.Gaussian(sigma=1)}, keys=ss.Keys.cross({"k": ["b"]}))  # pytest: warnings are errors
    assert release.table.num_rows == 1
    assert capsys.readouterr().err.startswith("ConfidentialWarning: no record has any of the keys")
    assert [entry["kind"] for entry in session.ledger.history()] == ["created", "charge"]


def test_a_view_is_not_mistaken_for_a_table_of_the_same_name(tmp_path):
    """A stored table elsewhere with the name of the view made the statistics of a file decide again."""
    path, found = tmp_path / "a.parquet", []
    for values in ([1.0, math.nan], [1.0, math.nan, 500.0]):
        pa.parquet.write_table(pa.table({"x": [1, 10, 100][: len(values)], "f": values}), path)
        connection = ibis.duckdb.connect()
        connection.con.execute("CREATE SCHEMA other; CREATE TABLE other.v AS SELECT 1 AS x")
        connection.con.execute(f"CREATE VIEW v AS SELECT x FROM read_parquet('{path}') WHERE f <= 10")
        found.append(ss.Session(connection.table("v"), bits=Recorded(1)).sum({"x": TINY}).table["x"][0].as_py())
    assert found[0] == found[1]
