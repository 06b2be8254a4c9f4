"""Envelopes of densities with known tails: the tails touch the density, lie above it, and have the right shares."""

import itertools
import math
from fractions import Fraction

import pytest
from helpers.errors import refused

from slowscale.core.errors import SlowscaleError
from slowscale.sampling.samplers import Envelope, _shares, _where_dropped, build_envelope


class TwoSided:
    """The density that falls exponentially from its mode, with one rate on each side. Remembers where it was asked."""

    def __init__(self, mode, left, right):
        self.mode, self.left, self.right = mode, left, right
        self.asked = []

    def drop(self, x):
        self.asked.append(x)
        return (self.mode - x) * self.left if x < self.mode else (x - self.mode) * self.right

    def slope(self, x):
        return self.left if x < self.mode else -self.right

    @property
    def mass(self):
        return (1 - math.exp(-self.left * self.mode)) / self.left + 1 / self.right

    def envelope(self):
        return build_envelope(self.drop, self.slope, self.mode, self.mass)


class Gamma:
    """The density x^mode·e^−x, scaled to be 1 at its mode."""

    def __init__(self, mode):
        self.mode = mode

    def drop(self, x):
        return x - self.mode - self.mode * math.log(x / self.mode) if x > 0 else math.inf

    def slope(self, x):
        return self.mode / x - 1

    @property
    def mass(self):
        return math.exp(math.lgamma(self.mode + 1) + self.mode - self.mode * math.log(self.mode))

    def envelope(self):
        return build_envelope(self.drop, self.slope, self.mode, self.mass)


@pytest.mark.parametrize("mode", [0.5, 3.0, 50.0, 1e4])
def test_both_tails_touch_the_density_where_it_has_dropped_by_one(mode):
    density = Gamma(mode)
    e = density.envelope()
    assert 0 < e.left < mode < e.right
    wide = math.sqrt(mode) + 1
    for end, rate, sign in ((e.left, e.left_rate, -1), (e.right, e.right_rate, 1)):
        points = [end + sign * wide * k / 20_000 for k in range(40_000)]
        gaps = {x: density.drop(x) - rate * abs(x - end) for x in points if x > 0}
        nearest = min(gaps, key=gaps.get)
        assert -1e-12 < gaps[nearest] < 1e-6
        assert density.drop(nearest) == pytest.approx(1, abs=0.01)


def test_tails_are_slightly_flatter_than_the_density_where_it_is_exponential():
    """A tail that is steeper by a rounding error would fall below the density far out."""
    for mode, left, right in ((10.0, 5.0, 2.0), (1.0, 1.5, 1.0), (0.5, 50.0, 7.0), (1e6, 1e-3, 1e-5)):
        e = TwoSided(mode, left, right).envelope()
        assert 1 - 2e-9 < e.left_rate / left < 1
        assert 1 - 2e-9 < e.right_rate / right < 1
        assert e.left == pytest.approx(mode, rel=1e-8, abs=0)
        assert e.right == pytest.approx(mode, rel=1e-8, abs=0)
        assert e.right >= e.left


def test_a_density_that_has_not_fallen_by_more_than_one_at_zero_gets_no_left_tail():
    for left, has_tail in ((0.2, False), (0.9, False), (1.0, False), (1.01, True), (1.5, True), (2.5, True)):
        e = TwoSided(1.0, left, 1.0).envelope()
        assert (e.left_rate > 0) is (e.left > 0) is has_tail
        assert (e.probabilities[0] > 0) is has_tail


def test_a_density_that_falls_from_zero_on_gets_no_left_tail():
    e = TwoSided(0.0, 1.0, 3.0).envelope()
    assert (e.left, e.left_rate, e.right, e.probabilities[0]) == (0, 0, 0, 0)


@pytest.mark.parametrize(("mode", "right"), [(1.0, 2.0), (1.0, 0.5), (3.0, 1.0), (1e-3, 1.0)])
def test_a_left_tail_is_left_out_if_its_mass_is_negligible(mode, right):
    """It is negligible up to 2^-30 of the mass of the other pieces."""
    others = mode + 1 / right
    for share, has_tail in ((1.05, True), (0.95, False), (100.0, True), (0.01, False)):
        e = TwoSided(mode, 1 / (share * 2.0**-30 * others), right).envelope()
        assert (e.left_rate > 0) is has_tail
        assert e.right > 0


def test_a_left_tail_of_exactly_the_negligible_mass_is_left_out():
    checked = 0
    for k in range(40):
        mode, right = 1.0 + k / 64, 2.0
        plain = TwoSided(mode, 1.0, right).envelope()  # the right tail does not depend on the left one
        limit = 2.0**-30 * (min(plain.right, mode) + 1 / plain.right_rate)
        left = 1 / limit / (1 - 1e-9)
        for _ in range(4):
            left = math.nextafter(left, 0)
        for _ in range(8):
            left = math.nextafter(left, math.inf)
            density = TwoSided(mode, left, right)
            without = TwoSided(mode, 2 * left, right).envelope()
            if 1 / (left * (1 - 1e-9)) == 2.0**-30 * (without.right + 1 / without.right_rate):
                checked += 1
                assert density.envelope().left_rate == 0
    assert checked > 0


@pytest.mark.parametrize("density", [Gamma(3.0), Gamma(50.0), TwoSided(1.0, 2.0, 0.5)], ids=["3", "50", "two-sided"])
def test_the_proposal_is_the_same_multiple_of_the_envelope_in_all_pieces(density):
    """The pieces have shares in proportion to their areas; the acceptance rate is that of the areas."""
    e = density.envelope()
    areas = (1 / e.left_rate, e.right - e.left, 1 / e.right_rate)
    for area, p in zip(areas, e.probabilities, strict=True):
        assert p == pytest.approx(area / sum(areas), abs=2e-16)
        if area > 1e-3:
            assert e.height - math.log(area / p) == pytest.approx(2e-7, abs=1e-12)
    assert e.acceptance == pytest.approx(density.mass / sum(areas), rel=1e-12)
    assert Envelope.SLACK == 1e-7


# Shares


@pytest.mark.parametrize(
    "masses", [(1.0, 2.0, 5.0), (0.0, 1.0, 3.0), (0.0, 0.0, 0.7), (1 / 3, 0.0, 1e-5), (1e-3, 1e3, 1e-3)]
)
def test_shares_are_proportional_multiples_of_two_to_the_minus_53(masses):
    shares = [Fraction(share) for share in _shares(masses)]
    assert sum(shares) == 1
    for share, mass in zip(shares, masses, strict=True):
        assert (share * 2**53).denominator == 1
        assert abs(share - Fraction(mass) / sum(map(Fraction, masses))) <= Fraction(2, 2**53)
        assert (share == 0) is (mass == 0)


def test_a_tiny_mass_gets_the_smallest_share():
    assert _shares((1e-300, 1.0, 1e-30)) == (2.0**-53, 1 - 2.0**-52, 2.0**-53)


@pytest.mark.parametrize("masses", [*itertools.permutations((-1.0, 1.0, 3.0)), (-1e-30, 0.0, 1.0), (-0.5, 1e-300, 1.0)])
def test_shares_of_impossible_masses_are_refused(masses):
    with refused(SlowscaleError, code="internal"):
        _shares(masses)


# The point where the density has dropped


@pytest.mark.parametrize("rate", [1e-12, 1e-3, 0.3, 1.0, 7.0, 1e6, 1e17])
def test_the_point_to_the_right_where_the_density_has_dropped_by_one(rate):
    density = TwoSided(0.0, 1.0, rate)
    assert _where_dropped(density.drop, 0.0, math.inf) == pytest.approx(1 / rate, rel=1e-8, abs=0)
    assert min(density.asked) > 0


@pytest.mark.parametrize("mode", [1.0, 0.25, 40.0, 1e5])
@pytest.mark.parametrize("at", [0.05, 0.5, 0.952, 0.9999])  # the distance of the point, as a share of the mode
def test_the_point_to_the_left_where_the_density_has_dropped_by_one(mode, at):
    density = TwoSided(mode, 1 / (at * mode), 1.0)
    assert _where_dropped(density.drop, mode, -mode) == pytest.approx(mode * (1 - at), rel=1e-8, abs=0)
    assert 0 <= min(density.asked) <= max(density.asked) < mode


def test_the_point_is_found_however_steep_the_density_is():
    for rate in (1e10, 1e12):
        density = TwoSided(1.0, rate, rate)
        for room in (-1.0, math.inf):
            point = _where_dropped(density.drop, 1.0, room)
            assert density.drop(point) == pytest.approx(1, abs=1e-3)
            assert (point - 1) * room > 0


@pytest.mark.parametrize("length", [1.0, 1 / 3, 1e-9 * 2**10, 1e-9 * 2**30])
def test_the_point_is_the_last_one_before_the_density_has_dropped_by_one(length):
    """Also if the drop is exactly 1 at one of the points that the search tries first, 1e-9 times a power of two."""

    def drop(x):
        return x / length

    point = _where_dropped(drop, 0.0, math.inf)
    assert drop(point) < 1 <= drop(math.nextafter(point, math.inf))


@pytest.mark.parametrize("mode", [1.0, 1e10, 1e300])
def test_the_search_is_short_at_any_scale(mode):
    density = TwoSided(mode, 3 / mode, 3 / mode)
    for room in (-mode, math.inf):
        density.asked.clear()
        _where_dropped(density.drop, mode, room)
        assert len(density.asked) < 100
