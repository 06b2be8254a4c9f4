"""Section 3: unit splitting, the examples and composition."""

import math

import mpmath
import numpy as np
from scipy import special

import slowscale as ss
from slowscale.noise import GaussianNoise
from unit.golden.facts import as_bound, check, near
from unit.golden.quantities import crossovers, renyi


@check(r"unit_split\.(rho|tight_est1)")
def _(fact, what):
    loss = ss.Gaussian(sigma=math.sqrt(fact["sigma2"])).policy(fact["Delta"])
    if what == "rho":
        near(ss.UnitSplitting(threshold=fact["Delta"], sigma=math.sqrt(fact["sigma2"])).policy.rho, loss)
    return loss


def splitting(threshold=10.0, rho=1.0):
    return ss.UnitSplitting(threshold=threshold, sigma=threshold / math.sqrt(2 * rho)).policy


@check(r"unit_split\.est\d")
def _(fact):
    near(fact["rho"] * fact["rows"] ** 2, fact.truth)
    return splitting(fact["threshold"], fact["rho"])(fact["employees"])


check(r"unit_split\.ratio_6_1")(lambda fact: splitting()(10_000) / splitting()(5))
check(r"unit_split\.ten_rows")(lambda fact: splitting()(10 * fact["rows"]) / splitting()(10))
check(r"ex_fourth_root\..*|policy\.kroot\..*")(
    lambda fact: ss.Root(k=fact["k"], sigma=fact["sigma"], a=fact["a"]).policy(fact["Delta"])
)
check(r"ex_log\..*|policy\.log\..*")(lambda fact: ss.Log(sigma=fact["sigma"], a=fact["a"]).policy(fact["Delta"]))
check(r"policy\.gauss\..*")(lambda fact: ss.Gaussian(sigma=fact["sigma"]).policy(fact["Delta"]))


@check(r"ex_fourth_vs_log\.cross_(low|high)")
def _(fact, which):
    fourth, log = ss.Root(k=4, sigma=fact["sigma_both"]), ss.Log(sigma=fact["sigma_both"], a=fact["a_log"])
    low, high = crossovers(fourth, log)
    assert (low[2], high[2]) == (fourth, log)
    return (low if which == "low" else high)[0]


@check(r"renyi_gauss\..*")
def _(fact):
    mu, nu, sigma, alpha = (fact[name] for name in ("mu", "nu", "sigma", "alpha"))
    noise = GaussianNoise(sigma=sigma)
    near(renyi(lambda z: noise.logpdf(z - mu), lambda z: noise.logpdf(z - nu), alpha, [mu, nu]), fact.truth, rel=1e-9)
    return alpha * ss.Gaussian(sigma=sigma).policy(abs(mu - nu))


@check(r"tanh\.eps_.*")
def _(fact):
    eps = fact["eps"]
    bound = ss.GeneralizedGaussian(sigma=1, p=1).policy(eps)
    assert bound <= min(eps, eps**2 / 2)
    # Randomized response attains the bound as alpha falls to 1, and nowhere passes it.
    with mpmath.workdps(40):
        ratios = [_response(mpmath.mpf(fact.parameters["eps"]), 1 + mpmath.mpf(10) ** n) for n in range(-12, 3)]
    near(float(ratios[0]), bound, rel=1e-9)
    assert all(float(ratio) <= bound * (1 + 1e-12) for ratio in ratios)
    return bound


def _response(eps, alpha):
    divergence = mpmath.log(mpmath.cosh((alpha - 0.5) * eps)) - mpmath.log(mpmath.cosh(eps / 2))
    return divergence / (alpha - 1) / alpha


@check(r"tanh\.onesided_counterexample")
def _(fact):
    eps = fact["eps"]
    near(ss.GeneralizedGaussian(sigma=1, p=1).policy(eps), fact["bound_tanh"])
    divergences = [math.log(1**alpha * math.exp(-eps) ** (1 - alpha)) / (alpha - 1) for alpha in (1.001, 2, 50)]
    near(divergences, [eps] * 3)
    return divergences[0]


check(r"tanh\.inv_.*")(
    lambda fact: ss.GeneralizedGaussian.calibrate(loss=fact["rho"], at=1, p=1, accounting="closed").pure_policy(1)
)


@check(r"group\.[\d._]+", agrees=as_bound)
def _(fact):
    losses = np.array([float(loss) for loss in fact.parameters["P"]])
    near(fact["J"] * losses.sum(), fact.paper)
    # Records of influence √(2P) lose P each under Gaussian noise of scale 1, and together what the lemma allows.
    return ss.Gaussian(sigma=1).policy.group(np.sqrt(2 * losses))


@check(r"group\.stress", abs=0.02)  # another sample of chains than the fact's: its maximum differs a little
def _(fact):
    rng = np.random.default_rng(1)
    n, size = int(fact["n"]), 4
    direction = rng.normal(size=(n, 1, size)) * 10 ** rng.uniform(-1, 0.5, (n, 1, 1))
    steps = np.cumsum(rng.uniform(0.2, 1, (n, 3)), axis=1)
    wiggle = rng.normal(size=(n, 3, size)) * rng.choice([0, 0.01, 0.3], (n, 1, 1)) * np.abs(direction)
    chain = np.exp(steps[:, :, None] * direction + wiggle)
    chain /= chain.sum(axis=2, keepdims=True)
    first, second, both = (_discrete_zcdp(chain[:, i], chain[:, j]) for i, j in ((0, 1), (1, 2), (0, 2)))
    tight = [ss.Gaussian(sigma=1).policy.group(np.sqrt([2 * p, 2 * q])) for p, q in zip(first, second, strict=True)]
    assert (both <= np.array(tight) * (1 + 1e-5)).all()
    ratio = float((both / (2 * (first + second))).max())
    assert ratio <= 1
    return ratio


def _discrete_zcdp(p, q):
    """The zCDP loss between discrete distributions, one a row, in both directions."""
    losses = []
    for one, two in ((np.log(p), np.log(q)), (np.log(q), np.log(p))):
        steps, x = 0.2, np.broadcast_to(np.linspace(-6, 4, 51)[:, None], (51, len(p)))
        for _ in range(5):  # narrow in on the order with the largest loss
            order = 1 + 10.0**x
            divergence = special.logsumexp(order[..., None] * one + (1 - order[..., None]) * two, axis=2) / (order - 1)
            best = (divergence / order).argmax(axis=0)
            x = np.take_along_axis(x, best[None], axis=0) + np.linspace(-steps, steps, 9)[:, None]
            steps /= 4
        losses.append((divergence / order).max(axis=0))
    return np.maximum(*losses)


@check(r"parallel\.product")
def _(fact):
    rng = np.random.default_rng(1)
    p, q, other = (row / row.sum() for row in rng.random((3, 5)))
    one, two = ss.Root(k=4, sigma=2).policy, ss.Log(sigma=1).policy
    assert (one | two)(1000) == max(one(1000), two(1000))
    alphas = np.array([1.5, 3, 20])[:, None]
    alone = np.log((p**alphas * q ** (1 - alphas)).sum(axis=1))
    product = (np.outer(p, other).ravel() ** alphas * np.outer(q, other).ravel() ** (1 - alphas)).sum(axis=1)
    return bool(np.allclose(np.log(product), alone, rtol=1e-12, atol=1e-14))
