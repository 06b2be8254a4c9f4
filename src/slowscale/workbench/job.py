"""The child process of a release: `python -P -m slowscale.workbench.job NAME PLAN [--overwrite]`."""

import os
import sys
import warnings
from pathlib import Path
from typing import Any

from slowscale.core.interrupts import interruptible


def main(name: str, plan_path: Path, overwrite: bool) -> int:
    """Carry out the plan as it was confirmed, and leave the result in the state file of the job."""
    from slowscale.core.errors import ConfidentialWarning, SlowscaleError
    from slowscale.plan import run_plan
    from slowscale.workbench.jobs import CANCELLED, DONE, REFUSED, RUNNING, Jobs, outcome, write_state

    job = Jobs(plan_path.parent, plan_path).get(name)
    assert job is not None
    state: dict[str, Any] = {**job.state, "status": RUNNING}
    write_state(job.folder, state)
    seen: dict[str, list[str]] = {"warnings": [], "confidential": []}

    def keep(message: Warning | str, category: type[Warning]) -> None:
        kind = "confidential" if issubclass(category, ConfidentialWarning) else "warnings"
        seen[kind].append(str(message))

    warnings.showwarning = lambda message, category, *_: keep(message, category)
    try:
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
    written = [os.path.relpath(file, plan_path.parent) for file in files]
    done = {"status": DONE, "charged": job.state["charges"] is not None or None, "files": written}
    write_state(job.folder, {**state, **done, **seen})
    return 0


if __name__ == "__main__":
    with interruptible():
        code = main(sys.argv[1], Path(sys.argv[2]), "--overwrite" in sys.argv[3:])
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)  # at once: the result is there, so that the next release may start, but this process has its lock
