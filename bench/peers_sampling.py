"""Print the seconds per draw of other libraries' samplers, as JSON. Runs in the environment `.venv-peers`."""

import json
import sys
import time
from collections.abc import Callable
from typing import Any


def seconds(run: Callable[[], Any], count: int) -> float:
    run()
    start = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - start) / count


def main() -> None:
    import opendp.prelude as dp
    from tmlt.core.random.continuous_gaussian import gaussian
    from tmlt.core.utils import prdp

    dp.enable_features("contrib")
    size = 100_000
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    opendp = dp.m.make_gaussian(*space, scale=75.0)
    zeros = [0] * size
    times = {
        "OpenDP Gaussian": seconds(lambda: opendp(zeros), 1) / size,
        "tmlt Gaussian": seconds(lambda: gaussian(0, 75.0**2), 300),
        "tmlt generalized Gaussian 1/2": seconds(lambda: prdp.square_root_gaussian_mechanism(6.84), 300),
        "tmlt exponential polylog 2": seconds(
            lambda: prdp.exponential_polylogarithmic_mechanism(0.2378, 2.718281828459046, 1), 300
        ),
        "tmlt fourth root": seconds(lambda: prdp.fourth_root_transformation_mechanism(1000, 0, 0.534), 300),
        "tmlt log": seconds(lambda: prdp.log_transformation_mechanism(1000, 1, 0.632), 300),
    }
    json.dump(times, sys.stdout)


if __name__ == "__main__":
    main()
