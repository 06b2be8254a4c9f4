"""Dominance: cells whose total tells the value of their largest contributor. CONFIDENTIAL, for the curator only.

In a cell with the total T, the second-largest contributor subtracts its own value x₂ from T and misses the largest one,
x₁, by the rest R = T − x₁ − x₂. By the p % rule, the cell is open if R < p·x₁. By (n, k)-dominance it is open if the n
largest contributors have more than the share k of the total: if their sum, estimated by T, is missed by less than
(1 − k)·T. With noise, the published value is T + Z, and both estimates miss by the rest plus Z. The noise may cancel
the rest, so a cell counts as open if the estimate misses by as little with more than a stated probability. Someone who
knows the rest as well misses by Z alone.

Contributions are absolute values: with negative values, T is the sum of absolute values. The noise of a transformation
is that of the true sum.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from slowscale.core.errors import ParameterTypeError
from slowscale.core.numbers import percent
from slowscale.core.parameters import Declared, real, whole
from slowscale.data.contributors import Contributors, largest_contributors
from slowscale.data.engines import fetch
from slowscale.data.inspecting import Confidential
from slowscale.data.sums import Run
from slowscale.mechanisms import Mechanism
from slowscale.release.bound import BoundSums


@dataclass(frozen=True)
class Dominance(Declared):
    """The rules by which cells count as open. Agencies choose their own parameters, and often keep them secret.

    Attributes
    ----------
    p
        The p % rule: how closely the largest contributor may not be known, as a share of its value.
    n, k
        (n, k)-dominance: the share of a total that the n largest contributors may have together.
    probability
        After the noise, a cell is open if an estimate is as close as that with more than this probability.
    """

    p: float = real(above=0, below=1, typical=(0.05, 0.3), default=0.1)
    n: int = whole(at_least=1, at_most=10, typical=(1, 4), default=2)
    k: float = real(above=0, below=1, typical=(0.5, 0.95), default=0.85)
    probability: float = real(at_least=0, below=1, typical=(0.05, 0.9), default=0.5)

    @property
    def words(self) -> tuple[str, str]:
        """The names of the two rules."""
        return f"{percent(self.p)} rule", f"({self.n}, {percent(self.k)})-dominance"

    def describe(self) -> str:
        """Return what the rules mean, in sentences."""
        largest = "the largest contributor has" if self.n == 1 else f"the {self.n} largest contributors have"
        return (
            f"By the {self.words[0]}, a cell is open if its second-largest contributor, who subtracts its own value "
            f"from the total, knows the largest one to within {percent(self.p)}. By {self.words[1]}, it is open if "
            f"{largest} more than {percent(self.k)} of the total. After the noise, it is open if the same estimate is "
            f"as close with a probability above {percent(self.probability)}."
        )


# The usual rules.
USUAL_RULES = Dominance()


def check_dominance(rules: object) -> None:
    """Raise unless these are rules."""
    if not isinstance(rules, Dominance):
        raise ParameterTypeError("dominance", allowed="an ss.Dominance, or None", given=rules)


class Part(NamedTuple):
    """Some of the cells of a column: their number, and their share of the total of all cells. CONFIDENTIAL."""

    cells: int
    share: float


@dataclass(frozen=True, repr=False)
class OpenCells(Confidential):
    """The cells of a column that are open by a rule, before and after the noise. CONFIDENTIAL.

    Attributes
    ----------
    column, rule
        The column, and the name of the rule.
    cells
        The number of cells with a contributor whose value is not 0.
    before, after
        The number of these that are open without noise, and after it, each with their share of the total of all cells.
    informed
        The same for those that are open after the noise to someone who knows all other contributors.
    """

    column: str
    rule: str
    cells: int
    before: Part
    after: Part
    informed: Part


def open_cells(
    table: BoundSums, sums: Mapping[str, Any], protect: str | None, rules: Dominance, run: Run = fetch
) -> tuple[OpenCells, ...]:
    """Count the open cells of each summed column, in one scan of the engine.

    Parameters
    ----------
    table
        The table, bound to its records.
    sums
        The true sums of each column by key, as floats.
    protect
        The column that identifies an entity, or None if records are protected.
    rules
        The rules.
    run
        The function that runs the query.
    """
    columns = list(table.columns.values())
    if not columns:
        return ()
    found = largest_contributors(table.table, columns, table.keys, protect, max(rules.n, 2), run)
    return tuple(
        counted
        for one in found
        for counted in _counted(one, table.mechanisms[one.column], np.abs(sums[one.column]), rules)
    )


def _counted(cells: Contributors, mechanism: Mechanism, sums: Any, rules: Dominance) -> list[OpenCells]:
    some = cells.largest[:, 0] > 0
    largest, totals, sums = cells.largest[some], cells.totals[some], sums[some]
    found = []
    for rule, known, close in (
        (rules.words[0], largest[:, :2].sum(axis=1), rules.p * largest[:, 0]),
        (rules.words[1], largest[:, : rules.n].sum(axis=1), (1 - rules.k) * totals),
    ):
        rest = np.maximum(totals - known, 0.0)  # with two contributors, rounding errors may make it negative
        before = rest < close
        with np.errstate(all="ignore"):  # where an estimate is too large for a float
            after = mechanism._probability_within(sums, -close - rest, close - rest) > rules.probability
            informed = mechanism._probability_within(sums, -close, close) > rules.probability
        parts = [
            Part(int(one.sum()), float(totals[one].sum() / totals.sum()) if one.any() else 0.0)
            for one in (before, after, informed)
        ]
        found.append(OpenCells(cells.column, rule, len(totals), *parts))
    return found
