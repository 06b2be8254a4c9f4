"""What people type into forms: numbers with separators, lists, and the errors that belong to a field."""

import math
from collections.abc import Mapping
from typing import Any

from slowscale.errors import ParameterError


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
