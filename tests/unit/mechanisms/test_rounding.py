"""The error of rounding to the unit, against sums over the grid and against formulas of the noise."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import optimize

import slowscale as ss
from slowscale.mechanisms.additive import WIDE_NOISE, largest_error, rounded_error


def at(noise, unit, *places):
    return rounded_error(noise, Fraction(unit), np.array(places, float))


def power_law(d, sigma):
    """The noise with P(|Z| > z) = (1 + z/σ)^(1−d), and P(Z > x) in closed form."""

    def tail(x):
        half = 0.5 * (1 + np.abs(x) / sigma) ** (1 - d)
        return np.where(x >= 0, half, 1 - half)

    return ss.ExponentialPolylog(d=d, sigma=sigma, a=1, p=1).noise, tail


@pytest.mark.parametrize("unit", [1, 1000])
@pytest.mark.parametrize("sigma", [3, 1, 0.01])
@pytest.mark.parametrize("place", [0, 0.1, -0.25, 0.5])
def test_heavy_tails_are_summed_to_their_end(unit, sigma, place):
    """Against two million cells of a power law, and the integral of its tail beyond them."""
    d, cells = 4.5, 2_000_000
    noise, tail = power_law(d, sigma)
    j = np.arange(cells)
    above, below = tail(j + 0.5 - place), tail(j + 0.5 + place)
    mean = (above - below).sum()
    square = ((2 * j + 1) * (above + below)).sum() + 2 * sigma**2 * (cells / sigma) ** (3 - d) / (d - 3)
    bias, std = at(power_law(d, sigma * unit)[0], unit, place)
    assert bias[0] == pytest.approx(unit * (mean - place), abs=1e-12 * unit)
    assert std[0] == pytest.approx(unit * math.sqrt(square - mean**2), rel=1e-8)
    assert noise.sf(2.0) == pytest.approx(float(tail(2.0)))


def test_bias_counts_the_noise_beyond_the_last_cell():
    """1 % of this noise lies beyond 5000 units; its standard deviation is infinite."""
    noise, tail = power_law(1.5, 1)
    j = np.arange(1_000_000)
    for place in (0.25, -0.4):
        mean = (tail(j + 0.5 - place) - tail(j + 0.5 + place)).sum() + 2 * place * tail(1e6)
        bias, std = at(noise, 1, place)
        assert bias[0] == pytest.approx(mean - place, abs=1e-9)
        assert std[0] == math.inf


@pytest.mark.parametrize("unit", [1, 8])
def test_noise_is_wide_if_little_of_it_lies_within_half_a_unit(unit):
    """Wide noise has no bias and u²/12 more variance. Of other noise, both are computed."""
    shape = ss.GeneralizedGaussian(sigma=1, p=0.2).noise
    for share in (0.7 * WIDE_NOISE, 1.4 * WIDE_NOISE):
        sigma = unit / 2 / shape.isf((1 - share) / 2)
        noise = ss.GeneralizedGaussian(sigma=sigma, p=0.2).noise
        j = np.arange(100_000)
        true = (noise.sf(unit * (j + 0.25)) - noise.sf(unit * (j + 0.75))).sum() + 0.5 * noise.sf(unit * 1e5) - 0.25
        assert abs(true) > 1e-7  # it can be told from 0
        bias, std = at(noise, unit, 0.25)
        assert bias[0] == (0 if share < WIDE_NOISE else pytest.approx(unit * true, rel=1e-4))
        assert std[0] ** 2 == pytest.approx(noise.var() + unit**2 / 12, rel=1e-9)
    bias, std = at(ss.Gaussian(sigma=4000.0 * unit).noise, unit, 0.25, 0.5)
    assert bias.tolist() == [0, 0]
    assert std**2 - (4000.0 * unit) ** 2 == pytest.approx(unit**2 / 12, rel=1e-5)


def test_narrow_noise_with_a_far_tail_has_a_standard_deviation():
    for sigma in (1e-2, 1e-5, 1e-8):
        _, std = rounded_error(power_law(3.5, sigma)[0], Fraction(1), np.linspace(-0.5, 0.5, 41))
        assert np.isfinite(std).all()


@pytest.mark.parametrize("sigma", [0.02, 0.1, 0.2, 0.4, 0.9])
def test_largest_error_is_the_largest_over_all_places(sigma):
    noise = ss.Gaussian(sigma=sigma).noise
    found = largest_error(noise, Fraction(1), False)

    def largest(error):
        dense = np.linspace(0, 0.5, 501)
        near = dense[np.argmax([error(place) for place in dense])]
        ends = (max(near - 0.002, 0), min(near + 0.002, 0.5))
        best = optimize.minimize_scalar(lambda place: -error(place), bounds=ends, options={"xatol": 1e-9})
        return max(-best.fun, error(near))

    assert found.bias == pytest.approx(largest(lambda place: abs(at(noise, 1, place)[0][0])), rel=5e-8)
    assert found.rmse == pytest.approx(
        largest(lambda place: math.hypot(*(e[0] for e in at(noise, 1, place)))), rel=5e-8
    )


def test_sums_on_the_grid_have_no_bias():
    for sigma in (0.01, 0.3, 5.0):
        error = largest_error(ss.Gaussian(sigma=sigma).noise, Fraction(1), True)
        assert error == (0.0, pytest.approx(ss.Gaussian(sigma=sigma).std(0, unit=1)))
        assert ss.Gaussian(sigma=sigma)._rounding_bias(Fraction(1), True) == 0
