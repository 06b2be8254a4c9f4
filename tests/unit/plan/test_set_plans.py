"""Plans with several tables: read, checked, carried out, and their mistakes with line and field."""

import csv
import json

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import slowscale as ss
from slowscale.cli.app import app
from slowscale.plan import check_plan, inspect_tables, read_plan, run_plan

PLAN = """
[data]
path = "establishments.parquet"
name = "establishments"
PROTECT

[ledger]
path = "x.ledger"

[[hierarchy]]
column = "county"
digits = { state = 2 }

[[hierarchy]]
column = "naics3"
file = "sectors.csv"
levels = ["sector"]

[[sums]]
column = "emp"
mechanism = "exponential-polylog"
std = 75

[[sums]]
column = "payann"
mechanism = "gaussian"
sigma = 1e3

[[table]]
name = "cells"

[table.keys]
by = ["county", "naics3"]
file = "cells.csv"

[[table]]
name = "states"
from = "cells"
by = ["state"]

[[table]]
name = "sectors"
from = "cells"
by = ["sector"]

[[table]]
name = "nation"
from = "states"

[[table]]
name = "industries"
keys = { by = ["naics3"], file = "industries.csv" }

[[table.sums]]
column = "emp"
mechanism = "gaussian"
sigma = 50

[output]
folder = "tables"
formats = ["parquet", "csv"]
report = "report.html"
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plan")
    records = ss.datasets.establishments(600)
    firms = pa.array([f"f{i % 200}" for i in range(records.num_rows)])
    pq.write_table(records.append_column("firm", firms), folder / "establishments.parquet")
    cells = sorted(set(zip(records["county"].to_pylist(), records["naics3"].to_pylist(), strict=True)))
    codes = sorted({code for _, code in cells})
    for name, rows in {
        "cells": [("county", "naics3"), *cells],
        "industries": [("naics3",), *((code,) for code in codes)],
        "sectors": [("naics3", "sector"), *((code, code[:2]) for code in codes)],
    }.items():
        with open(folder / f"{name}.csv", "w", newline="") as file:
            csv.writer(file).writerows(rows)
    return folder


@pytest.fixture
def plan_file(base, tmp_path):
    def write(text=PLAN, protect=""):
        for file in base.iterdir():
            target = tmp_path / file.name
            if not target.exists():
                target.symlink_to(file)
        path = tmp_path / "plan.toml"
        path.write_text(text.replace("PROTECT", protect), encoding="utf-8")
        return path

    return write


def test_a_plan_with_several_tables(plan_file, tmp_path):
    plan = read_plan(plan_file())
    assert list(plan.drawn) == ["cells", "industries"]
    assert plan.summed == ["emp", "payann"]
    polylog, gaussian = ss.ExponentialPolylog.calibrate(std=75), ss.Gaussian(sigma=50)
    at = {"emp": 20, "payann": 3000}
    wanted = polylog.policy(20) + ss.Gaussian(sigma=1e3).policy(3000) + gaussian.policy(20)
    assert plan.policy(at) == pytest.approx(wanted, rel=1e-14)
    checked = check_plan(plan)
    assert checked.refusal is None
    assert [table.name for table in checked.preview.tables] == ["cells", "states", "sectors", "nation", "industries"]
    assert not (tmp_path / "tables").exists()

    found, files = run_plan(plan)
    names = ["cells", "states", "sectors", "nation", "industries"]
    assert [file.name for file in files[:2]] == ["cells.parquet", "industries.parquet"]  # the drawn tables first
    written = [f"{name}.{ending}" for name in names for ending in ("parquet", "csv")]
    assert sorted(file.name for file in files[:-1]) == sorted(written)
    assert files[-1].name == "report.html"
    assert all(file.exists() for file in files)
    read = ss.read_release(tmp_path / "tables")
    assert read.policy(at) == pytest.approx(wanted, rel=1e-14)
    # Whole numbers add up exactly everywhere.
    frames = {name: release.to_pandas() for name, release in read.tables.items()}
    for column in ("emp", "payann"):
        totals = {int(frames[name][column].sum()) for name in ("cells", "states", "sectors", "nation")}
        assert len(totals) == 1
        for table, level in (
            ("states", frames["cells"]["county"].str[:2]),
            ("sectors", frames["cells"]["naics3"].str[:2]),
        ):
            sums = frames["cells"].groupby(level)[column].sum()
            assert sums.to_dict() == dict(zip(frames[table].iloc[:, 0], frames[table][column], strict=True))
    history = ss.Ledger(tmp_path / "x.ledger").history()
    assert [entry["kind"] for entry in history] == ["created", "charge"]
    assert history[1]["facts"]["id"] == found.facts.id
    assert "already exists" in str(check_plan(plan).refusal)
    assert check_plan(plan, overwrite=True).refusal is None


def test_a_plan_for_one_table(plan_file):
    single = PLAN.partition("[[hierarchy]]")[0] + PLAN[PLAN.index("[[sums]]") : PLAN.index("[[table]]")]
    plan = read_plan(plan_file(single + '[output]\nparquet = "x.parquet"\n'))
    assert not plan.is_set
    assert plan.drawn == {"table": plan}


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ('name = "states"', 'name = "st ates"', 'name = "st ates"', "letters, digits"),
        ('name = "states"', 'name = "Cells"', 'name = "Cells"', "two tables 'Cells'"),
        ('from = "states"', 'from = "county"', 'from = "county"', "there is no table 'county'"),
        ('from = "cells"\nby = ["state"]', 'from = "nation"', 'from = "nation"', "no table is drawn"),
        ('by = ["state"]', 'by = ["state"]\nkeys = { cross = { state = ["01"] } }', 'name = "states"', "remove keys"),
        ('name = "sectors"\nfrom = "cells"', 'name = "sectors"', 'name = "sectors"', "by is for a derived table"),
        ("sigma = 50", "sigma = -50", "sigma = -50", "greater than 0"),
        ("sigma = 50", "sigma = 50\nfrom = 3", "from = 3", "no such field"),
        ('from = "states"', 'form = "states"', 'form = "states"', "did you mean from"),
        ('folder = "tables"\nformats = ["parquet", "csv"]', 'parquet = "x.parquet"', "[output]", "need a folder"),
        ("digits = { state = 2 }", "levels = ['state']", 'column = "county"', "either digits"),
        ('levels = ["sector"]', "", 'column = "naics3"', "needs the levels"),
        ("[ledger]", '[keys]\ncross = { county = ["01001"] }\n\n[ledger]', "[keys]", r"\[table.keys\]"),
        ('column = "emp"\nmechanism = "gaussian"', 'column = "naics3"\nmechanism = "gaussian"', "", "key column"),
    ],
)
def test_mistakes(plan_file, old, new, line, words):
    text = PLAN.replace("PROTECT", "")
    assert old in text
    wrong = text.replace(old, new, 1) if "naics3" not in new else new.join(text.rsplit(old, 1))
    with pytest.raises(ss.PlanError, match=words) as error:
        read_plan(plan_file(wrong))
    if line:
        lines = [number for number, one in enumerate(wrong.splitlines(), 1) if line in one]
        told = int(str(error.value).partition("line ")[2].split(",")[0])
        assert told in [*lines, *(number - 1 for number in lines)], str(error.value)


def test_a_hierarchy_needs_tables(plan_file):
    with pytest.raises(ss.PlanError, match="describe them with"):
        read_plan(plan_file(PLAN[: PLAN.index("[[table]]")] + '[output]\ncsv = "x.csv"'))
    single = PLAN.partition("[[hierarchy]]")[0] + PLAN[PLAN.index("[[sums]]") : PLAN.index("[[table]]")]
    with pytest.raises(ss.PlanError, match="folder is for several tables"):
        read_plan(plan_file(single + '[output]\nfolder = "x"'))


def test_what_only_the_tables_know(plan_file):
    """A level that is nowhere declared is found when the request is made, before anything is charged."""
    plan = read_plan(plan_file(PLAN.replace('by = ["state"]', 'by = ["region"]')))
    with pytest.raises(ss.ParameterError, match="names 'region'"):
        check_plan(plan)
    with pytest.raises(ss.ParameterError, match="names 'region'"):
        run_plan(plan)
    assert not ss.Ledger(plan.ledger.path).history()[1:]


def test_outputs_are_checked_first(plan_file, tmp_path):
    plan = read_plan(plan_file())
    (tmp_path / "tables").write_text("a file")
    with pytest.raises(ss.ParameterError, match="is not a folder"):
        run_plan(plan)
    missing = read_plan(plan_file(PLAN.replace('folder = "tables"', 'folder = "no/tables"')))
    with pytest.raises(ss.ParameterError, match="there is no folder"):
        check_plan(missing)
    over = read_plan(plan_file(PLAN.replace('folder = "tables"', 'folder = "."')))
    with pytest.raises(ss.ParameterError, match="would be written over the keys"):
        check_plan(over)
    assert not (tmp_path / "x.ledger").exists()


def test_the_tables_survive_a_report_that_fails(plan_file, tmp_path, monkeypatch):
    def fail(*given):
        raise ss.EngineError("no report")

    monkeypatch.setattr("slowscale.publish.report.public.public_page", fail)
    with pytest.raises(ss.IncompleteError, match="no report"):
        run_plan(read_plan(plan_file()))
    assert len(ss.read_release(tmp_path / "tables")) == 5


def test_a_confidential_report_of_a_set(plan_file, tmp_path):
    result = CliRunner().invoke(
        app, ["release", str(plan_file()), "--yes", "--confidential-report", str(tmp_path / "losses.html")]
    )
    assert result.exit_code == 0, result.output
    assert "CONFIDENTIAL" in (tmp_path / "losses.html").read_text(encoding="utf-8")


PUBLISHED = """
[publication]
title = "Employment"
tables = { states = "Employment by state" }
keys = { state = "State", county = "County" }
basic = ["p.xlsx", "p.csv"]
columns = { emp = { title = "Employees", unit = "persons" } }
"""


def test_a_set_is_published_and_signed(plan_file, tmp_path):
    _, public = ss.keygen(tmp_path / "agency")
    plan = read_plan(plan_file(PLAN + 'sign = "agency.key"\n' + PUBLISHED))
    check_plan(plan)
    found, files = run_plan(plan)
    sheets = openpyxl.load_workbook(tmp_path / "p.xlsx")
    assert [sheets[name]["A1"].value for name in ("cells", "states")] == ["Employment: cells", "Employment by state"]
    notes = " ".join(str(cell.value) for row in sheets["Notes"].iter_rows() for cell in row)
    assert f"By all of them together, a record may lose: {found.facts.formula}." in notes
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Employment by state (states)" in report
    assert ">by State<" in report
    assert "Employees (persons)" in report
    signatures = [file for file in files if file.name.startswith("SHA256SUMS")]
    assert len(signatures) == 4
    for file in files:
        if file not in signatures:
            ss.verify(file, public)
    assert "p.datapackage.json" in ss.verify(tmp_path / "p-states.csv", public).files


def test_titles_of_tables_that_there_are_not(plan_file):
    with pytest.raises(ss.PlanError, match=r"publication.tables.state: 'state' is not a table; did you mean 'states'"):
        read_plan(plan_file(PLAN + PUBLISHED.replace("{ states", "{ state")))


def test_entities(plan_file):
    plan = read_plan(plan_file(protect='protect = "firm"'))
    found, _ = run_plan(plan)
    with pytest.raises(ss.ParameterError, match="2 tables are drawn"):
        found.policy.entity([{"emp": 3, "payann": 5, "count": 1}])


def test_cells_from_the_data(plan_file):
    """Their labels are in the records, which a check does not read: tables that are derived from them are left out."""
    text = PLAN.replace('file = "cells.csv"', "public_in_data = true")
    plan = read_plan(plan_file(text))
    checked = check_plan(plan)
    assert [table.name for table in checked.preview.tables] == ["cells", "industries"]
    found, _ = run_plan(plan)
    assert len(found) == 5


def test_commands(plan_file, tmp_path):
    path, run = plan_file(), CliRunner()

    def output(*arguments):
        result = run.invoke(app, [*map(str, arguments)])
        assert result.exit_code == 0, result.output
        return result.stdout

    text = output("check", path)
    assert "industries (drawn)" in text
    assert "states (derived)" in text
    assert "Drawing states or sectors or nation with the noise of cells" in text
    described = json.loads(output("check", path, "--json"))
    assert set(described["mechanisms"]) == {"cells", "industries"}
    assert described["tables"]["nation"]["from"] == "states"
    assert described["allowed"] is True
    assert "loses" in output("explain", path, "--value", "emp=12", "--value", "payann=400")
    looked = output("inspect", path)
    assert "Table cells:" in looked
    assert "Table industries:" in looked
    assert set(json.loads(output("inspect", path, "--json"))) == {"cells", "industries"}
    assert set(inspect_tables(read_plan(path))) == {"cells", "industries"}
    released = json.loads(output("release", path, "-y", "--json"))
    assert len(released["files"]) == 11
    assert "in the tables cells, industries, nation, sectors, states" in output(
        "ledger", "history", tmp_path / "x.ledger"
    )
    one = output("explain", tmp_path / "tables" / "states.csv", "--value", "emp=12", "--value", "payann=400")
    assert one == output("explain", tmp_path / "tables", "--value", "emp=12", "--value", "payann=400")
    assert "loses" in one
    assert "TablePlan" in output("schema")
