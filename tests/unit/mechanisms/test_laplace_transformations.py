"""Transformations with noise other than Gaussian, against rigorous quadrature of formulas that are rewritten here."""

import math

import numpy as np
import pytest
from flint import acb, arb, ctx
from scipy import integrate

import slowscale as ss
from slowscale.policy import ComposedPolicy, LaplacePolicy, LogPolicy, RootPolicy

SUMS = (0.0, 0.3, 1.0, 17.0, 1_000.0, 1e6)
USER = ss.Transformation(
    np.log1p, np.expm1, sigma=0.3, a=0, noise="laplace", slope=np.exp, bend=np.exp, estimator="mean"
)
# The mechanism, and its inverse h with the derivatives, as functions of a complex ball.
PAIRS = [
    (ss.Root(k=1, sigma=2, noise="laplace"), (lambda v: v, lambda v: acb(1), lambda v: acb(0))),
    *(
        (
            ss.Root(k=k, sigma=b, a=a, noise="laplace", estimator="mean"),
            (
                lambda v, k=k: v.pow(acb(k)),
                lambda v, k=k: k * v.pow(acb(k - 1)),
                lambda v, k=k: k * (k - 1) * v.pow(acb(k - 2)),
            ),
        )
        for k, b, a in [(2, 1.0, 0.0), (2, 0.5, 4.0), (3, 1.0, 0.0), (4, 1.0, 0.0), (4, 0.2, 10.0), (2.5, 0.7, 3.0)]
    ),
    *(
        (ss.Log(sigma=b, a=a, noise="laplace"), (lambda v: v.exp(), lambda v: v.exp(), lambda v: v.exp()))
        for b, a in [(0.05, 100.0), (0.1, 1.0), (0.4, 5.0)]
    ),
    (
        ss.Arsinh(s=3, sigma=0.2, noise="laplace"),
        (lambda v: 3 * v.sinh(), lambda v: 3 * v.cosh(), lambda v: 3 * v.sinh()),
    ),
    (USER, (lambda v: v.exp() - 1, lambda v: v.exp(), lambda v: v.exp())),
]


def exact_moments(m, inverse, q):
    """Return the mean, the variance and the mean of the estimate of the variance, as balls."""
    h, slope, bend = inverse
    ctx.prec = 160
    b, a = arb(m.sigma), arb(m.a)
    signed = isinstance(m, ss.Arsinh)
    start = acb(arb(m._floor)) if not signed else None
    if isinstance(m, ss.Root):
        start, middle = (acb(x).pow(acb(1) / m.k) if x else acb(0) for x in (a, arb(q) + a))
    elif isinstance(m, ss.Log):
        start, middle = acb(a.log()), acb((arb(q) + a).log())
    elif signed:
        middle = acb((arb(q) / 3).asinh())
    else:
        start, middle = acb(0), acb((arb(q) + 1).log())

    estimate = lambda v: h(v) - b * b * bend(v) - a  # noqa: E731
    spread = lambda v: 2 * (b * slope(v)) ** 2 + (b * b * bend(v)) ** 2  # noqa: E731
    parts = [estimate, lambda v: (estimate(v) - q) ** 2, spread]
    far = acb(400) if not isinstance(m, ss.Log) else acb(400 / (1 - 2 * m.sigma))
    totals = []
    for part in parts:
        right = acb.integral(lambda s, _, part=part: part(middle + b * s) * (-s).exp() / 2, acb(0), far)
        end = far if signed else (middle - start) / b
        left = acb.integral(lambda s, _, part=part: part(middle - b * s) * (-s).exp() / 2, acb(0), end)
        totals.append(right + left)
    if not signed:
        low = -b * slope(start)
        below = (-(middle - start) / b).exp() / 2
        totals = [t + below * x for t, x in zip(totals, (low, (low - q) ** 2, (b * slope(start)) ** 2), strict=True)]
    return [t.real for t in totals]


@pytest.mark.parametrize(("m", "inverse"), PAIRS, ids=lambda x: str(x) if isinstance(x, ss.Mechanism) else "")
@pytest.mark.parametrize("q", SUMS)
def test_means_and_variances_are_exact(m, inverse, q):
    mean, variance, estimated = exact_moments(m, inverse, q)
    assert abs(float(mean) - q) <= 1e-10 * (1 + q)
    assert float(variance) == pytest.approx(float(estimated), rel=1e-9)
    assert m.variance(q) == pytest.approx(float(variance), rel=1e-9)
    assert m.bias(q) == 0


@pytest.mark.parametrize(("m", "inverse"), PAIRS, ids=lambda x: str(x) if isinstance(x, ss.Mechanism) else "")
def test_estimates_are_those_of_the_formula(m, inverse):
    ctx.prec = 120
    h, slope, bend = inverse
    floor = m.transform(0.0)
    for v in floor + m.sigma * np.array([0.01, 0.7, 3.0, 20.0]):
        expected = (h(acb(v)) - m.sigma**2 * bend(acb(v)) - m.a).real
        assert m.estimate(v) == pytest.approx(float(expected), rel=1e-11, abs=1e-11)
    if not isinstance(m, ss.Arsinh):
        below = [m.estimate(floor - m.sigma * x) for x in (0.01, 1.0, 50.0)]
        start = acb(arb(floor))
        assert below == pytest.approx([-m.sigma * float(slope(start).real)] * 3, rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("m", [m for m, _ in PAIRS], ids=str)
def test_drawn_values_are_the_ideal_ones_rounded(m):
    """Tier 1 and Arb agree: g of the released transformed value rounds to the released estimate or next to it."""
    sums = np.array([0, 1, 17, 1000, 10**6] * 40)
    drawn = m.release(sums, unit="0.001")
    again = np.array([m.estimate(v) for v in drawn.transformed])
    # The transformed value is published on a grid of about σ/65,536.
    slope = np.abs(
        np.array([m.estimate(v + m.sigma * 2e-5) - m.estimate(v - m.sigma * 2e-5) for v in drawn.transformed])
    )
    near = np.abs(drawn.transformed - m.transform(0)) < 1e-3 * m.sigma  # the estimate jumps there
    assert (np.abs(drawn.value - again) <= slope + 0.002 + 1e-9 * np.abs(again))[~near].all()


@pytest.mark.parametrize("m", [m for m, _ in PAIRS], ids=str)
@pytest.mark.parametrize("q", [0.0, 1.0, 1000.0])
def test_intervals_contain_the_output_as_often_as_stated(m, q):
    low, high = m.prediction_interval(q, 0.9)
    v = np.linspace(-60, 60, 400_001) * m.sigma
    inside = (m.estimate(m.transform(q) + v) >= low) & (m.estimate(m.transform(q) + v) <= high)
    share = integrate.trapezoid(inside * np.exp(-np.abs(v) / m.sigma) / (2 * m.sigma), v)
    assert m.coverage(q, 0.9) == pytest.approx(share, abs=2e-4)
    assert m.coverage(q, 0.9) >= 0.9 - 1e-9


def test_the_laplace_policy_is_the_supremum_over_all_orders():
    """d_α/α from the closed form of the Rényi divergence, in 400 bits; the limit α → 1 is the largest."""
    ctx.prec = 400
    for x in (1e-3, 0.1, 1.0, 3.0, 30.0):
        stated = LaplacePolicy(sigma=2)(2 * x)
        for order in (1 + 1e-9, 1.01, 1.5, 2, 5, 28, 300, 1e6):
            a, t = arb(order), arb(x)
            inside = a * ((a - 1) * t).exp() + (a - 1) * (-a * t).exp()
            assert float((inside / (2 * a - 1)).log() / (a * (a - 1))) <= stated * (1 + 1e-12)
        a = 1 + arb(10) ** -30
        nearest = ((a * ((a - 1) * t).exp() + (a - 1) * (-a * t).exp()) / (2 * a - 1)).log() / (a * (a - 1))
        assert stated == pytest.approx(float(nearest), rel=1e-11)


def test_policies_are_those_of_the_noise_at_the_rise():
    m = ss.Log(sigma=0.05, a=1e7, noise="laplace")
    rise = math.log1p(4e10 / 1e7) / 0.05
    assert m.pure_policy(4e10) == pytest.approx(rise)
    assert m.policy(4e10) == m.tight_policy(4e10) == m.tight_loss(4e10) == pytest.approx(rise + math.expm1(-rise))
    assert str(ss.Root(k=4, sigma=2, noise="laplace").policy) == "u + e^(−u) − 1 with u = Δ^(1/4) / 2"
    slow = ss.Root(k=2, sigma=3, noise=ss.ArsinhNormal(scale=1, shape=1.5))
    additive = ss.ArsinhNormal(scale=3, shape=1.5)
    assert slow.tight_policy(100) == additive.tight_policy(10)
    assert slow.tight_loss(100) == additive.tight_loss(10)
    assert slow.pure_policy(100) == additive.pure_policy(10)


def test_composed_policies_are_values_that_can_be_described():
    for policy in (
        ComposedPolicy(LaplacePolicy(sigma=0.1), LogPolicy(sigma=1, a=5)),
        ss.Root(k=2.5, sigma=1, noise="laplace").pure_policy,
        ss.Arsinh(s=10, sigma=0.2, noise="laplace").policy,
        ss.Root(k=4, sigma=1, noise=ss.GeneralizedGaussian(sigma=1, p=0.5)).policy,
    ):
        assert ss.Policy.from_dict(policy.to_dict()) == policy
        assert policy([0, 1, 1e9]).tolist() == pytest.approx([float(policy(x)) for x in (0, 1, 1e9)])
    with pytest.raises(ss.ParameterTypeError):
        ComposedPolicy(LaplacePolicy(sigma=0.1), RootPolicy(k=2, sigma=3))


def test_mechanisms_with_noise_are_described():
    for m in (
        ss.Root(k=2.5, sigma=1, noise="laplace"),
        ss.Log(sigma=0.1, noise="laplace"),
        ss.Arsinh(s=5, sigma=0.1),
        ss.Root(k=4, sigma=2, noise=ss.ArsinhNormal(scale=1, shape=1.5)),
    ):
        assert ss.Mechanism.from_dict(m.to_dict()) == m


@pytest.mark.parametrize(
    ("made", "subject"),
    [
        (lambda: ss.Log(sigma=1, noise="laplace", estimator="mean"), "estimator"),
        (lambda: ss.Arsinh(s=1, sigma=1.2, noise="laplace", estimator="mean"), "estimator"),
        (lambda: ss.Root(k=2.5, sigma=1, estimator="mean"), "estimator"),
        (lambda: ss.Log(sigma=1, noise=ss.ArsinhNormal(scale=1, shape=1.5), estimator="mean"), "estimator"),
        (lambda: ss.Root(k=4, sigma=1, noise="cauchy"), "noise"),
        (lambda: ss.Root(k=4, sigma=1, noise=ss.Gaussian(sigma=2)), "noise"),
        (lambda: ss.Root(k=4, sigma=1, noise=ss.UnitSplitting(threshold=1, sigma=1)), "noise"),
        (lambda: ss.Root(k=0.5, sigma=1), "k"),
        (lambda: ss.Transformation(np.log1p, np.expm1, 0.1, 0, "mean"), "estimator"),
        (lambda: ss.Transformation(np.log1p, np.expm1, 0.1, 0, "mean", noise="laplace"), "estimator"),
        (
            lambda: ss.Transformation(np.log1p, np.expm1, 0.1, 0, "mean", noise="laplace", slope=np.exp, bend=np.expm1),
            "bend",
        ),
    ],
)
def test_estimators_that_do_not_exist_are_refused(made, subject):
    with pytest.raises(ss.ParameterError) as caught:
        made()
    assert caught.value.subject == subject


def test_the_estimator_is_the_median_where_the_mean_has_no_variance():
    assert ss.Root(k=1.4, sigma=1, noise="laplace").estimator == "median"
    assert ss.Root(k=1.4, sigma=1, a=1, noise="laplace").estimator == "mean"
    assert ss.Log(sigma=0.6, noise="laplace").estimator == "median"
    assert ss.Log(sigma=0.6, noise="laplace", estimator="mean").std(3) == math.inf
    assert ss.Root(k=2.5, sigma=1).estimator == "median"


def test_arsinh_takes_sums_of_any_sign():
    m = ss.Arsinh(s=1000, sigma=0.1, noise="laplace")
    drawn = m.release([-(10**6), 0, 10**6] * 2000, unit=1)
    value = np.reshape(drawn.value, (2000, 3)).astype(float)
    assert abs(value.mean(0) - [-1e6, 0, 1e6]) == pytest.approx(0, abs=6 * m.std(1e6) / 2000**0.5)
    inside = np.reshape((drawn.low <= np.tile([-(10**6), 0, 10**6], 2000)), (2000, 3)).mean(0)
    assert (inside > 0.95).all()
    assert m.policy(500) == pytest.approx(ss.Laplace(sigma=0.1).policy(2 * math.asinh(500 / 2000)))


@pytest.mark.parametrize(
    ("m", "missing"),
    [
        (ss.Log(sigma=0.49, noise="laplace"), ""),
        (ss.Log(sigma=0.5, noise="laplace"), "no variance"),
        (ss.Log(sigma=1, noise="laplace"), "no mean and no variance"),
        (ss.Log(sigma=0.49, noise=ss.GeneralizedGaussian(sigma=1, p=1)), ""),
        (ss.Log(sigma=0.7, noise=ss.GeneralizedGaussian(sigma=1, p=1)), "no variance"),
        (ss.Log(sigma=0.1, noise=ss.GeneralizedGaussian(sigma=1, p=0.9)), "no mean and no variance"),
        (ss.Log(sigma=0.1, noise=ss.ArsinhNormal(scale=1, shape=1)), "no mean and no variance"),
        (ss.Log(sigma=9), ""),
        (ss.Arsinh(s=10, sigma=0.7, noise="laplace"), "no variance"),
        (ss.Arsinh(s=10, sigma=0.1, noise=ss.ExponentialPolylog(d=3)), "no mean and no variance"),
        (ss.Arsinh(s=10, sigma=9), ""),
        (ss.Root(k=1.4, sigma=1, noise="laplace", estimator="mean"), "no variance"),
        (ss.Root(k=1.4, sigma=1, noise="laplace"), ""),
        (ss.Root(k=2, sigma=1, noise=ss.ExponentialPolylog(d=5.1, p=1)), ""),
        (ss.Root(k=2, sigma=1, noise=ss.ExponentialPolylog(d=5, p=1)), "no variance"),
        (ss.Root(k=4, sigma=1, noise=ss.ExponentialPolylog(d=5, p=1)), "no mean and no variance"),
        (ss.Root(k=4, sigma=1, noise=ss.ExponentialPolylog(d=0.5, p=2)), ""),
    ],
    ids=str,
)
def test_missing_moments_are_known(m, missing):
    """A standard deviation is infinite where there is none, and never NaN."""
    assert m._missing_moments == missing
    assert np.isinf(m.std([0, 5, 1000])).all() == bool(missing)
    assert not np.isnan(m.std([0, 5, 1000])).any()
    if missing != "no mean and no variance":  # otherwise a result could have thousands of digits
        noisy = m.release([0, 5, 1000])
        assert not np.isnan(noisy.se).any()
        assert (noisy.low <= noisy.high).all()
