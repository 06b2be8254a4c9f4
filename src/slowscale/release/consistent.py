"""Drawn tables of a set that overlap, combined so that everything adds up; see `ReleaseSet.consistent`.

The result is computed from published numbers only, so no record loses more by it.
"""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from slowscale.arrays import to_arrow
from slowscale.errors import ParameterError, ParameterTypeError
from slowscale.facts import CombinedFacts, Facts
from slowscale.figures import STANDARD_ERROR_DIGITS, rounded
from slowscale.hierarchies import Hierarchy
from slowscale.mechanisms.additive import AdditiveMechanism
from slowscale.mechanisms.combined import (
    LEAST_SQUARES,
    CombinedEstimate,
    DrawnMargin,
    DrawnNumbers,
    half_widths,
    sums_matrix,
    whole_corrections,
)
from slowscale.mechanisms.grid import add, compact
from slowscale.release.numbers import group_sums, number_column, whole_units
from slowscale.release.ratios import RATIO_SUFFIXES
from slowscale.release.release import Release, lower_bound
from slowscale.release.release_set import ReleaseSet
from slowscale.release.rollup import margin_of

SIMULATIONS = 399  # so that the error with rank 380 is the end of a 95 % interval
ASSUMPTION = (
    "every record in a margin is in one of its cells: the keys of the cells are complete, and every record has a label"
)
COMBINED_ERRORS = {
    True: "the standard deviation of the combined estimate, rounding included",
    False: "the root mean square error of the combined estimate, in simulations of the noise",
}


@dataclass(frozen=True)
class Layout:
    """How the cells of the finest table make up the rows of all tables.

    Attributes
    ----------
    finest
        The name of the finest drawn table.
    order
        The cells in the order of the margins, so that the cells of a margin are neighbours where possible.
    places
        For each table, the row that each cell, in this order, is part of.
    """

    finest: str
    order: Any
    places: Mapping[str, Any]


def combine(
    tables: ReleaseSet,
    method: str = LEAST_SQUARES,
    hierarchy: Hierarchy | Iterable[Hierarchy] | None = None,
    simulations: int = SIMULATIONS,
    seed: int = 0,
) -> ReleaseSet:
    """Return the set with combined estimates; see `ReleaseSet.consistent`."""
    if isinstance(simulations, bool) or not isinstance(simulations, int) or simulations < 1:
        raise ParameterTypeError(f"simulations must be a whole number, such as {SIMULATIONS}, got {simulations!r}")
    layout = _layout(tables, hierarchy)
    columns = [name for name in tables[layout.finest].facts.columns if _margins(tables, layout, name)]
    if not columns:
        raise ParameterError(
            f"no column can be combined: it must be in {layout.finest!r} and in another drawn table, with additive "
            "noise that is not clipped at 0, and the same unit, filter and treatment of missing values in both"
        )
    changed: dict[str, dict[str, Any]] = {name: {} for name in tables}
    for column in columns:
        for name, found in _combined(tables, layout, column, method, simulations, seed).items():
            changed[name] |= found
    how = CombinedFacts(tables.facts.id, method, tuple(columns), tables.drawn, simulations, seed, ASSUMPTION)
    made = {name: _changed(tables[name], changed[name], how) for name in tables}
    return replace(tables, releases=made, facts=_new(tables.facts, how))


def _layout(tables: ReleaseSet, hierarchy: Any) -> Layout:
    """Return how the cells make up all tables, or raise if a table is not a margin of the finest one."""
    if tables.facts.combined:
        raise ParameterError("the tables are combined already; combine the tables as they were drawn")
    drawn = {name: tables[name] for name in tables.drawn}
    finest = max(drawn, key=lambda name: len(drawn[name]))
    if len(drawn) < 2:
        raise ParameterError(
            f"only {finest!r} is drawn, so that all tables add up already: there is nothing to combine"
        )
    cells = drawn[finest]
    places = {finest: np.arange(len(cells))}
    for name, release in tables.items():
        if name != finest:
            places[name] = _place(name, release, finest, cells, hierarchy)
    # Coarse tables first, so that their rows are runs of neighbours.
    by_size = sorted(tables, key=lambda name: len(tables[name]), reverse=True)
    order = np.lexsort([places[name] for name in by_size])
    return Layout(finest, order, {name: place[order] for name, place in places.items()})


def _place(name: str, release: Release, finest: str, cells: Release, hierarchy: Any) -> Any:
    """Return for each cell the row of a table that it is part of."""
    keys = list(release.facts.cells.columns) if release.facts.cells else []
    try:
        margin = margin_of(cells, keys, hierarchy)
    except ParameterError as error:
        raise ParameterError(f"table {name!r} is not a margin of {finest!r}: {error}") from None
    rows = {labels: i for i, labels in enumerate(zip(*(release.table[key].to_pylist() for key in keys), strict=True))}
    groups = list(zip(*(column.to_pylist() for column in margin.labels.values()), strict=True)) if keys else [()]
    rows = rows if keys else {(): 0}
    if len(rows) != len(groups) or any(labels not in rows for labels in groups):
        raise ParameterError(
            f"the keys of {name!r} must be those that the cells of {finest!r} make up, but some are missing on one "
            "side; release tables with keys that fit together"
        )
    return np.array([rows[labels] for labels in groups])[margin.groups]


def _margins(tables: ReleaseSet, layout: Layout, column: str) -> list[str]:
    """Return the drawn margins whose numbers of a column are estimates of sums of the finest table's."""
    own = tables[layout.finest]
    if not _usable(own, column):
        return []
    found = []
    for name in tables.drawn:
        other = tables[name]
        if name != layout.finest and _usable(other, column) and _same(own.facts, other.facts, column):
            found.append(name)
    return found


def _usable(release: Release, column: str) -> bool:
    facts = release.facts.columns.get(column)
    if facts is None or facts.nonnegative or release.facts.rollup:
        return False
    return isinstance(release.mechanisms.get(column), AdditiveMechanism)


def _same(one: Facts, other: Facts, column: str) -> bool:
    """Whether two drawn tables are about the same values of the same records."""
    a, b = one.columns[column], other.columns[column]
    return (
        (one.where, one.derived.get(column)) == (other.where, other.derived.get(column))
        and (a.unit, a.kind, a.nulls, a.negatives) == (b.unit, b.kind, b.nulls, b.negatives)
        and (one.partition is None) == (other.partition is None)
    )


def _combined(
    tables: ReleaseSet, layout: Layout, column: str, method: str, simulations: int, seed: int
) -> dict[str, dict[str, Any]]:
    """Return the combined columns of all tables that have a column, by table and name."""
    own = tables[layout.finest]
    facts = own.facts.columns[column]
    unit = facts.grid
    cells = whole_units(own.table[column], unit)[layout.order]
    margins, gaps = [], []
    for name in _margins(tables, layout, column):
        place, rows = layout.places[name], len(tables[name])
        margins.append(DrawnMargin(place, rows, _numbers(tables[name], column)))
        gaps.append(add(whole_units(tables[name].table[column], unit), -group_sums(cells, place, rows)))
    estimate = CombinedEstimate(_numbers(own, column), margins, method)
    corrections = whole_corrections(estimate.corrections(np.concatenate(gaps).astype(float)[:, None]))[:, 0]
    combined = add(cells, compact(np.array([int(one) for one in corrections], object)))
    shown = [name for name in tables if column in tables[name].facts.columns]
    matrices = {name: sums_matrix(layout.places[name], len(tables[name])) for name in shown}
    halves, errors = half_widths(estimate, list(matrices.values()), facts.level, simulations, seed)
    found = {}
    for name, half, error in zip(shown, halves, errors, strict=True):
        if method == LEAST_SQUARES:
            error = np.sqrt(estimate.standard_errors(matrices[name]) ** 2 + _runs(layout.places[name]) / 6)
        units = group_sums(combined, layout.places[name], len(tables[name]))
        ends = compact(np.array([int(one) for one in np.ceil(half)], object))
        low, high = add(units, -ends), add(units, ends)
        if lower_bound(facts) is not None:
            low, high = np.maximum(low, 0), np.maximum(high, 0)
        found[name] = {
            column: number_column(units, unit, 0),
            f"{column}_se": to_arrow(rounded(error * float(unit), STANDARD_ERROR_DIGITS)),
            f"{column}_low": number_column(low, unit, -1),
            f"{column}_high": number_column(high, unit, 1),
        }
    return found


def _runs(place: Any) -> Any:
    """Return in how many runs of neighbours the cells of each row are: each run is rounded to whole units once."""
    starts = np.concatenate([[True], place[1:] != place[:-1]])
    return np.bincount(place[starts])


def _numbers(release: Release, column: str) -> DrawnNumbers:
    facts, mechanism = release.facts.columns[column], release.mechanisms[column]
    assert isinstance(mechanism, AdditiveMechanism)
    return DrawnNumbers(mechanism, facts.grid, facts.surely_on_grid)


def _changed(release: Release, columns: dict[str, Any], how: CombinedFacts) -> Release:
    """Return a release with some columns replaced, and its ratios computed again."""
    table = release.table
    for name, column in columns.items():
        table = table.set_column(table.column_names.index(name), name, column)
    for name in release.facts.ratios:
        table = table.drop_columns([name + suffix for suffix in RATIO_SUFFIXES])
    linear = how.method == LEAST_SQUARES
    facts = {
        name: replace(one, se=COMBINED_ERRORS[linear]) if name in columns else one
        for name, one in release.facts.columns.items()
    }
    made = replace(release, table=table, facts=replace(_new(release.facts, how), columns=facts, ratios={}), _added=None)
    for name, ratio in release.facts.ratios.items():
        made = made.ratio(ratio.numerator, ratio.denominator, name, ratio.level, "delta")
    return made


def _new(facts: Facts, how: CombinedFacts) -> Facts:
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return replace(facts, id=secrets.token_hex(8), created=created, combined=how)
