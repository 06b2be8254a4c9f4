"""The arsinh-normal mechanism: q + s·sinh(τN) with N standard normal. It is not in the paper.

Small records are protected as by Gaussian noise, with a loss that grows with Δ². For large records the loss grows with
ln(Δ)², as under the exponential polylog with p = 2.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from slowscale.core.families import ArsinhNormalFamily
from slowscale.core.parameters import lazy
from slowscale.mechanisms.additive import AdditiveMechanism
from slowscale.noise import ArsinhNormalNoise
from slowscale.policy import ArsinhNormalPolicy, Policy
from slowscale.sampling.samplers import Sampler, SinhNormal


@dataclass(frozen=True)
class ArsinhNormal(ArsinhNormalFamily, AdditiveMechanism):  # type: ignore[override] # sigma is read only
    """q + scale·sinh(shape·N) with N standard normal, 0.1 <= shape <= 6.

    >>> m = ArsinhNormal.calibrate(std=45, shape=1.6)
    >>> round(m.scale, 2), round(m.noise.interval(0.95)[1]), round(m.pure_policy(106), 2)
    (4.93, 57, 5.84)
    """

    kind = "arsinh-normal"
    words = "Arsinh-normal noise is added to the {total}."
    compared: ClassVar[Mapping[str, Mapping[str, Any]]] = {"arsinh-normal 1.6": {"shape": 1.6}}
    _free = ("scale", "shape")
    _closed_form = False
    # The policy tends to ln(2Δ/scale)²/(2·shape²): for large records, the shape can fit where the scale cannot.
    _coarser: ClassVar[Mapping[str, bool]] = {"scale": True, "shape": True}

    @lazy
    def noise(self) -> ArsinhNormalNoise:
        """The distribution of the noise."""
        return ArsinhNormalNoise(scale=self.scale, shape=self.shape)

    @property
    def _sampler(self) -> Sampler:
        return SinhNormal(self.shape)

    @property
    def policy(self) -> Policy:
        """The tight policy: there is no simple closed form."""
        return self.tight_policy

    @property
    def pure_policy(self) -> ArsinhNormalPolicy:
        """The largest rise of −log density over the distance Δ."""
        return ArsinhNormalPolicy(scale=self.scale, shape=self.shape)
