"""Columns with a given summary: a curve from the rank of a record to its value.

Between the least value and the third quartile, the curve is linear in log(1 + value). Above, it rises to the largest
value like the logarithms of a heavy tail; an exponent, the bend, is fitted so that the mean is right.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from slowscale.core.parameters import Array

Whole = npt.NDArray[np.int64]

# Up to this many records the mean of a curve is computed from all of them, above it from a sample of ranks.
ALL_RANKS = 2**20
SAMPLED_RANKS = 2**17  # of the largest ranks, all; of the others, as many
BENDS = (0.2, 20.0)


class Summary(NamedTuple):
    """A row of Table summary-stats."""

    quartiles: tuple[int, int, int]
    mean: float
    largest: int
    least: int = 0


@dataclass(frozen=True)
class Curve:
    """Whole numbers in ascending order, with the least value, quartiles, mean and largest value of a summary."""

    summary: Summary
    records: int
    bend: float

    @classmethod
    def fit(cls, summary: Summary, records: int, *, all_ranks: bool = False) -> "Curve":
        """Return the curve with the summary's mean.

        If the records are too few for the mean and the largest value to go together, the bend is 1, and the mean is
        not that of the summary.

        Parameters
        ----------
        summary
            What the values should have.
        records
            The number of values.
        all_ranks
            Whether to compute the mean from all ranks, however many there are.
        """
        from scipy import optimize

        mean = mean_of_all(summary, records) if all_ranks or records <= ALL_RANKS else sampled_mean(summary, records)

        def excess(bend: float) -> float:
            return mean(bend) - summary.mean

        fits = excess(BENDS[0]) > 0 > excess(BENDS[1])
        return cls(summary, records, optimize.brentq(excess, *BENDS, xtol=1e-12) if fits else 1.0)

    def __call__(self, ranks: Whole) -> Whole:
        """Return the values of these ranks, which count from 0."""
        return np.round(_heights(self.summary, self.records, ranks)(self.bend)).astype(np.int64)


def mean_of_all(summary: Summary, records: int) -> Callable[[float], float]:
    """Return the mean of a curve as a function of its bend, computed from all ranks."""
    values = _heights(summary, records, np.arange(records))
    return lambda bend: float(np.round(values(bend)).mean())


def sampled_mean(summary: Summary, records: int) -> Callable[[float], float]:
    """Return the mean of a curve as a function of its bend, computed in memory that does not grow with the records.

    The largest ranks decide the mean, so all of them count. The others are cut into intervals of equal length, each
    represented by its middle (midpoint rule).
    """
    others = records - SAMPLED_RANKS
    length = others / SAMPLED_RANKS
    middles = (np.arange(SAMPLED_RANKS) + 0.5) * length - 0.5
    low, high = (_heights(summary, records, ranks) for ranks in (middles, np.arange(others, records)))
    return lambda bend: float((np.round(low(bend)).sum() * length + np.round(high(bend)).sum()) / records)


def _heights(summary: Summary, records: int, ranks: npt.NDArray[np.number]) -> Callable[[float], Array]:
    """Return the values of these ranks, before rounding, as a function of the bend."""
    place = places(ranks, records)
    heights = np.log1p(np.array([summary.least, *summary.quartiles]))
    body = np.interp(place, [0, 0.25, 0.5, 0.75], heights)
    share = np.clip((place - 0.75) / 0.25, 0, 1)
    far = math.log(1 + 4 * records)
    spread = -np.log1p(-share * -np.expm1(-far)) / far  # 0 to 1, like the largest of exponentials
    reach = math.log1p(summary.largest) - heights[-1]
    return lambda bend: np.asarray(np.expm1(body + reach * spread**bend))


def places(ranks: npt.NDArray[np.number], records: int) -> Array:
    """Return the elements of `numpy.linspace(0, 1, records)` at these ranks, without the others."""
    return np.where(ranks == records - 1, min(records - 1, 1.0), ranks * (1 / max(records - 1, 1)))


def split(records: int, weights: Array) -> Whole:
    """Return group sizes of at least 1 that are about proportional to the weights and add up to the records."""
    cuts = np.round(np.cumsum(weights) / weights.sum() * (records - weights.size)).astype(np.int64)
    return np.asarray(np.diff(cuts, prepend=0) + 1)
