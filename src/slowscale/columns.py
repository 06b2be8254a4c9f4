"""The columns of a release or plan, each with what a record loses through it and how large its error is.

Public facts only: mechanisms, policies and units. Reports and the command ask here what a record of a given size loses,
through one column and through all of them, by the best guarantee that holds.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from slowscale.accounting import Loss, RecordPolicy
from slowscale.errors import ParameterError
from slowscale.facts import Facts
from slowscale.mechanisms import Mechanism
from slowscale.policy import PURE, ConstantPolicy, Policy
from slowscale.sizes import RecordSize, default_sizes, default_span

EXAMPLE_SUMS = 5  # at which an error is told, at most
BEYOND = 100.0  # sums are told of up to so many times the largest record


@dataclass(frozen=True)
class ColumnPolicy:
    """One released column.

    Attributes
    ----------
    name
        The column; "count" for the number of records.
    policy
        What a record loses through it as PRzCDP, by its size.
    pure
        The same as PRDP, or None where there is no such guarantee.
    mechanism
        The mechanism, or None where it has a function that only has a name.
    unit
        The grid of the results.
    single
        Whether every record counts as 1, so that all lose the same.
    on_grid
        Whether the true sums are known to be whole numbers of units; None where nothing is published yet, and errors
        are those of the ideal output.
    """

    name: str
    policy: Policy
    pure: Policy | None
    mechanism: Mechanism | None
    unit: Fraction
    single: bool
    on_grid: bool | None = False

    def errors(self, sums: Any) -> Any:
        """Return the standard errors for true sums, rounding included; None where the mechanism is not known."""
        if self.mechanism is None:
            return None
        with np.errstate(all="ignore"):
            if self.on_grid is None:
                return self.mechanism.std(sums)
            return self.mechanism._error_at(sums, self.unit, self.on_grid)

    def loss(self, value: float) -> Loss:
        """Return what a record of this size loses."""
        with np.errstate(all="ignore"):
            return Loss(float(self.policy(value)), None if self.pure is None else float(self.pure(value)))

    def at(self, size: RecordSize) -> Loss | None:
        """Return what an example record loses, or None where it has no value in this column."""
        value = 0.0 if self.single else size.value(self.name)
        return None if value is None else self.loss(value)


def record_policy(policies: Mapping[str, Policy], single: str | None, filtered: bool) -> RecordPolicy:
    """Return what a record loses through columns with these policies, added up.

    In the column `single` every record counts as 1, whatever its values, so that all lose the same.
    """
    terms = [
        (None, ConstantPolicy(policy(1), policy.notion)) if name == single else (name, policy)
        for name, policy in policies.items()
    ]
    return RecordPolicy(tuple(terms), filtered=filtered)


def column_policies(
    policy: RecordPolicy,
    mechanisms: Mapping[str, Mechanism | None],
    units: Mapping[str, Any],
    on_grid: Mapping[str, bool | None] | None = None,
) -> tuple[ColumnPolicy, ...]:
    """Return the columns of a release with this policy: every column it has a mechanism for."""
    found = []
    for name, mechanism in mechanisms.items():
        single = name not in policy.columns
        pure = None if mechanism is None else mechanism.pure_policy
        if pure is not None and single:  # every record counts as 1
            pure = ConstantPolicy(float(pure(1)), PURE)
        zcdp = policy.column(None if single else name)
        known = single if on_grid is None else on_grid.get(name, single)
        found.append(ColumnPolicy(name, zcdp, pure, mechanism, Fraction(units.get(name, 1)), single, known))
    return tuple(found)


def released_columns(policy: RecordPolicy, facts: Facts) -> tuple[ColumnPolicy, ...]:
    """Return the columns that the facts of a release describe."""
    columns = facts.columns
    mechanisms = {name: rebuilt(column.mechanism) for name, column in columns.items()}
    units = {name: column.unit for name, column in columns.items()}
    on_grid = {name: column.surely_on_grid for name, column in columns.items()}
    return column_policies(policy, mechanisms, units, on_grid)


def rebuilt(description: Any) -> Mechanism | None:
    """Return the mechanism that a release's facts describe, or None where it has a function that only has a name."""
    try:
        return Mechanism.from_dict(description)
    except ParameterError:
        return None


def shown_sizes(columns: Sequence[ColumnPolicy], sizes: Sequence[RecordSize]) -> tuple[RecordSize, ...]:
    """Return the stated sizes, or those that follow from the columns' policies and units."""
    if sizes:
        return tuple(sizes)
    sized = [column for column in columns if not column.single]
    if not sized:
        return (RecordSize("every record", everywhere=1.0, named=False),)
    return default_sizes([(column.policy, float(column.unit)) for column in sized])


def losses(columns: Sequence[ColumnPolicy], size: RecordSize) -> list[Loss] | None:
    """Return what an example record loses through each column, or None where it has no value in one of them."""
    found = [loss for column in columns if (loss := column.at(size)) is not None]
    return found if len(found) == len(columns) else None


def size_span(columns: Sequence[ColumnPolicy], sizes: Sequence[RecordSize]) -> tuple[float, float]:
    """Return the sizes between which policies are drawn: from an almost harmless one to the largest stated."""
    low, high = (10.0**power for power in default_span(_spans(columns)))
    stated = [value for size in sizes for column in columns if (value := size.value(column.name)) and not column.single]
    if stated:
        low, high = min(low, *stated), max(stated)
    # Whole powers of ten, as the axis has.
    low, high = 10.0 ** math.floor(math.log10(low) + 1e-9), 10.0 ** math.ceil(math.log10(high) - 1e-9)
    return low, max(high, 1000 * low)


def _spans(columns: Sequence[ColumnPolicy]) -> list[tuple[Policy, float | None]]:
    return [(column.policy, float(column.unit)) for column in columns if not column.single]


def sum_powers(column: ColumnPolicy, sizes: Sequence[RecordSize]) -> tuple[int, int]:
    """Return the powers of ten between which the true sums of a column are told of.

    From about the unit or the noise, whichever is larger, to well above the largest record.
    """
    unit = float(column.unit)
    with np.errstate(all="ignore"):
        noise = math.nan if column.mechanism is None else float(column.mechanism.std(0.0))
    start = max(unit, noise / 10) if math.isfinite(noise) else unit
    largest = max((value for size in sizes if (value := size.value(column.name))), default=unit)
    if column.single:
        largest = 1e4  # records
    low = math.floor(math.log10(start) + 1e-9)
    return low, max(math.ceil(math.log10(BEYOND * largest) - 1e-9), low + 4)


def example_sums(column: ColumnPolicy, sizes: Sequence[RecordSize]) -> list[float]:
    """Return a few true sums at which the error of a column is told."""
    low, high = sum_powers(column, sizes)
    step = math.ceil((high - low) / (EXAMPLE_SUMS - 1))
    return [10.0**power for power in range(low, high + 1, step)]
