"""The types of columns: which ones are read, and how a value becomes one of the type that was declared for its column.

A column of another type is left out. An engine may read a type that it does not have as another one: DuckDB reads
Parquet decimals of more than 38 digits as floats, with wrong values. Therefore the types of files and frames are
taken from their schema, and the engine must read a column with the same type.

A declared type converts each value by a rule that does not depend on other records. A value that does not follow the
rule becomes NULL, and the column is reported as unreadable. As a label, such a value matches no key; in a column that
is summed, filtered on or derived from, it is an error.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.types as ir
import numpy as np
import pyarrow as pa
import pyarrow.parquet

from slowscale.core.errors import ParameterError, ParameterTypeError, similar
from slowscale.data.connections import engine_errors, fresh_name, literal, quoted

MOST_DIGITS = 38  # the most digits of a decimal
ZONED = dt.Timestamp(timezone="UTC")


class Stored(NamedTuple):
    """The type of a column in the schema of a file or frame: its text there, and the Ibis type, None if unsupported."""

    text: str
    dtype: dt.DataType | None


def type_name(dtype: dt.DataType) -> str:
    """Return the name of a type, as the engine calls it where Ibis does not know it."""
    raw: Any = getattr(dtype, "raw_type", None)
    return str(raw.sql("duckdb")) if hasattr(raw, "sql") else str(dtype)


def is_supported(dtype: dt.DataType) -> bool:
    """Return whether columns of an Ibis type are read."""
    if dtype.is_decimal():
        # PostgreSQL's numeric without a precision is checked value by value.
        return dtype.precision is None or (dtype.precision <= MOST_DIGITS and dtype.scale is not None)
    return bool(
        dtype.is_integer()
        or dtype.is_floating()
        or dtype.is_string()
        or dtype.is_boolean()
        or dtype.is_date()
        or dtype.is_timestamp()
        or dtype.is_time()
        or dtype.is_uuid()
        or dtype.is_binary()
    )


def is_read_as(stored: dt.DataType | None, found: dt.DataType) -> bool:
    """Return whether the type in a schema is supported, and the type with which the engine reads it is the same."""
    return stored is not None and is_supported(stored) and _plain(stored) == _plain(found)


def _plain(dtype: dt.DataType) -> dt.DataType:
    """Return a type without the details that a schema and an engine may state differently: no value depends on them."""
    if dtype.is_timestamp():
        return ZONED if dtype.timezone else dt.timestamp
    return dt.string if dtype.is_string() else dtype.copy(nullable=True)


def no_column(argument: str) -> ParameterError:
    """Return the error for a table whose columns are all of other types."""
    return ParameterError(
        argument,
        "has no column of a supported type",
        code="unsupported",
        remedy="convert the columns to numbers, text or dates",
    )


def check_names(names: Iterable[str], argument: str) -> None:
    """Raise unless columns have names that differ in more than case, because DuckDB renames columns otherwise."""
    listed = list(names)
    if len({name.casefold() for name in listed}) < len(listed):
        raise ParameterError(
            argument,
            "must have columns of different names, but some are equal or differ in case only",
            code="duplicate",
            remedy="rename them",
        )


# Arrow

_ARROW: dict[pa.DataType, dt.DataType] = {
    **{
        getattr(pa, f"{sign}int{bits}")(): getattr(dt, f"{sign}int{bits}")
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
    **{pa.float32(): dt.float32, pa.float64(): dt.float64, pa.bool_(): dt.boolean, pa.uuid(): dt.uuid},
    **dict.fromkeys((pa.string(), pa.large_string(), pa.string_view()), dt.string),
    **dict.fromkeys((pa.binary(), pa.large_binary(), pa.binary_view()), dt.binary),
    **dict.fromkeys((pa.date32(), pa.date64()), dt.date),
}


def arrow_types(schema: pa.Schema) -> dict[str, Stored]:
    """Return the types of the columns of an Arrow table."""
    return {field.name: Stored(str(field.type), _arrow_type(field.type)) for field in schema}


def _arrow_type(dtype: pa.DataType) -> dt.DataType | None:
    if pa.types.is_dictionary(dtype):
        return _arrow_type(dtype.value_type)
    # DuckDB does not read the decimals of 256 bits, however many digits they have.
    if pa.types.is_decimal(dtype) and not pa.types.is_decimal256(dtype):
        return _decimal(dtype.precision, dtype.scale)
    if pa.types.is_timestamp(dtype):
        return ZONED if dtype.tz else dt.timestamp
    if pa.types.is_time(dtype):
        return dt.time
    return dt.binary if pa.types.is_fixed_size_binary(dtype) else _ARROW.get(dtype)


def _decimal(precision: int, scale: int) -> dt.DataType | None:
    return dt.Decimal(precision, scale) if 0 <= scale <= precision <= MOST_DIGITS else None


# Parquet

# The types of columns by the physical type, for columns without a logical type, and by the logical type.
_PHYSICAL: dict[str, dt.DataType] = {
    "BOOLEAN": dt.boolean,
    "INT32": dt.int32,
    "INT64": dt.int64,
    "INT96": dt.timestamp,
    "FLOAT": dt.float32,
    "DOUBLE": dt.float64,
    "BYTE_ARRAY": dt.binary,
    "FIXED_LEN_BYTE_ARRAY": dt.binary,
}
_LOGICAL: dict[str, dt.DataType] = {
    "String": dt.string,
    "Enum": dt.string,
    "Date": dt.date,
    "Time": dt.time,
    "UUID": dt.uuid,
    "Float16": dt.float32,
}


def parquet_types(file: str, argument: str) -> dict[str, Stored]:
    """Return the types of the columns of a Parquet file, from its own schema."""
    found: dict[str, Stored] = {}
    with pa.parquet.ParquetFile(file) as opened:
        schema, leaves = opened.schema_arrow, opened.schema
    check_names(schema.names, argument)
    place = 0
    for column in schema:
        count = _leaves(column.type)
        # A plain column has one leaf, whose path is its name; the leaves of nested columns have longer paths.
        plain = count == 1 and leaves[place].path == column.name
        found[column.name] = Stored(str(column.type), _parquet_type(leaves[place]) if plain else None)
        place += count
    return found


def _leaves(dtype: pa.DataType) -> int:
    """Return how many columns of a Parquet file hold the values of an Arrow type."""
    if isinstance(dtype, pa.BaseExtensionType):
        return _leaves(dtype.storage_type)
    return sum(_leaves(dtype.field(i).type) for i in range(dtype.num_fields)) or 1


def _parquet_type(column: Any) -> dt.DataType | None:
    logical: Mapping[str, Any] = json.loads(column.logical_type.to_json())
    match logical["Type"]:
        case "None":
            return _PHYSICAL.get(column.physical_type)
        case "Int":
            whole: dt.DataType = getattr(dt, f"{'' if logical['isSigned'] else 'u'}int{logical['bitWidth']}")
            return whole
        case "Decimal":
            return _decimal(logical["precision"], logical["scale"])
        case "Timestamp":
            return ZONED if logical["isAdjustedToUTC"] else dt.timestamp
        case other:
            return _LOGICAL.get(other)


def listed_columns(columns: Sequence[str], wanted: str = "") -> str:
    """Return the columns of a table in words, and the one that is most similar to one that it does not have."""
    near = similar(wanted, columns)
    return f"the columns are {', '.join(columns)}" + (f"; did you mean {near!r}?" if near else "")


EXAMPLES = '"string", "int64", "float64", "decimal(18, 2)", "boolean", "date" or "timestamp"'
AS_TEXT = "name the file itself as the data, or read it with dtype=str in pandas"  # which keeps leading zeros
# What other programs call these types.
SIMILAR_TYPES = {
    **dict.fromkeys(("integer", "int", "bigint", "long", "whole", "whole number"), "int64"),
    **dict.fromkeys(("number", "numeric", "double", "float", "real", "decimal"), "float64"),
    **dict.fromkeys(("text", "str", "varchar", "char", "character", "factor", "object", "category"), "string"),
    **dict.fromkeys(("datetime", "datetime64", "time"), "timestamp"),
    **dict.fromkeys(("bool", "logical"), "boolean"),
}
ISO_DATE = "%Y-%m-%d"
WHOLE_TEXT = r"[+-]?[0-9]+(\.0*)?"
FLOAT_TEXT = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
TIMESTAMP_TEXT = r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?)?"
TRUE, FALSE = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")


@dataclass(frozen=True)
class Source:
    """A table of records, and what is known about how it was read.

    Attributes
    ----------
    table
        The records.
    unreadable
        The columns in which some value is not of the declared type, with that type.
    unusable
        The columns that were left out because their type is not supported, with that type.
    not_text
        The columns of a pandas frame that are read as text, in which some value cannot be read as text and is NULL.
    text_numbers
        Whether numbers may be stored as text, as in CSV and Excel files.
    view
        Whether the table is a view, so that a record is a row of the result of a query.
    filtered
        Whether the records were filtered already, so that a change of value may move a record in or out.
    stored
        The columns that are unchanged columns of a stored table; None if that follows from the table's expression.
    written_out
        The columns of whole numbers that were declared as text: their labels have no leading zeros.
    """

    table: ir.Table
    unreadable: Mapping[str, str] = field(default_factory=dict)
    unusable: Mapping[str, str] = field(default_factory=dict)
    not_text: frozenset[str] = frozenset()
    text_numbers: bool = False
    view: bool = False
    filtered: bool = False
    stored: frozenset[str] | None = None
    written_out: frozenset[str] = frozenset()


def value_text(value: Any) -> str | None:
    """Return a Python value as the text that a CSV file would have for it, or None if it is missing.

    Whole numbers are written without a decimal point, dates and times in ISO format. A duration is text that is not a
    number: its unit is not known.
    """
    if isinstance(value, np.datetime64):
        return None if np.isnat(value) else str(value)
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return value.date().isoformat() if value.time() == time() and not value.tzinfo else value.isoformat(" ")
    if isinstance(value, timedelta):
        return f"{value.total_seconds()} s"
    return (value.isoformat() if isinstance(value, date | time) else str(value)) or None


def check_types(types: Any) -> dict[str, dt.DataType]:
    """Return declared types as Ibis types."""
    if types is None:
        return {}
    if not isinstance(types, Mapping):
        raise ParameterTypeError("types", allowed='a mapping such as {"county": "string"}', given=types)
    return {name: _check_type(name, given) for name, given in types.items()}


def _check_type(name: Any, given: Any) -> dt.DataType:
    try:
        dtype = ibis.dtype(given)
    except Exception:
        dtype = None
    known = dtype is not None and (
        dtype.is_string() or dtype.is_integer() or dtype.is_floating() or dtype.is_boolean() or dtype.is_date()
    )
    decimal = dtype is not None and dtype.is_decimal() and dtype.scale is not None and is_supported(dtype)
    naive = dtype is not None and dtype.is_timestamp() and dtype.timezone is None
    if not isinstance(name, str) or not (known or decimal or naive):
        meant = SIMILAR_TYPES.get(str(given).casefold().split("(")[0].strip())
        remedy = None if meant is None else f"did you mean {meant!r}?"
        if dtype is not None and dtype.is_decimal():
            remedy = f"decimals have at most {MOST_DIGITS} digits, as in 'decimal({MOST_DIGITS}, 2)'"
        raise ParameterError(f"types[{name!r}]", allowed=f"a type such as {EXAMPLES}", given=given, remedy=remedy)
    return dtype


def converted(
    connection: Any,
    relation: str,
    types: Mapping[str, dt.DataType],
    argument: str,
    dates: str = ISO_DATE,
    decimal: str = ".",
    store: bool = False,
    stored: Mapping[str, Stored] | None = None,
) -> Source:
    """Return a relation of the private DuckDB with declared types: as a view or, with `store`, as a table.

    With `stored`, the types in the schema of the source, a column that DuckDB reads as another type is left out.
    """
    from ibis.backends.sql.datatypes import DuckDBType

    with engine_errors(argument):
        described = connection.con.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
    have = {row[0]: row[1] for row in described}
    unknown = [name for name in types if name not in have]
    if unknown:
        raise ParameterError(
            "types",
            f"names {', '.join(unknown)}, which {argument} does not have",
            code="unknown-column",
            remedy=listed_columns(list(have), unknown[0]),
        )
    columns, unusable = {}, {}
    for name, sql_type in have.items():
        found = DuckDBType.from_string(sql_type)
        text, dtype = (sql_type, found) if stored is None else stored.get(name, (sql_type, None))
        if is_read_as(dtype, found):
            columns[name] = expression(name, sql_type, types.get(name), dates, decimal)
        else:
            unusable[name] = text
    if not columns:
        raise no_column(argument)
    kept = ", ".join(f"{expression} AS {quoted(name)}" for name, expression in columns.items())
    place = fresh_name("records")
    with engine_errors(argument, quote=False):
        kind = "TABLE" if store else "VIEW"
        connection.con.execute(f"CREATE {kind} {place} AS SELECT {kept} FROM {relation}")
        unreadable = _unreadable(connection, relation, columns, types)
        texts = {name for name, dtype in types.items() if dtype.is_string() and have[name] in INTEGERS}
        return Source(connection.table(place), unreadable, unusable, written_out=frozenset(texts))


def mismatch_remedy(have: str, kind: str) -> str:
    """Return what to do about a column and keys whose labels are of different kinds."""
    if (have, kind) == ("whole numbers", "text"):
        return f"codes such as 01 lose their zero when they are read as numbers: {AS_TEXT}"
    return "give keys of the column's type, or declare the column's type (types=)"


def _unreadable(
    connection: Any, relation: str, columns: Mapping[str, str], types: Mapping[str, dt.DataType]
) -> dict[str, str]:
    changed = [name for name in types if columns.get(name, quoted(name)) != quoted(name)]
    if not changed:
        return {}
    tests = ", ".join(
        f"coalesce(bool_or({columns[name]} IS NULL AND trim(CAST({quoted(name)} AS VARCHAR)) <> ''), false)"
        for name in changed
    )
    found = connection.con.execute(f"SELECT {tests} FROM {relation}").fetchone()
    return {name: str(types[name]) for name, bad in zip(changed, found, strict=True) if bad}


def expression(name: str, sql_type: str, dtype: dt.DataType | None, dates: str, decimal: str) -> str:
    """Return the SQL that converts a column, record by record."""
    column = quoted(name)
    if dtype is None:
        return column
    if sql_type == "VARCHAR":
        return _from_text(column, dtype, dates, decimal)
    if dtype.is_string() and sql_type in ("BOOLEAN", "DATE", *INTEGERS):
        return f"CAST({column} AS VARCHAR)"
    if dtype.is_integer() and (sql_type in ("DOUBLE", "FLOAT") or sql_type.startswith("DECIMAL")):
        return f"CASE WHEN {column} = trunc({column}) THEN TRY_CAST({column} AS {_sql_type(dtype)}) END"
    if _is_numeric_cast(sql_type, dtype):
        return f"TRY_CAST({column} AS {_sql_type(dtype)})"
    if dtype.is_date() and sql_type.startswith("TIMESTAMP"):
        return f"CASE WHEN {column} = date_trunc('day', {column}) THEN CAST({column} AS DATE) END"
    if _sql_type(dtype) == sql_type:
        return column
    raise ParameterError(
        f"types[{name!r}]",
        f"is {dtype}, but the column holds {sql_type}, which cannot be converted to it exactly",
        code="cast",
        remedy="declare another type, or leave it out",
    )


INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "HUGEINT")


def _is_numeric_cast(sql_type: str, dtype: dt.DataType) -> bool:
    """Whether a cast from one type of number to another keeps every value, as far as it fits."""
    if sql_type in ("DOUBLE", "FLOAT"):
        return bool(dtype.is_floating())
    if sql_type not in INTEGERS and not sql_type.startswith("DECIMAL"):
        return False
    if dtype.is_decimal():
        scale = sql_type.rstrip(")").rpartition(",")[2] if sql_type.startswith("DECIMAL") else 0
        return bool(dtype.scale >= int(scale))
    return bool(dtype.is_floating() or (dtype.is_integer() and sql_type in INTEGERS))


def _from_text(column: str, dtype: dt.DataType, dates: str, decimal: str) -> str:
    if dtype.is_string():
        return column
    text = f"trim({column})"
    if decimal != "." and (dtype.is_floating() or dtype.is_decimal() or dtype.is_integer()):
        # With a decimal comma, a number must not contain a point.
        text = f"CASE WHEN NOT contains({text}, '.') THEN replace({text}, {literal(decimal)}, '.') END"
    if dtype.is_integer():
        return _cast_if_matching(text, WHOLE_TEXT, f"split_part({text}, '.', 1)", dtype)
    if dtype.is_floating():
        return _cast_if_matching(text, FLOAT_TEXT, text, dtype)
    if dtype.is_decimal():
        digits = dtype.scale
        pattern = rf"[+-]?([0-9]+(\.[0-9]{{0,{digits}}}0*)?" + (rf"|\.[0-9]{{1,{digits}}}0*)" if digits else ")")
        return _cast_if_matching(text, pattern, text, dtype)
    if dtype.is_boolean():
        yes, no = (", ".join(map(literal, words)) for words in (TRUE, FALSE))
        return f"CASE WHEN lower({text}) IN ({yes}) THEN true WHEN lower({text}) IN ({no}) THEN false END"
    if dtype.is_date():
        return f"CAST(try_strptime({text}, {literal(dates)}) AS DATE)"
    return _cast_if_matching(text, TIMESTAMP_TEXT, text, dtype)


def _cast_if_matching(text: str, pattern: str, value: str, dtype: dt.DataType) -> str:
    return f"CASE WHEN regexp_full_match({text}, {literal(pattern)}) THEN TRY_CAST({value} AS {_sql_type(dtype)}) END"


def _sql_type(dtype: dt.DataType) -> str:
    from ibis.backends.sql.datatypes import DuckDBType

    return str(DuckDBType.to_string(dtype))
