"""The commands by name, the entry point, and errors with their exit codes."""

import sys
import warnings
from collections.abc import Callable
from typing import Annotated

import typer

from slowscale.cli.ledgers import explain, history, set_cap, set_largest, show
from slowscale.cli.ledgers import verify as verify_ledger
from slowscale.cli.mechanisms import advise, calibrate, compare, study
from slowscale.cli.plans import check, demo, init, inspect, keygen, release, schema, serve, sign, verify
from slowscale.cli.quantiles import quantiles
from slowscale.cli.shared import echo
from slowscale.core.interrupts import interruptible

INTERRUPTED = 130
# Any other SlowscaleError: 2. Code 6 is a question that was not answered with yes.
EXIT_CODES = {
    "CapError": 4,
    "LedgerError": 5,
    "DataError": 3,
    "EngineError": 3,
    "SignatureError": 7,
    "IncompleteError": 8,
}


app = typer.Typer(
    help="Publish sums of skewed data under per-record differential privacy.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# In the order in which --help lists them.
COMMANDS: dict[Callable[..., None], str] = {
    advise: "Recommend a mechanism.",
    init: "Write a plan file to edit.",
    check: "Check a plan without its data, and show the cost.",
    inspect: "Check the data before a release (CONFIDENTIAL).",
    release: "Make the release that a plan describes.",
    explain: "Explain the loss of a record.",
    keygen: "Make a pair of keys for signatures.",
    sign: "Sign published files.",
    verify: "Check a signature.",
    quantiles: "Release private quantiles of record sizes.",
    compare: "Compare mechanisms that have the same error.",
    calibrate: "Solve for the parameter that meets a target.",
    demo: "Publish simulated data.",
    serve: "Open the workbench in a browser.",
    study: "Carry out the paper's experiments.",
    schema: "Print the JSON schema of plan files.",
}
for command in COMMANDS:
    app.command(short_help=COMMANDS[command])(command)

ledger_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
for ledger_command in (show, history, verify_ledger, set_cap, set_largest):
    ledger_app.command()(ledger_command)
app.add_typer(ledger_app, name="ledger", help="Show or verify a ledger, or change a cap or a largest value.")


def _print_version(asked: bool) -> None:
    if asked:
        from slowscale import __version__

        echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    # `main` handles --debug, wherever it stands; it is declared here for --help.
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command. An error is printed on one line to stderr, or with its traceback if --debug is given."""
    debug = "--debug" in sys.argv
    if debug:
        sys.argv.remove("--debug")
    warnings.showwarning = lambda message, *_: echo(f"warning: {message}", err=True)
    try:
        with interruptible():
            code = app(prog_name="slowscale", standalone_mode=False)
    except typer.Exit as stopped:
        code = stopped.exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except Exception as error:
        if debug:
            raise
        code = _report_error(error)
    if code == INTERRUPTED:  # Typer returns this code, too, instead of raising KeyboardInterrupt
        echo("\ninterrupted: what was charged stays charged, and no file is half written", err=True)
    sys.exit(code)


def _report_error(error: Exception) -> int:
    """Print what went wrong, and return the exit code."""
    from slowscale.core.errors import SlowscaleError

    if isinstance(error, SlowscaleError):
        message, code = str(error), EXIT_CODES.get(type(error).__name__, 2)
    elif hasattr(error, "format_message"):  # Typer's errors: a wrong command, option or argument
        if type(error).__name__ == "NoArgsIsHelpError":  # no command was given: its message is the help
            echo(error.format_message())
            return 2
        context = getattr(error, "ctx", None)
        place = "slowscale" if context is None else context.command_path
        message, code = f"{error.format_message()} (see {place} --help)", 2
    elif isinstance(error, OSError):
        message, code = str(error), 2
    else:
        message = f"{type(error).__name__}: {error} (this is a bug in slowscale; --debug shows the traceback)"
        code = 1
    echo(f"error: {message}", err=True)
    return code
