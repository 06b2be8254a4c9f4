"""Tables like public county statistics: intervals cover the true sums as often as they say."""

import math

import pandas as pd
import pytest
from helpers.counties import business_patterns, cattle_counties
from helpers.errors import refused

import slowscale as ss


@pytest.fixture(scope="module")
def business(tmp_path_factory):
    """A CSV file, compressed; a withheld value is an empty field."""
    path = tmp_path_factory.mktemp("data") / "business.csv.gz"
    business_patterns().to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def cattle(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "cattle.csv.gz"
    cattle_counties().to_csv(path, index=False)
    return path


def test_the_tables_have_the_shape_of_public_county_statistics(business, cattle):
    codes = ["county_fips", "state", "naics3", "district"]
    business, cattle = (pd.read_csv(path, dtype=dict.fromkeys(codes, str)) for path in (business, cattle))
    assert not business.duplicated(["county_fips", "naics3"]).any()
    assert business.county_fips.nunique() > 3_000
    assert business.county_fips.str.fullmatch(r"\d{5}").all()
    assert 0.1 < business.county_fips.str.startswith("0").mean() < 0.3
    assert 0.29 < business.payann.isna().mean() < 0.31
    assert business.payann.max() > 10_000 * business.payann.median()
    assert len(cattle) > 3_000
    assert cattle.cattle.isna().sum() == 48
    assert cattle.cattle.max() > 70 * cattle.cattle.median()


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
def test_business_by_county(business, columns):
    by = ["county_fips", "state"]
    table = pd.read_csv(business, dtype=dict.fromkeys(by, str), usecols=[*by, "est", "payann"])
    truth = table.groupby(by)[["est", "payann"]].sum().reset_index()
    session = ss.Session(business, types={"county_fips": "string", "state": "string"})
    keys = ss.Keys.from_data(session.table, by, declared_public=True)
    assert len(keys) == len(truth) > 3_000
    assert [list(keys)[i] for i in (0, -1)] == [tuple(truth.loc[i, by]) for i in (0, len(truth) - 1)]
    shares = covered(session, columns, keys, truth, releases=15, nulls="zero")
    for name, share in shares.items():
        # Half a unit is added for rounding, which covers a little more.
        assert -margin(15 * len(keys)) < share - 0.95 < 0.01, name
    narrow = covered(session, columns, keys, truth, releases=15, level=0.93, nulls="zero")
    assert all(share < 0.95 - margin(15 * len(keys)) for share in narrow.values())


def test_cattle_by_state(cattle):
    table = pd.read_csv(cattle)
    truth = table.groupby("state")["cattle"].sum().reset_index()
    session = ss.Session(cattle)
    keys = ss.Keys.from_data(session.table, "state", declared_public=True)
    assert len(keys) == len(truth) == 49
    columns = {"cattle": ss.Root.calibrate(std=7212, at=10_200, k=4)}
    shares = covered(session, columns, keys, truth, releases=200, nulls="zero")
    assert abs(shares["cattle"] - 0.95) < margin(200 * len(keys))
    with refused(ss.DataError, "column 'cattle'", code="nulls"):
        session.sum(columns, keys=keys)
