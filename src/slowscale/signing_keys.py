"""Ed25519 keys in PEM files: made, read and named by their fingerprint. No error ever shows key material."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slowscale.errors import ParameterError, ParameterTypeError
from slowscale.files import free_target, write_files

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

PASSPHRASE_VARIABLE = "SLOWSCALE_KEY_PASSPHRASE"
PRIVATE_ENDING, PUBLIC_ENDING = ".private.pem", ".public.pem"
LONGEST_PASSPHRASE = 1023  # bytes; OpenSSL takes no longer ones
LARGEST_KEY_FILE = 65_536  # bytes; a PEM file with an Ed25519 key has about 400


@dataclass(frozen=True)
class KeyFiles:
    """The files of a new pair of keys.

    Attributes
    ----------
    private
        The file with the private key, which signs. Keep it secret.
    public
        The file with the public key, which verifies. Publish it.
    fingerprint
        The SHA-256 of the public key, in hexadecimal digits.
    """

    private: Path
    public: Path
    fingerprint: str


def keygen(name: str | os.PathLike[str], passphrase: str | None = None) -> KeyFiles:
    """Make a pair of Ed25519 keys, and write them to the files NAME.private.pem and NAME.public.pem.

    Only the owner may read the private key (mode 0600). Existing files are never replaced.

    Parameters
    ----------
    name
        The path of the files without their endings, such as "keys/agency".
    passphrase
        The private key is encrypted with it. Without one, the file is all that is needed to sign.

    Examples
    --------
    >>> import tempfile, slowscale as ss
    >>> files = ss.keygen(tempfile.mkdtemp() + "/agency")
    >>> files.private.name, files.public.name, len(files.fingerprint)
    ('agency.private.pem', 'agency.public.pem', 64)
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if not isinstance(name, str | os.PathLike):
        raise ParameterTypeError(f"name must be text or os.PathLike, got {type(name).__name__}")
    if not Path(name).name:
        raise ParameterError("name must be a path without the endings, such as keys/agency, got an empty name")
    if passphrase is not None:
        _check_passphrase(passphrase)
    private, public = (Path(f"{os.fspath(name)}{ending}") for ending in (PRIVATE_ENDING, PUBLIC_ENDING))
    for path in (private, public):
        if os.path.lexists(path):
            raise ParameterError(f"name: {path} already exists, and keys are never replaced; choose another name")
        free_target(path, ".pem", overwrite=False)
    key = Ed25519PrivateKey.generate()
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase is not None:
        encryption = serialization.BestAvailableEncryption(passphrase.encode())
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    shown = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)

    def write_public(target: Path) -> None:
        target.write_bytes(shown)
        target.chmod(0o644)

    write_files({private: lambda target: target.write_bytes(secret), public: write_public}, confidential=True)
    return KeyFiles(private, public, fingerprint(key.public_key()))


def _check_passphrase(passphrase: object) -> None:
    """Raise unless a key can be encrypted with a passphrase. The error does not show it."""
    if not isinstance(passphrase, str) or not passphrase:
        raise ParameterError("passphrase must be a text that is not empty, or None for a key without a passphrase")
    try:
        length = len(passphrase.encode())
    except UnicodeEncodeError:
        raise ParameterError("passphrase must be text that can be written in UTF-8, without surrogates") from None
    if length > LONGEST_PASSPHRASE:
        raise ParameterError(f"passphrase must have at most {LONGEST_PASSPHRASE:,} bytes in UTF-8, got {length:,}")


def fingerprint(key: "Ed25519PublicKey") -> str:
    """Return the SHA-256 of a public key in its DER form (SubjectPublicKeyInfo), in hexadecimal digits."""
    from cryptography.hazmat.primitives import serialization

    written = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(written).hexdigest()


def read_private_key(
    path: "str | os.PathLike[str] | Ed25519PrivateKey", passphrase: str | None = None
) -> "Ed25519PrivateKey":
    """Read a private key from a PEM file.

    Parameters
    ----------
    path
        The file. A key that was read already is returned.
    passphrase
        The passphrase of an encrypted key. By default it is taken from the environment variable
        SLOWSCALE_KEY_PASSPHRASE.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if isinstance(path, Ed25519PrivateKey):
        return path
    content = _read_pem(path)
    if _is_public(content):
        raise ParameterError(f"key: {path} holds a public key, which cannot sign; give the private key")
    encrypted = _is_encrypted(content)
    if encrypted and passphrase is None:
        passphrase = passphrase_from_environment()
        if passphrase is None:
            raise ParameterError(
                f"key: {path} is encrypted and needs its passphrase; set the environment variable {PASSPHRASE_VARIABLE}"
            )
    try:
        # An error of the library below might quote what it read, so none is shown or chained.
        key: Any = serialization.load_pem_private_key(
            content, passphrase.encode() if encrypted and passphrase else None
        )
    except Exception:
        key = None
    if key is None:
        reason = "the passphrase is wrong or the file is damaged" if encrypted else "it is damaged, or not a key"
        raise ParameterError(
            f"key: {path} cannot be read as a private key: {reason}; give a PEM file that `slowscale keygen` wrote"
        )
    if not isinstance(key, Ed25519PrivateKey):
        raise ParameterError(
            f"key: {path} holds a private key of another kind, but only Ed25519 keys can sign here; make one with "
            "`slowscale keygen`"
        )
    return key


def read_public_key(path: "str | os.PathLike[str] | Ed25519PublicKey") -> "Ed25519PublicKey":
    """Read a public key from a PEM file. A key that was read already is returned."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if isinstance(path, Ed25519PublicKey):
        return path
    content = _read_pem(path)
    if b"PRIVATE KEY-----" in content:
        raise ParameterError(
            f"key: {path} holds a private key, and verifying needs the public key; give the file that ends in "
            f"{PUBLIC_ENDING}, and never publish the private key"
        )
    try:
        key: Any = serialization.load_pem_public_key(content)
    except Exception:
        key = None
    if key is None:
        raise ParameterError(
            f"key: {path} cannot be read as a public key: it is damaged, or not a key; give a PEM file that "
            "`slowscale keygen` wrote"
        )
    if not isinstance(key, Ed25519PublicKey):
        raise ParameterError(f"key: {path} holds a public key of another kind; give an Ed25519 key")
    return key


def is_encrypted(path: str | os.PathLike[str]) -> bool:
    """Return whether a private key can be read only with a passphrase."""
    return _is_encrypted(_read_pem(path))


def passphrase_from_environment() -> str | None:
    """Return the passphrase that the environment variable SLOWSCALE_KEY_PASSPHRASE holds, or None."""
    return os.environ.get(PASSPHRASE_VARIABLE) or None


def _is_encrypted(content: bytes) -> bool:
    return b"-----BEGIN ENCRYPTED PRIVATE KEY-----" in content or b"Proc-Type: 4,ENCRYPTED" in content


def _is_public(content: bytes) -> bool:
    return b"PUBLIC KEY-----" in content and b"PRIVATE KEY-----" not in content


def _read_pem(path: str | os.PathLike[str]) -> bytes:
    if not isinstance(path, str | os.PathLike):
        raise ParameterTypeError(f"key must be the path of a PEM file, got {type(path).__name__}")
    try:
        with open(path, "rb") as file:
            content = file.read(LARGEST_KEY_FILE + 1)
    except FileNotFoundError:
        raise ParameterError(f"key: there is no file {path}; `slowscale keygen` makes keys") from None
    except (OSError, ValueError) as error:
        raise ParameterError(f"key: {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > LARGEST_KEY_FILE:
        raise ParameterError(f"key: {path} is too large for a key; give a PEM file that `slowscale keygen` wrote")
    return content
