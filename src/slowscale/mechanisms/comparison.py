"""Mechanisms side by side: their losses, their errors, and the record sizes at which one overtakes another.

The policies are compared on a grid of record sizes, and on both sides of the jumps of policies that grow in steps. Each
change of order between two points of the grid is located by bisection.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from slowscale.core.errors import CalibrationError, ParameterError, ParameterTypeError, band_in_words
from slowscale.core.markup import html_text
from slowscale.core.numbers import format_number
from slowscale.core.parameters import Array, as_array, as_number, check_range
from slowscale.mechanisms.base import REGISTRY, Mechanism
from slowscale.mechanisms.calibration import ACCOUNTING, CLOSED, WIDEST, charged_policy, check_accounting
from slowscale.policy import Policy
from slowscale.policy.bounded import BAND, BandPolicy, check_band

if TYPE_CHECKING:
    import pandas as pd


# The grid has this many points per factor of ten: two crossovers of the same pair within 0.5 % may be missed.
POINTS_PER_DECADE = 500
# Losses whose relative difference is smaller than this count as equal.
EQUAL_LOSSES = 1e-12
# Sizes whose relative difference is smaller than this count as one place.
SAME_PLACE = 1e-6
# How many jumps of a policy are compared, from the smallest size on.
MOST_JUMPS = 10_000
# Without sizes, the search goes from where a loss rises above the first of these to the larger of two sizes: the one at
# which all policies reach the second loss, and the one at which one of them reaches the third.
SEARCHED_LOSSES = 1e-4, 100.0, 1e6
# With sizes, it extends beyond them by this factor, and covers at least the sizes at which all losses are between the
# first and the third. No size beyond the limits is searched by default.
SIZE_FACTOR, SEARCH_LIMITS = 100.0, (1e-300, 1e300)
LARGEST_FLOAT, SMALLEST_FLOAT = np.finfo(float).max, np.finfo(float).smallest_subnormal


class Crossover(NamedTuple):
    """A record size at which the order of two mechanisms changes.

    Smaller records lose less under the mechanism `below`, larger ones under the mechanism `above`.
    """

    influence: float
    loss: float
    below: str
    above: str


def default_span(sizes: Array, policies: Iterable[Policy]) -> tuple[float, float]:
    """Return the smallest and the largest record size to search when no span is given explicitly."""
    exponents = np.arange(-300, 301)

    def first(holds: Any, otherwise: int) -> int:
        return int(exponents[np.argmax(holds)]) if holds.any() else otherwise

    starts, far, farther = [], [], []
    for policy in policies:
        with np.errstate(invalid="ignore"):
            losses = np.nan_to_num(policy(10.0**exponents), nan=0.0, posinf=math.inf)
        # A policy that grows in steps may exceed the lower loss at every size; it starts to rise later.
        starts.append(first((losses > SEARCHED_LOSSES[0]) & (losses > 1.01 * losses[0]), 1) - 1)
        far.append(first(losses >= SEARCHED_LOSSES[1], 300))
        farther.append(first(losses >= SEARCHED_LOSSES[2], 300))
    low, high = 10.0 ** min(starts), 10.0 ** max(*far, min(farther), min(starts) + 1)
    if sizes.size:
        low = min(10.0 ** max(starts), max(float(sizes.min()) / SIZE_FACTOR, SEARCH_LIMITS[0]))
        high = max(10.0 ** min(farther), min(float(sizes.max()) * SIZE_FACTOR, SEARCH_LIMITS[1]))
    return low, high


def find_crossovers(policies: Mapping[str, Policy], low: float, high: float) -> tuple[list[Crossover], bool]:
    """Return the crossovers of all pairs of policies from `low` to `high`, and whether all jumps were compared."""
    steps = {policy.step for policy in policies.values() if policy.step is not None}
    complete = all(high / step - low / step <= MOST_JUMPS for step in steps)
    # The grid reaches one step beyond each end, to show whether the order changes exactly there.
    grid = _grid(low, high, steps, beyond=True)
    found = []
    for one, two in combinations(policies, 2):
        difference = _Difference(policies[one], policies[two])
        signs = difference.signs(grid)
        decided = np.flatnonzero(signs)
        turn = signs[decided[:-1]] != signs[decided[1:]]
        first, last = decided[:-1][turn], decided[1:][turn]
        places = difference.crossing(grid[first], grid[last], signs[first])
        inside = (places >= low * (1 - EQUAL_LOSSES)) & (places <= high * (1 + EQUAL_LOSSES))
        for x, sign in zip(np.clip(places[inside], low, high).tolist(), signs[first][inside], strict=True):
            loss = max(float(policies[one](x)), float(policies[two](x)))
            found.append(Crossover(x, loss, *((one, two) if sign < 0 else (two, one))))
    return sorted(found), complete


def least_losses(
    policies: Mapping[str, Policy], low: float, high: float, crossovers: Iterable[Crossover]
) -> list[tuple[float, float, str]]:
    """Return the fewest stretches (start, end, name) such that the named policy has the least loss throughout each."""
    names = list(policies)
    grid = _grid(low, high, {policy.step for policy in policies.values() if policy.step is not None})
    turns = np.array(sorted({c.influence for c in crossovers}))

    def is_least(which: int, x: Array) -> Any:
        others = [policies[name] for name in names if name != names[which]]
        return np.all([np.ones(x.shape), *(_Difference(policies[names[which]], q).signs(x) <= 0 for q in others)], 0)

    least = np.array([is_least(i, grid) for i in range(len(names))])
    # For each policy, the first later point at which it does not have the least loss. Of several policies with equal
    # losses, the one that stays least for longest is named.
    places = np.where(least, grid.size, np.arange(grid.size))
    until = np.minimum.accumulate(places[:, ::-1], axis=1)[:, ::-1]
    stretches: list[tuple[float, float, str]] = []
    at, start = 0, low
    while at < grid.size:
        which = int(np.argmax(until[:, at]))
        after = max(int(until[which, at]), at + 1)
        end = high
        if after < grid.size:
            ends = grid[after - 1 : after], grid[after : after + 1]
            end = float(_bisect(lambda x, which=which: is_least(which, x), *ends)[0][0])  # type: ignore[misc]
            near = turns[np.abs(turns / end - 1) < SAME_PLACE]  # a crossover is located more precisely
            end = float(near[0]) if near.size else end
        if end > start:
            stretches.append((start, end, names[which]))
        at, start = after, end
    return stretches


def _grid(low: float, high: float, steps: Iterable[float], beyond: bool = False) -> Array:
    """Return the sizes at which policies are compared: evenly on a logarithmic scale, and on both sides of jumps."""
    points = max(3, math.ceil(POINTS_PER_DECADE * (math.log10(high) - math.log10(low))) + 1)
    inner = np.exp(np.linspace(math.log(low), math.log(high), points)[1:-1])
    parts = [np.array([low, high]), inner[(inner > low) & (inner < high)]]
    ends = low, high
    if beyond:
        step = 10 ** (1 / POINTS_PER_DECADE)
        ends = max(low / step, SMALLEST_FLOAT), min(high * step, LARGEST_FLOAT)
        parts.append(np.array(ends))
    for step in steps:
        first = max(1.0, float(np.floor(ends[0] / step)))
        jumps = step * np.arange(first, min(first + MOST_JUMPS, float(np.ceil(ends[1] / step))) + 1)
        near = 4 * np.finfo(float).eps
        parts += [side[(side > ends[0]) & (side < ends[1])] for side in (jumps * (1 - near), jumps * (1 + near))]
    return np.unique(np.concatenate(parts))


class _Difference(NamedTuple):
    """By how much the first of two policies exceeds the second."""

    one: Policy
    two: Policy

    def relative(self, x: Array) -> tuple[Array, Array]:
        """Return (p − q)/max(p, q), which is 0 where both are 0 or infinite, and max(p, q)."""
        with np.errstate(all="ignore"):
            p, q = self.one(x), self.two(x)
            most = np.maximum(p, q)
            return np.nan_to_num(np.where(most < math.inf, (p - q) / most, np.sign(p - q))), most

    def signs(self, x: Array) -> Any:
        """Return −1, 0 or 1 for each size; 0 means that the difference may be due to rounding alone."""
        excess, most = self.relative(x)
        with np.errstate(all="ignore"):
            rounding = self.one._rounding_error(x) + self.two._rounding_error(x) + 8 * SMALLEST_FLOAT / most
        return np.where(np.abs(excess) > EQUAL_LOSSES + rounding, np.sign(excess), 0)

    def crossing(self, low: Array, high: Array, before: Array) -> Array:
        """Return where the order changes, given that the sign is `before` at `low` and the opposite at `high`."""
        left = _bisect(lambda x: self.signs(x) == before, low, high)[0]
        right = _bisect(lambda x: self.signs(x) != -before, left, high)[0]
        exact = _bisect(lambda x: np.sign(self.relative(x)[0]) != -before, left, right)[0]
        # If the losses are equal over a stretch in between, the order changes at its end.
        return np.where(right > left * (1 + SAME_PLACE), right, exact)


def _bisect(holds: Callable[[Array], Any], low: Array, high: Array) -> tuple[Array, Array]:
    """Return neighbouring floats such that the condition holds at the first only, given that it holds at `low` only."""
    for _ in range(64):
        middle = low + (high - low) / 2
        if ((middle <= low) | (middle >= high)).all():
            break
        held = holds(middle)
        low, high = np.where(held, middle, low), np.where(held, high, middle)
    return low, high


# How many crossovers are printed: where a policy jumps there can be thousands.
CROSSOVERS_SHOWN = 30


@dataclass(frozen=True, eq=False)
class Comparison:
    """The result of `compare`.

    Attributes
    ----------
    influences, labels
        The record sizes of the table of losses, and their names ("" for a size without a name).
    losses
        The PRzCDP losses by the accounting: one row per mechanism, one column per influence.
    stds
        The standard deviations: one row per mechanism, one column per query.
    crossovers
        The crossovers of all pairs of mechanisms, ordered by record size.
    best
        Stretches of record sizes (start, end), each with the name of the mechanism of least loss.
    searched
        The smallest and the largest record size of the search, both included.
    complete
        Whether the policies were compared at each of their jumps. If False, only the first 10,000 jumps were.
    accounting
        Which policies were compared: "tight" or "closed".
    band, band_losses
        The factor of the band, and the losses between each record size and any size within the band.
    """

    names: tuple[str, ...]
    influences: tuple[float, ...]
    labels: tuple[str, ...]
    queries: tuple[float, ...]
    losses: Array
    stds: Array
    crossovers: tuple[Crossover, ...]
    best: tuple[tuple[float, float, str], ...]
    searched: tuple[float, float]
    complete: bool = True
    accounting: str = ACCOUNTING
    band: float = BAND
    band_losses: Array = field(default_factory=lambda: np.zeros((0, 0)))

    def to_pandas(self) -> "pd.DataFrame":
        """Return one row per mechanism, with columns ("loss", size), ("band loss", size) and ("std", query).

        A size is its name, if it has one.
        """
        import pandas as pd

        sizes = [label or x for label, x in zip(self.labels, self.influences, strict=True)]
        columns = [(what, size) for what in ("loss", "band loss") for size in sizes]
        columns += [("std", q) for q in self.queries]
        index = pd.Index(self.names, name="mechanism")
        table = np.concatenate([self.losses, self.band_losses, self.stds], axis=1)
        return pd.DataFrame(table, index=index, columns=pd.MultiIndex.from_tuples(columns, names=["what", "at"]))

    def _repr_html_(self) -> str:
        return html_text(str(self))

    def __str__(self) -> str:
        blocks = []
        if self.influences:
            title = f"PRzCDP loss{' (closed form)' if self.accounting == CLOSED else ''} of a record of size"
            blocks.append(_table(title, self.labels, self.influences, self.names, self.losses))
            title = f"loss of its value, {band_in_words(self.band)} more or less"
            blocks.append(_table(title, self.labels, self.influences, self.names, self.band_losses))
        if self.queries:
            title = "standard deviation for a sum of"
            blocks.append(_table(title, [""] * len(self.queries), self.queries, self.names, self.stds))
        low, high = map(format_number, self.searched)
        best = [f"Least loss for records of size (from {low} to {high})"]
        best += [f"  {format_number(start):>11} to {format_number(end):>11}  {name}" for start, end, name in self.best]
        lines = ["Crossovers: from this record size on, the first loses less than the second"]
        width = max(map(len, self.names))
        lines += [
            f"  {format_number(c.influence):>11}  {c.above:<{width}}  {c.below:<{width}}  loss {format_number(c.loss)}"
            for c in self.crossovers[:CROSSOVERS_SHOWN]
        ]
        if len(self.crossovers) > CROSSOVERS_SHOWN:
            lines.append(f"  … and {len(self.crossovers) - CROSSOVERS_SHOWN:,} more: see .crossovers")
        if not self.complete:
            lines.append("  Not all jumps of unit splitting were compared: pass a narrower within=(low, high).")
        return "\n\n".join([*blocks, "\n".join(best), *(["\n".join(lines)] if len(lines) > 1 else [])])


def compare(
    mechanisms: Sequence[Mechanism] | Mapping[str, Mechanism],
    influences: Iterable[float] | Mapping[str, float] = (),
    queries: Iterable[float] = (),
    within: tuple[float, float] | None = None,
    accounting: str = ACCOUNTING,
    band: float = BAND,
) -> Comparison:
    """Compare mechanisms: losses at record sizes, standard deviations at sums, and crossovers of the policies.

    Losses that differ by less than a relative 1e-12 count as equal, and so do losses that are both too small or both
    too large for a float. A crossover is a record size at which the order changes; policies that only touch do not
    cross. Where two policies are equal over a stretch of sizes in between, the crossover is at the end of that stretch.
    Two crossovers of the same pair may be missed if they are within 0.5 % of each other.

    Parameters
    ----------
    mechanisms
        The mechanisms: a list, or a mapping from the names to show.
    influences
        Record sizes (numbers > 0) at which to give the PRzCDP loss: a list, or a mapping from the names to show.
    queries
        Sums at which to give the standard deviation.
    within
        The smallest and the largest record size to search for crossovers. By default the search goes from a hundredth
        of the smallest influence to a hundred times the largest one, and covers at least the sizes at which all losses
        are above 0.0001 and below 1,000,000. Without `influences` it starts where the losses rise above 0.0001, and
        goes on until all of them reach 100 and one of them reaches 1,000,000.
    accounting
        Which policies are compared: "tight" for the smallest ones that are known, which may take some seconds for a new
        shape of noise, or "closed" for the closed forms.
    band
        The factor of the band within which the losses between values are given: 1.1 for 10 % more or less.

    Examples
    --------
    >>> import slowscale as ss
    >>> mechanisms = {"Gaussian": ss.Gaussian(sigma=1), "square root": ss.Root(k=2, sigma=1)}
    >>> found = ss.compare(mechanisms, influences={"small": 0.5})
    >>> found.crossovers
    (Crossover(influence=1.0, loss=0.5, below='Gaussian', above='square root'),)
    """
    check_accounting(accounting)
    check_band(band)
    named = _by_name(mechanisms)
    labels, sizes = _named_sizes(influences)
    sums = np.atleast_1d(as_array("queries", queries)).ravel()
    check_range("queries", sums, 0)
    policies = {name: charged_policy(m, accounting) for name, m in named.items()}
    if within is None:
        low, high = default_span(sizes, policies.values())
    else:
        ends = as_array("within", within).ravel().tolist()
        if len(ends) != 2 or not 0 < ends[0] < ends[1] < math.inf:
            raise ParameterError("within", allowed="two finite numbers 0 < low < high", given=within)
        low, high = ends
    crossovers, complete = find_crossovers(policies, low, high)
    return Comparison(
        names=tuple(named),
        influences=tuple(sizes.tolist()),
        labels=labels,
        queries=tuple(sums.tolist()),
        losses=np.array([p(sizes) for p in policies.values()]),
        stds=np.array([np.broadcast_to(m.std(sums), sums.shape) for m in named.values()]),
        crossovers=tuple(crossovers),
        best=tuple(least_losses(policies, low, high, crossovers)),
        searched=(low, high),
        complete=complete,
        accounting=accounting,
        band=band,
        band_losses=np.array([BandPolicy(p, band)(sizes) for p in policies.values()]),
    )


def _by_name(mechanisms: Any) -> dict[str, Mechanism]:
    if isinstance(mechanisms, Mapping):
        named = [(str(name), m) for name, m in mechanisms.items()]
    elif isinstance(mechanisms, Iterable):
        named = [(str(m), m) for m in mechanisms]
    else:
        raise ParameterTypeError("mechanisms", allowed="a list or a mapping of mechanisms", given=mechanisms)
    if not named:
        raise ParameterError("mechanisms", "must hold at least one mechanism", code="empty")
    for _, m in named:
        if not isinstance(m, Mechanism):
            raise ParameterTypeError("mechanisms", allowed="mechanisms", given=m)
    unique: dict[str, Mechanism] = {}
    for name, m in named:  # mechanisms with the same name are all shown, with a number added
        alike = sum(name == other or other.startswith(f"{name} (") for other in unique)
        unique[f"{name} ({alike + 1})" if alike else name] = m
    return unique


def _named_sizes(influences: Any) -> tuple[tuple[str, ...], Array]:
    """Return the names of record sizes, and the sizes."""
    if isinstance(influences, Mapping):
        if not influences:
            remedy = 'give at least one size, such as {"median firm": 12}'
            raise ParameterError("influences", "must not be empty", code="empty", remedy=remedy)
        labels = tuple(_label(name, size) for name, size in influences.items())
        sizes = np.array([as_number(f"influences[{name!r}]", size) for name, size in influences.items()])
    else:
        sizes = np.atleast_1d(as_array("influences", influences)).ravel()
        labels = ("",) * sizes.size
    wrong = ~((sizes > 0) & np.isfinite(sizes))
    if wrong.any():
        name = next(label for label, bad in zip(labels, wrong, strict=True) if bad)
        problem = f"must be record sizes, finite and > 0{f', but {name!r} is not' if name else ''}"
        raise ParameterError("influences", problem, code="value", given=sizes[wrong][0])
    return labels, sizes


def _label(name: Any, size: Any) -> str:
    """Return the name of a size, or "" if the name merely repeats the number."""
    try:
        return "" if float(name) == size else str(name)
    except (TypeError, ValueError):
        return str(name)


def _table(title: str, labels: Sequence[str], at: Sequence[float], names: Sequence[str], values: Array) -> str:
    first = max(len(title), *(len(name) for name in names))
    rows = [[format_number(value) for value in row] for row in values]
    heads = [list(map(format_number, at))]
    if any(labels):
        heads.insert(0, list(labels))
    widths = [max(9, *map(len, column)) for column in zip(*heads, *rows, strict=True)]
    lines = [
        f"{name:<{first}}  " + "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        for name, row in zip([*[""] * (len(heads) - 1), title, *names], [*heads, *rows], strict=True)
    ]
    lines.insert(len(heads), "-" * len(lines[0]))
    return "\n".join(lines)


def same_error(std: float, at: float, sigma: float | None = None) -> dict[str, Mechanism]:
    """Return those of the paper's experiments and the arsinh-normal, by name, all with the same standard deviation.

    For a transformation mechanism it is the standard deviation when the sum is `at` (Table experiment-params). The
    scale of the polylog is `sigma`; if that is None, it is 1, as in the paper, and `at` where the standard deviation is
    too large for a scale of 1.

    >>> {name: round(m.std(106)) for name, m in same_error(std=75, at=106).items()}["log"]
    75
    """
    found: dict[str, Mechanism] = {}
    for cls in REGISTRY.values():
        scaled = cls._scale_source({}) is not None  # it has a default scale
        place = at if cls._error_grows or (scaled and std > WIDEST) else None
        given: dict[str, Any] = {"sigma": sigma} if scaled and sigma is not None else {}
        for name, fixed in cls.compared.items():
            try:
                found[name] = cls.calibrate(std=std, at=place, **given, **fixed)
            except CalibrationError as error:  # its remedies are about arguments of `calibrate`
                error.remedy = "compare at another `std` or `at`"
                raise
    return found
