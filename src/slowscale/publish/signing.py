"""Signatures of published files: SHA256SUMS lists the files of a folder, and SHA256SUMS.minisig signs the list.

Both have public formats: `minisign -V` checks the signature, and `sha256sum -c` the files. `verify` is stricter: each
of the two files has only one valid form, and neither a name nor a link can lead out of the folder (docs/signing.md).
"""

import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from slowscale.core.errors import ParameterError, ParameterTypeError, SignatureError
from slowscale.core.files import check_output_path, comparable_name, write_files
from slowscale.publish.minisign import PublicKey, SecretKey, check_signature, read_public_key, read_secret_key

SUMS, SIGNATURE = "SHA256SUMS", "SHA256SUMS.minisig"
LARGEST_SUMS = 16 * 2**20  # bytes
LONGEST_FILE_NAME = 255  # bytes
T = TypeVar("T")


@dataclass(frozen=True)
class Verified:
    """A folder whose files match a valid signature.

    Attributes
    ----------
    folder
        The folder.
    key
        The public key that verified the signature, in the form of `minisign -P`.
    created
        The time of the signature, by the clock of the signer.
    files
        The names of the files that match.
    absent
        The names of the files that are listed, but not in the folder.
    unlisted
        The names in the folder that are not listed. The signature says nothing about them.
    """

    folder: Path
    key: str
    created: datetime
    files: tuple[str, ...]
    absent: tuple[str, ...]
    unlisted: tuple[str, ...]

    def __str__(self) -> str:
        words = f"{self.folder / SUMS} was signed on {self.created:%Y-%m-%d %H:%M:%S} UTC by the key {self.key}."
        lines = {"Matching": self.files, "Listed, but not here": self.absent, "Here, but not listed": self.unlisted}
        return "\n".join([words, *(f"{what}: {', '.join(names)}" for what, names in lines.items() if names)])

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that `json.dumps` accepts."""
        return {"verified": True, **asdict(self), "folder": str(self.folder), "created": self.created.isoformat()}


def sign(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    key: str | os.PathLike[str] | SecretKey,
    *,
    passphrase: str | None = None,
    overwrite: bool = False,
) -> list[Path]:
    """Sign published files: write SHA256SUMS and SHA256SUMS.minisig beside them, and return the paths of both.

    Parameters
    ----------
    paths
        A folder, of which all files are signed except hidden ones; or files in one folder. The JSON file with the facts
        of a CSV file is signed with it: NAME.csv.json, or the data package of a published file.
    key
        The file with the secret key, which `ss.keygen` or `minisign -G` wrote.
    passphrase
        The passphrase of an encrypted key. By default it is that of the environment variable SLOWSCALE_KEY_PASSPHRASE.
    overwrite
        Whether to replace an existing signature. The new one lists the given files only.
    """
    if not isinstance(paths, str | os.PathLike | Iterable):
        raise ParameterTypeError("paths", allowed="a folder, or a list of files", given=type(paths))
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if wrong := [path for path in given if not isinstance(path, str | os.PathLike)]:
        raise ParameterTypeError("paths", allowed="text or os.PathLike", given=type(wrong[0]))
    places = [Path(path) for path in given]
    if len(places) == 1 and places[0].is_dir():
        places = [one for one in places[0].iterdir() if one.name not in (SUMS, SIGNATURE) and one.name[0] != "."]
    if not places:
        raise ParameterError("paths", "must name one or more files to sign", code="empty")
    facts = {place.with_name(name) for place in places for name in _facts_names(place.name)} - set(places)
    places = sorted([*places, *filter(os.path.lexists, facts)], key=lambda place: place.name)
    folder = places[0].parent
    for place in places:
        if os.path.realpath(place.parent) != os.path.realpath(folder):
            words, remedy = f"is not in the folder {folder}", "sign the files of each folder alone"
            raise ParameterError(f"paths: {place}", words, code="several-folders", remedy=remedy)
    if problem := name_problem(place.name for place in places):
        raise ParameterError(
            "paths", f"has a name that cannot be signed: {problem}", code="name", remedy="rename the file"
        )
    targets = [check_output_path(folder / name, "", overwrite) for name in (SUMS, SIGNATURE)]
    secret = key if isinstance(key, SecretKey) else read_secret_key(key, passphrase)
    if not isinstance(key, SecretKey) and os.path.realpath(key) in map(os.path.realpath, places):
        remedy = "move it elsewhere, and never publish it"
        raise ParameterError(f"paths: {key}", "is the secret key", code="secret", remedy=remedy)
    try:
        sums = "".join(f"{_read(place, _sha256)}  {place.name}\n" for place in places).encode()
    except SignatureError as error:
        subject = f"paths: {error.subject}"
        raise ParameterError(subject, error.problem, code=error.code, remedy=error.remedy) from None
    if len(sums) > LARGEST_SUMS:
        words = f"has {len(places):,} files, too many for one signature"
        raise ParameterError("paths", words, code="too-many", remedy="use several folders")
    signature = secret.sign(sums, f"timestamp:{int(time.time())}\tfile:{SUMS}\thashed")
    writers = (lambda file: file.write_bytes(sums)), (lambda file: file.write_bytes(signature))
    write_files(dict(zip(targets, writers, strict=True)), overwrite=overwrite)
    return targets


def verify(path: str | os.PathLike[str], key: str | os.PathLike[str] | PublicKey) -> Verified:
    """Verify the signature of a folder, and that all listed files in it match.

    Parameters
    ----------
    path
        The folder, or a file in it, which must be listed.
    key
        The file with the public key of the signer. Get it from a source that you trust.

    Raises
    ------
    SignatureError
        If the signature is not valid or a file does not match.
    """
    if not isinstance(path, str | os.PathLike):
        raise ParameterTypeError("path", allowed="text or os.PathLike", given=type(path))
    public = key if isinstance(key, PublicKey) else read_public_key(key)
    place = Path(path)
    if place.is_symlink() or not os.path.exists(place):
        _read(place, _sha256)  # raises
    folder, asked = (place, None) if os.path.isdir(place) else (place.parent, place.name)
    try:
        sums, signature = (_read(folder / name, _small) for name in (SUMS, SIGNATURE))
    except SignatureError as error:
        if error.code == "missing":
            raise SignatureError(place, f"has no signature: {error}", code="unsigned", file=asked) from None
        raise
    created = check_signature(folder / SIGNATURE, signature, sums, public)
    # From here on, the list of files is the one that the signer wrote.
    listed = _read_sums(folder / SUMS, sums)
    if asked is not None and asked not in listed:
        remedy = "if the file was renamed, give it its earlier name"
        raise SignatureError(folder / SUMS, f"does not list {asked}", code="name", file=asked, remedy=remedy)
    present = [name for name in listed if os.path.lexists(folder / name)]
    problems = [one for name in present for one in _file_problems(folder / name, listed)]
    if not present:
        problems = [SignatureError(folder, f"has none of the files that {SUMS} lists", code="missing")]
    if problems:
        worst, *further = sorted(problems, key=lambda error: error.file != asked)
        rest = "; ".join([*([worst.remedy] if worst.remedy else []), *map(str, further)])
        raise SignatureError(worst.subject, worst.problem, code=worst.code, file=worst.file, remedy=rest or None)
    known = {comparable_name(name) for name in (*listed, SUMS, SIGNATURE)}
    others = sorted(name for name in os.listdir(folder) if comparable_name(name) not in known)
    unlisted = tuple(name if name.isprintable() else ascii(name) for name in others)
    absent = tuple(name for name in listed if name not in present)
    return Verified(folder, str(public), created, tuple(present), absent, unlisted)


def name_problem(names: Iterable[str]) -> str | None:
    """Return why SHA256SUMS cannot list these files, or None: each name must stay in the folder on every system."""
    known = {comparable_name(SUMS), comparable_name(SIGNATURE)}
    for name in names:
        # `sha256sum -c` reads standard input for "-".
        if name in ("", ".", "..", "-") or any(mark in name for mark in "/\\:"):
            return f"{name!r:.80} is not the plain name of a file in the same folder"
        if not name.isprintable():
            return f"{name!r:.80} has characters that cannot be printed"
        if len(name.encode()) > LONGEST_FILE_NAME:
            return f"{name!r:.80} is longer than {LONGEST_FILE_NAME} bytes"
        if comparable_name(name) in known:
            return f"{name!r} is given twice, differs from another name only in case, or is the signature itself"
        known.add(comparable_name(name))
    return None


def _read_sums(path: Path, sums: bytes) -> dict[str, str]:
    """Return the SHA-256 of each file in SHA256SUMS, which has one form only."""
    *lines, end = sums.decode(errors="surrogateescape").split("\n")  # surrogates are not printable
    found = [re.fullmatch("([0-9a-f]{64})  (.*)", line) for line in lines]
    entries = [(one[2], one[1]) for one in found if one is not None]
    problem = name_problem(name for name, _ in entries)
    if end or not entries or None in found:
        problem = "a line is not a SHA-256 in hexadecimal digits, two spaces, a name and a line feed"
    if problem is not None:
        raise SignatureError(path, f"is damaged: {problem}", code="damaged", remedy="use the published file")
    return dict(entries)


def _file_problems(path: Path, listed: Mapping[str, str]) -> Iterator[SignatureError]:
    """Yield the problems of a listed file: another content, or for a CSV file facts that were not signed."""
    try:
        if _read(path, _sha256) != listed[path.name]:
            words = "does not match its signature: its content was changed"
            yield SignatureError(path, words, code="changed", file=path.name)
    except SignatureError as error:
        yield error
    for facts in map(path.with_name, _facts_names(path.name)):
        if facts.name not in listed and os.path.lexists(facts):
            words = f"is not signed, but it could be read as the facts of {path.name}"
            yield SignatureError(facts, words, code="extra", file=facts.name, remedy="remove it")
        if facts.name in listed and not os.path.lexists(facts):
            words = f"is missing; it was signed with {path.name} and holds its facts"
            yield SignatureError(facts, words, code="missing", file=facts.name)


def _facts_names(name: str) -> list[str]:
    """Return the names that the file with the facts of a CSV file may have; none for other files.

    They are NAME.csv.json for NAME.csv, and data packages: NAME.datapackage.json, or STEM.datapackage.json for
    STEM-TABLE.csv.
    """
    if not name.lower().endswith(".csv"):
        return []
    parts = name[: -len(".csv")].split("-")
    return [f"{name}.json", *(f"{'-'.join(parts[:n])}.datapackage.json" for n in range(len(parts), 0, -1))]


def _read(path: Path, use: Callable[[BinaryIO], T]) -> T:
    """Read a regular file, and raise if it is something else, a link for example, or changes in the meantime."""
    flags = os.O_RDONLY
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):
        flags |= getattr(os, name, 0)
    try:
        if path.is_symlink():
            words = "is a symbolic link, which could lead anywhere"
            raise SignatureError(path, words, code="link", file=path.name, remedy="use the file itself")
        with open(path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
            before = os.fstat(file.fileno())
            if not stat.S_ISREG(before.st_mode):
                remedy = "give the path of a file"
                raise SignatureError(path, "is not a regular file", code="unreadable", file=path.name, remedy=remedy)
            found = use(file)
            after = os.fstat(file.fileno())
    except FileNotFoundError:
        raise SignatureError(path, "does not exist", code="missing", file=path.name) from None
    except (OSError, ValueError) as error:
        words = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        raise SignatureError(path, words, code="unreadable", file=path.name) from None
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        words = "was changed while it was read"
        raise SignatureError(path, words, code="changed", file=path.name, remedy="try again")
    return found


def _sha256(file: BinaryIO) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def _small(file: BinaryIO) -> bytes:
    """Return the content of a file that is not larger than a signature may be."""
    content = file.read(LARGEST_SUMS + 1)
    if len(content) > LARGEST_SUMS:
        raise ValueError(f"it has more than {LARGEST_SUMS:,} bytes")
    return content
