"""Files outside the folder are neither read nor written, however a plan or a page names them."""

import os

import duckdb
import pandas as pd
import pytest
from helpers.errors import refused
from helpers.workbench_client import READY, problem_of, workbench_in

from slowscale.core.errors import ParameterError

SECRET = "a_secret_column"


@pytest.fixture
def folder(tmp_path):
    """A folder with records, beside files that must not be read."""
    place = tmp_path / "work"
    place.mkdir()
    (place / "a.csv").write_text("emp,county\n1,x\n2,y\n")
    (place / "parts").mkdir()
    for name in ("../secret", "parts/one", "a"):
        pd.DataFrame({SECRET if "secret" in name else "emp": [1, 2]}).to_parquet(place / f"{name}.parquet")
    (tmp_path / "secret.csv").write_text(f"emp,{SECRET}\n1,2\n")
    for file in (tmp_path / "secret.db", place / "own.db"):
        with duckdb.connect(str(file)) as database:
            database.execute(f"CREATE TABLE t (emp INTEGER, {SECRET if 'secret' in file.name else 'county'} TEXT)")
    os.symlink(tmp_path / "secret.parquet", place / "parts" / "two.parquet")
    os.symlink(tmp_path / "secret.csv", place / "link.csv")
    (tmp_path / "deep").mkdir()
    os.symlink(tmp_path / "deep", place / "parts" / "deep")
    return place


OUTSIDE = [
    "../secret.csv", "link.csv", "../*.csv", "l*.csv", "parts", "parts/*.parquet", "sqlite://../secret.db#t",
    "sqlite://own.db#t", "DuckDB://../secret.db#t", "duckdb://../secret.db#t", "duckdb://own.db@../secret.db#t",
    "duckdb://own.db?x=@../secret.db#t", "x://../secret.csv",
]  # fmt: skip


@pytest.mark.parametrize("place", OUTSIDE)
def test_data_elsewhere_is_not_read(folder, place, monkeypatch):
    monkeypatch.chdir(folder)
    workbench, client = workbench_in(folder)
    answer = client.post("/data", data={"place": place, "version": workbench.draft.version})
    assert answer.status_code == 400
    assert SECRET not in answer.text
    assert not workbench.plan.exists()


@pytest.mark.parametrize("place", ["a.csv", "own.db", "parts/one.parquet", "a.*"])
def test_data_in_the_folder_is_found_from_any_folder(folder, place):
    workbench, _ = workbench_in(folder)
    address = f"duckdb://{place}#t" if place == "own.db" else place
    assert os.path.realpath(folder / place) in workbench.folder.inside_source(address)


def plan_with(folder, old, new):
    (folder / "plan.toml").write_text(READY.replace(old, new) if old else READY + new)


DATA = 'path = "a.csv"\n[data.types]\nemp = "int64"'
READ_ELSEWHERE = [
    (DATA, 'path = "../secret.parquet"'),
    (DATA, 'path = ["a.parquet", "../secret.parquet"]'),
    (DATA, 'path = "parts"'),
    (DATA, 'path = "parts/*.parquet"'),
    (DATA, 'path = "parts/d*/../secret.parquet"'),
    ("[ledger]", '[tables.cells.keys]\nby = ["county"]\nfile = "parts/d*/../secret.csv"\n[ledger]'),
    (DATA, 'database = "duckdb://../secret.db#t"'),
    (DATA, 'database = "duckdb://own.db@../secret.db#t"'),
    ("[ledger]", '[tables.cells.keys]\nby = ["county"]\nfile = "../secret.csv"\n[ledger]'),
    ("[ledger]", '[tables.cells.keys]\nby = ["county"]\nfile = "parts"\n[ledger]'),
    ('folder = "p', 'sign = "../secret.csv"\nfolder = "p'),
]


@pytest.mark.parametrize(("old", "new"), READ_ELSEWHERE)
def test_plans_that_name_files_elsewhere_are_refused(folder, old, new, monkeypatch):
    monkeypatch.chdir(folder)
    plan_with(folder, old, new)
    workbench, client = workbench_in(folder)
    with refused(ParameterError, code="unsupported" if "@" in new else "outside"):
        workbench.checked_plan(workbench.draft)
    for answer in (client.post("/inspect"), client.get("/cost/table")):
        assert "outside the folder" in problem_of(answer) or "must not contain @" in problem_of(answer)
        assert SECRET not in answer.text
    # What was allowed may be read. An address with another file in its user name stays refused.
    workbench, _ = workbench_in(folder, [folder.parent])
    if "@" not in new:
        workbench.checked_plan(workbench.draft)


WRITTEN_ELSEWHERE = [
    ('"published"', '"../other/published"'),
    ('"published"', '"out/published"'),
    ('"published"', '"out"'),
    ("plan.ledger", "../other/plan.ledger"),
    ('folder = "p', 'report = "../other/r.html"\nfolder = "p'),
    ('"published"', '"linked"'),
]


@pytest.mark.parametrize(("old", "new"), WRITTEN_ELSEWHERE)
def test_what_is_allowed_is_for_reading_only(folder, old, new):
    (folder.parent / "other").mkdir()
    os.symlink(folder.parent / "other", folder / "out")
    (folder / "linked").mkdir()
    os.symlink(folder.parent / "other" / "facts.json", folder / "linked" / "cells.csv.json")
    plan_with(folder, old, new)
    workbench, client = workbench_in(folder, [folder.parent])
    with refused(ParameterError, code="outside") as caught:
        workbench.checked_plan(workbench.draft)
    assert "--allow" not in str(caught.value)
    assert "outside the folder" in problem_of(client.get("/cost/table"))


def test_a_ledger_elsewhere_cannot_be_chosen(folder):
    plan_with(folder, "", "")
    workbench, client = workbench_in(folder, [folder.parent])
    answer = client.post("/cost", data={"ledger": "../other.ledger", "version": workbench.draft.version})
    assert answer.status_code == 400
    assert workbench.draft.text == READY


def test_a_plan_with_everything_in_the_folder_is_accepted(folder):
    plan_with(folder, "", "")
    workbench, _ = workbench_in(folder)
    assert workbench.checked_plan(workbench.draft).data.path == str(folder / "a.csv")
