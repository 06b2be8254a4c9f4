"""Appendix "Protecting Values": bounded neighbours."""

import math

import numpy as np
from helpers.errors import refused

import slowscale as ss
from unit.golden.facts import as_bound, check, near
from unit.golden.quantities import additive


def random_bounds(item):
    """Random cases of Corollary BndPrivTransMechGlobSum: the exact loss and the bound of the item."""
    rng = np.random.default_rng(7)
    for _ in range(60):
        sigma, a = 10 ** rng.uniform(-2, 2), rng.choice([0, 10 ** rng.uniform(-3, 4)])
        power = ss.Root(k=int(rng.integers(1, 9)), sigma=sigma, a=a)
        log = ss.Log(sigma=sigma, a=a or 1)
        m = log if item[1] == "c" or (item == "1a" and rng.random() < 0.3) else power
        size = 10 ** rng.uniform(-4, 8)
        r = size * 10 ** rng.uniform(-4, 4, 5000) * rng.choice([0, 1, 1, 1], 5000)
        if item[0] == "1":
            add = rng.choice([0, 1, -1]) * size
            r += max(0, -add)
            bound = m.policy(abs(add)) if item == "1a" else m.bounded_policy(add=add, loose=True)(r)
            yield m.bounded_policy(add=add)(r), bound
        else:
            times = rng.choice([0, 1, 1]) * 10 ** rng.uniform(-3, 3)
            yield (
                m.bounded_policy()(r, times * r),
                m.policy._loose(r, np.minimum(r, times * r), abs(times - 1) * r, times),
            )


check(r"bounded\.bruteforce\.(\w+)")(
    lambda fact, item: sum(int((exact > bound * (1 + 1e-9) + 1e-12).sum()) for exact, bound in random_bounds(item))
)


@check(r"bounded\.(1b|2b|2c)\..*", agrees=as_bound)
def _(fact, item):
    scale, a = fact["sigma"], fact["a"]
    m = ss.Log(sigma=scale, a=a) if item == "2c" else ss.Root(k=round(1 / fact["k"]), sigma=scale, a=a)
    kind = (lambda **how: m.bounded_policy(add=fact["delta"], **how)) if item == "1b" else band_of(m, fact["delta"])
    loose = kind(loose=True)(fact["rc"])
    near(loose, fact["bound"])
    near(loose, fact.paper)
    return kind()(fact["rc"])


def band_of(m, times):
    """Return a function that makes the policy of a band."""
    if times > 1:
        return lambda **how: m.band_policy(times=times, **how)
    exact = m.bounded_policy()
    # A band has a factor above 1; the paper's bounds hold for smaller ones as well.
    return lambda loose=False: (
        lambda r: (
            float(m.policy._loose(np.array([r]), np.array([times * r]), np.array([(1 - times) * r]), times)[0])
            if loose
            else exact(r, times * r)
        )
    )


@check(r"bounded\.log\.a0")
def _(fact):
    with refused(ss.ParameterError, "a", code="value"):
        ss.Log(sigma=fact["sigma"], a=fact["a"])
    near(ss.Log(sigma=fact["sigma"], a=1e-30).band_policy(times=fact["delta"])(100), fact.truth)
    return ss.Log(sigma=fact["sigma"]).band_policy(times=fact["delta"], loose=True)(100)


check(r"bounded\.(?:gg|ep)\.mult\..*")(
    lambda fact: additive(fact).bounded_policy(pure=True)(fact["rc"], fact["delta"] * fact["rc"])
)


@check(r"bounded\.lemma_tanh_args")
def _(fact):
    m, values = ss.GeneralizedGaussian(sigma=10, p=0.5), {"r": 100, "r'": 30}
    exact, eps = ss.BoundedPolicy(m.policy), m.bounded_policy(pure=True)(*values.values())
    near(exact(*values.values()), math.tanh(eps / 2) * eps)
    with refused(ss.ParameterTypeError, "other", code="missing"):
        exact(values["r"])
    return f"P({','.join(values)})"


@check(r"claim\.sublinear")
def _(fact):
    laplace = ss.GeneralizedGaussian(sigma=1, p=1).pure_policy
    near(math.log(laplace(4) / laplace(1)) / math.log(4), fact.truth)
    root = ss.Root(k=fact["k"], sigma=1).policy
    return math.log(root(4) / root(1)) / math.log(4)
