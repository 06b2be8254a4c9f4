"""Mean-unbiased roots with noise other than Gaussian and Laplace, against rigorous integrals of rewritten densities."""

import math
from itertools import pairwise

import numpy as np
import pytest
from flint import acb, arb
from helpers.errors import refused
from scipy import special

import slowscale as ss
from slowscale.mechanisms.appell import appell, exact_coefficients, polynomial
from slowscale.policy import PolylogPolicy, PowerPolicy
from slowscale.sampling.balls import Ball
from slowscale.sampling.exact import at_precision, lift_arb

SUMS = (0.0, 0.3, 1.0, 17.0, 1_000.0, 1e6)


def line(size, loss, power):
    """The density of noise from points on one of their lines, in the coordinate ln z."""
    return lambda y: (y - loss * (power() * (y - arb(size).log())).exp()).exp()


# Each noise of scale 1, and the parts of its density for z > 0: z in some coordinate, the density in this coordinate up
# to a factor, and the ends of the part. Functions are evaluated at the working precision.
POWER = ss.GeneralizedGaussian(sigma=1, p=0.5), [(lambda t: t * t, lambda t: t * (-t).exp(), 0, 300)]
THREE_QUARTERS = (
    ss.GeneralizedGaussian(sigma=1, p=0.75),
    [(lambda t: t**4, lambda t: t**3 * (-(t**3)).exp(), 0, 7)],
)
LAPLACE = ss.GeneralizedGaussian(sigma=1, p=1), [(lambda t: t, lambda t: (-t).exp(), 0, 300)]
ARSINH_NORMAL = (
    ss.ArsinhNormal(scale=1, shape=0.875),
    [(lambda n: (n * arb(0.875)).sinh(), lambda n: (-n * n / 2).exp(), 0, 40)],
)
POLYLOG_2 = (
    ss.ExponentialPolylog(d=2, a=3),
    [(lambda u: u.exp() - 3, lambda u: (u - 2 * u * u).exp(), lambda: arb(3).log(), 20)],
)
POLYLOG_3_HALVES = (
    ss.ExponentialPolylog(d=4, a=2, p=1.5),
    [(lambda u: u.exp() - 2, lambda u: (u - 4 * u * u.sqrt()).exp(), lambda: arb(2).log(), 24)],
)
POLYLOG_1 = (
    ss.ExponentialPolylog(d=14, a=2, p=1),
    [(lambda y: 2 * (y.exp() - 1), lambda y: (-13 * y).exp(), 0, 150)],
)
POINTS = (
    ss.FromPolicy([(1, 0.5), (10, 2), (1000, 9)]),
    [
        (lambda t: t, lambda t: (-t / 2).exp(), 0, 1),
        (acb.exp, line(1, arb(0.5), lambda: arb(4).log() / arb(10).log()), 0, lambda: arb(10).log()),
        (acb.exp, line(10, arb(2), lambda: arb(4.5).log() / arb(100).log()), lambda: arb(10).log(), 18),
    ],
)
PROMISE = ss.FromPolicy(PowerPolicy(sigma=3, p=0.5)), [(lambda t: 3 * t * t, lambda t: t * (-t).exp(), 0, 300)]
CASES = [
    (ss.Root(k=k, sigma=sigma, a=a, noise=noise, estimator="mean"), parts)
    for (noise, parts), k, sigma, a in [
        (POWER, 1, 2.0, 0.0),
        (POWER, 2, 0.5, 4.0),
        (POWER, 4, 0.25, 10.0),
        (THREE_QUARTERS, 3, 0.5, 0.0),
        (LAPLACE, 4, 1.0, 0.0),
        (ARSINH_NORMAL, 3, 0.5, 1.0),
        (ARSINH_NORMAL, 4, 0.125, 0.0),
        (POLYLOG_2, 2, 1.0, 0.0),
        (POLYLOG_2, 5, 0.5, 3.0),
        (POLYLOG_3_HALVES, 4, 0.5, 0.0),
        (POLYLOG_1, 3, 1.5, 0.0),
        (POLYLOG_1, 6, 1.0, 2.0),
        (POINTS, 2, 0.5, 0.0),
        (POINTS, 3, 0.125, 1.0),
        (PROMISE, 2, 0.5, 0.0),
    ]
]
cases = pytest.mark.parametrize(("m", "parts"), CASES, ids=lambda x: str(x) if isinstance(x, ss.Mechanism) else "")


def mean_of(function, m, parts, q):
    """E function(f(q + a) + Z), as a ball."""

    def computed():
        middle = acb(arb(q) + arb(m.a)).pow(acb(1) / m.k) if q + m.a else acb(0)
        total, whole = acb(0), acb(0)
        for place, density, *ends in parts:
            low, high = (acb(end() if callable(end) else end) for end in ends)

            def weighted(s, _, place=place, density=density):
                z = place(s) * arb(m.sigma)
                return (function(middle + z) + function(middle - z)) / 2 * density(s)

            total += acb.integral(weighted, low, high)
            whole += acb.integral(lambda s, _, density=density: density(s), low, high)
        return (total / whole).real

    return at_precision(160, computed)


@cases
@pytest.mark.parametrize("q", SUMS)
def test_means_and_variances_are_exact(m, parts, q):
    estimate = lambda v: m._exact_estimate(v, lift_arb)  # noqa: E731
    mean = mean_of(estimate, m, parts, q)
    assert abs(float(mean) - q) <= 1e-10 * (1 + q)
    variance = float(mean_of(lambda v: (estimate(v) - q) ** 2, m, parts, q))
    assert m.variance(q) == pytest.approx(variance, rel=1e-10)
    assert m.bias(q) == 0


@cases
def test_the_estimate_of_the_variance_is_unbiased(m, parts):
    def formula(v, number):
        coefficients = [number(float(one)) for one in appell(m._standard_noise, m.k).variance_estimate]
        return polynomial(coefficients, 2 * m.k - 2, v, number(m._unit)) * number(m._unit) ** 2

    for q in SUMS:
        assert float(mean_of(lambda v: formula(v, arb), m, parts, q)) == pytest.approx(m.variance(q), rel=1e-9)
    v = m.sigma * np.linspace(-9, 9, 19)
    assert m.variance_estimate(v) == pytest.approx(formula(v, float), rel=1e-12, abs=1e-12 * m.variance(0))


@cases
def test_floats_and_float_balls_agree_with_arb(m, parts):
    middle = m.transform(5.0)
    v = middle + m.sigma * np.concatenate(
        [-np.geomspace(1e-3, 1e4, 60), np.geomspace(1e-3, 1e4, 60), m._turns(np.ones(1))[0]]
    )
    size = np.abs(appell(m._standard_noise, m.k).estimate) @ [
        m._unit ** (2 * n) * np.abs(v) ** (m.k - 2 * n) for n in range(m.k // 2 + 1)
    ]
    exact = at_precision(300, lambda: [m._exact_estimate(arb(one), lift_arb) for one in v])
    assert (np.abs(m.estimate(v) - np.array([float(one) for one in exact])) <= 1e-14 * (size + m.a)).all()
    ball = m._exact_estimate(Ball(v), lambda x: Ball(float(x)))
    for one, mid, radius in zip(exact, ball.mid, ball.inflated(), strict=True):
        assert arb(mid, radius).contains(one)
    assert (ball.inflated() <= 1e-13 * (size + m.a)).all()


@cases
@pytest.mark.parametrize("q", [0.0, 1.0, 1000.0])
def test_intervals_contain_the_output_as_often_as_stated(m, parts, q):
    """Against the probabilities of the intervals between all real roots of the polynomial at both ends."""
    low, high = m.prediction_interval(q, 0.9)
    half, middle = m.added.noise.isf(0.05), m.transform(q)
    inside = m.estimate(middle + half * np.linspace(-1, 1, 20_001))
    assert low <= inside.min()
    assert inside.max() <= high
    assert high - low <= (inside.max() - inside.min()) * (1 + 1e-6)
    falling = np.zeros(m.k + 1)
    falling[::2] = appell(m._standard_noise, m.k).estimate * m._unit ** (2.0 * np.arange(m.k // 2 + 1))
    roots = [np.roots(falling - np.append(np.zeros(m.k), end + m.a)) for end in (low, high)]
    real = np.sort([root.real for found in roots for root in found if abs(root.imag) < 1e-6 * abs(root)])
    edges = np.concatenate([[real[0] - 1], real, [real[-1] + 1]])
    covered = [low <= m.estimate((one + two) / 2) <= high for one, two in pairwise(edges)]
    share = sum(
        m.added.noise.cdf(two - middle) - m.added.noise.cdf(one - middle)
        for (one, two), kept in zip(pairwise(edges), covered, strict=True)
        if kept
    )
    assert m.coverage(q, 0.9) == pytest.approx(share, abs=1e-8)
    assert m.coverage(q, 0.9) >= 0.9 - 1e-9


@cases
def test_the_estimate_is_monotone_between_its_turns(m, parts):
    turns = m._turns(np.zeros(1))[0]
    reach = 10 * max([m.sigma, *np.abs(turns)])
    for low, high in zip([-reach, *turns], [*turns, reach], strict=True):
        steps = np.diff(m.estimate(np.linspace(low, high, 1001)[1:-1]))
        assert (steps >= 0).all() or (steps <= 0).all()


@cases
def test_drawn_values_are_the_ideal_ones_rounded(m, parts):
    sums = np.array([0, 1, 17, 1000, 10**6] * 40)
    drawn = m.release(sums, unit="0.001")
    again = m.estimate(drawn.transformed)
    step = m.sigma * 2e-5  # the transformed value is published on a grid of about σ/65,536
    slope = np.abs(m.estimate(drawn.transformed + step) - m.estimate(drawn.transformed - step))
    assert (np.abs(drawn.floats - again) <= slope + 0.002 + 1e-9 * np.abs(again)).all()
    assert np.isfinite(drawn.se).all()


def test_for_gaussian_noise_it_is_the_hermite_polynomial():
    for k in range(1, 13):
        found, m = appell(ss.Gaussian(sigma=1).noise, k), ss.Root(k=k, sigma=1)
        x = np.linspace(0, 5, 11)
        assert polynomial(found.estimate, k, x, 1.0) == pytest.approx(special.eval_hermitenorm(k, x), abs=1e-8 * 5**k)
        assert polynomial(found.variance, 2 * k - 2, x, 1.0) == pytest.approx(m.variance(x**k), rel=1e-12)
        unbiased = polynomial(found.variance_estimate, 2 * k - 2, x, 1.0)
        assert unbiased == pytest.approx(m.variance_estimate(x), rel=1e-9, abs=1e-9 * np.abs(unbiased).max())
        assert found.turns == pytest.approx(m._turns(np.zeros(1))[0], abs=1e-9)


def test_exact_coefficients_become_exact_to_any_number_of_bits():
    for noise in (one.noise for one, _ in (POWER, ARSINH_NORMAL, POLYLOG_2, POLYLOG_1, POINTS)):
        found = [at_precision(bits, lambda noise=noise: exact_coefficients(noise, 4, arb(1))) for bits in (300, 1200)]
        balls = exact_coefficients(noise, 4, Ball(np.zeros(1)))
        for coarse, fine, ball in zip(*found, balls, strict=True):
            assert coarse.overlaps(fine)
            assert fine.rad() <= abs(fine.mid()) * arb(2) ** -1150
            assert arb(ball.mid, ball.rad).contains(fine)
            assert ball.rad <= 1e-15 * abs(ball.mid) + 1e-299


@pytest.mark.parametrize(
    ("k", "noise"),
    [
        (2.5, ss.GeneralizedGaussian(sigma=1, p=0.5)),
        (13, ss.GeneralizedGaussian(sigma=1, p=0.5)),
        (4, ss.ExponentialPolylog(d=5, p=1)),
        (3, ss.ExponentialPolylog(d=4, p=1)),  # the moments of even orders below 3 exist
        (12, ss.ArsinhNormal(scale=1, shape=6)),
        (2, ss.FromPolicy(PowerPolicy(sigma=3, p=0.5) + PolylogPolicy(d=1))),
    ],
    ids=str,
)
def test_estimators_that_do_not_exist_are_refused(k, noise):
    with refused(ss.ParameterError, "estimator", code="no-mean"):
        ss.Root(k=k, sigma=1, noise=noise, estimator="mean")
    assert ss.Root(k=k, sigma=1, noise=noise).estimator == "median"


def test_the_mean_is_chosen_where_it_has_a_variance_and_is_no_rarity():
    polylog = [
        ss.Root(k=2, sigma=1, noise=ss.ExponentialPolylog(d=d, p=1), estimator=e)
        for d in (4, 5.5)
        for e in (None, "mean")
    ]
    assert [m.estimator for m in polylog] == ["median", "mean", "mean", "mean"]
    assert [math.isfinite(m.std(7)) for m in polylog] == [False, False, True, True]
    assert np.isinf(polylog[1].variance_estimate([0.0, 5.0])).all()
    heavy, light = (ss.Root(k=4, sigma=1, noise=ss.ArsinhNormal(scale=1, shape=shape)) for shape in (1.6, 0.8))
    assert (heavy.estimator, light.estimator) == ("median", "mean")


def test_sums_of_cells_have_intervals_from_moments():
    m = ss.Root(k=2, sigma=1, noise=ss.GeneralizedGaussian(sigma=1, p=0.75))
    v = m.transform(np.array([0.0, 10.0, 100.0]))
    second, fourth = m._summed_cumulants(v, np.zeros(3, int), np.array([3.0]), np.array([0.01]))
    assert second[0] >= m.variance([0.0, 10.0, 100.0]).sum()
    assert fourth[0] == math.inf
