"""Sets of tables: what to publish in one release, as a value that is built first and carried out later.

A table of a set is *drawn*, with noise of its own, or *derived*: its numbers are sums of published cells of another
table, so that it costs nothing and adds up with that table exactly. The losses of a record by the drawn tables add.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from slowscale.errors import ParameterError, ParameterTypeError
from slowscale.files import PLAIN_NAME
from slowscale.hierarchies import Hierarchy
from slowscale.parameters import lazy
from slowscale.query import Query, _equal


@dataclass(frozen=True)
class Derived:
    """A table whose numbers are sums of the published cells of another table. It adds nothing to any loss.

    Parameters
    ----------
    of
        The name of the table whose cells are added up.
    by
        The key columns to keep, or levels of a hierarchy. None of them: the total.

    >>> Derived("cells", by=["state"])
    Derived(of='cells', by=('state',))
    """

    of: str
    by: str | Sequence[str] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.of, str) or not self.of:
            raise ParameterTypeError(f"of must be the name of a table, got {self.of!r:.60}")
        by = (self.by,) if isinstance(self.by, str) else self.by
        if not isinstance(by, list | tuple) or not all(isinstance(name, str) and name for name in by):
            raise ParameterTypeError(f"by must be a column or a list of columns, got {self.by!r:.60}")
        if len(set(by)) < len(by):
            raise ParameterError(f"by must name each column once, got {', '.join(by)}")
        object.__setattr__(self, "by", tuple(by))


@dataclass(frozen=True)
class TableSet:
    """Several tables that are published together: each is drawn (`ss.Query`) or derived from another (`ss.Derived`).

    A set cannot be changed. It can be compared, but not hashed.

    Parameters
    ----------
    tables
        The tables by name. Names consist of letters, digits, _ and -, because files are named by them.
    hierarchies
        Hierarchies of key columns, such as county → state. Their levels can be used in `Derived.by`.

    Examples
    --------
    >>> import slowscale as ss
    >>> keys = ss.Keys.cross({"state": ["IA", "TX"], "naics": ["11", "31", "44"]})
    >>> tables = ss.TableSet({
    ...     "cells": ss.Query({"emp": ss.ExponentialPolylog.calibrate(std=75)}, keys=keys),
    ...     "states": ss.Derived("cells", by=["state"]),
    ...     "nation": ss.Derived("states"),
    ... })
    >>> list(tables.drawn), list(tables.derived), tables.source("nation")
    (['cells'], ['states', 'nation'], 'cells')
    """

    tables: Mapping[str, Query | Derived]
    hierarchies: Sequence[Hierarchy] = ()

    def __post_init__(self) -> None:
        tables = _checked_tables(self.tables)
        hierarchies = _checked_hierarchies(self.hierarchies)
        object.__setattr__(self, "tables", MappingProxyType(tables))
        object.__setattr__(self, "hierarchies", hierarchies)
        if not self.drawn:
            raise ParameterError("tables must have at least one drawn table, an ss.Query: a derived table has no data")
        for name in self.derived:
            self._check_derived(name)
        _check_partitions(self.drawn)
        _check_derived_columns(self.drawn)

    def __reduce__(self) -> Any:
        return type(self), (dict(self.tables), self.hierarchies)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables)

    def __len__(self) -> int:
        return len(self.tables)

    @lazy
    def drawn(self) -> Mapping[str, Query]:
        """The tables with noise of their own."""
        return {name: table for name, table in self.tables.items() if isinstance(table, Query)}

    @lazy
    def derived(self) -> Mapping[str, Derived]:
        """The tables that are sums of cells of others."""
        return {name: table for name, table in self.tables.items() if isinstance(table, Derived)}

    def source(self, name: str) -> str:
        """Return the drawn table whose cells a table consists of: its own name, if it is drawn."""
        seen = [name]
        while isinstance(table := self.tables[seen[-1]], Derived):
            if table.of not in self.tables:
                raise ParameterError(
                    f"tables[{seen[-1]!r}] is derived from {table.of!r}, which is not a table of the set; the tables "
                    f"are {', '.join(self.tables)}"
                )
            if table.of in seen:
                raise ParameterError(
                    f"tables must be derived from a drawn table in the end, but {' from '.join([*seen, table.of])}: "
                    "draw one of them with an ss.Query"
                )
            seen.append(table.of)
        return seen[-1]

    def by(self, name: str) -> tuple[str, ...]:
        """Return the key columns of a table, or levels of a hierarchy; empty for a total."""
        table = self.tables[name]
        if isinstance(table, Derived):
            return tuple(table.by)
        return () if table.keys is None else table.keys.columns

    def used_hierarchies(self, name: str) -> tuple[Hierarchy, ...]:
        """Return the hierarchies whose levels a table is published by."""
        return tuple(found for found in self.hierarchies if set(found.levels) & set(self.by(name)))

    def _check_derived(self, name: str) -> None:
        """Raise unless a derived table can be computed from the table that it is derived from."""
        table, source = self.derived[name], self.source(name)
        if self.drawn[source].keys is None:
            raise ParameterError(
                f"tables[{name!r}] cannot be derived from {source!r}, which is a total over all records and has no "
                "cells; give that table keys"
            )
        above = self.by(table.of)
        allowed = [*above, *self.levels_above(table.of)]
        wrong = [column for column in table.by if column not in allowed]
        if wrong:
            raise ParameterError(
                f"tables[{name!r}]: by names {', '.join(map(repr, wrong))}, but {table.of!r} can be added up by "
                f"{', '.join(allowed) or 'nothing: it is a total'}; name key columns of that table, or give the set a "
                "hierarchy with such a level"
            )
        if set(table.by) == set(above):
            raise ParameterError(
                f"tables[{name!r}] would be a copy of {table.of!r}, by the same columns; leave out at least one of "
                f"{', '.join(above)}"
                if above
                else f"tables[{name!r}] would be a copy of {table.of!r}, which is a total already; remove it"
            )

    def levels_above(self, name: str) -> list[str]:
        """Return the levels of hierarchies that follow from the key columns of a table."""
        by, found = set(self.by(name)), []
        for hierarchy in self.hierarchies:
            here = [column for column in (hierarchy.column, *hierarchy.levels) if column in by]
            found += [
                level
                for level in hierarchy.levels
                if level not in by and any(_determines(hierarchy, column, level) for column in here)
            ]
        return found


def _determines(hierarchy: Hierarchy, column: str, level: str) -> bool:
    """Whether the label of a level follows from that of the hierarchy's column, or of another level."""
    if column == hierarchy.column:
        return True
    below, above = hierarchy.levels[column], hierarchy.levels[level]
    if isinstance(below, int) and isinstance(above, int):
        return above <= below  # numbers of first digits
    names = list(hierarchy.levels)
    return names.index(column) < names.index(level)  # levels are in ascending order, each within the next


def _checked_tables(tables: Any) -> dict[str, Query | Derived]:
    if not isinstance(tables, Mapping) or not tables:
        raise ParameterTypeError(
            'tables must be a mapping of names to tables, such as {"cells": ss.Query(…), "nation": '
            f'ss.Derived("cells")}}, got {tables!r:.60}'
        )
    names: dict[str, str] = {}
    for name, table in tables.items():
        if not isinstance(name, str) or PLAIN_NAME.fullmatch(name) is None:
            raise ParameterError(
                f"tables must have names of letters, digits, _ and -, which files can have; got {name!r:.60}"
            )
        if name.lower() in names:
            raise ParameterError(
                f"tables has the names {names[name.lower()]!r} and {name!r}, which some systems take for one file; "
                "rename one of them"
            )
        names[name.lower()] = name
        if not isinstance(table, Query | Derived):
            raise ParameterTypeError(
                f"tables[{name!r}] must be an ss.Query, which is drawn, or an ss.Derived; got {type(table).__name__}"
            )
    return dict(tables)


def _checked_hierarchies(hierarchies: Any) -> tuple[Hierarchy, ...]:
    given = (hierarchies,) if isinstance(hierarchies, Hierarchy) else hierarchies
    if not isinstance(given, list | tuple) or not all(isinstance(one, Hierarchy) for one in given):
        raise ParameterTypeError(f"hierarchies must be a list of ss.Hierarchy, got {hierarchies!r:.60}")
    levels = [level for one in given for level in one.levels]
    taken = {one.column for one in given}
    for i, level in enumerate(levels):
        if level in levels[:i] or level in taken:
            raise ParameterError(
                f"hierarchies must have levels with different names, which are not their columns; got {level!r} twice"
            )
    return tuple(given)


def _check_partitions(drawn: Mapping[str, Query]) -> None:
    """Raise unless all drawn tables are about the same part of the records: the set has one charge."""
    (first, query), *others = drawn.items()
    for name, other in others:
        if (_part(query)) != _part(other):
            raise ParameterError(
                f"partition must be the same in all drawn tables, with the same labels, because the set is charged as "
                f"a whole: {first!r} has {query.partition!r}, {name!r} has {other.partition!r}. Leave it out, or "
                "release sets for disjoint parts one after the other"
            )


def _part(query: Query) -> tuple[str, frozenset[Any]] | None:
    if query.partition is None or query.keys is None or query.partition not in query.keys.columns:
        return None
    return query.partition, frozenset(label for (label,) in query.keys.project(query.partition))


def _check_derived_columns(drawn: Mapping[str, Query]) -> None:
    """Raise if a derived column is not the same in all drawn tables: the loss of the set adds up by name."""
    known: dict[str, tuple[str, Any]] = {}
    for name, query in drawn.items():
        for column in {*query.columns, *(query.derive or {})}:
            expression = (query.derive or {}).get(column)
            if column not in known:
                known[column] = name, expression
                continue
            other, before = known[column]
            if not _equal(before, expression):
                raise ParameterError(
                    f"column {column!r} must be the same in all drawn tables, but derive makes it in another way in "
                    f"{name!r} than in {other!r}; give one of the columns another name"
                )
