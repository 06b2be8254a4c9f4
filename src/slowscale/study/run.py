"""Carries out a study: experiments, claims, figures, tables and the page, in one folder."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from slowscale.errors import ParameterError
from slowscale.files import write_files
from slowscale.report.charts import check_tools
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
        The losses of the largest record at which mechanisms are compared.
    given
        The name of the user's own data, whose results are confidential.
    overwrite
        Whether to replace the results of an earlier study.
    """
    check_tools()
    path = folder / "study.html"
    if folder.exists() and not folder.is_dir():
        raise ParameterError(f"{folder} is a file: choose another folder")
    if path.exists() and not overwrite:
        raise ParameterError(f"{path} exists: choose another folder, or pass overwrite=True")
    store = Store(folder / "unfinished")
    plans = [plan_experiments(one, repetitions, losses) for one in attributes or paper_attributes()]
    with progress(sum(plan.draws for plan in plans)) as advance:
        subjects = [carry_out(plan, store, advance) for plan in plans]
    found = check_claims(subjects)
    drawn = list(_draw(subjects, folder))
    text = study_page(subjects, found, drawn, repetitions, given)
    write_files({path: lambda place: place.write_text(text, encoding="utf-8")}, overwrite=overwrite)
    shutil.rmtree(store.folder, ignore_errors=True)
    return Study(subjects, found, path)


def _draw(subjects: Sequence[Subject], folder: Path) -> Iterator[Figure]:
    """Write every figure with its numbers, and yield it for the page."""
    for one in drawings(subjects):
        for suffix, table in one.data.items():
            _write_csv(folder / "data" / f"{one.name}{suffix}.csv", table)
        (folder / "figures").mkdir(parents=True, exist_ok=True)
        svg, _ = save(one.chart, folder / "figures" / one.name, overwrite=True)
        yield Figure(one.name, one.section, one.words, svg.read_text(encoding="utf-8"))


def _write_csv(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_files({path: lambda place: pyarrow.csv.write_csv(table, place)}, overwrite=True)
