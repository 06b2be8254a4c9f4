"""Stability: one more record changes the exact sum of its own cell by its influence, and nothing else that leaves.

Random tables are released without and with one hostile record, on every engine and every kind of source; each table is
released with four such records in turn. The two releases are the same but for the record's influence in its cell, or
the record causes one of the documented data errors (docs/limits.md). `SLOWSCALE_FULL=1` tries sixteen times as many.
"""

import csv
import io
import itertools
import math
import os
import tempfile
from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path

import duckdb
import hypothesis.strategies as st
import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from helpers import engines
from helpers.bitsources import Recorded
from hypothesis import HealthCheck, given, settings

import slowscale as ss
from slowscale.data import sums as sums_module
from slowscale.data.dialects import call
from slowscale.release import bound as bound_module

# Only the curator is warned if no record has any of the keys.
pytestmark = pytest.mark.filterwarnings("ignore::slowscale.core.errors.ConfidentialWarning")

TIMES = 16 if os.environ.get("SLOWSCALE_FULL") == "1" else 1
RECORDS = 4  # hostile records of one table, each added alone
TINY = ss.Gaussian(sigma=1e-9)
UNCLIPPED = ss.Root(k=1, sigma=1e-9)  # it needs sums >= 0, so it refuses negative values

# The documented data errors: the only errors that a single record may cause.
DATA_ERRORS = {
    "nulls", "nan", "infinite", "negatives", "too-large", "too-large-to-rank", "digits", "unreadable",
    "declared-type", "precision", "open-quote", "last-quote", "field-count", "line-ends", "encoding",
}  # fmt: skip

# Labels of each kind: keys, and labels that are similar to keys.
KEYS = {
    "text": ["TX", "Ä", "01", "a,b", "x"],
    "whole": [1, 480290001001234567, 480290001001234568, -7],
    "truth": [True, False],
    "date": [date(2020, 1, 1), date(2020, 2, 29)],
}
STRANGERS = {
    "text": [
        "tx", "TX ", " TX", "Tx", "A\u0308", "ä", "1", "01.0", "", "TX\u00a0", "ﬀ", "=1+1", "O'Brien", 'say "hi"',
        "\\N", "NULL",
    ],
    "whole": [2**53 + 1, 2**63 - 1, -(2**63), 0, 480290001001234566],
    "truth": [],
    "date": [date(1, 1, 1), date(9999, 12, 31), date(2020, 1, 2)],
}  # fmt: skip
ARROW = {"text": pa.string(), "whole": pa.int64(), "truth": pa.bool_(), "date": pa.date32()}
DECLARED = {"text": "string", "whole": "int64", "truth": "boolean", "date": "date"}

WHOLE = st.one_of(st.integers(0, 1000), st.sampled_from([None, 0, -3, 2**53 + 1, 2**62, -(2**62), 2**63 - 1]))
FLOAT = st.one_of(
    st.floats(0, 1e6),
    st.sampled_from(
        [None, math.nan, math.inf, -math.inf, -0.0, 1e300, 1e-300, 5e-324, 0.1, -2.5, 2.0**54, 2.0**56, 1e17]
    ),
)
MONEY = st.one_of(st.integers(0, 10**7), st.sampled_from([None, -1, 10**11 - 1])).map(
    lambda cents: None if cents is None else Decimal(cents).scaleb(-2)
)


@st.composite
def cases(draw):
    """Draw a query, a table, and hostile records with the place of each in the table."""
    kind = draw(st.sampled_from(list(KEYS)))
    label = st.sampled_from([*KEYS[kind], *STRANGERS[kind], None])
    tame = st.tuples(
        label, st.integers(0, 500), st.floats(0, 1e4), st.integers(0, 10**6).map(lambda c: Decimal(c).scaleb(-2))
    )
    rows = draw(st.lists(tame, max_size=8))
    hostile = draw(st.lists(st.tuples(label, WHOLE, FLOAT, MONEY), min_size=RECORDS, max_size=RECORDS))
    query = {
        "kind": kind,
        "nulls": draw(st.sampled_from(["error", "zero"])),
        "negatives": draw(st.sampled_from(["error", "zero"])),
        "mechanism": draw(st.sampled_from([TINY, UNCLIPPED])),
        "unit": draw(st.sampled_from([1, 1000, "0.01"])),
        "where": draw(st.sampled_from([None, "x >= 0", "x % 2 = 0 or f < 100", "x is not null"])),
    }
    return query, rows, [(record, draw(st.integers(0, len(rows)))) for record in hostile]


def arrow(kind, rows):
    columns = list(zip(*rows, strict=True)) or [()] * 4
    types = [ARROW[kind], pa.int64(), pa.float64(), pa.decimal128(12, 2)]
    arrays = [pa.array(column, dtype, from_pandas=False) for column, dtype in zip(columns, types, strict=True)]
    return pa.table(dict(zip(("label", "x", "f", "d"), arrays, strict=True)))


# The ways in which records are read. Each takes the kind of label and the rows, and returns data for a session.


def as_parquet(kind, rows, folder):
    pa.parquet.write_table(arrow(kind, rows), folder / "a.parquet")
    return {"data": folder / "a.parquet"}


def as_csv(kind, rows, folder):
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["label", "x", "f", "d"])
    for label, x, f, d in rows:
        shown = label.strftime("%d/%m/%Y").zfill(10) if isinstance(label, date) else label
        writer.writerow(["" if value is None else value for value in (shown, x, f, d)])
    (folder / "a.csv").write_text(text.getvalue())
    types = {"label": DECLARED[kind], "x": "int64", "f": "float64"}  # d is text, summed as exact decimals
    return {"data": folder / "a.csv", "types": types, "csv": {"dates": "%d/%m/%Y"}}


def as_pandas(kind, rows, folder):
    columns = list(zip(*rows, strict=True)) or [()] * 4
    frame = pd.DataFrame(
        {
            name: pd.Series(list(column), dtype=object)
            for name, column in zip(["label", "x", "f", "d"], columns, strict=True)
        }
    )
    frame["f"] = pd.Series([math.nan if value is None else value for value in columns[2]], dtype=float)
    return {"data": frame, "types": {"label": DECLARED[kind], "x": "int64", "d": "decimal(12, 2)"}}


def as_polars(kind, rows, folder):
    return {"data": pl.from_arrow(arrow(kind, rows))}


def as_arrow(kind, rows, folder):
    table = arrow(kind, rows)
    return {"data": table.set_column(0, "label", table["label"].dictionary_encode()) if kind == "text" else table}


@cache
def duckdb_connection():
    return ibis.duckdb.connect()


def as_duckdb(kind, rows, folder):
    """A stored table whose text is compared without case."""
    connection = duckdb_connection()
    connection.con.register("given", arrow(kind, rows))
    collate = (
        "VARCHAR COLLATE NOCASE" if kind == "text" else {"whole": "BIGINT", "truth": "BOOLEAN", "date": "DATE"}[kind]
    )
    connection.con.execute(f"CREATE OR REPLACE TABLE t (label {collate}, x BIGINT, f DOUBLE, d DECIMAL(12, 2))")
    connection.con.execute("INSERT INTO t SELECT * FROM given")
    connection.con.unregister("given")
    return {"data": connection.table("t")}


def as_duckdb_file(kind, rows, folder):
    with duckdb.connect(str(folder / "a.duckdb")) as file:
        given = arrow(kind, rows)  # noqa: F841
        file.execute("CREATE TABLE t AS SELECT * FROM given")
    return {"data": f"duckdb://{folder}/a.duckdb#t"}


_names = itertools.count()


def as_postgres(kind, rows, folder):
    """A stored table; char(n) and collations have separate tests."""
    connection = engines.load("postgres", pa.table({"x": [1]})).get_backend()
    name = f"stability_{next(_names)}"
    dtype = {"text": "text", "whole": "bigint", "truth": "boolean", "date": "date"}[kind]
    with connection.con.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {name} (label {dtype}, x bigint, f double precision, d decimal(12, 2))")
        cursor.executemany(f"INSERT INTO {name} VALUES (%s, %s, %s, %s)", rows)
    connection.con.commit()
    return {"data": connection.table(name)}


def as_spark(kind, rows, folder, session=engines.spark_session):
    """A DataFrame whose text is compared without case."""
    pa.parquet.write_table(arrow(kind, rows), folder / "a.parquet")
    frame = session().read.parquet(str(folder / "a.parquet"))
    if kind == "text":
        frame = frame.selectExpr("label COLLATE UTF8_LCASE AS label", "x", "f", "d")
    return {"data": frame}


def as_connect(kind, rows, folder):
    return as_spark(kind, rows, folder, engines.connect_session)


# For each input path, the number of hostile records. DuckDB sums those of all paths but the last three.
INPUT_PATHS = {
    "parquet": (as_parquet, 80),
    "csv": (as_csv, 160),
    "pandas": (as_pandas, 100),
    "polars": (as_polars, 60),
    "arrow": (as_arrow, 60),
    "duckdb": (as_duckdb, 120),
    "duckdb-file": (as_duckdb_file, 40),
    "postgres": (as_postgres, 160),
    "pyspark": (as_spark, 40),
    "connect": (as_connect, 12),
}


def outcome(input_path, query, rows):
    """Release a table; return everything that is published and the exact sums, or the error."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        kept = []
        real = bound_module.exact_sums
        patch.setattr(bound_module, "exact_sums", lambda *given: kept.append(real(*given)) or kept[-1])
        columns = dict.fromkeys(("x", "f", "d"), query["mechanism"])
        try:
            session = ss.Session(**input_path(query["kind"], rows, Path(folder)), bits=Recorded(3))
            release = session.sum(
                columns,
                keys=ss.Keys.cross({"label": KEYS[query["kind"]]}),
                count=TINY,
                unit=query["unit"],
                where=query["where"],
                nulls=query["nulls"],
                negatives=query["negatives"],
            )
        except ss.SlowscaleError as error:
            return None, error
    facts = {name: value for name, value in release.facts.to_dict().items() if name not in ("id", "created")}
    seen = (release.table.schema, release.table.column("label").to_pylist(), facts)
    return (
        seen,
        {"count": [Fraction(int(n)) for n in kept[0].rows], **{name: exact(kept[0].sums[name]) for name in columns}},
    ), None


def exact(total):
    rest = [0] * len(total.counts) if total.rest is None else total.rest
    return [(int(n) + Fraction(int(r), total.parts)) * total.grain for n, r in zip(total.counts, rest, strict=True)]


def passes(where, x, f):
    """Evaluate a filter as SQL does; NULL does not pass."""
    if where is None:
        return True
    if where == "x >= 0":
        return x is not None and x >= 0
    if where == "x is not null":
        return x is not None
    even = None if x is None else x % 2 == 0
    small = None if f is None else (f < 100 and not math.isnan(f))
    return bool(even or small)


def influence(query, record):
    """Return what a record adds to each column of its cell, in Python arithmetic."""
    label, x, f, d = record
    if label not in KEYS[query["kind"]] or not passes(query["where"], x, f):
        return None, {}
    clipped = query["mechanism"] is UNCLIPPED and query["negatives"] == "zero"
    values = {
        name: 0 if value is None or (clipped and value < 0) else value
        for name, value in zip("xfd", (x, f, d), strict=True)
    }
    if math.isfinite(values["f"]):
        unit = Fraction(query["unit"])
        power = Fraction(2) ** (math.floor(math.log2(unit)) - sums_module.GRAIN_BITS)
        values["f"] = math.trunc(Fraction(values["f"]) / power) * power
    return KEYS[query["kind"]].index(label), {
        "count": Fraction(1),
        **{name: Fraction(v) for name, v in values.items() if v == v and abs(v) < math.inf},
    }


SUMMED = ("count", "x", "f", "d")


def check(input_path, query, rows, hostile):
    before, problem = outcome(input_path, query, rows)
    assert problem is None, problem  # the table without a hostile record raises no error
    for record, place in hostile:
        check_record(before, outcome(input_path, query, [*rows[:place], record, *rows[place:]]), query, record)


def check_record(before, result, query, hostile):
    after, other = result
    if other is not None:
        assert isinstance(other, ss.DataError), other
        assert set(other.codes) <= DATA_ERRORS, other
        return
    if all(abs(total) < 2**62 for run in (before, after) for name in SUMMED for total in run[1][name]):
        assert before[0] == after[0]  # larger results are published in a wider type
    cell, adds = influence(query, hostile)
    for name in SUMMED:
        for i, (old, new) in enumerate(zip(before[1][name], after[1][name], strict=True)):
            assert new - old == (adds[name] if i == cell else 0), (name, i)
    if cell is not None and hostile[2] is not None:
        assert adds["f"] == 0 or abs(adds["f"]) <= abs(Fraction(hostile[2]))


def marked(name):
    group = name if name in ("postgres", "pyspark", "connect") else f"stability-{name}"
    return pytest.param(name, marks=pytest.mark.xdist_group(group))


# Records that one more of must change the count of its own cell only, or cause a documented error.
ODD = {
    "x": [0, -7, 99, 100, 2**53 + 1, 2**63 - 1, -(2**63) + 1, None],
    "f": [0.0, -2.5, 100.0, 1e300, 5e-324, math.nan, math.inf, -math.inf, None],
    "d": [Decimal("0.00"), Decimal("-99.99"), Decimal("100.00"), Decimal("999999999.99"), None],
}
GRID = [Fraction(size) for size in (1, 100, 2**53 + 1, 10**300)]


def ranks(input_path, column, rows, nulls="error"):
    """Return the number of records in each cell of the grid, or the error."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        kept = []
        real = bound_module.records_below
        patch.setattr(bound_module, "records_below", lambda *given: kept.append(real(*given)) or kept[-1])
        try:
            ss.Session(**input_path("text", rows, Path(folder))).quantiles(
                column, [0.5], loss=1, grid=GRID, nulls=nulls
            )
        except ss.SlowscaleError as error:
            return None, error
    below, total = kept[0]
    return np.diff([0, *below, total]), None


@pytest.mark.parametrize("name", [marked(name) for name in INPUT_PATHS])
def test_one_record_changes_one_rank(name):
    input_path, _ = INPUT_PATHS[name]
    tame = [("TX", 5, 0.5, Decimal("1.50")), ("tx", 100, 250.0, Decimal("99.99"))]
    for place, column in enumerate("xfd", 1):
        before, problem = ranks(input_path, column, tame)
        assert problem is None
        for odd in ODD[column]:
            record = ["TX", 1, 1.0, Decimal(1)]
            record[place] = odd
            after, problem = ranks(input_path, column, [*tame, tuple(record)])
            number = odd is not None and math.isfinite(odd)
            if problem is not None:
                assert not number, (column, odd, problem)
                assert isinstance(problem, ss.DataError)
                assert set(problem.codes) <= DATA_ERRORS, problem
                continue
            assert number, (column, odd)
            cell = sum(abs(odd) >= size for size in GRID)
            assert (after - before).tolist() == [int(i == cell) for i in range(len(GRID) + 1)], (column, odd)


@pytest.mark.parametrize("name", [marked(name) for name in INPUT_PATHS])
def test_one_record_changes_one_cell(name):
    input_path, records = INPUT_PATHS[name]

    @settings(max_examples=-(-records * TIMES // RECORDS), suppress_health_check=list(HealthCheck))
    @given(cases())
    def run(case):
        query, rows, hostile = case
        if name == "pandas":  # in pandas, NaN is a missing value
            hostile = [((label, x, None if f != f else f, d), place) for (label, x, f, d), place in hostile]
        check(input_path, query, rows, hostile)

    run()


HOSTILE_LINES = [
    "tx,1", "TX ,1", " TX,1", '"TX",1', '"T""X",1', "TX,", ",1", ",", "TX,1.0", "TX,1e3", "TX,-5", "TX,0x1", "TX,NaN",
    'TX,"1', 'TX,1"', '"TX,1', 'TX"", 1', "TX,1,2", "TX", "TX,1,", "TX,9223372036854775808", "TX,1\r", "\ufeffTX,1",
    "TX,１", "Ä,1", "A\u0308,1", "TX,99999999999999999999999999", "TX,1\t", "#TX,1", "\\N,1", "TX,\\N", "TX,'1'",
    "label,x", '"TX",""', "TX\x00,1", "TX\x01,1", "TX,0.0000000000001", "TX,1;2",
]  # fmt: skip


@settings(max_examples=38 * TIMES, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(st.sampled_from(["TX", "Ä", "zz", '"q,1"']), st.integers(0, 99)), min_size=1, max_size=30),
    st.lists(st.sampled_from(HOSTILE_LINES), min_size=RECORDS, max_size=RECORDS, unique=True),
    st.data(),
    st.booleans(),
)
def test_one_line_of_a_csv_changes_one_cell(lines, hostile, data, typed):
    plain = [f"{label},{x}" for label, x in lines]
    before = sums_of_lines(plain, typed)
    assert isinstance(before, pa.Table)
    for odd in hostile:
        place = data.draw(st.integers(0, len(plain)))
        after = sums_of_lines([*plain[:place], odd, *plain[place:]], typed)
        if isinstance(after, ss.DataError):
            assert after.code in DATA_ERRORS, after
            continue
        assert before.schema == after.schema
        changes = np.subtract(after["x"].to_pylist(), before["x"].to_pylist())
        assert np.count_nonzero(changes) <= 1
        assert abs(changes).max() <= 10**18


def sums_of_lines(lines, typed):
    """Return the released sums of a text file, or the data error."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.csv"
        path.write_bytes("\n".join(["label,x", *lines, ""]).encode())
        try:
            session = ss.Session(path, types={"x": "int64"} if typed else None, bits=Recorded(1))
            return session.sum({"x": TINY}, keys=ss.Keys.cross({"label": ["TX", "Ä"]})).table
        except ss.DataError as error:
            return error


def split(found):
    """Return a result in which each group is split in two, as an engine might return it."""
    parts = []
    for sign in (0, 1):
        columns = {}
        for name in found.column_names:
            values = found[name].to_pylist()
            if not name.startswith("by"):
                values = [None if value is None else value - (value // 2) if sign else value // 2 for value in values]
                if pa.types.is_decimal(found[name].type):
                    scale = Decimal(1).scaleb(-found[name].type.scale)
                    halves = [None if v is None else int(v / scale) // 2 * scale for v in found[name].to_pylist()]
                    values = [
                        None if v is None else v - h if sign else h
                        for v, h in zip(found[name].to_pylist(), halves, strict=True)
                    ]
            columns[name] = pa.array(values, found[name].type)
        parts.append(pa.table(columns))
    return pa.concat_tables(parts)


def overwritten(numbers, at, size):
    """Assign instead of adding: the fault that lost whole cells."""
    total = np.zeros(size, numbers.dtype)
    total[at] = numbers
    return total


def test_groups_that_belong_to_one_key_are_added_up(monkeypatch):
    rows = [("TX", 3, 1.5, Decimal("2.25")), ("TX", 2**62, 1e9, Decimal("-1.01")), ("Ä", 2**62, -1e16, Decimal(7))]
    query = {"kind": "text", "nulls": "error", "negatives": "error", "mechanism": TINY, "unit": 1, "where": None}
    whole = outcome(as_arrow, query, rows)
    real = bound_module.engines.run
    monkeypatch.setattr(bound_module.engines, "run", lambda asked, label: split(real(asked, label)))
    assert outcome(as_arrow, query, rows) == whole
    monkeypatch.setattr(sums_module, "accumulated", overwritten)
    assert outcome(as_arrow, query, rows) != whole


def test_the_suite_detects_labels_compared_without_case(monkeypatch):
    """The fault that the suite must detect: with the comparison of the engine, one record joins another cell."""
    from slowscale.data.engines import ENGINES

    monkeypatch.setattr(
        type(ENGINES["duckdb"]), "text_bytes", lambda self, value: call("encode", "binary", value.upper())
    )
    case = ({"kind": "text", "nulls": "error", "negatives": "error", "mechanism": TINY, "unit": 1, "where": None},
            [("TX", 1000, 1.0, Decimal(1))], [(("tx", 1, 1.0, Decimal(1)), 0)])  # fmt: skip
    with pytest.raises(AssertionError):
        check(as_duckdb, *case)


def test_the_suite_detects_floats_rounded_to_the_nearest(monkeypatch):
    from slowscale.data.engines import ENGINES

    monkeypatch.setattr(
        type(ENGINES["duckdb"]), "truncated", lambda self, value, null_if_uncountable: value.round().cast("int64")
    )
    value = 1 - 2.0**-40
    case = ({"kind": "text", "nulls": "error", "negatives": "error", "mechanism": TINY, "unit": 1, "where": None},
            [], [(("TX", 1, value, Decimal(1)), 0)])  # fmt: skip
    with pytest.raises(AssertionError):
        check(as_arrow, *case)
