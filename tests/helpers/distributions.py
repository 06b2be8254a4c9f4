"""Distribution tests with a fixed false-alarm rate.

Every test of tests/statistical rejects a right sampler with probability at most FALSE_ALARM; there are fewer than 400
of them, so that a whole run raises a false alarm less than once in a million. Each has a twin: the same draws held
against a scale that is 2 % off, in both directions, must be rejected.
"""

import numpy as np
from scipy import special, stats

FALSE_ALARM = 2e-9
# A chi-square statistic of 40 bins that is noncentral by this much stays below what rejects, 118, once in 10¹⁴ runs.
NONCENTRAL = 300
BINS = 40


def chi_square_p(draws, edges, cdf):
    """p-value of whole-number draws against P(N <= n) = cdf(n), in the bins between the edges."""
    edges = np.unique(edges)
    below = np.searchsorted(np.sort(draws), edges, side="right")
    observed = np.diff(np.concatenate([[0], below, [draws.size]]))
    probabilities = np.diff(np.concatenate([[0.0], cdf(edges), [1.0]]))
    keep = probabilities * draws.size > 25  # bins too thin for the chi-square law are joined
    observed = np.append(observed[keep], observed[~keep].sum())
    expected = np.append(probabilities[keep], probabilities[~keep].sum()) * draws.size
    real = expected > 0
    if observed[~real].sum():  # a draw fell where none can
        return 0.0
    statistic = ((observed[real] - expected[real]) ** 2 / expected[real]).sum()
    return float(special.chdtrc(max(real.sum() - 1, 1), statistic))


def kolmogorov_p(draws, edges, cdf):
    """p-value of the largest difference of the distribution functions at the edges (conservative)."""
    edges = np.unique(edges)
    empirical = np.searchsorted(np.sort(draws), edges, side="right") / draws.size
    return float(stats.kstwobign.sf(np.abs(empirical - cdf(edges)).max() * np.sqrt(draws.size)))


def smallest_p(draws, cdf, bins=BINS):
    """Return the smaller p-value of both tests, doubled."""
    edges = np.unique(np.quantile(draws[: draws.size // 100], np.linspace(0.005, 0.995, bins)).round())
    return 2 * min(chi_square_p(draws, edges, cdf), kolmogorov_p(draws, edges, cdf))


def draws_for_twins(ppf, cdf, twins):
    """Return how many whole-number draws with this quantile function and cdf reject every twin's cdf."""
    edges = np.unique(np.round(ppf(np.linspace(0.005, 0.995, BINS))))

    def masses(cdf):
        return np.diff(np.concatenate([[0.0], cdf(edges), [1.0]]))

    right = masses(cdf)
    distance = min(((right - wrong) ** 2 / wrong).sum() for wrong in map(masses, twins))
    return int(np.ceil(NONCENTRAL / distance))
