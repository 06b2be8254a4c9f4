"""The commands of `slowscale ledger`: what was lost so far, what was released, verification, and changes of caps."""

from collections.abc import Mapping
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
    check_terminal,
    confirm,
    echo,
    in_options,
    parse_parameter,
    print_json,
)
from slowscale.core.markup import terminal_text

if TYPE_CHECKING:
    from slowscale.accounting import Ledger
    from slowscale.policy import Policy

# Other fields of a cap are given with --param.
CAP_OPTIONS = ("mechanism", "std", "interval", "level", "loss", "accounting", "at", "times", "plus")


def show(path: LedgerFile, as_json: AsJson = False) -> None:
    """Show in words what records may have lost so far."""
    ledger = _open_ledger(path)
    if as_json:
        caps = {name: cap.to_dict() for name, cap in ledger.caps.items()}
        print_json({"dataset": ledger.dataset, "head": ledger.head, "spent": ledger.spent.to_dict(), "caps": caps})
        return
    echo(ledger.describe())


def history(path: LedgerFile, as_json: AsJson = False) -> None:
    """List all entries: releases with their accounting, refusals and changes of caps, with their times."""
    from slowscale.accounting.entries import describe_entry

    entries = _open_ledger(path).history()
    if as_json:
        print_json([{**entry, **_accounting_in_json(entry)} for entry in entries])
        return
    for number, entry in enumerate(entries, 1):
        echo(terminal_text(f"{number:>5}  {entry['time']}  {describe_entry(entry)}", ""))  # one line per entry


def _accounting_in_json(entry: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the accounting of an entry that has facts, as a part of its JSON."""
    return {"accounting": entry["facts"].get("accounting")} if "facts" in entry else {}


def verify(
    path: LedgerFile,
    against: Annotated[
        Path | None, typer.Option(metavar="RELEASE", help="A release whose entry the ledger must still have.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that no entry was changed, removed or moved. Exit with code 5 if one was."""
    from slowscale.core.errors import ParameterError
    from slowscale.release import read_release

    head = None
    if against is not None:
        head = read_release(against).facts.ledger
        if not head:
            raise ParameterError(
                f"{against} was released without a ledger: give a release that was charged to this ledger"
            )
    problems = _open_ledger(path).verify(head)
    if as_json:
        print_json({"problems": problems})
    else:
        echo("\n".join(problems) if problems else "the ledger is as it was written")
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
    mechanism: Annotated[
        str, typer.Option(help="The mechanism whose releases the new cap has room for, such as root.")
    ],
    reason: Annotated[str, typer.Option(help="Why the cap is set. The reason stays in the history.")],
    param: Annotated[
        list[str], typer.Option(metavar="NAME=NUMBER", help="A parameter of the mechanism, such as sigma=2 or k=4.")
    ] = [],  # noqa: B006
    std: Std = None,
    interval: Interval = None,
    level: Level = None,
    loss: LossTarget = None,
    accounting: Accounting = None,
    at: At = None,
    times: Annotated[int, typer.Option(help="The total number of such releases that the cap has room for.")] = 1,
    plus: Annotated[float, typer.Option(help="A loss that the cap allows on top, for records of any size.")] = 0.0,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Set the cap without asking for confirmation.")] = False,
) -> None:
    """Change the cap on a column, or add one. The change and its reason stay in the history for good."""
    from slowscale.core.errors import ParameterError

    ledger = _open_ledger(path)
    if not reason.strip():
        raise ParameterError("--reason", allowed="text that says why the cap is set", remedy="it stays in the history")
    given = dict(zip(CAP_OPTIONS, (mechanism, std, interval, level, loss, accounting, at, times, plus), strict=True))
    new = _parse_cap(given | dict(parse_parameter(text, "sigma=2") for text in param))
    _show_change(ledger, column, new)
    if not yes:
        check_terminal("set the cap")
        confirm("Set the cap? The change stays in the history for good.", declined="not changed")
    ledger.set_cap(column, new, reason)
    echo(f"set the cap on {column} in {path}")


def _parse_cap(fields: dict[str, Any]) -> "Policy":
    """Return the cap with these fields, which are those of a plan, or raise an error that names the options."""
    from pydantic import ValidationError

    from slowscale.core.errors import ParameterError
    from slowscale.plan import PARAMETERS, CapPlan
    from slowscale.plan.reading import plain_words

    try:
        return CapPlan.model_validate({name: value for name, value in fields.items() if value is not None}).cap()
    except ValidationError as error:
        mistakes = []
        for mistake in error.errors():
            words = plain_words(mistake)
            name = ".".join(map(str, mistake["loc"]))
            if mistake["type"] == "extra_forbidden":
                words = f"there is no such parameter; there are {', '.join(PARAMETERS[:-1])}"
            option = f"--{name}: " if name in CAP_OPTIONS else f"--param {name}: "
            mistakes.append(f"{option if name else ''}{in_options(words)}")
        raise ParameterError("; ".join(mistakes)) from None


def _show_change(ledger: "Ledger", column: str, new: "Policy") -> None:
    """Print the caps on a column before and after, at several record sizes, and where the new one is lower."""
    from slowscale.accounting.caps import describe_change
    from slowscale.accounting.record import ANY, folded
    from slowscale.accounting.sizes import default_sizes
    from slowscale.core.numbers import format_number

    account = ledger.account
    names = {folded(name): name for name in account.caps}
    name = names.get(folded(column), names.get(ANY))
    old = None if name is None else account.caps[name]
    if folded(column) not in names:
        limited = "" if name is None else ", and is limited by the cap on all columns without a separate one"
        echo(f"{column} has no cap yet{limited}. The ledger has caps on {', '.join(account.caps) or 'no column'}.")
    if old is not None:
        echo(f"The cap on {column} now: {old}")
    echo(f"The new cap:     {' ' * len(column)}{new}" if old is not None else f"The new cap on {column}: {new}")
    shown = [(label, cap) for label, cap in (("now", old), ("new", new)) if cap is not None]
    sizes = default_sizes([(cap, None) for _, cap in shown])
    for label, cap in shown:
        losses = ", ".join(
            f"{format_number(cap(at))} at {size.name}" for size in sizes if (at := size.everywhere) is not None
        )
        echo(f"  {label}, by size: {losses}")
    if old is not None:
        echo(f"{describe_change(column, old, new)}.")
    spelled = account.set_cap(column, new)  # of a copy
    above = account.above_caps().get(spelled)
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
            "there",
            f"is no ledger {path}: check the path",
            remedy="a ledger is made by the first release that is charged to it",
        )
    return Ledger(path)
