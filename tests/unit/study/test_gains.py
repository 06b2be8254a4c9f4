"""Mechanisms at the same loss of the largest record, and clipping with hindsight."""

import numpy as np
import pytest

import slowscale as ss
from slowscale.study.attributes import Attribute
from slowscale.study.experiments import (
    AS_ACCURATE,
    CLIPPED,
    LOG_LAPLACE,
    MATCHED,
    ROOT_LAPLACE,
    TIGHT_POLYLOG,
    Gains,
    best_threshold,
    clipped,
    contenders,
    experiments_by_size,
    gain_experiments,
    percentiles,
    size_classes,
    with_two_losses,
)


@pytest.fixture(scope="module")
def attribute():
    generator = np.random.default_rng(3)
    values = np.rint(np.exp(generator.normal(4, 2, 2000))) + 1
    return Attribute("x", "", "given", values, np.arange(0, 2000, 20))


@pytest.mark.parametrize("loss", [1.0, 50.0])
def test_the_largest_record_has_the_same_loss_under_all(attribute, loss):
    found = {one.name: one for one in contenders(attribute, loss)}
    for name, one in found.items():
        if name not in (TIGHT_POLYLOG, CLIPPED, AS_ACCURATE):
            assert one.mechanism.policy(attribute.largest) == pytest.approx(loss, rel=1e-9), name
            assert one.protected is attribute.sums
            assert one.total_bias == 0 or name == LOG_LAPLACE  # where no unbiased estimator has a variance
            assert one.median_loss == one.mechanism.policy(attribute.median)
    assert 0.98 * loss < found[TIGHT_POLYLOG].largest_loss <= loss
    assert found[CLIPPED].largest_loss == pytest.approx(loss)
    for name in (ROOT_LAPLACE, LOG_LAPLACE):
        assert found[name].median_loss == pytest.approx(found[TIGHT_POLYLOG].median_loss, rel=0.01)
    halves = [found[name].mechanism.prediction_interval(0.0, 0.5)[1] for name in (TIGHT_POLYLOG, AS_ACCURATE)]
    assert halves[1] == pytest.approx(halves[0], rel=1e-6)


def test_losses_of_contenders(attribute):
    found = {one.name: one for one in contenders(attribute, 10)}
    clipping, size = found[CLIPPED], attribute.largest
    assert clipping.threshold < size / 1.1
    assert clipping.band_loss(size) == 0  # both values are clipped
    half = clipping.threshold / 2
    assert clipping.band_loss(half) == pytest.approx(clipping.mechanism.policy(0.1 * half))
    assert clipping.band_loss(clipping.threshold) == pytest.approx(
        clipping.mechanism.policy(clipping.threshold * (1 - 1 / 1.1))
    )
    assert found[TIGHT_POLYLOG].band_loss(size) == pytest.approx(found[TIGHT_POLYLOG].mechanism.tight_loss(0.1 * size))
    assert found[MATCHED].band_loss(size) == pytest.approx(found[MATCHED].mechanism.policy(0.1 * size))
    for name in (MATCHED, LOG_LAPLACE, CLIPPED):
        losses = np.array([found[name].loss(x) for x in attribute.values])
        assert found[name].share_at_most_one == np.mean(losses <= 1 + 1e-9)


def test_an_offset_that_no_loss_needs_is_the_nearest():
    root = with_two_losses(ss.Root, 10.0, 1e6, 9.9, 10.0, k=4)  # too much for a record of 10
    assert root.policy(1e6) == pytest.approx(10)
    assert root.a < 1


@pytest.mark.parametrize(("tight", "words"), [(2, "does not pay"), (0.5, "pays in every"), ([0.5, 2], "1 of 2 size")])
def test_whether_slow_scaling_pays(tight, words):
    classes, _ = size_classes(np.array([5.0, 50.0, 60.0]))
    medians = {
        TIGHT_POLYLOG: np.broadcast_to(tight, 2),
        "Gaussian": np.array([3.0, 1.0]),
        CLIPPED: np.array([1.0, 3.0]),
    }
    verdict = Gains(1.0, classes, [], medians, np.ones(2)).verdict
    assert words in verdict
    assert ("which have 1 of 3 cells" in verdict) == isinstance(tight, list)


def test_noise_that_floats_cannot_hold_is_drawn_less_often(attribute):
    found = gain_experiments(attribute, contenders(attribute, 0.1), 1000)
    assert found["Gaussian"].repetitions == 1000
    assert found[MATCHED].repetitions == 50


def test_the_matched_polylog_has_the_median_as_its_scale(attribute):
    [one] = [one for one in contenders(attribute, 10) if one.name == MATCHED]
    assert one.mechanism.sigma == attribute.median


def test_clipping_has_the_loss_at_its_threshold_and_the_smallest_error_of_all_thresholds(attribute):
    one = clipped(attribute, 10)
    threshold = one.mechanism.sigma * np.sqrt(20)
    assert one.protected == pytest.approx(attribute.clipped_sums(threshold))
    assert one.total_bias == pytest.approx(one.protected.sum() / attribute.sums.sum() - 1)
    assert -0.9 < one.total_bias < 0

    def error(threshold):
        noise = threshold / np.sqrt(20) * np.random.default_rng(5).normal(size=(100, 400))
        sums = attribute.clipped_sums(threshold)
        return np.median(np.abs(sums[:, None] + noise - attribute.sums[:, None]) / attribute.sums[:, None])

    others = [error(threshold * factor) for factor in (1 / 8, 8)]
    assert error(threshold) < min(others)


def test_a_threshold_for_each_size_is_at_least_as_good_as_one_for_all(attribute):
    one = clipped(attribute, 10)
    [experiment] = [x for name, x in gain_experiments(attribute, [one], 300).items()]
    single = percentiles(experiment.run(), (50,))[:, 0]
    by_size = [percentiles(each.run(), (50,))[0, 0] for each in experiments_by_size(attribute, 10, 300)]
    assert np.all(by_size < 1.15 * single)  # 15 %: the errors are measured with 300 releases


def test_thresholds_below_one_are_found():
    values = np.concatenate([np.full(500, 1e-6), [1e-2]])
    attribute = Attribute("x", "", "given", values, np.arange(0, 500, 10))
    assert best_threshold(attribute, 10, np.arange(len(attribute.sums))) < 1e-4


def test_size_classes_are_powers_of_ten():
    classes, numbers = size_classes(np.array([1.0, 9.99, 10, 5e6, 2e7, 3e7]))
    assert [(one.label, one.cells) for one in classes] == [
        ("1 to 10", 2),
        ("10 to 100", 1),
        ("1 million to 10 million", 1),
        ("10 million to 100 million", 2),
    ]
    assert numbers.tolist() == [0, 0, 1, 2, 3, 3]


def test_cells_with_the_sum_zero_are_not_measured():
    values = np.array([0.0, 0, 3, 5, 7, 9, 11])
    attribute = Attribute("x", "", "given", values, np.array([0, 2, 3, 4, 5]))
    experiments = gain_experiments(attribute, contenders(attribute, 1), 10)
    assert all(one.sums.tolist() == [3, 5, 7, 20] for one in experiments.values())
    assert len(experiments[CLIPPED].protected) == 4
    assert isinstance(experiments["Gaussian"].mechanism, ss.Gaussian)
