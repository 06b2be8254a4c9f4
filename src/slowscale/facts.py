"""The facts of a release: everything that is public about it, typed, and in a form that JSON can hold.

They travel with the table. The library reads them by attribute. They are also a mapping (`facts["columns"]`) with the
names and values that files have; `facts.to_dict()` returns a dictionary for `json.dumps`. Facts that files of earlier
versions lack get a default that is true of such files, and entries that this version does not know are kept.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from fractions import Fraction
from typing import Any

from slowscale.errors import ParameterError

FORMAT = 1
# Facts that every file has had from the first version on. A default would be a claim that the file does not make.
REQUIRED = ("private", "protect", "notion", "policy", "keys", "where", "columns", "ratios")
FROM_DATA = "taken from the data"  # in an assumption of earlier versions, if the keys came from the data


@dataclass(frozen=True, eq=False)
class _WrittenFacts(Mapping[str, Any]):
    """Facts that are also the mapping that is written to files.

    Attributes
    ----------
    unknown
        The entries of a file that this version of slowscale does not know. They are written again.
    """

    unknown: Mapping[str, Any] = field(default_factory=dict, kw_only=True)

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as a dictionary that `json.dumps` accepts and that may be changed."""
        found = {_name_in_files(one.name): getattr(self, one.name) for one in fields(self) if one.name != "unknown"}
        found.update(self.unknown)
        return {name: _as_json(value) for name, value in found.items() if value is not ABSENT}

    def copy(self) -> dict[str, Any]:
        """Return the same as `to_dict`."""
        return self.to_dict()

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**self, **other} if isinstance(other, Mapping) else NotImplemented

    def __ror__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**other, **self} if isinstance(other, Mapping) else NotImplemented

    def __getitem__(self, name: str) -> Any:
        return self.to_dict()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_dict())

    def __len__(self) -> int:
        return len(self.to_dict())

    def __hash__(self) -> int:
        return hash(repr(self))


class _Absent:
    """The value of a fact that is not written to files."""

    def __repr__(self) -> str:
        return "ABSENT"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> str:
        return "ABSENT"


ABSENT: Any = _Absent()


def _as_json(value: Any) -> Any:
    if isinstance(value, _WrittenFacts):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {name: _as_json(one) for name, one in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _entries(cls: Any, description: Any, place: str) -> dict[str, Any]:
    """Return the entries of a description as arguments of a class, or raise an error that says what is missing."""
    given = dict(_mapping(description, place))
    known = [one for one in fields(cls) if one.name != "unknown"]
    _check_entries(given, [one.name for one in known if {one.default, one.default_factory} == {MISSING}], place)
    found = {one.name: given.pop(_name_in_files(one.name)) for one in known if _name_in_files(one.name) in given}
    return {**found, "unknown": given}


def _check_entries(given: Mapping[str, Any], needed: Iterable[str], place: str) -> None:
    missing = [name for name in needed if name not in given]
    if missing:
        raise ParameterError(f"{place} must have the entry {', '.join(map(repr, missing))}, but it is missing")


def _mapping(description: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(description, Mapping):
        raise ParameterError(f"{place} must be a mapping, got {type(description).__name__}")
    return description


def _name_in_files(name: str) -> str:
    """Return the name of a fact in files. An attribute `keys` would hide the method `keys` of mappings."""
    return "keys" if name == "cells" else name


@dataclass(frozen=True, eq=False)
class LedgerHead(_WrittenFacts):
    """The ledger entry with the charge of a release: its number and its hash."""

    entry: int
    hash: str

    @staticmethod
    def from_dict(description: Mapping[str, Any]) -> "LedgerHead":
        """Return the facts that `to_dict` wrote."""
        return LedgerHead(**_entries(LedgerHead, description, "ledger"))


@dataclass(frozen=True, eq=False)
class KeysFacts(_WrittenFacts):
    """The public cells: the kinds of labels of each key column, the number of cells, and why they are public."""

    columns: Mapping[str, str]
    count: int
    assumption: str
    from_data: bool = False

    @staticmethod
    def from_dict(description: Mapping[str, Any]) -> "KeysFacts":
        """Return the facts that `to_dict` wrote."""
        given = _entries(KeysFacts, description, "keys")
        given.setdefault("from_data", FROM_DATA in given["assumption"])
        return KeysFacts(**given)


@dataclass(frozen=True, eq=False)
class PartitionFacts(_WrittenFacts):
    """The records that a release is about: those with certain labels in a column."""

    by: str
    labels: tuple[Any, ...]

    @staticmethod
    def from_dict(description: Mapping[str, Any]) -> "PartitionFacts":
        """Return the facts that `to_dict` wrote."""
        given = _entries(PartitionFacts, description, "partition")
        return PartitionFacts(**{**given, "labels": tuple(given["labels"])})


@dataclass(frozen=True, eq=False)
class ColumnFacts(_WrittenFacts):
    """A released column.

    Attributes
    ----------
    kind
        "sum" or "count".
    mechanism, described
        The mechanism as `Mechanism.from_dict` reads it (None if it has a function without a name), and as text.
    unit, level
        The grid of the results, as text, and the level of the intervals.
    nonnegative, estimator
        Whether negative results were raised to 0, and in which sense the estimate is unbiased.
    se
        What the standard error is.
    at_least
        The lower bound on the true sums, or None if none is known.
    on_grid
        Whether the type of the column implies that the true sums are multiples of the unit. Files of earlier versions
        do not say.
    rounding_bias
        The largest bias that rounding to the unit can add.
    nulls, negatives
        How missing and negative values were treated.
    """

    kind: str
    mechanism: Mapping[str, Any] | None
    described: str
    unit: str
    level: float
    nonnegative: bool
    estimator: str
    se: str = ABSENT
    at_least: int | None = ABSENT
    on_grid: bool = ABSENT
    rounding_bias: float = ABSENT
    nulls: str = ABSENT
    negatives: str = ABSENT

    @staticmethod
    def from_dict(description: Mapping[str, Any], name: str = "") -> "ColumnFacts":
        """Return the facts that `to_dict` wrote. Errors state the name of the column."""
        found = ColumnFacts(**_entries(ColumnFacts, description, f"columns[{name!r}]"))
        try:
            positive = isinstance(found.unit, str) and found.grid > 0
        except (ValueError, ZeroDivisionError):
            positive = False
        if not positive:
            raise ParameterError(f"columns[{name!r}] must have a number > 0 as unit, got {found.unit!r:.60}")
        return found

    @property
    def is_count(self) -> bool:
        """Whether the column is the number of records."""
        return self.kind == "count"

    @property
    def surely_on_grid(self) -> bool:
        """Whether the true sums are known to be multiples of the unit. Counts always are."""
        return self.is_count if self.on_grid is ABSENT else self.on_grid

    @property
    def grid(self) -> Fraction:
        """The unit as a number."""
        return Fraction(self.unit)


@dataclass(frozen=True, eq=False)
class RatioFacts(_WrittenFacts):
    """A ratio of two released columns, with the level and the kind of its interval."""

    numerator: str
    denominator: str
    level: float
    interval: str
    approximate: bool

    @staticmethod
    def from_dict(description: Mapping[str, Any], name: str = "") -> "RatioFacts":
        """Return the facts that `to_dict` wrote. Errors state the name of the ratio."""
        return RatioFacts(**_entries(RatioFacts, description, f"ratios[{name!r}]"))


@dataclass(frozen=True, eq=False)
class QuantilesFacts(_WrittenFacts):
    """Released quantiles of record sizes.

    Attributes
    ----------
    column
        The column whose absolute values are the sizes.
    at
        The share of smaller records that each quantile aims at.
    grid
        The public sizes, one of which each quantile is.
    rates
        By how much one rank lowers the logarithm of the probability of a size, for each quantile.
    nulls
        How missing values were treated.
    """

    column: str
    at: tuple[float, ...]
    grid: tuple[float, ...]
    rates: tuple[float, ...]
    nulls: str = "error"

    @staticmethod
    def from_dict(description: Mapping[str, Any]) -> "QuantilesFacts":
        """Return the facts that `to_dict` wrote."""
        given = _entries(QuantilesFacts, description, "quantiles")
        return QuantilesFacts(**{**given, **{name: tuple(given[name]) for name in ("at", "grid", "rates")}})


@dataclass(frozen=True, eq=False)
class RollupFacts(_WrittenFacts):
    """How a release was made by adding the published cells of another one.

    Attributes
    ----------
    of
        The identifier of the release with the cells.
    over
        The key columns of the cells that were added over.
    levels
        The levels of hierarchies that the sums are for, each with the key column that it groups.
    number
        The name of the column with the number of cells in each sum.
    complete
        Whether the cells are all combinations of the labels of their key columns, or None if there are no key columns.
        Records in other cells are in no sum in either case.
    rules
        How the interval of each column was computed, in words.
    """

    of: str
    over: tuple[str, ...]
    levels: Mapping[str, str]
    number: str
    complete: bool | None
    rules: Mapping[str, str]

    @staticmethod
    def from_dict(description: Mapping[str, Any]) -> "RollupFacts":
        """Return the facts that `to_dict` wrote."""
        given = _entries(RollupFacts, description, "rollup")
        return RollupFacts(**{**given, "over": tuple(given["over"])})


@dataclass(frozen=True, eq=False)
class SetTableFacts(_WrittenFacts):
    """One table of a set of tables.

    Attributes
    ----------
    id
        The identifier of its release.
    of
        The table that it is derived from, or None if it is drawn, with noise of its own.
    by
        Its key columns; empty for a total.
    rows
        The number of its rows.
    formula
        The loss of a record by the table, as text; empty for a derived table, which adds nothing.
    """

    id: str
    of: str | None
    by: tuple[str, ...]
    rows: int
    formula: str = ""

    @property
    def drawn(self) -> bool:
        """Whether the table has noise of its own."""
        return self.of is None

    @staticmethod
    def from_dict(description: Mapping[str, Any], name: str = "") -> "SetTableFacts":
        """Return the facts that `to_dict` wrote. Errors state the name of the table."""
        given = _entries(SetTableFacts, description, f"table_set['tables'][{name!r}]")
        return SetTableFacts(**{**given, "by": tuple(given["by"])})


@dataclass(frozen=True, eq=False)
class SetFacts(_WrittenFacts):
    """The set of tables that a release belongs to, which was charged as a whole.

    Attributes
    ----------
    id
        The identifier of the set.
    table
        Which of the tables the release is, or None for the set itself.
    tables
        All tables of the set, by name.
    formula, policy, pure_policy
        The loss of a record by the whole set, as text and as `RecordPolicy.from_dict` reads it; then its PRDP loss (or
        None).
    """

    id: str
    table: str | None
    tables: Mapping[str, SetTableFacts]
    formula: str
    policy: Sequence[Mapping[str, Any]] | None
    pure_policy: Sequence[Mapping[str, Any]] | None = None

    @property
    def drawn(self) -> tuple[str, ...]:
        """The names of the tables with noise of their own."""
        return tuple(name for name, table in self.tables.items() if table.drawn)

    @staticmethod
    def from_dict(description: Mapping[str, Any]) -> "SetFacts":
        """Return the facts that `to_dict` wrote."""
        given = _entries(SetFacts, description, "table_set")
        tables = _mapping(given["tables"], "table_set['tables']")
        return SetFacts(
            **{**given, "tables": {name: SetTableFacts.from_dict(one, name) for name, one in tables.items()}}
        )


@dataclass(frozen=True, eq=False)
class CombinedFacts(_WrittenFacts):
    """How drawn tables that overlap were combined, so that everything adds up.

    Attributes
    ----------
    of
        The identifier of the set of tables as it was drawn.
    method
        "least squares" or "likelihood".
    columns, tables
        The columns whose numbers are combined estimates, and the drawn tables that they are estimated from.
    simulations, seed
        The intervals come from so many simulations of the noise, with this seed.
    assumption
        What must hold for the estimates to be unbiased, in words.
    """

    of: str
    method: str
    columns: tuple[str, ...]
    tables: tuple[str, ...]
    simulations: int
    seed: int
    assumption: str

    @staticmethod
    def from_dict(description: Mapping[str, Any]) -> "CombinedFacts":
        """Return the facts that `to_dict` wrote."""
        given = _entries(CombinedFacts, description, "combined")
        return CombinedFacts(**{**given, **{name: tuple(given[name]) for name in ("columns", "tables")}})


@dataclass(frozen=True, eq=False)
class Facts(_WrittenFacts):
    """Everything that is public about a release.

    Attributes
    ----------
    format, id, slowscale, created
        The format of the facts, the identifier of the release, the version of slowscale, and the time of the release.
    private
        Whether the noise came from secret bits.
    protect, protects
        The column that tells which records belong to one entity (or None), and a text that says what is protected.
    dataset
        The name of the data set, if it has one.
    accounting
        Which policy of each mechanism was charged: "closed", its closed form, or "tight", the smallest one known.
    notion, formula, policy, pure_policy, pure_columns
        The privacy notion, and the loss of a record: as text, and as `RecordPolicy.from_dict` reads it; then its PRDP
        loss by all columns (or None), and by the columns that have such a guarantee.
    cells, partition, where, derived
        The public cells, the part of the records that the release is about, the filter and the derived columns.
    not_sql
        Which filter ("where") and derived columns ("derive.x") were Ibis expressions. Their text above is then only a
        name, from which the expression cannot be made again.
    columns, ratios
        The published columns, and the ratios of such columns.
    quantiles
        The quantiles, if those are what was released.
    rollup
        How the release was made from the cells of another one, if it was.
    table_set
        The set of tables that the release belongs to, if it is one of several.
    combined
        How overlapping tables were combined, if they were.
    ledger
        The ledger entry with the charge, if there is a ledger.
    """

    id: str = ""
    format: int = FORMAT
    slowscale: str = ""
    created: str = ""
    private: bool = True
    protect: str | None = None
    protects: str = ""
    dataset: str | None = ABSENT
    notion: str = ""
    accounting: str = "closed"  # earlier versions charged closed forms only
    formula: str = ""
    policy: Mapping[str, Any] | None = None
    pure_policy: Mapping[str, Any] | None = None
    pure_columns: Mapping[str, Any] | None = ABSENT
    cells: KeysFacts | None = None
    partition: PartitionFacts | None = None
    where: str | None = None
    derived: Mapping[str, str] = field(default_factory=dict)
    not_sql: tuple[str, ...] = ABSENT
    columns: Mapping[str, ColumnFacts] = field(default_factory=dict)
    ratios: Mapping[str, RatioFacts] = field(default_factory=dict)
    quantiles: QuantilesFacts | None = ABSENT
    rollup: RollupFacts | None = ABSENT
    table_set: SetFacts | None = ABSENT
    combined: CombinedFacts | None = ABSENT
    ledger: LedgerHead | None = ABSENT

    @staticmethod
    def from_dict(description: Mapping[str, Any]) -> "Facts":
        """Return the facts that `to_dict` of this version or of an earlier one wrote."""
        given = _entries(Facts, description, "facts")
        if given.get("cells") is not None:
            given["cells"] = KeysFacts.from_dict(given["cells"])
        if given.get("partition") is not None:
            given["partition"] = PartitionFacts.from_dict(given["partition"])
        if given.get("not_sql"):
            given["not_sql"] = tuple(given["not_sql"])
        if given.get("quantiles"):
            given["quantiles"] = QuantilesFacts.from_dict(given["quantiles"])
        if given.get("rollup"):
            given["rollup"] = RollupFacts.from_dict(given["rollup"])
        if given.get("table_set"):
            given["table_set"] = SetFacts.from_dict(given["table_set"])
        if given.get("combined"):
            given["combined"] = CombinedFacts.from_dict(given["combined"])
        if given.get("ledger"):
            given["ledger"] = LedgerHead.from_dict(given["ledger"])
        columns, ratios = (_mapping(given.get(name, {}), name) for name in ("columns", "ratios"))
        given["columns"] = {name: ColumnFacts.from_dict(one, name) for name, one in columns.items()}
        given["ratios"] = {name: RatioFacts.from_dict(one, name) for name, one in ratios.items()}
        return Facts(**given)

    @staticmethod
    def from_file(description: Mapping[str, Any]) -> "Facts":
        """Return the facts that a file holds; raise if an entry is missing that every file has."""
        _check_entries(_mapping(description, "facts"), REQUIRED, "facts")
        return Facts.from_dict(description)
