"""Band policies against a search over all values of the band, and their running maximum."""

import math

import numpy as np
import pytest
from helpers.errors import refused

import slowscale as ss
from slowscale.core.errors import ParameterError, ParameterTypeError
from slowscale.policy import ConstantPolicy, RankPolicy, SumPolicy, TransformationPolicy
from slowscale.policy.bounded import BandPolicy, BoundedPolicy

MECHANISMS = [
    ss.Gaussian(sigma=100),
    ss.Laplace(sigma=50),
    ss.ExponentialPolylog(d=5.9, sigma=4062, p=1),
    ss.ArsinhNormal(scale=100, shape=1.06),
    ss.UnitSplitting(threshold=100, sigma=50),
    ss.Root(k=4, sigma=0.5),
    ss.Root(k=2.5, sigma=0.5, a=30, noise="laplace"),
    ss.Log(sigma=0.3, a=1000),
    ss.Log(sigma=0.05, a=1000, noise="laplace"),
    ss.Arsinh(s=100, sigma=0.2, noise="laplace"),
]


def saturating(x):
    return x / (x + 100)


@pytest.mark.parametrize("times", [1.001, 1.1, 3.0])
@pytest.mark.parametrize("m", MECHANISMS, ids=str)
def test_a_band_is_the_largest_loss_to_any_of_its_values(m, times):
    band = m.band_policy(times=times)
    for r in (0.0, 1e-3, 7.0, 1e4, 1e12):
        others = r * np.geomspace(1 / times, times, 401)
        losses = m.bounded_policy()(np.full(401, r), others)
        assert band(r) == pytest.approx(losses.max(), rel=1e-6, abs=1e-15)
        assert band(r) >= losses.max() * (1 - 1e-6)


@pytest.mark.parametrize("m", MECHANISMS, ids=str)
def test_registered_policies_have_bands_that_rise(m):
    """Caps rely on it: `_band_rises`."""
    sizes = np.geomspace(1e-6, 1e12, 2001)
    losses = m.band_policy(times=1.3)(sizes)
    assert (np.diff(losses) >= -1e-9 * losses[1:]).all()
    assert m.tight_policy._band_rises


def test_the_running_maximum_bounds_all_smaller_records():
    """For f(x) = x/(x + 100), medium values are the easiest to tell apart: the loss itself falls for large ones."""
    band = BandPolicy(TransformationPolicy(saturating, sigma=0.1), 1.5)
    sizes = np.geomspace(1e-3, 1e9, 3001)
    losses, rising = band(sizes), band._rising_loss(sizes)
    assert losses.argmax() not in (0, sizes.size - 1)
    assert losses[-1] < 1e-6 * losses.max()
    most = np.maximum.accumulate(losses)
    assert (rising >= most).all()
    assert (rising <= 1.2 * most).all()
    assert (np.diff(rising) >= 0).all()
    assert band._rising_loss(np.zeros(1)) == [0.0]


def test_a_band_cap_is_proven_at_the_running_maximum():
    band = BandPolicy(TransformationPolicy(saturating, sigma=0.1), 1.5)
    most = float(band(np.geomspace(1e-3, 1e9, 3001)).max())
    from slowscale.accounting.caps import Total, check

    check("x", Total.zero() + band, ConstantPolicy(1.2 * most))
    with pytest.raises(ss.CapError):
        check("x", Total.zero() + band, ConstantPolicy(0.99 * most))


def test_counts_quantiles_and_moves():
    assert BandPolicy(ConstantPolicy(0.5), 1.1)(3) == 0  # a count does not change
    assert BandPolicy(RankPolicy(0.5), 1.1)(3) == 2  # quantiles: one record is removed, and one is added
    assert BandPolicy(ConstantPolicy(0.5), 1.1, moves=True)(3) == 1  # it leaves one cell and enters another
    gaussian = ss.Gaussian(sigma=10).policy
    assert BandPolicy(gaussian, 1.5, moves=True)(100) == pytest.approx(2 * gaussian(150))
    both = BandPolicy(SumPolicy((gaussian, ConstantPolicy(0.5))), 1.1)
    assert both(100) >= gaussian(10)


@pytest.mark.parametrize("m", [ss.Gaussian(sigma=1), ss.Log(sigma=0.05, a=3, noise="laplace")], ids=str)
def test_truncation_to_grains_is_covered(m):
    """Values are truncated to whole grains, so that two of them may differ by a grain more than the values."""
    generator, grain, times = np.random.default_rng(5), 0.25, 1.1
    r = generator.uniform(0, 30, 20_000)
    other = r * generator.uniform(1 / times, times, r.size)
    n, m_ = (np.floor(v / grain) * grain for v in (r, other))
    losses = m.bounded_policy()(n, m_)
    covered = BandPolicy(m.tight_policy, times, grain=grain)(r)
    assert (losses <= covered * (1 + 1e-9)).all()
    assert (losses > m.band_policy(times=times)(r) * (1 + 1e-9)).any()  # without the grain it would not hold


def test_a_band_policy_is_written_and_read():
    for m in MECHANISMS:
        band = BandPolicy(m.tight_policy, 1.1, grain=0.5)
        again = ss.Policy.from_dict(band.to_dict())
        assert again == band
        assert again(100.0) == band(100.0)
    assert str(ss.Gaussian(sigma=2).band_policy(times=1.5)) == "(0.5·Δ)² / (2·2²)"
    assert str(ss.Log(sigma=2).band_policy(times=1.1, loose=True)) == "ln(1.1)² / (2·2²)"
    assert "max" in str(BandPolicy(TransformationPolicy(saturating, sigma=0.1), 1.5))


def test_shapes_of_bands_add_up():
    band = BandPolicy(2 * ss.Root(k=4, sigma=2).policy + ss.Gaussian(sigma=3).policy, 1.1)
    total = sum(times * shape(1e4) for shape, times in band.shapes().items())
    assert total == pytest.approx(band(1e4))


@pytest.mark.parametrize(
    ("call", "subject", "code"),
    [
        (lambda: ss.Gaussian(sigma=1).band_policy(times=1), "times", "value"),
        (lambda: ss.Gaussian(sigma=1).band_policy(times=math.inf), "times", "value"),
        (lambda: ss.Gaussian(sigma=1).band_policy(times="2"), "times", "type"),
        (lambda: ss.Gaussian(sigma=1).band_policy(times=1.1, pure=True), "pure", "unsupported"),
        (lambda: BandPolicy(ss.Gaussian(sigma=1).band_policy(times=2), 2), "policy", "type"),
        (lambda: BandPolicy("P", 2), "policy", "type"),
    ],
)
def test_wrong_bands_are_refused(call, subject, code):
    with refused((ParameterError, ParameterTypeError), subject, code=code):
        call()


def test_bands_of_two_values_are_those_of_bounded_neighbours():
    m = ss.Log(sigma=0.3, a=10)
    assert m.band_policy(times=1.1)(1000) == pytest.approx(BoundedPolicy(m.policy)(1000, 1100))
