"""The main job: from a table of establishments to a published table of sums with intervals.

Simulates 323,402 establishments in 1,095 cells of county and industry, and publishes employment, first-quarter and
annual payroll of every cell. Leaves demo/establishments.parquet, .csv and .csv.json.
"""

import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

import slowscale as ss
from slowscale.study import simulated_establishments

# As in the paper: the standard deviation that gives Gaussian noise a loss of 1 for the median establishment.
MECHANISMS = {
    "emp": ss.ExponentialPolylog.calibrate(std=1.41),
    "payqtr1": ss.ExponentialPolylog.calibrate(std=17.7),
    "payann": ss.ExponentialPolylog.calibrate(std=75),
}
EXAMPLES = {
    "the median one": {"emp": 2, "payqtr1": 25, "payann": 106},
    "one in four is larger": {"emp": 9, "payqtr1": 93, "payann": 388},
    "the largest": {"emp": 19_589, "payqtr1": 402_324, "payann": 1_553_359},
}
FOLDER = Path("demo")


def main() -> None:
    """Simulate, release, show and write."""
    console = Console()
    establishments = simulated_establishments()
    # In the paper's table which cells exist is public; here the choice is typed out, and the release records it.
    keys = ss.Keys.public_in(establishments, by=["county", "naics3"])
    session = ss.Session(establishments)
    start = time.perf_counter()
    release = session.sum(MECHANISMS, by=["county", "naics3"], keys=keys)
    seconds = time.perf_counter() - start

    console.print(f"{establishments.num_rows:,} simulated establishments, released in {seconds:.1f} s:\n")
    console.print(shown(release))
    console.print(release, highlight=False)
    losses = Table("an establishment", "its loss (PRzCDP)", "with Gaussian noise of the same error")
    gaussian = {name: ss.Gaussian(mechanism.std()).policy for name, mechanism in MECHANISMS.items()}
    for words, record in EXAMPLES.items():
        plain = sum(policy(record[name]) for name, policy in gaussian.items())
        losses.add_row(words, f"{release.policy(record):,.1f}", f"{plain:,.1f}")
    console.print(losses)

    FOLDER.mkdir(exist_ok=True)
    for path in (
        release.to_parquet(FOLDER / "establishments.parquet", overwrite=True),
        release.to_csv(FOLDER / "establishments.csv", overwrite=True),
    ):
        console.print(f"wrote {path}")


def shown(release: ss.Release, rows: int = 8) -> Table:
    """Return the first rows as a table for the terminal: each estimate, give or take what the noise may be."""
    columns = release.facts["columns"]
    table = Table("county", "naics3", *columns)
    for row in release.table.slice(0, rows).to_pylist():
        cells = [f"{row[name]:,} ± {row[f'{name}_high'] - row[name]:,.0f}" for name in columns]
        table.add_row(row["county"], row["naics3"], *cells)
    table.add_row("…", "…", *("…" for _ in columns), end_section=True)
    table.caption = "± as wide as 95 % of the noise"
    return table


if __name__ == "__main__":
    main()
