"""Signatures: the public tools verify them, every changed byte is found, and forgeries are refused."""

import base64
import hashlib
import itertools
import json
import os
import pickle
import random
import re
import shutil
import subprocess
import time
import tracemalloc

import pandas as pd
import pytest
from cryptography.hazmat.primitives.kdf import scrypt
from helpers.engines import unavailable
from helpers.errors import refused
from helpers.releases import release_of
from typer.testing import CliRunner

import slowscale as ss
from slowscale.cli.app import EXIT_CODES, app
from slowscale.plan import check_plan, run_plan
from slowscale.publish import minisign, publish
from slowscale.publish.minisign import PASSPHRASE_VARIABLE, read_public_key, read_secret_key
from slowscale.publish.signing import SIGNATURE, SUMS

KEYS = ss.Keys.cross({"state": ["IA", "TX"]})
RECORDS = pd.DataFrame({"state": ["IA", "IA", "TX"], "cattle": [120, 4000, 31000]})
PASSPHRASE = "correct horse, ünïcode"
LOW_LIMITS = (2**19, 2**24)  # of scrypt: the default of minisign takes seconds and a gigabyte
RANDOM = random.Random(7)
COMMENT = f"timestamp:1700000000\tfile:{SUMS}\thashed"


@pytest.fixture(scope="module")
def release():
    return ss.Session(RECORDS, dataset="farms").sum({"cattle": ss.Gaussian(sigma=50)}, keys=KEYS)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Return the files of a secret and of a public key."""
    return ss.keygen(tmp_path_factory.mktemp("keys") / "agency")


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return ss.keygen(tmp_path_factory.mktemp("others") / "other")


@pytest.fixture(scope="module")
def published(release, keys, tmp_path_factory):
    folder = tmp_path_factory.mktemp("published")
    release.to_csv(folder / "cells.csv")
    release.to_parquet(folder / "nation.parquet")
    (folder / "höfe 農場.html").write_text("<p>notes</p>")
    ss.sign(folder, keys[0])
    return folder


@pytest.fixture
def folder(published, tmp_path):
    """Return a signed folder."""
    return shutil.copytree(published, tmp_path / "published")


NAMES = ["cells.csv", "cells.csv.json", "höfe 農場.html", "nation.parquet"]


def signature_error(path, key):
    """Return the error with which a file or a folder is refused."""
    with pytest.raises(ss.SignatureError) as caught:
        ss.verify(path, key)
    return caught.value


@pytest.fixture(scope="module")
def tool():
    """Return a function that runs minisign, and returns whether it succeeded and what it printed."""
    for name in ("minisign", "sha256sum"):
        if shutil.which(name) is None:
            unavailable(name.upper(), "install it: apt-get install minisign coreutils")

    def run(*arguments, given="", folder=None):
        command = ["minisign", *map(str, arguments)]
        done = subprocess.run(command, input=given, cwd=folder, capture_output=True, text=True)
        return done.returncode == 0, done.stdout + done.stderr

    return run


def judged(tool, folder, public):
    """Return whether minisign accepts the signature of a folder."""
    return tool("-V", "-m", SUMS, "-p", public, folder=folder)[0]


def hashes_match(folder):
    """Return whether sha256sum accepts the files of a folder."""
    command = ["sha256sum", "--check", "--strict", "--quiet", SUMS]
    return subprocess.run(command, cwd=folder, capture_output=True).returncode == 0


# --- valid signatures ---


def test_a_signed_folder(folder, keys):
    lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    assert lines == [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}" for name in NAMES]
    found = ss.verify(folder, keys[1])
    assert (found.folder, list(found.files), found.absent, found.unlisted) == (folder, NAMES, (), ())
    assert found.key == keys[1].read_text().splitlines()[1]
    for name in NAMES:
        assert ss.verify(folder / name, keys[1]) == found
    assert str(found) == (
        f"{folder / SUMS} was signed on {found.created:%Y-%m-%d %H:%M:%S} UTC by the key {found.key}.\n"
        f"Matching: {', '.join(NAMES)}"
    )
    assert json.loads(json.dumps(found.to_dict()))["files"] == NAMES


def test_absent_and_unlisted_files_are_named(folder, keys):
    (folder / "nation.parquet").unlink()
    (folder / "new\x1b[2J.txt").write_text("new")
    found = ss.verify(folder, keys[1])
    assert (found.absent, found.unlisted) == (("nation.parquet",), ("'new\\x1b[2J.txt'",))
    assert "Listed, but not here: nation.parquet\nHere, but not listed: 'new" in str(found)
    assert signature_error(folder / "nation.parquet", keys[1]).code == "missing"
    for name in NAMES[:3]:
        (folder / name).unlink()
    assert "has none of the files" in str(signature_error(folder, keys[1]))


# --- the public tools ---


def test_the_public_tools_verify(folder, keys, other, tool):
    accepted, printed = tool("-V", "-H", "-m", SUMS, "-p", keys[1], folder=folder)
    assert accepted
    assert re.search(r"Trusted comment: timestamp:\d+\tfile:SHA256SUMS\thashed", printed)
    assert hashes_match(folder)
    assert tool("-V", "-m", SUMS, "-P", ss.verify(folder, keys[1]).key, folder=folder)[0]
    assert not judged(tool, folder, other[1])


def test_minisign_signs_with_keys_from_here(folder, keys, tool):
    assert tool("-S", "-m", SUMS, "-s", keys[0], folder=folder)[0]
    assert list(ss.verify(folder, keys[1]).files) == NAMES


def test_keys_of_minisign(folder, tmp_path, tool):
    secret, public = tmp_path / "m.key", tmp_path / "m.pub"
    assert tool("-G", "-W", "-s", secret, "-p", public)[0]
    ss.sign(folder, secret, overwrite=True)
    assert judged(tool, folder, public)
    assert ss.verify(folder, public).key == public.read_text().splitlines()[1]
    assert tool("-R", "-s", secret, "-p", tmp_path / "again.pub")[0]
    assert str(read_secret_key(secret).public) == (tmp_path / "again.pub").read_text().splitlines()[1]
    # Such a key has no checksum. Its two halves must belong together.
    comment, text = secret.read_text().splitlines()
    for place in range(62, 126):
        changed = bytearray(base64.b64decode(text))
        changed[place] ^= 1
        secret.write_text(f"{comment}\n{base64.b64encode(changed).decode()}\n")
        with refused(ss.ParameterError, code="damaged"):
            read_secret_key(secret)


def test_encrypted_keys_of_minisign(folder, tmp_path, tool):
    secret, public = tmp_path / "m.key", tmp_path / "m.pub"
    # With little memory, minisign lowers the limits of scrypt, which takes seconds otherwise.
    command = f"ulimit -v 60000; exec minisign -G -s {secret} -p {public}"
    subprocess.run(["sh", "-c", command], input=f"{PASSPHRASE}\n" * 2, text=True, check=True, capture_output=True)
    ss.sign(folder, secret, passphrase=PASSPHRASE, overwrite=True)
    assert judged(tool, folder, public)
    assert ss.verify(folder, public)
    with refused(ss.ParameterError, code="passphrase"):
        ss.sign(folder, secret, passphrase="another", overwrite=True)


@pytest.mark.parametrize("limits", [LOW_LIMITS, (2**15, 2**24), (0, 0), (2**20, 2**20), (2**18, 2**23)])
def test_minisign_reads_encrypted_keys_from_here(folder, tmp_path, tool, monkeypatch, limits):
    monkeypatch.setattr(minisign, "SCRYPT_LIMITS", limits)
    secret, public = ss.keygen(tmp_path / "locked", PASSPHRASE)
    assert tool("-S", "-m", SUMS, "-s", secret, folder=folder, given=f"{PASSPHRASE}\n")[0]
    assert ss.verify(folder, public)
    assert not tool("-S", "-m", SUMS, "-s", secret, folder=folder, given="another\n")[0]


@pytest.mark.parametrize(("limits", "n"), [((2**25, 2**30), 2**20), ((2**19, 2**24), 2**14)])
def test_the_parameters_of_scrypt_are_those_of_libsodium(monkeypatch, limits, n):
    found = []

    class Recorded:
        def __init__(self, *given):
            found.append(given)

        def derive(self, secret):
            return bytes(104)

    monkeypatch.setattr(scrypt, "Scrypt", Recorded)
    minisign._encrypted(bytes(104), "x", b"salt of this test", *limits)
    assert found == [(b"salt of this test", 104, n, 8, 1)]
    minisign._encrypted.cache_clear()
    assert minisign.SCRYPT_LIMITS == (2**25, 2**30)


# --- changed bytes ---


def signed_content(text):
    """Return the parts of a signature file that minisign reads: all but the untrusted comment and the line ends."""
    _, first, comment, second, *_ = text.replace(b"\r\n", b"\n").split(b"\n")
    return base64.b64decode(first), comment, base64.b64decode(second)


@pytest.mark.parametrize("name", [SUMS, SIGNATURE, "höfe 農場.html"])
def test_every_changed_byte_is_found(folder, keys, tool, name):
    target = folder / name
    content = target.read_bytes()
    accepted = []
    for place in range(len(content)):
        for changed in (0x09 if content[place] == 0x20 else 0x20, content[place] ^ (1 << place % 8)):
            target.write_bytes(content[:place] + bytes([changed]) + content[place + 1 :])
            signature_error(folder / NAMES[0], keys[1])
        if judged(tool, folder, keys[1]) and hashes_match(folder):
            accepted.append(target.read_bytes())
    # Nothing protects the untrusted comment, which minisign does not read. Here it has one form.
    assert len(accepted) >= (len("signature from minisign secret key") if name == SIGNATURE else 0)
    assert all(name == SIGNATURE and signed_content(text) == signed_content(content) for text in accepted)
    target.write_bytes(content)
    ss.verify(folder, keys[1])


def test_files_of_another_length_are_found(folder, keys):
    for name in (SUMS, SIGNATURE, *NAMES):
        content = (folder / name).read_bytes()
        for changed in (*(content[:size] for size in (0, 1, len(content) // 2, len(content) - 1)), content + b"\n"):
            (folder / name).write_bytes(changed)
            error = signature_error(folder, keys[1])
            expected = {SUMS: ("forged", None), SIGNATURE: ("damaged", None)}.get(name, ("changed", name))
            assert (error.code, error.file) == expected
        (folder / name).write_bytes(content)


def test_all_problems_are_named(folder, keys):
    (folder / "cells.csv").write_text("x")
    (folder / "nation.parquet").write_text("<p>NOTES</p>")
    error = signature_error(folder / "nation.parquet", keys[1])
    assert (error.code, error.file) == ("changed", "nation.parquet")
    assert str(error).count("does not match its signature") == 2
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


# --- forgeries ---


def lines_of(text):
    """Yield changed lists of files: what somebody without the key could write into SHA256SUMS."""
    lines = text.splitlines(keepends=True)
    digest = lines[0][:64]
    for i, line in enumerate(lines):
        yield "".join(lines[:i] + lines[i + 1 :])
        yield "".join([*lines, line])
        for added in ("#", "\n", "\\"):
            yield "".join([*lines[:i], added, *lines[i:]])
        for old, new in (("  ", " *"), ("  ", " "), ("  ", "\t"), ("\n", "\r\n"), ("\n", " \n"), ("  ", "  ./")):
            yield "".join([*lines[:i], line.replace(old, new), *lines[i + 1 :]])
        for at in RANDOM.sample(range(len(line) - 1), 8):
            yield "".join([*lines[:i], line[:at], RANDOM.choice("GHJKQ"), line[at + 1 :], *lines[i + 1 :]])
    for order in itertools.islice(itertools.permutations(range(len(lines))), 1, None):
        yield "".join(lines[i] for i in order)
        yield "".join(f"{lines[i][:64]}{line[64:]}" for i, line in zip(order, lines, strict=True))
    for wrong in WRONG_NAMES:
        yield f"{text}{digest}  {wrong}\n"
    yield from ("", "\n", text.rstrip("\n"), text + "\x00", "\ufeff" + text, text.replace("\n", "\r\n"), text + text)


WRONG_NAMES = [
    "../cells.csv", "/etc/passwd", "sub/cells.csv", "./cells.csv", "..\\cells.csv", "C:cells.csv", "..", ".", "-", "",
    "a\rb.csv", "a\u202eb.csv", "a\x00b", "a\x85b", "x" * 256, "ü" * 128, "CELLS.CSV", "cells.csv", SUMS, SIGNATURE,
    "sha256sums", "a\x1b[2J", "a\u2028b",
]  # fmt: skip


def signatures_of(signature, sums, keys, other):
    """Yield changed signature files: what somebody without the key could write into SHA256SUMS.minisig."""
    comment, first, trusted, second, _ = signature.decode().split("\n")
    raw, proof = base64.b64decode(first), base64.b64decode(second)

    def written(raw=raw, trusted=trusted, proof=proof, comment=comment):
        return "\n".join([comment, base64.b64encode(raw).decode(), trusted, base64.b64encode(proof).decode(), ""])

    for seconds in ("0", "1700000000", "99999999999"):
        yield written(trusted=re.sub(r"timestamp:\d+", f"timestamp:{seconds}", trusted))
    for old, new in ((SUMS, "other"), ("\thashed", ""), (SUMS, f"{SUMS} "), ("\t", " "), ("timestamp:", "time:")):
        yield written(trusted=trusted.replace(old, new))
    for algorithm in (b"Ed", b"eD", b"\0\0", b"RS"):
        yield written(raw[2:].join([algorithm, b""]))
    known, foreign = read_public_key(keys[1]), read_secret_key(other[0])
    forged = foreign.sign(sums, trusted.removeprefix("trusted comment: ")).decode()
    yield forged
    one, two = (base64.b64decode(line) for line in forged.split("\n")[1:4:2])
    for identifier in (known.id, bytes(8), known.id[::-1]):
        yield written(b"ED" + identifier + one[10:], proof=two)
        yield written(b"ED" + identifier + one[10:])
        yield written(b"ED" + identifier + raw[10:], proof=two)
    yield written(raw[:10] + proof, proof=raw[10:])
    yield written(raw[:10] + bytes(64), proof=bytes(64))
    # A second form of the same signature: its last half plus the order of the group.
    order = 2**252 + 27742317777372353535851937790883648493
    for one in (raw[10:], proof):
        twin = one[:32] + (int.from_bytes(one[32:], "little") + order).to_bytes(32, "little")
        yield written(raw[:10] + twin) if one == raw[10:] else written(proof=twin)
    for _ in range(40):
        yield written(bytes([*raw[:10], *RANDOM.randbytes(64)]))
        at, bit = RANDOM.randrange(64), 1 << RANDOM.randrange(8)
        yield written(proof=bytes([*proof[:at], proof[at] ^ bit, *proof[at + 1 :]]))
    text = signature.decode()
    # The last digit of Base64 before the padding has bits without a meaning.
    for line, end in ((first, "="), (second, "==")):
        digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
        last = line.rstrip("=")[-1]
        yield text.replace(line, f"{line.rstrip('=')[:-1]}{digits[digits.index(last) + 1]}{end}")
        yield text.replace(line, line.rstrip("="))
        yield text.replace(line, f"{line}=")
        yield text.replace(line, f"{line[:40]}\n{line[40:]}")
        yield text.replace(line, f" {line}")
    for lines in itertools.islice(itertools.permutations([comment, first, trusted, second]), 1, None):
        yield "\n".join([*lines, ""])
    yield from (text.replace("\n", "\r\n"), text.rstrip("\n"), text + "\n", text + "x\n", text + text, "\n" + text, "")
    yield written(comment="untrusted comment: trust the key in this folder")


def moved_files(folder):
    """Yield after changing the files themselves, in a folder of its own each time."""
    for one, two in itertools.permutations(NAMES, 2):

        def swap(place, one=one, two=two):
            content = (place / one).read_bytes()
            (place / one).write_bytes((place / two).read_bytes())
            (place / two).write_bytes(content)

        def copy(place, one=one, two=two):
            shutil.copy(place / one, place / two)

        yield swap
        yield copy
    for name in NAMES:

        def cut(place, name=name):
            os.truncate(place / name, (place / name).stat().st_size - 1)

        def link(place, name=name):
            (place / name).rename(place / "elsewhere")
            (place / name).symlink_to(place / "elsewhere")

        yield cut
        yield link


def test_forgeries_are_refused(folder, keys, other, tool):
    """Whoever does not have the key: minisign refuses the signature, or sha256sum the files, and so does `verify`."""
    sums, signature = (folder / SUMS).read_bytes(), (folder / SIGNATURE).read_bytes()
    stricter, count = [], 0

    def check(forgery):
        nonlocal count
        count += 1
        signature_error(folder, keys[1])
        if judged(tool, folder, keys[1]) and hashes_match(folder):
            stricter.append(forgery)

    for text in dict.fromkeys(lines_of(sums.decode())):
        (folder / SUMS).write_bytes(text.encode())
        check(text)
    (folder / SUMS).write_bytes(sums)
    assert not stricter
    for text in dict.fromkeys(signatures_of(signature, sums, keys, other)):
        (folder / SIGNATURE).write_bytes(text.encode())
        check(text)
    assert {"trust the key in this folder" in text for text in stricter} == {True, False}
    assert {signed_content(text.encode()) for text in stricter} == {signed_content(signature)}
    (folder / SIGNATURE).write_bytes(signature)
    stricter.clear()
    ss.verify(folder, keys[1])
    for change in moved_files(folder):
        shutil.copytree(folder, folder.parent / "kept")
        change(folder)
        check(change.__name__)
        shutil.rmtree(folder)
        (folder.parent / "kept").rename(folder)
    assert set(stricter) == {"link"}  # the content is that of the file that the link leads to
    assert count >= 300


@pytest.mark.parametrize(
    "change",
    [
        *(lambda text, name=name: f"{text}{'0' * 64}  {name}\n" for name in WRONG_NAMES),
        lambda text: text + text.splitlines(keepends=True)[0],
        lambda text: text + "0" * 64 + text.splitlines(keepends=True)[0][64:],
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("  ", " *"),
        lambda text: text.replace("  ", " "),
        lambda text: text.upper(),
        lambda text: text.rstrip("\n"),
        lambda text: text + "\n",
        lambda text: "\n" + text,
        lambda text: "# comment\n" + text,
        lambda text: "\\" + text,
        lambda text: "\ufeff" + text,
        lambda text: text.replace("h", "\udcff"),
        lambda text: text.replace("a", "g"),
        lambda text: "",
    ],
)
def test_lists_that_are_signed_but_wrong(folder, keys, tool, change):
    """The signature is valid, and still a list with another form is refused."""
    content = change((folder / SUMS).read_text(encoding="utf-8")).encode(errors="surrogateescape")
    (folder / SUMS).write_bytes(content)
    (folder / SIGNATURE).write_bytes(read_secret_key(keys[0]).sign(content, COMMENT))
    assert judged(tool, folder, keys[1])
    assert signature_error(folder, keys[1]).code == "damaged"


def test_other_signatures_by_the_same_key(folder, keys, tool):
    # The legacy algorithm, which does not hash the file first.
    assert tool("-S", "-l", "-m", SUMS, "-s", keys[0], folder=folder)[0]
    assert judged(tool, folder, keys[1])
    assert signature_error(folder, keys[1]).code == "algorithm"
    # A signature of another file, or with comments of somebody's own.
    for options in (["-t", "timestamp:1\tfile:x\thashed"], ["-t", "mine"], ["-c", "mine"]):
        assert tool("-S", *options, "-m", SUMS, "-s", keys[0], folder=folder)[0]
        assert judged(tool, folder, keys[1])
        error = signature_error(folder, keys[1])
        assert error.code == "damaged"
        assert "`minisign -Sm SHA256SUMS`" in str(error)


def test_other_keys(folder, keys, other, tmp_path):
    error = signature_error(folder, other[1])
    assert error.code == "key"
    for path in (keys[1], other[1]):
        assert path.read_text().split()[5] in str(error)
    # A key with the same identifier, which anybody can make.
    known, foreign = read_public_key(keys[1]), read_public_key(other[1])
    twin = tmp_path / "twin.pub"
    twin.write_text(f"untrusted comment: x\n{minisign.PublicKey(known.id, foreign.key)}\n")
    assert signature_error(folder, twin).code == "forged"


def test_older_files_with_their_signature_are_another_release(folder, keys):
    sums, signature = (folder / SUMS).read_bytes(), (folder / SIGNATURE).read_bytes()
    later = ss.Session(RECORDS, dataset="farms").sum({"cattle": ss.Gaussian(sigma=50)}, keys=KEYS)
    later.to_parquet(folder / "nation.parquet", overwrite=True)
    ss.sign(folder, keys[0], overwrite=True)
    ss.verify(folder, keys[1])
    (folder / SIGNATURE).write_bytes(signature)
    assert signature_error(folder, keys[1]).code == "forged"
    (folder / SUMS).write_bytes(sums)
    assert signature_error(folder, keys[1]).code == "changed"


# --- facts, links and missing files ---


def test_facts_belong_to_a_csv_file(folder, keys):
    facts = folder / "cells.csv.json"
    facts.write_text(facts.read_text().replace("farms", "firms"))
    assert signature_error(folder / "cells.csv", keys[1]).file == "cells.csv.json"
    facts.unlink()
    for path in (folder, folder / "cells.csv", folder / "nation.parquet"):
        error = signature_error(path, keys[1])
        assert (error.code, error.file) == ("missing", "cells.csv.json")
    (folder / "cells.csv").unlink()
    assert ss.verify(folder, keys[1]).absent == ("cells.csv", "cells.csv.json")


@pytest.mark.parametrize("name", ["codes-a.csv.json", "codes-a.datapackage.json", "codes.datapackage.json"])
def test_facts_that_appear_later_are_refused(keys, tmp_path, name):
    (tmp_path / "codes-a.csv").write_text("code\n1\n")
    ss.sign(tmp_path, keys[0])
    ss.verify(tmp_path, keys[1])
    (tmp_path / name).write_text("{}")
    error = signature_error(tmp_path, keys[1])
    assert (error.code, error.file) == ("extra", name)
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("nowhere")
    assert signature_error(tmp_path / "codes-a.csv", keys[1]).code == "extra"


def test_data_packages_are_signed_with_their_tables(release, keys, tmp_path):
    cells = release[next(iter(release))]
    publish(release_of(release, {"a-b": cells, "c": cells}), tmp_path / "set.csv", ss.Publication("Cattle"))
    ss.sign(tmp_path / "set-a-b.csv", keys[0])
    found = ss.verify(tmp_path / "set-a-b.csv", keys[1])
    assert (found.files, found.unlisted) == (("set-a-b.csv", "set.datapackage.json"), ("set-c.csv",))
    package = tmp_path / "set.datapackage.json"
    package.write_text(package.read_text().replace("Cattle", "cattle"))
    assert signature_error(tmp_path / "set-a-b.csv", keys[1]).code == "changed"
    package.unlink()
    assert signature_error(tmp_path / "set-a-b.csv", keys[1]).code == "missing"


def test_symbolic_links_are_refused(folder, keys):
    (folder.parent / "link").symlink_to(folder)
    assert signature_error(folder.parent / "link", keys[1]).code == "link"
    for name in (*NAMES, SUMS, SIGNATURE):
        path, elsewhere = folder / name, folder.parent / "elsewhere"
        path.rename(elsewhere)
        path.symlink_to(elsewhere)
        error = signature_error(folder, keys[1])
        assert error.code == "link"
        assert str(path) in str(error)
        path.unlink()
        elsewhere.rename(path)
    (folder / "nation.parquet").unlink()
    (folder / "nation.parquet").symlink_to("nowhere")  # a link that leads nowhere is not an absent file
    assert signature_error(folder, keys[1]).code == "link"
    assert signature_error(folder / "nation.parquet", keys[1]).code == "link"


def test_other_kinds_of_files_are_refused(folder, keys):
    path = folder / "nation.parquet"
    path.unlink()
    os.mkfifo(path)
    assert signature_error(folder, keys[1]).code == "unreadable"
    path.unlink()
    path.mkdir()
    assert signature_error(folder, keys[1]).code == "unreadable"


def test_missing_and_renamed_files(folder, keys):
    assert signature_error(folder / "none.parquet", keys[1]).code == "missing"
    assert signature_error(folder / "none" / "none.parquet", keys[1]).code == "missing"
    assert signature_error(folder / "a\0b", keys[1]).code == "unreadable"
    (folder / "nation.parquet").rename(folder / "world.parquet")
    error = signature_error(folder / "world.parquet", keys[1])
    assert (error.code, error.file) == ("name", "world.parquet")
    assert "if the file was renamed" in str(error)
    for name in (SIGNATURE, SUMS):
        (folder / name).unlink()
        error = signature_error(folder / "cells.csv", keys[1])
        assert error.code == "unsigned"
        assert str(folder / name) in str(error)


def test_large_files_are_read_in_parts(keys, tmp_path):
    path = tmp_path / "huge.bin"
    with open(path, "wb") as file:
        file.truncate(200 * 2**20)
    tracemalloc.start()
    ss.sign(tmp_path, keys[0])
    ss.verify(path, keys[1])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * 2**20
    for name in (SIGNATURE, SUMS):
        with open(tmp_path / name, "wb") as file:
            file.truncate(2**40)  # a signature of a terabyte is not read
        assert "more than 16,777,216 bytes" in str(signature_error(path, keys[1]))


def test_a_file_that_changes_while_it_is_read(folder, keys, monkeypatch):
    def digest(file, name):
        os.utime(folder / "nation.parquet", (1, time.time()))
        return hashlib.new(name, file.read())

    monkeypatch.setattr("slowscale.publish.signing.hashlib.file_digest", digest)
    assert "was changed while it was read" in str(signature_error(folder, keys[1]))


# --- signing ---


def test_files_that_cannot_be_signed(folder, keys):
    path = folder / "nation.parquet"
    with pytest.raises(ss.ParameterError, match=r"SHA256SUMS already exists"):
        ss.sign(path, keys[0])
    (folder / SUMS).unlink()
    with pytest.raises(ss.ParameterError, match=r"SHA256SUMS\.minisig already exists"):
        ss.sign(path, keys[0])
    ss.sign(path, keys[0], overwrite=True)
    assert ss.verify(path, keys[1]).files == ("nation.parquet",)
    (folder / "sub").mkdir()
    shutil.copy(path, folder / "sub")
    (folder / "link").symlink_to(path)
    (folder / "a\nb.txt").write_text("x")
    (folder / "a").write_text("x")
    (folder / "A").write_text("x")
    for paths, code, words in (
        ([], "empty", ""),
        (folder / "none.csv", "missing", ""),
        ([path, folder / "sub" / ".." / path.name], "name", "is given twice"),
        ([path, folder / "sub" / path.name], "several-folders", ""),
        (folder / "link", "link", ""),
        (folder / "a\nb.txt", "name", "cannot be printed"),
        ([folder / "a", folder / "A"], "name", "only in case"),
        ([folder / SUMS], "name", "is the signature itself"),
        ([path, folder / "sub"], "unreadable", "Is a directory"),
        (folder, "name", "only in case"),
    ):
        with refused(ss.ParameterError, code=code) as caught:
            ss.sign(paths, keys[0], overwrite=True)
        assert words in caught.value.problem
    (folder / "a\nb.txt").unlink()
    (folder / "A").unlink()
    with refused(ss.ParameterError, f"paths: {folder / 'link'}", code="link"):
        ss.sign(folder, keys[0], overwrite=True)
    (folder / "link").unlink()
    with refused(ss.ParameterError, f"paths: {folder / 'sub'}", code="unreadable"):
        ss.sign(folder, keys[0], overwrite=True)
    ss.verify(path, keys[1])
    (folder / "empty").mkdir()
    with refused(ss.ParameterError, "paths", code="empty"):
        ss.sign(folder / "empty", keys[0])
    for call, subject in (
        (lambda: ss.sign([1], keys[0]), "paths"),
        (lambda: ss.sign(path, 1, overwrite=True), "key"),
        (lambda: ss.verify(1, keys[1]), "path"),
    ):
        with refused(TypeError, subject, code="type"):
            call()


def test_hidden_files_are_not_signed_and_keys_never(folder, keys):
    (folder / ".hidden").write_text("x")
    ss.sign(folder, keys[0], overwrite=True)
    assert ss.verify(folder, keys[1]).unlisted == (".hidden",)
    shutil.copy(keys[0], folder / "agency.key")
    for paths in (folder, [folder / "cells.csv", folder / "agency.key"]):
        with refused(ss.ParameterError, code="secret"):
            ss.sign(paths, folder / "agency.key", overwrite=True)


# --- keys ---


def test_keys_are_written_once_and_for_the_owner_only(keys, tmp_path):
    assert keys[0].stat().st_mode & 0o777 == 0o600
    assert keys[1].stat().st_mode & 0o777 == 0o644
    for ending in (".key", ".pub"):
        (tmp_path / f"x{ending}").write_text("mine")
        with refused(ss.ParameterError, code="exists"):
            ss.keygen(tmp_path / "x")
        assert os.listdir(tmp_path) == [f"x{ending}"]
        (tmp_path / f"x{ending}").unlink()
    with pytest.raises(ss.ParameterError, match="folder"):
        ss.keygen(tmp_path / "none" / "x")
    with refused(ss.ParameterError, "name", code="value"):
        ss.keygen("")
    assert "agency" not in repr(read_secret_key(keys[0]))


@pytest.mark.parametrize("passphrase", ["s" * 1024, "ü" * 512, "s\udcff", "", 5])
def test_passphrases_that_cannot_be_used(tmp_path, passphrase):
    with refused(ss.ParameterError, "passphrase", code="value") as caught:
        ss.keygen(tmp_path / "k", passphrase)
    assert "ss" not in str(caught.value).replace("passphrase", "")
    assert caught.value.__context__ is None
    assert not list(tmp_path.iterdir())


def test_passphrases(folder, tmp_path, monkeypatch):
    monkeypatch.delenv(PASSPHRASE_VARIABLE, raising=False)
    monkeypatch.setattr(minisign, "SCRYPT_LIMITS", LOW_LIMITS)
    secret, public = ss.keygen(tmp_path / "locked", PASSPHRASE)
    with refused(ss.ParameterError, f"key: {secret}", code="encrypted"):
        ss.sign(folder, secret, overwrite=True)
    with refused(ss.ParameterError, code="passphrase") as caught:
        ss.sign(folder, secret, passphrase="wrong one", overwrite=True)
    assert "wrong one" not in repr(caught.value)
    ss.sign(folder, secret, passphrase=PASSPHRASE, overwrite=True)
    monkeypatch.setenv(PASSPHRASE_VARIABLE, PASSPHRASE)
    ss.sign(folder, secret, overwrite=True)
    ss.verify(folder, public)
    for lower in ((2**18, 2**24), (2**19, 2**23)):
        monkeypatch.setattr(minisign, "SCRYPT_LIMITS", lower)
        with refused(ss.ParameterError, code="too-large"):
            ss.sign(folder, secret, overwrite=True)
    long = ss.keygen(tmp_path / "long", "s" * 1023)
    assert read_secret_key(long[0], "s" * 1023).public == read_public_key(long[1])


@pytest.mark.parametrize("passphrase", [None, PASSPHRASE])
def test_every_changed_byte_of_a_secret_key_is_found(tmp_path, monkeypatch, passphrase):
    monkeypatch.setattr(minisign, "SCRYPT_LIMITS", (2**15, 2**16))
    path = ss.keygen(tmp_path / "k", passphrase)[0]
    comment, text = path.read_text().splitlines()
    raw = base64.b64decode(text)
    for place in range(len(raw)):
        # Without a passphrase there is no salt; and several limits lead to the same parameters of scrypt.
        if (6 if passphrase is None else 38) <= place < 54:
            continue
        changed = bytearray(raw)
        changed[place] ^= 1 << place % 8
        path.write_text(f"{comment}\n{base64.b64encode(changed).decode()}\n")
        with pytest.raises(ss.ParameterError, match="damaged"):
            read_secret_key(path, passphrase)


def test_files_that_are_not_keys(folder, keys, tmp_path):
    path = tmp_path / "k"
    secret, public = (key.read_bytes() for key in keys)
    damaged = "damaged"
    for content, signs, verifies in (
        (secret, None, "secret-key"),
        (public, "public-key", None),
        (secret[:80], damaged, damaged),
        (public.replace(b"RW", b"RX"), damaged, damaged),
        (public.replace(b"untrusted", b"trusted"), damaged, damaged),
        (public.partition(b"\n")[2], damaged, damaged),
        (public.replace(b"\n", b"\r\n"), "public-key", None),
        (b"-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2Vw\n", damaged, damaged),
        (b"", damaged, damaged),
        (b"x" * 100_000, damaged, damaged),
    ):
        path.write_bytes(content)
        for use, code in (
            (lambda: ss.sign(folder, path, overwrite=True), signs),
            (lambda: ss.verify(folder, path), verifies),
        ):
            if code is None:
                use()
                continue
            with refused(ss.ParameterError, f"key: {path}", code=code) as caught:
                use()
            assert secret.decode().splitlines()[1][-20:] not in f"{caught.value!r} {caught.value.__cause__!r}"
    for use in (ss.sign, ss.verify):
        with refused(ss.ParameterError, f"key: {tmp_path / 'none'}", code="missing"):
            use(folder / "cells.csv", tmp_path / "none", **({"overwrite": True} if use is ss.sign else {}))
    with refused(ss.ParameterError, f"key: {tmp_path}", code="unreadable"):
        ss.verify(folder, tmp_path)


# --- plans ---


PLAN = """
[data]
path = "farms.csv"
types = {{ cattle = "int64" }}
[tables.t.keys]
cross = {{ state = ["IA", "TX"] }}
[tables.t.sums.cattle]
mechanism = "gaussian"
sigma = 50
[output]
folder = "out"
report = "published.html"
sign = "{key}"
"""


@pytest.fixture
def plan(tmp_path, keys):
    (tmp_path / "out").mkdir()
    RECORDS.to_csv(tmp_path / "farms.csv", index=False)
    shutil.copy(keys[0], tmp_path / "agency.key")
    path = tmp_path / "plan.toml"
    path.write_text(PLAN.format(key="agency.key"))
    return path


def test_a_plan_signs_its_files(plan, keys):
    check_plan(ss.read_plan(plan))
    made, files = run_plan(ss.read_plan(plan))
    folder = plan.parent
    assert files[-4:] == [place / name for place in (folder / "out", folder) for name in (SUMS, SIGNATURE)]
    found = ss.verify(folder, keys[1])
    assert found.files == ("published.html",)
    assert "farms.csv" in found.unlisted
    signed = ss.verify(folder / "out/t.parquet", keys[1])
    assert (signed.files, signed.unlisted) == (("t.csv", "t.csv.json", "t.parquet"), ())
    checked = check_plan(ss.read_plan(plan))
    assert {folder / SUMS, folder / "out" / SIGNATURE} <= set(checked.existing)
    assert "already exists" in str(checked.refusal)
    run_plan(ss.read_plan(plan), overwrite=True)
    ss.verify(folder, keys[1])
    assert ss.read_release(folder / "out").facts.id != made.facts.id


def test_check_tries_the_key(plan, monkeypatch):
    monkeypatch.delenv(PASSPHRASE_VARIABLE, raising=False)
    monkeypatch.setattr(minisign, "SCRYPT_LIMITS", LOW_LIMITS)
    folder = plan.parent
    _, public = ss.keygen(folder / "locked", PASSPHRASE)
    for key, words in (
        ("none.key", r"output\.sign: .*none\.key does not exist"),
        ("locked.pub", r"line \d+, output\.sign: .* holds a public key"),
        ("locked.key", r"line \d+, output\.sign: .* is encrypted and needs its passphrase"),
        ("farms.csv", r"line \d+, output\.sign: .*farms\.csv is damaged, or not a key"),
    ):
        plan.write_text(PLAN.format(key=key))
        for use in (check_plan, run_plan):
            with pytest.raises(ss.ParameterError, match=words):
                use(ss.read_plan(plan))
        assert os.listdir(folder / "out") == []
    monkeypatch.setenv(PASSPHRASE_VARIABLE, PASSPHRASE)
    plan.write_text(PLAN.format(key="locked.key"))
    run_plan(ss.read_plan(plan))
    ss.verify(folder / "out" / "t.csv", public)


def test_a_plan_reads_its_key_once(plan, monkeypatch):
    read = []
    known = minisign.read_secret_key
    monkeypatch.setattr(minisign, "read_secret_key", lambda path: read.append(path) or known(path))
    check_plan(ss.read_plan(plan))
    assert len(read) == 1
    done = CliRunner().invoke(app, ["release", str(plan), "--yes"])
    assert done.exit_code == 0, done.output
    assert len(read) == 2


def test_a_key_is_never_overwritten(plan):
    (plan.parent / "agency.key").rename(plan.parent / "out" / "t.csv")
    plan.write_text(PLAN.format(key="out/t.csv"))
    with pytest.raises(ss.ParameterError, match="would be written over the key that signs"):
        run_plan(ss.read_plan(plan), overwrite=True)


@pytest.mark.parametrize("name", [SUMS, SIGNATURE])
def test_a_signature_that_cannot_be_written_is_found_before(plan, name):
    (plan.parent / name).mkdir()
    with pytest.raises(ss.ParameterError, match=r"the signature of the output: .* is a folder"):
        check_plan(ss.read_plan(plan))


# --- the commands ---


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_the_commands(release, tmp_path, monkeypatch):
    monkeypatch.delenv(PASSPHRASE_VARIABLE, raising=False)
    monkeypatch.setattr(minisign, "SCRYPT_LIMITS", LOW_LIMITS)
    done = run("keygen", tmp_path / "agency")
    assert done.exit_code == 0
    assert "keep it secret" in done.output
    secret, public = tmp_path / "agency.key", tmp_path / "agency.pub"
    assert str(read_public_key(public)) in done.output
    (tmp_path / "published").mkdir()
    path = release.to_csv(tmp_path / "published" / "cells.csv")
    assert run("sign", path.parent, "--key", secret).exit_code == 0
    done = run("verify", path, "--key", public)
    assert done.exit_code == 0
    assert "Matching: cells.csv, cells.csv.json" in done.output
    found = json.loads(run("verify", path.parent, "--key", public, "--json").output)
    assert (found["verified"], found["files"]) == (True, ["cells.csv", "cells.csv.json"])
    done = run("sign", path, "--key", secret, "--overwrite", "--json")
    assert json.loads(done.output)["files"] == [str(path.with_name(name)) for name in (SUMS, SIGNATURE)]
    path.write_text("changed")
    done = run("verify", path, "--key", public, "--json")
    assert done.exit_code == EXIT_CODES["SignatureError"] == 7
    assert json.loads(done.output)["code"] == "changed"
    done = run("verify", path, "--key", public)
    assert isinstance(done.exception, ss.SignatureError)
    assert isinstance(run("keygen", tmp_path / "agency").exception, ss.ParameterError)
    assert isinstance(run("keygen", tmp_path / "locked", "--passphrase").exception, ss.ParameterError)
    monkeypatch.setenv(PASSPHRASE_VARIABLE, PASSPHRASE)
    done = run("keygen", tmp_path / "locked", "--passphrase", "--json")
    assert json.loads(done.output)["secret"] == str(tmp_path / "locked.key")
    assert PASSPHRASE not in done.output
    assert run("sign", path, "--key", tmp_path / "locked.key", "--overwrite").exit_code == 0
    assert run("verify", path, "--key", tmp_path / "locked.pub").exit_code == 0
