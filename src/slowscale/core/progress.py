"""A progress bar for long work, in a terminal only."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LONG_WORK = 0.7  # seconds after which work counts as long


@contextmanager
def progress_bar(label: str, share: Callable[[], float | None]) -> Iterator[None]:
    """Show a bar on a terminal while the block runs, if it takes longer than `LONG_WORK`.

    Parameters
    ----------
    label
        The description beside the bar.
    share
        Returns the share that is done, from 0 to 1, or None if it is not known.
    """
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(label, share, done), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _watch(label: str, share: Callable[[], float | None], done: threading.Event) -> None:
    if done.wait(LONG_WORK):
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        while not done.wait(0.1):
            known = share()
            if known is not None:
                bar.update(task, total=1.0, completed=known)
