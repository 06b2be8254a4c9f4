"""Files are written whole or not at all, and replace existing files only on request."""

import os
import re
import secrets
import unicodedata
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from slowscale.core.errors import EngineError, ParameterError, ParameterTypeError
from slowscale.core.interrupts import uninterrupted
from slowscale.core.parameters import check_flag

# Names that files can have on every system.
PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
# Files to write, each with a function that writes the content to a path.
Writers = dict[Path, Callable[[Path], Any]]


def check_output_path(path: str | os.PathLike[str], ending: str, overwrite: bool) -> Path:
    """Return the path that a file can be written to, or raise an error that says why it cannot."""
    check_flag("overwrite", overwrite)
    if not isinstance(path, str | os.PathLike):
        raise ParameterTypeError("path", allowed="text or os.PathLike", given=type(path))
    target = Path(path)
    try:
        with suppress(FileNotFoundError):
            os.stat(target.parent / target.name)
        with suppress(FileNotFoundError):
            os.stat(target.parent / _temporary(target.name))  # its name is longer
    except (OSError, ValueError) as error:
        raise ParameterError("path", f"cannot be used: {error}", code="unwritable") from None
    if not target.name.lower().endswith(ending):
        remedy = "`publish` of a release writes Excel files" if target.suffix.lower() == ".xlsx" else None
        raise ParameterError("path", allowed=f"a path that ends in {ending}", given=str(target), remedy=remedy)
    if not target.parent.is_dir():
        raise ParameterError(target.parent, "is not a folder", code="missing", remedy="make the folder first")
    if target.is_dir():
        raise ParameterError(target, "is a folder", code="folder", remedy="give the path of a file")
    if os.path.lexists(target) and not overwrite:  # also a link to nothing
        raise _exists(target)
    return target


def comparable_name(name: str) -> str:
    """Return a name as systems compare it that ignore case, or how an accent is written."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def check_dir(folder: str | os.PathLike[str]) -> Path:
    """Return a folder, or the path of a new one in an existing folder; raise if it can be neither."""
    if not isinstance(folder, str | os.PathLike):
        raise ParameterTypeError("folder", allowed="text or os.PathLike", given=type(folder))
    place = Path(folder)
    try:
        found, new = place.is_dir(), not os.path.lexists(place) and place.parent.is_dir()
    except (OSError, ValueError) as error:
        raise ParameterError("folder", f"cannot be used: {error}", code="unwritable") from None
    if not (found or new):
        raise ParameterError("folder", allowed="a folder, or a new one in an existing folder", given=str(place))
    return place


def ensure_dir(folder: str | os.PathLike[str]) -> Path:
    """Return a folder, which is made if its parent exists."""
    place = check_dir(folder)
    try:
        place.mkdir(exist_ok=True)
    except (OSError, ValueError) as error:
        problem = f"cannot be created ({getattr(error, 'strerror', None) or error})"
        raise ParameterError(place, problem, code="unwritable", remedy="choose another path") from None
    return place


def write_files(
    files: Mapping[Path, Callable[[Path], Any]], *, overwrite: bool = False, confidential: bool = False
) -> Path:
    """Write temporary files beside their targets, move them there when all are complete, and return the first target.

    Parameters
    ----------
    files
        The targets, each with a function that writes the content to a path.
    overwrite
        Whether to replace existing files. If not, and a target exists or appears in the meantime, nothing is written.
    confidential
        Whether only the owner may read the files. Otherwise the umask of the process decides.
    """
    first = next(iter(files))
    unfinished: dict[Path, Path] = {}
    try:
        for target, write in files.items():
            with uninterrupted():
                unfinished[target] = new_file(target, 0o600 if confidential else 0o666)
            write(unfinished[target])
            with open(unfinished[target], "r+b") as file:  # Windows flushes only what may be written
                os.fsync(file.fileno())
        with uninterrupted():
            _move(unfinished, overwrite)
        for folder in {target.parent for target in files}:
            sync_folder(folder)
    except OSError as error:
        # Windows replaces no file that is open, for example in Excel.
        in_use = os.name == "nt" and isinstance(error, PermissionError)
        remedy = "close the programs that have it open" if in_use else None
        problem = f"could not be written: {error.strerror or error}"
        raise EngineError(first, problem, code="unwritable", remedy=remedy) from error
    finally:
        for path in unfinished.values():
            path.unlink(missing_ok=True)
    return first


def _move(unfinished: dict[Path, Path], overwrite: bool) -> None:
    """Move all files to their targets, or none: if one cannot be moved, files that were replaced are put back."""
    moved: list[Path] = []
    kept: dict[Path, Path] = {}  # the files that are replaced, under other names
    try:
        # The first file, the table, is moved last: whenever it exists, the file with its facts exists.
        for target, path in reversed(unfinished.items()):
            if overwrite:
                if os.path.lexists(target):
                    kept[target] = _keep(target)
                os.replace(path, target)
            else:
                move_new(path, target)
            moved.append(target)
    except BaseException as error:
        for target_done in moved:
            if target_done not in kept:
                target_done.unlink(missing_ok=True)
        for replaced, copy in kept.items():
            with suppress(OSError):  # a file that cannot be put back keeps its other name
                os.replace(copy, replaced)
                copy.unlink(missing_ok=True)
        if isinstance(error, FileExistsError) and not overwrite:
            raise _exists(target) from None
        raise
    for copy in kept.values():
        with suppress(OSError):
            copy.unlink()


def _keep(target: Path) -> Path:
    """Give a file a second name, or another one where there are no hard links, and return it."""
    name = target.with_name(_temporary(target.name))
    if os.name != "nt":  # Windows removes no second name of an open file
        with suppress(OSError, NotImplementedError):
            os.link(target, name, follow_symlinks=False)
            return name
    os.rename(target, name)
    return name


def _temporary(name: str) -> str:
    return f".{name}.{secrets.token_hex(6)}"


def new_file(target: Path, mode: int) -> Path:
    """Create an empty temporary file beside a target and return its path. The umask applies to the mode."""
    path = target.with_name(_temporary(target.name))
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))
    return path


def move_new(path: Path, target: Path) -> None:
    """Move a file to a target in the same folder, or raise FileExistsError if the target exists."""
    try:
        os.link(path, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links, in the words of its system
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            os.replace(path, target)
        except BaseException:
            target.unlink()
            raise
    else:
        with suppress(FileNotFoundError):
            path.unlink()


def sync_folder(folder: Path) -> None:
    """Flush a folder to disk, so that the names of the files made in it survive a power loss."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows cannot open a folder
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def relative_path(path: str | os.PathLike[str], folder: Path) -> str:
    """Return a path as plans state it: relative to a folder unless on another drive of Windows, and with slashes."""
    try:
        found = os.path.relpath(path, folder)
    except ValueError:  # on another drive
        found = os.path.abspath(path)
    return found.replace(os.sep, "/")


def sqlite_address(path: Path, mode: str) -> str:
    """Return the address of a file for SQLite, also of one on a drive or a share of Windows."""
    place = os.fsencode(path.absolute().as_posix())
    return f"file://{'' if place.startswith(b'/') else '/'}{quote(place, safe='/:')}?mode={mode}"


def _exists(target: Path) -> ParameterError:
    table = target.name.lower().endswith((".parquet", ".csv", ".csv.json"))
    lost = "; a release in it would be lost, and a release cannot be drawn again" if table else ""
    return ParameterError(target, "already exists", code="exists", remedy=f"use `overwrite` to replace it{lost}")
