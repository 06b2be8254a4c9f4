"""Requests for tables, as values that are built first and carried out later.

A request is a mapping of names to tables. There are three kinds of table: `Sums`, which is drawn; `Quantiles` of sizes,
which is drawn too; and `Rollup`, whose numbers are sums of the published cells of another table, so that it costs
nothing and adds up with that table exactly. The losses of a record by the drawn tables add. A request is checked
as far as this is possible without the data. `Session.preview` returns its cost, and `Session.release` carries it out.

All rules about tables are here. An error has the place of the mistake as its `path`, in the names that plan files use:
("tables", "cells", "sums", "emp", "unit").
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NoReturn, TypedDict, cast

import pyarrow as pa
import pyarrow.compute as pc

from slowscale.accounting.record import COUNT, folded
from slowscale.core.errors import ParameterError, ParameterTypeError, Shown, located, similar
from slowscale.core.files import PLAIN_NAME
from slowscale.core.parameters import as_number, check_flag, lazy, level_quantile
from slowscale.core.typing import Scalar, UnitLike
from slowscale.data.hierarchies import Hierarchy
from slowscale.data.keys import Keys
from slowscale.data.rowwise import check_text
from slowscale.mechanisms import REGISTRY, Mechanism, TransformationMechanism
from slowscale.mechanisms.grid import as_unit
from slowscale.release.numbers import MEAN_INTERVALS, check_interval

# The name of the table of a request with one table that has no name.
ONLY = "table"
# The suffixes of the columns that are released for one summed column; the last one for transformations only.
COLUMN_SUFFIXES = ("", "_se", "_low", "_high", "_transformed")
TREATMENTS = ("error", "zero")  # of missing and of negative values
MOST_GRID_SIZES, MOST_QUANTILES = 1000, 99
SMALLEST_LOSS, LARGEST_LOSS = 1e-12, 1e4
SIZES_PER_DECADE, MOST_PER_DECADE = 20, 100
MOST_RATIO = 1e300  # of the largest to the smallest size of a geometric grid
SIZE_DIGITS = 3  # significant digits of the sizes of a geometric grid
USUAL_ENDS = (1.0, 1e12)


class _FrozenDict(dict[str, Any]):
    """A dictionary that cannot be changed, so that the previewed request is the released one."""

    def _refuse(self, *given: Any, **named: Any) -> NoReturn:
        raise TypeError("a request cannot be changed; make a new one with dataclasses.replace(table, …)")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> Any:
        return type(self), (dict(self),)  # copying and pickling would otherwise set the items one by one


def _frozen(value: Any) -> Any:
    """Return a mapping as a copy that cannot be changed, and anything else as it is."""
    return _FrozenDict(value) if isinstance(value, Mapping) else value


class Table:
    """A table of a request: `Sums`, `Quantiles` or `Rollup`."""


def _check_treatment(argument: str, given: object) -> None:
    if given not in TREATMENTS:
        raise ParameterError(argument, allowed='"error" or "zero"', given=given, path=(argument,))


def _check_expressions(where: object, derive: object) -> None:
    if where is not None:
        with located("where"):
            check_text(where, "where")
    if derive is None:
        return
    if not isinstance(derive, Mapping) or not all(isinstance(name, str) for name in derive):
        allowed = 'a mapping of names to SQL text such as {"pay_k": "payann / 1000"}'
        raise ParameterTypeError("derive", allowed=allowed, given=derive, path=("derive",))
    for name, expression in derive.items():
        with located("derive", name):
            check_text(expression, f"derive[{name!r}]")


@dataclass(frozen=True)
class Sums(Table):
    """A table of sums of columns, of the number of records, or both; by public key or in total.

    It keeps copies of the mappings that it is given, and cannot be changed. It can be compared, but not hashed.

    Parameters
    ----------
    columns
        The columns to sum, each with its mechanism.
    keys
        The public keys. Without them, the total over all records is published.
    count
        A mechanism for the number of records, which is published as a column "count".
    unit
        The grid that results are rounded to: an int, a Decimal or text such as "0.01"; or a mapping of columns to
        their units.
    means
        The kind of interval for means (see `ReleasedSums.ratio`), to publish also the mean of each column: its sum
        divided by the count. None publishes no means.
    where
        A condition that records must meet, as SQL text that is evaluated row by row: "emp > 0".
    derive
        New columns, as SQL text that is evaluated row by row: {"pay_k": "payann / 1000"}.
    nulls
        "error", or "zero" to count missing values as 0.
    negatives
        For roots, logarithms and user-given functions, which need sums >= 0: "error", or "zero" to count negative
        values as 0.
    nonnegative
        Whether to raise negative results to 0. This biases them upwards, and the release says so.

    >>> from slowscale import Gaussian
    >>> Sums({"emp": Gaussian(sigma=10)}, count=Gaussian(sigma=2)).mechanisms["count"]
    Gaussian(sigma=2.0)
    """

    columns: Mapping[str, Mechanism] = field(default_factory=dict)
    keys: Keys | None = None
    count: Mechanism | None = field(default=None, kw_only=True)
    unit: UnitLike | Mapping[str, UnitLike] = field(default=1, kw_only=True)
    means: str | None = field(default=None, kw_only=True)
    where: str | None = field(default=None, kw_only=True)
    derive: Mapping[str, str] | None = field(default=None, kw_only=True)
    nulls: str = field(default="error", kw_only=True)
    negatives: str = field(default="error", kw_only=True)
    nonnegative: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        columns = _checked_columns(self.columns) if self.columns or self.count is None else {}
        if self.count is not None:
            with located("count"):
                _check_mechanism("count", self.count)
        with located("nonnegative"):
            check_flag("nonnegative", self.nonnegative)
        _check_treatment("nulls", self.nulls)
        _check_treatment("negatives", self.negatives)
        _check_expressions(self.where, self.derive)
        if self.keys is not None and not isinstance(self.keys, Keys):
            raise ParameterTypeError(
                "keys",
                allowed="ss.Keys, for instance ss.Keys.from_frame(keys)",
                given=type(self.keys),
                remedy="the labels that occur in the data may reveal records, so they are never taken from it unasked",
                path=("keys",),
            )
        for name, value in (
            ("columns", _FrozenDict(columns)),
            ("unit", _frozen(self.unit)),
            ("derive", _frozen(self.derive)),
        ):
            object.__setattr__(self, name, value)
        _units(self.unit, self.mechanisms, self.counted)  # raises if a unit is wrong
        self._check_released_names()

    __hash__ = None  # type: ignore[assignment] # as that of `Keys`, which may be a large table

    @property
    def by(self) -> tuple[str, ...]:
        """The key columns; empty for a total."""
        return () if self.keys is None else self.keys.columns

    @property
    def counted(self) -> str | None:
        """The name of the column with the number of records, or None if it is not published."""
        return None if self.count is None else COUNT

    @lazy
    def mechanisms(self) -> Mapping[str, Mechanism]:
        """The mechanism of each column, including that of the number of records under "count"."""
        return _FrozenDict({**self.columns, **({} if self.count is None else {COUNT: self.count})})

    @lazy
    def units(self) -> Mapping[str, Fraction]:
        """The unit of each column."""
        return _FrozenDict(_units(self.unit, self.mechanisms, self.counted))

    def _check_released_names(self) -> None:
        """Raise if two columns of the table would have the same name."""
        taken = {*self.by, *self.mechanisms}
        if self.means is not None:
            with located("means"):
                check_interval(self.means, "means", MEAN_INTERVALS)
                if self.count is None:
                    raise ParameterError(
                        "count", "is needed to publish means, which are sums divided by it", code="missing"
                    )
        for name, mechanism in self.mechanisms.items():
            with located(*((COUNT,) if name == self.counted else ("sums", name))):
                if name in self.by:
                    raise ParameterError(
                        f"column {name!r}",
                        "is a key column, so it cannot be summed",
                        code="conflict",
                        remedy="derive a column with another name",
                    )
                transformed = isinstance(mechanism, TransformationMechanism)
                made = [name + suffix for suffix in (COLUMN_SUFFIXES if transformed else COLUMN_SUFFIXES[:-1])[1:]]
                if self.means is not None and name in self.columns:
                    made += [f"{name}_mean{suffix}" for suffix in COLUMN_SUFFIXES]
                for other in made:
                    if other in taken:
                        raise ParameterError(
                            f"column {other!r}",
                            "would be in the release twice",
                            code="duplicate",
                            remedy="derive a column with another name",
                        )


def zero_led(keys: Keys | None) -> list[str]:
    """Return the key columns in which some label is a number that starts with a zero, such as "01".

    Of large keys, the first million is looked at.

    >>> zero_led(Keys.cross({"county": ["01003"], "naics3": ["311"]}))
    ['county']
    """
    first = () if keys is None else [factor.slice(0, 10**6) for factor in keys.factors]
    texts = {name: some[name] for some in first for name in some.column_names if pa.types.is_string(some[name].type)}
    return [name for name, labels in texts.items() if pc.any(pc.match_substring_regex(labels, "^0[0-9]+$")).as_py()]


class TableOptions(TypedDict, total=False):
    """The options that all drawn tables have, as arguments of the methods of `Session`."""

    where: str | None
    derive: Mapping[str, str] | None
    nulls: str


class SumsOptions(TableOptions, total=False):
    """The further options of `Sums`, as arguments of `Session.sum`, `count` and `mean`."""

    unit: UnitLike | Mapping[str, UnitLike]
    negatives: str
    nonnegative: bool


def checked_options(table: type[Table], options: Any) -> Any:
    """Return the options of a kind of table, or raise if one is unknown."""
    known = [one.name for one in fields(table) if one.kw_only]  # type: ignore[arg-type]
    for name in options:
        if name not in known:
            near = similar(name, known)
            if near:
                hint = f"did you mean {near!r}?"
            elif name in ("by", "group_by"):
                hint = "to group the records, give their public keys with `keys`"
            else:
                hint = f"the options are {', '.join(known)}"
            raise ParameterTypeError(name, f"is not an option of {table.__name__}", code="unknown-name", remedy=hint)
    return options


def _check_mechanism(name: str, mechanism: object) -> None:
    if not isinstance(mechanism, Mechanism):
        raise ParameterTypeError(name, allowed="a mechanism such as ss.Gaussian(sigma=10)", given=mechanism)
    if REGISTRY.get(mechanism.kind) is not type(mechanism):
        # It would be charged, and read back, as the class that it derives from.
        raise ParameterTypeError(
            name,
            f"must be a registered mechanism, but {type(mechanism).__name__} has the kind {mechanism.kind!r} of "
            "another class",
            code="unregistered",
            remedy="give the class another kind, which registers it",
        )


def _checked_columns(columns: Any) -> dict[str, Mechanism]:
    if not isinstance(columns, Mapping):
        raise ParameterTypeError(
            "columns",
            allowed='a mapping of columns to mechanisms, such as {"emp": ss.Root(k=4, sigma=1)}',
            given=columns,
            path=("sums",),
        )
    if not columns:
        raise ParameterTypeError(
            "columns",
            "and `count` are both missing, so there is nothing to publish",
            code="empty",
            remedy="name a column with its mechanism, or a mechanism for the count",
        )
    for name, mechanism in columns.items():
        if not isinstance(name, str) or not name:
            raise ParameterTypeError(
                "columns", "must be named by text", code="name", given=name, path=("sums", str(name))
            )
        if folded(name) in (COUNT, "*"):
            meaning = "the number of records" if folded(name) == COUNT else "the cap of every other column"
            raise ParameterError(
                f"column {name!r}",
                f"has a name that is reserved for {meaning}",
                code="reserved",
                remedy="derive a column with another name",
                path=("sums", name),
            )
        with located("sums", name):
            _check_mechanism(f"columns[{name!r}]", mechanism)
    return dict(columns)


def _units(unit: Any, mechanisms: Mapping[str, Mechanism], count: str | None) -> dict[str, Fraction]:
    if not isinstance(unit, Mapping):
        unit = {name: unit for name in mechanisms if name != count}
    for name in unit:
        if name not in mechanisms or name == count:
            raise ParameterError(
                "unit",
                f"has a unit for {name!r}, which is not summed",
                code="unknown-column",
                remedy=f"the summed columns are {', '.join(mechanisms)}",
                path=("sums", name, "unit"),
            )
    found = {}
    for name in mechanisms:
        with located("sums", name, "unit"):
            found[name] = as_unit(unit.get(name, 1))
    return found


@dataclass(frozen=True)
class Quantiles(Table):
    """A table of quantiles of the sizes of the records, on a public grid of sizes.

    The size of a record is its absolute value in a column. If a session protects entities, their sizes are ranked
    instead: the size of an entity is the absolute value of its total. `slowscale.release.quantiles` has the mechanism
    and the proof of its loss, which is the same for every record or entity.

    Parameters
    ----------
    column
        The column whose absolute values are the sizes.
    at
        The share of smaller records that each quantile aims at, increasing: 0.5 for the median.
    loss
        The total PRzCDP loss of a record by all the quantiles together. It is split evenly among them.
    grid
        Public sizes, increasing, of which each quantile is one. The default is `ss.size_grid()`: 20 sizes per factor of
        ten, from 1 to 10¹².
    where, derive, nulls
        As for `Sums`.
    """

    column: str
    at: Sequence[Scalar] = (0.1, 0.5, 0.9)
    loss: float = field(kw_only=True)
    grid: Sequence[Scalar] | None = field(default=None, kw_only=True)
    where: str | None = field(default=None, kw_only=True)
    derive: Mapping[str, str] | None = field(default=None, kw_only=True)
    nulls: str = field(default="error", kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not self.column:
            raise ParameterTypeError("column", allowed="the name of a column", given=self.column, path=("quantiles",))
        with located("loss"):
            loss = as_number("loss", self.loss)
            if not SMALLEST_LOSS <= loss <= LARGEST_LOSS:
                raise ParameterError(
                    "loss",
                    allowed=f"a number from {SMALLEST_LOSS:g} to {LARGEST_LOSS:g}",
                    given=self.loss,
                    remedy="it is the PRzCDP loss of all quantiles together, for instance 0.01",
                )
        _check_treatment("nulls", self.nulls)
        _check_expressions(self.where, self.derive)
        with located("at"):
            at = _checked_shares(self.at)
        with located("grid"):
            grid = _checked_grid(size_grid() if self.grid is None else self.grid)
        for name, value in (("at", at), ("loss", loss), ("grid", grid), ("derive", _frozen(self.derive))):
            object.__setattr__(self, name, value)

    @property
    def shares(self) -> tuple[Fraction, ...]:
        """The share of smaller records that each quantile aims at, exactly as it is written."""
        return cast(tuple[Fraction, ...], self.at)

    @property
    def sizes(self) -> tuple[Fraction, ...]:
        """The public sizes of the grid, exactly as they are written."""
        return cast(tuple[Fraction, ...], self.grid)

    @property
    def by(self) -> tuple[str, ...]:
        """The key columns: quantiles are of all records."""
        return ()


def quantile_name(share: float | Fraction) -> str:
    """Return the name of a quantile: "p10" for 0.1, "p99.9" for 0.999."""
    return f"p{100 * float(share):.12g}"


def _checked_shares(at: Any) -> tuple[Fraction, ...]:
    shares = [_exact("at", share) for share in _sequence("at", at, "[0.1, 0.5, 0.9]")]
    if not 1 <= len(shares) <= MOST_QUANTILES or not _increases([Fraction(0), *shares, Fraction(1)]):
        raise ParameterError(
            "at",
            allowed=f"1 to {MOST_QUANTILES} increasing numbers between 0 and 1, such as [0.1, 0.5, 0.9]",
            given=list(map(float, shares)),
            remedy="0.5 is the median",
        )
    names = [quantile_name(share) for share in shares]
    if len(set(names)) < len(names) or not {"p0", "p100"}.isdisjoint(names):
        raise ParameterError(
            "at",
            "must have shares that differ in their first 12 digits, from 0 and from 1 too",
            code="duplicate",
            given=names,
        )
    return tuple(shares)


def _checked_grid(grid: Any) -> tuple[Fraction, ...]:
    sizes = [_exact("grid", size) for size in _sequence("grid", grid, "[1, 10, 100]")]
    increases = _increases([Fraction(0), *sizes])
    if not 2 <= len(sizes) <= MOST_GRID_SIZES or not increases:
        raise ParameterError(
            "grid",
            allowed=f"2 to {MOST_GRID_SIZES} increasing numbers > 0",
            given=Shown(f"{len(sizes):,} numbers{'' if increases else ' that do not increase from above 0'}"),
            remedy="ss.size_grid(1, 1e9) makes one",
        )
    return tuple(sizes)


def _increases(numbers: Sequence[Fraction]) -> bool:
    return all(first < second for first, second in pairwise(numbers))


def _exact(name: str, value: Any) -> Fraction:
    """Return a number as it is written: the float 0.1 is one tenth."""
    number = as_number(name, value)
    if not math.isfinite(number):
        raise ParameterError(name, allowed="finite numbers", given=value)
    return Fraction(value) if isinstance(value, int | Decimal | Fraction) else Fraction(repr(number))


def _sequence(name: str, values: Any, example: str) -> list[Any]:
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise ParameterTypeError(name, allowed=f"a list of numbers such as {example}", given=values)
    return list(values)


def plain_number(number: float | Fraction) -> float:
    """Return a whole number as an int, as it is written, and any other as a float."""
    found = float(number)
    return int(found) if found.is_integer() and abs(found) < 2**53 else found


def size_grid(
    low: float = USUAL_ENDS[0], high: float = USUAL_ENDS[1], per_decade: int = SIZES_PER_DECADE
) -> tuple[float, ...]:
    """Return a geometric grid of public sizes from `low` to `high`, for quantiles.

    The sizes have three significant digits. The default has 20 sizes per factor of ten, so that neighbours differ by
    12 %, and goes from 1 to 10¹². Choose the ends by public knowledge, not by the records.

    >>> size_grid(1, 100, 4)
    (1, 1.78, 3.16, 5.62, 10, 17.8, 31.6, 56.2, 100)
    """
    ends = [as_number(name, value) for name, value in (("low", low), ("high", high))]
    if not 0 < ends[0] < ends[1] < math.inf:
        given = Shown(f"{low} and {high}")
        raise ParameterError("low and high", allowed="finite numbers with 0 < low < high", given=given)
    if not ends[1] / ends[0] < MOST_RATIO:
        problem = f"must differ by a factor below {MOST_RATIO:g}"
        raise ParameterError("low and high", problem, code="out-of-range", given=Shown(f"{low} and {high}"))
    steps = as_number("per_decade", per_decade)
    if not float(steps).is_integer() or not 1 <= steps <= MOST_PER_DECADE:
        raise ParameterError("per_decade", allowed=f"a whole number from 1 to {MOST_PER_DECADE}", given=per_decade)
    count = math.ceil(steps * math.log10(ends[1] / ends[0]) - 1e-9)
    if count + 1 > MOST_GRID_SIZES:
        raise ParameterError(
            "a grid",
            f"must have at most {MOST_GRID_SIZES} sizes, but this one has {count + 1:,}",
            code="too-many",
            remedy="choose a larger `low`, a smaller `high` or fewer `per_decade`",
        )
    inner = [float(f"{ends[0] * 10 ** (step / steps):.{SIZE_DIGITS}g}") for step in range(1, count)]
    inner = [size for size in inner if ends[0] < size < ends[1]]
    return tuple(map(plain_number, (ends[0], *dict.fromkeys(inner), ends[1])))


@dataclass(frozen=True)
class Rollup(Table):
    """A table whose numbers are sums of the published cells of another table. It adds nothing to any loss.

    Parameters
    ----------
    of
        The name of the table whose cells are added up.
    by
        The key columns to keep, or levels of a hierarchy. None of them: the total.

    >>> Rollup("cells", by=["state"])
    Rollup(of='cells', by=('state',))
    """

    of: str
    by: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.of, str) or not self.of:
            raise ParameterTypeError("of", allowed="the name of a table", given=self.of, path=("rollup",))
        by = (self.by,) if isinstance(self.by, str) else self.by
        if not isinstance(by, list | tuple) or not all(isinstance(name, str) and name for name in by):
            raise ParameterTypeError("by", allowed="a column or a list of columns", given=self.by, path=("by",))
        if len(set(by)) < len(by):
            raise ParameterError("by", "must name each column once", code="duplicate", given=by, path=("by",))
        object.__setattr__(self, "by", tuple(by))


Drawn = Sums | Quantiles


@dataclass(frozen=True)
class Request:
    """One or more tables that are published together, with one charge.

    A request cannot be changed. It can be compared, but not hashed.

    Parameters
    ----------
    tables
        The tables by name. Names consist of letters, digits, _ and -, because files are named by them.
    hierarchies
        Hierarchies of key columns, such as county → state. Their levels can be used in `Rollup.by`.
    level
        The level of all intervals.
    partition
        A key column that splits the records into disjoint parts, such as "state": a release for Texas and one for Iowa
        then cost a record the larger of the two losses, not their sum.
    period
        The period that the release is about, such as "2024". The facts of the release state it.

    Examples
    --------
    >>> import slowscale as ss
    >>> keys = ss.Keys.cross({"state": ["IA", "TX"], "naics": ["11", "31", "44"]})
    >>> request = ss.Request({
    ...     "cells": ss.Sums({"emp": ss.ExponentialPolylog.calibrate(std=75)}, keys=keys),
    ...     "states": ss.Rollup("cells", by=["state"]),
    ...     "nation": ss.Rollup("states"),
    ... })
    >>> list(request.drawn), list(request.rollups), request.source("nation")
    (['cells'], ['states', 'nation'], 'cells')
    """

    tables: Mapping[str, Table]
    hierarchies: Sequence[Hierarchy] = ()
    level: float = field(default=0.95, kw_only=True)
    partition: str | None = field(default=None, kw_only=True)
    period: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        with located("level"):
            level_quantile(self.level)
        if self.period is not None and (not isinstance(self.period, str) or not self.period.strip()):
            raise ParameterTypeError(
                "period",
                allowed='text such as "2024"',
                given=self.period,
                remedy="leave it out if there is none",
                path=("period",),
            )
        for name, value in (
            ("tables", MappingProxyType(_checked_tables(self.tables))),
            ("hierarchies", _checked_hierarchies(self.hierarchies)),
            ("level", float(self.level)),
        ):
            object.__setattr__(self, name, value)
        if not self.drawn:
            raise ParameterError(
                "tables",
                "must have at least one drawn table, of sums or quantiles, but has roll-ups only",
                code="empty",
                path=("tables",),
            )
        for name in self.rollups:
            self._check_rollup(name)
        with located("partition"):
            self._check_partition()
        _check_derived_columns(self.drawn)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        make = partial(Request, level=self.level, partition=self.partition, period=self.period)
        return make, (dict(self.tables), self.hierarchies)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables)

    def __len__(self) -> int:
        return len(self.tables)

    @property
    def cells(self) -> int:
        """The number of cells of all drawn tables of sums."""
        tables = [table for table in self.drawn.values() if isinstance(table, Sums)]
        return sum(1 if table.keys is None else len(table.keys) for table in tables)

    @lazy
    def drawn(self) -> Mapping[str, Drawn]:
        """The tables with independent noise."""
        return {name: table for name, table in self.tables.items() if isinstance(table, Drawn)}

    @lazy
    def rollups(self) -> Mapping[str, Rollup]:
        """The tables that are sums of cells of others."""
        return {name: table for name, table in self.tables.items() if isinstance(table, Rollup)}

    def source(self, name: str) -> str:
        """Return the drawn table whose cells a table consists of: the table itself, if it is drawn."""
        seen = [name]
        while isinstance(table := self.tables[seen[-1]], Rollup):
            if table.of not in self.tables:
                raise ParameterError(
                    f"table {seen[-1]!r}",
                    f"is derived from {table.of!r}, which is not a table of the request",
                    code="unknown-name",
                    remedy=f"the tables are {', '.join(self.tables)}",
                    path=("tables", seen[-1], "rollup"),
                )
            if table.of in seen:
                raise ParameterError(
                    "tables",
                    f"are derived from each other: {' from '.join([*seen, table.of])}",
                    code="cycle",
                    remedy="draw one of them, with sums and keys",
                    path=("tables", name, "rollup"),
                )
            seen.append(table.of)
        return seen[-1]

    def by(self, name: str) -> tuple[str, ...]:
        """Return the key columns of a table, or levels of a hierarchy; empty for a total."""
        return tuple(self.tables[name].by)  # type: ignore[attr-defined]

    def used_hierarchies(self, name: str) -> tuple[Hierarchy, ...]:
        """Return the hierarchies whose levels a table is published by."""
        return tuple(found for found in self.hierarchies if set(found.levels) & set(self.by(name)))

    def _check_rollup(self, name: str) -> None:
        """Raise unless a roll-up can be computed from the table that it is derived from."""
        table, source = self.rollups[name], self.drawn[self.source(name)]
        if not isinstance(source, Sums) or source.keys is None:
            kind = "quantiles, which" if isinstance(source, Quantiles) else "a total over all records and"
            raise ParameterError(
                f"table {name!r}",
                f"cannot be derived from {self.source(name)!r}, which is {kind} has no cells",
                code="no-cells",
                remedy="derive it from sums with keys",
                path=("tables", name, "rollup"),
            )
        above = self.by(table.of)
        allowed = [*above, *self.levels_above(table.of)]
        wrong = [column for column in table.by if column not in allowed]
        if wrong:
            raise ParameterError(
                f"table {name!r}",
                f"is by {', '.join(map(repr, wrong))}, but {table.of!r} can be added up by "
                f"{', '.join(allowed) or 'nothing: it is a total'}",
                code="unknown-column",
                remedy="name key columns of that table, or give the request a hierarchy with such a level",
                path=("tables", name, "by"),
            )
        if set(table.by) == set(above):
            raise ParameterError(
                f"table {name!r}",
                f"would be a copy of {table.of!r}, {'by the same columns' if above else 'which is a total already'}",
                code="duplicate",
                remedy=f"leave out at least one of {', '.join(above)}" if above else "remove it",
                path=("tables", name, "by"),
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

    @property
    def labels(self) -> frozenset[Any]:
        """The labels of the partition's column that the request is about; empty without a partition."""
        if self.partition is None:
            return frozenset()
        first = next(iter(self.drawn.values()))
        return _labels(first, self.partition)

    def _check_partition(self) -> None:
        """Raise unless all drawn tables are about the same part of the records: the request has one charge."""
        if self.partition is None:
            return
        for name, table in self.drawn.items():
            if self.partition not in table.by:
                table_name = "the table" if name == ONLY else repr(name)  # users did not name the table of a bare one
                raise ParameterError(
                    "partition",
                    f"must be a key column of every drawn table, but {table_name} is not by {self.partition!r}",
                    code="unknown-column",
                )
            if _labels(table, self.partition) != self.labels:
                raise ParameterError(
                    "partition",
                    "must have the same labels in all drawn tables, because the request is charged as a whole, "
                    f"but {name!r} has others than {next(iter(self.drawn))!r}",
                    code="mismatch",
                    remedy="leave it out, or release the disjoint parts one after the other",
                )


def _labels(table: Drawn, column: str) -> frozenset[Any]:
    """Return the labels of a key column of a table."""
    keys = table.keys if isinstance(table, Sums) else None
    return frozenset() if keys is None else frozenset(label for (label,) in keys.project(column))


def as_request(given: Any) -> Request:
    """Return a request as it is, one table as a request of one, and a mapping of tables as a request."""
    if isinstance(given, Request):
        return given
    if isinstance(given, Table):
        return Request({ONLY: given})
    if isinstance(given, Mapping) and any(isinstance(table, Table) for table in given.values()):
        return Request(given)
    raise ParameterTypeError(
        "request",
        allowed="an ss.Request or a table such as ss.Sums(…)",
        given=type(given),
        remedy="for one table of sums there is also session.sum(…)",
    )


def _determines(hierarchy: Hierarchy, column: str, level: str) -> bool:
    """Whether the label of a level follows from that of the hierarchy's column, or of another level."""
    if column == hierarchy.column:
        return True
    below, above = hierarchy.levels[column], hierarchy.levels[level]
    if isinstance(below, int) and isinstance(above, int):
        return above <= below  # numbers of first digits
    names = list(hierarchy.levels)
    return names.index(column) < names.index(level)  # levels are in ascending order, each within the next


def _checked_tables(tables: Any) -> dict[str, Table]:
    if not isinstance(tables, Mapping) or not tables:
        raise ParameterTypeError(
            "tables",
            allowed='a mapping of names to tables, such as {"cells": ss.Sums(…), "nation": ss.Rollup("cells")}',
            given=tables,
            path=("tables",),
        )
    names: dict[str, str] = {}
    for name, table in tables.items():
        if not isinstance(name, str) or PLAIN_NAME.fullmatch(name) is None:
            raise ParameterError(
                "tables",
                "must have names of letters, digits, _ and -, which files can have",
                code="name",
                given=name,
                path=("tables", name) if isinstance(name, str) else ("tables",),
            )
        other = names.setdefault(name.lower(), name)
        if other != name:
            raise ParameterError(
                "tables",
                f"has the names {other!r} and {name!r}, which some systems take for one file",
                code="duplicate",
                remedy="rename one of them",
                path=("tables", name),
            )
        if not isinstance(table, Table):
            raise ParameterTypeError(
                f"table {name!r}",
                allowed="an ss.Sums, ss.Quantiles or ss.Rollup",
                given=type(table),
                path=("tables", name),
            )
    return dict(tables)


def _checked_hierarchies(hierarchies: Any) -> tuple[Hierarchy, ...]:
    given = (hierarchies,) if isinstance(hierarchies, Hierarchy) else hierarchies
    if not isinstance(given, list | tuple) or not all(isinstance(one, Hierarchy) for one in given):
        raise ParameterTypeError(
            "hierarchies", allowed="a list of ss.Hierarchy", given=hierarchies, path=("hierarchies",)
        )
    levels = [level for one in given for level in one.levels]
    taken = {one.column for one in given}
    for i, level in enumerate(levels):
        if level in levels[:i] or level in taken:
            raise ParameterError(
                "hierarchies",
                "must have levels with different names, which are not their columns",
                code="duplicate",
                given=level,
                path=("hierarchies",),
            )
    return tuple(given)


def _check_derived_columns(drawn: Mapping[str, Drawn]) -> None:
    """Raise if a derived column is not the same in all drawn tables: the loss of the request adds up by name."""
    from slowscale.data.rowwise import sql_form

    known: dict[str, tuple[str, str, str | None]] = {}
    for name, table in drawn.items():
        derive = table.derive or {}
        used = table.columns if isinstance(table, Sums) else (table.column,)
        for column in {*used, *derive}:
            expression = derive.get(column)
            if isinstance(expression, str):
                expression = sql_form(expression, {})
            other, spelling, before = known.setdefault(folded(column), (name, column, expression))
            if other != name and (spelling != column or before != expression):
                raise ParameterError(
                    f"column {column!r}",
                    f"must be the same in all drawn tables, but `derive` makes it in another way in {name!r} than in "
                    f"{other!r}",
                    code="mismatch",
                    remedy="give one of the columns another name",
                    path=("tables", name),
                )
