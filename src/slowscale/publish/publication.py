"""The publication as a value: title, source, labels, units of measure, code lists, and how numbers are shown."""

import csv
import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

from slowscale.core.errors import ParameterError, ParameterTypeError
from slowscale.core.parameters import as_number
from slowscale.core.typing import UnitLike
from slowscale.mechanisms.grid import as_unit

PROFILES = ("basic", "research")
NEGATIVES = ("flag", "zero", "keep")  # what the basic profile does with negative estimates
NEGATIVE_FLAG = "negative"


@dataclass(frozen=True)
class ColumnLabel:
    """What readers see in place of a column's name.

    Attributes
    ----------
    title
        The title, such as "Annual payroll".
    unit
        The unit of measure, such as "thousand USD"; None if the numbers have none.
    description
        A longer description.

    Examples
    --------
    >>> import slowscale as ss
    >>> print(ss.ColumnLabel("Annual payroll", "thousand USD"))
    Annual payroll (thousand USD)
    """

    title: str
    unit: str | None = None
    description: str | None = None

    def __post_init__(self) -> None:
        _check_text("title of a column", self.title)
        for name in ("unit", "description"):
            _check_text(f"{name} of the column {self.title!r}", getattr(self, name), optional=True)

    def __str__(self) -> str:
        return self.title if self.unit is None else f"{self.title} ({self.unit})"


LabelLike = ColumnLabel | str


@dataclass(frozen=True)
class Publication:
    """What a published table says besides its numbers, and how the profile "basic" shows these.

    Everything that is shown is computed from the published numbers, which contain noise, and never from the records.
    The texts, steps and limits are published, so they must be public knowledge.

    Parameters
    ----------
    title
        The title of the publication.
    source, period, contact
        Where the records come from, the period that they are about, and whom readers may ask.
    notes
        Further notes, each a paragraph.
    columns
        Titles and units of measure of the published columns: text, or a `ColumnLabel`.
    keys
        Titles of the key columns, such as {"state": "State"}.
    codes
        Names for the labels of key columns, such as {"state": {"01": "Alabama"}}. Every published label of such a
        column must have a name. `read_codes` reads them from a CSV file.
    tables
        Titles of the tables, if several are published together.
    rounding
        The step that estimates are rounded to in the profile "basic": one for all sums and counts, or one for each
        column. Ratios are rounded only if they are named. Halves are rounded to the even multiple. The ends of
        intervals are rounded outwards.
    cv_limits
        The highest coefficients of variation, in percent, of all flags but the last: multiples of 0.1 that increase.
    flags
        The reliability flags, one more than there are limits.
    negatives
        What the profile "basic" does with negative estimates, for all columns or for each: "flag" shows them with the
        flag "negative", "zero" shows 0 and is for numbers that are known not to be below 0, "keep" treats them like
        other estimates.

    Examples
    --------
    >>> import slowscale as ss
    >>> publication = ss.Publication(
    ...     "County business patterns",
    ...     source="Business register",
    ...     period="2024",
    ...     columns={"payann": ss.ColumnLabel("Annual payroll", "thousand USD")},
    ...     keys={"state": "State"},
    ...     codes={"state": {"01": "Alabama", "02": "Alaska"}},
    ...     rounding={"payann": 100},
    ... )
    >>> print(publication.label("payann"))
    Annual payroll (thousand USD)
    >>> ss.Publication.from_dict(publication.to_dict()) == publication
    True
    """

    title: str
    source: str | None = None
    period: str | None = None
    contact: str | None = None
    notes: Sequence[str] = ()
    columns: Mapping[str, LabelLike] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    codes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    tables: Mapping[str, str] = field(default_factory=dict)
    rounding: UnitLike | Mapping[str, UnitLike] | None = None
    cv_limits: Sequence[float] = (16.5, 33.3)
    flags: Sequence[str] = ("reliable", "use with caution", "unreliable")
    negatives: str | Mapping[str, str] = "flag"

    def __post_init__(self) -> None:
        _check_text("title", self.title)
        for name in ("source", "period", "contact"):
            _check_text(name, getattr(self, name), optional=True)
        self._set("notes", _texts("notes", self.notes))
        columns = _mapping("columns", self.columns)
        self._set("columns", {name: _as_label(name, label) for name, label in columns.items()})
        for name in ("keys", "tables"):
            self._set(name, _text_mapping(name, getattr(self, name)))
        codes = _mapping("codes", self.codes)
        self._set("codes", {name: _text_mapping(f"codes[{name!r}]", one) for name, one in codes.items()})
        if isinstance(self.rounding, Mapping):
            self._set("rounding", {name: _as_step(one) for name, one in _mapping("rounding", self.rounding).items()})
        elif self.rounding is not None:
            self._set("rounding", _as_step(self.rounding))
        self._check_flags()
        for choice in (
            _mapping("negatives", self.negatives).values() if isinstance(self.negatives, Mapping) else [self.negatives]
        ):
            if choice not in NEGATIVES:
                raise ParameterError("negatives", allowed=f"one of {', '.join(NEGATIVES)}", given=choice)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check_flags(self) -> None:
        limits = tuple(
            as_number("cv_limits", limit, "numbers > 0, in percent") for limit in _list("cv_limits", self.cv_limits)
        )
        tenths = [0, *(round(10 * limit) if 0 < limit < 1e9 else 0 for limit in limits)]
        exact = all(abs(tenth - 10 * limit) < 1e-9 * tenth for tenth, limit in zip(tenths[1:], limits, strict=True))
        if not exact or any(a >= b for a, b in pairwise(tenths)):
            raise ParameterError(
                "cv_limits", allowed="multiples of 0.1 above 0 that increase, such as (16.5, 33.3)", given=limits
            )
        flags = _texts("flags", self.flags)
        if len(flags) != len(limits) + 1 or len(set(flags)) != len(flags) or NEGATIVE_FLAG in flags:
            raise ParameterError(
                "flags",
                allowed=(
                    f"different texts, one more than there are cv_limits ({len(limits)}), and not {NEGATIVE_FLAG!r}"
                ),
                given=flags,
            )
        self._set("cv_limits", limits)
        self._set("flags", flags)

    def label(self, column: str) -> ColumnLabel:
        """Return the label of a published column: its name, if the publication has no other."""
        return _as_label(column, self.columns.get(column, column))

    def check_titles(self, columns: Iterable[str]) -> None:
        """Raise if two of the published columns have the same title and unit, so that readers could confuse them."""
        seen: dict[str, str] = {}
        for name in columns:
            other = seen.setdefault(str(self.label(name)), name)
            if other != name:
                raise ParameterError(
                    f"columns: {other!r} and {name!r} have the same title, {str(self.label(name))!r}",
                    remedy="give them different ones",
                )

    def table_title(self, name: str, several: bool = True) -> str:
        """Return the title of a table: that of the publication with the name of the table, if it has no other."""
        return self.tables.get(name, f"{self.title}: {name}" if several else self.title)

    def key_title(self, column: str) -> str:
        """Return the title of a key column: its name, if the publication has no other."""
        return self.keys.get(column, column)

    def key_name(self, column: str, label: object) -> str | None:
        """Return the name of a label of a key column, or None if the publication has no names for the column."""
        return None if column not in self.codes else self.codes[column].get(label_text(label))

    def step(self, column: str, ratio: bool = False) -> Fraction | None:
        """Return the step that a column is rounded to; None if it is shown as it was released."""
        for_all = None if ratio or isinstance(self.rounding, Mapping) else self.rounding
        found = self.rounding.get(column) if isinstance(self.rounding, Mapping) else for_all
        assert found is None or isinstance(found, Fraction)
        return found

    def negative(self, column: str) -> str:
        """Return what is done with negative estimates of a column: "flag", "zero" or "keep"."""
        return self.negatives if isinstance(self.negatives, str) else self.negatives.get(column, NEGATIVES[0])

    def to_dict(self) -> dict[str, Any]:
        """Return a description that `json.dumps` accepts and `from_dict` reads; defaults are left out."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        found["columns"] = {
            name: {one.name: text for one in fields(label) if (text := getattr(label, one.name)) is not None}
            for name, label in ((name, self.label(name)) for name in self.columns)
        }
        if isinstance(self.rounding, Mapping):
            found["rounding"] = {name: _plain_step(step) for name, step in self.rounding.items()}
        elif self.rounding is not None:
            found["rounding"] = _plain_step(self.rounding)
        found = {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}
        kept = ("title", "cv_limits", "flags", "negatives")  # a reader needs these, whatever the defaults will be
        return {name: value for name, value in found.items() if name in kept or value not in (None, [], {})}

    @staticmethod
    def from_dict(description: Mapping[str, Any]) -> "Publication":
        """Return the publication that `to_dict` described."""
        given = dict(_mapping("description", description))
        known = [one.name for one in fields(Publication)]
        for name in given:
            if name not in known:
                raise ParameterError(f"{name!r}", f"is not a field of a publication{nearest(name, known)}")
        if "title" not in given:
            raise ParameterError("title", "is missing: a publication needs a title")
        return Publication(**given)

    @staticmethod
    def read_codes(path: str | os.PathLike[str]) -> dict[str, str]:
        """Read names of labels from a CSV file: a header, then one line with a label and its name for each label.

        Labels are read as text, so 01001 stays 01001. Further columns are ignored.
        """
        return read_codes(path)


def read_codes(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read a code list; see `Publication.read_codes`."""
    source = Path(path)
    try:
        with open(source, encoding="utf-8-sig", newline="") as file:
            rows = [row for row in csv.reader(file, strict=True) if row]
    except (OSError, UnicodeError, csv.Error) as error:
        raise ParameterError(
            f"codes: {source}",
            f"cannot be read: {getattr(error, 'strerror', None) or error}",
            remedy="give a CSV file in UTF-8",
        ) from None
    found: dict[str, str] = {}
    for line in rows[1:]:
        if len(line) < 2 or not line[1].strip():
            raise ParameterError(
                f"codes: {source}", f"must have a label and a name in every line, but {line[0]!r} has none"
            )
        if line[0] in found:
            raise ParameterError(f"codes: {source}", f"has two names for {line[0]!r}", remedy="keep one")
        found[line[0]] = line[1].strip()
    if not found:
        raise ParameterError(
            f"codes: {source}", "must have a header, then one line with a label and a name for each label"
        )
    return found


def label_text(label: object) -> str:
    """Return a label of a key column as text, as code lists have it: 01001, 2024, true, 2024-12-31."""
    if isinstance(label, bool):
        return str(label).lower()
    return label.isoformat() if isinstance(label, date) else str(label)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the name that was probably meant, or all names, as the end of an error."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(names)}"


def _as_label(name: str, label: object) -> ColumnLabel:
    if isinstance(label, ColumnLabel):
        return label
    if isinstance(label, str):
        return ColumnLabel(label or name)
    if isinstance(label, Mapping):
        known = [one.name for one in fields(ColumnLabel)]
        for entry in label:
            if entry not in known:
                raise ParameterError(f"columns[{name!r}]: there is no entry {entry!r}{nearest(str(entry), known)}")
        return ColumnLabel(**{"title": name, **label})
    raise ParameterTypeError(
        f"columns[{name!r}]",
        allowed='text or a label such as ss.ColumnLabel("Annual payroll", "thousand USD")',
        given=type(label),
    )


def _as_step(step: object) -> Fraction:
    try:
        return as_unit(step)
    except ParameterError as error:
        raise type(error)(str(error).replace("unit", "rounding", 1)) from None


def _plain_step(step: object) -> int | str:
    assert isinstance(step, Fraction)
    return step.numerator if step.denominator == 1 else str(step)


def _check_text(name: str, text: object, optional: bool = False) -> None:
    if optional and text is None:
        return
    if not isinstance(text, str):
        raise ParameterTypeError(name, allowed="text", given=type(text))
    if not text.strip():
        raise ParameterError(name, "must not be empty")


def _list(name: str, values: object) -> Sequence[Any]:
    if not isinstance(values, list | tuple):
        raise ParameterTypeError(name, allowed="a list or a tuple", given=type(values))
    return values


def _texts(name: str, values: object) -> tuple[str, ...]:
    found = tuple(_list(name, values))
    for text in found:
        _check_text(name, text)
    return found


def _mapping(name: str, values: object) -> Mapping[str, Any]:
    if not isinstance(values, Mapping):
        raise ParameterTypeError(name, allowed="a mapping", given=type(values))
    for key in values:
        if not isinstance(key, str):
            raise ParameterTypeError(name, "must have names as keys, which are text", given=key)
    return values


def _text_mapping(name: str, values: object) -> dict[str, str]:
    for key, text in _mapping(name, values).items():
        _check_text(f"{name}[{key!r}]", text)
    return dict(_mapping(name, values))
