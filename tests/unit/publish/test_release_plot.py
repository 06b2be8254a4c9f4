"""The chart of a release: the largest cells with their intervals; labels are harmless; pages open offline."""

import html
import json
import math
import re
import sys
from html.parser import HTMLParser

import altair
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from helpers.bitsources import Recorded
from helpers.errors import refused
from helpers.releases import with_table

import slowscale as ss
from slowscale.publish.charts import REACH_OF_ESTIMATES

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<!--<script>",
    "a'\"b\\",
    "$title ${note}",
]


@pytest.fixture(scope="module")
def release():
    records = pd.DataFrame({"state": [*"abcdefgh"], "size": range(8), "emp": [5, 80, 1, 900, 30, 7, 60, 12]})
    records["pay"] = records["emp"] * 40
    session = ss.Session(records, bits=Recorded(1))
    keys = ss.Keys.from_frame(records[["state", "size"]])
    return session.sum({"emp": ss.Root(k=2, sigma=0.1), "pay": ss.Gaussian(sigma=3)}, keys=keys).ratio("pay", "emp")


def with_numbers(release, column, **numbers):
    """Return the release with other numbers in some of the columns of a published column."""
    table = release.table
    for suffix, values in numbers.items():
        name = column if suffix == "estimate" else f"{column}_{suffix}"
        i = table.schema.get_field_index(name)
        table = table.set_column(i, name, pa.array(values))
    return with_table(release, table)


def bars(plot):
    return plot.to_dict()["data"]["values"]


def heads(plot):
    """Return the names of the columns of a tooltip."""
    return [one["title"] for one in plot.to_dict()["layer"][0]["encoding"]["tooltip"]]


def texts(bar):
    """Return the texts in the tooltip of a cell."""
    return [text for name, text in bar.items() if name.startswith("text")]


def scale_of(plot):
    (found,) = {
        json.dumps(layer["encoding"]["x"]["scale"]) for layer in plot.to_dict()["layer"] if "x" in layer["encoding"]
    }
    return json.loads(found)


def test_the_largest_cells_are_shown_in_order(release):
    plot = release.plot("emp", top=3)
    table = release.to_pandas().sort_values("emp", ascending=False).head(3)
    assert [one["estimate"] for one in bars(plot)] == table["emp"].tolist()
    assert [one["label"] for one in bars(plot)] == [
        f"{a} · {b}" for a, b in zip(table["state"], table["size"], strict=True)
    ]
    assert [(one["low"], one["high"]) for one in bars(plot)] == list(
        zip(table["emp_low"], table["emp_high"], strict=True)
    )
    assert plot.title == "emp: the 3 largest of 8 cells"
    assert "95 % intervals" in plot.note
    assert "NOT PRIVATE" in plot.note
    assert heads(plot) == ["state", "size", "emp", "standard error", "95 % interval"]
    first = table.iloc[0]
    assert texts(bars(plot)[0])[-1] == f"{first['emp_low']:,} to {first['emp_high']:,}"
    assert repr(release.plot("pay")) == "<ReleasePlot pay: all 8 cells>"
    altair.Chart.from_dict(plot.to_dict())  # raises unless it is valid Vega-Lite


def test_ratios_and_totals(release):
    plot = release.plot("pay_per_emp")
    assert plot.title == "pay_per_emp: all 8 cells"
    assert sorted((one["estimate"] for one in bars(plot)), reverse=True) == [one["estimate"] for one in bars(plot)]
    records = pd.DataFrame({"emp": [5, 80]})
    total = ss.Session(records).sum({"emp": ss.Gaussian(sigma=3)}).plot("emp")
    assert (total.title, total.note) == ("emp: all records", "The estimate with its 95 % interval.")
    assert [one["label"] for one in bars(total)] == ["all records"]
    unknown = with_numbers(release, "pay_per_emp", estimate=[None, math.nan, *[1.5] * 6])
    assert unknown.plot("pay_per_emp").title == "pay_per_emp: 6 of 8 cells"
    assert "2 cells have no estimate" in unknown.plot("pay_per_emp").note
    with refused(ss.ParameterError, "column", code="empty"):
        with_numbers(release, "pay_per_emp", estimate=[math.nan] * 8).plot("pay_per_emp")


def test_mistakes(release, tmp_path):
    for column in ("nope", "emp_se", "state", None, 3):
        with refused(ss.ParameterError, "column", code="unknown-column"):
            release.plot(column)
    for top in (0, 1001, -1):
        with refused(ss.ParameterError, "top", code="value"):
            release.plot("emp", top=top)
    with refused(ss.SlowscaleError, "top", code="type"):
        release.plot("emp", top=1.5)
    with refused(ss.ParameterError, "chart", code="value"):
        release.plot("emp").save(tmp_path / "x.pdf")


def test_intervals_beyond_the_chart(release):
    ends = {"low": [-math.inf, 1.0, 2.0, *[0.0] * 5], "high": [9.0, math.inf, 1e9, *[20.0] * 5]}
    plot = with_numbers(release, "pay_per_emp", estimate=[5.0, 4.0, 3.0, *[1.0] * 5], **ends).plot("pay_per_emp")
    first, second, third = bars(plot)[:3]
    low, high = scale_of(plot)["domain"]
    assert (first["below"], first["above"], first["low"], first["high"]) == (True, False, low, 9)
    assert (second["below"], second["above"], second["low"], second["high"]) == (False, True, 1, high)
    assert (third["above"], third["high"]) == (True, high)
    assert low < 0 < 20 < high < REACH_OF_ESTIMATES * 5
    assert "An arrow marks an interval that goes on" in plot.note
    assert texts(first)[-1] == "−∞ to 9"
    assert all(math.isfinite(one[end]) for one in bars(plot) for end in ("low", "high"))
    # An interval far above its estimate: its lower end is not cut off at the wrong side.
    outside = with_numbers(release, "pay_per_emp", estimate=[0.1] * 8, low=[5.0] * 8, high=[300.0] * 8)
    one = bars(outside.plot("pay_per_emp"))[0]
    assert (one["below"], one["above"], one["low"]) == (False, True, 5)
    assert one["high"] > 5
    endless = {"low": [-math.inf] * 8, "high": [math.inf] * 8}
    for estimate in (0.0, 1e308, -1e-300):
        flat = with_numbers(release, "pay_per_emp", estimate=[estimate] * 8, **endless).plot("pay_per_emp")
        assert np.isfinite(scale_of(flat)["domain"]).all()
        assert flat.svg.startswith("<svg")


def test_the_axis_is_linear_or_symmetric_logarithmic(release):
    low, high = [-1.0] * 8, [9e6] * 8
    wide = [10.0**power for power in range(-1, 7)]
    for estimate, kind in (
        (wide, "symlog"),
        ([-1.0, *wide[1:]], "linear"),
        ([0.0, *wide[1:]], "linear"),
        ([1.0, 999.0] * 4, "linear"),
    ):
        plot = with_numbers(release, "pay_per_emp", estimate=estimate, low=low, high=high).plot("pay_per_emp")
        assert scale_of(plot)["type"] == kind
        assert scale_of(plot)["domain"][0] <= 0 <= scale_of(plot)["domain"][1]
    plot = with_numbers(release, "pay_per_emp", estimate=wide, low=low, high=high).plot("pay_per_emp")
    for text in (">0<", ">0.1<", ">1,000<", ">1,000,000<", ">−1<"):
        assert text in plot.svg


class Elements(HTMLParser):
    """The elements of a page, with the texts of its scripts."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.scripts = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attributes]

    def handle_data(self, data):
        if self.tags[-1:] == ["script"] and data.strip():
            self.scripts.append(data)


def hostile_release(names=("</script><script>alert(2)</script>", "image")):
    keys = ss.Keys.from_frame({names[0]: HOSTILE, names[1]: ["https://example.org/x.png"] * len(HOSTILE)})
    frame = keys.table.to_pandas().assign(emp=[3, 4, 5, 6, 7])
    return ss.Session(frame).sum({"emp": ss.Gaussian(sigma=1)}, keys=keys)


def test_labels_are_harmless(tmp_path):
    plot = hostile_release().plot("emp")
    page = plot.save(tmp_path / "p.html").read_text(encoding="utf-8")
    found = Elements(page)
    assert found.tags.count("script") == len(found.scripts) == 2  # Vega, and the chart
    assert not {"img", "link", "iframe"} & set(found.tags)
    assert not [name for name in found.attributes if name.startswith("on") or name in ("src", "href")]
    chart = found.scripts[1]
    assert "<" not in chart
    described, _ = json.JSONDecoder().raw_decode(chart, chart.index("{", chart.index("spec =")))
    assert described == plot.to_dict()
    assert {one["text0"] for one in bars(plot)} == set(HOSTILE)
    # Vega's tooltips would load a picture for a field of this name.
    assert heads(plot)[1] == "image*"
    assert "<script" not in plot.svg
    assert "<img" not in plot.svg
    frame = plot._repr_html_()
    assert Elements(frame).tags == ["iframe"]
    assert html.unescape(re.search(r'srcdoc="([^"]*)"', frame)[1]) == page


def test_line_breaks_in_names_of_columns():
    session = ss.Session(pd.DataFrame({"k\nx": ["a", "b"], "v\u2028w\n": [10, 20]}))
    made = session.sum({"v\u2028w\n": ss.Gaussian(sigma=1)}, keys=ss.Keys.cross({"k\nx": ["a", "b"]}))
    plot = made.plot("v\u2028w\n")
    assert plot.title == "v�w�: all 2 cells"
    assert "v�w�" in plot.svg
    assert heads(plot)[:2] == ["k�x", "v�w�"]


def test_names_of_cells_are_different():
    keys = ss.Keys.from_frame({"a": ["x · y", "x", "", "n\nl"], "b": ["z", "y · z", " ", "\u202e"]})
    frame = keys.table.to_pandas().assign(emp=[3, 4, 5, 6])
    plot = ss.Session(frame).sum({"emp": ss.Gaussian(sigma=1)}, keys=keys).plot("emp")
    labels = [one["label"] for one in bars(plot)]
    assert len(set(labels)) == 4
    assert all(label.isprintable() for label in labels)


def test_files(release, tmp_path):
    plot = release.plot("emp")
    assert plot.save(tmp_path / "p.svg").read_text().startswith("<svg")
    assert plot.save(tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    assert plot.save(tmp_path / "P.HTML").read_text().startswith("<!DOCTYPE html>")
    with pytest.raises(ss.ParameterError, match="already exists"):
        plot.save(tmp_path / "p.svg")
    plot.save(tmp_path / "p.svg", overwrite=True)
    assert plot.to_dict()["description"] == f"{plot.title}. {plot.note}"  # for screen readers


def test_numbers_beyond_64_bits():
    frame = pd.DataFrame({"k": ["a", "b"], "x": [2**62, 2**62]})
    frame = pd.concat([frame] * 4)
    made = ss.Session(frame).sum({"x": ss.Gaussian(sigma=5)}, keys=ss.Keys.cross({"k": ["a", "b"]}))
    plot = made.plot("x")
    shown = {one["text0"]: one["text1"].replace(",", "") for one in bars(plot)}
    assert shown == dict(zip(["a", "b"], map(str, made.table["x"].to_pylist()), strict=True))
    assert bars(plot)[0]["estimate"] == pytest.approx(2**64)


def test_many_cells_are_drawn_quickly():
    count = 100_000
    keys = ss.Keys.from_frame({"k": [f"{i:06}" for i in range(count)]})
    made = ss.Session(pd.DataFrame({"k": ["000001"], "x": [10**6]})).sum({"x": ss.Gaussian(sigma=5)}, keys=keys)
    plot = made.plot("x")
    assert plot.title == "x: the 50 largest of 100,000 cells"
    assert bars(plot)[0]["label"] == "000001"
    assert len(json.dumps(plot.to_dict())) < 50_000


def test_missing_packages(release, monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    with refused(ss.EngineError, "a chart", code="not-installed"):
        release.plot("emp")
