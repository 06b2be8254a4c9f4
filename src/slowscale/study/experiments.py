"""The experiments: every mechanism releases the sums of all cells many times, and the errors are counted.

The paper compares mechanisms of equal error. A curator often has to answer the other question, which the "gains" are
about: the largest business may lose this much; how wrong is the table then?

Errors are counted in fine logarithmic bins. Counts add up over blocks of releases, take little memory however many
releases there are, and give every percentile with a relative accuracy of 0.2 %.
"""

import hashlib
import json
import math
import warnings
import zipfile
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq

import slowscale as ss
from slowscale.core.errors import ScaleWarning
from slowscale.core.files import write_files
from slowscale.core.numbers import format_number, power_in_words
from slowscale.core.parameters import Array
from slowscale.mechanisms.exact_sums import Exact
from slowscale.sampling import KnownBits
from slowscale.study.attributes import Attribute, Integers, experiment_mechanisms
from slowscale.study.values import BAND, band_loss

BINS_PER_DECADE = 1000
LOWEST, HIGHEST = -12, 24  # powers of ten; the first bin also holds all smaller errors, the last one all larger ones
BINS = (HIGHEST - LOWEST) * BINS_PER_DECADE
DRAWS_AT_A_TIME = 1 << 20
UNITS_PER_ERROR = 10_000  # a typical error of the smallest cell has so many units of the grid
PERCENTILES = (5, 25, 50, 75, 95)


@dataclass(frozen=True, eq=False)
class Experiment:
    """A mechanism that releases the sums of all cells many times.

    Attributes
    ----------
    sums
        The true sum of each cell; none is 0.
    groups
        The number of the group of each cell, from 0, within which errors are counted together.
    protected
        The sums of clipped records, if noise is added to these instead of the true sums.
    """

    mechanism: ss.Mechanism
    sums: Array
    groups: Integers
    repetitions: int
    protected: Array | None = None

    @property
    def draws(self) -> int:
        """The number of released values."""
        return self.repetitions * len(self.sums)

    @cached_property
    def unit(self) -> Fraction:
        """The grid of the released values. It is so fine that rounding does not matter, as the paper does not round.

        The largest sum still has at most 2⁵² units, which floats can count.
        """
        low, high = self.mechanism.prediction_interval(float(self.sums.min()), 0.5)
        finest = math.log2(float(self.sums.max())) - 52
        return Fraction(2) ** math.ceil(max(math.log2((high - low) / UNITS_PER_ERROR), finest))

    @property
    def key(self) -> str:
        """A unique name."""
        described = {"mechanism": self.mechanism.to_dict(), "unit": str(self.unit), "bins": BINS}
        described["repetitions"] = self.repetitions
        parts = [json.dumps(described, sort_keys=True).encode(), self.sums.tobytes(), self.groups.tobytes()]
        parts += [] if self.protected is None else [self.protected.tobytes()]
        return hashlib.sha256(b"\0".join(parts)).hexdigest()[:24]

    @property
    def seed(self) -> str:
        """Where the random bits start: at the parameters to nine digits, because later ones depend on the machine."""
        parameters = {
            name: f"{value:.9g}" if isinstance(value, float) else value
            for name, value in self.mechanism.to_dict().items()
        }
        return json.dumps([parameters, str(self.unit), self.repetitions, len(self.sums)], sort_keys=True)

    def run(self) -> Integers:
        """Return the counts of errors: one row per group, one column per bin."""
        bits = KnownBits(self.seed)
        count = np.zeros((int(self.groups.max()) + 1) * BINS, np.int64)
        protected = self.sums if self.protected is None else self.protected
        units = np.rint(protected / float(self.unit)).astype(np.int64)
        at_once = max(1, DRAWS_AT_A_TIME // len(self.sums))
        for start in range(0, self.repetitions, at_once):
            rows = min(at_once, self.repetitions - start)
            inputs: Any = Exact(np.tile(units, rows), self.unit)
            released = np.asarray(self.mechanism.release(inputs, unit=self.unit, bits=bits).floats).reshape(rows, -1)
            place = bin_of(np.abs(released - self.sums) / self.sums) + self.groups * BINS
            count += np.bincount(place.ravel(), minlength=len(count))
        return count.reshape(-1, BINS)


def bin_of(errors: Array) -> Integers:
    """Return the number of the bin of each error."""
    with np.errstate(divide="ignore"):
        place = (np.log10(errors) - LOWEST) * BINS_PER_DECADE
    return np.asarray(np.clip(place, 0, BINS - 1).astype(np.int64))


def percentiles(count: Integers, wanted: tuple[int, ...] = PERCENTILES) -> Array:
    """Return percentiles of the errors of each group: one row per group. A group without cells has NaN."""
    total = count.sum(axis=1)
    reached = np.cumsum(count, axis=1)
    found = np.full((len(count), len(wanted)), np.nan)
    for i in np.flatnonzero(total):
        place = np.searchsorted(reached[i], np.array(wanted) / 100 * total[i])
        found[i] = 10.0 ** (LOWEST + (place + 0.5) / BINS_PER_DECADE)
        found[i][place == 0] = 0.0
    return found


class Store:
    """Finished experiments on disk, so that a study that was interrupted continues where it stopped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, experiment: Experiment) -> Path:
        """Return the file of an experiment."""
        return self.folder / f"{experiment.key}.npz"

    def counts(self, experiment: Experiment) -> Integers:
        """Return the counts of an experiment, which is run if its file is missing or damaged."""
        path = self.path(experiment)
        shape = (int(experiment.groups.max()) + 1, BINS)
        try:
            with np.load(path) as file:
                count = np.asarray(file["count"])
            if count.shape == shape and count.sum() == experiment.draws:
                return count
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
            pass
        count = experiment.run()

        def save(place: Path) -> None:
            with place.open("wb") as file:
                np.savez_compressed(file, count=count)

        write_files({path: save}, overwrite=True)
        return count

    def remove(self) -> None:
        """Remove the experiments."""
        for path in self.folder.glob("*.npz"):
            path.unlink(missing_ok=True)


MATCHED = "exponential polylog 2, scale matched"
TIGHT_POLYLOG = "exponential polylog 2, tight losses"  # of the matched scale
ROOT_LAPLACE, LOG_LAPLACE = "fourth root, Laplace noise", "log, Laplace noise"
AS_ACCURATE = "Gaussian, same accuracy"
CLIPPED = "clipped Gaussian"
CLIPPED_BY_SIZE = "clipped Gaussian, best threshold for each size"
SPLIT = "unit splitting"
CLIPPING_THRESHOLDS = 160  # thresholds that are tried
TRIAL_CELLS, TRIAL_DRAWS = 1000, 100  # cells and standard normal numbers by which a threshold is chosen


@dataclass(frozen=True, eq=False)
class Contender:
    """A way to protect the sums of an attribute: records above a threshold are clipped, then noise is added."""

    name: str
    mechanism: ss.Mechanism
    attribute: Attribute
    threshold: float = math.inf
    note: str = ""

    @cached_property
    def protected(self) -> Array:
        """The sums to which noise is added."""
        kept = self.threshold == math.inf
        return self.attribute.sums if kept else self.attribute.clipped_sums(self.threshold)

    @cached_property
    def total_bias(self) -> float:
        """The expected relative error of the sum of all cells, which need not be finite."""
        with np.errstate(all="ignore"):
            mean = self.protected + np.asarray(self.mechanism.bias(self.protected))
            bias = float(mean.sum() / self.attribute.sums.sum() - 1)
        return 0.0 if abs(bias) < 1e-9 else bias

    def loss(self, size: float) -> float:
        """Return the loss of a record by its presence."""
        return self._policy(min(size, self.threshold))

    def band_loss(self, size: float) -> float:
        """Return the loss of a record between its value and one that differs by 10 %."""
        if self.threshold == math.inf and self.name != TIGHT_POLYLOG:
            return float(band_loss(self.mechanism, size))
        # The loss of additive noise depends on the difference of the values only.
        low, middle, high = (min(one, self.threshold) for one in (size / BAND, size, size * BAND))
        return self._policy(max(middle - low, high - middle))

    def _policy(self, size: float) -> float:
        return float((self.mechanism.tight_loss if self.name == TIGHT_POLYLOG else self.mechanism.policy)(size))

    @property
    def median_loss(self) -> float:
        """The loss of the median record."""
        return self.loss(self.attribute.median)

    @property
    def largest_loss(self) -> float:
        """The loss of the largest record."""
        return self.loss(self.attribute.largest)

    @cached_property
    def share_at_most_one(self) -> float:
        """The share of the records with a loss of at most 1."""
        sizes = self.attribute.distinct
        last = bisect_right(sizes, 1 + 1e-9, key=self.loss)
        return float(np.mean(self.attribute.values <= sizes[last - 1])) if last else 0.0


def contenders(attribute: Attribute, loss: float) -> list[Contender]:
    """Return ways to protect an attribute with the same loss of the largest record, and Gaussian noise.

    Laplace noise on a transformed sum also gives the median record the loss that it has under the matched polylog; the
    offset `a` is solved for. The last one is Gaussian noise with the typical error of the matched polylog, whatever
    records then lose.
    """
    at, middle = attribute.largest, attribute.median
    target: dict[str, Any] = {"loss": loss, "at": at, "accounting": "closed"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScaleWarning)  # at small losses noise is as large as it is
        tight = ss.ExponentialPolylog.calibrate(loss=loss, at=at, sigma=middle, p=2)
        same_losses = (loss, at, tight.tight_loss(middle), middle)
        named: dict[str, ss.Mechanism] = {
            MATCHED: ss.ExponentialPolylog.calibrate(**target, sigma=middle, p=2),
            TIGHT_POLYLOG: tight,
            "exponential polylog 2": ss.ExponentialPolylog.calibrate(**target, p=2),
            "generalized Gaussian 1/2": ss.GeneralizedGaussian.calibrate(**target, p=0.5),
            "fourth root": ss.Root.calibrate(loss=loss, at=at, k=4),
            "log": ss.Log.calibrate(loss=loss, at=at),
            ROOT_LAPLACE: with_two_losses(ss.Root, *same_losses, k=4),
            LOG_LAPLACE: with_two_losses(ss.Log, *same_losses),
            "Gaussian": ss.Gaussian.calibrate(loss=loss, at=at),
            SPLIT: ss.UnitSplitting.calibrate(**target, threshold=middle),
        }
        as_accurate = ss.Gaussian.calibrate(interval=tight.prediction_interval(0.0, 0.5)[1], level=0.5)
    matched = f"σ = {format_number(middle)}, the median record"
    notes = {MATCHED: matched, TIGHT_POLYLOG: matched, "exponential polylog 2": "σ = 1"}
    for name in (ROOT_LAPLACE, LOG_LAPLACE):
        notes[name] = f"a = {format_number(named[name].to_dict()['a'])}"
    found = [Contender(name, m, attribute, note=notes.get(name, "")) for name, m in named.items()]
    return [*found, clipped(attribute, loss), Contender(AS_ACCURATE, as_accurate, attribute)]


def with_two_losses(
    family: type[ss.Root | ss.Log], loss: float, at: float, other_loss: float, other: float, **fixed: Any
) -> ss.Mechanism:
    """Return Laplace noise on a transformed sum that gives records of two sizes the given losses.

    The larger the offset `a`, the less a small record loses at the same loss of a large one. If no offset gives the
    smaller record its loss, it is the one that comes nearest.
    """

    def found(log_offset: float) -> ss.Mechanism:
        return family.calibrate(loss=loss, at=at, a=math.exp(log_offset), noise="laplace", **fixed)

    def gap(log_offset: float) -> float:
        return math.log(found(log_offset).policy(other) / other_loss)

    low, high = math.log(other) - 12, math.log(at) + 3
    gaps = gap(low), gap(high)
    if gaps[0] * gaps[1] >= 0:
        return found(low if abs(gaps[0]) < abs(gaps[1]) else high)
    return found(brentq(gap, low, high, xtol=1e-4))


def clipped(attribute: Attribute, loss: float) -> Contender:
    """Return clipping followed by Gaussian noise, with the threshold that has the smallest median relative error.

    Nobody could choose it so well without looking at the confidential data.
    """
    threshold = best_threshold(attribute, loss, np.flatnonzero(attribute.sums > 0))
    mechanism = ss.Gaussian.calibrate(loss=loss, at=threshold)
    return Contender(CLIPPED, mechanism, attribute, threshold, f"records clipped at {format_number(threshold)}")


def best_threshold(attribute: Attribute, loss: float, cells: Integers) -> float:
    """Return the clipping threshold with the smallest median relative error over some cells."""
    normal = np.random.default_rng(2024).normal(size=TRIAL_DRAWS)
    shown = cells[:: -(-len(cells) // TRIAL_CELLS)]
    sums = attribute.sums[shown, None]
    lowest = float(np.quantile(attribute.values[attribute.values > 0], 0.01))

    def error(threshold: float) -> float:
        noise = threshold / np.sqrt(2 * loss) * normal
        return float(np.median(np.abs(attribute.clipped_sums(threshold)[shown, None] - sums + noise) / sums))

    thresholds = np.geomspace(lowest, attribute.largest, CLIPPING_THRESHOLDS).tolist()
    return float(min(thresholds, key=error))


@dataclass(frozen=True)
class SizeClass:
    """Cells whose sums are at least `low` and less than ten times that."""

    low: float
    cells: int

    @property
    def label(self) -> str:
        """The range of sums, such as "10 to 100"."""
        power = round(np.log10(self.low))
        return f"{power_in_words(power)} to {power_in_words(power + 1)}"


def size_classes(sums: Array) -> tuple[list[SizeClass], Integers]:
    """Return the classes of cells by size, and the number of the class of each cell."""
    powers = np.floor(np.log10(sums)).astype(np.int64)
    present, numbers, counts = np.unique(powers, return_inverse=True, return_counts=True)
    return [SizeClass(10.0**power, int(n)) for power, n in zip(present, counts, strict=True)], numbers


def affordable(experiment: Experiment) -> Experiment:
    """Return an experiment with fewer repetitions where some noise needs more bits than floats have, which is slow.

    The noise is then so large that nobody would publish the results, and rough errors say enough.
    """
    low, high = experiment.mechanism.prediction_interval(float(experiment.sums.max()), 1 - 1e-7)
    slow = not (high - low) * experiment.unit.denominator < 2.0**54
    return replace(experiment, repetitions=-(-experiment.repetitions // 20)) if slow else experiment


def gain_experiments(attribute: Attribute, contenders: list[Contender], repetitions: int) -> dict[str, Experiment]:
    """Return the experiments that measure the errors of all contenders by size of cell."""
    shown = attribute.sums > 0
    _, numbers = size_classes(attribute.sums[shown])
    return {
        one.name: affordable(
            Experiment(
                one.mechanism,
                attribute.sums[shown],
                numbers,
                repetitions,
                None if one.threshold == math.inf else one.protected[shown],
            )
        )
        for one in contenders
    }


def experiments_by_size(attribute: Attribute, loss: float, repetitions: int) -> list[Experiment]:
    """Return one experiment per size class: clipping with the best threshold for the cells of this class.

    No release can be as good: every class has a separate threshold, and the confidential sums decide the class.
    """
    cells = np.flatnonzero(attribute.sums > 0)
    classes, numbers = size_classes(attribute.sums[cells])
    experiments = []
    for number in range(len(classes)):
        chosen = cells[numbers == number]
        threshold = best_threshold(attribute, loss, chosen)
        mechanism = ss.Gaussian.calibrate(loss=loss, at=threshold)
        protected = attribute.clipped_sums(threshold)[chosen]
        zeros = np.zeros(len(chosen), np.int64)
        experiments.append(Experiment(mechanism, attribute.sums[chosen], zeros, repetitions, protected))
    return experiments


@dataclass(frozen=True, eq=False)
class LossDistribution:
    """The losses of all records: distinct losses, ascending, and the shares of records with at most this loss."""

    losses: Array
    at_most: Array

    @staticmethod
    def of(mechanism: ss.Mechanism, values: Array) -> "LossDistribution":
        """Return the losses of records with these values."""
        sizes, counts = np.unique(values, return_counts=True)
        return LossDistribution(np.asarray(mechanism.policy(sizes)), np.cumsum(counts) / len(values))

    @property
    def largest(self) -> float:
        """The largest loss of a record."""
        return float(self.losses[-1])

    def share(self, loss: Array) -> Array:
        """Return the share of the records with at most this loss, for each loss."""
        place = np.searchsorted(self.losses, loss, side="right")
        return np.concatenate([[0.0], self.at_most])[place]

    def share_at(self, loss: float) -> float:
        """Return the share of the records with at most this loss."""
        return float(self.share(np.array([loss]))[0])

    def quantile(self, share: float) -> float:
        """Return the smallest loss that this share of the records does not exceed."""
        return float(self.losses[min(int(np.searchsorted(self.at_most, share)), len(self.losses) - 1)])


def last_ahead(one: LossDistribution, two: LossDistribution) -> float:
    """Return the largest x such that more records lose at most x under `one` than under `two`; 0 if there is none."""
    x = np.union1d(one.losses, two.losses)
    ahead = x[one.share(x) > two.share(x) + 1e-15]
    return float(ahead[-1]) if len(ahead) else 0.0


Advance = Callable[[int], object]


@dataclass(frozen=True, eq=False)
class Gains:
    """The errors by size of cell where the largest record has a given loss under most mechanisms.

    `medians` has the median relative errors of each contender, one per size class; `clipped_by_size` those of clipping
    with the best threshold for each size class.
    """

    loss: float
    classes: list[SizeClass]
    contenders: list[Contender]
    medians: dict[str, Array]
    clipped_by_size: Array

    @property
    def verdict(self) -> str:
        """Whether slow scaling pays: in which size classes it has a smaller error than what is usual."""
        ahead = self.medians[TIGHT_POLYLOG] < np.minimum(self.medians["Gaussian"], self.medians[CLIPPED])
        words = "the matched polylog with tight losses has a smaller error than Gaussian noise and than clipping"
        if not ahead.any():
            return f"Slow scaling does not pay here: in no size class {words}."
        if ahead.all():
            return f"Slow scaling pays in every size class: {words}."
        cells = [one.cells for one in self.classes]
        return (
            f"Slow scaling pays in {ahead.sum()} of {len(cells)} size classes, which have {np.dot(ahead, cells):,} of "
            f"{sum(cells):,} cells: there {words}."
        )


@dataclass(frozen=True, eq=False)
class Subject:
    """An attribute with all results about it.

    `errors` has percentiles of the absolute relative error of each mechanism, one row per quintile of the cells.
    `without_error` is the number of cells with the sum 0, which have no relative error.
    """

    attribute: Attribute
    mechanisms: dict[str, ss.Mechanism]
    errors: dict[str, Array]
    gains: list[Gains]
    without_error: int

    @property
    def name(self) -> str:
        """The name of the attribute."""
        return self.attribute.name

    @property
    def std(self) -> float:
        """The standard deviation of all additive mechanisms, and of the others when the sum is the median record."""
        return self.mechanisms["Gaussian"].std(0.0)

    @cached_property
    def losses(self) -> dict[str, LossDistribution]:
        """The losses of all records, by mechanism."""
        return {name: LossDistribution.of(m, self.attribute.values) for name, m in self.mechanisms.items()}

    def percentile(self, mechanism: str, wanted: int) -> Array:
        """Return a percentile of the absolute relative error in each quintile."""
        return self.errors[mechanism][:, PERCENTILES.index(wanted)]


@dataclass(frozen=True, eq=False)
class Plan:
    """The experiments on one attribute, before they are run.

    `gains` has, for each loss of the largest record, the contenders with an experiment for each, and one experiment
    per size class.
    """

    attribute: Attribute
    mechanisms: dict[str, ss.Mechanism]
    errors: dict[str, Experiment]
    gains: dict[float, tuple[list[Contender], dict[str, Experiment], list[Experiment]]]

    @property
    def draws(self) -> int:
        """The number of values that all experiments release."""
        gains = [one for _, by_name, by_size in self.gains.values() for one in (*by_name.values(), *by_size)]
        return sum(one.draws for one in (*self.errors.values(), *gains))


def plan_experiments(
    attribute: Attribute, repetitions: int, losses: Sequence[float], mechanisms: dict[str, ss.Mechanism] | None = None
) -> Plan:
    """Return the experiments on an attribute, by default with the mechanisms that the paper's rule gives."""
    sums = attribute.sums[attribute.sums > 0]
    quintiles: Integers = np.arange(len(sums)) * 5 // len(sums)
    mechanisms = mechanisms or experiment_mechanisms(attribute)
    errors = {name: Experiment(m, sums, quintiles, repetitions) for name, m in mechanisms.items()}
    gains = {}
    for loss in losses:
        found = contenders(attribute, loss)
        by_name = gain_experiments(attribute, found, repetitions)
        gains[loss] = (found, by_name, experiments_by_size(attribute, loss, repetitions))
    return Plan(attribute, mechanisms, errors, gains)


def carry_out(plan: Plan, store: Store, advance: Advance) -> Subject:
    """Run the experiments of a plan; those in the store are not run again."""

    def counts(experiment: Experiment) -> Integers:
        found = store.counts(experiment)
        advance(experiment.draws)
        return found

    def median(experiment: Experiment) -> Array:
        return percentiles(counts(experiment), (50,))[:, 0]

    sums = plan.attribute.sums
    errors = {name: percentiles(counts(experiment)) for name, experiment in plan.errors.items()}
    classes, _ = size_classes(sums[sums > 0])
    gains = [
        Gains(
            *(loss, classes, found, {name: median(experiment) for name, experiment in by_name.items()}),
            np.concatenate([median(experiment) for experiment in by_size]),
        )
        for loss, (found, by_name, by_size) in plan.gains.items()
    ]
    return Subject(plan.attribute, plan.mechanisms, errors, gains, int((sums == 0).sum()))


@contextmanager
def progress(total: int) -> Iterator[Advance]:
    """Show a progress bar on a terminal, and yield the function that moves it."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("releasing", total=total)
        yield lambda draws: bar.advance(task, draws)
