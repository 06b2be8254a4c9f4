"""Simulated establishments, like the County Business Patterns extract of the paper's experiments.

The extract is not public. What is (Table summary-stats) says its size, the number of groups and, for each column, the
least value, quartiles, mean and largest value; the simulated columns have exactly those. Nothing here is
confidential, so ordinary seeded random numbers will do.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy import optimize

from slowscale.errors import ParameterError, ParameterTypeError
from slowscale.parameters import Array

RECORDS, GROUPS = 323_402, 1_095
# The plan of the demo: the standard deviations that give Gaussian noise a loss of 1 for the median record.
DEMO = """\
[data]
path = "establishments.parquet"
name = "simulated-establishments"

[keys]
by = ["county", "naics3"]
public_in_data = true                  # in the paper's table, which cells exist is public

[[sums]]
column = "emp"
mechanism = "exponential-polylog"
std = 1.41

[[sums]]
column = "payqtr1"
mechanism = "exponential-polylog"
std = 17.7

[[sums]]
column = "payann"
mechanism = "exponential-polylog"
std = 75

[output]
parquet = "published.parquet"
csv = "published.csv"
report = "published.html"
"""


class Summary(NamedTuple):
    """A row of Table summary-stats."""

    quartiles: tuple[int, int, int]
    mean: float
    largest: int


SUMMARIES = {
    "emp": Summary((1, 2, 9), 17, 19_589),
    "payqtr1": Summary((7, 25, 93), 239, 402_324),
    "payann": Summary((30, 106, 388), 919, 1_553_359),
}
# How far a column strays from another one of the same establishment, as noise on its place in the ranking.
STRAY = {"emp": (None, 0.0), "payann": ("emp", 0.2), "payqtr1": ("payann", 0.05)}
# Three-digit industries (NAICS 2017).
INDUSTRIES = [
    str(code)
    for start, stop in (
        (113, 115), (211, 213), (221, 221), (236, 238), (311, 316), (321, 327), (331, 337), (339, 339), (423, 425),
        (441, 448), (451, 454), (481, 481), (483, 488), (492, 493), (511, 512), (515, 515), (517, 519), (522, 525),
        (531, 533), (541, 541), (551, 551), (561, 562), (611, 611), (621, 624), (711, 713), (721, 722), (811, 813),
    )
    for code in range(start, stop + 1)
]  # fmt: skip


def simulated_establishments(records: int = RECORDS, groups: int = GROUPS, seed: int = 2024) -> pa.Table:
    """Return a table of establishments: county, naics3, emp, payqtr1 and payann (payroll in thousands of dollars).

    Parameters
    ----------
    records, groups
        How many establishments, in how many combinations of county and industry.
    seed
        Of the ordinary random numbers that spread them.

    >>> table = simulated_establishments(records=10_000, groups=50)
    >>> table.num_rows, table.column_names
    (10000, ['county', 'naics3', 'emp', 'payqtr1', 'payann'])
    """
    for name, value in (("records", records), ("groups", groups), ("seed", seed)):
        if not isinstance(value, int) or value < 0:
            raise ParameterTypeError(f"{name} must be a whole number, got {value!r}")
    if not 1 <= groups <= records:
        raise ParameterError(f"groups must be between 1 and the number of records, got {groups} for {records}")
    generator = np.random.default_rng(seed)
    labels = _labels(groups, generator)
    sizes = _sizes(records, groups, generator)
    group = generator.permutation(np.repeat(np.arange(groups), sizes))
    size: dict[str | None, Array] = {None: generator.normal(size=records) + 0.3 * generator.normal(size=groups)[group]}
    for name, (other, stray) in STRAY.items():
        size[name] = size[other] + stray * generator.normal(size=records)
    columns = {name: np.array(values)[group] for name, values in labels.items()}
    for name, summary in SUMMARIES.items():
        columns[name] = column(summary, records)[np.argsort(np.argsort(size[name]))]
    return pa.table({name: pa.array(values) for name, values in columns.items()})


def column(summary: Summary, records: int) -> npt.NDArray[np.int64]:
    """Return whole numbers in ascending order with these quartiles, mean and largest value."""
    place = np.linspace(0, 1, records)
    heights = np.log1p(np.array([0, *summary.quartiles]))
    body = np.interp(place, [0, 0.25, 0.5, 0.75], heights)
    share = np.clip((place - 0.75) / 0.25, 0, 1)
    far = math.log(1 + 4 * records)
    spread = -np.log1p(-share * -np.expm1(-far)) / far  # 0 to 1, like the largest of exponentials
    reach = math.log1p(summary.largest) - heights[-1]

    def values(bend: float) -> Array:
        return np.asarray(np.expm1(body + reach * spread**bend))

    def excess(bend: float) -> float:
        return float(np.round(values(bend)).mean()) - summary.mean

    bend = optimize.brentq(excess, 0.2, 20, xtol=1e-12) if excess(0.2) > 0 > excess(20) else 1.0
    return np.round(values(bend)).astype(np.int64)


def _labels(groups: int, generator: np.random.Generator) -> dict[str, list[str]]:
    """Return distinct pairs of a county (state and odd number, five digits) and an industry."""
    counties = [f"{state:02}{number:03}" for state in range(1, 57) for number in range(1, 120, 2)]
    if groups > len(counties) * len(INDUSTRIES):
        raise ParameterError(f"groups must be at most {len(counties) * len(INDUSTRIES)}, got {groups}")
    chosen = np.sort(generator.choice(len(counties) * len(INDUSTRIES), groups, replace=False))
    return {
        "county": [counties[i // len(INDUSTRIES)] for i in chosen],
        "naics3": [INDUSTRIES[i % len(INDUSTRIES)] for i in chosen],
    }


def _sizes(records: int, groups: int, generator: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return skewed group sizes of at least 1 that add up to the number of records."""
    weights = np.exp(generator.normal(0, 1.6, groups))
    cuts = np.round(np.cumsum(weights) / weights.sum() * (records - groups)).astype(np.int64)
    return np.asarray(np.diff(cuts, prepend=0) + 1)
