"""The release: tables that were published together, with everything a reader needs to judge them; read from files too.

A release holds public facts only.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet

from slowscale.accounting import Explanation, RecordPolicy
from slowscale.accounting.bands import Band, band_policy
from slowscale.accounting.record import read_policies
from slowscale.core.errors import EngineError, ParameterError, ParameterTypeError, Place, Shown, SlowscaleError
from slowscale.core.files import Writers, ensure_dir, write_files
from slowscale.core.markup import html_table, html_text
from slowscale.core.parameters import Array
from slowscale.core.typing import Record
from slowscale.mechanisms import Mechanism, TransformationMechanism
from slowscale.mechanisms.calibration import notion_in_words
from slowscale.release.facts import (
    FILE_ENTRIES,
    FORMAT,
    METADATA,
    Facts,
    TableFacts,
    csv_files,
    kept_release,
    parquet_files,
    read_csv,
    read_parquet,
    released_schema,
)
from slowscale.release.numbers import RATIO_SUFFIXES
from slowscale.release.quantiles import ReleasedQuantiles
from slowscale.release.stored import ROW_GROUP, StoredTable
from slowscale.release.table import NOT_PRIVATE, ReleasedSums, ReleasedTable, released_by

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from slowscale.accounting.sizes import SizesLike
    from slowscale.data.hierarchies import Hierarchy
    from slowscale.publish import Publication
    from slowscale.publish.charts import ReleasePlot
    from slowscale.release.derived import DerivedTable
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
                f"are those of one table, but {self.tables} tables are drawn, each with other cells",
                code="too-many",
                remedy='use release.entity({"table": cells, …})',
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
        total = policy if drawn < 2 else ReleasePolicy(policy.terms, policy.parallel, policy.filtered, tables=drawn)
        return Release({name: replace(table, whole=whole) for name, table in tables.items()}, whole, total, pure_policy)

    def __getitem__(self, name: str) -> Any:
        if not isinstance(name, str) or name not in self.tables:
            remedy = "for a column, write to_pandas()[column]" if len(self.tables) == 1 else None
            raise ParameterError("table", allowed=tuple(self.tables), given=name, code="unknown-name", remedy=remedy)
        return self.tables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self.tables

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
                f"has {len(self.tables)} tables ({', '.join(self.tables)})",
                code="too-many",
                remedy=f"name one of them, as in release[{next(iter(self.tables))!r}]",
            )
        return next(iter(self.tables.values()))

    @property
    def _only_sums(self) -> ReleasedSums:
        """The table, if there is one and it has sums."""
        if not isinstance(found := self._only, ReleasedSums):
            raise ParameterError(
                "the release", f"has no sums: its table {found.name!r} has quantiles of sizes", code="unsupported"
            )
        return found

    def __repr__(self) -> str:
        return self._describe([str(RecordPolicy((term,))) for term in self.policy.terms])

    def _describe(self, losses: Sequence[str]) -> str:
        """Return the tables and their noise as text, with lines on what a record may lose."""
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
        lines += [f"    {loss}" for loss in losses]
        lines += [f"  {self.facts.supplied_words}."] if self.facts.supplied else []
        if self.facts.ledger is None:
            lines.append("  Charged to no ledger: losses of repeated releases are not added up.")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        if len(self.tables) == 1:
            found: str = self._only._repr_html_()
            return found + html_text(repr(self))
        rows = [
            [
                name,
                ", ".join(table.facts.by) or "total",
                f"{len(table):,}",
                "drawn" if table.facts.of is None else f"from {table.facts.of}",
            ]
            for name, table in self.tables.items()
        ]
        return html_table("Tables", ["table", "by", "rows", "noise"], rows) + html_text(repr(self))

    # The methods of the table, for a release with one table.

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

    def growth(
        self,
        earlier: "Release | ReleasedSums | Mapping[str, object]",
        *,
        columns: str | Sequence[str] | None = None,
        level: float = 0.95,
    ) -> "DerivedTable":
        """Return by how much published sums grew; see `ReleasedSums.growth`."""
        return self._only_sums.growth(earlier, columns=columns, level=level)

    def difference(
        self,
        earlier: "Release | ReleasedSums | Mapping[str, object]",
        *,
        columns: str | Sequence[str] | None = None,
        level: float = 0.95,
    ) -> "DerivedTable":
        """Return the differences of published sums to earlier ones; see `ReleasedSums.difference`."""
        return self._only_sums.difference(earlier, columns=columns, level=level)

    def share(
        self,
        of: "str | Sequence[str] | Release | ReleasedSums" = (),
        *,
        columns: str | Sequence[str] | None = None,
        level: float = 0.95,
        hierarchy: "Hierarchy | Iterable[Hierarchy] | None" = None,
    ) -> "DerivedTable":
        """Return the shares of the cells in totals; see `ReleasedSums.share`."""
        return self._only_sums.share(of, columns=columns, level=level, hierarchy=hierarchy)

    def rollup(
        self, by: str | Sequence[str] = (), *, hierarchy: "Hierarchy | Iterable[Hierarchy] | None" = None
    ) -> "Release":
        """Return a release of the sums of the published cells; see `ReleasedSums.rollup`."""
        return self._with(self._only_sums.rollup(by, hierarchy=hierarchy))

    def _with(self, table: ReleasedTable) -> "Release":
        return Release({table.name: table}, table.whole, self.policy, self.pure_policy)

    # All tables.

    def band_policy(self, times: float | None = None) -> RecordPolicy:
        """Return the loss between a record's values and others within a factor: the values of all released columns.

        Parameters
        ----------
        times
            The factor, such as 1.1; by default that of the ledger. For entities the values are totals in a cell.

        Raises
        ------
        ParameterError
            If no such loss can be stated: a released column is computed from another one and is not a multiple of it,
            or the values of an entity decide its cells.
        """
        uses = self.facts.uses
        band = Band.of(self.facts.band if times is None else times, uses)
        return band_policy(self.policy, uses, band)

    def explain(self, record: Mapping[str, float]) -> Explanation:
        """Return what a record with these values loses by the release, and what an attacker could do: print it.

        Parameters
        ----------
        record
            The value of each released column, such as {"emp": 12}; of an entity, its totals in one cell.
        """
        from slowscale.release.columns import drawn_columns, explain_record

        return explain_record(drawn_columns(self), record, self.facts.band)

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
            given = Shown(", ".join(map(str, cells))) if isinstance(cells, Mapping) else type(cells)
            raise ParameterError(
                "cells", allowed=f"a mapping with the cells of each drawn table ({', '.join(self.drawn)})", given=given
            )
        total = 0.0
        for name in self.drawn:
            quantiles = self.facts.tables[name].quantiles
            once = quantiles is not None and quantiles.entity is not None  # such an entity has one rank
            policy = self.tables[name].policy
            total += (policy({}) if cells[name] else 0.0) if once else policy.entity(cells[name])
        return total

    def to_parquet(
        self, path: str | os.PathLike[str], *, overwrite: bool = False, measured_in: Mapping[str, str] | None = None
    ) -> Path:
        """Write Parquet files with the facts in their schemas, all or none, and return the path.

        The path is that of the file of the table or, if there are several, of a folder for their files. `measured_in`
        has the units of measure of released columns, such as {"payann": "thousand USD"}, which are published, too.
        """
        return self._write(path, ".parquet", overwrite, measured_in)

    def to_csv(
        self, path: str | os.PathLike[str], *, overwrite: bool = False, measured_in: Mapping[str, str] | None = None
    ) -> Path:
        """Write CSV files, each with its facts in a JSON file; see `to_parquet` and `ReleasedTable.to_csv`."""
        return self._write(path, ".csv", overwrite, measured_in)

    def _write(
        self, path: str | os.PathLike[str], ending: str, overwrite: bool, units: Mapping[str, str] | None
    ) -> Path:
        paths: dict[str, str | os.PathLike[str]] = dict.fromkeys(self.tables, path)
        if len(self.tables) > 1:
            folder = ensure_dir(path)
            paths = {name: folder / f"{name}{ending}" for name in self.tables}
        files: Writers = {}
        with kept_release():
            for name, file in paths.items():
                one = self.tables[name]
                files |= WRITERS_OF[ending](one.table, one.file_facts, file, overwrite, units)
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

        with kept_release():
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

        with kept_release():
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


def read_release(path: str | os.PathLike[str]) -> Release:
    """Read a release that `to_parquet` or `to_csv` wrote, with its facts.

    Parameters
    ----------
    path
        A Parquet file, a CSV file with its JSON file beside it, or a folder with the files of all tables of a release.
    """
    if not isinstance(path, str | os.PathLike):
        raise ParameterTypeError("path", allowed="text or os.PathLike", given=type(path))
    place = Path(path)
    if not place.is_dir():
        table = _read_table(place)
        tables, whole = {table.name: table}, table.whole
    else:
        # Files for readers, which a data package describes, may lie there as well: they have no facts beside them.
        packaged = any(place.glob("*.datapackage.json"))
        files = [file for kind in ("csv", "parquet") for file in sorted(place.glob(f"*.{kind}"))]
        paths = {file.stem: file for file in files if not packaged or file.suffix != ".csv" or _has_facts(file)}
        if not paths:
            raise ParameterError(
                "path", "must be a folder with the Parquet or CSV files of a release", code="empty", given=str(place)
            )
        first = next(iter(paths.values()))
        whole = _read_table(first).whole
        if missing := [name for name in whole.tables if name not in paths]:
            absent = ", ".join(f"{name}{first.suffix}" for name in missing)
            raise EngineError(
                place,
                f"is not the folder of one release: it has {first.name}, but not {absent} of the same release",
                code="missing",
                remedy="give the folder that to_csv or to_parquet wrote, or one file",
            )
        tables = {name: _read_table(paths[name]) for name in whole.tables}
        for name, table in tables.items():
            other = paths[name].with_suffix(".csv")  # the other format of a table may be left from another release
            if _has_facts(other) and read_file_facts(other).id != whole.id:
                raise EngineError(
                    place,
                    f"has files of two releases, {paths[name]} and {other}",
                    code="mismatch",
                    remedy="remove those of one",
                )
            if table.whole.id != whole.id or table.name != name:
                raise EngineError(
                    paths[name],
                    f"is not the table {name!r} of the release {whole.id}",
                    code="mismatch",
                    remedy="use the files that one call of to_parquet or to_csv wrote",
                )
    facts: Facts = whole.with_(table=None)
    policy, pure = _read_policies(place, facts, [facts.tables[name] for name in facts.drawn], facts.protect)
    return Release.of(tables, facts, policy, pure)


def _has_facts(file: Path) -> bool:
    return Path(f"{file}.json").exists()


def _damaged(path: Path, problem: object, place: Place = ()) -> EngineError:
    remedy = "use the files as they were released"
    return EngineError(path, f"is damaged: {problem}", code="damaged", path=place, remedy=remedy)


def _read_policies(
    path: Path, facts: Facts | TableFacts, drawn: Sequence[TableFacts], protect: str | None
) -> tuple[RecordPolicy, RecordPolicy | None]:
    """Return the policies of drawn tables, or raise unless they have one term for each column and for quantiles."""
    try:
        found = read_policies({"policy": facts.policy, "pure_policy": facts.pure_policy})
    except SlowscaleError:
        raise
    except Exception as error:  # files may hold anything
        raise _damaged(path, f"its policy cannot be read ({type(error).__name__})", ("policy",)) from error
    wanted: Counter[str | None] = Counter()
    for table in drawn:
        single = [column.is_count and protect is None for column in table.columns.values()]
        wanted.update(None if one else name for name, one in zip(table.columns, single, strict=True))
        wanted.update([None] if table.quantiles is not None else [])
    for policy in found:
        if policy is not None and Counter(name for name, _ in policy.terms) != wanted:
            raise _damaged(path, "its policy does not have one term for each drawn column", ("policy",))
    return found


def _read_table(source: Path) -> ReleasedTable:
    """Return the table in a file, with the facts of its release."""
    numbers: pa.Table | StoredTable
    try:
        if source.name.lower().endswith(".csv"):
            numbers, facts = read_csv(source)
            table = numbers
        elif (rows := pa.parquet.read_metadata(source).num_rows) > ROW_GROUP:
            schema = pa.parquet.read_schema(source)
            table, facts = released_schema(schema).empty_table(), json.loads(schema.metadata[METADATA])
            numbers = StoredTable(source, rows, facts["id"], facts["table"])
        else:
            numbers, facts = read_parquet(source)
            table = numbers
        if facts["format"] != FORMAT:
            raise EngineError(
                source,
                f"has format {facts['format']!r:.60}, but this version of slowscale reads format {FORMAT}",
                code="unsupported",
                remedy="read it with the version that wrote it",
            )
    except SlowscaleError:
        raise
    except FileNotFoundError as error:
        missing = str(error.filename or source) if source.exists() else str(source)
        beside = "" if missing == str(source) else f", which holds the facts of {source} and must be beside it"
        remedy = "give a file or a folder that a release was written to, or a plan"
        if beside:
            folder = source.parent
            near = [*folder.glob("*.parquet"), *(one.with_suffix("") for one in folder.glob("*.csv.json"))]
            there = f"; in its folder there is {', '.join(sorted(one.name for one in near)[:5])}" if near else ""
            remedy = f"CSV files for reading are rounded and have none: give a .parquet or .csv file with facts{there}"
        raise ParameterError("path:", f"there is no file {missing}{beside}", code="missing", remedy=remedy) from None
    except Exception as error:
        raise EngineError(
            source,
            "is not a release that slowscale wrote",
            code="unreadable",
            remedy="give a .parquet file, or a .csv file with its .csv.json file beside it, that to_parquet or to_csv "
            "wrote",
        ) from error
    try:
        whole = Facts.from_dict(facts)
        if whole.table not in whole.tables:
            raise ParameterError("table", allowed=tuple(whole.tables), given=whole.table, path=("table",))
        if whole.policy is None:
            raise EngineError(source, "was released with a user function, which is not in files", code="user-function")
        described = whole.tables[whole.table]
        _check_table(table, described)
    except ParameterError as error:
        raise _damaged(source, error, error.path) from None
    # A roll-up has the loss of the table with its cells; the policy of the only drawn table is that of the release.
    if described.policy is None:
        policies = _read_policies(source, whole, [whole.tables[name] for name in whole.drawn], whole.protect)
    else:
        policies = _read_policies(source, described, [described], whole.protect)
    if described.quantiles is not None:
        return ReleasedQuantiles(whole.table, numbers, whole, *policies)
    mechanisms = {}
    for name, column in described.columns.items():
        with suppress(ParameterError):  # it has a user function
            mechanisms[name] = Mechanism.from_dict(column.mechanism or {})
    return ReleasedSums(whole.table, numbers, whole, *policies, mechanisms)


def read_file_facts(path: Path) -> Facts:
    """Return the facts of a release's file, also of a CSV file that does not belong to them.

    Parameters
    ----------
    path
        The Parquet file, or the CSV file with its JSON file beside it.
    """
    try:
        if path.name.lower().endswith(".csv"):
            found = json.loads(Path(f"{path}.json").read_text(encoding="utf-8"))
            found = {name: value for name, value in found.items() if name not in FILE_ENTRIES}
        else:
            found = json.loads(pa.parquet.read_schema(path).metadata[METADATA])
        return Facts.from_dict(found)
    except Exception:  # the same file gives a clear error when all of it is read
        return _read_table(path).whole


def _check_table(table: pa.Table, facts: TableFacts) -> None:
    """Raise unless a table has the columns that its facts describe, with numbers in them, and no others."""
    labels = list(facts.by)
    numbers = [f"{name}{ending}" for name in facts.columns for ending in ("", "_se", "_low", "_high")]
    numbers += [f"{name}{ending}" for name in facts.ratios for ending in RATIO_SUFFIXES]
    if facts.quantiles is not None:
        labels, numbers = ["quantile"], ["at", "size"]
    if facts.rollup is not None:
        numbers.append(facts.rollup.number)
    else:
        numbers += [
            f"{name}_transformed"
            for name, column in facts.columns.items()
            if issubclass(released_by(column) or object, TransformationMechanism)
        ]
    for name in [*labels, *numbers]:
        if table.column_names.count(name) != 1:
            words = f"must have the column {name!r:.60} of its facts once"
            raise ParameterError("its table", words, code="damaged", path=("missing", name))
    for name in table.column_names:
        if name not in labels and name not in numbers:
            words = f"has a column {name!r:.60} that its facts lack"
            raise ParameterError("its table", words, code="damaged", path=("extra", name))
    for name in numbers:
        kind = table.schema.field(name).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
            raise ParameterError(
                f"column {name!r:.60}", "must have numbers", given=Shown(kind), code="damaged", path=("type", name)
            )
