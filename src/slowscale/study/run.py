"""Carries out a study: experiments, claims, figures, tables and the page, in one folder."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from slowscale.core.errors import ParameterError
from slowscale.core.files import write_files
from slowscale.publish.charts import tools
from slowscale.study import tables
from slowscale.study.attributes import Attribute, paper_attributes
from slowscale.study.checking import check_claims
from slowscale.study.claims import Claim, Finding
from slowscale.study.errors import Store
from slowscale.study.figures import save
from slowscale.study.gallery import drawings
from slowscale.study.page import Figure, study_page
from slowscale.study.results import Subject, carry_out, plan_experiments, progress

REPETITIONS, QUICK_REPETITIONS = 1000, 100
LOSSES = (10.0, 50.0)  # of the largest record, where mechanisms are compared at the same loss
LEAST_LOSS, MOST_LOSS = 0.1, 10_000.0


@dataclass(frozen=True)
class Study:
    """What a study found, and where its page is."""

    subjects: list[Subject]
    claims: list[tuple[Claim, Finding]]
    page: Path


def run_study(
    folder: Path,
    attributes: Sequence[Attribute] | None = None,
    repetitions: int = REPETITIONS,
    losses: Sequence[float] = LOSSES,
    given: str | None = None,
    overwrite: bool = False,
) -> Study:
    """Carry out the experiments of the paper, and write the results to a folder.

    A study that was interrupted continues where it stopped, if it is started again with the same folder.

    Parameters
    ----------
    folder
        Gets study.html, and the folders `figures` (SVG, PNG) and `data` (CSV).
    attributes
        The columns to study; by default those of the paper, simulated.
    repetitions
        How often each table is released.
    losses
        The losses of the largest record at which mechanisms are compared, each from 0.1 to 10,000.
    given
        The name of the user's own data. Only the owner may then read the files, because they are confidential.
    overwrite
        Whether to replace the results of an earlier study.
    """
    tools()
    for loss in losses:
        if not LEAST_LOSS <= loss <= MOST_LOSS:
            raise ParameterError("loss", allowed=f"from {LEAST_LOSS:g} to {MOST_LOSS:g}", given=loss, path=("loss",))
    output = _Output(folder, given is not None)
    output.check(overwrite)
    store = Store(output.unfinished)
    with output.locked():
        plans = [
            plan_experiments(one, repetitions, list(dict.fromkeys(losses))) for one in attributes or paper_attributes()
        ]
        with progress(sum(plan.draws for plan in plans)) as advance:
            subjects = [carry_out(plan, store, advance) for plan in plans]
        found = check_claims(subjects)
        output.remove_earlier()
        for name, table in tables.listed(subjects, found).items():
            output.write_csv(name, table)
        drawn = list(_draw(subjects, output))
        text = study_page(subjects, found, drawn, repetitions, given)
        output.write_page(text)
        store.remove()
    with suppress(OSError):  # it may hold files of others
        output.unfinished.rmdir()
    return Study(subjects, found, output.page)


def _draw(subjects: Sequence[Subject], output: "_Output") -> Iterator[Figure]:
    """Write every figure with its numbers, and yield it for the page."""
    for one in drawings(subjects):
        for suffix, table in one.data.items():
            output.write_csv(f"{one.name}{suffix}", table)
        svg = output.write_chart(one.name, one.chart)
        yield Figure(one.name, one.section, one.words, svg.read_text(encoding="utf-8"))


class _Output:
    """The folder of a study. `files.txt` lists what was written, so that another study can replace it."""

    def __init__(self, folder: Path, confidential: bool) -> None:
        self.folder, self.confidential = folder, confidential
        self.page, self.list = folder / "study.html", folder / "files.txt"
        self.figures, self.data, self.unfinished = (folder / name for name in ("figures", "data", "unfinished"))
        self.written: list[str] = []

    def check(self, overwrite: bool) -> None:
        """Make the folders, or raise an error that says why that is not possible."""
        if self.page.exists() and not overwrite:
            raise ParameterError(f"{self.page} exists: choose another folder, or pass overwrite=True or --overwrite")
        if not overwrite:
            self._check_strangers()
        for folder in (self.folder, self.figures, self.data, self.unfinished):
            if folder.exists() and not folder.is_dir():
                raise ParameterError(folder, "is a file: choose another folder")
            try:
                folder.mkdir(0o700 if self.confidential else 0o777, parents=True, exist_ok=True)
            except OSError as error:
                raise ParameterError(folder, f"cannot be made: {error.strerror}. Choose another folder") from None

    def _check_strangers(self) -> None:
        """Raise if a file that no study has written might be replaced."""
        known = set(self._earlier())
        for folder in (self.figures, self.data):
            for path in sorted(folder.iterdir()) if folder.is_dir() else ():
                if f"{folder.name}/{path.name}" not in known:
                    raise ParameterError(
                        path,
                        "is not from a study: choose another folder, or pass overwrite=True or --overwrite to "
                        "replace it",
                    )

    def _earlier(self) -> list[str]:
        """Return the names of the files of an earlier study."""
        return self.list.read_text(encoding="utf-8").splitlines() if self.list.exists() else []

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other studies out of the folder while the block runs."""
        path = self.unfinished / "lock"  # SQLite's locks work on every system, and end with the process
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as lock:
            try:
                lock.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError:
                raise ParameterError(f"another study is running in {self.folder}: choose another folder") from None
            yield
            path.unlink(missing_ok=True)

    def remove_earlier(self) -> None:
        """Remove the files of an earlier study."""
        for name in self._earlier():
            path = self.folder / name
            if path.resolve().is_relative_to(self.folder.resolve()):
                path.unlink(missing_ok=True)

    def write_page(self, text: str) -> None:
        """Write the page."""
        self._write(self.page.name, lambda place: place.write_text(text, encoding="utf-8"))

    def write_csv(self, name: str, table: pa.Table) -> None:
        """Write a table to the folder `data`."""
        self._write(f"data/{name}.csv", lambda place: pyarrow.csv.write_csv(table, place))

    def _write(self, name: str, content: Callable[[Path], object]) -> None:
        self._note(name)
        write_files({self.folder / name: content}, overwrite=True, confidential=self.confidential)

    def write_chart(self, name: str, chart: object) -> Path:
        """Write a chart to the folder `figures`, and return its SVG file."""
        self._note(f"figures/{name}.svg", f"figures/{name}.png")
        return save(chart, self.figures / name, overwrite=True, confidential=self.confidential)[0]

    def _note(self, *names: str) -> None:
        """Add names to the list of files. It is written first, so that no file is forgotten."""
        self.written += names
        text = "\n".join([*self.written, ""])
        write_files({self.list: lambda place: place.write_text(text, encoding="utf-8")}, overwrite=True)
