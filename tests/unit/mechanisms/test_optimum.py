"""The least standard deviation of any noise with a policy: the bound holds, is proved, and is near what is known."""

import dataclasses
import math

import mpmath
import numpy as np
import pytest
from helpers.errors import refused
from helpers.strategies import log_uniform
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq

import slowscale as ss
from slowscale.mechanisms import optimum
from slowscale.policy import ConstantPolicy

LAPLACE = ss.GeneralizedGaussian(sigma=1, p=1)
POLYLOG = ss.ExponentialPolylog.calibrate(std=75)
ROOT = ss.GeneralizedGaussian.calibrate(std=75, p=0.5)


@pytest.mark.parametrize(
    ("mechanism", "known", "within"),
    [
        (LAPLACE, math.sqrt(2), 0.004),  # Laplace noise is optimal
        (POLYLOG, 46.0, 0.012),  # mathematics, section 9: float programs without a proof
        (ROOT, 50.7, 0.012),
    ],
)
def test_known_optima_lie_between_the_bound_and_what_is_attained(mechanism, known, within):
    found = ss.least_std(mechanism.pure_policy)
    assert known * (1 - within) < found.std < known * 1.0005
    assert known * 0.9995 < found.attained < known * (1 + within)
    assert found.std < found.attained * 1.0001
    assert found.verify()


mechanisms = st.one_of(
    st.builds(ss.GeneralizedGaussian, sigma=log_uniform(1e-6, 1e9), p=st.floats(0.15, 1)),
    st.builds(ss.ExponentialPolylog, d=st.floats(3.5, 50), sigma=log_uniform(1e-6, 1e9), p=st.just(1.0)),
    st.builds(ss.ExponentialPolylog, d=st.floats(0.1, 20), sigma=log_uniform(1e-6, 1e9), p=st.just(2.0)),
    st.builds(ss.ExponentialPolylog, d=st.floats(0.05, 20), sigma=log_uniform(1e-6, 1e9), p=st.floats(2.5, 6)),
    st.builds(ss.ArsinhNormal, scale=log_uniform(1e-6, 1e9), shape=st.floats(0.2, 2)),
)


@settings(max_examples=40, deadline=None)
@given(mechanisms)
def test_no_mechanism_is_better_than_the_bound(m):
    found = ss.least_std(m.pure_policy, bins=40)
    assert 0 < found.std <= m.std()
    assert found.std <= found.attained <= m.std() * 1.02  # the quadrature is coarse with so few bins
    assert found.verify()


@pytest.mark.parametrize("mechanism", [LAPLACE, POLYLOG, ROOT])
def test_more_bins_raise_the_bound(mechanism):
    bounds = [ss.least_std(mechanism.pure_policy, bins).std for bins in (15, 30, 60, 120)]
    assert bounds == sorted(bounds)
    assert bounds[-1] > 1.02 * bounds[0]


@settings(max_examples=10, deadline=None)
@given(log_uniform(1e-60, 1e60))
def test_the_bound_scales_with_the_noise(scale):
    for make in (
        lambda sigma: ss.GeneralizedGaussian(sigma=sigma, p=0.6),
        lambda sigma: ss.ExponentialPolylog(d=0.5, sigma=sigma),
    ):
        one, other = (ss.least_std(make(sigma).pure_policy, 30) for sigma in (1.0, scale))
        assert other.std == pytest.approx(one.std * scale, rel=1e-6)
        assert other.attained == pytest.approx(one.attained * scale, rel=1e-6)


def test_a_larger_policy_allows_less_noise():
    pure = ss.ExponentialPolylog(d=1.0).pure_policy
    assert ss.least_std(2 * pure, 60).attained < ss.least_std(pure, 60).std


def noises(policy, rng, scale):
    """Return densities on z >= 0 that have the policy, of many shapes: maxima and sums of shifted exp(-P)."""
    found = [lambda z: np.exp(-policy(z))]
    for width in scale * np.array([0.1, 0.5, 2.0]):
        found.append(lambda z, width=width: np.exp(-policy((z - width).clip(0))))
    for _ in range(4):
        places, heights = scale * rng.exponential(1, 5), np.exp(rng.normal(0, 2, 5))

        def highest(z, places=places, heights=heights):
            both = [h * np.exp(-policy(np.abs(z - s))) for x, h in zip(places, heights, strict=True) for s in (x, -x)]
            return np.max(both, axis=0)

        def total(z, places=places, heights=heights):
            both = [h * np.exp(-policy(np.abs(z - s))) for x, h in zip(places, heights, strict=True) for s in (x, -x)]
            return np.sum(both, axis=0)

        found += [highest, total]
    return found


@pytest.mark.parametrize(
    "mechanism", [LAPLACE, POLYLOG, ROOT, ss.ExponentialPolylog(d=4, p=1), ss.GeneralizedGaussian(sigma=1, p=0.2)]
)
def test_every_noise_with_the_policy_is_feasible_in_the_program(mechanism):
    """The relaxation, checked against integrals of real densities over the bins; some reach the limits nearly."""
    policy, rng = mechanism.pure_policy, np.random.default_rng(14)
    edges = optimum._edges(policy, 30, 1e-3)
    grid = optimum._Bins.of(policy, edges)
    left, widths = edges[:-1], np.diff(edges)
    parts = 4000
    z = left[:, None] + widths[:, None] * (np.arange(parts) + 0.5) / parts
    nearest_factor, nearest_square = math.inf, math.inf
    for density in noises(policy, rng, mechanism.std() / 4):
        h = density(z)
        means = h.mean(axis=1)
        slack = grid.log_factors - np.log(means[:, None] / means)
        off = ~np.eye(30, dtype=bool)
        assert slack[off].min() > -1e-4  # the integrals are midpoint rules over kinks
        squares = (z**2 * h).mean(axis=1) / means
        assert (squares >= grid.costs * (1 - 1e-4)).all()
        nearest_factor = min(nearest_factor, slack[off].min())
        nearest_square = min(nearest_square, (squares[5:] / grid.costs[5:]).min())
    assert nearest_factor < 0.05  # so factors that were 5 % too small would be noticed
    assert nearest_square < 1.2


@pytest.mark.parametrize("mechanism", [POLYLOG, ss.GeneralizedGaussian(sigma=3, p=0.7)])
def test_the_proof_by_hand(mechanism):
    """The multipliers prove the bound also with factors and costs from integrals, in place of the library's sums.

    Integrals give smaller factors and larger costs than the sums, and thereby at least the library's bound.
    """
    found = ss.least_std(mechanism.pure_policy, 12)
    edges = found.edges.tolist()

    def loss(x):
        if mechanism is POLYLOG:
            return POLYLOG.d * (math.log(x + math.e) ** 2 - 1)
        return (x / 3) ** 0.7

    def mean(function, low, high):
        return quad(function, low, high, epsabs=0, epsrel=1e-10)[0] / (high - low)

    def factor(i, j):
        (a, b), (c, d) = edges[i : i + 2], edges[j : j + 2]
        x, y = (a, d) if i < j else (b, c)  # the points that are farthest apart
        return min(
            math.exp(loss(max(abs(a - c), abs(b - d)))),
            1 / mean(lambda y: math.exp(-loss(abs(x - y))), c, d),
            mean(lambda x: math.exp(loss(abs(x - y))), a, b),
        )

    def cost(j):
        """Return the c for which the densities exp(±P) about √c have c as the mean of z²."""
        low, high = edges[j : j + 2]

        def excess(s):
            near = quad(lambda x: (x * x - s * s) * math.exp(loss(s - x)), low, s, epsabs=1e-9 * high**3)[0]
            return near + quad(lambda x: (x * x - s * s) * math.exp(-loss(x - s)), s, high, epsabs=1e-9 * high**3)[0]

        return brentq(excess, low + 1e-9 * high, high * (1 - 1e-9)) ** 2

    values = [cost(j) for j in range(12)]
    for (i, j), multiplier in zip(found.pairs.tolist(), found.multipliers.tolist(), strict=True):
        assert i != j
        assert multiplier >= 0
        values[i] += multiplier / (edges[i + 1] - edges[i])
        values[j] -= multiplier * factor(i, j) / (edges[j + 1] - edges[j])
    proved = math.sqrt(min(*values, edges[-1] ** 2))
    assert 0.4 * mechanism.std() < found.std <= proved


def test_a_bound_that_is_not_proved_fails_verification():
    found = ss.least_std(LAPLACE.pure_policy, 30)
    assert found.verify()
    assert not dataclasses.replace(found, std=found.std * (1 + 1e-9)).verify()
    assert not dataclasses.replace(found, multipliers=found.multipliers * 0.999).verify()


def test_losses_are_as_accurate_as_the_margin_for_rounding_assumes():
    rng = np.random.default_rng(5)
    for _ in range(200):
        x = float(10 ** rng.uniform(-6, 9))
        p, d, q = float(rng.uniform(0.1, 1)), float(rng.uniform(0.05, 20)), float(rng.uniform(1, 6))
        power, polylog = (
            ss.GeneralizedGaussian(sigma=2.5, p=p).pure_policy,
            ss.ExponentialPolylog(d=d + 1, p=q).pure_policy,
        )
        with mpmath.workdps(40):
            exact = mpmath.power(mpmath.mpf(x) / 2.5, p)
            assert abs(power(x) / exact - 1) < optimum.LOSS_ROUNDING
            rise = mpmath.power(mpmath.log(mpmath.mpf(x) + polylog.a), q) - mpmath.power(mpmath.log(polylog.a), q)
            assert abs(polylog(x) / (mpmath.mpf(polylog.d) * rise) - 1) < optimum.LOSS_ROUNDING


@pytest.mark.parametrize(
    ("call", "error", "subject", "code"),
    [
        (lambda: ss.least_std(LAPLACE), TypeError, "policy", "type"),
        (lambda: ss.least_std(LAPLACE.policy), ValueError, "policy", "notion"),
        (lambda: ss.least_std(LAPLACE.pure_policy, 5), ValueError, "bins", "value"),
        (lambda: ss.least_std(LAPLACE.pure_policy, 501), ValueError, "bins", "value"),
        (lambda: ss.least_std(LAPLACE.pure_policy, 20.5), TypeError, "bins", "type"),
        (
            lambda: ss.least_std(ConstantPolicy(1, "PRDP")),
            ValueError,
            "policy",
            "infinite",
        ),
        (
            lambda: ss.least_std(ss.ExponentialPolylog(d=2.9, p=1).pure_policy),
            ValueError,
            "policy",
            "infinite",
        ),
        (
            lambda: ss.least_std(ss.GeneralizedGaussian(sigma=1e100, p=1).pure_policy),
            ValueError,
            "policy",
            "value",
        ),
    ],
)
def test_what_cannot_be_bounded_is_said(call, error, subject, code):
    with refused(error, subject, code=code):
        call()


def test_where_the_solver_fails_a_shorter_grid_is_tried(monkeypatch):
    real, tried = optimum._solve, []

    def failing(grid):
        tried.append(grid.edges[-1])
        return None if len(tried) == 1 else real(grid)

    monkeypatch.setattr(optimum, "_solve", failing)
    assert 1.3 < ss.least_std(LAPLACE.pure_policy, 30).std < math.sqrt(2)
    assert tried[0] > tried[1]
    monkeypatch.setattr(optimum, "_solve", lambda grid: None)
    with refused(ValueError, "bins", code="unsolved"):
        ss.least_std(LAPLACE.pure_policy, 30)


def test_the_text_names_both_numbers():
    found = ss.least_std(LAPLACE.pure_policy, 30)
    assert str(found).startswith("a standard deviation of at least 1.3")
    assert "can be attained" in str(found)
