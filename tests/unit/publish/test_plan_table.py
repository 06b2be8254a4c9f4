"""The table [publication] of a plan: checked before anything is charged, and carried out."""

import openpyxl
import pytest
from helpers.errors import refused

import slowscale as ss
from slowscale.core.errors import PlanError
from slowscale.plan import check_plan, read_plan, run_plan

PLAN = """
[data]
path = "records.csv"
types = { emp = "int64" }

[tables.t.keys]
by = ["county"]
file = "cells.csv"

[ledger]
path = "plan.ledger"

[tables.t.sums.emp]
mechanism = "gaussian"
sigma = 1e-6

[tables.t.count]
mechanism = "gaussian"
sigma = 1

[publication]
title = "Employees by county"
period = "2024"
notes = ["A note."]
keys = { county = "County" }
codes = { county = "counties.csv" }
rounding = { emp = 10 }
negatives = { count = "zero" }
basic = ["public.xlsx", "public.csv"]
research = "research.parquet"

[publication.columns]
emp = { title = "Employees", unit = "persons" }

[output]
folder = "out"
formats = ["parquet"]
"""


def written(folder, text=PLAN, codes="code,name\n01,Autauga\n03,Baldwin\n"):
    (folder / "records.csv").write_text("county,emp\n01,12\n01,4\n03,25\n")
    (folder / "cells.csv").write_text("county\n01\n03\n")
    (folder / "counties.csv").write_text(codes)
    path = folder / "plan.toml"
    path.write_text(text)
    return path


def test_a_plan_publishes(tmp_path):
    plan = read_plan(written(tmp_path))
    checked = check_plan(plan)
    assert checked.refusal is None
    assert not (tmp_path / "out").exists()
    _, files = run_plan(plan)
    names = ["t.parquet", "public.xlsx", "public.csv", "public.datapackage.json", "research.parquet"]
    assert [file.name for file in files] == names
    sheet = openpyxl.load_workbook(tmp_path / "public.xlsx")["public"]
    top = int(sheet.freeze_panes[1:])
    assert [cell.value for cell in sheet[top]][:3] == ["01", "Autauga", 20]
    assert [cell.value for cell in sheet[top + 1]][:3] == ["03", "Baldwin", 20]  # 25 is a half, and 20 is even
    assert ss.read_release(tmp_path / "research.parquet").table["emp"].to_pylist() == [16, 25]
    checked = check_plan(plan)
    assert {file.name for file in checked.existing} == set(names)
    assert "already exists" in str(checked.refusal)
    run_plan(plan, overwrite=True)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('title = "Employees by county"', "", "publication.title: is missing: add a line title = …"),
        ('title = "Employees by', 'titel = "', "publication.titel: there is no such field; did you mean title"),
        (
            "emp = { title",
            "emo = { title",
            "publication.columns.emo: 'emo' is not a published column; did you mean 'emp'",
        ),
        ("rounding = { emp", "rounding = { emo", "publication.rounding.emo: 'emo' is not a published column"),
        (
            "rounding = { emp = 10 }",
            "rounding = 0.5",
            'publication.rounding: must be text, a whole number.*got 0.5; write "0.5"',
        ),
        ("rounding = { emp = 10 }", "rounding = -1", "publication: rounding must be a number > 0"),
        (
            "keys = { county",
            "keys = { country",
            "publication.keys.country: 'country' is not a key column; did you mean",
        ),
        ("codes = { county", "codes = { country", "publication.codes.country: 'country' is not a key column"),
        ('{ count = "zero" }', '"hide"', "publication: negatives must be one of flag, zero, keep"),
        ('"public.csv"]', '"public.ods"]', r"publication.basic: must be a file that ends in \.parquet, \.csv, \.xlsx"),
        (
            'basic = ["public.xlsx',
            'basic = ["http://x/public.xlsx',
            "publication.basic: must be a file on this machine",
        ),
        ('research = "research.parquet"', "research = 3", "publication.research: must be the path of a file, .* got 3"),
        ("rounding = { emp = 10 }", "rounding = { emp = true }", "publication.rounding: must be text, .* got true"),
        ('unit = "persons"', "unit = 3", "publication.columns.emp.unit: must be text, got 3"),
        ('period = "2024"', "cv_limits = [10]", "publication: flags must be different texts, one more than"),
        (
            'title = "Employees", unit = "persons"',
            'title = "count"',
            "publication.columns: .*'emp' and 'count' have the same title",
        ),
    ],
)
def test_mistakes_are_reported_with_their_field(tmp_path, old, new, words):
    """Names are compared once the columns of the data are known; all other mistakes are found when a plan is read."""
    assert old in PLAN
    path = written(tmp_path, PLAN.replace(old, new, 1))
    known = "is not a" in words or "the same title" in words
    with pytest.raises(ss.ParameterError if known else PlanError, match=rf"line \d+, {words}") as caught:
        check_plan(read_plan(path)) if known else read_plan(path)
    assert len(str(caught.value).splitlines()) == 1 + (new.startswith("titel"))


@pytest.mark.parametrize("codes", ["code,name\n01,Autauga\n", "code,name\n"])
def test_code_lists_are_checked_before_anything_is_charged(tmp_path, codes):
    plan = read_plan(written(tmp_path, codes=codes))
    for carry_out in (check_plan, run_plan):
        with pytest.raises(ss.ParameterError, match="codes"):
            carry_out(plan)
    assert not (tmp_path / "plan.ledger").exists()
    assert not (tmp_path / "out").exists()


def test_code_lists_for_keys_from_the_data(tmp_path):
    text = PLAN.replace('file = "cells.csv"', "from_data = true")
    plan = read_plan(written(tmp_path, text, "code,name\n01,Autauga\n"))
    check_plan(plan)  # the labels are not known yet
    with refused(ss.ParameterError, code="missing"):
        run_plan(plan)
    assert not (tmp_path / "plan.ledger").exists()


def test_code_lists_without_keys(tmp_path):
    text = PLAN.replace('[tables.t.keys]\nby = ["county"]\nfile = "cells.csv"\n', "")
    with refused(ss.ParameterError, "'county'", code="unknown-name", path=("publication", "keys", "county")):
        run_plan(read_plan(written(tmp_path, text)))


def test_files_are_not_written_over_others(tmp_path):
    for old, new in (
        ("research.parquet", "out/t.parquet"),
        ('"public.csv"', '"records.csv"'),
        ('"public.csv"', '"counties.csv"'),
    ):
        plan = read_plan(written(tmp_path, PLAN.replace(old, new)))
        with pytest.raises(ss.ParameterError, match="would be written over"):
            check_plan(plan)


def test_codes_in_the_plan_itself(tmp_path):
    text = PLAN.replace('"counties.csv"', '{ "01" = "A", "03" = "B" }').replace(
        "rounding = { emp = 10 }", 'rounding = "1/2"'
    )
    run_plan(read_plan(written(tmp_path, text)))
    assert '"01","A",16' in (tmp_path / "public.csv").read_text()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([('"public.csv"', '"colon:2024.csv"')], r"output.sign: 'colon:2024.csv' is not the plain name of a file"),
        (
            [('"public.csv"', '"out/T.parquet"')],
            "publication.basic: .*T.parquet differs only in case from .*t.parquet",
        ),
    ],
)
def test_names_that_cannot_be_signed_are_found_before(tmp_path, changes, words):
    ss.keygen(tmp_path / "agency")
    text = PLAN + 'sign = "agency.key"\n'
    for old, new in changes:
        text = text.replace(old, new, 1)
    plan = read_plan(written(tmp_path, text))
    for carry_out in (check_plan, run_plan):
        with pytest.raises(ss.ParameterError, match=words):
            carry_out(plan)
    assert not (tmp_path / "plan.ledger").exists()


def test_labels_too_long_for_excel_are_found_before(tmp_path):
    text = PLAN.replace('codes = { county = "counties.csv" }\n', "")
    path = written(tmp_path, text)
    (tmp_path / "cells.csv").write_text(f"county\n01\n{'x' * 32_768}\n")
    for carry_out in (check_plan, run_plan):
        with refused(ss.ParameterError, code="too-long"):
            carry_out(read_plan(path))
    assert not (tmp_path / "plan.ledger").exists()
    path.write_text(text.replace("public.xlsx", "public.parquet"))
    check_plan(read_plan(path))


@pytest.mark.parametrize("error", [ss.EngineError("no room"), RuntimeError("no room")])
def test_a_file_that_fails_does_not_stop_the_others(tmp_path, monkeypatch, error):
    def fail(*given):
        raise error

    monkeypatch.setattr("slowscale.publish.writing.write_excel", fail)
    _, public = ss.keygen(tmp_path / "agency")
    text = PLAN + 'report = "out.html"\nsign = "agency.key"\n'
    with pytest.raises(ss.IncompleteError, match="no room") as caught:
        run_plan(read_plan(written(tmp_path, text)), confidential=tmp_path / "secret.html")
    assert caught.value.missing == (str(tmp_path / "public.xlsx"),)
    assert ss.verify(tmp_path / "out" / "t.parquet", public).files == ("t.parquet",)
    found = ss.verify(tmp_path / "out.html", public)
    names = ["out.html", "public.csv", "public.datapackage.json", "research.parquet"]
    assert sorted(found.files) == sorted(names)
    assert (tmp_path / "secret.html").exists()
    assert not (tmp_path / "public.xlsx").exists()
