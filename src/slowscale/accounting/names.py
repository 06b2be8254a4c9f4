"""A ledger file must have only one name, and a new one no journal of another.

SQLite finds the journal of a crashed writer by the name of the file. A program that opens the file by a second name (a
hard link, or a mount of the file alone) would not find it.
"""

import os
import re
from contextlib import suppress
from pathlib import Path

from slowscale.core.errors import LedgerError

MOUNTS = Path("/proc/self/mountinfo")
JOURNALS = ("-wal", "-shm", "-journal")  # endings of the files that SQLite keeps beside a database


def check_one_name(path: Path) -> None:
    """Raise if the file has a second name, by which the journal of a crashed writer would not be found."""
    real = Path(os.path.realpath(path))
    if os.stat(real).st_nlink > 1:
        _remove_unfinished(real)
        if os.stat(real).st_nlink > 1:
            raise LedgerError(
                f"ledger {path}",
                "has a hard link: a ledger must have one name, so that every program finds the same journal",
                remedy="remove the other name (find it with find -samefile), or use a symbolic link instead",
            )
    if str(real) in _mount_points():
        raise LedgerError(
            f"ledger {path}",
            "is a mount point: if a single file is mounted, SQLite cannot find its journal",
            remedy="mount the folder that contains the ledger, not the file",
        )


def check_no_journal(path: Path) -> None:
    """Raise if SQLite's files of another ledger are beside the path at which a ledger is to be created."""
    for ending in JOURNALS:
        # If the ledger exists now, another process has created it and may be writing to it.
        if os.path.lexists(f"{path}{ending}") and not os.path.lexists(path):
            raise LedgerError(
                f"{path}{ending} was left behind by a ledger that no longer exists",
                remedy="restore that ledger, or remove this file",
            )


def _mount_points() -> set[str]:
    """Return all mount points that this process sees; an empty set if the system does not list them."""
    try:
        lines = os.fsdecode(MOUNTS.read_bytes()).split("\n")
    except OSError:
        return set()
    # The fifth field is the mount point, in which blanks and backslashes are octal escapes.
    points = (line.split(" ")[4] for line in lines if line)
    return {re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), point) for point in points}


def _remove_unfinished(path: Path) -> None:
    """Remove the temporary name of a new ledger, if the process that created it was stopped before it could."""
    place = os.stat(path)
    name = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{12}}")
    with os.scandir(path.parent) as entries:
        for entry in entries:
            if name.fullmatch(entry.name):
                with suppress(FileNotFoundError):  # another process removed it first
                    if os.path.samestat(os.lstat(entry.path), place):
                        os.unlink(entry.path)
