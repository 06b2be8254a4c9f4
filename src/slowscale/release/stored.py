"""Releases of any size: tables that are drawn and written batch by batch, and read when they are asked for.

The files are those that `Release.to_parquet` and `to_csv` write. Drawing needs the memory of one group of rows, however
many there are. Numbers that need a wider type than those before are drawn again with all others, in the wider type: a
draw is a function of the sums and of the release key, so that the numbers stay the same.
"""

import errno
import glob
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from slowscale.core.arrays import to_arrow
from slowscale.core.errors import EngineError, IncompleteError, ParameterError, SlowscaleError
from slowscale.core.files import Writers, check_dir, check_output_path, ensure_dir, write_files
from slowscale.core.locks import locked
from slowscale.core.markup import progress_bar
from slowscale.core.parameters import check_flag
from slowscale.core.typing import PathLike
from slowscale.release.buckets import BUCKET
from slowscale.release.facts import METADATA, Facts, Units, csv_writers, described_schema, released_schema
from slowscale.release.numbers import as_floats

ROW_GROUP = 64 * BUCKET  # the rows that are written together
WIDTHS = (pa.int64(), pa.decimal128(38, 0), pa.float64())  # of columns of numbers, from narrow to wide
WITHOUT_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)  # of file systems that have no locks
FOLDER_LOCK = ".slowscale.lock"  # in the folder of the tables, while a release is made
UNFINISHED = re.compile(r"\.(parquet|csv|json)\.[0-9a-f]{12}$")
Batches = Callable[[], Iterator[pa.Table]]


@dataclass(frozen=True)
class StoredTable:
    """The numbers of a table in a Parquet file, which are read when they are asked for.

    Attributes
    ----------
    path
        The file.
    num_rows
        The number of rows.
    release, table
        The identifier of the release, and the name of the table. Another release may take the place of the file.
    """

    path: Path
    num_rows: int
    release: str
    table: str

    @property
    def column_names(self) -> list[str]:
        """The names of the columns, in order."""
        with self._opened() as file:
            return list(released_schema(file.schema_arrow).names)

    def read(self) -> pa.Table:
        """Return all rows."""
        with self._opened() as file:
            kept = released_schema(file.schema_arrow)
            return file.read(columns=kept.names).cast(kept)

    def column(self, name: str) -> pa.ChunkedArray:
        """Return one column."""
        with self._opened() as file:
            return file.read(columns=[name]).column(name)

    def head(self, rows: int) -> pa.Table:
        """Return the first rows."""
        with self._opened() as file:
            first = next(file.iter_batches(max(rows, 1)))
        return pa.Table.from_batches([first]).slice(0, rows)

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        """Open the file; raise unless it still has the table of the release."""
        try:
            with pyarrow.parquet.ParquetFile(self.path) as file:
                facts = json.loads((file.schema_arrow.metadata or {}).get(METADATA, b"{}"))
                found = file.metadata.num_rows, facts.get("id"), facts.get("table")
                if found != (self.num_rows, self.release, self.table):
                    raise ValueError("it has another table")
                yield file
        except (OSError, ValueError, pa.ArrowException) as error:
            raise EngineError(
                self.path,
                "was removed or changed after the release was read",
                code="changed",
                remedy="restore the file as it was released, or read the release again",
            ) from error


@dataclass(frozen=True)
class Target:
    """The folder that a release is written to: a Parquet file for each table and, if wanted, a CSV file."""

    folder: Path
    csv: bool
    overwrite: bool
    units: Mapping[str, str] | None = None  # of measure, by column

    @staticmethod
    def of(folder: Path, csv: bool, overwrite: bool, tables: Iterable[str]) -> "Target":
        """Return a target that the tables can be written to, or raise an error that says why they cannot."""
        check_flag("csv", csv)
        target = Target(folder, csv, overwrite)
        for path in (path for name in tables for path in target.files(name)):
            check_output_path(path, path.suffix, overwrite)
        return target

    def files(self, table: str) -> list[Path]:
        """Return the files of a table. Those of CSV are two."""
        endings = (".parquet", ".csv", ".csv.json") if self.csv else (".parquet",)
        return [self.folder / f"{table}{ending}" for ending in endings]

    def write(self, files: Writers, lost: tuple[str, ...] = ()) -> None:
        """Write files of a charged release, all or none; `lost` are the drawn tables that are only in them."""
        try:
            if files:
                write_files(files, overwrite=self.overwrite)
        except SlowscaleError as error:
            words = f"was made and charged, but not all of its files could be written: {error}"
            if lost:
                words += ". What was drawn is lost and cannot be drawn again: another release is another charge"
            incomplete = IncompleteError("the release", words)
            incomplete.missing, incomplete.lost = tuple(map(str, files)), lost
            raise incomplete from error

    def writers(self, facts: Facts, batches: Batches) -> Writers:
        """Return the files of the table that the facts name, each with the function that writes it.

        The Parquet file is drawn. The CSV file is made from it, while it still has a temporary name.
        """
        parquet, *others = self.files(facts.table or "")
        drawn: list[Path] = []

        def draw(file: Path) -> None:
            _draw(file, facts, batches, self.units)
            drawn.append(file)

        def read() -> Iterator[pa.Table]:
            with pyarrow.parquet.ParquetFile(drawn[0]) as file:
                plain = pa.schema([field.remove_metadata() for field in file.schema_arrow])
                for batch in file.iter_batches(ROW_GROUP):
                    yield pa.Table.from_batches([batch]).cast(plain)

        return {parquet: draw, **dict(zip(others, csv_writers(read, facts, self.units, None), strict=False))}


@contextmanager
def locked_folder(place: PathLike, tables: Iterable[str]) -> Iterator[Path]:
    """Create a folder unless it exists, and lock it, so that no other release is charged that would write there.

    Unfinished files of these tables, by processes that have ended, are removed; so is a new folder that stays empty.
    The lock ends with the process. A file system without locks goes without: two releases at once may then both be
    charged, and one of them cannot write its files.
    """
    new = not check_dir(place).is_dir()
    folder = ensure_dir(place)
    try:
        with ExitStack() as stack:
            try:
                taken = stack.enter_context(locked(folder / FOLDER_LOCK, remove=True))
            except OSError as error:
                if error.errno not in WITHOUT_LOCKS:
                    problem = f"cannot be locked by the file {FOLDER_LOCK} ({error.strerror or error})"
                    remedy = f"remove {FOLDER_LOCK}, or choose another folder"
                    raise ParameterError(folder, problem, code="unwritable", remedy=remedy) from None
                taken = True
            if not taken:
                problem, remedy = "is being written to by another release", "wait until it is finished"
                raise ParameterError(folder, problem, code="busy", remedy=remedy)
            for path in (path for name in tables for path in folder.glob(f".{glob.escape(name)}.*")):
                if UNFINISHED.search(path.name):
                    with suppress(OSError):  # a folder
                        path.unlink()
            yield folder
    finally:
        if new:
            with suppress(OSError):  # it has files
                folder.rmdir()


def _draw(file: Path, facts: Facts, batches: Batches, units: Units) -> None:
    """Draw a table and write it as a Parquet file, in groups of rows, with a progress bar."""
    rows = max(facts.tables[facts.table or ""].rows, 1)
    schema: pa.Schema | None = None
    complete = False
    while not complete:
        done = 0
        with progress_bar(f"Drawing {facts.table}", lambda: done / rows), ExitStack() as stack:  # noqa: B023
            writer: Any = None
            for batch in _regrouped(batches()):
                wider = batch.schema if schema is None else _wider(schema, batch.schema)
                if writer is not None and wider != schema:
                    schema = wider
                    break
                if writer is None:
                    schema, described = wider, described_schema(wider, facts, units)
                    writer = stack.enter_context(pyarrow.parquet.ParquetWriter(file, described))
                columns = [_widened(batch[name], _side(name, facts), wider.field(name).type) for name in wider.names]
                writer.write_table(pa.table(columns, schema=described), row_group_size=ROW_GROUP)
                done += len(batch)
            else:
                complete = True


def _regrouped(batches: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Return the rows of batches in groups, whatever their number in a batch: the bytes of files depend on it."""
    waiting: pa.Table | None = None
    for batch in batches:
        waiting = batch if waiting is None or not len(waiting) else pa.concat_tables([waiting, batch])
        while len(waiting) >= ROW_GROUP:
            yield waiting.slice(0, ROW_GROUP)
            waiting = waiting.slice(ROW_GROUP)
    if waiting is not None and len(waiting):
        yield waiting


def _wider(one: pa.Schema, other: pa.Schema) -> pa.Schema:
    """Return the schema with the wider type of each column."""
    pairs = zip(one, other, strict=True)
    return pa.schema([left if left.type == right.type else max(left, right, key=_width) for left, right in pairs])


def _width(field: pa.Field) -> int:
    return WIDTHS.index(field.type)


def _side(name: str, facts: Facts) -> int:
    """Return the side to which a column is rounded: outwards for the ends of an interval."""
    if name in facts.tables[facts.table or ""].columns:  # an estimate, whatever its name ends in
        return 0
    return -1 if name.endswith("_low") else 1 if name.endswith("_high") else 0


def _widened(column: pa.ChunkedArray, side: int, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """Return a column in a wider type."""
    return (
        column.cast(kind)
        if column.type == kind or not pa.types.is_floating(kind)
        else to_arrow(as_floats(column, side))
    )
