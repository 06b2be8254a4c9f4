"""Tables: sums and counts, their public cells, and the margins of the cells, drawn or derived.

Saving compares the form with the plan and writes only the differences. Parts of a plan that the page cannot show are
read-only there.
"""

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from slowscale.core.errors import ParameterError, Shown, SlowscaleError
from slowscale.workbench import forms
from slowscale.workbench.app import Page, Workbench, workbench_of
from slowscale.workbench.draft import ChangedElsewhereError, Draft, Place, cells_of, chosen_sums, drawn_tables
from slowscale.workbench.pages.data import CHANGED_ELSEWHERE, DATA_ENDINGS, Columns, ShownColumn, columns_of

MARGINS, FREE_MARGINS = 4, 2  # rows that the form offers at least, and rows for further margins
NUMBERS = ("int", "uint", "float", "decimal")
KINDS_OF_CELLS = {
    "total": "one total over all records",
    "file": "the cells in a file",
    "cross": "every combination of labels that I type",
    "from_data": "the cells that occur in the data: only if it is public which cells have records",
}
LEVEL_FIELDS = ("level_column", "level_digits", "level_file", "level_names")


def is_number(column: ShownColumn) -> bool:
    """Whether a column can be summed, by its type."""
    return column.type.lower().lstrip("!").startswith(NUMBERS)


async def show(request: Request) -> Response:
    """Show the tables of the plan."""
    return await _page(request, workbench_of(request))


async def _page(request: Request, workbench: Workbench, status: int = 200, **more: Any) -> Response:
    draft = workbench.draft
    read = await columns_of(workbench, draft)
    form, problem, errors = more.get("form"), more.get("problem") or read.problem or None, more.get("errors", {})
    shown = form_state(draft)
    if form is not None:
        shown |= _typed(shown, form)
    names = [column.name for column in read.found]
    numbers = [column.name for column in read.found if is_number(column)]
    return workbench.page(
        request, "tables.html", status, draft=draft, known=bool(names),
        columns=[*names, *(name for name in [*shown["by"], *shown["cross"]] if name not in names)],
        numbers=list(dict.fromkeys([*numbers, *shown["summed"]])),
        kinds=KINDS_OF_CELLS, files=workbench.folder.files(DATA_ENDINGS), problem=problem, errors=errors, **shown,
    )  # fmt: skip


# From the plan to the form


def form_state(draft: Draft) -> dict[str, Any]:
    """Return the fields of the form for a plan; `locked` has a sentence for each part that the form cannot show."""
    name = cells_of(draft)
    cells = drawn_tables(draft).get(name, {})
    keys = cells.get("keys") or {}
    cross = keys.get("cross") or {}
    hierarchies = draft.get("hierarchies", default=[])
    first = hierarchies[0] if hierarchies else {}
    margins = [
        _shown_margin(draft, other, part, cells)
        for other, part in draft.get("tables", default={}).items()
        if other != name
    ]
    return {
        "cells": name,
        "summed": {column: str(one.get("unit", 1)) for column, one in chosen_sums(cells).items()},
        "counted": cells.get("count") is not None,
        "kind": _kind(keys),
        "by": list(keys.get("by") or cross),
        "file": keys.get("file", ""),
        "cross": {column: "\n".join(map(forms.shown_label, labels)) for column, labels in cross.items()},
        "margins": margins,
        "margin_rows": max(MARGINS, len(margins) + FREE_MARGINS),
        "level_column": first.get("column", ""),
        "level_digits": forms.join_list(f"{level} = {count}" for level, count in (first.get("digits") or {}).items()),
        "level_file": first.get("file", ""),
        "level_names": forms.join_list(first.get("levels") or []),
        "locked": _locked(draft, cross, hierarchies),
    }


def _kind(keys: dict[str, Any]) -> str:
    return next((kind for kind in ("file", "cross", "from_data") if keys.get(kind)), "total")


def _locked(draft: Draft, cross: dict[str, list[Any]], hierarchies: list[Any]) -> dict[str, str]:
    """Return the parts of the page that cannot show the plan, with a sentence for each."""
    found = {}
    edit = f"which this page cannot show; edit {draft.path.name}."
    labels = [str(label) for labels in cross.values() for label in labels]
    if any(label != label.strip() or not label or "\n" in label or "\r" in label for label in labels):
        found["keys"] = f"This plan has labels with line ends or surrounding whitespace, {edit}"
    if len(hierarchies) > 1:
        found["hierarchies"] = f"This plan has several hierarchies, {edit}"
    return found


def _shown_margin(draft: Draft, name: str, part: dict[str, Any], cells: dict[str, Any]) -> dict[str, Any]:
    """Return a table as a row of margins; `locked` says why the row is read-only, or is empty."""
    keys, drawn, locked = part.get("keys") or {}, "rollup" not in part, ""
    by = list(part.get("by") or keys.get("by") or keys.get("cross") or [])
    if "quantiles" in part:
        locked = "has quantiles"
    elif drawn:
        try:
            usual = _drawn_margin(cells, by, cells.get("keys") or {}, "")
        except forms.FieldError:
            usual = {**cells, "keys": None}
        if any(part.get(field) != usual.get(field) for field in {*part, *usual} - {"keys"}):
            locked = "has other sums or options than the cells"
        elif part != usual:
            locked = "has other keys than the cells"
    elif part["rollup"] != cells_of(draft):
        locked = f"is derived from {part['rollup']}"
    if locked:
        locked = f"This table {locked}, which this page cannot show; edit {draft.path.name}."
    return {"name": name, "by": forms.join_list(map(str, by)), "drawn": drawn, "locked": locked}


def _typed(shown: dict[str, Any], form: Any) -> dict[str, Any]:
    """Return the sent fields in the form of `form_state`, to show them again. Locked parts stay as they are."""
    found: dict[str, Any] = {
        "summed": {str(name): forms.text(form, f"unit:{name}") for name in form.getlist("sum")},
        "counted": bool(form.get("count")),
    }
    if "keys" not in shown["locked"]:
        labels = {name: str(value) for name, value in form.items() if name.startswith("labels:")}
        found["kind"], found["file"] = forms.text(form, "kind"), forms.text(form, "file")
        found["by"] = [str(name) for name in form.getlist("by")]
        found["cross"] = {name.removeprefix("labels:"): value for name, value in labels.items() if value.strip()}
    rows = [dict(row) for row in shown["margins"]]
    for i in range(max(shown["margin_rows"], _rows_sent(form))):
        row = rows[i] if i < len(rows) else {"name": "", "by": "", "drawn": False, "locked": ""}
        if not row["locked"]:
            row |= _sent_margin(form, i)
        rows[i : i + 1] = [row]
    found["margins"], found["margin_rows"] = rows, len(rows)
    if "hierarchies" not in shown["locked"]:
        found |= {field: forms.text(form, field) for field in LEVEL_FIELDS}
    return found


def _rows_sent(form: Any) -> int:
    numbers = [name.removeprefix("margin_by") for name in form if name.startswith("margin_by")]
    return max((int(number) + 1 for number in numbers if number.isascii() and number.isdecimal()), default=0)


def _sent_margin(form: Any, i: int) -> dict[str, Any]:
    return {
        "name": forms.text(form, f"margin{i}"),
        "by": forms.text(form, f"margin_by{i}"),
        "drawn": bool(form.get(f"margin_drawn{i}")),
    }


# From the form to the plan


async def save(request: Request) -> Response:
    """Write the changes of the form into the plan."""
    workbench, form = workbench_of(request), await request.form()
    draft = workbench.draft
    if forms.text(form, "version") != draft.version:
        return await _page(request, workbench, 409, form=form, problem=CHANGED_ELSEWHERE)
    try:
        changed = apply_form(workbench, draft, form, await columns_of(workbench, draft))
        errors = mistakes_by_field(draft, changed)
    except forms.FieldError as error:
        errors = {error.field: str(error)}
    except SlowscaleError as error:
        return await _page(request, workbench, 400, form=form, problem=str(error))
    if errors:
        return await _page(request, workbench, 400, form=form, errors=errors, problem=next(iter(errors.values())))
    try:
        changed.save(draft.version)
    except ChangedElsewhereError:
        return await _page(request, workbench, 409, form=form, problem=CHANGED_ELSEWHERE)
    return RedirectResponse(page.path, 303)


def apply_form(workbench: Workbench, draft: Draft, form: Any, columns: Columns) -> Draft:
    """Return the plan with the changes of the form. Everything else stays, with its comments.

    Parameters
    ----------
    workbench
        The workbench, whose folder has the files.
    draft
        The plan that the form was made from.
    form
        The fields as sent.
    columns
        The columns of the data.
    """
    shown = form_state(draft)
    sent = {**shown, **_typed(shown, form)}
    locked, place = shown["locked"], ("tables", shown["cells"])
    before = draft.get(*place, "keys", default={})
    keys = before if "keys" in locked else _keys(workbench, before, shown, sent, columns.types)
    levels_before = draft.get("hierarchies", default=[])
    hierarchies = levels_before if "hierarchies" in locked else _hierarchies(workbench, levels_before, shown, sent)
    rows = [row for row in sent["margins"] if row["name"] or row["by"] or row["drawn"]]
    if hierarchies != levels_before and hierarchies and not rows:
        raise forms.FieldError(
            "the hierarchy", "is not used by a margin", code="unused", path=("level_column",),
            remedy="name a margin by one of its levels above, or empty these fields",
        )  # fmt: skip
    if keys != before or hierarchies != levels_before or rows != shown["margins"]:
        levels = [level for one in hierarchies for level in [*(one.get("digits") or {}), *(one.get("levels") or [])]]
        _check_margins(sent["margins"], keys, levels, columns)
    draft = _with_sums(draft, place, shown, sent)
    if "keys" not in locked and (keys != before or not keys):
        # A new plan has keys in which nothing is chosen: they are removed for one total.
        draft = draft.put((*place, "keys"), keys or None)
    draft = _with_margins(draft, shown, sent["margins"])
    if not hierarchies:
        return draft.put(("hierarchies",), None)
    return draft if hierarchies == levels_before else draft.put(("hierarchies", 0), hierarchies[0])


def _with_sums(draft: Draft, place: Place, shown: dict[str, Any], sent: dict[str, Any]) -> Draft:
    """Return the plan with the sums and the count of the cells as sent."""
    if not sent["summed"] and not sent["counted"]:
        raise forms.FieldError(
            "the table", "publishes nothing", code="empty", path=("sum",),
            remedy="choose a column to sum, or the number of records",
        )  # fmt: skip
    sums = (*place, "sums")
    if sent["counted"] and not shown["counted"]:
        draft = draft.put((*place, "count"), {"mechanism": ""})
    new = [name for name in sent["summed"] if name not in shown["summed"]]
    for name in draft.get(*sums, default={}):
        if name not in shown["summed"] and new:  # a new plan has a sum whose column is not chosen yet
            draft = draft.renamed((*sums, name), new.pop(0))
        elif name not in sent["summed"]:
            draft = draft.put((*sums, name), None)
    for name in new:
        draft = draft.put((*sums, name), {"mechanism": ""})
    for name, typed in sent["summed"].items():
        unit = typed or "1"
        if unit != str(draft.get(*sums, name, "unit", default=1, kind=(int, str))):
            draft = draft.put((*sums, name, "unit"), int(unit) if unit.isascii() and unit.isdecimal() else unit)
    if draft.get(*sums) == {}:
        draft = draft.put(sums, None)
    return draft if sent["counted"] else draft.put((*place, "count"), None)


def _keys(
    workbench: Workbench, before: dict[str, Any], shown: dict[str, Any], sent: dict[str, Any], types: dict[str, str]
) -> dict[str, Any]:
    """Return the keys that the form asks for: those of the plan, with the changes; empty for one total."""
    kind = sent["kind"]
    if kind not in KINDS_OF_CELLS:
        raise forms.FieldError("the cells", allowed=tuple(KINDS_OF_CELLS.values()), given=kind, path=("kind",))
    if kind == "total":
        return {}
    # The order in the plan is that of the published table; further columns follow.
    by = [name for name in shown["by"] if name in sent["by"]]
    by += [name for name in sent["by"] if name not in by]
    named_by_file = kind == "file" and before.get("file") and not before.get("by")
    if not by and not named_by_file:
        raise forms.FieldError(
            "the table", "has no key columns", code="missing", remedy="choose them, such as county", path=("by",)
        )
    found = {name: value for name, value in before.items() if name not in ("file", "cross", "from_data")}
    if by != shown["by"] or (by and not before.get("by") and kind != "cross"):
        found["by"] = by
    if kind != "file":
        found = {name: value for name, value in found.items() if name not in ("types", "csv")}
        for name in by if by != shown["by"] or kind != shown["kind"] else ():
            _label_kind(name, types)
    if kind == "from_data":
        return {**found, "from_data": True}
    if kind == "file":
        if sent["file"] != before.get("file"):
            _check_file(workbench, "file", sent["file"])
        return {**found, "file": sent["file"]}
    if "by" not in before and by != shown["by"]:
        found.pop("by", None)  # the labels name the columns
    cross = {}
    for name in by:
        lines = forms.lines(sent["cross"].get(name, ""))
        if name in shown["cross"] and lines == forms.lines(shown["cross"][name]):
            cross[name] = before["cross"][name]
            continue
        label_kind = _label_kind(name, types)
        cross[name] = [forms.label(line, label_kind, f"labels:{name}") for line in lines]
        if not cross[name]:
            path = (f"labels:{name}",)
            raise forms.FieldError(name, "has no labels", code="missing", remedy="type them, one per line", path=path)
    order = [*(name for name in before.get("cross") or {} if name in cross), *cross]
    return {**found, "cross": {name: cross[name] for name in order}}


def _label_kind(name: str, types: dict[str, str]) -> str | None:
    """Return the kind of a column's labels, or None if its type is not known; raise if it cannot have labels."""
    from slowscale.data.keys import label_kind

    dtype = types.get(name) or "string"
    try:
        kind = label_kind(dtype)
    except Exception:  # the type is a mistake, which the page of the data shows
        return None
    if kind is None:
        raise forms.FieldError(
            f"key column {name}", allowed="text, whole numbers, booleans or dates", given=Shown(dtype),
            remedy="choose another column", path=("by",),
        )  # fmt: skip
    return kind


def _check_file(workbench: Workbench, field: str, file: str) -> None:
    try:
        place = workbench.folder.inside(file)
    except ParameterError as error:
        raise forms.FieldError(error, code=error.code, path=(field,)) from None
    if not place.exists():
        raise forms.FieldError("there is no file", code="missing", given=Shown(file), path=(field,))


def _hierarchies(
    workbench: Workbench, before: list[dict[str, Any]], shown: dict[str, Any], sent: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return the hierarchy that the form asks for, in a list, which is empty if there is none."""
    if all(sent[field] == shown[field] for field in LEVEL_FIELDS):
        return before
    column, digits, file, names = (sent[field] for field in LEVEL_FIELDS)
    if not (column or digits or file or names):
        return []
    if not column:
        raise forms.FieldError(
            "the hierarchy", "has no column", code="missing", path=("level_column",),
            remedy="name the key column that the levels are above, such as county",
        )  # fmt: skip
    if digits and file:
        raise forms.FieldError(
            "the hierarchy", "has digits and a file", code="conflict", remedy="give one of them", path=("level_file",)
        )
    kept = dict(before[0]) if before else {}
    if digits:
        pairs = [part.rpartition("=") for part in forms.split_list(digits)]
        counts = [count.strip() for _, _, count in pairs]
        if not all(name.strip() for name, _, _ in pairs) or not all(
            count.isascii() and count.isdecimal() for count in counts
        ):
            allowed = "names and numbers of digits, such as sector = 2, subsector = 3"
            raise forms.FieldError("levels", allowed=allowed, given=digits, path=("level_digits",))
        return [{"column": column, "digits": {name.strip(): int(count) for name, _, count in pairs}}]
    if not file:
        raise forms.FieldError(
            "the hierarchy", f"does not assign the labels of {column} to levels", code="missing",
            remedy="give digits or a file", path=("level_digits",),
        )  # fmt: skip
    if file != shown["level_file"]:
        _check_file(workbench, "level_file", file)
    if not forms.split_list(names):
        raise forms.FieldError(
            "the hierarchy", "names no levels", code="missing", path=("level_names",),
            remedy="name the columns of the file that are the levels, such as state",
        )  # fmt: skip
    kept.pop("digits", None)
    return [{**kept, "column": column, "file": file, "levels": forms.split_list(names)}]


def _check_margins(
    rows: Sequence[dict[str, Any]], keys: dict[str, Any], levels: Sequence[str], columns: Columns
) -> None:
    """Raise if a margin has no name, a name twice, or a column that the cells do not have."""
    # A file of cells may name the key columns itself.
    known = [*(keys.get("by") or keys.get("cross") or (columns.types if keys else ())), *levels]
    names: list[str] = []
    for i, row in enumerate(rows):
        if not (row["name"] or row["by"] or row["drawn"]):
            continue
        if not row["name"]:
            raise forms.FieldError(
                "the margin", "has no name", code="missing", path=(f"margin{i}",),
                remedy="give it one, such as states; its file has this name",
            )  # fmt: skip
        if row["name"].lower() in names:
            raise forms.FieldError(
                f"the margin {row['name']}",
                "is there twice",
                code="duplicate",
                remedy="rename one",
                path=(f"margin{i}",),
            )
        names.append(row["name"].lower())
        if row["locked"]:
            continue
        if not keys:
            raise forms.FieldError(
                "the margin", "has no cells to add up", code="no-cells", remedy="choose the cells", path=(f"margin{i}",)
            )
        for name in forms.split_list(row["by"]):
            if name not in known:
                raise forms.FieldError(
                    repr(name), "is not a key column or a level of a hierarchy", code="unknown-column",
                    remedy=f"there are {forms.join_list(known)}", path=(f"margin_by{i}",),
                )  # fmt: skip


def _drawn_margin(cells: dict[str, Any], by: Sequence[str], keys: dict[str, Any], field: str) -> dict[str, Any]:
    """Return a margin with independent noise, like that of the cells. Its labels must be known without the cells."""
    margin = {name: value for name, value in cells.items() if name != "keys"}
    if not by:
        return margin
    cross = keys.get("cross") or {}
    if cross and set(by) <= set(cross):
        return {"keys": {"by": list(by), "cross": {name: cross[name] for name in by}}, **margin}
    if keys.get("from_data"):
        return {"keys": {"by": list(by), "from_data": True}, **margin}
    raise forms.FieldError(
        "a drawn margin", "needs typed labels for its columns", code="no-labels", remedy="derive it", path=(field,)
    )


def _with_margins(draft: Draft, shown: dict[str, Any], sent: Sequence[dict[str, Any]]) -> Draft:
    """Return the plan with margins as sent; the rows that are shown are the other tables of the plan, in order."""
    name, removed, renamed = shown["cells"], [], {}
    cells = draft.get("tables", name)
    for i, row in enumerate(sent):
        old = shown["margins"][i] if i < len(shown["margins"]) else None
        if row["locked"] or (old is None and not row["name"]):
            continue
        if row["name"].lower() == name.lower():
            raise forms.FieldError(
                "the margin", f"has the name of the table of the cells, {name}", code="duplicate",
                remedy="choose another name", path=(f"margin{i}",),
            )  # fmt: skip
        if old is not None and not (row["name"] or row["by"] or row["drawn"]):
            removed.append(old["name"])
            continue
        by = forms.split_list(row["by"])
        derived = {"rollup": name, **({"by": by} if by else {})}
        wanted = _drawn_margin(cells, by, cells.get("keys") or {}, f"margin_by{i}") if row["drawn"] else derived
        place = "tables", row["name"] if old is None else old["name"]
        if draft.get(*place) != wanted and (row["drawn"] or row != old):
            draft = draft.put(place, wanted)
        if old is not None and row["name"] != old["name"]:
            renamed[old["name"]] = row["name"]
    _check_sources(draft, [*removed, *renamed], shown["margins"])
    for table in removed:
        draft = draft.put(("tables", table), None)
    for table, new in renamed.items():
        draft = draft.renamed(("tables", table), new)
    return draft


def _check_sources(draft: Draft, gone: Sequence[str], shown: Sequence[dict[str, Any]]) -> None:
    """Raise if a table is derived from one that is removed or renamed."""
    for i, row in enumerate(shown):
        for name, part in draft.get("tables").items():
            if name not in gone and row["name"] in gone and part.get("rollup") == row["name"]:
                raise forms.FieldError(
                    f"the table {row['name']}", f"is the source of {name}", code="in-use",
                    remedy="keep this table and its name", path=(f"margin{i}",),
                )  # fmt: skip


def mistakes_by_field(before: Draft, draft: Draft) -> dict[str, str]:
    """Return the new mistakes of a changed plan, by field of the form."""
    known, cells = set(before.mistakes), cells_of(draft)
    rows = {name: i for i, name in enumerate(name for name in draft.get("tables", default={}) if name != cells)}
    found: dict[str, str] = {}
    for place, words in draft.mistakes:
        field = None
        match place:
            case ("tables", table, "sums", column, "unit") if table == cells:
                field = f"unit:{column}"
            case ("tables", table, "sums", *_) if table == cells:
                field = "sum"
            case ("tables", table, "keys", *inner) if table == cells:
                field = {"by": "by", "file": "file"}.get(str(inner[0]) if inner else "", "kind")
            case ("release", "partition"):
                field = "kind"
            case ("tables", table) if table in rows:
                field = f"margin{rows[str(table)]}"
            case ("tables", table, *inner) if table in rows and inner[0] not in ("sums", "count"):
                field = f"margin_by{rows[str(table)]}"
            case ("hierarchies", _, *inner):
                named = {"column": "level_column", "file": "level_file", "levels": "level_names"}
                field = named.get(str(inner[0]) if inner else "", "level_digits")
        chosen = draft.get(*place) != ""  # an empty text marks an open choice
        if field is not None and (place, words) not in known and chosen:
            found.setdefault(field, words)
    return found


page = Page(
    "/tables",
    "Tables",
    [Route("/tables", show, methods=["GET"]), Route("/tables", save, methods=["POST"])],
)
