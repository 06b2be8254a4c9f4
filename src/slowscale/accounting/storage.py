"""The file of a ledger: SQLite, with locks between processes, and a chain of hashes over the entries.

A charge is on disk before any noise is drawn, so a crash can waste budget but never leak it. Entries are chained by
hashes: each one's hash covers the one before, so a changed, deleted or reordered entry is seen. The hash of the newest
entry is kept beside the chain, and goes out with every release, so that a cut-off end is seen as well.

SQLite keeps a rollback journal, not a write-ahead log: its locks are then on the file itself, whatever path it was
opened by. The journal is found by the file's name, so a file with a second name (a hard link, or a mount of the file
alone) is refused. Symbolic links are resolved, and mean the same ledger.
"""

import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slowscale.accounting.account import Account
from slowscale.accounting.chain import FIRST_HASH, chain_problems, link_hash
from slowscale.accounting.charge import Functions
from slowscale.accounting.entries import CapRaised, Charged, Created, Entry, read_entry, text_of, written
from slowscale.accounting.names import check_one_name
from slowscale.errors import LedgerError, SlowscaleError
from slowscale.files import move_new, new_file, sync_folder
from slowscale.policy import Policy

APPLICATION = 0x736C6F77  # "slow", by which SQLite files tell whose they are
SCHEMA = 1
PATIENCE = 120.0  # seconds to wait while another process writes
CONVERSION = 10.0  # seconds to wait until nobody else uses a ledger that must be taken out of write-ahead mode
TABLES = """
CREATE TABLE entries (id INTEGER PRIMARY KEY, payload TEXT NOT NULL, hash TEXT NOT NULL);
CREATE TABLE head (one INTEGER PRIMARY KEY CHECK (one = 1), id INTEGER NOT NULL, hash TEXT NOT NULL);
"""

# Held while this process uses a ledger, and while it forks: a child that inherited an open transaction would roll it
# back when it drops the connection.
_LOCK = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


@dataclass
class State:
    """What has been read of the file so far."""

    account: Account = field(default_factory=Account)
    entries: list[Entry] = field(default_factory=list)
    id: int = 0
    hash: str = FIRST_HASH


class LedgerFile:
    """The file of a ledger, and what has been read of it.

    Parameters
    ----------
    path
        The file.
    functions
        User-given transformations by name, where charged policies use any.
    """

    broken: LedgerError | None  # why the ledger can be verified, but not used
    state: State

    def __init__(self, path: str | os.PathLike[str], functions: Functions | None) -> None:
        self.functions = functions
        self.path = Path(path)
        self._fresh()

    def open(self, caps: Mapping[str, Policy], dataset: str | None) -> None:
        """Read the file; make it first, with these caps and for this data set, where there is none."""
        with self.here(), self._errors("opened"):
            self.path = self.path.absolute()
            if not os.path.lexists(self.path):
                self._create(caps, dataset)
            self._check_file()
            try:
                self._snapshot()
            except LedgerError as error:  # it can still be verified, but not used
                self.broken = error

    def close(self) -> None:
        """Close this thread's connection to the file; it opens again when it is needed."""
        connection = self._local.__dict__.pop("connection", None)
        if connection is not None and self._pid == os.getpid():
            connection.close()

    def verify(self, head: Mapping[str, Any] | None = None) -> list[str]:
        """Return what is wrong with the file: see `Ledger.verify`."""
        problems: list[str] = []
        try:
            with self.here(), self._errors("read"), self._transaction("BEGIN") as connection:
                found = connection.execute("PRAGMA integrity_check").fetchall()
                problems += [f"SQLite: {row[0]}" for row in found if row[0] != "ok"]
                rows = connection.execute("SELECT id, payload, hash FROM entries ORDER BY id").fetchall()
                top = connection.execute("SELECT id, hash FROM head").fetchall()
        except SlowscaleError as error:
            return [str(error)]
        return problems + chain_problems(rows, top, head, self.functions)

    def ready(self) -> None:
        """Raise unless an entry can be written now: see `Ledger.ready`."""
        # A program that reads does not stop others from beginning to write, but from committing: only the exclusive
        # lock shows that nobody reads.
        with self.here(), self._errors("written"), self._transaction("BEGIN EXCLUSIVE") as connection:
            self._read(connection)
            connection.execute("UPDATE head SET id = id + 1")  # creates the journal; rolled back

    def append(self, entry: Entry) -> dict[str, Any]:
        """Write an entry that was read back from its text; return the new head."""
        payload = text_of(entry)
        with self.here(), self._errors("written"):
            with self._transaction("BEGIN IMMEDIATE") as connection:
                self._read(connection)
                state = self.state
                number = state.id + 1
                digest = link_hash(state.hash, number, payload)
                undo = _apply(state.account, entry)
                try:
                    connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (number, payload, digest))
                    connection.execute("UPDATE head SET id = ?, hash = ?", (number, digest))
                    connection.execute("COMMIT")
                except BaseException:
                    undo()
                    raise
            state.id, state.hash = number, digest
            state.entries.append(entry)
            self._check_place()
            return {"entry": number, "hash": digest}

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        """Begin a transaction, and take it back unless it was committed."""
        connection = self.connection()
        try:
            if connection.in_transaction:  # an interrupt came at a bad moment
                connection.execute("ROLLBACK")
            connection.execute(begin)
            self._check_place()
            yield connection
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _check_place(self) -> None:
        """Raise where the file that is open is not the one at the path, or has a second name: charges would be lost."""
        try:
            now = os.stat(self.path)
        except FileNotFoundError:
            now = None
        if now is None or (now.st_dev, now.st_ino) != self._local.place:
            self._local.__dict__.pop("connection", None)
            raise LedgerError(f"ledger {self.path} was moved, removed or replaced while it was open")
        if now.st_nlink > 1:
            check_one_name(self.path)

    def _create(self, caps: Mapping[str, Policy], dataset: str | None) -> None:
        """Make the file beside its place and link it there, so that it is never half made, nor made twice."""
        for left in ("-wal", "-shm", "-journal"):
            # Another process may have made the ledger meanwhile, and be writing to it.
            if os.path.lexists(f"{self.path}{left}") and not os.path.lexists(self.path):
                raise LedgerError(f"{self.path}{left} is left of another ledger: bring that one back, or remove it")
        payload = text_of(written(Created(caps=caps, dataset=dataset), self.functions))
        with self._errors("made"):
            name = new_file(self.path, 0o660)
            try:
                digest = link_hash(FIRST_HASH, 1, payload)
                connection = sqlite3.connect(name, isolation_level=None)
                connection.execute("PRAGMA journal_mode = MEMORY")  # nobody knows of the file yet
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute(f"PRAGMA application_id = {APPLICATION}")
                connection.execute(f"PRAGMA user_version = {SCHEMA}")
                connection.executescript("BEGIN;" + TABLES)
                connection.execute("INSERT INTO entries VALUES (1, ?, ?)", (payload, digest))
                connection.execute("INSERT INTO head VALUES (1, 1, ?)", (digest,))
                connection.execute("COMMIT")
                connection.close()
                with suppress(FileExistsError):  # another process was first
                    move_new(name, self.path)
                sync_folder(self.path.parent)
            finally:
                name.unlink(missing_ok=True)

    def _fresh(self) -> None:
        self.broken = None
        self._pid = os.getpid()
        self._local = threading.local()
        self.state = State()

    @contextmanager
    def here(self) -> Iterator[None]:
        """Hold the lock of this process; a forked child starts afresh, with a connection of its own."""
        with _LOCK:
            if self._pid != os.getpid():
                self._fresh()
            yield

    def connection(self) -> sqlite3.Connection:
        """Return this thread's connection to the file."""
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            check_one_name(self.path)
            connection = self._connect()
            place = os.stat(self.path)
            self._local.place = (place.st_dev, place.st_ino)
            self._local.connection = connection
        return connection

    def _connect(self) -> sqlite3.Connection:
        """Open the file, and take it out of write-ahead mode, in which earlier versions made it."""
        address = f"{self.path.absolute().as_uri()}?mode=rw"
        deadline = time.monotonic() + CONVERSION
        while True:
            connection = sqlite3.connect(address, uri=True, timeout=PATIENCE, isolation_level=None)
            try:
                self._check_format(connection)
                # A committed charge must not come undone by a power loss: flush the folder too, once the journal is
                # gone from it.
                connection.execute("PRAGMA synchronous = EXTRA")
                if _journal_mode(connection) == "delete":
                    return connection
            except BaseException:
                connection.close()
                raise
            # Others have the file open: let go of it, since they may be waiting for the same.
            connection.close()
            if time.monotonic() > deadline:
                raise LedgerError(
                    f"ledger {self.path} was made by an earlier version of slowscale and must be converted, which "
                    "takes a moment when nobody else uses it: close the other programs that have it open, and try again"
                )
            time.sleep(random.uniform(0.005, 0.05))

    def _check_file(self) -> None:
        if not self.path.is_file():
            raise LedgerError(f"ledger {self.path} is not a file")
        if not self.path.stat().st_size:
            raise LedgerError(f"ledger {self.path} is an empty file: remove it, or bring back the ledger it was")
        if not os.access(self.path, os.W_OK):
            raise LedgerError(f"ledger {self.path} is read-only: charges could not be written")
        self.connection()

    def _check_format(self, connection: sqlite3.Connection) -> None:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != APPLICATION:
            raise LedgerError(f"ledger {self.path} is another program's database")
        if version != SCHEMA:
            raise LedgerError(f"ledger {self.path} has version {version}, this slowscale knows {SCHEMA}: update it")

    def refreshed(self) -> State:
        """Return what the file holds now."""
        with self.here(), self._errors("read"):
            self._snapshot()
            return self.state

    def _snapshot(self) -> None:
        """Read what is new, as of one moment."""
        with self._transaction("BEGIN") as connection:
            self._read(connection)

    def _read(self, connection: sqlite3.Connection) -> None:
        """Read the entries that were added since, and check their chain."""
        if self.broken is not None:
            raise self.broken
        state = self.state
        rows = connection.execute(
            "SELECT id, payload, hash FROM entries WHERE id >= ? ORDER BY id", (state.id,)
        ).fetchall()
        if state.id and (not rows or rows[0][0] != state.id or rows[0][2] != state.hash):
            raise LedgerError(f"ledger {self.path} was changed from outside: verify it")
        for number, payload, stored in rows[1:] if state.id else rows:
            if number != state.id + 1 or link_hash(state.hash, number, payload) != stored:
                raise LedgerError(f"ledger {self.path} was changed from outside at entry {number}: verify it")
            entry = read_entry(payload, self.functions)
            _apply(state.account, entry, checked=False)
            state.id, state.hash = number, stored
            state.entries.append(entry)
        if connection.execute("SELECT id, hash FROM head").fetchall() != [(state.id, state.hash)]:
            raise LedgerError(f"ledger {self.path} was changed from outside: its newest entries are gone")

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, ValueError) as error:
            if isinstance(error, SlowscaleError):
                raise
            reason = str(error)
            if "locked" in reason:
                reason = f"another program kept it locked for {PATIENCE:g} seconds; close that program, and try again"
            raise LedgerError(f"ledger {str(self.path)!r:.200} could not be {what}: {reason}") from error


def _apply(account: Account, entry: Entry, checked: bool = True) -> Callable[[], None]:
    """Carry an entry into the account; return what takes it back."""
    caps = dict(account.caps)
    if isinstance(entry, Created):
        account.caps = dict(entry.caps)
    elif isinstance(entry, CapRaised):
        account.caps = {**account.caps, entry.column: entry.cap}
    elif isinstance(entry, Charged):
        (account.charge if checked else account.record)(entry.charge)

    def undo() -> None:
        account.caps = caps
        if isinstance(entry, Charged):
            account.forget()

    return undo


def _journal_mode(connection: sqlite3.Connection) -> str:
    """Return the journal mode, "delete" if it could be set; it stays "wal" while others have the file open."""
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    if mode == "wal":
        with suppress(sqlite3.OperationalError):
            (mode,) = connection.execute("PRAGMA journal_mode = DELETE").fetchone()
    return str(mode)
