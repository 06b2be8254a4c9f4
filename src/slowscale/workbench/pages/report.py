"""Report: the public report, the published files, and the history of releases from the ledger."""

import os
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from slowscale.core.errors import ParameterError, SlowscaleError
from slowscale.workbench.app import Page, Workbench, workbench_of
from slowscale.workbench.security import DOCUMENT_POLICY


def written_files(workbench: Workbench) -> list[str]:
    """Return the files that releases wrote and that are still there, the newest first."""
    found: dict[str, None] = {}
    for job in workbench.jobs.all():
        found |= dict.fromkeys(workbench.jobs.settled(job).state["files"])
    return [file for file in found if (workbench.folder.root / file).is_file()]


async def show(request: Request) -> Response:
    """Show the report, the files and the history."""
    workbench = workbench_of(request)
    files = written_files(workbench)
    report = next((file for file in files if file.endswith(".html")), None)
    problem = None
    entries: list[dict[str, Any]] = []
    try:
        entries = await run_in_threadpool(history, workbench)
    except (SlowscaleError, OSError) as error:
        problem = str(error)
    return workbench.page(
        request, "report.html", files=files, report=report, jobs=workbench.jobs.all(), entries=entries, problem=problem
    )


def history(workbench: Workbench) -> list[dict[str, Any]]:
    """Return the entries of the plan's ledger, the newest first."""
    from slowscale.accounting import Ledger
    from slowscale.accounting.entries import describe_entry

    ledger = workbench.draft.get("ledger", "path", default="")
    if not ledger:
        return []
    place = workbench.folder.target(ledger)
    if not place.exists():
        return []
    entries = [
        {"number": number, "time": entry["time"], "words": describe_entry(entry)}
        for number, entry in enumerate(Ledger(place).history(), 1)
    ]
    return entries[::-1]


async def file(request: Request) -> Response:
    """Return a file that a release wrote: reports in a frame without rights, other files as downloads."""
    workbench = workbench_of(request)
    name = request.path_params["name"]
    if os.path.normpath(name) != name or name not in written_files(workbench):
        raise HTTPException(404, "No release wrote such a file.")
    try:
        place = workbench.folder.inside(name)
    except ParameterError as error:
        raise HTTPException(404, str(error)) from None
    if name.endswith(".html") and request.query_params.get("download") is None:
        return FileResponse(place, headers={"content-security-policy": DOCUMENT_POLICY}, media_type="text/html")
    return FileResponse(place, filename=place.name)


page = Page(
    "/report",
    "Report",
    [Route("/report", show, methods=["GET"]), Route("/report/files/{name:path}", file, methods=["GET"])],
)
