"""What has been spent: the total over all releases so far, and its meaning as text."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slowscale.accounting.charge import Piece
from slowscale.accounting.explanation import Explanation, as_lines, at_most, explain, worst
from slowscale.accounting.record import COUNT, RecordPolicy
from slowscale.accounting.sizes import (
    NUMBERS_OF_RECORDS,
    RecordSize,
    SizesLike,
    assumed_count,
    default_sizes,
    read_sizes,
    sizes_in,
)
from slowscale.core.errors import ParameterError
from slowscale.core.markup import html_text
from slowscale.core.typing import Record

# What a record was exposed to: parts with independent noise, each with the number of times it was released.
Pieces = tuple[tuple[Piece, int], ...]


@dataclass(frozen=True)
class Spent(RecordPolicy):
    """What a record may have lost through all releases so far. Call it on a record, or print it.

    Attributes
    ----------
    releases
        The number of releases.
    protects
        The column that identifies the entity of a record, or None if single records are protected.
    pure_policy
        The same loss as PRDP, or None if a release has no pure guarantee.
    pieces
        The pieces that the total consists of, for each combination of parts that a record may be in. Empty if there are
        too many combinations, or if the pieces are not known.
    tables
        The number of tables with independent noise, which may be larger than that of releases: one release may be of a
        set of tables.
    """

    releases: int = 0
    protects: str | None = None
    pure_policy: RecordPolicy | None = None
    pieces: tuple[Pieces, ...] = ()
    tables: int = 0

    def entity(self, cells: Sequence[Record]) -> float:
        """Return what an entity may have lost through one release; several releases may have different cells."""
        if self.releases > 1:
            raise ParameterError(
                "cells",
                allowed=f"those of one release, but there were {self.releases}",
                remedy="add up release.policy.entity(cells) over the releases, each with its own cells",
            )
        if self.tables > 1:
            raise ParameterError(
                "cells",
                allowed=f"those of one table, but {self.tables} tables were drawn",
                remedy='use the set that was released: set.entity({"table": cells, …}), each table with its own cells',
            )
        return super().entity(cells)

    def __str__(self) -> str:
        return self.describe()

    def _repr_html_(self) -> str:
        return html_text(str(self))

    def describe(self, sizes: SizesLike = ()) -> str:
        """Return as text what records of these sizes may have lost. The default sizes are powers of ten.

        Parameters
        ----------
        sizes
            Example records, as in `Release.report`: {"median firm": {"emp": 12}, "largest firm": 4e10}, or numbers such
            as [100, 1e6].
        """
        stated = read_sizes(sizes) if len(sizes) else ()
        if not self.releases:
            return "No release has been charged to this account yet."
        thing = "record" if self.protects is None else self.protects
        size = "its size" if self.protects is None else "its total in a cell, and adds up over its cells"
        amounts = [column for column in self.columns if column != COUNT]
        derived = default_sizes([(self.column(column), None) for column in amounts])
        shown = stated or (derived if amounts or not self.columns else NUMBERS_OF_RECORDS)
        lines = [
            f"{self.releases} {'release' if self.releases == 1 else 'releases'} so far.",
            f"What a {thing} may have lost in all depends on {size}. In PRzCDP, column by column:"
            if self.columns
            else f"Every {thing} may have lost the same.",
        ]
        for column in self.columns:
            policy = self.column(column)
            losses = [
                f"{at_most(policy(value))} at {one.words(column)}"
                for one in sizes_in(column, shown)
                if (value := one.value(column)) is not None
            ]
            lines.append(f"  {column}: {', '.join(losses) or 'no size is stated'}")
        counts = self.column(None)(0)
        if counts:
            how = "being counted or ranked" if self.column(None).by_rank else "being counted"
            lines.append(f"  {how}: {at_most(counts)} for every record")
        lines += [*self._totals_in_words(shown), *assumed_count(self.protects, self.columns, shown)]
        if self.columns and not stated:
            lines.append("These sizes follow from the policies, not from the records: the largest may be larger.")
        if self.pure_policy is not None:
            lines.append(f"There is also a pure guarantee (PRDP): {self.pure_policy}")
        return "\n".join(lines)

    def explain(self, size: RecordSize) -> Explanation | None:
        """Return what an example record may have lost in all and what that means, or None if a column has no value.

        If some releases are about parts of the records, it is the worst case over the parts that a record may be in.
        """
        record = size.record(self.columns)
        if record is None:
            return None
        with np.errstate(all="ignore"):
            pieces = self.pieces or (((Piece(self, self.pure_policy), 1),),)
            return worst([explain([piece.loss(record, times) for piece, times in some]) for some in pieces])

    def _totals_in_words(self, sizes: Sequence[RecordSize]) -> list[str]:
        known = [(size.name, found) for size in sizes if (found := self.explain(size)) is not None]
        if not known:
            return ["No size has a value for every column, so totals over the columns are not shown."]
        if not self.columns:
            known = [("every record", known[0][1])]
        return ["All columns together:", *as_lines(known, self.protects or "record", self.protects is not None)]
