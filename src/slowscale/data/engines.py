"""Engines: what each database engine needs for exact comparison of labels and exact results.

An engine is supported if the conformance and stability suites run on it. Every other engine is refused: MySQL, MariaDB
and SQL Server, for instance, ignore case when they compare text, so that one record could merge two cells.
"""

import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import date
from typing import TYPE_CHECKING, Any, ClassVar

import duckdb
import ibis
import ibis.expr.datatypes as dt
import ibis.expr.operations as ops
import ibis.expr.types as ir
import pyarrow as pa

from slowscale.core.errors import EngineError, ParameterError, Shown
from slowscale.data.connections import ask_spark, is_connect, locked, query_progress
from slowscale.data.conversion import MOST_DIGITS
from slowscale.data.dialects import call, check_spark, forced_cast

if TYPE_CHECKING:
    from slowscale.data.selftest import SelfTest

TEXT, WHOLE, BOOLEAN, DATE = "text", "whole numbers", "booleans", "dates"
# The dates that Python and Arrow can represent; PostgreSQL also has 'infinity' and years BC.
PART = 1 << 20  # groups that are fetched together, if not all of them are
FIRST_DAY, LAST_DAY = date.min, date.max
# A text or a quoted name in SQL.
_QUOTED = r"""'(?:[^']|'')*'|"(?:[^"]|"")*\""""
# DuckDB's functions that read whole files. Others, such as query('SELECT …'), may combine rows.
FILE_FUNCTIONS = (
    "read_parquet|parquet_scan|read_csv|read_csv_auto|read_json|read_json_auto|read_ndjson|read_ndjson_auto"
)


class Engine:
    """How an engine groups labels, counts values and returns results. These methods are the defaults of all engines."""

    name: ClassVar[str]
    title: ClassVar[str]
    # Whether its sum of 64-bit integers has more than 64 bits. On other engines, numbers are split into limbs.
    wide_sums: ClassVar[bool] = False
    # Whether casting a float that does not fit in a 64-bit integer is an error.
    strict_casts: ClassVar[bool] = False
    # Whether `row_identity` is a hash of 64 bits.
    hashes_rows: ClassVar[bool] = False

    def label(self, value: ir.Value, kind: str) -> ir.Value:
        """Return the label of a record in a form in which only identical labels are equal; NULL if it is not valid."""
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
        """Return public labels in the form in which `label` returns those of the records."""
        return labels.cast(pa.binary()) if kind == TEXT else labels

    def key_label(self, labels: pa.ChunkedArray, kind: str) -> pa.ChunkedArray:
        """Return labels from the form in which `label` returns them; bytes that are not UTF-8 become NULL."""
        return (
            pa.chunked_array([[_decoded(label) for label in labels.to_pylist()]], pa.string())
            if kind == TEXT
            else labels
        )

    def text_bytes(self, value: ir.Value) -> ir.Value:
        """Return the bytes of a text, which are compared independently of the collation."""
        raise NotImplementedError

    def truncated(self, value: ir.Value, null_if_uncountable: bool) -> ir.Value:
        """Return a float truncated to a 64-bit integer; NULL if it does not fit and `null_if_uncountable`."""
        raise NotImplementedError

    def truncated_decimal(self, value: ir.Value, digits: int) -> ir.Value:
        """Return a decimal with this number of digits after the point, truncated towards zero."""
        return forced_cast(value, dt.Decimal(38, digits))

    def fits_38_digits(self, value: ir.Value, digits: int) -> ir.Value | None:
        """Return whether a decimal fits in 38 digits, `digits` of them after the point; None if every one does."""
        return None

    def without_underflow(self, value: ir.Value, smallest: float) -> ir.Value:
        """Return a float that can be scaled without an error: floats below `smallest` may become 0."""
        return value

    def text_limbs(self, text: ir.Value, digits: int) -> tuple[ir.Value, ir.Value]:
        """Return the number in a text as two numbers: the part before the point, and the part after it."""
        raise NotImplementedError

    def vanishing_exponential(self, value: ir.Value) -> ir.Value:
        """Return exp(−value) for a value that is not negative; beyond 40, any number from 0 to exp(−40) will do."""
        return (-value).exp()

    def row_identity(self, table: ir.Table, names: Sequence[str]) -> Mapping[str, ir.Value]:
        """Return expressions that are equal for two rows exactly if the rows are equal in these columns."""
        return {f"c{i}": table[name] for i, name in enumerate(names)}

    def largest(
        self, rows: ir.Table, labels: Sequence[str], names: Sequence[str], most: int
    ) -> tuple[ir.Table, dict[str, ir.Value]]:
        """Return rows, and measures of their groups by labels: the `most` largest values of columns, x_0, x_1…

        Values are floats, but not NaN. NULL is left out, and returned for a value that a group does not have.
        """
        ranks = {
            f"rank_{name}": ibis.row_number().over(
                ibis.window(group_by=labels, order_by=rows[name].desc(nulls_first=False))
            )
            for name in names
        }
        rows = rows.mutate(**ranks)
        return rows, {
            f"{name}_{rank}": rows[name].max(where=rows[f"rank_{name}"] == rank)
            for name in names
            for rank in range(most)
        }

    def check(self, backend: Any) -> None:
        """Raise if the connection has settings that make results wrong."""

    def proof(self, backend: Any) -> "SelfTest | None":
        """Return the self-test that a server has passed, or None if the engine needs none."""
        return None

    def is_view(self, backend: Any, table: ops.DatabaseTable) -> bool:
        """Return whether a table is a view, so that its rows come from a query that was not checked."""
        return False

    def check_files(self, backend: Any, table: ir.Table) -> None:
        """Raise if a table is a view of files that have types which the engine reads as other ones."""

    def run(self, backend: Any, query: ir.Table) -> pa.Table:
        """Run a query and return its rows as an Arrow table, without a detour through pandas."""
        return query.to_pyarrow()

    def parts(self, backend: Any, query: ir.Table) -> Iterator[pa.Table]:
        """Run a query that groups, and yield its rows in parts, so that not all of them are in memory at once."""
        yield self.run(backend, query)


def _decoded(label: bytes | None) -> str | None:
    try:
        return None if label is None else label.decode()
    except UnicodeError:
        return None


# DuckDB's hash of a value of any type. The hash of Ibis takes three times as long, because it casts to signed numbers.
_hash = ibis.udf.scalar.builtin(lambda row: None, name="hash", signature=((None,), "uint64"))


_largest = ibis.udf.agg.builtin(
    lambda value, most: None, name="max", signature=(("float64", "int64"), "array<float64>")
)


class DuckDB(Engine):
    """DuckDB, in this process."""

    name, title, wide_sums, strict_casts, hashes_rows = "duckdb", "DuckDB", True, True, True

    def text_bytes(self, value: ir.Value) -> ir.Value:
        """Return the UTF-8 bytes; a cast would interpret \\x41 as an escape."""
        return call("encode", "binary", value)

    def row_identity(self, table: ir.Table, names: Sequence[str]) -> Mapping[str, ir.Value]:
        """Return a hash of 64 bits of the row: that two different rows of 10⁷ share it has a chance of 10⁻⁵."""
        return {"c0": _hash(ibis.struct({name: table[name] for name in names}))}

    def largest(
        self, rows: ir.Table, labels: Sequence[str], names: Sequence[str], most: int
    ) -> tuple[ir.Table, dict[str, ir.Value]]:
        """Return rows, and their largest values by group; an aggregate of DuckDB finds them without sorting."""
        return rows, {f"{name}_{rank}": _largest(rows[name], most)[rank] for name in names for rank in range(most)}

    def text_limbs(self, text: ir.Value, digits: int) -> tuple[ir.Value, ir.Value]:
        """Return the parts before and after the point."""
        # A cast to a decimal of 38 digits takes 4 µs; these two casts to 64 bits take a tenth of that together.
        whole = call("split_part", "string", text, ".", 1).try_cast("int64")
        digit = ibis.literal("0.").concat(call("split_part", "string", text, ".", 2)).try_cast(dt.Decimal(18, digits))
        rest = ibis.cases((text.contains("."), ibis.ifelse(text.contains("-"), -digit, digit)))
        return whole, forced_cast(rest, dt.Decimal(18, digits))

    def fits_38_digits(self, value: ir.Value, digits: int) -> ir.Value | None:
        """Return whether a 128-bit integer, which Ibis treats as a decimal, has at most 38 digits."""
        most = forced_cast(ibis.literal("9" * 38), dt.Decimal(38, 0))
        return value.between(-most, most) if value.type().precision == 38 and digits == 0 else None

    def truncated(self, value: ir.Value, null_if_uncountable: bool) -> ir.Value:
        """Return a float truncated towards zero; a cast alone would round."""
        cut = call("trunc", "float64", value)
        # A condition before the cast is not enough: DuckDB removes it if it always holds by the statistics of a
        # Parquet file, which ignore NaN.
        return cut.try_cast("int64") if null_if_uncountable else cut.cast("int64")

    def check(self, backend: Any) -> None:
        """Raise if a macro replaces a built-in function."""
        macros = backend.con.execute(
            "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'macro' AND NOT internal "
            "AND database_name IN (current_database(), 'temp')"
        ).fetchall()
        if not macros:  # the usual case: DuckDB lists its functions slowly, so they are listed once
            return
        shadowing = backend.con.execute(
            "SELECT DISTINCT function_name FROM duckdb_functions() WHERE internal AND list_contains(?, function_name) "
            "ORDER BY 1",
            [[name for (name,) in macros]],
        ).fetchall()
        if shadowing:
            names = ", ".join(name for (name,) in shadowing)
            raise ParameterError(
                "data",
                f"is on a DuckDB connection with macros that replace built-in functions ({names}), so sums could "
                "be wrong",
                code="macros",
                remedy="drop the macros, or give the address duckdb://file#table, which ignores them",
            )

    def run(self, backend: Any, query: ir.Table) -> pa.Table:
        """Run a query; DuckDB returns Arrow tables directly."""
        backend._run_pre_execute_hooks(query)
        with nullcontext() if self.statistics_are_safe(backend, query) else without_statistics(backend):
            return backend.con.sql(backend.compile(query)).to_arrow_table()

    def is_view(self, backend: Any, table: ops.DatabaseTable) -> bool:
        """Return whether a table is a view, except a view of a whole file or frame."""
        query = "SELECT sql FROM duckdb_views() WHERE view_name = ? AND schema_name = coalesce(?, schema_name) "
        place = [table.name, table.namespace.database, table.namespace.catalog]
        found = backend.con.execute(query + "AND database_name = coalesce(?, database_name)", place).fetchall()
        # A frame that was registered has no text, nor has a view that was made of a DuckDB relation.
        return any(not (_is_whole_file(sql) if sql else _is_whole_frame(backend, table)) for (sql,) in found)

    def check_files(self, backend: Any, table: ir.Table) -> None:
        """Raise if a table is a view of Parquet files with decimals that DuckDB reads as floats, with wrong values."""
        found = backend.con.execute("SELECT view_name, sql FROM duckdb_views() WHERE NOT internal AND sql <> ''")
        views = dict(found.fetchall())
        todo, files = {one.name for one in table.op().find(ops.DatabaseTable)} & set(views), set()
        while todo:
            sql = views.pop(todo.pop())
            # A file is named by a text, or by the name of a table.
            words = [re.sub(r"(['\"])\1", r"\1", word[1:-1]) for word in re.findall(_QUOTED, sql)]
            files |= set(words)
            todo |= {name for name in views if name in words or re.search(rf"\b{re.escape(name)}\b", sql)}
        for file in sorted(files):
            with suppress(duckdb.Error):  # not a Parquet file
                wide = backend.con.execute(
                    "SELECT DISTINCT name FROM parquet_schema(?) WHERE converted_type = 'DECIMAL' AND precision > ? "
                    "OR logical_type LIKE 'DecimalType%' AND precision > ? ORDER BY 1",
                    [file, MOST_DIGITS, MOST_DIGITS],
                ).fetchall()
                if wide:
                    raise ParameterError(
                        "data",
                        f"is a DuckDB view of {file}, whose columns {', '.join(name for (name,) in wide)} are "
                        f"decimals of more than {MOST_DIGITS} digits, which DuckDB reads as wrong floats",
                        code="precision",
                        remedy="give the path of the file instead of the view, or convert the columns",
                    )

    def statistics_are_safe(self, backend: Any, query: ir.Table) -> bool:
        """Return whether a query reads only tables in DuckDB's own format, whose statistics include NaN."""
        tables = {table.name for table in query.op().find(ops.DatabaseTable)}
        stored, views = backend.con.execute(
            "SELECT (SELECT count(DISTINCT table_name) FROM duckdb_tables() WHERE list_contains($1, table_name)), "
            "(SELECT count(*) FROM duckdb_views() WHERE list_contains($1, view_name))",
            [list(tables)],
        ).fetchone()
        return bool(tables) and stored == len(tables) and not views


def _is_whole_file(sql: str) -> bool:
    """Return whether the text of a view is SELECT * FROM a function that reads files, and nothing else."""
    plain = re.sub(_QUOTED, "_", sql)
    while (shorter := re.sub(r"\([^()]*\)", "", plain)) != plain:
        plain = shorter
    return re.fullmatch(rf"CREATE (TEMP )?VIEW [\w.]+ AS SELECT \* FROM ({FILE_FUNCTIONS});", plain) is not None


def _is_whole_frame(backend: Any, table: ops.DatabaseTable) -> bool:
    """Return whether a view only scans a frame. Frames have no statistics, so this does not depend on the records."""
    _, plan = backend.con.execute(f"EXPLAIN (FORMAT JSON) {backend.compile(table.to_expr())}").fetchone()
    (scan,) = json.loads(plan)
    plain = set(scan["extra_info"]) <= {"Function", "Projections", "Estimated Cardinality"}
    return scan["name"].strip() in ("ARROW_SCAN", "PANDAS_SCAN") and not scan["children"] and plain


class PrivateDuckDB(DuckDB):
    """The DuckDB that files and frames are read into. It has no collations, so text is always compared by its bytes."""

    def statistics_are_safe(self, backend: Any, query: ir.Table) -> bool:
        """Return whether no filter and no derived column computes with floats; statistics affect only those."""
        return not _computes_with_floats(query)

    def label(self, value: ir.Value, kind: str) -> ir.Value:
        """Return a label. Text stays text, because grouping by bytes would take half as long again."""
        return value if kind == TEXT else super().label(value, kind)

    def key(self, labels: pa.ChunkedArray, kind: str) -> pa.ChunkedArray:
        """Return public labels unchanged."""
        return labels

    def key_label(self, labels: pa.ChunkedArray, kind: str) -> pa.ChunkedArray:
        """Return labels unchanged."""
        return labels


@contextmanager
def without_statistics(backend: Any) -> Iterator[None]:
    """Prevent DuckDB from deciding comparisons by the statistics of a file.

    The statistics of a Parquet file ignore NaN, so other records could decide whether a record with NaN passes a
    filter.
    """
    (before,) = backend.con.execute("SELECT current_setting('disabled_optimizers')").fetchone()
    backend.con.execute("SET disabled_optimizers = 'statistics_propagation,filter_pushdown'")
    try:
        yield
    finally:
        backend.con.execute(f"SET disabled_optimizers = '{before}'")


def _computes_with_floats(query: ir.Table) -> bool:
    """Return whether a filter or a derived column computes with floats."""
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
        """Return whether a table is a view, materialized or not."""
        with backend.con.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE relkind IN ('v', 'm') "
                "AND relname = %s AND n.nspname = coalesce(%s, n.nspname)",
                [table.name, table.namespace.database],
            )
            (views,) = cursor.fetchone()
        backend.con.commit()
        return bool(views)

    def parts(self, backend: Any, query: ir.Table) -> Iterator[pa.Table]:
        """Run a query, and yield its rows in parts, by a cursor of the server."""
        reader = query.to_pyarrow_batches(chunk_size=PART)
        yield reader.schema.empty_table()
        for batch in reader:
            yield pa.Table.from_batches([batch])

    def text_bytes(self, value: ir.Value) -> ir.Value:
        """Return the UTF-8 bytes, independently of the encoding of the database."""
        return call("convert_to", "binary", value, "UTF8")

    def truncated(self, value: ir.Value, null_if_uncountable: bool) -> ir.Value:
        """Return a float truncated towards zero; a cast alone would round."""
        return call("trunc", "float64", value).cast("int64")

    def fits_38_digits(self, value: ir.Value, digits: int) -> ir.Value | None:
        """Return whether a decimal fits. In PostgreSQL a decimal may be NaN, which is larger than every number."""
        size, most = (
            forced_cast(value, dt.decimal).abs(),
            forced_cast(ibis.literal(str(10 ** (38 - digits))), dt.decimal),
        )
        return size < most

    def without_underflow(self, value: ir.Value, smallest: float) -> ir.Value:
        """Return 0 for tiny floats, because in PostgreSQL the underflow of a product is an error."""
        return ibis.cases((value.abs() < ibis.literal(smallest, "float64"), ibis.literal(0.0, "float64")), else_=value)

    def vanishing_exponential(self, value: ir.Value) -> ir.Value:
        """Return exp(−value), and exp(−40) beyond 40, because in PostgreSQL the underflow of exp is an error."""
        return (-ibis.least(value, ibis.literal(40.0))).exp()

    def truncated_decimal(self, value: ir.Value, digits: int) -> ir.Value:
        """Return a decimal truncated towards zero; a cast alone would round."""
        return forced_cast(call("trunc", "decimal", value, digits), dt.Decimal(38, digits))


class Spark(Engine):
    """Spark, in a classic session."""

    name, title = "pyspark", "Spark"

    def text_bytes(self, value: ir.Value) -> ir.Value:
        """Return the UTF-8 bytes."""
        return forced_cast(value, dt.binary)

    def truncated(self, value: ir.Value, null_if_uncountable: bool) -> ir.Value:
        """Return a float truncated towards zero, as a cast does on this engine."""
        return value.cast("int64")

    def check(self, backend: Any) -> None:
        """Raise if settings change the meaning of queries."""
        check_spark(backend)

    def run(self, backend: Any, query: ir.Table) -> pa.Table:
        """Run a query without Ibis, which would use pandas, where NULL turns integers into floats."""
        self.check(backend)  # settings may have changed since the session was opened

        def fetched() -> pa.Table:
            backend._run_pre_execute_hooks(query)
            return backend._session.sql(backend.compile(query)).toArrow()

        return ask_spark(backend._session, fetched)

    def parts(self, backend: Any, query: ir.Table) -> Iterator[pa.Table]:
        """Run a query that groups, and yield its rows in parts, by a hash of their labels.

        The groups are kept in the memory of the executors. What does not fit there is computed again for each part.
        """
        from pyspark import StorageLevel

        self.check(backend)

        def grouped() -> Any:
            backend._run_pre_execute_hooks(query)
            return backend._session.sql(backend.compile(query)).persist(StorageLevel.MEMORY_ONLY)

        frame = ask_spark(backend._session, grouped)
        try:
            parts = -(-ask_spark(backend._session, frame.count) // PART) or 1
            labels = ", ".join(name for name in frame.columns if name.startswith("by"))
            for part in range(parts):
                some = frame.where(f"pmod(xxhash64({labels}), {parts}) = {part}") if labels else frame
                yield ask_spark(backend._session, some.toArrow)
        finally:
            frame.unpersist()


class SparkConnect(Spark):
    """A server behind a session of Spark Connect, which proves by a self-test that it computes as Spark does."""

    title = "Spark Connect"

    def check(self, backend: Any) -> None:
        """Raise if settings change the meaning of queries, or if the server does not pass the self-test."""
        super().check(backend)
        self.proof(backend)

    def proof(self, backend: Any) -> "SelfTest | None":
        """Return the self-test that the server has passed; None for the queries of the self-test itself."""
        from slowscale.data import selftest

        return None if selftest.is_being_tested(backend) else selftest.proof(backend)

    def run(self, backend: Any, query: ir.Table) -> pa.Table:
        """Run a query; raise if the server is lost while it runs."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "'verifySchema' is ignored")  # Ibis sends public keys by way of pandas
            return super().run(backend, query)


ENGINES: dict[str, Engine] = {engine.name: engine for engine in (DuckDB(), PostgreSQL(), Spark())}
PRIVATE, SPARK_CONNECT = PrivateDuckDB(), SparkConnect()


def engine_of(table: ir.Table | ir.Value) -> Engine:
    """Return the engine that holds a table or a value, or raise if it is not supported."""
    try:
        backend = table.get_backend()
    except ibis.common.exceptions.IbisError as error:
        raise ParameterError(
            "data",
            allowed="an Ibis table of one connected engine",
            given=Shown("one with none or several"),
            remedy="use one connection",
        ) from error
    return engine_of_connection(backend)


def engine_of_connection(backend: Any) -> Engine:
    """Return the engine of a connection, or raise if it is not supported."""
    name = str(backend.name)
    if getattr(backend, "is_private", False):
        return PRIVATE
    if name == Spark.name and is_connect(backend._session):
        return SPARK_CONNECT
    if name not in ENGINES:
        titles = ", ".join(engine.title for engine in ENGINES.values())
        raise ParameterError(
            "data",
            f"is on the engine {name!r}, which is not supported: sums are known to be exact and stable on {titles}"
            " only",
            code="unsupported",
            remedy="export the table to Parquet, or add the engine (CONTRIBUTING.md)",
        )
    return ENGINES[name]


def proof(table: ir.Table) -> "SelfTest | None":
    """Return the self-test that the engine of a table has passed, or None if it needs none."""
    return engine_of(table).proof(table.get_backend())


def fetch(query: ir.Table) -> pa.Table:
    """Run a query on its engine and return its rows; an unexpected type of a column is an error."""
    engine, backend = engine_of(query), query.get_backend()
    with locked(backend):
        found = engine.run(backend, query)
    return _typed(found, query, engine)


def fetch_parts(query: ir.Table) -> Iterator[pa.Table]:
    """Run a query that groups on its engine, and yield its rows in parts; see `fetch`."""
    engine, backend = engine_of(query), query.get_backend()
    with locked(backend):
        for part in engine.parts(backend, query):
            yield _typed(part, query, engine)


def _typed(found: pa.Table, query: ir.Table, engine: Engine) -> pa.Table:
    """Return rows with the types that a query states, or raise if they have others."""
    expected = query.schema().to_pyarrow()
    for column in expected:
        if not _same_family(found[column.name].type, column.type):
            raise EngineError(
                engine.title,
                f"returned {found[column.name].type} where {column.type} was expected",
                code="internal",
                remedy="report this",
            )
    return pa.table([found[column.name].cast(column.type) for column in expected], expected)


def _same_family(got: pa.DataType, expected: pa.DataType) -> bool:
    """Return whether two types hold the same kind of values; integers and decimals may have different widths."""
    whole = [pa.types.is_integer(dtype) or pa.types.is_decimal(dtype) for dtype in (got, expected)]
    if any(whole):
        return all(whole)
    families = (
        (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
        (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
        (pa.types.is_floating,),
    )
    for tests in families:
        found = [any(test(dtype) for test in tests) for dtype in (got, expected)]
        if any(found):
            return all(found)
    return bool(got == expected)


def grouped(
    table: ir.Table,
    kinds: Mapping[str, str],
    measures: Mapping[str, ir.Value],
    further: Mapping[str, ir.Value] | None = None,
) -> ir.Table:
    """Return the query that groups records by their exact labels, in columns named by0, by1…, and by further values."""
    engine = engine_of(table)
    by = [engine.label(table[name], kind).name(f"by{i}") for i, (name, kind) in enumerate(kinds.items())]
    return table.aggregate(by=by + [value.name(name) for name, value in (further or {}).items()], **measures)


def restricted_to_keys(table: ir.Table, keys: pa.Table, kinds: Mapping[str, str]) -> ir.Table:
    """Return the records whose labels are among the keys."""
    engine, wanted = engine_of(table), _wanted(table, keys, kinds)
    labels = [engine.label(table[name], kind) for name, kind in kinds.items()]
    return table.semi_join(wanted, [label == wanted[f"by{i}"] for i, label in enumerate(labels)])


def with_place_in_keys(
    table: ir.Table, keys: pa.Table, kinds: Mapping[str, str], values: Mapping[str, ir.Value]
) -> ir.Table:
    """Return values of all records, and whether their labels are among the keys, in a column named inside."""
    engine, wanted = engine_of(table), _wanted(table, keys, kinds)
    labels = {f"label{i}": engine.label(table[name], kind) for i, (name, kind) in enumerate(kinds.items())}
    rows = table.select(**labels, **values)
    found = rows.left_join(wanted, [rows[name] == wanted[f"by{i}"] for i, name in enumerate(labels)])
    return found.select(*values, inside=wanted.by0.notnull())


def _wanted(table: ir.Table, keys: pa.Table, kinds: Mapping[str, str]) -> ir.Table:
    """Return the keys as a table of the engine, with columns named by0, by1…"""
    engine = engine_of(table)
    return ibis.memtable(
        pa.table({f"by{i}": engine.key(keys[name], kind) for i, (name, kind) in enumerate(kinds.items())})
    )


def run(query: ir.Table, label: str) -> pa.Table:
    """Run a query with a progress bar, and return its rows."""
    with query_progress(query.get_backend(), label):
        return fetch(query)
