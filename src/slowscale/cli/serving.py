"""The command `serve`: the workbench in a browser."""

from pathlib import Path
from typing import Annotated

import typer

from slowscale.cli.shared import echo


def serve(
    plan: Annotated[
        Path, typer.Argument(metavar="PLAN", help="The plan file to work on; made if it does not exist.")
    ] = Path("plan.toml"),
    allow: Annotated[
        list[Path] | None,
        typer.Option(metavar="PATH", help="A further file or folder that may be read, outside the folder of the plan."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes any free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the browser.")] = True,
) -> None:
    """Open the workbench: the whole path from data to a published table, in a browser on this machine."""
    from slowscale.core.errors import EngineError, ParameterError, install_hint

    try:
        from slowscale.workbench.server import run
    except ModuleNotFoundError as error:
        raise EngineError(f"the workbench needs {error.name}: {install_hint('workbench')}") from None
    if plan.suffix.lower() != ".toml":
        raise ParameterError("PLAN", "must end in .toml", given=plan)
    if not plan.parent.is_dir():
        raise ParameterError("there", f"is no folder {plan.parent}", remedy="make it first")
    run(plan, tuple(allow or ()), port, browser, echo)
