"""Commands that work on a plan: `check` tries it without reading records, `inspect` looks at the records for the
curator, `release` carries it out."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slowscale.cli.shared import AsJson, Overwrite, PlanFile, RecordSizes, check_terminal, confirm, echo, print_json

if TYPE_CHECKING:
    from slowscale.plan import Plan


def check(plan: PlanFile, sizes: RecordSizes = None, overwrite: Overwrite = False, as_json: AsJson = False) -> None:
    """Check everything except the data: files, columns, SQL, keys, outputs, caps; show the cost.

    If check passes, only the data can make `slowscale release` fail. With --overwrite, as there, existing outputs are
    no obstacle.
    """
    from slowscale.cli.printing import plan_as_json, show_caps, show_plan
    from slowscale.plan import check_plan, read_plan

    read = read_plan(plan)
    stated = read.sizes if sizes is None else read.check_sizes(sizes)
    checked = check_plan(read, overwrite)
    if as_json:
        print_json(plan_as_json(checked, stated))
    else:
        show_plan(checked, stated)
        account = checked.accountant.account
        if read.ledger is None:
            before = "There is no ledger: releases are not recorded, and their losses are not added up."
        elif account.charges:
            before = f"Before this release:\n{account.spent.describe(stated)}"
        else:
            before = "No release has been charged to the ledger before."
        echo(f"\n{before}")
        show_caps(checked)
        for file in checked.existing:
            echo(f"{file} exists: the release needs --overwrite.")
    for warning in checked.preview.warnings:
        echo(f"warning: {warning}", err=True)
    if checked.refusal is not None:
        raise checked.refusal


def inspect(
    plan: PlanFile,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write confidential HTML reports, which only you may read: FILE-TABLE.html for each drawn table.",
        ),
    ] = None,
    duplicates: Annotated[bool, typer.Option(help="Count exact copies of records, which reads all columns.")] = True,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """CONFIDENTIAL: look at the records before a release. Nothing is drawn, charged or written to the ledger."""
    from slowscale.cli.shared import writable_path
    from slowscale.plan import inspect_plan, read_plan

    read = read_plan(plan)
    reports = (
        {}
        if report is None
        else {name: report.with_name(f"{report.stem}-{name}{report.suffix}") for name in read.drawn}
    )
    for path in reports.values():
        writable_path(path, ".html", overwrite)
    if reports:
        from slowscale.publish.charts import tools

        tools()
    found = inspect_plan(read, duplicates)
    for name, one in found.items() if reports else ():
        echo(f"wrote {one.report(reports[name], overwrite=overwrite)} (confidential)", err=True)
    if as_json:
        print_json({name: one.to_dict() for name, one in found.items()})
        return
    for name, one in found.items():
        echo(f"Table {name}:\n{one!r}")


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
    finish: Annotated[
        bool,
        typer.Option(
            "--finish",
            help="Only write missing files of a release that was made, from its drawn tables that are on disk. No "
            "record is read, nothing is drawn or charged.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make the release that a plan describes: charge the ledger, draw the noise, write the tables and the report."""
    from slowscale.cli.printing import show_plan, show_release, show_scales
    from slowscale.core.errors import ParameterError
    from slowscale.plan import check_plan, finish_plan, read_plan, run_checked

    read = read_plan(plan)
    if finish:
        if confidential_report is not None:
            raise ParameterError(
                "--confidential-report needs the records, which --finish never reads",
                remedy="write it in Python, with release.confidential_report(path, session)",
            )
        finished, files = finish_plan(read, overwrite)
        if as_json:
            print_json({"files": [str(file) for file in files], "facts": finished.facts.to_dict()})
        else:
            echo("\n".join(f"wrote {file}" for file in files) or "No file is missing.")
        return
    checked = check_plan(read, overwrite, confidential_report)
    if not yes and checked.refusal is None:
        check_terminal("release")
        show_plan(checked, read.sizes)
        _offer_data_check(read)
        confirm("Release? What is spent cannot be taken back.", declined="not released, nothing spent")
    made, files = run_checked(checked)
    if as_json:
        print_json({"files": [str(file) for file in files], "facts": made.facts.to_dict(), "scales": read.scales})
    else:
        if yes:  # otherwise they were shown with the plan
            show_scales(read)
        show_release(made, files)


def _offer_data_check(plan: "Plan") -> None:
    """Offer a confidential look at the records before the question. The result is printed to a terminal only."""
    from slowscale.plan import describe_matches

    if not sys.stderr.isatty():
        return
    echo(
        "\nYou can check first whether records match the keys. This reads the records, and the result is "
        "confidential: it is printed here, and nowhere else.",
        err=True,
    )
    if typer.confirm("Check the records?", default=True, err=True):
        echo(describe_matches(plan), err=True)
