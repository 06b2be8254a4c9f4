"""The files of a publication, read back by other programs."""

import csv
import json
import math
from dataclasses import replace

import frictionless
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from helpers.errors import refused
from helpers.releases import release_of

import slowscale as ss
from slowscale.publish import publish
from slowscale.publish.excel import check_rows, note_pieces, sheet_names
from slowscale.publish.profiles import published_tables

PROFILES = ("basic", "research")


def expected(release, publication, profile):
    (table,) = published_tables(release.sums, publication, profile)
    return table


@pytest.mark.parametrize("profile", PROFILES)
def test_parquet(release, publication, profile, tmp_path):
    path, *_ = release.publish(tmp_path / "t.parquet", publication, profile=profile)
    found = pa.parquet.read_table(path)
    assert found.equals(expected(release, publication, profile).arrow())
    about = json.loads(found.schema.metadata[b"slowscale_publication"])
    assert ss.Publication.from_dict(about["publication"]) == publication
    assert about["profile"] == profile
    assert "NOT PRIVATE" in about["notes"]["Warning"][0]
    assert found.schema.field("pay").metadata[b"unit"] == b"thousand USD"


def test_a_research_file_is_a_release(release, publication, tmp_path):
    read = ss.read_release(*release.publish(tmp_path / "t.parquet", publication))
    assert read.table.equals(release.table, check_metadata=True)
    assert read.facts.to_dict() == release.facts.to_dict()
    assert read.interval("pay", 0.99)[0].tolist() == release.interval("pay", 0.99)[0].tolist()
    with pytest.raises(ss.EngineError, match="is not a release that slowscale wrote"):
        ss.read_release(*release.publish(tmp_path / "b.parquet", publication, profile="basic"))


@pytest.mark.parametrize("profile", PROFILES)
def test_a_data_package_is_valid_and_keeps_types(release, publication, profile, tmp_path):
    path, *_ = release.publish(tmp_path / "t.csv", publication, profile=profile)
    package = tmp_path / "t.datapackage.json"
    assert frictionless.validate(str(package)).flatten(["type", "message"]) == []
    (resource,) = frictionless.Package(str(package)).resources
    rows = [row.to_dict() for row in resource.read_rows()]
    table = expected(release, publication, profile)
    for name, values in table.arrow().to_pydict().items():
        for row, value in zip(rows, values, strict=True):
            if name == "state_name" and value[0] in "=@":
                assert row[name] == f"'{value}"  # a spreadsheet would run it
            elif isinstance(value, float) and math.isinf(value):
                assert row[name] is None
            elif isinstance(value, float):
                assert float(row[name]) == value
            else:
                assert row[name] == value
    assert rows[0]["state"] == "01"
    described = json.loads(package.read_text(encoding="utf-8"))
    fields = {field["name"]: field for field in described["resources"][0]["schema"]["fields"]}
    assert fields["state"]["type"] == "string"
    assert (fields["pay"]["type"], fields["pay"]["title"]) == ("integer", "Annual payroll (thousand USD)")
    assert fields["pay"]["unit"] == "thousand USD"
    assert "apostrophe" in fields["state_name"]["description"]
    assert described["resources"][0]["schema"]["primaryKey"] == ["state", "year"]
    assert described["sources"] == [{"title": "Register"}]
    assert "NOT PRIVATE" in described["warning"]
    path.write_text(path.read_text().replace("Alabama", "Alabamb", 1))
    assert frictionless.validate(str(package)).flatten(["type"]) == [["hash-count"]]


def test_a_wrong_type_is_found(release, publication, tmp_path):
    """The twin of the test above: a package that says that codes are numbers is not valid for these rows."""
    release.publish(tmp_path / "t.csv", publication)
    package = tmp_path / "t.datapackage.json"
    described = json.loads(package.read_text(encoding="utf-8"))
    (resource,) = described["resources"]
    resource["schema"]["fields"][1]["type"] = "integer"
    del resource["hash"], resource["bytes"]
    package.write_text(json.dumps(described))
    assert not frictionless.validate(str(package)).valid


def cells_of(sheet, first, last=None):
    return [[cell.value for cell in row] for row in sheet.iter_rows(min_row=first, max_row=last)]


@pytest.mark.parametrize("profile", PROFILES)
def test_excel(release, publication, profile, tmp_path):
    path, *_ = release.publish(tmp_path / "by state.xlsx", publication, profile=profile)
    book = openpyxl.load_workbook(path)
    assert book.sheetnames == ["by state", "Notes"]
    sheet = book["by state"]
    top = int(sheet.freeze_panes[1:]) - 1
    assert sheet.freeze_panes[0] == "D"  # the three key columns and names stay in view
    columns = [column for column in expected(release, publication, profile).columns if column.role != "transformed"]
    heads = cells_of(sheet, top, top)[0]
    assert heads[:4] == ["State", "State, name", "Year", "Estimate"]
    assert sheet.cell(top - 1, 4).value == "Employees (persons)"
    assert sheet.auto_filter.ref.startswith(f"A{top}:")
    rows = cells_of(sheet, top + 1)
    assert len(rows) == release.table.num_rows
    for place, column in enumerate(columns):
        assert [row[place] for row in rows] == [
            None if isinstance(value, float) and abs(value) == float("inf") else value
            for value in column.values.to_pylist()
        ]
    for row in sheet.iter_rows():
        assert all(cell.data_type != "f" for cell in row)
    assert sheet.cell(top + 1, 1).data_type == "s"
    assert sheet.cell(top + 3, 2).value == "=Alaska"
    formats = {column.name: sheet.cell(top + 1, place).number_format for place, column in enumerate(columns, 1)}
    assert (formats["state"], formats["year"], formats["pay"]) == ("@", "0", "#,##0")
    assert profile != "basic" or (formats["pay_cv"], formats["pay_per_emp"]) == ("#,##0.0", "#,##0.0")
    notes = " ".join(str(value) for row in cells_of(book["Notes"], 1) for value in row if value is not None)
    for words in (
        "Payroll by state", "Register", "2023 to 2024", "a@example.org", "=1+1 is not a formula.", "NOT PRIVATE",
        release.facts.id, release.facts.slowscale, release.facts.columns["pay"].described, "ln(emp + 2.71828)",
        "with a probability of 95 %", "thousand USD",
    ):  # fmt: skip
        assert words in notes, words
    assert ("unreliable" in notes) == (profile == "basic")
    assert ("Transformed sums are left out" in notes) == (profile == "research")


def test_numbers_too_long_for_excel_are_text(with_numbers, tmp_path):
    numbers = [10**15 - 1, -(10**15) + 1, 10**20, 1_234_567_890_123_456, 10**15 + 1]
    release = with_numbers(numbers, [1.0] * 5)
    path, *_ = release.publish(tmp_path / "t.xlsx", ss.Publication("T"))
    book = openpyxl.load_workbook(path)
    sheet = book["t"]
    column = next(cell.column for row in sheet.iter_rows() for cell in row if cell.value == "emp")
    top = int(sheet.freeze_panes[1:])
    found = [sheet.cell(top + i, column).value for i in range(5)]
    assert found == [*numbers[:3], "1234567890123456", "1000000000000001"]
    notes = " ".join(str(cell.value) for row in book["Notes"].iter_rows() for cell in row)
    assert "Excel keeps 15 digits" in notes
    (short,) = with_numbers([1], [1.0]).publish(tmp_path / "s.xlsx", ss.Publication("T"))
    notes = " ".join(str(cell.value) for row in openpyxl.load_workbook(short)["Notes"].iter_rows() for cell in row)
    assert "Excel keeps 15 digits" not in notes


def test_what_does_not_fit_in_excel(release, publication, tmp_path):
    with refused(ss.ParameterError, "the table", code="too-large"):
        check_rows("the table", 1_048_567)
    check_rows("the table", 1_048_566)
    codes = {"state": {"01": "x" * 32_768, "02": "b", "04": "c"}}
    with refused(ss.ParameterError, "the column 'state_name'", code="too-long"):
        release.publish(tmp_path / "t.xlsx", replace(publication, codes=codes))
    assert not list(tmp_path.iterdir())


def test_names_of_sheets():
    found = sheet_names(["notes", "a" * 40, "A" * 40, "History", "'x'", "[]", "a/b"])
    assert found == ["notes 2", "a" * 31, f"{'A' * 29} 2", "History 2", "x", "Table", "a b"]
    assert all(len(name) <= 31 for name in found)
    # Excel counts UTF-16 code units, and refuses an apostrophe at the end.
    assert sheet_names(["a" * 30 + "'bb", "a" * 29 + "😀bb", "a" * 30 + "😀"]) == [
        "a" * 30,
        "a" * 29 + "😀",
        "a" * 29 + " 2",
    ]


@pytest.mark.parametrize(
    "words",
    [{"source": "s" * 32_768}, {"columns": {"emp": ss.ColumnLabel("😀" * 16_400)}}, {"keys": {"state": "s" * 32_768}}],
)
def test_long_texts_of_a_publication_are_refused_in_excel(release, tmp_path, words):
    with refused(ss.ParameterError, code="too-long"):
        release.publish(tmp_path / "t.xlsx", ss.Publication("T", **words))
    release.publish(tmp_path / "t.csv", ss.Publication("T", **words))


def test_long_notes_fit_in_rows(release, tmp_path):
    notes = ["word " * 6000, "x" * 40_000, "a\n" * 100, "short"]
    assert note_pieces("short") == ["short"]
    for note in notes:
        assert "".join(note_pieces(note)) == note
        assert all(len(piece) <= 27 * 125 for piece in note_pieces(note))
    path, *_ = release.publish(tmp_path / "t.xlsx", ss.Publication("T", notes=notes, columns={"emp": "long " * 500}))
    sheet = openpyxl.load_workbook(path)["Notes"]
    assert max(row.height or 0 for row in sheet.row_dimensions.values()) <= 409.5
    written = "".join(str(row[1].value or "") for row in sheet.iter_rows())
    assert all(note in written for note in notes)


FORMULA = "=cmd|' /C calc'!A0"


def test_names_of_columns_are_no_formulas(tmp_path):
    frame = pd.DataFrame({FORMULA: ["01", "02"], f"'{FORMULA}": ["a", "-b"], "@v": [1, 2]})
    keys = ss.Keys.from_frame(frame[[FORMULA, f"'{FORMULA}"]])
    made = ss.Session(frame).sum({"@v": ss.Gaussian(sigma=5)}, keys=keys)
    plain = made.to_csv(tmp_path / "plain.csv")
    first, *_ = plain.read_text().splitlines()
    names = [f"'{FORMULA}", f"''{FORMULA}", "'@v", "'@v_se", "'@v_low", "'@v_high"]
    assert next(csv.reader([first])) == names
    assert ss.read_release(plain).table.equals(made.table)
    _, package = made.publish(tmp_path / "p.csv", ss.Publication("T"))
    assert next(csv.reader([(tmp_path / "p.csv").read_text().splitlines()[0]])) == names
    assert frictionless.validate(str(package)).valid
    schema = json.loads(package.read_text())["resources"][0]["schema"]
    assert schema["primaryKey"] == names[:2]
    assert f"The release calls the column {FORMULA}." in schema["fields"][0]["description"]


def test_names_of_tables(release, tmp_path):
    cells = release["table"]
    *_, package = publish(release_of(release, {"a b": cells, "a-b": cells}), tmp_path / "set.csv", ss.Publication("T"))
    described = json.loads(package.read_text())
    assert [one["name"] for one in described["resources"]] == ["a-b", "a-b-2"]
    assert frictionless.validate(str(package)).valid
    for ending in ("csv", "parquet"):
        with refused(ss.ParameterError, "'a'", code="duplicate"):
            publish(release_of(release, {"A": cells, "a": cells}), tmp_path / f"case.{ending}", ss.Publication("T"))
    publish(release_of(release, {"A": cells, "a": cells}), tmp_path / "case.xlsx", ss.Publication("T"))


def test_several_tables(release, publication, tmp_path):
    cells = release["table"]
    tables = release_of(release, {"states": cells, "all": replace(cells, numbers=cells.table.slice(0, 2))})
    titled = replace(publication, tables={"all": "The first two"})
    (excel,) = publish(tables, tmp_path / "set.xlsx", titled, profile="basic")
    book = openpyxl.load_workbook(excel)
    assert book.sheetnames == ["states", "all", "Notes"]
    assert (book["states"]["A1"].value, book["all"]["A1"].value) == ("Payroll by state: states", "The first two")
    files = publish(tables, tmp_path / "set.csv", titled, profile="basic")
    assert [file.name for file in files] == ["set-states.csv", "set-all.csv", "set.datapackage.json"]
    package = frictionless.Package(str(files[-1]))
    assert frictionless.validate(str(files[-1])).valid
    assert [resource.name for resource in package.resources] == ["states", "all"]
    assert [len(resource.read_rows()) for resource in package.resources] == [6, 2]
    files = publish(tables, tmp_path / "set.parquet", titled)
    assert [file.name for file in files] == ["set-states.parquet", "set-all.parquet"]
    assert pyarrow.parquet.read_table(files[1]).num_rows == 2
    with refused(ss.ParameterError, "the name of a table", code="value"):
        publish(release_of(release, {"../x": cells, "y": cells}), tmp_path / "set.csv", titled)


@pytest.mark.parametrize("ending", ["csv", "xlsx", "parquet"])
def test_existing_files_are_kept(release, publication, tmp_path, ending):
    path = tmp_path / f"t.{ending}"
    first = release.publish(path, publication)[0].read_bytes()
    with pytest.raises(ss.ParameterError, match="already exists"):
        release.publish(path, publication, profile="basic")
    assert path.read_bytes() == first
    release.publish(path, publication, profile="basic", overwrite=True)
    assert path.read_bytes() != first


def test_all_files_or_none(release, publication, tmp_path):
    (tmp_path / "t.datapackage.json").write_text("mine")
    with pytest.raises(ss.ParameterError, match="already exists"):
        release.publish(tmp_path / "t.csv", publication)
    assert [file.name for file in tmp_path.iterdir()] == ["t.datapackage.json"]


def test_the_ending_decides(release, publication, tmp_path):
    for path in (tmp_path / "t.txt", tmp_path / ".csv"):
        with refused(ss.ParameterError, "path", code="value"):
            release.publish(path, publication)
    with refused(ss.ParameterTypeError, "path", code="type"):
        release.publish(3, publication)
    assert all(file.exists() for file in release.publish(tmp_path / "T.CSV", publication))


def test_totals_without_keys(tmp_path):
    session = ss.Session(pa.table({"pay": [1, 2, 3]}))
    total = session.sum({"pay": ss.Gaussian(sigma=1)})
    publication = ss.Publication("Total")
    for profile in PROFILES:
        for ending in ("csv", "xlsx", "parquet"):
            total.publish(tmp_path / f"{profile}.{ending}", publication, profile=profile)
        assert frictionless.validate(str(tmp_path / f"{profile}.datapackage.json")).valid
    assert "warning" not in json.loads((tmp_path / "basic.datapackage.json").read_text(encoding="utf-8"))


def test_roll_ups(release, publication, tmp_path):
    """The total and the cells in one file, by the same publication; the number of cells is a column of its own."""
    cells = release["table"]
    made = release_of(release, {"cells": cells, "states": cells.rollup(["state"]), "total": cells.rollup()})
    (excel,) = publish(made, tmp_path / "set.xlsx", publication, profile="basic")
    book = openpyxl.load_workbook(excel)
    assert book.sheetnames == ["cells", "states", "total", "Notes"]
    sheet = book["states"]
    top = int(sheet.freeze_panes[1:])
    heads = [cell.value for cell in sheet[top - 1]]
    assert heads[:3] == ["State", "State, name", "Estimate"]
    assert heads[-1] == "Cells added up"
    assert [sheet.cell(top + i, len(heads)).value for i in range(3)] == [2, 2, 2]
    notes = " ".join(str(cell.value) for row in book["Notes"].iter_rows() for cell in row)
    assert "Sums of the published cells of table, added over year" in notes
    assert "Noise was added to each cell" in notes
    files = publish(made, tmp_path / "set.csv", publication)
    assert frictionless.validate(str(files[-1])).valid
    files = publish(made, tmp_path / "set.parquet", publication)
    assert ss.read_release(files[1]).table.equals(made["states"].table)
