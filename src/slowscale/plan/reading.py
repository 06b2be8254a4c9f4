"""Plan files are read and checked here, and their paths resolved."""

import os
import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from slowscale.core.errors import PlanError
from slowscale.plan.inputs import DataPlan, KeysPlan
from slowscale.plan.mistakes import format_mistakes
from slowscale.plan.models import Plan


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
    except tomllib.TOMLDecodeError as error:
        raise PlanError(f"{source} is not TOML: {error}") from None
    except RecursionError:
        raise PlanError(f"{source} cannot be read: its tables or lists are nested too deeply") from None
    try:
        plan = Plan.model_validate(values)
    except ValidationError as error:
        raise PlanError(format_mistakes(error, source, text)) from None
    return _resolve_paths(plan, source)


def _resolve_paths(plan: Plan, source: Path) -> Plan:
    """Return the plan with all paths resolved against the folder of its file."""
    folder = source.parent
    update: dict[str, Any] = {"source": str(source), "data": _resolve_data(plan.data, folder)}
    update["keys"] = _resolve_keys(plan.keys, folder)
    update["table"] = [part.model_copy(update={"keys": _resolve_keys(part.keys, folder)}) for part in plan.table]
    update["hierarchy"] = [
        part if part.file is None else part.model_copy(update={"file": str(folder / part.file)})
        for part in plan.hierarchy
    ]
    if plan.ledger is not None:
        update["ledger"] = plan.ledger.model_copy(update={"path": str(folder / plan.ledger.path)})
    if plan.publication is not None:
        update["publication"] = plan.publication.resolved(folder)
    files = {name: str(folder / path) for name, path in plan.output.files.items()}
    files |= {} if plan.output.sign is None else {"sign": str(folder / plan.output.sign)}
    files |= {} if plan.output.folder is None else {"folder": str(folder / plan.output.folder)}
    update["output"] = plan.output.model_copy(update=files)
    return plan.model_copy(update=update)


def _resolve_keys(keys: KeysPlan | None, folder: Path) -> KeysPlan | None:
    if keys is None or keys.file is None:
        return keys
    return keys.model_copy(update={"file": str(folder / keys.file)})


def _resolve_data(data: DataPlan, folder: Path) -> DataPlan:
    if isinstance(data.path, list):
        return data.model_copy(update={"path": [str(folder / path) for path in data.path]})
    if data.path is not None:
        return data.model_copy(update={"path": str(folder / data.path)})
    if data.is_database_file:
        assert data.database is not None
        scheme, _, place = data.database.partition("://")
        return data.model_copy(update={"database": f"{scheme}://{folder / place}"})
    return data
