"""A whole study: its files, its page, and what happens when it is interrupted or started twice."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from slowscale.errors import ParameterError
from slowscale.study.attributes import given_attributes
from slowscale.study.errors import Experiment
from slowscale.study.run import run_study


@pytest.fixture(scope="module")
def attributes(tmp_path_factory):
    generator = np.random.default_rng(7)
    path = tmp_path_factory.mktemp("data") / "farms.parquet"
    table = {"state": generator.integers(0, 12, 600), "cattle": np.rint(np.exp(generator.normal(4, 2, 600)))}
    pyarrow.parquet.write_table(pa.table(table), path)
    return given_attributes(path, ["cattle"], ["state"])


@pytest.fixture(scope="module")
def study(attributes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    return run_study(folder, attributes, repetitions=5, losses=(10.0,), given="farms.parquet")


def test_every_figure_has_its_pictures_and_its_numbers(study):
    folder = study.page.parent
    names = {path.stem for path in (folder / "figures").glob("*.svg")}
    assert names == {"gains-10", "distributions", "loss-cdfs", "relative-errors", "stds", "policies"}
    assert {path.stem for path in (folder / "figures").glob("*.png")} == names
    assert names <= {path.stem for path in (folder / "data").glob("*.csv")}
    numbers = pyarrow.csv.read_csv(folder / "data" / "relative-errors.csv")
    assert set(numbers["quintile"].to_pylist()) == {1, 2, 3, 4, 5}


def test_the_page_shows_every_figure_and_every_claim(study):
    page = study.page.read_text(encoding="utf-8")
    assert page.count("<figure") == 6
    assert f"{len(study.claims)} claims" in page
    assert "nan" not in re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)


def test_a_page_about_own_data_says_that_it_is_confidential(study):
    assert "CONFIDENTIAL" in study.page.read_text(encoding="utf-8")


def test_a_finished_study_is_not_replaced_by_accident(study, attributes):
    with pytest.raises(ParameterError, match="exists: choose another folder"):
        run_study(study.page.parent, attributes, repetitions=5, losses=(10.0,))


def test_a_file_is_not_a_folder(tmp_path, attributes):
    (tmp_path / "taken").write_text("")
    with pytest.raises(ParameterError, match="is a file"):
        run_study(tmp_path / "taken", attributes)


def test_the_same_study_gives_the_same_page(study, attributes, tmp_path):
    again = run_study(tmp_path / "again", attributes, repetitions=5, losses=(10.0,), given="farms.parquet")
    assert again.page.read_text(encoding="utf-8") == study.page.read_text(encoding="utf-8")


def test_an_interrupted_study_continues(attributes, tmp_path, monkeypatch):
    done = []
    run = Experiment.run

    def interrupted(self):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(self.key)
        return run(self)

    monkeypatch.setattr("slowscale.study.run.drawings", lambda subjects: [])
    monkeypatch.setattr(Experiment, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_study(tmp_path, attributes, repetitions=5, losses=())
    assert not (tmp_path / "study.html").exists()
    monkeypatch.setattr(Experiment, "run", lambda self: (done.append(self.key), run(self))[1])
    run_study(tmp_path, attributes, repetitions=5, losses=())
    assert len(done) == len(set(done)) == 5
    assert not (tmp_path / "unfinished").exists()
