"""Growth, shares, differences and ratios, computed from published numbers only: no record loses more by them.

Where both numbers have additive noise, the intervals come from the known noise of a test (`ratio_intervals.py`). So do
those of ratios of sums with the same root: the roots have additive noise, and their ratio is the root of the ratio.
Otherwise intervals are boxes: the range of all results of a value in an interval for the one number and a value in an
interval for the other, each at the level (1 + level)/2.

Drawn tables have independent noise, and so have the rows of one table. Tables that are rolled up from the same drawn
table share its noise.
"""

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slowscale.core.arrays import key_positions, to_arrow, to_numpy
from slowscale.core.errors import ParameterError, ParameterTypeError, Shown
from slowscale.core.files import check_output_path, write_files
from slowscale.core.markup import html_table, html_text
from slowscale.core.numbers import percent, published, rounded
from slowscale.core.parameters import Array, level_quantile
from slowscale.mechanisms import Root, TransformationMechanism
from slowscale.mechanisms.additive import AdditiveMechanism
from slowscale.mechanisms.drawing import fine_step
from slowscale.mechanisms.grid import add, compact
from slowscale.mechanisms.ratio_intervals import (
    RATIO_MARGIN,
    NoisySum,
    difference_steps,
    ratio_interval,
    share_interval,
)
from slowscale.release.facts import ColumnFacts, escape_formulas, escaped_names
from slowscale.release.numbers import (
    AMBIGUOUS_UNITS,
    RATIO_DIGITS,
    Estimates,
    Ratios,
    as_floats,
    box_level,
    box_ratios,
    exact_ratios,
    group_sums,
    normal_ratios,
    number_column,
    whole_units,
)
from slowscale.release.table import NOT_PRIVATE, SHOWN_ROWS, ReleasedSums

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from slowscale.data.hierarchies import Hierarchy

DERIVED_METADATA = b"slowscale_derived"  # the key of the facts of a derived table in the metadata of an Arrow schema
RESULT_ENDINGS = ("", "_low", "_high")
# A bound on the relative error of published floats, which stand for the numbers of units nearest to them.
PUBLISHED_FLOAT_ERROR = 2.0**-50
BY_TEST, BY_BOX = "exact", "box"


@dataclass(frozen=True, eq=False, repr=False)
class DerivedTable:
    """Numbers computed from published tables: growth, shares or differences, with intervals.

    Attributes
    ----------
    table
        The key columns and, for growth of each column `x`, the columns `x_growth`, `x_growth_low` and `x_growth_high`;
        for shares and differences `x_share…` and `x_difference…`.
    kind
        "growth", "share" or "difference".
    by
        The key columns.
    level
        The probability with which each interval holds the true number, at least.
    intervals
        How the intervals of each column are computed: "exact", from the known noise of a test, or "box", from an
        interval for each number.
    notes
        What readers must know: rows without a partner, other filters, periods in another order, or what a box is.
    releases
        The identifiers of the releases.
    private
        Whether the noise of the releases came from secret bits.
    """

    table: pa.Table
    kind: str
    by: tuple[str, ...]
    level: float
    intervals: Mapping[str, str]
    notes: tuple[str, ...]
    releases: tuple[str, ...]
    private: bool

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __repr__(self) -> str:
        first = "" if self.private else NOT_PRIVATE
        lines = [f"{first}{self.kind} by {', '.join(self.by) or 'nothing'}: {len(self):,} rows, level {self.level:g}"]
        lines += [f"  {name}_{self.kind}: interval {how}" for name, how in self.intervals.items()]
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        rows = []
        for values in self.table.slice(0, SHOWN_ROWS).to_pylist():
            cells = [
                f"{published(values[name])} ({published(values[f'{name}_low'], None, -1)} to "
                f"{published(values[f'{name}_high'], None, 1)})"
                for name in self._names
            ]
            rows.append([*(values[key] for key in self.by), *cells])
        head = f"{self.kind}, with intervals at {percent(self.level)}"
        return html_table(head, [*self.by, *self._names], rows) + html_text(repr(self))

    @property
    def _names(self) -> list[str]:
        return [f"{name}_{self.kind}" for name in self.intervals]

    @property
    def facts(self) -> dict[str, Any]:
        """How the numbers were computed, as a dictionary that JSON can hold."""
        return {
            "kind": self.kind,
            "level": self.level,
            "intervals": dict(self.intervals),
            "notes": list(self.notes),
            "releases": list(self.releases),
            "private": self.private,
        }

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table with the facts in the metadata of its schema."""
        return self.table.replace_schema_metadata({DERIVED_METADATA: json.dumps(self.facts)})

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> "pd.DataFrame":
        """Return a pandas frame with the facts in its `attrs`."""
        frame = self.table.to_pandas()
        frame.attrs["slowscale"] = self.facts
        return frame

    def to_polars(self) -> "pl.DataFrame":
        """Return a polars frame."""
        import polars as pl

        frame = pl.from_arrow(self.table)
        assert isinstance(frame, pl.DataFrame)
        return frame

    def to_csv(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write a CSV file and return its path. Labels that a spreadsheet would run as a formula get an apostrophe."""
        target = check_output_path(path, ".csv", overwrite)
        return write_files({target: self._write_csv}, overwrite=overwrite)

    def csv_text(self) -> str:
        """Return the text of the CSV file that `to_csv` writes."""
        sink = pa.BufferOutputStream()
        self._write_csv(sink)
        return str(sink.getvalue().to_pybytes().decode())

    def _write_csv(self, file: Any) -> None:
        import pyarrow.csv

        table = escape_formulas(self.table)[0]
        pyarrow.csv.write_csv(table.rename_columns(escaped_names(table.column_names)), file)


@dataclass(frozen=True)
class Numbers:
    """Published numbers of a column: those in some rows of a table."""

    of: ReleasedSums
    column: str
    rows: Any

    @property
    def facts(self) -> ColumnFacts:
        """The facts of the column."""
        return self.of.facts.columns[self.column]

    @property
    def mechanism(self) -> AdditiveMechanism | None:
        """The mechanism of the column, or None if it is not additive."""
        known = self.of._known_mechanism(self.column)
        return known if isinstance(known, AdditiveMechanism) else None

    @property
    def counts(self) -> Any:
        """The number of drawn cells in each estimate."""
        rollup = self.of.facts.rollup
        if rollup is None:
            return np.ones(len(self.rows), np.int64)
        return to_numpy(self.of.table[rollup.number])[self.rows]

    @property
    def estimates(self) -> Estimates:
        """The estimates with their standard errors."""
        value, se = (self.of._as_floats(f"{self.column}{ending}")[self.rows] for ending in ("", "_se"))
        return Estimates(value, se)

    @property
    def noisy(self) -> Array:
        """The numbers to which the noise was added: the estimates, or the transformed values of a transformation."""
        found: Array = self.of._as_floats(self.column if self.mechanism else f"{self.column}_transformed")[self.rows]
        return found

    def noise(self, count: int) -> NoisySum:
        """Return the noise of the sum of so many cells, or of a transformed value."""
        known = self.of._known_mechanism(self.column)
        if isinstance(known, TransformationMechanism):
            return NoisySum(known.added, Fraction(fine_step(known.sigma)), count)
        assert isinstance(known, AdditiveMechanism)
        return NoisySum(known, self.facts.grid, count)

    def ends(self, level: float) -> tuple[Array, Array]:
        """Return intervals for the true sums as floats, rounded outwards."""
        low, high = self.of._interval(self.column, level)
        return as_floats(low, -1)[self.rows], as_floats(high, 1)[self.rows]

    def steps(self, grid: Fraction, ends_at: float | None = None) -> list[Any]:
        """Return the estimates or, with a level, the ends of intervals, as Python integers in steps of a grid.

        Infinite ends are floats. Where published floats are coarser than the grid, ends are moved outwards.
        """
        columns = [self.of.table[self.column]] if ends_at is None else self.of._interval(self.column, ends_at)
        times = int(self.facts.grid / grid)
        found = []
        for column, side in zip(columns, (0,) if ends_at is None else (-1, 1), strict=True):
            steps = as_floats(column).astype(object)
            finite = np.isfinite(steps.astype(float))
            whole = whole_units(column.filter(pa.array(finite)), self.facts.grid).astype(object)
            coarse = pa.types.is_floating(column.type) * side * _coarseness(whole)
            steps[finite] = (whole + coarse) * times
            found.append(steps[self.rows])
        return found


def _coarseness(units: Any) -> Any:
    """Return by how many units a published float may differ from the number of units that it stands for."""
    sizes = np.abs(units)
    return sizes // AMBIGUOUS_UNITS + (sizes >= AMBIGUOUS_UNITS)


def ratios(x: Numbers, y: Numbers, level: float, interval: str) -> Ratios:
    """Return the ratios of independent numbers (for "box", of any numbers) with intervals of a kind of `INTERVALS`."""
    if interval not in (BY_TEST, BY_BOX):
        return normal_ratios(x.estimates, y.estimates, level, interval)
    if interval == BY_BOX:
        x_ends, (y_low, y_high) = (one.ends(box_level(level)) for one in (x, y))
        if y.facts.at_least is not None:  # the smallest denominator of a ratio that exists
            y_low = np.maximum(y_low, float(y.facts.grid) if y.facts.on_grid else 0.0)
        return box_ratios(x.estimates, y.estimates, x_ends, (y_low, y_high))
    power = _known_power(x, y)
    if power is None:
        raise ParameterError(
            "interval",
            f'"exact" needs columns with additive noise, or with the same root, unlike {x.column!r} and {y.column!r}',
            code="unsupported",
            remedy='use "box"',
        )
    nonnegative = _nonnegative(x, y)
    a, b = (_bounds(one.noisy) for one in (x, y))

    def of_rows(rows: Any, n: int, m: int) -> tuple[Array, Array]:
        some, others = ((low[rows], high[rows]) for low, high in (a, b))
        return ratio_interval(some, others, x.noise(n), y.noise(m), level, nonnegative)

    low, high = (end.astype(float) for end in _by_counts(x.counts, y.counts, of_rows))
    if power != 1:  # of nonnegative sums
        with np.errstate(over="ignore"):
            low, high = low**power * (1 - RATIO_MARGIN), high**power * (1 + RATIO_MARGIN)
    return exact_ratios(x.estimates, y.estimates, (low, high), nonnegative)


def _known_power(x: Numbers, y: Numbers) -> float | None:
    """Return the power that turns a ratio of two numbers with known noise into that of the sums; None if there is none.

    With additive noise it is 1. For two kth roots without an offset it is k. Estimates that were raised to 0 have known
    noise where the true sums are known to be at least 0: raising them only widens the interval.
    """
    if x.mechanism is not None and y.mechanism is not None:
        clipped = x.facts.nonnegative or y.facts.nonnegative
        return None if clipped and not _nonnegative(x, y) else 1.0
    one, other = (number.of._known_mechanism(number.column) for number in (x, y))
    if x.of.facts.rollup or y.of.facts.rollup or not isinstance(one, Root) or not isinstance(other, Root):
        return None
    return float(one.k) if one.k == other.k and one.a == other.a == 0 else None


def _nonnegative(*numbers: Numbers) -> bool:
    """Whether the true sums are known to be at least 0."""
    return all(one.facts.at_least is not None for one in numbers)


def _ratio_kind(x: Numbers, y: Numbers) -> str:
    """Return the kind of interval for a ratio of independent numbers."""
    return BY_BOX if _known_power(x, y) is None else BY_TEST


def _bounds(values: Array, sizes: Array | None = None) -> tuple[Array, Array]:
    """Return bounds on the numbers that floats stand for, from their sizes."""
    error = PUBLISHED_FLOAT_ERROR * np.abs(values if sizes is None else sizes)
    return values - error, values + error


def _by_counts(x: Any, y: Any, function: Callable[[Any, int, int], tuple[Any, Any]]) -> tuple[Any, Any]:
    """Apply a function to all rows with the same numbers of cells at once."""
    low, high = np.empty(x.size, object), np.empty(x.size, object)
    pairs, groups = np.unique(np.stack([x, y]), axis=1, return_inverse=True)
    for i, (n, m) in enumerate(pairs.T.tolist()):
        rows = np.flatnonzero(groups.ravel() == i)
        low[rows], high[rows] = function(rows, n, m)
    return low, high


def growth(
    later: ReleasedSums, earlier: Any, columns: str | Sequence[str] | None = None, level: float = 0.95
) -> DerivedTable:
    """Return the growth of published sums; see `ReleasedSums.growth`."""

    def of_column(x: Numbers, y: Numbers) -> tuple[list[Any], str]:
        how = _ratio_kind(x, y)
        found = ratios(x, y, level, how)
        value = np.where(found.exists, found.value - 1, math.nan)
        low, high = np.nextafter(found.low - 1, -math.inf), np.nextafter(found.high - 1, math.inf)
        return _fractions(value, np.maximum(low, -1.0) if _nonnegative(x, y) else low, high), how

    return _compare(later, earlier, "growth", columns, level, of_column)


def difference(
    later: ReleasedSums, earlier: Any, columns: str | Sequence[str] | None = None, level: float = 0.95
) -> DerivedTable:
    """Return differences of published sums; see `ReleasedSums.difference`."""

    def of_column(x: Numbers, y: Numbers) -> tuple[list[Any], str]:
        grid = _common_grid(x.facts.grid, y.facts.grid)
        ((x_steps,), (y_steps,)) = (one.steps(grid) for one in (x, y))
        found = x_steps - y_steps
        clipped = x.facts.nonnegative or y.facts.nonnegative
        if x.mechanism is None or y.mechanism is None or clipped:
            (x_low, x_high), (y_low, y_high) = (one.steps(grid, box_level(level)) for one in (x, y))
            low, high, how = x_low - y_high, x_high - y_low, BY_BOX
        else:
            on_grid = x.facts.on_grid and y.facts.on_grid

            def half_widths(rows: Any, n: int, m: int) -> tuple[Any, Any]:
                half = difference_steps(x.noise(n), y.noise(m), level, on_grid, grid)
                return half, half

            half = _by_counts(x.counts, y.counts, half_widths)[0]
            for one, steps in ((x, x_steps), (y, y_steps)):
                if pa.types.is_floating(one.of.table[one.column].type):
                    half = half + _coarseness(steps)
            low, high, how = found - half, found + half, BY_TEST
        ends = zip((found, low, high), (0, -1, 1), strict=True)
        return [number_column(_plain(steps), grid, side) for steps, side in ends], how

    return _compare(later, earlier, "difference", columns, level, of_column)


def _common_grid(one: Fraction, other: Fraction) -> Fraction:
    """Return the largest number of which both units are multiples."""
    scale = one.denominator * other.denominator
    return Fraction(math.gcd(one.numerator * other.denominator, other.numerator * one.denominator), scale)


def _plain(steps: Any) -> Any:
    """Return Python integers as an array of integers, or of floats if any is infinite."""
    return steps.astype(float) if any(isinstance(one, float) for one in steps) else compact(steps)


def _fractions(value: Array, low: Array, high: Array) -> list[Any]:
    """Return fractions with the ends of their intervals as columns, rounded to significant digits."""
    ends = zip((value, low, high), (0, -1, 1), strict=True)
    return [pa.array(rounded(some, RATIO_DIGITS, side), from_pandas=True) for some, side in ends]


def _compare(
    later: ReleasedSums,
    given: Any,
    kind: str,
    columns: str | Sequence[str] | None,
    level: float,
    of_column: Callable[[Numbers, Numbers], tuple[list[Any], str]],
) -> DerivedTable:
    """Return a table with the rows of two tables that have the same keys, compared column by column."""
    level_quantile(level)
    if isinstance(given, Mapping):
        earlier, by = later, later.facts.by
        rows, partners, left = _within(later, given)
        notes = [f"rows left out: {left:,} without a partner"] if left else []
    else:
        earlier = _sums(given, "earlier")
        if _drawn(later) == _drawn(earlier):
            raise ParameterError(
                "earlier",
                f"has the noise of the same drawn table, {_drawn(later)[1]!r} of the release {later.whole.id}",
                code="same-release",
                remedy="give another release or, to compare the rows of one table, the label of the earlier ones",
            )
        by = later.facts.by
        if set(earlier.facts.by) != set(by):
            allowed = f"with the same key columns ({', '.join(by) or 'none'})"
            raise ParameterError("earlier", allowed=allowed, given=Shown(", ".join(earlier.facts.by) or "none"))
        rows, partners = _matched(later, earlier, by, "earlier")
        notes = _unmatched(len(later) - rows.size, len(earlier) - rows.size) + _other_records(later, earlier)
        notes += _other_order(later.whole.period, earlier.whole.period)
    known = [name for name in later.facts.columns if name in earlier.facts.columns]
    alone = [name for name in (*later.facts.columns, *earlier.facts.columns) if name not in known]
    if alone:
        notes.append(f"{', '.join(alone)}: in one of the tables only")
    results = {}
    for name in _chosen(columns, known):
        results[name] = of_column(Numbers(later, name, rows), Numbers(earlier, name, partners))
    if not isinstance(given, Mapping):
        notes += _other_columns(later, earlier, list(results))
    return _derived(later, later.table.take(to_arrow(rows)), by, kind, level, results, notes, earlier)


def _derived(
    first: ReleasedSums,
    labels: pa.Table,
    by: Sequence[str],
    kind: str,
    level: float,
    results: Mapping[str, tuple[list[Any], str]],
    notes: Iterable[str],
    second: ReleasedSums,
) -> DerivedTable:
    columns: dict[str, Any] = {key: labels[key] for key in by}
    for name, (found, _) in results.items():
        made = {f"{name}_{kind}{ending}": column for ending, column in zip(RESULT_ENDINGS, found, strict=True)}
        if taken := set(made) & set(columns):
            raise ParameterError("columns", f"would be two columns {min(taken)!r}", code="duplicate")
        columns |= made
    notes = list(notes)
    if boxes := [name for name, (_, how) in results.items() if how == BY_BOX]:
        notes.append(
            f"{', '.join(boxes)}: a box is the range of all results of a number in an interval for the one sum and a "
            f"number in an interval for the other, each at the level {percent(box_level(level))}"
        )
    return DerivedTable(
        table=pa.table(columns),
        kind=kind,
        by=tuple(by),
        level=float(level),
        intervals={name: how for name, (_, how) in results.items()},
        notes=tuple(notes),
        releases=tuple(dict.fromkeys((first.whole.id, second.whole.id))),
        private=first.whole.private and second.whole.private,
    )


def _sums(given: Any, argument: str) -> ReleasedSums:
    """Return a table of sums, or that of a release with one table."""
    found = getattr(given, "_only_sums", given)
    if not isinstance(found, ReleasedSums):
        remedy = "read the file with ss.read_release" if isinstance(given, str | os.PathLike) else None
        allowed = "a release with one table, or one of its tables"
        raise ParameterTypeError(argument, allowed=allowed, given=type(given), remedy=remedy)
    return found


def _drawn(table: ReleasedSums) -> tuple[str, str]:
    """Return the release and the drawn table whose noise a table has."""
    return table.whole.id, table.facts.rollup.of if table.facts.rollup else table.name


def _chosen(columns: str | Sequence[str] | None, known: Sequence[str]) -> list[str]:
    names = list(known) if columns is None else [columns] if isinstance(columns, str) else list(columns)
    for name in names:
        if name not in known:
            raise ParameterError("columns", allowed=tuple(known), given=name)
    if not names:
        raise ParameterError("columns", "are missing: no column is in both tables", code="missing")
    return list(dict.fromkeys(names))


def _matched(one: ReleasedSums, other: ReleasedSums, by: Sequence[str], argument: str) -> tuple[Any, Any]:
    """Return the rows of a table whose keys another table has, and the rows of that table."""
    for key in by:
        mine, its = one.table[key].type, other.table[key].type
        if mine != its:
            raise ParameterError(
                argument, f"has labels of type {its} in the key column {key!r}, and not {mine}", code="type"
            )
    if by:
        found = key_positions([one.table[key] for key in by], [other.table[key] for key in by])
    else:
        found = np.zeros(len(one), np.int64)
    rows = np.flatnonzero(found >= 0)
    if not rows.size:
        raise ParameterError(argument, "has no row with the keys of this table", code="empty")
    return rows, found[rows]


def _within(table: ReleasedSums, labels: Mapping[str, Any]) -> tuple[Any, Any, int]:
    """Return the rows of a table without those that have certain labels, and the rows with these labels in their place.

    The third value is the number of rows without a partner, which are left out.
    """
    by = table.facts.by
    if not labels:
        raise ParameterError("earlier", "has no label", code="empty", remedy="give that of the earlier rows")
    inside = np.full(len(table), True)
    for key, label in labels.items():
        if key not in by:
            raise ParameterError("earlier", allowed=by, given=key, code="unknown-column")
        known = _as_label(label, table.table[key].type)
        same = None if known is None else pc.equal(table.table[key], known)
        if same is None or not pc.any(same).as_py():
            raise ParameterError("earlier", f"must have a label of the key column {key!r}", code="value", given=label)
        inside &= np.asarray(same.to_numpy()).astype(bool)
    rows, partners = np.flatnonzero(~inside), np.flatnonzero(inside)
    others = [key for key in by if key not in labels]
    if others:
        found = key_positions(*([table.table[key].take(to_arrow(some)) for key in others] for some in (rows, partners)))
    else:
        found = np.zeros(rows.size, np.int64) if partners.size else np.full(rows.size, -1)
    left = np.sum(found < 0) + np.setdiff1d(np.arange(partners.size), found).size
    rows, partners = rows[found >= 0], partners[found[found >= 0]]
    if not rows.size or not partners.size:
        raise ParameterError("earlier", "has no row to compare with", code="empty", given=labels)
    return rows, partners, int(left)


def _as_label(given: Any, dtype: pa.DataType) -> pa.Scalar | None:
    """Return a label of a type, or None if the given value is not exactly such a label."""
    try:
        midnight = isinstance(given, datetime) and given.time() == time()
        label = given.date() if midnight else given
        found = pa.scalar(label, dtype)
        return found if found.as_py() == label else None
    except (ValueError, TypeError, NotImplementedError, OverflowError):
        return None


def _unmatched(later: int, earlier: int) -> list[str]:
    sides = (("later", later), ("earlier", earlier))
    found = [f"{count:,} in the {words} table only" for words, count in sides if count]
    return [f"rows left out: {', '.join(found)}"] if found else []


def _other_records(later: ReleasedSums, earlier: ReleasedSums) -> list[str]:
    """Return notes on tables whose sums are of other records by their facts."""
    notes = []
    if later.facts.where != earlier.facts.where:
        filters = (one.facts.where or "none" for one in (later, earlier))
        notes.append(f"the sums are of different records: the filters are {' and '.join(filters)}")
    if later.whole.partition != earlier.whole.partition:
        notes.append("the sums are of different records: the releases have different partitions")
    if later.facts.rollup and earlier.facts.rollup and later.whole.id != earlier.whole.id:
        numbers = (to_numpy(one.table[one.facts.rollup.number]).sum() for one in (later, earlier) if one.facts.rollup)
        if len(set(numbers)) > 1:
            notes.append("the roll-ups are sums of different numbers of cells")
    return notes


def _other_order(later: str | None, earlier: str | None) -> list[str]:
    """Return a note if the periods of two releases, which start with a year, are one, or suggest a swap."""
    if later and later == earlier:
        return [f"both tables are of the period {later}, so the results may show the noise only"]
    if later and earlier and all(re.match(r"\d{4}", period) for period in (later, earlier)) and later < earlier:
        return [f"the period of the later table, {later}, is before that of the earlier one, {earlier}: swap them?"]
    return []


def _other_columns(later: ReleasedSums, earlier: ReleasedSums, columns: Iterable[str]) -> list[str]:
    """Return notes on columns that are other quantities by their facts."""
    notes = []
    for name in columns:
        one, other = later.facts.columns[name], earlier.facts.columns[name]
        if later.facts.derived.get(name) != earlier.facts.derived.get(name):
            notes.append(f"{name} is computed by another expression in each table")
        if {one.negatives, other.negatives} == {"zero", "kept"}:
            notes.append(f"{name} counts negative values as 0 in one of the tables only")
    return notes


def share(
    table: ReleasedSums,
    of: Any = (),
    columns: str | Sequence[str] | None = None,
    level: float = 0.95,
    hierarchy: "Hierarchy | Iterable[Hierarchy] | None" = None,
) -> DerivedTable:
    """Return shares of cells in totals; see `ReleasedSums.share`."""
    from slowscale.release.rollup import check_addable, margin_of, roll_up

    level_quantile(level)
    everything = np.arange(len(table))
    if isinstance(of, str) or (isinstance(of, Iterable) and not hasattr(of, "tables")):
        margin = margin_of(table, of, hierarchy)
        names = _chosen(columns, list(table.facts.columns))
        results = {}
        for name in names:
            check_addable(table, name)
            x = Numbers(table, name, everything)
            if x.mechanism is None and table.facts.rollup:
                raise ParameterError(
                    f"table {table.name!r}",
                    "is a roll-up of transformed sums, which is not added up again",
                    code="unsupported",
                    remedy="name the table with the totals (`of`): a roll-up of the same cells by fewer keys",
                )
            if x.mechanism is None:
                total = roll_up(table, list(margin.labels), hierarchy)
                results[name] = _boxed_share(x, Numbers(total, name, margin.groups), level, inside=True)
                continue
            units = whole_units(table.table[name], x.facts.grid)
            sizes = np.abs(units.astype(float))
            totals = group_sums(units, margin.groups, margin.counts.size)[margin.groups]
            cells = group_sums(x.counts, margin.groups, margin.counts.size)[margin.groups]
            total_sizes = np.bincount(margin.groups, sizes)[margin.groups]
            results[name] = _exact_share(x, units, totals, cells - x.counts, total_sizes, level)
        results = {name: _alone(found, margin.counts[margin.groups] == 1) for name, found in results.items()}
        return _derived(table, table.table, table.facts.by, "share", level, results, (), table)
    total = _sums(of, "of")
    if total is table or (_drawn(total) == _drawn(table) and total.facts.by == table.facts.by):
        raise ParameterError("of", "is the table itself", code="same-release", remedy="give a table with fewer keys")
    if not set(total.facts.by) <= set(table.facts.by):
        allowed = f"a table whose key columns are among {', '.join(table.facts.by) or 'none'}"
        raise ParameterError("of", allowed=allowed, given=Shown(", ".join(total.facts.by)))
    if hierarchy is not None:
        raise ParameterError("hierarchy", "is for names of key columns and levels in `of`", code="conflict")
    rows, partners = _matched(table, total, total.facts.by, "of")
    known = [name for name in table.facts.columns if name in total.facts.columns]
    contained = _drawn(total) == _drawn(table)
    if contained:
        _check_contained(table, total)
    results = {}
    for name in _chosen(columns, known):
        x, y = Numbers(table, name, rows), Numbers(total, name, partners)
        if contained and x.mechanism is not None:
            units, totals = (whole_units(one.of.table[name], one.facts.grid)[one.rows] for one in (x, y))
            sizes = np.abs(totals.astype(float)) + np.abs(units.astype(float))
            results[name] = _exact_share(x, units, totals, y.counts - x.counts, sizes, level)
        elif not contained and _ratio_kind(x, y) == BY_TEST:
            found = ratios(x, y, level, BY_TEST)
            results[name] = _fractions(found.value, found.low, found.high), BY_TEST
        else:
            results[name] = _boxed_share(x, y, level, contained)
        if contained:
            results[name] = _alone(results[name], x.counts == y.counts)
    notes = [f"rows left out: {left:,} without a total"] if (left := len(table) - rows.size) else []
    notes += [*_other_records(table, total), *_other_columns(table, total, results)]
    return _derived(table, table.table.take(to_arrow(rows)), table.facts.by, "share", level, results, notes, total)


def _alone(found: tuple[list[Any], str], alone: Any) -> tuple[list[Any], str]:
    """Return shares in which those of cells that are alone in their total are exactly 1, whatever the noise is."""
    (value, *ends), how = found
    known = pc.and_(pa.array(alone), pc.is_valid(value))
    return [value, *(pc.if_else(known, 1.0, end) for end in ends)], how


def _check_contained(table: ReleasedSums, total: ReleasedSums) -> None:
    """Raise unless each total of the same drawn cells contains the cells of the rows with its labels.

    It does so if both tables group the cells in the same way by the levels of hierarchies among its labels.
    """
    some, others = ({} if one.facts.rollup is None else one.facts.rollup.groupings for one in (table, total))
    for level, grouping in others.items():
        if some.get(level) != grouping:
            raise ParameterError(
                "of",
                f"groups the cells by another {level!r} than this table, so its totals need not contain these sums",
                code="mismatch",
                remedy="roll up both tables with the same hierarchy, or give key columns in `of`",
            )


def _exact_share(x: Numbers, units: Any, totals: Any, others: Any, sizes: Array, level: float) -> tuple[list[Any], str]:
    """Return the shares of cells in totals that contain them, with the number of other cells in each total."""
    unit, nonnegative = float(x.facts.grid), _nonnegative(x)
    value, rest = units.astype(float) * unit, add(totals, -units).astype(float) * unit
    a, b = _bounds(value), _bounds(rest, sizes * unit)

    def of_rows(rows: Any, n: int, m: int) -> tuple[Array, Array]:
        some, left = ((low[rows], high[rows]) for low, high in (a, b))
        if not m:
            return np.ones(rows.size), np.ones(rows.size)
        return share_interval(some, left, x.noise(n), x.noise(m), level, nonnegative)

    low, high = (end.astype(float) for end in _by_counts(x.counts, others, of_rows))
    if nonnegative:
        value, rest = np.maximum(value, 0), np.maximum(rest, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(value + rest == 0, math.nan, value / (value + rest))
    return _fractions(np.where(others == 0, 1.0, shares), low, high), BY_TEST


def _boxed_share(x: Numbers, y: Numbers, level: float, inside: bool) -> tuple[list[Any], str]:
    """Return shares with the box of two intervals; those inside their totals are between 0 and 1 if no sum is < 0."""
    found = ratios(x, y, level, BY_BOX)
    value, low, high = np.where(found.exists, found.value, math.nan), found.low, found.high
    if _nonnegative(x, y):
        low = np.maximum(low, 0.0)
        if inside:
            value, high = np.minimum(value, 1.0), np.minimum(high, 1.0)
    return _fractions(value, low, high), BY_BOX
