"""Hierarchies of labels, such as county → state → region, and NAICS codes by their digits.

A hierarchy says to which label of each level every label of a key column belongs. Roll-ups add cells by these labels.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slowscale.core.arrays import from_list
from slowscale.core.errors import ParameterError, ParameterTypeError, Shown
from slowscale.core.typing import Label, PathLike
from slowscale.data.engines import DATE
from slowscale.data.keys import Keys, label_kind

SHOWN_LABELS = 3  # in an error
OTHER_LABELS = "other"  # than dates, in a description


@dataclass(frozen=True, eq=False, repr=False)
class Hierarchy:
    """Levels above a key column: to which label of each level a label of the column belongs.

    Parameters
    ----------
    column
        The key column.
    levels
        For each level, in ascending order, a mapping of every label of the column, or of the level below, to a label
        of the level.

    >>> h = Hierarchy("county", {"state": {"01001": "01", "01003": "01", "02013": "02"}, "region": {"01": 3, "02": 4}})
    >>> h.labels("region", ["01003", "02013"])
    [3, 4]
    >>> Hierarchy.digits("naics", {"sector": 2, "subsector": 3}).labels("sector", ["1125", "1133"])
    ['11', '11']
    """

    column: str
    levels: Mapping[str, Mapping[Label, Label] | int]

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not self.column:
            raise ParameterTypeError("column", allowed="the name of a key column", given=self.column)
        if not isinstance(self.levels, Mapping) or not self.levels:
            raise ParameterTypeError(
                "levels",
                allowed='a mapping of names of levels to mappings of labels, such as {"state": {"01001": "01"}}',
                given=self.levels,
            )
        for name in self.levels:
            if not isinstance(name, str) or not name or name == self.column:
                raise ParameterError(
                    "levels",
                    f"must have non-empty texts other than the column {self.column!r} as names",
                    code="level-name",
                    given=name,
                )
        if all(_is_digits(level) for level in self.levels.values()):
            for name, number in self.levels.items():
                if number < 1:  # type: ignore[operator]
                    raise ParameterError(f"levels[{name!r}]", allowed="a number of digits >= 1", given=number)
            object.__setattr__(self, "levels", {name: int(level) for name, level in self.levels.items()})  # type: ignore[arg-type]
        else:
            object.__setattr__(self, "levels", _composed(self.column, self.levels))

    @staticmethod
    def digits(column: str, levels: Mapping[str, int]) -> "Hierarchy":
        """Return the hierarchy of codes whose first digits are the codes of the levels, such as NAICS.

        Parameters
        ----------
        column
            The key column with the codes: text, or whole numbers >= 0 that all have the same number of digits. Codes
            with leading zeros must be text, because the whole number 1001 does not say that it stands for 01001.
        levels
            For each level, the number of first digits, or characters, that its labels have.
        """
        if not isinstance(levels, Mapping) or not levels or not all(_is_digits(level) for level in levels.values()):
            raise ParameterTypeError(
                "levels", allowed='a mapping of names to numbers of digits, such as {"sector": 2}', given=levels
            )
        return Hierarchy(column, levels)

    @staticmethod
    def from_file(
        column: str,
        path: PathLike,
        levels: Iterable[str],
        types: Mapping[str, str] | None = None,
        csv: Mapping[str, Any] | None = None,
    ) -> "Hierarchy":
        """Return the hierarchy that a file lists: one column with the labels, and one for each level.

        Parameters
        ----------
        column
            The key column, which is a column of the file.
        path
            The file, of any kind that a session reads.
        levels
            The columns of the file that are levels, in ascending order.
        types, csv
            The types of columns and the settings of a CSV file, as in `Keys.from_file`. A CSV column without a type is
            text.
        """
        names = [levels] if isinstance(levels, str) else list(levels)
        if not names or not all(isinstance(name, str) for name in names):
            raise ParameterTypeError("levels", allowed="the names of columns of the file", given=levels)
        table = Keys.from_file(path, [column, *names], types, csv).table
        labels = table[column].to_pylist()
        found: dict[str, dict[Any, Any]] = {}
        for name in names:
            found[name] = {}
            for label, parent in zip(labels, table[name].to_pylist(), strict=True):
                if found[name].setdefault(label, parent) != parent:
                    raise _two_parents(column, label, name, found[name][label], parent, f"in {os.fspath(path)} ")
        return Hierarchy(column, found)

    def __repr__(self) -> str:
        parts = [
            f"{name} ({level} digits)" if isinstance(level, int) else f"{name} ({len(set(level.values())):,} labels)"
            for name, level in self.levels.items()
        ]
        first = next(iter(self.levels.values()))
        known = "" if isinstance(first, int) else f" ({len(first):,} labels)"
        return f"Hierarchy: {self.column}{known} → {' → '.join(parts)}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hierarchy) and (self.column, self.levels) == (other.column, other.levels)

    __hash__ = None  # type: ignore[assignment]

    def to_dict(self) -> dict[str, Any]:
        """Return the column and the levels as values that JSON can represent: a level as pairs of labels.

        Dates are ISO text, and such a level also states the kinds of its labels.
        """
        levels = {
            name: level if isinstance(level, int) else _described_level(level) for name, level in self.levels.items()
        }
        return {"column": self.column, "levels": levels}

    @staticmethod
    def from_dict(description: Mapping[str, Any]) -> "Hierarchy":
        """Return the hierarchy that `to_dict` described."""
        levels = {
            name: level if isinstance(level, int) else _read_level(level)
            for name, level in description["levels"].items()
        }
        return Hierarchy(description["column"], levels)

    def labels(self, level: str, labels: Iterable[Label]) -> list[Any]:
        """Return the label of a level to which each label of the column belongs."""
        if level not in self.levels:
            raise ParameterError("level", allowed=tuple(self.levels), given=level)
        wanted, known = list(labels), self.levels[level]
        if isinstance(known, int):
            _check_lengths(self.column, wanted)
            return [_first_digits(self.column, label, level, known) for label in wanted]
        missing = [label for label in wanted if not _has(known, label)]
        if missing:
            raise ParameterError(
                f"hierarchy of {self.column}",
                f"has no {level} for {len(missing)} of {len(wanted)} labels, such as {_some(missing)}",
                code="missing",
                remedy="add them to the level, with labels of the same type as in the table",
            )
        return [known[label] for label in wanted]

    def label_column(self, level: str, labels: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Return a column of labels of a level, for a column of labels."""
        distinct = labels.unique()
        parents = from_list(self.labels(level, distinct.to_pylist()))
        at = pc.index_in(labels, value_set=distinct)
        found = parents.take(at)
        return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found


def kind_of_labels(column: pa.Array | pa.ChunkedArray) -> str:
    """Return what the labels of a column are: text, whole numbers, booleans or dates."""
    return label_kind(column.type) or ""


def _is_digits(level: object) -> bool:
    return isinstance(level, int | np.integer) and not isinstance(level, bool)


def _check_lengths(column: str, labels: list[Any]) -> None:
    """Raise if whole numbers have different lengths: leading zeros may be missing, and the first digits be wrong."""
    lengths = {len(str(label)): label for label in labels if isinstance(label, int) and not isinstance(label, bool)}
    if len(lengths) > 1:
        short, long = lengths[min(lengths)], lengths[max(lengths)]
        raise ParameterError(
            f"hierarchy of {column}",
            f"needs whole numbers with the same number of digits, but there are {short} and {long}, so that leading "
            "zeros may be missing",
            code="leading-zeros",
            remedy=f"declare {column} as text, in the data and in the keys",
        )


def _has(level: Mapping[Any, Any], label: object) -> bool:
    """Whether a level has a label. In Python, True equals 1, but they are different labels."""
    first = next(iter(level))
    return label in level and isinstance(label, bool | np.bool_) == isinstance(first, bool | np.bool_)


def _described_level(level: Mapping[Any, Any]) -> list[Any] | dict[str, Any]:
    """Return a level as pairs of labels that JSON can represent, with the kinds of the labels if there are dates."""
    pairs = [[_plain_label(label) for label in pair] for pair in level.items()]
    kinds = [DATE if isinstance(label, date) else OTHER_LABELS for label in next(iter(level.items()))]
    return {"kinds": kinds, "pairs": pairs} if DATE in kinds else pairs


def _read_level(description: Any) -> dict[Any, Any]:
    if not isinstance(description, Mapping):
        return dict(description)
    read = [date.fromisoformat if kind == DATE else _plain_label for kind in description["kinds"]]
    return {read[0](label): read[1](parent) for label, parent in description["pairs"]}


def _plain_label(label: Any) -> Any:
    if isinstance(label, date):
        return label.isoformat()
    return label.item() if isinstance(label, np.generic) else label


def _first_digits(column: str, label: Any, level: str, number: int) -> Any:
    text = str(label)
    if isinstance(label, bool) or not isinstance(label, str | int) or text.startswith("-") or len(text) < number:
        raise ParameterError(
            f"hierarchy of {column}",
            f"needs labels of at least {number} digits for the level {level}",
            code="too-short",
            given=label,
        )
    return type(label)(text[:number])


def _composed(column: str, levels: Mapping[str, Any]) -> dict[str, dict[Any, Any]]:
    """Return each level as a mapping of the labels of the column."""
    found: dict[str, dict[Any, Any]] = {}
    below: tuple[str, dict[Any, Any]] | None = None
    for name, level in levels.items():
        if not isinstance(level, Mapping) or not level:
            raise ParameterTypeError(
                f"levels[{name!r}]",
                allowed="a mapping of labels to labels of the level",
                given=level,
                remedy="levels by digits and levels by mappings must be two hierarchies",
            )
        _check_labels(name, "labels", level.keys())
        _check_labels(name, "labels of the level", level.values())
        if below is None:
            composed = dict(level)
        else:
            labels = next(iter(found.values()))
            lower, parents = below
            if all(_has(level, label) for label in labels):
                composed = {label: level[label] for label in labels}
            else:
                missing = sorted({parent for parent in parents.values() if not _has(level, parent)}, key=repr)
                if missing:
                    raise ParameterError(
                        f"levels[{name!r}]",
                        f"must map every label of {column} or of {lower}, but {_some(missing)} of {lower} is missing",
                        code="missing",
                        remedy="add it",
                    )
                composed = {label: level[parent] for label, parent in parents.items()}
            above: dict[Any, Any] = {}
            for label, parent in parents.items():
                if above.setdefault(parent, composed[label]) != composed[label]:
                    raise _two_parents(lower, parent, name, above[parent], composed[label])
        found[name] = composed
        below = (name, composed)
    return found


def _two_parents(column: str, label: Any, level: str, one: Any, other: Any, where: str = "") -> ParameterError:
    return ParameterError(
        f"hierarchy of {column}",
        f"has {where}a label {label!r} that belongs to two labels of {level}, {one!r} and {other!r}",
        code="two-parents",
        remedy="each label must belong to one (use two hierarchies for levels that do not contain each other)",
    )


def _check_labels(name: str, what: str, labels: Iterable[Any]) -> None:
    kinds = {type(label) for label in labels}
    allowed = "text, whole numbers, booleans or dates, of one type and none missing"
    if len(kinds) > 1:
        got = " and ".join(sorted(kind.__name__ for kind in kinds))
        raise ParameterTypeError(f"levels[{name!r}]: the {what}", allowed=allowed, given=Shown(got))
    try:
        kind = label_kind(from_list(list(labels)).type)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        kind = None
    if kind is None:
        raise ParameterTypeError(f"levels[{name!r}]: the {what}", allowed=allowed, given=kinds.pop())


def _some(labels: list[Any]) -> str:
    return ", ".join(map(repr, labels[:SHOWN_LABELS]))
