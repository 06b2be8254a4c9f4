"""Commands about a plan and its files: `init`, `schema` and `demo` to start with; `check`, `inspect` and `release`;
`serve` for the same in a browser; `keygen`, `sign` and `verify` for the files that are published."""

import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slowscale.cli.questions import ask_choices
from slowscale.cli.shared import (
    AsJson,
    Overwrite,
    PlanFile,
    RecordSizes,
    ask_yes,
    at_terminal,
    check_terminal,
    confirm,
    echo,
    options_of,
    print_json,
    terminal_width,
    writable_path,
)
from slowscale.core.markup import is_unicode

if TYPE_CHECKING:
    from slowscale.plan import Plan
    from slowscale.release.supplied import SuppliedSums

UNRECORDED = "There is no ledger: nothing is recorded, and losses of repeated releases are not added up."


def init(
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA", help="The data to write a plan for: a file, or the address of a database table."
        ),
    ] = None,
    path: Annotated[
        Path | None, typer.Argument(metavar="PLAN", help="The plan file to write; plan.toml by default.")
    ] = None,
    no_questions: Annotated[
        bool,
        typer.Option("--no-questions", "--yes", "-y", help="Ask nothing: write what is known, and list what is open."),
    ] = False,
    overwrite: Overwrite = False,
) -> None:
    """Write a plan file for DATA: at a terminal, ask what it needs, choose the noise, and check it. Enter takes the
    answer in brackets, ? explains. Without a terminal, the choices are left open. Without DATA, write an example.
    """
    from slowscale.core.errors import ParameterError
    from slowscale.core.files import write_files
    from slowscale.plan import EXAMPLE
    from slowscale.plan.starting import PlannedData, chosen_plan, starting_plan

    if data is not None and path is None and data.lower().endswith(".toml"):  # `slowscale init PLAN`
        path, data = Path(data), None
    path = path or Path("plan.toml")
    named = [] if data is None else [data]
    for one in (*named, str(path)):
        if not is_unicode(one):
            problem = "has bytes in its name that are not text in UTF-8"
            raise ParameterError(one, problem, code="encoding", remedy="rename it")
    if path.is_dir():
        remedy = f"name the plan: slowscale init {shlex.join([*named, str(path / 'plan.toml')])}"
        raise ParameterError(path, "is a folder", code="exists", remedy=remedy)
    if data is not None:
        _check_data(data, path)
    quoted = shlex.quote(str(path))
    if os.path.lexists(path) and not overwrite:
        another = f"`slowscale init {shlex.join([*named, 'OTHER.toml'])}` writes another one"
        remedy = f"`slowscale check {quoted}` checks it, {another}, --overwrite replaces it"
        raise ParameterError(path, "exists", code="exists", remedy=remedy)
    path = writable_path(path, ".toml", overwrite)
    if data is None:
        write_files({path: lambda place: place.write_text(EXAMPLE, encoding="utf-8")}, overwrite=overwrite)
        echo(f"wrote {path}, an example: edit it, then `slowscale check {quoted}`. For your data: slowscale init DATA")
        return
    asked = at_terminal() and not no_questions
    try:
        planned = PlannedData.of(data, path)
    except ParameterError as error:
        if error.code != "first-line" or not asked:
            raise
        echo(f"{data}: the first line may be a record, because a number or a date is in it.", err=True)
        planned = PlannedData.of(data, path, not ask_yes("Is the first line a record?", default=True, err=True))
    for note in planned.notes:
        echo(note)
    text = chosen_plan(planned, ask_choices(planned, path.parent)) if asked else starting_plan(planned)
    write_files({path: lambda place: place.write_text(text, encoding="utf-8")}, overwrite=overwrite)
    if not asked:
        echo(f"wrote {path}: edit it, then `slowscale check {quoted}`")
        echo(
            "open: the public cells ([tables.cells] keys), the columns to sum and their noise "
            "([tables.cells.sums.COLUMN]; `slowscale advise` recommends one), caps ([ledger.caps]). At a terminal, "
            "init asks for them."
        )
        return
    echo(f"\nwrote {path}. Checking it:\n")
    check(path)
    echo(f"\nTo change something, edit {path}, which explains every choice.\nThen: slowscale release {quoted}")


def _check_data(data: str, plan: Path) -> None:
    """Raise if the data of a new plan does not exist, or is the plan."""
    from slowscale.core.errors import ParameterError
    from slowscale.data.sources import matching_files

    if data.lower().endswith(".toml"):
        problem, other = "is a plan, and not data", shlex.join([str(plan), data])
        remedy = f"the data comes first: slowscale init {other}"
        raise ParameterError(f"DATA: {data}", problem, code="not-data", remedy=remedy)
    place = data.partition("://")[2].rpartition("#")[0] if "://" in data else data
    found = [place] if "://" in data else matching_files(data, "DATA")
    if any(os.path.realpath(file) == os.path.realpath(plan) for file in [place, *found]):
        raise ParameterError(plan, "is the data itself", code="conflict", remedy="choose another name for the plan")


def schema() -> None:
    """Print the JSON schema of plan files, for editors."""
    from slowscale.plan import Plan

    echo(json.dumps(Plan.model_json_schema(), indent=2))


def check(plan: PlanFile, sizes: RecordSizes = None, overwrite: Overwrite = False, as_json: AsJson = False) -> None:
    """Check everything except the data: files, columns, SQL, keys, outputs, caps; show the cost.

    If check passes, only the data can make `slowscale release` fail. With --overwrite, as there, existing outputs are
    no obstacle.
    """
    from slowscale.cli.printing import plan_as_json, show_caps, show_notes, show_plan
    from slowscale.plan import check_plan, read_plan

    read = read_plan(plan)
    stated = read.sizes if sizes is None else read.check_sizes(sizes, "--sizes")
    checked = check_plan(read, overwrite)
    if as_json:
        print_json(plan_as_json(checked, stated))
    else:
        show_plan(checked, stated)
        account = checked.accountant.account
        if read.ledger is None:
            before = UNRECORDED
        elif account.charges:
            before = f"Before this release:\n{account.spent.describe(stated, terminal_width())}"
        else:
            before = "No release has been charged to the ledger before."
        echo(f"\n{before}")
        show_caps(checked)
        for file in checked.existing:
            echo(f"{file} exists{', and will be replaced' if overwrite else ': the release needs --overwrite'}.")
        show_notes(checked)
    for warning in checked.preview.warnings:
        echo(f"warning: {warning}", err=True)
    checked.raise_refusal()


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
    dominance: Annotated[
        bool,
        typer.Option(help="Count open cells, whose total tells the value of a contributor, before and after noise."),
    ] = True,
    p: Annotated[
        float, typer.Option(help="p % rule: how closely the largest contributor may not be known; 0.1 is 10 %.")
    ] = 0.1,
    n: Annotated[int, typer.Option(help="(n, k)-dominance: the number of contributors.")] = 2,
    k: Annotated[float, typer.Option(help="(n, k)-dominance: the share of the total that they may have.")] = 0.85,
    probability: Annotated[
        float, typer.Option(help="After the noise, a cell is open if an estimate is that close with more probability.")
    ] = 0.5,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Check the data before a release (CONFIDENTIAL). Nothing is drawn, charged or written to the ledger."""
    from slowscale.plan import inspect_plan, read_plan
    from slowscale.release.dominance import Dominance

    with options_of(inspect):
        rules = Dominance(p=p, n=n, k=k, probability=probability) if dominance else None
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
    found = inspect_plan(read, duplicates, rules)
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
    sums: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[TABLE=]FILE",
            help="Take the exact sums from this Parquet file, the result of the SQL that `slowscale sql` prints, on "
            "your word; no record is read. Once for each drawn table, with its name if there are several.",
        ),
    ] = None,
    manifest: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --sums: the manifest that `slowscale sql` wrote.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make the release that a plan describes: charge the ledger, draw the noise, write the tables and the report."""
    from slowscale.cli.printing import show_notes, show_plan, show_release, show_scales
    from slowscale.core.errors import ParameterError
    from slowscale.plan import check_plan, finish_plan, read_plan, run_checked

    read = read_plan(plan)
    supplied = _supplied(read, sums, manifest)
    if supplied is not None and (finish or confidential_report is not None):
        other, remedy = ("--finish" if finish else "--confidential-report"), "leave one of them out"
        problem = f"cannot be combined with {other}, which {'reads no sums' if finish else 'needs the records'}"
        raise ParameterError("--sums", problem, code="conflict", remedy=remedy)
    if finish:
        if confidential_report is not None:
            raise ParameterError(
                "--confidential-report",
                "needs the records, which --finish never reads",
                code="conflict",
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
        if read.ledger is None:
            echo(f"\n{UNRECORDED}")
        show_notes(checked)
        if supplied is None:
            _offer_data_check(read)
        confirm("Release? What is spent cannot be taken back.", declined="not released, nothing spent")
    elif checked.refusal is None:
        show_notes(checked, err=True)
    made, files = run_checked(checked, supplied)
    if as_json:
        print_json({"files": [str(file) for file in files], "facts": made.facts.to_dict(), "scales": read.scales})
    else:
        if yes:  # otherwise they were shown with the plan
            show_scales(read)
        show_release(made, files, read)


def _supplied(plan: "Plan", sums: list[str] | None, manifest: Path | None) -> "SuppliedSums | None":
    """Return the sums that the options of `release` supply, or None."""
    from slowscale.core.errors import ParameterError
    from slowscale.release.supplied import SuppliedSums

    if not sums or manifest is None:
        if sums or manifest is not None:
            problem = f"is needed with {'--sums' if sums else '--manifest'}"
            raise ParameterError("--manifest" if sums else "--sums", problem, code="missing")
        return None
    files = {}
    for text in sums:
        name, equals, file = text.partition("=")
        if not (equals and name in plan.drawn):
            name, file = next(iter(plan.drawn)), text
            if len(plan.drawn) > 1:
                given = f"TABLE=FILE with one of the drawn tables {', '.join(plan.drawn)}"
                raise ParameterError("--sums", allowed=given, given=text)
        if name in files:
            raise ParameterError("--sums", f"is given twice for the table {name!r}", code="duplicate")
        files[name] = file
    return SuppliedSums(files, manifest)


def sql(
    plan: PlanFile,
    dialect: Annotated[
        str | None,
        typer.Option(metavar="duckdb|postgres|pyspark", help="The dialect; by default that of the plan's data."),
    ] = None,
    manifest: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write the manifest (JSON) that `slowscale release --sums` needs."),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Print the SQL that computes the exact sums of each drawn table, to run or to translate where the library cannot.

    No record is read, and nothing is charged. The result of the SQL is confidential. Write it to a Parquet file for
    `slowscale release PLAN --sums FILE --manifest FILE`.
    """
    from slowscale.core.files import write_files
    from slowscale.plan import plan_sql, read_plan

    with options_of(sql):
        found = plan_sql(read_plan(plan), dialect)
    if manifest is not None:
        text = json.dumps(found.manifest, indent=2, ensure_ascii=False) + "\n"
        path = writable_path(manifest, ".json", overwrite)
        write_files({path: lambda place: place.write_text(text, encoding="utf-8")}, overwrite=overwrite)
        echo(f"wrote {path}", err=True)
    echo(str(found))


def _offer_data_check(plan: "Plan") -> None:
    """Offer a data check (confidential) before the question. The result is printed to a terminal only."""
    from slowscale.plan import describe_matches

    if not sys.stderr.isatty():
        return
    echo(
        "\nYou can check first whether records match the keys. This reads the records, and the result is "
        "confidential: it is printed here, and nowhere else.",
        err=True,
    )
    if ask_yes("Check the records?", default=True, err=True):
        echo(describe_matches(plan), err=True)


def serve(
    plan: Annotated[
        Path, typer.Argument(metavar="PLAN", help="The plan file to work on; made if it does not exist.")
    ] = Path("plan.toml"),
    allow: Annotated[
        list[Path] | None,
        typer.Option(metavar="PATH", help="A further file or folder that may be read, outside the folder of the plan."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes any free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the browser.")] = True,
) -> None:
    """Open the workbench: the whole path from data to a published table, in a browser on this machine."""
    from slowscale.core.errors import EngineError, ParameterError, install_hint

    try:
        from slowscale.workbench.server import run
    except ModuleNotFoundError as error:
        problem, remedy = f"needs {error.name}", install_hint("workbench")
        raise EngineError("the workbench", problem, code="not-installed", remedy=remedy) from None
    if plan.suffix.lower() != ".toml":
        hint = f"for data, `slowscale init {plan}` writes a plan" if plan.exists() else None
        raise ParameterError("PLAN", allowed="a file that ends in .toml", given=str(plan), remedy=hint)
    if not plan.parent.is_dir():
        raise ParameterError(plan.parent, "does not exist", code="missing", remedy="create the folder first")
    run(plan, tuple(allow or ()), port, browser, echo)


def keygen(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Writes NAME.key and NAME.pub.")],
    passphrase: Annotated[
        bool,
        typer.Option(
            "--passphrase",
            help="Encrypt the secret key. The passphrase is that of the environment variable SLOWSCALE_KEY_PASSPHRASE, "
            "or is asked for.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a pair of minisign keys: a secret one that signs, and a public one that verifies. Nothing is overwritten."""
    from slowscale.publish.minisign import PASSPHRASE_VARIABLE, keygen, read_public_key

    phrase = os.environ.get(PASSPHRASE_VARIABLE) or None
    if passphrase and phrase is None:
        phrase = _ask_passphrase("Passphrase for the new secret key", confirm=True)
    secret, public = keygen(name, phrase)
    shown = str(read_public_key(public))
    if as_json:
        print_json({"secret": str(secret), "public": str(public), "key": shown})
        return
    echo(f"wrote {secret}: keep it secret" + ("" if phrase is None else "; its passphrase is needed, too"))
    echo(f"wrote {public}: publish it, also in a second place that readers trust: {shown}")


def sign(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH…", help="A folder, or files in one folder. The facts of a CSV file are added."),
    ],
    key: Annotated[Path, typer.Option(metavar="FILE", help="The secret key.")],
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Sign published files: write SHA256SUMS and SHA256SUMS.minisig beside them.

    The passphrase of an encrypted key is that of the environment variable SLOWSCALE_KEY_PASSPHRASE, or is asked for.
    """
    from slowscale.publish.minisign import needs_passphrase, read_secret_key
    from slowscale.publish.signing import sign

    asked = _ask_passphrase(f"Passphrase of {key}") if needs_passphrase(key) and sys.stdin.isatty() else None
    made = sign(paths, key, passphrase=asked, overwrite=overwrite)
    shown = str(read_secret_key(key, asked).public)
    if as_json:
        print_json({"files": [str(file) for file in made], "key": shown})
        return
    echo(f"wrote {' and '.join(map(str, made))}, signed by the key {shown}")


def verify(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A folder with a signature, or a file in it.")],
    key: Annotated[
        Path, typer.Option(metavar="FILE", help="The signer's public key. Get it from a source that you trust.")
    ],
    as_json: AsJson = False,
) -> None:
    """Check the signature of a folder, and that the listed files in it match. Exit with code 7 if they do not."""
    from slowscale.core.errors import SignatureError
    from slowscale.publish.signing import verify

    try:
        found = verify(path, key)
    except SignatureError as error:
        if not as_json:
            raise
        print_json({"verified": False, "problem": str(error), "code": error.code, "file": error.file})
        raise typer.Exit(7) from None
    if as_json:
        print_json(found.to_dict())
    else:
        echo(str(found))


def _ask_passphrase(question: str, confirm: bool = False) -> str:
    """Ask for a passphrase, which is not shown, or raise where nobody can answer."""
    from slowscale.core.errors import ParameterError

    if not sys.stdin.isatty():
        raise ParameterError(
            "the passphrase",
            "cannot be asked for, because standard input is not a terminal",
            code="missing",
            remedy="set the environment variable SLOWSCALE_KEY_PASSPHRASE",
        )
    return str(typer.prompt(question, hide_input=True, confirmation_prompt=confirm))
