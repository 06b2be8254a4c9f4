"""The staircase lies above the density everywhere, and its probabilities are exact."""

import math

import numpy as np
import pytest
from helpers.bitsources import Recorded
from helpers.errors import refused
from helpers.strategies import drawn_curves, instances, polylogs
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import slowscale as ss
from slowscale.policy import PointsPolicy, PolylogPolicy, PowerPolicy
from slowscale.sampling import staircase
from slowscale.sampling.balls import Ball, lift_ball, uniform_balls
from slowscale.sampling.samplers import Scaled

TERMS = st.one_of(
    drawn_curves(PointsPolicy), instances(PowerPolicy), polylogs(PolylogPolicy).filter(lambda policy: policy.d > 0.1)
)
PROMISES = st.one_of(
    drawn_curves(PointsPolicy),
    st.builds(lambda one, two, count: one + count * two, TERMS, TERMS, st.integers(1, 4)),
)
POINTS = PointsPolicy([(10, 0.1), (100, 0.8), (1e4, 5)])


@settings(max_examples=60)
@given(promise=PROMISES)
@example(PointsPolicy([(1, 1), (math.e, math.e), (1096, 1096), (2980, 2980)]))  # kinks where the density is 1e-1000
@example(PointsPolicy([(1, 1), (1e5, 1.8)]))
@example(PolylogPolicy(d=1.01, p=1) + PowerPolicy(sigma=1e9, p=0.1))
def test_it_lies_above_the_density(promise):
    m = ss.FromPolicy(promise)
    sampler = m._sampler
    found = sampler.staircase
    assert sum(found.shares) == staircase.SHARES
    assert min(found.shares) > 0
    assert found.acceptance > 0.7
    edges, shares = np.array(found.edges), np.array(found.shares) / staircase.SHARES
    for low, high, share in zip(edges[:-1], edges[1:], shares[:-1], strict=True):
        x = np.unique(np.clip(low + (high - low) * np.linspace(0, 1, 9), low, high))
        assert (found.height + math.log(share / (high - low)) + m.pure_policy(x)).min() >= staircase.SLACK
    # In the tail, and at the kinks that lie there.
    last = edges[-1]
    x = np.concatenate([last * np.geomspace(1, 1e12, 200), [kink for kink in m.noise._kinks if kink >= last]])
    fallen = math.log(shares[-1] * (found.power - 1) / last) - found.power * np.log(x / last)
    assert (found.height + fallen + m.pure_policy(x)).min() >= staircase.SLACK


@settings(max_examples=40)
@given(promise=PROMISES, u=st.integers(2**40, 2**64 - 1), v=st.integers(2**40, 2**64 - 1))
def test_losses_in_balls_are_those_of_the_policy(promise, u, v):
    """The margin says whether v is below the density at x, divided by the height of the staircase."""
    sampler = ss.FromPolicy(promise)._sampler
    words = [np.array([word], np.uint64) for word in (u, v)]
    with np.errstate(all="ignore"):
        x, (margin,) = sampler.attempt([uniform_balls(word) for word in words], words, staircase.lift_ball)
    assume(math.isfinite(margin.inflated()[0]))  # a candidate on the very edge of a step is left to tier 2
    step = np.searchsorted(np.cumsum(sampler.staircase.shares), u >> 11, side="right")
    found, last = sampler.staircase, len(sampler.staircase.edges) - 1
    share = found.shares[step] / staircase.SHARES
    if step < last:
        top = share / (found.edges[step + 1] - found.edges[step])
    else:
        top = share * (found.power - 1) / found.edges[-1] * (x.mid[0] / found.edges[-1]) ** -found.power
    expected = -promise(x.mid[0]) - found.height - math.log(top) - math.log(v / 2**64)
    assert margin.mid[0] == pytest.approx(expected, rel=1e-9, abs=1e-9 + 10 * margin.inflated()[0])


@pytest.mark.parametrize("count", [1, 20_000])
def test_a_stretched_promise_draws_stretched_noise(count):
    """The same bits, under a promise whose sizes are doubled, exactly double the noise."""
    plain, doubled = ss.FromPolicy(POINTS), ss.FromPolicy(POINTS, sigma=2)
    assert isinstance(doubled._sampler, Scaled)
    zeros = np.zeros(count, np.int64)
    one = plain.release(zeros, "0.5", bits=Recorded(3)).units
    two = doubled.release(zeros, "1", bits=Recorded(3)).units
    assert np.array_equal(one, two)


def test_noise_that_cannot_be_drawn_is_refused():
    with refused(ss.ParameterError, "the noise of this policy", code="too-large"):
        staircase.build_staircase(np.log1p, lambda x: x / (1 + x), (), 0.0)


def test_kinks_beyond_the_last_step():
    """The tail has the density of the policy also where that changes from one power to the next."""
    for points in ([(7, 7), (700, 7 * 100**0.2)], [(100, 5), (1000, 20), (1e6, 60)]):
        m = ss.FromPolicy(points)
        sampler = m._sampler
        last = sampler.staircase.edges[-1]
        assert last < points[-2][0] * 1.001
        sizes = last * np.geomspace(1.001, 1e6, 200)
        loss = sampler._loss(Ball(sizes, 0.0), sampler._further_powers(lift_ball), lift_ball)
        assert loss.mid == pytest.approx(m.pure_policy(sizes), rel=1e-12)
