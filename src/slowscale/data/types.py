"""The types of columns that are read: one list for every source. A column of another type is left out.

An engine may read a type that it does not have as another one: DuckDB reads Parquet decimals of more than 38 digits as
floats, with wrong values. Therefore the types of files and frames are taken from their own schema, and the type with
which the engine reads a column must be the same.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import ibis.expr.datatypes as dt
import pyarrow as pa
import pyarrow.parquet

from slowscale.core.errors import ParameterError

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


def check_names(names: Iterable[str], argument: str) -> None:
    """Raise unless columns have names that differ in more than case, because DuckDB renames columns otherwise."""
    listed = list(names)
    if len({name.casefold() for name in listed}) < len(listed):
        raise ParameterError(
            argument,
            "must have columns of different names, but some are equal or differ in case only",
            remedy="rename them",
        )


# Arrow

_ARROW: dict[pa.DataType, dt.DataType] = {
    **{getattr(pa, name)(): dt.dtype(name) for name in ("int8", "int16", "int32", "int64")},
    **{getattr(pa, f"u{name}")(): dt.dtype(f"u{name}") for name in ("int8", "int16", "int32", "int64")},
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
    for field in schema:
        count = _leaves(field.type)
        # A column of its own has one leaf, whose path is its name; the leaves of nested columns have longer paths.
        plain = count == 1 and leaves[place].path == field.name
        found[field.name] = Stored(str(field.type), _parquet_type(leaves[place]) if plain else None)
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
            return dt.dtype(f"{'' if logical['isSigned'] else 'u'}int{logical['bitWidth']}")
        case "Decimal":
            return _decimal(logical["precision"], logical["scale"])
        case "Timestamp":
            return ZONED if logical["isAdjustedToUTC"] else dt.timestamp
        case other:
            return _LOGICAL.get(other)


def delimiter_hint(columns: Sequence[str]) -> str:
    """Return the remedy for a CSV file that seems to have another delimiter: its only column has one in its name."""
    marks = [mark for mark in (";", "\t", "|") if len(columns) == 1 and mark in columns[0]]
    return f"; if {marks[0]!r} separates the fields, give csv = {{delimiter: {marks[0]!r}}}" if marks else ""


def listed_columns(columns: Sequence[str]) -> str:
    """Return the columns of a table in words."""
    return f"the columns are {', '.join(columns)}{delimiter_hint(columns)}"
