"""The tables [[table]] and [[hierarchy]] of a plan: several tables that are published together."""

from typing import Any

from pydantic import Field, field_validator, model_validator

from slowscale.core.files import PLAIN_NAME
from slowscale.plan.base import FilePath, PlanPart, Types
from slowscale.plan.inputs import CsvPlan, KeysPlan
from slowscale.plan.mechanisms import MechanismPlan, SumPlan


class TablePlan(PlanPart):
    """A table of a set: drawn, with noise of its own, or derived from another table without further loss."""

    name: str = Field(description="The name of the table, which is also the name of its files.")
    of: str | None = Field(
        None,
        alias="from",
        description="The table that this one is derived from: its numbers are sums of published cells. Leave it out "
        "for a table that is drawn.",
    )
    by: list[str] | None = Field(
        None,
        description="For a derived table: the key columns to keep, or levels of a [[hierarchy]]. Leave it out for the "
        "total.",
    )
    keys: KeysPlan | None = Field(
        None, description="For a drawn table: the public cells. Leave them out for totals over all records."
    )
    sums: list[SumPlan] = Field(
        [], description="For a drawn table: the columns to sum. The default is the [[sums]] of the plan."
    )
    count: MechanismPlan | None = Field(
        None,
        description="For a drawn table: the mechanism for the number of records. The default, for a table without sums "
        "of its own, is the [count] of the plan.",
    )

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if PLAIN_NAME.fullmatch(name) is None:
            raise ValueError("must consist of letters, digits, _ and -, because the files of the table have this name")
        return name

    @model_validator(mode="after")
    def _check_kind(self) -> "TablePlan":
        if self.of is None and self.by is not None:
            raise ValueError(
                "by is for a derived table: give from as well; for a drawn table write keys = { by = […], file = … }"
            )
        if self.of is not None and (self.keys is not None or self.sums or self.count is not None):
            raise ValueError(
                "a derived table has the columns of the table that it is from: remove keys, sums and count"
            )
        return self

    @property
    def drawn(self) -> bool:
        """Whether the table has noise of its own."""
        return self.of is None


class HierarchyPlan(PlanPart):
    """Levels above a key column, such as county, state and nation: derived tables can be by such a level."""

    column: str = Field(min_length=1, description="The key column.")
    digits: dict[str, int] | None = Field(
        None,
        description="Levels that are the first characters of a label, such as { sector = 2, subsector = 3 } for NAICS.",
    )
    file: FilePath | None = Field(
        None,
        description="A file with one row for each label of the column, and a column for each level. Relative to the "
        "plan.",
    )
    levels: list[str] | None = Field(None, description="The levels: columns of the file, in ascending order.")
    types: Types = Field(
        {}, description="Types of the columns of a CSV file; if not given, those of the same columns of the data."
    )
    csv: CsvPlan | None = Field(None, description="The format of the file, if it is a CSV file.")

    @model_validator(mode="after")
    def _check_form(self) -> "HierarchyPlan":
        if (self.digits is None) == (self.file is None):
            raise ValueError("give either digits = { sector = 2 }, or file and levels")
        if self.file is not None and not self.levels:
            raise ValueError('file needs the levels, such as levels = ["state"]')
        if self.file is None and self.levels is not None:
            raise ValueError("levels are columns of a file: give file, or remove levels")
        if self.file is None and (self.types or self.csv is not None):
            raise ValueError("types and csv go with file")
        return self


def table_chain(tables: list[TablePlan], name: str) -> list[str]:
    """Return a table, the table that it is from, and so on, down to a drawn one; raise if there is none."""
    known = {table.name: table for table in tables}
    chain = [name]
    while (source := known[chain[-1]].of) is not None:
        if source not in known:
            raise ValueError(f"there is no table {source!r}; the tables are {', '.join(known)}")
        if source in chain:
            raise ValueError(f"no table is drawn: {' is from '.join([*chain, source])}")
        chain.append(source)
    return chain


def own_parts(part: TablePlan, sums: Any, count: Any) -> dict[str, Any]:
    """Return the keys, the sums and the count of a drawn table, with the plan's as defaults."""
    own = bool(part.sums) or part.count is not None
    return {"keys": part.keys, "sums": part.sums if own else sums, "count": part.count if own else count}
