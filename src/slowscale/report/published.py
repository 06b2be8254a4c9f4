"""What was published: the columns, an excerpt of the table, and the errors."""

import math
import re
from fractions import Fraction

import numpy as np

from slowscale.columns import sum_powers
from slowscale.facts import ColumnFacts, RatioFacts, RollupFacts
from slowscale.figures import figure, grid, percent, published, rounded_figure
from slowscale.publication import Publication
from slowscale.release import Release
from slowscale.release.release import released_by, rollup_in_words
from slowscale.report.charts import Axis, LineChart, points
from slowscale.report.labels import Labels
from slowscale.report.page import Html, Section, caption, cell, facts, head, joined, paragraph, row, table, tag
from slowscale.report.scope import Scope
from slowscale.report.words import BIAS_OF_ESTIMATOR, listed

ROWS_SHOWN, COLUMNS_SHOWN = 10, 6  # the most rows and columns of the table that are shown
SUMS_SHOWN = 7  # the most sums at which the errors are listed
TRANSFORMED = (
    ": the published standard error is the standard deviation at the median estimate of the sum. It is as likely too "
    "high as too low, and never below the standard deviation of an empty cell. The noise is skewed: use the "
    "interval, not ±2 standard errors."
)


def group_columns(release: Release) -> list[str]:
    """Return the columns that the table is grouped by."""
    return list(release.facts.cells.columns) if release.facts.cells else []


def about_publication(publication: Publication | None) -> list[Html]:
    """Return where the numbers come from, and the notes of the publication."""
    if publication is None:
        return []
    about = {"Source": publication.source, "Period": publication.period, "Contact": publication.contact}
    entries = [(name, text) for name, text in about.items() if text is not None]
    entries += [("Note", note) for note in publication.notes]
    return [facts(entries)] if entries else []


def published_section(release: Release, labels: Labels, numbers: tuple[str, str] = ("Table 1.", "Table 2.")) -> Section:
    """Return the section on what was published; its two tables have these numbers."""
    columns = release.facts.columns
    rows = []
    for name, column in columns.items():
        kind = "number of records" if column.kind == "count" else "sum"
        label = labels.column(name)
        kind += "" if label.unit is None else f", in {label.unit}"
        title = name if label.title == name else joined([label.title, " ", tag("code", name)])
        made_by = released_by(column)
        words = "" if made_by is None else made_by.words
        if column.is_count:
            words = re.sub(r"\b([Tt]he) sum\b", r"\1 count", words)
        how = [words, " ", tag("code", column.described)]
        bias = BIAS_OF_ESTIMATOR.get(column.estimator, "Not stated: the estimator is a function of the curator's.")
        if (column.rounding_bias or 0.0) > 1e-3 * float(column.grid):
            rounding = f"t most {figure(column.rounding_bias)} by rounding to the unit."
            bias = f"A{rounding}" if column.estimator == "mean" else f"{bias} Besides, a{rounding}"
        rows.append(
            row(
                head(title, "row"),
                cell(kind, False),
                cell(joined(how), False),
                cell(grid(column.grid)),
                cell(bias, False),
                cell(percent(column.level)),
            )
        )
    top = row(
        head("Column"),
        head("Contents"),
        head("Mechanism"),
        head("Unit", numeric=True),
        head("Bias"),
        head("Level", numeric=True),
    )
    parts = [
        table(caption(numbers[0], "The published columns."), [top], [tag("tbody", *rows)], "The published columns"),
        *(
            paragraph(
                tag("strong", labels.with_unit(name)),
                f" is {labels.title(one.numerator)} / {labels.title(one.denominator)}, computed from the published "
                f"numbers, so it adds nothing to the loss of any record. {_ratio(one)}",
            )
            for name, one in release.facts.ratios.items()
        ),
        _example(release, labels, numbers[1]),
    ]
    if release.facts.rollup:
        parts[1:1] = _rollup(release.facts.rollup, labels)
    return Section("published", "What was published", "What was published", parts)


def _rollup(rollup: RollupFacts, labels: Labels) -> list[Html]:
    """Return what the sums of a roll-up are made of, and how their intervals were computed."""
    rules = [
        paragraph(tag("strong", labels.title(name)), f": the interval comes from {rule}.")
        for name, rule in rollup.rules.items()
    ]
    made = f"{rollup_in_words(rollup)} They are computed from published numbers, so no record loses more by them."
    return [paragraph(made), *rules]


def _ratio(facts: RatioFacts) -> str:
    """Return how a ratio is computed, and how accurate it is."""
    level = percent(facts.level)
    if facts.approximate:
        return f"Its standard error and its {level} interval are approximate."
    return (
        "Both numbers are first moved into their intervals, and a count to at least 1. The ratio is biased if the "
        f"denominator is small, and its standard error is approximate. Its {level} interval is not approximate."
    )


def _example(release: Release, labels: Labels, table_number: str) -> Html:
    shown = [(name, column.grid) for name, column in release.facts.columns.items()]
    estimates: list[tuple[str, Fraction | None]] = [*shown, *((name, None) for name in release.facts.ratios)]
    rows = []
    for values in release.table.slice(0, ROWS_SHOWN).to_pylist():
        cells = [head(labels.group(key, values[key]), "row") for key in group_columns(release)]
        for name, unit in estimates[:COLUMNS_SHOWN]:
            found = [values[f"{name}{suffix}"] for suffix in ("", "_low", "_high")]
            if unit is None:
                number, low, high = (rounded_figure(one, side) for one, side in zip(found, (0, -1, 1), strict=True))
            else:
                number, low, high = (published(one, unit, side) for one, side in zip(found, (0, -1, 1), strict=True))
            estimate = f"{number} ({rounded_figure(values[f'{name}_se'])})"
            cells.append(cell(joined([estimate, tag("small", f"{low} to {high}")])))
        rows.append(row(*cells))
    keys = map(labels.key, group_columns(release))
    heads = (head(labels.with_unit(name), numeric=True) for name, _ in estimates[:COLUMNS_SHOWN])
    top = row(*map(head, keys), *heads)
    parts = [f"the first {ROWS_SHOWN} of {len(release):,} rows"] if len(release) > ROWS_SHOWN else []
    parts += [f"the first {COLUMNS_SHOWN} of {len(estimates)} columns"] if len(estimates) > COLUMNS_SHOWN else []
    many = f"An excerpt: {listed(parts)}." if parts else "The whole table."
    note = (
        " Standard errors are in brackets. The interval below each number contains the true value with the probability "
        "of its level."
    )
    if any(_may_lie_outside(column) for column in release.facts.columns.values()):
        note += (
            " The estimate of a sum or count can lie outside its interval, and below 0, because it is unbiased, "
            "whereas the interval takes into account that the true number is not below 0."
        )
    return table(caption(table_number, many, note), [top], [tag("tbody", *rows)], many)


def _error_grows(column: ColumnFacts) -> bool:
    """Return whether the error grows with the sum; True if the mechanism uses a function that cannot be described."""
    made_by = released_by(column)
    return made_by is None or made_by._error_grows


def _may_lie_outside(column: ColumnFacts) -> bool:
    """Return whether an estimate may lie outside its interval, which takes into account that sums are not below 0."""
    unbiased = _error_grows(column) and column.estimator == "mean"
    return not column.nonnegative and (unbiased or column.kind == "count")


def error_section(release: Release, scope: Scope) -> Section:
    """Return the section with the standard error of each column, for sums from about the noise to large ones."""
    low, high = (end([powers[i] for powers in _powers(scope)]) for i, end in enumerate((min, max)))
    shown = [10.0**power for power in range(low, high + 1, math.ceil((high - low) / (SUMS_SHOWN - 1)))]
    values = np.union1d(np.geomspace(10.0**low, 10.0**high, 121), shown)
    lines, unknown, endless = {}, [], []
    for released in scope.columns:
        name, errors = scope.labels.with_unit(released.name), released.errors(values)
        if errors is None:
            unknown.append(name)
        elif np.isfinite(errors).any():
            lines[name] = points(values, errors)
        else:
            endless.append(name)
    added = (
        [
            paragraph(
                "The numbers of this table are sums of published cells, whose noise is drawn independently. This "
                "section is about the standard error of one cell. The variances of the cells of a sum add up."
            )
        ]
        if release.facts.rollup
        else []
    )
    parts = [
        *added,
        paragraph(
            "The noise of every number is drawn independently. If noise is added to the sum itself, the standard error "
            "is the same for all sums. If the sum is transformed first, the standard error grows with the sum. "
            "Rounding to the unit is included."
        ),
    ]
    if lines:
        chart = LineChart(
            "figure-error",
            "Figure 2. Standard error, by the true value of the sum.",
            "Both axes are logarithmic.",
            Axis("True value of the sum"),
            Axis("Standard error"),
            lines,
        )
        parts.append(chart.figure(shown))
    reasons = {
        ": the mechanism uses a function of the curator's, so the error cannot be drawn here. The table has a standard "
        "error for every number.": unknown,
        ": the noise has no standard error, or one too large to be written. The intervals are valid even so.": endless,
    }
    for reason, names in reasons.items():
        if names:
            parts.append(paragraph(tag("strong", listed(names)), reason))
    transformed = [scope.labels.title(name) for name, column in release.facts.columns.items() if _error_grows(column)]
    if transformed and not release.facts.rollup:
        parts.append(paragraph(tag("strong", listed(transformed)), TRANSFORMED))
    if any(column.nonnegative for column in release.facts.columns.values()):
        parts.append(paragraph("This is the error before results below 0 are set to 0."))
    return Section("error", "Standard errors", "Standard errors", parts)


def _powers(scope: Scope) -> list[tuple[int, int]]:
    return [sum_powers(column, scope.sizes) for column in scope.columns]
