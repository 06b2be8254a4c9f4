"""Whole numbers of units, and the values that they represent.

Released values lie on a public grid: they are whole numbers of a `unit`. The ends of intervals lie on the grid too,
rounded outwards, as exact integers. Values that are not integers are returned as floats.
"""

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from slowscale.core.errors import ParameterError
from slowscale.core.parameters import as_number
from slowscale.sampling.exact import Integers

# Floats represent all whole numbers up to here exactly.
EXACT = 2**53


def as_unit(unit: Any) -> Fraction:
    """Return the grid step as an exact number."""
    allowed = 'a number > 0 such as 1 or "0.01"'
    if isinstance(unit, str):
        try:
            value = Fraction(unit)
        except (ValueError, ZeroDivisionError):
            raise ParameterError("unit", allowed=allowed, given=unit) from None
    else:
        number = as_number("unit", unit, allowed)
        if not math.isfinite(number):
            raise ParameterError("unit", allowed=allowed, given=unit)
        value = Fraction(unit if isinstance(unit, int | Decimal | Fraction) else number)
        if isinstance(unit, float | np.floating) and value.denominator > 2**20:
            raise ParameterError(
                "unit", "must be exact", code="precision", given=unit, remedy=f'give the text "{unit}"'
            )
    if not Fraction(1, 10**300) < value < 10**300:
        allowed = f"{allowed}, from 1e-300 to 1e300" if value > 0 else allowed
        raise ParameterError("unit", allowed=allowed, given=unit)
    return value


def add(whole: Integers, more: Integers) -> Integers:
    """Add whole numbers without wrap-around."""
    if whole.dtype != object and more.dtype != object:
        total: Integers = whole + more
        if not (((whole ^ total) & (more ^ total)) < 0).any():
            return total
    # The dtype must not reveal how large the exact sum was, only how large the result is.
    return compact(whole.astype(object) + more.astype(object))


def compact(whole: Integers) -> Integers:
    """Return Python integers as int64 if all of them fit."""
    fits = all(-(2**63) <= number < 2**63 for number in whole.flat)
    return whole.astype(np.int64) if fits else whole


def shift(units: Any, by: int) -> Any:
    """Return a whole number, or an array of them, plus another."""
    if not isinstance(units, np.ndarray):
        return units + by
    small = -(2**63) <= by < 2**63
    return add(units, np.full(units.shape, by, np.int64 if small else object))


def floors(x: Any) -> Any:
    """Return floats rounded down, as integers; as floats if any is infinite."""
    return _whole(np.floor(x))


def ceilings(x: Any) -> Any:
    """Return floats rounded up, as integers; as floats if any is infinite."""
    return _whole(np.ceil(x))


def _whole(x: Any) -> Any:
    if not np.isfinite(x).all():
        return x
    if (np.abs(x) < 2.0**62).all():
        return x.astype(np.int64)
    return np.array([int(number) for number in x.flat], object).reshape(x.shape)


def values(units: Any, unit: Fraction, side: int = 0) -> Any:
    """Return units × unit: integers if the unit is an integer, otherwise floats.

    Floats are the nearest ones, so that they print as decimals on the grid. Where floats are coarser than the grid,
    they are rounded down (side −1) or up (side 1).
    """
    if not isinstance(units, np.ndarray):
        one = values(np.array([units], float if isinstance(units, float) else object), unit, side)
        return one[0].item() if isinstance(one[0], np.generic) else one[0]
    if units.dtype.kind == "f":
        return units * float(unit)
    if unit.denominator == 1:
        fits = units.dtype != object and max(1, largest(units)) * unit.numerator < 2**63
        return (units if fits else units.astype(object)) * unit.numerator
    return floats(units, unit, side)


def floats(units: Any, unit: Fraction, side: int = 0) -> Any:
    """Return units × unit as the nearest floats; where floats are coarser than the grid, rounded by `side`."""
    if units.dtype.kind == "f":
        return units * float(unit)
    if units.dtype != object and max(largest(units) * unit.numerator, unit.denominator) < EXACT:
        return units * float(unit.numerator) / float(unit.denominator)
    found = [directed(int(n) * unit, side if abs(int(n)) >= 10**15 else 0) for n in units.flat]
    return np.array(found, float).reshape(units.shape)


def directed(value: Fraction | int, side: int) -> float:
    """Return the nearest float (side 0), the nearest not above (side −1) or not below (side 1); infinite if none is."""
    try:
        nearest = float(value)
    except OverflowError:
        nearest = math.inf if value > 0 else -math.inf
    if side and math.isinf(nearest) and (nearest > 0) != (side > 0):
        return math.copysign(np.finfo(float).max, nearest)
    if math.isinf(nearest) or side * (Fraction(nearest) - value) >= 0:
        return nearest
    return math.nextafter(nearest, side * math.inf)


def outward(q: Any, half: Any, side: int) -> Any:
    """Return q + side·half as floats, rounded away from q."""
    far = q + side * half
    with np.errstate(invalid="ignore"):
        back = far - q  # the rounding error of a sum, by Knuth's TwoSum
        dropped = (q - (far - back)) + (side * half - back)
    return np.where(side * dropped > 0, np.nextafter(far, side * math.inf), far)


def largest(array: Any) -> int:
    """Return the largest absolute value of whole numbers."""
    return max(abs(int(array.max())), abs(int(array.min()))) if array.size else 0


def elementwise(function: Callable[[Any], Any], units: Any) -> Any:
    """Apply a function of arrays to an array or to a single number."""
    if isinstance(units, np.ndarray):
        return function(units)
    result = function(np.array([units]))[0]
    return result.item() if isinstance(result, np.generic) else result


def shaped(array: Any, shape: tuple[int, ...]) -> Any:
    """Return a flat array in the given shape, or its only number if the shape is ()."""
    return array.reshape(shape) if shape else array[0].item() if hasattr(array[0], "item") else array[0]
