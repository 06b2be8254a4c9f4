"""What a report calls the columns and the groups of a release: by a publication, or by their names."""

from dataclasses import dataclass

from slowscale.publication import ColumnLabel, Publication


@dataclass(frozen=True)
class Labels:
    """Titles, units of measure and names of groups, as a publication has them."""

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

    def table(self, name: str) -> str | None:
        """Return the title of a table of a set, or None if it has none."""
        return None if self.publication is None else self.publication.tables.get(name)

    def key(self, name: str) -> str:
        """Return the title of a key column."""
        return name if self.publication is None else self.publication.key_title(name)

    def group(self, key: str, label: object) -> str:
        """Return a label of a key column, with its name if there is one."""
        name = None if self.publication is None else self.publication.key_name(key, label)
        return str(label) if name is None else f"{label} {name}"
