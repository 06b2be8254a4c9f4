"""Public keys from large files: they are checked and kept in a private DuckDB, and read a range at a time.

What does not fit in memory is written to disk, encrypted (`connections.private_duckdb`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ibis.expr.types as ir
import pyarrow as pa

from slowscale.core.errors import ParameterError
from slowscale.data.connections import engine_errors, fresh_name, locked, quoted
from slowscale.data.engines import BOOLEAN, DATE, TEXT, WHOLE

MANY = 1 << 21  # rows: files with more are kept in DuckDB
MEMORY = "900MB"  # of a DuckDB that may write to disk
SQL_TYPES = {TEXT: "VARCHAR", WHOLE: "BIGINT", BOOLEAN: "BOOLEAN", DATE: "DATE"}


@dataclass(frozen=True, eq=False, repr=False)
class StoredKeys:
    """Rows of keys in a table of DuckDB, in the order of the file. It has the methods of an Arrow table that keys need.

    Attributes
    ----------
    backend, name
        The connection, and the name of the table.
    schema
        The columns, with the Arrow types of labels.
    num_rows
        The number of rows.
    """

    backend: Any
    name: str
    schema: pa.Schema
    num_rows: int

    @staticmethod
    def of(table: ir.Table, kinds: Mapping[str, str], types: Mapping[str, pa.DataType], place: str) -> "StoredKeys":
        """Keep the rows of a table of a private DuckDB as keys; raise unless they are complete and distinct.

        Parameters
        ----------
        table
            The table.
        kinds, types
            The kind of the labels of each column, and the Arrow type of each kind.
        place
            The file, for errors, which show no label: it could be a copy of the data.
        """
        backend, name = table.get_backend(), fresh_name("keys")
        # A column of the file may be called rowid.
        columns = [
            f"CAST({quoted(name)} AS {SQL_TYPES[kind]}) AS label{i}" for i, (name, kind) in enumerate(kinds.items())
        ]
        labels = ", ".join(f"label{i}" for i in range(len(kinds)))
        with locked(backend), engine_errors("keys", f"could not be read ({place})", quote=False):
            if backend.may_spill:
                backend.con.execute(f"SET memory_limit = '{MEMORY}'")
            rows = backend.compile(table.select(*kinds))
            backend.con.execute(f"CREATE TABLE {name} AS SELECT {', '.join(columns)} FROM ({rows})")
            (total,) = backend.con.execute(f"SELECT count(*) FROM {name}").fetchone()
            for i, column in enumerate(kinds):
                (missing,) = backend.con.execute(f"SELECT count(*) FROM {name} WHERE label{i} IS NULL").fetchone()
                if missing:
                    raise ParameterError(
                        f"keys {column}",
                        "must not have missing labels",
                        code="nulls",
                        remedy="remove those rows, or give them a label",
                    )
            (distinct,) = backend.con.execute(f"SELECT count(*) FROM (SELECT DISTINCT {labels} FROM {name})").fetchone()
        if distinct < total:
            problem = "must be distinct, but one occurs more than once"
            raise ParameterError("keys", problem, code="duplicate", remedy=f"remove it from {place}")
        schema = pa.schema([pa.field(column, types[kind]) for column, kind in kinds.items()])
        return StoredKeys(backend, name, schema, total)

    def __len__(self) -> int:
        return self.num_rows

    @property
    def column_names(self) -> list[str]:
        """The names of the columns."""
        return list(self.schema.names)

    @property
    def num_columns(self) -> int:
        """The number of columns."""
        return len(self.schema)

    def slice(self, start: int, size: int | None = None) -> pa.Table:
        """Return some rows in their order."""
        end = self.num_rows if size is None else start + size
        return self._read(self.column_names, f"WHERE rowid >= {start} AND rowid < {end}")

    def select(self, names: list[str]) -> pa.Table:
        """Return some columns of all rows."""
        return self._read(names)

    def _read(self, names: list[str], rows: str = "") -> pa.Table:
        labels = ", ".join(f"label{self.column_names.index(name)}" for name in names)
        with locked(self.backend), engine_errors("keys"):
            found = self.backend.con.execute(f"SELECT {labels} FROM {self.name} {rows} ORDER BY rowid").to_arrow_table()
        return found.rename_columns(names).cast(pa.schema([self.schema.field(name) for name in names]))

    def __reduce__(self) -> Any:
        return _in_memory, (self.slice(0),)

    def reader(self, as_bytes: bool) -> pa.RecordBatchReader:
        """Return all rows as a stream, with columns label0, label1… and place; texts as their bytes, if wanted."""
        labels = [
            f"encode(label{i}) AS label{i}" if as_bytes and pa.types.is_string(field.type) else f"label{i}"
            for i, field in enumerate(self.schema)
        ]
        with locked(self.backend), engine_errors("keys"):
            query = f"SELECT {', '.join(labels)}, rowid AS place FROM {self.name}"
            # On a connection of its own: a query of another thread would end the stream.
            return self.backend.con.cursor().execute(query).to_arrow_reader(1 << 16)


def _in_memory(table: pa.Table) -> pa.Table:
    """Return keys that were pickled: another process has no such DuckDB."""
    return table
