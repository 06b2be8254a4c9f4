"""The files of a release: checked before it is charged, and written one after the other, the drawn tables first.

A file that could not be written must not be paid for. Once the release is charged, a file that fails does not stop the
others, and all files except the drawn tables can be made from the drawn tables.
"""

import filecmp
import glob
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from slowscale.accounting.storage import JOURNALS, check_no_journal
from slowscale.core.errors import IncompleteError, ParameterError, Place, SlowscaleError, located
from slowscale.core.files import check_output_path, comparable_name, new_file
from slowscale.plan.schema import OutputPlan, Plan, QuantilesPlan, SumsPlan

if TYPE_CHECKING:
    from slowscale.accounting import Spent
    from slowscale.publish import Publication
    from slowscale.publish.minisign import SecretKey
    from slowscale.release.release import Release
    from slowscale.release.table import ReleasedTable


def output_of(plan: Plan) -> OutputPlan:
    """Return where the files go: a plan with tables has this."""
    assert plan.output is not None
    return plan.output


def table_files(plan: Plan) -> dict[str, list[Path]]:
    """Return the files of each table."""
    output = output_of(plan)
    return {name: [Path(output.folder) / f"{name}.{kind}" for kind in output.formats] for name in plan.tables}


def sums_tables(plan: Plan) -> list[str]:
    """Return the tables of sums, drawn or derived: those that files for readers hold."""
    return [name for name, table in plan.tables.items() if not isinstance(table, QuantilesPlan)]


def outputs_of(plan: Plan, confidential: Path | None = None) -> Iterator[tuple[str, Path]]:
    """Yield the files that a release writes, each as its name in errors and its path. Facts follow their CSV file."""
    yield from ((name, path) for name, path, _ in _placed_outputs(plan, confidential))


def _placed_outputs(plan: Plan, confidential: Path | None) -> Iterator[tuple[str, Path, Place]]:
    """Yield the files that a release writes, each with its name in errors, its path and the field that names it."""
    output = output_of(plan)
    for name, paths in table_files(plan).items():
        for path in paths:
            yield f"table {name!r}", path, ("output", "folder")
            if path.suffix == ".csv":
                yield f"the facts of table {name!r}", path.with_name(f"{path.name}.json"), ("output", "folder")
    if output.report is not None:
        yield "the report", Path(output.report), ("output", "report")
    if plan.publication is not None:
        for profile, name, path in plan.publication.all_files(sums_tables(plan)):
            yield name, path, ("publication", profile)
    for folder in signed_files(plan):
        from slowscale.publish.signing import SIGNATURE, SUMS

        yield from (("the signature of the output", Path(folder, one), ("output", "sign")) for one in (SUMS, SIGNATURE))
    if confidential is not None:
        yield "--confidential-report", confidential, ()


def signed_files(plan: Plan) -> dict[str, list[Path]]:
    """Return the files that the release signs, without facts, by their folders; empty for a plan without a key."""
    output, folders = output_of(plan), dict[str, list[Path]]()
    if output.sign is None:
        return {}
    paths = [path for files in table_files(plan).values() for path in files]
    paths += [] if output.report is None else [Path(output.report)]
    if plan.publication is not None:
        paths += [path for _, _, path in plan.publication.all_files(sums_tables(plan))]
    for path in paths:
        folders.setdefault(os.path.realpath(path.parent), []).append(path)
    return {str(found[0].parent): found for found in folders.values()}


def inputs_of(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield the files that a release reads, and its ledger, each as its name in errors and its path."""
    if plan.file is not None:
        yield "the plan", str(plan.file)
    yield from (("the data", file) for file in _data_files(plan))
    for table in plan.tables.values():
        if isinstance(table, SumsPlan) and table.keys is not None and table.keys.file is not None:
            yield "the keys", table.keys.file
    for part in plan.hierarchies:
        if part.file is not None:
            yield "a hierarchy", part.file
    if plan.publication is not None:
        yield from (("a code list", file) for file in plan.publication.code_files)
    if plan.ledger is not None:
        yield from (("the ledger", f"{plan.ledger.path}{ending}") for ending in ("", *JOURNALS))
    if plan.output is not None and plan.output.sign is not None:
        yield "the key that signs", plan.output.sign


def _data_files(plan: Plan) -> Iterator[str]:
    """Yield the files that hold the records, as far as they exist or the plan names them."""
    paths = plan.data.paths
    if plan.data.is_database_file:
        assert plan.data.database is not None
        paths = [plan.data.database.partition("://")[2].rpartition("#")[0]]
    yield from files_of(paths)


def files_of(paths: Iterable[str]) -> Iterator[str]:
    """Yield paths of data, and the files that they match."""
    from slowscale.data.sources import matching_files

    for path in paths:
        yield path
        with suppress(ParameterError):  # there are no such files: whoever opens them says so
            yield from matching_files(path, "data")


def check_not_data(plan: Plan, file: str, declared: str = "") -> None:
    """Raise if labels would be read from the records without being declared public."""
    check_not_among(_data_files(plan), file, declared)


def check_not_among(data_files: Iterable[str], file: str, declared: str = "") -> None:
    """Raise if a file of labels is one of the files of the data, or a copy of one."""
    if os.path.exists(file) and any(os.path.exists(one) and _same_content(one, file) for one in data_files):
        raise ParameterError(
            file,
            "is a file of the data, or a copy of one. Which labels occur in the data may reveal records",
            code="not-public",
            remedy=f"use a public list of labels{declared}",
        )


def _same_content(one: str, other: str) -> bool:
    """Return whether two paths lead to one file, or to files with the same bytes."""
    if os.path.samefile(one, other):
        return True
    with suppress(OSError):  # whoever opens them says why it cannot be read
        return os.path.isfile(one) and os.path.isfile(other) and filecmp.cmp(one, other, shallow=False)
    return False


def check_outputs(plan: Plan, overwrite: bool = False, confidential: Path | None = None) -> list[Path]:
    """Raise unless every output can be written, and the ledger created if it does not exist; return existing outputs.

    Parameters
    ----------
    plan
        The plan.
    overwrite
        Whether existing outputs may be replaced. The data, the keys, the plan and the ledger never are.
    confidential
        The path of the confidential report, if one is to be written.
    """
    if plan.ledger is not None and not os.path.lexists(plan.ledger.path):
        with located("ledger", "path"):
            check_new(Path(plan.ledger.path).absolute(), "the ledger")
            check_no_journal(Path(plan.ledger.path).absolute())
    for place, given in ((("output", "report"), output_of(plan).report), (("publication",), plan.publication)):
        if given is not None and not sums_tables(plan):
            problem = "needs a table of sums, and there are quantiles only"
            raise ParameterError(f"a {place[-1]}", problem, code="empty", remedy="remove it", path=place)
    folder = Path(output_of(plan).folder)
    taken = {os.path.realpath(path): name for name, path in inputs_of(plan)}
    if not folder.is_dir():
        with located("output", "folder"):
            if (real := os.path.realpath(folder)) in taken:
                problem = f"is taken by {taken[real]}"
                raise ParameterError(folder, problem, code="conflict", remedy="choose another folder")
            if os.path.lexists(folder):
                raise ParameterError(folder, "is not a folder", code="exists", remedy="choose another path")
            check_new(folder, f"the folder {folder}")
    taken[os.path.realpath(folder)] = "the folder of the tables"
    written: dict[str, Path] = {}
    existing: list[Path] = []
    for name, path, field_path in _placed_outputs(plan, confidential):
        with located(*field_path):
            _check_output(plan, name, path, taken, written)
        if os.path.lexists(path):  # also a link to a file that does not exist
            existing.append(path)
    _check_signed(plan)
    if output_of(plan).report is not None or confidential is not None:
        from slowscale.publish.charts import tools

        with located("output", "report"):
            tools()
    if plan.publication is not None and plan.publication.excel:
        from slowscale.publish.excel import excel_tools

        with located("publication"):
            excel_tools()
    if existing and not overwrite:
        raise existing_error(existing[0])
    return existing


def _check_output(plan: Plan, name: str, path: Path, taken: dict[str, str], written: dict[str, Path]) -> None:
    """Raise unless an output can be written; add it to those that are taken and written."""
    place, folder = os.path.realpath(path), Path(output_of(plan).folder)
    if place in taken:
        problem = f"would be written over {taken[place]}: {path}"
        raise ParameterError(name, problem, code="conflict", remedy="choose another path")
    if _would_be_data(plan, place):
        problem = f"would be one of the files that data.path names: {path}"
        raise ParameterError(name, problem, code="not-public", remedy="choose another folder")
    taken[place] = name
    other = written.setdefault(comparable_name(place), path)
    if other != path:
        problem = f"differs only in case from {other}, and some systems would write one file over the other"
        raise ParameterError(f"{name}: {path}", problem, code="duplicate", remedy="choose another path")
    if path.parent == folder and not folder.is_dir():  # it will be created in the file system around it
        _try_place(folder.absolute().parent / path.name, name, f"cannot be written to {path}")
        return
    try:
        check_output_path(path, path.suffix, overwrite=True)
    except ParameterError as error:
        words = error.render(str(path) if error.subject == "path" else None)
        raise ParameterError(f"{name}:", words, code=error.code) from None
    _try_place(path, name, f"cannot be written to {path}")


def existing_error(path: Path) -> ParameterError:
    """Return the error for an output that exists already."""
    lost = (
        "" if path.suffix in (".html", ".minisig", "") else " and lose the release in it, which cannot be drawn again"
    )
    remedy = f"choose another path, or pass --overwrite to replace the file{lost}"
    return ParameterError(path, "already exists", code="exists", remedy=remedy)


def _check_signed(plan: Plan) -> None:
    """Raise if a signature could not list the files that it is for."""
    from slowscale.publish.signing import name_problem

    every = {path for _, path in outputs_of(plan)}
    for paths in signed_files(plan).values():
        facts = [beside for path in paths if (beside := path.with_name(f"{path.name}.json")) in every]
        if problem := name_problem(path.name for path in dict.fromkeys([*paths, *facts])):
            place = ("output", "sign")
            raise ParameterError("output.sign:", problem, code="name", remedy="choose another path", path=place)


def signing_key(plan: Plan) -> "SecretKey | None":
    """Return the key that signs the outputs of a plan, or None if they are not signed; raise if it cannot be read."""
    sign = output_of(plan).sign
    if sign is None:
        return None
    from slowscale.publish.minisign import read_secret_key

    with located("output", "sign"):
        return read_secret_key(sign)


def _would_be_data(plan: Plan, place: str) -> bool:
    """Whether an output would be among the files of `data.path`, so that the next release would read it as data."""
    from slowscale.data.sources import PARQUET

    for path in map(os.path.realpath, plan.data.paths):
        if os.path.isdir(path) and Path(place).is_relative_to(path) and place.lower().endswith(PARQUET):
            return True
        if glob.has_magic(path) and (fnmatch(place, path) if "**" in path else PurePath(place).match(path)):
            return True
    return False


def check_new(path: Path, what: str) -> None:
    """Raise unless a ledger or a folder for the tables can be created."""
    if not path.parent.is_dir():
        raise ParameterError("there is no folder", str(path.parent), code="missing", remedy="create it first")
    _try_place(path, what, "cannot be created")


def _try_place(path: Path, what: str, problem: str) -> None:
    """Raise if no file can be created beside a path, by creating one."""
    try:
        new_file(path, 0o600).unlink()
    except OSError as error:
        reason = error.strerror or error
        raise ParameterError(what, f"{problem} ({reason})", code="unwritable", remedy="choose another path") from None


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


def units_of(plan: Plan) -> dict[str, str]:
    """Return the units of measure of columns, as far as they are stated."""
    labels = {} if plan.publication is None else plan.publication.columns
    return {name: label.unit for name, label in labels.items() if label.unit is not None}


def table_outputs(plan: Plan, tables: "Mapping[str, ReleasedTable]") -> Iterator[Output]:
    """Yield the files of released tables: first one of each drawn table, then all others."""
    files = {name: paths for name, paths in table_files(plan).items() if name in tables}
    units = units_of(plan)
    first = [(name, files[name][0]) for name in plan.drawn if name in files]
    others = [(name, path) for name, paths in files.items() for path in paths if (name, path) not in first]
    for name, path in [*first, *others]:
        facts = (path.with_name(f"{path.name}.json"),) if path.suffix == ".csv" else ()
        write = tables[name].to_csv if path.suffix == ".csv" else tables[name].to_parquet
        yield Output((path, *facts), partial(write, path, measured_in=units))


def reader_outputs(
    plan: Plan, release: "Release", spent: "Callable[[], Spent | None]", publication: "Publication | None"
) -> Iterator[Output]:
    """Yield the files for readers: those of the publication, and the report, which states the total loss."""
    if plan.publication is not None and publication is not None:
        from slowscale.publish import publish
        from slowscale.publish.writing import Targets

        names = sums_tables(plan)
        for profile, file in plan.publication.files:
            targets = tuple(Targets.of(file).files(names if len(names) > 1 else None).values())
            yield Output(targets, partial(publish, release, file, publication, profile=profile))
    if (report := output_of(plan).report) is not None:
        yield Output(
            (Path(report),),
            lambda overwrite: release.report(
                report, spent(), overwrite=overwrite, sizes=plan.sizes or None, publication=publication
            ),
        )


@dataclass
class Written:
    """The files of a plan that were written, and the errors of the others."""

    plan: Plan
    files: list[Path] = field(default_factory=list)
    problems: list[tuple[Sequence[Path], Exception]] = field(default_factory=list)

    def attempt(self, output: Output, overwrite: bool) -> None:
        """Write files, and keep their paths or the error."""
        try:
            made = output.write(overwrite=overwrite)
        except Exception as error:
            self.problems.append((output.files, error))
        else:
            self.files += made if isinstance(made, list) else [made]

    def sign(self, key: "SecretKey | None", overwrite: bool, kept: Sequence[Path] = ()) -> None:
        """Sign the files that were written, with those of the same folder that were kept, if the plan names a key."""
        if key is None:
            return
        from slowscale.publish.signing import SIGNATURE, SUMS, sign

        for folder, paths in signed_files(self.plan).items():
            listed = [path for path in paths if path in (*self.files, *kept)]
            made = Path(folder, SUMS), Path(folder, SIGNATURE)
            if any(path in self.files for path in listed) or (listed and not made[1].exists()):
                self.attempt(Output(made, partial(sign, listed, key)), overwrite)

    def raise_problems(self, lost: Sequence[str]) -> None:
        """Raise an error if a file could not be written or a drawn table is lost."""
        if not self.problems and not lost:
            return
        missing = [str(file) for files, _ in self.problems for file in files]
        reasons = [f"{', '.join(map(str, files))} ({_reason(error)})" for files, error in self.problems]
        made = "made and charged" if self.plan.ledger is not None else "made"
        words = [f"was {made}, but not all of its files are there"]
        words += [f"Missing: {'; '.join(reasons)}"] if reasons else []
        words += [f"Written: {', '.join(map(str, self.files)) or 'no files'}"]
        if lost:
            words.append(
                f"The drawn {'table' if len(lost) == 1 else 'tables'} {', '.join(lost)} could not be kept and cannot "
                "be drawn again: another release is another charge"
            )
        if self.problems and list(lost) != list(self.plan.drawn):
            again = f"slowscale release {self.plan.file or 'PLAN'} --finish"
            if any(all(map(os.path.lexists, files)) for files, _ in self.problems):
                again += " --overwrite"
            words.append(
                f"Once the files can be written, `{again}` makes the missing files from the drawn tables on disk. It "
                "reads no records, draws no noise and charges nothing"
            )
        error = IncompleteError("the release", ". ".join(words))
        error.missing, error.written, error.lost = tuple(missing), tuple(map(str, self.files)), tuple(lost)
        raise error from (self.problems[0][1] if self.problems else None)


def _reason(error: Any) -> str:
    return str(error) if isinstance(error, SlowscaleError | OSError) else f"{type(error).__name__}: {error}"
