"""A release as readers get it: its columns with their titles, units and descriptions, in one of two profiles.

"research" has the numbers as they were released. "basic" has rounded estimates, intervals, coefficients of variation
and reliability flags. Both are computed from the release alone.

Rounding is exact. Halves are rounded to the even multiple of the step, which adds no bias. A float stands for the
shortest decimal number that it is nearest to, as it is written in files: 0.15 is exactly halfway between 0.1 and 0.2.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slowscale.core.arrays import to_numpy
from slowscale.core.errors import ParameterError, ParameterTypeError
from slowscale.core.numbers import grid, percent
from slowscale.mechanisms.grid import compact
from slowscale.publish.publication import NEGATIVE_FLAG, PROFILES, ColumnLabel, Publication, label_text, nearest
from slowscale.release.describing import CELLS_WORDS, SUFFIXES, Described, describe_columns
from slowscale.release.numbers import number_column
from slowscale.release.table import ReleasedSums

CV_SLACK = 1e-12  # relative to a coefficient of variation: it is not rounded up because of an error of floats
CELLS_TITLE = "Cells added up"
SMALL_STEP = 2**61  # twice a remainder by such a step fits in 64 bits
TIE_WIDTH = 1e-9  # relative to a quotient: nearer to where rounding changes, floats are rounded as exact numbers
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
        The title, the unit of measure (or None), and a description of the values.
    step
        The values are multiples of this step; None if that is not known.
    short
        The heading below the title of the estimate that the column belongs to; empty if it belongs to none.
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
        raise ParameterError("profile", allowed=PROFILES, given=profile)
    if not releases:
        raise ParameterError("release", "has no table of sums to publish", code="empty")
    for release in releases.values():
        publication.check_titles([*release.facts.columns, *release.facts.ratios])
    known = sorted({name for release in releases.values() for name in release.column_names})
    for field in ("columns", "rounding", "negatives"):
        given = getattr(publication, field)
        for name in given if isinstance(given, Mapping) else ():
            if name not in known:
                words, remedy = "is not a published column", nearest(name, known)
                raise ParameterError(f"{field}: {name!r}", words, code="unknown-column", remedy=remedy)
    build = _basic if profile == "basic" else _research
    titles = {name: publication.table_title(name, several=len(releases) > 1) for name in releases}
    return tuple(
        PublishedTable(name, titles[name], profile, release, tuple(build(release, publication)))
        for name, release in releases.items()
    )


def check_codes(publication: Publication, column: str, labels: Any) -> None:
    """Raise if a publication has names for labels of a key column, but not for all that are published."""
    if column not in publication.codes:
        return
    without = [text for label in labels if (text := label_text(label)) not in publication.codes[column]]
    if without:
        shown = ", ".join(map(repr, without[:LABELS_NAMED])) + ", …" * (len(without) > LABELS_NAMED)
        words = f"must have a name for every published label, but has none for {len(without):,} of them: {shown}"
        raise ParameterError(f"codes[{column!r}]", words, code="missing", remedy="add them, or leave it out")


def _key_columns(release: ReleasedSums, publication: Publication) -> list[PublishedColumn]:
    """Return the key columns, each with the names of its labels beside it."""
    columns: list[PublishedColumn] = []
    taken = set(release.column_names)
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
    unit: Fraction | None
    label: ColumnLabel
    described: Mapping[str, Described]

    def column(
        self, role: str, name: str, values: Any, *, words: str = "", unit: str | None, step: Fraction | None
    ) -> PublishedColumn:
        """Return the estimate itself or a column that belongs to it, with more words about its values."""
        level = percent(self.level)
        if role in ("low", "high"):
            end = {"low": "Lower", "high": "Upper"}[role]
            short, title = f"{end} end, {level}", f", {end.lower()} end of the {level} interval"
        else:
            short, title = COLUMN_TITLES[role]
        about = [self.described[self.name + SUFFIXES[role]].text] if role in SUFFIXES else []
        if role == "estimate" and self.label.description is not None:
            about = [f"{self.label.description.rstrip('.')}.", *about]
        text = " ".join([*about, *[words] * bool(words)])
        return PublishedColumn(name, values, role, self.name, self.label.title + title, unit, text, step, short)


# The short heading and the end of the title.
COLUMN_TITLES = {
    "estimate": ("Estimate", ""),
    "se": ("Standard error", ", standard error"),
    "transformed": ("Transformed", ", transformed"),
    "cv": ("Coefficient of variation, %", ", coefficient of variation"),
    "flag": ("Reliability", ", reliability"),
}


def described_columns(release: ReleasedSums, publication: Publication, large: bool = True) -> dict[str, Described]:
    """Return what each column is, with the titles and units of a publication; with the errors of large sums, or not."""
    facts = release.facts
    labels = {name: publication.label(name) for name in (*facts.columns, *facts.ratios)}
    titles = {name: label.title for name, label in labels.items()} | {
        key: publication.key_title(key) for key in facts.by
    }
    units = {name: label.unit for name, label in labels.items()}
    return describe_columns(facts, release.table if large else None, units, titles)


def _estimates(release: ReleasedSums, publication: Publication) -> list[_Estimate]:
    known, label, described = release.facts, publication.label, described_columns(release, publication)
    sums = [_Estimate(name, one.level, one.grid, label(name), described) for name, one in known.columns.items()]
    ratios = [_Estimate(name, one.level, None, label(name), described) for name, one in known.ratios.items()]
    return [*sums, *ratios]


def _research(release: ReleasedSums, publication: Publication) -> list[PublishedColumn]:
    """Return the columns of the profile "research": all that were released."""
    keys, columns, known = _key_columns(release, publication), _others(release, publication), release.facts
    for estimate in _estimates(release, publication):
        suffixes = dict(SUFFIXES)
        if estimate.unit is None or f"{estimate.name}_transformed" in {*known.columns, *known.ratios}:
            del suffixes["transformed"]  # a ratio has none, and a column of this name is another one
        for role, suffix in suffixes.items():
            name = estimate.name + suffix
            if name in release.column_names:
                unit = None if role == "transformed" else estimate.label.unit
                step = None if role in ("se", "transformed") else estimate.unit
                columns.append(estimate.column(role, name, release.table[name], unit=unit, step=step))
    order = release.column_names
    return [*keys, *sorted(columns, key=lambda column: order.index(column.name))]


def _others(release: ReleasedSums, publication: Publication) -> list[PublishedColumn]:
    """Return the columns of a release that are neither keys nor belong to an estimate, such as numbers of cells."""
    known = set(release.facts.by)
    for name in (*release.facts.columns, *release.facts.ratios):
        known |= {name + suffix for suffix in ("", "_se", "_low", "_high", "_transformed")}
    found = []
    for name in release.column_names:
        if name not in known:
            rollup = release.facts.rollup
            counts = rollup.number == name if rollup else False
            label = ColumnLabel(CELLS_TITLE) if counts and name not in publication.columns else publication.label(name)
            words = label.description or (CELLS_WORDS if counts else f"{label.title}.")
            found.append(PublishedColumn(name, release.table[name], "other", name, label.title, label.unit, words))
    return found


def _basic(release: ReleasedSums, publication: Publication) -> list[PublishedColumn]:
    """Return the columns of the profile "basic": rounded, with coefficients of variation and flags."""
    columns = _key_columns(release, publication)
    taken = set(release.column_names)
    for estimate in _estimates(release, publication):
        columns += _basic_estimate(release, publication, estimate, taken)
    return [*columns, *_others(release, publication)]


def _basic_estimate(
    release: ReleasedSums, publication: Publication, estimate: _Estimate, taken: set[str]
) -> Iterator[PublishedColumn]:
    name, unit, rule = estimate.name, estimate.label.unit, publication.negative(estimate.name)
    step = publication.step(name, ratio=estimate.unit is None)
    numbers, errors = (to_numpy(release.table[name + suffix].cast(pa.float64(), safe=False)) for suffix in ("", "_se"))
    below = numbers < 0
    tenths = cv_tenths(numbers, errors)
    flags = reliability(tenths, publication)
    hidden = below if rule == "zero" else np.zeros(len(below), bool)
    tenths = np.where(hidden, np.inf, tenths)
    flags = np.where(hidden, publication.flags[-1], np.where(below & (rule == "flag"), NEGATIVE_FLAG, flags))
    for role, suffix, side in (("estimate", "", 0), ("low", "_low", -1), ("high", "_high", 1)):
        released = release.table[name + suffix]
        shown = finite(released) if step is None else round_to(released, step, side)
        if rule == "zero":
            zero = pa.scalar(0).cast(shown.type)
            shown = pc.if_else(pc.less(shown, zero), zero, shown)
        if role == "estimate":
            words = "Negative estimates are shown as 0." if rule == "zero" else ""
            if step is not None:
                adds = f"Rounded to a multiple of {grid(step)}, which adds up to {grid(step / 2)} to the error."
                words = f"{adds} {words}".strip()
        else:
            words = "" if step is None else f"Rounded outwards to a multiple of {grid(step)}."
        yield estimate.column(role, name + suffix, shown, words=words, unit=unit, step=step or estimate.unit)
    known = np.isfinite(tenths)
    cv, column = pa.array(np.where(known, tenths, 0.0) / 10, mask=~known), _free_name(f"{name}_cv", taken)
    yield estimate.column("cv", column, cv, words=CV_WORDS, unit="%", step=Fraction(1, 10))
    flag, column = pa.array(flags.tolist(), pa.string(), mask=np.isnan(numbers)), _free_name(f"{name}_flag", taken)
    yield estimate.column(
        "flag",
        column,
        flag,
        words=f"The reliability of the estimate: {flag_words(publication, rule)}.",
        unit=None,
        step=None,
    )


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


def finite(column: Any) -> Any:
    """Return a column in which numbers that are not finite are missing."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))


def round_to(column: Any, step: Fraction, side: int = 0) -> Any:
    """Return a column rounded to multiples of a step: to nearest, or down (side −1) or up (side 1).

    Numbers that are missing or not finite become missing.
    """
    whole = not pa.types.is_floating(column.type)
    if whole and step.numerator == 1:  # whole numbers are multiples of such a step
        return column
    if not whole:
        numbers = to_numpy(column.fill_null(math.nan))
        known = np.isfinite(numbers)
        multiples = _float_multiples(np.where(known, numbers, 0.0), step, side)
    else:
        known = np.asarray(column.is_valid())
        filled = column.fill_null(0)
        small = pa.types.is_int64(column.type)
        numbers = to_numpy(filled) if small else np.array([int(number) for number in filled.to_pylist()], object)
        multiples = _whole_multiples(numbers, step, side)
    found = number_column(multiples, step, side)
    return found if known.all() else pc.if_else(pa.array(known), found, pa.scalar(None, found.type))


def _whole_multiples(numbers: Any, step: Fraction, side: int) -> Any:
    """Return the number of steps that whole numbers are rounded to."""
    size = step.numerator
    if numbers.dtype == object or step.denominator != 1 or size >= SMALL_STEP:
        return compact(np.array([_nearest_multiple(Fraction(int(n)), step, side) for n in numbers], object))
    below, rest = np.divmod(numbers, size)
    if side < 0:
        return below
    if side > 0:
        return below + (rest > 0)
    return below + ((2 * rest > size) | ((2 * rest == size) & (below % 2 == 1)))


def _float_multiples(numbers: Any, step: Fraction, side: int) -> Any:
    """Return the number of steps that floats are rounded to."""
    with np.errstate(all="ignore"):
        quotients = numbers / float(step)
        changes = np.floor(quotients) + 0.5 if side == 0 else np.rint(quotients)
        clear = (numbers == 0) | (np.abs(quotients - changes) > TIE_WIDTH * np.maximum(1, np.abs(quotients)))
    rounding = {-1: np.floor, 0: np.rint, 1: np.ceil}[side]
    found = np.where(clear, rounding(quotients), 0).astype(np.int64).astype(object)
    for i in np.flatnonzero(~clear):
        found[i] = _nearest_multiple(Fraction(repr(float(numbers[i]))), step, side)
    return compact(found)


def _nearest_multiple(number: Fraction, step: Fraction, side: int) -> int:
    quotient = number / step
    return math.floor(quotient) if side < 0 else math.ceil(quotient) if side > 0 else round(quotient)
