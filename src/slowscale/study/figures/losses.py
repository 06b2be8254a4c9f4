"""Charts of densities of noise and of privacy losses, with one line per mechanism."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from slowscale.core.errors import ParameterError
from slowscale.core.numbers import format_number
from slowscale.core.parameters import as_number
from slowscale.study.figures.chart_style import (
    KIND_NAMES,
    KIND_TITLES,
    PANEL,
    WIDE,
    Row,
    distinct,
    drawable,
    empty,
    grid,
    legend,
    linear_axis,
    log_axis,
    outer_only,
    panel_title,
    read,
    select,
    titled,
    with_unit,
)
from slowscale.study.figures.lines import by_height, line_panel, listed, page, right_ends

MOST_RECORDS = 0.98  # the share of records in a chart whose horizontal axis has no given end


def densities(table: pa.Table, *, title: str = "Densities of the noise", note: str = "") -> Any:
    """Return the densities of noise distributions, in one panel at equal variance and in one at equal loss.

    Parameters
    ----------
    table
        Columns: panel ("equal variance" or "equal loss"), mechanism, z, density.
    title, note
        The title, and a note below it.
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
        charts.append(line_panel(here, names, ("z", x), ("density", y), panel_title(name)))
    about = f"Probability densities of noise in {len(charts)} panels. Highest density in the first panel: "
    return titled(page(charts, names), title, note, about + listed({name: _peak(rows, name) for name in names}))


def _peak(rows: Sequence[Row], name: str) -> float:
    """Return the highest density of a mechanism in the first panel that shows it."""
    own = select(rows, mechanism=name)
    return float(max(row["density"] for row in select(own, panel=own[0]["panel"])))


def loss_cdfs(
    table: pa.Table,
    *,
    limits: Mapping[str, float] | None = None,
    title: str = "Privacy loss of the records",
    note: str = "",
) -> Any:
    """Return, for each attribute and kind of mechanism, the share of records that lose at most a given loss.

    The rows of panels are the attributes, the columns are the kinds. As in the paper, the horizontal axes are linear,
    and the transformation mechanisms need a longer one. Each kind has its own.

    Parameters
    ----------
    table
        Columns: attribute, kind ("additive" or "transformation"), mechanism, loss, share (between 0 and 1).
    limits
        The largest loss shown for each kind. By default, 98 % of the records lose at most that much, for every
        attribute and every mechanism of this kind except the Gaussian one.
    title, note
        The title, and a note below it.
    """
    columns = ("attribute", "kind", "mechanism", "loss", "share")
    rows = drawable(read(table, columns), "loss", "share", positive=False)
    if not rows:
        return empty(title, note)
    for kind, limit in (limits or {}).items():
        if not 0 < as_number(f"limits[{kind!r}]", limit) < math.inf:
            raise ParameterError(f"limits[{kind!r}]", allowed="a finite loss above 0", given=limit)
    kinds, attributes = distinct(rows, "kind"), distinct(rows, "attribute")
    ends = {kind: float((limits or {}).get(kind, 0)) or _usual_end(select(rows, kind=kind)) for kind in kinds}
    names = {kind: _by_area(select(rows, kind=kind), ends[kind]) for kind in kinds}
    width = PANEL[0] if len(kinds) > 1 else WIDE[0]
    charts = []
    for i, attribute in enumerate(attributes):
        for j, kind in enumerate(kinds):
            here = _until(select(rows, attribute=attribute, kind=kind), ends[kind])
            x = outer_only(linear_axis("PRzCDP loss", 0, ends[kind]), i == len(attributes) - 1, labels=True)
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
                found[name] = max((row["share"] for row in own if row["loss"] <= ends[kind]), default=0.0)
            shares = "; ".join(f"{name} {format_number(100 * share)} %" for name, share in found.items())
            about += f"{attribute}, {kind}, share with a loss of at most {format_number(ends[kind])}: {shares}. "
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

    Parameters
    ----------
    table
        Columns: mechanism, size, loss.
    unit
        The unit of the size.
    title, note
        The title, and a note below it.
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


def neighbour_policies(
    table: pa.Table, *, unit: str = "", title: str = "Privacy loss by value of the record", note: str = ""
) -> Any:
    """Return the policy functions for the presence and for a change of a record, on logarithmic axes.

    Parameters
    ----------
    table
        Columns: panel ("unbounded: presence" or "bounded: a 10 % change"), mechanism, size, loss.
    unit
        The unit of the value.
    title, note
        The title, and a note below it.
    """
    rows = drawable(read(table, ("panel", "mechanism", "size", "loss")), "size", "loss")
    if not rows:
        return empty(title, note)
    names = by_height(rows, "size", "loss", "panel")
    x = log_axis(with_unit("value of the record", unit), (row["size"] for row in rows), 7)
    y = log_axis("PRzCDP loss", (row["loss"] for row in rows), 14, margin=1.5)
    charts = []
    for i, name in enumerate(distinct(rows, "panel")):
        here = select(rows, panel=name)
        up = outer_only(y, i == 0)
        charts.append(line_panel(here, names, ("size", x), ("loss", up), panel_title(name), (PANEL[0], 320)))
    about = "PRzCDP loss by value of the record, on logarithmic axes. " + right_ends(
        rows, "panel", "size", "loss", names
    )
    return titled(page(charts, names), title, note, about)
