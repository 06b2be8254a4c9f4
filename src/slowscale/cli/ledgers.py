"""Commands about losses: `explain` for one record, and `slowscale ledger` for what was released, with its caps."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slowscale.cli.shared import (
    Accounting,
    AsJson,
    At,
    Interval,
    LedgerFile,
    Level,
    LossTarget,
    Std,
    as_option_error,
    check_terminal,
    confirm,
    echo,
    parse_assignment,
    parse_parameters,
    print_json,
)
from slowscale.core.markup import terminal_text

if TYPE_CHECKING:
    from slowscale.accounting import Ledger, Loss, RecordPolicy
    from slowscale.policy import Policy
    from slowscale.release.columns import ColumnPolicy

# Other fields of a cap are given with --param.
CAP_OPTIONS = ("mechanism", "std", "interval", "level", "loss", "accounting", "at", "times", "plus")


def show(path: LedgerFile, as_json: AsJson = False) -> None:
    """Show in words what records may have lost so far."""
    ledger = _open_ledger(path)
    if as_json:
        caps, band_caps = (
            {name: cap.to_dict() for name, cap in some.items()} for some in (ledger.caps, ledger.band_caps)
        )
        known = {"dataset": ledger.dataset, "head": ledger.head, "spent": ledger.spent.to_dict()}
        print_json({**known, "caps": caps, "band": ledger.band, "band_caps": band_caps, "largest": ledger.largest})
        return
    echo(ledger.describe())


def history(path: LedgerFile, as_json: AsJson = False) -> None:
    """List all entries: releases with their accounting, refusals, and changes of caps and largest values."""
    from slowscale.accounting.entries import describe_entry

    entries = _open_ledger(path).history()
    if as_json:
        accountings = [
            {"accounting": entry["facts"].get("accounting")} if "facts" in entry else {} for entry in entries
        ]
        print_json([entry | accounting for entry, accounting in zip(entries, accountings, strict=True)])
        return
    for number, entry in enumerate(entries, 1):
        echo(terminal_text(f"{number:>5}  {entry['time']}  {describe_entry(entry)}", ""))  # one line per entry


def verify(
    path: LedgerFile,
    against: Annotated[
        Path | None, typer.Option(metavar="RELEASE", help="A release whose entry the ledger must still have.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that no entry was changed, removed or moved. Exit with code 5 if one was."""
    from slowscale.core.errors import ParameterError
    from slowscale.release.release import read_release

    head = None
    if against is not None:
        head = read_release(against).facts.ledger
        if not head:
            problem, remedy = "was released without a ledger", "give a release that was charged to this ledger"
            raise ParameterError(against, problem, code="not-charged", remedy=remedy)
    problems = _open_ledger(path).verify(head)
    if as_json:
        print_json({"problems": problems})
    else:
        echo("\n".join(problems) if problems else "hash chain intact")
    if problems:
        raise typer.Exit(5)


def set_cap(
    path: LedgerFile,
    column: Annotated[
        str,
        typer.Argument(
            metavar="COLUMN",
            help='The column whose cap is set: "count" for counts, "*" for all columns without a separate cap.',
        ),
    ],
    reason: Annotated[str, typer.Option(help="Why the cap is set. The reason stays in the history.")],
    mechanism: Annotated[
        str | None, typer.Option(help="The mechanism whose releases the new cap has room for, such as root.")
    ] = None,
    band_loss: Annotated[
        float | None,
        typer.Option(help="Set the band cap instead: the largest loss between values within the ledger's band."),
    ] = None,
    param: Annotated[
        list[str], typer.Option(metavar="NAME=NUMBER", help="A parameter of the mechanism, such as sigma=2 or k=4.")
    ] = [],  # noqa: B006
    std: Std = None,
    interval: Interval = None,
    level: Level = None,
    loss: LossTarget = None,
    accounting: Accounting = None,
    at: At = None,
    times: Annotated[int, typer.Option(help="How many such releases the cap has room for.")] = 1,
    plus: Annotated[float, typer.Option(help="A loss that the cap allows on top, for records of any size.")] = 0.0,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Set the cap without asking for confirmation.")] = False,
) -> None:
    """Change the cap on a column, or add one. The change and its reason stay in the history for good."""
    from slowscale.core.errors import ParameterError

    ledger = _open_ledger(path)
    if not reason.strip():
        problem = "must say in words why the cap is set: it stays in the history"
        raise ParameterError("--reason", problem, code="empty")
    given = dict(zip(CAP_OPTIONS, (mechanism, std, interval, level, loss, accounting, at, times, plus), strict=True))
    if (mechanism is None) == (band_loss is None):
        raise ParameterError(
            "--mechanism",
            "and --band-loss exclude each other, and one of them is needed",
            code="missing" if mechanism is None else "conflict",
            remedy="--mechanism sets the cap on presence, --band-loss that on values within the band",
        )
    if band_loss is None:
        new = _parse_cap(given | parse_parameters(param, "sigma=2"))
    else:
        from slowscale.policy import ConstantPolicy

        new = ConstantPolicy(band_loss)
    _show_change(ledger, column, new, band_loss is not None)
    if not yes:
        check_terminal("set the cap")
        confirm("Set the cap? The change stays in the history for good.", declined="not changed")
    ledger.set_cap(column, new, reason, band=band_loss is not None)
    echo(f"set the cap on {column} in {path}")


def set_largest(
    path: LedgerFile,
    column: Annotated[
        str,
        typer.Argument(
            metavar="COLUMN",
            help='The column whose largest value is set; "count" for the number of records of an entity in a cell.',
        ),
    ],
    value: Annotated[
        str, typer.Argument(metavar="NUMBER|none", help="The largest value; none allows values of any size.")
    ],
    reason: Annotated[str, typer.Option(help="Why the largest value is set. The reason stays in the history.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Set it without asking for confirmation.")] = False,
) -> None:
    """Change the largest value of a column, declare one, or remove it. The change stays in the history for good.

    If it is raised, all caps are proven again for the larger sizes, and the change is refused if one does not hold.
    """
    from slowscale.accounting.largest import in_words, value_of
    from slowscale.core.errors import ParameterError

    ledger = _open_ledger(path)
    try:
        most = None if value.strip().lower() == "none" else int(value) if value.strip().isdecimal() else float(value)
    except ValueError:
        raise ParameterError("NUMBER", allowed="a number such as 4e10, or none", given=value) from None
    old = value_of(ledger.largest, column)
    words = [f"{column} has no largest value" if one is None else in_words({column: one}) for one in (old, most)]
    echo(f"Now: {words[0]}. New: {words[1]}.")
    if not yes:
        check_terminal("set the largest value")
        confirm("Set it? The change stays in the history for good.", declined="not changed")
    ledger.set_largest(column, most, reason)
    echo(f"set the largest value of {column} in {path}")


def _parse_cap(fields: dict[str, Any]) -> "Policy":
    """Return the cap with these fields, which are those of a plan, or raise an error that names the options."""
    from pydantic import ValidationError

    from slowscale.core.errors import ParameterError
    from slowscale.plan import PARAMETERS, CapPlan
    from slowscale.plan.reading import errors_in

    try:
        return CapPlan.model_validate({name: value for name, value in fields.items() if value is not None}).cap()
    except ValidationError as error:
        mistakes = errors_in(error)
        for one in mistakes:
            name = one.path[0] if one.path else ""
            if one.code == "unknown-name" and name:
                one.subject, one.problem = f"--param {name}", "is not a parameter"
                one.remedy = f"there are {', '.join(PARAMETERS[:-1])}"
            one.subject = one.subject or str(name)
        found = [as_option_error(one, set_cap) for one in mistakes]
        raise ParameterError("; ".join(map(str, found)), code=found[0].code, path=found[0].path) from None


def _show_change(ledger: "Ledger", column: str, new: "Policy", band: bool) -> None:
    """Print the caps on a column before and after, at several record sizes, and where the new one is lower."""
    from slowscale.accounting.caps import describe_change
    from slowscale.accounting.largest import proven_to, value_of
    from slowscale.accounting.record import ANY, folded
    from slowscale.accounting.sizes import default_sizes
    from slowscale.core.numbers import format_number

    account = ledger.account
    limit = proven_to(value_of(account.largest, column))
    caps = account.band_caps if band else account.caps
    names = {folded(name): name for name in caps}
    name = names.get(folded(column), names.get(ANY))
    old = None if name is None else caps[name]
    if folded(column) not in names:
        limited = "" if name is None else ", and is limited by the cap on all columns without a separate one"
        echo(f"{column} has no cap yet{limited}. The ledger has caps on {', '.join(caps) or 'no column'}.")
    if old is not None:
        echo(f"The cap on {column} now: {old}")
    echo(f"The new cap:     {' ' * len(column)}{new}" if old is not None else f"The new cap on {column}: {new}")
    shown = [(label, cap) for label, cap in (("now", old), ("new", new)) if cap is not None]
    sizes = default_sizes([(cap, None) for _, cap in shown], {column: value_of(account.largest, column)})
    for label, cap in shown:
        losses = ", ".join(
            f"{format_number(cap(at))} at {size.name}"
            for size in sizes
            if (at := size.value(column) if size.everywhere is None else size.everywhere) is not None and at <= limit
        )
        echo(f"  {label}, by size: {losses}")
    if old is not None:
        echo(f"{describe_change(column, old, new, limit)}.")
    spelled = account.set_cap(column, new, band)  # of a copy
    above = account.above_caps(band).get(spelled)
    if above is not None:
        spent, size, most = map(format_number, (above.spent, above.influence, above.cap))
        echo(
            f"Earlier releases already exceed the new cap {above.sizes}: a loss of {spent} at size {size}, where the "
            f"cap is {most}. Further ones will be refused."
        )


def _open_ledger(path: Path) -> "Ledger":
    from slowscale.accounting import Ledger
    from slowscale.core.errors import LedgerError

    if not path.exists():
        raise LedgerError(
            path,
            "does not exist",
            code="missing",
            remedy="check the path: the first release that is charged to a ledger creates it",
        )
    return Ledger(path)


def explain(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="RELEASE|PLAN", help="A released .parquet or .csv file, a folder of them, or a plan file."
        ),
    ],
    value: Annotated[
        list[str],
        typer.Option(metavar="COLUMN=NUMBER", help="A value of the record, such as emp=12. Give one for each column."),
    ] = [],  # noqa: B006
    as_json: AsJson = False,
) -> None:
    """Explain what a record with these values loses, in numbers and in words."""
    from slowscale.cli.printing import show_explanation
    from slowscale.release.columns import explain_record

    policy, columns, entity, accounting, band = _read(source)
    record = _parse_record(value, policy.columns)
    explained = explain_record(columns, record, band, "--value")
    if not as_json:
        show_explanation(record, columns, explained, entity)
        return
    # Several tables may have the same columns.
    losses: dict[str, list[Loss]] = {}
    for column, loss in zip(columns, explained.losses, strict=True):
        losses.setdefault(column.name, []).append(loss)
    counted = {column.name for column in columns if column.single}
    print_json(
        {
            "record": record,
            "notion": policy.notion,
            "accounting": accounting,
            "band": band,
            "columns": {name: sum(loss.rho for loss in some) for name, some in losses.items() if name not in counted},
            "counts": sum(loss.rho for name in counted for loss in losses[name]),
            # None if the guarantee through the column is not pure.
            "pure": {
                name: None if any(loss.pure is None for loss in some) else sum(loss.pure or 0.0 for loss in some)
                for name, some in losses.items()
            },
            **explained.to_dict(),
        }
    )


def _read(source: Path) -> tuple["RecordPolicy", Sequence["ColumnPolicy"], str | None, str, float]:
    """Return the policy of a plan, or of the whole release that a file belongs to, the columns of its drawn tables,
    what is protected (None: records), the accounting, and the factor of the band.
    """
    from slowscale.core.errors import ParameterError
    from slowscale.plan import read_plan
    from slowscale.plan.checking import check_has_tables
    from slowscale.policy.bounded import BAND
    from slowscale.release.columns import drawn_columns
    from slowscale.release.release import read_release

    if source.suffix == ".toml":
        plan = read_plan(source)
        check_has_tables(plan)
        columns = [column for some in plan.columns.values() for column in some]
        band = BAND if plan.ledger is None or plan.ledger.band is None else plan.ledger.band
        return plan.policy, columns, plan.data.protect, plan.release.accounting, band
    if source.is_file() and source.suffix == ".csv" and not Path(f"{source}.json").exists():
        problem, remedy = "is not a file of a release", "give a released file or folder, or a plan"
        raise ParameterError(f"RELEASE|PLAN: {source}", problem, code="not-a-release", remedy=remedy)
    made = read_release(source)
    return made.policy, drawn_columns(made), made.facts.protect, made.facts.accounting, made.facts.band


def _parse_record(values: Sequence[str], columns: Sequence[str]) -> dict[str, float]:
    """Return the value of each column, from text such as emp=12."""
    from slowscale.core.errors import ParameterError

    record: dict[str, float] = {}
    needed = f"give one --value for each of {', '.join(columns)}"
    for text in values:
        name, number = parse_assignment(text, "--value", "emp=12")
        if name not in columns:
            problem = f"names {name}, which is not a column of the release"
            raise ParameterError("--value", problem, code="unknown-column", remedy=needed)
        if name in record:
            raise ParameterError("--value", f"names {name} twice", code="duplicate", remedy=needed)
        if not math.isfinite(number):
            raise ParameterError(f"--value {name}", allowed="a finite number", given=number)
        record[name] = number
    missing = [name for name in columns if name not in record]
    if missing:
        problem = f"is missing for {', '.join(missing)}"
        raise ParameterError("--value", problem, code="missing", remedy=f"{needed}, such as --value {missing[0]}=12")
    return record
