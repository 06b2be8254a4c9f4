"""Inspect: a look at the records before a release. CONFIDENTIAL: nothing on this page has noise."""

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from slowscale.core.errors import SlowscaleError
from slowscale.workbench.app import Page, workbench_of
from slowscale.workbench.security import DOCUMENT_POLICY


async def show(request: Request) -> Response:
    """Show the banner, and the last look of this session if the plan is still the same."""
    workbench = workbench_of(request)
    draft = workbench.draft
    return workbench.page(request, "inspect.html", draft=draft, seen=workbench.seen(draft), ready=draft.complete)


async def look(request: Request) -> Response:
    """Look at the records, and keep the result in memory only."""
    from slowscale.plan import inspect_plan
    from slowscale.publish.report.confidential import inspection_page
    from slowscale.release.dominance import USUAL_RULES

    def looked() -> dict[str, str]:
        found = inspect_plan(workbench.checked_plan(draft), dominance=USUAL_RULES)
        return {name: inspection_page(one) for name, one in found.items()}

    workbench = workbench_of(request)
    draft = workbench.draft
    try:
        found = await run_in_threadpool(looked)
    except (SlowscaleError, OSError) as error:
        problem = str(error)
        return workbench.page(request, "inspect.html", 400, draft=draft, seen={}, ready=True, problem=problem)
    workbench.inspection = draft.version, found
    return RedirectResponse(page.path, 303)


async def result(request: Request) -> Response:
    """Return the confidential page, which is shown in a frame."""
    workbench = workbench_of(request)
    found = workbench.seen(workbench.draft).get(request.query_params.get("table", ""))
    if found is None:
        return HTMLResponse("<p>There is nothing to show.</p>", 404)
    return HTMLResponse(found, headers={"content-security-policy": DOCUMENT_POLICY})


page = Page(
    "/inspect",
    "Inspect",
    [
        Route("/inspect", show, methods=["GET"]),
        Route("/inspect", look, methods=["POST"]),
        Route("/inspect/result", result, methods=["GET"]),
    ],
)
