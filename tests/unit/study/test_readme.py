"""The table of the README is what the study measures."""

import re
from pathlib import Path

import pytest

from slowscale.study.attributes import paper_attributes
from slowscale.study.errors import Store
from slowscale.study.gains import CLIPPED, MATCHED
from slowscale.study.results import carry_out, plan_experiments

ROOT = Path(__file__).parents[3]
ROWS = {
    "exponential polylog, scale matched": MATCHED,
    "generalized Gaussian ½": "generalized Gaussian 1/2",
    "fourth root": "fourth root",
    "Gaussian noise": "Gaussian",
    "unit splitting": "unit splitting",
    "clipping": CLIPPED,
}


@pytest.fixture(scope="module")
def gains(tmp_path_factory):
    payroll = next(one for one in paper_attributes() if one.name == "PAYANN")
    plan = plan_experiments(payroll, repetitions=20, losses=(50.0,))
    return carry_out(plan, Store(tmp_path_factory.mktemp("parts")), lambda draws: None).gains[0]


@pytest.mark.parametrize("start", ROWS)
def test_a_row_of_the_readme(gains, start):
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    [line] = [line for line in lines if line.startswith(f"| {start}")]
    printed = [float(number.replace(",", "")) / 100 for number in re.findall(r"\| ([\d.,]+) %", line)][:4]
    sizes = [one.words for one in gains.classes]
    first = sizes.index("1,000 to 10,000")
    # 20 releases of at least 71 cells: a median has a standard error of about 4 %. The bits are seeded.
    assert gains.medians[ROWS[start]][first : first + 4] == pytest.approx(printed, rel=0.1)


def test_the_loss_and_the_bias_of_the_readme(gains):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = {one.name: one for one in gains.contenders}
    assert f"| {found[MATCHED].median_loss:.3g} |" in text
    assert f"−{-100 * found[CLIPPED].total_bias:.3g} %" in text


def test_the_best_thresholds_of_the_readme(gains):
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    [line] = [line for line in lines if line.startswith("| the same, best threshold")]
    printed = [float(number) / 100 for number in re.findall(r"\| ([\d.]+) %", line)]
    assert gains.clipped_by_size[-4:] == pytest.approx(printed, rel=0.1)
