"""Releases: every kind of sum and unit goes in exactly, and comes out as exact whole numbers of units."""

import math
import warnings
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from helpers.bitsources import Recorded
from helpers.errors import refused
from helpers.strategies import mechanisms
from hypothesis import given, settings
from hypothesis import strategies as st

import slowscale as ss
from slowscale.mechanisms import drawing
from slowscale.mechanisms.drawing import fine_step
from slowscale.mechanisms.exact_sums import Sums

NARROW = ss.Gaussian(sigma=1e-9)  # so narrow that only rounding is seen


@pytest.mark.parametrize("count", [1, 50])
@pytest.mark.parametrize(
    ("q", "unit", "units"),
    [
        (7, 1, 7),
        (-7, 1, -7),
        (2**53 + 1, 1, 2**53 + 1),
        (10**30 + 1, 1, 10**30 + 1),
        (-(2**63) - 5, 1, -(2**63) - 5),
        (7.25, 1, 7),
        (7.75, 1, 8),
        (-7.75, 1, -8),
        (2.0**80, 1, 2**80),
        (Decimal("12.34"), "0.01", 1234),
        (Decimal("12.346"), "0.01", 1235),
        (Fraction(10, 3), Fraction(1, 3), 10),
        (Fraction(10, 3), 1, 3),
        (1234, 100, 12),
        (1270, Decimal(100), 13),
        (5, "1/3", 15),
        (np.int32(9), 1, 9),
        (np.uint64(2**64 - 1), 1, 2**64 - 1),
        (np.float32(0.5) + np.float32(2), "0.5", 5),
    ],
)
def test_sums_and_units_are_exact(q, unit, units, count):
    sums = q if count == 1 else [q] * count
    noisy = NARROW.release(sums, unit)
    got = [noisy.units] if count == 1 else list(noisy.units)
    assert all(int(n) == units for n in got)
    assert noisy.unit == Fraction(unit)


@given(
    whole=st.integers(-(10**25), 10**25),
    over=st.fractions(min_value=0, max_value=1).filter(lambda f: abs(f - Fraction(1, 2)) > 1e-6 and f < 1),
    unit=st.sampled_from([Fraction(1), Fraction(1, 100), Fraction(7, 3), Fraction(1000)]),
)
def test_off_grid_sums_are_rounded_exactly(whole, over, unit):
    quiet = ss.Gaussian(sigma=float(unit) * 1e-12)
    assert quiet.release((whole + over) * unit, unit).units == whole + (over > Fraction(1, 2))


def test_types_of_results():
    one = ss.Gaussian(sigma=5).release(3)
    assert isinstance(one.units, int)
    assert isinstance(one.value, int)
    assert isinstance(one.se, float)
    assert all(isinstance(end, int) for end in (one.low, one.high))
    many = ss.Gaussian(sigma=5).release(np.arange(12).reshape(3, 4))
    assert many.units.shape == many.value.shape == many.low.shape == many.se.shape == (3, 4)
    assert many.units.dtype == np.int64
    cents = ss.Gaussian(sigma=5).release([Decimal("1.25")] * 3, "0.01")
    assert cents.value.dtype == np.float64
    assert cents.value == pytest.approx(cents.units / 100)
    assert ss.Gaussian(sigma=5).release([], "0.01").units.shape == (0,)
    transformed = ss.Root(k=4, sigma=0.5).release([10, 20])
    assert transformed.transformed.shape == (2,)
    assert one.transformed is None
    assert isinstance(ss.Log(sigma=0.5).release(10).transformed, float)
    huge = ss.Gaussian(sigma=1).release(np.array([10**30], dtype=object))
    assert huge.units.dtype == object
    assert huge.low[0] <= 10**30 <= huge.high[0]


def test_noise_beyond_every_float_and_integer():
    """Noise of 10³⁰⁰ and more neither overflows nor becomes infinite."""
    wide = ss.GeneralizedGaussian(sigma=1e300, p=0.5).release(np.zeros(40, np.int64))
    assert max(abs(int(n)) for n in wide.units) > 10**299
    far = ss.ExponentialPolylog(d=0.001).release(np.zeros(40, np.int64))
    assert sorted(int(n).bit_length() for n in far.units)[20] > 300
    assert all(isinstance(n, int) for n in far.units)
    assert ss.Gaussian(sigma=1e9).release(np.array([2**63 - 1, -(2**63)])).units.shape == (2,)
    assert abs(ss.Root(k=2, sigma=1e-3).release(10**40).units - 10**40) < 10**20 * 100


def test_what_is_beside_a_huge_value_is_infinite_at_worst():
    m = ss.GeneralizedGaussian(sigma=1, p=0.005)
    for noisy in (m.release(0), m.release(np.zeros(6, np.int64)), m.release(0, "0.01")):
        assert np.all(np.asarray(noisy.se) == math.inf)
        assert np.all(np.asarray(noisy.low) <= np.asarray(noisy.high))
        assert repr(noisy)
    assert ss.GeneralizedGaussian(sigma=1, p=0.01).release(0).se == pytest.approx(1.0455361831743347e228)
    assert ss.Gaussian(sigma=100).release([10, 20], 1000).low.shape == (2,)


@pytest.mark.parametrize("k", [1, 2, 3, 6, 50, 51, 64])
@pytest.mark.parametrize("estimator", ["mean", "median"])
def test_roots_of_every_kind_release(k, estimator):
    m = ss.Root(k=k, sigma=1e-3, estimator=estimator)
    for q in (0, 5):
        assert abs(m.release(q).transformed - q ** (1 / k)) < 0.01
        assert np.abs(m.release(np.full(50, q)).transformed - q ** (1 / k)).max() < 0.01


@pytest.mark.parametrize("sigma", [1e-6, 0.3, 0.5, 1.0, 1.99, 700.0])
@pytest.mark.parametrize(
    "kind", [lambda sigma: ss.Root(k=4, sigma=sigma), lambda sigma: ss.Log(sigma=sigma)], ids=["root", "log"]
)
def test_the_transformed_value_is_published_on_a_grid_much_finer_than_its_noise(kind, sigma):
    """Steps of a power of two, between σ/2¹⁷ and σ/2¹⁶: rounding to them adds nothing that could be noticed."""
    step = fine_step(sigma)
    assert math.frexp(step)[0] == 0.5
    assert sigma / 2**17 < step <= sigma / 2**16
    noisy = kind(sigma).release(np.full(400, 50), bits=Recorded(8))
    steps = noisy.transformed / step
    assert (steps == np.round(steps)).all()
    # 400 draws of about 200,000 likely points: hardly any two are the same, and they do not lie on a coarser grid
    assert np.unique(steps).size > 390
    assert 150 < (steps % 2).sum() < 250


def test_masked_sums_are_refused_not_passed_through():
    with refused(ss.ParameterTypeError, "q", code="nulls"):
        ss.Gaussian(sigma=12).release(np.ma.array([100, 200], mask=[0, 1]))
    assert type(ss.Gaussian(sigma=12).release(np.ma.array([100] * 9)).units) is np.ndarray


def test_values_do_not_wrap_around():
    noisy = ss.Gaussian(sigma=1).release(np.array([10**19] * 6, object), 1000)
    assert all(abs(int(v) - 10**19) <= 10**5 for v in noisy.value)
    assert ss.Gaussian(sigma=1).release(np.full(6, 5), 10**20).value.tolist() == [0] * 6
    assert abs(ss.Gaussian(sigma=1).release(10**400).units - 10**400) < 100


def test_what_is_left_of_a_unit_is_exact():
    for q in (-0.1, -0.3, -1e-300, 0.1, 5.7):
        sums = Sums.of(np.array([q] * 6), Fraction(1))
        assert int(sums.whole[0]) + sums.exact_rest(0) == Fraction(q)
    tiny = Sums.of(np.array([Fraction(1, 10**400)] * 6, object), Fraction(1))
    assert (tiny.rest.rad > 0).all()


@pytest.fixture
def undrawn(monkeypatch):
    """Fail if noise is drawn."""
    monkeypatch.setattr(drawing, "draw", lambda *given: pytest.fail("noise was drawn"))


@pytest.mark.parametrize(
    ("mechanism", "q"),
    [
        (ss.Root(k=2, sigma=0.5), 10**700),
        (ss.Root(k=1, sigma=0.5), 10**309),
        (ss.Root(k=4, sigma=0.5, estimator="median"), Fraction(10**1300, 3)),
        (ss.Root(k=2, sigma=1e308), 0),  # the noise itself is too large
        (ss.Transformation(lambda x: 1e20 * x, lambda y: y / 1e20, 1.0, 0.0), 10**300),
    ],
    ids=["root", "identity", "fourth root", "noise", "function"],
)
def test_a_sum_whose_transformed_value_is_not_a_float_is_refused_before_the_draw(mechanism, q, undrawn):
    for sums in (q, [0, q], np.array([q, 1] * 5, object)):
        with refused(ss.ParameterError, "q", code="too-large"):
            mechanism.release(sums)


@pytest.mark.parametrize(
    ("mechanism", "q"),
    [(ss.Log(sigma=1e6, estimator="median"), 5), (ss.Root(k=20, sigma=1.0), 10**4100)],
    ids=["log", "root"],
)
def test_an_estimate_of_too_many_digits_is_refused_before_the_draw(mechanism, q, undrawn):
    with refused(ss.ParameterError, "q", code="too-many-digits"):
        mechanism.release(q)


@pytest.mark.parametrize("count", [1, 50])
@pytest.mark.parametrize(
    ("mechanism", "q"),
    [(ss.Root(k=1, sigma=0.5), 1e307), (ss.Root(k=2, sigma=0.5), 10**600), (ss.Log(sigma=0.1), 10**700)],
    ids=["identity", "root", "log"],
)
def test_sums_near_the_largest_float_are_released(mechanism, q, count):
    """The transformed value in steps of its grid may exceed every float, even if the value itself does not."""
    noisy = mechanism.release([q] * count)
    with localcontext(prec=20):
        root = {1: Decimal(q), 2: Decimal(q).sqrt()}.get(getattr(mechanism, "k", 0), Decimal(q).ln())
    assert noisy.transformed == pytest.approx(float(root), rel=0.01)
    assert (noisy.low <= q).all()
    assert np.isfinite(noisy.transformed).all()
    repr(noisy)


def test_noise_too_large_to_write_down_is_refused_with_the_reason():
    for m in (
        ss.ExponentialPolylog(d=0.02, p=1.05),
        ss.ExponentialPolylog(d=0.02, p=1.1),
        ss.GeneralizedGaussian(sigma=1, p=1e-100),
    ):
        for q in (5, np.zeros(20, np.int64)):
            with refused(ss.ParameterError, "the noise", code="too-large"):
                m.release(q)


def test_results_drawn_from_test_bits_say_so():
    shown = repr(ss.Gaussian(sigma=5).release(3, bits=Recorded()))
    assert "NOT PRIVATE" in shown
    assert "NOT PRIVATE" not in repr(ss.Gaussian(sigma=5).release(3))
    assert not ss.Gaussian(sigma=5).release(3, bits=Recorded()).private
    again = [ss.Gaussian(sigma=5).release(np.zeros(9, np.int64), bits=Recorded(4)).units.tolist() for _ in range(2)]
    assert again[0] == again[1]


@settings(max_examples=60)
@given(m=mechanisms, q=st.integers(0, 10**6))
def test_every_mechanism_releases(m, q):
    if m.std(float(q)) < 1e12:
        noisy = m.release(np.full(20, q))
        assert noisy.units.shape == (20,)
        assert (noisy.low <= noisy.high).all()
        assert (noisy.se >= 0).all()
        assert noisy.private


def test_user_given_functions_release_exactly_or_not_at_all():
    m = ss.Transformation(np.sqrt, np.square, 0.5, 1)
    twin = ss.Root(k=2, sigma=0.5, a=1, estimator="median")
    ours, theirs = (x.release(np.full(40, 100), bits=Recorded(3)).units.tolist() for x in (m, twin))
    assert ours == theirs
    own = ss.Transformation(np.sqrt, np.square, 0.5, 0, estimator=lambda v: v * v - 0.25)
    assert own.release([100] * 3).units.shape == (3,)
    floats_only = ss.Transformation(lambda x: np.cbrt(x), lambda v: v**3, 0.5, 0)
    with refused(ss.ParameterTypeError, "f", code="not-exact"):
        floats_only.release(100)


def test_a_negative_sum_is_refused_by_transformations_only():
    assert ss.Gaussian(sigma=1).release(-5).units < 5
    for m in (ss.Root(k=2, sigma=1), ss.Log(sigma=1)):
        with refused(ss.ParameterError, "q", code="negatives"):
            m.release([5, -5])
        with refused(ss.ParameterError, "q", code="negatives"):
            m.release(Decimal("-0.01"), "0.01")


@pytest.mark.parametrize("m", [ss.Gaussian(sigma=1), ss.Root(k=2, sigma=1)])
@pytest.mark.parametrize(
    ("arguments", "subject", "code"),
    [
        (("5",), "q", "type"),
        ((None,), "q", "type"),
        ((True,), "q", "type"),
        ((1j,), "q", "type"),
        (([1, "a"],), "q", "type"),
        ((math.nan,), "q", "value"),
        (([1.0, math.inf],), "q", "value"),
        ((Decimal("NaN"),), "q", "value"),
        ((np.array(["2026-01-01"], "datetime64[D]"),), "q", "type"),
        ((Decimal("sNaN"),), "q", "value"),
        ((np.array([1], "timedelta64[D]"),), "q", "type"),
        ((np.array([1], np.longdouble),), "q", "type"),
        ((5, "1e400"), "unit", "value"),
        ((5, np.float32(0.1)), "unit", "precision"),
        ((5, 0), "unit", "value"),
        ((5, -1), "unit", "value"),
        ((5, "a"), "unit", "value"),
        ((5, 0.01), "unit", "precision"),
        ((5, math.inf), "unit", "value"),
        ((5, True), "unit", "type"),
        ((5, None), "unit", "type"),
        ((5, 1, 2), "level", "value"),
    ],
)
def test_bad_input(m, arguments, subject, code):
    with refused(ss.SlowscaleError, subject, code=code):
        m.release(*arguments)


def test_no_warnings_in_everyday_use():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for m in (
            ss.Gaussian(sigma=1),
            ss.GeneralizedGaussian(sigma=1, p=0.3),
            ss.ExponentialPolylog(d=1, p=1.5),
            ss.Root(k=3, sigma=1),
            ss.Log(sigma=1),
        ):
            m.release(np.zeros(3000, np.int64))
            m.release(0)
