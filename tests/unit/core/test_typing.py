"""What type checkers are told about results, checked by mypy (`assert_type`) and by running it."""

from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

import slowscale as ss
from slowscale.core.parameters import Array

ADDITIVE = ss.GeneralizedGaussian(sigma=2, p=0.5)
ROOT = ss.Root(k=2, sigma=1)
ARRAY = np.array([1.0, 4.0])


def is_float(value: float) -> None:
    assert type(value) is float


def is_array(value: npt.NDArray[Any]) -> None:
    assert isinstance(value, np.ndarray)
    assert value.shape == (2,)


def test_policies() -> None:
    policy = ROOT.policy
    is_float(assert_type(policy(3), float))
    is_float(assert_type(policy(Fraction(1, 3)), float))
    is_float(assert_type(policy(np.int64(3)), float))
    is_array(assert_type(policy(ARRAY), Array))
    is_array(assert_type(policy([1, 4]), Array))
    is_array(assert_type(policy([Decimal(1), Decimal(4)]), Array))
    is_float(assert_type(policy.group([1, 4]), float))


def test_bounded_policies() -> None:
    policy = ROOT.bounded_policy()
    is_float(assert_type(policy(1, 4), float))
    is_array(assert_type(policy(ARRAY, 4), Array))
    is_array(assert_type(policy(1, ARRAY), Array))
    is_float(assert_type(ROOT.bounded_policy(add=1)(4), float))


def test_record_policies() -> None:
    policy = ss.RecordPolicy((("emp", ROOT.policy),))
    is_float(assert_type(policy({"emp": 12}), float))
    found = assert_type(policy({"emp": ARRAY}), float | Array)
    assert isinstance(found, np.ndarray)
    assert isinstance(policy(pd.DataFrame({"emp": [1, 4]})), np.ndarray)


def test_additive_mechanisms() -> None:
    is_float(assert_type(ADDITIVE.std(), float))
    is_float(assert_type(ADDITIVE.variance(3), float))
    is_float(assert_type(ADDITIVE.coverage(3, unit="0.5"), float))
    is_array(assert_type(ADDITIVE.bias(ARRAY), Array))
    is_array(assert_type(ADDITIVE.std(ARRAY, unit=1), Array))
    low, high = assert_type(ADDITIVE.prediction_interval(3), tuple[float, float])
    assert low < high
    for end in assert_type(ADDITIVE.prediction_interval(ARRAY), tuple[npt.NDArray[Any], npt.NDArray[Any]]):
        is_array(end)


def test_transformations() -> None:
    for found in (ROOT.std(3), ROOT.variance(3), ROOT.bias(3), ROOT.coverage(3), ROOT.transform(3), ROOT.estimate(3)):
        is_float(assert_type(found, float))
    is_float(assert_type(ROOT.variance_estimate(3), float))
    for array in (ROOT.std(ARRAY), ROOT.coverage(ARRAY), ROOT.transform(ARRAY), ROOT.estimate(ARRAY)):
        is_array(assert_type(array, Array))
    low, high = assert_type(ROOT.prediction_interval(3), tuple[float, float])
    assert low < high


@pytest.mark.parametrize("name", ["logpdf", "pdf", "cdf", "sf", "logcdf", "logsf", "ppf", "isf"])
def test_noise_by_name(name: str) -> None:
    function = getattr(ADDITIVE.noise, name)
    is_float(function(0.5))
    is_array(function(np.array([0.2, 0.5])))


def test_noise() -> None:
    assert_type(ADDITIVE.noise.cdf(0), float)
    assert_type(ADDITIVE.noise.ppf([0.2, 0.5]), Array)


def test_any_kind_of_mechanism() -> None:
    mechanism: ss.Mechanism = ROOT
    is_float(assert_type(mechanism.std(3), float))
    is_array(assert_type(mechanism.std(ARRAY), Array))


def test_releases() -> None:
    release = ss.Session(pd.DataFrame({"x": [5]})).sum({"x": ss.Gaussian(sigma=1)})
    low, high = assert_type(release.interval("x"), tuple[npt.NDArray[Any], npt.NDArray[Any]])
    assert (low < high).all()
    assert assert_type(release.unbiased_variance("x"), Array).shape == (1,)


def test_datasets(tmp_path: Path) -> None:
    assert assert_type(ss.datasets.write_establishments(tmp_path / "a.parquet", 10, 2), Path).exists()
