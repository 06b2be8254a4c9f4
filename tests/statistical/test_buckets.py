"""Noise across buckets, columns and tables of one release is independent, and of the distribution that is stated.

Every test is of one release under a fixed key, so that it passes always or never, as long as bits are made in the same
way. A right key makes any of them fail with probability at most 1e-6, all together.
"""

from itertools import combinations
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from helpers.bitsources import Recorded
from scipy import stats

import slowscale as ss
from slowscale.release.buckets import BUCKET, TableBits

BUCKETS = 40
CELLS = BUCKETS * BUCKET
SIGMA = 1e9  # so many units that rounding to them is not seen
FALSE_ALARM = 1e-6 / 500  # of each of fewer than 500 tests
KEYS = ss.Keys.from_frame({"cell": list(range(CELLS))})
TABLES = ("one", "two")
GAUSSIAN, LAPLACE = ss.Gaussian(sigma=SIGMA), ss.GeneralizedGaussian(sigma=SIGMA, p=1)
CDF = {"x": stats.norm(scale=SIGMA).cdf, "y": stats.norm(scale=SIGMA).cdf, "z": stats.laplace(scale=SIGMA).cdf}


def drawn(changed=()):
    """The uniforms of all noise of a release of two tables with three columns, by table and column."""
    counts = np.zeros(CELLS, np.int64)
    counts[list(changed)] = 1
    data = pa.table(
        {"cell": np.arange(CELLS), **{name: counts if name == "x" else np.zeros(CELLS, int) for name in CDF}}
    )
    table = ss.Sums({"x": GAUSSIAN, "y": GAUSSIAN, "z": LAPLACE}, keys=KEYS)
    release = ss.Session(data, bits=Recorded(5)).release(ss.Request(dict.fromkeys(TABLES, table)))
    return {(name, column): CDF[column](release[name].table[column].to_numpy()) for name in TABLES for column in CDF}


@pytest.fixture(scope="module")
def noise():
    return drawn()


def uniform(numbers):
    return stats.kstest(numbers, "uniform").pvalue


def dependence(one, other):
    """P-values of tests of the independence of uniforms: of their order, their deviations, and a table of eighths."""
    counts = np.histogram2d(one, other, bins=8, range=[[0, 1], [0, 1]])[0]
    return [
        stats.pearsonr(one, other).pvalue,
        stats.pearsonr(np.abs(one - 0.5), np.abs(other - 0.5)).pvalue,
        stats.chisquare(counts.ravel(), np.full(64, len(one) / 64)).pvalue,
    ]


def test_noise_has_its_distribution_in_all_cells_and_beside_the_borders_of_buckets(noise):
    at = np.arange(CELLS) % BUCKET
    for numbers in noise.values():
        assert uniform(numbers) > FALSE_ALARM
        assert uniform(numbers[(at < 100) | (at >= BUCKET - 100)]) > FALSE_ALARM
        assert uniform(numbers[at == 0].tolist() + numbers[at == BUCKET - 1].tolist()) > FALSE_ALARM


def test_the_twin_a_scale_that_is_2_percent_off(noise):
    every = np.concatenate(list(noise.values()))
    assert uniform(every) > FALSE_ALARM
    normal = stats.norm.ppf(np.clip(every, 1e-15, 1 - 1e-15))
    for factor in (0.98, 1.02):
        assert uniform(stats.norm.cdf(factor * normal)) < FALSE_ALARM


def test_columns_and_tables_are_independent(noise):
    for one, other in combinations(noise.values(), 2):
        assert min(dependence(one, other)) > FALSE_ALARM


def test_buckets_and_neighbouring_cells_are_independent(noise):
    for numbers in noise.values():
        assert min(dependence(numbers[:-1], numbers[1:])) > FALSE_ALARM
        for apart in (BUCKET, 2 * BUCKET, BUCKET // 2):
            assert min(dependence(numbers[:-apart], numbers[apart:])) > FALSE_ALARM


def column_without(*left_out):
    """`TableBits.column` of which some of what decides the key is always the same."""
    original = TableBits.column

    def column(self, name, sums):
        with patch("slowscale.release.buckets.ReleaseKey.bucket", bucket(left_out, self.key.__class__.bucket)):
            return original(self, name, sums)

    return column


def bucket(left_out, original):
    return lambda self, *fields: original(self, *("" if i in left_out else field for i, field in enumerate(fields)))


@pytest.mark.parametrize(
    ("left_out", "follow"),
    [
        ((0,), [(("one", "x"), ("two", "x"))]),  # the name of the table
        ((1,), [(("one", "x"), ("one", "y"))]),  # the name of the column
        ((3, 4), []),  # the number and the labels of the bucket
    ],
)
def test_the_twins_keys_that_leave_something_out_repeat_noise(left_out, follow):
    with patch("slowscale.release.buckets.TableBits.column", column_without(*left_out)):
        found = drawn()
    for one, other in follow:
        assert max(dependence(found[one], found[other])) < FALSE_ALARM
    if not follow:
        numbers = found["one", "x"]
        assert max(dependence(numbers[:-BUCKET], numbers[BUCKET:])) < FALSE_ALARM


CHANGED = 3 * BUCKET + 17


def test_after_a_change_the_noise_of_its_bucket_is_independent_of_what_it_was(noise):
    after = drawn([CHANGED])
    at = slice(3 * BUCKET, 4 * BUCKET)
    for table in TABLES:
        one, other = noise[table, "x"], after[table, "x"]
        assert min(dependence(one[at], other[at])) > FALSE_ALARM
        assert uniform(other[at]) > FALSE_ALARM
        assert (np.delete(one, at) == np.delete(other, at)).all()
        for column in "yz":
            assert (noise[table, column] == after[table, column]).all()


def test_the_twin_without_the_digest_of_sums_the_noise_is_the_same():
    """Then the difference of two versions is the record, without any noise."""
    with patch("slowscale.release.buckets._digests_of_sums", lambda sums: [b""] * BUCKETS):
        one, other = drawn()["one", "x"], drawn([CHANGED])["one", "x"]
    at = slice(3 * BUCKET, 4 * BUCKET)
    assert max(dependence(one[at], other[at])) < FALSE_ALARM
    assert np.flatnonzero(one != other).tolist() == [CHANGED]
