"""Columns are read exactly or left out: sums and losses see the values that the file holds."""

import datetime as dtm
from decimal import Decimal
from fractions import Fraction

import duckdb
import ibis
import ibis.expr.datatypes as dt
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from helpers.errors import refused

import slowscale as ss
from slowscale.data import conversion
from slowscale.data.sources import open_source, outline
from slowscale.data.sums import Column, exact_sums

WHOLE = {f"{sign}int{bits}": getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)}


def largest(dtype):
    return int(np.iinfo(dtype.to_pandas_dtype()).max)


def decimals(*numbers, digits, scale=0, bits=128):
    return pa.array([*map(Decimal, numbers), None], getattr(pa, f"decimal{bits}")(digits, scale))


# Numbers, with options of the Parquet writer.
NUMBERS = {
    **{name: (pa.array([100, 0, largest(dtype), None], dtype), {}) for name, dtype in WHOLE.items()},
    "dictionary of integers": (pa.array([100, 5, 100, None]).dictionary_encode(), {}),
    "float16": (pa.array(np.array([0.5, 100, 60000], np.float16)), {}),
    "float32": (pa.array([0.5, 100, 2.0**40, None], pa.float32()), {}),
    "float64": (pa.array([0.5, 100, 2.0**40 + 2.0**-9, None]), {}),
    "decimal as 32 bits": (decimals("99.25", "0.01", digits=4, scale=2), {"store_decimal_as_integer": True}),
    "decimal as 64 bits": (decimals(10**15 - 1, "0.25", digits=18, scale=2), {"store_decimal_as_integer": True}),
    "decimal of 5 digits": (decimals("100", "999.99", digits=5, scale=2, bits=32), {}),
    "decimal of 18 digits": (decimals("100", 10**15, digits=18, scale=2, bits=64), {}),
    "decimal of 38 digits": (decimals("100", 10**37, digits=38), {}),
    "decimal of 38 digits after the point": (decimals("0.1", "1e-9", digits=38, scale=38), {}),
    "decimal of 256 bits": (decimals("100", "7.5", digits=38, scale=2, bits=256), {}),
}
# Columns of other kinds that are read.
OTHERS = {
    "boolean": pa.array([True, None]),
    "text": pa.array(["a", None]),
    "long text": pa.array(["a", None], pa.large_string()),
    "view of text": pa.array(["a", None], pa.string_view()),
    "dictionary of text": pa.array(["a", None]).dictionary_encode(),
    "bytes": pa.array([b"a", None]),
    "fixed bytes": pa.array([b"abc"], pa.binary(3)),
    "date": pa.array([dtm.date(2020, 1, 1), None]),
    "date64": pa.array([dtm.date(2020, 1, 1), None], pa.date64()),
    "time": pa.array([dtm.time(1, 2, 3), None]),
    **{f"timestamp {unit}": pa.array([0, None], pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")},
    "timestamp of a zone": pa.array([0, None], pa.timestamp("us", "Europe/Berlin")),
    "uuid": pa.array([b"0" * 16], pa.uuid()),
}
LEFT_OUT = {
    **{f"decimal of {digits} digits": decimals("100", digits=digits, bits=256) for digits in (39, 50, 57, 75, 76)},
    "decimal of 45 digits after the point": decimals("100", digits=50, scale=45, bits=256),
    "dictionary of decimals": decimals("100", digits=50, bits=256).dictionary_encode(),
    "nothing": pa.array([None], pa.null()),
    "list": pa.array([[1, 2]]),
    "structure": pa.array([{"x": 1}]),
    "structure of a decimal": pa.array([{"x": Decimal(100)}], pa.struct({"x": pa.decimal256(50, 0)})),
    "map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    "JSON": pa.array(["{}"], pa.json_()),
}


@pytest.fixture
def written(tmp_path):
    def write(array, **options):
        file = str(tmp_path / "a.parquet")
        pa.parquet.write_table(pa.table({"x": array, "emp": pa.array(range(len(array)))}), file, **options)
        return file

    return write


@pytest.mark.parametrize("name", NUMBERS)
def test_sums_and_losses_read_the_numbers_of_a_parquet_file(name, written):
    array, options = NUMBERS[name]
    truth = [Fraction(number) for number in array.to_pylist() if number is not None]
    file = written(array, **options)
    found = exact_sums(open_source(file).table, [Column("x", Fraction(1), nulls="zero")], None).sums["x"]
    rest = Fraction(0) if found.rest is None else Fraction(int(found.rest[0]), found.parts)
    assert (int(found.counts[0]) + rest) * found.grain == sum(truth)
    session = ss.Session(file)
    losses = session.losses(session.sum({"x": ss.Gaussian(sigma=2.0)}, nulls="zero"))
    assert losses.largest[1] == pytest.approx(float(max(truth)) ** 2 / 8, rel=1e-12)


@pytest.mark.parametrize("name", OTHERS)
def test_a_file_and_a_frame_have_the_same_columns(name, written):
    array = OTHERS[name]
    file = written(array)
    for data in (file, pa.table({"x": array})):
        source = open_source(data)
        assert source.unusable == {}
        assert source.table.x.count().execute() == 1
    with outline(file) as given:
        assert open_source(**given).table.schema() == open_source(file).table.schema()


@pytest.mark.parametrize("name", LEFT_OUT)
def test_a_column_of_another_type_is_left_out(name, written):
    """DuckDB read a record of 100 in decimal(50, 0) as 1.7·10⁹."""
    array = LEFT_OUT[name]
    file = written(array)
    for data in (file, pa.table({"x": array, "emp": pa.array(range(len(array)))})):
        source = open_source(data)
        assert source.table.columns == ("emp",)
        assert set(source.unusable) == {"x"}
        with refused(ss.ParameterError, "column 'x'", code="unsupported"):
            ss.Session(data).sum({"x": ss.Gaussian(sigma=1)})
    with outline(file) as given:
        assert open_source(**given).table.columns == ("emp",)


def test_types_that_arrow_does_not_write_are_left_out(tmp_path):
    """DuckDB reads intervals, which are 12 bytes to Arrow, and JSON of other writers, which is text to Arrow."""
    file = str(tmp_path / "a.parquet")
    with duckdb.connect() as connection:
        columns = (
            "1 AS emp, INTERVAL 1 DAY AS span, '{}'::JSON AS odd, 'a'::ENUM ('a', 'b') AS kind, 7::UHUGEINT AS big"
        )
        connection.execute(f"COPY (SELECT {columns}) TO '{file}' (FORMAT parquet)")
    source = open_source(file)
    assert source.table.columns == ("emp", "kind", "big")
    with outline(file) as given:
        assert open_source(**given).table.schema() == source.table.schema()


def test_a_column_that_duckdb_reads_as_another_type_is_left_out(written, monkeypatch):
    monkeypatch.setitem(conversion._PHYSICAL, "INT64", dt.int32)
    monkeypatch.setitem(conversion._ARROW, pa.int64(), dt.float64)
    assert open_source(written(pa.array(["a"]))).unusable == {"emp": "int64"}
    with refused(ss.ParameterError, "data", code="unsupported"):
        open_source(written(pa.array([1, 2])))
    assert open_source(pa.table({"x": [1], "y": [1.5]})).unusable == {"x": "int64"}


def test_columns_that_differ_in_case_only_are_refused(tmp_path):
    """DuckDB would rename the second one, so that types could be taken for those of another column."""
    file = tmp_path / "a.parquet"
    pa.parquet.write_table(pa.table({"x": [1], "X": [1.5]}), file)
    with refused(ss.ParameterError, "data", code="duplicate"):
        open_source(file)


def test_a_column_with_a_dot_is_not_a_part_of_a_structure(tmp_path):
    file = tmp_path / "a.parquet"
    wide = pa.array([Decimal(100)], pa.decimal256(50, 0))
    table = {"a": pa.StructArray.from_arrays([wide], ["b"]), "a.b": pa.array([7]), "c.d": wide}
    pa.parquet.write_table(pa.table(table), file)
    assert open_source(file).table.to_pyarrow().to_pydict() == {"a.b": [7]}


def test_files_must_agree_in_the_types_of_their_schema(tmp_path):
    """To Arrow, intervals are 12 bytes, like those of the other file."""
    first, second = str(tmp_path / "1.parquet"), str(tmp_path / "2.parquet")
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT 1 AS emp, INTERVAL 1 DAY AS span) TO '{first}' (FORMAT parquet)")
    emp, span = pa.array([1], pa.int32()), pa.array([b"x" * 12], pa.binary(12))
    pa.parquet.write_table(pa.table({"emp": emp, "span": span}), second)
    for files in ([first, second], [second, first]):
        with refused(ss.ParameterError, code="mismatch"):
            open_source(files)
        with refused(ss.ParameterError, code="mismatch"), outline(files):
            pass


def test_a_duckdb_view_of_wide_decimals_is_refused(written):
    wide = written(decimals("100", digits=50, bits=256))
    connection = ibis.duckdb.connect()
    connection.raw_sql(f"CREATE VIEW one AS SELECT * FROM '{wide}'")
    connection.raw_sql("CREATE VIEW two AS SELECT emp, x + 1 AS y FROM (SELECT * FROM one WHERE emp >= 0)")
    for table in (connection.read_parquet(wide), connection.table("one"), connection.table("two").select("emp")):
        with refused(ss.ParameterError, "data", code="precision"):
            ss.Session(table)
    pa.parquet.write_table(pa.table({"x": decimals("100", digits=38)}), wide)
    assert open_source(connection.read_parquet(wide)).table.columns == ("x",)


def test_a_duckdb_file_cannot_read_other_files(tmp_path):
    """Its views may be written by others, and name any file of the user."""
    secret, address = tmp_path / "secret.csv", tmp_path / "a.duckdb"
    secret.write_text("x\n7\n")
    with duckdb.connect(str(address)) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS x")
        connection.execute("CREATE VIEW own AS SELECT x FROM t")
        connection.execute(f"CREATE VIEW v AS SELECT x FROM read_csv('{secret}')")
        connection.execute(f"CREATE VIEW w AS SELECT length(content) AS x FROM read_text('{secret}')")
        connection.execute(f"CREATE VIEW g AS SELECT length(file) AS x FROM glob('{tmp_path}/*')")
    for name in "vwg":
        with refused(ss.ParameterError, code="unsupported"):
            ss.Session(f"duckdb://{address}#{name}")
        with refused(ss.ParameterError, code="unsupported"), outline(f"duckdb://{address}#{name}"):
            pass

    for name in ("t", "own"):
        assert open_source(f"duckdb://{address}#{name}").table.x.sum().execute() == 1


def test_files_and_frames_are_read_by_a_duckdb_that_reads_no_other_files(tmp_path, written):
    own, other = written(pa.array([1])), tmp_path / "other.csv"
    other.write_text("x\n1\n")
    folder = tmp_path / "a[b]*?'c"
    folder.mkdir()
    pa.parquet.write_table(pa.table({"x": [1]}), folder / "a.parquet")
    pa.parquet.write_table(pa.table({"x": [1]}), folder / "b.parquet")
    frame, both = pa.table({"x": [1]}), [own, str(other)]
    for data, others in ((own, both[1:]), (str(folder), both), (str(other), both[:1]), (frame, both)):
        table = open_source(data).table
        assert table.count().execute() in (1, 2)
        for file in others:
            with pytest.raises(duckdb.PermissionException):
                table.get_backend().con.execute(f"SELECT * FROM '{file}'")


def test_tables_of_a_database_have_the_same_list():
    connection = ibis.duckdb.connect()
    connection.raw_sql(
        "CREATE TABLE t (x BIGINT, big HUGEINT, huge UHUGEINT, bits BIT, span INTERVAL, many INTEGER[], one "
        "STRUCT(a BIGINT), kind ENUM ('a'), js JSON)"
    )
    source = open_source(connection.table("t"))
    assert source.table.columns == ("x", "big", "kind")
    assert set(source.unusable) == {"huge", "bits", "span", "many", "one", "js"}
    with refused(ss.ParameterError, "data", code="unsupported"):
        ss.Session(connection.table("t").select("span"))
    wide = connection.table("t").mutate(y=ibis._.x.cast("decimal(50, 2)"))
    assert open_source(wide).unusable["y"] == "decimal(50, 2)"


@pytest.mark.parametrize("given", ["decimal(39, 2)", "decimal(50, 45)", "interval", "json", "array<int64>"])
def test_declared_types_are_on_the_list(given):
    with refused(ss.ParameterError, "types['x']", code="value"):
        open_source(pa.table({"x": ["1"]}), {"x": given})
