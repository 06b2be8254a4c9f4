"""Data packages: CSV files, and beside them a JSON file that says what their columns are.

The JSON file follows the Data Package standard of the Frictionless project, so that programs can read the CSV files
with the right types: 01001 stays text.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from slowscale.publish.notes import NOT_PRIVATE_NOTE, publication_notes
from slowscale.publish.profiles import PublishedTable, finite
from slowscale.publish.publication import Publication
from slowscale.release.facts import escape_formulas, escaped_names

ESCAPED_WORDS = "An apostrophe stands before text that a spreadsheet would otherwise run as a formula."


def data_package(
    tables: Mapping[Path, PublishedTable], package: Path, publication: Publication
) -> dict[Path, Callable[[Path], Any]]:
    """Return the files of a data package, each with a function that writes it: the tables, then the description."""
    texts = {path: _csv_text(table) for path, table in tables.items()}
    names = _resource_names([table.name for table in tables.values()])
    resources = [
        _resource(name, path, table, *texts[path]) for name, (path, table) in zip(names, tables.items(), strict=True)
    ]
    facts = next(iter(tables.values())).release.whole  # all tables are of one release
    described: dict[str, Any] = {
        "profile": "tabular-data-package",
        "name": _slug(package.name.removesuffix(".datapackage.json")),
        "title": publication.title,
        "description": _markdown(publication, list(tables.values())),
        "created": facts.created,
        **({"sources": [{"title": publication.source}]} if publication.source else {}),
        **({"contributors": [{"title": publication.contact, "role": "contact"}]} if publication.contact else {}),
        **({"temporal": publication.period} if publication.period else {}),
        **({} if facts.private else {"warning": NOT_PRIVATE_NOTE}),
        "resources": resources,
        "publication": publication.to_dict(),
        "slowscale": {"facts": facts.to_dict()},
    }
    text = json.dumps(described, indent=2, ensure_ascii=False) + "\n"
    writers: dict[Path, Callable[[Path], Any]] = {path: _writer(content) for path, (content, _) in texts.items()}
    return {**writers, package: _writer(text.encode())}


def _writer(content: bytes) -> Callable[[Path], Any]:
    return lambda file: file.write_bytes(content)


def _csv_text(table: PublishedTable) -> tuple[bytes, list[str]]:
    """Return a table as CSV, and the columns in which text got an apostrophe."""
    raw = pa.table({column.name: finite(column.values) for column in table.columns})
    written, escaped = escape_formulas(raw)
    written = written.rename_columns(escaped_names(written.column_names))
    stream = pa.BufferOutputStream()
    pa.csv.write_csv(written, stream)
    return stream.getvalue().to_pybytes(), escaped


def _resource(name: str, path: Path, table: PublishedTable, content: bytes, escaped: list[str]) -> dict[str, Any]:
    """Return the description of a CSV file."""
    fields = []
    header = escaped_names([column.name for column in table.columns])
    for written, column in zip(header, table.columns, strict=True):
        words = f"{column.description} {ESCAPED_WORDS}" if column.name in escaped else column.description
        unit = {} if column.unit is None else {"unit": column.unit}
        words = words if written == column.name else f"{words} The release calls the column {column.name}."
        kind = {"name": written, "type": _field_type(column.values.type), "title": column.heading}
        fields.append({**kind, "description": words, **unit})
    keys = [one for one, column in zip(header, table.columns, strict=True) if column.role == "key"]
    labels = [label for key in table.keys for label in table.release.table[key].unique().to_pylist()]
    return {
        "profile": "tabular-data-resource",
        "name": name,
        "path": path.name,
        "title": table.title,
        "format": "csv",
        "mediatype": "text/csv",
        "encoding": "utf-8",
        "bytes": len(content),
        "hash": f"sha256:{hashlib.sha256(content).hexdigest()}",
        "dialect": {"delimiter": ",", "quoteChar": '"', "doubleQuote": True, "header": True},
        "schema": {
            "fields": fields,
            "missingValues": [""],
            **({"primaryKey": keys} if keys and "" not in labels else {}),
        },
        "slowscale": {"profile": table.profile, "table": table.release.name},
    }


def _field_type(dtype: pa.DataType) -> str:
    """Return the name that a type has in a table schema."""
    if pa.types.is_boolean(dtype):
        return "boolean"
    if pa.types.is_date(dtype):
        return "date"
    if pa.types.is_floating(dtype):
        return "number"
    return "integer" if pa.types.is_integer(dtype) or pa.types.is_decimal(dtype) else "string"


def _markdown(publication: Publication, tables: list[PublishedTable]) -> str:
    parts = []
    for heading, paragraphs in publication_notes(publication, tables).items():
        parts.append("\n\n".join([f"**{heading}**", *paragraphs]))
    return "\n\n".join(parts)


def _resource_names(names: Sequence[str]) -> list[str]:
    """Return names of tables as a data package requires them, all different.

    >>> _resource_names(["a b", "a-b", "a-b-2"])
    ['a-b', 'a-b-2', 'a-b-2-2']
    """
    found: list[str] = []
    for name in names:
        slug, number = _slug(name), 1
        free = slug
        while free in found:
            number += 1
            free = f"{slug}-{number}"
        found.append(free)
    return found


def _slug(name: str) -> str:
    """Return a name in lower-case letters, digits, dots, hyphens and underscores, as data packages require it."""
    return re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-") or "table"
