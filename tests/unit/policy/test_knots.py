"""A tight policy is described with the knots of its curve: it is read without computing one, and stays as it was."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from helpers.errors import refused

import slowscale as ss
from slowscale.core.errors import ParameterError
from slowscale.noise import GeneralizedGaussianNoise, stored_curves
from slowscale.policy import Policy, TightPolicy, TimesPolicy
from slowscale.policy import tight as tight_module
from slowscale.policy.tight import KNOT_SIZES
from slowscale.policy.tree import formula_value

MECHANISM = ss.GeneralizedGaussian(sigma=25, p=0.5)  # its curve is part of the package
SIZES = 25 * np.geomspace(1e-12, 1e17, 500)


def computed():
    """The policy as a mechanism has it: its knots are not known yet."""
    return MECHANISM.tight_policy


def read(policy=None, change=lambda knots: knots):
    """A policy that is read from a description, with changed knots."""
    description = json.loads(json.dumps((policy or computed()).to_dict()))
    return Policy.from_dict(description | {"knots": change(description["knots"])})


def lowered(share, places=slice(None)):
    """Return a change that lowers the loss at some knots."""

    def change(knots):
        array = np.array(knots)
        array[places, 1] += math.log1p(-share)
        return array.tolist()

    return change


@pytest.fixture
def no_curves(monkeypatch):
    """Reading, finding or computing a curve fails."""

    def fail(*given):
        raise AssertionError("a curve was computed")

    monkeypatch.setattr(tight_module, "tight_curve", fail)
    monkeypatch.setattr(stored_curves, "build_curve", fail)


def test_a_policy_that_was_read_computes_no_curve(request):
    losses, policy = computed()(SIZES), read()
    formula = str(computed())
    request.getfixturevalue("no_curves")
    assert (policy(SIZES) == losses).all()
    assert formula_value(policy.formula(), {"Δ": SIZES}) == pytest.approx(losses, rel=1e-9)
    assert str(policy) == formula
    assert read(policy) == policy == read(policy)
    assert policy.to_dict() == json.loads(json.dumps(policy.to_dict()))
    assert computed() == computed()  # two policies without knots have the same ones
    with pytest.raises(AssertionError, match="a curve was computed"):  # the twin: this one needs a curve
        computed()(SIZES)


def test_equal_knots_make_equal_policies():
    policy = read()
    assert policy.knots is not None
    assert computed().knots is None
    for one, other in ((policy, computed()), (computed(), policy), (policy, read(policy))):
        assert one == other
        assert hash(one) == hash(other)
    assert eval(repr(policy), vars(ss.policy) | vars(ss.noise)) == policy
    both = ss.RecordPolicy((("x", computed()), ("x", policy)))
    assert both.column("x") == TimesPolicy(2, policy)


@pytest.mark.parametrize("change", [lowered(1e-5), lowered(1e-9, 7), lambda knots: knots[:-1], lambda knots: []])
def test_policies_with_other_knots_are_never_merged(change):
    """Two charges of which one has other knots are not twice the same charge."""
    policy, other = computed(), read(change=change)
    assert policy != other
    assert other != policy
    assert len({policy, other, read()}) == 2
    both = ss.RecordPolicy((("x", policy), ("x", other), ("x", policy)))
    assert both({"x": 100.0}) == pytest.approx(2 * policy(100.0) + other(100.0), rel=1e-14)
    assert both.column("x")(100.0) == pytest.approx(2 * policy(100.0) + other(100.0), rel=1e-14)
    assert sorted(both.column("x").shapes().values()) == [1.0, 2.0]


DAMAGES = {
    "null in a pair": lambda knots: [[None, 1.0], *knots[1:]],
    "NaN": lambda knots: [[knots[0][0], math.nan], *knots[1:]],
    "infinite": lambda knots: [*knots[:-1], [knots[-1][0], math.inf]],
    "text": lambda knots: "knots",
    "text in a pair": lambda knots: [["0", "1"], *knots],
    "booleans": lambda knots: [[False, True], *knots],
    "a number": lambda knots: 3,
    "a mapping": lambda knots: {"a": 1},
    "a flat list": lambda knots: [number for knot in knots for number in knot],
    "three numbers": lambda knots: [[*knot, 0.0] for knot in knots],
    "one knot": lambda knots: knots[:1],
    "thousands of knots": lambda knots: [[-20 + i / 100, i / 100] for i in range(3000)],
    "sizes that fall": lambda knots: knots[::-1],
    "sizes that repeat": lambda knots: [knots[0], *knots],
    "sizes too close": lambda knots: [knots[0], [knots[0][0] + 1e-5, knots[0][1]], *knots[1:]],
    "losses that fall": lambda knots: [[knots[0][0], knots[1][1] + 1e-9], *knots[1:]],
    "sizes out of range": lambda knots: [*knots, [KNOT_SIZES[1] + 1, knots[-1][1]]],
    "losses out of range": lambda knots: [[knots[0][0], -1e4], *knots[1:]],
    "a number too large for a float": lambda knots: [*knots[:-1], [knots[-1][0], 10**400]],
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_malformed_knots_are_refused(damage):
    with pytest.raises(ParameterError) as error:
        read(change=damage)
    assert len(str(error.value)) < 300


def test_knots_may_reach_the_ends_of_their_range():
    knots = tuple((size, loss) for size, loss in zip(KNOT_SIZES, (-40.0, 40.0), strict=True))
    assert replace(computed(), knots=knots).knots == knots
    for place, step in ((0, -1e-9), (1, 1e-9)):
        wrong = [list(knot) for knot in knots]
        wrong[place][0] += step
        with refused(ParameterError, "knots", code="value"):
            replace(computed(), knots=wrong)


def test_a_description_without_knots_is_refused():
    description = {name: value for name, value in computed().to_dict().items() if name != "knots"}
    with refused(ParameterError, "description", code="value"):
        Policy.from_dict(description)


def test_a_noise_without_a_curve_has_no_knots():
    policy = ss.GeneralizedGaussian(sigma=1, p=0.01).tight_policy
    assert policy.to_dict()["knots"] == []
    assert read(policy) == policy
    assert read(policy)(5.0) == policy.closed(5.0)


def dip(knots):
    """Lower the curve by 3 % on a short range between two knots."""
    (x, y), (x2, y2) = knots[5:7]

    def on_line(share):
        return [x + share * (x2 - x), y + share * (y2 - y)]

    left, middle, right = map(on_line, (0.50, 0.51, 0.52))
    return [*knots[:6], left, [middle[0], max(left[1], middle[1] - 0.03)], right, *knots[6:]]


def drawn_out(knots):
    """Extend the curve far beyond its end, where it would be the closed form, by a loss that does not grow."""
    return [*knots, [KNOT_SIZES[1], knots[-1][1]]]


@pytest.mark.parametrize(
    ("change", "near"),
    [
        (lowered(0.0), True),
        (lowered(0.004), True),
        (lowered(-0.004), True),
        (lowered(0.02), False),
        (lowered(-0.02), False),
        (lowered(0.02, 9), False),
        (lowered(0.02, 0), False),
        (dip, False),
        (drawn_out, False),
        (lambda knots: knots[:-1], True),  # there, the closed form is nearly as small
        (lambda knots: knots[:9], False),
        (lambda knots: knots[9:], False),
        (lambda knots: [], False),
    ],
)
def test_curves_of_other_versions_may_differ_by_their_precision(change, near):
    """Everywhere, not only at some sizes. A larger precision in the description does not help."""
    other = read(change=change)
    assert computed().is_near(other) == near
    assert computed().is_near(replace(other, precision=0.2)) == near


def test_a_curve_that_goes_on_below_the_closed_form_is_not_near():
    """At its knots it has the loss of the closed form, but not between them."""
    policy = ss.ArsinhNormal(scale=3, shape=0.6).tight_policy
    end = KNOT_SIZES[1]
    last = [end, math.log(policy.closed(3 * math.exp(end)))]
    assert policy.to_dict()["knots"][-1][0] < 10
    assert not policy.is_near(read(policy, lambda knots: [*knots, last]))


def test_only_tight_policies_of_the_same_noise_are_near():
    policy = computed()
    for other in (MECHANISM.policy, ss.GeneralizedGaussian(sigma=25.001, p=0.5).tight_policy):
        assert not policy.is_near(other)


def test_parameters_have_no_knots(no_curves):
    plain = TightPolicy(MECHANISM.noise, MECHANISM.policy)
    policy = replace(plain, knots=((-1.0, -2.0), (1.0, 0.0)))
    for combine in (lambda p: p, lambda p: 3 * p, lambda p: p + MECHANISM.policy, lambda p: p | 2 * p):
        assert combine(policy).parameters() == combine(plain)
    assert MECHANISM.policy.parameters() is not None
    assert MECHANISM.policy.parameters() == MECHANISM.policy


def test_the_certificate_of_a_policy_that_was_read_is_computed():
    certificate = read().certificate()
    rows = certificate.table()
    assert len(rows) > 1000
    assert all(row["lower"] <= row["upper"] for row in rows)
    assert certificate.verify()
    low = read(change=lowered(0.02)).certificate()
    assert not low.verify()
    with refused(ParameterError, "the curve", code="unproven"):
        low.table()


def test_the_knots_are_the_same_for_every_scale():
    noise = GeneralizedGaussianNoise(sigma=3, p=0.5)
    other = TightPolicy(noise, ss.GeneralizedGaussian(sigma=3, p=0.5).policy)
    assert other.to_dict()["knots"] == computed().to_dict()["knots"]
