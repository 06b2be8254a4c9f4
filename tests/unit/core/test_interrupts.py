"""Ctrl-C interrupts at once, or as soon as it is safe."""

import os
import signal
import sys
import time
from contextlib import suppress

import pytest

from slowscale.core.interrupts import interruptible, uninterrupted

MODULE = """
import os, signal, time
caught = False
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.05)
except KeyboardInterrupt:  # as a compiled module may do
    caught = True
complete = True
"""


@pytest.fixture(autouse=True)
def _terminal():
    """Let the signals be as in a terminal: background jobs of a shell ignore them."""
    signals = (signal.SIGINT, signal.SIGALRM)
    before = [signal.signal(number, signal.default_int_handler) for number in signals]
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    for number, old in zip(signals, before, strict=True):
        signal.signal(number, old)


def press():
    os.kill(os.getpid(), signal.SIGINT)


def interrupted(work):
    """Return whether work was interrupted."""
    try:
        with interruptible():
            work()
    except KeyboardInterrupt:
        return True
    return False


def test_other_code_is_interrupted_at_once():
    reached = []
    assert interrupted(lambda: (press(), reached.append(1)))
    assert not reached
    assert not interrupted(lambda: time.sleep(0.05))


def test_a_running_import_is_completed(tmp_path, monkeypatch):
    (tmp_path / "interrupted_module.py").write_text(MODULE)
    (tmp_path / "importing_module.py").write_text("from interrupted_module import complete\n")
    monkeypatch.syspath_prepend(tmp_path)
    reached = []

    def use():
        import importing_module

        reached.append(importing_module.complete)
        time.sleep(60)

    assert interrupted(use)
    assert reached == [True]
    assert not sys.modules.pop("interrupted_module").caught
    del sys.modules["importing_module"]


def test_a_swallowed_interrupt_comes_again():
    def work():
        with suppress(KeyboardInterrupt):
            press()
        time.sleep(60)

    assert interrupted(work)


def test_cleaning_up_is_not_interrupted():
    done = []

    def work():
        try:
            press()
        finally:
            try:
                raise FileNotFoundError
            except FileNotFoundError:
                time.sleep(0.1)
            press()
            done.append(1)

    assert interrupted(work)
    assert done == [1]


def test_a_block_can_postpone_it():
    done = []

    def work():
        with uninterrupted(), uninterrupted():
            press()
            time.sleep(0.1)
            done.append(1)
        time.sleep(60)

    assert interrupted(work)
    assert done == [1]


def test_an_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert not interrupted(press)
    signal.signal(signal.SIGINT, before)
