"""Claims about additive noise: Appendix D (error bounds) and Appendix F (the exponential polylog distribution)."""

import math

import numpy as np
from scipy.special import gamma, gammainc, gammaincc, lambertw, ndtr, ndtri

import slowscale as ss
from slowscale.core.numbers import format_number
from slowscale.noise import ExponentialPolylogNoise, GeneralizedGaussianNoise
from slowscale.study.claims import Finding, Subjects, claim, judged, percent

HALF = GeneralizedGaussianNoise(sigma=1, p=0.5)
CASES = [(1.5, 0.8, 2.0), (2.0, 1.0, math.e), (3.0, 0.5, 8.0), (1.0, 6.0, 1.5)]  # p, d, a
TERMS = 150  # of a series
AT = np.array([0.05, 1.0, 7.0])


def fox_wright(p: float, d: float, x: float, c: float, *, upper: bool) -> float:
    """Return the sum of the upper or the lower incomplete Fox-Wright series."""
    n = np.arange(TERMS)
    part = (gammaincc if upper else gammainc)((n + 1) / p, d * math.log(x) ** p)
    with np.errstate(over="ignore", invalid="ignore"):
        series = part * gamma((n + 1) / p) * c**n / gamma(n + 1)
    return float(np.sum(series[np.isfinite(series)]))


def polylog(p: float, d: float, a: float, sigma: float = 1.0) -> ExponentialPolylogNoise:
    """Return the distribution, without the warnings of a mechanism."""
    return ExponentialPolylogNoise(d=d, sigma=sigma, a=a, p=p)


@claim("D Theorem additive_bounds", certain=True)
def _(_: Subjects) -> Finding:
    """The central quantiles of the noise around the sum contain the result with the stated probability."""
    noises = [HALF, polylog(2, 1, math.e), polylog(1, 4, 3), ss.Gaussian(sigma=2).noise]
    errors = [
        abs(float(noise.cdf(noise.ppf((1 + level) / 2)) - noise.cdf(noise.ppf((1 - level) / 2))) - level)
        for noise in noises
        for level in (0.5, 0.95, 0.999)
    ]
    return Finding(judged(error < 1e-12 for error in errors), f"Exactly, for {len(noises)} noises and three levels.")


@claim("D Theorem additive_bounds", certain=True)
def _(_: Subjects) -> Finding:
    """These bounds are symmetric about the sum and do not depend on it, so they can be published."""
    ends = [
        m.prediction_interval(q)
        for m in (ss.GeneralizedGaussian(sigma=1, p=0.5), ss.ExponentialPolylog(d=1, sigma=1))
        for q in (0.0, 1024.0)
    ]
    widths = [(high - q, q - low) for (low, high), q in zip(ends, (0.0, 1024.0) * 2, strict=True)]
    same = [np.allclose(one, widths[i // 2 * 2][0], rtol=1e-9) for i, one in enumerate(widths)]
    return Finding(judged(same), "The same half-widths above and below sums of 0 and 1,024, for two mechanisms.")


@claim("D Corollary, generalized Gaussian ½", certain=True)
def _(_: Subjects) -> Finding:
    """The 95 % interval of generalized Gaussian noise with p = ½ is q ± 0.963·σ."""
    true, covered = float(HALF.ppf(0.975)), float(HALF.cdf(0.963) - HALF.cdf(-0.963))
    return Finding(
        judged([abs(true / 0.963 - 1) < 0.001]),
        f"E01: it is q ± {true:.3f}·σ. The printed interval covers {percent(covered)}.",
    )


@claim("D Corollary, generalized Gaussian ½", certain=True)
def _(_: Subjects) -> Finding:
    """The quantile function of this noise is σ·(−W((2x − 2)/e) − 1)² above the median."""
    x = np.array([0.6, 0.9, 0.975, 0.9999])
    branches = [(-np.real(lambertw((2 * x - 2) / math.e, branch)) - 1) ** 2 for branch in (-1, 0)]
    agree = [np.allclose(one, HALF.ppf(x), rtol=1e-9) for one in branches]
    return Finding(
        judged(agree),
        "With the lower branch of Lambert's W, which is W₋₁. The principal branch, which most software takes and "
        f"which gives the printed 0.963, is wrong: {format_number(branches[1][2])} instead of "
        f"{format_number(branches[0][2])} at x = 0.975 (E01).",
    )


@claim("D Corollary, generalized Gaussian ½", certain=True)
def _(_: Subjects) -> Finding:
    """The density of this noise is exp(−√(|z|/σ))/(4σ·Γ(1/p))."""
    return Finding(
        judged([np.allclose(HALF.pdf(AT), np.exp(-np.sqrt(AT)) / (4 * gamma(2)), rtol=1e-12)]),
        "At three places.",
    )


@claim("D Corollary ExpPolyErrBnd", certain=True)
def _(_: Subjects) -> Finding:
    """The formula for the 95 % interval of the exponential polylog with p = 2."""
    agree = []
    for d, a, sigma in ((1.0, math.e, 1.0), (0.113, math.e, 1.0), (4.0, 3.0, 20.0)):
        low = float(ndtr((math.log(a) - 1 / (2 * d)) * math.sqrt(2 * d)))
        half = math.exp(float(ndtri((1 - low) * 0.95 + low)) / math.sqrt(2 * d) + 1 / (2 * d)) - a
        agree.append(abs(sigma * half / float(polylog(2, d, a, sigma).ppf(0.975)) - 1) < 1e-9)
    return Finding(judged(agree), f"The same as the library's in {len(agree)} cases.")


@claim("D, after Corollary ExpPolyErrBnd", certain=True)
def _(_: Subjects) -> Finding:
    """With σ = d = 1 and a = e the interval is q ± 5.418."""
    half = float(polylog(2, 1, math.e).ppf(0.975))
    return Finding(judged([abs(half - 5.418) <= 0.0005]), f"q ± {half:.4f}.")


@claim("F.1 Density", certain=True)
def _(_: Subjects) -> Finding:
    """The density of the exponential polylog, normalized by the upper incomplete Fox-Wright series."""
    agree = []
    for p, d, a in CASES:
        scale = p * d ** (1 / p) / (2 * fox_wright(p, d, a, d ** (-1 / p), upper=True))
        agree.append(np.allclose(polylog(p, d, a).pdf(AT), scale * np.exp(-d * np.log(AT + a) ** p), rtol=1e-9))
    return Finding(judged(agree), f"{TERMS} terms agree with quadrature in {sum(agree)} of {len(agree)} cases.")


@claim("F.1 Density", certain=True)
def _(_: Subjects) -> Finding:
    """The series converges if p > 1, or if p = 1 and d > 1."""
    ratios = {}
    for p, d in ((1.2, 0.3), (2.0, 0.01), (1.0, 1.25), (1.0, 0.8)):
        n = np.array([1e6, 1e6 + 1])  # far out the incomplete gamma functions are complete
        ratios[p, d] = float((n[1] / p) ** (1 / p) * d ** (-1 / p) / n[1])  # of two terms, by Stirling's formula
    expected = [ratio < 1 for (p, d), ratio in ratios.items() if p > 1 or d > 1]
    return Finding(
        judged([*expected, ratios[1.0, 0.8] > 1]),
        "The ratio of the term after the millionth to it: "
        + "; ".join(f"p = {p:g}, d = {d:g}: {format_number(ratio)}" for (p, d), ratio in ratios.items()),
    )


@claim("F.2 Moments", certain=True)
def _(_: Subjects) -> Finding:
    """The odd moments are 0."""
    means = [float(polylog(1, d, 1).mean()) for d in (1.5, 3)]
    return Finding(
        judged([means[1] == 0, not math.isnan(means[0])]),
        "Where they exist. E14: with p = 1 the moment of order m needs d > m + 1, so that with d = 1.5 not even "
        "the mean exists.",
    )


@claim("F.2 Moments", certain=True)
def _(_: Subjects) -> Finding:
    """The formula for the even moments."""
    agree = []
    for p, d, a in ((2.0, 1.0, math.e), (3.0, 0.5, 8.0), (1.0, 9.0, 1.5)):
        base, c = fox_wright(p, d, a, d ** (-1 / p), upper=True), d ** (-1 / p)
        for k in (1, 2):
            series = [
                math.comb(2 * k, j) * (-a) ** (2 * k - j) * fox_wright(p, d, a, (j + 1) * c, upper=True)
                for j in range(2 * k + 1)
            ]
            agree.append(abs(math.fsum(series) / base / float(polylog(p, d, a).moment(2 * k)) - 1) < 1e-5)
    return Finding(judged(agree), f"The series agrees with quadrature in {sum(agree)} of {len(agree)} cases.")


@claim("F.2 Moments", certain=True)
def _(_: Subjects) -> Finding:
    """The moment of order 2k is finite if p > 1, or if p = 1 and d > 2k + 1."""
    found = {
        (p, d): float(polylog(p, d, max(1.0, math.exp(p - 1))).var())
        for p, d in ((2.0, 0.05), (1.5, 0.5), (1.0, 3.01), (1.0, 3.0))
    }
    return Finding(
        judged(math.isfinite(one) == (p > 1 or d > 3) for (p, d), one in found.items()),
        "Variances: " + "; ".join(f"p = {p:g}, d = {d:g}: {format_number(one)}" for (p, d), one in found.items()),
    )


@claim("F.3 Distribution function", certain=True)
def _(_: Subjects) -> Finding:
    """The distribution function, by the lower incomplete Fox-Wright series."""
    agree = []
    for p, d, a in CASES:
        c = d ** (-1 / p)
        lower = [fox_wright(p, d, x, c, upper=False) for x in (a, *(AT + a))]
        found = 0.5 + (np.array(lower[1:]) - lower[0]) / (2 * fox_wright(p, d, a, c, upper=True))
        agree.append(np.allclose(found, polylog(p, d, a).cdf(AT), rtol=1e-9))
    return Finding(judged(agree), f"{TERMS} terms agree with quadrature in {sum(agree)} of {len(agree)} cases.")


@claim("F.3 Distribution function", certain=True)
def _(_: Subjects) -> Finding:
    """The lower series converges under the same conditions."""
    p, d, x = 1.0, 0.5, 3.0  # the integral of exp(u − d·u) from 0 to ln x, times d
    series, exact = fox_wright(p, d, x, 1 / d, upper=False), d * (x ** (1 - d) - 1) / (1 - d)
    return Finding(
        judged([abs(series / exact - 1) < 1e-9]),
        f"E21: for all p > 0 and d > 0, as it is an integral over a finite range. For instance p = 1, d = 0.5, x = 3: "
        f"{format_number(series)}.",
    )
