"""The arsinh-normal against mpmath with 50 digits: its distribution, and the shape of its log-density."""

import math

import mpmath as mp
import numpy as np
import pytest
from helpers.errors import refused
from helpers.strategies import instances, log_uniform
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slowscale.core.errors import ParameterError
from slowscale.noise import ArsinhNormalNoise, GaussianNoise

ACCURACY = 1e-13
SHAPES = [0.1, 0.5, 1.6, 3.0, 6.0]
shapes = st.one_of(st.floats(0.1, 6), st.sampled_from(SHAPES))


@pytest.fixture(autouse=True)
def _fifty_digits():
    with mp.workdps(50):
        yield


def close(value, exact, within=ACCURACY):
    return abs(mp.mpf(value) - exact) <= within * abs(exact)


def normal(noise, z):
    return mp.asinh(mp.mpf(z) / mp.mpf(noise.scale)) / mp.mpf(noise.shape)


def drop(noise, z):
    ratio = mp.mpf(z) / mp.mpf(noise.scale)
    return (mp.asinh(ratio) / mp.mpf(noise.shape)) ** 2 / 2 + mp.log(1 + ratio * ratio) / 2


@settings(max_examples=200)
@given(noise=instances(ArsinhNormalNoise), ratio=log_uniform(1e-12, 1e100))
@example(noise=ArsinhNormalNoise(scale=1e-300, shape=0.1), ratio=1e-5)
@example(noise=ArsinhNormalNoise(scale=1e300, shape=6), ratio=1e5)
@example(noise=ArsinhNormalNoise(scale=1, shape=0.1), ratio=1e290)
def test_density_tails_and_center(noise, ratio):
    z = float(noise.scale * ratio)
    x = normal(noise, z)
    tail = mp.erfc(x / mp.sqrt(2)) / 2
    # a tail exp(−x²/2) moves by x² roundings when z moves by one
    assert close(noise.logsf(z), mp.log(tail))
    assert noise.logcdf(-z) == noise.logsf(z)
    if tail > mp.mpf("1e-300"):
        assert close(noise.sf(z), tail, ACCURACY * (1 + float(x) ** 2))
    center = noise._center(np.array([z]))[0]
    assert close(center, mp.erf(x / mp.sqrt(2)))
    peak = -mp.log(mp.mpf(noise.scale) * mp.mpf(noise.shape) * mp.sqrt(2 * mp.pi))
    assert abs(mp.mpf(noise.logpdf(z)) - (peak - drop(noise, z))) <= ACCURACY * (1 + abs(peak) + drop(noise, z))
    assert close(noise._drop(np.array([z]))[0], drop(noise, z))


@settings(max_examples=100)
@given(noise=instances(ArsinhNormalNoise), exponent=st.floats(-300, math.log10(0.25)))
def test_quantiles(noise, exponent):
    q = 10.0**exponent
    z = noise.isf(q)
    assert close(noise.sf(z), mp.mpf(q), 1e-12 * (1 + 4 * abs(exponent)))
    assert noise.ppf(q) == -z
    x = normal(noise, z)
    # by one Newton step in mpmath: how far the quantile is off
    step = (mp.erfc(x / mp.sqrt(2)) / 2 - mp.mpf(q)) / (mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi))
    assert abs(step * mp.mpf(noise.shape)) < 1e-12 * (1 + abs(x))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("order", [1, 2, 3, 4, 5, 6, 12])
def test_moments_against_the_binomial_series(shape, order):
    """E|sinh(τN)|^k = 2^−k·Σ (−1)^j·C(k, j)·exp(a²τ²/2)·2Φ(aτ) with a = k − 2j, with digits enough to cancel."""
    with mp.workdps(80):
        t = mp.mpf(shape)
        parts = ((-1) ** j * mp.binomial(order, j) * _tilted(order - 2 * j, t) for j in range(order + 1))
        exact = mp.fsum(parts) / mp.mpf(2) ** order
        assert close(ArsinhNormalNoise(scale=1, shape=shape)._log_moment(order), mp.log(exact), 1e-12)
        noise = ArsinhNormalNoise(scale=3.5, shape=shape)
        if exact * mp.mpf(3.5) ** order < mp.mpf("1e300"):
            assert close(noise.absolute_moment(order), exact * mp.mpf(3.5) ** order, 1e-10)


def _tilted(a, t):
    return mp.exp(a * a * t * t / 2) * 2 * mp.ncdf(a * t)


def test_moments_that_exceed_floats_are_infinite():
    noise = ArsinhNormalNoise(scale=1e300, shape=6)
    assert noise.std() == noise.var() == math.inf
    assert math.isfinite(ArsinhNormalNoise(scale=1e290, shape=6).std())
    assert noise.moment(3) == 0  # it exists, although that of |Z| is beyond floats
    assert ArsinhNormalNoise(scale=2, shape=1).moment(3) == 0


def test_spot_values():
    noise = ArsinhNormalNoise(scale=4.95, shape=1.6)
    assert noise.std() == pytest.approx(4.95 * math.sqrt(math.expm1(2 * 1.6**2) / 2), rel=1e-15)
    assert [round(x, 1) for x in (noise.std(), noise.isf(0.025), noise.isf(0.25))] == [45.1, 56.8, 6.4]


def test_the_smallest_shape_is_nearly_gaussian():
    noise, gaussian = ArsinhNormalNoise(scale=10, shape=0.1), GaussianNoise(sigma=1)
    z = np.linspace(-3, 3, 61)
    assert np.abs(noise.cdf(z) - gaussian.cdf(z)).max() < 1e-3


# --- the hooks of certified divergences -------------------------------------------------------------------------------


@settings(max_examples=300)
@given(
    scale=log_uniform(1e-6, 1e9),
    shape=shapes,
    z=st.one_of(st.just(0.0), log_uniform(1e-12, 1e30)),
    t=st.one_of(st.just(0.0), log_uniform(1e-12, 1e15)),
)
@example(scale=1e-200, shape=0.1, z=1e150, t=1e-9)
@example(scale=1.0, shape=1.6, z=1.0, t=1.0)
def test_rises_keep_their_digits(scale, shape, z, t):
    noise = ArsinhNormalNoise(scale=scale, shape=shape)
    z, t = float(z * scale), float(t * scale)
    with mp.workdps(400 if z > 1e50 * t else 100):
        exact = drop(noise, mp.mpf(z) + mp.mpf(t)) - drop(noise, z)
    assert close(noise._drop_rise(np.array([z]), np.array([t]))[0], exact, 5e-15)


def test_rises_beyond_the_largest_float():
    noise = ArsinhNormalNoise(scale=1e-100, shape=1)
    assert close(noise._drop_rise(np.array([0.0, 1.0]), np.array([1e250, 1e250]))[0], drop(noise, 1e250))


@pytest.mark.parametrize("shape", SHAPES)
def test_bends_bound_the_derivatives_from_any_point_on(shape):
    """Taylor coefficients by mpmath on a dense grid; the bounds never grow, and are not loose without need."""
    scale = 3.0
    noise = ArsinhNormalNoise(scale=scale, shape=shape)
    points = scale * np.sinh(np.concatenate([np.linspace(0, 4, 161), np.linspace(4.5, 60, 40)]))
    second, third = noise._bends(points)
    assert (np.diff(second) <= 0).all()
    assert (np.diff(third) <= 0).all()
    widths = np.maximum(points, scale)  # the derivatives in units of this change little over one
    series = [mp.taylor(lambda h, z=z, w=w: drop(noise, z + w * h), 0, 3) for z, w in zip(points, widths, strict=True)]
    exact_second = np.array([float(abs(2 * c[2])) for c in series]) / widths**2
    exact_third = np.array([float(abs(6 * c[3])) for c in series]) / widths**3
    assert (exact_second <= second).all()
    assert (exact_third <= third).all()
    # from each point on, the bounds are within a small factor of the largest derivative
    assert (second <= 6 * np.maximum.accumulate(exact_second[::-1])[::-1]).all()
    assert (third <= 8 * np.maximum.accumulate(exact_third[::-1])[::-1]).all()


def test_the_largest_term_of_the_third_derivative():
    """3T + y/cosh² y − 2yT² <= 1.75: its slope is below 9 up to 2, and from there on it is negative."""
    y = np.linspace(0, 2, 200_001)
    tanh = np.tanh(y)
    assert (3 * tanh + y / np.cosh(y) ** 2 - 2 * y * tanh**2).max() + 9 * 1e-5 < 1.75


@settings(max_examples=100)
@given(shape=shapes)
def test_where_the_log_density_turns(shape):
    """The second derivative changes its sign just below `_concave_from`."""
    found = ArsinhNormalNoise(scale=2.0, shape=shape)._concave_from / 2
    curve = 1 / mp.mpf(shape) ** 2

    def bend(z):
        y = mp.asinh(mp.mpf(z))
        return curve * (1 - y * mp.tanh(y)) + 2 / mp.cosh(y) ** 2 - 1

    assert bend(found) < 0 < bend(found * (1 - 1e-11))
    assert ArsinhNormalNoise(scale=2.0, shape=shape)._kinks == ()


@pytest.mark.parametrize(
    ("scale", "shape", "subject", "code"),
    [
        (0, 1, "scale", "value"),
        (1, 0.05, "shape", "value"),
        (1, 7, "shape", "value"),
    ],
)
def test_bad_parameters_are_named(scale, shape, subject, code):
    with refused(ParameterError, subject, code=code):
        ArsinhNormalNoise(scale=scale, shape=shape)
