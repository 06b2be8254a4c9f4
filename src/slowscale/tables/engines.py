"""Engines: what each database engine needs so that labels are compared exactly and results come back unchanged.

An engine is supported when the conformance and stability suites run on it. Any other is refused by name: MySQL, MariaDB
and SQL Server, for instance, compare text without case by default, so that one record could join two cells.
"""

import itertools
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import date
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.operations as ops
import ibis.expr.types as ir
import pyarrow as pa

from slowscale.errors import DataError, EngineError, ParameterError, ParameterTypeError
from slowscale.tables.dialects import call, check_spark, forced_cast

TEXT, WHOLE, BOOLEAN, DATE = "text", "whole numbers", "booleans", "dates"
# The dates that Python and Arrow can hold; PostgreSQL also has 'infinity' and years before Christ.
FIRST_DAY, LAST_DAY = date.min, date.max


class Engine:
    """How one engine groups, counts and returns; the methods of this class serve where it does as most do."""

    name: ClassVar[str]
    title: ClassVar[str]
    # Whether its sum of 64-bit integers has more than 64 bits; on others numbers are cut into limbs.
    wide_sums: ClassVar[bool] = False
    # Whether it refuses to cast a float that does not fit to a 64-bit integer.
    strict_casts: ClassVar[bool] = False
    has_decimals: ClassVar[bool] = True
    has_quantiles: ClassVar[bool] = True
    has_nan: ClassVar[bool] = True

    def label(self, value: ir.Value, kind: str) -> ir.Value:
        """Return a record's label such that equal means identical, or NULL where it has none of this kind."""
        if kind == TEXT:
            return self.text_bytes(forced_cast(value, dt.string))
        if kind == WHOLE:
            unsigned = value.type() == dt.uint64
            return (
                ibis.cases((value <= 2**63 - 1, forced_cast(value, dt.int64)))
                if unsigned
                else forced_cast(value, dt.int64)
            )
        if kind == DATE:
            return ibis.cases((value.between(ibis.literal(FIRST_DAY), ibis.literal(LAST_DAY)), value))
        return value

    def key(self, labels: pa.ChunkedArray, kind: str) -> pa.ChunkedArray:
        """Return public labels in the form that `label` gives those of the records."""
        return labels.cast(pa.binary()) if kind == TEXT else labels

    def key_label(self, labels: pa.ChunkedArray, kind: str) -> pa.ChunkedArray:
        """Return the labels behind what `label` gave; NULL for what is no text."""
        return (
            pa.chunked_array([[_decoded(label) for label in labels.to_pylist()]], pa.string())
            if kind == TEXT
            else labels
        )

    def text_bytes(self, value: ir.Value) -> ir.Value:
        """Return the bytes of a text: comparing those depends on no collation."""
        raise NotImplementedError

    def truncated(self, value: ir.Value, null_if_uncountable: bool) -> ir.Value:
        """Return a float truncated to a 64-bit integer; NULL if it does not fit and `null_if_uncountable`."""
        raise NotImplementedError

    def truncated_decimal(self, value: ir.Value, digits: int) -> ir.Value:
        """Return a decimal of any scale as one of this scale, cut towards zero."""
        return forced_cast(value, dt.Decimal(38, digits))

    def has_declared_type(self, value: ir.Value) -> ir.Value | None:
        """Return whether a number has the column's declared type, or None where the engine sees to that."""
        return None

    def fits_38_digits(self, value: ir.Value, digits: int) -> ir.Value | None:
        """Return whether a decimal fits 38 digits, so many after the point; None where every one does."""
        return None

    def without_underflow(self, value: ir.Value, smallest: float) -> ir.Value:
        """Return a float such that scaling it is no error; what is smaller than this counts as 0."""
        return value

    def text_limbs(self, text: ir.Value, digits: int) -> tuple[ir.Value, ir.Value]:
        """Return the number that a text writes, as its whole part and as what comes after the point."""
        raise NotImplementedError

    def check(self, backend: Any) -> None:
        """Raise where the connection is set up in a way that makes results wrong."""

    def is_view(self, backend: Any, table: ops.DatabaseTable) -> bool:
        """Whether a table is a view, so that its rows are those of a query that nobody has looked into."""
        return False

    def run(self, backend: Any, query: ir.Table) -> pa.Table:
        """Run a query and return its rows as Arrow, never by way of pandas."""
        return query.to_pyarrow()


def _decoded(label: bytes | None) -> str | None:
    try:
        return None if label is None else label.decode()
    except UnicodeError:
        return None


def _iso_day(text: str | None) -> date | None:
    """Return the day that a text is, if it is written in ISO's way and no other."""
    try:
        return date.fromisoformat(text) if text is not None and len(text) == len("2020-01-01") else None
    except ValueError:
        return None


class DuckDB(Engine):
    """DuckDB, in this process."""

    name, title, wide_sums, strict_casts = "duckdb", "DuckDB", True, True

    def text_bytes(self, value: ir.Value) -> ir.Value:
        """Return the UTF-8 bytes; a cast would read \\x41 as an escape."""
        return call("encode", "binary", value)

    def text_limbs(self, text: ir.Value, digits: int) -> tuple[ir.Value, ir.Value]:
        """Return the parts before and after the point."""
        # A cast to a decimal of 38 digits takes 4 µs; these two of 64 bits together take a tenth of that.
        whole = call("split_part", "string", text, ".", 1).try_cast("int64")
        digit = ibis.literal("0.").concat(call("split_part", "string", text, ".", 2)).try_cast(dt.Decimal(18, digits))
        rest = ibis.cases((text.contains("."), ibis.ifelse(text.contains("-"), -digit, digit)))
        return whole, forced_cast(rest, dt.Decimal(18, digits))

    def fits_38_digits(self, value: ir.Value, digits: int) -> ir.Value | None:
        """Return whether a 128-bit integer, which Ibis takes for a decimal, has at most 38 digits."""
        most = forced_cast(ibis.literal("9" * 38), dt.Decimal(38, 0))
        return value.between(-most, most) if value.type().precision == 38 and digits == 0 else None

    def truncated(self, value: ir.Value, null_if_uncountable: bool) -> ir.Value:
        """Return a float cut towards zero; a cast alone would round."""
        cut = call("trunc", "float64", value)
        # A check beforehand is not enough: DuckDB removes it where a Parquet file's statistics, which leave out NaN,
        # say that it always holds.
        return cut.try_cast("int64") if null_if_uncountable else cut.cast("int64")

    def check(self, backend: Any) -> None:
        """Raise where a macro replaces a built-in function."""
        shadowing = backend.con.execute(
            "SELECT DISTINCT m.function_name FROM duckdb_functions() m JOIN duckdb_functions() f USING (function_name) "
            "WHERE m.function_type = 'macro' AND NOT m.internal AND f.internal "
            "AND m.database_name IN (current_database(), 'temp') ORDER BY 1"
        ).fetchall()
        if shadowing:
            names = ", ".join(name for (name,) in shadowing)
            raise ParameterError(
                f"data is on a DuckDB connection whose macros replace built-in functions ({names}), so that sums could "
                "mean something else; drop the macros, or give the address duckdb://file#table, which ignores them"
            )

    def run(self, backend: Any, query: ir.Table) -> pa.Table:
        """Run a query; DuckDB has Arrow's own types."""
        backend._run_pre_execute_hooks(query)
        with nullcontext() if self.statistics_are_safe(backend, query) else _without_statistics(backend):
            return backend.con.sql(backend.compile(query)).to_arrow_table()

    def is_view(self, backend: Any, table: ops.DatabaseTable) -> bool:
        """Whether a table is a view, other than of a whole file or frame."""
        query = "SELECT sql FROM duckdb_views() WHERE view_name = ? AND schema_name = coalesce(?, schema_name) "
        place = [table.name, table.namespace.database, table.namespace.catalog]
        found = backend.con.execute(query + "AND database_name = coalesce(?, database_name)", place).fetchall()
        return any(
            sql and not re.fullmatch(r"CREATE (TEMP )?VIEW .* AS SELECT \* FROM \w+\(.*\);", sql) for (sql,) in found
        )

    def statistics_are_safe(self, backend: Any, query: ir.Table) -> bool:
        """Whether a query reads only tables that are stored in DuckDB's own format, whose statistics know of NaN."""
        tables = {table.name for table in query.op().find(ops.DatabaseTable)}
        stored, views = backend.con.execute(
            "SELECT (SELECT count(DISTINCT table_name) FROM duckdb_tables() WHERE list_contains($1, table_name)), "
            "(SELECT count(*) FROM duckdb_views() WHERE list_contains($1, view_name))",
            [list(tables)],
        ).fetchone()
        return bool(tables) and stored == len(tables) and not views


class PrivateDuckDB(DuckDB):
    """The DuckDB that files and frames are read into: it has no collations, so that text is compared by its bytes."""

    def statistics_are_safe(self, backend: Any, query: ir.Table) -> bool:
        """Whether no filter and no derived column computes with floats: only those could be misled."""
        return not _computes_with_floats(query)

    def label(self, value: ir.Value, kind: str) -> ir.Value:
        """Return a label; text as it is, since grouping by its bytes would take half as long again."""
        return value if kind == TEXT else super().label(value, kind)

    def key(self, labels: pa.ChunkedArray, kind: str) -> pa.ChunkedArray:
        """Return public labels as they are."""
        return labels

    def key_label(self, labels: pa.ChunkedArray, kind: str) -> pa.ChunkedArray:
        """Return labels as they are."""
        return labels


@contextmanager
def _without_statistics(backend: Any) -> Iterator[None]:
    """Keep DuckDB from deciding comparisons by a file's statistics.

    Those of a Parquet file leave out NaN, so that whether a record with NaN passes a filter would depend on the others.
    """
    (before,) = backend.con.execute("SELECT current_setting('disabled_optimizers')").fetchone()
    backend.con.execute("SET disabled_optimizers = 'statistics_propagation,filter_pushdown'")
    try:
        yield
    finally:
        backend.con.execute(f"SET disabled_optimizers = '{before}'")


def _computes_with_floats(query: ir.Table) -> bool:
    """Whether a filter or a derived column looks at floats."""
    for relation in query.op().find((ops.Filter, ops.Project)):
        todo = list(relation.predicates if isinstance(relation, ops.Filter) else relation.values.values())
        while todo:
            children = [child for child in todo.pop().__children__ if isinstance(child, ops.Value)]
            if any(child.dtype.is_floating() for child in children):
                return True
            todo += children
    return False


class PostgreSQL(Engine):
    """A PostgreSQL server."""

    name, title, wide_sums, strict_casts = "postgres", "PostgreSQL", True, True

    def is_view(self, backend: Any, table: ops.DatabaseTable) -> bool:
        """Whether a table is a view, materialized or not."""
        with backend.con.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE relkind IN ('v', 'm') "
                "AND relname = %s AND n.nspname = coalesce(%s, n.nspname)",
                [table.name, table.namespace.database],
            )
            (views,) = cursor.fetchone()
        backend.con.commit()
        return bool(views)

    def text_bytes(self, value: ir.Value) -> ir.Value:
        """Return the UTF-8 bytes, whatever the encoding of the database."""
        return call("convert_to", "binary", value, "UTF8")

    def truncated(self, value: ir.Value, null_if_uncountable: bool) -> ir.Value:
        """Return a float cut towards zero; a cast alone would round."""
        return call("trunc", "float64", value).cast("int64")

    def fits_38_digits(self, value: ir.Value, digits: int) -> ir.Value | None:
        """Return whether a decimal fits; NaN, which PostgreSQL's decimals may be, is larger than any number."""
        size, most = (
            forced_cast(value, dt.decimal).abs(),
            forced_cast(ibis.literal(str(10 ** (38 - digits))), dt.decimal),
        )
        return size < most

    def without_underflow(self, value: ir.Value, smallest: float) -> ir.Value:
        """Return 0 for tiny floats: PostgreSQL stops with an error where a product underflows."""
        return ibis.cases((value.abs() < ibis.literal(smallest, "float64"), ibis.literal(0.0, "float64")), else_=value)

    def truncated_decimal(self, value: ir.Value, digits: int) -> ir.Value:
        """Return a decimal cut towards zero; a cast alone would round."""
        return forced_cast(call("trunc", "decimal", value, digits), dt.Decimal(38, digits))


class Spark(Engine):
    """Spark, in a session of its own Java process."""

    name, title = "pyspark", "Spark"

    def text_bytes(self, value: ir.Value) -> ir.Value:
        """Return the UTF-8 bytes."""
        return forced_cast(value, dt.binary)

    def truncated(self, value: ir.Value, null_if_uncountable: bool) -> ir.Value:
        """Return a float cut towards zero, as a cast does here."""
        return value.cast("int64")

    def check(self, backend: Any) -> None:
        """Raise where another server than Spark may answer, or where settings change what queries mean."""
        if ".connect." in type(backend._session).__module__:
            # Which server answers cannot be told; pysail 0.7.2, for one, fails the stability suite on NaN.
            raise ParameterError(
                "data is on Spark Connect, which is not supported: sums are known to be exact and stable on a classic "
                "Spark session only; open one with SparkSession.builder.master(...), or export the table to Parquet"
            )
        check_spark(backend)

    def run(self, backend: Any, query: ir.Table) -> pa.Table:
        """Run a query; Ibis would take the result through pandas, where NULL turns integers into floats."""
        check_spark(backend)  # its settings may have been changed since it was opened
        backend._run_pre_execute_hooks(query)
        return backend._session.sql(backend.compile(query)).toArrow()


class SQLite(Engine):
    """SQLite, whose columns may hold values of any type: each record is looked at for what it really holds."""

    name, title, has_decimals, has_quantiles, has_nan = "sqlite", "SQLite", False, False, False

    def check(self, backend: Any) -> None:
        """Raise where the bytes of a text are not those of UTF-8."""
        (encoding,) = backend.con.execute("PRAGMA encoding").fetchone()
        if encoding != "UTF-8":
            raise ParameterError(
                f"data is in a SQLite file with the encoding {encoding}; it must be UTF-8: export it to a new file"
            )

    def is_view(self, backend: Any, table: ops.DatabaseTable) -> bool:
        """Whether a table is a view."""
        query = "SELECT count(*) FROM sqlite_master WHERE type = 'view' AND name = ? COLLATE NOCASE"
        return bool(backend.con.execute(query, [table.name]).fetchone()[0])

    def label(self, value: ir.Value, kind: str) -> ir.Value:
        """Return a label if it is stored as the type that the column declares; dates are text."""
        wanted = "text" if kind in (TEXT, DATE) else "integer"
        right = call("typeof", "string", value) == wanted
        if kind == BOOLEAN:
            right = right & forced_cast(value, dt.int64).isin([0, 1])
        return ibis.cases((right, forced_cast(value, dt.binary if wanted == "text" else dt.int64)))

    def key(self, labels: pa.ChunkedArray, kind: str) -> pa.ChunkedArray:
        """Return public labels as SQLite stores them."""
        if kind == DATE:
            return labels.cast(pa.string()).cast(pa.binary())
        return labels.cast(pa.int64()) if kind == BOOLEAN else super().key(labels, kind)

    def key_label(self, labels: pa.ChunkedArray, kind: str) -> pa.ChunkedArray:
        """Return labels from what SQLite stores."""
        if kind == DATE:
            return pa.chunked_array([[_iso_day(_decoded(label)) for label in labels.to_pylist()]], pa.date32())
        return labels.cast(pa.bool_()) if kind == BOOLEAN else super().key_label(labels, kind)

    def truncated(self, value: ir.Value, null_if_uncountable: bool) -> ir.Value:
        """Return a float cut towards zero, as a cast does here."""
        return forced_cast(value, dt.int64)

    def has_declared_type(self, value: ir.Value) -> ir.Value | None:
        """Return whether a value is stored as a number."""
        types = ["integer"] if value.type().is_integer() else ["integer", "real"]
        return call("typeof", "string", value).isin(types)

    def run(self, backend: Any, query: ir.Table) -> pa.Table:
        """Run a query; Ibis would take the result through pandas."""
        backend._run_pre_execute_hooks(query)
        schema = query.schema().to_pyarrow()
        with backend._safe_raw_sql(backend.compile(query)) as cursor:
            columns = list(zip(*cursor.fetchall(), strict=True)) or [()] * len(schema)
        return pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema)


ENGINES: dict[str, Engine] = {engine.name: engine for engine in (DuckDB(), PostgreSQL(), Spark(), SQLite())}
PRIVATE = PrivateDuckDB()


def engine_of(table: ir.Table) -> Engine:
    """Return the engine that holds a table; one that is not tested is refused."""
    try:
        backend = table.get_backend()
    except ibis.common.exceptions.IbisError as error:
        raise ParameterError("data must be an Ibis table of one connected engine: this one has none, or several") from (
            error
        )
    name = str(backend.name)
    if getattr(backend, "is_private", False):
        return PRIVATE
    if name not in ENGINES:
        titles = ", ".join(engine.title for engine in ENGINES.values())
        raise ParameterError(
            f"data is on the engine {name!r}, which is not supported: sums are known to be exact and stable on "
            f"{titles} only. To add an engine, run tests/integration on it (CONTRIBUTING.md); meanwhile, export the "
            "table to Parquet"
        )
    return ENGINES[name]


_locks: "WeakKeyDictionary[Any, threading.RLock]" = WeakKeyDictionary()
_locks_lock = threading.Lock()


@contextmanager
def locked(backend: Any) -> Iterator[None]:
    """Hold a connection, so that threads use it one after the other: DuckDB freezes where two use one at once."""
    with _locks_lock:
        lock = _locks.setdefault(backend, threading.RLock())
    with lock:
        yield


def fetch(query: ir.Table) -> pa.Table:
    """Run a query on its engine and return its rows; a column of another type than expected is an error."""
    engine, backend = engine_of(query), query.get_backend()
    with locked(backend):
        found = engine.run(backend, query)
    expected = query.schema().to_pyarrow()
    for column in expected:
        if not _same_family(found[column.name].type, column.type):
            raise EngineError(f"{engine.title} returned {found[column.name].type} where {column.type} was query for")
    return pa.table([found[column.name].cast(column.type) for column in expected], expected)


def _same_family(got: pa.DataType, expected: pa.DataType) -> bool:
    """Whether two types hold the same values: integers and decimals may have another width."""
    whole = [pa.types.is_integer(dtype) or pa.types.is_decimal(dtype) for dtype in (got, expected)]
    if any(whole):
        return all(whole)
    for test in (_is_binary, _is_text, pa.types.is_floating):
        if test(got) or test(expected):
            return test(got) and test(expected)
    return bool(got == expected)


def _is_binary(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_binary(dtype) or pa.types.is_large_binary(dtype) or pa.types.is_binary_view(dtype))


def _is_text(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_string(dtype) or pa.types.is_large_string(dtype) or pa.types.is_string_view(dtype))


@contextmanager
def engine_errors(what: str, quote: bool = True) -> Iterator[None]:
    """Turn what an engine raises into an `EngineError`.

    Its own words are quoted only where no record has been read yet: later they may name a confidential value, and
    are left to `__cause__`.
    """
    try:
        yield
    except (ParameterError, ParameterTypeError, DataError, EngineError, KeyboardInterrupt, MemoryError):
        raise
    except ImportError as error:
        raise EngineError(
            f"{what}: {first_line(error)}; pip install 'slowscale[postgres]' or 'slowscale[spark]'"
        ) from error
    except Exception as error:
        if type(error).__name__ == "InterruptException":  # DuckDB's word for Ctrl-C
            raise KeyboardInterrupt from error
        why = first_line(error) if quote else f"{type(error).__name__}; the engine's own words may quote records"
        raise EngineError(f"{what}: {why}") from error


def first_line(error: Exception) -> str:
    """Return the first line of what an error says."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def grouped(table: ir.Table, kinds: Mapping[str, str], measures: Mapping[str, ir.Value]) -> ir.Table:
    """Return the query that groups records by their exact labels, named by0, by1…"""
    engine = engine_of(table)
    by = [engine.label(table[name], kind).name(f"by{i}") for i, (name, kind) in enumerate(kinds.items())]
    return table.aggregate(by=by, **measures)


def restricted_to_keys(table: ir.Table, keys: pa.Table, kinds: Mapping[str, str]) -> ir.Table:
    """Return the records whose labels are among the keys."""
    engine = engine_of(table)
    wanted = ibis.memtable(
        pa.table({f"by{i}": engine.key(keys[name], kind) for i, (name, kind) in enumerate(kinds.items())})
    )
    labels = [engine.label(table[name], kind) for name, kind in kinds.items()]
    return table.semi_join(wanted, [label == wanted[f"by{i}"] for i, label in enumerate(labels)])


_names = itertools.count()


def fresh_name(prefix: str) -> str:
    """Return a name that no other table of this process has."""
    return f"{prefix}_{next(_names)}"
