"""The whole path of a curator, in six commands: private sizes, advice with a plan, check, inspect, release, explain."""

import json
import re

import pytest
from helpers.commands import run_command
from helpers.counties import cattle_counties

import slowscale as ss


def cattle(folder):
    """Simulated counties with cattle, with the states as public cells."""
    frame = cattle_counties().dropna()[["state", "cattle"]].astype({"cattle": "int64"})
    frame.to_parquet(folder / "records.parquet")
    return "cattle", sorted(frame.state.unique()), 2_000


def establishments(folder):
    """Simulated establishments, with the last digit of the county as the public cell."""
    table = ss.datasets.establishments(20_000).to_pandas()
    table["state"] = "S" + (table.county.astype(str).str[-1])
    table[["state", "payann"]].to_parquet(folder / "records.parquet")
    return "payann", sorted(table.state.unique()), 100


def run(folder, *arguments):
    done = run_command(arguments, folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("prepare", [cattle, establishments])
def test_from_records_to_an_explained_release_in_six_commands(tmp_path, prepare):
    column, cells, half = prepare(tmp_path)
    data = "records.parquet"
    # 1. Sizes, privately.
    asked = ("--column", column, "--at", "0.5,0.9", "--loss", "0.01", "--grid", "1:1e9:20", "--ledger", "one.ledger")
    sizes = json.loads(run(tmp_path, "quantiles", data, *asked, "--yes", "--json"))["quantiles"]
    records = ",".join(f"{name}={size}" for name, size in sizes.items()) + ",largest=2e6"
    # 2. Advice, with a plan.
    wanted = ("--records", records, "--interval", half, "--plan", "plan.toml", "--data", data, "--column", column)
    advice = json.loads(run(tmp_path, "advise", *wanted, "--json"))
    plan = tmp_path / "plan.toml"
    keys = f"keys = {{ cross = {{ state = {json.dumps(cells)} }} }}\n"
    text = plan.read_text(encoding="utf-8").replace('"records.ledger"', '"one.ledger"')
    plan.write_text(re.sub(r"# keys = .*\n", keys, text), encoding="utf-8")
    # 3. and 4. Check, and look: nothing is charged.
    charges = len(ss.Ledger(tmp_path / "one.ledger").account.charges)
    checked = run(tmp_path, "check", "plan.toml")
    assert "CONFIDENTIAL" in run(tmp_path, "inspect", "plan.toml")
    assert len(ss.Ledger(tmp_path / "one.ledger").account.charges) == charges == 1
    # 5. and 6. Release and explain.
    run(tmp_path, "release", "plan.toml", "--yes")
    release = ss.read_release(tmp_path / "published")
    explained = run(tmp_path, "explain", "published", "--value", f"{column}=2e6")
    assert len(ss.Ledger(tmp_path / "one.ledger").account.charges) == 2
    # What was advised is what is published and charged.
    (best,) = [one for one in advice["candidates"] if one["mechanism"] == advice["best"]]
    table = release.to_pandas()
    widths = (table[f"{column}_high"] - table[f"{column}_low"]) / 2
    assert widths.between(0.99 * half - 1, 1.01 * half + 1).all()
    for name, size in {**sizes, "largest": 2e6}.items():
        assert 0.999 <= release.policy({column: size}) / best["tight_losses"][name] <= 1.011
    assert "With one false alarm in twenty, the presence of this record is detected at most" in explained
    assert "closed-form" not in checked
    assert (tmp_path / "published" / "report.html").exists()
