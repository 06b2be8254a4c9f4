"""Commands that work on a plan: `check` tries it without reading records, `inspect` looks at the records for the
curator, `release` carries it out."""

from pathlib import Path
from typing import Annotated

import typer

from slowscale.cli.shared import AsJson, Overwrite, PlanFile, RecordSizes, check_terminal, confirm, print_json


def check(plan: PlanFile, sizes: RecordSizes = None, overwrite: Overwrite = False, as_json: AsJson = False) -> None:
    """Check all that a release needs short of the records: files, columns, SQL, keys, outputs, caps; show its cost.

    What passes is refused by `slowscale release` only because of what the records hold. With --overwrite, as there,
    existing outputs are no obstacle.
    """
    from slowscale.cli.printing import show_caps, show_plan, sizes_as_json
    from slowscale.errors import CapError
    from slowscale.plan import check_plan, read_plan

    read = read_plan(plan)
    stated = read.sizes if sizes is None else read.check_sizes(sizes)
    checked = check_plan(read, overwrite)
    account, refusal = checked.account, checked.refusal  # raised below, after what is known of the plan is printed
    if as_json:
        print_json(
            {
                "mechanisms": {name: mechanism.to_dict() for name, mechanism in read.mechanisms.items()},
                "scales": read.scales,
                "accounting": read.accounting,
                "policy": read.policy.to_dict(),
                "sizes": sizes_as_json(read.columns, stated),
                "columns_checked": checked.columns_checked,
                "caps_checked": checked.caps_checked,
                "allowed": refusal is None,
                "refusal": None if refusal is None else str(refusal),
            }
        )
    else:
        show_plan(read, stated)
        before = f"Before this release:\n{account.spent.describe(stated)}"
        typer.echo(f"\n{before}" if account.charges else "\nNothing was released before.")
        show_caps(account, list(read.mechanisms), checked.caps_checked, refused=isinstance(refusal, CapError))
        if not checked.columns_checked:
            typer.echo("The columns of the data are checked when the release is made: this kind of file has no schema.")
        for file in checked.existing:
            typer.echo(f"{file} exists: the release needs --overwrite.")
    if refusal is not None:
        raise refusal


def inspect(
    plan: PlanFile,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write a confidential HTML report, which only you may read."),
    ] = None,
    duplicates: Annotated[bool, typer.Option(help="Count exact copies of records, which reads all columns.")] = True,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """CONFIDENTIAL: look at the records before a release. Nothing is drawn, charged or written to the ledger."""
    from dataclasses import replace

    from slowscale.cli.app import in_plan_words
    from slowscale.cli.shared import writable_path
    from slowscale.plan import inspect_plan, read_plan

    read = read_plan(plan)
    if report is not None:
        from slowscale.report import check_tools

        writable_path(report, ".html", overwrite)
        check_tools()
    found = inspect_plan(read, duplicates)
    found = replace(found, refusals=tuple(map(in_plan_words, found.refusals)))
    if report is not None:
        typer.echo(f"wrote {found.report(report, overwrite=overwrite)} (confidential)", err=True)
    if as_json:
        print_json(found.to_dict())
    else:
        typer.echo(repr(found))


def release(
    plan: PlanFile,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Release without asking for confirmation.")] = False,
    overwrite: Overwrite = False,
    confidential_report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Also write a report on the records' losses. Confidential: for the curator only."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make the release that a plan describes: charge the ledger, draw the noise, write the table and the report."""
    from slowscale.cli.printing import show_plan, show_release, show_scales
    from slowscale.plan import check_outputs, check_room, read_plan, run_plan

    read = read_plan(plan)
    check_outputs(read, overwrite, confidential_report)
    check_room(read)
    if not yes:
        check_terminal("release")
        show_plan(read, read.sizes)
        confirm("Release? What is spent cannot be taken back.", declined="not released, nothing spent")
    made, files = run_plan(read, overwrite, confidential_report)
    if as_json:
        print_json({"files": [str(file) for file in files], "facts": made.facts.to_dict(), "scales": read.scales})
    else:
        if yes:  # otherwise they were shown with the plan
            show_scales(read)
        show_release(made, files)
