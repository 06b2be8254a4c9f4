"""Exact ranks: how many records are smaller than each of several public sizes, in one scan.

The size of a record is the absolute value of its number. Every record is compared with the sizes by a binary search in
the engine, so that it counts in exactly one cell, whatever the other records are. Integers and decimals are compared
exactly, with the size rounded up to their grain; floats are compared with the float that is nearest to the size.
Comparisons do not round, so all engines agree.

If entities are protected, each of them counts once: its size is the absolute value of the total of its records. The
engine adds whole numbers of grains (`slowscale.data.sums`), so that no total depends on the order of the records or on
other entities. The totals, each different one once, leave the engine and are compared here.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import accumulate
from operator import mul

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.types as ir

from slowscale.core.errors import DataError
from slowscale.data.dialects import forced_cast
from slowscale.data.engines import TEXT, engine_errors, engine_of, fetch
from slowscale.data.sums import (
    DECIMAL_PLACES,
    Column,
    Run,
    as_integers,
    counted,
    explain_uncountable,
    finite_floats,
    sum_of_limb,
)

# Whether a record has at least a size; None if no number of the column's type has it.
Test = Callable[[Fraction], ir.Value | None]
LARGEST_TEXT = 10**18  # numbers in a text have at most 18 digits before the point


def records_below(
    table: ir.Table, column: Column, sizes: Sequence[Fraction], run: Run = fetch, protect: str | None = None
) -> tuple[list[int], int]:
    """Return the number of records that are smaller than each size, and the number of all records. Confidential.

    If entities are protected, return the same numbers of entities.

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
    # In a column of its own: DuckDB then ignores statistics of files, which leave out NaN (`DuckDB.run`).
    cells = table.select(cell=ibis.cases((valid, _cell(tests, 0, len(tests)))))
    with engine_errors("the engine could not compare the records with the grid", quote=False):
        found = run(cells.group_by("cell").aggregate(rows=cells.count()))
    rows = as_integers(found["rows"]).tolist()
    per_cell = dict(zip(found["cell"].to_pylist(), rows, strict=True))
    if per_cell.pop(None, 0):
        raise DataError(explain_uncountable(table, column, None, run))
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
    with engine_errors("the engine could not add up the records of each entity", quote=False):
        found = run(query)
    if any(found["unowned"].to_pylist()):
        raise DataError(
            f"column {protect!r}",
            "identifies the protected entities and has missing values",
            code="no-entity",
            remedy="fill them in, or leave the records out with a filter (where)",
        )
    if any(found["uncounted"].to_pylist()):
        raise DataError(explain_uncountable(table, column, None, run))
    # Text without a number has no limbs: it counts as 0.
    if any(found[name].null_count for name in limbs) and not table[column.name].type().is_string():
        raise DataError(
            f"column {column.name!r}",
            "has totals with more digits than the engine can represent",
            code="too-large",
            remedy="derive a column that rounds it",
        )
    bounds = [math.ceil(size / number.grain) for size in sizes]
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
    if dtype.is_string():
        return number.valid.notnull(), _text_test([limb for limb, _ in number.limbs])
    if dtype.is_decimal():
        return number.value.notnull(), _decimal_test(number.limbs[0][0], number.grain)
    return number.value.notnull(), _whole_test(number.value)


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
