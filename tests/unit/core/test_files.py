"""Files: all or none, never over others unless asked, and with the modes that the umask and secrecy call for."""

import errno
import os
import stat
import threading
from dataclasses import replace

import pandas as pd
import pyarrow as pa
import pytest
from helpers.bitsources import Recorded
from helpers.errors import refused

import slowscale as ss
from slowscale.core.files import write_files


def text(content):
    return lambda path: path.write_text(content)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def no_links(monkeypatch):
    """Make os.link fail as on a file system without hard links."""

    def refuse(source, target, follow_symlinks=True):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)


@pytest.fixture(params=[True, False], ids=["links", "no links"])
def links(request):
    if not request.param:
        request.getfixturevalue("no_links")


@pytest.fixture
def umask():
    """Set the umask for a test; give back the old one afterwards."""
    old = os.umask(0o027)
    yield
    os.umask(old)


def race(work, count=2):
    """Run a function in threads that start together; return what each returned or raised."""
    start, outcomes = threading.Barrier(count), []

    def run(number):
        start.wait()
        try:
            outcomes.append(work(number))
        except ss.SlowscaleError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


@pytest.mark.usefixtures("links")
def test_of_two_writers_one_succeeds(tmp_path):
    """50 races of two threads for the same pair of files: one pair is there, and it belongs together."""
    for number in range(50):
        first, second = tmp_path / f"{number}.csv", tmp_path / f"{number}.csv.json"
        outcomes = race(lambda who, a=first, b=second: write_files({a: text(f"a{who}"), b: text(f"b{who}")}))
        loser = [outcome for outcome in outcomes if isinstance(outcome, ss.ParameterError)]
        assert len(loser) == 1
        assert loser[0].subject in (str(first), str(second))
        assert loser[0].code == "exists"
        assert "a release in it would be lost" in loser[0].remedy
        assert outcomes.count(first) == 1
        assert first.read_text()[1:] == second.read_text()[1:]
    assert len(os.listdir(tmp_path)) == 100


def test_of_two_releases_to_one_path_none_is_lost(tmp_path):
    """The same through the public face: the loser is told, also when both looked before either wrote."""
    session = ss.Session(pa.table({"x": [0]}), bits=Recorded(1))
    made = session.sum({"x": ss.Gaussian(sigma=1)})
    releases = [
        replace(made, tables={"table": replace(made["table"], numbers=pa.table({"x": [number]}))}) for number in (0, 1)
    ]
    for number in range(50):
        path = tmp_path / f"{number}.parquet"
        outcomes = race(lambda who, path=path: (who, releases[who].to_parquet(path)))
        (winner,) = [outcome[0] for outcome in outcomes if isinstance(outcome, tuple)]
        assert [type(outcome) for outcome in outcomes].count(ss.ParameterError) == 1
        assert pa.parquet.read_table(path)["x"].to_pylist() == [winner]


@pytest.mark.usefixtures("links")
def test_all_or_none(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"

    def interfere(path):
        path.write_text("new")
        first.write_text("another's")

    with refused(ss.ParameterError, code="exists"):
        write_files({first: text("new"), second: interfere})
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "another's"}

    def fail(path):
        path.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with refused(ss.EngineError, code="unwritable"):
        write_files({first: text("new"), second: fail}, overwrite=True)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "another's"}
    write_files({first: text("new"), second: text("new")}, overwrite=True)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "new", "b": "new"}


@pytest.mark.usefixtures("links")
def test_files_that_were_replaced_are_put_back(tmp_path, monkeypatch):
    old, link, new = (tmp_path / name for name in ("old", "link", "new"))
    old.write_text("old")
    link.symlink_to("old")
    replace = os.replace

    def fail(source, target):
        if target == old and source.read_text() == "2":
            raise PermissionError(errno.EACCES, "The file is open elsewhere")
        replace(source, target)

    files = {old: text("2"), link: text("2"), new: text("2")}  # the first one is moved last
    monkeypatch.setattr(os, "replace", fail)
    with refused(ss.EngineError, code="unwritable"):
        write_files(files, overwrite=True)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"old": "old", "link": "old"}
    assert link.is_symlink()
    monkeypatch.setattr(os, "replace", replace)
    write_files(files, overwrite=True)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(("old", "link", "new"), "2")


@pytest.mark.usefixtures("links", "umask")
def test_modes_come_from_the_umask_and_secrecy(tmp_path):
    assert mode(write_files({tmp_path / "public": text("x")})) == 0o640
    assert mode(write_files({tmp_path / "secret": text("x")}, confidential=True)) == 0o600
    (tmp_path / "secret").chmod(0o666)
    assert mode(write_files({tmp_path / "secret": text("x")}, overwrite=True, confidential=True)) == 0o600


def test_the_umask_is_never_changed(tmp_path, monkeypatch):
    """Another thread would make its files with the changed one."""

    def forbidden(mask):
        raise AssertionError("the umask was changed")

    monkeypatch.setattr(os, "umask", forbidden)
    write_files({tmp_path / "a": text("x")})
    ss.Ledger(tmp_path / "ledger")


def test_the_confidential_report_is_for_its_owner(tmp_path):
    session = ss.Session(pd.DataFrame({"x": [1, 2]}), bits=Recorded(1))
    release = session.sum({"x": ss.Gaussian(sigma=1)})
    assert mode(release.confidential_report(tmp_path / "secret.html", session)) == 0o600
    assert mode(release.report(tmp_path / "public.html")) & 0o077
