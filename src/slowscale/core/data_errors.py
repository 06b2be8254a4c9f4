"""The sentences of `DataError`, by code: constant text, filled with names and whole numbers only.

An error about records must not quote one. Therefore these sentences are the only ones that it can have, and its
constructor accepts nothing but names from the request, the schema or the path (`Name`) and whole numbers.
"""

from typing import NamedTuple


class Name(str):
    """A text that is known without the records: a name in the request or the schema, a type, a path or an encoding."""


class Sentence(NamedTuple):
    """The parts of an error, in which {column}, {file} and so on are filled in."""

    subject: str
    problem: str
    remedy: str


_CORRECT = "correct these records, or leave them out with a filter (where)"
_ORDINARY_QUOTES = 'give csv={{"quote": ""}} if quotes are ordinary characters'
_UNCOUNTABLE = {
    "nulls": 'has missing values (choose nulls = "zero" for the table to count them as 0)',
    "unreadable": "has values that are not numbers (choose a column of numbers)",
    "nan": "has values that are NaN",
    "infinite": "has infinite values",
    "digits": "has values that are too large to be counted exactly (derive a column that converts them to floats)",
    "negatives": "has negative values, which a transformation mechanism does not allow "
    '(choose negatives = "zero" for the table to count them as 0, or choose an additive mechanism)',
    "too-large": "has values that are too large to be counted in units of {unit} (give a larger unit)",
    "too-large-to-rank": "has values that are too large to be counted in units of {unit}, the least size of the grid "
    "(start the grid at a larger size)",
    "supplied-uncountable": "has values that cannot be counted: missing, negative, not numbers, infinite, or too large "
    "for units of {unit}",
    "uncountable": "has values that are not numbers, are infinite, or are too large to be counted in units of {unit}",
}
# A file with sums that the curator computed.
_RUN_AGAIN = "run the SQL that `slowscale sql` prints, and write its result unchanged to a Parquet file"
_SUPPLIED = {
    "supplied-columns": ("{file}", "must have the columns {columns}, in this order"),
    "supplied-type": ("the column {column} of {file}", "must have the type {dtype}"),
    "supplied-digits": ("{file}", "has numbers with too many digits"),
    "supplied-total": ("{file}", "must have one row, because the table is a total"),
    "supplied-groups": ("{file}", "has another number of rows than its manifest states under groups"),
    "supplied-label": ("the column {column} of {file}", "has missing labels"),
    "supplied-twice": ("{file}", "has several rows with the same labels"),
    "supplied-count": (
        "the column {column} of {file}",
        "has numbers that cannot be counts: missing, negative, or larger than the number of records",
    ),
    "supplied-sum": (
        "the column {column} of {file}",
        "has numbers that no sum can have: negative where no value is, or too large for the number of records",
    ),
}
SENTENCES: dict[str, Sentence] = {
    **{code: Sentence(*words, _RUN_AGAIN) for code, words in _SUPPLIED.items()},
    # Columns
    **{code: Sentence("column {column!r}", problem, _CORRECT) for code, problem in _UNCOUNTABLE.items()},
    "no-entity": Sentence(
        "column {column!r}",
        "identifies the protected entities, but has missing values",
        "fill them in, or leave the records out with a filter (where)",
    ),
    "precision": Sentence(
        "the sum of column {column!r}",
        "has more digits than the engine can represent",
        "derive a column that rounds it",
    ),
    "above-largest": Sentence(
        "column {column!r}",
        "has {what} above its largest value",
        "correct these records, or leave them out with a filter (where); or raise the largest value, from public "
        "knowledge and with a reason, by `slowscale ledger set-largest` or Ledger.set_largest",
    ),
    "not-text": Sentence(
        "column {column!r}",
        "has values that cannot be read as text, such as half of a surrogate pair",
        "correct them",
    ),
    "declared-type": Sentence(
        "column {column!r}",
        "has values that are not {dtype}, its declared type",
        "correct them (numbers have no thousands separators); or declare float64 or decimal(18, 2) for fractions; or, "
        "for codes such as NA, declare string and derive a column of numbers from it",
    ),
    # Tables
    "no-labels": Sentence(
        "keys", "must not be empty, but no record has a label in every key column", "check `by` and the types"
    ),
    "no-records": Sentence(
        "no record", "is part of the release, so there are no losses", "check the keys and the filter"
    ),
    "not-studied": Sentence(
        "column {column!r}",
        "cannot be studied: it must have at least 5 values, all finite, none below 0, and their median must be greater "
        "than 0, because the mechanisms are calibrated to it",
        "choose another column",
    ),
    "not-numbers": Sentence("column {column!r}", "must hold numbers, but holds {dtype}", "choose another column"),
    "few-cells": Sentence(
        "column {column!r}",
        "has {cells} cells whose sum is greater than 0: the study compares quintiles, and needs at least 5",
        "choose another column, or fewer key columns",
    ),
    # Frames
    "invalid": Sentence(
        "{argument}",
        "has values that are not valid for their Arrow type, such as text that is not UTF-8",
        "correct them",
    ),
    "mixed-types": Sentence(
        "{argument}: column {column!r}",
        "must have values of one Python type, but has several",
        "convert them, or give an array with a dtype",
    ),
    "python-values": Sentence(
        "{argument}: column {column!r}",
        "has values that do not fit in its type, such as an integer of more than 64 bits",
        "correct them, or give an array with a dtype",
    ),
    "query": Sentence("{argument}", "cannot be read: the query of the DuckDB relation fails", "correct the query"),
    "collect": Sentence(
        "{argument}",
        "cannot be read: collecting the polars LazyFrame raises an error, for example because a value cannot be cast",
        "correct its query, or cast with strict=False",
    ),
    # CSV files
    "field-count": Sentence(
        "{argument}: line {line} of {file}",
        "must have as many fields as the header",
        'correct the line, or declare the format of the file: csv={{"delimiter": …, "quote": …}}',
    ),
    "format": Sentence(
        "{argument}: {file}",
        "cannot be read as CSV in the declared format",
        'correct it, or declare its format: csv={{"delimiter": …, "quote": …}}',
    ),
    "inner-quote": Sentence(
        "{argument}",
        "has a quote in the middle of a field, which joins a record with the next line",
        f"correct it, or {_ORDINARY_QUOTES}",
    ),
    "open-quote": Sentence(
        "{argument}: line {line} of {file}",
        "has a quote that is not closed in that line",
        f"a record must be one line: correct it, or {_ORDINARY_QUOTES}",
    ),
    "last-quote": Sentence(
        "{argument}: the last line of {file}", "has a quote that is not closed", f"correct it, or {_ORDINARY_QUOTES}"
    ),
    "header-quote": Sentence(
        "{argument}: line 1 of {file}",
        "has a quote that is not closed in that line",
        "write the header in one line, and use column names without line breaks",
    ),
    "line-ends": Sentence("{argument}: {file}", "must have line ends of one kind, but has several", "convert them"),
    "encoding": Sentence(
        "{argument}: {file}",
        "is not encoded in {encoding}",
        'declare its encoding, such as csv={{"encoding": "latin-1"}} or, in a plan, csv = {{ encoding = "latin-1" }}; '
        'the Unicode text of spreadsheet programs is "utf-16"',
    ),
    "encodings": Sentence(
        "{argument}", "must be files in one encoding, but some are {one} and some {other}", "convert them to one"
    ),
    # Excel files
    "too-many-cells": Sentence("{argument}: row {row} of {file}", "has more cells than the header", "correct the row"),
    "misplaced-row": Sentence(
        "{argument}: row {row} of {file}",
        "is in the file twice, or its cells are not in order, so that one record would replace another",
        "save the file again in its program",
    ),
    "sheet-size": Sentence(
        "{argument}: the cells of {file}",
        "reach row {row:,} and column {width:,}, more than {most:,} cells",
        "delete cells that do not belong to the records, or save the records as CSV or Parquet",
    ),
}
