"""Parts of the advisor, each by itself and with numbers chosen by hand: reasons, bars, names, steps of a search."""

import math

import numpy as np
import pytest

import slowscale as ss
from slowscale.advice.advising import Advice, Candidate, _errors, _trade
from slowscale.advice.searching import SMALL_LOSS, LeastError, _selection
from slowscale.advice.shapes import Accuracy, Space, half_width

ACCURACY = Accuracy(0.95, None, 20.0)


def candidate(sigma, tight, **changes):
    """A candidate with these tight losses, and errors of which the rare ones are small."""
    given = {"typical": 1.0, "common": 2.0, "rare": 3.0, "std": 1.5, **changes}
    return Candidate(ss.Gaussian(sigma=sigma), tight, tight, **given)


def test_the_reason_names_the_first_candidate_and_what_it_gives_up():
    table = [candidate(10, (0.1, 4.0), regret=2.0), candidate(20, (0.05, 9.0)), candidate(30, (0.4, 3.0))]
    text = _trade(table, ["median", "largest"], ACCURACY)
    assert text.startswith("Recommended: Gaussian(sigma=10). At no size does another candidate lose less by more than")
    assert "a factor of 2," in text
    assert (
        "The trade: at median, Gaussian(sigma=20) loses least, 0.05 instead of 0.1, but at largest it loses 9" in text
    )
    assert "The trade: at largest, Gaussian(sigma=30) loses least, 3 instead of 4, but at median it loses 0.4" in text


def test_the_reason_for_a_single_size_and_for_losses_next_to_nothing():
    alone = _trade([candidate(10, (0.1,))], ["largest"], ACCURACY)
    assert alone.startswith("Recommended: Gaussian(sigma=10). Half of the results are within ±1 of")
    small = [candidate(10, (SMALL_LOSS / 9, SMALL_LOSS / 3)), candidate(20, (SMALL_LOSS / 8, SMALL_LOSS / 4))]
    text = _trade(small, ["median", "largest"], ACCURACY)
    assert text.count("The trade: ") == text.count("The trade: at largest, ") == 1


@pytest.mark.parametrize(
    ("rare", "std", "mentioned"), [(35.0, 1.0, False), (37.0, 1.0, True), (3.0, 35.0, False), (3.0, 37.0, True)]
)
def test_rare_errors_are_mentioned_from_nine_tenths_of_their_limit(rare, std, mentioned):
    """The limit is 20 times the half-width at 95 %, so 40."""
    text = _errors(candidate(10, (0.1,), rare=rare, std=std), ACCURACY)
    assert ("Rare errors are as large as rare=20 allows" in text) == mentioned


def test_bars_show_the_recommended_mechanism():
    rows = (candidate(10, (0.02, 4.0)), candidate(20, (0.05, 9.0)))
    lines = Advice({"median": 5.0, "largest": 1e4}, rows, "", "").bars().splitlines()
    assert [(line.split()[0], line.split()[-1]) for line in lines] == [("median", "0.02"), ("largest", "4")]
    assert lines[0].count("█") < lines[1].count("█")


def test_the_name_has_an_offset_that_is_not_the_usual_one():
    usual, other = (Candidate.of(ss.ExponentialPolylog(d=0.5, a=a), [1.0], None).name for a in (None, 50.0))
    assert usual == "ExponentialPolylog(d=0.5, sigma=1, p=2)"
    assert other == "ExponentialPolylog(d=0.5, sigma=1, a=50, p=2)"


def test_neighbours_are_on_both_sides_within_the_axes():
    space = Space("two axes", lambda *_: None, ((1.0, 4.0, 16.0), (1.0, 100.0)))
    assert set(space.neighbours((4.0, 10.0), 0.5)) == {
        (x, y) for x in (2.0, 4.0, 8.0) for y in (1.0, 10.0, 100.0) if (x, y) != (4.0, 10.0)
    }
    assert set(space.neighbours((16.0, 100.0), 0.5)) == {(8.0, 100.0), (16.0, 10.0), (8.0, 10.0)}


def test_errors_are_those_of_the_mechanism():
    gaussian, root = ss.Gaussian(sigma=3), ss.Root(k=2, sigma=1)
    assert half_width(gaussian, 0.95, None) == pytest.approx(3 * 1.959964, rel=1e-6)
    assert half_width(gaussian, 0.95, 1e6) == half_width(gaussian, 0.95, None)
    low, high = root.prediction_interval(100.0, 0.95)
    assert half_width(root, 0.95, 100.0) == max(100 - low, high - 100)
    for at in (None, 100.0):
        assert Accuracy(None, at, 20.0).of(gaussian) == 3
    assert Accuracy(None, 100.0, 20.0).of(root) == root.std(100.0) > 1.5 * root.std(0.0)
    assert math.isclose(Accuracy(0.95, 100.0, 20.0).of(root), half_width(root, 0.95, 100.0))


def test_a_promise_never_grows_faster_than_before():
    """The third loss would allow a steep rise, which no noise can promise: it goes on with the slope before."""
    search = LeastError(np.array([1.0, 10.0, 100.0]), ACCURACY, np.array([0.01, 0.02, 5.0]))
    shape, error = search._promise()
    assert shape is not None
    (_, promise), *_ = shape.parameters
    sizes, losses = np.log(np.array(promise.points)).T
    slopes = np.diff(losses) / np.diff(sizes)
    assert slopes[1] == pytest.approx(slopes[0], rel=1e-9)
    assert search._excess(shape, error) == pytest.approx(0, abs=1e-3)


def test_the_recommended_the_best_at_each_size_and_the_best_of_each_family_are_shown():
    losses = np.array([[1.0, 1.0], [0.5, 3.0], [2.0, 2.0], [5.0, 5.0]])
    assert _selection(["a", "a", "b", "b"], losses) == [0, 1, 2]
    assert _selection(["a", "a", "b", "b"], losses[::-1]) == [3, 2, 1]
