"""Tables: what to sum or count, in which public cells, and which margins go with the cells, drawn or derived."""

from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from slowscale.errors import ParameterError, SlowscaleError
from slowscale.workbench import forms
from slowscale.workbench.app import Page, Workbench, workbench_of
from slowscale.workbench.draft import Draft
from slowscale.workbench.pages.data import DATA_ENDINGS, ShownColumn, stored_columns

CELLS = "cells"  # the name of the table that margins are derived from
MARGINS = 4  # that the form offers
NUMBERS = ("int", "uint", "float", "decimal")
KINDS_OF_CELLS = {
    "total": "one total over all records",
    "file": "the cells in a file",
    "cross": "every combination of labels that I type",
    "public_in_data": "the cells that occur in the data: only if it is public which cells have records",
}


def is_number(column: ShownColumn) -> bool:
    """Whether a column can be summed, by its type."""
    return column.type.lower().lstrip("!").startswith(NUMBERS)


async def show(request: Request) -> Response:
    """Show what the plan publishes."""
    return _page(request, workbench_of(request))


def _page(request: Request, workbench: Workbench, status: int = 200, **more: Any) -> Response:
    draft = workbench.draft
    columns: list[ShownColumn] = []
    problem = more.pop("problem", None)
    if draft.get("data") is not None:
        try:
            columns = stored_columns(workbench, draft)
        except (SlowscaleError, OSError) as error:
            problem = str(error)
    shown = {**_shown(draft), **more}
    return workbench.page(
        request, "tables.html", status, draft=draft, columns=columns, numbers=[c.name for c in columns if is_number(c)],
        kinds=KINDS_OF_CELLS, files=workbench.folder.files(DATA_ENDINGS), margin_rows=MARGINS, problem=problem, **shown,
    )  # fmt: skip


def _shown(draft: Draft) -> dict[str, Any]:
    """Return what the form shows of the plan."""
    parts = draft.get("table", default=[])
    main: dict[str, Any] = next((part for part in parts if "from" not in part), {})
    keys = (main.get("keys") if parts else draft.get("keys")) or {}
    kind = next((kind for kind in ("file", "cross", "public_in_data") if keys.get(kind)), "total")
    margins = [
        {
            "name": part["name"],
            "by": part.get("by") or (part.get("keys") or {}).get("by") or [],
            "drawn": "from" not in part,
        }
        for part in parts
        if part is not main
    ]
    levels = draft.get("hierarchy", default=[])
    first = levels[0] if levels else {}
    return {
        "summed": {one.get("column"): str(one.get("unit", 1)) for one in draft.get("sums", default=[])},
        "counted": draft.get("count") is not None,
        "kind": kind,
        "by": keys.get("by") or list(keys.get("cross") or {}),
        "file": keys.get("file", ""),
        "cross": {name: "\n".join(map(str, labels)) for name, labels in (keys.get("cross") or {}).items()},
        "margins": margins,
        "level_column": first.get("column", ""),
        "level_digits": ", ".join(f"{name} = {count}" for name, count in (first.get("digits") or {}).items()),
        "level_file": first.get("file", ""),
        "level_names": ", ".join(first.get("levels") or []),
        "errors": {},
    }


async def save(request: Request) -> Response:
    """Write what the form says into the plan."""
    workbench, form = workbench_of(request), await request.form()
    try:
        draft = _written(workbench, workbench.draft, form)
    except forms.FieldError as error:
        return _page(request, workbench, 400, errors={error.field: error.words}, problem=error.words)
    draft.save(forms.text(form, "version"))
    return RedirectResponse(page.path, 303)


def _written(workbench: Workbench, draft: Draft, form: Any) -> Draft:
    summed = [str(name) for name in form.getlist("sum")]
    before = {one.get("column"): one for one in draft.get("sums", default=[])}
    sums = []
    for name in summed:
        unit = forms.text(form, f"unit:{name}") or "1"
        kept = {
            key: value for key, value in before.get(name, {"mechanism": ""}).items() if key not in ("column", "unit")
        }
        sums.append({"column": name, **kept, "unit": int(unit) if unit.isdigit() else unit})
    if not sums and not form.get("count"):
        raise forms.FieldError("sum", "choose a column to sum, or the number of records")
    draft = draft.put(("sums",), sums or None)
    draft = draft.put(("count",), (draft.get("count") or {"mechanism": ""}) if form.get("count") else None)
    keys = _keys(workbench, form)
    margins = _margins(form, keys)
    hierarchy = _hierarchy(workbench, form)
    draft = draft.put(("table",), None).put(("hierarchy",), None).put(("keys",), None)
    if not margins:
        return _single_output(draft.put(("keys",), keys))
    cells: dict[str, Any] = {"name": CELLS, **({"keys": keys} if keys else {})}
    draft = draft.put(("table",), [cells, *margins])
    if hierarchy is not None:
        draft = draft.put(("hierarchy",), [hierarchy])
    output = {"folder": draft.get("output", "folder") or "tables"}
    for name in ("report", "sign"):
        if draft.get("output", name):
            output[name] = draft.get("output", name)
    return draft.put(("output",), output)


def _single_output(draft: Draft) -> Draft:
    if draft.get("output", "folder") is None:
        return draft
    draft = draft.put(("output", "folder"), None).put(("output", "formats"), None)
    return draft if draft.get("output", "csv") else draft.put(("output", "parquet"), "published.parquet")


def _keys(workbench: Workbench, form: Any) -> dict[str, Any] | None:
    kind = forms.text(form, "kind")
    if kind not in KINDS_OF_CELLS:
        raise forms.FieldError("kind", "choose which cells are published")
    by = [str(name) for name in form.getlist("by")]
    if kind == "total":
        return None
    if not by:
        raise forms.FieldError("by", "choose the key columns, such as county")
    if kind == "file":
        file = forms.text(form, "file")
        try:
            place = workbench.folder.inside(file)
        except ParameterError as error:
            raise forms.FieldError("file", str(error)) from None
        if not place.exists():
            raise forms.FieldError("file", f"there is no file {file} in this folder")
        return {"by": by, "file": file}
    if kind == "public_in_data":
        return {"by": by, "public_in_data": True}
    cross = {}
    for name in by:
        labels = [line.strip() for line in forms.text(form, f"labels:{name}").replace(",", "\n").splitlines()]
        cross[name] = [label for label in labels if label]
        if not cross[name]:
            raise forms.FieldError(f"labels:{name}", f"type the labels of {name}, one per line")
    return {"by": by, "cross": cross}


def _margins(form: Any, keys: dict[str, Any] | None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for i in range(MARGINS):
        name = forms.text(form, f"margin{i}")
        if not name:
            continue
        if keys is None:
            raise forms.FieldError(f"margin{i}", "a margin needs cells to add up: choose the cells first")
        by = [word.strip() for word in forms.text(form, f"margin_by{i}").split(",") if word.strip()]
        if form.get(f"margin_drawn{i}"):
            found.append({"name": name, **_drawn_margin(by, keys, f"margin_by{i}")})
        else:
            found.append({"name": name, "from": CELLS, **({"by": by} if by else {})})
    return found


def _drawn_margin(by: list[str], keys: dict[str, Any], field: str) -> dict[str, Any]:
    """Return the keys of a margin with noise of its own. Its labels must be known without the cells."""
    if not by:
        return {}
    if "cross" in keys and set(by) <= set(keys["cross"]):
        return {"keys": {"by": by, "cross": {name: keys["cross"][name] for name in by}}}
    if "public_in_data" in keys:
        return {"keys": {"by": by, "public_in_data": True}}
    raise forms.FieldError(
        field, "a margin with noise of its own needs typed labels for its columns; derive it instead"
    )


def _hierarchy(workbench: Workbench, form: Any) -> dict[str, Any] | None:
    column = forms.text(form, "level_column")
    if not column:
        return None
    digits, file = forms.text(form, "level_digits"), forms.text(form, "level_file")
    if digits:
        pairs = [part.partition("=") for part in digits.split(",")]
        if not all(name.strip() and count.strip().isdigit() for name, _, count in pairs):
            raise forms.FieldError("level_digits", "write levels as sector = 2, subsector = 3")
        return {"column": column, "digits": {name.strip(): int(count) for name, _, count in pairs}}
    if not file:
        raise forms.FieldError("level_digits", f"say how labels of {column} belong to the levels: by digits, or a file")
    try:
        workbench.folder.inside(file)
    except ParameterError as error:
        raise forms.FieldError("level_file", str(error)) from None
    names = [word.strip() for word in forms.text(form, "level_names").split(",") if word.strip()]
    return {"column": column, "file": file, "levels": names}


page = Page(
    "/tables",
    "Tables",
    [Route("/tables", show, methods=["GET"]), Route("/tables", save, methods=["POST"])],
)
