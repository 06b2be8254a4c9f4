"""Plans whose exact sums are computed elsewhere: `slowscale sql`, and `slowscale release --sums`."""

import json
import shutil
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.errors import refused
from typer.testing import CliRunner

import slowscale as ss
from slowscale.cli.app import app
from slowscale.core.errors import CapError, DataError, ParameterError
from slowscale.plan import check_plan, plan_sql, read_plan, run_checked

PLAN = """
[data]
path = "records.csv"
types = { emp = "int64", x = "float64" }
name = "farms"
where = "emp < 1000"
derive = { twice = "2 * x" }

[ledger]
path = "x.ledger"

[ledger.caps.emp]
mechanism = "gaussian"
sigma = 1

[ledger.caps.twice]
mechanism = "gaussian"
sigma = 1

[tables.cells.keys]
by = ["state"]
file = "cells.csv"

[tables.cells.sums.emp]
mechanism = "gaussian"
sigma = 3

[tables.cells.sums.twice]
mechanism = "gaussian"
sigma = 3

[tables.total]
rollup = "cells"
by = []

[output]
folder = "out"
report = "out.html"
"""
RECORDS = "state,emp,x\na,5,0.5\na,7,-2.25\nb,100,1e6\nelsewhere,3,3\nb,2000,1\n"


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.toml").write_text(PLAN)
    (tmp_path / "records.csv").write_text("state,emp,x\n")  # only the columns
    (tmp_path / "cells.csv").write_text("state\na\nb\nc\n")


def command(*arguments):
    return CliRunner().invoke(app, list(arguments), catch_exceptions=True)


def compute(text):
    """Run the printed SQL on the records, on DuckDB."""
    Path("all.csv").write_text(RECORDS)
    connection = duckdb.connect()
    connection.execute("CREATE TABLE records AS FROM read_csv('all.csv')")
    connection.sql(text).write_parquet("sums.parquet")


def edit(old, new):
    text = Path("plan.toml").read_text()
    assert old in text
    Path("plan.toml").write_text(text.replace(old, new))


def printed_and_computed(*options):
    printed = command("sql", "plan.toml", "--manifest", "sums.json", *options)
    assert printed.exit_code == 0, printed.output
    compute(printed.stdout)


def released(*options):
    return command("release", "plan.toml", "--yes", "--sums", "sums.parquet", "--manifest", "sums.json", *options)


def test_the_command_prints_the_sql_and_takes_its_result():
    printed_and_computed()
    done = released("--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["facts"]["supplied"]["cells"]["dialect"] == "duckdb"
    assert "curator's word" in ss.read_release("out/cells.parquet").facts.supplied_words
    report = Path("out.html").read_text(encoding="utf-8")
    assert report.count("The curator supplied the exact sums") == 2
    table = pq.read_table("out/cells.parquet")
    assert abs(table["emp"].to_pylist()[1] - 100) < 30
    with ss.Ledger("x.ledger") as ledger:
        (charge,) = [entry for entry in ledger.history() if entry["kind"] == "charge"]
    assert charge["facts"]["supplied"] == found["facts"]["supplied"]
    done = command("release", "plan.toml", "--finish", "--overwrite")
    assert done.exit_code == 0, done.output


def test_sums_of_an_outline_are_those_of_the_records():
    """The facts of a release from the header of a file are those of one from the file."""
    printed_and_computed()
    outlined = check_plan(read_plan("plan.toml"))
    release, _ = run_checked(outlined, ss.SuppliedSums("sums.parquet", "sums.json"))
    shutil.rmtree("out")
    edit('path = "records.csv"', 'path = "all.csv"')
    edit('path = "x.ledger"', 'path = "y.ledger"')
    edit('folder = "out"', 'folder = "direct"')
    direct, _ = run_checked(check_plan(read_plan("plan.toml"), overwrite=True))
    one, other = release.facts.to_dict(), direct.facts.to_dict()
    del one["supplied"]
    for facts in (one, other):
        del facts["id"], facts["created"], facts["ledger"]
    assert one == other


def test_the_records_are_not_read():
    """A record that could not be read stops a release from the records, but not one from supplied sums."""
    printed_and_computed()
    Path("records.csv").write_text("state,emp,x\na,not a number,1\n")
    assert released().exit_code == 0


@pytest.mark.parametrize("dialect", ["duckdb", "postgres", "pyspark"])
def test_every_dialect_is_printed_without_its_engine(dialect):
    found = command("sql", "plan.toml", "--dialect", dialect)
    assert found.exit_code == 0, found.output
    assert found.stdout.startswith("-- The exact sums of the table 'cells'")
    assert not Path("x.ledger").exists()


def test_a_refused_file_is_an_attempt_and_charges_nothing():
    edit("sigma = 1\n", "sigma = 0.5\n")
    printed_and_computed()
    assert released().exit_code == 0
    table = pq.read_table("sums.parquet")
    pq.write_table(pa.concat_tables([table, table]), "sums.parquet")
    before = Path("out/cells.csv").read_text()
    done = released("--overwrite")
    assert isinstance(done.exception, DataError)
    assert str(done.exception).startswith("sums.parquet has several rows with the same labels")
    with ss.Ledger("x.ledger") as ledger:
        assert [entry["kind"] for entry in ledger.history()] == ["created", "charge", "attempt"]
    assert Path("out/cells.csv").read_text() == before


def test_caps_hold_for_supplied_sums():
    printed_and_computed()
    Path("sums.parquet").write_bytes(b"not read")  # the cap is checked before the file
    edit("sigma = 1\n", "sigma = 100\n")
    with pytest.raises(CapError):
        run_checked(check_plan(read_plan("plan.toml")), ss.SuppliedSums("sums.parquet", "sums.json"))


def test_a_changed_plan_is_another_query():
    printed_and_computed()
    edit("emp < 1000", "emp < 1001")
    with refused(ParameterError, "manifest", code="mismatch"):
        run_checked(check_plan(read_plan("plan.toml")), ss.SuppliedSums("sums.parquet", "sums.json"))
    assert not Path("x.ledger").exists()


def test_largest_values_of_the_ledger_are_in_the_sql():
    edit("derive =", "largest = { emp = 50 }\nderive =")
    printed_and_computed()
    with refused(DataError, "column 'emp'", code="above-largest"):
        run_checked(check_plan(read_plan("plan.toml")), ss.SuppliedSums("sums.parquet", "sums.json"))


def test_keys_in_the_records_are_refused():
    edit('file = "cells.csv"', "from_data = true")
    with refused(ParameterError, "from_data", code="conflict", path=("tables", "cells", "keys", "from_data")):
        plan_sql(read_plan("plan.toml"))
    with refused(ParameterError, "from_data", code="conflict"):
        run_checked(check_plan(read_plan("plan.toml")), ss.SuppliedSums("sums.parquet", "sums.json"))


def test_an_error_about_the_dialect_names_its_option():
    done = command("sql", "plan.toml", "--dialect", "mysql")
    assert str(done.exception) == "--dialect must be one of duckdb, postgres, pyspark, got 'mysql'"


@pytest.mark.parametrize(
    ("options", "subject"),
    [
        (["--sums", "sums.parquet"], "--manifest"),
        (["--manifest", "sums.json"], "--sums"),
        (["--sums", "a", "--sums", "cells=b", "--manifest", "sums.json"], "--sums"),
        (["--sums", "a", "--manifest", "sums.json", "--finish"], "--sums"),
        (["--sums", "a", "--manifest", "sums.json", "--confidential-report", "r.html"], "--sums"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, subject):
    done = command("release", "plan.toml", "--yes", *options)
    assert (type(done.exception), done.exception.subject) == (ParameterError, subject)


def test_the_manifest_is_not_overwritten():
    printed_and_computed()
    assert command("sql", "plan.toml", "--manifest", "sums.json").exception.code == "exists"
    assert command("sql", "plan.toml", "--manifest", "sums.json", "--overwrite").exit_code == 0


def test_files_are_given_by_table():
    edit("[tables.total]\nrollup", '[tables.all.sums.emp]\nmechanism = "gaussian"\nsigma = 3\n\n[tables.total]\nrollup')
    for options in (["sums.parquet"], ["other=sums.parquet"]):
        done = command("release", "plan.toml", "--yes", "--manifest", "m.json", "--sums", *options)
        assert (done.exception.subject, done.exception.code) == ("--sums", "value")
    found = plan_sql(read_plan("plan.toml"))
    Path("sums.json").write_text(json.dumps(found.manifest))
    for name in ("cells", "all"):
        compute(found.tables[name])
        shutil.move("sums.parquet", f"{name}.parquet")
    files = ["--sums", "all=all.parquet", "--sums", "cells=cells.parquet"]
    done = command("release", "plan.toml", "--yes", "--manifest", "sums.json", *files)
    assert done.exit_code == 0, done.exception


def test_the_table_of_a_database_is_named_in_the_sql():
    with duckdb.connect("farms.duckdb") as connection:
        connection.execute("CREATE TABLE farms (state VARCHAR, emp BIGINT, x DOUBLE)")
        connection.execute("INSERT INTO farms VALUES ('a', 5, 0.5), ('b', 100, 1e6)")
    edit('path = "records.csv"\ntypes = { emp = "int64", x = "float64" }', 'database = "duckdb://farms.duckdb#farms"')
    printed = command("sql", "plan.toml", "--manifest", "sums.json")
    assert '"main"."farms"' in printed.stdout
    with duckdb.connect("farms.duckdb", read_only=True) as connection:
        connection.sql(printed.stdout).write_parquet("sums.parquet")
    done = released()
    assert done.exit_code == 0, done.exception
    facts = ss.read_release("out/cells.parquet").facts
    edit('path = "x.ledger"', 'path = "y.ledger"')
    edit('folder = "out"', 'folder = "direct"')
    direct, _ = run_checked(check_plan(read_plan("plan.toml"), overwrite=True))
    assert facts.tables == direct.facts.tables
    assert facts.policy == direct.facts.policy
