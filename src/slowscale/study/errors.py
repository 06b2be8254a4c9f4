"""Errors over many releases: counts of absolute relative errors in fine logarithmic bins, and their percentiles.

The counts are what is kept: they can be added up over blocks of releases, take little memory however many releases
there are, and give every percentile with a relative accuracy of 0.2 %.
"""

import hashlib
import json
import math
import zipfile
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from slowscale import Mechanism
from slowscale.core.files import write_files
from slowscale.core.parameters import Array
from slowscale.mechanisms.exact_sums import Exact

Integers = npt.NDArray[np.int64]

BINS_PER_DECADE = 1000
LOWEST, HIGHEST = -12, 24  # powers of ten; the first bin also holds all smaller errors, the last one all larger ones
BINS = (HIGHEST - LOWEST) * BINS_PER_DECADE
DRAWS_AT_A_TIME = 1 << 20
UNITS_PER_ERROR = 10_000  # a typical error of the smallest cell has so many units of the grid
PERCENTILES = (5, 25, 50, 75, 95)


class SeededBits:
    """Reproducible random bits. What is drawn from them is not private: they are for simulated data only."""

    private = False

    def __init__(self, seed: str) -> None:
        digest = hashlib.sha256(seed.encode()).digest()
        self._generator = np.random.PCG64(int.from_bytes(digest))

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        """Return `count` words of 64 bits."""
        return self._generator.random_raw(count)


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
        What the noise is added to, if not the true sums: the sums of clipped records.
    """

    mechanism: Mechanism
    sums: Array
    groups: Integers
    repetitions: int
    protected: Array | None = None

    @property
    def draws(self) -> int:
        """How many values are released."""
        return self.repetitions * len(self.sums)

    @cached_property
    def unit(self) -> Fraction:
        """The grid of the released values: so fine that rounding does not matter, as the paper does not round.

        The largest sum still has at most 2⁵² units, which floats can count.
        """
        low, high = self.mechanism.prediction_interval(float(self.sums.min()), 0.5)
        finest = math.log2(float(self.sums.max())) - 52
        return Fraction(2) ** math.ceil(max(math.log2((high - low) / UNITS_PER_ERROR), finest))

    @property
    def key(self) -> str:
        """A name that no other experiment has."""
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
        bits = SeededBits(self.seed)
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
        """Return the counts of an experiment; it is run if it has not been run before."""
        path = self.path(experiment)
        count = _load(path, experiment)
        if count is None:
            count = experiment.run()
            write_files({path: lambda place: _save(place, count)}, overwrite=True)
        return count

    def remove(self) -> None:
        """Remove the experiments."""
        for path in self.folder.glob("*.npz"):
            path.unlink(missing_ok=True)


def _load(path: Path, experiment: Experiment) -> Integers | None:
    """Return the counts in a file, or None if there is no such file or it is damaged."""
    try:
        with np.load(path) as file:
            count = np.asarray(file["count"])
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
        return None
    groups = int(experiment.groups.max()) + 1
    return count if count.shape == (groups, BINS) and count.sum() == experiment.draws else None


def _save(path: Path, count: Integers) -> None:
    with path.open("wb") as file:
        np.savez_compressed(file, count=count)
