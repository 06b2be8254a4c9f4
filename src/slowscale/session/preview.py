"""Previews: what a query would cost and how accurate it would be, before any record is read."""

from dataclasses import dataclass

from slowscale.accounting import RecordPolicy, Spent
from slowscale.columns import ColumnPolicy, example_sums
from slowscale.errors import CapError
from slowscale.figures import figure
from slowscale.mechanisms.calibration import CLOSED
from slowscale.mechanisms.charged import notion_in_words


@dataclass(frozen=True)
class Preview:
    """The cost and the accuracy of a query. It holds public facts only.

    Attributes
    ----------
    policy, pure_policy
        The loss of a record by the query, as PRzCDP and (or None) as PRDP.
    columns
        Each column with its policies, its unit and its standard errors (`column.errors(sums)`).
    warnings
        The warnings that `release` would give.
    refusal
        The `CapError` that `release` would raise now, or None.
    spent
        The total loss of a record by everything released before.
    accounting
        Which policy of each mechanism is charged: "closed" or "tight".
    """

    policy: RecordPolicy
    pure_policy: RecordPolicy | None
    columns: tuple[ColumnPolicy, ...]
    warnings: tuple[str, ...]
    refusal: CapError | None
    spent: Spent
    accounting: str = CLOSED

    def __str__(self) -> str:
        lines = [f"A record may lose ({notion_in_words(self.policy.notion, self.accounting)}): {self.policy}"]
        for column in self.columns:
            errors = [f"{figure(column.errors(at))} for a sum of {figure(at)}" for at in example_sums(column, ())]
            lines.append(f"  {column.name}: {column.mechanism}; standard error {', '.join(errors)}")
        lines += self.warnings
        return "\n".join([*lines, "No cap is in the way." if self.refusal is None else f"Refused: {self.refusal}"])
