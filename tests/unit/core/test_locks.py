"""Locks between processes, and between the threads of one."""

import os
import subprocess
import sys
import threading

import pytest

from slowscale.core import locks
from slowscale.core.locks import is_locked, locked

HOLDER = """
import sys
from pathlib import Path
from slowscale.core.locks import locked
with locked(Path(sys.argv[1])) as taken:
    print(taken, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a lock #1?"


@pytest.fixture
def holder(path):
    """Another process that holds the lock."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "True\n"
    yield process
    process.kill()
    process.communicate()


def test_a_lock_ends_with_its_process(path, holder):
    assert is_locked(path)
    with locked(path) as taken:
        assert not taken
    assert is_locked(path)
    holder.kill()
    holder.wait()
    assert not is_locked(path)
    with locked(path) as taken:
        assert taken
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert path.stat().st_size == 0


def test_one_waits_for_a_lock(path, holder):
    threading.Timer(0.3, holder.kill).start()
    with locked(path, wait=60) as taken:
        assert taken


def test_threads_exclude_each_other(path):
    found = []

    def attempt():
        with locked(path) as taken:
            found.append(taken)

    with locked(path) as taken:
        assert taken
        thread = threading.Thread(target=attempt)
        thread.start()
        thread.join()
        assert is_locked(path)
        # Closing the file in the thread would end the lock of the process.
        other = subprocess.run(
            [sys.executable, "-c", HOLDER, str(path)], input="", capture_output=True, text=True, check=True
        )
        assert other.stdout == "False\n"
    assert found == [False]
    assert not is_locked(path)


def test_looking_takes_no_lock(path):
    with locked(path):
        pass
    for _ in range(3):
        assert not is_locked(path)
    with locked(path) as taken:
        assert taken


@pytest.mark.parametrize("new", [False, True])
def test_a_removed_lock_file_is_no_lock(path, monkeypatch, new):
    """Between opening and locking a file, its last holder may remove it, and a third process create it anew."""
    with locked(path, remove=True) as taken:
        assert taken
        assert path.exists()
    assert not path.exists()
    connect = locks._connect

    def slowly(*given):
        connection = connect(*given)
        monkeypatch.setattr(locks, "_connect", connect)
        with locked(path, remove=True) as taken:
            assert taken
        if new:
            path.touch()
        return connection

    with locked(path):
        pass
    monkeypatch.setattr(locks, "_connect", slowly)
    with locked(path, remove=True) as taken:
        assert not taken
    assert path.exists() == new


def test_a_file_that_is_removed_before_it_is_opened_is_no_lock(path, monkeypatch):
    connect = locks._connect
    monkeypatch.setattr(locks, "_connect", lambda *given: (path.unlink(), connect(*given))[1])
    with locked(path, remove=True) as taken:
        assert not taken
    assert not path.exists()


def test_a_lock_that_is_not_taken_is_not_removed(path, holder):
    with locked(path, remove=True) as taken:
        assert not taken
    assert path.exists()


def test_what_cannot_be_known_counts_as_locked(path):
    assert not is_locked(path)
    path.write_bytes(b"x" * 2000)
    assert is_locked(path)
    with pytest.raises(OSError, match="database"), locked(path):
        pass
    with pytest.raises(FileNotFoundError), locked(path.parent / "missing" / "lock"):
        pass
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pipes in folders, and links need a privilege")
@pytest.mark.parametrize("make", [lambda path: os.mkfifo(path), os.mkdir, lambda path: os.symlink("elsewhere", path)])
def test_only_a_regular_file_is_locked(path, make):
    make(path)
    assert is_locked(path) == (not path.is_symlink())  # the link leads nowhere
    with pytest.raises(OSError, match=str(path)), locked(path):
        pass
    assert os.listdir(path.parent) == [path.name]
