"""The command `demo`: a release of simulated establishments with all that a real one has, in a folder to look through.

The files in `datasets/demo` are its plan, the wishes that the noise was advised for, and the names of industries.
"""

import os
import shlex
import shutil
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slowscale.cli.shared import Overwrite, echo

if TYPE_CHECKING:
    from slowscale.plan import Plan

DATA, PUBLIC_CELLS, LEDGER = "establishments.parquet", "cells.csv", "establishments.ledger"
DATASET, RESULTS = "simulated-establishments", "published"  # as in the plan
SHIPPED = ("plan.toml", "columns.toml", "industries.csv", "sectors.csv")


def demo(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder for the data, the plan and the results.")
    ] = Path("demo"),
    overwrite: Overwrite = False,
) -> None:
    """Simulate establishments, and publish their employees and payroll by county and industry.

    With --overwrite, the demonstration starts anew, with a new ledger.
    """
    from slowscale.accounting import Ledger
    from slowscale.core.errors import ParameterError
    from slowscale.plan import read_plan, run_plan

    if folder.exists() and not folder.is_dir():
        raise ParameterError(folder, "is a file", code="exists", remedy="choose another folder")
    for name in (*SHIPPED, DATA, PUBLIC_CELLS, LEDGER, RESULTS):
        if not overwrite and os.path.lexists(folder / name):
            raise ParameterError(folder / name, "exists", code="exists", remedy="choose another folder, or --overwrite")
        if name != RESULTS and (folder / name).is_dir():
            raise ParameterError(folder / name, "is a folder", code="exists", remedy="choose another folder")
    if os.path.lexists(folder / LEDGER) and Ledger(folder / LEDGER).dataset != DATASET:
        raise ParameterError(
            folder / LEDGER, "is not of the demonstration", code="exists", remedy="choose another folder"
        )
    try:
        records = _write_inputs(folder)
    except OSError as error:
        problem = f"cannot be written to ({error.strerror or error})"
        raise ParameterError(folder, problem, code="unwritable", remedy="choose another folder") from None
    plan = read_plan(folder / "plan.toml")
    release, _ = run_plan(plan, overwrite)
    cells, derived = release["cells"].table.num_rows, len(release.tables) - 1
    echo(f"Published: {cells:,} cells of {records:,} simulated establishments, and {derived} tables of their sums.")
    _show_promise(plan)
    echo(f"Next: open {folder / 'published' / 'report.html'}")
    plan_file = shlex.quote(str(folder / "plan.toml"))
    if find_spec("uvicorn") is not None:
        echo(f"      read {folder / 'plan.toml'}, or change it in a browser:")
        echo(f"      {_command()} serve {plan_file}")
    else:
        echo(f"      read {folder / 'plan.toml'} (the workbench would show it in a browser: docs/install.md)")
        echo(f"      {_command()} check {plan_file}")


def _command() -> str:
    """Return how the command can be run from the folder that the user is in."""
    from slowscale.core.files import relative_path

    found = Path(sys.argv[0])
    if shutil.which("slowscale") or found.stem != "slowscale":
        return "slowscale"
    return shlex.quote(relative_path(found, Path.cwd()))


def _write_inputs(folder: Path) -> int:
    """Write everything that the demonstration starts from, and return the number of records."""
    from importlib.resources import files

    import pyarrow.csv
    import pyarrow.parquet

    from slowscale.accounting.storage import JOURNALS
    from slowscale.core.files import Writers, write_files
    from slowscale.datasets import establishments

    folder.mkdir(parents=True, exist_ok=True)
    table = establishments()
    keys = ["county", "naics3"]
    cells = table.group_by(keys).aggregate([]).sort_by([(key, "ascending") for key in keys])
    inputs: Writers = {
        folder / DATA: lambda path: pyarrow.parquet.write_table(table, path),
        folder / PUBLIC_CELLS: lambda path: pyarrow.csv.write_csv(cells, path),
    }
    for name in SHIPPED:
        content = files("slowscale.datasets").joinpath("demo", name).read_bytes()
        inputs[folder / name] = partial(Path.write_bytes, data=content)
    write_files(inputs, overwrite=True)
    for ending in ("", *JOURNALS):  # a killed demonstration leaves a journal
        Path(f"{folder / LEDGER}{ending}").unlink(missing_ok=True)
    return len(table)


def _show_promise(plan: "Plan") -> None:
    """Print how well a typical and the largest establishment are protected, and how accurate small cells are."""
    from slowscale.core.numbers import error_figure
    from slowscale.release.columns import explain_columns
    from slowscale.release.describing import cell_error

    columns = plan.columns["cells"]
    found = {size.name: one.texts for size in plan.sizes if (one := explain_columns(columns, size)) is not None}
    guessed, known = found["median establishment"]["guessed"], found["largest establishment"]["within"]
    echo(f"Protected: a guess whether the median establishment is there is right at most {guessed} of the time")
    echo(f"           (a coin: 50 %); the largest payroll can be known to {known}.")
    payroll = next(column for column in columns if column.name == "payann")
    assert payroll.mechanism is not None
    error = cell_error(payroll.mechanism, payroll.unit, on_grid=True)
    assert error is not None
    echo(
        f"Accurate: 95 % of small cells are within {error.text(error.usual)} thousand USD, and all but 1 in 1,000 "
        f"within {error_figure(error.rare)}."
    )
