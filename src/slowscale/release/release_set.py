"""Release sets: several published tables that belong together, with the loss of a record by all of them."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from slowscale.accounting import RecordPolicy
from slowscale.accounting.record import read_policies
from slowscale.errors import EngineError, ParameterError, ParameterTypeError
from slowscale.facts import Facts, SetFacts
from slowscale.files import Writers, made_folder, write_files
from slowscale.markup import html_table, html_text
from slowscale.mechanisms.charged import notion_in_words
from slowscale.release.files import csv_files, parquet_files
from slowscale.release.reading import read_release
from slowscale.release.release import Release
from slowscale.typing import Functions, Record

if TYPE_CHECKING:
    from slowscale.hierarchies import Hierarchy
    from slowscale.publication import Publication
    from slowscale.session import Session
    from slowscale.sizes import SizesLike

# The functions that prepare the files of a release, by the ending of the table's file.
WRITERS_OF = {"parquet": parquet_files, "csv": csv_files}


@dataclass(frozen=True)
class SetPolicy(RecordPolicy):
    """The loss of a record by a set of tables: the sum of its losses by the drawn ones.

    Attributes
    ----------
    tables
        The number of drawn tables.
    """

    tables: int = 1

    def entity(self, cells: Sequence[Record]) -> float:
        """Return what an entity may lose through a set with one drawn table; several tables have different cells."""
        if self.tables > 1:
            raise ParameterError(
                f"cells must be those of one table, but {self.tables} tables are drawn: use "
                'set.entity({"table": cells, …}), each table with its own cells'
            )
        return super().entity(cells)


@dataclass(frozen=True, eq=False, repr=False)
class ReleaseSet(Mapping[str, Release]):
    """Tables that were published together, by name: a mapping of names to releases.

    Attributes
    ----------
    releases
        The release of each table. Its `policy` is the loss of a record by the table alone; a derived table has the loss
        of the table that it was derived from, and adds nothing to it.
    facts
        What is public about the set as a whole. The facts of each release have the same entry `table_set`.
    policy
        The PRzCDP loss of a record by the whole set. Call it on a record, such as {"emp": 12}.
    pure_policy
        The PRDP loss of a record, or None if a mechanism has no such guarantee.
    """

    releases: Mapping[str, Release]
    facts: Facts
    policy: RecordPolicy
    pure_policy: RecordPolicy | None = None

    def __getitem__(self, name: str) -> Release:
        return self.releases[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.releases)

    def __len__(self) -> int:
        return len(self.releases)

    @property
    def tables(self) -> SetFacts:
        """Which tables there are, and which of them is drawn or derived."""
        assert self.facts.table_set
        return self.facts.table_set

    @property
    def drawn(self) -> tuple[str, ...]:
        """The names of the tables with noise of their own."""
        return self.tables.drawn

    def __repr__(self) -> str:
        warning = "" if self.facts.private else "NOT PRIVATE (drawn from test bits). "
        lines = [f"{warning}Release of {len(self)} tables"]
        for name, table in self.tables.tables.items():
            groups = f"{table.rows:,} groups by {', '.join(table.by)}" if table.by else "totals"
            how = "drawn" if table.drawn else f"derived from {table.of}, without further loss"
            lines.append(f"  {name}: {groups}, {how}")
        notion = notion_in_words(self.facts.notion, self.facts.accounting)
        lines.append(f"  A record may lose by all tables together ({notion}), added up:")
        return "\n".join([*lines, *(f"    {RecordPolicy((term,))}" for term in self.policy.terms)])

    def _repr_html_(self) -> str:
        rows = [
            [name, ", ".join(table.by) or "total", f"{table.rows:,}", "drawn" if table.drawn else f"from {table.of}"]
            for name, table in self.tables.tables.items()
        ]
        return html_table("Tables", ["table", "by", "rows", "noise"], rows) + html_text(repr(self))

    def entity(self, cells: Mapping[str, Sequence[Record]]) -> float:
        """Return what an entity with several records may lose by the set, from its totals in the cells of each table.

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
                f"cells must be a mapping with the cells of each drawn table ({', '.join(self.drawn)}), got {given}"
            )
        return sum(self.releases[name].policy.entity(cells[name]) for name in self.drawn)

    def to_parquet(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> list[Path]:
        """Write a Parquet file for each table, all or none, and return their paths; the folder is made if needed."""
        return self._write(folder, ["parquet"], overwrite)

    def to_csv(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> list[Path]:
        """Write a CSV file for each table, with its facts in a JSON file beside it: all files or none."""
        return self._write(folder, ["csv"], overwrite)

    def _write(self, folder: str | os.PathLike[str], formats: Sequence[str], overwrite: bool) -> list[Path]:
        place = made_folder(folder)
        files = self.files({name: [place / f"{name}.{kind}" for kind in formats] for name in self}, overwrite)
        write_files(files, overwrite=overwrite)
        return [place / f"{name}.{kind}" for name in self for kind in formats]

    def files(self, paths: Mapping[str, Sequence[Path]], overwrite: bool) -> Writers:
        """Return all files to write for the tables, with the functions that write them.

        Parameters
        ----------
        paths
            The files of each table; the ending of each decides on its format.
        overwrite
            Whether existing files may be replaced.
        """
        found: Writers = {}
        for name, targets in paths.items():
            release = self.releases[name]
            for path in targets:
                found |= WRITERS_OF[path.suffix.lower()[1:]](release.table, release.facts, path, overwrite)
        return found

    def report(
        self,
        path: str | os.PathLike[str],
        spent: RecordPolicy | None = None,
        *,
        overwrite: bool = False,
        sizes: "SizesLike | None" = None,
        publication: "Publication | None" = None,
    ) -> Path:
        """Write one report about all tables that everyone may read; see `Release.report` for the arguments."""
        from slowscale.report import write_set_report

        return write_set_report(self, path, spent=spent, overwrite=overwrite, sizes=sizes, publication=publication)

    def consistent(
        self,
        method: str = "least squares",
        *,
        hierarchy: "Hierarchy | Iterable[Hierarchy] | None" = None,
        simulations: int = 399,
        seed: int = 0,
    ) -> "ReleaseSet":
        """Return the set with drawn tables that overlap combined into one estimate, so that everything adds up.

        A drawn margin and the sum of its cells are two estimates of one number. They are combined in all columns with
        additive noise, and all other tables become sums of the corrected cells, in whole units. No record loses more by
        this. The intervals hold the true sums with the stated level, and come from simulations of the noise. Look at
        the errors before you publish the result: the noise has heavy tails, and least squares spreads one large error
        over many cells, so that most cells may become worse. With derived margins nothing needs to be combined.

        Parameters
        ----------
        method
            "least squares": the linear estimate with the least variance. "likelihood": a local maximum of the
            likelihood, which attributes a gap between a margin and its cells to the few numbers that probably caused
            it. Its simulations take longer.
        hierarchy
            Hierarchies of key columns, if tables are by levels of them.
        simulations
            The number of simulations.
        seed
            The seed of the simulations. Their noise is not secret.
        """
        from slowscale.release.consistent import combine

        return combine(self, method, hierarchy, simulations, seed)

    def publish(
        self,
        path: str | os.PathLike[str],
        publication: "Publication",
        *,
        profile: str = "research",
        overwrite: bool = False,
    ) -> list[Path]:
        """Write files for readers, with titles and labels: all files or none; see `Release.publish`.

        An Excel file has one sheet for each table. For data.csv and data.parquet, the files of a table are named
        data-table.csv and data-table.parquet.
        """
        from slowscale.publication import publish

        return publish(self.releases, path, publication, profile=profile, overwrite=overwrite)

    def confidential_report(self, path: str | os.PathLike[str], session: "Session", *, overwrite: bool = False) -> Path:
        """Write a report on the losses of the records by the whole set; see `Release.confidential_report`.

        CONFIDENTIAL: for the curator only.
        """
        from slowscale.report import write_confidential_report

        return write_confidential_report(self, path, session, overwrite=overwrite)


def release_set(releases: Mapping[str, Release], facts: Facts, functions: Functions | None = None) -> ReleaseSet:
    """Return the set of these releases, with the policies that its facts describe."""
    assert facts.table_set
    policy, pure = read_policies(facts.to_dict(), functions)
    return ReleaseSet(releases, facts, set_policy(policy, len(facts.table_set.drawn)), pure)


def set_policy(policy: RecordPolicy, tables: int) -> SetPolicy:
    """Return the policy of a set in which some number of tables are drawn."""
    return SetPolicy(policy.terms, policy.parallel, policy.filtered, tables)


def read_release_set(folder: str | os.PathLike[str], functions: Functions | None = None) -> ReleaseSet:
    """Read a set of tables that `ReleaseSet.to_parquet` or `to_csv` wrote to a folder, with its facts.

    Parameters
    ----------
    folder
        The folder. It must have a file for each table of one set.
    functions
        User-given functions by name ("module.function"), for releases whose mechanisms use any.
    """
    if not isinstance(folder, str | os.PathLike):
        raise ParameterTypeError(f"folder must be text or os.PathLike, got {type(folder).__name__}")
    place = Path(folder)
    paths = {path.stem: path for kind in ("csv", "parquet") for path in sorted(place.glob(f"*.{kind}"))}
    if not paths:
        raise ParameterError(f"folder must have the Parquet or CSV files of a set of tables, but {place} has none")
    first = read_release(next(iter(paths.values())), functions)
    described = first.facts.table_set
    if not described:
        raise EngineError(f"{next(iter(paths.values()))} is not a table of a set; read it with ss.read_release")
    missing = [name for name in described.tables if name not in paths]
    if missing:
        raise EngineError(f"{place} must have a file for each table of the set, but {', '.join(missing)} is missing")
    releases = {name: read_release(paths[name], functions) for name in described.tables}
    for name, release in releases.items():
        found = release.facts.table_set
        if not found or found.id != described.id or found.table != name:
            raise EngineError(
                f"{paths[name]} is not the table {name!r} of the set {described.id}; use the files that one call of "
                "to_parquet or to_csv wrote"
            )
    facts = first.facts
    whole = Facts(
        id=described.id,
        slowscale=facts.slowscale,
        created=facts.created,
        private=facts.private,
        dataset=facts.dataset,
        protect=facts.protect,
        protects=facts.protects,
        notion=facts.notion,
        accounting=facts.accounting,
        formula=described.formula,
        policy=described.policy,  # type: ignore[arg-type]
        pure_policy=described.pure_policy,  # type: ignore[arg-type]
        partition=facts.partition,
        derived={name: text for release in releases.values() for name, text in release.facts.derived.items()},
        table_set=replace(described, table=None),
        combined=facts.combined,
        ledger=facts.ledger,
    )
    return release_set(releases, whole, functions)
