"""An outline has the columns and the types of the data, and no record is read for it."""

import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pyreadstat
import pytest
from helpers.errors import refused

import slowscale as ss
from slowscale.data.sources import outline


@pytest.fixture
def stata(tmp_path):
    path = tmp_path / "a.dta"
    pyreadstat.write_dta(pd.DataFrame({"county": ["01001"], "emp": [3.0]}), path)
    return str(path)


def test_two_files_with_different_headers(tmp_path):
    for name, header in (("a.csv", "x,y"), ("b.csv", "y,z")):
        (tmp_path / name).write_text(f"{header}\n1,2\n")
    first, second = str(tmp_path / "a.csv"), str(tmp_path / "b.csv")
    with refused(ss.ParameterError, f"data: {first} and {second}", code="mismatch"), outline([first, second]):
        pass


def test_settings_of_csv_are_refused_for_other_kinds(tmp_path, stata):
    pa.parquet.write_table(pa.table({"emp": [1]}), tmp_path / "a.parquet")
    for path in (str(tmp_path / "a.parquet"), stata):
        with (
            refused(ss.ParameterError, "csv", code="conflict"),
            outline(path, csv={"delimiter": ";"}),
        ):
            pass


def test_an_excel_file_has_the_columns_of_its_first_row(tmp_path):
    book = openpyxl.Workbook()
    book.active.append(["county", " emp "])
    book.active.append(["01001", 3])
    book.save(tmp_path / "a.xlsx")
    with outline(str(tmp_path / "a.xlsx"), {"emp": "int64"}) as given:
        session = ss.Session(**given)
        assert {name: str(dtype) for name, dtype in session.table.schema().items()} == {
            "county": "string",
            "emp": "int64",
        }
        assert session.table.count().execute() == 0
    openpyxl.Workbook().save(tmp_path / "b.xlsx")
    with refused(ss.ParameterError, code="header"), outline(str(tmp_path / "b.xlsx")):
        pass
    (tmp_path / "c.xlsx").write_text("not a workbook")
    with refused(ss.EngineError, "data", code="unreadable"), outline(str(tmp_path / "c.xlsx")):
        pass


def test_files_that_a_session_refuses_have_no_outline(tmp_path, stata):
    (tmp_path / "a.csv").write_text("x\n")
    for paths, given in (([stata, stata], "2"), ([stata, str(tmp_path / "a.csv")], "CSV and Stata, SPSS or SAS")):
        with refused(ss.ParameterError, "data", code="value") as caught, outline(paths):
            pass
        with pytest.raises(ss.ParameterError) as again:
            ss.Session(paths)
        assert caught.value.given == given
        assert str(caught.value) == str(again.value)


def test_no_record_of_a_stata_file_is_read(stata, monkeypatch):
    rows, real = [], pyreadstat.read_dta

    def read(*given, **options):
        frame, meta = real(*given, **options)
        rows.append(len(frame))
        return frame, meta

    monkeypatch.setattr(pyreadstat, "read_dta", read)
    with outline(stata) as given:
        assert given["data"].schema == pa.schema({"county": pa.string(), "emp": pa.float64()})
        assert given["data"].num_rows == 0
    assert rows == [0]


def test_a_failed_reading_quotes_no_record(stata, monkeypatch):
    def read(*given, **options):
        raise RuntimeError("a confidential value")

    monkeypatch.setattr(pyreadstat, "read_dta", read)
    with (
        refused(ss.EngineError, "data", code="engine") as caught,
        outline(stata),
    ):
        pass
    assert "confidential" not in str(caught.value)
