"""Drawn tables that overlap, combined into one estimate of the cells, so that everything adds up.

A drawn margin and the sum of the cells that it consists of are two estimates of one number. The estimates here correct
the cells by as much as the gaps between the two suggest. They depend on the published numbers only, so no record loses
more by them. The error of the corrected cells depends on the noise alone, not on the true sums, because the corrections
are a function of the gaps, and the true sums cancel in a gap. Its distribution is therefore known, and is simulated.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import sparse

from slowscale.errors import ParameterError
from slowscale.mechanisms.additive import AdditiveMechanism
from slowscale.noise import SymmetricNoise
from slowscale.parameters import Array
from slowscale.progress import progress_bar
from slowscale.sampling import KnownBits

LEAST_SQUARES, LIKELIHOOD = "least squares", "likelihood"
METHODS = (LEAST_SQUARES, LIKELIHOOD)
# Steps of the reweighted least squares that find a maximum of the likelihood. Densities with a peak at 0 are smoothed
# there at first, by less in each step, down to this share of the noise's quartile.
STEPS, LEAST_SMOOTHING = 60, 1e-3
# So many numbers are simulated at once (64 MB).
SIMULATED_AT_ONCE = 8_000_000
# Noise is simulated on a grid that is finer than the unit by this factor.
FINE = 1024


@dataclass(frozen=True)
class DrawnNumbers:
    """How the numbers of a drawn table came about: their noise and their unit.

    Attributes
    ----------
    mechanism, unit
        The mechanism and the unit.
    on_grid
        Whether the true sums are multiples of the unit.
    """

    mechanism: AdditiveMechanism
    unit: Fraction
    on_grid: bool

    @property
    def variance(self) -> float:
        """The variance of a number, in squared units."""
        return self.mechanism._variance_from(None, self.unit, self.on_grid) / float(self.unit) ** 2

    def simulated(self, shape: tuple[int, int], bits: KnownBits) -> Array:
        """Return simulated errors in units. If true sums may lie between two units, they do at random places."""
        count = math.prod(shape)
        fine = self.unit if self.on_grid else self.unit / FINE
        noise = self.mechanism._release(np.zeros(count, np.int64), fine, 0.5, bits).units.astype(float)
        if not self.on_grid:
            place = bits.uniform(count) - 0.5
            noise = np.rint(place + noise / FINE) - place
        found: Array = noise.reshape(shape)
        return found

    def fitted_variance(self, residuals: Array, smoothing: float) -> Array:
        """Return the variances of normal noise with the same slope of the log-density at each residual, in units."""
        noise, unit = self.mechanism.noise, float(self.unit)
        size = np.maximum(np.abs(residuals) * unit, smoothing * _quartile(noise))
        step = 1e-4 * size
        slope = noise._drop_rise(size - step, 2 * step) / (2 * step)
        found: Array = size / slope / unit**2
        return found


@dataclass(frozen=True)
class DrawnMargin:
    """A margin with noise of its own: for each cell its row in the margin, and the number of rows."""

    place: Array
    rows: int
    numbers: DrawnNumbers

    @property
    def sums(self) -> Any:
        """The matrix that adds cells to the rows of the margin."""
        return sums_matrix(self.place, self.rows)


def sums_matrix(place: Array, rows: int) -> Any:
    """Return the matrix that adds cells to rows, from the row of each cell."""
    cells = len(place)
    return sparse.csr_array((np.ones(cells), (place, np.arange(cells))), shape=(rows, cells))


class CombinedEstimate:
    """The estimate of cells from their own numbers and from drawn margins.

    Parameters
    ----------
    numbers
        How the numbers of the cells came about.
    margins
        The drawn margins.
    method
        "least squares": the linear estimate with the least variance. It spreads a gap over all cells of a margin, so
        that one large error spoils the others. "likelihood": a local maximum of the likelihood, which attributes a gap
        to the few numbers that probably caused it.
    """

    def __init__(self, numbers: DrawnNumbers, margins: Sequence[DrawnMargin], method: str = LEAST_SQUARES) -> None:
        if method not in METHODS:
            raise ParameterError(f'method must be "{LEAST_SQUARES}" or "{LIKELIHOOD}", got {method!r}')
        self.numbers, self.margins, self.method = numbers, tuple(margins), method
        self.sums = sparse.csr_array(sparse.vstack([margin.sums for margin in margins]))
        self._variances = np.concatenate([np.full(margin.rows, margin.numbers.variance) for margin in margins])
        self._own = numbers.variance
        if not (math.isfinite(self._own) and np.isfinite(self._variances).all()):
            raise ParameterError("the estimate needs noise of finite variance in every table")

    @property
    def cells(self) -> int:
        """The number of cells."""
        return int(self.sums.shape[1])

    def corrections(self, gaps: Array) -> Array:
        """Return what to add to the cells, in units.

        Parameters
        ----------
        gaps
            By how many units each row of the margins exceeds the sum of its cells: one column per set of tables.
        """
        if self.method == LEAST_SQUARES:
            found: Array = self._own * (self.sums.T @ self._solved(gaps))
            return found
        return np.column_stack([self._likeliest(column) for column in gaps.T])

    def _solved(self, gaps: Array) -> Array:
        if not hasattr(self, "_factors"):
            self._factors = _factors(self.sums, np.full(self.cells, self._own), self._variances)
        return self._factors(np.ascontiguousarray(gaps, float))

    def _likeliest(self, gaps: Array) -> Array:
        """Return the corrections at a local maximum of the likelihood, by reweighted least squares.

        In each step, a number has the weight −(log p)′(e)/e that it would have if its noise were normal with a variance
        that fits its present residual e.
        """
        cells, margins = np.full(self.cells, self._own), self._variances
        rows = np.repeat(np.arange(len(self.margins)), [margin.rows for margin in self.margins])
        added = np.zeros(self.cells)
        for step in range(STEPS):
            solved = _factors(self.sums, cells, margins)(gaps[:, None])[:, 0]
            added = cells * (self.sums.T @ solved)
            left = gaps - self.sums @ added
            smoothing = max(0.5 ** (step / 2), LEAST_SMOOTHING)
            cells = self.numbers.fitted_variance(added, smoothing)
            margins = np.concatenate(
                [margin.numbers.fitted_variance(left[rows == i], smoothing) for i, margin in enumerate(self.margins)]
            )
        return added

    def standard_errors(self, sums: Any = None) -> Array:
        """Return the exact standard deviations, in units, of the estimates by least squares: of cells, or of sums.

        Parameters
        ----------
        sums
            A matrix that adds up cells. Without it, the cells themselves.
        """
        assert self.method == LEAST_SQUARES
        wanted = sparse.eye_array(self.cells, format="csr") if sums is None else sparse.csr_array(sums)
        found = np.empty(wanted.shape[0])
        rows = max(1, SIMULATED_AT_ONCE // max(self.sums.shape[0], 1))
        for start in range(0, len(found), rows):
            some = wanted[start : start + rows]
            crossed = (self.sums @ some.T).toarray()
            own = np.asarray(some.multiply(some).sum(axis=1)).ravel()
            saved = self._own * (crossed * self._solved(crossed)).sum(axis=0)
            found[start : start + rows] = self._own * np.maximum(own - saved, 0)
        return np.sqrt(found)

    def simulated_errors(self, simulations: int, seed: int | None = 0) -> Iterator[Array]:
        """Yield errors of the corrected cells in units, in blocks with one column per simulation."""
        bits = KnownBits(seed)
        block = max(1, min(simulations, SIMULATED_AT_ONCE // self.cells))
        done = 0
        with progress_bar("Simulating the errors", lambda: done / simulations):
            while done < simulations:
                count = min(block, simulations - done)
                noise = self.numbers.simulated((self.cells, count), bits)
                margins = [margin.numbers.simulated((margin.rows, count), bits) for margin in self.margins]
                gaps = np.concatenate(margins) - self.sums @ noise
                yield noise + whole_corrections(self.corrections(gaps))
                done += count


def half_widths(
    estimate: CombinedEstimate, wanted: Sequence[Any], level: float, simulations: int, seed: int | None
) -> tuple[list[Array], list[Array]]:
    """Return the half-widths of intervals in units, and root mean square errors, of cells and of sums of cells.

    The half-width is the simulated error of rank ⌈level·(simulations + 1)⌉. The actual error and the simulated ones are
    equally likely to have each rank, so the interval holds the true sum with at least the probability `level`.

    Parameters
    ----------
    estimate
        The estimate.
    wanted
        Matrices that add up cells, one for each table.
    level
        The level of the intervals.
    simulations
        The number of simulations.
    seed
        The seed of the simulations. Their noise is not secret.
    """
    rank = math.ceil(level * (simulations + 1))
    if rank > simulations:
        raise ParameterError(
            f"simulations must be at least {math.ceil(level / (1 - level))} for intervals of level {level:g}, got "
            f"{simulations}"
        )
    kept = simulations - rank + 1
    largest: list[Array] = [np.zeros((sums.shape[0], 0)) for sums in wanted]
    squares = [np.zeros(sums.shape[0]) for sums in wanted]
    for errors in estimate.simulated_errors(simulations, seed):
        for i, sums in enumerate(wanted):
            here = np.abs(sums @ errors)
            squares[i] += (here**2).sum(axis=1)
            both = np.concatenate([largest[i], here], axis=1)
            largest[i] = np.sort(both, axis=1)[:, -kept:]
    return [found[:, 0] for found in largest], [np.sqrt(found / simulations) for found in squares]


def whole_corrections(corrections: Array) -> Array:
    """Return corrections in whole units. Sums over neighbouring cells change by less than one unit.

    The cells must be in the order of their margins, so that the cells of a margin are neighbours where possible.

    >>> whole_corrections(np.array([[0.4], [0.4], [0.4]])).T
    array([[0., 1., 0.]])
    """
    return np.diff(np.rint(np.cumsum(corrections, axis=0)), axis=0, prepend=0.0)


def _factors(sums: Any, cells: Array, margins: Array) -> Callable[[Array], Array]:
    """Return a function that solves (M + A C Aᵀ) x = b, where C and M are diagonals: variances of cells and margins."""
    from scipy.sparse.linalg import splu

    # Scaled to a unit diagonal, because the variances may differ by many orders of magnitude.
    matrix = sparse.csc_array(sums @ sparse.diags_array(cells) @ sums.T + sparse.diags_array(margins))
    scale = 1 / np.sqrt(matrix.diagonal())
    factors = splu(sparse.csc_array(sparse.diags_array(scale) @ matrix @ sparse.diags_array(scale)))

    def solve(b: Array) -> Array:
        found: Array = scale[:, None] * factors.solve(scale[:, None] * b)
        return found

    return solve


@lru_cache(maxsize=64)
def _quartile(noise: SymmetricNoise) -> float:
    return float(noise.ppf(0.75))
