"""Policies: against the divergences they bound, their algebra, their texts, and far out."""

import json
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from helpers.divergence import ORDERS, gaussian_divergence, shifted_divergence
from helpers.errors import refused
from helpers.strategies import (
    additive_mechanisms,
    influences,
    log_uniform,
    mechanisms_of_few_curves,
    plain_policies,
    policies,
    pure_policies,
    transformations,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

import slowscale as ss
from slowscale.policy import (
    ArsinhNormalPolicy,
    ArsinhPolicy,  # noqa: F401 - for eval
    ComposedPolicy,  # noqa: F401 - for eval
    ConstantPolicy,
    LaplacePolicy,  # noqa: F401 - for eval
    LogPolicy,
    MaxPolicy,
    PointsPolicy,  # noqa: F401 - for eval
    PolylogPolicy,
    PowerPolicy,
    RootPolicy,
    SumPolicy,
    TanhPolicy,
    TimesPolicy,
    TransformationPolicy,
    UnitSplittingPolicy,
)

# --- what the theorems say -------------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(m=additive_mechanisms, ratio=log_uniform(1e-4, 1e6))
def test_pure_policy_is_the_supremum_of_the_log_density_ratio(m, ratio):
    """Theorem BndLogProbSymCnvxDens: the supremum is reached at 0, and nowhere passed; the arsinh-normal's nearby."""
    assume(m.pure_policy is not None)
    influence = m.sigma * ratio
    around = np.concatenate([np.geomspace(1e-6, 1e4, 400), -np.geomspace(1e-6, 1e4, 400), [0.0, 1.0]])
    z = np.concatenate([influence * around, m.sigma * around, influence * np.linspace(0, 1, 401)])
    z = np.unique(np.concatenate([z, -m.sigma * np.linspace(0, 1.6, 2001)]))
    ratios = np.abs(m.noise.logpdf(z) - m.noise.logpdf(z - influence))
    slack = 1e-12 * (1 + np.abs(m.noise.logpdf(z)).max())
    at_zero = not isinstance(m, ss.ArsinhNormal)
    assert ratios.max() == pytest.approx(m.pure_policy(influence), rel=1e-9 if at_zero else 1e-5, abs=slack)
    assert ratios.max() <= m.pure_policy(influence) + slack


@settings(max_examples=40)
@given(m=additive_mechanisms, ratio=log_uniform(1e-2, 1e3))
def test_zcdp_policy_bounds_every_renyi_divergence(m, ratio):
    influence = m.sigma * ratio
    loss = m.policy(influence)
    assume(loss < 50)
    for order in ORDERS:
        divergence = shifted_divergence(m.noise, influence, order)
        assert divergence <= order * loss * (1 + 1e-6) + 1e-9
    if m.pure_policy is not None:
        # and the pure policy is where the divergences end
        assert shifted_divergence(m.noise, influence, 300.0) <= m.pure_policy(influence) * (1 + 1e-6) + 1e-9


@settings(max_examples=60)
@given(m=transformations, influence=log_uniform(1e-3, 1e6), order=st.sampled_from([1.5, 2.0, 4.0]))
def test_transformation_policy_is_the_worst_gaussian_divergence(m, influence, order):
    """Theorem transform: the divergence is largest for an empty rest of the sum, and equal to the policy there."""
    loss = m.policy(influence)
    distance = float(m.transform(influence) - m.transform(0)) / m.sigma
    assume(1e-3 < distance < 5)
    assert order * loss == pytest.approx(gaussian_divergence(distance, order), rel=1e-6)
    rest = influence * np.geomspace(1e-6, 1e6, 60)
    others = (m.transform(rest + influence) - m.transform(rest)) / m.sigma
    assert (others**2 / 2 <= loss * (1 + 1e-6) + 1e-12).all()


@given(epsilon=log_uniform(1e-8, 600))
def test_tanh_conversion_is_that_of_randomized_response(epsilon):
    """Lemma PRDP-implies-PRzCDP, and erratum E19: randomized response is the worst case, and reaches the bound."""
    bound = TanhPolicy(PowerPolicy(sigma=1, p=1))(epsilon)
    assert bound == pytest.approx(math.tanh(epsilon / 2) * epsilon, rel=1e-14)
    p = 1 / (1 + math.exp(-epsilon))
    kl = (2 * p - 1) * epsilon  # the divergence of order 1, where d_α/α is largest
    assert bound == pytest.approx(kl, rel=1e-7)


def test_tanh_bound_is_not_tight_for_laplace():
    """Erratum D: the exact value at ε = 1 is e⁻¹; so the closed form is safe, and improvable."""
    noise = ss.GeneralizedGaussian(sigma=1, p=1).noise
    exact = max(shifted_divergence(noise, 1.0, order) / order for order in np.linspace(1.0005, 3, 60))
    assert exact == pytest.approx(math.exp(-1), rel=1e-3)
    assert ss.GeneralizedGaussian(sigma=1, p=1).policy(1) == pytest.approx(0.46211715726, rel=1e-10)


# --- algebra ---------------------------------------------------------------------------------------------------------


@given(p=policies, q=policies, x=influences)
def test_sum_and_max(p, q, x):
    assert (p + q)(x) == pytest.approx(p(x) + q(x), rel=1e-12)
    assert (p | q)(x) == max(p(x), q(x))
    assert sum([p, q]) == p + q
    assert (p + q).notion == "PRzCDP"


@given(p=policies, xs=st.lists(influences, min_size=2, max_size=8))
def test_policies_are_nonnegative_and_nondecreasing(p, xs):
    losses = p(sorted(xs))
    assert (losses >= 0).all()
    assert (np.diff(losses) >= -1e-12 * losses[1:]).all()


@given(p=pure_policies)
def test_notions_do_not_mix_quietly(p):
    with refused(ss.ParameterError, "terms", code="mismatch"):
        p + RootPolicy(k=2, sigma=1)
    assert (p.to_zcdp() + RootPolicy(k=2, sigma=1)).notion == "PRzCDP"
    assert (p + p).notion == "PRDP"
    assert p.to_zcdp().to_zcdp() == p.to_zcdp()


@given(p=st.one_of(policies, pure_policies))
def test_description_round_trip(p):
    assert ss.Policy.from_dict(json.loads(json.dumps(p.to_dict()))) == p


@given(p=st.one_of(policies, pure_policies))
def test_texts(p):
    assert repr(eval(repr(p))) == repr(p)
    assert str(p)
    assert p.latex().count("{") == p.latex().count("}")
    assert p.latex().count("\\left") == p.latex().count("\\right")


def test_only_zero_and_policies_are_added():
    p = RootPolicy(k=2, sigma=1)
    assert p + 0 == 0 + p == p
    for other in (5, 0.5, "P", None):
        with pytest.raises(TypeError, match="unsupported operand"):
            p + other


def test_only_whole_numbers_repeat_a_policy():
    p = RootPolicy(k=2, sigma=1)
    assert p * 1 == p
    assert (3 * p)(7) == 3 * p(7)
    for count in (True, 1.0, 2.5, "2"):
        with pytest.raises(TypeError, match=r"unsupported operand|can't multiply"):
            p * count


def test_terms_may_be_a_list():
    p, q = RootPolicy(k=1, sigma=1), RootPolicy(k=2, sigma=1)
    assert SumPolicy([p, q]) == SumPolicy((p, q))
    assert hash(MaxPolicy([p, q])) == hash(MaxPolicy((p, q)))


def test_text_forms():
    assert str(RootPolicy(k=1, sigma=75)) == str(RootPolicy(k=1, sigma=75, a=3)) == "Δ² / (2·75²)"
    assert str(RootPolicy(k=2, sigma=5)) == "Δ / (2·5²)"
    assert str(RootPolicy(k=4, sigma=2)) == "Δ^(1/2) / (2·2²)"
    assert str(RootPolicy(k=4, sigma=2, a=1)) == "((Δ + 1)^(1/4) − 1^(1/4))² / (2·2²)"
    assert str(RootPolicy(k=2, sigma=5, a=1)) == "((Δ + 1)^(1/2) − 1^(1/2))² / (2·5²)"
    assert str(LogPolicy(sigma=0.5)) == "ln(Δ + 1)² / (2·0.5²)"
    assert str(LogPolicy(sigma=0.5, a=3)) == "(ln(Δ + 3) − ln(3))² / (2·0.5²)"
    assert str(PowerPolicy(sigma=6.84, p=0.5)) == "(Δ / 6.84)^0.5"
    assert str(PolylogPolicy(d=0.2)) == "0.2·(ln(Δ + 2.71828)^2 − 1)"
    assert str(UnitSplittingPolicy(threshold=10, sigma=50**0.5)) == "1·⌈Δ / 10⌉²"
    assert str(ConstantPolicy(0.5) + TanhPolicy(PowerPolicy(sigma=2, p=1))) == "0.5 + (tanh(ε/2)·ε with ε = Δ / 2)"
    assert RootPolicy(k=4, sigma=2).latex() == r"\frac{\Delta(r)^{1/2}}{2 \cdot 2^2}"


def square_root_like(x):
    return np.sqrt(x)


def test_user_given_functions_cannot_be_described():
    policy = TransformationPolicy(square_root_like, 2, 1)
    with refused(ss.ParameterError, "a user-given function", code="unsupported"):
        policy.to_dict()
    with refused(ss.ParameterTypeError, "f", code="type"):
        ss.Policy.from_dict({"kind": "transformation", "f": "os.system", "sigma": 2.0, "a": 1.0})
    assert policy(3) == pytest.approx(RootPolicy(k=2, sigma=2, a=1)(3))
    with refused(ss.ParameterError, "f", code="not-concave"):  # its loss would be understated
        TransformationPolicy(np.square, 2, 1)
    with refused(ss.ParameterTypeError, "f", code="type"):
        TransformationPolicy("abc", 2, 1)
    assert str(TransformationPolicy(np.log1p, 2, -0.5)) == "(f(Δ − 0.5) − f(-0.5))² / (2·2²)"


def far_from_zero(x):
    return 1e6 + np.sqrt(x)


def test_the_rounding_of_a_given_function_is_not_understated():
    """Differences of values near 10⁶ lose digits, and so do sums of an influence and an offset of 10⁶."""
    x = np.geomspace(1e-6, 1e6, 241)
    for policy, exact in (
        (TransformationPolicy(far_from_zero, 1, 1), RootPolicy(k=2, sigma=1, a=1)),
        (TransformationPolicy(lambda x: x - 1e6, 1, 1e6), RootPolicy(k=1, sigma=1)),
    ):
        off = np.abs(policy(x) / exact(x) - 1)
        told = policy._rounding_error(x)
        assert (off <= told).all()
        assert (off > told / 1000).any()  # and it is not overstated everywhere
    assert (RootPolicy(k=2, sigma=1)._rounding_error(x) == 0).all()


@pytest.mark.parametrize(
    ("description", "subject", "code"),
    [
        ({}, "description", "value"),
        ({"kind": "cubic"}, "kind", "value"),
        ({"kind": "log", "sigma": 1}, "description", "value"),
        ({"kind": "log", "sigma": -1, "a": 1}, "sigma", "value"),
        ({"kind": "sum", "terms": []}, "terms", "type"),
        ({"kind": "tanh", "pure": {"kind": "log", "sigma": 1, "a": 1}}, "pure", "type"),
    ],
)
def test_bad_descriptions(description, subject, code):
    with refused(ss.SlowscaleError, subject, code=code):
        ss.Policy.from_dict(description)


# --- far out, and every kind of number -------------------------------------------------------------------------------


@given(p=st.one_of(policies, pure_policies))
def test_huge_and_tiny_influences_stay_finite(p):
    values = p(np.array([0.0, 1e-300, 1e-9, 1e18, 1e30]))
    assert np.isfinite(values).all()


def test_what_a_float_cannot_hold_is_infinite_without_warning():
    assert ss.Gaussian(sigma=1).policy(1e200) == math.inf
    assert PowerPolicy(sigma=1e-6, p=0.5)(1e308) == pytest.approx(1e157)
    assert ss.Gaussian(sigma=1).policy.group([1e308, 1e308], cells="AA") == math.inf
    assert ss.Gaussian(sigma=1).bounded_policy(add=1e308)(1e308) == math.inf
    with refused(ss.ParameterError, "d·ln(a)**p", code="too-large"):
        PolylogPolicy(d=1, p=200)


def test_accuracy_far_out():
    """Against 50-digit arithmetic."""
    import mpmath as mp

    with mp.workdps(50):
        for x in ("1e-12", "1e-3", "1", "1e6", "1e18"):
            big, small = mp.mpf(x), float(x)
            exact = (mp.root(big + 7, 5) - mp.root(7, 5)) ** 2 / 2 / mp.mpf(0.25)
            assert RootPolicy(k=5, sigma=0.5, a=7)(small) == pytest.approx(float(exact), rel=1e-13)
            exact = mp.log1p(big / 7) ** 2 / 2 / mp.mpf(0.25)
            assert LogPolicy(sigma=0.5, a=7)(small) == pytest.approx(float(exact), rel=1e-14)
            a = mp.mpf(PolylogPolicy(d=0.3, sigma=2, a=None, p=2.5).a)
            exact = mp.mpf(0.3) * (mp.log(big / 2 + a) ** 2.5 - mp.log(a) ** 2.5)
            assert PolylogPolicy(d=0.3, sigma=2, a=None, p=2.5)(small) == pytest.approx(float(exact), rel=1e-13)
            exact = (big / 3) ** mp.mpf(0.3)
            assert TanhPolicy(PowerPolicy(sigma=3, p=0.3))(small) == pytest.approx(
                float(exact * mp.tanh(exact / 2)), rel=1e-13
            )


def test_kinds_of_numbers():
    policy = LogPolicy(sigma=1)
    expected = policy(5.0)
    for five in (5, np.int64(5), np.float32(5), Decimal(5), Fraction(5), np.array(5)):
        assert policy(five) == expected
        assert isinstance(policy(five), float)
    for fives in ([5, 5], (5, Decimal(5)), np.array([[5, 5]], np.uint8), pd.Series([5, 5])):
        assert (policy(fives) == expected).all()
    assert policy(2**80) == pytest.approx(policy(float(2**80)))
    for empty in (
        policy,
        PowerPolicy(sigma=2, p=0.5),
        TanhPolicy(PowerPolicy(sigma=2, p=0.5)),
        PolylogPolicy(d=1),
        ArsinhNormalPolicy(scale=2, shape=1),
    ):
        assert empty([]).shape == (0,)
    assert policy(np.ones((3, 4))).shape == (3, 4)


@pytest.mark.parametrize("wrong", [-1, [1, -1], math.nan, [1, math.inf]])
def test_bad_influences(wrong):
    with refused(ss.ParameterError, "influence", code="value"):
        RootPolicy(k=2, sigma=1)(wrong)


@pytest.mark.parametrize("wrong", ["5", [True], None, 1j, ["a"], [None], [[1], [2, 3]], np.ma.array([1], mask=[1])])
def test_influences_of_a_wrong_type(wrong):
    with refused(ss.ParameterTypeError, "influence"):
        RootPolicy(k=2, sigma=1)(wrong)


# --- groups ----------------------------------------------------------------------------------------------------------

small_groups = st.lists(log_uniform(0.01, 1e4), min_size=1, max_size=6)


@given(p=policies, group=small_groups)
def test_group_is_never_worse_than_the_papers_lemma(p, group):
    lemma = len(group) * p(group).sum()
    assert p.group(group) <= lemma * (1 + 1e-12)
    assert p.group(group) >= p(max(group)) * (1 - 1e-12)


@given(p=plain_policies, group=small_groups)
def test_group_knows_more_with_cells(p, group):
    assert p.group(group, cells=["A"] * len(group)) <= p.group(group) * (1 + 1e-12)
    assert p.group([], cells=[]) == 0.0


@given(p=pure_policies, group=small_groups)
def test_pure_groups_add(p, group):
    assert p.group(group) == pytest.approx(p(group).sum())


@settings(max_examples=40)
@given(m=additive_mechanisms, group=st.lists(log_uniform(0.1, 10), min_size=2, max_size=4), data=st.data())
def test_group_bounds_the_true_divergence_wherever_the_records_are(m, group, data):
    """Cells have independent noise, so the divergence of a release is the sum over cells of those of their shifts."""
    group = [m.sigma * value for value in group]
    cells = data.draw(st.lists(st.integers(0, 2), min_size=len(group), max_size=len(group)))
    shifts = [sum(v for v, c in zip(group, cells, strict=True) if c == cell) for cell in set(cells)]
    known, anywhere = m.policy.group(group, cells=cells), m.policy.group(group)
    assume(anywhere < 100)
    for order in (1.001, 1.5, 3.0, 10.0):
        divergence = sum(shifted_divergence(m.noise, shift, order) for shift in shifts)
        assert divergence <= order * known * (1 + 1e-6) + 1e-9
        assert known <= anywhere * (1 + 1e-12)


@given(m=transformations, group=small_groups, data=st.data())
def test_group_bounds_transformations_wherever_the_records_are(m, group, data):
    cells = data.draw(st.lists(st.integers(0, 2), min_size=len(group), max_size=len(group)))
    shifts = [sum(v for v, c in zip(group, cells, strict=True) if c == cell) for cell in set(cells)]
    truth = sum(float((m.transform(shift) - m.transform(0)) ** 2) / 2 / m.sigma**2 for shift in shifts)
    known = m.policy.group(group, cells=cells)
    assert truth <= known * (1 + 1e-9) + 1e-12
    assert known <= m.policy.group(group) * (1 + 1e-12)


def test_group_of_the_gaussian_is_attained():
    assert RootPolicy(k=1, sigma=2).group([3, 4]) == pytest.approx(RootPolicy(k=1, sigma=2)(7))


@pytest.mark.parametrize(
    "p",
    [RootPolicy(k=2, sigma=1), RootPolicy(k=4, sigma=1), LogPolicy(sigma=1), TanhPolicy(PowerPolicy(sigma=2, p=1))],
    ids=str,
)
def test_records_of_one_cell_lose_what_their_sum_loses(p):
    assert p.group([100, 200], cells="AA") == pytest.approx(p(300))
    assert p.group([100, 200, 50], cells="AAB") == pytest.approx(p(300) + p(50))


def test_repeated_releases_repeat_the_loss_of_a_group():
    p = RootPolicy(k=4, sigma=1)
    assert (3 * p).group([100, 200]) == pytest.approx(3 * p.group([100, 200]))
    assert (3 * p).group([100, 200], cells="AA") == pytest.approx(3 * p(300))


def test_groups_lose_most_in_different_cells_under_a_root_without_offset():
    for k in (2, 3, 4):
        p = RootPolicy(k=k, sigma=1)
        assert p.group([9, 16, 100]) == pytest.approx(p(9) + p(16) + p(100))
    # With an offset, small records lose more together: four times as much as one of them, and not twice.
    p = RootPolicy(k=2, sigma=1, a=1)
    assert p.group([1e-6, 1e-6]) == pytest.approx(p(2e-6)) == pytest.approx(4 * p(1e-6))


def test_group_bad_input():
    with refused(ss.ParameterError, "cells", code="mismatch"):
        RootPolicy(k=1, sigma=2).group([3, 4], cells=["A"])
    with refused(ss.ParameterError, "influences", code="value"):
        RootPolicy(k=1, sigma=2).group([3, -4])
    with refused(ss.ParameterTypeError, "cells", code="type"):
        RootPolicy(k=1, sigma=2).group([3, 4], cells=5)
    with refused(ss.ParameterTypeError, "cells", code="type"):
        RootPolicy(k=1, sigma=2).group([3, 4], cells=[[1], [2]])
    for missing in (math.nan, None, pd.NA):
        with refused(ss.ParameterError, "cells", code="nulls"):
            RootPolicy(k=1, sigma=2).group([3, 4], cells=pd.Series([missing, "A"], dtype=object))


def test_a_sum_of_policies_may_be_of_several_tables():
    with refused(ss.ParameterError, "cells", code="unsupported"):
        (RootPolicy(k=1, sigma=2) + LogPolicy(sigma=1)).group([3, 4], cells="AB")


# --- bounded neighbours ----------------------------------------------------------------------------------------------

values = st.one_of(st.just(0.0), log_uniform(1e-3, 1e6))


@given(m=transformations, r=values, other=values)
def test_bounded_transformation_loss_is_the_worst_over_the_rest_of_the_sum(m, r, other):
    """Lemma BndSensTransSum."""
    exact = m.bounded_policy()(r, other)
    rest = np.concatenate([[0.0], np.geomspace(1e-6, 1e4, 50)])
    losses = ((m.transform(rest + r) - m.transform(rest + other)) / m.sigma) ** 2 / 2
    assert losses.max() == pytest.approx(exact, rel=1e-6, abs=1e-9)


policies_of_values = st.one_of(
    mechanisms_of_few_curves.map(lambda m: m.tight_policy),
    st.one_of(additive_mechanisms, transformations).map(lambda m: m.policy),
)


@given(p=policies_of_values, r=values, add=st.floats(-1e3, 1e6), times=st.floats(1.01, 100))
def test_bounded_changes_and_their_loose_bounds(p, r, add, times):
    between = ss.BoundedPolicy(p)
    if r + add >= 0:
        exact = ss.BoundedPolicy(p, add)(r)
        assert exact == pytest.approx(between(r, r + add), rel=1e-6, abs=1e-9)
        assert exact <= ss.BoundedPolicy(p, add, loose=True)(r) * (1 + 1e-9) + 1e-12
    exact = ss.BandPolicy(p, times)(r)
    assert exact == pytest.approx(between(r, times * r), rel=1e-6, abs=1e-9)
    assert exact <= ss.BandPolicy(p, times, loose=True)(r) * (1 + 1e-9) + 1e-12
    # knowing that a record is there makes a change of its value no easier to see than its removal
    assert between(r, 0) <= p(r) * (1 + 1e-9) + 1e-12


@given(m=additive_mechanisms, other=mechanisms_of_few_curves, r=values, add=st.floats(-1e6, 1e6))
def test_bounded_additive_loss_sees_the_difference_only(m, other, r, add):
    """Corollary BndPrivAddMechGlobSum."""
    if m.pure_policy is not None:
        assert m.bounded_policy(add=add, pure=True)(r) == pytest.approx(m.pure_policy(abs(add)), rel=1e-6, abs=1e-9)
    assert other.bounded_policy(add=add)(r) <= other.policy(abs(add)) * (1 + 1e-6) + 1e-9


def test_splitting_a_record_does_not_protect_its_value_less():
    """The pieces of a record are summed again: a change of its value shifts a Gaussian."""
    assert ss.BoundedPolicy(UnitSplittingPolicy(threshold=10, sigma=3))(5, 26) == pytest.approx(
        RootPolicy(k=1, sigma=3)(21)
    )


def test_bounded_losses_of_a_given_function_are_those_of_the_root():
    given, root = TransformationPolicy(np.sqrt, 2, 1), RootPolicy(k=2, sigma=2, a=1)
    assert ss.BoundedPolicy(given)(5, 19) == pytest.approx(ss.BoundedPolicy(root)(5, 19))
    for times in (1.25, 3):
        exact = ss.BoundedPolicy(root)(8, 8 * times)
        assert ss.BandPolicy(given, times)(8) == pytest.approx(exact)
        assert ss.BandPolicy(given, times, loose=True)(8) == pytest.approx(exact)
    assert ss.BoundedPolicy(given, add=6, loose=True)(8) == pytest.approx(root(6))


def test_additive_noise_protects_negative_values_and_transformations_refuse_them():
    gaussian = ss.Gaussian(sigma=2)
    for loose in (False, True):
        assert gaussian.bounded_policy(add=-5, loose=loose)(3) == pytest.approx(25 / 8)
        assert gaussian.bounded_policy()(3, -3) == pytest.approx(36 / 8)
    for m in (ss.Log(sigma=1), ss.Root(k=2, sigma=1), ss.Root(k=1, sigma=2, a=1)):
        with refused(ss.ParameterError, "value (also the changed one)", code="value"):
            m.bounded_policy(add=-3.5, loose=True)(3)


def test_a_multiple_of_nothing_is_nothing_under_the_log():
    band = ss.Log(sigma=1).band_policy(times=3, loose=True)
    assert band([0, 5]).tolist() == pytest.approx([0, math.log(3) ** 2 / 2])


def test_bounded_losses_of_tiny_changes_keep_their_digits():
    """A value of 10⁹ that might be one more: plain differences would leave 7 digits."""
    import mpmath as mp

    with mp.workdps(50):
        r, a = mp.mpf(10) ** 9, mp.mpf(3)
        root = (mp.root(r + 1 + a, 4) - mp.root(r + a, 4)) ** 2 / 2
        log = (mp.log(r + 1 + a) - mp.log(r + a)) ** 2 / 2
    assert ss.Root(k=4, sigma=1, a=3).bounded_policy(add=1)(1e9) == pytest.approx(float(root), rel=1e-13)
    assert ss.Log(sigma=1, a=3).bounded_policy(add=1)(1e9) == pytest.approx(float(log), rel=1e-13)


def test_bounded_losses_of_huge_values_are_not_rounded_away():
    """Ten to the 17 and five more differ by nothing as floats."""
    for m in (ss.Gaussian(sigma=1), ss.GeneralizedGaussian(sigma=1, p=0.5), ss.ExponentialPolylog(d=1)):
        expected = m.tight_policy(5)
        assert m.bounded_policy(add=5)(1e17) == expected
        assert m.bounded_policy()(10**17, 10**17 + 5) == expected
        assert m.bounded_policy()(Decimal(10**17 + 5), 10**17) == expected
        assert m.bounded_policy()(np.array([10**17]), np.array([10**17 + 5])) == [expected]
    assert ss.Gaussian(sigma=1).band_policy(times=1 + 2**-52)(1.5e15) == pytest.approx((1.5e15 * 2**-52) ** 2 / 2)
    assert ss.Root(k=2, sigma=1).bounded_policy()(1e-300, 1e15) == pytest.approx(1e15 / 2)
    assert str(ss.Gaussian(sigma=1).bounded_policy(add=5)) == "5² / (2·1²)"
    assert str(ss.BoundedPolicy(ConstantPolicy(1), add=1, loose=True)) == "4"


def test_bounded_texts_and_round_trip():
    policy = ss.Root(k=4, sigma=2, a=1).bounded_policy(add=5)
    assert str(policy) == "((r + 1)^(1/4) − (r + 5 + 1)^(1/4))² / (2·2²)"
    assert str(ss.Root(k=4, sigma=2, a=1).bounded_policy(add=5, loose=True)) == "5^(1/2) / (2·2²)"
    assert str(ss.Root(k=4, sigma=2, a=1).band_policy(times=2, loose=True)) == "((1 − 2^(1/4))·Δ^(1/4))² / (2·2²)"
    assert str(ss.GeneralizedGaussian(sigma=2, p=0.5).bounded_policy(add=-5, pure=True)) == "(5 / 2)^0.5"
    assert str(ss.GeneralizedGaussian(sigma=2, p=0.5).band_policy(times=1.5, pure=True)) == "(0.5·Δ / 2)^0.5"
    assert str(ss.Gaussian(sigma=2).bounded_policy()) == "|r − r'|² / (2·2²)"
    assert ss.BoundedPolicy.from_dict(json.loads(json.dumps(policy.to_dict()))) == policy
    assert policy.notion == "bounded PRzCDP"


@pytest.mark.parametrize(
    ("make", "subject", "code"),
    [
        (lambda: ss.Log(sigma=1).bounded_policy(add=math.nan), "add", "value"),
        (lambda: ss.Log(sigma=1).bounded_policy(add="1"), "add", "type"),
        (lambda: ss.Log(sigma=1).bounded_policy(loose=True), "loose", "missing"),
        (lambda: ss.Log(sigma=1).bounded_policy(pure=True), "pure", "unsupported"),
        (
            lambda: ss.Log(sigma=1).bounded_policy(add=-5)(3),
            "value (also the changed one)",
            "value",
        ),
        (
            lambda: ss.Log(sigma=1).bounded_policy(add=-5, loose=True)(3),
            "value (also the changed one)",
            "value",
        ),
        (lambda: ss.Log(sigma=1).bounded_policy(add=1, loose="yes"), "loose", "type"),
        (lambda: ss.BoundedPolicy.from_dict({}), "description", "value"),
        (lambda: ss.BoundedPolicy("policy"), "policy", "type"),
        (lambda: ss.Log(sigma=1).bounded_policy()(3), "other", "missing"),
        (lambda: ss.Log(sigma=1).bounded_policy(add=1)(3, 4), "other", "conflict"),
    ],
)
def test_bounded_bad_input(make, subject, code):
    with refused(ss.SlowscaleError, subject, code=code):
        make()


def test_constant_policies_count_a_change_as_two_steps():
    assert ss.BoundedPolicy(ConstantPolicy(0.5))(3, 4) == 2
    assert ss.BoundedPolicy(ConstantPolicy(0.5, "PRDP"))(3, 4) == 1
    assert ConstantPolicy(0.5).group([1, 1, 1], cells="AAA") == pytest.approx(4.5)


def test_the_worst_order_of_the_polylog_is_below_the_closed_form():
    """Table ep_probs: the exact PRzCDP losses at Δ = 1 are 0.5578 and 0.7386 where the closed form says 1."""
    for p, sigma, exact in ((1, 0.707915891716855, 0.55775727), (2, 1.87723665746312, 0.738573)):
        m = ss.ExponentialPolylog(d=4, sigma=sigma, a=3, p=p)
        worst = minimize_scalar(
            lambda t, m=m: -shifted_divergence(m.noise, 1.0, 1 + math.exp(t)) / (1 + math.exp(t)),
            bounds=(-14, 4),
            method="bounded",
        )
        assert -worst.fun == pytest.approx(exact, rel=2e-5)
        assert m.policy(1) == pytest.approx(1, rel=1e-12)


@given(policies, influences, st.integers(2, 1000))
def test_a_policy_is_the_sum_of_its_shapes(p, x, count):
    for policy in (p, TimesPolicy(count, p), TimesPolicy(count, TimesPolicy(2, p)), TimesPolicy(count, p) + p):
        total = sum(times * shape(x) for shape, times in policy.shapes().items())
        assert total == pytest.approx(policy(x), rel=1e-9, abs=1e-300)


def test_combined_policies_are_flat():
    p, q, r = RootPolicy(k=1, sigma=1), RootPolicy(k=2, sigma=1), RootPolicy(k=3, sigma=1)
    assert p + q + r == p + (q + r) == SumPolicy((p, q, r))
    assert (p | q | r) == MaxPolicy((p, q, r))


COUNTED = ConstantPolicy(0.5)


@pytest.mark.parametrize(
    "p",
    [
        COUNTED,
        3 * COUNTED,
        COUNTED + 2 * COUNTED,
        COUNTED | ConstantPolicy(0.1),
        TanhPolicy(ConstantPolicy(0.5, "PRDP")),
        3 * RootPolicy(k=2, sigma=1),
        COUNTED + LogPolicy(sigma=1),
        COUNTED | RootPolicy(k=1, sigma=1),
        UnitSplittingPolicy(threshold=10, sigma=1),
        TransformationPolicy(np.log1p, 1),
    ],
    ids=str,
)
def test_a_policy_says_whether_every_record_loses_the_same(p):
    assert p.constant == (p(0) == p(1e9))
