"""The data check before a release: missing values, labels outside the keys, duplicates. CONFIDENTIAL.

One query groups the records by their labels, as a release does, but keeps the groups that are not public keys, and
separates the records whose values are missing, negative or cannot be counted. A second query computes the losses of the
records, and the hashes by which copies are counted. On engines that cannot hash rows, a third one counts the copies.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from operator import and_
from typing import Any

import ibis
import ibis.expr.types as ir
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slowscale.accounting import RecordPolicy
from slowscale.core.arrays import to_arrow, to_numpy
from slowscale.core.data_errors import Name
from slowscale.core.errors import DataError, EngineError, ParameterError
from slowscale.data.connections import engine_errors
from slowscale.data.dialects import forced_cast
from slowscale.data.engines import TEXT, engine_of, fetch
from slowscale.data.keys import ARROW_TYPES, Keys
from slowscale.data.losses import Losses, distribution, losses_of_records, record_losses
from slowscale.data.sums import (
    EXACT_SUM,
    Column,
    Run,
    accumulated,
    all_groups,
    as_integers,
    counted,
    raw_number,
    uncountable,
)

# How many of the most frequent labels outside the keys are listed, and compared with the keys.
LISTED_LABELS, MOST_LABELS = 20, 50_000
# Up to this number of rows, their hashes and losses are fetched (400 MB) and counted here. The engine would take three
# times as long to count the hashes.
MOST_HASHES = 20_000_000
# The status of a value, as three bits of the number by which the records are grouped.
FINE, MISSING, NEGATIVE, UNCOUNTABLE, NEGATIVE_UNCOUNTABLE = range(5)
STATE_BITS, STATES_PER_NUMBER = 3, 20
# Shorter labels are not compared letter by letter: IA and GA are two states, not a misspelling.
SHORTEST = 4
TEXTS_AT_ONCE = 2_000  # texts that are compared with all public labels at a time; this bounds the memory


class Confidential:
    """A part of a data check, whose text says that it is confidential."""

    def __repr__(self) -> str:
        shown = [f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr]  # type: ignore[arg-type]
        return f"CONFIDENTIAL {type(self).__name__}({', '.join(shown)})"


@dataclass(frozen=True, repr=False)
class NearMiss(Confidential):
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


@dataclass(frozen=True, repr=False)
class OutsideLabel(Confidential):
    """A label, or a combination of labels, that records have and that no public key has. CONFIDENTIAL.

    Attributes
    ----------
    labels
        The label by key column; for a combination, all key columns.
    records
        The number of records that have it.
    """

    labels: Mapping[str, Any]
    records: int


@dataclass(frozen=True, repr=False)
class Values(Confidential):
    """The data check of a summed column. CONFIDENTIAL.

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
    sums: Any = field(repr=False)


@dataclass(frozen=True)
class DataCheck:
    """The findings of a data check. CONFIDENTIAL.

    Attributes
    ----------
    records, outside, unlabelled
        The number of records, of those whose labels are not a public key, and of those without a label.
    rows
        The number of records by key.
    columns
        The summed columns.
    outside_labels
        The most frequent labels of each key column that no key has, then the most frequent combinations.
    near
        The labels outside the keys that resemble a key, the most frequent first.
    refusals
        The errors that a release would raise because of the records.
    """

    records: int
    outside: int
    unlabelled: int
    rows: Any
    columns: tuple[Values, ...]
    outside_labels: tuple[OutsideLabel, ...]
    near: tuple[NearMiss, ...]
    refusals: tuple[DataError, ...]

    def __repr__(self) -> str:
        return "<data check: confidential>"


def check_data(
    table: ir.Table, columns: Sequence[Column], keys: Keys | None, protect: str | None, run: Run = fetch
) -> DataCheck:
    """Check the records of a table, in one scan."""
    what = "could not check the records"
    found, at = all_groups(table, _measures(table, columns, protect), keys, run, what, _states(table, columns))
    inside, labelled, rows = at >= 0, np.ones(len(at), bool), _whole(found, "rows")
    for i in range(len(keys.columns) if keys is not None else 0):
        labelled &= np.array(found[f"by{i}"].is_valid().to_pylist(), bool)
    size = len(keys) if keys is not None else 1
    values, refusals = [], []
    if protect is not None and (rows - _whole(found, "owned"))[inside].any():
        refusals.append(DataError("no-entity", column=Name(protect)))
    for i, column in enumerate(columns):
        number, place = divmod(i, STATES_PER_NUMBER)
        state = (_whole(found, f"states{number}") >> (STATE_BITS * place)) & (2**STATE_BITS - 1)
        missing, negative, lost = (
            rows * np.isin(state, some)
            for some in ((MISSING,), (NEGATIVE, NEGATIVE_UNCOUNTABLE), (UNCOUNTABLE, NEGATIVE_UNCOUNTABLE))
        )
        # All values of a group have the same sign.
        sums = np.where(np.isin(state, (FINE, NEGATIVE)), _numbers(found, f"sum{i}"), 0)
        sizes = np.abs(sums.astype(float))
        total = sizes.sum()
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
                sums=accumulated(sums[inside], at[inside], size).astype(float),
            )
        )
        codes = {
            "nulls": column.nulls == "error" and missing[inside].any(),
            "negatives": column.negatives == "error" and negative[inside].any(),
            "uncountable": lost[inside].any(),
        }
        if any(codes.values()):
            refusals.append(uncountable(column, *(code for code, found_any in codes.items() if found_any)))
    outside_labels, near = _outside_labels(table, keys, found, labelled & ~inside, rows)
    return DataCheck(
        records=int(rows.sum()),
        outside=int(rows[labelled & ~inside].sum()),
        unlabelled=int(rows[~labelled].sum()),
        rows=accumulated(rows[inside], at[inside], size),
        columns=tuple(values),
        outside_labels=tuple(outside_labels),
        near=tuple(near),
        refusals=tuple(refusals),
    )


def _measures(table: ir.Table, columns: Sequence[Column], protect: str | None) -> dict[str, ir.Value]:
    """Return the measures of each group."""
    measures = {"rows": table.count()}
    if protect is not None:
        measures["owned"] = table[protect].count()
    for i, column in enumerate(columns):
        value = _value(table, column)
        if not engine_of(table).wide_sums:
            measures[f"sum{i}"] = value.cast("float64").sum()  # the sum of integers might overflow
        elif value.type().is_integer():
            # Exact, because the sums of positive and of negative values of a key are added here.
            measures[f"sum{i}"] = forced_cast(value.sum(), EXACT_SUM)
        else:
            measures[f"sum{i}"] = value.sum().cast("float64")
    return measures


def _value(table: ir.Table, column: Column) -> ir.Value:
    """Return the value of each record; NULL if it is missing, which a sum skips as it would skip a 0, or not countable.

    Negative values remain, unless a release counts them as 0. On DuckDB, NaN may remain, too, because DuckDB leaves out
    a comparison that always holds by the statistics of a Parquet file.
    """
    negatives = "zero" if column.negatives == "zero" else None
    return counted(table, replace(column, nulls="error", negatives=negatives)).value


def _states(table: ir.Table, columns: Sequence[Column]) -> dict[str, ir.Value]:
    """Return the status of the values of each record, as numbers: 0 if all are fine."""
    states: dict[str, ir.Value] = {}
    for start in range(0, len(columns), STATES_PER_NUMBER):
        fine, number = [], ibis.literal(0, "int64")
        for i, column in enumerate(columns[start : start + STATES_PER_NUMBER]):
            value, (raw, missing) = _value(table, column), raw_number(table, column)
            known, negative = value.notnull(), raw < 0
            if value.type().is_floating():
                known, negative = known & ~value.isnan(), negative & ~raw.isnan()
                fine.append(~value.isnan())
            fine.append(value >= 0)
            if column.negatives == "zero":
                fine.append(raw >= 0)
            state = ibis.cases(
                (missing, MISSING),
                (known & negative, NEGATIVE),
                (known, FINE),
                (negative, NEGATIVE_UNCOUNTABLE),
                else_=UNCOUNTABLE,
            )
            number = number + state.cast("int64") * 2 ** (STATE_BITS * i)
        # Most records are fine, so the states of their columns are not computed one by one.
        states[f"states{len(states)}"] = ibis.cases((reduce(and_, fine), ibis.literal(0, "int64")), else_=number)
    return states


def _whole(found: pa.Table, name: str) -> Any:
    return as_integers(found[name]).astype(np.int64)


def _numbers(found: pa.Table, name: str) -> Any:
    """Return sums as floats, or as integers if they are exact."""
    if pa.types.is_floating(found[name].type):
        return to_numpy(pc.fill_null(found[name], 0.0)).astype(float)
    return as_integers(found[name])


def losses_and_duplicates(
    table: ir.Table,
    policy: RecordPolicy,
    columns: Mapping[str, Column],
    keys: Keys | None,
    protect: str | None,
    names: Sequence[str] | None,
    records: int,
    run: Run = fetch,
) -> tuple[Losses | None, int | None]:
    """Return the losses of the records, and how many rows are copies of another one in the columns `names`.

    The losses are None if there are no records, or if the engine cannot compute them; the number of copies is None if
    `names` is None, or if the engine cannot compare rows. If possible, both are computed in one scan.
    """
    engine = engine_of(table)
    if names is not None and protect is None and engine.hashes_rows and records <= MOST_HASHES:
        try:
            query = losses_of_records(table, policy, columns, keys, engine.row_identity(table, names))
            with engine_errors("the engine", "could not check the rows", quote=False):
                found = run(query)
        except (EngineError, ParameterError):
            pass  # one of the two cannot be computed
        else:
            losses = distribution(found) if found["loss"].null_count < found.num_rows else None
            return losses, _copies(to_numpy(found["c0"]))
    try:
        losses = record_losses(table, policy, columns, keys, protect, run)
    except (DataError, ParameterError):  # no records, or a policy with a function that the engine does not have
        losses = None
    return losses, None if names is None else _count_duplicates(table, names, records, run)


def _count_duplicates(table: ir.Table, names: Sequence[str], records: int, run: Run) -> int | None:
    """Return how many rows are copies of another row in all these columns; None if the engine cannot compare them."""
    engine = engine_of(table)
    identity = table.select(**engine.row_identity(table, names))
    try:
        with engine_errors("the engine", "could not compare the rows", quote=False):
            if engine.hashes_rows and records <= MOST_HASHES:
                return _copies(to_numpy(run(identity)["c0"]))
            different = identity.distinct()
            found = run(different.aggregate(rows=different.count()))
    except EngineError:
        return None
    return records - int(found["rows"][0].as_py())


def _copies(hashes: Any) -> int:
    """Return how many of the hashes are copies of another one."""
    hashes = np.sort(hashes)
    return int(np.count_nonzero(hashes[1:] == hashes[:-1]))


def _outside_labels(
    table: ir.Table, keys: Keys | None, found: pa.Table, outside: Any, rows: Any
) -> tuple[list[OutsideLabel], list[NearMiss]]:
    """Return the most frequent labels of records outside the keys, and those that resemble a key."""
    if keys is None or not outside.any():
        return [], []
    engine, listed, near = engine_of(table), [], []
    labels = [
        engine.key_label(found[f"by{i}"].filter(pa.array(outside)), kind).cast(ARROW_TYPES[kind])
        for i, kind in enumerate(keys.kinds.values())
    ]
    # Bytes that are not UTF-8 have no label.
    groups = pa.table([*labels, to_arrow(rows[outside])], [*map(str, range(len(labels))), "records"]).drop_null()

    def frequent(columns: list[str], groups: pa.Table, most: int) -> list[tuple[Any, ...]]:
        order = [("records_sum", "descending"), *((name, "ascending") for name in columns)]
        counts = groups.group_by(columns).aggregate([("records", "sum")]).sort_by(order).slice(0, most)
        return list(zip(*(counts[name].to_pylist() for name in [*columns, "records_sum"]), strict=True))

    for place, (name, kind) in enumerate(keys.kinds.items()):
        public = keys.table[name].unique()
        unknown = groups.filter(pc.invert(pc.is_in(groups[str(place)], public)))
        counts = frequent([str(place)], unknown, MOST_LABELS if kind == TEXT else LISTED_LABELS)
        listed += [OutsideLabel({name: label}, records) for label, records in counts[:LISTED_LABELS]]
        if kind == TEXT:
            numbers = dict(counts)
            near += [NearMiss(name, label, key, numbers[label]) for label, key in similar(numbers, public.to_pylist())]
    if len(labels) > 1:
        counts = frequent(groups.column_names[:-1], groups, LISTED_LABELS)
        listed += [OutsideLabel(dict(zip(keys.columns, one, strict=True)), records) for *one, records in counts]
    return listed, sorted(near, key=lambda miss: (-miss.records, miss.column, miss.label))


def similar(labels: Collection[str], public: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each label that resembles a public one, with that one.

    Two labels resemble each other if they differ in case, whitespace, punctuation or leading zeros only; or, if they
    have letters, in one letter: another one, one more, one less, or two that changed places.

    >>> list(similar(["TEXSA", "texas ", "1001", "Nevada"], ["TEXAS", "IOWA", "01001"]))
    [('TEXSA', 'TEXAS'), ('texas ', 'TEXAS'), ('1001', '01001')]
    """
    from rapidfuzz.distance import OSA
    from rapidfuzz.process import cdist

    whole = {_folded(label): label for label in reversed(public)}
    names = list(filter(_is_name, whole))
    near: dict[str, str] = {}
    texts = list(dict.fromkeys(text for text in map(_folded, labels) if text not in whole and _is_name(text)))
    for start in range(0, len(texts) if names else 0, TEXTS_AT_ONCE):
        some = texts[start : start + TEXTS_AT_ONCE]
        distances = cdist(some, names, scorer=OSA.distance, score_cutoff=1, dtype=np.uint8, workers=-1)
        for i in np.flatnonzero((distances <= 1).any(axis=1)):
            near[some[i]] = whole[names[int(distances[i].argmin())]]
    for label in labels:
        text = _folded(label)
        if (found := whole.get(text) or near.get(text)) is not None:
            yield label, found


def _folded(label: str) -> str:
    """Return a label without its case, whitespace, punctuation and leading zeros, which often differ."""
    text = re.sub(r"[\W_]+", "", label.casefold())
    return text.lstrip("0") or text


def _is_name(text: str) -> bool:
    """Whether a text is compared letter by letter: it has letters, and is long enough."""
    return len(text) >= SHORTEST and any(letter.isalpha() for letter in text)
