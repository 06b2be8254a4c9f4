"""The files that a plan names, checked before any of them is opened: a plan may be written by hand, or by others."""

import os
from collections.abc import Iterator

from slowscale.plan import Plan
from slowscale.plan.outputs import inputs_of
from slowscale.workbench.draft import Folder


def check_places(folder: Folder, plan: Plan) -> Plan:
    """Return a plan, or raise if it would read or write a file that the workbench may not use.

    What it reads must be in the folder, or in what was allowed when the workbench was started. What it writes, and its
    ledger, must be in the folder itself.

    Parameters
    ----------
    folder
        The folder that may be used.
    plan
        The plan, with paths that are resolved.
    """
    location = plan.data.location
    # The data: folders and globs stand for the files in them.
    for source in [location] if isinstance(location, str) else location:
        folder.inside_source(source)
    for _, path in inputs_of(plan):
        folder.inside_source(path)
    for path in _written(plan):
        folder.target(path)
    return plan


def _written(plan: Plan) -> Iterator[str]:
    """Yield the files that a release writes, with those beside them, and the ledger."""
    if plan.ledger is not None:
        yield plan.ledger.path
    if plan.output.folder is not None:
        yield plan.output.folder
    for path in plan.written_files:
        yield path
        if os.path.splitext(path)[1].lower() == ".csv":  # the facts
            yield f"{path}.json"
    yield from plan.signatures
