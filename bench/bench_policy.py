"""Time of policies on ten million record values, compared with `numpy.log` on them (target: at most 5 times)."""

from collections.abc import Callable
from functools import partial

import numpy as np
from measure import report, seconds

import slowscale as ss

RECORDS = 10_000_000


def main() -> None:
    values = np.random.default_rng(1).lognormal(4.7, 2.0, RECORDS)
    policies = {
        "Gaussian": ss.Gaussian(sigma=75).policy,
        "generalized Gaussian 1/2": ss.GeneralizedGaussian(sigma=6.84, p=0.5).policy,
        "generalized Gaussian 0.3": ss.GeneralizedGaussian(sigma=0.2, p=0.3).policy,
        "generalized Gaussian 1/2, PRDP": ss.GeneralizedGaussian(sigma=6.84, p=0.5).pure_policy,
        "exponential polylog 1": ss.ExponentialPolylog(d=4, p=1).policy,
        "exponential polylog 2": ss.ExponentialPolylog(d=0.238).policy,
        "exponential polylog 2, PRDP": ss.ExponentialPolylog(d=0.238).pure_policy,
        "exponential polylog 3": ss.ExponentialPolylog(d=0.1, p=3).policy,
        "arsinh-normal 1.6, PRDP": ss.ArsinhNormal(scale=4.95, shape=1.6).pure_policy,
        "square root": ss.Root(k=2, sigma=5).policy,
        "cube root": ss.Root(k=3, sigma=5).policy,
        "fourth root": ss.Root(k=4, sigma=0.534).policy,
        "fourth root, a = 1": ss.Root(k=4, sigma=0.534, a=1).policy,
        "log": ss.Log(sigma=0.632).policy,
        "unit splitting": ss.UnitSplitting(threshold=106, sigma=75).policy,
    }
    candidates: dict[str, Callable[[], object]] = {"numpy.log": lambda: np.log(values)}
    candidates |= {name: partial(policy, values) for name, policy in policies.items()}
    report(f"A policy on {RECORDS:,} record values", seconds(candidates, rounds=7), "numpy.log", target=5)


if __name__ == "__main__":
    main()
