"""Charts, described with Altair and rendered to SVG within the page: no script, no network access.

Text and axes have the colour of the page's text (`currentColor`), so that charts follow its light or dark theme. Lines
differ in dashes and in colour. The colours are those of Okabe and Ito, which colour-blind readers can distinguish.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from slowscale.errors import EngineError
from slowscale.figures import figure, power_of_ten
from slowscale.report.page import Html, cell, head, html, paragraph, row, table, tag
from slowscale.report.words import MISSING

INK = "currentColor"
PAPER = "#fffffe"  # a placeholder for the background colour of the page, which is light or dark
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", INK)
DASHES = ((1, 0), (9, 4), (2, 3), (12, 4, 2, 4), (5, 2), (16, 6))
FONT = '"Source Sans 3", "Segoe UI", "Helvetica Neue", "Liberation Sans", Arial, sans-serif'
WIDTH, HEIGHT = 800, 330
MOST_TICKS = 10
NAME_FONT_SIZE = 13
SHORT_NAME = 18  # letters: four names of lines that are not longer fit beside each other


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
    """A chart of several lines, given by their names and points, with marks on them."""

    anchor: str
    title: str
    note: str
    x: Axis
    y: Axis
    lines: Mapping[str, Sequence[tuple[float, float]]]
    marks: tuple[Mark, ...] = ()
    floor: float = 0.0  # points below are not drawn, so that the rest of the chart stays readable
    same_colour: Mapping[str, str] = field(default_factory=dict)  # lines drawn in the colour of another line

    def figure(self, shown: Sequence[float]) -> Html:
        """Return the chart with its text alternative, and a table of the points at the x values `shown`."""
        lines = {name: [point for point in points if self._visible(point)] for name, points in self.lines.items()}
        drawn = {name: points for name, points in lines.items() if points}
        svg = self._svg(drawn) if drawn else paragraph("There are no values that logarithmic axes can show.")
        caption = tag("figcaption", self.title, " ", tag("span", self.note))
        data = tag("details", tag("summary", "Data of this chart"), self._table(shown))
        drawing = tag("div", svg, class_="scroll", role="region", tabindex="0", aria_label=self.title)
        return tag("figure", caption, "\n", drawing, "\n", data, id=self.anchor)

    def _visible(self, point: tuple[float, float]) -> bool:
        return point[1] >= self.floor and all(
            math.isfinite(at) and (at > 0 or not axis.log) for at, axis in zip(point, (self.x, self.y), strict=True)
        )

    def _svg(self, lines: Mapping[str, Sequence[tuple[float, float]]]) -> Html:
        marks = [mark for mark in self.marks if self._visible((mark.x, mark.y))]
        drawn = render(spec(self.x, self.y, lines, marks, self.same_colour))
        title, summary = f"{self.anchor}-title", f"{self.anchor}-summary"
        opening = re.match(r"<svg[^>]*?( viewBox=\"[^\"]*\")?>", drawn)
        assert opening is not None
        return Html(
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="{title} {summary}"{opening[1] or ""}>'
            f'<title id="{title}">{escape(self.title)}</title>'
            f'<desc id="{summary}">{escape(self._description(lines))}</desc>'
            f"{drawn[opening.end() :].replace(PAPER, 'var(--paper)')}"
        )

    def _description(self, lines: Mapping[str, Sequence[tuple[float, float]]]) -> str:
        kind = "logarithmic axes" if self.y.log else "a logarithmic horizontal axis"
        text = [f"Line chart with {kind}: {self.y.title} against {self.x.title}."]
        for name, points in lines.items():
            (x0, y0), (x1, y1) = points[0], points[-1]
            if all(math.isclose(y, y0) for _, y in points):
                text.append(f"{name}: {figure(y0)} throughout.")
            else:
                text.append(f"{name}: from {figure(y0)} at {figure(x0)} to {figure(y1)} at {figure(x1)}.")
        return " ".join(text)

    def _table(self, shown: Sequence[float]) -> Html:
        columns = {name: dict(points) for name, points in self.lines.items()}
        rows = [
            row(
                head(figure(x), "row", numeric=True),
                *(cell(figure(points[x]) if x in points else "") for points in columns.values()),
            )
            for x in shown
        ]
        top = row(head(self.x.title, numeric=True), *(head(name, numeric=True) for name in columns))
        return table(html(self.y.title), [top], [tag("tbody", *rows)], self.title)


def spec(
    across: Axis,
    up: Axis,
    lines: Mapping[str, Sequence[tuple[float, float]]],
    marks: Sequence[Mark] = (),
    same_colour: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the chart's Vega-Lite description."""
    alt, _ = tools()
    points = [(name, *point) for name, line in lines.items() for point in line]
    names = list(lines)
    own = [name for name in names if (same_colour or {}).get(name) not in names]
    colours_of = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(own)}
    colours = [colours_of.get(name) or colours_of[(same_colour or {})[name]] for name in names]
    dashes = [list(DASHES[i % len(DASHES)]) for i in range(len(names))]
    columns = 4 if max(map(len, names)) <= SHORT_NAME else 2
    legend = alt.Legend(title=None, symbolType="stroke", symbolSize=900, symbolStrokeWidth=2.5, columns=columns)
    x_axis, y_axis = _axis_options(across, [x for _, x, _ in points]), _axis_options(up, [y for _, _, y in points])
    chart = (
        alt.Chart(
            alt.InlineData(values=[dict(zip(("line", "x", "y"), point, strict=True)) for point in points]),
            width=WIDTH,
            height=HEIGHT,
        )
        .mark_line(strokeWidth=2.5)
        .encode(
            x=alt.X("x:Q", **x_axis),
            y=alt.Y("y:Q", **y_axis),
            color=alt.Color("line:N", scale=alt.Scale(domain=names, range=colours), legend=legend),
            strokeDash=alt.StrokeDash("line:N", scale=alt.Scale(domain=names, range=dashes), legend=legend),
        )
    )
    if marks:
        chart = alt.layer(chart, *_mark_layers(marks, dict(zip(names, colours, strict=True)), x_axis, y_axis))
    ink = {"labelColor": INK, "titleColor": INK, "domainColor": INK, "tickColor": INK, "gridColor": INK}
    text = {"labelFont": FONT, "titleFont": FONT, "labelFontSize": 13, "titleFontSize": 13}
    chart = (
        chart.configure(background="transparent", aria=False, font=FONT, padding=4)
        .configure_axis(**ink, **text, titleFontWeight="normal", titlePadding=10, gridOpacity=0.14, tickSize=4)
        .configure_legend(
            orient="top", labelColor=INK, labelFont=FONT, labelFontSize=13, labelLimit=720 // columns, offset=12
        )
        .configure_view(stroke=None)
    )
    with alt.theme.enable("none"):  # independent of the theme that is enabled in the session
        described: dict[str, Any] = chart.to_dict()
    return described


def _mark_layers(
    marks: Sequence[Mark], colours: Mapping[str, str], x_axis: dict[str, Any], y_axis: dict[str, Any]
) -> list[Any]:
    """Return layers with one point per mark, and with the names of those marks for which there is room."""
    alt, _ = tools()
    x, y = alt.X("x:Q", **x_axis), alt.Y("y:Q", **y_axis)
    dots, names = [], []
    sides = _name_sides(
        marks, _axis_position(x_axis["scale"].domain, WIDTH), _axis_position(y_axis["scale"].domain, HEIGHT)
    )
    for mark, side in zip(marks, sides, strict=True):
        base = alt.Chart(alt.InlineData(values=[{"x": mark.x, "y": mark.y, "name": mark.name}]))
        dots.append(base.mark_point(filled=True, opacity=1, size=90, color=colours[mark.line]).encode(x=x, y=y))
        # Each name is first drawn wider in the background colour, so that lines do not cross its letters.
        around = {"color": PAPER, "stroke": PAPER, "strokeWidth": 5, "strokeJoin": "round"}
        for look in (around, {"color": INK}) if side is not None else ():
            text = base.mark_text(font=FONT, fontSize=NAME_FONT_SIZE, **(side or {}), **look)
            names.append(text.encode(x=x, y=y, text=alt.Text("name:N")))
    return [*names, *dots]


def _axis_position(domain: Sequence[float], length: int) -> Callable[[float], float]:
    """Return a function that gives the position of a value on a logarithmic axis of this length."""
    low, high = (math.log(end) for end in domain)
    return lambda value: (math.log(value) - low) / (high - low) * length


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
            box = (left, left + width, y - dy - 8, y - dy + 8)  # y grows upwards here, but downwards in the SVG
            inside = box[0] >= 0 and box[1] <= WIDTH and box[2] >= 0 and box[3] <= HEIGHT
            if marks[i].name and inside and not any(_overlap(box, other) for other in taken):
                sides[i] = {"align": align, "baseline": "middle", "dx": dx, "dy": dy}
                taken.append(box)
                break
    return sides


def _overlap(one: Sequence[float], other: Sequence[float]) -> bool:
    return one[0] < other[1] and other[0] < one[1] and one[2] < other[3] and other[2] < one[3]


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


def render(description: dict[str, Any]) -> str:
    """Render a Vega-Lite description to SVG, without network access."""
    alt, vl_convert = tools()
    version = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    return str(vl_convert.vegalite_to_svg(description, vl_version=version, allowed_base_urls=[]))


def check_tools() -> None:
    """Raise unless the packages that a report needs are installed."""
    tools()


def tools() -> tuple[Any, Any]:
    """Return the packages that draw charts, or raise an error that says how to install them."""
    try:
        import altair
        import vl_convert
    except ImportError:
        raise EngineError(MISSING) from None
    return altair, vl_convert
