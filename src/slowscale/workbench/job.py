"""The child process of a release, in the root folder: `python -m slowscale.workbench.job NAME PLAN VERSION`."""

import os
import sys
import warnings
from pathlib import Path
from typing import Any

from slowscale.workbench.draft import ChangedElsewhereError, Draft
from slowscale.workbench.jobs import CANCELLED, DONE, JOBS, REFUSED, RUNNING, Jobs, write_state


def main(name: str, plan: str, version: str, overwrite: bool) -> int:
    """Carry out the plan, and leave the result in the state file of the job."""
    from slowscale.errors import SlowscaleError
    from slowscale.plan import read_plan, run_plan

    place = JOBS / name
    job = Jobs(Path()).get(name)
    state: dict[str, Any] = {**(job.state if job else {}), "status": RUNNING}
    write_state(place, state)
    seen: list[str] = []
    warnings.showwarning = lambda message, *_: seen.append(str(message))
    try:
        if Draft.read(Path(plan)).version != version:
            raise ChangedElsewhereError("the plan was changed after the release was confirmed: confirm it again")
        made, files = run_plan(read_plan(plan), overwrite)
    except KeyboardInterrupt:
        words = "Cancelled. What was charged stays charged, and no file is half written."
        write_state(place, {**state, "status": CANCELLED, "message": words})
        return 130
    except (SlowscaleError, OSError, MemoryError) as error:
        write_state(place, {**state, "status": REFUSED, "message": str(error), "kind": type(error).__name__})
        return 1
    done = {"status": DONE, "files": [os.path.relpath(file) for file in files], "release": made.facts.id}
    write_state(place, {**state, **done, "warnings": seen})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], "--overwrite" in sys.argv[4:]))
