"""Signatures: every changed byte is found, each fault is named, and other programs verify what was signed."""

import base64
import hashlib
import json
import os
import pickle
import shutil
import subprocess
import tracemalloc
from pathlib import Path

import pandas as pd
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa, x25519
from helpers.bitsources import Recorded
from typer.testing import CliRunner

import slowscale as ss
from slowscale.cli.app import EXIT_CODES, app
from slowscale.plan import check_plan, run_plan
from slowscale.publication import publish
from slowscale.signing_keys import PASSPHRASE_VARIABLE

KEYS = ss.Keys.cross({"state": ["IA", "TX"]})
RECORDS = pd.DataFrame({"state": ["IA", "IA", "TX"], "cattle": [120, 4000, 31000]})
PASSPHRASE = "correct horse, ünïcode"


@pytest.fixture(scope="module")
def release():
    return ss.Session(RECORDS, dataset="farms").sum({"cattle": ss.Gaussian(50)}, keys=KEYS)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return ss.keygen(tmp_path_factory.mktemp("keys") / "agency")


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return ss.keygen(tmp_path_factory.mktemp("others") / "other")


@pytest.fixture
def signed(release, keys, tmp_path):
    """Return a signed Parquet file."""
    path = release.to_parquet(tmp_path / "published.parquet")
    ss.sign(path, keys.private)
    return path


@pytest.fixture
def folder(release, keys, tmp_path):
    """Return a folder with two tables, a report and their common signature."""
    release.to_csv(tmp_path / "cells.csv")
    release.to_parquet(tmp_path / "nation.parquet")
    (tmp_path / "notes.html").write_text("<p>notes</p>")
    ss.sign([tmp_path / name for name in ("cells.csv", "nation.parquet", "notes.html")], keys.private)
    return tmp_path


def refused(path, key, **options):
    """Return the error with which a file is refused."""
    with pytest.raises(ss.SignatureError) as caught:
        ss.verify(path, key, **options)
    return caught.value


def resign(path, keys, change):
    """Change the statement of a signature file, and sign it again with the right key and the right form."""
    whole = json.loads(path.read_text())
    change(whole["signed"])
    secret = serialization.load_pem_private_key(keys.private.read_bytes(), None)
    whole["signature"] = base64.b64encode(secret.sign(documented_message(whole["signed"]))).decode()
    path.write_text(json.dumps(whole, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def documented_message(statement):
    """Return the bytes that are signed, as docs/signing.md describes them."""
    text = json.dumps(statement, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return b"slowscale signature 1\n" + text.encode()


# --- what is right ---


def test_what_was_signed_is_verified(signed, release, keys):
    found = ss.verify(signed, keys.public)
    assert (found.fingerprint, found.path, found.signature) == (keys.fingerprint, signed, Path(f"{signed}.sig"))
    assert found.facts == release.facts
    assert (found.file.release, found.file.dataset) == (release.facts.id, "farms")
    assert found.file.sha256 == hashlib.sha256(signed.read_bytes()).hexdigest()
    assert str(found) == (
        f"{signed} is as it was signed on {found.created:%Y-%m-%d %H:%M:%S} UTC by the key {keys.fingerprint}; release "
        f"{release.facts.id} of the data set 'farms'."
    )
    assert json.loads(json.dumps(found.to_dict()))["files"][0]["present"] is True


def test_files_that_were_signed_together(folder, release, keys):
    found = ss.verify(folder / "cells.csv", keys.public)
    assert [one.name for one in found.files] == ["cells.csv", "cells.csv.json", "nation.parquet", "notes.html"]
    assert found.facts == release.facts
    assert "as they were signed: cells.csv.json, nation.parquet, notes.html" in str(found)
    # Each of them finds the signature, which has the name of the first.
    assert ss.verify(folder / "notes.html", keys.public).signature == folder / "cells.csv.sig"
    assert "the file has no table of its own" in str(ss.verify(folder / "notes.html", keys.public))
    assert ss.verify(folder / "nation.parquet", keys.public).facts == release.facts


def test_other_tables_of_a_set_may_be_absent(folder, keys):
    (folder / "nation.parquet").unlink()
    found = ss.verify(folder / "cells.csv", keys.public)
    assert found.absent == ("nation.parquet",)
    assert "not in this folder: nation.parquet" in str(found)
    assert refused(folder / "nation.parquet", keys.public).reason == "missing"


def test_test_bits_are_named(keys, tmp_path):
    made = ss.Session(RECORDS, bits=Recorded(1)).sum({"cattle": ss.Gaussian(50)}, keys=KEYS)
    path = made.to_parquet(tmp_path / "p.parquet")
    ss.sign(path, keys.private)
    assert "NOT PRIVATE" in str(ss.verify(path, keys.public))


# --- independent verification ---


def test_openssl_verifies_the_documented_bytes(folder, keys, other):
    if shutil.which("openssl") is None:
        pytest.skip("OPENSSL IS NOT TESTED: it is not installed")
    whole = json.loads((folder / "cells.csv.sig").read_text())
    (folder / "message").write_bytes(documented_message(whole["signed"]))
    (folder / "raw").write_bytes(base64.b64decode(whole["signature"]))
    for files, code in ((keys, 0), (other, 1)):
        command = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", files.public, "-rawin", "-in", "message"]
        done = subprocess.run([*command, "-sigfile", "raw"], cwd=folder, capture_output=True, text=True)
        assert done.returncode == code, done.stderr
    der = subprocess.run(
        ["openssl", "pkey", "-pubin", "-in", keys.public, "-outform", "DER"], capture_output=True, check=True
    )
    assert hashlib.sha256(der.stdout).hexdigest() == keys.fingerprint


def test_cryptography_verifies_the_documented_bytes(folder, keys):
    whole = json.loads((folder / "cells.csv.sig").read_text())
    public = serialization.load_pem_public_key(keys.public.read_bytes())
    assert isinstance(public, ed25519.Ed25519PublicKey)
    proof = base64.b64decode(whole["signature"])
    public.verify(proof, documented_message(whole["signed"]))
    with pytest.raises(InvalidSignature):
        public.verify(proof, documented_message(whole["signed"])[len("slowscale signature 1\n") :])
    for one in whole["signed"]["files"]:
        content = (folder / one["name"]).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (one["size"], one["sha256"])


# --- changes ---


@pytest.mark.parametrize("which", ["published.parquet", "published.parquet.sig"])
def test_every_changed_byte_is_found(signed, keys, which):
    target = signed.parent / which
    public = serialization.load_pem_public_key(keys.public.read_bytes())
    content = bytearray(target.read_bytes())
    with open(target, "r+b", buffering=0) as file:
        for place in range(len(content)):
            for flipped in (content[place] ^ (1 << (place % 8)), 0x20 if content[place] != 0x20 else 0x09):
                os.pwrite(file.fileno(), bytes([flipped]), place)
                with pytest.raises(ss.SignatureError):
                    ss.verify(signed, public)
                if which.endswith(".parquet"):
                    break  # the content of a table is hashed, so one change of a byte is like any other
            os.pwrite(file.fileno(), content[place : place + 1], place)
    ss.verify(signed, public)


@pytest.mark.parametrize("which", ["published.parquet", "published.parquet.sig"])
def test_truncated_and_longer_files_are_found(signed, keys, which):
    target = signed.parent / which
    content = target.read_bytes()
    for changed in (*(content[:size] for size in (0, 1, len(content) // 2, len(content) - 1)), content + b"\n"):
        target.write_bytes(changed)
        assert refused(signed, keys.public).reason == ("damaged" if which.endswith(".sig") else "changed")


def test_words_about_changed_files(folder, keys):
    (folder / "cells.csv").write_text("x")
    (folder / "notes.html").write_text("<p>NOTES</p>")
    error = refused(folder / "cells.csv", keys.public)
    assert (error.reason, error.file) == ("changed", "cells.csv")
    assert "it has 1 bytes, and" in str(error)
    assert "so it may be truncated" in str(error)
    assert "notes.html is not as it was signed: it has the same size, but another content" in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_facts_belong_to_a_csv_file(folder, keys):
    facts = folder / "cells.csv.json"
    content = facts.read_text()
    facts.write_text(content.replace("farms", "firms"))
    assert refused(folder / "cells.csv", keys.public).file == "cells.csv.json"
    facts.unlink()
    error = refused(folder / "cells.csv", keys.public)
    assert (error.reason, error.file) == ("missing", "cells.csv.json")


def test_facts_that_appear_later_are_refused(keys, tmp_path, release):
    table = tmp_path / "codes.csv"
    table.write_text("code\n1\n")
    ss.sign(table, keys.private)
    assert ss.verify(table, keys.public).facts is None
    release.to_csv(tmp_path / "other.csv")
    (tmp_path / "other.csv.json").rename(tmp_path / "codes.csv.json")
    assert refused(table, keys.public).reason == "extra"


# --- keys and replays ---


PUBLICATION = ss.Publication("Cattle")


def test_the_data_package_of_a_published_table_is_signed(release, keys, tmp_path):
    path = release.publish(tmp_path / "p.csv", PUBLICATION)
    ss.sign(path, keys.private)
    found = ss.verify(path, keys.public)
    assert [one.name for one in found.files] == ["p.csv", "p.datapackage.json"]
    assert (found.file.facts, found.file.release) == ("p.datapackage.json", release.facts.id)
    assert found.facts == release.facts
    assert f"release {release.facts.id} of the data set 'farms'" in str(found)
    package = tmp_path / "p.datapackage.json"
    package.write_text(package.read_text().replace("Cattle", "cattle"))
    assert refused(path, keys.public).reason == "changed"
    package.unlink()
    assert refused(path, keys.public).reason == "missing"


def test_a_data_package_that_appears_later_is_refused(release, keys, tmp_path):
    release.to_csv(tmp_path / "p.csv")
    ss.sign(tmp_path / "p.csv", keys.private)
    release.publish(tmp_path / "q.csv", PUBLICATION)
    (tmp_path / "q.datapackage.json").rename(tmp_path / "p.datapackage.json")
    assert refused(tmp_path / "p.csv", keys.public).reason == "extra"


def test_data_packages_of_several_tables(release, keys, tmp_path):
    publish({"a-b": release, "c": release}, tmp_path / "set.csv", PUBLICATION)
    publish({"d": release}, tmp_path / "set-a.csv", PUBLICATION)  # a package with a name that would fit set-a-b.csv
    path = tmp_path / "set-a-b.csv"
    ss.sign(path, keys.private)
    found = ss.verify(path, keys.public)
    assert [one.name for one in found.files] == ["set-a-b.csv", "set.datapackage.json"]
    assert found.file.release == release.facts.id
    other = json.loads((tmp_path / "set-a.datapackage.json").read_text())
    other["resources"][0] |= {"path": "set-a-b.csv", "slowscale": None}
    (tmp_path / "set-a.datapackage.json").write_text(json.dumps(other))
    error = refused(path, keys.public)
    assert (error.reason, error.file) == ("extra", "set-a.datapackage.json")


def test_published_files_name_their_release(release, keys, tmp_path):
    for profile in ("basic", "research"):
        path = release.publish(tmp_path / f"{profile}.parquet", PUBLICATION, profile=profile)
        ss.sign(path, keys.private)
        assert ss.verify(path, keys.public).file.release == release.facts.id
    path = release.publish(tmp_path / "t.xlsx", PUBLICATION)
    ss.sign(path, keys.private)
    assert "the sheet 'Notes' of a published file states it" in str(ss.verify(path, keys.public))


def test_another_key(signed, keys, other):
    error = refused(signed, other.public)
    assert error.reason == "key"
    assert keys.fingerprint in str(error)
    assert other.fingerprint in str(error)


def test_the_fingerprint_of_another_key_is_no_use(signed, keys, other):
    resign(Path(f"{signed}.sig"), keys, lambda statement: statement.update(key=other.fingerprint))
    assert refused(signed, other.public).reason == "forged"
    assert refused(signed, keys.public).reason == "key"


def test_a_signature_of_another_release_is_refused(signed, keys):
    again = ss.Session(RECORDS, dataset="farms").sum({"cattle": ss.Gaussian(50)}, keys=KEYS)
    replaced = again.to_parquet(signed.parent / "later.parquet")
    shutil.copy(f"{signed}.sig", f"{replaced}.sig")
    error = refused(replaced, keys.public)
    assert error.reason == "name"
    assert "the signature of other files (published.parquet)" in str(error)
    shutil.move(replaced, signed)
    assert refused(signed, keys.public).reason == "changed"


def test_facts_must_be_those_of_the_statement(signed, keys):
    resign(Path(f"{signed}.sig"), keys, lambda statement: statement["files"][0].update(release="0" * 16))
    assert refused(signed, keys.public).reason == "facts"


def test_a_signature_without_its_first_line_is_refused(signed, keys):
    """A signature that the key made for another purpose is not taken for one of these."""
    path = Path(f"{signed}.sig")
    whole = json.loads(path.read_text())
    secret = serialization.load_pem_private_key(keys.private.read_bytes(), None)
    message = documented_message(whole["signed"]).partition(b"\n")[2]
    text = path.read_text().replace(whole["signature"], base64.b64encode(secret.sign(message)).decode())
    path.write_text(text)
    assert refused(signed, keys.public).reason == "forged"


# --- the form of the signature file ---


def spelled(text):
    return text.replace('"farms"', '"f\\u0061rms"')


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace('"format"', '"format": "x",\n    "format"', 1), "same entry twice"),
        (lambda text: text.replace('"signed": {', '"signed": {},\n  "signed": {', 1), "same entry twice"),
        (lambda text: text.replace('"size": ', '"size": NaN, "x": ', 1), "not whole"),
        (lambda text: text.replace('"size": ', '"size": Infinity, "x": ', 1), "not whole"),
        (lambda text: text.replace('"size": ', '"size": 1e3, "x": ', 1), "not whole"),
        (lambda text: text.replace('"size": ', '"size": 1.0, "x": ', 1), "not whole"),
        (lambda text: text.replace("{", "{ ", 1), "whitespace"),
        (lambda text: text.rstrip("\n"), "whitespace"),
        (lambda text: text.replace("\n", "\r\n"), "whitespace"),
        (lambda text: json.dumps(json.loads(text)), "whitespace"),
        (lambda text: json.dumps(dict(reversed(json.loads(text).items())), indent=2) + "\n", "order"),
        (spelled, "spelling"),
        (lambda text: "\ufeff" + text, "not JSON"),
        (lambda text: text + "{}", "not JSON"),
        (lambda text: "[" * 100_000, "not JSON"),
        (lambda text: "1" * 10_000, "not"),
        (lambda text: "", "empty"),
        (lambda text: "[]", "not a signature"),
        (lambda text: '{"signed": {}}', "not a signature"),
        (lambda text: text.replace("==", "="), "64 bytes"),
        (lambda text: text.replace('"key"', '"kay"'), "entries are missing"),
        (lambda text: text.replace('"signature"', '"proof"'), "entries are missing"),
    ],
)
def test_a_signature_file_has_one_form(signed, keys, change, words):
    path = Path(f"{signed}.sig")
    text = path.read_text()
    path.write_bytes(change(text).encode())
    assert path.read_bytes() != text.encode()
    error = refused(signed, keys.public)
    assert error.reason == "damaged"
    assert words in str(error)


def test_not_utf8(signed, keys):
    path = Path(f"{signed}.sig")
    path.write_bytes(path.read_bytes().replace(b"farms", b"f\xffrms"))
    assert refused(signed, keys.public).reason == "damaged"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda statement: statement.update(format="slowscale-signature/2"), "format"),
        (lambda statement: statement.update(algorithm="RSA"), "algorithm"),
        (lambda statement: statement.update(algorithm="none"), "algorithm"),
        (lambda statement: statement.update(algorithm=None), "algorithm"),
        (lambda statement: statement.update(created="2024-13-01T00:00:00Z"), "damaged"),
        (lambda statement: statement.update(created="2024-01-01 00:00:00"), "damaged"),
        (lambda statement: statement.update(created=None), "damaged"),
        (lambda statement: statement.update(more=1), "damaged"),
        (lambda statement: statement.update(files=[]), "damaged"),
        (lambda statement: statement.update(files={}), "damaged"),
        (lambda statement: statement.update(files=[1]), "damaged"),
        (lambda statement: statement.update(key="x"), "damaged"),
        (lambda statement: statement["files"].append(dict(statement["files"][0])), "damaged"),
        (
            lambda statement: statement["files"].append({**statement["files"][0], "name": "PUBLISHED.parquet"}),
            "damaged",
        ),
        (lambda statement: statement["files"][0].update(size=True), "damaged"),
        (lambda statement: statement["files"][0].update(size=-1), "damaged"),
        (lambda statement: statement["files"][0].update(size=2**53), "damaged"),
        (lambda statement: statement["files"][0].update(size="1"), "damaged"),
        (lambda statement: statement["files"][0].update(sha256="A" * 64), "damaged"),
        (lambda statement: statement["files"][0].update(dataset=7), "damaged"),
        (lambda statement: statement["files"][0].update(dataset="\x1b[2J"), "damaged"),
        (lambda statement: statement["files"][0].update(facts="published.parquet"), "damaged"),
        (lambda statement: statement["files"][0].update(facts="/etc/passwd"), "damaged"),
    ],
)
def test_statements_that_are_signed_but_wrong(signed, keys, change, reason):
    """The signature is right, and still a statement with another form is not believed."""
    resign(Path(f"{signed}.sig"), keys, change)
    assert refused(signed, keys.public).reason == reason


@pytest.mark.parametrize(
    "name",
    [
        "../published.parquet", "/etc/passwd", "sub/published.parquet", "..\\published.parquet", "C:published.parquet",
        "..", ".", "", "a\nb.csv", "a\u202eb.csv", "a\x00b", "x" * 256,
    ],
)  # fmt: skip
def test_names_that_leave_the_folder_are_refused(signed, keys, name):
    secret = signed.parent.parent / "published.parquet"
    shutil.copy(signed, secret)
    sub = signed.parent / "sub"
    sub.mkdir()
    shutil.copy(signed, sub)
    path = Path(f"{signed}.sig")
    resign(path, keys, lambda statement: statement["files"].append({**statement["files"][0], "name": name}))
    error = refused(signed, keys.public)
    assert error.reason == "damaged"
    assert "the file name" in str(error)


def test_symbolic_links_are_refused(folder, keys):
    for name in ("cells.csv", "cells.csv.json", "nation.parquet", "cells.csv.sig"):
        path, elsewhere = folder / name, folder / "elsewhere"
        path.rename(elsewhere)
        path.symlink_to(elsewhere)
        error = refused(folder / "cells.csv", keys.public)
        assert error.reason == "link"
        assert str(path) in str(error)
        path.unlink()
        elsewhere.rename(path)
    (folder / "nation.parquet").unlink()
    (folder / "nation.parquet").symlink_to("nowhere")  # a link that leads nowhere is not an absent file
    assert refused(folder / "cells.csv", keys.public).reason == "link"


def test_what_is_not_a_file_is_refused(folder, keys):
    (folder / "notes.html").unlink()
    os.mkfifo(folder / "notes.html")
    assert refused(folder / "cells.csv", keys.public).reason == "unreadable"
    (folder / "notes.html").unlink()
    (folder / "notes.html").mkdir()
    assert refused(folder / "cells.csv", keys.public).reason == "unreadable"


def test_missing_files(signed, keys, tmp_path):
    assert refused(tmp_path / "none.parquet", keys.public).reason == "missing"
    shutil.copy(signed, tmp_path / "copy.parquet")
    assert refused(tmp_path / "copy.parquet", keys.public).reason == "unsigned"
    assert refused(signed, keys.public, signature=tmp_path / "none.sig").reason == "unsigned"
    sub = tmp_path / "sub"
    sub.mkdir()
    shutil.copy(f"{signed}.sig", sub)
    assert refused(signed, keys.public, signature=sub / "published.parquet.sig").reason == "name"
    signed.unlink()
    assert refused(signed, keys.public).reason == "missing"


def test_several_signatures_of_a_file(folder, keys):
    ss.sign([folder / "nation.parquet", folder / "notes.html"], keys.private, signature=folder / "more.sig")
    error = refused(folder / "notes.html", keys.public)
    assert "several signatures list notes.html: cells.csv.sig, more.sig" in str(error)
    assert ss.verify(folder / "notes.html", keys.public, signature=folder / "more.sig").absent == ()


def test_huge_files_are_read_in_parts(keys, tmp_path):
    path = tmp_path / "huge.bin"
    with open(path, "wb") as file:
        file.truncate(200 * 2**20)
    tracemalloc.start()
    ss.sign(path, keys.private)
    ss.verify(path, keys.public)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * 2**20
    with open(f"{path}.sig", "wb") as file:
        file.truncate(2**40)  # a signature of a terabyte is not read
    assert "larger than any signature" in str(refused(path, keys.public))


# --- signing ---


def test_what_cannot_be_signed(signed, keys, tmp_path):
    with pytest.raises(ss.ParameterError, match=r"published\.parquet\.sig already exists; pass overwrite=True"):
        ss.sign(signed, keys.private)
    ss.sign(signed, keys.private, overwrite=True)
    ss.verify(signed, keys.public)
    with pytest.raises(ss.ParameterError, match="got none"):
        ss.sign([], keys.private)
    with pytest.raises(ss.ParameterError, match="there is no file"):
        ss.sign(tmp_path / "none.csv", keys.private)
    with pytest.raises(ss.ParameterError, match="is given twice"):
        ss.sign([signed, tmp_path / "." / ".." / tmp_path.name / signed.name], keys.private, overwrite=True)
    with pytest.raises(ss.ParameterError, match=r"must end in \.sig"):
        ss.sign(signed, keys.private, signature=tmp_path / "s.json")
    (tmp_path / "sub").mkdir()
    shutil.copy(signed, tmp_path / "sub")
    with pytest.raises(ss.ParameterError, match="not in the folder of the signature"):
        ss.sign([signed, tmp_path / "sub" / signed.name], keys.private, overwrite=True)
    link = tmp_path / "link.parquet"
    link.symlink_to(signed)
    with pytest.raises(ss.ParameterError, match="symbolic link"):
        ss.sign(link, keys.private)
    odd = tmp_path / "a\nb.parquet"
    shutil.copy(signed, odd)
    with pytest.raises(ss.ParameterError, match="cannot be printed"):
        ss.sign(odd, keys.private)
    with pytest.raises(TypeError, match="paths must be"):
        ss.sign([1], keys.private)
    with pytest.raises(TypeError, match="key must be the path of a PEM file, got int"):
        ss.sign(signed, 1, overwrite=True)
    with pytest.raises(TypeError, match="path must be text"):
        ss.verify(1, keys.public)


def test_names_in_other_scripts(release, keys, tmp_path):
    path = release.to_csv(tmp_path / "höfe 農場 😀.csv")
    ss.sign(path, keys.private)
    assert ss.verify(path, keys.public).file.name == path.name
    whole = json.loads(Path(f"{path}.sig").read_text(encoding="utf-8"))
    public = serialization.load_pem_public_key(keys.public.read_bytes())
    public.verify(base64.b64decode(whole["signature"]), documented_message(whole["signed"]))


# --- keys ---


def test_keys_are_written_once_and_for_the_owner_only(keys, tmp_path):
    assert keys.private.stat().st_mode & 0o777 == 0o600
    assert keys.public.stat().st_mode & 0o777 == 0o644
    for ending in (".private.pem", ".public.pem"):
        (tmp_path / f"x{ending}").write_text("mine")
        with pytest.raises(ss.ParameterError, match="keys are never replaced"):
            ss.keygen(tmp_path / "x")
        assert os.listdir(tmp_path) == [f"x{ending}"]
        (tmp_path / f"x{ending}").unlink()
    with pytest.raises(ss.ParameterError, match="there is no folder"):
        ss.keygen(tmp_path / "none" / "x")
    with pytest.raises(ss.ParameterError, match="not empty"):
        ss.keygen(tmp_path / "x", "")
    with pytest.raises(ss.ParameterError, match="empty name"):
        ss.keygen("")


def test_passphrases(release, tmp_path, monkeypatch):
    monkeypatch.delenv(PASSPHRASE_VARIABLE, raising=False)
    made = ss.keygen(tmp_path / "locked", PASSPHRASE)
    assert b"ENCRYPTED" in made.private.read_bytes()
    path = release.to_parquet(tmp_path / "p.parquet")
    with pytest.raises(ss.ParameterError, match=f"set the environment variable {PASSPHRASE_VARIABLE}"):
        ss.sign(path, made.private)
    with pytest.raises(ss.ParameterError, match="the passphrase is wrong") as caught:
        ss.sign(path, made.private, passphrase="wrong one")
    assert "wrong one" not in repr(caught.value)
    ss.sign(path, made.private, passphrase=PASSPHRASE)
    monkeypatch.setenv(PASSPHRASE_VARIABLE, PASSPHRASE)
    ss.sign(path, made.private, overwrite=True)
    assert ss.verify(path, made.public).fingerprint == made.fingerprint


@pytest.mark.parametrize("passphrase", ["s" * 1024, "ü" * 512, "s\udcff", ""])
def test_passphrases_that_cannot_be_used(tmp_path, passphrase):
    with pytest.raises(ss.ParameterError, match="passphrase must") as caught:
        ss.keygen(tmp_path / "k", passphrase)
    assert "ss" not in str(caught.value).replace("passphrase", "")
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert not list(tmp_path.iterdir())


def test_the_longest_passphrase(release, tmp_path):
    made = ss.keygen(tmp_path / "k", "s" * 1023)
    path = release.to_parquet(tmp_path / "t.parquet")
    ss.sign(path, made.private, passphrase="s" * 1023)
    ss.verify(path, made.public)


def pem(key, private=True):
    if private:
        return key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form)


def test_keys_that_are_not_used(signed, keys, tmp_path):
    rsa_key, x_key = rsa.generate_private_key(65537, 1024), x25519.X25519PrivateKey.generate()
    path = tmp_path / "k.pem"
    secret = keys.private.read_bytes()
    for content, signs, verifies in (
        (pem(rsa_key), "another kind", "holds a private key"),
        (pem(x_key), "another kind", "holds a private key"),
        (pem(rsa_key, False), "holds a public key", "another kind"),
        (pem(x_key, False), "holds a public key", "another kind"),
        (secret, None, "never publish the private key"),
        (keys.public.read_bytes(), "holds a public key, which cannot sign", None),
        (secret[:80], "damaged, or not a key", "holds a private key"),
        (keys.public.read_bytes()[:60], "holds a public key", "damaged, or not a key"),
        (b"", "damaged, or not a key", "damaged, or not a key"),
        (b"x" * 100_000, "too large", "too large"),
    ):
        path.write_bytes(content)
        for use, words in ((ss.sign, signs), (ss.verify, verifies)):
            options = {"overwrite": True} if use is ss.sign else {}
            if words is None:
                use(signed, path, **options)
                continue
            with pytest.raises(ss.ParameterError, match=words) as caught:
                use(signed, path, **options)
            shown = f"{caught.value!r} {caught.value.__cause__!r}"
            assert "BEGIN" not in shown
            assert secret.decode().splitlines()[1][-20:] not in shown
    for use in (ss.sign, ss.verify):
        with pytest.raises(ss.ParameterError, match="there is no file"):
            use(signed, tmp_path / "none.pem", **({"overwrite": True} if use is ss.sign else {}))


# --- plans ---


PLAN = """
[data]
path = "farms.csv"
types = {{ cattle = "int64" }}
[keys]
cross = {{ state = ["IA", "TX"] }}
[[sums]]
column = "cattle"
mechanism = "gaussian"
sigma = 50
[output]
parquet = "out/published.parquet"
csv = "published.csv"
report = "published.html"
sign = "{key}"
"""


@pytest.fixture
def plan(tmp_path, keys):
    (tmp_path / "out").mkdir()
    RECORDS.to_csv(tmp_path / "farms.csv", index=False)
    shutil.copy(keys.private, tmp_path / "private.pem")
    path = tmp_path / "plan.toml"
    path.write_text(PLAN.format(key="private.pem"))
    return path


def test_a_plan_signs_its_files(plan, keys):
    check_plan(ss.read_plan(plan))
    made, files = run_plan(ss.read_plan(plan))
    folder = plan.parent
    assert files[-2:] == [folder / "out/published.parquet.sig", folder / "published.csv.sig"]
    found = ss.verify(folder / "published.csv", keys.public)
    assert [one.name for one in found.files] == ["published.csv", "published.csv.json", "published.html"]
    assert found.file.release == made.facts.id == ss.verify(folder / "out/published.parquet", keys.public).file.release
    checked = check_plan(ss.read_plan(plan))
    assert str(folder / "published.csv.sig") in checked.existing
    assert "already exists" in str(checked.refusal)
    run_plan(ss.read_plan(plan), overwrite=True)
    assert ss.verify(folder / "published.csv", keys.public).file.release != made.facts.id


def test_check_tries_the_key(plan, monkeypatch):
    monkeypatch.delenv(PASSPHRASE_VARIABLE, raising=False)
    folder = plan.parent
    locked = ss.keygen(folder / "locked", PASSPHRASE)
    (folder / "rsa.pem").write_bytes(pem(rsa.generate_private_key(65537, 1024)))
    for key, words in (
        ("none.pem", r"output\.sign: there is no file .*none\.pem"),
        ("rsa.pem", r"output\.sign: .*rsa\.pem holds a private key of another kind"),
        ("locked.public.pem", r"output\.sign: .* holds a public key"),
        ("locked.private.pem", r"output\.sign: .* is encrypted and needs its passphrase"),
        ("farms.csv", r"output\.sign: .*farms\.csv cannot be read as a private key"),
    ):
        plan.write_text(PLAN.format(key=key))
        for use in (check_plan, run_plan):
            with pytest.raises(ss.ParameterError, match=words):
                use(ss.read_plan(plan))
        assert os.listdir(folder / "out") == []
    monkeypatch.setenv(PASSPHRASE_VARIABLE, PASSPHRASE)
    plan.write_text(PLAN.format(key="locked.private.pem"))
    run_plan(ss.read_plan(plan))
    ss.verify(folder / "published.csv", locked.public)


def test_a_key_is_never_overwritten(plan):
    (plan.parent / "private.pem").rename(plan.parent / "published.csv")
    plan.write_text(PLAN.format(key="published.csv"))
    with pytest.raises(ss.ParameterError, match="would be written over the key that signs"):
        run_plan(ss.read_plan(plan), overwrite=True)


def test_a_signature_that_cannot_be_written_is_found_before(plan):
    (plan.parent / "published.csv.sig").mkdir()
    with pytest.raises(ss.ParameterError, match=r"the signature of the output: .* is a folder"):
        check_plan(ss.read_plan(plan))


# --- the commands ---


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_the_commands(release, tmp_path, monkeypatch):
    monkeypatch.delenv(PASSPHRASE_VARIABLE, raising=False)
    done = run("keygen", tmp_path / "agency")
    assert done.exit_code == 0
    assert "keep it secret" in done.output
    path = release.to_csv(tmp_path / "published.csv")
    private, public = tmp_path / "agency.private.pem", tmp_path / "agency.public.pem"
    assert run("sign", path, "--key", private).exit_code == 0
    done = run("verify", path, "--key", public)
    assert done.exit_code == 0
    assert f"{path} is as it was signed on" in done.output
    assert f"release {release.facts.id}" in done.output
    found = json.loads(run("verify", path, "--key", public, "--json").output)
    assert found["verified"] is True
    assert found["facts"]["id"] == release.facts.id
    done = run("sign", path, "--key", private, "--overwrite", "--json")
    assert json.loads(done.output)["files"] == [str(path), f"{path}.json"]
    path.write_text("changed")
    done = run("verify", path, "--key", public, "--json")
    assert done.exit_code == EXIT_CODES["SignatureError"] == 7
    assert json.loads(done.output)["reason"] == "changed"
    done = run("verify", path, "--key", public)
    assert isinstance(done.exception, ss.SignatureError)
    assert isinstance(run("keygen", tmp_path / "agency").exception, ss.ParameterError)
    assert isinstance(run("keygen", tmp_path / "locked", "--passphrase").exception, ss.ParameterError)
    monkeypatch.setenv(PASSPHRASE_VARIABLE, PASSPHRASE)
    assert "passphrase is needed" in run("keygen", tmp_path / "locked", "--passphrase").output
    assert PASSPHRASE not in done.output
    assert run("sign", path, "--key", tmp_path / "locked.private.pem", "--overwrite").exit_code == 0
    assert run("verify", path, "--key", tmp_path / "locked.public.pem").exit_code == 0
