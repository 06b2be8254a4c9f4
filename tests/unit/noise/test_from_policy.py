"""Noise made from a policy, against incomplete gamma functions and quadrature with 50 digits."""

import math
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from helpers.errors import refused
from helpers.strategies import drawn_curves, log_uniform
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slowscale.core.errors import ParameterError
from slowscale.noise import ExponentialPolylogNoise, GeneralizedGaussianNoise, PointsNoise, ProductNoise

ACCURACY = 1e-11
CURVES = drawn_curves(PointsNoise)
RATIOS = log_uniform(1e-8, 1e6)


@pytest.fixture(autouse=True)
def digits():
    with mpmath.workdps(50):
        yield


def exact_pieces(noise):
    """Return the pieces of the curve: where they start and end, and loss·(z/size)^exponent, from the points alone."""
    points = [(mpmath.mpf(size), mpmath.mpf(loss)) for size, loss in noise.curve]
    pieces = [(0, points[0][0], *points[0], mpmath.mpf(1))]
    for (a, p), (b, q) in pairwise(points):
        pieces.append((a, b, a, p, mpmath.log(q / p) / mpmath.log(b / a)))
    return [*pieces[:-1], (pieces[-1][0], mpmath.inf, *pieces[-1][2:])]


def exact_loss(noise, z):
    for _, end, size, loss, exponent in exact_pieces(noise):
        if z <= end:
            return loss * (z / size) ** exponent
    raise AssertionError


def exact_integral(noise, low, high=mpmath.inf, order=0):
    """∫ z^order·exp(−P(z)) dz, by incomplete gamma functions."""
    total = mpmath.mpf(0)
    for start, end, size, loss, exponent in exact_pieces(noise):
        a, b = max(start, low), min(end, high)
        if a < b:
            shape = (order + 1) / exponent
            scale = (size * loss ** (-1 / exponent)) ** (order + 1) / exponent
            last = mpmath.inf if b == mpmath.inf else loss * (b / size) ** exponent
            total += scale * mpmath.gammainc(shape, loss * (a / size) ** exponent, last)
    return total


@settings(max_examples=60)
@given(noise=CURVES, ratio=RATIOS)
@example(PointsNoise([(10, 0.1), (1000, 2), (1e6, 8)]), 1e3)
@example(PointsNoise([(1, 1), (2, 1.9), (2.001, 1.9005), (1e3, 3)]), 2.0)  # points near each other
@example(PointsNoise([(1, 1), (1e3, 1000), (1e4, 9000)]), 9e3)  # far beyond the smallest float
def test_points_against_incomplete_gamma_functions(noise, ratio):
    z = noise.curve[0][0] * ratio
    whole, tail = exact_integral(noise, 0), exact_integral(noise, mpmath.mpf(z))
    assert noise.logpdf(z) == pytest.approx(float(-exact_loss(noise, z) - mpmath.log(2 * whole)), rel=ACCURACY)
    assert noise.logsf(z) == pytest.approx(float(mpmath.log(tail / whole / 2)), rel=ACCURACY, abs=ACCURACY)
    center = exact_integral(noise, 0, mpmath.mpf(z)) / whole
    assert noise._center(np.array([z]))[0] == pytest.approx(float(center), rel=ACCURACY)
    if center < 0.5:
        assert noise._center_inverse(np.array([float(center)]))[0] == pytest.approx(z, rel=ACCURACY)
    elif tail / whole > 1e-300:
        share = float(tail / whole)
        moved = 1e-15 * share / (2 * noise.pdf(z)) / z  # by one rounding of the share
        assert noise._tail_inverse(np.array([share]))[0] == pytest.approx(z, rel=ACCURACY + moved)


@settings(max_examples=30)
@given(noise=CURVES, order=st.sampled_from([1, 2, 4]))
def test_moments_against_incomplete_gamma_functions(noise, order):
    moment = exact_integral(noise, 0, order=order) / exact_integral(noise, 0)
    assert noise.absolute_moment(order) == pytest.approx(float(moment), rel=ACCURACY)


@settings(max_examples=100)
@given(noise=CURVES, ratio=RATIOS, step=log_uniform(1e-12, 1e6))
def test_rises_keep_all_digits(noise, ratio, step):
    """Also for steps that are tiny compared with z, and across kinks."""
    first = noise.curve[0][0]
    for z in (0.0, first * ratio, *(kink * (1 - step / 3) for kink in noise._kinks if step < 1)):
        t = (z or first) * step
        exact = exact_loss(noise, mpmath.mpf(z) + mpmath.mpf(t)) - exact_loss(noise, mpmath.mpf(z))
        assert noise._drop_rise(np.array([z]), np.array([t]))[0] == pytest.approx(float(exact), rel=1e-13)


@settings(max_examples=40)
@given(noise=CURVES, ratio=RATIOS, further=log_uniform(1, 1e4))
def test_bends_bound_the_derivatives_from_here_on(noise, ratio, further):
    z = noise.curve[0][0] * ratio
    bounds = [bound[0] for bound in noise._bends(np.array([z]))]
    x = mpmath.mpf(z) * further
    _, _, size, loss, exponent = next(piece for piece in exact_pieces(noise) if x < piece[1])
    series = mpmath.taylor(lambda y: loss * (y / size) ** exponent, x, 3)
    for bound, order in zip(bounds, (2, 3), strict=True):
        assert abs(series[order]) * math.factorial(order) <= bound * (1 + 1e-9) + mpmath.mpf("1e-20")
    later = [bound[0] for bound in noise._bends(np.array([z * further]))]
    assert all(after <= before for after, before in zip(later, bounds, strict=True))


def test_concave_from_the_last_rise_of_the_exponent():
    assert PointsNoise([(1, 1), (100, 10), (1e4, 50)])._concave_from == 0


PRODUCTS = [
    ProductNoise(((1, GeneralizedGaussianNoise(sigma=30, p=0.5)), (2, ExponentialPolylogNoise(d=0.3, sigma=100)))),
    ProductNoise(
        ((1, PointsNoise([(10, 0.1), (100, 0.8), (1e4, 3)])), (3, ExponentialPolylogNoise(d=1.2, sigma=30, p=1)))
    ),
    ProductNoise(((2, PointsNoise([(5, 0.1), (1e3, 2)])), (1, GeneralizedGaussianNoise(sigma=7, p=0.2)))),
]


def exact_drop(noise, z):
    if isinstance(noise, ProductNoise):
        return sum(count * exact_drop(factor, z) for count, factor in noise.factors)
    if isinstance(noise, GeneralizedGaussianNoise):
        return (z / mpmath.mpf(noise.sigma)) ** mpmath.mpf(noise.p)
    if isinstance(noise, ExponentialPolylogNoise):
        start = mpmath.log(mpmath.mpf(noise.a))
        return noise.d * (mpmath.log(z / mpmath.mpf(noise.sigma) + noise.a) ** noise.p - start**noise.p)
    return exact_loss(noise, z)


@pytest.mark.parametrize("noise", PRODUCTS)
def test_products_against_quadrature(noise):
    def integral(low, order=0):
        kinks = [mpmath.log(kink) for kink in noise._kinks if kink > low]
        start = mpmath.log(low) if low else mpmath.mpf(-60)
        ends = sorted({start, *kinks, *(start + 4 * k for k in range(1, 30) if start + 4 * k < 60)})
        return mpmath.quad(lambda y: mpmath.exp((order + 1) * y - exact_drop(noise, mpmath.exp(y))), ends, maxdegree=5)

    with mpmath.workdps(20):
        whole = integral(0)
        for z in (0.03, 4.0, 300.0, 2e4):
            assert noise.sf(z) == pytest.approx(float(integral(z) / whole / 2), rel=1e-10)
            assert noise.isf(noise.sf(z)) == pytest.approx(z, rel=1e-10)
        assert noise.std() == pytest.approx(float(mpmath.sqrt(integral(0, 2) / whole)), rel=1e-10)


def test_a_product_of_one_factor_is_that_factor():
    for factor in (
        GeneralizedGaussianNoise(sigma=3, p=0.4),
        ExponentialPolylogNoise(d=0.5, sigma=2),
        ExponentialPolylogNoise(d=5, p=1),
    ):
        noise = ProductNoise(((1, factor),))
        z = factor.isf(np.array([0.4, 0.1, 1e-3, 1e-9]))
        assert noise.sf(z) == pytest.approx(factor.sf(z), rel=1e-11)
        assert noise.isf(np.array([0.4, 0.1, 1e-3])) == pytest.approx(z[:3], rel=1e-11)
        assert noise.std() == pytest.approx(factor.std(), rel=1e-11)


def test_noise_too_large_for_floats_is_refused():
    with refused(ParameterError, "the noise of this policy", code="too-large"):
        PointsNoise([(1, 1), (1000, 1.01)])
    assert PointsNoise([(1, 1), (1000, 2)]).moment(60) == math.inf


def test_the_shape_of_points_is_the_same_for_every_scale():
    """Not only nearly: a tight curve is kept for exactly one shape."""
    points = [(10, 0.1), (1000, 2), (1e6, 8)]
    shape = PointsNoise(points)._standard()
    assert all(PointsNoise(points, sigma=sigma)._standard() == shape for sigma in np.geomspace(1e-7, 1e7, 60))
