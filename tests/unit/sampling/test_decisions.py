"""Tier 1 decides only what is certain; tier 2 decides the rest, with as many bits as it needs, from a known source."""

import math
import threading
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


def streams(*words, bits=None):
    return [Stream(word, bits or Recorded().bits(), 0, 0, place) for place, word in enumerate(words)]


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


@pytest.mark.parametrize("signed", [False, True])
def test_a_single_value_takes_its_uniforms_then_the_extra_ones_then_a_sign(signed):
    one, two, three = words_of(0.3, 0.6, 0.9)
    # a floor of 2^40 times a uniform needs the first 128 bits of each: one further word for each of the three
    source = Crafted([one, two, three, *([1] if signed else []), 7, 7, 7, 12_345])
    floors = exact.draw(Scaled(Uniform(signed), extra_uniforms=2), 1, source)
    assert [f.tolist() for f in floors] == [[one >> 24], [two >> 24], [three >> 24]]
    first = [(0, 0, place, 0) for place in range(3 + signed)]
    assert source.asked == first + [(0, 0, place, 1) for place in range(3)]


def test_a_rejected_value_is_attempted_again_with_the_words_of_the_next_attempt():
    low, high = words_of(0.3, 0.6)
    sampler = Uniform(acceptance=0.5, margins=lambda u, lift: [u - lift(0.5)])
    source = Crafted([low, 7, high, 7])
    (floors,) = exact.draw(Scaled(sampler), 1, source)
    assert floors.tolist() == [high >> 24]
    assert source.asked == [(0, attempt, 0, part) for attempt in (0, 1) for part in (0, 1)]


def test_up_to_four_values_are_drawn_one_by_one(tier2):
    for count, one_by_one in ((1, 1), (3, 3), (4, 4), (5, 0), (6, 0), (exact.CHUNK + 4, 4), (exact.CHUNK + 5, 0)):
        tier2.clear()
        exact.draw(Scaled(Uniform(), 2.0**20), count, Recorded().bits())
        assert len(tier2) == one_by_one


# Tier 2: the uniforms, their precision, and the decisions


def test_a_uniform_in_arb_is_the_interval_that_its_bits_leave_open():
    for word in (0, 1, 2**63, 2**64 - 1):
        (ball,), words = exact._decide_with_enough_bits(lambda bits, w=word: exact._uniforms(streams(w), bits))
        value = word << 64 | Recorded().bits().further(0, 0, 0, 1)
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
        lambda: exact.exact_acceptance(sampler, streams(word, bits=Stuck(word))),
        lambda: exact.exact_floors(Scaled(sampler), streams(word, bits=Stuck(word)), 1.0, [], 0),
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
        source = Recorded().bits()
        (floors,) = exact.draw(Scaled(Uniform(), 2.0**bits), 50, source)
        words = source.words(np.arange(50), 0, 1)[0].tolist()
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
    (floors,) = exact.draw(task, 5, Recorded().bits())
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
    asked, source = [], Crafted()

    def accept_odd(_, streams):
        (stream,) = streams
        asked.append(stream.word)
        stream.known(128)
        return stream.word % 2 == 1

    monkeypatch.setattr(exact, "exact_acceptance", accept_odd)
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
    words, rows = np.arange(len(cases), dtype=np.uint64).reshape(1, -1), np.arange(len(cases)) + 100
    with np.errstate(all="ignore"):
        good = exact._accepted(Scaled(Uniform()), [Ball(mids, rads)], words, rows, 3, source)
    left_open = [i for i, case in enumerate(expected) if case is None]
    assert asked == left_open
    assert source.asked == [(100 + i, 3, 0, 1) for i in left_open]
    assert good.tolist() == [i % 2 == 1 if case is None else case for i, case in enumerate(expected)]


def test_a_rejected_candidate_is_replaced_by_the_first_accepted_attempt_at_its_row():
    sampler = Uniform(acceptance=0.1, margins=lambda u, lift: [u - lift(0.9)])
    bits, rows = Recorded().bits(), np.arange(300)
    (floors,) = exact.draw(Scaled(sampler), 300, bits)
    words = np.array([bits.words(rows, attempt, 1)[0] for attempt in range(200)])
    first = np.argmax(words > np.uint64(int(0.9 * 2**64)), axis=0)
    assert (first > 1).sum() > 200  # most are rejected more than once
    assert floors.tolist() == (words[first, rows] >> np.uint64(24)).tolist()


def test_the_bits_that_decided_an_acceptance_stay_with_their_draw(monkeypatch):
    """Also those of later attempts: with bits drawn anew, a result would not be that of the accepted candidate."""
    decided = {}

    def accept_even_words(sampler, streams):
        (stream,) = streams
        decided.setdefault(stream._address[0], []).append((*stream._address[1:], stream.known(128)[0]))
        return stream.word % 2 == 0

    monkeypatch.setattr(exact, "exact_acceptance", accept_even_words)
    in_doubt = Ball(np.zeros(1), np.ones(1))  # tier 1 never decides
    sampler = Uniform(acceptance=0.5, margins=lambda u, lift: [in_doubt if isinstance(u, Ball) else u])
    monkeypatch.setattr(exact, "FEW_VALUES", 0)
    (floors,) = exact.draw(Scaled(sampler, 2.0**128), 300, Recorded().bits())
    for row, floor in enumerate(floors.tolist()):
        assert [(attempt, place) for attempt, place, _ in decided[row]] == [(i, 0) for i in range(len(decided[row]))]
        *rejected, accepted = [known for *_, known in decided[row]]
        assert floor == accepted
        assert (accepted >> 64) % 2 == 0
        assert all((known >> 64) % 2 for known in rejected)


def test_a_task_must_return_as_many_numbers_as_it_states():
    task = Scaled(Uniform())
    task.outputs = 2
    with pytest.raises(ValueError, match="longer"):
        exact.draw(task, 10, Recorded().bits())


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


def test_a_formula_may_compute_constants_at_another_precision():
    """The estimate of a root computes moments of its noise when it is first needed: within a decision of tier 2."""
    found = []

    def nested():
        found.append(exact.at_precision(64, lambda: (exact.at_precision(200, lambda: ctx.prec), ctx.prec)))

    thread = threading.Thread(target=nested, daemon=True)
    thread.start()
    thread.join(20)
    assert found == [(200, 64)]
