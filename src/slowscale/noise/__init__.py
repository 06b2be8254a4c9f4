"""Noise distributions of the additive mechanisms, in the words of scipy.stats.

They can be asked everything (density, tails, quantiles, moments) but draw nothing.
"""

from slowscale.noise.exponential_polylog import ExponentialPolylogNoise
from slowscale.noise.gaussian import GaussianNoise
from slowscale.noise.generalized_gaussian import GeneralizedGaussianNoise
from slowscale.noise.symmetric import SymmetricNoise

__all__ = ["ExponentialPolylogNoise", "GaussianNoise", "GeneralizedGaussianNoise", "SymmetricNoise"]
