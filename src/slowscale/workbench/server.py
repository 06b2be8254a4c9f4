"""The server of the workbench: it listens on 127.0.0.1 only, until it is interrupted."""

import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import uvicorn

from slowscale.core.errors import ParameterError
from slowscale.workbench.app import Workbench, listening_socket, make_app
from slowscale.workbench.charts import warm_up
from slowscale.workbench.draft import Folder
from slowscale.workbench.security import Door, moving_page


def run(plan: Path, allowed: tuple[Path, ...], port: int, browser: bool, tell: Callable[[str], object]) -> None:
    """Serve the workbench for a plan file, and open it in the browser.

    Parameters
    ----------
    plan
        The plan file. Its folder is the one that the workbench may use.
    allowed
        Further files and folders that may be read.
    port
        The port, or 0 for any free one.
    browser
        Whether to open the browser.
    tell
        Prints a line.
    """
    plan = plan.resolve()
    for path in allowed:
        if not path.exists():
            raise ParameterError("--allow", f"names {path}, which is not a file or folder", code="missing")
    try:
        listening = listening_socket(port)
    except OSError as error:
        problem = f"names port {port}, which cannot be used ({error.strerror})"
        raise ParameterError("--port", problem, code="busy", remedy="leave it out") from None
    door = Door(listening.getsockname()[1])
    workbench = Workbench(Folder(plan.parent, tuple(path.resolve() for path in allowed)), plan)
    server = uvicorn.Server(
        uvicorn.Config(
            make_app(workbench, door),
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=2,
        )
    )
    threading.Thread(target=warm_up, daemon=True).start()
    tell(f"The workbench for {plan} is at\n\n  {door.address}\n")
    tell("The address works once, on this machine only. Stop the workbench with Ctrl-C; the plan and the ledger stay.")
    with redirect_file(door.address) if browser else nullcontext() as file:
        if file is not None:
            threading.Timer(0.3, webbrowser.open, [file.as_uri()]).start()
        server.run(sockets=[listening])


@contextmanager
def redirect_file(address: str) -> Iterator[Path]:
    """Yield a file that leads to an address. Only its owner may read it (mode 0600), and it is removed at the end.

    The address itself must not be given to a browser: everybody on this machine can read the command lines of others.
    """
    handle, name = tempfile.mkstemp(prefix="slowscale-", suffix=".html")
    file = Path(name)
    try:
        with open(handle, "w", encoding="utf-8") as page:  # closed before it is opened again, for Windows
            page.write(moving_page(address))
        yield file
    finally:
        file.unlink(missing_ok=True)
