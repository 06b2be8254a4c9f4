"""Commands to start with: `init` writes a plan, `schema` prints the form of plans, `demo` publishes simulated data."""

import glob
import json
import os
from pathlib import Path
from typing import Annotated

import typer

from slowscale.cli.shared import Overwrite, echo, writable_path


def init(
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA", help="The data to write a plan for: a file, or the address of a database table."
        ),
    ] = None,
    path: Annotated[
        Path | None, typer.Argument(metavar="PLAN", help="The plan file to write; plan.toml by default.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Write a plan file to edit: for DATA, with its columns and proposed types; without DATA, an example."""
    from slowscale.plan import EXAMPLE, plan_for

    if data is not None and path is None and data.endswith(".toml"):  # `slowscale init PLAN`
        path, data = Path(data), None
    path = writable_path(path or Path("plan.toml"), ".toml", overwrite)
    if data is None:
        _write_text(path, EXAMPLE, overwrite)
    else:
        _check_not_data(path, data)
        text, notes = plan_for(data, path)
        _write_text(path, text, overwrite)
        for note in notes:
            echo(note)
    echo(f"wrote {path}: edit it, then `slowscale check {path}`")


def _check_not_data(plan: Path, data: str) -> None:
    """Raise if the plan would be written over the data that it is for."""
    from slowscale.core.errors import ParameterError

    place = data.partition("://")[2].rpartition("#")[0] if "://" in data else data
    if any(os.path.realpath(file) == os.path.realpath(plan) for file in [place, *glob.glob(place, recursive=True)]):
        raise ParameterError(plan, "is the data itself: choose another name for the plan")


def _write_text(path: Path, text: str, overwrite: bool) -> None:
    from slowscale.core.files import write_files

    write_files({path: lambda place: place.write_text(text, encoding="utf-8")}, overwrite=overwrite)


def schema() -> None:
    """Print the JSON schema of plan files, for editors."""
    from slowscale.plan import Plan

    echo(json.dumps(Plan.model_json_schema(), indent=2))


def demo(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder for the data, the plan and the results.")
    ] = Path("demo"),
    overwrite: Overwrite = False,
) -> None:
    """Simulate establishments, and publish their employment and payroll by county and industry."""
    from importlib.resources import files

    import pyarrow.parquet

    from slowscale.cli.printing import show_release
    from slowscale.core.errors import ParameterError
    from slowscale.datasets import establishments
    from slowscale.plan import read_plan, run_plan

    if folder.exists() and not folder.is_dir():
        raise ParameterError(folder, "is a file: choose another folder")
    data, plan = folder / "establishments.parquet", folder / "plan.toml"
    for file in (data, plan):
        if file.exists() and not overwrite:
            raise ParameterError(f"{file} exists: choose another folder, or --overwrite")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        table = establishments()
        pyarrow.parquet.write_table(table, data)
        plan.write_bytes(files("slowscale.cli").joinpath("demo.toml").read_bytes())
    except OSError as error:
        reason = error.strerror or error
        raise ParameterError(f"cannot write to the folder {folder} ({reason}): choose another folder") from None
    echo(f"simulated {len(table):,} establishments in {data}; the plan is {plan}\n")
    show_release(*run_plan(read_plan(plan), overwrite))
    echo(f"\nTo go through the same steps in a browser: slowscale serve {plan}")
