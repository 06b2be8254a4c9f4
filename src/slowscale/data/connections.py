"""Connections to engines: the private DuckDB of this process, locks, the errors of engines, and progress bars."""

import glob
import itertools
import os
import shutil
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import util
from pathlib import Path
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import duckdb
import ibis

from slowscale.core.errors import DataError, EngineError, ParameterError, ParameterTypeError, install_hint
from slowscale.core.markup import progress_bar

T = TypeVar("T")

SMALL_DATA = 1 << 26  # bytes
SETTINGS = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}


def private_duckdb(files: Sequence[str] = (), database: str | None = None, size: int = 0) -> Any:
    """Return a new DuckDB in memory, as an Ibis connection.

    It can read only the given files and a DuckDB file, which it attaches read-only under the name `data`; so a view in
    that file cannot read others. Data that does not fit in memory is written, encrypted, to a folder that only this
    user can access and that is removed with the connection. Without DuckDB's extension httpfs, which contains the
    cipher, nothing is written, and a query that needs more memory fails (`engine_errors`). Loading it takes a tenth of
    a second, so that it is left out for small files and frames; `size` is that of frames, in bytes.
    """
    folder = tempfile.mkdtemp(prefix="slowscale-")  # mode 0700
    connection = ibis.duckdb.connect(temp_directory=folder, **SETTINGS)
    weakref.finalize(connection, _remove, folder, os.getpid())
    size += sum(os.path.getsize(file) for file in (*files, *([] if database is None else [database])))
    connection.may_spill = size > SMALL_DATA and _load_cipher(connection.con)
    connection.con.execute("SET temp_file_encryption = true" if connection.may_spill else "SET temp_directory = ''")
    with suppress(duckdb.Error):  # refused in a notebook without ipywidgets
        connection.con.execute(
            "SET enable_progress_bar = false"
        )  # DuckDB would print its bar even if the output is a file
    # Records are read once, so caching files would only increase the use of memory.
    connection.con.execute("SET enable_external_file_cache = false")
    if database is not None:  # read-only; queries then do not use the macros of the file
        connection.con.execute(f"ATTACH {literal(database)} AS data (TYPE duckdb, READ_ONLY)")
    named = [name for file in files for name in (file, glob.escape(file))]
    connection.con.execute(f"SET allowed_directories = [{literal(folder)}]")  # for files that are converted first
    connection.con.execute(f"SET allowed_paths = [{', '.join(map(literal, named))}]")
    connection.con.execute("SET enable_external_access = false")  # cannot be undone
    # RESET memory_limit changes what DuckDB says, but not what it does.
    (connection.usual_memory,) = connection.con.execute("SELECT current_setting('memory_limit')").fetchone()
    connection.folder = folder
    connection.is_private = True
    return connection


def _load_cipher(connection: Any) -> bool:
    """Load the extension httpfs of this version, from DuckDB's folder or its package; return whether there is one."""
    extensions = ["httpfs"]
    if (package := util.find_spec("duckdb_extension_httpfs")) is not None and package.origin is not None:
        version = Path(package.origin).parent / "extensions" / f"v{duckdb.__version__}"
        extensions.append(literal(str(version / "httpfs.duckdb_extension")))
    for extension in extensions:
        with suppress(duckdb.Error):
            connection.execute(f"LOAD {extension}")
            return True
    return False


def _remove(folder: str, pid: int) -> None:
    if os.getpid() == pid:  # not in a forked child, which shares the folder with its parent
        shutil.rmtree(folder, ignore_errors=True)


def quoted(name: str) -> str:
    """Return the name of a column or table, quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as a SQL literal."""
    return "'" + text.replace("'", "''") + "'"


_locks: "WeakKeyDictionary[Any, threading.RLock]" = WeakKeyDictionary()
_locks_lock = threading.Lock()


@contextmanager
def locked(backend: Any) -> Iterator[None]:
    """Hold the lock of a connection: DuckDB hangs if two threads use one connection at the same time."""
    with _locks_lock:
        lock = _locks.setdefault(backend, threading.RLock())
    with lock:
        yield


@contextmanager
def engine_errors(subject: str, problem: str = "could not be read", quote: bool = True) -> Iterator[None]:
    """Turn the errors of an engine into an `EngineError`.

    The message of the engine may contain a confidential value once records have been read. Use `quote=False` from then
    on: the message is then available as `__cause__` only.
    """
    try:
        yield
    except (ParameterError, ParameterTypeError, DataError, EngineError, KeyboardInterrupt, MemoryError):
        raise
    except ImportError as error:
        raise EngineError(
            subject, f"{problem}: {first_line(error)}", code="not-installed", remedy=install_hint("postgres", "spark")
        ) from error
    except Exception as error:
        if is_interrupt(error):
            raise KeyboardInterrupt from error
        if type(error).__name__ == "OutOfMemoryException":
            raise EngineError(
                subject,
                f"{problem}: it needs more memory than there is, and nothing is written to disk in clear",
                code="memory",
                remedy=f"{install_hint('spill')}, with which DuckDB encrypts what it writes to disk (the package "
                f"duckdb-extension-httpfs must have the version of duckdb, {duckdb.__version__}), or use a machine "
                "with more memory",
            ) from None
        why = (
            first_line(error)
            if quote
            else f"{type(error).__name__}; the message of the engine is not shown, because it may quote records"
        )
        raise EngineError(subject, f"{problem}: {why}", code="engine") from (error if quote else None)


def is_interrupt(error: Exception) -> bool:
    """Return whether an error of DuckDB means Ctrl-C."""
    named = type(error).__name__ == "InterruptException" or str(error) == "Query interrupted"
    return named or isinstance(error.__cause__, KeyboardInterrupt)


def first_line(error: Exception) -> str:
    """Return the first line of the message of an error, or its type if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


UNREACHABLE = "unreachable"  # the code of the error of a server that does not answer
PATIENCE = 60.0  # seconds without an answer after which a server counts as lost
HEARTBEAT = 5.0  # seconds between questions whether a server still answers


def answered(ask: Callable[[], T], alive: Callable[[], object], title: str) -> T:
    """Return what a server answers to a question that may take hours; raise if it answers nothing any more.

    Without a deadline, a client of Spark Connect waits for a lost server for ten minutes, and for one that hangs for
    ever. `alive` asks the server for something that takes no time.
    """
    asked, heard = _Question(ask), time.monotonic()
    beat: _Question[object] | None = None
    while not asked.done.wait(HEARTBEAT if beat is None else HEARTBEAT / 10):
        if beat is None:
            beat = _Question(alive)
        elif beat.done.is_set():
            heard, beat = (heard if beat.error else time.monotonic()), None
        if time.monotonic() - heard > PATIENCE:
            raise EngineError(
                title,
                f"has not answered for {PATIENCE:.0f} seconds",
                code=UNREACHABLE,
                remedy="check the server and the network, and open a new session",
            )
    if asked.error is not None:
        raise asked.error
    return asked.result


def ask_spark(session: Any, ask: Callable[[], T]) -> T:
    """Return what a Spark session answers. If it is one of Spark Connect, a lost server is an error."""
    if not is_connect(session):
        return ask()
    tag = fresh_name(f"slowscale-{os.getpid()}")

    def tagged() -> T:
        session.addTag(tag)  # for this thread
        return ask()

    try:
        return answered(tagged, lambda: session.conf.get("spark.sql.session.timeZone"), "Spark Connect")
    except KeyboardInterrupt:
        _Question(lambda: session.interruptTag(tag))  # without waiting for an answer
        raise


def is_connect(session: Any) -> bool:
    """Return whether a Spark session is one of Spark Connect."""
    return ".connect." in type(session).__module__


class _Question(Generic[T]):
    """A call in a thread of its own, which does not keep the process alive."""

    result: T

    def __init__(self, ask: Callable[[], T]) -> None:
        self.done, self.error = threading.Event(), None
        threading.Thread(target=self._run, args=(ask,), daemon=True).start()

    error: BaseException | None

    def _run(self, ask: Callable[[], T]) -> None:
        try:
            self.result = ask()
        except BaseException as error:
            self.error = error
        finally:
            self.done.set()


_names = itertools.count()


def fresh_name(prefix: str) -> str:
    """Return a new table name that is unique in this process."""
    return f"{prefix}_{next(_names)}"


@contextmanager
def query_progress(backend: Any, label: str) -> Iterator[None]:
    """Show a progress bar for the queries that the block runs on an engine."""
    with locked(backend), _own_bar_hidden(backend), progress_bar(label, _share_done(backend)):
        yield


@contextmanager
def _own_bar_hidden(backend: Any) -> Iterator[None]:
    """Make DuckDB report its progress without printing its own bar, which would even be printed to a file."""
    if backend.name != "duckdb":
        yield
        return
    settings = {"enable_progress_bar_print": False, "enable_progress_bar": sys.stderr.isatty()}
    asked = ", ".join(f"current_setting('{name}')" for name in settings)
    before = dict(zip(settings, backend.con.execute(f"SELECT {asked}").fetchone(), strict=True))
    changed = [name for name in settings if before[name] != settings[name]]
    try:
        for name in changed:
            _set(backend, name, settings[name])
        yield
    finally:
        for name in changed:
            _set(backend, name, before[name])


def _set(backend: Any, name: str, value: bool) -> None:
    with suppress(Exception):  # DuckDB refuses in a notebook without ipywidgets: then there is no bar
        backend.con.execute(f"SET {name} = {value}")


def _share_done(backend: Any) -> Callable[[], float | None]:
    """Return a function that reports the share of the running query that is done, if the engine knows it."""
    if backend.name != "duckdb":
        return lambda: None

    def share() -> float | None:
        percent = backend.con.query_progress()
        return percent / 100 if 0 <= percent <= 100 else None

    return share
