"""The commands for readers of published files: `growth`, `difference` and `share`."""

import io
import json

import pandas as pd
import pytest
from helpers.bitsources import Recorded
from helpers.commands import run_command

import slowscale as ss

TOWNS = ["01003", "01005", "=1+1"]


def run(*arguments, folder, code=0):
    done = run_command(arguments, folder)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def rows(done):
    return pd.read_csv(io.StringIO(done.stdout), dtype={"town": str})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two releases of one table in files, and a folder with a release of several tables."""
    path = tmp_path_factory.mktemp("published")
    labels = [(town, year) for town in TOWNS for year in (2023, 2024)]
    keys = pd.DataFrame(labels, columns=["town", "year"])
    frame = keys.assign(x=[500, 600, 700, 800, 900, 1000])
    cells = ss.Sums({"x": ss.Gaussian(sigma=5)}, keys=ss.Keys.from_frame(keys), count=ss.Gaussian(sigma=1))
    one, other = (ss.Session(frame, bits=Recorded(seed)).release(cells) for seed in (1, 2))
    one.to_csv(path / "later.csv")
    other.to_parquet(path / "earlier.parquet")
    tables = {"cells": cells, "years": ss.Rollup("cells", by=["year"])}
    ss.Session(frame, bits=Recorded(3)).release(ss.Request(tables)).to_csv(path / "several")
    return path


@pytest.fixture(scope="module")
def releases(folder):
    return ss.read_release(folder / "later.csv"), ss.read_release(folder / "earlier.parquet")


@pytest.mark.parametrize("kind", ["growth", "difference"])
def test_two_files_are_compared(kind, folder, releases):
    done = run(kind, "later.csv", "earlier.parquet", "--level", "0.9", folder=folder)
    expected = getattr(releases[0], kind)(releases[1], level=0.9)
    assert done.stdout == expected.csv_text()
    assert done.stderr.startswith("note: NOT PRIVATE")
    assert rows(done)["town"].tolist()[:3] == ["01003", "01003", "01005"]


def test_rows_of_one_file_are_compared(folder, releases):
    done = run("growth", "later.csv", "--from", "year=2023", "--column", "x", folder=folder)
    assert done.stdout == releases[0].growth({"year": 2023}, columns="x").csv_text()
    done = run("difference", "later.csv", "--from", "year=2023", "--from", "town=01003", folder=folder)
    assert len(rows(done)) == 5


def test_shares(folder, releases):
    assert run("share", "later.csv", folder=folder).stdout == releases[0].share().csv_text()
    done = run("share", "later.csv", "--of", "year", "--column", "x", folder=folder)
    assert done.stdout == releases[0].share("year", columns="x").csv_text()
    several = ss.read_release(folder / "several")
    done = run("share", "several", "--table", "cells", "--of-table", "years", folder=folder)
    assert done.stdout == several["cells"].share("year").csv_text()


def test_json_has_null_in_place_of_ends_that_do_not_exist(folder, releases):
    done = run("growth", "later.csv", "--from", "year=2023", "--json", "--level", "0.999999", folder=folder)
    found = json.loads(done.stdout)
    assert found["kind"] == "growth"
    assert found["intervals"] == {"x": "exact", "count": "exact"}
    assert found["rows"][0]["count_growth_high"] is None
    assert found["rows"][0]["town"] == "01003"


def test_files_are_written_whole_and_replaced_only_on_request(folder, releases, tmp_path):
    target = tmp_path / "growth.csv"
    arguments = ("growth", folder / "later.csv", folder / "earlier.parquet", "--output", target)
    assert run(*arguments, folder=tmp_path).stdout == f"wrote {target}\n"
    assert target.read_text() == releases[0].growth(releases[1]).csv_text()
    assert "--overwrite" in run(*arguments, folder=tmp_path, code=2).stderr
    run(*arguments, "--overwrite", folder=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("growth", "later.csv"), "EARLIER"),
        (("growth", "later.csv", "earlier.parquet", "--from", "year=2023"), "EARLIER"),
        (("growth", "later.csv", "later.csv"), "EARLIER"),
        (("growth", "later.csv", "--from", "year"), "--from"),
        (("growth", "later.csv", "--from", "county=1"), "--from"),
        (("growth", "later.csv", "--from", "year=soon"), "--from"),
        (("growth", "later.csv", "--from", "year=1999"), "--from"),
        (("difference", "later.csv", "earlier.parquet", "--column", "y"), "--column"),
        (("difference", "later.csv", "earlier.parquet", "--level", "95"), "--level"),
        (("share", "later.csv", "--of", "county"), "--of"),
        (("share", "later.csv", "--table", "none"), "--table"),
        (("share", "several"), "several has 2 tables of sums (cells, years); name one with --table"),
        (("share", "several", "--table", "cells", "--of-table", "none"), "--of-table"),
        (("share", "several", "--table", "cells", "--of-table", "cells"), "--of-table"),
        (("share", "several", "--table", "cells", "--of-table", "years", "--of", "year"), "--of"),
        (("share", "none.csv"), "none.csv"),
    ],
)
def test_mistakes_name_the_option(arguments, option, folder):
    assert option in run(*arguments, folder=folder, code=2).stderr


def test_a_folder_with_files_of_several_releases_is_named(folder):
    assert "later.csv, but not table.csv" in run("share", ".", folder=folder, code=3).stderr
