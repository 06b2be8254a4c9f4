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
    """Check all that a release needs short of the records: files, columns, SQL, keys, outputs, caps; show its cost.

    What passes is refused by `slowscale release` only because of what the records hold. With --overwrite, as there,
    existing outputs are no obstacle.
    """
    from slowscale.cli.printing import set_as_json, show_caps, show_plan, show_set, sizes_as_json
    from slowscale.core.errors import CapError
    from slowscale.plan import check_plan, read_plan

    read = read_plan(plan)
    stated = read.sizes if sizes is None else read.check_sizes(sizes)
    checked = check_plan(read, overwrite)
    account, refusal = checked.account, checked.refusal  # raised below, after what is known of the plan is printed
    if as_json:
        mechanisms = {
            table: {name: mechanism.to_dict() for name, mechanism in single.mechanisms.items()}
            for table, single in read.drawn.items()
        }
        print_json(
            {
                "mechanisms": mechanisms if read.is_set else next(iter(mechanisms.values())),
                "scales": read.scales,
                **({} if checked.preview is None else {"tables": set_as_json(checked.preview)}),
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
        if checked.preview is not None:
            show_set(read, checked.preview, stated)
        if read.ledger is None:
            before = "There is no ledger: releases are not recorded, and their losses are not added up."
        elif account.charges:
            before = f"Before this release:\n{account.spent.describe(stated)}"
        else:
            before = "No release has been charged to the ledger before."
        echo(f"\n{before}")
        show_caps(account, read.published, checked.caps_checked, refused=isinstance(refusal, CapError))
        if not checked.columns_checked:
            echo("The columns of the data are checked when the release is made: this kind of file has no schema.")
        for file in checked.existing:
            echo(f"{file} exists: the release needs --overwrite.")
    if refusal is not None:
        raise refusal


def inspect(
    plan: PlanFile,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write a confidential HTML report, which only you may read; for several tables one for each "
            "drawn table, FILE-table.html.",
        ),
    ] = None,
    duplicates: Annotated[bool, typer.Option(help="Count exact copies of records, which reads all columns.")] = True,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """CONFIDENTIAL: look at the records before a release. Nothing is drawn, charged or written to the ledger."""
    from dataclasses import replace

    from slowscale.cli.shared import writable_path
    from slowscale.plan import inspect_tables, read_plan
    from slowscale.plan.wording import in_plan_words

    read = read_plan(plan)
    if report is not None:
        from slowscale.publish.charts import tools

        for name in read.drawn:
            writable_path(_report_path(report, name, read), ".html", overwrite)
        tools()
    found = {
        name: replace(one, refusals=tuple(map(in_plan_words, one.refusals)))
        for name, one in inspect_tables(read, duplicates).items()
    }
    for name, one in found.items() if report is not None else ():
        assert report is not None
        written = one.report(_report_path(report, name, read), overwrite=overwrite)
        echo(f"wrote {written} (confidential)", err=True)
    if as_json:
        as_dicts = {name: one.to_dict() for name, one in found.items()}
        print_json(as_dicts if read.is_set else next(iter(as_dicts.values())))
        return
    for name, one in found.items():
        if read.is_set:
            echo(f"Table {name}:")
        echo(repr(one))


def _report_path(report: Path, name: str, plan: "Plan") -> Path:
    """Return where the report on a drawn table goes."""
    return report.with_name(f"{report.stem}-{name}{report.suffix}") if plan.is_set else report


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
    """Make the release that a plan describes: charge the ledger, draw the noise, write the table and the report."""
    from slowscale.cli.printing import show_plan, show_release, show_scales, show_set
    from slowscale.core.errors import ParameterError
    from slowscale.plan import check_outputs, check_room, finish_plan, open_account, preview_plan, read_plan, run_plan

    read = read_plan(plan)
    if finish:
        if confidential_report is not None:
            raise ParameterError(
                "--confidential-report needs the records, which --finish never reads; write it in Python, with "
                "release.confidential_report(path, session)"
            )
        finished, files = finish_plan(read, overwrite)
        if as_json:
            print_json({"files": [str(file) for file in files], "facts": finished.facts.to_dict()})
        else:
            echo("\n".join(f"wrote {file}" for file in files) or "No file is missing.")
        return
    check_outputs(read, overwrite, confidential_report)
    check_room(read)
    if not yes:
        check_terminal("release")
        show_plan(read, read.sizes)
        if read.is_set:
            show_set(read, preview_plan(read, open_account(read)), read.sizes)
        _offer_data_check(read)
        confirm("Release? What is spent cannot be taken back.", declined="not released, nothing spent")
    made, files = run_plan(read, overwrite, confidential_report)
    if as_json:
        print_json({"files": [str(file) for file in files], "facts": made.facts.to_dict(), "scales": read.scales})
    else:
        if yes:  # otherwise they were shown with the plan
            show_scales(read)
        show_release(made, files)


def _offer_data_check(plan: "Plan") -> None:
    """Offer a confidential look at the records before the question. What it finds is printed to a terminal only."""
    from slowscale.plan import describe_matches

    if not sys.stderr.isatty():
        return
    echo(
        "\nYou can check first whether records match the keys. This reads the records, and what it finds is "
        "confidential: it is printed here, and nowhere else.",
        err=True,
    )
    if typer.confirm("Check the records?", default=True, err=True):
        echo(describe_matches(plan), err=True)
