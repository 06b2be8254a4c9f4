"""Exact sums by public key, in one scan.

Floating-point sums depend on the order of the records, so a record could change them by more than its own value, and
two engines would disagree. Here every record becomes a whole number of grains and whole numbers are summed. Whole
numbers and decimals count in their own grain (1, 0.01…). A float counts in 2⁻¹⁶ of a unit: n = ⌊v·2¹⁶/unit + ½⌋,
computed in IEEE arithmetic, which every engine has. So a record's influence is |n| grains, whatever the engine, and
rounding to the unit happens once, when the noise is in.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.operations as ops
import ibis.expr.types as ir
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slowscale.errors import DataError, EngineError, ParameterError, ParameterTypeError
from slowscale.tables.keys import TYPES, Keys, label_kind
from slowscale.tables.sources import engine_errors, engine_of

Integers = Any  # an array of int64, or of Python integers where those do not fit

# Floats count in this share of a unit.
FINER = 2**16
# Records count fewer grains than this, so that they fit whole numbers of 64 bits.
MOST = 2**63
# Digits after the point kept of a decimal column that has no fixed number of them.
DIGITS = 12
# Engines whose sum of 64-bit numbers has more than 64 bits. On others the number is cut in two limbs of 32 bits.
WIDE = {"duckdb", "postgres"}
# Engines that refuse to cast a float to a whole number of 64 bits which does not fit.
STRICT = {"duckdb", "postgres"}


@dataclass(frozen=True)
class Column:
    """A column to be summed, and what to do with records that have no value or a negative one."""

    name: str
    unit: Fraction
    nulls: str = "error"
    negatives: str | None = None  # None: welcome


@dataclass(frozen=True)
class Counted:
    """The whole numbers of grains that records have in a column."""

    number: ir.Value
    grain: Fraction
    valid: ir.Value  # null where the record cannot be counted


def counted(table: ir.Table, column: Column, careful: bool = True) -> Counted:
    """Return the expression that counts a column, record by record.

    Unless `careful`, a float that cannot be counted (NaN, infinite, too large) makes the query fail; that is faster.
    """
    value, dtype = table[column.name], table[column.name].type()
    if dtype.is_integer():
        number, grain, fits = value, Fraction(1), None
    elif dtype.is_decimal():
        digits = DIGITS if dtype.scale is None else dtype.scale
        number, grain = _forced(value, dt.Decimal(38, digits)), Fraction(1, 10**digits)
        fits = value.abs() < ibis.literal(10**18) if dtype.scale is None else None  # not so for NaN
    elif dtype.is_floating():
        times, over = _scale(column)
        scaled = value.cast("float64") * times
        scaled = scaled if over is None else scaled / over
        number, grain = (scaled + 0.5).floor().cast("int64"), column.unit / FINER
        fits = (scaled >= -_double(MOST)) & (scaled < _double(MOST)) if careful else None  # not so for NaN
    else:
        raise ParameterTypeError(f"column {column.name!r} must hold numbers to be summed, got {dtype}")
    cases = []
    if column.nulls == "zero":
        cases.append((value.isnull(), ibis.literal(0).cast(number.type())))
    if column.negatives == "zero":
        cases.append((value < 0, ibis.literal(0).cast(number.type())))
    if column.negatives == "error":
        fits = value >= 0 if fits is None else (value >= 0) & fits
    if fits is not None:
        cases.append((fits, number))
    elif cases:
        cases.append((value.notnull(), number))
    if not cases:
        return Counted(number, grain, valid=value)
    number = ibis.cases(*cases)
    return Counted(number, grain, valid=number)


def _forced(value: ir.Value, dtype: dt.DataType) -> ir.Value:
    """Cast a value record by record, also where Ibis believes that it has the type already."""
    return ops.Cast(value, dtype).to_expr()


def _scale(column: Column) -> tuple[Any, Any]:
    """Return what to multiply and divide a float by, to count grains: whole numbers that a float holds exactly."""
    times, over = column.unit.denominator * FINER, column.unit.numerator
    if max(times, over) > 2**53:
        raise ParameterError(f"unit of the float column {column.name!r} is too fine or too coarse: {column.unit}")
    return _double(times), None if over == 1 else _double(over)


def _double(number: int) -> Any:
    return ibis.literal(float(number), "float64")


@dataclass(frozen=True)
class ExactSums:
    """Per key: how many records, and the sum of each column as a whole number of its grain. Confidential."""

    rows: Integers
    sums: dict[str, Integers]
    grains: dict[str, Fraction]

    def __repr__(self) -> str:
        return "<exact sums: confidential>"


def exact_sums(
    table: ir.Table,
    columns: Sequence[Column],
    keys: Keys | None,
    run: Callable[[ir.Table], pa.Table] = lambda query: query.to_pyarrow(),
    protect: str | None = None,
) -> ExactSums:
    """Sum columns by key in one scan of the table.

    Parameters
    ----------
    table
        The records.
    columns
        What to sum.
    keys
        The public keys, or None for the total of all records.
    run
        What runs the query, for instance with a progress bar.
    protect
        A column that must not be missing: the entity that a record belongs to.
    """
    if keys is not None:
        check_labels(table, keys)
    careful = engine_of(table) not in STRICT
    try:
        return _exact_sums(table, columns, keys, run, protect, careful)
    except EngineError:
        # A float that cannot be counted, perhaps of a record that has none of the keys: look again, with care.
        if careful or not any(table[column.name].type().is_floating() for column in columns):
            raise
        return _exact_sums(table, columns, keys, run, protect, careful=True)


def _exact_sums(
    table: ir.Table,
    columns: Sequence[Column],
    keys: Keys | None,
    run: Callable[[ir.Table], pa.Table],
    protect: str | None,
    careful: bool,
) -> ExactSums:
    by = list(keys.columns) if keys is not None else []
    numbers = [counted(table, column, careful) for column in columns]
    wide = engine_of(table) in WIDE
    measures = {"rows": table.count()}
    if protect is not None:
        measures["owned"] = table[protect].count()
    for i, number in enumerate(numbers):
        measures |= {f"{part}{i}": value for part, value in _measures(number, wide).items()}
    query = table.aggregate(by=[_label(table, name).name(f"by{i}") for i, name in enumerate(by)], **measures)
    with engine_errors("the engine could not sum the table", quote=False):
        found = run(query)
    size, at = (len(keys), None) if keys is not None else (1, np.arange(1))
    if keys is not None:
        found, at = _aligned(found, keys)
    rows = _scattered(found["rows"], at, size)
    if protect is not None and (_scattered(found["owned"], at, size) != rows).any():
        raise DataError(f"column {protect!r}, which is to be protected, has missing values: whose are those records?")
    sums = {}
    for i, column in enumerate(columns):
        if (_scattered(found[f"valid{i}"], at, size) != rows).any():
            raise DataError(_diagnosis(table, column, keys))
        sums[column.name] = _joined(found, i, at, size)
        if f"sum{i}" in found.column_names and found[f"sum{i}"].null_count and rows.any():
            raise DataError(f"the sum of column {column.name!r} has more digits than the engine can hold")
    return ExactSums(rows, sums, {column.name: number.grain for column, number in zip(columns, numbers, strict=True)})


def check_labels(table: ir.Table, keys: Keys) -> None:
    """Raise unless the table has the key columns, with labels of the same type."""
    for name, kind in keys.kinds.items():
        if name not in table.columns:
            raise ParameterError(f"by: there is no column {name!r}; there are {', '.join(table.columns)}")
        have = label_kind(table[name].type())
        if have is None:
            raise ParameterTypeError(f"by: column {name!r} cannot label groups, it holds {table[name].type()}")
        if have != kind:
            raise ParameterTypeError(
                f"by: column {name!r} holds {have}, but the keys hold {kind}; give keys of the column's type"
                + (' (types={"' + name + '": "string"} reads a CSV column as text)' if kind == "text" else "")
            )


def _label(table: ir.Table, name: str) -> ir.Value:
    """Return a key column; PostgreSQL's char(n) without the blanks it is padded with."""
    value = table[name]
    padded = engine_of(table) == "postgres" and value.type().is_string()
    return _forced(value, dt.string) if padded else value


def _measures(counted: Counted, wide: bool) -> dict[str, ir.Value]:
    """Return the aggregates that give an exact sum, and the number of records in it."""
    number, valid = counted.number, counted.valid.count()
    if wide or number.type().is_decimal():
        digits = number.type().scale if number.type().is_decimal() else 0
        return {"sum": _forced(number.sum(), dt.Decimal(38, digits)), "valid": valid}
    number = number.cast("int64")
    return {"high": (number >> 32).sum(), "low": (number & (2**32 - 1)).sum(), "valid": valid}


def _aligned(found: pa.Table, keys: Keys) -> tuple[pa.Table, Integers]:
    """Return the groups that are among the keys, and at which key each is."""
    names = [f"by{i}" for i in range(len(keys.columns))]
    for i, kind in enumerate(keys.kinds.values()):
        if pa.types.is_uint64(found[names[i]].type):  # keys are of 63 bits
            found = found.filter(pc.less_equal(found[names[i]], pa.scalar(2**63 - 1, pa.uint64())))
        found = found.set_column(found.column_names.index(names[i]), names[i], found[names[i]].cast(TYPES[kind]))
    wanted = keys.table.rename_columns(names).append_column("at", pa.array(np.arange(len(keys))))
    joined = found.join(wanted, names, join_type="inner")
    return joined, joined["at"].to_numpy()


def _scattered(column: pa.ChunkedArray, at: Integers, size: int) -> Integers:
    """Return whole numbers at their keys, 0 where there is none."""
    numbers = as_integers(column)
    out = np.zeros(size, numbers.dtype)
    out[at] = numbers
    return out


def _joined(found: pa.Table, i: int, at: Integers, size: int) -> Integers:
    if f"sum{i}" in found.column_names:
        return _scattered(found[f"sum{i}"], at, size)
    high, low = (_scattered(found[f"{limb}{i}"], at, size) for limb in ("high", "low"))
    if max(np.abs(high).max(initial=0), 1) < 2**30 and low.max(initial=0) < 2**62:
        return high * 2**32 + low
    return narrowed(high.astype(object) * 2**32 + low.astype(object))


def as_integers(column: pa.ChunkedArray) -> Integers:
    """Return integers, or the unscaled integers of decimals, as int64 where they fit and Python integers elsewhere."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], column.type)
    if not pa.types.is_decimal(array.type):
        return array.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    if array.null_count:
        array = array.fill_null(0)
    if not pa.types.is_decimal128(array.type):
        array = array.cast(pa.decimal128(38, array.type.scale))
    halves = np.frombuffer(array.buffers()[1], np.int64)[2 * array.offset : 2 * (array.offset + len(array))]
    low, high = halves[0::2], halves[1::2]
    if (high == low >> 63).all():
        return low.copy()
    return high.astype(object) * 2**64 + low.view(np.uint64).astype(object)


def narrowed(numbers: Integers) -> Integers:
    """Return Python integers as int64 where they all fit."""
    fits = all(-(2**63) <= number < 2**63 for number in numbers)
    return numbers.astype(np.int64) if fits else numbers


def _diagnosis(table: ir.Table, column: Column, keys: Keys | None) -> str:
    """Say why records of a column could not be counted, without saying which or how many."""
    if keys is not None:
        table = table.semi_join(ibis.memtable(keys.table), list(keys.columns))
    value = table[column.name]
    facts = {"missing": value.isnull().any()}
    if value.type().is_floating():
        largest = ibis.literal(np.finfo(float).max, "float64")
        facts |= {"nan": value.isnan().any(), "infinite": (~value.isnan() & (value.abs() > largest)).any()}
    if column.negatives == "error":
        facts["negative"] = (value < 0).any()
    with engine_errors("the engine could not look at the table", quote=False):
        found: dict[str, Any] = table.aggregate(**facts).to_pyarrow().to_pylist()[0]
    reasons = []
    if found["missing"] and column.nulls == "error":
        reasons.append('missing values (pass nulls="zero" to count them as 0)')
    if found.get("nan"):
        reasons.append("values that are NaN")
    if found.get("infinite"):
        reasons.append("infinite values")
    if found.get("negative"):
        reasons.append(
            'negative values, which a transformation cannot take (pass negatives="zero" to count them as 0, '
            "or choose an additive mechanism)"
        )
    if not reasons:
        reasons.append(f"values too large to be counted in units of {column.unit} (give a larger unit)")
    return f"column {column.name!r} has {'; and '.join(reasons)}, or filter the records with where="
