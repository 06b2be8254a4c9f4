"""What the columns of published tables are, and how wrong their numbers can be: in words, the same in all files.

Everything here follows from public facts: the noise is known, and so is how often it is large.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
import pyarrow as pa

from slowscale.accounting.charge import read_mechanism
from slowscale.core.errors import ParameterError
from slowscale.core.numbers import ERROR_DIGITS, error_figure, format_number, percent, rounded
from slowscale.mechanisms import Mechanism, TransformationMechanism
from slowscale.mechanisms.additive import AdditiveMechanism
from slowscale.release.facts import ColumnFacts, QuantilesFacts, TableFacts
from slowscale.release.numbers import as_floats
from slowscale.release.table import released_by

USUAL_SHARE, RARE_SHARE = 0.95, 1e-3  # the share of cells within the usual error, and of those beyond the rare one
NEGLIGIBLE_PART = 1e-6  # relative to an error: ± 100,000.01 is ± 100,000
SUFFIXES = {"estimate": "", "se": "_se", "low": "_low", "high": "_high", "transformed": "_transformed"}
CELLS_WORDS = "How many published cells were added up."


@dataclass(frozen=True)
class CellError:
    """How far a published number is from a true sum.

    Attributes
    ----------
    at
        The true sum.
    std
        The standard error, rounding included; infinite if there is none.
    usual
        At least 95 % of the errors are at most this, in absolute value.
    half
        Half the length of the interval that holds the middle 95 % of the published numbers.
    rare
        One error in 1,000 is larger than this, or fewer where the noise is not much wider than the unit. Rounding to
        the unit is included in all errors.
    grows
        Whether the error depends on the true sum.
    """

    at: float
    std: float
    usual: float
    half: float
    rare: float
    grows: bool

    def text(self, error: float) -> str:
        """Write an error: relative to the true sum if it grows with it, rounded up, such as "± 12 %"."""
        if not self.grows or self.at == 0 or not math.isfinite(error):
            return f"± {error_figure(error)}"
        return f"± {format_number(float(rounded(rounded(100 * error / self.at, ERROR_DIGITS), 2, 1)))} %"


@lru_cache(maxsize=1024)
def cell_error(mechanism: Mechanism, unit: Fraction, on_grid: bool, at: float = 0.0) -> CellError | None:
    """Return the errors of published numbers with this true sum, or None if they cannot be computed."""
    with np.errstate(all="ignore"):
        try:
            std = float(mechanism._error_at(at, unit, on_grid))
            if isinstance(mechanism, AdditiveMechanism):
                found = [mechanism._half_steps(unit, level, on_grid) for level in (USUAL_SHARE, 1 - RARE_SHARE)]
                usual, rare = (math.inf if steps is None else float(steps * unit) for steps in found)
                return CellError(at, std, usual, usual, rare, grows=False)
            assert isinstance(mechanism, TransformationMechanism)
            low, high = mechanism.prediction_interval(at, USUAL_SHARE)
            usual, half = max(at - low, high - at), (high - low) / 2
            rare = mechanism._error_within(at, 1 - RARE_SHARE)
        except (ParameterError, ValueError, ArithmeticError):  # beyond what floats hold, or a user function fails
            return None
    if not math.isfinite(usual + rare):
        return None
    # A sum that is a multiple of the unit is not farther from the next multiple than from the estimate.
    step = float(unit)
    usual, rare = (
        step * math.ceil(one / step * (1 - NEGLIGIBLE_PART)) if on_grid else one + step for one in (usual, rare)
    )
    return CellError(at, std, usual, half + step, rare, grows=True)


def large_sum(column: str, numbers: pa.Table) -> float | None:
    """Return a round number for a large sum of a table: the largest power of ten among the published numbers."""
    found = as_floats(numbers[column])
    most = float(np.max(found, initial=0.0, where=np.isfinite(found)))
    return 10.0 ** math.floor(math.log10(most) + 1e-12) if most >= 1 else None


def column_errors(name: str, column: ColumnFacts, numbers: pa.Table | None) -> list[CellError]:
    """Return the errors of a column of drawn numbers: of any sum or, if they grow, of an empty and of a large one.

    The large sum is one of the published numbers, if these are given.
    """
    mechanism = read_mechanism(column.mechanism)
    if mechanism is None or (small := cell_error(mechanism, column.grid, column.on_grid)) is None:
        return []
    large = large_sum(name, numbers) if small.grows and numbers is not None else None
    if large is None or large <= small.rare:
        return [small]
    found = cell_error(mechanism, column.grid, column.on_grid, large)
    return [small] if found is None else [small, found]


def error_sentences(errors: list[CellError]) -> Iterator[str]:
    """Yield how often errors are large, and why a standard error can be larger than half an interval."""
    for one in errors:
        cells = f"cells of {format_number(one.at)}" if one.at else "small cells" if one.grows else "cells"
        yield (
            f"{percent(USUAL_SHARE)} of {cells} are within {one.text(one.usual)} of the true sum, and at most 1 in "
            f"1,000 is off by more than {one.text(one.rare).removeprefix('± ')}."
        )
    if rare_errors_dominate(errors):
        yield HEAVY


def rare_errors_dominate(errors: list[CellError]) -> bool:
    """Whether rare large errors make the standard error of a column larger than half its 95 % intervals.

    An empty cell does not show it for a transformation, because there the estimates below the true sum are cut off.
    """
    known = [one for one in errors if one.at or not one.grows]
    return bool(known) and all(0 < one.half < one.std for one in known)


HEAVY = (
    f"Rare large errors make the standard error larger than half the {percent(USUAL_SHARE)} interval: most errors are "
    "much smaller. Use the interval, not multiples of the standard error."
)


WIDE_INTERVAL = (
    "The interval of a sum of several cells follows from bounds on its error, whose distribution is not known. It is "
    "usually much wider than the standard error suggests: most errors are much smaller than it allows."
)


@dataclass(frozen=True)
class Described:
    """What a column of a published table is: its role, the unit of measure of its values, and a description."""

    role: str
    of: str
    unit: str | None
    text: str

    def to_dict(self) -> dict[str, str]:
        """Return the unit, if there is one, and the description."""
        return {**({} if self.unit is None else {"unit": self.unit}), "description": self.text}


def describe_columns(
    facts: TableFacts,
    numbers: pa.Table | None = None,
    units: Mapping[str, str | None] | None = None,
    titles: Mapping[str, str] | None = None,
) -> dict[str, Described]:
    """Return what each column of a published table is, by its name: the one source for files and reports.

    Parameters
    ----------
    facts
        The public facts of the table.
    numbers
        The table, for errors at a large sum.
    units
        The units of measure of released columns, such as {"payann": "thousand USD"}.
    titles
        What released columns and key columns are called; by default their names.
    """
    units, titles = units or {}, titles or {}

    def title(name: str) -> str:
        return titles.get(name, name)

    found = {key: Described("key", key, None, f"{title(key)}: the label of the cell.") for key in facts.by}
    if facts.quantiles is not None:
        found |= _quantiles(facts.quantiles, units.get(facts.quantiles.column), title(facts.quantiles.column))
    for name, column in facts.columns.items():
        unit = units.get(name)
        what = "The number of records" if column.is_count else f"{title(name)}: the sum"
        texts = {"estimate": " ".join([_estimate(what, column, facts, unit), *_error_words(name, facts, numbers)])}
        texts |= {"se": f"The standard error of {title(name)}{_in(unit)}: {column.se}."}
        texts |= _interval(column.level, "sum" if column.kind == "sum" else "number", unit)
        if facts.rollup is not None and is_transformed(column):
            texts |= {role: f"{texts[role]} {WIDE_INTERVAL}" for role in ("low", "high")}
        if facts.rollup is None and is_transformed(column):
            texts["transformed"] = (
                f"The transformed sum of {title(name)} with its noise, from which the estimate and the interval are "
                "computed. It has no unit of measure."
            )
        found |= _parts(name, texts, unit)
    for name, ratio in facts.ratios.items():
        unit = units.get(name)
        what = f"{title(ratio.numerator)} / {title(ratio.denominator)}"
        texts = {
            "estimate": f"The ratio {what}{_in(unit)}, computed from the published numbers, which contain noise.",
            "se": f"The standard error of {title(name)}{_in(unit)}, approximate.",
            **_interval(ratio.level, "ratio", unit, ratio.approximate),
        }
        found |= _parts(name, texts, unit)
    if facts.rollup is not None:
        found[facts.rollup.number] = Described("other", facts.rollup.number, None, CELLS_WORDS)
    return found


def is_transformed(column: ColumnFacts) -> bool:
    """Whether sums were transformed, so that errors grow with them; True if facts cannot describe the mechanism."""
    made_by = released_by(column)
    return made_by is None or made_by._error_grows


def _parts(name: str, texts: Mapping[str, str], unit: str | None) -> dict[str, Described]:
    return {
        name + SUFFIXES[role]: Described(role, name, None if role == "transformed" else unit, text)
        for role, text in texts.items()
    }


def _in(unit: str | None) -> str:
    return "" if unit is None else f", in {unit}"


def _estimate(what: str, column: ColumnFacts, facts: TableFacts, unit: str | None) -> str:
    where = "in the cell" if facts.by else "in total"
    noise = "with random noise" if facts.rollup is None else "added up from published cells with random noise"
    return f"{what} {where}{_in(unit)}, {noise}.{clipped_words(column)}"


def clipped_words(column: ColumnFacts) -> str:
    """Return what was done with results below 0, after a space."""
    if not column.nonnegative:
        return ""
    words = " Results below 0 were raised to 0, which biases them upwards."
    return words if column.at_least is not None else f"{words} The errors stated are for true sums not below 0."


def _error_words(name: str, facts: TableFacts, numbers: pa.Table | None) -> Iterator[str]:
    """Yield how often the errors of a drawn column are large. Those of sums of cells are in their intervals."""
    if facts.rollup is None:
        yield from error_sentences(column_errors(name, facts.columns[name], numbers))


def _interval(level: float, true: str, unit: str | None, approximate: bool = False) -> dict[str, str]:
    """Return what the ends of an interval are."""
    about = "about " if approximate else ""
    return {
        role: f"The {end} end of the {percent(level)} interval{_in(unit)}: the true {true} lies between the two ends "
        f"in {about}{percent(level)} of cells. Missing or infinite if there is no such end."
        for role, end in (("low", "lower"), ("high", "upper"))
    }


def _quantiles(facts: QuantilesFacts, unit: str | None, title: str) -> dict[str, Described]:
    who = "records" if facts.entity is None else f"values of {facts.entity}"
    texts: dict[str, tuple[str | None, str]] = {
        "quantile": (None, "The name of the quantile."),
        "at": (None, f"The share of {who} that are smaller than the quantile."),
        "size": (unit, f"The quantile of the absolute values of {title}{_in(unit)}, drawn at random near that share."),
    }
    return {name: Described("other", name, of, text) for name, (of, text) in texts.items()}
