"""Reading a release back from the files that `Release.to_parquet` or `Release.to_csv` wrote."""

import json
import os
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from slowscale.accounting import RecordPolicy
from slowscale.accounting.record import read_policies
from slowscale.core.errors import EngineError, ParameterError, ParameterTypeError, SlowscaleError
from slowscale.mechanisms import Mechanism, TransformationMechanism
from slowscale.release.facts import FORMAT, Facts, TableFacts
from slowscale.release.files import FILE_ENTRIES, METADATA, read_csv, read_parquet
from slowscale.release.quantiles import ReleasedQuantiles
from slowscale.release.ratios import RATIO_SUFFIXES
from slowscale.release.release import Release
from slowscale.release.table import ReleasedSums, ReleasedTable, released_by


def read_release(path: str | os.PathLike[str]) -> Release:
    """Read a release that `to_parquet` or `to_csv` wrote, with its facts.

    Parameters
    ----------
    path
        A Parquet file, a CSV file with its JSON file beside it, or a folder with the files of all tables of a release.
    """
    if not isinstance(path, str | os.PathLike):
        raise ParameterTypeError("path", allowed="text or os.PathLike", given=type(path))
    place = Path(path)
    if not place.is_dir():
        return _release(place, _read_table(place))
    paths = {file.stem: file for kind in ("csv", "parquet") for file in sorted(place.glob(f"*.{kind}"))}
    if not paths:
        raise ParameterError("path", allowed=f"a folder with Parquet or CSV files of a release, but {place} has none")
    first = _read_table(next(iter(paths.values())))
    missing = [name for name in first.whole.tables if name not in paths]
    if missing:
        raise EngineError(place, f"must have a file for each table of the release, but {', '.join(missing)} is missing")
    tables = {name: _read_table(paths[name]) for name in first.whole.tables}
    for name in tables:  # the other format of a table may be left from another release
        other = paths[name].with_suffix(".csv")
        if Path(f"{other}.json").exists() and read_file_facts(other).id != first.whole.id:
            raise EngineError(
                place, f"has files of two releases, {paths[name]} and {other}", remedy="remove those of one"
            )
    for name, table in tables.items():
        if table.whole.id != first.whole.id or table.name != name:
            raise EngineError(
                f"{paths[name]}",
                f"is not the table {name!r} of the release {first.whole.id}",
                remedy="use the files that one call of to_parquet or to_csv wrote",
            )
    return _release(place, *tables.values())


def _release(path: Path, *tables: ReleasedTable) -> Release:
    whole: Facts = tables[0].whole.with_(table=None)
    policy, pure = _policies(path, whole.policy, whole.pure_policy)
    return Release.of({table.name: table for table in tables}, whole, policy, pure)


def _policies(path: Path, policy: object, pure: object) -> tuple[RecordPolicy, RecordPolicy | None]:
    try:
        return read_policies({"policy": policy, "pure_policy": pure})
    except SlowscaleError:
        raise
    except Exception as error:  # what a file holds can be anything
        raise _damaged(path, f"its policy cannot be read ({type(error).__name__})") from error


def _damaged(path: Path, problem: object) -> EngineError:
    return EngineError(path, f"is damaged: {problem}. Use a copy of the files as they were released")


def _read_table(source: Path) -> ReleasedTable:
    """Return the table in a file, with the facts of its release."""
    try:
        table, facts = read_csv(source) if source.name.lower().endswith(".csv") else read_parquet(source)
        if facts["format"] != FORMAT:
            raise EngineError(
                source,
                f"has format {facts['format']!r:.60}, but this version of slowscale reads format {FORMAT}",
                remedy="read it with the version that wrote it",
            )
    except SlowscaleError:
        raise
    except FileNotFoundError as error:
        missing = str(error.filename or source) if source.exists() else str(source)
        beside = "" if missing == str(source) else f", which holds the facts of {source} and must be beside it"
        raise ParameterError("path: there", f"is no file {missing}{beside}") from None
    except Exception as error:
        raise EngineError(
            source,
            "is not a release that slowscale wrote",
            remedy=(
                "give a .parquet file, or a .csv file with its .csv.json file beside it, that to_parquet or to_csv "
                "wrote"
            ),
        ) from error
    try:
        whole = Facts.from_dict(facts)
        if whole.table not in whole.tables:
            raise ParameterError("table: it", allowed=f"one of {', '.join(whole.tables)}")
        if whole.policy is None:
            raise EngineError(f"{source} was released with a user-given function, which cannot be read back")
        described = whole.tables[whole.table]
        _check_table(table, described)
    except ParameterError as error:
        raise _damaged(source, error) from None
    cells = described if described.policy is not None else whole
    policy, pure = _policies(source, cells.policy, cells.pure_policy)
    if described.quantiles is not None:
        return ReleasedQuantiles(whole.table, table, whole, policy, pure)
    return ReleasedSums(whole.table, table, whole, policy, pure, _read_mechanisms(described))


def read_file_facts(path: Path) -> Facts:
    """Return the facts of a release's file, also of a CSV file that does not belong to them.

    Parameters
    ----------
    path
        The Parquet file, or the CSV file with its JSON file beside it.
    """
    try:
        if path.name.lower().endswith(".csv"):
            found = json.loads(Path(f"{path}.json").read_text(encoding="utf-8"))
            found = {name: value for name, value in found.items() if name not in FILE_ENTRIES}
        else:
            found = json.loads(pa.parquet.read_schema(path).metadata[METADATA])
        return Facts.from_dict(found)
    except Exception:  # the same file gives a clear error when all of it is read
        return _read_table(path).whole


def _check_table(table: pa.Table, facts: TableFacts) -> None:
    """Raise unless a table has the columns that its facts describe, with numbers in them, and no others."""
    labels = list(facts.by)
    numbers = [f"{name}{ending}" for name in facts.columns for ending in ("", "_se", "_low", "_high")]
    numbers += [f"{name}{ending}" for name in facts.ratios for ending in RATIO_SUFFIXES]
    if facts.quantiles is not None:
        labels, numbers = ["quantile"], ["at", "size"]
    if facts.rollup is not None:
        numbers.append(facts.rollup.number)
    else:
        numbers += [
            f"{name}_transformed"
            for name, column in facts.columns.items()
            if issubclass(released_by(column) or object, TransformationMechanism)
        ]
    for name in [*labels, *numbers]:
        if table.column_names.count(name) != 1:
            raise ParameterError(f"its facts describe a column {name!r:.60}, which its table must have once")
    for name in table.column_names:
        if name not in labels and name not in numbers:
            raise ParameterError("its table", f"has a column {name!r:.60}, which its facts do not describe")
    for name in numbers:
        kind = table.schema.field(name).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
            raise ParameterError(f"column {name!r:.60}", "must have numbers", given=kind)


def _read_mechanisms(facts: TableFacts) -> dict[str, Mechanism]:
    """Return the mechanism of each column, leaving out those with a user-given function."""
    found = {}
    for name, column in facts.columns.items():
        with suppress(ParameterError):
            found[name] = Mechanism.from_dict(column.mechanism or {})
    return found
