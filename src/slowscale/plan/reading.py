"""Plan files are read here: their paths are resolved, and mistakes are reported with the line and the field.

A value is shown only where it cannot hold a password, and addresses are masked everywhere.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from slowscale.core.errors import ParameterError, ParameterTypeError, Place, PlanError
from slowscale.plan.inputs import given_words
from slowscale.plan.schema import Plan, QuantilesPlan, RollupPlan, SumsPlan, place_in_plan

# An address, which may hold a password; but not the example that errors give.
ADDRESS = re.compile(r"\w*://(?!host/database#table)\S*")
# The kinds of pydantic's mistakes, in the words of a plan.
WORDS = {
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    "string_type": "must be text",
    "list_type": "must be a list",
}
# Fields whose value is one of a few names.
CHOICES = ("mechanism", "estimator", "nulls", "negatives", "means")
UNION_TYPES = ("str", "int", "bool", "date", "list[str]")  # pydantic appends one to a field that has several types
TABLE_KINDS = {"sums": SumsPlan, "quantiles": QuantilesPlan, "rollup": RollupPlan}  # by the tag that pydantic inserts


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """Read and check a plan file; its relative paths are resolved against the folder that it is in.

    Raises
    ------
    PlanError
        When the file cannot be read, is not TOML or has mistakes. All mistakes are reported, each with its line and
        field.
    """
    source = Path(path)
    try:
        text = source.read_text(encoding="utf-8")
    except (OSError, UnicodeError, ValueError) as error:
        raise PlanError(f"{source} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return plan_from_text(text, source)


def plan_from_text(text: str, source: Path) -> Plan:
    """Return the plan with this text; `source` is the file that it was read from; see `read_plan`."""
    try:
        values = tomllib.loads(text)
    except ValueError as error:  # also an integer of thousands of digits
        raise PlanError(f"{source} is not TOML: {error}") from None
    except RecursionError:
        raise PlanError(f"{source} cannot be read: its tables or lists are nested too deeply") from None
    try:
        plan = Plan.model_validate(values)
    except ValidationError as error:
        found = [(locate(text, field), field, words) for field, words in list_mistakes(error)]
        lines = [f"{_place(source, text, field)}: {words}" for _, field, words in sorted(found, key=lambda one: one[0])]
        raise PlanError("\n".join(dict.fromkeys(lines))) from None
    plan = _resolve_paths(plan, source.parent)
    plan._origin = source, text
    return plan


def _resolve_paths(plan: Plan, folder: Path) -> Plan:
    """Return the plan with all paths resolved against the folder of its file."""

    def resolved(part: Any, *fields: str) -> Any:
        given = {} if part is None else {name: getattr(part, name) for name in fields}
        update: dict[str, Any] = {
            name: [str(folder / one) for one in path] if isinstance(path, list) else str(folder / path)
            for name, path in given.items()
            if path is not None
        }
        return part.model_copy(update=update) if update else part

    data = resolved(plan.data, "path")
    if data.is_database_file:
        scheme, _, place = data.database.partition("://")
        data = data.model_copy(update={"database": f"{scheme}://{folder / place}"})
    tables = {
        name: table.model_copy(update={"keys": resolved(table.keys, "file")}) if isinstance(table, SumsPlan) else table
        for name, table in plan.tables.items()
    }
    return plan.model_copy(
        update={
            "data": data,
            "ledger": resolved(plan.ledger, "path"),
            "tables": tables,
            "hierarchies": [resolved(part, "file") for part in plan.hierarchies],
            "publication": None if plan.publication is None else plan.publication.resolved(folder),
            "output": resolved(plan.output, "folder", "report", "sign"),
        }
    )


@contextmanager
def at_its_place(plan: Plan) -> Iterator[None]:
    """Put the file, the line and the field of a plan before an error about the request or the data."""
    try:
        yield
    except (ParameterError, ParameterTypeError) as error:
        field = place_in_plan(error.path)
        if not field or plan._origin is None:
            raise
        words = f"{_place(*plan._origin, field)}: {ADDRESS.sub('***', str(error))}"
        raise type(error)(words, code=error.code, path=field) from None


def _place(source: Path, text: str, field: Place) -> str:
    name = ADDRESS.sub("***", ".".join(map(str, field))) or "the plan"
    return f"{source}, line {locate(text, field)}, {name}"


def list_mistakes(error: ValidationError) -> list[tuple[Place, str]]:
    """Return all mistakes that pydantic found in a plan, each as its field and a description."""
    return [
        (field, ADDRESS.sub("***", _describe(mistake, field)))
        for mistake in error.errors()
        for field in [_field_of(mistake)]
    ]


def _field_of(mistake: Any) -> Place:
    """Return the field that a mistake is about, as the names and list positions that lead to it."""
    if "field" in mistake.get("ctx", {}):
        return tuple(mistake["ctx"]["field"])
    field = list(mistake["loc"])
    if len(field) > 2 and field[0] == "tables" and field[2] in TABLE_KINDS:
        del field[2]  # the kind of table, which pydantic inserts
    return tuple(field[:-1] if field and field[-1] in UNION_TYPES else field)


def _describe(mistake: Any, field: Place) -> str:
    """Return the description of a mistake: the problem, and the allowed values."""
    given, kind = mistake.get("input"), mistake["type"]
    words = plain_words(mistake)
    if kind == "extra_forbidden":
        return f"there is no such field{_suggestion(mistake['loc'])}"
    if given == "" and kind == "literal_error":
        return f"still to be chosen: {words}"
    if given == "" and kind == "string_too_short":
        return "still to be chosen"
    if kind == "missing":
        return f"is missing: add {f'the table [{field[0]}]' if len(field) == 1 else f'a line {field[-1]} = …'}"
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
    """Return the closest name, if the value must be one of a few names."""
    if mistake["type"] != "literal_error":
        return ""
    names = re.findall(r"'([^']*)'", mistake["ctx"]["expected"])
    given = str(mistake["input"])
    # "polylog" is a part of "exponential-polylog", although "log" is closer by its letters.
    near = [name for name in names if given in name.split("-")] or difflib.get_close_matches(given, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _suggestion(location: Sequence[Any]) -> str:
    """Return the field with the closest name, or all fields of the table that an unknown field is in."""
    table: Any = Plan
    for i, step in enumerate(location[:-1]):
        if i == 2 and location[0] == "tables":
            table = TABLE_KINDS[step]
        elif _is_model(table) and step in table.model_fields:
            table = _model_in(table.model_fields[step].annotation)
    if not _is_model(table):
        return ""
    known = list(table.model_fields)
    if table is SumsPlan:  # the table may have been meant to be of another kind
        known += ["quantiles", "rollup"]
    near = difflib.get_close_matches(str(location[-1]), known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"


def _model_in(annotation: Any) -> Any:
    """Return the model that a field's type is or contains, as in `dict[str, SumPlan]`; None if there is none."""
    if _is_model(annotation):
        return annotation
    return next((model for part in get_args(annotation) if (model := _model_in(part)) is not None), None)


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def locate(text: str, field: Sequence[Any]) -> int:
    """Return the line of a TOML text that a field is on, or else the line of the nearest table around it."""
    best, depth, wanted = 1, -1, list(field)
    for line, here in _fields_by_line(text):
        if len(here) > depth and here == wanted[: len(here)]:
            best, depth = line, len(here)
        elif len(wanted) > max(depth, 0) and here[: len(wanted)] == wanted:  # inside the table that is meant
            best, depth = line, len(wanted)
    return best


def _fields_by_line(text: str) -> Iterator[tuple[int, list[Any]]]:
    """Yield the lines of a TOML text that start a table or set a field, each with the names that lead to it."""
    entries: dict[str, int] = {}  # how often a table such as [[hierarchies]] has occurred, less one
    table: list[Any] = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("["):
            names = _names(stripped.strip("[] \t").split("]")[0])
            if stripped.startswith("[["):
                entries[".".join(names)] = entries.get(".".join(names), -1) + 1
            table = []
            for i, part in enumerate(names):
                table.append(part)
                whole = ".".join(names[: i + 1])
                table += [entries[whole]] if whole in entries else []
            yield number, table
        elif "=" in stripped and not stripped.startswith("#"):
            yield number, [*table, *_names(stripped.split("=")[0])]


def _names(dotted: str) -> list[str]:
    return [name.strip("\"'") for name in re.findall(r"""\"[^\"]*\"|'[^']*'|[^.\s]+""", dotted)]
