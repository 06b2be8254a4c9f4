"""Errors over many releases: counts in bins, percentiles, and experiments that are reproducible and resumable."""

import numpy as np
import pytest
from scipy import stats

import slowscale as ss
from slowscale.study.experiments import BINS, BINS_PER_DECADE, Experiment, Store, bin_of, percentiles

SUMS = np.array([50.0, 1000.0, 20_000.0])
GROUPS = np.array([0, 1, 1])


def experiment(repetitions=40, mechanism=None, **options):
    return Experiment(mechanism or ss.Gaussian(sigma=10), SUMS, GROUPS, repetitions, **options)


def test_a_percentile_is_within_a_bin_of_the_exact_one():
    errors = np.random.default_rng(1).lognormal(-3, 2, 20_001)
    count = np.bincount(bin_of(errors), minlength=BINS)[None, :]
    found = percentiles(count, (5, 50, 95))[0]
    exact = np.quantile(errors, [0.05, 0.5, 0.95])
    assert np.all(np.abs(np.log10(found / exact)) <= 1.01 / BINS_PER_DECADE)


def test_errors_beyond_the_bins_are_counted_at_the_ends():
    assert bin_of(np.array([0.0, 1e-300, 1e300])).tolist() == [0, 0, BINS - 1]
    assert percentiles(np.bincount([0, 0, 0], minlength=BINS)[None, :], (50,))[0, 0] == 0


def test_a_group_without_cells_has_no_percentile():
    assert np.isnan(percentiles(np.zeros((1, BINS), np.int64))).all()


@pytest.mark.parametrize(("sigma", "agrees"), [(10.0, True), (10.3, False)])
def test_medians_agree_with_the_normal_distribution(sigma, agrees):
    # 200,000 draws: the standard error of the share below the median is 0.0011, so that |share − ½| > 0.0058 has a
    # probability of 2e-7. With sigma = 10.3 the share is about 0.487. The bits are seeded: one outcome for ever.
    count = Experiment(ss.Gaussian(sigma=sigma), np.array([1000.0]), np.array([0]), 200_000).run()
    below = count[0, : bin_of(np.array([10 * stats.norm.ppf(0.75) / 1000]))[0]].sum() / count.sum()
    assert (abs(below - 0.5) < 0.0058) == agrees


def test_every_release_is_counted_in_its_group():
    assert experiment().run().sum(axis=1).tolist() == [40, 80]


def test_an_experiment_is_reproducible_and_depends_on_what_is_released():
    assert (experiment().run() == experiment().run()).all()
    others = [experiment(41), experiment(mechanism=ss.Gaussian(sigma=11)), experiment(protected=SUMS / 2)]
    assert len({experiment().key, *(other.key for other in others)}) == 4


def test_the_last_bits_of_parameters_and_sums_change_nothing():
    """They differ from machine to machine, and everybody gets the same page."""
    other = experiment(mechanism=ss.Gaussian(sigma=np.nextafter(10, 11)), protected=np.nextafter(SUMS, 0))
    assert (experiment().run() == other.run()).all()
    assert experiment().key != other.key


def test_clipping_errors_include_the_bias():
    count = experiment(2000, ss.Gaussian(sigma=0.001), protected=SUMS / 2).run()
    assert np.allclose(percentiles(count, (5, 50, 95)), 0.5, rtol=0.003)


def test_the_grid_is_fine_compared_to_the_noise():
    for mechanism in (ss.Gaussian(sigma=0.01), ss.ExponentialPolylog.calibrate(std=75), ss.Log(sigma=0.5)):
        one = experiment(mechanism=mechanism)
        low, high = mechanism.prediction_interval(50.0, 0.5)
        assert 1e-5 < float(one.unit) / (high - low) < 2e-4


def test_a_finished_experiment_is_read_and_not_run_again(tmp_path, monkeypatch):
    store, one = Store(tmp_path), experiment()
    first = store.counts(one)
    monkeypatch.setattr(Experiment, "run", lambda self: pytest.fail("it was run again"))
    assert (store.counts(experiment()) == first).all()


@pytest.mark.parametrize("damage", [b"", b"garbage", None])
def test_a_damaged_experiment_is_run_again(tmp_path, damage):
    store, one = Store(tmp_path), experiment()
    first = store.counts(one)
    path = store.path(one)
    if damage is None:
        np.savez(path, count=np.zeros((2, 7), np.int64))
    else:
        path.write_bytes(damage)
    assert (store.counts(one) == first).all()


@pytest.mark.parametrize("size", [1e13, 1e17])
def test_sums_beyond_what_floats_count_have_a_coarser_grid(size):
    sums = SUMS * size
    one = Experiment(ss.ExponentialPolylog.calibrate(loss=1000, at=size), sums, GROUPS, 200)
    low, high = one.mechanism.prediction_interval(0.0, 0.5)
    typical = (high - low) / 2 / sums
    expected = [typical[0], float(np.median(typical[1:]))]
    assert percentiles(one.run(), (50,))[0, 0] == pytest.approx(expected[0], rel=0.5)
    assert float(sums.max()) / float(one.unit) <= 2**52
