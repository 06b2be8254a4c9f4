"""A progress bar is shown in a terminal; the engine's own bar is never printed into a program's output."""

import io
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from slowscale.core import markup as bars
from slowscale.data import connections
from slowscale.data.connections import private_duckdb

CODE = """
import duckdb, slowscale as ss
duckdb.execute("SET enable_progress_bar = false")
duckdb.execute("COPY (SELECT range AS x FROM range(3000000)) TO '{path}' (FORMAT parquet)")
session = ss.Session("{path}")
connection = session.table.get_backend()
(shown,) = connection.con.execute("SELECT current_setting('enable_progress_bar')").fetchone()
connection.con.execute("SET enable_progress_bar_print = false")  # or a slow SET would be shown with a bar
connection.con.execute("SET progress_bar_time = 1")  # this also turns the bar on
connection.con.execute(f"SET enable_progress_bar = {{shown}}")
connection.con.execute("SET enable_progress_bar_print = true")
{bar}
release = session.sum({{"x": ss.Gaussian(sigma=1)}}, where="x % 3 = 1 and sqrt(x) > 2")
session.losses(release)
"""


def output(folder, bar):
    code = CODE.format(bar=bar, path=folder / "a.parquet")
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_nothing_is_printed_without_a_terminal(tmp_path):
    assert output(tmp_path, "") == ""


def test_duckdb_would_print_its_own_bar(tmp_path):
    silent = "import slowscale.data.connections as p; p._set = lambda *given: None"
    assert "%" in output(tmp_path, f"{silent}; connection.con.execute('SET enable_progress_bar = true')")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


@pytest.mark.parametrize(("seconds", "shown"), [(0.0, False), (0.5, True)])
def test_a_bar_is_shown_in_a_terminal_for_a_long_scan(monkeypatch, seconds, shown):
    terminal, asked = Terminal(), []
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(bars, "LONG_WORK", 0.05)
    with bars.progress_bar("summing", lambda: asked.append(1) or (None if len(asked) == 1 else 0.5)):
        time.sleep(seconds)
    assert ("summing" in terminal.getvalue()) is shown
    assert bool(asked) is shown


def test_no_bar_is_shown_without_a_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(bars, "LONG_WORK", 0.0)
    with bars.progress_bar("summing", lambda: 0.5):
        time.sleep(0.05)
    assert sys.stderr.getvalue() == ""


@pytest.mark.parametrize(
    ("percent", "share"), [(0, 0.0), (25, 0.25), (100, 1.0), (-1, None), (-0.5, None), (100.5, None)]
)
def test_the_share_that_is_done(percent, share):
    backend = SimpleNamespace(name="duckdb", con=SimpleNamespace(query_progress=lambda: percent))
    assert connections._share_done(backend)() == share
    assert connections._share_done(SimpleNamespace(name="postgres"))() is None


def settings(backend):
    asked = "SELECT current_setting('enable_progress_bar'), current_setting('enable_progress_bar_print')"
    return backend.con.execute(asked).fetchone()


@pytest.mark.parametrize("terminal", [True, False])
def test_duckdb_reports_its_progress_to_a_terminal_but_does_not_print_it(monkeypatch, terminal):
    backend = private_duckdb()
    before = settings(backend)
    assert before == (False, True)
    monkeypatch.setattr(sys, "stderr", Terminal() if terminal else io.StringIO())
    with connections.query_progress(backend, "summing"):
        assert settings(backend) == (terminal, False)
    assert settings(backend) == before


class Waits:
    """An event that is set after some waits, whose lengths it keeps."""

    def __init__(self, count):
        self.seconds, self.count = [], count

    def wait(self, seconds):
        self.seconds.append(seconds)
        return len(self.seconds) >= self.count


def test_the_bar_shows_the_share_when_it_is_known_and_is_removed_at_the_end(monkeypatch):
    updates, options = [], {}

    class Bar:
        def __init__(self, *columns, **given):
            options.update(given)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def add_task(self, label, total):
            return label, total

        def update(self, task, **given):
            updates.append((task, given))

    monkeypatch.setattr("rich.progress.Progress", Bar)
    shares, done = iter([None, 0.25, None, 1.0]), Waits(6)
    bars._watch("summing", lambda: next(shares), done)
    task = ("summing", None)
    assert updates == [(task, {"total": 1.0, "completed": 0.25}), (task, {"total": 1.0, "completed": 1.0})]
    assert options["transient"] is True
    assert options["console"].stderr is True
    assert done.seconds[0] == bars.LONG_WORK
    assert all(0 < seconds < 1 for seconds in done.seconds)  # neither busy nor standing still


def test_a_bar_does_not_keep_the_program_alive(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    before = set(threading.enumerate())
    with bars.progress_bar("summing", lambda: None):
        (watcher,) = set(threading.enumerate()) - before
        assert watcher.daemon
    assert not watcher.is_alive()
