"""What several commands share: options, values such as emp=12, JSON, confirmation, and files to be written."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slowscale.core.markup import terminal_json, terminal_text

if TYPE_CHECKING:
    from slowscale.core.errors import ParameterError, SlowscaleError

PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="The plan file (TOML). `slowscale init` writes one.")]
LedgerFile = Annotated[Path, typer.Argument(metavar="LEDGER", help="The ledger file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")]
RecordSizes = Annotated[
    str | None,
    typer.Option(
        "--sizes",
        help='Record sizes to show: 100,1e6,4e10 or "median firm=12,largest firm=4e10". State public knowledge only, '
        "never a size looked up in the records.",
    ),
]
Std = Annotated[float | None, typer.Option(help="Solve for this standard deviation.")]
Interval = Annotated[
    float | None,
    typer.Option(help="Solve for this half-width of the interval that contains the result with probability --level."),
]
Level = Annotated[float | None, typer.Option(help="With --interval: the probability. By default 0.95.")]
LossTarget = Annotated[float | None, typer.Option("--loss", help="Solve for this loss of a record of size --at.")]
Accounting = Annotated[
    str | None,
    typer.Option(
        metavar="tight|closed",
        help="The policy that --loss is for: the tight one, which is the default, or the closed form, which needs more "
        "noise.",
    ),
]
At = Annotated[
    float | None,
    typer.Option(
        help="With --std or --interval: the sum that it is wanted for, and the scale sigma of exponential-polylog, "
        "unless --param sigma is given. With --loss: the size of the record."
    ),
]


def parse_assignment(text: str, option: str, example: str) -> tuple[str, float]:
    """Return the name and the number in text such as emp=12."""
    from slowscale.core.errors import ParameterError

    name, equals, number = text.partition("=")
    try:
        if not equals or not name:
            raise ValueError
        return name, float(number)
    except ValueError:
        raise ParameterError(option, allowed=f"a name and a number such as {example}", given=text) from None


def parse_parameter(text: str, example: str) -> tuple[str, Any]:
    """Return a parameter of a mechanism, from text such as sigma=2 or points=100:0.5,10000:5."""
    from slowscale.core.errors import ParameterError
    from slowscale.plan.parts import TABLE_PARAMETERS

    name, _, value = text.partition("=")
    if name not in TABLE_PARAMETERS:
        return parse_assignment(text, "--param", example)
    try:
        return name, [tuple(map(float, pair.split(":", 1))) for pair in value.split(",")]
    except ValueError:
        raise ParameterError(
            f"--param {name}", allowed=f"pairs of numbers such as {name}=100:0.5,10000:5", given=value
        ) from None


@contextmanager
def options_of(command: Callable[..., None], **others: str) -> Iterator[None]:
    """Raise errors about arguments of the library as errors about the options of a command.

    Parameters
    ----------
    command
        The command: an argument with the name of one of its parameters is given by that option.
    others
        Options of arguments with other names, such as `influences="--sizes"`.
    """
    from slowscale.core.errors import ParameterError, ParameterTypeError

    try:
        yield
    except (ParameterError, ParameterTypeError) as error:
        raise as_option_error(error, command, **others) from None


def as_option_error(error: "SlowscaleError", command: Callable[..., None], **others: str) -> "ParameterError":
    """Return an error of the library with the names of a command's options; see `options_of`."""
    from slowscale.core.errors import ParameterError
    from slowscale.plan.parts import PARAMETERS

    known = {name: f"--{name.replace('_', '-')}" for name in signature(command).parameters} | others
    if "param" in known:
        known = {name: f"--param {name}=NUMBER" for name in PARAMETERS} | known

    def spell(name: str) -> str:
        return known.get(name, name)

    place = str(error.path[0]) if error.path else error.subject
    subject = known.get(error.subject) or error.subject
    if subject == error.subject and place in known:
        inside = [str(step) for step in error.path[1:]]
        # "records['a']", which is at ("records", "a"), is given by --records a=1.
        keyed = error.subject == place + "".join(f"[{step!r}]" for step in inside)
        if keyed:
            subject = " ".join([known[place], *inside])
        elif f"--{error.subject}".startswith(f"{known[place]} "):  # "column 'emp'", which --column gives
            subject = f"--{error.subject}"
        else:
            subject = f"{known[place]}: {error.subject}"
    words = error.render(subject, spell)
    # The fields are words about options now: only the subject is kept apart.
    about = subject if words.startswith(f"{subject} ") else words
    return ParameterError(about, words[len(about) :].lstrip(), code=error.code, path=error.path)


def echo(text: object, err: bool = False) -> None:
    """Print text to stdout or stderr, without characters that control a terminal. All commands print by this."""
    typer.echo(terminal_text(str(text)), err=err)


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    typer.echo(terminal_json(json.dumps(value, indent=2, ensure_ascii=False)))


def check_terminal(action: str) -> None:
    """Exit with code 6 where nobody can answer a question about an action, such as "release"."""
    if not sys.stdin.isatty():
        echo(
            "error: cannot ask for confirmation, because standard input is not a terminal: pass --yes to "
            f"{action} without asking",
            err=True,
        )
        raise typer.Exit(6)


def confirm(question: str, declined: str) -> None:
    """Ask, and exit with code 6 unless the answer is yes."""
    if not typer.confirm(f"\n{question}", default=False):
        echo(declined)
        raise typer.Exit(6)


def writable_path(path: Path, ending: str, overwrite: bool) -> Path:
    """Return a path that a file can be written to, or raise an error that names the option --overwrite."""
    from slowscale.core.errors import ParameterError
    from slowscale.core.files import check_output_path

    if os.path.lexists(path) and not overwrite:
        raise ParameterError(path, "exists", code="exists", remedy="choose another name, or --overwrite")
    try:
        return check_output_path(path, ending, True)
    except ParameterError as error:
        words = error.render("it" if error.subject == "path" else None)
        raise ParameterError(path, f"cannot be written: {words}", code=error.code) from None
