"""Exact sums that the curator computes on another engine: the SQL to run there, and the check of its result.

The SQL is that of a supported engine. It is written for a table that is not connected, so that no record is read. Its
result comes back in a Parquet file. What the result itself shows is checked: its columns, types, labels and counts, and
the bounds on its sums. That it is complete and exact is the word of the curator.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import duckdb
import ibis
import ibis.expr.datatypes as dt
import ibis.expr.operations as ops
import ibis.expr.types as ir
from ibis.config import Config

from slowscale.core.data_errors import Name
from slowscale.core.errors import DataError, ParameterError
from slowscale.core.parameters import lazy
from slowscale.data.cells import StoredCells, joined
from slowscale.data.connections import engine_errors, fresh_name, quoted
from slowscale.data.engines import DATE, ENGINES, TEXT, engine_of
from slowscale.data.keys import Keys
from slowscale.data.sources import files_of_one_kind, parquet_relation
from slowscale.data.sums import GRAIN_BITS, MOST_FLOAT_BITS, Column, SumsQuery, uncountable

SQL_DIALECTS = tuple(ENGINES)
PLACEHOLDER = "records"  # what the SQL calls a table whose name is not known
SPARK_SETTINGS = {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}
# What the person who runs the SQL has to know about an engine.
NEEDS = {
    "duckdb": "If the records are in Parquet files, run this first, because their statistics ignore NaN:\n"
    "  SET disabled_optimizers = 'statistics_propagation,filter_pushdown'",
    "pyspark": "Set " + " and ".join(f"{name}={value}" for name, value in SPARK_SETTINGS.items()) + " first.",
}
LEEWAY = 1.000001  # bounds on sums are compared as floats


class _Unconnected:
    """In place of the connection of an Ibis table: an engine that SQL is written for, with the settings it needs."""

    def __init__(self, dialect: str) -> None:
        self.name = dialect
        self._session = SimpleNamespace(conf=SPARK_SETTINGS)


class _SparkOptions(Config):  # type: ignore[misc]  # Ibis has no types
    """The option that the compiler for Spark reads; Ibis itself sets it only if PySpark is loaded."""

    treat_nan_as_null: bool = False


def unconnected(table: ir.Table, dialect: Any) -> ir.Table:
    """Return a table with the columns of another one, that SQL in a dialect can be written for."""
    if dialect not in SQL_DIALECTS:
        raise ParameterError("dialect", allowed=SQL_DIALECTS, given=dialect)
    name, namespace = PLACEHOLDER, ops.Namespace()
    stored = table.op()
    while isinstance(stored, ops.DropColumns):
        stored = stored.parent
    # Files and frames are views of the private DuckDB, whose names change; so are those of Spark DataFrames.
    temporary = getattr(table.get_backend(), "is_private", False) or getattr(stored, "name", "").startswith(
        "slowscale_"
    )
    if isinstance(stored, ops.DatabaseTable) and not temporary:
        name, namespace = stored.name, ops.Namespace(database=stored.namespace.database)
    return ops.DatabaseTable(name, table.schema(), _Unconnected(dialect), namespace).to_expr()


@dataclass(frozen=True)
class Result:
    """A column of the result of the SQL: its type, and what it holds."""

    name: str
    dtype: dt.DataType
    holds: str


@dataclass(frozen=True)
class SuppliedQuery:
    """The query of a drawn table of sums in the dialect of an engine that is not connected; see `unconnected`."""

    query: SumsQuery

    @staticmethod
    def of(
        table: ir.Table,
        columns: Sequence[Column],
        keys: Keys | None,
        protect: str | None,
        most_records: Fraction | None,
    ) -> "SuppliedQuery":
        """Return the query that sums columns by key; the parameters are those of `exact_sums`."""
        title = engine_of(table).title
        try:
            found = SuppliedQuery(SumsQuery.of(table, columns, keys, protect, most_records, null_if_uncountable=True))
            found.sql  # noqa: B018
        except NotImplementedError:
            problem, remedy = f"cannot be read on {title}", "declare the types of its columns (types), or convert them"
            raise ParameterError("text with numbers", problem, code="unsupported", remedy=remedy) from None
        except ibis.common.exceptions.IbisError:
            problem, remedy = f"cannot be written for {title}", "convert unusual types first, or choose another dialect"
            raise ParameterError("the SQL", problem, code="unsupported", remedy=remedy) from None
        return found

    @property
    def dialect(self) -> str:
        """The dialect of the SQL."""
        return engine_of(self.query.table).name

    @lazy
    def sql(self) -> str:
        """The SQL, without a comment."""
        found, kinds = self.query.query, {} if self.query.keys is None else self.query.keys.kinds
        # Such a label may be outside of what a key can be, and is NULL then.
        may_be_null = [
            f"by{i}" for i, (name, kind) in enumerate(kinds.items()) if kind == DATE or self._is_unsigned(name)
        ]
        if may_be_null:
            found = found.filter([found[name].notnull() for name in may_be_null])
        if ibis.options.pyspark is None:
            ibis.options.pyspark = _SparkOptions()
        return str(ibis.to_sql(found, dialect=self.dialect))

    def _is_unsigned(self, column: str) -> bool:
        return bool(self.query.table[column].type() == dt.uint64)

    @lazy
    def digest(self) -> str:
        """The SHA-256 of the SQL: public, because the SQL follows from the request and the schema."""
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @lazy
    def results(self) -> tuple[Result, ...]:
        """The columns of the result."""
        return tuple(self._results())

    def _results(self) -> Iterator[Result]:
        schema, who = self.query.query.schema(), self.query.protect
        for i, (name, kind) in enumerate({} if self.query.keys is None else self.query.keys.kinds.items()):
            form = "its bytes in UTF-8" if kind == TEXT else "as it is"
            yield Result(f"by{i}", schema[f"by{i}"], f"the label in the column {name!r}, {form}")
        holds = {"rows": "the number of records"}
        if who is not None:
            holds["owned"] = f"the number of records with a {who!r}; all must have one"
            holds["larger"] = f"1 if one {who!r} has more records than the largest number, otherwise 0; it must be 0"
        for i, (column, number) in enumerate(zip(self.query.columns, self.query.numbers, strict=True)):
            what = "a value" if who is None else f"the total of one {who!r}"
            holds[f"larger{i}"] = (
                f"1 if {what} of {column.name!r} is above the largest value, otherwise 0; it must be 0"
            )
            holds[f"valid{i}"] = f"the number of records whose {column.name!r} can be counted; all must be"
            for j, (_, weight) in enumerate(number.limbs):
                part = "the sum" if len(number.limbs) == 1 else f"part {j + 1} of {len(number.limbs)} of the sum"
                worth = weight * number.grain * 10 ** _scale(schema[f"sum{i}_{j}"])
                holds[f"sum{i}_{j}"] = f"{part} of {column.name!r}, in units of {worth}"
        for name in schema:
            if not name.startswith("by"):
                yield Result(name, schema[name], holds[name])

    @property
    def manifest(self) -> dict[str, Any]:
        """The description of the result, by which a file is recognized; its number of rows is left open."""
        columns = {one.name: {"type": _type(one.dtype), "holds": one.holds} for one in self.results}
        return {"sql_sha256": self.digest, "columns": columns, "groups": None}

    def text(self, name: str) -> str:
        """Return the SQL of a table with a comment that explains it."""
        keys, table = self.query.keys, self.query.table
        (records,) = {one.name for one in table.op().find(ops.DatabaseTable)}
        each = "one row for each combination of labels that occurs" if keys is not None else "one row"
        lines = [
            f"The exact sums of the table {name!r}, in the SQL of {engine_of(table).title}.",
            "CONFIDENTIAL: the result has no noise. Protect it like the records, and delete it after the release.",
            f"It reads the table {records!r} once"
            + ("; put the name of your table there." * (records == PLACEHOLDER) or "."),
            *NEEDS.get(self.dialect, "").splitlines(),
            f"Write the result, {each}, to a Parquet file with these columns in this order:",
            *(f"  {one.name} ({_type(one.dtype)}): {one.holds}" for one in self.results),
        ]
        return "\n".join([*(f"-- {line}" for line in lines), f"{self.sql};"])

    def cells(self, file: str | os.PathLike[str], groups: int | None) -> StoredCells:
        """Return the cells that a file holds; raise unless it can be the result of the query.

        Parameters
        ----------
        file
            The Parquet file, or a folder of Parquet files.
        groups
            The number of rows of the result, or None if it is not known.
        """
        path = os.fspath(file)
        files, kind = files_of_one_kind([path], False, "sums")
        if kind != "Parquet":
            raise ParameterError("sums", allowed="a Parquet file", given=path)
        with engine_errors("sums", f"could not be read ({path})", quote=False):
            mine, reading, stored = parquet_relation([path], files, "sums")
        if list(stored) != [one.name for one in self.results]:
            raise DataError(
                "supplied-columns", file=Name(path), columns=Name(", ".join(one.name for one in self.results))
            )
        for one in self.results:
            if not _fits(stored[one.name].dtype, one.dtype):
                raise _wrong("supplied-type", path, one.name, dtype=_type(one.dtype))
        columns = ", ".join(f"{_converted(one, stored[one.name].dtype)} AS {quoted(one.name)}" for one in self.results)
        found = fresh_name("supplied")
        with engine_errors("sums", f"could not be read ({path})", quote=False):
            try:
                mine.con.execute(f"CREATE TABLE {found} AS SELECT {columns} FROM {reading}")
            except (duckdb.ConversionException, duckdb.OutOfRangeException):
                raise DataError("supplied-digits", file=Name(path)) from None
            try:
                self._check(mine, found, path, groups)
                cells = joined(self.query, mine, f"SELECT * FROM {found}")
            finally:
                with suppress(duckdb.Error):
                    mine.con.execute(f"DROP TABLE {found}")
        return cells.checked(lambda column: uncountable(column, "supplied-uncountable"))

    def _check(self, mine: Any, found: str, path: str, groups: int | None) -> None:
        """Raise unless the rows of a table can be the result of the query, as far as they themselves show it."""
        (rows,) = mine.con.execute(f"SELECT count(*) FROM {found}").fetchone()
        by = [one.name for one in self.results if one.name.startswith("by")]
        if not by and rows != 1:
            raise DataError("supplied-total", file=Name(path))
        if groups is not None and rows != groups:
            raise DataError("supplied-groups", file=Name(path))
        for code, column, test in self._tests(bool(by)):
            (fails,) = mine.con.execute(f"SELECT coalesce(bool_or({test}), false) FROM {found}").fetchone()
            if fails:
                raise _wrong(code, path, column)
        if by:
            same = f"SELECT 1 FROM {found} GROUP BY {', '.join(by)} HAVING count(*) > 1 LIMIT 1"
            if mine.con.execute(same).fetchone() is not None:
                raise DataError("supplied-twice", file=Name(path))

    def _tests(self, keyed: bool) -> Iterator[tuple[str, str, str]]:
        """Yield conditions that no group meets, each with the code of the error and the column that it is about."""
        for one in self.results:
            if one.name.startswith("by"):
                yield "supplied-label", one.name, f"{one.name} IS NULL"
            elif one.name == "rows":  # the total of no records may have NULL
                yield "supplied-count", one.name, "rows IS NULL OR rows < 1" if keyed else "rows < 0"
            elif not one.name.startswith("sum"):
                most = "1" if one.name.startswith("larger") else "rows"
                yield (
                    "supplied-count",
                    one.name,
                    f"rows > 0 AND {one.name} IS NULL OR NOT {one.name} BETWEEN 0 AND {most}",
                )
        schema = self.query.query.schema()
        for i, (column, number) in enumerate(zip(self.query.columns, self.query.numbers, strict=True)):
            weights = [weight for _, weight in number.limbs]
            # The first part of a float is bounded by what can be counted, each other part by the part before it.
            before = None if number.exact else 2 ** (MOST_FLOAT_BITS + GRAIN_BITS)
            for j, weight in enumerate(weights):
                name = f"sum{i}_{j}"
                if before is not None:
                    most = before / weight / 10 ** _scale(schema[name]) * LEEWAY
                    yield "supplied-sum", name, f"abs(CAST({name} AS DOUBLE)) > {most!r}::DOUBLE * rows"
                if column.negatives is not None:
                    yield "supplied-sum", name, f"{name} < 0"
                before = weight


def _wrong(code: str, path: str, column: str, dtype: str = "") -> DataError:
    return DataError(code, file=Name(path), column=Name(column), dtype=Name(dtype))


def _scale(dtype: dt.DataType) -> int:
    """Return the number of digits after the point."""
    return int(dtype.scale or 0) if dtype.is_decimal() else 0


def _type(dtype: dt.DataType) -> str:
    return str(dtype.copy(nullable=True))


def _fits(stored: dt.DataType | None, wanted: dt.DataType) -> bool:
    """Return whether every value of a type can be converted to the wanted type without rounding, or be refused."""
    if stored is None:
        return False
    if wanted.is_integer() or wanted.is_decimal():
        return bool(stored.is_integer() or (stored.is_decimal() and _scale(stored) <= _scale(wanted)))
    if wanted.is_binary():
        return bool(stored.is_binary() or stored.is_string())
    return bool(stored.copy(nullable=True) == wanted.copy(nullable=True))


def _converted(result: Result, stored: dt.DataType | None) -> str:
    """Return the SQL of the private DuckDB for a column of the file in the type of the result."""
    name = quoted(result.name)
    if result.dtype.is_binary():  # a cast would interpret \x41 as an escape
        return f"encode({name})" if stored is not None and stored.is_string() else name
    if result.dtype.is_decimal():
        return f"CAST({name} AS DECIMAL(38, {_scale(result.dtype)}))"
    return f"CAST({name} AS BIGINT)" if result.dtype.is_integer() else name
