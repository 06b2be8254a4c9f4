"""Release: confirm, progress, result. A job has the name that its page was given, so that it is started once."""

import secrets
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from slowscale.core.errors import SlowscaleError
from slowscale.core.files import relative_path
from slowscale.workbench import forms
from slowscale.workbench.app import Page, Workbench, workbench_of
from slowscale.workbench.jobs import Job


async def show(request: Request) -> Response:
    """Show the release that the plan describes."""
    return _page(request, workbench_of(request))


def _page(request: Request, workbench: Workbench, status: int = 200, problem: str | None = None) -> Response:
    draft = workbench.draft
    running = next((job for job in workbench.jobs.all() if job.open), None)
    return workbench.page(
        request, "release.html", status, draft=draft, problem=problem, running=running, ready=draft.complete,
        report=draft.get("output", "report") or "",
    )  # fmt: skip


async def question(request: Request) -> Response:
    """Check the plan as `slowscale check` does, and ask for confirmation."""
    from slowscale.plan import check_plan

    workbench = workbench_of(request)
    draft = workbench.draft
    found: dict[str, Any] = {
        "refusal": None, "existing": (), "version": draft.version, "name": secrets.token_hex(16), "ledger": True,
    }  # fmt: skip
    try:
        plan = await run_in_threadpool(workbench.checked_plan, draft)
        found["ledger"] = plan.ledger is not None
        checked = await run_in_threadpool(check_plan, plan, True)
        found["existing"] = [relative_path(file, workbench.folder.root) for file in checked.existing]
        found["refusal"] = checked.refused
    except (SlowscaleError, OSError) as error:
        found["refusal"] = str(error)
    return workbench.page(request, "question.html", draft=draft, **found)


async def check_data(request: Request) -> Response:
    """Check whether records match the keys. CONFIDENTIAL: the result is in this answer only, and kept nowhere."""
    from slowscale.plan import describe_matches

    workbench, form = workbench_of(request), await request.form()
    draft = workbench.draft
    if draft.version != forms.text(form, "version"):
        words = "The plan was changed since you saw it. Load the page again."
        return workbench.page(request, "data_check.html", draft=draft, words=words)

    def looked() -> str:
        try:
            return describe_matches(workbench.checked_plan(draft))
        except (SlowscaleError, OSError) as error:  # a file that the workbench may not use
            return str(error)

    return workbench.page(request, "data_check.html", draft=draft, words=await run_in_threadpool(looked))


async def save(request: Request) -> Response:
    """Write the path of the report into the plan."""
    workbench, form = workbench_of(request), await request.form()
    path = forms.text(form, "report")
    if path:
        workbench.folder.target(path)
    workbench.draft.put(("output", "report"), path or None).save(forms.text(form, "version"))
    return RedirectResponse(page.path, 303)


async def start(request: Request) -> Response:
    """Start the release that was confirmed."""
    workbench, form = workbench_of(request), await request.form()
    draft = workbench.draft
    name = forms.text(form, "name")
    known = workbench.jobs.get(name)
    if known is None:
        if draft.version != forms.text(form, "version"):
            return _page(request, workbench, 409, "The plan was changed since you saw it. Check it again.")
        if not form.get("confirmed"):
            return _page(request, workbench, 400, "Confirm first that the charge cannot be taken back.")
        try:
            await run_in_threadpool(workbench.checked_plan, draft)
            known = await run_in_threadpool(workbench.jobs.start, name, draft, bool(form.get("overwrite")))
        except SlowscaleError as error:
            return _page(request, workbench, 409, str(error))
    return RedirectResponse(f"{page.path}/{known.name}", 303)


def _job(request: Request) -> Job:
    job = workbench_of(request).jobs.get(request.path_params["name"])
    if job is None:
        raise HTTPException(404, "There is no such release.")
    return job


async def follow(request: Request) -> Response:
    """Show how far a release is."""
    workbench = workbench_of(request)
    return workbench.page(request, "job.html", job=workbench.jobs.settled(_job(request)))


async def cancel(request: Request) -> Response:
    """Interrupt a release."""
    workbench, job = workbench_of(request), _job(request)
    workbench.jobs.cancel(job)
    return RedirectResponse(f"{page.path}/{job.name}", 303)


page = Page(
    "/release",
    "Release",
    [
        Route("/release", show, methods=["GET"]),
        Route("/release", start, methods=["POST"]),
        Route("/release/report", save, methods=["POST"]),
        Route("/release/question", question, methods=["GET"]),
        Route("/release/check", check_data, methods=["POST"]),
        Route("/release/{name}", follow, methods=["GET"]),
        Route("/release/{name}/cancel", cancel, methods=["POST"]),
    ],
)
