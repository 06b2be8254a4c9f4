"""What people type into forms: numbers with separators, lists, and the errors that belong to a field."""

import csv
import math
import re
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

from slowscale.core.errors import ParameterError


class FieldError(ParameterError):
    """An error about one field of a form."""

    def __init__(self, field: str, words: str) -> None:
        super().__init__(field, words)
        self.field, self.words = field, words

    def __str__(self) -> str:
        return self.words


def text(form: Mapping[str, Any], field: str) -> str:
    """Return what was typed into a field, without blanks around it."""
    return str(form.get(field) or "").strip()


def number(form: Mapping[str, Any], field: str, name: str) -> float | None:
    """Return the number in a field, or None if it is empty; "1,900,000" and "1.9e6" are numbers.

    Parameters
    ----------
    form
        The form.
    field
        The name of the field.
    name
        What people call it, for errors.
    """
    typed = text(form, field)
    if not typed:
        return None
    try:
        found = float(typed.replace(",", "").replace(" ", "").replace("\u00a0", "").replace("_", ""))
    except ValueError:
        raise FieldError(field, f"{name} must be a number such as 1,900,000, got {typed[:40]!r}") from None
    if not math.isfinite(found):
        raise FieldError(field, f"{name} must be a finite number, got {typed[:40]!r}")
    return found


def whole_if_possible(value: float) -> float | int:
    """Return a float as a whole number if it is one, as people write it in plans."""
    return int(value) if value == int(value) and abs(value) < 1e15 else value


def words(typed: str) -> list[str]:
    """Return the words of a list with commas; a word with a comma stands in double quotes.

    >>> words('county, "size, in acres"')
    ['county', 'size, in acres']
    """
    found = [word.strip() for row in csv.reader(typed.splitlines(), skipinitialspace=True) for word in row]
    return [word for word in found if word]


def joined(names: Iterable[str]) -> str:
    """Return words as a list with commas, as `words` reads it.

    >>> joined(["county", "size, in acres"])
    'county, "size, in acres"'
    """
    return ", ".join('"{}"'.format(name.replace('"', '""')) if set(name) & set(',"') else name for name in names)


def lines(typed: str) -> list[str]:
    """Return the lines of a text that are not empty, without blanks around them."""
    return [line.strip() for line in typed.replace("\r\n", "\n").split("\n") if line.strip()]


def label(typed: str, kind: str | None, field: str) -> str | int | bool | date:
    """Return a label of a key column as its type holds it.

    Parameters
    ----------
    typed
        What was typed.
    kind
        What the labels of the column are, such as "whole numbers"; None if it is not known.
    field
        The name of the field.
    """
    if kind == "whole numbers":
        if re.fullmatch(r"[+-]?[0-9]{1,18}", typed) is None:
            raise FieldError(field, f"labels of this column are whole numbers such as 111, got {typed[:40]!r}")
        return int(typed)
    if kind == "booleans":
        if typed.lower() not in ("true", "false"):
            raise FieldError(field, f"labels of this column are true and false, got {typed[:40]!r}")
        return typed.lower() == "true"
    if kind == "dates":
        try:
            return date.fromisoformat(typed)
        except ValueError:
            raise FieldError(field, f"labels of this column are dates such as 2024-01-31, got {typed[:40]!r}") from None
    return typed


def shown_label(value: Any) -> str:
    """Return a label as `label` reads it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
