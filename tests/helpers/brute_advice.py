"""Brute force for advice with limits on values: own formulas of logs and roots on a dense grid of k and the offset a.

Nothing here is taken from the advisor's search. Logs and roots have their own formulas here; additive noise has the
estimates that tests/unit/advice/test_estimates.py compares with certified bounds, on the fine grid of `helpers.advice`.

    python -m helpers.brute_advice 0 50       # in tests/: all problems, with their numbers
"""

import math
import sys
from dataclasses import dataclass

import numpy as np
from helpers.advice import fine_grid
from scipy import special

import slowscale as ss

RARE, FLOOR, CHARGED = 5.0, 0.01, 1.01  # the default of `rare`, the least loss that counts, and the room for curves


@dataclass(frozen=True)
class Problem:
    """What is asked: `advise(sizes, **arguments)`."""

    kind: str
    sizes: dict
    arguments: dict

    @property
    def values(self):
        return np.array(list(self.sizes.values()))

    @property
    def large(self):
        return self.arguments["large"]

    def limits(self):
        """Return the limits of presence losses, then of band losses."""
        found = [self.arguments.get(kind, {}) for kind in ("presence", "bands")]
        return np.array([given.get(name, math.inf) for given in found for name in self.sizes])


class Noise:
    """Gaussian or Laplace noise of scale 1: losses, their inverse, and quantiles of |Z|."""

    def __init__(self, laplace):
        self.laplace = laplace

    def loss(self, x):
        return np.where(x < 1e-4, x * x / 2, x + np.expm1(-x)) if self.laplace else x * x / 2

    def shift(self, loss):
        """Return the shift with a loss: x + e^(−x) − 1 = L has x = L + 1 + W(−e^(−L−1))."""
        if not self.laplace:
            return np.sqrt(2 * loss)
        found = np.array(loss) + 1 + special.lambertw(-np.exp(-np.array(loss) - 1)).real
        for _ in range(3):  # Newton's steps where W cancels
            found = found - (found + np.expm1(-found) - loss) / -np.expm1(-found)
        return found

    def quantile(self, level):
        return -math.log(1 - level) if self.laplace else float(special.ndtri((1 + level) / 2))


def gap(k, low, high):
    """Return f(high) − f(low) of the kth root, or the log if k is infinite."""
    if k == math.inf:
        return np.log1p((high - low) / low)
    return low ** (1 / k) * np.expm1(np.log1p((high - low) / low) / k)


def estimates(k, noise, a, sigma, v):
    """Return the mean-unbiased estimates from transformed values."""
    with np.errstate(all="ignore"):
        if k == math.inf:
            shrunk = 1 - sigma**2 if noise.laplace else np.exp(-(sigma**2) / 2)
            found = shrunk * np.exp(v) - a
            return np.where(v >= np.log(a), found, -sigma * a) if noise.laplace else found
        if noise.laplace:
            inside = np.maximum(v, a ** (1 / k))
            found = inside**k - sigma**2 * k * (k - 1) * inside ** (k - 2) - a
            return np.where(v >= a ** (1 / k), found, -sigma * k * a ** (1 - 1 / k))
        terms = [
            math.comb(k, 2 * j) * special.factorial2(max(2 * j - 1, 0)) * (-(sigma**2)) ** j * v ** (k - 2 * j)
            for j in range(k // 2 + 1)
        ]
        return sum(terms) - a


def half_width(k, noise, a, sigma, q, level):
    """Return the largest distance of an estimate from q over the central part of the noise; arrays a and sigma."""
    middle = np.log(q + a) if k == math.inf else (q + a) ** (1 / k)
    steps = np.linspace(-1, 1, 41)[:, None] * noise.quantile(level)
    return np.abs(estimates(k, noise, a, sigma, middle + steps * sigma) - q).max(axis=0)


def spent(k, noise, a, limits):
    """Return the least scales at which the error of some sum reaches its limit; limits are (q, level, error)."""
    grid = np.geomspace(1e-5, 1e5, 61)
    scale = np.ones_like(a) if k == math.inf else a ** (1 / k)

    def above(sigma):
        with np.errstate(all="ignore"):
            return np.any([half_width(k, noise, a, sigma, *limit[:2]) > limit[2] for limit in limits], axis=0)

    first = np.array([above(scale * x) for x in grid]).argmax(axis=0)
    low, high = scale * grid[np.maximum(first - 1, 0)], scale * grid[first]
    for _ in range(30):
        middle = np.sqrt(low * high)
        too_large = above(middle)
        low, high = np.where(too_large, low, middle), np.where(too_large, middle, high)
    return np.where(first > 0, low, np.nan)


def transformed(problem, offsets, ks):
    """Yield (mechanism, errors of the small and the large sum, losses) of logs and roots that keep all limits."""
    arguments, values, limits = problem.arguments, problem.values, problem.limits()
    times, level = arguments.get("times", 1.1), arguments.get("level", 0.95)
    small, large = arguments.get("interval", math.inf), arguments.get("relative", math.inf) * problem.large
    for laplace in (True, False):
        noise = Noise(laplace)
        for k in (*(ks if laplace else range(2, 9)), math.inf):
            a = np.array(offsets)
            ends = [(a, values[:, None] + a), (values[:, None] + a, times * values[:, None] + a)]
            shifts = np.concatenate([gap(k, *np.broadcast_arrays(*pair)) for pair in ends])
            with np.errstate(all="ignore"):
                if "interval" in arguments:
                    error_limits = [(0.0, level, small), (problem.large, level, large)]
                    sigma = spent(k, noise, a, [one for one in error_limits if one[2] < math.inf])
                else:
                    kept = np.isfinite(limits)
                    sigma = (shifts[kept] / noise.shift(limits[kept])[:, None]).max(axis=0)
                losses = noise.loss(shifts / sigma)
                errors = [half_width(k, noise, a, sigma, q, level) for q in (0.0, problem.large)]
                common, rare = (
                    [half_width(k, noise, a, sigma, q, x) for q in (0.0, problem.large)] for x in (0.95, 0.999)
                )
                good = (losses <= limits[:, None] * (1 + 1e-9)).all(axis=0)
                good &= (errors[0] <= small * (1 + 1e-9)) & (errors[1] <= large * (1 + 1e-9))
                good &= np.all([r <= RARE * c for c, r in zip(common, rare, strict=True)], axis=0)
                if k == math.inf:  # the standard deviation as a share of q + a
                    square = sigma**2
                    share = (1 - square) ** 2 / (1 - 4 * square) - 1 if laplace else np.expm1(square)
                    good &= (sigma < 0.5) | (not laplace)
                    good &= np.sqrt(share) * (problem.large + a) <= RARE * common[1]
            for i in np.flatnonzero(good):
                name = "laplace" if laplace else "gaussian"
                fixed = {"sigma": float(sigma[i]), "a": float(a[i]), "noise": name}
                made = (lambda f=fixed: ss.Log(**f)) if k == math.inf else (lambda f=fixed, k=k: ss.Root(k=k, **f))
                yield made, (errors[0][i], errors[1][i]), losses[:, i]


def additive(problem, step, bound):
    """Yield the same of additive noise, without an interval only of that with an error below a bound."""
    arguments, limits = problem.arguments, problem.limits()
    times, level = arguments.get("times", 1.1), arguments.get("level", 0.95)
    small, large = arguments.get("interval", math.inf), arguments.get("relative", math.inf) * problem.large
    shifts = np.concatenate([problem.values, (times - 1) * problem.values])
    for shape in fine_grid(step):
        unit = shape.unit
        if unit is None or max(unit.half_width(0.999), unit.std) > RARE * unit.half_width(0.95):
            continue
        scale = min(small, large) / unit.half_width(level)
        if "interval" not in arguments:
            low, high = 1e-30, bound / unit.half_width(level)
            if not (CHARGED * unit.losses(shifts / high) <= limits).all():
                continue
            for _ in range(40):
                scale = math.sqrt(low * high)
                kept = (CHARGED * unit.losses(shifts / scale) <= limits).all()
                low, high = (low, scale) if kept else (scale, high)
            scale = high
        losses, error = unit.losses(shifts / scale), scale * unit.half_width(level)
        if (CHARGED * losses <= limits * 1.0001).all() and error <= min(small, large) * 1.0001:
            yield (lambda: None), (error, error), losses


def regret(values, best):
    return float((values / best).max())


def shortfall(problem, advice, offsets=60, ks=(1.3, 1.5, 2, 2.5, 3, 4, 6, 8), step=1.6):
    """Return by which factor the recommendation is worse than the best of the grid; 1 if it is as good or better."""
    low, high = 1e-3 * problem.values.min(), problem.values.max()
    found = list(transformed(problem, np.geomspace(low, high, offsets), ks))
    found += additive(problem, step, bound=2 * min(errors[0] for _, errors, _ in found))
    accuracy = advice.accuracy
    ours = [(row.mechanism, accuracy.of(row.mechanism), np.array(row.tight + row.bands)) for row in advice.table]

    def measure(errors, losses):
        if "interval" in problem.arguments:
            # Values have a limit, so that losses of presence count, and the error of large sums unless it has a limit.
            counted = np.maximum(losses[: problem.values.size], FLOOR)
            return counted if problem.kind == "losses" else np.append(counted, errors[1] ** 10)
        return np.array([errors[0] if "relative" in problem.arguments else errors[0] * errors[1]])

    best = np.min([measure(*one[1:]) for one in (*found, *ours)], axis=0)
    for made, errors, losses in sorted(found, key=lambda one: regret(measure(*one[1:]), best)):
        if passes(made, accuracy):
            return max(regret(measure(*ours[0][1:]), best) / regret(measure(errors, losses), best), 1.0)
    return 1.0


def passes(made, accuracy):
    """Whether the standard deviations of a log or root are small enough; those of additive noise were compared."""
    mechanism = made()
    sums = (0.0, accuracy.large)
    return mechanism is None or all(
        float(mechanism.std(q)) <= RARE * max(abs(end - q) for end in mechanism.prediction_interval(q, 0.95))
        for q in sums
    )


def random_problem(seed):
    """Return a problem that a random log or root can keep, with room of up to 50 % in every limit."""
    rng = np.random.default_rng(seed)
    kind = ("large", "errors", "small", "losses")[seed % 4]
    count = int(rng.integers(3, 6))
    values = np.sort(10 ** rng.uniform(0, 4, count)).cumprod()
    sizes = {f"size {i}": float(x) for i, x in enumerate(values)}
    times = float(rng.choice([1.05, 1.1, 1.25, 1.5]))
    sigma, a = float(rng.uniform(0.02, 0.2)), float(10 ** rng.uniform(*np.log10(values[[0, -2]])))
    known = ss.Log(sigma=sigma, a=a, noise=str(rng.choice(["laplace", "gaussian"])))
    top, some = list(sizes)[-1], list(sizes)[int(rng.integers(0, count - 1))]

    def room():
        return float(rng.uniform(1, 1.5))

    arguments = {
        "times": times,
        "large": float(values[-2]),
        "bands": {top: known.band_policy(times=times)(sizes[top]) * room()},
    }
    if kind in ("large", "losses"):
        arguments["interval"] = room() * max(abs(end) for end in known.prediction_interval(0.0))
    else:
        arguments["presence"] = {name: known.tight_loss(sizes[name]) * room() for name in (some, top)}
        arguments["presence"][top] = max(arguments["presence"].values())
    if kind in ("small", "losses"):
        large = float(values[-2])
        width = max(abs(end - large) for end in known.prediction_interval(large)) / large
        arguments["relative"] = min(room() * width, 1.0)  # no larger share is allowed
    return Problem(kind, sizes, arguments)


def main(first, last):
    import time
    import warnings

    warnings.simplefilter("ignore", ss.ScaleWarning)
    worst = 1.0
    for seed in range(first, last):
        problem = random_problem(seed)
        start = time.process_time()
        advice = ss.advise(problem.sizes, unit="1e-9", **problem.arguments)
        taken = time.process_time() - start
        factor = shortfall(problem, advice)
        worst = max(worst, factor)
        print(f"{seed:>3} {problem.kind:<7} {factor:.4f}  {taken:5.1f} s  {advice.table[0].name}", flush=True)
    print(f"worst: {worst:.4f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
