"""Integrals over the noise of a transformation: the rule itself, and moments known in closed form."""

import math

import numpy as np
import pytest

import slowscale as ss
from slowscale.mechanisms.quadrature import INTERPOLATION_ERROR, _rule, error_moments, exact_coverage, interpolated
from slowscale.mechanisms.transformation import TransformationMechanism
from slowscale.noise import GaussianNoise


def test_the_rule_integrates_the_normal_density():
    nodes, weights = _rule.__wrapped__()
    density = np.exp(-(nodes**2) / 2)
    for power, moment in ((0, 1), (1, 0), (2, 1), (4, 3), (6, 15)):
        assert weights @ (nodes**power * density) == pytest.approx(moment, abs=1e-12)
    assert weights @ np.exp(-((nodes - 30) ** 2) / 2) == pytest.approx(1)  # far out, too
    assert (np.diff(nodes) > 0).all()
    assert (nodes[0], nodes[-1]) == pytest.approx((-45, 45), abs=0.01)  # as far out as the squares of errors count


def test_moments_with_a_kink():
    """(N − c)₊ has the mean φ(c) − c·(1 − Φ(c)), and a second moment in closed form."""
    c = np.array([-3.0, -0.3, 0.0, 0.77, 2.5])
    mean, std = error_moments(lambda q, n: np.maximum(n - q, 0.0), c, c)
    density, beyond = np.exp(-(c**2) / 2) / math.sqrt(2 * math.pi), [math.erfc(x / math.sqrt(2)) / 2 for x in c]
    first = density - c * beyond
    second = (1 + c**2) * beyond - c * density
    assert mean == pytest.approx(first, rel=1e-10)
    assert std == pytest.approx(np.sqrt(second - first**2), rel=1e-10)


def test_moments_of_many_sums_are_those_of_each():
    q = np.linspace(0.0, 3.0, 200)
    mean, std = error_moments(lambda q, n: q * n + q**2, q, np.zeros_like(q))
    assert mean == pytest.approx(q**2, abs=1e-12)
    assert std == pytest.approx(q, abs=1e-12)
    flat = error_moments(lambda q, n: 0 * n + 7.0 + 0 * q, np.ones(1), np.zeros(1))
    assert (flat[0][0], flat[1][0]) == pytest.approx((7, 0), abs=1e-9)


def test_coverage_of_pieces():
    """P(1 <= N² <= 4) over both branches of a square; and nothing where no estimate lies between the ends."""
    v, ends = np.zeros(2), np.array([[-12.0, 0.0, 12.0], [-12.0, 0.0, 12.0]])
    low, high = np.array([1.0, -3.0]), np.array([4.0, -2.0])
    found = exact_coverage(np.square, ends, v, GaussianNoise(sigma=1), low, high)
    assert found[0] == pytest.approx(math.erf(2 / math.sqrt(2)) - math.erf(1 / math.sqrt(2)), rel=1e-9)
    assert found[1] == 0
    wide = exact_coverage(np.square, 3 * ends, v, GaussianNoise(sigma=3), 9 * low, 9 * high)
    assert wide == pytest.approx(found, rel=1e-9)


def test_tiny_and_infinite_errors_keep_their_size():
    one, zero = np.ones(1), np.zeros(1)
    for size in (1e-200, 1e200):
        mean, std = error_moments(lambda q, n, size=size: size * (n + 2), one, zero)
        assert (mean[0], std[0]) == pytest.approx((2 * size, size), rel=1e-9, abs=0)
    mean, std = error_moments(lambda q, n: np.where(n > 3, np.inf, n), one, zero)
    assert (mean[0], std[0]) == (math.inf, math.inf)
    mean, std = error_moments(lambda q, n: np.exp(np.minimum(n**2, 1e4)), one, zero)  # it outgrows the density
    assert (mean[0], std[0]) == (math.inf, math.inf)


@pytest.mark.parametrize(
    "m",
    [
        ss.Root(k=2.5, sigma=0.5, noise="laplace"),
        ss.Root(k=1.7, sigma=5, noise="laplace"),
        ss.Root(k=1, sigma=20, estimator="median"),  # its standard deviation is constant but for sums near 0
        ss.Root(k=4, sigma=0.2, noise=ss.ArsinhNormal(scale=1, shape=1.6)),
        ss.Log(sigma=0.6, estimator="median"),
        ss.Arsinh(s=1, sigma=0.01, noise="laplace", estimator="median"),
    ],
    ids=str,
)
@pytest.mark.parametrize("sums", ["many sizes", "mostly large"])
def test_standard_deviations_of_many_sums_are_those_of_each(m, sums, monkeypatch):
    rng = np.random.default_rng(1)
    q = np.exp(rng.uniform(-9, 20, 20_000))
    if sums == "mostly large":
        q = np.append(q[:20], rng.uniform(1e8, 1e9, 20_000))
    q = np.append(q, np.zeros(1000))
    if not m._needs_nonnegative:
        q[::2] *= -1
    evaluated = []
    direct = TransformationMechanism._std
    monkeypatch.setattr(TransformationMechanism, "_std", lambda m, q: evaluated.append(q.size) or direct(m, q))
    found = m.std(q)
    assert sum(evaluated) < q.size / 4
    some = np.append(np.arange(20), rng.choice(q.size, 60))
    assert found[some] == pytest.approx(direct(m, q[some]), rel=2 * INTERPOLATION_ERROR, abs=0)


def test_a_function_with_kinks_is_evaluated_near_them():
    def bent(q):
        evaluated.append(q.size)
        return 1 + np.abs(q - 0.3) + np.where(q > 0.7, np.inf, 0)

    evaluated = []
    q = np.random.default_rng(1).random(50_000)
    found = interpolated(bent, q, np.zeros_like(q))
    assert sum(evaluated) < q.size / 2
    assert found == pytest.approx(bent(q), rel=INTERPOLATION_ERROR)
