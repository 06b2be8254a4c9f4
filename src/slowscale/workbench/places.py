"""The files that a plan names, checked before any of them is opened: a plan may be written by hand, or by others."""

from slowscale.plan import Plan
from slowscale.plan.outputs import inputs_of, outputs_of
from slowscale.workbench.draft import Folder


def check_places(folder: Folder, plan: Plan) -> Plan:
    """Return a plan, or raise if it would read or write a file that the workbench may not use.

    Files that it reads must be in the folder or among the allowed ones. Files that it writes, and its ledger, must be
    in the folder itself.

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
    if plan.ledger is not None:
        folder.target(plan.ledger.path)
    if plan.output is not None:
        folder.target(plan.output.folder)
        for _, file in outputs_of(plan):
            folder.target(str(file))
    return plan
