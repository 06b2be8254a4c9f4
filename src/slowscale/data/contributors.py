"""The largest contributors of each cell, in one scan of the engine. CONFIDENTIAL, for the curator only.

A contributor is a protected unit: an entity, with the total of its records in the cell, or else a record. Its
contribution is the absolute value. Records outside the keys, without a label or with a value that cannot be counted are
left out.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import ibis.expr.types as ir
import numpy as np
import pyarrow.compute as pc

from slowscale.core.arrays import to_numpy
from slowscale.core.errors import EngineError
from slowscale.data.connections import engine_errors
from slowscale.data.engines import TEXT, engine_of, fetch
from slowscale.data.keys import Keys
from slowscale.data.sums import MOST_FLOAT_BITS, Column, Run, counted, placed


@dataclass(frozen=True, repr=False)
class Contributors:
    """The contributors to a column, by key, as floats. CONFIDENTIAL.

    Attributes
    ----------
    column
        The column.
    totals
        The sums of all contributions. They differ from the sums of the values where these are negative.
    largest
        The largest contributions in descending order: one row per key, 0 where there are fewer contributors.
    """

    column: str
    totals: Any
    largest: Any

    def __repr__(self) -> str:
        return f"<contributors to {self.column}: confidential>"


def largest_contributors(
    table: ir.Table, columns: Sequence[Column], keys: Keys | None, protect: str | None, most: int, run: Run = fetch
) -> list[Contributors]:
    """Return the largest `most` contributions to each column by key, and the sums of all."""
    with suppress(EngineError):  # a sum of floats that cannot be counted may be too large
        found = _largest_contributors(table, columns, keys, protect, most, run, null_if_uncountable=False)
        # Floats of at least 2**MOST_FLOAT_BITS units, or half as many, cannot be counted, nor can NaN.
        limits = [float(column.unit) * 2.0 ** (MOST_FLOAT_BITS - 1) for column in columns]
        if all((one.largest < limit).all() for one, limit in zip(found, limits, strict=True)):
            return found
    return _largest_contributors(table, columns, keys, protect, most, run, null_if_uncountable=True)


def _largest_contributors(
    table: ir.Table,
    columns: Sequence[Column],
    keys: Keys | None,
    protect: str | None,
    most: int,
    run: Run,
    null_if_uncountable: bool,
) -> list[Contributors]:
    """Return the largest contributions; without looking for values that cannot be counted, which is faster."""
    engine = engine_of(table)
    labels = {
        f"by{i}": engine.label(table[name], kind)
        for i, (name, kind) in enumerate(keys.kinds.items() if keys is not None else ())
    }
    # A column of its own for each value: DuckDB then ignores statistics of files, which leave out NaN (`DuckDB.run`).
    values = {
        f"value{i}": counted(table, column, null_if_uncountable).value.cast("float64")
        for i, column in enumerate(columns)
    }
    if protect is None:
        rows = table.select(**labels, **values)
    else:
        owner = table[protect]
        if owner.type().is_string():
            owner = engine.label(owner, TEXT)  # only identical texts are equal
        rows = table.select(owner=owner, **labels, **values)
        rows = rows.filter(rows.owner.notnull())  # records without an entity, which a release refuses
        rows = rows.group_by("owner", *labels).aggregate(**{name: rows[name].sum() for name in values})
    # Values are not negative, unless the column may have negative ones.
    signed = {f"value{i}": rows[f"value{i}"].abs() for i, column in enumerate(columns) if column.negatives is None}
    rows = rows.mutate(**signed)
    rows, measures = engine.largest(rows, list(labels), list(values), most)
    measures |= {f"total{i}": rows[value].sum() for i, value in enumerate(values)}
    with engine_errors("the engine", "could not find the largest contributors", quote=False):
        found = run(rows.aggregate(by=list(labels), **measures))
    found, at = placed(found, keys, engine)
    inside = at >= 0

    def by_key(name: str) -> Any:
        numbers = np.zeros(1 if keys is None else len(keys))
        numbers[at[inside]] = to_numpy(pc.fill_null(found[name], 0.0))[inside]  # labels are exact: one group per key
        return numbers

    return [
        Contributors(
            column.name, by_key(f"total{i}"), np.column_stack([by_key(f"value{i}_{rank}") for rank in range(most)])
        )
        for i, column in enumerate(columns)
    ]
