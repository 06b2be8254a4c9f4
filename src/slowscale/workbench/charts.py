"""Charts of the workbench, drawn on the server as parts of a page.

Text and axes have the colour of the page's text, so that charts follow its light or dark theme. Points that cannot be
seen carry the text of a tooltip, which `static/workbench.js` shows.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from slowscale.core.errors import EngineError
from slowscale.core.numbers import format_number, share
from slowscale.mechanisms.additive import AdditiveMechanism
from slowscale.publish.charts import BLUE, COLOURS, DASHES, FONT, INK, PAPER, Axis, Points, embed, render, summarize

VEGA_LITE = "https://vega.github.io/schema/vega-lite/v6.4.1.json"
LINE_POINTS = 80  # of a line
POINTS_PER_TIP = 2
CHART_WIDTH, CHART_HEIGHT = 340, 220  # without the axes; charts are as wide as their place on the page
TEXT_SIZE, FEW_TICKS = 13, 8
# 0.1, 10k, 1e-9
SHORT_NUMBER = "format(datum.value, datum.value < 1e15 && datum.value >= 1 ? '~s' : '~g')"
SIZE, LOSS = Axis("Record size"), Axis("Loss (PRzCDP)")
ERROR, SHARE = Axis("Error at most"), Axis("Share of the published numbers", log=False)


def loss_chart(anchor: str, title: str, lines: Mapping[str, Points], named: Mapping[str, float]) -> Markup | None:
    """Return the chart of losses by record size, with the named sizes marked; None if no point is positive.

    Parameters
    ----------
    anchor
        The beginning of the ids in the chart.
    title
        Its title.
    lines
        The name of each line with its points: record size, loss.
    named
        Named record sizes.
    """
    visible = {name: [(x, y) for x, y in line if x > 0 and y > 0] for name, line in lines.items()}
    visible = {name: line for name, line in visible.items() if line}
    if not visible:
        return None
    marks = [{"name": name, "size": size} for name, size in named.items()]
    at = {"x": {"field": "size", "type": "quantitative"}}
    text = {"type": "text", "angle": 270, "align": "right", "baseline": "bottom", "dx": -4, "dy": -3, "y": 4}
    # Each name is first drawn wider in the background colour, so that lines do not cross its letters.
    looks = ({"color": PAPER, "stroke": PAPER, "strokeWidth": 4, "strokeJoin": "round"}, {"color": INK})
    rule = {"type": "rule", "strokeDash": [3, 3], "opacity": 0.6, "color": INK}
    marked = [
        {"data": {"values": marks}, "mark": rule, "encoding": at},
        *(
            {"data": {"values": marks}, "mark": {**text, **look}, "encoding": {**at, "text": {"field": "name"}}}
            for look in looks
        ),
    ]
    tips = {
        name: [
            f"{f'{name}, ' if len(visible) > 1 else ''}record size {format_number(x)}: loss {format_number(y)}"
            for x, y in line
        ]
        for name, line in visible.items()
    }
    return _chart(anchor, title, (SIZE, LOSS), visible, tips, marked)


def error_chart(anchor: str, title: str, mechanism: AdditiveMechanism) -> Markup:
    """Return the chart of the errors of a published number: the share of errors below each size."""
    noise = mechanism.noise
    low, high = noise.interval(0.05)[1], noise.interval(0.9995)[1]
    errors = np.geomspace(low, high, LINE_POINTS)
    line = list(zip(errors.tolist(), (2 * np.asarray(noise.cdf(errors)) - 1).tolist(), strict=True))
    tips = [f"{share(y)} of the numbers within ±{format_number(x)}" for x, y in line]
    return _chart(anchor, title, (ERROR, SHARE), {"errors": line}, {"errors": tips}, [])


def sizes_for(named: Sequence[float]) -> Any:
    """Return the record sizes at which lines are drawn: from a tenth of the smallest to the largest named one."""
    return np.geomspace(min(named) / 10, max(named) * 2, LINE_POINTS)


def warm_up() -> None:
    """Draw a first chart in advance: it takes half a second, and later ones some milliseconds."""
    with suppress(EngineError):
        loss_chart("", "", {"": [(1.0, 1.0), (2.0, 2.0)]}, {})


def _scale(axis: Axis, values: Sequence[float]) -> dict[str, Any]:
    """Return the scale of an axis: shares from 0 to 1, or logarithmic, with the powers of ten if there are some."""
    if not axis.log:
        return {"scale": {"domain": [0, 1]}, "axis": {"format": "%", "tickCount": 5}}
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    powers = [10.0**power for power in range(low, high + 1, math.ceil((high - low) / FEW_TICKS) or 1)]
    ticks = {"values": powers} if high - low > 1 else {"tickCount": FEW_TICKS}
    return {"scale": {"type": "log"}, "axis": {"labelExpr": SHORT_NUMBER, **ticks}}


def _chart(
    anchor: str,
    title: str,
    axes: tuple[Axis, Axis],
    lines: Mapping[str, Points],
    tips: Mapping[str, Sequence[str]],
    marked: list[dict[str, Any]],
) -> Markup:
    """Return lines over a logarithmic axis as a figure, with the texts of tooltips for each of their points."""
    names = list(lines)
    legend = {"title": None, "orient": "top", "labelLimit": 400, "columns": 1, "symbolType": "stroke"}
    shown = {**legend, "symbolSize": 500} if len(names) > 1 else None
    colours = [COLOURS[i % len(COLOURS)] for i in range(len(names))]
    dashes = [DASHES[i % len(DASHES)] for i in range(len(names))]
    values = [
        {"line": name, "x": x, "y": y, "tip": tip}
        for name, line in lines.items()
        for (x, y), tip in zip(line, tips[name], strict=True)
    ]
    place = {
        name: {
            "field": name,
            "type": "quantitative",
            "title": axes[i].title,
            **_scale(axes[i], [point[i] for line in lines.values() for point in line]),
        }
        for i, name in enumerate("xy")
    }
    line = {
        "data": {"values": values},
        "mark": {"type": "line", "strokeWidth": 2.5, "aria": False},
        "encoding": {
            **place,
            "color": {"field": "line", "scale": {"domain": names, "range": colours}, "legend": shown},
            "strokeDash": {"field": "line", "scale": {"domain": names, "range": dashes}, "legend": shown},
        },
    }
    points = {
        "data": {"values": values[::POINTS_PER_TIP]},
        "mark": {"type": "point", "filled": True, "size": 60, "opacity": 0, "color": BLUE},
        "encoding": {**place, "description": {"field": "tip"}},
    }
    colour = {f"{part}Color": INK for part in ("label", "title", "domain", "tick", "grid")}
    text = {"labelFont": FONT, "titleFont": FONT, "labelFontSize": TEXT_SIZE, "titleFontSize": TEXT_SIZE}
    description = {
        "$schema": VEGA_LITE,
        "width": CHART_WIDTH,
        "height": CHART_HEIGHT,
        "layer": [line, *({**one, "mark": {**one["mark"], "aria": False}} for one in marked), points],
        "config": {
            "background": None,
            "font": FONT,
            "padding": 2,
            "axis": {**colour, **text, "titleFontWeight": "normal", "gridOpacity": 0.14},
            "legend": {"labelColor": INK, "labelFont": FONT, "labelFontSize": TEXT_SIZE},
            "text": {"fontSize": TEXT_SIZE},
            "view": {"stroke": None},
        },
    }
    ids = f"{anchor}-title {anchor}-summary"
    head = Markup('<desc id="{}-summary">{}</desc>').format(anchor, summarize(*axes, lines))
    return Markup('<figure class="chart"><figcaption id="{}-title">{}</figcaption>{}</figure>').format(
        anchor, escape(title), embed(render(description), ids, head)
    )
