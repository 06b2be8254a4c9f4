"""The application: its pages, their common parts, and the server that listens on this machine only."""

import socket
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from slowscale.core.errors import SlowscaleError
from slowscale.plan import Plan
from slowscale.workbench.draft import Draft, Folder
from slowscale.workbench.jobs import Jobs
from slowscale.workbench.places import check_places
from slowscale.workbench.security import Door, Guard

NO_LEDGER_NOTE = "The plan has no ledger: nothing is recorded, and losses from several releases are not added up."
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
        self.templates.globals.update(no_ledger=NO_LEDGER_NOTE, root="")

    @property
    def draft(self) -> Draft:
        """The plan file as it is now."""
        return Draft.read(self.plan)

    def checked_plan(self, draft: Draft) -> Plan:
        """Return the plan of a draft, or raise if it has mistakes, or names files that the workbench may not use."""
        return check_places(self.folder, draft.plan)

    def page(self, request: Request, template: str, status: int = 200, **context: Any) -> HTMLResponse:
        """Return a page with the parts of all pages: the steps, the plan file and its mistakes."""
        from slowscale.workbench.pages import PAGES

        draft = context.pop("draft", None) or self.draft
        self.seen(draft)
        text = self.templates.get_template(template).render(
            steps=PAGES,
            here=request.url.path,
            draft=draft,
            plan_name=self.plan.name,
            folder=self.folder.root,
            **{"problem": None, "message": None, "unreadable": False, **context},
        )
        return HTMLResponse(text, status)

    def problem_page(self, request: Request, words: str, status: int, expected: bool = True) -> HTMLResponse:
        """Return a page about an error, even if the plan cannot be read.

        Parameters
        ----------
        request
            The request.
        words
            The error.
        status
            The status of the answer.
        expected
            Whether it is certain that nothing was changed.
        """
        try:
            draft = self.draft
            _ = draft.mistakes
            unreadable = False
        except Exception:  # whatever is wrong with the plan, this page must be shown
            draft, unreadable = Draft(self.plan, ""), True
        context = {"draft": draft, "unreadable": unreadable, "problem": words, "expected": expected}
        return self.page(request, "problem.html", status, **context)

    def seen(self, draft: Draft) -> dict[str, str]:
        """Return the confidential pages of the last data check, and forget them if the plan has changed."""
        if self.inspection[0] != draft.version:
            self.inspection = "", {}
        return self.inspection[1]

    def part(self, template: str, **context: Any) -> str:
        """Return a part of a page, which replaces another part of it."""
        return self.templates.get_template(template).render(**context)


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
        exception_handlers={SlowscaleError: _show_error, OSError: _show_os_error, HTTPException: _show_http_error},
        # Starlette's own handler of all other errors would print their traceback.
        middleware=[Middleware(ExceptionMiddleware, handlers={Exception: _show_bug})],
    )
    app.state.workbench = workbench
    app.router.redirect_slashes = False  # it would lead to an address without the root
    workbench.templates.globals["root"] = door.root
    return Guard(app, door)


def workbench_of(request: Request) -> Workbench:
    """Return the workbench that a request is for."""
    found: Workbench = request.app.state.workbench
    return found


async def _download_plan(request: Request) -> Response:
    plan = workbench_of(request).plan
    if not plan.is_file():
        raise HTTPException(404, "there is no plan yet: choose the data first")
    return FileResponse(plan, filename=plan.name, media_type="application/toml")


async def _show_error(request: Request, error: Exception) -> Response:
    """Show an error of the library that a page did not place beside a field."""
    return workbench_of(request).problem_page(request, str(error), 400)


async def _show_os_error(request: Request, error: Exception) -> Response:
    """Show an error of the system, such as a file that cannot be written."""
    return workbench_of(request).problem_page(request, str(error), 400, expected=False)


async def _show_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = "There is no such page." if error.detail == "Not Found" else error.detail
    return workbench_of(request).problem_page(request, words, error.status_code)


async def _show_bug(request: Request, error: Exception) -> Response:
    """Show an unexpected error. A plan with mistakes may have values that a page cannot show."""
    workbench = workbench_of(request)
    try:
        mistakes = workbench.draft.mistakes
    except Exception:
        mistakes = []
    if mistakes:
        fields = ", ".join(dict.fromkeys(".".join(map(str, field)) for field, _ in mistakes if field))
        words = (
            f"This page cannot show {workbench.plan.name} before its mistakes are corrected"
            f'{f" ({fields})" if fields else ""}: they are listed under "Still to do". Correct them in an editor.'
        )
        return workbench.problem_page(request, words, 400, expected=False)
    words = f"{type(error).__name__}: {error} (this is a bug in slowscale)"
    return workbench.problem_page(request, words, 500, expected=False)


def listening_socket(port: int) -> socket.socket:
    """Return a socket that listens on this machine only; port 0 takes any free one."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.bind(("127.0.0.1", port))
    return found
