"""CSV files, which are read by declared rules only.

The format and the types of a file are declared; a column without a type is text. A record is one line: a line break
inside quotes is refused, because one stray quote could otherwise absorb the records after it. Formats and types are
inferred only when a plan is written (`guess_types`), where a person reads them.
"""

import codecs
import csv
import itertools
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, fields, replace
from typing import Any, BinaryIO

import ibis.expr.datatypes as dt
import numpy as np
import pyarrow as pa

from slowscale.core.data_errors import Name
from slowscale.core.errors import DataError, EngineError, ParameterError, ParameterTypeError, similar
from slowscale.data.connections import (
    engine_errors,
    fresh_name,
    is_interrupt,
    literal,
    private_duckdb,
    query_progress,
    quoted,
)
from slowscale.data.conversion import ISO_DATE, Source, converted

TEXT_ENDINGS = (".csv", ".tsv", ".txt")
COMPRESSED = {"": None, ".gz": "gzip", ".zst": "zstd"}
READ_BYTES = 1 << 23
DELIMITERS = (",", ";", "\t", "|")  # the ones that are proposed


@dataclass(frozen=True)
class CsvFormat:
    """The format of a CSV file.

    Attributes
    ----------
    delimiter
        The separator of fields. The default is a comma, or a tab in .tsv files.
    quote
        The character that fields may be enclosed in, and that is doubled inside them; "" for none.
    encoding
        The encoding, such as "utf-8" or "latin-1".
    dates
        The format of dates, such as "%d/%m/%Y".
    decimal
        The decimal separator of numbers, "." or ",".
    header
        The names of the columns, if the first line does not have them.
    """

    delimiter: str | None = None
    quote: str = '"'
    encoding: str = "utf-8"
    dates: str = ISO_DATE
    decimal: str = "."
    header: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.delimiter is not None and not _is_one_character(self.delimiter):
            raise ParameterError("csv delimiter", allowed="one character such as ',' or ';'", given=self.delimiter)
        if self.quote != "" and not _is_one_character(self.quote):
            raise ParameterError("csv quote", allowed="one character, or empty for none", given=self.quote)
        if self.decimal not in (".", ","):
            raise ParameterError("csv decimal", allowed="'.' or ','", given=self.decimal)
        if not isinstance(self.dates, str) or "%" not in self.dates:
            raise ParameterError("csv dates", allowed='a format such as "%d/%m/%Y"', given=self.dates)
        try:
            codecs.lookup(self.encoding)
        except (LookupError, TypeError, ValueError):  # ValueError: a name that is no text in UTF-8, or has a null
            raise ParameterError(
                "csv encoding", allowed='one that Python knows, such as "utf-8" or "latin-1"', given=self.encoding
            ) from None
        if self.header is not None:
            given = self.header
            if not isinstance(given, list | tuple) or not all(isinstance(name, str) for name in given):
                raise ParameterTypeError("csv header", allowed='a list of names such as ["county", "emp"]', given=given)
            object.__setattr__(self, "header", tuple(self.header))

    @staticmethod
    def of(given: Any) -> "CsvFormat":
        """Return a format from a mapping such as {"delimiter": ";"}."""
        if given is None:
            return CsvFormat()
        if isinstance(given, CsvFormat):
            return given
        known = [field.name for field in fields(CsvFormat)]
        if not isinstance(given, Mapping):
            raise ParameterTypeError("csv", allowed='a mapping such as {"delimiter": ";"}', given=given)
        for name in given:
            if name not in known:
                near = "delimiter" if name in ("sep", "separator") else similar(str(name), known)
                raise ParameterError(
                    "csv",
                    f"must have only the settings {', '.join(known)}",
                    code="unknown-name",
                    given=name,
                    remedy=f"did you mean {near!r}?" if near else None,
                )
        return CsvFormat(**given)

    def separator(self, path: str) -> str:
        """Return the separator of the fields of a file."""
        return self.delimiter or ("\t" if ".tsv" in os.path.basename(path).lower() else ",")

    @property
    def is_utf8(self) -> bool:
        """Whether files can be read without transcoding."""
        return codecs.lookup(self.encoding).name in ("utf-8", "utf-8-sig", "ascii")


def _is_one_character(text: Any) -> bool:
    return isinstance(text, str) and len(text) == 1 and ord(text) < 128 and text not in "\r\n"


def is_text_file(path: str) -> bool:
    """Return whether this module reads a file, by its name."""
    return path.lower().endswith(tuple(ending + packed for ending in TEXT_ENDINGS for packed in COMPRESSED))


def read_text_files(files: Sequence[str], types: Mapping[str, dt.DataType], form: CsvFormat, argument: str) -> Source:
    """Read CSV files, once, into a table of the private DuckDB."""
    connection = private_duckdb(files)
    raw = fresh_name("lines")
    with ExitStack() as stack:
        names: tuple[str, ...] = ()
        for file in files:
            plain = _checked_copy(file, form, connection.folder, stack, argument)
            header = header_of(file, form, argument)
            check_same_header(names or header, header, files[0], file, argument)
            sql = _read_csv_sql(plain, header, form, form.separator(file))
            with query_progress(connection, f"Reading {os.path.basename(file)}"):
                create = f"INSERT INTO {raw} BY NAME {sql}" if names else f"CREATE TABLE {raw} AS {sql}"
                _load(connection, create, file, argument)
            names = names or header
    # Misplaced quotes may have joined several lines into one record.
    broken = " OR ".join(f"contains({quoted(name)}, chr(10))" for name in names)
    if connection.con.execute(f"SELECT count(*) FROM {raw} WHERE {broken}").fetchone()[0]:
        raise DataError("inner-quote", argument=Name(argument))
    # Only declared types can have a decimal comma.
    text_numbers = form.decimal == "."
    if not types:
        return Source(connection.table(raw), text_numbers=text_numbers)
    made = converted(connection, raw, types, argument, form.dates, form.decimal, store=True)
    connection.con.execute(f"DROP TABLE {raw}")
    return replace(made, text_numbers=text_numbers)


def _read_csv_sql(file: str, names: Sequence[str], form: CsvFormat, separator: str) -> str:
    packing = COMPRESSED[_ending(file)] or "none"
    columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in names)
    return (
        f"SELECT * FROM read_csv({literal(_escaped(file))}, auto_detect = false, header = {form.header is None}, "
        f"delim = {literal(separator)}, quote = {literal(form.quote)}, escape = {literal(form.quote)}, "
        f"columns = {{{columns}}}, strict_mode = true, null_padding = false, hive_partitioning = false, "
        f"max_line_size = 16777216, compression = {literal(packing)})"
    )


def _escaped(path: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", path)


def _load(connection: Any, sql: str, file: str, argument: str) -> None:
    import duckdb

    try:
        connection.con.execute(sql)
    except duckdb.InvalidInputException as error:
        line = re.search(r"CSV Error on Line: (\d+)", str(error))
        if line is None:
            raise DataError("format", argument=Name(argument), file=Name(file)) from None
        raise DataError("field-count", argument=Name(argument), line=int(line[1]), file=Name(file)) from None
    except (duckdb.Error, RuntimeError) as error:
        if is_interrupt(error):
            raise KeyboardInterrupt from error
        raise EngineError(argument, f"could not be read ({file}): {type(error).__name__}", code="unreadable") from error


def header_of(file: str, form: CsvFormat, argument: str) -> tuple[str, ...]:
    """Return the names of the columns: the declared ones, or those in the first line."""
    if form.header is not None:
        names = form.header
    else:
        with opened(file) as stream:
            text = first_line_of(stream, form, file, argument)
        options: dict[str, Any] = {"quotechar": form.quote} if form.quote else {"quoting": csv.QUOTE_NONE}
        names = tuple(next(csv.reader([text.strip("\r\n")], delimiter=form.separator(file), **options), ()))
        others = [mark for mark in DELIMITERS if len(names) == 1 and mark in names[0]]
        if others and form.delimiter is None:
            raise ParameterError(
                f"{argument}: the header of {file}",
                "has one field, so the file seems to have another delimiter",
                code="delimiter",
                remedy=f'give csv={{"delimiter": {json.dumps(others[0])}}} (in a plan, csv = {{ delimiter = '
                f"{json.dumps(others[0])} }}), or declare the one that you mean",
            )
    if not names or any(not name.strip() for name in names):
        raise ParameterError(
            f"{argument}: the first line of {file}",
            "must name every column",
            code="header",
            remedy='if the file has no header, give the names: csv={"header": [...]}',
        )
    if len({name.casefold() for name in names}) < len(names):
        raise ParameterError(
            f"{argument}: the header of {file}",
            "must have different names, but some are equal or differ in case only",
            code="duplicate",
            remedy='rename them; if the file has no header, give the names: csv={"header": [...]}',
        )
    return names


def check_same_header(names: Sequence[str], other: Sequence[str], file: str, other_file: str, argument: str) -> None:
    """Raise unless two files have the same columns, in any order."""
    if sorted(names) != sorted(other):
        raise ParameterError(
            f"{argument}: {file} and {other_file}",
            "have different headers",
            code="mismatch",
            remedy="give files with the same columns",
        )


def opened(file: str) -> Any:
    """Open a file for reading bytes; its ending decides how it is decompressed."""
    return pa.input_stream(file, compression=COMPRESSED[_ending(file)])


def _ending(file: str) -> str:
    ending = os.path.splitext(file)[1].lower()
    return ending if ending in COMPRESSED else ""


def first_line_of(stream: BinaryIO, form: CsvFormat, file: str, argument: str) -> str:
    """Return the first line of a stream."""
    # Decoded byte by byte, because the bytes after the first line are records and must make no difference.
    decode = codecs.getincrementaldecoder(form.encoding)()
    text: list[str] = []
    try:
        while "\n" not in text[-1:] and (chunk := stream.read(1 << 12)):
            for byte in chunk:
                letters = decode.decode(bytes([byte]))
                if letters:
                    text.append(letters)
                if "\n" in letters:
                    break
    except UnicodeError:
        raise _wrong_encoding(file, form, argument) from None
    return "".join(text).removeprefix("\ufeff").split("\n", 1)[0]


def _checked_copy(file: str, form: CsvFormat, folder: str, stack: ExitStack, argument: str) -> str:
    """Check that every line is one record, and return the path of the file, or of a copy in UTF-8."""
    with engine_errors(argument, f"could not be read ({file})"), opened(file) as stream:
        if form.is_utf8:
            _check_lines(chunks_of(stream), form, file, argument)
            return file
        handle, place = tempfile.mkstemp(dir=folder, suffix=".csv")
        stack.callback(_remove, place)
        decode = codecs.getincrementaldecoder(form.encoding)()

        def transcoded() -> Iterator[bytes]:
            for chunk in itertools.chain(chunks_of(stream), [b""]):
                try:
                    text = decode.decode(chunk, final=not chunk).encode()
                except UnicodeError:
                    raise _wrong_encoding(file, form, argument) from None
                copy.write(text)
                yield text

        with open(handle, "wb") as copy:  # closed before DuckDB opens it, for Windows
            _check_lines(transcoded(), form, file, argument)
        return place


def _remove(place: str) -> None:
    with suppress(OSError):  # Windows removes no open file; the folder is removed with the connection
        os.unlink(place)


def chunks_of(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the bytes of a stream in chunks."""
    while chunk := stream.read(READ_BYTES):
        yield chunk


def _wrong_encoding(file: str, form: CsvFormat, argument: str) -> DataError:
    return DataError("encoding", argument=Name(argument), file=Name(file), encoding=Name(form.encoding))


def _check_lines(chunks: Iterator[bytes], form: CsvFormat, file: str, argument: str) -> None:
    """Raise unless every line has an even number of quotes, all line ends are of one kind, and the text is UTF-8.

    Every line then starts outside quotes, and no record extends into the next line.
    """
    quote = ord(form.quote) if form.quote else None
    line, inside, last, ends = 1, 0, b"", set()
    decode = codecs.getincrementaldecoder("utf-8")()
    for chunk in chunks:
        try:
            decode.decode(chunk)
        except UnicodeError:
            raise _wrong_encoding(file, form, argument) from None
        data = np.frombuffer(last + chunk, np.uint8)
        new = data[len(last) :]
        breaks = np.flatnonzero(new == ord("\n"))
        if quote is not None and (inside or (new == quote).any()):
            parity = np.cumsum(new == quote)[breaks] + inside
            odd = np.flatnonzero(parity % 2)
            if odd.size:
                raise DataError("open-quote", argument=Name(argument), line=line + int(odd[0]), file=Name(file))
            inside = (inside + int((new == quote).sum())) % 2
        before = data[len(last) + breaks - 1] if len(last) else new[np.maximum(breaks - 1, 0)]
        ends |= set(np.unique(before == ord("\r")).tolist())
        returns = np.flatnonzero(data == ord("\r"))
        alone = returns[(returns + 1 < data.size)]
        if (data[alone + 1] != ord("\n")).any() or len(ends) > 1:
            raise DataError("line-ends", argument=Name(argument), file=Name(file))
        line += breaks.size
        last = bytes(chunk[-1:])
    if inside:
        raise DataError("last-quote", argument=Name(argument), file=Name(file))
