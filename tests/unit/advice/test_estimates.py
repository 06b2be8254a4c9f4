"""Quick estimates against certified bounds and exact quantiles."""

import numpy as np
import pytest

from slowscale.advice.shapes import UnitNoise
from slowscale.noise import (
    ArsinhNormalNoise,
    ExponentialPolylogNoise,
    GaussianNoise,
    GeneralizedGaussianNoise,
)
from slowscale.noise.divergence import tight_loss

NOISES = [
    ArsinhNormalNoise(scale=1, shape=0.2),
    ArsinhNormalNoise(scale=1, shape=1.5),
    ExponentialPolylogNoise(d=0.2),
    ExponentialPolylogNoise(d=4, p=1),
    ExponentialPolylogNoise(d=1.5, sigma=1.0, a=20.0, p=1.2),
    ExponentialPolylogNoise(d=0.05, p=4),
    GeneralizedGaussianNoise(sigma=1, p=0.5),
    GeneralizedGaussianNoise(sigma=1, p=1),
]


@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_losses_are_within_one_per_cent_of_the_certified_ones(noise):
    sizes = np.array([1e-2, 1.0, 30.0, 1e7])
    certified = [tight_loss(noise, size).upper for size in sizes.tolist()]
    assert UnitNoise(noise).losses(sizes) == pytest.approx(certified, rel=0.01)


@pytest.mark.parametrize("noise", [GaussianNoise(sigma=1), *NOISES], ids=repr)
def test_quantiles_and_standard_deviations(noise):
    unit = UnitNoise(noise)
    assert unit.usable
    assert unit.std == pytest.approx(noise.std(), rel=0.01)
    for level in (0.5, 0.95, 0.999):
        assert unit.half_width(level) == pytest.approx(noise.interval(level)[1], rel=0.01)


def test_outside_the_range_of_tight_policies_the_closed_form_counts():
    noise = ExponentialPolylogNoise(d=4, p=1)
    pure = noise._drop(np.array([1e-12, 1e17]))
    assert UnitNoise(noise).losses(np.array([1e-12, 1e17])) == pytest.approx(np.tanh(pure / 2) * pure)


@pytest.mark.parametrize("noise", [ExponentialPolylogNoise(d=2.5, p=1), ExponentialPolylogNoise(d=0.004)], ids=repr)
def test_noise_without_a_standard_deviation_or_too_large_is_not_used(noise):
    assert not UnitNoise(noise).usable
