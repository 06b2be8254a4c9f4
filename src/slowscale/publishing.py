"""Publishing: a query bound to a table, the facts of its columns, and the table that is drawn."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

import ibis.expr.types as ir
import numpy as np
import pyarrow as pa

from slowscale.accounting import RecordPolicy
from slowscale.arrays import to_arrow
from slowscale.columns import record_policy
from slowscale.errors import ParameterError
from slowscale.facts import ABSENT, ColumnFacts, Facts
from slowscale.figures import STANDARD_ERROR_DIGITS, rounded
from slowscale.mechanisms import Mechanism, TransformationMechanism
from slowscale.mechanisms.calibration import CLOSED
from slowscale.mechanisms.charged import charged_policy
from slowscale.mechanisms.exact_sums import Exact
from slowscale.mechanisms.noisy import Noisy
from slowscale.parameters import lazy
from slowscale.release import Release
from slowscale.release.numbers import number_column
from slowscale.sampling import BitSource, KnownBits
from slowscale.tables.keys import Keys
from slowscale.tables.rowwise import Described
from slowscale.tables.sums import Column, ExactSums, Sum, counted

# What the published standard error is, by whether the error depends on the sum.
STANDARD_ERRORS = {
    False: "the root mean square error, rounding included; the same for every sum",
    True: "the standard deviation at the median estimate of the sum, rounding included: as likely too large as too "
    "small, and never below that of an empty cell",
}


class Part(NamedTuple):
    """The records that a release is about: those with some labels of a column, or all of them if the column is None.

    `kind` says what the labels are: text, whole numbers, booleans or dates.
    """

    by: str | None = None
    labels: tuple[Any, ...] = ()
    kind: str | None = None


ALL_RECORDS = Part()


@dataclass(frozen=True)
class BoundQuery:
    """A query that is bound to a table and checked. Nothing has been drawn yet.

    Attributes
    ----------
    table
        The table with the derived columns, filtered.
    keys
        The public keys, or None for totals.
    columns
        How each column is summed.
    mechanisms, units
        The mechanism and the unit of each column, including the number of records.
    count
        The name of the column with the number of records, or None if it is not published.
    level, nonnegative, means
        As in `Query`.
    expressions
        The filter and the derived columns, as text for the facts.
    entities
        Whether entities are protected instead of single records.
    filtered
        Whether records are filtered, so that a change of value may move one in or out.
    part
        The records that the query is about.
    accounting
        Which policy of each mechanism is charged, as in `Session`.
    """

    table: ir.Table
    keys: Keys | None
    columns: dict[str, Column]
    mechanisms: Mapping[str, Mechanism]
    units: Mapping[str, Fraction]
    count: str | None
    level: float
    nonnegative: bool
    expressions: Described
    entities: bool
    filtered: bool
    part: Part = ALL_RECORDS
    means: str | None = None
    accounting: str = CLOSED

    def with_means(self, release: Release) -> Release:
        """Return the release with the columns of means, if the query asks for them."""
        for name in self.columns if self.means is not None else ():
            release = release.ratio(name, "count", f"{name}_mean", self.level, self.means or "")
        return release

    @lazy
    def policy(self) -> RecordPolicy:
        """The loss of a record by the query, as PRzCDP."""
        found = {name: charged_policy(mechanism, self.accounting) for name, mechanism in self.mechanisms.items()}
        return record_policy(found, self._constant_column, self.filtered)

    @property
    def _constant_column(self) -> str | None:
        """The column in which every record counts as 1, or None: an entity may have several records in a cell."""
        return None if self.entities else self.count

    @property
    def pure_policy(self) -> RecordPolicy | None:
        """The loss of a record by the query as PRDP, or None if a mechanism has no such guarantee."""
        found = self.pure_columns
        return found if found is not None and len(found.terms) == len(self.mechanisms) else None

    @property
    def pure_columns(self) -> RecordPolicy | None:
        """The PRDP loss of a record through the columns that have such a guarantee, or None if no column has it."""
        found = {name: pure for name, m in self.mechanisms.items() if (pure := m.pure_policy) is not None}
        return record_policy(found, self._constant_column, self.filtered) if found else None

    @lazy
    def _grids(self) -> dict[str, bool]:
        """Whether the type of each column implies that its true sums are multiples of its unit."""
        found = {}
        for name, column in self.columns.items():
            number = counted(self.table, column)
            found[name] = number.exact and (number.grain / self.units[name]).denominator == 1
        return found

    def on_grid(self, name: str) -> bool:
        """Whether the type of a column implies that its true sums are multiples of its unit."""
        return name == self.count or self._grids[name]

    def at_least(self, name: str) -> int | None:
        """Return the lower bound on the true sums of a column, or None if none is known."""
        return 0 if name == self.count or isinstance(self.mechanisms[name], TransformationMechanism) else None

    @property
    def unit_warnings(self) -> list[str]:
        """A warning for each column whose unit is coarser than its noise."""
        found = [
            (name, mechanism._unit_warning(self.units[name], self.on_grid(name)))
            for name, mechanism in self.mechanisms.items()
        ]
        return [f"column {name!r}: {warning}" for name, warning in found if warning is not None]


class SizeClass(NamedTuple):
    """The errors of the released sums of a column, for true sums from `low` to below `high`. CONFIDENTIAL."""

    column: str
    low: float
    high: float
    cells: int
    median_error: float
    median_relative_error: float


def _exact_sum(total: Sum) -> Exact:
    return Exact(total.counts, total.grain, total.rest, total.parts)


def draw(query: BoundQuery, sums: ExactSums, facts: Facts, bits: BitSource | None) -> Release:
    """Draw the noise and build the table. Everything in the result is public."""
    columns: dict[str, Any] = {}
    if query.keys is not None:
        columns = {name: query.keys.table[name] for name in query.keys.columns}
    for name, mechanism in query.mechanisms.items():
        exact = Exact(sums.rows, Fraction(1)) if name == query.count else _exact_sum(sums.sums[name])
        noisy = mechanism._release(exact, query.units[name], query.level, bits)
        published = _published_columns(noisy, query.nonnegative, query.at_least(name))
        columns |= {f"{name}{suffix}": values for suffix, values in published.items()}
    return Release(pa.table(columns), facts, query.policy, query.pure_policy, dict(query.mechanisms))


def dry_run(query: BoundQuery, facts: Facts) -> Release:
    """Release sums of 0 with known bits, so that a query that cannot be drawn fails before anything is charged.

    So does one whose loss cannot be computed: tables of tight policies are computed now, if they are not known yet.
    """
    if query.accounting != CLOSED:
        query.policy(dict.fromkeys(query.policy.columns, 1.0))
    zero = np.zeros(1, np.int64)
    sums = ExactSums(zero, {name: Sum(zero, Fraction(1)) for name in query.columns})
    return draw(replace(query, keys=None), sums, facts, KnownBits())


def errors_by_size(query: BoundQuery, sums: ExactSums, release: Release) -> tuple[SizeClass, ...]:
    """Return the errors of a release by powers of ten of the true sums; sums of 0 are a class of their own."""
    classes = []
    for name in query.mechanisms:
        truth = sums.rows.astype(float) if name == query.count else sums.sums[name].floats()
        with np.errstate(all="ignore"):
            error = np.abs(release._as_floats(name) - truth)
            place = np.where(truth == 0, -np.inf, np.floor(np.log10(np.abs(truth))))
            for power in np.unique(place):
                here = place == power
                low, high = (0.0, 0.0) if np.isinf(power) else (10.0**power, 10.0 ** (power + 1))
                relative = math.nan if np.isinf(power) else float(np.median(error[here] / np.abs(truth[here])))
                classes.append(SizeClass(name, low, high, int(here.sum()), float(np.median(error[here])), relative))
    return tuple(classes)


def _published_columns(noisy: Noisy, nonnegative: bool, at_least: int | None) -> dict[str, Any]:
    """Return the columns that are published for one summed column, by their suffixes.

    The interval is raised to the lower bound on the true sum. The estimate is raised to 0 only if the query asks for
    that, because it biases the estimate.
    """
    units = [noisy.units, *noisy.ends]
    for i, raised in enumerate((nonnegative, at_least is not None, at_least is not None)):
        if raised:
            units[i] = np.maximum(units[i], 0)
    estimate, low, high = (number_column(some, noisy.unit, side) for some, side in zip(units, (0, -1, 1), strict=True))
    error = rounded(noisy.se, STANDARD_ERROR_DIGITS)
    if noisy.transformed is not None:  # rounding must not lower it below the error of an empty cell
        error = np.where(error < noisy.mechanism.std(0), rounded(noisy.se, STANDARD_ERROR_DIGITS, 1), error)
    columns = {"": estimate, "_se": to_arrow(error), "_low": low, "_high": high}
    if noisy.transformed is not None:
        columns["_transformed"] = to_arrow(noisy.transformed)
    return columns


def column_facts(query: BoundQuery, name: str) -> ColumnFacts:
    """Return the public facts of a released column."""
    mechanism, counts = query.mechanisms[name], name == query.count
    return ColumnFacts(
        kind="count" if counts else "sum",
        mechanism=description(mechanism),
        described=str(mechanism),
        unit=str(query.units[name]),
        level=query.level,
        nonnegative=query.nonnegative,
        estimator="biased: clipped at 0" if query.nonnegative else _estimator(mechanism),
        se=STANDARD_ERRORS[mechanism._error_grows],
        at_least=query.at_least(name),
        on_grid=query.on_grid(name),
        rounding_bias=mechanism._rounding_bias(query.units[name], query.on_grid(name)),
        nulls=ABSENT if counts else query.columns[name].nulls,
        negatives=ABSENT if counts else query.columns[name].negatives or "kept",
    )


def _estimator(mechanism: Mechanism) -> str:
    estimator = getattr(mechanism, "estimator", "mean")
    return estimator if isinstance(estimator, str) else "a function of the curator's"


def description(thing: Mechanism | RecordPolicy) -> Any:
    """Return the description of a mechanism or policy, or None if it has a function without a name."""
    try:
        return thing.to_dict()
    except ParameterError:
        return None
