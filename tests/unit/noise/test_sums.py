"""Intervals for sums of noises: against brute force, closed forms and each other. They are never too narrow."""

import math

import numpy as np
import pytest
from scipy import signal, stats

import slowscale as ss
from slowscale.noise import sums
from slowscale.noise.sums import _Cells, chernoff_width, sum_half_widths, uniform_transform

NOISES = {
    "gaussian": ss.Gaussian(sigma=7).noise,
    "laplace": ss.GeneralizedGaussian(sigma=4, p=1).noise,
    "generalized gaussian": ss.GeneralizedGaussian(sigma=0.6, p=0.5).noise,
    "polylog": ss.ExponentialPolylog(d=0.6).noise,
    "polylog 3": ss.ExponentialPolylog(d=0.4, p=3).noise,
    "pareto": ss.ExponentialPolylog(d=3.2, p=1).noise,
    "arsinh-normal": ss.ArsinhNormal(scale=3, shape=1.2).noise,
    "points": ss.FromPolicy([(1, 0.5), (20, 5), (1000, 12)]).noise,
    "product": ss.FromPolicy(
        ss.ExponentialPolylog(d=0.3).pure_policy + ss.GeneralizedGaussian(sigma=5, p=0.5).pure_policy
    ).noise,
    "narrow": ss.Gaussian(sigma=0.3).noise,
}
FAR = 2**15


def lattice(noise):
    """Return the probabilities of −FAR … FAR for noise rounded to whole numbers, from its distribution function."""
    k = np.arange(FAR + 1)
    upper = noise.sf(k - 0.5) - noise.sf(k + 0.5)
    return np.concatenate([upper[:0:-1], upper])


def inside(masses, q):
    middle = masses.size // 2
    return float(masses[middle - q : middle + q + 1].sum())


@pytest.mark.parametrize("name", NOISES)
def test_rounded_noise_against_brute_force(name):
    """The exact convolution, cut at ±2¹⁵: what it leaves out is small, and counted for the lower bound."""
    noise = NOISES[name]
    one = lattice(noise)
    total, n = one, 1
    for add in (1, 1, 2):
        other = one if add == 1 else signal.fftconvolve(one, one)
        total = signal.fftconvolve(total, other)
        n += add
        left_out = n * 2 * noise.sf(FAR)
        for level in (0.5, 0.95, 0.999):
            if left_out > (1 - level) / 50:
                continue
            q = int(sum_half_widths(noise, [n], level, 1.0)[n])
            assert inside(total, q) + left_out >= level
            assert inside(total, q - 2 - q // 500) < level + 1e-9, (n, level)


@pytest.mark.parametrize("count", [2, 3, 10, 1000, 10**6])
@pytest.mark.parametrize("level", [0.5, 0.95, 1 - 1e-6])
def test_gaussian_noise_has_a_closed_form(count, level):
    exact = 3 * math.sqrt(count) * stats.norm.isf((1 - level) / 2)
    found = sum_half_widths(ss.Gaussian(sigma=3).noise, [count], level)[count]
    assert exact <= found <= exact * 1.002


@pytest.mark.parametrize("count", [2, 5, 8, 300])
def test_rounded_gaussian_noise_on_coarser_cells(count):
    """A unit much finer than the noise: cells of many units, against the closed form."""
    exact = 1e7 * math.sqrt(count) * stats.norm.isf(0.025)
    found = sum_half_widths(ss.Gaussian(sigma=1e7).noise, [count], 0.95, 1.0)[count]
    assert exact - 1 <= found <= exact * 1.001
    assert found == int(found)


def test_laplace_noise_has_a_closed_form():
    """The density of a sum of two Laplace variables is (1 + |x|)·exp(−|x|)/4."""
    x = sum_half_widths(ss.GeneralizedGaussian(sigma=1, p=1).noise, [2], 0.95)[2]
    assert 0.95 <= 1 - math.exp(-x) * (1 + x / 2) <= 0.95001


@pytest.mark.parametrize("name", ["gaussian", "generalized gaussian", "polylog", "pareto", "points"])
def test_wider_cells_are_never_narrower(name, monkeypatch):
    """The averaging is conservative: with coarse cells the result is wider."""
    noise = NOISES[name]
    fine = sum_half_widths(noise, [2, 7, 60], 0.95)
    monkeypatch.setattr(sums, "LEAST_CELLS", 60)
    monkeypatch.setattr(sums, "CELLS_PER_ROOT", 1.0)
    sums._half_widths.cache_clear()
    coarse = sum_half_widths(noise, [2, 7, 60], 0.95)
    sums._half_widths.cache_clear()
    for n, half in fine.items():
        assert half * (1 - 1e-6) <= coarse[n] <= 1.2 * half


@pytest.mark.parametrize("name", ["polylog", "points", "arsinh-normal"])
def test_noise_that_is_left_out_hardly_matters(name, monkeypatch):
    noise = NOISES[name]
    found = sum_half_widths(noise, [2, 20], 0.95)
    monkeypatch.setattr(sums, "KEPT_WIDTHS", 32)
    monkeypatch.setattr(sums, "PERIOD_WIDTHS", 128)
    sums._half_widths.cache_clear()
    more = sum_half_widths(noise, [2, 20], 0.95)
    sums._half_widths.cache_clear()
    for n, half in found.items():
        assert more[n] * (1 - 1e-6) <= half <= more[n] * 1.002


def test_noise_without_a_variance():
    """P(|Z| > z) = 1/√(1 + z): a sum of n is near n² times a stable variable, so quantiles grow with n²."""
    found = sum_half_widths(ss.ExponentialPolylog(d=1.5, p=1).noise, [100, 10_000, 10**6], 0.95)
    assert found[10_000] / found[100] == pytest.approx(1e4, rel=0.01)
    assert found[10**6] / found[10_000] == pytest.approx(1e4, rel=0.01)


def test_half_widths_grow_with_the_number_and_the_level():
    noise = NOISES["polylog"]
    found = sum_half_widths(noise, range(1, 60), 0.95, 1.0)
    assert (np.diff(list(found.values())) >= 0).all()
    widths = [sum_half_widths(noise, [9], level)[9] for level in (0.5, 0.9, 0.95, 0.99, 0.999, 1 - 1e-6)]
    assert (np.diff(widths) > 0).all()


def test_one_noise_has_its_own_quantile():
    noise = NOISES["polylog"]
    assert sum_half_widths(noise, [1], 0.95)[1] == pytest.approx(noise.isf(0.025), rel=1e-12)


def test_many_numbers_are_rounded_up():
    noise = ss.Gaussian(sigma=1).noise
    counts = range(1, 1500)
    found = sum_half_widths(noise, counts, 0.95)
    assert list(found) == list(counts)
    ratios = np.array([found[n] / (math.sqrt(n) * 1.959963984540054) for n in counts])
    assert (ratios >= 1 - 1e-12).all()
    assert ratios.max() < 1.004


@pytest.mark.parametrize("unit", [None, 1.0])
@pytest.mark.parametrize("count", [2, 50, 10**6])
def test_a_level_beyond_floats(count, unit):
    """Chernoff's bound is used, which is wider by less than a third."""
    level = 1 - 1e-13
    exact = 100 * math.sqrt(count) * stats.norm.isf((1 - level) / 2)
    assert exact - 1 <= sum_half_widths(ss.Gaussian(sigma=100).noise, [count], level, unit)[count] <= 1.3 * exact


@pytest.mark.parametrize("name", ["laplace", "generalized gaussian", "pareto", "points"])
def test_the_simple_bound_is_wider(name):
    for unit in (None, 1.0):
        found = sum_half_widths(NOISES[name], [2, 30], 0.95, unit)
        for n, half in found.items():
            assert half <= chernoff_width(NOISES[name], n, 0.95, unit)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9, 39, 40, 41, 200])
def test_the_whole_number_nearest_to_a_sum_of_uniform_variables(count):
    """Against a convolution on a fine grid, whose cells are uniform themselves."""
    fine = 101
    masses = np.ones(1)
    for _ in range(count):
        masses = np.convolve(masses, np.full(fine, 1 / fine))
    x = np.rint((np.arange(masses.size) - masses.size // 2) / fine)
    t = np.linspace(0, math.pi, 9)
    assert uniform_transform(t, count) == pytest.approx(np.cos(np.outer(t, x)) @ masses, abs=3e-4)


def test_what_the_period_counts_twice_is_bounded():
    """Chernoff's bound against the exact probability, for a period that is much too short."""
    cells = _Cells(ss.Gaussian(sigma=10).noise, 1.0, 8, 100, 1.0, True)
    start = 2 * cells._size - 2 * cells.half
    for count in (5, 20, 50):
        exact = 2 * stats.norm.sf(start / 10 / math.sqrt(count) / 1.001)
        assert exact <= cells._counted_twice(count, 1e-300) <= 1


def test_against_simulation():
    """The share of a million sums is 0.95 within 4.9 deviations (false alarms: 1e-6), and that of narrower ones not."""
    noise = ss.ArsinhNormal(scale=3, shape=1.2).noise
    half = sum_half_widths(noise, [3], 0.95)[3]
    total = np.abs(3 * np.sinh(1.2 * np.random.default_rng(1).standard_normal((10**6, 3))).sum(axis=1))
    allowed = 4.9 * math.sqrt(0.95 * 0.05 / total.size)
    assert abs((total <= half).mean() - 0.95) < allowed
    assert abs((total <= 0.97 * half).mean() - 0.95) > 2 * allowed


def test_low_levels_have_the_half_widths_of_one_half():
    noise = ss.Laplace(sigma=25).noise
    for unit in (None, 1.0):
        expected = sum_half_widths(noise, [1, 5], 0.5, unit)
        assert [sum_half_widths(noise, [1, 5], level, unit) for level in (0.3, 0.01, 1e-12)] == [expected] * 3
