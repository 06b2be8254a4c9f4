"""Answers do not depend on the units of the data: every parameter is multiplied by a factor, by its own dimension.

Sizes, sums, units, and the scales of additive noise are multiplied by the factor, the scale of a kth root by the kth
root of it; losses, probabilities, the scale of a log and the shapes of noise stay as they are. Then every answer must
be multiplied by the power of the factor that its own dimension is, to nine digits.
"""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from helpers.bitsources import Recorded

import slowscale as ss
from slowscale.mechanisms.additive import AdditiveMechanism
from slowscale.mechanisms.sum_intervals import sum_half_steps
from slowscale.policy import PointsPolicy, PolylogPolicy, PowerPolicy, TightPolicy

FACTORS = ("1e-9", "1e-3", "1e3", "1e9")
ROUGH = 0.2  # the precision of a curve that is quick to compute
SIZES = np.array([0.37, 12.0, 4001.0, 2.5e6])
SUMS = (0, "3.7", 1234, 5_000_000)
POINTS = ((10, 0.1), (1000, 2), (1e6, 8))


def points(f):
    return [(size * f, loss) for size, loss in POINTS]


MECHANISMS = {
    "Gaussian": lambda f: ss.Gaussian(sigma=75 * f),
    "Laplace": lambda f: ss.GeneralizedGaussian(sigma=40 * f, p=1),
    "generalized Gaussian": lambda f: ss.GeneralizedGaussian(sigma=7 * f, p=0.5),
    "polylog": lambda f: ss.ExponentialPolylog(d=0.24, sigma=3 * f),
    "polylog, other a and p": lambda f: ss.ExponentialPolylog(d=0.7, sigma=3 * f, a=9, p=2.5),
    "polylog, p = 1": lambda f: ss.ExponentialPolylog(d=4, sigma=30 * f, p=1),
    "polylog without a mean": lambda f: ss.ExponentialPolylog(d=1.8, sigma=30 * f, p=1),
    "arsinh-normal": lambda f: ss.ArsinhNormal(scale=5 * f, shape=1.6),
    "points": lambda f: ss.FromPolicy(points(f)),
    "sum of policies": lambda f: ss.FromPolicy(
        PolylogPolicy(d=0.2, sigma=3 * f) + PointsPolicy(points(f)) + PowerPolicy(sigma=700 * f, p=0.5)
    ),
    "unit splitting": lambda f: ss.UnitSplitting(threshold=20 * f, sigma=75 * f),
    "square root": lambda f: ss.Root(k=2, sigma=3 * f ** (1 / 2), a=5 * f),
    "fourth root": lambda f: ss.Root(k=4, sigma=0.5 * f ** (1 / 4), a=5 * f),
    "log": lambda f: ss.Log(sigma=0.5, a=40 * f),
    "user-given": lambda f: ss.Transformation(
        lambda x: np.log1p(x / f), lambda y: f * np.expm1(y), sigma=0.5, a=2 * f
    ),
}  # fmt: skip
ADDITIVE = [name for name in MECHANISMS if isinstance(MECHANISMS[name](1.0), AdditiveMechanism)]
SLOW = ("polylog, other a and p", "sum of policies")  # what is integrated numerically takes seconds
SLOW_QUESTIONS = ("comparisons", "advice")  # of these, only the smallest and the largest factor


def answers_of_mechanisms(name, f):
    """What a mechanism says of its losses, errors and intervals."""
    m, decimal = MECHANISMS[name](float(f)), Decimal(f)
    sizes, f = SIZES * float(f), float(f)
    sums, unit = [Decimal(q) * decimal for q in SUMS], Fraction(decimal) / 4
    floats = np.array([float(q) for q in sums])
    yield "policy", m.policy(sizes), 0
    if m.pure_policy is not None:
        yield "pure policy", m.pure_policy(sizes), 0
    yield "group", m.policy.group(sizes), 0
    yield "change of a value", ss.BoundedPolicy(m.policy)(sizes[:2], sizes[2:]), 0
    yield "std", m.std(floats), 1
    yield "variance", m.variance(floats), 2
    yield "bias", m.bias(floats), 1
    yield "interval", m.prediction_interval(floats, 0.9), 1
    yield "coverage", m.coverage(floats, 0.9), 0
    if name in SLOW:
        return
    if name != "user-given":
        yield "published std", m.std(sums, unit), 1
        yield "published bias", m.bias(sums, unit), 1
    yield "published interval", m.prediction_interval(sums, 0.9, unit), 1
    yield "published coverage", m.coverage(sums, 0.9, unit), 0
    noisy = m.release(sums, unit, bits=Recorded(1))
    yield "released", noisy.value, 1
    if name in ADDITIVE:
        counts = np.array([1, 2, 30])
        widths = [sum_half_steps(m, unit, 0.9, on_grid, counts).astype(float) for on_grid in (True, False)]
        yield "released with", [noisy.low, noisy.high, noisy.se], 1
        yield "interval of a sum", np.array(widths) * float(unit), 1
        yield "quantiles", m.noise.isf([1e-30, 1e-3, 0.2, 0.49]), 1


def answers_of_attackers(name, f):
    """What an attacker finds out, from one release and from several."""
    f = float(f)
    m = MECHANISMS[name](f)
    asked = [ss.attacker(m, 12 * f), ss.attacker(m, values=(4 * f, 16 * f))]
    if name in ("generalized Gaussian", "points"):
        several = ss.attacker([m, ss.GeneralizedGaussian(sigma=7 * f, p=0.5)], [12 * f, 0.4 * f])
        asked += [several, several.lower]
    for one in asked:
        yield "power", one.power([1e-6, 0.01, 0.5, 0.99]), 0
        yield "delta", one.delta([0, 0.1, 2.0]), 0
        yield "epsilon", one.epsilon([1e-6, 0.01]), 0
        found = one.posterior(0.3)
        yield "posterior", [found.highest, found.average, found.correct, one.loss], 0


def answers_of_tight_policies(name, f):
    """The tight losses, one by one and from a curve."""
    f = float(f)
    m = MECHANISMS[name](f)
    yield "tight loss", [m.tight_loss(size) for size in SIZES * f], 0
    if name == "points":
        policy = TightPolicy(m.noise, m.policy, ROUGH)
        sizes = f * np.geomspace(1e-9, 1e12, 40)
        yield "tight policy", policy(sizes), 0
        yield "knots", [row["influence"] for row in policy.certificate().table()[:1]], 1


def answers_of_calibrations(_, f):
    """The parameters that meet a target."""
    f = float(f)
    yield "generalized Gaussian", ss.GeneralizedGaussian.calibrate(std=75 * f, p=0.5).sigma, 1
    yield "generalized Gaussian, p", ss.GeneralizedGaussian.calibrate(std=75 * f, sigma=7 * f).p, 0
    yield "polylog", ss.ExponentialPolylog.calibrate(std=75 * f, sigma=3 * f).d, 0
    yield "polylog, scale", ss.ExponentialPolylog.calibrate(std=2e5 * f, at=1e3 * f).sigma, 1
    yield "arsinh-normal", ss.ArsinhNormal.calibrate(interval=50 * f, shape=1.6).scale, 1
    yield "points", ss.FromPolicy.calibrate(std=1e6 * f, promise=points(f)).sigma, 0
    yield "root", ss.Root.calibrate(loss=1, at=100 * f, k=2, a=5 * f).sigma, 1 / 2
    yield "log", ss.Log.calibrate(interval=50 * f, at=100 * f, a=5 * f).sigma, 0
    yield "tight", ss.GeneralizedGaussian.calibrate(loss=1, at=106 * f, accounting="tight", p=0.5).sigma, 1


def answers_of_comparisons(_, f):
    """Crossovers, and the least standard deviation."""
    f = float(f)
    named = {name: MECHANISMS[name](f) for name in ("Gaussian", "polylog", "points", "square root", "log")}
    found = ss.compare(named)
    yield "crossovers", [one.influence for one in found.crossovers], 1
    yield "losses", [one.loss for one in found.crossovers], 0
    least = ss.least_std(PowerPolicy(sigma=7 * f, p=0.5), bins=30)
    yield "least std", [least.std, least.attained], 1


def answers_of_advice(_, f):
    """A recommended mechanism, for a wanted accuracy and for wanted losses."""
    unit = Fraction(Decimal(f))
    f = float(f)
    records = {"median": 106 * f, "largest": 1.55e6 * f}
    advice = ss.advise(records, interval=150 * f, at=1e4 * f, unit=unit)
    yield "scale", advice.best.std(1e4 * f), 1
    yield "losses", [candidate.tight for candidate in advice.table], 0


QUESTIONS = {
    **{f"{name}, mechanism": (answers_of_mechanisms, name) for name in MECHANISMS},
    **{f"{name}, attacker": (answers_of_attackers, name) for name in MECHANISMS if name not in SLOW},
    **{f"{name}, tight": (answers_of_tight_policies, name) for name in ADDITIVE},
    "calibrations": (answers_of_calibrations, None),
    "comparisons": (answers_of_comparisons, None),
    "advice": (answers_of_advice, None),
}


@pytest.mark.filterwarnings("ignore::slowscale.core.errors.ScaleWarning")
@pytest.mark.parametrize("question", QUESTIONS)
def test_answers_do_not_depend_on_the_units(question):
    ask, name = QUESTIONS[question]
    expected = list(ask(name, "1"))
    for factor in FACTORS[::3] if question in SLOW_QUESTIONS else FACTORS:
        for (what, plain, dimension), (_, scaled, _) in zip(expected, ask(name, factor), strict=True):
            power = float(factor) ** dimension
            plain, scaled = np.asarray(plain, float), np.asarray(scaled, float) / power
            # Where digits cancel, as in a bias of nearly 0, they are those of numbers that are about 1.
            floor = 1e-12 if dimension else 0.0
            np.testing.assert_allclose(scaled, plain, rtol=1e-9, atol=floor, err_msg=f"{what}, × {factor}")
