"""Columns of exact numbers."""

from fractions import Fraction
from typing import Any

import pyarrow as pa

from slowscale.arrays import to_arrow
from slowscale.mechanisms.grid import floats, largest, values


def number_column(units: Any, unit: Fraction, side: int) -> pa.Array:
    """Return multiples of a unit as a column: integers, decimals beyond 64 bits, or floats rounded down or up."""
    numbers = values(units, unit, side)
    if numbers.dtype != object:
        return to_arrow(numbers)
    if largest(numbers) < 10**38:
        return pa.array(numbers, pa.decimal128(38, 0))
    return to_arrow(floats(units, unit, side))
