"""A report with a publication has its titles, units and names in place of the names of columns."""

import re

import pytest
from helpers.bitsources import Recorded
from helpers.errors import refused

import slowscale as ss

NASTY = "<b>Alabama</b>"


@pytest.fixture(scope="module")
def release():
    import pandas as pd

    frame = pd.DataFrame({"state": ["01", "01", "02"], "emp": [5, 6, 70], "pay": [100, 200, 4000]})
    keys = ss.Keys.cross({"state": ["01", "02"]})
    session = ss.Session(frame, bits=Recorded(3))
    made = session.sum(
        {"emp": ss.Root(k=2, sigma=1), "pay": ss.ExponentialPolylog(d=0.5)}, keys=keys, count=ss.Gaussian(sigma=2)
    )
    return made.ratio("pay", "emp")


@pytest.fixture(scope="module")
def publication():
    return ss.Publication(
        "Payroll & employees",
        source="Register",
        contact="a@example.org",
        notes=["One note."],
        columns={
            "emp": ss.ColumnLabel("Employees", "persons"),
            "pay": ss.ColumnLabel("Annual payroll", "thousand USD"),
            "count": "Establishments",
            "pay_per_emp": "Payroll per employee",
        },
        keys={"state": "State of residence"},
        codes={"state": {"01": NASTY, "02": "Alaska"}},
    )


def test_titles_units_and_names(release, publication, tmp_path):
    text = release.report(tmp_path / "r.html", publication=publication).read_text(encoding="utf-8")
    assert "<h1>Payroll &amp; employees</h1>" in text
    for words in ("Register", "a@example.org", "One note.", "State of residence", "02 Alaska", "sum, in thousand USD"):
        assert words in text, words
    assert "01 &lt;b&gt;Alabama&lt;/b&gt;" in text
    assert NASTY not in text
    heads = re.findall(r"<th[^>]*>([^<]*)</th>", text)
    assert heads.count("Annual payroll (thousand USD)") >= 3  # in the excerpt, the charts' data and what is learned
    assert "<h3>Employees (persons)</h3>" in text
    drawn = re.findall(r"<text[^>]*>([^<]*)</text>", text)
    assert drawn.count("Annual payroll (thousand USD)") == 2
    assert not {"emp", "pay"} & {*heads, *drawn}


def test_without_a_publication_names_are_kept(release, tmp_path):
    text = release.report(tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<h1>Sums of emp and pay and the number of records, by state</h1>" in text


def test_arguments(release, tmp_path):
    with refused(ss.ParameterTypeError, "publication", code="type"):
        release.report(tmp_path / "r.html", publication="Payroll")
    same = ss.Publication("T", columns={"emp": "x", "pay": "x"})
    with refused(ss.ParameterError, "the columns 'emp' and 'pay'", code="duplicate"):
        release.report(tmp_path / "r.html", publication=same)
    assert not list(tmp_path.iterdir())
