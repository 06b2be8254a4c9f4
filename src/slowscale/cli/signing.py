"""Commands for signatures: `keygen` makes keys, `sign` signs published files, `verify` checks a signature."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from slowscale.cli.shared import AsJson, Overwrite, print_json

SignatureFile = Annotated[
    Path | None,
    typer.Option("--signature", metavar="FILE", help="The signature file. By default FILE.sig of the (first) file."),
]


def keygen(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Writes NAME.private.pem and NAME.public.pem.")],
    passphrase: Annotated[
        bool,
        typer.Option(
            "--passphrase",
            help="Encrypt the private key. The passphrase is that of the environment variable "
            "SLOWSCALE_KEY_PASSPHRASE, or is asked for.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a pair of Ed25519 keys: a private one that signs, and a public one that verifies. Nothing is overwritten."""
    from slowscale.signing_keys import keygen, passphrase_from_environment

    secret = passphrase_from_environment()
    if passphrase and secret is None:
        secret = _ask_passphrase("Passphrase for the new private key", confirm=True)
    made = keygen(name, secret)
    if as_json:
        print_json({"private": str(made.private), "public": str(made.public), "fingerprint": made.fingerprint})
        return
    typer.echo(f"wrote {made.private}: keep it secret" + ("" if secret is None else "; its passphrase is needed, too"))
    typer.echo(f"wrote {made.public}: publish it, with its fingerprint")
    typer.echo(f"fingerprint: {made.fingerprint}")


def sign(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE…", help="Published files in one folder. The facts of a CSV file are added."),
    ],
    key: Annotated[Path, typer.Option(metavar="PEM", help="The file with the private key.")],
    signature: SignatureFile = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Sign published files together, in a signature file beside them.

    The passphrase of an encrypted key is that of the environment variable SLOWSCALE_KEY_PASSPHRASE, or is asked for.
    """
    from slowscale.signatures import sign, with_facts_files
    from slowscale.signing_keys import fingerprint, is_encrypted, passphrase_from_environment, read_private_key

    secret = None
    if is_encrypted(key) and passphrase_from_environment() is None and sys.stdin.isatty():
        secret = _ask_passphrase(f"Passphrase of {key}")
    made = sign(files, key, signature=signature, passphrase=secret, overwrite=overwrite)
    signer = fingerprint(read_private_key(key, secret).public_key())
    signed = [str(file) for file in with_facts_files(files)]
    if as_json:
        print_json({"signature": str(made), "files": signed, "fingerprint": signer})
        return
    typer.echo(f"signed {', '.join(signed)} by the key {signer}")
    typer.echo(f"wrote {made}")


def verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The published file.")],
    key: Annotated[
        Path, typer.Option(metavar="PEM", help="The signer's public key. Get it from a source that you trust.")
    ],
    signature: SignatureFile = None,
    as_json: AsJson = False,
) -> None:
    """Check that a published file, and what was signed with it, is as it was signed. Exit with code 7 if it is not."""
    from slowscale.errors import SignatureError
    from slowscale.signatures import verify

    try:
        found = verify(file, key, signature=signature)
    except SignatureError as error:
        if not as_json:
            raise
        print_json({"verified": False, "problem": str(error), "reason": error.reason, "file": error.file})
        raise typer.Exit(7) from None
    if as_json:
        print_json(found.to_dict())
    else:
        typer.echo(str(found))


def _ask_passphrase(question: str, confirm: bool = False) -> str:
    """Ask for a passphrase, which is not shown, or raise where nobody can answer."""
    from slowscale.errors import ParameterError
    from slowscale.signing_keys import PASSPHRASE_VARIABLE

    if not sys.stdin.isatty():
        raise ParameterError(
            f"cannot ask for the passphrase, because standard input is not a terminal: set the environment variable "
            f"{PASSPHRASE_VARIABLE}"
        )
    return str(typer.prompt(question, hide_input=True, confirmation_prompt=confirm))
