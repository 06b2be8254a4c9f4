"""The scope of a report: the columns of a release, and the record sizes for which losses are stated."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from slowscale.accounting import RecordPolicy
from slowscale.columns import ColumnPolicy, released_columns, shown_sizes
from slowscale.errors import ParameterTypeError
from slowscale.release import Release
from slowscale.report.labels import Labels
from slowscale.report.page import Html, paragraph
from slowscale.sizes import RecordSize, SizesLike, read_sizes

SIZES_STATED = (
    "The sizes of the example records were stated by the curator as public knowledge. The report was generated without "
    "access to the records, so the sizes were not checked."
)
SIZES_CHOSEN = (
    "The curator chose these sizes without looking at the records. The largest record may be larger than all of them, "
    "and then has a larger loss."
)
SIZES_DERIVED = (
    "These sizes are powers of ten that follow from the noise and the units. They are not sizes of records in the "
    "data: the largest record may be larger than all of them, and then has a larger loss. The curator can state sizes "
    "that are public knowledge, with sizes= in Python or with [report] in a plan."
)


def read_stated_sizes(
    sizes: SizesLike | None, columns: Sequence[str], spent: RecordPolicy | None
) -> tuple[RecordSize, ...]:
    """Return the sizes that a report states, or raise if they or the total of the ledger are wrong.

    The sizes of a plan were checked before the release was charged, so they must not be refused now.
    """
    if spent is not None and not isinstance(spent, RecordPolicy):
        raise ParameterTypeError(f"spent must be a RecordPolicy such as session.spent, got {type(spent).__name__}")
    others = None if isinstance(sizes, tuple) else () if spent is None else spent.columns
    return read_sizes(sizes, columns, others)


@dataclass(frozen=True)
class Scope:
    """The columns of a release, and the record sizes for which losses are stated.

    `stated` is True if the curator gave the sizes. `labels` are what the report calls the columns.
    """

    columns: tuple[ColumnPolicy, ...]
    sizes: tuple[RecordSize, ...]
    stated: bool
    labels: Labels = field(default_factory=Labels)

    @staticmethod
    def of(release: Release, sizes: Sequence[RecordSize] = (), labels: Labels | None = None) -> "Scope":
        """Return the scope of a report."""
        columns = released_columns(release.policy, release.facts)
        return Scope(columns, shown_sizes(columns, sizes), bool(sizes), labels or Labels())

    @property
    def tight(self) -> bool:
        """Whether a column is charged less than the closed form of its policy."""
        return any(column.closed is not None for column in self.columns)

    @property
    def named(self) -> bool:
        """Whether the sizes have names; then the value in each column is shown as well."""
        return any(size.named for size in self.sizes)

    @property
    def heading(self) -> str:
        """The heading above the names of the sizes."""
        return "Example record" if self.named else "Size of the record in each column"

    @property
    def notes(self) -> list[Html]:
        """A note on where the sizes come from; none if every record has the same loss."""
        if all(column.single for column in self.columns):
            return []
        return [
            paragraph(SIZES_DERIVED if not self.stated else SIZES_STATED if self.named else SIZES_CHOSEN, class_="soft")
        ]
