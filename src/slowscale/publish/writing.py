"""The files of a publication: Parquet, Excel, or CSV files with a data package, each with notes for readers.

A data package is a JSON file beside CSV files that describes their columns. It follows the Data Package standard of the
Frictionless project, so that programs read the CSV files with the right types: 01001 stays text.
"""

import hashlib
import json
import os
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from slowscale.accounting import RecordPolicy
from slowscale.core.errors import ParameterError, ParameterTypeError
from slowscale.core.files import check_output_path, comparable_name, write_files
from slowscale.core.numbers import grid, percent
from slowscale.mechanisms.calibration import notion_in_words
from slowscale.publish.excel import check_excel, write_excel
from slowscale.publish.profiles import CV_WORDS, PublishedTable, finite, flag_words, published_tables
from slowscale.publish.publication import NOT_PRIVATE_NOTE, Publication
from slowscale.release.describing import clipped_words, column_errors, error_sentences
from slowscale.release.facts import BASIC_METADATA, METADATA, PUBLICATION, escape_formulas, escaped_names, file_hash
from slowscale.release.release import Release
from slowscale.release.table import ReleasedSums, released_by, rollup_in_words

ENDINGS = (".parquet", ".csv", ".xlsx")
Writers = dict[Path, Callable[[Path], Any]]
ESCAPED_WORDS = "An apostrophe stands before text that a spreadsheet would otherwise run as a formula."
# The names of types in a table schema; other types are strings.
FIELD_TYPES = {
    "boolean": (pa.types.is_boolean,),
    "date": (pa.types.is_date,),
    "number": (pa.types.is_floating,),
    "integer": (pa.types.is_integer, pa.types.is_decimal),
}


def publish(
    release: Release,
    path: str | os.PathLike[str],
    publication: Publication,
    *,
    profile: str = "research",
    overwrite: bool = False,
) -> list[Path]:
    """Write the files of a publication, all or none, and return their paths; see `Release.publish`.

    Parameters
    ----------
    release
        The release. Several tables become one Excel file with a sheet for each, one data package with a CSV file for
        each (table-name.csv), or a Parquet file for each (table-name.parquet).
    path
        The file to write, ending in .parquet, .csv or .xlsx.
    publication
        What is shown besides the numbers.
    profile
        "basic" or "research".
    overwrite
        Whether to replace existing files.
    """
    target = Targets.of(path)
    if not isinstance(release, Release):
        raise ParameterTypeError("release", allowed="a Release", given=type(release))
    # One table is named after its file.
    named = release.sums if len(release.sums) > 1 else dict(zip([target.stem], release.sums.values(), strict=False))
    tables = published_tables(named, publication, profile)
    files = target.files(list(named) if len(named) > 1 else None)
    free = {name: check_output_path(file, file.suffix.lower(), overwrite) for name, file in files.items()}
    if target.kind == ".xlsx":
        check_excel(publication, tables)
        (place,) = free.values()
        notes = publication_notes(publication, tables)
        writers: Writers = {place: lambda file: write_excel(file, publication, tables, notes)}
    elif target.kind == ".csv":
        *places, package = free.values()
        writers = data_package(dict(zip(places, tables, strict=True)), package, publication)
    else:
        described = [_described_table(table, publication) for table in tables]
        writers = {
            place: partial(pa.parquet.write_table, table) for place, table in zip(free.values(), described, strict=True)
        }
    write_files(writers, overwrite=overwrite)
    return list(writers)


@dataclass(frozen=True)
class Targets:
    """Where the files of a publication go: a folder, the start of their names, and their ending."""

    folder: Path
    stem: str
    ending: str

    @property
    def kind(self) -> str:
        """The ending in lower case."""
        return self.ending.lower()

    @staticmethod
    def of(path: str | os.PathLike[str]) -> "Targets":
        """Return the targets that belong to a path."""
        if not isinstance(path, str | os.PathLike):
            raise ParameterTypeError("path", allowed="text or os.PathLike", given=type(path))
        target = Path(path)
        ending = next((one for one in ENDINGS if target.name.lower().endswith(one)), None)
        if ending is None or len(target.name) == len(ending):
            raise ParameterError("path", allowed=f"a file that ends in {', '.join(ENDINGS)}", given=target)
        return Targets(target.parent, target.name[: -len(ending)], target.name[-len(ending) :])

    def files(self, names: list[str] | None = None) -> dict[str, Path]:
        """Return all files, for a single table or for tables with names."""
        if self.kind == ".xlsx" or names is None:
            found = {"": self.folder / f"{self.stem}{self.ending}"}
        else:
            for i, name in enumerate(names):
                if not name or Path(name).name != name or any(letter in name for letter in '<>:"/\\|?*'):
                    raise ParameterError("the name of a table", allowed="a part of a file's name", given=name)
                if comparable_name(name) in map(comparable_name, names[:i]):
                    words = "is the name of another table as well, apart from case"
                    why = "rename one: on some systems, one file would be written over the other"
                    raise ParameterError(f"{name!r}", words, code="duplicate", remedy=why)
            found = {name: self.folder / f"{self.stem}-{name}{self.ending}" for name in names}
        if self.kind == ".csv":
            found["data package"] = self.folder / f"{self.stem}.datapackage.json"
        return found


def _described_table(table: PublishedTable, publication: Publication) -> pa.Table:
    """Return a table with the facts of its release and the publication as metadata, for Parquet.

    `read_release` reads the profile "research". The profile "basic" lacks columns for that, so its facts have another
    name.
    """
    words = {
        "title": table.title,
        "profile": table.profile,
        "publication": publication.to_dict(),
        "notes": publication_notes(publication, [table]),
    }
    facts = json.dumps(table.release.file_facts.to_dict())
    name = METADATA if table.profile == "research" else BASIC_METADATA
    return table.arrow().replace_schema_metadata({name: facts, PUBLICATION: json.dumps(words, ensure_ascii=False)})


def data_package(tables: Mapping[Path, PublishedTable], package: Path, publication: Publication) -> Writers:
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
        "description": "\n\n".join(
            "\n\n".join([f"**{heading}**", *paragraphs])
            for heading, paragraphs in publication_notes(publication, list(tables.values())).items()
        ),
        "created": facts.created,
        **({"sources": [{"title": publication.source}]} if publication.source else {}),
        **({"contributors": [{"title": publication.contact, "role": "contact"}]} if publication.contact else {}),
        **({"temporal": publication.period} if publication.period else {}),
        **({} if facts.private else {"warning": NOT_PRIVATE_NOTE}),
        "resources": resources,
        "publication": publication.to_dict(),
        "slowscale": {"facts": facts.to_dict()},
    }
    contents = {path: content for path, (content, _) in texts.items()}
    contents[package] = (json.dumps(described, indent=2, ensure_ascii=False) + "\n").encode()
    return {path: partial(Path.write_bytes, data=content) for path, content in contents.items()}


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
        words = words if written == column.name else f"{words} The release calls the column {column.name}."
        kind = next(
            (name for name, of in FIELD_TYPES.items() if any(is_it(column.values.type) for is_it in of)), "string"
        )
        unit = {} if column.unit is None else {"unit": column.unit}
        fields.append({"name": written, "type": kind, "title": column.heading, "description": words, **unit})
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


def publication_notes(publication: Publication, tables: Sequence[PublishedTable]) -> dict[str, list[str]]:
    """Return the notes on published tables, paragraphs by heading: how to read them, the noise, the guarantee."""
    about = {"Source": publication.source, "Period": publication.period, "Contact": publication.contact}
    found = {name: [text] for name, text in about.items() if text is not None}
    if not all(table.release.whole.private for table in tables):
        found = {"Warning": [NOT_PRIVATE_NOTE], **found}
    if publication.notes:
        found["Notes"] = list(publication.notes)
    found["How to read the numbers"] = _reading(publication, tables)
    for table in tables:
        of = f" (table {table.name})" if len(tables) > 1 else ""
        found[f"How the noise was added{of}"] = _noise(publication, table.release)
        found[f"Privacy{of}"] = _privacy(table.release)
        known = table.release.whole
        origin = {"Identifier": known.id, "Drawn on": known.created, "Drawn by": f"slowscale {known.slowscale}"}
        origin |= {"Data set": known.dataset} if known.dataset else {}
        found[f"Release{of}"] = [f"{name}: {text}" for name, text in origin.items()]
    return found


def _reading(publication: Publication, tables: Sequence[PublishedTable]) -> list[str]:
    columns = [column for table in tables for column in table.release.facts.columns.values()]
    ratios = [ratio for table in tables for ratio in table.release.facts.ratios.values()]
    found = {column.level for column in columns} | {ratio.level for ratio in ratios}
    levels = " or ".join(percent(level) for level in sorted(found))
    words = [
        "Every published number contains random noise, which protects the records. An estimate therefore differs from "
        "the true value, and sums of estimates differ from estimates of sums that were drawn separately.",
        f"The interval of an estimate contains the true value with a probability of {levels}: in that share of all "
        "numbers, over the noise. It describes the error by the noise only, and no other error of the data.",
    ]
    if any(ratio.approximate for ratio in ratios):
        words.append("The intervals of some ratios are approximate.")
    if tables[0].profile != "basic":
        return [
            *words,
            "A standard error is the root mean square error by the noise, or an estimate of it. In files, x_se is the "
            "standard error of x, and x_low and x_high are the ends of its interval.",
        ]
    words.append(f"The coefficient of variation is {CV_WORDS[0].lower()}{CV_WORDS[1:]}")
    estimates = {column.of: column for table in tables for column in table.columns if column.role == "estimate"}
    rules = {publication.negative(name) for name in estimates}
    rule = "flag" if "flag" in rules else min(rules, default="keep")
    words.append(f"The reliability flags are: {flag_words(publication, rule)}.")
    raised = [column.title for name, column in estimates.items() if publication.negative(name) == "zero"]
    if raised:
        words.append(
            f"The true values of {', '.join(raised)} are known not to be below 0. Estimates and ends of intervals "
            "below 0, which the noise causes, are shown as 0. Sums of such estimates are too high on average."
        )
    steps = {
        name: step
        for table in tables
        for name, column in estimates.items()
        if (step := publication.step(name, ratio=name in table.release.facts.ratios)) is not None
    }
    if steps:
        rounded = ", ".join(f"{estimates[name].title} to multiples of {grid(step)}" for name, step in steps.items())
        words.append(
            f"Rounded are: {rounded}. Estimates are rounded to the nearest multiple, and to the even one if two are "
            "equally near: that adds up to half of the multiple to the error. Ends of intervals are rounded outwards."
        )
    return words


def _noise(publication: Publication, release: ReleasedSums) -> list[str]:
    words, rollup = [], release.facts.rollup
    if rollup:
        rules = [f"{publication.label(name).title}: {rule}" for name, rule in rollup.rules.items()]
        words += [rollup_in_words(rollup), "Noise was added to each cell, as said below, and not again to the sums."]
        words.append(f"The intervals of the sums come from: {'; '.join(rules)}.")
    for name, column in release.facts.columns.items():
        made_by = released_by(column)
        how = "" if made_by is None else f" {made_by.words.format(total='sum')}"
        label = publication.label(name)
        words.append(f"{label.title} ({name}): {column.described}, unit {column.unit}.{how}{clipped_words(column)}")
        if not rollup and (errors := column_errors(name, column, release.table)):
            measured = "" if label.unit is None else f" ({label.unit})"
            words.append(f"How wrong {label.title} can be{measured}: {' '.join(error_sentences(errors))}")
    for name, ratio in release.facts.ratios.items():
        parts = " / ".join(publication.label(part).title for part in (ratio.numerator, ratio.denominator))
        words.append(f"{publication.label(name).title} ({name}): {parts}, computed from the published numbers.")
    return words


def _privacy(release: ReleasedSums) -> list[str]:
    known, rollup = release.whole, release.facts.rollup
    notion = notion_in_words(known.notion, known.accounting)
    losses = [str(RecordPolicy((term,))) for term in release.policy.terms]
    words = [
        f"Protected: {known.protects}.",
        *([f"{known.supplied_words}."] if known.supplied else []),
        f"{'A record may lose' if known.protect is None else f'One {known.protect} may lose in each cell'} ({notion}), "
        f"added up: {'; '.join(losses)}. The loss depends on the size of the {known.protect or 'record'}, by this "
        "rule.",
    ]
    if rollup:
        words.append(f"This is the loss by the cells, table {rollup.of}. The sums add nothing to it.")
    if len(known.tables) > 1:  # every reader has all of them
        who = "a record" if known.protect is None else f"one {known.protect} in one cell of each"
        words.append(
            f"The table is one of {len(known.tables)} tables that were published together. The losses by the drawn "
            f"tables ({', '.join(known.drawn)}) add up. By all of them together, {who} may lose: {known.formula}."
        )
    return [
        *words,
        "Everything here is computed from the released numbers, so it adds nothing to the loss of any record.",
    ]


def published_releases(files: Sequence[Path]) -> list[tuple[str, str]]:
    """Return the release and the name of each table in the files that one call of `publish` wrote, in its order.

    The files themselves state these. The list is empty if they do not.
    """
    found: list[tuple[str, str]] = []
    try:
        *tables, last = files
        if last.name.endswith(".datapackage.json"):
            described = json.loads(last.read_text(encoding="utf-8"))
            resources, release = described["resources"], str(described["slowscale"]["facts"]["id"])
            listed = [(one["path"], one["hash"]) for one in resources]
            if listed == [(file.name, f"sha256:{file_hash(file)}") for file in tables]:
                found = [(release, str(one["slowscale"]["table"])) for one in resources]
        elif last.suffix.lower() == ".xlsx":
            for file in files:
                with zipfile.ZipFile(file) as book:
                    text = book.read("docProps/core.xml").decode("utf-8")
                if words := re.search(r"<dc:description>([^<]*)</dc:description>", text):
                    release, *names = words[1].split("; ")
                    found += [(release, name) for name in names]
        else:
            for file in files:
                metadata = pyarrow.parquet.read_schema(file).metadata
                facts = json.loads(metadata[METADATA if METADATA in metadata else BASIC_METADATA])
                found.append((str(facts["id"]), str(facts["table"])))
    except Exception:  # a file can hold anything
        return []
    return found
