"""Exact sums of any number of cells, read batch by batch in the order of the keys. CONFIDENTIAL.

The engine groups the records. The groups are joined with the keys, sorted and kept in a table of a private DuckDB,
which writes to disk, encrypted, what does not fit in memory. All checks of the records are made there before anything
is charged; the batches are read afterwards. Crossed keys are joined factor by factor, so that the keys that no record
has take no space.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import duckdb
import ibis.expr.types as ir
import numpy as np
import pyarrow as pa

from slowscale.core.arrays import to_arrow, to_numpy
from slowscale.core.errors import DataError
from slowscale.data import engines
from slowscale.data.connections import SMALL_DATA, engine_errors, fresh_name, locked, private_duckdb, query_progress
from slowscale.data.engines import PRIVATE, Engine, engine_of
from slowscale.data.keys import Keys, label_kind
from slowscale.data.stored_keys import MEMORY, StoredKeys
from slowscale.data.sums import (
    Column,
    ExactSums,
    Failed,
    SumsQuery,
    check_labels,
    explain_uncountable,
    with_uncountable_floats,
)

SUMMING = "Summing the records"


@dataclass(frozen=True, eq=False, repr=False)
class StoredCells:
    """The exact sums of cells in a table of DuckDB, sorted by the place of their keys. CONFIDENTIAL.

    Attributes
    ----------
    query
        The query whose groups they are.
    backend, name
        The connection, and the name of the table.
    cells
        The number of keys; a key without records has no row.
    """

    query: SumsQuery
    backend: Any
    name: str
    cells: int

    def __repr__(self) -> str:
        return "<exact sums: confidential>"

    def batches(self, size: int) -> Iterator[ExactSums]:
        """Yield the exact sums of the first `size` keys, of the next ones, and so on."""
        for start in range(0, self.cells, size):
            # Each range is a query of its own, so that other threads may use the connection in between.
            wanted = f"SELECT * FROM {self.name} WHERE place >= {start} AND place < {start + size} ORDER BY place"
            found = self._ask(wanted)
            yield self.query.collected(found, to_numpy(found["place"]) - start, min(size, self.cells - start))

    def checked(self, explain: Callable[[Column], DataError]) -> "StoredCells":
        """Return the cells; remove them, and raise, unless all records can be summed (`SumsQuery.check`)."""
        try:
            self.query.check(self.fails, explain)
        except BaseException:
            self.close()
            raise
        return self

    def fails(self, test: Failed) -> bool:
        """Return whether a test holds for any group."""
        return bool(self._ask(f"SELECT count(*) FROM {self.name} WHERE {test.sql}")[0][0].as_py())

    @property
    def empty(self) -> bool:
        """Whether no record has any of the keys."""
        return not self._ask(f"SELECT count(*) FROM {self.name} WHERE rows > 0")[0][0].as_py()

    def _ask(self, query: str) -> pa.Table:
        with locked(self.backend), engine_errors("the engine", "could not read the sums", quote=False):
            return self.backend.con.execute(query).to_arrow_table()

    def close(self) -> None:
        """Remove the table, also if Ctrl-C interrupts that."""
        try:
            self._remove()
        except (KeyboardInterrupt, RuntimeError):  # DuckDB says "Query interrupted" by the latter
            self._remove()
            raise KeyboardInterrupt from None

    def _remove(self) -> None:
        with locked(self.backend):
            self.backend.con.execute(f"DROP TABLE IF EXISTS {self.name}")
            self.backend.con.execute(f"SET memory_limit = '{self.backend.usual_memory}'")


def stored_cells(
    table: ir.Table,
    columns: Sequence[Column],
    keys: Keys | None,
    protect: str | None = None,
    most_records: Fraction | None = None,
) -> StoredCells:
    """Sum columns by key in one scan of the table, and keep the sums in DuckDB; raise unless all can be counted.

    The parameters are those of `exact_sums`.
    """
    if keys is not None:
        check_labels(table, keys)
    return with_uncountable_floats(table, columns, keys, _stored, protect, most_records)


def _stored(query: SumsQuery) -> StoredCells:
    engine, backend = engine_of(query.query), query.query.get_backend()
    mine = backend if engine is PRIVATE else private_duckdb(size=SMALL_DATA + 1)
    if mine is not backend and mine.may_spill:  # the groups of the other engine are brought there
        mine.con.execute(f"SET memory_limit = '{MEMORY}'")
    with (
        engine_errors("the engine", "could not sum the table", quote=False),
        query_progress(backend, SUMMING),
        _found(query.query, mine) as found,
    ):
        made = joined(query, mine, found)

    def explain(column: Column) -> DataError:
        return explain_uncountable(query.table, column, query.keys, lambda asked: engines.run(asked, SUMMING))

    return made.checked(explain)


def joined(query: SumsQuery, mine: Any, found: str) -> StoredCells:
    """Return the groups of a query, which are the rows of other SQL of a private DuckDB, joined with the keys."""
    measures = [column for column in query.query.columns if not column.startswith("by")]
    made = StoredCells(query, mine, fresh_name("cells"), 1 if query.keys is None else len(query.keys))

    def fill() -> None:
        with _registered(mine, query) as (joins, place):
            mine.con.execute(
                f"CREATE TABLE {made.name} AS SELECT {place} AS place, {', '.join(measures)} "
                f"FROM ({found}) found {joins} ORDER BY place"
            )

    try:
        try:
            if mine.may_spill:
                mine.con.execute(f"SET memory_limit = '{MEMORY}'")
            fill()
        except duckdb.OutOfMemoryException:  # not all of the work can be done on disk: with the usual share of memory
            mine.con.execute(f"SET memory_limit = '{mine.usual_memory}'")
            fill()
    except BaseException:
        made.close()
        raise
    return made


@contextmanager
def _found(query: ir.Table, mine: Any) -> Iterator[str]:
    """Yield the SQL of a query for a private DuckDB; the groups of another engine are brought there."""
    engine, backend = engine_of(query), query.get_backend()
    if engine is not PRIVATE:
        name = fresh_name("found")
        try:
            for number, part in enumerate(engines.fetch_parts(query)):
                mine.con.register("part", part)
                into = f"INSERT INTO {name}" if number else f"CREATE TABLE {name} AS"
                mine.con.execute(f"{into} SELECT * FROM part")
                mine.con.unregister("part")
            yield f"SELECT * FROM {name}"
        finally:
            mine.con.execute(f"DROP TABLE IF EXISTS {name}")
        return
    backend._run_pre_execute_hooks(query)
    with nullcontext() if engine.statistics_are_safe(backend, query) else engines.without_statistics(backend):
        yield str(backend.compile(query))


def _with_places(factor: pa.Table | StoredKeys, engine: Engine) -> pa.Table | pa.RecordBatchReader:
    """Return keys with the columns label0, label1… in the form in which the engine returns labels, and place."""
    if isinstance(factor, StoredKeys):
        return factor.reader(as_bytes=engine is not PRIVATE)
    labels = [engine.key(factor[field.name], label_kind(field.type) or "") for field in factor.schema]
    named = {f"label{i}": column for i, column in enumerate(labels)}
    return pa.table(named | {"place": to_arrow(np.arange(len(factor)))})


@contextmanager
def _registered(mine: Any, query: SumsQuery) -> Iterator[tuple[str, str]]:
    """Register the keys, factor by factor; yield the joins with the groups, and the place of a group's key."""
    engine, names, joins, place = engine_of(query.query), [], [], "0"
    try:
        number = 0
        for factor in () if query.keys is None else query.keys.factors:
            names.append(fresh_name("keys"))
            mine.con.register(names[-1], _with_places(factor, engine))
            equal = [f"found.by{number + i} = {names[-1]}.label{i}" for i in range(factor.num_columns)]
            joins.append(f"JOIN {names[-1]} ON {' AND '.join(equal)}")
            place = f"({place}) * {len(factor)} + {names[-1]}.place"
            number += factor.num_columns
        yield " ".join(joins), place
    finally:
        for name in names:
            mine.con.unregister(name)
