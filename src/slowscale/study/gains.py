"""What slowly scaling mechanisms buy: errors by size of cell, if the largest record loses the same under all of them.

The paper compares mechanisms of equal error. A curator often has to answer the other question: the largest business may
lose this much; how wrong is the table then?
"""

from dataclasses import dataclass

import numpy as np

import slowscale as ss
from slowscale.figures import power_in_words
from slowscale.parameters import Array
from slowscale.study.attributes import Attribute
from slowscale.study.errors import Experiment, Integers

MATCHED = "exponential polylog 2, scale matched"
CLIPPED = "clipped Gaussian"
SPLIT = "unit splitting"
CLIPPING_THRESHOLDS = 120  # clipping thresholds that are tried
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
    named: dict[str, ss.Mechanism] = {
        MATCHED: ss.ExponentialPolylog.calibrate(loss=loss, at=at, sigma=attribute.median, p=2),
        "exponential polylog 2": ss.ExponentialPolylog.calibrate(loss=loss, at=at, p=2),
        "generalized Gaussian 1/2": ss.GeneralizedGaussian.calibrate(loss=loss, at=at, p=0.5),
        "fourth root": ss.Root.calibrate(loss=loss, at=at, k=4),
        "log": ss.Log.calibrate(loss=loss, at=at),
        "Gaussian": ss.Gaussian.calibrate(loss=loss, at=at),
        SPLIT: ss.UnitSplitting.calibrate(loss=loss, at=at, threshold=attribute.median),
    }
    notes = {MATCHED: f"σ = {attribute.median:,.0f}, the median record", "exponential polylog 2": "σ = 1"}
    found = [
        Contender(name, m, attribute.sums, 0.0, float(m.policy(attribute.median)), notes.get(name, ""))
        for name, m in named.items()
    ]
    return [*found, clipped(attribute, loss)]


def clipped(attribute: Attribute, loss: float) -> Contender:
    """Return clipping followed by Gaussian noise, with the threshold that suits the data best.

    The threshold has the smallest median relative error over all cells. Nobody could choose it so well without looking
    at the confidential data, so the comparison favours clipping.
    """
    normal = np.random.default_rng(2024).normal(size=TRIAL_DRAWS)
    positive = np.flatnonzero(attribute.sums > 0)
    shown = positive[:: -(-len(positive) // TRIAL_CELLS)]
    best = (np.inf, 0.0, attribute.sums)
    for threshold in np.geomspace(max(attribute.median / 10, 1), attribute.largest, CLIPPING_THRESHOLDS):
        sums = attribute.clipped_sums(threshold)
        noise = threshold / np.sqrt(2 * loss) * normal
        errors = np.abs((sums - attribute.sums)[shown, None] + noise) / attribute.sums[shown, None]
        best = min(best, (float(np.median(errors)), float(threshold), sums), key=lambda one: one[0])
    _, threshold, sums = best
    mechanism = ss.Gaussian.calibrate(loss=loss, at=threshold)
    bias = float(sums.sum() / attribute.sums.sum() - 1)
    median_loss = float(mechanism.policy(min(attribute.median, threshold)))
    return Contender(CLIPPED, mechanism, sums, bias, median_loss, f"records clipped at {threshold:,.0f}")


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
