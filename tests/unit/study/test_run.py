"""A whole study: its files, its page, and what happens when it is interrupted or started twice."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from helpers.errors import refused

from slowscale.core.errors import ParameterError
from slowscale.study.attributes import given_attributes
from slowscale.study.experiments import Experiment
from slowscale.study.run import PAPER_FIGURES, _Output, paper_figure, run_study


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
    assert names == {
        *("gains-10", "distributions", "loss-cdfs", "loss-tails", "relative-errors", "stds", "policies"),
        "value-policies",
    }
    assert {path.stem for path in (folder / "figures").glob("*.png")} == names
    numbers = {path.stem for path in (folder / "data").glob("*.csv")}
    assert numbers == names | {"distributions-quartiles", "claims", "records", "parameters", "tail-weights"}
    numbers = pyarrow.csv.read_csv(folder / "data" / "relative-errors.csv")
    assert set(numbers["quintile"].to_pylist()) == {1, 2, 3, 4, 5}


def test_the_page_shows_every_figure_and_every_claim(study):
    page = study.page.read_text(encoding="utf-8")
    assert page.count("<figure") == 8
    assert f"{len(study.claims)} claims" in page
    assert "nan" not in re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)


def test_a_figure_says_which_one_of_the_paper_it_is():
    source = "Figure 4 (ecdf-all) of the paper"
    assert [paper_figure(name) for name in ("loss-cdfs", "loss-cdfs-printed-d", "gains-10")] == [
        f"{source}.",
        f"{source}, with the printed d.",
        "",
    ]
    assert sorted(int(name.split()[1]) for name in PAPER_FIGURES.values()) == list(range(1, 13))


def test_a_page_about_own_data_says_that_it_is_confidential(study):
    assert "CONFIDENTIAL" in study.page.read_text(encoding="utf-8")


def test_a_finished_study_is_not_replaced_by_accident(study, attributes):
    with refused(ParameterError, str(study.page), code="exists"):
        run_study(study.page.parent, attributes, repetitions=5, losses=(10.0,))


def test_a_file_is_not_a_folder(tmp_path, attributes):
    (tmp_path / "taken").write_text("")
    with refused(ParameterError, str(tmp_path / "taken"), code="not-a-folder"):
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

    monkeypatch.setattr("slowscale.study.run.drawings", lambda *subjects: [])
    monkeypatch.setattr(Experiment, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_study(tmp_path, attributes, repetitions=5, losses=())
    assert not (tmp_path / "study.html").exists()
    monkeypatch.setattr(Experiment, "run", lambda self: (done.append(self.key), run(self))[1])
    run_study(tmp_path, attributes, repetitions=5, losses=())
    assert len(done) == len(set(done)) == 5
    assert not (tmp_path / "unfinished").exists()


def test_files_about_own_data_are_for_their_owner_only(study):
    folder = study.page.parent
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != "files.txt"]
    assert len(paths) > 10
    assert {path.stat().st_mode & 0o077 for path in paths} == {0}


@pytest.fixture
def undrawn(monkeypatch):
    monkeypatch.setattr("slowscale.study.run.drawings", lambda *subjects: [])


@pytest.mark.usefixtures("undrawn")
class TestFolders:
    """What happens to files that are there already."""

    def test_files_of_others_stay(self, attributes, tmp_path):
        (tmp_path / "unfinished").mkdir()
        mine = [tmp_path / "unfinished" / "thesis.txt", tmp_path / "figures.txt"]
        for path in mine:
            path.write_text("mine")
        run_study(tmp_path, attributes, repetitions=1, losses=())
        run_study(tmp_path, attributes, repetitions=1, losses=(), overwrite=True)
        assert [path.read_text() for path in mine] == ["mine", "mine"]

    def test_files_of_an_earlier_study_go(self, attributes, tmp_path):
        run_study(tmp_path, attributes, repetitions=1, losses=())
        listed = tmp_path / "files.txt"
        (tmp_path / "data" / "gains-7.csv").write_text("confidential")
        listed.write_text(listed.read_text() + "data/gains-7.csv\n../outside.txt\n")
        (tmp_path.parent / "outside.txt").write_text("mine")
        run_study(tmp_path, attributes, repetitions=1, losses=(), overwrite=True)
        assert not (tmp_path / "data" / "gains-7.csv").exists()
        assert (tmp_path.parent / "outside.txt").read_text() == "mine"

    def test_a_file_that_might_be_replaced_is_named(self, attributes, tmp_path):
        (tmp_path / "figures").mkdir()
        (tmp_path / "figures" / "stds.svg").write_text("mine")
        with refused(ParameterError, str(tmp_path / "figures" / "stds.svg"), code="foreign-file"):
            run_study(tmp_path, attributes, repetitions=1, losses=())
        assert (tmp_path / "figures" / "stds.svg").read_text() == "mine"

    @pytest.mark.parametrize("name", ["figures", "data", "unfinished"])
    def test_a_file_in_the_place_of_a_folder(self, attributes, tmp_path, name):
        (tmp_path / name).write_text("")
        with refused(ParameterError, str(tmp_path / name), code="not-a-folder"):
            run_study(tmp_path, attributes, repetitions=1, losses=())

    def test_a_folder_that_cannot_be_made(self, attributes, tmp_path):
        (tmp_path / "file").write_text("")
        with refused(ParameterError, code="unwritable"):
            run_study(tmp_path / "file" / "study", attributes, repetitions=1, losses=())

    def test_a_second_study_in_the_same_folder_is_refused(self, attributes, tmp_path):
        output = _Output(tmp_path, False)
        output.check(False)
        with output.locked(), refused(ParameterError, str(tmp_path), code="busy"):
            run_study(tmp_path, attributes, repetitions=1, losses=())
        run_study(tmp_path, attributes, repetitions=1, losses=())

    @pytest.mark.parametrize("loss", [0.0, -1.0, 0.01, 1e5, float("nan")])
    def test_a_loss_out_of_range(self, attributes, tmp_path, loss):
        with refused(ParameterError, "loss", code="value"):
            run_study(tmp_path, attributes, repetitions=1, losses=(5.0, loss))

    @pytest.mark.parametrize("loss", [0.1, 1e4])
    def test_extreme_losses(self, attributes, tmp_path, loss):
        study = run_study(tmp_path, attributes, repetitions=3, losses=(loss,))
        [gains] = study.subjects[0].gains
        assert all(np.isfinite(medians).all() and (medians > 0).all() for medians in gains.medians.values())
