"""Table summary-stats of the paper, and the check that a column has the statistics of its row."""

import numpy as np

STATISTICS = ("least", "first quartile", "median", "mean", "third quartile", "largest")
PAPER = {
    "cattle": (100, 3_100, 10_200, 22_480, 26_000, 1_341_000),
    "emp": (0, 1, 2, 17, 9, 19_589),
    "payann": (0, 30, 106, 919, 388, 1_553_359),
    "payqtr1": (0, 7, 25, 239, 93, 402_324),
}


def summary(values):
    first, median, third = np.quantile(values, [0.25, 0.5, 0.75])
    return values.min(), first, median, values.mean(), third, values.max()


def misfits(values, name, tolerance=0.02):
    """Return the statistics of a column that are not those of the paper, up to a relative tolerance."""
    pairs = zip(STATISTICS, summary(values), PAPER[name], strict=True)
    return {what for what, found, wanted in pairs if abs(found - wanted) > tolerance * wanted}
