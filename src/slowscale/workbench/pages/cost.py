"""Cost: the loss that the plan adds at each record size, the loss so far, and the caps."""

from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from slowscale.core.errors import SlowscaleError, band_in_words
from slowscale.workbench import forms
from slowscale.workbench.app import Page, workbench_of


async def show(request: Request) -> Response:
    """Show the ledger of the plan, and ask for the costs, which may take some seconds to compute."""
    workbench = workbench_of(request)
    draft = workbench.draft
    return workbench.page(
        request, "cost.html", draft=draft, ready=draft.complete, ledger=draft.get("ledger", "path", default="")
    )


async def table(request: Request) -> Response:
    """Check the plan as `slowscale check` does, and return its cost."""
    workbench = workbench_of(request)
    draft = workbench.draft

    def checked() -> dict[str, Any]:
        return costs(workbench.checked_plan(draft))

    try:
        found = await run_in_threadpool(checked)
    except (SlowscaleError, OSError) as error:
        found = {"wrong": str(error)}
    return workbench.page(request, "cost_table.html", draft=draft, **found)


def costs(plan: Any) -> dict[str, Any]:
    """Return the losses of a plan at the named sizes, the losses so far, and whether a cap would be exceeded."""
    from slowscale.accounting.explanation import BOUND, at_most, titles
    from slowscale.accounting.sizes import assumed_count
    from slowscale.plan import check_plan
    from slowscale.release.columns import explain_columns, shown_sizes

    checked = check_plan(plan, overwrite=True)
    columns, band = [column for some in plan.columns.values() for column in some], checked.accountant.band
    sizes = shown_sizes(columns, plan.sizes)
    rows = []
    for size in sizes:
        found = explain_columns(columns, size, band)
        if found is not None:
            losses = [at_most(loss.rho) for loss in found.losses]
            note = BOUND if found.bound else ""
            rows.append({"name": size.name, "losses": losses, "note": note, "texts": found.texts})
    account = checked.accountant.account
    return {
        "preview": checked.preview.describe(plan.sizes),
        "wrong": None,
        "refusal": checked.refused,
        "rows": rows,
        "titles": titles(band),
        "columns": [
            {"name": f"{column.name} ({table})", "words": str(column.mechanism), "policy": str(column.policy)}
            for table, some in plan.columns.items()
            for column in some
        ],
        "entity": plan.data.protect,
        "assumed": assumed_count(plan.data.protect, [column.name for column in columns], sizes),
        "ledger": plan.ledger is not None,
        "before": account.spent.describe(plan.sizes) if account.charges else None,
        "releases": len(account.charges),
        "caps": {name: str(cap) for name, cap in account.caps.items()},
        "band_caps": {name: str(cap) for name, cap in account.band_caps.items()},
        "near": band_in_words(band),
    }


async def save(request: Request) -> Response:
    """Write the path of the ledger into the plan."""
    workbench, form = workbench_of(request), await request.form()
    path = forms.text(form, "ledger")
    if path:
        workbench.folder.target(path)
    draft = workbench.draft
    draft = draft.put(("ledger", "path"), path) if path else draft.put(("ledger",), None)
    draft.save(forms.text(form, "version"))
    return RedirectResponse(page.path, 303)


page = Page(
    "/cost",
    "Cost",
    [
        Route("/cost", show, methods=["GET"]),
        Route("/cost", save, methods=["POST"]),
        Route("/cost/table", table, methods=["GET"]),
    ],
)
