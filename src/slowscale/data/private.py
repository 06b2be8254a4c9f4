"""The private DuckDB of this process, which loads no extensions, reads no other files and leaves none behind."""

import glob
import os
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import duckdb
import ibis

SETTINGS = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}


def private_duckdb(files: Sequence[str] = (), database: str | None = None) -> Any:
    """Return a new DuckDB in memory, as an Ibis connection.

    It can read only the given files and a DuckDB file, which it attaches read-only under the name `data`; so a view in
    that file cannot read others. Data that does not fit in memory is written to a folder that only this user can access
    and that is removed with the connection. It is encrypted if DuckDB's extension httpfs, which contains the cipher, is
    installed.
    """
    folder = tempfile.mkdtemp(prefix="slowscale-")  # mode 0700
    connection = ibis.duckdb.connect(temp_directory=folder, **SETTINGS)
    weakref.finalize(connection, _remove, folder, os.getpid())
    with suppress(duckdb.Error):
        connection.con.execute("LOAD httpfs")
        connection.con.execute("SET temp_file_encryption = true")
    with suppress(duckdb.Error):  # refused in a notebook without ipywidgets
        connection.con.execute(
            "SET enable_progress_bar = false"
        )  # DuckDB would print its bar even if the output is a file
    # Records are read once, so caching files would only increase the use of memory.
    connection.con.execute("SET enable_external_file_cache = false")
    if database is not None:  # read-only; queries then do not use the macros of the file
        connection.con.execute(f"ATTACH {literal(database)} AS data (TYPE duckdb, READ_ONLY)")
    named = [name for file in files for name in (file, glob.escape(file))]
    connection.con.execute(f"SET allowed_paths = [{', '.join(map(literal, named))}]")
    connection.con.execute("SET enable_external_access = false")  # cannot be undone
    connection.folder = folder
    connection.is_private = True
    return connection


def _remove(folder: str, pid: int) -> None:
    if os.getpid() == pid:  # not in a forked child, which shares the folder with its parent
        shutil.rmtree(folder, ignore_errors=True)


def quoted(name: str) -> str:
    """Return the name of a column or table, quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as a SQL literal."""
    return "'" + text.replace("'", "''") + "'"
