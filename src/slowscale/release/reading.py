"""Reading a release back from the files that `Release.to_parquet` or `Release.to_csv` wrote."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from slowscale.accounting.record import read_policies
from slowscale.errors import EngineError, ParameterError, ParameterTypeError, SlowscaleError
from slowscale.facts import FORMAT, Facts
from slowscale.mechanisms import Mechanism
from slowscale.release.files import read_csv, read_parquet
from slowscale.release.release import Release


def read_release(path: str | os.PathLike[str], functions: Mapping[str, Callable[..., Any]] | None = None) -> Release:
    """Read a release that `to_parquet` or `to_csv` wrote, with its facts.

    Parameters
    ----------
    path
        The Parquet file, or the CSV file with its JSON file beside it.
    functions
        User-given functions by name ("module.function"), for a release whose mechanisms use any.
    """
    if not isinstance(path, str | os.PathLike):
        raise ParameterTypeError(f"path must be text or os.PathLike, got {type(path).__name__}")
    source = Path(path)
    try:
        table, facts = read_csv(source) if source.name.lower().endswith(".csv") else read_parquet(source)
        if facts["format"] != FORMAT:
            raise EngineError(
                f"{source} has format {facts['format']}, but this version of slowscale reads format {FORMAT}; read it "
                "with the version that wrote it"
            )
        described = facts["policy"]
    except SlowscaleError:
        raise
    except FileNotFoundError as error:
        missing = str(error.filename or source) if source.exists() else str(source)
        beside = "" if missing == str(source) else f", which holds the facts of {source} and must be beside it"
        raise ParameterError(f"path: there is no file {missing}{beside}") from None
    except Exception as error:
        raise EngineError(
            f"{source} is not a release that slowscale wrote; give a .parquet file, or a .csv file with its .csv.json "
            "file beside it, that to_parquet or to_csv wrote"
        ) from error
    if described is None:
        raise EngineError(f"{source} was released with a nested function or lambda, which cannot be read back")
    try:
        known = Facts.from_file(facts)
    except ParameterError as error:
        raise EngineError(f"{source} is damaged: {error}. Use a copy of the files as they were released") from None
    return Release(table, known, *read_policies(facts, functions), _read_mechanisms(known, functions))


def _read_mechanisms(facts: Facts, functions: Mapping[str, Callable[..., Any]] | None) -> dict[str, Mechanism]:
    """Return the mechanism of each column, leaving out those that need a function which is not given."""
    found = {}
    for name, column in facts.columns.items():
        with suppress(ParameterError):
            found[name] = Mechanism.from_dict(column.mechanism or {}, functions)
    return found
