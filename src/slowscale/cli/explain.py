"""The command `explain`: what a record with given values loses, and what that means."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slowscale.cli.shared import AsJson, parse_assignment, print_json

if TYPE_CHECKING:
    from slowscale.accounting import Loss, RecordPolicy
    from slowscale.columns import ColumnPolicy
    from slowscale.facts import SetFacts


def explain(
    source: Annotated[
        Path, typer.Argument(metavar="RELEASE|PLAN", help="A released .parquet or .csv file, or a plan file.")
    ],
    value: Annotated[
        list[str],
        typer.Option(metavar="COLUMN=NUMBER", help="A value of the record, such as emp=12. Give one for each column."),
    ] = [],  # noqa: B006
    as_json: AsJson = False,
) -> None:
    """Explain what a record with these values loses, in numbers and in words."""
    from slowscale.cli.printing import bounds_as_json, show_explanation
    from slowscale.columns import meaning
    from slowscale.errors import ParameterError
    from slowscale.sizes import RecordSize

    policy, columns, entity, accounting, whole = _read(source)
    record = _parse_record(value, policy.columns)
    size = RecordSize("the record", tuple((name, abs(number)) for name, number in record.items()))
    explained = meaning(columns, size)
    assert explained is not None
    if not math.isfinite(explained.loss):
        raise ParameterError("the loss of a record with these values is too large to compute: give smaller values")
    if not as_json:
        show_explanation(record, columns, explained, policy.notion, entity)
        if whole is not None:
            _show_whole_set(whole, record, policy.notion)
        return
    # Several tables of a plan may have the same columns.
    losses: dict[str, list[Loss]] = {}
    for column, loss in zip(columns, explained.losses, strict=True):
        losses.setdefault(column.name, []).append(loss)
    counted = {column.name for column in columns if column.single}
    print_json(
        {
            "record": record,
            "notion": policy.notion,
            "accounting": accounting,
            "loss": explained.loss,
            "columns": {name: sum(loss.rho for loss in some) for name, some in losses.items() if name not in counted},
            "counts": sum(loss.rho for name in counted for loss in losses[name]),
            "pure": {name: _pure(some) for name, some in losses.items()},
            **bounds_as_json(explained),
            **({} if whole is None else {"table_set": whole.id, "loss_by_the_set": _loss_by(whole, record)}),
        }
    )


def _show_whole_set(whole: "SetFacts", record: dict[str, float], notion: str) -> None:
    """Print what the record loses by all tables that were published together with this one."""
    from slowscale.figures import figure

    loss = _loss_by(whole, record)
    words = (
        f"a record with these values loses {figure(loss)} ({notion})" if loss is not None else f"it is {whole.formula}"
    )
    typer.echo(
        f"This table is {whole.table}, one of {len(whole.tables)} tables of a set. The losses by all drawn tables "
        f"({', '.join(whole.drawn)}) add up; by the whole set, {words}."
    )


def _loss_by(whole: "SetFacts", record: dict[str, float]) -> float | None:
    """Return the loss of a record by a whole set, or None if it depends on columns that the table does not have."""
    from slowscale.accounting import RecordPolicy

    if whole.policy is None:
        return None
    policy = RecordPolicy.from_dict(whole.policy)
    return float(policy(record)) if set(policy.columns) <= set(record) else None


def _pure(losses: Sequence["Loss"]) -> float | None:
    """Return the total of pure losses, or None if one of them has no pure guarantee."""
    found = [loss.pure for loss in losses]
    return None if None in found else sum(pure for pure in found if pure is not None)


def _read(source: Path) -> tuple["RecordPolicy", Sequence["ColumnPolicy"], str | None, str, "SetFacts | None"]:
    """Return the policy of a plan or release, its columns, what is protected (None: records), the accounting, and the
    set of tables that a release belongs to.
    """
    from slowscale.columns import released_columns
    from slowscale.plan import read_plan
    from slowscale.release import read_release

    if source.suffix == ".toml":
        plan = read_plan(source)
        return plan.policy, plan.columns, plan.data.protect, plan.accounting, None
    made = read_release(source)
    facts = made.facts
    columns = released_columns(made.policy, facts)
    return made.policy, columns, facts.protect, facts.accounting, facts.table_set or None


def _parse_record(values: Sequence[str], columns: Sequence[str]) -> dict[str, float]:
    """Return the value of each column, from text such as emp=12."""
    from slowscale.errors import ParameterError

    record: dict[str, float] = {}
    needed = f"give one --value for each of {', '.join(columns)}"
    for text in values:
        name, number = parse_assignment(text, "--value", "emp=12")
        if name not in columns:
            raise ParameterError(f"{needed}, got {name}, which is not one of them")
        if name in record:
            raise ParameterError(f"{needed}, got {name} twice")
        if not math.isfinite(number):
            raise ParameterError(f"--value {name} must be a finite number, got {number}")
        record[name] = number
    missing = [name for name in columns if name not in record]
    if missing:
        raise ParameterError(f"{needed}, such as --value {missing[0]}=12; missing: {', '.join(missing)}")
    return record
