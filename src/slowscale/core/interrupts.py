"""Ctrl-C at any moment, also while modules are imported and files are moved."""

import _thread
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# How frames name the files of Python's import system.
IMPORTING = "<frozen importlib._bootstrap"
# Seconds until an interrupt is tried again.
PAUSE = 0.02

_shields = 0


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt in the block, as always, but surely and only where it is safe.

    Within an import it is not safe: a compiled module may turn it into an ImportError, or swallow it and stay half
    imported, so that a later import waits for ever. The interrupt is tried again until it ends the block: compiled code
    that calls Python may ignore errors. A process that ignores the signal continues to ignore it.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        _try_again(0)
        signal.signal(signal.SIGINT, before)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Postpone an interrupt of the enclosing `interruptible` block until the end of this one."""
    global _shields
    _shields += 1
    try:
        yield
    finally:
        _shields -= 1


def interrupt() -> None:
    """Do in another thread what Ctrl-C does: interrupt the main thread."""
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, signal.SIGINT)  # also ends a call of the system that waits
    else:
        _thread.interrupt_main()


def _interrupt(number: int, frame: FrameType | None) -> None:
    if number == signal.SIGINT:
        _try_again(PAUSE)
    if not (_is_cleaning_up() or (_CAN_WAIT and (_shields or _is_importing(frame)))):
        raise KeyboardInterrupt


_CAN_WAIT = hasattr(signal, "setitimer")  # not on Windows


def _try_again(pause: float) -> None:
    if _CAN_WAIT:
        if pause:
            signal.signal(signal.SIGALRM, _interrupt)
        signal.setitimer(signal.ITIMER_REAL, pause, pause)


def _is_cleaning_up() -> bool:
    """Whether the code that runs now handles an interrupt, such as a `finally` clause through which it passes."""
    error = sys.exc_info()[1]
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_code.co_filename.startswith(IMPORTING):
        frame = frame.f_back
    return frame is not None
