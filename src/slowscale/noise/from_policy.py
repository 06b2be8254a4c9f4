"""Noise made from a policy: density proportional to exp(−P(|z|)), for a policy P that a curator chooses.

If P increases and is concave, with P(0) = 0, then |P(x) − P(y)| <= P(|x − y|), so the log-density of noise shifted by Δ
changes by at most P(Δ); at z = 0 it changes by P(Δ) exactly.

In the coordinate y = ln |z| the density is exp(y − P(e^y)). Between kinks it is log-concave, because P(e^y) is convex
for powers and polylogarithms. Everything is therefore a sum over the pieces between kinks, and no digits cancel.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import special

from slowscale.core.errors import ParameterError
from slowscale.core.families import PointsFamily
from slowscale.core.formulas import LEAST, MOST, power_pieces, stretched_points
from slowscale.core.parameters import Array, lazy
from slowscale.noise.exponential_polylog import ExponentialPolylogNoise
from slowscale.noise.gaussian import GeneralizedGaussianNoise
from slowscale.noise.log_concave import LogConcaveDensity, solve
from slowscale.noise.symmetric import SymmetricNoise

# Noise whose log is typically larger than this is refused: it could not be released.
LARGEST_LOG = 600.0
LARGEST_EXPONENT = 709.0  # of a float
# A difference of two incomplete gamma functions is used if it keeps this share of them, and no underflow is near.
KEPT_SHARE, SMALLEST_SHARE = 1e-2, 1e-280


class FromPolicyNoise(SymmetricNoise):
    """Density proportional to exp(−P(|z|)), integrated piece by piece between the kinks of P."""

    @property
    def words(self) -> str:
        """The name of the noise in formulas."""
        return "noise made from promised losses"

    @abstractmethod
    def _log_rise(self, y: Array, t: Array, piece: int) -> Array:
        """Return P(e^(y + t)) − P(e^y) for two points of one piece; t may be negative."""

    @abstractmethod
    def _elasticity(self, z: Array) -> Array:
        """Return z·P'(z), the derivative of P(e^y) with respect to y = ln z; at a kink, that from the right."""

    def _check(self) -> None:
        super()._check()
        if self._elasticity(np.exp([LARGEST_LOG]))[0] <= 1:
            raise ParameterError(
                "the noise of this policy",
                f"is typically larger than exp({LARGEST_LOG:g}), too large to be released",
                code="too-large",
                remedy="let the loss grow faster at large sizes",
            )

    @lazy
    def _edges(self) -> Array:
        """The ends of the pieces, from 0 to infinity."""
        return np.array([0.0, *self._kinks, math.inf])

    def _log_density(self, piece: int, order: int) -> LogConcaveDensity:
        """Return the density |z|^order·exp(−P) in the coordinate y, on one piece."""
        return _piece_density(self, piece, order)

    def _log_piece(self, low: Array, high: Array, piece: int, order: int = 0) -> Array:
        """Return ln ∫ z^order·exp(−P(z)) dz from low to high, two points of one piece."""
        with np.errstate(divide="ignore"):
            peak, integral = self._log_density(piece, order).log_integral(np.log(low), np.log(high))
        with np.errstate(over="ignore"):
            return (order + 1) * peak - self._drop(np.exp(peak)) + integral

    def _log_pieces(self, order: int) -> Array:
        """Return ln ∫ z^order·exp(−P(z)) dz over each piece."""
        edges = self._edges
        found = [self._log_piece(edges[k : k + 1], edges[k + 1 : k + 2], k, order) for k in range(edges.size - 1)]
        return np.concatenate(found)

    @lazy
    def _whole_pieces(self) -> Array:
        return self._log_pieces(0)

    @lazy
    def _log_mass(self) -> float:
        """The log of the integral of exp(−P(z)) over z > 0."""
        return float(np.logaddexp.reduce(self._whole_pieces))

    @property
    def _log_peak(self) -> float:
        return -math.log(2) - self._log_mass

    def _part(self, z: Array, *, above: bool) -> Array:
        """Return ln ∫ exp(−P) over all points above z, or below it, as a share of the whole."""
        out = np.empty_like(z)
        at = np.searchsorted(self._edges[1:-1], z, side="right")
        for piece in np.unique(at).tolist():
            here = at == piece
            start, end = (np.full(np.count_nonzero(here), self._edges[i]) for i in (piece, piece + 1))
            low, high = (z[here], end) if above else (start, z[here])
            others = self._whole_pieces[piece + 1 :] if above else self._whole_pieces[:piece]
            rest = float(np.logaddexp.reduce(others)) if others.size else -math.inf
            out[here] = np.logaddexp(self._log_piece(low, high, piece), rest) - self._log_mass
        return np.minimum(out, 0.0)

    def _log_tail(self, z: Array) -> Array:
        return self._part(z, above=True)

    def _center(self, z: Array) -> Array:
        return np.exp(self._part(z, above=False))

    def _tail_inverse(self, tail: Array) -> Array:
        out = np.full_like(tail, math.inf)
        inside = tail > 0
        wanted = np.log(tail[inside])
        low = np.full_like(wanted, math.log(0.5) + self._log_mass - 1e-9)  # at most half of the mass is below
        high, step = low + 1e-6, 1.0
        while (short := (high < LARGEST_EXPONENT) & (self._log_tail(np.exp(high)) > wanted)).any():
            high[short] = np.minimum(high[short] + step, LARGEST_EXPONENT)
            step *= 1.5
        found = self._log_tail(np.exp(high)) <= wanted
        y = np.full_like(wanted, math.inf)
        y[found] = solve(lambda y: self._log_tail(np.exp(y)), wanted[found], low[found], high[found])
        out[inside] = np.exp(y)
        return out

    def _center_inverse(self, center: Array) -> Array:
        out = np.zeros_like(center)
        inside = center > 0
        wanted = np.log(center[inside])
        low = wanted + self._log_mass - 1e-9
        high = np.full_like(low, math.log(self._tail_inverse(np.array([0.5]))[0]) + 1e-9)
        out[inside] = np.exp(solve(lambda y: self._part(np.exp(y), above=False), wanted, low, high))
        return out

    def _log_moment(self, order: int) -> float:
        # Beyond this, the integrand would have its peak outside the range of floats.
        if self._elasticity(np.exp([LARGEST_LOG]))[0] <= order + 1:
            return math.inf
        moment = float(np.logaddexp.reduce(self._log_pieces(order)))
        return moment - self._log_mass - order * math.log(self.sigma)


@lru_cache(maxsize=512)
def _piece_density(noise: FromPolicyNoise, piece: int, order: int) -> LogConcaveDensity:
    def slope(y: Array) -> Array:
        with np.errstate(over="ignore"):
            return order + 1 - noise._elasticity(np.exp(y))

    with np.errstate(divide="ignore"):
        low, high = np.clip(np.log(noise._edges[piece : piece + 2]), -LARGEST_LOG, LARGEST_LOG + 100).tolist()
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(np.array([middle]))[0] > 0 else (low, middle)
    return LogConcaveDensity(
        rise=lambda y, t: (order + 1) * t - noise._log_rise(y, t, piece),
        slope=slope,
        curvature=np.ones_like,  # at the mode it is at most about 1, and elsewhere the slope decides
        mode=low,
    )


@dataclass(frozen=True)
class PointsNoise(PointsFamily, FromPolicyNoise):
    """Density proportional to exp(−P(|z|)), with P the curve through (size, loss) pairs.

    On a piece, P(z) = loss·(z/size)^exponent, so its integral is an incomplete gamma function of P(z).

    >>> noise = PointsNoise([(10, 0.1), (1000, 2), (1e6, 8)])
    >>> round(noise.isf(0.025)), round(noise.std())
    (1866768, 1768188)
    """

    def _check(self) -> None:
        PointsFamily._check(self)
        FromPolicyNoise._check(self)

    @lazy
    def _unit(self) -> float:
        """The size with a loss of 1 if σ is 1."""
        pieces = power_pieces(self.points)
        reaching = (piece for piece, (_, end) in zip(pieces, self.points, strict=True) if end >= 1)
        size, loss, exponent = next(reaching, pieces[-1])
        log = math.log(size) - math.log(loss) / exponent
        # In units of it, all sizes must be allowed as sizes of points.
        least, most = math.log(self.points[-1][0] / MOST), math.log(self.points[0][0] / LEAST)
        return math.exp(min(max(log, least + 1), most - 1))

    @property
    def _scale(self) -> float:
        """The size with a loss of 1: σ alone says nothing, because the points have a scale, too."""
        return self.sigma * self._unit

    def _standard(self) -> SymmetricNoise:
        # To the last digit the same for every σ, so that a tight curve that was computed for one is found for all.
        return PointsNoise(stretched_points(self.points, 1 / self._unit))

    @property
    def _kinks(self) -> tuple[float, ...]:
        return self.ends

    @lazy
    def _arrays(self) -> tuple[Array, Array]:
        return np.array(self.ends), np.array(self.pieces).T

    def _on_piece(self, z: Array, piece: int) -> Array:
        size, loss, exponent = self.pieces[piece]
        return np.asarray(loss * (z / size) ** exponent)

    def _drop(self, z: Array) -> Array:
        ends, pieces = self._arrays
        size, loss, exponent = pieces[:, np.searchsorted(ends, z)]
        return np.asarray(loss * (z / size) ** exponent)

    @lazy
    def _rises(self) -> Array:
        """The rise of P from one end of a piece to another one, by their numbers, as sums of what rises in between."""
        ends = np.array(self.ends)
        _, pieces = self._arrays
        size, loss, exponent = pieces[:, 1:-1]
        steps = loss * (ends[:-1] / size) ** exponent * np.expm1(exponent * np.log1p(np.diff(ends) / ends[:-1]))
        return np.array([np.concatenate([np.zeros(k + 1), np.cumsum(steps[k:])]) for k in range(ends.size)])

    def _drop_rise(self, z: Array, t: Array) -> Array:
        z, t = np.broadcast_arrays(np.asarray(z, float), np.asarray(t, float))
        ends, _ = self._arrays
        first, last = np.searchsorted(ends, z, "right"), np.searchsorted(ends, z + t, "left")
        same = first >= last
        rise = self._rise_on_piece(z, t, first)
        if same.all():
            return rise
        # Otherwise: up to the end of the first piece, over whole pieces, and from the start of the last piece.
        start, end = ends[np.minimum(first, ends.size - 1)], ends[np.maximum(last, 1) - 1]
        with np.errstate(invalid="ignore"):
            steps = self._rise_on_piece(z, start - z, first) + self._rise_on_piece(end, t - (end - z), last)
        between = self._rises[np.minimum(first, ends.size - 1), np.maximum(last, 1) - 1]
        return np.where(same, rise, steps + between)

    def _rise_on_piece(self, z: Array, t: Array, piece: Any) -> Array:
        """Return the rise of the power of a piece from z to z + t."""
        _, pieces = self._arrays
        size, loss, exponent = pieces[:, piece]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            grown = (z / size) ** exponent * np.expm1(exponent * np.log1p(t / z))
        return np.asarray(loss * np.where(exponent == 1, t / size, grown))

    @lazy
    def _later_bends(self) -> Array:
        """The largest bounds on the second and third derivative on all pieces after each one."""
        ends = np.array([*self.ends, math.inf])
        at_starts = np.array(self._bends_on_piece(ends[:-1], np.arange(1, ends.size)))
        later = np.maximum.accumulate(at_starts[:, ::-1], axis=1)[:, ::-1]
        return np.concatenate([later, np.zeros((2, 1))], axis=1)

    def _bends_on_piece(self, z: Array, piece: Any) -> tuple[Array, Array]:
        _, pieces = self._arrays
        size, loss, exponent = pieces[:, piece]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            # The exponent may be 1 only because it is rounded.
            bend = exponent * (1 - exponent + 1e-14) * loss * (z / size) ** exponent / z / z * (1 + 1e-12)
            further = bend * (2 - exponent + 1e-14) / z
        straight = np.asarray(piece) == 0
        return np.where(straight, 0.0, bend), np.where(straight, 0.0, further)

    def _bends(self, z: Array) -> tuple[Array, Array]:
        piece = np.searchsorted(self._arrays[0], z, "right")
        here, later = self._bends_on_piece(z, piece), self._later_bends[:, piece]
        return np.maximum(here[0], later[0]), np.maximum(here[1], later[1])

    def _log_rise(self, y: Array, t: Array, piece: int) -> Array:
        with np.errstate(over="ignore"):
            return self._on_piece(np.exp(y), piece) * np.expm1(self.pieces[piece][2] * t)

    def _elasticity(self, z: Array) -> Array:
        ends, pieces = self._arrays
        size, loss, exponent = pieces[:, np.searchsorted(ends, z, side="right")]
        return np.asarray(exponent * loss * (z / size) ** exponent)

    def _log_piece(self, low: Array, high: Array, piece: int, order: int = 0) -> Array:
        size, loss, exponent = self.pieces[piece]
        if order:
            return super()._log_piece(low, high, piece, order)
        first = self._on_piece(low, piece)
        if exponent == 1:
            with np.errstate(divide="ignore"):
                return math.log(size / loss) - first + np.log(-np.expm1(-(high - low) * (loss / size)))
        last, shape = self._on_piece(high, piece), 1 / exponent
        below = last < shape  # there the lower tail of the gamma distribution has more digits
        share = np.where(
            below,
            special.gammainc(shape, last) - special.gammainc(shape, first),
            special.gammaincc(shape, first) - special.gammaincc(shape, last),
        )
        whole = np.where(below, special.gammainc(shape, last), special.gammaincc(shape, first))
        good = share > np.maximum(KEPT_SHARE * whole, SMALLEST_SHARE)
        scale = math.log(size) - shape * math.log(loss) + math.log(shape) + math.lgamma(shape)
        out = np.log(np.where(good, share, 1.0)) + scale
        if not good.all():
            out[~good] = super()._log_piece(low[~good], high[~good], piece)
        return out

    def _exact_moments(self, count: int) -> list[Any]:
        """Return moments by the integral of z^n·exp(−P) over each piece, a difference of incomplete gamma functions."""
        from flint import arb

        points = [(arb(size), arb(loss)) for size, loss in self.curve]
        powers = [(there[1] / here[1]).log() / (there[0] / here[0]).log() for here, there in pairwise(points)]
        pieces = [(*points[0], arb(1)), *((*point, power) for point, power in zip(points[:-1], powers, strict=True))]
        ends = [size for size, _ in points[:-1]]

        def integral(n: int) -> Any:
            total = arb(0)
            for k, (size, loss, power) in enumerate(pieces):
                shape = (n + 1) / power
                part = (loss * (ends[k - 1] / size) ** power).gamma_upper(shape) if k else shape.gamma()
                if k < len(ends):
                    part -= (loss * (ends[k] / size) ** power).gamma_upper(shape)
                total += part * (size * loss ** (-1 / power)) ** (n + 1) / power
            return total

        found = [integral(2 * m) for m in range(count)]
        return [one / found[0] for one in found]


@dataclass(frozen=True)
class ProductNoise(FromPolicyNoise):
    """Density proportional to a product of densities, each taken to a whole power: the noise of a sum of policies."""

    factors: tuple[tuple[int, SymmetricNoise], ...]

    @property
    def sigma(self) -> float:  # type: ignore[override]
        """The scale of the first factor."""
        return self.factors[0][1].sigma

    @lazy
    def _scale(self) -> float:
        """The smallest scale of a factor."""
        return min(noise._scale for _, noise in self.factors)

    def _standard(self) -> "ProductNoise":
        scaled = ((count, _stretched(noise, 1 / self._scale)) for count, noise in self.factors)
        return ProductNoise(tuple(scaled))

    @property
    def _kinks(self) -> tuple[float, ...]:
        return tuple(sorted({kink for _, noise in self.factors for kink in noise._kinks}))

    @property
    def _concave_from(self) -> float:
        return max(noise._concave_from for _, noise in self.factors)

    @property
    def _tail_power(self) -> float:
        return sum(count * noise._tail_power for count, noise in self.factors)

    def _drop(self, z: Array) -> Array:
        return np.asarray(sum(count * noise._drop(z) for count, noise in self.factors))

    def _drop_rise(self, z: Array, t: Array) -> Array:
        return np.asarray(sum(count * noise._drop_rise(z, t) for count, noise in self.factors))

    def _bends(self, z: Array) -> tuple[Array, Array]:
        bends = [(count, noise._bends(z)) for count, noise in self.factors]
        second, third = (np.asarray(sum(count * bend[i] for count, bend in bends)) for i in (0, 1))
        return second, third

    def _log_rise(self, y: Array, t: Array, piece: int) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            low, high = np.exp(y + np.minimum(t, 0.0)), np.exp(y) * np.abs(np.expm1(t))
            return np.sign(t) * self._drop_rise(low, high * np.ones_like(low))

    def _elasticity(self, z: Array) -> Array:
        return np.asarray(sum(count * _elasticity(noise, z) for count, noise in self.factors))


def _stretched(noise: Any, factor: float) -> SymmetricNoise:
    """Return the noise times a factor."""
    if isinstance(noise, PointsNoise):
        return PointsNoise(stretched_points(noise.curve, factor))
    stretched: SymmetricNoise = replace(noise, sigma=noise.sigma * factor)
    return stretched


def _elasticity(noise: SymmetricNoise, z: Array) -> Array:
    """Return z·P'(z) for one factor."""
    match noise:
        case GeneralizedGaussianNoise(p=p):
            return p * noise._drop(z)
        case ExponentialPolylogNoise(d=d, sigma=sigma, a=a, p=p):
            far = np.log(z / sigma + a)
            return np.asarray(d * p * far ** (p - 1) * (z / (z + sigma * a)))
        case FromPolicyNoise():
            return noise._elasticity(z)
    raise TypeError(f"noise must be one that a policy makes, got {noise!r}")
