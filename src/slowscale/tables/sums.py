"""Exact sums by public key, in one scan.

Floating-point sums depend on the order of the records, so a record could change them by more than its own value, and
two engines would disagree. Here every record becomes a whole number of grains, and whole numbers are summed. Integers
and decimals count in their own grain (1, 0.01…). A float counts in grains of 2⁻³⁰·U, where U is the largest power of
two that is at most the unit. It is cut towards zero, so that a record's influence is never more than its value. Scaling
by a power of two and cutting are exact in IEEE arithmetic, so every engine counts the same. Rounding to the unit
happens once, when the noise is in.

Labels are grouped on the engine by their exact bytes or values, records without a label are dropped there, and groups
that belong to one key are added up.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from operator import and_
from typing import Any

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.types as ir
import numpy as np
import pyarrow as pa

from slowscale.arrays import key_positions, to_arrow, to_numpy
from slowscale.errors import DataError, EngineError, ParameterError, ParameterTypeError
from slowscale.tables.dialects import forced
from slowscale.tables.engines import Engine, engine_errors, engine_of, fetch, grouped
from slowscale.tables.keys import Keys, label_kind

Integers = Any  # an array of int64, or of Python integers where those do not fit
Run = Callable[[ir.Table], pa.Table]

# A float counts in 2⁻³⁰ of a power of two of units, and may have up to 2⁵⁵ of those. So a hundred million records of a
# cell lose a tenth of a unit at most, and a record of up to 8·10⁹ units is counted in one number of 64 bits.
FINER_BITS, MOST_BITS = 30, 55
FINER = 2**FINER_BITS
# Digits after the point kept of a decimal that has no fixed number of them, and of a number written as text.
DIGITS = 12
NUMBER = rf"^[ \t]*[+-]?([0-9]{{1,18}}(\.[0-9]{{0,{DIGITS}}}0*)?|\.[0-9]{{1,{DIGITS}}}0*)[ \t]*$"
BELOW_ZERO = "-.*[1-9]"
EXACT_SUM = dt.Decimal(38, 0)


@dataclass(frozen=True)
class Column:
    """A column to be summed, and what to do with records that have no value or a negative one."""

    name: str
    unit: Fraction
    nulls: str = "error"
    negatives: str | None = None  # None: welcome
    text: bool = False  # whether a column of text holds numbers, to be read as exact decimals


@dataclass(frozen=True)
class Counted:
    """How the engine counts a column, record by record.

    Attributes
    ----------
    value
        What a record counts as.
    limbs
        The same as whole numbers of grains: expressions, each with its weight.
    grain
        The value of one grain.
    exact
        Whether every value is a whole number of grains; a float is cut to one.
    valid
        NULL where a record cannot be counted.
    """

    value: ir.Value
    limbs: tuple[tuple[ir.Value, int], ...]
    grain: Fraction
    exact: bool
    valid: ir.Value


@dataclass(frozen=True)
class Sum:
    """The exact sums of a column by key: (counts + rest/parts)·grain, with 0 <= rest < parts. Confidential."""

    counts: Integers
    grain: Fraction
    rest: Integers | None = None
    parts: int = 1

    def floats(self) -> Any:
        """Return the sums as floats."""
        counts = self.counts.astype(float)
        return (counts if self.rest is None else counts + self.rest.astype(float) / self.parts) * float(self.grain)

    def __repr__(self) -> str:
        return "<exact sums: confidential>"


@dataclass(frozen=True)
class ExactSums:
    """Per key: how many records, and the sum of each column. Confidential."""

    rows: Integers
    sums: dict[str, Sum]

    def __repr__(self) -> str:
        return "<exact sums: confidential>"


def counted(table: ir.Table, column: Column, careful: bool = True) -> Counted:
    """Return the expressions that count a column, record by record.

    Unless `careful`, a float that is NaN, infinite or too large for 64 bits makes the query fail; that is faster.
    """
    engine, raw = engine_of(table), table[column.name]
    value, missing = _number(engine, column, raw)
    if raw.type().is_string():
        return _counted_text(engine, column, raw, value, missing)
    stored = engine.stored(raw)
    checks = [] if stored is None else [stored | missing]
    if column.nulls == "zero":
        value = ibis.cases((missing, ibis.literal(0).cast(value.type())), else_=value)
    if column.negatives == "zero":
        value = ibis.cases((value < 0, ibis.literal(0).cast(value.type())), else_=value)
    elif column.negatives == "error":
        checks.append(value >= 0)
    if not value.type().is_floating():
        if value.type().is_decimal():
            scale = value.type().scale
            fits = engine.countable(value, 20 if scale is None else scale)
            checks += [] if fits is None else [fits]
        value = _checked(value, checks)
        limbs, grain = _exact_limbs(engine, value)
        return Counted(value, limbs, grain, exact=True, valid=limbs[0][0])
    exponent = _exponent(column)
    if careful:
        most = _double(2.0 ** (MOST_BITS + exponent))
        checks.append((value < most) & (value > -most))  # not so for NaN
    value = engine.without_underflow(_checked(value, checks), 2.0 ** (exponent - FINER_BITS))
    limbs = _float_limbs(engine, value, exponent, careful)
    # Without care, a float that cannot be counted has stopped the query.
    valid = limbs[0][0] if careful else value
    return Counted(value, limbs, Fraction(2) ** exponent / FINER, exact=False, valid=valid)


def _counted_text(engine: Engine, column: Column, text: ir.Value, value: ir.Value, missing: ir.Value) -> Counted:
    """Count numbers that are written as text; the limbs of a text that is not a number mean nothing."""
    limbs, readable = engine.text_limbs(text, DIGITS), text.re_search(NUMBER)
    if column.negatives == "zero":
        limbs = tuple(ibis.cases((~text.contains("-"), limb)) for limb in limbs)
        value = ibis.ifelse(value < 0, 0.0, value)
    elif column.negatives == "error":
        readable = readable & ~text.re_search(BELOW_ZERO)
    if column.nulls == "zero":
        readable, value = readable | missing, ibis.ifelse(missing, 0.0, value)
    weighed = tuple(zip(limbs, (10**DIGITS, 1), strict=True))
    return Counted(value, weighed, Fraction(1, 10**DIGITS), exact=True, valid=readable.ifelse(1, None))


def _number(engine: Engine, column: Column, raw: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return a column's numbers, NULL where there is none, and whether the value is missing."""
    dtype = raw.type()
    if dtype.is_string() and column.text:
        return ibis.cases((raw.re_search(NUMBER), raw.try_cast("float64"))), raw.isnull() | (raw.strip() == "")
    if dtype.is_floating() or (dtype.is_decimal() and not engine.has_decimals):
        return forced(raw, dt.float64), raw.isnull()
    if dtype.is_integer() or dtype.is_decimal():
        return raw, raw.isnull()
    hint = "; declare its type where the data is read, with types=" if dtype.is_string() else ""
    raise ParameterTypeError(f"column {column.name!r} must hold numbers to be summed, got {dtype}{hint}")


def _checked(value: ir.Value, checks: Sequence[ir.Value]) -> ir.Value:
    """Return a value, NULL where a check fails."""
    return ibis.cases((reduce(and_, checks), value)) if checks else value


def _exact_limbs(engine: Engine, value: ir.Value) -> tuple[tuple[tuple[ir.Value, int], ...], Fraction]:
    """Return the whole numbers that integers and decimals count as, and their grain."""
    dtype = value.type()
    if dtype.is_decimal():
        digits = DIGITS if dtype.scale is None else dtype.scale
        number = (
            engine.truncated_decimal(value, digits) if dtype.scale is None else forced(value, dt.Decimal(38, digits))
        )
        return ((number, 1),), Fraction(1, 10**digits)
    if engine.wide_sums:
        return ((value, 1),), Fraction(1)
    number = forced(value, dt.int64)
    return ((number >> 32, 2**32), (number & (2**32 - 1), 1)), Fraction(1)


def _float_limbs(engine: Engine, value: ir.Value, exponent: int, careful: bool) -> tuple[tuple[ir.Value, int], ...]:
    """Return the whole numbers of grains that floats count as; 2**exponent is U, the unit's power of two."""
    if not careful:
        return ((engine.truncated(value * _double(2.0 ** (FINER_BITS - exponent)), careful), 1),)
    # Each limb is what is left by the ones before it; all of these products and differences are exact. Where sums have
    # 64 bits only, limbs have 32, so that two billion records of one key do not overflow.
    bits = (0, FINER_BITS) if engine.wide_sums else (-24, 8, FINER_BITS)
    limbs, rest = [], value * _double(2.0**-exponent)
    for place in bits:
        number = engine.truncated(rest * _double(2.0**place), careful)
        limbs.append((number, 2 ** (FINER_BITS - place)))
        rest = rest - forced(number, dt.float64) * _double(2.0**-place)
    return tuple(limbs)


def _exponent(column: Column) -> int:
    """Return the exponent of the largest power of two that is at most the unit."""
    unit = column.unit
    exponent = unit.numerator.bit_length() - unit.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > unit
    if not -900 < exponent < 900:
        raise ParameterError(f"unit of the float column {column.name!r} is too fine or too coarse: {unit}")
    return exponent


def _double(number: float) -> Any:
    return ibis.literal(float(number), "float64")


def exact_sums(
    table: ir.Table,
    columns: Sequence[Column],
    keys: Keys | None,
    run: Run = fetch,
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
    careful = not engine_of(table).strict_casts
    try:
        return _exact_sums(table, columns, keys, run, protect, careful)
    except EngineError:
        # A float that needs more than 64 bits, or cannot be counted, perhaps of a record that has none of the keys.
        if careful or not any(table[column.name].type().is_floating() for column in columns):
            raise
        return _exact_sums(table, columns, keys, run, protect, careful=True)


def _exact_sums(
    table: ir.Table, columns: Sequence[Column], keys: Keys | None, run: Run, protect: str | None, careful: bool
) -> ExactSums:
    kinds = keys.kinds if keys is not None else {}
    table = _labelled(table, kinds)
    numbers = [counted(table, column, careful) for column in columns]
    measures = {"rows": table.count()}
    if protect is not None:
        measures["owned"] = table[protect].count()
    for i, number in enumerate(numbers):
        measures[f"valid{i}"] = number.valid.count()
        for j, (limb, _) in enumerate(number.limbs):
            measures[f"sum{i}_{j}"] = _sum(engine_of(table), limb)
    found, at = _by_key(table, measures, keys, run, "the engine could not sum the table")
    size = len(keys) if keys is not None else 1
    rows = _accumulated(as_integers(found["rows"]), at, size)
    if protect is not None and (_accumulated(as_integers(found["owned"]), at, size) != rows).any():
        raise DataError(
            f"column {protect!r}, which says whom to protect, has missing values; fill them in, or leave the records "
            "out with where="
        )
    sums = {}
    for i, (column, number) in enumerate(zip(columns, numbers, strict=True)):
        if (_accumulated(as_integers(found[f"valid{i}"]), at, size) != rows).any():
            raise DataError(_diagnosis(table, column, keys, run))
        for j in range(len(number.limbs)):
            if found[f"sum{i}_{j}"].null_count and rows.any() and not column.text:
                raise DataError(f"the sum of column {column.name!r} has more digits than the engine can hold")
        limbs = [(found[f"sum{i}_{j}"], weight) for j, (_, weight) in enumerate(number.limbs)]
        sums[column.name] = _joined(limbs, at, size, number)
    return ExactSums(rows, sums)


def _sum(engine: Engine, limb: ir.Value) -> ir.Value:
    if limb.type().is_decimal():
        return forced(limb.sum(), dt.Decimal(38, limb.type().scale))
    return forced(limb.sum(), EXACT_SUM) if engine.wide_sums else limb.sum()


def _labelled(table: ir.Table, kinds: Mapping[str, str]) -> ir.Table:
    """Return the records that have labels; those without any are dropped on the engine."""
    return table.filter([table[name].notnull() for name in kinds]) if kinds else table


def check_labels(table: ir.Table, keys: Keys) -> None:
    """Raise unless the table has the key columns, with labels of the same type."""
    for name, kind in keys.kinds.items():
        if name not in table.columns:
            raise ParameterError(f"by: there is no column {name!r}; there are {', '.join(table.columns)}")
        have = label_kind(table[name].type())
        if have is None:
            hint = ': derive={"day": "cast(' + name + ' as date)"}' if table[name].type().is_timestamp() else ""
            raise ParameterTypeError(f"by: column {name!r} cannot label groups, it holds {table[name].type()}{hint}")
        if have != kind:
            raise ParameterTypeError(
                f"by: column {name!r} holds {have}, but the keys hold {kind}; give keys of the column's type, or "
                "declare the column's type where the data is read (types=)"
            )


def _by_key(
    table: ir.Table, measures: Mapping[str, ir.Value], keys: Keys | None, run: Run, what: str
) -> tuple[pa.Table, Integers]:
    """Return measures by group, for the groups that are among the keys, and at which key each is."""
    query = grouped(table, keys.kinds if keys is not None else {}, measures)
    with engine_errors(what, quote=False):
        found = run(query)
    if keys is None:
        return found, np.zeros(found.num_rows, np.int64)
    engine = engine_of(table)
    kinds = keys.kinds.items()
    wanted = {f"by{i}": engine.key(keys.table[column], kind) for i, (column, kind) in enumerate(kinds)}
    for name in wanted:
        labels = found[name].cast(wanted[name].type)
        found = found.set_column(found.column_names.index(name), name, labels)
    at = key_positions([found[name] for name in wanted], list(wanted.values()))
    rows = np.flatnonzero(at >= 0)
    return found.take(to_arrow(rows)), at[rows]


def _accumulated(numbers: Integers, at: Integers, size: int) -> Integers:
    """Return whole numbers added up at their keys, 0 where there is none."""
    if len(at) and np.bincount(at).max() > 1:  # several groups of one key: their sum may need more bits
        numbers = numbers.astype(object)
    total = np.zeros(size, numbers.dtype)
    np.add.at(total, at, numbers)
    return narrowed(total) if total.dtype == object else total


def _joined(limbs: Sequence[tuple[pa.ChunkedArray, int]], at: Integers, size: int, number: Counted) -> Sum:
    """Return the sums of a column, from those of its limbs."""
    if number.exact:
        return Sum(_total(limbs, at, size), number.grain)
    halves = _halves(limbs[0][0]) if len(limbs) == 1 else None
    if halves is not None and np.abs(halves[0]).max(initial=0) < 2 ** (62 - 64 + FINER_BITS):
        high, low = halves
        counts = (high << (64 - FINER_BITS)) + (low >> np.uint64(FINER_BITS)).astype(np.int64)
        rest = (low & np.uint64(FINER - 1)).astype(np.int64)
        counts, rest = _accumulated(counts, at, size), _accumulated(rest, at, size)
        counts, rest = counts + (rest >> FINER_BITS), rest & (FINER - 1)
    else:
        total = _total(limbs, at, size).astype(object)
        counts, rest = narrowed(total >> FINER_BITS), (total & (FINER - 1)).astype(np.int64)
    return Sum(counts, number.grain * FINER, rest, FINER)


def _total(limbs: Sequence[tuple[pa.ChunkedArray, int]], at: Integers, size: int) -> Integers:
    parts = [_accumulated(as_integers(column), at, size) for column, _ in limbs]
    if len(limbs) == 1:
        return parts[0]
    pairs = zip(parts, limbs, strict=True)
    return narrowed(np.asarray(sum(part.astype(object) * weight for part, (_, weight) in pairs), object))


def _halves(column: pa.ChunkedArray) -> tuple[Any, Any]:
    """Return the upper (signed) and lower (unsigned) 64 bits of integers or of decimals' unscaled integers."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], column.type)
    array = array.fill_null(0) if array.null_count else array
    if not pa.types.is_decimal(array.type):
        low = to_numpy(array).astype(np.int64)
        return low >> 63, low.view(np.uint64)
    if not pa.types.is_decimal128(array.type):
        array = array.cast(pa.decimal128(38, array.type.scale))
    halves = np.frombuffer(array.buffers()[1], np.int64)[2 * array.offset : 2 * (array.offset + len(array))]
    return halves[1::2], halves[0::2].view(np.uint64)


def as_integers(column: pa.ChunkedArray) -> Integers:
    """Return integers, or the unscaled integers of decimals, as int64 where they fit and Python integers elsewhere."""
    high, low = _halves(column)
    signed = low.astype(np.int64)
    if (high == signed >> 63).all():
        return signed
    return high.astype(object) * 2**64 + low.astype(object)


def narrowed(numbers: Integers) -> Integers:
    """Return Python integers as int64 where they all fit."""
    fits = all(-(2**63) <= number < 2**63 for number in numbers)
    return numbers.astype(np.int64) if fits else numbers


def _diagnosis(table: ir.Table, column: Column, keys: Keys | None, run: Run) -> str:
    """Say why records of a column could not be counted, without saying which or how many."""
    engine, raw = engine_of(table), table[column.name]
    value, missing = _number(engine, column, raw)
    facts = {"missing": missing} if column.nulls == "error" else {}
    facts["unreadable"] = value.isnull() & ~missing
    if (stored := engine.stored(raw)) is not None:
        facts["unreadable"] = ~stored & ~missing
    if value.type().is_floating():
        large = value.abs() > ibis.literal(np.finfo(float).max, "float64")
        facts |= {"nan": value.isnan(), "infinite": ~value.isnan() & large} if engine.has_nan else {"infinite": large}
    if column.negatives == "error":
        facts["negative"] = value < 0
    measures = {name: fact.ifelse(1, 0).sum() for name, fact in facts.items()}
    found, _ = _by_key(table, measures, keys, run, "the engine could not look at the table")
    seen = {name for name in facts if any(found[name].to_pylist())}
    words = {
        "missing": 'missing values (pass nulls="zero" to count them as 0)',
        "unreadable": "values that are not numbers",
        "nan": "values that are NaN",
        "infinite": "infinite values",
        "negative": 'negative values, which a transformation cannot take (pass negatives="zero" to count them as 0, or '
        "choose an additive mechanism)",
    }
    reasons = [text for name, text in words.items() if name in seen]
    if not reasons:
        reasons = [f"values too large to be counted in units of {column.unit} (give a larger unit)"]
    return f"column {column.name!r} has {'; and '.join(reasons)}; correct these records, or leave them out with where="
