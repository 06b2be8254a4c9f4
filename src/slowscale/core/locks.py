"""Locks between processes. They are SQLite's, which every system has, and end with the process that holds them."""

import errno
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path

from slowscale.core.files import sqlite_address
from slowscale.core.interrupts import uninterrupted

REMOVED = 1  # the version of a file that was removed while it was locked
NO_LOCKS = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOLFS, sqlite3.SQLITE_PROTOCOL)


@contextmanager
def locked(path: Path, *, wait: float = 0, remove: bool = False) -> Iterator[bool]:
    """Hold a lock in the block, and yield True; yield False if another process or thread holds it.

    Parameters
    ----------
    path
        The file that is locked. It is empty, and created if it does not exist.
    wait
        The seconds to wait for another holder.
    remove
        Whether to remove the file at the end.

    Raises
    ------
    OSError
        If there is no such file that can be created or opened. A file system without locks has the number ENOLCK.
    """
    connection, taken = None, False
    try:
        # An interrupt in between would leave the file.
        with nullcontext() if wait else uninterrupted():
            _make(path)
            try:
                connection = _connect(path, "rw", wait)
            except OSError:
                if os.path.lexists(path):
                    raise  # otherwise its last holder has just removed it
            else:
                # Nothing is written while the lock is held, so no journal is needed.
                taken = _can(connection, "PRAGMA journal_mode = OFF") and _can(connection, "BEGIN EXCLUSIVE")
                taken = taken and connection.execute("PRAGMA user_version").fetchone() != (REMOVED,)
        yield taken
    finally:
        with uninterrupted():
            if taken and remove and connection is not None:
                with suppress(PermissionError):  # Windows removes no open file
                    path.unlink(missing_ok=True)
                    remove = False
                    # Who has opened the file already must not take it for the lock: there may be a new one.
                    with suppress(sqlite3.Error):
                        connection.execute(f"PRAGMA user_version = {REMOVED}")
                        connection.execute("COMMIT")
            if connection is not None:
                connection.close()
            if taken and remove:
                with suppress(OSError):  # another process has opened it
                    path.unlink(missing_ok=True)


def _make(path: Path) -> None:
    """Create a file unless it exists; raise OSError for a link, a folder or a pipe.

    A file that exists is not opened: on POSIX systems, closing it would end the locks of this process on it.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(os.lstat(path).st_mode):
                raise OSError(errno.EINVAL, "is not a regular file", str(path)) from None


def is_locked(path: Path) -> bool:
    """Return whether a process holds a lock. If that cannot be known, it is taken to be held."""
    try:
        place = os.stat(path)
        if stat.S_ISREG(place.st_mode) and not place.st_size:
            with closing(_connect(path, "ro", 0)) as connection:
                return not _can(connection, "SELECT 1 FROM sqlite_master")
    except FileNotFoundError:
        return False
    except OSError:
        pass
    return True


def _connect(path: Path, mode: str, wait: float) -> sqlite3.Connection:
    try:
        return sqlite3.connect(sqlite_address(path, mode), uri=True, timeout=wait, isolation_level=None)
    except sqlite3.Error as error:
        raise OSError(str(error)) from None


def _can(connection: sqlite3.Connection, statement: str) -> bool:
    """Carry out a statement, and return whether no lock of others was in the way."""
    try:
        connection.execute(statement)
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in NO_LOCKS:
            raise OSError(errno.ENOLCK, str(error)) from None
        if code != sqlite3.SQLITE_BUSY:
            raise OSError(str(error)) from None
        return False
    return True
