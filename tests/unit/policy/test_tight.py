"""The tight policy: at most the closed form, a policy like any other, with a certificate."""

import json
import math
import pickle

import numpy as np
import pytest
from helpers.errors import refused

import slowscale as ss
from slowscale.core.errors import ParameterError, ParameterTypeError
from slowscale.noise import ExponentialPolylogNoise, GaussianNoise, GeneralizedGaussianNoise
from slowscale.noise.divergence import tight_loss
from slowscale.policy import Policy, PowerPolicy, RootPolicy, TightPolicy
from slowscale.policy.tree import Tabulated, formula_value

ROUGH = 0.2


def tight(mechanism, precision=ROUGH):
    """The tight policy of a mechanism, from a curve that is quick to compute."""
    return TightPolicy(mechanism.noise, mechanism.policy, precision)


MECHANISMS = [
    ss.ExponentialPolylog(d=0.5),
    ss.ExponentialPolylog(d=0.5, sigma=300),
    ss.GeneralizedGaussian(sigma=25, p=0.5),
]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_it_lies_between_the_tight_loss_and_the_closed_form(mechanism):
    policy = tight(mechanism)
    sizes = mechanism.sigma * np.exp(np.random.default_rng(3).uniform(math.log(1e-12), math.log(1e17), 200))
    losses = policy(sizes)
    assert (losses <= mechanism.policy(sizes) * (1 + 1e-14)).all()
    assert policy(0.0) == 0
    assert (np.diff(policy(np.sort(sizes))) >= 0).all()
    for size, loss in zip(sizes[:25], losses, strict=False):
        if 1e-9 <= size / mechanism.sigma <= 1e15:
            assert tight_loss(mechanism.noise._standard(), size / mechanism.sigma).lower <= loss
    assert losses == pytest.approx([policy(float(size)) for size in sizes])


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_single_loss_is_within_a_tenth_of_a_per_cent(mechanism):
    policy = tight(mechanism)
    for ratio in (1e-9, 0.01, 1.0, 50.0, 1e6, 1e15):
        size = ratio * mechanism.sigma
        found = tight_loss(mechanism.noise._standard(), ratio)
        assert found.lower <= mechanism.tight_loss(size) <= found.lower * 1.001
        assert mechanism.tight_loss(size) <= policy(size) * (1 + 1e-9)
    for size in (0.0, 1e-12 * mechanism.sigma, 1e16 * mechanism.sigma):
        assert mechanism.tight_loss(size) == mechanism.policy(size)


def test_the_loss_of_a_negative_size_is_refused():
    with refused(ParameterError, "influence", code="value"):
        ss.ExponentialPolylog(d=0.5).tight_loss(-1)


def test_it_is_scaled_with_the_noise():
    one, other = tight(MECHANISMS[0]), tight(MECHANISMS[1])
    sizes = np.geomspace(1e-6, 1e6, 50)
    assert other(300 * sizes) == pytest.approx(one(sizes), rel=1e-12)


def test_it_can_be_written_and_read():
    policy = tight(MECHANISMS[1])
    description = json.loads(json.dumps(policy.to_dict()))
    assert description["precision"] == ROUGH
    assert description["noise"] == {
        "noise": "ExponentialPolylogNoise", "d": 0.5, "sigma": 300.0, "a": policy.noise.a, "p": 2.0,
    }  # fmt: skip
    again = Policy.from_dict(description)
    assert again == policy
    assert hash(again) == hash(policy)
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert eval(repr(policy), vars(__import__("slowscale.policy", fromlist=["*"])) | vars(ss.noise)) == policy


@pytest.mark.parametrize(
    ("change", "subject", "code"),
    [
        ({"noise": {"noise": "Cauchy"}}, "noise", "value"),
        ({"noise": {"noise": "GaussianNoise", "width": 1}}, "description", "value"),
        ({"precision": 0.5}, "precision", "value"),
        (
            {"noise": {"noise": "ExponentialPolylogNoise", "d": 0.7, "sigma": 300.0, "a": None, "p": 2}},
            "closed",
            "value",
        ),
    ],
)
def test_a_description_that_is_wrong_is_refused(change, subject, code):
    description = tight(MECHANISMS[1]).to_dict() | change
    with refused(ParameterError, subject, code=code):
        Policy.from_dict(description)


def test_parts_that_do_not_fit_are_refused():
    noise = GeneralizedGaussianNoise(sigma=2, p=0.5)
    with refused(ParameterTypeError, "noise", code="type"):
        TightPolicy(3, RootPolicy(k=1, sigma=2))
    with refused(ParameterTypeError, "closed", code="type"):
        TightPolicy(noise, PowerPolicy(sigma=2, p=0.5))
    with refused(ParameterError, "closed", code="value"):
        TightPolicy(noise, PowerPolicy(sigma=2.1, p=0.5).to_zcdp())


def test_its_formula_has_its_values():
    policy = tight(MECHANISMS[1])
    sizes = np.geomspace(1e-6, 1e22, 300)
    assert formula_value(policy.formula(), {"Δ": sizes}) == pytest.approx(policy(sizes), rel=1e-9)
    assert str(policy).startswith("min(tight(Δ / 300; ExponentialPolylog, certified within 20 %); tanh(ε/2)")
    for sigma, ratio in ((1, "Δ"), (2, "Δ / 2")):
        policy = tight(ss.ExponentialPolylog(d=0.5, sigma=sigma))
        assert str(policy).startswith(f"min(tight({ratio}; ")
        assert formula_value(policy.formula(), {"Δ": sizes}) == pytest.approx(policy(sizes), rel=1e-9)


def test_a_policy_without_a_short_formula_is_written_as_one_table():
    policy = ss.ArsinhNormal(scale=5, shape=1.6).policy
    table = policy.formula()
    assert isinstance(table, Tabulated)
    assert len(table.log_sizes) < 200
    sizes = 5 * np.geomspace(1e-12, 1e20, 2000)
    ratios = formula_value(table, {"Δ": sizes}) / policy(sizes)
    assert ratios.min() >= 1 - 1e-9
    assert ratios.max() <= 1.005
    usual = (sizes > 1e-8) & (sizes < 1e11)
    assert ratios[usual].max() <= 1 + 1e-9


@pytest.mark.parametrize("mechanism", [*MECHANISMS, ss.GeneralizedGaussian(sigma=3, p=1)])
def test_the_closed_form_is_computed_for_few_records_only(mechanism, monkeypatch):
    """Most records lie where the curve is known to be smaller."""
    policy = tight(mechanism)
    asked = []
    closed = type(policy.closed)
    monkeypatch.setattr(closed, "_loss", lambda self, x, loss=closed._loss: asked.append(x) or loss(self, x))
    low, high = policy._better
    asked.clear()
    assert low < mechanism.sigma
    assert high > 5 * mechanism.sigma
    policy(np.geomspace(low * 1.01, high * 0.99, 100))
    assert not asked
    policy(np.geomspace(low / 2, high * 2, 100))
    assert asked


def test_groups_lose_less_than_by_the_closed_form():
    policy, closed = tight(MECHANISMS[0]), MECHANISMS[0].policy
    values = [100, 3, 20]
    assert policy.group([3, 3]) == pytest.approx(4 * policy(3.0))
    assert policy.group([3, 3]) < closed.group([3, 3])
    assert policy.group(values) == closed.group(values) < np.sqrt(policy(values)).sum() ** 2
    assert policy.group(values, cells="AAA") == pytest.approx(policy(123.0))
    assert policy.group(values, cells="ABC") == pytest.approx(policy(values).sum())
    many = [1e4] * 3000
    assert policy.group(many) <= closed.group(many)


def test_it_adds_up_like_any_policy():
    policy = tight(MECHANISMS[0])
    assert (policy + policy)(10.0) == 2 * policy(10.0) == (2 * policy)(10.0)
    assert (policy | MECHANISMS[0].policy)(10.0) == MECHANISMS[0].policy(10.0)
    assert policy.shapes() == {policy: 1.0}


def test_gaussian_noise_has_an_exact_closed_form():
    assert ss.Gaussian(sigma=3).tight_policy == ss.Gaussian(sigma=3).policy
    assert ss.Gaussian(sigma=3).tight_loss(6) == 2
    assert ss.UnitSplitting(threshold=10, sigma=3).tight_policy == RootPolicy(k=1, sigma=3)
    assert ss.Root(k=4, sigma=2).tight_policy == ss.Root(k=4, sigma=2).policy
    with refused(ParameterError, "Gaussian", code="unsupported"):
        ss.Gaussian(sigma=3).tight_certificate()


def test_noise_that_reaches_too_far_for_floats_has_its_closed_form():
    mechanism = ss.ExponentialPolylog(d=1.02, p=1)
    policy = mechanism.tight_policy
    sizes = np.geomspace(1e-3, 1e9, 20)
    assert policy(sizes) == pytest.approx(mechanism.policy(sizes))
    assert mechanism.tight_loss(5) == mechanism.policy(5)
    assert policy.formula() == mechanism.policy.formula()
    with refused(ParameterError, "the noise", code="unsupported"):
        mechanism.tight_certificate()


def test_a_certificate_can_be_printed_and_verified():
    policy = tight(MECHANISMS[1])
    certificate = policy.certificate()
    assert certificate.verify()
    table = certificate.table()
    assert all(row["lower"] <= row["upper"] for row in table)
    assert table[0]["influence"] == pytest.approx(300 * 1e-13)
    text = str(certificate)
    assert "ExponentialPolylogNoise(d=0.5, sigma=300.0" in text
    assert "at most 20.00% above the tight loss" in text
    ends = [f"{table[i]['influence']:.4g}" for i in (0, -1)]
    assert f"{len(table)} influences from {ends[0]} to {ends[1]}" in text
    shown = table[:: len(table) // 20]
    assert len(shown) >= 20
    assert [line.split()[:3] for line in text.splitlines()[5:]] == [
        [f"{row['influence']:.5g}", f"{row['lower']:.8g}", f"{row['upper']:.8g}"] for row in shown
    ]


def test_the_gains_for_the_calibrations_of_the_paper():
    """For a median payroll the loss falls by a factor of 1.5 (polylog) and of 1.9 (generalized Gaussian)."""
    for noise, influence, gain in (
        (ExponentialPolylogNoise(d=0.237872845582512), 106, 1.52),
        (GeneralizedGaussianNoise(sigma=6.842, p=0.5), 106, 1.93),
    ):
        closed = np.tanh(noise._pure_loss(np.array([influence])) / 2) * noise._pure_loss(np.array([influence]))
        found = tight_loss(noise._standard(), influence / noise.sigma).upper
        assert closed[0] / found == pytest.approx(gain, abs=0.02)


def test_noise_is_described_with_its_parameters():
    noise = GaussianNoise(sigma=3)
    assert GaussianNoise.from_dict(noise.to_dict()) == noise


@pytest.mark.parametrize("sigma", [1e-290, 1e290])
def test_extreme_scales_do_not_overflow(sigma):
    policy = tight(ss.ExponentialPolylog(d=0.5, sigma=sigma))
    assert policy(sigma) == pytest.approx(tight(MECHANISMS[0])(1.0))
    assert (np.diff(policy([1e-300, 1.0, 1e300])) >= 0).all()
