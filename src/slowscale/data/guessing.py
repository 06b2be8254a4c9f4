"""Guessing: types and CSV settings that are proposed from the records, for a person to read before they are used.

A release infers nothing from the records. A proposal does, so it is made only once, when a plan is written. It checks
every value by the rules of a release (`conversion`), and notes what is uncertain.
"""

import codecs
import csv as csv_module
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import ibis
import ibis.expr.types as ir
import numpy as np
import pyarrow as pa

from slowscale.core.data_errors import Name
from slowscale.core.errors import ConfidentialWarning, DataError, ParameterError, ParameterTypeError, Shown
from slowscale.core.typing import DataLike
from slowscale.data import conversion, sources, textfiles
from slowscale.data.connections import engine_errors, fresh_name, literal, private_duckdb, quoted
from slowscale.data.conversion import ISO_DATE
from slowscale.data.textfiles import DELIMITERS, CsvFormat

CONFIDENTIAL = (
    "the proposed types were inferred from the records, which are confidential: read them before you use them, and do "
    "not share what they reveal about the records"
)
# The date formats that are tried, each with a pattern that its dates match.
DATES = {
    ISO_DATE: "[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}",
    "%Y/%m/%d": "[0-9]{4}/[0-9]{1,2}/[0-9]{1,2}",
    **{
        order.replace("/", mark): rf"[0-9]{{1,2}}[{mark}][0-9]{{1,2}}[{mark}][0-9]{{4}}"
        for mark in "/.-"
        for order in ("%d/%m/%Y", "%m/%d/%Y")
    },
}
# A number, which is hardly the name of a column.
VALUE = re.compile(r"[+-]?([0-9]{1,3}([., ][0-9]{3})+|[0-9]+)([.,][0-9]*)?([eE][+-]?[0-9]+)?\s*%?|[+-]?[.,][0-9]+")
HEADER_NOTE = "the first line may be a record, because a number or a date is in it"
# If all whole numbers of a column have the same length, and at least this one, they are probably codes.
CODE_DIGITS = 5
MOST_DECIMALS = 6
# Bytes that are letters and quotation marks in Windows encodings, but control characters in latin-1.
WINDOWS_BYTES = frozenset(range(0x80, 0xA0))
NOT_WINDOWS_BYTES = frozenset((0x81, 0x8D, 0x8F, 0x90, 0x9D))
NEARLY_ALL = 0.9  # the share of values from which on the others look like mistakes


@dataclass(frozen=True)
class Guess(Mapping[str, str]):
    """Proposed types by column: a mapping that `ss.Session(path, types=...)` takes.

    Attributes
    ----------
    types
        The types by column.
    csv
        The settings of the CSV file that differ from the defaults, or None if there are none.
    notes
        What is uncertain, by column.
    """

    types: Mapping[str, str]
    csv: Mapping[str, Any] | None = None
    notes: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> str:
        return self.types[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.types)

    def __len__(self) -> int:
        return len(self.types)


def guess_types(data: DataLike, csv: Mapping[str, Any] | None = None) -> Guess:
    """Propose the types of columns, and the settings of a CSV file, from all records.

    The proposal is inferred from confidential records: read it, correct it, and declare the types that you mean.

    Parameters
    ----------
    data
        The path of a CSV, Excel, Parquet, Stata, SPSS or SAS file (or several), or a pandas, polars or pyarrow table.
    csv
        The known settings of a CSV file, such as {"delimiter": ";"}; the others are inferred.

    Examples
    --------
    >>> import pathlib, tempfile, warnings, slowscale as ss
    >>> warnings.simplefilter("ignore", ss.ConfidentialWarning)
    >>> path = pathlib.Path(tempfile.mkdtemp(), "farms.csv")
    >>> _ = path.write_text("state;opened;cattle\\n01;31.01.2020;120\\n48;01.02.2020;4000\\n")
    >>> guess = ss.guess_types(path)
    >>> dict(guess)
    {'state': 'string', 'opened': 'date', 'cattle': 'int64'}
    >>> guess.csv
    {'delimiter': ';', 'dates': '%d.%m.%Y'}
    >>> session = ss.Session(path, types=guess, csv=guess.csv)
    """
    found = _guess(data, csv)
    warnings.warn(CONFIDENTIAL, ConfidentialWarning, stacklevel=2)
    return found


def _guess(data: Any, csv: Mapping[str, Any] | None) -> Guess:
    if isinstance(data, str | os.PathLike):
        data = [data]
    if isinstance(data, list | tuple) and data and all(isinstance(item, str | os.PathLike) for item in data):
        paths = [os.fsdecode(item) for item in data]
        if any("://" in path for path in paths):
            raise ParameterError(
                "data", allowed="files or a frame", given=Shown("a database table, whose types are declared already")
            )
        files = [file for path in paths for file in sources.matching_files(path, "data")]
        if {sources.file_kind(file, "data") for file in files} == {"CSV"}:
            return _guess_csv(files, csv)
        source = sources.open_source(paths, csv=csv)
        if source.text_numbers:
            guess = _from_text(source.table, Settings(dates=ISO_DATE, decimal="."))[0]
            return (
                replace(guess, notes={**guess.notes, "header": HEADER_NOTE}) if _may_be_record(guess.types) else guess
            )
        return _from_stored(source.table)
    if isinstance(data, ir.Table) or type(data).__module__.startswith("pyspark"):
        raise ParameterTypeError(
            "data",
            allowed="files or a frame",
            given=Shown("a database table or a Spark DataFrame, whose types are declared already"),
        )
    return _guess_frame(data, csv)


@dataclass(frozen=True)
class Settings:
    """The format of dates and the decimal separator; None if they are to be inferred."""

    dates: str | None = None
    decimal: str | None = None


# CSV files


def _guess_csv(files: Sequence[str], csv: Mapping[str, Any] | None) -> Guess:
    given = dict(csv or {})
    known = CsvFormat.of(given)
    encoding, note = (given["encoding"], None) if "encoding" in given else _encoding(files)
    table, form = _parsed(files, replace(known, encoding=encoding), given)
    guess, settings = _from_text(table, Settings(given.get("dates"), given.get("decimal")))
    form = replace(form, dates=settings.dates or ISO_DATE, decimal=settings.decimal or ".")
    notes = dict(guess.notes)
    if note is not None:
        notes = {"encoding": note, **notes}
    if form.header is None and _may_be_record(guess.types):
        notes["header"] = f"{HEADER_NOTE}; if it is, name the columns with csv = {{header: [...]}}"
    return Guess(guess.types, _changed_settings(form, files) or None, notes)


def _may_be_record(names: Iterable[str]) -> bool:
    """Return whether one of the names of columns is a number or a date, as in a file without a header."""
    forms = [VALUE.pattern, *DATES.values()]
    return any(re.fullmatch(form, name.strip()) for name in names for form in forms)


def _changed_settings(form: CsvFormat, files: Sequence[str]) -> dict[str, Any]:
    """Return the settings that differ from the defaults."""
    default = CsvFormat()
    changed = {item.name: getattr(form, item.name) for item in fields(form)}
    changed = {name: value for name, value in changed.items() if value != getattr(default, name)}
    if {changed.get("delimiter")} == {default.separator(file) for file in files}:
        del changed["delimiter"]
    return {name: list(value) if name == "header" else value for name, value in changed.items()}


def _encoding(files: Sequence[str]) -> tuple[str, str | None]:
    """Return the encoding of files, and a note if it is uncertain."""
    encodings = {_file_encoding(file) for file in files}
    if len(encodings) > 1:
        one, other, *_ = map(Name, sorted(encodings))
        raise DataError("encodings", argument=Name("data"), one=one, other=other)
    (encoding,) = encodings
    if encoding in ("utf-8", "utf-16"):
        return encoding, None
    return (
        encoding,
        f"the file is not UTF-8; it can be read as {encoding}, but also in similar encodings: check accented letters",
    )


def _file_encoding(file: str) -> str:
    is_utf8, decoder, high = True, codecs.getincrementaldecoder("utf-8")(), set[int]()
    with engine_errors("data", f"could not be read ({file})"), textfiles.opened(file) as stream:
        for number, chunk in enumerate(textfiles.chunks_of(stream)):
            if number == 0 and chunk.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                return "utf-16"
            high |= set(np.unique(np.frombuffer(chunk, np.uint8)).tolist()) & WINDOWS_BYTES
            try:
                decoder.decode(chunk)
            except UnicodeDecodeError:
                is_utf8 = False
    if is_utf8 and decoder.getstate()[0] == b"":  # the last character is complete
        return "utf-8"
    return "cp1252" if high and not high & NOT_WINDOWS_BYTES else "latin-1"


def _parsed(files: Sequence[str], form: CsvFormat, given: Mapping[str, Any]) -> tuple[ir.Table, CsvFormat]:
    """Return files as a table of text, with the first format in which every line is a record."""
    problem: Exception | None = None
    for delimiter in [given["delimiter"]] if "delimiter" in given else _delimiters(files[0], form):
        for quote in [form.quote] if "quote" in given else ['"', ""]:
            tried = replace(form, delimiter=delimiter, quote=quote)
            try:
                return textfiles.read_text_files(files, {}, tried, "data").table, tried
            except (DataError, ParameterError) as error:
                problem = problem or error
    assert problem is not None
    raise problem


def _delimiters(file: str, form: CsvFormat) -> list[str]:
    """Return the delimiters that a file may have, the most frequent in its first line first."""
    with engine_errors("data", f"could not be read ({file})"), textfiles.opened(file) as stream:
        first = textfiles.first_line_of(stream, form, file, "data")
    header = first.strip("\r\n").partition("\r")[0]  # a line may end in a carriage return only
    counts = {mark: len(next(csv_module.reader([header], delimiter=mark), ())) for mark in DELIMITERS}
    found = sorted((mark for mark in DELIMITERS if counts[mark] > 1), key=lambda mark: -counts[mark])
    return found or [form.separator(file)]


# Columns of text


@dataclass(frozen=True)
class Summary:
    """Counts over the values of a column of text: how many can be read in which way, and how long they are."""

    numbers: Mapping[str, int]

    def __getitem__(self, way: str) -> int:
        return self.numbers[way]

    def all(self, way: str) -> bool:
        """Return whether there are values, and all of them can be read in this way."""
        return self["values"] > 0 and self.numbers.get(way, 0) == self["values"]


def _from_text(table: ir.Table, settings: Settings) -> tuple[Guess, Settings]:
    """Return the proposed types of columns of text, and the format of their dates and numbers."""
    summaries = {name: _summarize(table, name) for name in table.columns}
    decimal = settings.decimal or _decimal(summaries)
    dates, notes = (settings.dates, {}) if settings.dates else _dates(summaries)
    types = {}
    for name, column in summaries.items():
        types[name], note = _propose_type(column, decimal, dates)
        if note is not None:
            notes.setdefault(name, note)
    # The rules of a release decide.
    declared = conversion.check_types(types)
    relation = quoted(table.get_name())
    made = conversion.converted(table.get_backend(), relation, declared, "data", dates or ISO_DATE, decimal)
    for name, dtype in made.unreadable.items():
        types[name] = "string"
        notes[name] = f"some values cannot be read as {dtype}"
    return Guess(types, None, {name: notes[name] for name in types if name in notes}), Settings(dates, decimal)


def _summarize(table: ir.Table, name: str) -> Summary:
    text, records = f"trim({quoted(name)})", quoted(f"records of {name}")

    def matching(pattern: str) -> str:
        return f"regexp_full_match({text}, {literal(pattern)})"

    def read(dtype: str, dates: str = ISO_DATE, decimal: str = ".") -> str:
        return f"{conversion.expression(name, 'VARCHAR', ibis.dtype(dtype), dates, decimal)} IS NOT NULL"

    tests = {
        "values": "true",
        "booleans": f"lower({text}) IN ('true', 'false')",
        "digits": matching("[0-9]+"),
        "leading zeros": matching("[+-]?0[0-9].*"),
        "timestamps": read("timestamp"),
    }
    sizes = {"shortest": f"min(length({text}))", "longest": f"max(length({text}))"}
    for mark, escaped in ((".", r"\."), (",", ",")):
        tests |= {
            f"int64 {mark}": read("int64", decimal=mark),
            f"float64 {mark}": read("float64", decimal=mark),
            f"decimal {mark}": matching(rf"[+-]?([0-9]+({escaped}[0-9]*)?|{escaped}[0-9]+)"),
            f"thousands {mark}": matching(rf"[+-]?[0-9]{{1,3}}({escaped}[0-9]{{3}})+"),
        }
        sizes |= {
            f"integer digits {mark}": f"max(length(ltrim(split_part({text}, {literal(mark)}, 1), '+-')))",
            f"decimal digits {mark}": f"max(length(rtrim(split_part({text}, {literal(mark)}, 2), '0')))",
        }
    # A CASE avoids the slow conversion of values that do not have the form of a date.
    tests |= {form: f"CASE WHEN {matching(shape)} THEN {read('date', form)} END" for form, shape in DATES.items()}
    measures = {**{way: f"sum({records}) FILTER ({test})" for way, test in tests.items()}, **sizes}
    present = f"FROM {quoted(table.get_name())} WHERE {text} <> ''"
    distinct = f"SELECT {quoted(name)}, count(*) AS {records} {present} GROUP BY 1"
    query = f"SELECT {', '.join(measures.values())} FROM ({distinct})"
    with engine_errors("data", quote=False):
        found = table.get_backend().con.execute(query).fetchone()
    return Summary({way: number or 0 for way, number in zip(measures, found, strict=True)})


def _decimal(summaries: Mapping[str, Summary]) -> str:
    """Return the decimal separator: a comma if some column has numbers with commas and none has numbers with points."""
    comma = [
        column.all("float64 ,") and not column.all("float64 .") and not column.all("thousands ,")
        for column in summaries.values()
    ]
    point = [column.all("float64 .") and not column.all("float64 ,") for column in summaries.values()]
    return "," if any(comma) and not any(point) else "."


def _dates(summaries: Mapping[str, Summary]) -> tuple[str | None, dict[str, str]]:
    """Return the format of dates, which is one per file, and notes about columns."""
    ways = {name: [form for form in DATES if column.all(form)] for name, column in summaries.items()}
    sure = [forms[0] for forms in ways.values() if len(forms) == 1]
    chosen = max(dict.fromkeys(sure), key=sure.count, default=None)
    notes = {}
    for name, forms in ways.items():
        both = " or ".join(f'"{form}"' for form in forms)
        if len(forms) > 1 and chosen in forms:
            notes[name] = f'the dates match {both}; "{chosen}" was chosen, as in another column'
        elif len(forms) > 1:
            notes[name] = f'the dates match {both}: declare the type "date", and give the format as csv dates'
        elif forms and forms[0] != chosen:
            notes[name] = f"the dates match {both}, unlike those of other columns: convert them with derive"
    return chosen, notes


def _propose_type(summary: Summary, decimal: str, dates: str | None) -> tuple[str, str | None]:
    """Return the proposed type of a column of text, and a note if it is uncertain."""
    if not summary["values"]:
        return "string", "there are no values"
    if summary.all("booleans"):
        return "boolean", None
    if summary.all(f"float64 {decimal}"):
        return _propose_number_type(summary, decimal)
    if dates is not None and summary.all(dates):
        return "date", None
    if summary.all("timestamps") and not summary.all(ISO_DATE):
        return "timestamp", None
    if summary.all("thousands ,"):
        return (
            "string",
            "the commas may separate thousands, or be decimal commas: set csv decimal, or use derive",
        )
    for what, count in (("numbers", summary[f"float64 {decimal}"]), ("dates", max(summary[form] for form in DATES))):
        if count > NEARLY_ALL * summary["values"]:
            return "string", f"most values are {what}, but some are not"
    return "string", None


def _propose_number_type(summary: Summary, decimal: str) -> tuple[str, str | None]:
    if summary["leading zeros"]:
        return "string", "some values start with 0, so they are treated as codes"
    if summary.all("digits") and summary["shortest"] == summary["longest"] >= CODE_DIGITS:
        return (
            "string",
            f'all values have {summary["longest"]} digits, so they are treated as codes; for numbers declare "int64"',
        )
    if summary.all(f"int64 {decimal}"):
        return "int64", None
    whole, places = summary[f"integer digits {decimal}"], summary[f"decimal digits {decimal}"]
    if not summary.all(f"decimal {decimal}") or places > MOST_DECIMALS or whole + places > 38:
        return "float64", None
    note = f'"{decimal}" may separate thousands' if summary.all(f"thousands {decimal}") else None
    return f"decimal({18 if whole + places <= 18 else 38}, {places})", note


# Columns with a type


def _from_stored(table: ir.Table) -> Guess:
    """Propose int64 for columns of floats that are all whole numbers; other columns keep their types."""
    floats = [name for name, dtype in table.schema().items() if dtype.is_floating()]
    types: dict[str, str] = {}
    if floats:
        tests = [
            f"count({quoted(name)}) > 0 AND coalesce(bool_and(isfinite({quoted(name)}) "
            f"AND {quoted(name)} = trunc({quoted(name)}) AND abs({quoted(name)}) <= 9007199254740992), false)"
            for name in floats
        ]
        with engine_errors("data", quote=False):
            query = f"SELECT {', '.join(tests)} FROM {quoted(table.get_name())}"
            found = table.get_backend().con.execute(query).fetchone()
        types = {name: "int64" for name, whole in zip(floats, found, strict=True) if whole}
    return Guess(types, None, dict.fromkeys(types, "the values are stored as floats, but all are whole numbers"))


def _guess_frame(data: Any, csv: Any) -> Guess:
    """Propose types for the object columns of a pandas frame, and for floats that are all whole numbers."""
    objects = {}
    if type(data).__module__.split(".")[0] == "pandas" and hasattr(data, "columns"):
        objects = {name: data[name] for name in data.columns if data[name].dtype == object}
    rest = data.drop(columns=list(objects)) if objects else data
    guess = Guess({})
    if not objects or len(rest.columns):
        guess = _from_stored(sources.open_source(rest, csv=csv).table)
    types, notes = dict(guess.types), dict(guess.notes)
    for name, values in objects.items():
        items = [None if value is None or value != value else value for value in values]
        kinds = {type(item) for item in items} - {type(None)}
        # Arrow does not accept isolated surrogates: they become question marks.
        texts = [None if item is None else str(item).encode("utf-8", "replace").decode() for item in items]
        frame = pa.table({name: pa.array(texts, pa.string())})
        connection, place = private_duckdb(), fresh_name("objects")
        connection.con.register(place, frame)
        found = _from_text(connection.table(place), Settings(ISO_DATE, "."))[0]
        proposed = "int64" if kinds == {int} else found[name]
        if proposed == "string" and kinds != {str}:
            notes[name] = "the column holds Python objects of several types: convert it before it is read"
        elif sources.open_source(data[[name]], {name: proposed}).unreadable:
            notes[name] = f"some values cannot be read as {proposed}"
        else:
            types[name] = proposed
            notes |= found.notes if proposed == found[name] else {}
    return Guess(types, None, notes)
