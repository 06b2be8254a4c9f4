"""A progress bar for long scans, in a terminal only."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import ibis.expr.types as ir
import pyarrow as pa

from slowscale.tables.engines import fetch, locked

LONG_SCAN = 0.7  # seconds after which a scan counts as long


def run(query: ir.Table, label: str) -> pa.Table:
    """Run a query with a progress bar, and return its rows."""
    with query_progress(query.get_backend(), label):
        return fetch(query)


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
    try:
        for name, value in settings.items():
            _set(backend, name, value)
        yield
    finally:
        for name, value in before.items():
            _set(backend, name, value)


def _set(backend: Any, name: str, value: bool) -> None:
    with suppress(Exception):  # DuckDB refuses in a notebook without ipywidgets: then there is no bar
        backend.con.execute(f"SET {name} = {value}")


@contextmanager
def progress_bar(label: str, share: Callable[[], float | None]) -> Iterator[None]:
    """Show a bar on a terminal while the block runs, if it takes longer than `LONG_SCAN`.

    Parameters
    ----------
    label
        The description beside the bar.
    share
        Returns the share that is done, from 0 to 1, or None if it is not known.
    """
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(label, share, done), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _watch(label: str, share: Callable[[], float | None], done: threading.Event) -> None:
    if done.wait(LONG_SCAN):
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        while not done.wait(0.1):
            known = share()
            if known is not None:
                bar.update(task, total=1.0, completed=known)


def _share_done(backend: Any) -> Callable[[], float | None]:
    """Return a function that reports the share of the running query that is done, if the engine knows it."""
    if backend.name != "duckdb":
        return lambda: None

    def share() -> float | None:
        percent = backend.con.query_progress()
        return percent / 100 if 0 <= percent <= 100 else None

    return share
