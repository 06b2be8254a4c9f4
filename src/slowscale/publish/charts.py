"""Charts: line charts in reports and files, and the chart of `Release.plot`.

vl_convert renders descriptions in Vega-Lite without network access. In reports, text and axes have the colour of the
page's text (`currentColor`), so that charts follow its light or dark theme; files are black on white. Lines differ in
dashes and in colour. The colours are those of Okabe and Ito, which colour-blind readers can distinguish.
"""

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from slowscale.core.errors import EngineError, ParameterError, install_hint
from slowscale.core.files import check_output_path, write_files
from slowscale.core.numbers import format_number, percent, power_of_ten, published, rounded_figure
from slowscale.core.parameters import Array, check_whole
from slowscale.mechanisms import Mechanism
from slowscale.mechanisms.calibration import ACCOUNTING, charged_policy
from slowscale.release.facts import ColumnFacts, RatioFacts
from slowscale.release.table import ReleasedSums

Points = Sequence[tuple[float, float]]

INK = "currentColor"
PAPER = "#fffffe"  # a placeholder for the background colour of the page, which is light or dark
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, INK)
DASHES = ((1, 0), (9, 4), (2, 3), (12, 4, 2, 4), (5, 2), (16, 6))
FONT = '"Source Sans 3", "Segoe UI", "Helvetica Neue", "Liberation Sans", Arial, sans-serif'
WIDTH, HEIGHT = 800, 330
PIXELS = 2  # per unit of length in a PNG, so that it is sharp on screens of high resolution
LESS_THAN = "[less-than sign]"  # a placeholder for `<` in a page
MOST_TICKS = 10
NAME_FONT_SIZE = 13
SHORT_NAME = 18  # letters: four names of lines that are not longer fit beside each other
POINTS = 241  # per line of a chart in a file
TIGHT_POINTS = 25  # per line of tight losses, each of which takes milliseconds
MOST_BARS = 1000  # more would be neither drawn quickly nor read
BAR_STEP, PLOT_WIDTH = 21, 620  # pixels
AXIS_ON_TOP_FROM = 30  # bars; the lower end of the chart is out of sight
LOG_SPAN = 1e3  # positive estimates that span more than this have a symmetric-logarithmic axis
REACH_OF_ESTIMATES = 20.0  # intervals end at this multiple of the largest estimate, so that estimates stay visible
TOTAL = "all records"
SPECIAL_IN_TOOLTIPS = ("title", "image")  # Vega's tooltips make a heading and a picture of these


def tools() -> tuple[Any, Any]:
    """Return the packages that describe and draw charts, or raise an error that says how to install them."""
    return _package("altair"), _package("vl_convert")


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        words, remedy = "needs altair and vl-convert-python", install_hint()
        raise EngineError("a chart", words, code="not-installed", remedy=remedy) from None


def render(description: dict[str, Any]) -> str:
    """Render a Vega-Lite description to SVG, without network access."""
    version = _vega_lite_version(description)
    return str(_package("vl_convert").vegalite_to_svg(description, vl_version=version, allowed_base_urls=[]))


def embed(svg: str, labels: str, head: str) -> Markup:
    """Return a rendered SVG as a part of a page, with its text alternative and with the page's background colour.

    `labels` are the ids of the elements that name and describe the chart, separated by spaces. `head` is the first
    element of the SVG: its title or description, escaped.
    """
    opening = re.match(r"<svg[^>]*?( viewBox=\"[^\"]*\")?>", svg)
    assert opening is not None
    return Markup(
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="{labels}"{opening[1] or ""}>'
        f"{head}{svg[opening.end() :].replace(PAPER, 'var(--paper)')}"
    )


def render_page(description: dict[str, Any]) -> str:
    """Return an interactive page with the chart, which includes its scripts and opens offline."""
    # vl_convert copies the description into a script element without escaping: a `<` in a label could end the element.
    safe = json.dumps(description).replace("<", LESS_THAN)
    version = _vega_lite_version(description)
    page = str(_package("vl_convert").vegalite_to_html(safe, vl_version=version, bundle=True))
    return page.replace(LESS_THAN, "\\u003c")


def to_png(svg: str) -> bytes:
    """Return an SVG as a PNG file."""
    return bytes(_package("vl_convert").svg_to_png(svg, scale=PIXELS))


def _vega_lite_version(description: Mapping[str, Any]) -> str:
    """Return the version of Vega-Lite that a description is written in, such as 6.4."""
    found = re.search(r"/v([0-9]+\.[0-9]+)", description["$schema"])
    assert found is not None
    return found[1]


@dataclass(frozen=True)
class Chart:
    """A chart, which notebooks show; `save` writes it to a file."""

    _description: dict[str, Any]

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> Path:
        """Write the chart to a file, and return its path.

        Parameters
        ----------
        path
            The file. One that ends in .html is interactive and opens offline; .svg and .png are pictures.
        overwrite
            Whether to replace an existing file.
        """
        target = check_output_path(path, "", overwrite)
        ending = target.suffix.lower()
        if ending not in (".png", ".svg", ".html"):
            raise ParameterError("chart", allowed="a .png, .svg or .html file", given=str(target))
        text = render_page(self._description) if ending == ".html" else self.svg
        content = to_png(text) if ending == ".png" else text.encode()
        return write_files({target: lambda file: file.write_bytes(content)}, overwrite=overwrite)

    def to_dict(self) -> dict[str, Any]:
        """Return the chart as a Vega-Lite description."""
        return deepcopy(self._description)

    @property
    def svg(self) -> str:
        """The chart as SVG."""
        return render(self._description)

    def _repr_svg_(self) -> str:
        return self.svg


# Line charts


@dataclass(frozen=True)
class Axis:
    """An axis: its title, and whether it is logarithmic; otherwise it goes from 0 to 1."""

    title: str
    log: bool = True


@dataclass(frozen=True)
class Mark:
    """A marked point on a line, with or without a name."""

    line: str
    x: float
    y: float
    name: str = ""


@dataclass(frozen=True)
class LineChart:
    """A chart of a report: several lines, given by their names and points, with marks on them.

    `shown` are the x values of the table beside the chart. Points below `floor` are not drawn, so that the rest of the
    chart stays readable. `same_colour` names lines with the colour of another line.
    """

    anchor: str
    title: str
    note: str
    x: Axis
    y: Axis
    lines: Mapping[str, Points]
    shown: Sequence[float]
    marks: tuple[Mark, ...] = ()
    floor: float = 0.0
    same_colour: Mapping[str, str] = field(default_factory=dict)

    @property
    def heads(self) -> list[str]:
        """The heads of the table beside the chart."""
        return [self.x.title, *self.lines]

    @property
    def rows(self) -> list[list[str]]:
        """The rows of the table beside the chart."""
        columns = [dict(points) for points in self.lines.values()]
        return [
            [format_number(x), *(format_number(points[x]) if x in points else "" for points in columns)]
            for x in self.shown
        ]

    @cached_property
    def svg(self) -> Markup | None:
        """The chart with its text alternative; None if there is nothing that logarithmic axes can show."""
        visible = {name: [point for point in points if self._visible(point)] for name, points in self.lines.items()}
        lines = {name: points for name, points in visible.items() if points}
        if not lines:
            return None
        marks = [mark for mark in self.marks if self._visible((mark.x, mark.y))]
        drawn = render(spec(self.x, self.y, lines, marks, self.same_colour))
        title, summary = f"{self.anchor}-title", f"{self.anchor}-summary"
        return embed(
            drawn,
            f"{title} {summary}",
            f'<title id="{title}">{escape(self.title)}</title>'
            f'<desc id="{summary}">{escape(summarize(self.x, self.y, lines))}</desc>',
        )

    def _visible(self, point: tuple[float, float]) -> bool:
        return point[1] >= self.floor and all(
            math.isfinite(at) and (at > 0 or not axis.log) for at, axis in zip(point, (self.x, self.y), strict=True)
        )


def summarize(x: Axis, y: Axis, lines: Mapping[str, Points]) -> str:
    """Return the text alternative of a chart: its axes, and where each line starts and ends."""
    kind = "logarithmic axes" if y.log else "a logarithmic horizontal axis"
    text = [f"Line chart with {kind}: {y.title} against {x.title}."]
    for name, points in lines.items():
        (x0, y0), (x1, y1) = points[0], points[-1]
        if all(math.isclose(at, y0) for _, at in points):
            text.append(f"{name}: {format_number(y0)} throughout.")
        else:
            first, last = (f"{format_number(y)} at {format_number(x)}" for x, y in ((x0, y0), (x1, y1)))
            text.append(f"{name}: from {first} to {last}.")
    return " ".join(text)


def spec(
    across: Axis,
    up: Axis,
    lines: Mapping[str, Points],
    marks: Sequence[Mark] = (),
    same_colour: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the Vega-Lite description of a chart of lines."""
    alt, _ = tools()
    names, like = list(lines), same_colour or {}
    own = [name for name in names if like.get(name) not in names]
    colours_of = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(own)}
    colours = [colours_of.get(name) or colours_of[like[name]] for name in names]
    dashes = [list(DASHES[i % len(DASHES)]) for i in range(len(names))]
    columns = 4 if max(map(len, names)) <= SHORT_NAME else 2
    legend = alt.Legend(title=None, symbolType="stroke", symbolSize=900, symbolStrokeWidth=2.5, columns=columns)
    values = [{"line": name, "x": x, "y": y} for name, line in lines.items() for x, y in line]
    x, y = (
        _axis_options(axis, [point[i] for line in lines.values() for point in line])
        for i, axis in enumerate((across, up))
    )
    chart = (
        alt.Chart(alt.InlineData(values=values), width=WIDTH, height=HEIGHT)
        .mark_line(strokeWidth=2.5)
        .encode(
            x=alt.X("x:Q", **x),
            y=alt.Y("y:Q", **y),
            color=alt.Color("line:N", scale=alt.Scale(domain=names, range=colours), legend=legend),
            strokeDash=alt.StrokeDash("line:N", scale=alt.Scale(domain=names, range=dashes), legend=legend),
        )
    )
    if marks:
        chart = alt.layer(chart, *_mark_layers(marks, dict(zip(names, colours, strict=True)), x, y))
    chart = (
        chart.configure(background="transparent", aria=False, font=FONT, padding=4)
        .configure_axis(**_axis_style(INK))
        .configure_legend(
            orient="top", labelColor=INK, labelFont=FONT, labelFontSize=13, labelLimit=720 // columns, offset=12
        )
        .configure_view(stroke=None)
    )
    with alt.theme.enable("none"):  # independent of the theme that is enabled in the session
        described: dict[str, Any] = chart.to_dict()
    return described


def _axis_style(colour: str) -> dict[str, Any]:
    colours = {f"{part}Color": colour for part in ("label", "title", "domain", "tick", "grid")}
    text = {"labelFont": FONT, "titleFont": FONT, "labelFontSize": 13, "titleFontSize": 13, "titleFontWeight": "normal"}
    return {**colours, **text, "titlePadding": 10, "gridOpacity": 0.14, "tickSize": 4}


def _mark_layers(
    marks: Sequence[Mark], colours: Mapping[str, str], x_axis: dict[str, Any], y_axis: dict[str, Any]
) -> list[Any]:
    """Return layers with one point per mark, and with the names of those marks for which there is room."""
    alt, _ = tools()

    def position(axis: dict[str, Any], length: int) -> Callable[[float], float]:
        low, high = (math.log(end) for end in axis["scale"].domain)
        return lambda value: (math.log(value) - low) / (high - low) * length

    x, y = alt.X("x:Q", **x_axis), alt.Y("y:Q", **y_axis)
    dots, names = [], []
    sides = _name_sides(marks, position(x_axis, WIDTH), position(y_axis, HEIGHT))
    for mark, side in zip(marks, sides, strict=True):
        base = alt.Chart(alt.InlineData(values=[{"x": mark.x, "y": mark.y, "name": mark.name}]))
        dots.append(base.mark_point(filled=True, opacity=1, size=90, color=colours[mark.line]).encode(x=x, y=y))
        # Each name is first drawn wider in the background colour, so that lines do not cross its letters.
        around = {"color": PAPER, "stroke": PAPER, "strokeWidth": 5, "strokeJoin": "round"}
        for look in (around, {"color": INK}) if side is not None else ():
            text = base.mark_text(font=FONT, fontSize=NAME_FONT_SIZE, **(side or {}), **look)
            names.append(text.encode(x=x, y=y, text=alt.Text("name:N")))
    return [*names, *dots]


def _name_sides(
    marks: Sequence[Mark], across: Callable[[float], float], up: Callable[[float], float]
) -> list[dict[str, Any] | None]:
    """Return on which side of its point each name is drawn, or None if it would cover another name or a point."""
    dots = [(across(mark.x), up(mark.y)) for mark in marks]
    taken = [(x - 6, x + 6, y - 6, y + 6) for x, y in dots]
    sides: list[dict[str, Any] | None] = [None] * len(marks)
    for i in reversed(range(len(marks))):  # the largest size comes last, and its name is placed first
        (x, y), width = dots[i], 0.56 * NAME_FONT_SIZE * len(marks[i].name)
        for align, dx, dy in (("left", 9, 13), ("right", -9, -11), ("left", 9, -11), ("right", -9, 13)):
            left = x + dx if align == "left" else x + dx - width
            right, low, high = left + width, y - dy - 8, y - dy + 8  # y grows upwards here, but downwards in the SVG
            inside = left >= 0 and right <= WIDTH and low >= 0 and high <= HEIGHT
            free = not any(left < box[1] and box[0] < right and low < box[3] and box[2] < high for box in taken)
            if marks[i].name and inside and free:
                sides[i] = {"align": align, "baseline": "middle", "dx": dx, "dy": dy}
                taken.append((left, right, low, high))
                break
    return sides


def _axis_options(axis: Axis, values: Sequence[float]) -> dict[str, Any]:
    """Return the scale and the ticks of an axis."""
    alt, _ = tools()
    if not axis.log:
        return {"title": axis.title, "scale": alt.Scale(domain=[0, 1]), "axis": alt.Axis(format=".0%", tickCount=5)}
    low, high = math.floor(math.log10(min(values)) + 1e-9), math.ceil(math.log10(max(values)) - 1e-9)
    low = min(max(low, -300), 299)
    high = min(max(high, low + 1), 300)  # the range of floats
    step = math.ceil((high - low) / MOST_TICKS)
    labels = [power_of_ten(exponent) for exponent in range(low, high + 1)]
    return {
        "title": axis.title,
        "scale": alt.Scale(type="log", domain=[10.0**low, 10.0**high], nice=False),
        "axis": alt.Axis(
            values=[10.0**exponent for exponent in range(low, high + 1, step)],
            labelOverlap=False,  # there are few enough ticks
            labelFlush=False,
            labelExpr=f"{labels}[round(log(datum.value) / LN10) - ({low})]",
        ),
    }


def points(x: Any, y: Any) -> list[tuple[float, float]]:
    """Return the points of a line."""
    return list(zip(map(float, x), map(float, y), strict=True))


def write_chart(
    mechanisms: Mapping[str, Mechanism],
    path: Path,
    span: tuple[float, float],
    sizes: Iterable[float] = (),
    overwrite: bool = False,
    accounting: str = ACCOUNTING,
) -> Path:
    """Draw the loss of a record against its size to a .png, .svg or .html file, with one line per mechanism.

    `span` has the smallest and the largest record size to show; the chart is widened so that it shows all `sizes`.
    """
    shown = [*span, *sizes]
    x = np.union1d(np.geomspace(min(shown), max(shown), POINTS), shown)
    losses = {name: charged_policy(mechanism, accounting)(x) for name, mechanism in mechanisms.items()}
    return _loss_chart(x, losses, "loss (PRzCDP)").save(path, overwrite)


def tight_loss_chart(mechanisms: Mapping[str, Mechanism], sizes: Sequence[float]) -> Chart:
    """Return a chart of the tight losses of records of these sizes and all between, with one line per mechanism.

    The losses are computed one by one. The certified curves of the tight policies would take seconds for each line.
    """
    low, high = min(sizes), max(sizes)
    x = np.union1d(np.geomspace(low / 2, 2 * high, TIGHT_POINTS), sizes)
    losses = {name: np.array([one.tight_loss(size) for size in x.tolist()]) for name, one in mechanisms.items()}
    return _loss_chart(x, losses, "tight loss (PRzCDP)")


def _loss_chart(x: Array, losses: Mapping[str, Array], title: str) -> Chart:
    """Return a chart in black on white of the losses that logarithmic axes can show."""
    lines = {name: [(size, loss) for size, loss in points(x, y) if 0 < loss < np.inf] for name, y in losses.items()}
    if not any(lines.values()):
        subject, words = (
            f"the losses of records of size {x[0]:g} to {x[-1]:g}",
            "are too small or too large for a chart",
        )
        raise ParameterError(subject, words, code="out-of-range", remedy="give other sizes")
    text = json.dumps(spec(Axis("size of the record"), Axis(title), lines))
    described = json.loads(text.replace(INK, "black").replace("transparent", "white"))
    described["config"]["legend"]["labelLimit"] = 600
    return Chart(described)


# The chart of a release: cells with their intervals, sorted by estimate


@dataclass(frozen=True, repr=False)
class ReleasePlot(Chart):
    """A chart of a released column, which notebooks show; `save` writes it to a file."""

    @property
    def title(self) -> str:
        """Which cells are shown."""
        return str(self._description["title"]["text"])

    @property
    def note(self) -> str:
        """How to read the chart."""
        return str(self._description["title"]["subtitle"])

    def _repr_html_(self) -> str:
        height = BAR_STEP * len(self._description["data"]["values"]) + 180
        return (
            f'<iframe sandbox="allow-scripts allow-downloads" title="{escape(self.title)}" width="100%" '
            f'height="{height}" style="border: 0" srcdoc="{escape(render_page(self._description))}"></iframe>'
        )

    def __repr__(self) -> str:
        return f"<ReleasePlot {self.title}>"


def plot_release(release: ReleasedSums, column: str, top: int) -> ReleasePlot:
    """Return a chart of the largest cells of a column; see `Release.plot`."""
    tools()
    check_whole("top", top, 1)
    if top > MOST_BARS:
        remedy = "use release.table for all cells"
        raise ParameterError("top", allowed=f"at most {MOST_BARS:,}", given=top, remedy=remedy)
    known: dict[str, ColumnFacts | RatioFacts] = {**release.facts.columns, **release.facts.ratios}
    if not isinstance(column, str) or column not in known:
        raise ParameterError("column", allowed=tuple(known), given=column, code="unknown-column")
    estimates = release._as_floats(column)
    drawable = np.flatnonzero(np.isfinite(estimates))
    shown = drawable[np.argsort(-estimates[drawable], kind="stable")[:top]]
    if not len(shown):
        words = f"{column!r} has no number that can be drawn"
        raise ParameterError("column", words, code="empty", remedy="see release.table")
    low, high = (release._as_floats(f"{column}_{end}")[shown] for end in ("low", "high"))
    numbers, span = _within_the_chart(estimates[shown], low, high)
    cut = any(one["below"] or one["above"] for one in numbers)
    heads, labels, texts = _cell_texts(release, column, known[column], shown)
    fields = [f"text{i}" for i in range(len(heads))]
    values = [
        {"label": label, **number, **dict(zip(fields, text, strict=True))}
        for label, number, text in zip(labels, numbers, texts, strict=True)
    ]
    if not release.facts.by:
        which = TOTAL
    elif len(shown) < len(drawable):
        which = f"the {len(shown):,} largest of {len(release):,} cells" if len(shown) > 1 else "the largest cell"
    elif len(shown) == len(release):
        which = f"all {len(shown):,} cells"
    else:
        which = f"{len(shown):,} of {len(release):,} cells"
    title = f"{_printable(column)}: {which}"
    note = _note(release, known[column], len(shown), len(estimates) - len(drawable), cut)
    axis, scale = _interval_axis(estimates[shown], span, cut)
    axis["orient"] = "top" if len(values) >= AXIS_ON_TOP_FROM else "bottom"
    x = {"type": "quantitative", "scale": scale, "title": _printable(column), "axis": axis}
    tooltip = [{"field": name, "type": "nominal", "title": head} for name, head in zip(fields, heads, strict=True)]
    return ReleasePlot(_interval_chart(title, note, values, x, tooltip))


def _note(release: ReleasedSums, facts: ColumnFacts | RatioFacts, shown: int, missing: int, cut: bool) -> str:
    level = ("approximate " if isinstance(facts, RatioFacts) and facts.approximate else "") + percent(facts.level)
    one = f"The estimate with its {level} interval."
    many = f"Estimates with their {level} intervals, sorted by estimate. The largest tend to be too large."
    words = {
        one if shown == 1 else many: True,
        f"{missing:,} {'cell has' if missing == 1 else 'cells have'} no estimate.": missing > 0,
        "An arrow marks an interval that goes on beyond the chart.": cut,
        "NOT PRIVATE: drawn from test bits.": not release.whole.private,
    }
    return " ".join(sentence for sentence, holds in words.items() if holds)


def _within_the_chart(estimates: Array, low: Array, high: Array) -> tuple[list[dict[str, Any]], tuple[float, float]]:
    """Return the numbers of each cell, with intervals that end within the chart, and the ends of the axis."""
    largest = float(np.max(np.abs(estimates)))
    reach = REACH_OF_ESTIMATES * largest if 0 < largest < 1e300 else 1e300
    below, above = ~(np.isfinite(low) & (low >= -reach)), ~(np.isfinite(high) & (high <= reach))
    inside = np.concatenate([estimates, low[~below], high[~above], [0.0]])
    first, last = float(inside.min()), float(inside.max())
    if first == last:
        first, last = -1.0, 1.0
    margin = 0.04 * (last - first)
    # An end that is cut off is beyond all others, and on its own side.
    start = first - margin if below.any() else first
    end = last + margin if above.any() else last
    ends = {"low": np.where(below, start, low), "high": np.where(above, end, high)}
    columns = {"estimate": estimates, **ends, "below": below, "above": above}
    values = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in values], (start, end)


def _cell_texts(
    release: ReleasedSums, column: str, facts: ColumnFacts | RatioFacts, shown: npt.NDArray[np.intp]
) -> tuple[list[str], list[str], list[list[str]]]:
    """Return the heads of the tooltips, and for each cell its name, all different, and the texts of its tooltip."""

    def write(x: Any, side: int = 0) -> str:
        return published(x, facts.grid, side) if isinstance(facts, ColumnFacts) else rounded_figure(x, side)

    def label(text: str) -> str:  # text that would not be seen is quoted
        return text if text.strip() and text.isprintable() else json.dumps(text)

    keys, rows = list(release.facts.by), release.table.take(shown).to_pylist()
    labels = [[label(str(one[key])) for key in keys] for one in rows]
    texts = []
    for parts, one in zip(labels, rows, strict=True):
        interval = f"{write(one[f'{column}_low'], -1)} to {write(one[f'{column}_high'], 1)}"
        texts.append([*parts, write(one[column]), rounded_figure(one[f"{column}_se"]), interval])
    heads: list[str] = []
    for head in (*map(_printable, (*keys, column)), "standard error", f"{percent(facts.level)} interval"):
        while head in heads or head in SPECIAL_IN_TOOLTIPS:
            head = f"{head}*"
        heads.append(head)
    names = [" · ".join(parts) or TOTAL for parts in labels]
    if len(set(names)) < len(names):
        quoted = [" · ".join(json.dumps(part, ensure_ascii=False) for part in parts) for parts in labels]
        names = [f"{name} #{i}" if name in quoted[: i - 1] else name for i, name in enumerate(quoted, 1)]
    return heads, names, texts


def _printable(name: str) -> str:
    """Return the name of a column with a sign in place of line breaks and the like, which a chart cannot show."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name)


def _interval_chart(
    title: str, note: str, values: list[dict[str, Any]], x: dict[str, Any], tooltip: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return the Vega-Lite description of cells with their intervals."""
    alt, _ = tools()
    y = {"field": "label", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 260, "grid": False}}

    def layer(field: str, mark: dict[str, Any], **others: Any) -> dict[str, Any]:
        return {"mark": mark, "encoding": {"y": y, "x": {"field": field, **x}, "tooltip": tooltip, **others}}

    point = {"type": "point", "filled": True, "opacity": 1}
    layers = [
        # An invisible band over the whole width shows the tooltip wherever the pointer is in the row.
        {"mark": {"type": "rect", "opacity": 0}, "encoding": {"y": y, "tooltip": tooltip}},
        layer("low", {"type": "rule", "strokeWidth": 2.5, "color": SKY}, x2={"field": "high"}),
        layer("estimate", {**point, "size": 55, "color": BLUE}),
    ]
    for side, end, shape, offset in (("below", "low", "triangle-left", 5), ("above", "high", "triangle-right", -5)):
        if any(one[side] for one in values):
            arrow = layer(end, {**point, "size": 70, "shape": shape, "color": SKY, "xOffset": offset})
            layers.append({"transform": [{"filter": {"field": side, "equal": True}}], **arrow})
    first, last = x["scale"]["domain"]
    if first < 0 < last:
        zero = {"type": "rule", "opacity": 0.5, "color": "black"}
        layers.insert(1, {"data": {"values": [{"zero": 0}]}, "mark": zero, "encoding": {"x": {"field": "zero", **x}}})
    return {
        "$schema": f"https://vega.github.io/schema/vega-lite/{alt.SCHEMA_VERSION}.json",
        "description": f"{title}. {note}",
        "title": {"text": title, "subtitle": note, "anchor": "start", "offset": 12},
        "width": PLOT_WIDTH,
        "height": {"step": BAR_STEP},
        "data": {"values": values},
        "layer": layers,
        "config": {
            "background": "white",
            "font": FONT,
            "padding": 6,
            "axis": _axis_style("black"),
            "title": {"color": "black", "subtitleColor": "black", "font": FONT, "subtitleFont": FONT, "fontSize": 16},
            "view": {"stroke": None},
        },
    }


def _interval_axis(estimates: Array, span: tuple[float, float], cut: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the axis and its scale: linear with 0, or symmetric-logarithmic for a wide range of positive estimates."""
    (first, last), smallest, largest = span, float(estimates.min()), float(estimates.max())
    if not (smallest > 0 and largest > LOG_SPAN * smallest):
        usual = max(abs(first), abs(last)) < 1e12 and last - first >= 1e-3
        axis = {"tickCount": 8, **({} if usual else {"format": ".3~g"})}
        return axis, {"type": "linear", "domain": [first, last], "nice": not cut}
    low, high = math.floor(math.log10(smallest)), math.ceil(math.log10(max(last, -first)))
    powers = list(range(low, high + 1, math.ceil((high - low + 1) / MOST_TICKS)))
    ticks = [sign * 10.0**power for power in powers for sign in (-1, 1)]
    labels = [power_of_ten(power) for power in range(low, high + 1)]
    sign = "(datum.value < 0 ? '−' : '')"
    expression = f"datum.value == 0 ? '0' : {sign} + {labels}[round(log(abs(datum.value)) / LN10) - ({low})]"
    axis = {"values": [0.0, *(one for one in ticks if first <= one <= last)], "labelExpr": expression}
    return axis, {"type": "symlog", "constant": 10.0**low, "domain": [first, last], "nice": False}
