"""Roll-ups: sums of published cells, with standard errors and intervals.

They are computed from published numbers only, so no record loses more by them. Estimates are added exactly, in whole
units.
"""

import math
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from slowscale.arrays import group_rows, to_arrow, to_numpy
from slowscale.errors import ParameterError, ParameterTypeError
from slowscale.facts import ABSENT, ColumnFacts, Facts, KeysFacts, RollupFacts
from slowscale.figures import STANDARD_ERROR_DIGITS, figure, rounded
from slowscale.hierarchies import Hierarchy, kind_of_labels
from slowscale.mechanisms import TransformationMechanism
from slowscale.mechanisms.grid import add, compact, outward
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
from slowscale.parameters import Array
from slowscale.release.numbers import AMBIGUOUS_UNITS, group_sums, number_column, whole_units
from slowscale.release.release import Release, as_floats, lower_bound

CELLS = "cells"  # the name of the column with the number of cells, if it is free
BIASED_SUM = "; rounding to the unit biases the sums"
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
    groups, counts
        The group of each cell, and the number of cells in each group.
    """

    labels: dict[str, Any]
    levels: dict[str, str]
    groups: Any
    counts: Any


def roll_up(
    release: Release, by: str | Sequence[str] = (), hierarchy: Hierarchy | Iterable[Hierarchy] | None = None
) -> Release:
    """Return the sums of the published cells of a release; see `Release.rollup`."""
    _check(release)
    keys = list(release.facts.cells.columns) if release.facts.cells else []
    margin = margin_of(release, by, hierarchy)
    columns = dict(margin.labels)
    known = {name: release._known_mechanism(name) for name in release.facts.columns}
    for name, one in release.facts.columns.items():
        columns |= {name + suffix: column for suffix, column in _summed(release, name, one, margin).items()}
    biases = {
        name: float(margin.counts.max(initial=0) * known[name]._rounding_bias(one.grid, one.surely_on_grid))
        for name, one in release.facts.columns.items()
    }
    number = _free_name(columns, release)
    columns[number] = to_arrow(margin.counts)
    facts = replace(
        release.facts,
        id=secrets.token_hex(8),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        cells=_keys_facts(release.facts, margin),
        columns={
            name: replace(
                one,
                se=SUM_ERRORS[known[name]._error_grows],
                rounding_bias=ABSENT if one.rounding_bias is ABSENT else biases[name],
            )
            for name, one in release.facts.columns.items()
        },
        ratios={},
        rollup=RollupFacts(
            of=release.facts.id,
            over=tuple(name for name in keys if name not in margin.labels),
            levels=margin.levels,
            number=number,
            complete=_complete(release, keys),
            rules={
                name: sum_rule(known[name], one.surely_on_grid) + _bias_words(biases[name], columns[f"{name}_se"])
                for name, one in release.facts.columns.items()
            },
        ),
    )
    made = replace(release, table=pa.table(columns), facts=facts, _added=(release, margin))
    for name, ratio in release.facts.ratios.items():
        made = made.ratio(ratio.numerator, ratio.denominator, name, ratio.level, ratio.interval)
    return made


def _bias_words(bias: float, errors: Any) -> str:
    """Return what rounding may add to the largest sum, or nothing if it is small against its standard error."""
    if not sum_bias_warned_of(bias, float(to_numpy(errors).max(initial=0))):
        return ""
    return f"{BIASED_SUM} by up to {figure(bias)}"


def biased_sums(rolled: Release) -> list[str]:
    """Return a warning for each column of a roll-up whose sums are biased by rounding."""
    assert rolled.facts.rollup
    found = [(name, rule.partition(BIASED_SUM)[2]) for name, rule in rolled.facts.rollup.rules.items()]
    return [
        f"the unit of column {name!r} is coarse against its noise, so that rounding biases the sums of its cells"
        f"{words}; the standard errors and the intervals include this. Release the cells with a finer unit"
        for name, words in found
        if words
    ]


def _check(release: Release) -> None:
    """Raise unless the cells of a release can be added."""
    if release.facts.combined:
        raise ParameterError(
            "the errors of combined estimates depend on each other, so that their sums cannot be judged: add the table "
            "that you want to the set before it is released"
        )
    if release.facts.rollup:
        raise ParameterError(
            f"release must be one of cells, but this one is a roll-up of release {release.facts.rollup.of}; roll up "
            "that release instead, because the errors of sums follow from those of the cells"
        )
    for name, facts in release.facts.columns.items():
        if facts.nonnegative:
            raise ParameterError(
                f"column {name!r} was released with nonnegative=True, so its cells are biased upwards and their biases "
                "would add up; roll up a release without it"
            )
        if facts.estimator != "mean":
            raise ParameterError(
                f"column {name!r} was released with the estimator {facts.estimator!r}, so its cells are biased and "
                'their biases would add up; roll up a release with the estimator "mean"'
            )


def margin_of(release: Release, by: Any, hierarchy: Any) -> Margin:
    """Return the groups that the cells of a release are added to."""
    keys = list(release.facts.cells.columns) if release.facts.cells else []
    hierarchies = _hierarchies(hierarchy, keys, release.table.column_names)
    names: list[Any] = [by] if isinstance(by, str) else list(by) if isinstance(by, Iterable) else [None]
    if not all(isinstance(name, str) for name in names):
        raise ParameterTypeError(f"by must be the name of a key column, or a list of names, got {by!r:.60}")
    owners = {level: one for one in hierarchies for level in one.levels}
    labels: dict[str, Any] = {}
    for name in names:
        if name in labels:
            raise ParameterError(f"by must name each column once, got {name!r} twice")
        if name in keys:
            labels[name] = release.table[name]
        elif name in owners:
            labels[name] = owners[name].label_column(name, release.table[owners[name].column])
        else:
            more = f" or of {', '.join(owners)}" if owners else ""
            hint = "" if owners else "; for a level such as a county's state, pass hierarchy=ss.Hierarchy(…)"
            raise ParameterError(f"by must name columns of {', '.join(keys) or 'no keys'}{more}, got {name!r}{hint}")
    size = len(release)
    groups, first = group_rows(list(labels.values())) if labels else (np.zeros(size, np.int64), np.zeros(1, np.int64))
    kept = {name: pa.concat_arrays(_chunks(column)).take(to_arrow(first)) for name, column in labels.items()}
    counts = np.bincount(groups, minlength=first.size).astype(np.int64)
    return Margin(kept, {name: owners[name].column for name in names if name not in keys}, groups, counts)


def _hierarchies(hierarchy: Any, keys: list[str], columns: list[str]) -> list[Hierarchy]:
    if hierarchy is None:
        return []
    given = [hierarchy] if isinstance(hierarchy, Hierarchy) or not isinstance(hierarchy, Iterable) else list(hierarchy)
    if not all(isinstance(one, Hierarchy) for one in given):
        raise ParameterTypeError(f"hierarchy must be an ss.Hierarchy, or a list of them, got {hierarchy!r:.60}")
    taken = list(columns)
    used = [one for one in given if one.column in keys]
    for one in used:
        for level in one.levels:
            if level in taken:
                raise ParameterError(
                    f"hierarchy has a level {level!r}, which is the name of a column or of another level; rename it"
                )
            taken.append(level)
    if given and not used:
        names = ", ".join(one.column for one in given)
        raise ParameterError(
            f"hierarchy must be of a key column of the release ({', '.join(keys) or 'it has none'}), got {names}"
        )
    return used


def _chunks(column: Any) -> list[Any]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def _keys_facts(facts: Facts, margin: Margin) -> KeysFacts | None:
    if not margin.labels or facts.cells is None:
        return None
    kinds = {name: facts.cells.columns.get(name) or kind_of_labels(column) for name, column in margin.labels.items()}
    return replace(facts.cells, columns=kinds, count=margin.counts.size)


def _complete(release: Release, keys: list[str]) -> bool | None:
    """Return whether the cells are all combinations of the labels of their key columns."""
    return math.prod(len(release.table[name].unique()) for name in keys) == len(release) if keys else None


def _free_name(columns: dict[str, Any], release: Release) -> str:
    taken = {*columns, *release.table.column_names}
    name = CELLS
    while name in taken:
        name = f"{name}_added"
    return name


def _summed(release: Release, name: str, facts: ColumnFacts, margin: Margin) -> dict[str, Any]:
    """Return the columns that are published for one summed column, by their suffixes."""
    mechanism, unit = release._known_mechanism(name), facts.grid
    groups, counts = margin.groups, margin.counts
    cells = whole_units(release.table[name], unit)
    units = group_sums(cells, groups, counts.size)
    on_grid = facts.surely_on_grid
    if isinstance(mechanism, TransformationMechanism):
        transformed = release._as_floats(f"{name}_transformed")
        low, high = sum_ends(mechanism, transformed, units, groups, counts, facts.level, unit, group_sums)
    else:
        transformed = None
        half = sum_half_steps(mechanism, unit, facts.level, on_grid, counts)  # type: ignore[arg-type]
        if facts.on_grid is ABSENT:  # intervals of earlier versions had ends between grid points
            half = half + 1
        low, high = _ends(units, half)
    low, high = _widened(cells, groups, low, high, release.table[name].type)
    if lower_bound(facts) is not None:
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


def rollup_interval(release: Release, column: str, level: float) -> tuple[Array, Array]:
    """Return intervals of a roll-up at a level above the published one.

    If the cells are in memory, or the noise is additive, they are computed as the published intervals are. For a
    transformation whose cells are not in memory, the half-width that Chebyshev's inequality gave is enlarged where this
    is possible. Elsewhere the interval has no upper end.
    """
    if release._added is not None:
        cells, margin = release._added
        facts = cells.facts.columns[column]
        found = _summed(cells, column, replace(facts, level=level), margin)
        low, high = (pa.chunked_array([found[f"_{end}"]]) for end in ("low", "high"))
        return as_floats(low, -1), as_floats(high, 1)
    facts, mechanism = release.facts.columns[column], release._known_mechanism(column)
    rollup = release.facts.rollup
    assert rollup
    counts = to_numpy(release.table[rollup.number])
    low, high = release._as_floats(f"{column}_low", -1), release._as_floats(f"{column}_high", 1)
    if isinstance(mechanism, TransformationMechanism):
        return _enlarged(release, column, level, counts, high)
    narrow, wide = (
        sum_half_steps(mechanism, facts.grid, one, facts.surely_on_grid, counts)  # type: ignore[arg-type]
        for one in (facts.level, level)
    )
    more = np.array([_more(a, b, facts.grid) for a, b in zip(narrow, wide, strict=True)], float)
    return outward(low, more, -1), outward(high, more, 1)


def _more(narrow: Any, wide: Any, unit: Fraction) -> float:
    return math.inf if isinstance(narrow, float) or isinstance(wide, float) else float((wide - narrow) * unit)


def _enlarged(release: Release, column: str, level: float, counts: Any, high: Array) -> tuple[Array, Array]:
    facts, mechanism = release.facts.columns[column], release._known_mechanism(column)
    assert isinstance(mechanism, TransformationMechanism)
    spent = (1 - facts.level) * SUMS_SHARE
    before, now = 1 - facts.level - spent, 1 - level - spent
    centre = release._as_floats(column)
    if not uses_moments(mechanism) or now <= 0:
        return np.zeros_like(high), np.full_like(high, math.inf)
    # Either inequality may have given the half-width; that of the second moment grows faster.
    half = (high - centre + float(facts.grid)) * math.sqrt(before / now) * (1 + 1e-12)
    few = counts <= FEW_CELLS
    low = np.where(few, 0.0, np.maximum(centre - half, 0.0))
    return low, np.where(few, math.inf, centre + half)
