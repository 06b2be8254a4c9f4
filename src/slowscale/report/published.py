"""What was published: the columns, an example of the table, and how large the error is."""

import math
from fractions import Fraction
from typing import Any

import numpy as np

from slowscale.errors import ParameterError
from slowscale.figures import grid, percent, published
from slowscale.mechanisms import Mechanism
from slowscale.release import Release
from slowscale.report.charts import Axis, LineChart, points
from slowscale.report.page import Html, Section, caption, cell, head, joined, paragraph, row, table, tag
from slowscale.report.words import ESTIMATORS, MECHANISMS, listed

VALUES = (1, 100, 10_000, 1_000_000, 100_000_000)
ROWS, COLUMNS = 10, 6  # of the table, as an example


def group_columns(release: Release) -> list[str]:
    """Return the columns that the table is grouped by."""
    return list(release.facts["keys"]["columns"]) if release.facts["keys"] else []


def published_section(release: Release) -> Section:
    """Say what was published."""
    columns = release.facts["columns"]
    rows = []
    for name, column in columns.items():
        kind = "number of records" if column["kind"] == "count" else "sum"
        mechanism = (column["mechanism"] or {}).get("type", "")
        how = [MECHANISMS.get(mechanism, ""), " ", tag("code", column["described"])]
        bias = ESTIMATORS.get(column["estimator"], "Not stated: the estimate is a function of the curator's.")
        rows.append(
            row(
                head(name, "row"),
                cell(kind, False),
                cell(joined(how), False),
                cell(grid(Fraction(column["unit"]))),
                cell(bias, False),
                cell(percent(column["level"])),
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
                f" is {one['numerator']} / {one['denominator']}, computed from what was published, so no record loses "
                f"more by it. Its standard error and its {percent(one['level'])} interval are approximate.",
            )
            for name, one in release.facts["ratios"].items()
        ),
        _example(release),
    ]
    return Section("published", "What was published", "What was published", parts)


def _example(release: Release) -> Html:
    shown = [(name, Fraction(column["unit"])) for name, column in release.facts["columns"].items()]
    estimates: list[tuple[str, Fraction | None]] = [*shown, *((name, None) for name in release.facts["ratios"])]
    rows = []
    for values in release.table.slice(0, ROWS).to_pylist():
        cells = [head(values[label], "row") for label in group_columns(release)]
        for name, unit in estimates[:COLUMNS]:
            low, high = published(values[f"{name}_low"], unit, -1), published(values[f"{name}_high"], unit, 1)
            estimate = f"{published(values[name], unit)} ({published(values[f'{name}_se'])})"
            cells.append(cell(joined([estimate, tag("small", f"{low} to {high}")])))
        rows.append(row(*cells))
    top = row(*map(head, group_columns(release)), *(head(name, numeric=True) for name, _ in estimates[:COLUMNS]))
    parts = [f"the first {ROWS} of {len(release):,} rows"] if len(release) > ROWS else []
    parts += [f"the first {COLUMNS} of {len(estimates)} columns"] if len(estimates) > COLUMNS else []
    many = f"An example: {listed(parts)}." if parts else "The whole table."
    note = (
        " Standard errors in brackets. Below, the interval that holds the true value with the probability of its level."
    )
    return table(caption("Table 2.", many, note), [top], [tag("tbody", *rows)], many)


def error_section(release: Release) -> Section:
    """Draw the standard error of each column."""
    values = np.union1d(np.logspace(0, 8, 81), VALUES)
    lines, unknown, endless = {}, [], []
    for name, column in release.facts["columns"].items():
        mechanism = rebuilt(column["mechanism"])
        with np.errstate(over="ignore"):
            errors = None if mechanism is None else np.hypot(mechanism.std(values), _rounding(column))
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
        parts.append(chart.figure(VALUES))
    reasons = {
        ": the mechanism has a function of the curator's, so the error cannot be drawn here. The table has a standard "
        "error for every number.": unknown,
        ": the noise has no finite standard error. The intervals hold all the same.": endless,
    }
    for reason, names in reasons.items():
        if names:
            parts.append(paragraph(tag("strong", listed(names)), reason))
    if any(column["nonnegative"] for column in release.facts["columns"].values()):
        parts.append(paragraph("This is the error before results below 0 are raised to 0."))
    return Section("error", "Standard errors", "How large the error is", parts)


def _rounding(column: dict[str, Any]) -> float:
    """Return the standard error of rounding to the unit: at random for unbiased transformations, else to nearest."""
    at_random = column["mechanism"]["type"] in ("Root", "Log") and column["mechanism"]["estimator"] == "mean"
    return float(Fraction(column["unit"])) / math.sqrt(4 if at_random else 12)


def rebuilt(description: Any) -> Mechanism | None:
    """Return the mechanism that a release's facts describe, or None where it has a function that only has a name."""
    try:
        return Mechanism.from_dict(description)
    except ParameterError:
        return None
