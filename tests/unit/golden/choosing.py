"""Appendix A: choosing a mechanism."""

import math
from functools import cache

import numpy as np
import pytest
from scipy import optimize

import slowscale as ss
from slowscale.noise import ExponentialPolylogNoise
from unit.golden.facts import check, near
from unit.golden.quantities import crossovers, polylog

# The facts of the paper are about closed forms and pure policies.
NOTIONS = ({"accounting": "closed"}, {"pure": True})


@cache
def appendix(kind):
    """The mechanisms of Appendix A, with a standard deviation of 1000, for a sum of 10000 where that counts."""
    if kind in ("sqrt", "fourth"):
        return ss.Root.calibrate(std=1000, at=10_000, k=2 if kind == "sqrt" else 4)
    if kind == "log":
        return ss.Log.calibrate(std=1000, at=10_000)
    if kind in ("gg1", "gg05"):
        return ss.GeneralizedGaussian.calibrate(std=1000, p=1 if kind == "gg1" else 0.5)
    return ss.ExponentialPolylog.calibrate(std=1000)


ROUNDED = {
    "sqrt": ss.Root(k=2, sigma=5),
    "fourth": ss.Root(k=4, sigma=0.2),
    "log": ss.Log(sigma=0.1),
    "gg1": ss.GeneralizedGaussian(sigma=707, p=1),
    "gg05": ss.GeneralizedGaussian(sigma=91, p=0.5),
    "ep": ss.ExponentialPolylog(d=0.145),
}


check(r"appA\.sigma\.(\w+)")(lambda fact, kind: appendix(kind).sigma)
check(r"appA\.sd_at_sigma_0\.2")(lambda fact: ss.Root(k=4, sigma=fact["sigma"]).std(fact["q"]))
check(r"appA\.denominator\.(\w+)")(lambda fact, kind: 2 * appendix(kind).sigma ** 2)


@check(r"appA\.log_policy_square")
def _(fact):
    near(math.log(fact["Delta"] + fact["a"]) / (2 * fact["sigma"] ** 2), fact.paper)
    return ss.Log(sigma=fact["sigma"], a=fact["a"]).policy(fact["Delta"])


@check(r"appA\.cross\.(sqrt|fourth|gg1|gg05)_(fourth|log|gg05|ep)\.(rounded|true)")
def _(fact, one, two, which):
    mechanism = ROUNDED.__getitem__ if which == "rounded" else appendix
    found = crossovers(mechanism(one), mechanism(two))
    if "all_roots" in fact.parameters:
        near([x for x, *_ in found], [float(x) for x in fact.parameters["all_roots"]], rel=1e-9)  # 10 digits
    assert found[-1][2] == mechanism(two)
    return found[-1][0]


check(r"appA\.cross\.fourth_log\.unsquared")(
    lambda fact: optimize.brentq(lambda x: math.sqrt(x) / 0.08 - math.log(x + 1) / 0.02, 10, 1e5, xtol=1e-12)
)


@check(r"appA\.cross\.gg05_ep\.no_minus1")
def _(fact):
    sigma, d = fact["sigma"], fact["d"]
    return optimize.brentq(lambda x: math.sqrt(x / sigma) - d * math.log(x + math.e) ** 2, 1e3, 1e5, xtol=1e-10)


@check(r"appA\.sqrt_lowest_from_zero\.(rounded|true)")
def _(fact, which):
    mechanism = ROUNDED.__getitem__ if which == "rounded" else appendix
    smallest = crossovers(mechanism("sqrt"), mechanism("log"))[0]
    assert smallest[2] == mechanism("sqrt")
    return smallest[0]


check(r"appA\.d")(lambda fact: appendix("ep").d)
check(r"appA\.sd_at_0\.145")(lambda fact: polylog(fact).std())


@check(r"appA\.envelope_add\.true", rel=5e-4)  # a search on a grid with steps of 1e-4, printed to a few digits
def _(fact):
    best = ss.compare([appendix(kind) for kind in ("gg1", "gg05", "ep")], within=(100, 1e6), accounting="closed").best
    names = [str(appendix(kind)) for kind in ("gg1", "gg05", "ep")]
    assert [name for *_, name in best] == names
    return [start for start, *_ in best[1:]]


@check(r"varcmp\.sqrt\.1")
def _(fact):
    sigma = fact["sigma_c"]
    laplace, root = ss.GeneralizedGaussian(sigma=sigma, p=1), ss.Root(k=2, sigma=math.sqrt(sigma / 2))
    near(root.policy(1e9), laplace.policy(1e9))
    return optimize.brentq(lambda q: root.variance(q) - laplace.variance(), 0, 100, xtol=1e-15)


@check(r"varcmp\.sqrt\.maxdiff")
def _(fact):
    m = ss.GeneralizedGaussian(sigma=1, p=1)
    found = optimize.minimize_scalar(lambda x: m.policy(x) - m.pure_policy(x), (0.5, 1.3, 3), tol=1e-12)
    near(found.x, fact["argmax"], rel=1e-6)  # the curve is flat at its top
    return float(-found.fun)


@check(r"varcmp\.log\.d.*")
def _(fact):
    d, a = fact["d"], fact["a"]
    noise, log = ExponentialPolylogNoise(d=d, sigma=fact["ep_sigma"], a=a), ss.Log(sigma=math.sqrt(1 / (2 * d)), a=a)
    near([noise.var(), log.sigma**2], [fact["sigma_g2"], fact["sigma2"]], rel=1e-11)  # 12 digits
    near(math.sqrt(noise.var() / math.expm1(2 * d)) - a, fact.paper)
    # The variance grows with (q + a)²; its threshold may be below 0, where there is no sum to ask the library about.
    threshold = math.sqrt(noise.var() / (log.variance(0) / a**2)) - a
    if threshold > 0:
        near(log.variance(threshold), noise.var())
    return threshold


@check(r"varcmp\.log\.policy_cap")
def _(fact):
    sizes = np.concatenate([[0], np.geomspace(1e-6, 1e12, 500)])
    capped = []
    for d, a, scale in ((0.1, math.e, 1), (1, math.e, 1), (3, 10, 1), (0.5, 5, 20)):
        cap = d * np.log(sizes + a) ** 2
        capped += [(ss.ExponentialPolylog(d=d, sigma=scale, a=a).pure_policy(sizes) <= cap).all()]
        capped += [(ss.Log(sigma=math.sqrt(1 / (2 * d)), a=a).policy(sizes) <= cap).all()]
    small = ss.ExponentialPolylog(d=1, sigma=0.01, a=math.e)  # the claim needs a scale of at least 1
    assert (small.pure_policy(sizes) > np.log(sizes + math.e) ** 2).any()
    return all(capped)


check(r"calib100\.(?:identity|(sqrt|fourth)_a0)")(
    lambda fact, kind: ss.Root.calibrate(loss=1, at=100, k={None: 1, "sqrt": 2, "fourth": 4}[kind]).sigma
)


@check(r"calib100\.gg_p(1|0\.5)_(tanh|prdp)")
def _(fact, p, notion):
    return ss.GeneralizedGaussian.calibrate(loss=1, at=100, **NOTIONS[notion == "prdp"], p=float(p)).sigma


check(r"calib100\.ep_p2_ae_s1_d_(tanh|prdp)")(
    lambda fact, notion: ss.ExponentialPolylog.calibrate(loss=1, at=100, **NOTIONS[notion == "prdp"]).d
)


@check(r"calib100\.ep_p1_a1_s1_d_tanh")
def _(fact):
    # The d that solves the equation is below 1, where there is no such noise: the library says so.
    with pytest.raises(ss.CalibrationError):
        ss.ExponentialPolylog.calibrate(loss=1, at=100, a=1, p=1, accounting="closed")
    eps = ss.GeneralizedGaussian.calibrate(loss=1, at=1, p=1, accounting="closed").pure_policy(1)
    return eps / math.log(101)
