"""Which releases the files of a publication were made from, as the files themselves say."""

import json
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet

from slowscale.release.facts import BASIC_METADATA, METADATA, file_hash


def published_releases(files: Sequence[Path]) -> list[tuple[str, str]]:
    """Return the release and the name of each table in the files of one publication; empty if they do not tell.

    Parameters
    ----------
    files
        All files that one call of `publish` wrote, in its order.
    """
    try:
        if files[-1].name.endswith(".datapackage.json"):
            return _in_package(files[:-1], files[-1])
        if files[-1].suffix.lower() == ".xlsx":
            return [one for file in files for one in _in_excel(file)]
        return [_in_parquet(file) for file in files]
    except Exception:  # what a file holds can be anything
        return []


def _in_package(tables: Sequence[Path], package: Path) -> list[tuple[str, str]]:
    described = json.loads(package.read_text(encoding="utf-8"))
    resources, release = described["resources"], str(described["slowscale"]["facts"]["id"])
    listed = [(one["path"], one["hash"]) for one in resources]
    if listed != [(file.name, f"sha256:{file_hash(file)}") for file in tables]:
        return []
    return [(release, str(one["slowscale"]["table"])) for one in resources]


def _in_excel(file: Path) -> list[tuple[str, str]]:
    with zipfile.ZipFile(file) as book:
        text = book.read("docProps/core.xml").decode("utf-8")
    described = re.search(r"<dc:description>([^<]*)</dc:description>", text)
    if described is None:
        return []
    release, *names = described[1].split("; ")
    return [(release, name) for name in names]


def _in_parquet(file: Path) -> tuple[str, str]:
    metadata = pyarrow.parquet.read_schema(file).metadata
    facts = json.loads(metadata[METADATA if METADATA in metadata else BASIC_METADATA])
    return str(facts["id"]), str(facts["table"])
