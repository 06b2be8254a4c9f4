"""What all reports share: pages made from templates, the names of columns, and the sizes whose losses are stated.

Templates escape everything, and a page is one HTML file that loads nothing.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from slowscale.accounting.largest import in_words
from slowscale.accounting.sizes import RecordSize, assumed_count
from slowscale.core.files import check_output_path, write_files
from slowscale.core.numbers import format_number, percent
from slowscale.mechanisms.transformation import TransformationMechanism
from slowscale.policy.bounded import BAND
from slowscale.policy.families import TransformationPolicy
from slowscale.policy.tree import Tabulated, contains
from slowscale.publish import ColumnLabel, Publication
from slowscale.publish.charts import tools
from slowscale.release.columns import ColumnPolicy, drawn_columns, shown_sizes
from slowscale.release.release import Release


@dataclass(frozen=True)
class Cell:
    """A cell of a table: text, with code after it, a smaller line below it, or a link to a part of the page."""

    text: str
    code: str = ""
    small: str = ""
    anchor: str = ""


# A row of a table; a row with a single number has it for all columns.
Row = Sequence[str | Cell]


def listed(parts: Sequence[str], last: str = "and") -> str:
    """Return the parts as a list in a sentence: "a, b and c"."""
    return f"{', '.join(parts[:-1])} {last} {parts[-1]}" if len(parts) > 1 else "".join(parts)


def upper(text: str) -> str:
    """Return the text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


TEMPLATES = Environment(
    loader=PackageLoader(__package__),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    extensions=["jinja2.ext.do"],
)
TEMPLATES.filters |= {"format_number": format_number, "percent": percent, "listed": listed, "upper": upper}


def render(template: str, **values: object) -> str:
    """Return a page; its tables and figures are numbered in order, and its sections are listed at the top."""
    counters = {"next_table": count(1).__next__, "next_figure": count(1).__next__}
    return TEMPLATES.get_template(template).render(contents=[], **counters, **values)


def write_page(
    path: str | os.PathLike[str], make: Callable[[], str], *, overwrite: bool, confidential: bool = False
) -> Path:
    """Write the page that `make` returns, after checking that the file can be written and that charts can be drawn."""
    target = check_output_path(path, ".html", overwrite)
    tools()
    text = make()
    files = {target: lambda file: file.write_text(text, encoding="utf-8")}
    return write_files(files, overwrite=overwrite, confidential=confidential)


@dataclass(frozen=True)
class Labels:
    """What a report calls columns and groups: by a publication, or else by their names."""

    publication: Publication | None = None

    def column(self, name: str) -> ColumnLabel:
        """Return the title and the unit of a column."""
        return ColumnLabel(name) if self.publication is None else self.publication.label(name)

    def title(self, name: str) -> str:
        """Return the title of a column."""
        return self.column(name).title

    def with_unit(self, name: str) -> str:
        """Return the title of a column with its unit of measure."""
        return str(self.column(name))

    def key(self, name: str) -> str:
        """Return the title of a key column."""
        return name if self.publication is None else self.publication.key_title(name)

    def group(self, key: str, label: object) -> str:
        """Return a label of a key column, with its name if there is one."""
        name = None if self.publication is None else self.publication.key_name(key, label)
        return str(label) if name is None else f"{label} {name}"


@dataclass(frozen=True)
class Scope:
    """The columns of all drawn tables, and the record sizes for which losses are stated.

    `stated` is True if the curator gave the sizes. `labels` are what the report calls the columns. `entity` is the
    column whose entities are protected, or None if single records are. `band` is the factor of the band of values.
    """

    columns: tuple[ColumnPolicy, ...]
    sizes: tuple[RecordSize, ...]
    stated: bool
    labels: Labels = field(default_factory=Labels)
    entity: str | None = None
    band: float = BAND

    @staticmethod
    def of(release: Release, sizes: Sequence[RecordSize] = (), labels: Labels | None = None) -> "Scope":
        """Return the scope of a report."""
        columns = drawn_columns(release)
        facts, shown = release.facts, shown_sizes(columns, sizes)
        return Scope(columns, shown, bool(sizes), labels or Labels(), facts.protect, facts.band)

    @property
    def bounded(self) -> str:
        """The largest values of all columns, as text; "" if a column has none."""
        sized = {column.name: column.largest for column in self.columns if not column.single}
        known = {self.labels.title(name): value for name, value in sized.items() if value is not None}
        return in_words(known) if len(known) == len(sized) else ""

    @property
    def tight(self) -> bool:
        """Whether a column is charged less than the closed form of its policy."""
        return any(column.closed is not None for column in self.columns)

    @property
    def named(self) -> bool:
        """Whether the sizes have names; then the value in each column is shown as well."""
        return any(size.named for size in self.sizes)

    @property
    def heads(self) -> list[str]:
        """The heads of a table with one column per size."""
        first = f"Example {self.noun}" if self.named else f"Size of the {self.noun} in each column"
        return [first, *(size.name for size in self.sizes)]

    @property
    def noun(self) -> str:
        """What is protected: "record", or the column that identifies entities."""
        return self.entity or "record"

    @property
    def single(self) -> bool:
        """Whether all records have the same loss, whatever their size."""
        return all(column.single for column in self.columns)

    @property
    def pure(self) -> list[str]:
        """The columns that have a pure guarantee in every drawn table."""
        without = {column.name for column in self.columns if column.pure is None}
        return [
            self.labels.title(name) for name in dict.fromkeys(one.name for one in self.columns) if name not in without
        ]

    @property
    def tabulated(self) -> bool:
        """Whether a formula stands for a table of losses."""
        return any(contains(column.policy.formula(), Tabulated) for column in self.columns)

    @property
    def transformed(self) -> bool:
        """Whether a sum is transformed before noise is added."""
        known = [column.mechanism for column in self.columns]
        user = any(isinstance(column.policy, TransformationPolicy) for column in self.columns)
        return user or any(isinstance(mechanism, TransformationMechanism) for mechanism in known)

    def assumed(self, columns: Sequence[str]) -> list[str]:
        """Return notes on the numbers of records that losses through these columns assume."""
        return list(assumed_count(self.entity, columns, self.sizes))
