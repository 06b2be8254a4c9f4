"""Files: written whole or not at all, and never over others unless that is asked for."""

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from slowscale.errors import EngineError, ParameterError, ParameterTypeError
from slowscale.parameters import check_flag


def free_target(path: str | os.PathLike[str], ending: str, overwrite: bool) -> Path:
    """Return a path that a file can be written to, or raise and say why not."""
    check_flag("overwrite", overwrite)
    if not isinstance(path, str | os.PathLike):
        raise ParameterTypeError(f"path must be a path, got {type(path).__name__}")
    target = Path(path)
    try:
        os.stat(target.parent / target.name)
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise ParameterError(f"path must be a path that a file can have, got {str(path)!r:.60}: {error}") from None
    if not target.name.lower().endswith(ending):
        raise ParameterError(f"path must end in {ending}, got {target}")
    if not target.parent.is_dir():
        raise ParameterError(f"path: there is no folder {target.parent}")
    if target.is_dir():
        raise ParameterError(f"path: {target} is a folder")
    if target.exists() and not overwrite:
        raise ParameterError(
            f"path: {target} exists; a release cannot be drawn again, so pass overwrite=True to lose it"
        )
    return target


def write_files(files: Mapping[Path, Callable[[Path], Any]]) -> Path:
    """Write files beside their targets and move them there when all are whole; return the first."""
    ready: list[tuple[Path, Path]] = []
    try:
        for target, write in files.items():
            handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
            os.close(handle)
            ready.append((Path(name), target))
            write(Path(name))
            with open(name, "rb") as file:
                os.fsync(file.fileno())
            os.chmod(name, file_mode())
        for unfinished, target in reversed(ready):  # the table last: where it is, its facts are
            os.replace(unfinished, target)
    except OSError as error:
        raise EngineError(f"{next(iter(files))} could not be written: {error.strerror or error}") from error
    finally:
        for unfinished, _ in ready:
            unfinished.unlink(missing_ok=True)
    return next(iter(files))


def file_mode() -> int:
    """Return the mode of a new file, as the process is set up to make them."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
