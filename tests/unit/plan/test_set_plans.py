"""Plans with several tables: read, checked, carried out, and their mistakes with line and field."""

import csv
import json

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.errors import refused
from typer.testing import CliRunner

import slowscale as ss
from slowscale.cli.app import app
from slowscale.plan import check_plan, finish_plan, inspect_plan, read_plan, run_plan

PLAN = """
[data]
path = "establishments.parquet"
name = "establishments"
PROTECT

[ledger]
path = "x.ledger"

[release]
period = "2024"

[[hierarchies]]
column = "county"
digits = { state = 2 }

[[hierarchies]]
column = "naics3"
file = "sectors.csv"
levels = ["sector"]

[tables.cells.keys]
by = ["county", "naics3"]
file = "cells.csv"

[tables.cells.sums.emp]
mechanism = "exponential-polylog"
std = 75

[tables.cells.sums.payann]
mechanism = "gaussian"
sigma = 1e3

[tables.states]
rollup = "cells"
by = ["state"]

[tables.sectors]
rollup = "cells"
by = ["sector"]

[tables.nation]
rollup = "states"

[tables.industries]
keys = { by = ["naics3"], file = "industries.csv" }

[tables.industries.sums.emp]
mechanism = "gaussian"
sigma = 50

[output]
folder = "tables"
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
    assert plan.policy.columns == ("emp", "payann")
    polylog, gaussian = ss.ExponentialPolylog.calibrate(std=75), ss.Gaussian(sigma=50)
    at = {"emp": 20, "payann": 3000}
    wanted = polylog.tight_policy(20) + ss.Gaussian(sigma=1e3).policy(3000) + gaussian.policy(20)
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
    assert history[1]["facts"]["period"] == found.facts.period == read.facts.period == "2024"
    assert "already exists" in str(check_plan(plan).refusal)
    assert check_plan(plan, overwrite=True).refusal is None


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("[tables.states]", '[tables."st ates"]', '[tables."st ates"]', "st ates"),
        ("[tables.states]", "[tables.Cells]", "[tables.Cells]", "Cells"),
        (
            'rollup = "states"',
            'rollup = "county"',
            'rollup = "county"',
            "county",
        ),
        (
            'rollup = "cells"\nby = ["state"]',
            'rollup = "nation"',
            'rollup = "nation"',
            "nation",
        ),
        ('by = ["state"]', 'by = ["state"]\nkeys = { cross = { state = ["01"] } }', "keys = ", "no such field"),
        ('[tables.sectors]\nrollup = "cells"', "[tables.sectors]", 'by = ["sector"]', "no such field"),
        ("sigma = 50", "sigma = -50", "sigma = -50", "greater than 0"),
        ("sigma = 50", "sigma = 50\nfrom = 3", "from = 3", "no such field"),
        ('rollup = "states"', 'rolup = "states"', 'rolup = "states"', "did you mean rollup"),
        ('folder = "tables"\n', "", "[output]", "a line folder"),
        ("digits = { state = 2 }", "levels = ['state']", 'column = "county"', "either digits"),
        ('levels = ["sector"]', "", 'column = "naics3"', "needs the levels"),
        ("[ledger]", '[keys]\ncross = { county = ["01001"] }\n\n[ledger]', "[keys]", "there is no such field"),
        ("[tables.industries.sums.emp]", "[tables.industries.sums.naics3]", "sums.naics3]", "naics3"),
        ('by = ["state"]', 'by = ["region"]', 'by = ["region"]', "is by 'region'"),
        ('levels = ["sector"]', 'levels = ["state"]', "", "levels with different names"),
        (
            "[tables.nation]",
            '[tables.p]\nquantiles = "emp"\nloss = 1\n[tables.nation]\nby = ["state"]',
            "",
            "a copy of 'states'",
        ),
    ],
)
def test_mistakes(plan_file, old, new, line, words):
    text = PLAN.replace("PROTECT", "")
    assert old in text
    wrong = text.replace(old, new, 1)
    with pytest.raises(ss.PlanError, match=words) as error:
        read_plan(plan_file(wrong))
    if line:
        lines = [number for number, one in enumerate(wrong.splitlines(), 1) if line in one]
        told = error.value.mistakes[0].line
        assert told in [*lines, *(number - 1 for number in lines)], str(error.value)


def test_key_columns_that_only_a_file_names(plan_file):
    """A level that is nowhere declared is then found when the request is made, before anything is charged."""
    text = PLAN.replace('by = ["county", "naics3"]\n', "")
    assert check_plan(read_plan(plan_file(text))).refusal is None
    plan = read_plan(plan_file(text.replace('by = ["state"]', 'by = ["region"]')))
    for use in (check_plan, run_plan):
        with refused(ss.ParameterError, path=("tables", "states", "by")):
            use(plan)
    assert not ss.Ledger(plan.ledger.path).history()[1:]


def test_a_plan_without_tables(plan_file):
    """It serves `slowscale quantiles`; everything else says that there is nothing to publish."""
    plan = read_plan(plan_file(PLAN[: PLAN.index("[release]")]))
    assert (plan.tables, plan.output, plan.sizes) == ({}, None, ())
    for use in (check_plan, run_plan, inspect_plan, finish_plan):
        with refused(ss.PlanError, code="empty"):
            use(plan)


QUANTILES = """
[tables.sizes]
quantiles = "emp"
at = [0.5, 0.9]
loss = 0.1
"""


@pytest.mark.filterwarnings("ignore:quantiles are charged like a count, and the ledger has no caps")
def test_a_table_of_quantiles(plan_file, tmp_path):
    plan = read_plan(plan_file(PLAN.replace("[output]", f"{QUANTILES}\n[output]")))
    assert plan.policy({"emp": 0, "payann": 0}) == pytest.approx(0.1)
    found, files = run_plan(plan)
    assert list(found["sizes"]) == ["p50", "p90"]
    assert {tmp_path / "tables" / "sizes.csv", tmp_path / "tables" / "sizes.parquet"} <= set(files)
    (tmp_path / "tables" / "sizes.csv").unlink()
    again, made = finish_plan(plan, overwrite=True)
    assert dict(again["sizes"]) == dict(found["sizes"])
    assert tmp_path / "tables" / "sizes.csv" in made
    other = read_plan(plan_file(PLAN.replace("[output]", f"{QUANTILES}\n[output]").replace("0.9]", "0.8]")))
    with refused(ss.ParameterError, code="mismatch"):
        finish_plan(other)
    assert tmp_path / "c.html" in run_plan(plan, True, tmp_path / "c.html")[1]


def test_a_typo_in_a_sum_is_not_blamed_on_the_publication(plan_file):
    text = (PLAN + PUBLISHED).replace("sums.emp]", "sums.epm]")
    for use in (check_plan, run_plan):
        with refused(ss.ParameterError, path=("tables", "cells", "sums", "epm")):
            use(read_plan(plan_file(text)))


def test_outputs_are_checked_first(plan_file, tmp_path):
    plan = read_plan(plan_file())
    (tmp_path / "tables").write_text("a file")
    with refused(ss.ParameterError, code="exists"):
        run_plan(plan)
    missing = read_plan(plan_file(PLAN.replace('folder = "tables"', 'folder = "no/tables"')))
    with refused(ss.ParameterError, "there is no folder", code="missing"):
        check_plan(missing)
    over = read_plan(plan_file(PLAN.replace('folder = "tables"', 'folder = "."')))
    with refused(ss.ParameterError, "table 'cells'", code="conflict"):
        check_plan(over)
    assert not (tmp_path / "x.ledger").exists()


def test_the_tables_survive_a_report_that_fails(plan_file, tmp_path, monkeypatch):
    def fail(*given):
        raise ss.EngineError("no report")

    monkeypatch.setattr("slowscale.publish.report.public.public_page", fail)
    with refused(ss.IncompleteError, "the release", code="incomplete"):
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
    with refused(ss.ParameterError, "'state'", code="unknown-name", path=("publication", "tables", "state")):
        check_plan(read_plan(plan_file(PLAN + PUBLISHED.replace("{ states", "{ state"))))


def test_entities(plan_file):
    plan = read_plan(plan_file(protect='protect = "firm"'))
    found, _ = run_plan(plan)
    with refused(ss.ParameterError):
        found.policy.entity([{"emp": 3, "payann": 5, "count": 1}])


def test_cells_from_the_data(plan_file):
    """Their labels are in the records, which a check does not read: tables that are derived from them are left out."""
    text = PLAN.replace('file = "cells.csv"', "from_data = true")
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
    assert set(inspect_plan(read_plan(path))) == {"cells", "industries"}
    released = json.loads(output("release", path, "-y", "--json"))
    assert len(released["files"]) == 11
    assert "in the tables cells, industries, nation, sectors, states" in output(
        "ledger", "history", tmp_path / "x.ledger"
    )
    one = output("explain", tmp_path / "tables" / "states.csv", "--value", "emp=12", "--value", "payann=400")
    assert one == output("explain", tmp_path / "tables", "--value", "emp=12", "--value", "payann=400")
    assert "loses" in one
    assert "RollupPlan" in output("schema")
