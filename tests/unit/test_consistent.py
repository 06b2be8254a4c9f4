"""Sets of drawn tables that overlap, combined so that everything adds up."""

import numpy as np
import pandas as pd
import pytest
from helpers.bitsources import Recorded

import slowscale as ss

STATES, INDUSTRIES = ["IA", "NE", "TX"], ["11", "31", "44", "62"]
CELLS = ss.Keys.cross({"state": STATES, "naics": INDUSTRIES})
NOISE = ss.ExponentialPolylog(d=0.5)


@pytest.fixture(scope="module")
def records():
    generator = np.random.default_rng(1)
    size = 500
    return pd.DataFrame(
        {
            "state": generator.choice(STATES, size),
            "naics": generator.choice(INDUSTRIES, size),
            "emp": np.ceil(np.exp(generator.normal(3, 2, size))).astype(int),
        }
    )


def tables(**options):
    columns, count = {"emp": NOISE}, ss.Gaussian(3)
    return ss.TableSet(
        {
            "cells": ss.Query(columns, keys=CELLS, count=count, **options),
            "states": ss.Query(columns, keys=ss.Keys.cross({"state": STATES}), count=count, **options),
            "industries": ss.Derived("cells", by=["naics"]),
            "nation": ss.Query(columns, count=count, **options),
        }
    )


@pytest.fixture(scope="module", params=[1, "0.01"])
def drawn(request, records):
    return ss.Session(records, bits=Recorded(2)).release(tables(unit=request.param))


@pytest.mark.parametrize(("method", "simulations"), [("least squares", 19), ("likelihood", 19)])
def test_everything_adds_up_exactly(drawn, method, simulations):
    found = drawn.consistent(method, simulations=simulations)
    cells = found["cells"].to_pandas()
    for column in ("emp", "count"):
        for name, by in (("states", "state"), ("industries", "naics")):
            sums = cells.groupby(by)[column].sum()
            table = found[name].to_pandas().set_index(by)[column]
            np.testing.assert_allclose(table[sums.index], sums, rtol=0, atol=1e-6)
        assert found["nation"].to_pandas()[column].item() == pytest.approx(cells[column].sum(), abs=1e-6)
        # They did not before.
        assert drawn["nation"].to_pandas()[column].item() != pytest.approx(drawn["cells"].to_pandas()[column].sum())
    assert found.policy == drawn.policy
    for name in found:
        assert found[name].facts.combined.method == method
        table = found[name].to_pandas()
        assert (table["emp_low"] <= table["emp"]).all()
        assert (table["emp"] <= table["emp_high"]).all()


def test_without_gaps_nothing_changes(drawn):
    made = drawn.consistent(simulations=19)
    again = drawn.__class__(
        {**drawn.releases, "states": made["states"], "nation": made["nation"], "cells": made["cells"]},
        drawn.facts,
        drawn.policy,
    )
    plain = {
        name: one.__class__(one.table, drawn[name].facts, one.policy, None, one.mechanisms)
        for name, one in again.items()
    }
    found = drawn.__class__(plain, drawn.facts, drawn.policy).consistent(simulations=19)
    for name in found:
        assert found[name].to_pandas()["emp"].tolist() == made[name].to_pandas()["emp"].tolist()


def test_errors_are_those_of_many_releases(records):
    # 60 releases; standard errors and intervals must be those that the differences from the true sums have.
    truth = records.groupby(["state", "naics"])["emp"].sum()
    total = records["emp"].sum()
    inside, errors = [], []
    for seed in range(60):
        found = ss.Session(records, bits=Recorded(100 + seed)).release(tables()).consistent(simulations=39, seed=seed)
        cells = found["cells"].to_pandas().set_index(["state", "naics"])
        true = truth.reindex(cells.index).fillna(0)
        inside.append(((cells["emp_low"] <= true) & (true <= cells["emp_high"])).mean())
        nation = found["nation"].to_pandas()
        errors.append([*(cells["emp"] - true), nation["emp"].item() - total])
        inside.append((nation["emp_low"].item() <= total) & (total <= nation["emp_high"].item()))
    # The level is 0.95. The mean of 60 shares and 60 indicators has a standard deviation below 0.02; 6 of them are
    # exceeded with a probability below 1e-8.
    assert np.mean(inside) > 0.95 - 6 * 0.02
    rms = np.sqrt(np.mean(np.square(errors), axis=0))
    stated = [*cells["emp_se"], nation["emp_se"].item()]
    assert 0.5 < np.mean(rms / stated) < 1.6
    assert np.abs(np.mean(errors, axis=0) / (np.array(stated) / np.sqrt(60))).max() < 8


def test_files_say_that_estimates_are_combined(drawn, tmp_path):
    found = drawn.consistent(simulations=39)
    found.to_parquet(tmp_path)
    read = ss.read_release_set(tmp_path)
    assert read.facts.combined.columns == ("emp", "count")
    cells = read["cells"]
    assert "combined from the drawn tables cells, states, nation by least squares" in repr(cells)
    with pytest.raises(ss.ParameterError, match=r"its intervals are known at the level 0\.95 only"):
        cells.interval("emp", 0.99)
    assert cells.interval("emp", 0.9)[0].tolist() == cells.interval("emp")[0].tolist()
    with pytest.raises(ss.ParameterError, match="use emp_se"):
        cells.unbiased_variance("emp")
    with pytest.raises(ss.ParameterError, match="the errors of combined estimates depend on each other"):
        cells.rollup()
    with pytest.raises(ss.ParameterError, match="the tables are combined already"):
        read.consistent()


def test_levels_of_a_hierarchy(records):
    region = ss.Hierarchy("state", {"region": {"IA": "midwest", "NE": "midwest", "TX": "south"}})
    found = ss.Session(records, bits=Recorded(3)).release(
        ss.TableSet(
            {
                "cells": ss.Query({"emp": NOISE}, keys=CELLS),
                "nation": ss.Query({"emp": NOISE}),
                "regions": ss.Derived("cells", by=["region"]),
            },
            hierarchies=[region],
        )
    )
    with pytest.raises(ss.ParameterError, match="table 'regions' is not a margin of 'cells'"):
        found.consistent(simulations=19)
    combined = found.consistent(simulations=19, hierarchy=region)
    assert combined["regions"].to_pandas()["emp"].sum() == combined["nation"].to_pandas()["emp"].item()


def test_what_cannot_be_combined_is_refused(records):
    session = ss.Session(records, bits=Recorded(4))
    one = session.release(ss.TableSet({"cells": ss.Query({"emp": NOISE}, keys=CELLS), "nation": ss.Derived("cells")}))
    with pytest.raises(ss.ParameterError, match="only 'cells' is drawn"):
        one.consistent()
    roots = session.release(
        ss.TableSet({"cells": ss.Query({"emp": ss.Root(2, 1)}, keys=CELLS), "nation": ss.Query({"emp": ss.Root(2, 1)})})
    )
    with pytest.raises(ss.ParameterError, match="no column can be combined"):
        roots.consistent()
    filtered = session.release(
        ss.TableSet(
            {"cells": ss.Query({"emp": NOISE}, keys=CELLS), "nation": ss.Query({"emp": NOISE}, where="emp > 5")}
        )
    )
    with pytest.raises(ss.ParameterError, match="no column can be combined"):
        filtered.consistent()
    fewer = session.release(
        ss.TableSet(
            {
                "cells": ss.Query({"emp": NOISE}, keys=CELLS),
                "states": ss.Query({"emp": NOISE}, keys=ss.Keys.cross({"state": STATES[:2]})),
            }
        )
    )
    with pytest.raises(ss.ParameterError, match="the keys of 'states' must be those that the cells"):
        fewer.consistent()
    with pytest.raises(ss.ParameterError, match="method must be"):
        session.release(tables()).consistent("best")
    with pytest.raises(ss.ParameterTypeError, match="simulations must be a whole number"):
        session.release(tables()).consistent(simulations=1.5)
