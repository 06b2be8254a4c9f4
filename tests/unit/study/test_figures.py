"""The charts of the study show what their tables say, with one look per mechanism, and are written whole."""

import math
import re
import struct
import subprocess
import sys
from itertools import combinations

import pyarrow as pa
import pytest
from helpers.errors import refused

from slowscale.core.errors import EngineError, ParameterError, ParameterTypeError
from slowscale.core.numbers import power_in_words
from slowscale.publish.charts import render
from slowscale.study import figures
from slowscale.study.chart_style import ALL_ADDITIVE, apart, drawable, legend, log_axis, text_width

ADDITIVE = ("Gaussian", "generalized Gaussian 1/2", "exponential polylog 2")
TRANSFORMATIONS = ("Gaussian", "fourth root", "log")
KINDS = {"additive": ADDITIVE, "transformation": TRANSFORMATIONS}
SIZES = (1.0, 10.0, 1000.0)


def table(columns, rows):
    rows = list(rows)
    return pa.table({name: [row[i] for row in rows] for i, name in enumerate(columns.split())})


def densities(names=("Gaussian", "exponential polylog 1", "exponential polylog 2")):
    rows = [
        (panel, name, z, math.exp(-abs(z) * (i + 1)))
        for panel in ("equal variance", "equal loss")
        for i, name in enumerate(names)
        for z in (-1.0, 0.0, 1.0)
    ]
    return table("panel mechanism z density", rows)


def distributions(attributes=("emp", "payann"), density=1.0):
    whats = ("records", "sums of cells")
    rows = [(a, what, v, density * (1 + v % 7)) for a in attributes for what in whats for v in SIZES]
    return table("attribute what value density", rows)


def quartiles(attributes=("emp", "payann"), zeros=0.25):
    rows = [(a, what, 0.0, 10.0, 100.0, zeros) for a in attributes for what in ("records", "sums of cells")]
    return table("attribute what q25 q50 q75 zeros", rows)


def histogram(counts=(3, 0, 5)):
    rows = [(what, 10.0**i, 10.0 ** (i + 1), n) for what in ("records", "sums of cells") for i, n in enumerate(counts)]
    return table("what low high count", rows)


def loss_cdfs(attributes=("emp", "payann"), kinds=KINDS, losses=(0.0, 1.0, 5.0)):
    rows = [
        (attribute, kind, name, loss * (i + 1), (j + 1) / len(losses))
        for attribute in attributes
        for kind, names in kinds.items()
        for i, name in enumerate(reversed(names))
        for j, loss in enumerate(losses)
    ]
    return table("attribute kind mechanism loss share", rows)


def relative_errors(attributes=("emp", "payann"), kinds=KINDS, scale=1.0):
    rows = [
        (attribute, kind, name, quintile, *(scale * p / quintile for p in (0.01, 0.05, 0.1, 0.5, 2.0)))
        for attribute in attributes
        for kind, names in kinds.items()
        for name in names
        for quintile in range(1, 6)
    ]
    return table("attribute kind mechanism quintile p5 p25 p50 p75 p95", rows)


def stds(attributes=("emp", "cattle"), scale=1.0):
    growth = {ALL_ADDITIVE: 0, "fourth root": 0.75, "log": 1}
    rows = [(a, name, q, scale * q**power) for a in attributes for name, power in growth.items() for q in SIZES]
    return table("attribute mechanism query std", rows)


def policies(names=(*ADDITIVE, "fourth root", "log", "unit splitting"), scale=1.0):
    rows = [(name, size, scale * size / (i + 1)) for i, name in enumerate(names) for size in SIZES]
    return table("mechanism size loss", rows)


def transformation_stds(scale=1.0):
    panels = ("standard deviation", "relative standard deviation")
    names = ("Gaussian", "square root", "fourth root", "log")
    rows = [(panel, name, q, scale * (i + 1) * q) for panel in panels for i, name in enumerate(names) for q in SIZES]
    return table("panel mechanism query value", rows)


def variances(sigmas=(1.0, 10.0, 100.0), scale=1.0):
    rows = [(sigma, "Laplace", q, scale * 2 * sigma**2) for sigma in sigmas for q in SIZES]
    rows += [(sigma, "square root", q, scale * (sigma**2 / 2 + 2 * sigma * q)) for sigma in sigmas for q in SIZES]
    return table("sigma mechanism query variance", rows)


def neighbour_policies(scale=1.0):
    panels = ("unbounded: presence", "bounded: a 10 % change")
    names = (*ADDITIVE, "Laplace", "square root", "fourth root", "log")
    rows = [(panel, name, s, scale * s / (i + 1)) for panel in panels for i, name in enumerate(names) for s in SIZES]
    return table("panel mechanism size loss", rows)


CELLS = ("1 to 1,000", "1,000 to 10,000", "10,000 to 100,000", "100,000 to 1,000,000")


def gains(attributes=("emp", "payann"), cells=CELLS, scale=1.0):
    names = ("Gaussian", "clipped Gaussian", "exponential polylog 2, scale matched")
    rows = [
        (attribute, cell, k, name, scale * 10.0 ** (-k - i))
        for attribute in attributes
        for k, cell in reversed(list(enumerate(cells)))
        for i, name in enumerate(names)
    ]
    return table("attribute cells cells_order mechanism median_error", rows)


CHARTS = {
    "densities": (lambda: figures.densities(densities()), {"z", "density", "mechanism"}),
    "distributions": (lambda: figures.distributions(distributions(), quartiles()), {"value", "left", "right"}),
    "histogram": (lambda: figures.histogram(histogram()), {"low", "high", "count"}),
    "loss_cdfs": (lambda: figures.loss_cdfs(loss_cdfs()), {"loss", "share", "mechanism"}),
    "relative_errors": (lambda: figures.relative_errors(relative_errors()), {"p5", "p25", "p50", "p75", "p95"}),
    "stds": (lambda: figures.stds(stds()), {"query", "std", "mechanism"}),
    "policies": (lambda: figures.policies(policies()), {"size", "loss", "mechanism"}),
    "transformation_stds": (lambda: figures.transformation_stds(transformation_stds()), {"query", "value"}),
    "variances": (lambda: figures.variances(variances()), {"query", "variance", "mechanism"}),
    "neighbour_policies": (lambda: figures.neighbour_policies(neighbour_policies()), {"size", "loss"}),
    "gains": (lambda: figures.gains(gains()), {"cells", "median_error", "mechanism"}),
}


def inside(node, key):
    """Yield all values of a key, anywhere in a specification."""
    if isinstance(node, dict):
        if key in node:
            yield node[key]
        node = list(node.values())
    if isinstance(node, list):
        for part in node:
            yield from inside(part, key)


def encodings(chart):
    return [encoding for encoding in inside(chart.to_dict(), "encoding") if isinstance(encoding, dict)]


def data(chart, *fields):
    """Return the data sets with these fields in the order of their use."""
    spec = chart.to_dict()
    names = dict.fromkeys(use["name"] for use in inside(spec, "data"))
    sets = [list(spec["datasets"][name]) for name in names]
    return [rows for rows in sets if rows and set(fields) <= set(rows[0])]


def panels(chart):
    """Return the titles of the panels in their order."""
    return [rows[0]["title"] for rows in data(chart, "title")]


def legends(chart):
    """Return the names in each legend in their order."""
    return [[row["words"] for row in rows] for rows in data(chart, "words", "mechanism")]


def scales(chart, *channels):
    return [e[c]["scale"] for e in encodings(chart) for c in channels if c in e and "scale" in e[c]]


def axis(chart, channel, number=0):
    found = [e[channel] for e in encodings(chart) if channel in e and (e[channel].get("axis") or {}).get("title")]
    return found[number]


@pytest.mark.parametrize("name", CHARTS)
def test_fields_titles_and_description(name):
    make, fields = CHARTS[name]
    chart = make()
    spec = chart.to_dict()
    used = {value["field"] for encoding in encodings(chart) for value in encoding.values() if "field" in value}
    assert fields <= used
    assert spec["title"]["text"]
    assert len(spec["description"]) > 60
    assert axis(chart, "y")["axis"]["title"]
    if name != "distributions":  # there the labels name the attributes
        assert axis(chart, "x")["axis"]["title"]


@pytest.mark.parametrize("name", CHARTS)
def test_a_mechanism_has_the_same_look_in_every_chart(name):
    chart = CHARTS[name][0]()
    coloured = [scale for scale in scales(chart, "color", "fill", "stroke") if scale]
    assert bool(coloured) == (name not in ("distributions", "histogram"))
    for scale in coloured:
        assert scale["range"] == [figures.LOOKS[mechanism].colour for mechanism in scale["domain"]]
    for scale in scales(chart, "strokeDash"):
        assert scale["range"] == [list(figures.LOOKS[mechanism].dash) for mechanism in scale["domain"]]
    lines = [e for e in encodings(chart) if "strokeDash" in e]
    assert bool(lines) == (name not in ("distributions", "histogram", "relative_errors"))


def test_looks_differ():
    looks = {name: look for name, look in figures.LOOKS.items() if name != ALL_ADDITIVE}
    for one, two in combinations(looks.values(), 2):
        assert one.colour != two.colour
        assert one.dash != two.dash
    assert figures.LOOKS[ALL_ADDITIVE].dash != (1, 0)  # the constant line is dashed
    for look in figures.LOOKS.values():  # WCAG's contrast of text on white
        red, green, blue = (int(look.ink[i : i + 2], 16) / 255 for i in (1, 3, 5))
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (red, green, blue)]
        assert 1.05 / (0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05) > 4


UNKNOWN = {
    "densities": densities,
    "loss_cdfs": loss_cdfs,
    "relative_errors": relative_errors,
    "stds": stds,
    "policies": policies,
    "transformation_stds": transformation_stds,
    "variances": variances,
    "neighbour_policies": neighbour_policies,
    "gains": gains,
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_mechanism_is_named(name):
    given = UNKNOWN[name]()
    place = given.column_names.index("mechanism")
    wrong = given.set_column(place, "mechanism", pa.array(["Cauchy"] * given.num_rows))
    with refused(ParameterError, "the mechanisms of table", code="unknown-name"):
        getattr(figures, name)(wrong)


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_missing_column_is_named(name):
    given = UNKNOWN[name]()
    with refused(ParameterError, "table", code="unknown-column"):
        getattr(figures, name)(given.drop_columns(["mechanism"]))


def test_a_table_must_be_an_arrow_table():
    with refused(ParameterTypeError, "table", code="type"):
        figures.policies({"mechanism": ["log"], "size": [1], "loss": [1]})
    with refused(ParameterError, "quartiles", code="unknown-column"):
        figures.distributions(distributions(), quartiles().drop_columns(["q50"]))


def drawn(chart):
    """Render a chart, and return what is written in it."""
    return re.findall(r"<t(?:ext|span)[^>]*>([^<]+)</t", render(chart.to_dict()))


EMPTY = {
    "densities": lambda: figures.densities(densities().slice(0, 0)),
    "distributions": lambda: figures.distributions(distributions().slice(0, 0), quartiles().slice(0, 0)),
    "histogram": lambda: figures.histogram(histogram().slice(0, 0)),
    "loss_cdfs": lambda: figures.loss_cdfs(loss_cdfs().slice(0, 0)),
    "relative_errors": lambda: figures.relative_errors(relative_errors().slice(0, 0)),
    "stds of 0": lambda: figures.stds(stds(scale=0.0)),
    "policies of 0": lambda: figures.policies(policies(scale=0.0)),
    "transformation_stds of 0": lambda: figures.transformation_stds(transformation_stds(scale=0.0)),
    "variances of 0": lambda: figures.variances(variances(scale=0.0)),
    "neighbour_policies of 0": lambda: figures.neighbour_policies(neighbour_policies(scale=0.0)),
    "gains of 0": lambda: figures.gains(gains(scale=0.0)),
    "gains that are not numbers": lambda: figures.gains(gains(scale=math.nan)),
}


@pytest.mark.parametrize("name", EMPTY)
def test_nothing_to_show(name):
    assert "There are no values that this chart can show." in drawn(EMPTY[name]())


ONE = {
    "losses of 0": lambda: figures.loss_cdfs(loss_cdfs(losses=(0.0,))),
    "one attribute, additive only": lambda: figures.loss_cdfs(loss_cdfs(("emp",), {"additive": ADDITIVE})),
    "errors, additive only": lambda: figures.relative_errors(relative_errors(("emp",), {"additive": ADDITIVE})),
    "errors of 0": lambda: figures.relative_errors(relative_errors(scale=0.0)),
    "infinite errors": lambda: figures.relative_errors(relative_errors(scale=math.inf)),
    "densities of 0": lambda: figures.distributions(distributions(density=0.0), quartiles(zeros=1.0)),
    "one bin": lambda: figures.distributions(distributions(("emp",)).slice(0, 1), quartiles(("emp",)).slice(0, 1)),
    "counts of 0": lambda: figures.histogram(histogram((0, 0))),
    "one bar": lambda: figures.histogram(histogram((5,)).slice(0, 1)),
    "one attribute's stds": lambda: figures.stds(stds(("emp",))),
    "three attributes' stds": lambda: figures.stds(stds(("emp", "payann", "cattle"))),
    "one policy": lambda: figures.policies(policies(("log",)).slice(0, 1)),
    "one sigma": lambda: figures.variances(variances((1.0,))),
    "four sigmas": lambda: figures.variances(variances((1.0, 2.0, 3.0, 4.0))),
    "one class of cells": lambda: figures.gains(gains(("emp",), CELLS[:1])),
    "many classes of cells": lambda: figures.gains(gains(("emp",), [f"{k},000 to {k + 1},000" for k in range(25)])),
    "all mechanisms": lambda: figures.policies(policies(tuple(figures.LOOKS))),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE)
def test_small_and_degenerate_tables(name):
    words = drawn(ONE[name]())
    assert not {"NaN", "undefined", "null", "Infinity"} & set(words)


def test_zeros_are_given_in_words():
    chart = figures.distributions(distributions(), quartiles(zeros=0.146), units={"emp": "employees"})
    words = drawn(chart)
    assert words.count("14.6 % are 0") == 4
    assert "(employees)" in words
    assert "quartiles 0, 10, 100; 14.6 % are 0" in chart.to_dict()["description"]
    assert not [word for word in drawn(figures.distributions(distributions(), quartiles(zeros=0.0))) if "are 0" in word]


def test_violins_are_mirrored_and_have_lines_at_the_quartiles_above_0():
    outline, lines = data(figures.distributions(distributions(("emp",)), quartiles(("emp",))), "left", "right")
    assert {point["value"] for point in outline} == set(SIZES)
    for point in outline + lines:
        assert point["left"] + point["right"] == pytest.approx(0)  # around the place of the first attribute
    assert [line["value"] for line in lines] == [10, 100]  # the lowest quartile is 0
    assert [line["middle"] for line in lines] == [True, False]


def test_the_axis_of_violins_reaches_the_quartiles():
    given = distributions(("emp",)).slice(0, 1)  # a single value of 1
    low, high = scales(figures.distributions(given, quartiles(("emp",)).slice(0, 1)), "y")[0]["domain"]
    assert low < 1
    assert high > 100


def test_bars_start_at_0():
    encoding = next(e for e in encodings(figures.histogram(histogram())) if "x2" in e)
    assert encoding["y2"]["field"] == "floor"
    assert encoding["x"]["scale"]["type"] == "log"


def test_the_rows_are_attributes_and_the_columns_are_kinds():
    wanted = [f"{a}: {kind} mechanisms" for a in ("emp", "payann") for kind in KINDS]
    for chart in (figures.loss_cdfs(loss_cdfs()), figures.relative_errors(relative_errors())):
        assert panels(chart) == wanted
        assert chart.to_dict()["columns"] == 2


def test_each_kind_has_its_own_range_of_losses():
    chart = figures.loss_cdfs(loss_cdfs(), limits={"additive": 3, "transformation": 50})
    ends = [e["x"]["scale"]["domain"] for e in encodings(chart) if e.get("x", {}).get("field") == "loss"]
    assert ends == [[0, 3], [0, 50]] * 2
    assert scales(chart, "y")[-1]["domain"] == [0, 1]
    points = [row for rows in data(chart, "loss", "share") for row in rows]
    assert max(row["loss"] for row in points) == 50  # every line is continued to the end, and none beyond it
    assert sum(row["loss"] == 3 for row in points) >= len(ADDITIVE)


def test_the_default_range_shows_nearly_all_records_but_not_the_gaussian_tail():
    names = ("Gaussian", "log")
    rows = [("emp", "transformation", n, x, s) for n in names for x, s in ((0, 0.5), (9, 0.98), (12, 0.99), (80, 1))]
    rows += [("emp", "transformation", "Gaussian", 1e9, 1.0)]
    chart = figures.loss_cdfs(table("attribute kind mechanism loss share", rows))
    assert [e["x"]["scale"]["domain"] for e in encodings(chart) if e.get("x", {}).get("field") == "loss"] == [[0, 9]]


@pytest.mark.parametrize("limit", [0, -1, math.inf, math.nan])
def test_a_limit_must_be_a_loss(limit):
    with refused(ParameterError, "limits['additive']", code="value"):
        figures.loss_cdfs(loss_cdfs(), limits={"additive": limit})


def test_legends_have_the_order_of_the_lines():
    assert legends(figures.densities(densities()))[0] == ["Gaussian", "exponential polylog 1", "exponential polylog 2"]
    assert legends(figures.stds(stds()))[0] == ["log", "fourth root", ALL_ADDITIVE]
    assert legends(figures.variances(variances((1.0,))))[0] == ["square root", "Laplace"]
    assert legends(figures.transformation_stds(transformation_stds()))[0] == [
        "log", "fourth root", "square root", "Gaussian",
    ]  # fmt: skip
    # The losses of a cumulative share that rises earlier are smaller: its line is above.
    additive, transformation = legends(figures.loss_cdfs(loss_cdfs()))
    assert additive == list(reversed(ADDITIVE))
    assert transformation == ["log", "fourth root", "Gaussian (identity)"]


def test_names_at_the_lines_have_the_order_of_the_lines():
    chart = figures.policies(policies())
    ends = [rows[0] for rows in data(chart, "name")]
    assert [end["name"] for end in sorted(ends, key=lambda end: -end["loss"])] == [
        *ADDITIVE, "fourth root", "log", "unit splitting",
    ]  # fmt: skip
    inks = {layer["mark"]["color"] for layer in chart.to_dict()["layer"] if layer["mark"]["type"] == "text"}
    assert inks == {figures.LOOKS[end["name"]].ink for end in ends}


@pytest.mark.parametrize(
    ("places", "wanted"),
    [
        ([10, 50, 90], [10, 50, 90]),
        ([50, 50], [42, 58]),
        ([0, 1, 2], [0, 16, 32]),
        ([99, 100], [84, 100]),
        ([10, 50, 52, 90], [10, 43, 59, 90]),
    ],
)
def test_names_are_moved_apart(places, wanted):
    assert apart(places, 16, 100) == pytest.approx(wanted)


def test_boxes_have_reference_lines_and_stay_within_the_axis():
    rows = relative_errors(("emp",), {"additive": ADDITIVE}).to_pylist()
    rows[0]["p5"], rows[1]["p95"] = 0.0, math.inf
    chart = figures.relative_errors(pa.Table.from_pylist(rows))
    words = drawn(chart)
    assert words.count("100 %") == words.count("10 %") == 2  # the tick and the line
    note = " ".join(words)
    assert "Errors of 0 are drawn at the lower end of the axis." in note
    assert "Infinite errors are drawn at the upper end of the axis." in note
    low, high = next(e["y"]["scale"]["domain"] for e in encodings(chart) if e.get("y", {}).get("field") == "p25")
    boxes = data(chart, "p25")[0]
    assert min(box["p5"] for box in boxes) == low < 0.002
    assert max(box["p95"] for box in boxes) == high > 1
    assert all(round(box["x"]) == pytest.approx(i % 5 + 1) for i, box in enumerate(boxes))


def test_the_lines_of_gains_follow_the_order_of_the_cells():
    chart = figures.gains(gains())
    line = next(e for e in encodings(chart) if "strokeDash" in e and e["x"]["field"] == "cells")
    assert line["order"]["field"] == "cells_order"
    assert line["x"]["scale"]["domain"] == list(CELLS)
    svg = render(figures.gains(gains(("emp",))).to_dict())
    for path in re.findall(r'<path d="(M[^"]*)" stroke="#000000"', svg):
        across = [float(x) for x in re.findall(r"[ML](-?[\d.]+),", path)]
        assert across == sorted(across)


def test_gains_are_percentages():
    words = drawn(figures.gains(gains(("emp",))))
    assert {"0.1 %", "1 %", "10 %", "100 %"} <= set(words)
    assert any("not shown" in word for word in drawn(figures.gains(_with_zero(gains(("emp",))))))


def _with_zero(given):
    rows = given.to_pylist()
    rows[0]["median_error"] = 0.0
    return pa.Table.from_pylist(rows)


def test_units_are_in_the_titles_of_axes():
    assert axis(figures.policies(policies(), unit="head"), "x")["axis"]["title"] == "size of the record (head)"
    chart = figures.stds(stds(), units={"emp": "employees"})
    assert axis(chart, "y")["axis"]["title"] == "standard deviation (employees)"
    assert axis(chart, "y", 1)["axis"]["title"] == "standard deviation"


@pytest.mark.parametrize(
    ("values", "most", "labels"),
    [
        ([1, 1e6], 8, ["1", "10", "100", "1,000", "10,000", "100,000", "1 million"]),
        ([1, 1e6], 4, ["1", "100", "10,000", "1 million"]),
        ([0.001, 2e9], 5, ["0.001", "1", "1,000", "1 million", "1 billion"]),
        ([3, 40], 8, ["5", "10", "20"]),
        ([5, 5], 8, ["2", "5", "10"]),
        ([120, 130], 8, ["100", "200"]),
        ([0.11, 0.3], 8, ["0.1", "0.2", "0.5"]),
        ([], 8, ["1", "2", "5", "10"]),
        ([0, -3, math.nan, math.inf, 1, 100], 3, ["1", "10", "100"]),
    ],
)
def test_ticks_are_plain_and_few(values, most, labels):
    axis = log_axis("loss", values, most)["axis"]
    shown = re.findall(r'"([^"]*)"', axis["labelExpr"].partition("[indexof")[0])
    assert len(shown) == len(axis["values"]) <= most
    assert shown == labels


def test_powers_in_words():
    powers = (-7, -6, -2, 0, 5, 6, 8, 9, 11, 12)
    assert [power_in_words(power) for power in powers] == [
        "10⁻⁷", "0.000001", "0.01", "1", "100,000", "1 million", "100 million", "1 billion", "100 billion", "10¹²",
    ]  # fmt: skip


def test_a_legend_starts_a_new_row_where_it_would_be_too_wide():
    items = data(legend(list(figures.LOOKS), 400), "words")[0]
    assert max(item["text"] + text_width(item["words"], 12.5) for item in items) <= 400
    assert [item["mechanism"] for item in items] == list(figures.LOOKS)
    for one, two in combinations(items, 2):
        assert one["y"] != two["y"] or one["text"] + text_width(one["words"], 12.5) < two["x"]


def test_points_that_cannot_be_drawn():
    rows = [{"x": x} for x in (None, math.nan, math.inf, 0.0, -1.0, 2.0)]
    assert [row["x"] for row in drawable(rows, "x")] == [2]
    assert [row["x"] for row in drawable(rows, "x", positive=False)] == [0, -1, 2]


@pytest.mark.parametrize("name", CHARTS)
def test_svg_and_png_are_written(name, tmp_path):
    svg, png = figures.save(CHARTS[name][0](), tmp_path / "fig.1")
    assert (svg, png) == (tmp_path / "fig.1.svg", tmp_path / "fig.1.png")
    text = svg.read_text(encoding="utf-8")
    assert re.match(r'<svg [^>]*role="img"><title>[^<]{10,}</title><desc>[^<]{60,}</desc>', text)
    assert not {"NaN", "undefined", "null"} & set(re.findall(r">([^<>]*)</text>", text))
    data = png.read_bytes()
    assert data.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", data[16:24])
    assert 2 * 450 < width <= 2 * 900  # the page of the documentation
    assert height > 2 * 250
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fig.1.png", "fig.1.svg"]


def test_files_are_replaced_only_on_request(tmp_path):
    chart = figures.policies(policies())
    (tmp_path / "loss.png").write_bytes(b"mine")
    with pytest.raises(ParameterError, match=r"loss\.png.* exists"):
        figures.save(chart, tmp_path / "loss")
    assert [path.name for path in tmp_path.iterdir()] == ["loss.png"]
    assert (tmp_path / "loss.png").read_bytes() == b"mine"
    figures.save(chart, str(tmp_path / "loss"), overwrite=True)
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_save_says_what_it_takes(tmp_path):
    with refused(ParameterTypeError, "chart", code="type"):
        figures.save("chart", tmp_path / "loss")
    with refused(ParameterTypeError, "stem", code="type"):
        figures.save(figures.policies(policies()), 1)
    with refused(ParameterError, code="missing"):
        figures.save(figures.policies(policies()), tmp_path / "no" / "loss")


@pytest.mark.parametrize("package", ["altair", "vl_convert"])
def test_a_missing_package_is_reported(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with refused(EngineError, "a chart", code="not-installed"):
        figures.policies(policies())


WITHOUT_PANDAS = """
import sys
class NoPandas:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pandas":
            raise ImportError(name)
sys.meta_path.insert(0, NoPandas())
import pyarrow as pa
from slowscale.study import figures
table = pa.table({"mechanism": ["log", "log"], "size": [1, 10], "loss": [1.0, 2.0]})
figures.save(figures.policies(table), sys.argv[1])
"""


def test_pandas_is_not_needed(tmp_path):
    subprocess.run([sys.executable, "-c", WITHOUT_PANDAS, tmp_path / "loss"], check=True)
    assert (tmp_path / "loss.svg").exists()
