"""Charts of distributions: violins, histograms, and boxes of relative errors."""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from slowscale.core.numbers import format_number
from slowscale.publish.charts import tools
from slowscale.study.figures.chart_style import (
    KIND_NAMES,
    KIND_TITLES,
    LOOKS,
    PANEL,
    WIDE,
    Row,
    chart_of,
    colours,
    distinct,
    drawable,
    empty,
    grid,
    legend,
    linear_axis,
    log_axis,
    outer_only,
    panel,
    read,
    select,
    titled,
    unit_of,
    with_unit,
)

VIOLIN = "#9DB7CC"
HALF_WIDTH = 0.42  # of a violin, where the distance between violins is 1
GROUP = 0.84  # the width of the boxes of a quintile together, where the distance between quintiles is 1
REFERENCES = {1.0: ("100 %", "#2F6FDE"), 0.1: ("10 %", "#E07B00")}
PLAIN_AXIS = {"grid": False, "ticks": False, "labelOverlap": False}  # of groups, with a label for each
BOX_COLUMNS = ("p5", "p25", "p50", "p75", "p95")


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

    Parameters
    ----------
    table
        Columns: attribute, what ("records" or "sums of cells"), value (centres of bins of equal width in log10 of the
        value), density.
    quartiles
        Columns: attribute, what, q25, q50, q75 and, if known, zeros (the share of values that are 0).
    units
        The unit of each attribute.
    title, note
        The title, and a note below it.
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
            labels.append([attribute, *_below(own, unit_of(units, attribute))])
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
        zeros = f"; {'; '.join(_below([row], ''))}" if _below([row], "") else ""
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
    """Return what is written below a violin: the unit, and the share of zeros."""
    zeros = [row["zeros"] for row in rows if row.get("zeros")]
    return [*([f"({unit})"] if unit else []), *(f"{format_number(100 * share)} % are 0" for share in zeros)]


def histogram(table: pa.Table, *, unit: str = "", title: str = "Distribution of the values", note: str = "") -> Any:
    """Return histograms on a logarithmic axis, one panel for each `what`.

    Parameters
    ----------
    table
        Columns: what (such as "records" or "sums of cells"), low, high (the ends of the bin, above 0), count.
    unit
        The unit of the values.
    title, note
        The title, and a note below it.
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
    at the ends of the axis.

    Parameters
    ----------
    table
        Columns: attribute, kind ("additive" or "transformation"), mechanism, quintile (1 to 5), p5, p25, p50, p75, p95
        (percentiles of the absolute relative error, where 1 is 100 %).
    title, note
        The title, and a note below it.
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
    rows: list[Row],
    names: list[str],
    y: Row,
    heading: str,
    width: int,
    *,
    last_row: bool,
    last_column: bool,
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
