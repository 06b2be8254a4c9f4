"""A published table and its facts, written to files and read back.

The facts travel with the table: in the schema metadata of a Parquet file or Arrow table, and in a JSON file beside a
CSV file.
"""

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from slowscale.core.errors import EngineError, ParameterError
from slowscale.core.files import Writers, check_output_path, write_files
from slowscale.release.facts import Facts

METADATA = b"slowscale"  # the key of the facts in the metadata of an Arrow schema
BASIC_METADATA = b"slowscale_facts"  # the key there in files for readers, which are not the whole release
PUBLICATION = b"slowscale_publication"  # the key of titles and notes there, if the table was published with any
FILE_ENTRIES = ("types", "escaped", "escaped_names", "sha256")  # of the JSON file beside a CSV file, besides the facts
# The types that columns of a released table may have, by the names that Arrow gives them.
COLUMN_TYPES: dict[str, pa.DataType] = {
    str(dtype): dtype
    for dtype in (pa.string(), pa.int64(), pa.bool_(), pa.date32(), pa.float64(), pa.decimal128(38, 0))
}
# Text that a spreadsheet runs as a formula when it opens a CSV file, unless the text is a number.
SPREADSHEET_FORMULA = r"^[=+\-@\t\r]"
WRITTEN_NUMBER = r"^[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$"


def with_facts(table: pa.Table, facts: Facts) -> pa.Table:
    """Return the table with the facts in the metadata of its schema."""
    return table.replace_schema_metadata({METADATA: json.dumps(facts.to_dict())})


def write_parquet(table: pa.Table, facts: Facts, path: str | os.PathLike[str], overwrite: bool) -> Path:
    """Write a Parquet file with the facts in its schema, and return its path."""
    return write_files(parquet_files(table, facts, path, overwrite), overwrite=overwrite)


def parquet_files(table: pa.Table, facts: Facts, path: str | os.PathLike[str], overwrite: bool) -> Writers:
    """Return the Parquet file to write, with the function that writes it; for several files that belong together."""
    target = check_output_path(path, ".parquet", overwrite)
    described = with_facts(table, facts)
    return {target: lambda file: pa.parquet.write_table(described, file)}


def read_parquet(source: Path) -> tuple[pa.Table, dict[str, Any]]:
    """Return the table and the facts that `write_parquet` wrote."""
    table = pa.parquet.read_table(source)
    metadata = table.schema.metadata or {}
    facts = json.loads(metadata[METADATA])
    if PUBLICATION in metadata:  # names that a publication put beside the labels, and what it says of each column
        kept = [field.name for field in table.schema if (field.metadata or {}).get(b"role") != b"name"]
        table = pa.table({name: table[name] for name in kept})
    return table.replace_schema_metadata(None), facts


def write_csv(table: pa.Table, facts: Facts, path: str | os.PathLike[str], overwrite: bool) -> Path:
    """Write a CSV file and, beside it, a JSON file with its facts, column types and SHA-256; return the CSV's path."""
    return write_files(csv_files(table, facts, path, overwrite), overwrite=overwrite)


def csv_files(table: pa.Table, facts: Facts, path: str | os.PathLike[str], overwrite: bool) -> Writers:
    """Return the CSV file and the JSON file to write, each with the function that writes it."""
    target = check_output_path(path, ".csv", overwrite)
    facts_target = check_output_path(f"{target}.json", ".json", overwrite)
    types = {field.name: str(field.type) for field in table.schema}
    escaped_table, escaped = escape_formulas(table)
    names = escaped_names(table.column_names)
    described = {**facts.to_dict(), "types": types, **({"escaped": escaped} if escaped else {})}
    if names != table.column_names:
        escaped_table = escaped_table.rename_columns(names)
        described["escaped_names"] = True

    def write_table(file: Path) -> None:  # before the facts, which name its hash
        pa.csv.write_csv(escaped_table, file)
        described["sha256"] = file_hash(file)

    def write_facts(file: Path) -> None:
        file.write_text(json.dumps(described, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    return {target: write_table, facts_target: write_facts}


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_csv(source: Path) -> tuple[pa.Table, dict[str, Any]]:
    """Return the table and the facts that `write_csv` wrote."""
    facts = json.loads(Path(f"{source}.json").read_text(encoding="utf-8"))
    if facts.pop("sha256") != file_hash(source):
        raise EngineError(
            source,
            f"does not belong to its facts: {source.name}.json was written with another content of the file. Use "
            "both files as they were released",
        )
    types = {name: COLUMN_TYPES[dtype] for name, dtype in facts.pop("types").items()}
    header = escaped_names(list(types)) if facts.pop("escaped_names", False) else list(types)
    table = pa.csv.read_csv(
        source,
        parse_options=pa.csv.ParseOptions(newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(
            column_types=dict(zip(header, types.values(), strict=True)), strings_can_be_null=False
        ),
    )
    if table.column_names != header:
        raise ParameterError(
            f"{source} and {source.name}.json do not belong together: the columns differ. Use the pair of files that "
            "one call of to_csv wrote"
        )
    return _unescape_formulas(table.rename_columns(list(types)), facts.pop("escaped", [])), facts


def escape_formulas(table: pa.Table) -> tuple[pa.Table, list[str]]:
    """Put an apostrophe before text that a spreadsheet would run as a formula; return also the changed columns.

    In a changed column, text that starts with an apostrophe gets another one, so that removing the first apostrophe
    restores every value.
    """
    import pyarrow.compute as pc

    escaped = []
    for i, entry in enumerate(table.schema):
        if not pa.types.is_string(entry.type):
            continue
        text = table[i]
        runs = pc.and_not(
            pc.match_substring_regex(text, SPREADSHEET_FORMULA), pc.match_substring_regex(text, WRITTEN_NUMBER)
        )
        if pc.any(runs).as_py():
            marked = pc.or_(runs, pc.starts_with(text, "'"))
            table = table.set_column(i, entry, pc.if_else(marked, pc.binary_join_element_wise("'", text, ""), text))
            escaped.append(entry.name)
    return table, escaped


def escaped_names(names: list[str]) -> list[str]:
    """Return the names of columns as a CSV file has them: with an apostrophe where a spreadsheet would run a formula.

    If there is such a name, one that starts with an apostrophe gets another one too, so that all stay different.
    """
    runs = [bool(re.match(SPREADSHEET_FORMULA, name)) and not re.match(WRITTEN_NUMBER, name) for name in names]
    if not any(runs):
        return list(names)
    return [f"'{name}" if run or name.startswith("'") else name for name, run in zip(names, runs, strict=True)]


def _unescape_formulas(table: pa.Table, columns: list[str]) -> pa.Table:
    """Return the table that `escape_formulas` was given."""
    import pyarrow.compute as pc

    for name in columns:
        i = table.schema.get_field_index(name)
        text = pc.replace_substring_regex(table[i], "^'", "", max_replacements=1)
        table = table.set_column(i, table.schema.field(i), text)
    return table
