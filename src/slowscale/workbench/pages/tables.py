"""Tables: what to sum or count, in which public cells, and which margins go with the cells, drawn or derived.

Saving compares what was sent with what the page shows of the plan, and writes only the differences. What the page
cannot show is read-only there.
"""

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from slowscale.core.errors import ParameterError, SlowscaleError
from slowscale.plan.wording import in_plan_words
from slowscale.workbench import forms
from slowscale.workbench.app import Page, Workbench, workbench_of
from slowscale.workbench.draft import ChangedElsewhereError, Draft, Place
from slowscale.workbench.pages.data import CHANGED_ELSEWHERE, DATA_ENDINGS, Columns, ShownColumn, columns_of

CELLS = "cells"  # the name of the table that margins are derived from, if the plan has no name for it
MARGINS, FREE_MARGINS = 4, 2  # rows that the form offers at least, and rows for further margins
NUMBERS = ("int", "uint", "float", "decimal")
KINDS_OF_CELLS = {
    "total": "one total over all records",
    "file": "the cells in a file",
    "cross": "every combination of labels that I type",
    "public_in_data": "the cells that occur in the data: only if it is public which cells have records",
}
LEVEL_FIELDS = ("level_column", "level_digits", "level_file", "level_names")


def is_number(column: ShownColumn) -> bool:
    """Whether a column can be summed, by its type."""
    return column.type.lower().lstrip("!").startswith(NUMBERS)


async def show(request: Request) -> Response:
    """Show what the plan publishes."""
    return await _page(request, workbench_of(request))


async def _page(request: Request, workbench: Workbench, status: int = 200, **more: Any) -> Response:
    draft = workbench.draft
    read = await columns_of(workbench, draft)
    form, problem, errors = more.get("form"), more.get("problem") or read.problem or None, more.get("errors", {})
    shown = shown_of(draft)
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


# What the form shows of a plan


def _tables(draft: Draft) -> tuple[list[dict[str, Any]], int | None]:
    """Return the tables of a plan for several tables, and which of them holds the cells: the first drawn one."""
    parts = draft.get("table", default=[])
    parts = [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    return parts, next((i for i, part in enumerate(parts) if "from" not in part), None)


def _keys_place(draft: Draft) -> Place:
    parts, main = _tables(draft)
    return ("table", main, "keys") if parts and main is not None else ("keys",)


def shown_of(draft: Draft) -> dict[str, Any]:
    """Return what the form shows of a plan, and which parts of the plan it cannot show (`locked`, in words)."""
    parts, main = _tables(draft)
    keys = draft.get(*_keys_place(draft), default={}) or {}
    cross = keys.get("cross") or {}
    hierarchies = draft.get("hierarchy", default=[])
    first = hierarchies[0] if hierarchies else {}
    margins = [_shown_margin(draft, part, keys) for i, part in enumerate(parts) if i != main]
    return {
        "summed": {
            one["column"]: str(one.get("unit", 1)) for one in draft.get("sums", default=[]) if one.get("column")
        },
        "counted": draft.get("count") is not None,
        "kind": _kind(keys),
        "by": list(keys.get("by") or cross),
        "file": keys.get("file", ""),
        "cross": {name: "\n".join(map(forms.shown_label, labels)) for name, labels in cross.items()},
        "margins": margins,
        "margin_rows": max(MARGINS, len(margins) + FREE_MARGINS),
        "level_column": first.get("column", ""),
        "level_digits": forms.joined(f"{name} = {count}" for name, count in (first.get("digits") or {}).items()),
        "level_file": first.get("file", ""),
        "level_names": forms.joined(first.get("levels") or []),
        "locked": _locked(draft),
    }


def _kind(keys: dict[str, Any]) -> str:
    return next((kind for kind in ("file", "cross", "public_in_data") if keys.get(kind)), "total")


def _locked(draft: Draft) -> dict[str, str]:
    """Return the parts of the page that cannot show what the plan has, with a sentence for each."""
    parts, main = _tables(draft)
    found = {}
    edit = f"which this page cannot show; edit {draft.path.name}."
    if any(part.get("sums") or part.get("count") for part in parts):
        found["sums"] = f"This plan has tables with sums of their own, {edit}"
    keys = draft.get(*_keys_place(draft), default={}) or {}
    labels = [str(label) for labels in (keys.get("cross") or {}).values() for label in labels]
    if any(label != label.strip() or not label or "\n" in label or "\r" in label for label in labels):
        found["keys"] = f"This plan has labels with line ends or with blanks around them, {edit}"
    if parts and main is None:
        found["keys"] = found["margins"] = f"This plan has derived tables, but no table that they come from, {edit}"
    if len(draft.get("hierarchy", default=[])) > 1:
        found["hierarchy"] = f"This plan has several hierarchies, {edit}"
    return found


def _shown_margin(draft: Draft, part: dict[str, Any], keys: dict[str, Any]) -> dict[str, Any]:
    """Return a table as a row of margins; `locked` says why the row is read-only, or is empty."""
    parts, main = _tables(draft)
    drawn = "from" not in part
    by = list(part.get("by") or (part.get("keys") or {}).get("by") or (part.get("keys") or {}).get("cross") or [])
    locked = ""
    if drawn:
        try:
            usual = _drawn_keys(by, keys, "") == part.get("keys")
        except forms.FieldError:
            usual = False
        if part.get("sums") or part.get("count"):
            locked = "has sums of its own"
        elif not usual:
            locked = "has keys of its own"
    elif main is not None and part["from"] != parts[main].get("name"):
        locked = f"is derived from {part['from']}"
    if locked:
        locked = f"This table {locked}, which this page cannot show; edit {draft.path.name}."
    return {"name": str(part.get("name", "")), "by": forms.joined(map(str, by)), "drawn": drawn, "locked": locked}


def _typed(shown: dict[str, Any], form: Any) -> dict[str, Any]:
    """Return what was typed, in the form of `shown_of`, so that it is shown again. Locked parts stay as they are."""
    found: dict[str, Any] = {}
    if "sums" not in shown["locked"]:
        found["summed"] = {str(name): forms.text(form, f"unit:{name}") for name in form.getlist("sum")}
        found["counted"] = bool(form.get("count"))
    if "keys" not in shown["locked"]:
        labels = {name: str(value) for name, value in form.items() if name.startswith("labels:")}
        found["kind"], found["file"] = forms.text(form, "kind"), forms.text(form, "file")
        found["by"] = [str(name) for name in form.getlist("by")]
        found["cross"] = {name.removeprefix("labels:"): value for name, value in labels.items() if value.strip()}
    if "margins" not in shown["locked"]:
        rows = [dict(row) for row in shown["margins"]]
        for i in range(max(shown["margin_rows"], _rows_sent(form))):
            row = rows[i] if i < len(rows) else {"name": "", "by": "", "drawn": False, "locked": ""}
            if not row["locked"]:
                row |= _sent_margin(form, i)
            rows[i : i + 1] = [row]
        found["margins"], found["margin_rows"] = rows, len(rows)
    if "hierarchy" not in shown["locked"]:
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


# What was sent becomes the plan


async def save(request: Request) -> Response:
    """Write what was changed in the form into the plan."""
    workbench, form = workbench_of(request), await request.form()
    draft = workbench.draft
    if forms.text(form, "version") != draft.version:
        return await _page(request, workbench, 409, form=form, problem=CHANGED_ELSEWHERE)
    try:
        changed = written(workbench, draft, form, await columns_of(workbench, draft))
        errors = mistakes_by_field(draft, changed)
    except forms.FieldError as error:
        errors = {error.field: in_plan_words(error.words)}
    except SlowscaleError as error:
        return await _page(request, workbench, 400, form=form, problem=in_plan_words(str(error)))
    if errors:
        return await _page(request, workbench, 400, form=form, errors=errors, problem=next(iter(errors.values())))
    try:
        changed.save(draft.version)
    except ChangedElsewhereError:
        return await _page(request, workbench, 409, form=form, problem=CHANGED_ELSEWHERE)
    return RedirectResponse(page.path, 303)


def written(workbench: Workbench, draft: Draft, form: Any, columns: Columns) -> Draft:
    """Return the plan with what the form changes. Everything else stays, with its comments.

    Parameters
    ----------
    workbench
        The workbench, whose folder has the files.
    draft
        The plan that the form was made from.
    form
        What was sent.
    columns
        The columns of the data.
    """
    shown = shown_of(draft)
    sent = {**shown, **_typed(shown, form)}
    locked = shown["locked"]
    if "sums" not in locked:
        draft = _with_sums(draft, shown, sent)
    before = draft.get(*_keys_place(draft), default={}) or {}
    keys = before if "keys" in locked else _keys(workbench, before, shown, sent, columns.types)
    hierarchy = draft.get("hierarchy", default=[])
    if "hierarchy" not in locked:
        hierarchy = _hierarchy(workbench, hierarchy, shown, sent)
    rows = [] if "margins" in locked else [row for row in sent["margins"] if row["name"] or row["by"] or row["drawn"]]
    if hierarchy and not rows and "margins" not in locked and hierarchy != draft.get("hierarchy", default=[]):
        raise forms.FieldError(
            "level_column", "a hierarchy is for margins by its levels: name such a margin above, or empty these fields"
        )
    if "margins" in locked:
        return draft
    levels = [level for one in hierarchy for level in [*(one.get("digits") or {}), *(one.get("levels") or [])]]
    if keys != before or hierarchy != draft.get("hierarchy", default=[]) or rows != shown["margins"]:
        _check_margins(sent["margins"], keys, levels, columns)
    had_tables = bool(draft.get("table"))
    if rows and not had_tables:
        draft = _as_set(draft, keys)
    elif "keys" not in locked and (keys != before or not keys):
        # A new plan has keys in which nothing is chosen: they are removed for one total.
        draft = draft.put(_keys_place(draft), keys or None)
    draft = _with_margins(draft, shown["margins"] if had_tables else [], sent["margins"], before, keys)
    if hierarchy != draft.get("hierarchy", default=[]):
        draft = _with_hierarchy(draft, hierarchy)
    parts, main = _tables(draft)
    if not rows and had_tables and main is not None and shown["margins"] and len(parts) == 1:
        draft = _as_single(draft, parts[main])
    return draft


def _with_sums(draft: Draft, shown: dict[str, Any], sent: dict[str, Any]) -> Draft:
    if not sent["summed"] and not sent["counted"]:
        raise forms.FieldError("sum", "choose a column to sum, or the number of records")
    sums = draft.get("sums", default=[])
    new = [name for name in sent["summed"] if name not in shown["summed"]]
    for i in reversed(range(len(sums))):
        column = sums[i].get("column")
        if column and column not in sent["summed"]:
            draft = draft.put(("sums", i), None)
    for i in reversed(range(len(draft.get("sums", default=[])))):
        if draft.get("sums", i, "column"):
            continue
        # A new plan has a sum whose column is not chosen yet.
        draft = draft.put(("sums", i, "column"), new.pop(0)) if new else draft.put(("sums", i), None)
    for name in new:
        draft = draft.put(("sums", len(draft.get("sums", default=[]))), {"column": name, "mechanism": ""})
    for i, one in enumerate(draft.get("sums", default=[])):
        unit = sent["summed"][one["column"]] or "1"
        if unit != str(one.get("unit", 1)):
            draft = draft.put(("sums", i, "unit"), int(unit) if unit.isascii() and unit.isdecimal() else unit)
    if draft.get("sums") == []:
        draft = draft.put(("sums",), None)
    if sent["counted"] != shown["counted"]:
        draft = draft.put(("count",), {"mechanism": ""} if sent["counted"] else None)
    return draft


def _keys(
    workbench: Workbench, before: dict[str, Any], shown: dict[str, Any], sent: dict[str, Any], types: dict[str, str]
) -> dict[str, Any]:
    """Return the keys that the form asks for: those of the plan, with what was changed; empty for one total."""
    kind = sent["kind"]
    if kind not in KINDS_OF_CELLS:
        raise forms.FieldError("kind", "choose which cells are published")
    if kind == "total":
        return {}
    # The order in the plan is that of the published table; further columns follow.
    by = [name for name in shown["by"] if name in sent["by"]]
    by += [name for name in sent["by"] if name not in by]
    named_by_file = kind == "file" and before.get("file") and not before.get("by")
    if not by and not named_by_file:
        raise forms.FieldError("by", "choose the key columns, such as county")
    found = {name: value for name, value in before.items() if name not in ("file", "cross", "public_in_data")}
    if by != shown["by"] or (by and not before.get("by") and kind != "cross"):
        found["by"] = by
    if kind != "file":
        found = {name: value for name, value in found.items() if name not in ("types", "csv")}
        for name in by if by != shown["by"] or kind != shown["kind"] else ():
            _label_kind(name, types)
    if kind == "public_in_data":
        return {**found, "public_in_data": True}
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
            raise forms.FieldError(f"labels:{name}", f"type the labels of {name}, one per line")
    order = [*(name for name in before.get("cross") or {} if name in cross), *cross]
    return {**found, "cross": {name: cross[name] for name in order}}


def _label_kind(name: str, types: dict[str, str]) -> str | None:
    """Return what the labels of a column are, or None if its type is not known; raise if it cannot have labels."""
    import ibis

    from slowscale.data.keys import label_kind

    try:
        dtype = ibis.dtype(types.get(name) or "string")
    except Exception:  # the type is a mistake, which the page of the data shows
        return None
    kind = label_kind(dtype)
    if kind is None:
        raise forms.FieldError(
            "by", f"{name} is a {dtype}: key columns are text, whole numbers, booleans or dates; choose another column"
        )
    return kind


def _check_file(workbench: Workbench, field: str, file: str) -> None:
    try:
        place = workbench.folder.inside(file)
    except ParameterError as error:
        raise forms.FieldError(field, str(error)) from None
    if not place.exists():
        raise forms.FieldError(field, f"there is no file {file} in this folder")


def _hierarchy(
    workbench: Workbench, before: list[dict[str, Any]], shown: dict[str, Any], sent: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return the hierarchy that the form asks for, in a list, which is empty if there is none."""
    if all(sent[field] == shown[field] for field in LEVEL_FIELDS):
        return before
    column, digits, file, names = (sent[field] for field in LEVEL_FIELDS)
    if not (column or digits or file or names):
        return []
    if not column:
        raise forms.FieldError("level_column", "name the key column that the levels are above, such as county")
    if digits and file:
        raise forms.FieldError("level_file", "give either digits or a file, not both")
    kept = dict(before[0]) if before else {}
    if digits:
        pairs = [part.rpartition("=") for part in forms.words(digits)]
        counts = [count.strip() for _, _, count in pairs]
        if not all(name.strip() for name, _, _ in pairs) or not all(
            count.isascii() and count.isdecimal() for count in counts
        ):
            raise forms.FieldError("level_digits", "write levels as sector = 2, subsector = 3")
        return [{"column": column, "digits": {name.strip(): int(count) for name, _, count in pairs}}]
    if not file:
        raise forms.FieldError("level_digits", f"say how labels of {column} belong to the levels: by digits, or a file")
    if file != shown["level_file"]:
        _check_file(workbench, "level_file", file)
    if not forms.words(names):
        raise forms.FieldError("level_names", "name the columns of the file that are the levels, such as state")
    kept.pop("digits", None)
    return [{**kept, "column": column, "file": file, "levels": forms.words(names)}]


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
            raise forms.FieldError(f"margin{i}", "give the margin a name, such as states; its file has this name")
        if row["name"].lower() in names:
            raise forms.FieldError(f"margin{i}", f"there are two margins {row['name']}; rename one of them")
        names.append(row["name"].lower())
        if row["locked"]:
            continue
        if not keys:
            raise forms.FieldError(f"margin{i}", "a margin needs cells to add up: choose the cells first")
        for name in forms.words(row["by"]):
            if name not in known:
                raise forms.FieldError(
                    f"margin_by{i}",
                    f"{name!r} is not a key column or a level of a hierarchy; there are {forms.joined(known)}",
                )


def _drawn_keys(by: Sequence[str], keys: dict[str, Any], field: str) -> dict[str, Any] | None:
    """Return the keys of a margin with noise of its own. Its labels must be known without the cells."""
    if not by:
        return None
    cross = keys.get("cross") or {}
    if cross and set(by) <= set(cross):
        return {"by": list(by), "cross": {name: cross[name] for name in by}}
    if keys.get("public_in_data"):
        return {"by": list(by), "public_in_data": True}
    raise forms.FieldError(
        field, "a margin with noise of its own needs typed labels for its columns; derive it instead"
    )


def _with_margins(
    draft: Draft,
    shown: Sequence[dict[str, Any]],
    sent: Sequence[dict[str, Any]],
    before: dict[str, Any],
    keys: dict[str, Any],
) -> Draft:
    """Return the plan with margins as sent; the rows that are shown are the tables of the plan, in order."""
    parts, main = _tables(draft)
    if main is None:
        return draft
    cells = str(parts[main].get("name", CELLS))
    places = [i for i in range(len(parts)) if i != main]
    removed = []
    for i, row in enumerate(sent):
        old = shown[i] if i < len(shown) else None
        if row["locked"] or (old is None and not row["name"]):
            continue
        if row["name"].lower() == cells.lower():
            raise forms.FieldError(f"margin{i}", f"the table of the cells is named {cells}; choose another name")
        if old is not None and not (row["name"] or row["by"] or row["drawn"]):
            removed.append(places[i])
            continue
        by = forms.words(row["by"])
        own = _drawn_keys(by, keys, f"margin_by{i}") if row["drawn"] else None
        if old is None:
            derived = {"from": cells, **({"by": by} if by else {})}
            new = {"name": row["name"], **(({"keys": own} if own else {}) if row["drawn"] else derived)}
            draft = draft.put(("table", len(draft.get("table"))), new)
            continue
        place = ("table", places[i])
        if row["name"] != old["name"]:
            draft = draft.put((*place, "name"), row["name"])
        if row["drawn"] and (old["by"], old["drawn"], before) != (row["by"], True, keys):
            draft = draft.put((*place, "from"), None).put((*place, "by"), None).put((*place, "keys"), own)
        elif not row["drawn"] and (old["by"], old["drawn"]) != (row["by"], False):
            draft = draft.put((*place, "keys"), None).put((*place, "from"), cells).put((*place, "by"), by or None)
    _check_sources(draft, removed, shown)
    for i in reversed(removed):
        draft = draft.put(("table", i), None)
    return draft


def _check_sources(draft: Draft, removed: Sequence[int], shown: Sequence[dict[str, Any]]) -> None:
    """Raise if a table is derived from one that is removed or renamed."""
    parts = [part for i, part in enumerate(draft.get("table")) if i not in removed]
    names = [part.get("name") for part in parts]
    for i, row in enumerate(shown):
        lost = next((part.get("name") for part in parts if part.get("from") == row["name"] not in names), None)
        if lost is not None:
            raise forms.FieldError(
                f"margin{i}", f"the table {lost} is derived from {row['name']}: keep this table and its name"
            )


def _with_hierarchy(draft: Draft, hierarchy: list[dict[str, Any]]) -> Draft:
    if not hierarchy:
        return draft.put(("hierarchy",), None)
    return draft.put(("hierarchy", 0), hierarchy[0])


def _as_set(draft: Draft, keys: dict[str, Any]) -> Draft:
    """Return a plan for one table as a plan for several: the table of the cells, and a folder for the files."""
    draft = draft.put(("keys",), keys or None).put(("table", 0), {"name": CELLS})
    if keys:
        draft = draft.moved(("keys",), ("table", 0, "keys"))
    formats = [kind for kind in ("parquet", "csv") if draft.get("output", kind)]
    for kind in formats:
        draft = draft.put(("output", kind), None)
    if draft.get("output", "folder") is None:
        draft = draft.put(("output", "folder"), "tables")
    if "csv" in formats and draft.get("output", "formats") is None:
        draft = draft.put(("output", "formats"), formats)
    return draft


def _as_single(draft: Draft, cells: dict[str, Any]) -> Draft:
    """Return a plan whose last margin was removed as a plan for one table, unless the table has parts of its own."""
    if cells.get("name") != CELLS or set(cells) - {"name", "keys"}:
        return draft
    if "keys" in cells:
        draft = draft.moved(("table", 0, "keys"), ("keys",))
    draft = draft.put(("table",), None).put(("hierarchy",), None)
    formats = draft.get("output", "formats") or ["parquet"]
    draft = draft.put(("output", "folder"), None).put(("output", "formats"), None)
    for kind in formats:
        draft = draft.put(("output", kind), f"published.{kind}")
    return draft


def mistakes_by_field(before: Draft, draft: Draft) -> dict[str, str]:
    """Return what is wrong in a changed plan, and was not wrong before, by field of the form."""
    known = set(before.mistakes)
    parts, main = _tables(draft)
    rows = {place: row for row, place in enumerate(i for i in range(len(parts)) if i != main)}
    found: dict[str, str] = {}
    for place, words in draft.mistakes:
        field = None
        match place:
            case ("sums", int(i), "unit"):
                field = f"unit:{draft.get('sums', i, 'column')}"
            case ("sums", int(_), "column"):
                field = "sum"
            case ("table", int(i), "name") if i in rows:
                field = f"margin{rows[i]}"
            case ("table", int(i), *_) if i in rows and place[2:3] not in (("sums",), ("count",)):
                field = f"margin_by{rows[i]}"
            case ("keys", *inner) | ("table", _, "keys", *inner):
                field = {"by": "by", "file": "file"}.get(str(inner[0]) if inner else "", "kind")
            case ("hierarchy", _, *inner):
                named = {"column": "level_column", "file": "level_file", "levels": "level_names"}
                field = named.get(str(inner[0]) if inner else "", "level_digits")
        if field is not None and (place, words) not in known and not words.startswith("still to be chosen"):
            found.setdefault(field, words)
    return found


page = Page(
    "/tables",
    "Tables",
    [Route("/tables", show, methods=["GET"]), Route("/tables", save, methods=["POST"])],
)
