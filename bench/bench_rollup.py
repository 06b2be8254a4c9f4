"""Roll-ups: a million published cells added up to 50 states of different sizes, with their intervals (limit 2 s).

The baseline is a plain group-by sum by pyarrow, without standard errors or intervals. Intervals are computed anew in
every round, because each round has another scale of the noise.
"""

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
from measure import report, seconds

import slowscale as ss
from slowscale.accounting import RecordPolicy
from slowscale.release.facts import ColumnFacts, Facts, KeysFacts, TableFacts

CELLS, STATES = 1_000_000, 50
LONGEST = 2.0  # seconds


def cells_of(mechanism: ss.Mechanism) -> ss.ReleasedSums:
    """Return a release of a million cells, drawn quickly and not privately."""
    generator = np.random.default_rng(1)
    shares = np.arange(1, STATES + 1) / sum(range(1, STATES + 1))
    state = generator.choice(STATES, CELLS, p=shares)
    values = np.rint(generator.lognormal(8, 2, CELLS)).astype(np.int64)
    columns = {
        "state": pa.array([f"{one:02}" for one in range(STATES)]).take(pa.array(state)),
        "cell": pa.array(np.arange(CELLS)),
        "pay": pa.array(values),
        "pay_se": pa.array(np.ones(CELLS)),
        "pay_low": pa.array(values),
        "pay_high": pa.array(values),
    }
    if isinstance(mechanism, ss.Root | ss.Log):
        columns["pay_transformed"] = pa.array(mechanism.transform(values.astype(float)))
    column = ColumnFacts(
        kind="sum",
        described=str(mechanism),
        unit="1",
        level=0.95,
        nonnegative=False,
        estimator="mean",
        se="",
        at_least=0,
        on_grid=True,
        rounding_bias=0.0,
    )
    keys = KeysFacts(
        columns={"state": "text", "cell": "whole numbers"},
        count=CELLS,
        assumption="The keys were given as public.",
        from_data=False,
    )
    facts = Facts(
        id="cells",
        slowscale=ss.__version__,
        created="",
        private=False,
        protects="",
        notion="PRzCDP",
        accounting="closed",
        formula=str(mechanism.policy),
        tables={"cells": TableFacts(rows=CELLS, keys=keys, columns={"pay": column})},
    )
    policy = RecordPolicy((("pay", mechanism.policy),))
    return ss.ReleasedSums("cells", pa.table(columns), facts, policy, None, {"pay": mechanism})


def main() -> None:
    scale = itertools.count(1)

    def fresh() -> dict[str, ss.Mechanism]:
        new = 1 + 1e-6 * next(scale)
        return {
            "exponential polylog": ss.ExponentialPolylog.calibrate(std=75 * new),
            "arsinh-normal": ss.ArsinhNormal(scale=4.93 * new, shape=1.6),
            "generalized Gaussian": ss.GeneralizedGaussian(sigma=6.85 * new, p=0.5),
            "from points": ss.FromPolicy([(100, 0.5 * new), (1e4, 5), (1e6, 12)]),
            "fourth root": ss.Root(k=4, sigma=1.0 * new),
        }

    releases = {name: cells_of(mechanism) for name, mechanism in fresh().items()}
    table = releases["exponential polylog"].table

    def rolled(name: str) -> ss.ReleasedSums:
        return replace(releases[name], mechanisms={"pay": fresh()[name]}).rollup("state")

    candidates: dict[str, Callable[[], object]] = {
        "pyarrow group_by sum": lambda: table.group_by("state").aggregate([("pay", "sum")])
    }
    candidates |= {name: partial(rolled, name) for name in releases}
    times = seconds(candidates, rounds=5)
    report(f"{CELLS:,} cells rolled up to {STATES} states", times, "pyarrow group_by sum")
    for name in releases:
        print(f"  {name:<22} {'ok' if times[name] <= LONGEST else f'OVER {LONGEST:g} s'}")


if __name__ == "__main__":
    main()
