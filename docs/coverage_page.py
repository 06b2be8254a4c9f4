"""Write docs/coverage.md: how often published intervals contain the true number, by simulation.

Run as `python docs/coverage_page.py` (about five minutes). The noise is drawn from seeded bits, so that the page can be
reproduced. A real release never uses seeded bits.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa

import slowscale as ss
from slowscale.mechanisms import Mechanism
from slowscale.sampling import KnownBits

LEVEL = 0.95
MECHANISMS: dict[str, Mechanism] = {
    "Gaussian": ss.Gaussian(sigma=5),
    "Unit splitting": ss.UnitSplitting(threshold=10, sigma=5),
    "Laplace": ss.GeneralizedGaussian.calibrate(std=5, p=1),
    "Generalized Gaussian, p = ½": ss.GeneralizedGaussian.calibrate(std=5, p=0.5),
    "Exponential polylog, p = 2": ss.ExponentialPolylog.calibrate(std=5),
    "Exponential polylog, p = 1": ss.ExponentialPolylog(d=4, p=1),
    "Square root": ss.Root(k=2, sigma=1),
    "Square root, median": ss.Root(k=2, sigma=1, estimator="median"),
    "Fourth root": ss.Root(k=4, sigma=0.3),
    "Fourth root, median": ss.Root(k=4, sigma=0.3, estimator="median"),
    "Log, σ = ½": ss.Log(sigma=0.5),
    "Log, σ = 2": ss.Log(sigma=2),
    "Log, σ = ½, median": ss.Log(sigma=0.5, estimator="median"),
    "User-given (log1p)": ss.Transformation(np.log1p, np.expm1, sigma=0.5, a=0),
}
SUMS = (0, 1, 10, 10**3, 10**17, 10**25)
SLOW = "User-given (log1p)"  # Arb evaluates its functions value by value, so it gets a tenth of the draws
# Means for which the sum and the count are released by different mechanisms.
MIXED = (("Gaussian", "Square root"), ("Log, σ = ½", "Gaussian"), ("Exponential polylog, p = 2", "Laplace"))
COUNTS = (1, 3, 10, 100, 1000)
MEAN = 50  # the true mean in the simulation of means
HEADS = {0: "0", 1: "1", 10: "10", 10**3: "10³", 10**17: "10¹⁷", 10**25: "10²⁵"}

INTRODUCTION = f"""<!-- Written by `python docs/coverage_page.py`. -->
# Coverage of the published intervals

A published interval should contain the true number with at least the probability that its level states. This page
tests that by simulation. Each case is drawn many times at the level {LEVEL:g}, and the table shows the share of
intervals that contain the true number. For comparison, it also shows the share of cases in which the true number is
within two standard errors of the estimate.

A share over 20,000 draws is uncertain by about ±0.003 (two standard errors), and a share over 2,000 draws by ±0.01. A
share above {LEVEL:g} is not an error. The ends are rounded outwards to the unit, the true sum is known to be at least 0
for transformations, and intervals for means are conservative."""

SUMS_TEXT = """
## Sums

Each cell shows the share for the published interval and, in brackets, for ±2 standard errors. A "fine" unit is the
power of ten nearest to a hundredth of the standard deviation. A "coarse" unit is the power of ten nearest to three
times the standard deviation. With a coarse unit, much of the error is due to rounding. Additive noise is then biased by
up to half a unit, and `slowscale` warns about it.
"""

COUNTS_TEXT = """
## Counts

This table shows the same shares for the number of records, with a unit of 1. True counts are whole numbers, which makes
intervals shorter.
"""

MEANS_TEXT = f"""
## Means

All records have the value {MEAN}, so the true mean is {MEAN}. The columns of the table differ in the number of records
per group. The sum and the count are released by the same mechanism or by two different ones, and the mean is their
ratio. The first share is that of the default interval, "box". In brackets are the shares of "fieller" and of "delta"
(±1.96 standard errors of the ratio), and the share of default intervals that are finite.
"""


@dataclass(frozen=True)
class Shares:
    """How often intervals contained the true number."""

    draws: int
    interval: float
    others: tuple[float, ...]

    def __str__(self) -> str:
        return f"{_share(self.interval)} ({', '.join(map(_share, self.others))})"


def _share(x: float) -> str:
    return f"{x:.3f}".removeprefix("0")


def units(mechanism: Mechanism, q: int) -> dict[str, Fraction]:
    """Return a unit that is finer than the noise, and one that is coarser."""
    std = float(mechanism.std(q))
    return {name: Fraction(10) ** round(math.log10(std * times)) for name, times in (("fine", 0.01), ("coarse", 3))}


def sum_shares(mechanism: Mechanism, q: int, unit: Fraction, draws: int) -> Shares:
    """Draw sums, and count how often the interval and ±2 standard errors contain the true sum."""
    noisy = mechanism._release(np.full(draws, q, object), unit, LEVEL, KnownBits(repr((mechanism, q, unit))))
    truth = Fraction(q) / unit
    low, high = noisy.ends
    held = (low <= math.floor(truth)) & (high >= math.ceil(truth))
    error = (noisy.units - math.floor(truth)).astype(float) - float(truth - math.floor(truth))
    near = np.abs(error) * float(unit) <= 2 * noisy.se
    return Shares(draws, float(np.mean(held)), (float(near.mean()),))


def mean_shares(of_sum: Mechanism, of_count: Mechanism, count: int, groups: int) -> Shares:
    """Draw means of groups of `count` records, and count how often each kind of interval contains the true mean."""
    labels = np.repeat(np.arange(groups, dtype=np.int32), count)
    records = pa.table({"group": labels, "x": np.full(labels.size, MEAN, np.int32)})
    session = ss.Session(records, bits=KnownBits(repr((of_sum, of_count, count))))
    keys = ss.Keys.from_frame({"group": list(range(groups))})
    release = session.mean({"x": of_sum}, keys=keys, count=of_count, level=LEVEL)
    for kind in ("fieller", "delta"):
        release = release.ratio("x", "count", kind, LEVEL, kind)
    held, finite = [], 0.0
    for name in ("x_mean", "fieller", "delta"):
        low, high = (release.table[f"{name}_{end}"].to_numpy() for end in ("low", "high"))
        held.append(float(np.mean((low <= MEAN) & (high >= MEAN))))
        finite = finite or float(np.mean(np.isfinite(low) & np.isfinite(high)))
    return Shares(groups, held[0], (*held[1:], finite))


def sum_rows(draws: int) -> Iterator[tuple[str, str, dict[int, Shares]]]:
    """Yield the shares for every mechanism, unit and sum."""
    for name, mechanism in MECHANISMS.items():
        for size in ("fine", "coarse"):
            few = draws // 10 if name == SLOW else draws
            yield name, size, {q: sum_shares(mechanism, q, units(mechanism, q)[size], few) for q in SUMS}


def count_rows(draws: int) -> Iterator[tuple[str, dict[int, Shares]]]:
    """Yield the shares for every mechanism and count."""
    for name, mechanism in MECHANISMS.items():
        few = draws // 10 if name == SLOW else draws
        yield name, {q: sum_shares(mechanism, q, Fraction(1), few) for q in (0, *COUNTS)}


def mean_rows(draws: int) -> Iterator[tuple[str, dict[int, Shares]]]:
    """Yield the shares for every mechanism and number of records."""
    pairs = {name: (mechanism, mechanism) for name, mechanism in MECHANISMS.items()} | {
        f"{one}; count: {other}": (MECHANISMS[one], MECHANISMS[other]) for one, other in MIXED
    }
    for name, pair in pairs.items():
        few = draws // 10 if name == SLOW else draws
        yield name, {count: mean_shares(*pair, count, min(few, 2_000_000 // count)) for count in COUNTS}


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page(draws: int = 20_000) -> str:
    """Return the page as Markdown."""
    sums = [[name, size, *map(str, found.values())] for name, size, found in sum_rows(draws)]
    counts = [[name, *map(str, found.values())] for name, found in count_rows(draws)]
    means = [[name, *map(str, found.values())] for name, found in mean_rows(draws)]
    parts = [
        INTRODUCTION,
        SUMS_TEXT,
        _table(["mechanism", "unit", *(f"q = {HEADS[q]}" for q in SUMS)], sums),
        COUNTS_TEXT,
        _table(["mechanism", *(f"count {q:,}" for q in (0, *COUNTS))], counts),
        MEANS_TEXT,
        _table(["mechanism", *(f"{q:,} record{'s' * (q > 1)}" for q in COUNTS)], means),
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("coverage.md").write_text(page(), encoding="utf-8")
