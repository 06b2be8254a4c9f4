"""What commands print about plans, mechanisms, releases and losses: text for people, and parts of JSON."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from slowscale.accounting.explanation import Explanation, as_lines, at_most
from slowscale.accounting.largest import in_words
from slowscale.accounting.record import ANY, COUNT, folded
from slowscale.accounting.sizes import assumed_count, sizes_in
from slowscale.cli.shared import echo, terminal_width
from slowscale.core.errors import CapError
from slowscale.core.markup import terminal_text
from slowscale.core.numbers import format_number, published, rounded_figure
from slowscale.mechanisms.calibration import ACCOUNTING
from slowscale.plan.schema import SumsPlan
from slowscale.policy.bounded import BAND
from slowscale.release.columns import ColumnPolicy, example_sums, explain_columns, shown_sizes

if TYPE_CHECKING:
    from slowscale.accounting.sizes import RecordSize
    from slowscale.plan import Checked, Plan
    from slowscale.release.release import Release
    from slowscale.release.table import ReleasedTable

MAX_ROWS = 12  # of a released table


def show_plan(checked: "Checked", stated: Sequence["RecordSize"]) -> None:
    """Print the tables of a plan with their mechanisms and errors, and the losses of example records."""
    plan, preview = checked.plan, checked.preview
    tables, entity = plan.columns_within(checked.accountant.largest), plan.data.protect
    columns = [column for some in tables.values() for column in some]
    sizes = shown_sizes(columns, stated)
    for name, some in tables.items():
        echo(f"Table {name}, drawn:")
        for column in some:
            if isinstance(plan.tables[name], SumsPlan):
                scale = plan.scales.get(name, {}).get(column.name)
                show_mechanism(column, sizes, scale, entity, losses=len(columns) > 1)
            else:
                loss = format_number(column.policy(0))
                echo(f"  quantiles: every record loses {loss} (PRzCDP) by all of them together")
    if len(plan.tables) > 1:
        echo("The losses by all drawn tables add up. Derived tables add nothing.")
    _show_totals(columns, sizes, entity, checked.accountant.band)
    if entity:
        echo(
            f"This is the loss of one {entity} in one cell of each drawn table; the losses in all the cells that it is "
            "in add up."
        )
    for sentence in assumed_count(entity, [column.name for column in columns], sizes):
        echo(sentence)
    sized = [column for column in columns if not column.single]
    if sized and all(column.largest is not None for column in sized):
        most = {column.name: column.largest for column in sized if column.largest is not None}
        echo(f"The release refuses larger values: {in_words(most)}.")
    elif sized and not stated:
        echo(
            "These sizes follow from the noise and the units, not from the records: the largest "
            f"{entity or 'record'} may be larger. State sizes that are public knowledge with --sizes, or with "
            "[report] in the plan."
        )
    echo(f"Protected: one {entity or 'record'}.")
    if plan.release.accounting != ACCOUNTING:
        echo("Accounting: closed-form. The formulas of the policies are charged, not the smallest policies known.")
    echo("")
    for line in preview.table_lines(tuple(stated), terminal_width()):
        echo(line)
    if unread := sorted(checked.cells.unread):
        echo(
            f"The cells of {', '.join(unread)} are taken from the records when the release is made: one cell stands "
            "for them here, and tables that are derived from them are left out."
        )


def _all_columns(plan: "Plan") -> list[ColumnPolicy]:
    """Return the columns of all drawn tables."""
    return [column for columns in plan.columns.values() for column in columns]


def show_mechanism(
    column: ColumnPolicy,
    sizes: Sequence["RecordSize"],
    scale: str | None = None,
    entity: str | None = None,
    losses: bool = True,
) -> None:
    """Print a column's mechanism and policy, its losses at several record sizes, and its standard error.

    `scale` says where the scale of the noise comes from, for a mechanism in which it need not be given. `entity` is the
    column whose entities are protected instead of single records. Without `losses`, those at the sizes are left out.
    """
    echo(f"{column.name}: {column.mechanism}")
    if scale is not None:
        echo(f"  scale: {scale}")
    echo(f"  policy: {column.policy}")
    if column.single:
        closed = "" if column.closed is None else f"; by the closed form {format_number(column.closed(0))}"
        echo(f"  every record counts as 1 and loses {at_most(column.policy(0))} (PRzCDP{closed})")
    else:
        shown = [(size.value(column.name) or 0, size.describe(column.name)) for size in sizes_in(column.name, sizes)]
        by_size = [f"{at_most(column.loss(value).rho)} at {words}" for value, words in shown]
        if entity is None:
            whose = "a record's loss (PRzCDP) by its size"
        else:
            size = "number of records" if column.counts_records else "total"
            whose = f"the loss of one {entity} (PRzCDP) by its {size} in a cell"
        if losses:
            echo(f"  {whose}: {', '.join(by_size)}")
        if column.closed is not None:
            by_size = [f"{format_number(column.closed(value))} at {words}" for value, words in shown]
            echo(f"  by the closed form it would be: {', '.join(by_size)}")
    echo(f"  standard error: {_standard_error(column, sizes)}")


def _standard_error(column: ColumnPolicy, sizes: Sequence["RecordSize"]) -> str:
    """Return the standard error of a column in words: one number, or one for each of several sums."""
    errors = {total: float(column.errors(total)) for total in example_sums(column, sizes)}
    if len(set(errors.values())) == 1:
        return f"{format_number(next(iter(errors.values())))} for every sum"
    return ", ".join(f"{format_number(error)} for a sum of {format_number(total)}" for total, error in errors.items())


def _show_totals(
    columns: Sequence[ColumnPolicy], sizes: Sequence["RecordSize"], entity: str | None, band: float
) -> None:
    """Print what example records lose over all columns, and what that means."""
    # The values stand here if there is one column, and otherwise with the losses by each column.
    sized = columns[0].name if len(columns) == 1 and not columns[0].single else None
    found = [
        (size.name if sized is None else size.describe(sized), one)
        for size in sizes
        if (one := explain_columns(columns, size, band)) is not None
    ]
    echo(f"{'All columns together, for one' if len(columns) > 1 else 'For one'} {entity or 'record'}:")
    for line in as_lines(found, entity or "record", entity is not None, band, terminal_width()):
        echo(line)


def show_caps(checked: "Checked") -> None:
    """Print whether the caps allow the release of a plan; a refusal itself is reported as an error."""
    caps, banded = checked.accountant.caps, checked.accountant.band_caps
    if not checked.caps_checked:
        echo(
            "Whether a cap refuses the release depends on the labels of the partition, which are taken from the data "
            "when the release is made."
        )
    elif not isinstance(checked.refusal, CapError):
        echo("Within all caps." if caps or banded else "There are no caps.")
    capped = {folded(name) for name in caps}
    columns = dict.fromkeys(COUNT if one.single else one.name for one in _all_columns(checked.plan))
    uncapped = [name for name in columns if not {folded(name), ANY} & capped]
    if caps and uncapped:
        echo(f"There is no cap on {', '.join(uncapped)}.")


def show_notes(checked: "Checked", err: bool = False) -> None:
    """Print what to look at before a release."""
    for note in checked.notes:
        echo(f"note: {note}", err=err)


def show_explanation(
    record: Mapping[str, float],
    columns: Sequence[ColumnPolicy],
    explained: Explanation,
    entity: str | None,
) -> None:
    """Print what a record loses through each column and in all, and what that means."""
    values = ", ".join(f"{name} = {rounded_figure(number)}" for name, number in record.items())
    echo(f"A record with {values}:" if entity is None else f"One {entity} that has {values} in one cell:")
    for column, loss in zip(columns, explained.losses, strict=True):
        through = "by being counted" if column.single else f"through {column.name}"
        value = 0.0 if column.single else abs(record[column.name])
        notes = [] if column.closed is None else [f"closed form: {at_most(column.closed(value))}"]
        notes += [] if loss.pure is None else [f"PRDP: {at_most(loss.pure)}"]
        echo(f"  loses {at_most(loss.rho)} {through}" + (f" ({'; '.join(notes)})" if notes else ""))
    pure = "no PRDP guarantee" if explained.pure is None else f"PRDP: {explained.texts['pure']}"
    echo(f"  loses a total of {explained.texts['loss']} (PRzCDP; {pure}).")
    echo(explained.sentences("this record" if entity is None else f"this {entity}"))
    if entity is not None:
        echo(f"This holds if the {entity} is in one cell only: the losses in cells add up.")


def show_scales(plan: "Plan") -> None:
    """Print the scales of a plan that need not be given, and where they come from."""
    for table, scales in plan.scales.items():
        for name, scale in scales.items():
            echo(f"{table}, {name}: {scale}")


def show_release(release: "Release", files: Sequence[Any], plan: "Plan") -> None:
    """Print the first rows of each table of a release, what it costs, and the files that were written.

    What it costs is stated for the example records of the plan, because some policies have no readable formula.
    """
    for name, table in release.tables.items():
        echo(f"Table {name}:")
        _print_rows(table)
    known = [(size.name, size.loss(release.policy)) for size in shown_sizes(_all_columns(plan), plan.sizes)]
    losses = [f"{at_most(loss)}: {name}" for name, loss in known if loss is not None]
    text = release._describe(losses) if losses else str(release)
    echo(text)
    for file in files:
        echo(f"wrote {file}")


def _print_rows(release: "ReleasedTable") -> None:
    """Print the first rows of a table: the keys and each number with its interval, or quantiles as they are."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    units = {name: column.grid for name, column in release.facts.columns.items()}
    keys = list(release.facts.by) if units else release.table.column_names
    table = Table(*(escape(terminal_text(name, "")) for name in [*keys, *units]))
    for row in release.table.slice(0, MAX_ROWS).to_pylist():
        cells = []
        for name, unit in units.items():
            low, high = (published(row[f"{name}_{end}"], unit, side) for end, side in (("low", -1), ("high", 1)))
            cells.append(f"{published(row[name], unit)} ({low} to {high})")
        table.add_row(*(escape(terminal_text(str(row[name]), "")) for name in keys), *cells)
    if release.table.num_rows > MAX_ROWS:
        table.add_row(*("…" for _ in [*keys, *units]))
    Console().print(table)


def plan_as_json(checked: "Checked", stated: Sequence["RecordSize"]) -> dict[str, Any]:
    """Return the result of `slowscale check`: mechanisms, the cost and the accuracy of each table, and a refusal."""
    plan, preview, refusal = checked.plan, checked.preview, checked.refusal
    return {
        "mechanisms": {
            name: {column: part.build().to_dict() for column, part in table.mechanisms.items()}
            for name, table in plan.tables.items()
            if isinstance(table, SumsPlan)
        },
        "scales": plan.scales,
        "tables": {
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
        },
        "accounting": preview.accounting,
        "policy": preview.policy.to_dict(),
        "sizes": sizes_as_json(_all_columns(plan), stated, checked.accountant.band),
        "caps_checked": checked.caps_checked,
        "allowed": refusal is None,
        "refusal": checked.refused,
        "notes": list(checked.notes),
    }


def sizes_as_json(
    columns: Sequence[ColumnPolicy], stated: Sequence["RecordSize"], band: float = BAND
) -> list[dict[str, Any]]:
    """Return what example records lose, through each column and in all."""
    rows = []
    for size in shown_sizes(columns, stated):
        explained = explain_columns(columns, size, band)
        if explained is None:
            continue
        losses = zip(columns, explained.losses, strict=True)
        rows.append(
            {
                "name": size.name,
                "stated": bool(stated),
                **({"count_assumed": not size.states_count} if any(one.counts_records for one in columns) else {}),
                "record": {column.name: size.value(column.name) for column in columns if not column.single},
                "losses": {column.name: _finite(loss.rho) for column, loss in losses},
                **explained.to_dict(),
            }
        )
    return rows


def _finite(number: float) -> float | None:
    """Return None in place of an infinity, which JSON does not have."""
    return number if math.isfinite(number) else None
