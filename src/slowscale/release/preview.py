"""Previews: the cost and the accuracy of a request, before any record is read."""

import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace

import numpy as np

from slowscale.accounting import RecordPolicy, Spent
from slowscale.accounting.bands import Use
from slowscale.accounting.explanation import NOT_STATED, at_most
from slowscale.accounting.sizes import RecordSize, SizesLike, assumed_count, read_sizes, sizes_in
from slowscale.core.arrays import to_numpy
from slowscale.core.errors import CapError, ParameterError, ScaleWarning, SlowscaleError, band_in_words
from slowscale.core.markup import aligned
from slowscale.core.numbers import format_number, percent
from slowscale.mechanisms import AdditiveMechanism, Mechanism
from slowscale.mechanisms.calibration import CLOSED, notion_in_words
from slowscale.mechanisms.sum_intervals import sum_half_steps, sum_square_error
from slowscale.policy.bounded import BAND
from slowscale.release.bound import BoundQuantiles, BoundRequest, BoundSums
from slowscale.release.columns import ColumnPolicy, column_policies, example_sums, shown_sizes
from slowscale.release.quantiles import ranks_in_words
from slowscale.release.request import Request, Sums
from slowscale.release.rollup import roll_up
from slowscale.release.table import ReleasedSums, ReleasedTable


@dataclass(frozen=True)
class TablePreview:
    """The cost and the accuracy of one table of a set.

    Attributes
    ----------
    name
        The table.
    of, source
        The table that it is derived from, or None if it is drawn; and the drawn table whose cells it consists of.
    by, rows
        Its key columns and the number of its rows.
    cells
        The min, median and max number of cells that are added to one number of the table; 1 if it is drawn.
    policy
        The loss of a record by the table if it is drawn. For a derived table: the loss that drawing it, with the noise
        of its source, would add.
    columns
        Each column of the source with its policies, its unit and its standard errors.
    half_widths
        For each column with additive noise: half the width of the interval of a number with the min, median and max
        number of cells.
    level
        The level of the intervals.
    instead
        For a drawn table, another drawn table that it could be derived from, which would save its loss. None otherwise.
    cells_instead
        The min, median and max number of cells that would then be added to one number.
    rank_error, entity
        For quantiles: by how many records they may miss their ranks, all together with probability `level`; and the
        column of the entities whose totals are ranked, or None for the sizes of records.
    """

    name: str
    of: str | None
    source: str
    by: tuple[str, ...]
    rows: int
    cells: tuple[int, int, int]
    policy: RecordPolicy
    columns: tuple[ColumnPolicy, ...]
    half_widths: Mapping[str, tuple[float, float, float]]
    level: float
    instead: str | None = None
    cells_instead: tuple[int, int, int] = (1, 1, 1)
    rank_error: float | None = None
    entity: str | None = None

    @property
    def drawn(self) -> bool:
        """Whether the table has independent noise."""
        return self.of is None

    def errors(self, column: ColumnPolicy, at: float = 0.0) -> list[float]:
        """Return the standard errors of numbers with the min, median and max number of cells.

        Where the error of a cell depends on its sum, each cell is taken to have the sum `at`.
        """
        one, bias = float(column.errors(at)), 0.0
        if isinstance(column.mechanism, AdditiveMechanism) and column.on_grid is False:
            bias = column.mechanism._rounding_bias(column.unit, False)
        return [math.sqrt(sum_square_error(one * one, bias, cells)) for cells in self.cells]

    def describe(self) -> list[str]:
        """Return the table in words: its rows and its accuracy."""
        rows = "1 row" if self.rows == 1 else f"{self.rows:,} rows"
        if self.rank_error is not None:
            sizes = "record sizes" if self.entity is None else f"the totals of each {self.entity}"
            return [
                f"{self.name}: {self.rows} {'quantile' if self.rows == 1 else 'quantiles'} of {sizes}, drawn; with "
                f"probability {percent(self.level)} they miss their ranks by at most "
                f"{ranks_in_words(self.rank_error, self.entity)}"
            ]
        groups = f"{rows} by {', '.join(self.by)}" if self.by else "the total"
        if self.drawn:
            how = "drawn"
        else:
            few, median, most = self.cells
            number = f"{few:,} cells" if few == most else f"{few:,} to {most:,} cells (median {median:,})"
            how = f"derived from {self.of}; each number is the sum of {number} of the table {self.source}"
        lines = [f"{self.name}: {groups}, {how}"]
        for column in self.columns:
            lines.append(f"  {column.name}: {self._errors_in_words(column)}")
        return lines

    def _errors_in_words(self, column: ColumnPolicy) -> str:
        if column.mechanism is None:
            return "its error is not known"
        if column.name not in self.half_widths:
            words = []
            for at in example_sums(column, ()):
                error = self.errors(column, at)[1]
                words.append(
                    f"{format_number(error)} for {'a sum' if self.drawn else 'cells with sums'} of {format_number(at)}"
                )
            return f"standard error {', '.join(words)}"
        errors, widths = self.errors(column), self.half_widths[column.name]
        return f"standard error {_span(errors)}, {percent(self.level)} interval ± {_span(widths)}"


def _span(numbers: Sequence[float]) -> str:
    """Return the smallest, the median and the largest number in words; once if they are equal."""
    low, middle, high = map(format_number, numbers)
    return low if low == high else f"{low} to {high} (median {middle})"


@dataclass(frozen=True)
class Preview:
    """The cost and the accuracy of a request. It holds public facts only.

    Attributes
    ----------
    policy, pure_policy
        The loss of a record by the whole release, as PRzCDP and (or None) as PRDP.
    tables
        Each table, drawn or derived.
    warnings
        The warnings that `release` would give.
    refusal
        The `CapError` that `release` would raise now, or None.
    spent
        The total loss of a record by everything released before.
    accounting
        Which policy of each mechanism is charged: "tight" or "closed".
    protects
        The column that identifies the entity of a record, or None if single records are protected. Losses are then
        those of an entity in one cell of each drawn table.
    band_policy, band
        The loss between a record's values and others within the band, or None if none can be stated; and the factor of
        the band.
    """

    policy: RecordPolicy
    pure_policy: RecordPolicy | None
    tables: tuple[TablePreview, ...]
    warnings: tuple[str, ...]
    refusal: CapError | None
    spent: Spent
    accounting: str
    protects: str | None
    band_policy: RecordPolicy | None = None
    band: float = BAND

    @property
    def columns(self) -> tuple[ColumnPolicy, ...]:
        """The columns of all drawn tables, each with the loss of a record through it."""
        return tuple(column for table in self.tables if table.drawn for column in table.columns)

    def losses(self, sizes: SizesLike = ()) -> "dict[str, dict[str, float]]":
        """Return the losses of example records: by the whole release, and by each table.

        Parameters
        ----------
        sizes
            Example records, as in `Release.report`. The default sizes are powers of ten.

        Returns
        -------
        For the whole release, under "", and for each table: the loss by the name of the record. For a derived table it
        is the loss that drawing the table instead would add.
        """
        shown = self._shown(sizes)
        policies = {"": self.policy, **{table.name: table.policy for table in self.tables}}
        found: dict[str, dict[str, float]] = {}
        for name, policy in policies.items():
            found[name] = {size.name: loss for size in shown if (loss := size.loss(policy)) is not None}
        return found

    @property
    def _noun(self) -> str:
        return self.protects or "record"

    def _shown(self, sizes: SizesLike) -> tuple[RecordSize, ...]:
        return shown_sizes(self.columns, read_sizes(sizes) if len(sizes) else ())

    def describe(self, sizes: SizesLike = ()) -> str:
        """Return the preview as text, with the losses of example records.

        Parameters
        ----------
        sizes
            Example records, as in `Release.report`. The default sizes are powers of ten.
        """
        notion = notion_in_words(self.policy.notion, self.accounting)
        who = "record" if self.protects is None else f"{self.protects}, in one cell of each table"
        lines = [f"Loss per {who} ({notion}): {self.policy}", *self.table_lines(sizes), *self.warnings]
        return "\n".join([*lines, "Within all caps." if self.refusal is None else f"Refused: {self.refusal}"])

    def table_lines(self, sizes: SizesLike = (), width: int | None = None) -> list[str]:
        """Return the losses by each table, its errors, and the cost of alternatives, as lines of text.

        The lines of the table of losses are within the `width`, if one is given.
        """
        losses = self.losses(sizes)
        names = list(losses[""])
        drawn = [table for table in self.tables if table.drawn]
        rows = [("whole release", losses[""])]
        if len(self.tables) > 1:
            rows += [(f"{table.name} (drawn)", losses[table.name]) for table in drawn]
            rows += [(f"{table.name} (derived)", dict.fromkeys(names, 0.0)) for table in self.tables if not table.drawn]
        cells = [[name, *(at_most(one[size]) if size in one else "" for size in names)] for name, one in rows]
        near = f"its value, {band_in_words(self.band)} more or less"
        if self.band_policy is None:
            cells.append([near, *([NOT_STATED] * len(names))])
        else:
            within = {one.name: loss for one in self._shown(sizes) if (loss := one.loss(self.band_policy)) is not None}
            cells.append([near, *(at_most(within[size]) if size in within else "" for size in names)])
        lines = [f"The loss (PRzCDP) by the size of the {self._noun}:", *aligned([["", *names], *cells], width)]
        lines += assumed_count(self.protects, self.policy.columns, self._shown(sizes))
        for table in self.tables:
            lines += table.describe()
        return [*lines, *self._alternatives(losses), *self._splits(sizes)]

    def _alternatives(self, losses: Mapping[str, Mapping[str, float]]) -> list[str]:
        """Return what it would cost to draw a derived table, and what deriving a drawn one would save."""
        lines: list[str] = []
        for source in [table.name for table in self.tables if table.drawn]:
            derived = [table for table in self.tables if not table.drawn and table.source == source]
            last = next(reversed(list(losses[source])), None)
            if last is None or not derived:
                continue
            loss, total = losses[source][last], losses[""][last]
            names = " or ".join(table.name for table in derived)
            lines.append(
                f"Drawing {names} with the noise of {source}, instead of deriving it, raises the loss of a "
                f"{self._noun} of size {last} from {at_most(total)} to {at_most(total + loss)}"
                f"{', for each table that is drawn' if len(derived) > 1 else ''}."
            )
        for table in self.tables:
            last = next(reversed(list(losses[table.name])), None)
            if table.instead is None or last is None:
                continue
            loss, total = losses[table.name][last], losses[""][last]
            few, median, most = table.cells_instead
            number = f"{few:,}" if few == most else f"{few:,} to {most:,} (median {median:,})"
            lines.append(
                f"Deriving {table.name} from {table.instead}, instead of drawing it, lowers the loss of a "
                f"{self._noun} of size {last} from {at_most(total)} to {at_most(total - loss)}. Each number is then "
                f"the sum of {number} cells."
            )
        return lines

    def _splits(self, sizes: SizesLike) -> list[str]:
        """Return which noise would keep the loss of all drawn tables within that of one of them."""
        lines = []
        drawn = [table for table in self.tables if table.drawn]
        for column in {column.name: column for table in drawn for column in table.columns}.values():
            several = [table for table in drawn if any(other.name == column.name for other in table.columns)]
            first = next(other for other in several[0].columns if other.name == column.name)
            shown = sizes_in(first.name, self._shown(sizes))
            values = [1.0] if first.single else [size.value(first.name) or 0.0 for size in shown]
            if len(several) < 2 or first.mechanism is None:
                continue
            error = split_std(first.mechanism, len(several), values)
            if error is not None:
                lines.append(
                    f"If {len(several)} drawn tables are to cost a {self._noun} of these sizes no more through "
                    f"{first.name} than {several[0].name} alone, the noise needs a standard deviation of "
                    f"{format_number(error)} in each, in place of {format_number(float(first.mechanism.std(0)))}."
                )
        return lines

    def __str__(self) -> str:
        return self.describe()


def split_std(mechanism: Mechanism, tables: int, values: Sequence[float]) -> float | None:
    """Return the least standard deviation of such noise with which several tables cost what one costs with this noise.

    Parameters
    ----------
    mechanism
        The additive noise of one table. One parameter at a time is solved for.
    tables
        The number of tables.
    values
        The influences of records, at none of which all tables together may cost more.

    Returns
    -------
    The standard deviation, or None if it is not known.

    >>> from slowscale import ExponentialPolylog, Gaussian
    >>> round(split_std(Gaussian(sigma=10), 4, [100.0]), 3)
    20.0
    >>> round(split_std(ExponentialPolylog.calibrate(std=75), 2, [1.0, 1e4, 1e8]))
    4626
    """
    sizes = [value for value in values if value > 0]
    if not isinstance(mechanism, AdditiveMechanism) or not sizes:
        return None
    found = []
    most = max(sizes)
    given = {field.name: getattr(mechanism, field.name) for field in fields(mechanism)}  # type: ignore[arg-type]
    for name in mechanism._free:
        fixed = {other: value for other, value in given.items() if other != name}
        with suppress(SlowscaleError), warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore", ScaleWarning)
            loss = float(mechanism.policy(most)) / tables
            other = type(mechanism).calibrate(loss=loss, at=most, accounting=CLOSED, free=name, **fixed)
            if all(tables * other.policy(size) <= mechanism.policy(size) * (1 + 1e-9) for size in sizes):
                found.append(float(other.std()))
    return min(found, default=None)


def preview_of(bound: BoundRequest, refusal: CapError | None, spent: Spent) -> Preview:
    """Return the preview of a bound request."""
    band = None
    with suppress(ParameterError):  # no band can be stated
        band = bound.charge.band_policy(bound.facts.band)
    return Preview(
        bound.policy,
        bound.pure_policy,
        tuple(_table_preview(bound, name) for name in bound.request),
        tuple(bound.warnings),
        refusal,
        spent,
        bound.facts.accounting,
        bound.records.protect,
        band,
        bound.facts.band,
    )


def _table_preview(bound: BoundRequest, name: str) -> TablePreview:
    request, source = bound.request, bound.request.source(name)
    drawn, rollup = bound.tables[source], request.rollups.get(name)
    cells = (1, 1, 1) if rollup is None else _cells_added(bound.outlines[name])
    instead = _derivable_from(request, name) if rollup is None else None
    cells_instead = (1, 1, 1)
    if instead is not None:
        levels = [one for one in request.hierarchies if set(one.levels) & set(request.by(name))]
        outline = bound.outlines[instead]
        assert isinstance(outline, ReleasedSums)
        cells_instead = _cells_added(roll_up(outline, request.by(name), levels or None))
    columns: tuple[ColumnPolicy, ...] = ()
    widths = {}
    if isinstance(drawn, BoundSums):
        on_grid = {column: drawn.on_grid(column) for column in drawn.mechanisms}
        entity, facts = drawn.records.protect is not None, drawn.facts().to_dict()
        uses = {column: Use.of(facts, column, entity) for column in drawn.mechanisms}
        columns = column_policies(
            drawn.policy, drawn.mechanisms, drawn.sums.units, on_grid, drawn.accounting, uses, bound.facts.largest
        )
        for column, mechanism in drawn.mechanisms.items():
            if isinstance(mechanism, AdditiveMechanism):
                unit = drawn.sums.units[column]
                steps = sum_half_steps(mechanism, unit, drawn.level, drawn.on_grid(column), np.array(cells))
                few, median, most = (float(step * unit) if math.isfinite(step) else math.inf for step in steps)
                widths[column] = few, median, most
    return TablePreview(
        name,
        None if rollup is None else rollup.of,
        source,
        request.by(name),
        bound.facts.tables[name].rows,
        cells,
        drawn.policy,
        columns,
        widths,
        request.level,
        instead,
        cells_instead,
        drawn.ranks.rank_error(request.level) if isinstance(drawn, BoundQuantiles) else None,
        bound.records.protect if isinstance(drawn, BoundQuantiles) else None,
    )


def _cells_added(outline: ReleasedTable) -> tuple[int, int, int]:
    """Return the min, median and max number of cells that are added to one number of a roll-up."""
    assert outline.facts.rollup
    counts = np.sort(to_numpy(outline.table[outline.facts.rollup.number]))
    return int(counts[0]), int(counts[(len(counts) - 1) // 2]), int(counts[-1])


def _derivable_from(request: Request, name: str) -> str | None:
    """Return another drawn table that a drawn table could be derived from, as far as the request tells, or None."""
    wanted, by = request.drawn[name], set(request.by(name))
    for other, source in request.drawn.items():
        if other == name or not isinstance(wanted, Sums) or not isinstance(source, Sums):
            continue
        reachable = {*source.by, *request.levels_above(other)}
        if source.keys is None or source.nonnegative or not by <= reachable or by == set(source.by):
            continue
        if not set(wanted.columns) <= set(source.columns) or (wanted.count is not None and source.count is None):
            continue
        same = replace(
            wanted, columns=source.columns, count=source.count, keys=source.keys, unit=source.unit,
            means=source.means, nonnegative=source.nonnegative,
        )  # fmt: skip
        if same == source:
            return other
    return None
