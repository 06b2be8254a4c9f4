"""Real public statistics, if the files are available: intervals cover the true sums as often as claimed.

The files are no part of the project. They are looked for in the folder SLOWSCALE_DATA, or else in ../shared/data.
"""

import math
import os
from pathlib import Path

import pandas as pd
import pytest

import slowscale as ss

DATA = Path(os.environ.get("SLOWSCALE_DATA", Path(__file__).parents[3] / "shared" / "data"))
CBP, CATTLE = DATA / "cbp2021_county_naics6.csv.gz", DATA / "usda_cattle_2022_county.csv"


def needs(path):
    return pytest.mark.skipif(not path.exists(), reason=f"REAL DATA NOT TESTED: there is no {path.name}")


def covered(session, columns, keys, truth, releases, level=0.95, **options):
    """Return, for each column, the share of cells and releases whose interval contains the true sum."""
    shares = dict.fromkeys(columns, 0.0)
    for _ in range(releases):
        frame = session.sum(columns, keys=keys, level=level, **options).to_pandas()
        for name in columns:
            inside = (frame[f"{name}_low"] <= truth[name]) & (truth[name] <= frame[f"{name}_high"])
            shares[name] += inside.mean() / releases
    return shares


def margin(trials):
    """Return how far a share may deviate from 0.95 at a false-alarm rate below 1e-6."""
    return 5 * math.sqrt(0.95 * 0.05 / trials)


@needs(CBP)
@pytest.mark.parametrize(
    "columns",
    [
        {"emp": ss.ExponentialPolylog.calibrate(std=100), "ap": ss.GeneralizedGaussian.calibrate(std=3000, p=0.5)},
        {"emp": ss.Root.calibrate(std=100, at=100, k=4), "ap": ss.Log.calibrate(std=2000, at=2400)},
    ],
    ids=["additive", "transformation"],
)
def test_county_business_patterns(columns):
    by = ["county_fips", "naics3"]
    table = pd.read_csv(CBP, dtype=dict.fromkeys(by, str), usecols=[*by, "emp", "ap"])
    truth = table.groupby(by)[["emp", "ap"]].sum().reset_index()
    session = ss.Session(CBP, types={"naics3": "string"})
    keys = ss.Keys.public_in(session.table, by)
    assert len(keys) == 100_551
    assert [list(keys)[i] for i in (0, -1)] == [tuple(truth.loc[i, by]) for i in (0, len(truth) - 1)]
    shares = covered(session, columns, keys, truth, releases=10)
    for name, share in shares.items():
        # Half a unit is added for rounding, so the coverage is slightly larger.
        assert -margin(10 * len(keys)) < share - 0.95 < 0.005, name
    narrow = covered(session, columns, keys, truth, releases=1, level=0.94)
    assert all(share < 0.95 - margin(len(keys)) for share in narrow.values())


@needs(CATTLE)
def test_cattle_by_state():
    table = pd.read_csv(CATTLE)
    state = next(name for name in ("state", "state_name", "state_alpha") if name in table.columns)
    truth = table.groupby(state)["cattle_head"].sum().reset_index()
    session = ss.Session(CATTLE)
    keys = ss.Keys.public_in(session.table, state)
    assert len(keys) == len(truth) == 50
    columns = {"cattle_head": ss.Root.calibrate(std=7212, at=10_200, k=4)}
    shares = covered(session, columns, keys, truth, releases=200, nulls="zero")
    assert abs(shares["cattle_head"] - 0.95) < margin(200 * 50)
    with pytest.raises(ss.DataError, match="column 'cattle_head' has missing values"):
        session.sum(columns, keys=keys)
