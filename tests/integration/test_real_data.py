"""Real public statistics: intervals cover the true sums as often as they say."""

import math
from pathlib import Path

import pandas as pd
import pytest

import slowscale as ss

DATA = Path(__file__).parents[1] / "data"
CBP, CATTLE = DATA / "cbp2014_county_naics2.csv.gz", DATA / "usda_cattle_2022_county.csv.gz"


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


@pytest.mark.parametrize(
    "columns",
    [
        {"est": ss.ExponentialPolylog.calibrate(std=100), "payann": ss.GeneralizedGaussian.calibrate(std=3000, p=0.5)},
        {"est": ss.Root.calibrate(std=100, at=100, k=4), "payann": ss.Log.calibrate(std=2000, at=8000)},
    ],
    ids=["additive", "transformation"],
)
def test_county_business_patterns(columns):
    by = ["county_fips", "state"]
    table = pd.read_csv(CBP, dtype=dict.fromkeys(by, str), usecols=[*by, "est", "payann"])
    truth = table.groupby(by)[["est", "payann"]].sum().reset_index()
    session = ss.Session(CBP, types={"county_fips": "string"})
    keys = ss.Keys.public_in(session.table, by)
    assert len(keys) == len(truth) == 3_141
    assert [list(keys)[i] for i in (0, -1)] == [tuple(truth.loc[i, by]) for i in (0, len(truth) - 1)]
    shares = covered(session, columns, keys, truth, releases=15, nulls="zero")
    for name, share in shares.items():
        # Half a unit is added for rounding, which covers a little more.
        assert -margin(15 * len(keys)) < share - 0.95 < 0.01, name
    narrow = covered(session, columns, keys, truth, releases=15, level=0.93, nulls="zero")
    assert all(share < 0.95 - margin(15 * len(keys)) for share in narrow.values())


def test_cattle_by_state():
    table = pd.read_csv(CATTLE)
    truth = table.groupby("state")["cattle_head"].sum().reset_index()
    session = ss.Session(CATTLE)
    keys = ss.Keys.public_in(session.table, "state")
    assert len(keys) == len(truth) == 50
    columns = {"cattle_head": ss.Root.calibrate(std=7212, at=10_200, k=4)}
    shares = covered(session, columns, keys, truth, releases=200, nulls="zero")
    assert abs(shares["cattle_head"] - 0.95) < margin(200 * 50)
    with pytest.raises(ss.DataError, match="column 'cattle_head' has missing values"):
        session.sum(columns, keys=keys)
