"""Noise distributions of the additive mechanisms, with the method names of scipy.stats.

They provide densities, tails, quantiles and moments. Sampling is done elsewhere, in `slowscale.sampling`.
"""

from slowscale.noise.arsinh_normal import ArsinhNormalNoise
from slowscale.noise.exponential_polylog import ExponentialPolylogNoise
from slowscale.noise.from_policy import FromPolicyNoise, PointsNoise, ProductNoise
from slowscale.noise.gaussian import GaussianNoise, GeneralizedGaussianNoise
from slowscale.noise.symmetric import SymmetricNoise

__all__ = [
    "ArsinhNormalNoise",
    "ExponentialPolylogNoise",
    "FromPolicyNoise",
    "GaussianNoise",
    "GeneralizedGaussianNoise",
    "PointsNoise",
    "ProductNoise",
    "SymmetricNoise",
]
