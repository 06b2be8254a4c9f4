"""The chart of `Release.plot`: cells with their intervals, sorted by estimate; an interactive page that opens offline.

Labels are data, never code: the page holds the chart as a JSON block in which `<` is escaped, and its content security
policy runs exactly the two scripts whose hashes it names, and fetches nothing.
"""

import base64
import hashlib
import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import numpy.typing as npt

from slowscale.errors import ParameterError
from slowscale.facts import RatioFacts
from slowscale.figures import percent, power_of_ten, published, rounded_figure
from slowscale.files import free_target, write_files
from slowscale.parameters import Array, check_whole
from slowscale.release import Release
from slowscale.report.charts import COLOURS, FONT, INK, MOST_TICKS, render, tools
from slowscale.report.page import Html, cell, head, html, row, table, tag

Flags = npt.NDArray[np.bool_]

MOST_BARS = 1000  # more would be neither drawn quickly nor read
BAR_STEP, PLOT_WIDTH = 21, 620  # pixels
AXIS_ON_TOP_FROM = 30  # bars; the lower end of the chart is out of sight
LOG_SPAN = 1e3  # positive estimates that span more than this have a symmetric-logarithmic axis
REACH_OF_ESTIMATES = (
    20.0  # intervals are cut off at this multiple of the largest estimate, so that the estimates stay visible
)
TOTAL = "all records"
SPECIAL_IN_TOOLTIPS = ("title", "image")  # Vega's tooltips make a heading and a picture of these

PLOT_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; \
script-src $hashes; img-src data: blob:">
<title>$title</title>
<style>
:root {
  color-scheme: light dark;
  --paper: #ffffff; --panel: #f3f6f9; --ink: #17212b; --soft: #52606d; --line: #d3dae1;
}
@media (prefers-color-scheme: dark) {
  :root { --paper: #12171d; --panel: #1b222a; --ink: #e6ebf0; --soft: #a3b0bc; --line: #36414c; }
}
body { margin: 1.5rem; background: var(--paper); color: var(--ink); font: 1rem/1.5 $font; }
h1 { margin: 0; font-size: 1.3rem; overflow-wrap: anywhere; }
p { margin: .2rem 0 1rem; color: var(--soft); max-width: 50rem; }
.scroll { overflow-x: auto; }
details table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); }
details th, details td { padding: .25rem .7rem; text-align: left; border-bottom: 1px solid var(--line); }
#vg-tooltip-element.vg-tooltip {
  background: var(--panel) !important; color: var(--ink) !important; border-color: var(--line) !important;
  font-family: inherit !important; max-width: 40rem;
}
#vg-tooltip-element.vg-tooltip td.key { color: var(--soft) !important; }
</style>
</head>
<body>
<h1>$title</h1>
<p>$note</p>
<div class="scroll"><div id="chart"></div></div>
<details><summary>Data of this chart</summary>
$table
</details>
<script type="application/json" id="description">$description</script>
<script>$bundle</script>
<script>$start</script>
</body>
</html>
""")
# Vega's interpreter evaluates expressions without turning text into code. Links to pages of Vega are left out.
START = """
const description = JSON.parse(document.getElementById("description").textContent);
const actions = {export: true, source: false, compiled: false, editor: false};
vegaEmbed("#chart", description, {renderer: "svg", ast: true, actions})
  .catch((error) => { document.getElementById("chart").textContent = "The chart cannot be drawn: " + error; });
"""


@dataclass(frozen=True, repr=False)
class ReleasePlot:
    """A chart of a released column, which notebooks show; `save` writes it to a file.

    Attributes
    ----------
    title, note
        What is shown, in words.
    heads, rows
        The names of the columns of the data, and the data as text: what is known of each cell.
    """

    title: str
    note: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
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
        ending = Path(path).suffix.lower()
        if ending not in (".html", ".svg", ".png"):
            raise ParameterError(f"path must end in .html, .svg or .png, got {os.fspath(path)!r}")
        target = free_target(path, ending, overwrite)
        if ending == ".png":
            content = bytes(tools()[1].svg_to_png(self.svg, scale=2))
        else:
            content = (self.svg if ending == ".svg" else self.to_html()).encode()
        return write_files({target: lambda file: file.write_bytes(content)}, overwrite=overwrite)

    def to_dict(self) -> dict[str, Any]:
        """Return the chart as a Vega-Lite description, in black on white."""
        text = json.dumps(self._description).replace(f'"{INK}"', '"black"').replace('"transparent"', '"white"')
        described: dict[str, Any] = json.loads(text)
        return described

    def to_html(self) -> str:
        """Return the chart as a page that needs no network, light or dark as the reader's system is."""
        description = {
            name: part for name, part in self._description.items() if name != "title"
        }  # the page has a title
        bundle = _bundle()
        allowed = " ".join(f"'sha256-{_digest(script)}'" for script in (bundle, START))
        return PLOT_PAGE.substitute(
            title=escape(self.title),
            note=escape(self.note),
            font=FONT,
            hashes=allowed,
            table=self._table(),
            # In a script element, only `<` could end the element or start a comment.
            description=json.dumps(description).replace("<", "\\u003c"),
            bundle=bundle,
            start=START,
        )

    @property
    def svg(self) -> str:
        """The chart as SVG."""
        return render(self.to_dict())

    def _table(self) -> Html:
        top = row(*(head(name) for name in self.heads))
        rows = [row(*(cell(text, numeric=False) for text in texts)) for texts in self.rows]
        return table(html(self.note), [top], [tag("tbody", *rows)], self.title)

    def _repr_html_(self) -> str:
        height = BAR_STEP * len(self.rows) + 260
        return (
            f'<iframe sandbox="allow-scripts allow-downloads" title="{escape(self.title)}" width="100%" '
            f'height="{height}" style="border: 0" srcdoc="{escape(self.to_html())}"></iframe>'
        )

    def __repr__(self) -> str:
        return f"<ReleasePlot {self.title}>"


@cache
def _bundle() -> str:
    """Return the scripts of Vega, Vega-Lite and Vega-Embed."""
    alt, vl_convert = tools()
    version = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    script = str(vl_convert.javascript_bundle(vl_version=version))
    # Outside of text and regular expressions, a script never has these; there, a backslash changes nothing.
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def plot_release(release: Release, column: str, top: int) -> ReleasePlot:
    """Return a chart of the largest cells of a column; see `Release.plot`."""
    tools()
    check_whole("top", top, 1)
    if top > MOST_BARS:
        raise ParameterError(f"top must be at most {MOST_BARS:,}, got {top:,}: use release.table for all cells")
    facts = _facts(release, column)
    estimates = release._as_floats(column)
    drawable = np.flatnonzero(np.isfinite(estimates))
    shown = drawable[np.argsort(-estimates[drawable], kind="stable")[:top]]
    if not len(shown):
        raise ParameterError(f"column {column!r} has no number that can be drawn; see release.table")
    cells = _Cells.of(release, column, facts, shown)
    name = _printable(column)
    title = _title(release, name, len(shown), len(drawable))
    note = _note(release, facts, len(shown), len(estimates) - len(drawable), cells.cut)
    return ReleasePlot(title, note, cells.heads, cells.texts, _description(cells, name, title, note))


def _facts(release: Release, column: object) -> Any:
    """Return the facts of a released column or ratio, or raise an error that lists them."""
    known = {**release.facts.columns, **release.facts.ratios}
    if not isinstance(column, str) or column not in known:
        raise ParameterError(f"column must be one of {', '.join(known)}, got {column!r}")
    return known[column]


def _title(release: Release, column: str, shown: int, drawable: int) -> str:
    if not _keys(release):
        return f"{column}: {TOTAL}"
    if shown < drawable:
        return (
            f"{column}: the {shown:,} largest of {len(release):,} cells" if shown > 1 else f"{column}: the largest cell"
        )
    return (
        f"{column}: all {shown:,} cells" if shown == len(release) else f"{column}: {shown:,} of {len(release):,} cells"
    )


def _note(release: Release, facts: Any, shown: int, missing: int, cut: bool) -> str:
    level = ("approximate " if isinstance(facts, RatioFacts) and facts.approximate else "") + percent(facts.level)
    one = f"The estimate with its {level} interval."
    many = f"Estimates with their {level} intervals, sorted by estimate. The largest tend to be too large."
    words = [one if shown == 1 else many]
    if missing:
        words.append(f"{missing:,} {'cell has' if missing == 1 else 'cells have'} no estimate.")
    if cut:
        words.append("An arrow marks an interval that goes on beyond the chart.")
    if not release.facts.private:
        words.append("NOT PRIVATE: drawn from test bits.")
    return " ".join(words)


def _keys(release: Release) -> list[str]:
    return list(release.facts.cells.columns) if release.facts.cells else []


@dataclass(frozen=True)
class _Cells:
    """The cells of a chart: their names, numbers and texts.

    Attributes
    ----------
    labels, estimates, low, high
        The name of each cell, all different, its estimate, and the ends of its interval within the chart.
    span
        The ends of the axis.
    beyond
        For each cell, whether its interval goes on below and above the chart.
    heads, texts
        What is known of each cell, as text, with the names of these columns.
    """

    labels: list[str]
    estimates: Array
    low: Array
    high: Array
    span: tuple[float, float]
    beyond: tuple[Flags, Flags]
    heads: tuple[str, ...]
    texts: tuple[tuple[str, ...], ...]

    @property
    def cut(self) -> bool:
        """Whether an interval goes on beyond the chart."""
        return bool(np.any(self.beyond))

    @staticmethod
    def of(release: Release, column: str, facts: Any, shown: npt.NDArray[np.intp]) -> "_Cells":
        """Return the cells at these places of the table."""
        keys = _keys(release)
        names = [f"{column}{suffix}" for suffix in ("", "_se", "_low", "_high")]
        rows = release.table.select([*keys, *names]).take(shown).to_pylist()
        unit = None if isinstance(facts, RatioFacts) else facts.grid
        write: Callable[..., str] = rounded_figure if unit is None else lambda x, side=0: published(x, unit, side)
        texts = tuple(
            (
                *(_label(one[key]) for key in keys),
                write(one[names[0]]),
                rounded_figure(one[names[1]]),
                f"{write(one[names[2]], -1)} to {write(one[names[3]], 1)}",
            )
            for one in rows
        )
        estimates, low, high = (release._as_floats(name)[shown] for name in (names[0], names[2], names[3]))
        span, ends, beyond = _within(estimates, low, high)
        columns = [_printable(name) for name in (*keys, column)]
        heads = _distinct([*columns, "standard error", f"{percent(facts.level)} interval"])
        labels = _labels([text[: len(keys)] for text in texts])
        return _Cells(labels, estimates, *ends, span, beyond, heads, texts)


def _printable(name: str) -> str:
    """Return the name of a column with a sign in place of line breaks and the like, which a chart cannot show."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name)


def _label(value: object) -> str:
    """Return a key label as text; text that would not be seen is quoted."""
    text = str(value)
    return text if text.strip() and text.isprintable() else json.dumps(text)


def _labels(keys: Sequence[tuple[str, ...]]) -> list[str]:
    """Return one name per cell, all different."""
    found = [" · ".join(parts) or TOTAL for parts in keys]
    if len(set(found)) == len(found):
        return found
    quoted = [" · ".join(json.dumps(part, ensure_ascii=False) for part in parts) for parts in keys]
    return [f"{name} #{i}" if name in quoted[: i - 1] else name for i, name in enumerate(quoted, 1)]


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Return names that are all different, and none of which has a meaning of its own in a tooltip."""
    found: list[str] = []
    for name in names:
        while name in found or name in SPECIAL_IN_TOOLTIPS:
            name = f"{name}*"
        found.append(name)
    return tuple(found)


def _within(
    estimates: Array, low: Array, high: Array
) -> tuple[tuple[float, float], tuple[Array, Array], tuple[Flags, Flags]]:
    """Return the ends of the axis, the ends of the intervals within it, and which of them were cut off."""
    largest = float(np.max(np.abs(estimates)))
    reach = REACH_OF_ESTIMATES * largest if 0 < largest < 1e300 else 1e300
    low_cut, high_cut = ~(np.isfinite(low) & (low >= -reach)), ~(np.isfinite(high) & (high <= reach))
    numbers = np.concatenate([estimates, low[~low_cut], high[~high_cut], [0.0]])
    first, last = float(numbers.min()), float(numbers.max())
    if first == last:
        first, last = -1.0, 1.0
    margin = 0.04 * (last - first)
    # An end that is cut off is beyond all others, and on its own side.
    start = first - margin if low_cut.any() else first
    end = last + margin if high_cut.any() else last
    return (start, end), (np.where(low_cut, start, low), np.where(high_cut, end, high)), (low_cut, high_cut)


def _description(cells: _Cells, column: str, title: str, note: str) -> dict[str, Any]:
    """Return the Vega-Lite description of the chart."""
    alt, _ = tools()
    names = [f"text{i}" for i in range(len(cells.heads))]
    values = [
        {
            "label": label,
            "estimate": float(cells.estimates[i]),
            "low": float(cells.low[i]),
            "high": float(cells.high[i]),
            "below": bool(cells.beyond[0][i]),
            "above": bool(cells.beyond[1][i]),
            **dict(zip(names, cells.texts[i], strict=True)),
        }
        for i, label in enumerate(cells.labels)
    ]
    axis, scale = _axis(cells)
    orient = "top" if len(values) >= AXIS_ON_TOP_FROM else "bottom"
    x = {"type": "quantitative", "scale": scale, "title": column, "axis": {**axis, "orient": orient}}
    y = {"field": "label", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 260, "grid": False}}
    tooltip = [
        {"field": name, "type": "nominal", "title": title} for name, title in zip(names, cells.heads, strict=True)
    ]
    ink, blue, sky = {"color": INK}, {"color": COLOURS[0]}, {"color": COLOURS[5]}
    layers: list[dict[str, Any]] = [
        {
            # A band over the whole width, which shows the tooltip wherever the pointer is in the row.
            "mark": {"type": "rect", **ink},
            "params": [
                {"name": "hover", "select": {"type": "point", "on": "pointerover", "clear": "pointerout"}},
            ],
            "encoding": {
                "y": y,
                "tooltip": tooltip,
                "opacity": {"condition": {"param": "hover", "empty": False, "value": 0.1}, "value": 0},
            },
        },
        {
            "mark": {"type": "rule", "strokeWidth": 2.5, **sky},
            "encoding": {"y": y, "x": {"field": "low", **x}, "x2": {"field": "high"}, "tooltip": tooltip},
        },
        {
            "mark": {"type": "point", "filled": True, "opacity": 1, "size": 55, **blue},
            "encoding": {"y": y, "x": {"field": "estimate", **x}, "tooltip": tooltip},
        },
    ]
    for side, end, shape, offset in (("below", "low", "triangle-left", 5), ("above", "high", "triangle-right", -5)):
        if any(one[side] for one in values):
            layers.append(
                {
                    "transform": [{"filter": {"field": side, "equal": True}}],
                    "mark": {"type": "point", "filled": True, "opacity": 1, "size": 70, "shape": shape, **sky}
                    | {"xOffset": offset},
                    "encoding": {"y": y, "x": {"field": end, **x}, "tooltip": tooltip},
                }
            )
    if cells.span[0] < 0 < cells.span[1]:
        zero = {
            "data": {"values": [{"zero": 0}]},
            "mark": {"type": "rule", "opacity": 0.5, **ink},
            "encoding": {"x": {"field": "zero", **x}},
        }
        layers.insert(1, zero)
    text = {"labelFont": FONT, "titleFont": FONT, "labelFontSize": 13, "titleFontSize": 13, "titleFontWeight": "normal"}
    lines = {"labelColor": INK, "titleColor": INK, "domainColor": INK, "tickColor": INK, "gridColor": INK}
    return {
        "$schema": f"https://vega.github.io/schema/vega-lite/{alt.SCHEMA_VERSION}.json",
        "title": {"text": title, "subtitle": note, "anchor": "start", "offset": 12},
        "width": PLOT_WIDTH,
        "height": {"step": BAR_STEP},
        "data": {"values": values},
        "layer": layers,
        "config": {
            "background": "transparent",
            "font": FONT,
            "padding": 6,
            "axis": {**text, **lines, "gridOpacity": 0.14, "tickSize": 4, "titlePadding": 10},
            "title": {"color": INK, "subtitleColor": INK, "font": FONT, "subtitleFont": FONT, "fontSize": 16},
            "view": {"stroke": None},
        },
    }


def _axis(cells: _Cells) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the axis and its scale: linear with 0, or symmetric-logarithmic for a wide range of positive estimates."""
    first, last = cells.span
    smallest, largest = float(cells.estimates.min()), float(cells.estimates.max())
    domain = [first, last]
    if not (smallest > 0 and largest > LOG_SPAN * smallest):
        usual = max(abs(first), abs(last)) < 1e12 and last - first >= 1e-3
        return {"tickCount": 8, **({} if usual else {"format": ".3~g"})}, {
            "type": "linear",
            "domain": domain,
            "nice": not cells.cut,
        }
    low, high = math.floor(math.log10(smallest)), math.ceil(math.log10(max(last, -first)))
    powers = list(range(low, high + 1, math.ceil((high - low + 1) / MOST_TICKS)))
    ticks = [sign * 10.0**power for power in powers for sign in (-1, 1)]
    labels = [power_of_ten(power) for power in range(low, high + 1)]
    sign = "(datum.value < 0 ? '−' : '')"
    expression = f"datum.value == 0 ? '0' : {sign} + {labels}[round(log(abs(datum.value)) / LN10) - ({low})]"
    axis = {"values": [0.0, *(one for one in ticks if first <= one <= last)], "labelExpr": expression}
    return axis, {"type": "symlog", "constant": 10.0**low, "domain": domain, "nice": False}
