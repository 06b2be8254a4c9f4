"""Envelopes lie above their densities everywhere, for every shape; and rejection never lets a candidate slip."""

import math

import numpy as np
import pytest
from flint import arb, ctx

import slowscale as ss
from slowscale.sampling.balls import uniform_balls
from slowscale.sampling.bits import SECRET, Stream
from slowscale.sampling.exact import _AcceptedDraws, exact_acceptance, lift_arb
from slowscale.sampling.samplers import RejectionSampler, TruncatedNormal

SHAPES = [
    *[ss.GeneralizedGaussian(1, p) for p in (0.05, 0.3, 0.75, 0.9, 0.99, 0.99684, 0.9999, 1 - 1e-12)],
    *[ss.ExponentialPolylog(d, p=p) for p in (1.3, 1.5, 2, 2.5, 3, 6, 10) for d in (0.05, 0.5, 1, 5, 50, 1e6)],
    ss.ExponentialPolylog(1e9),
    ss.ExponentialPolylog(10, a=1000, p=1.0000001),
    ss.ExponentialPolylog(1.06483, p=1.03),
    ss.ExponentialPolylog(0.3, a=1e6, p=3),
]


@pytest.mark.parametrize("m", SHAPES, ids=str)
def test_envelopes_lie_above_the_density(m):
    sampler = m._sampler
    if not isinstance(sampler, RejectionSampler):
        return
    e = sampler.envelope
    assert sum(e.probabilities) == 1
    assert min(e.probabilities) >= 0
    assert 0 <= e.left <= e.right
    assert e.acceptance > 0.3
    ctx.prec = 400
    _, _, tops = sampler._constants(lift_arb)
    width = 1 / e.right_rate + e.right - e.left
    spread = width * np.concatenate([np.geomspace(1e-9, 40, 60), -np.geomspace(1e-9, 40, 60)])
    points = np.unique(np.concatenate([e.left + spread, e.right + spread, e.mode + spread, [e.mode, e.right]]))
    for x in points[points > 0]:
        exact = arb(float(x))
        density = sampler._log_density(exact, lift_arb)
        if x < e.left:
            envelope = tops[0] + (exact - e.left) * e.left_rate
        elif x <= e.right:
            envelope = tops[1] if e.probabilities[1] else tops[2]
        else:
            envelope = tops[2] - (exact - e.right) * e.right_rate
        assert density < envelope, float(x)


def test_a_normal_of_zero_is_not_certain():
    """√(−0) once had a negative radius, which counted as certain."""
    words = [np.array([2**64 - 1, 2**64 - 1], np.uint64), np.array([2**62 + 2**61] * 2, np.uint64)]
    sampler = TruncatedNormal(0.5000001, math.e, 0.5)
    with np.errstate(all="ignore"):
        _, margins = sampler.attempt(
            [uniform_balls(w) for w in words], words, lambda x: uniform_balls(words[0]) * 0.0 + x
        )
    assert not (margins[0].inflated() < 0).any()
    assert not exact_acceptance(sampler, [Stream(int(w[0]), SECRET) for w in words])


def test_a_cut_that_hardly_cuts_is_still_made():
    sampler = ss.ExponentialPolylog(0.006)._sampler
    assert isinstance(sampler, TruncatedNormal)
    assert sampler.acceptance < 1


@pytest.mark.parametrize("p", [0.97, 0.999, 0.9999999])
def test_shapes_near_laplace_are_decided_by_arrays(p):
    """One thin piece of the envelope must not blur all others."""
    with np.errstate(all="ignore"):
        drawn = _AcceptedDraws(ss.GeneralizedGaussian(1, p)._sampler, 2000, SECRET)
    assert np.median(drawn.variate.rad / np.abs(drawn.variate.mid)) < 1e-12
