"""Plans to start from: an example with most options, and a plan for some data in which the choices are left open."""

import os
import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path, PurePath
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from slowscale.errors import ParameterError
from slowscale.plan.inputs import DATABASE_FILES
from slowscale.plan.toml import toml_key, toml_value

if TYPE_CHECKING:
    from slowscale.tables.guessing import Guess

EXAMPLE = files("slowscale.plan").joinpath("example.toml").read_text(encoding="utf-8")
TEMPLATE = files("slowscale.plan").joinpath("template.toml").read_text(encoding="utf-8")
DATA_TABLE = "# The table [data] goes here."  # the line of the template that is replaced
COMMENT_COLUMN = 38  # where comments start, in the template too
OPTIONAL_FIELDS = ('# where = "emp > 0"                    # evaluated row by row', '# protect = "firm_id"')
# Endings that are left out where a file's name becomes the name of a data set.
FILE_ENDINGS = (
    *(".parquet", ".csv", ".tsv", ".txt", ".gz", ".bz2", ".xz", ".zst"),
    *(".xlsx", ".xls", ".dta", ".sav", ".zsav", ".por", ".sas7bdat", ".xpt"),
)
# Options of a PostgreSQL address that hold no secret.
PUBLIC_OPTIONS = ("sslmode", "sslrootcert", "connect_timeout", "application_name", "target_session_attrs")


def plan_address(address: str, folder: Path) -> tuple[str, bool]:
    """Return a database address as a plan in a folder should hold it, and whether a secret was left out of it.

    The password is left out, and so are options that could hold a secret. The path of a database file is made relative
    to the folder.
    """
    from slowscale.tables.sources import Address

    place, _, table = address.rpartition("#")
    parts = Address.of(place)
    if address.lower().startswith(DATABASE_FILES):
        return f"{parts.scheme}://{os.path.relpath(parts.place, folder)}#{table}", False
    if str(parts).endswith("…"):  # something in it could be a password in the wrong place
        raise ParameterError(
            "data must be an address such as postgresql://user@host/database#table; write other characters in it as "
            "%40 for @ and %23 for #"
        )
    options = {name: value for name, value in parts.options.items() if name in PUBLIC_OPTIONS}
    owner = f"{quote(parts.user, safe='')}@" if parts.user else ""
    query = f"?{urlencode(options)}" if options else ""
    return f"{parts.scheme}://{owner}{parts.place}{query}#{table}", bool(parts.password) or options != parts.options


def starting_plan(
    place: str, columns: Mapping[str, str], guess: "Guess | None" = None, has_password: bool = False
) -> str:
    """Return the text of a plan for some data, in which what to publish is still to be chosen.

    Parameters
    ----------
    place
        The path of the data, relative to the plan, or the address of a database table.
    columns
        The columns, with the types that they have or that are proposed for them.
    guess
        For files: the proposed types and CSV format.
    has_password
        Whether a password was left out of the address.
    """
    lines = ["[data]", *_source_lines(place, has_password)]
    if guess is not None:
        lines += [] if not guess.csv else [f"csv = {toml_value(guess.csv)}"]
        # Notes that are not about a column are about the files as a whole.
        lines += [f"# {name}: {note}" for name, note in guess.notes.items() if name not in columns]
    lines += [*OPTIONAL_FIELDS, "", *_type_lines(columns, guess)]
    return TEMPLATE.replace(DATA_TABLE, "\n".join(lines), 1)


def _source_lines(place: str, has_password: bool) -> Iterator[str]:
    """Yield the fields that say which records the plan is about."""
    yield f"{'database' if '://' in place else 'path'} = {toml_value(place)}"
    yield _with_comment(
        f"name = {toml_value(_dataset_name(place))}",
        "the name of the data set: the ledger accepts only data of this name",
    )
    if has_password:
        yield "# the password is not written here: set PGPASSWORD, or add a line to ~/.pgpass"


def _type_lines(columns: Mapping[str, str], guess: "Guess | None") -> Iterator[str]:
    """Yield one line per column with its type, as a comment where the data has the type already."""
    proposed = {} if guess is None else guess.types
    notes = {} if guess is None else guess.notes
    if proposed:
        yield "# These types are proposed from the records, which are confidential. Read and correct them before you"
        yield "# use or share this file."
        yield "[data.types]"
    elif guess is not None:
        yield "# To declare types, remove the # from the next line and from the lines of their columns."
        yield "# [data.types]"
    else:
        yield "# The columns of the table have these types:"
    for name, dtype in columns.items():
        line = f"{toml_key(name)} = {toml_value(dtype)}"
        if name not in proposed:
            # A timestamp of a file can only be kept as it is, or be converted with derive.
            line = f"# {toml_key(name)} is a {dtype}" if dtype.startswith("timestamp") else f"# {line}"
        yield _with_comment(line, notes[name]) if name in notes else line


def _with_comment(line: str, comment: str) -> str:
    return f"{line:<{COMMENT_COLUMN}} # {comment}"


def _dataset_name(place: str) -> str:
    """Return a name for the data set at a path or an address: that of the file or the table."""
    if "://" in place:
        name = place.rpartition("#")[2]
    else:
        name = PurePath(place).name
        while PurePath(name).suffix.lower() in FILE_ENDINGS:
            name = PurePath(name).stem
    return re.sub(r"[*?\[\]]+", "", name).strip(" -_.") or "data"
