"""Drawing: the only place where noise is added to exact sums.

The result is the ideal output of a mechanism, correctly rounded to a public grid of units. Additive noise and median
estimates are rounded to the nearest grid point; mean estimates are rounded up or down at random, which adds no bias.
The exact sum enters the formula before rounding. Mechanisms pass samplers and formulas, so this module does not depend
on any particular mechanism.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from slowscale.core.errors import ParameterError
from slowscale.core.parameters import lazy
from slowscale.mechanisms.exact_sums import Sums
from slowscale.mechanisms.grid import add
from slowscale.sampling import Bits, BitSource, are_secret
from slowscale.sampling.exact import Integers, Task, draw
from slowscale.sampling.samplers import Lift, Normal, Number, Sampler

# The grid step of the noisy transformed value, as an approximate share of the standard deviation of its noise.
FINENESS = 2.0**-16
NORMAL = Normal()
Formula = Callable[[Number, Lift], Number]


@dataclass(frozen=True)
class AdditiveTask(Task):
    """⌊(q + σ·X)/unit + ½⌋, less the whole units of q, for a variate X of the sampler."""

    outputs = 1
    extra_uniforms = 0  # it rounds to nearest

    sampler: Sampler
    sigma: float
    sums: Sums

    def finish(self, variate: Number, extra_uniforms: list[Number], rows: Any, lift: Lift) -> list[Number]:
        """Return the numbers that, rounded down, are the results."""
        shifted = 0.5 if self.sums.rest is None else self.sums.rest_of(rows, lift) + 0.5
        return [variate * lift(self._scale) + shifted]

    @lazy
    def _scale(self) -> Fraction:
        return Fraction(self.sigma) / self.sums.unit


@dataclass(frozen=True)
class TransformationTask(Task):
    """The estimate and the noisy transformed value, each on its own grid.

    A mean estimate is rounded at random by one extra uniform.
    """

    outputs = 2

    sampler: Sampler
    transform: Formula
    estimate: Formula
    sigma: float
    at_random: bool
    sums: Sums
    step: float

    @property
    def extra_uniforms(self) -> int:  # type: ignore[override]
        """One uniform to round at random; none to round to nearest."""
        return int(self.at_random)

    def finish(self, variate: Number, extra_uniforms: list[Number], rows: Any, lift: Lift) -> list[Number]:
        """Return the numbers that, rounded down, are the results."""
        transformed = self.transform(self.sums.value_of(rows, lift), lift) + variate * self.sigma
        estimate = self.estimate(transformed, lift) * lift(1 / self.sums.unit)
        return [
            estimate + (extra_uniforms[0] if extra_uniforms else 0.5),
            transformed * lift(1 / Fraction(self.step)) + 0.5,
        ]


def draw_additive(sampler: Sampler, sigma: float, sums: Sums, bits: BitSource | Bits | None) -> tuple[Integers, bool]:
    """Return the noisy sums in whole units, rounded to nearest, and whether the bits are secret."""
    bits = Bits.of(bits)
    (noise,) = draw(AdditiveTask(sampler, sigma, sums), sums.whole.size, bits)
    return add(sums.whole, noise), are_secret(bits)


def draw_transformed(
    sampler: Sampler,
    transform: Formula,
    estimate: Formula,
    sigma: float,
    at_random: bool,
    sums: Sums,
    bits: BitSource | Bits | None,
) -> tuple[Integers, Integers, bool]:
    """Return the estimates in whole units, the transformed values in grid steps, and whether the bits are secret."""
    bits = Bits.of(bits)
    step = fine_step(sigma)
    if step < 1e-290:
        raise ParameterError("sigma", allowed="larger than 1e-280 for a release", given=sigma)
    task = TransformationTask(sampler, transform, estimate, sigma, at_random, sums, step)
    units, fine = draw(task, sums.whole.size, bits)
    return units, fine, are_secret(bits)


def fine_step(sigma: float) -> float:
    """Return the grid step of the published noisy transformed value, a power of two."""
    return float(2.0 ** (math.frexp(sigma)[1] - 1) * FINENESS)
