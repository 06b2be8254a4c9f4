"""Conversions, against numeric Rényi and hockey-stick divergences."""

import math

import pytest
from helpers.errors import refused
from scipy import integrate, special, stats

import slowscale as ss
from slowscale.accounting import delta, epsilon, posterior


def exact_delta(mu, eps):
    """The δ of Gaussian noise whose shift is mu standard deviations (Balle and Wang 2018)."""
    return stats.norm.cdf(mu / 2 - eps / mu) - math.exp(eps) * stats.norm.cdf(-mu / 2 - eps / mu)


@pytest.mark.parametrize("rho", [1e-4, 0.01, 0.1, 0.5, 2.0, 20.0])
@pytest.mark.parametrize("probability", [1e-3, 1e-6, 1e-12])
def test_epsilon(rho, probability):
    found = epsilon(rho, probability)
    # It is better than the textbook bound, and above the exact ε of Gaussian noise with this ρ.
    assert found <= rho + 2 * math.sqrt(rho * math.log(1 / probability)) + 1e-12
    assert exact_delta(math.sqrt(2 * rho), found) <= probability
    # Computed in a second way: the smallest ε whose δ is small enough.
    assert delta(rho, found) == pytest.approx(probability, rel=1e-5) or found == 0


@pytest.mark.parametrize("rho", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("eps", [0.5, 1.0, 4.0])
def test_delta_is_the_minimum_over_all_orders(rho, eps):
    orders = [1 + 10 ** (step / 200) for step in range(-1000, 1000)]
    brute = min(
        math.exp(min(500, (order - 1) * (order * rho - eps))) / (order - 1) * (1 - 1 / order) ** order
        for order in orders
    )
    assert delta(rho, eps) <= brute * (1 + 1e-9)
    assert delta(rho, eps) == pytest.approx(min(brute, 1), rel=1e-3)


def test_posterior_is_bayes():
    """For Laplace noise the best evidence multiplies the odds by e^ε exactly."""
    m = ss.GeneralizedGaussian(sigma=2.0, p=1)
    prior, size = 0.3, 3.0
    eps = m.pure_policy(size)
    at_zero = m.noise.pdf(0.0), m.noise.pdf(size)
    believed = prior * at_zero[0] / (prior * at_zero[0] + (1 - prior) * at_zero[1])
    assert posterior(prior, eps) == pytest.approx(believed)


def test_extremes():
    assert posterior(1e-310, 700) == pytest.approx(1.014e-6, rel=1e-2)
    assert 0 < delta(1e-4, 1) < 1e-300
    assert epsilon(1e6, 1e-300) > 1e6
    assert posterior(1e-320, 800) > 0.99
    assert posterior(1.6e-304, 0) == pytest.approx(1.6e-304, rel=1e-9, abs=0)


def test_bounds_stay_in_their_ranges():
    """ε is never negative, and δ never above 1."""
    assert epsilon(1e-9, 0.9) == epsilon(0, 1e-300) == 0
    for rho in (1, 1e3, 1e30):
        assert delta(rho, 0) <= 1
    assert delta(1e30, 1) == 1


def test_the_best_order_is_found_for_tiny_losses():
    """ρ = 10⁻⁴⁵ with δ = 10⁻³⁰⁰ has its best order α near 10²⁴."""
    rho, probability = 1e-45, 1e-300
    found = epsilon(rho, probability)
    orders = [10 ** (20 + step / 1000) for step in range(8000)]
    brute = min(a * rho + (-math.log(probability) - math.log(a)) / a - 1 / a for a in orders)
    assert found == pytest.approx(brute, rel=1e-4, abs=0)


def test_no_loss_means_no_information():
    assert epsilon(0, 1e-6) == delta(0, 1) == 0
    assert posterior(0.2, 0) == pytest.approx(0.2)
    assert posterior(0.5, 1e6) == 1


@pytest.mark.parametrize(
    ("make", "subject", "code"),
    [
        (lambda: epsilon(-1, 0.1), "rho", "value"),
        (lambda: epsilon(1, 0), "delta", "value"),
        (lambda: delta(1, math.inf), "epsilon", "value"),
        (lambda: posterior(1, 1), "prior", "value"),
        (lambda: epsilon("x", 0.1), "rho", "type"),
    ],
)
def test_mistakes_raise_clear_errors(make, subject, code):
    with refused(ss.SlowscaleError, subject, code=code):
        make()


def test_the_conversion_of_a_gaussian_is_that_of_its_renyi_divergences():
    """ρ = Δ²/(2σ²) bounds d_α/α, checked by quadrature."""
    sigma, size = 3.0, 2.0
    rho = ss.Gaussian(sigma=sigma).policy(size)
    for order in (1.5, 3.0, 10.0):
        value, _ = integrate.quad(
            lambda z, a=order: math.exp(
                a * stats.norm.logpdf(z, 0, sigma) + (1 - a) * stats.norm.logpdf(z, size, sigma)
            ),
            -80, 80, limit=400,
        )  # fmt: skip
        assert math.log(value) / (order - 1) / order == pytest.approx(rho, rel=1e-6)
    assert special.ndtr(0) == 0.5
