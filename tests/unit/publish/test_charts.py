"""Charts of losses: they show the sizes that were given."""

from helpers.errors import refused

import slowscale as ss
from slowscale.publish.charts import write_chart

MECHANISMS = {"Gaussian": ss.Gaussian(sigma=75), "log": ss.Log(sigma=0.5)}


def sizes_of(tmp_path, monkeypatch, span, sizes=()):
    """The record sizes of the points that a chart is drawn from."""
    seen = {}
    monkeypatch.setattr("slowscale.publish.charts.render", lambda spec: seen.update(spec) or "<svg/>")
    write_chart(MECHANISMS, tmp_path / "c.svg", span, sizes, overwrite=True)
    (points,) = seen["datasets"].values()
    return sorted({point["x"] for point in points})


def test_the_chart_spans_the_sizes_given(tmp_path, monkeypatch):
    x = sizes_of(tmp_path, monkeypatch, (0.01, 4e12), [1, 100, 4e10])
    assert (x[0], x[-1]) == (0.01, 4e12)
    assert {1, 100, 4e10} <= set(x)
    x = sizes_of(tmp_path, monkeypatch, (1, 10), [1e-5, 1e15])
    assert (x[0], x[-1]) == (1e-5, 1e15)


def test_losses_that_axes_cannot_show_are_left_out(tmp_path, monkeypatch):
    x = sizes_of(tmp_path, monkeypatch, (1e-200, 1e200))
    assert x[0] >= 1e-200
    with refused(ValueError, code="out-of-range"):
        write_chart({"Gaussian": ss.Gaussian(sigma=1e-9)}, tmp_path / "d.svg", (1e200, 1e201))


def test_a_chart_to_look_at(tmp_path):
    path = write_chart(MECHANISMS, tmp_path / "c.svg", (1, 4e10))
    assert "10¹¹" in path.read_text() or "10¹⁰" in path.read_text()
    assert write_chart(MECHANISMS, tmp_path / "c.png", (1, 4e10)).read_bytes().startswith(b"\x89PNG")
    with refused(ValueError, "chart", code="value"):
        write_chart(MECHANISMS, tmp_path / "c.pdf", (1, 4e10))
