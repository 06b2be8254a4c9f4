"""A pytest plugin that records which lines of slowscale each test reaches, and how long it takes."""

import json
import os
import time
import warnings

import coverage
import pytest

from mutation.records import FOLDER


class Recorder:
    """Writes one file of coverage and one of durations for each process that runs tests."""

    def __init__(self) -> None:
        self.name = f"{os.environ.get('PYTEST_XDIST_WORKER', 'main')}-{time.time_ns()}"
        self.durations: dict[str, float] = {}
        self.coverage = coverage.Coverage(
            data_file=str(FOLDER / f"lines.{self.name}"), source=["slowscale"], config_file=False
        )
        self.coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        """Name the test whose lines are counted."""
        self.coverage.switch_context(item.nodeid)
        return (yield)

    def pytest_runtest_logreport(self, report) -> None:
        """Add up the durations of a test's parts."""
        self.durations[report.nodeid] = self.durations.get(report.nodeid, 0.0) + report.duration
        if report.failed:
            self.durations[report.nodeid] = -1.0  # a test that fails without a fault shows nothing

    def pytest_sessionfinish(self) -> None:
        """Write what was seen."""
        self.coverage.stop()
        with warnings.catch_warnings():  # Coverage warns if all lines of some file ran before it started
            warnings.simplefilter("ignore", coverage.exceptions.CoverageWarning)
            self.coverage.save()
        (FOLDER / f"durations.{self.name}.json").write_text(json.dumps(self.durations))


def pytest_configure(config) -> None:
    """Record in the processes that run tests; with pytest-xdist the first process runs none."""
    if hasattr(config, "workerinput") or not getattr(config.option, "numprocesses", None):
        config.pluginmanager.register(Recorder())
