"""The command `slowscale`: thin; it parses, calls and prints.

Exit codes: 0 done; 1 a mistake in slowscale itself; 2 a wrong command or plan; 3 data or an engine that cannot be used;
4 refused by a cap; 5 a ledger that cannot be used or does not verify; 6 not done because nobody agreed; 130
interrupted.
"""

import json
import math
import re
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slowscale.figures import figure

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from slowscale.accounting import Bound, Loss
    from slowscale.columns import ColumnPolicy
    from slowscale.plan import Plan
    from slowscale.sizes import RecordSize

# Everything heavy is imported where it is used: `slowscale --help` answers at once.
app = typer.Typer(
    help="Publish sums of skewed data under per-record differential privacy.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
ledger_app = typer.Typer(help="Look at a ledger, or raise a cap.", no_args_is_help=True)
app.add_typer(ledger_app, name="ledger")

PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="The plan file (TOML); `slowscale init` writes one.")]
LedgerFile = Annotated[Path, typer.Argument(metavar="LEDGER", help="The ledger file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
RecordSizes = Annotated[
    str | None,
    typer.Option(
        "--sizes", help='Sizes of records: 100,1e6,4e10 or "median firm=12,largest firm=4e10". Public knowledge only.'
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace files that exist.")]
CODES = {"CapError": 4, "LedgerError": 5, "DataError": 3, "EngineError": 3}
FEW = 12  # rows shown of a table
DELTA = 1e-6  # of the (ε, δ) that losses are converted to
PASSWORD = (
    "The plan has the address without its password. Set the environment variable PGPASSWORD, or add a line to the file "
    "~/.pgpass, before you check or release it."
)
# What the library's errors call by Python's names, and where it is in a plan.
PLAN_WORDS = (
    (r"\bcsv=\{([^}]*)\}", r"csv = { \1 } in [data]"),
    (r'"(delimiter|quote|encoding|dates|decimal|header)": ', r"\1 = "),
    (r'\b(nulls|negatives)="(\w+)"', r'\1 = "\2" in [options]'),
    (r"\b(types|csv|where|derive|protect)=(?!\w)", r"\1 in [data]"),
    (r"ss\.Ledger\(path, caps\)", "in [ledger.caps] of the plan"),
    (r"\bdataset='([^']*)'", r'name = "\1" in [data]'),
)


def _print_version(asked: bool) -> None:
    if asked:
        from slowscale import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,  # read by main, anywhere
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


@app.command()
def init(
    data: Annotated[
        str | None, typer.Argument(metavar="[DATA]", help="A file, or the address of a database table, to start from.")
    ] = None,
    path: Annotated[
        Path | None, typer.Argument(metavar="[PLAN]", help="Where to write; plan.toml if not given.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Write a plan to be edited: for DATA with its columns and proposed types, or else an example with comments."""
    from slowscale.plan import EXAMPLE

    if data is not None and path is None and data.endswith(".toml"):
        path, data = Path(data), None
    path = _target(path or Path("plan.toml"), ".toml", overwrite)
    if data is None:
        _write_text(path, EXAMPLE, overwrite)
    else:
        _check_not_data(path, data)
        text, notes = _start(data, path)
        _write_text(path, text, overwrite)
        for note in notes:
            typer.echo(note)
    typer.echo(f"wrote {path}: edit it, then `slowscale check {path}`")


def _start(data: str, plan: Path) -> tuple[str, list[str]]:
    """Return a plan that starts from data, and what to say about it on the terminal."""
    import os

    from slowscale.errors import ConfidentialWarning
    from slowscale.plan import plan_address, starting_plan
    from slowscale.tables.guessing import guess_types
    from slowscale.tables.sources import open_table

    if "://" in data:
        address, has_password = plan_address(data, plan.parent)
        columns = {name: str(dtype) for name, dtype in open_table(data).schema().items()}
        return starting_plan(address, columns, has_password=has_password), [PASSWORD] * has_password
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfidentialWarning)  # init says it in its own words
        guess = guess_types(data)
    schema = open_table(data, guess, guess.csv).schema()
    columns = {name: guess.get(name, str(dtype)) for name, dtype in schema.items()}
    notes = ["The proposed types come from the records, which are confidential. Read them before you use them."]
    notes += [f"  {name}: {note}" for name, note in guess.notes.items()]
    return starting_plan(os.path.relpath(data, plan.parent), columns, guess), notes


def _target(path: Path, ending: str, overwrite: bool) -> Path:
    """Return a path that a file can be written to, or raise in the command's words."""
    import os

    from slowscale.errors import ParameterError
    from slowscale.files import free_target

    if os.path.lexists(path) and not overwrite:
        raise ParameterError(f"{path} exists: choose another name, or --overwrite")
    try:
        return free_target(path, ending, True)
    except ParameterError as error:
        raise ParameterError(f"{path} cannot be written: {str(error).removeprefix('path: ')}") from None


def _check_not_data(plan: Path, data: str) -> None:
    """Raise where a plan would be written over the data it is for."""
    import glob
    import os

    from slowscale.errors import ParameterError

    place = data.partition("://")[2].rpartition("#")[0] if "://" in data else data
    if any(os.path.realpath(file) == os.path.realpath(plan) for file in [place, *glob.glob(place, recursive=True)]):
        raise ParameterError(f"{plan} is the data itself: choose another name for the plan")


def _write_text(path: Path, text: str, overwrite: bool) -> None:
    from slowscale.files import write_files

    write_files({path: lambda place: place.write_text(text, encoding="utf-8")}, overwrite=overwrite)


@app.command()
def schema() -> None:
    """Print the JSON schema of plan files, for editors."""
    from slowscale.plan import Plan

    typer.echo(json.dumps(Plan.model_json_schema(), indent=2))


@app.command()
def check(plan: PlanFile, sizes: RecordSizes = None, as_json: AsJson = False) -> None:
    """Tell all that can be known before the records are read: columns, policies, error, the ledger's room."""
    from slowscale.accounting.record import folded
    from slowscale.errors import CapError
    from slowscale.plan import check_charge, check_columns, check_outputs, existing_outputs, open_account, read_plan

    read = read_plan(plan)
    stated = read.sizes if sizes is None else read.check_sizes(sizes)
    account = open_account(read)
    check_outputs(read, overwrite=True)
    refusal, known, tried = None, True, True
    try:
        known = check_charge(read, account)
        tried = check_columns(read, account)
    except CapError as error:
        refusal = error
    if as_json:
        _print_json(
            {
                "mechanisms": {name: mechanism.to_dict() for name, mechanism in read.mechanisms.items()},
                "policy": read.policy.to_dict(),
                "sizes": _sizes_as_json(read, stated),
                "columns_checked": tried,
                "allowed": refusal is None,
                "refusal": None if refusal is None else str(refusal),
            }
        )
    else:
        _show_plan(read, stated)
        before = f"Before this release:\n{account.spent.describe(stated)}"
        typer.echo(f"\n{before}" if account.charges else "\nNothing was released before.")
        if not known:
            typer.echo("Whether a cap is in the way depends on the keys, which are read when the release is made.")
        elif refusal is None:
            typer.echo("No cap is in the way." if account.caps else "There are no caps.")
        capped = set(map(folded, account.caps))
        free = [name for name in read.mechanisms if not {folded(name), "*"} & capped]
        if account.caps and free:
            typer.echo(f"There is no cap on {', '.join(free)}.")
        if not tried:
            typer.echo("The columns of the data are checked when the release is made: this kind of file has no schema.")
        for file in existing_outputs(read):
            typer.echo(f"{file} exists: the release needs --overwrite.")
    if refusal is not None:
        raise refusal


@app.command()
def release(
    plan: PlanFile,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before spending.")] = False,
    overwrite: Overwrite = False,
    confidential_report: Annotated[
        Path | None, typer.Option(help="Also write the losses of the records, for the curator's eyes only.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make the release that a plan describes: charge the ledger, draw the noise, write the table and the report."""
    from slowscale.plan import check_outputs, check_room, read_plan, run_plan

    read = read_plan(plan)
    check_outputs(read, overwrite, confidential_report)
    check_room(read)
    if not yes:
        if not sys.stdin.isatty():
            typer.echo("error: nobody is there to agree: pass --yes to release without asking", err=True)
            raise typer.Exit(6)
        _show_plan(read, read.sizes)
        if not typer.confirm("\nRelease? What is spent cannot be taken back.", default=False):
            typer.echo("not released, nothing spent")
            raise typer.Exit(6)
    made, files = run_plan(read, overwrite, confidential_report)
    if as_json:
        _print_json({"files": [str(file) for file in files], "facts": made.facts.to_dict()})
        return
    _show_release(made)
    for file in files:
        typer.echo(f"wrote {file}")


@app.command()
def explain(
    source: Annotated[Path, typer.Argument(metavar="RELEASE|PLAN", help="A released .parquet or .csv, or a plan.")],
    value: Annotated[
        list[str], typer.Option(help="A value of the record, such as emp=12; give one for each column.")
    ] = [],  # noqa: B006
    as_json: AsJson = False,
) -> None:
    """Tell what a record with these values loses, in numbers and in plain words."""
    from slowscale.accounting import best_epsilon, certainty
    from slowscale.columns import released_columns
    from slowscale.errors import ParameterError
    from slowscale.figures import figure, share
    from slowscale.plan import read_plan
    from slowscale.release import read_release

    if source.suffix == ".toml":
        plan = read_plan(source)
        policy, columns, protected = plan.policy, plan.columns, plan.data.protect
    else:
        made = read_release(source)
        policy, columns, protected = made.policy, released_columns(made.policy, made.facts), made.facts.protect
    record: dict[str, float] = {}
    needed = f"give one --value for each of {', '.join(policy.columns)}"
    for name, amount in map(_assigned, value):
        if name in record or name not in policy.columns:
            raise ParameterError(f"{needed}, got {name}={amount:g}")
        record[name] = amount
    missing = [name for name in policy.columns if name not in record]
    if missing:
        raise ParameterError(f"{needed}, such as --value {missing[0]}=12; {', '.join(missing)} is missing")
    loss = policy(record)
    if not math.isfinite(loss):
        raise ParameterError("a record of these values loses more than a number can tell")
    parts = {column.name: column.loss(abs(record.get(column.name, 0.0))) for column in columns}
    counted = [column.name for column in columns if column.single]
    together = list(parts.values())
    epsilon, sure = best_epsilon(together, DELTA), certainty(together)
    if as_json:
        _print_json(
            {
                "record": record,
                "notion": policy.notion,
                "loss": loss,
                "columns": {name: part.rho for name, part in parts.items() if name not in counted},
                "counts": sum(parts[name].rho for name in counted),
                "pure": {name: part.pure for name, part in parts.items()},
                **_bounds_as_json(epsilon, sure),
            }
        )
        return
    if protected is not None:
        typer.echo(f"Here a record stands for all that one {protected} has in one cell; its cells add up.")
    typer.echo(f"A record with {', '.join(f'{name} = {amount:g}' for name, amount in record.items())}:")
    for name, part in parts.items():
        pure = "" if part.pure is None else f" (PRDP: {figure(part.pure)})"
        typer.echo(f"  loses {figure(part.rho)} {'by being counted' if name in counted else f'through {name}'}{pure}")
    within = "ε" if epsilon.exception == 0 else "(ε, 10⁻⁶)"
    typer.echo(
        f"  {figure(loss)} in all ({policy.notion}). By {epsilon.guarantee} this is {within}-differential privacy with "
        f"ε = {figure(epsilon.value)}."
    )
    where = "" if protected is None else f", if the {protected} is in one cell only"
    typer.echo(
        "In words: the highest certainty that someone who thinks it as likely as not that this record is there can "
        f"reach by this release{where}, is {share(sure.value)}{_exceptions(sure)}."
    )


def _exceptions(bound: "Bound") -> str:
    """Return when a certainty may be exceeded, and by which guarantee that is known."""
    if bound.exception == 0:
        return ", without exception (the pure guarantee, PRDP)"
    return f", except in {bound.exception * 100:g} % of cases ({bound.guarantee})"


def _bounds_as_json(epsilon: "Bound", sure: "Bound") -> dict[str, Any]:
    return {
        "epsilon": epsilon.value if math.isfinite(epsilon.value) else None,
        "delta": epsilon.exception,
        "epsilon_guarantee": epsilon.guarantee,
        "posterior": sure.value,
        "posterior_exception": sure.exception,
        "posterior_guarantee": sure.guarantee,
    }


@app.command()
def compare(
    std: Annotated[float, typer.Option(help="The standard deviation that all mechanisms are given.")],
    at: Annotated[float, typer.Option(help="The sum at which root and log have it; a typical record, say.")],
    sizes: RecordSizes = None,
    chart: Annotated[Path | None, typer.Option(help="Draw the policies: a .png, .svg or .html file.")] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Set mechanisms of the same error side by side: what records of each size lose."""
    import slowscale as ss
    from slowscale.figures import figure
    from slowscale.mechanisms import same_error

    candidates = same_error(std, at)
    named = _default_sizes(std, at) if sizes is None else _named_sizes(sizes)
    influences = [size for _, size in named]
    if chart is not None:
        _target(chart, "", overwrite)
    compared = ss.compare(
        candidates,
        influences=dict(named) if any(name for name, _ in named) else influences,
        queries=[at, 100 * at, 10_000 * at],
    )
    if chart is not None:
        from slowscale.report.comparison import write_chart

        written = write_chart(candidates, chart, compared.searched, influences, overwrite)
        typer.echo(f"wrote {written}", err=True)
    if as_json:
        rows = {
            name: {
                "mechanism": m.to_dict(),
                "losses": {label or size: loss for (label, size), loss in zip(named, losses, strict=True)},
            }
            for (name, m), losses in zip(candidates.items(), compared.losses.tolist(), strict=True)
        }
        _print_json(rows)
        return
    typer.echo(f"Every mechanism has a standard deviation of {figure(std)} for a sum of {figure(at)}. PRzCDP losses:\n")
    typer.echo(str(compared))


def _default_sizes(std: float, at: float) -> list[tuple[str, float]]:
    """Return powers of ten from below the error and the typical sum to far beyond, without names."""
    exponents = [math.log10(size) for size in (std, at) if size > 0]
    low, high = math.floor(min(exponents)) - 1, math.ceil(max(exponents)) + 3
    low, high = max(low, -300), min(high, 300)
    step = math.ceil((high - low) / 5)
    return [("", 10.0**exponent) for exponent in range(high, low - 1, -step)][::-1]


def _named_sizes(text: str) -> list[tuple[str, float]]:
    """Read record sizes with names, or without; the name is then ""."""
    from slowscale.sizes import read_sizes

    sizes = read_sizes(text)
    return [(size.name if size.named else "", size.everywhere or 0.0) for size in sizes]


@app.command()
def calibrate(
    mechanism: Annotated[str, typer.Argument(help="gaussian, generalized-gaussian, exponential-polylog, root, log, …")],
    std: Annotated[float | None, typer.Option(help="Wanted: this standard deviation.")] = None,
    loss: Annotated[float | None, typer.Option(help="Wanted: this loss for a record of size --at.")] = None,
    at: Annotated[float | None, typer.Option(help="The sum, or the record size, that is meant.")] = None,
    param: Annotated[list[str], typer.Option(help="A fixed parameter, such as p=0.5 or k=4.")] = [],  # noqa: B006
    sizes: RecordSizes = None,
    as_json: AsJson = False,
) -> None:
    """Solve for the parameter that meets a target, and tell what records then lose."""
    from slowscale.accounting import RecordPolicy
    from slowscale.columns import column_policies, shown_sizes
    from slowscale.errors import ParameterError
    from slowscale.plan import MECHANISMS, PARAMETERS
    from slowscale.sizes import read_sizes

    if mechanism not in MECHANISMS:
        raise ParameterError(f"mechanism must be one of {', '.join(MECHANISMS)}, got {mechanism!r}")
    fixed: dict[str, Any] = {}
    for name, number in map(_assigned, param):
        if name not in PARAMETERS or name == "estimator":
            raise ParameterError(f"param must be one of {', '.join(PARAMETERS[:-1])}, got {name!r}")
        fixed[name] = int(number) if number.is_integer() and name == "k" else number
    stated = read_sizes(sizes)
    found = MECHANISMS[mechanism].calibrate(std=std, loss=loss, at=at, **fixed)
    if as_json:
        losses = {size.name: found.policy(at) for size in stated if (at := size.everywhere) is not None}
        described = {"mechanism": found.to_dict(), "policy": found.policy.to_dict()}
        _print_json({**described, **({"losses": losses} if stated else {})})
        return
    columns = column_policies(RecordPolicy(((mechanism, found.policy),)), {mechanism: found}, {}, {mechanism: None})
    shown = shown_sizes(columns, stated)
    if loss is not None and at is not None and not stated:
        shown = tuple(sorted({*shown, *read_sizes([at])}, key=lambda size: size.everywhere or 0.0))
    _show_mechanism(columns[0], shown)


@app.command()
def demo(
    folder: Annotated[Path, typer.Argument(help="Where to put data, plan and results.")] = Path("demo"),
    overwrite: Overwrite = False,
) -> None:
    """Simulate establishments, and publish their employment and payroll by county and industry."""
    import pyarrow.parquet

    from slowscale.errors import ParameterError
    from slowscale.plan import read_plan, run_plan
    from slowscale.study import simulated_establishments
    from slowscale.study.establishments import DEMO

    if folder.exists() and not folder.is_dir():
        raise ParameterError(f"{folder} is a file: choose another folder")
    data, plan = folder / "establishments.parquet", folder / "plan.toml"
    for file in (data, plan):
        if file.exists() and not overwrite:
            raise ParameterError(f"{file} exists: choose another folder, or --overwrite")
    folder.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(simulated_establishments(), data)
    plan.write_text(DEMO, encoding="utf-8")
    typer.echo(f"simulated 323,402 establishments in {data}; the plan is {plan}\n")
    made, files = run_plan(read_plan(plan), overwrite)
    _show_release(made)
    for file in files:
        typer.echo(f"wrote {file}")


@ledger_app.command("show")
def ledger_show(path: LedgerFile, as_json: AsJson = False) -> None:
    """Tell in plain words what records may have lost so far."""
    ledger = _ledger(path)
    if as_json:
        caps = {name: cap.to_dict() for name, cap in ledger.caps.items()}
        _print_json({"dataset": ledger.dataset, "head": ledger.head, "spent": ledger.spent.to_dict(), "caps": caps})
        return
    typer.echo(ledger.describe())


@ledger_app.command("history")
def ledger_history(path: LedgerFile, as_json: AsJson = False) -> None:
    """List all entries: what was asked, when, and what it cost."""
    entries = _ledger(path).history()
    if as_json:
        _print_json([{key: part for key, part in entry.items() if key != "parsed"} for entry in entries])
        return
    for number, entry in enumerate(entries, 1):
        typer.echo(f"{number:>5}  {entry['time']}  {_entry_words(entry)}")


@ledger_app.command("raise-cap")
def ledger_raise_cap(
    path: LedgerFile,
    column: Annotated[str, typer.Argument(metavar="COLUMN", help='The column whose cap is changed; "*" or "count".')],
    mechanism: Annotated[str, typer.Option(help="The new cap is what releases by this mechanism cost: root, log, …")],
    reason: Annotated[str, typer.Option(help="Why, in words: it stays in the history.")],
    param: Annotated[list[str], typer.Option(help="A parameter of the mechanism, such as sigma=2 or k=4.")] = [],  # noqa: B006
    std: Annotated[float | None, typer.Option(help="Solve for this standard deviation.")] = None,
    loss: Annotated[float | None, typer.Option(help="Solve for this loss of a record of size --at.")] = None,
    at: Annotated[float | None, typer.Option(help="The sum, or the record size, that is meant.")] = None,
    times: Annotated[int, typer.Option(help="How many such releases the cap has room for, in all.")] = 1,
    plus: Annotated[float, typer.Option(help="So much more, for records of any size.")] = 0.0,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before the cap is changed.")] = False,
) -> None:
    """Put another cap in place of a column's. The change and its reason stay in the history for good."""
    from slowscale.accounting.caps import describe_change
    from slowscale.accounting.record import folded
    from slowscale.errors import ParameterError
    from slowscale.sizes import default_sizes

    ledger = _ledger(path)
    caps = ledger.caps
    old = next((cap for name, cap in caps.items() if folded(name) == folded(column)), None)
    if old is None:
        raise ParameterError(
            f"{column!r} has no cap of its own; the ledger has caps on {', '.join(caps) or 'nothing'}, and caps can be "
            'added only when a ledger is made. A column without one is under the cap on "*", if there is that'
        )
    if not reason.strip():
        raise ParameterError("--reason must say in words why the cap is changed: it stays in the history")
    new = _cap(
        {"mechanism": mechanism, "std": std, "loss": loss, "at": at, "times": times, "plus": plus}
        | dict(map(_assigned, param))
    )
    typer.echo(f"The cap on {column} now: {old}\nThe new cap:     {' ' * len(column)}{new}")
    sizes = default_sizes([(old, None), (new, None)])
    for name, cap in (("now", old), ("new", new)):
        losses = ", ".join(f"{figure(cap(size.everywhere))} at {size.name}" for size in sizes)
        typer.echo(f"  {name}, by the size of a record: {losses}")
    typer.echo(f"{describe_change(column, old, new)}.")
    if not yes:
        if not sys.stdin.isatty():
            typer.echo("error: nobody is there to agree: pass --yes to change the cap without asking", err=True)
            raise typer.Exit(6)
        if not typer.confirm("\nChange the cap? The change stays in the history for good.", default=False):
            typer.echo("not changed")
            raise typer.Exit(6)
    ledger.raise_cap(column, new, reason)
    typer.echo(f"changed the cap on {column} in {path}")


def _cap(values: dict[str, Any]) -> Any:
    """Return a cap from the fields that it has in a plan, or raise in the command's words."""
    from pydantic import ValidationError

    from slowscale.errors import ParameterError
    from slowscale.plan import PARAMETERS, CapPlan

    try:
        return CapPlan.model_validate({name: value for name, value in values.items() if value is not None}).policy()
    except ValidationError as error:
        mistakes = []
        for mistake in error.errors():
            words = mistake["msg"].removeprefix("Value error, ")
            name = ".".join(map(str, mistake["loc"]))
            if mistake["type"] == "extra_forbidden":
                words = f"there is no such parameter; there are {', '.join(PARAMETERS[:-1])}"
            option = (
                f"--{name}: " if name in ("mechanism", "std", "loss", "at", "times", "plus") else f"--param {name}: "
            )
            mistakes.append(f"{option if name else ''}{words}")
        raise ParameterError("; ".join(mistakes)) from None


@ledger_app.command("verify")
def ledger_verify(
    path: LedgerFile,
    against: Annotated[Path | None, typer.Option(help="A release whose entry must still be there.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check that nobody changed, cut off or reordered the entries."""
    from slowscale.errors import ParameterError
    from slowscale.release import read_release

    head = None
    if against is not None:
        head = read_release(against).facts.ledger
        if not head:
            raise ParameterError(f"{against} was released without a ledger")
    problems = _ledger(path).verify(head)
    if as_json:
        _print_json({"problems": problems})
    else:
        typer.echo("\n".join(problems) if problems else "the ledger is as it was written")
    if problems:
        raise typer.Exit(5)


def _ledger(path: Path) -> Any:
    from slowscale.accounting import Ledger
    from slowscale.errors import LedgerError, ParameterError

    if not path.exists():
        raise LedgerError(f"there is no ledger {path}")
    try:
        return Ledger(path)
    except ParameterError as error:  # a function, which only a Python program can pass
        words = str(error).partition(": pass ")[0]
        raise LedgerError(
            f"ledger {path} cannot be opened by the command: {words}. In Python, pass the function: "
            f'ss.Ledger("{path}", functions={{name: function}}), then call describe(), history() or verify()'
        ) from None


def _entry_words(entry: dict[str, Any]) -> str:
    if entry["kind"] == "charge":
        facts = entry["facts"]
        columns = ", ".join(f"{name} by {column['described']}" for name, column in facts.get("columns", {}).items())
        return f"release {facts.get('id', '')}: {columns or facts.get('formula', '')}"
    if entry["kind"] == "cap":
        return f"the cap on {entry['column']} was changed to {_cap_words(entry['cap'])}: {entry['reason']}"
    if entry["kind"] == "attempt":
        return f"refused or failed: {entry['error']['type']}: {entry['error']['message']}"
    dataset = f" for the data set {entry['dataset']}" if "dataset" in entry else ""
    return f"the ledger was made{dataset}, with caps on {', '.join(entry['caps']) or 'nothing'}"


def _cap_words(description: dict[str, Any]) -> str:
    from slowscale.policy import Policy

    return str(Policy.from_dict(description))


def _show_plan(plan: "Plan", stated: "Sequence[RecordSize]") -> None:
    from slowscale.columns import shown_sizes

    columns = plan.columns
    sizes = shown_sizes(columns, stated)
    for column in columns:
        _show_mechanism(column, sizes)
    _show_totals(columns, sizes)
    if plan.data.protect:
        typer.echo(f"This is for a {plan.data.protect} in one cell; the losses of all cells that it is in add up.")
    if not stated and any(not column.single for column in columns):
        typer.echo(
            "These sizes follow from the noise and the units, not from the records: the largest record may be larger. "
            "State sizes that are public knowledge with --sizes, or with [report] in the plan."
        )
    protected = f"one {plan.data.protect}" if plan.data.protect else "one record"
    typer.echo(f"Protected: {protected}.")


def _show_mechanism(column: "ColumnPolicy", sizes: "Sequence[RecordSize]") -> None:
    from slowscale.figures import figure

    typer.echo(f"{column.name}: {column.mechanism}")
    typer.echo(f"  policy: {column.policy}")
    if column.single:
        typer.echo(f"  every record counts as 1 and loses {figure(column.policy(0))} (PRzCDP)")
    else:
        losses = [
            f"{figure(column.loss(size.value(column.name) or 0).rho)} at {size.words(column.name)}" for size in sizes
        ]
        typer.echo(f"  a record's loss (PRzCDP) by its size: {', '.join(losses)}")
    typer.echo(f"  standard error: {', '.join(_error_texts(column, sizes))}")


def _error_texts(column: "ColumnPolicy", sizes: "Sequence[RecordSize]") -> list[str]:
    """Return the standard error of a column: one number, or how it grows with the sum."""
    from slowscale.columns import example_sums
    from slowscale.figures import figure

    found = [(at, float(column.errors(at))) for at in example_sums(column, sizes)]
    if len({error for _, error in found}) == 1:
        return [f"{figure(found[0][1])} for every sum"]
    return [f"{figure(error)} for a sum of {figure(at)}" for at, error in found]


def _show_totals(columns: "Sequence[ColumnPolicy]", sizes: "Sequence[RecordSize]") -> None:
    """Print what a record loses over all columns, and what that means for it."""
    from slowscale.accounting import certainty
    from slowscale.accounting.semantics import bounds_in_words
    from slowscale.columns import losses
    from slowscale.figures import figure, share

    known = [(size.name, found) for size in sizes if (found := losses(columns, size)) is not None]
    sure, exceptions = bounds_in_words([certainty(found) for _, found in known], share)
    typer.echo("All columns together: a record's loss (PRzCDP), and the highest certainty that an attacker who thinks")
    typer.echo(f"it as likely as not that the record is there can reach ({exceptions}):")
    for (name, found), certain in zip(known, sure, strict=True):
        typer.echo(f"  {name}: {figure(_total(found))}, {certain}")


def _total(losses: "Iterable[Loss]") -> float:
    return sum(loss.rho for loss in losses)


def _sizes_as_json(plan: "Plan", stated: "Sequence[RecordSize]") -> list[dict[str, Any]]:
    """Return what example records lose, through each column and in all."""
    from slowscale.accounting import best_epsilon, certainty
    from slowscale.columns import losses, shown_sizes

    columns = plan.columns
    rows = []
    for size in shown_sizes(columns, stated):
        found = losses(columns, size) or []
        rows.append(
            {
                "name": size.name,
                "stated": bool(stated),
                "record": {column.name: size.value(column.name) for column in columns if not column.single},
                # More than a number can hold is null: JSON has no infinity.
                "losses": {
                    column.name: one.rho if math.isfinite(one.rho) else None
                    for column, one in zip(columns, found, strict=True)
                },
                "loss": total if math.isfinite(total := _total(found)) else None,
                **_bounds_as_json(best_epsilon(found, DELTA), certainty(found)),
            }
        )
    return rows


def _show_release(made: Any) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from slowscale.figures import published

    keys = list(made.facts.cells.columns) if made.facts.cells else []
    columns = {name: column.grid for name, column in made.facts.columns.items()}
    table = Table(*map(escape, [*keys, *columns]))
    for row in made.table.slice(0, FEW).to_pylist():
        cells = []
        for name, unit in columns.items():
            low, high = (published(row[f"{name}_{end}"], unit, side) for end, side in (("low", -1), ("high", 1)))
            cells.append(f"{published(row[name], unit)} ({low} to {high})")
        table.add_row(*(escape(str(row[name])) for name in keys), *cells)
    if len(made) > FEW:
        table.add_row(*("…" for _ in [*keys, *columns]))
    console = Console()
    console.print(table)
    console.print(str(made), highlight=False, soft_wrap=True, markup=False)


def _assigned(text: str) -> tuple[str, float]:
    from slowscale.errors import ParameterError

    name, equals, number = text.partition("=")
    try:
        if not equals or not name:
            raise ValueError
        return name, float(number)
    except ValueError:
        raise ParameterError(f"give a name and a number such as emp=12, got {text!r}") from None


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def main() -> None:
    """Run the command; an error is one line on stderr, or a traceback with --debug."""
    debug = "--debug" in sys.argv
    if debug:
        sys.argv.remove("--debug")
    warnings.showwarning = lambda message, *_: typer.echo(f"warning: {message}", err=True)
    try:
        sys.exit(app(prog_name="slowscale", standalone_mode=False))
    except typer.Exit as left:
        sys.exit(left.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        typer.echo("\ninterrupted: what was charged stays charged, and no file is half written", err=True)
        sys.exit(130)
    except Exception as error:
        if debug:
            raise
        sys.exit(_report_error(error))


def _report_error(error: Exception) -> int:
    """Print what went wrong, and return the exit code."""
    from slowscale.errors import SlowscaleError

    if isinstance(error, SlowscaleError):
        words = str(error)
        for pattern, replacement in PLAN_WORDS:
            words = re.sub(pattern, replacement, words)
        typer.echo(f"error: {words}", err=True)
        return CODES.get(type(error).__name__, 2)
    if hasattr(error, "format_message"):  # a wrong command or option
        typer.echo(f"error: {error.format_message()} (see slowscale --help)", err=True)
        return 2
    if isinstance(error, OSError):
        typer.echo(f"error: {error}", err=True)
        return 2
    typer.echo(f"error: {type(error).__name__}: {error} (a mistake in slowscale: --debug shows where)", err=True)
    return 1
