"""The shapes of mechanisms that the advisor tries: every parameter of every family except the scale of its noise.

A shape is a transformation, or none, and a noise of scale 1. All losses come from the two parts: a record, or a change
of its value, shifts the transformed sum by some distance, and the loss is that of the noise at this shift, divided by
the scale. The scale is not searched for: errors grow with it and losses fall, so that the limits on them give it. The
polylog is two spaces, because with p = 1 its offset `a` has no effect beside σ.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from slowscale.core.errors import ParameterError
from slowscale.core.formulas import laplace_loss
from slowscale.core.parameters import Array, level_quantile
from slowscale.mechanisms import (
    ArsinhNormal,
    ExponentialPolylog,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    Log,
    Mechanism,
    Root,
)
from slowscale.mechanisms.transformation import NOISES, TransformationMechanism
from slowscale.noise import GaussianNoise, SymmetricNoise
from slowscale.noise.tight_curve import FIRST_INFLUENCE, LAST_INFLUENCE

STEP = 0.125
LOG_NOISE_SIZES = np.arange(
    -20.0, 110.0, STEP
)  # the logarithms of the sizes of noise at which the density is evaluated
NOISE_SIZES = np.exp(LOG_NOISE_SIZES)
# The part beyond the last of them must have less than this share of the integral: e^(−12).
NEGLIGIBLE_LOG = 12.0
FAR_LOG_TAIL = -36.0  # the noise beyond the quantile with this log-tail is left out of divergences
POINTS_PER_SIDE, ORDERS = 96, 24  # of the integrals for divergences: the points on each side of 0, and the orders α
FRACTIONS = np.linspace(0, 1, POINTS_PER_SIDE)
WEIGHTS = np.concatenate([[0.5], np.ones(POINTS_PER_SIDE - 2), [0.5]]) / (POINTS_PER_SIDE - 1)
FIRST_TRIED_ORDER, LAST_TRIED_ORDER = 1e-3, 64.0  # of α − 1; where all losses are small, larger orders matter too
# A charged loss is read from a curve, which lies at most by this much above the tight loss.
CURVE_PRECISION = 0.01
LAPLACE = Laplace(sigma=1.0).noise


class UnitNoise:
    """Estimates for a noise with scale 1."""

    def __init__(self, noise: SymmetricNoise) -> None:
        self._noise = noise
        with np.errstate(over="ignore", invalid="ignore"):
            logs = LOG_NOISE_SIZES - noise._drop(NOISE_SIZES)
        logs = np.where(np.isnan(logs), -np.inf, logs)
        peak = float(logs.max())
        self._reliable = float(logs[-1]) < peak - NEGLIGIBLE_LOG
        weights = np.exp(logs - peak) * STEP
        mass = float(weights.sum())
        self._log_mass = peak + math.log(mass)
        tails = np.cumsum(weights[::-1])[::-1] - weights / 2
        self._log_tails = np.log(np.maximum(tails, 1e-300) / mass)
        self.std = math.inf
        squares = logs + 2 * LOG_NOISE_SIZES
        top = float(squares.max())
        if float(squares[-1]) < top - NEGLIGIBLE_LOG:
            log = (top + math.log(float(np.exp(squares - top).sum()) * STEP) - self._log_mass) / 2
            self.std = math.exp(log) if log < 700 else math.inf

    @property
    def usable(self) -> bool:
        """Whether the noise has a standard deviation, and is not so large that the estimates would be wrong."""
        return self._reliable and math.isfinite(self.std)

    def half_width(self, level: float) -> float:
        """Return the half-width of the interval around 0 that contains the noise with a probability."""
        return self._quantile(math.log1p(-level))

    def _quantile(self, log_tail: float) -> float:
        return math.exp(float(np.interp(-log_tail, -self._log_tails, LOG_NOISE_SIZES)))

    @property
    def precision(self) -> float:
        """How far a charged loss may be above the tight one: by nothing if that has a closed form."""
        return 0.0 if self._is_gaussian or self._is_laplace else CURVE_PRECISION

    @property
    def _is_gaussian(self) -> bool:
        return isinstance(self._noise, GaussianNoise)

    @property
    def _is_laplace(self) -> bool:
        return self._noise == LAPLACE

    def losses(self, influences: Array) -> Array:
        """Return the tight PRzCDP losses at several influences."""
        if self._is_gaussian:
            return influences**2 / 2
        if self._is_laplace:
            return laplace_loss(influences)
        found = np.empty_like(influences)
        inside = (influences >= FIRST_INFLUENCE) & (influences <= LAST_INFLUENCE)
        pure = self._noise._pure_loss(influences[~inside])
        found[~inside] = np.tanh(pure / 2) * pure  # as tight policies have it there
        if inside.any():
            found[inside] = self._divergences(influences[inside, None])
        return found

    def _divergences(self, x: Array) -> Array:
        """Return the largest d_α/α over the orders, for a column of influences."""
        noise = self._noise
        start = 1e-3 * np.minimum(self.half_width(0.5), x)

        def geometric(end: Array) -> Array:
            return np.asarray(start * np.exp(FRACTIONS * np.log(end / start)))

        def masses(t: Array) -> Array:
            found = t * WEIGHTS * np.log(t[:, -1:] / t[:, :1])
            found[:, 0] += t[:, 0]  # the cell from 0 to the first point
            return np.asarray(found)

        outer, inner = geometric(np.maximum(self._quantile(FAR_LOG_TAIL), 10 * x)), geometric(x / 2)
        shift = np.broadcast_to(x, outer.shape)
        loss = np.concatenate([noise._drop_rise(outer, shift), noise._drop_rise(inner, x - 2 * inner)], axis=1)
        loss = np.maximum(loss, 1e-300)
        density = -noise._drop(np.concatenate([outer + x, x - inner], axis=1)) - self._log_mass - math.log(2)
        base = density + np.log(np.concatenate([masses(outer), masses(inner)], axis=1))
        last = np.maximum(LAST_TRIED_ORDER, LAST_TRIED_ORDER / loss.max(axis=1))
        orders = np.geomspace(np.full_like(last, FIRST_TRIED_ORDER), last, ORDERS)
        order = orders[:, :, None]
        with np.errstate(divide="ignore", over="ignore"):
            logs = (1 + order) * loss + np.log(np.expm1(-(1 + order) * loss) * np.expm1(-order * loss)) + base
        top = logs.max(axis=-1)
        total = top + np.log(np.exp(logs - top[..., None]).sum(axis=-1))
        found: Array = (np.logaddexp(0.0, total) / (orders * (orders + 1))).max(axis=0)
        return found


DIGITS = 3  # the significant digits of a shape's parameters
HALVINGS = 4  # how often the steps of a search are halved, from those of the grid

Point = tuple[float, ...]


class Moves(NamedTuple):
    """Changes of a sum: from `low`, by `gap`. A record enters an empty cell, or a record alone in it changes."""

    low: Array
    gap: Array

    @staticmethod
    def of(sizes: Array, times: float | None = None) -> "Moves":
        """Return the moves of records of some sizes that enter, or whose value grows by a factor."""
        return Moves(np.zeros_like(sizes), sizes) if times is None else Moves(sizes, (times - 1) * sizes)


@dataclass(frozen=True)
class Shape:
    """A mechanism with all its parameters except the scale."""

    family: type[Mechanism]
    parameters: tuple[tuple[str, Any], ...] = ()

    def with_scale(self, scale: float) -> Mechanism:
        """Return the mechanism with this shape and a scale."""
        name = "scale" if self.family is ArsinhNormal else "sigma"
        if self.family is Log and scale >= 0.5 and ("noise", "laplace") in self.parameters:
            raise ParameterError("sigma", allowed="below 1/2, where the results have a variance", given=scale)
        return self.family(**{name: scale}, **dict(self.parameters))

    @property
    def transforms(self) -> bool:
        """Whether the noise is added to a transformed sum."""
        return issubclass(self.family, TransformationMechanism)

    @property
    def unit(self) -> UnitNoise | None:
        """Estimates for the noise with scale 1, or None if it cannot be used."""
        return _noise_unit(dict(self.parameters)["noise"]) if self.transforms else _unit(self)

    def shifts(self, moves: Moves) -> Array:
        """Return by how much the transformed sum changes."""
        if not self.transforms:
            return moves.gap
        made = self.with_scale(0.25)
        assert isinstance(made, TransformationMechanism)
        return made._gaussian_policy(1.0)._gap(moves.low + made.a, moves.gap)


@lru_cache(maxsize=4096)
def _unit(shape: Shape) -> UnitNoise | None:
    try:
        made = shape.with_scale(1.0)
        unit = UnitNoise(made.noise)  # type: ignore[attr-defined]
    except ParameterError:
        return None
    return unit if unit.usable else None


@lru_cache(maxsize=8)
def _noise_unit(name: str) -> UnitNoise:
    return UnitNoise(NOISES[name](sigma=1.0).noise)


@dataclass(frozen=True)
class Space:
    """All shapes of a family, and the geometric grids of its parameters."""

    name: str
    shape: Callable[..., Shape]
    axes: tuple[tuple[float, ...], ...] = ()
    halvings: int = HALVINGS

    def grid(self) -> Iterator[Point]:
        """Yield the points of the grid."""
        yield from product(*self.axes)

    def neighbours(self, point: Point, part: float) -> Iterator[Point]:
        """Yield the points next to one, a part of a grid step away along one axis or several."""
        steps = [(axis[1] / axis[0]) ** part for axis in self.axes]
        for signs in product((0, -1, 1), repeat=len(self.axes)):
            moved = tuple(
                min(max(value * step**sign, axis[0]), axis[-1])
                for value, step, sign, axis in zip(point, steps, signs, self.axes, strict=True)
            )
            if moved != point:
                yield moved


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _axis(low: float, high: float, count: int) -> tuple[float, ...]:
    return tuple(np.geomspace(low, high, count).tolist())


def _power(p: float) -> Shape:
    return Shape(GeneralizedGaussian, (("p", _rounded(p)),)) if _rounded(p) < 1 else Shape(Laplace)


def _polylog(excess: float, factor: float, d: float) -> Shape:
    """Return a polylog with p = 1 + excess and a = factor·e^(p−1)."""
    p = _rounded(1 + excess)
    a = None if factor == 1 else _rounded(max(factor, 1.01) * math.exp(p - 1))
    return Shape(ExponentialPolylog, (("d", _rounded(d)), ("a", a), ("p", p)))


SPACES = (
    Space("Gaussian", lambda: Shape(Gaussian)),
    Space("generalized Gaussian", _power, (_axis(0.2, 1, 12),)),
    Space("arsinh-normal", lambda shape: Shape(ArsinhNormal, (("shape", _rounded(shape)),)), (_axis(0.1, 6, 40),)),
    Space(
        "exponential polylog, p = 1",
        lambda excess: Shape(ExponentialPolylog, (("d", _rounded(1 + excess)), ("a", None), ("p", 1.0))),
        (_axis(2.01, 60, 24),),
    ),
    Space("exponential polylog", _polylog, (_axis(0.1, 4, 6), _axis(1, 1e5, 6), _axis(0.02, 60, 20))),
)
OFFSETS = 20  # on the grid of the offset `a`
FINE_HALVINGS = 8  # the grid of the offset is coarse


def transformations(low: float, high: float) -> tuple[Space, ...]:
    """Return the spaces of logs and roots with Gaussian and Laplace noise, with offsets `a` between two sums."""
    offsets = _axis(low, high, OFFSETS)

    def log(noise: str) -> Callable[..., Shape]:
        return lambda a: Shape(Log, (("a", a), ("noise", noise)))

    def root(noise: str) -> Callable[..., Shape]:
        # With Gaussian noise, only roots with a whole k have a mean-unbiased estimator.
        return lambda k, a: Shape(
            Root, (("k", round(k) if noise == "gaussian" else _rounded(k)), ("a", a), ("noise", noise))
        )

    return (
        Space("log, Laplace", log("laplace"), (offsets,), FINE_HALVINGS),
        Space("log, Gaussian", log("gaussian"), (offsets,), FINE_HALVINGS),
        Space("root, Laplace", root("laplace"), (_axis(1.3, 8, 5), offsets), FINE_HALVINGS),
        Space("root, Gaussian", root("gaussian"), (_axis(2, 8, 5), offsets), FINE_HALVINGS),
    )


TYPICAL, COMMON, RARE = 0.5, 0.95, 0.999  # the levels of the errors that are stated for every candidate
LARGEST_LOG_SIGMA = 60.0
MOST_STEPS, NEAR_LIMIT = 6, 1e-7  # of the search for the scale of a root or log, whose error is so near to its limit


@dataclass(frozen=True)
class Accuracy:
    """How errors are measured: as the half-width of the interval around the true sum, or as a standard deviation.

    Attributes
    ----------
    level
        The level of the interval.
    at, large
        A small sum and a large one. It matters for roots and logs, whose error grows with the sum.
    rare
        The largest ratio of the half-width at 99.9 %, and of the standard deviation, to the half-width at 95 %.
    by_std
        Whether the error of the small sum is its standard deviation.
    """

    level: float
    at: float
    large: float
    rare: float
    by_std: bool = False

    def allows(self, unit: UnitNoise) -> bool:
        """Return whether the rare errors of a noise are small enough."""
        return max(unit.half_width(RARE), unit.std) <= self.rare * unit.half_width(COMMON)

    def of_unit(self, unit: UnitNoise) -> tuple[float, float]:
        """Return estimates of the errors of the small and the large sum by additive noise with scale 1."""
        half = unit.half_width(self.level)
        return unit.std if self.by_std else half, half

    def of(self, mechanism: Mechanism) -> tuple[float, float]:
        """Return the errors of the small and the large sum."""
        small, large = half_widths(mechanism, self.level, (self.at, self.large))
        return float(mechanism.std(self.at)) if self.by_std else small, large

    def errors(self, shape: Shape, scale: float) -> tuple[float, float]:
        """Return the errors of a shape with a scale: estimates for additive noise."""
        if shape.transforms:
            return self.of(shape.with_scale(scale))
        assert shape.unit is not None
        small, large = self.of_unit(shape.unit)
        return scale * small, scale * large

    def scaled(self, shape: Shape, wanted: float) -> Mechanism:
        """Return the additive mechanism of a shape that has exactly the wanted error of a small sum."""
        return shape.with_scale(wanted / self.of(shape.with_scale(1.0))[0])

    def keeps_rare(self, mechanism: Mechanism, quick: bool = False) -> bool:
        """Return whether the rare errors of a mechanism are small enough, for the small and the large sum.

        The standard deviation of a root takes longer, and is left out if the answer must be `quick`. That of a log is
        not: a log with a very large scale has short intervals, far from the true sum.
        """
        sums = (self.at, self.large) if mechanism._error_grows else (self.at,)
        most = [self.rare * half for half in half_widths(mechanism, COMMON, sums)]
        rare = half_widths(mechanism, RARE, sums)
        return all(one <= limit for one, limit in zip(rare, most, strict=True)) and (
            (quick and not isinstance(mechanism, Log))
            or all(float(mechanism.std(at)) <= limit for at, limit in zip(sums, most, strict=True))
        )


def log_excess(errors: tuple[float, float], limits: tuple[float, float]) -> float:
    """Return the log of the largest ratio of an error to its limit; of errors that have one."""
    found = [math.log(error / limit) for error, limit in zip(errors, limits, strict=True) if limit < math.inf]
    return max(found, default=-math.inf)


@lru_cache(maxsize=4096)
def largest_scale(accuracy: Accuracy, shape: Shape, limits: tuple[float, float]) -> float:
    """Return the largest scale with which the errors of the small and the large sum keep their limits, or 0.

    For roots and logs this is the least scale at which a limit is reached: with a much larger one the interval may be
    as narrow again, but far from the true sum.
    """
    from scipy.optimize import brentq

    if not shape.transforms:
        return min(limit / error for limit, error in zip(limits, accuracy.errors(shape, 1.0), strict=True))

    def excess(log: float) -> float:
        return log_excess(accuracy.errors(shape, math.exp(log)), limits)

    try:
        first = _first_log_scale(accuracy, shape, limits)
        low, miss, slope = first, excess(first), 1.0  # errors are about proportional to a small scale
        for _ in range(MOST_STEPS):
            if abs(miss) < NEAR_LIMIT:
                return math.exp(low - 2 * NEAR_LIMIT)
            if abs(low - first) > 0.5 or not 0.2 < slope < 5:
                break
            step = -miss / slope
            before, low, miss = miss, low + step, excess(low + step)
            slope = (miss - before) / step
        low = first
        while excess(low) > 0:
            low -= 2.0
        while excess(low + 0.5) < 0:
            low += 0.5
            if low > LARGEST_LOG_SIGMA:  # the interval never becomes so wide
                return 0.0
        return math.exp(float(brentq(excess, low, low + 0.5, xtol=1e-8)))
    except (ParameterError, ValueError, OverflowError, ZeroDivisionError):
        return 0.0


def error_within(mechanism: Mechanism, level: float, at: float) -> float:
    """Return e such that the error of a sum is at most e, in absolute value, with probability `level`."""
    if isinstance(mechanism, TransformationMechanism):
        return mechanism._error_within(at, level)
    return half_widths(mechanism, level, (at,))[0]


def _first_log_scale(accuracy: Accuracy, shape: Shape, limits: tuple[float, float]) -> float:
    """Return the logarithm of a scale for which the errors are about their limits."""
    made, unit = shape.with_scale(0.25), shape.unit
    assert isinstance(made, TransformationMechanism)
    assert unit is not None
    found = []
    for at, limit in zip((accuracy.at, accuracy.large), limits, strict=True):
        if limit < math.inf:
            step = made._gaussian_policy(1.0)._gap(np.array([at + made.a]), np.array([limit]))[0]
            found.append(math.log(float(step) / unit.half_width(accuracy.level)))
    return min(found)


def half_widths(mechanism: Mechanism, level: float, sums: tuple[float, ...]) -> tuple[float, ...]:
    """Return for each sum the largest distance from it to an end of its prediction interval."""
    if not isinstance(mechanism, TransformationMechanism):
        return (float(mechanism.prediction_interval(0.0, level)[1]),) * len(sums)
    q = np.array(sums)
    low, high = mechanism._predicted(q, mechanism._noise.isf(level_quantile(level)), None)
    return tuple(np.maximum(q - low, high - q).tolist())
