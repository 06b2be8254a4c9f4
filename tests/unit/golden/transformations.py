"""Section 4: transformation mechanisms."""

import math

import mpmath
import numpy as np
from scipy import special

import slowscale as ss
from unit.golden.facts import About, check, near


@check(r"thm_transform\.proof_step")
def _(fact):
    root = ss.Root(k=2, sigma=math.sqrt(0.5))  # so that losses are squared differences of f
    exact = root.bounded_policy()
    near(exact(fact["qD"], fact["qD"] + fact["Delta"]), fact.paper)
    return exact(fact["qD"], fact["qDp"])


@check(r"thm_transform\.bruteforce")
def _(fact):
    rng = np.random.default_rng(1)
    violations = 0
    for _ in range(80):
        a = rng.choice([0, 1e-3, 1, 50]) if rng.random() < 0.5 else 10 ** rng.uniform(-3, 4)
        delta = 10 ** rng.uniform(-6, 9, 5000)
        q = delta * 10 ** rng.uniform(-6, 4, 5000)  # beyond that, q + delta is rounded too much
        m = ss.Log(sigma=1, a=a or 1) if rng.random() < 0.3 else ss.Root(k=int(rng.integers(1, 9)), sigma=1, a=a)
        violations += int((m.bounded_policy()(q, q + delta) > m.policy(delta) * (1 + 1e-9) + 1e-12).sum())
    return violations


@check(r"hermite\.rodrigues\.k\d")
def _(fact):
    k, x = int(fact["k"]), mpmath.mpf(fact.parameters["x"])
    with mpmath.workdps(40):
        derivative = mpmath.diff(lambda t: mpmath.exp(-(t**2) / 2), x, k)
        near(float((-1) ** k * mpmath.exp(x**2 / 2) * derivative), fact.truth)
    return ss.Root(k=k, sigma=1).estimate(fact["x"])


@check(r"hermite\.sign\.k\d")
def _(fact):
    k = int(fact["k"])
    x = np.linspace(-4, 6, 11)
    nodes, weights = special.roots_hermitenorm(20)
    same = []
    for s in (0.5, 2.0):
        estimate = ss.Root(k=k, sigma=s).estimate(x)
        printed = (-s) ** k * special.eval_hermitenorm(k, -x / s)
        mean = ((x[:, None] + 1j * s * nodes) ** k).real @ (weights / weights.sum())
        same += [np.allclose(estimate, other, rtol=1e-10, atol=1e-9 * s**k) for other in (printed, mean)]
    return all(same)


check(r"estimator\.kroot\..*")(lambda fact: ss.Root(k=fact["k"], sigma=fact["sigma"], a=fact["a"]).estimate(fact["x"]))
check(r"estimator\.log\..*")(lambda fact: ss.Log(sigma=fact["sigma"], a=1).estimate(fact["x"]) + 1)


def transformation(fact):
    if "k" in fact.parameters:
        return ss.Root(k=fact["k"], sigma=fact["sigma"], a=fact["a"])
    return ss.Log(sigma=fact["sigma"], a=fact["a"])


@check(r"(kroot|log)\.mean\..*|mc\.mean\..*")
def _(fact, *_groups):
    m = transformation(fact)
    # The mean is a sum of estimates as large as the standard deviation, up to 60,000 times the mean.
    return About(fact["q"] + m.bias(fact["q"]), 1e-14 * m.std(fact["q"]))


check(r"(kroot|log)\.var\..*|mc\.var\..*")(lambda fact, *_groups: transformation(fact).variance(fact["q"]))


@check(r"table_unbiased\.(sqrt|fourth)\..*")
def _(fact, which):
    s, total = fact["sigma"], fact["q"] + fact["a"]
    printed = {
        "sqrt": 2 * s**4 + 4 * s**2 * total,
        "fourth": 24 * s**8 + 96 * s**6 * total**0.5 + 72 * s**4 * total + 16 * s**2 * total**1.5,
    }
    near(printed[which], fact.truth)
    return ss.Root(k=2 if which == "sqrt" else 4, sigma=s, a=fact["a"]).variance(fact["q"])
