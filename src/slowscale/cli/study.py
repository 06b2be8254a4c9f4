"""The command `study`: the experiments of the paper, on simulated data or on the user's own."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from slowscale.cli.shared import Overwrite, echo


def study(
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder for the page, the figures and the data.")] = Path(
        "study"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="Release every table 100 times instead of 1,000.")] = False,
    repetitions: Annotated[
        int | None, typer.Option(min=1, help="How often every table is released; 1,000 by default.")
    ] = None,
    loss: Annotated[
        list[float] | None,
        typer.Option(help="The loss of the largest record at which mechanisms are compared: 10 and 50 by default."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Study a table of your own, with --value and --by.")
    ] = None,
    value: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="With --data: a column to sum.")] = None,
    by: Annotated[
        str | None, typer.Option(metavar="COLUMNS", help="With --data: the columns that form the cells, with commas.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Carry out the paper's experiments, and compare what it says with what is measured.

    Without --data the data are simulated, like those of the paper. With --data all results are CONFIDENTIAL. A study
    that was interrupted continues where it stopped.
    """
    from slowscale.core.errors import ParameterError
    from slowscale.study.attributes import given_attributes
    from slowscale.study.run import LOSSES, QUICK_REPETITIONS, REPETITIONS, run_study

    if quick and repetitions is not None:
        raise ParameterError("give --quick or --repetitions, not both")
    if data is None and (value or by):
        raise ParameterError("--value and --by need --data")
    if data is not None and not (value and by):
        raise ParameterError("--data", "needs --value and --by: the columns to sum, and those that form the cells")
    attributes = None
    if data is not None:
        columns = list(dict.fromkeys(value or []))
        attributes = given_attributes(data, columns, [name.strip() for name in (by or "").split(",")])
        echo(f"warning: the results are CONFIDENTIAL: they show exact facts about the records of {data}", err=True)
    releases = repetitions or (QUICK_REPETITIONS if quick else REPETITIONS)
    try:
        found = run_study(
            out, attributes, releases, loss or LOSSES, None if data is None else str(data), overwrite=overwrite
        )
    except ParameterError as error:
        raise ParameterError(f"--{error.path[0]}: {error}" if error.path else str(error)) from None
    except KeyboardInterrupt:
        echo("\nRun the same command again, and the study continues where it stopped.", err=True)
        raise
    counts = Counter(finding.verdict for _, finding in found.claims)
    verdicts = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
    echo(f"{len(found.claims)} claims of the paper: {verdicts}")
    echo(f"wrote {found.page}, and the folders {out / 'figures'} and {out / 'data'}")
