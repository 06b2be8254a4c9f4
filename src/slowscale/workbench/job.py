"""The child process of a release: `python -P -m slowscale.workbench.job NAME PLAN [--overwrite]`.

It reads the first state of the job from its standard input.
"""

import json
import os
import signal
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slowscale.core.interrupts import interruptible

if TYPE_CHECKING:
    from slowscale.workbench.jobs import Job


def main(name: str, plan_path: Path, overwrite: bool, started: bytes) -> int:
    """Carry out the plan as it was confirmed, and leave the result in the state file of the job."""
    from slowscale.core.locks import locked
    from slowscale.workbench.jobs import LOCK, Job, Jobs, write_state

    if not started:  # the server was stopped
        return 1
    state = json.loads(started)
    jobs = Jobs(plan_path.parent, plan_path)
    with locked(jobs.folder / name / LOCK, wait=1) as free:
        if not free or jobs.get(name) is not None:  # another process carries it out, or has done so
            return 1
        write_state(jobs.folder / name, state)
        return carry_out(Job(jobs.folder / name, state), plan_path, overwrite)


def carry_out(job: "Job", plan_path: Path, overwrite: bool) -> int:
    """Release, and write the result."""
    from slowscale.core.errors import ConfidentialWarning, SlowscaleError
    from slowscale.core.files import relative_path
    from slowscale.plan import run_plan
    from slowscale.workbench.jobs import CANCELLED, DONE, REFUSED, cancellable, outcome, write_state

    state: dict[str, Any] = job.state
    seen: dict[str, list[str]] = {"warnings": [], "confidential": []}

    def keep(message: Warning | str, category: type[Warning]) -> None:
        kind = "confidential" if issubclass(category, ConfidentialWarning) else "warnings"
        seen[kind].append(str(message))

    warnings.showwarning = lambda message, category, *_: keep(message, category)
    try:
        with cancellable(job.folder):
            _, files = run_plan(job.plan(plan_path), overwrite)
    except BaseException as error:
        status = CANCELLED if isinstance(error, KeyboardInterrupt) else REFUSED
        if isinstance(error, KeyboardInterrupt):
            words = "The release was cancelled. No file is half written."
        elif isinstance(error, SlowscaleError):
            words = str(error)
        elif isinstance(error, OSError | MemoryError):
            words = str(error) or "the machine has not enough memory"
        else:
            words = f"{type(error).__name__}: {error} (this is a bug in slowscale)"
        write_state(job.folder, {**state, **seen, "status": status, "message": words, **outcome(job, plan_path)})
        return 1
    written = [relative_path(file, plan_path.parent) for file in files]
    done = {"status": DONE, "charged": job.state["charges"] is not None or None, "files": written}
    write_state(job.folder, {**state, **done, **seen})
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also if the server ignores it
    with interruptible():
        code = main(sys.argv[1], Path(sys.argv[2]), "--overwrite" in sys.argv[3:], sys.stdin.buffer.read())
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)  # at once: the result is there
