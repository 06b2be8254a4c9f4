"""The files of a release are written one after the other, the drawn tables first: they cannot be drawn again.

A file that fails does not stop the others. All files except the drawn tables can be made from the drawn tables.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from slowscale.core.errors import IncompleteError, SlowscaleError
from slowscale.plan.models import Plan
from slowscale.release.request import ONLY

if TYPE_CHECKING:
    from slowscale.accounting import Spent
    from slowscale.publish import Publication
    from slowscale.publish.minisign import SecretKey
    from slowscale.release import Release
    from slowscale.release.table import ReleasedTable


@dataclass(frozen=True)
class Output:
    """Files that are written together, all or none.

    Attributes
    ----------
    files
        The files.
    write
        Writes them, and returns those that a user asked for. Its argument `overwrite` is whether to replace files.
    """

    files: tuple[Path, ...]
    write: Callable[..., Path | list[Path]]


def table_files(plan: Plan) -> dict[str, list[Path]]:
    """Return the files of each table."""
    one = [Path(path) for path in (plan.output.parquet, plan.output.csv) if path is not None]
    return plan.table_files if plan.is_set else {ONLY: one}


def table_outputs(plan: Plan, releases: "Mapping[str, ReleasedTable]") -> Iterator[Output]:
    """Yield the files of tables: first one of each drawn table, then all others."""
    files = {name: paths for name, paths in table_files(plan).items() if name in releases}
    first = [(name, files[name][0]) for name in plan.drawn if name in files]
    others = [(name, path) for name, paths in files.items() for path in paths if (name, path) not in first]
    for name, path in [*first, *others]:
        csv = path.suffix.lower() == ".csv"
        both = (path, path.with_name(f"{path.name}.json")) if csv else (path,)
        yield Output(both, partial(_write_table, releases[name], path, csv))


def _write_table(table: "ReleasedTable", path: Path, csv: bool, overwrite: bool) -> Path:
    if not path.parent.is_dir():  # the folder of a set, whose parent was checked
        path.parent.mkdir()
    return (table.to_csv if csv else table.to_parquet)(path, overwrite=overwrite)


def reader_outputs(
    plan: Plan,
    found: "Release",
    spent: "Callable[[], Spent | None]",
    publication: "Publication | None",
) -> Iterator[Output]:
    """Yield the files for readers: those of the publication, and the report, which states what was spent."""
    if plan.publication is not None and publication is not None:
        from slowscale.publish import publish
        from slowscale.publish.writing import Targets

        for profile, file in plan.publication.files:
            targets = tuple(Targets.of(file).files(plan.table_names).values())
            yield Output(targets, partial(publish, found, file, publication, profile=profile))
    if (report := plan.output.report) is not None:
        yield Output(
            (Path(report),),
            lambda overwrite: found.report(
                report, spent(), overwrite=overwrite, sizes=plan.sizes or None, publication=publication
            ),
        )


class Written:
    """The files that were written, and what went wrong with others."""

    def __init__(self) -> None:
        self.files: list[Path] = []
        self.problems: list[tuple[Sequence[Path], Exception]] = []

    def attempt(self, output: Output, overwrite: bool) -> None:
        """Write files, and keep their paths or the error."""
        try:
            made = output.write(overwrite=overwrite)
        except Exception as error:
            self.problems.append((output.files, error))
        else:
            self.files += made if isinstance(made, list) else [made]

    def sign(self, plan: Plan, key: "SecretKey | None", overwrite: bool, kept: Sequence[Path] = ()) -> None:
        """Sign the files that were written, with those of the same folder that were kept, if the plan names a key."""
        if key is None:
            return
        from slowscale.publish.signing import SIGNATURE, SUMS, sign

        for folder, paths in plan.signed_files.items():
            listed = [path for path in map(Path, paths) if path in (*self.files, *kept)]
            made = Path(folder, SUMS), Path(folder, SIGNATURE)
            if any(path in self.files for path in listed) or (listed and not made[1].exists()):
                self.attempt(Output(made, partial(sign, listed, key)), overwrite)

    def raise_problems(self, plan: Plan, lost: Sequence[str]) -> None:
        """Raise an error if a file could not be written or a drawn table is lost."""
        if not self.problems and not lost:
            return
        missing = [str(file) for files, _ in self.problems for file in files]
        reasons = [f"{', '.join(map(str, files))} ({_reason(error)})" for files, error in self.problems]
        made = "made and charged" if plan.ledger is not None else "made"
        words = f"the release was {made}, but not all of its files are there"
        words += f". Missing: {'; '.join(reasons)}" if reasons else ""
        words += f". Written: {', '.join(map(str, self.files)) or 'no files'}"
        again = f"slowscale release {plan.source or 'PLAN'} --finish"
        if any(Path(file).exists() for file in missing):
            again += " --overwrite"
        if lost:
            names = "The drawn table" if list(lost) == [ONLY] else f"The drawn tables {', '.join(lost)}"
            words += f". {names} could not be kept and cannot be drawn again: another release is another charge"
        if self.problems and list(lost) != list(plan.drawn):
            words += (
                f". Once the files can be written, `{again}` writes what can be made from the drawn tables that are on "
                "disk. It reads no records, draws no noise and charges nothing"
            )
        first = self.problems[0][1] if self.problems else None
        raise IncompleteError(words, tuple(missing), tuple(map(str, self.files)), tuple(lost)) from first


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, SlowscaleError | OSError) else f"{type(error).__name__}: {error}"
