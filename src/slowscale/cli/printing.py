"""What commands print about plans, mechanisms, releases and losses: text for people, and parts of JSON."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from slowscale.accounting.record import ANY, folded
from slowscale.accounting.semantics import DELTA, DELTA_WRITTEN, posterior
from slowscale.attackers import EVEN, EXAMPLE_ALARMS, alarms, detection, guesses, worst_case
from slowscale.columns import ColumnPolicy, Meaning, example_sums, meaning, shown_sizes
from slowscale.figures import figure, percent, published, rounded_figure, share
from slowscale.mechanisms.calibration import CLOSED

if TYPE_CHECKING:
    from slowscale.accounting import Account
    from slowscale.mechanisms import Mechanism
    from slowscale.plan import Plan
    from slowscale.release import Release, ReleaseSet
    from slowscale.session import SetPreview
    from slowscale.sizes import RecordSize

MAX_ROWS = 12  # of a released table


def show_plan(plan: "Plan", stated: Sequence["RecordSize"]) -> None:
    """Print what a plan publishes, how large the errors are, and what example records lose."""
    columns, entity = plan.columns, plan.data.protect
    sizes = shown_sizes(columns, stated)
    for name, single in plan.drawn.items():
        if name:
            typer.echo(f"Table {name}, drawn:")
        for column in single.columns:
            show_mechanism(column, sizes, single.scales.get(column.name))
    if plan.is_set:
        typer.echo("The losses by all drawn tables add up. Derived tables add nothing.")
    _show_totals(columns, sizes, entity)
    if entity:
        each = "one cell of each drawn table" if plan.is_set else "one cell"
        typer.echo(f"This is the loss of one {entity} in {each}; the losses in all the cells that it is in add up.")
    if not stated and any(not column.single for column in columns):
        typer.echo(
            "These sizes follow from the noise and the units, not from the records: the largest record may be larger. "
            "State sizes that are public knowledge with --sizes, or with [report] in the plan."
        )
    typer.echo(f"Protected: one {entity or 'record'}.")
    if plan.accounting != CLOSED:
        typer.echo(f"Accounting: {plan.accounting}. The smallest policies that are known are charged.")


def show_mechanism(column: ColumnPolicy, sizes: Sequence["RecordSize"], scale: str | None = None) -> None:
    """Print a column's mechanism and policy, its losses at several record sizes, and its standard error.

    `scale` says where the scale of the noise comes from, for a mechanism in which it need not be given.
    """
    typer.echo(f"{column.name}: {column.mechanism}")
    if scale is not None:
        typer.echo(f"  scale: {scale}")
    typer.echo(f"  policy: {column.policy}")
    if column.single:
        closed = "" if column.closed is None else f"; by the closed form {figure(column.closed(0))}"
        typer.echo(f"  every record counts as 1 and loses {figure(column.policy(0))} (PRzCDP{closed})")
    else:
        by_size = [
            f"{figure(column.loss(size.value(column.name) or 0).rho)} at {size.words(column.name)}" for size in sizes
        ]
        typer.echo(f"  a record's loss (PRzCDP) by its size: {', '.join(by_size)}")
        if column.closed is not None:
            sizes_words = [(size.value(column.name) or 0, size.words(column.name)) for size in sizes]
            by_size = [f"{figure(column.closed(value))} at {words}" for value, words in sizes_words]
            typer.echo(f"  by the closed form it would be: {', '.join(by_size)}")
    typer.echo(f"  standard error: {_standard_error(column, sizes)}")


def show_tight_losses(mechanism: "Mechanism", sizes: Sequence["RecordSize"]) -> None:
    """Print what records of several sizes lose by the tight policy."""
    by_size = [
        f"{figure(mechanism.tight_loss(at))} at {size.name}" for size in sizes if (at := size.everywhere) is not None
    ]
    typer.echo(f"  by the tight policy: {', '.join(by_size)}")


def _standard_error(column: ColumnPolicy, sizes: Sequence["RecordSize"]) -> str:
    """Return the standard error of a column in words: one number, or one for each of several sums."""
    errors = {total: float(column.errors(total)) for total in example_sums(column, sizes)}
    if len(set(errors.values())) == 1:
        return f"{figure(next(iter(errors.values())))} for every sum"
    return ", ".join(f"{figure(error)} for a sum of {figure(total)}" for total, error in errors.items())


def _show_totals(columns: Sequence[ColumnPolicy], sizes: Sequence["RecordSize"], entity: str | None) -> None:
    """Print what example records lose over all columns, and what that means."""
    thing = entity or "record"
    one_cell = "" if entity is None else f", if the {entity} is in one cell only"
    typer.echo(
        f"All columns together: a record's loss (PRzCDP), how often the best test detects that the {thing} is in the "
        f"data with {alarms(EXAMPLE_ALARMS)}, and how often the best guess is right starting from {percent(EVEN)}"
        f"{one_cell}:"
    )
    for size in sizes:
        if (found := meaning(columns, size)) is not None:
            shares = ["not known" if one is None else share(one) for one in (found.detected, found.guessed)]
            typer.echo(f"  {size.name}: {', '.join([figure(found.loss), *shares])}")


def show_caps(account: "Account", columns: Sequence[str], checked: bool, refused: bool) -> None:
    """Print whether the caps allow a release of these columns; a refusal itself is reported as an error."""
    if not checked:
        typer.echo(
            "Whether a cap is in the way depends on the labels of the partition, which are taken from the data when "
            "the release is made."
        )
    elif not refused:
        typer.echo("No cap is in the way." if account.caps else "There are no caps.")
    capped = {folded(name) for name in account.caps}
    uncapped = [name for name in columns if not {folded(name), ANY} & capped]
    if account.caps and uncapped:
        typer.echo(f"There is no cap on {', '.join(uncapped)}.")


def show_explanation(
    record: Mapping[str, float],
    columns: Sequence[ColumnPolicy],
    explained: Meaning,
    notion: str,
    entity: str | None,
) -> None:
    """Print what a record loses through each column and in all, and what that means."""
    if entity is not None:
        typer.echo(f"Here a record is all that one {entity} has in one cell. The losses in all its cells add up.")
    values = ", ".join(f"{name} = {rounded_figure(number)}" for name, number in record.items())
    typer.echo(f"A record with {values}:")
    for column, loss in zip(columns, explained.losses, strict=True):
        through = "by being counted" if column.single else f"through {column.name}"
        value = 0.0 if column.single else abs(record[column.name])
        notes = [] if column.closed is None else [f"closed form: {figure(column.closed(value))}"]
        notes += [] if loss.pure is None else [f"PRDP: {figure(loss.pure)}"]
        typer.echo(f"  loses {figure(loss.rho)} {through}" + (f" ({'; '.join(notes)})" if notes else ""))
    typer.echo(
        f"  loses {figure(explained.loss)} in all ({notion}). This is (ε, {DELTA_WRITTEN})-differential privacy with "
        f"ε = {figure(explained.epsilon)}."
    )
    subject = "this record" if entity is None else f"this {entity}"
    one_cell = "" if entity is None else f" This holds if the {entity} is in one cell only."
    if explained.detected is None or explained.guessed is None:
        typer.echo("What an attacker can do is not known: a mechanism uses a function of which only the name is known.")
    else:
        typer.echo(f"In words: {_lower(detection(subject, EXAMPLE_ALARMS, explained.detected))}")
        typer.echo(f"{guesses(EVEN, explained.guessed)} In the worst case it is {_worst(explained.most)}.{one_cell}")


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


def _worst(most: float) -> str:
    """Return how certain an attacker is in the worst case, in words."""
    return "as good as certain: the privacy loss has no limit" if math.isinf(most) else f"{worst_case(most)} certain"


def show_scales(plan: "Plan") -> None:
    """Print the scales of a plan that need not be given, and where they come from."""
    for name, scale in plan.scales.items():
        typer.echo(f"{name}: {scale}")


def show_release(release: "Release | ReleaseSet", files: Sequence[Any]) -> None:
    """Print the first rows of each table of a release, what it costs, and the files that were written."""
    from rich.console import Console

    from slowscale.release import ReleaseSet

    if isinstance(release, ReleaseSet):
        for name, one in release.items():
            typer.echo(f"Table {name}:")
            _print_rows(one)
    else:
        _print_rows(release)
    Console().print(str(release), highlight=False, soft_wrap=True, markup=False)
    for file in files:
        typer.echo(f"wrote {file}")


def _print_rows(release: "Release") -> None:
    """Print the first rows of a release."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    keys = list(release.facts.cells.columns) if release.facts.cells else []
    units = {name: column.grid for name, column in release.facts.columns.items()}
    table = Table(*map(escape, [*keys, *units]))
    for row in release.table.slice(0, MAX_ROWS).to_pylist():
        cells = []
        for name, unit in units.items():
            low, high = (published(row[f"{name}_{end}"], unit, side) for end, side in (("low", -1), ("high", 1)))
            cells.append(f"{published(row[name], unit)} ({low} to {high})")
        table.add_row(*(escape(str(row[name])) for name in keys), *cells)
    if len(release) > MAX_ROWS:
        table.add_row(*("…" for _ in [*keys, *units]))
    Console().print(table)


def show_set(plan: "Plan", preview: "SetPreview", stated: Sequence["RecordSize"]) -> None:
    """Print the losses and the errors of each table of a set, and what the alternatives would cost."""
    typer.echo("")
    for line in preview.table_lines(tuple(stated)):
        typer.echo(line)
    shown = {table.name for table in preview.tables}
    hidden = [part.name for part in plan.table if part.name not in shown]
    if hidden:
        typer.echo(
            f"{', '.join(hidden)}: derived from cells that are taken from the records, so their errors are known when "
            "the release is made."
        )


def set_as_json(preview: "SetPreview") -> dict[str, Any]:
    """Return the tables of a set with their errors."""
    return {
        table.name: {
            "drawn": table.drawn,
            "from": table.of,
            "by": list(table.by),
            "rows": table.rows,
            "cells": list(table.cells),
            "could_be_derived_from": table.instead,
            "policy": table.policy.to_dict() if table.drawn else [],
            "columns": {
                column.name: {
                    "std": [_finite(error) for error in table.errors(column)],
                    "half_width": [_finite(width) for width in table.half_widths[column.name]],
                }
                for column in table.columns
                if column.name in table.half_widths
            },
        }
        for table in preview.tables
    }


def sizes_as_json(columns: Sequence[ColumnPolicy], stated: Sequence["RecordSize"]) -> list[dict[str, Any]]:
    """Return what example records lose, through each column and in all."""
    rows = []
    for size in shown_sizes(columns, stated):
        explained = meaning(columns, size)
        if explained is None:
            continue
        rows.append(
            {
                "name": size.name,
                "stated": bool(stated),
                "record": {column.name: size.value(column.name) for column in columns if not column.single},
                "losses": {
                    column.name: _finite(loss.rho) for column, loss in zip(columns, explained.losses, strict=True)
                },
                "loss": _finite(explained.loss),
                **bounds_as_json(explained),
            }
        )
    return rows


def bounds_as_json(explained: Meaning) -> dict[str, Any]:
    """Return what losses mean: ε and δ, how often a record is detected, and how certain an attacker can be."""
    return {
        "epsilon": _finite(explained.epsilon),
        "delta": DELTA,
        "false_alarms": EXAMPLE_ALARMS,
        "detected": explained.detected,
        "guessed": explained.guessed,
        "posterior": posterior(EVEN, explained.most) if math.isfinite(explained.most) else 1.0,
    }


def _finite(number: float) -> float | None:
    """Return None in place of an infinity, which JSON does not have."""
    return number if math.isfinite(number) else None
