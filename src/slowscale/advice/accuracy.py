"""What a curator wants of the error: a measure of it, its largest value, and how large rare errors may be."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from slowscale.advice.estimates import UnitNoise
from slowscale.advice.shapes import Shape
from slowscale.core.errors import ParameterError
from slowscale.core.numbers import format_number
from slowscale.mechanisms import Log, Mechanism, Root
from slowscale.mechanisms.additive import AdditiveMechanism

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

    def words(self, value: float) -> str:
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
