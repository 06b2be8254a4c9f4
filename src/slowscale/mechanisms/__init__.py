"""Mechanisms: how a sum is published, with its policies, errors and intervals, all known before noise is drawn."""

from slowscale.mechanisms.additive import AdditiveMechanism
from slowscale.mechanisms.base import REGISTRY, Mechanism
from slowscale.mechanisms.comparison import Comparison, Crossover, compare, same_error

# The order of the next two imports is that of the registry, in which mechanisms are listed.
from slowscale.mechanisms.families import (
    ArsinhNormal,
    ExponentialPolylog,
    FromPolicy,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    UnitSplitting,
)
from slowscale.mechanisms.transformation import TransformationMechanism
from slowscale.mechanisms.transforms import Arsinh, Log, Root, Transformation

__all__ = [
    "REGISTRY",
    "AdditiveMechanism",
    "Arsinh",
    "ArsinhNormal",
    "Comparison",
    "Crossover",
    "ExponentialPolylog",
    "FromPolicy",
    "Gaussian",
    "GeneralizedGaussian",
    "Laplace",
    "Log",
    "Mechanism",
    "Root",
    "Transformation",
    "TransformationMechanism",
    "UnitSplitting",
    "compare",
    "same_error",
]
