"""What slowly scaling mechanisms buy: errors by size of cell, if the largest record loses the same under all of them.

The paper compares mechanisms of equal error. A curator often has to answer the other question: the largest business may
lose this much; how wrong is the table then?
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

import slowscale as ss
from slowscale.core.numbers import format_number, power_in_words
from slowscale.core.parameters import Array
from slowscale.study.attributes import Attribute
from slowscale.study.errors import Experiment, Integers

MATCHED = "exponential polylog 2, scale matched"
CLIPPED = "clipped Gaussian"
CLIPPED_BY_SIZE = "clipped Gaussian, best threshold for each size"
SPLIT = "unit splitting"
CLIPPING_THRESHOLDS = 160  # thresholds that are tried
TRIAL_CELLS, TRIAL_DRAWS = 1000, 100  # cells and standard normal numbers by which a threshold is chosen


@dataclass(frozen=True)
class Contender:
    """A way to protect the sums under which the largest record has the given loss.

    Attributes
    ----------
    protected
        What noise is added to: the sums, or the sums of clipped records.
    total_bias
        The expected relative error of the sum of all cells.
    median_loss
        The loss of the median record.
    """

    name: str
    mechanism: ss.Mechanism
    protected: Array
    total_bias: float
    median_loss: float
    note: str = ""


def contenders(attribute: Attribute, loss: float) -> list[Contender]:
    """Return all ways to protect an attribute, with the same loss of the largest record."""
    at = attribute.largest
    target: dict[str, Any] = {"loss": loss, "at": at, "accounting": "closed"}
    named: dict[str, ss.Mechanism] = {
        MATCHED: ss.ExponentialPolylog.calibrate(**target, sigma=attribute.median, p=2),
        "exponential polylog 2": ss.ExponentialPolylog.calibrate(**target, p=2),
        "generalized Gaussian 1/2": ss.GeneralizedGaussian.calibrate(**target, p=0.5),
        "fourth root": ss.Root.calibrate(loss=loss, at=at, k=4),
        "log": ss.Log.calibrate(loss=loss, at=at),
        "Gaussian": ss.Gaussian.calibrate(loss=loss, at=at),
        SPLIT: ss.UnitSplitting.calibrate(**target, threshold=attribute.median),
    }
    notes = {MATCHED: f"σ = {format_number(attribute.median)}, the median record", "exponential polylog 2": "σ = 1"}
    found = [
        Contender(name, m, attribute.sums, 0.0, float(m.policy(attribute.median)), notes.get(name, ""))
        for name, m in named.items()
    ]
    return [*found, clipped(attribute, loss)]


def clipped(attribute: Attribute, loss: float) -> Contender:
    """Return clipping followed by Gaussian noise, with the threshold that suits the data best.

    The threshold has the smallest median relative error over all cells. Nobody could choose it so well without looking
    at the confidential data.
    """
    threshold = best_threshold(attribute, loss, np.flatnonzero(attribute.sums > 0))
    sums = attribute.clipped_sums(threshold)
    mechanism = ss.Gaussian.calibrate(loss=loss, at=threshold)
    bias = float(sums.sum() / attribute.sums.sum() - 1)
    median_loss = float(mechanism.policy(min(attribute.median, threshold)))
    return Contender(CLIPPED, mechanism, sums, bias, median_loss, f"records clipped at {format_number(threshold)}")


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
    def words(self) -> str:
        """The range of sums, for people."""
        power = round(np.log10(self.low))
        return f"{power_in_words(power)} to {power_in_words(power + 1)}"


def size_classes(sums: Array) -> tuple[list[SizeClass], Integers]:
    """Return the classes of cells by size, and the number of the class of each cell."""
    powers = np.floor(np.log10(sums)).astype(np.int64)
    present, numbers, counts = np.unique(powers, return_inverse=True, return_counts=True)
    return [SizeClass(10.0**power, int(n)) for power, n in zip(present, counts, strict=True)], numbers


def gain_experiments(attribute: Attribute, contenders: list[Contender], repetitions: int) -> dict[str, Experiment]:
    """Return the experiments that measure the errors of all contenders by size of cell."""
    shown = attribute.sums > 0
    _, numbers = size_classes(attribute.sums[shown])
    return {
        one.name: Experiment(
            one.mechanism,
            attribute.sums[shown],
            numbers,
            repetitions,
            None if one.protected is attribute.sums else one.protected[shown],
        )
        for one in contenders
    }


def experiments_by_size(attribute: Attribute, loss: float, repetitions: int) -> list[Experiment]:
    """Return one experiment per size class: clipping with the threshold that suits the cells of this class best.

    This is better than any release can be: every class has a threshold of its own, and the sums, which are
    confidential, decide the class.
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
