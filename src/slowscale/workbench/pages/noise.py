"""Noise: named record sizes and a wanted accuracy become a mechanism; sliders move along the trade-off.

No record is read here. Losses that a slider shows are estimates, within 1 % of the charged ones.
"""

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from slowscale.accounting.record import COUNT
from slowscale.accounting.sizes import LARGEST_SIZE, names_the_largest
from slowscale.advice import Advice, Candidate, advise
from slowscale.advice.advising import RARE_RATIO
from slowscale.advice.answers import relative_error
from slowscale.advice.shapes import COMMON, RARE, TYPICAL, Shape, half_widths
from slowscale.core.errors import NOT_GIVEN, ParameterError, SlowscaleError
from slowscale.core.numbers import format_number
from slowscale.core.parameters import tables
from slowscale.mechanisms import ArsinhNormal, Mechanism
from slowscale.mechanisms.additive import AdditiveMechanism
from slowscale.mechanisms.calibration import LEVEL
from slowscale.noise.stored_curves import ARSINH_SHAPES as SLIDER_SHAPES
from slowscale.workbench import charts, forms
from slowscale.workbench.app import Page, Workbench, workbench_of
from slowscale.workbench.draft import Draft, Place, cells_of, chosen_sums, drawn_tables

# The rows of named sizes that the form offers: at least, after the stated ones, and at most those that it reads.
ROWS, SPARE_ROWS, MOST_ROWS = 6, 2, 100
SMALLEST_SIZE = 1 / LARGEST_SIZE
SINGLE = {"single": 1.0}  # the sizes of a count: every record is one
EXAMPLE_NAMES = ("smallest", "median", "p90", "largest")
# The sliders start with these until sizes and an accuracy are given.
USUAL_SIZES = {"1": 1.0, "100": 100.0, "10,000": 1e4, "1,000,000": 1e6}
USUAL_HALF_WIDTH = 100.0
# The fields of the wanted accuracy and protection, with their names in errors. Only the first one must be given.
WISHES = {
    "interval": "the wanted half-width",
    "hidden": "the largest loss of the largest value",
    "relative": "the wanted error of large sums",
    "large": "the large sum",
    "rare": "the ratio of rare errors",
}
NO_PREVIEW = {"mechanism": "", "half": "", "words": ""}  # of a position that cannot be shown


def published(draft: Draft) -> dict[str, list[Place]]:
    """Return the columns that the plan publishes, each with the places of its mechanism in the plan.

    They are those of the table of the cells. Drawn margins that have the same noise follow it.
    """
    name, drawn = cells_of(draft), drawn_tables(draft)
    cells = drawn.get(name, {})
    steps: dict[str, tuple[str, ...]] = {column: ("sums", column) for column in chosen_sums(cells)}
    if cells.get(COUNT) is not None:
        steps[COUNT] = (COUNT,)
    return {
        column: [
            ("tables", table, *step)
            for table in (name, *(other for other in drawn if other != name))
            if draft.get("tables", table, *step) == draft.get("tables", name, *step)
        ]
        for column, step in steps.items()
    }


def checked_column(draft: Draft, column: str) -> str:
    """Return a column, or raise unless the plan publishes it."""
    if column not in published(draft):
        raise ParameterError(
            "the plan", f"does not publish {column!r}", code="unknown-column", remedy="choose it on the page Tables"
        )
    return column


def is_single(draft: Draft, column: str) -> bool:
    """Whether every record has size 1 in a column: in the count, unless entities are protected."""
    return column == COUNT and not draft.get("data", "protect")


def stated_sizes(draft: Draft) -> list[dict[str, Any]]:
    """Return the stated sizes of the plan, in any form, as tables with `name` and `size` or columns."""
    stated = draft.get("report", "sizes")
    if isinstance(stated, dict):
        return [
            {"name": name, **(value if isinstance(value, dict) else {"size": value})} for name, value in stated.items()
        ]
    if not isinstance(stated, list):
        return []
    return [dict(one) if isinstance(one, dict) else {"name": _plain_name(one), "size": one} for one in stated]


def _plain_name(value: Any) -> str:
    """Return the name of a size that has none."""
    return format_number(value) if isinstance(value, int | float) and math.isfinite(value) else ""


def _value(entry: Mapping[str, Any], column: str) -> float | int | None:
    """Return the size of an entry in a column, or None if it is not stated or no size."""
    spelled = {name.strip().casefold(): value for name, value in entry.items() if name != "name"}
    everywhere = None if column == COUNT else entry.get("size")
    value = entry[column] if column in entry else spelled.get(column.strip().casefold(), everywhere)
    known = isinstance(value, int | float) and not isinstance(value, bool) and SMALLEST_SIZE <= value <= LARGEST_SIZE
    return value if known else None


def named_sizes(draft: Draft, column: str) -> dict[str, float]:
    """Return the named record sizes that the plan states for a column."""
    if is_single(draft, column):
        return SINGLE
    found: dict[str, float] = {}
    for one in stated_sizes(draft):
        size = _value(one, column)
        if size is not None:
            found[str(one.get("name") or format_number(size))] = float(size)
    return found


class SizeRow(NamedTuple):
    """A row of the form: the name that a size has in the plan, the name that it shall have, and the size."""

    was: str
    name: str
    size: str


def size_rows(draft: Draft, column: str) -> list[SizeRow]:
    """Return the rows for the sizes of the plan. Columns have the names in common, so every name has a row."""
    if is_single(draft, column):
        return [SizeRow("", name, _digits(size)) for name, size in SINGLE.items()]
    rows = []
    for one in stated_sizes(draft):
        name, size = str(one.get("name", "")), _value(one, column)
        rows.append(SizeRow(name, name, "" if size is None else _digits(size)))
    return rows


def _digits(value: float) -> str:
    """Return a number with all its digits, so that the form does not change it."""
    whole = forms.whole_if_possible(value)
    return f"{whole:,}" if isinstance(whole, int) else repr(whole)


async def show(request: Request) -> Response:
    """Show the form of a column, with its chosen mechanism."""
    workbench, column = workbench_of(request), request.query_params.get("column", "")
    if column:
        checked_column(workbench.draft, column)
    return await _page(request, workbench, column)


async def _page(request: Request, workbench: Workbench, column: str, status: int = 200, **more: Any) -> Response:
    draft = more.pop("draft", None) or workbench.draft
    columns = published(draft)
    column = column if column in columns else next(iter(columns), "")
    sizes = named_sizes(draft, column) if column else {}
    chosen: Mechanism | None = None
    meanings: list[dict[str, str]] = []
    if column and "advice" not in more:
        chosen, meanings = await run_in_threadpool(_chosen, draft, columns[column][0], sizes)
    context: dict[str, Any] = {"advice": None, "errors": {}, **dict.fromkeys(WISHES, ""), "typed": None, **more}
    context["rare"] = context["rare"] or _digits(RARE_RATIO)
    half = context.pop("half", None) or USUAL_HALF_WIDTH
    if isinstance(chosen, AdditiveMechanism):
        (half,) = half_widths(chosen, LEVEL, (0.0,))
        context["interval"] = context["interval"] or _digits(float(f"{half:.6g}"))
    named = context.pop("named", None) or sizes or USUAL_SIZES
    sliders = {"sizes": json.dumps(named), "half": repr(half), "position": str(_position(chosen)), "accuracy": "0"}
    if column:
        sliders |= {name: request.query_params[name] for name in sliders if name in request.query_params}
        context["preview"] = await run_in_threadpool(_preview, sliders)
    rows = context.pop("typed")
    rows = size_rows(draft, column) if rows is None else rows
    rows = [*rows, *[SizeRow("", "", "")] * max(ROWS - len(rows), SPARE_ROWS)]
    return workbench.page(
        request, "noise.html", status, draft=draft, columns=list(columns), column=column, rows=rows, chosen=chosen,
        examples=EXAMPLE_NAMES, meanings=meanings, positions=len(SLIDER_SHAPES), counted=is_single(draft, column),
        sliders=sliders, wishes={field: context[field] for field in WISHES}, **context,
    )  # fmt: skip


def _chosen(draft: Draft, place: Place, sizes: dict[str, float]) -> tuple[Mechanism | None, list[dict[str, str]]]:
    """Return the mechanism of the plan, or None, and the sentences on attackers, by named size."""
    from slowscale.accounting.bands import Band, Use
    from slowscale.accounting.explanation import Loss, explain
    from slowscale.policy.bounded import BAND

    mechanism = mechanism_at(draft, place)
    if mechanism is None:
        return None, []
    use = Use("value", decided_by=())
    rows, promise, term = [], mechanism.pure_policy, (use.column, mechanism.tight_policy)
    for name, size in sizes.items():
        pure = None if promise is None else float(promise(size))
        loss = Loss(float(mechanism.tight_loss(size)), pure, mechanism, size)
        value = Loss.between(term, promise, mechanism, use, size, Band.of(BAND, [use]))
        found = explain([loss], [value])
        words = found.sentences(f"this {name} record")
        rows.append({"name": name, "size": format_number(size), "loss": found.texts["loss"], "words": words})
    return mechanism, rows


def _position(mechanism: Mechanism | None) -> int:
    """Return the position of the slider that is nearest to a mechanism; the middle, if it has another family."""
    if not isinstance(mechanism, ArsinhNormal):
        return len(SLIDER_SHAPES) // 2
    return int(np.argmin(np.abs(np.log(np.array(SLIDER_SHAPES) / mechanism.shape))))


def mechanism_at(draft: Draft, place: Place) -> Mechanism | None:
    """Return the mechanism at a place of the plan, or None if it is not chosen yet, or wrong."""
    from pydantic import ValidationError

    from slowscale.plan import MechanismPlan

    given = {name: value for name, value in draft.get(*place, default={}).items() if name != "unit"}
    try:
        return MechanismPlan.model_validate(given).build()
    except (ValidationError, SlowscaleError):
        return None


def _typed(form: Any) -> list[SizeRow]:
    """Return the typed rows. Empty rows between them stay: each row keeps its number."""
    count = next((i for i in range(MOST_ROWS) if f"name{i}" not in form and f"size{i}" not in form), MOST_ROWS)
    rows = [SizeRow(*(forms.text(form, f"{field}{i}") for field in SizeRow._fields)) for i in range(count)]
    while rows and not (rows[-1].name or rows[-1].size):
        rows.pop()
    return rows


def _sizes(form: Any, single: bool) -> dict[str, float]:
    """Return the typed sizes; one must be named the largest, unless every record has the same size."""
    sizes: dict[str, float] = {}
    fields: dict[str, str] = {}
    for i, row in enumerate(_typed(form)):
        size = forms.number(form, f"size{i}", "the size")
        if size is None and not row.name:
            continue
        if size is None or not SMALLEST_SIZE <= size <= LARGEST_SIZE:
            given = NOT_GIVEN if size is None else size
            allowed = f"a number above 0, at most {LARGEST_SIZE:g}"
            raise forms.FieldError("the size", allowed=allowed, given=given, path=(f"size{i}",))
        if not row.name or row.name in sizes:
            code, problem = ("duplicate", "is there twice") if row.name else ("missing", "is missing")
            raise forms.FieldError(
                "the name",
                problem,
                code=code,
                remedy="give every size another name, such as median",
                path=(f"name{i}",),
            )
        sizes[row.name], fields[row.name] = size, f"name{i}"
    if not sizes:
        raise forms.FieldError(
            "the sizes", "are empty", code="empty", remedy="name at least one, such as largest", path=("name0",)
        )
    if not single and not names_the_largest(sizes):
        raise forms.FieldError(
            "the sizes", "do not include the largest record", code="no-largest",
            remedy="add the largest that may occur, under a name with the word largest: readers must see its loss",
            path=(fields[max(sizes, key=lambda name: sizes[name])],),
        )  # fmt: skip
    return sizes


async def recommend(request: Request) -> Response:
    """Ask the advisor, and show its candidates."""
    workbench, form = workbench_of(request), await request.form()
    column = checked_column(workbench.draft, forms.text(form, "column"))
    typed = _typed(form)
    kept: dict[str, Any] = {"typed": typed, **{field: forms.text(form, field) for field in WISHES}}
    try:
        sizes = _sizes(form, is_single(workbench.draft, column))
        wishes = {field: forms.number(form, field, name) for field, name in WISHES.items()}
        interval = wishes["interval"]
        if interval is None:
            raise forms.FieldError(
                "the wanted accuracy", "is missing", code="missing", path=("interval",),
                remedy="give the half-width of the 95 % interval of a published number",
            )  # fmt: skip
        advice = await run_in_threadpool(_advised, sizes, wishes)
    except forms.FieldError as error:
        return await _page(request, workbench, column, 400, errors={error.field: str(error)}, **kept)
    except ParameterError as error:
        return await _page(request, workbench, column, 400, errors={"interval": str(error)}, **kept)
    before = {row.name: row.was for row in typed if row.was}
    draft = with_sizes(workbench.draft, column, sizes, before)
    draft.save(forms.text(form, "version"))
    candidates = [_shown(row) for row in advice.table if row.efficient]
    shown = {row.name: row.mechanism for row in advice.table if row.efficient}

    def compare() -> Markup | None:
        lines = _loss_lines(dict(list(shown.items())[:4]), list(advice.records.values()))
        return charts.loss_chart("candidates", "Losses of the candidates by record size", lines, advice.records)

    kept["typed"] = [SizeRow(row.name, row.name, row.size) for row in typed]  # the plan has these names now
    return await _page(
        request,
        workbench,
        column,
        draft=draft,
        advice=advice,
        candidates=candidates,
        front=[_shown(row) for row in await run_in_threadpool(lambda: advice.front)],
        compared=await run_in_threadpool(_compared, advice),
        chart=await run_in_threadpool(compare),
        named=dict(advice.records),
        half=interval,
        **kept,
    )


def _advised(sizes: dict[str, float], wishes: Mapping[str, float | None]) -> Advice:
    """Return the advice for the sizes and the numbers of the form."""
    given: dict[str, Any] = {field: value for field, value in wishes.items() if value is not None}
    hidden = given.pop("hidden", None)
    bands = None if hidden is None else {max(sizes, key=lambda name: sizes[name]): hidden}
    if "relative" in given:
        given["relative"] /= 100
    return advise(sizes, bands=bands, **given)


def _shown(row: Candidate) -> dict[str, Any]:
    """Return a candidate as text."""
    return {
        "name": row.name,
        "value": json.dumps(row.mechanism.to_dict()),
        "losses": [format_number(loss) for loss in row.tight],
        "hidden": format_number(row.bands[-1]),
        "errors": [format_number(error) for error in (row.typical, row.common, row.rare)],
        "large": relative_error(row.large),
    }


def _compared(advice: Advice) -> list[dict[str, Any]]:
    """Return what an attacker can do against the recommended noise and Gaussian noise of the same accuracy, as text."""
    return [
        {
            "name": name,
            "cells": [f"{one.texts['detected']} / {one.texts['recognised']}" for one in found.values()],
        }
        for name, found in advice.meanings.items()
    ]


def _loss_lines(mechanisms: dict[str, Mechanism], sizes: list[float]) -> dict[str, list[tuple[float, float]]]:
    """Return estimated losses by size: by the tight policy for additive noise, otherwise by the closed form."""
    at = charts.sizes_for(sizes)
    found = {}
    for name, mechanism in mechanisms.items():
        losses = [mechanism.tight_loss(float(x)) for x in at[::4]]
        found[name] = list(zip(at[::4].tolist(), map(float, losses), strict=True))
    return found


def with_sizes(draft: Draft, column: str, sizes: Mapping[str, float], before: Mapping[str, str]) -> Draft:
    """Return the plan with the named sizes of a column.

    The plan has one list of names for all columns: a name that is left out is removed, and a new name has no size in
    other columns yet. Sizes that stay the same stay as they are written.

    Parameters
    ----------
    draft
        The plan.
    column
        The column.
    sizes
        Its sizes, by name.
    before
        The names that the sizes have in the plan, where they have one.
    """
    stated = stated_sizes(draft)
    same = [(one.get("name"), _value(one, column)) for one in stated] == list(sizes.items())
    if same or is_single(draft, column):
        return draft
    known = {str(one.get("name", "")): one for one in stated}
    # A size that holds in every column is not a number of records.
    others = [name for name in published(draft) if name not in (column, COUNT)]
    found = []
    for name, size in sizes.items():
        entry = {**known.get(before.get(name, name), {}), "name": name}
        if _value(entry, column) != size:
            value = forms.whole_if_possible(size)
            if column == COUNT:
                entry[_spelled(entry, column)] = value
            elif "size" in entry and not others:
                entry["size"] = value
            else:
                everywhere = entry.pop("size", None)
                entry |= {} if everywhere is None else dict.fromkeys(others, everywhere)
                entry[_spelled(entry, column)] = value
        found.append(entry)
    return draft.put(("report", "sizes"), found)


def _spelled(entry: Mapping[str, Any], column: str) -> str:
    """Return the name that a column has in an entry: case and surrounding whitespace are ignored."""
    names = [name for name in entry if name != "name" and name.strip().casefold() == column.strip().casefold()]
    return column if column in names or not names else names[0]


async def use(request: Request) -> Response:
    """Write a mechanism into the plan."""
    workbench, form = workbench_of(request), await request.form()
    column = forms.text(form, "column")
    try:
        mechanism = Mechanism.from_dict(json.loads(forms.text(form, "mechanism")))
    except (ValueError, TypeError, AttributeError):
        raise ParameterError("the page", "is incomplete", code="damaged", remedy="load it again") from None
    draft = with_mechanism(workbench.draft, column, mechanism)
    draft.save(forms.text(form, "version"))
    return RedirectResponse(f"{page.path}?column={quote(column, safe='')}", 303)


def with_mechanism(draft: Draft, column: str, mechanism: Mechanism) -> Draft:
    """Return the plan with a mechanism for a column."""
    given = {name: value for name, value in mechanism.to_dict().items() if name != "type"}
    for name, table in tables(type(mechanism)).items():
        given[table.name] = given.pop(name)["points"]
    for place in published(draft)[checked_column(draft, column)]:
        unit = {name: value for name, value in draft.get(*place).items() if name == "unit"}
        draft = draft.put(place, {"mechanism": mechanism.kind, **given, **unit})
    return draft


async def preview(request: Request) -> Response:
    """Return the numbers and charts for a position of the sliders."""
    found = await run_in_threadpool(_preview, request.query_params)
    if found["problem"]:
        return JSONResponse(found, 400)
    part = workbench_of(request).part("preview.html", preview=found)
    return JSONResponse({**{name: found[name] for name in NO_PREVIEW}, "problem": None, "part": part})


def _preview(asked: Mapping[str, str]) -> dict[str, Any]:
    """Return the numbers and charts of a position of the sliders, or a problem in words."""
    try:
        sizes = {name: float(size) for name, size in json.loads(asked["sizes"]).items()}
        half = float(asked["half"]) * 10 ** float(asked.get("accuracy", 0))
        return at_position(sizes, half, int(asked["position"]))
    except SlowscaleError as error:
        return {**NO_PREVIEW, "problem": str(error)}
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError):
        return {**NO_PREVIEW, "problem": "the page is incomplete; load it again"}


def at_position(sizes: dict[str, float], half: float, position: int) -> dict[str, Any]:
    """Return the numbers and charts of an arsinh-normal with a half-width and a shape.

    Parameters
    ----------
    sizes
        Named record sizes.
    half
        The half-width of the 95 % interval.
    position
        The number of a shape in `SLIDER_SHAPES`: the first one protects typical records most, the last one the largest.
    """
    if not sizes or not all(SMALLEST_SIZE <= one <= LARGEST_SIZE for one in (*sizes.values(), half)):
        raise ParameterError(
            "record sizes and the half-width", allowed=f"from {SMALLEST_SIZE:g} to {LARGEST_SIZE:g}",
            remedy="correct the sizes or the wanted accuracy",
        )  # fmt: skip
    if not 0 <= position < len(SLIDER_SHAPES):
        raise ParameterError("the position", allowed=f"from 0 to {len(SLIDER_SHAPES) - 1}", given=position)
    shape = Shape(ArsinhNormal, (("shape", SLIDER_SHAPES[position]),))
    unit = shape.unit
    assert unit is not None
    mechanism = ArsinhNormal.calibrate(interval=half, level=LEVEL, shape=SLIDER_SHAPES[position])
    at = charts.sizes_for(list(sizes.values()))
    losses = unit.losses(at / mechanism.sigma)
    named = unit.losses(np.array(list(sizes.values())) / mechanism.sigma)
    line = {"chosen": list(zip(at.tolist(), losses.tolist(), strict=True))}
    typical, common, rare = (
        format_number(float(mechanism.noise.interval(level)[1])) for level in (TYPICAL, COMMON, RARE)
    )
    return {
        "problem": None,
        "mechanism": json.dumps(mechanism.to_dict()),
        "half": common,
        "words": (f"{mechanism}: half of the numbers within ±{typical}, 95 % within ±{common}, 99.9 % within ±{rare}."),
        "charts": [
            charts.loss_chart("position-losses", "Loss by record size at this position", line, sizes),
            charts.error_chart("position-errors", "Errors at this position", mechanism),
        ],
        "named": [
            {"name": name, "size": format_number(size), "loss": format_number(float(loss))}
            for (name, size), loss in zip(sizes.items(), named, strict=True)
        ],
    }


page = Page(
    "/noise",
    "Noise",
    [
        Route("/noise", show, methods=["GET"]),
        Route("/noise", recommend, methods=["POST"]),
        Route("/noise/use", use, methods=["POST"]),
        Route("/noise/preview", preview, methods=["GET"]),
    ],
)
