"""Where the mistakes of a plan are reported, and what two releases at once or a missing file of a pair lead to."""

import os
import subprocess
import sys
import textwrap

import pytest
from helpers.commands import run_command
from helpers.errors import refused

import slowscale as ss
from slowscale.accounting import Ledger
from slowscale.plan import check_plan, finish_plan, read_plan, run_plan

PLAN = """\
[data]
path = "d.csv"
types = { emp = "int64" }

[ledger]
path = "l.ledger"

[tables.cells]
keys = { cross = { g = ["a", "b"] } }

[tables.cells.sums.emp]
mechanism = "gaussian"
sigma = 2

[publication]
title = "T"
source = "S"
columns = { emp = { title = "Employees" } }
basic = "pub.csv"

[output]
folder = "out"
"""


@pytest.fixture
def plan_with(tmp_path):
    (tmp_path / "d.csv").write_text("g,emp\na,1\nb,2\n")

    def written(*changes):
        text = PLAN
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "plan.toml").write_text(text)
        return read_plan(tmp_path / "plan.toml")

    return written


@pytest.mark.parametrize(
    ("change", "kind", "code", "path", "line"),
    [
        (("d.csv", "none.csv"), ss.ParameterError, None, ("data",), 1),
        (("int64", "date"), ss.ParameterTypeError, None, ("data",), 1),
        (('path = "d.csv"\ntypes = { emp = "int64" }', 'database = "postgresql://127.0.0.1:1/x#t"'), ss.EngineError,
         None, ("data",), 1),
        (('folder = "out"', 'folder = "d.csv"'), ss.ParameterError, "conflict", ("output", "folder"), 22),
        (('folder = "out"', 'folder = "none/out"'), ss.ParameterError, "missing", ("output", "folder"), 22),
        (('folder = "out"', 'folder = "out"\nreport = "none/r.html"'), ss.ParameterError, "missing",
         ("output", "report"), 23),
        (('"pub.csv"', '"none/pub.csv"'), ss.ParameterError, "missing", ("publication", "basic"), 19),
        (('"pub.csv"', '"d.csv"'), ss.ParameterError, "conflict", ("publication", "basic"), 19),
        (("sums.emp", "sums.emq"), ss.ParameterError, None, ("tables", "cells", "sums", "emq"), 11),
    ],
)  # fmt: skip
def test_errors_name_the_line_of_the_plan(plan_with, tmp_path, change, kind, code, path, line):
    plan = plan_with(change)
    for use in (check_plan, run_plan):
        with refused(kind, code=code, path=path) as caught:
            use(plan)
        assert caught.value.origin == f"{tmp_path / 'plan.toml'}, line {line}, {'.'.join(path)}"
        assert str(caught.value).startswith(f"{caught.value.origin}: ")


def test_a_plan_error_has_its_mistakes(plan_with):
    with refused(ss.PlanError, code="plan") as caught:
        plan_with(("sigma = 2", "sigma = -2"), ('folder = "out"', 'foldr = "out"'))
    found = [(one.path, one.line, one.code) for one in caught.value.mistakes]
    assert (("tables", "cells", "sums", "emp", "sigma"), 13, "value") in found
    assert (("output", "foldr"), 22, "unknown-name") in found
    assert [line for _, line, _ in found] == sorted(line for _, line, _ in found)


@pytest.mark.parametrize("name", ["con", "NUL", "com1"])
def test_names_of_devices(plan_with, name):
    with refused(ss.PlanError) as caught:
        plan_with(("tables.cells", f"tables.{name}"))
    assert [(one.path, one.code) for one in caught.value.mistakes] == [(("tables", name), "reserved")]


def test_laplace_noise_by_its_name(plan_with):
    check_plan(plan_with(("gaussian", "laplace")))


@pytest.mark.parametrize("missing", ["out/cells.csv", "out/cells.csv.json", "pub.csv", "pub.datapackage.json"])
def test_a_pair_of_files_is_finished_without_overwriting(plan_with, tmp_path, missing):
    plan = plan_with()
    run_plan(plan)
    before = (tmp_path / missing).read_bytes()
    (tmp_path / missing).unlink()
    finish_plan(plan)
    assert (tmp_path / missing).read_bytes() == before


def test_facts_of_another_release_are_not_overwritten(plan_with, tmp_path):
    plan = plan_with()
    run_plan(plan)
    other = (tmp_path / "out/cells.csv.json").read_bytes()
    run_plan(plan, overwrite=True)
    (tmp_path / "out/cells.csv.json").write_bytes(other)
    (tmp_path / "out/cells.csv").unlink()
    with refused(ss.ParameterError, code="mismatch"):
        finish_plan(plan)


def test_only_one_of_two_releases_at_once_is_charged(plan_with, tmp_path):
    """The first waits in the middle of its release, with its charge made, until the second was refused."""
    plan_with()
    wait = """
        import sys
        from slowscale.plan import read_plan, run_plan
        from slowscale.release.session import Session

        released = Session.release

        def release(*arguments, **options):
            found = released(*arguments, **options)
            print("charged", flush=True)
            sys.stdin.readline()
            return found

        Session.release = release
        run_plan(read_plan("plan.toml"))
    """
    first = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(wait)],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert first.stdout.readline() == "charged\n"
    second = run_command(["release", "plan.toml", "--yes"], tmp_path)
    assert second.returncode == 2
    assert "line 22, output.folder" in second.stderr
    first.communicate("\n")
    assert first.returncode == 0
    assert (tmp_path / "out" / "cells.csv").exists()
    with Ledger(tmp_path / "l.ledger") as ledger:
        assert ledger.spent.releases == 1


def test_files_that_appear_after_the_check_are_not_paid_for(plan_with, tmp_path):
    from slowscale.plan import run_checked

    checked = check_plan(plan_with())
    run_plan(checked.plan)
    with refused(ss.ParameterError, code="exists"):
        run_checked(checked)
    with Ledger(tmp_path / "l.ledger") as ledger:
        assert ledger.spent.releases == 1


def test_a_release_that_fails_leaves_no_folder(plan_with, tmp_path):
    plan = plan_with()
    checked = check_plan(plan)
    (tmp_path / "d.csv").write_text("g,emp\na,\n")
    from slowscale.plan import run_checked

    with refused(ss.DataError, path=("data",)):
        run_checked(checked)
    assert not os.path.lexists(tmp_path / "out")
