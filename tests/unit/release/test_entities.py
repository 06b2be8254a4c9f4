"""An entity has a size and a number of records: no face puts the one in for the other."""

import html
import json
import re

import pandas as pd
import pytest
from helpers.bitsources import Recorded
from helpers.errors import refused
from typer.testing import CliRunner

import slowscale as ss
from slowscale.accounting.explanation import at_most
from slowscale.accounting.sizes import ASSUMED_COUNT, NUMBERS_OF_RECORDS, read_sizes, sizes_in
from slowscale.cli.app import app

RECORDS = pd.DataFrame({"state": ["IA", "IA", "TX"], "firm": ["a", "a", "b"], "emp": [3, 40, 500]})
LAPLACE, COUNTED = ss.GeneralizedGaussian(sigma=5e5, p=1), ss.Gaussian(sigma=3)
SUMS = ss.Sums({"emp": LAPLACE}, keys=ss.Keys.cross({"state": ["IA", "TX"]}), count=COUNTED)
TABLES = ss.Request({"cells": SUMS, "nation": ss.Rollup("cells")})
SIZE = 1e6  # an amount, which is no number of records
AS_RECORDS = at_most(COUNTED.policy(SIZE))
ASSUMPTION = "one firm is assumed to have 1 record in a cell"
PLAN = """
[data]
path = "records.csv"
types = { emp = "int64" }
protect = "firm"

[ledger]
path = "x.ledger"

[tables.t.keys]
cross = { state = ["IA", "TX"] }

[tables.t.sums.emp]
mechanism = "generalized-gaussian"
sigma = 5e5
p = 1

[tables.t.count]
mechanism = "gaussian"
sigma = 3

[output]
folder = "out"
report = "report.html"
"""


def text_of(page):
    """Return the text of a page, without its charts."""
    found = re.sub(r"<(style|svg|math).*?</\1>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", found)))


@pytest.fixture
def session(tmp_path):
    return ss.Session(RECORDS, tmp_path / "x.ledger", protect="firm", bits=Recorded(2))


@pytest.fixture
def faces(session, tmp_path):
    """Every text that shows losses by size, after one release of a table and one of several."""
    release, found = session.release(SUMS), session.release(TABLES)
    found.to_parquet(tmp_path / "tables")
    cells, nation = (ss.read_release(tmp_path / "tables" / f"{name}.parquet") for name in found)
    (tmp_path / "plan.toml").write_text(PLAN)
    RECORDS.to_csv(tmp_path / "records.csv", index=False)

    def command(*arguments):
        result = CliRunner().invoke(app, [*arguments, *(["--sizes", "1,1e6"] if arguments[0] == "check" else [])])
        assert result.exit_code == 0, result.output
        return result.stdout

    return {
        "spent": session.spent.describe([1, SIZE]),
        "ledger show": command("ledger", "show", str(tmp_path / "x.ledger")),
        "preview": session.preview(TABLES).describe([1, SIZE]),
        "check": command("check", str(tmp_path / "plan.toml")),
        "report": text_of(release.report(tmp_path / "r.html", session.spent, sizes=[1, SIZE])),
        "report of several tables": text_of(found.report(tmp_path / "s.html", session.spent, sizes=[1, SIZE])),
        "report of the cells": text_of(cells.report(tmp_path / "c.html", session.spent, sizes=[1, SIZE])),
        "report of the nation": text_of(nation.report(tmp_path / "n.html", session.spent, sizes=[1, SIZE])),
        "json": command("check", str(tmp_path / "plan.toml"), "--json"),
    }


def test_an_amount_is_no_number_of_records(faces):
    described = json.loads(faces.pop("json"))["sizes"]
    assert [size["record"] for size in described] == [{"emp": 1, "count": 1}, {"emp": SIZE, "count": 1}]
    assert all(size["count_assumed"] for size in described)
    assert described[1]["loss"] == pytest.approx(LAPLACE.tight_policy(SIZE) + COUNTED.policy(1))
    total = at_most(LAPLACE.tight_policy(SIZE) + COUNTED.policy(1))
    for name, text in faces.items():
        assert AS_RECORDS not in text, name
        assert ASSUMPTION in text, name
        assert "record's loss" not in text, name
        assert "of a record" not in text, name
        assert "A record" not in text, name
        if name in ("preview", "check", "report"):
            assert total in text, name
    assert f"{at_most(COUNTED.policy(100))} at 100 records" in faces["check"]
    assert f"{at_most(2 * COUNTED.policy(100))} at 100 records" in faces["ledger show"]


def test_a_number_of_records_can_be_stated(session, tmp_path):
    session.release(SUMS)
    stated = [{"name": "small", "size": 10, "count": 2}, {"name": "largest firm", "size": SIZE, "count": 30}]
    total = at_most(LAPLACE.tight_policy(SIZE) + COUNTED.policy(30))
    text = session.spent.describe(stated)
    assert (
        f"count: {at_most(COUNTED.policy(2))} at 2 records (small), {at_most(COUNTED.policy(30))} at 30 records" in text
    )
    assert re.search(rf"\n  largest firm +{re.escape(total)} ", text)
    assert "assumed" not in text
    assert session.preview(TABLES).losses(stated)[""]["largest firm"] == pytest.approx(
        LAPLACE.tight_policy(SIZE) + COUNTED.policy(30)
    )
    same = {"small": {"emp": 10, "count": 2}, "largest firm": {"emp": SIZE, "count": 30}}
    assert session.spent.describe(same) == text
    entries = '{ name = "small", size = 10, count = 2 }, { name = "largest firm", size = 1e6, count = 30 }'
    (tmp_path / "plan.toml").write_text(f"{PLAN}\n[report]\nsizes = [{entries}]\n")
    RECORDS.to_csv(tmp_path / "records.csv", index=False)
    result = CliRunner().invoke(app, ["check", str(tmp_path / "plan.toml")])
    assert result.exit_code == 0, result.output
    assert re.search(rf"\n  largest firm +{re.escape(total)} ", result.stdout)


def test_sizes_of_entities():
    (size,) = read_sizes([SIZE], ["emp", "count"])
    assert (size.value("emp"), size.value("count"), size.states_count) == (SIZE, ASSUMED_COUNT, False)
    assert size.describe("count") == "1 record"
    assert sizes_in("count", [size]) == NUMBERS_OF_RECORDS
    assert sizes_in("emp", [size]) == (size,)
    named, other = read_sizes([{"name": "small", "size": 2}, {"name": "largest", "size": 9, "count": 4}])
    assert named.describe("count") == "1 record (small)"
    assert other.describe("count") == "4 records (largest)"
    assert sizes_in("count", [named, other]) == (named, other)
    with refused(ss.ParameterError, "sizes: 'largest'", code="unknown-column"):
        read_sizes([{"name": "largest", "size": 2, "count": 3}], ["emp"])
    with refused(ss.ParameterError, "sizes: 'largest'", code="missing"):
        read_sizes({"largest": {"emp": 2}}, ["emp", "count"])
    with refused(ss.ParameterError, "sizes: 'largest'", code="not-largest"):
        read_sizes([{"name": "small", "size": 2, "count": 2}, {"name": "largest", "size": 9}], ["emp", "count"])


def test_only_the_number_of_records(tmp_path):
    session = ss.Session(RECORDS, protect="firm", bits=Recorded(2))
    release = session.count(mechanism=COUNTED)
    losses = [f"{at_most(COUNTED.policy(number))} at {number:,} records" for number in (10, 1000)]
    assert all(loss in str(session.spent) for loss in losses)
    assert "assumed" not in str(session.spent)
    text = text_of(release.report(tmp_path / "r.html"))
    assert "Number of records" in text
    assert at_most(COUNTED.policy(1000)) in text
    assert "assumed" not in text
