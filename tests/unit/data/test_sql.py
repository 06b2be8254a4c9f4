"""The page that lists the allowed SQL syntax is generated from the rules, and every usage on it is accepted."""

import dataclasses
import importlib.util
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
import sqlglot

from slowscale.data.rowwise import bind
from slowscale.data.sources import open_table
from slowscale.data.sql import _RULES, reference

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


ACCEPTED = [
    "i", "5", "true", "null is null", "(i)", "i = 1", "i <> 1", "i < 1", "i <= 1", "i > 1", "i >= 1",
    "i between 1 and 5", "i in (1, 5)", "i is null", "i = 1 and i = 2", "i = 1 or i = 2", "not i = 1",
    "case when i = 1 then 2 else 3 end", "if(i = 1, 2, 3)", "coalesce(i, 1)", "nullif(i, 1)", "greatest(i, 1)",
    "least(i, 1)", "i + 1", "i - 1", "i * 2", "i / 2", "i // 2", "i % 2", "-i", "abs(i)", "round(x)", "floor(x)",
    "ceil(x)", "sqrt(x)", "trim(s)", "trim(s, 'x')", "ltrim(s)", "rtrim(s)", "replace(s, 'a', 'b')",
    "regexp_replace(s, 'a', 'b')", "regexp_replace(s, 'a', 'b', 'g')", "regexp_matches(s, 'a')", "s like 'a%'",
    "s not like 'a%'", "s ilike 'A%'", "s not ilike 'A%'", "starts_with(s, 'a')", "upper(s)", "lower(s)", "length(s)",
    "substr(s, 1, 2)", "left(s, 1)", "right(s, 1)", "split_part(s, ',', 1)", "lpad(s, 5, 'x')", "rpad(s, 5, 'x')",
    "s || s", "concat(s, s)", "year(d)", "quarter(d)", "month(d)", "day(d)", "extract(year from d)",
    "date_trunc('month', d)", "strptime(s, '%Y')", "try_strptime(s, '%Y')", "strftime(d, '%Y')", "cast(i as double)",
    "i::double", "try_cast(s as integer)",
]  # fmt: skip


def test_every_rule_accepts_its_syntax_and_is_on_the_page_once():
    table = open_table(pa.table({"i": [1], "x": [1.5], "s": ["a"], "d": [date(2020, 1, 1)]}))
    used = set()
    for sql in ACCEPTED:
        bind(table, sql, "derive")
        used |= {type(node) for node in sqlglot.parse_one(sql, read="duckdb").walk()}
    assert set(_RULES) <= used
    usages = [usage for _, usage, _ in reference()]
    assert len(set(usages)) == len(usages)
    assert "x = y, <>, <, <=, >, >=" in usages
    for rule in _RULES.values():
        with pytest.raises(dataclasses.FrozenInstanceError):
            rule.understood = {"this"}
