"""Files of Excel, Stata, SPSS and SAS, written by other libraries and read through a session."""

import zipfile
from dataclasses import FrozenInstanceError
from datetime import date, datetime, time
from types import SimpleNamespace

import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyreadstat
import pytest
from helpers.bitsources import Recorded
from helpers.errors import refused

import slowscale as ss
from slowscale.data import foreign
from slowscale.data.sources import open_source, open_table

TINY = ss.Gaussian(sigma=1e-9)  # so little noise that the result shows the exact sum
WRITERS = {".dta": pyreadstat.write_dta, ".sav": pyreadstat.write_sav, ".xpt": pyreadstat.write_xport}
FRAME = pd.DataFrame(
    {
        "county": ["01001", "48029", None],
        "emp": [3.0, 2.0**53, np.nan],
        "code": [1.0, 2.0, 2.0],
        "opened": [date(2020, 2, 29), date(1959, 12, 31), None],
        "at": pd.to_datetime(["2020-01-31 12:00:01", "1959-12-31 23:59:59", None]),
        "pay": [0.5, -2.25, np.nan],
    }
)


@pytest.fixture(params=[".dta", ".sav", ".zsav", ".xpt"])
def path(request, tmp_path):
    return written(tmp_path, request.param, FRAME)


def written(folder, ending, frame, **options):
    path = folder / f"records{ending}"
    if ending == ".zsav":
        pyreadstat.write_sav(frame, path, compress=True, **options)
    else:
        WRITERS[ending](frame, path, **options)
    return path


def session(path, **options):
    return ss.Session(path, bits=Recorded(1), **options)


def test_the_types_that_a_file_declares(path):
    rows = open_table(path).to_pyarrow().to_pydict()
    assert rows == {
        "county": ["01001", "48029", None],
        "emp": [3, 2**53, None],
        "code": [1, 2, 2],
        "opened": [date(2020, 2, 29), date(1959, 12, 31), None],
        "at": [datetime(2020, 1, 31, 12, 0, 1), datetime(1959, 12, 31, 23, 59, 59), None],
        "pay": [0.5, -2.25, None],
    }


def test_whole_numbers_that_come_as_floats_are_counted_exactly(path):
    release = session(path).sum({"emp": TINY, "pay": TINY}, unit={"pay": "0.25"}, nulls="zero")
    assert release.table["emp"].to_pylist() == [2**53 + 3]
    assert release.table["pay"].to_pylist() == [-1.75]
    with refused(ss.DataError, "column 'emp'", code="nulls"):
        session(path).sum({"emp": TINY})


def test_labels(path):
    counts = session(path, types={"code": "int64"})
    for keys, wanted in (
        ({"county": ["01001", "99"]}, [1, 0]),
        ({"opened": [date(2020, 2, 29), date(1959, 12, 31)]}, [1, 1]),
        ({"code": [1, 2, 3]}, [1, 2, 0]),
    ):
        assert counts.count(mechanism=TINY, keys=ss.Keys.cross(keys)).table["count"].to_pylist() == wanted
    day = counts.count(
        mechanism=TINY, keys=ss.Keys.cross({"day": [date(1959, 12, 31)]}), derive={"day": "cast(at as date)"}
    )
    assert day.table["count"].to_pylist() == [1]
    with refused(ss.ParameterTypeError, "by: column 'code'", code="label-type"):
        session(path).count(mechanism=TINY, keys=ss.Keys.cross({"code": [1]}))


def test_a_fraction_is_not_of_a_declared_integer_type(path):
    broken = session(path, types={"pay": "int64"})
    with refused(ss.DataError, "column 'pay'", code="declared-type"):
        broken.sum({"pay": TINY}, nulls="zero")


FORMATS = [
    (".dta", "%td", date(1960, 1, 3)),
    (".dta", "%-d", date(1960, 1, 3)),
    (".dta", "%tdD_m_Y", date(1960, 1, 3)),
    (".dta", "%tc", datetime(1960, 1, 1, 0, 0, 0, 2000)),
    (".dta", "%tC", 2.0),
    (".dta", "%tm", 2.0),
    (".sav", "ADATE10", date(1582, 10, 14)),
    (".sav", "YMDHMS20", datetime(1582, 10, 14, 0, 0, 2)),
    (".sav", "TIME8", 2.0),
    (".sav", "DTIME12", 2.0),
    (".sav", "MOYR8", 2.0),
    (".xpt", "DATE", date(1960, 1, 3)),
    (".xpt", "MONYY", date(1960, 1, 3)),
    (".xpt", "YYMMDDN", date(1960, 1, 3)),
    (".xpt", "E8601DA", date(1960, 1, 3)),
    (".xpt", "DATETIME", datetime(1960, 1, 1, 0, 0, 2)),
    (".xpt", "B8601DT", datetime(1960, 1, 1, 0, 0, 2)),
    (".xpt", "TOD", 2.0),
    (".xpt", "DTDATE", 2.0),
]


@pytest.mark.parametrize(("ending", "form", "wanted"), FORMATS)
def test_an_impossible_date_is_missing_and_changes_no_other(tmp_path, ending, form, wanted):
    for odd in (None, 1e17, -1e17, 1e70):
        frame = pd.DataFrame({"x": [2.0, odd]})
        rows = open_table(written(tmp_path, ending, frame, variable_format={"x": form})).to_pyarrow()["x"].to_pylist()
        assert rows[0] == wanted
        assert type(rows[0]) is type(wanted)
        assert rows[1] == (odd if isinstance(wanted, float) else None)


def test_integers_of_stata(tmp_path):
    frame = pd.DataFrame({"a": np.array([1, 100], np.int8), "b": np.array([1, -30000], np.int16), "c": [2**30, 5]})
    frame["c"] = frame["c"].astype(np.int32)
    table = open_table(written(tmp_path, ".dta", frame))
    assert all(dtype.is_integer() for dtype in table.schema().types)
    assert table.to_pyarrow().to_pydict() == {"a": [1, 100], "b": [1, -30000], "c": [2**30, 5]}


@pytest.fixture
def book(tmp_path):
    def book(*rows, name="records.xlsx", sheets=1):
        made = openpyxl.Workbook()
        for row in rows:
            made.active.append(row)
        for _ in range(sheets - 1):
            made.create_sheet()
        made.save(tmp_path / name)
        return tmp_path / name

    return book


HEADER = ["county", "emp", "opened", "open", "at"]


def test_cells_of_excel_are_text_as_in_a_csv(book):
    path = book(
        HEADER,
        ["01001", 3, date(2020, 2, 29), True, datetime(2020, 1, 31, 12, 0, 1)],
        [48029, 0.25, None, False, time(1, 2)],
        [None, None, None, None, None],
        ["x", 2.0**53, "n/a", None, None],
    )
    rows = open_table(path).to_pyarrow().to_pydict()
    assert rows == {
        "county": ["01001", "48029", None, "x"],
        "emp": ["3", "0.25", None, str(2**53)],
        "opened": ["2020-02-29", None, None, "n/a"],
        "open": ["true", "false", None, None],
        "at": ["2020-01-31 12:00:01", "01:02:00", None, None],
    }
    release = session(path).sum({"emp": TINY}, unit="0.25", nulls="zero")
    assert release.table["emp"].to_pylist() == [2**53 + 3.25]


def test_declared_types_of_excel(book):
    types = {"emp": "int64", "opened": "date", "open": "boolean", "at": "timestamp"}
    path = book(
        HEADER, ["01001", 3, date(2020, 2, 29), True, datetime(2020, 1, 31, 12, 0, 1)], ["48", 4, None, None, None]
    )
    source = open_source(path, types)
    assert source.table.to_pyarrow().to_pylist()[0] == {
        "county": "01001",
        "emp": 3,
        "opened": date(2020, 2, 29),
        "open": True,
        "at": datetime(2020, 1, 31, 12, 0, 1),
    }
    assert not source.unreadable
    keys = ss.Keys.cross({"opened": [date(2020, 2, 29)]})
    assert session(path, types=types).sum({"emp": TINY}, keys=keys).table["emp"].to_pylist() == [3]


@pytest.mark.parametrize("odd", ["ZZ", 1.5, "3 ", None, date(2020, 1, 1), True, "=1+1", 1e300])
def test_an_unusual_cell_changes_no_other(book, odd):
    keys = ss.Keys.cross({"county": ["1", "2"]})
    for rows in ([], [[odd, 5]]):
        path = book(["county", "emp"], [1, 10], *rows, ["2", 20])
        assert session(path).sum({"emp": TINY}, keys=keys).table["emp"].to_pylist() == [10, 20]


def test_a_row_wider_than_the_header_is_a_data_error(book, tmp_path):
    path = book(["county", "emp"], [1, 10], [2, 20, "secret"])
    ledger = ss.Ledger(tmp_path / "l")
    with refused(ss.DataError, code="too-many-cells") as caught:
        ss.Session(path, ledger)
    assert "secret" not in str(caught.value)
    assert [entry["kind"] for entry in ledger.history()] == ["created", "attempt"]


@pytest.fixture
def edited(book, tmp_path):
    """Return an Excel file of two records, with other text at the end of the cells of its sheet."""

    def edited(more):
        path = tmp_path / "edited.xlsx"
        with zipfile.ZipFile(book(["k", "emp"], ["a", 1], ["b", 2])) as given, zipfile.ZipFile(path, "w") as made:
            for name in given.namelist():
                text = given.read(name)
                made.writestr(name, text.replace(b"</sheetData>", more.encode() + b"</sheetData>"))
        return path

    return edited


CELLS = '<c r="A{0}" t="inlineStr"><is><t>z</t></is></c><c r="B{0}"><v>100</v></c>'


@pytest.mark.parametrize(
    ("more", "row"),
    [
        (f'<row r="2">{CELLS.format(2)}</row>', 2),  # a row that is there already
        (f'<row r="4">{CELLS.format(2)}</row>', 4),  # cells of another row
        (f'<x:row xmlns:x="x" r="3">{CELLS.format(3)}</x:row>', 3),
        ('<row r="4"><c r="B4"><v>1</v></c><c r="B4"><v>2</v></c></row>', 4),
        ('<row r="4"><c r="B4"><v>1</v></c><c r="A4"><v>2</v></c></row>', 4),
        ('<row><c r="$A4"><v>1</v></c></row>', 4),
    ],
)
def test_a_record_of_excel_does_not_replace_another(edited, tmp_path, more, row):
    ledger = ss.Ledger(tmp_path / "l")
    with refused(ss.DataError, code="misplaced-row") as caught:
        ss.Session(edited(more), ledger)
    assert caught.value.facts["row"] == row
    assert [entry["kind"] for entry in ledger.history()] == ["created", "attempt"]


@pytest.mark.parametrize("place", [("XFD", 1_048_576), ("AV", 1_048_576), ("XFD", 3_053)])
def test_one_cell_far_away_does_not_end_the_process(edited, place):
    letters, row = place
    path = edited(f'<row r="{row}"><c r="{letters}{row}"><v>1</v></c></row>')
    with refused(ss.DataError, code="sheet-size") as caught:
        ss.Session(path)
    assert caught.value.facts["row"] == row


def test_cells_without_a_place_and_without_a_value(edited):
    """A row may leave out its place; a cell that has only a format is not read."""
    path = edited('<row><c><v>7</v></c><c><v>4</v></c></row><row r="1048576"><c r="XFD1048576" s="0"/></row>')
    assert open_table(path).to_pyarrow().to_pydict() == {"k": ["a", "b", "7"], "emp": ["1", "2", "4"]}


@pytest.mark.parametrize("name", ["a.xls", "a.xlsb", "a.ods"])
def test_files_whose_cells_cannot_be_checked_are_refused(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    with refused(ss.ParameterError, "data", code="value"):
        ss.Session(tmp_path / name)


def test_sheets_and_headers_of_excel(book):
    with refused(ss.ParameterError, "data", code="value"):
        ss.Session(book(["a"], [1], sheets=2))
    for header in ([], ["a", None, "b"], ["a", "A"]):
        with refused(ss.ParameterError, code="header"):
            ss.Session(book(header, [1, 2, 3][: len(header)]))
    assert open_table(book(["a", "b"])).to_pyarrow().num_rows == 0


@pytest.mark.parametrize("name", ["a.xlsx", "a.xlsm", "a.dta", "a.sav", "a.zsav", "a.xpt", "a.sas7bdat"])
def test_a_wrong_file_is_a_clear_error(tmp_path, name):
    path = tmp_path / name
    path.write_text("county,secret\n1,2\n")
    with refused(ss.EngineError, "data", code="unreadable") as caught:
        ss.Session(path)
    assert "secret" not in str(caught.value)


def test_two_files_of_another_program_are_refused(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.dta").write_bytes(b"")
    with refused(ss.ParameterError, "data", code="value"):
        ss.Session(tmp_path / "*.dta")


@pytest.mark.parametrize(
    ("ending", "form", "since", "per_day"),
    [(".dta", "%td", date(1960, 1, 1), 1), (".sav", "DATE11", date(1582, 10, 14), 86_400)],
)
def test_only_the_days_of_python_are_dates(tmp_path, ending, form, since, per_day):
    """The first and the last of them are read; the days beside them are missing."""
    first, last = (day.toordinal() - since.toordinal() for day in (date.min, date.max))
    numbers = [per_day * float(day) for day in (first - 1, first, last, last + 1)]
    path = written(tmp_path, ending, pd.DataFrame({"x": numbers}), variable_format={"x": form})
    assert open_table(path).to_pyarrow()["x"].to_pylist() == [None, date.min, date.max, None]


def test_numbers_written_as_text_are_counted_only_if_the_file_has_no_types(book, tmp_path):
    frame = pd.DataFrame({"emp": ["3", "4"]})
    with refused(ss.ParameterTypeError, "column 'emp'", code="not-numbers"):
        session(written(tmp_path, ".dta", frame)).sum({"emp": TINY})
    path = book(["emp"], ["3"], ["4"])
    assert session(path).sum({"emp": TINY}).table["emp"].to_pylist() == [7]


def test_one_record_of_excel(book):
    assert open_table(book(["county", "emp"], ["01001", 3])).to_pyarrow().to_pylist() == [
        {"county": "01001", "emp": "3"}
    ]


def test_the_first_row_of_excel_is_the_header_even_if_it_is_empty(tmp_path):
    """Otherwise the first record that has a cell would decide which row is the header."""
    made = openpyxl.Workbook()
    made.active["A2"], made.active["A3"] = "emp", 3
    made.save(tmp_path / "a.xlsx")
    with refused(ss.ParameterError, code="header"):
        ss.Session(tmp_path / "a.xlsx")
    made.active["B1"] = "emp"
    made.save(tmp_path / "a.xlsx")
    with refused(ss.ParameterError, code="header"):
        ss.Session(tmp_path / "a.xlsx")


def test_what_a_file_declares_cannot_be_changed():
    meta = SimpleNamespace(
        column_names=["emp", "opened"],
        readstat_variable_types={"emp": "double", "opened": "int32"},
        original_variable_types={"emp": "%10.0g", "opened": "%td"},
    )
    declared = foreign.declared_types("read_dta", meta)
    assert [column.dtype for column in declared.values()] == [pa.float64(), pa.date32()]
    with pytest.raises(FrozenInstanceError):
        declared["emp"].dtype = pa.int64()
