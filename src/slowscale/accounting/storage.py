"""The file of a ledger: a SQLite database with locks between processes and a hash chain over the entries.

A charge is on disk before any noise is drawn, so a crash can waste budget but never leak it. The hash of an entry
covers the hash before it, so a changed, deleted or reordered entry is detected. The hash of the newest entry is stored
beside the chain and published with every release, so that the removal of the newest entries is detected too. Every
transaction first checks that the file has the two known tables and nothing else, and an entry is read back after its
commit: a trigger in the file cannot undo a charge.

SQLite uses a rollback journal, not a write-ahead log, because its locks are then on the file itself, by whatever path
it was opened. The journal is found by the name of the file, so a file with a second name (a hard link, or a mount of
the file alone) is refused. Symbolic links are resolved: they lead to the same ledger.
"""

import hashlib
import os
import re
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slowscale.accounting.account import Account
from slowscale.accounting.entries import Charged, Created, Entry, apply_entry, read_entry, serialized
from slowscale.core.errors import LedgerError, SlowscaleError
from slowscale.core.files import move_new, new_file, sqlite_address, sync_folder

FIRST_HASH = "0" * 64  # the hash before the first entry


def link_hash(before: str, number: int, payload: str) -> str:
    """Return the hash of an entry, computed from the hash before it, its number and its text."""
    return hashlib.sha256(f"{before}\n{number}\n{payload}".encode("utf-8", "surrogatepass")).hexdigest()


def chain_problems(
    rows: Sequence[tuple[int, str, str]],
    top: Sequence[tuple[int, str]],
    head: Mapping[str, Any] | None,
) -> list[str]:
    """Return the problems of a ledger file, given its entries (number, text, hash) and its stored head (number, hash).

    If an earlier `head` is given, it must still be in the chain.
    """
    problems: list[str] = []
    before, place, seen, account = FIRST_HASH, 0, {}, Account()
    for number, payload, stored in rows:
        place += 1
        if number != place:
            problems.append(f"entry {place} is missing")
            place = number
        if link_hash(before, number, payload) != stored:
            problems.append(f"entry {number} was changed, or an entry before it")
        before = seen[number] = stored
        try:
            apply_entry(account, read_entry(payload), first=len(seen) == 1)
        except SlowscaleError as error:
            problems.append(f"entry {number} cannot be read: {error}")
    if top != [(place, before)]:
        problems.append(
            "the newest entry is not the one that was written last: entries were removed from the end, or added"
        )
    if head is not None and seen.get(head["entry"]) != head["hash"]:
        problems.append(f"entry {head['entry']} does not have the hash that was given: entries were removed or changed")
    return problems


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
                code="second-name",
                remedy="remove the other name (find it with find -samefile), or use a symbolic link instead",
            )
    if str(real) in _mount_points():
        raise LedgerError(
            f"ledger {path}",
            "is a mount point: if a single file is mounted, SQLite cannot find its journal",
            code="mounted",
            remedy="mount the folder that contains the ledger, not the file",
        )


def check_no_journal(path: Path) -> None:
    """Raise if SQLite's files of another ledger are beside the path at which a ledger is to be created."""
    for ending in JOURNALS:
        # If the ledger exists now, another process has created it and may be writing to it.
        if os.path.lexists(f"{path}{ending}") and not os.path.lexists(path):
            raise LedgerError(
                f"{path}{ending}",
                "was left behind by a ledger that no longer exists",
                code="exists",
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


APPLICATION = 0x736C6F77  # "slow": the application that a SQLite file belongs to
SCHEMA = 1
LOCK_TIMEOUT = 120.0  # seconds to wait for a lock of another process
# All that a ledger file may contain, by name. Anything else, such as a trigger, could undo a charge.
TABLES = {
    "entries": "CREATE TABLE entries (id INTEGER PRIMARY KEY, payload TEXT NOT NULL, hash TEXT NOT NULL)",
    "head": "CREATE TABLE head (one INTEGER PRIMARY KEY CHECK (one = 1), id INTEGER NOT NULL, hash TEXT NOT NULL)",
}

# Held while this process uses a ledger, and while it forks: a child that inherits an open transaction would roll it
# back when it closes the connection.
_LOCK = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


@dataclass
class State:
    """What has been read from the file so far."""

    account: Account = field(default_factory=Account)
    entries: list[Entry] = field(default_factory=list)
    id: int = 0
    hash: str = FIRST_HASH


class LedgerFile:
    """The file of a ledger, and what has been read from it.

    Parameters
    ----------
    path
        The file.
    """

    broken: LedgerError | None  # why the ledger can only be verified, or None
    state: State

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._reset()

    def open(self, new: Created) -> None:
        """Read the file. If it does not exist, create it with this entry."""
        with self.locked(), self._ledger_errors("opened"):
            self.path = self.path.absolute()
            if not os.path.lexists(self.path):
                self._create(new)
            self._check_file()
            try:
                self.current_state()
            except LedgerError as error:  # the ledger can still be verified
                self.broken = error

    def close(self) -> None:
        """Close this thread's connection to the file. It is opened again when it is needed."""
        connection = self._local.__dict__.pop("connection", None)
        if connection is not None and self._pid == os.getpid():
            connection.close()

    def verify(self, head: Mapping[str, Any] | None = None) -> list[str]:
        """Return the problems of the file: see `Ledger.verify`."""
        problems: list[str] = []
        try:
            with self.locked(), self._ledger_errors("read"), self._transaction("BEGIN") as connection:
                found = connection.execute("PRAGMA integrity_check").fetchall()
                problems += [f"SQLite: {row[0]}" for row in found if row[0] != "ok"]
                rows = connection.execute("SELECT id, payload, hash FROM entries ORDER BY id").fetchall()
                top = connection.execute("SELECT id, hash FROM head").fetchall()
        except SlowscaleError as error:
            return [str(error)]
        return problems + chain_problems(rows, top, head)

    def ready(self) -> None:
        """Raise unless an entry can be written now: see `Ledger.ready`."""
        # A reader does not prevent others from starting to write, but from committing. Only an exclusive lock shows
        # that nobody is reading.
        with self.locked(), self._ledger_errors("written"), self._transaction("BEGIN EXCLUSIVE") as connection:
            self._read(connection)
            connection.execute("UPDATE head SET id = id + 1")  # creates the journal; is rolled back

    def append(self, entry: Entry) -> dict[str, Any]:
        """Write a serialized entry and return the new head."""
        payload = entry.text
        assert payload is not None
        with self.locked(), self._ledger_errors("written"):
            with self._transaction("BEGIN IMMEDIATE") as connection:
                self._read(connection)
                state = self.state
                number = state.id + 1
                digest = link_hash(state.hash, number, payload)
                caps, largest = (state.account.caps, state.account.band_caps), state.account.largest
                apply_entry(state.account, entry, first=False, checked=True)
                try:
                    connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (number, payload, digest))
                    connection.execute("UPDATE head SET id = ?, hash = ?", (number, digest))
                    connection.execute("COMMIT")
                except BaseException:  # the account must equal the file
                    (state.account.caps, state.account.band_caps), state.account.largest = caps, largest
                    if isinstance(entry, Charged):
                        state.account.forget()
                    raise
            state.id, state.hash = number, digest
            state.entries.append(entry)
        self.current_state()  # the entry is in the file, and the file is the one at the path
        return {"entry": number, "hash": digest}

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        """Begin a transaction, and roll it back unless the block commits it."""
        connection = self.connection()
        try:
            if connection.in_transaction:  # left open by an interrupt
                connection.execute("ROLLBACK")
            connection.execute(begin)
            self._check_same_file()
            self._check_schema(connection)
            yield connection
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _check_same_file(self) -> None:
        """Raise if the open file is not the one at the path, or has a second name: charges would be lost."""
        try:
            now = os.stat(self.path)
        except FileNotFoundError:
            now = None
        if now is None or (now.st_dev, now.st_ino) != self._local.identity:
            self._local.__dict__.pop("connection", None)
            raise LedgerError(
                f"ledger {self.path}",
                "was moved, removed or replaced while it was open",
                code="moved",
                remedy="open it at its present path",
            )
        if now.st_nlink > 1:
            check_one_name(self.path)

    def _create(self, new: Created) -> None:
        """Create the file under a temporary name, then link it to its path: it is never incomplete or created twice."""
        check_no_journal(self.path)
        payload = serialized(new).text
        assert payload is not None
        with self._ledger_errors("created"):
            name = new_file(self.path, 0o660)
            try:
                digest = link_hash(FIRST_HASH, 1, payload)
                with closing(sqlite3.connect(name, isolation_level=None)) as connection:
                    connection.execute("PRAGMA journal_mode = MEMORY")  # no other process uses the file yet
                    connection.execute("PRAGMA synchronous = FULL")
                    connection.execute(f"PRAGMA application_id = {APPLICATION}")
                    connection.execute(f"PRAGMA user_version = {SCHEMA}")
                    connection.executescript(f"BEGIN; {'; '.join(TABLES.values())};")
                    connection.execute("INSERT INTO entries VALUES (1, ?, ?)", (payload, digest))
                    connection.execute("INSERT INTO head VALUES (1, 1, ?)", (digest,))
                    connection.execute("COMMIT")
                with suppress(FileExistsError):  # another process created it first
                    move_new(name, self.path)
                sync_folder(self.path.parent)
            finally:
                name.unlink(missing_ok=True)

    def _reset(self) -> None:
        self.broken = None
        self._pid = os.getpid()
        self._local = threading.local()
        self.state = State()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of this process. A forked child starts with an empty state and its own connection."""
        with _LOCK:
            if self._pid != os.getpid():
                self._reset()
            yield

    def connection(self) -> sqlite3.Connection:
        """Return this thread's connection to the file."""
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            check_one_name(self.path)
            connection = self._connect()
            place = os.stat(self.path)
            self._local.identity = (place.st_dev, place.st_ino)
            self._local.connection = connection
        return connection

    def _connect(self) -> sqlite3.Connection:
        address = sqlite_address(self.path, "rw")
        connection = sqlite3.connect(address, uri=True, timeout=LOCK_TIMEOUT, isolation_level=None)
        try:
            connection.execute("PRAGMA trusted_schema = OFF")  # nothing in the file may call functions
            self._check_format(connection)
            # A power loss must not undo a committed charge: flush the folder, too, after the journal is removed.
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("PRAGMA fullfsync = ON")  # macOS leaves flushed data in the cache of the drive
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_file(self) -> None:
        if not self.path.is_file():
            raise LedgerError(
                f"ledger {self.path}", "is not a file", code="not-a-file", remedy="give the path of a ledger file"
            )
        if not self.path.stat().st_size:
            raise LedgerError(
                f"ledger {self.path}",
                "is an empty file",
                code="empty",
                remedy="remove it, or restore the ledger from a backup",
            )
        if not os.access(self.path, os.W_OK):
            raise LedgerError(
                f"ledger {self.path}",
                "is read-only, so charges cannot be written",
                code="unwritable",
                remedy="make it writable",
            )
        self.connection()

    def _check_format(self, connection: sqlite3.Connection) -> None:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != APPLICATION:
            raise LedgerError(
                f"ledger {self.path}", "is a database of another program", code="foreign", remedy="give another path"
            )
        if version != SCHEMA:
            raise LedgerError(
                f"ledger {self.path}",
                f"has format {version}, but this version of slowscale reads format {SCHEMA}",
                code="newer",
                remedy="update slowscale",
            )
        (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
        if journal == "wal":
            raise LedgerError(
                f"ledger {self.path}",
                "is in SQLite's write-ahead mode, but a ledger must have a rollback journal",
                code="write-ahead",
                remedy=f'close the programs that use it, and run sqlite3 {self.path} "PRAGMA journal_mode = DELETE"',
            )

    def _check_schema(self, connection: sqlite3.Connection) -> None:
        """Raise unless the file has the known tables and nothing else: a trigger or a view could undo charges."""
        found = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name").fetchall()
        if found != [("table", name, name, statement) for name, statement in TABLES.items()]:
            raise LedgerError(
                f"ledger {self.path}",
                "has tables, triggers, views or indexes that slowscale did not make: its charges cannot be trusted",
                code="schema",
                remedy="restore it from a backup",
            )

    def current_state(self) -> State:
        """Read the new entries of the file, and return its state."""
        with self.locked(), self._ledger_errors("read"), self._transaction("BEGIN") as connection:
            self._read(connection)
            return self.state

    def _read(self, connection: sqlite3.Connection) -> None:
        """Read the entries that were added since the last time, and check their hash chain."""
        if self.broken is not None:
            raise self.broken
        state = self.state
        rows = connection.execute(
            "SELECT id, payload, hash FROM entries WHERE id >= ? ORDER BY id", (state.id,)
        ).fetchall()
        if state.id and (not rows or rows[0] != (state.id, state.entries[-1].text, state.hash)):
            raise self._changed("")
        for number, payload, stored in rows[1:] if state.id else rows:
            if number != state.id + 1 or link_hash(state.hash, number, payload) != stored:
                raise self._changed(f" at entry {number}")
            entry = read_entry(payload)
            apply_entry(state.account, entry, first=state.id == 0)
            state.id, state.hash = number, stored
            state.entries.append(entry)
        if connection.execute("SELECT id, hash FROM head").fetchall() != [(state.id, state.hash)]:
            raise self._changed(": its newest entries are missing", "removed")

    def _changed(self, where: str, code: str = "changed") -> LedgerError:
        problem = f"was changed by another program{where}"
        return LedgerError(f"ledger {self.path}", problem, code=code, remedy="verify it")

    @contextmanager
    def _ledger_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except SlowscaleError:
            raise
        except (sqlite3.Error, OSError, ValueError) as error:
            subject = f"ledger {str(self.path)!r:.200}"
            sqlite = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the primary result code
            if sqlite == sqlite3.SQLITE_NOTADB:
                raise LedgerError(
                    subject,
                    "is not a ledger",
                    code="damaged",
                    remedy="give the path of a ledger, or another path for a new one. If it was a ledger, it is "
                    "damaged: restore it from a backup",
                ) from error
            if sqlite in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise LedgerError(
                    subject,
                    f"could not be {what}: another program kept it locked for {LOCK_TIMEOUT:g} seconds",
                    code="busy",
                    remedy="close that program, and try again",
                ) from error
            code = "unreadable" if what in ("opened", "read") else "unwritable"
            remedy = "create its folder first" if isinstance(error, FileNotFoundError) and what == "created" else None
            words: object = "there is no such folder" if remedy else error
            raise LedgerError(subject, f"could not be {what}: {words}", code=code, remedy=remedy) from error
