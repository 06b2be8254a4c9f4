"""The files of a release are checked before it is charged: what could not be written must not be paid for."""

import glob
import os
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from slowscale.accounting.names import check_no_journal
from slowscale.core.errors import ParameterError
from slowscale.core.files import comparable_name, free_target, new_file
from slowscale.plan.models import OUTPUT_ENDINGS, Plan
from slowscale.plan.publication import check_publication_tools

if TYPE_CHECKING:
    from slowscale.publish.minisign import SecretKey


def check_outputs(plan: Plan, overwrite: bool = False, confidential: Path | None = None) -> None:
    """Raise unless every output can be written, and the ledger created if it does not exist.

    Parameters
    ----------
    plan
        The plan.
    overwrite
        Whether existing outputs may be replaced. The data, the keys, the plan and the ledger never are.
    confidential
        The path of the confidential report, if one is to be written.
    """
    if plan.ledger is not None:
        _check_ledger_path(Path(plan.ledger.path).absolute())
    taken = {os.path.realpath(path): name for name, path in inputs_of(plan)}
    written: dict[str, str] = {}
    folder = None if plan.output.folder is None else Path(plan.output.folder)
    if folder is not None and not folder.is_dir():
        _check_new_folder(folder)
    for name, path, ending in _outputs(plan, confidential):
        place = os.path.realpath(path)
        if place in taken:
            raise ParameterError(f"{name} would be written over {taken[place]}: {path}; choose another path")
        if _would_be_data(plan, place):
            raise ParameterError(
                f"{name} would be one of the files that data.path names: {path}; choose another folder"
            )
        taken[place] = name
        other = written.setdefault(comparable_name(place), path)
        if other != path:
            raise ParameterError(
                f"{name}: {path} differs only in case from {other}, and some systems would write one file over the "
                "other; choose another path"
            )
        if folder is None or folder.is_dir() or Path(path).parent != folder:
            _check_writable(name, path, ending, overwrite)
    _check_signed(plan)
    if plan.output.report is not None or confidential is not None:
        from slowscale.publish.charts import tools

        tools()
    check_publication_tools(plan.publication)


def _check_signed(plan: Plan) -> None:
    """Raise if a signature could not list the files that it is for."""
    if plan.output.sign is None:
        return
    from slowscale.publish.signing import name_problem

    facts = {path for _, path, ending in _outputs(plan, None) if ending == ".json"}
    for paths in plan.signed_files.values():
        beside = [f"{path}.json" for path in paths if f"{path}.json" in facts]
        if problem := name_problem(Path(path).name for path in dict.fromkeys([*paths, *beside])):
            raise ParameterError(f"output.sign: {problem}; choose another path")


def signing_key(plan: Plan) -> "SecretKey | None":
    """Return the key that signs the outputs of a plan, or None if they are not signed; raise if it cannot be read."""
    if plan.output.sign is None:
        return None
    from slowscale.publish.minisign import read_secret_key

    try:
        return read_secret_key(plan.output.sign)
    except ParameterError as error:
        raise ParameterError(f"output.sign: {str(error).removeprefix('key: ')}") from None


def existing_outputs(plan: Plan) -> list[str]:
    """Return the outputs of a release that exist already."""
    return [path for path in [*plan.written_files, *plan.signatures] if os.path.lexists(path)]


def _outputs(plan: Plan, confidential: Path | None) -> Iterator[tuple[str, str, str]]:
    """Yield the files that a release writes: what errors call them, their paths and the endings they must have."""
    for field, path in plan.output.files.items():
        yield f"output.{field}", path, OUTPUT_ENDINGS[field]
    if plan.output.csv is not None:
        yield "the facts beside output.csv", f"{plan.output.csv}.json", ".json"
    for name, paths in plan.table_files.items():
        for file in paths:
            yield f"table {name!r}", str(file), file.suffix
            if file.suffix == ".csv":
                yield f"the facts of table {name!r}", f"{file}.json", ".json"
    if plan.publication is not None:
        yield from plan.publication.all_files(plan.table_names)
    for path in plan.signatures:
        yield "the signature of the output", path, ""
    if confidential is not None:
        yield "--confidential-report", str(confidential), ".html"


def inputs_of(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield the files that a release reads, and its ledger: what errors call them, and their paths."""
    if plan.source is not None:
        yield "the plan", plan.source
    yield from (("the data", file) for file in _data_files(plan))
    for single in plan.drawn.values():
        if single.keys is not None and single.keys.file is not None:
            yield "the keys", single.keys.file
    for part in plan.hierarchy:
        if part.file is not None:
            yield "a hierarchy", part.file
    if plan.publication is not None:
        yield from (("a code list", file) for file in plan.publication.code_files)
    if plan.ledger is not None:
        yield "the ledger", plan.ledger.path
    if plan.output.sign is not None:
        yield "the key that signs", plan.output.sign


def _data_files(plan: Plan) -> Iterator[str]:
    """Yield the files that hold the records, as far as they exist or the plan names them."""
    from slowscale.data.sources import matching_files

    paths = plan.data.paths
    if plan.data.is_database_file:
        assert plan.data.database is not None
        paths = [plan.data.database.partition("://")[2].rpartition("#")[0]]
    for path in paths:
        yield path
        with suppress(ParameterError):  # there are no such files: whoever opens them says so
            yield from matching_files(path, "data")


def check_keys_are_not_data(plan: Plan) -> None:
    """Raise if the labels of the cells would be read from the records without being declared public."""
    if plan.keys is None or plan.keys.file is None or not os.path.exists(plan.keys.file):
        return
    if any(os.path.exists(file) and os.path.samefile(file, plan.keys.file) for file in _data_files(plan)):
        raise ParameterError(
            f"keys.file is a file of the data: {plan.keys.file}. Which labels occur in the data may reveal records; "
            "use a public list of labels, or declare that they are public with public_in_data = true"
        )


def _would_be_data(plan: Plan, place: str) -> bool:
    """Whether an output would be among the files of `data.path`, so that the next release would read it as data."""
    from slowscale.data.sources import PARQUET

    for path in map(os.path.realpath, plan.data.paths):
        if os.path.isdir(path) and os.path.commonpath([path, place]) == path and place.lower().endswith(PARQUET):
            return True
        if glob.has_magic(path) and (fnmatch(place, path) if "**" in path else PurePath(place).match(path)):
            return True
    return False


def _check_writable(name: str, path: str, ending: str, overwrite: bool) -> None:
    """Raise unless an output can be written, by creating a file beside it."""
    try:
        target = free_target(path, ending, overwrite=True)
    except ParameterError as error:
        raise ParameterError(f"{name}: {str(error).removeprefix('path: ')}") from None
    if os.path.lexists(target) and not overwrite:  # also a link to a file that does not exist
        lost = "" if ending in (".html", "") else " and lose the release in it, which cannot be drawn again"
        raise ParameterError(
            f"{name}: {path} already exists; choose another path, or pass --overwrite to replace the file{lost}"
        )
    try:
        new_file(target, 0o600).unlink()
    except OSError as error:
        raise ParameterError(f"{name} cannot be written to {path}: {error.strerror or error}") from None


def _check_new_folder(folder: Path) -> None:
    """Raise unless the folder for the tables can be made, by creating a file beside it."""
    if os.path.lexists(folder):
        raise ParameterError(f"output.folder: {folder} is not a folder; choose another path")
    if not folder.parent.is_dir():
        raise ParameterError(f"output.folder: there is no folder {folder.parent}; create it first")
    try:
        new_file(folder, 0o600).unlink()
    except OSError as error:
        raise ParameterError(f"output.folder cannot be created at {folder}: {error.strerror or error}") from None


def _check_ledger_path(path: Path) -> None:
    """Raise if the ledger does not exist and could not be created."""
    if not path.parent.is_dir():
        raise ParameterError(f"ledger.path: there is no folder {path.parent}; create it first")
    if os.path.lexists(path):
        return
    check_no_journal(path)
    try:
        new_file(path, 0o600).unlink()
    except OSError as error:
        raise ParameterError(
            f"ledger.path: the ledger cannot be created ({error.strerror or error}); choose another path"
        ) from None
