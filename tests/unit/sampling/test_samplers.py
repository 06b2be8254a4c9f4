"""Envelopes lie above their densities everywhere, for every shape; and rejection never lets a candidate slip."""

import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from flint import arb, ctx

import slowscale as ss
from slowscale.sampling.balls import Ball, lift_ball, uniform_balls
from slowscale.sampling.bits import Bits, Stream
from slowscale.sampling.exact import exact_acceptance, lift_arb
from slowscale.sampling.samplers import (
    Envelope,
    Normal,
    Polylog,
    PowerLaw,
    PowerOfAnyGamma,
    PowerOfGamma,
    RejectionSampler,
    TruncatedNormal,
    build_envelope,
)

SHAPES = [
    *[ss.GeneralizedGaussian(sigma=1, p=p) for p in (0.05, 0.3, 0.75, 0.9, 0.99, 0.99684, 0.9999, 1 - 1e-12)],
    *[ss.ExponentialPolylog(d=d, p=p) for p in (1.3, 1.5, 2, 2.5, 3, 6, 10) for d in (0.05, 0.5, 1, 5, 50, 1e6)],
    ss.ExponentialPolylog(d=1e9),
    ss.ExponentialPolylog(d=10, a=1000, p=1.0000001),
    ss.ExponentialPolylog(d=1.06483, p=1.03),
    ss.ExponentialPolylog(d=0.3, a=1e6, p=3),
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
    streams = [Stream(int(w[0]), Bits.of(None), 0, 0, place) for place, w in enumerate(words)]
    assert not exact_acceptance(sampler, streams)


def test_a_cut_that_hardly_cuts_is_still_made():
    sampler = ss.ExponentialPolylog(d=0.006)._sampler
    assert isinstance(sampler, TruncatedNormal)
    assert sampler.acceptance < 1


@pytest.mark.parametrize("p", [0.97, 0.999, 0.9999999])
def test_shapes_near_laplace_are_decided_by_arrays(p):
    """One thin piece of the envelope must not blur all others."""
    sampler = ss.GeneralizedGaussian(sigma=1, p=p)._sampler
    words = list(Bits.of(None).words(np.arange(2000), 0, sampler.uniforms))
    with np.errstate(all="ignore"):
        candidate, margins = sampler.attempt([uniform_balls(word) for word in words], words, lift_ball)
        accepted = np.all([margin.mid > 0 for margin in margins], axis=0)
        drawn = sampler.variate(candidate, lift_ball)[accepted]
    assert accepted.mean() > 0.3
    assert np.median(drawn.rad / np.abs(drawn.mid)) < 1e-12


# Formulas, in Arb and in plain floats


def attempt(sampler, *uniforms):
    """Return the candidate and the margins of an attempt in Arb, for uniforms that are floats."""
    before, ctx.prec = ctx.prec, 200
    try:
        words = [int(u * 2**64) for u in uniforms]
        candidate, margins = sampler.attempt([arb(u) for u in uniforms], words, lift_arb)
        return float(candidate), [float(margin) for margin in margins]
    finally:
        ctx.prec = before


def variate(sampler, candidate):
    return float(sampler.variate(arb(candidate), lift_arb))


def test_closed_forms():
    assert attempt(Normal(), 0.3, 0.1) == (
        pytest.approx(math.sqrt(-2 * math.log(0.3)) * math.cos(0.2 * math.pi), rel=1e-14),
        [],
    )
    assert attempt(PowerOfGamma(1), 0.3) == (pytest.approx(-math.log(0.3), rel=1e-14), [])
    assert attempt(PowerOfGamma(3), 0.3, 0.9, 0.7) == (pytest.approx((-math.log(0.3 * 0.9 * 0.7)) ** 3, rel=1e-14), [])
    assert attempt(PowerLaw(d=3.5, a=7.0), 0.3) == (pytest.approx(7 * (0.3 ** (-1 / 2.5) - 1), rel=1e-13), [])
    assert (Normal().uniforms, PowerOfGamma(3).uniforms, PowerLaw(3.5, 7.0).uniforms) == (2, 3, 1)


def test_a_truncated_normal():
    d, a = 0.3, 2.0
    sampler = TruncatedNormal(d, a, 0.9)
    for u, v in ((0.3, 0.1), (0.9, 0.45), (0.05, 0.5)):
        normal = math.sqrt(-2 * math.log(u)) * math.cos(2 * math.pi * v)
        y = normal * math.sqrt(1 / (2 * d)) + 1 / (2 * d) - math.log(a)
        assert attempt(sampler, u, v) == (pytest.approx(y, rel=1e-12), [pytest.approx(y, rel=1e-12)])
    assert variate(sampler, 1.5) == pytest.approx(a * (math.exp(1.5) - 1), rel=1e-14)


@pytest.mark.parametrize("p", [1.5, 2, 3, 4, 2.0, 3.0])
def test_the_density_of_the_polylog(p):
    d, a = 0.3, 20.0
    sampler = Polylog(d, a, p, None)
    for x in (0.1, 1.5, 40.0):
        expected = x - d * ((x + math.log(a)) ** p - math.log(a) ** p)
        assert float(sampler._log_density(arb(x), lift_arb)) == pytest.approx(expected, rel=1e-12)
    assert variate(sampler, 1.5) == pytest.approx(a * (math.exp(1.5) - 1), rel=1e-14)


@pytest.mark.parametrize("p", [2, 3])
def test_the_density_of_the_polylog_is_a_polynomial_for_whole_p(p):
    """It costs a few roundings, far fewer than powers by logarithms."""
    with np.errstate(all="ignore"):
        density = Polylog(0.3, 20.0, p, None)._log_density(Ball(np.array([0.1, 1.5, 40.0])), lift_ball)
    assert (density.rad < 40 * 2.0**-52 * np.abs(density.mid)).all()


def test_the_power_of_a_gamma_variable():
    sampler = PowerOfAnyGamma(0.3, None)
    assert variate(sampler, 2.5) == pytest.approx(2.5 ** (1 / 0.3), rel=1e-14)
    for x in (0.1, 1.5, 40.0):
        expected = (1 / 0.3 - 1) * math.log(x) - x
        assert float(sampler._log_density(arb(x), lift_arb)) == pytest.approx(expected, rel=1e-13)


REJECTED = {
    "three pieces": ss.GeneralizedGaussian(sigma=1, p=0.3),
    "no left tail": ss.ExponentialPolylog(d=0.5, p=3),
    "mode at 0": ss.ExponentialPolylog(d=5, p=2.5),
}


def test_the_examples_have_the_pieces_that_they_are_named_for():
    envelopes = {name: m._sampler.envelope for name, m in REJECTED.items()}
    assert min(envelopes["three pieces"].probabilities) > 0.01
    assert envelopes["no left tail"].probabilities[0] == 0
    assert envelopes["mode at 0"].mode == 0
    assert all(min(e.probabilities[1:]) > 0.01 for e in envelopes.values())


@pytest.mark.parametrize("name", REJECTED)
def test_a_candidate_and_its_margins_in_each_piece(name):
    """The candidate is the quantile of its piece; the margin is how far v times the envelope is below the density."""
    sampler = REJECTED[name]._sampler
    e = sampler.envelope
    first, flat, last = e.probabilities

    def log_density(x):
        return float(sampler._log_density(arb(x), lift_arb)) if x else 0.0

    for share in (0.01, 0.4, 0.9):
        pieces = {
            "right": (first + flat + share * last, e.right - math.log(share) / e.right_rate),
            "flat": (first + share * flat, e.left + share * (e.right - e.left)),
        }
        if first:
            pieces["left"] = (share * first, e.left + math.log(share) / e.left_rate)
        for piece, (u, x) in pieces.items():
            height = log_density(e.mode) + 2 * Envelope.SLACK
            height -= {"left": e.left_rate * (e.left - x), "flat": 0, "right": e.right_rate * (x - e.right)}[piece]
            for v in (0.001, 0.5, 0.999):
                candidate, margins = attempt(sampler, u, v)
                assert candidate == pytest.approx(x, rel=1e-9)
                assert margins[0] == candidate
                if x > 0:
                    assert margins[1] == pytest.approx(log_density(x) - height - math.log(v), abs=1e-8)


@pytest.mark.parametrize("name", REJECTED)
def test_the_constants_of_the_pieces(name):
    sampler = REJECTED[name]._sampler
    e = sampler.envelope
    inverses, steps, tops = sampler._constants(lift_arb)
    lengths = (1 / e.left_rate if e.left_rate else None, e.right - e.left, -1 / e.right_rate)
    height = (float(sampler._log_density(arb(e.mode), lift_arb)) if e.mode else 0.0) + 2 * Envelope.SLACK
    for p, inverse, step, length, top in zip(e.probabilities, inverses, steps, lengths, tops, strict=True):
        if p:
            assert float(inverse) == pytest.approx(1 / p, rel=1e-14)
            assert float(step) == pytest.approx(length, rel=1e-14)
            assert float(top) == pytest.approx(height, abs=1e-9)


VALUES = {
    "Normal": lambda e: Normal(),
    "PowerOfGamma": lambda e: PowerOfGamma(2),
    "PowerLaw": lambda e: PowerLaw(3.5, 7.0),
    "Envelope": lambda e: e,
    "TruncatedNormal": lambda e: TruncatedNormal(0.3, 2.0, 0.9),
    "PowerOfAnyGamma": lambda e: PowerOfAnyGamma(0.3, e),
    "Polylog": lambda e: Polylog(0.3, 20.0, 3, e),
}


@pytest.mark.parametrize("name", VALUES)
def test_samplers_are_values(name):
    """They are shared between releases: they cannot be changed, and equal ones are the same key."""
    envelope = build_envelope(drop=lambda x: x, slope=lambda x: -1.0, mode=0.0, mass=1.0)
    value = VALUES[name](envelope)
    with pytest.raises(FrozenInstanceError):
        value.d = 0.5
    assert {value: name}[VALUES[name](envelope)] == name
