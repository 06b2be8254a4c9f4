"""Sums that the curator supplies: the SQL that computes them elsewhere, and the release that takes them as its sums.

The manifest of the SQL is the link between the two: the release writes the SQL of its tables again, and takes only a
file whose manifest belongs to the same SQL.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slowscale.core.errors import ParameterError, ParameterTypeError, located
from slowscale.release.facts import SuppliedFacts

if TYPE_CHECKING:
    from slowscale.data.supplied import SuppliedQuery
    from slowscale.release.bound import BoundRequest, BoundSums, BoundTable

MANIFEST_FORMAT = 1
_AGAIN = "print the SQL and its manifest again, and run it again"


@dataclass(frozen=True)
class SumsSql:
    """The SQL that computes the exact sums of each drawn table of a request; `session.sums_sql` makes it.

    Attributes
    ----------
    tables
        The SQL of each drawn table, with a comment that explains it.
    manifest
        The description of the SQL and of its results, for `SuppliedSums`. Under `groups` of each table you can state
        the number of rows of its result, which is then checked.
    """

    tables: Mapping[str, str]
    manifest: Mapping[str, Any]

    def __str__(self) -> str:
        return "\n\n".join(self.tables.values())


@dataclass(frozen=True)
class SuppliedSums:
    """Exact sums that were computed elsewhere, by the SQL that `session.sums_sql` wrote. CONFIDENTIAL.

    The library checks what the files show: columns, types, labels, counts, and bounds on the sums. That they are the
    exact sums of all records is your word: a release says so.

    Parameters
    ----------
    files
        The Parquet file with the result, or one for each drawn table: {"cells": "sums.parquet"}. A folder of Parquet
        files is one file.
    manifest
        The manifest of the SQL, as `SumsSql.manifest`, or the JSON file that has it.

    Examples
    --------
    >>> import duckdb, pandas as pd, slowscale as ss
    >>> columns = pd.DataFrame({"state": pd.Series(dtype=str), "cattle": pd.Series(dtype="int64")})
    >>> session = ss.Session(columns)  # no record is needed
    >>> sums = ss.Sums({"cattle": ss.Gaussian(sigma=75)}, keys=ss.Keys.cross({"state": ["IA", "TX"]}))
    >>> found = session.sums_sql(sums, "duckdb")
    >>> elsewhere = duckdb.connect()
    >>> _ = elsewhere.execute("CREATE TABLE records AS SELECT 'IA' AS state, 120 AS cattle")
    >>> elsewhere.sql(found.tables["table"]).write_parquet("sums.parquet")
    >>> release = session.release(sums, sums=ss.SuppliedSums("sums.parquet", found.manifest))
    >>> release.facts.supplied["table"].dialect
    'duckdb'
    """

    files: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]]
    manifest: str | os.PathLike[str] | Mapping[str, Any]

    def attached(self, bound: "BoundRequest") -> "BoundRequest":
        """Return a bound request that takes its sums from the files, or raise unless the manifest belongs to it."""
        manifest = self._read_manifest()
        files = self._files(tuple(bound.tables))
        known = manifest["tables"]
        tables: dict[str, BoundTable] = {}
        facts = {}
        for name, table in _tables_of_sums(bound).items():
            query = table.elsewhere(manifest.get("dialect"))
            groups = known.get(name, {}).get("groups")
            if {**known.get(name, {}), "groups": None} != query.manifest:
                raise ParameterError(
                    "manifest",
                    f"does not belong to the table {name!r} of this release: its SQL is another one",
                    code="mismatch",
                    remedy=_AGAIN,
                )
            if groups is not None and (type(groups) is not int or groups < 0):
                raise ParameterError("groups", allowed="a whole number of rows, or null", given=groups)
            tables[name] = replace(table, supplied=Supplied(query, files[name], groups))
            facts[name] = SuppliedFacts(dialect=query.dialect, sql_sha256=query.digest)
        return replace(bound, tables=tables, facts=bound.facts.with_(supplied=facts))

    def _files(self, drawn: tuple[str, ...]) -> Mapping[str, str | os.PathLike[str]]:
        """Return the file of each drawn table."""
        named = self.files if isinstance(self.files, Mapping) else None
        if named is None and len(drawn) == 1:
            assert not isinstance(self.files, Mapping)
            return {drawn[0]: self.files}
        if named is None or set(named) != set(drawn):
            raise ParameterError(
                "files", allowed=f"one file for each of the drawn tables {', '.join(drawn)}", given=self.files
            )
        return named

    def _read_manifest(self) -> Mapping[str, Any]:
        found: Any = self.manifest
        if isinstance(found, str | os.PathLike):
            try:
                found = json.loads(Path(found).read_text(encoding="utf-8"))
            except OSError as error:
                problem = f"cannot be read ({error.strerror or error})"
                raise ParameterError(self.manifest, problem, code="unreadable") from None
            except ValueError:
                found = None
        if not isinstance(found, Mapping) or found.get("format") != MANIFEST_FORMAT:
            allowed = f"a manifest of format {MANIFEST_FORMAT}, as `slowscale sql --manifest` writes it"
            raise ParameterError("manifest", allowed=allowed, code="damaged", remedy=_AGAIN)
        tables = found.get("tables")
        if not isinstance(tables, Mapping) or not all(isinstance(one, Mapping) for one in tables.values()):
            raise ParameterError("manifest", "has no tables", code="damaged", remedy=_AGAIN)
        return found


@dataclass(frozen=True)
class Supplied:
    """The sums of a drawn table in a file."""

    query: "SuppliedQuery"
    file: str | os.PathLike[str]
    groups: int | None


def _tables_of_sums(bound: "BoundRequest") -> "dict[str, BoundSums]":
    """Return the drawn tables, or raise if one has quantiles."""
    from slowscale.release.bound import BoundSums

    found = {}
    for name, table in bound.tables.items():
        with located("tables", name):
            if not isinstance(table, BoundSums):
                raise ParameterError(
                    f"table {name!r}",
                    "has quantiles, whose ranks cannot be supplied",
                    code="unsupported",
                    remedy="release quantiles from the records, in another plan",
                )
            found[name] = table
    return found


def described_sql(bound: "BoundRequest", dialect: str) -> SumsSql:
    """Return the SQL of each drawn table, and the manifest."""
    from slowscale import __version__

    found = {name: table.elsewhere(dialect) for name, table in _tables_of_sums(bound).items()}
    manifest = {
        "format": MANIFEST_FORMAT,
        "slowscale": __version__,
        "dialect": next(iter(found.values())).dialect,
        "tables": {name: query.manifest for name, query in found.items()},
    }
    return SumsSql({name: query.text(name) for name, query in found.items()}, manifest)


def check_supplied(sums: Any) -> SuppliedSums:
    """Raise unless sums are supplied sums."""
    if not isinstance(sums, SuppliedSums):
        raise ParameterTypeError("sums", allowed="ss.SuppliedSums(files, manifest)", given=sums)
    return sums
