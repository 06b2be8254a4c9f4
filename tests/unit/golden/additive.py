"""Section 5, Appendices D and F: additive mechanisms."""

import math
from functools import cache

import mpmath
import numpy as np
from helpers.errors import refused
from scipy import integrate, optimize, special

import slowscale as ss
from slowscale.noise import ExponentialPolylogNoise, GeneralizedGaussianNoise
from unit.golden.facts import check, near
from unit.golden.quantities import additive, log_normaliser, polylog, zcdp

check(r"gg\.norm\..*")(lambda fact: 1 / GeneralizedGaussianNoise(sigma=fact["sigma"], p=fact["p"]).pdf(0))
check(r"gg\.var\..*")(lambda fact: GeneralizedGaussianNoise(sigma=fact["sigma"], p=fact["p"]).var())


@check(r"gg\.proof_typo")
def _(fact):
    noise = GeneralizedGaussianNoise(sigma=fact["sigma"], p=fact["p"])
    near(noise.logpdf(0) - noise.logpdf(fact["Delta"] / fact["sigma"]), fact.paper)
    near(noise.logpdf(0) - noise.logpdf(fact["Delta"]), fact.truth)
    return ss.GeneralizedGaussian(sigma=fact["sigma"], p=fact["p"]).pure_policy(fact["Delta"])


def lambert_quantile(x, branch):
    return float((-special.lambertw(-2 * (1 - x) / math.e, branch).real - 1) ** 2)


check(r"gg\.q975\.p0\.5")(lambda fact: GeneralizedGaussianNoise(sigma=fact["sigma"], p=fact["p"]).ppf(0.975))
check(r"gg\.q975\.W0_value")(lambda fact: lambert_quantile(0.975, 0))


@check(r"gg\.lambert\..*")
def _(fact):
    near(lambert_quantile(fact["x"], -1), fact.truth)
    return GeneralizedGaussianNoise(sigma=1, p=fact["p"]).ppf(fact["x"])


@check(r"(?:mc\.)?gg\.cov_?([\d.]+)", rel=1e-11)  # 22.504 stands for 22.5042505688 in the note: 12 digits
def _(fact, half):
    half = 22.5042505688 if half == "22.504" else float(half)
    return 1 - 2 * GeneralizedGaussianNoise(sigma=1, p=0.5).sf(half)


check(r"mc\.gg\.var")(lambda fact: GeneralizedGaussianNoise(sigma=1, p=0.5).var())


check(r"ep\.cdf\..*|fw\.cdf\..*")(lambda fact: polylog(fact).cdf(fact["z"]))
check(r"ep\.ppf\..*")(lambda fact: polylog(fact).ppf(fact["q"]))
check(r"ep\.var\..*|stability\.var_p2\..*|mc\.ep\.var\..*")(lambda fact: polylog(fact).var())
check(r"ep\.pdf0\..*|fw\.pdf\..*")(lambda fact: polylog(fact).pdf(fact["z"]))


def least_d(order):
    """The d from which on the moment of this order exists when p = 1, to half a thousandth."""
    finite = [d for d in np.arange(1.0005, 12, 0.001) if math.isfinite(_moment(d, order))]
    assert all(math.isfinite(_moment(d, order)) for d in (finite[0], 20, 1000))
    return round(finite[0] - 0.0005, 6)


def _moment(d, order):
    return ExponentialPolylogNoise(d=d, a=1, p=1).absolute_moment(order)


@check(r"ep\.moments\.p1")
def _(fact):
    first, second, third = (least_d(2 * k) for k in (1, 2, 3))
    assert third - second == second - first
    return f"d > {second - first:g}k+{2 * first - second:g}"


@check(r"ep\.mean_unbiased\.p1")
def _(fact):
    assert math.isnan(ExponentialPolylogNoise(d=fact["example_d"], p=1).mean())
    assert ExponentialPolylogNoise(d=2.001, p=1).mean() == 0
    return f"d > {least_d(1):g}"


@check(r"ep\.moment\.p1\..*", rel=1e-11)  # near the pole at d = 2k + 1, d − 1 − 2k has 12 digits left
def _(fact):
    return polylog(fact).moment(int(fact["twok"]))


@check(r"ep\.second_derivative")
def _(fact):
    with mpmath.workdps(40):
        z, a, d, p, sigma = (mpmath.mpf(str(fact.parameters[name])) for name in ("z", "a", "d", "p", "sigma"))
        exact = float(mpmath.diff(lambda z: -d * mpmath.log(z / sigma + a) ** p, z, 2))
    noise, z, step = polylog(fact), fact["z"], 0.02
    numeric = (noise.logpdf(z + step) - 2 * noise.logpdf(z) + noise.logpdf(z - step)) / step**2
    near(numeric, exact, rel=1e-5)  # a difference quotient
    near(fact.paper, exact * fact["sigma"] ** 2)
    return exact


@check(r"thm_bndlogprob\.\d", rel=1e-10)  # the facts come from a search, not from the formula
def _(fact):
    m, shift = additive(fact), fact["l"]
    z = np.concatenate([[0, shift], np.linspace(-3 * shift, 4 * shift, 2001)])
    searched = np.abs(m.noise.logpdf(z) - m.noise.logpdf(z - shift)).max()
    near(searched, m.pure_policy(shift), rel=1e-10)
    return m.pure_policy(shift)


@check(r"ep\.convexity_violation", rel=1e-10)  # the fact comes from a search
def _(fact):
    with refused(ss.ParameterError, "a", code="value"):
        polylog(fact)

    def f(z):
        return -fact["d"] * np.log(np.abs(z) / fact["sigma"] + fact["a"]) ** fact["p"]

    near(float(f(0) - f(fact["l"])), fact.paper)
    found = optimize.minimize_scalar(lambda z: -abs(f(z) - f(z - fact["l"])), (1, 1.8, 3), tol=1e-12)
    return float(-found.fun)


@cache
def table_ep_probs(which):
    if which == "gauss":
        return ss.Gaussian.calibrate(loss=1, at=1)
    return ss.ExponentialPolylog.calibrate(loss=1, at=1, accounting="closed", free="sigma", d=4, a=3, p=int(which[1]))


check(r"ep_probs\.sigma\.(p1|p2|gauss)")(lambda fact, which: table_ep_probs(which).sigma)


@check(r"ep_probs\.(p1|p2|gauss)\.z(\d)")
def _(fact, which, z):
    near(table_ep_probs(which).sigma, fact["sigma"])
    return 2 * table_ep_probs(which).noise.sf(int(z))


@check(r"mc\.ep_probs\.p2\.z(\d)", rel=1e-7)  # the facts have 8 digits
def _(fact, z):
    return 2 * table_ep_probs("p2").noise.sf(int(z))


@check(r"ep_probs\.exact_zcdp\.(p1|p2)", rel=1e-6)  # the facts promise 6 digits
def _(fact, which):
    m = table_ep_probs(which)
    near(m.policy(1), fact.paper)
    return zcdp(m.noise, 1)


@check(r"laplace\.exact_zcdp\..*", rel=1e-8)  # the fact has 9 digits
def _(fact):
    near(ss.GeneralizedGaussian(sigma=1, p=1).policy(fact["eps"]), fact["tanh"])
    return zcdp(GeneralizedGaussianNoise(sigma=1, p=1), fact["eps"])


@check(r"ep\.bound95")
def _(fact):
    low, high = additive(fact).prediction_interval(0)
    assert low == -high
    return high


@check(r"mc\.ep\.cov5\.418", rel=1e-6)  # the fact's interval ends at 5.41785
def _(fact):
    return 1 - 2 * ExponentialPolylogNoise(d=1).sf(5.41785)


@check(r"fw\.norm\..*")
def _(fact):
    p, d, a = fact["p"], fact["d"], fact["a"]
    with mpmath.workdps(60):  # the series of the paper
        terms = int(fact["terms"]) + 100
        x, c = mpmath.mpf(d) * mpmath.log(a) ** p, mpmath.mpf(d) ** (-1 / mpmath.mpf(p))
        series = sum(mpmath.gammainc((n + 1) / mpmath.mpf(p), x) * c**n / mpmath.factorial(n) for n in range(terms))
    near(float(series), fact.truth, rel=1e-10)  # p and a are doubles here
    return p * d ** (1 / p) * math.exp(log_normaliser(polylog(fact)))


@check(r"fw\.moment([24])\..*", rel=1e-11)  # moments of 1e45 and more: their logs are doubles
def _(fact, order):
    noise = polylog(fact)
    unit = math.exp(fact.log_truth / int(order))  # in this unit even a moment of 1e948 fits into a double
    near(polylog(fact, sigma=noise.sigma / unit).moment(int(order)), 1, rel=1e-11)
    return noise.moment(int(order))


@check(r"fw\.lower_convergence")
def _(fact):
    d, top = fact["d"], math.log(fact["x"])
    with mpmath.workdps(40):
        series = sum(
            mpmath.gammainc(n + 1, 0, d * top) * mpmath.mpf(1 / d) ** n / mpmath.factorial(n) for n in range(60)
        )
    near(integrate.quad(lambda u: d * math.exp(u - d * u), 0, top, epsrel=1e-13)[0], fact.truth)
    return float(series)


@check(r"fw\.moment_proof_line3")
def _(fact):
    near(polylog(fact, sigma=1).moment(2), fact.paper)
    return polylog(fact).moment(2)


@check(r"tightness\.jump")
def _(fact):
    def f(z):
        return np.where(z == 0, 1.0, -np.abs(z))

    shift = fact["l"]
    near(float(f(0) - f(shift)), fact.paper)
    z = np.random.default_rng(1).uniform(-5, 5, 10_000)  # hits 0 and the shift with probability 0
    return float(np.abs(f(z) - f(z - shift)).max())


check(r"kurtosis\.ep\..*")(lambda fact: polylog(fact).moment(4) / polylog(fact).var() ** 2)
