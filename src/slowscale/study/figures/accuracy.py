"""Charts of standard deviations, variances and errors, with one line per mechanism."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from slowscale.core.numbers import format_number
from slowscale.study.figures.chart_style import (
    NARROW,
    PANEL,
    WIDE,
    Row,
    distinct,
    drawable,
    empty,
    grid,
    log_axis,
    outer_only,
    panel_title,
    read,
    select,
    text_width,
    titled,
    unit_of,
    with_unit,
)
from slowscale.study.figures.lines import by_height, line_panel, page, right_ends


def stds(
    table: pa.Table,
    *,
    units: Mapping[str, str] | None = None,
    title: str = "Standard deviation by true sum",
    note: str = "",
) -> Any:
    """Return the standard deviation of what is published by the true sum, in one panel per attribute.

    The axes are logarithmic. On the linear axes of the paper, the small sums for which the transformation mechanisms
    are more accurate cannot be seen.

    Parameters
    ----------
    table
        Columns: attribute, mechanism ("all additive mechanisms", "fourth root", "log"), query, std.
    units
        The unit of each attribute.
    title, note
        The title, and a note below it.
    """
    rows = drawable(read(table, ("attribute", "mechanism", "query", "std")), "query", "std")
    if not rows:
        return empty(title, note)
    names, attributes = by_height(rows, "query", "std", "attribute"), distinct(rows, "attribute")
    columns = min(len(attributes), 2)
    size = NARROW if columns > 1 else WIDE
    charts = []
    for attribute in attributes:
        here, unit = select(rows, attribute=attribute), unit_of(units, attribute)
        x = log_axis(with_unit("true sum", unit), (row["query"] for row in here), 7)
        y = log_axis(with_unit("standard deviation", unit), (row["std"] for row in here), margin=1.5)
        charts.append(line_panel(here, names, ("query", x), ("std", y), attribute, size))
    about = "Standard deviation by true sum, both on logarithmic axes. "
    return titled(page(charts, names), title, note, about + right_ends(rows, "attribute", "query", "std", names))


def transformation_stds(
    table: pa.Table,
    *,
    unit: str = "",
    title: str = "Error of the transformation mechanisms by true sum",
    note: str = "",
) -> Any:
    """Return the standard deviation, and the standard deviation divided by the true sum, by the true sum.

    Parameters
    ----------
    table
        Columns: panel ("standard deviation" or "relative standard deviation"), mechanism, query, value.
    unit
        The unit of the sum.
    title, note
        The title, and a note below it.
    """
    rows = drawable(read(table, ("panel", "mechanism", "query", "value")), "query", "value")
    if not rows:
        return empty(title, note)
    names = by_height(rows, "query", "value", "panel")
    charts = []
    for name in distinct(rows, "panel"):
        here = select(rows, panel=name)
        relative = name.startswith("relative")
        x = log_axis(with_unit("true sum", unit), (row["query"] for row in here), 7)
        up = "standard deviation / true sum" if relative else with_unit("standard deviation", unit)
        y = log_axis(up, (row["value"] for row in here), percent=relative, margin=1.5)
        charts.append(line_panel(here, names, ("query", x), ("value", y), panel_title(name), NARROW))
    about = "Error by true sum, on logarithmic axes. " + right_ends(rows, "panel", "query", "value", names)
    return titled(page(charts, names), title, note, about)


def variances(
    table: pa.Table, *, unit: str = "", title: str = "Variance at the same asymptotic policy", note: str = ""
) -> Any:
    """Return the variances by the true sum on logarithmic axes, in one panel per value of sigma.

    Parameters
    ----------
    table
        Columns: sigma, mechanism ("Laplace" or "square root"), query, variance.
    unit
        The unit of the sum.
    title, note
        The title, and a note below it.
    """
    rows = drawable(read(table, ("sigma", "mechanism", "query", "variance")), "query", "variance")
    if not rows:
        return empty(title, note)
    names, sigmas = by_height(rows, "query", "variance", "sigma"), sorted(distinct(rows, "sigma"))
    columns = min(len(sigmas), 3)
    size = {1: WIDE, 2: PANEL, 3: (224, 250)}[columns]
    y = log_axis(
        with_unit("variance", f"{unit} squared" if unit else ""), (row["variance"] for row in rows), margin=1.5
    )
    x = log_axis(with_unit("true sum", unit), (row["query"] for row in rows), 5 if columns > 2 else 7)
    charts = []
    for i, sigma in enumerate(sigmas):
        here, up = select(rows, sigma=sigma), outer_only(y, i % columns == 0)
        charts.append(line_panel(here, names, ("query", x), ("variance", up), f"σ = {format_number(sigma)}", size))
    words = [row | {"sigma": f"σ = {format_number(row['sigma'])}"} for row in rows]
    about = "Variance by true sum, on logarithmic axes. " + right_ends(words, "sigma", "query", "variance", names)
    return titled(page(charts, names, columns), title, note, about)


def gains(
    table: pa.Table,
    *,
    units: Mapping[str, str] | None = None,
    title: str = "Error by size of the cell, at the same loss of the largest record",
    note: str = "",
) -> Any:
    """Return the median relative error by the size of the cell, one line per mechanism, one panel per attribute.

    Parameters
    ----------
    table
        Columns: attribute, cells (such as "1,000 to 10,000"), cells_order (their order), mechanism, median_error (1
        is 100 %). Errors of 0 cannot be shown on the logarithmic axis and are left out.
    units
        The unit of each attribute.
    title, note
        The title, and a note below it.
    """
    given = read(table, ("attribute", "cells", "cells_order", "mechanism", "median_error"))
    rows = drawable(given, "median_error")
    if not rows:
        return empty(title, note)
    if any(row["median_error"] == 0 for row in given):
        note = f"{note} Errors of 0 are not shown.".strip()
    names, attributes = by_height(rows, "cells_order", "median_error", "attribute"), distinct(rows, "attribute")
    single = len(attributes) == 1
    width, height = WIDE[0], WIDE[1] if single else 230
    y = log_axis("median relative error", (row["median_error"] for row in rows), percent=True, margin=1.5)
    charts = []
    for attribute in attributes:
        here = select(rows, attribute=attribute)
        cells = [cell for _, cell in sorted({(row["cells_order"], row["cells"]) for row in here})]
        x = _cells_axis(cells, width, with_unit("true sum of the cell", unit_of(units, attribute)))
        heading = None if single else attribute
        size = (width, height)
        charts.append(line_panel(here, names, ("cells", x), ("median_error", y), heading, size, direct=True, dots=True))
    about = "Median relative error by true sum of the cell; the error is on a logarithmic axis. "
    parts = [row | {"error": 100 * row["median_error"]} for row in rows]
    about += right_ends(parts, "attribute", "cells_order", "error", names, at="cells", unit=" %")
    return titled(charts[0] if single else grid(charts, 1), title, note, about)


def _cells_axis(cells: Sequence[str], width: int, title: str) -> Row:
    """Return the scale and the axis of sizes of cells. Labels take two lines or are turned where they would overlap."""
    room = width / len(cells) - 8
    longest = max(text_width(cell, 12) for cell in cells)
    half = max(text_width(part, 12) for cell in cells for part in cell.replace(" to ", " to|").split("|"))
    split = "split(replace(datum.label, ' to ', ' to|'), '|')"
    turned = half > room
    return {
        "scale": {"type": "point", "domain": list(cells), "padding": 14 * (len(cells) - 1) / (width - 28)},
        "axis": {
            "title": title,
            "labelAngle": -40 if turned else 0,
            "labelExpr": split if longest > room and not turned else "datum.label",
            "labelOverlap": False,
            "labelLimit": 0,
        },
    }
