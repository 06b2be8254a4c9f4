"""Mechanisms side by side: what records lose, how large the error is, and where one overtakes another.

Crossovers are zeros of the relative difference of two policies. Policies without jumps are compared on a grid of record
sizes, which is refined around every change of sign and every dip. A unit-splitting policy lies between two policies
without jumps; where these do not settle the order, it is compared on both sides of each of its jumps.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from slowscale.errors import ParameterError, ParameterTypeError
from slowscale.figures import figure
from slowscale.markup import html_text
from slowscale.mechanisms.base import REGISTRY, Mechanism
from slowscale.parameters import Array, apply, as_array, as_number, check_range
from slowscale.policy import Policy, RootPolicy, TransformationPolicy, UnitSplittingPolicy

if TYPE_CHECKING:
    import pandas as pd

Signs = npt.NDArray[np.int8]
# How finely the record sizes are searched for crossovers: points per factor of ten.
PER_DECADE = 100
# Losses whose relative difference is smaller than this count as equal.
EQUAL = 1e-12
# How many crossovers are shown: where a policy jumps there can be thousands.
SHOWN = 30
# How many jumps of unit-splitting policies are looked at one by one, for each pair of mechanisms.
JUMPS = 100_000
# From this many pieces on, a jump changes the loss by less than EQUAL.
PIECES = 2.0**41
# Without sizes to go by, crossovers are searched where losses lie between these.
LOSSES = (1e-4, 100.0)
# The sizes that are searched when none are given explicitly lie between these.
SEARCH_LIMITS = (1e-300, 1e300)
LARGEST, SMALLEST = np.finfo(float).max, np.finfo(float).smallest_subnormal
# Where the order of mechanisms is read off between two breakpoints. Round fractions might hit points where two touch.
FRACTIONS = np.array([0.09549, 0.27639, 0.49238, 0.72361, 0.90451])


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
    influences, labels
        The record sizes of the table of losses, and their names; the name of a size without one is "".
    losses, stds
        PRzCDP losses (one row per mechanism, one column per influence), and standard deviations (one column per query).
    crossovers
        Where the policies of two mechanisms cross, by record size.
    best
        The mechanism with the least loss, from one record size to another.
    searched
        The record sizes between which all crossovers were found, both included.
    complete
        False if there were too many crossovers to list. `searched` then ends before the sizes that were asked for.
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

    def to_pandas(self) -> "pd.DataFrame":
        """Return one row per mechanism, with columns ("loss", name of the size or the size) and ("std", query)."""
        import pandas as pd

        sizes = [label or x for label, x in zip(self.labels, self.influences, strict=True)]
        columns = [("loss", size) for size in sizes] + [("std", q) for q in self.queries]
        index = pd.Index(self.names, name="mechanism")
        table = np.concatenate([self.losses, self.stds], axis=1)
        return pd.DataFrame(table, index=index, columns=pd.MultiIndex.from_tuples(columns, names=["what", "at"]))

    def _repr_html_(self) -> str:
        return html_text(str(self))

    def __str__(self) -> str:
        blocks = []
        if self.influences:
            title = "PRzCDP loss of a record of size"
            blocks.append(_table(title, self.labels, self.influences, self.names, self.losses))
        if self.queries:
            title = "standard deviation for a sum of"
            blocks.append(_table(title, [""] * len(self.queries), self.queries, self.names, self.stds))
        low, high = map(figure, self.searched)
        best = [f"Least loss for records of size (from {low} to {high})"]
        best += [f"  {figure(start):>11} to {figure(end):>11}  {name}" for start, end, name in self.best]
        lines = ["Crossovers: from this record size on, the first loses less than the second"]
        width = max(map(len, self.names))
        lines += [
            f"  {figure(c.influence):>11}  {c.above:<{width}}  {c.below:<{width}}  loss {figure(c.loss)}"
            for c in self.crossovers[:SHOWN]
        ]
        if len(self.crossovers) > SHOWN:
            lines.append(f"  … and {len(self.crossovers) - SHOWN:,} more: see .crossovers")
        if not self.complete:
            lines.append(f"  Beyond {high} there are too many to list: pass within=(low, high) to search there.")
        return "\n\n".join([*blocks, "\n".join(best), *(["\n".join(lines)] if len(lines) > 1 else [])])


def compare(
    mechanisms: Sequence[Mechanism] | Mapping[str, Mechanism],
    influences: Iterable[float] | Mapping[str, float] = (),
    queries: Iterable[float] = (),
    within: tuple[float, float] | None = None,
) -> Comparison:
    """Compare mechanisms: losses at record sizes, standard deviations at sums, and crossovers of the policies.

    Losses that differ by less than a relative 1e-12 count as equal, and so do losses that are both too small or both
    too large for a float. A crossover is where the order changes; policies that only touch do not cross. Where two
    policies are equal for a while in between, the crossover is at the end of that stretch.

    Parameters
    ----------
    mechanisms
        The mechanisms, in a list or by the names to show.
    influences
        Record sizes (numbers > 0) at which to give the PRzCDP loss, in a list or by the names to show.
    queries
        Sums at which to give the standard deviation.
    within
        The record sizes between which crossovers are looked for, both included. By default a hundred times beyond
        `influences`; without these, the powers of ten between which the policies rise from 0.0001 to 100.

    Examples
    --------
    >>> import slowscale as ss
    >>> found = ss.compare({"Gaussian": ss.Gaussian(1), "square root": ss.Root(2, 1)}, influences={"small": 0.5})
    >>> found.crossovers
    (Crossover(influence=1.0, loss=0.5, below='Gaussian', above='square root'),)
    """
    named = _named(mechanisms)
    labels, sizes = _sizes(influences)
    sums = _values("queries", queries)
    policies = {name: m.policy for name, m in named.items()}
    low, high = _span(sizes, policies.values()) if within is None else _checked_span(within)
    pairs = [(one, two, _compare_pair(policies[one], policies[two], low, high)) for one, two in combinations(named, 2)]
    end = min([high, *(pair.end for _, _, pair in pairs)])
    crossovers = sorted(
        Crossover(x, loss, *((one, two) if sign < 0 else (two, one)))
        for one, two, pair in pairs
        for x, loss, sign in zip(pair.places.tolist(), pair.losses.tolist(), pair.signs.tolist(), strict=True)
        if x <= end
    )
    breaks = np.concatenate([[low, end], *(part for _, _, pair in pairs for part in (pair.places, pair.edges))])
    return Comparison(
        names=tuple(named),
        influences=tuple(sizes.tolist()),
        labels=labels,
        queries=tuple(sums.tolist()),
        losses=np.array([p(sizes) for p in policies.values()]),
        stds=np.array([np.broadcast_to(m.std(sums), sums.shape) for m in named.values()]),
        crossovers=tuple(crossovers),
        best=tuple(_best(policies, np.unique(breaks[(breaks >= low) & (breaks <= end)]))),
        searched=(low, end),
        complete=end == high,
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


def _sizes(influences: Any) -> tuple[tuple[str, ...], Array]:
    """Return the names of record sizes, and the sizes."""
    if isinstance(influences, Mapping):
        if not influences:
            raise ParameterError('influences must hold at least one size, such as {"median firm": 12}, got none')
        labels = tuple(_label(name, size) for name, size in influences.items())
        sizes = np.array([as_number(f"influences[{name!r}]", size) for name, size in influences.items()])
    else:
        sizes = np.atleast_1d(as_array("influences", influences)).ravel()
        labels = ("",) * sizes.size
    wrong = ~((sizes > 0) & np.isfinite(sizes))
    if wrong.any():
        name = next(label for label, bad in zip(labels, wrong, strict=True) if bad)
        where = f" for {name!r}" if name else ""
        raise ParameterError(f"influences must be record sizes, finite and > 0, got {sizes[wrong][0]:g}{where}")
    return labels, sizes


def _label(name: Any, size: Any) -> str:
    """Return the name of a size, or "" where that is only the number again."""
    try:
        return "" if float(name) == size else str(name)
    except (TypeError, ValueError):
        return str(name)


def _values(name: str, values: Iterable[float]) -> Array:
    array = np.atleast_1d(as_array(name, values)).ravel()
    check_range(name, array, 0)
    return array


def _span(sizes: Array, policies: Iterable[Policy]) -> tuple[float, float]:
    """Return the record sizes to search when none are given explicitly."""
    if sizes.size:
        low, high = max(float(sizes.min()) / 100, SEARCH_LIMITS[0]), min(float(sizes.max()) * 100, SEARCH_LIMITS[1])
        return (low, high) if low < high else SEARCH_LIMITS  # where all sizes lie beyond
    exponents = np.arange(-300, 301)
    starts, ends = [], []
    for policy in policies:
        with np.errstate(invalid="ignore"):
            losses = np.nan_to_num(policy(10.0**exponents), nan=0.0, posinf=math.inf)
        # A unit-splitting policy may exceed the lower loss everywhere; it starts to rise later.
        above = (losses > LOSSES[0]) & (losses > 1.01 * losses[0])
        starts.append(int(exponents[np.argmax(above)]) - 1 if above.any() else 0)
        beyond = losses >= LOSSES[1]
        ends.append(int(exponents[np.argmax(beyond)]) if beyond.any() else int(exponents[-1]))
    start = max(min(starts), -300)
    return 10.0**start, 10.0 ** min(max(*ends, start + 1), 300)


def _checked_span(within: tuple[float, float]) -> tuple[float, float]:
    ends = as_array("within", within).ravel().tolist()
    if len(ends) != 2 or not 0 < ends[0] < ends[1] < math.inf:
        raise ParameterError(f"within must be two finite numbers 0 < low < high, got {within}")
    return ends[0], ends[1]


@dataclass(frozen=True)
class _Difference:
    """Two functions of the record size, and by how much the first exceeds the second."""

    one: Callable[[Array], Array]
    two: Callable[[Array], Array]
    noise: Callable[[Array], Array]

    def values(self, x: Array) -> tuple[Array, Array]:
        with np.errstate(all="ignore"):
            return self.one(x), self.two(x)

    def relative(self, x: Array) -> Array:
        """Return (p − q)/max(p, q): 0 where both are 0 or too large for a float, ±1 where only one is."""
        p, q = self.values(x)
        with np.errstate(all="ignore"):
            most = np.maximum(p, q)
            excess = np.where(most < math.inf, (p - q) / most, np.sign(p - q))
        return np.where(np.isnan(excess), 0.0, excess)

    def signs(self, x: Array) -> Signs:
        """Return −1, 0 or 1, where 0 stands for all that rounding cannot tell apart."""
        p, q = self.values(x)
        with np.errstate(all="ignore"):
            allowed = EQUAL + self.noise(x) + 8 * SMALLEST / np.maximum(p, q)
        excess = self.relative(x)
        return np.where(np.abs(excess) > allowed, np.sign(excess), 0).astype(np.int8)


@dataclass(frozen=True)
class _Pair:
    """Where two policies cross and which sign their difference has before; and where they start or stop being equal."""

    places: Array
    losses: Array
    signs: Signs
    edges: Array
    end: float


def _noise(policy: Policy) -> Callable[[Array], Array]:
    """Return the relative rounding error of a policy's values where it is more than a few units in the last place."""
    eps = np.finfo(float).eps
    if isinstance(policy, TransformationPolicy):  # it subtracts f(a), and so loses the digits of small records

        def noise(x: Array) -> Array:
            start, there = apply(policy.f, np.array([policy.a])), apply(policy.f, x + policy.a)
            cancelled = 8 * eps * (np.abs(there) + np.abs(start)) / np.abs(there - start)
            return np.asarray(2 * (cancelled + eps * (x + abs(policy.a)) / x))

        return noise
    rounding = 0.0
    if isinstance(policy, UnitSplittingPolicy):  # its loss per piece may be too small for a float
        rounding = SMALLEST / policy.rho if policy.rho > 0 else math.inf
    return lambda x: np.full_like(x, rounding)


def _difference(p: Policy, q: Policy) -> _Difference:
    noises = _noise(p), _noise(q)
    return _Difference(p, q, lambda x: noises[0](x) + noises[1](x))


def _compare_pair(p: Policy, q: Policy, low: float, high: float) -> _Pair:
    """Find all crossovers of two policies from `low` to `high`, both included."""
    difference = _difference(p, q)
    # One step beyond the ends shows whether the order changes exactly there.
    step = 10 ** (1 / PER_DECADE)
    start, stop = max(low / step, SMALLEST), min(high * step, LARGEST)
    steps = max(2, math.ceil(PER_DECADE * (math.log10(high) - math.log10(low))) + 1)
    inner = np.exp(np.linspace(math.log(low), math.log(high), steps)[1:-1])
    grid = np.unique(np.concatenate([[start, low], inner[(inner > low) & (inner < high)], [high, stop]]))
    end = high
    if isinstance(p, UnitSplittingPolicy) or isinstance(q, UnitSplittingPolicy):
        jumps, end = _jumps(p, q, grid, high)
        if end < high:
            grid = grid[grid < end]
        eps = np.finfo(float).eps
        grid = np.unique(np.concatenate([grid, jumps * (1 - 4 * eps), jumps * (1 + 4 * eps)]))
    else:
        grid = _refined(difference, grid)
    places, signs = _changes(difference, grid)
    inside = (places >= low * (1 - EQUAL)) & (places <= end * (1 + EQUAL))
    places, signs = np.clip(places[inside], low, end), signs[inside]
    return _Pair(places, np.maximum(*difference.values(places)), signs, _edges(difference, grid), end)


def _refined(difference: _Difference, grid: Array) -> Array:
    """Return the grid with more points where the sign changes, or where the difference dips towards 0."""
    inside = np.arange(1, 32) / 32
    for _ in range(2):
        cells = np.zeros(grid.size - 1, bool)
        signs = difference.signs(grid)
        changes = np.asarray(signs[:-1] * signs[1:] < 0)
        dips = _dips(difference.relative(grid), signs)
        for cell in (changes, dips[:-1], dips[1:]):
            cells |= cell
        # The cells beside them, too: a wiggle can pass through 0 three times.
        cells[1:] |= (changes | dips[1:])[:-1]
        cells[:-1] |= (changes | dips[:-1])[1:]
        left, width = grid[:-1][cells], np.diff(grid)[cells]
        grid = np.unique(np.concatenate([grid, (left[:, None] + width[:, None] * inside).ravel()]))
    signs = difference.signs(grid)
    lows = np.flatnonzero(_dips(difference.relative(grid), signs))
    if not lows.size:
        return grid
    left, right = np.maximum(lows - 1, 0), np.minimum(lows + 1, grid.size - 1)
    side = np.where(signs[lows] != 0, signs[lows], np.where(signs[left] != 0, signs[left], signs[right]))
    return np.unique(np.append(grid, _lowest(difference, side, grid[left], grid[right])))


def _dips(excess: Array, signs: Signs) -> npt.NDArray[np.bool_]:
    """Return at which points the difference is nearest to 0, if it may reach 0 before the neighbouring points."""
    size = np.abs(excess)
    before, after = np.append(math.inf, size[:-1]), np.append(size[1:], math.inf)
    lowest = (size <= before) & (size <= after)
    moved = np.abs(np.diff(excess))
    most = np.maximum(np.append(0.0, moved), np.append(moved, 0.0))
    # What varies by rounding only has many low points, but none of them comes near 0.
    dips = lowest & (signs != 0) & (size <= 8 * most)
    zero = signs == 0
    alone = np.append(False, ~zero[:-1]) | np.append(~zero[1:], False)
    return np.asarray(dips | (zero & alone))


def _lowest(difference: _Difference, side: Signs, left: Array, right: Array) -> Array:
    """Return where side·difference is least between `left` and `right`, by golden-section search."""
    ratio = (math.sqrt(5) - 1) / 2
    one, two = right - ratio * (right - left), left + ratio * (right - left)
    at_one, at_two = side * difference.relative(one), side * difference.relative(two)
    for _ in range(40):
        lower = at_one < at_two
        left, right = np.where(lower, left, one), np.where(lower, two, right)
        one, two = right - ratio * (right - left), left + ratio * (right - left)
        at_one, at_two = side * difference.relative(one), side * difference.relative(two)
    return np.where(at_one < at_two, one, two)


def _changes(difference: _Difference, grid: Array) -> tuple[Array, Signs]:
    """Return where the sign of the difference changes, and the sign it has before."""
    signs = difference.signs(grid)
    decided = np.flatnonzero(signs)
    turn = signs[decided[:-1]] != signs[decided[1:]]
    first, last = decided[:-1][turn], decided[1:][turn]
    before = signs[first]
    if not first.size:
        return np.empty(0), before
    # From here to there the difference is too small to tell. If it is in fact 0, the change is where that ends.
    left = _bisect(lambda x: difference.signs(x) == before, grid[first], grid[last])[0]
    last_equal, right = _bisect(lambda x: difference.signs(x) != -before, left, grid[last])
    quarters = [np.abs(difference.relative(left + part * (right - left))) for part in (0.25, 0.5, 0.75)]
    equal = (right > left * (1 + 1e-9)) & (np.max(quarters, axis=0) < EQUAL / 50)
    places = _bisect(lambda x: np.sign(difference.relative(x)) != -before, left, right)[0]
    return np.where(equal, last_equal, places), before


def _edges(difference: _Difference, grid: Array) -> Array:
    """Return where stretches on which both functions are equal begin and end."""
    zero = difference.signs(grid) == 0
    start = np.flatnonzero(~zero[:-2] & zero[1:-1] & zero[2:])
    stop = np.flatnonzero(zero[:-2] & zero[1:-1] & ~zero[2:]) + 1
    begins = _bisect(lambda x: difference.signs(x) != 0, grid[start], grid[start + 1])[1]
    ends = _bisect(lambda x: difference.signs(x) == 0, grid[stop], grid[stop + 1])[0]
    return np.concatenate([begins, ends])


def _bisect(holds: Callable[[Array], Any], low: Array, high: Array) -> tuple[Array, Array]:
    """Return neighbouring floats of which the condition holds for the first only, if it holds for `low` only."""
    for _ in range(64):
        middle = low + (high - low) / 2
        if ((middle <= low) | (middle >= high)).all():
            break
        held = holds(middle)
        low, high = np.where(held, middle, low), np.where(held, high, middle)
    return low, high


def _jumps(p: Policy, q: Policy, grid: Array, high: float) -> tuple[Array, float]:
    """Return the jumps at which the policies may cross, and up to which size these are all that there are."""
    lower, upper = ([_envelope(policy, side) for policy in (p, q)] for side in (0, 1))
    noise = _difference(p, q).noise
    # Where the first of these is not negative, p is nowhere less than q; where the second is not, q than p.
    bounds = _Difference(lower[0], upper[1], noise), _Difference(lower[1], upper[0], noise)
    ends = np.array([grid[0], grid[-1]])
    for bound in bounds:
        finer = _refined(bound, grid)
        ends = np.union1d(ends, np.concatenate([_changes(bound, finer)[0], _edges(bound, finer)]))
    middles = np.sqrt(ends[:-1]) * np.sqrt(ends[1:])
    open_ = (bounds[0].signs(middles) < 0) & (bounds[1].signs(middles) < 0)
    stretches = [*zip(ends[:-1][open_], ends[1:][open_], strict=True), *((turn, turn) for turn in ends[1:-1])]
    found, end = [np.empty(0)], high
    for policy in {p, q}:
        if isinstance(policy, UnitSplittingPolicy):
            for start, stop in sorted(stretches):
                first = max(1.0, math.floor(start / policy.threshold) - 2)
                last = min(math.ceil(stop / policy.threshold) + 2.0, PIECES)
                if last - first > JUMPS:
                    last = first + JUMPS
                    end = min(end, last * policy.threshold)
                found.append(policy.threshold * np.arange(first, last + 1))
    jumps = np.unique(np.concatenate(found))
    jumps = jumps[(jumps > grid[0]) & (jumps < grid[-1])]
    return jumps[jumps <= end], end


def _envelope(policy: Policy, side: int) -> Callable[[Array], Array]:
    """Return a function without jumps that is at most (side 0) or at least (side 1) the policy, and meets its jumps."""
    if not isinstance(policy, UnitSplittingPolicy):
        return policy
    smooth = RootPolicy(1, policy.sigma)
    return lambda x: np.asarray(smooth(np.minimum(x + side * policy.threshold, LARGEST)))


def _best(policies: dict[str, Policy], ends: Array) -> list[tuple[float, float, str]]:
    """Return the fewest stretches such that the named policy is the least one throughout each of them."""
    names, starts, stops = list(policies), ends[:-1], ends[1:]
    least = np.ones((len(names), starts.size), bool)
    for part in FRACTIONS:
        x = np.clip(starts ** (1 - part) * stops**part, starts, stops)
        for (i, one), (j, two) in combinations(enumerate(names), 2):
            signs = _difference(policies[one], policies[two]).signs(x)
            least[i] &= signs <= 0
            least[j] &= signs >= 0
    # How far each policy goes on being the least one. Of equal ones, that which is overtaken last is named.
    places = np.where(least, starts.size, np.arange(starts.size))
    until = np.minimum.accumulate(places[:, ::-1], axis=1)[:, ::-1]
    stretches: list[tuple[float, float, str]] = []
    at = 0
    while at < starts.size:
        which = int(np.argmax(until[:, at]))
        after = max(int(until[which, at]), at + 1)
        stretches.append((float(starts[at]), float(stops[after - 1]), names[which]))
        at = after
    return stretches


def _table(title: str, labels: Sequence[str], at: Sequence[float], names: Sequence[str], values: Array) -> str:
    first = max(len(title), *(len(name) for name in names))
    rows = [[figure(value) for value in row] for row in values]
    heads = [list(map(figure, at))]
    if any(labels):
        heads.insert(0, list(labels))
    widths = [max(9, *map(len, column)) for column in zip(*heads, *rows, strict=True)]
    lines = [
        f"{name:<{first}}  " + "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        for name, row in zip([*[""] * (len(heads) - 1), title, *names], [*heads, *rows], strict=True)
    ]
    lines.insert(len(heads), "-" * len(lines[0]))
    return "\n".join(lines)


def same_error(std: float, at: float) -> dict[str, Mechanism]:
    """Return mechanisms of one standard deviation, by name; for the transformations it is that of a sum of `at`.

    They are those of the paper's experiments (Table experiment-params).

    >>> {name: round(m.std(106)) for name, m in same_error(std=75, at=106).items()}["log"]
    75
    """
    return {
        name: cls.calibrate(std=std, at=at if cls._error_grows else None, **fixed)
        for cls in REGISTRY.values()
        for name, fixed in cls.compared.items()
    }
