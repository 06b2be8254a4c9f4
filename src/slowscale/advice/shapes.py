"""The shapes of noise that the advisor tries: every parameter of every additive family except its scale.

The scale is not searched for: half-widths and standard deviations are proportional to it, so the wanted accuracy gives
it. The polylog is two spaces, because with p = 1 its offset `a` has no effect beside σ.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from slowscale.core.errors import ParameterError
from slowscale.core.numbers import format_number
from slowscale.core.parameters import Array
from slowscale.mechanisms import ArsinhNormal, ExponentialPolylog, Gaussian, GeneralizedGaussian, Log, Mechanism, Root
from slowscale.mechanisms.additive import AdditiveMechanism
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

    def losses(self, influences: Array) -> Array:
        """Return the tight PRzCDP losses at several influences."""
        if isinstance(self._noise, GaussianNoise):
            return influences**2 / 2
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


@dataclass(frozen=True)
class Shape:
    """A family of noise with all its parameters except the scale."""

    family: type[AdditiveMechanism]
    parameters: tuple[tuple[str, Any], ...] = ()

    def with_scale(self, scale: float) -> AdditiveMechanism:
        """Return the mechanism with this shape and a scale."""
        name = "scale" if self.family is ArsinhNormal else "sigma"
        return self.family(**{name: scale}, **dict(self.parameters))

    @property
    def unit(self) -> UnitNoise | None:
        """Estimates for the noise with scale 1, or None if it cannot be used."""
        return _unit(self)


@lru_cache(maxsize=4096)
def _unit(shape: Shape) -> UnitNoise | None:
    try:
        unit = UnitNoise(shape.with_scale(1.0).noise)
    except ParameterError:
        return None
    return unit if unit.usable else None


@dataclass(frozen=True)
class Space:
    """All shapes of a family, and the geometric grids of its parameters."""

    name: str
    shape: Callable[..., Shape]
    axes: tuple[tuple[float, ...], ...] = ()

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


def _polylog(excess: float, factor: float, d: float) -> Shape:
    """Return a polylog with p = 1 + excess and a = factor·e^(p−1)."""
    p = _rounded(1 + excess)
    a = None if factor == 1 else _rounded(max(factor, 1.01) * math.exp(p - 1))
    return Shape(ExponentialPolylog, (("d", _rounded(d)), ("a", a), ("p", p)))


SPACES = (
    Space("Gaussian", lambda: Shape(Gaussian)),
    Space(
        "generalized Gaussian",
        lambda p: Shape(GeneralizedGaussian, (("p", min(_rounded(p), 1.0)),)),
        (_axis(0.2, 1, 12),),
    ),
    Space("arsinh-normal", lambda shape: Shape(ArsinhNormal, (("shape", _rounded(shape)),)), (_axis(0.1, 6, 40),)),
    Space(
        "exponential polylog, p = 1",
        lambda excess: Shape(ExponentialPolylog, (("d", _rounded(1 + excess)), ("a", None), ("p", 1.0))),
        (_axis(2, 60, 24),),
    ),
    Space("exponential polylog", _polylog, (_axis(0.1, 4, 6), _axis(1, 1e5, 6), _axis(0.02, 60, 20))),
)


TYPICAL, COMMON, RARE = 0.5, 0.95, 0.999  # the levels of the errors that are stated for every candidate
LARGEST_LOG_SIGMA = 60.0
ROOTS = (2, 3, 4, 6, 8)
# The offsets `a` of roots and the log that are tried, as multiples of the sum that the error is for.
OFFSETS = (1e-3, 1e-2, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)


@dataclass(frozen=True)
class Accuracy:
    """A measure of the error: the half-width of the interval around the true sum at a level, or a standard deviation.

    Attributes
    ----------
    level
        The level of the interval, or None for the standard deviation.
    at
        The sum that the error is for, which matters for roots and the log; or None.
    rare
        The largest ratio of the half-width at 99.9 %, and of the standard deviation, to the half-width at 95 %.
    """

    level: float | None
    at: float | None
    rare: float

    def of_unit(self, unit: UnitNoise) -> float:
        """Return an estimate of the error of a noise with scale 1."""
        return unit.std if self.level is None else unit.half_width(self.level)

    def allows(self, unit: UnitNoise) -> bool:
        """Return whether the rare errors of a noise are small enough."""
        return max(unit.half_width(RARE), unit.std) <= self.rare * unit.half_width(COMMON)

    def of(self, mechanism: Mechanism) -> float:
        """Return the error of a mechanism."""
        if self.level is None:
            return float(mechanism.std(0.0 if self.at is None else self.at))
        return half_width(mechanism, self.level, self.at)

    def scaled(self, shape: Shape, wanted: float) -> AdditiveMechanism:
        """Return the mechanism of a shape that has exactly the wanted error."""
        return shape.with_scale(wanted / self.of(shape.with_scale(1.0)))

    def transformations(self) -> list[Callable[[float], Mechanism]]:
        """Return the roots and logs to try, as functions of σ; none without a sum that the error is for."""
        if not self.at:
            return []
        offsets = [share * self.at for share in OFFSETS]
        roots = [(lambda sigma, k=k, a=a: Root(k=k, sigma=sigma, a=a)) for k in ROOTS for a in (0.0, *offsets)]
        return [*roots, *((lambda sigma, a=a: Log(sigma=sigma, a=a)) for a in offsets)]

    def solved(self, build: Callable[[float], Mechanism], wanted: float) -> Mechanism | None:
        """Return the root or log with the smallest σ that has the wanted error, or None.

        With a much larger σ the interval may be as narrow again, but far from the true sum.
        """
        from scipy.optimize import brentq

        def excess(log: float) -> float:
            return math.log(self.of(build(math.exp(log))) / wanted)

        try:
            low = 0.0
            while excess(low) > 0:
                low -= 5.0
            while excess(low + 0.5) < 0:
                low += 0.5
                if low > LARGEST_LOG_SIGMA:  # the interval never becomes so wide
                    return None
            found = build(math.exp(float(brentq(excess, low, low + 0.5, xtol=1e-13))))
        except (ParameterError, ValueError, OverflowError, ZeroDivisionError):
            return None
        return found if self.keeps_rare(found) else None

    def keeps_rare(self, mechanism: Mechanism) -> bool:
        """Return whether the rare errors of a mechanism are small enough."""
        rare = max(half_width(mechanism, RARE, self.at), float(mechanism.std(self.at or 0.0)))
        return rare <= self.rare * half_width(mechanism, COMMON, self.at)

    def describe(self, value: float) -> str:
        """Return the error in words: "95 % of the results within ±1,900,000"."""
        where = "" if self.at is None else f" for a sum of {format_number(self.at)}"
        if self.level is None:
            return f"a standard deviation of {format_number(value)}{where}"
        return (
            f"{format_number(100 * self.level)} % of the results within ±{format_number(value)} of the true sum{where}"
        )


def half_width(mechanism: Mechanism, level: float, at: float | None) -> float:
    """Return the largest distance from the true sum to an end of the prediction interval."""
    if not mechanism._error_grows:
        return float(mechanism.prediction_interval(0.0, level)[1])
    assert at is not None
    low, high = mechanism.prediction_interval(at, level)
    return float(max(at - low, high - at))
