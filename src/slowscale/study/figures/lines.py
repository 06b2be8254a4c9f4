"""Panels with one line per mechanism, named in a legend or at the ends of the lines."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from slowscale.core.numbers import format_number
from slowscale.publish.charts import tools
from slowscale.study.figures.chart_style import (
    LEGEND_WIDTH,
    LOOKS,
    PANEL,
    WIDE,
    Row,
    chart_of,
    colours,
    dashes,
    distinct,
    grid,
    legend,
    panel,
    select,
)

LABEL_APART = 17  # pixels between the names of lines


def page(charts: Sequence[Any], names: Sequence[str], columns: int = 2) -> Any:
    """Return panels below one legend."""
    return grid(charts, min(columns, len(charts)), [legend(names, LEGEND_WIDTH if len(charts) > 1 else WIDE[0])])


def line_panel(
    rows: Sequence[Row],
    names: Sequence[str],
    across: tuple[str, Row],
    up: tuple[str, Row],
    title: str | None,
    size: tuple[int, int] = PANEL,
    *,
    direct: bool = False,
    step: bool = False,
    dots: bool = False,
) -> Any:
    """Return a panel with one line per mechanism.

    Parameters
    ----------
    rows
        The points.
    names
        The mechanisms.
    across, up
        The fields of the two axes, each with its scale and axis.
    title, size
        The title of the panel, its width and its height.
    direct
        Whether the mechanisms are named at the right ends of their lines.
    step, dots
        Whether lines are steps, and whether points are marked.
    """
    alt, _ = tools()
    x, y = _channels(across, up)
    order = _order(across[0])
    points = [{field: row[field] for field in (across[0], up[0], order, "mechanism")} for row in rows]
    base = chart_of(points)
    colour = alt.Color("mechanism:N", scale=colours(names), legend=None)
    dash = alt.StrokeDash("mechanism:N", scale=dashes(names), legend=None)
    line = base.mark_line(strokeWidth=2.2, **({"interpolate": "step-after"} if step else {}))
    layers = [line.encode(x=x, y=y, color=colour, strokeDash=dash, order=f"{order}:Q")]
    if dots or len({row[across[0]] for row in rows}) == 1:  # a line through one point cannot be seen
        layers.append(base.mark_point(filled=True, size=55, opacity=1).encode(x=x, y=y, color=colour))
    if direct:
        layers += _labels(rows, names, across, up, size[1])
    return panel(layers, title, *size)


def _channels(across: tuple[str, Row], up: tuple[str, Row]) -> tuple[Any, Any]:
    alt, _ = tools()
    kind = "Q" if _order(across[0]) == across[0] else "N"
    return alt.X(f"{across[0]}:{kind}", **across[1]), alt.Y(f"{up[0]}:Q", **up[1])


def _order(field: str) -> str:
    """Return the field with the order of the points: a horizontal axis of names has a field with their order."""
    return "cells_order" if field == "cells" else field


def _labels(
    rows: Sequence[Row], names: Sequence[str], across: tuple[str, Row], up: tuple[str, Row], height: int
) -> list[Any]:
    """Return layers with the names of lines to the right of their ends, moved apart where they would overlap."""
    low, high = (math.log10(end) for end in up[1]["scale"]["domain"])
    last = across[1]["scale"]["domain"][-1]
    order = _order(across[0])
    ends = {}
    for name in names:
        own = select(rows, mechanism=name)
        ends[name] = math.log10(max(own, key=lambda row: row[order])[up[0]]) if own else low
    shown = sorted((name for name in names if select(rows, mechanism=name)), key=lambda name: ends[name])
    pixels = apart([(ends[name] - low) / (high - low) * height for name in shown], LABEL_APART, height)
    layers = []
    for name, pixel in zip(shown, pixels, strict=True):
        place = {across[0]: last, up[0]: 10 ** (low + pixel / height * (high - low)), "name": name}
        text = chart_of([place]).mark_text(align="left", dx=10, fontSize=13, fontWeight="bold", color=LOOKS[name].ink)
        x, y = _channels(across, up)
        layers.append(text.encode(x=x, y=y, text="name:N"))
    return layers


def apart(places: Sequence[float], distance: float, length: float) -> list[float]:
    """Return ascending places moved as little as needed to be at least a distance apart, within 0 to a length."""
    blocks: list[list[float]] = []  # the sum of the wished starts, the number of places
    for i, place in enumerate(places):
        blocks.append([place - i * distance, 1.0])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
            total, count = blocks.pop()
            blocks[-1] = [blocks[-1][0] + total, blocks[-1][1] + count]
    starts = [total / count for total, count in blocks for _ in range(int(count))]
    room = max(length - (len(places) - 1) * distance, 0.0)
    return [min(max(start, 0.0), room) + i * distance for i, start in enumerate(starts)]


def by_height(rows: Sequence[Row], x: str, y: str, panel: str | None = None) -> list[str]:
    """Return the mechanisms in the order of their lines at the right end of the first panel that shows them."""

    def height(name: str) -> float:
        own = select(rows, mechanism=name)
        own = select(own, **{panel: own[0][panel]}) if panel else own
        return -float(max(own, key=lambda row: row[x])[y])

    return sorted(distinct(rows, "mechanism"), key=height)


def right_ends(
    rows: Sequence[Row], panel: str | None, x: str, y: str, names: Sequence[str], at: str | None = None, unit: str = ""
) -> str:
    """Describe the right ends of the lines of every panel in words."""
    sentences = []
    for where in distinct(rows, panel) if panel else [""]:
        here = select(rows, **{panel: where}) if panel else list(rows)
        last = max(here, key=lambda row: row[x])
        ends = [max(own, key=lambda row: row[x]) for name in names if (own := select(here, mechanism=name))]
        found = listed({row["mechanism"]: row[y] for row in ends}, unit)
        place = last[at] if at else format_number(last[x])
        sentences.append(f"{f'{where}, at' if where else 'At'} {place}: {found}.")
    return " ".join(sentences)


def listed(values: Mapping[str, float], unit: str = "") -> str:
    """Write the values of mechanisms as a list."""
    return "; ".join(f"{name} {format_number(value)}{unit}" for name, value in values.items())
