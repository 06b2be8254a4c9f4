"""Tight policies: the time to build one certified curve (limit 3 s), and to read it for ten million record values.

Each run computes them for shapes that no earlier run has used, in a cache folder of its own. Building is measured in
seconds of the processor, so that other programs do not count. Reading is compared with `numpy.log` (target: at most 10
times).
"""

import os
import tempfile
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from measure import report, seconds

import slowscale as ss

RECORDS = 10_000_000
LONGEST = 3.0  # seconds of the processor, for one curve


def fresh_mechanisms() -> dict[str, ss.Mechanism]:
    """Return one mechanism per family, each with a shape parameter that depends on the time."""
    new = 1 + time.time_ns() % 10**9 * 1e-12  # from 1 to 1.001, a new number each time
    return {
        "generalized Gaussian 1/2": ss.GeneralizedGaussian(sigma=6.84, p=0.5 * new),
        "generalized Gaussian 0.3": ss.GeneralizedGaussian(sigma=0.2, p=0.3 * new),
        "exponential polylog 1": ss.ExponentialPolylog(d=4 * new, p=1),
        "exponential polylog 2": ss.ExponentialPolylog(d=0.238 * new),
        "exponential polylog 3": ss.ExponentialPolylog(d=0.1 * new, p=3),
        "arsinh-normal 1.6": ss.ArsinhNormal(scale=4.93, shape=1.6 * new),
        "from points": ss.FromPolicy([(100, 0.5 * new), (1e4, 5), (1e6, 12)]),
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SLOWSCALE_CACHE"] = folder
        measure()


def measure() -> None:
    values = np.random.default_rng(1).lognormal(4.7, 2.0, RECORDS)
    mechanisms = fresh_mechanisms()
    width = max(map(len, mechanisms))
    print("A tight policy, built and read once")
    for name, mechanism in mechanisms.items():
        start = time.process_time()
        mechanism.tight_policy(106.0)
        needed = time.process_time() - start
        print(f"  {name:<{width}}  {needed:10.2f} s  {'ok' if needed <= LONGEST else f'OVER {LONGEST:g} s'}")
    print("\nOne tight loss, asked for directly")
    for name, mechanism in mechanisms.items():
        start = time.perf_counter()
        mechanism.tight_loss(106.0)
        print(f"  {name:<{width}}  {(time.perf_counter() - start) * 1e3:10.2f} ms")
    print()
    candidates: dict[str, Callable[[], object]] = {"numpy.log": lambda: np.log(values)}
    candidates |= {name: partial(mechanism.tight_policy, values) for name, mechanism in mechanisms.items()}
    report(f"A tight policy on {RECORDS:,} record values", seconds(candidates, rounds=5), "numpy.log", target=10)


if __name__ == "__main__":
    main()
