"""The command `advise`: which mechanism to choose, from record sizes and a wanted accuracy or losses."""

import re
from pathlib import Path
from typing import Annotated

import typer

from slowscale.cli.shared import AsJson, Overwrite, echo, parse_assignment, print_json, writable_path

# The arguments of `ss.advise` that are options of the command.
OPTIONS = "records|interval|std|relative|losses|level|at|rare|unit"


def advise(
    records: Annotated[
        str,
        typer.Option(
            help='Named record sizes, such as "median=268689,largest=39e9". State public knowledge only, never a size '
            "looked up in the records."
        ),
    ],
    interval: Annotated[
        float | None,
        typer.Option(help="The wanted half-width of the interval that contains the result with probability --level."),
    ] = None,
    std: Annotated[float | None, typer.Option(help="The wanted standard deviation, in place of an interval.")] = None,
    relative: Annotated[
        float | None, typer.Option(help="The wanted half-width as a share of --at, in place of an interval.")
    ] = None,
    losses: Annotated[
        str | None,
        typer.Option(
            help='Wanted losses by the tight policy, such as "median=0.25,largest=50", in place of an accuracy: find '
            "the least error."
        ),
    ] = None,
    level: Annotated[float, typer.Option(help="The level of the interval.")] = 0.95,
    at: Annotated[
        float | None, typer.Option(help="A typical sum. Roots and logs are tried only if it is given.")
    ] = None,
    rare: Annotated[
        float | None,
        typer.Option(help="The largest ratio of the 99.9 % to the 95 % error of the results. By default 20."),
    ] = None,
    unit: Annotated[str, typer.Option(help="The unit that results are rounded to, for the plan.")] = "1",
    chart: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the losses by record size: a .png, .svg or .html file.")
    ] = None,
    plan: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a plan (.toml) with the recommended mechanism.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="With --plan: the records, a file or the address of a database table.")
    ] = None,
    column: Annotated[str, typer.Option(help="With --plan: the column to sum.")] = "amount",
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Recommend a mechanism with all its parameters, from record sizes and a wanted accuracy, or wanted losses."""
    import slowscale as ss
    from slowscale.advice.advising import RARE_RATIO
    from slowscale.core.errors import ParameterError, SlowscaleError

    sizes = _parse_named(records, "--records", "median=268689,largest=39e9")
    wanted = None if losses is None else _parse_named(losses, "--losses", "median=0.25,largest=50")
    for path, ending in ((chart, ""), (plan, ".toml")):
        if path is not None:
            writable_path(path, ending, overwrite)
    try:
        advice = ss.advise(
            sizes,
            interval=interval,
            std=std,
            relative=relative,
            losses=wanted,
            level=level,
            at=at,
            rare=RARE_RATIO if rare is None else rare,
            unit=unit,
        )
    except SlowscaleError as error:
        raise ParameterError(_in_options(str(error))) from None
    if chart is not None:
        echo(f"wrote {advice.chart().save(chart, overwrite)}", err=True)
    if plan is not None:
        written = advice.plan(plan, data, column, overwrite)
        echo(f"wrote {written}: edit it, then `slowscale check {written}`", err=True)
    if as_json:
        print_json(advice.to_dict())
        return
    echo(f"{advice}\n\nTight losses of the recommended mechanism, on a logarithmic scale:\n{advice.bars()}")


def _parse_named(text: str, option: str, example: str) -> dict[str, float]:
    """Return the numbers by name in text such as median=12,largest=4e10."""
    from slowscale.core.errors import ParameterError

    pairs = [parse_assignment(part.strip(), option, example) for part in text.split(",")]
    named = dict(pairs)
    if len(named) < len(pairs):
        raise ParameterError(option, f"must have each name once, such as {example}", given=text)
    return named


def _in_options(message: str) -> str:
    """Return an error of `ss.advise` with the names of the command's options."""
    message = re.sub(rf"\b({OPTIONS})=…", r"--\1", message)
    message = re.sub(rf"^({OPTIONS})\b", r"--\1", message)
    return message.replace('{"median": 12, "largest": 4e10}', "median=12,largest=4e10")
