"""Roll-ups: sums of published cells, with standard errors and intervals.

They are computed from published numbers only, so no record loses more by them. Estimates are added exactly, in whole
units.
"""

import hashlib
import json
import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from slowscale.core.arrays import first_rows, group_rows, to_arrow, to_numpy
from slowscale.core.errors import ParameterError, ParameterTypeError, Shown
from slowscale.core.numbers import STANDARD_ERROR_DIGITS, format_number, rounded
from slowscale.data.hierarchies import Hierarchy, kind_of_labels
from slowscale.mechanisms import TransformationMechanism
from slowscale.mechanisms.grid import add, ceilings, compact
from slowscale.mechanisms.sum_intervals import (
    FEW_CELLS,
    SUMS_SHARE,
    sum_bias_warned_of,
    sum_ends,
    sum_half_steps,
    sum_rule,
    sum_variances,
    uses_moments,
)
from slowscale.release.facts import NO_MEAN, NO_VARIANCE, ColumnFacts, RollupFacts
from slowscale.release.numbers import AMBIGUOUS_UNITS, NumberColumn, as_floats, group_sums, number_column, whole_units
from slowscale.release.table import ReleasedSums, end_columns

CELLS = "cells"  # the name of the column with the number of cells, if it is free
SUM_ERRORS = {
    False: "the root mean square error of the sum of the cells, rounding included; the largest, where it depends on "
    "the true sums of the cells",
    True: "the root of the sum of unbiased estimates of the variances of the cells, rounding included, and never below "
    "that of as many empty cells",
}


@dataclass(frozen=True)
class Margin:
    """The groups that cells are added to.

    Attributes
    ----------
    labels
        The key columns of the margin, by name.
    levels
        The levels of hierarchies among them, each with the key column of the cells that it groups.
    groupings
        For each level, the SHA-256 of its mapping of labels; see `RollupFacts`.
    groups, counts
        The group of each cell, and the number of cells in each group.
    """

    labels: dict[str, Any]
    levels: dict[str, str]
    groupings: dict[str, str]
    groups: Any
    counts: Any


def roll_up(
    cells: ReleasedSums,
    by: str | Sequence[str] = (),
    hierarchy: Hierarchy | Iterable[Hierarchy] | None = None,
    name: str | None = None,
) -> ReleasedSums:
    """Return the sums of the published cells of a table, as a table with this name; see `ReleasedSums.rollup`."""
    _check(cells)
    margin = margin_of(cells, by, hierarchy)
    kept = f"by_{'_'.join(margin.labels)}" if margin.labels else "total"
    name = name or _free_name(f"{cells.name}_{kept}", cells.whole.tables)
    columns, described, rules, biases = dict(margin.labels), {}, {}, {}
    for column, facts in cells.facts.columns.items():
        mechanism = cells._known_mechanism(column)
        made = _summed(cells, column, facts, margin)
        columns |= {column + suffix: numbers for suffix, numbers in made.items()}
        bias = float(margin.counts.max(initial=0) * mechanism._rounding_bias(facts.grid, facts.on_grid))
        rules[column] = sum_rule(mechanism, facts.on_grid)
        if sum_bias_warned_of(bias, float(to_numpy(made["_se"]).max(initial=0))):
            biases[column] = bias
            rules[column] += f"; rounding to the unit biases the sums by up to {format_number(bias)}"
        error = NO_VARIANCE if mechanism._missing_moments else SUM_ERRORS[mechanism._error_grows]
        described[column] = facts.with_(se=error, rounding_bias=bias)
    number = _free_name(CELLS, {*columns, *cells.table.column_names})
    columns[number] = to_arrow(margin.counts)
    by, keys, complete = cells.facts.by, cells.facts.keys, None
    if by:
        complete = math.prod(len(cells.table[key].unique()) for key in by) == len(cells)
    if keys is not None:
        kinds = {key: keys.columns.get(key) or kind_of_labels(labels) for key, labels in margin.labels.items()}
        keys = keys.with_(columns=kinds, count=int(margin.counts.size)) if kinds else None
    facts = cells.facts.with_(
        of=cells.name,
        rows=int(margin.counts.size),
        keys=keys,
        columns=described,
        ratios={},
        rollup=RollupFacts(
            of=cells.name,
            over=tuple(key for key in by if key not in margin.labels),
            levels=margin.levels,
            groupings=margin.groupings,
            number=number,
            complete=complete,
            rules=rules,
            biases=biases,
        ),
    )
    rolled = replace(cells.with_facts(facts, name, pa.table(columns)), _added=(cells, margin))
    for ratio, one in cells.facts.ratios.items():
        rolled = rolled.ratio(one.numerator, one.denominator, ratio, one.level, one.interval)
    return rolled


def biased_sums(rolled: ReleasedSums) -> list[str]:
    """Return a warning for each column of a roll-up whose sums are biased by rounding."""
    assert rolled.facts.rollup
    return [
        f"the unit of column {name!r} is coarse against its noise, so that rounding biases the sums of its cells by up "
        f"to {format_number(bias)}; the standard errors and the intervals include this. Release the cells with a finer "
        "unit"
        for name, bias in rolled.facts.rollup.biases.items()
    ]


def _check(release: ReleasedSums) -> None:
    """Raise unless the cells of a table can be added."""
    if release.facts.rollup:
        raise ParameterError(
            f"table {release.name!r}",
            "is a roll-up already",
            code="unsupported",
            remedy=f"roll up its cells, the table {release.facts.rollup.of!r}: the errors of sums follow from theirs",
        )
    for name in release.facts.columns:
        check_addable(release, name)


def check_addable(release: ReleasedSums, name: str) -> None:
    """Raise if the biases of the cells of a column would add up."""
    facts = release.facts.columns[name]
    if facts.nonnegative:
        raise ParameterError(
            f"column {name!r}",
            "was released with nonnegative=True, so its cells are biased upwards and their biases would add up",
            code="clipped",
            remedy="use a release without it",
        )
    if facts.estimator not in ("mean", NO_MEAN):  # sums of symmetric noise are symmetric
        raise ParameterError(
            f"column {name!r}",
            f"was released with the estimator {facts.estimator!r}, so its cells are biased and their biases would "
            "add up",
            code="biased",
            remedy='use a release with the estimator "mean"',
        )


def margin_of(release: ReleasedSums, by: Any, hierarchy: Any) -> Margin:
    """Return the groups that the cells of a release are added to."""
    keys = list(release.facts.by)
    hierarchies = _hierarchies(hierarchy, keys, release.table.column_names)
    names: list[Any] = [by] if isinstance(by, str) else list(by) if isinstance(by, Iterable) else [None]
    if not all(isinstance(name, str) for name in names):
        raise ParameterTypeError("by", allowed="the name of a key column, or a list of names", given=by)
    owners = {level: one for one in hierarchies for level in one.levels}
    labels: dict[str, Any] = {}
    levels, groupings = {}, {}
    for name in names:
        if name in labels:
            raise ParameterError("by", "must name each column once", code="duplicate", given=names)
        if name in keys:
            labels[name] = release.table[name]
        elif name in owners:
            levels[name] = key = owners[name].column
            labels[name] = owners[name].label_column(name, release.table[key])
            groupings[name] = _grouping(key, release.table[key], labels[name])
        else:
            known = ", ".join([*keys, *owners]) or "none: the table has no keys"
            hint = "" if owners else ". For a level such as a county's state, give `hierarchy=ss.Hierarchy(…)`"
            raise ParameterError(
                "by",
                "must name key columns or levels",
                code="unknown-column",
                given=name,
                remedy=f"choose from {known}{hint}",
            )
    size = len(release)
    groups, first = group_rows(list(labels.values())) if labels else (np.zeros(size, np.int64), np.zeros(1, np.int64))
    kept = {}
    for name, column in labels.items():
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        kept[name] = pa.concat_arrays(chunks).take(to_arrow(first))
    counts = np.bincount(groups, minlength=first.size).astype(np.int64)
    return Margin(kept, levels, groupings, groups, counts)


def _grouping(key: str, labels: Any, parents: Any) -> str:
    """Return the SHA-256 of a key column's name and of its distinct labels with their parents, in order."""
    first = to_arrow(first_rows([labels]))
    pairs = sorted(zip(*(column.take(first).to_pylist() for column in (labels, parents)), strict=True))
    return hashlib.sha256(json.dumps([key, pairs], default=str).encode()).hexdigest()


def _hierarchies(hierarchy: Any, keys: list[str], columns: list[str]) -> list[Hierarchy]:
    if hierarchy is None:
        return []
    given = [hierarchy] if isinstance(hierarchy, Hierarchy) or not isinstance(hierarchy, Iterable) else list(hierarchy)
    if not all(isinstance(one, Hierarchy) for one in given):
        raise ParameterTypeError("hierarchy", allowed="an ss.Hierarchy, or a list of them", given=hierarchy)
    taken = list(columns)
    used = [one for one in given if one.column in keys]
    for one in used:
        for level in one.levels:
            if level in taken:
                raise ParameterError(
                    "hierarchy",
                    f"has a level {level!r}, which is the name of a column or of another level",
                    code="duplicate",
                    remedy="rename it",
                )
            taken.append(level)
    if given and not used:
        names = Shown(", ".join(one.column for one in given))
        raise ParameterError(
            "hierarchy",
            allowed=f"of a key column of the release ({', '.join(keys) or 'it has none'})",
            given=names,
            code="unknown-column",
        )
    return used


def _free_name(name: str, taken: Container[str]) -> str:
    while name in taken:
        name = f"{name}_added"
    return name


def _summed(release: ReleasedSums, name: str, facts: ColumnFacts, margin: Margin) -> dict[str, Any]:
    """Return the columns that are published for one summed column, by their suffixes."""
    mechanism, unit = release._known_mechanism(name), facts.grid
    groups, counts = margin.groups, margin.counts
    cells = whole_units(release.table[name], unit)
    units = group_sums(cells, groups, counts.size)
    on_grid = facts.on_grid
    if isinstance(mechanism, TransformationMechanism):
        transformed = release._as_floats(f"{name}_transformed")
        low, high = sum_ends(mechanism, transformed, units, groups, counts, facts.level, unit, group_sums)
    else:
        transformed = None
        half = sum_half_steps(mechanism, unit, facts.level, on_grid, counts)  # type: ignore[arg-type]
        low, high = _ends(units, half)
    low, high = _widened(cells, groups, low, high, release.table[name].type)
    if facts.at_least is not None:
        low, high = np.maximum(low, 0), np.maximum(high, 0)
    error = np.sqrt(sum_variances(mechanism, transformed, groups, counts, unit, on_grid))
    return {
        "": number_column(units, unit, 0),
        "_se": to_arrow(rounded(error, STANDARD_ERROR_DIGITS, 1 if transformed is not None else 0)),
        "_low": number_column(low, unit, -1),
        "_high": number_column(high, unit, 1),
    }


def _ends(units: Any, half: Any) -> tuple[Any, Any]:
    """Return whole numbers ± half-widths; floats if a half-width is infinite."""
    if any(isinstance(one, float) for one in half):
        centre = units.astype(float)
        return centre - half.astype(float), centre + half.astype(float)
    return add(units, compact(-half)), add(units, compact(half))


def _widened(cells: Any, groups: Any, low: Any, high: Any, dtype: Any) -> tuple[Any, Any]:
    """Return ends that also hold if published floats stand for other numbers of units, where floats are coarse."""
    if not pa.types.is_floating(dtype) or low.dtype.kind == "f" or not cells.size:
        return low, high
    sizes = np.abs(cells.astype(object))
    if not (sizes >= AMBIGUOUS_UNITS).any():
        return low, high
    slack = compact(group_sums(compact(sizes // 2**51 + (sizes >= AMBIGUOUS_UNITS)), groups, low.size).astype(object))
    return add(low, -slack), add(high, slack)


def rollup_interval(release: ReleasedSums, column: str, level: float) -> tuple[NumberColumn, NumberColumn]:
    """Return intervals of a roll-up at a level above the published one.

    If the cells are in memory, or the noise is additive, they are computed as the published intervals are. For a
    transformation whose cells are not in memory, the half-width that Chebyshev's inequality gave is enlarged where this
    is possible. Elsewhere the interval has no upper end.
    """
    if release._added is not None:
        cells, margin = release._added
        facts = cells.facts.columns[column]
        found = _summed(cells, column, facts.with_(level=level), margin)
        return found["_low"], found["_high"]
    facts, mechanism = release.facts.columns[column], release._known_mechanism(column)
    rollup = release.facts.rollup
    assert rollup
    counts = to_numpy(release.table[rollup.number])
    if isinstance(mechanism, TransformationMechanism):
        return end_columns(*_enlarged(release, column, level, counts), facts)
    narrow, wide = (
        sum_half_steps(mechanism, facts.grid, one, facts.on_grid, counts)  # type: ignore[arg-type]
        for one in (facts.level, level)
    )
    more = np.array(
        [math.inf if math.inf in pair else pair[1] - pair[0] for pair in zip(narrow, wide, strict=True)], object
    )
    low, high = (_units(release.table[f"{column}_{end}"], facts.grid) for end in ("low", "high"))
    return end_columns(_ends(low, more)[0], _ends(high, more)[1], facts)


def _units(ends: pa.ChunkedArray, unit: Fraction) -> Any:
    """Return published ends in whole units; as floats if any is infinite."""
    numbers = as_floats(ends)
    return whole_units(ends, unit) if np.isfinite(numbers).all() else numbers / float(unit)


def _enlarged(release: ReleasedSums, column: str, level: float, counts: Any) -> tuple[Any, Any]:
    """Return the ends of enlarged intervals, in units, not yet raised to a lower bound on the true sums."""
    facts, mechanism = release.facts.columns[column], release._known_mechanism(column)
    assert isinstance(mechanism, TransformationMechanism)
    spent = (1 - facts.level) * SUMS_SHARE
    before, now = 1 - facts.level - spent, 1 - level - spent
    if not uses_moments(mechanism) or now <= 0:
        return np.full(counts.size, -math.inf), np.full(counts.size, math.inf)
    centre, high = (_units(release.table[name], facts.grid) for name in (column, f"{column}_high"))
    # Either inequality may have given the half-width; that of the second moment grows faster.
    half = (high - centre + 1).astype(float) * math.sqrt(before / now) * (1 + 1e-12)
    half = ceilings(np.where(counts <= FEW_CELLS, math.inf, half))
    return _ends(centre, half)
