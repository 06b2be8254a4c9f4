"""The plan file that the workbench edits. The file is the truth: every page reads it and writes it.

A draft may be unfinished. Its mistakes are those that `slowscale check` reports, each with the field that it is about.
Comments and the order of a file that was written by hand are kept.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import tomlkit
from pydantic import ValidationError
from tomlkit.exceptions import TOMLKitError

from slowscale.errors import ParameterError, PlanError
from slowscale.files import write_files
from slowscale.plan import Plan, read_plan
from slowscale.plan.inputs import DATABASE_FILES
from slowscale.plan.mistakes import list_mistakes

Place = Sequence[str | int]


class ChangedElsewhereError(PlanError):
    """The plan file was changed since the page was loaded, in another tab or by an editor."""


@dataclass(frozen=True)
class Draft:
    """The text of a plan file, which may be unfinished."""

    path: Path
    text: str

    @classmethod
    def read(cls, path: Path) -> "Draft":
        """Read the file; a file that does not exist is an empty draft."""
        try:
            return cls(path, path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return cls(path, "")
        except (OSError, UnicodeError) as error:
            raise PlanError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None

    @property
    def version(self) -> str:
        """A short text that changes with every change of the file."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    @cached_property
    def values(self) -> dict[str, Any]:
        """The values of the plan, as plain dictionaries, lists, texts and numbers."""
        return self._document.unwrap()

    @property
    def _document(self) -> tomlkit.TOMLDocument:
        try:
            return tomlkit.parse(self.text)
        except TOMLKitError as error:
            raise PlanError(f"{self.path.name} is not TOML: {error}") from None

    def get(self, *place: str | int, default: Any = None, kind: type | tuple[type, ...] | None = None) -> Any:
        """Return the value at a place such as "data", "path", or the default.

        A draft may hold values of any kind where a plan has a table or text. The default is also returned for a value
        that is not of the kind, which is that of the default if none is given.
        """
        if kind is None and default is not None:
            kind = type(default)
        found: Any = self.values
        for step in place:
            if isinstance(found, str):  # a step into it would be a letter
                return default
            try:
                found = found[step]
            except (KeyError, IndexError, TypeError):
                return default
        return found if kind is None or isinstance(found, kind) else default

    def put(self, place: Place, value: Any) -> "Draft":
        """Return the draft with a value at a place. None removes it. Missing tables are added."""
        document = self._document
        table: Any = document
        for step, following in pairwise(place):
            if isinstance(step, str) and step not in table:
                if value is None:
                    return self
                table[step] = tomlkit.aot() if isinstance(following, int) else tomlkit.table()
            elif isinstance(step, int) and step == len(table):
                table.append(tomlkit.table())
            table = table[step]
        last = place[-1]
        if value is None:
            if (isinstance(last, str) and last in table) or (isinstance(last, int) and last < len(table)):
                del table[last]
        elif isinstance(value, dict):
            table[last] = _as_table(value)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            table[last] = _as_tables(value)
        else:
            table[last] = value
        return Draft(self.path, tomlkit.dumps(document))

    def save(self, version: str) -> "Draft":
        """Write the file, unless it was changed since it had this version."""
        if Draft.read(self.path).version != version:
            raise ChangedElsewhereError(
                f"{self.path.name} was changed since this page was loaded, in another tab or by an editor. Load the "
                "page again, then make your change."
            )
        write_files({self.path: lambda place: place.write_text(self.text, encoding="utf-8")}, overwrite=True)
        return self

    @property
    def mistakes(self) -> list[tuple[tuple[str | int, ...], str]]:
        """What is missing or wrong in the plan: fields, with the words of `slowscale check`."""
        try:
            Plan.model_validate(self.values)
        except ValidationError as error:
            return list_mistakes(error)
        except PlanError as error:
            return [((), str(error))]
        return []

    @property
    def complete(self) -> bool:
        """Whether the plan has no mistakes."""
        return bool(self.text) and not self.mistakes

    def about(self, *place: str | int) -> list[str]:
        """Return the mistakes that are about a field or a part of it."""
        return [words for field, words in self.mistakes if field[: len(place)] == place]

    @property
    def plan(self) -> Plan:
        """The plan, read as the command reads it; mistakes are raised."""
        return read_plan(self.path)


def _database_file(address: str) -> str:
    """Return the file in an address such as `sqlite://farms.db#farms`."""
    from slowscale.tables.sources import Address

    place = address.rpartition("#")[0]
    file = place.partition("://")[2]
    if Address.of(place).place != file:  # another file would be opened than the one that is checked
        raise ParameterError(f"the path of a database file must not contain @ or ?, got {address!r:.80}; rename it")
    return file


def _as_table(values: dict[str, Any]) -> Any:
    table = tomlkit.table()
    for name, value in values.items():
        table[name] = value
    return table


def _as_tables(values: list[dict[str, Any]]) -> Any:
    found = tomlkit.aot()
    for one in values:
        found.append(_as_table(one))
    return found


@dataclass(frozen=True)
class Folder:
    """The folder that the workbench may use, and the files that were named when it was started.

    Attributes
    ----------
    root
        The folder.
    named
        Further files and folders that may be read.
    """

    root: Path
    named: tuple[Path, ...] = ()

    def inside(self, text: str) -> Path:
        """Return the path of what may be read, or raise if it is elsewhere; links are followed.

        A folder or a glob stands for the files that are read as data there. The address of a database that is a file,
        such as `sqlite://farms.db#farms`, stands for that file.
        """
        from slowscale.tables.sources import matching_files

        allowed = (self.root, *self.named)
        if text.lower().startswith(DATABASE_FILES):
            return self._checked(_database_file(text), allowed)
        path = self._checked(text, allowed)
        # A glob such as */../x is resolved by the links that it matches, so both spellings are looked up.
        for place in dict.fromkeys((str(self.root / text), str(path))):
            try:
                found = matching_files(place, "data")
            except ParameterError:  # there are no such files: whoever opens them says so
                continue
            for file in found:
                self._checked(file, allowed)
        return path

    def target(self, text: str) -> Path:
        """Return the path of a file that may be written: one in the folder itself; links are followed."""
        return self._checked(text, (self.root,))

    def inside_source(self, text: str) -> str:
        """Return data as it can be opened, or raise if a file of it is elsewhere.

        Parameters
        ----------
        text
            A file, a folder, a glob or the address of a database table. The paths are relative to the folder.
        """
        from slowscale.tables.sources import ADDRESSES

        if "://" not in text:
            return str(self.inside(text))
        scheme = text.partition("://")[0]
        if text.lower().startswith(DATABASE_FILES):
            return f"{scheme}://{self.inside(text)}#{text.rpartition('#')[2]}"
        if scheme.lower() not in ADDRESSES:  # it would be taken for a path
            raise ParameterError(
                f"the address of a database must start with postgresql://, duckdb:// or sqlite://, got {text!r:.80}"
            )
        return text

    def _checked(self, text: str, allowed: Sequence[Path]) -> Path:
        if "\0" in text or not text.strip():
            raise ParameterError("the file must have a name")
        path = Path(os.path.realpath(self.root / text))
        if not any(path == one or one in path.parents for one in (Path(os.path.realpath(one)) for one in allowed)):
            shown = text.removeprefix(f"{self.root}{os.sep}")
            way = "" if len(allowed) == 1 else f", or start the workbench with `slowscale serve --allow {shown}`"
            what = "choose a place in it" if len(allowed) == 1 else "move it there"
            raise ParameterError(f"{shown} is outside the folder {self.root}: {what}{way}")
        return path

    def files(self, endings: Sequence[str]) -> list[str]:
        """Return the files in the folder with one of these endings, relative to it, hidden ones excluded."""
        found = []
        for place, folders, names in os.walk(self.root):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            depth = len(Path(place).relative_to(self.root).parts)
            if depth >= 3:
                folders[:] = []
            found += [os.path.relpath(os.path.join(place, name), self.root) for name in names]
        return sorted(name for name in found if name.lower().endswith(tuple(endings)) and not name.startswith("."))
