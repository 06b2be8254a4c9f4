"""Releases run in a child process of their own, so that a closed browser or a stopped server loses nothing.

A job is a folder `.slowscale/jobs/<name>` with the plan as it was confirmed, a state file and the messages. Its name
comes from the page on which the release was confirmed, so that sending the page twice starts one job. The child process
holds a lock for as long as it lives, so that one release runs at a time in a folder, whichever server started it.
"""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from slowscale.errors import ParameterError, SlowscaleError
from slowscale.plan import Plan
from slowscale.plan.reading import plan_from_text
from slowscale.workbench.draft import Draft

HIDDEN = Path(".slowscale")
NAME = re.compile(r"[0-9a-f]{32}")
PLAN_COPY, STATE, PID, CANCEL = "plan.toml", "state.json", "pid", "cancel"
STARTING, RUNNING, DONE, REFUSED, CANCELLED, STOPPED = (
    "starting",
    "running",
    "done",
    "refused",
    "cancelled",
    "stopped",
)
START_TIME = 30.0  # seconds in which a process must have been started
BUSY = "another release is running in this folder: wait until it is finished, or cancel it"


@dataclass(frozen=True)
class Job:
    """A release that was confirmed.

    Attributes
    ----------
    folder
        Where its files are.
    state
        What is known of it: `status`, `started`, `plan`, `overwrite`, `charges` (of the ledger before it), `charged`,
        `message`, `files`, `warnings`.
    """

    folder: Path
    state: dict[str, Any]

    @property
    def name(self) -> str:
        """The name of the job."""
        return self.folder.name

    @property
    def status(self) -> str:
        """The status. A job whose process is gone without a result was cancelled or stopped."""
        status: str = self.state["status"]
        if status not in (STARTING, RUNNING) or self._alive:
            return status
        return CANCELLED if (self.folder / CANCEL).exists() else STOPPED

    @property
    def open(self) -> bool:
        """Whether the job is still at work."""
        return self.status in (STARTING, RUNNING)

    @property
    def _alive(self) -> bool:
        pid = self.pid
        if pid is None:  # the process is about to be started
            return self.state["status"] == STARTING and self.age < START_TIME
        return _runs(pid, self.name)

    @property
    def age(self) -> float:
        """The seconds since the job was started."""
        try:
            return (datetime.now(UTC) - datetime.fromisoformat(self.state["started"])).total_seconds()
        except (ValueError, TypeError):
            return float("inf")

    @property
    def pid(self) -> int | None:
        """The number of the process, or None if it was never started."""
        try:
            pid = int((self.folder / PID).read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None
        return pid if pid > 1 else None

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
        try:
            names = [place.name for place in self.folder.iterdir()]
        except OSError:
            return []
        found = [job for name in names if (job := self.get(name)) and job.state["plan"] == self.plan.name]
        return sorted(found, key=lambda job: job.state["started"], reverse=True)

    def get(self, name: str) -> Job | None:
        """Return a job, or None if there is none of that name."""
        if not NAME.fullmatch(name):
            return None
        try:
            state = json.loads((self.folder / name / STATE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return Job(self.folder / name, checked_state(state)) if isinstance(state, dict) else None

    def start(self, name: str, draft: Draft, overwrite: bool) -> Job:
        """Start the release of a plan, or return the one that was started under this name."""
        if not NAME.fullmatch(name):
            raise ParameterError("the page is incomplete: load it again")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.root / HIDDEN / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise ParameterError(
                f"the folder {HIDDEN} cannot be used ({error.strerror}): remove or rename it"
            ) from None
        try:
            return self._start(name, draft, overwrite, lock)
        finally:
            os.close(lock)  # the child has it still

    def _start(self, name: str, draft: Draft, overwrite: bool, lock: int) -> Job:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            known = self.get(name)
            if known is None:
                raise ParameterError(BUSY) from None
            return known
        known = self.get(name)
        if known is not None:
            return known
        place = self.folder / name
        place.mkdir(mode=0o700, exist_ok=True)
        (place / PLAN_COPY).write_text(draft.text, encoding="utf-8")
        started = datetime.now(UTC).isoformat()
        before = charges(plan_from_text(draft.text, draft.path))
        write_state(place, {"status": STARTING, "started": started, "plan": draft.path.name, "charges": before})
        asked = [name, str(draft.path), *["--overwrite"] * overwrite]
        with (place / "messages.txt").open("wb") as messages:
            child = subprocess.Popen(
                [sys.executable, "-m", "slowscale.workbench.job", *asked],
                stdin=subprocess.DEVNULL,
                stdout=messages,
                stderr=messages,
                start_new_session=True,
                cwd=self.root,
                pass_fds=[lock],
            )
        (place / PID).write_text(str(child.pid), encoding="ascii")
        _CHILDREN.append(child)
        found = self.get(name)
        assert found is not None
        return found

    def cancel(self, job: Job) -> None:
        """Interrupt a job, as Ctrl-C interrupts the command: what was charged stays charged."""
        pid = job.pid
        if job.open and pid is not None and _runs(pid, job.name):
            (job.folder / CANCEL).touch()
            os.kill(pid, signal.SIGINT)

    def settled(self, job: Job) -> Job:
        """Return a job with what became of it, if its process is gone without saying so. This is found out once.

        The ledger tells whether the charge was made, and the folder which files were written.
        """
        if job.open or "charged" in job.state:
            return job
        state = {**job.state, "status": job.status, **outcome(job, self.plan)}
        write_state(job.folder, state)
        return Job(job.folder, state)


_CHILDREN: list[subprocess.Popen[bytes]] = []  # so that finished ones are reaped


def outcome(job: Job, plan_path: Path) -> dict[str, Any]:
    """Return whether a release that did not finish was charged (None: there is no ledger), and what it wrote."""
    try:
        plan = job.plan(plan_path)
        now = charges(plan)
    except (SlowscaleError, OSError, UnicodeError):
        return {"charged": None, "files": []}
    before = job.state.get("charges")
    root = plan_path.parent
    files = [path for path in plan.written_files if _written_since(path, job)]
    charged = None if now is None or before is None else now > before
    return {"charged": charged, "files": [os.path.relpath(path, root) for path in files]}


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


def checked_state(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state with the kinds of values that it must have; a file may be damaged."""

    def texts(name: str) -> list[str]:
        given = state.get(name)
        return [one for one in given if isinstance(one, str)] if isinstance(given, list) else []

    status = state.get("status")
    found = {
        "status": status if status in (STARTING, RUNNING, DONE, REFUSED, CANCELLED, STOPPED) else STOPPED,
        "files": texts("files"),
        "warnings": texts("warnings"),
        "charges": state["charges"] if isinstance(state.get("charges"), int) else None,
        **{name: state[name] if isinstance(state.get(name), str) else "" for name in ("started", "plan", "message")},
    }
    if isinstance(state.get("charged"), bool | None) and "charged" in state:
        found["charged"] = state["charged"]
    return found


def write_state(place: Path, state: dict[str, Any]) -> None:
    """Replace the state file of a job, at once and whole."""
    unfinished = place / f"{STATE}.{os.getpid()}"
    unfinished.write_text(json.dumps(state), encoding="utf-8")
    os.replace(unfinished, place / STATE)


def _runs(pid: int, name: str) -> bool:
    """Whether a process is the one that runs a job: a number may have been given to another process since."""
    for child in list(_CHILDREN):
        if child.poll() is not None:
            _CHILDREN.remove(child)
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError, OverflowError):
        return False
    if not Path("/proc/self").exists():
        return True  # a system on which the command of a process cannot be read
    try:
        return name.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
