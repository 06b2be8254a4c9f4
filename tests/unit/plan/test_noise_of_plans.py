"""Noise with parameters in the columns and caps of a plan, in its ledger and in the facts of its release."""

import json

import pytest
from helpers.errors import refused

import slowscale as ss
from slowscale.plan import NOISE_MECHANISMS, MechanismPlan, Plan, read_plan, run_plan

PLAN = """
[data]
path = "d.csv"
types = { emp = "int64", pay = "int64" }
[ledger]
path = "l.ledger"
[ledger.caps]
emp = { mechanism = "root", k = 2, sigma = 0.1, noise = NOISE }
[tables.t.keys]
cross = { g = ["a", "b"] }
[tables.t.sums.emp]
mechanism = "root"
k = 2
sigma = 0.5
noise = NOISE
[tables.t.sums.pay]
mechanism = "root"
k = 1.5
sigma = 0.1
noise = { mechanism = "exponential-polylog", d = 2 }
[report]
sizes = [{ name = "largest", size = 100 }]
[output]
folder = "out"
report = "report.html"
"""
POWER = '{ mechanism = "generalized-gaussian", p = 0.5 }'


@pytest.fixture
def plan_with(tmp_path):
    (tmp_path / "d.csv").write_text("g,emp,pay\na,1,10\nb,20,300\n")

    def written(noise):
        (tmp_path / "plan.toml").write_text(PLAN.replace("NOISE", noise))
        return read_plan(tmp_path / "plan.toml")

    return written


@pytest.mark.parametrize(
    ("given", "noise"),
    [
        ('{ mechanism = "generalized-gaussian", p = 0.5 }', ss.GeneralizedGaussian(sigma=1, p=0.5)),
        ('{ mechanism = "exponential-polylog", d = 2 }', ss.ExponentialPolylog(d=2)),
        ('{ mechanism = "exponential-polylog", d = 9, p = 1, a = 2 }', ss.ExponentialPolylog(d=9, p=1, a=2)),
        ('{ mechanism = "arsinh-normal", shape = 1.6 }', ss.ArsinhNormal(scale=1, shape=1.6)),
        ('{ mechanism = "from-policy", points = [[1, 0.5], [10, 2]] }', ss.FromPolicy([(1, 0.5), (10, 2)])),
        ('{ mechanism = "laplace" }', "laplace"),
        ('"laplace"', "laplace"),
    ],
)
def test_the_noise_of_a_column_and_of_a_cap(plan_with, given, noise):
    plan = plan_with(given)
    m = plan.drawn["t"].mechanisms["emp"]
    assert m == ss.Root(k=2, sigma=0.5, noise=noise)
    assert ss.Mechanism.from_dict(json.loads(json.dumps(m.to_dict()))) == m
    assert plan.caps["emp"] == ss.Root(k=2, sigma=0.1, noise=noise).tight_policy


def test_every_noise_can_be_named():
    assert {cls.__name__ for cls in NOISE_MECHANISMS.values()} >= {
        "Gaussian",
        "Laplace",
        "GeneralizedGaussian",
        "ExponentialPolylog",
        "ArsinhNormal",
        "FromPolicy",
    }
    assert "unit-splitting" not in NOISE_MECHANISMS


def test_a_target_is_met_with_the_noise():
    part = MechanismPlan(mechanism="root", k=2, std=30.0, at=100, noise={"mechanism": "arsinh-normal", "shape": 0.5})
    m = part.build()
    assert m.noise == ss.ArsinhNormal(scale=1, shape=0.5)
    assert m.std(100) == pytest.approx(30)


def test_noise_goes_through_the_release_its_facts_and_the_ledger(plan_with, tmp_path):
    plan = plan_with(POWER)
    made, _ = run_plan(plan)
    expected = {
        "emp": ss.Root(k=2, sigma=0.5, noise=ss.GeneralizedGaussian(sigma=1, p=0.5)),
        "pay": ss.Root(k=1.5, sigma=0.1, noise=ss.ExponentialPolylog(d=2)),
    }
    record = {"emp": 50, "pay": 60}
    again = ss.read_release(tmp_path / "out/t.csv")
    for release in (made, again):
        assert release["t"].mechanisms == expected
        assert release.policy(record) == pytest.approx(
            sum(m.tight_policy(record[name]) for name, m in expected.items())
        )
    session = ss.Session(tmp_path / "d.csv", types={"emp": "int64", "pay": "int64"})
    records = ({"emp": 1, "pay": 10}, {"emp": 20, "pay": 300})
    assert session.losses(again).largest[1] == pytest.approx(max(map(again.policy, records)))
    ledger = ss.Ledger(tmp_path / "l.ledger")
    assert ledger.caps["emp"](50) == plan.caps["emp"](50)
    assert ledger.spent(record) == made.policy(record)
    assert ledger.verify() == []
    assert (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("given", "path", "code"),
    [
        ('"arsinh-normal"', ("noise",), "value"),
        ('"cauchy"', ("noise",), "value"),
        ("3", ("noise",), "value"),
        ('["laplace"]', ("noise",), "value"),
        ('{ mechanism = "unit-splitting" }', ("noise", "mechanism"), "value"),
        ('{ mechanism = "cauchy" }', ("noise", "mechanism"), "value"),
        ("{ p = 0.5 }", ("noise", "mechanism"), "missing"),
        ('{ mechanism = "generalized-gaussian" }', ("noise",), "missing"),
        ('{ mechanism = "generalized-gaussian", p = 2 }', ("noise",), "value"),
        ('{ mechanism = "generalized-gaussian", p = "half" }', ("noise", "p"), "value"),
        ('{ mechanism = "generalized-gaussian", p = 0.5, q = 1 }', ("noise", "q"), "unknown-name"),
        ('{ mechanism = "generalized-gaussian", p = 0.5, d = 1 }', ("noise",), "unknown-name"),
        ('{ mechanism = "generalized-gaussian", p = 0.5, sigma = 3 }', ("noise",), "conflict"),
        ('{ mechanism = "arsinh-normal", shape = 1, scale = 3 }', ("noise",), "conflict"),
        ('{ mechanism = "from-policy" }', ("noise",), "missing"),
        ('{ mechanism = "from-policy", points = [[1, 2], [2, 5]] }', ("noise",), "not-concave"),
    ],
)
def test_mistakes_are_at_their_place(plan_with, given, path, code):
    with refused(ss.PlanError) as caught:
        plan_with(given)
    found = {(one.path, one.code) for one in caught.value.mistakes}
    assert found == {
        (("ledger", "caps", "emp", *path), code),
        (("tables", "t", "sums", "emp", *path), code),
    }
    assert {one.line for one in caught.value.mistakes} == {8, 15}


def test_the_schema_allows_names_and_tables():
    schema = Plan.model_json_schema()
    for part in ("SumPlan", "MechanismPlan", "CapPlan"):
        either = schema["$defs"][part]["properties"]["noise"]["anyOf"][0]["oneOf"]
        assert {"enum": ["gaussian", "laplace"], "type": "string"} in either
        assert {"$ref": "#/$defs/NoisePlan"} in either
    assert schema["$defs"]["NoisePlan"]["properties"]["mechanism"]["enum"] == list(NOISE_MECHANISMS)
    assert not {"sigma", "scale"} & set(schema["$defs"]["NoisePlan"]["properties"])
    json.dumps(schema)
