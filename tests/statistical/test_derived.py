"""Intervals for growth, shares and differences hold the truth as often as they say.

Bits are secret, so a run is a fresh trial. The share of 10,000 intervals that hold may be 4.9 standard errors below the
level (false alarms: 5e-7 by the normal law). Twins have a level of 0.9, or noise that is too narrow, and must be below.
"""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import slowscale as ss

PAIRS, LEVEL, TWIN = 10_000, 0.95, 0.9
POLYLOG, ARSINH = ss.ExponentialPolylog.calibrate(std=100), ss.ArsinhNormal(scale=12, shape=1.3)


def cells(mechanism, sums, pairs=PAIRS, **options):
    """Return a release of so many groups of cells with these sums."""
    cell = np.arange(pairs * len(sums))
    frame = pd.DataFrame({"cell": cell, "group": cell // len(sums), "x": np.tile(sums, pairs)})
    keys = ss.Keys.from_frame(frame[["group", "cell"]])
    return ss.Session(frame).sum({"x": mechanism}, keys=keys, **options)["table"]


def holds(derived, truth, rows=slice(None)):
    """Return the share of intervals that hold a true number."""
    low, high = (derived.table[f"x_{derived.kind}_{end}"].to_numpy()[rows] for end in ("low", "high"))
    return ((low <= truth) & (truth <= high)).mean(), low.size


def valid(share, size):
    return share >= LEVEL - 4.9 * math.sqrt(LEVEL * (1 - LEVEL) / size)


@pytest.mark.parametrize(
    ("later", "earlier", "q", "before", "options"),
    [
        (ss.Gaussian(sigma=30), ss.Gaussian(sigma=30), 1000, 800, {}),
        (POLYLOG, POLYLOG, 3000, 2900, {"unit": 10}),
        (ARSINH, ss.Laplace(sigma=25), 150, 60, {}),  # the earlier sum is not clearly above 0
        (POLYLOG, POLYLOG, 500, 600, {}),
        (ARSINH, ARSINH, 0, 700, {}),
    ],
)
def test_growth_and_differences(later, earlier, q, before, options):
    one, other = cells(later, [q], **options), cells(earlier, [before])
    for kind, truth in (("growth", q / before - 1), ("difference", q - before)):
        assert valid(*holds(getattr(one, kind)(other, level=LEVEL), truth))
        if kind == "difference" or before > 100:  # an interval without an end holds more often
            assert not valid(*holds(getattr(one, kind)(other, level=TWIN), truth))


def test_growth_is_almost_exact():
    """Intervals with two ends hold the truth no more often than they say, but for rounding and the table's slack."""
    m = ss.Gaussian(sigma=30)
    share, size = holds(cells(m, [1000]).growth(cells(m, [800])), 0.25)
    assert share <= LEVEL + 0.004 + 4.9 * math.sqrt(LEVEL * (1 - LEVEL) / size)


def test_noise_that_is_too_narrow_is_noticed():
    m = ss.Gaussian(sigma=30)
    narrow = {"x": ss.Gaussian(sigma=0.95 * 30)}
    one, other = (replace(cells(m, [q], 60_000), mechanisms=narrow) for q in (1000, 800))
    assert not valid(*holds(one.growth(other), 0.25))
    assert not valid(*holds(one.difference(other), 200))


@pytest.mark.parametrize("m", [ss.Gaussian(sigma=30), POLYLOG], ids=["gaussian", "polylog"])
@pytest.mark.parametrize("sums", [[900, 200], [0, 800]])
def test_shares(m, sums):
    release = cells(m, sums)
    first = slice(None, None, len(sums))  # the shares of one group depend on each other
    truth = sums[0] / sum(sums)
    assert valid(*holds(release.share("group"), truth, first))
    assert not valid(*holds(release.share("group", level=TWIN), truth, first))


def test_growth_of_roll_ups():
    sums = [500, 100, 300]
    one, other = (cells(POLYLOG, [times * q for q in sums]).rollup("group") for times in (2, 1))
    assert valid(*holds(one.growth(other), 1.0))
    assert not valid(*holds(one.growth(other, level=TWIN), 1.0))


def test_transformations():
    m = ss.Root(k=4, sigma=1)
    one, other = cells(m, [3300]), cells(m, [3000])
    assert one.growth(other).intervals == {"x": "exact"}
    assert valid(*holds(one.growth(other), 0.1))
    assert not valid(*holds(one.growth(other, level=TWIN), 0.1))
    assert valid(*holds(one.difference(other), 300))
    narrow = (replace(table, mechanisms={"x": ss.Root(k=4, sigma=0.5)}) for table in (one, other))
    assert not valid(*holds(next(narrow).difference(next(narrow)), 300))
