"""Tier 1 decides only what is certain; tier 2 decides the rest, with as many bits as it needs, from a known source."""

import math
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx
from helpers.bitsources import Crafted, Recorded, Stuck
from helpers.errors import refused

import slowscale as ss
from slowscale.sampling import exact
from slowscale.sampling.balls import Ball
from slowscale.sampling.bits import Stream
from slowscale.sampling.samplers import Sampler


class Uniform(Sampler):
    """The uniform itself; it is accepted if all its margins are positive."""

    uniforms = 1

    def __init__(self, signed=False, acceptance=1.0, margins=lambda u, lift: []):
        self.signed, self.acceptance, self._margins = signed, acceptance, margins

    def attempt(self, uniforms, words, lift):
        return uniforms[0] + 0.0, self._margins(uniforms[0], lift)


class Scaled(exact.Task):
    """The floors of a multiple of the variate, and of the same multiple of every extra uniform."""

    def __init__(self, sampler, scale=2.0**40, extra_uniforms=0):
        self.sampler, self.scale, self.extra_uniforms = sampler, scale, extra_uniforms
        self.outputs = 1 + extra_uniforms

    def finish(self, variate, extra_uniforms, rows, lift):
        return [number * self.scale for number in (variate, *extra_uniforms)]


def words_of(*shares):
    return [int(share * 2**64) for share in shares]


def streams(*words, source=None):
    return [Stream(word, source or Recorded()) for word in words]


def as_fraction(number):
    mantissa, exponent = number.man_exp()
    return int(mantissa) * Fraction(2) ** int(exponent)


@pytest.fixture
def tier2(monkeypatch):
    """The rows that tier 2 decides."""
    rows, original = [], exact.exact_floors

    def counted(task, streams, sign, extra, row):
        rows.append(row)
        return original(task, streams, sign, extra, row)

    monkeypatch.setattr(exact, "exact_floors", counted)
    return rows


# Few values, one by one


@pytest.mark.parametrize(("last_word", "sign"), [(0, -1), (1, 1), (2, -1), (2**64 - 1, 1), (2**64 - 2, -1)])
def test_the_lowest_bit_of_the_last_word_is_the_sign(last_word, sign):
    (word,) = words_of(0.3)
    source = Crafted([word, last_word])
    (floors,) = exact.draw(Scaled(Uniform(signed=True)), 1, source)
    assert floors.tolist() == [math.floor(sign * Fraction(2 * word + 1, 2**65) * 2**40)]


@pytest.mark.parametrize("last_word", [0, 1])
def test_without_a_sign_the_last_word_changes_nothing(last_word):
    (word,) = words_of(0.3)
    (floors,) = exact.draw(Scaled(Uniform()), 1, Crafted([word, last_word]))
    assert floors.tolist() == [word >> 24]


@pytest.mark.parametrize("signed", [False, True])
def test_a_single_value_takes_its_uniforms_then_the_extra_ones_then_one_word(signed):
    one, two, three = words_of(0.3, 0.6, 0.9)
    # a floor of 2^40 times a uniform needs the first 128 bits of each: one further word for each of the three
    source = Crafted([one, two, three, 1, 7, 7, 7, 12_345])
    floors = exact.draw(Scaled(Uniform(signed), extra_uniforms=2), 1, source)
    assert [f.tolist() for f in floors] == [[one >> 24], [two >> 24], [three >> 24]]
    assert source.words(1).tolist() == [12_345]


def test_up_to_four_values_are_drawn_one_by_one(tier2):
    for count, one_by_one in ((1, 1), (3, 3), (4, 4), (5, 0), (6, 0)):
        tier2.clear()
        exact.draw(Scaled(Uniform()), count, Recorded())
        assert len(tier2) == one_by_one


# Tier 2: the uniforms, their precision, and the decisions


def test_a_uniform_in_arb_is_the_interval_that_its_bits_leave_open():
    for word in (0, 1, 2**63, 2**64 - 1):
        (ball,), words = exact._decide_with_enough_bits(lambda bits, w=word: exact._uniforms(streams(w), bits))
        value = word << 64 | int(Recorded().words(1)[0])
        assert words == [word]
        assert as_fraction(ball.mid()) == Fraction(2 * value + 1, 2**129)
        assert 1 <= as_fraction(ball.rad()) * 2**129 < 1.001


def test_bits_are_doubled_from_128_to_65536_and_the_precision_is_64_more():
    seen, before = [], ctx.prec
    with refused(ss.SlowscaleError, "the source of random bits", code="not-random"):
        exact._decide_with_enough_bits(lambda bits: seen.append((bits, ctx.prec)))
    assert seen == [(128 * 2**k, 128 * 2**k + 64) for k in range(10)]
    assert seen[-1][0] == 65_536
    assert ctx.prec == before


def test_the_first_decision_ends_the_doubling():
    for decision in (False, [], 0):
        seen = []

        def decide(bits, seen=seen, decision=decision):
            seen.append(bits)
            return decision if bits >= 256 else None

        assert exact._decide_with_enough_bits(decide) == decision
        assert seen == [128, 256]


@pytest.mark.parametrize(
    ("word", "margin"),
    [
        (2**62, lambda u, lift: [lift(0)]),
        (2**62, lambda u, lift: [lift(1), lift(0)]),
        (0, lambda u, lift: [u]),
        (0, lambda u, lift: [-u]),
    ],
)
def test_a_margin_that_may_be_zero_decides_nothing(word, margin):
    """It is exactly 0, or it may be 0 because all bits of the uniform are."""
    sampler = Uniform(acceptance=0.5, margins=margin)
    for decide in (
        lambda: exact.exact_acceptance(sampler, streams(word, source=Stuck(word))),
        lambda: exact.exact_floors(Scaled(sampler), streams(word, source=Stuck(word)), 1.0, [], 0),
    ):
        with refused(ss.SlowscaleError, "the source of random bits", code="not-random"):
            decide()


@pytest.mark.parametrize(
    ("edges", "accepted"), [((0.2,), True), ((0.4,), False), ((0.2, 0.29), True), ((0.2, 0.31), False), ((), True)]
)
def test_a_candidate_is_accepted_if_all_margins_are_positive(edges, accepted):
    (word,) = words_of(0.3)
    sampler = Uniform(acceptance=0.5, margins=lambda u, lift: [u - lift(edge) for edge in edges])
    assert exact.exact_acceptance(sampler, streams(word)) is accepted
    floors = exact.exact_floors(Scaled(sampler), streams(word), 1.0, [], 0)
    assert floors == ([word >> 24] if accepted else [])


def test_floors_times_a_sign():
    (word,) = words_of(0.3)
    task = Scaled(Uniform(signed=True))
    assert exact.exact_floors(task, streams(word), 1.0, [], 0) == [word >> 24]
    assert exact.exact_floors(task, streams(word), -1.0, [], 0) == [-(word >> 24) - 1]


# Tier 1: what counts as certain


def test_whole_numbers_beyond_what_floats_distinguish_are_left_to_tier_two(tier2):
    """At 2^30 arrays decide all that is drawn here; from 2^50 on they decide nothing, and all floors are right."""
    for bits, share in ((30, 0), (51, 1), (53, 1), (60, 1), (64, 1)):
        tier2.clear()
        source = Recorded()
        (floors,) = exact.draw(Scaled(Uniform(), 2.0**bits), 50, source)
        words = [int(w) for w in source.calls[0]]
        large = [w >= 2**63 for w in words]  # so that the floor is at least 2^(bits − 1)
        assert [int(f) for f, is_large in zip(floors, large, strict=True) if is_large] == [
            w >> (64 - bits) for w, is_large in zip(words, large, strict=True) if is_large
        ]
        decided = [large[row] for row in tier2]
        assert sum(decided) == share * sum(large)


class Doubtful(Scaled):
    """In arrays, all results have a given radius; in Arb they are exact."""

    radius = 0.0

    def finish(self, variate, extra_uniforms, rows, lift):
        if isinstance(variate, Ball):
            return [Ball(np.full(len(rows), 7.5), np.full(len(rows), self.radius))]
        return [arb(7.5)]


@pytest.mark.parametrize(
    ("radius", "certain"), [(0.0, True), (0.4, True), (0.6, False), (-0.1, False), (-2.0, False), (math.nan, False)]
)
def test_a_radius_that_is_negative_or_not_a_number_is_not_certain(radius, certain, tier2):
    task = Doubtful(Uniform())
    task.radius = radius
    (floors,) = exact.draw(task, 5, Recorded())
    assert floors.tolist() == [7] * 5
    assert tier2 == ([] if certain else [0, 1, 2, 3, 4])


def touching(rad):
    """Return a midpoint that equals the radius, inflated, to the last bit."""
    mid = rad
    for _ in range(100):
        mid = float(Ball(mid, rad).inflated())
    assert mid == float(Ball(mid, rad).inflated())
    return mid


def test_margins_that_touch_zero_or_have_no_valid_radius_are_left_to_tier_two(monkeypatch):
    asked = []

    def accept_odd(_, streams):
        asked.append(streams[0].word)
        return streams[0].word % 2 == 1

    monkeypatch.setattr(exact, "exact_acceptance", accept_odd)
    with np.errstate(all="ignore"):
        drawn = exact._AcceptedDraws(Uniform(), 1, Recorded())
    edge = touching(0.3)
    # midpoint, radius, and whether the candidate is accepted; None if that is left open
    cases = [
        (1.0, 0.5, True),
        (-1.0, 0.5, False),
        (edge, 0.3, None),
        (-edge, 0.3, None),
        (math.nextafter(edge, 1), 0.3, True),
        (math.nextafter(-edge, -1), 0.3, False),
        (0.1, 0.3, None),
        (1.0, -0.5, None),
        (-1.0, -0.5, None),
        (0.1, -0.5, None),
        (-0.1, -0.5, None),
        (1.0, math.nan, None),
        (math.nan, 0.1, None),
        (math.inf, 0.1, None),
    ]
    mids, rads, expected = (np.array(column) for column in zip(*cases, strict=True))
    words = [np.arange(len(cases), dtype=np.uint64)]
    good, decided = drawn._decide(words, [Ball(mids, rads)], len(cases))
    left_open = [i for i, case in enumerate(expected) if case is None]
    assert asked == left_open == list(decided)
    assert good.tolist() == [i % 2 == 1 if case is None else case for i, case in enumerate(expected)]


def test_draws_are_gathered_until_there_are_enough():
    """A sampler that promises too much needs several rounds; bits and candidates still belong together."""
    sampler = Uniform(acceptance=0.999, margins=lambda u, lift: [u - lift(0.9)])
    with np.errstate(all="ignore"):
        drawn = exact._AcceptedDraws(sampler, 300, Recorded())
    assert drawn.variate.mid.shape == drawn._words[0].shape == (300,)
    assert drawn.variate.mid.min() > 0.9
    for i in range(300):
        bits, known = drawn.streams(i)[0].known(64)
        assert float(Fraction(bits, 2**known)) == pytest.approx(drawn.variate.mid[i], rel=1e-15)


def test_the_bits_that_decided_an_acceptance_stay_with_their_draw(monkeypatch):
    """Also those of later rounds: with bits drawn anew, a result would not be that of the accepted candidate."""
    decided = {}

    def accept_even_words(sampler, streams):
        decided[streams[0].word] = streams
        return streams[0].word % 2 == 0

    monkeypatch.setattr(exact, "exact_acceptance", accept_even_words)
    sampler = Uniform(acceptance=0.999, margins=lambda u, lift: [u * lift(0.0)])  # tier 1 never decides
    with np.errstate(all="ignore"):
        drawn = exact._AcceptedDraws(sampler, 300, Recorded())
    assert (drawn._words[0] % 2 == 0).all()
    assert all(drawn.streams(i) is decided[int(word)] for i, word in enumerate(drawn._words[0]))


def test_a_task_must_return_as_many_numbers_as_it_states():
    task = Scaled(Uniform())
    task.outputs = 2
    with pytest.raises(ValueError, match="longer"):
        exact.draw(task, 10, Recorded())


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(2**63 - 1, np.int64), (-(2**63), np.int64), (0, np.int64), (2**63, object), (-(2**63) - 1, object)],
)
def test_floors_are_integers_of_64_bits_wherever_they_fit(value, dtype):
    floors = exact._with_tier2_results(np.array([1, 2, 3]), {1: value})
    assert floors.dtype == dtype
    assert floors.tolist() == [1, value, 3]


# Bounds


class Formula:
    """A formula that remembers with which precisions it was evaluated."""

    def __init__(self, value):
        self.value, self.precisions = value, []

    def __call__(self, lift):
        self.precisions.append(ctx.prec)
        return self.value(lift)


@pytest.mark.parametrize(
    ("value", "unit", "bounds"),
    [
        (lambda lift: lift(Fraction(7, 3)), Fraction(1, 100), (233, 234)),
        (lambda lift: lift(Fraction(7, 3)), Fraction(2), (1, 2)),
        (lambda lift: -lift(Fraction(7, 3)), Fraction(1, 100), (-234, -233)),
        (lambda lift: lift(5), Fraction(1), (5, 5)),
        (lambda lift: lift(300).log().exp(), Fraction(1), (299, 301)),  # a ball around a whole number
    ],
)
def test_bounds_of_a_formula_are_found_at_once(value, unit, bounds):
    formula, before = Formula(value), ctx.prec
    assert exact.exact_bounds(formula, unit) == bounds
    assert formula.precisions == [256]
    assert ctx.prec == before


def test_bounds_that_are_too_wide_are_computed_with_more_bits():
    formula = Formula(lambda lift: lift(2).sqrt() * lift(2**300))
    low, high = exact.exact_bounds(formula, Fraction(1))
    assert (low, high) == (math.isqrt(2 * 4**300), math.isqrt(2 * 4**300) + 1)
    assert formula.precisions == [256, 512]


def test_bounds_three_units_apart_are_too_wide():
    formula = Formula(lambda lift: arb(0.5, 1.2 if ctx.prec < 1000 else 0))
    assert exact.exact_bounds(formula, Fraction(1)) == (0, 1)
    assert formula.precisions == [256, 512, 1024]


ALL_PRECISIONS = [256 * 2**k for k in range(9)]


def test_bounds_that_stay_wide_are_returned_in_the_end():
    formula = Formula(lambda lift: arb(0.5, 5))
    assert exact.exact_bounds(formula, Fraction(1)) == (-5, 6)
    assert formula.precisions == ALL_PRECISIONS


@pytest.mark.parametrize("value", [arb(0, math.inf), arb("nan"), arb(math.inf)])
def test_bounds_of_what_has_none_are_refused(value):
    formula, before = Formula(lambda lift: value), ctx.prec
    with refused(ss.SlowscaleError, "the ends of an interval", code="too-large"):
        exact.exact_bounds(formula, Fraction(1))
    assert formula.precisions == ALL_PRECISIONS
    assert ctx.prec == before
