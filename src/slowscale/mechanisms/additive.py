"""Additive mechanisms: q + Z (Algorithm additive, Theorem PrivSymCnvxDens).

The noise does not depend on q, so the error is a public constant and the intervals are exact.

The published number is ⌊(q + Z)/u + ½⌋·u for a unit u. If the noise is wide, rounding adds u²/12 to the variance and no
bias. Otherwise both depend on where q lies between two grid points, which is confidential. The published error is then
the largest over all places between two grid points, unless q is known to be on the grid.
"""

import math
from abc import abstractmethod
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple, overload

import numpy as np
from scipy import special

from slowscale.core.parameters import Array, as_number, check_range, evaluate, level_quantile
from slowscale.core.typing import ArrayLike, NumberArray, Scalar, UnitLike
from slowscale.mechanisms.base import Mechanism, Noisy
from slowscale.mechanisms.drawing import draw_additive
from slowscale.mechanisms.exact_sums import Sums
from slowscale.mechanisms.grid import EXACT, add, as_unit, directed, floors, largest, outward, shaped, shift, values
from slowscale.noise import SymmetricNoise
from slowscale.policy import (
    Certificate,
    Policy,
    TightPolicy,
)
from slowscale.sampling import Bits, BitSource
from slowscale.sampling.samplers import Sampler

# Noise counts as wide if it lies within half a unit of 0 with at most this probability.
WIDE_NOISE = 1e-4
# Places between two grid points at which the error is evaluated: evenly spaced, and ever closer to halfway.
PLACES = np.concatenate([np.linspace(0, 0.5, 33), 0.5 - 2.0 ** -np.arange(7, 41)])
# The most cells of one unit that are summed, and the Gauss-Legendre nodes in each.
MOST_CELLS, NODES_PER_CELL = 2000, 8


class RoundingError(NamedTuple):
    """The largest bias and the largest root mean square error of published values, rounding included."""

    bias: float
    rmse: float


def rounded_error(noise: SymmetricNoise, unit: Fraction, place: Array) -> tuple[Array, Array]:
    """Return the bias and the standard deviation of published values, for sums at places between grid points.

    With X = ⌊t + Z/u + ½⌋ and S(x) = P(Z > x): E X = Σ_j S(u(j+½−t)) − S(u(j+½+t)), and
    E X² = Σ_j (2j+1)(S(u(j+½−t)) + S(u(j+½+t))). The second is computed as Var(Z)/u² = ∫ 4x·S(ux) dx plus the
    difference in every cell from j to j+1, which vanishes quickly. A place is the distance from the nearest grid point
    in units, from −½ to ½.
    """
    u, std = float(unit), noise.std()
    wide = np.full_like(place, math.hypot(std, u / math.sqrt(12)))
    if 1 - 2 * noise.sf(u / 2) <= WIDE_NOISE:
        return np.zeros_like(place), wide
    j = np.arange(math.ceil(min(noise.isf(1e-20) / u, MOST_CELLS)) + 2)
    t = place[:, None]
    with np.errstate(over="ignore", under="ignore"):
        above, below = noise.sf(u * (j + 0.5 - t)), noise.sf(u * (j + 0.5 + t))
        mean = (above - below).sum(axis=1) + 2 * place * noise.sf(u * j.size)
        bias = u * (mean - place)
        square = ((2 * j + 1) * (above + below)).sum(axis=1)
        if j.size >= MOST_CELLS:  # beyond the last cell, the tail of the noise itself is used
            if not std < 1e6 * u:
                return bias, wide
            square = (std / u) ** 2 + (square - _second_moment(noise, u, j.size))
        return bias, u * np.sqrt(np.maximum(square - mean**2, 0.0))


def _second_moment(noise: SymmetricNoise, u: float, cells: int) -> float:
    """Return ∫ 4x·P(Z > ux) dx from 0 to `cells`. The first cell is split finely, for noise narrower than a unit."""
    ends = np.concatenate([[0.0], 2.0 ** np.arange(-40, 0), np.arange(1.0, cells + 1)])
    widths = np.diff(ends)
    nodes, weights = special.roots_legendre(NODES_PER_CELL)
    x = ends[:-1, None] + widths[:, None] * (nodes + 1) / 2
    return float(widths @ (4 * x * noise.sf(u * x)) @ (weights / 2))


@lru_cache(maxsize=1024)
def largest_error(noise: SymmetricNoise, unit: Fraction, on_grid: bool) -> RoundingError:
    """Return the largest error over all sums, or over sums on the grid if all are known to be on it.

    Parameters
    ----------
    noise
        The noise.
    unit
        The unit that results are rounded to.
    on_grid
        Whether the true sums are known to be whole numbers of units.
    """
    if on_grid:
        bias, std = rounded_error(noise, unit, PLACES[:1])
        return RoundingError(0.0, float(std[0]))
    places = np.sort(PLACES)
    for _ in range(3):  # refine around the largest error
        bias, std = rounded_error(noise, unit, places)
        peaks = [int(np.argmax(found)) for found in (np.abs(bias), np.hypot(bias, std))]
        near = [np.linspace(places[max(i - 1, 0)], places[min(i + 1, places.size - 1)], 17) for i in peaks]
        places = np.unique(np.concatenate([places[peaks], *near]))
    bias, std = rounded_error(noise, unit, places)
    return RoundingError(float(np.abs(bias).max()), float(np.hypot(bias, std).max()))


# A warning is given if rounding biases results by more than this share of their standard error.
BIAS_WARNED_OF = 0.1


class AdditiveMechanism(Mechanism):
    """q + Z, with Z drawn from `noise`."""

    _error_grows = False

    sigma: float

    @property
    @abstractmethod
    def noise(self) -> SymmetricNoise:
        """The distribution of the noise."""

    @property
    def _missing_moments(self) -> str:
        power = self.noise._tail_power
        return "no mean and no variance" if power <= 2 else "no variance" if power <= 3 else ""

    @property
    def policy(self) -> Policy:
        """The PRzCDP policy tanh(P/2)·P of the pure policy P."""
        assert self.pure_policy is not None
        return self.pure_policy.to_zcdp()

    @property
    def tight_policy(self) -> Policy:
        """The smallest PRzCDP policy of the noise, certified within 1 %, and never above the closed form.

        It is read from a curve that is computed when it is first needed, in about a second, and then kept in a file.
        """
        assert self.pure_policy is not None
        return TightPolicy(self.noise, self.pure_policy.to_zcdp())

    def tight_loss(self, influence: float) -> float:
        """Return the tight loss of one record size, certified within 0.1 %; this needs no curve."""
        policy = self.tight_policy
        size = as_number("influence", influence, "a finite number >= 0")
        check_range("influence", np.array([size]), 0)
        return policy.value(size) if isinstance(policy, TightPolicy) else policy(size)

    def tight_certificate(self) -> Certificate:
        """Return what proves the tight policy; print it, or check it again with its method `verify`."""
        policy = self.tight_policy
        return policy.certificate() if isinstance(policy, TightPolicy) else super().tight_certificate()

    @overload
    def variance(self, q: Scalar | None = None, unit: UnitLike | None = None) -> float: ...

    @overload
    def variance(self, q: ArrayLike, unit: UnitLike | None = None) -> Array: ...

    def variance(self, q: Scalar | ArrayLike | None = None, unit: UnitLike | None = None) -> float | Array:
        """Return the variance of the ideal output, which is the same for every q.

        With a `unit`, return that of the published (rounded) value when the sum is q; without q, the largest over all
        sums.
        """
        if unit is None:
            return _constant(self.noise.var(), q)
        return self._rounded(q, as_unit(unit))[1] ** 2

    @overload
    def std(self, q: Scalar | None = None, unit: UnitLike | None = None) -> float: ...

    @overload
    def std(self, q: ArrayLike, unit: UnitLike | None = None) -> Array: ...

    def std(self, q: Scalar | ArrayLike | None = None, unit: UnitLike | None = None) -> float | Array:
        """Return the standard deviation of the ideal output, which is the same for every q.

        With a `unit`, return that of the published (rounded) value when the sum is q; without q, the largest over all
        sums.
        """
        return _constant(self.noise.std(), q) if unit is None else self._rounded(q, as_unit(unit))[1]

    @overload
    def bias(self, q: Scalar | None = None, unit: UnitLike | None = None) -> float: ...

    @overload
    def bias(self, q: ArrayLike, unit: UnitLike | None = None) -> Array: ...

    def bias(self, q: Scalar | ArrayLike | None = None, unit: UnitLike | None = None) -> float | Array:
        """Return E[output] − q: 0 for the ideal output. Rounding to a `unit` coarser than the noise adds a bias.

        Without q, return the largest bias over all sums. If the noise has no mean, there is no E[output]: return nan.
        """
        mean = self.noise.mean()
        return _constant(mean, q) if unit is None else mean + self._rounded(q, as_unit(unit))[0]

    def _rounded(self, q: Any, unit: Fraction) -> tuple[float | Array, float | Array]:
        """Return bias and standard deviation of the rounded result."""
        if q is None:
            return tuple(float(np.abs(found).max()) for found in rounded_error(self.noise, unit, PLACES))  # type: ignore[return-value]
        sums = Sums.of(q, unit)
        place = np.zeros(sums.whole.size) if sums.rest is None else sums.rest.mid
        known, at = np.unique(np.where(place > 0.5, place - 1, place), return_inverse=True)
        bias, std = rounded_error(self.noise, unit, known)
        return shaped(bias[at], sums.shape), shaped(std[at], sums.shape)

    @overload
    def prediction_interval(
        self, q: Scalar = 0.0, level: float = 0.95, unit: UnitLike | None = None
    ) -> tuple[float, float]: ...

    @overload
    def prediction_interval(
        self, q: ArrayLike, level: float = 0.95, unit: UnitLike | None = None
    ) -> tuple[NumberArray, NumberArray]: ...

    def prediction_interval(
        self, q: Scalar | ArrayLike = 0.0, level: float = 0.95, unit: UnitLike | None = None
    ) -> tuple[float | NumberArray, float | NumberArray]:
        """Return q ± the noise's quantile, rounded outwards (Theorem additive_bounds).

        Without a `unit`, the ideal output lies between the ends with probability `level`. With a `unit`, the ends are
        whole numbers of units, and the published value lies between them with probability `level` or slightly more.
        """
        half = _half_width(self.noise, level)
        sums = Sums.of(q, Fraction(1) if unit is None else as_unit(unit))
        if not math.isfinite(half):
            endless = shaped(np.full(sums.whole.size, math.inf), sums.shape)
            return -endless, endless
        if unit is None:
            return self._ideal_end(q, sums, half, -1), self._ideal_end(q, sums, half, 1)
        low, high = (shaped(add(sums.whole, steps), sums.shape) for steps in self._steps(sums, half))
        return values(low, sums.unit, -1), values(high, sums.unit, 1)

    def _ideal_end(self, q: Any, sums: Sums, half: float, side: int) -> Any:
        """Return q + side·half as floats, rounded outwards."""
        if largest(sums.whole) < EXACT:
            return evaluate("q", q, lambda q: outward(q, half, side))
        ends = [int(sums.whole[i]) + sums.exact_rest(i) + side * Fraction(half) for i in range(sums.whole.size)]
        return shaped(np.array([directed(end, side) for end in ends]), sums.shape)

    def _steps(self, sums: Sums, half: float) -> tuple[Any, Any]:
        """Return the ends of a prediction interval, as numbers of units to add to the whole units of the sums."""
        width = half / float(sums.unit)
        rest = np.zeros(sums.whole.size) if sums.rest is None else sums.rest.mid
        slack = 1e-14 * (1 + width)
        return floors(rest - width - slack + 0.5), floors(rest + width + slack + 0.5)

    @overload
    def coverage(self, q: Scalar | None = None, level: float = 0.95, unit: UnitLike | None = None) -> float: ...

    @overload
    def coverage(self, q: ArrayLike, level: float = 0.95, unit: UnitLike | None = None) -> Array: ...

    def coverage(
        self, q: Scalar | ArrayLike | None = None, level: float = 0.95, unit: UnitLike | None = None
    ) -> float | Array:
        """Return the exact probability that the output lies in `prediction_interval(q, level, unit)`.

        For the ideal output it is `level`. With a `unit` and without q, it is that of sums which are whole units.
        """
        if unit is None:
            return _constant(1 - 2 * level_quantile(level), q)
        sums = Sums.of(0 if q is None else q, as_unit(unit))
        low, high = (steps.astype(float) for steps in self._steps(sums, _half_width(self.noise, level)))
        rest, u = (0.0 if sums.rest is None else sums.rest.mid), float(sums.unit)
        outside = self.noise.sf(u * (high + 0.5 - rest)) + self.noise.cdf(u * (low - 0.5 - rest))
        covered: float | Array = shaped(1 - outside, sums.shape)
        return covered

    def _probability_within(self, q: Array, low: Array, high: Array) -> Array:
        return self.noise.cdf(high) - self.noise.cdf(low)

    @property
    @abstractmethod
    def _sampler(self) -> Sampler:
        """The sampler of |Z|/σ, or of Z/σ."""

    def release(
        self, q: Scalar | ArrayLike, unit: UnitLike = 1, level: float = 0.95, bits: BitSource | None = None
    ) -> Noisy:
        """Return q + Z, rounded exactly to the nearest multiple of `unit`; see `Mechanism.release`.

        A `UnitWarning` is given if the unit is so much coarser than the noise that rounding biases the results.
        """
        return self._warn_of_unit(self._release(q, unit, level, bits))

    def _release(self, q: Any, unit: Any, level: float, bits: BitSource | Bits | None) -> Noisy:
        level_quantile(level)
        sums = Sums.of(q, as_unit(unit))
        units, private = draw_additive(self._sampler, self.sigma, sums, bits)
        return Noisy(self, shaped(units, sums.shape), sums.unit, None, level, private, sums.on_grid)

    def _half_width_at(self, q: float, level: float) -> float:
        return _half_width(self.noise, level)

    def _rounding_bias(self, unit: Fraction, on_grid: bool) -> float:
        return largest_error(self.noise, unit, on_grid).bias

    def _unit_warning(self, unit: Fraction, on_grid: bool) -> str | None:
        error = largest_error(self.noise, unit, on_grid)
        if error.bias <= BIAS_WARNED_OF * error.rmse:
            return None
        return self._coarse_unit_text(unit, error.bias)

    def _standard_error(self, noisy: Noisy) -> Any:
        zeros = 0.0 if noisy.single else np.zeros(noisy.units.shape)
        return self._error_at(zeros, noisy.unit, noisy.on_grid)

    def _error_at(self, q: Any, unit: Fraction, on_grid: bool) -> Any:
        return _constant(largest_error(self.noise, unit, on_grid).rmse, q)

    def _variance_from(self, transformed: Any, unit: Fraction, on_grid: bool) -> float:
        rmse = largest_error(self.noise, unit, on_grid).rmse
        return rmse * rmse  # infinite where rmse ** 2 would raise

    def _confidence_interval(self, noisy: Noisy) -> tuple[Any, Any]:
        steps = self._half_steps(noisy.unit, noisy.level, noisy.on_grid)
        if steps is None:
            endless = np.full(np.shape(noisy.units), math.inf)[()]
            return -endless, endless
        return shift(noisy.units, -steps), shift(noisy.units, steps)

    def _half_steps(self, unit: Fraction, level: float, on_grid: bool) -> int | None:
        """Return the half-width in units of an interval for the true sum, or None if it is infinite.

        The result n satisfies |n·u − q − Z| <= u/2. If q is on the grid, its distance from the result is whole units.
        """
        half = _half_width(self.noise, level)
        if not math.isfinite(half):
            return None
        width = Fraction(half * (1 + 1e-14)) / unit
        return max(math.ceil(width - Fraction(1, 2) if on_grid else width + Fraction(1, 2)), 0)


@lru_cache(maxsize=1024)
def _half_width(noise: SymmetricNoise, level: float) -> float:
    return noise.interval(level)[1]


def _constant(value: float, q: object) -> float | Array:
    return value if q is None else evaluate("q", q, lambda q: np.full_like(q, value))
