"""Claims about transformation mechanisms: Section 4 (losses, unbiased estimators), Appendix B (median-unbiased
estimators) and Appendix C (error bounds).
"""

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

import slowscale as ss
from slowscale.core.numbers import format_number
from slowscale.core.parameters import Array
from slowscale.study.claims import Finding, Subjects, claim, judged, numbers, percent
from slowscale.study.printed_tables import UNBIASED_ESTIMATORS, hermite, root_variance

ESTABLISHMENTS = np.array([5.0, 5.0, 10.0, 20.0, 30.0, 10_000.0])  # Table sample_table
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(100)


def moments(function: Callable[..., Array], centre: float, sigma: float) -> tuple[float, float]:
    """Return the mean and the variance of a function of a normal variable."""
    values, weights = function(centre + sigma * NODES), WEIGHTS / WEIGHTS.sum()
    mean = float(weights @ values)
    return mean, float(weights @ (values - mean) ** 2)


def gaussian_divergence(shift: float, sigma: float, order: float) -> float:
    """Return the Rényi divergence of two normal distributions, by quadrature."""
    z = np.linspace(-40, 40, 400_001)
    exponent = (order * -((z * sigma) ** 2) + (order - 1) * (z * sigma + shift) ** 2) / (2 * sigma**2)
    return float(np.log(np.exp(exponent).sum() * (z[1] - z[0]) / math.sqrt(2 * math.pi)) / (order - 1))


@claim("4, Lemma BS-Gauss", certain=True)
def _(_: Subjects) -> Finding:
    """The Rényi divergence of order α of two normal distributions is α·(μ − ν)²/(2σ²)."""
    cases = [(shift, sigma, order) for shift in (0.1, 1.0, 2.0) for sigma in (0.5, 1.0) for order in (1.5, 2.0, 5.0)]
    errors = [abs(gaussian_divergence(*case) / (case[2] * case[0] ** 2 / (2 * case[1] ** 2)) - 1) for case in cases]
    return Finding(judged(error < 1e-9 for error in errors), f"By quadrature, in {len(cases)} cases.")


@claim("4, Theorem transform", certain=True)
def _(_: Subjects) -> Finding:
    """A transformation f, concave and increasing, has the policy (f(Δ + a) − f(a))²/(2σ²): a record loses most if the
    rest of the sum is 0.
    """
    rest = np.concatenate([[0.0], np.geomspace(1e-3, 1e9, 500)])
    mechanisms = [ss.Root(k=2, sigma=1), ss.Root(k=4, sigma=0.5, a=3), ss.Root(k=2.5, sigma=1), ss.Log(sigma=1, a=2)]
    highest = [
        np.max((m.transform(rest + x) - m.transform(rest)) ** 2 / (2 * m.sigma**2)) / m.policy(x)
        for m in mechanisms
        for x in (0.1, 7.0, 1e6)
    ]
    return Finding(
        judged(abs(ratio - 1) < 1e-9 for ratio in highest),
        f"The largest loss over {len(rest)} sums of the other records is the policy, for {len(mechanisms)} "
        "transformations and three sizes.",
    )


@claim("4, proof of Theorem transform", certain=True)
def _(_: Subjects) -> Finding:
    """Step of the proof: f(q(D)) and f(q(D′)) differ by at most f(q(D) + Δ) − f(q(D))."""
    f, step = math.sqrt, 100
    pairs = [(abs(f(one) - f(two)), f(one + step) - f(one)) for one, two in ((0, step), (step, 0))]
    return Finding(
        judged(true <= bound for true, bound in pairs),
        f"E18: not if q(D′) < q(D). Square root, q(D) = 100, q(D′) = 0: {format_number(pairs[1][0])}, but the bound is "
        f"{format_number(pairs[1][1])}. The theorem holds: the divergence of normal distributions is symmetric.",
    )


@claim("4, Algorithm transform", certain=True)
def _(_: Subjects) -> Finding:
    """The estimator g is a function on the range of f."""
    below = [float(ndtr(-math.sqrt(q))) for q in (0.0, 1.0, 4.0)]
    return Finding(
        "holds in part" if max(below) > 0 else "holds",
        "E17: g must be defined on all numbers, because the noise leaves the range of f. Square root with σ = 1: with "
        f"probability {numbers(below)} for sums of 0, 1 and 4.",
    )


@claim("4, after Theorem transform", certain=True)
def _(_: Subjects) -> Finding:
    """The identity has a policy that grows with the square, like unit splitting: Δ²/(2σ²)."""
    sizes = np.geomspace(1, 1e6, 7)
    same = np.allclose(ss.Root(k=1, sigma=3).policy(sizes), sizes**2 / 18, rtol=1e-12)
    return Finding(judged([same]), "The same at seven sizes from 1 to a million.")


@claim("4.1 Corollary kth_root_transform", certain=True)
def _(_: Subjects) -> Finding:
    """The kth root has the policy ((Δ + a)^(1/k) − a^(1/k))²/(2σ²), for every k ≥ 1 and a ≥ 0."""
    x, sigma = np.geomspace(0.01, 1e9, 50), 0.7
    agree = [
        np.allclose(
            ss.Root(k=k, sigma=sigma, a=a, estimator="median").policy(x),
            ((x + a) ** (1 / k) - a ** (1 / k)) ** 2 / (2 * sigma**2),
            rtol=1e-6,
        )
        for k in (1, 1.5, 2, 2.5, 3, 4, 10)
        for a in (0.0, 1.0, 100.0)
    ]
    return Finding(judged(agree), f"{sum(agree)} of {len(agree)} combinations of k and a, k = 1.5 and 2.5 among them.")


@claim("4.1 Kth root", certain=True)
def _(_: Subjects) -> Finding:
    """The square root gives a linear policy, the fourth root one that grows with the square root."""
    growth = [float(ss.Root(k=k, sigma=1).policy(1e8) / ss.Root(k=k, sigma=1).policy(1e4)) for k in (2, 4)]
    return Finding(
        judged([abs(growth[0] / 1e4 - 1) < 1e-9, abs(growth[1] / 100 - 1) < 1e-9]),
        f"With a = 0 a record that is 10,000 times larger loses {format_number(growth[0])} times and "
        f"{format_number(growth[1])} times as much. E15: the first is not sublinear, so it is not slowly scaling as "
        "the paper defines it.",
    )


def _example(mechanism: ss.Mechanism, printed: list[float]) -> Finding:
    losses = np.asarray(mechanism.policy(ESTABLISHMENTS))
    return Finding(judged(np.abs(losses - printed) <= 0.05), "Losses: " + numbers(losses))


@claim("4.1 Example transformation_kth_root", certain=True)
def _(_: Subjects) -> Finding:
    """The fourth root with σ = 2 gives the six establishments losses of 0.3, 0.3, 0.4, 0.6, 0.7 and 12.5."""
    return _example(ss.Root(k=4, sigma=2), [0.3, 0.3, 0.4, 0.6, 0.7, 12.5])


@claim("4.1 Example transformation_kth_root", certain=True)
def _(_: Subjects) -> Finding:
    """These losses are much closer together than with unit splitting, and large establishments lose far less."""
    split = ss.UnitSplitting(threshold=10, sigma=math.sqrt(50)).policy(ESTABLISHMENTS)
    root = ss.Root(k=4, sigma=2).policy(ESTABLISHMENTS)
    return Finding(
        judged([np.ptp(root) < np.ptp(split) / 100, root[-1] < split[-1] / 100]),
        f"Largest to smallest loss: {format_number(root.max() / root.min())} instead of "
        f"{format_number(split.max() / split.min())}; the largest loses {format_number(root[-1])} instead of "
        f"{format_number(split[-1])}.",
    )


@claim("4.2 Corollary log_transform", certain=True)
def _(_: Subjects) -> Finding:
    """The log has the policy (ln(Δ + a) − ln a)²/(2σ²), for every a > 0."""
    x, sigma = np.geomspace(0.01, 1e9, 50), 0.7
    offsets = (0.01, 1.0, 500.0)
    agree = [
        np.allclose(ss.Log(sigma=sigma, a=a).policy(x), np.log1p(x / a) ** 2 / (2 * sigma**2), rtol=1e-12)
        for a in offsets
    ]
    return Finding(judged(agree), f"At {len(x)} sizes for a = {numbers(offsets)}.")


@claim("4.2 Example transformation", certain=True)
def _(_: Subjects) -> Finding:
    """The log with σ = 2 and a = 1 gives the six establishments losses of 0.4, 0.4, 0.7, 1.2, 1.5 and 10.6."""
    return _example(ss.Log(sigma=2), [0.4, 0.4, 0.7, 1.2, 1.5, 10.6])


@claim("4.2 Example transformation", certain=True)
def _(_: Subjects) -> Finding:
    """Compared with the fourth root, small records lose more under the log, and large ones less."""

    def difference(x: float) -> float:
        return float(ss.Log(sigma=2).policy(x) - ss.Root(k=4, sigma=2).policy(x))

    low, high = brentq(difference, 0.1, 100), brentq(difference, 100, 1e6)
    return Finding(
        judged([difference(10) > 0 > difference(1e6), difference(0.1) > 0]),
        f"The log loses more from {low:.4g} to {high:,.1f}, and less below and above (E20).",
    )


@claim("4.3 Theorem meanUnbiasTransform", certain=True)
def _(_: Subjects) -> Finding:
    """The Hermite polynomial of order k is an unbiased estimator for the kth root, with the stated variance."""
    agree = []
    for k in range(1, 9):
        for q, a, sigma in ((0.0, 0.0, 1.0), (3.0, 1.0, 0.5), (1000.0, 2.0, 2.0)):
            variance = root_variance(k, q, sigma, a)
            mean, square = moments(lambda x, k=k, s=sigma: hermite(k, x, s), (q + a) ** (1 / k), sigma)
            agree.append(abs(mean - q - a) < 1e-9 * max(q, variance**0.5) and abs(square / variance - 1) < 1e-9)
    return Finding(judged(agree), f"By quadrature, for k = 1 to 8, in {len(agree)} cases.")


@claim("4.3 Theorem meanUnbiasTransform", certain=True)
def _(_: Subjects) -> Finding:
    """exp(x − σ²/2) − a is an unbiased estimator for the log, with the variance (exp(σ²) − 1)·(q + a)²."""
    agree = []
    for q, a, sigma in ((0.0, 1.0, 1.0), (3.0, 0.5, 0.2), (1000.0, 20.0, 1.5)):
        mean, square = moments(lambda x, s=sigma, a=a: np.exp(x - s**2 / 2) - a, math.log(q + a), sigma)
        agree.append(abs(mean - q) < 1e-9 * (q + a) and abs(square / math.expm1(sigma**2) / (q + a) ** 2 - 1) < 1e-6)
    return Finding(judged(agree), f"By quadrature, in {len(agree)} cases.")


@claim("4.3 Table unbiasedestimators", certain=True)
def _(_: Subjects) -> Finding:
    """The five estimators and their variances."""
    agree = []
    for row in UNBIASED_ESTIMATORS:
        m, q = row.mechanism, 50.0
        v = float(m.transform(q))
        known = np.allclose(m.estimate(v + m.sigma * NODES), row.estimate(v + m.sigma * NODES), rtol=1e-9)
        agree.append(known and abs(row.variance(q) / m.variance(q) - 1) < 1e-9 and abs(m.bias(q)) < 1e-9)
    return Finding(judged(agree), f"{sum(agree)} of {len(agree)} rows agree with the library, at a sum of 50.")


@claim("4.3 Unbiased estimators", certain=True)
def _(_: Subjects) -> Finding:
    """Sums of mean-unbiased results are mean-unbiased: block-level results add up to states."""
    cells = np.full(1000, 10.0)
    biases = [float(np.sum(ss.Log(sigma=0.5, estimator=e).bias(cells)) / cells.sum()) for e in ("mean", "median")]
    return Finding(
        judged([abs(biases[0]) < 1e-9, biases[1] > 0.05]),
        "Log with σ = 0.5: the sum of 1,000 cells of 10 is right on average. With the median-unbiased estimator it is "
        f"{percent(biases[1])} too large.",
    )


@claim("4.3 Unbiased estimators")
def _(_: Subjects) -> Finding:
    """Unbiased estimators for general transformations exist, but their formula is unwieldy."""
    mechanism = ss.Root(k=2.5, sigma=0.5, noise="laplace")
    return Finding(
        "not measured",
        "A judgement, about Gaussian noise. With Laplace noise of scale b the estimator h − b²·h″ − a, where h is the "
        "inverse of f, is unbiased for every smooth f: for instance the root with k = 2.5, whose bias at a sum of 50 "
        f"is {abs(mechanism.bias(50.0)):.0f}.",
    )


@claim("B Median-unbiased estimators", certain=True)
def _(_: Subjects) -> Finding:
    """The "canonical" inverse x^k − a need not be unbiased in any sense."""
    bias = moments(lambda x: x**4, 1.0, 1.0)[0] - 1
    above = float(ndtr(0) + ndtr(-2))
    return Finding(
        judged([abs(bias) > 0.1, abs(above - 0.5) > 0.01]),
        f"Fourth root with σ = 1, for a sum of 1: too large by {format_number(bias)} on average, and above the sum "
        f"with probability {percent(above)}.",
    )


def _median_estimator(v: Array, below: float) -> Array:
    """The inverse of the square root above 0, and a constant below."""
    return np.where(v >= 0, v**2, below)


@claim("B Theorem mdnUnbiasTransform", certain=True)
def _(_: Subjects) -> Finding:
    """With g = f⁻¹ − a above f(a), and any g ≤ 0 below, the median of the result is the true sum."""
    z = ndtri((np.arange(100_000) + 0.5) / 100_000)
    above = [
        float(np.mean(_median_estimator(math.sqrt(q) + z, below) > q)) for q in (0.0, 1.0, 4.0) for below in (0.0, -5.0)
    ]
    library = [
        float(np.mean(m.estimate(m.transform(q) + m.sigma * z) > q))
        for m in (ss.Root(k=4, sigma=1, estimator="median"), ss.Log(sigma=1, estimator="median"))
        for q in (0.0, 3.0)
    ]
    between = float(np.mean(_median_estimator(z, -5.0) <= -5.0))  # every number from −5 to 0 is then a median
    return Finding(
        judged([all(abs(share - 0.5) < 1e-4 for share in (*above, *library)), between < 0.5]),
        f"The result exceeds the sum with probability ½ in {len(above) + len(library)} cases. E16: the median need not "
        "be unique. For a sum of 0 and g = −5 below, every number from −5 to 0 is one.",
    )


@claim("B Theorem mdnUnbiasTransform", certain=True)
def _(_: Subjects) -> Finding:
    """Of these, g = 0 below f(a) has the least risk, for every loss function that does not grow towards the sum from
    below.
    """
    z = ndtri((np.arange(100_000) + 0.5) / 100_000)
    least = []
    for q in (0.0, 1.0, 4.0):
        for loss in (np.square, np.abs, lambda error: np.abs(error) > 1):
            risks = [
                float(np.mean(loss(_median_estimator(math.sqrt(q) + z, below) - q))) for below in (0.0, -1.0, -5.0)
            ]
            least.append(risks[0] == min(risks))
    exact = [float(np.mean(_median_estimator(z, below) == 0)) for below in (0.0, -5.0)]
    return Finding(
        judged([all(least), exact[0] <= exact[1]]),
        f"In {len(least)} combinations of sum and loss function. E16: the loss must also not jump at the sum. For a "
        "sum of 0 and the loss 1 if the result is exact, otherwise 0, g = 0 has a risk of "
        f"{numbers(exact[:1])} and g = −5 a risk of {numbers(exact[1:])}.",
    )


@claim("C Theorem transformation_bounds", certain=True)
def _(_: Subjects) -> Finding:
    """The interval from the smallest to the largest g over the central 95 % of the noisy transformed sum contains the
    result with probability 95 %.
    """
    v = np.concatenate([np.linspace(0, 6, 121), [0.897]])
    found = {k: np.asarray(ss.Root(k=k, sigma=1).coverage(v**k)) for k in (2, 3, 4, 6)}
    log = float(ss.Log(sigma=1).coverage(1000.0))
    closed = np.where(v < ndtri(0.975), ndtr(ndtri(0.975)) - ndtr(-ndtri(0.975) - 2 * v), 0)
    agree = np.allclose(found[2][v < 1.95], closed[v < 1.95], atol=1e-9)
    words = ", ".join(f"{percent(one.max())} (k = {k})" for k, one in found.items())
    return Finding(
        judged([agree and abs(log - 0.95) < 1e-9 and all(one.min() > 0.95 - 1e-9 for one in found.values()),
                max(one.max() for one in found.values()) < 0.951]),
        f"E10: with at least this probability. It is exact for the log. For small sums roots have up to {words}, "
        "because their estimators are not monotonic.",
    )  # fmt: skip


@claim("C Corollary, square root", certain=True)
def _(_: Subjects) -> Finding:
    """The ends of the 95 % interval of the square root: q ± 2·1.96·σ·√(q + a) + (1.96² − 1)·σ², and −σ² − a below if
    the noisy transformed sum can be 0.
    """
    agree, z = [], float(ndtri(0.975))
    for q, a, sigma in ((1000.0, 1.0, 1.0), (50.0, 2.0, 0.6), (3.0, 1.0, 3.0), (0.0, 1.0, 1.0)):
        wide, middle = 2 * math.sqrt(q + a) * z * sigma, q + (z**2 - 1) * sigma**2
        low = -(sigma**2) - a if math.sqrt(q + a) < z * sigma else middle - wide
        found = ss.Root(k=2, sigma=sigma, a=a).prediction_interval(q)
        agree.append(np.allclose(found, (low, middle + wide), atol=1e-9))
    return Finding(judged(agree), f"The same as the library's in {len(agree)} cases, two of each kind.")


def _printed_interval(mechanism: ss.Mechanism, printed: tuple[int, ...]) -> Finding:
    low, high = mechanism.prediction_interval(1000.0)
    ends = [low, high, high - 1000, 1000 - low]
    return Finding(
        judged([*(round(end) == about for end, about in zip(ends, printed, strict=True)), ends[2] > ends[3]]),
        f"From {format_number(low)} to {format_number(high)}: {format_number(ends[2])} above and "
        f"{format_number(ends[3])} below.",
    )


@claim("C, after the square root", certain=True)
def _(_: Subjects) -> Finding:
    """With a = σ = 1 and a sum of 1,000 the interval of the square root is [879, 1127]: 127 above and 121 below."""
    return _printed_interval(ss.Root(k=2, sigma=1, a=1), (879, 1127, 127, 121))


@claim("C Corollary log", certain=True)
def _(_: Subjects) -> Finding:
    """The ends of the 95 % interval of the log: (q + a)·exp(±1.96·σ − σ²/2) − a."""
    z = float(ndtri(0.975))
    agree = [
        np.allclose(
            ss.Log(sigma=sigma, a=a).prediction_interval(q),
            [(q + a) * math.exp(sign * z * sigma - sigma**2 / 2) - a for sign in (-1, 1)],
            rtol=1e-9,
        )
        for q, a, sigma in ((1000.0, 1.0, 1.0), (0.0, 2.0, 0.3), (1e6, 50.0, 0.05))
    ]
    return Finding(judged(agree), f"The same as the library's in {len(agree)} cases.")


@claim("C, after the log", certain=True)
def _(_: Subjects) -> Finding:
    """With a = σ = 1 and a sum of 1,000 the interval of the log is [85, 4309]: 3309 above and 915 below."""
    return _printed_interval(ss.Log(sigma=1, a=1), (85, 4309, 3309, 915))


@claim("C Linear bounds", certain=True)
def _(_: Subjects) -> Finding:
    """Of all mechanisms of the paper only the log has error bounds that are linear in the sum."""
    q = np.array([1e3, 2e3, 3e3])
    mechanisms = {
        "log": ss.Log(sigma=0.5),
        "square root": ss.Root(k=2, sigma=1),
        "fourth root": ss.Root(k=4, sigma=0.5),
        "identity": ss.Root(k=1, sigma=5),
        "generalized Gaussian": ss.GeneralizedGaussian(sigma=1, p=0.5),
        "polylog": ss.ExponentialPolylog(d=1, sigma=1),
    }
    curved = {name: float(np.abs(np.diff(m.prediction_interval(q)[1], 2)[0])) for name, m in mechanisms.items()}
    linear = [name for name, bend in curved.items() if bend < 1e-6]
    return Finding(
        judged(["log" in linear and not {"square root", "fourth root"} & set(linear), linear == ["log"]]),
        f"E22: linear are {', '.join(linear)}. Of the slowly scaling transformations only the log is.",
    )


@claim("C Publication", certain=True)
def _(_: Subjects) -> Finding:
    """The bounds of slowly scaling transformations depend on the true sum; their functional form can be published."""
    q = np.array([100.0, 10_000.0])
    widths = {
        name: np.subtract(*m.prediction_interval(q)[::-1])
        for name, m in {"fourth root": ss.Root(k=4, sigma=0.5), "log": ss.Log(sigma=0.5)}.items()
    }
    return Finding(
        judged(width[1] > 2 * width[0] for width in widths.values()),
        "The form has no secret: it needs the parameters only. Lengths at sums of 100 and 10,000: "
        + "; ".join(f"{name} {numbers(width)}" for name, width in widths.items()),
    )
