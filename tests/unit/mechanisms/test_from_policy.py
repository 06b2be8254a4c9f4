"""FromPolicy: the promise is the policy, whatever it is made of; and what is no promise is refused."""

import json
import pickle

import numpy as np
import pytest
from helpers.errors import refused
from helpers.strategies import drawn_curves, instances, log_uniform, polylogs
from hypothesis import given, settings
from hypothesis import strategies as st

import slowscale as ss
from slowscale.policy import (
    ConstantPolicy,
    MaxPolicy,
    PointsPolicy,
    PolylogPolicy,
    PowerPolicy,
    RootPolicy,
    SumPolicy,
    UnitSplittingPolicy,
)

TABLE = [(100, 0.5), (1e4, 5), (1e6, 12)]
TERMS = st.one_of(
    drawn_curves(PointsPolicy), instances(PowerPolicy), polylogs(PolylogPolicy).filter(lambda policy: policy.d > 0.1)
)
PROMISES = st.one_of(
    TERMS,
    st.builds(lambda one, two, count: one + count * two, TERMS, TERMS, st.integers(1, 4)),
    TERMS.map(lambda p: 3 * p),
)


def scale(policy):
    """Return a size that is typical for a policy."""
    term = policy.terms[0] if isinstance(policy, SumPolicy) else getattr(policy, "policy", policy)
    return term.curve[0][0] if isinstance(term, PointsPolicy) else term.sigma


@settings(max_examples=100)
@given(promise=PROMISES, ratio=log_uniform(1e-4, 1e4), sigma=st.one_of(st.just(1.0), log_uniform(0.1, 10)))
def test_the_largest_change_of_the_log_density_is_the_promise(promise, ratio, sigma):
    """By brute force over where the noise is; at 0 the change is the promise itself."""
    m = ss.FromPolicy(promise, sigma)
    influence = scale(promise) * ratio
    at = influence * sigma
    around = np.concatenate([[0.0, 1.0], np.geomspace(1e-9, 1e9, 500), -np.geomspace(1e-9, 1e9, 500)])
    z = np.concatenate([at * around, np.array(m.noise._kinks), at - np.array(m.noise._kinks)])
    change = m.noise.logpdf(z) - m.noise.logpdf(z - at)
    loss = promise(influence)
    rounding = 1e-13 * np.abs(m.noise.logpdf(z)) + 1e-12
    assert (np.abs(change) <= loss * (1 + 1e-11) + rounding).all()
    assert m.noise.logpdf(0) - m.noise.logpdf(at) == pytest.approx(loss, rel=1e-9, abs=1e-12)
    assert m.pure_policy(at) == pytest.approx(loss, rel=1e-11)
    assert m.policy == m.pure_policy.to_zcdp()


@pytest.mark.parametrize(
    ("promise", "same"),
    [
        (PowerPolicy(sigma=30, p=0.3), ss.GeneralizedGaussian(sigma=30, p=0.3)),
        (PolylogPolicy(d=0.3, sigma=30), ss.ExponentialPolylog(d=0.3, sigma=30)),
        ([(10, 0.5)], ss.GeneralizedGaussian(sigma=20, p=1)),
        ([(1e-3, 1e-3), (1, 1), (100, 10)], None),
    ],
)
def test_policies_of_the_paper_give_its_noise(promise, same):
    m = ss.FromPolicy(promise)
    if same is None:  # a curve that is a square root beyond 1: it has the tails of a generalized Gaussian
        far = ss.GeneralizedGaussian(sigma=1, p=0.5).noise
        assert m.noise.sf(1e4) / m.noise.sf(4e4) == pytest.approx(far.sf(1e4) / far.sf(4e4), rel=1e-12)
        return
    z = np.geomspace(1e-3, 1e6, 50)
    assert m.noise.logsf(z) == pytest.approx(same.noise.logsf(z), rel=1e-12)
    assert m.std() == pytest.approx(same.std())
    assert m.prediction_interval(0) == pytest.approx(same.prediction_interval(0))


def test_a_finer_table_comes_near_the_policy_that_it_is_read_from():
    policy = PolylogPolicy(d=0.5, sigma=100)
    sizes = np.geomspace(1e-2, 1e12, 200)
    drawn = ss.FromPolicy(np.column_stack([sizes, policy(sizes)]))
    assert drawn.std() == pytest.approx(ss.ExponentialPolylog(d=0.5, sigma=100).std(), rel=1e-2)
    assert drawn.release(np.zeros(100, np.int64)).units.size == 100


def test_values():
    for m in (
        ss.FromPolicy(TABLE),
        ss.FromPolicy(TABLE, sigma=2.5),
        ss.FromPolicy(PowerPolicy(sigma=30, p=0.5) + 2 * PolylogPolicy(d=0.3)),
        ss.FromPolicy(PointsPolicy(TABLE, sigma=3)),
    ):
        names = {**vars(ss), "SumPolicy": SumPolicy, "PowerPolicy": PowerPolicy, "PolylogPolicy": PolylogPolicy}
        names |= {"PointsPolicy": PointsPolicy, "TimesPolicy": type(2 * PowerPolicy(sigma=1, p=1))}
        assert eval(repr(m), names) == m
        assert pickle.loads(pickle.dumps(m)) == m
        assert ss.Mechanism.from_dict(json.loads(json.dumps(m.to_dict()))) == m
        assert hash(m) == hash(eval(repr(m), names))
    assert ss.FromPolicy(TABLE) == ss.FromPolicy(PointsPolicy(TABLE)) == ss.FromPolicy(np.array(TABLE))
    assert (
        repr(ss.FromPolicy(TABLE)) == "FromPolicy(promise=[(100.0, 0.5), (10000.0, 5.0), (1000000.0, 12.0)], sigma=1.0)"
    )
    assert str(ss.FromPolicy(TABLE, 2)) == "FromPolicy(promise=[(100, 0.5), (10000, 5), (1e+06, 12)], sigma=2)"
    assert str(ss.FromPolicy(PowerPolicy(sigma=2, p=1))) == "FromPolicy(promise=Δ / 2, sigma=1)"


def test_calibration_stretches_the_promise():
    m = ss.FromPolicy.calibrate(std=75, promise=TABLE)
    assert m.std() == pytest.approx(75)
    assert m.pure_policy(100 * m.sigma) == pytest.approx(0.5)
    assert ss.FromPolicy.calibrate(loss=1, at=1000, pure=True, promise=TABLE).pure_policy(1000) == pytest.approx(1)
    with refused(ss.ParameterTypeError, "promise", code="missing"):
        ss.FromPolicy.calibrate(std=75)


@pytest.mark.parametrize(
    ("promise", "subject", "code"),
    [
        (
            RootPolicy(k=4, sigma=1),
            "promise",
            "notion",
        ),
        (UnitSplittingPolicy(threshold=1, sigma=1), "promise", "notion"),
        (PowerPolicy(sigma=2, p=1).to_zcdp(), "promise", "notion"),
        (
            PowerPolicy(sigma=2, p=1) + ConstantPolicy(1, "PRDP"),
            "promise",
            "constant",
        ),
        (MaxPolicy((PowerPolicy(sigma=2, p=1), PowerPolicy(sigma=3, p=1))), "promise", "value"),
        ([(10, 1), (20, 3)], "points", "not-concave"),
        ([(10, 1), (1e6, 1.01)], "the noise of this policy", "too-large"),
        (3, "promise", "type"),
        ("points", "promise", "type"),
    ],
)
def test_what_is_no_promise_is_refused(promise, subject, code):
    with refused(ss.SlowscaleError, subject, code=code):
        ss.FromPolicy(promise)
