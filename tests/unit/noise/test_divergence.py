"""Certified tight losses lie above the truth, computed at 50 digits, and hardly above it."""

import dataclasses
import math

import mpmath
import numpy as np
import pytest
from helpers.exact_divergence import exact_loss

from slowscale.noise import (
    ArsinhNormalNoise,
    ExponentialPolylogNoise,
    GeneralizedGaussianNoise,
    PointsNoise,
    ProductNoise,
)
from slowscale.noise.divergence import FIRST_ORDER, _Cells, _log_g, far_end, tight_loss

CLOSE = 1e-3  # the promised precision of a single value


def random_noises(rng, count):
    """Noises with random parameters, in turn of each kind."""
    for i in range(count):
        sigma = float(rng.choice([1.0, 0.02, 37.5]))
        if i % 6 == 0:
            yield GeneralizedGaussianNoise(sigma, float(rng.uniform(0.1, 1)))
        elif i % 6 == 1:
            yield ArsinhNormalNoise(sigma, float(np.exp(rng.uniform(np.log(0.1), np.log(4)))))
        elif i % 6 == 2:
            sizes = np.cumprod(np.exp(rng.uniform(0.5, 6, 3)))
            powers = np.cumsum(np.diff(np.log(sizes)) * np.sort(rng.uniform(0.2, 1, 2))[::-1])
            losses = float(rng.uniform(0.05, 2)) * np.exp(np.append(0, powers))
            yield PointsNoise(list(zip(sizes.tolist(), losses.tolist(), strict=True)), sigma)
        elif i % 6 == 3:
            first = GeneralizedGaussianNoise(sigma, float(rng.uniform(0.2, 1)))
            yield ProductNoise(((2, first), (1, ExponentialPolylogNoise(float(rng.uniform(0.1, 2)), 3 * sigma))))
        else:
            p = (1.0, 2.0, 3.0, float(rng.uniform(1.2, 4)))[i // 2 % 4]
            d = float(np.exp(rng.uniform(np.log(0.1), np.log(4)))) + (1.5 if p == 1 else 0)
            a = math.exp(p - 1) * float(rng.uniform(1.01, 5))
            yield ExponentialPolylogNoise(d, sigma, a, p)


def cases():
    rng = np.random.default_rng(20_241)
    for noise in random_noises(rng, 24):
        yield noise, noise.sigma * float(np.exp(rng.uniform(np.log(1e-6), np.log(1e6))))
    # Small steps between points: the second derivative jumps, which a bound on the third one does not see.
    points = [(1.0, 0.0103018064), (1.32759482687504, 0.01284849792), (132.759482687504, 0.11014221700)]
    yield PointsNoise(points), 0.09601108300858555
    # The ends of the range.
    yield GeneralizedGaussianNoise(1, 0.5), 1e-9
    yield ExponentialPolylogNoise(0.2), 1e-9
    yield ExponentialPolylogNoise(0.4), 1e15


@pytest.mark.parametrize(("noise", "influence"), cases())
def test_the_bounds_enclose_the_loss_at_50_digits(noise, influence):
    found = tight_loss(noise, influence)
    truth = exact_loss(noise, influence, found.order)
    assert found.lower <= truth <= found.upper <= truth * (1 + CLOSE)
    for order in (1 + FIRST_ORDER / 16, 1 + 3 * (found.order - 1)):
        assert exact_loss(noise, influence, order) <= found.upper


def test_the_bounds_notice_a_scale_that_is_half_a_per_cent_wrong():
    noise = GeneralizedGaussianNoise(1, 0.5)
    wrong = tight_loss(dataclasses.replace(noise, sigma=1.005), 3.0)
    assert wrong.upper < exact_loss(noise, 3.0, wrong.order)


def laplace_loss(influence, order):
    """d_α/α of Laplace noise with scale 1, in closed form (Mironov 2017, Table II)."""
    with mpmath.workdps(60):
        x, a = mpmath.mpf(influence), mpmath.mpf(order)
        inside = a / (2 * a - 1) * mpmath.exp((a - 1) * x) + (a - 1) / (2 * a - 1) * mpmath.exp(-a * x)
        return float(mpmath.log(inside) / (a - 1) / a)


@pytest.mark.parametrize("influence", [1e-9, 1e-4, 0.1, 1.0, 5.0, 200.0, 1e6, 1e15])
def test_laplace_has_its_known_divergence(influence):
    found = tight_loss(GeneralizedGaussianNoise(1, 1), influence)
    largest = influence - 1 + math.exp(-influence) if influence > 0.01 else laplace_loss(influence, 1 + 1e-12)
    assert largest * (1 - 1e-9) <= found.upper <= largest * (1 + CLOSE)
    orders = 1 + np.geomspace(1e-6, 1e4 / min(influence, 1), 60)
    assert all(laplace_loss(influence, order) <= found.upper for order in orders)


def test_the_losses_of_the_design_notes():
    """The values of float quadrature for the paper's two calibrations to cattle (mathematics, 4)."""
    notes = [
        (GeneralizedGaussianNoise(658, 0.5), {100: 0.00535, 1_000: 0.126, 10_200: 1.954}),
        (ExponentialPolylogNoise(0.113), {100: 0.508, 10_200: 6.766, 1_341_000: 19.64}),
    ]
    for noise, losses in notes:
        for influence, loss in losses.items():
            assert tight_loss(noise, float(influence)).upper == pytest.approx(loss, rel=2e-3)


@pytest.mark.parametrize(
    "noise",
    [
        GeneralizedGaussianNoise(1, 0.02),
        GeneralizedGaussianNoise(1, 0.05),
        ExponentialPolylogNoise(1.5, a=1e100, p=1),
        GeneralizedGaussianNoise(1, 0.3),
        ExponentialPolylogNoise(0.02),
        ExponentialPolylogNoise(50, p=1),
        ExponentialPolylogNoise(10, p=4),
        ExponentialPolylogNoise(1.2, p=1),
        ArsinhNormalNoise(1, 0.1),
        ArsinhNormalNoise(1, 6),
        PointsNoise([(1e-3, 1e-4), (1, 0.05), (1e3, 10), (1e6, 11)]),
    ],
)
def test_the_bounds_stay_close_at_extreme_parameters(noise):
    last = far_end(noise)
    previous = 0.0
    for influence in np.geomspace(1e-9, 1e15, 17):
        found = tight_loss(noise, float(influence), last=last)
        assert previous <= found.upper
        assert found.lower <= found.upper <= found.lower * (1 + 2 * CLOSE)
        previous = found.lower


@pytest.mark.parametrize("noise", [GeneralizedGaussianNoise(2, 0.35), ExponentialPolylogNoise(0.7, 3, 9, 2.5)])
def test_the_hooks_of_the_noise_are_right(noise):
    """The rise of the log-density, and bounds on its derivatives, against 50 digits."""

    def drop(z):
        if isinstance(noise, GeneralizedGaussianNoise):
            return (z / mpmath.mpf(noise.sigma)) ** mpmath.mpf(noise.p)
        return mpmath.mpf(noise.d) * mpmath.log(z / mpmath.mpf(noise.sigma) + mpmath.mpf(noise.a)) ** mpmath.mpf(
            noise.p
        )

    with mpmath.workdps(50):
        for z in np.geomspace(1e-6, 1e6, 13):
            for t in (1e-9 * z, 1e-3, 1.0, 1e4):
                rise = noise._drop_rise(np.array([z]), np.array([t]))[0]
                assert rise == pytest.approx(float(drop(mpmath.mpf(z) + t) - drop(mpmath.mpf(z))), rel=1e-13)
            (second,), (third,) = noise._bends(np.array([z]))
            for further in (1.0, 1.01, 2.0, 30.0):
                for order, bound in ((2, second), (3, third)):
                    assert abs(float(mpmath.diff(drop, mpmath.mpf(z) * further, order))) <= bound * (1 + 1e-9)


def test_a_straight_line_bounds_the_logarithm_of_the_integrand():
    """ln g is concave and rises, and its derivative is right."""
    loss, order = np.geomspace(1e-9, 50, 400), np.array([[1e-4], [0.5], [3.0], [1e4]])
    value, slope = _log_g(loss, order)
    assert (np.diff(value, axis=1) > 0).all()
    assert (np.diff(slope, axis=1) <= slope[:, 1:] * 1e-9).all()
    step = 1e-6 * loss
    assert slope == pytest.approx(
        (_log_g(loss + step, order)[0] - _log_g(loss - step, order)[0]) / (2 * step), rel=1e-4
    )


def test_split_cells_keep_their_ends():
    t = np.array([0.0, 1.0, 3.0, 7.0])
    one = np.ones(3)
    cells = _Cells.of(t, np.array([4.0, 3.0, 2.0, 1.0]), one, one > 0, -t, 0 * one, one)
    ends = cells.split(np.array([5, 2, 3]))
    assert set(t) <= set(ends)
    assert ends.size == 1 + 1 + 2 + 3  # the first cell is not split
