"""Attacks: what neighbouring sums give away is bounded by the policy, and nothing by the low bits."""

import math

import numpy as np
import pytest
from scipy import special, stats

import slowscale as ss

# Each bound fails for a right mechanism once in 10⁸.
Z = stats.norm.isf(1e-8)

# With the draws that reach 90 % of the policy by more than 10 standard errors.
AUDITS = [
    (ss.GeneralizedGaussian(sigma=1000, p=1), 2000, 4_000_000),
    (
        ss.GeneralizedGaussian(sigma=1000, p=0.5),
        4000,
        20_000_000,
    ),  # the loss falls quickly beside the peak: few draws count
    (ss.ExponentialPolylog(d=4, sigma=1000, a=3, p=1), 2000, 4_000_000),
    (ss.ExponentialPolylog(d=2, sigma=1000, a=None, p=2), 1500, 4_000_000),
    (ss.ExponentialPolylog(d=0.3, sigma=1000, a=None, p=3), 5000, 4_000_000),
    (ss.ArsinhNormal(scale=1000, shape=1.6), 2000, 4_000_000),
    (ss.FromPolicy([(500, 0.6), (2000, 1.7), (1e5, 8)]), 2000, 4_000_000),
]


PART = 1_000_000  # draws at a time: larger arrays take the system longer to provide than the draws


def histogram(m, q, draws, first, last):
    """Return how many of so many draws are each of the integers from first to last."""
    counts = np.zeros(last - first + 1, np.int64)
    for _ in range(draws // PART):
        units = m.release(np.full(PART, q)).units
        counts += np.bincount(units[(units >= first) & (units <= last)] - first, minlength=counts.size)
    return counts


@pytest.mark.parametrize(("m", "influence", "draws"), AUDITS)
def test_pure_loss_seen_from_outside_reaches_the_policy_and_stays_below(m, influence, draws):
    """Theorem PrivSymCnvxDens is tight: the loss is largest around the sum without the record.

    That of the arsinh-normal is largest beside it, on the side away from the record.
    """
    policy = m.pure_policy(influence)
    beside = np.linspace(0, m.noise._concave_from, 1001)
    at = -round(beside[np.argmax(m.noise.logpdf(beside) - m.noise.logpdf(beside + influence))])
    edges = np.quantile(m.release(np.zeros(100_000, int)).units, np.linspace(0.01, 0.99, 60)).round().astype(int)
    widths = (0, 1, 2, 5, 10, 20, 50)
    start, end = min(edges[0], at - widths[-1]), max(edges[-1], at + widths[-1])
    without, with_ = (histogram(m, q, draws, start, end) for q in (0, influence))
    best = 0.0
    for width in widths:
        there, here = (counts[at - width - start : at + width + 1 - start].sum() for counts in (with_, without))
        if there < 100:
            continue
        loss = math.log(here / there) - Z * math.sqrt(1 / here + 1 / there)
        best = max(best, loss)
    # the shape of the whole histogram must not show more either
    for one, two in ((without, with_), (with_, without)):
        first, second = (np.diff(np.append(0, counts.cumsum())[edges - start]) for counts in (one, two))
        seen = (first > 100) & (second > 100)
        losses = np.log(first[seen] / second[seen]) - Z * np.sqrt(1 / first[seen] + 1 / second[seen])
        assert losses.max() <= policy
    assert best <= policy
    assert best >= 0.9 * policy


@pytest.mark.parametrize(
    ("m", "influence"),
    [
        (ss.Gaussian(sigma=100), 100),
        (ss.Root(k=4, sigma=1), 4),
        (ss.Log(sigma=0.8), 1),
        (ss.Root(k=2, sigma=3, a=1), 20),
    ],
)
def test_zcdp_loss_seen_from_outside_stays_below_the_policy(m, influence):
    """The Kullback-Leibler divergence of what is published, from a histogram, is a lower bound on the zCDP loss."""
    draws = 4_000_000
    without, with_ = (m.release(np.full(draws, q)) for q in (0, influence))
    one, two = (r.units if r.transformed is None else r.transformed for r in (without, with_))
    edges = np.quantile(np.concatenate([one[:50_000], two[:50_000]]), np.linspace(0.01, 0.99, 80))
    first, second = (np.diff(np.searchsorted(np.sort(u), edges)) / draws for u in (one, two))
    seen = (first > 1e-5) & (second > 1e-5)
    p, r = first[seen], second[seen]
    divergence = special.rel_entr(p, r).sum() - p.sum() + r.sum()
    error = Z * math.sqrt((p * np.log(p / r) ** 2).sum() / draws + (p**2 / r).sum() / draws)
    assert divergence - error <= m.policy(influence)
    assert divergence + error >= 0.8 * m.policy(influence)


def naive(q, count, rng):
    """What many libraries did: a float sum plus float noise."""
    return q + rng.laplace(0, 1, count)


def accuses(outputs, claimed):
    """The precision attack: outputs near 0 that a float sum with `claimed` in it could not have produced."""
    small = outputs[np.abs(outputs) < 0.25]
    reachable = (small - claimed) + claimed == small  # adding a float of size 1 leaves multiples of 2^-53 only
    return np.mean(~reachable)


def test_precision_attack_breaks_naive_noise_and_not_ours():
    """Mironov (2012); Haney et al. (2022): the low bits of float noise betray whether 1 was added."""
    rng = np.random.default_rng(1)
    assert accuses(naive(0.0, 1_000_000, rng), 1.0) > 0.4  # a single look convicts almost every second output
    assert accuses(naive(1.0, 1_000_000, rng), 1.0) == 0
    # ours, on a grid finer than floats have it: the low bits are uniform whatever the sum
    for q in (0, 1):
        noisy = ss.GeneralizedGaussian(sigma=1, p=1).release(np.full(50_000, q), "1/1152921504606846976")  # 2^-60
        low_bits = np.array([int(n) & 255 for n in noisy.units])
        counts = np.bincount(low_bits, minlength=256)
        expected = counts.sum() / 256
        assert special.chdtrc(255, ((counts - expected) ** 2 / expected).sum()) > 1e-8
