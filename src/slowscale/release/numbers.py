"""Published numbers: whole numbers of units as columns of a table, and back."""

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from slowscale.core.arrays import to_arrow, to_numpy
from slowscale.mechanisms.grid import compact, floats, largest, values

NumberColumn = pa.Array | pa.ChunkedArray
# Floats of at least this many units may stand for several numbers of units.
AMBIGUOUS_UNITS = 2**51


def number_column(units: Any, unit: Fraction, side: int) -> pa.Array:
    """Return multiples of a unit as a column: integers, decimals beyond 64 bits, or floats rounded down or up."""
    numbers = values(units, unit, side)
    if numbers.dtype != object:
        return to_arrow(numbers)
    if largest(numbers) < 10**38:
        return pa.array(numbers, pa.decimal128(38, 0))
    return to_arrow(floats(units, unit, side))


def whole_units(column: pa.ChunkedArray, unit: Fraction) -> Any:
    """Return the numbers of units that a published column of estimates holds.

    Floats stand for the nearest number of units. Those of at least `AMBIGUOUS_UNITS` may stand for several.
    """
    if pa.types.is_integer(column.type):
        numbers = to_numpy(column)
        return numbers if unit == 1 else numbers // unit.numerator
    if pa.types.is_decimal(column.type):
        return compact(np.array([int(number) // unit.numerator for number in column.to_pylist()], object))
    numbers = to_numpy(column)
    scaled = numbers / float(unit)
    if (np.abs(scaled) < AMBIGUOUS_UNITS).all():
        return np.rint(scaled).astype(np.int64)
    return compact(np.array([round(Fraction(number) / unit) for number in numbers.tolist()], object))


def group_sums(units: Any, groups: Any, count: int) -> Any:
    """Return exact sums of whole numbers by group: int64 if all of them fit, otherwise Python integers."""
    if units.dtype == object:
        totals = np.zeros(count, object)
        np.add.at(totals, groups, units)
        return compact(totals)
    if largest(units) * max(units.size, 1) < 2**63:
        sums = np.zeros(count, np.int64)
        np.add.at(sums, groups, units)
        return sums
    # The upper and the lower halves of the bits are added separately, so that nothing wraps around.
    upper, lower = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.add.at(upper, groups, units >> 32)
    np.add.at(lower, groups, units & 0xFFFFFFFF)
    return compact(upper.astype(object) * 2**32 + lower.astype(object))
