"""The release: one or more tables that were published together, with everything that a reader needs to judge them.

A release holds public facts only.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
import pyarrow as pa

from slowscale.accounting import RecordPolicy
from slowscale.core.errors import ParameterError
from slowscale.core.files import Writers, ensure_dir, write_files
from slowscale.core.markup import html_table, html_text
from slowscale.core.parameters import Array
from slowscale.core.typing import Record
from slowscale.mechanisms import Mechanism
from slowscale.mechanisms.calibration import notion_in_words
from slowscale.release.facts import Facts
from slowscale.release.files import csv_files, parquet_files
from slowscale.release.table import NOT_PRIVATE, ReleasedSums, ReleasedTable

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from slowscale.accounting.sizes import SizesLike
    from slowscale.data.hierarchies import Hierarchy
    from slowscale.publish import Publication
    from slowscale.publish.charts import ReleasePlot
    from slowscale.release.session import Session

# The functions that prepare the files of a table, by the ending of its file.
WRITERS_OF = {".parquet": parquet_files, ".csv": csv_files}


@dataclass(frozen=True)
class ReleasePolicy(RecordPolicy):
    """The loss of a record by a release: the sum of its losses by the drawn tables.

    Attributes
    ----------
    tables
        The number of drawn tables.
    """

    tables: int = 1

    def entity(self, cells: Sequence[Record]) -> float:
        """Return what an entity may lose by a release with one drawn table; several tables have different cells."""
        if self.tables > 1:
            raise ParameterError(
                "cells",
                allowed=(
                    f'those of one table, but {self.tables} tables are drawn: use release.entity({{"table": cells, '
                    "…}), each table with its own cells"
                ),
            )
        return super().entity(cells)


@dataclass(frozen=True, eq=False, repr=False)
class Release:
    """Tables that were published together: `release["cells"]` is one of them.

    If there is one table, the release has the methods of that table, too: `release.to_pandas()`,
    `release.interval("emp")`.

    Attributes
    ----------
    tables
        The tables by name.
    facts
        Everything that is public about the release. `json.dumps(release.facts.to_dict())` writes it as JSON.
    policy
        The PRzCDP loss of a record by the whole release. Call it on a record, such as {"emp": 12}.
    pure_policy
        The PRDP loss of a record, or None if a mechanism has no such guarantee.
    """

    tables: Mapping[str, ReleasedTable]
    facts: Facts
    policy: RecordPolicy
    pure_policy: RecordPolicy | None = None

    @staticmethod
    def of(
        tables: Mapping[str, ReleasedTable], facts: Facts, policy: RecordPolicy, pure_policy: RecordPolicy | None
    ) -> "Release":
        """Return the release with these tables; their facts become those of the release."""
        whole = facts.with_(tables={**facts.tables, **{name: table.facts for name, table in tables.items()}})
        drawn = len(whole.drawn)
        total = policy if drawn < 2 else ReleasePolicy(policy.terms, policy.parallel, policy.filtered, drawn)
        return Release({name: replace(table, whole=whole) for name, table in tables.items()}, whole, total, pure_policy)

    def __getitem__(self, name: str) -> Any:
        if name not in self.tables:
            raise ParameterError("there", f"is no table {name!r}", remedy=f"the tables are {', '.join(self.tables)}")
        return self.tables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables)

    def __contains__(self, name: object) -> bool:
        return name in self.tables

    def __len__(self) -> int:
        return len(self.tables)

    @property
    def sums(self) -> dict[str, ReleasedSums]:
        """The tables of sums, drawn or derived."""
        return {name: table for name, table in self.tables.items() if isinstance(table, ReleasedSums)}

    @property
    def drawn(self) -> tuple[str, ...]:
        """The names of the tables with independent noise."""
        return tuple(name for name in self.tables if self.facts.tables[name].drawn)

    @property
    def _only(self) -> Any:
        """The table, if there is one."""
        if len(self.tables) > 1:
            raise ParameterError(
                "the release",
                f"has {len(self.tables)} tables ({', '.join(self.tables)}): name one of them, as in release["
                f"{next(iter(self.tables))!r}]",
            )
        return next(iter(self.tables.values()))

    @property
    def _only_sums(self) -> ReleasedSums:
        """The table, if there is one and it has sums."""
        if not isinstance(found := self._only, ReleasedSums):
            raise ParameterError("the release", f"has no sums: its table {found.name!r} has quantiles of record sizes")
        return found

    def __repr__(self) -> str:
        warning = "" if self.facts.private else NOT_PRIVATE
        if len(self.tables) == 1:
            first, *lines = repr(self._only).removeprefix(warning).splitlines()
            lines.insert(0, f"{warning}Release of {first.removeprefix(f'{self._only.name}: ')}")
        else:
            lines = [f"{warning}Release of {len(self.tables)} tables"]
            for table in self.tables.values():
                of = "" if table.facts.of is None else f", derived from {table.facts.of} without further loss"
                lines.append(f"  {repr(table).removeprefix(warning).splitlines()[0]}{of}")
        notion = notion_in_words(self.facts.notion, self.facts.accounting)
        entity = self.facts.protect
        who = "A record may lose" if entity is None else f"One {entity}, in one cell of each drawn table, may lose"
        lines.append(f"  {who} ({notion}), added up:")
        return "\n".join([*lines, *(f"    {RecordPolicy((term,))}" for term in self.policy.terms)])

    def _repr_html_(self) -> str:
        if len(self.tables) == 1:
            found: str = self._only._repr_html_()
            return found + html_text(repr(self))
        rows = [
            [name, ", ".join(table.facts.by) or "total", f"{len(table):,}", _noise_in_words(table)]
            for name, table in self.tables.items()
        ]
        return html_table("Tables", ["table", "by", "rows", "noise"], rows) + html_text(repr(self))

    # What a release with one table has of its table.

    @property
    def table(self) -> pa.Table:
        """The numbers of the table, as an Arrow table."""
        return self._only.table

    @property
    def mechanisms(self) -> Mapping[str, Mechanism]:
        """The mechanism of each column of the table."""
        return self._only_sums.mechanisms

    def to_arrow(self) -> pa.Table:
        """Return the table as an Arrow table, with the facts in the metadata of its schema."""
        return self._only.to_arrow()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._only.__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> "pd.DataFrame":
        """Return the table as a pandas frame, with the facts in its `attrs`."""
        frame: pd.DataFrame = self._only.to_pandas()
        return frame

    def to_polars(self) -> "pl.DataFrame":
        """Return the table as a polars frame."""
        frame: pl.DataFrame = self._only.to_polars()
        return frame

    def interval(self, column: str, level: float = 0.95) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return the ends of intervals for the true sums of a column; see `ReleasedSums.interval`."""
        low, high = self._only_sums.interval(column, level)
        return low, high

    def unbiased_variance(self, column: str) -> Array:
        """Return unbiased estimates of the variances of a column's numbers; see `ReleasedSums.unbiased_variance`."""
        found: Array = self._only_sums.unbiased_variance(column)
        return found

    def plot(self, column: str, *, top: int = 50) -> "ReleasePlot":
        """Return a chart of a column; see `ReleasedSums.plot`."""
        found: ReleasePlot = self._only_sums.plot(column, top=top)
        return found

    def ratio(
        self, numerator: str, denominator: str, name: str | None = None, level: float = 0.95, interval: str = "box"
    ) -> "Release":
        """Return the release with one more column in its table, a ratio; see `ReleasedSums.ratio`."""
        return self._with(self._only_sums.ratio(numerator, denominator, name, level, interval))

    def rollup(
        self, by: str | Sequence[str] = (), *, hierarchy: "Hierarchy | Iterable[Hierarchy] | None" = None
    ) -> "Release":
        """Return a release of the sums of the published cells; see `ReleasedSums.rollup`."""
        return self._with(self._only_sums.rollup(by, hierarchy=hierarchy))

    def _with(self, table: ReleasedTable) -> "Release":
        return Release({table.name: table}, table.whole, self.policy, self.pure_policy)

    # All tables.

    def entity(self, cells: Mapping[str, Sequence[Record]]) -> float:
        """Return what an entity with several records may lose, from its totals in the cells of each table.

        Removing the entity shifts each cell of each drawn table by the entity's total there. Cells have independent
        noise, so the losses add over cells and over drawn tables.

        Parameters
        ----------
        cells
            For each drawn table, the cells that the entity is in: a list of mappings of columns to totals, with the
            number of records as "count".
        """
        if not isinstance(cells, Mapping) or set(cells) != set(self.drawn):
            given = ", ".join(map(str, cells)) if isinstance(cells, Mapping) else type(cells).__name__
            raise ParameterError(
                "cells", allowed=f"a mapping with the cells of each drawn table ({', '.join(self.drawn)})", given=given
            )
        return sum(self.tables[name].policy.entity(cells[name]) for name in self.drawn)

    def to_parquet(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write Parquet files with the facts in their schemas, all or none, and return the path.

        The path is that of the file of the table or, if there are several, of a folder for their files.
        """
        return self._write(path, ".parquet", overwrite)

    def to_csv(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write CSV files, each with its facts in a JSON file; see `to_parquet` and `ReleasedTable.to_csv`."""
        return self._write(path, ".csv", overwrite)

    def _write(self, path: str | os.PathLike[str], ending: str, overwrite: bool) -> Path:
        paths: dict[str, str | os.PathLike[str]] = dict.fromkeys(self.tables, path)
        if len(self.tables) > 1:
            folder = ensure_dir(path)
            paths = {name: folder / f"{name}{ending}" for name in self.tables}
        files: Writers = {}
        for name, file in paths.items():
            files |= WRITERS_OF[ending](self.tables[name].table, self.tables[name].file_facts, file, overwrite)
        write_files(files, overwrite=overwrite)
        return Path(path)

    def publish(
        self,
        path: str | os.PathLike[str],
        publication: "Publication",
        *,
        profile: str = "research",
        overwrite: bool = False,
    ) -> list[Path]:
        """Write the tables of sums for readers, with titles, units and names, whole or not at all; return the paths.

        Quantiles of record sizes are in the report and in the files of `to_parquet` and `to_csv` only. Everything is
        computed from what was released, so no record loses more by it.

        Parameters
        ----------
        path
            The file to write. It may end in .parquet; in .csv, with a data package beside it (table.datapackage.json)
            that says what the columns are; or in .xlsx, with a sheet of notes and one for each table. For several
            tables, data.csv stands for data-cells.csv, data-states.csv and so on.
        publication
            The title, the source, labels of columns and further texts.
        profile
            "research": the numbers as they were released, with standard errors and intervals. `read_release` reads
            such a Parquet file. "basic": rounded estimates with intervals, coefficients of variation and reliability
            flags.
        overwrite
            Whether to replace existing files.
        """
        from slowscale.publish import publish

        return publish(self, path, publication, profile=profile, overwrite=overwrite)

    def report(
        self,
        path: str | os.PathLike[str],
        spent: RecordPolicy | None = None,
        *,
        overwrite: bool = False,
        sizes: "SizesLike | None" = None,
        publication: "Publication | None" = None,
    ) -> Path:
        """Write a report that everyone may read: one HTML file that opens offline.

        Parameters
        ----------
        path
            The file to write. Its name must end in .html.
        spent
            The total loss of a record over all releases up to and including this one, such as `session.spent`.
        overwrite
            Whether to replace an existing file.
        sizes
            Example records by name, each with a value for each column or one number for all columns, such as
            {"median firm": {"emp": 12, "payann": 4e5}, "largest firm": 4e10}. One name must contain "largest". The
            sizes are published, so they must be public knowledge, never looked up in the records. Without them the
            report uses powers of ten.
        publication
            Titles, units of measure and names of groups, which the report then shows in place of the names of columns.
        """
        from slowscale.publish.report import write_report

        return write_report(self, path, spent=spent, overwrite=overwrite, sizes=sizes, publication=publication)

    def confidential_report(self, path: str | os.PathLike[str], session: "Session", *, overwrite: bool = False) -> Path:
        """Write a report for the curator only: one HTML file with the losses of the records and the true errors.

        CONFIDENTIAL: the report is computed from the records and contains no noise. Only the owner of the file may read
        it (mode 0600). Never publish it.

        Parameters
        ----------
        path
            The file to write. Its name must end in .html.
        session
            The session that made this release. A release holds no confidential facts, so the session computes them.
        overwrite
            Whether to replace an existing file.
        """
        from slowscale.publish.report import write_confidential_report

        return write_confidential_report(self, path, session, overwrite=overwrite)


def _noise_in_words(table: ReleasedTable) -> str:
    return "drawn" if table.facts.of is None else f"from {table.facts.of}"
