"""What the charts of the study share: colours and dashes, checked tables, axes with readable ticks, titles."""

import json
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from slowscale.core.errors import ParameterError, ParameterTypeError
from slowscale.core.numbers import format_number, power_in_words
from slowscale.publish.charts import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, tools

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
    ALL_ADDITIVE: Look("#000000", (6, 4), "#000000"),  # the Gaussian mechanism is one of them
}


def read(table: pa.Table, columns: Sequence[str], name: str = "table") -> list[Row]:
    """Return the rows of a table as dictionaries, after checking its columns and the mechanisms named in it."""
    if not isinstance(table, pa.Table):
        raise ParameterTypeError(name, allowed="a pyarrow.Table", given=type(table))
    missing = [column for column in columns if column not in table.column_names]
    if missing:
        raise ParameterError(
            name, f"must have the columns {', '.join(columns)}", remedy=f"it lacks {', '.join(missing)}"
        )
    rows: list[Row] = table.to_pylist()
    for mechanism in distinct(rows, "mechanism") if "mechanism" in columns else ():
        if mechanism not in LOOKS:
            known = ", ".join(map(repr, LOOKS))
            raise ParameterError(
                f"{name}: there", f"is no look for the mechanism {mechanism!r}", remedy=f"use one of {known}"
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
    return [
        row
        for row in rows
        if all(row[f] is not None and math.isfinite(row[f]) and (row[f] > 0 or not positive) for f in fields)
    ]


def with_unit(title: str, unit: str) -> str:
    """Return the title of an axis with its unit."""
    return f"{title} ({unit})" if unit else title


def log_axis(
    title: str, values: Iterable[float | None], most: int = 12, *, percent: bool = False, margin: float = 1.0
) -> Row:
    """Return the scale and the axis of a logarithmic channel, whose ticks are labelled with plain numbers.

    The ticks are powers of ten. If the values span less than two of them, there are also ticks at their multiples by 2
    and 5.

    Parameters
    ----------
    title
        The title of the axis.
    values
        The values to show. Values that are not above 0 or not finite are ignored.
    most
        The largest number of ticks for which there is room.
    percent
        Whether the labels are percentages: a value of 1 is labelled 100 %.
    margin
        The factor by which the axis goes beyond the smallest and the largest value.
    """
    low, high = _log_span(values, margin)
    steps = (1, 2, 5) if high - low < 2 else (1,)
    marks = [(k, m) for k in range(math.floor(low) - 1, math.ceil(high) + 2) for m in steps]
    inside = _between(marks, low, high)
    if len(inside) < 2:  # then the axis is extended to the next ticks
        low = max(k + math.log10(m) for k, m in marks if k + math.log10(m) <= low)
        high = min(k + math.log10(m) for k, m in marks if k + math.log10(m) >= high)
        inside = _between(marks, low, high)
    if len(inside) > most:
        inside = [(k, m) for k, m in inside if m == 1]
    every = math.ceil(len(inside) / most)
    ticks = [(k, m) for k, m in inside if k % every == 0]
    places = [m * 10.0**k for k, m in ticks]
    labels = [_tick_label(k + 2 * percent, m) + " %" * percent for k, m in ticks]
    words = f"{json.dumps(labels, ensure_ascii=False)}[indexof({json.dumps(places)}, datum.value)]"
    axis = {"title": title, "values": places, "labelExpr": words, "labelFlush": False}
    axis["labelOverlap"] = False  # there are few enough ticks
    if not all(label.isascii() for label in labels):
        axis["labelFont"] = SUPERSCRIPT_FONT
    return {"scale": {"type": "log", "domain": [10.0**low, 10.0**high], "nice": False}, "axis": axis}


def _log_span(values: Iterable[float | None], margin: float) -> tuple[float, float]:
    """Return the decimal logarithms of the ends of an axis that shows the values."""
    shown = [v for v in values if v is not None and 0 < v < math.inf] or [1.0, 10.0]
    low, high = (min(max(math.log10(end), -LARGEST_POWER), LARGEST_POWER) for end in (min(shown), max(shown)))
    wider = math.log10(margin) if high > low else math.log10(3)
    return low - wider, high + wider


def _between(marks: Iterable[tuple[int, int]], low: float, high: float) -> list[tuple[int, int]]:
    """Return the ticks, given as a power of ten and its multiple, between two logarithms."""
    return [(k, m) for k, m in marks if low - 1e-9 <= k + math.log10(m) <= high + 1e-9]


def _tick_label(power: int, step: int) -> str:
    if step != 1:
        return format_number(step * 10.0**power)
    return power_in_words(power)


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
    """Return a legend as a chart of its own: samples of lines or boxes with their names, in few rows.

    The legends of Vega-Lite have columns of equal width, so that few of the long names fit beside each other.

    Parameters
    ----------
    names
        The mechanisms in their order.
    width
        The width of a row.
    boxes
        Whether the samples are boxes instead of lines.
    words
        What to write instead of a name.
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


def unit_of(units: Mapping[str, str] | None, attribute: str) -> str:
    """Return the unit of an attribute, or nothing if it is not given."""
    return (units or {}).get(attribute, "")


def panel_title(name: str) -> str:
    """Return the title of the panel that a table names."""
    return PANEL_TITLES.get(name, name)
