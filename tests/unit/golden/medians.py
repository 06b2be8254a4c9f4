"""Appendix B: median-unbiased estimators."""

import numpy as np
from scipy import optimize

import slowscale as ss
from slowscale.noise import GaussianNoise
from unit.golden.facts import check, near


def probability_zero(m, q):
    """P[M = 0] for a median-unbiased mechanism: the noisy value is at or below f(a)."""
    start = m.transform(0)
    assert m.estimate(start - 1e-3) == m.estimate(start) == 0 < m.estimate(start + 1e-3)
    return GaussianNoise(sigma=m.sigma).cdf(start - m.transform(q))


def probability_above(m, q):
    """P[M > q]: the noisy value is above the one that is estimated as q."""
    at = optimize.brentq(lambda v: m.estimate(v) - q, m.transform(0), m.transform(2 * q + 1), xtol=1e-15, rtol=1e-15)
    return GaussianNoise(sigma=m.sigma).sf(at - m.transform(q))


@check(r"median\.q0\.atom")
def _(fact):
    m = ss.Root(k=2, sigma=1, estimator="median")
    near(probability_above(m, 0), 0.5)
    return probability_zero(m, fact["q"])


@check(r"median\.q0\.nonunique", abs=1e-15, agrees=lambda fact, ends: ends == [fact.paper, fact.paper])
def _(fact):
    below = fact["g_below"]
    m = ss.Transformation(np.sqrt, np.square, 1, a=0, estimator=lambda v: np.where(v < 0, below, v * np.abs(v)))
    noise = GaussianNoise(sigma=m.sigma)
    return [float(m.estimate(m.transform(fact["q"]) + noise.ppf(level))) for level in (0.5 - 1e-12, 0.5 + 1e-12)]


@check(r"median\.(sqrt_a0|log_a1)\..*")
def _(fact, which):
    sigma = fact["sigma"]
    m = ss.Root(k=2, sigma=sigma, estimator="median") if which == "sqrt_a0" else ss.Log(sigma=sigma, estimator="median")
    near(probability_zero(m, fact["q"]), fact["P_atom0"], rel=1e-11)  # the fact gives 15 digits
    return probability_above(m, fact["q"])


check(r"mc\.median\..*")(lambda fact: probability_above(ss.Root(k=2, sigma=1, estimator="median"), fact["q"]))


@check(r"median\.canonical_sqrt_q0")
def _(fact):
    m = ss.Transformation(np.sqrt, np.square, fact["sigma"], fact["a"], estimator=np.square)
    # x² is below its median where |x| is below the upper quartile.
    return m.estimate(m.transform(fact["q"]) + GaussianNoise(sigma=m.sigma).ppf(0.75))


check(r"median\.sqrt\.mean\..*")(
    lambda fact: fact["q"] + ss.Root(k=2, sigma=fact["sigma"], a=fact["a"], estimator="median").bias(fact["q"])
)


@check(r"transform\.g_domain")
def _(fact):
    m = ss.Root(k=2, sigma=1, a=fact["a"])
    return GaussianNoise(sigma=1).cdf(m.transform(0) - m.transform(fact["q"]))


@check(r"median\.loss_boundary")
def _(fact):
    q = fact["q"]
    risk = probability_zero(ss.Root(k=2, sigma=1, estimator="median"), q)
    lower = ss.Transformation(np.sqrt, np.square, 1, a=0, estimator=lambda v: np.where(v < 0, -1.0, v * np.abs(v)))
    estimates = lower.estimate(GaussianNoise(sigma=1).ppf(np.linspace(1e-6, 1 - 1e-6, 1000)))
    return risk - float(np.mean(estimates == q))


@check(r"median\.proof_typo")
def _(fact):
    m, noise = ss.Root(k=2, sigma=fact["sigma"], a=fact["a"]), GaussianNoise(sigma=fact["sigma"])
    start, middle = m.transform(0) - m.transform(fact["q"]), 0.0
    first, second = noise.sf(middle), noise.cdf(middle) - noise.cdf(start)
    near(first + second + noise.cdf(middle), fact.paper)
    return first + second + noise.cdf(start)


check(r"median\.range_typo")(lambda fact: ss.Log(sigma=1, a=fact["a"]).transform(fact["q"]))


@check(r"errorbounds\.unique_linear", agrees=lambda fact, unique: unique)
def _(fact):
    q = np.array([0.0, 1000, 2000])
    laplace = ss.GeneralizedGaussian(sigma=1, p=1)
    mechanisms = [
        ss.Log(sigma=1),
        ss.Root(k=1, sigma=1),
        ss.Root(k=2, sigma=1),
        ss.Root(k=4, sigma=1),
        ss.Gaussian(sigma=1),
        laplace,
    ]
    linear = [
        m for m in mechanisms if all(abs(np.diff(end, 2)[0]) < 1e-9 * end[-1] for end in m.prediction_interval(q))
    ]
    assert not {ss.Root(k=2, sigma=1), ss.Root(k=4, sigma=1)} & set(linear)
    assert ss.Log(sigma=1) in linear
    return linear == mechanisms[:1]
