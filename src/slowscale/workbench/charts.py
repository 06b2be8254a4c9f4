"""Charts of the workbench, as Vega-Lite descriptions that the browser draws."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from slowscale.mechanisms.additive import AdditiveMechanism
from slowscale.publish.charts import BLUE, COLOURS

VEGA_LITE = "https://vega.github.io/schema/vega-lite/v5.json"
LINE_POINTS = 80  # of a line
CHART_HEIGHT = 240


def loss_chart(lines: Mapping[str, Sequence[tuple[float, float]]], named: Mapping[str, float]) -> dict[str, Any]:
    """Return the chart of losses by record size, with the named sizes marked.

    Parameters
    ----------
    lines
        The name of each line with its points: record size, loss.
    named
        Named record sizes.
    """
    points = [
        {"mechanism": name, "size": x, "loss": y} for name, line in lines.items() for x, y in line if x > 0 and y > 0
    ]
    marks = [{"name": name, "size": size} for name, size in named.items()]
    return {
        "$schema": VEGA_LITE,
        "description": "What a record loses, by its size, on logarithmic axes",
        "width": "container",
        "height": CHART_HEIGHT,
        "layer": [
            {
                "data": {"name": "losses", "values": points},
                "mark": {"type": "line", "strokeWidth": 2.5},
                "encoding": {
                    "x": {"field": "size", "type": "quantitative", "scale": {"type": "log"}, "title": "Record size",
                          "axis": {"format": "~s", "tickCount": 8}},
                    "y": {"field": "loss", "type": "quantitative", "scale": {"type": "log"}, "title": "Loss (PRzCDP)",
                          "axis": {"format": "~g", "tickCount": 6}},
                    "color": {"field": "mechanism", "type": "nominal", "title": None,
                              "scale": {"domain": list(lines), "range": list(COLOURS[: len(lines)])},
                              "legend": {"orient": "top", "labelLimit": 400, "columns": 1} if len(lines) > 1 else None},
                },
            },
            {
                "data": {"values": marks},
                "mark": {"type": "rule", "strokeDash": [3, 3], "opacity": 0.6, "color": "gray"},
                "encoding": {"x": {"field": "size", "type": "quantitative"}},
            },
            {
                "data": {"values": marks},
                "mark": {"type": "text", "angle": 270, "align": "right", "baseline": "bottom", "dx": -4, "dy": -3,
                         "y": 4, "color": "gray", "fontSize": 12},
                "encoding": {"x": {"field": "size", "type": "quantitative"}, "text": {"field": "name"}},
            },
        ],
    }  # fmt: skip


def error_chart(mechanism: AdditiveMechanism) -> dict[str, Any]:
    """Return the chart of the errors of a published number: which share of them is at most how large."""
    return {
        "$schema": VEGA_LITE,
        "description": "The share of published numbers with an error of at most a size",
        "width": "container",
        "height": CHART_HEIGHT,
        "data": {"name": "errors", "values": error_points(mechanism)},
        "mark": {"type": "line", "strokeWidth": 2.5, "color": BLUE},
        "encoding": {
            "x": {"field": "error", "type": "quantitative", "scale": {"type": "log"}, "title": "Error at most",
                  "axis": {"format": "~s", "tickCount": 8}},
            "y": {"field": "share", "type": "quantitative", "scale": {"domain": [0, 1]},
                  "title": "Share of the published numbers", "axis": {"format": "%"}},
        },
    }  # fmt: skip


def error_points(mechanism: AdditiveMechanism) -> list[dict[str, float]]:
    """Return errors with the share of published numbers that have at most that error."""
    noise = mechanism.noise
    low, high = noise.interval(0.05)[1], noise.interval(0.9995)[1]
    errors = np.geomspace(low, high, LINE_POINTS)
    shares = 2 * np.asarray(noise.cdf(errors)) - 1
    return [{"error": float(e), "share": float(s)} for e, s in zip(errors, shares, strict=True)]


def sizes_for(named: Sequence[float]) -> Any:
    """Return the record sizes at which lines are drawn: from a tenth of the smallest to the largest named one."""
    return np.geomspace(min(named) / 10, max(named) * 2, LINE_POINTS)
