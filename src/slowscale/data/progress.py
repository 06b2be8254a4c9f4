"""The progress of queries, as far as the engine reports it."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import ibis.expr.types as ir
import pyarrow as pa

from slowscale.core.markup import progress_bar
from slowscale.data.engines import fetch, locked


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
