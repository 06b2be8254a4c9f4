"""Mechanisms side by side: what records lose, how large the error is, and where one overtakes another."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from slowscale.errors import ParameterError, ParameterTypeError
from slowscale.mechanisms.base import Mechanism
from slowscale.parameters import Array, as_array, check_range
from slowscale.policy import Policy, UnitSplittingPolicy

if TYPE_CHECKING:
    import pandas as pd

# How finely the record sizes are searched for crossovers: points a factor of ten.
PER_DECADE = 100
# How many crossovers are shown: where a policy jumps there can be thousands.
SHOWN = 30
# How many jumps of a unit-splitting policy are looked at one by one.
JUMPS = 10_000


class Crossover(NamedTuple):
    """A record size from which on one mechanism protects better than another."""

    influence: float
    loss: float
    below: str
    above: str


@dataclass(frozen=True, eq=False)
class Comparison:
    """What `compare` found.

    Attributes
    ----------
    losses, stds
        PRzCDP losses (a row a mechanism, a column an influence), and standard deviations (a column a query).
    crossovers
        Where the policies of two mechanisms cross, by record size.
    best
        The mechanism with the least loss, from one record size to another.
    searched
        The record sizes between which crossovers were looked for.
    """

    names: tuple[str, ...]
    influences: tuple[float, ...]
    queries: tuple[float, ...]
    losses: Array
    stds: Array
    crossovers: tuple[Crossover, ...]
    best: tuple[tuple[float, float, str], ...]
    searched: tuple[float, float]

    def to_pandas(self) -> "pd.DataFrame":
        """Return one row a mechanism, with columns ("loss", influence) and ("std", query)."""
        import pandas as pd

        columns = [("loss", x) for x in self.influences] + [("std", q) for q in self.queries]
        index = pd.Index(self.names, name="mechanism")
        table = np.concatenate([self.losses, self.stds], axis=1)
        return pd.DataFrame(table, index=index, columns=pd.MultiIndex.from_tuples(columns, names=["what", "at"]))

    def __str__(self) -> str:
        blocks = []
        if self.influences:
            heads = [_short(x) for x in self.influences]
            blocks.append(_table("PRzCDP loss of a record of size", heads, self.names, self.losses))
        if self.queries:
            heads = [_short(q) for q in self.queries]
            blocks.append(_table("standard deviation for a sum of", heads, self.names, self.stds))
        low, high = (_short(end) for end in self.searched)
        best = [f"Least loss for records of size (from {low} to {high})"]
        best += [f"  {_short(start):>11} to {_short(end):>11}  {name}" for start, end, name in self.best]
        lines = ["Crossovers: from this record size on, the first loses less than the second"]
        width = max(map(len, self.names))
        lines += [
            f"  {_short(c.influence):>11}  {c.above:<{width}}  {c.below:<{width}}  loss {c.loss:.3g}"
            for c in self.crossovers[:SHOWN]
        ]
        if len(self.crossovers) > SHOWN:
            lines.append(f"  … and {len(self.crossovers) - SHOWN:,} more: see .crossovers")
        return "\n\n".join([*blocks, "\n".join(best), *(["\n".join(lines)] if self.crossovers else [])])


def compare(
    mechanisms: Sequence[Mechanism] | Mapping[str, Mechanism],
    influences: Iterable[float] = (),
    queries: Iterable[float] = (),
    within: tuple[float, float] | None = None,
) -> Comparison:
    """Compare mechanisms: losses at record sizes, standard deviations at sums, and crossovers of the policies.

    Parameters
    ----------
    mechanisms
        The mechanisms, in a list or by the names to show.
    influences
        Record sizes at which to give the PRzCDP loss.
    queries
        Sums at which to give the standard deviation.
    within
        The record sizes between which crossovers are looked for; by default a hundred times beyond `influences`.

    """
    named = _named(mechanisms)
    sizes, sums = _values("influences", influences), _values("queries", queries)
    low, high = _span(sizes) if within is None else _checked_span(within)
    policies = {name: m.policy for name, m in named.items()}
    crossovers = [
        crossover
        for (one, p), (two, q) in combinations(policies.items(), 2)
        for crossover in _crossovers(one, p, two, q, low, high)
    ]
    crossovers.sort()
    return Comparison(
        names=tuple(named),
        influences=tuple(sizes.tolist()),
        queries=tuple(sums.tolist()),
        losses=np.array([p(sizes) for p in policies.values()]),
        stds=np.array([np.broadcast_to(m.std(sums), sums.shape) for m in named.values()]),
        crossovers=tuple(crossovers),
        best=tuple(_best(policies, [low, *(c.influence for c in crossovers), high])),
        searched=(low, high),
    )


def _named(mechanisms: Any) -> dict[str, Mechanism]:
    if isinstance(mechanisms, Mapping):
        named = [(str(name), m) for name, m in mechanisms.items()]
    elif isinstance(mechanisms, Iterable):
        named = [(str(m), m) for m in mechanisms]
    else:
        raise ParameterTypeError(f"mechanisms must be a list or a mapping of mechanisms, got {mechanisms!r}")
    if not named:
        raise ParameterError("mechanisms must hold at least one mechanism")
    for _, m in named:
        if not isinstance(m, Mechanism):
            raise ParameterTypeError(f"mechanisms must be mechanisms, got {m!r}")
    unique: dict[str, Mechanism] = {}
    for name, m in named:  # two that look alike are both shown
        alike = sum(name == other or other.startswith(f"{name} (") for other in unique)
        unique[f"{name} ({alike + 1})" if alike else name] = m
    return unique


def _values(name: str, values: Iterable[float]) -> Array:
    array = np.atleast_1d(as_array(name, values)).ravel()
    check_range(name, array, 0)
    return array


def _span(sizes: Array) -> tuple[float, float]:
    positive = sizes[sizes > 0]
    if not positive.size:
        return 1e-3, 1e12
    return max(float(positive.min()) / 100, 1e-300), min(float(positive.max()) * 100, 1e300)


def _checked_span(within: tuple[float, float]) -> tuple[float, float]:
    ends = as_array("within", within).ravel().tolist()
    if len(ends) != 2 or not 0 < ends[0] < ends[1] < math.inf:
        raise ParameterError(f"within must be two finite numbers 0 < low < high, got {within}")
    return ends[0], ends[1]


def _crossovers(one: str, p: Policy, two: str, q: Policy, low: float, high: float) -> Iterable[Crossover]:
    from scipy.optimize import brentq

    def excess(log_x: Any) -> Any:
        x = np.exp(log_x)
        return p(x) - q(x)

    steps = max(2, math.ceil(PER_DECADE * math.log10(high / low)) + 1)
    grid = np.linspace(math.log(low), math.log(high), steps)
    for policy in (p, q):
        if isinstance(policy, UnitSplittingPolicy):  # it jumps at each multiple of its threshold
            jumps = policy.threshold * np.arange(max(1, low // policy.threshold), high / policy.threshold)[:JUMPS]
            sides = np.log(np.concatenate([jumps, jumps * (1 + 1e-12)]))
            grid = np.union1d(grid, sides[(sides >= grid[0]) & (sides <= grid[-1])])
    sign = np.sign(excess(grid))
    change = np.flatnonzero(sign[:-1] * sign[1:] < 0)
    for i in change:
        x = math.exp(brentq(excess, grid[i], grid[i + 1], xtol=1e-14, rtol=1e-14))
        below, above = (one, two) if sign[i] < 0 else (two, one)
        yield Crossover(x, max(p(x), q(x)), below, above)


def _best(policies: dict[str, Policy], ends: list[float]) -> list[tuple[float, float, str]]:
    """Return the stretches between crossovers with the policy that is lowest there, neighbours joined."""
    stretches: list[tuple[float, float, str]] = []
    for start, end in pairwise(ends):
        middle = math.sqrt(start * end)
        name = min(policies, key=lambda name: policies[name](middle))
        if stretches and stretches[-1][2] == name:
            start = stretches.pop()[0]
        stretches.append((start, end, name))
    return stretches


def _short(x: float) -> str:
    return f"{x:,.0f}" if 1000 <= abs(x) < 1e12 else f"{x:.4g}"


def _table(title: str, heads: list[str], names: tuple[str, ...], values: Array) -> str:
    first = max(len(title), *(len(name) for name in names))
    rows = [[_cell(value) for value in row] for row in values]
    widths = [max(9, *map(len, column)) for column in zip(heads, *rows, strict=True)]
    lines = [
        f"{name:<{first}}  " + "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        for name, row in zip([title, *names], [heads, *rows], strict=True)
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def _cell(x: float) -> str:
    return f"{x:,.0f}" if 1e4 <= abs(x) < 1e9 else f"{x:.4g}"
