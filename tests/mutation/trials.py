"""Runs tests with a fault in place, each time in a fork of a process that is ready to go."""

import ast
import contextlib
import gc
import importlib.abc
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from .faults import Mutant
from .records import Records

OPTIONS = [
    "-q",
    "-x",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "-p",
    "no:randomly",
    "--no-header",
    "--no-summary",
    "--tb=line",
]
PATIENCE = 5.0  # a mutant that takes so many times longer than the tests alone hangs


class Quick:
    """A pytest plugin that spares Hypothesis from looking for the simplest failing example."""

    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings  # importing it before pytest runs is an error to pytest

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("quick", phases=phases, derandomize=True, deadline=None, database=None)
        settings.load_profile("quick")


class Counted(Quick):
    """A pytest plugin that counts the tests that are collected."""

    count = 0

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.count = len(items)


class Chosen(Quick):
    """A pytest plugin that keeps the chosen tests, in their order."""

    def __init__(self, tests: list[str]) -> None:
        self.order = {test: place for place, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self.order), key=lambda item: self.order[item.nodeid])


class Mutated(importlib.abc.MetaPathFinder):
    """Imports one module of the package from a changed text."""

    def __init__(self, mutant: Mutant) -> None:
        parts = Path(mutant.path).with_suffix("").parts[1:]
        self.name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        self.mutant = mutant

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        spec = importlib.util.spec_from_file_location(name, Path(self.mutant.path).resolve())
        code = compile(self.mutant.source(), spec.origin, "exec", dont_inherit=True)
        spec.loader.get_code = lambda _: code
        return spec


def run_trials(
    waiting: list[Mutant], records: Records, processes: int, cold: bool, seconds: float
) -> Iterator[tuple[Mutant, str]]:
    """Try the mutants, and yield each with `killed`, `timeout`, `survived`, `unreached` or `doubtful`.

    Each is tried with the quickest tests of its line, which take `seconds` without a fault. A mutant is doubtful where
    its line takes effect on import: it needs a trial in a fresh import.
    """
    if cold:
        _import_dependencies()
    functions = {} if cold else _collect_all(records)
    running: dict[int, tuple[Mutant, float]] = {}
    todo, begun = list(waiting), time.monotonic()
    while todo or running:
        while todo and len(running) < processes:
            mutant = todo.pop(0)
            tests = records.tests(mutant.path, _statement(mutant), seconds)
            if not mutant.function and not tests:
                tests = records.tests(mutant.path, range(1, 10**6), seconds)
            live = functions.get((mutant.path, mutant.function, mutant.first_line), [])
            if not tests:
                yield mutant, "unreached"
            elif not cold and not live:
                yield mutant, "doubtful"
            else:
                limit = (120 if cold else 10) + PATIENCE * sum(records.durations[test] for test in tests)
                running[_fork(mutant, tests, live)] = (mutant, time.monotonic() + limit)
        pid, status = os.waitpid(-1, os.WNOHANG) if running else (0, 0)
        if pid:
            mutant, _ = running.pop(pid)
            if len(todo) % 50 == 0:
                print(f"{len(todo)} left after {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
            early = not cold and not records.early.get(mutant.path, set()).isdisjoint(_statement(mutant))
            yield mutant, _verdict(status, early)
            continue
        for pid, (_, end) in running.items():
            if time.monotonic() > end:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
        time.sleep(0.01)


def _verdict(status: int, early: bool) -> str:
    if os.WIFSIGNALED(status):
        return "timeout"
    match os.WEXITSTATUS(status):
        case pytest.ExitCode.OK:
            return "doubtful" if early else "survived"
        case pytest.ExitCode.USAGE_ERROR | pytest.ExitCode.NO_TESTS_COLLECTED:
            return "error"
        case _:
            return "killed"


def _statement(mutant: Mutant) -> range:
    """The lines of the innermost statement at the mutant: coverage counts some statements at their first line only."""
    best = range(mutant.line, mutant.line + 1)
    tree = _parsed(mutant.path)
    size = 10**9
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and not isinstance(node, ast.FunctionDef | ast.ClassDef):
            end = node.body[0].lineno - 1 if hasattr(node, "body") else node.end_lineno
            end = max(end, node.lineno)
            if node.lineno <= mutant.line <= end and end - node.lineno < size:
                best, size = range(node.lineno, end + 1), end - node.lineno
    return best


@cache
def _parsed(path: str) -> ast.Module:
    return ast.parse(Path(path).read_text())


def _collect_all(records: Records) -> dict[tuple[str, str, int], list[types.FunctionType]]:
    """Import all tests and the package, and find the package's functions by file, name and first line."""
    files = sorted({test.partition("::")[0] for test in records.durations})
    first, second = Counted(), Counted()
    with _silence():
        statuses = [pytest.main([*OPTIONS, "--collect-only", *files], plugins=[one]) for one in (first, second)]
    # Trials collect again: a fault must not be blamed for a failure of that, nor pass for want of tests.
    if any(statuses) or first.count != second.count:
        raise SystemExit("The tests cannot be collected twice: is a generator given to parametrize?")
    here, found = str(Path.cwd()) + os.sep, {}
    for function in gc.get_objects():
        if isinstance(function, types.FunctionType) and function.__code__.co_filename.startswith(here + "src"):
            code = function.__code__
            place = (code.co_filename.removeprefix(here), code.co_qualname, code.co_firstlineno)
            found.setdefault(place, []).append(function)
    gc.collect()
    gc.freeze()
    return found


def _import_dependencies() -> None:
    """Import what the package imports from elsewhere, so that a fresh import of the package itself is quick."""
    listing = (
        "import importlib, pkgutil, sys, slowscale\n"
        "for module in pkgutil.walk_packages(slowscale.__path__, 'slowscale.'):\n"
        "    if not module.name.endswith('__main__'): importlib.import_module(module.name)\n"
        "print(*[name for name in sys.modules if not name.startswith(('slowscale', '__'))])"
    )
    done = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True)
    for name in [*done.stdout.split(), "pandas", "polars", "scipy.stats", "scipy.integrate", "scipy.optimize"]:
        with contextlib.suppress(Exception):  # a module may refuse to be imported under its own name
            importlib.import_module(name)


def _fork(mutant: Mutant, tests: list[str], live: list[types.FunctionType]) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 3
    try:
        os.setpgid(0, 0)
        with _silence(), _own_curves(mutant):
            if live:
                _exchange(mutant, live)
            else:
                sys.meta_path.insert(0, Mutated(mutant))
            files = sorted({test.partition("::")[0] for test in tests})
            status = pytest.main([*OPTIONS, *files], plugins=[Chosen(tests)])
    except BaseException:
        status = 1
    finally:
        os._exit(int(status))


def _exchange(mutant: Mutant, live: list[types.FunctionType]) -> None:
    """Give a function, in every copy, the code that it has in the mutated text."""
    codes = [compile(mutant.source(), mutant.path, "exec", dont_inherit=True)]
    while codes:
        code = codes.pop()
        if (code.co_qualname, code.co_firstlineno) == (mutant.function, mutant.first_line):
            for function in live:
                function.__code__ = code
            return
        codes.extend(part for part in code.co_consts if isinstance(part, types.CodeType))
    raise LookupError(mutant.function)


@contextlib.contextmanager
def _own_curves(mutant: Mutant) -> Iterator[None]:
    """Let a mutant of the code that computes tight curves compute them: all other trials share a cache of curves."""
    with tempfile.TemporaryDirectory(prefix="slowscale-curves-") as folder:
        if Path(mutant.path).parts[2] == "noise":
            os.environ["SLOWSCALE_CACHE"] = folder
        yield


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    saved = os.dup(1), os.dup(2)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        for number, copy in zip((1, 2), saved, strict=True):
            os.dup2(copy, number)
            os.close(copy)
