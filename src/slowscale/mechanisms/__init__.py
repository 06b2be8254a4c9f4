"""Mechanisms: what is done to a sum, and everything that can be asked about it before any noise is drawn."""

from slowscale.mechanisms.additive import (
    AdditiveMechanism,
    ExponentialPolylog,
    Gaussian,
    GeneralizedGaussian,
    UnitSplitting,
)
from slowscale.mechanisms.base import REGISTRY, Mechanism
from slowscale.mechanisms.comparison import Comparison, Crossover, compare, same_error
from slowscale.mechanisms.transformation import TransformationMechanism

# isort: split
# In the order of the registry, which lists are shown in.
from slowscale.mechanisms.roots import Root  # noqa: I001
from slowscale.mechanisms.logs import Log
from slowscale.mechanisms.user_given import Transformation

__all__ = [
    "REGISTRY",
    "AdditiveMechanism",
    "Comparison",
    "Crossover",
    "ExponentialPolylog",
    "Gaussian",
    "GeneralizedGaussian",
    "Log",
    "Mechanism",
    "Root",
    "Transformation",
    "TransformationMechanism",
    "UnitSplitting",
    "compare",
    "same_error",
]
