"""Proposed types: every value is read by the rules of a release, and notes say what is uncertain."""

import datetime
import gzip
from dataclasses import FrozenInstanceError
from decimal import Decimal
from types import SimpleNamespace

import ibis
import ibis.expr.datatypes as dt
import openpyxl
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from helpers.errors import refused
from hypothesis import given, settings
from hypothesis import strategies as st

import slowscale as ss
from slowscale.data import guessing
from slowscale.data.guessing import guess_types
from slowscale.data.sources import open_source

pytestmark = pytest.mark.filterwarnings("ignore:the proposed types:slowscale.core.errors.ConfidentialWarning")


def guessed(tmp_path, text, name="data.csv", csv=None):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    guess = guess_types(path, csv)
    assert not open_source(path, guess, guess.csv).unreadable
    return guess


def column(tmp_path, values, csv=None):
    guess = guessed(tmp_path, "\n".join(["x;y", *(f"{value};" for value in values), ""]), csv=csv)
    return guess["x"], guess.notes.get("x")


@pytest.mark.parametrize(
    ("values", "dtype", "note"),
    [
        (["1", "-20", "+3", ""], "int64", None),
        (["7"], "int64", None),
        (["2020-01-31"], "date", None),
        (["1.0", "2."], "int64", None),
        (["9223372036854775807", "1"], "int64", None),
        (["9223372036854775808", "1"], "decimal(38, 0)", None),
        (["1.5", "2.25", "7"], "decimal(18, 2)", None),
        (["0.123456", "1"], "decimal(18, 6)", None),
        (["0.1234567", "1"], "float64", None),
        (["1e3", "2"], "float64", None),
        (["1234567890123456.25", "1"], "decimal(18, 2)", None),
        (["12345678901234567.25", "1"], "decimal(38, 2)", None),
        (["1" * 32 + ".123456", "1"], "decimal(38, 6)", None),
        (["1" * 33 + ".123456", "1"], "float64", None),
        (["01", "2"], "string", "start with 0"),
        (["0", "2"], "int64", None),
        (["0.5", "-0.25"], "decimal(18, 2)", None),
        (["48029", "48031"], "string", "all values have 5 digits"),
        (["2019", "2020"], "int64", None),
        (["true", "False", ""], "boolean", None),
        (["0", "1"], "int64", None),
        (["yes", "no"], "string", None),
        (["2020-01-31", "2020-02-01"], "date", None),
        (["2020-01-31", "2020-02-30"], "string", None),
        (["2020-01-31 12:00", "2020-02-01"], "timestamp", None),
        (["31/01/2020", "01/02/2020"], "date", None),
        (["01/31/2020", "01/02/2020"], "date", None),
        (["01/02/2020", "03/04/2020"], "string", '"%d/%m/%Y" or "%m/%d/%Y": declare the type "date"'),
        (["13/02/2020", "02/13/2020"], "string", None),
        (["01.02.20"], "string", None),
        (["1,5", "2,25"], "decimal(18, 2)", None),
        (["1,234", "5,678"], "string", "may separate thousands"),
        (["1.234", "5.678"], "decimal(18, 3)", '"." may separate thousands'),
        (["1"] * 20 + ["NA"], "string", "most values are numbers, but some are not"),
        (["1"] * 10 + ["NA"], "string", "most values are numbers, but some are not"),
        (["1"] * 9 + ["NA"], "string", None),
        (["2020-01-31"] * 10 + ["NA"], "string", "most values are dates, but some are not"),
        (["nan", "1"], "string", None),
        (["", " "], "string", "there are no values"),
        (["TX", "IA"], "string", None),
    ],
)
def test_types_of_text(tmp_path, values, dtype, note):
    found, why = column(tmp_path, values)
    assert found == dtype
    assert (why is None) == (note is None), why
    assert note is None or note in why


def test_the_format_of_a_file(tmp_path):
    guess = guessed(tmp_path, "name;opened;price\nKöln;31.12.2020;1,50\nBonn;01.02.2021;2\n".encode("cp1252"))
    assert dict(guess) == {"name": "string", "opened": "date", "price": "decimal(18, 1)"}
    assert guess.csv == {"delimiter": ";", "encoding": "latin-1", "dates": "%d.%m.%Y", "decimal": ","}
    assert "not UTF-8" in guess.notes["encoding"]
    assert guessed(tmp_path, "a\nit\u2019s\n".encode("cp1252")).csv == {"encoding": "cp1252"}
    assert guessed(tmp_path, "a,b\nö,1\n".encode("utf-16")).csv == {"encoding": "utf-16"}
    assert guessed(tmp_path, "a,b\nö,1\n".encode("utf-8-sig")).csv is None
    assert guessed(tmp_path, "a\tb\n1\t2\n", "data.tsv").csv is None
    assert guessed(tmp_path, "a\tb\n1\t2\n").csv == {"delimiter": "\t"}
    assert guessed(tmp_path, '"a|x"|b\n"1|2"|2\n').csv == {"delimiter": "|"}
    assert guessed(tmp_path, 'pipe,n\n5" pipe,1\n').csv == {"quote": ""}
    assert guessed(tmp_path, gzip.compress(b"a;b\n1;2\n"), "data.csv.gz").csv == {"delimiter": ";"}
    assert "may be a record" in guessed(tmp_path, "1,2\n3,4\n").notes["header"]


def test_the_encoding_of_every_byte(tmp_path):
    """The bytes of control characters in latin-1 mean Windows, if Windows has a character for them."""
    path = tmp_path / "data.csv"
    for byte in range(1, 256):
        path.write_bytes(b"a\n" + bytes([byte]) + b"\xe9\n")  # the second byte is not UTF-8 before a line end
        try:
            in_windows = bytes([byte]).decode("cp1252") != chr(byte)
        except UnicodeDecodeError:
            in_windows = False
        assert guessing._file_encoding(str(path)) == ("cp1252" if in_windows else "latin-1"), byte
    path.write_bytes(b"a\n\x92\x81\n")
    assert guessing._file_encoding(str(path)) == "latin-1"


def test_the_most_frequent_delimiter_of_the_first_line_is_tried_first(tmp_path):
    assert guessed(tmp_path, "a,b;c;d\nv,w;x;y\n").csv == {"delimiter": ";"}
    assert guessed(tmp_path, "a,b,c;d\nv,w,x;y\n").csv is None


@pytest.mark.parametrize(
    ("text", "header", "noted"),
    [
        ("1,2\n3,4\n", None, True),
        ("1.5, 2\n3,4\n", None, True),
        ("1.2.3,b\n3,4\n", None, False),
        ("a,2\n3,4\n", None, True),
        ("a,2024-05-17\n3,2024-05-18\n", None, True),
        ("a,b\n3,4\n", None, False),
        ("1,2\n3,4\n", ["1", "2"], False),
        ("1,2\n3,4\n", ["a", "b"], False),
    ],
)
def test_a_first_line_of_numbers_may_be_a_record(tmp_path, text, header, noted):
    guess = guessed(tmp_path, text, csv=header and {"header": header})
    assert set(guess.notes) == ({"header"} if noted else set())


def test_files_of_several_endings_have_one_delimiter(tmp_path):
    """A tab is the default of .tsv files only, so it is stated if another file needs it."""
    for text, delimiter in (("a\tb\n1\t2\n", "\t"), ("a,b\n1,2\n", ","), ("a\n1\n", ",")):
        files = [tmp_path / "1.csv", tmp_path / "2.tsv"]
        for file in files:
            file.write_text(text)
        for order in (files, files[::-1]):
            guess = guess_types(order)
            assert len(open_source(order, guess, guess.csv).table.columns) == len(guess)
            assert text == "a\n1\n" or guess.csv == {"delimiter": delimiter}
        assert guess_types(files).csv == {"delimiter": delimiter}


def test_a_given_format_of_dates_that_is_not_tried(tmp_path):
    assert column(tmp_path, ["x"], csv={"dates": "%d %b %Y"}) == ("string", None)


def test_a_given_quote_is_kept(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text('pipe,n\n5" pipe,1\n')
    with refused(ss.DataError, code="open-quote"):
        guess_types(path, {"quote": '"'})
    path.write_text('a,b\n"x",1\n')
    assert guess_types(path, {"quote": ""}).csv == {"quote": ""}


def test_a_proposal_cannot_be_changed(tmp_path):
    guess = guessed(tmp_path, "a\n1\n")
    with pytest.raises(FrozenInstanceError):
        guess.types = {"a": "string"}
    with pytest.raises(FrozenInstanceError):
        guessing.Settings().decimal = ","
    with pytest.raises(FrozenInstanceError):
        guessing.Summary({}).numbers = {"values": 1}


def test_given_settings_are_kept(tmp_path):
    text = "a;b\n01/02/2020;1,234\n03/04/2020;2,345\n"
    given = {"dates": "%m/%d/%Y", "decimal": ",", "delimiter": ";", "header": ["x", "y"]}
    guess = guessed(tmp_path, text.partition("\n")[2], csv=given)
    assert dict(guess) == {"x": "date", "y": "decimal(18, 3)"}
    assert guess.csv == given
    with refused(ss.ParameterError, "csv", code="unknown-name"):
        guess_types(tmp_path / "data.csv", {"delimeter": ";"})


def test_one_column_determines_the_date_format_of_another(tmp_path):
    guess = guessed(tmp_path, "a,b,c\n31/01/2020,01/02/2020,2020-01-01\n30/01/2020,03/04/2020,2020-01-01\n")
    assert dict(guess) == {"a": "date", "b": "date", "c": "string"}
    assert guess.csv == {"dates": "%d/%m/%Y"}
    assert '"%d/%m/%Y" was chosen, as in another column' in guess.notes["b"]
    assert "unlike those of other columns" in guess.notes["c"]


def test_the_rules_of_a_release_decide(tmp_path, monkeypatch):
    monkeypatch.setattr(guessing, "_propose_type", lambda *_: ("int64", None))
    assert column(tmp_path, ["1", "x"]) == ("string", "some values cannot be read as int64")


def test_any_name_of_a_column(tmp_path):
    names = ["records", "values", 'say ""hi""', "ü", "count(*)"]
    guess = guessed(tmp_path, ",".join(f'"{name}"' for name in names) + "\n1,2,3,4,5\n1,2,3,4,5\n")
    assert set(guess.values()) == {"int64"}


def test_the_proposal_opens_a_session(tmp_path):
    guess = guessed(tmp_path, "county;emp\n01001;1,5\n01003;2\n")
    session = ss.Session(tmp_path / "data.csv", types=guess, csv=guess.csv)
    assert session.table.schema()["emp"].is_decimal()
    assert len(guess) == 2
    assert list(guess) == ["county", "emp"]


@pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")  # Ibis calls it
def test_the_curator_is_warned(tmp_path):
    (tmp_path / "data.csv").write_text("a\nsecret\n")
    with pytest.warns(ss.ConfidentialWarning, match="were inferred from the records, which are confidential") as caught:
        ss.guess_types(tmp_path / "data.csv")
    (warning,) = [warning for warning in caught if warning.category is ss.ConfidentialWarning]
    assert warning.filename == __file__
    assert "secret" not in str(warning.message)


@pytest.mark.parametrize("text", ["", "a,,b\n1,2,3\n", 'a,b\n1,"2\n"3,4\n5\n'])
def test_files_that_no_format_can_read(tmp_path, text):
    (tmp_path / "data.csv").write_text(text)
    with pytest.raises((ss.DataError, ss.ParameterError)) as caught:
        guess_types(tmp_path / "data.csv")
    assert caught.value.code in ("header", "open-quote")
    assert str(tmp_path / "data.csv") in caught.value.subject


def test_other_kinds_of_data(tmp_path):
    book = openpyxl.Workbook()
    for row in (
        ["county", "emp", "opened", "share"],
        ["01001", 3, datetime.date(2020, 1, 31), 0.25],
        ["48", 4, None, 1],
    ):
        book.active.append(row)
    book.save(tmp_path / "data.xlsx")
    assert dict(guess_types(tmp_path / "data.xlsx")) == {
        "county": "string",
        "emp": "int64",
        "opened": "date",
        "share": "decimal(18, 2)",
    }
    table = pa.table({"a": ["1"], "b": [1.0], "c": [1.5], "d": [float("nan")], "e": [2.0**60], "f": [1]})
    pa.parquet.write_table(table, tmp_path / "data.parquet")
    for data in (table, pl.from_arrow(table), tmp_path / "data.parquet"):
        guess = guess_types(data)
        assert dict(guess) == {"b": "int64"}
        assert "whole numbers" in guess.notes["b"]
        assert not open_source(data, guess).unreadable


def test_objects_of_pandas():
    frame = pd.DataFrame(
        {
            "whole": pd.Series([10000, None, 20000], dtype=object),
            "text": pd.Series(["01", "2", None], dtype=object),
            "truth": pd.Series([True, None, False], dtype=object),
            "day": pd.Series([datetime.date(2020, 1, 31), None, None], dtype=object),
            "mixed": pd.Series([1, "x", None], dtype=object),
            "holes": [1.0, None, 3.0],
        }
    )
    guess = guess_types(frame)
    assert dict(guess) == {
        "whole": "int64",
        "text": "string",
        "truth": "boolean",
        "day": "date",
        "holes": "int64",
    }
    assert "several types" in guess.notes["mixed"]
    assert "start with 0" in guess.notes["text"]
    assert set(guess.notes) == {"mixed", "text", "holes"}  # 10000 and 20000 are integers, not codes
    assert not open_source(frame, guess).unreadable
    assert dict(guess_types(frame[["whole"]])) == {"whole": "int64"}


def test_a_missing_value_among_objects_is_no_value():
    frame = pd.DataFrame({"n": pd.Series([1, float("nan"), 20, None, pd.NaT], dtype=object)})
    guess = guess_types(frame)
    assert dict(guess) == {"n": "int64"}
    assert not guess.notes


def test_frames_of_any_module_of_pandas():
    kind = type("DataFrame", (pd.DataFrame,), {"__module__": "pandas.core.frame"})
    assert dict(guess_types(kind({"day": pd.Series(["2020-01-31"], dtype=object)}))) == {"day": "date"}


def test_a_value_without_text_does_not_stop_the_guess():
    frame = pd.DataFrame({"k": pd.Series(["TX", "\ud800"], dtype=object)})
    assert dict(guess_types(frame)) == {"k": "string"}


def test_decimals_of_pandas():
    frame = pd.DataFrame({"money": pd.Series([Decimal("1.50"), Decimal(2), None], dtype=object)})
    assert dict(guess_types(frame)) == {"money": "decimal(18, 1)"}


class SparkFrame:
    """An object that seems to be a Spark DataFrame."""

    __module__ = "pyspark.sql.dataframe"


@pytest.mark.parametrize("data", [ibis.memtable({"x": [1.0]}), SparkFrame()], ids=["ibis", "spark"])
def test_tables_of_engines_declare_their_types(data):
    with refused(ss.ParameterTypeError, "data", code="type"):
        guess_types(data)


@pytest.mark.parametrize(("data", "code"), [("postgresql://host/db#t", "value"), (3, "type"), (None, "type")])
def test_data_without_anything_to_guess(data, code):
    with refused(ss.SlowscaleError, "data", code=code):
        guess_types(data)


VALUE = st.one_of(
    st.integers(-(10**20), 10**20).map(str),
    st.decimals(allow_nan=False, allow_infinity=False, places=3).map(str),
    st.floats().map(str),
    st.dates().map(str),
    st.dates().map(lambda day: day.strftime("%d/%m/%Y")),
    st.sampled_from(["", " ", "true", "0", "1", "01", "1.", ".5", "1e5", "+7", "2020-02-30", "x", '"q;"', "1,5"]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(VALUE, min_size=1, max_size=6))
def test_a_proposed_type_reads_every_value(tmp_path_factory, values):
    column(tmp_path_factory.mktemp("guess"), values)


def test_a_failed_reading_does_not_quote_records():
    def execute(query):
        raise RuntimeError("a confidential value")

    backend = SimpleNamespace(con=SimpleNamespace(execute=execute))
    table = SimpleNamespace(schema=lambda: {"x": dt.float64}, get_name=lambda: "t", get_backend=lambda: backend)
    for read in (guessing._from_stored, lambda table: guessing._summarize(table, "x")):
        with pytest.raises(ss.EngineError) as caught:
            read(table)
        assert str(caught.value).startswith("data could not be read: RuntimeError")
        assert "confidential" not in str(caught.value)


def test_files_in_two_encodings_are_refused(tmp_path):
    for name, encoding in (("a.csv", "utf-8"), ("b.csv", "latin-1")):
        (tmp_path / name).write_bytes("x\né\n".encode(encoding))
    with refused(ss.DataError, "data", code="encodings"):
        guess_types([tmp_path / "a.csv", tmp_path / "b.csv"])


def test_a_file_with_line_ends_of_several_kinds_is_refused(tmp_path):
    path = tmp_path / "mixed.csv"
    path.write_bytes(b"s,x\ra,1\nb,2\r\n")
    with refused(ss.DataError):
        ss.guess_types(path)
