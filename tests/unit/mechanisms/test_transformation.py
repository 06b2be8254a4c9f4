"""Transformation mechanisms against plain quadrature over their noise."""

import math
from fractions import Fraction

import numpy as np
import pytest
from helpers.errors import refused
from helpers.strategies import instances, log_uniform, roots, transformations
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy import special, stats

import slowscale as ss

queries = st.one_of(st.just(0.0), log_uniform(1e-3, 1e9))
NODES, WEIGHTS = special.roots_hermitenorm(120)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def expectation(m, q, function):
    """E function(noisy transformed value), by Gauss-Hermite quadrature: exact for polynomials."""
    return float(WEIGHTS @ function(m.transform(q) + m.sigma * NODES))


@settings(max_examples=150)
@given(m=st.one_of(instances(ss.Root), instances(ss.Log, estimator="mean")), q=queries)
def test_mean_estimators_are_unbiased_with_the_stated_variance(m, q):
    """Theorem meanUnbiasTransform and Table unbiasedestimators."""
    assume(m.sigma < 3 or isinstance(m, ss.Root))  # Gauss-Hermite does not reach the lognormal's far tail
    assume(m.std(q) < 1e100)
    mean = expectation(m, q, m.estimate)
    assert mean == pytest.approx(q, rel=1e-9, abs=1e-9 * (m.std(q) + m.a))
    error = expectation(m, q, lambda v: (m.estimate(v) - q) ** 2)
    assert error == pytest.approx(m.variance(q), rel=1e-6, abs=1e-18 * (q + m.a) ** 2)
    assert m.bias(q) == pytest.approx(0, abs=1e-9 * m.std(q) + 1e-13 * (q + m.a))


@settings(max_examples=150)
@given(m=st.one_of(instances(ss.Root), instances(ss.Log, estimator="mean")), q=queries)
def test_variance_estimate_is_unbiased(m, q):
    assume(m.sigma < 1.5 or isinstance(m, ss.Root))
    assume(m.std(q) < 1e100)
    assert expectation(m, q, m.variance_estimate) == pytest.approx(m.variance(q), rel=1e-7)


@settings(max_examples=60)
@given(
    m=st.one_of(instances(ss.Root, estimator="median"), instances(ss.Log, estimator="median")),
    q=queries,
)
@example(m=ss.Root(k=2, sigma=1, estimator="median"), q=0.0)
def test_median_estimators_are_median_unbiased_with_the_stated_moments(m, q):
    """Theorem mdnUnbiasTransform, and moments by plain quadrature of the estimates."""
    assume(m.sigma < 3 or isinstance(m, ss.Root))
    v = m.transform(q)
    assert m.estimate(v) == pytest.approx(q, rel=1e-9, abs=1e-12 * (q + m.a))  # g(v) = q, and g rises: the median
    assert m.estimate(v - 1e-3 * m.sigma) <= m.estimate(v) <= m.estimate(v + 1e-3 * m.sigma)
    assert m.estimate(m.transform(0) - m.sigma) == 0  # the risk-minimising value where no sum is
    kink = (m.transform(0) - v) / m.sigma

    def moment(power):
        edges = np.unique(np.concatenate([np.linspace(-30, 30, 31), [max(kink, -30)]]))
        nodes, weights = special.roots_legendre(50)
        low, high = edges[:-1, None], edges[1:, None]
        n = (low + high) / 2 + (high - low) / 2 * nodes
        values = (m.estimate(v + m.sigma * n) - q) ** power * stats.norm.pdf(n)
        return float(((high - low) / 2 * values * weights).sum())

    bias = moment(1)
    spread = math.sqrt(max(moment(2) - bias**2, 0))
    # the plain quadrature above loses digits to cancellation in estimate − q
    slack = 1e-9 * spread + 1e-14 * (q + m.a)
    assert m.bias(q) == pytest.approx(bias, rel=1e-7, abs=slack)
    assert m.std(q) == pytest.approx(spread, rel=1e-6, abs=10 * slack)


def test_median_moments_of_the_log_in_closed_form():
    """E[(e^v − a)₊] of a normal v is the Black-Scholes formula."""
    m = ss.Log(sigma=0.8, a=3, estimator="median")
    for q in (0.0, 1.0, 50.0, 1e6):
        t = math.log((q + 3) / 3) / 0.8
        first = (q + 3) * math.exp(0.32) * special.ndtr(t + 0.8) - 3 * special.ndtr(t)
        second = (q + 3) ** 2 * math.exp(1.28) * special.ndtr(t + 1.6)
        second += -6 * (q + 3) * math.exp(0.32) * special.ndtr(t + 0.8) + 9 * special.ndtr(t)
        assert m.bias(q) == pytest.approx(first - q, rel=1e-10)
        assert m.variance(q) == pytest.approx(second - first**2, rel=1e-9)


@settings(max_examples=100)
@given(m=transformations, q=queries, level=st.floats(0.01, 0.999))
def test_prediction_intervals_cover_at_least_the_level(m, q, level):
    low, high = m.prediction_interval(q, level)
    covered = m.coverage(q, level)
    assert level - 1e-9 <= covered <= 1 + 1e-12
    assert low <= high
    assume(m.sigma < 10)
    # by brute force: the noise on a fine grid of equal probabilities
    n = special.ndtri((np.arange(100_000) + 0.5) / 100_000)
    estimates = m.estimate(m.transform(q) + m.sigma * n)
    slack = 1e-15 * (abs(low) + abs(high))
    inside = np.mean((estimates >= low - slack) & (estimates <= high + slack))
    if m.k % 2 or m.estimator == "median" if isinstance(m, ss.Root) else True:
        assert inside == pytest.approx(covered, abs=3e-4)
    else:
        # at an even estimator's minimum the density of the output is infinite: rounding there moves mass
        assert inside == pytest.approx(covered, abs=3e-3)


@pytest.mark.parametrize("k", range(2, 9))
def test_coverage_of_the_square_root_in_closed_form(k):
    """Erratum E10 prints the closed form for k = 2; for k > 2 the interval still covers at least the level."""
    z = stats.norm.isf(0.025)
    for v in (0.0, 0.3, 1.0, 1.9, 2.0, 2.5, 4.0, 30.0):
        m = ss.Root(k=k, sigma=1.0)
        covered = m.coverage(v**k)
        if k == 2:
            expected = (
                special.ndtr(z) - special.ndtr(-z - 2 * v)
                if v < z
                else 0.95 + special.ndtr(z - 2 * v) - special.ndtr(-z - 2 * v)
            )
            assert covered == pytest.approx(expected, abs=1e-12)
        assert 0.95 - 1e-12 <= covered < 1


@given(m=roots)
def test_root_as_a_user_given_transformation(m):
    """The general mechanism and the special one agree where both speak."""
    assume(m.a >= 1e-3 and m.sigma < 10)
    k = m.k
    general = ss.Transformation(lambda x: x ** (1 / k), lambda v: v**k, m.sigma, m.a)
    special_ = ss.Root(k=k, sigma=m.sigma, a=m.a, estimator="median")
    for x in (0.0, 1.0, 1e6):
        assert general.policy(x) == pytest.approx(special_.policy(x), rel=1e-7, abs=1e-12)
    assert general.std(100.0) == pytest.approx(special_.std(100.0), rel=1e-6)
    assert general.prediction_interval(100.0) == pytest.approx(special_.prediction_interval(100.0), rel=1e-7, abs=1e-7)


def test_own_estimator_function():
    plain = ss.Transformation(np.sqrt, np.square, 0.5, 0, estimator=lambda v: v**2 - 0.25)
    mean = ss.Root(k=2, sigma=0.5)
    assert plain.estimate(3.0) == mean.estimate(3.0)
    assert plain.variance(9.0) == pytest.approx(mean.variance(9.0), rel=1e-10)
    assert plain.bias(9.0) == pytest.approx(0, abs=1e-12)
    assert plain.prediction_interval(9.0) == pytest.approx(mean.prediction_interval(9.0))
    assert plain.prediction_interval(0.1) == pytest.approx(mean.prediction_interval(0.1), rel=1e-6)
    assert plain.coverage(0.1) == pytest.approx(mean.coverage(0.1), rel=1e-6)


def test_infinite_variance_is_reported():
    """exp(v²) of a normal v has no second moment when 4σ² >= 1."""
    f, inverse = (lambda x: np.sqrt(np.log(x))), (lambda v: np.exp(v**2))
    assert ss.Transformation(f, inverse, 0.6, 3).std(10.0) == math.inf
    assert ss.Transformation(f, inverse, 0.1, 3).std(10.0) < math.inf


@pytest.mark.parametrize(
    ("f", "inverse", "a"),
    [
        (np.sqrt, np.square, 0),
        (np.log, np.exp, 1e-3),
        (np.log1p, np.expm1, 0),
        (np.log1p, np.expm1, -0.5),
        (np.cbrt, lambda v: v**3, 0),
        (np.arcsinh, np.sinh, 0),
        (lambda x: x, lambda v: v, 5),
        (lambda x: x**0.7, lambda v: np.abs(v) ** (1 / 0.7), 1),
        (lambda x: np.minimum(2 * x, x + 1), lambda v: np.maximum(v / 2, v - 1), 0),
        (math.log, math.exp, 1),
    ],
)
def test_good_transformations_are_accepted(f, inverse, a):
    m = ss.Transformation(f, inverse, 0.5, a)
    low, high = m.prediction_interval(100.0)
    assert 0 <= low < 100 < high
    assert m.coverage([0.0, 100.0]).shape == (2,)


@pytest.mark.parametrize(
    ("f", "inverse", "a", "subject", "code"),
    [
        (np.square, np.sqrt, 0, "f", "not-concave"),
        (lambda x: -x, lambda v: -v, 0, "f", "not-increasing"),
        (np.sin, np.arcsin, 0, "f", "not-increasing"),
        (lambda x: np.minimum(x, 100.0), lambda v: v, 0, "f", "not-increasing"),
        (lambda x: x + np.where(x > 1000, np.sqrt(np.abs(x - 1000)), 0), lambda v: v, 0, "f", "not-concave"),
        (np.log, np.exp, 0, "f", "not-finite"),
        (np.sqrt, lambda v: v**2 + 1e-3, 0, "inverse", "value"),
        (np.sqrt, lambda v: v**2 * 1.001, 0, "inverse", "value"),
        (np.log, np.exp2, 1, "inverse", "value"),
        ("sqrt", np.square, 0, "f", "type"),
        (np.sqrt, None, 0, "inverse", "type"),
        (lambda x: x / (1 + x), lambda y: y / (1 - y), 0, "f", "bounded"),
        (np.arctan, np.tan, 0, "f", "bounded"),
        (np.tanh, np.arctanh, 0, "f", "not-increasing"),
        (lambda x: "no", np.square, 0, "<lambda>", "result"),
        (lambda x: 3.0, np.square, 0, "<lambda>", "result"),
        (lambda x: x * 1j, np.square, 0, "<lambda>", "result"),
        (lambda x: {}[0], np.square, 0, "<lambda>", "function"),
    ],
)
def test_bad_transformations_are_caught(f, inverse, a, subject, code):
    with refused(ss.SlowscaleError, subject, code=code):
        ss.Transformation(f, inverse, 0.5, a)


@pytest.mark.parametrize(
    "m", [ss.Root(k=4, sigma=0.5), ss.Log(sigma=0.5), ss.Transformation(np.log1p, np.expm1, 0.5, 0)]
)
def test_negative_and_broken_queries(m):
    for ask in (m.variance, m.std, m.bias, m.transform, m.prediction_interval, m.coverage):
        with refused(ss.ParameterError, "q", code="value"):
            ask(-1)
        with refused(ss.ParameterError, "q", code="value"):
            ask([1, math.nan])


def test_own_estimator_with_a_large_bias_keeps_its_std():
    m = ss.Transformation(np.sqrt, np.square, 1, 0, estimator=lambda v: 1e12 + v)
    assert m.std(4) == pytest.approx(1, rel=1e-3)
    assert m.bias(4) == pytest.approx(1e12)


def test_medians_with_a_far_offset_or_a_large_scale():
    # (v)₊ of a standard normal v has the variance 1/2 − 1/(2π)
    m = ss.Root(k=1, sigma=1e-6, a=1e9, estimator="median")
    assert m.std(0) == pytest.approx(1e-6 * math.sqrt(0.5 - 0.5 / math.pi), rel=1e-9)
    for sigma in (18.0, 25.0):
        # far out the cut at 0 does not matter: E e^(2v) = e^(2σ²)
        assert math.log(ss.Log(sigma=sigma, estimator="median").std(0.0)) == pytest.approx(sigma**2, rel=1e-3)


def test_large_k_and_extreme_scales():
    assert ss.Root(k=1, sigma=1.0).std(1e200) == 1.0
    assert ss.Root(k=2, sigma=1e-6).std(1e308) == pytest.approx(2e-6 * 1e154, rel=1e-12)
    assert math.log(ss.Log(sigma=27.0).std(1.0)) == pytest.approx(27**2 / 2 + math.log(2), rel=1e-12)
    assert ss.Root(k=18, sigma=1e9).variance_estimate(1e10) > 0
    assert ss.Log(sigma=1e200).std(3) == math.inf
    m = ss.Root(k=200, sigma=1e-4)
    assert math.isfinite(m.std(1e6))
    assert m.policy(1e6) > 0
    assert ss.Root(k=4, sigma=1e-3).std(1e15) == pytest.approx(4 * 1e-3 * (1e15) ** 0.75, rel=1e-6)
    assert ss.Log(sigma=40.0).std(1.0) == math.inf
    assert ss.Root(k=3, sigma=1e-6).std([0.0, 1e15]) == pytest.approx([math.sqrt(6) * 1e-18, 3 * 1e-6 * 1e10], rel=1e-6)


@pytest.mark.parametrize("k", [1, 4, 49, 50, 51, 60, 200])
def test_coefficients_of_the_variance_are_exact(k):
    """C(k, i)²·(k − i)!, against whole numbers; up to 50 the logarithm is that of the exact number."""
    found = ss.Root(k=k, sigma=1.0)._log_coefficients()
    exact = [math.log(math.comb(k, i) ** 2 * math.factorial(k - i)) for i in range(k)]
    assert found == pytest.approx(exact, rel=1e-15 if k <= 50 else 1e-12, abs=0 if k <= 50 else 1e-10)


@pytest.mark.parametrize("k", [2, 5, 60])
def test_variances_of_large_roots_are_those_of_exact_arithmetic(k):
    """Σ C(k, i)²·(k − i)!·σ^(2(k−i))·v^(2i), and its unbiased estimate at He_2i's known value at 0."""
    m, v = ss.Root(k=k, sigma=0.5), Fraction(3, 2)
    terms = [math.comb(k, i) ** 2 * math.factorial(k - i) * Fraction(1, 2) ** (2 * (k - i)) for i in range(k)]
    true = sum(term * v ** (2 * i) for i, term in enumerate(terms))
    assert m.variance(float(v**k)) == pytest.approx(float(true), rel=1e-9)
    if k < 60:  # where the terms of the estimate do not cancel: σ^2i·He_2i(0) = (2i−1)!!·(−σ²)^i
        at_0 = [math.prod(range(1, 2 * i, 2)) * Fraction(-1, 4) ** i for i in range(k)]
        true = float(sum(term * value for term, value in zip(terms, at_0, strict=True)))
        assert m.variance_estimate(0.0) == pytest.approx(true, rel=1e-9)


@pytest.mark.parametrize("sigma", [1e-7, 0.01, 0.99, 1.0, 1.01, 1.5, 2.5])
def test_median_moments_of_the_log_do_not_cancel(sigma):
    """Both ways to compute them, by quadrature and in closed form, against a sum over the noise."""
    m, n = ss.Log(sigma=sigma, a=3, estimator="median"), np.linspace(-20, 20, 400_001)
    weights = np.exp(-(n**2) / 2) / np.exp(-(n**2) / 2).sum()
    for q in (0.0, 1.0, 50.0):
        error = np.maximum((q + 3) * np.expm1(sigma * n), -q)
        bias = weights @ error
        assert m.bias(q) == pytest.approx(bias, rel=1e-4, abs=1e-6 * sigma * (q + 3))
        assert m.std(q) == pytest.approx(math.sqrt(weights @ (error - bias) ** 2), rel=1e-4)
