"""The plan file that the workbench edits. The file is the truth: every page reads it and writes it.

A draft may be unfinished. Its mistakes are those that `slowscale check` reports, each with the field that it is about.
Comments and the order of a file that was written by hand are kept.
"""

import copy
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import tomlkit
import tomlkit.container
import tomlkit.items
from tomlkit.exceptions import TOMLKitError

from slowscale.core.errors import ParameterError, PlanError
from slowscale.core.files import relative_path, write_files
from slowscale.plan import Plan, read_plan
from slowscale.plan.checking import check_has_tables
from slowscale.plan.parts import DATABASE_FILE
from slowscale.plan.reading import plan_from_text
from slowscale.plan.starting import toml_key

Place = Sequence[str | int]
CELLS = "cells"  # the name of the table of cells, if the plan has none
UNCHOSEN = "COLUMN"  # the column that a new plan has in place of one that is chosen


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
            why = getattr(error, "strerror", None) or error
            raise PlanError(path, f"cannot be read: {why}", code="unreadable") from None

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
            raise PlanError(self.path.name, f"is not TOML: {error}", code="syntax") from None

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
        """Return the draft with a value at a place. None removes it, and a table that is then empty.

        Missing tables are added. A value that cannot be changed in its place is written on one line.
        """
        if value is None:
            return self._without(place)
        wanted = _with_value(self.values, place, _plain(value))
        for as_written in (value, _as_inline(value)):
            try:
                found = self._with(place, as_written)
                if found.values == wanted:
                    return found
            except (PlanError, TOMLKitError, ValueError):  # it is not TOML any more
                pass
        raise self._cannot_change(place)

    def _with(self, place: Place, value: Any) -> "Draft":
        document = self._document
        table: Any = document
        for depth, (step, following) in enumerate(pairwise(place), 2):
            if isinstance(step, str) and step not in table:
                # A table that will hold tables only, such as [tables], has no header.
                only_tables = depth < len(place) or isinstance(value, dict)
                new = tomlkit.aot() if isinstance(following, int) else tomlkit.table(is_super_table=only_tables)
                _set(table, step, new)
            elif isinstance(step, int) and step == len(table):
                _append(table, {})
            table = table[step]
        if isinstance(place[-1], int) and place[-1] == len(table):
            _append(table, value)
        else:
            _set(table, place[-1], value)
        return Draft(self.path, tomlkit.dumps(document))

    def _without(self, place: Place) -> "Draft":
        parent = self.get(*place[:-1])
        if not isinstance(parent, dict | list) or self.get(*place) is None:
            return self
        if len(parent) == 1 and len(place) > 1:
            return self._without(place[:-1])
        wanted = copy.deepcopy(self.values)
        table: Any = wanted
        for step in place[:-1]:
            table = table[step]
        del table[place[-1]]
        found = Draft(self.path, _without_blocks(self.text, place))
        if found._has(wanted):
            return found
        document = self._document
        table = document
        for step in place[:-1]:
            table = table[step]
        _remove(table, place[-1])
        found = Draft(self.path, tomlkit.dumps(document))
        if not found._has(wanted):
            raise self._cannot_change(place)
        return found

    def _has(self, wanted: dict[str, Any]) -> bool:
        """Whether the values are the wanted ones."""
        try:
            return self.values == wanted
        except PlanError:
            return False

    def _cannot_change(self, place: Place) -> PlanError:
        return PlanError(
            self.path.name, f"is written in a way in which the workbench cannot change {'.'.join(map(str, place))}",
            code="unsupported", path=tuple(place), remedy="edit the file, and load the page again",
        )  # fmt: skip

    def renamed(self, place: Place, name: str) -> "Draft":
        """Return the draft with another name for the table at a place; its comments stay."""
        wanted = copy.deepcopy(self.values)
        table: Any = wanted
        for step in place[:-1]:
            table = table[step]
        table[name] = table.pop(place[-1])
        header = re.compile(_header(place), re.MULTILINE)
        found = Draft(self.path, header.sub(lambda match: match["before"] + toml_key(name), self.text))
        return found if found._has(wanted) else self.put((*place[:-1], name), self.get(*place)).put(place, None)

    def comments(self, *place: str) -> dict[str, str]:
        """Return the comments behind the fields of a table, by field."""
        table: Any = self._document
        for step in place:
            table = table.get(step) if isinstance(table, Mapping) else None
        if not isinstance(table, tomlkit.items.Table):
            return {}
        found = {name: item.trivia.comment.lstrip("# ") for name, item in table.items() if hasattr(item, "trivia")}
        return {name: words for name, words in found.items() if words}

    def with_comments(self, place: Place, words: Mapping[str, str]) -> "Draft":
        """Return the draft with comments behind fields of a table; comments that it has already are replaced."""
        document = self._document
        table: Any = document
        for step in place:
            if isinstance(step, str) and step not in table:
                return self
            table = table[step]
        for name, item in table.items():
            if name in words:
                item.comment(words[name])
            elif hasattr(item, "trivia"):
                item.trivia.comment = item.trivia.comment_ws = ""
        return Draft(self.path, tomlkit.dumps(document))

    def save(self, version: str) -> "Draft":
        """Write the file, unless it was changed since it had this version."""
        if Draft.read(self.path).version != version:
            raise ChangedElsewhereError(
                self.path.name, "was changed since this page was loaded, in another tab or by an editor",
                code="changed", remedy="load the page again, then make your change",
            )  # fmt: skip
        write_files({self.path: lambda place: place.write_text(self.text, encoding="utf-8")}, overwrite=True)
        return self

    @property
    def mistakes(self) -> list[tuple[tuple[str | int, ...], str]]:
        """The mistakes of the plan: fields, with the words of `slowscale check`."""
        try:
            check_has_tables(plan_from_text(self.text, self.path))
        except PlanError as error:
            return [(one.path, one.text) for one in error.mistakes] or [((), str(error))]
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


# The tables of a plan, as the pages see them


def drawn_tables(draft: Draft) -> dict[str, dict[str, Any]]:
    """Return the drawn tables of sums of a plan, which may be unfinished."""
    return {
        name: part
        for name, part in draft.get("tables", default={}).items()
        if isinstance(part, dict) and not part.keys() & {"rollup", "quantiles"}
    }


def cells_of(draft: Draft) -> str:
    """Return the name of the table whose cells the pages are about: the first drawn one, or else a name for it."""
    taken = draft.get("tables", default={})
    free = next(name for name in (CELLS, *(f"{CELLS}{i}" for i in range(2, len(taken) + 3))) if name not in taken)
    return next(iter(drawn_tables(draft)), free)


def chosen_sums(table: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the sums of a table by column, without the one in a new plan whose column is not chosen yet."""
    sums = table.get("sums")
    return {
        name: one
        for name, one in (sums.items() if isinstance(sums, dict) else ())
        if isinstance(one, dict) and (name, one.get("mechanism")) != (UNCHOSEN, "")
    }


def _database_file(address: str) -> str:
    """Return the file in an address such as `duckdb://farms.duckdb#farms`."""
    from slowscale.data.sources import Address

    place = address.rpartition("#")[0]
    file = place.partition("://")[2]
    if Address.of(place).place != file:  # another file would be opened than the one that is checked
        raise ParameterError(
            "the path of a database file", "must not contain @ or ?", code="unsupported", given=address,
            remedy="rename it",
        )  # fmt: skip
    return file


def _with_value(values: dict[str, Any], place: Place, value: Any) -> dict[str, Any]:
    """Return the values of a plan with another one at a place."""
    found = copy.deepcopy(values)
    table: Any = found
    for step, following in pairwise(place):
        if isinstance(step, int) and step == len(table):
            table.append({})
        elif isinstance(step, str):
            table.setdefault(step, [] if isinstance(following, int) else {})
        table = table[step]
    if isinstance(place[-1], int) and place[-1] == len(table):
        table.append(value)
    else:
        table[place[-1]] = value
    return found


def _header(place: Place) -> str:
    """Return a pattern for the header of the table at a place, and of those in it, up to the name of the table."""
    names = [
        f"(?:{re.escape(name)}|{re.escape(toml_key(name))}|\"{re.escape(name)}\"|'{re.escape(name)}')"
        for name in map(str, place)
    ]
    parents = "".join(rf"{name}\s*\.\s*" for name in names[:-1])
    return rf"^(?P<before>[ \t]*\[\s*{parents}){names[-1]}(?=\s*[.\]])"


def _without_blocks(text: str, place: Place) -> str:
    """Return a text without the table at a place and those in it. Comments before the next table stay."""
    header, any_header = re.compile(_header(place)), re.compile(r"[ \t]*\[[^\[\]]+\]|[ \t]*\[\[[^\[\]]+\]\]")
    blocks: list[list[str]] = [[]]
    for line in text.splitlines(keepends=True):
        if any_header.match(line):
            blocks.append([])
        blocks[-1].append(line)
    kept = []
    for block in blocks:
        if block and header.match(block[0]):
            last = max(i for i, line in enumerate(block) if line.strip() and not line.lstrip().startswith("#"))
            start = next((i for i in range(last, len(block)) if not block[i].strip()), len(block))
            block = block[start + 1 :]
        kept += block
    return "".join(kept)


def _plain(value: Any) -> Any:
    """Return a value as it is read from a file, with lists for tuples."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _set(table: Any, name: Any, value: Any) -> None:
    """Set a value. Present fields stay in their places, with their comments."""
    present = table[name] if isinstance(name, int) or name in table else None
    on_one_line = isinstance(value, tomlkit.items.InlineTable)
    if on_one_line and present is not None and not isinstance(present, tomlkit.items.InlineTable):
        _remove(table, name)
        present = None
    if isinstance(value, dict) and isinstance(present, Mapping):
        for field in [field for field in present if field not in value]:
            _remove(present, field)
        for field, one in value.items():
            if field not in present or present[field] != one:
                _set(present, field, one)
        return
    inline = (tomlkit.items.InlineTable, tomlkit.items.Array)
    if isinstance(table, inline) or isinstance(present, inline):
        value = _as_inline(value)
    elif isinstance(value, dict) and not on_one_line:
        value = _as_table(value)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        value = _as_tables(value)
    keys = _plain_keys(table)
    if present is None and keys and not isinstance(value, tomlkit.items.Table | tomlkit.items.AoT):
        # Behind the last field, before the comments that introduce the next table.
        table.value._insert_after(keys[-1], name, tomlkit.item(value))
    elif present is None and isinstance(table, tomlkit.items.Table) and isinstance(value, tomlkit.items.Table):
        following = _cut_end(table)
        if following and table.value.body:
            _last_table(table).add(tomlkit.nl())
        table[name] = value
        if following:
            _last_table(table).value.body.append((None, tomlkit.ws(following.lstrip("\n"))))
    else:
        table[name] = value


def _last_table(table: Any) -> Any:
    """Return the table that the text of a table ends with: itself, or the last one in it."""
    body = table.value.body
    while body and isinstance(body[-1][1], tomlkit.items.Table | tomlkit.items.AoT):
        table = body[-1][1] if isinstance(body[-1][1], tomlkit.items.Table) else body[-1][1][-1]
        body = table.value.body
    return table


def _plain_keys(table: Any) -> list[Any]:
    """Return the keys of a table whose values are not tables themselves."""
    if not isinstance(table, tomlkit.items.Table):
        return []
    return [
        key
        for key, item in table.value.body
        if key is not None and not isinstance(item, tomlkit.items.Table | tomlkit.items.AoT)
    ]


def _append(tables: Any, values: dict[str, Any]) -> None:
    """Append a table to a list of tables. Comments at the end of the list stay there."""
    if isinstance(tables, tomlkit.items.Array):
        tables.append(_as_inline(values))
        return
    following = _cut_end(tables[-1]) if len(tables) else ""
    if following:
        tables[-1].add(tomlkit.nl())
    added = _as_table(values)
    tables.append(added)
    if following:
        tables[-1].value.body.append((None, tomlkit.ws(following)))


def _remove(table: Any, name: Any) -> None:
    """Remove a value. Comments that introduce the next one stay."""
    item = table[name]
    following = _cut_end(item)
    container = table.value if isinstance(table, tomlkit.items.Table) else table
    body = container.body if isinstance(container, tomlkit.container.Container) else []
    at = next((i for i, (key, _) in enumerate(body) if key is not None and key.key == name), None)
    if isinstance(name, int) and name and following:
        table[name - 1].value.body.append((None, tomlkit.ws(following)))
    del table[name]
    if at is not None and following.strip():
        body[at] = (None, tomlkit.ws(following.lstrip("\n")))


def _cut_end(item: Any) -> str:
    """Cut the text after the first empty line behind the last field of a table, and return it."""
    while isinstance(item, tomlkit.items.AoT) and len(item):
        item = item[-1]
    if not isinstance(item, tomlkit.items.Table):
        return ""
    body = item.value.body
    if body and isinstance(body[-1][1], tomlkit.items.Table | tomlkit.items.AoT):
        return _cut_end(body[-1][1])
    start = len(body)
    while start and body[start - 1][0] is None:
        start -= 1
    while start < len(body) and body[start][1].as_string().strip():
        start += 1
    found = "".join(one.as_string() for _, one in body[start:])
    del body[start:]
    return found


def _as_table(values: dict[str, Any]) -> Any:
    table = tomlkit.table()
    for name, value in values.items():
        table[name] = _as_table(value) if isinstance(value, dict) else value
    if values and not any(isinstance(value, dict) for value in values.values()):
        table.add(tomlkit.nl())  # an empty line before the next table
    return table


def _as_inline(value: Any) -> Any:
    if isinstance(value, list):
        found = tomlkit.array()
        found.extend(_as_inline(one) for one in value)
        return found
    if not isinstance(value, dict):
        return value
    table = tomlkit.inline_table()
    for name, one in value.items():
        table[name] = _as_inline(one)
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
        """Return the path of a readable file or folder, or raise if it is elsewhere; links are followed.

        A folder or a glob stands for the files that are read as data there. The address of a database that is a file,
        such as `duckdb://farms.duckdb#farms`, stands for that file.
        """
        from slowscale.data.sources import matching_files

        allowed = (self.root, *self.named)
        if text.lower().startswith(DATABASE_FILE):
            path = self._checked(_database_file(text), allowed)
            self._checked(f"{path}.wal", allowed)  # DuckDB reads it beside the file
            return path
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
        from slowscale.data.sources import address_scheme

        if "://" not in text:
            return str(self.inside(text))
        address_scheme(text, "data")  # raises for another scheme, which would be taken for a path
        if text.lower().startswith(DATABASE_FILE):
            return f"{DATABASE_FILE}{self.inside(text)}#{text.rpartition('#')[2]}"
        return text

    def _checked(self, text: str, allowed: Sequence[Path]) -> Path:
        if "\0" in text or not text.strip():
            raise ParameterError("the file", "has no name", code="missing", remedy="give one")
        path = Path(os.path.realpath(self.root / text))
        if not any(path == one or one in path.parents for one in (Path(os.path.realpath(one)) for one in allowed)):
            shown = text.removeprefix(f"{self.root}{os.sep}")
            way = f"move it there, or start the workbench with `slowscale serve --allow {shown}`"
            remedy = "choose a place in it" if len(allowed) == 1 else way
            raise ParameterError(shown, f"is outside the folder {self.root}", code="outside", remedy=remedy)
        return path

    def files(self, endings: Sequence[str]) -> list[str]:
        """Return the files in the folder with one of these endings, relative to it, hidden ones excluded."""
        found = []
        for place, folders, names in os.walk(self.root):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            depth = len(Path(place).relative_to(self.root).parts)
            if depth >= 3:
                folders[:] = []
            found += [relative_path(os.path.join(place, name), self.root) for name in names]
        return sorted(name for name in found if name.lower().endswith(tuple(endings)) and not name.startswith("."))
