"""The page that lists the allowed SQL syntax is generated from the rules, and every usage on it is accepted."""

import importlib.util
from pathlib import Path

import pyarrow as pa
import pytest

from slowscale.tables.rowwise import bind
from slowscale.tables.sources import open_table
from slowscale.tables.sql import reference

DOCS = Path(__file__).parents[3] / "docs"


def test_the_page_is_up_to_date():
    spec = importlib.util.spec_from_file_location("sql_page", DOCS / "sql_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (DOCS / "sql.md").read_text(encoding="utf-8") == module.page(), "run `python docs/sql_page.py`"


def test_every_entry_has_one_plain_line():
    entries = list(reference())
    assert len(entries) > 40
    for section, usage, meaning in entries:
        assert section
        assert usage
        assert meaning.endswith(".")
        assert "\n" not in meaning


@pytest.mark.parametrize(
    ("before", "after"),
    [("EMP > 1", "emp"), ('"emp" > 1', "emp"), ("zone = '2020-01-01 12:00:00'", "zone")],
)
def test_names_of_columns(before, after):
    noon = pa.array([1577880000], pa.timestamp("s", "America/New_York"))
    table = open_table(pa.table({"emp": [2], "zone": noon}))
    assert table.select(x=bind(table, before, "where")).to_pyarrow()["x"].to_pylist() == [True]
    assert after in table.columns
