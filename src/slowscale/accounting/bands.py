"""Bands: the loss between a record's values and others within a factor, through each term of a record's policy.

The promise is about some columns: each value of the record in them may change by the factor `times` or less, up or
down, with the stored values that it is computed from, and all else stays the same. A term follows one of these rules:

- A sum of such a column, or of a multiple of it, changes by at most the factor: `BandPolicy`.
- A column that shares stored values with another such column, where one of them is not a multiple of a stored column,
  may change by more, so that no band can be stated.
- If a value of such a column decides the cell of the record, or whether the record is in the release, the record may
  leave one cell and enter another. For an entity, whose records could scatter over many cells, no band can be stated.
- A count and other columns stay the same, unless the record moves. Quantiles have their own rule: `RankPolicy`.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any

from slowscale.accounting.record import ANY, COUNT, RecordPolicy, Term, folded
from slowscale.core.errors import ParameterError
from slowscale.policy import ConstantPolicy
from slowscale.policy.bounded import BandPolicy, check_band

# Floats are rounded when a multiple of a column is computed.
ROUNDED = 1 + 2.0**-50
# A grain with this loss or less is left out. The roots of losses add up, so that a loss of ρ rises by less than
# 2·√(ρ·10⁻¹⁷): by 10⁻⁷ if it is 250.
FAINTEST_GRAIN = 1e-17


@dataclass(frozen=True)
class Use:
    """How the values of a record enter one term of its policy. Names of columns are folded.

    Attributes
    ----------
    column
        The column that is summed or ranked; "" for a number of records.
    reads, proportional
        The stored columns that a derived column is computed from ("*": unknown ones), and whether it is a multiple of
        the only one. A stored column reads none.
    decided_by
        The columns that decide the cell of a record and whether it is in the release; "*" if they are not known.
    grain
        By how much more than the values the summed whole numbers of grains may differ; 0 if values are whole grains.
    entity
        Whether the values are the totals of an entity in a cell, and not those of a record.
    """

    column: str = ""
    reads: tuple[str, ...] = ()
    proportional: bool = True
    decided_by: tuple[str, ...] = (ANY,)
    grain: float = 0.0
    entity: bool = False

    @staticmethod
    def of(table: Mapping[str, Any], name: str | None, entity: bool) -> "Use":
        """Return the use that the facts of a table describe: of one of its columns, or of its quantiles (None)."""
        facts = table["quantiles"] if name is None else table["columns"][name]
        column = facts["column"] if name is None else name
        reads, decided_by = facts.get("reads"), tuple(table.get("decided_by", (ANY,)))
        if reads is None:  # a derived column without this entry may be computed from anything
            reads = (ANY,) if column in (table.get("derived") or {}) else ()
        if not all(isinstance(one, str) for one in (column, *reads, *decided_by)):
            raise TypeError("columns must be text")
        counts = name is not None and facts.get("kind") == COUNT
        proportional = not reads or facts.get("proportional") is True
        grain = float(facts.get("grain") or 0.0)
        return Use("" if counts else folded(column), tuple(reads), proportional, decided_by, grain, entity)

    @property
    def inputs(self) -> frozenset[str]:
        """The column itself, and the stored columns that it is computed from."""
        return frozenset({self.column, *self.reads} - {""})

    def within(self, term: Term, band: "Band") -> BandPolicy | None:
        """Return the policy of the band, or None if the change of values does not show; raise if there is no band."""
        column, policy = term
        moves = band.touches(self.decided_by)
        others = [one for one in band.columns if one.name != self.column and one.shares(self.inputs)]
        if others and not (self.proportional and all(one.proportional for one in others)):
            raise _no_band(column, "shares stored values with another column, and one of them is not a multiple of one")
        if moves and self.entity and not policy.by_rank:
            raise _no_band(column, "is released in cells or under a filter that the values of an entity decide")
        changes = bool(others) or self.column in band.names
        if not changes and not moves:
            return None
        factor = band.times * ROUNDED if self.reads or others else band.times
        grain = self.grain if policy(self.grain) > FAINTEST_GRAIN else 0.0
        return BandPolicy(policy, factor, moves=moves and not policy.by_rank, grain=grain)


@dataclass(frozen=True)
class Changed:
    """A column whose values may change: its folded name, the columns it depends on, and whether it is a multiple."""

    name: str
    inputs: frozenset[str]
    proportional: bool

    def shares(self, names: Set[str]) -> bool:
        """Whether the column depends on one of some columns, or may do so."""
        return bool(names) and (ANY in names or ANY in self.inputs or not names.isdisjoint(self.inputs))


@dataclass(frozen=True)
class Band:
    """A band: its factor, and the columns whose values may change."""

    times: float
    columns: frozenset[Changed]

    @staticmethod
    def of(times: float, uses: Iterable[Use], columns: Iterable[str] | None = None) -> "Band":
        """Return the band of some columns, which enter releases in these ways; by default all that do."""
        uses = tuple(uses)
        columns = summed_or_ranked(uses) if columns is None else columns
        found = {name: Changed(name, frozenset({name}), True) for name in map(folded, columns)}
        for use in uses:
            if (known := found.get(use.column)) is not None:
                inputs, proportional = known.inputs | use.inputs, known.proportional and use.proportional
                found[use.column] = Changed(use.column, inputs, proportional)
        return Band(check_band(times, "times"), frozenset(found.values()))

    @property
    def names(self) -> frozenset[str]:
        """The folded names of the columns."""
        return frozenset(one.name for one in self.columns)

    def touches(self, names: Iterable[str]) -> bool:
        """Whether a change of the values may change one of some columns."""
        found = frozenset(names)
        return any(one.shares(found) for one in self.columns)


def _no_band(column: str | None, problem: str) -> ParameterError:
    return ParameterError(
        f"column {COUNT if column is None else column!r}",
        f"{problem}, so that no loss can be stated for values within a band",
        code="no-band",
        remedy="sum stored columns or multiples of them, in cells that their values do not decide",
    )


def summed_or_ranked(uses: Iterable[Use]) -> list[str]:
    """Return the columns with values that enter releases."""
    return sorted({use.column for use in uses} - {""})


def band_policy(policy: RecordPolicy, uses: Iterable[Use], band: Band) -> RecordPolicy:
    """Return the loss of a record between its values and others within a band.

    Parameters
    ----------
    policy, uses
        The policy of a release, and how values enter each of its terms.
    band
        The band.
    """
    if policy.parallel:
        raise _no_band(policy.columns[0] if policy.columns else None, "is released in parts that were put together")
    known = tuple(uses)
    if len(known) != len(policy.terms):
        raise _no_band(policy.columns[0] if policy.columns else None, "has terms that the facts do not describe")
    pairs = zip(policy.terms, known, strict=True)
    found = tuple((term[0], losses) for term, use in pairs if (losses := use.within(term, band)) is not None)
    zero = (None, BandPolicy(ConstantPolicy(0.0, policy.notion), band.times))
    return RecordPolicy(found or (zero,), band=band.times)
