"""A curve has the statistics of its summary, computed from all ranks or from a sample of them."""

import numpy as np
import pytest

from slowscale.datasets import curves
from slowscale.datasets.business_patterns import SUMMARIES
from slowscale.datasets.cattle_survey import CATTLE
from slowscale.datasets.curves import Curve, mean_of_all, places, sampled_mean, split

ALL = {**SUMMARIES, "cattle": CATTLE}


@pytest.mark.parametrize("records", [1, 2, 3, 10, 49, 1_000, 323_402])
def test_places_are_those_of_linspace(records):
    assert np.array_equal(places(np.arange(records), records), np.linspace(0, 1, records))
    assert np.array_equal(places(np.arange(0, records, 3), records), np.linspace(0, 1, records)[::3])


@pytest.mark.parametrize("name", ALL)
def test_the_sampled_mean_is_the_mean(name):
    exact, sampled = (mean(ALL[name], 2_100_007) for mean in (mean_of_all, sampled_mean))
    for bend in (0.2, 0.6, 1, 3):
        assert sampled(bend) == pytest.approx(exact(bend), rel=1e-5)


def test_a_mean_without_the_largest_ranks_would_be_wrong(monkeypatch):
    monkeypatch.setattr(curves, "SAMPLED_RANKS", 16)
    exact, sampled = (mean(SUMMARIES["payann"], 2_100_007) for mean in (mean_of_all, sampled_mean))
    assert sampled(0.6) != pytest.approx(exact(0.6), rel=1e-3)


@pytest.mark.parametrize("name", ALL)
def test_the_fit_from_a_sample_has_the_mean(name, monkeypatch):
    monkeypatch.setattr(curves, "ALL_RANKS", 0)
    curve = Curve.fit(ALL[name], 1_500_000)
    assert curve(np.arange(1_500_000)).mean() == pytest.approx(ALL[name].mean, rel=1e-5)
    assert curve.bend != Curve.fit(ALL[name], 1_500_000, all_ranks=True).bend


def test_a_curve_ascends_and_may_be_evaluated_in_parts():
    curve = Curve.fit(CATTLE, 5_926)
    values = curve(np.arange(5_926))
    assert (np.diff(values) >= 0).all()
    assert np.array_equal(curve(np.arange(2, 5_926, 5)), values[2::5])


def test_too_few_records_for_the_mean_keep_the_quartiles_and_the_largest():
    values = Curve.fit(SUMMARIES["payann"], 1_001)(np.arange(1_001))
    assert values.mean() > 2 * SUMMARIES["payann"].mean
    assert tuple(np.quantile(values, [0.25, 0.5, 0.75])) == SUMMARIES["payann"].quartiles
    assert values.max() == SUMMARIES["payann"].largest


def test_splits_add_up():
    assert split(10, np.array([1.0, 3.0])).tolist() == [3, 7]
    assert split(3, np.array([1e-9, 1.0, 1e9])).tolist() == [1, 1, 1]
