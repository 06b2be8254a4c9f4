"""The command as a new user runs it, in an empty folder: a process for each run, and each command as the program."""

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from helpers.commands import run_command

import slowscale as ss
from slowscale.accounting.explanation import at_most
from slowscale.core.numbers import format_number, share

COMMAND = Path(sys.executable).with_name("slowscale")


def run(*arguments, folder, code=0, env=None):
    done = run_command(arguments, folder, env)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def run_program(*arguments, folder):
    """Run the installed program itself: unlike `run`, it has imported nothing before."""
    done = subprocess.run(
        [COMMAND, *map(str, arguments)], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """A folder with the example plan, its data and its public cells, made once and copied for each test."""
    path = tmp_path_factory.mktemp("example")
    table = ss.datasets.establishments(20_000, 40)
    pyarrow.parquet.write_table(table, path / "establishments.parquet")
    pyarrow.csv.write_csv(table.group_by(["county", "naics3"]).aggregate([]), path / "cells.csv")
    run("init", folder=path)
    return path


@pytest.fixture
def folder(example, tmp_path):
    """A copy of the example folder for one test alone."""
    shutil.copytree(example, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_the_whole_path(folder):
    assert "Within all caps." in run("check", "plan.toml", folder=folder).stdout
    assert "pass --yes" in run("release", "plan.toml", folder=folder, code=6).stderr
    assert not (folder / "census.ledger").exists()
    done = run("release", "plan.toml", "--yes", folder=folder)
    for name in ("cells.parquet", "cells.csv", "industries.parquet", "industries.csv", "report.html"):
        assert f"wrote published/{name}" in done.stdout
        assert (folder / "published" / name).exists()
    assert (folder / "published" / "cells.csv.json").exists()
    release = ss.read_release(folder / "published")
    assert release["cells"].table.num_rows == 40
    assert release.facts.period == "2024"
    assert set(release.facts.columns) == {"emp", "payann"}
    words = run(
        "explain", "published/cells.parquet", "--value", "emp=12", "--value", "payann=400", folder=folder
    ).stdout
    assert f"loses a total of {at_most(release.policy({'emp': 12, 'payann': 400}))} (PRzCDP; " in words
    assert words == run("explain", "plan.toml", "--value", "emp=12", "--value", "payann=400", folder=folder).stdout
    assert "1 release so far" in run("ledger", "show", "census.ledger", folder=folder).stdout
    assert "emp by ExponentialPolylog" in run("ledger", "history", "census.ledger", folder=folder).stdout
    verified = run("ledger", "verify", "census.ledger", "--against", "published/cells.csv", folder=folder).stdout
    assert verified.strip() == "hash chain intact"


def test_every_command_imports_what_it_needs(tmp_path):
    """The other tests fork a process that has imported the library, which could hide a missing import."""
    from slowscale.cli.app import app, ledger_app

    (tmp_path / "farms.csv").write_text("state,cattle\nIA,120\nTX,31000\n")
    (tmp_path / "plan.toml").write_text(
        '[data]\npath = "farms.csv"\n[tables.t.keys]\ncross = { state = ["IA", "TX"] }\n[ledger]\npath = "l"\n'
        '[ledger.caps.cattle]\nmechanism = "root"\nk = 4\nsigma = 0.5\n'
        '[tables.t.sums.cattle]\nmechanism = "root"\nk = 4\nsigma = 0.5\n'
        '[output]\nfolder = "out"\nreport = "out.html"\n'
    )
    commands = [
        "init farms.csv other.toml",
        "check plan.toml",
        "inspect plan.toml --report look.html",
        "sql plan.toml",
        "release plan.toml --yes --confidential-report losses.html",
        "explain out/t.csv --value cattle=12",
        "quantiles plan.toml --column cattle --loss 0.1 --yes",
        "compare --std 75 --at 106 --chart chart.svg",
        "calibrate root --std 5 --at 100 --param k=4",
        "advise --records median=10,largest=1000 --interval 50",
        "demo demo",
        "schema",
        "ledger show l",
        "ledger history l",
        "ledger verify l --against out/t.parquet",
        "keygen key",
        "sign out/t.parquet --key key.key",
        "verify out/t.parquet --key key.pub",
        "growth out/t.csv --from state=IA",
        "difference out/t.csv --from state=IA",
        "share out/t.csv",
        "ledger set-cap l cattle --mechanism root --param k=4 --param sigma=0.5 --times 2 --reason more --yes",
        "ledger set-largest l cattle 4e10 --reason law --yes",
    ]
    for command in commands:
        assert run_program(*command.split(), folder=tmp_path).stdout
    names = {(command.name or command.callback.__name__).replace("_", "-") for command in app.registered_commands}
    names |= {f"ledger {command.callback.__name__.replace('_', '-')}" for command in ledger_app.registered_commands}
    tried = {" ".join(command.split()[: 2 if command.startswith("ledger") else 1]) for command in commands}
    # test_a_study_of_own_data and test_workbench.py run the program, too.
    assert tried == names - {"study", "serve"}


def test_a_csv_file_of_the_user(tmp_path):
    (tmp_path / "farms.csv").write_text("state,cattle\n01,120\n01,4000\n48,31000\n")
    (tmp_path / "plan.toml").write_text(
        '[data]\npath = "farms.csv"\n[tables.t.keys]\ncross = { state = ["01", "48", "56"] }\n'
        '[tables.t.sums.cattle]\nmechanism = "root"\nk = 4\nsigma = 0.5\n[output]\nfolder = "out"\n'
    )
    run("release", "plan.toml", "--yes", folder=tmp_path)
    assert ss.read_release(tmp_path / "out" / "t.csv").table["state"].to_pylist() == ["01", "48", "56"]


def test_a_plan_that_starts_from_a_file(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "farms.csv").write_bytes(
        "county;opened;sold;cattle;né\n01001;31.12.2020;01/02/2020;120;1,5\n48029;01.02.2021;03/04/2020;4000;2\n".encode(
            "latin-1"
        )
    )
    done = run("init", "data/farms.csv", "farms.toml", folder=tmp_path)
    assert "come from the records, which are confidential" in done.stdout
    assert 'sold: the dates match "%d/%m/%Y" or "%m/%d/%Y"' in done.stdout
    assert "120" not in done.stdout
    plan = tmp_path / "farms.toml"
    written = tomllib.loads(plan.read_text())
    assert written["data"] == {
        "path": "data/farms.csv",
        "name": "farms",
        "csv": {"delimiter": ";", "encoding": "latin-1", "dates": "%d.%m.%Y", "decimal": ","},
        "types": {
            "county": "string",
            "opened": "date",
            "sold": "string",
            "cattle": "int64",
            "né": "decimal(18, 1)",
        },
    }
    for command in (["check", plan], ["release", plan, "--yes"]):
        error = run(*command, folder=tmp_path, code=2).stderr
        assert "tables.cells.keys: give one of file, cross or from_data" in error
        assert "tables.cells.sums.COLUMN.mechanism: still to be chosen: must be 'gaussian'" in error
    text = plan.read_text()
    for old, new in {
        "{ by = [] }": "{ cross = { opened = [2020-12-31, 2021-02-01, 2021-02-02] } }",
        "sums.COLUMN]": "sums.cattle]",
        'mechanism = ""': 'mechanism = "gaussian"\nsigma = 1e-6',
    }.items():
        assert old in text
        text = text.replace(old, new)
    plan.write_text(text)
    assert "There are no caps" in run("check", plan, folder=tmp_path).stdout
    run("release", plan, "--yes", folder=tmp_path)
    assert ss.read_release(tmp_path / "published").table["cattle"].to_pylist() == [120, 4000, 0]
    again = run("check", plan, folder=tmp_path, code=2)
    assert "published/cells.csv exists: the release needs --overwrite" in again.stdout
    assert "published/cells.parquet already exists; choose another path, or pass --overwrite" in again.stderr
    run("check", plan, "--overwrite", folder=tmp_path)
    assert "farms.toml exists" in run("init", "data/farms.csv", "farms.toml", folder=tmp_path, code=2).stderr


def test_a_plan_that_starts_from_data_with_types(folder):
    assert "proposed types" not in run("init", "establishments.parquet", "new.toml", folder=folder).stdout
    text = (folder / "new.toml").read_text()
    assert '# [data.types]\n# county = "string"' in text
    assert '# payann = "int64"' in text
    assert "types" not in tomllib.loads(text)["data"]
    with duckdb.connect(str(folder / "census.duckdb")) as file:
        file.execute("CREATE TABLE t AS SELECT 'TX' AS state, 1.5 AS pay")
    done = run("init", "duckdb://census.duckdb#t", "database.toml", folder=folder)
    assert "confidential" not in done.stdout
    assert tomllib.loads((folder / "database.toml").read_text())["data"] == {
        "database": "duckdb://census.duckdb#t",
        "name": "t",
    }
    assert "matches no file: none.csv" in run("init", "none.csv", "none.toml", folder=folder, code=2).stderr
    assert not (folder / "none.toml").exists()


def test_check_reads_the_columns_but_no_record(folder):
    plan = folder / "plan.toml"
    text = plan.read_text()
    plan.write_text(
        text.replace("[tables.cells.sums.emp]", "[tables.cells.sums.empp]")
        .replace("[ledger.caps.emp]", "")
        .replace('mechanism = "exponential-polylog"\nstd = 20\ntimes = 10', "")
    )
    assert (
        "tables.cells.sums.empp: column 'empp' is not in the data; did you mean 'emp'?"
        in run("check", plan, folder=folder, code=2).stderr
    )
    table = pyarrow.parquet.read_table(folder / "establishments.parquet")
    nothing = pa.nulls(len(table), pa.int64())
    pyarrow.parquet.write_table(
        table.set_column(table.column_names.index("emp"), "emp", nothing), folder / "establishments.parquet"
    )
    plan.write_text(text)
    assert json.loads(run("check", plan, "--json", folder=folder).stdout)["allowed"] is True
    assert "missing values" in run("release", plan, "--yes", folder=folder, code=3).stderr


def test_inspect_shows_the_records_to_the_curator_only(folder):
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    done = run("inspect", "plan.toml", folder=folder)
    assert done.stdout.startswith("Table cells:\nCONFIDENTIAL: for the curator only")
    assert "the guarantee does not cover that choice" in done.stdout
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    found = json.loads(run("inspect", "plan.toml", "--json", "--no-duplicates", folder=folder).stdout)["cells"]
    assert found["confidential"].startswith("CONFIDENTIAL")
    assert found["duplicates"] is None
    assert found["dominance"] == {"p": 0.1, "n": 2, "k": 0.85, "probability": 0.5}
    assert {one["rule"] for one in found["open_cells"]} == {"10 % rule", "(2, 85 %)-dominance"}
    done = run("inspect", "plan.toml", "--p", "0.2", "--n", "1", "--k", "0.7", "--probability", "0.3", folder=folder)
    assert "20 % rule" in done.stdout
    assert "(1, 70 %)-dominance" in done.stdout
    assert "dominance" not in run("inspect", "plan.toml", "--no-dominance", folder=folder).stdout
    assert run("inspect", "plan.toml", "--p", "2", folder=folder, code=2).stderr.startswith("error: --p must be")
    done = run("inspect", "plan.toml", "--report", "look.html", folder=folder)
    assert "look-cells.html (confidential)" in done.stderr
    assert stat.S_IMODE((folder / "look-cells.html").stat().st_mode) == 0o600
    assert "exists" in run("inspect", "plan.toml", "--report", "look.html", folder=folder, code=2).stderr


def test_absurd_calibrations_are_reported(tmp_path):
    done = run("calibrate", "exponential-polylog", "--loss", "1", "--at", "268689", folder=tmp_path)
    assert "warning: the noise of ExponentialPolylog" in done.stderr
    done = run("calibrate", "exponential-polylog", "--std", "1e6", "--at", "1e5", folder=tmp_path)
    assert done.stderr == ""
    assert "  scale: sigma = 100,000, from at\n" in done.stdout
    done = run("calibrate", "exponential-polylog", "--std", "75", folder=tmp_path)
    assert "  scale: sigma = 1, the default\n" in done.stdout
    done = run("calibrate", "exponential-polylog", "--std", "20000", folder=tmp_path, code=2)
    assert "give --param sigma=NUMBER, about the size of a typical record, or --at, which sigma is" in done.stderr
    done = run("compare", "--std", "1e6", "--at", "268689", folder=tmp_path)
    assert "The scale of exponential polylog 2 is sigma = 268,689, from at." in done.stdout


def test_the_scale_is_stated_by_check_and_release(folder):
    assert "  scale: sigma = 1, the default\n" in run("check", "plan.toml", folder=folder).stdout
    assert json.loads(run("check", "plan.toml", "--json", folder=folder).stdout)["scales"]["cells"]["emp"].endswith(
        "default"
    )
    assert "cells, emp: sigma = 1, the default\n" in run("release", "plan.toml", "--yes", folder=folder).stdout


def test_programs_get_json(folder):
    checked = json.loads(run("check", "plan.toml", "--json", folder=folder).stdout)
    assert checked["allowed"] is True
    made = json.loads(run("release", "plan.toml", "--yes", "--json", folder=folder).stdout)
    assert made["facts"]["ledger"]["entry"] == 2
    explained = json.loads(
        run("explain", "published/cells.csv", "--value", "emp=1", "--value", "payann=9", "--json", folder=folder).stdout
    )
    assert explained["loss"] == pytest.approx(sum(explained["columns"].values()))
    assert json.loads(run("ledger", "history", "census.ledger", "--json", folder=folder).stdout)[1]["kind"] == "charge"
    assert json.loads(run("ledger", "verify", "census.ledger", "--json", folder=folder).stdout) == {"problems": []}
    assert "spent" in json.loads(run("ledger", "show", "census.ledger", "--json", folder=folder).stdout)
    found = json.loads(
        run("calibrate", "root", "--loss", 1, "--at", 106, "--param", "k=4", "--json", folder=folder).stdout
    )
    assert found["mechanism"]["k"] == 4
    points = ("--param", "points=10:0.5,1000:5")
    found = json.loads(run("calibrate", "from-policy", "--std", 75, *points, "--json", folder=folder).stdout)
    assert ss.Mechanism.from_dict(found["mechanism"]).std() == pytest.approx(75)
    root = ["calibrate", "root", "--std", 75, "--at", 106, "--json", "--param", "k=2", "--param"]
    found = json.loads(run(*root, "noise=laplace", "--param", "estimator=median", folder=folder).stdout)
    assert ss.Mechanism.from_dict(found["mechanism"]).estimator == "median"
    power = ["noise=generalized-gaussian", "--param", "noise.p=0.5"]
    found = json.loads(run(*root, *power, folder=folder).stdout)
    assert ss.Mechanism.from_dict(found["mechanism"]).noise == ss.GeneralizedGaussian(sigma=1, p=0.5)
    assert "noise generalized-gaussian needs p" in run(*root, power[0], folder=folder, code=2).stderr
    assert "--param noise is missing" in run(*root, power[2], folder=folder, code=2).stderr
    refused = run("calibrate", "from-policy", "--std", 75, "--param", "points=10:0.5:1", folder=folder, code=2)
    assert "--param points must be pairs of numbers such as points=100:0.5,10000:5, got '10:0.5:1'" in refused.stderr
    rows = json.loads(run("compare", "--std", 75, "--at", 106, "--json", folder=folder).stdout)
    assert len(rows) == 6
    assert "properties" in json.loads(run("schema", folder=folder).stdout)


def test_advise_prints_a_table_and_writes_a_plan_and_a_chart(tmp_path):
    asked = ("advise", "--records", "median=106,largest=1.55e6", "--interval", 150)
    done = run(*asked, "--plan", "p.toml", "--data", "d.csv", "--column", "pay", "--chart", "c.svg", folder=tmp_path)
    best = ss.read_plan(tmp_path / "p.toml").drawn["total"].mechanisms["pay"]
    assert best.prediction_interval(0)[1] == pytest.approx(150)
    assert "Recommended: " in done.stdout
    assert "Gaussian with the same 95 % error" in done.stdout
    assert "wrote p.toml: edit it, then `slowscale check p.toml`" in done.stderr
    assert (tmp_path / "c.svg").read_text().startswith("<svg")
    found = json.loads(run(*asked, "--json", folder=tmp_path).stdout)
    assert ss.Mechanism.from_dict(found["best"]) == best
    assert found["candidates"][0]["tight_losses"]["largest"] == pytest.approx(best.tight_loss(1.55e6))
    wanted = ("advise", "--records", "median=106,largest=1.55e6", "--presence", "median=0.5,largest=40", "--json")
    found = json.loads(run(*wanted, folder=tmp_path).stdout)["candidates"][0]["tight_losses"]
    assert found["median"] <= 0.5
    assert found["largest"] <= 40


def test_advise_takes_several_columns_from_a_file(tmp_path):
    (tmp_path / "columns.toml").write_text(
        "[pay]\nrecords = { median = 106, largest = 1.55e6 }\ninterval = 150\nbands = { largest = 1 }\n"
        "[emp]\nrecords = { median = 4, largest = 9000 }\ninterval = 10\n"
    )
    done = run("advise", "columns.toml", "--plan", "p.toml", "--json", folder=tmp_path)
    found = json.loads(done.stdout)["columns"]
    mechanisms = ss.read_plan(tmp_path / "p.toml").drawn["total"].mechanisms
    assert {name: ss.Mechanism.from_dict(one["best"]) for name, one in found.items()} == mechanisms
    assert found["pay"]["candidates"][0]["band_losses"]["largest"] <= 1
    (tmp_path / "columns.toml").write_text("[pay]\nsize = 3\n")
    assert "size is not an argument" in run("advise", "columns.toml", folder=tmp_path, code=2).stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--interval", 150, "--plan", "p.toml"], "p.toml exists; choose another name, or --overwrite"),
        ([], "the goal must be an accuracy"),
        (["--interval", -1], "--interval must be a finite number > 0, got -1.0"),
        (["--relative", 0], "--relative must be a share from 0 to 1, without 0"),
        (["--bands", "median"], "--bands"),
        (["--presence", "medan=1"], "--presence"),
        (["--presence", "median=nan"], "--presence median must be a finite number > 0, got nan"),
        (["--records", "a=nan", "--interval", 1], "--records a must be a finite number > 0, got nan"),
        (["--interval", 1e308], "error: --interval asks for an error above 1e+150"),
        (
            ["--presence", "median"],
            "--presence must be a name and a number such as median=0.25,largest=50, got 'median'",
        ),
        (["--presence", "median=1,median=2"], "--presence must have each name once"),
    ],
)
def test_mistakes_in_advise_name_the_options(arguments, words, tmp_path):
    (tmp_path / "p.toml").touch()
    done = run("advise", "--records", "median=106,largest=1.55e6", *arguments, folder=tmp_path, code=2)
    assert words in done.stderr


def test_compare_says_what_at_must_be(tmp_path):
    words = run("compare", "--std", 1e6, "--at", 0, folder=tmp_path, code=2).stderr
    assert "--at must be above 0 where --std is above 10,000" in words
    assert "sigma" not in words
    run("compare", "--std", 75, "--at", 0, folder=tmp_path)


def test_warnings_are_in_the_words_of_the_plan(tmp_path):
    (tmp_path / "d.csv").write_text("x\n1\n2\n")
    (tmp_path / "p.toml").write_text(
        '[data]\npath = "d.csv"\n[tables.t.sums.x]\nmechanism = "exponential-polylog"\nd = 75\n'
        '[output]\nfolder = "out"\n'
    )
    for command in (["check"], ["inspect"], ["release", "--yes"]):
        words = run(command[0], "p.toml", *command[1:], folder=tmp_path).stderr
        assert "d is not a standard deviation; for one, give std and at instead" in words
        assert "calibrate" not in words


def test_existing_files_are_not_overwritten_and_nothing_is_spent(folder):
    run("release", "plan.toml", "--yes", folder=folder)
    before = (folder / "published" / "cells.parquet").read_bytes()
    assert "exists" in run("release", "plan.toml", "--yes", folder=folder, code=2).stderr
    assert (folder / "published" / "cells.parquet").read_bytes() == before
    assert len(ss.Ledger(folder / "census.ledger").history()) == 2
    run("release", "plan.toml", "--yes", "--overwrite", folder=folder)
    assert len(ss.Ledger(folder / "census.ledger").history()) == 3
    assert "plan.toml exists" in run("init", folder=folder, code=2).stderr


@pytest.mark.parametrize(
    ("change", "arguments", "words"),
    [
        (('folder = "published"', 'folder = "."'), [], "table 'cells' would be written over the keys"),
        (('folder = "published"', 'folder = "cells.csv"'), [], "cells.csv is taken by the keys"),
        (('folder = "published"', 'folder = "estab"'), [], ""),
        (("tables.cells", "tables.establishments"), [], "would be written over the data"),
        (('folder = "published"', 'folder = "none/published"'), [], "output.folder: there is no folder"),
        (('folder = "published"', 'folder = "/proc/published"'), [], "the folder /proc/published cannot be created"),
        (('"published/report.html"', '"none/report.html"'), [], "output.report: "),
        (("", ""), ["--confidential-report", "published/report.html"], "would be written over the report"),
        (("", ""), ["--confidential-report", "none/c.html"], "--confidential-report: "),
        (
            ("[ledger.caps.emp]", "[ledger.caps.empp]"),
            [],
            "ledger.caps.empp: caps has a cap on 'empp', which is not a column",
        ),
        (("sums.emp]", "sums.empp]"), [], "tables.cells.sums.empp: column 'empp' is not in the data"),
        (('path = "establishments.parquet"', 'path = "none.parquet"'), [], "matches no file"),
    ],
)
def test_nothing_is_spent_on_what_cannot_be_written(folder, change, arguments, words):
    plan = folder / "plan.toml"
    text = plan.read_text().replace(*change)
    if "tables.est" in change[1]:
        text = text.replace('folder = "published"', 'folder = "."').replace(
            'rollup = "cells"', 'rollup = "establishments"'
        )
    plan.write_text(text)
    data = (folder / "establishments.parquet").read_bytes()
    if words:
        assert words in run("release", plan, "--yes", "--overwrite", *arguments, folder=folder, code=2).stderr
        assert not (folder / "census.ledger").exists()
    assert (folder / "establishments.parquet").read_bytes() == data


def test_parts_of_a_partition(tmp_path):
    """A second release about other records has its own room, with keys by cross and by file."""
    (tmp_path / "farms.csv").write_text("state,cattle\n01,120\n01,4000\n48,31000\n")
    plan = (
        '[data]\npath = "farms.csv"\n[release]\npartition = "state"\n[tables.t.keys]\n{keys}\n[ledger]\npath = "l"\n'
        "[ledger.caps.cattle]\n"
        'mechanism = "root"\nk = 4\nsigma = 0.5\n[tables.t.sums.cattle]\nmechanism = "root"\nk = 4\nsigma = 0.5\n'
        '[output]\nfolder = "out{n}"\n'
    )
    (tmp_path / "cells.csv").write_text("state\n56\n")
    for n, keys in enumerate(
        ['cross = { state = ["01"] }', 'cross = { state = ["48"] }', 'file = "cells.csv"\nby = ["state"]']
    ):
        (tmp_path / "plan.toml").write_text(plan.replace("{keys}", keys).replace("{n}", str(n)))
        run("check", "plan.toml", folder=tmp_path)
        run("release", "plan.toml", "--yes", folder=tmp_path)
    (tmp_path / "plan.toml").write_text(plan.replace("{keys}", 'cross = { state = ["48"] }').replace("{n}", "9"))
    run("check", "plan.toml", folder=tmp_path, code=4)


def test_labels_that_look_like_markup(tmp_path):
    (tmp_path / "d.csv").write_text("g,x\n[/a],1\n")
    (tmp_path / "plan.toml").write_text(
        '[data]\npath = "d.csv"\n[tables.t.keys]\ncross = { g = ["[/a]", "[red]b"] }\n[tables.t.sums.x]\n'
        'mechanism = "gaussian"\nsigma = 1\n[output]\nfolder = "o"\n'
    )
    assert "[red]b" in run("release", "plan.toml", "--yes", folder=tmp_path).stdout


def test_the_demo_asks_before_it_overwrites(tmp_path):
    (tmp_path / "plan.toml").write_text("mine")
    assert "plan.toml exists" in run("demo", ".", folder=tmp_path, code=2).stderr
    assert (tmp_path / "plan.toml").read_text() == "mine"


def test_a_study_of_own_data(tmp_path):
    farms = {"state": [f"s{i % 7}" for i in range(70)], "cattle": [i * i for i in range(70)]}
    pyarrow.parquet.write_table(pa.table(farms), tmp_path / "farms.parquet")
    command = (
        "study",
        "--data",
        "farms.parquet",
        "--value",
        "cattle",
        "--by",
        "state",
        "--repetitions",
        "3",
        "--loss",
        "5",
    )
    done = run_program(*command, folder=tmp_path)
    assert "CONFIDENTIAL" in done.stderr
    assert "claims of the paper: " in done.stdout
    assert (tmp_path / "study" / "figures" / "gains-5.png").exists()
    assert "exists; choose another folder, or pass --overwrite" in run(*command, folder=tmp_path, code=2).stderr


def test_a_cap_refuses(folder):
    plan = folder / "plan.toml"
    text = plan.read_text().replace("times = 10", 'times = 1\naccounting = "closed"')
    plan.write_text(text.replace('accounting = "tight" ', 'accounting = "closed" '))
    run("release", plan, "--yes", folder=folder)
    for command in (["check", plan], ["release", plan, "--yes", "--overwrite"]):
        words = run(*command, folder=folder, code=4).stderr
        assert "the cap on 'emp' would be exceeded, for records of every size: the cap allows 1 such release" in words
        assert "No ExponentialPolylog fits under what is left of the cap for every record size" in words
        assert "raise the cap on 'emp', with a reason, by `slowscale ledger set-cap`" in words
    history = run("ledger", "history", "census.ledger", folder=folder).stdout.splitlines()
    assert len(history) == 3
    assert "refused or failed: CapError" in history[-1]
    cap = ["--mechanism", "exponential-polylog", "--std", 20, "--times", 2, "--accounting", "closed"]
    cap += ["--reason", "a second year"]
    run("ledger", "set-cap", "census.ledger", "emp", *cap, "--yes", folder=folder)
    root = ["--mechanism", "root", "--param", "k=4", "--loss", 1, "--at", 106, "--times", 2, "--reason", "the same"]
    run("ledger", "set-cap", "census.ledger", "payann", *root, "--yes", folder=folder)
    run("release", plan, "--yes", "--overwrite", folder=folder)


def test_private_quantiles(folder):
    asked = ["quantiles", "plan.toml", "--column", "payann", "--loss", 0.02, "--at", "0.5,0.9", "--grid", "1:1e7:4"]
    assert "pass --yes" in run(*asked, folder=folder, code=6).stderr
    assert not (folder / "census.ledger").exists()
    found = json.loads(run(*asked, "--yes", "--json", folder=folder).stdout)
    assert list(found["quantiles"]) == ["p50", "p90"]
    assert found["loss"] == 0.02
    assert len(found["facts"]["tables"]["quantiles"]["quantiles"]["grid"]) == 29
    history = run("ledger", "history", "census.ledger", folder=folder).stdout
    assert "the quantiles 0.5, 0.9 of payann" in history
    assert (
        "being counted or ranked: 0.02 for every record" in run("ledger", "show", "census.ledger", folder=folder).stdout
    )
    run("release", "plan.toml", "--yes", folder=folder)  # the plan and its report work with the same ledger
    assert "being counted or ranked" in (folder / "published" / "report.html").read_text()
    data = ["quantiles", "establishments.parquet", "--column", "emp", "--loss", 0.02, "--yes"]
    words = run(*data, "--grid", "1,10,100", folder=folder).stdout
    assert "every size misses its rank by at most" in words
    done = run(*data, "--ledger", "other.ledger", folder=folder)
    assert ss.Ledger(folder / "other.ledger").spent({}) == 0.02
    assert "the ledger has no caps" in done.stderr
    assert "charged to other.ledger: 0.02 for every record" in done.stderr


def test_quantiles_say_what_they_are_charged_to_and_print_what_advise_takes(tmp_path):
    (tmp_path / "tax.csv").write_text("tax\n" + "\n".join(str(2**i) for i in range(20)) + "\n")
    asked = ["quantiles", "tax.csv", "--column", "tax", "--loss", 10, "--grid", "1:1e7:4", "--yes"]
    done = run(*asked, "--at", "0.5,0.9", folder=tmp_path)
    assert "warning: there is no ledger: nothing records what these quantiles cost" in done.stderr
    assert "; name one with --ledger" in done.stderr
    records = re.search(r'slowscale advise --records "(p50=[\d.]+,p90=[\d.]+)" --interval [\d.]+$', done.stdout, re.M)[
        1
    ]
    asking = ["advise", "--records", records, "--interval", 50, "--plan", "p.toml", "--data", "tax.csv"]
    advised = run(*asking, "--column", "tax", folder=tmp_path).stdout
    assert "No size is named the largest" in advised
    run("check", "p.toml", folder=tmp_path)
    many = run(*asked, "--at", ",".join(str(i / 10) for i in range(1, 10)), "--json", folder=tmp_path)
    assert "there is no ledger" in many.stderr
    assert len(json.loads(many.stdout)["quantiles"]) == 9
    many = run(*asked, "--at", ",".join(str(i / 10) for i in range(1, 10)), folder=tmp_path).stdout
    assert "advise takes at most 8 of these sizes" in many


def test_quantiles_of_records_that_meet_a_condition(tmp_path):
    """With a plan that has no tables, or of data in another form of CSV; missing values count as size 0 if wanted."""
    (tmp_path / "d.csv").write_bytes("g;x\na;500\na;500\nb;1,5\nb;\né;\n".encode("latin-1"))
    (tmp_path / "plan.toml").write_text(
        '[data]\npath = "d.csv"\ncsv = { delimiter = ";", encoding = "latin-1", decimal = "," }\n'
        'types = { x = "decimal(18, 1)" }\n[ledger]\npath = "l"\n'
    )
    asked = ["--column", "x", "--loss", 5_000, "--at", 0.6, "--grid", "1,10,1000", "--yes"]
    form = ["--csv", "delimiter=;", "--csv", "encoding=latin-1"]
    assert "missing values" in run("quantiles", "plan.toml", *asked, folder=tmp_path, code=3).stderr
    for source in (["plan.toml"], ["d.csv", *form]):
        words = run("quantiles", *source, *asked, "--where", "g = 'a'", folder=tmp_path).stdout
        assert "  p60: 1,000\n" in words
    words = run("quantiles", "plan.toml", *asked, "--nulls", "zero", "--where", "g <> 'a'", folder=tmp_path).stdout
    assert "  p60: 0 or below 1, the lowest size\n" in words
    assert len(ss.Ledger(tmp_path / "l").account.charges) == 2
    plan = tmp_path / "plan.toml"
    plan.write_text(plan.read_text().replace("[ledger]", "where = \"g = 'a'\"\n[ledger]"))
    assert "  p60: 1,000\n" in run("quantiles", plan, *asked, folder=tmp_path).stdout
    refused = run("quantiles", plan, *asked, "--where", "x > 3", folder=tmp_path, code=2).stderr
    assert "--where must not be given with a plan that has a filter in [data]" in refused
    refused = run("quantiles", "d.csv", *asked, "--csv", "semicolon", folder=tmp_path, code=2).stderr
    assert '--csv must be a setting such as "delimiter=;" or "decimal=,", got \'semicolon\'' in refused
    text = plan.read_text().replace('path = "l"', 'path = "entities"')
    plan.write_text(text.replace("[ledger]", 'protect = "g"\n[ledger]'))
    assert "  p60: " in run("quantiles", plan, *asked, folder=tmp_path).stdout  # any size is as near to one total
    for command in (["check"], ["inspect"], ["release", "--yes"], ["release", "--finish"]):
        refused = run(command[0], "plan.toml", *command[1:], folder=tmp_path, code=2).stderr
        assert "plan.toml has no tables, so there is nothing to publish" in refused


def test_a_file_with_another_delimiter(tmp_path):
    (tmp_path / "d.csv").write_text("state;x\nIA;5\n")
    text = (
        '[data]\npath = "d.csv"\n[tables.t.keys]\ncross = { state = ["IA"] }\n[tables.t.sums.x]\n'
        'mechanism = "gaussian"\nsigma = 1\n[output]\nfolder = "o"\n'
    )
    for types in ("", 'types = { x = "int64" }\n'):
        (tmp_path / "plan.toml").write_text(text.replace("[tables.t.keys]", f"{types}[tables.t.keys]"))
        refused = run("check", "plan.toml", folder=tmp_path, code=2).stderr
        assert 'give csv={"delimiter": ";"} (in a plan, csv = { delimiter = ";" })' in refused


def test_a_ledger_of_quantiles_belongs_to_a_data_set(tmp_path):
    for name in ("tax", "wages"):
        (tmp_path / f"{name}.csv").write_text("x\n1\n2\n3\n")
    options = ["--column", "x", "--loss", 0.1, "--grid", "1,10,100", "--yes", "--ledger", "l"]
    run("quantiles", "tax.csv", *options, folder=tmp_path)
    refused = run("quantiles", "wages.csv", *options, folder=tmp_path, code=5).stderr
    assert "belongs to the data set 'tax', not to 'wages'" in refused
    assert "--dataset gives another name" in refused
    run("quantiles", "wages.csv", *options, "--dataset", "tax", folder=tmp_path)
    for name in ("tax", "wages"):
        advised = ["advise", "--records", "p50=2,largest=9", "--interval", 50, "--plan", f"{name}.toml"]
        run(*advised, "--data", f"{name}.csv", "--column", "x", folder=tmp_path)
        plan = tmp_path / f"{name}.toml"
        plan.write_text(plan.read_text().replace(f'"{name}.ledger"', '"l"').replace('"published', f'"of-{name}'))
    run("release", "tax.toml", "--yes", folder=tmp_path)
    assert "belongs to the data set 'tax'" in run("release", "wages.toml", "--yes", folder=tmp_path, code=5).stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--loss", 0], "--loss must be a number from 1e-12"),
        (["--at", "0.5;0.9"], "--at must be numbers such as 0.1,0.5,0.9"),
        (["--at", "0.9,0.5"], "--at must be 1 to 99 increasing numbers"),
        (["--grid", "1:2:3:4"], "--grid must be LOW:HIGH or LOW:HIGH:PER_DECADE"),
        (["--grid", "9:1"], "--grid: low and high must be finite"),
        (["--grid", "3,2"], "--grid must be 2 to 1000 increasing numbers"),
        (["--level", 2], "--level must be a number between 0 and 1"),
        (["--nulls", "nil"], '--nulls must be "error" or "zero", got'),
        (["--csv", "delimiter=;"], "--csv must not be given with a plan"),
        (["--where", "emp >"], "error: --where "),
        (["--where", "zz > 1"], "error: --where names 'zz', which is not a column"),
        (["--ledger", "x.ledger"], "--ledger must not be given with a plan"),
        (["--dataset", "x"], "--dataset must not be given with a plan"),
        (["--column", "pay"], "--column 'pay' is not in the data; did you mean"),
    ],
)
def test_wrong_options_of_quantiles(folder, options, words):
    given = {"--column": "payann", "--loss": 1, **dict([options])}
    arguments = [part for pair in given.items() for part in pair]
    assert words in run("quantiles", "plan.toml", *arguments, "--yes", folder=folder, code=2).stderr
    assert not (folder / "census.ledger").exists()


def test_a_cap_of_a_ledger_that_does_not_exist_yet(folder):
    plan = folder / "plan.toml"
    plan.write_text(plan.read_text().replace("std = 20                  ", "std = 2                   "))
    plan.write_text(plan.read_text().replace("times = 10", "times = 1"))
    for command in (["check", plan], ["release", plan, "--yes"]):
        words = run(*command, folder=folder, code=4).stderr
        assert "by this release alone" in words
        assert "would still fit, with a standard deviation of" in words
        assert "or raise the cap in [ledger] of the plan: the ledger does not exist yet" in words


def test_a_largest_value_is_set_and_shown(tmp_path):
    pa.parquet.write_table(pa.table({"state": ["IA", "TX"], "x": [3, 35]}), tmp_path / "x.parquet")
    plan = tmp_path / "plan.toml"
    plan.write_text(
        '[data]\npath = "x.parquet"\nlargest = { x = 40 }\n[ledger]\npath = "l"\n[ledger.caps.x]\n'
        'mechanism = "root"\nk = 4\nsigma = 0.5\naccounting = "closed"\n[tables.t.keys]\n'
        'cross = { state = ["IA", "TX"] }\n[tables.t.sums.x]\nmechanism = "gaussian"\nsigma = 10\n'
        '[output]\nfolder = "out"\n'
    )
    shown = run("check", plan, folder=tmp_path).stdout
    for words in ("40 (largest allowed)", "The release refuses larger values: x 40.", "Within all caps."):
        assert words in shown
    assert "may be larger" not in shown
    run("release", plan, "--yes", folder=tmp_path)
    for source in (plan, "out/t.parquet"):
        run("explain", source, "--value", "x=-40", folder=tmp_path)
        assert (
            "--value x must be at most 40" in run("explain", source, "--value", "x=-41", folder=tmp_path, code=2).stderr
        )
    command = ["ledger", "set-largest", "l", "X"]
    assert "pass --yes" in run(*command, "45", "--reason", "law", folder=tmp_path, code=6).stderr
    refused = run(*command, "60", "--reason", "law", "--yes", folder=tmp_path, code=4)
    assert "Now: X 40. New: X 60." in refused.stdout
    assert "the cap on 'x' would be exceeded, for records between about 54.3 and about 60" in refused.stderr
    for value in ("many", "0", "nan"):
        run(*command, value, "--reason", "law", "--yes", folder=tmp_path, code=2)
    assert "reason" in run(*command, "45", "--reason", " ", "--yes", folder=tmp_path, code=2).stderr
    run(*command, "45", "--reason", "law", "--yes", folder=tmp_path)
    assert "the largest value of x was set to 45: law" in run("ledger", "history", "l", folder=tmp_path).stdout
    assert "Largest value of x: 45." in run("ledger", "show", "l", folder=tmp_path).stdout
    assert json.loads(run("ledger", "show", "l", "--json", folder=tmp_path).stdout)["largest"] == {"x": 45}
    cap = ["ledger", "set-cap", "l", "x", "--mechanism", "gaussian", "--param", "sigma=5", "--reason", "law", "--yes"]
    assert "at largest allowed" in run(*cap, folder=tmp_path).stdout
    run(*command, "none", "--reason", "law", "--yes", folder=tmp_path)
    assert ss.Ledger(tmp_path / "l").largest == {}
    run(*command, "30", "--reason", "law", "--yes", folder=tmp_path)
    failed = run("release", plan, "--yes", "--overwrite", folder=tmp_path, code=3)
    assert "column 'x' has values above its largest value" in failed.stderr
    assert "35" not in failed.stderr


def test_a_cap_is_raised(tmp_path):
    ss.Ledger(
        tmp_path / "l", {"emp": 2 * ss.Gaussian(sigma=10).policy, "*": ss.Gaussian(sigma=1).policy}, dataset="cbp"
    ).close()
    command = ["ledger", "set-cap", "l", "EMP", "--mechanism", "gaussian", "--param", "sigma=10"]
    reason = ["--reason", "a second year"]
    before = run("ledger", "history", "l", folder=tmp_path).stdout
    assert "the ledger was created for the data set cbp, with caps on *, emp" in before
    refused = run(*command, *reason, "--times", 3, folder=tmp_path, code=6)
    assert "pass --yes" in refused.stderr
    for words in ("now: 2·(Δ² / (2·10²))", "3·(Δ² / (2·10²))", "The new cap is nowhere lower than the old one."):
        assert words in refused.stdout
    for options, words in [
        ([], "Missing option '--reason'"),
        (["--reason", " "], "--reason must say in words why"),
        ([*reason, "--times", 0], "--times must be greater than or equal to 1"),
        ([*reason, "--param", "j=1"], "--param j is not a parameter; there are sigma, p"),
        ([*reason, "--param", "k=4"], "mechanism gaussian has no parameter k; it has sigma"),
    ]:
        assert words in run(*command, *options, "--yes", folder=tmp_path, code=2).stderr
    root = ["ledger", "set-cap", "l", "tax", "--mechanism", "root", *reason, "--yes"]
    for one in ("k=2", "sigma=0.5", "noise=generalized-gaussian", "noise.p=0.5"):
        root += ["--param", one]
    scaled = run(*root, "--param", "noise.sigma=2", folder=tmp_path, code=2)
    assert "must not have a scale; remove sigma" in scaled.stderr
    further = ["ledger", "set-cap", "l", "pay", *command[4:], *reason]
    refused = run(*further, folder=tmp_path, code=6)
    assert "pay has no cap yet, and is limited by the cap on all columns without a separate one" in refused.stdout
    assert "The ledger has caps on *, emp." in refused.stdout
    assert run("ledger", "history", "l", folder=tmp_path).stdout == before
    lower = run(*command, *reason, "--times", 1, "--plus", 0.1, "--yes", folder=tmp_path).stdout
    assert "The new cap is LOWER than the old one for records above 4.47, and higher for records below" in lower
    assert ss.Ledger(tmp_path / "l").caps["emp"](10) == pytest.approx(0.6)
    history = run("ledger", "history", "l", folder=tmp_path).stdout
    assert "the cap on emp was set to Δ² / (2·10²) + 0.1: a second year" in history
    shown = run("ledger", "show", "l", folder=tmp_path).stdout
    assert shown.startswith("Data set: cbp.\n")
    assert "from 2·(Δ² / (2·10²)) to Δ² / (2·10²) + 0.1: a second year" in shown
    assert "set the cap on pay in l" in run(*further, "--yes", folder=tmp_path).stdout
    run(*root, folder=tmp_path)
    noise = ss.GeneralizedGaussian(sigma=1, p=0.5)
    assert ss.Ledger(tmp_path / "l").caps["tax"](9) == ss.Root(k=2, sigma=0.5, noise=noise).tight_policy(9)
    assert (
        "the cap on pay was set to Δ² / (2·10²): a second year" in run("ledger", "history", "l", folder=tmp_path).stdout
    )
    assert json.loads(run("ledger", "show", "l", "--json", folder=tmp_path).stdout)["dataset"] == "cbp"


def test_a_ledger_is_for_one_data_set(folder):
    plan = folder / "plan.toml"
    assert tomllib.loads(plan.read_text())["data"]["name"] == "establishments"
    run("release", plan, "--yes", folder=folder)
    assert ss.Ledger(folder / "census.ledger").dataset == "establishments"
    assert ss.read_release(folder / "published").facts.dataset == "establishments"
    for name, words in [
        ('name = "farms"', "belongs to the data set 'establishments', not to 'farms'"),
        ("", "if the records are of this data set, give the name 'establishments'"),
    ]:
        other = folder / "other.toml"
        other.write_text(plan.read_text().replace('name = "establishments"', name))
        (folder / "establishments.parquet").unlink(missing_ok=True)  # nothing is read
        for command in (["check", other], ["release", other, "--yes", "--overwrite"]):
            assert words in run(*command, folder=folder, code=5).stderr


def test_errors_refer_to_the_plan(tmp_path):
    (tmp_path / "plan.toml").write_text(
        '[data]\npath = "d.csv"\n[tables.t.sums.x]\nmechanism = "gaussian"\nsigma = 1\n[output]\nfolder = "o"\n'
    )
    for content, words in {
        b"g,x\na,\n": 'choose nulls = "zero" for the table to count them as 0',
        b"g,x\n\xe9,1\n": 'csv={"encoding": "latin-1"}',
        b'g,x\n"a,1\n': 'csv={"quote": ""}',
        b"g,x\na,1,2\n": 'csv={"delimiter": …, "quote": …}',
    }.items():
        (tmp_path / "d.csv").write_bytes(content)
        assert words in run("release", "plan.toml", "--yes", folder=tmp_path, code=3).stderr


def test_errors_of_calibrate_are_about_at(tmp_path):
    asked = ["calibrate", "root", "--param", "k=4", "--loss", 1, "--at", 1e308]
    assert "error: --at must be a number from 0 to 1e+30" in run(*asked, folder=tmp_path, code=2).stderr


def test_errors_of_the_ledger_refer_to_the_plan(tmp_path):
    (tmp_path / "d.csv").write_text("x\n1\n2\n")
    (tmp_path / "no.toml").write_text(f'{LEDGER_PLAN}[ledger]\npath = "d.csv"\n')
    (tmp_path / "cap.toml").write_text(
        f'{LEDGER_PLAN}[ledger]\npath = "l"\n[ledger.caps.x]\nmechanism = "gaussian"\nsigma = 99\n'
    )
    query = ["--column", "x", "--loss", 1, "--yes"]
    for command in (["check", "no.toml"], ["release", "no.toml", "--yes"], ["quantiles", "no.toml", *query]):
        words = run(*command, folder=tmp_path, code=5).stderr
        assert "error: no.toml, line 9, ledger.path: ledger " in words
    for command in (["check", "cap.toml"], ["release", "cap.toml", "--yes"]):
        words = run(*command, folder=tmp_path, code=4).stderr
        assert "error: cap.toml, line 10, ledger.caps.x: the cap on 'x' would be exceeded" in words


LEDGER_PLAN = '[data]\npath = "d.csv"\n[tables.t.sums.x]\nmechanism = "gaussian"\nsigma = 1\n[output]\nfolder = "o"\n'


def test_a_record_without_protection_is_detected_at_most_always(folder):
    words = run("explain", "plan.toml", "--value", "emp=1e6", "--value", "payann=1e9", folder=folder).stdout
    assert "is detected at most 100 % of the time." in words
    assert "is right at most 100 % of the time." in words


DOLLARS = (
    '[data]\npath = "d.csv"\n[tables.t.sums.emp]\nmechanism = "exponential-polylog"\nstd = 20\n'
    '[tables.t.sums.pay]\nmechanism = "root"\nk = 4\nsigma = 25\n[tables.t.count]\nmechanism = "gaussian"\nsigma = 3\n'
    '[ledger]\npath = "l.ledger"\n[output]\nfolder = "o"\nreport = "o.html"\n'
)
FIRMS = (
    '[report]\nsizes = [\n  { name = "median firm", emp = 12, pay = 400_000 },\n'
    '  { name = "largest firm", emp = 150_000, pay = 4e10 },\n]\n'
)


@pytest.fixture
def dollars(tmp_path):
    (tmp_path / "d.csv").write_text("emp,pay\n3,90000\n")
    (tmp_path / "plan.toml").write_text(DOLLARS + FIRMS)
    return tmp_path


def test_check_prints_the_losses_of_the_stated_sizes(dollars):
    """The losses of the stated sizes, by column and over all columns; the loss of a count is one number."""
    polylog, root, count = ss.ExponentialPolylog.calibrate(std=20), ss.Root(k=4, sigma=25), ss.Gaussian(sigma=3)
    words = run("check", "plan.toml", folder=dollars).stdout
    losses = [
        f"{at_most(polylog.tight_policy(x))} at {format_number(x)} ({who})"
        for x, who in ((12, "median firm"), (150_000, "largest firm"))
    ]
    assert ", ".join(losses) in words
    assert f"{at_most(root.policy(4e10))} at 40,000,000,000 (largest firm)" in words
    assert (
        f"every record counts as 1 and loses {at_most(count.policy(1))} (PRzCDP)\n  standard error: 3.01 for every sum"
        in words
    )
    assert f"{format_number(root.std(1e11))} for a sum of 100,000,000,000" in words
    total = polylog.tight_policy(12) + root.policy(4e5) + count.policy(1)
    attacker = ss.attacker([polylog, root, count], [12, 4e5, 1])
    detected, guessed = attacker.power(0.05), attacker.posterior(0.5).correct
    texts = (at_most(total), "none", share(guessed), share(detected), at_most(attacker.epsilon(1e-6)))
    assert re.search(rf"\n  median firm +{' +'.join(map(re.escape, texts))} ", words)
    assert "e+" not in words
    assert "not from the records" not in words
    found = json.loads(run("check", "plan.toml", "--json", folder=dollars).stdout)["sizes"]
    assert [size["name"] for size in found] == ["median firm", "largest firm"]
    assert found[0]["loss"] == pytest.approx(total)
    assert (found[0]["epsilon"], found[0]["delta"]) == (pytest.approx(attacker.epsilon(1e-6)), 1e-6)
    assert (found[0]["detected"], found[0]["false_alarms"]) == (pytest.approx(detected), 0.05)
    assert (found[0]["guessed"], found[0]["pure_loss"]) == (pytest.approx(guessed), None)
    assert found[0]["bound_from_loss"] is False


def test_check_takes_other_sizes(dollars):
    words = run("check", "plan.toml", "--sizes", "100,4e10", folder=dollars).stdout
    assert "median" not in words
    assert " at 40,000,000,000\n" in words
    words = run("check", "plan.toml", "--sizes", "small=1,the largest=4e10", folder=dollars).stdout
    assert "at 40,000,000,000 (the largest)" in words
    error = run("check", "plan.toml", "--sizes", "small=1", folder=dollars, code=2).stderr
    assert "exactly one size whose name contains the word 'largest'" in error
    (dollars / "plan.toml").write_text(DOLLARS)
    words = run("check", "plan.toml", folder=dollars).stdout
    assert "at 10¹⁰" in words
    assert "not from the records: the largest record may be larger" in words
    (dollars / "plan.toml").write_text(DOLLARS + FIRMS.replace("largest", "big"))
    assert "plan.toml, line 19, report.sizes: " in run("check", "plan.toml", folder=dollars, code=2).stderr


def test_sizes_after_a_release(dollars):
    run("release", "plan.toml", "--yes", folder=dollars)
    assert "40,000,000,000 (largest firm)" in (dollars / "o.html").read_text()
    words = run("check", "plan.toml", "--sizes", "largest=7e10", "--overwrite", folder=dollars).stdout
    assert "at 70,000,000,000 (largest)" in words.partition("Before this release")[2]
    shown = run("ledger", "show", "l.ledger", folder=dollars).stdout
    assert "All columns together:\n" in shown
    assert "at 10¹⁰" in shown


def test_explain_tells_what_the_best_attacker_can_do(tmp_path):
    """The loss by both notions, the best guess, detection and ε, for the plan and for the release."""
    (tmp_path / "d.csv").write_text("emp\n3\n")
    (tmp_path / "plan.toml").write_text(
        '[data]\npath = "d.csv"\n[tables.t.sums.emp]\nmechanism = "exponential-polylog"\nstd = 75\n'
        '[output]\nfolder = "o"\n'
    )
    run("release", "plan.toml", "--yes", folder=tmp_path)
    attacker = ss.attacker(ss.ExponentialPolylog.calibrate(std=75), 10)
    for source in ("plan.toml", "o/t.csv"):
        words = run("explain", source, "--value", "emp=10", folder=tmp_path).stdout
        assert "loses 0.297 through emp (closed form: 0.744; PRDP: 1.31)" in words
        assert "loses a total of 0.297 (PRzCDP; PRDP: 1.31)." in words
        assert f"-differential privacy with ε at most {at_most(attacker.epsilon(1e-6))}." in words
        detected, guessed = share(attacker.power(0.05)), share(attacker.posterior(0.5).correct)
        assert f"the presence of this record is detected at most {detected} of the time." in words
        assert f"The best guess, starting from 50 %, is right at most {guessed} of the time." in words
        found = json.loads(run("explain", source, "--value", "emp=10", "--json", folder=tmp_path).stdout)
        assert (found["epsilon"], found["delta"]) == (pytest.approx(attacker.epsilon(1e-6)), 1e-6)
        assert found["detected"] == pytest.approx(attacker.power(0.05))
        assert found["pure_loss"] == pytest.approx(attacker.loss)


def test_calibrate_prints_matching_sizes(tmp_path):
    words = run("calibrate", "gaussian", "--loss", 1, "--at", 4e10, folder=tmp_path).stdout
    assert "1 at 40,000,000,000" in words
    assert "10¹²" in words
    assert "e+" not in words.partition("by its size")[2]
    words = run("calibrate", "gaussian", "--std", 5, "--sizes", "largest=7", folder=tmp_path).stdout
    assert "0.98 at 7 (largest)" in words


def test_calibrate_solves_for_intervals_and_tight_losses(tmp_path):
    arguments = ["calibrate", "gaussian", "--interval", 100, "--level", 0.9, "--json"]
    found = json.loads(run(*arguments, folder=tmp_path).stdout)
    assert found["mechanism"]["sigma"] == pytest.approx(100 / 1.6448536269514722)
    arguments = ["calibrate", "generalized-gaussian", "--param", "p=1", "--loss", 1, "--at", 106]
    words = run(*arguments, folder=tmp_path).stdout
    (line,) = [line for line in words.splitlines() if line.startswith("  a record's loss (PRzCDP) by its size: ")]
    (closed,) = [line for line in words.splitlines() if "by the closed form, the same loss needs a standard er" in line]
    m = ss.GeneralizedGaussian.calibrate(loss=1, at=106, p=1)
    assert f"{at_most(m.tight_policy(106))} at 106" in line
    other = ss.GeneralizedGaussian.calibrate(loss=1, at=106, p=1, accounting="closed")
    assert closed.endswith(f"of {format_number(other.std())}")
    found = json.loads(run(*arguments, "--sizes", "106", "--json", folder=tmp_path).stdout)
    assert found["losses"]["106"] == pytest.approx(m.tight_policy(106))
    assert found["closed_losses"]["106"] == pytest.approx(m.policy(106))
    found = json.loads(run(*arguments, "--accounting", "closed", "--sizes", "106", "--json", folder=tmp_path).stdout)
    assert found["losses"] == {"106": pytest.approx(1)}
    assert "closed_losses" not in found


def test_charts_are_not_overwritten(tmp_path):
    (tmp_path / "c.svg").write_text("mine")
    arguments = ["compare", "--std", 75, "--at", 106, "--chart", "c.svg"]
    assert "c.svg exists; choose another name, or --overwrite" in run(*arguments, folder=tmp_path, code=2).stderr
    assert (tmp_path / "c.svg").read_text() == "mine"
    run(*arguments, "--overwrite", folder=tmp_path)
    assert "<svg" in (tmp_path / "c.svg").read_text()


def test_compare_uses_the_given_sizes(tmp_path):
    arguments = ["compare", "--std", 75, "--at", 106, "--sizes", "median firm=12,largest firm=4e10"]
    done = run(*arguments, "--chart", "c.svg", folder=tmp_path)
    names, sizes = done.stdout.splitlines()[2:4]
    assert names.split() == ["median", "firm", "largest", "firm"]
    assert sizes.split()[-2:] == ["12", "40,000,000,000"]
    assert "10¹¹" in (tmp_path / "c.svg").read_text()  # on the axis
    losses = json.loads(run(*arguments, "--json", folder=tmp_path).stdout)["log"]["losses"]
    assert list(losses) == ["median firm", "largest firm"]


def test_the_sizes_that_compare_chooses_depend_on_the_error(tmp_path):
    for std, at, expected in [
        (75, 106, ["1", "100", "10,000", "1,000,000"]),
        (0.002, 0.01, ["0.0001", "0.001", "0.01", "0.1", "1", "10"]),
        (1e6, 3e9, ["100,000", "10,000,000", "1,000,000,000", "100,000,000,000", "1.00", "×", "10¹³"]),
    ]:
        text = run("compare", "--std", std, "--at", at, folder=tmp_path).stdout
        (head,) = [line for line in text.splitlines() if line.startswith("PRzCDP loss of a record of size")]
        assert head.split()[7:] == expected


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["check", "none.toml"], 2, "none.toml cannot be read"),
        (["ledger", "show", "none.ledger"], 5, "none.ledger does not exist"),
        (["ledger", "show", "cells.csv"], 5, "cells.csv' is not a ledger; give the path of a ledger, or another path"),
        (["demo", "/proc/x"], 2, "/proc/x cannot be written to (No such file or directory); choose another"),
        (["explain", "cells.csv", "--value", "emp=1"], 2, "cells.csv is not a file of a release"),
        (["explain", "plan.toml", "--value", "emp"], 2, "such as emp=12, got 'emp'"),
        (
            ["explain", "plan.toml", "--value", "emp=1"],
            2,
            "--value is missing for payann",
        ),
        (["explain", "plan.toml"], 2, "give one --value for each of emp, payann"),
        (["explain", "plan.toml", "--value", "emp=1", "--value", "emp=2"], 2, "--value names emp twice"),
        (["explain", "plan.toml", "--value", "emp=1", "--value", "payann=nan"], 2, "--value payann must be a finite"),
        (
            ["explain", "plan.toml", "--value", "xx=1"],
            2,
            "--value names xx, which is not a column of the release",
        ),
        (
            ["calibrate", "root", "--std", "3", "--at", "9", "--param", "k=0.7"],
            2,
            "--param k=NUMBER must be a finite number >= 1",
        ),
        (
            ["calibrate", "gaussian"],
            2,
            "give one target: --std for a standard deviation, --interval for the half-width",
        ),
        (["calibrate", "gaussian", "--std", "3", "--interval", "3"], 2, "give one target: --std for a standard dev"),
        (["calibrate", "gaussian", "--interval", "-3"], 2, "--interval must be a finite number > 0, got -3"),
        (["calibrate", "gaussian", "--interval", "3", "--level", "1"], 2, "--level must be between 0 and 1, both exc"),
        (
            ["calibrate", "gaussian", "--std", "3", "--level", "0.9"],
            2,
            "--level is used only with --interval, got 0.9 with --std; remove it",
        ),
        (
            ["calibrate", "gaussian", "--std", "3", "--accounting", "closed"],
            2,
            "--accounting is used only with --loss",
        ),
        (
            ["calibrate", "gaussian", "--loss", "3", "--at", "1", "--accounting", "x"],
            2,
            '--accounting must be "tight", which',
        ),
        (["calibrate", "root", "--interval", "3", "--param", "k=4"], 2, "--at is missing; give the sum"),
        (
            ["calibrate", "gaussian", "--std", "3", "--param", "cls=2"],
            2,
            "mechanism gaussian has no parameter cls; it has s",
        ),
        (["compare", "--std", "75", "--at", "106", "--chart", "none/a.png"], 2, "none/a.png"),
        (["init", "none/plan.toml"], 2, "none/plan.toml cannot be written: "),
        (["init", "establishments.parquet", "none/plan.toml"], 2, "none/plan.toml cannot be written: "),
        (["init", "establishments.parquet", "plan.txt"], 2, "that ends in .toml"),
        (["init", "duckdb://plan.toml#t", "plan.toml", "--overwrite"], 2, "plan.toml is the data itself"),
        (["compare", "--std", "75", "--at", "106", "--chart", "cells.csv"], 2, "must be a .png, .svg or .html file"),
        (["release"], 2, "Missing argument"),
        (["calibrate", "gausian", "--std", "3"], 2, "mechanism must be one of gaussian"),
        (["calibrate", "laplaze", "--std", "3"], 2, "mechanism must be one of gaussian, "),
        (["compare", "--std", "-1", "--at", "100"], 2, "error: --std must be a finite number > 0, got -1"),
        (["compare", "--std", "75", "--at", "-1"], 2, "error: --at must be a finite number >= 0, got -1"),
        (["check", "plan.toml", "--sizes", "x"], 2, "error: --sizes must be numbers separated by commas"),
        (["check", "plan.toml", "--sizes", "a=1,a=2"], 2, "error: --sizes has 'a' twice"),
        (["compare", "--std", "75", "--at", "106", "--sizes", "1,x"], 2, "sizes must be numbers separated by commas"),
        (["compare", "--std", "75", "--at", "106", "--sizes", "a=1,a=2"], 2, "twice"),
        (
            ["compare", "--std", "75", "--at", "106", "--sizes", "largest=0"],
            2,
            "must be record sizes, finite and > 0",
        ),
        (
            ["compare", "--std", "75", "--at", "106", "--sizes", "large=5,9"],
            2,
            "must have a name for every size, or for none",
        ),
        (["compare", "--std", "75", "--at", "106", "--sizes", "1e999"], 2, "sizes must be a number from 0 to 1e+30"),
        (["compare", "--std", "75", "--at", "106", "--sizes", "0,1"], 2, "--sizes must be record sizes"),
        (["calibrate", "root", "--std", "3", "--at", "9"], 2, "--param k=NUMBER is missing; give it to solve for"),
        (["calibrate", "root", "--std", "3", "--param", "k=4"], 2, "--at is missing; give the sum"),
        (["calibrate", "generalized-gaussian", "--std", "-3"], 2, "--std must be a finite number > 0"),
        (["explain", "establishments.parquet"], 3, "is not a release that slowscale wrote; give"),
        (["explain", "none.csv"], 2, "there is no file none.csv"),
        (["nosuch"], 2, "No such command"),
    ],
)
def test_errors_are_one_line(folder, arguments, code, words):
    error = run(*arguments, folder=folder, code=code).stderr
    assert words in error
    assert len(error.strip().splitlines()) == 1


@pytest.mark.parametrize("arguments", [[], ["ledger"]])
def test_without_a_command_the_help_is_printed(tmp_path, arguments):
    done = run(*arguments, folder=tmp_path, code=2)
    assert "--help" in done.stdout
    assert done.stderr == ""


def test_advice_can_be_followed_in_the_plan(tmp_path):
    table = pa.table({"when": pa.array([0], pa.timestamp("us")), "x": [5]})
    pyarrow.parquet.write_table(table, tmp_path / "d.parquet")
    text = (
        '[data]\npath = "d.parquet"\n[tables.t.keys]\ncross = { when = [1970-01-01] }\n[ledger]\npath = "l.ledger"\n'
        '[tables.t.sums.x]\nmechanism = "gaussian"\nsigma = 1\n[output]\nfolder = "o"\n'
    )
    plan = tmp_path / "plan.toml"
    plan.write_text(text)
    refused = run("check", plan, folder=tmp_path, code=2).stderr
    assert f"{plan}, line 3, tables.t.keys: " in refused
    advice = refused.partition("; derive the column day as ")[2]
    expression, _, rest = advice.partition(", and ")
    assert rest.strip() == "use day as the key column"
    plan.write_text(
        text.replace("[tables.t.keys]", f"derive = {{ day = {expression} }}\n[tables.t.keys]").replace(
            "when =", "day ="
        )
    )
    run("release", plan, "--yes", folder=tmp_path)
    again = run("release", plan, "--yes", folder=tmp_path, code=2).stderr
    assert "o/t.parquet already exists; choose another path, or pass --overwrite" in again
    plan.write_text(plan.read_text() + '[ledger.caps.x]\nmechanism = "gaussian"\nsigma = 1\n')
    refused = run("check", plan, folder=tmp_path, code=2).stderr
    assert "ledger.caps.x: caps" in refused
    assert "set-cap" in refused


def test_an_engine_error_has_its_own_code(folder):
    (folder / "establishments.parquet").write_text("broken")
    assert "could not be read" in run("release", "plan.toml", "--yes", folder=folder, code=3).stderr


def test_debug_shows_the_traceback(folder):
    done = subprocess.run([COMMAND, "--debug", "check", "none.toml"], cwd=folder, capture_output=True, text=True)
    assert "Traceback" in done.stderr


def test_interrupting_leaves_nothing_half_written(folder):
    """Ctrl-C at several moments: every released file was charged, and none is incomplete."""
    for wait in (0.3, 0.8, 1.2, 1.6, 2.0, 2.6):
        process = subprocess.Popen(
            [COMMAND, "release", "plan.toml", "--yes", "--overwrite"], cwd=folder,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        time.sleep(wait)
        process.send_signal(signal.SIGINT)
        error = process.communicate(timeout=60)[1]
        assert process.returncode in (0, 130, -signal.SIGINT), error
        made = folder / "published"
        assert not [name for name in (os.listdir(made) if made.exists() else ()) if name.startswith(".")]
        if (folder / "census.ledger").exists():
            ledger = ss.Ledger(folder / "census.ledger")
            assert ledger.verify() == []
            ids = {entry["facts"]["id"] for entry in ledger.history() if entry["kind"] == "charge"}
            ledger.close()
            for name in ("cells.parquet", "cells.csv"):
                if (folder / "published" / name).exists():
                    assert ss.read_release(folder / "published" / name).facts.id in ids


def test_a_full_disk_leaves_nothing_half_written(folder):
    """If the table does not fit, there is an error and no incomplete file, and the charge is in the ledger."""
    small = folder / "small"
    small.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "none", small]).returncode:
        pytest.skip("THE FULL DISK IS NOT TESTED: mounting a small file system takes root")
    try:
        plan = folder / "plan.toml"
        text = plan.read_text().replace('folder = "published"', 'folder = "small"')
        plan.write_text(text.replace("published/report", "report"))
        words = run("release", plan, "--yes", folder=folder, code=8).stderr
        assert "could not be written" in words
        assert "The drawn table cells could not be kept and cannot be drawn again" in words
        assert os.listdir(small) == []
        assert len(ss.Ledger(folder / "census.ledger").history()) == 2
    finally:
        subprocess.run(["umount", "-l", small], check=True)


def test_the_confidential_report_is_a_file_of_its_own(folder):
    run("release", "plan.toml", "--yes", "--confidential-report", "secret.html", folder=folder)
    text = (folder / "secret.html").read_text()
    assert "CONFIDENTIAL: never publish this" in text
    assert "by size of the true sum" in text
    assert "CONFIDENTIAL" not in (folder / "published" / "report.html").read_text()


def test_the_command_starts_without_the_library():
    """`slowscale --help` answers at once: what computes is imported when a command needs it."""
    slow = {"numpy", "scipy", "ibis", "pydantic", "rich"}
    script = f"import sys, slowscale.cli.app; print(sorted({slow} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "[]\n"


def test_an_entity_is_named_where_losses_are_explained(dollars):
    """`check` and `explain` tell the same about the entity that is protected."""
    plan = dollars / "plan.toml"
    plan.write_text(DOLLARS.replace('"d.csv"', '"d.csv"\nprotect = "firm"', 1))
    (dollars / "d.csv").write_text("firm,emp,pay\n1,3,90000\n")
    checked = run("check", plan, "--sizes", "largest=100", folder=dollars).stdout
    assert "the firm is detected with one false alarm in twenty" in checked
    assert "This is for a firm in one cell." in checked
    # The number of records is not stated, so one record is assumed.
    values = [word for value in ("emp=100", "pay=100", "count=1") for word in ("--value", value)]
    explained = run("explain", plan, *values, folder=dollars).stdout
    loss, guessed, detected = re.search(r"\n  largest +(\S+) +none +(\S+ %) +(\S+ %) ", checked).groups()
    assert f"  loses a total of {loss} (PRzCDP; no PRDP guarantee)." in explained
    assert f"the presence of this firm is detected at most {detected} of the time." in explained
    assert f"is right at most {guessed} of the time." in explained
    assert "This holds if the firm is in one cell only: the losses in cells add up." in explained


def test_help_and_completion(tmp_path):
    for command in (
        [],
        ["init"],
        ["check"],
        ["inspect"],
        ["release"],
        ["explain"],
        ["compare"],
        ["calibrate"],
        ["ledger"],
        ["demo"],
    ):
        assert "--help" in run(*command, "--help", folder=tmp_path).stdout
    environment = {
        **os.environ,
        "_SLOWSCALE_COMPLETE": "complete_bash",
        "COMP_WORDS": "slowscale le",
        "COMP_CWORD": "1",
    }
    assert "ledger" in run(folder=tmp_path, env=environment).stdout
    assert run("--version", folder=tmp_path).stdout.strip() == ss.__version__
