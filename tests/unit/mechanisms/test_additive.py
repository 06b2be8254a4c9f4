"""Additive mechanisms: they say what their noise says, for every sum alike."""

import math
import pickle
import warnings
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from helpers.bitsources import Recorded
from helpers.errors import refused
from helpers.strategies import additive_mechanisms, mechanisms
from hypothesis import given
from hypothesis import strategies as st

import slowscale as ss
from slowscale.policy import PolylogPolicy, PowerPolicy
from slowscale.release.numbers import Estimates, normal_ratios


@given(m=additive_mechanisms, level=st.floats(0.01, 0.9999))
def test_error_is_a_public_constant(m, level):
    assert m.std() == m.noise.std() == m.std(1e6)
    assert m.variance() == m.noise.var()
    assert (m.std([1, 2, 3]) == m.noise.std()).all()
    low, high = m.prediction_interval(0, level)
    if high < math.inf:  # an exponential polylog can be wider than a float
        assert m.noise.cdf(high) - m.noise.cdf(low) == pytest.approx(level, rel=1e-9)
    assert m.coverage(5, level) == pytest.approx(level)
    lows, highs = m.prediction_interval([10, 20], level)
    assert lows == pytest.approx([low + 10, low + 20])
    assert highs == pytest.approx([high + 10, high + 20])


@given(m=mechanisms)
def test_mechanisms_are_values(m):
    namespace = vars(ss)
    assert eval(repr(m), dict(namespace)) == m
    assert hash(m) == hash(eval(repr(m), dict(namespace)))
    assert str(m).startswith(type(m).__name__)
    with pytest.raises(AttributeError):
        m.sigma = 3.0


@given(m=mechanisms)
def test_mechanisms_travel_to_other_processes(m):
    m.std(1.0)
    m.prediction_interval(1.0)
    assert pickle.loads(pickle.dumps(m)) == m


def test_prediction_interval_of_a_decimal_sum():
    low, high = ss.Gaussian(sigma=1).prediction_interval(Decimal("10.5"))
    assert (low, high) == pytest.approx((10.5 - 1.959964, 10.5 + 1.959964), rel=1e-6)


BAD = [
    (lambda: ss.Gaussian(sigma=0), "sigma must be a finite number > 0, got 0"),
    (lambda: ss.Gaussian(sigma=-1), "sigma must be a finite number > 0, got -1"),
    (lambda: ss.Gaussian(sigma=math.nan), "sigma must be a finite number > 0, got nan"),
    (lambda: ss.Gaussian(sigma=math.inf), "sigma must be a finite number > 0, got inf"),
    (lambda: ss.Gaussian(sigma=10**400), "sigma must be a finite number > 0, got a number too large"),
    (lambda: ss.Gaussian(sigma="1"), "sigma must be a finite number > 0, got '1' of type str"),
    (lambda: ss.Gaussian(sigma=True), "sigma must be a finite number > 0, got True of type bool"),
    (lambda: ss.Gaussian(sigma=None), "sigma must be a finite number > 0, got None of type NoneType"),
    (lambda: ss.Gaussian(sigma=[1, 2]), r"sigma must be a finite number > 0, got \[1, 2\] of type list"),
    (lambda: ss.Gaussian(sigma=1j), "sigma must be a finite number > 0, got 1j of type complex"),
    (lambda: ss.GeneralizedGaussian(sigma=1, p=0), "p must be a finite number > 0 and <= 1, got 0"),
    (lambda: ss.GeneralizedGaussian(sigma=1, p=1.01), "p must be a finite number > 0 and <= 1, got 1.01"),
    (lambda: ss.ExponentialPolylog(d=0), "d must be a finite number > 0, got 0"),
    (lambda: ss.ExponentialPolylog(d=1, p=0.9), "p must be a finite number >= 1, got 0.9"),
    (lambda: ss.ExponentialPolylog(d=1, p=1), "d must be > 1 when p = 1, got 1"),
    (lambda: ss.ExponentialPolylog(d=1, a=1), r"a must be at least e\*\*\(p - 1\) = 2.71828 for p = 2, got 1"),
    (lambda: ss.ExponentialPolylog(d=1, a=2.7), "a must be at least"),
    (lambda: ss.UnitSplitting(threshold=0, sigma=1), "threshold must be a finite number > 0, got 0"),
    (lambda: ss.Root(k=0, sigma=1), "k must be a finite number >= 1, got 0"),
    (lambda: ss.Root(k=0.5, sigma=1), "k must be a finite number >= 1, got 0.5"),
    (lambda: ss.Root(k=2.5, sigma=1, estimator="mean"), "only roots with a whole k have such an estimator"),
    (
        lambda: ss.Root(k=2, sigma=1, noise="cauchy"),
        "noise must be 'gaussian' or 'laplace', or additive noise",
    ),
    (lambda: ss.Log(sigma=1, noise="laplace", estimator="mean"), "log has no such estimator"),
    (lambda: ss.Root(k="4", sigma=1), "k must be a finite number >= 1, got '4' of type str"),
    (lambda: ss.Root(k=2, sigma=1, a=-1), "a must be a finite number >= 0, got -1"),
    (lambda: ss.Root(k=2, sigma=1, estimator="mode"), 'estimator must be "mean" or "median", got \'mode\''),
    (lambda: ss.Log(sigma=1, a=0), "a must be a finite number > 0, got 0"),
    (lambda: ss.Log(sigma=1, estimator=np.exp), 'estimator must be "mean" or "median", got <ufunc \'exp\'>'),
    (lambda: ss.Gaussian(sigma=1).std(math.nan), "q must be finite, got nan"),
    (lambda: ss.Gaussian(sigma=1).std("x"), "q must be"),
    (lambda: ss.Gaussian(sigma=1).prediction_interval("x"), "q must be"),
    *[
        (
            lambda m=m, level=level: m.prediction_interval(1, level),
            f"level must be between 0 and 1, both excluded, got {level}",
        )
        for m in (ss.Gaussian(sigma=1), ss.Root(k=2, sigma=1), ss.Log(sigma=1))
        for level in (0, 1, 95, -0.5, math.nan)
    ],
    (lambda: ss.Log(sigma=1).coverage(1, "0.9"), "level must be a number between 0 and 1, got '0.9' of type str"),
]


@pytest.mark.parametrize(("make", "words"), BAD)
def test_bad_input_names_the_argument_the_value_and_the_range(make, words):
    with pytest.raises((ValueError, TypeError), match=words) as caught:
        make()
    assert isinstance(caught.value, ss.SlowscaleError)


def test_ends_of_ideal_intervals_beyond_exact_floats_keep_what_is_left_of_a_unit():
    m = ss.Gaussian(sigma=1)
    half = Fraction(m.prediction_interval(0.0)[1])
    for q in (
        2**53 + Fraction(97, 100),
        2**53 - Fraction(3, 100),
        2**60 + Fraction(1, 3),
        -(2**53) - Fraction(97, 100),
    ):
        for low, high in (m.prediction_interval(q), [end[0] for end in m.prediction_interval([q, q])]):
            assert Fraction(low) <= q - half < Fraction(math.nextafter(low, math.inf))
            assert Fraction(math.nextafter(high, -math.inf)) < q + half <= Fraction(high)


@pytest.mark.parametrize(("twice", "low", "high"), [(5, -3, 3), (1, -1, 1), (2_000_001, -1_000_001, 1_000_001)])
def test_an_end_halfway_between_two_units_is_moved_outwards(twice, low, high):
    """The quantile is a float: which side of halfway its exact value is on cannot be told."""
    m = ss.Gaussian(sigma=1)
    half = m.prediction_interval(0.0)[1]
    unit = Fraction(half) * 2 / twice
    assert [round(Fraction(end) / unit) for end in m.prediction_interval(0, unit=unit)] == [low, high]
    assert [m._half_steps(unit, 0.95, on_grid) for on_grid in (True, False)] == [high, high + 1]


def test_an_end_halfway_between_two_units_is_moved_outwards_for_narrow_noise_too():
    generator = np.random.default_rng(2)
    for sigma in 10.0 ** -generator.uniform(3, 9, 300):
        m = ss.Gaussian(sigma=sigma)
        half = Fraction(m.prediction_interval(0.0)[1])
        q = Fraction(1, 2) - half  # q + half is halfway
        assert m.prediction_interval(q, unit=1)[1] == 1
        assert m.prediction_interval(-q, unit=1)[0] == -1


@pytest.mark.parametrize("unit", [Fraction(3), Fraction(1, 100), Fraction(7, 3), Fraction(50)])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_intervals_are_as_narrow_as_rounding_allows(unit, level):
    for m in (ss.Gaussian(sigma=4.0), ss.GeneralizedGaussian(sigma=1, p=0.5)):
        half = Fraction(m.prediction_interval(0.0, level)[1])
        # the published value is within half a unit of q + Z, and |Z| <= half with the probability of the level
        steps = m._half_steps(unit, level, False)
        assert (steps - 1) * unit < half + unit / 2 <= steps * unit
        on_grid = m._half_steps(unit, level, True)
        assert (on_grid - Fraction(1, 2)) * unit < half <= (on_grid + Fraction(1, 2)) * unit
        noisy = m.release(np.array([5.3]), unit)
        assert noisy.low[0] == pytest.approx(float((int(noisy.units[0]) - m._half_steps(unit, 0.95, False)) * unit))
        # P(low <= published <= high), cell by cell
        for q in (0, 0.3, -7.7, Fraction(1, 2)):
            low, high = (round(Fraction(end) / unit) for end in m.prediction_interval(q, level, unit))
            n = np.arange(low, high + 1)
            u, place = float(unit), float(Fraction(q) / unit)
            cells = m.noise.cdf(u * (n + 0.5 - place)) - m.noise.cdf(u * (n - 0.5 - place))
            assert m.coverage(q, level, unit) == pytest.approx(cells.sum(), rel=1e-9)
            assert m.coverage(q, level, unit) >= level - 1e-12


def test_coverage_without_a_sum_is_that_of_whole_units():
    m = ss.Gaussian(sigma=3)
    assert m.coverage(unit=10) == m.coverage(20, unit=10) != m.coverage(21, unit=10)


def test_ends_of_published_intervals_beyond_exact_floats_are_rounded_outwards():
    unit, m = Fraction(1, 10), ss.Gaussian(sigma=1)
    for q in (10**17 + 1, 10**17 + 3, 10**17 + 10, -(10**17) - 7):
        for low, high in (
            m.prediction_interval(q, unit=unit),
            [e[0] for e in m.prediction_interval([q] * 2, unit=unit)],
        ):
            assert Fraction(low) <= q - Fraction(19, 10)
            assert Fraction(high) >= q + Fraction(19, 10)
            assert high - low <= 64
        noisy = m.release(q, unit, bits=Recorded(1))
        assert Fraction(noisy.low) <= noisy.ends[0] * unit < noisy.ends[1] * unit <= Fraction(noisy.high)


def test_endless_intervals_have_two_ends():
    noisy = ss.ExponentialPolylog(d=1.001, p=1).release([5, 6])
    assert noisy.low.tolist() == [-math.inf] * 2
    assert noisy.high.tolist() == [math.inf] * 2
    one = ss.ExponentialPolylog(d=1.001, p=1).release(5)
    assert (one.low, one.high) == (-math.inf, math.inf)


WITHOUT_MOMENTS = {
    "no mean and no variance": [
        ss.ExponentialPolylog(d=1.5, sigma=10, p=1),
        ss.ExponentialPolylog(d=2, sigma=10, p=1),
        ss.FromPolicy(PolylogPolicy(d=1.5, sigma=10, p=1)),
    ],
    "no variance": [
        ss.ExponentialPolylog(d=2.1, sigma=10, p=1),
        ss.ExponentialPolylog(d=3, sigma=10, p=1),
        ss.FromPolicy(2 * PolylogPolicy(d=1.5, sigma=10, p=1)),
    ],
    "": [
        ss.ExponentialPolylog(d=3.1, sigma=10, p=1),
        ss.ExponentialPolylog(d=0.2, p=1.1),
        ss.GeneralizedGaussian(sigma=10, p=0.003),  # its moments are finite, although floats cannot hold them
        ss.FromPolicy(PolylogPolicy(d=1.5, sigma=10, p=1) + PowerPolicy(sigma=1e6, p=0.1)),
    ],
}


@pytest.mark.parametrize(
    ("missing", "mechanism"), [(missing, one) for missing, some in WITHOUT_MOMENTS.items() for one in some], ids=str
)
def test_noise_without_a_mean_or_a_variance_says_so(missing, mechanism):
    """E14: the exponential polylog with p = 1 falls like |z|^(−d), so a moment of order n exists if d > n + 1."""
    unknown = "mean" in missing
    biases = [mechanism.bias(5), mechanism.bias(), *mechanism.bias([5, 6]), mechanism.bias(5, unit=1)]
    assert all(math.isnan(bias) == unknown and (unknown or abs(bias) < 0.5) for bias in biases)
    assert math.isnan(mechanism.noise.mean()) == unknown
    if missing:
        assert mechanism.std() == mechanism.std(5, unit=1) == mechanism.variance(5) == math.inf
        with pytest.warns(ss.ScaleWarning, match=f"has {missing}: .* intervals are valid") as warned:
            replace(mechanism)
        assert len(warned) == 1
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            replace(mechanism)


def test_a_calibration_to_noise_without_a_variance_warns():
    with pytest.warns(ss.ScaleWarning, match="has no variance"):
        ss.ExponentialPolylog.calibrate(loss=3, at=20, sigma=10, p=1, accounting="closed")


@pytest.mark.parametrize(("d", "estimator"), [(1.5, "median; the noise has no mean"), (2.5, "mean")])
def test_what_is_published_says_which_moments_are_missing(d, estimator):
    """Facts, roll-ups, means and intervals: nothing claims an average that does not exist."""
    frame = {"place": ["a", "b", "c"], "x": [10, 20, 30]}
    m = ss.ExponentialPolylog(d=d, sigma=10, p=1)
    made = ss.Session(pd.DataFrame(frame), bits=Recorded(1)).mean(
        {"x": m}, keys=ss.Keys.cross({"place": ["a", "b", "c"]}), count=m
    )
    for table in (made, made.rollup()):
        facts = table.facts.columns["x"]
        assert facts.estimator == estimator
        assert facts.se == "infinite: the noise has no variance"
        found = table.to_pandas()
        assert np.isinf(found["x_se"]).all()
        assert np.isfinite(found[["x_low", "x_high"]].to_numpy(float)).all()
        assert not np.isnan(found[["x_mean_se", "x_mean_low", "x_mean_high"]].to_numpy()).any()
    if d < 2:
        with refused(ss.ParameterError, "column 'x'", code="biased"):
            made.unbiased_variance("x")


@pytest.mark.parametrize("interval", ["delta", "fieller"])
def test_the_approximate_interval_of_a_mean_is_the_whole_line_without_a_variance(interval):
    count = Estimates(np.array([5.0]), np.array([math.inf]))
    found = normal_ratios(Estimates(np.zeros(1), np.zeros(1)), count, 0.95, interval)
    assert (found.low[0], found.high[0]) == (-math.inf, math.inf)


def test_tiny_errors_are_those_of_the_nearest_unit():
    """A sum 0.1 below a whole unit has the error of one 0.1 above, with the other sign."""
    m = ss.Gaussian(sigma=0.04)
    for rest in (0.1, 0.3, 0.45):
        assert m.std(Fraction(7) - Fraction(rest), unit=1) == pytest.approx(
            m.std(Fraction(rest), unit=1), rel=1e-9, abs=0
        )
        assert m.bias(Fraction(7) - Fraction(rest), unit=1) == pytest.approx(
            -m.bias(Fraction(rest), unit=1), rel=1e-9, abs=0
        )
    assert m.std(0.1, unit=1) == pytest.approx(math.sqrt(m.noise.sf(0.4)), rel=1e-6, abs=0)


def test_noise_of_exp_10000_is_the_largest():
    from slowscale.mechanisms.families import _check_noise_size

    _check_noise_size(10_000)
    with refused(ss.ParameterError, "the noise", code="too-large"):
        _check_noise_size(10_000.5)


def test_ranges_of_a_polylog_end_where_its_parameters_are_refused():
    cls = ss.ExponentialPolylog
    for p in (1.5, 2.0, 4.0):
        low, _ = cls._range("a", {"p": p})
        assert cls(d=1.5, a=low, p=p).a == low
        with refused(ss.ParameterError, "a", code="value"):
            cls(d=1.5, a=low * (1 - 1e-9), p=p)
    assert cls._range("a", {})[0] == cls._range("a", {"p": 2.0})[0] == pytest.approx(math.e)
    for a in (math.e, 5.0, 100.0):
        low, high = cls._range("p", {"a": a})
        assert cls(d=1.5, a=a, p=high * (1 - 1e-12)).p == pytest.approx(high)
        with refused(ss.ParameterError, "a", code="value"):
            cls(d=1.5, a=a, p=high + 1e-6)
        assert low == 1
    assert cls._range("d", {"p": 1})[0] == 1.0


def test_a_coarse_unit_is_warned_of_where_release_is_called():
    for m in (ss.Gaussian(sigma=0.1), ss.Root(k=2, sigma=0.01, estimator="median")):
        with pytest.warns(ss.UnitWarning) as caught:
            m.release(140.5, unit=100)
        assert [warning.filename for warning in caught] == [__file__]


def test_results_differ_if_anything_about_them_differs():
    def made(q=5, level=0.95):
        return ss.Gaussian(sigma=1).release(q, 1, level, bits=Recorded(3))

    assert made() == made()
    assert made() != made(level=0.9)
    assert made(q=[5]) != made()
    zero = [ss.Gaussian(sigma=sigma).release(5, 1000, bits=Recorded(3)) for sigma in (1.0, 2.0)]
    assert zero[0].units == zero[1].units == 0
    assert zero[0] != zero[1]
    assert zero[0] != ss.Gaussian(sigma=1.0).release(5, 2000, bits=Recorded(3))
    assert made().units == made(q=5.0).units
    assert made() != made(q=5.0)  # it is not known to be on the grid


def test_results_are_shown_with_four_digits_of_their_error():
    noisy = ss.Gaussian(sigma=12.3456).release(1000, bits=Recorded(3))
    assert repr(noisy) == f"<NOT PRIVATE (drawn from test bits): {noisy.value} ± 12.35 by Gaussian(sigma=12.3456)>"
