"""The public report: what was published, with which guarantee and which errors, and what an attacker can learn.

It is generated from a release alone (and, if given, the total of the ledger and the sizes that the curator states), so
it contains public facts only. A release has one table, or several that were published together.
"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa

from slowscale import __version__
from slowscale.accounting import RecordPolicy, Spent
from slowscale.accounting.attackers import EVEN, EXAMPLE_ALARMS, alarms
from slowscale.accounting.explanation import LEVEL, at_most, titles
from slowscale.accounting.sizes import COUNT, SizesLike, read_sizes
from slowscale.core.errors import ParameterError, ParameterTypeError, band_in_words
from slowscale.core.numbers import (
    STANDARD_ERROR_DIGITS,
    format_number,
    grid,
    percent,
    published,
    rounded,
    rounded_figure,
)
from slowscale.mechanisms.calibration import ACCOUNTING
from slowscale.publish import Publication
from slowscale.publish.charts import Axis, LineChart, points
from slowscale.publish.profiles import described_columns
from slowscale.publish.report import guarantee
from slowscale.publish.report.pages import Cell, Labels, Row, Scope, listed, render, upper, write_page
from slowscale.release.columns import sum_powers, table_columns, table_policies
from slowscale.release.describing import (
    HEAVY,
    USUAL_SHARE,
    WIDE_INTERVAL,
    column_errors,
    is_transformed,
    rare_errors_dominate,
)
from slowscale.release.facts import NO_MEAN, ColumnFacts, Facts, TableFacts
from slowscale.release.quantiles import ReleasedQuantiles
from slowscale.release.release import Release
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
# In the map of tables: the height of a box, the space between boxes and inside them, the width of a letter, and the
# fewest and the most letters that boxes are wide.
BOX_HEIGHT, ACROSS, DOWN, PADDING, LETTER_WIDTH, FEWEST_LETTERS, MOST_LETTERS = 74, 44, 18, 12, 7, 30, 48


def write_report(
    release: Release,
    path: str | os.PathLike[str],
    *,
    spent: RecordPolicy | None = None,
    overwrite: bool = False,
    sizes: SizesLike | None = None,
    publication: Publication | None = None,
) -> Path:
    """Write the public report of a release: one HTML file that opens offline and prints well.

    The file is written completely or not at all.

    Parameters
    ----------
    release
        The release, which may have been read with `read_release`.
    path
        The file to write; its name must end in .html.
    spent
        The total loss of records by all releases up to this one, such as `session.spent`.
    overwrite
        Whether to replace an existing file.
    sizes
        Example records for which the report states the losses: a mapping from names to one value per column, such as
        {"median firm": {"emp": 12, "payann": 4e5}, "largest firm": {"emp": 150_000, "payann": 4e10}}, or to one number
        for all columns. One name must contain "largest". The sizes are published: state only what is public knowledge,
        and nothing that was looked up in the records.
    publication
        Titles, units of measure and names of groups that the report shows in place of the names of columns.
    """
    if publication is not None and not isinstance(publication, Publication):
        raise ParameterTypeError("publication", allowed="a Publication", given=type(publication))
    if not isinstance(release, Release):
        raise ParameterTypeError("release", allowed="a Release", given=type(release))
    if not release.sums:
        remedy = "the `note` of quantiles describes them"
        raise ParameterError("release", "must have a table of sums", code="empty", remedy=remedy)
    if spent is not None and not isinstance(spent, RecordPolicy):
        raise ParameterTypeError("spent", allowed="a RecordPolicy such as session.spent", given=type(spent))
    return write_page(path, lambda: public_page(release, spent, sizes, publication), overwrite=overwrite)


def public_page(
    release: Release,
    spent: RecordPolicy | None = None,
    sizes: SizesLike | None = None,
    publication: Publication | None = None,
) -> str:
    """Return the public report as HTML."""
    labels = Labels(publication)
    if publication is not None:
        for one in release.sums.values():
            publication.check_titles([*one.facts.columns, *one.facts.ratios])
    tables = {name: ReportedTable(one, labels) for name, one in release.sums.items()}
    columns = table_columns(release)
    # The sizes of a plan were checked before the release was charged, so they must not be refused now.
    others = None if isinstance(sizes, tuple) else () if spent is None else spent.columns
    scope = Scope.of(release, read_sizes(sizes, release.policy.columns, others), labels)
    several = len(release.tables) > 1
    first = next(iter(tables.values()))
    if publication is not None:
        title = publication.title
    elif several:
        title = f"{len(release.tables)} tables: {', '.join(release.tables)}"
    else:
        title = f"{upper(first.contents)}, {'by ' + first.groups if first.by else 'in total'}"
    return render(
        "report.html",
        title=title,
        publication=publication,
        facts=release.facts,
        closed=release.facts.accounting != ACCOUNTING,
        tables=list(tables.values()),
        drawn=[tables[name] for name in release.drawn if name in tables],
        quantiles=[one for one in release.tables.values() if isinstance(one, ReleasedQuantiles)],
        number=len(release.tables),
        number_drawn=len(release.drawn),
        several=several,
        table=first,
        labels=labels,
        scope=scope,
        depends_on_size=bool(release.policy.columns),
        counts=COUNT in release.policy.columns,
        rules=guarantee.rules(columns if len(columns) > 1 else {"": scope.columns}, scope),
        alarms=alarms(EXAMPLE_ALARMS),
        rate=EXAMPLE_ALARMS,
        even=EVEN,
        terms=titles(scope.band),
        near=band_in_words(scope.band),
        level=LEVEL,
        **guarantee.answers(scope),
        accuracy=Accuracy.of(release, labels),
        column_groups=column_groups(release, labels),
        usual=USUAL_SHARE,
        heavy=HEAVY,
        wide=WIDE_INTERVAL,
        bounded=guarantee.bounded,
        versions=f"slowscale {__version__}, Altair {version('altair')}, vl-convert {version('vl-convert-python')}",
        spent=None if spent is None else guarantee.losses_by_all(spent, release.policy, scope),
        releases=spent.releases if isinstance(spent, Spent) else None,
        spent_assumed=[] if spent is None else scope.assumed(spent.columns),
        **(_of_several(release, scope) if several else _of_one(release, scope)),
    )


def _of_one(release: Release, scope: Scope) -> dict[str, object]:
    """Return the values for one table: its errors, what can be learned, and the tables published with it."""
    facts = release.facts
    values: dict[str, object] = {
        "chart": guarantee.policy_chart(scope, f"Privacy loss of a {scope.noun}, by its size."),
        "errors": standard_errors(scope),
        "learned": guarantee.learned_by_column(scope),
        "member": None,
    }
    if len(facts.tables) > 1:
        values |= {
            "member": next(iter(release.tables)),
            "map": TableMap.of(facts, {}, scope.labels, next(iter(release.tables))),
            "losses": guarantee.losses_by_table({}, release.policy, scope),
            "assumed": scope.assumed(release.policy.columns),
        }
    return values


def _of_several(release: Release, scope: Scope) -> dict[str, object]:
    """Return the values for several tables: a map and a list of them, and the losses by each and by all."""
    size, policies = scope.sizes[-1], table_policies(release)
    losses = {name: size.loss(policy) for name, policy in policies.items()}
    notes = {name: f"loss {at_most(loss)} at {size.name}" for name, loss in losses.items() if loss is not None}
    whole = replace(scope, columns=guarantee.whole_columns(scope.columns, release.policy))
    rows: list[Row] = []
    for name, one in release.tables.items():
        facts = one.facts
        how = "drawn" if facts.drawn else f"derived from {facts.of}"
        by, cells = "quantiles", "–"
        if name in release.sums:
            table = ReportedTable(release.sums[name], scope.labels)
            by, cells = table.groups or "total", table.cells_added
        rows.append([Cell(name, anchor=f"table-{name}"), by, f"{facts.rows:,}", how, cells])
    return {
        "table_rows": rows,
        "map": TableMap.of(release.facts, notes, scope.labels),
        "chart": guarantee.policy_chart(whole, f"Privacy loss of a {scope.noun} by the whole release, by its size."),
        "losses": guarantee.losses_by_table(policies, release.policy, scope),
    }


@dataclass(frozen=True)
class Box:
    """A table in the map of tables: its place, whether it is drawn, and its lines of text with their classes."""

    x: int
    y: int
    kind: str
    here: bool
    lines: list[tuple[str, str]]


@dataclass(frozen=True)
class TableMap:
    """A drawing of the tables as boxes, from drawn ones on the left to derived ones on the right, with arrows."""

    width: int
    height: int
    boxes: list[Box]
    arrows: list[str]
    words: str
    box_width: int
    box_height: int = BOX_HEIGHT

    @staticmethod
    def of(described: Facts, notes: Mapping[str, str], labels: Labels, here: str = "") -> "TableMap":
        """Return the map; `notes` has a short text for drawn tables, such as the loss, and `here` is marked."""
        boxes, arrows, words = [], [], []
        lines: dict[str, list[tuple[str, str]]] = {}
        for name, facts in described.tables.items():
            by = "quantiles" if facts.quantiles else "total"
            by = f"by {', '.join(map(labels.key, facts.by))}" if facts.by else by
            size = f"{facts.rows:,} {'row' if facts.rows == 1 else 'rows'}, {'drawn' if facts.drawn else 'derived'}"
            note = notes.get(name, "") if facts.drawn else "no further loss"
            texts = [("name", name), ("", by), ("", size), ("note", note)]
            lines[name] = [
                (role, text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 1]}…") for role, text in texts
            ]
        letters = max(len(text) for some in lines.values() for _, text in some)
        box_width = 2 * PADDING + LETTER_WIDTH * max(FEWEST_LETTERS, letters)
        corners = {
            name: (i * (box_width + ACROSS), j * (BOX_HEIGHT + DOWN))
            for name, (i, j) in _places(described.tables).items()
        }
        for name, facts in described.tables.items():
            x, y = corners[name]
            boxes.append(Box(x, y, "drawn" if facts.drawn else "derived", name == here, lines[name]))
            words.append(f"{name} is drawn" if facts.of is None else f"{name} is derived from {facts.of}")
            if facts.of is not None:  # an arrow from the right side of one box to the left side of the other
                start, start_y = corners[facts.of][0] + box_width, corners[facts.of][1] + BOX_HEIGHT // 2
                end_y = y + BOX_HEIGHT // 2
                arrows.append(f"M{start} {start_y}H{start + ACROSS // 2}V{end_y}H{x}")
                arrows.append(f"M{x - 7} {end_y - 4}L{x} {end_y}L{x - 7} {end_y + 4}")
        width, height = (max(corner[i] for corner in corners.values()) for i in (0, 1))
        return TableMap(width + box_width + 2, height + BOX_HEIGHT + 2, boxes, arrows, "; ".join(words), box_width)


def _places(tables: Mapping[str, TableFacts]) -> dict[str, tuple[int, int]]:
    """Return the column and the row of each table: each table is right of its source, and no two share a row."""
    found: dict[str, tuple[int, int]] = {}

    def place(name: str, column: int, line: int) -> int:
        """Place a table and all that is derived from it; return the row after the last one used."""
        found[name] = (column, line)
        below = line
        for other, facts in tables.items():
            if facts.of == name:
                below = place(other, column + 1, below)
        return max(below, line + 1)

    free = 0
    for name, facts in tables.items():
        if facts.drawn:
            free = place(name, 0, free)
    return found


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
        """The public facts about the table."""
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
            title = titles[self.name]
            return title if title.casefold() == self.name.casefold() else f"{title} ({self.name})"
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
            total = "count" if column.is_count else "sum"
            words = "" if made_by is None else made_by.words.format(total=total)
            rows.append(
                [
                    Cell(label.title, code="" if label.title == name else name),
                    kind if label.unit is None else f"{kind}, in {label.unit}",
                    Cell(words, code=column.described),
                    grid(column.grid),
                    bias_in_words(column),
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
        """How the sums of a roll-up are made."""
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
        for values in self.release.head(ROWS_SHOWN).to_pylist():
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
            column.kind == "count"
            or (column.at_least is not None and is_transformed(column) and column.estimator == "mean")
            for column in self.facts.columns.values()
            if not column.nonnegative
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
    def wide(self) -> bool:
        """Whether intervals of sums of cells are much wider than their standard errors suggest."""
        return self.facts.rollup is not None and any(map(is_transformed, self.facts.columns.values()))

    @property
    def transformed(self) -> list[str]:
        """The columns whose error grows with the sum."""
        return [self.labels.title(name) for name, column in self.facts.columns.items() if is_transformed(column)]


def bias_in_words(column: ColumnFacts) -> str:
    """Return the bias of a column by its estimator and by rounding."""
    bias = BIAS_OF_ESTIMATOR.get(column.estimator, "Not stated: the estimator is a user-given function.")
    if column.rounding_bias <= 1e-3 * float(column.grid):
        return bias
    rounding = f"t most {format_number(column.rounding_bias)} by rounding to the unit."
    return f"A{rounding}" if column.estimator == "mean" else f"{bias} Besides, a{rounding}"


@dataclass(frozen=True)
class Accuracy:
    """How wrong the drawn numbers can be: one row per column and true sum, with or without the standard error."""

    rows: Sequence[Row]
    with_se: Sequence[Row]
    heavy: Sequence[str]

    @staticmethod
    def of(release: Release, labels: Labels) -> "Accuracy":
        """Return the errors of all columns of the drawn tables; equal ones once.

        All tables have the errors of one large sum, so that how many rows there are follows from public facts.
        """
        rows: dict[tuple[str, str, str, str], str] = {}
        heavy: dict[str, None] = {}
        drawn = {table: facts for table, facts in release.facts.tables.items() if facts.drawn}
        for facts in drawn.values():
            for name, column in facts.columns.items():
                title = labels.with_unit(name)
                having = [
                    one._as_floats(name)
                    for table, one in release.sums.items()
                    if table in drawn and name in one.facts.columns
                ]
                numbers = pa.table({name: np.concatenate(having)}) if having else None
                errors = column_errors(name, column, numbers)
                heavy |= {title: None} if rare_errors_dominate(errors) else {}
                for one in errors:
                    cells = (
                        f"cells of {format_number(one.at)}" if one.at else "small cells" if one.grows else "all cells"
                    )
                    rows[title, cells, one.text(one.usual), one.text(one.rare).removeprefix("± ")] = rounded_figure(
                        float(rounded(one.std, STANDARD_ERROR_DIGITS, int(one.grows)))
                    )
        return Accuracy(
            [list(row) for row in rows],
            [[title, cells, se, *errors] for (title, cells, *errors), se in rows.items()],
            list(heavy),
        )


def column_groups(release: Release, labels: Labels) -> list[guarantee.Group]:
    """Return what each column of the files is, by table; a column is left out where a table before has the same."""
    found: list[guarantee.Group] = []
    seen = set()
    for name, one in release.sums.items():
        publication = labels.publication or Publication(name)
        described = described_columns(one, publication, large=False)  # the table of errors has those
        rows: list[Row] = []
        for column in one.column_names:
            if column in described and (entry := (column, described[column].text)) not in seen:
                seen.add(entry)
                rows.append([Cell("", code=column), described[column].text])
        if rows:
            found.append((name if len(release.sums) > 1 else "", rows))
    return found


@dataclass(frozen=True)
class Errors:
    """The standard errors by true sum: a chart if they vary, and the columns that it cannot show and why."""

    chart: LineChart | None
    unknown: Sequence[str]
    endless: Sequence[str]


def standard_errors(scope: Scope) -> Errors:
    """Return the standard error of each column, for sums from about the noise to large ones."""
    powers = [sum_powers(column, scope.sizes) for column in scope.columns]
    low, high = min(first for first, _ in powers), max(last for _, last in powers)
    shown = [10.0**power for power in range(low, high + 1, math.ceil((high - low) / (SUMS_SHOWN - 1)))]
    values = np.union1d(np.geomspace(10.0**low, 10.0**high, 121), shown)
    lines, unknown, endless, varies = {}, [], [], False
    for column in scope.columns:
        name, errors = scope.labels.with_unit(column.name), column.errors(values)
        if errors is None:
            unknown.append(name)
        elif np.isfinite(errors).any():
            lines[name] = points(values, errors)
            varies |= bool(np.nanmax(errors) > np.nanmin(errors) * (1 + 1e-9))
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
    return Errors(chart if varies else None, unknown, endless)
