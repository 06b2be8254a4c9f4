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
from slowscale.mechanisms.transformation import Log, Root, Transformation, TransformationMechanism

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
