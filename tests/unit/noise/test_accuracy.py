"""Every distribution against rigorous Arb integrals: relative accuracy 1e-10 everywhere, tails to 1e-300."""

import math

import numpy as np
import pytest
from helpers import arb
from helpers.strategies import instances, log_uniform, polylogs
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from slowscale.noise import ExponentialPolylogNoise, GaussianNoise, GeneralizedGaussianNoise

ACCURACY = 1e-10
# z in units of the scale: from the center to where the lightest tails have gone.
RATIOS = log_uniform(1e-8, 1e12)


@settings(max_examples=150)
@given(noise=polylogs(ExponentialPolylogNoise), ratio=RATIOS)
@example(noise=ExponentialPolylogNoise(d=0.02, p=6), ratio=1e4)
@example(noise=ExponentialPolylogNoise(d=50, p=6), ratio=1e-3)
@example(noise=ExponentialPolylogNoise(d=0.02, p=1.3), ratio=1e12)
@example(noise=ExponentialPolylogNoise(d=0.3, p=1.15), ratio=1e-3)
def test_polylog(noise, ratio):
    z = noise.sigma * ratio
    check_tail(noise, z, arb.polylog_tail(noise, z))
    log_density = noise.logpdf(z)
    assert log_density == pytest.approx(float(arb.polylog_log_density(noise, z).mid()), rel=ACCURACY, abs=ACCURACY)


@settings(max_examples=60)
@given(noise=polylogs(ExponentialPolylogNoise), order=st.sampled_from([1, 2, 4, 6]))
@example(noise=ExponentialPolylogNoise(d=0.113), order=4)
@example(noise=ExponentialPolylogNoise(d=1000.0), order=2)
def test_polylog_moments(noise, order):
    value = noise.absolute_moment(order)
    assume(noise.p > 1 and value < math.inf)
    assert arb.relative_error(value, arb.polylog_absolute_moment(noise, order)) < ACCURACY


def test_moments_beyond_floats_are_infinite_and_scales_count():
    assert ExponentialPolylogNoise(d=0.02, p=1.4).var() == math.inf
    assert ExponentialPolylogNoise(d=0.001).std() == math.inf
    small = ExponentialPolylogNoise(d=0.001, sigma=1e-250)
    assert arb.relative_error(small.std(), arb.polylog_absolute_moment(small, 2).sqrt()) < ACCURACY


@settings(max_examples=150)
@given(noise=instances(GeneralizedGaussianNoise), ratio=RATIOS)
@example(noise=GeneralizedGaussianNoise(sigma=1, p=0.001), ratio=1e12)
def test_generalized_gaussian(noise, ratio):
    check_tail(noise, noise.sigma * ratio, arb.power_tail(noise, noise.sigma * ratio))


@settings(max_examples=60)
@given(noise=instances(GaussianNoise), ratio=log_uniform(1e-8, 100))
def test_gaussian(noise, ratio):
    check_tail(noise, noise.sigma * ratio, arb.normal_tail(noise, noise.sigma * ratio))


def check_tail(noise, z, exact):
    log_tail = float(exact.log().mid())
    assert noise.logsf(z) == pytest.approx(log_tail, rel=ACCURACY, abs=ACCURACY)
    assert noise.logcdf(-z) == noise.logsf(z)
    center = 1 - 2 * exact
    if 1e-14 < float(center.mid()) < 0.4:  # the reference has 27 digits, of which the subtraction leaves enough
        assert noise.cdf(z) - 0.5 == pytest.approx(float(center.mid()) / 2, rel=ACCURACY, abs=1e-15)
        # the quantile near the median: P(0 < Z < z) is given to full accuracy only through q − 1/2
        near = noise._center_inverse(np.array([float(center.mid())]))[0]
        assert near == pytest.approx(z, rel=ACCURACY)
    if arb.is_float(exact):
        tail = float(exact.mid())
        assert arb.relative_error(noise.sf(z), exact) < ACCURACY
        assert noise.cdf(-z) == noise.sf(z)
        if tail < 0.25:
            # how much the quantile moves when the probability does by one rounding
            slack = 1e-15 * tail / noise.pdf(z) / z
            assert noise.isf(tail) == pytest.approx(z, rel=ACCURACY + slack)
