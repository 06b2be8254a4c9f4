"""Every report is escaped, whatever the names and labels are; one table and several share one page."""

import re
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from helpers.bitsources import Recorded

import slowscale as ss

SOURCE = Path(ss.__file__).parent
NASTY = '<script>alert("$x")</script>{{ 7 * 7 }}'
RECORDS = pd.DataFrame(
    {"place": [NASTY, "b", "b"], "kind": ["x", "y", "y"], NASTY: [1, 2, 3], "firm": [NASTY, "b", "b"]}
)
KEYS = ss.Keys.cross({"place": [NASTY, "</td></table><img src=x>"], "kind": ["x", "y"]})
CELLS = ss.Sums({NASTY: ss.ExponentialPolylog(d=0.5)}, keys=KEYS, count=ss.Gaussian(sigma=2))


@pytest.fixture(scope="module")
def session():
    return ss.Session(RECORDS, bits=Recorded(1))


def captions(text):
    return [int(number) for number in re.findall(r"<caption>Table (\d+)\.", text)]


def test_nothing_but_formulas_and_charts_is_marked_safe():
    marked = {path.name for path in SOURCE.rglob("*.py") if "Markup(" in path.read_text(encoding="utf-8")}
    assert marked == {"charts.py", "mathml.py", "run.py"}
    for path in (SOURCE / "publish" / "report" / "templates").glob("*.html"):
        assert not re.search(r"\|\s*safe\b|autoescape", path.read_text(encoding="utf-8")), path.name


def test_every_report_is_escaped(session, tmp_path):
    found = session.release(ss.Request({"cells": CELLS, "places": ss.Rollup("cells", by=["place"])}))
    publication = ss.Publication(NASTY, source=NASTY, notes=[NASTY], tables={"places": NASTY}, keys={"place": NASTY})
    pages = [
        found.report(tmp_path / "set.html", session.spent, sizes={f"largest {NASTY}": 10}, publication=publication),
        session.release(CELLS).rollup(["place"]).report(tmp_path / "rollup.html"),
        found.confidential_report(tmp_path / "losses.html", session),
        session.inspect(CELLS).report(tmp_path / "look.html"),
    ]
    for path in pages:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"<(script|img)", text), path.name
        assert "&lt;script&gt;alert(&#34;$x&#34;)&lt;/script&gt;{{ 7 * 7 }}" in text, path.name


def test_near_misses_are_escaped(tmp_path):
    records = pa.table({"place": [f"{NASTY} ", "b"], "x": [1, 2]})
    sums = ss.Sums({"x": ss.Gaussian(sigma=1)}, keys=ss.Keys.cross({"place": [NASTY, "b"]}))
    text = ss.Session(records).inspect(sums).report(tmp_path / "look.html").read_text(encoding="utf-8")
    assert "Labels outside the keys that resemble a key." in text
    assert "<script" not in text


def test_a_request_with_one_table_is_reported_as_one_table(session, tmp_path):
    text = session.release(ss.Request({"cells": CELLS})).report(tmp_path / "r.html").read_text(encoding="utf-8")
    assert "What can an attacker learn about a record of size …?" in text
    assert "for 4 groups by place and kind" in text
    assert 'set-map"' not in text
    assert "tables of the release" not in text


def test_tables_and_figures_are_numbered_in_order(session, tmp_path):
    found = session.release(ss.Request({"cells": CELLS, "places": ss.Rollup("cells", by=["place"])}))
    one = session.release(CELLS)
    for release in (found, one, one.rollup(["place"])):
        text = release.report(tmp_path / "r.html", session.spent, overwrite=True).read_text(encoding="utf-8")
        numbers = captions(text)
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) >= 4
        figures = re.findall(r"<figcaption>Figure (\d+)\.", text)
        assert figures == ["1", "2"][: len(release.tables)]


def test_a_pure_guarantee_holds_in_every_drawn_table(session, tmp_path):
    kinds = ss.Keys.cross({"kind": ["x", "y"]})
    pure = ss.Request({"cells": CELLS, "kinds": ss.Sums({NASTY: ss.GeneralizedGaussian(sigma=1, p=1)}, keys=kinds)})
    mixed = ss.Request({"cells": CELLS, "kinds": ss.Sums({NASTY: ss.Gaussian(sigma=1)}, keys=kinds)})
    texts = [
        session.release(tables).report(tmp_path / f"{i}.html").read_text(encoding="utf-8")
        for i, tables in enumerate((pure, mixed))
    ]
    assert ["guarantee (PRDP) as well" in text for text in texts] == [True, False]


@pytest.mark.parametrize("sigma", [5.0, 50.0])
def test_the_report_opens_with_how_often_presence_is_guessed(sigma, tmp_path):
    """Neither hidden nor no secret: the figure is in the first paragraph."""
    session = ss.Session(RECORDS[["place", "kind"]].assign(x=[1, 2, 3]), bits=Recorded(1))
    release = session.sum({"x": ss.Gaussian(sigma=sigma)}, keys=KEYS)
    sizes = {"typical record": {"x": 5}, "largest record": {"x": 5_000}}
    text = release.report(tmp_path / "r.html", sizes=sizes).read_text(encoding="utf-8")
    lead = " ".join(re.search(r'<p class="lead">(.*?)</p>', text, re.DOTALL)[1].split())
    guessed = release.explain({"x": 5}).texts["guessed"]
    between = f"A guess whether a record is in the data is right at most {guessed} of the time for the typical record;"
    assert (between in lead) == (sigma == 5)
    assert ("whether the typical record is in the data is little better than a coin toss" in lead) == (sigma == 50)
    known = release.explain({"x": 5_000}).texts["within"]
    secret = f"The presence of the largest record is no secret; its value can be known to {known}, not closer."
    assert secret in lead


def test_long_parts_of_a_set_are_folded_and_their_headings_are_not(session, tmp_path):
    found = session.release(ss.Request({"cells": CELLS, "places": ss.Rollup("cells", by=["place"])}))
    publication = ss.Publication("Sums", tables={"cells": "All cells", "places": "Places"})
    text = found.report(tmp_path / "set.html", publication=publication).read_text(encoding="utf-8")
    folded = re.findall(r'<h2 id="([^"]+)">([^<]*)</h2>\s*<details class="part"><summary>', text)
    assert folded == [
        ("table-cells", "All cells (cells)"),
        ("table-places", "Places"),  # a title that is the name
        ("columns", "Columns of the files"),
    ]
    assert text.count("<details") == text.count("</details>") == text.count("<summary>") == len(folded) + 1


def test_texts_fit_into_the_boxes_of_the_map(session, tmp_path):
    found = session.release(ss.Request({"cells": CELLS, "places": ss.Rollup("cells", by=["place"])}))
    for name, shown in (("largest establishment of all", True), ("largest " + "x" * 50, False)):
        text = found.report(tmp_path / f"{shown}.html", sizes={name: 10}).read_text(encoding="utf-8")
        drawn = re.search(r'<svg class="set-map".*?</svg>', text, re.DOTALL)[0]
        note = re.search(r'class="note"[^>]*>(loss [^<]*)<', drawn)[1]
        assert note.endswith(f" at {name}") == shown
        assert int(re.search(r'<rect [^>]*width="(\d+)"', drawn)[1]) >= 7 * len(note)
