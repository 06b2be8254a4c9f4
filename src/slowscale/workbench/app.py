"""The application: its pages, what they have in common, and the server that listens on this machine only."""

import socket
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from slowscale.errors import SlowscaleError
from slowscale.workbench.draft import Draft, Folder
from slowscale.workbench.jobs import Jobs
from slowscale.workbench.security import Door, Guard

STATIC = Path(str(files("slowscale.workbench").joinpath("static")))


class Page(NamedTuple):
    """A page: its path, its title in the navigation, and its routes."""

    path: str
    title: str
    routes: list[Route]


class Workbench:
    """A running workbench: the folder, the plan file, the jobs, and how its pages are written.

    Parameters
    ----------
    folder
        The folder that it may use.
    plan
        The plan file, in the folder.
    """

    def __init__(self, folder: Folder, plan: Path) -> None:
        self.folder, self.plan, self.jobs = folder, plan, Jobs(folder.root, plan)
        # The last look at the records, in memory only: the version of the plan, and a page per table. CONFIDENTIAL.
        self.inspection: tuple[str, dict[str, str]] = "", {}
        self.templates = Environment(
            loader=PackageLoader("slowscale.workbench"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
            lstrip_blocks=True,
        )  # fmt: skip

    @property
    def draft(self) -> Draft:
        """The plan file as it is now."""
        return Draft.read(self.plan)

    def page(self, request: Request, template: str, status: int = 200, **context: Any) -> HTMLResponse:
        """Return a page with what all pages show: the steps, the plan file and its mistakes."""
        from slowscale.workbench.pages import PAGES

        draft = context.pop("draft", None) or self.draft
        text = self.templates.get_template(template).render(
            steps=PAGES,
            here=request.url.path,
            draft=draft,
            plan_name=self.plan.name,
            folder=self.folder.root,
            **{"problem": None, "message": None, **context},
        )
        return HTMLResponse(text, status)

    def part(self, template: str, **context: Any) -> HTMLResponse:
        """Return a part of a page, which replaces another part of it."""
        return HTMLResponse(self.templates.get_template(template).render(**context))


def make_app(workbench: Workbench, door: Door) -> Guard:
    """Return the application, behind the checks of `security`."""
    from slowscale.workbench.pages import PAGES

    app = Starlette(
        routes=[
            Route("/", lambda request: RedirectResponse("/data", 303)),
            *(route for page in PAGES for route in page.routes),
            Route("/plan/download", _download_plan),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        exception_handlers={SlowscaleError: _show_error, HTTPException: _show_http_error},
    )
    app.state.workbench = workbench
    return Guard(app, door)


def workbench_of(request: Request) -> Workbench:
    """Return the workbench that a request is for."""
    found: Workbench = request.app.state.workbench
    return found


async def _download_plan(request: Request) -> Response:
    plan = workbench_of(request).plan
    if not plan.exists():
        raise HTTPException(404, "there is no plan yet: choose the data first")
    return FileResponse(plan, filename=plan.name, media_type="application/toml")


async def _show_error(request: Request, error: Exception) -> Response:
    """Show an error of the library that a page did not place beside a field."""
    from slowscale.plan.wording import in_plan_words

    return workbench_of(request).page(request, "problem.html", 400, problem=in_plan_words(str(error)))


async def _show_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = "There is no such page." if error.detail == "Not Found" else error.detail
    return workbench_of(request).page(request, "problem.html", error.status_code, problem=words)


def listening_socket(port: int) -> socket.socket:
    """Return a socket that listens on this machine only; port 0 takes any free one."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.bind(("127.0.0.1", port))
    return found
