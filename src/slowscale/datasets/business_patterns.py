"""Simulated establishments, like the County Business Patterns extract of the paper's experiments.

The paper (Section 6, Datasets) gives the number of records and of groups, and Table summary-stats the summary of each
column.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from slowscale.core.errors import ParameterError
from slowscale.core.files import check_output_path, write_files
from slowscale.core.parameters import Array, check_whole
from slowscale.datasets.curves import Curve, Summary, split

BATCH_ROWS = 2**20

SUMMARIES = {
    "emp": Summary((1, 2, 9), 17, 19_589),
    "payqtr1": Summary((7, 25, 93), 239, 402_324),
    "payann": Summary((30, 106, 388), 919, 1_553_359),
}
# How far a column strays from another one of the same establishment, as noise on its place in the ranking.
STRAY = {"emp": (None, 0.0), "payann": ("emp", 0.2), "payqtr1": ("payann", 0.05)}
PAPER_GROUPS = 1_095
# Counties: a state and an odd number, five digits.
COUNTIES = [f"{state:02}{number:03}" for state in range(1, 57) for number in range(1, 120, 2)]
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
ESTABLISHMENT_SCHEMA = pa.schema(
    {"county": pa.string(), "naics3": pa.string(), "emp": pa.int64(), "payqtr1": pa.int64(), "payann": pa.int64()}
)


def establishments(records: int = 323_402, groups: int | None = None, seed: int = 2024) -> pa.Table:
    """Return a table of simulated establishments, like the County Business Patterns extract of the paper.

    The columns are county, naics3 (industry), emp (employees), and payqtr1 and payann (payroll of the first quarter
    and of the year, in thousands of dollars). The last three have the least value, quartiles, mean and largest value of
    Table summary-stats. (The means need about 2,200 records or more: with fewer, the largest value lifts the mean too
    far.) Groups have very different sizes.

    Parameters
    ----------
    records, groups
        How many establishments, in how many combinations of county and industry; 1,095 by default, or as many as there
        are records.
    seed
        Of the ordinary random numbers that spread them.

    Notes
    -----
    The paper publishes the summary of each column, not how columns go together. In the simulated data a larger
    establishment has more employees and a larger payroll, with little noise: the rank correlation of emp and payann is
    0.97, and payqtr1 never exceeds payann. The data do not have

    - the geography and the industries of the United States: codes are drawn at random, an industry has no typical
      size, and counties of a state have nothing in common;
    - groups without records, or the number of groups that a real county has;
    - the real joint distribution: which establishments have no employees or no payroll (here no employees and some
      payroll is common, the reverse almost never occurs), how wages differ, and which establishments are the largest in
      several columns;
    - seasons: of the establishments that pay more than 100 a year, 98 % pay between 18 % and 33 % of it in the first
      quarter, whatever the industry;
    - firms with several establishments, and rounded or repeated numbers as people report them.

    >>> import slowscale as ss
    >>> table = ss.datasets.establishments(records=10_000, groups=50)
    >>> table.num_rows, table.column_names
    (10000, ['county', 'naics3', 'emp', 'payqtr1', 'payann'])
    """
    records, groups, seed = _check(records, groups, seed)
    return pa.Table.from_batches(_batches(records, groups, seed, 1))


def establishment_batches(
    records: int = 323_402, groups: int | None = None, seed: int = 2024
) -> Iterator[pa.RecordBatch]:
    """Yield simulated establishments in record batches of about a million rows, for any number of records.

    All batches together have the summary of `establishments`. Up to 1,048,576 records there is one batch, with the
    same records; above, the records are others than those of `establishments`, which matches all of them at once.

    >>> import slowscale as ss
    >>> sum(batch.num_rows for batch in ss.datasets.establishment_batches(records=5_000, groups=20))
    5000
    """
    records, groups, seed = _check(records, groups, seed)
    return _batches(records, groups, seed, math.ceil(records / BATCH_ROWS))


def write_establishments(
    path: str | os.PathLike[str],
    records: int = 323_402,
    groups: int | None = None,
    seed: int = 2024,
    *,
    overwrite: bool = False,
) -> Path:
    """Write simulated establishments to a Parquet file, whole or not at all, and return its path.

    The file has the batches of `establishment_batches`, one after the other, so that any number of records fits in
    memory.

    Parameters
    ----------
    path
        The file, which must end in .parquet.
    records, groups, seed
        As in `establishments`.
    overwrite
        Whether to replace an existing file.
    """
    from slowscale.core.markup import progress_bar

    target = check_output_path(path, ".parquet", overwrite)
    batches, written = establishment_batches(records, groups, seed), 0

    def write(place: Path) -> None:
        nonlocal written
        with pyarrow.parquet.ParquetWriter(place, ESTABLISHMENT_SCHEMA) as writer:
            for batch in batches:
                writer.write_batch(batch)
                written += batch.num_rows

    with progress_bar("simulating establishments", lambda: written / records):
        return write_files({target: write}, overwrite=overwrite)


def _check(records: int, groups: int | None, seed: int) -> tuple[int, int, int]:
    records = check_whole("records", records, at_least=1)
    groups = min(PAPER_GROUPS, records) if groups is None else check_whole("groups", groups, at_least=1)
    if groups > records:
        raise ParameterError("groups", allowed=f"at most the number of records, {records:,}", given=groups)
    if groups > len(COUNTIES) * len(INDUSTRIES):
        most = f"{len(COUNTIES) * len(INDUSTRIES):,}"
        raise ParameterError(
            "groups", allowed=f"at most {most}, the number of combinations of county and industry", given=groups
        )
    return records, groups, check_whole("seed", seed, at_least=0)


def _batches(records: int, groups: int, seed: int, count: int) -> Iterator[pa.RecordBatch]:
    """Yield the records in this many batches.

    Imagine the records ordered by group, and the values of a column in ascending order. Of both lists, the first batch
    gets the first element and every count-th one after it, the second batch starts with the second element, and so on.
    Each batch is therefore like the whole, and all together have exactly the group sizes and the values of the whole.
    """
    generator = np.random.default_rng(seed)
    labels = _labels(groups, generator)
    ends = np.cumsum(split(records, np.exp(generator.normal(0, 1.6, groups))))  # sizes are skewed
    curves = {name: Curve.fit(summary, records, all_ranks=count == 1) for name, summary in SUMMARIES.items()}
    typical: Array | None = None  # the typical size of each group
    for first in range(count):
        indices = np.arange(first, records, count)
        group = generator.permutation(np.searchsorted(ends, indices, side="right"))
        noise = generator.normal(size=indices.size)
        if typical is None:  # drawn after the first noise: one batch has always been drawn in this order
            typical = generator.normal(size=groups)
        size: dict[str | None, Array] = {None: noise + 0.3 * typical[group]}
        for name, (other, stray) in STRAY.items():
            size[name] = size[other] + stray * generator.normal(size=indices.size)
        columns = {name: pa.array(values).take(pa.array(group)) for name, values in labels.items()}
        for name, curve in curves.items():
            values = np.empty(indices.size, np.int64)
            values[np.argsort(size[name])] = curve(indices)
            columns[name] = pa.array(values)
        yield pa.record_batch(columns, schema=ESTABLISHMENT_SCHEMA)


def _labels(groups: int, generator: np.random.Generator) -> dict[str, list[str]]:
    """Return distinct pairs of a county and an industry."""
    chosen = np.sort(generator.choice(len(COUNTIES) * len(INDUSTRIES), groups, replace=False))
    return {
        "county": [COUNTIES[i // len(INDUSTRIES)] for i in chosen],
        "naics3": [INDUSTRIES[i % len(INDUSTRIES)] for i in chosen],
    }
