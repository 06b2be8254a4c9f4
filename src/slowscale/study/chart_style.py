"""What the charts of the study share: colours and dashes, checked tables, axes with readable ticks, panels, files."""

import json
import math
import os
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from slowscale.core.errors import ParameterError, ParameterTypeError
from slowscale.core.files import check_output_path, write_files
from slowscale.core.numbers import format_number, power_in_words
from slowscale.publish.charts import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, render, to_png, tools

CHART_FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
SUPERSCRIPT_FONT = "DejaVu Sans, Arial, Helvetica, sans-serif"  # Liberation Sans has no raised digits
ALL_ADDITIVE = "all additive mechanisms"
# The widths of letters of Liberation Sans and Arial, relative to the font size; most others are 0.556.
LETTER_WIDTHS = {
    letter: width
    for letters, width in (("ijl", 0.222), ("ft ,./", 0.278), ("r()", 0.333), ("w", 0.722), ("G", 0.778), ("m", 0.833))
    for letter in letters
}
LARGEST_POWER = 300  # of ten, on a logarithmic axis
NOTE_WIDTH = 135  # characters in a line below the title
PANEL = (352, 270)  # the width and the height of a panel if there are two beside each other with the same vertical axis
NARROW = (315, 270)  # if each of them has its own axis
WIDE = (560, 320)  # if there is one
LEGEND_WIDTH = 740  # of a legend above several panels
LABEL_APART = 17  # pixels between the names of lines
PANEL_TITLES = {
    "equal variance": "Equal variance: 1",
    "equal loss": "Equal loss: PRzCDP loss 1 at Δ(r) = 1",
    "standard deviation": "Standard deviation",
    "relative standard deviation": "Relative standard deviation",
    "unbounded: presence": "Unbounded: presence of the record",
    "bounded: a 10 % change": "Bounded: a 10 % change of its value",
}
KIND_TITLES = {"additive": "additive mechanisms", "transformation": "transformation mechanisms"}
KIND_NAMES = {"transformation": {"Gaussian": "Gaussian (identity)"}}
Row = dict[str, Any]


class Look(NamedTuple):
    """How a mechanism is drawn: the colour and the dash of its line, and the colour of its name on white."""

    colour: str
    dash: tuple[int, ...]
    ink: str


# The colours of Okabe and Ito first, then darker ones that differ from them in lightness too. Every dash is different,
# so that lines can also be distinguished in grey.
LOOKS: dict[str, Look] = {
    "Gaussian": Look("#000000", (1, 0), "#000000"),
    "generalized Gaussian 1/2": Look(ORANGE, (8, 3), "#A06E00"),
    "exponential polylog 2": Look(BLUE, (16, 3), BLUE),
    "fourth root": Look(GREEN, (2, 2), "#00805D"),
    "log": Look(VERMILION, (8, 3, 2, 3), "#C05500"),
    "Laplace": Look(SKY, (5, 2), "#1F7FB5"),
    "square root": Look(PURPLE, (10, 2, 2, 2, 2, 2), "#B0528A"),
    "exponential polylog 1": Look("#882255", (4, 4), "#882255"),
    "unit splitting": Look("#6E6E6E", (2, 4), "#666666"),
    "clipped Gaussian": Look("#5A4708", (12, 4, 4, 4), "#5A4708"),
    "exponential polylog 2, scale matched": Look("#332288", (16, 3, 2, 3, 2, 3), "#332288"),
    "exponential polylog 2, tight losses": Look("#88419D", (3, 3, 9, 3), "#88419D"),
    "fourth root, Laplace noise": Look("#117733", (1, 3), "#117733"),
    "log, Laplace noise": Look("#CC3311", (6, 2, 1, 2), "#CC3311"),
    "Gaussian, same accuracy": Look("#999999", (3, 1), "#6E6E6E"),
    ALL_ADDITIVE: Look("#000000", (6, 4), "#000000"),  # the Gaussian mechanism is one of them
}


def read(table: pa.Table, columns: Sequence[str], name: str = "table") -> list[Row]:
    """Return the rows of a table as dictionaries, after checking its columns and the mechanisms named in it."""
    if not isinstance(table, pa.Table):
        raise ParameterTypeError(name, allowed="a pyarrow.Table", given=type(table))
    missing = [column for column in columns if column not in table.column_names]
    if missing:
        words = f"must have the columns {', '.join(columns)}"
        raise ParameterError(name, words, code="unknown-column", remedy=f"it lacks {', '.join(missing)}")
    rows: list[Row] = table.to_pylist()
    for mechanism in distinct(rows, "mechanism") if "mechanism" in columns else ():
        if mechanism not in LOOKS:
            raise ParameterError(
                f"the mechanisms of {name}", code="unknown-name", given=mechanism, allowed=tuple(LOOKS)
            )
    return rows


def distinct(rows: Iterable[Row], field: str) -> list[Any]:
    """Return the different values of a field in the order of their first appearance."""
    return list(dict.fromkeys(row[field] for row in rows))


def select(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """Return the rows with these values."""
    return [row for row in rows if all(row[field] == value for field, value in wanted.items())]


def drawable(rows: Iterable[Row], *fields: str, positive: bool = True) -> list[Row]:
    """Return the rows whose values in these fields are finite, and above 0 for a logarithmic axis."""

    def shown(x: float | None) -> bool:
        return x is not None and math.isfinite(x) and (x > 0 or not positive)

    return [row for row in rows if all(shown(row[field]) for field in fields)]


def with_unit(title: str, unit: str) -> str:
    """Return the title of an axis with its unit."""
    return f"{title} ({unit})" if unit else title


def log_axis(
    title: str, values: Iterable[float | None], most: int = 12, *, percent: bool = False, margin: float = 1.0
) -> Row:
    """Return the scale and the axis of a logarithmic channel, whose ticks are labelled with plain numbers.

    The ticks are powers of ten, at most `most`. If the values span less than two of them, there are also ticks at their
    multiples by 2 and 5. Values that are not above 0 or not finite are ignored. The axis goes beyond the smallest and
    the largest value by the factor `margin`. With `percent`, a value of 1 is labelled 100 %.
    """
    shown = [v for v in values if v is not None and 0 < v < math.inf] or [1.0, 10.0]
    low, high = (min(max(math.log10(end), -LARGEST_POWER), LARGEST_POWER) for end in (min(shown), max(shown)))
    wider = math.log10(margin if high > low else 3)
    low, high = low - wider, high + wider
    steps = (1, 2, 5) if high - low < 2 else (1,)
    marks = [(k, m) for k in range(math.floor(low) - 1, math.ceil(high) + 2) for m in steps]

    def between() -> list[tuple[int, int]]:
        return [(k, m) for k, m in marks if low - 1e-9 <= k + math.log10(m) <= high + 1e-9]

    inside = between()
    if len(inside) < 2:  # then the axis is extended to the next ticks
        low = max(k + math.log10(m) for k, m in marks if k + math.log10(m) <= low)
        high = min(k + math.log10(m) for k, m in marks if k + math.log10(m) >= high)
        inside = between()
    if len(inside) > most:
        inside = [(k, m) for k, m in inside if m == 1]
    every = math.ceil(len(inside) / most)
    ticks = [(k, m) for k, m in inside if k % every == 0]
    places = [m * 10.0**k for k, m in ticks]
    powers = [(k + 2 * percent, m) for k, m in ticks]
    texts = (power_in_words(k) if m == 1 else format_number(m * 10.0**k) for k, m in powers)
    labels = [text + " %" * percent for text in texts]
    words = f"{json.dumps(labels, ensure_ascii=False)}[indexof({json.dumps(places)}, datum.value)]"
    axis = {"title": title, "values": places, "labelExpr": words, "labelFlush": False}
    axis["labelOverlap"] = False  # there are few enough ticks
    if not all(label.isascii() for label in labels):
        axis["labelFont"] = SUPERSCRIPT_FONT
    return {"scale": {"type": "log", "domain": [10.0**low, 10.0**high], "nice": False}, "axis": axis}


def linear_axis(title: str, low: float, high: float, ticks: int = 6, percent: bool = False) -> Row:
    """Return the scale and the axis of a linear channel from `low` to `high`."""
    wide = high > low and math.isfinite(high)
    words = "format(100 * datum.value, ',~f') + ' %'" if percent else "replace(format(datum.value, ',~g'), '-', '−')"
    return {
        "scale": {"domain": [low, high if wide else low + 1], "nice": False},
        "axis": {"title": title, "tickCount": ticks, "labelExpr": words, "labelFlush": False},
    }


def outer_only(channel: Row, shown: bool, labels: bool = False) -> Row:
    """Return a channel without the title of its axis unless it is shown, for panels that share a title.

    The labels of its ticks are left out too, unless `labels` says that the panels have different scales.
    """
    if shown:
        return channel
    hidden = {"title": None} if labels else {"title": None, "labels": False, "ticks": False}
    return channel | {"axis": channel["axis"] | hidden}


def colours(names: Sequence[str]) -> Row:
    """Return the scale that gives each mechanism its colour."""
    return {"domain": list(names), "range": [LOOKS[name].colour for name in names]}


def dashes(names: Sequence[str]) -> Row:
    """Return the scale that gives each mechanism its dash."""
    return {"domain": list(names), "range": [list(LOOKS[name].dash) for name in names]}


def chart_of(rows: Iterable[Row]) -> Any:
    """Return a chart of rows, to which a mark is added."""
    alt, _ = tools()
    return alt.Chart(alt.InlineData(values=tuple(rows)))  # Altair copies lists very often, but not tuples


def legend(names: Sequence[str], width: int, *, boxes: bool = False, words: Mapping[str, str] | None = None) -> Any:
    """Return a legend as a separate chart: samples of lines or boxes with their names, or the words for these.

    The legends of Vega-Lite have columns of equal width, so that few of the long names fit beside each other.
    """
    alt, _ = tools()
    sample = 14 if boxes else 40
    items: list[Row] = []
    x, y = 0.0, 10
    for name in names:
        written = (words or {}).get(name, name)
        needed = sample + 8 + text_width(written, 12.5)
        if items and x + needed > width:
            x, y = 0.0, y + 20
        items.append({"mechanism": name, "words": written, "x": x, "end": x + sample, "text": x + sample + 7, "y": y})
        x += needed + 22
    base = chart_of(items)

    def across(field: str) -> Any:
        return alt.X(f"{field}:Q", scale=None, axis=None)

    up = alt.Y("y:Q", scale=None, axis=None)
    colour = alt.Color("mechanism:N", scale=colours(names), legend=None)
    if boxes:
        drawn = base.mark_square(size=170, opacity=0.75, xOffset=7).encode(x=across("x"), y=up, color=colour)
    else:
        dash = alt.StrokeDash("mechanism:N", scale=dashes(names), legend=None)
        drawn = base.mark_rule(strokeWidth=2.2).encode(x=across("x"), x2="end:Q", y=up, color=colour, strokeDash=dash)
    text = base.mark_text(align="left", baseline="middle", fontSize=12.5, color="#222222")
    return alt.layer(drawn, text.encode(x=across("text"), y=up, text="words:N")).properties(width=width, height=y + 6)


def text_width(text: str, size: float) -> float:
    """Return about how wide a text is, in pixels."""
    return size * sum(LETTER_WIDTHS.get(letter, 0.556) for letter in text)


def panel(layers: Sequence[Any], title: str | None, width: int, height: int) -> Any:
    """Return a panel with its title.

    The title is a text mark: Vega-Lite places titles at heights that depend on the labels of the axis.
    """
    alt, _ = tools()
    if title:
        text = chart_of([{"title": title}]).mark_text(
            align="left", baseline="bottom", fontSize=13, fontWeight="bold", color="#111111"
        )
        layers = [*layers, text.encode(x=alt.value(0), y=alt.value(-10), text="title:N")]
    return alt.layer(*layers).properties(width=width, height=height)


def titled(chart: Any, title: str, note: str, about: str) -> Any:
    """Return a chart with a title, a note below it, a description, and the fonts and colours of all charts."""
    alt, _ = tools()
    heading = alt.TitleParams(
        title,
        subtitle=textwrap.wrap(note, NOTE_WIDTH) if note else alt.Undefined,
        anchor="start",
        frame="bounds",
        fontSize=16,
        color="#111111",
        subtitleFontSize=12.5,
        subtitleColor="#444444",
        subtitlePadding=5,
        offset=14,
    )
    axis = {"labelFontSize": 12, "titleFontSize": 12.5, "titleFontWeight": "normal", "titlePadding": 8}
    axis |= {"gridColor": "#e4e4e4", "domainColor": "#666666", "tickColor": "#666666", "tickSize": 4}
    axis |= {"labelColor": "#222222", "titleColor": "#222222"}
    config = {"aria": False, "font": CHART_FONT, "axis": axis, "view": {"stroke": None}, "concat": {"spacing": 30}}
    return chart.properties(title=heading, description=about, background="white", padding=12, config=config)


def empty(title: str, note: str) -> Any:
    """Return a chart that says that there is nothing to show."""
    words = "There are no values that this chart can show."
    chart = chart_of([{"words": words}]).properties(width=600, height=80)
    return titled(chart.mark_text(fontSize=14, color="#444444").encode(text="words:N"), title, note, words)


def grid(panels: Sequence[Any], columns: int, legends: Sequence[Any] = ()) -> Any:
    """Return panels in rows of some columns, below one legend for all or one legend per column."""
    alt, _ = tools()
    own = list(legends) if len(legends) == columns else []
    chart = alt.concat(*own, *panels, columns=columns, align="each")
    chart = chart if own or not legends else alt.vconcat(*legends, chart, spacing=14)
    return chart.resolve_scale(color="independent", strokeDash="independent", fill="independent", stroke="independent")


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

    `across` and `up` are the fields of the two axes, each with its scale and axis. `direct` names the mechanisms at the
    right ends of their lines. Lines can be steps, and points can be marked.
    """
    alt, _ = tools()
    x, y, order = _channels(across, up)
    base = chart_of({field: row[field] for field in (across[0], up[0], order, "mechanism")} for row in rows)
    colour = alt.Color("mechanism:N", scale=colours(names), legend=None)
    dash = alt.StrokeDash("mechanism:N", scale=dashes(names), legend=None)
    line = base.mark_line(strokeWidth=2.2, **({"interpolate": "step-after"} if step else {}))
    layers = [line.encode(x=x, y=y, color=colour, strokeDash=dash, order=f"{order}:Q")]
    if dots or len({row[across[0]] for row in rows}) == 1:  # a line through one point cannot be seen
        layers.append(base.mark_point(filled=True, size=55, opacity=1).encode(x=x, y=y, color=colour))
    if direct:
        layers += _labels(rows, names, across, up, size[1])
    return panel(layers, title, *size)


def _channels(across: tuple[str, Row], up: tuple[str, Row]) -> tuple[Any, Any, str]:
    """Return the two axes, and the field with the order of the points, which differs for an axis of names."""
    alt, _ = tools()
    kind, order = ("N", "cells_order") if across[0] == "cells" else ("Q", across[0])
    return alt.X(f"{across[0]}:{kind}", **across[1]), alt.Y(f"{up[0]}:Q", **up[1]), order


def _labels(
    rows: Sequence[Row], names: Sequence[str], across: tuple[str, Row], up: tuple[str, Row], height: int
) -> list[Any]:
    """Return layers with the names of lines to the right of their ends, moved apart where they would overlap."""
    low, high = (math.log10(end) for end in up[1]["scale"]["domain"])
    last = across[1]["scale"]["domain"][-1]
    x, y, order = _channels(across, up)
    ends = {}
    for name in names:
        if own := select(rows, mechanism=name):
            ends[name] = math.log10(max(own, key=lambda row: row[order])[up[0]])
    shown = sorted(ends, key=lambda name: ends[name])
    pixels = apart([(ends[name] - low) / (high - low) * height for name in shown], LABEL_APART, height)
    layers = []
    for name, pixel in zip(shown, pixels, strict=True):
        place = {across[0]: last, up[0]: 10 ** (low + pixel / height * (high - low)), "name": name}
        text = chart_of([place]).mark_text(align="left", dx=10, fontSize=13, fontWeight="bold", color=LOOKS[name].ink)
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


def save(
    chart: Any, stem: str | os.PathLike[str], *, overwrite: bool = False, confidential: bool = False
) -> tuple[Path, Path]:
    """Write a chart to `stem`.svg and `stem`.png, and return these two paths.

    Either both files are written or none. The title and the description of the chart are in the SVG for screen readers.

    Parameters
    ----------
    chart
        A chart of `slowscale.study.figures`.
    stem
        The path without its ending. The folder must exist.
    overwrite
        Whether to replace existing files.
    confidential
        Whether only the owner may read the files.
    """
    alt, _ = tools()
    if not isinstance(chart, alt.TopLevelMixin):
        raise ParameterTypeError("chart", allowed="an Altair chart", given=type(chart))
    if not isinstance(stem, str | os.PathLike):
        raise ParameterTypeError("stem", allowed="text or os.PathLike", given=type(stem))
    svg, png = (check_output_path(f"{os.fspath(stem)}{ending}", ending, overwrite) for ending in (".svg", ".png"))
    with alt.theme.enable("none"):  # independent of the theme that is enabled in the session
        described = chart.to_dict()
    drawn = render(described)
    title = described.get("title", "")
    words = title.get("text", "") if isinstance(title, dict) else title
    start, rest = drawn.split(">", 1)
    about = f"<title>{escape(str(words))}</title><desc>{escape(described.get('description', ''))}</desc>"
    contents = {svg: f'{start} role="img">{about}{rest}'.encode(), png: to_png(drawn)}
    writers = {target: partial(Path.write_bytes, data=content) for target, content in contents.items()}
    write_files(writers, overwrite=overwrite, confidential=confidential)
    return svg, png
