"""A mechanism in one module: all that adding one takes. Two-sided exponential noise by another name."""

from dataclasses import dataclass

from slowscale.core.parameters import Declared, lazy, real
from slowscale.mechanisms import AdditiveMechanism
from slowscale.noise import GeneralizedGaussianNoise
from slowscale.policy import PowerPolicy
from slowscale.sampling.samplers import PowerOfGamma


@dataclass(frozen=True)
class TwoSided(Declared):
    """The parameters of the family."""

    sigma: float = real(above=0, typical=(0.1, 1e3), doc="The scale of the noise.")


@dataclass(frozen=True)
class Toy(TwoSided, AdditiveMechanism):
    """q + Z, with Z of density proportional to exp(−|z|/σ)."""

    kind = "toy"
    words = "Toy noise is added to the sum."
    _free = ("sigma",)

    @lazy
    def noise(self):
        """The distribution of the noise."""
        return GeneralizedGaussianNoise(sigma=self.sigma, p=1.0)

    @property
    def _sampler(self):
        return PowerOfGamma(1)

    @property
    def pure_policy(self):
        """Δ/σ."""
        return PowerPolicy(sigma=self.sigma, p=1.0)
