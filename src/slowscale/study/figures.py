"""The charts of the paper's study: functions from a table of numbers to an Altair chart.

Tables are `pyarrow.Table`s in long form: one row per point, box or bar. Every function names the columns that it reads;
`units` are the units of the attributes, and `note` is shown below the title. Each mechanism has the same colour and the
same dash in every chart (`LOOKS`). The packages that draw are imported when a chart is drawn.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from slowscale.core.errors import ParameterError
from slowscale.core.numbers import format_number
from slowscale.core.parameters import as_number
from slowscale.publish.charts import tools
from slowscale.study.chart_style import (
    KIND_NAMES,
    KIND_TITLES,
    LOOKS,
    NARROW,
    PANEL,
    PANEL_TITLES,
    WIDE,
    Look,
    Row,
    by_height,
    chart_of,
    colours,
    distinct,
    drawable,
    empty,
    grid,
    legend,
    line_panel,
    linear_axis,
    listed,
    log_axis,
    outer_only,
    page,
    panel,
    read,
    right_ends,
    save,
    select,
    text_width,
    titled,
    with_unit,
)

__all__ = [
    "LOOKS",
    "Look",
    "densities",
    "distributions",
    "gains",
    "histogram",
    "loss_cdfs",
    "loss_tails",
    "neighbour_policies",
    "policies",
    "relative_errors",
    "save",
    "stds",
    "transformation_stds",
    "variances",
]

MOST_RECORDS = 0.98  # the share of records in a chart whose horizontal axis has no given end
VIOLIN = "#9DB7CC"
HALF_WIDTH = 0.42  # of a violin, where the distance between violins is 1
GROUP = 0.84  # the width of the boxes of a quintile together, where the distance between quintiles is 1
REFERENCES = {1.0: ("100 %", "#2F6FDE"), 0.1: ("10 %", "#E07B00")}
PLAIN_AXIS = {"grid": False, "ticks": False, "labelOverlap": False}  # of groups, with a label for each
BOX_COLUMNS = ("p5", "p25", "p50", "p75", "p95")


def _panels_of_lines(
    rows: list[Row],
    fields: tuple[str, str, str],
    axes: Callable[[list[Row], str], tuple[Row, Row]],
    sizes: Sequence[tuple[int, int]],
    title: str,
    note: str,
    about: str,
    shared: bool = False,
) -> Any:
    """Return panels with one line per mechanism, below one legend.

    `fields` are those of the panel and of the two axes. `axes` gives the axes of a panel, from its rows; they come from
    all rows if they are shared. `sizes` are those of a panel with one, two and more columns of panels.
    """
    place, x, y = fields
    rows = drawable(rows, x, y)
    if not rows:
        return empty(title, note)
    names, panels = by_height(rows, x, y, place), distinct(rows, place)
    columns = min(len(panels), len(sizes))
    charts = []
    for i, name in enumerate(panels):
        here = select(rows, **{place: name})
        across, up = axes(rows if shared else here, name)
        up = outer_only(up, not shared or i % columns == 0)
        heading = PANEL_TITLES.get(name, name)
        charts.append(line_panel(here, names, (x, across), (y, up), heading, sizes[columns - 1]))
    return titled(page(charts, names, columns), title, note, about + right_ends(rows, place, x, y, names))


def stds(
    table: pa.Table,
    *,
    units: Mapping[str, str] | None = None,
    title: str = "Standard deviation by true sum",
    note: str = "",
) -> Any:
    """Return the standard deviation of the published sum by the true sum, in one panel per attribute.

    The axes are logarithmic. On the linear axes of the paper, the small sums for which the transformation mechanisms
    are more accurate cannot be seen. The columns are attribute, mechanism ("all additive mechanisms", "fourth root",
    "log"), query and std.
    """

    def axes(here: list[Row], attribute: str) -> tuple[Row, Row]:
        unit = (units or {}).get(attribute, "")
        x = log_axis(with_unit("true sum", unit), (row["query"] for row in here), 7)
        return x, log_axis(with_unit("standard deviation", unit), (row["std"] for row in here), margin=1.5)

    rows = read(table, ("attribute", "mechanism", "query", "std"))
    about = "Standard deviation by true sum, both on logarithmic axes. "
    return _panels_of_lines(rows, ("attribute", "query", "std"), axes, (WIDE, NARROW), title, note, about)


def transformation_stds(
    table: pa.Table,
    *,
    unit: str = "",
    title: str = "Error of the transformation mechanisms by true sum",
    note: str = "",
) -> Any:
    """Return the standard deviation, and the standard deviation divided by the true sum, by the true sum.

    The columns are panel ("standard deviation" or "relative standard deviation"), mechanism, query and value.
    """

    def axes(here: list[Row], name: str) -> tuple[Row, Row]:
        relative = name.startswith("relative")
        x = log_axis(with_unit("true sum", unit), (row["query"] for row in here), 7)
        up = "standard deviation / true sum" if relative else with_unit("standard deviation", unit)
        return x, log_axis(up, (row["value"] for row in here), percent=relative, margin=1.5)

    rows = read(table, ("panel", "mechanism", "query", "value"))
    about = "Error by true sum, on logarithmic axes. "
    return _panels_of_lines(rows, ("panel", "query", "value"), axes, (NARROW, NARROW), title, note, about)


def variances(
    table: pa.Table, *, unit: str = "", title: str = "Variance at the same asymptotic policy", note: str = ""
) -> Any:
    """Return the variances by the true sum on logarithmic axes, in one panel per value of sigma.

    The columns are sigma, mechanism ("Laplace" or "square root"), query and variance.
    """
    rows = sorted(read(table, ("sigma", "mechanism", "query", "variance")), key=lambda row: row["sigma"])
    rows = [row | {"sigma": f"σ = {format_number(row['sigma'])}"} for row in rows]
    most = 5 if len(distinct(rows, "sigma")) > 2 else 7

    def axes(every: list[Row], _: str) -> tuple[Row, Row]:
        squared = with_unit("variance", f"{unit} squared" if unit else "")
        x = log_axis(with_unit("true sum", unit), (row["query"] for row in every), most)
        return x, log_axis(squared, (row["variance"] for row in every), margin=1.5)

    sizes, about = (WIDE, PANEL, (224, 250)), "Variance by true sum, on logarithmic axes. "
    return _panels_of_lines(rows, ("sigma", "query", "variance"), axes, sizes, title, note, about, shared=True)


def neighbour_policies(
    table: pa.Table, *, unit: str = "", title: str = "Privacy loss by value of the record", note: str = ""
) -> Any:
    """Return the policy functions for the presence and for a change of a record, on logarithmic axes.

    The columns are panel ("unbounded: presence" or "bounded: a 10 % change"), mechanism, size and loss.
    """

    def axes(every: list[Row], _: str) -> tuple[Row, Row]:
        x = log_axis(with_unit("value of the record", unit), (row["size"] for row in every), 7)
        return x, log_axis("PRzCDP loss", (row["loss"] for row in every), 14, margin=1.5)

    rows = read(table, ("panel", "mechanism", "size", "loss"))
    sizes, about = ((PANEL[0], 320),) * 2, "PRzCDP loss by value of the record, on logarithmic axes. "
    return _panels_of_lines(rows, ("panel", "size", "loss"), axes, sizes, title, note, about, shared=True)


def loss_tails(
    table: pa.Table, *, title: str = "Records with large losses", note: str = "Lines end at the largest loss."
) -> Any:
    """Return the share of the records that lose more than a given loss, on logarithmic axes.

    The columns are panel, mechanism, loss and share.
    """

    def axes(here: list[Row], _: str) -> tuple[Row, Row]:
        x = log_axis("PRzCDP loss", (row["loss"] for row in here), 6)
        return x, log_axis("share that loses more", (row["share"] for row in here), 7, percent=True, margin=1.5)

    rows = read(table, ("panel", "mechanism", "loss", "share"))
    sizes, about = ((NARROW[0], 200),) * 2, "Share of the records that lose more than a loss, on logarithmic axes. "
    return _panels_of_lines(rows, ("panel", "loss", "share"), axes, sizes, title, note, about)


def gains(
    table: pa.Table,
    *,
    units: Mapping[str, str] | None = None,
    title: str = "Error by size of the cell, at the same loss of the largest record",
    note: str = "",
) -> Any:
    """Return the median relative error by the size of the cell, one line per mechanism, one panel per attribute.

    The columns are attribute, cells (such as "1,000 to 10,000"), cells_order (their order), mechanism and median_error
    (1 is 100 %). Errors of 0 cannot be shown on the logarithmic axis and are left out.
    """
    given = read(table, ("attribute", "cells", "cells_order", "mechanism", "median_error"))
    rows = drawable(given, "median_error")
    if not rows:
        return empty(title, note)
    if any(row["median_error"] == 0 for row in given):
        note = f"{note} Errors of 0 are not shown.".strip()
    names, attributes = by_height(rows, "cells_order", "median_error", "attribute"), distinct(rows, "attribute")
    single = len(attributes) == 1
    y = log_axis("median relative error", (row["median_error"] for row in rows), percent=True, margin=1.5)
    charts = []
    for attribute in attributes:
        here = select(rows, attribute=attribute)
        cells = [cell for _, cell in sorted({(row["cells_order"], row["cells"]) for row in here})]
        x = _cells_axis(cells, WIDE[0], with_unit("true sum of the cell", (units or {}).get(attribute, "")))
        heading, size = (None, WIDE) if single else (attribute, (WIDE[0], 230))
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


def densities(table: pa.Table, *, title: str = "Densities of the noise", note: str = "") -> Any:
    """Return the densities of noise distributions, in one panel at equal variance and in one at equal loss.

    The columns are panel ("equal variance" or "equal loss"), mechanism, z and density.
    """
    rows = drawable(read(table, ("panel", "mechanism", "z", "density")), "z", "density", positive=False)
    if not rows:
        return empty(title, note)
    names = sorted(distinct(rows, "mechanism"), key=lambda name: -_peak(rows, name))
    units = {"equal variance": "standard deviations", "equal loss": "multiples of Δ(r)"}
    charts = []
    for i, name in enumerate(distinct(rows, "panel")):
        here = select(rows, panel=name)
        z, heights = [row["z"] for row in here], [row["density"] for row in here]
        x = linear_axis(with_unit("noise z", units.get(name, "")), min(z), max(z))
        y = outer_only(linear_axis("probability density", 0, 1.04 * max(heights)), i == 0, labels=True)
        charts.append(line_panel(here, names, ("z", x), ("density", y), PANEL_TITLES.get(name, name)))
    about = f"Probability densities of noise in {len(charts)} panels. Highest density in the first panel: "
    return titled(page(charts, names), title, note, about + listed({name: _peak(rows, name) for name in names}))


def _peak(rows: Sequence[Row], name: str) -> float:
    """Return the highest density of a mechanism in the first panel that shows it."""
    own = select(rows, mechanism=name)
    return float(max(row["density"] for row in select(own, panel=own[0]["panel"])))


def loss_cdfs(
    table: pa.Table,
    *,
    limits: Mapping[str | tuple[str, str], float] | None = None,
    title: str = "Privacy loss of the records",
    note: str = "",
) -> Any:
    """Return, for each attribute and kind of mechanism, the share of records that lose at most a given loss.

    The rows of panels are the attributes, the columns are the kinds. As in the paper, the horizontal axes are linear,
    and the transformation mechanisms need a longer one. The columns of the table are attribute, kind ("additive" or
    "transformation"), mechanism, loss and share (between 0 and 1). `limits` are the largest losses shown for each kind,
    or for each pair of attribute and kind. By default, 98 % of the records lose at most that much, for every attribute
    and every mechanism of this kind except the Gaussian one.
    """
    columns = ("attribute", "kind", "mechanism", "loss", "share")
    rows = drawable(read(table, columns), "loss", "share", positive=False)
    if not rows:
        return empty(title, note)
    for kind, limit in (limits or {}).items():
        if not 0 < as_number(f"limits[{kind!r}]", limit) < math.inf:
            raise ParameterError(f"limits[{kind!r}]", allowed="a finite loss above 0", given=limit)
    kinds, attributes = distinct(rows, "kind"), distinct(rows, "attribute")
    usual = {kind: float((limits or {}).get(kind, 0)) or _usual_end(select(rows, kind=kind)) for kind in kinds}
    ends = {(one, kind): float((limits or {}).get((one, kind), usual[kind])) for one in attributes for kind in kinds}
    names = {kind: _by_area(select(rows, kind=kind), max(ends[one, kind] for one in attributes)) for kind in kinds}
    width = PANEL[0] if len(kinds) > 1 else WIDE[0]
    charts = []
    for i, attribute in enumerate(attributes):
        for j, kind in enumerate(kinds):
            end = ends[attribute, kind]
            here = _until(select(rows, attribute=attribute, kind=kind), end)
            x = outer_only(linear_axis("PRzCDP loss", 0, end), i == len(attributes) - 1, labels=True)
            y = outer_only(linear_axis("share of records", 0, 1, percent=True), j == 0)
            heading = f"{attribute}: {KIND_TITLES.get(kind, kind)}"
            size = (width, 170 if len(attributes) > 1 else 270)
            charts.append(line_panel(here, names[kind], ("loss", x), ("share", y), heading, size, step=True))
    about = "Shares of records by privacy loss. "
    for attribute in attributes:
        for kind in kinds:
            found = {}
            for name in names[kind]:
                own = select(rows, attribute=attribute, kind=kind, mechanism=name)
                found[name] = max((row["share"] for row in own if row["loss"] <= ends[attribute, kind]), default=0.0)
            shares = "; ".join(f"{name} {format_number(100 * share)} %" for name, share in found.items())
            reached = format_number(ends[attribute, kind])
            about += f"{attribute}, {kind}, share with a loss of at most {reached}: {shares}. "
    legends = [legend(names[kind], width, words=KIND_NAMES.get(kind)) for kind in kinds]
    return titled(grid(charts, len(kinds), legends), title, note, about.strip())


def _usual_end(rows: Sequence[Row]) -> float:
    """Return the loss that holds nearly all records, except under the Gaussian mechanism if there are others."""
    slow = [row for row in rows if row["mechanism"] != "Gaussian"] or rows
    ends = []
    for attribute in distinct(slow, "attribute"):
        for name in distinct(slow, "mechanism"):
            line = select(slow, attribute=attribute, mechanism=name)
            most = MOST_RECORDS * max((row["share"] for row in line), default=0.0)
            ends += [min(row["loss"] for row in line if row["share"] >= most)] if line else []
    return max(ends) or 1.0


def _by_area(rows: Sequence[Row], end: float) -> list[str]:
    """Return the mechanisms of a kind, the one whose records lose least first."""

    def area(name: str) -> float:
        total = 0.0
        for attribute in distinct(rows, "attribute"):
            line = sorted((min(r["loss"], end), r["share"]) for r in select(rows, mechanism=name, attribute=attribute))
            line.append((end, line[-1][1]) if line else (end, 0.0))
            total += sum((b[0] - a[0]) * a[1] for a, b in pairwise(line))
        return -total

    return sorted(distinct(rows, "mechanism"), key=area)


def _until(rows: Sequence[Row], end: float) -> list[Row]:
    """Return the points up to a loss, with each line continued to it."""
    kept = []
    for name in distinct(rows, "mechanism"):
        line = sorted(select(rows, mechanism=name), key=lambda row: (row["loss"], row["share"]))
        inside = [row for row in line if row["loss"] <= end] or [line[0] | {"loss": 0.0, "share": 0.0}]
        kept += [*inside, inside[-1] | {"loss": end}]
    return kept


def policies(
    table: pa.Table, *, unit: str = "", title: str = "Privacy loss by size of the record", note: str = ""
) -> Any:
    """Return the policy functions on logarithmic axes.

    The columns are mechanism, size and loss.
    """
    rows = drawable(read(table, ("mechanism", "size", "loss")), "size", "loss")
    if not rows:
        return empty(title, note)
    names = by_height(rows, "size", "loss")
    x = log_axis(with_unit("size of the record", unit), (row["size"] for row in rows), 8)
    y = log_axis("PRzCDP loss", (row["loss"] for row in rows), 14, margin=1.5)
    chart = line_panel(rows, names, ("size", x), ("loss", y), None, (WIDE[0], 380), direct=True)
    about = "PRzCDP loss by size of the record, both on logarithmic axes. "
    return titled(chart, title, note, about + right_ends(rows, None, "size", "loss", names))


def distributions(
    table: pa.Table,
    quartiles: pa.Table,
    *,
    units: Mapping[str, str] | None = None,
    title: str = "Distributions of the records and of the sums of cells",
    note: str = "",
) -> Any:
    """Return mirrored densities (violins) on a logarithmic axis, one per attribute, with lines at the quartiles.

    There is one panel for the records and one for the sums of cells. A logarithmic axis cannot show 0: the share of
    values that are 0 is written below each violin, and a quartile of 0 has no line.

    The columns of `table` are attribute, what ("records" or "sums of cells"), value (centres of bins of equal width in
    log10 of the value) and density; those of `quartiles` are attribute, what, q25, q50, q75 and, if known, zeros (the
    share of values that are 0).
    """
    alt, _ = tools()
    everything = read(table, ("attribute", "what", "value", "density"))
    rows = drawable(drawable(everything, "value"), "density", positive=False)
    lines = read(quartiles, ("attribute", "what", "q25", "q50", "q75"), "quartiles")
    if not rows:
        return empty(title, note)
    attributes, whats = distinct(everything, "attribute"), distinct(rows, "what")
    reached = [row["value"] for row in rows] + [row[q] for row in lines for q in ("q25", "q50", "q75")]
    y = log_axis("value", reached, margin=1.2)
    charts = []
    for i, what in enumerate(whats):
        shapes, rules, labels = [], [], []
        for place, attribute in enumerate(attributes):
            shape = _violin(select(rows, what=what, attribute=attribute), place)
            own = select(lines, what=what, attribute=attribute)
            shapes += shape
            rules += [_quartile(shape, row[q], place, q == "q50") for row in own for q in ("q25", "q50", "q75")]
            labels.append([attribute, *_below(own, (units or {}).get(attribute, ""))])
        x = {
            "scale": {"domain": [-0.55, len(attributes) - 0.45], "nice": False},
            "axis": PLAIN_AXIS
            | {
                "title": None,
                "values": list(range(len(attributes))),
                "domain": False,
                "labelExpr": f"{json.dumps(labels)}[datum.value]",
                "labelPadding": 8,
                "labelLineHeight": 16,
            },
        }
        up = outer_only(y, i == 0)
        side, height = alt.X("left:Q", stack=None, **x), alt.Y("value:Q", stack=None, **up)
        area = chart_of(shapes).mark_area(orient="horizontal", color=VIOLIN, opacity=1)
        rule = chart_of([rule for rule in rules if rule]).mark_rule(color="#000000")
        layers = [area.encode(y=height, x=side, x2="right:Q", detail="place:N")]
        width = alt.StrokeWidth("middle:N", legend=None, scale={"domain": [False, True], "range": [1.2, 2.8]})
        layers.append(rule.encode(y=height, x=side, x2="right:Q", strokeWidth=width))
        heading = what[:1].upper() + what[1:]
        charts.append(panel(layers, heading, PANEL[0], 330))
    about = "Densities on a logarithmic axis, with lines at the quartiles. "
    for row in lines:
        middle = ", ".join(format_number(math.nan if row[q] is None else row[q]) for q in ("q25", "q50", "q75"))
        zeros = "".join(f"; {words}" for words in _below([row], ""))
        about += f"{row['attribute']}, {row['what']}: quartiles {middle}{zeros}. "
    return titled(grid(charts, len(charts)), title, note, about.strip())


def _violin(rows: list[Row], place: int) -> list[Row]:
    """Return the outline of a violin: its left and its right end at each value."""
    top = max((row["density"] for row in rows), default=0.0)
    if not top > 0:
        return []
    rows = sorted(rows, key=lambda row: row["value"])
    if len(rows) == 1:  # an area through one point cannot be seen
        rows = [rows[0] | {"value": rows[0]["value"] * factor} for factor in (0.9, 1 / 0.9)]
    half = [HALF_WIDTH * row["density"] / top for row in rows]
    return [
        {"place": place, "value": row["value"], "left": place - h, "right": place + h}
        for row, h in zip(rows, half, strict=True)
    ]


def _quartile(shape: list[Row], value: float, place: int, middle: bool) -> Row | None:
    """Return a line across a violin at a quartile, or None if the axis cannot show it."""
    if not shape or value is None or not 0 < value < math.inf:
        return None
    half = np.interp(
        math.log(value), [math.log(point["value"]) for point in shape], [point["right"] - place for point in shape]
    )
    half = max(float(half), 0.06)
    return {"value": value, "left": place - half, "right": place + half, "middle": middle}


def _below(rows: list[Row], unit: str) -> list[str]:
    """Return the texts below a violin: the unit, and the share of zeros."""
    zeros = [row["zeros"] for row in rows if row.get("zeros")]
    return [*([f"({unit})"] if unit else []), *(f"{format_number(100 * share)} % are 0" for share in zeros)]


def histogram(table: pa.Table, *, unit: str = "", title: str = "Distribution of the values", note: str = "") -> Any:
    """Return histograms on a logarithmic axis, one panel for each `what`.

    The columns are what (such as "records" or "sums of cells"), low, high (the ends of the bin, above 0) and count.
    """
    alt, _ = tools()
    rows = drawable(read(table, ("what", "low", "high", "count")), "low", "high")
    if not rows:
        return empty(title, note)
    charts = []
    whats = distinct(rows, "what")
    for i, what in enumerate(whats):
        here = select(rows, what=what)
        used = [row for row in here if row["count"]] or here
        x = log_axis(with_unit("value", unit), [row[end] for row in used for end in ("low", "high")], 7)
        y = outer_only(
            linear_axis("number of values", 0, 1.05 * max(row["count"] for row in here)), i == 0, labels=True
        )
        bars = chart_of([row | {"floor": 0} for row in used]).mark_rect(color=VIOLIN, stroke="white", strokeWidth=0.7)
        bars = bars.encode(x=alt.X("low:Q", **x), x2="high:Q", y=alt.Y("count:Q", stack=None, **y), y2="floor:Q")
        width = PANEL[0] if len(whats) > 1 else WIDE[0]
        charts.append(panel([bars], what[:1].upper() + what[1:], width, PANEL[1]))
    about = "Histograms on a logarithmic axis. "
    for what in whats:
        here = select(rows, what=what)
        most = max(here, key=lambda row: row["count"])
        about += f"{what}: {format_number(sum(row['count'] for row in here))} values, most of them in the bin from "
        about += f"{format_number(most['low'])} to {format_number(most['high'])} ({format_number(most['count'])}). "
    return titled(grid(charts, len(charts)), title, note, about.strip())


def relative_errors(
    table: pa.Table, *, title: str = "Absolute relative error by quintile of the true sum", note: str = ""
) -> Any:
    """Return box plots of the absolute relative error on a logarithmic axis.

    The rows of panels are the attributes, the columns are the kinds. A box goes from the 25th to the 75th percentile,
    with a line at the median; the whiskers end at the 5th and the 95th percentile. Errors of 0 or infinity are drawn
    at the ends of the axis. The columns of the table are attribute, kind ("additive" or "transformation"), mechanism,
    quintile (1 to 5), p5, p25, p50, p75 and p95 (percentiles of the absolute relative error, where 1 is 100 %).
    """
    rows = read(table, ("attribute", "kind", "mechanism", "quintile", *BOX_COLUMNS))
    rows = [row for row in rows if all(row[p] is not None and not math.isnan(row[p]) for p in BOX_COLUMNS)]
    if not rows:
        return empty(title, note)
    for value, words in (
        (0, "Errors of 0 are drawn at the lower"),
        (math.inf, "Infinite errors are drawn at the upper"),
    ):
        if any(row[p] == value for row in rows for p in BOX_COLUMNS):
            note = f"{note} {words} end of the axis.".strip()
    kinds, attributes = distinct(rows, "kind"), distinct(rows, "attribute")
    names = {kind: [name for name in LOOKS if select(rows, kind=kind, mechanism=name)] for kind in kinds}
    width = 345 if len(kinds) > 1 else WIDE[0]
    charts = []
    for i, attribute in enumerate(attributes):
        here = select(rows, attribute=attribute)
        values = [*(row[p] for row in here for p in BOX_COLUMNS), *REFERENCES]
        y = log_axis("absolute relative error", values, 9, percent=True, margin=1.5)
        for j, kind in enumerate(kinds):
            heading = f"{attribute}: {KIND_TITLES.get(kind, kind)}"
            edges = {"last_row": i == len(attributes) - 1, "last_column": j == len(kinds) - 1}
            boxes = select(here, kind=kind)
            charts.append(_boxes(boxes, names[kind], outer_only(y, j == 0), heading, width, **edges))
    about = f"Box plots of the absolute relative error by quintile of the true sum. {_medians(rows)}"
    legends = [legend(names[kind], width, boxes=True, words=KIND_NAMES.get(kind)) for kind in kinds]
    return titled(grid(charts, len(kinds), legends), title, note, about.strip())


def _medians(rows: list[Row]) -> str:
    """Return the medians of all boxes in words."""
    words = ""
    for attribute in distinct(rows, "attribute"):
        for kind in distinct(rows, "kind"):
            here = select(rows, attribute=attribute, kind=kind)
            for name in distinct(here, "mechanism"):
                own = sorted(select(here, mechanism=name), key=lambda row: row["quintile"])
                medians = ", ".join(f"{format_number(100 * row['p50'])} %" for row in own)
                words += f"{attribute}, {kind}, {name}: medians {medians}. "
    return words


def _boxes(
    rows: list[Row], names: list[str], y: Row, heading: str, width: int, *, last_row: bool, last_column: bool
) -> Any:
    """Return the box plots of one attribute and one kind of mechanism."""
    alt, _ = tools()
    low, high = y["scale"]["domain"]
    slot = GROUP / len(names)
    values = []
    for row in rows:
        middle = row["quintile"] - GROUP / 2 + slot * (names.index(row["mechanism"]) + 0.5)
        ends = {p: min(max(row[p], low), high) for p in BOX_COLUMNS}
        sides = {"x": middle, "left": middle - 0.4 * slot, "right": middle + 0.4 * slot}
        values.append({"mechanism": row["mechanism"], **sides, **ends})
    x = {
        "scale": {"domain": [0.5, 5.5], "nice": False},
        "axis": PLAIN_AXIS
        | {
            "title": "quintile of the true sum" if last_row else None,
            "values": [1, 2, 3, 4, 5],
            "labelExpr": "['', '1 (smallest)', '2', '3', '4', '5 (largest)'][datum.value]",
        },
    }
    base = chart_of(values)
    channels = (alt.Color, alt.Fill, alt.Stroke)
    colour, fill, stroke = (channel("mechanism:N", scale=colours(names), legend=None) for channel in channels)
    side = alt.X("left:Q", **x)
    layers = []
    for at, (words, ink) in REFERENCES.items():
        line = chart_of([{"at": at, "left": 5.5, "words": words}])
        level = alt.Y("at:Q", **y)
        layers.append(line.mark_rule(color=ink, strokeWidth=1.6).encode(y=level))
        if last_column:
            text = line.mark_text(align="left", dx=5, fontSize=12, fontWeight="bold", color=ink)
            layers.append(text.encode(x=side, y=level, text="words:N"))
    whisker = base.mark_rule(strokeWidth=1.3)
    layers += [
        whisker.encode(x=alt.X("x:Q", **x), y=alt.Y("p5:Q", **y), y2="p25:Q", color=colour),
        whisker.encode(x=alt.X("x:Q", **x), y=alt.Y("p75:Q", **y), y2="p95:Q", color=colour),
        base.mark_rect(fillOpacity=0.45, strokeWidth=1.2).encode(
            x=side, x2="right:Q", y=alt.Y("p25:Q", **y), y2="p75:Q", fill=fill, stroke=stroke
        ),
        base.mark_rule(strokeWidth=3).encode(x=side, x2="right:Q", y=alt.Y("p50:Q", **y), color=colour),
    ]
    return panel(layers, heading, width, 190)
