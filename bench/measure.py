"""Timing for the benchmarks. The candidates take turns, so that a busy machine slows all of them equally."""

import os
import time
from collections.abc import Callable, Mapping
from statistics import median

# New processes read compiled modules, as those of an installed package do.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def seconds(candidates: Mapping[str, Callable[[], object]], rounds: int = 9) -> dict[str, float]:
    """Return the median time of each candidate. In each round, every candidate runs once."""
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, run in candidates.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: median(values) for name, values in times.items()}


def report(title: str, times: Mapping[str, float], baseline: str, target: float | None = None) -> None:
    """Print each candidate's time, its ratio to the baseline, and whether the ratio is within the target."""
    print(title)
    width = max(map(len, times))
    for name, value in times.items():
        ratio = value / times[baseline]
        verdict = "" if target is None or name == baseline else "ok" if ratio <= target else f"OVER {target:g}"
        print(f"  {name:<{width}}  {value * 1e3:10.2f} ms  {ratio:7.2f} x {baseline}  {verdict}".rstrip())
    print()
