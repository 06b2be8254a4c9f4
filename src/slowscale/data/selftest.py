"""A self-test of an engine: whether sums, ranks, labels, filters and derived columns mean there what a release assumes.

The server behind a Spark Connect session is unknown. Before it is used, the rows below are sent to it and pass through
the expressions of a release. The results must be those that Python computes here with exact fractions. The rows are
those on which engines are known to differ; each states the property that it tests. They are constants, so an error may
quote them.

What must fail (an overflow) is tried as well: a result in its place is an error. A query that fails is repeated for the
rows of each property alone, so that the error can name the property.
"""

import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import ibis.expr.types as ir
import numpy as np
import pyarrow as pa

from slowscale.core.errors import DataError, EngineError
from slowscale.data.connections import UNREACHABLE, ask_spark, engine_errors, first_line, fresh_name, locked
from slowscale.data.engines import (
    BOOLEAN,
    DATE,
    FIRST_DAY,
    LAST_DAY,
    TEXT,
    WHOLE,
    engine_of,
    engine_of_connection,
    fetch,
    grouped,
)
from slowscale.data.keys import Keys
from slowscale.data.rowwise import derive, keep
from slowscale.data.sums import (
    GRAINS_PER_POWER,
    MOST_FLOAT_BITS,
    Column,
    Sum,
    as_integers,
    counted,
    exact_sums,
    records_below,
    sum_of_limb,
)

FORMAT = 1  # raised when rows, expressions or comparisons change
LONGEST_SHOWN = 150  # characters of a value or of a reason that an error shows
EPOCH = date(1970, 1, 1).toordinal()
LARGEST_INTEGER, LARGEST_DECIMAL = 2**63 - 1, Decimal("9" * 36 + ".99")


@dataclass(frozen=True)
class SelfTest:
    """A self-test that an engine has passed.

    Attributes
    ----------
    engine, version
        The name of the engine and the version that the server states.
    checks, format
        The number of results that were compared, and the version of the self-test.
    """

    engine: str
    version: str
    checks: int
    format: int = FORMAT


@dataclass(frozen=True)
class Row:
    """A row of the self-test: labels of each kind, and numbers of each kind.

    `day` counts days from 1970-01-01, because Python has no dates outside the years 1 to 9999.
    """

    property: str
    k: str | None = "TX"
    w: int | None = 1
    b: bool | None = True
    day: int | None = 0
    f: float | None = 1.0
    i: int | None = 1
    d: Decimal | None = Decimal("1.00")
    t: str | None = "1"
    firm: str = "a"


NO_LABEL: Sequence[Mapping[str, Any]] = ({"k": None}, {"w": None}, {"b": None}, {"day": None})


def _rows() -> Iterator[Row]:
    """Yield the rows."""
    yield Row("numbers", f=1.5, i=7, d=Decimal("0.29"), t="1.5")
    yield Row("numbers", f=-2.25, i=-7, d=Decimal("-5.01"), t="-2.25")
    yield Row("NULL", f=None, i=None, d=None, t=None)
    # Floats.
    yield Row("NaN", f=math.nan)
    yield Row("infinity", f=math.inf)
    yield Row("infinity", f=-math.inf, w=2)
    yield Row("negative zero", f=-0.0)
    for w, f in enumerate([1 - 2.0**-40, 2.0**-40 - 1, 2.0**-31, -(2.0**-31), 3 * 2.0**-31, 0.1, -0.3, 2.5, -2.5]):
        yield Row("truncation towards zero", w=w, f=f)
    for f in (2.0**54, 2.0**54 - 2, 3.0, 2.0**-30, 0.1, -1.5):
        yield Row("sums of floats", f=f)
    for w, f in enumerate([5e-324, -1e-310, 1e-300, 2.0**-1022]):
        yield Row("tiny floats", w=w, f=f)
    for w, f in enumerate([1e300, -1e300, 1e17, 2.0**MOST_FLOAT_BITS, -(2.0**MOST_FLOAT_BITS)]):
        yield Row("floats that are too large", w=w, f=f)
    for w, f in enumerate([math.nextafter(2.0**MOST_FLOAT_BITS, 0), -math.nextafter(2.0**MOST_FLOAT_BITS, 0)]):
        yield Row("large floats", w=w, f=f)
    # Integers and decimals.
    yield from [Row("sums beyond 64 bits", i=LARGEST_INTEGER)] * 3
    for w, i in enumerate([-LARGEST_INTEGER - 1, LARGEST_INTEGER, 2**53 + 1, -(2**53) - 1, -(2**32), 2**32 - 1, 0]):
        yield Row("integers of 64 bits", w=w, i=i)
    for w, d in enumerate([LARGEST_DECIMAL, LARGEST_DECIMAL.copy_negate()]):
        yield Row("decimals of 38 digits", w=w, d=d)
    for text in ("4" * 36 + ".44", "5" * 36 + ".55", "-" + "1" * 36 + ".11"):
        yield Row("decimals of 38 digits", w=2, d=Decimal(text))
    # Numbers in texts.
    for w, t in enumerate(
        ["007", "+5", "-0.5", ".5", "5.", " 12 ", "1e3", "1,5", "0x1A", "NaN", "", "  ", "１", "1\n", "\t1", "1_000",
         "--1", "inf", "123456789012345678.123456789012", "-123456789012345678.999999999999", "1234567890123456789",
         "0.0000000000001", "1.5000000000000000", "-0", "b", "B", "ä", "0.005", "-0.005", "9" * 38, "2.5e3"]
    ):  # fmt: skip
        yield Row("numbers in texts", w=w, t=t)
    # Labels.
    for name, labels in {
        "case of labels": ["TX", "tx", "Tx"],
        "blanks in labels": ["TX", "TX ", " TX", "TX\u00a0", "TX\t", "", " "],
        "binary labels": ["Ä", "A\u0308", "ä", "ß", "ss", "SS", "ﬀ", "ff", "İ", "i\u0307", "\\x41", "A"],
        "NUL characters": ["TX\0", "TX", "\0", "TX\0\0", "TX\0a"],
    }.items():
        yield from (Row(name, k=k) for k in labels)
    yield from (Row("NULL labels", **none) for none in NO_LABEL)
    yield from (Row("booleans", b=b) for b in (True, False, False))
    yield from (Row("whole labels", w=w) for w in (2**53, 2**53 + 1, LARGEST_INTEGER, -LARGEST_INTEGER - 1, -1, 0))
    yield from (
        Row("dates", day=day.toordinal() - EPOCH)
        for day in (FIRST_DAY, LAST_DAY, date(1582, 10, 10), date(1900, 3, 1), date(2020, 2, 29), date(1969, 12, 31))
    )
    yield from (
        Row("dates out of range", day=day.toordinal() - EPOCH + by) for day, by in ((FIRST_DAY, -1), (LAST_DAY, 1))
    )
    # Entities.
    for firm, f, i in [
        ("a", 2.0**40, 2**62),
        ("A", 0.25, 2**62),
        ("a ", -0.5, -3),
        ("a", 0.25, 2**62),
        ("a", -(2.0**40), 7),
    ]:
        yield Row("entities", firm=firm, f=f, i=i)
    yield from [Row("overflow", i=LARGEST_INTEGER, d=LARGEST_DECIMAL)] * 2


SELF_TEST_ROWS = tuple(_rows())
OVERFLOW, ENTITIES, RANK_CHECKS = "overflow", "entities", "ranks"
# Properties that PostgreSQL does not have: it stores no such values.
UNSTORABLE = ("NUL characters", "dates out of range")
Rows = Mapping[int, Row]  # by the number of the row, which is its value in the column n


def rows_without(properties: Collection[str]) -> Rows:
    """Return the rows without those of some properties."""
    return {n: row for n, row in enumerate(SELF_TEST_ROWS) if row.property not in properties}


def arrow_rows(rows: Rows) -> pa.Table:
    """Return rows as an Arrow table."""
    types = {
        "property": pa.string(), "k": pa.string(), "w": pa.int64(), "b": pa.bool_(), "day": pa.int32(),
        "f": pa.float64(), "i": pa.int64(), "d": pa.decimal128(38, 2), "t": pa.string(), "firm": pa.string(),
    }  # fmt: skip
    columns = {"n": pa.array(rows, pa.int64())}
    for name, dtype in types.items():
        columns[name] = pa.array([getattr(row, name) for row in rows.values()], dtype, from_pandas=False)
    return pa.table(columns | {"day": columns["day"].cast(pa.date32())})


# What Python expects.


def _in_grains(value: Any, column: Column) -> Fraction | None:
    """Return what a value adds to the sum of a column; None if it cannot be counted."""
    if value is None:
        return Fraction(0) if column.nulls == "zero" else None
    if value < 0 and column.negatives is not None:
        return Fraction(0) if column.negatives == "zero" else None
    if not isinstance(value, float):
        return Fraction(value)
    power = Fraction(2) ** math.floor(math.log2(column.unit))  # the largest one that is at most the unit
    grain = power / GRAINS_PER_POWER
    fits = abs(value) < power * 2**MOST_FLOAT_BITS  # false for NaN
    return math.trunc(Fraction(value) / grain) * grain if fits else None


def _day(days: int | None) -> date | None:
    """Return a date; None for one that Python does not have, which is no label."""
    if days is None or not FIRST_DAY.toordinal() <= days + EPOCH <= LAST_DAY.toordinal():
        return None
    return date.fromordinal(days + EPOCH)


def _larger(left: float | None, right: float) -> bool | None:
    """Compare as SQL does on all engines: NaN is larger than every number."""
    return None if left is None else math.isnan(left) or left > right


def _quotient(left: int | None, right: int) -> int | None:
    """Divide integers and truncate towards zero."""
    return None if left is None else abs(left) // right * (1 if left >= 0 else -1)


def _nearest(value: float | None) -> int | None:
    """Return the nearest integer, halves away from zero; None if it does not fit in 64 bits."""
    if value is None or not abs(value) < 2.0**63:
        return None
    size = math.floor(abs(Fraction(value)) + Fraction(1, 2))
    return size if value > 0 else -size


def _read(text: str | None, pattern: str, read: Callable[[str], Any]) -> Any:
    """Read a text that matches a pattern as a whole, apart from blanks around it."""
    plain = None if text is None else text.strip(" ")
    return None if plain is None or not re.fullmatch(pattern, plain, re.ASCII) else read(plain)


WRITTEN_FLOAT = r"[+-]?[0-9]{1,38}(\.[0-9]{1,38})?([eE][+-]?[0-9]{1,2})?"


def _whole(text: str | None) -> int | None:
    number = _read(text, r"[+-]?[0-9]{1,38}", int)
    return number if number is not None and abs(number) <= LARGEST_INTEGER else None


def _cents(text: str | None) -> Fraction | None:
    number = _read(text, r"[+-]?[0-9]{1,38}(\.[0-9]{1,38})?", Fraction)
    if number is None or abs(number) >= 10**28:
        return None
    cents = math.floor(abs(number) * 100 + Fraction(1, 2))  # halves away from zero
    return Fraction(cents if number > 0 else -cents, 100)


# Derived columns: expressions of plans, each with the same in Python.
DERIVED: Mapping[str, Callable[[Row], Any]] = {
    "i // 3": lambda row: _quotient(row.i, 3),
    "i % 3": lambda row: None if row.i is None else row.i - 3 * (_quotient(row.i, 3) or 0),
    "i / 3": lambda row: None if row.i is None else float(row.i) / 3,
    "f + 0.1": lambda row: None if row.f is None else row.f + 0.1,
    "f / (w - w)": lambda row: None,
    "round(f)": lambda row: _nearest(row.f),
    "case when f > 100 then 1 else 0 end": lambda row: int(_larger(row.f, 100) or False),
    "case when f = f then 1 else 0 end": lambda row: int(row.f is not None),
    "case when f = 0 then 1 else 0 end": lambda row: int(row.f == 0),
    "coalesce(f, 7)": lambda row: 7.0 if row.f is None else row.f,
    "try_cast(t as double)": lambda row: _read(row.t, WRITTEN_FLOAT, float),
    "try_cast(t as bigint)": lambda row: _whole(row.t),
    "try_cast(t as decimal(30, 2))": lambda row: _cents(row.t),
    "length(t)": lambda row: None if row.t is None else len(row.t),
    "case when regexp_matches(t, '^[0-9]+$') then 1 else 0 end": lambda row: int(
        re.fullmatch("[0-9]+", row.t or "") is not None
    ),
    "case when t like '1_%' then 1 else 0 end": lambda row: int(re.match("(?s)1.", row.t or "") is not None),
    "case when t < 'b' then 1 else 0 end": lambda row: int(row.t is not None and row.t < "b"),
    "case when t = '1' then 1 else 0 end": lambda row: int(row.t == "1"),
    "year(day)": lambda row: None if row.day is None else int(str(np.datetime64(row.day, "D"))[:-6]),
}
FILTER = "(i % 2 = 0 or f > 100) and not t like '0%'"


def _passes(row: Row) -> bool:
    """Return whether a row passes the filter, in the logic of three values."""
    even = None if row.i is None else row.i % 2 == 0
    return bool(even or _larger(row.f, 100)) and row.t is not None and not row.t.startswith("0")


@dataclass
class Findings:
    """The number of results that were compared, and the first wrong one of each property."""

    checks: int = 0
    wrong: dict[str, str] = field(default_factory=dict)

    def compare(self, name: str, what: str, got: Any, expected: Any) -> None:
        """Compare a result with the expected one, exactly."""
        self.checks += 1
        if got != expected:
            self.wrong.setdefault(name, f"{what} is {_shown(got)}, not {_shown(expected)}")


def _shown(value: Any) -> str:
    return (str(value) if isinstance(value, Fraction) else repr(value))[:LONGEST_SHOWN]


Part = Callable[[ir.Table, Rows, Findings], None]

FLOATS, WHOLES, DECIMALS = (Column(name, Fraction(1)) for name in "fid")
SUMMED = (
    FLOATS, WHOLES, DECIMALS, *(Column(name, Fraction(1), "zero", "zero") for name in "fid"),
    *(Column(name, Fraction(1), "zero", "error") for name in "fid"), Column("f", Fraction(3, 100), "zero"),
)  # fmt: skip
LABEL_KINDS = {"property": TEXT, "k": TEXT, "w": WHOLE, "b": BOOLEAN, "day": DATE}


def _labels(row: Row) -> tuple[Any, ...]:
    """Return the labels of a row."""
    return row.property, row.k, row.w, row.b, _day(row.day)


def _added(pairs: Iterable[tuple[Any, Sequence[Fraction | None]]]) -> dict[Any, list[Any]]:
    """Return, by labels, the number of rows and, for each column, its sum; None if some row cannot be counted."""
    found: dict[Any, list[Any]] = {}
    for labels, numbers in pairs:
        if labels not in found:
            found[labels] = [1, *numbers]
            continue
        rows, *totals = found[labels]
        found[labels] = [
            rows + 1, *(None if a is None or b is None else a + b for a, b in zip(totals, numbers, strict=True))
        ]  # fmt: skip
    return found


def _measured(table: ir.Table, kinds: Mapping[str, str], columns: Sequence[Column]) -> dict[Any, list[Any]]:
    """Return the same from the engine, by the expressions of a release."""
    engine, numbers = engine_of(table), [counted(table, column) for column in columns]
    measures = {"rows": table.count()}
    for i, number in enumerate(numbers):
        measures[f"valid{i}"] = number.valid.count()
        for j, (limb, _) in enumerate(number.limbs):
            measures[f"sum{i}_{j}"] = sum_of_limb(engine, limb)
    found = fetch(grouped(table, kinds, measures))
    labels = [engine.key_label(found[f"by{i}"], kind).to_pylist() for i, kind in enumerate(kinds.values())]
    rows = as_integers(found["rows"]).tolist()
    totals = []
    for i, number in enumerate(numbers):
        valid = as_integers(found[f"valid{i}"]).tolist()
        limbs = [as_integers(found[f"sum{i}_{j}"]).tolist() for j in range(len(number.limbs))]
        weights = [weight for _, weight in number.limbs]
        exact = [sum(map(int.__mul__, weights, parts)) * number.grain for parts in zip(*limbs, strict=True)]
        totals.append([one if have == all_ else None for one, have, all_ in zip(exact, valid, rows, strict=True)])
    groups = zip(*labels, strict=True) if labels else [()]
    return {group: list(values) for group, *values in zip(groups, rows, *totals, strict=True)}


def _sums(table: ir.Table, rows: Rows, found: Findings) -> None:
    """Sums and counts by labels of every kind, with every treatment of missing and negative values."""
    expected = _added(
        (_labels(row), [_in_grains(getattr(row, one.name), one) for one in SUMMED]) for row in rows.values()
    )
    got = _measured(table, LABEL_KINDS, SUMMED)
    names = ["the number of rows", *(f"the sum of {one.name} ({one.nulls}, {one.negatives})" for one in SUMMED)]
    for labels in expected | got:
        name, what = labels[0], f"the group {labels[1:]}"
        found.compare(name, what, labels in got, labels in expected)
        if labels in got and labels in expected:
            for value, one, other in zip(names, got[labels], expected[labels], strict=True):
                found.compare(name, f"{value} in {what}", one, other)


def _keyed_sums(table: ir.Table, rows: Rows, found: Findings) -> None:
    """The sums of a release by public keys. Rows that cannot be counted have other labels, and must not stop it."""
    columns = [FLOATS, WHOLES, DECIMALS]
    sums = _added((_labels(row), [_in_grains(getattr(row, one.name), one) for one in columns]) for row in rows.values())
    keys = [labels for labels, totals in sums.items() if None not in labels and None not in totals]
    if not keys:
        return
    got = exact_sums(table, columns, Keys.from_frame(dict(zip(LABEL_KINDS, zip(*keys, strict=True), strict=True))))
    for at, labels in enumerate(keys):
        totals = [_total(got.sums[one.name], at) for one in columns]
        found.compare(labels[0], f"the released sums of {labels[1:]}", [int(got.rows[at]), *totals], sums[labels])


def _total(total: Sum, at: int) -> Fraction:
    """Return the exact sum of a key."""
    rest = 0 if total.rest is None else int(total.rest[at])
    return (int(total.counts[at]) + Fraction(rest, total.parts)) * total.grain


def _derived(table: ir.Table, rows: Rows, found: Findings) -> None:
    """Derived columns, row by row."""
    names = {f"x{i}": text for i, text in enumerate(DERIVED)}
    columns = [Column(name, Fraction(1)) for name in names]
    got = _measured(derive(table, names), {"property": TEXT, "n": WHOLE}, columns)
    for n, row in rows.items():
        values = got.get((row.property, n), [0, *(None for _ in columns)])[1:]
        for (text, value), column, one in zip(DERIVED.items(), columns, values, strict=True):
            found.compare(row.property, f"the value of {text}", one, _in_grains(value(row), column))


def _filtered(table: ir.Table, rows: Rows, found: Findings) -> None:
    """The rows that pass a filter."""
    expected = _added((row.property, []) for row in rows.values() if _passes(row))
    got = _measured(keep(table, FILTER), {"property": TEXT}, [])
    for name in {row.property for row in rows.values()}:
        found.compare(name, f"rows with {FILTER}", got.get((name,), [0]), expected.get(name, [0]))


SIZES: Mapping[str, Sequence[Any]] = {
    "f": [5e-324, 2.0**-1022, 2.0**-31, 0.1, math.nextafter(0.3, 0), 0.3, 1.0, 2.5, 2.0**40, 2.0**54, 1e17, 1e300],
    "i": [Fraction(1, 3), 1, 7, 2**32 - 1, 2**32, 2**53 + 1, LARGEST_INTEGER, 2**63, 2**64],
    "d": [Fraction(1, 300), Fraction(1, 100), Fraction(1, 3), 1, LARGEST_DECIMAL, 10**40],
}  # fmt: skip


def _ranked(table: ir.Table, rows: Rows, found: Findings) -> None:
    """Ranks: how many rows are smaller than each of several sizes."""
    table = keep(table, "f < 1e308 and f > -1e308 and i is not null and d is not null")
    rows = {n: row for n, row in rows.items() if row.f is not None and abs(row.f) < 1e308 and row.i is not None}
    for name, given in SIZES.items():
        sizes, values = [Fraction(size) for size in given], [abs(Fraction(getattr(row, name))) for row in rows.values()]
        below, total = records_below(table, Column(name, Fraction(1)), sizes)
        found.compare(RANK_CHECKS, f"the number of rows ranked by {name}", total, len(rows))
        for size, got in zip(sizes, below, strict=True):
            found.compare(
                RANK_CHECKS, f"the number of rows with |{name}| < {size}", got, sum(one < size for one in values)
            )


def _refused(table: ir.Table, rows: Rows, found: Findings) -> None:
    """Floats that cannot be ranked are reported."""
    for code, name in {"nulls": "NULL", "nan": "NaN", "infinite": "infinity"}.items():
        if not any(row.property == name for row in rows.values()):
            continue
        try:
            records_below(keep(table, _is(name)), FLOATS, [Fraction(1)])
        except DataError as error:
            found.compare(name, "the error about a rank", error.codes, (code,))
        else:
            found.compare(name, "the error about a rank", None, (code,))


def _entities(table: ir.Table, rows: Rows, found: Findings) -> None:
    """Sums and ranks of entities, whose totals are compared with their largest values."""
    rows = {n: row for n, row in rows.items() if row.property == ENTITIES}
    if not rows:
        return
    table, keys = keep(table, _is(ENTITIES)), Keys.cross({"property": [ENTITIES]})
    totals = {name: _added((row.firm, [Fraction(getattr(row, name))]) for row in rows.values()) for name in "fi"}
    largest = {name: max(abs(total) for _, total in totals[name].values()) for name in "fi"}
    most = Fraction(max(count for count, _ in totals["f"].values()))
    for low in (None, "f", "i"):
        bounds = {name: size - Fraction(name == low, 4) for name, size in largest.items()}
        columns = [Column(name, Fraction(1), largest=bound) for name, bound in bounds.items()]
        try:
            got = exact_sums(table, columns, keys, protect="firm", most_records=most)
        except DataError as error:
            found.compare(
                ENTITIES, f"the comparison with the largest value of {low}", error.codes, low and ("above-largest",)
            )
            continue
        sums = [_total(got.sums[name], 0) for name in "fi"]
        expected = None if low else [sum(total for _, total in totals[name].values()) for name in "fi"]
        found.compare(ENTITIES, "the sums", sums, expected)
    for name in "fi":
        sizes = sorted({abs(total) for _, total in totals[name].values()} | {Fraction(2) ** 62})
        below, count = records_below(table, Column(name, sizes[0]), sizes, protect="firm")
        wanted = [sum(abs(total) < size for _, total in totals[name].values()) for size in sizes]
        found.compare(ENTITIES, f"the ranks of {name}", (below, count), (wanted, len(totals[name])))


# Columns whose sum must fail for the rows of `OVERFLOW`.
OVERFLOWS = ("d", "i + 1", "i * 2", "-i - 2", "cast(i as integer)")


def _check_overflows(table: ir.Table, found: Findings) -> None:
    """What must fail: numbers that do not fit."""
    for text in OVERFLOWS:
        try:
            total = exact_sums(derive(table, {"x": text}), [Column("x", Fraction(1))], None).sums["x"]
        except Exception as error:
            _check_reached(error)
            found.checks += 1
        else:
            found.compare(OVERFLOW, f"the sum of {text}", _total(total, 0), None)


PARTS: Mapping[str, Part] = {
    "adding up": _sums,
    "adding up by public keys": _keyed_sums,
    "deriving columns": _derived,
    "filtering": _filtered,
    "ranking": _ranked,
    "refusing to rank": _refused,
    "adding up entities": _entities,
}


def self_test(table: ir.Table, without: Collection[str] = ()) -> int:
    """Return the number of results that were compared, or raise unless all are as expected.

    Parameters
    ----------
    table
        The rows on the engine, as `arrow_rows` returns them.
    without
        Properties whose rows the table does not have.
    """
    found = findings(table, without)
    if found.wrong:
        (name, problem), *others = found.wrong.items()
        also = f" (also wrong: {', '.join(name for name, _ in others)})" if others else ""
        raise EngineError(
            engine_of(table).title,
            f"does not compute as a release needs it. {name}: {problem}{also}",
            code="nonconforming",
            remedy="use a server of Apache Spark 4, or export the table to Parquet",
        )
    return found.checks


def findings(table: ir.Table, without: Collection[str] = ()) -> Findings:
    """Return what the self-test found; see `self_test`."""
    rows, found, title = rows_without((OVERFLOW, *without)), Findings(), engine_of(table).title
    found.compare("the rows", "their number", _count(table, title), len(rows_without(without)))
    for doing, part in PARTS.items():
        rows = {n: row for n, row in rows.items() if row.property not in found.wrong}
        some = keep(table, _is(*(row.property for row in rows.values())))
        try:
            part(some, rows, found)
        except Exception as error:
            _check_reached(error)
            _count(table, title)
            _search(part, doing, error, some, rows, found)
    _check_overflows(keep(table, _is(OVERFLOW)), found)
    _count(table, title)  # a server that stopped answering has not passed
    return found


def _search(part: Part, doing: str, error: Exception, table: ir.Table, rows: Rows, found: Findings) -> None:
    """Find the properties whose rows make a part fail."""
    before = len(found.wrong)
    for name in dict.fromkeys(row.property for row in rows.values()):
        try:
            part(keep(table, _is(name)), {n: row for n, row in rows.items() if row.property == name}, found)
        except Exception as problem:
            _check_reached(problem)
            found.wrong.setdefault(name, f"{doing} fails ({_reason(problem)})")
    if len(found.wrong) == before:
        found.wrong["all rows together"] = f"{doing} fails ({_reason(error)})"


def _is(*properties: str) -> str:
    """Return the condition of the rows of some properties."""
    return f"property in ({', '.join(map(repr, sorted({'', *properties})))})"


def _count(table: ir.Table, title: str) -> int:
    """Return the number of rows; raise if the engine does not answer."""
    with engine_errors(title, "did not answer a self-test"):
        return int(fetch(table.aggregate(rows=table.count()))["rows"][0].as_py())


def _check_reached(error: Exception) -> None:
    """Raise the error if it says that the server does not answer."""
    if isinstance(error, EngineError) and error.code == UNREACHABLE:
        raise error


def _reason(error: Exception) -> str:
    """Return the reason of a failure; it may be quoted, because all rows are constants."""
    cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
    return f"{type(cause).__name__}: {first_line(cause)[:LONGEST_SHOWN]}"


# Sessions of Spark Connect.

# For each session, its identity and that of the server, and the self-test that passed, or the error.
_tested: "WeakKeyDictionary[Any, tuple[Any, SelfTest | EngineError]]" = WeakKeyDictionary()
# The session that is being tested: its queries must not wait for the result.
_testing: ContextVar[Any] = ContextVar("testing", default=None)


def proof(backend: Any) -> SelfTest:
    """Return the self-test of the server behind a session of Spark Connect; run it if it was not run yet."""
    session = backend._session
    identity = session.session_id, getattr(session.client, "_server_session_id", None)
    known, result = _tested.get(session, (None, None))
    if result is None or known != identity:
        with locked(backend):
            result = _prove(backend)
        # The server states its identity with its first answer.
        identity = session.session_id, getattr(session.client, "_server_session_id", None)
        _tested[session] = identity, result
    if isinstance(result, EngineError):
        raise result.with_traceback(None)
    return result


def is_being_tested(backend: Any) -> bool:
    """Return whether the queries on a session are those of its self-test."""
    return _testing.get() is backend._session


def _prove(backend: Any) -> SelfTest | EngineError:
    engine, marker = engine_of_connection(backend), _testing.set(backend._session)
    try:
        with engine_errors(engine.title, "could not be tested"), _quiet(), connect_rows(backend) as table:
            return SelfTest(engine.title, str(backend._session.version), self_test(table))
    except EngineError as error:
        if error.code != "nonconforming":
            raise
        return error
    finally:
        _testing.reset(marker)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep PySpark from logging the errors of queries that must fail."""
    from pyspark.logger import PySparkLogger

    log = PySparkLogger.getLogger("SQLQueryContextLogger")  # of this class: PySpark passes it further arguments
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


@contextmanager
def connect_rows(backend: Any) -> Iterator[ir.Table]:
    """Put the rows on a Spark server for a while.

    The rows are joined with numbers that the server counts in several partitions. Otherwise it would know all of them
    before it runs a query, and compute the result while it plans the query, by other code than that of a release.
    """
    session, rows = backend._session, arrow_rows(rows_without(()))
    given, name = fresh_name("slowscale_given"), fresh_name("slowscale_selftest")
    views = [f"{given}_{os.getpid()}", f"{name}_{os.getpid()}"]

    def make(collation: str | None) -> None:
        session.sql(_spread(views[0], collation)).createOrReplaceTempView(views[1])

    ask_spark(session, lambda: session.createDataFrame(rows).createOrReplaceTempView(views[0]))
    try:
        ask_spark(session, lambda: make("UTF8_LCASE"))
    except Exception as error:
        _check_reached(error)
        ask_spark(session, lambda: make(None))  # a server without collations
    try:
        yield ask_spark(session, lambda: backend.table(views[1]))
    finally:
        for view in views:
            with suppress(Exception):
                ask_spark(session, partial(session.catalog.dropTempView, view))


def _spread(view: str, collation: str | None) -> str:
    """Return the SQL of the rows, with labels that are compared by a collation."""
    columns = []
    for name in ("n", *LABEL_KINDS, *"fidt", "firm"):
        collated = f" COLLATE {collation}" if collation and name in ("k", "firm") else ""
        columns.append(f"CASE WHEN r.id >= 0 THEN v.{name} END{collated} AS {name}")
    return f"SELECT {', '.join(columns)} FROM {view} AS v JOIN range(0, {len(SELF_TEST_ROWS)}, 1, 4) AS r ON r.id = v.n"
