"""What checks of several sections compute: crossovers, divergences, and the noise that a fact describes."""

import math
from itertools import pairwise

from scipy import integrate

import slowscale as ss
from slowscale.noise import ExponentialPolylogNoise


def crossovers(one, two, within=(1e-6, 1e12)):
    """The crossovers of two mechanisms, as (influence, loss, which is better from there on)."""
    found = ss.compare({"one": one, "two": two}, within=within, accounting="closed").crossovers
    return [(c.influence, c.loss, {"one": one, "two": two}[c.above]) for c in found]


def renyi(log_p, log_q, alpha, kinks):
    """The Rényi divergence of two densities on the line; the Kullback-Leibler divergence for alpha = 1."""

    def integrand(z):
        p, q = log_p(z), log_q(z)
        return math.exp(p) * (p - q) if alpha == 1 else math.exp(alpha * p + (1 - alpha) * q)

    ends = [-math.inf, *sorted(kinks), math.inf]
    parts = [integrate.quad(integrand, a, b, epsabs=1e-12, epsrel=1e-10, limit=200)[0] for a, b in pairwise(ends)]
    return sum(parts) if alpha == 1 else math.log(sum(parts)) / (alpha - 1)


def zcdp(noise, shift):
    """The exact zCDP loss of a shift of the noise: the supremum over alpha of divergence/alpha."""
    alphas = [1, 1.001, 1.01, 1.1, 1.5, 2, 3, 5, 10, 30]
    losses = [renyi(noise.logpdf, lambda z: noise.logpdf(z - shift), alpha, [0, shift]) / alpha for alpha in alphas]
    return max(losses)


def polylog(fact, **given):
    """The exponential polylog noise of a fact; what it does not say is the paper's usual choice."""
    return ExponentialPolylogNoise(**_named(fact) | given)


def additive(fact):
    """The additive mechanism of a fact: only the exponential polylog has a d."""
    kind = ss.ExponentialPolylog if "d" in fact.parameters else ss.GeneralizedGaussian
    return kind(**_named(fact))


def _named(fact):
    return {name: fact[name] for name in ("d", "sigma", "a", "p") if name in fact.parameters}


def log_normaliser(noise):
    """ln ∫ from ln a to ∞ of exp(u − d·u^p) du, from the density at 0."""
    return -math.log(2 * noise.sigma) - noise.d * math.log(noise.a) ** noise.p - noise.logpdf(0)
