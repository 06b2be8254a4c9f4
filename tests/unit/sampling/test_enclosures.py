"""A ball holds the truth and little more, also where numbers underflow, radii are wide, or a domain ends."""

import math
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx, fmpq

from slowscale.sampling.balls import Ball, at_least, exact_root, lift_ball, uniform_balls

EPS = 2.0**-52  # the distance from 1 to the next float: twice the largest relative rounding error
UNDERFLOW = 1e-300  # the absolute error that is charged for underflow
SIZES = [5e-324, 2.0**-1060, 3e-305, 1e-160, 1e-9, 1 / 3, 1.0, 3.7, 1e10, 1e160, 1e300]
SHARES = [0.0, 1e-16, 1e-10, 1e-3, 0.4]  # the radius as a share of the midpoint
EXACTLY = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
}


@pytest.fixture(autouse=True)
def quiet_and_precise():
    before, ctx.prec = ctx.prec, 300
    with np.errstate(all="ignore"):
        yield
    ctx.prec = before


def fraction(number):
    """Return the midpoint of an Arb ball of 300 bits, which stands for the number itself."""
    mantissa, exponent = number.mid().man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


def assert_encloses(mid, rad, truths, middle, waste=math.inf, units=math.inf, absolute=4 * UNDERFLOW):
    """The ball holds every truth. Its radius is at most `waste` times their spread, plus `units` roundings.

    `middle` is the function of the midpoint of the argument. The radius is computed in floats: its own rounding
    errors, which `Ball.inflated` covers, are allowed for.
    """
    mid, rad = float(mid), float(rad)
    if not (math.isfinite(mid) and math.isfinite(rad)):
        assert not Ball(mid, rad).inflated() < math.inf  # infinite or NaN: never certain
        return
    assert rad >= 0
    assert max(abs(truth - Fraction(mid)) for truth in truths) <= Fraction(rad) * (1 + Fraction(1, 2**49))
    if waste < math.inf:
        spread = max(abs(truth - middle) for truth in truths)
        assert rad <= float(spread) * waste + units * EPS * abs(mid) + absolute


def ends(mid, rad):
    mid, rad = Fraction(float(mid)), Fraction(float(rad))
    return mid - rad, mid, mid + rad


def signed_balls(seed, count):
    rng = np.random.default_rng(seed)
    mid = rng.choice([0.0, *SIZES, *(-s for s in SIZES)], count) * rng.choice([1.0, 1.25, 4 / 3], count)
    rad = np.abs(mid) * rng.choice([*SHARES, 2.0], count) + rng.choice([0.0, 0.0, 1e-320, 1.0], count)
    return Ball(mid, rad)


@pytest.mark.parametrize("name", EXACTLY)
def test_arithmetic_holds_all_corners(name):
    one, two = signed_balls(1, 1000), signed_balls(2, 1000)
    result = EXACTLY[name](one, two)
    for a, r, b, s, mid, rad in zip(one.mid, one.rad, two.mid, two.rad, result.mid, result.rad, strict=True):
        xs, ys = ends(a, r), ends(b, s)
        assert_encloses(
            mid, rad, [EXACTLY[name](x, y) for x in xs for y in ys], EXACTLY[name](xs[1], ys[1]), 1.001, 1.5
        )


@pytest.mark.parametrize("rad", [0.25, 1.0, 3.0])
def test_products_with_one_ball_for_all(rad):
    """A radius may be one number for a whole array."""
    factors = np.array([1.0, -2.5, 1e5])
    for result in (Ball(factors) * Ball(2.5, rad), Ball(2.5, rad) * Ball(factors)):
        for factor, mid, radius in zip(factors, *np.broadcast_arrays(result.mid, result.rad), strict=True):
            truths = [Fraction(factor) * y for y in ends(2.5, rad)]
            assert_encloses(mid, radius, truths, truths[1], 1.001, 1.5)


@pytest.mark.parametrize("factor", [1.0, -1.0, 0.5, -0.5, 4.0, -4.0, 2.0**-40, 2.0**900, 5e-324])
def test_a_power_of_two_costs_no_rounding(factor):
    balls = signed_balls(3, 200)
    result = balls * factor
    for a, r, mid, rad in zip(balls.mid, balls.rad, result.mid, result.rad, strict=True):
        truths = [x * Fraction(factor) for x in ends(a, r)]
        assert_encloses(mid, rad, truths, truths[1], 1 + 1e-12, 0)


def test_other_factors_cost_one_rounding():
    for factor in (3.0, -1.5, 0.75, -0.1):
        assert (Ball(np.array([0.7])) * factor).rad[0] == pytest.approx(EPS * 0.7 * abs(factor), rel=1e-6, abs=0)


def test_inverses_hold_both_ends():
    balls = signed_balls(4, 600)
    result = balls.inverse()
    for a, r, mid, rad in zip(balls.mid, balls.rad, result.mid, result.rad, strict=True):
        if a == 0 or r >= abs(a):
            assert not rad < math.inf
        else:
            truths = [1 / x for x in ends(a, r)]
            # the farther end is r/(|a|·(|a| − r)) away, which is what is charged
            assert_encloses(mid, rad, truths, truths[1], 1.001, 1.5)


FUNCTIONS = {
    # name: (operation, midpoints, radii relative to the scale on which the function changes, that scale)
    "log": (lambda x: x.log(), [*SIZES[2:], 0.999, 1.001], lambda x: x),
    "exp": (lambda x: x.exp(), [-800.0, -745.0, -700.0, -5.0, -1e-9, 0.0, 1e-9, 2.5, 700.0], lambda x: 1.0),
    "log1p": (
        lambda x: x.log1p(),
        [-0.999, -0.5, -1e-5, -1e-200, 0.0, 1e-200, 1e-5, 0.5, 3.7, 1e10, 1e200],
        lambda x: 1 + x,
    ),
    "expm1": (lambda x: x.expm1(), [0.0, 5e-324, 1e-200, 1e-5, 0.5, 3.7, 30.0, 700.0], lambda x: 1.0),
    "expm1 of negative": (lambda x: x.expm1(), [-1e-200, -1e-5, -0.5, -3.7, -30.0, -800.0], lambda x: 1.0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_hold_both_ends(name):
    operation, midpoints, scale = FUNCTIONS[name]
    for x in midpoints:
        for share in SHARES:
            r = share * scale(x)
            result = operation(Ball(np.array([x]), np.array([r])))
            truths = [fraction(operation(arb(fmpq(t.numerator, t.denominator)))) for t in ends(x, r)]
            # r/(1 − r) is charged for −ln(1 − r) and for e^r − 1
            waste = math.inf if "negative" in name else 1.001 + 2 * share
            assert_encloses(result.mid[0], result.rad[0], truths, truths[1], waste, 12)


def test_square_roots_hold_both_ends():
    for x in [*SIZES[2:], 2.0]:
        for share in SHARES:
            result = Ball(np.array([x]), np.array([share * x])).sqrt()
            truths = [fraction(arb(fmpq(t.numerator, t.denominator)).sqrt()) for t in ends(x, share * x)]
            assert_encloses(result.mid[0], result.rad[0], truths, truths[1], 2.001, 12)


@pytest.mark.parametrize("k", [1, 2, 3, 5, 7, 12])
def test_roots_hold_both_ends(k):
    for x in [1e-250, 1e-9, 1 / 3, 3.7, 1e10, 1e250]:
        for share in SHARES[:4]:
            result = Ball(np.array([x]), np.array([share * x])).root(k)
            truths = [fraction(exact_root(arb(fmpq(t.numerator, t.denominator)), k, arb)) for t in ends(x, share * x)]
            # each halving of an even k may double the waste of the square root
            assert_encloses(result.mid[0], result.rad[0], truths, truths[1], 4.01, 20 + 12 * abs(math.log(x)) / k)


def test_the_first_root_is_the_number_itself():
    ball = Ball(np.array([3.7]), np.array([0.1]))
    assert (ball.root(1).mid[0], ball.root(1).rad[0]) == (3.7, 0.1)
    number = exact_root(arb(3.7), 1, arb)
    assert number.is_exact()
    assert number == arb(3.7)


def test_cosines_hold_both_ends():
    for x in (0.0, 0.3, 0.5, 1.0, 1.5, 2.5, 4.0, -3.5):
        for r in (0.0, 1e-16, 1e-10, 1e-3, 0.01):
            result = Ball(np.array([x]), np.array([r])).cos_pi()
            truths = [fraction(arb(fmpq(t.numerator, t.denominator)).cos_pi()) for t in ends(x, r)]
            steep = x % 1 == 0.5  # there the derivative is π, which is what is charged
            assert_encloses(
                result.mid[0], result.rad[0], truths, truths[1], 1.02 if steep else math.inf, 0, absolute=41 * EPS
            )


@pytest.mark.parametrize("wide", [1.0, 1.2, 1.5, 3.0, 1e5])
def test_a_ball_that_reaches_the_end_of_a_domain_has_no_finite_radius(wide):
    one, radius = np.array([1.0]), np.array([wide])
    for result in (
        Ball(one, radius).log(),
        Ball(one, radius).inverse(),
        Ball(-one, radius).inverse(),
        Ball(0 * one, radius).log1p(),
        Ball(-0.5 * one, radius / 2).log1p(),
        Ball(one, radius).exp(),
        Ball(one, radius).expm1(),
        Ball(-one, radius).expm1(),
    ):
        assert not result.rad[0] < math.inf


def test_the_errors_that_are_charged_are_the_stated_ones():
    """Twice the largest error of an arithmetic operation, 8 units for a function, 40 for a cosine with its angle."""

    def charged(ball):
        return float(ball.rad[0]) / (EPS * abs(float(ball.mid[0])))

    x, y = Ball(np.array([3.7])), Ball(np.array([0.3]))
    for result in (x + y, x - y, x * y, x.inverse()):
        assert charged(result) == pytest.approx(1, rel=1e-6, abs=0)
    for result in (x.log(), x.exp(), x.sqrt(), x.log1p(), x.expm1(), y.log(), (-y).exp()):
        assert charged(result) == pytest.approx(8, rel=1e-6, abs=0)
    assert y.cos_pi().rad == pytest.approx(40 * EPS, rel=1e-6, abs=0)
    for k in (3, 7):
        # 8 units of the logarithm, 1 of its product with 1/k, 2 of 1/k itself; and 8 of the exponential function
        assert charged(x.root(k)) == pytest.approx((8 + 1 + 2) * math.log(3.7) / k + 8, rel=1e-6, abs=0)
        assert charged(y.root(k)) == pytest.approx((8 + 1 + 2) * -math.log(0.3) / k + 8, rel=1e-6, abs=0)


def test_before_a_decision_the_radius_grows_by_its_own_error():
    assert float(Ball(np.array([-3.0])).inflated()[0]) == pytest.approx(4 * EPS * 3, rel=1e-12, abs=0)
    assert float(Ball(np.array([0.0]), np.array([0.5])).inflated()[0]) == pytest.approx(
        0.5 * (1 + 1e-9), rel=1e-14, abs=0
    )
    assert float(Ball(np.array([0.0])).inflated()[0]) == UNDERFLOW


@pytest.mark.parametrize(
    "value",
    [
        Fraction(1, 3),
        -Fraction(2, 7) * 10**200,
        Fraction(1, 3 * 10**9),
        Fraction(10, 3) / 2**1060,
        Fraction(1, 3 * 2**1080),
        2**53 + 1,
        -(10**300) - 1,
    ],
)
def test_a_lifted_number_is_held(value):
    ball = lift_ball(value)
    assert_encloses(ball.mid, ball.rad, [Fraction(value)], Fraction(value), 0, 1 + 1e-9)


def test_a_number_beyond_all_floats_is_never_certain():
    assert lift_ball(2**2000).rad == math.inf


def test_no_uniform_reaches_a_probability_of_one():
    words = np.array([0, 1, 2**63, 2**64 - 1], np.uint64)
    assert at_least(words, 1.0).tolist() == [0, 0, 0, 0]
    assert at_least(words, 1 - 2.0**-53).tolist() == [0, 0, 0, 1]
    assert at_least(words, 0.0).tolist() == [1, 1, 1, 1]


def test_uniforms_are_centred_on_what_their_bits_leave_open():
    words = [0, 1, 5, 2**40, 2**52 - 1]
    assert uniform_balls(np.array(words, np.uint64)).mid.tolist() == [(2 * w + 1) / 2**65 for w in words]
