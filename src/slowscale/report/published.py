"""What was published: the columns, an example of the table, and how large the error is."""

import math
from fractions import Fraction

import numpy as np

from slowscale.columns import sum_powers
from slowscale.facts import ColumnFacts, RatioFacts
from slowscale.figures import figure, grid, percent, published, rounded_figure
from slowscale.release import Release
from slowscale.release.release import released_by
from slowscale.report.charts import Axis, LineChart, points
from slowscale.report.page import Html, Section, caption, cell, head, joined, paragraph, row, table, tag
from slowscale.report.scope import Scope
from slowscale.report.words import ESTIMATORS, listed

ROWS, COLUMNS = 10, 6  # of the table, as an example
SUMS = 7  # at which the error is told, at most
TRANSFORMED = (
    ": the published standard error is the standard deviation at the median estimate of the sum, which is as likely "
    "too high as too low, and never below the standard deviation of an empty cell. The noise is skewed: use the "
    "interval, not ±2 standard errors."
)


def group_columns(release: Release) -> list[str]:
    """Return the columns that the table is grouped by."""
    return list(release.facts.cells.columns) if release.facts.cells else []


def published_section(release: Release) -> Section:
    """Say what was published."""
    columns = release.facts.columns
    rows = []
    for name, column in columns.items():
        kind = "number of records" if column.kind == "count" else "sum"
        made_by = released_by(column)
        how = ["" if made_by is None else made_by.words, " ", tag("code", column.described)]
        bias = ESTIMATORS.get(column.estimator, "Not stated: the estimate is a function of the curator's.")
        if (column.rounding_bias or 0.0) > 1e-3 * float(column.grid):
            more = f"t most {figure(column.rounding_bias)} by rounding to the unit."
            bias = f"A{more}" if column.estimator == "mean" else f"{bias} Besides, a{more}"
        rows.append(
            row(
                head(name, "row"),
                cell(kind, False),
                cell(joined(how), False),
                cell(grid(column.grid)),
                cell(bias, False),
                cell(percent(column.level)),
            )
        )
    top = row(
        head("Column"),
        head("What"),
        head("Mechanism"),
        head("Unit", numeric=True),
        head("Bias"),
        head("Level", numeric=True),
    )
    parts = [
        table(caption("Table 1.", "The published columns."), [top], [tag("tbody", *rows)], "The published columns"),
        *(
            paragraph(
                tag("strong", name),
                f" is {one.numerator} / {one.denominator}, computed from what was published, so no record loses "
                f"more by it. {_ratio(one)}",
            )
            for name, one in release.facts.ratios.items()
        ),
        _example(release),
    ]
    return Section("published", "What was published", "What was published", parts)


def _ratio(facts: RatioFacts) -> str:
    """Say what a ratio is, and how exact."""
    level = percent(facts.level)
    if facts.approximate:
        return f"Its standard error and its {level} interval are approximate."
    return (
        "Both numbers are first brought within their intervals, and a count to at least 1. The ratio is biased where "
        f"the denominator is small, and its standard error is approximate; its {level} interval is not."
    )


def _example(release: Release) -> Html:
    shown = [(name, column.grid) for name, column in release.facts.columns.items()]
    estimates: list[tuple[str, Fraction | None]] = [*shown, *((name, None) for name in release.facts.ratios)]
    rows = []
    for values in release.table.slice(0, ROWS).to_pylist():
        cells = [head(values[label], "row") for label in group_columns(release)]
        for name, unit in estimates[:COLUMNS]:
            found = [values[f"{name}{suffix}"] for suffix in ("", "_low", "_high")]
            if unit is None:
                number, low, high = (rounded_figure(one, side) for one, side in zip(found, (0, -1, 1), strict=True))
            else:
                number, low, high = (published(one, unit, side) for one, side in zip(found, (0, -1, 1), strict=True))
            estimate = f"{number} ({rounded_figure(values[f'{name}_se'])})"
            cells.append(cell(joined([estimate, tag("small", f"{low} to {high}")])))
        rows.append(row(*cells))
    top = row(*map(head, group_columns(release)), *(head(name, numeric=True) for name, _ in estimates[:COLUMNS]))
    parts = [f"the first {ROWS} of {len(release):,} rows"] if len(release) > ROWS else []
    parts += [f"the first {COLUMNS} of {len(estimates)} columns"] if len(estimates) > COLUMNS else []
    many = f"An example: {listed(parts)}." if parts else "The whole table."
    note = (
        " Standard errors in brackets. Below, the interval that holds the true value with the probability of its level."
    )
    if any(_may_miss(column) for column in release.facts.columns.values()):
        note += (
            " The estimate of a sum or count can lie outside its interval, and below 0: it is unbiased, while the "
            "interval uses that the true number is not below 0."
        )
    return table(caption("Table 2.", many, note), [top], [tag("tbody", *rows)], many)


def _error_grows(column: ColumnFacts) -> bool:
    """Whether the error grows with the sum; so it is for mechanisms with a function that cannot be described."""
    made_by = released_by(column)
    return made_by is None or made_by._error_grows


def _may_miss(column: ColumnFacts) -> bool:
    """Whether an estimate may lie outside its interval, which uses that the true sum is not below 0."""
    unbiased = _error_grows(column) and column.estimator == "mean"
    return not column.nonnegative and (unbiased or column.kind == "count")


def error_section(release: Release, scope: Scope) -> Section:
    """Draw the standard error of each column, over sums from about the noise to well above the largest size."""
    low, high = (end([powers[i] for powers in _powers(scope)]) for i, end in enumerate((min, max)))
    shown = [10.0**power for power in range(low, high + 1, math.ceil((high - low) / (SUMS - 1)))]
    values = np.union1d(np.geomspace(10.0**low, 10.0**high, 121), shown)
    lines, unknown, endless = {}, [], []
    for released in scope.columns:
        name, errors = released.name, released.errors(values)
        if errors is None:
            unknown.append(name)
        elif np.isfinite(errors).any():
            lines[name] = points(values, errors)
        else:
            endless.append(name)
    parts = [
        paragraph(
            "The noise is drawn afresh for every number. Where it is added to the sum, the standard error is the same "
            "whatever the sum; where the sum is transformed first, it grows with the sum. Rounding to the unit is "
            "included."
        )
    ]
    if lines:
        chart = LineChart(
            "figure-error",
            "Figure 2. Standard error, by the true value of the sum.",
            "Both axes in powers of ten.",
            Axis("True value of the sum"),
            Axis("Standard error"),
            lines,
        )
        parts.append(chart.figure(shown))
    reasons = {
        ": the mechanism has a function of the curator's, so the error cannot be drawn here. The table has a standard "
        "error for every number.": unknown,
        ": the noise has no standard error, or one too large to be written. The intervals hold all the same.": endless,
    }
    for reason, names in reasons.items():
        if names:
            parts.append(paragraph(tag("strong", listed(names)), reason))
    transformed = [name for name, column in release.facts.columns.items() if _error_grows(column)]
    if transformed:
        parts.append(paragraph(tag("strong", listed(transformed)), TRANSFORMED))
    if any(column.nonnegative for column in release.facts.columns.values()):
        parts.append(paragraph("This is the error before results below 0 are raised to 0."))
    return Section("error", "Standard errors", "How large the error is", parts)


def _powers(scope: Scope) -> list[tuple[int, int]]:
    return [sum_powers(column, scope.sizes) for column in scope.columns]
