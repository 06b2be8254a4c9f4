"""The columns that the study sums, and the mechanisms that are calibrated to them.

The columns are the paper's four attributes, simulated, or columns of a table that the user gives.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import slowscale as ss
from slowscale.core.data_errors import Name
from slowscale.core.errors import ConfidentialWarning, DataError, ParameterError
from slowscale.core.parameters import Array
from slowscale.mechanisms import same_error

Integers = npt.NDArray[np.int64]
Source = Literal["CBP", "cattle", "given"]


@dataclass(frozen=True, eq=False)
class Attribute:
    """A column to sum.

    Attributes
    ----------
    name, unit_words
        The name, and the unit, such as "employees".
    source
        The data set. The paper makes some claims about its CBP data, and others about its cattle data.
    values, starts
        The values of the records, cell by cell: `values[starts[i] : starts[i + 1]]` belong to cell i. The cells are in
        ascending order of their sums.
    left_out
        The number of records without a value.
    """

    name: str
    unit_words: str
    source: Source
    values: Array
    starts: Integers
    left_out: int = 0

    @cached_property
    def sums(self) -> Array:
        """The sum of each cell."""
        return np.add.reduceat(self.values, self.starts)

    def clipped_sums(self, threshold: float) -> Array:
        """Return the sum of each cell if records are reduced to a threshold."""
        return np.add.reduceat(np.minimum(self.values, threshold), self.starts)

    @cached_property
    def distinct(self) -> Array:
        """The different values of the records, ascending."""
        return np.unique(self.values)

    @cached_property
    def median(self) -> float:
        """The median of the records."""
        return float(np.median(self.values))

    @cached_property
    def largest(self) -> float:
        """The largest record."""
        return float(self.values.max())

    @cached_property
    def summary(self) -> dict[str, float]:
        """The statistics of the paper's Table summary-stats."""
        low, first, middle, third, high = np.quantile(self.values, [0, 0.25, 0.5, 0.75, 1]).tolist()
        mean, count = float(self.values.mean()), len(self.values)
        names = ("min", "1st quartile", "median", "mean", "3rd quartile", "max", "N")
        return dict(zip(names, (low, first, middle, mean, third, high, count), strict=True))


# From Table summary-stats of the paper.
PRINTED_SUMMARIES = {
    "EMP": (0, 1, 2, 17, 9, 19_589, 323_402),
    "PAYQTR1": (0, 7, 25, 239, 93, 402_324, 323_402),
    "PAYANN": (0, 30, 106, 919, 388, 1_553_359, 323_402),
    "Cattle": (100, 3_100, 10_200, 22_480, 26_000, 1_341_000, 5_926),
}


def paper_attributes() -> list[Attribute]:
    """Return the four attributes of the paper's experiments, on simulated data."""
    from slowscale import datasets

    business, cattle = datasets.establishments(), datasets.cattle()
    units = {"EMP": "employees", "PAYQTR1": "thousand dollars", "PAYANN": "thousand dollars"}
    found = [
        _attribute(business, name.lower(), ["county", "naics3"], name, words, "CBP") for name, words in units.items()
    ]
    return [*found, _attribute(cattle, "cattle", ["state"], "Cattle", "head of cattle", "cattle")]


def given_attributes(path: str | Path, values: Sequence[str], by: Sequence[str]) -> list[Attribute]:
    """Return columns of the user's own table. Records without a value are left out.

    Parameters
    ----------
    path
        A file that `Session` can read.
    values
        The columns to sum.
    by
        The columns whose combinations are the cells.
    """
    from slowscale.data.guessing import guess_types
    from slowscale.data.sources import open_table

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfidentialWarning)  # the study says that all its results are confidential
        guess = guess_types(str(path))
    source = open_table(str(path), guess, guess.csv)
    for option, names in (("value", values), ("by", by)):
        if not names:
            raise ParameterError(option, "must name at least one column", code="empty", path=(option,))
        for name in names:
            if name not in source.columns:
                raise ParameterError(
                    *(option, "must name columns of the data"), code="unknown-column", path=(option,), given=name,
                    remedy=f"there are {', '.join(source.columns)}",
                )  # fmt: skip
    table = source.select(*dict.fromkeys([*by, *values])).to_pyarrow()
    return [_attribute(table, name, by, name, "", "given") for name in values]


def _attribute(
    table: pa.Table, column: str, by: Sequence[str], name: str, unit_words: str, source: Source
) -> Attribute:
    """Return one column of a table with its cells, or raise an error if it cannot be studied."""
    dtype = table.schema.field(column).type
    if not (pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype)):
        raise DataError("not-numbers", column=Name(column), dtype=Name(dtype))
    kept = table.filter(pc.is_valid(table[column]))
    values = kept[column].cast(pa.float64(), safe=False).to_numpy()
    if len(values) < 5 or not np.isfinite(values).all() or values.min() < 0 or not np.median(values) > 0:
        raise DataError("not-studied", column=Name(column))
    cells = np.zeros(len(kept), np.int64)  # the number of the cell of each row
    for key in by:
        codes = pc.fill_null(kept[key].combine_chunks().dictionary_encode().indices, -1).to_numpy()
        cells = np.unique(cells * (int(codes.max()) + 2) + codes + 1, return_inverse=True)[1]
    sums = np.bincount(cells, values)
    count, positive = len(sums), int((sums > 0).sum())
    if positive < 5:
        raise DataError("few-cells", column=Name(column), cells=positive)
    by_size = np.argsort(sums, kind="stable")
    place = np.empty_like(by_size)
    place[by_size] = np.arange(count)
    order = np.argsort(place[cells], kind="stable")
    starts = np.searchsorted(place[cells][order], np.arange(count))
    return Attribute(name, unit_words, source, values[order], starts, len(table) - len(kept))


ADDITIVE = ("Gaussian", "generalized Gaussian 1/2", "exponential polylog 2")
TRANSFORMATION = ("Gaussian", "fourth root", "log")  # the identity transformation is the Gaussian mechanism
KINDS = {"additive": ADDITIVE, "transformation": TRANSFORMATION}
NAMES = tuple(dict.fromkeys([*ADDITIVE, *TRANSFORMATION]))
# The parameter that the paper solves for, and its printed values (Table experiment-params).
FREE = dict(zip(NAMES, ("sigma", "sigma", "d", "sigma", "sigma"), strict=True))
PRINTED_PARAMETERS = {
    "Cattle": (7212, 658, 0.113, 1.67, 0.637),
    "EMP": (1.41, 0.129, 0.595, 0.198, 0.448),
    "PAYQTR1": (17.7, 1.61, 0.337, 0.372, 0.616),
    "PAYANN": (75, 6.84, 0.231, 0.534, 0.632),
}


def experiment_mechanisms(attribute: Attribute) -> dict[str, ss.Mechanism]:
    """Return the mechanisms by name: a standard deviation of √½ medians, for a sum equal to the median.

    The polylog has the scale 1, as in the paper, whatever the median is.
    """
    found = same_error(std=math.sqrt(0.5) * attribute.median, at=attribute.median, sigma=1.0)
    return {name: found[name] for name in NAMES}


def printed_mechanisms(attribute: Attribute) -> dict[str, ss.Mechanism]:
    """Return the mechanisms with the parameters that the paper prints for one of its attributes."""
    printed = dict(zip(NAMES, PRINTED_PARAMETERS[attribute.name], strict=True))
    return {
        name: ss.Mechanism.from_dict({**mechanism.to_dict(), FREE[name]: printed[name]})
        for name, mechanism in experiment_mechanisms(attribute).items()
    }


def mechanisms_with_printed_d(attribute: Attribute) -> dict[str, ss.Mechanism]:
    """Return the mechanisms with the d of the polylog that the paper prints, which does not follow from its rule."""
    polylog = NAMES[2]
    return experiment_mechanisms(attribute) | {polylog: printed_mechanisms(attribute)[polylog]}


@dataclass(frozen=True)
class Parameter:
    """A calibrated parameter beside the printed one."""

    attribute: str
    mechanism: str
    name: str
    found: float
    printed: float
    target_std: float
    printed_std: float

    @property
    def agrees(self) -> bool:
        """Whether the printed value is the found one, rounded."""
        digits = f"{self.printed:g}"
        places = len(digits.partition(".")[2])
        return abs(self.printed - self.found) <= 0.5 * 10.0**-places * (1 + 1e-9)


def parameter_table(attribute: Attribute, mechanisms: dict[str, ss.Mechanism]) -> list[Parameter]:
    """Return the parameters of an attribute of the paper, found and printed; none for other attributes."""
    rows: list[Parameter] = []
    if attribute.source == "given":
        return rows
    for name, as_printed in printed_mechanisms(attribute).items():
        mechanism, free = mechanisms[name], FREE[name]
        values = float(getattr(mechanism, free)), float(getattr(as_printed, free))
        stds = mechanism.std(attribute.median), as_printed.std(attribute.median)
        rows.append(Parameter(attribute.name, name, free, *values, *stds))
    return rows
