"""What a report is about: the columns of a release, and the sizes of records that it speaks of."""

from collections.abc import Sequence
from dataclasses import dataclass

from slowscale.columns import ColumnPolicy, released_columns, shown_sizes
from slowscale.release import Release
from slowscale.report.page import Html, paragraph
from slowscale.sizes import RecordSize

SIZES_STATED = (
    "The sizes of example records were stated by the curator as public knowledge. The report was made without looking "
    "at the records, and did not check them."
)
SIZES_CHOSEN = (
    "The curator chose these sizes without looking at the records. The largest record may be larger than all of them, "
    "and then it loses more."
)
SIZES_DERIVED = (
    "These sizes are powers of ten that follow from the noise and the units. They are not sizes of records in the "
    "data, and the largest record may be larger than all of them, and then it loses more. The curator can state sizes "
    "that are public knowledge: with sizes= in Python, or with [report] in a plan."
)


@dataclass(frozen=True)
class Scope:
    """The columns of a release, and the sizes at which losses are told; `stated` if the curator gave them."""

    columns: tuple[ColumnPolicy, ...]
    sizes: tuple[RecordSize, ...]
    stated: bool

    @staticmethod
    def of(release: Release, sizes: Sequence[RecordSize] = ()) -> "Scope":
        """Return the scope of a report."""
        columns = released_columns(release.policy, release.facts)
        return Scope(columns, shown_sizes(columns, sizes), bool(sizes))

    @property
    def named(self) -> bool:
        """Whether the sizes have names, so that the value in each column is told beside them."""
        return any(size.named for size in self.sizes)

    @property
    def heading(self) -> str:
        """What stands above the names of the sizes' rows."""
        return "Example record" if self.named else "Size of the record in each column"

    @property
    def notes(self) -> list[Html]:
        """Where the sizes come from; nothing where every record loses the same."""
        if all(column.single for column in self.columns):
            return []
        return [
            paragraph(SIZES_DERIVED if not self.stated else SIZES_STATED if self.named else SIZES_CHOSEN, class_="soft")
        ]
