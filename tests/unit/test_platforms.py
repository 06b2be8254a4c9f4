"""The main path where Python has no fork, no fcntl, no /proc, no signals: as on Windows, simulated.

What cannot be simulated here, such as drive letters in DuckDB and real locks of Windows, is in docs/install.md.
"""

import ast
import codecs
import io
import json
import ntpath
import subprocess
import sys
import unicodedata
from pathlib import Path, PureWindowsPath
from types import SimpleNamespace

import pytest
from helpers.other_system import environment

from slowscale.cli import shared
from slowscale.core import files
from slowscale.core.files import sqlite_address
from slowscale.core.markup import PLAIN_LETTERS, plain_letters

SOURCE = Path(files.__file__).parents[1]

PATH_OF_A_RELEASE = """
import sys, time
from pathlib import Path

import pandas as pd
import slowscale as ss
from slowscale import core
from slowscale.cli import main
from slowscale.core import files, locks
from slowscale.accounting import storage
from slowscale.workbench.app import Workbench
from slowscale.workbench.draft import Folder
from slowscale.workbench.server import redirect_file

# The simulation works.
assert files.os.name == "nt" and not hasattr(files.os, "register_at_fork")
assert storage._mount_points() == set()
scope = {"__name__": "slowscale.intruder"}
for wrong in ("import fcntl", "import os; os.getuid()", "open('/proc/stat', encoding='ascii')", "open('data.csv')"):
    try:
        exec(wrong, scope)
    except (ModuleNotFoundError, AttributeError, FileNotFoundError, AssertionError):
        continue
    raise SystemExit(f"{wrong} is not prevented")

# The library.
farms = pd.DataFrame({"state": ["IA", "IA", "TX"], "emp": [120, 4_000, 31_000]})
caps = {"emp": ss.Root(k=2, sigma=1000, a=1).policy * 3}
session = ss.Session(farms, "farms.ledger", caps, dataset="farms")
made = session.sum({"emp": ss.Root(k=2, sigma=1000, a=1)}, ss.Keys.cross({"state": ["IA", "NV"]}))
made.report("farms.html")
made.to_parquet("farms.parquet")
for again in (False, True):
    made.to_csv("farms table.csv", overwrite=again)
assert ss.read_release("farms table.csv").table == made.table
assert b"\\r" not in Path("farms table.csv").read_bytes()
before = Path("farms table.csv").read_bytes()
with open("farms table.csv", "rb"):  # Windows replaces no open file
    try:
        session.sum({"emp": ss.Root(k=2, sigma=1000, a=1)}).to_csv("farms table.csv", overwrite=True)
        raise SystemExit("an open file was replaced")
    except ss.EngineError as error:
        assert "close" in error.remedy
assert Path("farms table.csv").read_bytes() == before
assert sorted(path.name for path in Path(".").glob("*farms table*")) == ["farms table.csv", "farms table.csv.json"]
ss.keygen("key")
assert b"\\r" not in Path("key.pub").read_bytes()
ss.sign(["farms.parquet", "farms.html"], "key.key")
ss.verify("farms.parquet", "key.pub")

# A file in another encoding is copied for DuckDB.
Path("latin.csv").write_bytes("emp,county\\n1,Doña Ana\\n".encode("latin-1"))
found = ss.Session("latin.csv", csv={"encoding": "latin-1"}, types={"county": "string"})
assert found.sum({"emp": ss.Gaussian(sigma=1)}, ss.Keys.cross({"county": ["Doña Ana"]})).table.num_rows == 1

# The command.
def run(*given):
    sys.argv = ["slowscale", *given]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, (given, ended.code)

Path("data.csv").write_text("emp,county\\n1,texas\\n2,ohio\\n", encoding="utf-8")
run("init", "data.csv", "new plan.toml")
run("check", "plan.toml")
run("release", "plan.toml", "--yes")
run("ledger", "verify", "plan.ledger")
assert not [path for path in Path("published").iterdir() if path.name.startswith(".")]

# The workbench.
with redirect_file("http://127.0.0.1:1/x") as page:
    assert page.read_text(encoding="utf-8")
assert not page.exists()
folder = Path.cwd()
workbench = Workbench(Folder(folder, ()), folder / "plan.toml")
job = workbench.jobs.start("0" * 32, workbench.draft, True)
while job.open:
    time.sleep(0.05)
    job = workbench.jobs.get(job.name)
assert (job.status, job.charge) == ("done", "charged"), job.state
assert "published/cells.parquet" in job.state["files"]
print("ALL DONE")
"""
PLAN = """
[data]
path = "data.csv"
[data.types]
emp = "int64"
[ledger]
path = "plan.ledger"
[tables.cells.sums.emp]
mechanism = "root"
k = 2
sigma = 8
a = 1
[tables.cells.keys]
by = ["county"]
cross = { county = ["texas", "ohio"] }
[output]
folder = "published"
formats = ["csv", "parquet"]
"""


def test_the_main_path_needs_nothing_that_windows_lacks(tmp_path):
    start, folder = tmp_path / "start", tmp_path / "the data, 'all' of it"
    start.mkdir()
    folder.mkdir()
    (folder / "plan.toml").write_text(PLAN)
    command = [sys.executable, "-c", PATH_OF_A_RELEASE]
    done = subprocess.run(command, cwd=folder, env=environment(start), capture_output=True, timeout=300, check=False)
    printed = done.stdout.decode("cp1252")
    assert done.returncode == 0, printed + done.stderr.decode("cp1252")
    assert printed.rstrip().endswith("ALL DONE")
    assert "\\u" not in printed


def letters_of_the_package():
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield from (letter for letter in node.value if not letter.isascii() and letter.isprintable())


def test_every_sign_of_the_package_has_plain_letters():
    codecs.register_error(PLAIN_LETTERS, plain_letters)
    letters = set(letters_of_the_package())
    assert {"±", "√", "Δ", "²"} <= letters
    escaped = {one for one in letters if b"\\" in one.encode("ascii", PLAIN_LETTERS)}
    assert {one for one in escaped if unicodedata.category(one) in ("Sm", "Po", "Pd", "Ps", "Pe", "No", "Lm")} == set()
    assert {one for one in escaped if unicodedata.name(one).startswith("GREEK")} == set()


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_output_in_any_encoding(monkeypatch, encoding):
    stream = io.TextIOWrapper(io.BytesIO(), encoding, newline="\n")
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)
    shared.print_every_letter()
    shared.echo("±2·σ² ≤ 北")
    shared.print_json({"county": "Doña Ana, 北, ±"})
    stream.flush()
    line, _, rest = stream.buffer.getvalue().decode(encoding).partition("\n")
    assert (
        line
        == {
            "ascii": "+/-2*sigma^2 <= \\u5317",
            "cp1252": "±2·sigma² <= \\u5317",
            "utf-8": "±2·σ² ≤ 北",
        }[encoding]
    )
    assert json.loads(rest) == {"county": "Doña Ana, 北, ±"}


class Windows(PureWindowsPath):
    """A path as it is on Windows."""

    def absolute(self):
        return self


@pytest.mark.parametrize(
    ("path", "address"),
    [
        (Windows(r"C:\the data\50%.ledger"), "file:///C:/the%20data/50%25.ledger?mode=rw"),
        (Windows(r"\\server\share\a?b#.ledger"), "file:////server/share/a%3Fb%23.ledger?mode=rw"),
        (Path("/the data/x.ledger"), "file:///the%20data/x.ledger?mode=rw"),
    ],
)
def test_sqlite_opens_paths_of_every_system(path, address):
    assert sqlite_address(path, "rw") == address


def test_a_path_in_a_plan_has_slashes_and_may_be_on_another_drive(monkeypatch):
    monkeypatch.setattr(files, "os", SimpleNamespace(path=ntpath, sep="\\"))
    assert files.relative_path(r"C:\data\a b.csv", r"C:\plans") == "../data/a b.csv"
    assert files.relative_path(r"D:\data\a b.csv", r"C:\plans") == "D:/data/a b.csv"
