"""A disk that fills up after the charge: the drawn tables are kept, and the rest is made from them later."""

import json
import os
import resource
import subprocess
import time
import warnings
from contextlib import contextmanager, nullcontext

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.errors import refused
from typer.testing import CliRunner

import slowscale as ss
from slowscale.cli.app import app, main
from slowscale.plan import finish_plan, read_plan, run_plan
from slowscale.plan.outputs import Written

HEAD = """
[data]
path = "records.parquet"
name = "firms"
where = "emp >= 0"
PROTECT

[ledger]
path = "x.ledger"

[publication]
title = "Firms"
basic = "out/basic.csv"
"""


def table(name):
    """Return the sums of a table."""
    return f"""
[tables.{name}.sums.emp]
mechanism = "gaussian"
sigma = 30

[tables.{name}.count]
mechanism = "gaussian"
sigma = 2
"""


ONE = f"""{HEAD}
[tables.table]
keys = {{ cross = {{ state = [1, 2], kind = ["a", "b"] }} }}
{table("table")}
[output]
folder = "out"
report = "out/report.html"
sign = "agency.key"
"""
SET = f"""{HEAD}
[[hierarchies]]
column = "state"
file = "regions.csv"
levels = ["region"]

[tables.cells]
keys = {{ cross = {{ state = [1, 2], kind = ["a", "b"] }} }}
{table("cells")}
[tables.regions]
rollup = "cells"
by = ["region"]

[tables.kinds]
keys = {{ cross = {{ kind = ["a", "b"] }} }}
{table("kinds")}
[output]
folder = "out/tables"
report = "out/report.html"
sign = "agency.key"
"""


@pytest.fixture
def plan_file(tmp_path):
    """Return a function that writes a plan, with its data, and returns its path."""

    def write(text):
        records = {"state": [1, 1, 2], "kind": ["a", "b", "a"], "emp": [3, 40, 500], "region": [7, 7, 8]}
        pq.write_table(pa.table(records), tmp_path / "records.parquet")
        (tmp_path / "regions.csv").write_text("state,region\n1,7\n2,8\n")
        (tmp_path / "out").mkdir(exist_ok=True)
        if not (tmp_path / "agency.key").exists():
            ss.keygen(tmp_path / "agency")
        path = tmp_path / "plan.toml"
        path.write_text(text.replace("PROTECT", ""))
        return path

    return write


@contextmanager
def no_file_above(size):
    """Let no file grow beyond a size: writing more fails with an error of the system, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def contents(folder):
    """Return the tables in a folder, by file, with their facts."""
    tables = [path for ending in ("csv", "parquet") for path in folder.rglob(f"*.{ending}")]
    return {path.name: ss.read_release(path) for path in tables if not path.name.startswith("basic")}


def same(one, other):
    return one.table.equals(other.table) and one.facts == other.facts


def without_data(tmp_path):
    """Take the records away: what is written now is not made from them."""
    (tmp_path / "records.parquet").unlink()


def charges(tmp_path):
    return [entry for entry in ss.Ledger(tmp_path / "x.ledger").history() if entry["kind"] == "charge"]


@pytest.mark.parametrize(("text", "tables"), [(ONE, 2), (SET, 6)], ids=["one table", "set"])
def test_a_report_that_does_not_fit(plan_file, tmp_path, text, tables):
    """The report is the only file above a size. With the records gone, it is made from the tables."""
    path, out = plan_file(text), tmp_path / "out"
    with no_file_above(36_000), pytest.raises(ss.IncompleteError, match=r"made and charged, but .*report.html") as info:
        run_plan(read_plan(path))
    assert info.value.missing == (str(out / "report.html"),)
    assert info.value.lost == ()
    assert f"slowscale release {path} --finish" in str(info.value)
    assert len(info.value.written) == len(list(out.rglob("SHA256SUMS*"))) + tables + (2 if text is ONE else 4)
    before = contents(out)
    assert len(before) == tables
    without_data(tmp_path)
    found, files = finish_plan(read_plan(path))
    assert out / "report.html" in files
    assert found.facts.id in (out / "report.html").read_text(encoding="utf-8")
    assert all(same(one, before[name]) for name, one in contents(out).items())
    ss.verify(out / "report.html", tmp_path / "agency.pub")
    assert finish_plan(read_plan(path))[1] == []
    assert len(charges(tmp_path)) == 1


@pytest.mark.parametrize("text", [ONE, SET], ids=["one table", "set"])
def test_everything_is_made_again_from_the_drawn_tables(plan_file, tmp_path, text):
    path, out = plan_file(text), tmp_path / "out"
    plan = read_plan(path)
    run_plan(plan)
    before = contents(out)
    report = (out / "report.html").read_text(encoding="utf-8")
    drawn = ["table.csv", "table.csv.json"] if text is ONE else ["cells.parquet", "kinds.csv", "kinds.csv.json"]
    for file in [file for file in out.rglob("*") if file.is_file() and file.name not in drawn]:
        file.unlink()
    without_data(tmp_path)
    ss.Ledger(tmp_path / "x.ledger").charge(
        ss.accounting.Charge(ss.RecordPolicy((("emp", ss.Gaussian(sigma=9).policy),)))
    )
    result = CliRunner().invoke(app, ["release", str(path), "--finish", "--json"])
    assert result.exit_code == 0, result.output
    after = contents(out)
    assert after.keys() == before.keys()
    assert all(same(one, before[name]) for name, one in after.items())
    # The report states what was spent up to this release, and not what was charged later.
    assert (out / "report.html").read_text(encoding="utf-8") == report
    assert {str(file) for file in out.rglob("*") if file.is_file()} >= set(json.loads(result.stdout)["files"])


def test_a_drawn_table_that_is_missing_is_lost(plan_file, tmp_path):
    path, out = plan_file(SET), tmp_path / "out"
    run_plan(read_plan(path))
    for file in out.rglob("kinds.*"):
        file.unlink()
    (out / "tables" / "regions.csv").unlink()
    (out / "tables" / "regions.csv.json").unlink()
    (out / "report.html").unlink()
    without_data(tmp_path)
    with pytest.raises(ss.IncompleteError, match=r"kinds could not be kept .* is another charge") as info:
        finish_plan(read_plan(path))
    assert info.value.lost == ("kinds",)
    assert (out / "tables" / "regions.csv").exists()
    assert not (out / "report.html").exists()
    for file in out.rglob("cells.*"):
        file.unlink()
    result = CliRunner().invoke(app, ["release", str(path), "--finish"])
    assert isinstance(result.exception, ss.ParameterError)
    assert "there is none at" in str(result.exception)
    assert len(charges(tmp_path)) == 1


def test_what_is_refused(plan_file, tmp_path):
    path, out = plan_file(ONE.replace("sign =", "# sign =")), tmp_path / "out"
    run_plan(read_plan(path))
    result = CliRunner().invoke(app, ["release", str(path), "--finish", "--confidential-report", "x.html"])
    assert "needs the records, which --finish never reads" in str(result.exception)
    path.write_text(path.read_text().replace("sigma = 30", "sigma = 31"))
    with pytest.raises(ss.ParameterError, match="was not made by this plan: the mechanisms differ"):
        finish_plan(read_plan(path))
    path.write_text(path.read_text().replace("sigma = 31", "sigma = 30"))
    (out / "report.html").write_text("of another release")
    with pytest.raises(ss.ParameterError, match=r"report.html is of another release; pass --overwrite"):
        finish_plan(read_plan(path))
    assert out / "report.html" in finish_plan(read_plan(path), overwrite=True)[1]
    os.rename(tmp_path / "x.ledger", tmp_path / "y.ledger")
    with pytest.raises(ss.LedgerError, match="is not in the ledger"):
        finish_plan(read_plan(path))
    ss.Ledger(tmp_path / "x.ledger")
    with pytest.raises(ss.LedgerError, match="was not charged to the ledger"):
        finish_plan(read_plan(path))


@pytest.mark.parametrize("ledger", [True, False], ids=["ledger", "no ledger"])
@pytest.mark.parametrize("failing", ["table.parquet", "table.csv"])
def test_the_newest_release_is_finished(plan_file, tmp_path, monkeypatch, ledger, failing):
    """A second release, whose drawn table is in one format only, is never replaced by the first one."""
    text = ONE if ledger else ONE.replace('[ledger]\npath = "x.ledger"', "")
    path, out, write = plan_file(text), tmp_path / "out", Written.attempt
    run_plan(read_plan(path))
    if not ledger:
        time.sleep(1.1)  # the time of a release is in seconds

    def attempt(self, output, overwrite):
        full = output.files[0].name == failing
        with no_file_above(10) if full else nullcontext():
            write(self, output, overwrite)

    monkeypatch.setattr(Written, "attempt", attempt)
    with pytest.raises(ss.IncompleteError):
        run_plan(read_plan(path), overwrite=True)
    monkeypatch.setattr(Written, "attempt", write)
    before = contents(out)
    written = "table.csv" if failing == "table.parquet" else "table.parquet"
    assert before[written].facts.id != before[failing].facts.id
    without_data(tmp_path)
    with pytest.raises(ss.ParameterError, match=rf"{failing} is of another release; pass --overwrite"):
        finish_plan(read_plan(path))
    assert all(same(one, before[name]) for name, one in contents(out).items())
    found, _ = finish_plan(read_plan(path), overwrite=True)
    assert all(same(one, before[written]) for one in contents(out).values())
    assert same(found, before[written])
    assert finish_plan(read_plan(path))[1] == []


def test_releases_of_the_same_second_are_not_ordered(plan_file, tmp_path):
    """Without a ledger, nothing tells which one is newer, so that none is replaced."""
    path, out = (
        plan_file(ONE.replace('[ledger]\npath = "x.ledger"', "").replace("sign =", "# sign =")),
        tmp_path / "out",
    )
    run_plan(read_plan(path))
    facts = out / "table.csv.json"
    facts.write_text(json.dumps({**json.loads(facts.read_text()), "id": "another"}))
    before = {file: file.read_bytes() for file in out.iterdir()}
    with refused(ss.EngineError, code="mismatch"):
        finish_plan(read_plan(path), overwrite=True)
    assert {file: file.read_bytes() for file in out.iterdir()} == before


def test_a_torn_csv_file_is_made_again(plan_file, tmp_path):
    path, out = plan_file(ONE.replace("sign =", "# sign =")), tmp_path / "out"
    run_plan(read_plan(path))
    whole, table = contents(out)["table.parquet"], out / "table.csv"
    table.write_text(table.read_text().replace("a", "b"))
    with refused(ss.ParameterError, str(table), code="unreadable"):
        finish_plan(read_plan(path))
    finish_plan(read_plan(path), overwrite=True)
    assert all(same(one, whole) for one in contents(out).values())
    table.write_text(table.read_text().replace("a", "b"))
    (out / "table.parquet").unlink()
    with pytest.raises(ss.EngineError, match="does not belong to its facts"):
        finish_plan(read_plan(path), overwrite=True)


@pytest.mark.parametrize("text", [ONE, SET], ids=["one table", "set"])
@pytest.mark.parametrize("ending", ["csv", "xlsx", "parquet"])
def test_files_for_readers_of_another_release_are_refused(plan_file, tmp_path, text, ending):
    """They are not taken for finished, and not signed."""
    path, out = plan_file(text.replace("basic.csv", f"basic.{ending}")), tmp_path / "out"
    run_plan(read_plan(path))
    earlier = {file: file.read_bytes() for file in out.glob("basic*")}
    run_plan(read_plan(path), overwrite=True)
    assert finish_plan(read_plan(path))[1] == []
    made = {file: file.read_bytes() for file in earlier}
    for changed in earlier:  # one file of another release is enough
        changed.write_bytes(earlier[changed])
        (out / "report.html").unlink()
        with pytest.raises(ss.ParameterError, match=r"basic\S* is of another release; pass --overwrite"):
            finish_plan(read_plan(path))
        assert changed.read_bytes() == earlier[changed]
        finish_plan(read_plan(path), overwrite=True)
        assert ending == "xlsx" or changed.read_bytes() == made[changed]
        assert changed.read_bytes() != earlier[changed]
        ss.verify(changed, tmp_path / "agency.pub")
    if ending == "csv":
        (out / "basic.datapackage.json").unlink()
        if text is ONE:  # a file that is signed beside the drawn table must not be missing
            with refused(ss.SignatureError, code="missing"):
                finish_plan(read_plan(path))
        else:
            assert out / "basic-cells.csv" in finish_plan(read_plan(path))[1]


def test_a_drawn_table_must_match_its_signature(plan_file, tmp_path):
    path, out = plan_file(ONE), tmp_path / "out"
    run_plan(read_plan(path))
    (out / "table.parquet").unlink()
    facts = out / "table.csv.json"
    facts.write_text(facts.read_text() + " ")
    (out / "basic.csv").write_text("changed")
    with pytest.raises(ss.SignatureError, match=r"table.csv.json does not match its signature"):
        finish_plan(read_plan(path), overwrite=True)


def test_tables_that_do_not_fit_are_lost(plan_file, tmp_path, monkeypatch, capsys):
    """Not even a drawn table fits: the command says that it is lost, in words and by its exit code."""
    path, write = plan_file(SET), Written.attempt

    def attempt(*given):
        with no_file_above(100):
            write(*given)

    monkeypatch.setattr(Written, "attempt", attempt)
    monkeypatch.setattr("sys.argv", ["slowscale", "release", str(path), "--yes"])
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    with pytest.raises(SystemExit) as stopped:
        main()
    words = capsys.readouterr().err
    assert stopped.value.code == 8, words
    assert "cells, kinds could not be kept and cannot be drawn again: another release is another charge" in words
    assert "--finish" not in words
    assert not [file for file in (tmp_path / "out").rglob("*") if file.is_file()]
    assert len(charges(tmp_path)) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
@pytest.mark.parametrize(
    ("text", "size"), [(ONE, 64), (SET, 128), (SET, 48)], ids=["one table", "set", "not all tables"]
)
def test_a_real_disk(plan_file, tmp_path, text, size):
    """A small disk holds the drawn tables and not the report, until it is enlarged."""
    path, out = plan_file(text), tmp_path / "out"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(out)], check=False).returncode:
        pytest.skip("this system does not let us mount a small disk")
    try:
        with pytest.raises(ss.IncompleteError, match="No space left on device") as info:
            run_plan(read_plan(path))
        assert info.value.lost == ()
        assert str(out / "report.html") in info.value.missing
        assert all(os.path.exists(file) for file in info.value.written)
        assert not [file for file in out.rglob(".*") if file.is_file()]  # nothing is half written
        before = contents(out)
        assert (len(before) < 6) == (size < 128)
        subprocess.run(["mount", "-o", "remount,size=4m", str(out)], check=True)
        without_data(tmp_path)
        found, _ = finish_plan(read_plan(path))
        assert found.facts.id in (out / "report.html").read_text(encoding="utf-8")
        after = contents(out)
        assert len(after) == (2 if text is ONE else 6)
        assert all(same(one, after[name]) for name, one in before.items())
        assert len(charges(tmp_path)) == 1
    finally:
        subprocess.run(["umount", "-l", str(out)], check=True)
