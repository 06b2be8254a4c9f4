"""Laws that tie the methods of a distribution together, by plain quadrature of its own density."""

import math
import warnings
from itertools import pairwise

import numpy as np
import pytest
from helpers.errors import refused
from helpers.strategies import noises
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import integrate

from slowscale.core.errors import ParameterError
from slowscale.noise import ExponentialPolylogNoise, GaussianNoise, GeneralizedGaussianNoise

probabilities = st.floats(1e-6, 0.49)


def integral(noise, low, high, weight=lambda z: 1.0):
    """∫ weight(z)·pdf(z) dz for 0 < low < high, on a log scale, one piece a few e-folds, and split at kinks."""
    edges = np.linspace(math.log(low), math.log(high), 2 + int(math.log(high / low) / 3))
    edges = np.sort(np.append(edges, [math.log(kink) for kink in noise._kinks if low < kink < high]))
    pieces = pairwise(edges)
    piece = lambda t: weight(math.exp(t)) * noise.pdf(math.exp(t)) * math.exp(t)  # noqa: E731
    return sum(integrate.quad(piece, a, b, epsabs=0, epsrel=1e-11, limit=200)[0] for a, b in pieces)


@settings(max_examples=60)
@given(noise=noises, one=probabilities, two=probabilities)
def test_cdf_is_the_integrated_pdf(noise, one, two):
    low, high = sorted([noise.isf(one), noise.isf(two)])
    assume(0 < low < high * 0.999 and high < 1e300)
    assert noise.cdf(high) - noise.cdf(low) == pytest.approx(integral(noise, low, high), rel=1e-8, abs=1e-13)


@settings(max_examples=60)
@given(noise=noises)
def test_variance_against_quadrature(noise):
    assume(noise.var() < 1e250)
    # between these ends lies all of the second moment that can be seen
    low, high = noise.std() * 1e-12, noise.std()
    while noise.logpdf(high) + 3 * math.log(high) > math.log(noise.var()) - 40 and high < 1e300:
        high *= 2
    assume(high < 1e300)
    with warnings.catch_warnings():  # the result is compared, whatever the quadrature thinks of its own digits
        warnings.simplefilter("ignore", integrate.IntegrationWarning)
        assert 2 * integral(noise, low, high, lambda z: z**2) == pytest.approx(noise.var(), rel=1e-8)


@settings(max_examples=200)
@given(noise=noises, q=st.one_of(probabilities, st.floats(-300, -6).map(lambda x: 10.0**x)))
def test_quantile_inverts_the_cdf(noise, q):
    z = noise.isf(q)
    assume(math.isfinite(z))
    assert noise.sf(z) == pytest.approx(q, rel=1e-9)
    assert noise.ppf(q) == -z
    assert noise.cdf(-z) == pytest.approx(q, rel=1e-9)
    assert noise.isf(1 - q) == pytest.approx(-noise.isf(1 - (1 - q)), rel=1e-9, abs=1e-300)


@settings(max_examples=100)
@given(noise=noises, ratios=st.lists(st.floats(-50, 50), min_size=1, max_size=6))
def test_arrays_are_elementwise_and_symmetric(noise, ratios):
    z = noise.sigma * np.array(ratios)
    for method in ("pdf", "logpdf", "cdf", "sf", "logcdf", "logsf"):
        values = getattr(noise, method)(z)
        assert values.shape == z.shape
        assert values == pytest.approx([getattr(noise, method)(float(x)) for x in z], rel=1e-13, abs=1e-300)
    assert np.array_equal(noise.pdf(z), noise.pdf(-z))
    assert np.array_equal(noise.cdf(z), noise.sf(-z))
    assert np.abs(noise.cdf(z) + noise.sf(z) - 1).max() <= 1e-14
    assert np.exp(noise.logsf(z)) == pytest.approx(noise.sf(z), rel=1e-12)


@given(noise=noises)
def test_ends_and_middle(noise):
    assert noise.cdf(0) == noise.sf(0) == 0.5
    assert noise.ppf(0.5) == 0
    assert noise.isf(0) == math.inf
    assert noise.ppf(0) == -math.inf
    assert noise.interval(0.5) == (-noise.isf(0.25), noise.isf(0.25))
    assert noise.moment(0) == 1
    ends = [-math.inf, math.inf]
    assert noise.cdf(ends).tolist() == noise.sf(ends)[::-1].tolist() == [0, 1]
    assert noise.logcdf(ends).tolist() == noise.logsf(ends)[::-1].tolist() == [-math.inf, 0]
    assert noise.pdf(ends).tolist() == [0, 0]


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5, 6])
def test_polylog_moments_exist_iff_d_is_large_enough(order):
    """p = 1: E|Z|^m is finite iff d > m + 1 (erratum E14 for the odd ones)."""
    beyond = ExponentialPolylogNoise(d=order + 1.001, p=1)
    short = ExponentialPolylogNoise(d=order + 1.0, p=1)
    assert math.isfinite(beyond.absolute_moment(order))
    assert short.absolute_moment(order) == math.inf
    if order % 2:
        assert beyond.moment(order) == 0
        assert math.isnan(short.moment(order))
    else:
        assert short.moment(order) == math.inf


def test_extreme_shapes_end():
    assert ExponentialPolylogNoise(d=1, p=100).std() > 0
    assert ExponentialPolylogNoise(d=2, p=1.0001).std() == math.inf
    assert ExponentialPolylogNoise(d=1e250).std() == pytest.approx(math.e / 2**0.5 * 1e-250, rel=1e-6)
    assert GaussianNoise(sigma=1e-6).sf(1e308) == 0


def test_log_versions_go_far_beyond_the_smallest_float():
    assert GaussianNoise(sigma=1).logsf(1e6) == pytest.approx(-5e11, rel=1e-9)
    assert GeneralizedGaussianNoise(sigma=1, p=1).logsf(1e6) == pytest.approx(-1e6 - math.log(2), rel=1e-15)
    assert GeneralizedGaussianNoise(sigma=1, p=0.5).logsf(1e12) == pytest.approx(
        math.log1p(1e6) - 1e6 - math.log(2), rel=1e-14
    )
    assert -1e300 < ExponentialPolylogNoise(d=50, p=6).logsf(1e300) < -1e12


@pytest.mark.parametrize(
    ("make", "subject", "code"),
    [
        (lambda: GaussianNoise(sigma=0), "sigma", "value"),
        (lambda: GeneralizedGaussianNoise(sigma=1, p=1.5), "p", "value"),
        (lambda: ExponentialPolylogNoise(d=1, p=1), "d", "value"),
        (lambda: ExponentialPolylogNoise(d=1, a=2), "a", "value"),
        (lambda: ExponentialPolylogNoise(d=0.02, p=1.01), "d", "too-small"),
        (lambda: ExponentialPolylogNoise(d=1, p=800), "p", "value"),
        (lambda: GaussianNoise(sigma=1).isf(1.1), "q", "value"),
        (lambda: GaussianNoise(sigma=1).moment(-1), "order", "value"),
        (lambda: GaussianNoise(sigma=1).pdf(math.nan), "z", "value"),
    ],
)
def test_bad_input_is_named(make, subject, code):
    with refused(ParameterError, subject, code=code):
        make()


def test_offsets_that_fall_short_of_the_theorem_by_rounding_only_are_moved_up():
    """`math.e` is less than e; the density would not be log-convex at 0."""
    noise = ExponentialPolylogNoise(d=1, a=math.e)
    assert noise == ExponentialPolylogNoise(d=1)
    assert noise.a > math.e
    assert math.log(noise.a) >= 1
