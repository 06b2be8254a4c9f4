"""The simulated cattle inventories have the published summary of the survey."""

import numpy as np
import pyarrow as pa
import pytest
from helpers.errors import refused
from helpers.summaries import STATISTICS, misfits

import slowscale as ss

CENSUS_ORDER = ["TX", "NE", "KS", "CA", "OK"]  # the five states with the most cattle


@pytest.fixture(scope="module")
def table():
    return ss.datasets.cattle()


def by_state(table):
    return table.group_by("state").aggregate([("cattle", "approximate_median"), ("cattle", "count")])


def test_size(table):
    assert table.num_rows == 5_926
    assert table.schema.equals(pa.schema({"state": pa.string(), "district": pa.string(), "cattle": pa.int64()}))
    states = table["state"].to_pylist()
    assert len(set(states)) == 43
    assert states == sorted(states)
    assert {len(code) for code in table["district"].to_pylist()} == {2}


def test_summary(table):
    values = table["cattle"].to_numpy()
    assert not misfits(values, "cattle", tolerance=0.003)
    assert not (values % 100).any()


@pytest.mark.parametrize("records", [1_000, 1_001, 1_002, 1_003, 2_222, 30_000, 200_000])
def test_summary_for_other_sizes(records):
    table = ss.datasets.cattle(records)
    assert table.num_rows == records
    assert not misfits(table["cattle"].to_numpy(), "cattle", tolerance=0.004)


def test_a_shift_of_five_per_cent_is_seen(table):
    values = table["cattle"].to_numpy()
    for factor in (1.05, 0.95):
        assert misfits(factor * values, "cattle") == set(STATISTICS)
    largest = np.where(values == values.max(), 1.05 * values, values)
    assert misfits(largest, "cattle") == {"largest"}
    assert misfits(np.where(values > 26_100, 1.1 * values, values), "cattle") == {"mean", "largest"}


def test_states_differ(table):
    groups = by_state(table)
    sizes, medians = groups["cattle_count"].to_numpy(), groups["cattle_approximate_median"].to_numpy()
    assert sizes.min() < 30 < 400 < sizes.max()
    assert np.quantile(medians, 0.9) > 10 * np.quantile(medians, 0.1)


def test_the_states_are_those_with_the_most_cattle():
    for states in (1, 3, 5):
        assert set(ss.datasets.cattle(100, states)["state"].to_pylist()) == set(CENSUS_ORDER[:states])
    assert by_state(ss.datasets.cattle(49, 49)).num_rows == 49


def test_it_is_the_same_every_time_and_another_with_another_seed():
    one, same, other = (ss.datasets.cattle(500, 20, seed) for seed in (1, 1, 2))
    assert one.equals(same)
    assert not one.equals(other)


@pytest.mark.parametrize(
    ("given", "error", "subject"),
    [
        ({"records": True}, ss.ParameterTypeError, "records"),
        ({"records": 0}, ss.ParameterError, "records"),
        ({"records": 5_926.0}, ss.ParameterTypeError, "records"),
        ({"states": 50}, ss.ParameterError, "states"),
        ({"states": 40, "records": 39}, ss.ParameterError, "states"),
        ({"seed": -1}, ss.ParameterError, "seed"),
    ],
)
def test_mistakes_are_reported(given, error, subject):
    with refused(error, subject, code=error.code):
        ss.datasets.cattle(**given)
