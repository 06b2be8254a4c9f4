"""The command `explain`: what a record with given values loses, and what that means."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slowscale.cli.shared import AsJson, parse_assignment, print_json

if TYPE_CHECKING:
    from slowscale.accounting import Loss, RecordPolicy
    from slowscale.release.columns import ColumnPolicy


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
    from slowscale.accounting.sizes import RecordSize, check_count
    from slowscale.cli.printing import show_explanation
    from slowscale.core.errors import ParameterError
    from slowscale.release.columns import explain_columns

    policy, columns, entity, accounting = _read(source)
    record = _parse_record(value, policy.columns)
    check_count(record, "--value")
    size = RecordSize("the record", tuple((name, abs(number)) for name, number in record.items()))
    explained = explain_columns(columns, size)
    assert explained is not None
    if not math.isfinite(explained.loss):
        raise ParameterError("the loss at these values is too large to compute: give smaller values")
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
            "columns": {name: sum(loss.rho for loss in some) for name, some in losses.items() if name not in counted},
            "counts": sum(loss.rho for name in counted for loss in losses[name]),
            "pure": {name: _pure(some) for name, some in losses.items()},
            **explained.to_dict(),
        }
    )


def _pure(losses: Sequence["Loss"]) -> float | None:
    """Return the total of pure losses, or None if one of them has no pure guarantee."""
    found = [loss.pure for loss in losses]
    return None if None in found else sum(pure for pure in found if pure is not None)


def _read(source: Path) -> tuple["RecordPolicy", Sequence["ColumnPolicy"], str | None, str]:
    """Return the policy of a plan, or of the whole release that a file belongs to, the columns of its drawn tables,
    what is protected (None: records), and the accounting.
    """
    from slowscale.plan import read_plan
    from slowscale.plan.checking import check_has_tables
    from slowscale.release import read_release
    from slowscale.release.columns import drawn_columns

    if source.suffix == ".toml":
        plan = read_plan(source)
        check_has_tables(plan)
        columns = [column for some in plan.columns.values() for column in some]
        return plan.policy, columns, plan.data.protect, plan.release.accounting
    made = read_release(source)
    return made.policy, drawn_columns(made), made.facts.protect, made.facts.accounting


def _parse_record(values: Sequence[str], columns: Sequence[str]) -> dict[str, float]:
    """Return the value of each column, from text such as emp=12."""
    from slowscale.core.errors import ParameterError

    record: dict[str, float] = {}
    needed = f"give one --value for each of {', '.join(columns)}"
    for text in values:
        name, number = parse_assignment(text, "--value", "emp=12")
        if name not in columns:
            raise ParameterError(f"{needed}, got {name}, which is not one of them")
        if name in record:
            raise ParameterError(f"{needed}, got {name} twice")
        if not math.isfinite(number):
            raise ParameterError(f"--value {name}", allowed="a finite number", given=number)
        record[name] = number
    missing = [name for name in columns if name not in record]
    if missing:
        raise ParameterError(f"{needed}, such as --value {missing[0]}=12", remedy=f"missing: {', '.join(missing)}")
    return record
