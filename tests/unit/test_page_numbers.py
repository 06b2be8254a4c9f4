"""Every measured number in the prose of the pages is computed here, or declared as given (see `helpers.pages`)."""

import math
import re

import numpy as np
import pandas as pd
import pytest
from helpers.pages import ROOT, numbers, path_of, unaccounted
from scipy import stats

import slowscale as ss
from slowscale.accounting import Loss, explain
from slowscale.core.numbers import format_number
from slowscale.noise.sums import Noises, mixed_half_width
from slowscale.noise.tight_curve import STEP_SHARE
from slowscale.release.quantiles import Ranks
from slowscale.release.request import Quantiles
from slowscale.study.tables import density_mechanisms

ELSEWHERE = {
    "README.md": "tests/unit/test_first_hour.py",
    "study.md": "tests/unit/study/test_pages.py",
    "commands.md": "tests/unit/test_docs.py",
    "plan-keys.md": "tests/unit/test_docs.py",
    "coverage.md": "tests/statistical/test_coverage.py",
    "sql.md": "tests/unit/data/test_sql.py",
}
CODES = ("01001", "1001")  # examples of codes with leading zeros
GIVEN = {
    "choosing.md": (
        "shapes from 1.5 to 2.2",
        "d from 3.5 to 5",
        "shape 1.5 to 2.2",
        "up to 1.3 % less",  # tests/unit/mechanisms/test_calibration.py
    ),
    # Measured with `make bundle` and in an environment, on the day and the platform that the page states.
    "install.md": (
        "take 2.3 GB of disk",
        "| 43 | 204 MB | 750 MB |",
        "| 1 | 0.2 MB | 2 MB |",
        "| 2 | 4 MB | 14 MB |",
        "| 2 | 5.5 MB | 22 MB |",
        "| 6 | 443 MB | 520 MB |",
        "| 1 | 7.4 MB | 22 MB |",
        "| 8 | 0.6 MB | 5 MB |",
        "Python 3.11",
        "Python 3.12, 3.13 and 3.14",
        "SHA-256",
        "than 3.11",
    ),
    "formats.md": ("SHA-256",),
    # Measured with `python bench/bench_cells.py`, on the day that the page states; and constants of the code.
    "howto/large.md": (
        "the 4,096 cells around it",
        "64 buckets of 4,096 cells",
        "groups of 262,144 rows",
        "| 1,000,000 | 1.7 s | 1,690 ns | 530 MB | none | 15 MB | 0.2 s |",
        "| 9,998,244 | 7.4 s | 740 ns | 1,308 MB | 223 MB | 151 MB | 1.5 s |",
        "| 29,997,529 | 22.4 s | 745 ns | 1,409 MB | 2,113 MB | 479 MB | 5.3 s |",
        "| 100,000,000 | 81.5 s | 815 ns | 10,321 MB | 4,347 MB | 1,602 MB | 18.9 s |",
    ),
    "howto/own-sums.md": ("SHA-256",),
    "howto/command-line.md": ("a record of size 106", "130 interrupted"),
    "lawyers.md": ("annual payroll of 106,000",),
    "paper.md": (
        # Numbers that the paper prints.
        "not 0.145",
        "not 17,387",
        "not 5,492",
        "the text has 35,556 values and the table 5,926",
        "With d = 0.145 and a = e",
        # tests/unit/study/test_pages.py computes these.
        "ahead for 63 to 69 % of the records",
        "from a loss of 47.3 on",
    ),
    "publishing.md": ("often take 15 %", "pysdmx 1.10", *CODES),
    "releasing.md": (
        *CODES,
        "SHA-256",
        "for instance, p10: 2.82, p50: 112, p90: 1,580",  # the noise is secret
        "In the example, where 20,000 records have 200 above the quantile at 0.99",
    ),
    "signing.md": ("SHA-256",),
    "table-sets.md": ("ε = 0.2378·(ln(Δ + e)² − 1), at all record sizes Δ from 0.1 to 1.55·10⁶",),
    "tutorial.md": (
        # The noise is secret.
        "0 01031 481 37736 4550.0 29169 48393",
        "1 02041 322 21423 3161.0 15470 28827",
        "2 04075 811 4698 1736.0 1425 8768",
    ),
}


def choosing():
    gauss, polylog = ss.Gaussian.calibrate(std=75), ss.ExponentialPolylog.calibrate(std=75)
    power = ss.GeneralizedGaussian.calibrate(std=75, p=0.5)
    best = ss.compare({"g": gauss, "p": power, "e": polylog}, influences=[106], within=(1, 1e6)).best
    assert [name for *_, name in best] == ["g", "p", "e"]
    yield f"Below a size of {best[0][1]:.0f} a record loses least under Gaussian noise. Above {best[1][1]:.0f} it loses"
    tails = polylog.prediction_interval(0, 0.999)[1]
    assert 800 < tails < 810
    yield "one in a thousand is off by more than 800"
    rare = ss.ExponentialPolylog.calibrate(loss=1, at=106)
    yield (
        "`ss.ExponentialPolylog.calibrate(loss=1, at=106)` has a standard deviation of "
        f"{rare.std():,.0f} and a 95 % interval of ±{rare.prediction_interval(0)[1]:,.0f}."
    )
    one, wide = (ss.ExponentialPolylog.calibrate(std=1e6, sigma=sigma) for sigma in (1, 1e5))
    halves = [m.prediction_interval(0, 0.5)[1] for m in (one, wide)]
    yield f"With σ = 1, half of the noise is within ±{halves[0]:,.0f} and"
    yield f"a record of 268,689 loses {format_number(one.policy(268_689))}. With σ = 100,000, half of it is within"
    yield f"within ±{halves[1]:,.0f}, and the same record loses {wide.policy(268_689):.2f}."
    half = ss.ExponentialPolylog.calibrate(std=10_000).prediction_interval(0, 0.5)[1]
    yield f"at 10,000 half of the noise is within ±{half:.0f}, which is {half / 100:.1f} % of the standard deviation"
    arsinh = ss.ArsinhNormal(scale=1, shape=3)
    yield (
        f"a shape of 3 has a standard deviation of {arsinh.std():,.0f} scales and a 95 % interval of "
        f"±{arsinh.prediction_interval(0)[1]:.0f} scales."
    )


def lawyers():
    for loss in (0.01, 0.1, 1, 5, 50):
        found = explain([Loss(loss)]).texts
        yield f"| {loss} | {found['guessed']} | {found['detected']} |"
    noise, count = ss.Log(sigma=0.059492, a=15_718.2, noise="laplace"), ss.Gaussian(sigma=10)  # those of the tutorial
    keys = ss.Keys.cross({"state": ["IA"]})
    release = ss.Session(pd.DataFrame({"state": ["IA"], "payann": [106]})).sum({"payann": noise}, keys, count=count)
    yield f"is right at most [{release.explain({'payann': 106}).texts['guessed'].removesuffix(' %')}] % of the time"
    yield f"within about [{100 * release.explain({'payann': 1_600_000}).within:.0f}] % in either direction"


def limits():
    one, two = (density_mechanisms()["equal loss"][f"exponential polylog {p}"].tight_loss(1) for p in (1, 2))
    yield f"it is {one:.2f} and {two:.2f} for the two exponential polylogs"


def paper():
    noise = ss.GeneralizedGaussian(sigma=1, p=0.5)
    half = noise.prediction_interval(0)[1]
    covered = 100 * (2 * noise.noise.cdf(0.963) - 1)
    yield f"the 95 % interval is ±{half:.3f} σ; ±0.963 σ, as printed, covers {covered:.0f} %"
    ds = [ss.ExponentialPolylog.calibrate(std=math.sqrt(0.5) * median).d for median in (2, 25, 106)]
    yield f"must be {ds[0]:.3f}, {ds[1]:.4f}, {ds[2]:.4f} for the stated rule"
    roots = {f"{k}": ss.Root.calibrate(std=1000, at=10_000, k=k) for k in (2, 4)}
    crossed = crossings(roots | {"log": ss.Log.calibrate(std=1000, at=10_000, a=1)}, (1, 1e7))
    yield f"they are {crossed[0]:,.0f} and {crossed[1]:,.0f}"
    laplace, power = (ss.GeneralizedGaussian.calibrate(std=1000, p=p) for p in (1, 0.5))
    polylog = ss.ExponentialPolylog.calibrate(std=1000)
    yield f"d is {polylog.d:.3f}, not 0.145"
    rounded = [
        ss.GeneralizedGaussian(sigma=707, p=1),
        ss.GeneralizedGaussian(sigma=91, p=0.5),
        ss.ExponentialPolylog(d=0.145),
    ]
    (first, second), (near, far) = (
        crossings(dict(zip("abc", some, strict=True)), (100, 1e6)) for some in ((laplace, power, polylog), rounded)
    )
    yield f"the crossover is {far:,.0f} ({second:,.0f} with unrounded parameters), not 17,387"
    yield f"the value is {near:,.0f} ({first:,.0f} with unrounded parameters), not 5,492"
    most = []
    for k in (2, 6):
        v = np.linspace(0, 3, 30_001)
        most.append(100 * ss.Root(k=k, sigma=1).coverage(v**k).max())
    yield f"a square root covers up to {most[0]:.1f} %, that of a sixth root up to {most[1]:.2f} %"
    d = 0.145
    losses = [m.policy(1e6) for m in (ss.ExponentialPolylog(d=d), ss.Log(sigma=math.sqrt(1 / (2 * d)), a=math.e))]
    yield f"the polylog loses {losses[0]:.1f} and the log {losses[1]:.1f} at Δ = 10⁶"


def crossings(mechanisms, within):
    """Return where another one of the mechanisms becomes the best."""
    return [
        high for _, high, _ in ss.compare(mechanisms, influences=[100], within=within, accounting="closed").best[:-1]
    ]


def publishing():
    reliable, caution = ss.Publication(title="Farms").cv_limits
    yield f'"reliable" up to {reliable:g} %, "use with caution" up to {caution:g} %'


def releasing():
    values = np.sort(ss.datasets.establishments(20_000)["payann"].to_numpy())
    p10, p50, p90 = (values[round(share * 20_000)] for share in (0.1, 0.5, 0.9))
    yield f"the true quantiles are {p10}, {p50} and {p90:,}."
    shares, grid = [0.1, 0.5, 0.9, 0.99], ss.size_grid(1, 1e9)
    errors = [Ranks(Quantiles("payann", shares, loss=loss, grid=grid)).rank_error(0.95) for loss in (0.001, 0.01)]
    yield f"a rank error of {errors[0]:.0f} with four quantiles"
    yield f"a loss of 0.01 ({errors[1]:.0f}) did not"
    yield f"so that neighbours differ by {100 * (10 ** (1 / 20) - 1):.0f} %"


def rollups():
    common, rare = stats.norm.isf([0.025, 0.0005])
    yield f"± {common:.2f} standard errors are too wide, and at 99.9 % ± {rare:.2f} standard"


def table_sets():
    for tables, scale, shape in ((1, 5.08, 1.6), (2, 34.3, 2.1), (4, 8040, 1.5)):
        std = format_number(ss.ArsinhNormal(scale=scale, shape=shape).std())
        yield f"| {tables} | `ss.ArsinhNormal(scale={scale:g}, shape={shape})` | {std} |"


def tight():
    page = path_of("tight.md").read_text(encoding="utf-8")
    ratios = [[float(one) for one in row] for row in map(gains, page.splitlines()) if row]
    assert len(ratios) == 8
    quartile, median = ([row[i] for row in ratios] for i in (0, 1))
    yield (
        f"at the first quartile falls by a factor of {min(quartile):.1f} to {max(quartile):.1f}, at the median by "
        f"{min(median):.1f} to {max(median):.1f}."
    )
    first = ss.ExponentialPolylog.calibrate(std=75)
    sizes = np.geomspace(0.1, 1e10, 45)

    def within(scale):
        return max(ss.ExponentialPolylog(d=first.d, sigma=scale).tight_loss(x) / first.policy(x) for x in sizes) <= 1

    assert within(0.856)
    assert not within(0.85)
    yield f"the polylog needs the scale 0.856 (sd {0.856 * 75:.0f})"
    yield f"about one step of the grid ({STEP_SHARE:.2f} %)"


def gains(line):
    return re.findall(r"→ [\d.]+ \(([\d.]+)\)", line)


def using():
    polylog = ss.ExponentialPolylog.calibrate(std=100)
    for m, words in ((ss.Gaussian(sigma=1), "are {} times as wide as boxes"), (polylog, "and {} times with the noise")):
        exact = mixed_half_width([Noises(m.noise), Noises(m.noise)], 0.95)  # of the test at g = 1
        yield words.format(f"{exact / (2 * m.noise.isf(0.0125)):.2f}")
    yield f"which is {100 * math.exp(-2 * 0.5**2):.0f} % for σ = 0.5"
    yield f"for a log with σ = 0.5 by a factor of exp(2σ²) = {math.exp(2 * 0.5**2):.2f}"
    yield f"the level is {100 * (1 - 0.05 / 2):g} % for 2 cells and {100 * (1 - 0.05 / 10):g} % for 10 cells"


COMPUTED = {
    "choosing.md": choosing,
    "lawyers.md": lawyers,
    "limits.md": limits,
    "paper.md": paper,
    "publishing.md": publishing,
    "releasing.md": releasing,
    "rollups.md": rollups,
    "table-sets.md": table_sets,
    "tight.md": tight,
    "using.md": using,
}
PAGES = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ELSEWHERE])
def test_every_measured_number_is_computed_or_given(page):
    assert unaccounted(page, list(COMPUTED.get(page, list)()), GIVEN.get(page, ())) == []


def test_the_other_pages_are_checked_elsewhere():
    assert all((ROOT / file).exists() for file in ELSEWHERE.values())
    assert set(ELSEWHERE) <= {*PAGES, "README.md"}


def test_a_number_that_nobody_computes_is_found():
    text = "Half of 3,141 cells (2024) are within 2.7 %, at 95 % and 20 000, 0.01, E25 and Section 6.4.1."
    assert [number for number, _ in numbers(text)] == ["3,141", "2.7 %"]
