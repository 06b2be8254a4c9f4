"""Additive mechanisms: they say what their noise says, for every sum alike."""

import math
import pickle
from decimal import Decimal

import numpy as np
import pytest
from helpers.strategies import additive_mechanisms, mechanisms
from hypothesis import given
from hypothesis import strategies as st

import slowscale as ss


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
    low, high = ss.Gaussian(1).prediction_interval(Decimal("10.5"))
    assert (low, high) == pytest.approx((10.5 - 1.959964, 10.5 + 1.959964), rel=1e-6)


BAD = [
    (lambda: ss.Gaussian(0), "sigma must be a finite number > 0, got 0"),
    (lambda: ss.Gaussian(-1), "sigma must be a finite number > 0, got -1"),
    (lambda: ss.Gaussian(math.nan), "sigma must be a finite number > 0, got nan"),
    (lambda: ss.Gaussian(math.inf), "sigma must be a finite number > 0, got inf"),
    (lambda: ss.Gaussian(10**400), "sigma must be a finite number > 0, got a number too large"),
    (lambda: ss.Gaussian("1"), "sigma must be a finite number > 0, got '1' of type str"),
    (lambda: ss.Gaussian(True), "sigma must be a finite number > 0, got True of type bool"),
    (lambda: ss.Gaussian(None), "sigma must be a finite number > 0, got None of type NoneType"),
    (lambda: ss.Gaussian([1, 2]), r"sigma must be a finite number > 0, got \[1, 2\] of type list"),
    (lambda: ss.Gaussian(1j), "sigma must be a finite number > 0, got 1j of type complex"),
    (lambda: ss.GeneralizedGaussian(1, 0), "p must be a finite number > 0 and <= 1, got 0"),
    (lambda: ss.GeneralizedGaussian(1, 1.01), "p must be a finite number > 0 and <= 1, got 1.01"),
    (lambda: ss.ExponentialPolylog(0), "d must be a finite number > 0, got 0"),
    (lambda: ss.ExponentialPolylog(1, p=0.9), "p must be a finite number >= 1, got 0.9"),
    (lambda: ss.ExponentialPolylog(1, p=1), "d must be > 1 when p = 1, got 1"),
    (lambda: ss.ExponentialPolylog(1, a=1), r"a must be at least e\*\*\(p - 1\) = 2.71828 for p = 2, got 1"),
    (lambda: ss.ExponentialPolylog(1, a=2.7), "a must be at least"),
    (lambda: ss.UnitSplitting(0, 1), "threshold must be a finite number > 0, got 0"),
    (lambda: ss.Root(0, 1), "k must be a whole number >= 1, got 0"),
    (lambda: ss.Root(2.5, 1), "k must be a whole number >= 1, got 2.5"),
    (lambda: ss.Root("4", 1), "k must be a whole number >= 1, got '4' of type str"),
    (lambda: ss.Root(2, 1, a=-1), "a must be a finite number >= 0, got -1"),
    (lambda: ss.Root(2, 1, estimator="mode"), 'estimator must be "mean" or "median", got \'mode\''),
    (lambda: ss.Log(1, a=0), "a must be a finite number > 0, got 0"),
    (lambda: ss.Log(1, estimator=np.exp), 'estimator must be "mean" or "median", got <ufunc \'exp\'>'),
    (lambda: ss.Gaussian(1).std(math.nan), "q must be finite, got nan"),
    (lambda: ss.Gaussian(1).std("x"), "q must be"),
    (lambda: ss.Gaussian(1).prediction_interval("x"), "q must be"),
    *[
        (
            lambda m=m, level=level: m.prediction_interval(1, level),
            f"level must be between 0 and 1, both excluded, got {level}",
        )
        for m in (ss.Gaussian(1), ss.Root(2, 1), ss.Log(1))
        for level in (0, 1, 95, -0.5, math.nan)
    ],
    (lambda: ss.Log(1).coverage(1, "0.9"), "level must be a number between 0 and 1, got '0.9' of type str"),
]


@pytest.mark.parametrize(("make", "words"), BAD)
def test_bad_input_names_the_argument_the_value_and_the_range(make, words):
    with pytest.raises((ValueError, TypeError), match=words) as caught:
        make()
    assert isinstance(caught.value, ss.SlowscaleError)
