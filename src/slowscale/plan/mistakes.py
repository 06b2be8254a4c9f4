"""Mistakes in a plan, in words: the file, the line, the field and what to write instead.

A value is shown only where it cannot hold a password, and addresses are masked everywhere.
"""

import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from slowscale.plan.base import given_words
from slowscale.plan.models import Plan

# An address, which may hold a password; but not the example that errors give.
ADDRESS = re.compile(r"\w*://(?!host/database#table)\S*")
# What pydantic's kinds of mistakes mean, in the words of a plan.
WORDS = {
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    "string_type": "must be text",
    "list_type": "must be a list",
}
CHOICES = ("mechanism", "estimator", "nulls", "negatives")  # fields whose value is one of a few names
UNION_TYPES = ("str", "int", "bool", "date", "list[str]")  # pydantic appends one to a field that has several types


def format_mistakes(error: ValidationError, source: Path, text: str) -> str:
    """Return all mistakes that pydantic found in a plan, one per line, in the order of the plan's lines."""
    found = []
    for field, words in list_mistakes(error):
        name = ".".join(map(str, field)) or "the plan"
        line = locate(text, list(field))
        found.append((line, f"{source}, line {line}, {ADDRESS.sub('***', name)}: {words}"))
    found.sort(key=lambda item: item[0])
    return "\n".join(dict.fromkeys(mistake for _, mistake in found))


def list_mistakes(error: ValidationError) -> list[tuple[tuple[str | int, ...], str]]:
    """Return all mistakes that pydantic found in a plan: the field, and what is wrong with it."""
    found = []
    for mistake in error.errors():
        field = _field_of(mistake)
        found.append((tuple(field), ADDRESS.sub("***", _describe(mistake, field))))
    return found


def _field_of(mistake: Any) -> list[Any]:
    """Return the field that a mistake is about, as the names and list positions that lead to it."""
    field = list(mistake.get("ctx", {}).get("field") or mistake["loc"])
    return field[:-1] if field and field[-1] in UNION_TYPES else field


def _describe(mistake: Any, field: list[Any]) -> str:
    """Return what is wrong with a field, and what is allowed."""
    given, kind = mistake.get("input"), mistake["type"]
    words = plain_words(mistake)
    if kind == "extra_forbidden":
        return f"there is no such field{_suggestion(field)}"
    if given == "" and kind == "literal_error":
        return f"still to be chosen: {words}"
    if given == "" and kind == "string_too_short":
        return "still to be chosen"
    if kind == "missing":
        is_table = len(field) == 1 and _model_in(Plan.model_fields[field[0]].annotation) is not None
        return f"is missing: add {f'the table [{field[0]}]' if is_table else f'a line {field[-1]} = …'}"
    if kind in ("model_type", "dict_type"):
        return f"must be a table such as {field[-1] if field else 'plan'} = {{ … }}, got {given_words(given)}"
    if kind == "value_error":
        return words
    shown = isinstance(given, str) and bool(field) and field[-1] in CHOICES
    return f"{words}, got {repr(given)[:60] if shown else given_words(given)}{_nearest_choice(mistake)}"


def plain_words(mistake: Any) -> str:
    """Return the message of one of pydantic's mistakes in the words of this library's errors."""
    if mistake["type"] in WORDS:
        return WORDS[mistake["type"]]
    words: str = mistake["msg"].removeprefix("Value error, ")
    return re.sub(r"^Input should (be|have)\b", r"must \1", words)


def _nearest_choice(mistake: Any) -> str:
    """Return the name that was probably meant, if the value must be one of a few names."""
    if mistake["type"] != "literal_error":
        return ""
    names = re.findall(r"'([^']*)'", mistake["ctx"]["expected"])
    given = str(mistake["input"])
    # "polylog" is a part of "exponential-polylog", although "log" is closer by its letters.
    near = [name for name in names if given in name.split("-")] or difflib.get_close_matches(given, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _suggestion(field: list[Any]) -> str:
    """Return the field that was probably meant, or all fields of the table that an unknown field is in."""
    table: Any = Plan
    for step in field[:-1]:
        if _is_model(table) and step in table.model_fields:
            table = _model_in(table.model_fields[step].annotation)
    if not _is_model(table):
        return ""
    # The field "source" is set when a plan is read.
    known = [info.alias or name for name, info in table.model_fields.items() if name != "source"]
    near = difflib.get_close_matches(str(field[-1]), known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"


def _model_in(annotation: Any) -> Any:
    """Return the model that a field's type is or contains, as in `list[SumPlan]`; None if there is none."""
    if _is_model(annotation):
        return annotation
    return next((model for part in get_args(annotation) if (model := _model_in(part)) is not None), None)


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def locate(text: str, field: list[Any]) -> int:
    """Return the line of a TOML text that a field is on, or else the line of the nearest table around it."""
    best, depth = 1, -1
    for line, here in _fields_by_line(text):
        if len(here) > depth and here == field[: len(here)]:
            best, depth = line, len(here)
        elif len(field) > max(depth, 0) and here[: len(field)] == field:  # inside the table that is meant
            best, depth = line, len(field)
    return best


def _fields_by_line(text: str) -> Iterator[tuple[int, list[Any]]]:
    """Yield the lines of a TOML text that start a table or set a field, each with the names that lead to it."""
    entries: dict[str, int] = {}  # how often a table such as [[sums]] has occurred, less one
    table: list[Any] = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("["):
            name = ".".join(_names(stripped.strip("[] \t").split("]")[0]))
            if stripped.startswith("[["):
                entries[name] = entries.get(name, -1) + 1
                for inner in [other for other in entries if other.startswith(f"{name}.")]:
                    del entries[inner]  # such as [[table.sums]], which is counted anew in each [[table]]
            table = []
            for part in _names(name):
                table.append(part)
                whole = ".".join(str(step) for step in table if not isinstance(step, int))
                table += [entries[whole]] if whole in entries else []
            yield number, table
        elif "=" in stripped and not stripped.startswith("#"):
            yield number, [*table, *_names(stripped.split("=")[0])]


def _names(dotted: str) -> list[Any]:
    return [name.strip().strip("\"'") for name in dotted.split(".")]
