"""CSV files are read by declared rules: no record changes how another one is read."""

import gzip
import io
import itertools
import math
from dataclasses import FrozenInstanceError
from datetime import date
from decimal import Decimal
from types import SimpleNamespace

import duckdb
import pytest
from helpers.bitsources import Recorded
from helpers.errors import refused

import slowscale as ss
from slowscale.data import textfiles
from slowscale.data.sources import open_source, open_table
from slowscale.data.textfiles import CsvFormat

TINY = ss.Gaussian(sigma=1e-9)  # so little noise that the result shows the exact sum


@pytest.fixture
def write(tmp_path):
    def write(text, name="data.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def read(path, types=None, **csv):
    return open_table(path, types, csv or None).to_pyarrow().to_pylist()


def total(path, column="emp", types=None, csv=None, **options):
    return (
        ss.Session(path, types=types, csv=csv, bits=Recorded(1)).sum({column: TINY}, **options).table[column][0].as_py()
    )


def test_a_column_without_a_type_is_text_as_written(write):
    path = write("county,emp\n01001,1.50\n 7 ,x\n,\n")
    assert read(path) == [
        {"county": "01001", "emp": "1.50"},
        {"county": " 7 ", "emp": "x"},
        {"county": None, "emp": None},
    ]


def test_text_is_summed_as_exact_decimals(write):
    values = [
        "0.1",
        "+0.2",
        " -0.05 ",
        "100",
        ".25",
        "7.",
        "123456789012345678",
        "-.000000000001",
        "1.5000000000000000",
    ]
    path = write("emp\n" + "\n".join(values) + "\n")
    wanted = sum(map(Decimal, values))
    session = ss.Session(path, bits=Recorded(1))
    release = session.sum({"emp": ss.Gaussian(sigma=1e-20)}, unit="0.000000000001")
    assert release.table["emp"][0].as_py() == pytest.approx(float(wanted), rel=1e-15)
    assert total(write("emp\n1\n\n3\n"), nulls="zero") == 4


@pytest.mark.parametrize("value", ["x", "1e3", "1,5", "0x10", "1_000", "nan", "inf", "--1", "1.2.3", "1.0000000000001"])
def test_text_that_is_not_a_plain_number_is_an_error_not_a_zero(write, value):
    path = write(f"k;emp\na;{value}\nb;2\n")
    with refused(ss.DataError, "column 'emp'", code="unreadable") as caught:
        total(path, csv={"delimiter": ";"}, nulls="zero")
    assert value not in str(caught.value)
    keys = ss.Keys.cross({"k": ["b"]})  # the record with the invalid value is not published
    assert total(path, csv={"delimiter": ";"}, keys=keys) == 2


def test_declared_types(write):
    path = write(
        "i,f,d,b,day,at\n"
        "1,1.5,2.50,true,2020-01-31,2020-01-31 12:00:00\n"
        "2.0,1e3,2.5,N,2020-1-31,2020-01-31\n"
        "2.5,x,2.555,maybe,31/01/2020,now\n"
        ",,,,,\n"
    )
    types = {"i": "int64", "f": "float64", "d": "decimal(9, 2)", "b": "boolean", "day": "date", "at": "timestamp"}
    source = open_source(path, types)
    rows = source.table.to_pyarrow().to_pydict()
    assert rows["i"] == [1, 2, None, None]
    assert rows["f"] == [1.5, 1000.0, None, None]
    assert rows["d"] == [Decimal("2.50"), Decimal("2.50"), None, None]
    assert rows["b"] == [True, False, None, None]
    assert rows["day"] == [date(2020, 1, 31), date(2020, 1, 31), None, None]
    assert [moment is None for moment in rows["at"]] == [False, False, True, True]
    assert set(source.unreadable) == set(types)


def test_a_value_of_the_wrong_type_is_an_error_if_it_is_used(write):
    path = write("k,n,x\na,1,1\nb,X,2\n")
    session = ss.Session(path, types={"n": "int64", "x": "int64"}, bits=Recorded(1))
    # As a label it matches no key; in a column that is not used it is ignored.
    assert session.sum({"x": TINY}, keys=ss.Keys.cross({"n": [1, 2]})).table["x"].to_pylist() == [1, 0]
    assert session.sum({"x": TINY}).table["x"].to_pylist() == [3]
    for options in ({"where": "n > 0"}, {"derive": {"m": "n + 1"}, "where": "m > 0"}):
        with refused(ss.DataError, "column 'n'", code="declared-type"):
            session.sum({"x": TINY}, **options)
    with refused(ss.DataError, "column 'n'", code="declared-type"):
        session.sum({"n": TINY}, nulls="zero")


def test_dates_are_read_as_declared(write):
    lines = "".join("01/02/2020,1000\n" for _ in range(1000))
    for odd in ("", "13/02/2020,1\n", "02/13/2020,1\n"):
        path = write("opened,emp\n" + lines + odd)
        types = {"opened": "date", "emp": "int64"}
        for dates, before in (("%d/%m/%Y", "2020-01-15"), ("%m/%d/%Y", "2020-01-15")):
            session = ss.Session(path, types=types, csv={"dates": dates}, bits=Recorded(1))
            keys = ss.Keys.cross({"opened": [date(2020, 2, 1), date(2020, 1, 2)]})
            wanted = [1_000_000, 0] if dates == "%d/%m/%Y" else [0, 1_000_000]
            assert session.sum({"emp": TINY}, keys=keys).table["emp"].to_pylist() == wanted, (odd, before)


def test_encodings(write):
    text = "name,emp\nMünchen,1\nŁódź,2\n"
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32-le", "cp1250", "iso8859_2"):
        path = write(text.encode(encoding))
        assert [row["name"] for row in read(path, encoding=encoding)] == ["München", "Łódź"], encoding
    path = write("name,emp\nCôte,1\n".encode("latin-1"))
    assert read(path, encoding="latin-1") == [{"name": "Côte", "emp": "1"}]
    for declared in ("utf-8", "utf-16", "ascii"):
        with refused(ss.DataError, code="encoding"):
            read(path, encoding=declared)


def test_a_decimal_comma_needs_a_declared_type(write):
    path = write("x;n\n1,5;1.234\n")
    form = {"delimiter": ";", "decimal": ","}
    assert total(path, "x", types={"x": "decimal(9, 2)"}, csv=form, unit="0.5") == 1.5
    for column in ("x", "n"):
        with refused(ss.ParameterTypeError, code="not-numbers"):
            total(path, column, csv=form)
    with refused(ss.DataError, "column 'n'", code="declared-type"):
        total(path, "n", types={"n": "float64"}, csv=form)


def test_endings_in_any_case(write):
    packed = gzip.compress(b"a,b\n1,2\n")
    assert read(write(packed, "a.csv.GZ")) == read(write(packed, "b.CSV.gz")) == [{"a": "1", "b": "2"}]


def test_dialects(write):
    path = write("a;b\n'x;y';1,5\n'it''s';2\n")
    assert read(path, {"b": "float64"}, delimiter=";", quote="'", decimal=",") == [
        {"a": "x;y", "b": 1.5},
        {"a": "it's", "b": 2.0},
    ]
    assert read(write('a,b\n5" pipe,1\n6" pipe,"\n'), quote="") == [
        {"a": '5" pipe', "b": "1"},
        {"a": '6" pipe', "b": '"'},
    ]
    assert read(write("1,2\n3,4\n"), header=["a", "b"]) == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]
    assert read(write("a,b\r\n1,2\r\n")) == [{"a": "1", "b": "2"}]
    assert read(write("a,b\n1,2")) == [{"a": "1", "b": "2"}]
    assert read(write("a,b\n")) == []


@pytest.mark.parametrize(
    ("odd", "code"),
    [
        ('x,"2\n', "open-quote"),
        ('x,y"2\n', "open-quote"),
        ('x,"2\nz"\n', "open-quote"),
        ("x,2,3\n", "field-count"),
        ("x\n", "field-count"),
        ('x,"2"3\n', "field-count"),
        ("x,2\r\n", "line-ends"),
        ("x,2\r", "line-ends"),
        (b"x,\xff\n", "encoding"),
    ],
)
@pytest.mark.parametrize("rest", ["", 'last,"9"\n'])
def test_a_line_that_is_not_a_record_is_an_error_that_quotes_nothing(write, odd, code, rest):
    odd = odd if isinstance(odd, bytes) else odd.encode()
    path = write(b"k,emp\na,1\n" + odd + b"b,2\n" * 20 + rest.encode())
    with refused(ss.DataError, code=code) as caught:
        ss.Session(path)
    assert caught.value.facts.get("line", 3) == 3
    assert caught.value.__cause__ is None


def test_lines_are_recognized_across_chunks(write, monkeypatch):
    from slowscale.data import textfiles

    body = 'k,emp\r\n"a ""quoted"" one",1\r\nb,2\r\n' * 50
    for size in (1, 2, 3, 7, 64):
        monkeypatch.setattr(textfiles, "READ_BYTES", size)
        assert len(read(write(body))) == 149
        with refused(ss.DataError, code="open-quote"):
            read(write(body + 'c,"3\r\n'))
        with refused(ss.DataError, code="line-ends"):
            read(write(body + "c,3\n"))
        with refused(ss.DataError, code="line-ends"):
            read(write(body + "c\r,3\r\n"))


@pytest.mark.parametrize(
    ("csv", "code"),
    [
        ({"delimiter": ";;"}, "value"),
        ({"quote": "ab"}, "value"),
        ({"encoding": "klingon"}, "value"),
        ({"dates": "iso"}, "value"),
        ({"decimal": ";"}, "value"),
        ({"separator": ";"}, "unknown-name"),
        (";", "type"),
    ],
)
def test_mistakes_in_a_dialect(write, csv, code):
    with refused(ss.SlowscaleError, f"csv {next(iter(csv))}" if code == "value" else "csv", code=code):
        ss.Session(write("a\n1\n"), csv=csv)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "header"),
        ("\n", "header"),
        ("a,,c\n1,2,3\n", "header"),
        ("a,A\n1,2\n", "duplicate"),
        ("a;b\n1;2\n", "delimiter"),
    ],
)
def test_mistakes_in_a_header(write, text, code):
    with refused(ss.ParameterError, code=code):
        ss.Session(write(text))


def test_files_of_one_table_have_one_header(write):
    write("a,b\n1,2\n", "1.csv")
    path = write("b,c\n1,2\n", "2.csv")
    with refused(ss.ParameterError, f"data: {path.parent / '1.csv'} and {path}", code="mismatch"):
        ss.Session(path.parent / "*.csv")
    path.write_text("b,a\n4,3\n")
    assert sorted(row["a"] for row in read(path.parent / "*.csv")) == ["1", "3"]


def test_the_file_is_parsed_once(write):
    path = write("emp\n1\n2\n")
    session = ss.Session(path, bits=Recorded(1))
    path.unlink()
    assert session.sum({"emp": TINY}).table["emp"].to_pylist() == [3]
    assert not math.isnan(session.sum({"emp": TINY}).table["emp_se"][0].as_py())


def is_refused(text):
    """Return whether a line of a text has an odd number of quotes, or line ends are of several kinds."""
    lines = text.split("\n")
    kinds = {line.endswith("\r") for line in lines[:-1]}
    inner = [line.removesuffix("\r") for line in lines]
    return any(line.count('"') % 2 for line in lines) or len(kinds) > 1 or any("\r" in line for line in inner)


@pytest.mark.parametrize("size", [1, 2, 3, 10])
def test_every_line_is_one_record_in_chunks_of_any_size(size):
    """All texts of up to five characters that matter."""
    for text in ("".join(letters) for length in range(6) for letters in itertools.product('a"\r\n', repeat=length)):
        chunks = (text[start : start + size].encode() for start in range(0, len(text), size))
        try:
            textfiles._check_lines(chunks, CsvFormat(), "a.csv", "data")
            refused = False
        except ss.DataError:
            refused = True
        assert refused == is_refused(text), repr(text)


@pytest.mark.parametrize("size", [1, 2, 5, 100])
@pytest.mark.parametrize("bad", [1, 2, 4])
def test_the_line_with_an_open_quote_is_named(size, bad):
    text = "".join('"b"' + '"' * (line == bad) + "c\n" for line in range(1, 6)).encode()
    chunks = (text[start : start + size] for start in range(0, len(text), size))
    with refused(ss.DataError, f"data: line {bad} of a.csv", code="open-quote"):
        textfiles._check_lines(chunks, CsvFormat(), "a.csv", "data")


def test_without_quotes_a_quote_is_an_ordinary_character():
    textfiles._check_lines(iter([b'a"\n', b'"\n']), CsvFormat(quote=""), "a.csv", "data")


@pytest.mark.parametrize("length", [1, 5, 4095, 4096, 4097, 9000])
def test_the_first_line_may_have_any_length(length):
    stream = io.BytesIO(b"\xef\xbb\xbf" + b"h" * length + b"\nsecond\nthird\n")
    assert textfiles.first_line_of(stream, CsvFormat(), "a.csv", "data") == "h" * length
    assert textfiles.first_line_of(io.BytesIO(b"h" * length), CsvFormat(), "a.csv", "data") == "h" * length


def test_only_single_ascii_characters_separate_fields():
    assert CsvFormat.of({"delimiter": "\x7f"}).delimiter == "\x7f"
    for wrong in ("\x80", "\n", "\r", "ab", ""):
        with pytest.raises((ss.ParameterError, ss.ParameterTypeError)):
            CsvFormat.of({"delimiter": wrong})


def test_files_after_the_one_with_another_header_are_not_named(write):
    paths = [write(f"{header}\n1,2\n", name) for header, name in (("a,b", "1.csv"), ("b,c", "2.csv"), ("a,b", "3.csv"))]
    with refused(ss.ParameterError, f"data: {paths[0]} and {paths[1]}", code="mismatch"):
        ss.Session(paths)


@pytest.mark.parametrize("rest", [b"\xff\n", b"x" * 5000 + b"\xff\n", b"x\n" * 3000 + b"\xff"])
@pytest.mark.parametrize("first", [b"", b"h", b"a,b"])
def test_bytes_after_the_first_line_do_not_matter_to_it(first, rest):
    found = textfiles.first_line_of(io.BytesIO(first + b"\n" + rest), CsvFormat(), "a.csv", "data")
    assert found == first.decode()


def test_a_file_that_ends_within_a_character_is_refused(write):
    whole = "a,b\n1,2\n".encode("utf-16")
    assert read(write(whole), encoding="utf-16") == [{"a": "1", "b": "2"}]
    with refused(ss.DataError, code="encoding"):
        read(write(whole + b"3"), encoding="utf-16")


def failing(error):
    def execute(sql):
        raise error

    return SimpleNamespace(con=SimpleNamespace(execute=execute))


def test_an_interrupt_while_a_file_is_read_is_an_interrupt():
    with pytest.raises(KeyboardInterrupt):
        textfiles._load(failing(duckdb.InterruptException("Interrupted!")), "SELECT 1", "a.csv", "data")


@pytest.mark.parametrize("error", [duckdb.IOException, RuntimeError])
def test_the_message_of_the_engine_is_not_quoted(error):
    with pytest.raises(ss.EngineError) as caught:
        textfiles._load(failing(error("a confidential value")), "SELECT 1", "a.csv", "data")
    assert str(caught.value) == f"data could not be read (a.csv): {error.__name__}"


def test_a_format_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        CsvFormat().delimiter = ";"
