"""Whatever a plan holds, and whatever goes wrong, a page says so in words; a confidential look ends with its plan."""

import pytest
from helpers.workbench_client import READY, problem_of, workbench_in

from slowscale.workbench.draft import Draft

PAGES = ("/data", "/tables", "/noise", "/cost", "/inspect", "/release", "/report", "/nowhere")
ODD = [
    "tables = 5", "tables = [5]", "tables = {cells = 5}", "data = 5", "[data]", '[data]\ndatabase = 5',
    "[data]\npath = []", "[data]\npath = 5", "[tables.cells]\nsums = 5", "[tables.cells]\nsums = [5]",
    "[tables.cells]\nkeys = 5", "[tables.cells.keys]\ncross = 5", "[tables.cells]\ncount = 5",
    "[tables.cells]\nrollup = 5", "[tables.cells]\nquantiles = 5", "[tables.a]\nrollup = 'cells'\nby = 5",
    "hierarchies = [5]", "hierarchies = 5", "ledger = {path = 5}", "ledger = 5", "output = 5", "release = 5",
    "output = {report = 5}", "report = 5", "report = {sizes = 5}", 'report = {sizes = [{name = 5, emp = "x"}]}',
    "[tables.cells.sums]\nemp = 5", "[tables.cells.sums.emp]\nmechanism = []", "not TOML",
    '[data]\npath = "a.csv"\ntypes = 5', '[data]\npath = "a.csv"\ncsv = 5',
]  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.csv").write_text("emp,county\n1,x\n2,y\n")
    (tmp_path / "plan.toml").write_text(READY)
    return tmp_path


@pytest.mark.parametrize("text", ODD)
def test_odd_plans_are_shown_in_words(folder, text):
    (folder / "plan.toml").write_text(text + "\n")
    _, client = workbench_in(folder)
    for path in PAGES:
        answer = client.get(path)
        assert answer.status_code in (200, 400, 404), (path, problem_of(answer))
        assert "<h1>" in answer.text
        assert "bug in slowscale" not in answer.text


@pytest.mark.parametrize("kind", ["not UTF-8", "a folder", "a loop", "nested"])
def test_a_plan_that_cannot_be_read(folder, kind):
    plan = folder / "plan.toml"
    plan.unlink()
    if kind == "a folder":
        plan.mkdir()
    elif kind == "a loop":
        plan.symlink_to(plan)
    else:
        plan.write_bytes(b'a = "\xff"\n' if kind == "not UTF-8" else b"a = " + b"[" * 5_000)
    _, client = workbench_in(folder)
    for path in PAGES:
        answer = client.get(path)
        assert answer.status_code in (400, 404) or kind == "nested", path
        assert "<h1>" in answer.text
        assert kind == "nested" or "cannot be read" in problem_of(answer) or path == "/nowhere"
        assert "There is no plan yet" not in answer.text
    assert client.get("/plan/download").status_code in (200, 404)


def test_errors_of_the_system_and_bugs_have_words(folder, monkeypatch):
    workbench, client = workbench_in(folder)
    for error, status, words in (
        (PermissionError(13, "Permission denied", "x"), 400, "[Errno 13] Permission denied: 'x'"),
        (ZeroDivisionError("1/0"), 500, "ZeroDivisionError: 1/0 (this is a bug in slowscale)"),
    ):

        def fail(*_, error=error):
            raise error

        monkeypatch.setattr(type(workbench.jobs), "all", fail)
        answer = client.get("/release")
        assert (answer.status_code, problem_of(answer)) == (status, words)
        assert "Traceback" not in answer.text
        assert "Nothing was changed" not in answer.text


def test_the_folder_of_the_jobs_cannot_be_made(folder):
    (folder / ".slowscale").write_text("")
    workbench, client = workbench_in(folder)
    form = {"confirmed": "yes", "name": "0" * 32, "version": workbench.draft.version}
    answer = client.post("/release", data=form)
    assert answer.status_code in (400, 409)
    assert ".slowscale" in problem_of(answer)


def test_values_of_another_kind_are_the_default(tmp_path):
    draft = Draft(tmp_path, 'a = "text"\nb = [1]\nc = {d = 5}\n')
    assert draft.get("a", 0) is None
    assert draft.get("a", default=[]) == []
    assert draft.get("b", default=[]) == [1]
    assert draft.get("c", "d", kind=str) is None
    assert draft.get("c", "d", "e", default="") == ""
    assert draft.get("c", kind=(dict, list)) == {"d": 5}


def test_a_confidential_look_ends_with_its_plan(folder):
    workbench, client = workbench_in(folder)
    assert client.post("/inspect").status_code == 303
    assert "CONFIDENTIAL" in client.get("/inspect/result?table=cells").text
    (folder / "plan.toml").write_text(READY + "# changed\n")
    assert client.get("/inspect/result?table=cells").status_code == 404
    assert workbench.inspection == ("", {})
    (folder / "plan.toml").write_text(READY)
    assert client.get("/inspect/result?table=cells").status_code == 404
