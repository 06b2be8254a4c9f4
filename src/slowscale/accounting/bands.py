"""Bands: the loss between a record's values and others within a factor, through each term of a record's policy.

The promise is about some columns: each value of the record in them may change by the factor `times` or less, up or
down, and all else stays the same. A term follows one of these rules:

- A sum of such a column, or of a multiple of it, changes by at most the factor: `BandPolicy`.
- A column that is computed otherwise from such a column may change by more, so that no band can be stated.
- If a value of such a column decides the cell of the record, or whether the record is in the release, the record may
  leave one cell and enter another. For an entity, whose records could scatter over many cells, no band can be stated.
- A count stays the same, unless the record moves. Quantiles have their own rule: `RankPolicy`.
"""

from collections.abc import Iterable, Mapping
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
    counts
        Whether the term is that of a number of records.
    reads, proportional
        The stored columns that a derived column is computed from, and whether it is a multiple of the only one. A
        stored column reads none.
    decided_by
        The columns that decide the cell of a record and whether it is in the release; "*" if they are not known.
    grain
        By how much more than the values the summed whole numbers of grains may differ; 0 if values are whole grains.
    entity
        Whether the values are the totals of an entity in a cell, and not those of a record.
    """

    counts: bool = False
    reads: tuple[str, ...] = ()
    proportional: bool = True
    decided_by: tuple[str, ...] = (ANY,)
    grain: float = 0.0
    entity: bool = False

    @staticmethod
    def of(table: Mapping[str, Any], column: Mapping[str, Any] | None, entity: bool) -> "Use":
        """Return the use that facts describe: those of a table, and those of a column (None: of quantiles)."""
        described = column or {}
        reads, decided_by = tuple(described.get("reads") or ()), tuple(table.get("decided_by", (ANY,)))
        if not all(isinstance(name, str) for name in (*reads, *decided_by)):
            raise TypeError("columns must be text")
        return Use(
            described.get("kind") == COUNT,
            reads,
            described.get("proportional") is not False,
            decided_by,
            float(described.get("grain") or 0.0),
            entity,
        )

    def within(self, term: Term, band: "Band") -> BandPolicy | None:
        """Return the policy of the band, or None if the change of values does not show; raise if there is no band."""
        column, policy = term
        if policy.by_rank:
            return BandPolicy(policy, band.times)
        if not self.proportional and _touched(self.reads, band.among):
            raise _no_band(column, "is computed from values that may change, and is not a multiple of one of them")
        moves = _touched(self.decided_by, band.among)
        if moves and self.entity:
            raise _no_band(column, "is summed in cells or under a filter that the values of an entity decide")
        if self.counts and not moves:
            return None
        factor = band.times * ROUNDED if self.reads else band.times
        grain = self.grain if policy(self.grain) > FAINTEST_GRAIN else 0.0
        return BandPolicy(policy, factor, moves=moves, grain=grain)


@dataclass(frozen=True)
class Band:
    """A band: its factor, and the folded names of the columns whose values may change."""

    times: float
    among: frozenset[str]

    @staticmethod
    def of(times: float, columns: Iterable[str]) -> "Band":
        """Return the band of some columns."""
        return Band(check_band(times, "times"), frozenset(map(folded, columns)))


def _touched(names: Iterable[str], among: frozenset[str]) -> bool:
    found = set(names)
    return ANY in found or bool(found & among)


def _no_band(column: str | None, problem: str) -> ParameterError:
    return ParameterError(
        f"column {COUNT if column is None else column!r}",
        f"{problem}, so that no loss can be stated for values within a band",
        code="no-band",
        remedy="sum a stored column or a multiple of one, in cells that its values do not decide",
    )


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
    pairs = zip(policy.terms, uses, strict=True)
    found = tuple((term[0], losses) for term, use in pairs if (losses := use.within(term, band)) is not None)
    zero = (None, BandPolicy(ConstantPolicy(0.0, policy.notion), band.times))
    return RecordPolicy(found or (zero,), band=band.times)
