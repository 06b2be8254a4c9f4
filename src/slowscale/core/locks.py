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
            place = _made(path)
            connection = _connect(path, "rw", wait)
            # Nothing is written, so no journal is needed.
            taken = _can(connection, "PRAGMA journal_mode = OFF") and _can(connection, "BEGIN EXCLUSIVE")
            if taken and remove:  # its last holder may have removed the file before it was locked here
                with suppress(OSError):
                    taken = os.path.samestat(os.stat(path), place)
        yield taken
    finally:
        with uninterrupted():
            if taken and remove:
                with suppress(PermissionError):  # Windows removes no open file
                    path.unlink(missing_ok=True)
                    remove = False
            if connection is not None:
                connection.close()
            if taken and remove:
                with suppress(OSError):  # another process has opened it
                    path.unlink(missing_ok=True)


def _made(path: Path) -> os.stat_result:
    """Create a file unless it exists, and return what it is; raise OSError for a link, a folder or a pipe."""
    # Opening a pipe would wait, and a link could lead anywhere. Windows has neither flag.
    safely = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    file = os.open(path, os.O_RDWR | os.O_CREAT | safely, 0o600)
    try:
        place = os.fstat(file)
    finally:
        os.close(file)
    if not stat.S_ISREG(place.st_mode):
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    return place


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
