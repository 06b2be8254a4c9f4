"""Data: which records, which types their columns have, and what is protected. No value of a record is shown."""

from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from slowscale.errors import SlowscaleError
from slowscale.plan import plan_for
from slowscale.workbench.app import Page, Workbench, workbench_of
from slowscale.workbench.draft import Draft

DATA_ENDINGS = (
    *(".parquet", ".csv", ".tsv", ".txt", ".csv.gz", ".xlsx", ".xls", ".dta", ".sav", ".zsav", ".por", ".sas7bdat"),
    ".xpt",
)


@dataclass(frozen=True)
class ShownColumn:
    """A column as the page shows it: its name, its declared or stored type, and whether a type can be declared."""

    name: str
    type: str
    editable: bool


async def show(request: Request) -> Response:
    """Show which data the plan has, with its columns."""
    return _page(request, workbench_of(request))


def _page(request: Request, workbench: Workbench, status: int = 200, **more: Any) -> Response:
    draft = workbench.draft
    place = draft.get("data", "path") or draft.get("data", "database") or ""
    context: dict[str, Any] = {"problem_at": None, "field_problem": None, "place": place, **more}
    columns: list[ShownColumn] = []
    if place and "problem" not in more:
        try:
            columns = stored_columns(workbench, draft)
        except (SlowscaleError, OSError) as error:
            context |= {"problem_at": "place", "field_problem": str(error)}
    return workbench.page(
        request,
        "data.html",
        status,
        draft=draft,
        files=workbench.folder.files(DATA_ENDINGS),
        columns=columns,
        protect=draft.get("data", "protect") or "",
        where=draft.get("data", "where") or "",
        name=draft.get("data", "name") or "",
        **context,
    )


def stored_columns(workbench: Workbench, draft: Draft) -> list[ShownColumn]:
    """Return the columns of the plan's data."""
    from slowscale.tables.sources import open_table

    data = draft.get("data")
    declared = data.get("types", {})
    if "database" in data:
        table = open_table(workbench.folder.inside_source(data["database"]))
    else:
        place = data["path"] if isinstance(data["path"], str) else data["path"][0]
        table = open_table(workbench.folder.inside_source(place), declared or None, data.get("csv"))
    is_file = "path" in data
    return [ShownColumn(name, declared.get(name, str(dtype)), is_file) for name, dtype in table.schema().items()]


async def choose(request: Request) -> Response:
    """Start a plan for some data, with proposed types."""
    workbench, form = workbench_of(request), await request.form()
    place = str(form.get("place", "")).strip()
    try:
        text = _starting_text(workbench, place)
    except (SlowscaleError, OSError) as error:
        return _page(request, workbench, 400, problem_at="place", field_problem=str(error), place=place)
    Draft(workbench.plan, text).save(str(form.get("version", "")))
    return RedirectResponse(page.path, 303)


def _starting_text(workbench: Workbench, place: str) -> str:
    """Return the text of a plan for some data: that of `slowscale init`, or the present plan with other data."""
    text, _ = plan_for(workbench.folder.inside_source(place), workbench.plan)
    return text


async def save_columns(request: Request) -> Response:
    """Save declared types, what is protected, the filter and the name of the data set."""
    workbench, form = workbench_of(request), await request.form()
    draft = workbench.draft
    types = {name.removeprefix("type:"): str(value).strip() for name, value in form.items() if name.startswith("type:")}
    stored = {column.name: column.type for column in stored_columns(workbench, draft.put(("data", "types"), None))}
    declared = {name: value for name, value in types.items() if value and value != stored.get(name)}
    draft = draft.put(("data", "types"), declared or None)
    for field in ("protect", "where", "name"):
        draft = draft.put(("data", field), str(form.get(field, "")).strip() or None)
    draft.save(str(form.get("version", "")))
    return RedirectResponse(page.path, 303)


page = Page(
    "/data",
    "Data",
    [
        Route("/data", show, methods=["GET"]),
        Route("/data", choose, methods=["POST"]),
        Route("/data/columns", save_columns, methods=["POST"]),
    ],
)
