"""Inspections: a check of the data by the curator before anything is drawn or charged. CONFIDENTIAL.

Nothing here has noise, and nothing is written to the ledger. Choices after such a check depend on the records.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from slowscale.core.errors import DataError
from slowscale.core.markup import html_text
from slowscale.core.numbers import format_number
from slowscale.data import engines
from slowscale.data.inspecting import Confidential, DataCheck, NearMiss, OutsideLabel, check_data, losses_and_duplicates
from slowscale.data.keys import Keys
from slowscale.data.losses import FOR_THE_CURATOR, Losses
from slowscale.data.sums import ExactSums
from slowscale.mechanisms import AdditiveMechanism, Mechanism
from slowscale.noise import SymmetricNoise
from slowscale.release.bound import BoundSums
from slowscale.release.dominance import Dominance, OpenCells, Part, open_cells
from slowscale.release.table import ReleasedSums

OUTSIDE_THE_GUARANTEE = (
    "What you choose after this look depends on the records, and the guarantee does not cover that choice, unless it "
    "was fixed or public before. Sizes that are not public can be estimated privately with session.quantiles "
    "or the command slowscale quantiles."
)
# How many labels, keys and classes are listed.
LISTED = 10
# Sums that stand for the cells of a class, and points of the distribution of the noise, for the expected errors.
SUMS_PER_CLASS, NOISE_POINTS = 33, 200
LEVELS = (np.arange(NOISE_POINTS // 2) + 0.5) / (NOISE_POINTS // 2)


@dataclass(frozen=True, repr=False)
class InspectedColumn(Confidential):
    """The findings in a summed column. CONFIDENTIAL.

    Attributes
    ----------
    name
        The column.
    missing, negative, uncountable
        The number of records whose value is missing, negative, or cannot be counted for another reason: it is not a
        number, infinite or too large.
    outside_share, unlabelled_share
        The share of the column's sum that is in records outside the keys, and in records without a label; for a column
        with negative values, the share of the sum of absolute values.
    """

    name: str
    missing: int
    negative: int
    uncountable: int
    outside_share: float
    unlabelled_share: float


@dataclass(frozen=True, repr=False)
class ExpectedError(Confidential):
    """The relative errors to expect in the cells whose true sum is from `low` to below `high`. CONFIDENTIAL.

    Attributes
    ----------
    column, low, high, cells
        The column, the range of the absolute values of the true sums, and the number of cells in it.
    median, most
        Half of the published numbers in these cells will have a relative error of at most `median`, and 95 % of at
        most `most`. Both are infinite for sums of 0.
    """

    column: str
    low: float
    high: float
    cells: int
    median: float
    most: float


@dataclass(frozen=True, repr=False)
class Inspection:
    """A check of the data before anything is drawn or charged. CONFIDENTIAL.

    Attributes
    ----------
    records, duplicates
        The number of records that the query is about, and how many of them are exact copies of another one in all
        columns; None if that was not counted.
    outside, unlabelled
        The number of records whose labels are not among the public keys, and of those without a label.
    columns
        The findings in each summed column.
    cells, empty, empty_keys
        The number of public keys, how many of them no record has, and the first ones of these.
    outside_labels
        For each key column, up to 20 labels that no key has, and for several key columns up to 20 combinations, each
        with its number of records, the most frequent first.
    near_misses
        Labels outside the keys that resemble a public label, the most frequent first.
    losses
        The distribution of the losses of the records; None if there are none, or if the engine cannot compute them.
    errors
        The relative errors to expect, by column and size of the true sum, rounding to the unit left out.
    dominance, open_cells
        The rules by which cells count as open, and the open cells of each summed column, before and after the noise,
        rounding to the unit left out; None and empty if they were not counted.
    refusals
        The errors that `release` would raise because of the records.
    """

    records: int
    duplicates: int | None
    outside: int
    unlabelled: int
    columns: tuple[InspectedColumn, ...]
    cells: int | None
    empty: int
    empty_keys: tuple[Mapping[str, Any], ...]
    outside_labels: tuple[OutsideLabel, ...]
    near_misses: tuple[NearMiss, ...]
    losses: Losses | None
    errors: tuple[ExpectedError, ...]
    dominance: Dominance | None
    open_cells: tuple[OpenCells, ...]
    refusals: tuple[str, ...]

    def __repr__(self) -> str:
        lines = [FOR_THE_CURATOR, *self._records_in_words()]
        lines += [f"  {line}" for column in self.columns for line in _column_in_words(column)]
        lines += [f"the release would be refused: {refusal}" for refusal in self.refusals]
        lines += self._keys_in_words()
        if self.losses is None:
            lines.append("losses: not known")
        else:
            lines += repr(self.losses).splitlines()[1:]
        lines.append("relative error to expect, by size of the true sum (half of the cells, and 95 % of them)")
        lines += [f"  {error_in_words(error)}" for error in self.errors]
        if self.open_cells:
            lines.append("open cells, whose total tells their largest contributor, and their share of all totals")
            lines += [f"  {open_in_words(one)}" for one in self.open_cells]
        return "\n".join([*lines, OUTSIDE_THE_GUARANTEE])

    def _repr_html_(self) -> str:
        return html_text(repr(self))

    def matches(self) -> str:
        """Return whether records match the keys, and what a release would refuse, as text. CONFIDENTIAL."""
        lines = [FOR_THE_CURATOR, *self._records_in_words(), *self._keys_in_words()]
        lines += [f"the release would be refused: {refusal}" for refusal in self.refusals]
        lines.append(OUTSIDE_THE_GUARANTEE)
        if self.records == self.outside + self.unlabelled:  # at the end, where a question may follow
            lines.append("No record has any of the keys: the release would publish noise on zeros.")
        return "\n".join(lines)

    def _records_in_words(self) -> list[str]:
        lines = [f"{self.records:,} records"]
        if self.duplicates is not None:
            lines.append(f"  {self.duplicates:,} are exact copies of another record")
        if self.cells is not None:
            lines.append(f"  {self.outside:,} are outside the keys, and {self.unlabelled:,} have no label")
        return lines

    def _keys_in_words(self) -> list[str]:
        lines = []
        if self.cells is not None:
            lines.append(f"{self.empty:,} of {self.cells:,} keys have no record")
            lines += [f"  {key_in_words(key)}" for key in self.empty_keys[:LISTED]]
            lines += [f"  and {self.empty - LISTED:,} more"] * (self.empty > LISTED)
        if self.outside_labels:
            lines.append("labels outside the keys, the most frequent first")
            lines += [f"  {outside_in_words(label)}" for label in self.outside_labels]
        if self.near_misses:
            lines.append("labels outside the keys that resemble a key")
            lines += [f"  {near_in_words(miss)}" for miss in self.near_misses[:LISTED]]
            lines += [f"  and {len(self.near_misses) - LISTED:,} more"] * (len(self.near_misses) > LISTED)
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return everything as values that JSON can represent. CONFIDENTIAL."""
        losses = self.losses
        return {
            "confidential": FOR_THE_CURATOR,
            "note": OUTSIDE_THE_GUARANTEE,
            "records": self.records,
            "duplicates": self.duplicates,
            "outside": self.outside,
            "unlabelled": self.unlabelled,
            "columns": [vars(column) for column in self.columns],
            "cells": self.cells,
            "empty": self.empty,
            "empty_keys": [{name: _plain(label) for name, label in key.items()} for key in self.empty_keys],
            "outside_labels": [
                {"labels": {name: _plain(label) for name, label in one.labels.items()}, "records": one.records}
                for one in self.outside_labels
            ],
            "near_misses": [vars(miss) for miss in self.near_misses],
            "losses": None
            if losses is None
            else {
                "records": losses.records,
                "protects": losses.protects,
                "quantiles": {str(share): _plain(loss) for share, loss in losses.quantiles.items()},
                "largest": {str(rank): _plain(loss) for rank, loss in losses.largest.items()},
            },
            "errors": [{name: _plain(value) for name, value in vars(error).items()} for error in self.errors],
            "dominance": None if self.dominance is None else vars(self.dominance),
            "open_cells": [
                {name: part._asdict() if isinstance(part, Part) else part for name, part in vars(one).items()}
                for one in self.open_cells
            ],
            "refusals": list(self.refusals),
        }

    def report(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write a confidential report as one HTML file, which only its owner may read (mode 0600).

        Parameters
        ----------
        path
            The file, which must end in .html.
        overwrite
            Whether an existing file may be replaced.
        """
        from slowscale.publish.report import write_inspection

        return write_inspection(self, path, overwrite=overwrite)


def _plain(value: Any) -> Any:
    """Return a number or a label as JSON can represent it; infinities become None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int | bool) else str(value)


def _column_in_words(column: InspectedColumn) -> list[str]:
    lines = [f"{column.name}: {column.missing:,} missing, {column.negative:,} negative"]
    if column.uncountable:
        lines[0] += f", {column.uncountable:,} not countable"
    lines[0] += (
        f"; {share_in_words(column.outside_share)} of the sum is outside the keys, and "
        f"{share_in_words(column.unlabelled_share)} has no label"
    )
    return lines


def share_in_words(share: float) -> str:
    """Return a share of a sum as a percentage."""
    return "0 %" if share == 0 else "less than 0.01 %" if share < 1e-4 else f"{format_number(100 * share)} %"


def key_in_words(key: Mapping[str, Any]) -> str:
    """Return the labels of a key as text."""
    return ", ".join(f"{name} = {label}" for name, label in key.items())


def outside_in_words(label: OutsideLabel) -> str:
    """Return a label that no key has as text."""
    records = "1 record has" if label.records == 1 else f"{label.records:,} records have"
    shown = (f"{name} = {repr(one) if isinstance(one, str) else one}" for name, one in label.labels.items())
    return f"{records} {', '.join(shown)}"


def near_in_words(miss: NearMiss) -> str:
    """Return a label that resembles a key as text."""
    records = "1 record has" if miss.records == 1 else f"{miss.records:,} records have"
    return f"{records} {miss.column} = {miss.label!r}; the keys have {miss.key!r}"


def size_in_words(error: ExpectedError) -> str:
    """Return a class of true sums as text."""
    return f"{format_number(error.low)} to {format_number(error.high)}" if error.high else "0"


def error_in_words(error: ExpectedError) -> str:
    """Return the expected errors of a class of cells as text."""
    cells = "1 cell" if error.cells == 1 else f"{error.cells:,} cells"
    if math.isinf(error.median):
        return f"{error.column}, {size_in_words(error)}: {cells}"
    return (
        f"{error.column}, {size_in_words(error)}: {cells}, {share_in_words(error.median)} and "
        f"{share_in_words(error.most)}"
    )


def open_in_words(one: OpenCells) -> str:
    """Return the number of open cells by a rule as text."""
    parts = (one.before, one.after, one.informed)
    before, after, informed = (f"{cells:,} ({share_in_words(share)})" for cells, share in parts)
    return (
        f"{one.column}, {one.rule}: {before} of {one.cells:,} cells before the noise, {after} after it, and "
        f"{informed} to someone who knows all other contributors"
    )


def inspected(
    query: BoundSums,
    stored: list[str] | None,
    protect: str | None,
    dominance: Dominance | None,
    refusals: tuple[str, ...],
) -> Inspection:
    """Check the records of a table of sums.

    Parameters
    ----------
    query
        The query, bound to its table.
    stored
        The columns in which records are compared to find duplicates, or None to leave that out.
    protect
        The column that tells which records belong to one entity.
    dominance
        The rules by which open cells are counted, or None to leave that out.
    refusals
        Known reasons why a release would be refused because of the records.
    """

    def run(asked: Any) -> Any:
        return engines.run(asked, "Looking at the records")

    seen = check_data(query.table, list(query.columns.values()), query.keys, protect, run)
    # Where every record has a public key, the engine need not look them up again, except to tell cells apart.
    all_inside = seen.outside == seen.unlabelled == 0 and protect is None
    keys = None if all_inside else query.keys
    losses, duplicates = losses_and_duplicates(
        query.table, query.policy, query.columns, keys, protect, stored, seen.records, run
    )
    if query.bounded and not (refusals or seen.refusals):
        try:
            query.read()
        except DataError as error:
            refusals = (str(error),)
    empty, first = _empty_keys(query.keys, seen)
    sums = {one.name: one.sums for one in seen.columns}
    return Inspection(
        records=seen.records,
        duplicates=duplicates,
        outside=seen.outside,
        unlabelled=seen.unlabelled,
        columns=tuple(
            InspectedColumn(one.name, one.missing, one.negative, one.uncountable, one.outside, one.unlabelled)
            for one in seen.columns
        ),
        cells=None if query.keys is None else len(query.keys),
        empty=empty,
        empty_keys=first,
        outside_labels=seen.outside_labels,
        near_misses=seen.near,
        losses=losses,
        errors=tuple(_expected_errors(query, seen)),
        dominance=dominance,
        open_cells=() if dominance is None else open_cells(query, sums, protect, dominance, run),
        refusals=(*refusals, *map(str, seen.refusals)),
    )


def _empty_keys(keys: Keys | None, seen: DataCheck) -> tuple[int, tuple[Mapping[str, Any], ...]]:
    """Return the number of keys that no record has, and the first ones of them."""
    places = np.flatnonzero(seen.rows == 0)
    if keys is None or not len(places):
        return 0, ()
    return len(places), tuple(keys.table.take(places[: 10 * LISTED]).to_pylist())


def _expected_errors(query: BoundSums, seen: DataCheck) -> list[ExpectedError]:
    """Return the relative errors to expect, by powers of ten of the true sums."""
    sums = {one.name: one.sums for one in seen.columns}
    errors = []
    for name, mechanism in query.mechanisms.items():
        truth = seen.rows.astype(float) if name == query.sums.counted else sums[name]
        if mechanism._needs_nonnegative:
            truth = np.maximum(truth, 0.0)  # a release refuses negative values
        sizes = np.abs(truth)
        with np.errstate(divide="ignore"):
            places = np.where(sizes == 0, -np.inf, np.floor(np.log10(sizes)))
        for place in np.unique(places):
            here = truth[places == place]
            if np.isinf(place):
                errors.append(ExpectedError(name, 0.0, 0.0, len(here), math.inf, math.inf))
                continue
            median, most = relative_errors(mechanism, here, (0.5, 0.95))
            errors.append(ExpectedError(name, 10.0**place, 10.0 ** (place + 1), len(here), median, most))
    return errors


@lru_cache(maxsize=64)
def _distances(noise: SymmetricNoise) -> Any:
    """Return the distances from 0 of the points of the noise, all at once, because they are slow to find one by one."""
    return noise.isf((1 - LEVELS) / 2)


def relative_errors(mechanism: Mechanism, sums: Any, shares: tuple[float, ...]) -> list[float]:
    """Return quantiles of |published − sum|/|sum| over the cells and the noise together.

    Nothing is drawn: up to 33 of the sums, evenly spaced by rank, stand for all of them, and 200 points of equal
    probability for the noise.
    """
    ranks = np.linspace(0, len(sums) - 1, min(len(sums), SUMS_PER_CLASS)).round().astype(int)
    some = np.sort(sums)[ranks]
    if isinstance(mechanism, AdditiveMechanism):  # both ends have the same distance from every sum
        errors = [_distances(mechanism.noise)[:, None] / np.abs(some)] * 2
        return [float(found) for found in np.quantile(np.concatenate(errors), shares)]
    errors = []
    for level in LEVELS:
        # The ends of the interval are the points of the noise with probabilities (1 ∓ level)/2 below them.
        ends = mechanism.prediction_interval(some, float(level))
        errors += [np.abs(np.asarray(end, float) - some) / np.abs(some) for end in ends]
    return [float(found) for found in np.quantile(np.concatenate(errors), shares)]


class SizeClass(NamedTuple):
    """The errors of the released sums of a column, for true sums from `low` to below `high`. CONFIDENTIAL."""

    column: str
    low: float
    high: float
    cells: int
    median_error: float
    median_relative_error: float


def errors_by_size(table: BoundSums, sums: ExactSums, release: ReleasedSums) -> tuple[SizeClass, ...]:
    """Return the errors of a release by powers of ten of the true sums; sums of 0 are a separate class."""
    classes = []
    for name in table.mechanisms:
        truth = sums.rows.astype(float) if name == table.sums.counted else sums.sums[name].floats()
        with np.errstate(all="ignore"):
            error = np.abs(release._as_floats(name) - truth)
            place = np.where(truth == 0, -np.inf, np.floor(np.log10(np.abs(truth))))
            for power in np.unique(place):
                here = place == power
                low, high = (0.0, 0.0) if np.isinf(power) else (10.0**power, 10.0 ** (power + 1))
                relative = math.nan if np.isinf(power) else float(np.median(error[here] / np.abs(truth[here])))
                classes.append(SizeClass(name, low, high, int(here.sum()), float(np.median(error[here])), relative))
    return tuple(classes)
