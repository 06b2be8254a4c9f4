"""A look at the records finds the same on every engine."""

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from helpers import engines
from helpers.bitsources import Recorded
from helpers.dominance import LABELS, plain_count, records
from helpers.inspected import QUERY, TABLE

import slowscale as ss
from slowscale.data.contributors import largest_contributors
from slowscale.data.sums import Column


@pytest.mark.parametrize("engine", ["private", *engines.EACH])
def test_what_is_found_on_every_engine(engine):
    data = TABLE if engine == "private" else engines.load(engine, TABLE)
    session = ss.Session(data, bits=Recorded(1))
    found = session.inspect(QUERY)
    assert (found.records, found.duplicates, found.outside, found.unlabelled) == (10, 1, 4, 1)
    x, y = found.columns
    assert (x.name, x.missing, x.negative, x.uncountable) == ("x", 1, 1, 0)
    assert (y.name, y.missing, y.negative, y.uncountable) == ("y", 0, 0, 0)
    assert x.outside_share == pytest.approx(250 / 2000)
    assert x.unlabelled_share == pytest.approx(500 / 2000)
    assert y.outside_share == pytest.approx(18 / 47.5)
    assert (found.cells, found.empty, found.empty_keys) == (4, 1, ({"state": "NEVADA"},))
    near = [(miss.column, miss.label, miss.key, miss.records) for miss in found.near_misses]
    assert near == [("state", "TEXSA", "TEXAS", 2), ("state", "iowa ", "IOWA", 1)]
    assert found.refusals == ()
    release = session.release(QUERY)
    exact = session.losses(release)
    assert found.losses == exact
    values = {"x": [100, 100, 50, 0, 1000], "y": [1.5, 1.5, 2.5, 8.0, 9.0]}
    truth = release.policy({name: np.array(some, float) for name, some in values.items()})
    assert exact.largest[1] == pytest.approx(truth.max(), rel=1e-9)
    assert exact.quantiles[0.5] == pytest.approx(np.median(truth), rel=1e-3)
    classes = [(one.column, one.low, one.high, one.cells) for one in found.errors if one.column == "x"]
    assert classes == [("x", 0, 0, 1), ("x", 10, 100, 1), ("x", 100, 1000, 1), ("x", 1000, 10_000, 1)]


@pytest.mark.parametrize("sigma", [1e-140, 1e-40, 1e40, 1e140])
@pytest.mark.parametrize("engine", ["private", *engines.EACH])
def test_losses_far_from_1_are_counted_as_precisely(engine, sigma):
    """Losses of about 1e-280 to 1e284: quantiles and ranks are within 0.1 %, as those of ordinary losses."""
    values = np.arange(1, 1001)
    table = pa.table({"x": values})
    session = ss.Session(table if engine == "private" else engines.load(engine, table))
    found = session.inspect(ss.Sums({"x": ss.Gaussian(sigma=sigma)})).losses
    truth = (values / sigma) ** 2 / 2
    np.testing.assert_allclose(
        list(found.quantiles.values()), np.quantile(truth, list(found.quantiles)), rtol=1.1e-3, atol=0
    )
    assert found.largest == {rank: pytest.approx(truth[-rank], rel=1.1e-3, abs=0) for rank in (1, 10, 100, 1000)}


@pytest.mark.parametrize("protect", [None, "firm"])
@pytest.mark.parametrize("engine", ["private", *engines.EACH])
def test_open_cells_on_every_engine(engine, protect):
    """Labels that differ in case or spaces only are different cells, and a value is summed by its entity."""
    odd = pa.table(
        {
            "cell": ["c00 ", "C00", "c00", "c40", "c40", "é", "e\u0301"],
            "firm": ["firm 1", "firm 1", "FIRM 1", "a", "A", "b", "b"],
            "x": [1e6, 1e6, -1e5, 60.0, 50.0, 3.0, 1e4],
        }
    )
    some = records("signed")
    table = pa.concat_tables([some, odd])
    labels = [*LABELS, "c40", "é"]
    session = ss.Session(table if engine == "private" else engines.load(engine, table), protect=protect)
    query = ss.Sums({"x": ss.Gaussian(sigma=8)}, ss.Keys.cross({"cell": labels}))
    rules = ss.Dominance(n=3)
    found = session.inspect(query, duplicates=False, dominance=rules).open_cells
    cells = plain_count(table, labels, rules, protect)
    assert [(one.cells, one.before.cells) for one in found] == [
        (len(cells), cells.open_p.sum()),
        (len(cells), cells.open_nk.sum()),
    ]
    assert found[0].before.share == pytest.approx(cells.total[cells.open_p].sum() / cells.total.sum())
    total = session.inspect(ss.Sums({"x": ss.Gaussian(sigma=8)}), duplicates=False, dominance=rules).open_cells
    assert [one.cells for one in total] == [1, 1]


@pytest.mark.parametrize("engine", engines.EACH)
def test_values_that_cannot_be_counted_are_no_contributors(engine):
    values = [100.0, 1.0, math.nan, math.inf, -math.inf, 1.7e308, 1.7e308, 2.0**54, None]
    table = engines.load(engine, pa.table({"x": pa.array(values, pa.float64())}))
    (one,) = largest_contributors(ss.Session(table).table, [Column("x", Fraction(1))], None, None, 4)
    assert one.largest.tolist() == [[2.0**54, 100.0, 1.0, 0.0]]
    assert one.totals.tolist() == [2.0**54 + 101]
