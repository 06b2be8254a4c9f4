"""Data: the records, the types of their columns, and the protected entities. No value of a record is shown."""

import os
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from slowscale.core.errors import SlowscaleError
from slowscale.plan import plan_for
from slowscale.plan.starting import proposed_ledger, proposed_name, template_around
from slowscale.workbench import forms
from slowscale.workbench.app import Page, Workbench, workbench_of
from slowscale.workbench.draft import ChangedElsewhereError, Draft

DATA_ENDINGS = (
    *(".parquet", ".csv", ".tsv", ".txt", ".csv.gz", ".xlsx", ".dta", ".sav", ".zsav", ".por", ".sas7bdat"),
    ".xpt",
)
PROPOSED = ("path", "database", "name", "types", "csv")  # the fields of [data] that a new plan has
FIELDS = ("protect", "where", "name")
CHANGED_ELSEWHERE = (
    "The plan was changed since this page was loaded, in another tab or by an editor. Nothing was saved. Your changes "
    "are kept below: compare them with the plan, then save again."
)
REMEMBERED = 8  # tables whose columns are kept in memory


@dataclass(frozen=True)
class ShownColumn:
    """A column as the page shows it: its name, its declared or stored type, and whether a type can be declared."""

    name: str
    type: str
    editable: bool
    derived: bool = False


@dataclass(frozen=True)
class Columns:
    """The columns of the plan's data, stored and derived, and their mistakes.

    Attributes
    ----------
    found
        The columns; those that cannot be read as declared have the declared type.
    problem
        Why the data cannot be read, or "".
    errors
        The mistakes, by field of the page.
    """

    found: tuple[ShownColumn, ...] = ()
    problem: str = ""
    errors: tuple[tuple[str, str], ...] = ()

    @property
    def types(self) -> dict[str, str]:
        """The types by column."""
        return {column.name: column.type for column in self.found}


_columns: dict[Any, Columns] = {}  # by the file, when it was changed, and how it is read


async def columns_of(workbench: Workbench, draft: Draft) -> Columns:
    """Return the columns of the plan's data, without holding up other requests while a large file is read."""
    return await run_in_threadpool(read_columns, workbench, draft)


def read_columns(workbench: Workbench, draft: Draft) -> Columns:
    """Return the columns of the plan's data. A file that did not change is read once."""
    data = draft.get("data")
    if not isinstance(data, dict) or not (data.get("path") or data.get("database")):
        return Columns()
    try:
        where, files = _location(workbench, data)
        stamp = [(file, (facts := os.stat(file)).st_mtime_ns, facts.st_size) for file in files]
    except (SlowscaleError, OSError) as error:
        return Columns(problem=str(error))
    key = repr((where, stamp, [data.get(name) for name in ("types", "csv", "derive", "where")]))
    if key not in _columns or not files:
        found = _read_columns(where, data)
        while len(_columns) >= REMEMBERED:
            _columns.pop(next(iter(_columns)), None)
        _columns[key] = found
        return found
    return _columns[key]


def _location(workbench: Workbench, data: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the paths, or the address, of the data, and its files."""
    from slowscale.data.sources import matching_files

    if "database" in data:
        return [workbench.folder.inside_source(str(data["database"]))], []
    paths = data["path"] if isinstance(data["path"], list) else [data["path"]]
    places = [workbench.folder.inside_source(str(path)) for path in paths]
    return places, [file for place in places for file in matching_files(place, "data")]


def _read_columns(where: list[str], data: dict[str, Any]) -> Columns:
    from slowscale.data import rowwise
    from slowscale.data.conversion import check_types
    from slowscale.data.sources import open_table

    is_file, errors = "path" in data, {}
    declared = data.get("types") if isinstance(data.get("types"), dict) else {}
    assert declared is not None
    known = {}
    for name, given in declared.items():
        try:
            check_types({name: given})
            known[name] = given
        except SlowscaleError as error:
            errors[f"type:{name}"] = str(error)
    try:
        try:
            table = open_table(where, known or None, data.get("csv")) if is_file else open_table(where[0])
        except SlowscaleError as error:
            if not known:
                raise
            # The columns are shown although they cannot have these types.
            table = open_table(where, None, data.get("csv"))
            about = [name for name in known if error.path[-1:] == (name,) or error.subject == f"types[{name!r}]"]
            errors[f"type:{about[0]}" if about else "types"] = str(error)
    except (SlowscaleError, OSError) as error:
        return Columns(problem=str(error), errors=tuple(errors.items()))
    found = [ShownColumn(name, str(declared.get(name, dtype)), is_file) for name, dtype in table.schema().items()]
    for name, expression in (data.get("derive") or {}).items():
        dtype = ""
        try:
            table = rowwise.derive(table, {name: expression})
            dtype = str(table.schema()[name])
        except SlowscaleError as error:
            errors[f"derive:{name}"] = str(error)
        found.append(ShownColumn(name, dtype, False, True))
    if data.get("where") and not errors:
        try:
            rowwise.keep(table, data["where"])
        except SlowscaleError as error:
            errors["where"] = str(error)
    return Columns(tuple(found), "", tuple(errors.items()))


async def show(request: Request) -> Response:
    """Show the data of the plan, with its columns."""
    return await _page(request, workbench_of(request))


async def _page(request: Request, workbench: Workbench, status: int = 200, **more: Any) -> Response:
    draft = workbench.draft
    path = draft.get("data", "path") or draft.get("data", "database") or ""
    place = path[0] if isinstance(path, list) and path else path
    read = await columns_of(workbench, draft)
    typed = more.pop("typed", {})
    errors = {**dict(read.errors), **({"place": read.problem} if read.problem else {}), **more.pop("errors", {})}
    context: dict[str, Any] = {"place": place, "files_named": len(path) if isinstance(path, list) else 1, **more}
    return workbench.page(
        request,
        "data.html",
        status,
        draft=draft,
        files=workbench.folder.files(DATA_ENDINGS),
        columns=read.found,
        notes=draft.comments("data", "types"),
        types={**read.types, **{name.removeprefix("type:"): value for name, value in typed.items()}},
        errors=errors,
        **{field: typed.get(field, draft.get("data", field) or "") for field in FIELDS},
        **context,
    )


async def choose(request: Request) -> Response:
    """Start a plan for some data, with proposed types, or use other data in the present plan."""
    workbench, form = workbench_of(request), await request.form()
    place, draft = forms.text(form, "place"), workbench.draft
    try:
        chosen = await run_in_threadpool(with_data, workbench, draft, place)
    except (SlowscaleError, OSError) as error:
        return await _page(request, workbench, 400, errors={"place": str(error)}, place=place)
    try:
        chosen.save(forms.text(form, "version"))
    except ChangedElsewhereError as error:
        return await _page(request, workbench, 400, problem=str(error), place=place)
    return RedirectResponse(page.path, 303)


def with_data(workbench: Workbench, draft: Draft, place: str) -> Draft:
    """Return a plan for some data: that of `slowscale init`, or the present plan with other data."""
    text, _ = plan_for(workbench.folder.inside_source(place), workbench.plan)
    new = Draft(workbench.plan, text)
    if not draft.text.strip() or _is_untouched(draft):
        return new
    data, proposed = draft.get("data"), dict(new.get("data"))
    if not data:
        return draft.put(("data",), proposed).with_comments(("data", "types"), new.comments("data", "types"))
    before = data.get("path") or data.get("database") or ""
    source, other = ("path", "database") if "path" in proposed else ("database", "path")
    if before == proposed[source]:
        # The same data again: types that were corrected stay.
        stays = {name: data["types"][name] for name in data.get("types", {}) if name in proposed.get("types", {})}
        proposed |= {"types": {**proposed["types"], **stays}} if stays else {}
        proposed |= {"csv": data["csv"]} if "csv" in data else {}
    draft = draft.put(("data", source), proposed[source]).put(("data", other), None)
    fields = ["types", "csv"]
    if isinstance(before, str) and data.get("name") in (None, proposed_name(before)):
        fields.append("name")
    for field in fields:
        draft = draft.put(("data", field), proposed.get(field))
    if isinstance(before, str) and draft.get("ledger", "path") == proposed_ledger(before):
        draft = draft.put(("ledger", "path"), proposed_ledger(proposed[source]))
    return draft.with_comments(("data", "types"), new.comments("data", "types"))


def _is_untouched(draft: Draft) -> bool:
    """Whether a plan is still the proposed one, apart from its data."""
    place = draft.get("data", "path") or draft.get("data", "database")
    before, behind = template_around(place if isinstance(place, str) else "")
    plain = draft.text.startswith(before) and draft.text.endswith(behind)
    return plain and set(draft.get("data", default={})) <= set(PROPOSED)


async def save_columns(request: Request) -> Response:
    """Save declared types, the protected entities, the filter and the name of the data set."""
    workbench, form = workbench_of(request), await request.form()
    typed = {name: forms.text(form, name) for name in form if name.startswith("type:") or name in FIELDS}
    draft = workbench.draft
    if forms.text(form, "version") != draft.version:
        return await _page(request, workbench, 409, typed=typed, problem=CHANGED_ELSEWHERE)
    shown = await columns_of(workbench, draft)
    try:
        changed = with_columns(draft, typed, shown.types)
    except SlowscaleError as error:
        return await _page(request, workbench, 400, typed=typed, problem=str(error))
    errors = await run_in_threadpool(_errors_of, workbench, draft, changed)
    if errors:
        return await _page(request, workbench, 400, typed=typed, errors=errors)
    try:
        changed.save(draft.version)
    except ChangedElsewhereError:
        return await _page(request, workbench, 409, typed=typed, problem=CHANGED_ELSEWHERE)
    return RedirectResponse(page.path, 303)


def with_columns(draft: Draft, typed: dict[str, str], types: dict[str, str]) -> Draft:
    """Return the plan with the changes of the page. Everything else stays.

    Parameters
    ----------
    draft
        The plan.
    typed
        The fields of the form.
    types
        The types that the page showed, by column.
    """
    for field, value in typed.items():
        name = field.removeprefix("type:")
        if field != name:
            if name in types and value != types[name]:
                draft = draft.put(("data", "types", name), value or None)
        elif value != str(draft.get("data", field) or "").strip():
            draft = draft.put(("data", field), value or None)
    return draft if draft.get("data", "types") != {} else draft.put(("data", "types"), None)


def _errors_of(workbench: Workbench, before: Draft, draft: Draft) -> dict[str, str]:
    """Return the new mistakes of a changed plan, by field of the page."""
    known = {words for _, words in before.mistakes} | {words for _, words in read_columns(workbench, before).errors}
    found = dict(read_columns(workbench, draft).errors)
    for place, words in draft.mistakes:
        if place[:1] == ("data",) and len(place) > 1 and place[1] in FIELDS:
            found.setdefault(str(place[1]), words)
    return {field: words for field, words in found.items() if words not in known}


page = Page(
    "/data",
    "Data",
    [
        Route("/data", show, methods=["GET"]),
        Route("/data", choose, methods=["POST"]),
        Route("/data/columns", save_columns, methods=["POST"]),
    ],
)
