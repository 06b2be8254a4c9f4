"""Exact sums and ranks by public key, each in one scan.

Floating-point sums depend on the order of the records, so a record could change a sum by more than its own value, and
two engines would disagree. Therefore the value of every record is converted to a whole number of grains, and the whole
numbers are summed. Integers and decimals have their own grain (1, 0.01…). The grain of a float is 2⁻³⁰·U, where U is
the largest power of two that is at most the unit. A float is truncated towards zero, so that the influence of a record
is never more than its value. Scaling by a power of two and truncation are exact in IEEE arithmetic, so all engines
agree. Rounding to the unit happens once, after the noise is added.

The engine groups labels by their exact bytes or values and drops records without a label. Groups that belong to the
same key are added here.

Ranks count the records that are smaller than each of several public sizes, in one scan. The size of a record is the
absolute value of its number. The engine finds its cell by a binary search, so it counts in exactly one cell, whatever
the other records are. Integers and decimals are compared exactly, with the size rounded up to their grain; floats are
compared with the nearest float. Comparisons do not round, so all engines agree.

If a column has a largest value, the scan that sums it compares every record that is summed with it, in whole grains. If
entities are protected, it first adds up the records of each entity in each cell, and compares these totals. The engine
returns whether any is larger, and no value.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import accumulate
from operator import add, and_, mul
from typing import Any, TypeVar

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.types as ir
import numpy as np
import pyarrow as pa

from slowscale.accounting.record import COUNT
from slowscale.core.arrays import key_positions, to_arrow, to_numpy
from slowscale.core.data_errors import Name
from slowscale.core.errors import DataError, EngineError, ParameterError, ParameterTypeError, Shown
from slowscale.data.connections import engine_errors
from slowscale.data.conversion import listed_columns, mismatch_remedy
from slowscale.data.dialects import forced_cast, is_null
from slowscale.data.engines import TEXT, Engine, engine_of, fetch, grouped
from slowscale.data.keys import Keys, label_kind

Integers = Any  # an array of int64, or of Python integers if some do not fit
Run = Callable[[ir.Table], pa.Table]
Result = TypeVar("Result")
# Whether a record has at least a size; None if no number of the column's type has it.
Test = Callable[[Fraction], ir.Value | None]
# The grain of a float is 2⁻³⁰·U, and its absolute value must be below 2⁵⁵·U. Truncation then changes the sum of a
# hundred million records by at most a tenth of a unit, and a record of up to 8·10⁹ units fits in one 64-bit number of
# grains.
GRAIN_BITS, MOST_FLOAT_BITS = 30, 55
GRAINS_PER_POWER = 2**GRAIN_BITS
# Digits after the point that are kept of a decimal without a fixed scale, and of a number in a text.
DECIMAL_PLACES = 12
NUMBER_TEXT = rf"^[ \t]*[+-]?([0-9]{{1,18}}(\.[0-9]{{0,{DECIMAL_PLACES}}}0*)?|\.[0-9]{{1,{DECIMAL_PLACES}}}0*)[ \t]*$"
BELOW_ZERO = "-.*[1-9]"
EXACT_SUM = dt.Decimal(38, 0)


@dataclass(frozen=True)
class Column:
    """A column to be summed or ranked, and the treatment of missing and negative values."""

    name: str
    unit: Fraction
    nulls: str = "error"
    negatives: str | None = None  # None: negative values are allowed
    text: bool = False  # whether text in the column is read as exact decimals
    use: str = "summed"  # or "ranked": what errors say
    largest: Fraction | None = None  # the largest size of a value, or of the total of an entity in a cell


@dataclass(frozen=True)
class Counted:
    """The expressions with which the engine counts a column, record by record.

    Attributes
    ----------
    value
        The value that is counted for a record.
    limbs
        The same value in grains: whole numbers, each with its weight.
    grain
        The value of one grain.
    exact
        Whether every value is a whole number of grains; floats are truncated.
    valid
        NULL for a record that cannot be counted.
    """

    value: ir.Value
    limbs: tuple[tuple[ir.Value, int], ...]
    grain: Fraction
    exact: bool
    valid: ir.Value


@dataclass(frozen=True)
class Sum:
    """The exact sums of a column by key: (counts + rest/parts)·grain with 0 <= rest < parts. Confidential."""

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
    """The number of records, and the sum of each column, by key. Confidential."""

    rows: Integers
    sums: dict[str, Sum]

    @property
    def empty(self) -> bool:
        """Whether no record has any of the keys."""
        return not self.rows.any()

    def __repr__(self) -> str:
        return "<exact sums: confidential>"


def counted(table: ir.Table, column: Column, null_if_uncountable: bool = True) -> Counted:
    """Return the expressions that count a column, record by record.

    A float that is NaN, infinite or too large for 64 bits cannot be counted. It becomes NULL if `null_if_uncountable`;
    otherwise it makes the query fail, which is faster.
    """
    engine, raw = engine_of(table), table[column.name]
    value, missing = raw_number(table, column)
    if raw.type().is_string():
        return _counted_text(engine, column, raw, value, missing)
    value, checks = _with_nulls_treated(column, value, missing), []
    if column.negatives == "zero":
        value = ibis.cases((value < 0, ibis.literal(0).cast(value.type())), else_=value)
    elif column.negatives == "error":
        checks.append(value >= 0)
    if not value.type().is_floating():
        fits = _fits_38_digits(engine, value)
        checks += [] if fits is None else [fits]
        value = _null_unless(value, checks)
        limbs, grain = _exact_limbs(engine, value)
        return Counted(value, limbs, grain, exact=True, valid=limbs[0][0])
    exponent = _unit_exponent(column)
    if null_if_uncountable:
        most = _float_literal(2.0 ** (MOST_FLOAT_BITS + exponent))
        checks.append((value < most) & (value > -most))  # false for NaN
    value = engine.without_underflow(_null_unless(value, checks), 2.0 ** (exponent - GRAIN_BITS))
    limbs = _float_limbs(engine, value, exponent, null_if_uncountable)
    # Otherwise a float that cannot be counted stops the query.
    valid = limbs[0][0] if null_if_uncountable else value
    return Counted(value, limbs, Fraction(2) ** exponent / GRAINS_PER_POWER, exact=False, valid=valid)


def _with_nulls_treated(column: Column, value: ir.Value, missing: ir.Value) -> ir.Value:
    """Return the number of each record, with missing values treated."""
    if column.nulls == "zero":
        return ibis.cases((missing, ibis.literal(0).cast(value.type())), else_=value)
    return value


def finite_floats(table: ir.Table, column: Column) -> tuple[ir.Value, ir.Value]:
    """Return the values of a column of floats, and whether each is there and finite, however large or small it is."""
    value = _with_nulls_treated(column, *raw_number(table, column))
    most = _float_literal(np.finfo(float).max)
    finite = (value <= most) & (value >= -most)  # false for NaN
    return value, finite & ~is_null(value)


def _counted_text(engine: Engine, column: Column, text: ir.Value, value: ir.Value, missing: ir.Value) -> Counted:
    """Count numbers in a column of text. The limbs are meaningful only for text that is a number."""
    limbs, readable = engine.text_limbs(text, DECIMAL_PLACES), text.re_search(NUMBER_TEXT)
    if column.negatives == "zero":
        limbs = tuple(ibis.cases((~text.contains("-"), limb)) for limb in limbs)
        value = ibis.ifelse(value < 0, 0.0, value)
    elif column.negatives == "error":
        readable, value = readable & ~text.re_search(BELOW_ZERO), ibis.cases((value >= 0, value))
    if column.nulls == "zero":
        readable, value = readable | missing, ibis.ifelse(missing, 0.0, value)
    weighed = tuple(zip(limbs, (10**DECIMAL_PLACES, 1), strict=True))
    return Counted(value, weighed, Fraction(1, 10**DECIMAL_PLACES), exact=True, valid=readable.ifelse(1, None))


def raw_number(table: ir.Table, column: Column) -> tuple[ir.Value, ir.Value]:
    """Return the number of each record as it is stored, NULL if there is none, and whether the value is missing."""
    raw = table[column.name]
    dtype = raw.type()
    if dtype.is_string() and column.text:
        return ibis.cases((raw.re_search(NUMBER_TEXT), raw.try_cast("float64"))), raw.isnull() | (raw.strip() == "")
    if dtype.is_floating():
        return forced_cast(raw, dt.float64), is_null(raw)
    if dtype.is_integer() or dtype.is_decimal():
        return raw, raw.isnull()
    hint = "declare its type in types, or convert it in derive" if dtype.is_string() else "choose another column"
    found = dtype.raw_type if dtype.is_unknown() else dtype
    raise ParameterTypeError(
        f"column {column.name!r}",
        f"must hold numbers to be {column.use}",
        code="not-numbers",
        given=Shown(found),
        remedy=hint,
    )


def _fits_38_digits(engine: Engine, value: ir.Value) -> ir.Value | None:
    """Return whether a decimal has at most 38 digits; None if that is always so, or if the number is not a decimal."""
    if not value.type().is_decimal():
        return None
    scale = value.type().scale
    return engine.fits_38_digits(value, 20 if scale is None else scale)


def _null_unless(value: ir.Value, checks: Sequence[ir.Value]) -> ir.Value:
    """Return a value, or NULL if a check fails."""
    return ibis.cases((reduce(and_, checks), value)) if checks else value


def _exact_limbs(engine: Engine, value: ir.Value) -> tuple[tuple[tuple[ir.Value, int], ...], Fraction]:
    """Return integers and decimals as whole numbers of grains, and the grain."""
    dtype = value.type()
    if dtype.is_decimal():
        digits = DECIMAL_PLACES if dtype.scale is None else dtype.scale
        number = (
            engine.truncated_decimal(value, digits)
            if dtype.scale is None
            else forced_cast(value, dt.Decimal(38, digits))
        )
        return ((number, 1),), Fraction(1, 10**digits)
    if engine.wide_sums:
        return ((value, 1),), Fraction(1)
    number = forced_cast(value, dt.int64)
    return ((number >> 32, 2**32), (number & (2**32 - 1), 1)), Fraction(1)


def _float_limbs(
    engine: Engine, value: ir.Value, exponent: int, null_if_uncountable: bool
) -> tuple[tuple[ir.Value, int], ...]:
    """Return floats as whole numbers of grains; 2**exponent is U, the power of two of the unit."""
    if not null_if_uncountable:
        return ((engine.truncated(value * _float_literal(2.0 ** (GRAIN_BITS - exponent)), null_if_uncountable), 1),)
    # Each limb holds what the limbs before it leave over; all products and differences are exact. If sums have only 64
    # bits, limbs have 32, so that the sum of two billion records of one key does not overflow.
    bits = (0, GRAIN_BITS) if engine.wide_sums else (-24, 8, GRAIN_BITS)
    limbs, rest = [], value * _float_literal(2.0**-exponent)
    for place in bits:
        number = engine.truncated(rest * _float_literal(2.0**place), null_if_uncountable)
        limbs.append((number, 2 ** (GRAIN_BITS - place)))
        rest = rest - forced_cast(number, dt.float64) * _float_literal(2.0**-place)
    return tuple(limbs)


def _unit_exponent(column: Column) -> int:
    """Return the exponent of the largest power of two that is at most the unit."""
    unit = column.unit
    exponent = unit.numerator.bit_length() - unit.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > unit
    if not -900 < exponent < 900:
        step = "least size of the grid" if column.use == "ranked" else "unit"
        raise ParameterError(
            f"{step} of the float column {column.name!r}",
            allowed="between 2⁻⁹⁰⁰ and 2⁹⁰⁰",
            given=unit,
            remedy="choose one near 1",
        )
    return exponent


def _float_literal(number: float) -> Any:
    return ibis.literal(float(number), "float64")


def exact_sums(
    table: ir.Table,
    columns: Sequence[Column],
    keys: Keys | None,
    run: Run = fetch,
    protect: str | None = None,
    most_records: Fraction | None = None,
) -> ExactSums:
    """Sum columns by key in one scan of the table.

    Parameters
    ----------
    table
        The records.
    columns
        The columns to sum.
    keys
        The public keys, or None for the total of all records.
    run
        The function that runs the query, for instance with a progress bar.
    protect
        The column that identifies the entity of a record; it must not have missing values.
    most_records
        The largest number of records of an entity in a cell, or None if there is no bound.
    """
    if keys is not None:
        check_labels(table, keys)

    def read(query: SumsQuery) -> ExactSums:
        found, at = _among_keys(*_run_by_key(query.query, keys, run, "could not sum the table"))
        query.check(lambda failed: failed(found), lambda column: explain_uncountable(table, column, keys, run))
        return query.collected(found, at, len(keys) if keys is not None else 1)

    return with_uncountable_floats(table, columns, keys, read, protect, most_records)


def with_uncountable_floats(
    table: ir.Table,
    columns: Sequence[Column],
    keys: Keys | None,
    read: "Callable[[SumsQuery], Result]",
    protect: str | None = None,
    most_records: Fraction | None = None,
) -> "Result":
    """Return what `read` makes of the query that sums columns: in the fast form first, if the engine has one.

    In the fast form the query fails if some float needs more than 64 bits or cannot be counted, perhaps in a record
    that has none of the keys. The second form makes it NULL.
    """
    null_if_uncountable = not engine_of(table).strict_casts
    try:
        return read(SumsQuery.of(table, columns, keys, protect, most_records, null_if_uncountable))
    except EngineError:
        if null_if_uncountable or not any(table[column.name].type().is_floating() for column in columns):
            raise
        return read(SumsQuery.of(table, columns, keys, protect, most_records, null_if_uncountable=True))


@dataclass(frozen=True)
class SumsQuery:
    """The query that sums columns by key, the checks of its groups, and how the sums are made from them.

    The groups have the labels by0, by1…, the number of records `rows`, and for each column the number of records that
    can be counted `valid0`… and the sums of its limbs `sum0_0`…. Groups that are no keys are to be left out before.

    Attributes
    ----------
    table, columns, keys, protect
        The records, the columns to sum, the public keys, and the column that identifies the entity of a record.
    numbers
        How each column is counted.
    query
        The query.
    """

    table: ir.Table
    columns: Sequence[Column]
    keys: Keys | None
    protect: str | None
    numbers: Sequence[Counted]
    query: ir.Table

    @staticmethod
    def of(
        table: ir.Table,
        columns: Sequence[Column],
        keys: Keys | None,
        protect: str | None,
        most_records: Fraction | None,
        null_if_uncountable: bool,
    ) -> "SumsQuery":
        """Return the query that sums columns by key in one scan of the table."""
        whole, kinds = table, keys.kinds if keys is not None else {}
        table = table.filter([table[name].notnull() for name in kinds]) if kinds else table  # with all labels
        numbers = [counted(table, column, null_if_uncountable) for column in columns]
        measures = {"rows": table.count()}
        if protect is not None:
            measures["owned"] = table[protect].count()
        for i, number in enumerate(numbers):
            measures[f"valid{i}"] = number.valid.count()
            for j, (limb, _) in enumerate(number.limbs):
                measures[f"sum{i}_{j}"] = sum_of_limb(engine_of(table), limb)
        if protect is not None and (most_records is not None or any(column.largest is not None for column in columns)):
            query = _by_entity(table, kinds, measures, protect, dict(zip(columns, numbers, strict=True)), most_records)
        else:
            for i, (column, number) in enumerate(zip(columns, numbers, strict=True)):
                measures |= _larger(f"larger{i}", column, number, _size_test(table[column.name].type(), number))
            query = grouped(table, kinds, measures)
        return SumsQuery(whole, columns, keys, protect, numbers, query)

    def check(self, fails: "Callable[[Failed], bool]", explain: Callable[[Column], DataError]) -> None:
        """Raise unless all records of the groups can be summed.

        Parameters
        ----------
        fails
            Tells whether a test, of which there is one for each kind of failure, holds for any group.
        explain
            Returns the error for a column with records that cannot be counted.
        """
        if self.protect is not None and fails(Failed("owned", differs=True)):
            raise DataError("no-entity", column=Name(self.protect))
        for i, (column, number) in enumerate(zip(self.columns, self.numbers, strict=True)):
            if fails(Failed(f"valid{i}", differs=True)):
                raise explain(column)
            for j in range(0 if column.text else len(number.limbs)):
                if fails(Failed(f"sum{i}_{j}", missing=True)):
                    raise DataError("precision", column=Name(column.name))
        # Every record can be counted, so that every one was compared.
        for measure, name in {
            "larger": COUNT,
            **{f"larger{i}": one.name for i, one in enumerate(self.columns)},
        }.items():
            if measure in self.query.columns and fails(Failed(measure)):
                what = "values" if self.protect is None else "totals" if measure != "larger" else "numbers of records"
                whose = "" if self.protect is None else f" of one {self.protect} in a cell"
                raise DataError("above-largest", column=Name(name), what=Name(what + whose))

    def collected(self, found: pa.Table, at: Integers, size: int) -> ExactSums:
        """Return the exact sums of some keys from their groups, which have passed the checks; `at` has their places."""
        sums = {}
        for i, (column, number) in enumerate(zip(self.columns, self.numbers, strict=True)):
            limbs = [(found[f"sum{i}_{j}"], weight) for j, (_, weight) in enumerate(number.limbs)]
            sums[column.name] = _join_limbs(limbs, at, size, number)
        return ExactSums(accumulated(as_integers(found["rows"]), at, size), sums)


@dataclass(frozen=True)
class Failed:
    """A test of a group: whether a measure is not the number of its records, or is missing, or is not 0."""

    measure: str
    differs: bool = False
    missing: bool = False

    def __call__(self, found: pa.Table) -> bool:
        """Return whether the test holds for any of these groups."""
        column, rows = found[self.measure], as_integers(found["rows"])
        if self.missing:
            return bool(column.null_count and rows.any())
        numbers = as_integers(column)
        return bool((numbers != rows).any() if self.differs else numbers.any())

    @property
    def sql(self) -> str:
        """The same test as a condition of DuckDB."""
        if self.missing:
            return f"{self.measure} IS NULL AND rows > 0"
        return f"coalesce({self.measure}, 0) <> {'rows' if self.differs else '0'}"


def _by_entity(
    table: ir.Table,
    kinds: Mapping[str, str],
    measures: Mapping[str, ir.Value],
    protect: str,
    columns: Mapping[Column, Counted],
    most_records: Fraction | None,
) -> ir.Table:
    """Return the query that sums by key, from the totals of each entity in each cell, which it compares with bounds."""
    engine, owner = engine_of(table), table[protect]
    owner = engine.label(owner, TEXT) if owner.type().is_string() else owner  # only identical texts are equal
    each = grouped(table, kinds, measures, {"owner": owner})
    found = {name: forced_cast(each[name].sum(), dt.int64) for name in measures if not name.startswith("sum")}
    for i, (column, number) in enumerate(columns.items()):
        parts = [each[f"sum{i}_{j}"] for j in range(len(number.limbs))]
        found |= {part.get_name(): sum_of_limb(engine, part) for part in parts}
        found |= _larger(f"larger{i}", column, number, _total_test(parts, number))
    if most_records is not None:
        found["larger"] = (each.rows > math.floor(most_records)).ifelse(1, 0).max()
    return each.aggregate(by=[each[f"by{i}"] for i in range(len(kinds))], **found)


def _larger(name: str, column: Column, number: Counted, test: Test) -> dict[str, ir.Value]:
    """Return the measure whether any record or entity is larger than the largest value; none if none can be."""
    if column.largest is None or (larger := test((column.largest // number.grain + 1) * number.grain)) is None:
        return {}
    return {name: larger.ifelse(1, 0).max()}


def _total_test(parts: Sequence[ir.Value], number: Counted) -> Test:
    """Return the test of a total that is given by the sums of its limbs."""
    digits = max(part.type().scale or 0 if part.type().is_decimal() else 0 for part in parts)
    exact = dt.Decimal(38, digits)
    zero = forced_cast(ibis.literal("0"), exact)
    if digits:  # limbs are decimals, or text before and after the point
        total = reduce(add, (ibis.coalesce(forced_cast(part, exact), zero) for part in parts))
        return _decimal_test(forced_cast(total, exact), number.grain)
    weights = [forced_cast(ibis.literal(str(weight)), exact) for _, weight in number.limbs]
    pairs = zip(parts, weights, strict=True)
    total = reduce(add, (forced_cast(forced_cast(part, exact) * weight, exact) for part, weight in pairs))
    in_grains = _decimal_test(forced_cast(total, exact), Fraction(1))
    return lambda size: in_grains(size / number.grain)


def sum_of_limb(engine: Engine, limb: ir.Value) -> ir.Value:
    """Return the exact sum of the limbs of records."""
    if limb.type().is_decimal():
        return forced_cast(limb.sum(), dt.Decimal(38, limb.type().scale))
    return forced_cast(limb.sum(), EXACT_SUM) if engine.wide_sums else limb.sum()


def check_labels(table: ir.Table, keys: Keys) -> None:
    """Raise unless the table has the key columns, with labels of the same type as the keys."""
    for name, kind in keys.kinds.items():
        if name not in table.columns:
            raise ParameterError(
                "by",
                f"names {name!r}, which is not a column",
                code="unknown-column",
                remedy=listed_columns(table.columns, name),
            )
        have = label_kind(table[name].type())
        if have is None:
            raise ParameterTypeError(
                f"by: column {name!r}",
                "must hold text, whole numbers, booleans or dates",
                code="label-type",
                given=Shown(table[name].type()),
                remedy=_label_hint(name, table[name].type()),
            )
        if have != kind:
            raise ParameterTypeError(
                f"by: column {name!r}",
                f"holds {have}, but the keys hold {kind}",
                code="mismatch",
                remedy=mismatch_remedy(have, kind),
            )


def _label_hint(name: str, dtype: dt.DataType) -> str:
    """Return what to do with a column whose type cannot hold labels."""
    quoted = name.replace('"', '""')
    if dtype.is_timestamp():
        return f"""derive the column day as 'cast("{quoted}" as date)', and use day as the key column"""
    if dtype.is_floating() or dtype.is_decimal():
        return (
            f"""if it holds whole numbers, derive the column code as 'cast(round("{quoted}") as bigint)', and """
            "use code as the key column"
        )
    return "use another key column, or derive one from it"


def _by_key(
    table: ir.Table, measures: Mapping[str, ir.Value], keys: Keys | None, run: Run, what: str
) -> tuple[pa.Table, Integers]:
    """Return measures by group for the groups that are among the keys, and the index of the key of each group."""
    return _among_keys(*all_groups(table, measures, keys, run, what))


def _among_keys(found: pa.Table, at: Integers) -> tuple[pa.Table, Integers]:
    rows = np.flatnonzero(at >= 0)
    return (found, at) if len(rows) == len(at) else (found.take(to_arrow(rows)), at[rows])


def all_groups(
    table: ir.Table,
    measures: Mapping[str, ir.Value],
    keys: Keys | None,
    run: Run,
    what: str,
    further: Mapping[str, ir.Value] | None = None,
) -> tuple[pa.Table, Integers]:
    """Return measures by group, and the index of the key of each group: −1 for a group that is not a key.

    Records are grouped by their labels, and by further values.
    """
    return _run_by_key(grouped(table, keys.kinds if keys is not None else {}, measures, further), keys, run, what)


def _run_by_key(query: ir.Table, keys: Keys | None, run: Run, what: str) -> tuple[pa.Table, Integers]:
    """Run a query that groups by the labels of keys; return its rows, and the index of the key of each."""
    with engine_errors("the engine", what, quote=False):
        found = run(query)
    return placed(found, keys, engine_of(query))


def placed(found: pa.Table, keys: Keys | None, engine: Engine) -> tuple[pa.Table, Integers]:
    """Return groups, whose labels are in columns named by0, by1…, and the index of the key of each: −1 for none."""
    if keys is None:
        return found, np.zeros(found.num_rows, np.int64)
    kinds = keys.kinds.items()
    wanted = {f"by{i}": engine.key(keys.table[column], kind) for i, (column, kind) in enumerate(kinds)}
    for name in wanted:
        labels = found[name].cast(wanted[name].type)
        found = found.set_column(found.column_names.index(name), name, labels)
    return found, key_positions([found[name] for name in wanted], list(wanted.values()))


def _has_repeats(at: Integers) -> bool:
    """Return whether several groups belong to one key."""
    return bool(len(at) and np.bincount(at).max() > 1)


def accumulated(numbers: Integers, at: Integers, size: int) -> Integers:
    """Return the sums of numbers by key; 0 for a key without numbers."""
    if numbers.dtype.kind != "f" and _has_repeats(at):  # the sum of several groups of one key may need more bits
        numbers = numbers.astype(object)
    total = np.zeros(size, numbers.dtype)
    np.add.at(total, at, numbers)
    return narrowed(total) if total.dtype == object else total


def _join_limbs(limbs: Sequence[tuple[pa.ChunkedArray, int]], at: Integers, size: int, number: Counted) -> Sum:
    """Return the sums of a column from the sums of its limbs."""
    if number.exact:
        return Sum(_weighted_total(limbs, at, size), number.grain)
    halves = _halves(limbs[0][0]) if len(limbs) == 1 and not _has_repeats(at) else None
    if halves is not None and np.abs(halves[0]).max(initial=0) < 2 ** (62 - 64 + GRAIN_BITS):
        high, low = halves
        counts = (high << (64 - GRAIN_BITS)) + (low >> np.uint64(GRAIN_BITS)).astype(np.int64)
        rest = (low & np.uint64(GRAINS_PER_POWER - 1)).astype(np.int64)
        counts, rest = accumulated(counts, at, size), accumulated(rest, at, size)
    else:
        total = _weighted_total(limbs, at, size).astype(object)
        counts, rest = narrowed(total >> GRAIN_BITS), (total & (GRAINS_PER_POWER - 1)).astype(np.int64)
    return Sum(counts, number.grain * GRAINS_PER_POWER, rest, GRAINS_PER_POWER)


def _weighted_total(limbs: Sequence[tuple[pa.ChunkedArray, int]], at: Integers, size: int) -> Integers:
    parts = [accumulated(as_integers(column), at, size) for column, _ in limbs]
    if len(limbs) == 1:
        return parts[0]
    pairs = zip(parts, limbs, strict=True)
    return narrowed(np.asarray(sum(part.astype(object) * weight for part, (_, weight) in pairs), object))


def _halves(column: pa.ChunkedArray) -> tuple[Any, Any]:
    """Return the upper (signed) and lower (unsigned) 64 bits of integers or of decimals' unscaled integers."""
    array = column.combine_chunks()
    array = array.fill_null(0) if array.null_count else array
    if not pa.types.is_decimal(array.type):
        low = to_numpy(array).astype(np.int64)
        return low >> 63, low.view(np.uint64)
    if not pa.types.is_decimal128(array.type):
        array = array.cast(pa.decimal128(38, array.type.scale))
    halves = np.frombuffer(array.buffers()[1], np.int64)[2 * array.offset : 2 * (array.offset + len(array))]
    return halves[1::2], halves[0::2].view(np.uint64)


def as_integers(column: pa.ChunkedArray) -> Integers:
    """Return integers, or the unscaled integers of decimals, as int64 if all fit, else as Python integers."""
    high, low = _halves(column)
    signed = low.astype(np.int64)
    if (high == signed >> 63).all():
        return signed
    return high.astype(object) * 2**64 + low.astype(object)


def narrowed(numbers: Integers) -> Integers:
    """Return Python integers as int64 if all fit."""
    fits = all(-(2**63) <= number < 2**63 for number in numbers)
    return numbers.astype(np.int64) if fits else numbers


def explain_uncountable(table: ir.Table, column: Column, keys: Keys | None, run: Run) -> DataError:
    """Return the reasons why records of a column could not be counted, but not which records or how many."""
    value, missing = raw_number(table, column)
    facts = {"nulls": missing} if column.nulls == "error" else {}
    facts["unreadable"] = is_null(value) & ~missing
    if value.type().is_floating():
        is_infinite = value.abs() > ibis.literal(np.finfo(float).max, "float64")
        facts |= {"nan": value.isnan(), "infinite": ~value.isnan() & is_infinite}
    elif (fits := _fits_38_digits(engine_of(table), value)) is not None:
        facts["digits"] = ~fits
    if column.negatives == "error":
        facts["negatives"] = value < 0
    measures = {name: fact.ifelse(1, 0).sum() for name, fact in facts.items()}
    found, _ = _by_key(table, measures, keys, run, "could not check the table")
    seen = [name for name in facts if any(found[name].to_pylist())]
    return uncountable(column, *(seen or ["too-large-to-rank" if column.use == "ranked" else "too-large"]))


def uncountable(column: Column, *codes: str) -> DataError:
    """Return the error for a column whose records cannot be counted, for all these reasons."""
    return DataError(*codes, column=Name(column.name), unit=Name(column.unit))


LARGEST_TEXT = 10**18  # numbers in a text have at most 18 digits before the point


def records_below(
    table: ir.Table, column: Column, sizes: Sequence[Fraction], run: Run = fetch, protect: str | None = None
) -> tuple[list[int], int]:
    """Return the number of records that are smaller than each size, and the number of all records. Confidential.

    If entities are protected, each of them counts once: its size is the absolute value of the total of its records. The
    engine adds whole numbers of grains, so that no total depends on the order of the records or on other entities. The
    totals, each different one once, leave the engine and are compared here.

    Parameters
    ----------
    table
        The records.
    column
        The column with the values, whose absolute values are compared; it says how missing values are treated.
    sizes
        The sizes, which are positive and increase.
    run
        The function that runs the query, for instance with a progress bar.
    protect
        The column that identifies the entity of a record, or None to compare single records.
    """
    if protect is not None:
        return _entities_below(table, column, sizes, run, protect)
    valid, at_least = _comparison(table, column)
    tests = [test for size in sizes if (test := at_least(size)) is not None]
    # In a separate column: DuckDB then ignores statistics of files, which leave out NaN (`DuckDB.run`).
    cells = table.select(cell=ibis.cases((valid, _cell(tests, 0, len(tests)))))
    with engine_errors("the engine", "could not compare the records with the grid", quote=False):
        found = run(cells.group_by("cell").aggregate(rows=cells.count()))
    rows = as_integers(found["rows"]).tolist()
    per_cell = dict(zip(found["cell"].to_pylist(), rows, strict=True))
    if per_cell.pop(None, 0):
        raise explain_uncountable(table, column, None, run)
    below, total = [], 0
    for cell in range(len(sizes)):
        total += per_cell.get(cell, 0)
        below.append(total)
    return below, sum(rows)


def _entities_below(
    table: ir.Table, column: Column, sizes: Sequence[Fraction], run: Run, protect: str
) -> tuple[list[int], int]:
    """Return the number of entities whose totals are smaller than each size, and the number of all entities."""
    engine, number, owner = engine_of(table), counted(table, column), table[protect]
    if owner.type().is_string():
        owner = engine.label(owner, TEXT)  # only identical texts are equal
    limbs = {f"limb{i}": sum_of_limb(engine, limb) for i, (limb, _) in enumerate(number.limbs)}
    totals = table.aggregate(
        by=[owner.name("owner")],
        unowned=(table.count() - table[protect].count()).cast("int64"),
        uncounted=(table.count() - number.valid.count()).cast("int64"),
        **limbs,
    )
    query = totals.group_by(list(limbs)).aggregate(
        entities=totals.count(), unowned=totals.unowned.max(), uncounted=totals.uncounted.max()
    )
    with engine_errors("the engine", "could not add up the records of each entity", quote=False):
        found = run(query)
    if any(found["unowned"].to_pylist()):
        raise DataError("no-entity", column=Name(protect))
    if any(found["uncounted"].to_pylist()):
        raise explain_uncountable(table, column, None, run)
    # Text without a number has no limbs: it counts as 0.
    if any(found[name].null_count for name in limbs) and not table[column.name].type().is_string():
        raise DataError("precision", column=Name(column.name))
    # Floats were truncated to grains, so that sizes are, too: a total that equals a size reaches it.
    bounds = [(math.ceil if number.exact else math.floor)(size / number.grain) for size in sizes]
    weights = [weight for _, weight in number.limbs]
    parts = [as_integers(found[name].fill_null(0)).tolist() for name in limbs]
    counts, below = as_integers(found["entities"]).tolist(), [0] * len(sizes)
    for entities, *limbs_of_one in zip(counts, *parts, strict=True):
        total = sum(map(mul, weights, limbs_of_one))
        reached = bisect_right(bounds, abs(total))
        if reached < len(sizes):
            below[reached] += entities
    return list(accumulate(below)), sum(counts)


def check_comparable(table: ir.Table, column: Column) -> None:
    """Raise unless the column holds numbers, which can be compared with sizes."""
    _comparison(table, column)


def _cell(tests: Sequence[ir.Value], low: int, high: int) -> ir.Value:
    """Return how many sizes a record reaches, if it reaches from `low` to `high` of them: a binary search."""
    if low == high:
        return ibis.literal(low, "int64")
    middle = (low + high + 1) // 2
    return ibis.ifelse(tests[middle - 1], _cell(tests, middle, high), _cell(tests, low, middle - 1))


def _comparison(table: ir.Table, column: Column) -> tuple[ir.Value, Test]:
    """Return whether the number of a record can be compared, and the test whether it has at least a size."""
    dtype = table[column.name].type()
    if dtype.is_floating():
        return _float_comparison(*finite_floats(table, column))
    number = counted(table, column)
    return (number.valid if dtype.is_string() else number.value).notnull(), _size_test(dtype, number)


def _size_test(dtype: dt.DataType, number: Counted) -> Test:
    """Return the exact test whether a record that is counted has at least a size; `dtype` is the column's type."""
    if dtype.is_string():
        return _text_test([limb for limb, _ in number.limbs])
    if dtype.is_decimal():
        return _decimal_test(number.limbs[0][0], number.grain)
    return _float_test(number.value) if dtype.is_floating() else _whole_test(number.value)


def _float_test(value: ir.Value) -> Test:
    def at_least(size: Fraction) -> ir.Value:
        bound = float(size)
        return value.abs() >= _float(bound if bound >= size else math.nextafter(bound, math.inf))

    return at_least


def _float_comparison(value: ir.Value, valid: ir.Value) -> tuple[ir.Value, Test]:
    size_of = value.abs()

    def at_least(size: Fraction) -> ir.Value | None:
        try:
            bound = float(size)
        except OverflowError:
            return None
        return size_of >= _float(bound)

    return valid, at_least


def _float(number: float) -> ir.Value:
    """Return a float from its text: DuckDB reads a number without an exponent as a decimal, and then rounds twice."""
    return forced_cast(ibis.literal(repr(number)), dt.float64)


def _whole_test(value: ir.Value) -> Test:
    dtype = value.type()
    unsigned, most = dtype.is_unsigned_integer(), dtype.bounds.upper
    kind = "uint64" if unsigned else "int64"

    def at_least(size: Fraction) -> ir.Value | None:
        bound = math.ceil(size)
        # The smallest integer has no positive counterpart: −x <= −bound is written as x < −(bound − 1).
        below = None if unsigned or bound - 1 > most else value < ibis.literal(1 - bound, "int64")
        above = None if bound > most else value >= ibis.literal(bound, kind)
        return above if below is None else below if above is None else above | below

    return at_least


def _decimal_test(value: ir.Value, grain: Fraction) -> Test:
    digits = len(str(grain.denominator)) - 1

    def literal(grains: int) -> ir.Value:
        return forced_cast(ibis.literal(_written(grains, digits)), dt.Decimal(38, digits))

    def at_least(size: Fraction) -> ir.Value | None:
        bound = math.ceil(size / grain)
        return None if bound >= 10**38 else (value >= literal(bound)) | (value <= literal(-bound))

    return at_least


def _written(grains: int, digits: int) -> str:
    """Write a whole number of grains as a decimal with this number of digits after the point."""
    whole, after = divmod(abs(grains), 10**digits)
    return f"{'-' * (grains < 0)}{whole}{f'.{after:0{digits}}' * (digits > 0)}"


def _text_test(limbs: Sequence[ir.Value]) -> Test:
    """Return the test for text, of which the limbs are the numbers before and after the point, with the sign."""
    whole, rest = (ibis.coalesce(limb, ibis.literal(0).cast(limb.type())).abs() for limb in limbs)

    def at_least(size: Fraction) -> ir.Value | None:
        first, after = divmod(math.ceil(size * 10**DECIMAL_PLACES), 10**DECIMAL_PLACES)
        if first >= LARGEST_TEXT:
            return None
        start = ibis.literal(first, "int64")
        part = forced_cast(ibis.literal(_written(after, DECIMAL_PLACES)), dt.Decimal(18, DECIMAL_PLACES))
        return (whole > start) | ((whole == start) & (rest >= part))

    return at_least
