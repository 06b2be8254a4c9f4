"""What several commands share: options, values such as emp=12, JSON, confirmation, and files to be written."""

import codecs
import io
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from slowscale.core.markup import PLAIN_LETTERS, plain_letters, terminal_json, terminal_text

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

CHART = "chart"  # in place of the ending of a file


def parse_assignment(text: str, option: str, example: str) -> tuple[str, float]:
    """Return the name and the number in text such as emp=12."""
    from slowscale.core.errors import ParameterError

    name, equals, number = text.partition("=")
    try:
        if not equals or not name:
            raise ValueError
        return name, float(number)
    except ValueError:
        separated = "," in number or (text.isdigit() and len(text) == 3)
        remedy = "numbers have no thousands separators" if separated else None
        raise ParameterError(
            option, allowed=f"a name and a number such as {example}", given=text, remedy=remedy
        ) from None


def parse_parameters(texts: Sequence[str], example: str) -> dict[str, Any]:
    """Return the parameters of a mechanism as a plan has them, from texts such as sigma=2 or noise=laplace.

    The parameters of noise are written noise.p=0.5, beside noise=generalized-gaussian.
    """
    from slowscale.core.errors import ParameterError

    found: dict[str, Any] = {}
    noise: dict[str, Any] = {}
    for text in texts:
        if text.startswith("noise."):
            noise |= [_parse_parameter(text.removeprefix("noise."), "noise.p=0.5")]
        else:
            found |= [_parse_parameter(text, example)]
    if noise and "noise" not in found:
        raise ParameterError(
            "--param noise", "is missing", code="missing", remedy="give its name, such as noise=laplace"
        )
    return found | ({"noise": {"mechanism": found["noise"], **noise}} if noise else {})


def _parse_parameter(text: str, example: str) -> tuple[str, Any]:
    """Return one parameter, from text such as sigma=2, points=100:0.5,10000:5 or estimator=median."""
    from slowscale.core.errors import ParameterError
    from slowscale.plan.parts import TABLE_PARAMETERS

    name, equals, value = text.partition("=")
    if name in ("noise", "estimator") and equals:
        return name, value
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
        forms = dict.fromkeys(("noise", "estimator"), "NAME")
        known = {name: f"--param {name}={forms.get(name, 'NUMBER')}" for name in PARAMETERS} | known

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
    stream = sys.stderr if err else sys.stdout
    width = terminal_width(stream)
    lines = terminal_text(str(text)).split("\n")
    print("\n".join(lines if width is None else (wrapped(line, width) for line in lines)), file=stream, flush=True)


def terminal_width(stream: TextIO | None = None) -> int | None:
    """Return the width of the terminal that a stream, by default stdout, is written to; None if it is none."""
    return shutil.get_terminal_size().columns if (stream or sys.stdout).isatty() else None


def wrapped(line: str, width: int) -> str:
    """Return a line in lines of at most a width, indented like it. Rows of a table, with gaps inside, stay.

    >>> print(wrapped("  losses add up", 10))
      losses
      add up
    """
    text = line.lstrip(" ")
    if len(line) <= width or "  " in text:
        return line
    indent = " " * (len(line) - len(text))
    return textwrap.fill(
        text, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def print_json(value: Any) -> None:
    """Print a value as JSON, with escapes unless the output is Unicode."""
    narrow = not (sys.stdout.encoding or "").lower().startswith("utf")
    print(terminal_json(json.dumps(value, indent=2, ensure_ascii=narrow)), flush=True)


def print_every_letter() -> None:
    """Let output whose encoding lacks a letter have plain letters instead of an error, as with ± on Windows."""
    codecs.register_error(PLAIN_LETTERS, plain_letters)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=PLAIN_LETTERS)


def at_terminal() -> bool:
    """Return whether somebody can answer questions."""
    return sys.stdin.isatty()


def check_terminal(action: str) -> None:
    """Exit with code 6 where nobody can answer a question about an action, such as "release"."""
    if not at_terminal():
        echo(
            "error: cannot ask for confirmation, because standard input is not a terminal: pass --yes to "
            f"{action} without asking",
            err=True,
        )
        raise typer.Exit(6)


def ask_yes(question: str, default: bool, err: bool = False) -> bool:
    """Ask until the answer is yes or no; Enter gives the default."""
    while True:
        shown = f"{question} [{'Y/n' if default else 'y/N'}]"
        answer = str(typer.prompt(shown, default="", show_default=False, err=err)).strip().casefold()
        if answer in ("", "y", "yes", "n", "no"):
            return answer.startswith("y") if answer else default
        echo("Type y or n.", err=err)


def confirm(question: str, declined: str) -> None:
    """Ask, and exit with code 6 unless the answer is yes."""
    if not ask_yes(f"\n{question}", default=False):
        echo(declined)
        raise typer.Exit(6)


def writable_path(path: Path, ending: str, overwrite: bool) -> Path:
    """Return a path that a file can be written to, or raise an error that names the option --overwrite."""
    from slowscale.core.errors import ParameterError
    from slowscale.core.files import check_output_path

    if ending == CHART and path.suffix.lower() not in (".png", ".svg", ".html"):  # the chart itself is checked late
        raise ParameterError("--chart", allowed="a .png, .svg or .html file", given=str(path))
    ending = "" if ending == CHART else ending
    if os.path.lexists(path) and not overwrite:
        raise ParameterError(path, "exists", code="exists", remedy="choose another name, or --overwrite")
    try:
        return check_output_path(path, ending, True)
    except ParameterError as error:
        words = error.render("it" if error.subject == "path" else None)
        raise ParameterError(path, f"cannot be written: {words}", code=error.code) from None
