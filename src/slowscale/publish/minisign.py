"""Keys and signatures in the format of minisign, a public tool. No error ever shows key material.

A signature is an Ed25519 signature of the BLAKE2b hash of a file, and a second one of the first and of the "trusted
comment", which names the time and the file. The legacy algorithm without a hash is refused.
"""

import base64
import hashlib
import os
import re
import secrets
import struct
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from slowscale.core.errors import ParameterError, ParameterTypeError, SignatureError
from slowscale.core.files import check_output_path, write_files

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PASSPHRASE_VARIABLE = "SLOWSCALE_KEY_PASSPHRASE"
LONGEST_PASSPHRASE = 1023  # bytes
LARGEST_KEY_FILE = 65_536  # bytes
# A public key: algorithm, identifier, key. A secret key: algorithm, key derivation, kind of checksum, salt, limits of
# operations and of memory; and, encrypted or not: identifier, seed, public key, checksum.
PUBLIC_FORM, SECRET_FORM = struct.Struct("2s8s32s"), struct.Struct("<2s2s2s32sQQ104s")
SCRYPT_LIMITS = (2**25, 2**30)  # those of new keys, and the largest: the defaults of minisign
# Nothing protects an untrusted comment, so it must be the one that minisign writes by default.
SIGNATURE_FORM = re.compile(
    rb"untrusted comment: signature from minisign secret key\n([A-Za-z0-9+/]{99}=)\n"
    rb"trusted comment: (timestamp:([0-9]{1,11})\tfile:SHA256SUMS(?:\thashed)?)\n([A-Za-z0-9+/]{86}==)\n"
)


@dataclass(frozen=True)
class PublicKey:
    """A public key, which verifies."""

    id: bytes
    key: bytes

    def __str__(self) -> str:
        return base64.b64encode(PUBLIC_FORM.pack(b"Ed", self.id, self.key)).decode()


@dataclass(frozen=True, repr=False)
class SecretKey:
    """A secret key, which signs."""

    id: bytes
    signer: "Ed25519PrivateKey"

    @property
    def public(self) -> PublicKey:
        """The public key that belongs to it."""
        return PublicKey(self.id, self.signer.public_key().public_bytes_raw())

    def sign(self, content: bytes, comment: str) -> bytes:
        """Return the signature file of a content, with a trusted comment."""
        proof = self.signer.sign(hashlib.blake2b(content).digest())
        first, second = b"ED" + self.id + proof, self.signer.sign(proof + comment.encode())
        return (
            f"untrusted comment: signature from minisign secret key\n{base64.b64encode(first).decode()}\n"
            f"trusted comment: {comment}\n{base64.b64encode(second).decode()}\n"
        ).encode()


def check_signature(path: Path, signature: bytes, signed: bytes, public: PublicKey) -> datetime:
    """Return the time of a signature of SHA256SUMS, or raise unless the public key verifies it."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    found = SIGNATURE_FORM.fullmatch(signature)
    first, second = (b"", b"") if found is None else (base64.b64decode(found[i]) for i in (1, 4))
    # The last digit of Base64 has bits without a meaning, which must be 0.
    if found is None or (base64.b64encode(first), base64.b64encode(second)) != (found[1], found[4]):
        words = "is damaged: it lacks the form or the comments of `slowscale sign` and `minisign -Sm SHA256SUMS`"
        raise SignatureError(path, words, code="damaged", remedy="use the published file")
    if first[:2] != b"ED":
        words, remedy = "has an unknown or a legacy algorithm", "sign again without -l"
        raise SignatureError(path, words, code="algorithm", remedy=remedy)
    if first[2:10] != public.id:
        words = f"was made by another key, {_shown(first[2:10])}; the given key is {_shown(public.id)}"
        raise SignatureError(path, words, code="key")
    try:
        Ed25519PublicKey.from_public_bytes(public.key).verify(first[10:], hashlib.blake2b(signed).digest())
        Ed25519PublicKey.from_public_bytes(public.key).verify(second, first[10:] + found[2])
    except InvalidSignature:
        words = f"is not a valid signature by the key {public}: it or SHA256SUMS was changed, or it is a forgery"
        raise SignatureError(path, words, code="forged") from None
    return datetime.fromtimestamp(int(found[3]), UTC)


def keygen(name: str | os.PathLike[str], passphrase: str | None = None) -> tuple[Path, Path]:
    """Make a pair of keys in the format of minisign, and return their files: NAME.key, which signs, and NAME.pub.

    Only the owner may read the secret key (mode 0600). Existing files are never replaced.

    Parameters
    ----------
    name
        The path of the files without their endings, such as "keys/agency".
    passphrase
        The secret key is encrypted with it. Without one, anyone with the file can sign.

    Examples
    --------
    >>> import tempfile, slowscale as ss
    >>> [path.name for path in ss.keygen(tempfile.mkdtemp() + "/agency")]
    ['agency.key', 'agency.pub']
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if not isinstance(name, str | os.PathLike):
        raise ParameterTypeError("name", allowed="text or os.PathLike", given=type(name))
    if not Path(name).name:
        raise ParameterError("name", allowed="a path without the endings, such as keys/agency", given=os.fspath(name))
    targets = Path(f"{os.fspath(name)}.key"), Path(f"{os.fspath(name)}.pub")
    for path in targets:
        if os.path.lexists(path):
            words, remedy = "already exists, and keys are never replaced", "choose another name"
            raise ParameterError(f"name: {path}", words, code="exists", remedy=remedy)
        check_output_path(path, "", overwrite=False)
    key = SecretKey(secrets.token_bytes(8), Ed25519PrivateKey.generate())
    content = key.id + key.signer.private_bytes_raw() + key.public.key
    content += _checksum(content)
    header, kind = (bytes(2), b"B2", bytes(32), 0, 0), "secret"
    if passphrase is not None:
        header, kind = (b"Sc", b"B2", secrets.token_bytes(32), *SCRYPT_LIMITS), "encrypted secret"
        content = _encrypted(content, passphrase, *header[2:])
    secret = base64.b64encode(SECRET_FORM.pack(b"Ed", *header, content)).decode()

    def write_public(target: Path) -> None:
        target.write_bytes(f"untrusted comment: minisign public key {_shown(key.id)}\n{key.public}\n".encode())
        target.chmod(0o644)

    def write_secret(target: Path) -> None:
        target.write_bytes(f"untrusted comment: minisign {kind} key\n{secret}\n".encode())

    write_files(dict(zip(targets, (write_secret, write_public), strict=True)), confidential=True)
    return targets


def read_secret_key(path: str | os.PathLike[str], passphrase: str | None = None) -> SecretKey:
    """Read a secret key. The passphrase is by default the environment variable SLOWSCALE_KEY_PASSPHRASE."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    raw = _read_key(path)
    subject = f"key: {path}"
    if len(raw) == PUBLIC_FORM.size:
        words, remedy = "holds a public key, which cannot sign", "give the secret key"
        raise ParameterError(subject, words, code="public-key", remedy=remedy)
    _, derivation, kind, salt, operations, memory, content = SECRET_FORM.unpack(raw)
    encrypted = derivation == b"Sc"
    if encrypted:
        passphrase = passphrase or os.environ.get(PASSPHRASE_VARIABLE) or None
        if passphrase is None:
            words, remedy = (
                "is encrypted and needs its passphrase",
                f"set the environment variable {PASSPHRASE_VARIABLE}",
            )
            raise ParameterError(subject, words, code="encrypted", remedy=remedy)
        if operations > SCRYPT_LIMITS[0] or memory > SCRYPT_LIMITS[1]:
            words = "is damaged: reading it would take more memory than minisign ever needs"
            raise ParameterError(subject, words, code="too-large")
        content = _encrypted(content, passphrase, salt, operations, memory)
    key = SecretKey(content[:8], Ed25519PrivateKey.from_private_bytes(content[8:40]))
    # `minisign -G -W` writes no checksum.
    checked = content[72:] == _checksum(content[:72]) or (derivation == bytes(2) and content[72:] == bytes(32))
    if not checked or key.public.key != content[40:72] or derivation not in (b"Sc", bytes(2)) or kind != b"B2":
        reason = "the passphrase is wrong or the file is damaged" if encrypted else "it is damaged"
        code = "passphrase" if encrypted else "damaged"
        raise ParameterError(subject, f"cannot be read as a secret key: {reason}", code=code)
    return key


def read_public_key(path: str | os.PathLike[str]) -> PublicKey:
    """Read a public key."""
    raw = _read_key(path)
    if len(raw) == SECRET_FORM.size:
        words = "holds a secret key, and verifying needs the public key"
        remedy = "give the file that ends in .pub, and never publish the secret key"
        raise ParameterError(f"key: {path}", words, code="secret-key", remedy=remedy)
    return PublicKey(*PUBLIC_FORM.unpack(raw)[1:])


def needs_passphrase(path: str | os.PathLike[str]) -> bool:
    """Return whether a secret key is encrypted and the environment has no passphrase."""
    return _read_key(path)[2:4] == b"Sc" and not os.environ.get(PASSPHRASE_VARIABLE)


def _read_key(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a public key or of a secret key."""
    if not isinstance(path, str | os.PathLike):
        raise ParameterTypeError("key", allowed="the path of a file", given=type(path))
    try:
        with open(path, "rb") as file:
            comment, _, text = file.read(LARGEST_KEY_FILE).partition(b"\n")
    except FileNotFoundError:
        remedy = "`slowscale keygen` makes keys"
        raise ParameterError(f"key: {path}", "does not exist", code="missing", remedy=remedy) from None
    except (OSError, ValueError) as error:
        words = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        raise ParameterError(f"key: {path}", words, code="unreadable") from None
    raw = b""
    with suppress(ValueError):
        raw = base64.b64decode(text.strip(), validate=True)
    known = raw[:2] == b"Ed" and len(raw) in (PUBLIC_FORM.size, SECRET_FORM.size)
    if not known or not comment.startswith(b"untrusted comment: "):
        remedy = "give a file that `slowscale keygen` or `minisign -G` wrote"
        raise ParameterError(f"key: {path}", "is damaged, or not a key", code="damaged", remedy=remedy)
    return raw


@lru_cache(maxsize=1)  # scrypt takes seconds; the passphrase is in the environment for as long
def _encrypted(content: bytes, passphrase: str, salt: bytes, operations: int, memory: int) -> bytes:
    """Return the content of a secret key, encrypted or decrypted: XOR with scrypt of the passphrase."""
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    secret = b""
    with suppress(AttributeError, UnicodeEncodeError):
        secret = passphrase.encode()
    if not 1 <= len(secret) <= LONGEST_PASSPHRASE:
        raise ParameterError("passphrase", allowed=f"text of 1 to {LONGEST_PASSPHRASE:,} bytes in UTF-8")
    # libsodium derives the parameters of scrypt from the limits.
    operations = max(operations, 2**15)
    few = operations < memory // 32
    n = 2 ** max(1, ((operations // 32 if few else memory // 1024) // 2).bit_length())
    stream = Scrypt(salt, len(content), n, 8, 1 if few else operations // 4 // n // 8).derive(secret)
    return bytes(one ^ other for one, other in zip(content, stream, strict=True))


def _checksum(content: bytes) -> bytes:
    return hashlib.blake2b(b"Ed" + content, digest_size=32).digest()


def _shown(identifier: bytes) -> str:
    """Return the identifier of a key as minisign shows it."""
    return f"{int.from_bytes(identifier, 'little'):016X}"
