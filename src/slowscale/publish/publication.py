"""A publication as a value: title, source, labels, units of measure, code lists, and the form of the numbers."""

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

from slowscale.core.errors import ParameterError, ParameterTypeError, similar
from slowscale.core.parameters import as_number
from slowscale.core.typing import UnitLike
from slowscale.mechanisms.grid import as_unit

PROFILES = ("basic", "research")
NEGATIVES = ("flag", "zero", "keep")  # how the basic profile shows negative estimates
NEGATIVE_FLAG = "negative"
NOT_PRIVATE_NOTE = "NOT PRIVATE: the noise was drawn from test bits that are not secret. Do not publish this table."


@dataclass(frozen=True)
class ColumnLabel:
    """The title of a column, which readers see in place of its name.

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
    """The texts beside the numbers of a published table, and how the profile "basic" shows the numbers.

    Everything is computed from the published numbers, which contain noise, and never from the records. The texts, steps
    and limits are published, so they must be public knowledge.

    Parameters
    ----------
    title
        The title of the publication.
    source, period, contact
        The source of the records, the period that they cover, and a contact for readers.
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
        The step to which the profile "basic" rounds estimates: one for all sums and counts, or one for each column.
        Ratios are rounded only if they are named. Halves are rounded to the even multiple. The ends of intervals are
        rounded outwards.
    cv_limits
        The highest coefficients of variation, in percent, of all flags but the last: multiples of 0.1 that increase.
    flags
        The reliability flags, one more than there are limits.
    negatives
        How the profile "basic" shows negative estimates, for all columns or for each: "flag" shows them with the flag
        "negative", "zero" shows 0 and is for numbers that are known not to be below 0, "keep" treats them like other
        estimates.

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
        checked: dict[str, object] = {"notes": _texts("notes", self.notes)}
        columns, codes = _mapping("columns", self.columns), _mapping("codes", self.codes)
        checked["columns"] = {name: _as_label(name, label) for name, label in columns.items()}
        checked |= {name: _text_mapping(name, getattr(self, name)) for name in ("keys", "tables")}
        checked["codes"] = {name: _text_mapping(f"codes[{name!r}]", one) for name, one in codes.items()}
        if isinstance(self.rounding, Mapping):
            checked["rounding"] = {name: _as_step(one) for name, one in _mapping("rounding", self.rounding).items()}
        elif self.rounding is not None:
            checked["rounding"] = _as_step(self.rounding)
        rules = _mapping("negatives", self.negatives) if isinstance(self.negatives, Mapping) else {"": self.negatives}
        for rule in rules.values():
            if rule not in NEGATIVES:
                raise ParameterError("negatives", allowed=NEGATIVES, given=rule)
        limits = tuple(
            as_number("cv_limits", limit, "numbers > 0, in percent") for limit in _list("cv_limits", self.cv_limits)
        )
        tenths = [round(10 * limit) if 0 < limit < 1e9 else 0 for limit in limits]
        exact = all(abs(tenth - 10 * limit) < 1e-9 * tenth for tenth, limit in zip(tenths, limits, strict=True))
        if not exact or any(a >= b for a, b in pairwise(tenths)):
            raise ParameterError(
                "cv_limits", allowed="multiples of 0.1 above 0 that increase, such as (16.5, 33.3)", given=limits
            )
        flags = _texts("flags", self.flags)
        if len(flags) != len(limits) + 1 or len(set(flags)) != len(flags) or NEGATIVE_FLAG in flags:
            allowed = f"different texts, one more than there are cv_limits ({len(limits)}), and not {NEGATIVE_FLAG!r}"
            raise ParameterError("flags", allowed=allowed, given=flags)
        for name, value in {**checked, "cv_limits": limits, "flags": flags}.items():
            object.__setattr__(self, name, value)

    def label(self, column: str) -> ColumnLabel:
        """Return the label of a published column; by default its name."""
        return _as_label(column, self.columns.get(column, column))

    def check_titles(self, columns: Iterable[str]) -> None:
        """Raise if two of the published columns have the same title and unit, so that readers could confuse them."""
        seen: dict[str, str] = {}
        for name in columns:
            other = seen.setdefault(str(self.label(name)), name)
            if other != name:
                words = f"have the same title, {str(self.label(name))!r}"
                remedy = "give them different titles"
                raise ParameterError(f"the columns {other!r} and {name!r}", words, code="duplicate", remedy=remedy)

    def table_title(self, name: str, several: bool = True) -> str:
        """Return the title of a table; by default the title of the publication with the name of the table."""
        return self.tables.get(name, f"{self.title}: {name}" if several else self.title)

    def key_title(self, column: str) -> str:
        """Return the title of a key column; by default its name."""
        return self.keys.get(column, column)

    def key_name(self, column: str, label: object) -> str | None:
        """Return the name of a label of a key column, or None if the publication has no names for the column."""
        return None if column not in self.codes else self.codes[column].get(label_text(label))

    def step(self, column: str, ratio: bool = False) -> Fraction | None:
        """Return the step to which a column is rounded; None if it is not rounded."""
        for_all = None if ratio else self.rounding
        found = self.rounding.get(column) if isinstance(self.rounding, Mapping) else for_all
        assert found is None or isinstance(found, Fraction)
        return found

    def negative(self, column: str) -> str:
        """Return how negative estimates of a column are shown: "flag", "zero" or "keep"."""
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
        kept = ("title", "cv_limits", "flags", "negatives")  # later defaults may differ
        return {name: value for name, value in found.items() if name in kept or value not in (None, [], {})}

    @staticmethod
    def from_dict(description: Mapping[str, Any]) -> "Publication":
        """Return the publication that `to_dict` described."""
        given = dict(_mapping("description", description))
        known = [one.name for one in fields(Publication)]
        for name in given:
            if name not in known:
                words, remedy = "is not a field of a publication", nearest(name, known)
                raise ParameterError(f"{name!r}", words, code="unknown-name", remedy=remedy)
        if "title" not in given:
            raise ParameterError("title", "is missing", code="missing", remedy="a publication needs a title")
        return Publication(**given)

    @staticmethod
    def read_codes(path: str | os.PathLike[str]) -> dict[str, str]:
        """Read names of labels from a CSV file: a header, then one line with a label and its name for each label.

        Labels are read as text, so 01001 stays 01001. Further columns are ignored.
        """
        return read_codes(path)


def read_codes(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read a code list; see `Publication.read_codes`."""
    subject = f"codes: {Path(path)}"
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = [row for row in csv.reader(file, strict=True) if row]
    except (OSError, UnicodeError, csv.Error) as error:
        words = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        raise ParameterError(subject, words, code="unreadable", remedy="give a CSV file in UTF-8") from None
    found: dict[str, str] = {}
    for line in rows[1:]:
        if len(line) < 2 or not line[1].strip():
            words = f"must have a label and a name in every line, but {line[0]!r} has no name"
            raise ParameterError(subject, words, code="missing")
        if line[0] in found:
            raise ParameterError(subject, f"has two names for {line[0]!r}", code="duplicate", remedy="keep one")
        found[line[0]] = line[1].strip()
    if not found:
        words = "must have a header, then one line with a label and a name for each label"
        raise ParameterError(subject, words, code="empty")
    return found


def label_text(label: object) -> str:
    """Return a label of a key column as text, as code lists have it: 01001, 2024, true, 2024-12-31."""
    if isinstance(label, bool):
        return str(label).lower()
    return label.isoformat() if isinstance(label, date) else str(label)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the remedy for an unknown name: the nearest known name, or all names."""
    names = list(known)
    near = similar(name, names)
    return f"did you mean {near!r}?" if near else f"there are {', '.join(names)}"


def _as_label(name: str, label: object) -> ColumnLabel:
    if isinstance(label, ColumnLabel):
        return label
    if isinstance(label, str):
        return ColumnLabel(label or name)
    if isinstance(label, Mapping):
        known = [one.name for one in fields(ColumnLabel)]
        for entry in label:
            if entry not in known:
                words, remedy = f"has no entry {entry!r}", nearest(str(entry), known)
                raise ParameterError(f"columns[{name!r}]", words, code="unknown-name", remedy=remedy)
        return ColumnLabel(**{"title": name, **label})
    raise ParameterTypeError(
        f"columns[{name!r}]",
        allowed='text or a label such as ss.ColumnLabel("Annual payroll", "thousand USD")',
        given=type(label),
    )


def _as_step(step: object) -> Fraction:
    try:
        return as_unit(step)
    except (ParameterError, ParameterTypeError) as error:
        error.subject = "rounding"
        raise


def _plain_step(step: object) -> int | str:
    assert isinstance(step, Fraction)
    return step.numerator if step.denominator == 1 else str(step)


def _check_text(name: str, text: object, optional: bool = False) -> None:
    if optional and text is None:
        return
    if not isinstance(text, str):
        raise ParameterTypeError(name, allowed="text", given=type(text))
    if not text.strip():
        raise ParameterError(name, "must not be empty", code="empty")


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
            raise ParameterTypeError(f"the keys of {name}", allowed="text", given=key)
    return values


def _text_mapping(name: str, values: object) -> dict[str, str]:
    for key, text in _mapping(name, values).items():
        _check_text(f"{name}[{key!r}]", text)
    return dict(_mapping(name, values))
