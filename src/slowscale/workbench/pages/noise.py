"""Noise: named record sizes and a wanted accuracy become a mechanism; sliders move along the trade-off.

Nothing here looks at the records. Losses that a slider shows are estimates, within 1 % of the charged ones.
"""

import json
from typing import Any

import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from slowscale.accounting.record import COUNT
from slowscale.advice import advise
from slowscale.advice.accuracy import COMMON, RARE, TYPICAL, Accuracy, half_width
from slowscale.advice.shapes import Shape
from slowscale.errors import ParameterError, SlowscaleError
from slowscale.figures import figure
from slowscale.mechanisms import ArsinhNormal, Mechanism
from slowscale.mechanisms.additive import AdditiveMechanism
from slowscale.mechanisms.calibration import LEVEL
from slowscale.noise.usual_curves import ARSINH_SHAPES as SLIDER_SHAPES
from slowscale.parameters import tables
from slowscale.plan.starting import report_sizes
from slowscale.sizes import names_the_largest
from slowscale.workbench import charts, forms
from slowscale.workbench.app import Page, Workbench, workbench_of
from slowscale.workbench.draft import Draft, Place

ROWS = 6  # of named sizes that the form offers
EXAMPLE_NAMES = ("smallest", "median", "p90", "largest")
# What the sliders show before sizes and an accuracy are given.
USUAL_SIZES = {"1": 1.0, "100": 100.0, "10,000": 1e4, "1,000,000": 1e6}
USUAL_HALF_WIDTH = 100.0


def published(draft: Draft) -> dict[str, Place]:
    """Return the columns that the plan publishes, each with the place of its mechanism in the plan."""
    sums = draft.get("sums", default=[])
    found: dict[str, Place] = {one["column"]: ("sums", i) for i, one in enumerate(sums) if one.get("column")}
    if draft.get("count") is not None:
        found[COUNT] = ("count",)
    return found


def named_sizes(draft: Draft, column: str) -> dict[str, float]:
    """Return the named record sizes that the plan states for a column."""
    found: dict[str, float] = {}
    stated = draft.get("report", "sizes", default=[])
    for one in stated if isinstance(stated, list) else []:
        if isinstance(one, dict):
            size = one.get(column, one.get("size"))
            if isinstance(size, int | float) and size > 0:
                found[str(one.get("name", figure(size)))] = float(size)
    return found


async def show(request: Request) -> Response:
    """Show the form of a column, with its chosen mechanism."""
    return _page(request, workbench_of(request), request.query_params.get("column", ""))


def _page(request: Request, workbench: Workbench, column: str, status: int = 200, **more: Any) -> Response:
    draft = more.pop("draft", None) or workbench.draft
    columns = published(draft)
    column = column if column in columns else next(iter(columns), "")
    sizes = named_sizes(draft, column) if column else {}
    chosen, meanings = (None, []) if not column or "advice" in more else _chosen(draft, columns[column], sizes)
    context: dict[str, Any] = {"advice": None, "errors": {}, "interval": "", "at": "", "typed": None, **more}
    known = half_width(chosen, LEVEL, None) if isinstance(chosen, AdditiveMechanism) else USUAL_HALF_WIDTH
    half = context.pop("half", None) or known
    named = context.pop("named", None) or sizes or USUAL_SIZES
    rows = context.pop("typed") or [*((name, figure(size)) for name, size in sizes.items())]
    rows = [*rows, *[("", "")] * (ROWS - len(rows))]
    return workbench.page(
        request, "noise.html", status, draft=draft, columns=list(columns), column=column, rows=rows, chosen=chosen,
        examples=EXAMPLE_NAMES, meanings=meanings, positions=len(SLIDER_SHAPES), counted=column == COUNT,
        half=half, sizes=json.dumps(named), position=_position(chosen), **context,
    )  # fmt: skip


def _chosen(draft: Draft, place: Place, sizes: dict[str, float]) -> tuple[Mechanism | None, list[dict[str, str]]]:
    """Return the mechanism that the plan has, or None, and what an attacker could do, by named size."""
    from slowscale.attackers import EXAMPLE_ALARMS, attacker
    from slowscale.attackers.words import detection

    mechanism = mechanism_at(draft, place)
    if mechanism is None:
        return None, []
    rows = []
    for name, size in sizes.items():
        found = attacker(mechanism, size)
        words = detection(f"this {name} record", EXAMPLE_ALARMS, found.power(EXAMPLE_ALARMS))
        rows.append({"name": name, "size": figure(size), "loss": figure(mechanism.tight_loss(size)), "words": words})
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

    given = dict(draft.get(*place) or {})
    for name in ("column", "unit"):
        given.pop(name, None)
    try:
        return MechanismPlan.model_validate(given).build()
    except (ValidationError, SlowscaleError):
        return None


def _typed(form: Any) -> list[tuple[str, str]]:
    found = [(forms.text(form, f"name{i}"), forms.text(form, f"size{i}")) for i in range(ROWS)]
    return [pair for pair in found if any(pair)]


def _kept(form: Any) -> dict[str, Any]:
    """Return what was typed, to be shown again."""
    return {"typed": _typed(form), "interval": forms.text(form, "interval"), "at": forms.text(form, "at")}


def _sizes(form: Any, column: str) -> dict[str, float]:
    sizes: dict[str, float] = {}
    fields: dict[str, str] = {}
    for i in range(ROWS):
        name, size = forms.text(form, f"name{i}"), forms.number(form, f"size{i}", "the size")
        if size is None and not name:
            continue
        if size is None or size <= 0:
            raise forms.FieldError(f"size{i}", "the size must be a number above 0")
        if not name or name in sizes:
            raise forms.FieldError(f"name{i}", "every size needs a name of its own, such as median")
        sizes[name], fields[name] = size, f"name{i}"
    if not sizes:
        raise forms.FieldError("name0", "name at least one record size, such as median, and one largest")
    if column != COUNT and not names_the_largest(sizes):
        raise forms.FieldError(
            fields[max(sizes, key=lambda name: sizes[name])],
            "add the largest record that may occur, under a name with the word largest: readers must see what it loses",
        )
    return sizes


async def recommend(request: Request) -> Response:
    """Ask the advisor, and show its candidates."""
    workbench, form = workbench_of(request), await request.form()
    column, kept = forms.text(form, "column"), _kept(form)
    try:
        sizes = _sizes(form, column)
        interval = forms.number(form, "interval", "the wanted half-width")
        if interval is None:
            raise forms.FieldError("interval", "say how accurate the published numbers shall be")
        at = forms.number(form, "at", "the typical sum")
        advice = await run_in_threadpool(advise, sizes, interval=interval, at=at)
    except forms.FieldError as error:
        return _page(request, workbench, column, 400, errors={error.field: error.words}, **kept)
    except ParameterError as error:
        return _page(request, workbench, column, 400, errors={"interval": str(error)}, **kept)
    draft = _with_sizes(workbench.draft, column, advice.records)
    draft.save(forms.text(form, "version"))
    candidates = [
        {
            "name": row.name,
            "value": json.dumps(row.mechanism.to_dict()),
            "losses": [figure(loss) for loss in row.tight],
            "errors": [figure(error) for error in (row.typical, row.common, row.rare)],
        }
        for row in advice.table
        if row.efficient
    ]
    shown = {row.name: row.mechanism for row in advice.table if row.efficient}
    lines = await run_in_threadpool(_loss_lines, dict(list(shown.items())[:4]), list(advice.records.values()))
    chart = charts.loss_chart(lines, advice.records)
    return _page(
        request,
        workbench,
        column,
        draft=draft,
        advice=advice,
        candidates=candidates,
        chart=json.dumps(chart),
        named=dict(advice.records),
        half=interval,
        **kept,
    )


def _loss_lines(mechanisms: dict[str, Mechanism], sizes: list[float]) -> dict[str, list[tuple[float, float]]]:
    """Return estimated losses by size: by the tight policy for additive noise, otherwise by the closed form."""
    at = charts.sizes_for(sizes)
    found = {}
    for name, mechanism in mechanisms.items():
        losses = [mechanism.tight_loss(float(x)) for x in at[::4]]
        found[name] = list(zip(at[::4].tolist(), map(float, losses), strict=True))
    return found


def _with_sizes(draft: Draft, column: str, sizes: Any) -> Draft:
    """Return the plan with named sizes of a column. Sizes of other columns stay, by name."""
    stated = draft.get("report", "sizes", default=[])
    kept = {str(one["name"]): dict(one) for one in stated if isinstance(one, dict) and "name" in one}
    if column == COUNT:
        return draft
    named = report_sizes(sizes)
    for name in list(kept):
        kept[name].pop(column, None)
        kept[name].pop("size", None)
        if len(kept[name]) == 1 and name not in named:
            del kept[name]
    for name, size in named.items():
        kept[name] = {**kept.get(name, {"name": name}), column: forms.whole_if_possible(size)}
    return draft.put(("report", "sizes"), list(kept.values()) or None)


async def use(request: Request) -> Response:
    """Write a mechanism into the plan."""
    workbench, form = workbench_of(request), await request.form()
    column = forms.text(form, "column")
    try:
        mechanism = Mechanism.from_dict(json.loads(forms.text(form, "mechanism")))
    except (ValueError, TypeError, AttributeError):
        raise ParameterError("the page is incomplete: load it again") from None
    draft = with_mechanism(workbench.draft, column, mechanism)
    draft.save(forms.text(form, "version"))
    return RedirectResponse(f"{page.path}?column={column}", 303)


def with_mechanism(draft: Draft, column: str, mechanism: Mechanism) -> Draft:
    """Return the plan with a mechanism for a column, charged by its tight policy."""
    place = published(draft).get(column)
    if place is None:
        raise ParameterError(f"the plan does not publish {column!r}: choose it on the page of the tables")
    before = draft.get(*place)
    given = {name: value for name, value in mechanism.to_dict().items() if name != "type"}
    for name, table in tables(type(mechanism)).items():
        given[table.name] = given.pop(name)["points"]
    kept = {name: before[name] for name in ("column", "unit") if name in before}
    draft = draft.put(place, {**kept, "mechanism": mechanism.kind, **given})
    return draft.put(("options", "accounting"), "tight")


async def preview(request: Request) -> Response:
    """Return the numbers and lines for a position of the sliders."""
    asked = request.query_params
    try:
        sizes = {name: float(size) for name, size in json.loads(asked["sizes"]).items()}
        half, position = float(asked["half"]), int(asked["position"])
        found = await run_in_threadpool(at_position, sizes, half, position)
    except (KeyError, ValueError, TypeError, AttributeError, SlowscaleError) as error:
        return JSONResponse({"problem": str(error)}, 400)
    return JSONResponse(found)


def at_position(sizes: dict[str, float], half: float, position: int) -> dict[str, Any]:
    """Return what the sliders show: an arsinh-normal with a half-width and a shape.

    Parameters
    ----------
    sizes
        Named record sizes.
    half
        The half-width of the 95 % interval.
    position
        The number of a shape in `SLIDER_SHAPES`: the first one protects typical records most, the last one the largest.
    """
    if not (
        sizes and all(size > 0 for size in sizes.values()) and 0 < half < np.inf and 0 <= position < len(SLIDER_SHAPES)
    ):
        raise ParameterError("sizes and the half-width must be above 0")
    shape = Shape(ArsinhNormal, (("shape", SLIDER_SHAPES[position]),))
    accuracy = Accuracy(LEVEL, None, np.inf)
    mechanism = accuracy.scaled(shape, half)
    unit = shape.unit
    assert unit is not None
    at = charts.sizes_for(list(sizes.values()))
    losses = unit.losses(at / mechanism.sigma)
    named = unit.losses(np.array(list(sizes.values())) / mechanism.sigma)
    line = list(zip(at.tolist(), losses.tolist(), strict=True))
    return {
        "mechanism": mechanism.to_dict(),
        "words": str(mechanism),
        "charts": [charts.loss_chart({"chosen": line}, sizes), charts.error_chart(mechanism)],
        "losses": [{"mechanism": "chosen", "size": x, "loss": y} for x, y in line],
        "errors": charts.error_points(mechanism),
        "named": [
            {"name": name, "size": figure(size), "loss": figure(float(loss))}
            for (name, size), loss in zip(sizes.items(), named, strict=True)
        ],
        "halves": [figure(float(mechanism.noise.interval(level)[1])) for level in (TYPICAL, COMMON, RARE)],
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
