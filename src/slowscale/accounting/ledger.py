"""The ledger: one SQLite file that knows what every record has lost so far.

A charge is on disk before any noise is drawn, so a crash can waste budget but never leak it. Entries are chained by
hashes: each one's hash covers the one before, so a changed, deleted or reordered entry is seen. The hash of the newest
entry is kept beside the chain, and goes out with every release, so that a cut-off end is seen as well.

SQLite keeps a rollback journal, not a write-ahead log: its locks are then on the file itself, whatever path it was
opened by. The journal is found by the file's name, so a file with a second name (a hard link, or a mount of the file
alone) is refused. Symbolic links are resolved, and mean the same ledger.
"""

import copy
import hashlib
import json
import os
import random
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from slowscale.accounting.account import Account, Charge, Spent, check_caps
from slowscale.accounting.record import ANY, RecordPolicy, folded, read_policies
from slowscale.errors import LedgerError, ParameterError, ParameterTypeError, SlowscaleError
from slowscale.files import move_new, new_file, sync_folder
from slowscale.policy import Policy

APPLICATION = 0x736C6F77  # "slow", by which SQLite files tell whose they are
SCHEMA = 1
PATIENCE = 120.0  # seconds to wait while another process writes
CONVERSION = 10.0  # seconds to wait until nobody else uses a ledger that must be taken out of write-ahead mode
MOUNTS = Path("/proc/self/mountinfo")
START = "0" * 64
TABLES = """
CREATE TABLE entries (id INTEGER PRIMARY KEY, payload TEXT NOT NULL, hash TEXT NOT NULL);
CREATE TABLE head (one INTEGER PRIMARY KEY CHECK (one = 1), id INTEGER NOT NULL, hash TEXT NOT NULL);
"""

Functions = Mapping[str, Callable[..., Any]]

# Held while this process uses a ledger, and while it forks: a child that inherited an open transaction would roll it
# back when it drops the connection.
_LOCK = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


@dataclass
class _State:
    """What has been read of the file so far."""

    account: Account = field(default_factory=Account)
    entries: list[dict[str, Any]] = field(default_factory=list)
    id: int = 0
    hash: str = START


class Ledger:
    """A durable account of everything released from some records.

    Parameters
    ----------
    path
        The file. It is made if there is none; another program's, a broken one or one of a newer version is refused,
        and so is one with a second name (a hard link, or a mount of the file alone).
    caps
        The most that a record may ever lose, by column: {"payann": policy, "*": policy} ("*": any column not named;
        "count": the number of records). Fixed when the ledger is made.
    functions
        User-given transformations by name, where charged policies use any.
    dataset
        The name of the data set that the ledger belongs to, such as "cbp-2024": kept when the ledger is made, and
        compared exactly, apart from blanks around it. Sessions on the ledger must then give the same name.

    >>> import tempfile, os, slowscale as ss
    >>> path = os.path.join(tempfile.mkdtemp(), "census.ledger")
    >>> with Ledger(path, caps={"*": ss.Gaussian(5).policy}) as ledger:  # closes its connection at the end
    ...     ledger.verify()
    []
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        caps: Mapping[str, Policy] | None = None,
        functions: Functions | None = None,
        *,
        dataset: str | None = None,
    ) -> None:
        if not isinstance(path, str | os.PathLike):
            raise ParameterTypeError(f"ledger must be a path, got {type(path).__name__}")
        self._functions = functions
        self._broken: LedgerError | None = None
        wanted = check_caps(caps)
        name = dataset_name(dataset)
        self.path = Path(path)
        self._fresh()
        with self._here(), self._errors("opened"):
            self.path = self.path.absolute()
            if not os.path.lexists(self.path):
                self._create(wanted, name)
            self._check_file()
            try:
                self._snapshot()
            except LedgerError as error:  # it can still be verified, but not used
                self._broken = error
        known = [_by_name(some) for some in (self._state.account.caps, self._first_caps())]
        if self._broken is None and caps is not None and _by_name(wanted) not in known:
            raise ParameterError(f"caps differ from those that {self.path} was made with: leave them out, or raise one")
        if self._broken is None and name is not None:
            self.check_dataset(name)

    def __reduce__(self) -> Any:
        return Ledger, (str(self.path), None, self._functions)

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close this thread's connection to the file; it opens again when it is needed."""
        connection = self._local.__dict__.pop("connection", None)
        if connection is not None and self._pid == os.getpid():
            connection.close()

    # Reading

    @property
    def spent(self) -> Spent:
        """What a record may have lost by everything charged so far."""
        with self._here():
            return self._refreshed().account.spent

    @property
    def account(self) -> Account:
        """A copy of the account as it stands, to ask what may be charged."""
        with self._here():
            return self._refreshed().account.copy()

    @property
    def caps(self) -> dict[str, Policy]:
        """The caps in force."""
        return dict(self._refreshed().account.caps)

    @property
    def dataset(self) -> str | None:
        """The name of the data set that the ledger belongs to, or None where it was made without one."""
        entries = self._refreshed().entries
        return entries[0].get("dataset") if entries else None

    def check_dataset(self, dataset: str | None) -> None:
        """Raise a `LedgerError` unless records of a data set of this name may be charged here.

        A ledger without a name accepts any; one with a name accepts no other, nor records without one.
        """
        given, own = dataset_name(dataset), self.dataset
        if own is None or given == own:
            return
        if given is None:
            raise LedgerError(
                f"ledger {self.path} belongs to the data set {own!r}, and no data set was named; if these records are "
                f"its, say dataset={own!r}, else use another ledger"
            )
        raise LedgerError(
            f"ledger {self.path} belongs to the data set {own!r}, not to {given!r}; use the ledger of {given!r}, or "
            f"correct the name"
        )

    @property
    def head(self) -> dict[str, Any]:
        """The number and the hash of the newest entry: what to compare with later, to see that nothing was cut off."""
        state = self._refreshed()
        return {"entry": state.id, "hash": state.hash}

    def history(self) -> list[dict[str, Any]]:
        """Return all entries, oldest first: what was asked, when, and what it cost."""
        entries = self._refreshed().entries
        return [copy.deepcopy({key: part for key, part in entry.items() if key != "parsed"}) for entry in entries]

    def describe(self) -> str:
        """Return the total in plain words, with the caps."""
        state = self._refreshed()
        spent = state.account.spent
        dataset = state.entries[0].get("dataset")
        lines = [] if dataset is None else [f"Data set: {dataset}."]
        lines.append(str(spent))
        above = state.account.above_caps()
        for name, cap in state.account.caps.items():
            what = "any other column" if folded(name) == ANY else name
            thing = f"{spent.protects}, in one cell," if spent.protects else "record"
            if name in above:
                lines.append(f"Cap on {what}: {cap}. It was lowered, and is exceeded already, {above[name].sizes}")
            else:
                lines.append(f"Cap on {what}: a {thing} never loses more than {cap}")
        lines += [
            f"The cap on {column} was changed on {entry['time']}, from {old} to {new}: {entry['reason']}"
            for entry, column, old, new in _cap_changes(state.entries)
        ]
        attempts = sum(entry["kind"] == "attempt" for entry in state.entries)
        if attempts:
            failed = "1 attempt was" if attempts == 1 else f"{attempts:,} attempts were"
            lines.append(f"{failed} refused or failed; see the history.")
        return "\n".join(lines)

    def verify(self, head: Mapping[str, Any] | None = None) -> list[str]:
        """Return what is wrong with the file, nothing if all is well.

        Parameters
        ----------
        head
            The `head` of an earlier day, or the one that a release carries: it must still be in the chain.
        """
        if head is not None and not (isinstance(head, Mapping) and {"entry", "hash"} <= set(head)):
            raise ParameterTypeError(f'head must be a mapping with "entry" and "hash", got {head!r:.60}')
        problems: list[str] = []
        try:
            with self._here(), self._errors("read"), self._transaction("BEGIN") as connection:
                found = connection.execute("PRAGMA integrity_check").fetchall()
                problems += [f"SQLite: {row[0]}" for row in found if row[0] != "ok"]
                rows = connection.execute("SELECT id, payload, hash FROM entries ORDER BY id").fetchall()
                top = connection.execute("SELECT id, hash FROM head").fetchall()
        except SlowscaleError as error:
            return [str(error)]
        before, place, seen = START, 0, {}
        for number, payload, stored in rows:
            place += 1
            if number != place:
                problems.append(f"entry {place} is missing")
                place = number
            if _hash(before, number, payload) != stored:
                problems.append(f"entry {number} was changed, or what came before it")
            before = seen[number] = stored
            try:
                _entry(payload, self._functions)
            except SlowscaleError as error:
                problems.append(f"entry {number} cannot be read: {error}")
        if top != [(place, before)]:
            problems.append("the newest entry is not the one that was written last: entries were cut off or added")
        if head is not None and seen.get(head["entry"]) != head["hash"]:
            problems.append(f"entry {head['entry']} is not the one it was: entries were cut off or changed")
        return problems

    # Writing

    def charge(
        self,
        facts: Mapping[str, Any],
        by: str | None = None,
        labels: tuple[Any, ...] = (),
        kind: str | None = None,
        policy: RecordPolicy | None = None,
    ) -> dict[str, Any]:
        """Write down a release before it is drawn, or raise and write nothing.

        Parameters
        ----------
        facts
            What is asked: the facts of a release, with its "policy" and "pure_policy".
        by, labels, kind
            Where the release is about records with these labels of a column only, and what the labels are.
        policy
            The policy itself: what is read back from the facts must be the same, functions and all.

        Returns
        -------
        The new head.
        """
        return self._append(*_charge_entry(facts, by, labels, kind), policy)

    def check(
        self,
        facts: Mapping[str, Any],
        by: str | None = None,
        labels: tuple[Any, ...] = (),
        kind: str | None = None,
        policy: RecordPolicy | None = None,
    ) -> None:
        """Raise what `charge` would raise now, and write nothing; the arguments are those of `charge`."""
        parsed = self._parsed(*_charge_entry(facts, by, labels, kind), policy)[1]
        with self._here():  # no other thread may carry new entries into the account meanwhile
            self._refreshed().account.check(parsed["parsed"])

    def ready(self) -> None:
        """Raise a `LedgerError` unless an entry can be written now; write nothing.

        Ask before the records are read: an error that depends on them must not go unrecorded because another program
        keeps the ledger locked, or because the journal cannot be written.
        """
        # A program that reads does not stop others from beginning to write, but from committing: only the exclusive
        # lock shows that nobody reads.
        with self._here(), self._errors("written"), self._transaction("BEGIN EXCLUSIVE") as connection:
            self._read(connection)
            connection.execute("UPDATE head SET id = id + 1")  # creates the journal; rolled back

    def attempt(
        self,
        facts: Mapping[str, Any],
        error: BaseException,
        by: str | None = None,
        labels: tuple[Any, ...] = (),
        kind: str | None = None,
    ) -> dict[str, Any]:
        """Write down a release that was refused or failed: it costs nothing, and stays in the history.

        An error can depend on the records, so who asked what, how often, must be seen.

        Parameters
        ----------
        facts
            What was asked: whatever is known of the release's facts.
        error
            Why it was not made. Its type and its message are kept.
        by, labels, kind
            As for `charge`.

        Returns
        -------
        The new head.
        """
        if not isinstance(facts, Mapping):
            raise ParameterTypeError(f"facts must be a mapping, got {type(facts).__name__}")
        if not isinstance(error, BaseException):
            raise ParameterTypeError(f"error must be an exception, got {type(error).__name__}")
        reason = {"type": type(error).__name__, "message": str(error)}
        return self._append("attempt", {**_asked(facts, by, labels, kind), "error": reason})

    def raise_cap(self, column: str, cap: Policy, reason: str) -> None:
        """Put another cap in place of a column's, for good and visible in the history.

        The new cap may also be lower, at some or all record sizes. What was charged stays, so that a total may then be
        above the cap; nothing more is charged there.

        Parameters
        ----------
        column
            The column, "*" or "count": one that has a cap.
        cap
            The new cap, a PRzCDP policy.
        reason
            Why it is changed, in words.
        """
        check_caps({column: cap} if isinstance(column, str) else None)
        if not isinstance(reason, str) or not reason.strip():
            raise ParameterError("reason must say in words why the cap is raised: it stays in the history")
        caps = self.caps
        found = [name for name in caps if isinstance(column, str) and folded(name) == folded(column)]
        if not found:
            raise ParameterError(
                f"column must be one that has a cap ({', '.join(caps) or 'none has'}), got {column!r}; caps can be "
                "added only when a ledger is made"
            )
        self._append("cap", {"column": column if column in found else found[0], "cap": cap.to_dict(), "reason": reason})

    def _parsed(
        self, kind: str, entry: Mapping[str, Any], policy: RecordPolicy | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Return an entry as it is written, and as it is read back."""
        try:
            payload = json.dumps({"time": _now(), "kind": kind, **entry}, sort_keys=True)
        except (TypeError, ValueError) as error:
            raise ParameterTypeError(f"facts must be what JSON can hold: {error}") from None
        parsed = _entry(payload, self._functions)
        if policy is not None and parsed["parsed"].policy != policy:
            raise ParameterError("the ledger knows another function by the name of one in the policy: see functions=")
        return payload, parsed

    def _append(self, kind: str, entry: Mapping[str, Any], policy: RecordPolicy | None = None) -> dict[str, Any]:
        payload, parsed = self._parsed(kind, entry, policy)
        with self._here(), self._errors("written"):
            with self._transaction("BEGIN IMMEDIATE") as connection:
                self._read(connection)
                state = self._state
                number = state.id + 1
                digest = _hash(state.hash, number, payload)
                undo = _apply(state.account, parsed)
                try:
                    connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (number, payload, digest))
                    connection.execute("UPDATE head SET id = ?, hash = ?", (number, digest))
                    connection.execute("COMMIT")
                except BaseException:
                    undo()
                    raise
            state.id, state.hash = number, digest
            state.entries.append(parsed)
            self._check_place()
            return {"entry": number, "hash": digest}

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        """Begin a transaction, and take it back unless it was committed."""
        connection = self._connection()
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
            self._check_names()

    def _check_names(self) -> None:
        """Raise where the file has a second name, by which others would not see the journal of a crashed writer."""
        real = Path(os.path.realpath(self.path))
        if os.stat(real).st_nlink > 1:
            _remove_unfinished(real)
            if os.stat(real).st_nlink > 1:
                raise LedgerError(
                    f"ledger {self.path} has a hard link: a ledger must have one name, so that everyone who opens it "
                    "sees the same journal. Remove the other name (find it with find -samefile), or use a symbolic link"
                )
        if str(real) in _mount_points():
            raise LedgerError(
                f"ledger {self.path} is a mount point: a ledger that is mounted as a single file has its journal "
                "elsewhere than under its other name. Mount the folder it is in, not the file"
            )

    # The file

    def _create(self, caps: Mapping[str, Policy], dataset: str | None) -> None:
        """Make the file beside its place and link it there, so that it is never half made, nor made twice."""
        for left in ("-wal", "-shm", "-journal"):
            # Another process may have made the ledger meanwhile, and be writing to it.
            if os.path.lexists(f"{self.path}{left}") and not os.path.lexists(self.path):
                raise LedgerError(f"{self.path}{left} is left of another ledger: bring that one back, or remove it")
        payload_caps = {name: cap.to_dict() for name, cap in caps.items()}
        for cap in payload_caps.values():
            Policy.from_dict(cap, self._functions)
        with self._errors("made"):
            name = new_file(self.path, 0o660)
            try:
                entry = {"kind": "created", "time": _now(), "caps": payload_caps}
                if dataset is not None:
                    entry["dataset"] = dataset
                payload = json.dumps(entry, sort_keys=True)
                digest = _hash(START, 1, payload)
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
        self._broken = None
        self._pid = os.getpid()
        self._local = threading.local()
        self._state = _State()

    @contextmanager
    def _here(self) -> Iterator[None]:
        """Hold the lock of this process; a forked child starts afresh, with a connection of its own."""
        with _LOCK:
            if self._pid != os.getpid():
                self._fresh()
            yield

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            self._check_names()
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
            raise LedgerError(f"ledger {self.path} is no file")
        if not self.path.stat().st_size:
            raise LedgerError(f"ledger {self.path} is an empty file: remove it, or bring back the ledger it was")
        if not os.access(self.path, os.W_OK):
            raise LedgerError(f"ledger {self.path} is read-only: charges could not be written")
        self._connection()

    def _check_format(self, connection: sqlite3.Connection) -> None:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != APPLICATION:
            raise LedgerError(f"ledger {self.path} is another program's database")
        if version != SCHEMA:
            raise LedgerError(f"ledger {self.path} has version {version}, this slowscale knows {SCHEMA}: update it")

    def _refreshed(self) -> _State:
        with self._here(), self._errors("read"):
            self._snapshot()
            return self._state

    def _snapshot(self) -> None:
        """Read what is new, as of one moment."""
        with self._transaction("BEGIN") as connection:
            self._read(connection)

    def _read(self, connection: sqlite3.Connection) -> None:
        """Read the entries that were added since, and check their chain."""
        if self._broken is not None:
            raise self._broken
        state = self._state
        rows = connection.execute(
            "SELECT id, payload, hash FROM entries WHERE id >= ? ORDER BY id", (state.id,)
        ).fetchall()
        if state.id and (not rows or rows[0][0] != state.id or rows[0][2] != state.hash):
            raise LedgerError(f"ledger {self.path} was changed from outside: verify it")
        for number, payload, stored in rows[1:] if state.id else rows:
            if number != state.id + 1 or _hash(state.hash, number, payload) != stored:
                raise LedgerError(f"ledger {self.path} was changed from outside at entry {number}: verify it")
            entry = _entry(payload, self._functions)
            _apply(state.account, entry, checked=False)
            state.id, state.hash = number, stored
            state.entries.append(entry)
        if connection.execute("SELECT id, hash FROM head").fetchall() != [(state.id, state.hash)]:
            raise LedgerError(f"ledger {self.path} was changed from outside: its newest entries are gone")

    def _first_caps(self) -> Any:
        return self._state.entries[0]["parsed"] if self._state.entries else {}

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


def _apply(account: Account, entry: Mapping[str, Any], checked: bool = True) -> Callable[[], None]:
    """Carry an entry into the account; return what takes it back."""
    caps = dict(account.caps)
    if entry["kind"] == "created":
        account.caps = dict(entry["parsed"])
    elif entry["kind"] == "cap":
        account.caps = {**account.caps, entry["column"]: entry["parsed"]}
    elif entry["kind"] == "charge":
        (account.charge if checked else account.record)(entry["parsed"])

    def undo() -> None:
        account.caps = caps
        if entry["kind"] == "charge":
            account.forget()

    return undo


def dataset_name(dataset: Any) -> str | None:
    """Return the name of a data set without the blanks around it, or raise."""
    if dataset is None:
        return None
    if not isinstance(dataset, str):
        raise ParameterTypeError(f'dataset must be text such as "cbp-2024", got {type(dataset).__name__}')
    if not dataset.strip():
        raise ParameterError('dataset must be a name such as "cbp-2024", got blank text; leave it out for none')
    return dataset.strip()


def _cap_changes(entries: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], str, Policy | None, Policy]]:
    """Yield the entries that changed a cap, with the column, the cap before and the cap after."""
    caps: dict[str, Policy] = {}
    for entry in entries:
        if entry["kind"] == "created":
            caps = dict(entry["parsed"])
        elif entry["kind"] == "cap":
            yield entry, entry["column"], caps.get(entry["column"]), entry["parsed"]
            caps[entry["column"]] = entry["parsed"]


def _by_name(caps: Mapping[str, Policy]) -> dict[str, Policy]:
    return {folded(name): cap for name, cap in caps.items()}


def _asked(facts: Mapping[str, Any], by: str | None, labels: tuple[Any, ...], kind: str | None) -> dict[str, Any]:
    return {"facts": dict(facts), "by": by, "labels": list(labels), "label_kind": kind}


def _charge_entry(
    facts: Mapping[str, Any], by: str | None, labels: tuple[Any, ...], kind: str | None
) -> tuple[str, dict[str, Any]]:
    """Return the kind and the content of a charge's entry."""
    if not isinstance(facts, Mapping) or "policy" not in facts:
        raise ParameterTypeError('facts must be a mapping with a "policy"')
    if facts["policy"] is None:
        raise ParameterError("a nested function or lambda cannot be written to a ledger: use a module's function")
    return "charge", _asked(facts, by, labels, kind)


def _entry(payload: str, functions: Functions | None) -> dict[str, Any]:
    """Return an entry with its policies as objects, under "parsed"."""
    try:
        entry: dict[str, Any] = json.loads(payload)
        kind = entry["kind"]
        if kind == "created":
            parsed: Any = {name: Policy.from_dict(cap, functions) for name, cap in entry["caps"].items()}
        elif kind == "cap":
            parsed = Policy.from_dict(entry["cap"], functions)
        elif kind == "charge":
            parsed = Charge(
                *read_policies(entry["facts"], functions),
                entry["by"],
                tuple(entry["labels"]),
                entry.get("label_kind"),
                entry["facts"].get("protect"),
            )
        elif kind == "attempt":
            parsed = entry["error"]["type"]
        else:
            raise LedgerError(f"an entry of an unknown kind, {kind!r}: a newer version of slowscale wrote it; update")
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise LedgerError(f"an entry that makes no sense: {type(error).__name__}") from error
    return {**entry, "parsed": parsed}


def _hash(before: str, number: int, payload: str) -> str:
    return hashlib.sha256(f"{before}\n{number}\n{payload}".encode("utf-8", "surrogatepass")).hexdigest()


def _journal_mode(connection: sqlite3.Connection) -> str:
    """Return the journal mode, "delete" if it could be set; it stays "wal" while others have the file open."""
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    if mode == "wal":
        with suppress(sqlite3.OperationalError):
            (mode,) = connection.execute("PRAGMA journal_mode = DELETE").fetchone()
    return str(mode)


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


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
