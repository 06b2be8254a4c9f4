"""Simulated cattle inventories, like those of the Cattle Inventory Survey in the paper's experiments.

Table summary-stats gives 5,926 values; the text of Section 6 gives 35,556, which is exactly six times as many.
"""

import numpy as np
import pyarrow as pa

from slowscale.core.errors import ParameterError
from slowscale.core.parameters import check_whole
from slowscale.datasets.curves import Curve, Summary, split

HEAD = 100  # the survey publishes multiples of 100 head
CATTLE = Summary((31, 102, 260), 224.8, 13_410, least=1)  # in hundreds of head
# The states by the number of their cattle, all but Alaska: the number of counties, the median cattle of a county, and
# the codes of the agricultural districts (Census of Agriculture 2022, in the public domain).
STATES = {
    "TX": (252, 31_500, "11 12 21 22 30 40 51 52 60 70 81 82 90 96 97"),
    "NE": (93, 47_200, "10 20 30 50 60 70 80 90"),
    "KS": (105, 40_100, "10 20 30 40 50 60 70 80 90"),
    "CA": (55, 23_000, "10 20 30 40 50 51 60 80"),
    "OK": (77, 54_000, "10 20 30 40 50 60 70 80 90"),
    "MO": (111, 30_600, "10 20 30 40 50 60 70 80 90"),
    "IA": (99, 24_600, "10 20 30 40 50 60 70 80 90"),
    "SD": (66, 45_700, "10 20 30 40 50 60 70 80 90"),
    "WI": (69, 40_000, "10 20 30 40 50 60 70 80 90"),
    "CO": (58, 17_100, "10 20 60 70 80 90"),
    "ID": (44, 20_300, "10 70 80 90"),
    "MN": (86, 14_800, "10 20 30 40 50 60 70 80 90"),
    "MT": (56, 32_800, "10 20 30 50 70 80 90"),
    "KY": (120, 10_500, "10 20 30 40 50 60"),
    "ND": (53, 25_100, "10 20 30 40 50 60 70 80 90"),
    "TN": (92, 13_300, "10 20 30 40 50 60"),
    "AR": (73, 16_300, "10 20 30 40 50 60 70 80 90"),
    "FL": (64, 12_500, "10 30 50 80"),
    "NY": (55, 19_300, "20 30 40 50 60 70 80 90 91"),
    "PA": (64, 14_600, "10 20 30 40 50 60 70 80 90"),
    "NM": (31, 28_000, "10 30 70 90"),
    "VA": (94, 8_000, "20 40 50 60 70 80 90"),
    "WY": (23, 53_300, "10 20 30 40 50"),
    "AL": (67, 14_800, "10 20 30 40 50 60"),
    "OH": (88, 10_200, "10 20 30 40 50 60 70 80 90"),
    "OR": (36, 18_400, "10 20 30 70 80"),
    "MI": (82, 5_500, "10 20 30 40 50 60 70 80 90"),
    "WA": (37, 13_400, "10 20 30 50 90"),
    "GA": (153, 4_900, "10 20 30 40 50 60 70 80 90"),
    "IL": (99, 7_100, "10 20 30 40 50 60 70 80 90"),
    "AZ": (13, 20_400, "10 80"),
    "MS": (77, 9_600, "10 20 30 40 50 60 70 80 90"),
    "IN": (87, 5_200, "10 20 30 40 50 60 70 80 90"),
    "LA": (62, 8_400, "10 20 30 40 50 60 70 80 90"),
    "UT": (29, 18_400, "10 50 60 70"),
    "NC": (97, 4_900, "10 20 40 50 60 70 80 90"),
    "NV": (16, 17_600, "10 30 80"),
    "WV": (54, 4_700, "20 40 60"),
    "SC": (46, 4_600, "10 20 30 40 50 80"),
    "VT": (14, 7_500, "10"),
    "MD": (23, 2_800, "10 20 30 80 90"),
    "HI": (4, 13_700, "11 24 35 62"),
    "ME": (16, 2_900, "10 20 30"),
    "CT": (8, 5_900, "10"),
    "MA": (13, 1_800, "10"),
    "NH": (10, 2_700, "10"),
    "NJ": (19, 500, "20 50 80"),
    "DE": (3, 3_400, "20 50 80"),
    "RI": (5, 800, "10"),
}
# The standard deviations of log cattle in the same census: between the districts of a state, and within a district.
DISTRICT_SPREAD, COUNTY_SPREAD = 0.8, 0.9


def cattle(records: int = 5_926, states: int = 43, seed: int = 2024) -> pa.Table:
    """Return a table of simulated cattle inventories, like the Cattle Inventory Survey of the paper.

    The columns are state (postal code), district (code of the agricultural district, text) and cattle (head, in
    multiples of 100). Cattle has the least value, quartiles, mean and largest value of Table summary-stats: the
    quartiles to within 100 head from 1,000 records on.

    Parameters
    ----------
    records
        How many inventories.
    states
        How many states: those with the most cattle, at most 49 (all but Alaska).
    seed
        Of the ordinary random numbers that spread the inventories.

    Notes
    -----
    A state has records in proportion to its counties, and states with larger inventories per county in the Census of
    Agriculture 2022 have larger ones here, on the whole. The data do not have the real inventories of districts, their
    change over the years (a district has several records, which are not a series), withheld values, or the places of
    the largest inventories: the largest value may be in any state.

    >>> import slowscale as ss
    >>> table = ss.datasets.cattle()
    >>> table.num_rows, table.column_names
    (5926, ['state', 'district', 'cattle'])
    """
    records, states = check_whole("records", records, at_least=1), check_whole("states", states, at_least=1)
    if states > len(STATES):
        raise ParameterError("states", allowed=f"at most {len(STATES)} (all but Alaska)", given=states)
    if states > records:
        raise ParameterError("states", allowed=f"at most the number of records, {records:,}", given=states)
    generator = np.random.default_rng(check_whole("seed", seed, at_least=0))
    names = sorted(list(STATES)[:states])
    counties, typical = (np.array([STATES[name][i] for name in names], float) for i in (0, 1))
    state = np.repeat(np.arange(states), split(records, counties))

    districts = [(number, code) for number, name in enumerate(names) for code in STATES[name][2].split()]
    numbers = np.array([number for number, _ in districts])
    starts, ends = np.searchsorted(numbers, state), np.searchsorted(numbers, state, side="right")
    district = generator.integers(starts, ends)
    spread = DISTRICT_SPREAD * generator.normal(size=len(districts))[district]
    size = np.log(typical)[state] + spread + COUNTY_SPREAD * generator.normal(size=records)
    values = np.empty(records, np.int64)
    values[np.argsort(size)] = HEAD * Curve.fit(CATTLE, records)(np.arange(records))
    return pa.table(
        {
            "state": pa.array(names).take(pa.array(state)),
            "district": pa.array([code for _, code in districts]).take(pa.array(district)),
            "cattle": pa.array(values),
        }
    )
