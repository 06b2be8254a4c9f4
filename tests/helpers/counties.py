"""Simulated tables like public county statistics: skewed, with withheld values and codes with leading zeros."""

import numpy as np

import slowscale as ss

SECTORS, WITHHELD_PAYROLLS = 48_000, 0.3
WITHHELD_HERDS = 48


def business_patterns():
    """Return one row per county and industry, in about 3,000 counties; three payrolls in ten are withheld."""
    table = ss.datasets.establishments(SECTORS, groups=SECTORS).to_pandas()
    table = table.rename(columns={"county": "county_fips", "emp": "est"})
    table.insert(0, "state", table.county_fips.str[:2])
    withheld = np.random.default_rng(1).random(len(table)) < WITHHELD_PAYROLLS
    return table.astype({"payann": "Int64"}).assign(payann=lambda t: t.payann.mask(withheld)).drop(columns="payqtr1")


def cattle_counties():
    """Return one row per county of 49 states; the cattle of 48 counties are withheld."""
    table = ss.datasets.cattle(3_060, states=49).to_pandas()
    withheld = np.random.default_rng(1).permutation(len(table)) < WITHHELD_HERDS
    return table.astype({"cattle": "Int64"}).assign(cattle=lambda t: t.cattle.mask(withheld))
