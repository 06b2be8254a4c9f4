"""Drawing: for a known variate, the numbers whose floors are published are those of the formulas."""

import math
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx
from helpers.bitsources import Recorded
from helpers.errors import refused

import slowscale as ss
from slowscale.mechanisms.drawing import AdditiveTask, TransformationTask, fine_step
from slowscale.mechanisms.exact_sums import Sums
from slowscale.sampling.balls import Ball, lift_ball
from slowscale.sampling.exact import lift_arb

SUMS = [Fraction(1, 3), Fraction(40), Fraction(12345, 7)]
DRAWS = 20_000
# A distribution function of DRAWS draws is off by more than this once in 10⁹ times.
OFF = math.sqrt(math.log(2e9) / 2 / DRAWS)


def finished(task, variate, uniforms):
    """The numbers of each sum, from Arb and from float balls, as floats."""
    before, ctx.prec = ctx.prec, 200
    try:
        exact = [
            [float(number.mid()) for number in task.finish(arb(variate), [arb(u) for u in uniforms], row, lift_arb)]
            for row in range(len(SUMS))
        ]
    finally:
        ctx.prec = before
    many = np.full(len(SUMS), variate)
    balls = task.finish(Ball(many), [Ball(np.full(len(SUMS), u)) for u in uniforms], np.arange(len(SUMS)), lift_ball)
    found = np.array([ball.mid for ball in balls]).T
    assert found == pytest.approx(np.array(exact), rel=1e-12, abs=1e-9)
    return exact


@pytest.mark.parametrize("unit", [Fraction(1), Fraction(1, 100), Fraction(7, 3)])
def test_additive_noise_is_scaled_added_and_rounded_to_nearest(unit):
    task = AdditiveTask(ss.Gaussian(sigma=2.5)._sampler, 2.5, Sums.of(SUMS, unit))
    for row, (number,) in enumerate(finished(task, 1.5, [])):
        less = int(task.sums.whole[row])
        assert number + less == pytest.approx(
            float((SUMS[row] + Fraction(2.5) * Fraction(1.5)) / unit + Fraction(1, 2))
        )


@pytest.mark.parametrize("unit", [Fraction(1, 100), Fraction(7, 3)])
def test_the_scale_of_additive_noise_is_exact(unit):
    """Rounded to a float, it would move results by more than the balls say, and tier 2 could not correct them."""
    sigma = Fraction(0.1)
    task = AdditiveTask(ss.Gaussian(sigma=0.1)._sampler, 0.1, Sums.of(SUMS, unit))
    scale = sigma / unit
    assert Fraction(float(scale)) != scale  # otherwise nothing is tested
    for row, rest in enumerate(SUMS):
        exact = scale + rest / unit - int(task.sums.whole[row]) + Fraction(1, 2)
        before, ctx.prec = ctx.prec, 300
        try:
            (number,) = task.finish(arb(1), [], row, lift_arb)
            assert number.contains(lift_arb(exact))
        finally:
            ctx.prec = before
        (ball,) = task.finish(Ball(np.ones(1)), [], np.array([row]), lift_ball)
        assert abs(Fraction(ball.mid[0]) - exact) <= Fraction(ball.inflated()[0])


@pytest.mark.parametrize("unit", [Fraction(1), Fraction(1, 100), Fraction(7, 3)])
@pytest.mark.parametrize(
    ("m", "f", "g"),
    [
        (ss.Root(k=2, sigma=0.5, a=3), lambda x: math.sqrt(x + 3), lambda v: v**2 - 0.25 - 3),
        (ss.Root(k=3, sigma=0.5, a=3), lambda x: math.cbrt(x + 3), lambda v: v**3 - 0.75 * v - 3),
        (ss.Root(k=1, sigma=0.5, a=3), lambda x: x + 3, lambda v: v - 3),
        (
            ss.Root(k=3, sigma=0.5, a=3, estimator="median"),
            lambda x: math.cbrt(x + 3),
            lambda v: max(v, math.cbrt(3)) ** 3 - 3,
        ),
        (ss.Log(sigma=0.5, a=3), lambda x: math.log(x + 3), lambda v: math.exp(v - 0.125) - 3),
        (ss.Log(sigma=0.5, a=3, estimator="median"), lambda x: math.log(x + 3), lambda v: max(math.exp(v), 3) - 3),
    ],
    ids=["square root", "cube root", "identity", "median of the cube root", "log", "median of the log"],
)
def test_transformed_sums_get_the_noise_before_they_are_transformed_back(m, f, g, unit):
    """A mean estimate is rounded by a uniform; a median estimate and the transformed value are rounded to nearest."""
    random = m.estimator == "mean"
    formulas = (m.added._sampler, m._exact_transform, m._exact_estimate)
    task = TransformationTask(*formulas, 0.5, random, Sums.of(SUMS, unit), 2.0**-18)
    assert task.extra_uniforms == (1 if random else 0)
    for variate in (1.5, -2.0):
        for q, (estimate, fine) in zip(map(float, SUMS), finished(task, variate, [0.25] * random), strict=True):
            v = f(q) + 0.5 * variate
            assert estimate == pytest.approx(g(v) / float(unit) + (0.25 if random else 0.5), rel=1e-9)
            assert fine == pytest.approx(v * 2**18 + 0.5, rel=1e-12)


@pytest.mark.parametrize(
    "m",
    [ss.Root(k=2, sigma=3, a=2), ss.Root(k=4, sigma=0.5), ss.Log(sigma=2, a=5), ss.Log(sigma=0.3, estimator="median")],
)
def test_published_estimates_are_those_of_the_published_transformed_values(m):
    noisy = m.release(np.full(200, 1000), "0.5", bits=Recorded(3))
    step = fine_step(m.sigma)
    ends = np.sort([m.estimate(noisy.transformed + side * step) for side in (-1, 1)], axis=0)
    assert (noisy.value >= ends[0] - 0.5).all()
    assert (noisy.value <= ends[1] + 0.5).all()


LAWS = [
    ss.Gaussian(sigma=40),
    ss.UnitSplitting(threshold=10, sigma=40),
    *[ss.GeneralizedGaussian(sigma=9, p=p) for p in (1, 0.5, 0.25, 0.125, 0.3, 0.75)],
    ss.ExponentialPolylog(d=4, sigma=30, p=1),
    ss.ExponentialPolylog(d=1, sigma=30, p=1.5),
    ss.ExponentialPolylog(d=0.238),
    ss.ExponentialPolylog(d=4, sigma=100, a=3),
    ss.ExponentialPolylog(d=0.1, sigma=10, p=3),
]


@pytest.mark.parametrize("m", LAWS, ids=str)
def test_the_noise_that_is_drawn_has_the_distribution_of_the_noise(m):
    noisy = m._release(np.zeros(DRAWS, np.int64), Fraction(1, 1000), 0.95, Recorded(7))
    z = np.sort(np.asarray(noisy.units, float)) / 1000
    expected = m.noise.cdf(z)
    assert np.abs(expected - (np.arange(DRAWS) + 0.5) / DRAWS).max() < OFF
    assert np.abs(m.noise.cdf(2 * z) - expected).max() > 2 * OFF  # the twin: twice the noise would be seen


@pytest.mark.parametrize("n", range(1, 10))
def test_only_whole_powers_of_gammas_are_drawn_as_such(n):
    """Exponents 1/n up to 8; all others, such as 0.3, have a sampler for any exponent."""
    from slowscale.sampling.samplers import PowerOfAnyGamma, PowerOfGamma

    whole = 1 / Fraction(1 / n) == n and n <= 8
    sampler = ss.GeneralizedGaussian(sigma=1, p=1 / n)._sampler
    assert sampler == PowerOfGamma(n) if whole else isinstance(sampler, PowerOfAnyGamma)
    assert isinstance(ss.GeneralizedGaussian(sigma=1, p=0.9 / n)._sampler, PowerOfAnyGamma)


def test_polylog_candidates_are_accepted_as_often_as_stated():
    """ln(|z|/σ + a) is normal with mean and variance 1/(2d), cut at ln a."""
    from scipy import stats

    from slowscale.sampling.samplers import Polylog, TruncatedNormal

    for d, a in ((0.15, None), (0.238, None), (0.3, 3.5), (0.45, None)):
        m = ss.ExponentialPolylog(d=d) if a is None else ss.ExponentialPolylog(d=d, a=a)
        kept = stats.norm.sf(math.log(m.a), 0.5 / d, math.sqrt(0.5 / d))
        assert kept > 0.5
        assert isinstance(m._sampler, TruncatedNormal)
        assert m._sampler.acceptance == pytest.approx(kept, rel=1e-12)
    for d, a in ((0.55, None), (0.3, 6.0), (4, None)):
        m = ss.ExponentialPolylog(d=d) if a is None else ss.ExponentialPolylog(d=d, a=a)
        assert stats.norm.sf(math.log(m.a), 0.5 / d, math.sqrt(0.5 / d)) < 0.5
        assert isinstance(m._sampler, Polylog)
    assert ss.ExponentialPolylog(d=1e-3)._sampler.acceptance < 1  # rejections are always possible


def test_scales_too_small_for_a_fine_grid_are_refused():
    for m in (ss.Root(k=2, sigma=1e-287), ss.Log(sigma=1e-300)):
        with refused(ss.ParameterError, "sigma", code="value"):
            m.release(5)
    assert ss.Root(k=2, sigma=1.1e-280).release(5).units == 5


@pytest.mark.parametrize(("d", "drawn"), [(1.0001, False), (1.0009, False), (1.001, True)])
def test_a_power_law_whose_draws_have_too_many_digits_is_refused_before_anything_is_drawn(d, drawn):
    mechanism = ss.ExponentialPolylog(d=d, sigma=1, a=3, p=1)
    if drawn:
        assert mechanism.release(np.zeros(50)).units.shape == (50,)
    else:
        with refused(ss.ParameterError, "the noise", code="too-large"):
            mechanism.release(np.zeros(50))
