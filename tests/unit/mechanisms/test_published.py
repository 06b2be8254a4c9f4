"""Transformations as published: moments, intervals and coverage, against sums over a fine grid of the noise."""

import math
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx
from helpers.bitsources import Recorded
from helpers.errors import refused
from scipy import special

import slowscale as ss
from slowscale.mechanisms.base import Noisy
from slowscale.mechanisms.drawing import fine_step
from slowscale.sampling.exact import lift_arb

N = np.linspace(-9, 9, 150_001)
WEIGHTS = np.exp(-(N**2) / 2) / np.exp(-(N**2) / 2).sum()
OWN = ss.Transformation(np.sqrt, np.square, 2, 0, estimator=lambda v: v * v - 4)
MECHANISMS = [
    ss.Root(k=2, sigma=0.5, estimator="median"),
    ss.Root(k=3, sigma=2, a=1, estimator="median"),
    ss.Log(sigma=0.3, a=2, estimator="median"),
    ss.Root(k=2, sigma=0.5),
    ss.Root(k=3, sigma=2, a=1),
    ss.Log(sigma=0.3, a=2),
    OWN,
]


def at_random(m):
    return m.estimator != "median"


def published(m, q, u):
    """Bias and standard deviation of the published value: rounding at random adds part·(1 − part) to the variance."""
    ideal = m.estimate(m.transform(q) + m.sigma * N) / u
    part = ideal - np.floor(ideal)
    results = ideal if at_random(m) else np.floor(ideal + 0.5)
    mean = WEIGHTS @ results
    more = WEIGHTS @ (part * (1 - part)) if at_random(m) else 0.0
    return u * mean - q, u * math.sqrt(WEIGHTS @ (results - mean) ** 2 + more)


@pytest.mark.parametrize("unit", [Fraction(1, 4), Fraction(1), Fraction(10), Fraction(300)], ids=str)
@pytest.mark.parametrize("m", MECHANISMS, ids=str)
def test_bias_and_error_are_those_of_the_rounded_estimate(m, unit):
    for q in (0.0, 3.0, 14.0, 160.0):
        bias, std = published(m, q, float(unit))
        assert m.bias(q, unit) == pytest.approx(bias, abs=0.01 * float(unit))
        assert m.std(q, unit) == pytest.approx(std, rel=3e-3, abs=1e-3 * float(unit))
        assert m.variance(q, unit) == pytest.approx(m.std(q, unit) ** 2)


@pytest.mark.parametrize("m", MECHANISMS, ids=str)
def test_where_the_middle_half_of_the_results_spans_20_units_rounding_adds_what_it_adds_to_a_uniform(m):
    q = 1000.0
    low, high = (m.estimate(m.transform(q) + side * special.ndtri(0.75) * m.sigma) for side in (-1, 1))
    for units in (20.2, 19.8):
        u = float(Fraction((high - low) / units).limit_denominator(1000))
        bias, variance = (found[0] for found in m._rounding(np.array([q]), Fraction(u).limit_denominator(1000)))
        expected = u * u / (6 if at_random(m) else 12)
        assert variance == pytest.approx(expected, rel=0.1)
        if units > 20:
            assert (bias, variance) == (0, expected)
        else:
            assert variance != expected
    assert [float(found[0]) for found in m._rounding(np.array([q]), None)] == [0, 0]


@pytest.mark.parametrize(
    "m", [ss.Root(k=2, sigma=1e-4, estimator="median"), ss.Log(sigma=1e-6, estimator="median")], ids=str
)
def test_a_value_that_is_always_rounded_to_the_same_unit_has_no_error(m):
    for q in np.linspace(0, 400, 41):
        std = m.std(q, 1000)
        assert 0 <= std < 1e-4
        assert m.bias(q, 1000) == pytest.approx(-q, abs=1e-3)


@pytest.mark.parametrize("unit", [Fraction(1, 4), Fraction(10), Fraction(300)], ids=str)
@pytest.mark.parametrize("m", MECHANISMS, ids=str)
def test_intervals_are_the_ideal_ones_rounded_and_hold_as_often_as_stated(m, unit):
    u, level, sums = float(unit), 0.6, np.array([0.0, 14.0, 160.0])
    ideal, ends = m.prediction_interval(sums, level), m.prediction_interval(sums, level, unit)
    for row, covered in enumerate(m.coverage(sums, level, unit)):
        low, high = (round(end[row] / u) for end in ends)
        if at_random(m):
            assert (low, high) == (math.floor(ideal[0][row] / u), math.ceil(ideal[1][row] / u))
        else:
            assert (low, high) == tuple(math.floor(end[row] / u + 0.5) for end in ideal)
        results = m.estimate(m.transform(sums[row]) + m.sigma * N) / u
        if at_random(m):  # rounded down or up, the latter with the probability of the part beyond
            down = np.floor(results)
            part = results - down
            inside = (1 - part) * ((down >= low) & (down <= high)) + part * ((down + 1 >= low) & (down + 1 <= high))
        else:
            rounded = np.floor(results + 0.5)
            inside = (rounded >= low) & (rounded <= high)
        assert covered == pytest.approx(WEIGHTS @ inside, abs=2e-3)
        assert covered >= level - 1e-12


@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("sigma", [0.05, 7.0])
def test_coverage_does_not_depend_on_the_scale(k, sigma):
    for v in (0.0, 0.5, 1.5, 2.5, 5.0):
        one = ss.Root(k=k, sigma=1.0).coverage(v**k, 0.9)
        assert ss.Root(k=k, sigma=sigma).coverage((sigma * v) ** k, 0.9) == pytest.approx(one, abs=1e-7)


@pytest.mark.parametrize("unit", [Fraction(1, 4), Fraction(10), Fraction(50)], ids=str)
@pytest.mark.parametrize("m", [ss.Root(k=2, sigma=2), ss.Root(k=3, sigma=0.5, a=1), ss.Log(sigma=0.3, a=2)], ids=str)
def test_unbiased_variances_are_right_on_average_over_the_noise(m, unit):
    for q in (3.0, 160.0):
        found = WEIGHTS @ m._variance_from(m.transform(q) + m.sigma * N, unit, False)
        assert found == pytest.approx(m.variance(q, unit), rel=1e-3)


def test_variance_estimates_of_other_estimators_are_those_at_the_estimate():
    for m in (ss.Root(k=2, sigma=0.5, estimator="median"), ss.Log(sigma=0.3, a=2, estimator="median"), OWN):
        for q in (3.0, 160.0):
            v = m.transform(q)
            assert m.variance_estimate(v) == pytest.approx(m.variance(max(m.estimate(v), 0)), rel=1e-9)
    assert OWN.estimate(0.5) < 0
    assert OWN.variance_estimate(0.5) == OWN.variance(0)


def test_errors_whose_squares_floats_cannot_hold_are_kept():
    assert ss.Root(k=2, sigma=1.0).std(1e308, 1) == pytest.approx(2e154)
    assert ss.Root(k=1, sigma=1e-200).std(5, "1e-250") == pytest.approx(1e-200, rel=1e-9, abs=0)


def test_only_median_estimates_off_the_grid_are_biased_by_rounding():
    unit = Fraction(10)
    median = ss.Root(k=2, sigma=0.5, estimator="median")
    assert [m._rounding_bias(unit, on_grid) for m in (ss.Root(k=2, sigma=0.5), OWN) for on_grid in (False, True)] == [
        0
    ] * 4
    assert [median._rounding_bias(unit, on_grid) for on_grid in (False, True)] == [5, 0]
    assert median._unit_warning(unit, True) is None
    assert "rounding biases results by up to 5" in ss.Root(k=2, sigma=0.01, estimator="median")._unit_warning(
        unit, False
    )
    assert median.std(1) > 0.5
    assert median._unit_warning(Fraction(1), False) is None  # the noise is wider
    assert ss.Root(k=2, sigma=0.01)._unit_warning(unit, False) is None


@pytest.mark.parametrize("m", [ss.Root(k=4, sigma=0.5), ss.Log(sigma=0.5), OWN], ids=str)
def test_coverage_of_negative_sums_is_refused_with_a_unit_too(m):
    for ask in (m.coverage, m.prediction_interval):
        with refused(ss.ParameterError, "q", code="value"):
            ask(-0.5, 0.95, 1)


def test_ends_beyond_exact_floats_are_rounded_outwards():
    unit = Fraction(1, 10)
    for m in (ss.Root(k=1, sigma=50), ss.Root(k=2, sigma=1e-3), ss.Root(k=2, sigma=1e-3, estimator="median")):
        half, differ = 1.959963984540054 * m.sigma, 0
        for q in 1e17 + 1e15 * np.arange(20):
            low, high = (int(end[0]) for end in m._predicted(np.array([q]), half, unit))
            ends = m.prediction_interval(q, 0.95, unit)
            assert Fraction(ends[0]) <= low * unit
            assert Fraction(ends[1]) >= high * unit
            differ += (Fraction(ends[0]) != low * unit) + (Fraction(ends[1]) != high * unit)
        assert differ > 5


def exact(formula):
    """A formula in Arb, as a fraction: the midpoint at 300 bits."""
    before, ctx.prec = ctx.prec, 300
    try:
        mid = formula(lift_arb).mid().fmpq()
        return Fraction(int(mid.p), int(mid.q))
    finally:
        ctx.prec = before


def test_ideal_ends_are_exact_to_the_last_digits():
    generator = np.random.default_rng(4)
    for _ in range(10):
        sigma, a, level = generator.uniform(0.1, 3), generator.uniform(0.1, 9), generator.uniform(0.5, 0.999)
        for m in (
            ss.Root(k=1, sigma=sigma, a=a),
            ss.Root(k=5, sigma=sigma, a=a, estimator="median"),
            ss.Log(sigma=sigma, a=a),
            ss.Log(sigma=sigma, a=a, estimator="median"),
        ):
            half = -special.ndtri((1 - level) / 2) * sigma
            for q in (0.0, 1e-3, 123.456):
                for shift, end in zip((-half, half), m.prediction_interval(q, level), strict=True):
                    true = estimate_at(m, q, shift)
                    assert abs(Fraction(end) - true) <= Fraction(2) ** -46 * (abs(true) + Fraction(q) + 9)


def estimate_at(m, q, shift):
    """g(f(q + a) + shift), where a median estimate is at least 0."""
    found = exact(lambda lift: m._exact_estimate(m._exact_transform(lift(q), lift) + lift(shift), lift))
    return max(found, Fraction(0)) if m.estimator == "median" else found


def noisy_at(m, steps, unit, level=0.95):
    """A result with the given transformed value, in steps of its grid."""
    return Noisy(m, 0, unit, float(steps) * fine_step(m.sigma), level, False, False, np.array([steps], object))


def exact_ends(m, noisy):
    """Floor and ceiling of f⁻¹(v ± (zσ + step/2)) − a in units, with z from Arb."""
    step = Fraction(fine_step(m.sigma))
    v = int(noisy._fine[0]) * step

    def end(side):
        def formula(lift):
            z = arb(noisy.level).erfinv() * arb(2).sqrt()
            half = z * lift(m.sigma) + lift(step / 2)
            return m._exact_inverse(lift(v) + side * half, lift)

        return exact(formula) / noisy.unit

    return max(math.floor(end(-1)), 0), math.ceil(end(1))


@pytest.mark.parametrize(
    "m",
    [
        ss.Root(k=1, sigma=1, a=2),
        ss.Root(k=2, sigma=0.3),
        ss.Root(k=3, sigma=2, a=5, estimator="median"),
        ss.Log(sigma=0.3),
        ss.Log(sigma=2, a=4),
    ],
    ids=str,
)
@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_intervals_are_those_of_the_noise_and_of_rounding_to_the_fine_grid(m, level):
    """With units so fine that half a step of the fine grid is many of them."""
    unit = Fraction(1, 10**8)
    for over in (0.0, 1.7, 4.0, 9.3):
        noisy = noisy_at(m, round((m.transform(0) + over * m.sigma) / fine_step(m.sigma)), unit, level)
        low, high = noisy.ends
        true = exact_ends(m, noisy)
        assert true[0] - 1 - 1e-12 * true[0] <= low <= true[0]
        assert true[1] <= high <= true[1] + 1 + 1e-12 * true[1]


@pytest.mark.parametrize(
    "m",
    [
        ss.Root(k=1, sigma=1),
        ss.Root(k=2, sigma=0.3),
        ss.Root(k=400, sigma=1e-4),
        ss.Log(sigma=0.3),
        ss.Log(sigma=1e-3, a=0.7),
        ss.Log(sigma=1e-6),
    ],
    ids=str,
)
def test_intervals_hold_what_floats_lose(m):
    """With units finer than the last bit of the ends, below the size at which they are worked out exactly."""
    generator = np.random.default_rng(6)
    for power in generator.uniform(1, 29, 40):
        v = m.transform(0) + m.sigma * 2.0**power
        if (isinstance(m, ss.Log) and v > 100) or (m == ss.Root(k=400, sigma=1e-4) and not 0.5 < v < 2):
            continue  # the sum has too many digits
        top = m.estimate(v)
        unit = Fraction(max(top, 1e-3) * 2.0**-60).limit_denominator(10**30)
        noisy = noisy_at(m, round(v / fine_step(m.sigma)), unit)
        (low, high), true = noisy.ends, exact_ends(m, noisy)
        assert low <= true[0]
        assert high >= true[1]


@pytest.mark.parametrize("sigma", [1e-3, 1.0, 300.0])
def test_ends_that_floats_cannot_tell_apart_are_exact(sigma):
    """From 2³⁰ standard deviations on; the quantile itself is enlarged by 1e-14 of it."""
    for m, power in (
        (ss.Root(k=1, sigma=sigma), 31),
        (ss.Root(k=1, sigma=sigma), 60),
        (ss.Root(k=2, sigma=sigma), 31),
        (ss.Root(k=2, sigma=sigma), 45),
    ):
        width = Fraction(2) ** (power + 1) * Fraction(sigma) if m.k == 2 else Fraction(1)
        unit = (Fraction(sigma) * width / 10**15).limit_denominator(10**20)
        noisy = noisy_at(m, (2**power + 12345) * 2**17 + 1, unit)
        (low, high), true = noisy.ends, exact_ends(m, noisy)
        assert true[0] - 100 <= low < true[0]
        assert true[1] < high <= true[1] + 100
    coarse = noisy_at(ss.Root(k=1, sigma=sigma), 2**60, Fraction(10**30))
    assert coarse.ends == (0, 1)


def test_ends_that_are_whole_units_are_told_from_their_neighbours():
    """Floor and ceiling of ends that are not whole."""
    m = ss.Root(k=1, sigma=1.0)
    noisy = noisy_at(m, 2**60, Fraction(1))
    assert noisy.ends == exact_ends(m, noisy)
    many = Noisy(m, np.zeros(3, int), Fraction(1), np.array([2.0**44, 5.0, 2.0**43]), 0.95, False, False,
                 np.array([2**60, 5 * 2**16, 2**59], object))  # fmt: skip
    low, high = many.ends
    assert (low[0], high[0]) == noisy.ends
    assert (low[1], high[1]) == (3, 7)
    assert high[2] - low[2] == 4


def test_an_empty_sum_far_below_1_has_an_interval_from_0():
    """Its transformed value is negative, and 10¹⁰ standard deviations from 0."""
    noisy = ss.Log(sigma=1e-8, a=1e-300).release([0, 0, 0], bits=Recorded(2))
    assert (noisy.transformed < -(2.0**30) * 1e-8).all()
    assert noisy.low.tolist() == [0, 0, 0]
    assert noisy.high.tolist() == [1, 1, 1]


def test_no_interval_starts_below_0():
    """Neither where the inverse is computed exactly nor where the user's is too small by a rounding error."""
    noisy = ss.Root(k=2, sigma=1e-12, a=0.3).release([0, 0, 0], bits=Recorded(2))
    assert noisy.low.tolist() == [0, 0, 0]
    a = next(a for a in np.arange(1, 99) / 10 if np.exp(np.log(a)) < a)
    m = ss.Transformation(np.log, np.exp, 0.5, a)
    assert noisy_at(m, round((math.log(a) - 2) / fine_step(0.5)), Fraction(1)).low == 0


def test_errors_of_negative_sums_are_refused():
    with refused(ss.ParameterError, "q", code="value"):
        ss.Root(k=2, sigma=1)._error_at(-0.5, Fraction(1), False)


@pytest.mark.parametrize(
    "m", [ss.Log(sigma=0.5), ss.Root(k=100, sigma=1e-6), ss.Root(k=100, sigma=1e-6, estimator="median")], ids=str
)
def test_a_sum_beyond_floats_lies_in_its_interval(m):
    for noisy in (m.release(10**400, bits=Recorded(2)), m.release([10**400] * 2, bits=Recorded(2))):
        low, high, se = (np.ravel(found)[0] for found in (noisy.low, noisy.high, noisy.se))
        assert 10**308 < int(low) < 10**400
        assert high == se == math.inf
