"""Releases run in a child process of their own, so that a closed browser or a stopped server loses nothing.

A job is a folder `.slowscale/jobs/<name>` with the plan as it was confirmed, a state file and the messages. Its name
comes from the page on which the release was confirmed, so that sending the page twice starts one job.
"""

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

from slowscale.errors import ParameterError
from slowscale.workbench.draft import Draft

JOBS = Path(".slowscale", "jobs")
OVERWRITE = ("--overwrite",)
NAME = re.compile(r"[0-9a-f]{32}")
STARTING, RUNNING, DONE, REFUSED, CANCELLED, STOPPED = (
    "starting",
    "running",
    "done",
    "refused",
    "cancelled",
    "stopped",
)


@dataclass(frozen=True)
class Job:
    """A release that was confirmed.

    Attributes
    ----------
    folder
        Where its files are.
    state
        What is known of it: `status`, `started`, `message`, `files`, `release`.
    """

    folder: Path
    state: dict[str, Any]

    @property
    def name(self) -> str:
        """The name of the job."""
        return self.folder.name

    @property
    def status(self) -> str:
        """The status. A job whose process is gone without a result was stopped."""
        status: str = self.state.get("status", STARTING)
        return STOPPED if status in (STARTING, RUNNING) and not _alive(self.pid, self.name) else status

    @property
    def pid(self) -> int | None:
        """The number of the process, or None if it was never started."""
        try:
            return int((self.folder / "pid").read_text())
        except (OSError, ValueError):
            return None

    @property
    def open(self) -> bool:
        """Whether the job is still at work."""
        return self.status in (STARTING, RUNNING)


class Jobs:
    """The jobs of a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / JOBS

    def all(self) -> list[Job]:
        """Return the jobs, the newest first."""
        if not self.folder.is_dir():
            return []
        found = [self.get(place.name) for place in self.folder.iterdir() if NAME.fullmatch(place.name)]
        return sorted((job for job in found if job), key=lambda job: job.state.get("started", ""), reverse=True)

    def get(self, name: str) -> Job | None:
        """Return a job, or None if there is none of that name."""
        if not NAME.fullmatch(name):
            return None
        try:
            state = json.loads((self.folder / name / "state.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return Job(self.folder / name, state)

    def start(self, name: str, draft: Draft, overwrite: bool, charges: int | None) -> Job:
        """Start the release of a plan, or return the one that was started under this name.

        `charges` is the number of charges in the ledger so far, or None if there is no ledger.
        """
        if not NAME.fullmatch(name):
            raise ParameterError("the page is incomplete: load it again")
        known = self.get(name)
        if known is not None:
            return known
        if any(job.open for job in self.all()):
            raise ParameterError("another release is running: wait until it is finished, or cancel it")
        place = self.folder / name
        try:
            place.mkdir(parents=True, mode=0o700)
        except FileExistsError:
            found = self.get(name)
            if found is None:
                raise ParameterError("this release is being started in another tab") from None
            return found
        started = datetime.now(UTC).isoformat(timespec="seconds")
        write_state(place, {"status": STARTING, "started": started, "plan": draft.path.name, "charges": charges})
        asked = [name, str(draft.path), draft.version, *OVERWRITE[not overwrite :]]
        with (place / "messages.txt").open("wb") as messages:
            child = subprocess.Popen(
                [sys.executable, "-m", "slowscale.workbench.job", *asked],
                stdin=subprocess.DEVNULL,
                stdout=messages,
                stderr=messages,
                start_new_session=True,
                cwd=self.root,
            )
        (place / "pid").write_text(str(child.pid))
        _CHILDREN.append(child)
        found = self.get(name)
        assert found is not None
        return found

    def cancel(self, job: Job) -> None:
        """Interrupt a job, as Ctrl-C interrupts the command: what was charged stays charged."""
        if job.open and job.pid is not None:
            os.kill(job.pid, signal.SIGINT)


_CHILDREN: list[subprocess.Popen[bytes]] = []  # so that finished ones are reaped


def write_state(place: Path, state: dict[str, Any]) -> None:
    """Replace the state file of a job, at once and whole."""
    unfinished = place / f"state.{os.getpid()}"
    unfinished.write_text(json.dumps(state), encoding="utf-8")
    os.replace(unfinished, place / "state.json")


def _alive(pid: int | None, name: str) -> bool:
    """Whether a process is the one that runs a job: a number may have been given to another process since."""
    for child in list(_CHILDREN):
        if child.poll() is not None:
            _CHILDREN.remove(child)
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError, OverflowError):
        return False
    try:
        return name.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return True  # a system without /proc
