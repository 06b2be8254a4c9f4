"""Commands for signatures: `keygen` makes keys, `sign` signs published files, `verify` checks a signature."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from slowscale.cli.shared import AsJson, Overwrite, echo, print_json


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
    import os

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
            "cannot ask for the passphrase, because standard input is not a terminal: set the environment variable "
            "SLOWSCALE_KEY_PASSPHRASE"
        )
    return str(typer.prompt(question, hide_input=True, confirmation_prompt=confirm))
