"""User-given functions: their turning points, and what is said of functions that do not fit."""

import math
import re

import numpy as np
import pytest
from helpers.errors import refused

import slowscale as ss
from slowscale.core.formulas import probes
from slowscale.mechanisms.transforms import _turning_points


def hermite(k, sigma):
    """The mean-unbiased estimator of the k-th root, as a function of the user."""
    match k:
        case 3:
            return lambda v: v**3 - 3 * sigma**2 * v
        case _:
            return lambda v: v**4 - 6 * sigma**2 * v**2 + 3 * sigma**4


@pytest.mark.parametrize("k", [3, 4])
@pytest.mark.parametrize("sigma", [0.2, 1.0, 6.0])
def test_an_estimator_with_turning_points_is_treated_like_that_of_a_root(k, sigma):
    own = ss.Transformation(lambda x: x ** (1 / k), lambda v: v**k, sigma, 0, estimator=hermite(k, sigma))
    root = ss.Root(k=k, sigma=sigma)
    for v in (0.0, 0.4, 1.1, 2.6):
        q = (sigma * v) ** k
        # a turning point that is found to 1e-9 changes the estimate there by its square
        assert own.prediction_interval(q, 0.9) == pytest.approx(root.prediction_interval(q, 0.9), rel=1e-9)
        assert own.coverage(q, 0.9) == pytest.approx(root.coverage(q, 0.9), abs=1e-6)


def test_turning_points_are_found_and_refined():
    found = _turning_points(np.sin, 0.5, 10.0)
    true = [math.pi * (n + 0.5) for n in range(-4, 4) if abs(math.pi * (n + 0.5) - 0.5) < 10]
    assert found == pytest.approx(true, abs=1e-6)
    assert _turning_points(np.exp, 0.0, 10.0) == []
    assert _turning_points(lambda v: np.where(v < 0, -v, 0.0), 0.0, 5.0) == []  # flat is no turn
    (small,) = _turning_points(lambda v: (v - 3e-7) ** 2, 0.0, 1e-6)
    assert small == pytest.approx(3e-7, rel=1e-6)
    assert _turning_points(lambda v: (v - 0.9995) ** 2, 0.0, 1.0) == pytest.approx([0.9995])  # in the last cell


def test_no_sums_have_no_intervals():
    own = ss.Transformation(np.sqrt, np.square, 1, 0, estimator=lambda v: v**2 - 1)
    assert own.coverage([]).shape == (0,)
    assert own.prediction_interval([])[0].shape == (0,)


def test_the_first_value_that_is_not_inverted_is_named():
    with refused(ss.ParameterError, "inverse", code="value") as caught:
        ss.Transformation(np.sqrt, lambda v: np.where(v >= math.sqrt(1000), 2.0, 1.0) * v**2, 0.5, 0)
    x, back = map(float, re.search(r"inverse\(f\((.*)\)\) = (.*)$", caught.value.given).groups())
    assert 1000 <= x < 10_000
    assert back == pytest.approx(2 * x, rel=1e-4)


def test_the_transformed_value_that_no_sum_has_is_named():
    with refused(ss.ParameterError, "f", code="bounded"):
        ss.Transformation(lambda x: x / (1 + x), lambda y: y / (1 - y), 0.5, 0)
    x = probes(0.0)[-1]
    with refused(ss.ParameterError, "f", code="bounded") as caught:
        ss.Transformation(lambda q: q / (x + q), lambda y: x * y / (1 - y), 0.7, 0)
    assert caught.value.given == "inverse(1.2) = -6e+15"


@pytest.mark.parametrize("limit", [np.minimum, np.maximum])
def test_an_estimator_that_stays_at_a_limit_is_covered_there(limit):
    """Half of the noise gives exactly the limit, which is one end of the interval: only the other tail is outside."""
    m = ss.Transformation(np.sqrt, np.square, 1, 0, estimator=lambda v: limit(v, 3.0))
    low, high = m.prediction_interval(9.0)
    assert sorted([low, high])[limit is np.minimum] == pytest.approx(3.0)
    assert m.coverage(9.0) == pytest.approx(0.975)
