"""Whatever lists mechanisms is derived from the registry, and every mechanism in it keeps the contract."""

import json
import subprocess
import sys
import textwrap
from dataclasses import fields
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.errors import refused
from helpers.strategies import mechanisms
from hypothesis import find

import slowscale as ss
from slowscale.core.parameters import domains
from slowscale.mechanisms import REGISTRY, AdditiveMechanism, TransformationMechanism, same_error
from slowscale.plan import MECHANISMS, PARAMETERS, MechanismPlan
from slowscale.sampling.samplers import Sampler

EXAMPLES = {
    "gaussian": ss.Gaussian(sigma=3),
    "laplace": ss.Laplace(sigma=3),
    "generalized-gaussian": ss.GeneralizedGaussian(sigma=3, p=0.5),
    "exponential-polylog": ss.ExponentialPolylog(d=0.5),
    "unit-splitting": ss.UnitSplitting(threshold=10, sigma=3),
    "arsinh-normal": ss.ArsinhNormal(scale=5, shape=1.6),
    "from-policy": ss.FromPolicy([(10, 0.5), (1000, 5)]),
    "root": ss.Root(k=2, sigma=1),
    "log": ss.Log(sigma=0.5),
    "arsinh": ss.Arsinh(s=10, sigma=0.5),
    "transformation": ss.Transformation(np.log1p, np.expm1, 0.5, 0),
}


def test_every_mechanism_is_registered():
    assert set(REGISTRY) == set(EXAMPLES)
    assert {cls.__name__ for cls in REGISTRY.values()} <= set(ss.__all__)


@pytest.mark.parametrize("kind", REGISTRY)
def test_contract(kind):
    cls, made = REGISTRY[kind], EXAMPLES[kind]
    assert type(made) is cls
    assert issubclass(cls, AdditiveMechanism | TransformationMechanism)
    assert cls.words.endswith(".")
    assert set(cls._free) <= {field.name for field in fields(cls)}
    assert made.policy(3.0) > 0  # a policy …
    session = ss.Session(pd.DataFrame({"x": [3, 5]}))
    release = session.sum({"x": made})
    if kind in MECHANISMS:
        assert session.losses(release).records == 2  # … with an expression for the engine
    if issubclass(cls, AdditiveMechanism):
        assert isinstance(made._sampler, Sampler)
    if kind in MECHANISMS:  # a plan entry, unless it takes functions, and a strategy that tests draw from
        assert set(domains(cls)) <= set(PARAMETERS)
        assert kind in json.dumps(MechanismPlan.model_json_schema())
        assert type(find(mechanisms, lambda m: type(m) is cls)) is cls
    else:
        assert any(callable(getattr(made, field.name)) for field in fields(made))


def test_comparisons_come_from_the_registry():
    assert list(same_error(75, 106)) == [
        "Gaussian",
        "generalized Gaussian 1/2",
        "exponential polylog 2",
        "arsinh-normal 1.6",
        "fourth root",
        "log",
    ]


def test_a_kind_is_taken_once():
    with refused(ss.ParameterError, "kind", code="duplicate"):
        type("Other", (ss.Gaussian,), {"kind": "gaussian"})


def test_a_mechanism_in_one_module(tmp_path):
    """It releases, plans, accounts and reports, and the command knows it: nothing else was touched."""
    script = textwrap.dedent("""
        import sys
        from helpers import toy
        import pandas as pd
        import slowscale as ss
        from slowscale.plan import read_plan, run_plan

        pd.DataFrame({"g": ["a", "b"], "x": [3, 400]}).to_parquet("d.parquet")
        open("plan.toml", "w").write('''
        [data]
        path = "d.parquet"
        [tables.t.keys]
        cross = { g = ["a", "b"] }
        [ledger]
        path = "l"
        [ledger.caps.x]
        mechanism = "toy"
        sigma = 5
        times = 1
        [tables.t.sums.x]
        mechanism = "toy"
        sigma = 5
        [output]
        folder = "o"
        report = "r.html"
        ''')
        plan = read_plan("plan.toml")
        assert plan.drawn["t"].mechanisms["x"] == toy.Toy(5.0), plan.drawn
        release, files = run_plan(plan)
        assert ss.read_release("o").mechanisms["x"] == toy.Toy(5.0)
        assert "Toy noise is added to the sum." in open("r.html").read()
        assert ss.Ledger("l").spent({"x": 5}) == release.policy({"x": 5})
        try:
            run_plan(plan, overwrite=True)
        except ss.CapError as error:
            assert "the cap allows 1 such release, and 1 has been made" in str(error)
        else:
            raise AssertionError("the cap did not refuse")
        session = ss.Session(pd.DataFrame({"x": [1, 2]}))
        assert session.losses(session.sum({"x": toy.Toy(5.0)})).records == 2
        sys.argv = ["slowscale", "calibrate", "toy", "--std", "3"]
        from slowscale.cli import main
        main()
    """)
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n{script}"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Toy(sigma=2.12132)" in done.stdout
