"""Published numbers rounded to a public step, exactly.

Halves are rounded to the even multiple of the step, which adds no bias. A float stands for the shortest decimal number
that it is nearest to, as it is written in files: 0.15 is exactly halfway between 0.1 and 0.2.
"""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slowscale.core.arrays import to_numpy
from slowscale.mechanisms.grid import compact
from slowscale.release.numbers import number_column

SMALL_STEP = 2**61  # twice a remainder by such a step fits in 64 bits
TIE_WIDTH = 1e-9  # relative to a quotient: nearer to where rounding changes, floats are rounded as exact numbers


def round_to(column: Any, step: Fraction, side: int = 0) -> Any:
    """Return a column rounded to multiples of a step: to nearest, or down (side −1) or up (side 1).

    Numbers that are missing or not finite become missing.
    """
    whole = not pa.types.is_floating(column.type)
    if whole and step.numerator == 1:  # whole numbers are multiples of such a step
        return column
    if not whole:
        numbers = to_numpy(column.fill_null(math.nan))
        known = np.isfinite(numbers)
        multiples = _float_multiples(np.where(known, numbers, 0.0), step, side)
    else:
        known = np.asarray(column.is_valid())
        filled = column.fill_null(0)
        small = pa.types.is_int64(column.type)
        numbers = to_numpy(filled) if small else np.array([int(number) for number in filled.to_pylist()], object)
        multiples = _whole_multiples(numbers, step, side)
    found = number_column(multiples, step, side)
    return found if known.all() else pc.if_else(pa.array(known), found, pa.scalar(None, found.type))


def _whole_multiples(numbers: Any, step: Fraction, side: int) -> Any:
    """Return the number of steps that whole numbers are rounded to."""
    size = step.numerator
    if numbers.dtype == object or step.denominator != 1 or size >= SMALL_STEP:
        return compact(np.array([_nearest_multiple(Fraction(int(n)), step, side) for n in numbers], object))
    below, rest = np.divmod(numbers, size)
    if side < 0:
        return below
    if side > 0:
        return below + (rest > 0)
    return below + ((2 * rest > size) | ((2 * rest == size) & (below % 2 == 1)))


def _float_multiples(numbers: Any, step: Fraction, side: int) -> Any:
    """Return the number of steps that floats are rounded to."""
    with np.errstate(all="ignore"):
        quotients = numbers / float(step)
        changes = np.floor(quotients) + 0.5 if side == 0 else np.rint(quotients)
        clear = (numbers == 0) | (np.abs(quotients - changes) > TIE_WIDTH * np.maximum(1, np.abs(quotients)))
    rounding = {-1: np.floor, 0: np.rint, 1: np.ceil}[side]
    found = np.where(clear, rounding(quotients), 0).astype(np.int64).astype(object)
    for i in np.flatnonzero(~clear):
        found[i] = _nearest_multiple(Fraction(repr(float(numbers[i]))), step, side)
    return compact(found)


def _nearest_multiple(number: Fraction, step: Fraction, side: int) -> int:
    quotient = number / step
    return math.floor(quotient) if side < 0 else math.ceil(quotient) if side > 0 else round(quotient)
