"""Brute force for the advisor: a fine grid of shapes that is independent of the advisor's own search."""

from itertools import product

import numpy as np

from slowscale.advice.shapes import Accuracy, Shape
from slowscale.mechanisms import ArsinhNormal, ExponentialPolylog, Gaussian, GeneralizedGaussian


def fine_grid(step):
    """Yield shapes of every family, on grids with this ratio of neighbouring parameters."""

    def axis(low, high):
        return np.geomspace(low, high, 2 + int(np.log(high / low) / np.log(step))).tolist()

    yield Shape(Gaussian)
    yield from (Shape(GeneralizedGaussian, (("p", p),)) for p in axis(0.2, 1))
    yield from (Shape(ArsinhNormal, (("shape", shape),)) for shape in axis(0.1, 6))
    yield from (Shape(ExponentialPolylog, (("d", 1 + d), ("a", None), ("p", 1.0))) for d in axis(1, 60))
    for excess, factor, d in product(np.geomspace(0.1, 5, 7), [1.0, 3.0, 30.0, 1e3, 1e5], axis(0.01, 60)):
        p = 1 + excess
        yield Shape(ExponentialPolylog, (("d", d), ("a", float(factor * np.exp(p - 1) * (1 + 1e-12))), ("p", float(p))))


def advantage(shapes, accuracy: Accuracy, error, sizes, losses):
    """Return the shape that comes nearest to losing less at every size, and the least factor by which it does."""
    best, factor = None, 0.0
    for shape in shapes:
        unit = shape.unit
        if unit is None or not accuracy.allows(unit):
            continue
        found = unit.losses(np.array(sizes) * (accuracy.of_unit(unit)[0] / error))
        least = float((np.array(losses) / found).min())
        if least > factor:
            best, factor = shape, least
    return best, factor


def random_problem(rng):
    """Return record sizes, a level and a half-width."""
    count = int(rng.integers(2, 7))
    sizes = np.sort(10 ** rng.uniform(0, 11, count))
    level = float(rng.choice([0.5, 0.9, 0.95, 0.99]))
    half = float(10 ** rng.uniform(np.log10(sizes[0]), np.log10(sizes[-1])))
    return {f"size {i}": float(x) for i, x in enumerate(sizes)}, level, half
