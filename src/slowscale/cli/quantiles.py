"""The command `quantiles`: private quantiles of the sizes of the records."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slowscale.cli.shared import AsJson, as_option_error, check_terminal, confirm, echo, options_of, print_json

if TYPE_CHECKING:
    from slowscale.accounting.largest import Value
    from slowscale.release.quantiles import ReleasedQuantiles
    from slowscale.release.request import Quantiles

NO_LEDGER = (
    "there is no ledger: nothing records what these quantiles cost, and no cap limits them or what is chosen by them"
)


def quantiles(
    source: Annotated[
        str,
        typer.Argument(
            metavar="PLAN|DATA", help="A plan file, or the data: a file, or the address of a database table."
        ),
    ],
    column: Annotated[str, typer.Option(help="The column whose sizes are wanted.")],
    loss: Annotated[float, typer.Option(help="The PRzCDP loss of every record by all the quantiles together.")],
    at: Annotated[str, typer.Option(help="The quantiles: the share of smaller records for each.")] = "0.1,0.5,0.9",
    grid: Annotated[
        str | None,
        typer.Option(
            metavar="LOW:HIGH:PER_DECADE",
            help="The public sizes to choose from: 1:1e9:20 for 20 per factor of ten, or a list such as 1,10,100. By "
            "default 1:1e12:20. State public knowledge only.",
        ),
    ] = None,
    level: Annotated[float, typer.Option(help="The probability of the stated error of rank.")] = 0.95,
    where: Annotated[
        str | None,
        typer.Option(metavar="SQL", help='A condition that records must meet, such as "emp > 0". A plan may have one.'),
    ] = None,
    nulls: Annotated[
        str,
        typer.Option(metavar="error|zero", help="Missing values: refuse them (error), or take them as size 0 (zero)."),
    ] = "error",
    csv: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=VALUE",
            help='For DATA: the format of CSV files, such as "delimiter=;", "encoding=latin-1" or "decimal=,". Repeat '
            "the option for each.",
        ),
    ] = [],  # noqa: B006
    ledger: Annotated[
        str | None, typer.Option(metavar="LEDGER", help="For DATA: the ledger to charge. A plan names its own.")
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="For DATA: the name of the data set, which a new ledger keeps. By default that of the file or table, "
            "as in the plans that `init` and `advise` write.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Release without asking for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Release private quantiles of record sizes, to choose mechanisms by; every record loses the same, --loss."""
    from slowscale.accounting import Ledger
    from slowscale.accounting.largest import value_of
    from slowscale.core.errors import ParameterError
    from slowscale.core.numbers import format_number
    from slowscale.plan import read_plan, run_quantiles

    plan = read_plan(source) if source.endswith(".toml") else None
    for option, given, place in (
        ("--ledger", ledger, "[ledger]"),
        ("--dataset", dataset, "[data]"),
        ("--csv", csv, "[data]"),
    ):
        if plan is not None and given:
            problem = f"must not be given with a plan, which has it in {place}"
            raise ParameterError(option, problem, code="conflict", remedy="edit the plan")
    if plan is not None and plan.data.where is not None and where is not None:
        raise ParameterError(
            "--where",
            "must not be given with a plan that has a filter in [data]",
            code="conflict",
            remedy="edit the plan, or leave out --where",
        )
    query = _query(column, at, loss, grid, level, where=where, nulls=nulls)
    charged = ledger if plan is None else None if plan.ledger is None else plan.ledger.path
    if not yes:
        check_terminal("release")
        _show_query(query, level, charged)
        confirm("Release? What is spent cannot be taken back.", declined="not released, nothing spent")
    if charged is None:
        place = "--ledger" if plan is None else "[ledger] in the plan"
        echo(f"warning: {NO_LEDGER}; name one with {place}", err=True)
    with _options_of_query(where):
        if plan is not None:
            found = run_quantiles(plan, query, level)
        else:
            found = _from_data(source, ledger, dataset, query, level, _csv_form(csv))
    if charged is not None:
        echo(f"charged to {charged}: {format_number(query.loss)} for every record", err=True)
    if as_json:
        print_json(found.to_dict())
    else:
        stated = {} if plan is None else plan.data.largest
        largest = stated if charged is None else Ledger(charged).largest
        echo(f"{found!r}\n{_for_advice(found, value_of(largest, column))}")


@contextmanager
def _options_of_query(where: str | None) -> Iterator[None]:
    """Raise errors about the query in a request as errors about options; a condition may be that of a plan."""
    from slowscale.core.errors import ParameterError, ParameterTypeError

    try:
        yield
    except (ParameterError, ParameterTypeError) as error:
        match error.path:
            case ("tables", "quantiles", "quantiles" | "where" as field, *rest) if field == "quantiles" or where:
                error.path = (field, *rest)
                raise as_option_error(error, quantiles, quantiles="--column") from None
        raise


def _from_data(
    source: str, ledger: str | None, dataset: str | None, query: "Quantiles", level: float, csv: dict[str, str] | None
) -> "ReleasedQuantiles":
    """Release quantiles of data that has no plan yet."""
    from slowscale.core.errors import LedgerError
    from slowscale.plan import proposed_name
    from slowscale.release.request import Request
    from slowscale.release.session import Session

    name = proposed_name(source) if dataset is None else dataset
    # Only declared types can have a decimal comma.
    types = {query.column: "float64"} if csv is not None and csv.get("decimal") == "," else None
    try:
        with options_of(quantiles):
            session = Session(source, ledger, dataset=name, types=types, csv=csv)
    except LedgerError as error:
        if dataset is None:
            hint = f"the name {name!r} is that of the data, and --dataset gives another name"
            error.remedy = hint if error.remedy is None else f"{error.remedy}; {hint}"
        raise
    found: ReleasedQuantiles = session.release(Request({"quantiles": query}, level=level))["quantiles"]
    return found


def _csv_form(texts: Sequence[str]) -> dict[str, str] | None:
    """Return the format of CSV files, from texts such as delimiter=;."""
    from slowscale.core.errors import ParameterError

    pairs = [text.partition("=") for text in texts]
    if wrong := [name for name, equals, _ in pairs if not name or not equals or name == "header"]:
        raise ParameterError("--csv", allowed='a setting such as "delimiter=;" or "decimal=,"', given=wrong[0])
    return {name: value for name, _, value in pairs} or None


def _for_advice(found: "ReleasedQuantiles", largest: "Value | None") -> str:
    """Return a command `slowscale advise` that takes the sizes and the largest value, or why there is none."""
    from slowscale.accounting.largest import proven_to
    from slowscale.advice.advising import MOST_NAMED_RECORDS
    from slowscale.core.numbers import format_number

    if len(found) > MOST_NAMED_RECORDS:
        return f"slowscale advise takes at most {MOST_NAMED_RECORDS} of these sizes, with --records."
    records = ",".join(f"{name}={size}" for name, size in found.items())
    interval = list(found.values())[len(found) // 2]
    # A private size may be above the largest value, and advice refuses it there.
    bound = "" if largest is None or max(found.values()) > proven_to(largest) else f" --largest {largest}"
    return (
        f"To be advised by these sizes, with 95 % of small sums within ±{format_number(float(interval))} (choose your "
        f'own): slowscale advise --records "{records}" --interval {interval}{bound}'
    )


def _query(column: str, at: str, loss: float, grid: str | None, level: float, **options: Any) -> "Quantiles":
    """Return the query that the options describe, or raise an error that names the options."""
    from slowscale.core.errors import ParameterError, located
    from slowscale.release.quantiles import Ranks
    from slowscale.release.request import Quantiles, size_grid

    shares = _numbers("--at", at, ",", "0.1,0.5,0.9")
    sizes = None
    if grid is not None and ":" not in grid:
        sizes = tuple(_numbers("--grid", grid, ",", "1,10,100"))
    elif grid is not None:
        ends = _numbers("--grid", grid, ":", "1:1e9 or 1:1e9:20")
        if len(ends) not in (2, 3):
            raise ParameterError("--grid", allowed="LOW:HIGH or LOW:HIGH:PER_DECADE, such as 1:1e9:20", given=grid)
    with options_of(quantiles, quantiles="--column"):
        if grid is not None and sizes is None:
            with located("grid"):
                sizes = size_grid(*ends)  # type: ignore[arg-type] # it checks that the third is a whole number
        query = Quantiles(column, shares, loss=loss, grid=sizes, **options)
        with located("level"):
            Ranks(query).rank_error(level)  # raises if the level is wrong
    return query


def _numbers(option: str, text: str, separator: str, example: str) -> list[float]:
    from slowscale.core.errors import ParameterError

    try:
        return [float(part) for part in text.split(separator)]
    except ValueError:
        raise ParameterError(option, allowed=f"numbers such as {example}", given=text) from None


def _show_query(query: "Quantiles", level: float, ledger: str | None) -> None:
    """Print the quantiles that would be released, their accuracy and their cost."""
    from slowscale.core.numbers import format_number, percent
    from slowscale.release.quantiles import Ranks, ranks_in_words
    from slowscale.release.request import quantile_name

    names, grid = ", ".join(map(quantile_name, query.shares)), query.sizes
    ends = " to ".join(format_number(float(size)) for size in (grid[0], grid[-1]))
    echo(f"{names} of the sizes of {query.column}, each one of {len(grid):,} public sizes from {ends}.")
    echo(
        f"With probability {percent(level)}, every size misses its rank by at most "
        f"{ranks_in_words(Ranks(query).rank_error(level))} more than the grid makes necessary."
    )
    echo(f"Every record loses {format_number(query.loss)} (PRzCDP) by all of them together.")
    echo(f"To be charged to: {ledger}." if ledger is not None else "There is no ledger to charge.")
