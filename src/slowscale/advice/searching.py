"""The two searches: the least losses at a wanted error, and the least error at wanted losses."""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slowscale.advice.shapes import HALVINGS, SPACES, Accuracy, Point, Shape, Space
from slowscale.core.errors import CalibrationError, ParameterError
from slowscale.core.parameters import Array
from slowscale.mechanisms import FromPolicy, Mechanism
from slowscale.mechanisms.additive import AdditiveMechanism
from slowscale.policy import PointsPolicy

# Losses below this count as this much: an attacker learns next to nothing, so that their ratios mean nothing.
SMALL_LOSS = 0.01
# The weight of the mean of the log-losses beside the largest ratio. It decides between candidates with the same ratio.
MEAN_WEIGHT = 1e-3
MOST_SHOWN = 8  # of the front
NEAR = math.log(1.15)  # candidates of the front are shown if they differ by this much at some size
NO_ERROR = 1e-12  # an error of this share of the smallest size counts as none
FAR_ABOVE = math.log(30)  # losses above the least one by this factor count as this factor above it
TRANSFORMATIONS = "root or log"
# How far the charged losses may stay below the wanted ones.
LOSS_TOLERANCE = 1e-3
MOST_SCALES_TRIED = 30
PROMISES_TRIED = 12


@dataclass(frozen=True)
class Entry:
    """A candidate before its certified losses are computed: its family, how to build it, and its losses."""

    family: str
    build: Callable[[], Mechanism]
    losses: Array


def regrets(losses: Array, best: Array | None = None) -> Array:
    """Return for each row of losses the largest ratio to the least loss at the same size, by default of all rows."""
    floored = np.maximum(losses, SMALL_LOSS)
    found: Array = (floored / (floored.min(axis=0) if best is None else best)).max(axis=1)
    return found


def ranks(losses: Array, best: Array | None = None) -> Array:
    """Return the criterion of the recommendation, which is minimal: the log-regret, and a little of the mean log-loss.

    It grows with the loss at every size, so that no row can be less at all sizes than the row that has least of it.
    """
    logs = np.log(np.maximum(losses, 1e-300))
    found: Array = np.log(regrets(losses, best)) + MEAN_WEIGHT * logs.mean(axis=1)
    return found


def efficient(losses: Array) -> npt.NDArray[np.bool_]:
    """Return for each row of losses whether no other row is at most as large at every size and smaller at one."""
    at_most = (losses[:, None, :] <= losses[None, :, :]).all(axis=2)
    less = (losses[:, None, :] < losses[None, :, :]).any(axis=2)
    return np.asarray(~(at_most & less).any(axis=0))


class LeastLosses:
    """The candidates with a wanted error."""

    def __init__(self, sizes: Array, accuracy: Accuracy, wanted: float) -> None:
        self._sizes, self._accuracy, self._wanted = sizes, accuracy, wanted

    def search(self) -> list[Mechanism]:
        """Return the mechanisms to show: a selection of the front, and the best of each family."""
        found = {space.name: self._scan(space) for space in SPACES}
        others = self._transformations()

        def pool() -> tuple[list[Entry], Array]:
            entries = [entry for points in found.values() for entry in points.values()] + others
            return entries, np.array([entry.losses for entry in entries])

        best = np.maximum(pool()[1], SMALL_LOSS).min(axis=0)
        for space in SPACES:
            self._refine(space, found[space.name], lambda losses: float(ranks(losses[None], best)[0]))
        # Then look for candidates that lose less at every size than the one that is recommended so far.
        _, losses = pool()
        leader = np.log(np.maximum(losses[ranks(losses).argmin()], 1e-300))
        for space in SPACES:
            self._refine(space, found[space.name], lambda losses: float((np.log(losses) - leader).max()))
        entries, losses = pool()
        return [entries[i].build() for i in _selection([entry.family for entry in entries], losses)]

    def _scan(self, space: Space) -> dict[Point, Entry]:
        made = {point: self._entry(space, point) for point in space.grid()}
        return {point: entry for point, entry in made.items() if entry is not None}

    def _entry(self, space: Space, point: Point) -> Entry | None:
        shape = space.shape(*point)
        unit = shape.unit
        if unit is None or not self._accuracy.allows(unit):
            return None
        losses = unit.losses(self._sizes * (self._accuracy.of_unit(unit) / self._wanted))
        return Entry(space.name, lambda: self._accuracy.scaled(shape, self._wanted), losses)

    def _refine(self, space: Space, known: dict[Point, Entry], score: Callable[[Array], float]) -> None:
        """Add points around the one whose losses have the least score, with smaller and smaller steps."""
        if not known:
            return

        def rank(entry: Entry) -> float:
            return score(np.maximum(entry.losses, 1e-300))

        point = min(known, key=lambda at: rank(known[at]))
        for halving in range(HALVINGS):
            moving = True
            while moving:
                moving = False
                for other in space.neighbours(point, 0.5 ** (halving + 1)):
                    entry = known.get(other) or self._entry(space, other)
                    if entry is not None:
                        known[other] = entry
                        if rank(entry) < rank(known[point]) - 1e-6:
                            point, moving = other, True

    def _transformations(self) -> list[Entry]:
        """Return the roots and logs with the wanted error."""
        solved = [self._accuracy.solved(build, self._wanted) for build in self._accuracy.transformations()]
        return [
            Entry(TRANSFORMATIONS, lambda found=found: found, np.asarray(found.policy(self._sizes)))  # type: ignore[misc]
            for found in solved
            if found is not None
        ]


def _pure_loss(loss: float) -> float:
    """Return the PRDP loss ε for which the PRzCDP loss tanh(ε/2)·ε has a value."""
    from scipy.optimize import brentq

    return float(brentq(lambda e: math.tanh(e / 2) * e - loss, 0.0, loss + math.sqrt(2 * loss) + 1, xtol=1e-12))


def _selection(families: list[str], losses: Array) -> list[int]:
    """Return the rows to show: the recommended one, the best at each size, some of the front, and of each family."""
    order = ranks(losses)
    front = np.flatnonzero(efficient(losses))
    logs = np.log(np.maximum(losses, SMALL_LOSS))
    logs = np.minimum(logs, logs.min(axis=0) + FAR_ABOVE)
    shown = [int(front[order[front].argmin()])]
    shown += [int(front[losses[front, i].argmin()]) for i in range(losses.shape[1])]
    shown = list(dict.fromkeys(shown))
    while len(shown) < MOST_SHOWN:
        apart = np.abs(logs[front][:, None, :] - logs[shown][None, :, :]).max(axis=2).min(axis=1)
        if apart.max() < NEAR:
            break
        shown.append(int(front[apart.argmax()]))
    for family in dict.fromkeys(families):
        rows = [i for i, name in enumerate(families) if name == family]
        shown.append(min(rows, key=lambda i: order[i]))
    return list(dict.fromkeys(shown))


class LeastError:
    """The mechanisms that keep wanted losses, with the least error of each family."""

    def __init__(self, sizes: Array, accuracy: Accuracy, wanted: Array) -> None:
        self._sizes, self._accuracy, self._wanted = sizes, accuracy, wanted

    def search(self) -> list[Mechanism]:
        """Return the best mechanism of each family, the one with the least error first."""
        found: list[Mechanism] = []
        for space in SPACES:
            shape, error = self._best(space)
            if shape is not None:
                with suppress(CalibrationError):  # another family can keep the losses
                    found.append(self._certified(shape, error))
        promise, error = self._promise()
        if promise is not None:
            with suppress(CalibrationError):
                found.append(self._certified(promise, error))
        found += self._transformation()
        return sorted(found, key=self._accuracy.of)

    def _excess(self, shape: Shape, error: float) -> float:
        """Return the log of the largest ratio of a loss to the wanted one, if a shape has an error."""
        assert shape.unit is not None
        losses = shape.unit.losses(self._sizes * (self._accuracy.of_unit(shape.unit) / error))
        return float(np.log(np.maximum(losses, 1e-300) / self._wanted).max())

    def _best(self, space: Space) -> tuple[Shape | None, float]:
        """Return the shape with the least error, and that error."""
        best: Shape | None = None
        point: Point = ()
        error = math.inf
        for other in space.grid():
            better = self._improved(space.shape(*other), error)
            if better is not None:
                best, point, error = space.shape(*other), other, better
        for halving in range(HALVINGS if best is not None else 0):
            moving = True
            while moving:
                moving = False
                for other in space.neighbours(point, 0.5 ** (halving + 1)):
                    better = self._improved(space.shape(*other), error)
                    if better is not None:
                        best, point, error, moving = space.shape(*other), other, better, True
        return best, error

    def _improved(self, shape: Shape, error: float) -> float | None:
        """Return the least error of a shape if it is less than a known one by 0.01 %, otherwise None."""
        from scipy.optimize import brentq

        unit = shape.unit
        if unit is None or not self._accuracy.allows(unit):
            return None
        if error < math.inf and self._excess(shape, error * (1 - 1e-4)) > 0:
            return None

        def excess(log: float) -> float:
            return self._excess(shape, math.exp(log))

        # A known error is mostly improved by a little, so that the first steps are small.
        high, step = (math.log(error), 0.02) if error < math.inf else (math.log(float(self._sizes.max())), 1.0)
        while excess(high) > 0:
            high, step = high + step, 2 * step
        low = high - step
        least = math.log(float(self._sizes.min())) + math.log(NO_ERROR)
        while excess(low) < 0:
            if low < least:
                return math.exp(least)
            high, step = low, 2 * step
            low = high - step
        return math.exp(float(brentq(excess, low, high, xtol=1e-4)))

    def _certified(self, shape: Shape, error: float) -> AdditiveMechanism:
        """Return the mechanism whose charged losses are at most the wanted ones, and nearly reach one of them."""
        log = math.log(self._accuracy.scaled(shape, error).sigma)
        slope = (self._excess(shape, 1.01 * error) - self._excess(shape, error)) / math.log(1.01)
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
                "losses",
                f"cannot be kept by {shape.family.__name__} with any scale that was tried",
                code="unreachable",
                remedy="raise the losses",
            )
        return shape.with_scale(math.exp(min(kept)))

    def _promise(self) -> tuple[Shape | None, float]:
        """Return noise that is made from the wanted losses, and its error; see `FromPolicy`.

        Its promise is of PRDP losses. At first they are those whose closed form is the wanted loss. The tight loss is
        lower, more so at some sizes than at others, so that the promise is raised until they agree.
        """
        best: Shape | None = None
        error = math.inf
        pure = np.array([_pure_loss(loss) for loss in self._wanted.tolist()])
        for _ in range(PROMISES_TRIED):
            promised, power = [float(pure[0])], 1.0
            for i in range(1, pure.size):  # the promise must bend downwards on logarithmic axes
                ratio = float(self._sizes[i] / self._sizes[i - 1])
                promised.append(min(float(pure[i]), promised[-1] * ratio**power * (1 - 1e-12)))
                power = math.log(promised[-1] / promised[-2]) / math.log(ratio)
            try:
                points = PointsPolicy(tuple(zip(self._sizes.tolist(), promised, strict=True)))
                shape = Shape(FromPolicy, (("promise", points),))
                better = self._improved(shape, error)
            except ParameterError:  # a promise that does not grow, or noise that would be too large
                return best, error
            if better is not None:
                best, error = shape, better
            if shape.unit is None:
                return best, error
            pure = np.array(promised) * np.sqrt(self._wanted / np.maximum(shape.unit.losses(self._sizes), 1e-300))
        return best, error

    def _charged_excess(self, mechanism: AdditiveMechanism) -> float:
        """Return the log of the largest ratio of a charged loss to the wanted one."""
        # A tight policy is read from a curve, which lies at most by its precision above the single values.
        above = 1 + getattr(mechanism.tight_policy, "precision", 0.0)
        closed = mechanism.policy.upper or mechanism.policy
        pairs = zip(self._sizes.tolist(), self._wanted.tolist(), strict=True)
        return max(
            math.log(max(min(float(closed(x)), above * mechanism.tight_loss(x)), 1e-300) / wanted)
            for x, wanted in pairs
        )

    def _transformation(self) -> list[Mechanism]:
        """Return the root or log with the least error, if there is one."""
        found = []
        for build in self._accuracy.transformations():
            losses = np.asarray(build(1.0).policy(self._sizes))  # losses are proportional to 1/σ²
            mechanism = build(math.sqrt(float((losses / self._wanted).max())) * (1 + 1e-12))
            if self._accuracy.keeps_rare(mechanism):
                found.append(mechanism)
        return [min(found, key=self._accuracy.of)] if found else []
