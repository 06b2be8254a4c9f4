"""Largest values: public bounds on the values of columns, up to which losses are stated and caps are proven.

The curator declares them from public knowledge. If entities are protected, the bound is on the total of an entity in a
cell, and that on "count" on the number of its records there. A release finds a larger value in its own scan, and then
fails before anything is drawn, so that no larger record has been released.

Values are compared exactly. A float stands for its shortest decimal:

>>> exact(0.29), float(0.29) < exact(0.29) <= proven_to(0.29)
(Fraction(29, 100), True)
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from numbers import Integral
from typing import Any

from slowscale.accounting.record import ANY, folded
from slowscale.core.errors import ParameterError, ParameterTypeError
from slowscale.core.numbers import format_number
from slowscale.core.parameters import as_number

Value = int | float
LEAST_BOUND, MOST_BOUND = 1e-30, 1e30


def check_largest(largest: Any, argument: str = "largest") -> dict[str, Value]:
    """Return largest values by column, after checking them."""
    if largest is None:
        return {}
    if not isinstance(largest, Mapping):
        raise ParameterTypeError(argument, allowed='a mapping such as {"payann": 4e10}', given=largest)
    found: dict[str, Value] = {}
    for name, given in largest.items():
        if not isinstance(name, str):
            raise ParameterTypeError("the names of largest values", allowed="columns, as text", given=name)
        if folded(name) == ANY:
            raise ParameterError(
                argument, 'must name a column, not "*": columns have different units', code="reserved", path=(name,)
            )
        if folded(name) in map(folded, found):
            raise ParameterError(
                argument, f"has {name!r} twice", code="duplicate", path=(name,), remedy="keep one of the two"
            )
        found[name] = check_value(given, f"{argument}[{name!r}]", (name,))
    return found


def check_value(given: Any, label: str, path: tuple[str, ...] = ()) -> Value:
    """Return a largest value: a whole number as it is, or a float."""
    allowed = f"a number from {LEAST_BOUND:g} to {MOST_BOUND:g}: the size of a value, without its sign"
    number = as_number(label, given, allowed)
    if not LEAST_BOUND <= number <= MOST_BOUND:
        raise ParameterError(label, allowed=allowed, given=given, path=path)
    return int(given) if isinstance(given, Integral) else number


def exact(value: Value) -> Fraction:
    """Return a largest value as the number that was written."""
    return Fraction(str(value))


def proven_to(value: Value | None) -> float:
    """Return the size up to which caps are proven: the least float that is not below the value; None: infinity."""
    if value is None:
        return math.inf
    nearest = float(value)
    return nearest if Fraction(nearest) >= exact(value) else math.nextafter(nearest, math.inf)


def value_of(largest: Mapping[str, Value], column: str | None) -> Value | None:
    """Return the largest value of a column, however its name is spelled, or None."""
    return None if column is None else {folded(name): value for name, value in largest.items()}.get(folded(column))


def in_words(largest: Mapping[str, Value]) -> str:
    """Return largest values as a list: "emp 150,000, payann 40,000,000,000"."""
    return ", ".join(f"{name} {format_number(float(value))}" for name, value in largest.items())
