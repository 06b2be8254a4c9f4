"""Plan files are read here: their paths are resolved, and mistakes are reported with the line and the field.

A value is shown only where it cannot hold a password, and addresses are masked everywhere.
"""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from slowscale.core.errors import (
    CapError,
    DataError,
    EngineError,
    LedgerError,
    Mistake,
    ParameterError,
    ParameterTypeError,
    Place,
    PlanError,
    Shown,
    SlowscaleError,
    similar,
)
from slowscale.mechanisms.base import ESTIMATORS
from slowscale.mechanisms.transformation import NOISES
from slowscale.plan.parts import BY_NAME, MECHANISMS, WITH_PARAMETERS, given_words, mechanism_like, noise_named
from slowscale.plan.schema import Plan, QuantilesPlan, RollupPlan, SumsPlan, place_in_plan

# An address, which may hold a password; but not the example that errors give.
ADDRESS = re.compile(r"\w*://(?!host/database#table)\S*")
# What is allowed where pydantic found a mistake, by the kind of the mistake.
RULES = {
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    "string_type": "text",
    "list_type": "a list",
    "finite_number": "a finite number",
    "greater_than": "greater than {gt:g}",
    "greater_than_equal": "greater than or equal to {ge:g}",
    "less_than": "less than {lt:g}",
    "less_than_equal": "less than or equal to {le:g}",
    "literal_error": "{expected}",
    "too_short": "a list with at least {min_length} item",
}
# Fields whose value is one of a few names, which are no secrets.
CHOICES = {
    "mechanism": tuple(MECHANISMS),
    "noise": tuple(NOISES),
    "estimator": ESTIMATORS,
    "nulls": ("error", "zero"),
    "negatives": ("error", "zero"),
    "means": ("box", "fieller", "delta"),
}
UNION_TYPES = ("str", "int", "bool", "date", "list[str]")  # pydantic appends one to a field that has several types
DATA_FILES = (".csv", ".tsv", ".txt", ".parquet", ".pq", ".xlsx", ".xlsm", ".dta", ".sav", ".sas7bdat", ".gz", ".zst")
TOML_RULES = (
    "texts are in quotes, true and false in lower case, numbers have a decimal point and no other separator "
    "(13000000.5), paths have / in place of \\, and each field and table stands once"
)
# What to write in place of a field that no table of a plan has.
OTHER_FIELDS = {
    **dict.fromkeys(("sep", "separator"), "delimiter"),
    **dict.fromkeys(
        ("epsilon", "eps", "rho", "delta", "budget"),
        "std or interval for an accuracy; or loss, which is a zCDP loss, with at for the size of the record",
    ),
    **dict.fromkeys(("xlsx", "excel"), 'basic = ["table.xlsx"] in [publication]'),
}
# How to write a value of another type.
OTHER_FORMS: dict[tuple[str, type], str] = {
    ("float_type", str): "write it without quotes",
    ("int_type", str): "write it without quotes",
    ("bool_type", str): "write it without quotes",
    ("list_type", str): "write it in brackets: [ … ]",
    ("string_type", int): "write it in quotes",
    ("string_type", float): "write it in quotes",
    ("string_type", date): "write it in quotes",
    ("string_type", datetime): "write it in quotes",
    ("string_type", time): "write it in quotes",
}
# What a table holds, as an error about another value shows it.
TABLE_EXAMPLES = {"keys": 'file = "cells.csv", by = ["county"]', "cross": 'county = ["01003"]'}
TABLE_KINDS = {"sums": SumsPlan, "quantiles": QuantilesPlan, "rollup": RollupPlan}  # by the tag that pydantic inserts


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """Read and check a plan file; its relative paths are resolved against the folder that it is in.

    Raises
    ------
    PlanError
        When the file cannot be read, is not TOML or has mistakes. All mistakes are reported, each with its line and
        field.
    """
    if not isinstance(path, str | os.PathLike):
        raise ParameterTypeError("path", allowed="text or os.PathLike", given=type(path))
    source = Path(path)
    try:
        text = source.read_text(encoding="utf-8")
    except (OSError, UnicodeError, ValueError) as error:
        _refuse_data(source)
        reason = getattr(error, "strerror", None) or error
        raise PlanError(
            source, f"cannot be read: {reason}", code="unreadable", remedy=_plan_like(source, str(path))
        ) from None
    return plan_from_text(text, source)


def _refuse_data(source: Path) -> None:
    """Raise if a file that is not a plan is data, by the ending of its name."""
    if source.suffix.lower() in DATA_FILES:
        raise PlanError(
            source,
            "is data, and not a plan",
            code="not-a-plan",
            remedy=f"`slowscale init {source}` writes a plan for it" if source.exists() else "give a plan file (.toml)",
        )


def _plan_like(source: Path, given: str) -> str:
    """Return the remedy for a plan that cannot be read: a plan with a similar name, or how to write one."""
    folder = source if source.is_dir() else source.parent
    plans = [str(file) for file in sorted(folder.glob("*.toml"))] if folder.is_dir() else []
    near = str(source / "plan.toml") if source.is_dir() else similar(given, plans)
    return f"did you mean {near}?" if near in plans else "`slowscale init DATA` writes a plan"


def plan_from_text(text: str, source: Path) -> Plan:
    """Return the plan with this text; `source` is the file that it was read from; see `read_plan`."""
    try:
        values = tomllib.loads(text)
    except ValueError as error:  # also an integer of thousands of digits
        _refuse_data(source)
        raise PlanError(source, f"is not TOML: {error}", code="syntax", remedy=TOML_RULES) from None
    except RecursionError:
        raise PlanError(source, "cannot be read: its tables or lists are nested too deeply", code="syntax") from None
    try:
        plan = Plan.model_validate(values)
    except ValidationError as error:
        found = [Mistake(one.path, locate(text, one.path), str(one), one.code) for one in errors_in(error)]
        mistakes = sorted(dict.fromkeys(found), key=lambda one: one.line)
        lines = [f"{_origin(source, text, one.path)}: {one.text}" for one in mistakes]
        refusal = PlanError("\n".join(dict.fromkeys(lines)), code="plan")
        refusal.mistakes = tuple(mistakes)
        raise refusal from None
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
def at_its_place(plan: Plan, *default: str) -> Iterator[None]:
    """Name the file, the line and the field of a plan in an error about the request, the data, ledger or outputs.

    An error without a path is about the `default` place, if there is one; one of a ledger is about its path.
    """
    try:
        yield
    except (ParameterError, ParameterTypeError, DataError, EngineError, CapError, LedgerError) as error:
        error.path = error.path or (("ledger", "path") if isinstance(error, LedgerError) else default)
        if error.path and plan._origin is not None and not error.origin:
            error.path = place_in_plan(error.path)
            error.origin = _origin(*plan._origin, error.path)
        _mask(error)
        raise


def _origin(source: Path, text: str, field: Place) -> str:
    name = ADDRESS.sub("***", ".".join(map(str, field))) or "the plan"
    return f"{source}, line {locate(text, field)}, {name}"


def _mask(error: SlowscaleError) -> None:
    """Mask the addresses in an error, which may hold a password."""
    for name in ("subject", "problem", "given", "allowed", "remedy"):
        if isinstance(text := getattr(error, name), str):
            setattr(error, name, ADDRESS.sub("***", text))


def errors_in(error: ValidationError) -> list[SlowscaleError]:
    """Return all mistakes that pydantic found in a plan, or in a part of one, as errors; their paths are the fields."""
    found = []
    for mistake in error.errors():
        context: Mapping[str, Any] = mistake.get("ctx", {})
        field = list(mistake["loc"])
        if len(field) > 2 and field[0] == "tables" and field[2] in TABLE_KINDS:
            del field[2]  # the kind of table, which pydantic inserts
        field = [step for step in field if step not in (BY_NAME, WITH_PARAMETERS)]
        if field and field[-1] in UNION_TYPES:
            del field[-1]
        if isinstance(one := context.get("error"), SlowscaleError):
            field = field if context["field"] is None else list(context["field"])
        else:
            one = _as_error(mistake, context, field)
        one.path = tuple(field)
        _mask(one)
        found.append(one)
    return found


def _as_error(mistake: Any, context: Mapping[str, Any], field: Sequence[Any]) -> SlowscaleError:
    """Return one of pydantic's mistakes as an error of the library."""
    given, kind = mistake.get("input"), mistake["type"]
    name = field[-1] if field else "plan"
    if "error" in context:  # raised by a validator
        return ParameterError("", str(context["error"]), code="value")
    if kind == "extra_forbidden":
        near, known = _fields_like(mistake["loc"])
        place = near or OTHER_FIELDS.get(str(name)) or _place_of_field(str(name))
        remedy = f"did you mean {place}?" if place else f"there are {', '.join(known)}" if known else None
        return ParameterError("", "there is no such field", code="unknown-name", remedy=remedy)
    if kind == "missing":
        what = f"the table [{field[0]}]" if len(field) == 1 else f"a line {name} = …"
        return ParameterError("", f"is missing: add {what}", code="missing")
    if kind in ("model_type", "dict_type"):
        is_noise = name == "count" or (len(field) > 1 and field[-2] in ("caps", "sums"))
        inside = 'mechanism = "gaussian", std = 20' if is_noise else TABLE_EXAMPLES.get(str(name), "…")
        return ParameterError("", allowed=f"a table such as {name} = {{ {inside} }}", given=Shown(given_words(given)))
    if given == "" and kind == "string_too_short":
        return ParameterError("", "still to be chosen", code="missing")
    allowed = RULES[kind].format(**context) if kind in RULES else None
    if given == "" and kind == "literal_error":
        return ParameterError("", f"still to be chosen: must be {allowed}", code="missing")
    choices = CHOICES.get(name, ())
    shown = given if choices and isinstance(given, str) else Shown(given_words(given))
    like = mechanism_like(str(given)) if name == "mechanism" else similar(str(given), choices)
    remedy = f"did you mean {like!r}?" if like and kind == "literal_error" else OTHER_FORMS.get((kind, type(given)))
    if name == "mechanism" and (noise := noise_named(str(given))):
        remedy = f'did you mean mechanism = "{like}", noise = "{noise}"?'
    if "formats" in field and given in ("xlsx", "excel"):
        remedy = f"did you mean {OTHER_FIELDS['excel']}?"
    problem = "" if allowed else mistake["msg"]
    return ParameterError("", problem, allowed=allowed, given=shown, remedy=remedy)


def _fields_like(location: Sequence[Any]) -> tuple[str | None, list[str]]:
    """Return the field with the name closest to an unknown one, and all fields of the table that it is in."""
    table: Any = Plan
    for i, step in enumerate(location[:-1]):
        if i == 2 and location[0] == "tables":
            table = TABLE_KINDS[step]
        elif _is_model(table) and step in table.model_fields:
            table = _model_in(table.model_fields[step].annotation)
    if not _is_model(table):
        return None, []
    known = list(table.model_fields)
    if table is SumsPlan:  # the table may have been meant to be of another kind
        known += ["quantiles", "rollup"]
    return similar(str(location[-1]), known), known


def _place_of_field(name: str) -> str | None:
    """Return the table of a plan that has a field of this name, or is called so, with the name."""
    if name in Plan.model_fields:
        return f"the table [{name}], on a line by itself"
    models = {table: _model_in(field.annotation) for table, field in Plan.model_fields.items()}
    models["tables.NAME"] = SumsPlan
    found = [table for table, model in models.items() if table != "tables" and model and name in model.model_fields]
    return f"{name} in [{found[0]}]" if found else None


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
