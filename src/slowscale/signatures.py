"""Signatures of published files: a reader can verify that the files are those that a curator signed.

A signature is a JSON file beside the files. It lists them with their sizes and SHA-256, and it is an Ed25519 signature
over the list. docs/signing.md describes the format, and how to verify a signature without slowscale.

The signature file itself may have one form only: the bytes that `sign` writes. Another order, other whitespace or
duplicate entries are refused, so that all programs that read a signature read the same.
"""

import base64
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from slowscale.errors import ParameterError, ParameterTypeError, SignatureError, SlowscaleError
from slowscale.facts import Facts
from slowscale.files import comparable_name, free_target, write_files
from slowscale.release.files import BASIC_METADATA, FILE_ENTRIES, METADATA
from slowscale.signing_keys import fingerprint, read_private_key, read_public_key

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SIGNATURE_ENDING = ".sig"
PACKAGE_ENDING = ".datapackage.json"
# What is said of a file in which no release is named.
NO_RELEASE = "the file is not a release of slowscale"
NOT_READ = {
    ".xlsx": "the release in an Excel file is not read here; the sheet 'Notes' of a published file states it",
    ".json": "the file has no table of its own",
    ".html": "the file has no table of its own",
}
SIGNATURE_FORMAT = "slowscale-signature/1"
ALGORITHM = "Ed25519"
# What is signed starts with this line, so that no signature made for another purpose can be taken for one of these.
DOMAIN = b"slowscale signature 1\n"
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
LARGEST_SIGNATURE_FILE = 16 * 2**20  # bytes: about 50,000 files
LARGEST_FILE = 2**53 - 1  # the largest whole number that all JSON readers read exactly
LONGEST_FILE_NAME = 255  # bytes


@dataclass(frozen=True)
class SignedFile:
    """A file in a signature.

    Attributes
    ----------
    name
        Its name, without a folder.
    size, sha256
        Its size in bytes, and its SHA-256 in hexadecimal digits.
    facts
        The name of the file with its facts, for a CSV file: NAME.csv.json, or the data package of a published file. A
        Parquet file holds its facts itself.
    release, dataset
        The identifier of the release in it and the name of the data set, as its facts state them; None if the file is
        not a release, or the data set has no name.
    present
        Whether the file is beside the signature. What is present was verified.
    """

    name: str
    size: int
    sha256: str
    facts: str | None = None
    release: str | None = None
    dataset: str | None = None
    present: bool = True


@dataclass(frozen=True)
class Verified:
    """What was verified.

    Attributes
    ----------
    path, signature
        The file and the signature file.
    fingerprint
        The SHA-256 of the public key that verified the signature, in hexadecimal digits.
    created
        When the files were signed, by the clock of the signer.
    files
        All files of the signature. Those that are present are as they were signed.
    facts
        The facts of the release in `path`; None if it is not a release that this version of slowscale reads.
    """

    path: Path
    signature: Path
    fingerprint: str
    created: datetime
    files: tuple[SignedFile, ...]
    facts: Facts | None

    @property
    def file(self) -> SignedFile:
        """The entry of `path` in the signature."""
        return next(one for one in self.files if one.name == self.path.name)

    @property
    def absent(self) -> tuple[str, ...]:
        """The names of the files that were signed too, but are not beside the signature."""
        return tuple(one.name for one in self.files if not one.present)

    def __str__(self) -> str:
        shown = self.file
        words = [
            f"{self.path} is as it was signed on {self.created:%Y-%m-%d %H:%M:%S} UTC by the key {self.fingerprint}; "
            f"{_release_in_words(shown)}."
        ]
        if self.facts is not None and not self.facts.private:
            words.append("The release is NOT PRIVATE: its noise was drawn from test bits.")
        beside = [one.name for one in self.files if one.present and one.name != shown.name]
        if beside:
            words.append(f"Signed with it and as they were signed: {', '.join(beside)}.")
        if self.absent:
            words.append(f"Signed with it, but not in this folder: {', '.join(self.absent)}.")
        return "\n".join(words)

    def to_dict(self) -> dict[str, Any]:
        """Return what was verified as a dictionary that `json.dumps` accepts."""
        return {
            "verified": True,
            "path": str(self.path),
            "signature": str(self.signature),
            "fingerprint": self.fingerprint,
            "created": self.created.strftime(TIME_FORMAT),
            "files": [{**_entry(one), "present": one.present} for one in self.files],
            "facts": None if self.facts is None else self.facts.to_dict(),
        }


def _release_in_words(file: SignedFile) -> str:
    if file.release is None:
        return NOT_READ.get(Path(file.name).suffix.lower(), NO_RELEASE)
    return f"release {file.release}" + ("" if file.dataset is None else f" of the data set {file.dataset!r}")


def sign(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    key: "str | os.PathLike[str] | Ed25519PrivateKey",
    *,
    signature: str | os.PathLike[str] | None = None,
    passphrase: str | None = None,
    overwrite: bool = False,
) -> Path:
    """Sign published files, and return the path of the signature file.

    The facts of a CSV file, which are in a JSON file beside it, are signed with it: NAME.csv.json, or the data package
    of a published file.

    Parameters
    ----------
    paths
        One file, or several in the same folder: they are signed together, in one signature.
    key
        The PEM file with the private key, or the key itself; `ss.keygen` makes one.
    signature
        The signature file, in the same folder. By default its name is that of the first file with .sig at the end.
    passphrase
        The passphrase of the private key, if it has one. By default it is taken from the environment variable
        SLOWSCALE_KEY_PASSPHRASE.
    overwrite
        Whether to replace an existing signature file.
    """
    files = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not files:
        raise ParameterError("paths must be one or more files to sign, got none")
    for path in files:
        if not isinstance(path, str | os.PathLike):
            raise ParameterTypeError(f"paths must be text or os.PathLike, got {type(path).__name__}")
    places = with_facts_files([Path(path) for path in files])
    target = free_target(signature_path(places[0]) if signature is None else signature, SIGNATURE_ENDING, overwrite)
    check_places(places, target)
    secret = read_private_key(key, passphrase)
    try:
        entries = [_measured(place, places) for place in places]
    except SignatureError as error:
        raise ParameterError(f"paths: {error}") from None
    signed = {
        "algorithm": ALGORITHM,
        "created": datetime.now(UTC).strftime(TIME_FORMAT),
        "files": [_entry(one) for one in entries],
        "format": SIGNATURE_FORMAT,
        "key": fingerprint(secret.public_key()),
    }
    written = _written(signed, secret.sign(_message(signed)))
    if len(written) > LARGEST_SIGNATURE_FILE:
        raise ParameterError(f"paths: {len(places):,} files are too many for one signature; sign them in parts")
    return write_files({target: lambda file: file.write_bytes(written)}, overwrite=overwrite)


def verify(
    path: str | os.PathLike[str],
    public_key: "str | os.PathLike[str] | Ed25519PublicKey",
    *,
    signature: str | os.PathLike[str] | None = None,
) -> Verified:
    """Verify that a file, and all files that were signed with it and are beside it, are as they were signed.

    Parameters
    ----------
    path
        The file. It must have the name that it was signed with.
    public_key
        The PEM file with the public key of the signer, or the key itself. Get it from a source that you trust.
    signature
        The signature file. By default it is the file with .sig at the end of the name, or the only signature in the
        folder that lists the file.

    Raises
    ------
    SignatureError
        If anything is not as it was signed. The error says what is wrong.
    """
    for argument, given in (("path", path), ("signature", signature)):
        if not isinstance(given, str | os.PathLike) and not (given is None and argument == "signature"):
            raise ParameterTypeError(f"{argument} must be text or os.PathLike, got {type(given).__name__}")
    place = Path(path)
    known = read_public_key(public_key)
    found = _find_signature(place) if signature is None else Path(signature)
    signed, proof = _read_signature(found)
    own = fingerprint(known)
    if signed["key"] != own:
        raise SignatureError(
            f"{found} was made by another key: by {signed['key']}, but the given public key is {own}", "key"
        )
    from cryptography.exceptions import InvalidSignature

    try:
        known.verify(proof, _message(signed))
    except InvalidSignature:
        raise SignatureError(
            f"{found} is not a valid signature by the key {own}: the signature file was changed after it was made, or "
            "is a forgery",
            "forged",
        ) from None
    # From here on, the list of files is what the signer wrote.
    listed = tuple(_from_entry(entry) for entry in signed["files"])
    if place.name not in {one.name for one in listed}:
        raise SignatureError(
            f"{found} is the signature of other files ({_some(listed)}), not of {place.name}; if the file was renamed, "
            "give it the name that it was signed with",
            "name",
        )
    if os.path.realpath(place.parent) != os.path.realpath(found.parent):
        raise SignatureError(
            f"{found} must be in the folder of {place}, because it is about the files in its own folder", "name"
        )
    files, facts = _verify_files(place, listed)
    created = datetime.strptime(signed["created"], TIME_FORMAT).replace(tzinfo=UTC)
    return Verified(place, found, own, created, files, facts)


def signature_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of the signature file that belongs to a file."""
    return Path(f"{os.fspath(path)}{SIGNATURE_ENDING}")


def with_facts_files(paths: Sequence[Path]) -> list[Path]:
    """Return the files, each CSV file followed by the JSON files with its facts that exist."""
    found: list[Path] = []
    for path in paths:
        beside = [path.with_name(name) for name in _facts_beside(path)]
        found += [one for one in (path, *beside) if one not in found]
    return found


def _facts_names(name: str) -> list[str]:
    """Return the names that the file with the facts of a CSV file may have; none for other files.

    They are NAME.csv.json for NAME.csv, and data packages: NAME.datapackage.json, or STEM.datapackage.json for
    STEM-TABLE.csv.
    """
    if not name.lower().endswith(".csv"):
        return []
    parts = name[: -len(".csv")].split("-")
    stems = ["-".join(parts[:n]) for n in range(len(parts), 0, -1)]
    return [f"{name}.json", *(f"{stem}{PACKAGE_ENDING}" for stem in stems if stem)]


def _facts_beside(path: Path) -> list[str]:
    """Return the names of the files that exist and would be read as the facts of a CSV file."""
    names = _facts_names(path.name)
    found = [name for name in names[:2] if os.path.lexists(path.with_name(name))]
    for name in names[2:]:  # the data package of other tables may have such a name too
        if os.path.lexists(path.with_name(name)):
            # What cannot be read is not a data package.
            with suppress(Exception), _opened(path.with_name(name)) as file:
                found += [name] if path.name in _tables_in(file, name) else []
    return found


def check_places(places: Sequence[Path], target: Path) -> None:
    """Raise unless all files are in the folder of the signature, and no two have names that a system confuses."""
    folder = os.path.realpath(target.parent)
    for place in places:
        if os.path.realpath(place.parent) != folder:
            raise ParameterError(
                f"paths: {place} is not in the folder of the signature, {target.parent}; sign the files of each folder "
                "by themselves"
            )
        if problem := _name_problem(place.name):
            raise ParameterError(f"paths: {place.name!r} {problem}; rename the file")
    names = [comparable_name(place.name) for place in places]
    for i, place in enumerate(places):
        if names[i] in names[:i]:
            raise ParameterError(f"paths: {place.name} is given twice, or another file's name differs only in case")
    if comparable_name(target.name) in names:
        raise ParameterError(f"signature must be another file than those that are signed, got {target}")


def _name_problem(name: str) -> str | None:
    """Return why a file name may not be in a signature, or None: it must stay in its folder on every system."""
    if not name or name in (".", "..") or any(mark in name for mark in "/\\:"):
        return "is not the plain name of a file in the same folder"
    if not name.isprintable():
        return "has characters that cannot be printed"
    if len(name.encode("utf-8", "replace")) > LONGEST_FILE_NAME:
        return f"is longer than {LONGEST_FILE_NAME} bytes"
    return None


# --- the files ---


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file, and raise if it is something else or changes in the meantime."""
    if path.is_symlink():
        raise _link(path)
    flags = os.O_RDONLY
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):
        flags |= getattr(os, name, 0)
    try:
        handle = os.open(path, flags)
    except FileNotFoundError:
        raise SignatureError(f"there is no file {path}", "missing", path.name) from None
    except (OSError, ValueError) as error:
        if path.is_symlink():
            raise _link(path) from None
        words = getattr(error, "strerror", None) or error
        raise SignatureError(f"{path} cannot be read: {words}", "unreadable", path.name) from None
    before = os.fstat(handle)
    if not stat.S_ISREG(before.st_mode):
        os.close(handle)
        raise SignatureError(f"{path} is not a regular file; give the path of a file", "unreadable", path.name)
    with os.fdopen(handle, "rb") as file:
        try:
            yield file
        except OSError as error:
            raise SignatureError(f"{path} cannot be read: {error.strerror or error}", "unreadable", path.name) from None
        after = os.fstat(handle)
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise SignatureError(f"{path} was changed while it was read; try again", "changed", path.name)


def _link(path: Path) -> SignatureError:
    return SignatureError(
        f"{path} is a symbolic link, which could lead anywhere; use the file itself", "link", path.name
    )


def _measured(path: Path, places: Sequence[Path]) -> SignedFile:
    """Return the entry of a file that is to be signed."""
    with _opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        digest = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
        facts = _facts_in(file, path.name)
    if size > LARGEST_FILE:
        raise SignatureError(f"{path} is too large", "unreadable", path.name)
    given = {place.name for place in places}
    beside = next((name for name in _facts_names(path.name) if name in given), None)
    if beside is not None:
        with _opened(path.with_name(beside)) as file:
            facts = _facts_in(file, beside)
    return _with_release(SignedFile(path.name, size, digest, beside), facts.get(path.name))


def _facts_in(file: BinaryIO, name: str) -> dict[str, Mapping[str, Any]]:
    """Return the facts in a Parquet file or in a JSON file, by the name of the table that they are about."""
    file.seek(0)
    try:
        found = _tables_in(file, name)
    except Exception:  # any file may be signed, also one that only looks like a release
        return {}
    return {
        table: facts
        for table, facts in found.items()
        if isinstance(facts, dict) and isinstance(facts.get("id"), str) and "policy" in facts
    }


def _tables_in(file: BinaryIO, name: str) -> dict[str, Any]:
    """Return the tables that a file is about, each with its facts or what stands in their place."""
    import pyarrow.parquet

    if name.lower().endswith(".parquet"):
        metadata = pyarrow.parquet.read_schema(file).metadata or {}
        return {name: json.loads(metadata.get(METADATA) or metadata[BASIC_METADATA])}
    if name.lower().endswith(".csv.json"):
        return {name[: -len(".json")]: json.load(file)}
    if name.lower().endswith(PACKAGE_ENDING):
        resources = json.load(file)["resources"]
        return {one["path"]: (one.get("slowscale") or {}).get("facts") for one in resources}
    return {}


def _with_release(file: SignedFile, facts: Mapping[str, Any] | None) -> SignedFile:
    """Return an entry with the release that the facts name."""
    if facts is None:
        return replace(file, release=None, dataset=None)
    return replace(file, release=_printable(facts["id"]), dataset=_printable(facts.get("dataset")))


def _printable(name: object) -> str | None:
    """Return a name as a signature states it: other characters than printable ones are replaced by question marks."""
    return "".join(one if one.isprintable() else "?" for one in name) if isinstance(name, str) else None


def _verify_files(place: Path, listed: tuple[SignedFile, ...]) -> tuple[tuple[SignedFile, ...], Facts | None]:
    """Compare the files with the signature; return the entries, and the facts of the file that was asked for."""
    folder, names = place.parent, {one.name for one in listed}
    own = next(one for one in listed if one.name == place.name)
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    problems: list[SignatureError] = []
    for one in listed:
        path = folder / one.name
        if one.name not in (own.name, own.facts) and not os.path.lexists(path):
            continue
        try:
            found[one.name] = _compared(path, one)
        except SignatureError as error:
            problems.append(error)
    for one in listed:
        for beside in _facts_beside(folder / one.name) if one.name in found else ():
            if beside in names:
                continue
            problems.append(
                SignatureError(
                    f"{folder / beside} is not in the signature, but it would be read as the facts of {one.name}; "
                    "remove it",
                    "extra",
                    beside,
                )
            )
        facts = found.get(one.facts or one.name)
        if one.name in found and facts is not None and _with_release(one, facts.get(one.name)) != one:
            problems.append(
                SignatureError(f"{folder / one.name}: its facts are not those that the signature states", "facts")
            )
    if problems:
        _raise_all(problems, place)
    present = tuple(replace(one, present=one.name in found) for one in listed)
    return present, _as_facts(found[own.facts or own.name].get(own.name))


def _raise_all(problems: Sequence[SignatureError], place: Path) -> NoReturn:
    """Raise one error that states all problems, those of the file that was asked for first."""
    first, *others = sorted(problems, key=lambda error: error.file != place.name)
    raise SignatureError("; ".join(map(str, (first, *others))), first.reason, first.file)


def _compared(path: Path, signed: SignedFile) -> dict[str, Mapping[str, Any]]:
    """Return the facts in a file, or raise unless the file is as it was signed."""
    with _opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size != signed.size:
            cut = ", so it may be truncated" if size < signed.size else ""
            raise SignatureError(
                f"{path} is not as it was signed: it has {size:,} bytes, and {signed.size:,} were signed{cut}",
                "changed",
                path.name,
            )
        if hashlib.file_digest(file, "sha256").hexdigest() != signed.sha256:  # type: ignore[arg-type]
            raise SignatureError(
                f"{path} is not as it was signed: it has the same size, but another content", "changed", path.name
            )
        return _facts_in(file, path.name)


def _as_facts(found: Mapping[str, Any] | None) -> Facts | None:
    """Return facts, or None if this version of slowscale cannot read them: the files are as signed even so."""
    if found is None:
        return None
    entries = {name: value for name, value in found.items() if name not in FILE_ENTRIES}
    try:
        return Facts.from_file(entries)
    except (SlowscaleError, TypeError, ValueError, AttributeError):
        return None


# --- the signature file ---


def _message(signed: Mapping[str, Any]) -> bytes:
    """Return the bytes that are signed: a fixed line, and the statement as canonical JSON (RFC 8785)."""
    text = json.dumps(signed, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return DOMAIN + text.encode()


def _written(signed: Mapping[str, Any], proof: bytes) -> bytes:
    """Return the content of a signature file. There is one content only for a statement and its signature."""
    whole = {"signature": base64.b64encode(proof).decode(), "signed": signed}
    return (json.dumps(whole, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _entry(file: SignedFile) -> dict[str, Any]:
    """Return a file as an entry of the statement."""
    names = ("dataset", "facts", "name", "release", "sha256", "size")
    return {name: getattr(file, name) for name in names}


def _from_entry(entry: Mapping[str, Any]) -> SignedFile:
    return SignedFile(**entry)


def _read_signature(path: Path) -> tuple[dict[str, Any], bytes]:
    """Return the statement in a signature file and the signature, after checking everything but the signature."""
    try:
        with _opened(path) as file:
            content = file.read(LARGEST_SIGNATURE_FILE + 1)
    except SignatureError as error:
        if error.reason == "missing":
            raise SignatureError(f"there is no signature file {path}", "unsigned") from None
        raise
    if len(content) > LARGEST_SIGNATURE_FILE:
        raise _damaged(path, "it is larger than any signature")
    try:
        whole = json.loads(
            content.decode(), object_pairs_hook=_unique, parse_float=_no_number, parse_constant=_no_number
        )
    except _NotStrictError as error:
        raise _damaged(path, str(error)) from None
    except (ValueError, RecursionError):
        cut = "it is empty" if not content.strip() else "it is not JSON, so it may be truncated"
        raise _damaged(path, cut) from None
    signed = whole.get("signed") if isinstance(whole, dict) else None
    if not isinstance(signed, dict) or not isinstance(signed.get("format"), str):
        raise _damaged(path, "it is not a signature that slowscale wrote")
    for what, known in (("format", SIGNATURE_FORMAT), ("algorithm", ALGORITHM)):
        if signed.get(what) != known:
            raise SignatureError(
                f"{path} has the {what} {signed.get(what)!r:.60}, but this version of slowscale knows only {known!r}",
                what,
            )
    try:
        proof = _checked(whole)
    except _NotStrictError as error:
        raise _damaged(path, str(error)) from None
    if _written(signed, proof) != content:
        raise _damaged(path, "its whitespace, its order of entries or its spelling was changed")
    return signed, proof


class _NotStrictError(ValueError):
    """Something in a signature file that `sign` never writes."""


def _damaged(path: Path, words: str) -> SignatureError:
    return SignatureError(f"{path} is damaged: {words}; use the file as it was published", "damaged")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _NotStrictError("it has the same entry twice")
    return found


def _no_number(text: str) -> NoReturn:
    raise _NotStrictError("it has a number that is not whole")


def _checked(whole: Mapping[str, Any]) -> bytes:
    """Return the signature of a signature file, or raise unless every entry has the form that `sign` writes."""
    signed = whole["signed"]
    _check_entries(whole, ("signature", "signed"))
    _check_entries(signed, ("algorithm", "created", "files", "format", "key"))
    text = whole["signature"]
    if not isinstance(text, str) or not re.fullmatch(r"[A-Za-z0-9+/]{86}==", text):
        raise _NotStrictError("its signature does not have 64 bytes")
    _check_digest(signed["key"], "the fingerprint of the key")
    try:
        if datetime.strptime(signed["created"], TIME_FORMAT).strftime(TIME_FORMAT) != signed["created"]:
            raise ValueError
    except (TypeError, ValueError):
        raise _NotStrictError("its time is not a time") from None
    files = signed["files"]
    if not isinstance(files, list) or not files:
        raise _NotStrictError("it lists no files")
    for one in files:
        if not isinstance(one, dict):
            raise _NotStrictError("its list of files is not one")
        _check_file(one)
    names = [comparable_name(one["name"]) for one in files]
    if len(set(names)) != len(names):
        raise _NotStrictError("it lists a file twice, or two names that differ only in case")
    listed = {one["name"] for one in files}
    for one in files:
        if one["facts"] is not None and one["facts"] not in listed.intersection(_facts_names(one["name"])):
            raise _NotStrictError(f"the facts of {one['name']!r} are not in it")
    return base64.b64decode(text)


def _check_file(one: Mapping[str, Any]) -> None:
    _check_entries(one, ("dataset", "facts", "name", "release", "sha256", "size"))
    name, size = one["name"], one["size"]
    if not isinstance(name, str):
        raise _NotStrictError("a file name in it is not text")
    if problem := _name_problem(name):
        raise _NotStrictError(f"the file name {name!r:.80} {problem}")
    _check_digest(one["sha256"], f"the SHA-256 of {name!r}")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= LARGEST_FILE:
        raise _NotStrictError(f"the size of {name!r} is not a size")
    for entry in ("dataset", "facts", "release"):
        if one[entry] is not None and not (isinstance(one[entry], str) and one[entry].isprintable()):
            raise _NotStrictError(f"the entry {entry!r} of {name!r} is not text that can be printed")


def _check_entries(found: Mapping[str, Any], names: Sequence[str]) -> None:
    if sorted(found) != sorted(names):
        raise _NotStrictError("entries are missing, or there are others")


def _check_digest(found: object, what: str) -> None:
    if not isinstance(found, str) or not re.fullmatch(r"[0-9a-f]{64}", found):
        raise _NotStrictError(f"{what} is not 64 hexadecimal digits")


def _find_signature(place: Path) -> Path:
    """Return the signature file beside a file: that with its name, or the only one that lists it."""
    own = signature_path(place)
    if os.path.lexists(own):
        return own
    if not os.path.lexists(place):
        raise SignatureError(f"there is no file {place}", "missing", place.name)
    found = []
    for path in sorted(place.parent.glob(f"*{SIGNATURE_ENDING}")):
        try:
            signed, _ = _read_signature(path)
        except SignatureError:
            continue
        if place.name in (one["name"] for one in signed["files"]):
            found.append(path)
    if len(found) == 1:
        return found[0]
    if not found:
        raise SignatureError(
            f"{place} has no signature: there is no file {own}, and no other signature in its folder lists it",
            "unsigned",
            place.name,
        )
    raise SignatureError(
        f"several signatures list {place.name}: {', '.join(path.name for path in found)}; say which one to use",
        "unsigned",
        place.name,
    )


def _some(files: Sequence[SignedFile]) -> str:
    shown = ", ".join(one.name for one in files[:3])
    return shown if len(files) <= 3 else f"{shown} and {len(files) - 3:,} more"
