"""Intervals for sums of independent noises: the least x with P(|Z₁ + … + Zₙ| <= x) >= level, or slightly more.

The density of the noise is replaced by its averages over cells of width h, and what lies far out is left out. Both only
lower the probability: the averages move mass away from 0, and if one of several independent variables, all symmetric
and unimodal, is replaced by a less peaked one, so is their sum (Birnbaum 1948; the proof also holds on a lattice). The
result is therefore never too narrow, whatever h is, and h is chosen so that it is too wide by about 0.2 % at most.

A variable with such a density is h·(L + U), with a whole number L and U uniform on (−½, ½). The whole number nearest to
L₁ + … + Lₙ + U₁ + … + Uₙ is therefore what is needed. Its distribution is that of ΣL, by the discrete cosine transform,
moved by the whole number nearest to ΣU, whose probabilities are values of a B-spline.

Several kinds of noise, each multiplied by a factor, are added in the same way, in cells of one width.

Noise rounded to a unit is L itself if h is the unit. If h is an odd number of units, then |Σ round(Zᵢ)| <= q has at
least the probability of |Σ h·(Lᵢ + Uᵢ)| <= q + ½ (in units), because adding symmetric variables to a symmetric unimodal
one makes it less peaked.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from slowscale.core.parameters import Array, lazy, level_quantile
from slowscale.noise.symmetric import SymmetricNoise

# The least number of cells in half of an interval, and the least number of cells divided by √n: averaging adds a
# variance of n·h²/12, which is then below 0.001 of the square of half of the half-width.
LEAST_CELLS, CELLS_PER_ROOT = 2000, 18.0
# An interval may have this many times more cells, or fewer, than it was planned to have.
PLAN_FACTOR = 2.0
# Noise beyond this many planned half-widths is left out, and the transform has a period of this many.
KEPT_WIDTHS, PERIOD_WIDTHS = 8, 32
# A unit counts as one cell if this many planned cells, at most, are in half of an interval.
MOST_UNITS = 2**14
# The floating-point error of a probability: absolute, and per variable.
FLOAT_ERROR, FLOAT_ERROR_PER_NOISE = 1e-12, 1e-14
# The relative error that quantiles may have, because the distribution of a noise is accurate to 1e-10.
QUANTILE_ERROR = 1e-9
# Rates at which exponential moments bound what the periodic transform counts twice, times the planned half-width.
RATES = (2.0, 3.0, 1.5, 1.0, 4.0, 6.0, 0.5, 0.25)
# Sums of fewer uniform variables than this are evaluated by the formula of a B-spline.
FEW_UNIFORM = 8
# If there are more different numbers of variables, those above the second number are rounded up by this factor.
MOST_COUNTS, COUNTS_KEPT, COUNT_RATIO = 400, 200, 1.005
# How often the width of the cells is planned again before a simple bound is used.
MOST_PLANS = 60
# Half-widths at lower levels are those at this one: cells would have to be ever narrower against the noise.
LEAST_LEVEL = 0.5
# The least number of cells in half of an interval for noises with factors, of which many intervals are computed.
LEAST_MIXED_CELLS = 500


@dataclass(frozen=True)
class Noises:
    """Independent noises of one distribution, each multiplied by a factor."""

    noise: SymmetricNoise
    count: int = 1
    factor: float = 1.0


def sum_half_widths(
    noise: SymmetricNoise, counts: Iterable[int], level: float, unit: float | None = None
) -> dict[int, float]:
    """Return half-widths of intervals around 0 that hold a sum of independent noises with probability `level` or more.

    Parameters
    ----------
    noise
        The distribution of each noise.
    counts
        The numbers of noises, each at least 1.
    level
        The probability. Below `LEAST_LEVEL`, the half-widths are those at `LEAST_LEVEL`.
    unit
        If it is given, each noise is first rounded to the nearest multiple of the unit, and the half-widths are whole
        numbers of units. Otherwise they are in the scale of the noise.
    """
    wanted = sorted({int(count) for count in counts})
    rounded_up = _rounded_up(wanted)
    found = _half_widths(noise, tuple(sorted(set(rounded_up.values()))), max(float(level), LEAST_LEVEL), unit)
    return {count: found[rounded_up[count]] for count in wanted}


def _rounded_up(counts: Sequence[int]) -> dict[int, int]:
    """Return for each number itself or, if there are many, the next number of a geometric grid."""
    if len(counts) <= MOST_COUNTS:
        return {count: count for count in counts}
    grid = [COUNTS_KEPT]
    while grid[-1] < counts[-1]:
        grid.append(math.ceil(grid[-1] * COUNT_RATIO))
    above = np.array(grid)
    return {
        count: count if count <= COUNTS_KEPT else min(int(above[np.searchsorted(above, count)]), counts[-1])
        for count in counts
    }


@lru_cache(maxsize=256)
def _half_widths(noise: SymmetricNoise, counts: tuple[int, ...], level: float, unit: float | None) -> dict[int, float]:
    found: dict[int, float] = {}
    pending = list(counts)
    cells: _Cells | None = None
    while pending:
        count = pending[0]
        if count == 1:
            width = _one(noise, level, unit)
        else:
            cells, width = _one_count(noise, count, level, unit, cells)
        # The half-width increases with the number of noises, so a smaller one would be due to rounding.
        found[count] = max(width, max(found.values(), default=0.0))
        pending.pop(0)
    return found


def _one(noise: SymmetricNoise, level: float, unit: float | None) -> float:
    half = noise.isf(level_quantile(level)) * (1 + 1e-14)
    return half if unit is None else max(_rounded_up_to_whole(half / unit - 0.5), 0.0)


def _rounded_up_to_whole(number: float) -> float:
    return float(math.ceil(number)) if math.isfinite(number) else number


def _one_count(
    noise: SymmetricNoise, count: int, level: float, unit: float | None, known: "_Cells | None"
) -> "tuple[_Cells | None, float]":
    """Return the half-width for one number of noises, and the cells that it was found with, to be used again."""
    if known is not None and known.serves(count):
        steps = known.steps(count, level)
        if steps is not None:
            return known, known.width(steps)

    def solve(planned: float) -> "tuple[_Cells, float | None]":
        cells = _Cells.planned(noise, count, planned, unit)
        return cells, cells.steps(count, level)

    found = _planned_again(planned_width(noise, count, level), solve)
    return found or (None, chernoff_width(noise, count, level, unit))


def _planned_again(
    planned: float, solve: "Callable[[float], tuple[_Cells, float | None]]"
) -> "tuple[_Cells, float] | None":
    """Return cells that fit a half-width, and the half-width; None if a simple bound is to be used.

    Parameters
    ----------
    planned
        The half-width to begin with.
    solve
        Returns the cells for a half-width, and what `_Cells.steps` found in them.
    """
    for _ in range(MOST_PLANS):
        if not 0 < planned < 1e300:
            break
        cells, steps = solve(planned)
        if steps is None:
            planned *= 2 * PLAN_FACTOR
        elif steps < cells.half / PLAN_FACTOR and not cells.exact:
            planned = max(steps, 1.0) * cells.step
        elif math.isnan(steps):
            break
        else:
            return cells, cells.width(steps)
    return None


def mixed_half_width(terms: Sequence[Noises], level: float, unit: float | None = None) -> float:
    """Return the half-width of an interval around 0 that holds a sum of noises with probability `level` or more.

    Parameters
    ----------
    terms
        The independent noises.
    level
        The probability. Below `LEAST_LEVEL`, the half-width is that at `LEAST_LEVEL`.
    unit
        If it is given, each noise is first rounded to the nearest multiple of the unit, and the half-width is a whole
        number of units. All factors must be 1.
    """
    terms = [term for term in terms if term.count and term.factor]
    if not terms:
        return 0.0
    level = max(level, LEAST_LEVEL)
    one, total = terms[0], sum(term.count for term in terms)
    if total == 1:
        return _one(one.noise, level, unit) * one.factor

    def solve(planned: float) -> "tuple[_Cells, float | None]":
        cells = _Cells.planned(one.noise, total, planned, unit, LEAST_MIXED_CELLS)
        parts = [
            (replace(cells, noise=term.noise, step=cells.step / term.factor, _moments={}), term.count) for term in terms
        ]
        (first, count), *others = parts
        return cells, first.steps(count, level, others)

    found = _planned_again(
        1.2 * max(planned_width(term.noise, term.count, level) * term.factor for term in terms), solve
    )
    if found is not None:
        return found[1]
    # The probability of an error is divided among the terms.
    each = min(1 - (1 - level) / len(terms), math.nextafter(1, 0))
    return sum(term.factor * sum_half_widths(term.noise, [term.count], each, unit)[term.count] for term in terms)


def chernoff_width(noise: SymmetricNoise, count: int, level: float, unit: float | None) -> float:
    """Return a half-width for a level so near to 1 that the transform is not precise enough; it is somewhat wider.

    Half of the error probability is for a noise beyond a cut. The rest bounds the sum of noises up to the cut by
    Chernoff's inequality.
    """
    miss = 1 - level
    cut = noise.isf(max(miss / (4 * count), 1e-300))
    if not 0 < cut < 1e290:
        return math.inf
    step = cut / (KEPT_WIDTHS * LEAST_CELLS)
    if unit is not None:
        step = unit * (2 * math.ceil(max(step / unit - 1, 0) / 2) + 1)
    cells = _Cells(noise, step, math.ceil(cut / step / KEPT_WIDTHS), count, unit, step == unit)
    left = miss - count * float(noise._tail(np.array([(cells._masses.size - 0.5) * step]))[0])
    if left <= 0:
        return math.inf
    found = math.inf
    for s in np.geomspace(0.01, 600, 60) / cells._masses.size:
        log_uniform = math.log(math.sinh(s / 2) / (s / 2))
        log_moment = count * (cells._log_moment(float(s)) + log_uniform + FLOAT_ERROR_PER_NOISE)
        found = min(found, (math.log(2 / left) + log_moment) / s)
    return cells.width(found if not cells.exact else math.ceil(found) + 0.5)


@lru_cache(maxsize=1024)
def planned_width(noise: SymmetricNoise, count: int, level: float) -> float:
    """Return the order of magnitude of a half-width: that of the largest noise, or of the sum of the others."""
    miss = 1 - level
    largest = noise.isf(max(level_quantile(level) / count, 1e-300))
    cut = noise.isf(max(miss / (16 * count), 1e-300))
    if not math.isfinite(cut):
        return largest
    # The second moment of what is not beyond the cut is the integral of 2x·(P(|Z| > x) − P(|Z| > cut)).
    edges = cut * np.concatenate([[0.0], np.geomspace(1e-9, 1.0, 800)])
    middle = (edges[1:] + edges[:-1]) / 2
    rest = np.maximum(noise._tail(middle) - noise._tail(np.array([cut])), 0)
    with np.errstate(over="ignore"):
        deviation = cut * math.sqrt(2 * float((rest * (middle / cut)) @ (np.diff(edges) / cut)))
    return max(largest, math.sqrt(2 * math.log(2 / miss)) * 0.8 * deviation * math.sqrt(count))


@dataclass(frozen=True)
class _Cells:
    """The noise, averaged over cells of equal width around 0.

    Attributes
    ----------
    noise
        The noise.
    step
        The width of a cell.
    half
        The number of cells in half of a planned interval.
    most
        The largest number of noises that the width is planned for.
    unit
        The unit that each noise is rounded to, or None.
    exact
        Whether a cell is a unit, so that nothing is averaged.
    """

    noise: SymmetricNoise
    step: float
    half: int
    most: int
    unit: float | None
    exact: bool
    _moments: dict[float, float] = field(default_factory=dict, compare=False)

    @staticmethod
    def planned(
        noise: SymmetricNoise, count: int, width: float, unit: float | None, least: int | None = None
    ) -> "_Cells":
        """Return cells that are narrow enough for a half-width of about `width`, at least so many in half of it."""
        most = 4 * count
        half = max(LEAST_CELLS if least is None else least, math.ceil(CELLS_PER_ROOT * math.sqrt(most)))
        if unit is None:
            return _Cells(noise, width / half, half, most, None, False)
        units = width / unit
        if units <= MOST_UNITS:
            return _Cells(noise, unit, max(math.ceil(units), 8), most, unit, True)
        odd = 2 * math.floor((units / half - 1) / 2) + 1
        if odd < 1:
            return _Cells(noise, unit, math.ceil(units), most, unit, True)
        return _Cells(noise, odd * unit, math.ceil(units / odd), most, unit, odd == 1)

    def serves(self, count: int) -> bool:
        """Whether the cells are narrow enough for a number of noises."""
        return count <= self.most

    @lazy
    def _size(self) -> int:
        """Half of the period of the transform."""
        from scipy.fft import next_fast_len

        return int(next_fast_len(PERIOD_WIDTHS * self.half // 2, real=True))

    @lazy
    def _masses(self) -> Array:
        """The probability of each cell from 0 on."""
        edges = (np.arange(KEPT_WIDTHS * self.half + 1) + 0.5) * self.step
        tails = self.noise._tail(edges[np.isfinite(edges)])
        tails = np.concatenate([tails, np.zeros(edges.size - tails.size)])
        return np.concatenate([1 - tails[:1], np.maximum(tails[:-1] - tails[1:], 0) / 2])

    @lazy
    def _transform(self) -> tuple[Array, Array]:
        """The characteristic function of L at whole multiples of π/size: the log of its size, and its sign."""
        from scipy.fft import dct

        padded = np.zeros(self._size + 1)
        padded[: self._masses.size] = self._masses
        found = dct(padded, type=1)
        with np.errstate(divide="ignore"):
            return np.log(np.abs(found)), np.sign(found)

    def _log_moment(self, s: float) -> float:
        """Return ln E exp(sL)."""
        if s not in self._moments:
            grown = np.exp(s * np.arange(1, self._masses.size))
            self._moments[s] = math.log(float(self._masses[0] + self._masses[1:] @ (grown + 1 / grown)))
        return self._moments[s]

    def _counted_twice(self, count: int, allowed: float, others: "Sequence[tuple[_Cells, int]]" = ()) -> float:
        """Return a bound on the probability of sums that the periodic transform mistakes for small ones (Chernoff).

        Rates are tried until the bound is at most `allowed`.
        """
        start, least = 2 * self._size - PLAN_FACTOR * self.half, 0.0
        for rate in RATES:
            s = rate / self.half
            of_uniform = 0.0 if self.exact else math.log(math.sinh(s / 2) / (s / 2))
            log = math.log(2) + count * (self._log_moment(s) + of_uniform) + s / 2 - s * start
            log += sum(more * (other._log_moment(s) + of_uniform) for other, more in others)
            least = min(least, log)
            if least < math.log(allowed):
                break
        return math.exp(least)

    def steps(self, count: int, level: float, others: "Sequence[tuple[_Cells, int]]" = ()) -> float | None:
        """Return a half-width in cells, None if it is larger than planned, or NaN if rounding errors are too large.

        The sum is that of `count` noises and of those of others, each with cells that are as wide in the sum.
        """
        lost = FLOAT_ERROR + FLOAT_ERROR_PER_NOISE * (count + sum(more for _, more in others))
        if lost > (1 - level) / 20:
            return math.nan
        goal = level + lost + self._counted_twice(count, lost, others)
        if goal >= 1:
            return None
        powers = self._powers(count, others)
        most = min(math.ceil(PLAN_FACTOR * self.half), self._size)
        low, high = self._search(powers, goal, most)
        if low is None:
            return None
        place, below, above = low, *high
        # The probability is concave in the half-width, because the density decreases: a chord lies below it.
        share = (goal - below) / (above - below) if above > below else 1.0
        return place + (1.0 if self.exact else min(max(share, 0.0), 1.0) * (1 + 1e-9))

    def _powers(self, count: int, others: "Sequence[tuple[_Cells, int]]" = ()) -> Array:
        """Return the characteristic function of the sum up to the last place where it is not negligible."""
        logs, signs = count * self._transform[0], self._transform[1] ** (count % 2)
        for other, more in others:
            logs, signs, count = (
                logs + more * other._transform[0],
                signs * other._transform[1] ** (more % 2),
                count + more,
            )
        last = np.flatnonzero(logs > -45.0)
        some = slice(0, int(last[-1]) + 1 if last.size else 1)
        powers: Array = np.exp(logs[some]) * signs[some]
        if not self.exact:
            t: Array = np.arange(some.stop, dtype=float) * (math.pi / self._size)
            powers = powers * uniform_transform(t, count)
        return powers

    def _search(self, powers: Array, goal: float, most: int) -> tuple[float | None, tuple[float, float]]:
        """Return a half-width x − ½ in cells and the probabilities at x − ½ and x + ½, with the goal between them."""
        if powers.size * 24 > self._size:
            from scipy.fft import dct

            padded = np.zeros(self._size + 1)
            padded[: powers.size] = powers
            masses = dct(padded, type=1)[: most + 1] / (2 * self._size)
            inside = 2 * np.cumsum(masses) - masses[0]
            place = int(np.searchsorted(np.maximum.accumulate(inside), goal))
            if place > most:
                return None, (0.0, 0.0)
            return place - 0.5 if place else -0.5, (float(inside[place - 1]) if place else 0.0, float(inside[place]))
        t = np.arange(powers.size) * (math.pi / self._size)
        with np.errstate(divide="ignore", invalid="ignore"):
            weights = powers / np.sin(t / 2) / self._size

        def inside_of(place: int) -> float:
            first = powers[0] * (2 * place + 1) / (2 * self._size)
            return float(first + weights[1:] @ np.sin((place + 0.5) * t[1:]))

        if inside_of(most) < goal:
            return None, (0.0, 0.0)
        below, above = -1, most
        while above - below > 1:
            middle = (below + above) // 2
            below, above = (below, middle) if inside_of(middle) >= goal else (middle, above)
        return above - 0.5 if above else -0.5, (inside_of(above - 1) if above else 0.0, inside_of(above))

    def width(self, steps: float) -> float:
        """Return half-widths in the scale of the noise, or in units, from half-widths in cells.

        For exact cells, `steps` is q + ½ with whole q.
        """
        if self.unit is None:
            return steps * self.step * (1 + QUANTILE_ERROR)
        if self.exact:
            return steps - 0.5
        return _rounded_up_to_whole(steps * (self.step / self.unit) * (1 + QUANTILE_ERROR) - 0.5)


def uniform_transform(t: Array, count: int) -> Array:
    """Return the characteristic function of the whole number nearest to a sum of variables uniform on (−½, ½).

    Its probabilities are the values at whole numbers of the B-spline of degree n. By Poisson's summation formula their
    transform is the sum of sinc^(n+1) over all shifts of t by 2π.
    """
    if count < FEW_UNIFORM:
        values = [_spline(count, k) for k in range(count // 2 + 1)]
        return np.asarray(values[0] + sum(2 * value * np.cos(k * t) for k, value in enumerate(values) if k) + 0.0 * t)
    x = t / 2
    sine = np.sin(x)
    total = np.zeros_like(t)
    for m in range(-20, 21) if count < 40 else range(-2, 3):
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(x + math.pi * m == 0, 1.0, sine / np.where(x + math.pi * m == 0, 1.0, x + math.pi * m))
        sign = -1.0 if m % 2 else 1.0
        with np.errstate(divide="ignore"):
            size = np.exp((count + 1) * np.log(np.abs(ratio)))
        total += size if count % 2 else size * np.sign(sign * ratio)
    return total


def _spline(degree: int, k: int) -> float:
    """Return the centred B-spline of a degree at k."""
    total = sum(
        (-1) ** j * math.comb(degree + 1, j) * max(2 * k + degree + 1 - 2 * j, 0) ** degree for j in range(degree + 2)
    )
    return float(total / (2**degree * math.factorial(degree)))
