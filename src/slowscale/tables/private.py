"""The DuckDB of this process: private, and set up so that nothing is loaded or left behind by itself."""

import os
import shutil
import tempfile
import weakref
from contextlib import suppress
from typing import Any

import duckdb
import ibis

SETTINGS = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}


def private_duckdb() -> Any:
    """Return a new DuckDB in memory, as an Ibis connection.

    What does not fit in memory is written to a folder that only this user may enter, and which is removed with the
    connection; it is encrypted where DuckDB's extension httpfs, which brings the cipher, is installed.
    """
    folder = tempfile.mkdtemp(prefix="slowscale-")  # mode 0700
    connection = ibis.duckdb.connect(temp_directory=folder, **SETTINGS)
    weakref.finalize(connection, _remove, folder, os.getpid())
    with suppress(duckdb.Error):
        connection.con.execute("LOAD httpfs")
        connection.con.execute("SET temp_file_encryption = true")
    with suppress(duckdb.Error):  # refused in a notebook without ipywidgets
        connection.con.execute("SET enable_progress_bar = false")  # DuckDB would print its bar to a file, too
    # Records are read once; keeping files in memory would let the peak grow with them.
    connection.con.execute("SET enable_external_file_cache = false")
    connection.folder = folder
    connection.is_private = True
    return connection


def _remove(folder: str, pid: int) -> None:
    if os.getpid() == pid:  # not in a forked child, which shares the folder with its parent
        shutil.rmtree(folder, ignore_errors=True)


def quoted(name: str) -> str:
    """Return a column or table name as SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as SQL."""
    return "'" + text.replace("'", "''") + "'"
