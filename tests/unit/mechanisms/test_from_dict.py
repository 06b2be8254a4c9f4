"""A mechanism's description can be turned back, by way of JSON."""

import json

import numpy as np
import pytest
from helpers.errors import refused

import slowscale as ss
from slowscale.mechanisms import Mechanism

MADE = [
    ss.Gaussian(sigma=3),
    ss.GeneralizedGaussian(sigma=2, p=0.5),
    ss.ExponentialPolylog(d=0.3, sigma=2, p=1.5),
    ss.UnitSplitting(threshold=10, sigma=7),
    ss.Root(k=4, sigma=0.5, a=1, estimator="median"),
    ss.Log(sigma=0.5),
]


@pytest.mark.parametrize("mechanism", MADE, ids=lambda m: type(m).__name__)
def test_description_reads_back(mechanism: Mechanism) -> None:
    assert Mechanism.from_dict(json.loads(json.dumps(mechanism.to_dict()))) == mechanism


def test_user_given_functions_cannot_be_described() -> None:
    with refused(ss.ParameterError, "a user-given function", code="unsupported"):
        ss.Transformation(np.arcsinh, np.sinh, sigma=0.5, a=0).to_dict()
    described = {
        "type": "Transformation",
        "f": "os.system",
        "inverse": "x",
        "sigma": 1.0,
        "a": 0.0,
        "estimator": "mean",
        "noise": "laplace",
        "slope": "x",
        "bend": "x",
    }
    with refused(ss.ParameterTypeError, "f", code="type"):
        Mechanism.from_dict(described)


@pytest.mark.parametrize("wrong", [None, {}, {"type": "Mechanism"}, {"type": "Gaussian"}, {"type": "Gaussian", "s": 1}])
def test_other_descriptions_are_refused(wrong: object) -> None:
    with pytest.raises(ss.ParameterError):
        Mechanism.from_dict(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [[], ["root"], {}, None, 5])
def test_a_name_that_is_not_text_is_refused(kind):
    with refused(ss.ParameterError, "kind", code="value"):
        ss.Policy.from_dict({"kind": kind})
    with refused(ss.ParameterError, "description", code="value"):
        ss.Mechanism.from_dict({"type": kind})
