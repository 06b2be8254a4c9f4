"""Balls hold the truth: every operation against Arb at 200 bits, over many magnitudes and radii."""

from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from slowscale.sampling.balls import Ball, at_least, choose, either, lift_ball, uniform_balls

COUNT = 400
UNARY = {
    "sqrt": (lambda x: x.sqrt(), (1e-250, 1e250)),
    "log": (lambda x: x.log(), (1e-250, 1e250)),
    "log near 1": (lambda x: x.log(), (0.5, 2)),
    "log1p": (lambda x: x.log1p(), (1e-20, 1e20)),
    "exp": (lambda x: x.exp(), (1e-10, 300)),
    "exp of negative": (lambda x: (-x).exp(), (1e-10, 600)),
    "expm1": (lambda x: x.expm1(), (1e-20, 300)),
    "expm1 of negative": (lambda x: (-x).expm1(), (1e-20, 30)),
    "sinh": (lambda x: x.sinh(), (1e-20, 300)),
    "sinh of negative": (lambda x: (-x).sinh(), (1e-20, 300)),
    "inverse": (lambda x: 1.0 / x, (1e-100, 1e100)),
    "cube root": (lambda x: x.root(3), (1e-200, 1e200)),
    "twelfth root": (lambda x: x.root(12), (1e-200, 1e200)),
    "fifth power": (lambda x: x**5, (1e-50, 1e50)),
    "cosine": (lambda x: x.cos_pi(), (1e-10, 2)),
    "constant minus": (lambda x: 3.25 - x, (1e-10, 1e10)),
}
BINARY = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x / y,
    "max": lambda x, y: x.max(y),
}


def random_balls(rng, low, high):
    """Return balls of all sizes, and for each a true value within it (an exact fraction)."""
    mid = np.exp(rng.uniform(np.log(low), np.log(high), COUNT))
    rad = mid * 10.0 ** rng.uniform(-18, -2, COUNT) * (rng.random(COUNT) < 0.8)
    share = rng.choice([-1.0, -0.5, 0.0, 0.7, 1.0], COUNT)
    truth = [Fraction(m) + Fraction(r) * Fraction(s) for m, r, s in zip(mid, rad, share, strict=True)]
    return Ball(mid, rad), truth


def assert_holds(ball, exact):
    """Every exact value lies within its ball, inflated as before a decision."""
    radius = np.broadcast_to(ball.inflated(), np.shape(ball.mid))
    for mid, rad, value in zip(ball.mid, radius, exact, strict=True):
        if np.isfinite(mid) and np.isfinite(rad):
            assert abs(arb(float(mid)) - value) <= arb(float(rad)) * (1 + arb(2) ** -100), (mid, rad, value)


@pytest.mark.parametrize("name", UNARY)
def test_functions(name):
    operation, domain = UNARY[name]
    ctx.prec = 300
    with np.errstate(all="ignore"):
        for seed in range(5):
            ball, truth = random_balls(np.random.default_rng(seed), *domain)
            result = operation(ball)
            assert np.isfinite(result.inflated()).mean() > 0.9
            assert_holds(result, [operation(arb(fmpq(t.numerator, t.denominator))) for t in truth])


@pytest.mark.parametrize("name", BINARY)
def test_operations(name):
    ctx.prec = 300
    for seed in range(5):
        rng = np.random.default_rng(seed)
        one, first = random_balls(rng, 1e-6, 1e6)
        two, second = random_balls(rng, 1e-6, 1e6)
        exact = [
            BINARY[name](arb(fmpq(a.numerator, a.denominator)), arb(fmpq(b.numerator, b.denominator)))
            for a, b in zip(first, second, strict=True)
        ]
        assert_holds(BINARY[name](one, two), exact)
        assert_holds(
            BINARY[name](one, Ball(two.mid)),
            [
                BINARY[name](arb(fmpq(a.numerator, a.denominator)), arb(float(b)))
                for a, b in zip(first, two.mid, strict=True)
            ],
        )


def test_a_radius_that_is_too_small_would_be_seen():
    """The twin: without its rounding error an addition fails the check."""
    ctx.prec = 300
    rng = np.random.default_rng(1)
    one, two = rng.random(COUNT), rng.random(COUNT)
    careless = Ball(one + two, -8 * 2.0**-52 * np.abs(one + two))  # takes back what `inflated` adds
    with pytest.raises(AssertionError):
        assert_holds(careless, [arb(float(a)) + arb(float(b)) for a, b in zip(one, two, strict=True)])


def test_numpy_is_as_accurate_as_is_charged():
    """Eight units in the last place are charged for each function; the true errors are far smaller."""
    ctx.prec = 200
    rng = np.random.default_rng(1)
    cases = {
        "log": np.exp(rng.uniform(-45, 45, 20_000)),
        "exp": rng.uniform(-700, 700, 20_000),
        "sqrt": np.exp(rng.uniform(-600, 600, 20_000)),
        "log1p": np.exp(rng.uniform(-40, 40, 20_000)),
        "expm1": np.exp(rng.uniform(-40, 6, 20_000)) * rng.choice([-1, 1], 20_000),
    }
    for name, x in cases.items():
        values = getattr(np, name)(x)
        worst = max(
            float(abs(arb(float(v)) / getattr(arb(float(t)), name)() - 1).mid()) for t, v in zip(x, values, strict=True)
        )
        assert worst < 4 * 2.0**-52, name
    x = rng.uniform(0, 2, 20_000)
    worst = max(
        float(abs(arb(float(v)) - arb(float(t)).cos_pi()).mid()) for t, v in zip(x, np.cos(np.pi * x), strict=True)
    )
    assert worst < 10 * 2.0**-52


def test_roots_of_an_exact_zero_are_exact():
    for k in (1, 2, 3, 4, 6):
        with np.errstate(all="ignore"):
            result = Ball(np.zeros(3), np.zeros(3)).root(k)
        assert result.mid.tolist() == [0, 0, 0]
        assert np.asarray(result.rad).tolist() == [0, 0, 0]


def test_what_is_undefined_is_never_certain():
    with np.errstate(all="ignore"):
        for ball in (
            Ball(np.array([-1.0, 0.0]), 0.5).log(),
            Ball(np.array([1.0]), 2.0).exp(),
            1.0 / Ball(np.zeros(1), 1.0),
        ):
            radius = ball.inflated()
            assert not (np.floor(ball.mid - radius) == np.floor(ball.mid + radius)).any()


@settings(max_examples=50)
@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20))
def test_uniforms_hold_every_continuation_of_their_bits(words):
    ball = uniform_balls(np.array(words, np.uint64))
    ctx.prec = 300
    for extreme in (0, 1):
        assert_holds(Ball(ball.mid, np.full(len(words), ball.rad)), [(arb(w) + extreme) * arb(2) ** -64 for w in words])


def test_choosing():
    index = np.array([0, 1, 2, 1])
    chosen = choose(index, [lift_ball(1.0), 2.5, Ball(3.0, 0.25)])
    assert chosen.mid.tolist() == [1, 2.5, 3, 2.5]
    assert chosen.rad.tolist() == [0, 0, 0.25, 0]
    assert choose(1, ["a", "b"]) == "b"
    assert either(True, "a", "b") == "a"
    assert either(np.array([True, False]), Ball(np.array([1.0, 2.0]), 0.1), 5.0).mid.tolist() == [1, 5]
    assert lift_ball(Fraction(1, 3)).rad > 0
    assert lift_ball(Fraction(1, 4)).rad == 0


@given(st.floats(0, 1), st.integers(0, 2**64 - 1))
def test_pieces_are_chosen_by_exact_comparison(probability, word):
    probability = round(probability * 2**53) / 2**53
    truth = Fraction(word, 2**64) >= Fraction(probability)
    assert bool(at_least(word, probability)) == truth
    assert bool(at_least(np.array([word], np.uint64), probability)[0]) == truth
