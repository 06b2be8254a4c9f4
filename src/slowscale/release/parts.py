"""Releases of any size: tables in parts, drawn and written batch by batch, and read when they are asked for.

A table that is written this way is a folder with the files part-00000.parquet, part-00001.parquet… Each part is a
released table like others, with the facts of the whole. Drawing needs the memory of one part, however many there are.

The parts are written to a hidden folder that only its owner can open, and that gets its name when all are complete. If
the process dies before, the folder is worthless: the release was charged and is not continued. The next release to the
same place removes it.
"""

import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from slowscale.core.errors import EngineError, ParameterError, ParameterTypeError
from slowscale.core.files import Writers, sync_folder, write_files
from slowscale.core.locks import locked
from slowscale.core.markup import progress_bar
from slowscale.core.parameters import check_flag
from slowscale.release.buckets import BUCKET
from slowscale.release.facts import Facts, csv_files, parquet_files, read_csv, read_parquet

PART = 64 * BUCKET  # the cells of a part
PREFIX = "part-"
# For each format: its ending, the functions that prepare the files of a table, and the one that reads a file.
FORMATS: Mapping[str, tuple[Callable[..., Writers], Callable[[Path], tuple[pa.Table, dict[str, Any]]]]] = {
    "parquet": (parquet_files, read_parquet),
    "csv": (csv_files, read_csv),
}


@dataclass(frozen=True)
class Parts:
    """The numbers of a table in files, which are read when they are asked for.

    Attributes
    ----------
    paths
        The files, in the order of the rows.
    """

    paths: tuple[Path, ...]

    @staticmethod
    def of(folder: Path) -> "Parts":
        """Return the parts in a folder, in the first format that it has; there are none if it has none."""
        found = (tuple(sorted(folder.glob(f"{PREFIX}*.{ending}"))) for ending in FORMATS)
        return Parts(next(filter(None, found), ()))

    def check(self, facts: Facts) -> None:
        """Raise unless the parts are all parts of the table that their facts describe."""
        wanted = [f"{PREFIX}{number:05}" for number in range(len(self.paths))]
        if [path.stem for path in self.paths] != wanted or self.num_rows != facts.tables[facts.table or ""].rows:
            place = self.paths[0].parent
            raise EngineError(
                place,
                "does not have all parts of its table",
                code="missing",
                remedy="use the folder as it was released",
            )

    @property
    def num_rows(self) -> int:
        """The number of rows of a table in Parquet files, which are not read for it; others are."""
        if self.paths[0].suffix == ".parquet":
            return sum(pyarrow.parquet.read_metadata(path).num_rows for path in self.paths)
        return sum(len(part) for part in self)

    def __iter__(self) -> Iterator[pa.Table]:
        for path in self.paths:
            table, _ = FORMATS[path.suffix.removeprefix(".")][1](path)
            yield table

    def read(self) -> pa.Table:
        """Return all parts as one table; a column has the widest type that it has in any part."""
        return pa.concat_tables(self, promote_options="permissive")

    def head(self, rows: int) -> pa.Table:
        """Return the first rows."""
        return next(iter(self)).slice(0, rows)


@dataclass(frozen=True)
class Target:
    """The folder that a release is written to, and in which formats."""

    folder: Path
    formats: Sequence[str]
    overwrite: bool

    @staticmethod
    def of(folder: Any, formats: Any, overwrite: bool) -> "Target":
        """Return a target that can be written to, or raise an error that says why it cannot."""
        check_flag("overwrite", overwrite)
        if not isinstance(folder, str | os.PathLike):
            raise ParameterTypeError("to", allowed="the path of a folder", given=type(folder))
        chosen = [formats] if isinstance(formats, str) else list(formats)
        if not chosen or set(chosen) - set(FORMATS):
            raise ParameterError("formats", allowed=f"one or both of {', '.join(FORMATS)}", given=formats)
        place = Path(folder).absolute()
        if not place.parent.is_dir():
            raise ParameterError(place.parent, "is not a folder", code="missing", remedy="make the folder first")
        if os.path.lexists(place) and not (overwrite and place.is_dir() and _is_release(place)):
            remedy = (
                "use `overwrite` to replace a release, or choose a new folder"
                if not overwrite
                else ("choose a new folder: only a folder that has nothing but a release in parts is replaced")
            )
            raise ParameterError("to", f"{folder} already exists", code="exists", remedy=remedy)
        return Target(place, tuple(dict.fromkeys(chosen)), overwrite)

    @contextmanager
    def hidden(self) -> Iterator[Path]:
        """Yield a new hidden folder, which becomes the target if the block succeeds, and is removed if it fails."""
        self._remove_abandoned()
        mark = f".{self.folder.name}.{secrets.token_hex(6)}"
        hidden, lock = self.folder.with_name(f"{mark}.unfinished"), self.folder.with_name(f"{mark}.lock")
        try:
            with locked(lock, remove=True):
                hidden.mkdir(mode=0o700)
                try:
                    yield hidden
                    self._move(hidden)
                except BaseException:
                    shutil.rmtree(hidden, ignore_errors=True)
                    raise
        except OSError as error:
            problem = f"could not be written: {error.strerror or error}"
            raise EngineError(self.folder, problem, code="unwritable") from error

    def _move(self, hidden: Path) -> None:
        """Give a complete hidden folder its name, and the rights that the umask leaves for new folders."""
        umask = os.umask(0)
        os.umask(umask)
        hidden.chmod(0o777 & ~umask)
        old = None
        if os.path.lexists(self.folder):
            if not (self.overwrite and _is_release(self.folder)):
                raise ParameterError(self.folder, "already exists", code="exists", remedy="choose a new folder")
            old = hidden.with_suffix(".replaced")
            os.rename(self.folder, old)
        os.rename(hidden, self.folder)
        sync_folder(self.folder.parent)
        if old is not None:
            shutil.rmtree(old, ignore_errors=True)

    def _remove_abandoned(self) -> None:
        """Remove what releases to the same place left behind, if their processes have ended."""
        for hidden in self.folder.parent.glob(f".{self.folder.name}.*.unfinished"):
            with suppress(OSError), locked(hidden.with_suffix(".lock"), remove=True) as free:
                if free:
                    shutil.rmtree(hidden, ignore_errors=True)

    def write(self, hidden: Path, facts: Facts, rows: int, batches: Iterator[pa.Table]) -> Parts:
        """Write the rows of a table in parts, with a progress bar, and return them as they will be."""
        name, done = facts.table or "", 0
        folder = hidden / name
        folder.mkdir()
        with progress_bar(f"Drawing {name}", lambda: done / max(rows, 1)):
            for number, part in enumerate(batches):
                files: Writers = {}
                for ending in self.formats:
                    files |= FORMATS[ending][0](part, facts, folder / f"{PREFIX}{number:05}.{ending}", False)
                write_files(files)
                done += len(part)
        found = Parts.of(folder)
        _align(found)
        return found


def _align(parts: Parts) -> None:
    """Give a column the same type in all parts: integers may be wider in some of them."""
    paths = [path for path in parts.paths if path.suffix == ".parquet"]
    schemas = [pyarrow.parquet.read_schema(path) for path in paths]
    if all(schema.types == schemas[0].types for schema in schemas):
        return
    widest = pa.unify_schemas(schemas, promote_options="permissive")
    for path in paths:
        table = pyarrow.parquet.read_table(path)
        if table.schema.types != widest.types:
            aligned = table.cast(
                pa.schema(
                    [field.with_type(kind) for field, kind in zip(table.schema, widest.types, strict=True)],
                    table.schema.metadata,
                )
            )
            write_files({path: partial(pyarrow.parquet.write_table, aligned)}, overwrite=True)


def _is_release(folder: Path) -> bool:
    """Return whether a folder has nothing but the parts of tables."""
    found = [path for path in folder.rglob("*") if not path.is_dir()]
    return bool(found) and all(path.parent.parent == folder and path.name.startswith(PREFIX) for path in found)
