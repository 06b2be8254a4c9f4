"""The facts of a release: what is public about it, typed, and as JSON can hold it.

They travel with the table. Inside the library they are read by attribute; as a mapping (`facts["columns"]`) they look
as they do in files. Files of earlier versions lack some facts: those have a value that is true of such files.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import Any

from slowscale.errors import ParameterError

FORMAT = 1
FROM_DATA = "taken from the data"  # by which earlier versions told where keys came from


class _Described(Mapping[str, Any]):
    """Facts that can also be read as the mapping which is written to files."""

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as JSON can hold them."""
        found = {_written(one.name): getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]
        return {name: _plain(value) for name, value in found.items() if value is not ABSENT}

    def __getitem__(self, name: str) -> Any:
        return self.to_dict()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_dict())

    def __len__(self) -> int:
        return len(self.to_dict())

    def __hash__(self) -> int:
        return hash(repr(self))


class _Absent:
    """Stands for a fact that is not written."""

    def __repr__(self) -> str:
        return "ABSENT"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> str:
        return "ABSENT"


ABSENT: Any = _Absent()


def _plain(value: Any) -> Any:
    if isinstance(value, _Described):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _given(cls: Any, description: Any) -> dict[str, Any]:
    """Return the entries of a description that a class has, or raise where one without a default is missing."""
    if not isinstance(description, Mapping):
        raise ParameterError(f"facts must be a mapping, got {type(description).__name__}")
    return {one.name: description[_written(one.name)] for one in fields(cls) if _written(one.name) in description}


def _written(name: str) -> str:
    """Return what a fact is called in files: a mapping has a method `keys`."""
    return "keys" if name == "cells" else name


@dataclass(frozen=True, eq=False)
class LedgerHead(_Described):
    """The entry of a ledger that a release was charged as: its number, and its hash."""

    entry: int
    hash: str


@dataclass(frozen=True, eq=False)
class KeysFacts(_Described):
    """The public cells: the kinds of their columns, how many there are, and why they are public."""

    columns: Mapping[str, str]
    count: int
    assumption: str
    from_data: bool = False

    @staticmethod
    def from_dict(description: Mapping[str, Any]) -> "KeysFacts":
        """Return the facts that `to_dict` wrote."""
        given = _given(KeysFacts, description)
        given.setdefault("from_data", FROM_DATA in given.get("assumption", ""))
        return KeysFacts(**given)


@dataclass(frozen=True, eq=False)
class PartitionFacts(_Described):
    """Which records a release is about: those with some labels of a column."""

    by: str
    labels: tuple[Any, ...]

    @staticmethod
    def from_dict(description: Mapping[str, Any]) -> "PartitionFacts":
        """Return the facts that `to_dict` wrote."""
        return PartitionFacts(description["by"], tuple(description["labels"]))


@dataclass(frozen=True, eq=False)
class ColumnFacts(_Described):
    """A released column.

    Attributes
    ----------
    kind
        "sum" or "count".
    mechanism, described
        The mechanism, as `Mechanism.from_dict` reads it (None where it has a function without a name), and in words.
    unit, level
        The grid of the results, as text, and the level of the intervals.
    nonnegative, estimator
        Whether results below 0 were raised to 0, and in which sense the estimate is unbiased.
    se
        What the standard error is.
    at_least
        The least that a true sum can be, where that is known.
    on_grid
        Whether the true sums are whole numbers of units by type. A file of an earlier version does not say.
    rounding_bias
        The largest bias by rounding to the unit.
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
    def from_dict(description: Mapping[str, Any]) -> "ColumnFacts":
        """Return the facts that `to_dict` wrote."""
        return ColumnFacts(**_given(ColumnFacts, description))

    @property
    def is_count(self) -> bool:
        """Whether it is the number of records."""
        return self.kind == "count"

    @property
    def surely_on_grid(self) -> bool:
        """Whether the true sums are known to be whole numbers of units; counts are, whatever the file says."""
        return self.is_count if self.on_grid is ABSENT else self.on_grid

    @property
    def grid(self) -> Fraction:
        """The unit as a number."""
        return Fraction(self.unit)


@dataclass(frozen=True, eq=False)
class RatioFacts(_Described):
    """A ratio of two released columns, and what its interval is."""

    numerator: str
    denominator: str
    level: float
    interval: str
    approximate: bool

    @staticmethod
    def from_dict(description: Mapping[str, Any]) -> "RatioFacts":
        """Return the facts that `to_dict` wrote."""
        return RatioFacts(**_given(RatioFacts, description))


@dataclass(frozen=True, eq=False)
class Facts(_Described):
    """All that is public about a release.

    Attributes
    ----------
    format, id, slowscale, created
        The format of the facts, the release's name, and by which version and when it was drawn.
    private
        Whether the noise came from secret bits.
    protect, protects
        The column that tells which records belong to one entity (or None), and what is protected, in words.
    dataset
        The name of the data set, if it has one.
    notion, formula, policy, pure_policy, pure_columns
        The privacy notion, and what a record may lose: in words, and as `RecordPolicy.from_dict` reads it; as PRDP by
        all columns, or by those that have such a guarantee.
    cells, partition, where, derived
        The public cells, the part of the records, the filter and the derived columns.
    columns, ratios
        What was published.
    ledger
        The entry that it was charged as, where there is a ledger.
    """

    id: str
    format: int = FORMAT
    slowscale: str = ""
    created: str = ""
    private: bool = True
    protect: str | None = None
    protects: str = ""
    dataset: str | None = ABSENT
    notion: str = ""
    formula: str = ""
    policy: Mapping[str, Any] | None = None
    pure_policy: Mapping[str, Any] | None = None
    pure_columns: Mapping[str, Any] | None = ABSENT
    cells: KeysFacts | None = None
    partition: PartitionFacts | None = None
    where: str | None = None
    derived: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, ColumnFacts] = field(default_factory=dict)
    ratios: Mapping[str, RatioFacts] = field(default_factory=dict)
    ledger: LedgerHead | None = ABSENT

    @staticmethod
    def from_dict(description: Mapping[str, Any]) -> "Facts":
        """Return the facts that `to_dict` wrote, of this version or an earlier one."""
        given = _given(Facts, description)
        if given.get("cells") is not None:
            given["cells"] = KeysFacts.from_dict(given["cells"])
        if given.get("partition") is not None:
            given["partition"] = PartitionFacts.from_dict(given["partition"])
        if given.get("ledger"):
            given["ledger"] = LedgerHead(**_given(LedgerHead, given["ledger"]))
        given["columns"] = {name: ColumnFacts.from_dict(one) for name, one in given.get("columns", {}).items()}
        given["ratios"] = {name: RatioFacts.from_dict(one) for name, one in given.get("ratios", {}).items()}
        return Facts(**given)
