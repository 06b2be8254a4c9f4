"""The files of a publication: which ones there are, and that all are written or none."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from slowscale.core.errors import ParameterError, ParameterTypeError
from slowscale.core.files import check_output_path, comparable_name, write_files
from slowscale.publish.excel import check_excel, write_excel
from slowscale.publish.notes import publication_notes
from slowscale.publish.packages import data_package
from slowscale.publish.profiles import PublishedTable, published_tables
from slowscale.publish.publication import Publication
from slowscale.release import Release
from slowscale.release.facts import BASIC_METADATA, METADATA, PUBLICATION

ENDINGS = (".parquet", ".csv", ".xlsx")
Writers = dict[Path, Callable[[Path], Any]]


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
        raise ParameterTypeError("a Release", "is needed", given=type(release))
    # One table is named after its file.
    named = release.sums if len(release.sums) > 1 else dict(zip([target.stem], release.sums.values(), strict=False))
    tables = published_tables(named, publication, profile)
    files = target.files(list(named) if len(named) > 1 else None)
    free = {name: check_output_path(file, file.suffix.lower(), overwrite) for name, file in files.items()}
    if target.kind == ".xlsx":
        check_excel(publication, tables)
        (place,) = free.values()
        writers: Writers = {place: lambda file: write_excel(file, publication, tables)}
    elif target.kind == ".csv":
        *places, package = free.values()
        writers = data_package(dict(zip(places, tables, strict=True)), package, publication)
    else:
        writers = {
            place: _parquet_writer(table, publication) for place, table in zip(free.values(), tables, strict=True)
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
            for name in names:
                if not name or Path(name).name != name or any(letter in name for letter in '<>:"/\\|?*'):
                    raise ParameterError("the name of a table must be a part of a file's name", given=name)
            for i, name in enumerate(names):
                if comparable_name(name) in map(comparable_name, names[:i]):
                    raise ParameterError(
                        "the",
                        f"names of tables must differ by more than case, but {name!r} is like another one: on "
                        "some systems, one file would be written over the other",
                    )
            found = {name: self.folder / f"{self.stem}-{name}{self.ending}" for name in names}
        if self.kind == ".csv":
            found["data package"] = self.folder / f"{self.stem}.datapackage.json"
        return found


def _parquet_writer(table: PublishedTable, publication: Publication) -> Callable[[Path], Any]:
    """Return a function that writes a table as Parquet.

    The profile "research" can be read with `read_release`. The profile "basic" lacks what that needs, so its facts have
    another name.
    """
    words = {
        "title": table.title,
        "profile": table.profile,
        "publication": publication.to_dict(),
        "notes": publication_notes(publication, [table]),
    }
    facts = json.dumps(table.release.file_facts.to_dict())
    described = table.arrow().replace_schema_metadata(
        {
            METADATA if table.profile == "research" else BASIC_METADATA: facts,
            PUBLICATION: json.dumps(words, ensure_ascii=False),
        }
    )
    return lambda file: pa.parquet.write_table(described, file)
