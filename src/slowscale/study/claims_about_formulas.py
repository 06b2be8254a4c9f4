"""Claims that follow from formulas alone: Section 5 (densities), Appendix A (policies and mechanism classes)."""

import math

import numpy as np

import slowscale as ss
from slowscale.core.numbers import format_number
from slowscale.noise import ExponentialPolylogNoise
from slowscale.sampling import KnownBits
from slowscale.study.claims import GAUSS, LOG, POLYLOG, POWER, ROOT, Finding, Subjects, claim, judged
from slowscale.study.printed_tables import SUMMARY
from slowscale.study.tables import tail_weights

SECTION_POLICIES, SECTION_CLASSES = "A.1 Policy functions", "A.2 Mechanism classes"


@claim("5, Table ep_probs", certain=True)
def _(_: Subjects) -> Finding:
    """The tail weights of noise with a loss of 1 at an influence of 1."""
    table = tail_weights()
    differences = np.abs(table["found"].to_numpy() - table["printed"].to_numpy())
    agree = (differences <= 0.0005 + 1e-12).tolist()
    return Finding(judged(agree), f"{sum(agree)} of {len(agree)} numbers agree to the printed digits.")


@claim("2.5 Unit splitting", certain=True)
def _(_: Subjects) -> Finding:
    """Splitting at 10 employees gives 10,000 employees a million times the loss of 5."""
    policy = ss.UnitSplitting(threshold=10, sigma=math.sqrt(50)).policy
    losses = [policy(size) for size in (5.0, 10.0, 20.0, 30.0, 10_000.0)]
    agree = np.allclose(losses, [1, 1, 4, 9, 1e6], rtol=1e-12)
    return Finding(
        judged([agree]), "Losses of 5, 10, 20, 30 and 10,000: " + ", ".join(format_number(x) for x in losses)
    )


@claim(SECTION_POLICIES, certain=True)
def _(subjects: Subjects) -> Finding:
    """A policy that grows more slowly protects large records better, but may protect small ones worse (PAYQTR1)."""
    subject = next((s for s in subjects if s.name == "PAYQTR1"), subjects[0])
    named = {name: subject.mechanisms[name] for name in (GAUSS, POWER, POLYLOG)}
    small, large = subject.attribute.median, subject.attribute.largest
    order = [[m.policy(size) for m in named.values()] for size in (small, large)]
    return Finding(
        judged([order[0][0] == min(order[0]), order[1] == sorted(order[1], reverse=True)]),
        f"{subject.name}, Gaussian, generalized Gaussian, polylog: the median record loses "
        + ", ".join(format_number(x) for x in order[0])
        + "; the largest "
        + ", ".join(format_number(x) for x in order[1]),
    )


@claim(f"{SECTION_POLICIES}, first example", certain=True)
def _(_: Subjects) -> Finding:
    """Transformations with a standard deviation of 1,000 for a sum of 10,000 have σ of about 5 (square root), 0.2
    (fourth root) and 0.1 (log); the square root has the smallest loss up to 390,625, the log from 463,584 on.
    """
    square, fourth = (ss.Root.calibrate(k=k, std=1000, at=10_000) for k in (2, 4))
    log = ss.Log.calibrate(std=1000, at=10_000)
    first = _crossing(square, fourth, 1e3, 1e7)
    second = _crossing(fourth, log, 1e5, 1e8)
    agree = [abs(square.sigma - 5) < 0.05, abs(fourth.sigma - 0.2) < 0.005, abs(log.sigma - 0.1) < 0.005]
    return Finding(
        judged([*agree, abs(first / 390_625 - 1) < 0.01, abs(second / 463_584 - 1) < 0.01]),
        f"σ = {square.sigma:.4g}, {fourth.sigma:.4g}, {log.sigma:.4g}; crossovers at {first:,.0f} and {second:,.0f}. "
        "E04: 0.25 was rounded to 0.2, and the crossovers computed from that. E05: the printed log policy lacks a "
        "square. E20: near 0 the log loses less than the square root.",
    )


@claim(f"{SECTION_POLICIES}, second example", certain=True)
def _(_: Subjects) -> Finding:
    """Additive mechanisms with a standard deviation of 1,000 have σ of about 707 (Laplace) and 91 (generalized Gaussian
    ½) and d of about 0.145 (polylog); the crossovers are at about 5,492 and 17,387.
    """
    laplace = ss.GeneralizedGaussian.calibrate(std=1000, p=1)
    power = ss.GeneralizedGaussian.calibrate(std=1000, p=0.5)
    polylog = ss.ExponentialPolylog.calibrate(std=1000, p=2)
    first, second = _crossing(laplace, power, 100, 1e5), _crossing(power, polylog, 1e4, 1e6)
    agree = [abs(laplace.sigma - 707) < 0.5, abs(power.sigma - 91) < 0.5, abs(polylog.d - 0.145) < 0.0005]
    return Finding(
        judged([*agree, abs(first / 5492 - 1) < 0.01, abs(second / 17_387 - 1) < 0.01]),
        f"σ = {laplace.sigma:.4g}, {power.sigma:.4g}, d = {polylog.d:.4g}; crossovers at {first:,.0f} and "
        f"{second:,.0f} (E06, E07, E08).",
    )


def _crossing(one: ss.Mechanism, two: ss.Mechanism, low: float, high: float) -> float:
    """Return the size from which the second mechanism has the smaller loss."""
    found = ss.compare({"one": one, "two": two}, within=(low, high), accounting="closed").crossovers
    return found[-1].influence


@claim(SECTION_CLASSES, certain=True)
def _(_: Subjects) -> Finding:
    """Additive mechanisms are unbiased: mean, median and mode are the true sum."""
    means = [float(ExponentialPolylogNoise(d=d, sigma=1, a=1, p=1).mean()) for d in (1.5, 3)]
    return Finding(
        "holds in part" if math.isnan(means[0]) and means[1] == 0 else "does not hold",
        "By symmetry, wherever the mean exists. E14: polylog noise with p = 1 has no mean if d ≤ 2.",
    )


@claim(SECTION_CLASSES, certain=True)
def _(_: Subjects) -> Finding:
    """Transformations are unbiased for the mean or for the median, but mostly not for both."""
    q = np.array([10.0, 1000.0])
    biases = {
        (name, estimator): float(np.abs(mechanism.bias(q)).max())
        for estimator in ("mean", "median")
        for name, mechanism in {
            "square root": ss.Root(k=2, sigma=1, estimator=estimator),
            "fourth root": ss.Root(k=4, sigma=0.5, estimator=estimator),
            "log": ss.Log(sigma=0.5, estimator=estimator),
        }.items()
    }
    mean = [bias < 1e-9 for (_, estimator), bias in biases.items() if estimator == "mean"]
    median = [bias > 1e-3 for (_, estimator), bias in biases.items() if estimator == "median"]
    words = ", ".join(f"{name} {format_number(bias)}" for (name, e), bias in biases.items() if e == "median")
    return Finding(
        judged([*mean, *median]), f"Largest bias of the median-unbiased estimators at sums of 10 and 1,000: {words}."
    )


@claim(SECTION_CLASSES)
def _(subjects: Subjects) -> Finding:
    """Users can estimate the variance of a transformation by inserting the published value into the variance
    formula.
    """
    subject = next((s for s in subjects if s.name == "PAYANN"), subjects[0])
    words, near = [], []
    for name in (ROOT, LOG):
        m = subject.mechanisms[name]
        q = float(np.median(subject.attribute.sums))
        published = np.asarray(m.release(np.full(200_000, q), bits=KnownBits("plug-in")).floats)
        ratio = float(np.mean(m.variance(np.maximum(published, 0))) / m.variance(q))
        near.append(abs(ratio - 1) < 0.1)
        words.append(f"{name} {ratio:.3g}")
    return Finding(
        judged(near),
        f"Mean of such estimates, divided by the true variance, for the median sum of {subject.name}: "
        + ", ".join(words)
        + ". They are too large on average, clearly so for the log. The standard error that this library publishes is "
        "the standard deviation at the median estimate, which is as likely too large as too small; "
        "release.unbiased_variance gives unbiased estimates of the variance.",
    )


@claim(SECTION_CLASSES, certain=True)
def _(_: Subjects) -> Finding:
    """For every loss guarantee an additive mechanism has the smaller variance once the sum is large enough."""
    larger = [
        ss.Root(k=2, sigma=1).variance(1e9) > ss.GeneralizedGaussian(sigma=2, p=1).variance(),
        ss.Log(sigma=1, a=math.e).variance(1e9) > ss.ExponentialPolylog(d=0.5, sigma=1, p=2).variance(),
    ]
    return Finding(
        judged(larger), "The variance of the transformations is unbounded, that of additive mechanisms is constant."
    )


@claim(f"{SECTION_CLASSES}, first example", certain=True)
def _(_: Subjects) -> Finding:
    """The policies of Laplace noise and of the square root with σ₂ = √(σ/2) differ by less and less as Δ grows; the
    square root has the smaller variance for sums below 0.75·σ, and Laplace noise above; the region grows with σ.
    """
    thresholds, differences = [], []
    for sigma in (1.0, 10.0, 1000.0):
        laplace, root = ss.GeneralizedGaussian(sigma=sigma, p=1), ss.Root(k=2, sigma=math.sqrt(sigma / 2))
        q = 0.75 * sigma
        thresholds += [
            abs(root.variance(q) / laplace.variance() - 1) < 1e-12,
            root.variance(0.99 * q) < laplace.variance() < root.variance(1.01 * q),
        ]
        differences.append(abs(laplace.policy(40 * sigma) - root.policy(40 * sigma)))
    near = [difference < 1e-12 for difference in differences]
    return Finding(
        judged([*thresholds, *near]),
        "Checked for σ = 1, 10 and 1,000: the variances cross at 0.75·σ, and at Δ = 40·σ the policies differ by at "
        f"most {max(differences):.0e}.",
    )


@claim(f"{SECTION_CLASSES}, second example", certain=True)
def _(_: Subjects) -> Finding:
    """Log and polylog with d = 1/(2σ²) and the same a: the log has the larger variance from a sum of
    √(variance/(exp(2d) − 1)) − a on.
    """
    right, words, below = [], [], []
    sizes = np.geomspace(0.01, 1e9, 200)
    for d in (0.145, 0.25, 0.5, 1.0):
        polylog, log = ss.ExponentialPolylog(d=d, sigma=1, p=2), ss.Log(sigma=math.sqrt(1 / (2 * d)), a=math.e)
        printed = math.sqrt(polylog.variance() / math.expm1(2 * d)) - math.e
        true = math.sqrt(polylog.variance() / math.expm1(1 / (2 * d))) - math.e
        equal = true <= 0 or abs(log.variance(true) / polylog.variance() - 1) < 1e-9
        right.append(equal and abs(printed - true) < 1e-6 * abs(true))
        bound = np.log(sizes + math.e) ** 2 * d
        below.append(bool(np.all(polylog.policy(sizes) <= bound) and np.all(log.policy(sizes) <= bound)))
        words.append(f"d = {d:g}: {format_number(true)} (printed formula {format_number(printed)})")
    return Finding(
        judged([*right, *below]),
        "E03: the exponent must be 1/(2d). " + "; ".join(words) + ". Below 0 means: for every sum. Both policies stay "
        "below ln(Δ + a)²/(2σ²) at 200 sizes.",
    )


@claim(f"{SECTION_CLASSES}, second example", certain=True)
def _(_: Subjects) -> Finding:
    """Log and polylog with d = 1/(2σ²) and the same a achieve asymptotically the same policy function."""
    d, sizes = 0.145, np.array([1e6, 1e9, 1e12])
    polylog = ss.ExponentialPolylog(d=d, sigma=1, p=2).policy(sizes)
    log = ss.Log(sigma=math.sqrt(1 / (2 * d)), a=math.e).policy(sizes)
    words = "; ".join(f"{format_number(one)} and {format_number(two)}" for one, two in zip(polylog, log, strict=True))
    return Finding(
        judged([bool(np.all(np.diff(polylog - log) < 0))]),
        "E25: the losses differ by 2d·ln a·(ln(Δ + a) − ln a), which grows without bound, and the polylog has the "
        f"larger one. Polylog and log with d = {d:g} and a = e, at Δ = 10⁶, 10⁹ and 10¹²: {words}.",
    )


@claim(SECTION_CLASSES)
def _(_: Subjects) -> Finding:
    """New transformations are easy to make, because only Gaussian noise must be drawn safely; every additive
    distribution needs a separate sampler, and polylogs with p other than 1 and 2 have no handy quantile function.
    """
    noise = ss.ExponentialPolylog(d=0.5, sigma=1, p=1.5)
    half = noise.prediction_interval(0, 0.95)[1]
    return Finding(
        "not measured",
        "A judgement, true of samplers by inversion. This library draws any log-concave or polylog "
        "density exactly by rejection, in interval arithmetic; for instance with p = 1.5, where the 95 % half-width is "
        f"{format_number(half)}.",
    )


@claim(SECTION_CLASSES, certain=True)
def _(subjects: Subjects) -> Finding:
    """The noise of additive mechanisms becomes negligible relative to large sums; that of the log does not."""
    additive = [float(s.std / 1e15) for s in subjects]
    log = [float(s.mechanisms[LOG].std(1e15) / 1e15) for s in subjects]
    return Finding(
        judged([*(x < 1e-9 for x in additive), *(x > 0.1 for x in log)]),
        f"Relative standard deviation for a sum of 10¹⁵: additive at most {max(additive):.0e}, log at least "
        f"{format_number(min(log))}.",
    )


@claim("6, Table mechSummary", certain=True)
def _(_: Subjects) -> Finding:
    """The formulas for variances and policies."""
    agree = [row.difference < 1e-9 for row in SUMMARY]
    return Finding(judged(agree), f"{sum(agree)} of {len(agree)} rows agree, at three sums and three sizes.")
