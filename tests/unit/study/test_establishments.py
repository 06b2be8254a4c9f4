"""The simulated establishments have the published summary of the paper's extract."""

import numpy as np
import pytest

import slowscale as ss
from slowscale.study import simulated_establishments
from slowscale.study.establishments import SUMMARIES


@pytest.fixture(scope="module")
def table():
    return simulated_establishments()


def test_size(table):
    assert table.num_rows == 323_402
    assert table.group_by(["county", "naics3"]).aggregate([]).num_rows == 1_095
    assert {len(code) for code in table["county"].to_pylist()} == {5}


@pytest.mark.parametrize("name", SUMMARIES)
def test_summary(table, name):
    values, summary = table[name].to_numpy(), SUMMARIES[name]
    assert (values.min(), values.max()) == (0, summary.largest)
    assert tuple(np.quantile(values, [0.25, 0.5, 0.75])) == summary.quartiles
    assert values.mean() == pytest.approx(summary.mean, abs=0.01)


def test_it_is_the_same_every_time_and_another_with_another_seed():
    one, same, other = (simulated_establishments(500, 20, seed) for seed in (1, 1, 2))
    assert one.equals(same)
    assert not one.equals(other)


@pytest.mark.parametrize(("records", "groups"), [(5, 6), (10, 0), (10**6, 10**6)])
def test_mistakes_are_told(records, groups):
    with pytest.raises(ss.ParameterError, match="groups must be"):
        simulated_establishments(records, groups)
