"""What was published: the columns of each table, an excerpt, the errors, and the assumptions."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slowscale.core.numbers import format_number, grid, percent, published, rounded_figure
from slowscale.publish.charts import Axis, LineChart, points
from slowscale.publish.report.pages import Cell, Row, listed
from slowscale.publish.report.scope import Labels, Scope
from slowscale.release.columns import sum_powers
from slowscale.release.facts import NO_MEAN, ColumnFacts, TableFacts
from slowscale.release.table import ReleasedSums, released_by, rollup_in_words

ROWS_SHOWN, COLUMNS_SHOWN = 10, 6  # the most rows and columns of the table that are shown
SUMS_SHOWN = 7  # the most sums at which the errors are listed
LABELS_SHOWN = 12  # the most labels of a partition that are listed
BIAS_OF_ESTIMATOR = {
    "mean": "None: the result equals the true value on average over the noise.",
    "median": "None in the median: the result is as likely too high as too low.",
    NO_MEAN: "The noise has no mean, so there is no average to compare with the true value. None in the median: the "
    "result is as likely too high as too low.",
    "biased: clipped at 0": "Upwards: results below 0 are published as 0.",
}
TREATMENT_WORDS = {
    "error": "Not allowed: with such a value, the release would have been refused.",
    "zero": "Counted as 0.",
    "kept": "Included as they are.",
}


@dataclass(frozen=True)
class ReportedTable:
    """A table of sums in a report."""

    release: ReleasedSums
    labels: Labels

    @property
    def name(self) -> str:
        """The name of the table."""
        return self.release.name

    @property
    def facts(self) -> TableFacts:
        """What is public about the table."""
        return self.release.facts

    @property
    def by(self) -> list[str]:
        """The columns that the table is grouped by."""
        return list(self.facts.by)

    @property
    def groups(self) -> str:
        """What the table is grouped by, in words; "" for a total."""
        return listed([self.labels.key(name) for name in self.by])

    @property
    def heading(self) -> str:
        """The title of the table in a set."""
        titles = {} if self.labels.publication is None else self.labels.publication.tables
        if self.name in titles:
            return f"{titles[self.name]} ({self.name})"
        return f"{self.name}, {f'by {self.groups}' if self.by else 'in total'}"

    @property
    def contents(self) -> str:
        """The sums and counts of the table, in words."""
        sums = [self.labels.title(name) for name, column in self.facts.columns.items() if column.kind == "sum"]
        shown = [*sums[:3], f"{len(sums) - 3} more"] if len(sums) > 4 else sums
        counts = ["number of records"] if len(sums) < len(self.facts.columns) else []
        return listed([*([f"sums of {listed(shown)}"] if sums else []), *counts], "and the")

    @property
    def levels(self) -> str:
        """The confidence levels of the intervals."""
        return listed([percent(level) for level in sorted({one.level for one in self.facts.columns.values()})])

    @property
    def columns(self) -> list[Row]:
        """One row per column: its title, contents, mechanism, unit, bias and level."""
        rows: list[Row] = []
        for name, column in self.facts.columns.items():
            label, made_by = self.labels.column(name), released_by(column)
            kind = "number of records" if column.kind == "count" else "sum"
            words = "" if made_by is None else made_by.words
            if column.is_count:
                words = re.sub(r"\b([Tt]he) sum\b", r"\1 count", words)
            rows.append(
                [
                    Cell(label.title, code="" if label.title == name else name),
                    kind if label.unit is None else f"{kind}, in {label.unit}",
                    Cell(words, code=column.described),
                    grid(column.grid),
                    _bias(column),
                    percent(column.level),
                ]
            )
        return rows

    @property
    def cells_added(self) -> str:
        """How many published cells each number is the sum of."""
        if not self.facts.rollup:
            return "1"
        counts = self.release._as_floats(self.facts.rollup.number)
        low, high = int(counts.min()), int(counts.max())
        return f"{low:,}" if low == high else f"{low:,} to {high:,}"

    @property
    def rollup(self) -> str:
        """What the sums of a roll-up are made of."""
        return rollup_in_words(self.facts.rollup) if self.facts.rollup else ""

    @property
    def estimates(self) -> list[str]:
        """The columns and ratios."""
        return [*self.facts.columns, *self.facts.ratios]

    @property
    def excerpt_title(self) -> str:
        """Which part of the table the excerpt is."""
        rows, estimates = len(self.release), len(self.estimates)
        parts = [f"the first {ROWS_SHOWN} of {rows:,} rows"] if rows > ROWS_SHOWN else []
        parts += [f"the first {COLUMNS_SHOWN} of {estimates} columns"] if estimates > COLUMNS_SHOWN else []
        return f"An excerpt: {listed(parts)}." if parts else "The whole table."

    @property
    def excerpt_heads(self) -> list[str]:
        """The keys and the first columns."""
        return [*map(self.labels.key, self.by), *map(self.labels.with_unit, self.estimates[:COLUMNS_SHOWN])]

    @property
    def excerpt(self) -> list[Row]:
        """The first rows: the labels of keys, and the estimate, standard error and interval of each column."""
        rows: list[Row] = []
        for values in self.release.table.slice(0, ROWS_SHOWN).to_pylist():
            cells: list[str | Cell] = [self.labels.group(key, values[key]) for key in self.by]
            for name in self.estimates[:COLUMNS_SHOWN]:
                column = self.facts.columns.get(name)
                found = [(values[f"{name}{suffix}"], side) for suffix, side in (("", 0), ("_low", -1), ("_high", 1))]
                number, low, high = (
                    rounded_figure(one, side) if column is None else published(one, column.grid, side)
                    for one, side in found
                )
                cells.append(Cell(f"{number} ({rounded_figure(values[f'{name}_se'])})", small=f"{low} to {high}"))
            rows.append(cells)
        return rows

    @property
    def may_lie_outside(self) -> bool:
        """Whether an unbiased estimate may lie outside its interval, which takes into account that sums are not < 0."""
        return any(
            not column.nonnegative and (column.kind == "count" or (error_grows(column) and column.estimator == "mean"))
            for column in self.facts.columns.values()
        )

    @property
    def accuracy(self) -> list[Row]:
        """The smallest, median and largest standard error and width of the intervals, one row per column."""
        rows: list[Row] = []
        for name in self.facts.columns:
            errors = self.release._as_floats(f"{name}_se")
            widths = self.release._as_floats(f"{name}_high", 1) - self.release._as_floats(f"{name}_low", -1)
            numbers = [end(some) for some in (errors, widths) for end in (np.min, np.median, np.max)]
            rows.append([self.labels.with_unit(name), *(rounded_figure(float(one)) for one in numbers)])
        return rows

    @property
    def treatments(self) -> list[tuple[str, str]]:
        """How missing and negative values were treated, in one entry if it is the same for all columns."""
        entries = []
        for term, key in (("Missing values", "nulls"), ("Negative values", "negatives")):
            found: dict[str, list[str]] = {}
            for name, column in self.facts.columns.items():
                if getattr(column, key) is not None:
                    found.setdefault(getattr(column, key), []).append(self.labels.title(name))
            for how, names in found.items():
                entries.append((term if len(found) == 1 else f"{term} of {listed(names)}", TREATMENT_WORDS[how]))
        return entries

    @property
    def part(self) -> str:
        """The labels of the partition that the release is about."""
        assert self.release.whole.partition
        labels = [str(label) for label in self.release.whole.partition.labels]
        more = [f"{len(labels) - LABELS_SHOWN} more"] if len(labels) > LABELS_SHOWN else []
        return listed([*labels[:LABELS_SHOWN], *more], "or")

    @property
    def clipped(self) -> bool:
        """Whether results below 0 are published as 0."""
        return any(column.nonnegative for column in self.facts.columns.values())

    @property
    def transformed(self) -> list[str]:
        """The columns whose error grows with the sum."""
        return [self.labels.title(name) for name, column in self.facts.columns.items() if error_grows(column)]


def _bias(column: ColumnFacts) -> str:
    bias = BIAS_OF_ESTIMATOR.get(column.estimator, "Not stated: the estimator is a user-given function.")
    if column.rounding_bias <= 1e-3 * float(column.grid):
        return bias
    rounding = f"t most {format_number(column.rounding_bias)} by rounding to the unit."
    return f"A{rounding}" if column.estimator == "mean" else f"{bias} Besides, a{rounding}"


def error_grows(column: ColumnFacts) -> bool:
    """Return whether the error grows with the sum; True if the mechanism uses a function that cannot be described."""
    made_by = released_by(column)
    return made_by is None or made_by._error_grows


@dataclass(frozen=True)
class Errors:
    """The standard errors by true sum: a chart, and the columns that it cannot show and why."""

    chart: LineChart | None
    unknown: Sequence[str]
    endless: Sequence[str]


def standard_errors(scope: Scope) -> Errors:
    """Return the standard error of each column, for sums from about the noise to large ones."""
    powers = [sum_powers(column, scope.sizes) for column in scope.columns]
    low, high = min(first for first, _ in powers), max(last for _, last in powers)
    shown = [10.0**power for power in range(low, high + 1, math.ceil((high - low) / (SUMS_SHOWN - 1)))]
    values = np.union1d(np.geomspace(10.0**low, 10.0**high, 121), shown)
    lines, unknown, endless = {}, [], []
    for column in scope.columns:
        name, errors = scope.labels.with_unit(column.name), column.errors(values)
        if errors is None:
            unknown.append(name)
        elif np.isfinite(errors).any():
            lines[name] = points(values, errors)
        else:
            endless.append(name)
    chart = LineChart(
        "figure-error",
        "Standard error, by the true value of the sum.",
        "Both axes are logarithmic.",
        Axis("True value of the sum"),
        Axis("Standard error"),
        lines,
        shown,
    )
    return Errors(chart if lines else None, unknown, endless)
