"""A look at the records before a release: missing values, labels outside the keys, duplicates. CONFIDENTIAL.

One query groups the records by their labels, as a release does, but keeps the groups that are not public keys. Only if
it finds missing or negative values, a second one counts them. Another query counts rows that occur more than once.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ibis.expr.types as ir
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slowscale.arrays import to_numpy
from slowscale.errors import EngineError
from slowscale.tables.engines import TEXT, engine_errors, engine_of, fetch
from slowscale.tables.keys import Keys
from slowscale.tables.sums import (
    NO_ENTITY,
    Column,
    Run,
    all_groups,
    as_integers,
    counted,
    raw_number,
    uncountable_words,
)

# How many of the most frequent labels outside the keys are compared with the keys.
MOST_LABELS = 50_000
# Up to this number of rows, their hashes are sorted here (160 MB), in a third of the time that the engine would take.
MOST_HASHES = 20_000_000
# Shorter labels are not compared letter by letter: IA and GA are two states, not a misspelling.
SHORTEST = 4


@dataclass(frozen=True)
class NearMiss:
    """A label that is not a public key but resembles one. CONFIDENTIAL.

    Attributes
    ----------
    column, label, key
        The key column, the label that records have there, and the public label that it resembles.
    records
        The number of records with this label that are outside the keys.
    """

    column: str
    label: str
    key: str
    records: int


@dataclass(frozen=True)
class Values:
    """What a look at a summed column found. CONFIDENTIAL.

    Attributes
    ----------
    name
        The column.
    missing, negative, uncountable
        The number of records, inside and outside the keys, whose value is missing, negative, or another value that
        cannot be counted: not a number, infinite or too large.
    outside, unlabelled
        The share of the column's sum that is in records outside the keys, and in records without a label. It is the
        share of the sum of absolute values, so that negative values do not cancel.
    sums
        The sums by key, as floats.
    """

    name: str
    missing: int
    negative: int
    uncountable: int
    outside: float
    unlabelled: float
    sums: Any


@dataclass(frozen=True)
class Look:
    """What a look at the records found. CONFIDENTIAL.

    Attributes
    ----------
    records, outside, unlabelled
        The number of records, of those whose labels are not a public key, and of those without a label.
    rows
        The number of records by key.
    columns
        The summed columns.
    near
        The labels outside the keys that resemble a key, the most frequent first.
    refusals
        What a release would refuse because of the records, in its own words.
    """

    records: int
    outside: int
    unlabelled: int
    rows: Any
    columns: tuple[Values, ...]
    near: tuple[NearMiss, ...]
    refusals: tuple[str, ...]

    def __repr__(self) -> str:
        return "<a look at the records: confidential>"


def look(table: ir.Table, columns: Sequence[Column], keys: Keys | None, protect: str | None, run: Run = fetch) -> Look:
    """Look at the records of a table: in one scan, and in a second one if some values are missing or negative."""
    what = "the engine could not look at the table"
    found, at = all_groups(table, _measures(table, columns, protect, detailed=False), keys, run, what)
    clean = all(
        _whole(found, f"valid{i}").sum() == _whole(found, "rows").sum() and (_real(found, f"least{i}") >= 0).all()
        for i in range(len(columns))
    )
    if not clean:
        found, at = all_groups(table, _measures(table, columns, protect, detailed=True), keys, run, what)
    inside, labelled, rows = at >= 0, np.ones(len(at), bool), _whole(found, "rows")
    for i in range(len(keys.columns) if keys is not None else 0):
        labelled &= np.array(found[f"by{i}"].is_valid().to_pylist(), bool)
    size = len(keys) if keys is not None else 1
    values, refusals = [], []
    if protect is not None and (rows - _whole(found, "owned"))[inside].any():
        refusals.append(NO_ENTITY.format(protect))
    for i, column in enumerate(columns):
        nothing = np.zeros(len(rows), np.int64)
        missing, negative = nothing if clean else _whole(found, f"missing{i}"), nothing
        sums = sizes = _real(found, f"sum{i}")
        if not clean:
            negative, sizes = _whole(found, f"negative{i}"), _real(found, f"size{i}")
        lost, total = rows - _whole(found, f"valid{i}") - missing, sizes.sum()
        outside, unlabelled = (
            float(sizes[some].sum() / total) if total else 0.0 for some in (labelled & ~inside, ~labelled)
        )
        values.append(
            Values(
                name=column.name,
                missing=int(missing.sum()),
                negative=int(negative.sum()),
                uncountable=int(lost.sum()),
                outside=outside,
                unlabelled=unlabelled,
                sums=_by_key(sums, at, size),
            )
        )
        seen = [
            *["missing"] * bool(column.nulls == "error" and missing[inside].any()),
            *["negative"] * bool(column.negatives == "error" and negative[inside].any()),
        ]
        if seen or lost[inside].any():
            refusals.append(_refusal(column, seen, bool(lost[inside].any())))
    near = () if keys is None else tuple(_near_misses(table, keys, found, labelled & ~inside, rows))
    return Look(
        records=int(rows.sum()),
        outside=int(rows[labelled & ~inside].sum()),
        unlabelled=int(rows[~labelled].sum()),
        rows=_by_key(rows, at, size),
        columns=tuple(values),
        near=near,
        refusals=tuple(refusals),
    )


def _measures(table: ir.Table, columns: Sequence[Column], protect: str | None, detailed: bool) -> dict[str, ir.Value]:
    """Return what is measured in each group: always the sums, and what shows that a value is missing or negative.

    With `detailed`, missing and negative values are counted, which takes longer.
    """
    measures = {"rows": table.count()}
    if protect is not None:
        measures["owned"] = table[protect].count()
    for i, column in enumerate(columns):
        # A missing value is NULL, which a sum skips as it would skip a 0. Negative values are part of the sum here,
        # unless a release counts them as 0.
        negatives = "zero" if column.negatives == "zero" and detailed else None
        value = counted(table, replace(column, nulls="error", negatives=negatives)).value
        if not engine_of(table).wide_sums:
            value = value.cast("float64")  # the sum of integers might overflow
        measures |= {f"valid{i}": value.count(), f"sum{i}": value.sum().cast("float64")}
        if not detailed:
            measures[f"least{i}"] = value.min().cast("float64")
            continue
        number, missing = raw_number(table, column)
        measures |= {
            f"missing{i}": missing.ifelse(1, 0).sum(),
            f"negative{i}": (number < 0).ifelse(1, 0).sum(),
            f"size{i}": value.cast("float64").abs().sum(),
        }
    return measures


def _whole(found: pa.Table, name: str) -> Any:
    return as_integers(found[name]).astype(np.int64)


def _real(found: pa.Table, name: str) -> Any:
    return to_numpy(pc.fill_null(found[name], 0.0)).astype(float)


def _refusal(column: Column, seen: Collection[str], others: bool) -> str:
    words = uncountable_words(column, seen)
    if seen and others:
        return f"{words}. It also has values that are not numbers, are infinite, or are too large"
    if others:
        return (
            f"column {column.name!r} has values that are not numbers, are infinite, or are too large to be counted in "
            f"units of {column.unit}; correct these records, or leave them out with where="
        )
    return words


def _by_key(numbers: Any, at: Any, size: int) -> Any:
    """Return the sums of numbers by key."""
    total = np.zeros(size, numbers.dtype)
    np.add.at(total, at[at >= 0], numbers[at >= 0])
    return total


def count_duplicates(table: ir.Table, names: Sequence[str], records: int, run: Run = fetch) -> int | None:
    """Return how many rows are copies of another row in all these columns; None if the engine cannot compare them."""
    engine, rows = engine_of(table), table.select(*names)
    identity = rows.select(**engine.row_identity(rows))
    try:
        with engine_errors("the engine could not compare the rows", quote=False):
            if engine.hashes_rows and records <= MOST_HASHES:
                hashes = np.sort(to_numpy(run(identity)["c0"]))
                return int((hashes[1:] == hashes[:-1]).sum())
            different = identity.distinct()
            found = run(different.aggregate(rows=different.count()))
    except EngineError:
        return None
    return records - int(found["rows"][0].as_py())


def _near_misses(table: ir.Table, keys: Keys, found: pa.Table, outside: Any, rows: Any) -> Iterator[NearMiss]:
    """Yield the labels of records outside the keys that resemble a key, the most frequent first."""
    misses = []
    engine = engine_of(table)
    for i, (name, kind) in enumerate(keys.kinds.items()):
        if kind != TEXT or not outside.any():
            continue
        labels = engine.key_label(found[f"by{i}"].filter(pa.array(outside)), kind).to_pylist()
        counts: dict[str, int] = {}
        for label, count in zip(labels, rows[outside].tolist(), strict=True):
            if label is not None:
                counts[label] = counts.get(label, 0) + count
        public = keys.table[name].unique().to_pylist()
        for label in set(public) & counts.keys():
            del counts[label]
        often = sorted(counts, key=lambda label: -counts[label])[:MOST_LABELS]
        misses += [NearMiss(name, label, key, counts[label]) for label, key in similar(often, public)]
    return iter(sorted(misses, key=lambda miss: (-miss.records, miss.column, miss.label)))


def similar(labels: Sequence[str], public: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each label that resembles a public one, with that one.

    Two labels resemble each other if they differ in case, blanks, punctuation or leading zeros only; or, if they have
    letters, in one letter: another one, one more, one less, or two that changed places.

    >>> list(similar(["TEXSA", "texas ", "1001", "Nevada"], ["TEXAS", "IOWA", "01001"]))
    [('TEXSA', 'TEXAS'), ('texas ', 'TEXAS'), ('1001', '01001')]
    """
    whole = {_folded(label): label for label in reversed(public)}
    # Two texts that differ in one letter are equal once a letter of each, or of one of them, is left out.
    shorter: dict[str, str] = {}
    for text, label in whole.items():
        for part in _without_one(text):
            shorter.setdefault(part, label)
    for label in labels:
        text = _folded(label)
        if text in whole:
            yield label, whole[text]
            continue
        parts = list(_without_one(text))
        near = (shorter.get(text) if parts else None) or next((whole[part] for part in parts if part in whole), None)
        near = near or next((shorter[part] for part in parts if _one_apart(text, shorter.get(part))), None)
        if near is not None:
            yield label, near


def _folded(label: str) -> str:
    """Return a label without what often differs: case, blanks, punctuation and leading zeros."""
    text = re.sub(r"[\W_]+", "", label.casefold())
    return text.lstrip("0") or text


def _without_one(text: str) -> Iterator[str]:
    """Yield the texts with one letter left out; none for codes, and for texts that are too short to be compared."""
    if len(text) >= SHORTEST and any(letter.isalpha() for letter in text):
        yield from dict.fromkeys(text[:i] + text[i + 1 :] for i in range(len(text)))


def _one_apart(text: str, label: str | None) -> bool:
    """Whether a text differs from a label in one letter, or in two neighbours that changed places."""
    if label is None:
        return False
    other = _folded(label)
    different = [i for i, (a, b) in enumerate(zip(text, other, strict=False)) if a != b]
    if len(different) <= 1:
        return True
    first, last = different[0], different[-1]
    return len(different) == 2 and last == first + 1 and text[first] == other[last] and text[last] == other[first]
