"""What has been spent: the total over all releases so far, and its meaning as text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slowscale.accounting.record import COUNT, RecordPolicy
from slowscale.accounting.semantics import Loss, bounds_in_words, explain, highest_certainty
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
from slowscale.core.numbers import figure, share
from slowscale.core.typing import Record


@dataclass(frozen=True)
class Piece:
    """A part of the total with independent noise: one column of a release, or a whole release, some number of times.

    Attributes
    ----------
    policy, pure_policy
        What a record may lose through it once, as PRzCDP and as PRDP; the latter is None without a pure guarantee.
    times
        How many times it was released.
    """

    policy: RecordPolicy
    pure_policy: RecordPolicy | None = None
    times: int = 1

    def loss(self, record: Mapping[str, Any]) -> Loss:
        """Return what a record loses through all of its releases."""
        pure = None if self.pure_policy is None else self.times * float(self.pure_policy(record))
        return Loss(self.times * float(self.policy(record)), pure)


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
        The pieces that the total consists of, if some of them have a pure guarantee. Each of those may be counted as
        pure or as PRzCDP. Empty if releases were made in parallel, or if there are too many pieces.
    tables
        The number of tables with noise of their own, which may be larger than that of releases: one release may be of a
        set of tables.
    """

    releases: int = 0
    protects: str | None = None
    pure_policy: RecordPolicy | None = None
    pieces: tuple[Piece, ...] = ()
    tables: int = 0

    def entity(self, cells: Sequence[Record]) -> float:
        """Return what an entity may have lost through one release; several releases may have different cells."""
        if self.releases > 1:
            raise ParameterError(
                f"cells must be those of one release, but there were {self.releases}; add up "
                "release.policy.entity(cells) over the releases, each with its own cells"
            )
        if self.tables > 1:
            raise ParameterError(
                f"cells must be those of one table, but {self.tables} tables were drawn; use the set that was "
                'released: set.entity({"table": cells, …}), each table with its own cells'
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
            else f"Every {thing} may have lost the same, in PRzCDP:",
        ]
        for column in self.columns:
            policy = self.column(column)
            losses = [
                f"{figure(policy(value))} at {one.words(column)}"
                for one in sizes_in(column, shown)
                if (value := one.value(column)) is not None
            ]
            lines.append(f"  {column}: {', '.join(losses) or 'no size is stated'}")
        counts = self.column(None)(0)
        if counts:
            how = "being counted or ranked" if self.column(None).by_rank else "being counted"
            lines.append(f"  {how}: {figure(counts)} for every record")
        lines += [*self._totals_in_words(shown), *assumed_count(self.protects, self.columns, shown)]
        if self.columns and not stated:
            lines.append("These sizes follow from the policies, not from the records: the largest may be larger.")
        if self.pure_policy is not None:
            lines.append(f"There is also a pure guarantee (PRDP): {self.pure_policy}")
        return "\n".join(lines)

    def _totals_in_words(self, sizes: Sequence[RecordSize]) -> list[str]:
        known = [(size, explain(losses)) for size in sizes if (losses := total_losses(self, size)) is not None]
        if not self.columns:
            known = known[:1]  # every record loses the same
        if not known:
            return ["No size has a value for every column, so totals over the columns are not shown."]
        names = [f" for {size.name}" if size.named else f" at {size.name}" * bool(self.columns) for size, _ in known]
        totals = [f"{figure(explained.loss)}{name}" for (_, explained), name in zip(known, names, strict=True)]
        sure, exceptions = bounds_in_words([explained.certainty for _, explained in known], share)
        certain = highest_certainty(self.protects, "by all releases together")
        return [
            *([f"  all columns together: {', '.join(totals)}"] if self.columns else []),
            f"The {certain} ({exceptions}):",
            f"  {', '.join(f'{one}{name}' for one, name in zip(sure, names, strict=True))}",
        ]


def total_losses(policy: RecordPolicy, size: RecordSize) -> list[Loss] | None:
    """Return what an example record loses over all columns, or None if it has no value in one of them.

    The losses add up. There are several if each of them can be counted as pure or as PRzCDP.
    """
    record = {column: size.value(column) for column in policy.columns}
    if None in record.values():
        return None
    with np.errstate(all="ignore"):
        if isinstance(policy, Spent) and policy.pieces:
            return [piece.loss(record) for piece in policy.pieces]
        pure = policy.pure_policy if isinstance(policy, Spent) else None
        return [Piece(policy, pure).loss(record)]
