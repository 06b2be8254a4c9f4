"""Time of exact releases, compared with numpy's inexact normal draws and with the exact samplers of other libraries.

Targets:

- At most this multiple of the time of `numpy.random.Generator.normal`: 12 for the Gaussian, 25 for the generalized
  Gaussian 1/2, the exponential polylog 2 and the arsinh-normal, 40 for the fourth root and the log, 60 for the
  exponential polylog 3.
- Per draw, at least 150 times faster than the sampler of the same noise in tmlt.core, and 90 times faster than OpenDP's
  Gaussian on vectors of 100,000.
- Less than 1 GB for ten million draws, and less than 300 µs for a single draw.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
from measure import seconds

import slowscale as ss

PEERS = Path(__file__).parents[1] / ".venv-peers" / "bin" / "python"
MECHANISMS = {
    "Gaussian": (ss.Gaussian(sigma=75), 12),
    "generalized Gaussian 1/2": (ss.GeneralizedGaussian(sigma=6.84, p=0.5), 25),
    "exponential polylog 2": (ss.ExponentialPolylog(d=0.2378), 25),
    "arsinh-normal 1.6": (ss.ArsinhNormal(scale=4.95, shape=1.6), 25),
    "fourth root": (ss.Root(k=4, sigma=0.534), 40),
    "log": (ss.Log(sigma=0.632), 40),
    "exponential polylog 3": (ss.ExponentialPolylog(d=0.1, p=3), 60),
    "generalized Gaussian 0.3": (ss.GeneralizedGaussian(sigma=0.2, p=0.3), None),
    "exponential polylog 1.5": (ss.ExponentialPolylog(d=1, p=1.5), None),
}
MEMORY = """
import resource, numpy as np, slowscale as ss
q = np.zeros(10_000_000, np.int64)
ss.Gaussian(sigma=75).release(q[:1000])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
ss.Gaussian(sigma=75).release(q)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def against_numpy(size: int, rounds: int) -> dict[str, float]:
    rng = np.random.default_rng()
    sums = np.full(size, 1000)
    candidates: dict[str, Callable[[], object]] = {"numpy normal": partial(rng.normal, size=size)}
    candidates |= {name: partial(m.release, sums) for name, (m, _) in MECHANISMS.items()}
    for run in candidates.values():
        run()
    times = seconds(candidates, rounds)
    print(f"{size:,} values: ns per value, multiple of numpy's normal")
    for name, value in times.items():
        ratio = value / times["numpy normal"]
        target = MECHANISMS.get(name, (None, None))[1]
        verdict = "" if target is None else "ok" if ratio <= target else "OVER"
        print(
            f"  {name:<26} {value / size * 1e9:9.1f}  {ratio:6.1f} x  {f'<= {target}' if target else '':<6} {verdict}"
        )
    print()
    return {name: value / size for name, value in times.items()}


def against_peers(ours: dict[str, float]) -> None:
    if not PEERS.exists():
        print("Skipped: the other libraries are not installed. Install them with `make .venv-peers/.ready`.\n")
        return
    found = subprocess.run([PEERS, Path(__file__).with_name("peers_sampling.py")], capture_output=True, check=True)
    print("Other libraries: µs per draw, and how many times faster slowscale is")
    for name, value in json.loads(found.stdout).items():
        noise = name.split(" ", 1)[1]
        target = 90 if name.startswith("OpenDP") else 150
        ratio = value / ours[noise]
        print(f"  {name:<32} {value * 1e6:8.1f}  {ratio:6.0f} x  >= {target}  {'ok' if ratio >= target else 'UNDER'}")
    print()


def single_draws() -> None:
    print("One value at a time: µs, median of 300")
    for name, (m, _) in MECHANISMS.items():
        times = []
        for _ in range(300):
            start = time.perf_counter()
            m.release(1000)
            times.append(time.perf_counter() - start)
        value = median(times) * 1e6
        print(f"  {name:<26} {value:8.1f}  {'ok' if value < 300 else 'OVER 300'}")
    print()


def main() -> None:
    against_numpy(1_000, rounds=50)
    ours = against_numpy(100_000, rounds=15)
    against_peers(ours)
    against_numpy(1_000_000, rounds=5)
    single_draws()
    used = int(subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, check=True).stdout) / 1024
    print(f"Memory of ten million draws: {used:.0f} MB  {'ok' if used < 1000 else 'OVER 1000'}\n")


if __name__ == "__main__":
    main()
