"""The records of a session: the opened table, and what is known about it before any record is read."""

from collections.abc import Mapping
from dataclasses import dataclass

import ibis.expr.operations as ops
import ibis.expr.types as ir

from slowscale.accounting.record import folded
from slowscale.core.parameters import lazy
from slowscale.data import rowwise
from slowscale.data.conversion import Source
from slowscale.data.meanings import Meanings, computed_columns

RECORD_PROTECTED = "one record (one row of the table): whether it is there, and what it holds"
ENTITY_PROTECTED = (
    "one {0}: whether its records are there, and what they hold. In the policy a column stands for the total of one "
    "{0} in a cell, and the losses add over cells"
)
EngineTable = ir.Table  # a table of an engine, or a query on it
ROWS_COMBINED = "; the table is itself a query that combines rows, and a record is a row of its result"


@dataclass(frozen=True)
class Records:
    """An opened table of records.

    Attributes
    ----------
    source
        The table, with what is known about how it was read.
    protect
        The column that tells which records belong to one entity, or None if single records are protected.
    combines_rows
        Whether the table is a query or a view that may combine rows of stored tables.
    filtered
        Whether the table may leave out stored rows, so that a change of value may move a record in or out.
    """

    source: Source
    protect: str | None
    combines_rows: bool
    filtered: bool

    @staticmethod
    def of(source: Source, protect: str | None) -> "Records":
        """Return the records of a source; raise if it is not known that its rows are records."""
        combines_rows = rowwise.check_source(source.table) or source.view
        # A view may filter: what it does is not known.
        filtered = source.filtered or combines_rows or rowwise.filters(source.table)
        return Records(source, protect, combines_rows, filtered)

    @property
    def table(self) -> ir.Table:
        """The table."""
        return self.source.table

    @property
    def protected(self) -> str:
        """What a release protects, in words."""
        protected = RECORD_PROTECTED if self.protect is None else ENTITY_PROTECTED.format(self.protect)
        return protected + ROWS_COMBINED * self.combines_rows

    @property
    def stored_names(self) -> set[str]:
        """The names of all columns of the stored tables, folded to one spelling."""
        return {folded(name) for table in self.table.op().find(ops.PhysicalTable) for name in table.schema.names}

    def is_stored(self, name: str) -> bool:
        """Whether a column is, unchanged and under the same name, a column of a stored table."""
        if self.combines_rows:
            return False
        if self.source.stored is not None:
            return name in self.source.stored
        return folded(rowwise.plain_columns(self.table).get(name, "")) == folded(name)

    @lazy
    def computed(self) -> Meanings:
        """The normal forms of the table's columns that are not stored, by folded name."""
        stored = self.source.stored
        hidden = [] if stored is None else [name for name in self.table.columns if name not in stored]
        return {**computed_columns(self.table), **{folded(name): "computed by Spark" for name in hidden}}

    def used_columns(self, derive: Mapping[str, str], where: str | None) -> set[str]:
        """Return the columns of the table, and of those derived from it, that the expressions read."""
        used: set[str] = set()
        table = self.table
        for name, expression in derive.items():
            used |= rowwise.used_columns(table, expression)
            table = rowwise.derive(table, {name: expression})
        return used if where is None else used | rowwise.used_columns(table, where)
