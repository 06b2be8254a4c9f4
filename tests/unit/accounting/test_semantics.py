"""Conversions, against numeric Rényi and hockey-stick divergences."""

import math
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats

import slowscale as ss
from slowscale.accounting import (
    Loss,
    RecordPolicy,
    Spent,
    best_epsilon,
    best_odds_factor,
    certainty,
    delta,
    epsilon,
    odds_factor,
    posterior,
)
from slowscale.accounting.semantics import bounds_in_words, explain, highest_certainty
from slowscale.accounting.sizes import read_sizes
from slowscale.core.numbers import share


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


@pytest.mark.parametrize("rho", [0.05, 0.5, 3.0])
def test_odds_are_shifted_more_only_rarely(rho):
    """The privacy loss of Gaussian noise is N(ρ, 2ρ): its tail beyond the factor is below δ."""
    for probability in (0.3, 0.01, 1e-6):
        factor = odds_factor(rho, probability)
        assert stats.norm.sf(factor, rho, math.sqrt(2 * rho)) <= probability


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
    assert epsilon(0, 1e-6) == delta(0, 1) == odds_factor(0, 0.1) == 0
    assert posterior(0.2, 0) == pytest.approx(0.2)
    assert posterior(0.5, 1e6) == 1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: epsilon(-1, 0.1), "rho must be a finite number >= 0"),
        (lambda: epsilon(1, 0), "delta must be between 0 and 1"),
        (lambda: delta(1, math.inf), "epsilon must be a finite number"),
        (lambda: posterior(1, 1), "prior must be between 0 and 1"),
        (lambda: odds_factor("x", 0.1), "rho must be a number"),
    ],
)
def test_mistakes_raise_clear_errors(make, words):
    with pytest.raises(ss.SlowscaleError, match=words):
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


def test_a_pure_guarantee_is_used_where_it_says_more():
    """The exponential polylog with an error of 75, for a record of 10: ε = 1.30 and 78.6 %, not 6.55 and 98.8 %."""
    m = ss.ExponentialPolylog.calibrate(std=75)
    loss = Loss(m.policy(10), m.pure_policy(10))
    assert epsilon(loss.rho, 1e-6) == pytest.approx(6.55, abs=0.01)
    found, sure = best_epsilon([loss], 1e-6), certainty([loss])
    assert (found.value, found.exception, found.guarantee) == (loss.pure, 0, "PRDP")
    assert sure.value == pytest.approx(posterior(0.5, 1.30), abs=1e-3)
    assert (sure.exception, sure.guarantee) == (0, "PRDP")
    without = certainty([Loss(loss.rho)])
    assert without.value == posterior(0.5, odds_factor(loss.rho, 0.01)) > 0.98
    assert (without.exception, without.guarantee) == (0.01, "PRzCDP")


def subsets(losses, convert, probability):
    """Return all bounds: each pure loss taken as pure or converted from zCDP."""
    for choice in product([False, True], repeat=len(losses)):
        if all(one.pure is not None for one, taken in zip(losses, choice, strict=True) if taken):
            pure = sum(one.pure for one, taken in zip(losses, choice, strict=True) if taken)
            yield pure + convert(sum(one.rho for one, taken in zip(losses, choice, strict=True) if not taken))


def loss_lists():
    pure = st.floats(1e-4, 20)
    one = st.one_of(
        st.builds(Loss, st.floats(0, 20)),
        pure.map(lambda e: Loss(e * math.tanh(e / 2), e)),
        st.builds(Loss, st.floats(1e-6, 20), pure),
    )
    return st.lists(one, min_size=1, max_size=6)


@settings(max_examples=200, deadline=None)
@given(loss_lists(), st.sampled_from([0.01, 1e-3, 0.3]))
def test_the_best_bound_is_the_least_of_all(losses, probability):
    """No other choice of columns to count as pure gives a smaller shift of the odds."""
    brute = min(subsets(losses, lambda rho: odds_factor(rho, probability), probability))
    assert best_odds_factor(losses, probability).value == pytest.approx(brute, rel=1e-9)


@settings(max_examples=15, deadline=None)
@given(loss_lists())
def test_the_best_epsilon_is_among_those_that_hold(losses):
    every = list(subsets(losses, lambda rho: epsilon(rho, 1e-6), 1e-6))
    found = best_epsilon(losses, 1e-6).value
    assert any(found == pytest.approx(one, rel=1e-6, abs=1e-9) for one in every)
    assert found <= epsilon(sum(one.rho for one in losses), 1e-6) * (1 + 1e-9)  # all through zCDP
    taken = sum(one.pure for one in losses if one.pure is not None)
    assert found <= (taken + epsilon(sum(one.rho for one in losses if one.pure is None), 1e-6)) * (1 + 1e-9)


def test_many_small_pure_losses_go_through_zcdp():
    """In zCDP losses add like squares: a hundred columns of ε = 0.1 have a better bound than their sum, 10."""
    losses = [Loss(0.1 * math.tanh(0.05), 0.1)] * 100
    found = certainty(losses)
    assert found.value < posterior(0.5, 10)
    assert (found.exception, found.guarantee) == (0.01, "PRzCDP")
    mixed = certainty([Loss(3 * math.tanh(1.5), 3.0), Loss(0.01)])
    assert (mixed.exception, mixed.guarantee) == (0.01, "PRDP and PRzCDP")
    assert mixed.value == posterior(0.5, 3 + odds_factor(0.01, 0.01))


def test_the_bound_holds_for_laplace_and_gaussian_noise_together():
    """The privacy loss of both, computed over all outputs, exceeds the bound with at most its probability."""
    laplace, gaussian, size = ss.GeneralizedGaussian(sigma=2.0, p=1), ss.Gaussian(sigma=10.0), 3.0
    losses = [Loss(m.policy(size), m.pure_policy and m.pure_policy(size)) for m in (laplace, gaussian)]
    bound = best_odds_factor(losses, 0.01)
    assert bound.guarantee == "PRDP and PRzCDP"
    assert bound.value < odds_factor(sum(one.rho for one in losses), 0.01)
    # The loss by Laplace noise is at most ε; that by the Gaussian is N(ρ, 2ρ).
    rho = losses[1].rho
    exceeded = integrate.quad(
        lambda x: (
            laplace.noise.pdf(x - size)
            * stats.norm.sf(bound.value - (abs(x) - abs(x - size)) / 2.0, rho, math.sqrt(2 * rho))
        ),
        -60, 60, points=[0, size],
    )[0]  # fmt: skip
    assert exceeded <= 0.01


def test_infinite_losses():
    assert certainty([Loss(math.inf)]).value == 1.0
    assert best_epsilon([Loss(math.inf, 2.0)], 1e-6).value == 2.0
    assert best_epsilon([Loss(math.inf, math.inf), Loss(1.0)], 1e-6).value == math.inf
    assert certainty([Loss(0.0)]).value == 0.5


def test_a_loss_that_is_zero_in_one_notion_only():
    """A tiny pure loss has a ρ that is 0 as a float, and the reverse can be given."""
    tiny, free = Loss(0.0, 1e-200), Loss(1.0, 0.0)
    found = best_odds_factor([tiny, Loss(1.0, 2.0), free], 0.01)
    assert (found.value, found.exception, found.guarantee) == (2.0, 0, "PRDP")
    mixed = best_odds_factor([tiny, Loss(0.01), free], 0.01)
    assert mixed.value == odds_factor(0.01, 0.01)


def test_exceptions_are_reported():
    pure, zcdp = certainty([Loss(0.2, 0.5)]), certainty([Loss(0.1)])
    assert bounds_in_words([pure], share) == (["62.3 %"], "without exception, by the pure guarantee (PRDP)")
    assert bounds_in_words([zcdp], share) == (["81.2 %"], "except in 1 % of cases")
    texts, words = bounds_in_words([pure, zcdp], share)
    assert texts == ["62.3 %\u00a0†", "81.2 %"]
    assert words == "except in 1 % of cases; † without exception, by the pure guarantee (PRDP)"


def test_an_explanation_has_the_total_and_the_best_bounds():
    losses = [Loss(0.75, 1.3), Loss(0.5)]
    explained = explain(losses)
    assert explained.loss == 1.25
    assert explained.epsilon == best_epsilon(losses, 1e-6)
    assert explained.certainty == certainty(losses, prior=0.5, delta=0.01)
    assert (explain([]).loss, explain([]).certainty.value) == (0, 0.5)


def test_every_explanation_speaks_of_the_same_attacker():
    """The account, and (in tests of the command) `check` and `explain`, say the same of the same losses."""
    policy = RecordPolicy((("emp", ss.Gaussian(sigma=10).policy),))
    spent = Spent(policy.terms, releases=1, protects="firm")
    text = spent.describe(read_sizes([5]))
    sure = share(explain([Loss(policy({"emp": 5}))]).certainty.value)
    assert (
        f"The {highest_certainty('firm', 'by all releases together')} (except in 1 % of cases):\n  {sure} at 5" in text
    )
    assert "whether the firm is in the data" in text
    assert "if the firm is in one cell only" in text
