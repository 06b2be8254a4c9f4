"""The search: the mechanisms that keep limits on errors and losses, and have the least of the rest."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from slowscale.advice.shapes import (
    HALVINGS,
    SPACES,
    Accuracy,
    Moves,
    Point,
    Shape,
    Space,
    UnitNoise,
    largest_scale,
    log_excess,
    transformations,
)
from slowscale.core.errors import CalibrationError, ParameterError
from slowscale.core.parameters import Array, lazy
from slowscale.mechanisms import FromPolicy, Mechanism
from slowscale.policy import PointsPolicy

# The power of the error of large sums that counts like a loss, where it has no limit: 10 % more error counts like 2.6
# times the loss.
LARGE_WEIGHT = 10
# Losses below this count as this much: an attacker learns next to nothing, so that their ratios mean nothing.
SMALL_LOSS = 0.01
# The weight of the mean of the logarithms beside the largest ratio. It decides between candidates with the same ratio.
MEAN_WEIGHT = 1e-3
MOST_SHOWN = 6  # of the front
NEAR = math.log(1.15)  # candidates of the front are shown if they differ by this much in some quantity
NO_ERROR = 1e-12  # an error of this share of the smallest size counts as none
FAR_ABOVE = math.log(30)  # candidates whose regret is larger by this factor are not shown for being different
IMPOSSIBLE = 1e3  # the rank of a shape with which limits cannot be kept together
# How far the charged losses may stay below the wanted ones.
LOSS_TOLERANCE = 1e-3
MOST_SCALES_TRIED = 30
PROMISES_TRIED = 12
SMALL, LARGE = 0, 1  # the errors of the small and of the large sum


@dataclass(frozen=True, eq=False)
class Goal:
    """What is wanted.

    Attributes
    ----------
    accuracy
        How errors are measured.
    errors
        The limits of the errors of the small and of the large sum; infinite where there is none.
    moves, limits
        Records that enter a cell or change their value, and the limits of their losses; infinite where there is none.
    counted
        Which losses count in the comparison of candidates.
    least
        Which errors shall be least within all limits: `SMALL`, `LARGE`, or the product of both. None of them: the
        counted losses.
    weighs_large
        Whether the error of the large sum counts beside the losses.
    spends
        Whether errors are as large as their limits allow. Otherwise losses are.
    transform
        Whether roots and logs are tried.
    """

    accuracy: Accuracy
    errors: tuple[float, float]
    moves: Moves
    limits: Array
    counted: npt.NDArray[np.bool_]
    least: tuple[int, ...] = ()
    weighs_large: bool = False
    spends: bool = True
    transform: bool = True

    def error(self, errors: tuple[float, float]) -> float:
        """Return the error that shall be least: that of the small or of the large sum, or the product of the two."""
        return math.prod(errors[i] for i in self.least)

    def values(self, losses: Array, errors: tuple[float, float]) -> Array:
        """Return the quantities that shall be least, from all losses and errors."""
        if self.least:
            return np.array([self.error(errors)])
        counted = losses[self.counted]
        if not self.weighs_large:
            return counted
        # The error of a large sum is not below that of a small one.
        return np.append(counted, SMALL_LOSS * (errors[LARGE] / min(self.errors)) ** LARGE_WEIGHT)

    @property
    def floor(self) -> float:
        """Smaller values of what shall be least count as this much."""
        return 0.0 if self.least else SMALL_LOSS

    @lazy
    def limited(self) -> tuple[Moves, Array]:
        """The moves whose loss has a limit, and the limits."""
        kept = np.isfinite(self.limits)
        return Moves(self.moves.low[kept], self.moves.gap[kept]), self.limits[kept]

    @lazy
    def spaces(self) -> tuple[Space, ...]:
        """The spaces to search."""
        if not self.transform:
            return SPACES
        known = [*self.moves.gap[self.moves.low == 0].tolist(), self.accuracy.large]
        sums = [*known, *(one for one in (self.accuracy.at, self.errors[SMALL]) if 0 < one < math.inf)]
        return (*SPACES, *transformations(1e-3 * min(sums), max(sums)))


@dataclass(frozen=True, eq=False)
class Entry:
    """A candidate before its certified losses are computed.

    Attributes
    ----------
    family
        The name of its space.
    shape, scale
        What it is made of.
    values
        The quantities that shall be least.
    misses
        The logarithm of the largest ratio of an error or a loss to its limit; 0 if all limits are kept.
    """

    family: str
    shape: Shape
    scale: float
    values: Array
    misses: float = 0.0


def regrets(values: Array, floor: float = SMALL_LOSS, best: Array | None = None) -> Array:
    """Return for each row the largest ratio to the least value in the same column, by default of all rows."""
    floored = np.maximum(values, floor)
    found: Array = (floored / (floored.min(axis=0) if best is None else best)).max(axis=1)
    return found


def ranks(values: Array, floor: float = SMALL_LOSS, best: Array | None = None) -> Array:
    """Return the criterion of the recommendation, which is minimal: the log-regret, and a little of the mean logarithm.

    It grows with every value, so that no row can be less in all columns than the row that has least of it.
    """
    logs = np.log(np.maximum(values, 1e-300))
    found: Array = np.log(regrets(values, floor, best)) + MEAN_WEIGHT * logs.mean(axis=1)
    return found


def efficient(values: Array) -> npt.NDArray[np.bool_]:
    """Return for each row whether no other row is at most as large in every column and smaller in one."""
    at_most = (values[:, None, :] <= values[None, :, :]).all(axis=2)
    less = (values[:, None, :] < values[None, :, :]).any(axis=2)
    return np.asarray(~(at_most & less).any(axis=0))


class Search:
    """The candidates for a goal."""

    def __init__(self, goal: Goal, spaces: Sequence[Space] | None = None) -> None:
        self._goal = goal
        self._spaces = goal.spaces if spaces is None else spaces
        self._found: dict[str, dict[Point, Entry]] = {}

    def search(self) -> list[Mechanism]:
        """Return the mechanisms to show, the best one first: some of the front, and the best of each family."""
        self._found = {space.name: self._scan(space) for space in self._spaces}
        entries, values = self._pool()
        if not entries:
            return []
        floor = self._goal.floor
        if self._goal.transform and not self._goal.least:
            self._refine_each(values)
        best = np.maximum(self._pool()[1], floor).min(axis=0)
        for space in self._spaces:
            self._refine(space, lambda values: float(ranks(values[None], floor, best)[0]))
        if not self._goal.least:
            # Then look for candidates that lose less at every size than the one that is recommended so far.
            _, values = self._pool()
            leader = np.log(np.maximum(values[ranks(values).argmin()], 1e-300))
            for space in self._spaces:
                self._refine(space, lambda values: float((np.log(values) - leader).max()))
        entries, values = self._pool()
        if not self._goal.least:
            chosen = [entries[i] for i in _selection([entry.family for entry in entries], values)]
            return [one for entry in chosen if (one := self._built(entry)) is not None]
        order = ranks(values, floor)
        firsts: dict[str, int] = {}
        for i in np.argsort(order, kind="stable"):
            firsts.setdefault(entries[i].family, int(i))
        made = [self._built(entries[i]) for i in firsts.values()]
        made.append(None if self._goal.spends else self._promise())
        kept = [one for one in made if one is not None]
        return sorted(kept, key=lambda one: self._goal.error(self._goal.accuracy.of(one)))

    def _refine_each(self, values: Array) -> None:
        """Refine the candidate that has least of each quantity: regrets are ratios to these."""
        for i in range(values.shape[1]):
            entries, values = self._pool()
            first = entries[int(values[:, i].argmin())]
            if first.values[i] > self._goal.floor:
                (space,) = [space for space in self._spaces if space.name == first.family]
                self._refine(space, lambda values, i=i: math.log(values[i]))  # type: ignore[misc]

    def nearest(self) -> Entry | None:
        """Return the candidate that misses the limits by least, after a search that found none."""
        entries = [entry for points in self._found.values() for entry in points.values()]
        return min(entries, key=lambda entry: entry.misses, default=None)

    def _pool(self) -> tuple[list[Entry], Array]:
        """Return the candidates that keep all limits, and their values."""
        entries = [entry for points in self._found.values() for entry in points.values() if entry.misses == 0]
        return entries, np.array([entry.values for entry in entries])

    def _scan(self, space: Space) -> dict[Point, Entry]:
        found: dict[Point, Entry] = {}
        least = math.inf
        for point in space.grid():
            entry = self._entry(space.name, space.shape(*point), least)
            if entry is not None:
                found[point] = entry
                least = min(least, self._bound(entry))
        return found if self._pool_of(found) else self._nearer(space, found)

    @staticmethod
    def _pool_of(found: dict[Point, Entry]) -> bool:
        return any(entry.misses == 0 for entry in found.values())

    def _nearer(self, space: Space, found: dict[Point, Entry]) -> dict[Point, Entry]:
        """Add points around the one that misses the limits by least, until one keeps them."""
        if found:
            self._descend(space, found, lambda entry: entry.misses)
        return found

    def _refine(self, space: Space, score: Callable[[Array], float]) -> None:
        """Add points around the one whose values have the least score, with smaller and smaller steps."""

        def rank(entry: Entry) -> float:
            return IMPOSSIBLE + entry.misses if entry.misses else score(np.maximum(entry.values, 1e-300))

        known = self._found[space.name]
        if self._pool_of(known):
            self._descend(space, known, rank)

    def _descend(self, space: Space, known: dict[Point, Entry], rank: Callable[[Entry], float]) -> None:
        point = min(known, key=lambda at: rank(known[at]))
        for halving in range(space.halvings):
            moving = True
            while moving:
                moving = False
                for other in space.neighbours(point, 0.5 ** (halving + 1)):
                    entry = known.get(other) or self._entry(space.name, space.shape(*other), self._bound(known[point]))
                    if entry is not None:
                        known[other] = entry
                        if rank(entry) < rank(known[point]) - 1e-6:
                            point, moving = other, True

    def _bound(self, entry: Entry) -> float:
        """Return the error of additive noise that another shape of its family must improve."""
        if self._goal.spends or entry.shape.transforms:
            return math.inf
        return self._goal.accuracy.errors(entry.shape, entry.scale)[SMALL]

    def _entry(self, family: str, shape: Shape, bound: float) -> Entry | None:
        """Return a candidate, or None if its rare errors are too large, or additive noise has no error below a bound.

        Errors grow with the scale and losses fall. So the limits of losses give the least scale, and those of errors
        the largest one.
        """
        goal, unit = self._goal, shape.unit
        if unit is None or not (shape.transforms or goal.accuracy.allows(unit)):
            return None
        limited, limits = goal.limited
        shifts, wanted = shape.shifts(limited), limits / (1 + unit.precision)
        if bound < math.inf:
            less = bound * (1 - 1e-4) / goal.accuracy.errors(shape, 1.0)[SMALL]
            if _excess(unit, shifts / less, wanted) > 0:
                return None
        try:
            if goal.spends:
                scale = largest_scale(goal.accuracy, shape, goal.errors)
                misses = _excess(unit, shifts / scale, wanted) if scale and limits.size else 0.0
            else:
                scale = _least_scale(unit, shifts, wanted, self._no_scale(shape, unit))
                misses = log_excess(goal.accuracy.errors(shape, scale), goal.errors)
            if scale == 0 or (shape.transforms and not goal.accuracy.keeps_rare(shape.with_scale(scale), quick=True)):
                return None
            errors = goal.accuracy.errors(shape, scale) if goal.least or goal.weighs_large else goal.errors
            losses = goal.limits if goal.least else unit.losses(shape.shifts(goal.moves) / scale)
            values = goal.values(losses, errors)
        except (ParameterError, OverflowError):
            return None
        return Entry(family, shape, scale, values, misses if misses > 1e-9 else 0.0)

    def _no_scale(self, shape: Shape, unit: UnitNoise) -> float:
        """Return a scale that is so small that there is hardly any noise."""
        return NO_ERROR * float(shape.shifts(self._goal.moves).min()) / unit.half_width(0.5)

    def _built(self, entry: Entry) -> Mechanism | None:
        """Return the mechanism of a candidate if its charged losses and its rare errors are certain to keep limits."""
        goal, shape = self._goal, entry.shape
        try:
            if shape.transforms:
                made = shape.with_scale(entry.scale * (1 - 1e-12 if goal.spends else 1 + 1e-12))
            elif not goal.spends:
                made = self._certified(shape, entry.scale)
            else:
                errors = goal.accuracy.of(shape.with_scale(1.0))
                made = shape.with_scale(min(limit / error for limit, error in zip(goal.errors, errors, strict=True)))
                if goal.limited[1].size and self._charged_excess(made) > 0:
                    return None
        except CalibrationError:  # another family can keep the losses
            return None
        if shape.transforms and not goal.accuracy.keeps_rare(made):
            return None
        above = zip(goal.accuracy.of(made), goal.errors, strict=True)
        return made if all(error <= limit * (1 + 1e-6) for error, limit in above) else None

    def _certified(self, shape: Shape, scale: float) -> Mechanism:
        """Return the mechanism whose charged losses are at most the limits, and nearly reach one of them."""
        moves, limits = self._goal.limited
        unit = shape.unit
        assert unit is not None
        log = math.log(scale)
        slope = (
            _excess(unit, moves.gap / (1.01 * scale), limits) - _excess(unit, moves.gap / scale, limits)
        ) / math.log(1.01)
        tried: dict[float, float] = {}
        for _ in range(MOST_SCALES_TRIED):
            tried[log] = excess = self._charged_excess(shape.with_scale(math.exp(log)))
            if -LOSS_TOLERANCE <= excess <= 0:
                break
            above, below = [x for x in tried if tried[x] > 0], [x for x in tried if tried[x] <= 0]
            log -= (excess + LOSS_TOLERANCE / 2) / min(slope, -0.01)
            if above and below:  # a larger scale has smaller losses
                left, right = max(above), min(below)
                room = 0.05 * (right - left)
                log = min(max(log, left + room), right - room)
        kept = [x for x in tried if tried[x] <= 0]
        if not kept:
            raise CalibrationError(
                "presence",
                f"cannot be kept by {shape.family.__name__} with any scale that was tried",
                code="unreachable",
                remedy="raise the losses",
            )
        return shape.with_scale(math.exp(min(kept)))

    def _charged_excess(self, mechanism: Mechanism) -> float:
        """Return the log of the largest ratio of a charged loss of additive noise to its limit."""
        # A tight policy is read from a curve, which lies at most by its precision above the single values.
        above = 1 + getattr(mechanism.tight_policy, "precision", 0.0)
        closed = mechanism.policy.upper or mechanism.policy
        moves, limits = self._goal.limited
        return max(
            math.log(max(min(float(closed(x)), above * mechanism.tight_loss(x)), 1e-300) / limit)
            for x, limit in zip(moves.gap.tolist(), limits.tolist(), strict=True)
        )

    def _promise(self) -> Mechanism | None:
        """Return noise that is made from the limits of losses; see `FromPolicy`.

        Its promise is of PRDP losses. At first they are those whose closed form is the wanted loss. The tight loss is
        lower, more so at some sizes than at others, so that the promise is raised until they agree.
        """
        moves, limits = self._goal.limited
        order = np.argsort(moves.gap, kind="stable")
        # The limit of a larger change holds for every smaller one.
        gaps, wanted = moves.gap[order], np.minimum.accumulate(limits[order][::-1])[::-1]
        pure = np.array([_pure_loss(loss) for loss in wanted.tolist()])
        best: Entry | None = None
        for _ in range(PROMISES_TRIED):
            promised, power = [float(pure[0])], 1.0
            for i in range(1, pure.size):  # the promise must bend downwards on logarithmic axes
                ratio = float(gaps[i] / gaps[i - 1])
                promised.append(min(float(pure[i]), promised[-1] * ratio**power * (1 - 1e-12)))
                power = math.log(promised[-1] / promised[-2]) / math.log(ratio)
            try:
                points = PointsPolicy(tuple(zip(gaps.tolist(), promised, strict=True)))
                shape = Shape(FromPolicy, (("promise", points),))
                entry = self._entry("from policy", shape, math.inf if best is None else self._bound(best))
            except (ParameterError, ValueError):  # a promise that does not grow, or noise that would be too large
                break
            if entry is not None and entry.misses == 0:
                best = entry
            if shape.unit is None:
                break
            pure = np.array(promised) * np.sqrt(wanted / np.maximum(shape.unit.losses(gaps), 1e-300))
        return None if best is None else self._built(best)


def _excess(unit: UnitNoise, influences: Array, wanted: Array) -> float:
    """Return the log of the largest ratio of a loss to the wanted one."""
    return float(np.log(np.maximum(unit.losses(influences), 1e-300) / wanted).max())


def _least_scale(unit: UnitNoise, shifts: Array, wanted: Array, none: float) -> float:
    """Return the least scale with which the losses of shifts are at most the wanted ones; `none` or 0 if any is."""
    from scipy.optimize import brentq

    if not shifts.size:
        return 0.0

    def excess(log: float) -> float:
        return _excess(unit, shifts / math.exp(log), wanted)

    high, step = math.log(float(shifts.max())), 1.0
    while excess(high) > 0:
        high, step = high + step, 2 * step
    low, least = high - step, math.log(none)
    while excess(low) < 0:
        if low < least:
            return none
        high, step = low, 2 * step
        low = high - step
    # On the side on which the losses are kept.
    return math.exp(float(brentq(excess, low, high, xtol=1e-6)) + 1e-6)


def _pure_loss(loss: float) -> float:
    """Return the PRDP loss ε for which the PRzCDP loss tanh(ε/2)·ε has a value."""
    from scipy.optimize import brentq

    return float(brentq(lambda e: math.tanh(e / 2) * e - loss, 0.0, loss + math.sqrt(2 * loss) + 1, xtol=1e-12))


def _selection(families: list[str], losses: Array) -> list[int]:
    """Return the rows to show: the recommended one, the best at each size, some of the front, and of each family."""
    order = ranks(losses)
    front = np.flatnonzero(efficient(losses))
    logs = np.log(np.maximum(losses, SMALL_LOSS))
    shown = [int(front[order[front].argmin()])]

    def distances(rows: npt.NDArray[np.intp], others: list[int]) -> Array:
        found: Array = np.abs(logs[rows][:, None, :] - logs[others][None, :, :]).max(axis=2).min(axis=1)
        return found

    # Regrets are ratios to the least losses, so that these are shown.
    least = [int(front[losses[front, i].argmin()]) for i in range(losses.shape[1])]
    shown += [row for i, row in enumerate(least) if losses[row, i] > SMALL_LOSS or losses.shape[1] == 1]
    shown = list(dict.fromkeys(shown))
    front = front[order[front] <= order[front].min() + FAR_ABOVE]
    while len(shown) < MOST_SHOWN:
        apart = distances(front, shown)
        if apart.max() < NEAR:
            break
        shown.append(int(front[apart.argmax()]))
    for family in dict.fromkeys(families):
        rows = [i for i, name in enumerate(families) if name == family]
        first = min(rows, key=lambda i: order[i])
        same = [i for i in shown if families[i] == family]
        if not same or distances(np.array([first]), same)[0] >= NEAR:
            shown.append(first)
    return shown


def trade_off(goal: Goal, move: int, losses: Sequence[float]) -> list[Mechanism]:
    """Return for several losses of a move the log or root with the least error of a large sum, where there is one.

    All have the same error of a small sum, and Laplace noise: it costs the presence of large records less.
    """
    spaces = [replace(space, halvings=HALVINGS) for space in goal.spaces if space.name.endswith("Laplace")]
    found = []
    for loss in losses:
        limits = goal.limits.copy()
        limits[move] = min(limits[move], loss)
        asked = replace(
            goal, limits=limits, errors=(goal.errors[SMALL], math.inf), least=(LARGE,), weighs_large=False, spends=True
        )
        with suppress(IndexError):
            found.append(Search(asked, spaces).search()[0])
    return found
