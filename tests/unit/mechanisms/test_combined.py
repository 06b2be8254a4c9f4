"""Combined estimates against dense algebra, brute force and simulation."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

import slowscale as ss
from slowscale.mechanisms.combined import (
    LEAST_SQUARES,
    LIKELIHOOD,
    CombinedEstimate,
    DrawnMargin,
    DrawnNumbers,
    half_widths,
    sums_matrix,
    whole_corrections,
)
from slowscale.sampling import KnownBits

POLYLOG = DrawnNumbers(ss.ExponentialPolylog(d=0.238), Fraction(1), True)
NORMAL = DrawnNumbers(ss.Gaussian(20), Fraction(1), True)
STATES, INDUSTRIES = 6, 4
CELLS = STATES * INDUSTRIES
BY_STATE, BY_INDUSTRY = np.repeat(np.arange(STATES), INDUSTRIES), np.tile(np.arange(INDUSTRIES), STATES)


def estimate(cells, margins, method=LEAST_SQUARES):
    drawn = [
        DrawnMargin(BY_STATE, STATES, margins),
        DrawnMargin(BY_INDUSTRY, INDUSTRIES, margins),
        DrawnMargin(np.zeros(CELLS, int), 1, margins),
    ]
    return CombinedEstimate(cells, drawn, method)


@pytest.mark.parametrize("cells", [POLYLOG, NORMAL])
@pytest.mark.parametrize("margins", [POLYLOG, NORMAL])
def test_least_squares_solves_the_normal_equations(cells, margins):
    found = estimate(cells, margins)
    gaps = np.random.default_rng(1).normal(size=(STATES + INDUSTRIES + 1, 2)) * 100
    matrix = found.sums.toarray()
    left = np.eye(CELLS) / cells.variance + matrix.T @ matrix / margins.variance
    expected = np.linalg.solve(left, matrix.T @ gaps / margins.variance)
    np.testing.assert_allclose(found.corrections(gaps), expected, rtol=1e-9)
    covariance = np.linalg.inv(left)
    np.testing.assert_allclose(found.standard_errors(), np.sqrt(np.diag(covariance)), rtol=1e-9)
    np.testing.assert_allclose(
        found.standard_errors(matrix), np.sqrt(np.diag(matrix @ covariance @ matrix.T)), rtol=1e-9
    )


def test_variance_of_a_number_is_that_of_what_is_published():
    assert NORMAL.variance == pytest.approx(ss.Gaussian(20).variance(0, unit=1))
    coarse = DrawnNumbers(ss.Gaussian(20), Fraction(10), True)
    assert coarse.variance == pytest.approx(ss.Gaussian(20).variance(0, unit=10) / 100)


@pytest.mark.parametrize("method", [LEAST_SQUARES, LIKELIHOOD])
def test_corrections_are_odd(method):
    # so that the estimate of any symmetric noise is unbiased
    found = estimate(POLYLOG, NORMAL, method)
    gaps = np.random.default_rng(2).standard_t(2, size=(STATES + INDUSTRIES + 1, 3)) * 50
    np.testing.assert_allclose(found.corrections(-gaps), -found.corrections(gaps), rtol=1e-9, atol=1e-9)


def test_likelihood_of_normal_noise_is_least_squares():
    gaps = np.random.default_rng(3).normal(size=(STATES + INDUSTRIES + 1, 2)) * 50
    expected = estimate(NORMAL, NORMAL).corrections(gaps)
    np.testing.assert_allclose(estimate(NORMAL, NORMAL, LIKELIHOOD).corrections(gaps), expected, rtol=1e-6)


def test_likelihood_is_at_a_local_maximum():
    found = estimate(POLYLOG, POLYLOG, LIKELIHOOD)
    generator = np.random.default_rng(4)
    noise = POLYLOG.mechanism.noise
    size = 0.1 * noise.ppf(0.75)
    for _ in range(5):
        errors = noise.ppf(generator.random(CELLS + STATES + INDUSTRIES + 1))
        gaps = errors[CELLS:] - found.sums @ errors[:CELLS]

        def cost(added, gaps=gaps):
            return noise._drop(np.abs(np.concatenate([added, gaps - found.sums @ added]))).sum()

        best = found.corrections(gaps[:, None])[:, 0]
        least = cost(estimate(POLYLOG, POLYLOG).corrections(gaps[:, None])[:, 0])
        assert cost(best) < least
        # The density has a peak at 0, so that small moves change the cost in proportion: steps of the smoothing's size
        # may lower it a little, steps of a tenth of the quartile must not.
        for cell in range(CELLS):
            for other in range(CELLS):
                step = np.zeros(CELLS)
                step[cell] += size
                step[other] -= size
                if cell != other:
                    assert cost(best + step) > cost(best) - 0.02


def test_likelihood_attributes_a_gap_to_one_number():
    found = estimate(POLYLOG, POLYLOG, LIKELIHOOD)
    errors = np.zeros(CELLS)
    errors[5] = 500.0
    gaps = -(found.sums @ errors)
    added = found.corrections(gaps[:, None])[:, 0]
    assert added[5] == pytest.approx(-500, abs=1)
    assert np.abs(np.delete(added, 5)).max() < 1
    spread = estimate(POLYLOG, POLYLOG).corrections(gaps[:, None])[:, 0]
    assert np.abs(np.delete(spread, 5)).max() > 20


def test_sums_of_neighbours_change_by_less_than_a_unit():
    corrections = np.random.default_rng(5).normal(size=(1000, 3)) * 3
    whole = whole_corrections(corrections)
    assert (whole == np.rint(whole)).all()
    gone = np.concatenate([np.zeros((1, 3)), np.cumsum(whole - corrections, axis=0)])
    assert np.abs(gone).max() <= 0.5
    assert (gone.max(axis=0) - gone.min(axis=0) <= 1).all()


@pytest.mark.parametrize("method", [LEAST_SQUARES, LIKELIHOOD])
def test_intervals_hold_simulated_errors_at_their_rank(method):
    found = estimate(POLYLOG, NORMAL, method)
    cells = sparse.eye_array(CELLS, format="csr")
    total = sums_matrix(np.zeros(CELLS, int), 1)
    (of_cells, of_total), (rms, _) = half_widths(found, [cells, total], 0.8, 19, seed=7)
    errors = np.concatenate(list(found.simulated_errors(19, seed=7)), axis=1)
    # Errors are whole units, so that several may be equal.
    for sizes, ends in ((np.abs(errors), of_cells[:, None]), (np.abs(errors.sum(axis=0))[None], of_total[:, None])):
        assert ((sizes <= ends).sum(axis=1) >= 16).all()
        assert ((sizes < ends).sum(axis=1) < 16).all()
    np.testing.assert_allclose(rms, np.sqrt((errors**2).mean(axis=1)))


def test_too_few_simulations_are_refused():
    with pytest.raises(ss.ParameterError, match="simulations must be at least 19 "):
        half_widths(estimate(NORMAL, NORMAL), [], 0.95, 18, seed=1)
    with pytest.raises(ss.ParameterError, match='method must be "least squares" or "likelihood", got \'mean\''):
        estimate(NORMAL, NORMAL, "mean")


@pytest.mark.parametrize("scale", [1, 1.05])
def test_simulated_errors_have_the_distribution_of_published_ones(scale):
    # The share of 400,000 errors within an interval has a standard deviation below 0.0008, so that 6 of them are
    # exceeded with a probability below 1e-8. Noise that is 5 % larger must be noticed.
    for numbers, level in ((POLYLOG, 0.6), (DrawnNumbers(ss.Gaussian(2), Fraction(1, 8), False), 0.7)):
        errors = scale * numbers.simulated((400, 1000), KnownBits(1)).ravel() * float(numbers.unit)
        ends = numbers.mechanism.noise.interval(level)
        # On the grid, errors are whole units: the interval ends between two of them.
        end = np.floor(ends[1]) + 0.5 if numbers.on_grid else ends[1]
        expected = 2 * numbers.mechanism.noise.cdf(end) - 1
        same = abs((np.abs(errors) < end).mean() - expected) < 0.0048
        assert same == (scale == 1)


def test_least_squares_makes_the_median_cell_worse_if_tails_are_heavy():
    # The table in docs/table-sets.md: 50 states with 20 industries.
    states, industries = 50, 20
    cells = states * industries
    numbers = DrawnNumbers(ss.ExponentialPolylog(d=0.23783644562980624), Fraction(1), True)
    margins = [
        DrawnMargin(np.repeat(np.arange(states), industries), states, numbers),
        DrawnMargin(np.tile(np.arange(industries), states), industries, numbers),
        DrawnMargin(np.zeros(cells, int), 1, numbers),
    ]
    drawn = numbers.simulated((cells, 400), KnownBits(5))
    errors = np.concatenate(list(CombinedEstimate(numbers, margins).simulated_errors(400, 7)), axis=1)
    assert [np.median(np.abs(some)) for some in (drawn, margins[0].sums @ drawn, errors)] == [10, 143, 16]
    assert [round(np.sqrt((some**2).mean())) for some in (drawn, errors)] == [72, 69]
    assert np.median(np.abs(margins[0].sums @ errors)) == 16
    few = np.concatenate(list(CombinedEstimate(numbers, margins, LIKELIHOOD).simulated_errors(4, 7)), axis=1)
    assert np.median(np.abs(few)) == pytest.approx(11, abs=1)
