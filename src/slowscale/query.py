"""Queries: what to publish, as a value that is built first and carried out later.

A new query is checked as far as this is possible without the data. `Session.preview` returns its cost, and
`Session.release` carries it out. A plan file is turned into a query.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import Any, NoReturn

import ibis.expr.types as ir
from ibis.common.deferred import Deferred

from slowscale.accounting.record import COUNT, folded
from slowscale.errors import ParameterError, ParameterTypeError
from slowscale.mechanisms import Mechanism, TransformationMechanism
from slowscale.mechanisms.grid import as_unit
from slowscale.parameters import check_flag, lazy, level_quantile
from slowscale.release.ratios import check_interval
from slowscale.tables.keys import Keys
from slowscale.tables.rowwise import Expression
from slowscale.typing import UnitLike

# The suffixes of the columns that are released for one summed column; the last one for transformations only.
COLUMN_SUFFIXES = ("", "_se", "_low", "_high", "_transformed")
TREATMENTS = ("error", "zero")  # of missing and of negative values


class _FrozenDict(dict[str, Any]):
    """A dictionary that cannot be changed: what was previewed is what is released."""

    def _refuse(self, *given: Any, **named: Any) -> NoReturn:
        raise TypeError("a query cannot be changed; make a new one with dataclasses.replace(query, …)")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> Any:
        return type(self), (dict(self),)  # copying and pickling would otherwise set the items one by one


@dataclass(frozen=True, eq=False)
class Query:
    """What to publish: sums of columns, the number of records, or both; by public key or in total.

    A query keeps copies of the mappings and lists that it is given, and cannot be changed. Queries can be compared, but
    not hashed.

    Parameters
    ----------
    columns
        The columns to sum, each with its mechanism.
    by
        The columns to group by. The default is the columns of `keys`.
    keys
        The public keys. Without `keys` and `by`, the total over all records is published.
    count
        A mechanism for the number of records, which is published as a column "count".
    unit
        The grid that results are rounded to: an int, a Decimal or text such as "0.01"; or a mapping of columns to
        their units.
    level
        The level of the intervals.
    means
        The kind of interval for means (see `Release.ratio`), to publish also the mean of each column: its sum divided
        by the count. None publishes no means.
    where
        A condition that records must meet: an Ibis expression, or SQL text such as "emp > 0". It is evaluated row by
        row.
    derive
        New columns, as Ibis expressions or SQL text, evaluated row by row: {"pay_k": "payann / 1000"}.
    nulls
        "error", or "zero" to count missing values as 0.
    negatives
        For transformation mechanisms, which need sums >= 0: "error", or "zero" to count negative values as 0.
    nonnegative
        Whether to raise negative results to 0. This biases them upwards, and the release says so.
    partition
        A key column that splits the records into disjoint parts, such as "state": a release for Texas and one for Iowa
        then cost a record the larger of the two losses, not their sum.

    >>> from slowscale import Gaussian
    >>> Query({"emp": Gaussian(10)}, count=Gaussian(2)).mechanisms["count"]
    Gaussian(sigma=2.0)
    """

    columns: Mapping[str, Mechanism] = field(default_factory=dict)
    by: str | Sequence[str] | None = None
    keys: Keys | None = None
    count: Mechanism | None = field(default=None, kw_only=True)
    unit: UnitLike | Mapping[str, UnitLike] = field(default=1, kw_only=True)
    level: float = field(default=0.95, kw_only=True)
    means: str | None = field(default=None, kw_only=True)
    where: Expression | None = field(default=None, kw_only=True)
    derive: Mapping[str, Expression] | None = field(default=None, kw_only=True)
    nulls: str = field(default="error", kw_only=True)
    negatives: str = field(default="error", kw_only=True)
    nonnegative: bool = field(default=False, kw_only=True)
    partition: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        columns = _checked_columns(self.columns) if self.columns or self.count is None else {}
        _check_reserved_names(columns)
        if self.count is not None:
            _check_mechanism("count", self.count)
        level_quantile(self.level)
        check_flag("nonnegative", self.nonnegative)
        for argument, given in (("nulls", self.nulls), ("negatives", self.negatives)):
            if given not in TREATMENTS:
                raise ParameterError(f'{argument} must be "error" or "zero", got {given!r}')
        for name, value in (
            ("columns", _FrozenDict(columns)),
            ("level", float(self.level)),
            ("keys", _ordered_keys(self.by, self.keys)),
            ("by", tuple(self.by) if isinstance(self.by, list) else self.by),
            ("unit", _frozen(self.unit)),
            ("derive", _frozen(self.derive)),
        ):
            object.__setattr__(self, name, value)
        _units(self.unit, self.mechanisms, self.counted)  # raises if a unit is wrong
        self._check_means()
        _check_released_names(self.mechanisms, self.keys)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Query):
            return NotImplemented
        return all(_equal(getattr(self, one.name), getattr(other, one.name)) for one in fields(self))

    __hash__ = None  # type: ignore[assignment] # as that of `Keys`, which may be a large table

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

    def _check_means(self) -> None:
        if self.means is None:
            return
        check_interval(self.means, "means")
        if self.count is None:
            raise ParameterError("count must be given to publish means, which are sums divided by the count")
        taken = {*(self.keys.columns if self.keys is not None else ()), *self.mechanisms}
        for name in self.columns:
            if any(f"{name}_mean{suffix}" in taken for suffix in COLUMN_SUFFIXES):
                raise ParameterError(
                    f"column '{name}_mean' would be in the release twice; derive a column with another name"
                )


def _frozen(value: Any) -> Any:
    """Return a mapping as a copy that cannot be changed, and anything else as it is."""
    return _FrozenDict(value) if isinstance(value, Mapping) else value


def _equal(one: Any, other: Any) -> bool:
    """Whether two fields of queries are equal. The == of Ibis expressions would make another expression."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_equal(one[name], other[name]) for name in one)
    if isinstance(one, ir.Expr) or isinstance(other, ir.Expr):
        return isinstance(one, ir.Expr) and isinstance(other, ir.Expr) and one.equals(other)
    if isinstance(one, Deferred) or isinstance(other, Deferred):
        both = isinstance(one, Deferred) and isinstance(other, Deferred)
        return both and bool(one._resolver == other._resolver)
    return bool(one == other)


def _check_mechanism(name: str, mechanism: object) -> None:
    if not isinstance(mechanism, Mechanism):
        raise ParameterTypeError(f"{name} needs a mechanism such as ss.Gaussian(sigma), got {mechanism!r:.60}")


def _checked_columns(columns: Any) -> dict[str, Mechanism]:
    if not isinstance(columns, Mapping) or not columns:
        raise ParameterTypeError(
            'columns must be a mapping of columns to mechanisms, such as {"emp": ss.Root(4, 1)}, or count must be '
            f"given; got {columns!r:.60} and no count"
        )
    for name in columns:
        if not isinstance(name, str) or not name:
            raise ParameterTypeError(f"columns must be named by text, got {name!r}")
    for name, mechanism in columns.items():
        _check_mechanism(f"columns[{name!r}]", mechanism)
    return dict(columns)


def _check_reserved_names(mechanisms: Mapping[str, Mechanism]) -> None:
    """Raise if a column to sum has a reserved name."""
    for column in mechanisms:
        if folded(column) in (COUNT, "*"):
            meaning = "the number of records" if folded(column) == COUNT else "the cap of every other column"
            raise ParameterError(
                f"columns: the name {column!r} is reserved for {meaning}; derive a column with another name"
            )


def _units(unit: Any, mechanisms: Mapping[str, Mechanism], count: str | None) -> dict[str, Fraction]:
    if not isinstance(unit, Mapping):
        unit = {name: unit for name in mechanisms if name != count}
    for name in unit:
        if name not in mechanisms or name == count:
            raise ParameterError(
                f"unit names {name!r}, which is not summed; the summed columns are {', '.join(mechanisms)}"
            )
    return {name: as_unit(unit.get(name, 1)) for name in mechanisms}


def _ordered_keys(by: Any, keys: Any) -> Keys | None:
    """Return the keys with their columns in the order of `by`, or raise if the two do not fit together."""
    names = [by] if isinstance(by, str) else None if by is None else by
    if names is not None and not (isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)):
        raise ParameterTypeError(f"by must be a column or a list of columns, got {by!r:.60}")
    if keys is None:
        if names:
            raise ParameterError(
                "keys must be given with by: which group labels occur in the data may reveal records. Use "
                "ss.Keys.from_frame, .cross or .from_file, or declare them public with ss.Keys.public_in(data, by)"
            )
        return None
    if not isinstance(keys, Keys):
        raise ParameterTypeError(
            f"keys must be ss.Keys, for instance ss.Keys.from_frame(keys); got {type(keys).__name__}"
        )
    if names is None:
        return keys
    if sorted(names) != sorted(keys.columns):
        raise ParameterError(f"by must name the columns of keys ({', '.join(keys.columns)}), got {', '.join(names)}")
    return Keys(keys.table.select(names), keys.assumption)


def _check_released_names(mechanisms: Mapping[str, Mechanism], keys: Keys | None) -> None:
    """Raise if two columns of the release would have the same name."""
    taken = () if keys is None else keys.columns
    for name, mechanism in mechanisms.items():
        if name in taken:
            raise ParameterError(
                f"column {name!r} is a key column, so it cannot be summed; derive a column with another name"
            )
        for suffix in COLUMN_SUFFIXES if isinstance(mechanism, TransformationMechanism) else COLUMN_SUFFIXES[:-1]:
            if name + suffix in taken or (suffix and name + suffix in mechanisms):
                raise ParameterError(
                    f"column {name + suffix!r} would be in the release twice; derive a column with another name"
                )
