"""What has been spent: the total over all releases so far, and what it means in plain words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slowscale.accounting.record import RecordPolicy
from slowscale.accounting.semantics import Loss, bounds_in_words, certainty
from slowscale.errors import ParameterError
from slowscale.figures import figure, share
from slowscale.markup import html_text
from slowscale.sizes import RecordSize, default_sizes
from slowscale.typing import Record


@dataclass(frozen=True)
class Piece:
    """What was released with noise of its own: one column of a release, or a whole release, some number of times.

    Attributes
    ----------
    policy, pure_policy
        What a record may lose by one of them, as PRzCDP and (or None) as PRDP.
    times
        How many of them there were.
    """

    policy: RecordPolicy
    pure_policy: RecordPolicy | None = None
    times: int = 1

    def loss(self, record: Mapping[str, Any]) -> Loss:
        """Return what a record loses by all of them."""
        pure = None if self.pure_policy is None else self.times * float(self.pure_policy(record))
        return Loss(self.times * float(self.policy(record)), pure)


@dataclass(frozen=True)
class Spent(RecordPolicy):
    """What a record may have lost by all releases so far: call it on a record, or print it.

    Attributes
    ----------
    releases
        How many releases there were.
    protects
        The column that tells which records belong to one entity, or None where single records are protected.
    pure_policy
        The same as PRDP, or None where a release has no such guarantee.
    pieces
        The pieces that the total is made of, where some of them have a pure guarantee; none where releases were made in
        parallel, or where the pieces are too many. Each may be taken as pure or not.
    """

    releases: int = 0
    protects: str | None = None
    pure_policy: RecordPolicy | None = None
    pieces: tuple[Piece, ...] = ()

    def entity(self, cells: Sequence[Record]) -> float:
        """Return what an entity may have lost, where there was one release; several may have different cells."""
        if self.releases > 1:
            raise ParameterError("give each release its own cells, release.policy.entity(cells), and add up")
        return super().entity(cells)

    def __str__(self) -> str:
        return self.describe()

    def _repr_html_(self) -> str:
        return html_text(str(self))

    def describe(self, sizes: Sequence[RecordSize] = ()) -> str:
        """Return in plain words what records of these sizes may have lost; without sizes, of powers of ten."""
        if not self.releases:
            return "Nothing has been released yet: no record has lost anything."
        thing = "record" if self.protects is None else self.protects
        size = "its size" if self.protects is None else "its total in a cell, and adds up over the cells it is in"
        shown = tuple(sizes) or default_sizes([(self.column(column), None) for column in self.columns])
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
                for one in shown
                if (value := one.value(column)) is not None
            ]
            lines.append(f"  {column}: {', '.join(losses) or 'no size is stated'}")
        counts = self.column(None)(0)
        if counts:
            lines.append(f"  being counted: {figure(counts)} for every record")
        lines += self._totals_in_words(shown, thing)
        if self.columns and not sizes:
            lines.append("These sizes follow from the policies, not from the records: the largest may be larger.")
        if self.pure_policy is not None:
            lines.append(f"There is a pure guarantee (PRDP), too: {self.pure_policy}")
        return "\n".join(lines)

    def _totals_in_words(self, sizes: Sequence[RecordSize], thing: str) -> list[str]:
        known = [(size, losses) for size in sizes if (losses := total_losses(self, size)) is not None]
        if not self.columns:
            known = known[:1]  # all lose the same
        if not known:
            return ["No size has a value for every column, so totals over the columns are not told."]
        names = [f" for {size.name}" if size.named else f" at {size.name}" * bool(self.columns) for size, _ in known]
        rhos = [sum(loss.rho for loss in losses) for _, losses in known]
        totals = [f"{figure(rho)}{name}" for rho, name in zip(rhos, names, strict=True)]
        sure, exceptions = bounds_in_words([certainty(losses) for _, losses in known], share)
        cells = "" if self.protects is None else f", if the {thing} is in one cell only"
        return [
            *([f"  all columns together: {', '.join(totals)}"] if self.columns else []),
            f"The highest certainty that an attacker who thinks it as likely as not that the {thing} is there can "
            f"reach by all releases together{cells} ({exceptions}):",
            f"  {', '.join(f'{one}{name}' for one, name in zip(sure, names, strict=True))}",
        ]


def total_losses(policy: RecordPolicy, size: RecordSize) -> list[Loss] | None:
    """Return what an example record loses over all columns, or None where it has no value in one of them.

    The losses add up; they are several where some can be taken as pure, and others not.
    """
    record = {column: size.value(column) for column in policy.columns}
    if None in record.values():
        return None
    with np.errstate(all="ignore"):
        if isinstance(policy, Spent) and policy.pieces:
            return [piece.loss(record) for piece in policy.pieces]
        pure = policy.pure_policy if isinstance(policy, Spent) else None
        return [Piece(policy, pure).loss(record)]
