"""Appendix C: prediction intervals and coverage."""

import numpy as np

import slowscale as ss
from slowscale.noise import GaussianNoise
from unit.golden.facts import check, near

check(r"normal\.z975")(lambda fact: GaussianNoise(sigma=1).ppf(0.975))
check(r"normal\.cov196")(lambda fact: GaussianNoise(sigma=1).cdf(1.96) - GaussianNoise(sigma=1).cdf(-1.96))


def is_level(fact, coverage):
    return round(coverage, 4) == fact.paper


@check(r"coverage\.k\d\..*", agrees=is_level)
def _(fact):
    k, v = int(fact["k"]), fact["v_over_sigma"]
    m = ss.Root(k=k, sigma=1)
    near(fact["q_plus_a_over_sigma_k"], v**k)
    near(m.prediction_interval(v**k, fact["p"]), (fact["lower_plus_a"], fact["upper_plus_a"]))
    # Only q + a and σ together matter.
    moved = ss.Root(k=k, sigma=0.5, a=(v / 2) ** k / 4)
    near(moved.coverage(3 * (v / 2) ** k / 4, fact["p"]), fact.truth)
    return m.coverage(v**k, fact["p"])


@check(r"coverage\.max\..*", agrees=is_level)
def _(fact):
    k = int(fact["k"])
    v = np.arange(151) * 0.04
    covered = ss.Root(k=k, sigma=1).coverage(v**k)
    near(v[covered.argmax()], fact["argmax_v"])
    return float(covered.max())


check(r"coverage\.sqrt\.example")(lambda fact: ss.Root(k=2, sigma=fact["sigma"], a=fact["a"]).coverage(fact["q"]))
check(r"mc\.coverage\..*")(lambda fact: ss.Root(k=fact["k"], sigma=1).coverage(fact["v"] ** fact["k"]))


@check(r"(sqrt|log)95\.(lower|upper|pos|neg)\.(196|exact)")
def _(fact, which, end, z):
    m = ss.Root(k=2, sigma=1, a=1) if which == "sqrt" else ss.Log(sigma=1, a=1)
    level = 0.95 if z == "exact" else 1 - 2 * GaussianNoise(sigma=1).sf(fact["z"])
    lower, upper = m.prediction_interval(1000, level)
    return {"lower": lower, "upper": upper, "pos": upper - 1000, "neg": 1000 - lower}[end]
