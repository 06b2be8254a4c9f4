"""Samplers: standard variates as functions of independent uniform reals, written in the operations of balls.

An attempt turns uniforms into a candidate and into margins. The candidate is accepted if all margins are positive.
Candidate and margins are numbers of the same kind as the uniforms (arrays of `Ball`, or `arb`). The noise is the
variate of an accepted candidate times the scale and, if the sampler is `signed`, times a random sign.

Every noise of the paper is a monotone function of a variable with a log-concave density exp(h). `RejectionSampler`
draws it by rejection under a flat top and two exponential tails. Where a closed form exists it is used instead.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from slowscale.core.errors import SlowscaleError
from slowscale.core.parameters import lazy
from slowscale.sampling.balls import at_least, choose, either, lift_ball

Number = Any  # a Ball or an arb
Lift = Callable[[Any], Number]  # turns an exact number (int, float, Fraction) into a Number


class Sampler(ABC):
    """A standard variate, drawn from `uniforms` uniform reals per attempt."""

    uniforms: int
    signed: bool = True
    acceptance: float = 1.0

    @abstractmethod
    def attempt(self, uniforms: list[Number], words: list[Any], lift: Lift) -> tuple[Number, list[Number]]:
        """Return a candidate and its margins; `words` are the first 64 bits of each uniform."""

    def variate(self, candidate: Number, lift: Lift) -> Number:
        """Return the variate of an accepted candidate."""
        return candidate


@dataclass(frozen=True)
class Normal(Sampler):
    """A standard normal variable, by the Box-Muller transform (the cosine only)."""

    uniforms = 2
    signed = False

    def attempt(self, uniforms: list[Number], words: list[Any], lift: Lift) -> tuple[Number, list[Number]]:
        """Return √(−2 ln u)·cos(2πv)."""
        u, v = uniforms
        return (u.log() * -2.0).sqrt() * (v * 2.0).cos_pi(), []


@dataclass(frozen=True)
class SinhNormal(Sampler):
    """sinh(shape·N) for a standard normal N: the arsinh-normal."""

    shape: float
    uniforms = 2
    signed = False

    def attempt(self, uniforms: list[Number], words: list[Any], lift: Lift) -> tuple[Number, list[Number]]:
        """Return sinh(shape·√(−2 ln u)·cos(2πv))."""
        normal, _ = Normal().attempt(uniforms, words, lift)
        return (normal * self.shape).sinh(), []


@dataclass(frozen=True)
class PowerOfGamma(Sampler):
    """G^shape for G ~ Gamma(shape) with a small integer shape: the generalized Gaussian with p = 1/shape."""

    shape: int

    @property
    def uniforms(self) -> int:  # type: ignore[override]
        """One per exponential variable in G."""
        return self.shape

    def attempt(self, uniforms: list[Number], words: list[Any], lift: Lift) -> tuple[Number, list[Number]]:
        """Return (−ln of the product of the uniforms)^shape."""
        product = uniforms[0]
        for u in uniforms[1:]:
            product = product * u
        return (-product.log()) ** self.shape, []


@dataclass(frozen=True)
class PowerLaw(Sampler):
    """a·(e^y − 1) for y exponential with rate d − 1: the exponential polylog with p = 1."""

    d: float
    a: float
    uniforms = 1

    def attempt(self, uniforms: list[Number], words: list[Any], lift: Lift) -> tuple[Number, list[Number]]:
        """Return a·(u^(−1/(d−1)) − 1)."""
        return (uniforms[0].log() / (1.0 - lift(self.d))).expm1() * self.a, []


@dataclass(frozen=True)
class Scaled(Sampler):
    """The variate of another sampler, times an exact factor."""

    inner: Sampler
    factor: Fraction

    @property
    def uniforms(self) -> int:  # type: ignore[override]
        """As many as the other sampler needs."""
        return self.inner.uniforms

    @property
    def signed(self) -> bool:  # type: ignore[override]
        """Whether the other sampler is."""
        return self.inner.signed

    @property
    def acceptance(self) -> float:  # type: ignore[override]
        """The approximate share of candidates that are accepted."""
        return self.inner.acceptance

    def attempt(self, uniforms: list[Number], words: list[Any], lift: Lift) -> tuple[Number, list[Number]]:
        """Return a candidate of the other sampler, and its margins."""
        return self.inner.attempt(uniforms, words, lift)

    def variate(self, candidate: Number, lift: Lift) -> Number:
        """Return the variate of the other sampler, times the factor."""
        return self.inner.variate(candidate, lift) * lift(self.factor)


@dataclass(frozen=True)
class Envelope:
    """A flat top with exponential tails that lies above a log-concave density exp(h(x) − h(mode)) on (0, ∞).

    The left tail ends at `left`, the right tail begins at `right`, and the flat top lies between them. The proposal
    picks one of these three pieces with probabilities that are multiples of 2^-53, so that the first 64 bits of a
    uniform decide the choice exactly. The remainder of that uniform places the candidate within the piece. `height` is
    the log of a constant that raises the proposal density above exp(h), by at least SLACK everywhere.
    """

    mode: float
    left: float
    left_rate: float
    right: float
    right_rate: float
    probabilities: tuple[float, float, float]
    height: float
    acceptance: float

    SLACK = 1e-7


def build_envelope(
    drop: Callable[[float], float], slope: Callable[[float], float], mode: float, mass: float
) -> Envelope:
    """Return an envelope of the density exp(−drop) on (0, ∞), which falls on both sides of its mode (0 or more).

    `mass` is the integral of the density. Only the acceptance rate depends on it.

    The tails are tangents of −drop at the points where it is about −1, made slightly flatter. They therefore stay above
    −drop at any distance, although they are computed in floats; the slack covers the rounding near the mode.
    """
    x = _where_dropped(drop, mode, math.inf)
    right_rate = -slope(x) * (1 - 1e-9)
    right = max(x - drop(x) / right_rate, 0.0)
    left, left_rate = 0.0, 0.0
    if drop(0.0) > 1:
        x = _where_dropped(drop, mode, -mode)
        rate = slope(x) * (1 - 1e-9)
        start = x + drop(x) / rate
        # A left tail with negligible mass is left out: the flat top then reaches down to 0.
        if 1 / rate > 2.0**-30 * (right + 1 / right_rate):
            left, left_rate, right = start, rate, max(right, start)
    masses = (1 / left_rate if left_rate else 0.0, right - left, 1 / right_rate)
    probabilities = _shares(masses)
    height = max(math.log(mass / p) for mass, p in zip(masses, probabilities, strict=True) if mass > 0)
    height += 2 * Envelope.SLACK
    return Envelope(mode, left, left_rate, right, right_rate, probabilities, height, mass / sum(masses))


def _shares(masses: tuple[float, float, float]) -> tuple[float, float, float]:
    """Return probabilities proportional to the masses, as multiples of 2^-53: 0 for no mass, otherwise more than 0."""
    parts = [max(1, round(mass / sum(masses) * 2**53)) if mass > 0 else 0 for mass in masses]
    parts[parts.index(max(parts))] += 2**53 - sum(parts)
    if not all(part > 0 or mass == 0 for part, mass in zip(parts, masses, strict=True)):
        raise SlowscaleError(f"no envelope can be built from pieces with the masses {masses}", code="internal")
    first, second, third = (part / 2**53 for part in parts)
    return first, second, third


def _where_dropped(drop: Callable[[float], float], mode: float, room: float) -> float:
    """Return a point on one side of the mode, at most |room| away, at which the log-density has dropped by about 1."""
    sign, room = math.copysign(1.0, room), abs(room)
    near, far = 0.0, min(1e-9 * max(1.0, mode), room)
    while far < room and drop(mode + sign * far) < 1:
        near, far = far, min(2 * far, room)
    for _ in range(60):
        middle = (near + far) / 2
        near, far = (middle, far) if drop(mode + sign * middle) < 1 else (near, middle)
    return mode + sign * near


class RejectionSampler(Sampler, ABC):
    """A variable x on (0, ∞) with a log-concave density exp(h), drawn by rejection under an envelope of the density."""

    uniforms = 2
    envelope: Envelope

    @property
    def acceptance(self) -> float:  # type: ignore[override]
        """The approximate share of candidates that are accepted."""
        return self.envelope.acceptance

    @abstractmethod
    def _log_density(self, x: Number, lift: Lift) -> Number:
        """h(x)."""

    def _constants(self, lift: Lift) -> tuple[list[Number], list[Number], list[Number]]:
        """Return for each piece: 1/probability, the length scale, and the log of the highest point of the envelope."""
        e = self.envelope
        inverses = [lift(1.0) / lift(p) if p else lift(1.0) for p in e.probabilities]
        steps = [
            lift(1.0) / lift(e.left_rate) if e.left_rate else lift(0.0),
            lift(e.right) - lift(e.left),
            -(lift(1.0) / lift(e.right_rate)),
        ]
        top = self._log_density(lift(e.mode), lift) if e.mode else lift(0.0)
        tops = [
            top + lift(e.height) - (inverse * step * sign).log() if p else lift(0.0)
            for p, inverse, step, sign in zip(e.probabilities, inverses, steps, (1.0, 1.0, -1.0), strict=True)
        ]
        return inverses, steps, tops

    @lazy
    def _ball_constants(self) -> tuple[list[Number], list[Number], list[Number]]:
        with np.errstate(all="ignore"):
            return self._constants(lift_ball)

    def attempt(self, uniforms: list[Number], words: list[Any], lift: Lift) -> tuple[Number, list[Number]]:
        """Return a candidate. It must lie in (0, ∞), and its second uniform must place it below exp(h)."""
        e, (u, v) = self.envelope, uniforms
        inverses, steps, tops = self._ball_constants if lift is lift_ball else self._constants(lift)
        first, flat, _ = e.probabilities
        piece = at_least(words[0], first) + at_least(words[0], first + flat)
        on_top = piece == 1
        within = (u - choose(piece, [0.0, first, first + flat])) * choose(piece, inverses)
        fall = within.log()  # the log of how far a tail has fallen at the candidate
        x = either(on_top, within, fall) * choose(piece, steps) + choose(piece, [e.left, e.left, e.right])
        envelope = either(on_top, 0.0, fall) + choose(piece, tops)
        return x, [x, self._log_density(x, lift) - envelope - v.log()]


@dataclass(frozen=True)
class TruncatedNormal(Sampler):
    """The exponential polylog with p = 2: a·(e^y − 1), where y + ln a is normal with mean and variance 1/(2d), y > 0.

    It is meant for parameters with which the truncation at y = 0 keeps most of the normal distribution.
    """

    d: float
    a: float
    acceptance: float
    uniforms = 2

    def attempt(self, uniforms: list[Number], words: list[Any], lift: Lift) -> tuple[Number, list[Number]]:
        """Return y, which must be positive."""
        normal, _ = Normal().attempt(uniforms, words, lift)
        variance = lift(1.0) / (lift(self.d) * 2.0)
        y = normal * variance.sqrt() + (variance - lift(self.a).log())
        return y, [y]

    def variate(self, candidate: Number, lift: Lift) -> Number:
        """a·(e^y − 1)."""
        return candidate.expm1() * self.a


@dataclass(frozen=True)
class PowerOfAnyGamma(RejectionSampler):
    """G^(1/p) for G ~ Gamma(1/p): the generalized Gaussian with any 0 < p < 1."""

    p: float
    envelope: Envelope

    def _log_density(self, x: Number, lift: Lift) -> Number:
        return (lift(1.0) / lift(self.p) - 1.0) * x.log() - x

    def variate(self, candidate: Number, lift: Lift) -> Number:
        """G^(1/p)."""
        return (candidate.log() / lift(self.p)).exp()


def exact_polylog_rise(y: Number, a: float, p: float, lift: Lift) -> Number:
    """Return (y + ln a)^p − (ln a)^p."""
    start = lift(a).log()
    if p == 1:
        return y
    if p == 2:
        return y * (y + start * 2.0)
    if p == 3:
        return y * (y * (y + start * 3.0) + start * start * 3.0)
    return ((y / start).log1p() * p).expm1() * (start.log() * p).exp()


@dataclass(frozen=True)
class Polylog(RejectionSampler):
    """a·(e^y − 1) with density exp(y − d·[(y + ln a)^p − (ln a)^p]) of y: the exponential polylog with any p > 1."""

    d: float
    a: float
    p: float
    envelope: Envelope

    def _log_density(self, x: Number, lift: Lift) -> Number:
        return x - exact_polylog_rise(x, self.a, self.p, lift) * self.d

    def variate(self, candidate: Number, lift: Lift) -> Number:
        """a·(e^y − 1)."""
        return candidate.expm1() * self.a
