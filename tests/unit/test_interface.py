"""What people meet: names, notebooks, and mistakes in names."""

import pandas as pd
import pytest
from helpers.bitsources import Recorded

import slowscale as ss

HOSTILE = "<script>alert(1)</script>"


def test_only_public_names_are_listed():
    assert set(dir(ss)) == {*ss.__all__, "__version__"}
    assert all(getattr(ss, name) is not None for name in ss.__all__)


def test_notebooks_show_tables_and_escape_everything():
    keys = ss.Keys.from_frame({"g": [HOSTILE, *map(str, range(20))]})
    session = ss.Session(pd.DataFrame({"g": [HOSTILE], "x": [5]}), bits=Recorded(1))
    release = session.sum({"x": ss.Root(2, 1)}, keys=keys)
    shown = [release, keys, session.losses(release), ss.compare([ss.Gaussian(1), ss.Log(1)])]
    for thing in shown:
        html = thing._repr_html_()
        assert "<script>" not in html
        assert html.startswith(("<table>", "<pre>"))
    assert "The first 10 of 21 rows" in release._repr_html_()
    assert "CONFIDENTIAL" in shown[2]._repr_html_()


def test_overwriting_is_said_by_name(tmp_path):
    release = ss.Session(pd.DataFrame({"x": [5]}), bits=Recorded(1)).sum({"x": ss.Gaussian(1)})
    for write in (release.to_csv, release.to_parquet):
        with pytest.raises(TypeError, match="positional"):
            write(tmp_path / "x", True)


def test_names_are_suggested():
    session = ss.Session(pd.DataFrame({"state": ["a"], "payroll": [5]}), bits=Recorded(1))
    with pytest.raises(ss.ParameterError, match="there is no column 'payrol'; did you mean 'payroll'"):
        session.sum({"payrol": ss.Gaussian(1)})
    with pytest.raises(ss.ParameterError, match="there are state, payroll"):
        session.sum({"zzz": ss.Gaussian(1)})
