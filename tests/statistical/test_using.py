"""What docs/using.md says about estimates, standard errors and intervals holds beyond the draws it shows.

Bits are secret, so a run is a fresh trial. Averages of 10⁵ draws are held to 7 standard errors: 3e-12 by the normal
law, which leaves room for skewness. Where tails are heavy the standard error is the exact one, the draws are symmetric
(for which 2·exp(−7²/2) is a bound), or they are cut. Shares are held to 6 standard errors (2e-9).
"""

import math
from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy import special

import slowscale as ss
from slowscale.release import box

DRAWS = 100_000
# Away from 0 and near it, with little and with much skewness.
TRANSFORMED = [
    pytest.param(ss.Root(k=2, sigma=20), 10_000, id="square root"),
    pytest.param(ss.Root(k=4, sigma=1), 10_000, id="fourth root"),
    pytest.param(ss.Root(k=4, sigma=5), 0, id="fourth root of an empty cell"),
    pytest.param(ss.Log(sigma=0.5), 10_000, id="log"),
]


@cache
def cells(mechanism, q, count=DRAWS):
    """Return a release of so many cells with the same sum."""
    labels = np.arange(count)
    frame = pd.DataFrame({"cell": labels, "x": np.full(count, q)})
    return ss.Session(frame).sum({"x": mechanism}, keys=ss.Keys.from_frame({"cell": labels}))


def column(release, name):
    return release.table[name].to_numpy().astype(float)


def distance(draws, mean, std=None):
    """Return how many standard errors an average is away from a mean; the draws' own, unless their std is known."""
    return abs(draws.mean() - mean) / ((draws.std() if std is None else std) / math.sqrt(draws.size))


def spread_of_variance_estimates(m, q):
    """Return the exact standard deviation of m.variance_estimate when the sum is q, by Gauss-Hermite quadrature."""
    nodes, weights = special.roots_hermitenorm(100)
    found = m.variance_estimate(m.transform(q) + m.sigma * nodes)
    weights = weights / weights.sum()
    return math.sqrt(weights @ (found - weights @ found) ** 2)


@pytest.mark.parametrize(("m", "q"), TRANSFORMED)
def test_variances_are_right_on_average_and_squared_errors_are_not(m, q):
    release = cells(m, q)
    variance = m.variance(q, unit=1)
    spread = spread_of_variance_estimates(m, q)
    assert distance(release.unbiased_variance("x"), variance, spread) < 7
    # The twin: the published standard errors, squared, are too large on average.
    assert distance(column(release, "x_se") ** 2, variance) > 10


@pytest.mark.parametrize(("m", "q"), TRANSFORMED)
def test_a_standard_error_is_as_likely_too_large_as_too_small(m, q):
    release = cells(m, q)
    # Published errors have 4 digits; one that rounds to the true value counts as large enough.
    large = (column(release, "x_se") >= m.std(q) * (1 - 1e-3)).mean()
    assert large > 0.5 - 6 * math.sqrt(0.25 / DRAWS)
    assert (column(release, "x_se") >= m.std(0)).all()


def test_squared_errors_of_a_log_are_too_large_by_a_known_factor():
    sigma, q = 0.5, 10_000
    m = ss.Log(sigma=sigma)
    assert distance(m.release(np.full(DRAWS, q)).se ** 2, m.variance(q) * math.exp(2 * sigma**2)) < 7


def test_weights_from_the_errors_bias_a_mean():
    """With a log, weights 1/se² bring the mean to exp(−2σ²) of what it should be; equal weights do not."""
    sigma, q = 0.5, 10_000
    noisy = ss.Log(sigma=sigma).release(np.full(DRAWS, q))
    assert distance(noisy.value, q) < 7
    weights = noisy.se**-2.0
    limit = (q + 1) * math.exp(-2 * sigma**2) - 1
    # A ratio of means: its error is that of the mean of w·(x − limit), divided by the mean of w.
    assert distance(weights * (noisy.value - limit), 0) < 7
    assert distance(weights * (noisy.value - q), 0) > 50


@pytest.mark.parametrize(
    "m", [ss.Gaussian(sigma=100), ss.ExponentialPolylog.calibrate(std=100)], ids=["Gaussian", "polylog"]
)
def test_clipping_biases_empty_cells(m):
    noisy = m.release(np.zeros(DRAWS, np.int64)).value
    assert distance(noisy, 0) < 7
    # What is cut at 100 as well is less, so its average is a lower bound; and one draw cannot decide it.
    assert distance(noisy.clip(0, 100), 0) > 50


def test_the_correction_for_attenuation():
    """Slopes on noisy regressors tend to the share of the true variance; with the noise's variance taken off, to 1."""
    generator = np.random.default_rng(1)
    true = generator.integers(1_000, 50_000, DRAWS)
    labels = np.arange(DRAWS)
    m = ss.Root(k=4, sigma=1)
    session = ss.Session(pd.DataFrame({"cell": labels, "x": true}))
    release = session.sum({"x": m}, keys=ss.Keys.from_frame({"cell": labels}))
    x, y = column(release, "x"), true.astype(float)
    covariance, variance = np.cov(x, y)[0, 1], x.var()
    noise = release.unbiased_variance("x")
    # covariance − (variance − mean noise) has mean 0: an average of independent terms, up to 1/DRAWS.
    terms = (x - x.mean()) * (y - y.mean()) - (x - x.mean()) ** 2 + noise
    assert distance(terms, 0) < 7
    assert covariance / variance < 0.9


@pytest.mark.parametrize(
    ("m", "q", "later"),
    [
        pytest.param(ss.Root(k=4, sigma=1), 3_000, 3_300, id="fourth root"),
        pytest.param(ss.Log(sigma=0.5), 50, 40, id="log"),
        pytest.param(ss.Gaussian(sigma=30), 100, 150, id="Gaussian, which may cross 0"),
    ],
)
def test_boxes_of_two_releases_hold_growth(m, q, later):
    count = 50_000
    level = (1 + 0.95) / 2
    before, after = (cells(m, value, count).interval("x", level) for value in (q, later))
    low, high = box(after, before)
    assert ((low <= later / q) & (later / q <= high)).mean() > 0.95 - 6 * math.sqrt(0.95 * 0.05 / count)


def test_bonferroni_sums_hold():
    """Sums of ends at the level 1 − 0.05/n hold at 95 %, with skewed noise too."""
    n, q, count = 5, 10_000, 100_000
    low, high = (
        end.reshape(-1, n).sum(axis=1) for end in cells(ss.Log(sigma=1.0), q, count).interval("x", 1 - 0.05 / n)
    )
    assert ((low <= n * q) & (n * q <= high)).mean() > 0.95 - 6 * math.sqrt(0.95 * 0.05 / (count / n))
