"""A release as readers get it: its columns with their titles, units and descriptions, in one of two profiles.

"research" has the numbers as they were released. "basic" has rounded estimates, intervals, coefficients of variation
and reliability flags. Both are computed from the release alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slowscale.core.arrays import to_numpy
from slowscale.core.errors import ParameterError, ParameterTypeError
from slowscale.core.numbers import grid, percent
from slowscale.publish.publication import NEGATIVE_FLAG, PROFILES, ColumnLabel, Publication, label_text, nearest
from slowscale.publish.rounding import round_to
from slowscale.release.table import ReleasedSums

CV_SLACK = 1e-12  # relative to a coefficient of variation: it is not rounded up because of an error of floats
CELLS_TITLE, CELLS_WORDS = "Cells added up", "How many published cells were added up."
LABELS_NAMED = 3  # the most labels without a name that an error lists


@dataclass(frozen=True)
class PublishedColumn:
    """A column of a published table.

    Attributes
    ----------
    name, values
        The name of the column in files, and its values.
    role
        "key", "name" (of a key), "estimate", "se", "low", "high", "transformed", "cv", "flag", or "other".
    of
        The key column or the released column that it belongs to.
    title, unit, description
        The title, the unit of measure (or None), and what the values are.
    step
        What the values are multiples of; None if nothing is known.
    short
        The heading below the title of an estimate that the column belongs to; empty if it belongs to none.
    """

    name: str
    values: Any
    role: str
    of: str
    title: str
    unit: str | None
    description: str
    step: Fraction | None = None
    short: str = ""

    @property
    def heading(self) -> str:
        """The title with the unit of measure."""
        return self.title if self.unit is None else f"{self.title} ({self.unit})"


@dataclass(frozen=True)
class PublishedTable:
    """A table that is published, with its title and its columns, in one of the profiles."""

    name: str
    title: str
    profile: str
    release: ReleasedSums
    columns: tuple[PublishedColumn, ...]

    def __len__(self) -> int:
        return len(self.release)

    @property
    def keys(self) -> list[str]:
        """The names of the key columns."""
        return [column.name for column in self.columns if column.role == "key"]

    def arrow(self) -> pa.Table:
        """Return the table in Arrow, with titles, units and descriptions in the metadata of its fields."""
        fields = []
        for column in self.columns:
            words = {"title": column.title, "unit": column.unit, "description": column.description, "role": column.role}
            metadata = {name: text for name, text in words.items() if text is not None}
            fields.append(pa.field(column.name, column.values.type, metadata=metadata))
        return pa.Table.from_arrays([column.values for column in self.columns], schema=pa.schema(fields))


def published_tables(
    releases: Mapping[str, ReleasedSums], publication: Publication, profile: str
) -> tuple[PublishedTable, ...]:
    """Return tables, by name, as tables of a profile."""
    if not isinstance(publication, Publication):
        raise ParameterTypeError("publication", allowed="a Publication", given=type(publication))
    if profile not in PROFILES:
        raise ParameterError("profile", allowed=f"one of {', '.join(PROFILES)}", given=profile)
    if not releases:
        raise ParameterError("nothing to publish: the release has no table of sums")
    for release in releases.values():
        publication.check_titles([*release.facts.columns, *release.facts.ratios])
    known = {name for release in releases.values() for name in release.table.column_names}
    check_columns_of(publication, known)
    build = _basic if profile == "basic" else _research
    return tuple(
        PublishedTable(
            name,
            publication.table_title(name, several=len(releases) > 1),
            profile,
            release,
            tuple(build(release, publication)),
        )
        for name, release in releases.items()
    )


def check_columns_of(publication: Publication, known: "set[str]") -> None:
    """Raise if a publication has a label, a step or a rule for a column that is not published."""
    for field in ("columns", "rounding", "negatives"):
        given = getattr(publication, field)
        for name in given if isinstance(given, Mapping) else ():
            if name not in known:
                raise ParameterError(f"{field}: {name!r}", f"is not a published column{nearest(name, sorted(known))}")


def check_codes(publication: Publication, column: str, labels: Any) -> None:
    """Raise if a publication has names for labels of a key column, but not for all that are published."""
    if column not in publication.codes:
        return
    without = [text for label in labels if (text := label_text(label)) not in publication.codes[column]]
    if without:
        shown = ", ".join(map(repr, without[:LABELS_NAMED])) + ", …" * (len(without) > LABELS_NAMED)
        raise ParameterError(
            f"codes[{column!r}]",
            f"must have a name for every published label, but has none for {len(without):,} of them: {shown}. Add "
            f"them, or leave codes[{column!r}] out",
        )


def _key_columns(release: ReleasedSums, publication: Publication) -> list[PublishedColumn]:
    """Return the key columns, each with the names of its labels beside it."""
    columns: list[PublishedColumn] = []
    taken = set(release.table.column_names)
    for key in release.facts.by:
        labels, title = release.table[key], publication.key_title(key)
        coded = key in publication.codes
        what = f"The code of: {title}." if coded else f"{title}."
        columns.append(PublishedColumn(key, labels, "key", key, title, None, what))
        if coded:
            different = labels.unique()
            check_codes(publication, key, different.to_pylist())
            names = pa.array([publication.key_name(key, label) for label in different.to_pylist()], pa.string())
            found = names.take(pc.index_in(labels, value_set=different))
            name = _free_name(f"{key}_name", taken)
            columns.append(
                PublishedColumn(name, found, "name", key, f"{title}, name", None, f"The name of the {title} in {key}.")
            )
    return columns


def _free_name(name: str, taken: set[str]) -> str:
    """Return a name that is not taken, and take it."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


@dataclass(frozen=True)
class _Estimate:
    """A released column or ratio."""

    name: str
    level: float
    approximate: bool
    unit: Fraction | None


def _estimates(release: ReleasedSums) -> list[_Estimate]:
    known = release.facts
    sums = [_Estimate(name, column.level, False, column.grid) for name, column in known.columns.items()]
    return [*sums, *(_Estimate(name, ratio.level, ratio.approximate, None) for name, ratio in known.ratios.items())]


def _short(role: str, level: str) -> str:
    """Return the heading of a column below the title of its estimate."""
    return {
        "estimate": "Estimate",
        "se": "Standard error",
        "low": f"Lower end, {level}",
        "high": f"Upper end, {level}",
        "transformed": "Transformed",
        "cv": "Coefficient of variation, %",
        "flag": "Reliability",
    }[role]


def _end_words(estimate: _Estimate, end: str) -> str:
    chance = f"{'about ' * estimate.approximate}{percent(estimate.level)}"
    return (
        f"The {end} end of an interval that holds the true value with a probability of {chance}. It is missing if the "
        "interval has no such end."
    )


def _research(release: ReleasedSums, publication: Publication) -> list[PublishedColumn]:
    """Return the columns of the profile "research": all that was released."""
    columns, known = _key_columns(release, publication), release.facts
    for estimate in _estimates(release):
        name, label = estimate.name, publication.label(estimate.name)
        level = percent(estimate.level)
        parts = {
            "": ("estimate", label.title, _what(label.description, "The estimate, as it was released.")),
            "_se": ("se", f"{label.title}, standard error", "The standard error of the estimate."),
            "_low": ("low", f"{label.title}, lower end of the {level} interval", _end_words(estimate, "lower")),
            "_high": ("high", f"{label.title}, upper end of the {level} interval", _end_words(estimate, "upper")),
            "_transformed": (
                "transformed",
                f"{label.title}, transformed",
                "The transformed sum with its noise, which the estimate and the interval are computed from.",
            ),
        }
        if estimate.unit is None or f"{name}_transformed" in {*known.columns, *known.ratios}:
            del parts["_transformed"]  # a ratio has none, and a column that is called so is another one
        for suffix, (role, title, words) in parts.items():
            if name + suffix in release.table.column_names:
                unit = None if role == "transformed" else label.unit
                step = None if role in ("se", "transformed") else estimate.unit
                values, short = release.table[name + suffix], _short(role, level)
                columns.append(PublishedColumn(name + suffix, values, role, name, title, unit, words, step, short))
    keys = sum(column.role in ("key", "name") for column in columns)
    order = release.table.column_names
    rest = [*columns[keys:], *_others(release, publication)]
    return [*columns[:keys], *sorted(rest, key=lambda column: order.index(column.name))]


def _others(release: ReleasedSums, publication: Publication) -> list[PublishedColumn]:
    """Return the columns of a release that are neither keys nor belong to an estimate, such as numbers of cells."""
    known = set(release.facts.by)
    for estimate in _estimates(release):
        known |= {estimate.name + suffix for suffix in ("", "_se", "_low", "_high", "_transformed")}
    found = []
    for name in release.table.column_names:
        if name not in known:
            rollup = release.facts.rollup
            counts = rollup.number == name if rollup else False
            label = ColumnLabel(CELLS_TITLE) if counts and name not in publication.columns else publication.label(name)
            words = label.description or (CELLS_WORDS if counts else f"{label.title}.")
            found.append(PublishedColumn(name, release.table[name], "other", name, label.title, label.unit, words))
    return found


def _what(description: str | None, words: str) -> str:
    return words if description is None else f"{description.rstrip('.')}. {words}"


def _basic(release: ReleasedSums, publication: Publication) -> list[PublishedColumn]:
    """Return the columns of the profile "basic": rounded, with coefficients of variation and flags."""
    columns = _key_columns(release, publication)
    taken = set(release.table.column_names)
    for estimate in _estimates(release):
        columns += _basic_estimate(release, publication, estimate, taken)
    return [*columns, *_others(release, publication)]


def _basic_estimate(
    release: ReleasedSums, publication: Publication, estimate: _Estimate, taken: set[str]
) -> list[PublishedColumn]:
    name, label, rule = estimate.name, publication.label(estimate.name), publication.negative(estimate.name)
    step = publication.step(name, ratio=estimate.unit is None)
    value, low, high = (release.table[name + suffix] for suffix in ("", "_low", "_high"))
    numbers, errors = (to_numpy(release.table[name + suffix].cast(pa.float64(), safe=False)) for suffix in ("", "_se"))
    below = numbers < 0
    tenths = cv_tenths(numbers, errors)
    flags = reliability(tenths, publication)
    hidden = below if rule == "zero" else np.zeros(len(below), bool)
    tenths = np.where(hidden, np.inf, tenths)
    flags = np.where(hidden, publication.flags[-1], np.where(below & (rule == "flag"), NEGATIVE_FLAG, flags))
    shown = [_rounded(column, step, side) for column, side in zip((value, low, high), (0, -1, 1), strict=True)]
    if rule == "zero":
        shown = [_raised(column) for column in shown]
    rounded = "" if step is None else f", rounded to a multiple of {grid(step)}"
    outward = "" if step is None else f" It is rounded outwards to a multiple of {grid(step)}."
    on = step or estimate.unit
    level = percent(estimate.level)
    known = np.isfinite(tenths)
    cv = pa.array(np.where(known, tenths, 0.0) / 10, mask=~known)
    flag = pa.array(flags.tolist(), pa.string(), mask=np.isnan(numbers))
    zero = " Negative estimates are shown as 0." if rule == "zero" else ""
    described: list[tuple[str, Any, str, str, str | None, str, Fraction | None]] = [
        (
            name,
            shown[0],
            "estimate",
            label.title,
            label.unit,
            f"{_what(label.description, f'The estimate{rounded}.')}{zero}",
            on,
        ),
        (
            f"{name}_low",
            shown[1],
            "low",
            f"{label.title}, lower end of the {level} interval",
            label.unit,
            _end_words(estimate, "lower") + outward,
            on,
        ),
        (
            f"{name}_high",
            shown[2],
            "high",
            f"{label.title}, upper end of the {level} interval",
            label.unit,
            _end_words(estimate, "upper") + outward,
            on,
        ),
        (
            _free_name(f"{name}_cv", taken),
            cv,
            "cv",
            f"{label.title}, coefficient of variation",
            "%",
            CV_WORDS,
            Fraction(1, 10),
        ),
        (
            _free_name(f"{name}_flag", taken),
            flag,
            "flag",
            f"{label.title}, reliability",
            None,
            f"The reliability of the estimate: {flag_words(publication, rule)}.",
            None,
        ),
    ]
    return [
        PublishedColumn(column, values, role, name, title, unit, words, multiple, _short(role, level))
        for column, values, role, title, unit, words, multiple in described
    ]


CV_WORDS = (
    "The standard error in percent of the unrounded estimate, rounded up to a multiple of 0.1. It is missing if the "
    "estimate is 0 or shown as 0."
)


def flag_words(publication: Publication, rule: str) -> str:
    """Return what each flag means."""
    limits = [f"{limit:g} %" for limit in publication.cv_limits]
    ranges = [f"up to {limit}" for limit in limits] + ([f"above {limits[-1]}, or none"] if limits else ["any"])
    words = [
        f'"{flag}" with a coefficient of variation {where}'
        for flag, where in zip(publication.flags, ranges, strict=True)
    ]
    if rule == "flag":
        words.append(f'"{NEGATIVE_FLAG}" for an estimate below 0, which the noise can cause')
    return "; ".join(words)


def cv_tenths(estimates: Any, errors: Any) -> Any:
    """Return coefficients of variation in tenths of a percent, rounded up; infinite if there is none."""
    with np.errstate(all="ignore"):
        exact = 1000 * errors / np.abs(estimates)
        found = np.ceil(exact * (1 - CV_SLACK))
    return np.where(np.isfinite(found), found, np.inf)


def reliability(tenths: Any, publication: Publication) -> Any:
    """Return the flag of each coefficient of variation: the first whose limit is not exceeded."""
    limits = [round(10 * limit) for limit in publication.cv_limits]
    return np.array(publication.flags, object)[np.searchsorted(limits, tenths, side="left")]


def _rounded(column: Any, step: Fraction | None, side: int) -> Any:
    return finite(column) if step is None else round_to(column, step, side)


def finite(column: Any) -> Any:
    """Return a column in which numbers that are not finite are missing."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))


def _raised(column: Any) -> Any:
    """Return a column in which negative numbers are 0."""
    zero = pa.scalar(0).cast(column.type)
    return pc.if_else(pc.less(column, zero), zero, column)
