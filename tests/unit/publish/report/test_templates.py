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
    assert "<dt>Columns</dt><dd>2</dd>" in text
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
        assert re.findall(r"<figcaption>Figure (\d+)\.", text) == ["1", "2"]


def test_a_pure_guarantee_holds_in_every_drawn_table(session, tmp_path):
    kinds = ss.Keys.cross({"kind": ["x", "y"]})
    pure = ss.Request({"cells": CELLS, "kinds": ss.Sums({NASTY: ss.GeneralizedGaussian(sigma=1, p=1)}, keys=kinds)})
    mixed = ss.Request({"cells": CELLS, "kinds": ss.Sums({NASTY: ss.Gaussian(sigma=1)}, keys=kinds)})
    texts = [
        session.release(tables).report(tmp_path / f"{i}.html").read_text(encoding="utf-8")
        for i, tables in enumerate((pure, mixed))
    ]
    assert ["guarantee (PRDP) as well" in text for text in texts] == [True, False]
