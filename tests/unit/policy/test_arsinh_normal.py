"""The pure policy of the arsinh-normal: against brute force, and the properties that it is proved to have."""

import math

import mpmath as mp
import numpy as np
import pytest
from helpers.strategies import log_uniform
from hypothesis import example, given, settings
from hypothesis import strategies as st

import slowscale as ss
from slowscale.noise import arsinh_normal as arsinh
from slowscale.policy import ArsinhNormalPolicy

SHAPES = [0.1, 0.4, 1.0, 1.6, 3.0, 6.0]
shapes = st.one_of(st.floats(0.1, 6), st.sampled_from(SHAPES))


def log_density(z, shape):
    """The log-density up to a constant, with mpmath."""
    y = mp.asinh(z)
    return -y * y / (2 * mp.mpf(shape) ** 2) - mp.log(1 + z * z) / 2


def exact(distance, shape):
    """The supremum over all real z of the log-density ratio: the best of a grid, refined by golden sections."""
    x = mp.mpf(distance)
    near = [mp.mpf(z) for z in np.concatenate([[0.0], np.geomspace(1e-32, 1e2, 35)])]
    grid = sorted({*near, *(-z for z in near), *(-x + z for z in near), *(-x - z for z in near), -x / 2})
    ratio = lambda z: log_density(z, shape) - log_density(z + x, shape)  # noqa: E731
    values = [ratio(z) for z in grid]
    best = values.index(max(values))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    for _ in range(90):
        one, two = low + (high - low) * 3 / 8, low + (high - low) * 5 / 8
        low, high = (low, two) if ratio(one) > ratio(two) else (one, high)
    return max([*values, ratio((low + high) / 2)])


@settings(max_examples=40, deadline=None)
@given(shape=shapes, ratio=log_uniform(1e-12, 1e30))
@example(shape=0.1, ratio=1.0)
@example(shape=6.0, ratio=1e-12)
@example(shape=1.6, ratio=1e30)
@example(shape=1.6, ratio=math.exp(arsinh.TABLE_END))
@example(shape=0.1, ratio=math.exp(arsinh.TABLE_END) * (1 + 1e-15))
def test_policy_is_the_supremum_rounded_up(shape, ratio):
    with mp.workdps(60):
        truth = exact(ratio, shape)
        excess = float(mp.mpf(ArsinhNormalPolicy(scale=1, shape=shape)(ratio)) / truth - 1)
    assert 0 <= excess < 2e-7


@settings(max_examples=60)
@given(shape=shapes, scale=log_uniform(1e-6, 1e9), ratio=log_uniform(1e-6, 1e12))
def test_brute_force_over_a_dense_grid(shape, scale, ratio):
    """The noise itself, with both signs and both directions: nowhere does the ratio exceed the policy."""
    m = ss.ArsinhNormal(scale=scale, shape=shape)
    influence = scale * ratio
    steps = np.concatenate([np.geomspace(1e-6, 1e6, 1500), np.linspace(0, 2, 2000)])
    z = np.concatenate([scale * steps, -scale * steps, -influence + scale * steps, influence * np.linspace(-2, 2, 999)])
    ratios = np.abs(m.noise.logpdf(z) - m.noise.logpdf(z + influence))
    slack = 1e-13 * (1 + np.abs(m.noise.logpdf(z)).max() + np.abs(m.noise.logpdf(z + influence)).max())
    assert ratios.max() <= m.pure_policy(influence) + slack
    assert ratios.max() >= m.pure_policy(influence) * (1 - 1e-4) - slack


@pytest.mark.parametrize("shape", SHAPES)
def test_policy_is_increasing_concave_and_subadditive(shape):
    policy = ArsinhNormalPolicy(scale=2.5, shape=shape)
    x = np.concatenate([[0.0], np.geomspace(1e-13, 1e31, 400_001)])
    losses = policy(x)
    assert losses[0] == 0
    assert (np.diff(losses) > 0).all()
    some = x[::100]
    slopes = np.diff(policy(some)) / np.diff(some)
    assert (slopes[1:] <= slopes[:-1] * (1 + 1e-6)).all()
    pairs = np.random.default_rng(1).choice(some, (2, 4000))
    assert (policy(pairs.sum(axis=0)) <= policy(pairs).sum(axis=0) * (1 + 1e-12)).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_the_table_and_a_plain_search_agree(shape):
    x = np.geomspace(1e-2, 1e12, 3000)
    np.testing.assert_allclose(arsinh.largest_rise(x, 1.0, shape), arsinh.searched_rise(x, shape), rtol=2e-7)


def test_limits():
    """For large shapes P(Δ) is near arsinh(Δ/2), and for large records the loss is the drop of the log-density."""
    x = np.geomspace(1e-3, 1e6, 50)
    policy = ArsinhNormalPolicy(scale=1, shape=6)
    assert (policy(x) >= np.arcsinh(x / 2)).all()
    assert policy(1e20) == pytest.approx(math.log(2e20) ** 2 / 72 + math.log(1e20), rel=1e-11)
    assert ArsinhNormalPolicy(scale=1e-200, shape=1.6)(1e300) == pytest.approx(
        (500 * math.log(10) + math.log(2)) ** 2 / (2 * 1.6**2) + 500 * math.log(10), rel=1e-11
    )
    assert ArsinhNormalPolicy(scale=1e300, shape=1.6)(1e-9) > 0


def test_known_losses():
    losses = ArsinhNormalPolicy(scale=4.95, shape=1.6)([1, 10, 106, 1e4, 1.55e6])
    np.testing.assert_allclose(losses, [0.1508362, 1.375526, 5.827837, 21.079329, 47.450555], rtol=1e-6)


def test_descriptions_are_read_back():
    policy = ss.ArsinhNormal(scale=4.95, shape=1.6).policy
    assert ss.Policy.from_dict(policy.to_dict()) == policy
    assert policy.closed.pure.to_dict() == {"kind": "arsinh normal", "scale": 4.95, "shape": 1.6}
