"""The commands by name, the entry point, and errors with their exit codes."""

import os
import re
import sys
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer
import typer.core
import typer.main

from slowscale.cli.demo import demo
from slowscale.cli.ledgers import explain, history, set_cap, set_largest, show
from slowscale.cli.ledgers import verify as verify_ledger
from slowscale.cli.mechanisms import advise, calibrate, compare, study
from slowscale.cli.plans import check, init, inspect, keygen, release, schema, serve, sign, sql, verify
from slowscale.cli.quantiles import quantiles
from slowscale.cli.readers import difference, growth, share
from slowscale.cli.shared import echo, print_every_letter
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


FLAGS = {"--yes", "-y", "--overwrite", "--json"}
NUMBER_WORDS = {
    "float_parsing": "a number such as 75, 0.05 or 4e10, without unit, % or thousands separators",
    "int_parsing": "a whole number such as 10",
}


# What other programs call these commands and options.
OTHER_NAMES = {"publish": "release", "run": "release", "validate": "check", "new": "init", "start": "init"}
OTHER_OPTIONS = {"--force": "--overwrite", "--replace": "--overwrite", "--confirm": "--yes"}


class _Commands(typer.core.TyperGroup):
    """A group whose help lists the commands by purpose, and which knows what a wrong command may mean."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands under the headings of their panels."""
        panels: dict[str, list[tuple[str, str]]] = {panel: [] for panel in COMMANDS}
        for name in self.list_commands(ctx):
            command = self.commands[name]
            panel = getattr(command, "rich_help_panel", None)
            heading = panel if isinstance(panel, str) else "Commands"
            panels.setdefault(heading, []).append((name, command.get_short_help_str(200)))
        for heading, rows in panels.items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command, or raise an error that says what a word may mean that is not a command."""
        name = args[0]
        if name not in self.commands:
            if name in ("help", "version"):
                ctx.fail(f"No such command {name!r}. Did you mean {ctx.command_path} --{name}?")
            if name in OTHER_NAMES:
                ctx.fail(f"No such command {name!r}. Did you mean {OTHER_NAMES[name]!r}?")
            if name.endswith((".toml", ".ledger", ".csv", ".parquet", ".xlsx")):
                verb = {".toml": "check", ".ledger": "ledger show"}.get(os.path.splitext(name)[1], "init")
                ctx.fail(f"A command is missing before {name!r}. Did you mean slowscale {verb} {name}?")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_Commands,
    help="Publish sums of skewed data under per-record differential privacy.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# By the heading under which --help lists them.
COMMANDS: dict[str, dict[Callable[..., None], str]] = {
    "Publish": {
        advise: "Recommend a mechanism.",
        init: "Write a plan: asks for what it needs, and chooses the noise.",
        check: "Check a plan without its data, and show the cost.",
        inspect: "Check the data before a release (CONFIDENTIAL).",
        release: "Make the release that a plan describes.",
        sql: "Print the SQL of the exact sums, to run elsewhere.",
        explain: "Explain the loss of a record.",
        quantiles: "Release private quantiles of record sizes.",
        serve: "Open the workbench: all of this in a browser.",
    },
    "Ledger": {},
    "Signatures": {
        keygen: "Make a pair of keys for signatures.",
        sign: "Sign published files.",
        verify: "Check a signature.",
    },
    "For readers": {
        growth: "Compute growth from two published tables.",
        difference: "Compute differences of two published tables.",
        share: "Compute shares from a published table.",
    },
    "Tools": {
        compare: "Compare mechanisms that have the same error.",
        calibrate: "Solve for the parameter that meets a target.",
        demo: "Publish simulated data.",
        study: "Carry out the paper's experiments.",
        schema: "Print the JSON schema of plan files.",
    },
}
ledger_app = typer.Typer(cls=_Commands, no_args_is_help=True, rich_markup_mode=None)
for ledger_command in (show, history, verify_ledger, set_cap, set_largest):
    ledger_app.command()(ledger_command)
for panel in COMMANDS:
    for command in COMMANDS[panel]:
        app.command(short_help=COMMANDS[panel][command], rich_help_panel=panel)(command)
LEDGER_HELP = "Show or verify a ledger, or change a cap or a largest value."
app.add_typer(ledger_app, name="ledger", help=LEDGER_HELP, rich_help_panel="Ledger")


CHARGING = ("release", "quantiles", "serve", "demo")  # the commands that charge a ledger


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
    print_every_letter()
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
        command = _command_path().partition(" ")[2]
        before = "what was charged stays charged" if command in CHARGING else "nothing was charged"
        what = "the workbench is stopped" if command == "serve" else "interrupted"
        echo(f"\n{what}: {before}, and no file is half written", err=True)
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
        place = _command_path() if context is None else context.command_path
        message, code = f"{_usage_words(error)} (see {place} --help)", 2
    elif isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":
        message, code = "an argument or a path has bytes that are not text in UTF-8: rename it", 2
    elif isinstance(error, OSError):
        message, code = str(error), 2
    else:
        message = f"{type(error).__name__}: {error} (this is a bug in slowscale; --debug shows the traceback)"
        code = 1
    echo(f"error: {message}", err=True)
    return code


def _usage_words(error: Any) -> str:
    """Return what is wrong with a command, an option or an argument, and what to write instead."""
    words, parameter = str(error.format_message()).rstrip("."), getattr(error, "param", None)
    typed = [text for text in sys.argv[1:] if text.startswith(("–", "—", "-–", "-—", "−"))]
    if typed:
        return f"{words}. The dash in {typed[0]} is not a hyphen: write --{typed[0].lstrip('-–—−')}"
    if words.startswith("Missing ") and parameter is not None and parameter.help:
        return f"{words}: {parameter.help.rstrip('.')}"
    cause: list[Any] = getattr(error.__cause__, "errors", list)()  # of pydantic, which converts values
    if parameter is not None and cause and cause[0]["type"] in NUMBER_WORDS:
        given = f"got {cause[0]['input']!r:.60}"
        return f"{parameter.opts[-1]} must be {NUMBER_WORDS[cause[0]['type']]}, {given}"
    if words.startswith("No such option"):
        single = [text for text in sys.argv[1:] if re.fullmatch(r"-[a-z][a-z-]+", text)]
        other = next((OTHER_OPTIONS[text] for text in sys.argv[1:] if text in OTHER_OPTIONS), None)
        hint = f"Write two hyphens: -{single[0]}" if single else f"Did you mean {other}?" if other else ""
        return f"{words}. {hint}" if hint else words
    if "does not take a value" in words or ("unexpected extra" in words and FLAGS & {*sys.argv}):
        return f"{words}. A flag such as --yes takes no value"
    if "unexpected extra" in words:
        usage = " ".join([error.ctx.command_path, *error.ctx.command.collect_usage_pieces(error.ctx)])
        return f"{words}. Usage: {usage}. Put texts with blanks in quotes"
    return words


def _command_path() -> str:
    """Return the command that was typed, for errors that do not know it."""
    group: Any = typer.main.get_command(app)
    path = ["slowscale"]
    for word in sys.argv[1:]:
        if word not in getattr(group, "commands", {}):
            break
        path.append(word)
        group = group.commands[word]
    return " ".join(path)
