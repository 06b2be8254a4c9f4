"""What a newcomer sees first: the noise of the demonstration is advised and protects, and README has its numbers."""

import json
import tomllib
from importlib.resources import files

import numpy as np
import pytest
from helpers.errors import refused
from helpers.pages import unaccounted

import slowscale as ss
from slowscale.cli.demo import LEDGER, demo
from slowscale.core.numbers import ERROR_DIGITS, format_number, rounded, share
from slowscale.plan import read_plan
from slowscale.release.columns import explain_columns

DEMO = files("slowscale.datasets") / "demo"


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    for file in DEMO.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return read_plan(folder / "plan.toml")


@pytest.fixture(scope="module")
def mechanisms(plan):
    return {column.name: column.mechanism for column in plan.columns["cells"]}


def test_the_demonstration_hides_small_establishments_and_the_values_of_giants(plan):
    found = {size.name: explain_columns(plan.columns["cells"], size) for size in plan.sizes}
    assert found["first-quartile establishment"].guessed <= 0.55
    assert found["median establishment"].guessed <= 0.6
    assert found["first-quartile establishment"].texts["within"] == "not within ± 100 %"
    assert found["large establishment"].within >= 0.1
    assert found["largest establishment"].within >= 0.1
    assert found["largest establishment"].loss > 5  # its presence is no secret, and the report says so


def test_the_demonstration_publishes_for_readers(tmp_path, capsys):
    """Titles, units, names and margins, and a report that opens with the stated sizes and the errors."""
    demo(tmp_path / "demo")
    lines = capsys.readouterr().out.replace(f"{tmp_path}/", "").splitlines()
    assert max(map(len, lines)) <= 100
    assert len(lines) == 7
    published = tmp_path / "demo" / "published"
    package = json.loads((published / "establishments.datapackage.json").read_text(encoding="utf-8"))
    assert [one["name"] for one in package["resources"]] == ["cells", "industries", "sectors", "total"]
    fields = {field["name"]: field for field in package["resources"][0]["schema"]["fields"]}
    assert fields["payann_high"]["unit"] == "thousand USD"
    assert fields["naics3_name"]["title"] == "Industry, name"
    page = (published / "report.html").read_text(encoding="utf-8")
    first = page[: page.index("<main")]
    for words in ("first-quartile establishment", "median establishment", "largest establishment", "no secret"):
        assert words in first
    assert "At most 1 in 1,000 is off by more than" in first
    release = ss.read_release(published)
    found = release.explain({"emp": 2, "payann": 106})
    assert f"right at most {share(found.guessed)} of the time" in lines[1]
    assert set(release.facts.tables) == {"cells", "industries", "sectors", "total"}


def test_the_demonstration_starts_anew_after_it_was_killed(tmp_path):
    """A killed process leaves a journal beside the ledger. Links are replaced, and files of others stay."""
    kept = [tmp_path / name for name in ("elsewhere.toml", "notes.txt")]
    for file in kept:
        file.write_text("kept")
    (tmp_path / "plan.toml").symlink_to(kept[0])
    ss.Ledger(tmp_path / LEDGER, {"emp": ss.Gaussian(sigma=1).policy}, dataset="simulated-establishments").close()
    (tmp_path / f"{LEDGER}-journal").write_bytes(b"x" * 600)
    demo(tmp_path, overwrite=True)
    assert [file.read_text() for file in kept] == ["kept", "kept"]
    assert not (tmp_path / "plan.toml").is_symlink()
    assert (tmp_path / "published" / "report.html").exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_the_demonstration_removes_no_other_ledger(tmp_path, overwrite):
    with ss.Ledger(tmp_path / LEDGER, {"emp": ss.Gaussian(sigma=1).policy}, dataset="farms"):
        pass
    before = (tmp_path / LEDGER).read_bytes()
    with refused(ss.ParameterError, str(tmp_path) + "/" + LEDGER, code="exists"):
        demo(tmp_path, overwrite=overwrite)
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [before]


@pytest.mark.parametrize(("name", "overwrite"), [("published", False), ("cells.csv", True)])
def test_the_demonstration_writes_nothing_where_it_is_refused(tmp_path, name, overwrite):
    (tmp_path / name).mkdir()
    with refused(ss.ParameterError, str(tmp_path) + "/" + name, code="exists"):
        demo(tmp_path, overwrite=overwrite)
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_the_noise_of_the_demonstration_is_what_is_advised(mechanisms):
    wishes = tomllib.loads((DEMO / "columns.toml").read_text(encoding="utf-8"))
    assert wishes.keys() == mechanisms.keys()
    for name, wished in wishes.items():
        best = ss.advise(**wished).best
        assert type(best) is type(mechanisms[name])
        assert best.noise == mechanisms[name].noise
        assert mechanisms[name].sigma == pytest.approx(best.sigma, rel=0.005)
        assert mechanisms[name].a == pytest.approx(best.a, rel=0.005)


def test_the_readme(mechanisms):
    advised = mechanisms["payann"]
    small = advised.prediction_interval(0)[1]
    gaussian = ss.Gaussian.calibrate(interval=small)
    records = ss.datasets.establishments().to_pandas()
    cells = records.groupby(["county", "naics3"])["payann"].sum()
    top = gaussian.sigma * np.sqrt(2 * advised.tight_loss(1.6e6))  # where a clipped record has the largest loss
    clipped = records.assign(payann=records["payann"].clip(upper=top)).groupby(["county", "naics3"])["payann"].sum()
    large = cells > 1e6

    def known(mechanism, size):
        low, high = mechanism.prediction_interval(size)
        return f"±{100 * (high - low) / 2 / size:.2g} %"

    def within(mechanism, size):
        # Rounded up, as in the report.
        low, high = mechanism.prediction_interval(size)
        error = 100 * max(size - low, high - size) / size
        return f"±{format_number(float(rounded(rounded(error, ERROR_DIGITS), 2, 1)))} %"

    def guessed(mechanism):
        return share(ss.attacker(mechanism, 106).posterior(0.5).correct)

    def row(name, mechanism):
        return f"| {name} | {within(mechanism, 1e6)} | unbiased | {guessed(mechanism)} | {known(mechanism, 1.6e6)} |"

    rows = [
        row("advised: log, Laplace noise", advised),
        row("Gaussian noise", gaussian),
        f"| clipping at {format_number(top)}, then Gaussian noise "
        f"| {-100 * np.median(clipped[large] / cells[large] - 1):.0f} % too small "
        f"| {100 * (1 - clipped.sum() / cells.sum()):.0f} % too small | {guessed(gaussian)} | cut off |",
    ]
    computed = [
        *rows,
        f"Clipping at {format_number(top)} gives the largest record",
        f"{len(records):,} simulated establishments in {len(cells):,} cells; 95 % of cells with a sum near 0 are "
        "within "
        f"±{float(f'{small:.2g}'):,.0f}",
    ]
    given = (
        "10,000 times larger",
        "Python 3.11",
        "116 times as fast as OpenDP and 374 times as fast as Tumult Analytics",  # bench/peers_release.py
        # The noise is secret.
        "0 IA 4158077 136600.0 3871618 4450204",
        "1 NE 9067825 163500.0 8723441 9415938",
        "2 NV 995260 98340.0 793183 1209554",
        "3 TX 18204889 192000.0 17799543 18612798",
    )
    assert unaccounted("README.md", computed, given) == []
