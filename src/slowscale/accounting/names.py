"""The name of a ledger's file: it must have only one.

SQLite finds the journal of a crashed writer by the file's name, so whoever opens the file by a second name (a hard
link, or a mount of the file alone) would not see it.
"""

import os
import re
from contextlib import suppress
from pathlib import Path

from slowscale.errors import LedgerError

MOUNTS = Path("/proc/self/mountinfo")


def check_one_name(path: Path) -> None:
    """Raise where the file has a second name, by which others would not see the journal of a crashed writer."""
    real = Path(os.path.realpath(path))
    if os.stat(real).st_nlink > 1:
        _remove_unfinished(real)
        if os.stat(real).st_nlink > 1:
            raise LedgerError(
                f"ledger {path} has a hard link: a ledger must have one name, so that everyone who opens it "
                "sees the same journal. Remove the other name (find it with find -samefile), or use a symbolic link"
            )
    if str(real) in _mount_points():
        raise LedgerError(
            f"ledger {path} is a mount point: a ledger that is mounted as a single file has its journal "
            "elsewhere than under its other name. Mount the folder it is in, not the file"
        )


def _mount_points() -> set[str]:
    """Return all mount points that this process sees; none where the system does not list them."""
    try:
        lines = os.fsdecode(MOUNTS.read_bytes()).split("\n")
    except OSError:
        return set()
    # The fifth field is the mount point, with blanks and backslashes as octal numbers.
    points = (line.split(" ")[4] for line in lines if line)
    return {re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), point) for point in points}


def _remove_unfinished(path: Path) -> None:
    """Remove the name under which a ledger was made, if whoever made it was stopped before it could do so."""
    place = os.stat(path)
    name = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{12}}")
    with os.scandir(path.parent) as entries:
        for entry in entries:
            if name.fullmatch(entry.name):
                with suppress(FileNotFoundError):  # another process was first
                    if os.path.samestat(os.lstat(entry.path), place):
                        os.unlink(entry.path)
