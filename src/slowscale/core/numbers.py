"""Numbers written for people: the same on the terminal, in reports and in messages."""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

# Smaller floats are written with all their digits if their unit has few decimal places.
ALL_DIGITS_BELOW = 1e18
ERROR_DIGITS = 4  # significant digits that an error is rounded to before it is written
STANDARD_ERROR_DIGITS = 4  # significant digits of a published standard error
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def format_number(x: float, side: int = 0) -> str:
    """Write a number with three significant digits, or as a whole number from 1,000: 0.0123, 4.57, 213,555,556.

    It is rounded to nearest, or down (side −1) or up (side 1).
    """
    if not math.isfinite(x):
        return "unknown" if math.isnan(x) else "∞" if x > 0 else "−∞"
    if 999.5 <= abs(x) < 1e12:
        x = float(math.floor(x) if side < 0 else math.ceil(x) if side > 0 else round(x))
    else:
        x = float(rounded(x, 3, side))
    size, sign = abs(x), "−" if x < 0 else ""
    if size == 0 or 1e-4 <= size < 999.5:
        return f"{sign}{float(f'{size:.3g}'):g}"
    if 999.5 <= size < 1e12:
        return f"{sign}{size:,.0f}"
    digits, exponent = f"{size:.2e}".split("e")
    return f"{sign}{digits}\u00a0×\u00a0{power_of_ten(int(exponent))}"


def error_figure(error: float) -> str:
    """Write an error with three significant digits, or from 1,000 on as a whole number with four and then zeros.

    It is at most 0.05 % too small, and less than 1 % too large.

    >>> error_figure(100_001), error_figure(3_338.2), error_figure(12.34)
    ('100,000', '3,338', '12.4')
    """
    return format_number(float(rounded(error, ERROR_DIGITS)), 1)


def power_of_ten(exponent: int) -> str:
    """Write 10 to a power: 0.01, 1,000, 10⁸."""
    if -4 <= exponent <= 6:
        return f"{10**exponent:,}" if exponent >= 0 else f"{10.0**exponent:.{-exponent}f}"
    return f"10{str(exponent).translate(SUPERSCRIPTS)}"


def power_in_words(exponent: int) -> str:
    """Write 10 to a power without raised digits where possible: 0.00001, 1,000, 10 million, 1 billion, 10¹²."""
    if -7 < exponent < 6:
        return f"{10**exponent:,}" if exponent >= 0 else f"{10.0**exponent:.{-exponent}f}"
    if 6 <= exponent < 12:
        return f"{10 ** (exponent % 3)} {'million' if exponent < 9 else 'billion'}"
    return power_of_ten(exponent)


def share(x: float, side: int = 1) -> str:
    """Write a probability as a percentage with one decimal place, or two above 99.9 %, rounded up or (side −1) down.

    >>> share(0.94001), share(0.99959), share(0.99995), share(0.99995, -1)
    ('94.1 %', '99.96 %', '100 %', '99.99 %')
    """
    places = 1 if x <= 0.999 else 2
    percentage = (math.ceil if side > 0 else math.floor)(Fraction(x) * 10 ** (places + 2)) / 10**places
    return "100 %" if percentage == 100 else f"{percentage:.{places}f} %"


def grid(unit: Fraction) -> str:
    """Write a unit: 1, 1,000, 0.01, 1/3."""
    places = _places(unit)
    return str(unit) if places is None else f"{float(unit):,.{places}f}" if places else f"{unit.numerator:,}"


def published(value: Any, unit: Fraction | None = None, side: int = 0) -> str:
    """Write a published number on its grid, rounded to nearest, or down (side −1) or up (side 1).

    A number on the grid is written with all its digits, for any side.
    """
    if value is None:
        return "unknown"
    places = _places(unit)
    if isinstance(value, float) and (places is None or not abs(value) < ALL_DIGITS_BELOW):
        return rounded_figure(value, side)
    scale = 10 ** (places or 0)
    scaled = Fraction(value) * scale
    whole = round(scaled)
    # A float stands for the decimal number that it is nearest to, so floats are compared as floats.
    if side and (float(Fraction(whole, scale)) if isinstance(value, float) else Fraction(whole, scale)) != value:
        whole = math.floor(scaled) if side < 0 else math.ceil(scaled)
    units, parts = divmod(abs(whole), scale)
    text = f"{units:,}.{parts:0{places}}" if places else f"{units:,}"
    return f"−{text}" if whole < 0 else text


def rounded_figure(x: float | None, side: int = 0) -> str:
    """Write a number with up to six significant digits: a standard error, a ratio, or a number without a grid."""
    if x is None or not math.isfinite(x):
        return "unknown" if x is None else format_number(x)
    x = float(rounded(x, 6, side))
    size, sign = abs(x), "−" if x < 0 else ""
    if size == 0 or 1e-4 <= size < 1e12:
        return f"{sign}{size:,.12g}"
    digits, exponent = f"{size:.5e}".split("e")
    return f"{sign}{float(digits):g}\u00a0×\u00a0{power_of_ten(int(exponent))}"


def _places(unit: Fraction | None) -> int | None:
    """Return how many decimal places a unit has, or None if there are more than six."""
    return next((n for n in range(7) if unit is not None and (unit * 10**n).denominator == 1), None)


def percent(level: float) -> str:
    """Write the level of an interval as a percentage."""
    written = f"{100 * level:.12g}"
    return f"{written} %" if level == 1 or written != "100" else "more than 99.9999999 %"


def rounded(numbers: npt.ArrayLike, digits: int, side: int = 0) -> npt.NDArray[np.float64]:
    """Return floats rounded to a number of significant digits: to nearest, or down (side −1) or up (side 1)."""
    values = np.asarray(numbers, float)
    step = {-1: np.floor, 0: np.rint, 1: np.ceil}[side]
    with np.errstate(all="ignore"):
        places = digits - 1 - np.floor(np.log10(np.abs(values)))
        usual = np.abs(places) <= 22  # floats hold these powers of ten exactly
        up, down = 10.0 ** np.where(usual, np.maximum(places, 0), 0), 10.0 ** np.where(usual, np.maximum(-places, 0), 0)
        found = np.where(usual, step(values * up / down) * down / up, values)
    for i in np.flatnonzero(~usual & np.isfinite(values) & (values != 0)):
        rounding = {-1: ROUND_FLOOR, 0: ROUND_HALF_EVEN, 1: ROUND_CEILING}[side]
        found.flat[i] = float(Context(digits, rounding).create_decimal(float(values.flat[i])))
    return found
