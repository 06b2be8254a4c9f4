"""Releases of the workbench: what is said before one, whether one still runs, and what became of it."""

import collections
import html
import json
import os
import re
import signal
import stat
import sys
import time
from pathlib import Path

import pytest
from helpers.workbench_client import READY, workbench_in

from slowscale.core.locks import locked
from slowscale.workbench import jobs, server
from slowscale.workbench.app import NO_LEDGER_NOTE
from slowscale.workbench.security import Door

LEDGER = '[ledger]\npath = "plan.ledger"\n'
NAME = "0" * 32


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.csv").write_text("emp,county\n1,texas\n2,ohio\n")
    (tmp_path / "plan.toml").write_text(READY)
    return tmp_path


def with_labels(folder, *labels):
    """Publish cells with these labels."""
    (folder / "plan.toml").write_text(
        f"{READY}[tables.cells.keys]\nby = ['county']\ncross = {{ county = {list(labels)} }}\n"
    )


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class TestBefore:
    @pytest.mark.parametrize("path", ["/release/question", "/cost/table", "/report"])
    def test_without_a_ledger_nothing_is_said_to_be_recorded(self, folder, path):
        _, client = workbench_in(folder)
        assert NO_LEDGER_NOTE not in client.get(path).text
        (folder / "plan.toml").write_text(READY.replace(LEDGER, ""))
        text = client.get(path).text
        assert NO_LEDGER_NOTE in text
        assert "charges the ledger" not in text
        assert "Nothing was released before" not in text

    def test_the_cost_of_a_set_is_shown_at_the_named_sizes(self, folder):
        text = READY + "[report]\nsizes = { 'largest of all' = 7777 }\n"
        (folder / "plan.toml").write_text(text)
        text = workbench_in(folder)[1].get("/cost/table").text
        (preview,) = re.findall(r"losses and errors\">(.*?)</pre>", text, re.DOTALL)
        assert "largest of all" in preview

    def check(self, folder):
        workbench, client = workbench_in(folder)
        before = contents(folder)
        answer = client.post("/release/check", data={"version": workbench.draft.version})
        assert answer.status_code == 200  # whatever was found
        assert answer.headers["cache-control"] == "no-store"
        assert contents(folder) == before
        assert workbench.inspection == ("", {})
        return html.unescape(answer.text)

    def test_the_data_check_finds_keys_without_records(self, folder):
        with_labels(folder, "Texas", "Ohio")
        text = self.check(folder)
        assert "CONFIDENTIAL" in text
        assert "No record has any of the keys" in text
        assert "1 record has county = 'texas'; the keys have 'Texas'" in text
        with_labels(folder, "texas", "Ohio")
        text = self.check(folder)
        assert "No record has any of the keys" not in text
        assert "1 of 2 keys have no record" in text

    def test_a_data_check_that_fails_says_so_in_its_own_place(self, folder):
        with_labels(folder, "texas")
        (folder / "a.csv").write_text("emp,county\n1,texas,x\n")
        assert "could not be inspected" in self.check(folder)

    def test_the_data_check_is_about_the_plan_that_was_seen(self, folder):
        _, client = workbench_in(folder)
        assert "CONFIDENTIAL" not in client.post("/release/check", data={"version": "another"}).text

    def test_the_data_check_reads_nothing_outside_the_folder(self, folder):
        (folder / "plan.toml").write_text(READY.replace("a.csv", "../b.csv"))
        assert "outside the folder" in self.check(folder)


class TestJobs:
    @pytest.fixture
    def place(self, folder):
        """A job whose process is gone."""
        place = folder / ".slowscale" / "jobs" / NAME
        place.mkdir(parents=True)
        (place / "plan.toml").write_text(READY)
        return place

    def write(self, place, **state):
        started = "2026-01-01T00:00:00+00:00"
        known = {"status": "running", "started": started, "plan": "plan.toml", "charges": 0}
        (place / "state.json").write_text(json.dumps({**known, **state}))

    def test_the_lock_decides_whether_a_release_runs(self, folder, place):
        _, client = workbench_in(folder)
        self.write(place)
        with locked(place / "lock"):
            text = client.get(f"/release/{NAME}").text
            assert "The release is running." in text
            assert "charged" not in text
            assert json.loads((place / "state.json").read_text())["status"] == "running"  # no guess is written
            assert "A release is running" in client.get("/release").text
        assert "Nothing was charged" in client.get(f"/release/{NAME}").text

    def test_a_result_that_is_written_at_the_end_counts(self, folder, place, monkeypatch):
        """The process may write its result and end between two looks at it."""

        def ends(path):
            self.write(place, status="done", charged=True, files=["published/cells.parquet"])
            return False

        self.write(place)
        monkeypatch.setattr(jobs, "is_locked", ends)
        assert "Released" in workbench_in(folder)[1].get(f"/release/{NAME}").text

    def test_a_ledger_that_cannot_be_read_is_not_called_missing(self, folder, place):
        _, client = workbench_in(folder)
        self.write(place)
        (folder / "plan.ledger").write_text("not a ledger")
        text = client.get(f"/release/{NAME}").text
        assert "Whether it was charged is not known" in text
        assert NO_LEDGER_NOTE not in text
        (folder / "plan.ledger").unlink()  # it can be read again
        assert "Nothing was charged" in client.get(f"/release/{NAME}").text

    def test_a_job_that_ended_is_settled_before_another_one_charges(self, folder, place):
        workbench, _ = workbench_in(folder)
        self.write(place)
        workbench.jobs.start("1" * 32, workbench.draft, False)
        job = finished(workbench, "1" * 32)
        assert (job.status, job.charge) == ("done", "charged")
        assert workbench.jobs.settled(workbench.jobs.get(NAME)).charge == "not charged"

    def test_noise_on_zeros_is_no_success_and_no_module_of_the_folder_is_imported(self, folder, monkeypatch):
        for name in ("numpy", "duckdb", "slowscale", "tempfile"):
            (folder / f"{name}.py").write_text(f"open({str(folder / 'imported')!r}, 'w')\nraise SystemExit\n")
        # An empty entry, which `export PYTHONPATH=$PYTHONPATH:…` leaves, stands for the folder that Python starts in.
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", *filter(None, sys.path)]))
        with_labels(folder, "Texas")
        workbench, client = workbench_in(folder)
        workbench.jobs.start(NAME, workbench.draft, False)
        job = finished(workbench, NAME)
        assert (job.status, job.charge) == ("done", "charged"), job.state
        assert not (folder / "imported").exists()
        text = client.get(f"/release/{NAME}").text
        assert "Do not publish this yet" in text
        assert "no record has any of the keys" in text
        assert 'class="message"' not in text
        assert "Released" not in text


def test_a_plan_without_tables_is_refused(folder):
    (folder / "plan.toml").write_text('[data]\npath = "a.csv"\n')
    workbench, client = workbench_in(folder)
    assert "nothing to publish" in "".join(words for _, words in workbench.draft.mistakes)
    assert not workbench.draft.complete
    form = {"confirmed": "yes", "name": NAME, "version": workbench.draft.version}
    assert client.post("/release", data=form).status_code == 303
    job = finished(workbench, NAME)
    assert job.status == "refused"
    assert "nothing to publish" in job.state["message"]


@pytest.mark.parametrize("has_signals", [True, False], ids=["posix", "windows"])
def test_a_cancelled_job_is_interrupted(tmp_path, monkeypatch, has_signals):
    if not has_signals:
        monkeypatch.delattr(signal, "pthread_kill")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore the signal
    try:
        with jobs.cancellable(tmp_path):
            pass
        (tmp_path / "cancel").touch()
        with pytest.raises(KeyboardInterrupt), jobs.cancellable(tmp_path):
            collections.deque(map(time.sleep, [0.05] * 400))
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_process_that_cannot_start_is_a_stopped_job(folder, monkeypatch):
    workbench, client = workbench_in(folder)
    monkeypatch.setattr(jobs.sys, "executable", "/bin/false")
    job = workbench.jobs.start(NAME, workbench.draft, False)
    assert job.status == "stopped"
    assert "Nothing was charged" in client.get(f"/release/{NAME}").text


def test_a_process_carries_a_job_out_once(folder):
    """A server may be killed between starting a process and hearing from it."""
    from slowscale.workbench.job import main

    workbench, _ = workbench_in(folder)
    workbench.jobs.start(NAME, workbench.draft, False)
    before = finished(workbench, NAME).state
    assert main(NAME, folder / "plan.toml", True, json.dumps({**before, "status": "running"}).encode()) == 1
    assert workbench.jobs.get(NAME).state == before
    place = workbench.jobs.folder / ("1" * 32)
    place.mkdir()
    assert main(place.name, folder / "plan.toml", True, b"") == 1  # the server was killed before it said anything
    assert workbench.jobs.get(place.name) is None


def finished(workbench, name):
    deadline = time.monotonic() + 90
    while (job := workbench.jobs.get(name)).open:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return job


def test_the_token_is_not_given_to_the_browser(tmp_path, monkeypatch):
    """Everybody on a machine can read the command line of a browser."""
    opened, found = [], []

    class Immediate:
        def __init__(self, delay, call, given):
            self.start = lambda: call(*given)

    def run(self, sockets):
        (address,) = opened
        file = address.removeprefix("file://")
        found.extend([stat.S_IMODE(os.stat(file).st_mode), Path(file).read_text(), file])

    monkeypatch.setattr(server.threading, "Timer", Immediate)
    monkeypatch.setattr(server.webbrowser, "open", opened.append)
    monkeypatch.setattr(server.uvicorn.Server, "run", run)
    told = []
    server.run(tmp_path / "plan.toml", (), 0, True, told.append)
    token = re.search(r"token=(\S+)", told[0]).group(1)
    mode, text, file = found
    assert token not in opened[0]
    assert mode == 0o600
    assert token in text
    assert not os.path.exists(file)


def test_a_door_opens_once_except_for_who_is_inside():
    door = Door(1)
    assert not door.enter("", known=False)
    assert not door.used
    assert door.enter(door.token, known=False)
    assert not door.enter(door.token, known=False)
    assert door.enter(door.token, known=True)
    assert not door.enter("", known=True)
    assert door.inside(f"{door.root}/data") == "/data"
    assert [door.inside(path) for path in ("", "/", "/data", door.root, f"/{door.root}/x", f"{door.root}x/data")] == [
        None
    ] * 6


def test_the_data_check_of_a_set_names_its_tables(folder):
    from slowscale.plan import describe_matches, read_plan

    text = READY + "[tables.cells.keys]\ncross = { county = ['Texas'] }\n"
    (folder / "plan.toml").write_text(text + "[tables.total.count]\nmechanism = 'gaussian'\nsigma = 2\n")
    words = describe_matches(read_plan(folder / "plan.toml"))
    cells, total = words.split("Table total:")
    assert "No record has any of the keys" in cells
    assert "No record has any of the keys" not in total
    assert not (folder / "plan.ledger").exists()
