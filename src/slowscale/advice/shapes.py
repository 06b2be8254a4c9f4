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

from slowscale.advice.estimates import UnitNoise
from slowscale.core.errors import ParameterError
from slowscale.mechanisms import ArsinhNormal, ExponentialPolylog, Gaussian, GeneralizedGaussian
from slowscale.mechanisms.additive import AdditiveMechanism

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
    """All shapes of a family: what is varied, on which grids, each of them geometric."""

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
