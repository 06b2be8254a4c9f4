"""Mechanisms: how a sum is published, with its policies, errors and intervals, all known before noise is drawn."""

from slowscale.mechanisms.additive import (
    AdditiveMechanism,
    ExponentialPolylog,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    UnitSplitting,
)
from slowscale.mechanisms.base import REGISTRY, Mechanism
from slowscale.mechanisms.comparison import Comparison, compare, same_error
from slowscale.mechanisms.crossovers import Crossover
from slowscale.mechanisms.transformation import TransformationMechanism

# isort: split
# The import order is the order of the registry, in which mechanisms are listed.
from slowscale.mechanisms.arsinh_normal import ArsinhNormal  # noqa: I001
from slowscale.mechanisms.from_policy import FromPolicy
from slowscale.mechanisms.roots import Root
from slowscale.mechanisms.logs import Log
from slowscale.mechanisms.arsinh import Arsinh
from slowscale.mechanisms.user_given import Transformation

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
