"""Values typed into forms: numbers with separators, lists and labels, and the errors about a field."""

import csv
import math
import re
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

from slowscale.core.errors import ParameterError


class FieldError(ParameterError):
    """An error about one field of a form, whose name is its path."""

    @property
    def field(self) -> str:
        """The name of the field."""
        return str(self.path[0])


def text(form: Mapping[str, Any], field: str) -> str:
    """Return the text of a field without surrounding whitespace."""
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
        The name of the number in errors.
    """
    typed = text(form, field)
    if not typed:
        return None
    try:
        found = float(typed.replace(",", "").replace(" ", "").replace("\u00a0", "").replace("_", ""))
    except ValueError:
        raise FieldError(name, allowed="a number such as 1,900,000", given=typed, path=(field,)) from None
    if not math.isfinite(found):
        raise FieldError(name, allowed="a finite number", given=typed, path=(field,))
    return found


def whole_if_possible(value: float) -> float | int:
    """Return a float as a whole number if it is one, as people write it in plans."""
    return int(value) if value == int(value) and abs(value) < 1e15 else value


def split_list(typed: str) -> list[str]:
    """Return the names in a list with commas; a name with a comma is in double quotes.

    >>> split_list('county, "size, in acres"')
    ['county', 'size, in acres']
    """
    found = [name.strip() for row in csv.reader(typed.splitlines(), skipinitialspace=True) for name in row]
    return [name for name in found if name]


def join_list(names: Iterable[str]) -> str:
    """Return names as a list with commas, as `split_list` reads it.

    >>> join_list(["county", "size, in acres"])
    'county, "size, in acres"'
    """
    return ", ".join('"{}"'.format(name.replace('"', '""')) if set(name) & set(',"') else name for name in names)


def lines(typed: str) -> list[str]:
    """Return the non-empty lines of a text, without surrounding whitespace."""
    return [line.strip() for line in typed.replace("\r\n", "\n").split("\n") if line.strip()]


def label(typed: str, kind: str | None, field: str) -> str | int | bool | date:
    """Return a label of a key column as a value of its type.

    Parameters
    ----------
    typed
        The text of the label.
    kind
        The kind of the column's labels, such as "whole numbers"; None if it is not known.
    field
        The name of the field.
    """
    if kind == "whole numbers":
        if re.fullmatch(r"[+-]?[0-9]{1,18}", typed) is None:
            raise FieldError("labels", allowed="whole numbers such as 111", given=typed, path=(field,))
        return int(typed)
    if kind == "booleans":
        if typed.lower() not in ("true", "false"):
            raise FieldError("labels", allowed=("true", "false"), given=typed, path=(field,))
        return typed.lower() == "true"
    if kind == "dates":
        try:
            return date.fromisoformat(typed)
        except ValueError:
            raise FieldError("labels", allowed="dates such as 2024-01-31", given=typed, path=(field,)) from None
    return typed


def shown_label(value: Any) -> str:
    """Return a label as `label` reads it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
