"""A workbench in this process, without a server: pages are asked for directly."""

import asyncio
import html
import re

import httpx

from slowscale.workbench.app import Workbench, make_app
from slowscale.workbench.draft import Folder
from slowscale.workbench.security import Door

PORT = 8765
BASE = f"http://127.0.0.1:{PORT}"
# A complete plan with packaged noise.
READY = (
    '[data]\npath = "a.csv"\n[data.types]\nemp = "int64"\n[ledger]\npath = "plan.ledger"\n[tables.cells.sums.emp]\n'
    'mechanism = "arsinh-normal"\nscale = 8\nshape = 1.6\n[output]\nfolder = "published"\n'
)


class Client:
    """A browser that came in through the one-time address. Redirects are not followed."""

    def __init__(self, workbench):
        door = Door(PORT)
        self.transport = httpx.ASGITransport(make_app(workbench, door), raise_app_exceptions=False)
        self.base = BASE + door.root
        self.headers = {"origin": BASE, "cookie": f"{door.cookie_name}={door.cookie}"}

    def get(self, path, **more):
        """Ask for a page."""
        return asyncio.run(self._request("GET", path, **more))

    def post(self, path, **more):
        """Send a form."""
        return asyncio.run(self._request("POST", path, **more))

    async def _request(self, method, path, **more):
        path = path.removeprefix(self.base.removeprefix(BASE))  # that of a redirect
        async with httpx.AsyncClient(transport=self.transport, base_url=self.base, headers=self.headers) as client:
            return await client.request(method, path, **more)


def workbench_in(folder, allowed=(), plan="plan.toml"):
    """Return the workbench of a folder, and a client."""
    workbench = Workbench(Folder(folder, tuple(allowed)), folder / plan)
    return workbench, Client(workbench)


def problem_of(answer):
    """Return the words of the problem on a page."""
    found = re.search(r'class="problem" role="alert"><p>(.*?)</p>', answer.text, re.DOTALL)
    return html.unescape(found.group(1)) if found else ""
