"""The same bits give the same answer: arrays of float balls against Arb alone, draw by draw."""

import math
import os
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx
from helpers.bitsources import Continued, Crafted, Recorded, Stuck
from helpers.errors import refused

import slowscale as ss
from slowscale.mechanisms.drawing import AdditiveTask, TransformationTask
from slowscale.mechanisms.exact_sums import Sums
from slowscale.policy import PointsPolicy, PolylogPolicy, PowerPolicy
from slowscale.sampling import exact
from slowscale.sampling.bits import Bits, Stream
from slowscale.sampling.samplers import Sampler

# A million for each with SLOWSCALE_FULL=1; what is checked is the same.
DRAWS = 1_000_000 if os.environ.get("SLOWSCALE_FULL") else 10_000
SPLIT = 20_000

PROMISE = (
    PowerPolicy(sigma=300, p=0.5) + 2 * PolylogPolicy(d=0.3, sigma=100, p=2.5) + PointsPolicy([(10, 0.01), (1e3, 0.5)])
)
MECHANISMS = {
    "Gaussian": (ss.Gaussian(sigma=75), 0, "1"),
    "Gaussian, fine unit": (ss.Gaussian(sigma=75), 0, "1e-9"),
    "Laplace": (ss.GeneralizedGaussian(sigma=100, p=1), 0, "1"),
    "generalized Gaussian 1/2": (ss.GeneralizedGaussian(sigma=6.84, p=0.5), 0, "1"),
    "generalized Gaussian 0.3": (ss.GeneralizedGaussian(sigma=0.2, p=0.3), 0, "1"),
    "generalized Gaussian 0.75": (ss.GeneralizedGaussian(sigma=30, p=0.75), 0, "1"),
    "polylog 1": (ss.ExponentialPolylog(d=4, sigma=30, p=1), 0, "1"),
    "polylog 1.5": (ss.ExponentialPolylog(d=1, sigma=30, p=1.5), 0, "1"),
    "polylog 2": (ss.ExponentialPolylog(d=0.238), 0, "1"),
    "polylog 2, cut": (ss.ExponentialPolylog(d=4, sigma=100, a=3), 0, "0.01"),
    "polylog 3": (ss.ExponentialPolylog(d=0.1, sigma=10, p=3), 0, "1"),
    "arsinh-normal": (ss.ArsinhNormal(scale=4.95, shape=1.6), 0, "1"),
    "arsinh-normal, heavy": (ss.ArsinhNormal(scale=0.3, shape=4), 0, "0.01"),
    "arsinh-normal, nearly normal": (ss.ArsinhNormal(scale=750, shape=0.1), 0, "1e-6"),
    "from points": (ss.FromPolicy([(10, 0.1), (100, 0.8), (1e4, 5)], sigma=0.7), 0, "1"),
    "from a sum of policies": (ss.FromPolicy(PROMISE), 0, "1"),
    "from a polylog": (ss.FromPolicy(PolylogPolicy(d=0.3, sigma=30), sigma=2.5), 0, "1"),
    "fourth root": (ss.Root(k=4, sigma=0.534), 106, "1"),
    "cube root with offset": (ss.Root(k=3, sigma=0.5, a=2), 1000, "0.1"),
    "root of nothing": (ss.Root(k=3, sigma=0.5), 0, "1"),
    "fourth root, median": (ss.Root(k=4, sigma=0.5, a=1, estimator="median"), 30, "1"),
    "log": (ss.Log(sigma=0.632), 106, "1"),
    "log, median": (ss.Log(sigma=0.632, estimator="median"), 3, "1"),
    "off the grid": (ss.Gaussian(sigma=3), Fraction(1, 3), "1/7"),
}


def task_of(m, q, unit, count):
    sums = Sums.of(np.full(count, q) if isinstance(q, int) else np.array([q] * count, dtype=object), Fraction(unit))
    if isinstance(m, ss.Root | ss.Log):
        return TransformationTask(
            m.added._sampler, m._exact_transform, m._exact_estimate, m.sigma, m._rounds_at_random, sums, 2.0**-20
        )
    return AdditiveTask(m._sampler, m.sigma, sums)


@pytest.mark.parametrize("name", MECHANISMS)
def test_arrays_agree_with_arb_alone(name, monkeypatch):
    """What tier 1 says must follow from the first 64 bits of each uniform: any other continuation gives the same."""
    m, q, unit = MECHANISMS[name]
    count = min(DRAWS, exact.CHUNK)
    for part in range(-(-DRAWS // count)):
        task, first = task_of(m, q, unit, count), Recorded(part).bits()
        one, other = (Continued(first, Recorded(seed).bits()) for seed in (f"one {part}", f"other {part}"))
        drawn = exact.draw(task, count, one)
        with monkeypatch.context() as patch:
            patch.setattr(exact, "FEW_VALUES", exact.CHUNK)
            alone = exact.draw(task, count, other)
        certain = np.ones(count, bool)
        certain[list(one.rows)] = False  # by tier 1: no further bits were asked for
        assert certain.mean() > 0.97
        assert len(other.rows) == count
        for floors, same in zip(drawn, alone, strict=True):
            assert (floors[certain] == same[certain]).all()


@pytest.mark.parametrize("name", MECHANISMS)
def test_draws_do_not_depend_on_what_is_drawn_with_them(name, monkeypatch):
    """Neither on chunks and on what is drawn one by one, nor on which rows or buckets are drawn, and in which order."""
    m, q, unit = MECHANISMS[name]
    sums = np.array([q + i % 97 for i in range(SPLIT)], None if isinstance(q, int) else object)
    starts = [0, 3000, 3003, 11_195, 16_000]
    source = Recorded(name)
    keys = [source.key() for _ in starts]

    def drawn(at, first, end):
        bits = Bits(keys[first:end], [start - starts[first] for start in starts[first:end]], private=False)
        return m._release(sums[at], unit, 0.95, bits).units.tolist()

    whole = drawn(slice(None), 0, 5)
    assert len(whole) == SPLIT
    for chunk, few in ((1000, 0), (1000, 40), (SPLIT, 4), (997, 4)):
        monkeypatch.setattr(exact, "CHUNK", chunk)
        monkeypatch.setattr(exact, "FEW_VALUES", few)
        assert drawn(slice(None), 0, 5) == whole
    monkeypatch.undo()
    ends = [*starts[1:], SPLIT]
    for first, end in ((4, 5), (1, 2), (0, 1), (3, 4), (2, 3), (1, 4), (2, 5)):  # the second has three rows
        at = slice(starts[first], ends[end - 1])
        assert drawn(at, first, end) == whole[at]
    # A bucket needs only its first rows.
    assert drawn(slice(0, 7), 0, 1) == whole[:7]


def test_the_twin_another_key_gives_other_draws():
    one, other = (ss.Gaussian(sigma=75)._release(np.zeros(100, int), 1, 0.95, Recorded(seed)).units for seed in (1, 2))
    assert np.mean(one == other) < 0.1


def test_the_twin_what_tier_two_decides_depends_on_later_bits():
    """With other later bits some of the draws differ, so that the test above compares different numbers."""
    task, first = task_of(ss.Gaussian(sigma=75), 0, "1e-18", 200), Recorded(1).bits()
    (one,), (other,) = (exact.draw(task, 200, Continued(first, Recorded(seed).bits())) for seed in (2, 3))
    assert (one != other).any()


def test_rejections_agree_with_arb_alone():
    for m in (
        ss.ExponentialPolylog(d=0.1, p=3),
        ss.GeneralizedGaussian(sigma=1, p=0.3),
        ss.ExponentialPolylog(d=0.238),
        ss.FromPolicy([(1, 0.1), (20, 1), (1e4, 6)]),
        ss.FromPolicy(PROMISE),
    ):
        sampler = m._sampler
        words = list(Recorded(0).bits().words(np.arange(5000), 0, sampler.uniforms))
        with np.errstate(all="ignore"):
            _, margins = sampler.attempt([exact.uniform_balls(w) for w in words], words, exact.lift_ball)
        good, bad = np.ones(5000, bool), np.zeros(5000, bool)
        for margin in margins:
            good &= margin.mid > margin.inflated()
            bad |= margin.mid < -margin.inflated()
        assert (good | bad).mean() > 0.999
        assert bad.any()
        other = Recorded(9).bits()
        for i in range(5000):
            if good[i] or bad[i]:
                streams = [Stream(int(w[i]), other, i, 0, place) for place, w in enumerate(words)]
                assert exact.exact_acceptance(sampler, streams) == good[i]


class AboveEdge(Sampler):
    """A uniform that is accepted above an edge, in the middle of what the first word EDGE_WORD leaves open."""

    uniforms, signed, acceptance = 1, False, 0.5
    EDGE_WORD = 2**63 + 12_345
    EDGE = Fraction(2 * EDGE_WORD + 1, 2**65)

    def attempt(self, uniforms, words, lift):
        return uniforms[0] + 0.0, [uniforms[0] - lift(self.EDGE)]


class First128Bits(exact.Task):
    """The first 128 bits of the uniform of a sampler."""

    outputs, extra_uniforms, sampler = 1, 0, AboveEdge()

    def finish(self, variate, extra_uniforms, rows, lift):
        return [variate * 2.0**128]


def test_a_candidate_on_the_edge_of_acceptance_is_decided_by_its_later_bits(monkeypatch):
    """64 bits leave open on which side of the edge it is: it is not accepted before further bits say so."""
    decided, original = [], exact.exact_acceptance
    monkeypatch.setattr(exact, "exact_acceptance", lambda *given: decided.append(original(*given)) or decided[-1])
    count, accepted = 200, 0
    for seed in range(5):
        (floors,) = exact.draw(First128Bits(), count, Crafted([AboveEdge.EDGE_WORD] * count, seed))
        for bits in floors.tolist():
            assert Fraction(bits, 2**128) > AboveEdge.EDGE
            accepted += bits >> 64 == AboveEdge.EDGE_WORD
    # of 1,000 candidates on the edge about half are accepted
    assert (len(decided), sum(decided)) == (1000, accepted)
    assert 400 < accepted < 600


def boundary_words(m, boundary, angle=0.1):
    """Return words for Box-Muller whose normal lies as near to boundary/σ as 64 bits allow."""
    ctx.prec = 400
    v = int(angle * 2**64)
    cosine = (arb(2 * v + 1) * arb(2) ** -64).cos_pi()
    u = (-((arb(boundary) / arb(m.sigma) / cosine) ** 2) / 2).exp()
    return [int((u * arb(2) ** 64).floor().unique_fmpz()), v]


@pytest.mark.parametrize("boundary", [0.5, 17.5, 100.5])
def test_draws_on_a_rounding_boundary_reach_tier_two_and_are_decided(boundary, monkeypatch):
    m = ss.Gaussian(sigma=75)
    reached = []
    original = exact.exact_floors

    def counted(*arguments):
        reached.append(original(*arguments))
        return reached[-1]

    monkeypatch.setattr(exact, "exact_floors", counted)
    count = exact.FEW_VALUES + 4
    given = boundary_words(m, boundary)
    # the words of the first uniforms come first, then those of the second
    words = [given[0]] * count + [given[1]] * count
    results = set()
    for seed in range(6):
        source = Crafted(words, seed)
        noisy = m.release(np.zeros(count, np.int64), bits=source)
        results |= set(noisy.units.tolist())
        assert {part for *_, part in source.asked} == {0, 1}
    assert len(reached) == 6 * count
    # bits that come later decide: both sides of the boundary occur
    assert results == {math.floor(boundary), math.ceil(boundary)}


def test_a_source_without_randomness_is_refused_not_waited_for():
    """A uniform all of whose bits are 0 stays possibly 0, and its logarithm unbounded."""
    for count in (1, 50):
        with refused(ss.SlowscaleError, "the source of random bits", code="not-random"):
            ss.GeneralizedGaussian(sigma=1, p=1).release(np.zeros(count, np.int64), bits=Stuck(0))
