"""Releases run in a separate child process: a closed browser or a stopped server loses nothing.

A job is a folder `.slowscale/jobs/<name>` with the plan as it was confirmed, a state file and the messages. Its name
comes from the page on which the release was confirmed, so that sending the page twice starts one job. The child process
holds the lock of the job for as long as it lives; the lock alone tells whether the release still runs. It takes the
lock before it writes the state file, without which the job is not found, and writes its result before it ends. A server
holds the lock of the folder until then, so that one release runs at a time there, whichever server started it.
"""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from slowscale.core.errors import ParameterError, SlowscaleError
from slowscale.core.files import relative_path
from slowscale.core.interrupts import interrupt
from slowscale.core.locks import is_locked, locked
from slowscale.plan import Plan
from slowscale.plan.outputs import outputs_of
from slowscale.plan.reading import plan_from_text
from slowscale.workbench.draft import Draft

T = TypeVar("T")

HIDDEN = Path(".slowscale")
NAME = re.compile(r"[0-9a-f]{32}")
PLAN_COPY, STATE, CANCEL, LOCK = "plan.toml", "state.json", "cancel", "lock"
RUNNING, DONE, REFUSED, CANCELLED, STOPPED = "running", "done", "refused", "cancelled", "stopped"
START_TIMEOUT = 30.0  # seconds to wait for another server that starts a release
LOOK = 0.1  # seconds between two looks whether a job is cancelled
# A process of its own: Ctrl-C in the terminal of the server does not reach it, and Windows opens no console for it.
DETACHED: dict[str, Any] = {
    "start_new_session": True,
    "creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0) | getattr(subprocess, "CREATE_NO_WINDOW", 0),
}


@dataclass(frozen=True)
class Job:
    """A release that was confirmed.

    Attributes
    ----------
    folder
        Where its files are.
    state
        Its `status`, `started`, `plan`, `charges` (of the ledger before it; None without a ledger),
        `charged`, `message`, `files`, `warnings`, `confidential` (warnings that depend on the records).
    """

    folder: Path
    state: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> "Job | None":
        """Read a job, or return None if there is none in the folder.

        A process writes its result before it ends. So if it is gone, the state is read again, and is then the last one.
        """
        found = _read_state(folder)
        if found is not None and cls(folder, found).open and not is_locked(folder / LOCK):
            found = _read_state(folder)
            if found is not None and cls(folder, found).open:
                found["status"] = CANCELLED if (folder / CANCEL).exists() else STOPPED
        return None if found is None else cls(folder, found)

    @property
    def name(self) -> str:
        """The name of the job."""
        return self.folder.name

    @property
    def status(self) -> str:
        """The status. A job whose process is gone without a result was cancelled or stopped."""
        found: str = self.state["status"]
        return found

    @property
    def open(self) -> bool:
        """Whether the job is still at work."""
        return self.status == RUNNING

    @property
    def charge(self) -> Literal["no ledger", "unknown", "charged", "not charged"]:
        """Whether the ledger was charged."""
        if self.state.get("charges", 0) is None:
            return "no ledger"
        charged = self.state.get("charged")
        return "unknown" if charged is None else "charged" if charged else "not charged"

    def plan(self, path: Path) -> Plan:
        """Return the plan as it was confirmed; `path` is that of the plan file."""
        return plan_from_text((self.folder / PLAN_COPY).read_text(encoding="utf-8"), path)


class Jobs:
    """The jobs of a plan file."""

    def __init__(self, root: Path, plan: Path) -> None:
        self.root, self.plan = root, plan
        self.folder = root / HIDDEN / "jobs"

    def all(self) -> list[Job]:
        """Return the jobs of the plan file, the newest first."""
        found = [job for job in self._of_every_plan() if job.state["plan"] == self.plan.name]
        return sorted(found, key=lambda job: job.state["started"], reverse=True)

    def _of_every_plan(self) -> list[Job]:
        try:
            names = [place.name for place in self.folder.iterdir()]
        except OSError:
            return []
        return [job for name in names if (job := self.get(name))]

    def get(self, name: str) -> Job | None:
        """Return a job, or None if there is none of that name."""
        return Job.read(self.folder / name) if NAME.fullmatch(name) else None

    def start(self, name: str, draft: Draft, overwrite: bool) -> Job:
        """Start the release of a plan, or return the one that was started under this name."""
        if not NAME.fullmatch(name):
            raise ParameterError("the page", "is incomplete", code="damaged", remedy="load it again")
        with ExitStack() as stack:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                free = stack.enter_context(locked(self.root / HIDDEN / LOCK, wait=START_TIMEOUT))
            except OSError as error:
                raise ParameterError(
                    f"the folder {HIDDEN}", f"cannot be used ({error.strerror or error})", code="unwritable",
                    remedy="remove or rename it",
                ) from None  # fmt: skip
            return self._start(name, draft, overwrite, free)

    def _start(self, name: str, draft: Draft, overwrite: bool, free: bool) -> Job:
        known = self.get(name)
        if known is not None:
            return known
        if not free or any(job.open for job in self._of_every_plan()):
            raise ParameterError(
                "another release", "is running in this folder", code="busy",
                remedy="wait until it is finished, or cancel it",
            )  # fmt: skip
        for job in self.all():
            self.settled(job, last=True)  # before the ledger has further charges
        _reap()
        before = charges(plan_from_text(draft.text, draft.path))
        place = self.folder / name
        place.mkdir(mode=0o700, exist_ok=True)
        (place / PLAN_COPY).write_text(draft.text, encoding="utf-8")
        started = datetime.now(UTC).isoformat()
        state = {"status": RUNNING, "started": started, "plan": draft.path.name, "charges": before}
        asked = [name, str(draft.path), *["--overwrite"] * overwrite]
        with (place / "messages.txt").open("wb") as messages:
            child = subprocess.Popen(
                # No module of the data's folder is imported: -P, and another folder to start in.
                [sys.executable, "-P", "-m", "slowscale.workbench.job", *asked],
                stdin=subprocess.PIPE,
                stdout=messages,
                stderr=messages,
                cwd=place,
                **DETACHED,
            )
        _CHILDREN.append(child)
        assert child.stdin is not None
        with suppress(OSError), child.stdin as first_state:  # unless the process has ended
            first_state.write(json.dumps(state).encode())
        while True:
            ended = child.poll() is not None
            found = self.get(name)
            if found is not None:
                return found
            if ended:
                write_state(place, {**state, "status": STOPPED})
            time.sleep(0.01)

    def cancel(self, job: Job) -> None:
        """Interrupt a job, as Ctrl-C interrupts the command: a charge stays charged."""
        if job.open:
            (job.folder / CANCEL).touch()

    def settled(self, job: Job, last: bool = False) -> Job:
        """Return a job with its outcome if its process ended without a result. The outcome is determined once.

        The ledger tells whether the charge was made, and the folder which files were written. If the ledger is not
        there or cannot be read now, it is asked again later; `last` says that this is not possible.
        """
        if job.open or "charged" in job.state:
            return job
        unknown = {"charged": None} if last else {}
        state = {**job.state, **unknown, **outcome(job, self.plan)}
        # A first charge makes the ledger. If it is not there now, it may have been moved: it is asked again later.
        if "charged" in state and (last or state["charged"] is not False or self._has_ledger(job)):
            write_state(job.folder, state)
        return Job(job.folder, state)

    def _has_ledger(self, job: Job) -> bool:
        ledger = job.plan(self.plan).ledger
        return ledger is not None and os.path.exists(ledger.path)


_CHILDREN: list[subprocess.Popen[bytes]] = []  # so that finished ones are reaped


def _reap() -> None:
    for child in list(_CHILDREN):
        if child.poll() is not None:
            _CHILDREN.remove(child)


@contextmanager
def cancellable(place: Path) -> Iterator[None]:
    """Interrupt the block when the job is cancelled."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(LOOK):
            if (place / CANCEL).exists():
                interrupt()
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def outcome(job: Job, plan_path: Path) -> dict[str, Any]:
    """Return whether a release that did not finish was charged, if that is known, and which files it wrote.

    `charged` is None if the plan has no ledger. A ledger that was there before, and is not now, says nothing.
    """
    try:
        plan = job.plan(plan_path)
        now = charges(plan)
    except (SlowscaleError, OSError, UnicodeError):
        return {"files": []}
    outputs = [] if plan.output is None else [str(path) for _, path in outputs_of(plan)]
    files = [path for path in outputs if _written_since(path, job)]
    found: dict[str, Any] = {"files": [relative_path(path, plan_path.parent) for path in files]}
    before = job.state.get("charges")
    if now is None:
        found["charged"] = None
    elif before is not None and now >= before:
        found["charged"] = now > before
    return found


def _written_since(path: str, job: Job) -> bool:
    try:
        return os.stat(path).st_mtime >= datetime.fromisoformat(job.state["started"]).timestamp() - 1
    except (OSError, ValueError):
        return False


def charges(plan: Plan) -> int | None:
    """Return the number of charges in the ledger of a plan, or None if it has no ledger."""
    from slowscale.accounting import Ledger

    if plan.ledger is None:
        return None
    return len(Ledger(plan.ledger.path).account.charges) if os.path.exists(plan.ledger.path) else 0


def _read_state(folder: Path) -> dict[str, Any] | None:
    try:
        state = json.loads(_while_in_use(lambda: (folder / STATE).read_bytes()))
    except (OSError, ValueError):
        return None
    return checked_state(state) if isinstance(state, dict) else None


def checked_state(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state with the kinds of values that it must have; a file may be damaged."""

    def texts(name: str) -> list[str]:
        given = state.get(name)
        return [one for one in given if isinstance(one, str)] if isinstance(given, list) else []

    status = state.get("status")
    found = {
        "status": status if status in (RUNNING, DONE, REFUSED, CANCELLED, STOPPED) else STOPPED,
        "files": texts("files"),
        "warnings": texts("warnings"),
        "confidential": texts("confidential"),
        **{name: state[name] if isinstance(state.get(name), str) else "" for name in ("started", "plan", "message")},
    }
    for name, kind in (("charges", int | None), ("charged", bool | None)):
        if name in state and isinstance(state[name], kind):
            found[name] = state[name]
    return found


def write_state(place: Path, state: dict[str, Any]) -> None:
    """Replace the state file of a job, at once and whole."""
    unfinished = place / f"{STATE}.{os.getpid()}"
    unfinished.write_text(json.dumps(state), encoding="utf-8")
    _while_in_use(lambda: os.replace(unfinished, place / STATE))


def _while_in_use(use: Callable[[], T]) -> T:
    """Use a file, again for a second while it is refused: Windows replaces no file that another process reads."""
    for _ in range(50):
        with suppress(PermissionError):
            return use()
        time.sleep(0.02)
    return use()
