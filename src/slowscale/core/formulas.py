"""Elementary formulas shared by noise, policies and mechanisms, written so that no digits cancel.

Most of them are a *rise*, f(x0 + x) − f(x0), of a function that the paper uses; the plain difference would lose all
digits for small x. They take and return arrays of floats.
"""

import math
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from slowscale.core.errors import ParameterError, ParameterTypeError, Shown
from slowscale.core.parameters import Array, apply, as_number

Points = tuple[tuple[float, float], ...]
# The range of sizes and losses in a table of points: within it, no product or quotient leaves the range of floats.
LEAST, MOST = 1e-100, 1e100


def log1p_ratio(x: Array, scale: float) -> Array:
    """Return ln(1 + x/scale) for x >= 0 to the last digits, at nearly the speed of `numpy.log`.

    ln(1 + y) is ln(u) + (y - (u - 1))/u, where u is 1 + y rounded: the second term corrects the rounding.
    """
    with np.errstate(over="ignore"):
        y = x / scale
    if y.size and y.max() == np.inf:  # x/scale exceeds the largest float, so that adding 1 makes no difference
        return np.where(np.isinf(y), np.log(x) - math.log(scale), np.log1p(y))
    u = 1.0 + y
    dropped = u - 1.0
    np.subtract(y, dropped, out=dropped)
    dropped /= u
    np.log(u, out=u)
    u += dropped
    return u


def power(x: Array, p: float) -> Array:
    """Return x^p for x >= 0 and 0 < p <= 1. For such p, exp(p·ln x) is as accurate as `**`, and faster."""
    if p == 1:
        return x
    if p == 0.5:
        return np.sqrt(x)
    with np.errstate(divide="ignore"):
        logs = np.log(x)
    logs *= p
    return np.exp(logs, out=logs)


def power_rise(t: Array, base: Array | float, p: float) -> Array:
    """Return (base + t)^p − base^p, for base > 0 (base may be 0 when p = 1) and t > −base."""
    if p == 1:
        return t
    if p == 2:
        return t * (t + 2 * base)
    if p == 3:
        return t * (t * (t + 3 * base) + 3 * base * base)
    return np.asarray(base**p * np.expm1(p * np.log1p(t / base)))


def polylog_rise(x: Array, sigma: float, a: float, p: float) -> Array:
    """Return ln(x/σ + a)^p − ln(a)^p for x >= 0 (Corollary expolyMech, without d)."""
    return power_rise(log1p_ratio(x, sigma * a), math.log(a), p)


def root(x: Array, k: float) -> Array:
    """Return the kth root of x >= 0."""
    if k == 1:
        return x
    if k == 3:
        return np.cbrt(x)
    while k % 2 == 0:
        x, k = np.sqrt(x), k // 2
    return x if k == 1 else x ** (1 / k)


def root_rise(x: Array, a: float, k: float) -> Array:
    """Return (x + a)^(1/k) − a^(1/k) for x, a >= 0 (Corollary kth_root_transform)."""
    if a == 0 or k == 1:
        return root(x, k)
    if k % 2 == 0:  # b − c = (b² − c²)/(b + c)
        return np.asarray(root_rise(x, a, k // 2) / (root(x + a, k) + a ** (1 / k)))
    return np.asarray(a ** (1 / k) * np.expm1(log1p_ratio(x, a) / k))


def root_gap(low: Array, gap: Array, k: float) -> Array:
    """Return (low + gap)^(1/k) − low^(1/k) for arrays low, gap >= 0."""
    with np.errstate(all="ignore"):
        near = root(low, k) * np.expm1(np.log1p(gap / low) / k)
        return np.where(gap < low, near, root(low + gap, k) - root(low, k))


def log_gap(low: Array, gap: Array) -> Array:
    """Return ln(low + gap) − ln(low) for arrays low > 0, gap >= 0."""
    with np.errstate(all="ignore"):
        return np.where(gap < low, np.log1p(gap / low), np.log(low + gap) - np.log(low))


def laplace_loss(x: Array) -> Array:
    """Return x + e^(−x) − 1 for x >= 0, also for small x: the exact loss of a shift by x scales of Laplace noise."""
    with np.errstate(over="ignore", invalid="ignore"):
        series = x * x * (1 / 2 - x * (1 / 6 - x * (1 / 24 - x * (1 / 120 - x * (1 / 720 - x / 5040)))))
        return np.where(x < 0.01, series, x + np.expm1(-x))


def tanh_bound(loss: Array) -> Array:
    """Return tanh(ε/2)·ε, the zCDP loss implied by a pure loss ε (Lemma PRDP-implies-PRzCDP)."""
    small = loss < 0.05
    few = np.count_nonzero(small)
    if 4 * few > loss.size:
        return _tanh_bound_of_small(loss)
    t = np.exp(-loss)  # tanh(ε/2) = (1 − e^−ε)/(1 + e^−ε) loses digits for small ε only
    bound = 1.0 - t
    t += 1.0
    bound /= t
    bound *= loss
    if few:
        bound[small] = _tanh_bound_of_small(loss[small])
    return bound


def _tanh_bound_of_small(loss: Array) -> Array:
    e = np.expm1(-loss)
    return np.asarray(-loss * e / (2.0 + e))


def smallest_offset(p: float) -> float:
    """Return the smallest float not below e^(p−1), the smallest allowed offset of the exponential polylog.

    It is infinite if e^(p−1) is too large for a float.
    """
    if p > 1000:  # far larger exponents are too large for a Decimal, too
        return math.inf
    with localcontext() as context:
        context.prec = 60
        exact = (Decimal(p) - 1).exp()
        nearest = float(exact)
        return nearest if Decimal(nearest) >= exact else math.nextafter(nearest, math.inf)


def polylog_offset(a: float | None, p: float) -> float:
    """Return the offset `a` of an exponential polylog, which is e^(p−1) by default.

    The theorem requires a >= e^(p−1). A float such as `math.e` is below this bound only by rounding; such an offset is
    raised to the nearest float for which the theorem holds.
    """
    least = smallest_offset(p)
    if math.isinf(least):
        raise ParameterError("p", allowed="below 710, so that the least offset e**(p - 1) fits in a float", given=p)
    if a is None or least * (1 - 1e-15) <= a < least:
        return least
    if a < least:
        raise ParameterError("a", allowed=f"at least e**(p - 1) = {least:.6g} for p = {p:g}", given=a)
    return a


def as_points(points: Any) -> Points:
    """Return a table of (size, loss) pairs as floats, or raise unless it is the table of a concave policy.

    Sizes and losses must increase, and the powers of the size that join the points must not: then the curve through the
    points is concave. A loss that breaks the last rule by rounding only is lowered. The point (0, 0) may be given, and
    is left out.
    """
    try:
        pairs = [tuple(pair) for pair in points]
        if any(len(pair) != 2 for pair in pairs):
            raise TypeError
    except TypeError:
        raise ParameterTypeError(
            "points", allowed="pairs of a size and a loss such as [(10, 0.1), (1000, 2)]", given=points
        ) from None
    found = [(as_number("the size of a point", x), as_number("the loss of a point", y)) for x, y in pairs]
    found = found[1:] if found and found[0] == (0.0, 0.0) else found
    if not found:
        raise ParameterError("points", "must have at least one point other than (0, 0)", code="empty")
    for pair in found:
        if not all(LEAST <= part <= MOST for part in pair):
            problem = f"must have sizes and losses from {LEAST:g} to {MOST:g}"
            raise ParameterError("points", problem, code="out-of-range", given=Shown(_point(pair)))
    for one, two in pairwise(found):
        for name, before, after in zip(("sizes", "losses"), one, two, strict=True):
            if not before < after:
                problem = f"must have increasing {name}, and {_point(two)} follows {_point(one)}"
                raise ParameterError("points", problem, code="not-increasing", remedy="remove one of them")
    return _bending_down(found)


def _point(pair: tuple[float, float]) -> str:
    return f"({pair[0]:.6g}, {pair[1]:.6g})"


def _bending_down(points: Sequence[tuple[float, float]]) -> Points:
    """Return the points, or raise unless the powers that join them do not increase, except by rounding.

    Before the first point the loss is proportional to the size, so no power exceeds 1.
    """
    kept, power = [points[0]], 1.0
    for size, loss in points[1:]:
        before = kept[-1]
        most = _most(before, size, power)
        if loss > most * (1 + 1e-9):
            here = log_ratio(before[1], loss) / log_ratio(before[0], size)
            raise ParameterError(
                "points",
                f"must bend downwards: from {_point(before)} to {_point((size, loss))} the loss grows with the power "
                f"{here:.4g} of the size, and before with {power:.4g}",
                code="not-concave",
                remedy=f"the loss at size {size:.6g} may be at most {most:.6g}",
            )
        kept.append((size, min(loss, most)))
        power = min(log_ratio(before[1], kept[-1][1]) / log_ratio(before[0], size), power)
    return tuple(kept)


def _most(before: tuple[float, float], size: float, power: float) -> float:
    """Return the largest loss at a size that a power allows from a point on, rounded down."""
    if power == 1:
        exact = Fraction(before[1]) * Fraction(size) / Fraction(before[0])
        nearest = float(exact)
        return nearest if Fraction(nearest) <= exact else math.nextafter(nearest, 0)
    return before[1] * math.exp(power * log_ratio(before[0], size)) * (1 - 1e-15)


def stretched_points(points: Points, factor: float) -> Points:
    """Return the points with their sizes multiplied by a factor."""
    return _bending_down([(size * factor, loss) for size, loss in points])


def log_ratio(low: float, high: float) -> float:
    """Return ln(high/low) for 0 < low < high, also if they are nearly equal."""
    return math.log1p((high - low) / low) if high < 2 * low else math.log(high) - math.log(low)


def power_pieces(points: Points) -> tuple[tuple[float, float, float], ...]:
    """Return the pieces loss·(x/size)^exponent of the curve through points, as (size, loss, exponent).

    The first piece is proportional to x and ends at the first point. From one point to the next, the curve is the power
    that passes through both: a straight line if both axes are logarithmic. The last power continues for ever.
    """
    powers = ((a, min(log_ratio(a[1], b[1]) / log_ratio(a[0], b[0]), 1.0)) for a, b in pairwise(points))
    return ((*points[0], 1.0), *((*start, exponent) for start, exponent in powers))


def probes(a: float) -> Array:
    """Return the points >= a at which a user-given function is checked."""
    return np.unique(a + np.concatenate([[0.0], np.geomspace(1e-9, 1e15, 481)]))


def check_concave(f: Callable[[Any], Any], a: float) -> None:
    """Raise unless f is finite, strictly increasing and concave at test points >= a (Assumption transformInput)."""
    x = probes(a)
    y = apply(f, x)
    if not np.isfinite(y).all():
        where = x[~np.isfinite(y)][0]
        raise ParameterError("f", f"must be finite on [{a:g}, ∞), and is not at {where:g}", code="not-finite")
    dx, dy = np.diff(x), np.diff(y)
    # A bound on the rounding error of a difference of two values of f.
    slack = 8 * np.finfo(float).eps * (np.abs(y[1:]) + np.abs(y[:-1]))
    flat = np.append(y[20:] <= y[:-20], np.zeros(20, bool))  # it must rise over every factor of ten
    falls = np.append(dy <= -slack, False) | flat
    if falls.any():
        problem = f"must strictly increase on [{a:g}, ∞), and does not near {x[falls][0]:g}"
        raise ParameterError("f", problem, code="not-increasing")
    slope, loose = dy / dx, slack / dx
    rises = slope[1:] > slope[:-1] + loose[1:] + loose[:-1] + 1e-9 * np.abs(slope[:-1])
    if rises.any():
        problem = f"must be concave on [{a:g}, ∞), and is not near {x[1:-1][rises][0]:g}"
        raise ParameterError("f", problem, code="not-concave")
