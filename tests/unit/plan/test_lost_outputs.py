"""Plans whose outputs would be lost after the charge, or would publish what is in the records, are refused before."""

import errno
from pathlib import Path

import pyarrow as pa
import pytest
from helpers.errors import refused

import slowscale as ss
from slowscale.core.locks import locked
from slowscale.plan import check_plan, finish_plan, read_plan, run_plan
from slowscale.release.stored import FOLDER_LOCK

PLAN = """
[data]
path = "d.csv"
[ledger]
path = "l.ledger"
{more}
[tables.{table}]
keys = {{ cross = {{ state = ["IA", "TX"] }} }}
[tables.{table}.sums.emp]
mechanism = "gaussian"
sigma = 5
[output]
folder = "{folder}"
formats = ["csv"]
{output}
"""


@pytest.fixture
def plan_of(tmp_path):
    (tmp_path / "d.csv").write_text("state,emp,firm\nIA,1,secretA\nTX,2,secretB\n", encoding="utf-8")

    def make(folder="out", table="cells", output="", more=""):
        file = tmp_path / "plan.toml"
        file.write_text(PLAN.format(folder=folder, table=table, output=output, more=more), encoding="utf-8")
        return read_plan(file)

    return make


def both_refuse(plan, tmp_path, code, *path):
    for use in (check_plan, run_plan):
        with refused(ss.ParameterError, code=code, path=path):
            use(plan)
    assert not (tmp_path / "l.ledger").exists()


@pytest.mark.parametrize("folder", ["l.ledger", "l.ledger-journal", "l.ledger-wal", "l.ledger-shm"])
def test_the_folder_is_not_a_file_of_the_ledger(plan_of, tmp_path, folder):
    both_refuse(plan_of(folder), tmp_path, "conflict", "output", "folder")


def test_the_folder_is_not_the_report(plan_of, tmp_path):
    both_refuse(plan_of("o.html", output='report = "o.html"'), tmp_path, "conflict", "output", "report")


@pytest.mark.parametrize("length", [245, 300])
def test_names_that_are_too_long_in_a_new_folder(plan_of, tmp_path, length):
    both_refuse(plan_of(table="c" * length), tmp_path, "unwritable", "output", "folder")


def test_a_long_name_of_a_report_in_a_new_folder(plan_of, tmp_path):
    both_refuse(plan_of(output=f'report = "out/{"r" * 249}.html"'), tmp_path, "unwritable", "output", "report")


def test_one_release_at_a_time_writes_to_a_folder(plan_of, tmp_path):
    plan = plan_of()
    folder = Path(plan.output.folder)
    folder.mkdir(exist_ok=True)
    with locked(folder / FOLDER_LOCK) as taken:
        assert taken
        with refused(ss.ParameterError, code="busy"):
            run_plan(plan)
    assert not (tmp_path / "l.ledger").exists()
    run_plan(plan)
    assert [file.name for file in folder.iterdir() if file.name.startswith(".")] == []


@pytest.mark.parametrize("make", [Path.mkdir, lambda place: place.symlink_to("elsewhere")])
def test_nothing_is_released_without_a_lock_that_the_folder_could_have(plan_of, tmp_path, make):
    plan = plan_of()
    folder = Path(plan.output.folder)
    folder.mkdir(exist_ok=True)
    make(folder / FOLDER_LOCK)
    with refused(ss.ParameterError, code="unwritable", path=("output", "folder")):
        run_plan(plan)
    assert not (tmp_path / "l.ledger").exists()
    assert not (folder / "elsewhere").exists()


def test_a_file_system_without_locks_goes_without(plan_of, monkeypatch):
    def failing(path, **_):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr("slowscale.release.stored.locked", failing)
    assert run_plan(plan_of())


def test_levels_are_not_read_from_the_records(plan_of, tmp_path):
    more = '[[hierarchies]]\ncolumn = "state"\nfile = "d.csv"\nlevels = ["firm"]'
    more += '\n[tables.firms]\nrollup = "cells"\nby = ["firm"]'
    both_refuse(plan_of(more=more), tmp_path, "not-public", "hierarchies", 0)


def test_code_lists_are_not_read_from_the_records(plan_of, tmp_path):
    more = '[publication]\ntitle = "T"\nsource = "S"\nresearch = "pub.csv"\ncodes = { state = "d.csv" }'
    both_refuse(plan_of(more=more), tmp_path, "not-public", "publication")


def test_a_class_that_is_not_registered_is_refused(tmp_path):
    """It would be charged by the policy that it states, or read back as the class that it derives from."""

    class Other(ss.Gaussian):
        @property
        def policy(self):
            return ss.Gaussian(sigma=1e9).policy

    session = ss.Session(pa.table({"x": [1]}), ledger=tmp_path / "l.ledger")
    for options in ({"columns": {"x": Other(sigma=1e-3)}}, {"columns": {}, "count": Other(sigma=1)}):
        with refused(ss.ParameterTypeError):
            session.sum(**options)


def test_noise_of_nearly_no_width_is_explained():
    session = ss.Session(pa.table({"x": [1], "y": [2]}))
    session.sum({"x": ss.Gaussian(sigma=1e-150), "y": ss.Gaussian(sigma=1e-150)})
    assert "100 %" in str(session.spent)


@pytest.mark.parametrize("noise", [ss.Gaussian(sigma=1e160), ss.GeneralizedGaussian(sigma=1, p=0.01)])
def test_roll_ups_of_huge_noise(noise):
    keys = ss.Keys.cross({"g": ["a", "b"]})
    found = ss.Session(pa.table({"g": ["a"], "x": [1]})).sum({"x": noise}, keys=keys).rollup()
    assert found.table.num_rows == 1


@pytest.mark.parametrize("damaged", ["cells.csv.json", "cells.parquet", "cells.csv"])
@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b""),
                                    lambda path: path.write_bytes(path.read_bytes()[:40])])  # fmt: skip
def test_a_release_is_finished_from_the_file_that_can_be_read(plan_of, tmp_path, damaged, damage):
    plan = plan_of()
    plan = plan.model_copy(update={"output": plan.output.model_copy(update={"formats": ["parquet", "csv"]})})
    before = run_plan(plan)[0]["cells"].table
    damage(tmp_path / "out" / damaged)
    found, _ = finish_plan(plan, overwrite=True)
    assert found["cells"].table.equals(before)
    for name in ("cells.parquet", "cells.csv"):
        assert ss.read_release(tmp_path / "out" / name)["cells"].table.to_pydict() == before.to_pydict()


@pytest.mark.parametrize(
    ("folder", "more"),
    [("a\\u0000b", ""), ("out", '[[hierarchies]]\ncolumn = "state"\nfile = "a\\u0000"\nlevels = ["x"]')],
)
def test_null_characters(plan_of, folder, more):
    with refused(ss.PlanError, code="plan") as caught:
        plan_of(folder, more=more)
    assert caught.value.mistakes[0].path == (("hierarchies", 0, "file") if more else ("output", "folder"))


def test_huge_integers(plan_of):
    with refused(ss.PlanError, code="syntax"):
        plan_of(more=f"x = {'1' * 5000}")


def test_a_folder_with_files_of_two_releases(tmp_path):
    session = ss.Session(pa.table({"x": [1]}))
    request = {"a": ss.Sums({"x": ss.Gaussian(sigma=1)}), "b": ss.Sums({"x": ss.Gaussian(sigma=1)})}
    session.release(request).to_csv(tmp_path / "both")
    session.release(request).to_parquet(tmp_path / "both")
    with refused(ss.EngineError):
        ss.read_release(tmp_path / "both")
    (tmp_path / "both" / "a.csv.json").unlink()  # a CSV file without facts is for readers
    (tmp_path / "both" / "b.csv.json").unlink()
    assert list(ss.read_release(tmp_path / "both")) == ["a", "b"]


def test_no_advice_on_a_count_beside_quantiles():
    """A count that would fit alone does not fit with the quantiles that were requested beside it."""
    session = ss.Session(pa.table({"x": [1]}), caps={"count": ss.Gaussian(sigma=1).policy})
    with pytest.raises(ss.CapError) as refused:
        session.release({"n": ss.Sums({}, count=ss.Gaussian(sigma=1)), "q": ss.Quantiles("x", loss=0.1)})
    assert refused.value.fits is None
